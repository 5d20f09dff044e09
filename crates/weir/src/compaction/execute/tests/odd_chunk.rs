//! Tables that fill slots, and the last output of a merge that stays in its level.

use super::*;
use crate::options::{DebugOptions, OddChunk};

/// The options of the odd chunk that this suite is about.
const WAYS: [OddChunk; 3] = [OddChunk::Plain, OddChunk::Balanced, OddChunk::Upper];

fn with(odd_chunk: OddChunk, options: Options) -> Options {
    options.debug(DebugOptions::default().odd_chunk(odd_chunk))
}

/// Goal: whatever is done with odd chunks, every snapshot reads as the oracle, no edit is refused,
/// and the policy becomes idle. Method: the random trees; then, to count the chunks that stay in
/// their level, one merge after the other.
#[test]
fn random_trees_with_odd_chunks_read_like_the_oracle() {
    let mut stayed = 0;
    for odd_chunk in WAYS {
        for seed in 0..12u64 {
            println!("{odd_chunk}, seed {seed}");
            let mut prng = Prng::new(seed);
            let mut store = Store::new(with(odd_chunk, small_options(&mut prng)));
            random_operations(&mut store, &mut prng);
            for _ in 0..10 {
                (0..30).for_each(|_| random_write(&mut store, &mut prng, 2000));
                store.flush();
                while let Some(task) = Leveled.pick(&store.shape()).into_iter().next() {
                    stayed += count_staying(&mut store, task);
                }
                store.check();
            }
            assert!(odd_chunk == OddChunk::Upper || stayed == 0, "{odd_chunk} keeps none above");
            assert_deletes_end(&mut store);
        }
    }
    println!("{stayed} stayed");
    assert!(stayed > 20, "{stayed} odd chunks stayed in their level");
}

/// Does a task; how many outputs of a merge are above its output level.
fn count_staying(store: &mut Store, task: Task) -> usize {
    let first = store.set.new_uid().expect("a uid");
    let output = task.output().filter(|_| matches!(task, Task::Merge(_)));
    store.start(task);
    store.finish_jobs();
    let version = store.version();
    let above = version.runs_by_id().filter(|(id, _)| Some(id.level) < output.map(|o| o.level));
    let tables = above.flat_map(|(_, run)| run.tables.iter());
    tables.filter(|(meta, _)| meta.uid > first).count()
}

/// A store in which level 5 has two tables, `t` and `x`, and level 6 one, `w`, all of keys of a
/// letter and two digits: four values of 900 bytes fill a table.
fn store_of(t: &[&str], x: &[&str], w: &[&str]) -> Store {
    let sizes = LeveledOptions::default().base_level_bytes(1024).l0_trigger(1);
    let options = Options::default().write_buffer_bytes(1).block_bytes(512).compaction(sizes);
    let mut store = Store::new(with(OddChunk::Upper, options.table_bytes(4800 + 4096)));
    let places = [(w, level(6)), (x, level(5)), (t, level(5))];
    for (keys, at) in places {
        keys.iter().for_each(|key| store.write(key.as_bytes(), Some(vec![b'v'; 900])));
        store.flush();
        let input = newest_run(&store, level(0), PartKind::Filling);
        let version = store.version();
        let there = version.levels()[at].filling.runs.first();
        let epoch = there.map_or(input.run.epoch, |run| run.epoch);
        let output = RunId::filling(at, epoch);
        store.start(Task::Move(MoveTask { input, output, cursor: None, reason: Reason::Drain }));
    }
    store
}

/// Merges the first `tables` of level 5 with all of level 6, as too much for level 5. The keys from
/// and to of each table of levels 5 and 6 then, and the cursor.
fn merge_down(store: &mut Store, tables: usize) -> (Vec<String>, Vec<String>, String) {
    let mut upper = newest_run(store, level(5), PartKind::Filling);
    upper.uids.truncate(tables);
    let lower = newest_run(store, level(6), PartKind::Filling);
    let version = store.version();
    let run = &version.levels()[level(5)].filling.runs[0];
    let key = run.tables.get(tables - 1).expect("the tables").0.largest.clone();
    let merge = MergeTask {
        output: lower.run,
        inputs: vec![upper, lower],
        cursor: Some(CursorMove { level: level(5), key }),
        reason: Reason::LevelBytes,
    };
    store.start(Task::Merge(merge));
    store.finish_jobs();
    store.check();
    let version = store.version();
    let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    let of = |at| {
        let runs = version.levels()[at].filling.runs.iter();
        let tables = runs.flat_map(|run| run.tables.iter());
        tables.map(|(meta, _)| format!("{}-{}", text(&meta.smallest), text(&meta.largest)))
    };
    let cursor = version.levels()[level(5)].cursor.as_deref().map(text);
    (of(level(5)).collect(), of(level(6)).collect(), cursor.expect("a cursor"))
}

