//! Writing behind: the device works while the next part of a table is made.
//!
//! Requests for slots pass the page cache, so that nothing takes them off the hands of who makes a
//! table unless the store does. A writer leaves each full buffer to a thread and fills another; it
//! waits where [`BUFFERS_MAX`] of its own are not written yet, and at its end. The thread is
//! started by the first buffer that is full before its table is: small tables need none. Not here:
//! where a table's bytes go (`table`).
//!
//! Invariants: (1) what one writer hands over is written in that order, so that the trailer of an
//! extent is its last write; (2) nothing of a writer is in flight once [`Handed::wait`] has
//! returned, so that slots that it gives up may be given out again; (3) the first failure is the
//! writer's, which gets it from its next call and from every later one, and nothing behind it is
//! written; (4) once it is closed nothing is taken.
//!
//! Thread-safety: any thread may hand over; each writer is one thread's.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::pages::PageVec;
use crate::base::sched::{self, Condvar, Mutex, Thread};
use crate::device::File;
use crate::storage::io::{Cause, current_cause, on_behalf_of};

/// Buffers of one writer that are not written yet, at most.
const BUFFERS_MAX: usize = 2;

/// What a store has to write, and the thread that does.
#[derive(Default)]
pub(super) struct Behind {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Request>,
    thread: Option<Thread>,
    closed: bool,
}

/// Some bytes, and the parts of the device that they go to, one after the other.
struct Request {
    file: Arc<dyn File>,
    bytes: PageVec<u8>,
    ranges: Vec<(u64, u64)>,
    of: Arc<Shared>,
    /// What its writer works for.
    cause: Cause,
}

/// What one writer has handed over.
#[derive(Default)]
pub(super) struct Handed {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<Writes>,
    written: Condvar,
}

#[derive(Default)]
struct Writes {
    /// Requests that are not written.
    left: usize,
    /// The first failure, which every later call returns.
    failed: Option<Error>,
    /// Buffers to fill again.
    spare: Vec<PageVec<u8>>,
}

/// Writes `bytes` to these parts of the device, one after the other.
pub(super) fn write(file: &Arc<dyn File>, bytes: &[u8], ranges: &[(u64, u64)]) -> Result<()> {
    let mut rest = bytes;
    for &(at, bytes) in ranges {
        let (piece, tail) = rest.split_at(bytes as usize);
        file.write_at(piece, at).map_err(Error::leaving_nothing_unknown)?;
        // It lies around until a sync otherwise.
        file.write_back(at, bytes).map_err(Error::leaving_nothing_unknown)?;
        rest = tail;
    }
    assert!(rest.is_empty(), "{} bytes have no place", rest.len());
    Ok(())
}

impl Request {
    fn write_now(mut self) {
        let _cause = on_behalf_of(self.cause);
        let has_failed = self.of.state.lock().failed.is_some();
        let written = if has_failed {
            Ok(())
        } else {
            sched::catch_panic("writing a table", || write(&self.file, &self.bytes, &self.ranges))
        };
        self.bytes.clear();
        let mut writes = self.of.state.lock();
        writes.left -= 1;
        if let Err(error) = written {
            writes.failed = Some(error);
        }
        if writes.spare.len() < BUFFERS_MAX {
            writes.spare.push(self.bytes);
        }
        drop(writes);
        self.of.written.notify_all();
    }
}

impl Handed {
    /// Has `bytes` written to these parts of the device; gives another buffer, which is empty.
    ///
    /// # Errors
    /// That of an earlier request; `Closed`.
    pub(super) fn hand_over(
        &self,
        behind: &Arc<Behind>,
        file: &Arc<dyn File>,
        bytes: PageVec<u8>,
        ranges: Vec<(u64, u64)>,
    ) -> Result<PageVec<u8>> {
        let capacity = bytes.memory_bytes();
        let spare = {
            let mut writes = self.shared.state.lock();
            while writes.left >= BUFFERS_MAX {
                self.shared.written.wait(&mut writes);
            }
            writes.failed.clone().map_or(Ok(()), Err)?;
            writes.left += 1;
            writes.spare.pop()
        };
        let (file, of, cause) = (Arc::clone(file), Arc::clone(&self.shared), current_cause());
        if !behind.push(Request { file, bytes, ranges, of, cause }) {
            let error = Error::new(ErrorKind::Closed, "the store was closed");
            let mut writes = self.shared.state.lock();
            writes.left -= 1;
            writes.failed = Some(error.clone());
            return Err(error);
        }
        Ok(spare.unwrap_or_else(|| PageVec::with_capacity(capacity)))
    }

    /// Returns when all is written.
    ///
    /// # Errors
    /// That of a request.
    pub(super) fn wait(&self) -> Result<()> {
        let mut writes = self.shared.state.lock();
        while writes.left > 0 {
            self.shared.written.wait(&mut writes);
        }
        writes.failed.clone().map_or(Ok(()), Err)
    }
}

impl Behind {
    /// Leaves it to the thread; writes it now if there is none. Whether it is not closed.
    fn push(self: &Arc<Self>, request: Request) -> bool {
        let mut state = self.state.lock();
        if state.closed {
            return false;
        }
        if state.thread.is_none() {
            let own = Arc::clone(self);
            state.thread = sched::spawn("weir-behind", move || own.run()).ok();
        }
        if state.thread.is_none() {
            drop(state);
            request.write_now();
            return true;
        }
        state.queue.push_back(request);
        drop(state);
        self.changed.notify_all();
        true
    }

    /// Writes what is handed over, until it is closed and nothing is left.
    fn run(&self) {
        loop {
            let next = {
                let mut state = self.state.lock();
                while state.queue.is_empty() && !state.closed {
                    self.changed.wait(&mut state);
                }
                state.queue.pop_front()
            };
            let Some(request) = next else { return };
            request.write_now();
        }
    }

    /// Lets the thread end when all is written.
    pub(super) fn end(&self) -> Option<Thread> {
        let thread = {
            let mut state = self.state.lock();
            state.closed = true;
            state.thread.take()
        };
        self.changed.notify_all();
        thread
    }

    /// The same; returns when it has ended.
    pub(super) fn close(&self) {
        if let Some(thread) = self.end() {
            // A request that panicked is a failure of its writer.
            let _ = thread.join();
        }
    }
}
