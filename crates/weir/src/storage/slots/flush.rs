//! Syncs of one device: those that are due together are one, and one that fails is the last.
//!
//! All areas of a store lie on one device, and a sync makes all of it durable. Who asks for one is
//! served by any that begins afterwards, whoever began it. And the kernel may drop all that was not
//! durable when a sync fails, and report that once (H43): what others have written is then lost,
//! and a later sync would succeed without it. So after a failure nobody's sync succeeds.
//!
//! Invariants: (1) one sync runs at a time; (2) when a sync returns success, one has ended that
//! began after the last write before the call, and none failed before it. Nothing is asked of a
//! device to which nothing was written since: areas that are synced one after the other cost one
//! flush.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::sched::{self, Condvar, Mutex};
use crate::device::{Advice, File, FileClass};

/// What a panic interrupts.
const FLUSH: &str = "making a device durable";

/// The syncs of one device.
#[derive(Default)]
pub(super) struct Flusher {
    state: Mutex<State>,
    changed: Condvar,
    /// Writes that have ended, well or not.
    writes: AtomicU64,
}

#[derive(Default)]
struct State {
    running: bool,
    /// Syncs begun, and ended.
    begun: u64,
    ended: u64,
    /// Writes that had ended when the last sync began which has ended; `None` before the first.
    covered: Option<u64>,
    failed: Option<Error>,
}

impl Flusher {
    /// Returns when a sync that began after the call has ended: `flush`, or another's.
    fn sync(&self, flush: impl Fn() -> Result<()>) -> Result<()> {
        let mut state = self.state.lock();
        let wanted = state.begun + 1;
        loop {
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            let writes = self.writes.load(Ordering::SeqCst);
            if state.ended >= wanted || state.covered == Some(writes) {
                return Ok(());
            }
            if state.running {
                self.changed.wait(&mut state);
                continue;
            }
            state.running = true;
            state.begun += 1;
            drop(state);
            let flushed = sched::catch_panic(FLUSH, &flush);
            state = self.state.lock();
            // What was begun before it is durable, too.
            state.ended = state.begun;
            state.covered = flushed.is_ok().then_some(writes);
            self.end(&mut state, flushed);
        }
    }

    /// Calls `write`, which makes its own bytes durable, while no sync runs.
    fn alone(&self, write: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut state = self.state.lock();
        while state.running {
            self.changed.wait(&mut state);
        }
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        state.running = true;
        // Not one that serves others: it is of its own bytes.
        drop(state);
        let written = sched::catch_panic(FLUSH, write);
        self.end(&mut self.state.lock(), written.clone());
        written.map_err(final_error)
    }

    /// Calls `write` and counts it.
    fn counting<T>(&self, write: impl FnOnce() -> T) -> T {
        let written = write();
        self.writes.fetch_add(1, Ordering::SeqCst);
        written
    }

    /// Ends what ran.
    fn end(&self, state: &mut State, outcome: Result<()>) {
        state.running = false;
        state.failed = outcome.err().map(final_error);
        self.changed.notify_all();
    }
}

/// The error of a sync that failed for whatever reason: also without space, which a device that was
/// allocated before cannot lack, nobody knows what is durable.
fn final_error(error: Error) -> Error {
    if error.leaves_unknown() {
        return error;
    }
    let what = format!("making the device durable failed, and is not tried again: {error}");
    Error::with_source(ErrorKind::Io, what, error)
}

/// A file of the device whose syncs are the device's.
pub(super) struct Flushed {
    inner: Arc<dyn File>,
    flusher: Arc<Flusher>,
}

impl Flushed {
    pub(super) fn over(inner: Arc<dyn File>, flusher: &Arc<Flusher>) -> Arc<dyn File> {
        Arc::new(Self { inner, flusher: Arc::clone(flusher) })
    }
}

