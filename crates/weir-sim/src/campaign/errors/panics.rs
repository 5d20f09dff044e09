//! Panics in place of errors: every device call panics once, on whatever thread it is made.
//!
//! Such a run has others beside the action, so that there is somebody who waits: two writers, one
//! who flushes and waits for background work, and a reader. What must hold: the panic comes out of
//! a read or an opening on the user's own thread, and leaves the store as it was; any other poisons
//! the store, and whoever is refused is told of the panic; everybody comes to an end; and what was
//! acknowledged is there, as after an error.
//!
//! The keys of the others begin with `beside`. Each writer has one, with a number that grows.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir::sim::PlannedPanic;

use crate::model::show;

use super::*;

/// What became of the panics of all runs.
#[derive(Clone, Debug, Default)]
pub struct Panics {
    /// That hit a user's thread.
    pub users: u64,
    /// That hit a thread of the store.
    pub background: u64,
    /// Runs in which the store was poisoned by one.
    pub poisoned: u64,
    /// That came out of a call, by the call.
    pub came_out: BTreeMap<&'static str, u64>,
}

impl Panics {
    pub(super) fn add(&mut self, threads: &[String], out: Option<&'static str>, poisoned: bool) {
        let background = threads.iter().filter(|name| name.starts_with("weir-")).count() as u64;
        self.background += background;
        self.users += threads.len() as u64 - background;
        self.poisoned += u64::from(poisoned && !threads.is_empty());
        if let Some(call) = out {
            *self.came_out.entry(call).or_default() += 1;
        }
    }
}

/// How a call ended.
pub(super) enum Caught<T> {
    Returned(weir::Result<T>),
    /// With an injected panic.
    Panic,
}

impl<T> Caught<T> {
    pub(super) fn is_ok(&self) -> bool {
        matches!(self, Self::Returned(Ok(_)))
    }
}

/// Runs `call`; a panic that was not injected goes on.
pub(super) fn caught<T>(call: impl FnOnce() -> weir::Result<T>) -> Caught<T> {
    survived(call).map_or(Caught::Panic, Caught::Returned)
}

/// What `call` returns; `None` if an injected panic comes out of it.
pub(super) fn survived<T>(call: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(value) => Some(value),
        Err(payload) if payload.is::<PlannedPanic>() => None,
        Err(bug) => resume_unwind(bug),
    }
}

/// A store that was poisoned by a panic says so.
pub(super) fn check_reason(panics: usize, error: &weir::Error) -> Outcome {
    if panics > 0 && error.kind() == ErrorKind::Poisoned && !error.to_string().contains("injected")
    {
        return Err(format!("the store is poisoned by a panic and does not tell of it: {error}"));
    }
    Ok(())
}

/// Calls that change nothing: a panic that comes out of one poisons nothing.
const READS: [&str; 5] = ["open", "reading", "get", "verify", "reading beside"];

impl Scene {
    /// What must become of a store in which a panic was injected.
    pub(super) fn panic_verdict(&self) -> Verdict {
        match self.came_out_of() {
            Some(call) if READS.contains(&call) => Verdict::Heals,
            _ => Verdict::Poisons,
        }
    }

    /// The call that a panic came out of.
    pub(super) fn came_out_of(&self) -> Option<&'static str> {
        self.panicked_in.or_else(|| *lock(&self.beside.as_ref()?.panicked_in))
    }
}

/// What others do beside an action, and what is known of it.
#[derive(Default)]
pub(super) struct Beside {
    /// The writers' last numbers.
    writers: [Numbers; 2],
    /// Keys that callbacks wrote, and whether they were told that it is durable.
    pub(super) by_callbacks: Mutex<BTreeMap<Vec<u8>, bool>>,
    panicked_in: Mutex<Option<&'static str>>,
    complaints: Mutex<Vec<String>>,
}

/// What the others were told, at some moment.
#[derive(Default)]
pub(super) struct Known {
    /// The writers' numbers.
    least: [u64; 2],
    by_callbacks: Vec<Vec<u8>>,
}

#[derive(Default)]
struct Numbers {
    begun: AtomicU64,
    acknowledged: AtomicU64,
}

const DURABILITIES: [Durability; 2] = [Durability::Sync, Durability::Buffered];

fn writer_key(writer: usize) -> Vec<u8> {
    format!("beside {writer}").into_bytes()
}

impl Beside {
    /// What must be there from now on, also after a power loss if so.
    pub(super) fn known(&self, power_loss: bool) -> Known {
        let least = [0, 1].map(|writer| {
            let lost = power_loss && DURABILITIES[writer] != Durability::Sync;
            if lost { 0 } else { self.acknowledged(writer) }
        });
        let by_callbacks = lock(&self.by_callbacks);
        let durable = by_callbacks.iter().filter(|(_, durable)| **durable);
        Known { least, by_callbacks: durable.map(|(key, _)| key.clone()).collect() }
    }

