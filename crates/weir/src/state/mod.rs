//! The shared state of a running store: the super-version of each keyspace, the snapshot lists, the
//! visible sequence number, what cursors leave for the next one, the store's health, its counters,
//! pending callbacks, and the reclaimer of tables.
//!
//! Not here: the order of writes (`write`), searches in the tree (`read`), background work (`db`).
//!
//! Invariants:
//! 1. A super-version is immutable and published by one pointer; a point lookup takes it *before*
//!    it reads the visible sequence number (H45); a scan's number is in the snapshot list before.
//! 2. The visible sequence number is raised only after every entry up to it is in a memtable (H46).
//! 3. A snapshot is entered in a list under that list's lock, at the visible sequence number read
//!    under that lock; a job that drops entries reads the lists after pinning the version (H47).
//! 4. A table's bytes are freed only after the edit that removed it is durable and no version,
//!    cursor or job holds it (H14, H30).

pub(crate) mod calls;
pub(crate) mod counters;
pub(crate) mod health;
pub(crate) mod idle;
pub(crate) mod reclaimer;
pub(crate) mod shared;
pub(crate) mod snapshots;
pub(crate) mod tree;