impl File for Flushed {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.inner.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.flusher.counting(|| self.inner.write_at(buf, offset))
    }
    fn write_parts_at(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        self.flusher.counting(|| self.inner.write_parts_at(parts, offset))
    }
    fn sync(&self) -> Result<()> {
        self.flusher.sync(|| self.inner.sync())
    }
    fn write_durable(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.flusher.alone(|| self.inner.write_durable(buf, offset))
    }
    fn discard(&self, offset: u64, bytes: u64) -> Result<()> {
        self.flusher.counting(|| self.inner.discard(offset, bytes))
    }
    fn classed(&self, class: FileClass) -> Option<Arc<dyn File>> {
        let inner = self.inner.classed(class).unwrap_or_else(|| Arc::clone(&self.inner));
        Some(Self::over(inner, &self.flusher))
    }
    fn write_back(&self, offset: u64, bytes: u64) -> Result<()> {
        self.inner.write_back(offset, bytes)
    }
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }
    fn next_data(&self, offset: u64) -> Result<u64> {
        self.inner.next_data(offset)
    }
    fn allocate(&self, bytes: u64) -> Result<()> {
        self.flusher.counting(|| self.inner.allocate(bytes))
    }
    fn reserve(&self, bytes: u64) -> Result<()> {
        self.flusher.counting(|| self.inner.reserve(bytes))
    }
    fn set_len(&self, bytes: u64) -> Result<()> {
        self.flusher.counting(|| self.inner.set_len(bytes))
    }
    fn advise(&self, offset: u64, bytes: u64, advice: Advice) {
        self.inner.advise(offset, bytes, advice);
    }
    fn path(&self) -> String {
        self.inner.path()
    }
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use super::*;
    use crate::device::Dir;
    use crate::device::faulty::{Effect, Fault, FaultyDir, Times};
    use crate::device::sim::SimDisk;
    use crate::device::site::OpKind;

    /// Goal: a sync that fails is the last one (H43): who has written beside it, and whose bytes
    /// may be lost with it, is told so by the next sync, too.
    #[test]
    fn a_failed_sync_is_the_last() {
        let disk = SimDisk::default();
        let dir = FaultyDir::over_disk(&disk);
        let file = dir.create("device", FileClass::Other).expect("created");
        let flusher = Arc::new(Flusher::default());
        let log = Flushed::over(file.classed(FileClass::Wal).expect("classed"), &flusher);
        let slots = Flushed::over(file.classed(FileClass::Table).expect("classed"), &flusher);
        slots.write_at(&[1; 4096], 8192).expect("written");
        log.write_at(&[1; 4096], 0).expect("written");
        let (op, class) = (Some(OpKind::Sync), Some(FileClass::Wal));
        let effect = Effect::LoseDirty(true);
        dir.faults().arm(Fault { op, class, after: 0, times: Times::Once, effect });
        log.sync().expect_err("it fails");
        slots.sync().expect_err("what it would make durable is lost");
        slots.write_durable(&[1; 4096], 0).expect_err("nothing is made durable any more");
    }

    /// Goal: what is synced one after the other, by areas of one device, is one sync; the first one
    /// of an opening is made in any case, because an earlier one may have written.
    #[test]
    fn a_sync_of_what_is_durable_asks_for_nothing() {
        let disk = SimDisk::default();
        let file = disk.dir().create("device", FileClass::Other).expect("created");
        let flusher = Arc::new(Flusher::default());
        let areas = [FileClass::Wal, FileClass::Table].map(|class| {
            Flushed::over(file.classed(class).unwrap_or_else(|| Arc::clone(&file)), &flusher)
        });
        let syncs = || {
            let classes = FileClass::ALL.into_iter();
            let count = |class| disk.counters().get(OpKind::Sync, class).calls;
            classes.map(count).sum::<u64>()
        };
        let sync = || areas.iter().for_each(|area| area.sync().expect("synced"));
        sync();
        assert_eq!(syncs(), 1);
        areas.iter().for_each(|area| area.write_at(&[1; 4096], 0).expect("written"));
        sync();
        sync();
        assert_eq!(syncs(), 2);
        areas[1].write_parts_at(&[&[1; 4096]], 0).expect("written");
        areas[0].sync().expect("synced");
        assert_eq!(syncs(), 3);
    }

    /// Goal: syncs that are asked for while one runs are one. Method: many actors in a simulation
    /// whose syncs take long.
    #[test]
    fn syncs_that_are_due_together_are_one() {
        let ran = crate::base::sched::sim::Simulation::run(3, |_| {
            let disk = SimDisk::default();
            let file = disk.dir().create("device", FileClass::Other).expect("created");
            let flusher = Arc::new(Flusher::default());
            let actors: Vec<_> = (0..8)
                .map(|n| {
                    let file = Flushed::over(Arc::clone(&file), &flusher);
                    sched::spawn(&format!("actor {n}"), move || {
                        for _ in 0..10 {
                            file.write_at(&[1; 100], n * 4096).expect("written");
                            file.sync().expect("synced");
                        }
                    })
                    .expect("started")
                })
                .collect();
            actors.into_iter().for_each(|actor| assert!(actor.join(), "an actor failed"));
            disk.counters().get(crate::device::site::OpKind::Sync, FileClass::Other).calls
        });
        let syncs = ran;
        assert!(syncs < 60, "{syncs} syncs for 80 that were asked for");
    }
}
