//! Callbacks that write, close the store, or panic, while the device fails.
//!
//! What must hold: each is called once, by the time that the store is closed; its outcome is what
//! the store shows when it is opened again; whatever it does, closing ends, and gives up the lock.

use std::sync::{Arc, Mutex};

use weir::sim::panic_as_planned;
use weir::{Db, Durability, ErrorKind, WriteBatch};

use super::beside::Beside;
use super::caught::{Caught, Outcome, caught, check_reason, lock, survived};
use super::scene::Scene;
use crate::ledger::{Entry, Item};
use crate::world;

/// What a callback does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    /// Every one writes a key of its own, and syncs it.
    Write,
    /// One of them closes the store.
    Close,
    /// Every one panics.
    Panic,
}

/// Commits with a callback in one run.
const COMMITS: usize = 12;

/// The commit whose callback closes the store.
const CLOSES: usize = 5;

/// The outcomes that callbacks got, by entry of the ledger, and what came of their closing.
#[derive(Default)]
struct Told {
    outcomes: Mutex<Vec<(usize, weir::Result<()>)>>,
    closed: Mutex<Option<weir::Result<()>>>,
}

/// Commits with callbacks, then closes the store.
pub(super) fn act(scene: &mut Scene, reaction: Reaction) -> Outcome {
    let db = scene.db()?;
    let beside = Arc::clone(scene.beside.get_or_insert_default());
    let told = Arc::new(Told::default());
    let first = scene.ledger.entries.len();
    for number in 0..COMMITS {
        let durability = if number % 3 == 2 { Durability::Buffered } else { Durability::Sync };
        let (batch, items) = batch(scene, &db, durability)?;
        let entry = scene.ledger.entries.len();
        scene.ledger.entries.push(Entry {
            items,
            acknowledged: false,
            durable: false,
            unlogged: false,
            deferred: false,
            void: false,
        });
        let (handle, told, beside) = (db.clone(), Arc::clone(&told), Arc::clone(&beside));
        let callback = move |outcome| {
            lock(&told.outcomes).push((entry, outcome));
            react(reaction, number, &handle, &told, &beside);
        };
        if survived(|| db.commit(batch, durability).on_done(callback)).is_none() {
            return Err("a panic comes out of a commit, or of its callback".into());
        }
    }
    let synced = caught(|| db.sync());
    scene.tolerate_closed("sync", synced, reaction)?;
    drop(db);
    end(scene, reaction, &told)?;
    let outcomes = std::mem::take(&mut *lock(&told.outcomes));
    take_over(scene, first, outcomes)?;
    let closed = lock(&told.closed).take();
    if closed.is_some_and(|closed| closed.is_ok()) {
        scene.ledger.closed();
    }
    Ok(())
}

/// A batch, and what the ledger holds of it.
fn batch(scene: &mut Scene, db: &Db, durability: Durability) -> Outcome<(WriteBatch, Vec<Item>)> {
    let count = if durability == Durability::Sync { 2 } else { 1 };
    let items = scene.some_items(count, 200, &["default", "second"]);
    let mut batch = WriteBatch::new();
    for (space, key, value) in &items {
        let space = match db.open_keyspace(space) {
            Ok(space) => space,
            // Closed by a callback: the whole batch is refused.
            Err(e) if e.kind() == ErrorKind::Closed => db.default_keyspace().clone(),
            Err(e) => return Err(format!("open {space}: {e}")),
        };
        match value {
            Some(value) => batch.put(&space, key, value),
            None => batch.delete(&space, key),
        }
    }
    Ok((batch, items))
}

fn react(reaction: Reaction, number: usize, db: &Db, told: &Told, beside: &Beside) {
    match reaction {
        Reaction::Write => {
            let key = format!("beside, of callback {number}").into_bytes();
            lock(&beside.by_callbacks).insert(key.clone(), false);
            let written = db.default_keyspace().put_with(&key, b"v", Durability::Sync);
            lock(&beside.by_callbacks).insert(key, written.is_ok());
        }
        Reaction::Close if number == CLOSES => {
            let closed = db.clone().close();
            *lock(&told.closed) = Some(closed);
        }
        Reaction::Close => {}
        Reaction::Panic => panic_as_planned(format!("callback {number}")),
    }
}

impl Scene {
    /// As `tolerate`, where a callback may have closed the store.
    fn tolerate_closed(
        &mut self,
        what: &'static str,
        result: Caught<()>,
        reaction: Reaction,
    ) -> Outcome {
        match result {
            Caught::Returned(Err(e))
                if reaction == Reaction::Close && e.kind() == ErrorKind::Closed => {}
            result => {
                self.tolerate(what, result)?;
            }
        }
        Ok(())
    }
}

/// Closes the store, or sees it closed. Then all callbacks have been called.
fn end(scene: &mut Scene, reaction: Reaction, told: &Told) -> Outcome {
    if reaction == Reaction::Close {
        // A commit completes without a waiter, so this ends.
        while lock(&told.closed).is_none() || lock(&told.outcomes).len() < COMMITS {
            world::delay_millis(1_000);
        }
        let db = scene.db.take().ok_or("the store is not open")?;
        // A second close has nothing to say about the first one.
        return db.close().map_err(|e| format!("a second close fails: {e}"));
    }
    let db = scene.db.take().ok_or("the store is not open")?;
    let closed = caught(|| db.close());
    let clean = closed.is_ok();
    scene.tolerate("close", closed)?;
    if clean {
        *lock(&told.closed) = Some(Ok(()));
    }
    let called = lock(&told.outcomes).len();
    if called != COMMITS {
        return Err(format!(
            "the store is closed, and {called} callbacks of {COMMITS} were called"
        ));
    }
    Ok(())
}

/// Enters the outcomes of callbacks in the ledger.
fn take_over(scene: &mut Scene, first: usize, outcomes: Vec<(usize, weir::Result<()>)>) -> Outcome {
    let mut seen = std::collections::BTreeSet::new();
    for (at, outcome) in outcomes {
        if !seen.insert(at) {
            return Err(format!("the callback of commit {} was called twice", at - first));
        }
        let entry = &mut scene.ledger.entries[at];
        match outcome {
            Ok(()) => {
                scene.callbacks.0 += 1;
                entry.acknowledged = true;
                // All but each third one.
                entry.durable = (at - first) % 3 != 2;
            }
            Err(error) => {
                scene.callbacks.1 += 1;
                // It was refused: nothing of it may be there.
                if error.kind() == ErrorKind::Closed {
                    entry.items.clear();
                }
                check_reason(scene.faults().panicked().len(), &error)?;
            }
        }
    }
    Ok(())
}
