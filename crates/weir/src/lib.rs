//! Weir: an embedded, ordered key-value store: an LSM-tree storage engine.
//!
//! A weir is a low dam: the river flows, the pool above it stays level. Data flows down through the
//! levels of an LSM-tree; Weir is built to keep what readers use level while it does. [`Db`] is the
//! way in.
//!
//! # Errors and panics
//!
//! A mistake of the caller's is an error in every function, and so is the state that a store is in.
//! What returns a [`Result`] does not panic, whatever it is given: a keyspace of another store, one
//! that was dropped, or a store that was closed is an [`Error`] whose [`kind`](Error::kind) says
//! what to do. What returns no `Result` hands the error on: an [`Iter`] or [`Keys`] gives it as an
//! item, after which it ends, a [`Cursor`] in [`status`](Cursor::status), a [`WriteBatch`] when it
//! is written, a [`Commit`] when it is waited for. A range without a key in it, such as one whose
//! end is before its start, is no mistake but empty. Only [`Cursor::key`] and [`Cursor::value`]
//! panic, on a cursor that is not valid, as an index outside of a slice does; [`Cursor::entry`]
//! does not.
//!
//! # Limits
//!
//! * A key: 65,535 bytes; a value: the least of 1 GiB, an eighth of the memory budget and a quarter
//!   of `log_area_bytes`.
//! * A batch: records may begin in its first 2 GiB, and it has fewer than 2^32 of them.
//! * Keyspaces of a store: 4,096; a keyspace's name: 1 to 255 bytes without control characters.
//!
//! # What there is not
//!
//! * A range delete: delete the keys, as below, or keep what goes together in a keyspace of its own
//!   and [drop](Db::drop_keyspace) that.
//! * Transactions: a batch is atomic, a [`Snapshot`] is one state of the store, but nothing notices
//!   that what a batch is based on was changed since it was read. Writers who read first have to
//!   exclude each other.
//! * Merge operators: read, change, write.
//!
//! A range is deleted batch by batch, so that no batch gets large; each is atomic, all of them are
//! not:
//!
//! ```
//! # let dir = tempfile::tempdir().unwrap();
//! # let db = weir::Db::open(dir.path().join("data"))?;
//! # for i in 0..3000u32 { db.put(format!("log/{i}"), "x")?; }
//! # db.put("other", "stays")?;
//! use weir::{Durability, WriteBatch};
//! let mut batch = WriteBatch::new();
//! for key in db.prefix("log/").keys() {
//!     batch.delete(db.default_keyspace(), key?);
//!     if batch.len() == 1000 {
//!         db.write(&mut batch, Durability::Buffered)?;
//!         batch.clear();
//!     }
//! }
//! db.write(&mut batch, Durability::Buffered)?;
//! # assert_eq!(db.keys().count(), 1);
//! # Ok::<(), weir::Error>(())
//! ```

#![warn(missing_debug_implementations)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("Weir needs a 64-bit target: lengths of files and offsets in them are `usize`s");

pub(crate) mod base;
pub(crate) mod cache;
pub(crate) mod compaction;
pub(crate) mod db;
pub(crate) mod device;
pub(crate) mod filter;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
pub(crate) mod gaps;
pub(crate) mod heat;
pub(crate) mod log;
pub(crate) mod memtable;
pub(crate) mod merge;
pub(crate) mod options;
pub(crate) mod read;
#[cfg(all(test, feature = "schedules"))]
mod schedules;
pub(crate) mod state;
pub(crate) mod storage;
pub(crate) mod table;
pub(crate) mod version;
pub(crate) mod write;

pub use base::error::{Error, ErrorKind, Result};

/// Building blocks of simulations of the whole engine: the scheduler, the disks and the seeded
/// generator. Not part of the stable interface.
#[cfg(feature = "sim")]
pub mod sim {
    pub use crate::base::checksum::FixedState;
    pub use crate::base::prng::Prng;
    pub use crate::base::sched::sim::{
        ActorHandle, PlannedPanic, Settings, Simulation, panic_as_planned, switch_point,
    };
    pub use crate::cache::{CacheCall, CacheObserver, CacheOp, Eviction, RacedCache, RacedTable};
    pub use crate::device::faulty::{Effect, ErrorCode, Fault, Faults, FaultyDir, Times};
    pub use crate::device::memory::MemDir;
    pub use crate::device::real::RealDir;
    pub use crate::device::sim::crash::{CrashPolicy, SECTOR_BYTES, Torn};
    pub use crate::device::sim::{Replayer, SimDisk, SimOptions, Timing};
    pub use crate::device::site::{OpKind, Site, SiteCount, SiteCounters};
    pub use crate::device::spindle::{
        DiskModel, FileSystem, TimedCounters, TimedDir, TimedOptions, now_nanos, this_actor_reads,
        work,
    };
    pub use crate::device::{Advice, Dir, File, FileClass, Lock, Mode};
    pub use crate::read::buffered::bare::{through_lists, without_lists};
    pub use crate::storage::files::names::class_of;
    pub use crate::storage::open::format_in;
    pub use crate::table::{blocks_entered, tables_touched};
}

pub use base::error::Damage;
pub use base::value::Value;
pub use storage::open::format;
pub use storage::slots::{FormatOptions, SlotSpace};

pub use db::batch::{BatchIter, BatchRecord, Commit, WriteBatch};
pub use db::copies::CopiesCached;
pub use db::inspect::{
    BufferDescription, BufferedRunDescription, Description, KeyspaceDescription, LevelDescription,
    MovedRangeDescription, RunDescription, TableDescription, VerifyReport,
};
pub use db::iter::{Cursor, Iter, Keys};
pub use db::keyspace::Keyspace;
pub use db::metrics::{
    BytesWritten, CacheMetrics, KeyspaceMetrics, LevelMetrics, MemoryMetrics, Metrics,
    RowCacheMetrics,
};
pub use db::range::KeyRange;
pub use db::repair::{LostLog, LostTable, RepairOptions, RepairReport};
pub use db::snapshot::Snapshot;
pub use db::{Builder, Db};
pub use options::defaults;
pub use options::{
    BucketRanges, CompactionBuffer, CompactionPolicy, Compression, CostModel, DbOptions,
    DebugDbOptions, DebugOptions, Durability, Filters, HotRanges, LeveledOptions, OddChunk,
    Options, PartsOptions, RunsOptions, SentinelOptions, Sentinels, TrimOptions, WarmUp,
};
pub use storage::io::{IoByCause, IoMetrics};

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
