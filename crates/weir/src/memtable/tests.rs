//! Tests of the memtable against an ordered map. Every random test prints its seed when it fails.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;
use crate::base::cursor::Cursor;
use crate::base::key::SEQ_MAX;
use crate::base::prng::Prng;

type Oracle = BTreeMap<(Vec<u8>, Reverse<Seq>), (Kind, Vec<u8>)>;

/// Fewer rounds where every access is interpreted.
const ROUNDS: usize = if cfg!(miri) { 90 } else { 3000 };

/// Keys that are hard to order: empty, prefixes of each other, padded with zeros, equal in the
/// first 8 or 16 bytes, and all of 0xff.
fn awkward_key(prng: &mut Prng) -> Vec<u8> {
    let stem: &[u8] = match prng.below(5) {
        0 => b"",
        1 => b"\0\0\0",
        2 => b"12345678",
        3 => b"1234567812345678",
        _ => &[0xff; 16],
    };
    let mut key = stem.to_vec();
    for _ in 0..prng.below(4) {
        key.push([0, 1, b'a', 0xff][prng.below(4) as usize]);
    }
    key
}

fn kind_of(prng: &mut Prng) -> Kind {
    if prng.chance(1, 4) { Kind::Delete } else { Kind::Put }
}

fn fill(prng: &mut Prng, rounds: usize) -> (Arc<Memtable>, Oracle) {
    let memtable = Arc::new(Memtable::new(1 << 16));
    let mut oracle = Oracle::new();
    // Who is searched gets a filter.
    assert_eq!(memtable.get(b"", 0), None);
    for seq in 1..=rounds as Seq {
        let (key, kind) = (awkward_key(prng), kind_of(prng));
        let value = match kind {
            Kind::Put => vec![seq as u8; prng.below(40) as usize],
            Kind::Delete => Vec::new(),
        };
        memtable.insert(&key, seq, kind, &value);
        oracle.insert((key, Reverse(seq)), (kind, value));
    }
    (memtable, oracle)
}

type OracleRow<'a> = (&'a (Vec<u8>, Reverse<Seq>), &'a (Kind, Vec<u8>));
type Row<'a> = (&'a [u8], Seq, Kind, &'a [u8]);

fn current(cursor: &MemtableCursor) -> Option<Row<'_>> {
    cursor.valid().then(|| (cursor.key(), cursor.seq(), cursor.kind(), cursor.value()))
}

