//! The view of a reader (LevelDB's `DBIter`): for each user key the newest entry at or below a
//! sequence number, deletes hidden, inside bounds.
//!
//! Not here: the merge below (`losers`), ownership of what is read (`read`).
//!
//! Invariants:
//! (1) going forwards, `inner` stands on the entry that is shown; going backwards, on the entry
//!     before all versions of the shown key (or at its end), and key and value are copies;
//! (2) an error of `inner` makes the view invalid, even with a candidate already copied: a newer
//!     version or a delete may be behind the error (bug 39).
//! No step allocates, but for buffers that grow to the largest key and value read backwards.
//!
//! Source: LevelDB `db/db_iter.cc`. We differ: after [`SKIPS_MAX`] hidden versions the view seeks
//! past the rest, as RocksDB's `max_sequential_skip_in_iterations` does.

use std::ops::Bound;

use crate::base::cursor::Cursor;
use crate::base::error::Result;
use crate::base::key::{Kind, SEQ_MAX, Seq, compare};

/// Hidden versions of one key that are stepped over before the view seeks past the rest: a seek
/// costs about 16 steps.
const SKIPS_MAX: usize = 16;

/// Largest value buffer that is kept for the next value, in bytes.
const BUFFER_BYTES_KEPT_MAX: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Invalid,
    /// The entry shown is `inner`'s.
    Forward,
    /// The entry shown is in `saved_key` and `saved_value`.
    Backward,
}

/// The view of one reader.
pub(crate) struct Visible<C> {
    inner: C,
    snapshot: Seq,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    state: State,
    saved_key: Vec<u8>,
    saved_value: Vec<u8>,
}

impl<C: Cursor> Visible<C> {
    /// The view of `inner` at `snapshot` between `lower` and `upper`. Not valid before the first
    /// seek.
    pub(crate) fn new(
        inner: C,
        snapshot: Seq,
        lower: Bound<Vec<u8>>,
        upper: Bound<Vec<u8>>,
    ) -> Self {
        Self {
            inner,
            snapshot,
            lower,
            upper,
            state: State::Invalid,
            saved_key: Vec::new(),
            saved_value: Vec::new(),
        }
    }

    /// The lower and the upper bound.
    pub(crate) fn bounds(&self) -> (&Bound<Vec<u8>>, &Bound<Vec<u8>>) {
        (&self.lower, &self.upper)
    }

    /// The cursor below.
    pub(crate) fn inner(&self) -> &C {
        &self.inner
    }

    /// The same view of another cursor. Not valid before the first seek.
    pub(crate) fn set_inner(&mut self, inner: C) {
        self.inner = inner;
        self.state = State::Invalid;
    }

    /// Whether the view stands on an entry.
    #[inline]
    pub(crate) fn valid(&self) -> bool {
        self.state != State::Invalid
    }

