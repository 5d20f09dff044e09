//! Tables: immutable sorted files of entries, their writer, reader and cursor.
//!
//! Tables are LevelDB's SSTables. Not here: the set of tables and their order in a search
//! (`version`), the placement of their bytes (`storage`).

mod ahead;
mod around;
mod block;
mod builder;
mod cursor;
mod fetch;
mod format;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod index;
mod lookup;
mod reader;
mod table_cache;
mod touched;
mod verify;
mod warm;

#[cfg(test)]
mod around_tests;
#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod flight_tests;
#[cfg(test)]
mod open_tests;
#[cfg(test)]
mod speed;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub(crate) use ahead::ReadAhead;
pub(crate) use builder::{BlockSink, TableBuilder, WrittenBlock};
pub(crate) use cursor::{CurrentBlock, TableCursor};
pub(crate) use lookup::{HashedKey, HeldBlock};
pub(crate) use reader::{Table, TableMemory, read_meta};
pub(crate) use table_cache::{Closed, Gate, Gates, TableCache};
#[cfg(feature = "sim")]
pub use touched::blocks_entered;
pub use touched::tables_touched;
pub(crate) use touched::{touch, touch_block};
pub(crate) use verify::KeyRanges;
pub(crate) use warm::WarmEntries;

use crate::base::ids::{KeyspaceId, Level};
use crate::base::key::{Kind, Seq};
use crate::base::value::Value;
use crate::cache::Purpose;
use crate::options::{Compression, Options};

/// How a table is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TableOptions {
    /// Target size of a data block before compression, in bytes.
    pub(crate) block_bytes: u32,
    /// Bits per distinct user key in the filter; 0 means no filter.
    pub(crate) bloom_bits: f32,
    /// Compression of data blocks.
    pub(crate) compression: Compression,
    /// Seed of the key hashes in the filter: the store's.
    pub(crate) hash_seed: u64,
    /// Id of the keyspace that the entries belong to.
    pub(crate) keyspace: KeyspaceId,
}

impl TableOptions {
    /// Those of the tables of `level` in a keyspace with `options`; `hash_seed` is the store's.
    pub(crate) fn of_level(
        keyspace: KeyspaceId,
        options: &Options,
        level: Level,
        hash_seed: u64,
    ) -> Self {
        Self {
            block_bytes: options.block_bytes,
            bloom_bits: options.bloom_bits_at(level.get()),
            compression: options.compression_at(level.get()),
            hash_seed,
            keyspace,
        }
    }
}

/// What a point lookup found: the newest entry of the key at the snapshot.
#[derive(Clone, Debug)]
pub(crate) struct TableHit {
    pub(crate) seq: Seq,
    pub(crate) kind: Kind,
    /// Empty for a delete.
    pub(crate) value: Value,
}

/// How a cursor reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CursorOptions {
    /// For the cache's counters.
    pub(crate) purpose: Purpose,
    /// Whether blocks that were read are inserted into the cache; not by compactions.
    pub(crate) fill_cache: bool,
    /// How far it reads ahead.
    pub(crate) readahead: ReadAhead,
}

/// What a verification has read and found correct.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VerifyStats {
    pub(crate) blocks: u64,
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}
