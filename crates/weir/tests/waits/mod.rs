//! For tests of what must come to an end, in which real threads wait.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use weir::sim::Dir;
use weir::{Builder, Db, LeveledOptions, Options};

/// Longer than anything here takes, shorter than for ever.
pub const LONG: Duration = Duration::from_secs(30);

pub fn builder(dir: Arc<dyn Dir>) -> Builder {
    let options = Options::default()
        .write_buffer_bytes(4 << 10)
        .compaction(LeveledOptions::default().l0_trigger(100));
    Db::builder("sim")
        .default_options(options)
        .memory_budget(8 << 20)
        .log_segment_bytes(16 << 10)
        .log_area_bytes(1 << 20)
        .background_threads(1)
        .seed(1)
        .device(dir)
}

/// What `body` returns, if it returns.
pub fn in_time<T: Send + 'static>(what: &str, body: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(body()));
    receiver.recv_timeout(LONG).unwrap_or_else(|e| panic!("{what} did not end: {e}"))
}