    /// The current user key. Requires: valid.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        match self.state {
            State::Forward => self.inner.key(),
            State::Backward => &self.saved_key,
            State::Invalid => panic!("the cursor does not stand on an entry"),
        }
    }

    /// The current value. Requires: valid.
    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        match self.state {
            State::Forward => self.inner.value(),
            State::Backward => &self.saved_value,
            State::Invalid => panic!("the cursor does not stand on an entry"),
        }
    }

    /// The error that made the view invalid, if one did.
    pub(crate) fn status(&self) -> Result<()> {
        self.inner.status()
    }

    /// Moves to the first visible key at or after `key`, inside the bounds.
    pub(crate) fn seek(&mut self, key: &[u8]) {
        if self.is_below_lower(key) {
            self.seek_to_first();
            return;
        }
        self.inner.seek(key, self.snapshot);
        self.find_next_visible(false);
    }

    /// Moves to the last visible key at or before `key`, inside the bounds.
    pub(crate) fn seek_for_prev(&mut self, key: &[u8]) {
        if self.is_beyond_upper(key) {
            self.seek_to_last();
            return;
        }
        self.inner.seek_for_prev(key, 0);
        self.find_prev_visible();
    }

    /// Moves to the first visible key inside the bounds.
    pub(crate) fn seek_to_first(&mut self) {
        match &self.lower {
            Bound::Unbounded => self.inner.seek_to_first(),
            Bound::Included(key) => self.inner.seek(key, self.snapshot),
            Bound::Excluded(key) => {
                self.saved_key.clear();
                self.saved_key.extend_from_slice(key);
                self.inner.seek(key, 0);
                self.find_next_visible(true);
                return;
            }
        }
        self.find_next_visible(false);
    }

    /// Moves to the last visible key inside the bounds.
    pub(crate) fn seek_to_last(&mut self) {
        match &self.upper {
            Bound::Unbounded => self.inner.seek_to_last(),
            Bound::Included(key) => self.inner.seek_for_prev(key, 0),
            Bound::Excluded(key) => {
                self.inner.seek_for_prev(key, SEQ_MAX);
                while self.inner.valid() && self.inner.key() == key.as_slice() {
                    self.inner.prev();
                }
            }
        }
        self.find_prev_visible();
    }

    /// Moves to the next visible key. Requires: valid.
    #[inline]
    pub(crate) fn next(&mut self) {
        match self.state {
            State::Forward => {
                self.save_key();
                self.inner.next();
            }
            State::Backward => self.inner.seek(&self.saved_key, 0),
            State::Invalid => panic!("next needs a valid cursor"),
        }
        self.find_next_visible(true);
    }

    /// Moves to the previous visible key. Requires: valid.
    pub(crate) fn prev(&mut self) {
        match self.state {
            State::Forward => {
                self.save_key();
                self.skip_saved_key_backwards();
            }
            State::Backward => {}
            State::Invalid => panic!("prev needs a valid cursor"),
        }
        self.find_prev_visible();
    }

    #[inline]
    fn save_key(&mut self) {
        self.saved_key.clear();
        self.saved_key.extend_from_slice(self.inner.key());
    }

    /// Moves `inner` before all versions of `saved_key`.
    fn skip_saved_key_backwards(&mut self) {
        self.inner.seek_for_prev(&self.saved_key, SEQ_MAX);
        while self.inner.valid() && self.inner.key() == self.saved_key {
            self.inner.prev();
        }
    }

    /// Moves `inner` on to the first visible entry at or after its position. With `skipping`,
    /// versions of `saved_key` are hidden.
    #[inline]
    fn find_next_visible(&mut self, mut skipping: bool) {
        let mut skips = 0;
        while self.inner.valid() {
            let key = self.inner.key();
            if self.is_beyond_upper(key) {
                break;
            }
            let hidden = skipping && key == self.saved_key;
            if !hidden && self.inner.seq() <= self.snapshot {
                if self.inner.kind() == Kind::Put {
                    self.state = State::Forward;
                    return;
                }
                self.save_key();
                skipping = true;
            }
            skips += 1;
            if skips <= SKIPS_MAX {
                self.inner.next();
                continue;
            }
            skips = 0;
            if skipping && self.inner.key() == self.saved_key {
                // Past all versions; the next round hides one with sequence number 0.
                if self.inner.seq() == 0 {
                    self.inner.next();
                } else {
                    self.inner.seek(&self.saved_key, 0);
                }
            } else {
                // The entry is too new: seek to the first one of its key that is old enough.
                self.save_key();
                skipping = false;
                self.inner.seek(&self.saved_key, self.snapshot);
            }
        }
        self.state = State::Invalid;
    }

    /// Moves `inner` back to the first visible key at or before its position.
    fn find_prev_visible(&mut self) {
        self.state = State::Invalid;
        while self.inner.valid() && !self.is_below_lower(self.inner.key()) {
            self.save_key();
            let shown = self.take_newest_visible();
            if !self.inner.valid() && self.inner.status().is_err() {
                return;
            }
            if shown {
                self.state = State::Backward;
                return;
            }
        }
    }

    /// Goes backwards over all versions of `saved_key`, oldest first, and copies the value of the
    /// newest visible one; false if that is a delete or there is none.
    fn take_newest_visible(&mut self) -> bool {
        let mut shown = false;
        let mut skips = 0;
        while self.inner.valid() && self.inner.key() == self.saved_key {
            if self.inner.seq() <= self.snapshot {
                shown = self.take_current();
            }
            skips += 1;
            if skips <= SKIPS_MAX {
                self.inner.prev();
                continue;
            }
            self.inner.seek(&self.saved_key, self.snapshot);
            if self.inner.valid() && self.inner.key() == self.saved_key {
                shown = self.take_current();
            } else if self.inner.status().is_err() {
                return false;
            }
            self.skip_saved_key_backwards();
        }
        shown
    }

    /// Copies the current value; false if the entry is a delete.
    fn take_current(&mut self) -> bool {
        if self.inner.kind() != Kind::Put {
            return false;
        }
        let value = self.inner.value();
        if self.saved_value.capacity() > BUFFER_BYTES_KEPT_MAX.max(value.len()) {
            self.saved_value = Vec::new();
        }
        self.saved_value.clear();
        self.saved_value.extend_from_slice(value);
        true
    }

    #[inline]
    fn is_beyond_upper(&self, key: &[u8]) -> bool {
        match &self.upper {
            Bound::Unbounded => false,
            Bound::Included(upper) => compare(key, upper).is_gt(),
            Bound::Excluded(upper) => compare(key, upper).is_ge(),
        }
    }

    #[inline]
    fn is_below_lower(&self, key: &[u8]) -> bool {
        match &self.lower {
            Bound::Unbounded => false,
            Bound::Included(lower) => compare(key, lower).is_lt(),
            Bound::Excluded(lower) => compare(key, lower).is_le(),
        }
    }
}
