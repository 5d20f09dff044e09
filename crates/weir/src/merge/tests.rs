//! Tests of merge, view and retention against a versioned ordered map. Seeds are in the messages.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;

use super::*;
use crate::base::checksum::hash_entry;
use crate::base::cursor::{Approach, Cursor};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::interval::{Interval, Intervals};
use crate::base::key::{Kind, SEQ_MAX, Seq};
use crate::base::prng::Prng;
use crate::gaps::{Commits, Gaps, Leaps};

#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    key: Vec<u8>,
    seq: Seq,
    kind: Kind,
    value: Vec<u8>,
}

/// A cursor over a sorted vector that can be set to fail once, after some moves.
struct VecCursor {
    rows: Vec<Row>,
    /// Index plus one; 0 is before the first.
    at: usize,
    /// Moves left before one fails, shared by all cursors of a test.
    fuse: Option<Rc<Cell<usize>>>,
    failed: bool,
}

impl VecCursor {
    fn new(rows: Vec<Row>) -> Self {
        assert!(rows.is_sorted_by_key(|r| (r.key.clone(), Reverse(r.seq))));
        Self { rows, at: 0, fuse: None, failed: false }
    }

    fn row(&self) -> &Row {
        assert!(self.valid());
        &self.rows[self.at - 1]
    }

    fn go(&mut self, at: usize) {
        self.at = at;
        self.failed = false;
        if let Some(fuse) = &self.fuse {
            // It fails once: a second try would succeed, so that code that forgets the error goes
            // on.
            self.failed = fuse.get() == 0;
            fuse.set(fuse.get().wrapping_sub(1));
        }
    }

    fn split(&self, key: &[u8], seq: Seq) -> usize {
        self.rows.partition_point(|r| (&r.key[..], Reverse(r.seq)) < (key, Reverse(seq)))
    }
}

impl Cursor for VecCursor {
    fn valid(&self) -> bool {
        !self.failed && self.at > 0 && self.at <= self.rows.len()
    }
    fn key(&self) -> &[u8] {
        &self.row().key
    }
    fn seq(&self) -> Seq {
        self.row().seq
    }
    fn kind(&self) -> Kind {
        self.row().kind
    }
    fn value(&self) -> &[u8] {
        &self.row().value
    }
    fn approach(&mut self, _: &[u8], _: Seq, _: Approach) {
        self.at = 0;
    }
    fn seek(&mut self, key: &[u8], seq: Seq) {
        self.go(self.split(key, seq) + 1);
    }
    fn seek_for_prev(&mut self, key: &[u8], seq: Seq) {
        let split = self.split(key, seq);
        let hit = self.rows.get(split).is_some_and(|r| r.key == key && r.seq == seq);
        self.go(split + usize::from(hit));
    }
    fn seek_to_first(&mut self) {
        self.go(1);
    }
    fn seek_to_last(&mut self) {
        self.go(self.rows.len());
    }
    fn next(&mut self) {
        assert!(self.valid());
        self.go(self.at + 1);
    }
    fn prev(&mut self) {
        assert!(self.valid());
        self.go(self.at - 1);
    }
    fn status(&self) -> Result<()> {
        if self.failed { Err(Error::new(ErrorKind::Io, "the fuse has blown")) } else { Ok(()) }
    }
}

/// Keys in a small space, so that versions pile up; some share 16 bytes, some are all 0xff.
fn key_of(prng: &mut Prng) -> Vec<u8> {
    let stem: &[u8] = [&b""[..], b"0123456789abcdef", &[0xff; 16], b"k"][prng.below(4) as usize];
    let mut key = stem.to_vec();
    for _ in 0..prng.below(3) {
        key.push([0, b'x', 0xff][prng.below(3) as usize]);
    }
    key
}

struct World {
    /// All entries, sorted.
    all: Vec<Row>,
    /// The same, divided among sources, and of each what it hides, with rows that are in no other
    /// and not in `all`.
    sources: Vec<(Vec<Row>, Arc<Intervals>)>,
    seq_last: Seq,
}

