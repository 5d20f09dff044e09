//! Tests of the shared chunks of keyspaces.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::base::ids::{KeyspaceId, Lsn, SegmentNumber, lsn, segment};
use crate::base::prng::Prng;
use crate::version::run::Version;

fn keyspace(id: KeyspaceId, lsn: Lsn) -> Arc<KeyspaceVersion> {
    Arc::new(KeyspaceVersion {
        id,
        name: format!("keyspace {id}").into(),
        options: Arc::default(),
        version: Arc::new(Version::default()),
        log_start: LogPosition { segment: segment_of(lsn), lsn, ..LogPosition::ORIGIN },
        flushed_seq: 0,
    })
}

/// The segment of a group.
fn segment_of(lsn: Lsn) -> SegmentNumber {
    segment(lsn.get() / 100)
}

/// Goal: after random insertions, replacements and removals the map equals a `BTreeMap`, and so
/// does its earliest log start; clones made before do not change.
#[test]
fn agrees_with_a_map() {
    for seed in 0..20 {
        let mut prng = Prng::new(seed);
        let mut keyspaces = Keyspaces::default();
        let mut model: BTreeMap<KeyspaceId, Lsn> = BTreeMap::new();
        let mut kept: Vec<(Keyspaces, BTreeMap<KeyspaceId, Lsn>)> = Vec::new();
        let ids = [70, 300, 5000][prng.below(3) as usize];
        for step in 0..400 {
            let id = KeyspaceId::new(prng.below(ids) as u32);
            if prng.chance(1, 3) {
                keyspaces.remove(id);
                model.remove(&id);
            } else {
                let lsn = lsn(prng.below(1000));
                keyspaces.insert(keyspace(id, lsn));
                model.insert(id, lsn);
            }
            if step % 50 == 0 {
                kept.push((keyspaces.clone(), model.clone()));
            }
            agree(&keyspaces, &model, &format!("seed {seed} step {step}"));
        }
        for (keyspaces, model) in &kept {
            agree(keyspaces, model, &format!("seed {seed}, kept"));
        }
    }
}

fn agree(keyspaces: &Keyspaces, model: &BTreeMap<KeyspaceId, Lsn>, when: &str) {
    let all = |k: &Arc<KeyspaceVersion>| (k.id, k.log_start.lsn);
    assert!(keyspaces.iter().map(all).eq(model.iter().map(|(k, v)| (*k, *v))), "{when}");
    assert_eq!(keyspaces.len(), model.len(), "{when}");
    let first = model.values().min().copied();
    assert_eq!(keyspaces.log_start().map(|start| start.lsn), first, "{when}");
    if let Some(segment) = first.map(segment_of) {
        let expected =
            model.iter().filter(|(_, lsn)| segment_of(**lsn) == segment).map(|(id, _)| *id);
        assert!(keyspaces.starting_in(segment).map(|k| k.id).eq(expected), "{when}");
    }
    for id in (0..80).map(KeyspaceId::new) {
        assert_eq!(keyspaces.contains(id), model.contains_key(&id), "{when}");
        assert_eq!(keyspaces.get(id).map(|k| k.log_start.lsn), model.get(&id).copied(), "{when}");
    }
}
