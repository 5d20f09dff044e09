//! The k-way merge: a loser tree over cached key heads.
//!
//! Not here: hiding entries (`visible`), dropping entries (`retain`).
//!
//! ```text
//! tree[1]            loser of the final      sources are leaves k..2k; node i plays 2i and 2i+1
//! tree[2]  tree[3]   losers before that      after the winner moved, only its path is played
//! ```
//!
//! Invariants:
//! (1) order: key ascending, sequence number descending, then rank of the source ascending; a move
//!     backwards gives exactly the reverse;
//! (2) going forwards every source but the winner stands on its first entry after the winner's,
//!     going backwards on its last entry before it; a change of direction re-seeks all of them;
//! (3) `heads[i]` is the head of source i's key, complemented when going backwards, and all ones
//!     for a source at its end: in both directions the smaller head wins, and equal heads are
//!     resolved by a full comparison;
//! (4) a source that is ahead of its next entry (`Cursor::is_ahead`) takes part with its bound, and
//!     is asked to read only when nothing else precedes it: the winner is never ahead;
//! (5) an error in any source makes the merge invalid until the next seek: a source that cannot be
//!     read may hide the newest entry of any key (bug 39).
//!
//! Cost: one comparison of cached heads while the same source wins again; else log2 k, and k-1 to
//! build. Source: Knuth, TAOCP 5.4.1 (tree of losers); TigerBeetle `src/lsm/k_way_merge.zig`; the
//! shortcut against the runner-up is Pebble's `merging_iter_heap.go`.

use std::cmp::Ordering;

use crate::base::cursor::{Approach, Cursor};
use crate::base::error::{Error, Result};
use crate::base::heat::Warmth;
use crate::base::key::{Kind, Seq, compare_entries, head};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// The head of a source at its end. A real key may have it too: [`MergingCursor::precedes`] then
/// compares in full.
const HEAD_END: u128 = u128::MAX;

/// Largest copy of a key that a merge at rest keeps, in bytes.
const SCRATCH_BYTES_AT_REST_MAX: usize = 4 << 10;

/// No runner-up is known; no source has reached a node of the tree yet.
const UNKNOWN: usize = usize::MAX;

/// One sorted sequence out of many cursors (RocksDB's `MergingIterator`). A source's index is its
/// rank: the newest source first.
pub(crate) struct MergingCursor<C> {
    sources: Vec<C>,
    heads: Vec<u128>,
    /// `tree[0]` is the winner, `tree[1..]` the losers.
    tree: Vec<usize>,
    /// The best of all sources but the winner, if it is known.
    runner_up: usize,
    direction: Direction,
    /// Whether a source may be ahead.
    lazy: bool,
    valid: bool,
    /// Whether the sources have been led towards the next seek, by a merge above.
    led: bool,
    error: Option<Error>,
    /// Copy of the current key while the sources move.
    scratch: Vec<u8>,
}

impl<C: Cursor> MergingCursor<C> {
    /// A merge of `sources`, newest first. It is not valid before the first seek.
    pub(crate) fn new(sources: Vec<C>) -> Self {
        let count = sources.len();
        Self {
            lazy: sources.iter().any(Cursor::may_be_ahead),
            sources,
            heads: vec![HEAD_END; count],
            // Not of zeros: glibc before 2.41 gets those at the slow end of its allocator.
            tree: vec![UNKNOWN; count.max(1)],
            runner_up: UNKNOWN,
            direction: Direction::Forward,
            valid: false,
            led: false,
            error: None,
            scratch: Vec::new(),
        }
    }

    /// The sources, newest first.
    pub(crate) fn sources(&self) -> &[C] {
        &self.sources
    }

    /// The same, to be changed. Requires: the merge is at rest.
    pub(crate) fn sources_mut(&mut self) -> &mut [C] {
        debug_assert!(!self.valid, "the sources of a merge that stands on an entry");
        &mut self.sources
    }

    /// Lets each source give up what lies behind it. Requires: none moves.
    pub(crate) fn each_source(&mut self, of: impl FnMut(&mut C)) {
        self.sources.iter_mut().for_each(of);
    }

    #[inline]
    fn winner(&self) -> &C {
        debug_assert!(self.valid, "the cursor does not stand on an entry");
        &self.sources[self.tree[0]]
    }

    /// Loads the head of source `i` into `heads`; false if the source failed.
    #[inline]
    fn load(&mut self, i: usize) -> bool {
        let source = &self.sources[i];
        if source.valid() {
            let head = head(source.key());
            self.heads[i] = if self.direction == Direction::Forward { head } else { !head };
            return true;
        }
        self.heads[i] = HEAD_END;
        match source.status() {
            Ok(()) => true,
            Err(error) => {
                self.error = Some(error);
                self.valid = false;
                false
            }
        }
    }