fn world(prng: &mut Prng) -> World {
    let count = prng.below(7) as usize;
    let mut sources: Vec<(Vec<Row>, Arc<Intervals>)> = vec![Default::default(); count];
    for (_, hidden) in &mut sources {
        // Half of the worlds without.
        let count = prng.below(2) * prng.below(4);
        *hidden = Arc::new((0..count).map(|_| interval_of(prng)).collect::<Intervals>());
    }
    let mut all = Vec::new();
    let rows = [0, 3, 60, 400][prng.below(4) as usize];
    let mut seq = prng.below(2);
    for i in 0..if count == 0 { 0 } else { rows } {
        // Sometimes many versions of one key.
        let pile = if prng.chance(1, 40) { 1 + prng.below(60) } else { 1 };
        let key = key_of(prng);
        for _ in 0..pile {
            let kind = if prng.chance(1, 3) { Kind::Delete } else { Kind::Put };
            let value = if kind == Kind::Put { format!("{i}:{seq}").into_bytes() } else { vec![] };
            let row = Row { key: key.clone(), seq, kind, value };
            let (rows, hidden) = &mut sources[prng.below(count as u64) as usize];
            rows.push(row.clone());
            if !hidden.contain(&row.key) {
                all.push(row);
            }
            seq += 1;
        }
    }
    let sort = |rows: &mut Vec<Row>| rows.sort_by_key(|r| (r.key.clone(), Reverse(r.seq)));
    sources.iter_mut().for_each(|(rows, _)| sort(rows));
    sort(&mut all);
    World { all, sources, seq_last: seq }
}

fn interval_of(prng: &mut Prng) -> Interval {
    let (a, b) = (key_of(prng), key_of(prng));
    let to = (!prng.chance(1, 6)).then(|| a.clone().max(b.clone()));
    Interval::new(&a.min(b), to.as_deref())
}

fn merge_of(world: &World) -> MergingCursor<Without<VecCursor>> {
    let source = |(rows, hidden): &(Vec<Row>, Arc<Intervals>)| {
        Without::new(VecCursor::new(rows.clone()), Arc::clone(hidden))
    };
    MergingCursor::new(world.sources.iter().map(source).collect())
}

fn row_of(cursor: &impl Cursor) -> Option<Row> {
    cursor.valid().then(|| Row {
        key: cursor.key().to_vec(),
        seq: cursor.seq(),
        kind: cursor.kind(),
        value: cursor.value().to_vec(),
    })
}

/// Goal: the merge is the sorted union under every sequence of moves. Method: the same moves on the
/// merge and on one cursor over the sorted union.
#[test]
fn merge_is_the_sorted_union() {
    for seed in 0..400 {
        let mut prng = Prng::new(seed);
        let world = world(&mut prng);
        let mut merge = merge_of(&world);
        let mut oracle = VecCursor::new(world.all.clone());
        assert!(!merge.valid());
        for _ in 0..60 {
            let (key, seq) = (key_of(&mut prng), prng.below(world.seq_last + 2));
            match prng.below(5) {
                0 => {
                    merge.seek_to_first();
                    oracle.seek_to_first();
                }
                1 => {
                    merge.seek_to_last();
                    oracle.seek_to_last();
                }
                2 => {
                    merge.seek_for_prev(&key, seq);
                    oracle.seek_for_prev(&key, seq);
                }
                _ => {
                    merge.seek(&key, seq);
                    oracle.seek(&key, seq);
                }
            }
            if prng.chance(1, 8) {
                let key = key_of(&mut prng);
                Approach::STEPS.iter().for_each(|&step| merge.approach(&key, seq, step));
                assert!(!merge.valid() && merge.status().is_ok(), "seed {seed}");
                continue;
            }
            // Long stretches in one direction and zigzags.
            let turn_one_in = [2, 8, 1000][prng.below(3) as usize];
            let mut forward = prng.chance(1, 2);
            for _ in 0..50 {
                assert_eq!(row_of(&merge), row_of(&oracle), "seed {seed}");
                assert!(merge.status().is_ok());
                if !merge.valid() {
                    break;
                }
                forward ^= prng.chance(1, turn_one_in);
                if forward {
                    merge.next();
                    oracle.next();
                } else {
                    merge.prev();
                    oracle.prev();
                }
            }
        }
    }
}

