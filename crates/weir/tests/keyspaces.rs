//! Keyspaces begin and end in the order of the commits around them, on a simulated disk.
#![cfg(feature = "sim")]

use weir::sim::{CrashPolicy, SimDisk, SimOptions};
use weir::{Builder, Db, Durability, Options};

fn options() -> Options {
    Options { write_buffer_bytes: 4 << 10, immutables_max: 64, ..Options::default() }
}

fn builder() -> Builder {
    Db::builder("sim")
        .default_options(options())
        .memory_budget(8 << 20)
        .log_segment_bytes(4 << 10)
        .log_area_bytes(1 << 20)
        .background_threads(1)
        .seed(1)
}

/// Goal: a drop that survives a power cut keeps every commit that was acknowledged before it began
/// (P2, P4). Data was moved from one keyspace to another one and the first was dropped: the drop
/// was durable at once, the copy was not, and both were lost.
/// Method: as in the story, with the power cut at every request from the copy to the next write;
/// once with all that was not synced lost, once with all of it kept.
#[test]
fn a_drop_is_not_durable_before_the_writes_before_it() {
    let disk = SimDisk::new(SimOptions { record: true, ..SimOptions::default() });
    let db = builder().device(disk.dir()).open().unwrap();
    let old = db.keyspace("old", options()).unwrap();
    for i in 0..40_u32 {
        old.put_with(i.to_be_bytes(), [1; 100], Durability::Sync).unwrap();
    }
    let begin = disk.trace_len();
    for i in 0..40_u32 {
        let value = old.get(i.to_be_bytes()).unwrap().unwrap();
        db.put(i.to_be_bytes(), value).unwrap();
    }
    drop(old);
    db.drop_keyspace("old").unwrap();
    let dropped = disk.trace_len();
    db.put(b"later", b"1").unwrap();
    let end = disk.trace_len();
    drop(db);
    let mut replayer = disk.replayer();
    for boundary in begin..=end {
        replayer.go_to(boundary);
        for policy in [CrashPolicy::Nothing, CrashPolicy::All] {
            let image = replayer.image(policy, 1);
            let db = builder().device(image.dir()).open().unwrap();
            let at = format!("power cut at request {boundary} of {begin} to {end}");
            let survived = db.keyspaces().iter().any(|name| name == "old");
            assert!(!survived || boundary < dropped, "{at}: the keyspace came back");
            let holder = if survived { "old" } else { "default" };
            let holder = db.open_keyspace(holder).unwrap();
            for i in 0..40_u32 {
                let found = holder.get(i.to_be_bytes()).unwrap();
                assert_eq!(found.as_deref(), Some(&[1; 100][..]), "{at}: key {i}");
            }
        }
    }
}
