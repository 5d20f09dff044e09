//! The scenarios: a prepared store and an action.

use std::time::Duration;

use weir::{CompactionBuffer, CompactionPolicy, Db, Durability, PartsOptions, TrimOptions};

use super::callbacks::{self, Reaction};
use super::caught::{Outcome, caught};
use super::scene::{Scene, levels, options};
use crate::history::{Content, read_all};
use crate::ledger::{Entry, Ledger};
use crate::op::key_bytes;
use crate::world::{self, Disk};

/// A prepared store and what is done to it under faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scenario {
    Create,
    OpenClean,
    OpenCrashed,
    OpenReadOnly,
    Write,
    WriteSync,
    WriteDeferred,
    BigBatch,
    Flush,
    Compact,
    Load,
    BaseRewrite,
    Keyspaces,
    Iterate,
    Verify,
    Close,
    ListAppend,
    ListTrim,
    Sentinel,
    Callbacks(Reaction),
}

/// All of them, with their names.
pub(super) const SCENARIOS: [(Scenario, &str); 22] = [
    (Scenario::Create, "create"),
    (Scenario::OpenClean, "open"),
    (Scenario::OpenCrashed, "open after a crash"),
    (Scenario::OpenReadOnly, "open for reading"),
    (Scenario::Write, "write"),
    (Scenario::WriteSync, "write and sync"),
    (Scenario::WriteDeferred, "write deferred"),
    (Scenario::BigBatch, "batch larger than a segment"),
    (Scenario::Flush, "flush"),
    (Scenario::Compact, "compact"),
    (Scenario::Load, "flushes and merges under load"),
    (Scenario::BaseRewrite, "base rewrite"),
    (Scenario::Keyspaces, "create and drop keyspaces"),
    (Scenario::Iterate, "get and iterate"),
    (Scenario::Verify, "verify"),
    (Scenario::Close, "close"),
    (Scenario::ListAppend, "append to buffer lists"),
    (Scenario::ListTrim, "trim buffer lists"),
    (Scenario::Sentinel, "build sentinels"),
    (Scenario::Callbacks(Reaction::Write), "callbacks that write"),
    (Scenario::Callbacks(Reaction::Close), "callbacks that close"),
    (Scenario::Callbacks(Reaction::Panic), "callbacks that panic"),
];

/// The time from one look at buffer lists to the next, where they are trimmed.
const TRIM_MILLIS: u64 = 100;

/// The buffer of the keyspaces. There is no cache, so that all is trimmed but what came last.
fn buffer(scenario: Scenario) -> CompactionBuffer {
    match scenario {
        Scenario::ListAppend | Scenario::Sentinel => CompactionBuffer::Cascade,
        Scenario::ListTrim => {
            TrimOptions::default().interval(Duration::from_millis(TRIM_MILLIS)).into()
        }
        _ => CompactionBuffer::Off,
    }
}

/// A disk and a ledger to begin with.
pub(super) fn prepare(scenario: Scenario) -> Outcome<(Disk, Ledger)> {
    let mut scene = Scene::new(Disk::new(), Ledger::default());
    if scenario == Scenario::Create {
        return Ok((scene.disk, scene.ledger));
    }
    scene.open().map_err(|e| format!("prepare: {e}"))?;
    let db = scene.db()?;
    let buffer = buffer(scenario);
    let mut ks = options().1.compaction_buffer(buffer);
    if buffer != CompactionBuffer::Off {
        let parts = PartsOptions::default().base_level_bytes(4 << 10).level_ratio(2);
        ks = ks.compaction(CompactionPolicy::Gear(parts.l0_trigger(1)));
        let changed = db.default_keyspace().set_options(ks.clone());
        changed.map_err(|e| format!("prepare: {e}"))?;
    }
    db.keyspace_with("second", ks).map_err(|e| format!("prepare: {e}"))?;
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
                deferred: false,
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
    match scenario {
        Scenario::Write => scene.writes(40, Durability::Buffered)?,
        Scenario::WriteSync => {
            scene.writes(12, Durability::Sync)?;
            scene.writes(3, Durability::Buffered)?;
            sync(scene, &db)?;
        }
        Scenario::WriteDeferred => deferred(scene, &db)?,
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
        Scenario::Compact => compact(scene, &db)?,
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
        Scenario::ListAppend => append_to_lists(scene, &db)?,
        Scenario::ListTrim => trim_lists(scene, &db)?,
        Scenario::Sentinel => build_sentinels(scene, &db)?,
        Scenario::Callbacks(reaction) => {
            drop(db);
            return callbacks::act(scene, reaction);
        }
        _ => {}
    }
    scene.look()
}

