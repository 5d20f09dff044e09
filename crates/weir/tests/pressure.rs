//! The store under several threads at once, on real files: what must stay bounded, and what must
//! end.

use std::sync::atomic::{AtomicBool, Ordering};

use weir::{Db, LeveledOptions, Options};

fn small() -> Options {
    Options::default()
        .write_buffer_bytes(64 << 10)
        .table_bytes(64 << 10)
        .compaction(LeveledOptions::default().base_level_bytes(1 << 20))
}

/// Goal: a keyspace that is never written to does not keep the log of the others alive (H38), also
/// when writers never leave the commit queue idle.
/// Method: four threads write to one keyspace while the default keyspace stays empty; the bytes of
/// the log's files are looked at all the time.
#[test]
fn an_idle_keyspace_does_not_pin_the_log_under_load() {
    const AREA: u64 = 2 << 20;
    let dir = tempfile::tempdir().unwrap();
    let db = Db::builder(dir.path().join("db"))
        .memory_budget(16 << 20)
        .log_segment_bytes(128 << 10)
        .log_area_bytes(AREA)
        .open()
        .unwrap();
    let users = db.keyspace_with("users", small()).unwrap();
    let done = AtomicBool::new(false);
    let mut worst = 0;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|thread: u32| {
                let users = users.clone();
                scope.spawn(move || {
                    for i in 0..8_000_u32 {
                        let key = [thread.to_be_bytes(), i.to_be_bytes()].concat();
                        users.put(key, [7; 400]).unwrap();
                    }
                })
            })
            .collect();
        let watcher = scope.spawn(|| {
            let mut worst = 0;
            while !done.load(Ordering::Relaxed) {
                worst = worst.max(db.describe().log_bytes);
                std::thread::yield_now();
            }
            worst
        });
        writers.into_iter().for_each(|w| w.join().unwrap());
        done.store(true, Ordering::Relaxed);
        worst = watcher.join().unwrap();
    });
    db.close().unwrap();
    assert!(worst <= 2 * AREA, "the log took {worst} bytes; its area has {AREA}");
}

/// Goal: many keyspaces with half-full memtables stay within the part of the budget that memtables
/// have, half of it.
/// Method: write to twelve keyspaces in turn, none of which fills its write buffer, and look at
/// the account all the time. Writers go on until a quarter above the limit; besides, an
/// arena has an untouched end of up to 256 KiB, a sixteenth of the write buffer.
#[test]
fn half_full_memtables_stay_within_the_budget() {
    const BUDGET: u64 = 16 << 20;
    const LIMIT: u64 = BUDGET / 2 + BUDGET / 8 + 12 * (256 << 10);
    let dir = tempfile::tempdir().unwrap();
    let db = Db::builder(dir.path().join("db")).memory_budget(BUDGET).open().unwrap();
    let options = || Options::default().write_buffer_bytes(BUDGET / 4);
    let keyspaces: Vec<_> =
        (0..12).map(|i| db.keyspace_with(&format!("keyspace {i}"), options()).unwrap()).collect();
    let mut worst = 0;
    for i in 0..6_000_u32 {
        for keyspace in &keyspaces {
            keyspace.put(i.to_be_bytes(), [7; 300]).unwrap();
        }
        worst = worst.max(db.metrics().memory.memtables);
    }
    assert!(worst > BUDGET / 4, "the test writes too little: {worst} bytes of memtables");
    assert!(worst <= LIMIT, "memtables held {worst} bytes of {LIMIT}");
    for keyspace in &keyspaces {
        assert_eq!(keyspace.iter().count(), 6_000);
    }
}
