//! What a merge foresees of buffer lists, and what its edit then makes of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::buffer::{apply, drain, flush, fresh, lists, options};
use super::meta;
use crate::base::ids::{KeyspaceId, Level, TableUid, epoch, level, uid};
use crate::base::prng::Prng;
use crate::base::table_meta::TableMeta;
use crate::options::CompactionBuffer;
use crate::version::edit::{ListRequests, Rotation};
use crate::version::foreseen::Foreseen;
use crate::version::set::VersionSet;
use crate::version::shape::{PartKind, RunId};

/// Of a merge of these tables into the run of epoch 1 at a level.
fn foresee(set: &VersionSet, inputs: &[(RunId, &[u64])], into: Level) -> Foreseen {
    let root = set.current();
    let keyspace = root.keyspaces.get(KeyspaceId::new(0)).unwrap();
    let uids: Vec<(RunId, Vec<TableUid>)> = inputs
        .iter()
        .map(|&(run, numbers)| (run, numbers.iter().map(|&number| uid(number)).collect()))
        .collect();
    let inputs: Vec<_> = uids.iter().map(|(run, uids)| (*run, &uids[..])).collect();
    Foreseen::of(keyspace, &inputs, RunId::filling(into, epoch(1)))
}

fn level_0(number: u64) -> RunId {
    RunId::filling(level(0), epoch(number))
}

fn at(into: usize) -> RunId {
    RunId::filling(level(into), epoch(1))
}

/// The keys that the list of the output run will answer for, and of each input whether its tables
/// go over into that, and whether there is heat of a list that they leave.
fn told(foreseen: &Foreseen) -> String {
    let keys = ('a'..='z').filter(|key| foreseen.served.covers(key.to_string().as_bytes()));
    let inputs = foreseen.inputs.iter().map(|input| match (input.stays, input.heat.is_some()) {
        (true, true) => " stays, leaves a list",
        (true, false) => " stays",
        (false, true) => " leaves a list",
        (false, false) => " -",
    });
    keys.collect::<String>() + &inputs.collect::<Vec<_>>().join(";")
}

const ALL: &str = "abcdefghijklmnopqrstuvwxyz";

/// Goal: a list serves what is under no hole, foot or trimmed table of it, and nothing if none is
/// appended; the heat of a list is asked for where the list does not answer any more.
#[test]
fn holes_and_feet_are_not_served() {
    let set = fresh(10);
    flush(&set, 10, ("a", "f"));
    assert_eq!(told(&foresee(&set, &[(level_0(10), &[10])], level(2))), format!("{ALL} stays"));
    drain(&set, 10, &[], level(2), (50, "a", "f"));
    // A foot.
    apply(&set, |part| part.add_table(level(3), epoch(1), meta(7, "c", "x", (1, 2))));
    flush(&set, 11, ("y", "z"));
    let into_3 = foresee(&set, &[(level_0(11), &[11]), (at(3), &[7])], level(3));
    assert_eq!(told(&into_3), "abyz stays; -");
    // A trimmed table, beside one that is not.
    drain(&set, 11, &[], level(2), (51, "y", "z"));
    let requests = ListRequests { trim: BTreeSet::from([uid(10)]), ..ListRequests::default() };
    apply(&set, |part| part.requests = requests);
    assert_eq!(lists(&set, level(2)), "2/20 | 11 y-z ~a-f");
    flush(&set, 12, ("e", "y"));
    let merge: &[(RunId, &[u64])] = &[(level_0(12), &[12]), (at(2), &[50, 51])];
    assert_eq!(told(&foresee(&set, merge, level(2))), format!("{} stays; -", &ALL[6..]));
    // The list's run goes down: what was read through it is known, and the list below serves all.
    apply(&set, |part| part.rotate(level(2), Rotation { bytes: 2101, entries: 20 }));
    let draining = RunId { part: PartKind::Draining, ..at(2) };
    let down = foresee(&set, &[(draining, &[51])], level(4));
    assert_eq!(told(&down), format!("{ALL} stays, leaves a list"));
    // Past a list nothing is appended.
    let past = foresee(&set, &[(level_0(12), &[12]), (draining, &[51])], level(6));
    assert_eq!(told(&past), " -; leaves a list");
    apply(&set, |part| part.options = Some(options(CompactionBuffer::Off, 10).into()));
    assert_eq!(told(&foresee(&set, &[(draining, &[51])], level(4))), " -");
}

