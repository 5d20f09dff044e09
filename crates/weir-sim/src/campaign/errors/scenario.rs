//! The scenarios: a prepared store and an action.

use weir::{Db, Durability};

use super::callbacks::{self, Reaction};
use super::caught::{Outcome, caught};
use super::scene::{Scene, levels, options};
use crate::history::{Content, read_all};
use crate::ledger::{Entry, Ledger};
use crate::op::key_bytes;
use crate::world::Disk;

/// A prepared store and what is done to it under faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scenario {
    Create,
    OpenClean,
    OpenCrashed,
    OpenReadOnly,
    Write,
    WriteSync,
    BigBatch,
    Flush,
    Compact,
    Load,
    BaseRewrite,
    Keyspaces,
    Iterate,
    Verify,
    Close,
    Callbacks(Reaction),
}

/// All of them, with their names.
pub(super) const SCENARIOS: [(Scenario, &str); 18] = [
    (Scenario::Create, "create"),
    (Scenario::OpenClean, "open"),
    (Scenario::OpenCrashed, "open after a crash"),
    (Scenario::OpenReadOnly, "open for reading"),
    (Scenario::Write, "write"),
    (Scenario::WriteSync, "write and sync"),
    (Scenario::BigBatch, "batch larger than a segment"),
    (Scenario::Flush, "flush"),
    (Scenario::Compact, "compact"),
    (Scenario::Load, "flushes and merges under load"),
    (Scenario::BaseRewrite, "base rewrite"),
    (Scenario::Keyspaces, "create and drop keyspaces"),
    (Scenario::Iterate, "get and iterate"),
    (Scenario::Verify, "verify"),
    (Scenario::Close, "close"),
    (Scenario::Callbacks(Reaction::Write), "callbacks that write"),
    (Scenario::Callbacks(Reaction::Close), "callbacks that close"),
    (Scenario::Callbacks(Reaction::Panic), "callbacks that panic"),
];

/// A disk and a ledger to begin with.
pub(super) fn prepare(scenario: Scenario) -> Outcome<(Disk, Ledger)> {
    let mut scene = Scene::new(Disk::new(), Ledger::default());
    if scenario == Scenario::Create {
        return Ok((scene.disk, scene.ledger));
    }
    scene.open().map_err(|e| format!("prepare: {e}"))?;
    let db = scene.db()?;
    db.keyspace_with("second", options().1).map_err(|e| format!("prepare: {e}"))?;
    scene.ledger.spaces.insert("second");
    scene.writes(150, Durability::Buffered)?;
    db.flush().and_then(|()| db.wait_idle()).map_err(|e| format!("prepare: {e}"))?;
    scene.writes(20, Durability::Sync)?;
    drop(db);
    if scenario == Scenario::OpenCrashed {
        scene.writes(20, Durability::Buffered)?;
        let crashed = scene.disk.power_loss(2, 5);
        let content = {
            scene.db = None;
            let mut after = Scene::new(crashed.kill(), Ledger::default());
            after.open().map_err(|e| format!("prepare: {e}"))?;
            let content = read_all(&after.db()?)?;
            after.close()?;
            content
        };
        scene.ledger.check_power_loss(&content)?;
        // What survived is what the ledger begins with.
        let mut ledger = Ledger { spaces: scene.ledger.spaces.clone(), ..Ledger::default() };
        for (space, pairs) in content {
            let space = if space == "default" { "default" } else { "second" };
            let items = pairs.into_iter().map(|(k, v)| (space, k, Some(v))).collect();
            ledger.entries.push(Entry {
                items,
                acknowledged: true,
                durable: true,
                unlogged: false,
                void: false,
            });
        }
        return Ok((crashed, ledger));
    }
    scene.close()?;
    Ok((scene.disk.power_loss(1, 0), scene.ledger))
}

/// Whether faults begin before the store is opened.
pub(super) fn opens_under_faults(scenario: Scenario) -> bool {
    use Scenario::{Create, OpenClean, OpenCrashed, OpenReadOnly};
    matches!(scenario, Create | OpenClean | OpenCrashed | OpenReadOnly)
}

