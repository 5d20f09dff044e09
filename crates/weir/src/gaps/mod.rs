//! Gaps: ranges of keys in which nobody sees an entry any more, so that scans leap over them.
//!
//! A queue that is scanned from its front passes all the deletes before it, as long as they lie in
//! memtables and until a merge reaches the last level. So a keyspace remembers a few ranges of
//! which it is *proven* that they show nothing. They are memory only: forgotten at a crash, never
//! needed.
//!
//! How a range is proven, though writers go on: a scan that passed many hidden entries in a row
//! *watches* their range. Writers look at watched and proven ranges before their entries become
//! visible, and a put into one ends it. The next scan that passes the whole range and sees nothing
//! proves it, if its snapshot has everything that was written before writers began to look.
//!
//! Invariants:
//! 1. A watched range knows a sequence number `since`: every put into it with a greater one has
//!    ended it before it became visible.
//! 2. A proven range shows nothing at any sequence number from its `since` on: nothing at `since`
//!    itself, and no put came after. Deletes, merges and flushes change nothing of that.
//! 3. A reader whose snapshot is older than `since` does not leap.
//!
//! For (1): the leader of commits sets [`Commits`] before it looks whether there are ranges, and
//! the watcher adds its range before it looks at [`Commits`], both sequentially consistent, so that
//! one of them sees the other. A watcher that sees a commit under way gives up.
//!
//! Not here: the scan (`merge::visible`), who commits (`write::queue`).

use crate::base::atomic::{AtomicU64, LeafMutex, Ordering};
use crate::base::key::{Seq, compare};

/// Ranges of each kind that a keyspace remembers.
const RANGES_MAX: usize = 8;

/// Longest bound of a range, in bytes: 16 ranges take 32 KiB at most.
const KEY_BYTES_MAX: usize = 1024;

/// Frozen memtables after which a range over which nobody has leapt is forgotten: writers look at
/// what is remembered. Who is only watched has fewer: a queue's next scan proves it.
const IDLE_FREEZES_MAX: u32 = 8;
const WATCHED_FREEZES_MAX: u32 = 1;

/// Whether a commit is under way, and the last sequence number that was published.
pub(crate) struct Commits(AtomicU64);

impl Commits {
    /// No commit is under way.
    pub(crate) fn after(published: Seq) -> Self {
        Self(AtomicU64::new(published << 1))
    }

    /// Entries are inserted from now on. One caller at a time.
    #[inline]
    pub(crate) fn begin(&self) {
        // One instruction, and a fence: a store alone could pass the look at the count of ranges.
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Entries up to `published` are visible.
    #[inline]
    pub(crate) fn end(&self, published: Seq) {
        self.0.store(published << 1, Ordering::Release);
    }

    /// The last sequence number that was published, if no commit is under way.
    fn quiet(&self) -> Option<Seq> {
        let state = self.0.load(Ordering::SeqCst);
        (state & 1 == 0).then_some(state >> 1)
    }
}

/// The keys from `from` to before `to`.
#[derive(Clone, Debug)]
struct Range {
    from: Vec<u8>,
    to: Vec<u8>,
    since: Seq,
    /// Freezes since the last leap.
    idle: u32,
}

impl Range {
    fn contains(&self, key: &[u8]) -> bool {
        compare(&self.from, key).is_le() && compare(key, &self.to).is_lt()
    }

    /// Whether it is part of the keys from `from` to before `to`.
    fn is_within(&self, from: &[u8], to: &[u8]) -> bool {
        compare(from, &self.from).is_le() && compare(&self.to, to).is_le()
    }

    fn touches(&self, other: &Self) -> bool {
        compare(&self.from, &other.to).is_le() && compare(&other.from, &self.to).is_le()
    }
}

#[derive(Default)]
struct Ranges {
    proven: Vec<Range>,
    watched: Vec<Range>,
    /// All of them lie between these two: most puts are outside.
    hull: (Vec<u8>, Vec<u8>),
    leaps: u64,
}

impl Ranges {
    /// Called after every change.
    fn measure(&mut self) {
        let all = || self.proven.iter().chain(&self.watched);
        let from = all().map(|range| &range.from).min().cloned();
        let to = all().map(|range| &range.to).max().cloned();
        self.hull = (from.unwrap_or_default(), to.unwrap_or_default());
    }

    fn may_contain(&self, key: &[u8]) -> bool {
        compare(&self.hull.0, key).is_le() && compare(key, &self.hull.1).is_lt()
    }

    /// Adds a proven range, together with those that it touches; too many lose their oldest.
    fn prove(&mut self, mut range: Range) {
        while let Some(at) = self.proven.iter().position(|other| other.touches(&range)) {
            let Range { from, to, since, .. } = self.proven.remove(at);
            range.from = range.from.min(from);
            range.to = range.to.max(to);
            range.since = range.since.max(since);
        }
        add(&mut self.proven, range);
    }

