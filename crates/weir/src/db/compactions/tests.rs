//! Compactions that cannot be done: they are not repeated for ever, they are seen, and who waits
//! for them gets an error.

use std::sync::atomic::Ordering;

use crate::{Db, ErrorKind, Options};

/// Level 0 is merged at two runs, and writers wait at ten.
fn open(dir: &std::path::Path) -> Db {
    let options = Options { l0_trigger: 2, ..Options::default() };
    Db::builder(dir.join("db")).default_options(options).open().unwrap()
}

/// A table in level 0 over one range of keys.
fn add_run(db: &Db, round: u32) -> crate::Result<()> {
    for key in 0..20_u32 {
        db.put(key.to_be_bytes(), round.to_be_bytes())?;
    }
    db.flush()
}

/// Goal: a compaction that the version set refuses is tried once per state of the tree, not without
/// end; it shows in metrics and property; writers that it stops get its error; the user's own
/// attempt puts it right when it is not refused any more.
/// Method: edits that replace tables are refused; a thousand of them, so that a store that goes on
/// for ever does not hang the test.
#[test]
fn a_refused_compaction_is_set_aside() {
    const MANY: u64 = 1000;
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let refusals = &db.handle.engine.set.refusals;
    refusals.left.store(MANY, Ordering::Relaxed);
    add_run(&db, 0).unwrap();
    db.wait_idle().unwrap();
    for round in 1..9_u64 {
        add_run(&db, round as u32).unwrap();
        db.wait_idle().unwrap();
        let tried = MANY - refusals.left.load(Ordering::Relaxed);
        assert!(tried <= round, "{tried} attempts in {round} states");
        assert_eq!(db.metrics().compactions_refused, tried);
        assert!(db.property("weir.background-error").unwrap().contains("refused"));
    }
    let stopped = (9..30).find_map(|round| add_run(&db, round).err());
    assert_eq!(stopped.expect("writers are stopped").kind(), ErrorKind::Conflict);
    assert_eq!(db.get(7_u32.to_be_bytes()).unwrap().map(|v| v.len()), Some(4));
    assert_eq!(db.compact_range(..).unwrap_err().kind(), ErrorKind::Conflict);

    refusals.left.store(0, Ordering::Relaxed);
    db.compact_range(..).unwrap();
    add_run(&db, 99).unwrap();
    db.wait_idle().unwrap();
    assert_eq!(db.property("weir.background-error").unwrap(), "");
    db.close().unwrap();
}