/// Goal: entries with equal key and sequence number in several sources are in the order of rank,
/// and backwards in exactly the reverse order, also right after a reversal.
#[test]
fn equal_entries_come_by_rank() {
    let row = |key: &[u8], seq, value: &[u8]| Row {
        key: key.to_vec(),
        seq,
        kind: Kind::Put,
        value: value.to_vec(),
    };
    let sources: Vec<VecCursor> = (0..5)
        .map(|rank: u8| VecCursor::new(vec![row(b"a", 7, &[rank]), row(b"b", 7, &[rank])]))
        .collect();
    let mut merge = MergingCursor::new(sources);
    merge.seek_to_first();
    let mut forward = Vec::new();
    while merge.valid() {
        forward.push(row_of(&merge).unwrap());
        merge.next();
    }
    let ranks: Vec<u8> = forward.iter().map(|r| r.value[0]).collect();
    assert_eq!(ranks, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
    merge.seek_to_last();
    for expected in forward.iter().rev() {
        assert_eq!(row_of(&merge).as_ref(), Some(expected));
        merge.prev();
    }
    for i in 1..forward.len() - 1 {
        merge.seek_to_first();
        (0..i).for_each(|_| merge.next());
        merge.prev();
        assert_eq!(row_of(&merge).as_ref(), Some(&forward[i - 1]), "turn at {i}");
        merge.next();
        assert_eq!(row_of(&merge).as_ref(), Some(&forward[i]), "second turn at {i}");
    }
}

/// Goal: of what is hidden nothing is read before every other source has passed it. Method: a
/// source that hides a range beside one that has keys there; the former is not placed by seeks into
/// the range, in both directions, nor while the other is there.
#[test]
fn what_is_hidden_is_not_read() {
    let row = |key: u8, seq| Row { key: vec![key], seq, kind: Kind::Put, value: vec![] };
    let upper: Vec<Row> = (10..20).map(|key| row(key, 9)).collect();
    let lower: Vec<Row> = (0..30).map(|key| row(key, 1)).collect();
    let hidden: Intervals = [Interval::new(&[10], Some(&[20]))].into_iter().collect();
    let source = |rows, hidden| Without::new(VecCursor::new(rows), Arc::new(hidden));
    let mut merge =
        MergingCursor::new(vec![source(upper, Intervals::default()), source(lower, hidden)]);
    let is_untouched =
        |merge: &MergingCursor<Without<VecCursor>>| merge.sources()[1].inner().at == 0;
    merge.seek(&[12], SEQ_MAX);
    for key in 12..20 {
        assert_eq!((merge.key(), merge.seq()), (&[key][..], 9));
        assert!(is_untouched(&merge), "at {key}");
        if key < 19 {
            merge.next();
        }
    }
    merge.seek_for_prev(&[15], 0);
    for key in (10..=15).rev() {
        assert_eq!((merge.key(), merge.seq()), (&[key][..], 9));
        assert!(is_untouched(&merge), "at {key}");
        merge.prev();
    }
    assert_eq!((merge.key(), merge.seq()), (&[9][..], 1));
    merge.next();
    (0..10).for_each(|_| merge.next());
    assert_eq!((merge.key(), merge.seq()), (&[20][..], 1));
}

/// What a reader at `snapshot` sees, by the definition.
fn visible_of(all: &[Row], snapshot: Seq) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut newest: BTreeMap<&[u8], &Row> = BTreeMap::new();
    for row in all.iter().filter(|r| r.seq <= snapshot) {
        let best = newest.entry(&row.key).or_insert(row);
        if row.seq > best.seq {
            *best = row;
        }
    }
    newest
        .into_iter()
        .filter(|(_, r)| r.kind == Kind::Put)
        .map(|(k, r)| (k.to_vec(), r.value.clone()))
        .collect()
}

fn bound_of(prng: &mut Prng) -> Bound<Vec<u8>> {
    match prng.below(4) {
        0 => Bound::Included(key_of(prng)),
        1 => Bound::Excluded(key_of(prng)),
        _ => Bound::Unbounded,
    }
}

fn within(key: &[u8], lower: &Bound<Vec<u8>>, upper: &Bound<Vec<u8>>) -> bool {
    (match lower {
        Bound::Unbounded => true,
        Bound::Included(l) => key >= &l[..],
        Bound::Excluded(l) => key > &l[..],
    }) && match upper {
        Bound::Unbounded => true,
        Bound::Included(u) => key <= &u[..],
        Bound::Excluded(u) => key < &u[..],
    }
}

