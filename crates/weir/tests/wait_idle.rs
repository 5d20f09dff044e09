//! `wait_idle` returns when nothing is due or running, and not before.
#![cfg(feature = "sim")]

use weir::sim::{Settings, SimDisk, Simulation};
use weir::{CompactionPolicy, Db, DbOptions, Options, PartsOptions};

/// Goal: what the last job has made due is waited for. Method: `gear` leaves nothing in level 0,
/// so every flush makes a merge due; writes, then `wait_idle` while flushes run, under many
/// schedules; no level 0 afterwards.
#[test]
fn what_the_last_job_made_due_is_waited_for() {
    for seed in 0..300 {
        Simulation::run(seed, move |_| {
            let options = Options::default()
                .compaction(CompactionPolicy::Gear(
                    PartsOptions::default().base_level_bytes(32 << 10),
                ))
                .write_buffer_bytes(16 << 10)
                .table_bytes(16 << 10);
            let db = DbOptions::default().background_threads(2);
            let db = Db::builder("sim")
                .options(db)
                .default_options(options)
                .memory_budget(1 << 20)
                .log_segment_bytes(16 << 10)
                .log_area_bytes(256 << 10)
                .seed(seed)
                .device(SimDisk::default().dir())
                .open()
                .unwrap();
            for round in 0..6u32 {
                for i in 0..40u32 {
                    db.put((round << 8 | i).to_be_bytes(), [i as u8; 500]).unwrap();
                }
                db.wait_idle().unwrap();
                let described = db.describe();
                let runs = described.keyspaces[0].levels.first().map_or(0, |l| l.runs.len());
                assert_eq!(runs, 0, "seed {seed}, round {round}");
            }
            db.close().unwrap();
        });
    }
}

/// Goal: what the end of a snapshot makes due is begun, whoever sees that it has ended first: a
/// background thread, or who waits for it. Method: the bottom level holds deletes that a snapshot
/// needs; it goes while `wait_idle` looks, under many schedules. Nobody else wakes anybody.
#[test]
fn what_the_end_of_a_snapshot_makes_due_is_begun() {
    for seed in 0..300 {
        // Somebody is put off for long, again and again.
        let (hold_one_in, pause_one_in) = [(20, 0), (0, 60)][seed as usize % 2];
        let settings = Settings { hold_one_in, pause_one_in, ..Settings::new(seed) };
        let outcome = Simulation::run_with(settings, move |sim| {
            let device = SimDisk::default().dir();
            let db = Db::builder("sim").background_threads(1).seed(seed).device(device);
            let db = db.open().unwrap();
            (0..40_u32).try_for_each(|i| db.put(i.to_be_bytes(), [0; 100])).unwrap();
            let snapshot = db.snapshot();
            (0..40_u32).try_for_each(|i| db.delete(i.to_be_bytes())).unwrap();
            db.compact_range(..).unwrap();
            db.wait_idle().unwrap();
            let tables = || db.metrics().keyspaces[0].levels.iter().map(|l| l.tables).sum::<u64>();
            assert_eq!(tables(), 1, "the snapshot needs them");
            let last = sim.spawn("last reader", move || {
                (0..seed % 50).for_each(|_| weir::sim::switch_point());
                drop(snapshot);
            });
            db.wait_idle().unwrap();
            last.unwrap().join();
            db.wait_idle().unwrap();
            assert_eq!(tables(), 0, "nobody needs them any more");
            db.close().unwrap();
        });
        outcome.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}
