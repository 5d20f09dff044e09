//! Incremental warm-up: what a merge writes goes into the block cache where its inputs were cached.
//!
//! An output block whose key range overlaps that of a cached input block is put into the cache
//! while it is written, from memory: no block is read for it. Whole blocks: one hot input block of
//! an upper level overlaps, and warms, several blocks of the level below, hot or not. That is how
//! the method fails where the levels' hot ranges differ, and why it is off by default: it is the
//! baseline that the hand-off of single entries is compared with.
//!
//! Invariants: (1) a block goes in under the uid of a table that no version names yet, and uids are
//! never used again: nobody reads it before it is published, nor if it never is; (2) the blocks of
//! a job that gives up leave the cache; (3) the cache's capacity and eviction hold as for any other
//! block.
//!
//! Source: Ahmad and Kemme's warm-up after compactions on dedicated servers, as LSbM §2.3 and
//! §6.3.1 describe it. We differ: the blocks need not be sent, since the merge runs where the cache
//! is.

use std::sync::Arc;

use crate::base::buf::Buf;
use crate::base::key;
use crate::base::sched::Mutex;
use crate::cache::BlockCache;
use crate::table::{BlockSink, Table, WrittenBlock};

/// The inputs of one merge, and what of its outputs is in the cache because of them.
pub(super) struct WarmUp {
    cache: Arc<BlockCache>,
    /// Per slice its tables, in key order.
    inputs: Vec<Vec<Arc<Table>>>,
    /// Table and number of every block that was put into the cache. Locks: a leaf.
    warmed: Mutex<Vec<(u64, u32)>>,
}

impl WarmUp {
    pub(super) fn new(cache: Arc<BlockCache>, inputs: Vec<Vec<Arc<Table>>>) -> Arc<Self> {
        Arc::new(Self { cache, inputs, warmed: Mutex::default() })
    }

    /// Who watches the blocks of the output tables.
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

    /// Blocks that were put into the cache.
    pub(super) fn blocks_warmed(&self) -> u64 {
        self.warmed.lock().len() as u64
    }

    /// Takes the blocks out again: their tables are given up.
    pub(super) fn forget(&self) {
        for (uid, ordinal) in std::mem::take(&mut *self.warmed.lock()) {
            self.cache.erase(uid, ordinal);
        }
    }
}

struct Sink(Arc<WarmUp>);

impl BlockSink for Sink {
    fn block(&mut self, block: WrittenBlock<'_>) {
        let warm_up = &self.0;
        if warm_up.is_warm(block.first_key, block.last_key) {
            warm_up.cache.insert(block.uid, block.ordinal, Buf::from(block.content));
            warm_up.warmed.lock().push((block.uid, block.ordinal));
        }
    }
}