/// Goal: the view is the definition of visibility under every sequence of moves, snapshot and pair
/// of bounds (also bounds that cross), and leaps over gaps change nothing. Method: random moves on
/// views and on the expected rows, with and without gaps, which the views of one world share.
#[test]
fn visible_is_the_newest_version_of_each_key() {
    let mut leapt = 0;
    for seed in 0..1200 {
        let mut prng = Prng::new(seed);
        let world = world(&mut prng);
        let (gaps, commits) = (Gaps::default(), Commits::after(world.seq_last));
        let entries = 1 + prng.below(3) as usize;
        let leaps = (seed % 2 == 0).then_some(Leaps { gaps: &gaps, commits: &commits, entries });
        (0..5).for_each(|_| view_is_right(&mut prng, &world, leaps, seed));
        leapt += gaps.leaps();
    }
    assert!(leapt > 1000, "{leapt} leaps");
}

fn view_is_right(prng: &mut Prng, world: &World, leaps: Option<Leaps<'_>>, seed: u64) {
    let snapshot = [prng.below(world.seq_last + 2), SEQ_MAX][prng.below(2) as usize];
    let (lower, upper) = (bound_of(prng), bound_of(prng));
    let rows: Vec<(Vec<u8>, Vec<u8>)> = visible_of(&world.all, snapshot)
        .into_iter()
        .filter(|(key, _)| within(key, &lower, &upper))
        .collect();
    let mut view = Visible::new(merge_of(world), snapshot, lower.clone(), upper.clone());
    for _ in 0..12 {
        let key = key_of(prng);
        let mut at = match prng.below(4) {
            0 => {
                view.seek_to_first(leaps);
                Some(0)
            }
            1 => {
                view.seek_to_last(leaps);
                rows.len().checked_sub(1)
            }
            2 => {
                view.seek(&key, leaps);
                Some(rows.partition_point(|r| r.0 < key))
            }
            _ => {
                view.seek_for_prev(&key, leaps);
                rows.partition_point(|r| r.0 <= key).checked_sub(1)
            }
        };
        let turn_one_in = [2, 8, 1000][prng.below(3) as usize];
        let mut forward = prng.chance(1, 2);
        for _ in 0..40 {
            let expected = at.and_then(|i| rows.get(i));
            let actual = view.valid().then(|| (view.key().to_vec(), view.value().to_vec()));
            assert_eq!(
                actual.as_ref(),
                expected,
                "seed {seed} snapshot {snapshot} bounds {lower:?} {upper:?} key {key:?}"
            );
            assert!(view.status().is_ok());
            if !view.valid() {
                break;
            }
            forward ^= prng.chance(1, turn_one_in);
            if forward {
                view.next(leaps);
                at = at.map(|i| i + 1);
            } else {
                view.prev(leaps);
                at = at.and_then(|i| i.checked_sub(1));
            }
        }
    }
}

/// Goal (bug 39): an error is never the end of the data and never changes what is shown. Method:
/// the n-th move of any source fails, for all n; all that is shown before is right, and if the walk
/// ends early then `status` is the error.
#[test]
fn an_error_below_is_not_the_end() {
    for seed in 0..25 {
        let mut prng = Prng::new(seed);
        let world = world(&mut prng);
        let expected: Vec<_> = visible_of(&world.all, SEQ_MAX).into_iter().collect();
        for forward in [true, false] {
            for moves in 0..world.all.len() * 2 + 4 {
                let fuse = Rc::new(Cell::new(moves));
                let fused = |(rows, hidden): &(Vec<Row>, Arc<Intervals>)| {
                    let fuse = Some(Rc::clone(&fuse));
                    let cursor = VecCursor { fuse, ..VecCursor::new(rows.clone()) };
                    Without::new(cursor, Arc::clone(hidden))
                };
                let merge = MergingCursor::new(world.sources.iter().map(fused).collect());
                let mut view = Visible::new(merge, SEQ_MAX, Bound::Unbounded, Bound::Unbounded);
                let mut shown = Vec::new();
                if forward {
                    view.seek_to_first(None);
                } else {
                    view.seek_to_last(None);
                }
                while view.valid() {
                    shown.push((view.key().to_vec(), view.value().to_vec()));
                    if forward {
                        view.next(None);
                    } else {
                        view.prev(None);
                    }
                }
                let mut wanted = expected.clone();
                if !forward {
                    wanted.reverse();
                }
                assert_eq!(shown[..], wanted[..shown.len()], "seed {seed} moves {moves}");
                let complete = shown.len() == wanted.len();
                assert!(complete || view.status().is_err(), "seed {seed} moves {moves}: lost data");
            }
        }
    }
}

