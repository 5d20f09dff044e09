//! `wait_idle` returns when nothing is due or running, and not before.
#![cfg(feature = "sim")]

use weir::sim::{SimDisk, Simulation};
use weir::{CompactionPolicy, Db, DbOptions, Options};

/// Goal: what the last job has made due is waited for. Method: `gear` leaves nothing in level 0,
/// so every flush makes a merge due; writes, then `wait_idle` while flushes run, under many
/// schedules; no level 0 afterwards.
#[test]
fn what_the_last_job_made_due_is_waited_for() {
    for seed in 0..300 {
        Simulation::run(seed, move |_| {
            let options = Options {
                compaction: CompactionPolicy::Gear,
                write_buffer_bytes: 16 << 10,
                table_bytes: 16 << 10,
                base_level_bytes: 32 << 10,
                ..Options::default()
            };
            let db = DbOptions { background_threads: 2, ..DbOptions::default() };
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
