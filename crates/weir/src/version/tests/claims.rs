//! Claims and masks: what an edit may do to them, and what it does without being asked.

use std::sync::Arc;

use super::check::{apply, flushed, refused_of, tree};
use super::set::fresh;
use super::{described, meta};
use crate::base::ids::{KeyspaceId, epoch, level, uid};
use crate::base::interval::Interval;
use crate::base::table_meta::Content;
use crate::options::Options;
use crate::version::edit::{AddedTable, Claim, KeyspaceEdit};
use crate::version::keyspaces::KeyspaceVersion;
use crate::version::set::VersionSet;
use crate::version::shape::{RunId, RunKind};

fn keyspace(set: &VersionSet) -> Arc<KeyspaceVersion> {
    Arc::clone(set.current().keyspaces.get(KeyspaceId::new(0)).unwrap())
}

fn sentinel() -> RunId {
    RunId::filling(level(0), epoch(31))
}

/// Masks `[e, n)` of a table, of which it hides two entries.
fn mask(keyspace: &KeyspaceVersion, part: &mut KeyspaceEdit, run: RunId, number: u64) {
    let hidden = Content { entries: 2, ..Content::default() };
    let interval = Interval::new(b"e", Some(b"n"));
    let masked = described(keyspace, uid(number)).masked(&interval, hidden).unwrap();
    part.remove_table_from(run.level, run.part, uid(number));
    part.added.push(AddedTable { run, meta: Arc::new(masked) });
}

/// The sentinel of epoch 31 over `[e, n)`, with one table `[e, g]`.
fn build(keyspace: &KeyspaceVersion, part: &mut KeyspaceEdit) {
    for (run, table) in [
        (RunId::filling(level(0), epoch(30)), 3),
        (RunId::filling(level(0), epoch(20)), 2),
        (RunId::filling(level(1), epoch(10)), 10),
        (RunId::filling(level(1), epoch(10)), 11),
    ] {
        mask(keyspace, part, run, table);
    }
    let mut table = (*meta(70, "e", "g", (1, 300))).clone();
    (table.entries, table.deletes) = (8, 0);
    part.add_table(level(0), epoch(31), Arc::new(table));
    let interval = Interval::new(b"e", Some(b"n"));
    part.requests.taken = Some((sentinel(), interval.clone()));
    part.claims.push(Claim { run: sentinel(), interval: Some(interval) });
}

/// The tree of `check` with this sentinel.
fn built() -> VersionSet {
    let set = tree();
    let before = keyspace(&set);
    apply(&set, |part| build(&before, part)).unwrap();
    set
}

fn claims(set: &VersionSet, key: &[u8]) -> bool {
    let keyspace = keyspace(set);
    let run = keyspace.version.run(sentinel());
    run.is_some_and(|run| run.claims.as_ref().is_some_and(|claims| claims.contain(key)))
}

/// Goal: a lookup in a claim ends at the sentinel, and what lies below is hidden from all readers.
#[test]
fn a_claim_ends_a_lookup() {
    let set = built();
    let version = &keyspace(&set).version;
    assert_eq!(version.run(sentinel()).unwrap().kind, RunKind::Sentinel);
    assert_eq!([b"e", b"m"].map(|key| version.runs_for(key).len()), [1, 1]);
    assert_eq!([b"d", b"n"].map(|key| version.runs_for(key).len()), [4, 4]);
    for (run, passed_over) in version.runs_for_scans().skip(1) {
        assert!(run.find(b"f").is_none(), "{run:?}");
        assert!(passed_over.unwrap().contain(b"m"), "{run:?}");
        assert_eq!(run.tables.totals().masked, run.tables.len());
    }
    assert_eq!(
        version.run(RunId::filling(level(0), epoch(20))).unwrap().tables.totals().entries,
        8
    );
}

/// Goal (H24): no claim over what is not hidden below it, no mask without one, none of a flush, and
/// no more comes up than is hidden.
#[test]
fn claims_that_hide_data_are_refused() {
    let refused = |change: &dyn Fn(&mut KeyspaceEdit), why: &str| {
        let set = tree();
        let before = keyspace(&set);
        let changed = |part: &mut KeyspaceEdit| {
            build(&before, part);
            change(part);
        };
        refused_of(&set, changed, why);
    };
    refused(
        &|part| {
            part.added.retain(|added| added.meta.uid != uid(11));
            part.removed.retain(|removed| removed.uid != uid(11));
        },
        "without a mask",
    );
    refused(&|part| part.claims.clear(), "newest first");
    refused(&|part| part.claims[0].run.epoch = epoch(30), "what flushes gave it");
    refused(
        &|part| {
            let table = &mut part.added.last_mut().unwrap().meta;
            Arc::make_mut(table).entries = 9;
        },
        "only 8 are hidden",
    );
}

