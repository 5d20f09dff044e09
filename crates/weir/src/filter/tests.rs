//! Tests of the filter: never a false negative, and no more false positives than theory allows.

use super::*;
use crate::base::checksum::hash_key;
use crate::base::prng::Prng;

fn hashes(seed: u64, count: usize) -> Vec<u64> {
    let mut prng = Prng::new(seed);
    (0..count).map(|_| prng.next_u64()).collect()
}

/// Share of absent keys that pass a blocked filter: keys per block are Poisson, and in a block with
/// n keys a bit is set with probability 1 - (1 - 1/512)^(k n).
fn theory(bits_per_key: f64, probes: u8) -> f64 {
    let mean = 512.0 / bits_per_key;
    let mut poisson = (-mean).exp();
    let mut sum = 0.0;
    for n in 0..(mean as u32 * 5 + 100) {
        if n > 0 {
            poisson *= mean / f64::from(n);
        }
        let set = 1.0 - (511.0f64 / 512.0).powi(i32::from(probes) * n as i32);
        sum += poisson * set.powi(i32::from(probes));
    }
    sum
}

/// The worked example of docs/format/filter.md.
#[test]
fn the_documented_example_is_true() {
    let filter = build(&[0x0123_4567_89ab_cdef], 10.0);
    let mut expected = vec![0u8; 66];
    for (at, byte) in [(6, 1), (16, 6), (28, 8), (29, 0x20), (34, 8), (54, 0x10), (64, 1), (65, 7)]
    {
        expected[at] = byte;
    }
    assert_eq!(*filter, *expected);
    assert!(may_contain(&filter, 0x0123_4567_89ab_cdef));
    assert!(!may_contain(&filter, 0x0123_4567_89ab_cdee));
}

#[test]
fn nothing_that_was_put_in_is_excluded() {
    for (count, bits) in [(1, 1.0), (2, 30.0), (51, 10.0), (1000, 1.7), (5000, 10.5), (999, 200.0)]
    {
        let hashes = hashes(count as u64, count);
        let filter = build(&hashes, bits);
        assert!(hashes.iter().all(|&h| may_contain(&filter, h)), "{count} keys, {bits} bits");
    }
}

#[test]
fn the_order_of_keys_does_not_matter() {
    let mut hashes = hashes(3, 500);
    let filter = build(&hashes, 10.0);
    hashes.reverse();
    assert_eq!(*filter, *build(&hashes, 10.0));
}

/// Goal: the probability of a false positive is what the header says. Method: measured against the
/// formula, with real key hashes; the tolerance of 10 % and four standard deviations covers the
/// dependence between probes.
#[test]
fn false_positives_are_as_few_as_theory_says() {
    const KEYS: u64 = 50_000;
    const QUERIES: u64 = 300_000;
    let hash = |i: u64| hash_key(format!("user{i:012}").as_bytes(), 42);
    let keys: Vec<u64> = (0..KEYS).map(hash).collect();
    let absent: Vec<u64> = (KEYS..KEYS + QUERIES).map(hash).collect();
    for bits in [1.0f32, 2.0, 4.0, 5.5, 6.0, 8.0, 10.0, 12.0, 16.0] {
        let filter = build(&keys, bits);
        let asked = f64::from(bits) * KEYS as f64 / 8.0;
        assert!((filter.len() as f64 - asked).abs() <= 66.0, "{bits} bits: {}", filter.len());
        let passed = absent.iter().filter(|&&h| may_contain(&filter, h)).count() as f64;
        let expected = theory(f64::from(bits), probes_for(bits)) * QUERIES as f64;
        let tolerance = 0.1 * expected + 4.0 * expected.sqrt();
        assert!((passed - expected).abs() < tolerance, "{bits} bits: {passed} for {expected}");
    }
}

/// The table of probes is the minimum of the formula.
#[test]
fn the_number_of_probes_is_the_best_one() {
    for tenths in 10..300 {
        let bits = f64::from(tenths) / 10.0;
        let chosen = probes_for(bits as f32);
        let best = (1..=20).map(|k| theory(bits, k)).fold(f64::MAX, f64::min);
        assert!(theory(bits, chosen) < best * 1.01, "{bits} bits, {chosen} probes");
    }
}

#[test]
fn too_few_bits_or_keys_give_no_filter() {
    for bits in [0.0, -1.0, 0.99, f32::NAN, f32::INFINITY] {
        assert!(build(&[1, 2], bits).is_empty(), "{bits}");
    }
    assert!(build(&[], 10.0).is_empty());
    assert!(may_contain(&[], 7));
}

/// Goal: arbitrary bytes never exclude a key and never panic. Method: all lengths up to three
/// blocks, zeros, with good and bad trailers; only a well-formed one may exclude.
#[test]
fn foreign_bytes_exclude_nothing() {
    for len in 0..200usize {
        for (form, probes) in [(0, 7), (1, 0), (1, 31), (2, 7), (255, 255), (1, 7)] {
            let mut bytes = vec![0u8; len];
            bytes.extend_from_slice(&[form, probes]);
            let whole = len > 0 && len % BLOCK_BYTES == 0 && form == 1 && probes == 7;
            assert_eq!(may_contain(&bytes, 0x1234_5678_9abc_def0), !whole, "{len} {form} {probes}");
        }
    }
    assert!(may_contain(&[1], 3));
}
