//! Slots as large as tables, and the odd chunk (LDS §3.4): stores against a map, opened again and
//! again.

use std::collections::BTreeMap;

use weir::{
    CompactionPolicy, Db, DebugOptions, FormatOptions, Iter, LeveledOptions, OddChunk, Options,
    RunsOptions,
};

/// Bytes of a slot, the smallest, and of a table.
const SLOT_BYTES: u64 = 64 << 10;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(odd_chunk: OddChunk, policy: CompactionPolicy) -> Options {
    let sizes = LeveledOptions::default().base_level_bytes(256 << 10).level_ratio(3).l0_trigger(2);
    let runs = CompactionPolicy::Tiered(RunsOptions::default().runs_per_level(3));
    Options::default()
        .write_buffer_bytes(48 << 10)
        .table_bytes(SLOT_BYTES)
        .compaction(policy.with_options_of(sizes.into()).with_options_of(runs))
        .debug(DebugOptions::default().odd_chunk(odd_chunk))
}

/// A generator that the test needs no other crate for (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % end
    }
}

fn assert_holds(found: Iter, model: &Model) {
    let found = found.map(|entry| entry.unwrap());
    let found: Model = found.map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    assert!(found == *model, "{} entries, {} in the model", found.len(), model.len());
}

/// Puts and deletes of some thousand keys, and a range that a scan asks for.
fn write_some(db: &Db, model: &mut Model, random: &mut Random) {
    for _ in 0..2000 {
        let key = format!("key{:05}", random.below(6000)).into_bytes();
        if random.below(8) == 0 {
            db.delete(&key).unwrap();
            model.remove(&key);
        } else {
            let bytes = if random.below(100) == 0 { 9000 } else { random.below(300) };
            let value = vec![random.below(256) as u8; bytes as usize];
            db.put(&key, &value).unwrap();
            model.insert(key, value);
        }
    }
}

/// Goal: with each way of the odd chunk and policy that it suits, in a directory and on slots, a
/// store has what was written, also for snapshots of before, and after each opening with another
/// way; nothing is damaged and no compaction is refused. On slots tables of merges take one each.
#[test]
fn stores_with_odd_chunks_hold_what_was_written() {
    let policies = [CompactionPolicy::leveled(), CompactionPolicy::size_tiered()];
    for (number, policy) in policies.into_iter().enumerate() {
        for on_slots in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("store");
            if on_slots {
                let format = FormatOptions::new().size(64 << 20).slot_bytes(SLOT_BYTES);
                weir::format(&path, &format).unwrap();
            }
            let mut random = Random(number as u64);
            let mut model = Model::new();
            let ways = OddChunk::ALL.into_iter().filter(|way| way.suits(policy));
            for way in ways.clone().chain(ways) {
                let db = Db::open(&path).unwrap();
                db.default_keyspace().set_options(options(way, policy)).unwrap();
                assert_holds(db.iter(), &model);
                for _ in 0..4 {
                    let (before, snapshot) = (model.clone(), db.snapshot());
                    write_some(&db, &mut model, &mut random);
                    assert_holds(snapshot.iter(db.default_keyspace()), &before);
                }
                db.flush().unwrap();
                db.wait_idle().unwrap();
                assert_holds(db.iter(), &model);
                assert_eq!(db.metrics().compactions_refused, 0, "{policy} {way}");
                db.compact_range(..).unwrap();
                let tables = db.metrics().keyspaces[0].levels.iter().map(|l| l.tables).sum::<u64>();
                if way != OddChunk::Off && on_slots {
                    // What was removed goes with its last reader, and nobody reads.
                    let space = db.slot_space().unwrap();
                    assert_eq!(space.owned, tables, "{policy} {way}: {space:?}");
                }
                assert_eq!(db.verify().unwrap().damages.len(), 0);
                db.close().unwrap();
            }
        }
    }
}