    /// Whether source `a` precedes source `b` in the direction of travel.
    #[inline]
    fn precedes(&self, a: usize, b: usize) -> bool {
        let (head_a, head_b) = (self.heads[a], self.heads[b]);
        if head_a != head_b {
            return head_a < head_b;
        }
        self.precedes_slow(a, b)
    }

    /// [`MergingCursor::precedes`] for equal heads.
    fn precedes_slow(&self, a: usize, b: usize) -> bool {
        let (source_a, source_b) = (&self.sources[a], &self.sources[b]);
        match (source_a.valid(), source_b.valid()) {
            (true, true) => {}
            (false, false) => return a < b,
            (valid_a, _) => return valid_a,
        }
        let entry_a = (source_a.key(), source_a.seq());
        let entry_b = (source_b.key(), source_b.seq());
        let ahead = match self.direction {
            Direction::Forward => Ordering::Less,
            Direction::Backward => Ordering::Greater,
        };
        compare_entries(entry_a, entry_b).then(a.cmp(&b)) == ahead
    }

    /// Reads all sources and plays the whole tree.
    fn build(&mut self) {
        self.runner_up = UNKNOWN;
        for i in 0..self.sources.len() {
            if !self.load(i) {
                return;
            }
        }
        let count = self.sources.len();
        if count == 0 {
            self.valid = false;
            return;
        }
        // Every leaf climbs until it finds a node without a rival, and waits there for the winner
        // of the node's other side. The last one climbs to the top.
        self.tree.fill(UNKNOWN);
        for leaf in 0..count {
            let mut winner = leaf;
            let mut node = (leaf + count) / 2;
            while node > 0 {
                let rival = self.tree[node];
                if rival == UNKNOWN {
                    break;
                }
                if self.precedes(rival, winner) {
                    self.tree[node] = winner;
                    winner = rival;
                }
                node /= 2;
            }
            self.tree[node] = winner;
        }
        self.valid = self.sources[self.tree[0]].valid();
        debug_assert!(self.winner_is_first(), "source {} won by mistake", self.tree[0]);
        if self.lazy {
            self.arrive();
        }
    }

    /// Lets winners that are ahead read, until one is not.
    fn arrive(&mut self) {
        while self.valid && self.winner().is_ahead() {
            self.sources[self.tree[0]].arrive();
            self.replay_winner();
        }
    }

    /// Whether no source precedes the winner. O(k).
    fn winner_is_first(&self) -> bool {
        (0..self.sources.len()).all(|i| i == self.tree[0] || !self.precedes(i, self.tree[0]))
    }

    /// Restores the order after the winner's source has moved in the direction of travel.
    #[inline]
    fn replay(&mut self) {
        self.replay_winner();
        if self.lazy {
            self.arrive();
        }
    }

    #[inline]
    fn replay_winner(&mut self) {
        let moved = self.tree[0];
        if !self.load(moved) {
            return;
        }
        if self.runner_up != UNKNOWN {
            if self.precedes(moved, self.runner_up) {
                self.valid = self.heads[moved] != HEAD_END || self.sources[moved].valid();
                debug_assert!(self.winner_is_first(), "source {moved} won by mistake");
                return;
            }
            self.runner_up = UNKNOWN;
        }
        let count = self.sources.len();
        let mut winner = moved;
        let mut node = (moved + count) / 2;
        while node > 0 {
            let rival = self.tree[node];
            if self.precedes(rival, winner) {
                self.tree[node] = winner;
                winner = rival;
            }
            node /= 2;
        }
        self.tree[0] = winner;
        if winner == moved && count > 2 {
            self.find_runner_up();
        }
        self.valid = self.heads[winner] != HEAD_END || self.sources[winner].valid();
        debug_assert!(self.winner_is_first(), "source {winner} won by mistake");
    }

    /// Finds the runner-up, for a winner that won twice and may win again: it lost to the winner,
    /// so it is on the winner's path.
    fn find_runner_up(&mut self) {
        let count = self.sources.len();
        let mut node = (self.tree[0] + count) / 2;
        let mut best = UNKNOWN;
        while node > 0 {
            let rival = self.tree[node];
            if best == UNKNOWN || self.precedes(rival, best) {
                best = rival;
            }
            node /= 2;
        }
        debug_assert_ne!(best, UNKNOWN, "a merge of {count} sources has no runner-up");
        self.runner_up = best;
    }

