//! Frames: the counted headers of blocks in memory, in memory that is never given to anything else.
//!
//! A [`Frame`] is one cache line: the number of its handles, the marks of its entries (`heat`), the
//! place of its bytes, and which block it holds. Frames are made in chunks that live as long as the
//! process, so that a pointer to one never dangles: a reader may look at a frame that was freed and
//! holds another block by now, and finds that out, instead of being kept from it by a lock. A hit
//! of the block cache is that ([`Link::take`]).
//!
//! Not here: the memory of blocks (`slabs`, `buf`), which block is linked where (`cache`).
//!
//! Invariants:
//! 1. A frame in use counts its handles; a free one counts [`FREE`] more. Who counts it down to 0
//!    takes the bytes only after it has put `FREE` there in place of the 0, so that one does.
//! 2. A reader that followed a link counts itself first and looks at the link again. If the link
//!    still names the frame, then the frame was linked at that moment, a link owns a handle, and so
//!    the reader's count was one of a frame in use and keeps it so. If not, the reader takes its
//!    count back and has touched nothing else.
//! 3. Bytes, their place and length change only in a frame with one handle and no link, or none.
//!
//! Why (2) is enough: the count changes by additions alone. If the reader's comes before the
//! subtraction of him who unlinked the frame, the frame is in use still. If it comes after, it sees
//! what was done before the subtraction, and so the link without the frame.
//!
//! Source: type-stable memory (Greenwald, Cheriton: "The synergy between non-blocking
//! synchronization and operating system structure", OSDI 1996); count first and look again as in
//! Valois: "Lock-free linked lists using compare-and-swap", PODC 1995.

use std::cell::RefCell;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicPtr as PlainPtr;
use std::sync::atomic::AtomicU32 as PlainU32;
use std::sync::atomic::AtomicU64 as PlainU64;

use crate::base::atomic::{AtomicU32, Ordering};
use crate::base::heat::HeatCell;
use crate::base::pointer::Pointer;
use crate::base::prefetch::{prefetch, prefetch_lines};
use crate::base::slabs::Piece;

/// More than all handles.
const FREE: u32 = 1 << 31;

/// So many handles do not fit the memory of any machine, unless they are forgotten.
const HANDLES_MAX: u32 = 1 << 30;

/// Frames that are made at a time: a page of them.
const CHUNK: usize = 64;

/// Free frames that a thread keeps, and half of them move between it and the others at a time.
const KEPT_MAX: usize = 32;

/// No entry of a cache's queues: no cache has the frame.
const NO_ENTRY: u32 = u32::MAX;

/// A cache has it, and no entry yet.
const CLAIMED: u32 = u32::MAX - 1;

/// The header of a block.
#[repr(C, align(64))]
pub(crate) struct Frame {
    /// Handles, links included.
    count: AtomicU32,
    /// Its entry in the queues of the cache that links it, or [`NO_ENTRY`]. For the cache.
    entry: PlainU32,
    /// Where the bytes are, how many, and how many their memory has.
    start: PlainPtr<u8>,
    len: PlainU32,
    capacity: PlainU32,
    pub(crate) heat: HeatCell,
    /// Uses since it was linked, as far as the cache counts them.
    uses: PlainU32,
    /// Which block of a table it holds: of the last cache that linked it.
    ordinal: PlainU32,
    uid: PlainU64,
}

const _: () = assert!(size_of::<Frame>() == 64);

/// Bytes of a frame.
pub(crate) const FRAME_BYTES: usize = size_of::<Frame>();

impl Frame {
    fn unused() -> Self {
        Self {
            count: AtomicU32::new(FREE),
            entry: PlainU32::new(NO_ENTRY),
            start: PlainPtr::new(ptr::null_mut()),
            len: PlainU32::new(0),
            capacity: PlainU32::new(0),
            heat: HeatCell::default(),
            uses: PlainU32::new(0),
            ordinal: PlainU32::new(0),
            uid: PlainU64::new(u64::MAX),
        }
    }

