//! Incremental warm-up: a compaction inserts output blocks into the cache where inputs were cached.
//!
//! An output block whose key range overlaps that of a cached input block is inserted into the cache
//! as it is written, from memory: no block is read for it. The unit is the block: one hot input
//! block of an upper level overlaps, and warms, several blocks of the level below, hot or not. So
//! the method fails where the levels' hot ranges differ, and it is off by default: it is the
//! baseline for the hand-off of single entries.
//!
//! Invariants: (1) a block is inserted under the uid of a table that no version names yet, and uids
//! are never used again: no reader finds it before its table is published; (2) an abandoned job
//! erases its blocks from the cache; (3) the cache's capacity and eviction apply as to any other
//! block.
//!
//! Source: Ahmad and Kemme's warm-up after compactions on dedicated servers, as LSbM §2.3 and
//! §6.3.1 describe it. We differ: no block is sent, since the compaction runs in the process that
//! owns the cache.

use std::sync::Arc;

use crate::base::buf::Buf;
use crate::base::ids::TableUid;
use crate::base::key;
use crate::base::sched::Mutex;
use crate::cache::BlockCache;
use crate::table::{BlockSink, Table, WrittenBlock};

/// The inputs of one compaction, and the output blocks inserted into the cache because of them.
pub(super) struct Warmer {
    cache: Arc<BlockCache>,
    /// The tables of each slice, in key order.
    inputs: Vec<Vec<Arc<Table>>>,
    /// Table uid and number of every block inserted into the cache. Locks: a leaf.
    warmed: Mutex<Vec<(TableUid, u32)>>,
}

impl Warmer {
    pub(super) fn new(cache: Arc<BlockCache>, inputs: Vec<Vec<Arc<Table>>>) -> Arc<Self> {
        Arc::new(Self { cache, inputs, warmed: Mutex::default() })
    }

    /// The sink that receives the blocks of an output table.
    pub(super) fn sink(self: &Arc<Self>) -> Box<dyn BlockSink> {
        Box::new(Sink(Arc::clone(self)))
    }

    /// Whether an input block that overlaps `[first, last]` is cached now. An overestimate at
    /// either end, by at most one block of each table that ends there.
    fn is_warm(&self, first: &[u8], last: &[u8]) -> bool {
        self.inputs.iter().any(|tables| {
            let ends_before =
                |table: &Arc<Table>| key::compare(&table.meta().largest, first).is_lt();
            let from = tables.partition_point(ends_before);
            tables
                .iter()
                .skip(from)
                .take_while(|table| key::compare(&table.meta().smallest, last).is_le())
                .any(|table| table.is_cached_between(first, last))
        })
    }

    /// Number of blocks inserted into the cache.
    pub(super) fn blocks_warmed(&self) -> u64 {
        self.warmed.lock().len() as u64
    }

    /// Erases the blocks from the cache: their tables are being removed.
    pub(super) fn forget(&self) {
        for (uid, ordinal) in std::mem::take(&mut *self.warmed.lock()) {
            self.cache.erase(uid, ordinal);
        }
    }
}

struct Sink(Arc<Warmer>);

impl BlockSink for Sink {
    fn block(&mut self, block: WrittenBlock<'_>) {
        let warm_up = &self.0;
        debug_assert!(
            key::compare(block.first_key, block.last_key).is_le(),
            "block {} of table {} from {} to {}",
            block.ordinal,
            block.uid,
            key::Printable(block.first_key),
            key::Printable(block.last_key)
        );
        if warm_up.is_warm(block.first_key, block.last_key) {
            warm_up.cache.insert(block.uid, block.ordinal, Buf::from(block.content));
            warm_up.warmed.lock().push((block.uid, block.ordinal));
        }
    }
}
