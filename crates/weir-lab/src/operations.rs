//! A fixed list of operations by one thread: writes, then point reads.
//!
//! Source: Merfeld and Karatsiolis, section 4: a million writes of which a tenth updates and a
//! tenth deletes, then reads. The list is drawn, so that it can be of any length: keys are 8 bytes
//! in a random order, values as long as `load` says. Or it is a file like theirs, the same as `weir
//! replay` reads ([`follow`]).

use std::path::Path;

use weir::{Db, Durability};
use weir_bench::lines::{LineError, Lines, Operation, encode};
use weir_bench::{Permutation, Prng};

use crate::settings::Settings;

/// The stream of the choices.
const STREAM: u64 = 1 << 44;

/// Numbers of keys that are never written follow those that are.
fn key(order: &Permutation, number: u64) -> [u8; 8] {
    order.at(number).to_be_bytes()
}

/// The list.
pub struct Replay<'a> {
    settings: &'a Settings,
    db: &'a Db,
    durability: Durability,
    order: Permutation,
    prng: Prng,
    /// Keys written so far.
    keys: u64,
}

impl<'a> Replay<'a> {
    /// The list that `settings` describe, for `db`.
    #[must_use]
    pub fn new(settings: &'a Settings, db: &'a Db, durability: Durability, seed: u64) -> Self {
        let order = Permutation::new(1 << 40, seed);
        let prng = Prng::new(seed, STREAM);
        Self { settings, db, durability, order, prng, keys: 0 }
    }

    /// Does the writes. The number of bytes that the user wrote does not matter to the disk.
    ///
    /// # Errors
    /// The engine's, as text.
    pub fn write(&mut self) -> Result<(), String> {
        let replay = &self.settings.replay;
        let value = vec![b'v'; self.settings.load.value_bytes];
        for _ in 0..replay.writes {
            let draw = self.prng.unit();
            let known = self.prng.below(self.keys.max(1));
            let done = if self.keys > 0 && draw < replay.deletes {
                self.db.delete_with(key(&self.order, known), self.durability)
            } else if self.keys > 0 && draw < replay.deletes + replay.updates {
                self.db.put_with(key(&self.order, known), &value, self.durability)
            } else {
                self.keys += 1;
                self.db.put_with(key(&self.order, self.keys - 1), &value, self.durability)
            };
            done.map_err(|e| e.to_string())?;
            weir::sim::work(self.settings.replay.write_cpu_nanos);
        }
        Ok(())
    }

    /// Does the reads; how many.
    ///
    /// # Errors
    /// The engine's, as text; a key that cannot be there and is.
    pub fn read(&mut self) -> Result<u64, String> {
        weir::sim::this_actor_reads();
        let replay = &self.settings.replay;
        for _ in 0..replay.gets {
            let absent = self.prng.unit() < replay.absent;
            let number = self.prng.below(self.keys.max(1)) + if absent { self.keys } else { 0 };
            let found = self.db.get(key(&self.order, number)).map_err(|e| e.to_string())?;
            if absent && found.is_some() {
                return Err(format!("key {number} was never written and is there"));
            }
            weir::sim::work(self.settings.replay.read_cpu_nanos);
        }
        Ok(replay.gets)
    }
}

/// What the operations of a file came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Followed {
    /// Writes and deletes.
    pub writes: u64,
    /// Point and range reads.
    pub reads: u64,
    /// Virtual time of the writes.
    pub write_nanos: u64,
    /// Virtual time of the reads.
    pub read_nanos: u64,
}

/// The text of the file `replay.file`, whose path is seen from the current directory.
///
/// # Errors
/// The path that was tried, and why it cannot be read.
pub fn text_of(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| {
        let tried = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        format!(
            "replay.file: cannot read {}: {error}; it is looked for from the current directory, \
             or by an absolute path",
            tried.display()
        )
    })
}

/// Does the operations of `text` in their order, timed apart as the paper's are.
///
/// # Errors
/// A line that is wrong, by its number; the engine's, as text.
pub fn follow(settings: &Settings, db: &Db, text: &str) -> Result<Followed, String> {
    weir::sim::this_actor_reads();
    let durability = crate::store::durability(settings);
    let mut lines = Lines::new(text.as_bytes());
    let mut followed = Followed::default();
    let wrong = |e| match e {
        LineError::Io(error) => error.to_string(),
        LineError::Bad { number, reason } => format!("replay.file: line {number}: {reason}"),
    };
    while let Some(operation) = lines.next_operation().map_err(wrong)? {
        let start = weir::sim::now_nanos();
        let write = matches!(operation, Operation::Put(..) | Operation::Delete(_));
        let done = match operation {
            Operation::Put(key, value) => db.put_with(encode(key), encode(value), durability),
            Operation::Delete(key) => db.delete_with(encode(key), durability),
            Operation::Get(key) => db.get(encode(key)).map(drop),
            Operation::Range(low, high) => {
                let mut cursor = db.cursor();
                cursor.seek(encode(low));
                while cursor.valid() && cursor.key() <= encode(high).as_slice() {
                    weir::sim::work(settings.replay.entry_cpu_nanos);
                    cursor.next();
                }
                cursor.status()
            }
        };
        done.map_err(|e| e.to_string())?;
        let replay = &settings.replay;
        weir::sim::work(if write { replay.write_cpu_nanos } else { replay.read_cpu_nanos });
        let nanos = weir::sim::now_nanos() - start;
        let (count, sum) = if write {
            (&mut followed.writes, &mut followed.write_nanos)
        } else {
            (&mut followed.reads, &mut followed.read_nanos)
        };
        *count += 1;
        *sum += nanos;
    }
    Ok(followed)
}
