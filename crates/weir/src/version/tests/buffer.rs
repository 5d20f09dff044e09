//! What edits do to buffer lists: appends, feet, holes, the cap, freezing. Reads through lists are
//! compared with reads of the tree by campaign M.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{HASH_SEED, context, described, dump_list, meta, set};
use crate::base::error::{Error, ErrorKind};
use crate::base::ids::{KeyspaceId, Level, epoch, level, lsn, segment, uid};
use crate::base::interval::Interval;
use crate::base::table_meta::{Content, TableMeta};
use crate::log::LogPosition;
use crate::log::test_storage::MemStorage;
use crate::options::{CompactionBuffer, CompactionPolicy, Options, PartsOptions, WarmUp};
use crate::version::buffer_effects::effects;
use crate::version::check::check;
use crate::version::edit::{
    AddedTable, Claim, Flushed, KeyspaceEdit, ListChange, ListRequests, Rotation, VersionEdit,
};
use crate::version::set::{Installed, VersionSet};
use crate::version::shape::{PartKind, RunId};

pub(super) fn apply(set: &VersionSet, change: impl FnOnce(&mut KeyspaceEdit)) -> Installed {
    let mut edit = VersionEdit::default();
    change(edit.keyspace(KeyspaceId::new(0)));
    set.apply(edit).unwrap()
}

pub(super) fn options(buffer: CompactionBuffer, ratio: u32) -> Options {
    let policy = CompactionPolicy::Gear(PartsOptions::default().level_ratio(ratio));
    Options::default().compaction(policy).compaction_buffer(buffer)
}

/// A keyspace whose lists are on.
pub(super) fn fresh(ratio: u32) -> VersionSet {
    let (set, _) = set::fresh(1 << 20);
    apply(&set, |part| {
        part.create = Some("default".into());
        part.options = Some(Arc::new(options(CompactionBuffer::trimmed(), ratio)));
        let log_start = LogPosition { segment: segment(1), lsn: lsn(5), ..LogPosition::ORIGIN };
        part.flushed = Some(Flushed { log_start, flushed_seq: 900, durable_lsn: lsn(4) });
    });
    set
}

/// The lists of a level: filling part, draining part.
pub(super) fn lists(set: &VersionSet, at: Level) -> String {
    let root = set.current();
    let version = &root.keyspaces.get(KeyspaceId::new(0)).unwrap().version;
    let of = |(id, _, list): (crate::version::shape::RunId, _, &_)| {
        (id.level == at).then(|| dump_list(list))
    };
    version.lists().filter_map(of).collect::<Vec<_>>().join(" // ")
}

/// Puts table `number` into level 0, as run `number`.
pub(super) fn flush(set: &VersionSet, number: u64, keys: (&str, &str)) {
    let table = meta(number, keys.0, keys.1, (number * 10, number * 10 + 9));
    apply(set, |part| part.add_table(level(0), epoch(number), table));
}

/// Merges table `number` of level 0, and tables `with` of the run of epoch 1 in level `into`, into
/// `output` there.
pub(super) fn drain(
    set: &VersionSet,
    number: u64,
    with: &[u64],
    into: Level,
    output: (u64, &str, &str),
) {
    apply(set, |part| {
        part.remove_table(level(0), uid(number));
        with.iter().for_each(|&with| part.remove_table(into, uid(with)));
        let seqs = (1, number * 10 + 9);
        part.add_table(into, epoch(1), meta(output.0, output.1, output.2, seqs));
        part.requests.shadowed = 1;
    });
}

/// Goal: LSbM Alg. 1, and H3: what was merged in is kept, in runs of disjoint tables, above a foot
/// where the run held something before.
#[test]
fn merged_tables_are_appended() {
    let set = fresh(10);
    flush(&set, 10, ("a", "f"));
    drain(&set, 10, &[], level(2), (50, "a", "f"));
    assert_eq!(lists(&set, level(2)), "1/10 | 10 a-f");
    flush(&set, 11, ("g", "k"));
    flush(&set, 12, ("b", "c"));
    drain(&set, 11, &[], level(2), (51, "g", "k"));
    assert_eq!(lists(&set, level(2)), "2/20 | 10 a-f 11 g-k");
    drain(&set, 12, &[50], level(2), (52, "a", "f"));
    assert_eq!(lists(&set, level(2)), "3/30 | 12 b-c | 10 a-f 11 g-k");
    // A run that was there before its list.
    apply(&set, |part| part.add_table(level(3), epoch(1), meta(7, "c", "x", (1, 2))));
    flush(&set, 13, ("d", "e"));
    let set_into_3 = |part: &mut KeyspaceEdit| {
        part.remove_table(level(0), uid(13));
        part.remove_table(level(3), uid(7));
        part.add_table(level(3), epoch(1), meta(53, "c", "x", (1, 139)));
    };
    let refused = {
        let mut edit = VersionEdit::default();
        set_into_3(edit.keyspace(KeyspaceId::new(0)));
        set.apply(edit).unwrap_err().error
    };
    assert!(refused.to_string().contains("would pass"), "{refused}");
    flush(&set, 14, ("y", "z"));
    drain(&set, 14, &[], level(3), (54, "y", "z"));
    assert_eq!(lists(&set, level(3)), "1/20 | 14 y-z | ~c-x");
}