fn row(entry: OracleRow<'_>) -> Row<'_> {
    let ((key, Reverse(seq)), (kind, value)) = entry;
    (key, *seq, *kind, value)
}

/// Goal: the cursor is the oracle's iterator. Method: whole walks both ways over awkward keys.
#[test]
fn walks_give_all_entries_in_order() {
    let mut prng = Prng::new(1);
    let (memtable, oracle) = fill(&mut prng, ROUNDS);
    let mut cursor = memtable.cursor();
    assert!(!cursor.valid());
    cursor.seek_to_first();
    for entry in &oracle {
        assert_eq!(current(&cursor), Some(row(entry)));
        cursor.next();
    }
    assert!(!cursor.valid());
    cursor.seek_to_last();
    for entry in oracle.iter().rev() {
        assert_eq!(current(&cursor), Some(row(entry)));
        cursor.prev();
    }
    assert!(!cursor.valid());
    memtable.list.check();
    assert_eq!(memtable.entries(), oracle.len() as u64);
    assert_eq!(memtable.seq_range(), Some((1, ROUNDS as Seq)));
    assert!(memtable.bytes() <= memtable.reserved_bytes());
}

/// Goal: every sequence of moves agrees with the oracle. Method: random seeks both ways followed by
/// random steps, tracked as a range of the oracle.
#[test]
fn random_moves_agree_with_the_oracle() {
    for seed in 0..if cfg!(miri) { 1 } else { 8 } {
        let mut prng = Prng::new(seed);
        let (memtable, oracle) = fill(&mut prng, ROUNDS / 4);
        let rows: Vec<Row<'_>> = oracle.iter().map(row).collect();
        let mut cursor = memtable.cursor();
        for _ in 0..ROUNDS {
            let key = awkward_key(&mut prng);
            let seq = [0, prng.below(ROUNDS as u64), SEQ_MAX][prng.below(3) as usize];
            let split = rows.partition_point(|r| (r.0, Reverse(r.1)) < (&key[..], Reverse(seq)));
            let hit = rows.get(split).is_some_and(|r| r.0 == key && r.1 == seq);
            let mut at = match prng.below(4) {
                0 => {
                    cursor.seek_to_first();
                    Some(0)
                }
                1 => {
                    cursor.seek_to_last();
                    rows.len().checked_sub(1)
                }
                2 => {
                    cursor.seek(&key, seq);
                    Some(split)
                }
                _ => {
                    cursor.seek_for_prev(&key, seq);
                    if hit { Some(split) } else { split.checked_sub(1) }
                }
            };
            for _ in 0..prng.below(40) {
                let expected = at.and_then(|i| rows.get(i)).copied();
                assert_eq!(current(&cursor), expected, "seed {seed} key {key:?} seq {seq}");
                if expected.is_none() {
                    break;
                }
                if prng.chance(1, 3) {
                    cursor.next();
                    at = at.map(|i| i + 1);
                } else {
                    cursor.prev();
                    at = at.and_then(|i| i.checked_sub(1));
                }
            }
        }
    }
}

/// Goal: get gives the newest entry at or below the snapshot, deletes included, for present and for
/// absent keys.
#[test]
fn get_agrees_with_the_oracle() {
    let mut prng = Prng::new(7);
    let (memtable, oracle) = fill(&mut prng, ROUNDS);
    for _ in 0..ROUNDS {
        let key = awkward_key(&mut prng);
        let snapshot = prng.below(ROUNDS as u64 + 2);
        let expected = oracle
            .range((key.clone(), Reverse(snapshot))..)
            .next()
            .filter(|((k, _), _)| *k == key)
            .map(|((_, Reverse(seq)), (kind, value))| Found { seq: *seq, kind: *kind, value });
        assert_eq!(memtable.get(&key, snapshot), expected, "key {key:?} snapshot {snapshot}");
    }
}

/// Goal: an entry whose insert happened before a get is found, whether the filter is made before,
/// between or after the two. Method: a writer that says how far it is, readers that ask for what it
/// has said; a memtable that nobody asks has no filter.
#[test]
fn a_filter_hides_nothing() {
    let entries = if cfg!(miri) { 1100 } else { 20_000 };
    let memtable = Memtable::new(1 << 20);
    let key = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    let done = AtomicU64::new(0);
    // The readers may begin late.
    assert!(memtable.get(&key(0), SEQ_MAX).is_none());
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (memtable, done) = (&memtable, &done);
            scope.spawn(move || {
                let mut prng = Prng::new(reader);
                loop {
                    let upto = done.load(Ordering::Acquire);
                    for n in [upto, prng.below(upto.max(1)) + 1] {
                        let found = memtable.get(&key(n), SEQ_MAX);
                        assert!(found.is_some() || n == 0 || n > upto, "{n} of {upto}");
                    }
                    if upto == entries {
                        break;
                    }
                }
            });
        }
        for n in 1..=entries {
            memtable.insert(&key(n), n, Kind::Put, b"v");
            done.store(n, Ordering::Release);
        }
    });
    assert!(memtable.list.has_filter());
    assert!((1..=entries).all(|n| memtable.get(&key(n), SEQ_MAX).is_some()));
    let quiet = Memtable::new(1 << 20);
    (1..=2048).for_each(|n| quiet.insert(&key(n), n, Kind::Put, b"v"));
    assert!(!quiet.list.has_filter(), "nobody has use for it");
    assert!(quiet.get(&key(7), SEQ_MAX).is_some());
    (2049..=4096).for_each(|n| quiet.insert(&key(n), n, Kind::Put, b"v"));
    assert!(quiet.list.has_filter());
    assert!((1..=5000).all(|n| quiet.get(&key(n), SEQ_MAX).is_some() == (n <= 4096)));
}

