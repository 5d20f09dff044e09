//! The internal iterator: one trait for cursors over memtables, tables, runs and merges.
//!
//! Invariants: (1) entries are in the order of `base::key`: user key ascending, sequence number
//! descending; (2) a cursor with an error is not valid, and `status` gives the error until the next
//! seek: a caller that stops at `!valid()` without checking `status` loses data (docs/hazards.md,
//! bug 39); (3) `key`, `seq`, `kind`, `value` may be called on a valid cursor only; the slices they
//! return are valid until the cursor moves.

use crate::base::error::Result;
use crate::base::heat::Warmth;
use crate::base::key::{Kind, Seq};

/// Steps towards a seek: each looks at memory that the one before it has requested, so that several
/// cursors that are led through them together wait for theirs at once. Taking a block is a locked
/// instruction, which waits for all loads before it: it comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Approach {
    /// Finds the block; requests the place where the cache names it.
    Find,
    /// Requests what the cache names there.
    Follow,
    /// Takes the block, if it is cached, and requests its first lines.
    Take,
}

impl Approach {
    /// The steps, in their order.
    pub(crate) const STEPS: [Self; 3] = [Self::Find, Self::Follow, Self::Take];
}

/// A position in a sorted sequence of entries.
pub(crate) trait Cursor {
    /// Whether the cursor stands on an entry.
    fn valid(&self) -> bool;
    /// User key of the current entry.
    fn key(&self) -> &[u8];
    /// Sequence number of the current entry.
    fn seq(&self) -> Seq;
    /// Kind of the current entry.
    fn kind(&self) -> Kind;
    /// Value of the current entry; empty for a delete.
    fn value(&self) -> &[u8];
    /// How lately users read the current entry, if it lies in a cached block and the cursor is a
    /// merge's.
    fn warmth(&self) -> Warmth {
        Warmth::Cold
    }
    /// Whether readers will find the current entry where it is after the merge whose cursor this is
    /// too: its table goes over into a buffer list.
    fn stays(&self) -> bool {
        false
    }
    /// Bytes of the cached blocks that the cursor has entered so far and that its merge replaces;
    /// 0 if it is none's.
    fn cached_bytes(&self) -> u64 {
        0
    }
    /// Whether the cursor may ever be ahead.
    fn may_be_ahead(&self) -> bool {
        false
    }
    /// Whether the cursor is *ahead* of its next entry, which it has not read: `key` and `seq` are
    /// a bound that this entry does not precede in the direction of travel, and of the other
    /// methods only [`Cursor::arrive`] and the seeks may be called.
    fn is_ahead(&self) -> bool {
        false
    }
    /// Reads the entry that the cursor is ahead of; it may be ahead of a further one then, or at
    /// its end.
    fn arrive(&mut self) {}
    /// Announces `seek(key, seq)` or `seek_for_prev(key, seq)`, so that the memory it will read can
    /// be prefetched, in the steps of [`Approach`], all with one key. A hint: the first step loses
    /// the cursor's position, and there is no other visible effect.
    fn approach(&mut self, _key: &[u8], _seq: Seq, _step: Approach) {}
    /// Gives back the blocks that it holds, and keeps what its next seek can use. It is not
    /// positioned afterwards.
    fn rest(&mut self) {}
    /// Moves to the first entry at or after `(key, seq)`: with `SEQ_MAX` the newest entry of `key`
    /// or, if it has none, the next key.
    fn seek(&mut self, key: &[u8], seq: Seq);
    /// Moves to the last entry at or before `(key, seq)`: with sequence 0 the oldest entry of `key`
    /// or, if it has none, the oldest entry of the previous key.
    fn seek_for_prev(&mut self, key: &[u8], seq: Seq);
    /// Moves to the first entry.
    fn seek_to_first(&mut self);
    /// Moves to the last entry.
    fn seek_to_last(&mut self);
    /// Moves to the next entry. Requires: valid.
    fn next(&mut self);
    /// Moves to the previous entry. Requires: valid.
    fn prev(&mut self);
    /// The error that made the cursor invalid, if one did.
    fn status(&self) -> Result<()>;
}

/// The part of a `Cursor` that shows the current entry, of one that shows that of its field
/// `$inner` unchanged.
macro_rules! shows_entry_of {
    ($inner:ident) => {
        #[inline]
        fn valid(&self) -> bool {
            self.$inner.valid()
        }
        #[inline]
        fn key(&self) -> &[u8] {
            self.$inner.key()
        }
        #[inline]
        fn seq(&self) -> $crate::base::key::Seq {
            self.$inner.seq()
        }
        #[inline]
        fn kind(&self) -> $crate::base::key::Kind {
            self.$inner.kind()
        }
        #[inline]
        fn value(&self) -> &[u8] {
            self.$inner.value()
        }
    };
}

pub(crate) use shows_entry_of;

impl<C: Cursor + ?Sized> Cursor for Box<C> {
    fn valid(&self) -> bool {
        (**self).valid()
    }
    fn key(&self) -> &[u8] {
        (**self).key()
    }
    fn seq(&self) -> Seq {
        (**self).seq()
    }
    fn kind(&self) -> Kind {
        (**self).kind()
    }
    fn value(&self) -> &[u8] {
        (**self).value()
    }
    fn warmth(&self) -> Warmth {
        (**self).warmth()
    }
    fn stays(&self) -> bool {
        (**self).stays()
    }
    fn cached_bytes(&self) -> u64 {
        (**self).cached_bytes()
    }
    fn may_be_ahead(&self) -> bool {
        (**self).may_be_ahead()
    }
    fn is_ahead(&self) -> bool {
        (**self).is_ahead()
    }
    fn arrive(&mut self) {
        (**self).arrive();
    }
    fn approach(&mut self, key: &[u8], seq: Seq, step: Approach) {
        (**self).approach(key, seq, step);
    }
    fn rest(&mut self) {
        (**self).rest();
    }
    fn seek(&mut self, key: &[u8], seq: Seq) {
        (**self).seek(key, seq);
    }
    fn seek_for_prev(&mut self, key: &[u8], seq: Seq) {
        (**self).seek_for_prev(key, seq);
    }
    fn seek_to_first(&mut self) {
        (**self).seek_to_first();
    }
    fn seek_to_last(&mut self) {
        (**self).seek_to_last();
    }
    fn next(&mut self) {
        (**self).next();
    }
    fn prev(&mut self) {
        (**self).prev();
    }
    fn status(&self) -> Result<()> {
        (**self).status()
    }
}
