//! The compaction iterator: the rule by which a compaction drops old versions and deletes.
//!
//! Not here: the choice of inputs and the cutting of outputs (`compaction`), whether older data of
//! a key may exist below the inputs (the caller's `drop_deletes`).
//!
//! ```text
//! snapshots s1 < s2 < ... < sn
//! stripe 0: seq <= s1     stripe i: s_i < seq <= s_(i+1)     stripe n: above sn
//! ```
//!
//! Invariants:
//! (1) of each key the newest entry of each stripe survives: the snapshot at the stripe's upper end
//!     (or, for the last one, every later reader) sees it;
//! (2) a delete is dropped only if it is the newest of stripe 0, so that no older version survives
//!     in these inputs, and the caller says that none exists below them (H9);
//! (3) entries are never combined: each passes unchanged or is counted as dropped, with a reason
//!     (bug 5); read = passed + shadowed + deletes_dropped, in number and in the sum of entry
//!     hashes (the conservation law, ARCHITECTURE §3);
//! (4) a caller that stops at `!valid()` must check `status`: an unreadable input is not at its end
//!     (bug 39).
//! The snapshots are read after the inputs were pinned, and later ones are newer than every input
//! (H47).
//!
//! Source: LevelDB `db/db_impl.cc`, `DoCompactionWork`, rules (A) and (B); stripes as in Pebble's
//! `internal/compact/iterator.go`.

use crate::base::checksum::hash_entry;
use crate::base::cursor::Cursor;
use crate::base::error::Result;
use crate::base::heat::Warmth;
use crate::base::key::{Kind, Seq};

/// A number of entries and the wrapping sum of their hashes (`base::checksum::hash_entry`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) entries: u64,
    pub(crate) hash: u64,
}

impl Tally {
    /// Counts an entry with this hash.
    #[inline]
    pub(crate) fn add(&mut self, hash: u64) {
        self.entries += 1;
        self.hash = self.hash.wrapping_add(hash);
    }

    /// Both together.
    #[must_use]
    pub(crate) fn plus(self, other: Self) -> Self {
        let hash = self.hash.wrapping_add(other.hash);
        Self { entries: self.entries + other.entries, hash }
    }
}

/// The fate of the entries read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RetainCounts {
    /// Entries taken from the input, the current one included.
    pub(crate) read: Tally,
    /// Dropped: a newer entry of the same key hides them from every reader.
    pub(crate) shadowed: Tally,
    /// Dropped: deletes that hide nothing.
    pub(crate) deletes_dropped: Tally,
}

impl RetainCounts {
    /// All entries dropped, for either reason.
    #[must_use]
    pub(crate) fn dropped(&self) -> Tally {
        self.shadowed.plus(self.deletes_dropped)
    }
}

/// The surviving entries of a compaction's input, in order. Forward only.
pub(crate) struct Retain<C, F> {
    inner: C,
    snapshots: Vec<Seq>,
    drop_deletes: F,
    counts: RetainCounts,
    /// The last user key read and the stripe of its last entry.
    key: Vec<u8>,
    stripe: Option<usize>,
    hash: u64,
    /// The warmest of the entries that the entry before the current one hides.
    hidden: Warmth,
    /// The last entry of a new stripe or key was dropped.
    dropped: bool,
}

impl<C: Cursor, F: FnMut(&[u8]) -> bool> Retain<C, F> {
    /// Filters `inner` for these snapshots, sorted ascending. `drop_deletes(key)` says whether no
    /// version of `key` can exist below the inputs. Not valid before [`Retain::seek_to_first`].
    pub(crate) fn new(inner: C, snapshots: Vec<Seq>, drop_deletes: F) -> Self {
        assert!(snapshots.is_sorted(), "snapshots are sorted ascending: {snapshots:?}");
        Self {
            inner,
            snapshots,
            drop_deletes,
            counts: RetainCounts::default(),
            key: Vec::new(),
            stripe: None,
            hash: 0,
            hidden: Warmth::Cold,
            dropped: true,
        }
    }

    /// The input.
    pub(crate) fn inner(&self) -> &C {
        &self.inner
    }

