// FORMAT: docs/format/block.md sha=f047b166d6fe
// FORMAT: docs/format/edit.md sha=47035008c005
//! The limits of the engine, each with the reason for its value.

/// Largest user key, in bytes: a key length fits 16 bits in a block.
pub(crate) const KEY_BYTES_MAX: usize = 65_535;

/// Largest value under any memory budget, in bytes: 1 GiB.
pub(crate) const VALUE_BYTES_MAX: usize = 1 << 30;

/// Largest keyspace name, in bytes.
pub(crate) const KEYSPACE_NAME_BYTES_MAX: usize = 255;

/// Most keyspaces in one store. Each has a memtable of its own.
pub(crate) const KEYSPACES_MAX: usize = 4096;

/// Levels of a tree. Level 0 holds flushed runs; with a size ratio of 10 and 256 MiB in level 1,
/// level 6 holds 25 TiB.
pub const LEVELS: usize = 7;