    /// The bytes of a frame in use.
    #[inline]
    fn bytes(&self) -> &[u8] {
        let start = self.start.load(Ordering::Relaxed);
        let len = self.len.load(Ordering::Relaxed) as usize;
        // SAFETY: `start` is that of a piece of memory, initialised, of at least `len` bytes, which
        // `set_memory` checked; they do not
        // change as long as the handle exists through which this is called (invariant 3), and the
        // bytes are freed after the last one (invariant 1).
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    /// Gives the frame its bytes. Requires: it has no bytes, and one owner.
    fn set_memory(&self, memory: Piece, len: usize) {
        let fits = |number: usize| u32::try_from(number).ok();
        let (Some(len), Some(capacity)) = (fits(len), fits(memory.bytes())) else {
            panic!("a block of {len} bytes, in memory of {}", memory.bytes());
        };
        assert!(len <= capacity, "a block of {len} bytes, in memory of {capacity}");
        self.start.store(memory.start().as_ptr(), Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
        self.capacity.store(capacity, Ordering::Relaxed);
    }

    /// Takes the bytes out. Requires: it has bytes, and one owner.
    fn take_memory(&self) -> Piece {
        let start = self.start.swap(ptr::null_mut(), Ordering::Relaxed);
        let Some(start) = NonNull::new(start) else { panic!("a frame is freed twice") };
        // SAFETY: these are the parts of the piece of `set_memory`, and the pointer was taken away.
        unsafe { Piece::from_parts(start, self.capacity.load(Ordering::Relaxed) as usize) }
    }

    /// Counts one handle down; the last one frees the frame.
    #[inline]
    fn release(&'static self) {
        if self.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.end();
        }
    }

    #[cold]
    #[inline(never)]
    fn end(&'static self) {
        // Somebody who followed an old link may have counted himself meanwhile: he ends it then.
        let free = self.count.compare_exchange(0, FREE, Ordering::AcqRel, Ordering::Relaxed);
        if free.is_ok() {
            crate::base::buf::recycle(self.take_memory());
            give_back(self);
        }
    }
}

/// A counted reference to a frame in use, and so to its bytes.
pub(crate) struct Handle(&'static Frame);

impl Handle {
    /// The only handle of a frame with `len` bytes in `memory`, which no cache links.
    pub(crate) fn new((memory, len): (Piece, usize), heat: HeatCell) -> Self {
        let frame = take_free();
        frame.set_memory(memory, len);
        frame.unname();
        frame.heat.set(&heat);
        // Others may have counted themselves, and take that back.
        frame.count.fetch_sub(FREE - 1, Ordering::AcqRel);
        Self(frame)
    }

    /// The bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// Bytes of the memory that holds them.
    #[inline]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }

    /// The marks of its entries.
    #[inline]
    pub(crate) fn heat(&self) -> &HeatCell {
        &self.0.heat
    }

    /// Puts `content` into its memory, if it is the only handle and `fits` says yes to the memory's
    /// bytes; the marks are gone then.
    pub(crate) fn refill(&mut self, content: &[u8], fits: impl FnOnce(usize) -> bool) -> bool {
        // Nobody else can make a handle of it: it is not linked, a link would be a second one.
        if self.0.count.load(Ordering::Acquire) != 1 || !fits(self.memory_bytes()) {
            return false;
        }
        let mut memory = self.0.take_memory();
        memory.as_mut()[..content.len()].copy_from_slice(content);
        self.0.set_memory(memory, content.len());
        self.0.unname();
        self.0.heat.set(&HeatCell::default());
        true
    }

    /// The only handle of another block with the same bytes and marks, which no cache has.
    pub(crate) fn copy(&self) -> Self {
        let heat = HeatCell::default();
        heat.set(&self.0.heat);
        Self::new(crate::base::buf::filled(self.bytes()), heat)
    }

    /// The frame, for the cache.
    pub(crate) fn frame(&self) -> &'static Frame {
        self.0
    }
}

impl Clone for Handle {
    #[inline]
    fn clone(&self) -> Self {
        if self.0.count.fetch_add(1, Ordering::Relaxed) > HANDLES_MAX {
            std::process::abort();
        }
        Self(self.0)
    }
}

impl Drop for Handle {
    #[inline]
    fn drop(&mut self) {
        self.0.release();
    }
}

/// What the cache keeps in a frame.
impl Frame {
    /// Whether it was claimed for this block last.
    #[inline]
    fn holds(&self, uid: u64, ordinal: u32) -> bool {
        self.uid.load(Ordering::Relaxed) == uid && self.ordinal.load(Ordering::Relaxed) == ordinal
    }

    fn unname(&self) {
        self.uid.store(u64::MAX, Ordering::Relaxed);
        self.entry.store(NO_ENTRY, Ordering::Relaxed);
        self.uses.store(0, Ordering::Relaxed);
    }

    /// Claims the frame for block `ordinal` of table `uid` of one cache; false if it is claimed, or
    /// was for another block. Requires: a handle.
    pub(crate) fn claim(&self, uid: u64, ordinal: u32) -> bool {
        let (done, failed) = (Ordering::AcqRel, Ordering::Relaxed);
        if self.entry.compare_exchange(NO_ENTRY, CLAIMED, done, failed).is_err() {
            return false;
        }
        let before = self.uid.load(Ordering::Relaxed);
        let is_same = before == uid && self.ordinal.load(Ordering::Relaxed) == ordinal;
        if before != u64::MAX && !is_same {
            self.unclaim();
            return false;
        }
        self.ordinal.store(ordinal, Ordering::Relaxed);
        self.uid.store(uid, Ordering::Relaxed);
        true
    }

    /// Ends a claim. Requires: it is not linked.
    pub(crate) fn unclaim(&self) {
        self.entry.store(NO_ENTRY, Ordering::Release);
    }

    /// Its entry in the queues of the cache that claimed it. Requires: that cache's lock.
    pub(crate) fn entry(&self) -> u32 {
        self.entry.load(Ordering::Relaxed)
    }

