//! Options of a store in which little data has many tables.

use weir::{LeveledOptions, Options};

/// Options that make a small store go through many flushes and compactions.
pub fn tiny() -> Options {
    Options::default().write_buffer_bytes(4 << 10).table_bytes(2 << 10).block_bytes(512).compaction(
        LeveledOptions::default().base_level_bytes(8 << 10).level_ratio(4).l0_trigger(2),
    )
}