/// Goal: H1, H13. A trimmed table leaves a hole; one that the tree has too keeps its file.
#[test]
fn trimming_leaves_holes() {
    let set = fresh(10);
    flush(&set, 10, ("a", "f"));
    // A move: the table is in the tree and in the list.
    apply(&set, |part| {
        part.remove_table(level(0), uid(10));
        part.add_table(level(2), epoch(1), meta(10, "a", "f", (100, 109)));
    });
    flush(&set, 11, ("b", "c"));
    drain(&set, 11, &[10], level(2), (50, "a", "f"));
    assert_eq!(lists(&set, level(2)), "1/20 | 11 b-c | 10 a-f");
    let trim = |number: u64| {
        let trim = BTreeSet::from([uid(number), uid(99)]);
        let requests = ListRequests { trim, ..ListRequests::default() };
        let installed = apply(&set, |part| part.requests = requests);
        installed.removed.iter().map(|table| table.meta().uid.get()).collect::<Vec<_>>()
    };
    assert_eq!(trim(10), [10]);
    assert_eq!(lists(&set, level(2)), "1/20 | 11 b-c | ~a-f");
    assert_eq!(trim(11), [11]);
    assert_eq!(lists(&set, level(2)), "1/20 | ~a-f");
    flush(&set, 12, ("g", "h"));
    apply(&set, |part| {
        part.remove_table(level(0), uid(12));
        part.add_table(level(2), epoch(1), meta(12, "g", "h", (120, 129)));
    });
    assert_eq!(lists(&set, level(2)), "1/30 | 12 g-h | ~a-f");
    assert_eq!(trim(12), [] as [u64; 0]);
}

/// Goal: the rule of passing (H7, H10, H54), in every list between the old and the new place.
#[test]
fn what_passes_leaves_holes() {
    let set = fresh(10);
    flush(&set, 10, ("a", "f"));
    drain(&set, 10, &[], level(2), (50, "a", "f"));
    flush(&set, 11, ("g", "k"));
    drain(&set, 11, &[], level(2), (51, "g", "k"));
    // The round goes down: what has left is hidden, and leaves when all of it has.
    apply(&set, |part| part.rotate(level(2), Rotation { bytes: 2101, entries: 20 }));
    apply(&set, |part| {
        part.remove_table_from(level(2), PartKind::Draining, uid(50));
        part.add_table(level(4), epoch(1), meta(52, "a", "f", (1, 109)));
    });
    assert_eq!(lists(&set, level(2)), "2/20 | 11 g-k ~-f");
    assert_eq!(lists(&set, level(4)), "0/10 | 50 a-f");
    // From level 0 past it: a range compaction.
    flush(&set, 12, ("h", "m"));
    apply(&set, |part| {
        part.remove_table(level(0), uid(12));
        part.remove_table_from(level(2), PartKind::Draining, uid(51));
        part.remove_table(level(4), uid(52));
        part.add_table(level(6), epoch(1), meta(53, "a", "m", (1, 129)));
    });
    assert_eq!((lists(&set, level(2)), lists(&set, level(4))), ("".into(), "".into()));
    assert_eq!(lists(&set, level(6)), "");
    // A rewrite for deletes hides what the list has of it (H9, H10).
    flush(&set, 14, ("n", "p"));
    drain(&set, 14, &[], level(6), (54, "n", "p"));
    assert_eq!(lists(&set, level(6)), "1/10 | 14 n-p | ~a-m");
    apply(&set, |part| {
        part.remove_table(level(6), uid(54));
        part.add_table(level(6), epoch(1), meta(55, "n", "o", (1, 149)));
    });
    assert_eq!(lists(&set, level(6)), "1/10 | ~a-m ~n-p");
}