    /// Sets its entry. Requires: as for [`entry`](Self::entry).
    pub(crate) fn set_entry(&self, entry: u32) {
        self.entry.store(entry, Ordering::Relaxed);
    }

    /// Bytes of the memory that holds the bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.capacity.load(Ordering::Relaxed) as usize
    }

    /// Uses, as far as they were counted.
    #[inline]
    pub(crate) fn uses(&self) -> u32 {
        self.uses.load(Ordering::Relaxed)
    }

    /// Sets the number of uses. Two who count at once may count one.
    #[inline]
    pub(crate) fn set_uses(&self, uses: u32) {
        self.uses.store(uses, Ordering::Relaxed);
    }
}

/// Where a cache says which frame holds a block: a pointer to a frame, or none. It owns a handle.
#[derive(Default)]
pub(crate) struct Link(Pointer<Frame>);

impl Link {
    /// Whether it names a frame.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    /// The block of this link, if it is block `ordinal` of table `uid`. Prefetches `lines` of it.
    ///
    /// That it is asks more than (2) of the module's invariants, because the link itself may be
    /// used for another block meanwhile (`cache::directory`).
    #[inline]
    pub(crate) fn take(&self, uid: u64, ordinal: u32, lines: usize) -> Option<Handle> {
        let frame = self.0.get()?;
        prefetch_lines(frame.start.load(Ordering::Relaxed), lines);
        frame.count.fetch_add(1, Ordering::Acquire);
        let is_linked = self.0.get().is_some_and(|now| ptr::eq(now, frame));
        if is_linked && frame.holds(uid, ordinal) {
            return Some(Handle(frame));
        }
        frame.release();
        None
    }

    /// Requests the memory of the frame that it names.
    #[inline]
    pub(crate) fn request(&self) {
        if let Some(frame) = self.0.get() {
            prefetch::<Frame>(frame);
        }
    }

    /// Whether it is the link of block `ordinal` of table `uid`, as of now: takes no handle.
    #[inline]
    pub(crate) fn is_of(&self, uid: u64, ordinal: u32) -> bool {
        self.0.get().is_some_and(|frame| frame.holds(uid, ordinal))
    }

    /// Names the frame of `handle`. Requires: the cache's lock, and that it names none.
    pub(crate) fn set(&self, handle: Handle) {
        let frame = std::mem::ManuallyDrop::new(handle).0;
        let before = self.0.swap(Some(frame));
        assert!(before.is_none(), "a link to two frames");
    }

    /// Names none any more. Requires: the cache's lock.
    pub(crate) fn clear(&self) -> Option<Handle> {
        // The link's handle goes to the caller.
        self.0.swap(None).map(Handle)
    }

    /// The frame that it names. Requires: the cache's lock.
    pub(crate) fn frame(&self) -> Option<&'static Frame> {
        self.0.get()
    }
}

/// Free frames, of all threads. Not a lock of `sched`: it must not be a switch point.
static FREE_FRAMES: parking_lot::Mutex<Vec<&'static Frame>> = parking_lot::Mutex::new(Vec::new());

/// Free frames of one thread.
struct Kept(RefCell<Vec<&'static Frame>>);

impl Drop for Kept {
    fn drop(&mut self) {
        FREE_FRAMES.lock().append(&mut self.0.borrow_mut());
    }
}

thread_local! {
    static KEPT: Kept = const { Kept(RefCell::new(Vec::new())) };
}

/// A free frame, which is the caller's alone.
fn take_free() -> &'static Frame {
    // In the destructor of another thread-local the kept ones may be gone already.
    let kept = KEPT.try_with(|kept| {
        let mut kept = kept.0.borrow_mut();
        if kept.is_empty() {
            fill(&mut kept);
        }
        kept.pop()
    });
    kept.ok().flatten().unwrap_or_else(|| {
        let mut fresh = Vec::new();
        fill(&mut fresh);
        let frame = fresh.pop();
        FREE_FRAMES.lock().append(&mut fresh);
        frame.unwrap_or_else(|| Box::leak(Box::new(Frame::unused())))
    })
}

fn fill(kept: &mut Vec<&'static Frame>) {
    let mut free = FREE_FRAMES.lock();
    if free.is_empty() {
        let chunk: Box<[Frame]> = (0..CHUNK).map(|_| Frame::unused()).collect();
        let chunk: &'static [Frame] = Box::leak(chunk);
        free.extend(chunk);
    }
    let rest = free.len() - free.len().min(KEPT_MAX / 2);
    kept.extend(free.drain(rest..));
}

fn give_back(frame: &'static Frame) {
    let kept = KEPT.try_with(|kept| {
        let mut kept = kept.0.borrow_mut();
        if kept.len() >= KEPT_MAX {
            FREE_FRAMES.lock().extend(kept.drain(..KEPT_MAX / 2));
        }
        kept.push(frame);
    });
    if kept.is_err() {
        FREE_FRAMES.lock().push(frame);
    }
}
