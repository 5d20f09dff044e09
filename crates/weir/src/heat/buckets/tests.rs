//! Buckets against a search through all ranges, and against the keys that they were cut for.

use super::*;
use crate::base::prng::Prng;

const EXTREMES: [&[u8]; 6] =
    [b"", b"\0", b"\0\0", b"\xff", b"\xff\xff\xff\xff\xff\xff\xff\xff", b"m"];

fn key(rng: &mut Prng, alphabet: &[u8], common: &[u8]) -> Vec<u8> {
    let len = rng.below(14);
    let rest = (0..len).map(|_| alphabet[rng.below(alphabet.len() as u64) as usize]);
    common.iter().copied().chain(rest).collect()
}

/// Tables of random bounds, which overlap like those of several runs.
fn tables(rng: &mut Prng) -> Vec<(Vec<u8>, Vec<u8>, u64)> {
    let alphabets: [&[u8]; 3] = [&[0, 1, 0xfe, 0xff], b"0123456789", b"az"];
    let alphabet = alphabets[rng.below(3) as usize];
    let common: &[u8] =
        [b"".as_slice(), b"user/", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff"][rng.below(3) as usize];
    let count = rng.below(30);
    let table = |rng: &mut Prng| {
        let (a, b) = (key(rng, alphabet, common), key(rng, alphabet, common));
        (a.clone().min(b.clone()), a.max(b), rng.below(1000))
    };
    (0..count).map(|_| table(rng)).collect()
}

fn spans(tables: &[(Vec<u8>, Vec<u8>, u64)]) -> Vec<TableSpan<'_>> {
    tables
        .iter()
        .map(|(smallest, largest, entries)| TableSpan { smallest, largest, entries: *entries })
        .collect()
}

/// The bucket of a key by the ranges, one after the other.
fn linear(buckets: &Buckets, key: &[u8]) -> usize {
    let holds = |bucket: &usize| {
        let (from, to) = buckets.range(*bucket);
        from <= key && to.is_none_or(|to| key < to)
    };
    let holding: Vec<usize> = (0..buckets.len()).filter(holds).collect();
    assert_eq!(holding.len(), 1, "{key:?} is in the buckets {holding:?}");
    holding[0]
}

/// Goal: invariants (1) and (2), for both ways of cutting. Method: random tables; keys around every
/// bound, at the ends of the order and at random against a search through all ranges.
#[test]
fn buckets_cover_every_key_once() {
    let mut rng = Prng::new(11);
    for _ in 0..400 {
        let tables = tables(&mut rng);
        let count = 1 + rng.below(40) as u32;
        for how in [BucketRanges::Quantile(count), BucketRanges::Equal(count)] {
            let buckets = Buckets::cut(how, &spans(&tables));
            assert!(buckets.len() <= count as usize, "{} buckets of {count}", buckets.len());
            assert_eq!(buckets.range(0).0, b"");
            assert_eq!(buckets.range(buckets.len() - 1).1, None);
            let mut keys: Vec<Vec<u8>> = EXTREMES.iter().map(|key| key.to_vec()).collect();
            for bucket in 0..buckets.len() {
                let (from, to) = buckets.range(bucket);
                if let Some(to) = to {
                    assert!(from < to, "bucket {bucket} is empty");
                    assert_eq!(buckets.range(bucket + 1).0, to);
                    keys.push(to.to_vec());
                    keys.push([to, b"\0"].concat());
                    keys.push(to[..to.len() - 1].to_vec());
                }
            }
            keys.extend(tables.iter().flat_map(|(a, b, _)| [a.clone(), b.clone()]));
            keys.extend((0..20).map(|_| key(&mut rng, &[0, b'5', b'a', 0xff], b"")));
            for key in keys {
                assert_eq!(buckets.find(&key), linear(&buckets, &key), "{key:?} {buckets:?}");
            }
        }
    }
}

