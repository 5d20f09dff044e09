//! Deferred writes of a store in which nobody writes go to the operating system, too.
//!
//! Not here: who writes does it himself, and how long they may wait (`log::wal`).

use std::time::Duration;

use crate::base::clock;
use crate::db::engine::{Engine, Writer};

impl Engine {
    /// Writes out what the log holds, if it has waited for long enough and nobody commits.
    pub(super) fn write_out_deferred(&self, writer: &Writer) {
        if !writer.wal.is_held_due() || self.shared.health.is_poisoned() {
            return;
        }
        let written = writer.committer.try_exclusively(|lead| lead.write_out());
        if let Some(Err(error)) = written.map(Result::flatten) {
            self.shared.poison(&error);
        }
    }

    /// How long a thread that looked at `looked_at` waits at most for the sake of deferred writes.
    pub(super) fn pause_of_deferred(&self, looked_at: u64) -> Option<Duration> {
        let writer = self.writer.as_ref().filter(|_| !self.shared.health.is_poisoned())?;
        let at = writer.wal.held_look_at(looked_at)?;
        Some(Duration::from_nanos(at.saturating_sub(clock::now_nanos())))
    }
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use std::time::Duration;

    use crate::base::sched;
    use crate::base::sched::sim::Simulation;
    use crate::device::sim::{SimDisk, SimOptions};
    use crate::{Db, Durability};

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
}
