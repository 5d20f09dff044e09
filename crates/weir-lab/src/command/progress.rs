//! A progress bar over all runs of a command.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressStyle};
use weir_lab::suite::{Listener, Progress, Stage};

/// Steps of a progress bar per run.
const STEPS: f64 = 1000.0;

/// What `work` gives, under a progress bar that it tells what happens.
pub(crate) fn progress<T>(work: impl FnOnce(&Listener) -> T) -> T {
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {percent:>3} %  {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let done = work(&listener(&bar));
    bar.finish_and_clear();
    done
}

/// Shows how far all runs are together, and what the last one to be heard of does.
fn listener(bar: &ProgressBar) -> Listener {
    let (bar, parts) = (bar.clone(), Mutex::new(BTreeMap::<String, f64>::new()));
    Arc::new(move |progress: Progress| {
        let (part, doing) = match progress.stage {
            Stage::Loading => (0.0, "loads"),
            Stage::Running(part) => (part.clamp(0.0, 1.0), "runs"),
            Stage::Done => (1.0, "is done"),
        };
        // A thread that panicked while it held this left a sound map.
        let mut parts = parts.lock().unwrap_or_else(PoisonError::into_inner);
        bar.set_length((progress.runs as f64 * STEPS) as u64);
        bar.set_prefix(format!("{} of {} runs", progress.done, progress.runs));
        bar.set_message(format!("{} {doing}", progress.run));
        parts.insert(progress.run, part);
        bar.set_position((parts.values().sum::<f64>() * STEPS) as u64);
    })
}
