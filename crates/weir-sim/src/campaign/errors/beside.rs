//! Actors beside an action: two writers, one that flushes and waits for background work, and
//! a reader.
//!
//! Their keys begin with `beside`. Each writer has one, with a number that grows.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use weir::{Db, Durability, ErrorKind, WriteBatch};

use super::caught::{Caught, Outcome, caught, lock};
use crate::history::Content;
use crate::model::show;

/// What others do beside an action, and what is known of it.
#[derive(Default)]
pub(super) struct Beside {
    /// The writers' last numbers.
    writers: [Numbers; 2],
    /// Keys that callbacks wrote, and whether they were acknowledged as durable.
    pub(super) by_callbacks: Mutex<BTreeMap<Vec<u8>, bool>>,
    panicked_in: Mutex<Option<&'static str>>,
    complaints: Mutex<Vec<String>>,
}

/// The acknowledgements that the actors had at some moment.
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
    /// The call that a panic came out of.
    pub(super) fn came_out_of(&self) -> Option<&'static str> {
        *lock(&self.panicked_in)
    }

    /// What went wrong beside the action, if anything did.
    pub(super) fn complaint(&self) -> Option<String> {
        lock(&self.complaints).pop()
    }

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

    /// A writer, by its number.
    pub(super) fn write(&self, db: &Db, writer: usize) {
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

    /// Who waits for flushes and background work.
    pub(super) fn wait(&self, db: &Db) {
        for _ in 0..2 {
            self.tolerate("flush beside", caught(|| db.flush()));
            self.tolerate("wait_idle beside", caught(|| db.wait_idle()));
            self.tolerate("sync beside", caught(|| db.sync()));
        }
    }

    /// Who reads.
    pub(super) fn read(&self, db: &Db) {
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