/// The action, under faults.
pub(super) fn act(scene: &mut Scene, scenario: Scenario) -> Outcome {
    if opens_under_faults(scenario) {
        scene.read_only = scenario == Scenario::OpenReadOnly;
        let opened = caught(|| scene.open());
        if scene.tolerate("open", opened)?.is_some() {
            scene.look()?;
        }
        return Ok(());
    }
    let db = scene.db()?;
    let all: (std::ops::Bound<Vec<u8>>, std::ops::Bound<Vec<u8>>) =
        (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    match scenario {
        Scenario::Write => scene.writes(40, Durability::Buffered)?,
        Scenario::WriteSync => {
            scene.writes(12, Durability::Sync)?;
            scene.writes(3, Durability::Buffered)?;
            let result = caught(|| db.sync());
            match scene.tolerate("sync", result)? {
                Some(()) => scene.ledger.all_durable(),
                None => scene.sync_failed = true,
            }
        }
        Scenario::BigBatch => {
            let items = scene.some_items(60, 600, &["default", "second"]);
            scene.write(items, Durability::Buffered)?;
            let items = scene.some_items(40, 600, &["second"]);
            scene.write(items, Durability::Sync)?;
            scene.writes(3, Durability::Buffered)?;
        }
        Scenario::Flush => {
            scene.writes(10, Durability::Buffered)?;
            let result = caught(|| db.flush());
            scene.tolerate("flush", result)?;
            scene.writes(3, Durability::Buffered)?;
        }
        Scenario::Compact => {
            let result = caught(|| db.compact_range(all.clone()));
            scene.tolerate("compact", result)?;
            let second = db.open_keyspace("second").map_err(|e| e.to_string())?;
            let result = caught(|| second.compact_range(all));
            scene.tolerate("compact", result)?;
        }
        Scenario::Load => {
            scene.writes(180, Durability::Buffered)?;
            let result = caught(|| db.wait_idle());
            scene.tolerate("wait_idle", result)?;
        }
        Scenario::BaseRewrite => {
            let second = db.open_keyspace("second").map_err(|e| e.to_string())?;
            for n in 0..60u64 {
                let changed = options().1.compaction(levels(2 + (n % 8) as u32));
                let result = caught(|| second.set_options(changed));
                scene.tolerate("set options", result)?;
            }
        }
        Scenario::Keyspaces => keyspaces(scene, &db)?,
        Scenario::Iterate => {
            for _ in 0..2 {
                scene.look()?;
                points(scene, &db)?;
            }
        }
        Scenario::Verify => {
            let result = caught(|| db.verify());
            scene.tolerate("verify", result)?;
        }
        Scenario::Close => {
            let items = scene.some_items(4, 100, &["second"]);
            scene.write(items, Durability::None)?;
            scene.writes(3, Durability::Buffered)?;
            drop(db);
            return scene.close();
        }
        Scenario::Callbacks(reaction) => {
            drop(db);
            return callbacks::act(scene, reaction);
        }
        _ => {}
    }
    scene.look()
}

fn keyspaces(scene: &mut Scene, db: &Db) -> Outcome {
    for name in ["x", "y"] {
        let made = caught(|| db.create_keyspace(name, options().1));
        match scene.tolerate("create keyspace", made)? {
            Some(_) => {
                scene.ledger.spaces.insert(name);
                let items = scene.some_items(5, 100, &[name]);
                scene.write(items, Durability::Sync)?;
                let items = scene.some_items(5, 100, &["default", name]);
                scene.write(items, Durability::Buffered)?;
            }
            None => {
                scene.ledger.unsure.insert(name);
            }
        }
    }
    if scene.ledger.spaces.contains("x") {
        let dropped = caught(|| db.drop_keyspace("x"));
        match scene.tolerate("drop keyspace", dropped)? {
            Some(()) => {
                scene.ledger.spaces.remove("x");
                scene.ledger.unsure.remove("x");
            }
            None => {
                scene.ledger.unsure.insert("x");
            }
        }
    }
    Ok(())
}

/// Point reads: right or an error.
pub(super) fn points(scene: &mut Scene, db: &Db) -> Outcome {
    let mut content = Content::new();
    for name in ["default", "second"] {
        let space = db.open_keyspace(name).map_err(|e| e.to_string())?;
        let mut pairs = Vec::new();
        for id in 0..64 {
            let key = key_bytes(id);
            match scene.tolerate("get", caught(|| space.get(&key)))? {
                Some(Some(value)) => pairs.push((key, value.to_vec())),
                Some(None) => {}
                None => return Ok(()),
            }
        }
        pairs.sort();
        pairs.dedup();
        content.insert(name.to_owned(), pairs);
    }
    scene.ledger.check_live(&content)
}