#[test]
fn an_empty_memtable_finds_nothing() {
    let memtable = Arc::new(Memtable::new(64 << 20));
    assert!(memtable.is_empty() && memtable.seq_range().is_none());
    assert_eq!(memtable.get(b"", SEQ_MAX), None);
    let mut cursor = memtable.cursor();
    cursor.seek_to_first();
    assert!(!cursor.valid());
    cursor.seek_to_last();
    assert!(!cursor.valid());
    cursor.seek(b"", SEQ_MAX);
    assert!(!cursor.valid());
    cursor.seek_for_prev(b"\xff", 0);
    assert!(!cursor.valid());
    assert!(memtable.reserved_bytes() <= 8192, "{}", memtable.reserved_bytes());
}

/// Goal: the position of the last insert is only a hint. Method: ascending, descending, interleaved
/// and repeated keys, compared with the oracle after each pattern.
#[test]
fn patterns_that_use_the_finger_stay_sorted() {
    let n = ROUNDS as u64 / 3;
    let ascending = |i: u64| i;
    let descending = |i: u64| u64::MAX - i;
    let interleaved = |i: u64| if i.is_multiple_of(2) { i } else { i + (1 << 40) };
    let repeated = |i: u64| i / 50;
    let patterns: [&dyn Fn(u64) -> u64; 4] = [&ascending, &descending, &interleaved, &repeated];
    for (index, pattern) in patterns.into_iter().enumerate() {
        let memtable = Arc::new(Memtable::new(1 << 20));
        let mut oracle = Oracle::new();
        for seq in 1..=n {
            let key = pattern(seq).to_be_bytes().repeat(2);
            memtable.insert(&key, seq, Kind::Put, b"v");
            oracle.insert((key, Reverse(seq)), (Kind::Put, b"v".to_vec()));
        }
        let mut cursor = memtable.cursor();
        cursor.seek_to_first();
        for entry in &oracle {
            assert_eq!(current(&cursor), Some(row(entry)), "pattern {index}");
            cursor.next();
        }
        assert!(!cursor.valid());
        memtable.list.check();
    }
}

/// Goal: the index is exact for all kinds of keys: equal heads, long shared prefixes that pages
/// skip, keys around the ends of such prefixes, many versions of one key. Method: random inserts of
/// each family, a check of all pages, and gets against the oracle.
#[test]
fn the_index_is_exact_for_every_family_of_keys() {
    let number = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
    let families: [&dyn Fn(u64) -> Vec<u8>; 6] = [
        &|n| number(n).to_be_bytes().to_vec(),
        &|n| format!("tenant/0001/user/{:012}", number(n)).into_bytes(),
        &|n| [vec![b'p'; 300], number(n).to_string().into_bytes()].concat(),
        &|n| vec![b'z'; (number(n) % 700) as usize],
        &|n| format!("{:03}", number(n) % 3).into_bytes(),
        &|n| [&[0xff; 9][..(n % 10) as usize], &number(n).to_be_bytes()[6..]].concat(),
    ];
    for (index, family) in families.into_iter().enumerate() {
        let memtable = Memtable::new(1 << 20);
        let mut newest = BTreeMap::new();
        for seq in 1..=ROUNDS as Seq {
            let key = family(seq);
            memtable.insert(&key, seq, Kind::Put, &seq.to_le_bytes());
            newest.insert(key, seq);
        }
        memtable.list.check();
        for (key, seq) in &newest {
            let found = memtable.get(key, SEQ_MAX).map(|f| f.seq);
            assert_eq!(found, Some(*seq), "family {index} key {key:?}");
            let longer = [key, &b"\0"[..]].concat();
            let found = memtable.get(&longer, SEQ_MAX).map(|f| f.seq);
            assert_eq!(found, newest.get(&longer).copied(), "family {index} key {longer:?}");
        }
    }
}