/// Goal: a list that merges overwrite is foreseen to be dropped, if they go on as they did.
#[test]
fn lists_that_will_be_dropped_serve_nothing() {
    let set = fresh(10);
    for (number, shadowed) in [(10, 0), (11, 5), (12, 9)] {
        flush(&set, number, ("a", "f"));
        let told = told(&foresee(&set, &[(level_0(number), &[number])], level(6)));
        assert_eq!(told, format!("{ALL} stays"), "{}", lists(&set, level(6)));
        apply(&set, |part| {
            part.remove_table(level(0), uid(number));
            if number > 10 {
                part.remove_table(level(6), uid(number + 40));
            }
            let table = meta(number + 41, "a", "f", (1, number * 10 + 9));
            part.add_table(level(6), epoch(1), table);
            part.requests.shadowed = shadowed;
        });
    }
    assert_eq!(lists(&set, level(6)), "7/15 quiet");
    flush(&set, 13, ("a", "f"));
    let merge: &[(RunId, &[u64])] = &[(level_0(13), &[13]), (at(6), &[53])];
    assert_eq!(told(&foresee(&set, merge, level(6))), " -; leaves a list");
}

/// Goal: a list that is too young to be judged is foreseen to be dropped when it will be, if merges
/// go on as they did.
#[test]
fn a_merge_is_taken_to_hide_as_much_as_those_before_it() {
    let set = fresh(10);
    let large = |number: u64, seq_max: u64| {
        let table = meta(number, "a", "f", (1, seq_max));
        Arc::new(TableMeta { entries: 125, ..TableMeta::clone(&table) })
    };
    apply(&set, |part| part.add_table(level(6), epoch(1), large(7, 9)));
    flush(&set, 10, ("a", "f"));
    apply(&set, |part| {
        part.remove_table(level(0), uid(10));
        part.remove_table(level(6), uid(7));
        part.add_table(level(6), epoch(1), large(51, 109));
        part.requests.shadowed = 5;
    });
    assert_eq!(lists(&set, level(6)), "5/10 | 10 a-f | ~a-f");
    flush(&set, 11, ("a", "f"));
    let merge: &[(RunId, &[u64])] = &[(level_0(11), &[11]), (at(6), &[51])];
    assert_eq!(told(&foresee(&set, merge, level(6))), " -; leaves a list");
}

/// Goal: what is foreseen is what the edit makes, whenever nothing comes between. Method: random
/// merges and trims into one run; after each, the list answers for the keys that were foreseen.
#[test]
fn the_edit_makes_what_was_foreseen() {
    let mut prng = Prng::new(3);
    let (mut partly, mut feet) = (0, 0);
    for _ in 0..40 {
        let set = fresh(3);
        let mut tables: Vec<(u64, char, char)> = Vec::new();
        for number in 10..40_u64 {
            let (a, b) = (letter(&mut prng), letter(&mut prng));
            let (from, to) = (a.min(b), a.max(b));
            flush(&set, number, (&from.to_string(), &to.to_string()));
            let with: Vec<(u64, char, char)> =
                tables.iter().filter(|(_, f, t)| *f <= to && from <= *t).copied().collect();
            tables.retain(|table| !with.contains(table));
            let first = with.iter().map(|table| table.1).chain([from]).min().unwrap();
            let last = with.iter().map(|table| table.2).chain([to]).max().unwrap();
            let output = number + 100;
            tables.push((output, first, last));
            let with: Vec<u64> = with.iter().map(|table| table.0).collect();
            let mut inputs: Vec<(RunId, &[u64])> = vec![(level_0(number), &[])];
            let own = [number];
            inputs[0].1 = &own;
            if !with.is_empty() {
                inputs.push((at(2), &with));
            }
            let foreseen = foresee(&set, &inputs, level(2));
            let keys = (&*first.to_string(), &*last.to_string());
            drain(&set, number, &with, level(2), (output, keys.0, keys.1));
            let root = set.current();
            let version = &root.keyspaces.get(KeyspaceId::new(0)).unwrap().version;
            let list = version.run(at(2)).unwrap().list.as_deref();
            let mut served = 0;
            for key in 'a'..='z' {
                let key = key.to_string();
                let answers = list.is_some_and(|l| l.is_complete(key.as_bytes(), key.as_bytes()));
                let covered = foreseen.served.covers(key.as_bytes());
                assert_eq!(covered, answers, "{key}: {}", lists(&set, level(2)));
                served += u32::from(answers);
            }
            partly += u32::from((1..26).contains(&served));
            feet += u32::from(lists(&set, level(2)).contains('~'));
            if prng.below(3) == 0 {
                let trim = BTreeSet::from([uid(number - prng.below(4))]);
                let requests = ListRequests { trim, ..ListRequests::default() };
                apply(&set, |part| part.requests = requests);
            }
        }
    }
    assert!(partly > 200 && feet > 400, "{partly} with a part, {feet} with a foot");
}

fn letter(prng: &mut Prng) -> char {
    char::from(b'a' + u8::try_from(prng.below(26)).unwrap())
}
