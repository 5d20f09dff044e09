//! A keyspace that is created, used and dropped while other actors create, read and flush it, and
//! while this one writes into the default keyspace and flushes all that there is.
//!
//! Nothing of it is left at the end: the models of the run know the writes to the default keyspace
//! only. A reader may get one of two answers: the value, or that the keyspace was dropped.

use std::sync::{Arc, Mutex};

use weir::sim::{Effect, Fault, FileClass, OpKind, Times};
use weir::{Db, Durability, ErrorKind, Keyspace, Options, Snapshot};

use super::{Checked, Runner, lock};
use crate::op::{Val, key_bytes};
use crate::world::{self, ActorHandle};

/// Its name; no slot has it.
const NAME: &str = "beside";

/// Keys that are put into it, and into the default keyspace at a time.
const KEYS: u32 = 6;

/// How many times all keyspaces are flushed while it is created, at most.
const FLUSHES_MAX: u32 = 6;

/// Values that one such operation writes.
pub const VALUES_BESIDE: u32 = KEYS * (FLUSHES_MAX + 1);

/// How long the version set is held while the keyspace is created, in virtual milliseconds.
const HELD_MILLIS: u64 = 200;

type Found = weir::Result<Option<Vec<u8>>>;

/// What one key is said to be, in each of the ways to ask.
fn lookups(space: &Keyspace, snapshot: &Snapshot, key: &[u8]) -> Vec<(&'static str, Found)> {
    let bytes = |found: Option<weir::Value>| found.map(|v| v.to_vec());
    let first = |found: Vec<Option<weir::Value>>| found.into_iter().next().and_then(bytes);
    let mut buffer = Vec::new();
    let into = space.get_into(key, &mut buffer);
    let walked = snapshot.prefix(space, key).next().transpose();
    vec![
        ("get", space.get(key).map(bytes)),
        ("get_into", into.map(|found| found.then_some(buffer))),
        ("multi_get", space.multi_get(&[key]).map(first)),
        ("get of a snapshot", snapshot.get(space, key).map(bytes)),
        ("multi_get of a snapshot", snapshot.multi_get(space, &[key]).map(first)),
        ("walk of a snapshot", walked.map(|kv| kv.map(|(_, value)| value.to_vec()))),
    ]
}

/// Reads every key, in each of the ways.
fn read(space: &Keyspace, snapshot: &Snapshot, keys: &[Vec<u8>], value: &[u8]) -> Checked {
    for (what, found) in keys.iter().flat_map(|key| lookups(space, snapshot, key)) {
        match found {
            Ok(Some(found)) if found == value => {}
            Err(error) if error.kind() == ErrorKind::Closed => {}
            other => return Err(format!("{what} beside a drop gives {other:?}")),
        }
    }
    Ok(())
}

impl Runner {
    /// See [`Op::Beside`](crate::op::Op::Beside).
    pub(super) fn beside(&mut self, key: u32, val: Val, number: u32) -> Checked {
        if crate::world::device_bytes().is_some() {
            // What it says of the log and of options, it says of stores that take every write.
            return Ok(());
        }
        let db = self.db()?.clone();
        let space = self.created_twice(&db, key, val, number)?;
        let keys: Vec<Vec<u8>> = (0..KEYS).map(|n| key_bytes(key + n)).collect();
        let value = Val { len: val.len % 200, ..val }.bytes();
        for key in &keys {
            space.put(key, &value).map_err(|e| format!("put: {e}"))?;
        }
        let snapshot = db.snapshot();
        let failed = Arc::new(Mutex::new(None));
        let spawn = |name: &str, body: Box<dyn FnOnce() -> Checked + Send>| {
            let failed = Arc::clone(&failed);
            world::spawn(name, move || {
                if let Err(why) = body() {
                    lock(&failed).get_or_insert(why);
                }
            })
        };
        let mut actors = Vec::new();
        for name in ["reader", "second reader"] {
            let (space, snapshot) = (space.clone(), snapshot.clone());
            let (keys, value) = (keys.clone(), value.clone());
            actors.push(spawn(name, Box::new(move || read(&space, &snapshot, &keys, &value)))?);
        }
        let flushed = space.clone();
        let flush = move || match flushed.flush() {
            Err(error) if error.kind() != ErrorKind::Closed => Err(format!("flush: {error}")),
            _ => Ok(()),
        };
        actors.push(spawn("flusher", Box::new(flush))?);
        let val = Val { id: val.id + KEYS * FLUSHES_MAX, ..val };
        self.put_beside(key + KEYS, val, Durability::Buffered)?;
        db.drop_keyspace(NAME).map_err(|e| format!("drop_keyspace: {e}"))?;
        self.acknowledge(Durability::Sync);
        for actor in actors {
            actor.join();
        }
        lock(&failed).take().map_or(Ok(()), Err)?;
        self.log_is_whole(&db)
    }