const T: [&str; 6] = ["a00", "b00", "c00", "d00", "e00", "f00"];
const W: [&str; 4] = ["a50", "b50", "g50", "h00"];

/// Goal: the last output, of 2 values behind two of 4, stays in level 5, and the level goes on with
/// it.
#[test]
fn an_odd_chunk_stays_in_its_level() {
    let mut store = store_of(&T, &["x00"], &W);
    let (upper, lower, cursor) = merge_down(&mut store, 1);
    assert_eq!(upper, ["g50-h00", "x00-x00"]);
    assert_eq!(lower, ["a00-b50", "c00-f00"]);
    // The largest key taken: the chunk comes next.
    assert_eq!(cursor, "f00");
}

/// H39: the odd chunk has what the table W of level 6 has behind T, to h00, and X of level 5 lies
/// there too. Kept in level 5, as published, it would overlap X: two tables of one run that hold
/// other keys than a search expects. Also where they have only a bound in common.
#[test]
fn an_odd_chunk_that_meets_another_table_goes_down() {
    for x in [&["g60", "g70"][..], &["g00", "z00"], &["g50"], &["h00", "i00"], &["h00"]] {
        let mut store = store_of(&T, x, &W);
        let (upper, lower, cursor) = merge_down(&mut store, 1);
        assert_eq!(upper, [format!("{}-{}", x[0], x[x.len() - 1])]);
        assert_eq!(lower, ["a00-b50", "c00-f00", "g50-h00"]);
        assert_eq!(cursor, "f00");
    }
    // Beyond X it meets nothing, and X has the first turn.
    let mut store = store_of(&T, &["f60"], &W);
    let (upper, _, cursor) = merge_down(&mut store, 1);
    assert_eq!((upper, &cursor[..]), (vec!["f60-f60".to_owned(), "g50-h00".to_owned()], "f00"));
}

/// Goal: a cursor beyond the chunk comes back to it.
#[test]
fn the_cursor_does_not_pass_an_odd_chunk() {
    let t = ["a00", "b00", "c00", "d00", "y00"];
    let mut store = store_of(&t, &["z00"], &["a50", "b50", "c50", "d50", "e50"]);
    let (upper, lower, cursor) = merge_down(&mut store, 1);
    assert_eq!(upper, ["e50-y00", "z00-z00"]);
    assert_eq!((lower.last().map(|of| &of[..]), &cursor[..]), (Some("c00-d50"), "d50"));
}

/// Goal: what is not the rest of more, or is most of what was taken, goes down: a level that kept
/// it would never become smaller.
#[test]
fn an_odd_chunk_leaves_a_level_smaller() {
    let mut store = store_of(&["a00"], &["x00"], &["a50", "b50"]);
    let (upper, lower, _) = merge_down(&mut store, 1);
    assert_eq!((upper, lower), (vec!["x00-x00".to_owned()], vec!["a00-b50".to_owned()]));
    let mut store = store_of(&["a00"], &["x00"], &["a50", "b50", "c50", "d50", "e50"]);
    let (upper, lower, _) = merge_down(&mut store, 1);
    assert_eq!((upper.len(), lower.len()), (1, 2));
}

/// Goal: no table is larger than its slot has room for, unless one key's entries are, and all but
/// the last of a merge have hardly room for another entry. Method: values of many sizes.
#[test]
fn outputs_fill_their_slots() {
    for (odd_chunk, slot) in WAYS.into_iter().zip([16 << 10, 64 << 10, 256 << 10]) {
        let sizes = LeveledOptions::default().base_level_bytes(1 << 30).l0_trigger(2);
        let options = Options::default().write_buffer_bytes(1).table_bytes(slot).compaction(sizes);
        let mut store = Store::new(with(odd_chunk, options));
        let mut prng = Prng::new(slot);
        for number in 0..8000 {
            let most = if prng.chance(1, 50) { slot / 2 } else { 200 };
            let value = vec![7; prng.below(most) as usize];
            store.write(format!("key{:05}", number % 4000).as_bytes(), Some(value));
            if number % 4000 == 3999 {
                store.flush();
            }
        }
        store.settle();
        let version = store.version();
        let tables: Vec<u64> = version.tables().map(|table| table.meta().bytes).collect();
        let room = slot - 4096;
        assert!(tables.iter().all(|&bytes| bytes <= room), "{odd_chunk}: {tables:?}");
        let all: u64 = tables.iter().sum();
        // Two that follow each other are more than one slot has room for.
        assert!(tables.len() as u64 <= 2 * all.div_ceil(room), "{odd_chunk}: {tables:?}");
    }
}
