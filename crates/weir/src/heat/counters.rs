//! What is counted for each bucket: sampled, in one cache line a bucket, halved once a window.
//!
//! One call in [`SAMPLE`] of a thread is counted, and counts for as many: gets, seeks and written
//! entries take their turns from one sequence of random gaps a thread, so that what repeats in a
//! pattern is not missed. A call that is not counted costs a few instructions on thread-local
//! memory; threads that count meet on one line once in [`SAMPLE`] calls of each. So the counters
//! are not striped: they would take 16 times the memory.
//!
//! Counters fade: at the end of a window all are halved (H28), so that a range that is not read any
//! longer is cold after some windows. A decider that looks ends the windows that are over; nobody
//! else needs to know the time.
//!
//! Estimates: calls that count while the counters are halved or carried over may be lost; a thread
//! of fewer than [`SAMPLE`] calls is counted badly. Nothing but the choice of what is moved depends
//! on them.
//!
//! Source: BiLSM §3.1, H28.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::buckets::{Buckets, Point, TableSpan, points_of};
use super::shape::{BucketHeat, HeatShape, SAMPLE};
use crate::base::memory::{Accountant, Category, Charge};
use crate::options::sentinels::BucketRanges;

/// Parts of a run in which `opened_beyond` counts: what a scan opened is divided over its buckets.
const OPENED_PARTS: u64 = 64;

thread_local! {
    /// Calls up to the next one that is counted, which is included; 0: not drawn yet.
    static GAP: Cell<u64> = const { Cell::new(0) };
    /// State of the generator of gaps (xorshift64). It begins alike in every thread, so that a
    /// simulation counts the same calls each time.
    static RANDOM: Cell<u64> = const { Cell::new(0x9e37_79b9_7f4a_7c15) };
}

/// Whether this call is one that is counted.
#[inline]
pub(crate) fn is_sampled() -> bool {
    let gap = GAP.get();
    if gap > 1 {
        GAP.set(gap - 1);
        return false;
    }
    draw(gap == 1)
}

/// Draws the next gap, uniform in 1 to `2 * SAMPLE - 1`; `counted` is the answer unless there was
/// none before.
#[cold]
fn draw(counted: bool) -> bool {
    let mut x = RANDOM.get();
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    RANDOM.set(x);
    // The upper half, whose bits are the better ones.
    GAP.set(1 + (x >> 32) % (2 * SAMPLE - 1));
    counted || is_sampled()
}

/// The counters of a bucket.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Counters {
    scans: AtomicU64,
    scanned: AtomicU64,
    gets: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    /// In [`OPENED_PARTS`].
    opened_beyond: AtomicU64,
}

impl Counters {
    fn all(&self) -> [&AtomicU64; 6] {
        let Self { scans, scanned, gets, writes, written_bytes, opened_beyond } = self;
        [scans, scanned, gets, writes, written_bytes, opened_beyond]
    }
}

/// What sentinels have saved.
#[derive(Debug, Default)]
struct Spared {
    reads: AtomicU64,
    runs: AtomicU64,
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// What remains of a number after so many halvings.
fn halve(counter: &AtomicU64, halvings: u32) {
    // Two may halve at once.
    let halved = |now: u64| Some(now.checked_shr(halvings).unwrap_or(0));
    let _ = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, halved);
}

/// A scan that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScanSeen {
    /// The buckets of its first and last position, in any order.
    pub(crate) buckets: (usize, usize),
    /// Entries that it passed.
    pub(crate) entries: u64,
    /// Runs that it opened.
    pub(crate) runs: u64,
}

/// The heat of a keyspace's ranges.
#[derive(Debug)]
pub(crate) struct RangeHeat {
    buckets: Buckets,
    spared: Arc<Spared>,
    counters: Box<[Counters]>,
    /// Bytes written to move hot ranges.
    moved_bytes: AtomicU64,
    /// Nanoseconds of a window, and when the present one ends.
    window: u64,
    window_end: AtomicU64,
    /// Held for the accountant.
    _charge: Option<Charge>,
}