fn number(n: u64) -> Vec<u8> {
    format!("user{n:012}").into_bytes()
}

/// A run of tables of `entries` neighbouring numbers each.
fn run(numbers: std::ops::Range<u64>, entries: u64) -> Vec<(Vec<u8>, Vec<u8>, u64)> {
    let starts = numbers.clone().step_by(entries as usize);
    let table = |from| (number(from), number((from + entries).min(numbers.end) - 1), entries);
    starts.map(table).collect()
}

/// Goal: quantile buckets have as many keys each, also inside of tables, where equal ranges have
/// not.
#[test]
fn quantiles_follow_the_keys() {
    // 100,000 keys in a row, then one in a thousand numbers.
    let dense = run(0..100_000, 10_000);
    let sparse =
        (0..10).map(|i| (number(100_000 + i * 100_000), number(199_000 + i * 100_000), 100));
    let tables: Vec<_> = dense.into_iter().chain(sparse).collect();
    let keys = |buckets: &Buckets| {
        let mut keys = vec![0u64; buckets.len()];
        (0..100_000).for_each(|n| keys[buckets.find(&number(n))] += 1);
        (100..1100).for_each(|n| keys[buckets.find(&number(n * 1000))] += 1);
        keys
    };
    let quantile = Buckets::cut(BucketRanges::Quantile(50), &spans(&tables));
    let keys_of_each = keys(&quantile);
    assert_eq!(quantile.len(), 50);
    assert!(keys_of_each.iter().all(|n| (1400..2600).contains(n)), "{keys_of_each:?}");
    let equal = Buckets::cut(BucketRanges::Equal(50), &spans(&tables));
    assert_eq!(equal.len(), 50);
    let width = |bucket: usize| {
        let (from, to) = equal.range(bucket);
        let parse = |key: &[u8]| String::from_utf8_lossy(&key[4..]).parse::<u64>().unwrap();
        parse(to.unwrap()) - parse(from)
    };
    assert!((1..49).all(|bucket| width(bucket).abs_diff(1_099_000 / 50) <= 1));
    assert!(keys(&equal).iter().max() > Some(&20_000));
}

/// Goal: rules (a) and (b): growth and growth in one place have buckets cut anew, and what cannot
/// be divided does not, again and again.
#[test]
fn buckets_are_cut_anew_when_they_no_longer_fit() {
    let how = BucketRanges::Quantile(20);
    let none = Buckets::cut(how, &[]);
    assert!(none.len() == 1 && none.are_outgrown(1) && !none.are_outgrown(0));
    let tables = run(0..10_000, 1000);
    let cut = Buckets::cut(how, &spans(&tables));
    assert!(!cut.are_outgrown(19_999) && cut.are_outgrown(20_000));
    assert!(!cut.are_outgrown(5001) && cut.are_outgrown(5000));
    assert!(!cut.are_uneven(&spans(&tables)));
    // A queue: two and a half times a fifth of the keys come behind all others.
    let grown: Vec<_> = tables.iter().cloned().chain(run(10_000..15_000, 1000)).collect();
    assert!(cut.are_uneven(&spans(&grown)) && !cut.are_outgrown(15_000));
    assert!(!Buckets::cut(how, &spans(&grown)).are_uneven(&spans(&grown)));
    // All keys are one.
    let one = [(number(7), number(7), 1000u64)];
    let cut = Buckets::cut(how, &spans(&one));
    assert!(cut.len() <= 2 && !cut.are_uneven(&spans(&one)));
    // Nine of ten entries are of one key: uneven whatever is cut.
    let most = [(number(0), number(6), 100), (number(7), number(7), 900u64)];
    let cut = Buckets::cut(BucketRanges::Quantile(50), &spans(&most));
    assert!(cut.len() > 5 && !cut.are_uneven(&spans(&most)));
    assert!(!Buckets::cut(BucketRanges::Equal(20), &spans(&tables)).are_uneven(&spans(&grown)));
}
