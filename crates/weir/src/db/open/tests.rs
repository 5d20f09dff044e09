//! Openings number what they write apart from all earlier ones.

use std::collections::BTreeSet;

use crate::db::Db;
use crate::device::FileClass;
use crate::device::sim::SimDisk;
use crate::device::sim::crash::CrashPolicy;

/// Goal: a segment has a number that no segment of an earlier opening had, also if nothing of that
/// one can be seen (H71). Method: openings that begin a segment and lose the power, and whose
/// segment is gone then, as in a form of storage without names.
#[test]
fn segments_are_numbered_by_openings() {
    let mut disk = SimDisk::default();
    let mut used = BTreeSet::new();
    for opening in 1..6u64 {
        let db = Db::builder("store").device(disk.dir()).seed(7).open().expect("opens");
        db.put("key", "value").expect("written");
        let names = disk.dir().list().expect("a list");
        let segments: Vec<_> = names.into_iter().filter(|name| name.starts_with("wal-")).collect();
        assert!(!segments.is_empty(), "opening {opening} has written to no log");
        disk = disk.crash(CrashPolicy::Nothing, opening);
        drop(db);
        for name in segments {
            disk.dir().unlink(&name, FileClass::Wal).expect("created durably");
            assert!(used.insert(name.clone()), "opening {opening} has used {name} again");
        }
    }
}