    fn restart(&mut self, direction: Direction) {
        self.direction = direction;
        self.error = None;
        (self.valid, self.led) = (false, false);
    }

    /// Begins a seek in this direction: leads the sources towards it together, if nobody has. One
    /// alone would wait for nothing less.
    fn begin_seek(&mut self, key: &[u8], seq: Seq, direction: Direction) {
        let is_led = self.led;
        self.restart(direction);
        if self.sources.len() > 1 && !is_led {
            for step in Approach::STEPS {
                self.sources.iter_mut().for_each(|s| s.approach(key, seq, step));
            }
        }
    }

    /// Reverses the direction on the current entry: afterwards invariant 2 holds for the new
    /// direction, except that the winner itself still stands on the current entry.
    fn reverse(&mut self, direction: Direction) {
        let current = self.tree[0];
        let mut key = std::mem::take(&mut self.scratch);
        key.clear();
        key.extend_from_slice(self.winner().key());
        let seq = self.winner().seq();
        self.direction = direction;
        for (rank, source) in self.sources.iter_mut().enumerate() {
            if rank == current {
                continue;
            }
            // An entry with the same key and sequence number lies on the side of its rank.
            match direction {
                Direction::Backward => {
                    source.seek_for_prev(&key, seq);
                    if rank > current && source.valid() && is_at(source, &key, seq) {
                        source.prev();
                    }
                }
                Direction::Forward => {
                    source.seek(&key, seq);
                    if rank < current && source.valid() && is_at(source, &key, seq) {
                        source.next();
                    }
                }
            }
        }
        self.scratch = key;
    }
}

fn is_at<C: Cursor>(source: &C, key: &[u8], seq: Seq) -> bool {
    source.seq() == seq && source.key() == key
}

impl<C: Cursor> Cursor for MergingCursor<C> {
    #[inline]
    fn valid(&self) -> bool {
        self.valid
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.winner().key()
    }

    #[inline]
    fn seq(&self) -> Seq {
        self.winner().seq()
    }

    #[inline]
    fn kind(&self) -> Kind {
        self.winner().kind()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.winner().value()
    }

    #[inline]
    fn warmth(&self) -> Warmth {
        self.winner().warmth()
    }

    #[inline]
    fn stays(&self) -> bool {
        self.winner().stays()
    }

    fn cached_bytes(&self) -> u64 {
        self.sources.iter().map(Cursor::cached_bytes).sum()
    }

    fn approach(&mut self, key: &[u8], seq: Seq, step: Approach) {
        if step == Approach::Find {
            self.restart(self.direction);
        }
        self.sources.iter_mut().for_each(|s| s.approach(key, seq, step));
        self.led = step == Approach::Take;
    }

    fn rest(&mut self) {
        self.restart(self.direction);
        if self.scratch.capacity() > SCRATCH_BYTES_AT_REST_MAX {
            self.scratch = Vec::new();
        }
        self.sources.iter_mut().for_each(Cursor::rest);
    }

    fn seek(&mut self, key: &[u8], seq: Seq) {
        self.begin_seek(key, seq, Direction::Forward);
        self.sources.iter_mut().for_each(|s| s.seek(key, seq));
        self.build();
    }

    fn seek_for_prev(&mut self, key: &[u8], seq: Seq) {
        self.begin_seek(key, seq, Direction::Backward);
        self.sources.iter_mut().for_each(|s| s.seek_for_prev(key, seq));
        self.build();
    }

    fn seek_to_first(&mut self) {
        self.restart(Direction::Forward);
        self.sources.iter_mut().for_each(Cursor::seek_to_first);
        self.build();
    }

    fn seek_to_last(&mut self) {
        self.restart(Direction::Backward);
        self.sources.iter_mut().for_each(Cursor::seek_to_last);
        self.build();
    }

    #[inline]
    fn next(&mut self) {
        assert!(self.valid, "next needs a valid cursor");
        if self.direction == Direction::Backward {
            self.reverse(Direction::Forward);
            self.sources[self.tree[0]].next();
            self.build();
            return;
        }
        self.sources[self.tree[0]].next();
        self.replay();
    }

    fn prev(&mut self) {
        assert!(self.valid, "prev needs a valid cursor");
        if self.direction == Direction::Forward {
            self.reverse(Direction::Backward);
            self.sources[self.tree[0]].prev();
            self.build();
            return;
        }
        self.sources[self.tree[0]].prev();
        self.replay();
    }

    fn status(&self) -> Result<()> {
        self.error.clone().map_or(Ok(()), Err)
    }
}
