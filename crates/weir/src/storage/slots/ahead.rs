//! Reading ahead: the device works while what it read before is consumed.
//!
//! Requests for slots pass the page cache, so nothing reads ahead unless the store does. A cursor
//! hints at the window that it will read next (`TableSource::advise`), a thread reads it into
//! memory, and the read that comes for it finds it there, or waits for it. The thread is started by
//! the first hint; a store that is only looked up in has none. Not here: how large windows are, and
//! when one is hinted at (`table::ahead`).
//!
//! Invariants: (1) what was read ahead is handed to reads of the same open table only, whose slots
//! nobody writes meanwhile (H30); (2) it is a hint: what fails, or is not wanted any more, is given
//! up, and its read asks the device itself; (3) all windows together have a part of the memory
//! budget, at most [`BYTES_MAX`], of which the oldest that was read for nobody gives way to a new
//! one; (4) a read ahead is a read in flight (H73): none begins once the device is given up.
//!
//! Thread-safety: any thread may hint, read and close.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crate::base::pages::PageVec;
use crate::base::sched::{self, Condvar, Mutex, Thread};
use crate::storage::io::{Cause, current_cause, on_behalf_of};
use crate::storage::slots::table::Space;

/// Bytes of all windows that were hinted at and are not read yet: four of a merge's largest.
const BYTES_MAX: u64 = 4 << 20;
/// The same under the smallest budget: four of a merge's smallest.
const SMALL_BYTES_MAX: u64 = 1 << 20;
/// They take this part of the memory budget, beside it, as the windows themselves do of it.
const BUDGET_SHARE: u64 = 32;
/// So many windows are listed before those that are gone are left out: more than can be there.
const ALL_MAX: usize = 2 * (BYTES_MAX / BYTES_MIN) as usize;
/// Fewer bytes are not worth another thread.
const BYTES_MIN: u64 = 32 << 10;

/// The windows of a store that are to be read.
#[derive(Default)]
pub(super) struct Ahead {
    state: Mutex<State>,
    changed: Condvar,
    /// Most bytes of them less than [`BYTES_MAX`].
    spared: AtomicU64,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Arc<Window>>,
    /// All of them, the oldest first, and some that are gone.
    all: VecDeque<Weak<Window>>,
    /// Bytes of those that are not given up.
    bytes: u64,
    thread: Option<Thread>,
    closed: bool,
}

/// A part of a table that is read ahead.
struct Window {
    ahead: Arc<Ahead>,
    /// Its slots are the table's as long as that is open; then nobody asks for it.
    space: Weak<Space>,
    /// The parts of the device that it is in.
    ranges: Vec<(u64, u64)>,
    offset: u64,
    bytes: u64,
    read: Mutex<Read>,
    changed: Condvar,
    /// What its reader works for.
    cause: Cause,
}

/// How far a window is.
enum Read {
    Waits,
    Begun,
    Ended(PageVec<u8>),
    Failed,
    /// Given up.
    Not,
}

/// The windows of one open table.
#[derive(Default)]
pub(super) struct Windows(Mutex<VecDeque<Arc<Window>>>);

impl Drop for Window {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl Window {
    /// Reads it, if somebody still wants it.
    fn read_now(&self) {
        let Some(space) = self.space.upgrade() else { return };
        if !self.step(|read| matches!(read, Read::Waits).then_some(Read::Begun)) {
            return;
        }
        let _cause = on_behalf_of(self.cause);
        let bytes = sched::catch_panic("reading ahead", || {
            let mut bytes = PageVec::with_capacity(0);
            bytes.resize(self.bytes as usize, 0);
            space.read_ranges(&self.ranges, &mut bytes)?;
            Ok(bytes)
        });
        let failed = bytes.is_err();
        self.step(|_| Some(bytes.map_or(Read::Failed, Read::Ended)));
        if failed {
            self.give_up();
        }
    }

    /// Gives it up, and its memory back, unless it is being read: nobody will ask for it.
    fn give_up(&self) -> bool {
        let gone = self.step(|read| match read {
            Read::Waits | Read::Failed | Read::Ended(_) => Some(Read::Not),
            Read::Begun | Read::Not => None,
        });
        if gone {
            self.ahead.state.lock().bytes -= self.bytes;
        }
        gone
    }

    /// Moves on, if `next` says where to; whether it did.
    fn step(&self, next: impl FnOnce(&Read) -> Option<Read>) -> bool {
        let mut read = self.read.lock();
        let Some(next) = next(&read) else { return false };
        *read = next;
        drop(read);
        self.changed.notify_all();
        true
    }

