//! A device that is full: what is refused, what goes on, how it ends.
#![cfg(feature = "sim")]

use std::sync::Arc;
use std::time::Duration;

use weir::sim::{SimDisk, SimOptions, Simulation};
use weir::{Db, ErrorKind, Options};

fn open(disk: &SimDisk) -> Db {
    let options = Options {
        write_buffer_bytes: 16 << 10,
        table_bytes: 16 << 10,
        base_level_bytes: 32 << 10,
        l0_trigger: 2,
        ..Options::default()
    };
    Db::builder("sim")
        .default_options(options)
        .memory_budget(1 << 20)
        .log_segment_bytes(16 << 10)
        .log_area_bytes(256 << 10)
        .background_threads(1)
        .seed(1)
        .device(Arc::new(disk.clone()))
        .open()
        .unwrap()
}

/// Goal: writes end while there is still room to get out: what was written can be flushed and
/// compacted, and a keyspace can be dropped, which makes writes resume.
/// Method: a disk of fixed size is filled; then no more space is given to it, but a keyspace goes.
#[test]
fn there_is_room_to_get_out() {
    for seed in 0..10 {
        println!("seed {seed}");
        Simulation::run(seed, move |sim| {
            let disk = SimDisk::new(SimOptions::default());
            let db = open(&disk);
            let old = db.keyspace("old", Options::default()).unwrap();
            (0..300_u32).for_each(|i| old.put(i.to_be_bytes(), [1; 1000]).unwrap());
            old.flush().unwrap();
            disk.set_capacity(Some(disk.used_bytes() + (700 << 10)));
            let error = (0..4000_u32).find_map(|i| db.put(i.to_be_bytes(), [2; 500]).err());
            assert_eq!(error.expect("the disk is small").kind(), ErrorKind::NoSpace);
            assert_eq!(old.get(7_u32.to_be_bytes()).unwrap().map(|v| v.len()), Some(1000));
            db.flush().unwrap();
            db.wait_idle().unwrap();

            let written = (0..4000_u32).filter(|i| db.get(i.to_be_bytes()).unwrap().is_some());
            let written = written.count() as u32;
            assert!(written >= 50, "{written} writes fitted");
            drop(old);
            db.drop_keyspace("old").unwrap();
            sim.delay(Duration::from_secs(1));
            (5000..5100_u32).for_each(|i| db.put(i.to_be_bytes(), [3; 500]).unwrap());
            db.close().unwrap();
            let db = open(&disk);
            let found = (0..6000_u32).filter(|i| db.get(i.to_be_bytes()).unwrap().is_some());
            assert_eq!(found.count() as u32, written + 100);
            db.close().unwrap();
        });
    }
}
