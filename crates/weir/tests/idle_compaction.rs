//! Levels are merged down while writers rest, and nobody waits for it (dLSM §VI).
#![cfg(feature = "sim")]

use std::sync::Arc;
use std::time::Duration;

use weir::sim::{
    Effect, Fault, FaultyDir, FileClass, OpKind, SimDisk, SimOptions, Simulation, Times,
};
use weir::{CompactionPolicy, Db, Options};

const REST: Duration = Duration::from_secs(2);

fn options(policy: CompactionPolicy) -> Options {
    let levels = weir::LeveledOptions::default().base_level_bytes(16 << 10).l0_trigger(4);
    Options::default()
        .compaction(policy.with_options_of(levels.level_ratio(4).into()))
        .write_buffer_bytes(16 << 10)
        .table_bytes(8 << 10)
        .idle_compaction(REST)
}

fn open(policy: CompactionPolicy, seed: u64) -> (Db, weir::sim::Faults) {
    let disk = SimDisk::new(SimOptions::default());
    let dir = FaultyDir::over_disk(&disk);
    let faults = dir.faults();
    let builder = Db::builder("sim").default_options(options(policy)).memory_budget(8 << 20);
    let builder = builder.background_threads(1).seed(seed).log_segment_bytes(64 << 10);
    (builder.device(Arc::new(dir)).open().unwrap(), faults)
}

fn write(db: &Db, keys: std::ops::Range<u32>) {
    for n in keys {
        db.put((n.wrapping_mul(0x9e37_79b1)).to_be_bytes(), [n as u8; 200]).unwrap();
    }
}

/// Tables above the last level that has any.
fn tables_above(db: &Db) -> u64 {
    let levels = &db.metrics().keyspaces[0].levels;
    let tables: Vec<u64> = levels.iter().map(|level| level.tables).collect();
    let last = tables.iter().rposition(|&tables| tables > 0).unwrap_or(0);
    tables[..last].iter().sum()
}

fn policies() -> [CompactionPolicy; 3] {
    [CompactionPolicy::leveled(), CompactionPolicy::gear(), CompactionPolicy::two_phase()]
}

/// Goal: what is above the last level goes into it when writers have rested for the time of the
/// option, not before, and again after the next rest; what is read stays the same.
#[test]
fn levels_are_merged_down_in_a_rest() {
    for (seed, policy) in (0..).zip(policies()) {
        Simulation::run(seed, move |sim| {
            let (db, _) = open(policy, seed);
            let mut keys = 0;
            for round in 1..4 {
                while keys < 700 * round || tables_above(&db) == 0 {
                    write(&db, keys..keys + 100);
                    keys += 100;
                    db.flush().unwrap();
                    db.wait_idle().unwrap();
                }
                sim.delay(REST / 2);
                assert!(tables_above(&db) > 0, "{policy}, round {round}: too early");
                sim.delay(REST * 4);
                assert_eq!(tables_above(&db), 0, "{policy}, round {round}");
                assert_eq!(db.iter().count() as u32, keys);
            }
            db.close().unwrap();
        });
    }
}

/// Goal: nobody waits for it: `wait_idle` returns while it goes on, and a flush and a merge that is
/// due are done beside it or after the one that runs; it stops when writes come.
/// Method: every write of a table takes long; then writes that never rest.
#[test]
fn nobody_waits_for_it() {
    for (seed, policy) in (0..).zip(policies()) {
        Simulation::run(seed, move |sim| {
            let (db, faults) = open(policy, seed);
            write(&db, 0..2000);
            db.flush().unwrap();
            db.wait_idle().unwrap();
            let above = tables_above(&db);
            assert!(above > 0);
            let (op, class) = (Some(OpKind::Write), Some(FileClass::Table));
            let effect = Effect::Stall(500);
            faults.arm(Fault { op, class, after: 0, times: Times::Forever, effect });
            while db.property("weir.num-busy-tables").unwrap() == "0" {
                sim.delay(Duration::from_millis(10));
            }
            db.wait_idle().unwrap();
            assert!(tables_above(&db) > 0, "{policy}: it was waited for");
            faults.heal();
            // A write before every rest is over: what is left of it stays.
            for n in 0..8 {
                write(&db, n..n + 1);
                sim.delay(REST * 3 / 4);
            }
            let busy = db.property("weir.num-busy-tables").unwrap();
            assert_eq!(busy, "0", "{policy}: it goes on although writes come");
            sim.delay(REST * 4);
            assert_eq!(tables_above(&db), 0, "{policy}");
            db.close().unwrap();
        });
    }
}

/// Goal: the option is stored in whole microseconds and found after a reopening; policies whose
/// levels have no sizes refuse it.
#[test]
fn the_option_is_kept_and_checked() {
    let dir = tempfile::tempdir().unwrap();
    let rest = Duration::from_secs(1) / 3;
    let db = Db::open(dir.path()).unwrap();
    let other = options(CompactionPolicy::gear()).idle_compaction(rest);
    let other = db.keyspace_with("other", other).unwrap();
    let stored = Some(Duration::from_micros(333_333));
    assert_eq!(other.options().idle_compaction, stored);
    let refused =
        other.set_options(options(CompactionPolicy::gear()).compaction(CompactionPolicy::tiered()));
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("idle_compaction") && refused.contains("two_phase"), "{refused}");
    let long = options(CompactionPolicy::gear()).idle_compaction(Duration::from_secs(100_000));
    assert!(other.set_options(long).unwrap_err().to_string().contains("idle_compaction"));
    drop(other);
    db.close().unwrap();
    let db = Db::open(dir.path()).unwrap();
    assert_eq!(db.keyspace("other").unwrap().options().idle_compaction, stored);
    db.close().unwrap();
}
