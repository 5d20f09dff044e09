//! The entries of a shard's blocks, in two queues: newest first, oldest last.
//!
//! Entries lie in chunks that do not move and are not freed before the shard: an index names one.
//! Not here: which queue a block belongs to (`shard`). One owner, under the shard's lock.

use std::sync::Arc;

use super::directory::Directory;
use crate::base::frame::Frame;
use crate::base::prefetch::prefetch;

/// No entry.
const NONE: u32 = u32::MAX;

const CHUNK: usize = 64;

/// One of the two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Queue {
    /// Newcomers.
    Small = 0,
    /// Blocks that were used as newcomers, or came back soon.
    Main = 1,
}

/// A cached block.
pub(super) struct Cached {
    pub(super) frame: &'static Frame,
    pub(super) directory: Arc<Directory>,
    pub(super) ordinal: u32,
}

struct Entry {
    cached: Option<(&'static Frame, Arc<Directory>)>,
    ordinal: u32,
    newer: u32,
    /// Of a free entry: the next free one.
    older: u32,
    queue: Queue,
}

/// Bytes of an entry.
pub(super) const ENTRY_BYTES: usize = size_of::<Entry>();

const _: () = assert!(ENTRY_BYTES == 32);

/// The ends of a queue, and the bytes of its blocks.
#[derive(Clone, Copy)]
struct Ends {
    newest: u32,
    oldest: u32,
    bytes: u64,
}

/// See the module.
pub(super) struct Entries {
    chunks: Vec<Box<[Entry]>>,
    free: u32,
    queues: [Ends; 2],
    count: usize,
}

impl Entries {
    pub(super) fn new() -> Self {
        let empty = Ends { newest: NONE, oldest: NONE, bytes: 0 };
        Self { chunks: Vec::new(), free: NONE, queues: [empty; 2], count: 0 }
    }

    /// Number of blocks.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Bytes of the blocks of a queue.
    pub(super) fn bytes(&self, queue: Queue) -> u64 {
        self.queues[queue as usize].bytes
    }

    /// The oldest block of a queue: its entry and frame.
    pub(super) fn oldest(&self, queue: Queue) -> Option<(u32, &'static Frame)> {
        let oldest = self.queues[queue as usize].oldest;
        if oldest == NONE {
            return None;
        }
        let (frame, _) = self.at(oldest).cached.as_ref()?;
        Some((oldest, *frame))
    }

    /// Brings into the processor's cache what the next evictions of a queue will look at, each
    /// thing one eviction after what it is found through: the link of the oldest block, the frame
    /// and the page of the one after it, the entry of the one after that.
    #[inline]
    pub(super) fn request_oldest(&self, queue: Queue) {
        let oldest = self.queues[queue as usize].oldest;
        let Some((entry, directory)) = self.cached_at(oldest) else { return };
        directory.request_link(entry.ordinal);
        let Some((next, directory)) = self.cached_at(entry.newer) else { return };
        directory.request_page(next.ordinal);
        if let Some((frame, _)) = &next.cached {
            prefetch::<Frame>(*frame);
        }
        if next.newer != NONE {
            prefetch(self.at(next.newer));
        }
    }

    fn cached_at(&self, index: u32) -> Option<(&Entry, &Directory)> {
        let entry = (index != NONE).then(|| self.at(index))?;
        entry.cached.as_ref().map(|(_, directory)| (entry, &**directory))
    }

    /// Adds a block of `bytes` as the newest of `queue`; returns its entry.
    pub(super) fn add(&mut self, cached: Cached, queue: Queue, bytes: u64) -> u32 {
        if self.free == NONE {
            self.grow();
        }
        let index = self.free;
        let entry = self.at_mut(index);
        let next = entry.older;
        entry.cached = Some((cached.frame, cached.directory));
        entry.ordinal = cached.ordinal;
        self.free = next;
        self.count += 1;
        self.link(index, queue, bytes);
        index
    }

    /// Removes a block of `bytes`.
    pub(super) fn remove(&mut self, index: u32, bytes: u64) -> Option<Cached> {
        self.unlink(index, bytes);
        let free = self.free;
        let entry = self.at_mut(index);
        let (frame, directory) = entry.cached.take()?;
        let ordinal = entry.ordinal;
        entry.older = free;
        self.free = index;
        self.count -= 1;
        Some(Cached { frame, directory, ordinal })
    }

    /// Makes a block of `bytes` the newest of `queue`.
    pub(super) fn renew(&mut self, index: u32, queue: Queue, bytes: u64) {
        self.unlink(index, bytes);
        self.link(index, queue, bytes);
    }

    /// The key of a block: its table's uid and its number.
    pub(super) fn key(&self, index: u32) -> Option<(u64, u32)> {
        let entry = self.at(index);
        entry.cached.as_ref().map(|(_, directory)| (directory.uid.get(), entry.ordinal))
    }

    fn at(&self, index: u32) -> &Entry {
        &self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }

    fn at_mut(&mut self, index: u32) -> &mut Entry {
        &mut self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }

    #[cold]
    fn grow(&mut self) {
        let start = (self.chunks.len() * CHUNK) as u32;
        let entry = |place: u32| Entry {
            cached: None,
            ordinal: 0,
            newer: NONE,
            older: if place + 1 < CHUNK as u32 { start + place + 1 } else { NONE },
            queue: Queue::Small,
        };
        self.chunks.push((0..CHUNK as u32).map(entry).collect());
        self.free = start;
    }

    fn unlink(&mut self, index: u32, bytes: u64) {
        let Entry { newer, older, queue, .. } = *self.at(index);
        if newer == NONE {
            self.queues[queue as usize].newest = older;
        } else {
            self.at_mut(newer).older = older;
        }
        if older == NONE {
            self.queues[queue as usize].oldest = newer;
        } else {
            self.at_mut(older).newer = newer;
        }
        let ends = &mut self.queues[queue as usize];
        debug_assert!(ends.bytes >= bytes, "{bytes} bytes of {}", ends.bytes);
        ends.bytes -= bytes;
    }

    fn link(&mut self, index: u32, queue: Queue, bytes: u64) {
        let ends = &mut self.queues[queue as usize];
        let before = ends.newest;
        ends.newest = index;
        ends.bytes += bytes;
        if before == NONE {
            ends.oldest = index;
        } else {
            self.at_mut(before).newer = index;
        }
        let entry = self.at_mut(index);
        (entry.newer, entry.older, entry.queue) = (NONE, before, queue);
    }
}
