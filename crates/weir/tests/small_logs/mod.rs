//! A store with short log segments, whose memtables are flushed when a test says so.

use weir::{Builder, Db, Options};

pub fn options() -> Options {
    Options::default().write_buffer_bytes(4 << 10).immutables_max(64)
}

pub fn builder() -> Builder {
    Db::builder("sim")
        .default_options(options())
        .memory_budget(8 << 20)
        .log_segment_bytes(4 << 10)
        .log_area_bytes(1 << 20)
        .background_threads(1)
        .seed(1)
}