/// Goal: at most `level_ratio` buffered runs, and fewer when the ratio gets smaller; the oldest
/// become holes.
#[test]
fn buffered_runs_are_capped() {
    let set = fresh(3);
    let mut output = 50;
    for number in 10..15 {
        flush(&set, number, ("a", "f"));
        let with = [output];
        output += 1;
        let with = if number == 10 { &[][..] } else { &with };
        drain(&set, number, with, level(2), (output, "a", "f"));
    }
    assert_eq!(lists(&set, level(2)), "3/30 | 14 a-f | 13 a-f | 12 a-f | ~a-f");
    let fewer = options(CompactionBuffer::trimmed(), 2);
    apply(&set, |part| part.options = Some(Arc::new(fewer)));
    assert_eq!(lists(&set, level(2)), "3/30 | 14 a-f | 13 a-f | ~a-f");
    // A policy that shares the lists keeps them; one that has none drops them.
    let cascade = options(CompactionBuffer::Cascade, 2);
    apply(&set, |part| part.options = Some(Arc::new(cascade)));
    assert_eq!(lists(&set, level(2)), "3/30 | 14 a-f | 13 a-f | ~a-f");
    let installed =
        apply(&set, |part| part.options = Some(Arc::new(options(CompactionBuffer::Off, 2))));
    assert_eq!((lists(&set, level(2)), installed.removed.len()), (String::new(), 2));
}

/// Goal: freeze is drop (H8): of what is overwritten as it comes nothing is kept, until less is.
#[test]
fn overwritten_lists_are_dropped() {
    let set = fresh(10);
    let mut output = 50;
    let mut merge = |number: u64, shadowed: u64| {
        flush(&set, number, ("a", "f"));
        output += 1;
        apply(&set, |part| {
            part.remove_table(level(0), uid(number));
            if output > 51 {
                part.remove_table(level(6), uid(output - 1));
            }
            let table = meta(output, "a", "f", (1, number * 10 + 9));
            part.add_table(level(6), epoch(1), table);
            part.requests.shadowed = shadowed;
        });
        lists(&set, level(6))
    };
    assert_eq!(merge(10, 0), "0/10 | 10 a-f");
    assert_eq!(merge(11, 5), "5/20 | 11 a-f | 10 a-f");
    assert_eq!(merge(12, 9), "7/15 quiet");
    assert_eq!(merge(13, 0), "7/25 quiet");
    assert_eq!(merge(14, 0), "3/17 quiet");

    // Under half of what freezes it, it begins again, with a foot.
    assert_eq!(merge(15, 0), "3/27 | 15 a-f | ~a-f");
}

/// Goal: lists dropped on request give their tables back, and changes that do not fit are refused
/// and change nothing.
#[test]
fn lists_are_dropped_and_nonsense_is_refused() {
    let set = fresh(10);
    flush(&set, 10, ("a", "f"));
    drain(&set, 10, &[], level(2), (50, "a", "f"));
    let requests = ListRequests { drop: true, ..ListRequests::default() };
    let installed = apply(&set, |part| part.requests = requests);
    assert_eq!((installed.removed.len(), lists(&set, level(2))), (1, String::new()));
    // Only `VersionSet::apply` makes list changes: those of a caller are replaced.
    let run = crate::version::shape::RunId::filling(level(2), epoch(1));
    apply(&set, |part| part.lists = vec![ListChange::Trim { run, uid: uid(10) }]);
    // A table that no list has is none to append.
    let mut edit = VersionEdit::default();
    edit.keyspace(KeyspaceId::new(0)).remove_table(level(2), uid(10));
    assert_eq!(set.apply(edit).unwrap_err().error.kind(), ErrorKind::Conflict);
}

/// Goal: an edit may drop the lists and leave nothing of a run that has one: a merge in stretches
/// does with its first. Method: the only table of the run goes down.
#[test]
fn a_list_is_dropped_with_its_run() {
    let set = fresh(10);
    flush(&set, 10, ("a", "f"));
    drain(&set, 10, &[], level(2), (50, "a", "f"));
    assert_eq!(lists(&set, level(2)), "1/10 | 10 a-f");
    let installed = apply(&set, |part| {
        part.remove_table(level(2), uid(50));
        part.add_table(level(3), epoch(1), meta(60, "a", "f", (1, 109)));
        part.requests.drop = true;
    });
    let mut removed: Vec<u64> =
        installed.removed.iter().map(|table| table.meta().uid.get()).collect();
    removed.sort_unstable();
    assert_eq!(removed, [10, 50]);
    assert_eq!(lists(&set, level(2)), "");
}