    /// The same, to let it give up what lies behind. Requires: it does not move.
    pub(crate) fn inner_mut(&mut self) -> &mut C {
        &mut self.inner
    }

    /// Moves to the first surviving entry and starts counting from zero.
    pub(crate) fn seek_to_first(&mut self) {
        self.counts = RetainCounts::default();
        self.stripe = None;
        self.dropped = true;
        self.inner.seek_to_first();
        self.skip_dropped();
    }

    /// Moves to the next surviving entry. Requires: valid.
    #[inline]
    pub(crate) fn next(&mut self) {
        debug_assert!(self.valid(), "next on a compaction's input that is not valid");
        self.inner.next();
        self.skip_dropped();
    }

    /// Whether there is a current entry. At the end, check [`Retain::status`] too.
    #[inline]
    pub(crate) fn valid(&self) -> bool {
        self.inner.valid()
    }

    /// The error that ended the input before its end, if one did.
    pub(crate) fn status(&self) -> Result<()> {
        self.inner.status()
    }

    /// User key of the current entry.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.inner.key()
    }

    /// Sequence number of the current entry.
    #[inline]
    pub(crate) fn seq(&self) -> Seq {
        self.inner.seq()
    }

    /// Kind of the current entry.
    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        self.inner.kind()
    }

    /// Value of the current entry.
    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        self.inner.value()
    }

    /// Entry hash of the current entry.
    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// How lately users read the current entry.
    #[inline]
    pub(crate) fn warmth(&self) -> Warmth {
        self.inner.warmth()
    }

    /// Whether readers will find the current entry where it is after the merge too.
    #[inline]
    pub(crate) fn stays(&self) -> bool {
        self.inner.stays()
    }

    /// How lately users read entries that the one before the current one hides: it is read in their
    /// place from now on.
    #[inline]
    pub(crate) fn hidden_warmth(&self) -> Warmth {
        self.hidden
    }

    /// Bytes of the cached blocks that the input has entered and that the merge replaces.
    pub(crate) fn cached_bytes(&self) -> u64 {
        self.inner.cached_bytes()
    }

    /// The fate of the entries read so far.
    pub(crate) fn counts(&self) -> RetainCounts {
        let (read, dropped) = (self.counts.read, self.counts.dropped());
        assert!(dropped.entries <= read.entries, "dropped {dropped:?} of {read:?}");
        self.counts
    }

    /// The same of the entries before the current one. Requires: valid.
    pub(crate) fn counts_before(&self) -> RetainCounts {
        let RetainCounts { read: Tally { entries, hash }, .. } = self.counts;
        let read = Tally { entries: entries - 1, hash: hash.wrapping_sub(self.hash) };
        RetainCounts { read, ..self.counts() }
    }

    /// Moves `inner` to the first entry at or after its position that survives.
    #[inline]
    fn skip_dropped(&mut self) {
        self.hidden = Warmth::Cold;
        while self.inner.valid() {
            let (key, seq, kind) = (self.inner.key(), self.inner.seq(), self.inner.kind());
            self.hash = hash_entry(key, seq, kind, self.inner.value());
            self.counts.read.add(self.hash);
            let stripe = stripe_of(&self.snapshots, seq);
            let same_key = self.stripe.is_some() && key == self.key;
            if same_key && self.stripe == Some(stripe) {
                self.counts.shadowed.add(self.hash);
                if !self.dropped {
                    self.hidden = self.hidden.max(self.inner.warmth());
                }
                self.inner.next();
                continue;
            }
            if !same_key {
                self.key.clear();
                self.key.extend_from_slice(key);
            }
            self.stripe = Some(stripe);
            self.dropped = false;
            if kind != Kind::Delete || stripe != 0 || !(self.drop_deletes)(&self.key) {
                return;
            }
            self.counts.deletes_dropped.add(self.hash);
            self.dropped = true;
            self.inner.next();
        }
    }
}

/// Number of snapshots that do not see an entry with this sequence number.
#[inline]
fn stripe_of(snapshots: &[Seq], seq: Seq) -> usize {
    if snapshots.is_empty() {
        return 0;
    }
    snapshots.partition_point(|&snapshot| snapshot < seq)
}