impl RangeHeat {
    /// Of a tree of these tables, with nothing counted. Its memory is charged to table metadata.
    pub(crate) fn new(
        how: BucketRanges,
        tables: &[TableSpan<'_>],
        window: Duration,
        (accountant, now): (Option<&Arc<Accountant>>, u64),
    ) -> Self {
        Self::of(Buckets::cut(how, tables), window, (accountant, now))
    }

    fn of(
        buckets: Buckets,
        window: Duration,
        (accountant, now): (Option<&Arc<Accountant>>, u64),
    ) -> Self {
        let counters: Box<[Counters]> = (0..buckets.len()).map(|_| Counters::default()).collect();
        let bytes = size_of_val(&*counters) as u64 + buckets.memory_bytes();
        let window = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX).max(1);
        Self {
            buckets,
            spared: Arc::default(),
            counters,
            moved_bytes: AtomicU64::new(0),
            window,
            window_end: AtomicU64::new(now.saturating_add(window)),
            _charge: accountant.map(|a| a.charge(Category::TableMetadata, bytes)),
        }
    }

    /// With buckets cut anew by these tables. What was counted for a bucket goes to the new ones in
    /// proportion to the entries that they take over from it.
    pub(crate) fn cut_anew(
        &self,
        how: BucketRanges,
        tables: &[TableSpan<'_>],
        window: Duration,
        (accountant, now): (Option<&Arc<Accountant>>, u64),
    ) -> Self {
        let points = points_of(how, tables);
        let buckets = Buckets::of_points(how, tables, &points);
        let mut cut = Self::of(buckets, window, (accountant, now));
        cut.spared = Arc::clone(&self.spared);
        self.carry_to(&cut, &points);
        add(&cut.moved_bytes, self.moved_bytes.load(Ordering::Relaxed));
        cut
    }

    /// Adds to `cut` what was counted here. Each old bucket's points, in key order, get what it
    /// counted: rounded so that nothing is lost.
    fn carry_to(&self, cut: &Self, points: &[Point]) {
        let mut points = points.iter().peekable();
        for (old, counted) in self.counters.iter().enumerate() {
            let mut own: Vec<(usize, u64)> = Vec::new();
            while let Some(point) = points.next_if(|point| self.buckets.find(&point.key) == old) {
                own.push((cut.buckets.find(&point.key), point.entries));
            }
            if own.is_empty() {
                own.push((cut.buckets.find(self.buckets.range(old).0), 1));
            }
            let all: u128 = own.iter().map(|(_, entries)| u128::from(*entries)).sum();
            let mut before = 0u128;
            for (new, entries) in own {
                let upto = before + u128::from(entries);
                for (from, to) in counted.all().into_iter().zip(cut.counters[new].all()) {
                    let whole = u128::from(from.load(Ordering::Relaxed));
                    add(to, (whole * upto / all.max(1) - whole * before / all.max(1)) as u64);
                }
                before = upto;
            }
        }
    }

    /// Whether its buckets are cut in this way, and counted in such windows.
    pub(crate) fn is_cut_by(&self, how: BucketRanges, window: Duration) -> bool {
        self.buckets.how() == how && u128::from(self.window) == window.as_nanos()
    }

    /// The buckets.
    pub(crate) fn buckets(&self) -> &Buckets {
        &self.buckets
    }

    /// Counts a get that looked into `tables` tables. Requires: it [is sampled](is_sampled).
    #[cold]
    pub(crate) fn note_get(&self, key: &[u8], tables: u64) {
        let counters = &self.counters[self.buckets.find(key)];
        add(&counters.gets, SAMPLE);
        if tables > 1 {
            add(&counters.opened_beyond, SAMPLE * OPENED_PARTS * (tables - 1));
        }
    }

    /// Counts a read that a sentinel ended, for which it would have gone on to `runs` older runs.
    /// Requires: it [is sampled](is_sampled).
    #[cold]
    pub(crate) fn note_spared(&self, runs: usize) {
        add(&self.spared.reads, SAMPLE);
        add(&self.spared.runs, SAMPLE * runs as u64);
    }

    /// Reads that sentinels ended, and the older runs that these were spared; estimates, since the
    /// heat was made.
    pub(crate) fn spared(&self) -> (u64, u64) {
        let Spared { reads, runs } = &*self.spared;
        (reads.load(Ordering::Relaxed), runs.load(Ordering::Relaxed))
    }

    /// Counts a put or a delete. Requires: it [is sampled](is_sampled).
    #[cold]
    pub(crate) fn note_write(&self, key: &[u8], bytes: usize) {
        let counters = &self.counters[self.buckets.find(key)];
        add(&counters.writes, SAMPLE);
        add(&counters.written_bytes, SAMPLE * bytes as u64);
    }

    /// Counts a scan. Requires: it [is sampled](is_sampled).
    #[cold]
    pub(crate) fn note_scan(&self, scan: ScanSeen) {
        let ScanSeen { buckets: (a, b), entries, runs } = scan;
        let (first, last) = (a.min(b), a.max(b).min(self.counters.len() - 1));
        let touched = (last - first + 1) as u64;
        let (scanned, opened) = (SAMPLE * entries, SAMPLE * OPENED_PARTS * runs.saturating_sub(1));
        for (number, counters) in (0..touched).zip(&self.counters[first..=last]) {
            let share = |whole: u64| whole * (number + 1) / touched - whole * number / touched;
            add(&counters.scans, SAMPLE);
            add(&counters.scanned, share(scanned));
            add(&counters.opened_beyond, share(opened));
        }
    }

    /// Notes that `bytes` are going to be written to move a hot range.
    pub(crate) fn spend(&self, bytes: u64) {
        add(&self.moved_bytes, bytes);
    }

    /// Takes back what was spent on a range that was not moved.
    pub(crate) fn take_back(&self, bytes: u64) {
        let less = |moved: u64| Some(moved.saturating_sub(bytes));
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        self.moved_bytes.fetch_update(set, get, less).ok();
    }

    /// Notes that the hot range from `from` to below `to` was moved: what reads opened there before
    /// is no longer to be gained.
    pub(crate) fn note_moved(&self, from: &[u8], to: Option<&[u8]>) {
        for number in self.buckets.find(from)..self.buckets.len() {
            let (first, _) = self.buckets.range(number);
            if number > self.buckets.find(from) && to.is_some_and(|to| first >= to) {
                break;
            }
            halve(&self.counters[number].opened_beyond, u64::BITS);
        }
    }

    /// Halves the counters for each window that is over at `now`. One caller does it, others go on.
    fn end_windows(&self, now: u64) {
        let end = self.window_end.load(Ordering::Relaxed);
        let Some(late) = now.checked_sub(end) else { return };
        let over = late / self.window + 1;
        let next = end.saturating_add(over.saturating_mul(self.window));
        let order = Ordering::Relaxed;
        if self.window_end.compare_exchange(end, next, order, order).is_err() {
            return;
        }
        let halvings = u32::try_from(over).unwrap_or(u32::MAX);
        halve(&self.moved_bytes, halvings);
        for counter in self.counters.iter().flat_map(Counters::all) {
            halve(counter, halvings);
        }
    }

    /// What is counted at `now`, for deciders: one short vector a bucket.
    pub(crate) fn shape(&self, now: u64) -> HeatShape {
        self.end_windows(now);
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let bucket = |(number, counters): (usize, &Counters)| {
            let (from, to) = self.buckets.range(number);
            BucketHeat {
                from: from.to_vec(),
                to: to.map(<[u8]>::to_vec),
                scans: get(&counters.scans),
                scanned: get(&counters.scanned),
                gets: get(&counters.gets),
                writes: get(&counters.writes),
                written_bytes: get(&counters.written_bytes),
                opened_beyond: get(&counters.opened_beyond) / OPENED_PARTS,
            }
        };
        HeatShape {
            buckets: self.counters.iter().enumerate().map(bucket).collect(),
            moved_bytes: get(&self.moved_bytes),
        }
    }
}

#[cfg(test)]
mod tests;