/// What is thought of an edit whose changes of lists were `mended`, without making it.
fn judge(
    set: &VersionSet,
    change: impl FnOnce(&mut KeyspaceEdit),
    mend: impl FnOnce(&mut Vec<ListChange>),
) -> Result<(), Error> {
    let root = set.current();
    let places = root.places();
    let mut edit = VersionEdit::default();
    let id = KeyspaceId::new(0);
    change(edit.keyspace(id));
    let asked = edit.keyspace(id).clone();
    let mut lists = effects(root.keyspaces.get(id).unwrap(), &asked, &places);
    mend(&mut lists);
    edit.keyspace(id).lists = lists;
    let context = context(Arc::new(MemStorage::default()), 1 << 20);
    let open = |meta: &Arc<TableMeta>| context.open(meta, HASH_SEED);
    let (next, changes) = root.apply(&edit, &places, &open)?;
    check(&root, &next, &edit, &places, &changes)
}

/// As it is it passes; with other changes of lists it is refused, and this is why.
fn check_judge(
    set: &VersionSet,
    change: impl Fn(&mut KeyspaceEdit),
    mend: impl FnOnce(&mut Vec<ListChange>),
    why: &str,
) {
    judge(set, &change, |_| {}).unwrap();
    let error = judge(set, &change, mend).expect_err(why);
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains(why), "{error} does not say {why:?}");
}

fn without_appends(lists: &mut Vec<ListChange>) {
    lists.retain(|change| !matches!(change, ListChange::Append { .. }));
}

fn without_holes(lists: &mut Vec<ListChange>) {
    lists.retain(|change| !matches!(change, ListChange::Hole { .. }));
}

/// Goal: rule 7 refuses what would answer wrongly, also where a list has a foot. Method: sound
/// edits, without what they do to lists, or in another order.
#[test]
fn lists_that_would_answer_wrongly_are_refused() {
    let set = fresh(10);
    // Level 3 has table 7, and a list above a foot.
    apply(&set, |part| part.add_table(level(3), epoch(1), meta(7, "c", "x", (1, 2))));
    flush(&set, 10, ("y", "z"));
    let into_3 = |number: u64, with: &'static [u64], output: (u64, &'static str, &'static str)| {
        move |part: &mut KeyspaceEdit| {
            part.remove_table(level(0), uid(number));
            with.iter().for_each(|&with| part.remove_table(level(3), uid(with)));
            let table = meta(output.0, output.1, output.2, (1, number * 10 + 9));
            part.add_table(level(3), epoch(1), table);
            part.requests.shadowed = 1;
        }
    };
    // A list that begins without a foot has no table over that which the run keeps.
    check_judge(
        &set,
        into_3(10, &[], (50, "y", "z")),
        without_holes,
        "without a hole over table 7",
    );
    apply(&set, into_3(10, &[], (50, "y", "z")));
    flush(&set, 11, ("d", "e"));
    // The foot is no hole in the place of what is not appended, if an older table is above it.
    apply(&set, into_3(11, &[7], (51, "c", "x")));
    assert_eq!(lists(&set, level(3)), "2/30 | 11 d-e 10 y-z | ~c-x");
    flush(&set, 12, ("d", "e"));
    check_judge(&set, into_3(12, &[51], (52, "c", "x")), without_appends, "would pass");
    // The same where nothing is above it: the foot answers, that is the base.
    flush(&set, 13, ("f", "g"));
    judge(&set, into_3(13, &[51], (52, "c", "x")), without_appends).unwrap();
    // A rewrite hides what the list has of it.
    let rewrite = |part: &mut KeyspaceEdit| {
        part.remove_table(level(3), uid(51));
        part.add_table(level(3), epoch(1), meta(52, "c", "x", (1, 139)));
    };
    check_judge(&set, rewrite, without_holes, "would pass");
}