    /// Copies what it has at `offset` of the table, if it is read or being read.
    fn take(&self, buf: &mut [u8], offset: u64) -> bool {
        let mut read = self.read.lock();
        loop {
            match &*read {
                Read::Begun => self.changed.wait(&mut read),
                // One that waits: this read is sooner than who has others to read before it.
                Read::Waits | Read::Failed | Read::Not => return false,
                Read::Ended(bytes) => {
                    let start = (offset - self.offset) as usize;
                    let Some(part) = bytes.get(start..start + buf.len()) else { return false };
                    buf.copy_from_slice(part);
                    return true;
                }
            }
        }
    }
}

impl Windows {
    /// Has `bytes` bytes at `offset` of a table read, which are in these parts of the device, if
    /// there is room for them.
    pub(super) fn hint(&self, space: &Arc<Space>, at: (u64, u64), ranges: Vec<(u64, u64)>) {
        let ((offset, bytes), ahead) = (at, space.ahead());
        let is_known = self.0.lock().iter().any(|window| window.offset == offset);
        if bytes < BYTES_MIN || is_known || !ahead.make_room(bytes) {
            return;
        }
        let window = Arc::new(Window {
            ahead: Arc::clone(ahead),
            space: Arc::downgrade(space),
            ranges,
            offset,
            bytes,
            read: Mutex::new(Read::Waits),
            changed: Condvar::new(),
            cause: current_cause(),
        });
        self.0.lock().push_back(Arc::clone(&window));
        let mut state = ahead.state.lock();
        if state.all.len() >= ALL_MAX {
            state.all.retain(|window| window.strong_count() > 0);
        }
        state.all.push_back(Arc::downgrade(&window));
        state.queue.push_back(window);
        drop(state);
        ahead.changed.notify_all();
    }

    /// Fills `buf` with what is at `offset`, if that was hinted at and could be read.
    pub(super) fn take(&self, buf: &mut [u8], offset: u64) -> bool {
        let end = offset + buf.len() as u64;
        let has_it = |w: &&Arc<Window>| w.offset <= offset && end <= w.offset + w.bytes;
        let found = self.0.lock().iter().find(has_it).cloned();
        let Some(window) = found else { return false };
        let taken = window.take(buf, offset);
        // A window is read from its start to its end; what was given up is none.
        if !taken || end == window.offset + window.bytes {
            self.0.lock().retain(|other| !Arc::ptr_eq(other, &window));
            window.give_up();
        }
        taken
    }
}

impl Drop for Windows {
    fn drop(&mut self) {
        for window in self.0.lock().iter() {
            window.give_up();
        }
    }
}

impl State {
    /// Whether there is a thread, which is started if there is none.
    fn has_thread(&mut self, ahead: &Arc<Ahead>) -> bool {
        if self.thread.is_none() {
            let own = Arc::clone(ahead);
            // Without one everything works too.
            self.thread = sched::spawn("weir-ahead", move || own.run()).ok();
        }
        self.thread.is_some()
    }
}

impl Ahead {
    /// Stays a part of a memory budget.
    pub(super) fn keep_beside(&self, budget_bytes: u64) {
        let most = (budget_bytes / BUDGET_SHARE).clamp(SMALL_BYTES_MAX, BYTES_MAX);
        self.spared.store(BYTES_MAX - most, Ordering::Relaxed);
    }

    /// Takes so many bytes, for which older windows may have to go that were read and not asked
    /// for; whether there is room, and a thread.
    fn make_room(self: &Arc<Self>, bytes: u64) -> bool {
        let most = BYTES_MAX - self.spared.load(Ordering::Relaxed);
        loop {
            let oldest = {
                let mut state = self.state.lock();
                if state.closed || !state.has_thread(self) {
                    return false;
                }
                if state.bytes + bytes <= most {
                    state.bytes += bytes;
                    return true;
                }
                state.all.pop_front()
            };
            let Some(oldest) = oldest else { return false };
            let Some(window) = oldest.upgrade() else { continue };
            let is_read = matches!(*window.read.lock(), Read::Ended(_));
            if !is_read || !window.give_up() {
                // They are consumed faster than they are read.
                self.state.lock().all.push_front(oldest);
                return false;
            }
        }
    }

    /// Reads what is hinted at, until it is closed.
    fn run(&self) {
        loop {
            let next = {
                let mut state = self.state.lock();
                while state.queue.is_empty() && !state.closed {
                    self.changed.wait(&mut state);
                }
                if state.closed {
                    return;
                }
                state.queue.pop_front()
            };
            if let Some(window) = next {
                window.read_now();
            }
        }
    }

    /// Lets the thread end. Nothing is read ahead any more.
    pub(super) fn end(&self) -> Option<Thread> {
        let (thread, queue) = {
            let mut state = self.state.lock();
            state.closed = true;
            (state.thread.take(), std::mem::take(&mut state.queue))
        };
        self.changed.notify_all();
        drop(queue);
        thread
    }

    /// The same; returns when it has ended.
    pub(super) fn close(&self) {
        let thread = self.end();
        if let Some(thread) = thread {
            // Whether it panicked does not matter: it hands out nothing.
            let _ = thread.join();
        }
    }
}
