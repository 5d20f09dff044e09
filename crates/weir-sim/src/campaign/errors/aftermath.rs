//! What follows a fault: the device is healed, the store is used, left, opened again and compared
//! with the ledger, and obsolete files must be gone.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir::sim::{Effect, FaultyDir};
use weir::{Db, Durability, ErrorKind};

use super::caught::Outcome;
use super::scene::Scene;
use crate::history::read_all;
use crate::world;

/// After the fault: heal, use, leave, open again.
pub(super) fn aftermath(scene: &mut Scene, number: u64) -> Outcome {
    scene.faults().heal();
    let mut needed = None;
    let lossy = scene.faults().injected().iter().any(|(_, e, _)| matches!(e, Effect::LoseDirty(_)));
    if let Some(db) = scene.db.clone().filter(|_| !scene.read_only) {
        // Jobs that failed are tried again after a while.
        world::delay_millis(60_000);
        let known = scene.known(false);
        let content = read_all(&db).map_err(|e| format!("healed, but reads fail: {e}"))?;
        scene.check_live(&known, content).map_err(|e| format!("healed: {e}"))?;
        let items = scene.some_items(2, 50, &["default", "second"]);
        let spaces = ["default", "second"].iter().all(|s| scene.ledger.spaces.contains(s));
        let items = if spaces { items } else { vec![("default", b"k".to_vec(), Some(vec![1]))] };
        let taken = scene.write(items, Durability::Sync)?;
        if !taken && !scene.poisoned {
            return Err("healed and not poisoned, but a write is refused".into());
        }
        if taken {
            scene.writes_if(spaces, 10)?;
            match db.wait_idle() {
                Err(e) if e.kind() == ErrorKind::Poisoned => scene.poisoned = true,
                other => other.map_err(|e| format!("healed, but wait_idle fails: {e}"))?,
            }
            // An edit: a version log that failed is noticed by the next one.
            match db.flush() {
                Err(e) if e.kind() == ErrorKind::Poisoned => scene.poisoned = true,
                other => other.map_err(|e| format!("healed, but flush fails: {e}"))?,
            }
        }
        if !scene.poisoned {
            db.wait_idle().map_err(|e| format!("healed, but wait_idle fails: {e}"))?;
            needed = Some(Needed::by(&db));
        }
    }
    let power = lossy || number % 2 == 1;
    if power {
        let disk = scene.disk.power_loss(0, number as u32);
        scene.db = None;
        scene.disk = disk;
    } else {
        scene.close()?;
        scene.db = None;
        if scene.disk.sim.open_files() > 0 {
            return Err(format!("{} files stay open", scene.disk.sim.open_files()));
        }
        if let Some(needed) = needed.filter(|_| !scene.poisoned) {
            needed.check(&scene.disk.names()).map_err(|e| format!("healed and closed: {e}"))?;
        }
    }
    scene.dir = Arc::new(FaultyDir::over_disk(&scene.disk.sim));
    scene.read_only = false;
    scene.open().map_err(|e| format!("the store does not open again: {e}"))?;
    let db = scene.db()?;
    let mut content = read_all(&db)?;
    if let Some(beside) = &scene.beside {
        beside.check(&scene.known(power), &mut content)?;
    }
    if power {
        scene.ledger.check_power_loss(&content).map_err(|e| format!("after a power loss: {e}"))?;
    } else {
        scene.ledger.check_reopened(&content).map_err(|e| format!("reopened: {e}"))?;
    }
    finish(scene, db)
}

/// A last write, verification, and the search for leaks.
fn finish(scene: &mut Scene, db: Db) -> Outcome {
    db.put_with(b"last", b"write", Durability::Sync).map_err(|e| format!("last write: {e}"))?;
    db.wait_idle().map_err(|e| format!("wait_idle: {e}"))?;
    let report = db.verify().map_err(|e| format!("verify: {e}"))?;
    if let Some(damage) = report.damages.first() {
        return Err(format!("verify: {damage}"));
    }
    let needed = Needed::by(&db);
    drop(db);
    let db = scene.db.take().ok_or("the store is not open")?;
    db.close().map_err(|e| format!("close: {e}"))?;
    needed.check(&scene.disk.names())?;
    if scene.disk.sim.open_files() > 0 {
        return Err(format!("{} files stay open", scene.disk.sim.open_files()));
    }
    Ok(())
}

/// The files that a store at rest needs.
struct Needed {
    /// Tables of runs.
    tables: BTreeSet<u64>,
    /// With those of buffer lists, which may be trimmed until the store is closed.
    all: BTreeSet<u64>,
    /// Log segments, with those that wait for the writer.
    segments: Vec<u64>,
    /// In slots there are no names: what is not needed is free at the next opening.
    in_slots: bool,
}

impl Needed {
    fn by(db: &Db) -> Self {
        let described = db.describe();
        let mut segments = described.log_segments;
        segments.extend(described.spare_log_segments);
        let levels = described.keyspaces.iter().flat_map(|keyspace| &keyspace.levels);
        let (mut tables, mut all) = (BTreeSet::new(), BTreeSet::new());
        for run in levels.flat_map(|level| &level.runs) {
            let listed = run.buffer.iter().flat_map(|list| &list.runs).flat_map(|run| &run.tables);
            tables.extend(run.tables.iter().map(|table| table.uid));
            all.extend(listed.map(|table| table.uid));
        }
        all.extend(&tables);
        let in_slots = db.slot_space().is_some();
        Self { tables, all, segments, in_slots }
    }

    /// Compares them with the names on the disk, where a closing may have added to the log.
    fn check(&self, names: &[String]) -> Outcome {
        if self.in_slots {
            return Ok(());
        }
        let count = |what: &str| names.iter().filter(|n| n.contains(what)).count() as u64;
        let segment = |name: &String| -> Option<u64> {
            name.strip_prefix("wal-")?.strip_suffix(".log")?.parse().ok()
        };
        let last = self.segments.iter().max().copied().unwrap_or(0);
        let is_needed = |number: u64| number > last || self.segments.contains(&number);
        let in_order = names.iter().filter_map(segment).all(is_needed);
        let uid = |name: &String| name.strip_suffix(".tbl")?.parse().ok();
        let there: BTreeSet<u64> = names.iter().filter_map(uid).collect();
        let are_right = self.tables.is_subset(&there)
            && there.is_subset(&self.all)
            && there.len() as u64 == count(".tbl");
        if !are_right || count("versions-") != 1 || count("tmp") > 0 || !in_order {
            return Err(format!(
                "tables {:?} of {:?} and the log segments {:?} are needed, but the files are \
                 {names:?}",
                self.tables, self.all, self.segments
            ));
        }
        Ok(())
    }
}

impl Scene {
    fn writes_if(&mut self, both: bool, count: u32) -> Outcome {
        if !both {
            return Ok(());
        }
        let before = self.ledger.entries.len();
        self.writes(count, Durability::Buffered)?;
        // A store may find out only now that it is poisoned: by the next edit of its tree.
        if self.poisoned || self.ledger.entries[before..].iter().all(|e| e.acknowledged) {
            return Ok(());
        }
        Err("healed and not poisoned, but writes are refused".into())
    }
}