/// Goal: a sentinel that sinks comes into the list only where its blocks are not handed over to the
/// outputs; else what the list has of its range stays under a hole, and what is newer is appended
/// above it. Method: one is built over a run with a list, and sinks beside a newer table.
#[test]
fn a_sentinel_sinks_past_the_list() {
    let sunk = |warm_up: WarmUp, newer: bool| {
        let set = fresh(10);
        let options = options(CompactionBuffer::trimmed(), 10).warm_up(warm_up);
        apply(&set, |part| part.options = Some(Arc::new(options)));
        flush(&set, 10, ("a", "z"));
        drain(&set, 10, &[], level(2), (50, "a", "z"));
        let by = RunId::filling(level(0), epoch(31));
        let run = RunId::filling(level(2), epoch(1));
        // Two of one run, with something between them.
        for (number, smallest, largest, to) in [(70, "e", "g", "n"), (71, "t", "u", "w")] {
            let interval = Interval::new(smallest.as_bytes(), Some(to.as_bytes()));
            apply(&set, |part| {
                let root = set.current();
                let before = described(root.keyspaces.get(KeyspaceId::new(0)).unwrap(), uid(50));
                let hidden = Content { entries: 2, ..Content::default() };
                part.remove_table(level(2), uid(50));
                let meta_50 = Arc::new(before.masked(&interval, hidden).unwrap());
                part.added.push(AddedTable { run, meta: meta_50 });
                let table = (*meta(number, smallest, largest, (1, 109))).clone();
                let table = TableMeta { entries: 2, deletes: 0, ..table };
                part.add_table(level(0), epoch(31), Arc::new(table));
                part.requests.taken = Some((by, interval.clone()));
                part.claims.push(Claim { run: by, interval: Some(interval.clone()) });
            });
        }
        assert_eq!(lists(&set, level(2)), "1/10 | 10 a-z ~e-n ~t-w");
        if newer {
            flush(&set, 40, ("f", "u"));
        }
        apply(&set, |part| {
            part.remove_table(level(0), uid(70));
            part.remove_table(level(0), uid(71));
            part.remove_table(level(2), uid(50));
            if newer {
                part.remove_table(level(0), uid(40));
            }
            part.add_table(level(2), epoch(1), meta(51, "a", "z", (1, 409)));
        });
        lists(&set, level(2))
    };
    assert_eq!(sunk(WarmUp::HandOff, false), "1/10 | 10 a-z ~e-n ~t-w");
    assert_eq!(sunk(WarmUp::HandOff, true), "1/20 | 40 f-u | 10 a-z ~e-n ~t-w");
    assert_eq!(sunk(WarmUp::None, false), "1/14 | 70 e-g 71 t-u | 10 a-z ~e-n ~t-w");
    assert_eq!(sunk(WarmUp::None, true), "1/24 | 40 f-u | 70 e-g 71 t-u | 10 a-z ~e-n ~t-w");
}

/// Goal: only what is merged into a run comes into its list, the older below the newer.
#[test]
fn appends_of_other_tables_are_refused() {
    let set = fresh(10);
    flush(&set, 10, ("a", "f"));
    drain(&set, 10, &[], level(2), (50, "a", "f"));
    flush(&set, 11, ("a", "c"));
    flush(&set, 12, ("b", "d"));
    let both = |part: &mut KeyspaceEdit| {
        part.remove_table(level(0), uid(11));
        part.remove_table(level(0), uid(12));
        part.remove_table(level(2), uid(50));
        part.add_table(level(2), epoch(1), meta(51, "a", "f", (1, 129)));
    };
    let swap = |lists: &mut Vec<ListChange>| lists.swap(0, 1);
    check_judge(&set, both, swap, "would pass");
    let run = RunId::filling(level(2), epoch(1));
    let append =
        |number| ListChange::Append { run, uid: uid(number), begins_run: true, meta: None };
    check_judge(&set, both, |lists| lists.push(append(50)), "not merged");
    let nothing = |_: &mut KeyspaceEdit| {};
    check_judge(&set, nothing, |lists| lists.push(append(11)), "not merged");
    let one = |part: &mut KeyspaceEdit| {
        part.remove_table(level(0), uid(11));
        part.remove_table(level(2), uid(50));
        part.add_table(level(2), epoch(1), meta(51, "a", "f", (1, 119)));
    };
    check_judge(&set, one, |lists| lists.push(append(12)), "not merged");
    assert_eq!(lists(&set, level(2)), "1/10 | 10 a-f");
}

/// Goal: an edit costs what it changes: it shares the buffered runs that it does not touch, and the
/// chunks of tables of the one that it does.
#[test]
fn edits_share_what_they_leave() {
    let set = fresh(10);
    let drained = |number: u64, with: &[u64], output: u64| {
        flush(&set, number, ("a", "f"));
        drain(&set, number, with, level(2), (output, "a", "f"));
        let root = set.current();
        let version = &root.keyspaces.get(KeyspaceId::new(0)).unwrap().version;
        let (.., list) = version.lists().next().unwrap();
        list.runs().to_vec()
    };
    let first = drained(10, &[], 50);
    let second = drained(11, &[50], 51);
    assert!(Arc::ptr_eq(&first[0], &second[1]), "a run that another one came above was copied");
    let trim = BTreeSet::from([uid(10)]);
    apply(&set, |part| part.requests = ListRequests { trim, ..ListRequests::default() });
    let third = drained(12, &[51], 52);
    assert!(Arc::ptr_eq(&second[0], &third[1]), "a run above one that lost a table was copied");
}
