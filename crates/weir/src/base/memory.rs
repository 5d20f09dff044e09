//! Memory accounting: how much of `memory_budget` each category holds (ARCHITECTURE §10).
//!
//! Every large allocation is charged to a category by a [`Charge`], which releases it on drop. The
//! accountant never refuses: a caller that must stay within the budget checks what is used first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What memory is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Category {
    /// Active and immutable memtables.
    Memtables = 0,
    /// Cached data blocks.
    BlockCache = 1,
    /// Indexes, filters and fences of open tables, and the heat of ranges.
    TableMetadata = 2,
    /// Buffers of flushes, compactions and the log.
    Jobs = 3,
    /// Blocks held by cursors and values after their eviction, and reads in flight.
    Pinned = 4,
    /// Cached rows.
    RowCache = 5,
    /// Memory between cached blocks: what their slabs have and no block uses.
    Retained = 6,
    /// Memory of flushed memtables, kept for the next ones.
    SpareMemtables = 7,
}

/// Number of categories.
pub(crate) const CATEGORIES: usize = 8;

/// Counts bytes held per category against one budget.
#[derive(Debug)]
pub(crate) struct Accountant {
    budget_bytes: u64,
    used: [AtomicU64; CATEGORIES],
}

impl Accountant {
    /// An accountant for `budget_bytes`.
    pub(crate) fn new(budget_bytes: u64) -> Arc<Self> {
        Arc::new(Self { budget_bytes, used: Default::default() })
    }

    /// The budget, in bytes.
    pub(crate) fn budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    /// Bytes held by `category` now.
    pub(crate) fn used(&self, category: Category) -> u64 {
        self.used[category as usize].load(Ordering::Relaxed)
    }

    /// Bytes held by all categories now. The categories are read one after the other.
    pub(crate) fn used_total(&self) -> u64 {
        self.used.iter().map(|u| u.load(Ordering::Relaxed)).sum()
    }

    /// Charges `bytes` to `category` until the charge is dropped.
    pub(crate) fn charge(self: &Arc<Self>, category: Category, bytes: u64) -> Charge {
        self.used[category as usize].fetch_add(bytes, Ordering::Relaxed);
        Charge { accountant: Arc::clone(self), category, bytes }
    }

    /// Sets the bytes of `category`, for a holder that counts by itself (the block cache).
    pub(crate) fn set(&self, category: Category, bytes: u64) {
        self.used[category as usize].store(bytes, Ordering::Relaxed);
    }
}

/// Bytes held; released on drop.
#[derive(Debug)]
pub(crate) struct Charge {
    accountant: Arc<Accountant>,
    category: Category,
    bytes: u64,
}

impl Charge {
    /// Changes the amount held.
    pub(crate) fn resize(&mut self, bytes: u64) {
        let used = &self.accountant.used[self.category as usize];
        if bytes >= self.bytes {
            used.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else {
            let held = used.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
            debug_assert!(held >= self.bytes, "{held} bytes with a charge of {}", self.bytes);
        }
        self.bytes = bytes;
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let used = &self.accountant.used[self.category as usize];
        let held = used.fetch_sub(self.bytes, Ordering::Relaxed);
        debug_assert!(held >= self.bytes, "{held} bytes with a charge of {}", self.bytes);
    }
}
