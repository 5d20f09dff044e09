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
//! Many hidden entries in a row are a stretch that later views can leap over (`gaps`): a view that
//! has passed one says so, and one that comes into a known one leaps.
//!
//! Source: LevelDB `db/db_iter.cc`. We differ: after [`SKIPS_MAX`] hidden versions the view seeks
//! past the rest, as RocksDB's `max_sequential_skip_in_iterations` does.

use std::ops::Bound;

use crate::base::cursor::Cursor;
use crate::base::error::Result;
use crate::base::key::{Kind, SEQ_MAX, Seq, compare};
use crate::gaps::Leaps;

/// Hidden versions of one key that are stepped over before the view seeks past the rest: a seek
/// costs about 16 steps.
const SKIPS_MAX: usize = 16;

/// Largest value buffer that is kept for the next value, in bytes.
const BUFFER_BYTES_KEPT_MAX: usize = 1 << 20;

/// Largest buffer that a view at rest keeps, in bytes.
const BUFFER_BYTES_AT_REST_MAX: usize = 4 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Invalid,
    /// The entry shown is `inner`'s.
    Forward,
    /// The entry shown is in `saved_key` and `saved_value`.
    Backward,
}

/// Where a stretch of hidden entries begins, in the direction of travel.
#[derive(Clone, Copy)]
enum Start<'a> {
    /// At this key, which is part of it.
    At(&'a [u8]),
    /// At a bound of the view.
    Bound,
    /// Somewhere: what counts is from an entry on that is seen to be hidden.
    Unknown,
    /// Where `stretch` says.
    Known,
}

/// A movement: where it starts, and the gaps that it may leap over.
#[derive(Clone, Copy)]
struct Walk<'a> {
    start: Start<'a>,
    leaps: Option<Leaps<'a>>,
}

