//! Campaign K1: real `kill -9` of a writer process at random, on the real file system.
//!
//! The child writes from several threads without pause; after each acknowledged commit it sends
//! `(writer, commit number)` through a pipe. The parent journals these, kills the child at a random
//! moment (also while it recovers), opens the store itself and compares. What commit `i` of writer
//! `w` writes follows from the seed, so the parent needs no more than the numbers.
//!
//! Promise under a process kill: everything acknowledged at `Buffered` or `Sync` is there; of every
//! writer exactly a prefix of its commits, whole batches over both keyspaces; at most the one
//! commit in flight beyond the last acknowledgement.

#![expect(
    clippy::disallowed_methods,
    reason = "this campaign is about real processes and real time"
)]

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use weir::sim::Prng;
use weir::{
    Db, DbOptions, DebugDbOptions, Durability, FormatOptions, Keyspace, LeveledOptions, Options,
    WriteBatch,
};

use crate::model::show;
use crate::world;

const WRITERS: usize = 3;
const KEYS: u64 = 2_000;
/// Bytes of the file of slots, if the store is in one: much more than its tables and logs take.
const SLOTS_BYTES: u64 = 256 << 20;
/// Writer (1 byte) and commit number (8 bytes).
const ACK_BYTES: usize = 9;

/// How a run of the campaign is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Decides what is written and when it is killed.
    pub seed: u64,
    /// Number of kills.
    pub kills: u64,
    /// Directory of the store; must not exist.
    pub dir: PathBuf,
}

/// What the campaign did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Processes killed.
    pub kills: u64,
    /// Kills before the first acknowledgement: during open and recovery.
    pub kills_in_open: u64,
    /// Commits acknowledged.
    pub acknowledged: u64,
    /// Of these, with `Durability::Sync`.
    pub acknowledged_sync: u64,
    /// Deferred commits that were lost.
    pub deferred_lost: u64,
    /// Commits that survived although they were never acknowledged.
    pub unacknowledged_survivors: u64,
    /// Key comparisons.
    pub compared: u64,
    /// Tables found by the full verifications, one in ten kills.
    pub tables_seen: u64,
}

type Items = Vec<(usize, Vec<u8>, Option<Vec<u8>>)>;

/// What commit `number` of a writer does.
fn commit(seed: u64, writer: usize, number: u64) -> (Items, Durability) {
    let mut rng = Prng::new(seed ^ (writer as u64) << 56 ^ number.wrapping_mul(0x9e37_79b9));
    let count = if rng.chance(1, 30) { 40 } else { 1 + rng.below(5) };
    let items = (0..count)
        .map(|n| {
            let key = format!("{writer}-{:06}", rng.below(KEYS)).into_bytes();
            let value = rng.chance(4, 5).then(|| {
                let mut value = number.to_le_bytes().to_vec();
                value.push(n as u8);
                value.resize(9 + rng.below(400) as usize, (number % 251) as u8);
                value
            });
            (rng.below(2) as usize, key, value)
        })
        .collect();
    // In every other stretch most commits are deferred, so that some are when the kill comes.
    let deferred = (number / 64).is_multiple_of(2);
    let durability = match rng.below(10) {
        0 => Durability::Sync,
        1..=8 if deferred => Durability::Deferred,
        _ => Durability::Buffered,
    };
    (items, durability)
}

fn open(dir: &Path) -> weir::Result<(Db, [Keyspace; 2])> {
    let options = DbOptions::default()
        .memory_budget(4 << 20)
        .log_segment_bytes(64 << 10)
        .log_area_bytes(1 << 20)
        .debug(DebugDbOptions::default().version_log_bytes(16 << 10));
    let small = Options::default()
        .write_buffer_bytes(64 << 10)
        .table_bytes(32 << 10)
        .compaction(LeveledOptions::default().base_level_bytes(64 << 10).level_ratio(4));
    let db = Db::builder(dir).options(options).default_options(small.clone()).open()?;
    let second = db.keyspace_with("second", small)?;
    let first = db.default_keyspace().clone();
    Ok((db, [first, second]))
}

