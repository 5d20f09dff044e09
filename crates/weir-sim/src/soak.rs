//! Real threads on the real machine: what a simulation cannot show, because there one actor runs at
//! a time and switches only where the scheduler knows.
//!
//! Several threads insert keys of their own into a store with the smallest memtables, read back
//! what they wrote a moment ago, and in the end everything is read, before and after a reopening.
//! (Lost inserts at the rotation of a memtable: docs/hazards.md, bug 40.)

#![expect(clippy::disallowed_methods, reason = "this is about real threads")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weir::sim::Prng;
use weir::{Db, DbOptions, Durability, Keyspace, LeveledOptions, Options, WriteBatch};

use crate::model::show;

/// How the soak is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Decides the values.
    pub seed: u64,
    /// Keys inserted in all.
    pub keys: u64,
    /// Writing threads.
    pub writers: u64,
}

fn open(dir: &Path) -> Result<(Db, [Keyspace; 2]), String> {
    let options = DbOptions::default()
        .memory_budget(2 << 20)
        .log_segment_bytes(64 << 10)
        .log_area_bytes(2 << 20)
        // Less than there are tables: they are closed under those who read, and opened again.
        .open_files_max(Some(12));
    let small = Options::default()
        .write_buffer_bytes(4 << 10)
        .table_bytes(64 << 10)
        .compaction(LeveledOptions::default().base_level_bytes(256 << 10).l0_trigger(8));
    let db = Db::builder(dir).options(options).default_options(small.clone()).open();
    let db = db.map_err(|e| format!("open: {e}"))?;
    let second = db.keyspace_with("second", small).map_err(|e| format!("open: {e}"))?;
    let first = db.default_keyspace().clone();
    Ok((db, [first, second]))
}

fn pair(settings: &Settings, n: u64) -> (Vec<u8>, Vec<u8>) {
    let mut rng = Prng::new(settings.seed ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let key = rng.next_u64().to_be_bytes().to_vec();
    let mut value = n.to_le_bytes().to_vec();
    value.resize(8 + rng.below(120) as usize, n as u8);
    (key, value)
}

fn writer(
    db: &Db,
    spaces: &[Keyspace; 2],
    settings: &Settings,
    me: u64,
    done: &AtomicU64,
) -> Result<(), String> {
    let mut n = me;
    while n < settings.keys {
        let (key, value) = pair(settings, n);
        let mut batch = WriteBatch::new();
        batch.put(&spaces[0], &key, &value);
        batch.put(&spaces[1], &key, &value);
        db.write(batch, Durability::Buffered).map_err(|e| format!("write {n}: {e}"))?;
        let back = (n - me).checked_sub(settings.writers * (n % 50)).map_or(me, |b| b + me);
        let (key, value) = pair(settings, back);
        for space in spaces {
            let got = space.get(&key).map_err(|e| format!("get {back}: {e}"))?;
            if got.as_deref() != Some(&value[..]) {
                return Err(format!("key {back} ({}) is lost after write {n}", show(&key)));
            }
        }
        done.fetch_add(1, Ordering::Relaxed);
        n += settings.writers;
    }
    Ok(())
}

/// A snapshot sees both keyspaces alike: every write goes to both.
fn watcher(db: &Db, spaces: &[Keyspace; 2], ended: &AtomicBool) -> Result<u64, String> {
    let mut scans = 0;
    while !ended.load(Ordering::Relaxed) {
        let snapshot = db.snapshot();
        let (mut a, mut b) = (snapshot.iter(&spaces[0]), snapshot.iter(&spaces[1]));
        loop {
            let (x, y) = (a.next().transpose(), b.next().transpose());
            let (x, y) = (x.map_err(|e| e.to_string())?, y.map_err(|e| e.to_string())?);
            match (x, y) {
                (None, None) => break,
                (Some(x), Some(y)) if x.0[..] == y.0[..] && x.1[..] == y.1[..] => {}
                (x, y) => {
                    return Err(format!(
                        "a snapshot at {} sees half of a batch: {:?} and {:?}",
                        snapshot.sequence(),
                        x.map(|x| show(&x.0)),
                        y.map(|y| show(&y.0))
                    ));
                }
            }
        }
        scans += 1;
    }
    Ok(scans)
}

fn read_everything(spaces: &[Keyspace; 2], settings: &Settings) -> Result<(), String> {
    for n in 0..settings.keys {
        let (key, value) = pair(settings, n);
        let got = spaces[(n % 2) as usize].get(&key).map_err(|e| format!("get {n}: {e}"))?;
        if got.as_deref() != Some(&value[..]) {
            return Err(format!("key {n} ({}) is lost", show(&key)));
        }
    }
    for space in spaces {
        let mut count = 0;
        for kv in space.iter() {
            kv.map_err(|e| format!("scan: {e}"))?;
            count += 1;
        }
        if count != settings.keys {
            return Err(format!("{count} keys are found, {} were written", settings.keys));
        }
    }
    Ok(())
}

/// Runs the soak in a new directory. Returns the scans over snapshots and the flushes.
///
/// # Errors
/// What was lost.
pub fn run(settings: &Settings, dir: &Path) -> Result<(u64, u64), String> {
    let (db, spaces) = open(dir)?;
    let (done, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let writers: Vec<_> = (0..settings.writers)
        .map(|me| {
            let (db, spaces, settings) = (db.clone(), spaces.clone(), settings.clone());
            let done = Arc::clone(&done);
            std::thread::spawn(move || writer(&db, &spaces, &settings, me, &done))
        })
        .collect();
    let watching = {
        let (db, spaces, ended) = (db.clone(), spaces.clone(), Arc::clone(&ended));
        std::thread::spawn(move || watcher(&db, &spaces, &ended))
    };
    for thread in writers {
        thread.join().map_err(|_| "a writer panicked".to_owned())??;
    }
    ended.store(true, Ordering::Relaxed);
    let scans = watching.join().map_err(|_| "the watcher panicked".to_owned())??;
    read_everything(&spaces, settings)?;
    let flushes = db.metrics().flushes;
    drop(spaces);
    db.close().map_err(|e| format!("close: {e}"))?;
    let (db, spaces) = open(dir)?;
    read_everything(&spaces, settings).map_err(|why| format!("reopened: {why}"))?;
    drop(spaces);
    db.close().map_err(|e| format!("close: {e}"))?;
    Ok((scans, flushes))
}