impl Walk<'_> {
    /// Hidden entries after which a stretch is looked at.
    #[inline]
    fn entries(&self) -> usize {
        self.leaps.map_or(usize::MAX, |leaps| leaps.entries)
    }
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
    /// Forwards the first key of the stretch that is being passed, backwards the first one behind
    /// it.
    stretch: Vec<u8>,
    /// Whether the stretch has entries that are newer than the snapshot.
    newer: bool,
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
            stretch: Vec::new(),
            newer: false,
        }
    }

    /// Gives back what the view holds; not valid afterwards.
    pub(crate) fn rest(&mut self) {
        self.inner.rest();
        self.state = State::Invalid;
        let buffers = [&mut self.saved_key, &mut self.saved_value, &mut self.stretch];
        for buffer in buffers {
            // Also what they say: a stretch ends with the last key saved, which must be of its own
            // reader, within its bounds.
            buffer.clear();
            if buffer.capacity() > BUFFER_BYTES_AT_REST_MAX {
                *buffer = Vec::new();
            }
        }
    }

    /// The view of another reader of the same cursor. Requires: it is at rest.
    pub(crate) fn set_reader(
        &mut self,
        snapshot: Seq,
        lower: Bound<Vec<u8>>,
        upper: Bound<Vec<u8>>,
    ) {
        debug_assert!(self.state == State::Invalid, "the view of a reader that stands on an entry");
        (self.snapshot, self.lower, self.upper) = (snapshot, lower, upper);
    }

    /// The lower and the upper bound.
    pub(crate) fn bounds(&self) -> (&Bound<Vec<u8>>, &Bound<Vec<u8>>) {
        (&self.lower, &self.upper)
    }

    /// The cursor below.
    pub(crate) fn inner(&self) -> &C {
        &self.inner
    }

    /// The same, to be changed. Requires: the view is not valid.
    pub(crate) fn inner_mut(&mut self) -> &mut C {
        debug_assert!(self.state == State::Invalid, "the cursor below a view that is valid");
        &mut self.inner
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
    pub(crate) fn seek(&mut self, key: &[u8], leaps: Option<Leaps<'_>>) {
        if self.is_below_lower(key) {
            self.seek_to_first(leaps);
            return;
        }
        let gap = leaps.and_then(|leaps| leaps.around(key, self.snapshot));
        let key = gap.as_ref().map_or(key, |(_, behind)| behind);
        self.inner.seek(key, self.snapshot);
        self.find_next_visible(false, Walk { start: Start::At(key), leaps });
    }

    /// Moves to the last visible key at or before `key`, inside the bounds.
    pub(crate) fn seek_for_prev(&mut self, key: &[u8], leaps: Option<Leaps<'_>>) {
        if self.is_beyond_upper(key) {
            self.seek_to_last(leaps);
            return;
        }
        let gap = leaps.and_then(|leaps| leaps.around(key, self.snapshot));
        let start = match gap {
            Some((first, _)) => self.leap_back(&first),
            None => {
                self.inner.seek_for_prev(key, 0);
                Start::At(key)
            }
        };
        self.find_prev_visible(Walk { start, leaps });
    }

    /// Moves to the first visible key inside the bounds.
    pub(crate) fn seek_to_first(&mut self, leaps: Option<Leaps<'_>>) {
        let walk = Walk { start: Start::Bound, leaps };
        if let Some((_, behind)) =
            leaps.and_then(|leaps| leaps.around(self.lowest(), self.snapshot))
        {
            self.inner.seek(&behind, self.snapshot);
            self.find_next_visible(false, Walk { start: Start::At(&behind), leaps });
            return;
        }
        match &self.lower {
            Bound::Unbounded => self.inner.seek_to_first(),
            Bound::Included(key) => self.inner.seek(key, self.snapshot),
            Bound::Excluded(key) => {
                self.saved_key.clear();
                self.saved_key.extend_from_slice(key);
                self.inner.seek(key, 0);
                self.find_next_visible(true, walk);
                return;
            }
        }
        self.find_next_visible(false, walk);
    }

    /// The lower bound's key.
    fn lowest(&self) -> &[u8] {
        match &self.lower {
            Bound::Unbounded => &[],
            Bound::Included(key) | Bound::Excluded(key) => key,
        }
    }

    /// Moves to the last visible key inside the bounds.
    pub(crate) fn seek_to_last(&mut self, leaps: Option<Leaps<'_>>) {
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
        self.find_prev_visible(Walk { start: Start::Bound, leaps });
    }

    /// Moves to the next visible key. Requires: valid.
    #[inline]
    pub(crate) fn next(&mut self, leaps: Option<Leaps<'_>>) {
        match self.state {
            State::Forward => {
                self.save_key();
                self.inner.next();
            }
            State::Backward => self.inner.seek(&self.saved_key, 0),
            State::Invalid => panic!("next needs a valid cursor"),
        }
        self.find_next_visible(true, Walk { start: Start::Unknown, leaps });
    }

    /// Moves to the previous visible key. Requires: valid.
    pub(crate) fn prev(&mut self, leaps: Option<Leaps<'_>>) {
        match self.state {
            State::Forward => {
                self.save_key();
                self.skip_saved_key_backwards();
            }
            State::Backward => {}
            State::Invalid => panic!("prev needs a valid cursor"),
        }
        self.find_prev_visible(Walk { start: Start::Unknown, leaps });
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
    fn find_next_visible(&mut self, mut skipping: bool, mut walk: Walk<'_>) {
        (self.state, self.newer) = (State::Invalid, false);
        let mut skips = 0;
        let mut stretch = 0;
        let mut look_at = walk.entries();
        // Whether `saved_key` was deleted, not shown before.
        let mut deleted = false;
        while self.inner.valid() {
            let key = self.inner.key();
            if self.is_beyond_upper(key) {
                break;
            }
            let hidden = skipping && key == self.saved_key;
            if !hidden && self.inner.seq() <= self.snapshot {
                if self.inner.kind() == Kind::Put {
                    self.state = State::Forward;
                    break;
                }
                self.save_key();
                (skipping, deleted) = (true, true);
            } else if !hidden {
                self.newer = true;
            }
            stretch += 1;
            if stretch == look_at {
                let is_gone = deleted && skipping && self.inner.key() == self.saved_key;
                if self.leap(&mut walk, is_gone) {
                    (skipping, deleted, skips) = (false, false, 0);
                    (stretch, look_at) = (0, walk.entries());
                    continue;
                }
                look_at += walk.entries();
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
                (skipping, deleted) = (false, false);
                self.inner.seek(&self.saved_key, self.snapshot);
            }
        }
        if stretch >= walk.entries() {
            self.end_stretch(walk);
        }
    }

    /// In a long stretch: moves `inner` behind the gap that it stands in, if it is known; else
    /// remembers where the stretch begins. `is_gone`: the current key is known to show nothing.
    #[cold]
    fn leap(&mut self, walk: &mut Walk<'_>, is_gone: bool) -> bool {
        let Some(leaps) = walk.leaps else { return false };
        if let Some((_, behind)) = leaps.around(self.inner.key(), self.snapshot) {
            self.inner.seek(&behind, self.snapshot);
            (self.stretch, walk.start, self.newer) = (behind, Start::Known, false);
            return true;
        }
        let Self { stretch, lower, inner, .. } = self;
        match (walk.start, &*lower) {
            (Start::Known, _) => {}
            (Start::At(key), _) => set_key(stretch, key, false),
            (Start::Bound, Bound::Unbounded) => stretch.clear(),
            (Start::Bound, Bound::Included(key)) => set_key(stretch, key, false),
            (Start::Bound, Bound::Excluded(key)) => set_key(stretch, key, true),
            (Start::Unknown, _) => set_key(stretch, inner.key(), !is_gone),
        }
        walk.start = Start::Known;
        false
    }

    /// After a long stretch: nothing is visible before the key shown, or the upper bound, behind
    /// which `inner` may lack entries, or the last deleted key before its end.
    #[cold]
    fn end_stretch(&self, walk: Walk<'_>) {
        let Some(leaps) = walk.leaps else { return };
        let end = match (self.state, &self.upper) {
            (State::Forward, _) => self.inner.key(),
            (_, Bound::Included(key) | Bound::Excluded(key)) if self.inner.valid() => key,
            _ if self.inner.status().is_ok() => &self.saved_key,
            _ => return,
        };
        leaps.note((&self.stretch, end), self.snapshot, self.newer);
    }

    /// Moves `inner` back to the first visible key at or before its position.
    fn find_prev_visible(&mut self, mut walk: Walk<'_>) {
        (self.state, self.newer) = (State::Invalid, false);
        let mut stretch = 0;
        let mut look_at = walk.entries();
        while self.inner.valid() && !self.is_below_lower(self.inner.key()) {
            self.save_key();
            let shown = self.take_newest_visible();
            if !self.inner.valid() && self.inner.status().is_err() {
                return;
            }
            if shown {
                self.state = State::Backward;
                break;
            }
            stretch += 1;
            if stretch == look_at {
                match self.was_in_gap(&mut walk) {
                    Some(first) => {
                        walk.start = self.leap_back(&first);
                        self.newer = false;
                        (stretch, look_at) = (0, walk.entries());
                    }
                    None => look_at += walk.entries(),
                }
            }
        }
        if stretch >= walk.entries() {
            self.end_stretch_backwards(walk);
        }
    }

    /// In a long stretch, backwards: the first key of the gap that the last hidden key lies in, if
    /// it is known; else remembers where the stretch begins.
    #[cold]
    fn was_in_gap(&mut self, walk: &mut Walk<'_>) -> Option<Vec<u8>> {
        let leaps = walk.leaps?;
        if let Some((first, _)) = leaps.around(&self.saved_key, self.snapshot) {
            return Some(first);
        }
        let Self { stretch, upper, saved_key, .. } = self;
        match (walk.start, &*upper) {
            (Start::Known, _) => {}
            (Start::At(key), _) => set_key(stretch, key, true),
            (Start::Bound, Bound::Included(key)) => set_key(stretch, key, true),
            (Start::Bound, Bound::Excluded(key)) => set_key(stretch, key, false),
            (Start::Bound, Bound::Unbounded) | (Start::Unknown, _) => {
                set_key(stretch, saved_key, true);
            }
        }
        walk.start = Start::Known;
        None
    }

    /// Moves `inner` before the gap that begins with `first`.
    fn leap_back(&mut self, first: &[u8]) -> Start<'static> {
        set_key(&mut self.saved_key, first, false);
        self.skip_saved_key_backwards();
        set_key(&mut self.stretch, first, false);
        Start::Known
    }

    /// After a long stretch, backwards: nothing is visible behind the key shown, or behind the
    /// lower bound, before which `inner` may lack entries.
    #[cold]
    fn end_stretch_backwards(&self, walk: Walk<'_>) {
        let Some(leaps) = walk.leaps else { return };
        let mut first = Vec::new();
        match (self.state, &self.lower) {
            (State::Backward, _) => set_key(&mut first, &self.saved_key, true),
            _ if self.inner.status().is_err() => return,
            (_, Bound::Unbounded) => {}
            (_, Bound::Included(key)) => set_key(&mut first, key, false),
            (_, Bound::Excluded(key)) => set_key(&mut first, key, true),
        }
        leaps.note((&first, &self.stretch), self.snapshot, self.newer);
    }

    /// Goes backwards over all versions of `saved_key`, oldest first, and copies the value of the
    /// newest visible one; false if that is a delete or there is none.
    fn take_newest_visible(&mut self) -> bool {
        let mut shown = false;
        let mut skips = 0;
        while self.inner.valid() && self.inner.key() == self.saved_key {
            if self.inner.seq() <= self.snapshot {
                shown = self.take_current();
            } else {
                self.newer = true;
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

/// Makes `buffer` a key, or the first one behind it.
fn set_key(buffer: &mut Vec<u8>, key: &[u8], behind: bool) {
    buffer.clear();
    buffer.extend_from_slice(key);
    if behind {
        buffer.push(0);
    }
}