    /// Two actors create the keyspace: one must succeed. Meanwhile this one fills log segments and
    /// flushes every keyspace, so that only the new one needs the log where it begins (H38).
    fn created_twice(&mut self, db: &Db, key: u32, val: Val, number: u32) -> Checked<Keyspace> {
        let create = |name| {
            let created = Arc::new(Mutex::new(None));
            let (slot, db) = (Arc::clone(&created), db.clone());
            let actor = world::spawn(name, move || {
                let created = db.create_keyspace(NAME, crate::options::keyspace(number));
                *lock(&slot) = Some(created.map(drop));
            });
            actor.map(|actor| (actor, created))
        };
        let holder = if number.is_multiple_of(2) { Some(self.hold_the_set(db)?) } else { None };
        let creators = [create("creator")?, create("second creator")?];
        for n in 0..FLUSHES_MAX {
            // Synced, each of them takes a page of the log.
            let val = Val { id: val.id + KEYS * n, ..val };
            self.put_beside(key, val, Durability::Sync)?;
            db.flush().map_err(|e| format!("flush: {e}"))?;
            // A flush releases the log after its publication, and the next one may make
            // good what this one did wrong.
            db.wait_idle().map_err(|e| format!("wait_idle: {e}"))?;
            self.log_is_whole(db)?;
            if creators.iter().all(|(_, created)| lock(created).is_some()) {
                break;
            }
        }
        if let Some((holder, before)) = holder {
            holder.join();
            self.faults.heal();
            let restored = db.default_keyspace().set_options(before);
            restored.map_err(|e| format!("options as before: {e}"))?;
        }
        let [first, second] = creators.map(|(actor, created)| {
            actor.join();
            lock(&created).take().unwrap_or(Ok(()))
        });
        let lost = |created: &weir::Result<()>| {
            created.as_ref().is_err_and(|e| e.kind() == ErrorKind::Conflict)
        };
        if !(first.is_ok() && lost(&second) || second.is_ok() && lost(&first)) {
            return Err(format!("one keyspace was created twice: {first:?} and {second:?}"));
        }
        self.log_is_whole(db)?;
        db.open_keyspace(NAME).map_err(|e| format!("open_keyspace: {e}"))
    }

    /// An actor changes the default keyspace's options, and the device takes long for it: what is
    /// to be installed meanwhile, a creation and a flush, waits for the version set, and who is
    /// next is the seed's choice. The actor, and the options as they were.
    fn hold_the_set(&self, db: &Db) -> Checked<(ActorHandle, Options)> {
        let before = db.default_keyspace().options();
        let mut changed = before.clone();
        // The last entry repeats: written out, it changes nothing but the stored options.
        changed.compression.extend(before.compression.last());
        self.faults.arm(Fault {
            op: Some(OpKind::Sync),
            class: Some(FileClass::Versions),
            after: 0,
            times: Times::Once,
            effect: Effect::Stall(HELD_MILLIS),
        });
        let db = db.clone();
        let actor = world::spawn("changer", move || {
            // It only takes time: whether it is refused shows in what comes back.
            drop(db.default_keyspace().set_options(changed));
        })?;
        // Until it has the version set.
        world::delay_millis(1);
        Ok((actor, before))
    }

    fn put_beside(&mut self, key: u32, val: Val, durability: Durability) -> Checked {
        for n in 0..KEYS {
            let val = Val { id: val.id + n, ..val };
            self.put(0, key + n, val, durability)?;
        }
        Ok(())
    }

    /// No keyspace needs a part of the log that is gone. (A store that was never flushed needs it
    /// from segment 0 on, which never existed.)
    fn log_is_whole(&self, db: &Db) -> Checked {
        // Twice, because a flush may release a part between two looks: what there was before is
        // enough for what is needed after.
        let before = db.describe();
        let Some(first) = before.log_segments.first().copied() else { return Ok(()) };
        let described = db.describe();
        let lacks = |start: u64| start != 0 && start < first;
        match described.keyspaces.iter().find(|k| lacks(k.log_start_segment)) {
            None => Ok(()),
            Some(k) => Err(format!(
                "keyspace {} needs the log from segment {} on, it begins with {first}",
                k.name, k.log_start_segment
            )),
        }
    }
}
