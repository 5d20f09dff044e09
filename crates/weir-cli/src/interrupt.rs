//! Ctrl-C and SIGTERM as a flag that commands look at, so that stores are closed cleanly.

use crate::failure::{Failure, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the user asked the command to end.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on the first signal sets the flag and a second one ends the process at once, with
    /// the exit code that shells give to an interrupted command.
    pub(crate) fn install() -> Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The order matters: the shutdown is conditional on the flag that the first signal set.
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, flag.clone())
                .and_then(|_| signal_hook::flag::register(signal, flag.clone()))
                .map_err(|e| Failure::new(format_args!("cannot watch for Ctrl-C: {e}")))?;
        }
        Ok(Self(flag))
    }

    /// Whether a signal came.
    pub(crate) fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Forgets the signal: the shell goes on after an interrupted scan.
    pub(crate) fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// What an interrupted command ends with.
    pub(crate) fn failure() -> Failure {
        Failure { code: 130, message: "interrupted; the store was closed cleanly".to_owned() }
    }
}
