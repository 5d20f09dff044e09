//! The heat of ranges: how much users read and write in which part of a keyspace, so that hot
//! ranges can be told from cold ones.
//!
//! ```text
//! keys    [------------------------------------------------------------)
//! buckets [   0   |  1 | 2 |      3      | 4 |           5             )
//! each    about as many entries; scans, entries scanned, gets, writes, runs opened beyond one
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `buckets` | the partition of the key space; pure |
//! | `counters` | what is counted for each bucket: sampled, halved once a window |
//! | `shape` | the same as plain data, for deciders |
//!
//! Not here: the marks of entries in cached blocks (`base::heat`), what is worth moving
//! (`compaction::sentinel`), who counts (`read`, `write`), when it is split anew (`db`).
//!
//! Source: BiLSM §3.1 (bucket ranges with a read and a write counter). We differ: buckets are
//! quantiles of the keys unless equal ranges are asked for; reads count the runs that they really
//! opened; point reads count too; counters fade (H28).

pub(crate) mod buckets;
pub(crate) mod counters;
pub(crate) mod moved;
pub(crate) mod shape;

pub(crate) use counters::RangeHeat;
