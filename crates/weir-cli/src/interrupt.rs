//! Ctrl-C and the other signals that ask a program to end, as a flag that commands look at, so that
//! stores are closed cleanly and temporary ones removed.

use crate::failure::{Failure, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_bench::Stopwatch;

/// Signals that come so soon after the first are the same request: `timeout` and terminals may send
/// one to the process and one to its group.
const ONE_REQUEST_SECONDS: f64 = 0.5;

/// What shells report for a command that Ctrl-C ended.
const EXIT_CODE: u8 = 128 + SIGINT as u8;

/// Whether the user asked the command to end.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on a first signal sets the flag, and a later one ends the process at once: a store
    /// survives that like any crash.
    pub(crate) fn install() -> Result<Self> {
        let fail = |e: std::io::Error| Failure::new(format_args!("cannot watch for Ctrl-C: {e}"));
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM]).map_err(fail)?;
        let flag = Arc::new(AtomicBool::new(false));
        let set = Arc::clone(&flag);
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                let mut first = Stopwatch::start();
                for _signal in signals.forever() {
                    if !set.swap(true, Ordering::Relaxed) {
                        first = Stopwatch::start();
                    } else if first.seconds() > ONE_REQUEST_SECONDS {
                        std::process::exit(i32::from(EXIT_CODE));
                    }
                }
            })
            .map_err(fail)?;
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
        Failure { code: EXIT_CODE, message: "interrupted; the store was closed cleanly".to_owned() }
    }
}
