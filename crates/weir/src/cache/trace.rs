//! What a block cache is asked for, told to an observer: for races between rules of eviction.
//!
//! Under the feature `sim` only; without an observer a call costs one test.

use std::sync::Arc;

use crate::base::ids::TableUid;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheOp {
    /// A lookup for a user.
    Get,
    /// A lookup for a flush, a merge or a verification.
    Peek,
    /// A block that was read and not found, or came where there was room.
    Insert,
    /// A block that a merge wrote.
    HandOver,
    /// The removal of one block.
    Erase,
    /// The removal of all blocks of a table.
    EraseTable,
}

/// One call of a block cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheCall {
    /// What is asked for.
    pub op: CacheOp,
    /// The table's uid.
    pub uid: u64,
    /// The block's number in its table; of [`CacheOp::EraseTable`] the number of its blocks.
    pub ordinal: u32,
    /// Bytes of the block's memory, as far as it is at hand; 0 of a lookup that found nothing.
    pub bytes: u32,
}

/// An observer of a block cache. It is called beside the caller's locks and must not wait.
pub type CacheObserver = Arc<dyn Fn(CacheCall) + Send + Sync>;

/// The observer of one cache, if it has one.
#[derive(Clone, Default)]
pub(super) struct Trace(Option<CacheObserver>);

impl Trace {
    pub(super) fn new(observer: Option<CacheObserver>) -> Self {
        Self(observer)
    }

    /// Tells of one call.
    #[inline]
    pub(super) fn note(&self, op: CacheOp, uid: TableUid, ordinal: u32, bytes: usize) {
        if let Some(observer) = &self.0 {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            observer(CacheCall { op, uid: uid.get(), ordinal, bytes });
        }
    }
}