    /// Ends what contains `key`, which is put: of a proven range both parts beside it stay.
    fn cut(&mut self, key: &[u8]) {
        self.watched.retain(|range| !range.contains(key));
        while let Some(at) = self.proven.iter().position(|range| range.contains(key)) {
            let whole = self.proven.remove(at);
            if key.len() >= KEY_BYTES_MAX {
                continue;
            }
            let after = Range { from: successor(key), ..whole.clone() };
            let before = Range { to: key.to_vec(), ..whole };
            for part in [before, after] {
                if compare(&part.from, &part.to).is_lt() {
                    add(&mut self.proven, part);
                }
            }
        }
    }
}

/// Adds a range; of too many the one goes over which nobody has leapt for longest.
fn add(ranges: &mut Vec<Range>, range: Range) {
    if ranges.len() == RANGES_MAX {
        let idlest = ranges.iter().map(|range| range.idle).max();
        let victim = ranges.iter().position(|range| Some(range.idle) == idlest);
        ranges.remove(victim.unwrap_or(0));
    }
    ranges.push(range);
}

/// The first key behind `key`.
fn successor(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}

/// The gaps of one keyspace. Locks: `ranges` is a leaf.
#[derive(Default)]
pub(crate) struct Gaps {
    /// Ranges of both kinds. 0: writers have nothing to look at.
    count: AtomicU64,
    /// Proven ranges. 0: readers have nothing to look at.
    proven: AtomicU64,
    ranges: LeafMutex<Ranges>,
}

impl Gaps {
    /// Whether a writer has to look at the keys that it puts. Requires: [`Commits::begin`] before.
    #[inline]
    pub(crate) fn are_any(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    /// Ends the ranges that contain one of the `keys`, which are about to become visible.
    #[cold]
    pub(crate) fn cut<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) {
        let mut ranges = self.ranges.lock();
        let mut is_cut = false;
        for key in keys {
            if ranges.may_contain(key) {
                ranges.cut(key);
                is_cut = true;
            }
        }
        if is_cut {
            self.publish(&mut ranges);
        }
    }

    /// Tells readers and writers what there is, after a change.
    fn publish(&self, ranges: &mut Ranges) {
        ranges.measure();
        let proven = ranges.proven.len() as u64;
        self.proven.store(proven, Ordering::Relaxed);
        self.count.store(proven + ranges.watched.len() as u64, Ordering::SeqCst);
    }

    /// Forgets ranges that nobody leaps over: called when a memtable was frozen.
    pub(crate) fn age(&self) {
        if !self.are_any() {
            return;
        }
        let mut ranges = self.ranges.lock();
        let Ranges { proven, watched, .. } = &mut *ranges;
        for (kind, max) in [(proven, IDLE_FREEZES_MAX), (watched, WATCHED_FREEZES_MAX)] {
            kind.iter_mut().for_each(|range| range.idle += 1);
            kind.retain(|range| range.idle <= max);
        }
        self.publish(&mut ranges);
    }

    /// Leaps so far.
    pub(crate) fn leaps(&self) -> u64 {
        self.ranges.lock().leaps
    }
}

/// The gaps of the keyspace that a scan is in, for one movement.
#[derive(Clone, Copy)]
pub(crate) struct Leaps<'a> {
    pub(crate) gaps: &'a Gaps,
    pub(crate) commits: &'a Commits,
    /// Hidden entries in a row after which a scan notes their range, and looks whether it can
    /// leap; not 0.
    pub(crate) entries: usize,
}

impl Leaps<'_> {
    /// The range around `key` that shows nothing at `snapshot`: its first key, and the first one
    /// behind it.
    #[inline]
    pub(crate) fn around(&self, key: &[u8], snapshot: Seq) -> Option<(Vec<u8>, Vec<u8>)> {
        if self.gaps.proven.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut ranges = self.gaps.ranges.lock();
        let found = ranges.proven.iter_mut().find(|r| r.since <= snapshot && r.contains(key))?;
        found.idle = 0;
        let around = (found.from.clone(), found.to.clone());
        ranges.leaps += 1;
        Some(around)
    }

    /// A scan at `snapshot` has seen nothing from `from` to before `to`: what of it was watched is
    /// proven now; if nothing was, all of it is watched, unless the scan has passed entries that
    /// are `newer` than its snapshot, and which others see.
    #[cold]
    pub(crate) fn note(&self, (from, to): (&[u8], &[u8]), snapshot: Seq, newer: bool) {
        let is_short = from.len().max(to.len()) <= KEY_BYTES_MAX;
        if !is_short || compare(from, to).is_ge() {
            return;
        }
        let mut ranges = self.gaps.ranges.lock();
        let covers = |range: &Range| {
            range.since <= snapshot
                && compare(&range.from, from).is_le()
                && compare(to, &range.to).is_le()
        };
        if ranges.proven.iter().any(covers) {
            return;
        }
        let mut watched = std::mem::take(&mut ranges.watched);
        let before = watched.len();
        watched.retain(|range| {
            let proven = range.since <= snapshot && range.is_within(from, to);
            if proven {
                ranges.prove(Range { since: snapshot, idle: 0, ..range.clone() });
            }
            !proven
        });
        let is_watched = watched.len() < before || watched.iter().any(|r| r.is_within(from, to));
        ranges.watched = watched;
        // A first look, so that in vain nothing else makes room.
        if !is_watched && !newer && self.commits.quiet().is_some() {
            self.watch(&mut ranges, (from, to));
        }
        self.gaps.publish(&mut ranges);
    }

    fn watch(&self, ranges: &mut Ranges, (from, to): (&[u8], &[u8])) {
        let range = Range { from: from.to_vec(), to: to.to_vec(), since: Seq::MAX, idle: 0 };
        add(&mut ranges.watched, range);
        // Before the look at commits: see the module.
        self.gaps.publish(ranges);
        match (self.commits.quiet(), ranges.watched.last_mut()) {
            (Some(published), Some(range)) => range.since = published,
            _ => {
                ranges.watched.pop();
            }
        }
    }
}

#[cfg(test)]
mod stories;
#[cfg(test)]
mod tests;