fn retained<F: FnMut(&[u8]) -> bool>(
    world: &World,
    snapshots: &[Seq],
    drop_deletes: F,
) -> (Vec<Row>, RetainCounts) {
    let mut retain = Retain::new(merge_of(world), snapshots.to_vec(), drop_deletes);
    let mut rows = Vec::new();
    retain.seek_to_first();
    while retain.valid() {
        let row = Row {
            key: retain.key().to_vec(),
            seq: retain.seq(),
            kind: retain.kind(),
            value: retain.value().to_vec(),
        };
        assert_eq!(retain.hash(), hash_entry(&row.key, row.seq, row.kind, &row.value));
        rows.push(row);
        retain.next();
    }
    retain.status().unwrap();
    (rows, retain.counts())
}

fn tally_of<'a>(rows: impl Iterator<Item = &'a Row>) -> Tally {
    let mut tally = Tally::default();
    rows.for_each(|r| tally.add(hash_entry(&r.key, r.seq, r.kind, &r.value)));
    tally
}

/// Goal: every snapshot and every later reader sees the same after drops, with and without older
/// data below; nothing is invented; the conservation law holds; nothing superfluous stays. Method:
/// random histories and snapshots; the older data below is the keys' oldest part of history.
#[test]
fn retain_changes_no_answer() {
    for seed in 0..600 {
        let mut prng = Prng::new(seed);
        let world = world(&mut prng);
        let mut snapshots: Vec<Seq> =
            (0..prng.below(5)).map(|_| prng.below(world.seq_last + 1)).collect();
        snapshots.sort_unstable();
        // Keys of even length are at their base level; the others have an old version below.
        let base = |key: &[u8]| key.len().is_multiple_of(2);
        let (rows, counts) = retained(&world, &snapshots, base);
        assert!(rows.iter().all(|r| world.all.contains(r)), "seed {seed}: invented an entry");
        assert!(rows.is_sorted_by_key(|r| (r.key.clone(), Reverse(r.seq))));
        let below: Vec<Row> = world
            .all
            .iter()
            .filter(|r| !base(&r.key))
            .map(|r| Row { kind: Kind::Put, value: b"below".to_vec(), seq: 0, ..r.clone() })
            .collect();
        let with_below = |rows: &[Row]| {
            let newer = rows.iter().map(|r| Row { seq: r.seq + 1, ..r.clone() });
            newer.chain(below.iter().cloned()).collect::<Vec<_>>()
        };
        for &reader in snapshots.iter().chain([&world.seq_last, &SEQ_MAX]) {
            let reader = reader.saturating_add(1);
            let (before, after) = (with_below(&world.all), with_below(&rows));
            assert_eq!(visible_of(&before, reader), visible_of(&after, reader), "seed {seed}");
        }
        assert_eq!(counts.read, tally_of(world.all.iter()), "seed {seed}");
        assert_eq!(counts.read, tally_of(rows.iter()).plus(counts.dropped()), "seed {seed}");
        let stripe = |r: &Row| snapshots.iter().filter(|&&s| s < r.seq).count();
        for pair in rows.windows(2) {
            let same = pair[0].key == pair[1].key && stripe(&pair[0]) == stripe(&pair[1]);
            assert!(!same, "seed {seed}: a shadowed entry stayed");
        }
        let dead = rows.iter().find(|r| r.kind == Kind::Delete && stripe(r) == 0 && base(&r.key));
        assert_eq!(dead, None, "seed {seed}: a delete with nothing to delete stayed");
    }
}

/// Goal: all histories of up to four versions of one key under all sets of snapshots (bug 5:
/// exhaustive over operation kinds instead of random).
#[test]
fn retain_is_right_for_all_short_histories() {
    for length in 1..=4u32 {
        for kinds in 0..1u32 << length {
            for snapshot_mask in 0..1u32 << (length + 1) {
                let mut all: Vec<Row> = (0..length)
                    .map(|i| {
                        let put = kinds >> i & 1 == 1;
                        let kind = if put { Kind::Put } else { Kind::Delete };
                        let value = if put { vec![i as u8] } else { vec![] };
                        Row { key: b"k".to_vec(), seq: u64::from(i) + 1, kind, value }
                    })
                    .collect();
                all.reverse();
                let world =
                    World { sources: vec![(all.clone(), Arc::default())], all, seq_last: 9 };
                let snapshots: Vec<Seq> =
                    (0..=length).filter(|i| snapshot_mask >> i & 1 == 1).map(u64::from).collect();
                for at_base in [true, false] {
                    let (rows, _) = retained(&world, &snapshots, |_| at_base);
                    for &reader in snapshots.iter().chain([&SEQ_MAX]) {
                        let (was, is) = (visible_of(&world.all, reader), visible_of(&rows, reader));
                        assert_eq!(was, is, "{:?} {snapshots:?} {reader}", world.all);
                        let hides = |rows: &[Row]| rows.iter().any(|r| r.seq <= reader);
                        assert!(at_base || hides(&world.all) == hides(&rows), "uncovered below");
                    }
                }
            }
        }
    }
}