/// Syncs the store.
fn sync(scene: &mut Scene, db: &Db) -> Outcome {
    let result = caught(|| db.sync());
    match scene.tolerate("sync", result)? {
        Some(()) => scene.ledger.all_durable(),
        None => scene.sync_failed = true,
    }
    Ok(())
}

/// Deferred writes that go out with a stronger one, with a sync, with a flush, by their number, and
/// with the end of the store.
fn deferred(scene: &mut Scene, db: &Db) -> Outcome {
    scene.writes(12, Durability::Deferred)?;
    scene.writes(2, Durability::Buffered)?;
    scene.writes(12, Durability::Deferred)?;
    sync(scene, db)?;
    scene.writes(5, Durability::Deferred)?;
    let result = caught(|| db.flush());
    if scene.tolerate("flush", result)?.is_some() {
        scene.ledger.all_written();
    }
    let items = scene.some_items(60, 600, &["default", "second"]);
    scene.write(items, Durability::Deferred)?;
    scene.writes(5, Durability::Deferred)
}

fn compact(scene: &mut Scene, db: &Db) -> Outcome {
    let second = db.open_keyspace("second").map_err(|e| e.to_string())?;
    for space in [db.default_keyspace(), &second] {
        let result = caught(|| space.compact_range(..));
        scene.tolerate("compact", result)?;
    }
    Ok(())
}

fn append_to_lists(scene: &mut Scene, db: &Db) -> Outcome {
    scene.writes(120, Durability::Buffered)?;
    let result = caught(|| db.wait_idle());
    scene.tolerate("wait_idle", result)?;
    if scene.faults().injected_total() == 0 && listed_tables(db) == 0 {
        return Err("nothing was appended to a list".into());
    }
    points(scene, db)
}

/// Sentinels over a part of all and over all, with what is written between them sinking past them.
fn build_sentinels(scene: &mut Scene, db: &Db) -> Outcome {
    let second = db.open_keyspace("second").map_err(|e| e.to_string())?;
    for space in [db.default_keyspace(), &second] {
        let result = caught(|| space.build_sentinel(.."m"));
        scene.tolerate("sentinel", result)?;
        scene.writes(20, Durability::Buffered)?;
        let result = caught(|| space.flush());
        scene.tolerate("flush", result)?;
        let result = caught(|| space.build_sentinel(..));
        scene.tolerate("sentinel", result)?;
        points(scene, db)?;
    }
    let result = caught(|| db.wait_idle());
    scene.tolerate("wait_idle", result)?;
    if scene.faults().injected_total() == 0 && db.metrics().sentinels_built == 0 {
        return Err("no sentinel was built".into());
    }
    points(scene, db)
}

fn trim_lists(scene: &mut Scene, db: &Db) -> Outcome {
    for _ in 0..4 {
        scene.writes(30, Durability::Buffered)?;
        // For some looks: one of them in vain after a fault, or after a change.
        world::delay_millis(3 * TRIM_MILLIS);
    }
    if scene.faults().injected_total() == 0 && db.metrics().tables_trimmed == 0 {
        return Err("no table was trimmed".into());
    }
    points(scene, db)
}

/// Tables in buffer lists.
pub(super) fn listed_tables(db: &Db) -> u64 {
    let levels = db.metrics().keyspaces.into_iter().flat_map(|keyspace| keyspace.levels);
    levels.map(|level| level.buffered_tables).sum()
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