/// Goal: a value far larger than a chunk has memory of its own and is not copied twice or cut.
#[test]
fn big_values_have_a_chunk_of_their_own() {
    const BIG: usize = if cfg!(miri) { 100_000 } else { 48 << 20 };
    let memtable = Memtable::new(1 << 20);
    memtable.insert(b"a", 1, Kind::Put, b"small");
    let big = vec![0xab; BIG];
    memtable.insert(b"b", 2, Kind::Put, &big);
    memtable.insert(b"c", 3, Kind::Put, b"");
    assert_eq!(memtable.get(b"a", 9).unwrap().value, b"small");
    assert!(memtable.get(b"b", 9).unwrap().value == big);
    assert_eq!(memtable.get(b"c", 9).unwrap().value, b"");
    assert!(memtable.bytes() >= BIG as u64 && memtable.reserved_bytes() < BIG as u64 + 100_000);
}

/// Goal: the same inserts give the same bytes in use, in every memtable: no hidden randomness.
#[test]
fn the_same_inserts_give_the_same_shape() {
    let bytes: Vec<u64> = (0..2).map(|_| fill(&mut Prng::new(3), ROUNDS).0.bytes()).collect();
    assert_eq!(bytes[0], bytes[1]);
}

/// Goal: concurrent inserts lose nothing and keep the order, while readers walk. Method: writers
/// insert interleaved keys and publish how far they are; readers check order on every walk, and
/// that what was published before their search is found.
#[test]
fn concurrent_inserts_and_readers() {
    const WRITERS: u64 = 3;
    let per_writer: u64 = if cfg!(miri) { 40 } else { 20_000 };
    let memtable = Arc::new(Memtable::new(1 << 16));
    let done: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    // The writers meet at the same places: they insert neighbouring keys in a scattered order.
    let key_of = |writer: u64, i: u64| {
        let scattered = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        [&b"key:"[..], &scattered.to_be_bytes(), &[writer as u8], &i.to_be_bytes()].concat()
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (memtable, done) = (&memtable, &done);
                scope.spawn(move || {
                    for i in 0..per_writer {
                        let seq = i * WRITERS + writer + 1;
                        memtable.insert(&key_of(writer, i), seq, Kind::Put, &i.to_le_bytes());
                        done[writer as usize].store(i + 1, Ordering::Release);
                    }
                })
            })
            .collect();
        for reader in 0..2u64 {
            let (memtable, done, stop) = (&memtable, &done, &stop);
            scope.spawn(move || {
                let mut prng = Prng::new(reader);
                while !stop.load(Ordering::Acquire) {
                    let writer = prng.below(WRITERS);
                    let published = done[writer as usize].load(Ordering::Acquire);
                    if published > 0 {
                        let i = prng.below(published);
                        let found = memtable.get(&key_of(writer, i), SEQ_MAX);
                        assert_eq!(found.expect("was published").value, i.to_le_bytes());
                    }
                    let mut cursor = memtable.cursor();
                    cursor.seek(&key_of(writer, prng.below(per_writer)), SEQ_MAX);
                    let mut last = Vec::new();
                    for _ in 0..50 {
                        if !cursor.valid() {
                            break;
                        }
                        assert!(last.as_slice() < cursor.key(), "a walk went backwards");
                        last = cursor.key().to_vec();
                        cursor.next();
                    }
                }
            });
        }
        for writer in writers {
            writer.join().unwrap();
        }
        stop.store(true, Ordering::Release);
    });
    memtable.list.check();
    let mut cursor = memtable.cursor();
    cursor.seek_to_first();
    let mut count = 0;
    let mut last = Vec::new();
    while cursor.valid() {
        assert!(count == 0 || last.as_slice() < cursor.key());
        last = cursor.key().to_vec();
        count += 1;
        cursor.next();
    }
    assert_eq!(count, WRITERS * per_writer);
    for writer in 0..WRITERS {
        for i in 0..per_writer {
            assert!(memtable.get(&key_of(writer, i), SEQ_MAX).is_some(), "{writer} {i}");
        }
    }
}
