//! The chunked table list against a sorted vector.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::{key, meta};
use crate::base::ids::TableUid;
use crate::base::prng::Prng;
use crate::base::table_meta::TableMeta;
use crate::version::tables::{CHUNK_TABLES_MAX, TableList};

type Oracle = BTreeMap<String, Arc<TableMeta>>;

fn compare(list: &TableList<TableUid>, oracle: &Oracle, prng: &mut Prng) {
    let all: Vec<_> = oracle.values().collect();
    assert_eq!(list.len(), all.len());
    let uids: Vec<TableUid> = list.iter().map(|(_, uid)| *uid).collect();
    assert_eq!(uids, all.iter().map(|m| m.uid).collect::<Vec<_>>());
    assert_eq!(list.totals().bytes, all.iter().map(|m| m.bytes).sum::<u64>());
    assert_eq!(list.totals().seq_max, all.iter().map(|m| m.seq_max).max().unwrap_or(0));
    assert_eq!(list.metas().iter().map(|(m, ())| m.uid).collect::<Vec<_>>(), uids);
    for _ in 0..20 {
        let (a, b) = (key(prng.below(10_000)), key(prng.below(10_000)));
        let (a, b) = (a.as_bytes(), b.as_bytes());
        let lower = all.iter().position(|m| m.largest.as_slice() >= a).unwrap_or(all.len());
        assert_eq!(list.lower_bound(a), lower);
        let found = all.iter().find(|m| m.smallest.as_slice() <= a && a <= m.largest.as_slice());
        assert_eq!(list.find(a).map(|(m, _)| m.uid), found.map(|m| m.uid));
        let (low, high) = (a.min(b), a.max(b));
        for lower in [Bound::Unbounded, Bound::Included(low), Bound::Excluded(low)] {
            for upper in [Bound::Unbounded, Bound::Included(high), Bound::Excluded(high)] {
                let expected: Vec<TableUid> = all
                    .iter()
                    .filter(|m| match lower {
                        Bound::Unbounded => true,
                        Bound::Included(low) => m.largest.as_slice() >= low,
                        Bound::Excluded(low) => m.largest.as_slice() > low,
                    })
                    .filter(|m| match upper {
                        Bound::Unbounded => true,
                        Bound::Included(high) => m.smallest.as_slice() <= high,
                        Bound::Excluded(high) => m.smallest.as_slice() < high,
                    })
                    .map(|m| m.uid)
                    .collect();
                let got: Vec<TableUid> =
                    list.range(list.overlapping(lower, upper)).map(|(_, uid)| *uid).collect();
                assert_eq!(got, expected, "{lower:?} {upper:?}");
            }
        }
    }
}

/// Goal: searching and editing agree with a sorted map. Method: random edits that remove and add
/// many tables at once, with long common prefixes so that the 8-byte fences tie.
#[test]
fn random_edits_agree_with_a_sorted_map() {
    for seed in 0..30 {
        let mut prng = Prng::new(seed);
        let mut list = TableList::<TableUid>::default();
        let mut oracle = Oracle::new();
        let mut uid = 0;
        for _ in 0..40 {
            let mut removed = Vec::new();
            let share = 1 + prng.below(10);
            for (index, (meta, _)) in list.iter().enumerate() {
                if prng.chance(1, share * 2) {
                    removed.push(index);
                    oracle.remove(std::str::from_utf8(&meta.smallest).unwrap());
                }
            }
            let mut added = BTreeMap::new();
            for _ in 0..prng.below(200) {
                let low = prng.below(10_000);
                let high = (low + prng.below(30)).min(9_999);
                let clash = |m: &Arc<TableMeta>| {
                    m.smallest.as_slice() <= key(high).as_bytes()
                        && m.largest.as_slice() >= key(low).as_bytes()
                };
                if !oracle.values().chain(added.values()).any(clash) {
                    uid += 1;
                    added.insert(key(low), meta(uid, &key(low), &key(high), (uid, uid)));
                }
            }
            let tables = added.values().map(|m| (Arc::clone(m), m.uid)).collect();
            list = list.edit(&removed, tables).unwrap();
            oracle.extend(added);
            compare(&list, &oracle, &mut prng);
        }
    }
}

#[test]
fn keys_with_equal_prefixes_are_told_apart() {
    let name = |i: u64| format!("common-prefix-{i:05}");
    let tables: Vec<_> =
        (0..1000).map(|i| (meta(i + 1, &name(i * 10), &name(i * 10 + 5), (1, 1)), i)).collect();
    let list = TableList::new(tables).unwrap();
    for i in 0..1000 {
        assert_eq!(list.find(name(i * 10 + 3).as_bytes()).map(|(_, i)| *i), Some(i));
        assert!(list.find(name(i * 10 + 7).as_bytes()).is_none());
        assert_eq!(list.lower_bound(name(i * 10 + 7).as_bytes()), i as usize + 1);
    }
}

#[test]
fn overlaps_are_refused() {
    let table = |uid, low, high| (meta(uid, low, high, (1, 1)), ());
    assert!(TableList::new(vec![table(1, "a", "c"), table(2, "c", "d")]).is_err());
    let list = TableList::new(vec![table(1, "a", "c"), table(2, "e", "g")]).unwrap();
    assert!(list.edit(&[], vec![table(3, "c", "d")]).is_err());
    assert!(list.edit(&[], vec![table(3, "d", "e")]).is_err());
    assert!(list.edit(&[], vec![table(3, "d", "d")]).is_ok());
    assert!(list.edit(&[1], vec![table(3, "d", "z")]).is_ok());
}

/// Goal: an edit costs what it changes. Method: count the chunks that two lists do not share.
#[test]
fn an_edit_copies_the_chunks_that_it_touches() {
    let name = |i: u64| format!("{i:010}");
    let count = 100_000;
    let tables: Vec<_> =
        (0..count).map(|i| (meta(i + 1, &name(i * 10), &name(i * 10 + 5), (1, 1)), ())).collect();
    let list = TableList::new(tables).unwrap();
    let added = vec![
        (meta(count + 1, &name(500_000), &name(500_002), (1, 1)), ()),
        (meta(count + 2, &name(500_003), &name(500_005), (1, 1)), ()),
    ];
    let edited = list.edit(&[50_000], added).unwrap();
    assert_eq!(edited.len(), count as usize + 1);
    let (shared, chunks) = edited.shared_chunks(&list);
    assert!(chunks - shared <= 3, "{shared} of {chunks} chunks are shared");
    assert!(chunks <= 2 * (count as usize).div_ceil(CHUNK_TABLES_MAX));
}
