//! What a merge asks of the device: few large requests, whatever readers have cached.
#![cfg(feature = "sim")]

use std::sync::Arc;

use weir::sim::{FaultyDir, FileClass, OpKind, SimDisk, SimOptions};
use weir::{Db, LeveledOptions, Options};

const KEYS: u32 = 40_000;

fn key(i: u32) -> [u8; 4] {
    i.to_be_bytes()
}

/// Goal: a merge of tables of which readers have cached every other block or so reads in windows of
/// 1 MiB. When each cached block ended the read, a device that does so many requests a second had
/// few left for readers. Method: two runs of 4 MB, keys of every other block read before the merge,
/// at both ages; requests counted below the store.
#[test]
fn half_cached_tables_are_read_in_large_pieces() {
    let faulty = FaultyDir::over_disk(&SimDisk::new(SimOptions::default()));
    let faults = faulty.faults();
    let builder = Db::builder("sim").device(Arc::new(faulty)).seed(1);
    let builder = builder.memory_budget(256 << 20).block_cache_bytes(32 << 20);
    let options = Options::default().compaction(LeveledOptions::default().l0_trigger(8));
    let db = builder.default_options(options).open().expect("open");
    for round in 0..2 {
        (0..KEYS).for_each(|i| db.put(key(i), format!("{round:04}{i:092}")).expect("put"));
        db.flush().expect("flush");
        // A block holds about 40 of these entries.
        for i in (0..KEYS).step_by(80) {
            assert!(db.get(key(i)).expect("get").is_some());
        }
    }
    let count = || faults.counters().get(OpKind::Read, FileClass::Table);
    let before = count();
    db.compact_range(..).expect("compact_range");
    let (calls, bytes) = (count().calls - before.calls, count().bytes - before.bytes);
    let metrics = db.metrics();
    assert_eq!(metrics.compactions, 1, "{metrics:?}");
    let (data_bytes, windows) = (metrics.compaction_bytes_read, bytes.div_ceil(1 << 20));
    assert!(bytes >= data_bytes / 2, "{bytes} of {data_bytes} bytes");
    assert!(calls <= windows + 4, "{calls} requests for {bytes} bytes");
    for i in (0..KEYS).step_by(977) {
        let expected = format!("0001{i:092}");
        assert_eq!(db.get(key(i)).expect("get").as_deref(), Some(expected.as_bytes()));
    }
}
