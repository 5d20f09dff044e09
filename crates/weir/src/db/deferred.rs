//! Deferred writes of a store in which nobody writes go to the operating system, too.
//!
//! Not here: who writes does it himself, and how long they may wait (`log::wal`).

use std::time::Duration;

use crate::base::clock;
use crate::base::error::IgnoreError;
use crate::db::engine::{Engine, Writer};

impl Engine {
    /// Writes out what the log holds, if it has waited for long enough and nobody commits.
    pub(super) fn write_out_deferred(&self, writer: &Writer) {
        if writer.wal.is_held_due() && !writer.wal.is_failed() {
            writer.committer.write_out_log(false).ignore_error("it has poisoned the store");
        }
    }

    /// How long a thread that looked at `looked_at` waits at most for the sake of deferred writes.
    pub(super) fn pause_of_deferred(&self, looked_at: u64) -> Option<Duration> {
        let writer = self.writer.as_ref()?;
        let at = writer.wal.held_look_at(looked_at).filter(|_| !writer.wal.is_failed())?;
        Some(Duration::from_nanos(at.saturating_sub(clock::now_nanos())))
    }
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use crate::base::sched;
    use crate::base::sched::sim::{Simulation, spend};
    use crate::device::sim::{SimDisk, SimOptions};
    use crate::{Db, Durability, Error, ErrorKind, Options};

    fn open(disk: &SimDisk) -> Db {
        Db::builder("simulated").device(disk.dir()).seed(7).open().expect("opened")
    }

    /// The keys that a kill of the process would leave now.
    fn kept(disk: &SimDisk) -> Vec<String> {
        let db = open(&disk.copy());
        let key = |key: crate::Result<crate::Value>| String::from_utf8_lossy(&key.unwrap()).into();
        let keys = db.keys().map(key).collect();
        db.close().expect("closed");
        keys
    }

    /// Goal: a deferred write is lost with the process at first, and kept as soon as a stronger one
    /// was acknowledged behind it, 100 ms have passed, its keyspace was flushed, or the store
    /// synced or closed. Method: what a kill leaves at each of these moments, under some schedules.
    #[test]
    fn deferred_writes_are_kept_in_time() {
        type Act = (&'static str, fn(&Db));
        let acts: [Act; 4] = [
            ("b", |db| db.put("a", "again").expect("put")),
            ("c", |_| sched::delay(Duration::from_millis(150))),
            ("d", |db| db.flush().expect("flushed")),
            ("e", |db| db.sync().expect("synced")),
        ];
        for seed in 0..8 {
            Simulation::run(seed, move |_| {
                let disk = SimDisk::new(SimOptions::default());
                let db = open(&disk);
                let defer = |key: &str| db.put_with(key, "", Durability::Deferred).expect("put");
                db.put("a", "").expect("put");
                let mut all = vec!["a"];
                for (key, act) in acts {
                    defer(key);
                    assert_eq!(kept(&disk), all, "seed {seed}: {key} is kept too early");
                    act(&db);
                    all.push(key);
                    assert_eq!(kept(&disk), all, "seed {seed}: {key} is lost");
                }
                defer("f");
                db.close().expect("closed");
                all.push("f");
                assert_eq!(kept(&disk), all, "seed {seed}");
            });
        }
    }

    /// Fills the memtables with deferred writes while nothing is flushed: what was acknowledged is
    /// kept while the next one stalls.
    fn stall(db: &Db, disk: &SimDisk) {
        db.pause_background(true);
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let (fills, count) = (db.clone(), Arc::clone(&acknowledged));
        let fill = move || {
            for n in 0..300 {
                fills.put_with(format!("d{n}"), [0; 1000], Durability::Deferred).expect("put");
                count.fetch_add(1, Ordering::Relaxed);
            }
        };
        let writer = sched::spawn("writer", fill).expect("started");
        sched::delay(Duration::from_millis(150));
        let acknowledged = acknowledged.load(Ordering::Relaxed);
        assert!(acknowledged < 300, "it stalls");
        let kept = kept(disk).iter().filter(|key| key.starts_with('d')).count();
        assert_eq!(kept, acknowledged, "beside a stall");
        db.pause_background(false);
        assert!(writer.join());
    }

    /// Goal: nor are they forgotten where nothing is appended to the log: by who writes without it,
    /// by who stalls, in a pause of background work, and in a store that is poisoned, there at once
    /// if it is closed. Method: what a kill leaves 150 ms later.
    #[test]
    fn deferred_writes_are_not_forgotten() {
        let quick = Options::default().write_buffer_bytes(64 << 10).immutables_max(1);
        for how in 0..5 {
            let options = quick.clone();
            Simulation::run(how, move |_| {
                let disk = SimDisk::new(SimOptions::default());
                let db = Db::builder("simulated").device(disk.dir()).seed(7);
                let db = db.default_options(options).open().expect("opened");
                db.put("a", "").expect("put");
                db.put_with("b", "", Durability::Deferred).expect("put");
                match how {
                    0 => {}
                    1 => {
                        // Nobody else gets to run.
                        let left = sched::without_switches(|| {
                            spend(150_000_000);
                            db.put_with("c", "", Durability::None).expect("put");
                            disk.copy()
                        });
                        assert!(kept(&left).contains(&"b".to_owned()), "by an unlogged write");
                    }
                    2 => stall(&db, &disk),
                    3 => db.pause_background(true),
                    _ => {
                        let error = Error::new(ErrorKind::Poisoned, "for a test");
                        db.handle.engine.shared.poison(&error);
                    }
                }
                if how == 4 {
                    drop(db.clone().close().expect_err("poisoned"));
                } else {
                    sched::delay(Duration::from_millis(150));
                }
                let kept = kept(&disk);
                assert!(kept.contains(&"b".to_owned()), "{how}: {kept:?}");
                db.pause_background(false);
            });
        }
    }
}