/// Goal: a merge of flushes past a sentinel that it does not overlap is no matter of that: what the
/// sentinel took of them may be newer than what is left. Method: the sentinel takes [x, z] of a
/// run, of which what is left is merged with a newer one in level 0, as `size_tiered` does.
#[test]
fn a_sentinel_is_no_measure_of_flushes() {
    let (set, _) = fresh(1 << 20);
    apply(&set, |part| {
        part.create = Some("default".into());
        part.options = Some(Arc::new(Options::default()));
        part.add_table(level(0), epoch(30), meta(3, "a", "c", (200, 250)));
        part.add_table(level(0), epoch(30), meta(4, "x", "z", (251, 300)));
        part.add_table(level(0), epoch(20), meta(2, "a", "c", (100, 199)));
        part.flushed = Some(flushed(5, 300));
    })
    .unwrap();
    apply(&set, |part| {
        part.remove_table(level(0), uid(4));
        part.add_table(level(0), epoch(31), meta(70, "x", "z", (251, 300)));
        let interval = Interval::closed(b"x", b"z");
        part.requests.taken = Some((sentinel(), interval.clone()));
        part.claims.push(Claim { run: sentinel(), interval: Some(interval) });
    })
    .unwrap();
    apply(&set, |part| {
        part.add_table(level(0), epoch(40), meta(50, "a", "c", (301, 310)));
        part.flushed = Some(flushed(9, 310));
    })
    .unwrap();
    let merge = |seq_min| {
        move |part: &mut KeyspaceEdit| {
            part.remove_table(level(0), uid(50));
            part.remove_table(level(0), uid(3));
            part.add_table(level(0), epoch(40), meta(60, "a", "c", (seq_min, 310)));
        }
    };
    refused_of(&set, merge(199), "newest first");
    apply(&set, merge(200)).unwrap();
}

/// Goal (H24): a table keeps its masks when it moves, and does not get any on its way.
#[test]
fn masks_move_with_their_table() {
    let set = built();
    let (run, below) = (RunId::filling(level(1), epoch(10)), epoch(10));
    let bare = |part: &mut KeyspaceEdit| {
        part.remove_table(level(1), uid(11));
        part.add_table(level(2), below, meta(11, "m", "p", (1, 99)));
    };
    refused_of(&set, bare, "in use");
    let masked = described(&keyspace(&set), uid(11));
    apply(&set, |part| {
        part.remove_table(level(1), uid(11));
        part.add_table(level(2), below, Arc::clone(&masked));
    })
    .unwrap();
    let version = &keyspace(&set).version;
    let moved = version.run(RunId { level: level(2), ..run }).unwrap();
    assert!(moved.find(b"m").is_none() && moved.find(b"o").is_some());
    let set = tree();
    let hidden = Content { entries: 2, ..Content::default() };
    let interval = Interval::new(b"e", Some(b"n"));
    let found = described(&keyspace(&set), uid(11)).masked(&interval, hidden).unwrap();
    let masking = |part: &mut KeyspaceEdit| {
        part.remove_table(level(1), uid(11));
        part.add_table(level(2), below, Arc::new(found));
    };
    refused_of(&set, masking, "masked while it moves");
}

/// Goal (H24): what goes down past a sentinel ends its claim over its hull, also in a gap of
/// its tables; a flush does not.
#[test]
fn what_passes_a_claim_clips_it() {
    let set = built();
    apply(&set, |part| {
        part.add_table(level(0), epoch(33), meta(50, "k", "l", (301, 310)));
        part.flushed = Some(flushed(9, 310));
    })
    .unwrap();
    assert!(claims(&set, b"k"));
    apply(&set, |part| {
        part.remove_table(level(0), uid(50));
        part.add_table(level(1), epoch(10), meta(50, "k", "l", (301, 310)));
    })
    .unwrap();
    assert_eq!([b"j", b"k", b"l", b"m"].map(|key| claims(&set, key)), [true, false, false, true]);
    // Its own table goes down: with it goes what it claims.
    let (masked, moved) = (described(&keyspace(&set), uid(10)), meta(71, "a", "g", (1, 300)));
    apply(&set, |part| {
        part.remove_table(level(0), uid(70));
        part.remove_table(level(0), uid(3));
        part.remove_table(level(0), uid(2));
        part.remove_table(level(1), uid(10));
        part.remove_table(level(1), uid(50));
        part.remove_table(level(1), uid(11));
        part.add_table(level(1), epoch(10), moved);
        part.add_table(level(1), epoch(10), meta(72, "k", "z", (1, 310)));
    })
    .unwrap();
    assert!(masked.masks.len() == 1 && !claims(&set, b"e") && !claims(&set, b"m"));
    assert!(keyspace(&set).version.run(sentinel()).is_none());
}
