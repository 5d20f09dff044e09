//! What is counted, faded and carried over.

use super::*;

const WINDOW: Duration = Duration::from_nanos(100);

fn key(n: u64) -> Vec<u8> {
    format!("{n:06}").into_bytes()
}

/// Heat of the numbers up to 1,000 in 10 buckets of 100.
fn heat() -> RangeHeat {
    let (smallest, largest) = (key(0), key(1000));
    let table = TableSpan { smallest: &smallest, largest: &largest, entries: 1000 };
    let heat = RangeHeat::new(BucketRanges::Equal(10), &[table], WINDOW, (None, 0));
    assert_eq!(heat.buckets().len(), 10);
    heat
}

fn sums(shape: &HeatShape) -> [u64; 6] {
    shape.buckets.iter().fold([0; 6], |sums, b| {
        let of = [b.scans, b.scanned, b.gets, b.writes, b.written_bytes, b.opened_beyond];
        std::array::from_fn(|i| sums[i] + of[i])
    })
}

/// Goal: every call is counted in its bucket with what it opened beyond one run, a scan in all of
/// its buckets, in equal parts of which nothing is lost.
#[test]
fn calls_are_counted_in_their_buckets() {
    let heat = heat();
    heat.note_get(&key(150), 3);
    heat.note_get(&key(150), 0);
    heat.note_get(&key(150), 1);
    heat.note_write(&key(250), 40);
    heat.note_scan(ScanSeen { buckets: (5, 3), entries: 100, runs: 5 });
    heat.note_scan(ScanSeen { buckets: (9, 9), entries: 7, runs: 0 });
    let shape = heat.shape(0);
    let (at, n) = (|bucket: usize| &shape.buckets[bucket], SAMPLE);
    assert_eq!((at(1).gets, at(1).opened_beyond), (3 * n, 2 * n));
    assert_eq!((at(2).writes, at(2).written_bytes), (n, 40 * n));
    let scanned: Vec<u64> = (2..7).map(|bucket| at(bucket).scans).collect();
    assert_eq!(scanned, [0, n, n, n, 0]);
    assert_eq!((at(9).scans, at(9).scanned, at(9).opened_beyond), (n, 7 * n, 0));
    let sums = sums(&shape);
    // Each of three buckets may round a part of a run down.
    assert_eq!(sums[..5], [4 * n, 107 * n, 3 * n, n, 40 * n]);
    assert!((6 * n - 3..=6 * n).contains(&sums[5]), "{sums:?}");
    assert_eq!((at(1).from.clone(), at(1).to.clone()), (key(100), Some(key(200))));
}

/// Goal: counters are halved once a window (H28), however late somebody looks.
#[test]
fn windows_halve() {
    let heat = heat();
    (0..4).for_each(|_| heat.note_get(&key(1), 2));
    heat.note_moved(&key(999), None);
    heat.spend(1500);
    heat.take_back(500);
    let gets = |now| heat.shape(now).buckets[0].gets;
    assert_eq!(gets(99), 4 * SAMPLE);
    assert_eq!(gets(100), 2 * SAMPLE);
    assert_eq!(gets(199), 2 * SAMPLE);
    assert_eq!(heat.shape(200).moved_bytes, 250);
    assert_eq!(gets(250), SAMPLE);
    assert_eq!(heat.shape(400).buckets[0].opened_beyond, SAMPLE / 4);
    assert_eq!(sums(&heat.shape(100_000)), [0; 6]);
}

/// Goal: what is moved is not to be gained once more; other ranges are as hot as before.
#[test]
fn what_was_moved_starts_anew() {
    let heat = heat();
    heat.note_get(&key(150), 3);
    heat.note_get(&key(250), 3);
    heat.note_moved(&key(100), Some(&key(101)));
    heat.spend(500);
    let shape = heat.shape(0);
    assert_eq!((shape.buckets[1].opened_beyond, shape.buckets[1].gets), (0, SAMPLE));
    assert_eq!((shape.buckets[2].opened_beyond, shape.moved_bytes), (2 * SAMPLE, 500));
}

/// Goal: a new cut carries every count over, to where the entries are.
#[test]
fn a_new_cut_carries_counts_over() {
    let heat = heat();
    (0..1000).step_by(7).for_each(|n| heat.note_get(&key(n), n % 5));
    (100..200).for_each(|n| heat.note_write(&key(n), 11));
    heat.note_moved(b"", Some(b"\0"));
    heat.spend(77);
    let (first, middle, last) = (key(0), key(150), key(3000));
    let table = |smallest, largest, entries| TableSpan { smallest, largest, entries };
    let tables = [table(&first, &middle, 900), table(&middle, &last, 300)];
    for how in [BucketRanges::Quantile(16), BucketRanges::Equal(3), BucketRanges::Quantile(1)] {
        let cut = heat.cut_anew(how, &tables, WINDOW, (None, 0));
        let (before, after) = (heat.shape(0), cut.shape(0));
        let (a, b) = (sums(&before), sums(&after));
        assert_eq!(a[..5], b[..5], "{how:?}");
        assert!(a[5].abs_diff(b[5]) <= 16, "{a:?} {b:?}");
        assert_eq!(after.moved_bytes, 77);
    }
    let cut = heat.cut_anew(BucketRanges::Quantile(16), &tables, WINDOW, (None, 0)).shape(0);
    let written = |from: u64, to: u64| {
        let inside = |b: &&BucketHeat| b.from >= key(from) && b.from < key(to);
        cut.buckets.iter().filter(inside).map(|b| b.writes).sum::<u64>()
    };
    assert_eq!((written(0, 90), written(210, 9999)), (0, 0), "{cut:?}");
    // Four new buckets share the middle of what was one.
    let largest = cut.buckets.iter().map(|b| b.writes).max();
    assert!(largest < Some(40 * SAMPLE), "{cut:?}");
}

/// Goal: about one call in `SAMPLE` is counted, in every pattern of calls, and always the same ones
/// in a new thread.
#[test]
fn one_call_in_some_is_sampled() {
    let calls = || {
        let mut counted = [0u64; 16];
        (0..160_000).for_each(|call| counted[call % 16] += u64::from(is_sampled()));
        counted
    };
    let counted = || std::thread::scope(|scope| scope.spawn(calls).join().unwrap());
    let of_each = counted();
    // 625 of each, with a deviation of about 25.
    assert!(of_each.iter().all(|n| (500..750).contains(n)), "{of_each:?}");
    assert_eq!(of_each, counted());
}

/// Goal: threads that count at once lose nothing; memory is charged, and given back.
#[test]
fn threads_count_together_and_memory_is_charged() {
    let accountant = Accountant::new(1 << 20);
    let (smallest, largest) = (key(0), key(1000));
    let table = TableSpan { smallest: &smallest, largest: &largest, entries: 1000 };
    let place = (Some(&accountant), 0);
    let heat = RangeHeat::new(BucketRanges::Quantile(100), &[table], WINDOW, place);
    let used = accountant.used(Category::TableMetadata);
    assert!((6400..12_000).contains(&used), "{used} bytes");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..1000).for_each(|n| heat.note_get(&key(n), 2)));
        }
    });
    assert_eq!(sums(&heat.shape(0))[2], 4000 * SAMPLE);
    drop(heat);
    assert_eq!(accountant.used(Category::TableMetadata), 0);
}