/// The child: writes until it is killed. `next` holds the first commit number of each writer.
///
/// # Errors
/// A sentence, if the store or the pipe fails.
pub fn child(dir: &Path, seed: u64, next: &[u64]) -> Result<(), String> {
    let (db, spaces) = open(dir).map_err(|e| format!("child: open: {e}"))?;
    let threads: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (db, spaces) = (db.clone(), spaces.clone());
            let mut number = next.get(writer).copied().unwrap_or(1);
            std::thread::spawn(move || -> Result<(), String> {
                loop {
                    let (items, durability) = commit(seed, writer, number);
                    let mut batch = WriteBatch::new();
                    for (space, key, value) in &items {
                        match value {
                            Some(v) => batch.put(&spaces[*space], key, v),
                            None => batch.delete(&spaces[*space], key),
                        };
                    }
                    db.write(batch, durability).map_err(|e| format!("child: write: {e}"))?;
                    let mut ack = [0u8; ACK_BYTES];
                    ack[0] = writer as u8;
                    ack[1..].copy_from_slice(&number.to_le_bytes());
                    // One write below PIPE_BUF is atomic, so the writers need no lock.
                    let mut out = std::io::stdout().lock();
                    out.write_all(&ack).and_then(|()| out.flush()).map_err(|e| e.to_string())?;
                    drop(out);
                    number += 1;
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "child: a writer panicked".to_owned())??;
    }
    Ok(())
}

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// The expected content, by writer and keyspace, and how far each writer has come.
struct Journal {
    seed: u64,
    content: [[Content; 2]; WRITERS],
    /// By writer, the contents before each of the deferred commits that are its last ones: what it
    /// may fall back to.
    before_deferred: [Vec<[Content; 2]>; WRITERS],
    next: [u64; WRITERS],
}

impl Journal {
    fn apply(&mut self, writer: usize) -> Durability {
        let (items, durability) = commit(self.seed, writer, self.next[writer]);
        match durability {
            Durability::Deferred => {
                let before = self.content[writer].clone();
                self.before_deferred[writer].push(before);
            }
            _ => self.before_deferred[writer].clear(),
        }
        for (space, key, value) in items {
            match value {
                Some(v) => self.content[writer][space].insert(key, v),
                None => self.content[writer][space].remove(&key),
            };
        }
        self.next[writer] += 1;
        durability
    }

    /// Compares the store with the journal; a writer may be one commit ahead of it, or have lost
    /// deferred ones.
    fn check(&mut self, spaces: &[Keyspace; 2], report: &mut Report) -> Result<(), String> {
        let mut found: [[Content; 2]; WRITERS] = Default::default();
        for (n, space) in spaces.iter().enumerate() {
            for kv in space.iter() {
                let (k, v) = kv.map_err(|e| format!("scan: {e}"))?;
                let writer = k.first().map_or(WRITERS, |b| usize::from(b.wrapping_sub(b'0')));
                let mine = found.get_mut(writer).ok_or(format!("foreign key {}", show(&k)))?;
                mine[n].insert(k.to_vec(), v.to_vec());
                report.compared += 1;
            }
        }
        for (writer, found) in found.iter().enumerate() {
            let acknowledged = self.next[writer] - 1;
            if *found == self.content[writer] {
                continue;
            }
            let fallen_back = self.before_deferred[writer].iter().rposition(|c| c == found);
            if let Some(at) = fallen_back {
                report.deferred_lost += (self.before_deferred[writer].len() - at) as u64;
                self.content[writer] = self.before_deferred[writer].swap_remove(at);
                continue;
            }
            let before = self.content[writer].clone();
            self.apply(writer);
            if *found != self.content[writer] {
                return Err(format!(
                    "writer {writer}: acknowledged up to commit {acknowledged}; the store holds \
                     neither that nor one more: {}",
                    difference(&before, found)
                ));
            }
            report.unacknowledged_survivors += 1;
        }
        // What was found is in the log now.
        self.before_deferred.iter_mut().for_each(Vec::clear);
        Ok(())
    }
}

/// The first key that differs.
fn difference(expected: &[Content; 2], found: &[Content; 2]) -> String {
    for (space, (e, f)) in expected.iter().zip(found).enumerate() {
        for key in e.keys().chain(f.keys()) {
            let text = |v: Option<&Vec<u8>>| v.map_or("nothing".into(), |v| show(v));
            if e.get(key) != f.get(key) {
                let (e, f) = (text(e.get(key)), text(f.get(key)));
                return format!("keyspace {space}, key {}: {f}, expected {e}", show(key));
            }
        }
    }
    "no difference".into()
}

/// Runs the campaign with `program` as the child (called as `program kill-child DIR SEED NEXT...`).
///
/// # Errors
/// The violation, with seed and number of the kill.
pub fn run(settings: &Settings, program: &Path) -> Result<Report, String> {
    let mut report = Report::default();
    if world::uses_slots() {
        let mut format = FormatOptions::new();
        format.size = Some(SLOTS_BYTES);
        (format.slot_bytes, format.log_bytes) = (Some(64 << 10), Some(8 << 20));
        weir::format(&settings.dir, &format).map_err(|e| format!("format: {e}"))?;
    }
    let mut journal = Journal {
        seed: settings.seed,
        content: Default::default(),
        before_deferred: Default::default(),
        next: [1; WRITERS],
    };
    let mut rng = Prng::new(settings.seed);
    for kill in 0..settings.kills {
        let at = |why: String| format!("seed {}, kill {kill}: {why}", settings.seed);
        let acks = one_life(settings, program, &journal.next, &mut rng).map_err(at)?;
        report.kills += 1;
        report.kills_in_open += u64::from(acks.is_empty());
        for (writer, number) in acks {
            let due = journal.next.get(writer).copied();
            if due != Some(number) {
                return Err(at(format!("writer {writer} acknowledged {number}, due is {due:?}")));
            }
            report.acknowledged += 1;
            report.acknowledged_sync += u64::from(journal.apply(writer) == Durability::Sync);
        }
        let (db, spaces) = open(&settings.dir).map_err(|e| at(format!("open: {e}")))?;
        journal.check(&spaces, &mut report).map_err(at)?;
        if kill % 10 == 0 {
            let verified = db.verify().map_err(|e| at(format!("verify: {e}")))?;
            if let Some(damage) = verified.damages.first() {
                return Err(at(format!("verify: {damage}")));
            }
            report.tables_seen += verified.tables;
        }
        drop(spaces);
        db.close().map_err(|e| at(format!("close: {e}")))?;
    }
    if settings.kills >= 100 && report.deferred_lost == 0 {
        return Err(format!("no kill came while commits were deferred: {report:#?}"));
    }
    Ok(report)
}

/// Starts a child, kills it after a random time, returns what it acknowledged.
fn one_life(
    settings: &Settings,
    program: &Path,
    next: &[u64],
    rng: &mut Prng,
) -> Result<Vec<(usize, u64)>, String> {
    let mut child = Command::new(program)
        .arg("kill-child")
        .arg(&settings.dir)
        .arg(settings.seed.to_string())
        .args(next.iter().map(u64::to_string))
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("the child does not start: {e}"))?;
    let mut pipe = child.stdout.take().ok_or("the child has no pipe")?;
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).map(|_| bytes)
    });
    // One in eight dies while it opens; the others after up to 200 ms of load.
    let micros = if rng.chance(1, 8) { rng.below(15_000) } else { 10_000 + rng.below(200_000) };
    let until = Instant::now() + Duration::from_micros(micros);
    while Instant::now() < until {
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            return Err(format!("the child ended by itself: {status}"));
        }
        std::thread::sleep(Duration::from_micros(500).min(until - Instant::now().min(until)));
    }
    child.kill().map_err(|e| format!("kill: {e}"))?;
    child.wait().map_err(|e| format!("wait: {e}"))?;
    let bytes = reader.join().map_err(|_| "the journal's thread panicked")?;
    let bytes = bytes.map_err(|e| format!("pipe: {e}"))?;
    Ok(bytes
        .chunks_exact(ACK_BYTES)
        .map(|ack| {
            let number = ack[1..].try_into().map_or(0, u64::from_le_bytes);
            (usize::from(ack[0]), number)
        })
        .collect())
}