/// Goal (bug 39): a compaction whose input fails must see the failure.
#[test]
fn retain_reports_a_failed_input() {
    let mut prng = Prng::new(11);
    let world = loop {
        let world = world(&mut prng);
        if world.all.len() > 100 {
            break world;
        }
    };
    let fuse = Rc::new(Cell::new(50));
    let fused = |(rows, hidden): &(Vec<Row>, Arc<Intervals>)| {
        let fuse = Some(Rc::clone(&fuse));
        let cursor = VecCursor { fuse, ..VecCursor::new(rows.clone()) };
        Without::new(cursor, Arc::clone(hidden))
    };
    let merge = MergingCursor::new(world.sources.iter().map(fused).collect());
    let mut retain = Retain::new(merge, Vec::new(), |_| true);
    retain.seek_to_first();
    while retain.valid() {
        retain.next();
    }
    assert_eq!(retain.status().unwrap_err().kind(), ErrorKind::Io);
}

/// Counts how often it is led to its block.
struct Led<'a>(&'a Cell<u64>);

impl Cursor for Led<'_> {
    fn valid(&self) -> bool {
        false
    }
    fn key(&self) -> &[u8] {
        &[]
    }
    fn seq(&self) -> Seq {
        0
    }
    fn kind(&self) -> Kind {
        Kind::Put
    }
    fn value(&self) -> &[u8] {
        &[]
    }
    fn approach(&mut self, _: &[u8], _: Seq, step: Approach) {
        self.0.set(self.0.get() + u64::from(step == Approach::Take));
    }
    fn seek(&mut self, _: &[u8], _: Seq) {}
    fn seek_for_prev(&mut self, _: &[u8], _: Seq) {}
    fn seek_to_first(&mut self) {}
    fn seek_to_last(&mut self) {}
    fn next(&mut self) {}
    fn prev(&mut self) {}
    fn status(&self) -> Result<()> {
        Ok(())
    }
}

/// Goal: a merge below a merge (a buffer list of several runs) takes each block from the cache once
/// a seek, so that its hit is counted once.
#[test]
fn a_merge_that_is_led_does_not_lead_again() {
    let taken = Cell::new(0);
    let inner = MergingCursor::new(vec![Led(&taken), Led(&taken)]);
    let other = MergingCursor::new(vec![Led(&taken)]);
    let mut outer = MergingCursor::new(vec![inner, other]);
    outer.seek(b"k", 1);
    assert_eq!(taken.get(), 3, "blocks taken by three cursors");
}

/// Goal: a stretch that ends with the last entry below ends with a key of its own reader. Method: a
/// reader without bounds steps past "y"; one that ends before "c", whose sources have nothing
/// behind its bound, passes an entry that is too new for it. What is watched behind "c" is not
/// proven.
#[test]
fn a_stretch_ends_with_a_key_of_its_reader() {
    let (gaps, commits) = (Gaps::default(), Commits::after(9));
    let leaps = Leaps { gaps: &gaps, commits: &commits, entries: 1 };
    let row = |key: &[u8], seq| Row { key: key.to_vec(), seq, kind: Kind::Put, value: Vec::new() };
    leaps.note((b"m", b"x"), 9, false);
    let rows = vec![row(b"y", 1), row(b"z", 1)];
    let mut view = Visible::new(VecCursor::new(rows), 9, Bound::Unbounded, Bound::Unbounded);
    view.seek(b"y", Some(leaps));
    view.next(Some(leaps));
    assert_eq!(view.key(), b"z");
    view.rest();
    view.set_inner(VecCursor::new(vec![row(b"a", 12)]));
    view.set_reader(10, Bound::Unbounded, Bound::Excluded(b"c".to_vec()));
    view.seek_to_first(Some(leaps));
    assert!(!view.valid());
    assert_eq!(leaps.around(b"n", 20), None, "nobody looked there a second time");
}