    /// Checks what is there of the keys of all these, and takes it out of `content`, which was read
    /// after `known`.
    pub(super) fn check(&self, known: &Known, content: &mut Content) -> Outcome {
        let Some(pairs) = content.get_mut("default") else { return Ok(()) };
        let mine: BTreeMap<Vec<u8>, Vec<u8>> =
            pairs.extract_if(.., |(key, _)| key.starts_with(b"beside")).collect();
        for (writer, least) in known.least.into_iter().enumerate() {
            let found = number(mine.get(&writer_key(writer)).map(Vec::as_slice));
            self.check_number(writer, least, found)?;
        }
        match known.by_callbacks.iter().find(|key| !mine.contains_key(*key)) {
            Some(key) => Err(format!("what a callback wrote is lost: {}", show(key))),
            None => Ok(()),
        }
    }

    fn acknowledged(&self, writer: usize) -> u64 {
        self.writers[writer].acknowledged.load(Ordering::SeqCst)
    }

    fn check_number(&self, writer: usize, least: u64, found: u64) -> Outcome {
        let begun = self.writers[writer].begun.load(Ordering::SeqCst);
        if (least..=begun).contains(&found) {
            return Ok(());
        }
        Err(format!("beside, {writer}: number {found}; acknowledged {least}, begun {begun}"))
    }

    /// Whether the call succeeded. One that fails may do so as in a poisoned or closed store.
    fn tolerate<T>(&self, what: &'static str, result: Caught<T>) -> bool {
        match result {
            Caught::Returned(Ok(_)) => return true,
            Caught::Returned(Err(e))
                if matches!(e.kind(), ErrorKind::Poisoned | ErrorKind::Closed) => {}
            Caught::Returned(Err(e)) => lock(&self.complaints).push(format!("{what}: {e}")),
            Caught::Panic => *lock(&self.panicked_in) = Some(what),
        }
        false
    }

    fn write(&self, db: &Db, writer: usize) {
        let numbers = &self.writers[writer];
        for n in 1..=6u64 {
            numbers.begun.store(n, Ordering::SeqCst);
            let mut batch = WriteBatch::new();
            batch.put(db.default_keyspace(), writer_key(writer), n.to_le_bytes());
            let durability = DURABILITIES[writer];
            let result = match n % 3 {
                0 => caught(|| db.commit(batch, durability).wait()),
                _ => caught(|| db.write(batch, durability)),
            };
            if self.tolerate("write beside", result) {
                numbers.acknowledged.store(n, Ordering::SeqCst);
            }
        }
    }

    fn wait(&self, db: &Db) {
        for _ in 0..2 {
            self.tolerate("flush beside", caught(|| db.flush()));
            self.tolerate("wait_idle beside", caught(|| db.wait_idle()));
            self.tolerate("sync beside", caught(|| db.sync()));
        }
    }

    fn read(&self, db: &Db) {
        for turn in 0..4 {
            let writer = turn % 2;
            let (key, least) = (writer_key(writer), self.acknowledged(writer));
            let mut found = None;
            let read = || {
                found = match turn {
                    0 | 1 => db.get(&key)?.map(|v| v.to_vec()),
                    _ => db.snapshot().get(db.default_keyspace(), &key)?.map(|v| v.to_vec()),
                };
                db.iter().try_for_each(|pair| pair.map(drop))
            };
            if self.tolerate("reading beside", caught(read))
                && let Err(why) = self.check_number(writer, least, number(found.as_deref()))
            {
                lock(&self.complaints).push(why);
            }
        }
    }
}

fn number(value: Option<&[u8]>) -> u64 {
    value.and_then(|v| v.first_chunk::<8>()).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The action, with others beside it if the store is open. All of them must come to an end.
pub(super) fn act_among_others(scene: &mut Scene, scenario: Scenario) -> Outcome {
    let Some(db) = scene.db.clone() else { return act(scene, scenario) };
    let beside = Arc::new(Beside::default());
    scene.beside = Some(Arc::clone(&beside));
    type Role = fn(&Beside, &Db);
    let roles: [(&str, Role); 4] = [
        ("writer beside", |beside, db| beside.write(db, 0)),
        ("other writer beside", |beside, db| beside.write(db, 1)),
        ("waiter beside", Beside::wait),
        ("reader beside", Beside::read),
    ];
    let start = |(name, role): (&str, Role)| {
        let (beside, db) = (Arc::clone(&beside), db.clone());
        world::spawn(name, move || role(&beside, &db))
    };
    let actors: Vec<_> = roles.into_iter().map(start).collect();
    drop(db);
    let acted = act(scene, scenario);
    for actor in actors {
        actor?.join();
    }
    acted?;
    lock(&beside.complaints).pop().map_or(Ok(()), Err)
}
