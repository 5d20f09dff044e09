//! How much fits on the disk.
//!
//! Space is counted in whole pages, as a file system gives it, for every file that has a name or is
//! open. A request that needs more than there is changes nothing and fails as a full file system's
//! does; what is removed or cut off gives its pages back.
//!
//! Simplifications, with the direction of their error: a hole takes its space at once, and a file
//! that is there at the start may be more than fits (a file system would never have had it);
//! metadata takes no space (a real disk is full a little earlier).
//!
//! Invariant: `pages` is the sum over all files.

use super::{Shared, State};
use crate::base::error::{Error, Result};
use crate::device::spindle::pages::PAGE_BYTES;

/// The pages of all files.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Space {
    pages: u64,
}

impl Space {
    /// A file of `old` bytes has `new`.
    pub(super) fn resize(&mut self, old: u64, new: u64) {
        let (old, new) = (old.div_ceil(PAGE_BYTES), new.div_ceil(PAGE_BYTES));
        assert!(old <= self.pages, "a file of {old} pages, all have {}", self.pages);
        self.pages = self.pages - old + new;
    }

    fn bytes(self) -> u64 {
        self.pages * PAGE_BYTES
    }
}

impl State {
    /// Bytes that are left of `capacity`; `None` if that is 0, which is no limit.
    pub(super) fn free_bytes(&self, capacity: u64) -> Option<u64> {
        (capacity > 0).then(|| capacity.saturating_sub(self.space.bytes()))
    }
}

impl Shared {
    /// That file `id` may be `bytes` long, each charged.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(super) fn room_for(&self, id: u64, bytes: u64) -> Result<()> {
        let (capacity, bytes) = (self.options.capacity_bytes, bytes * self.options.charge);
        if capacity == 0 {
            return Ok(());
        }
        let state = self.state.lock();
        let old = state.files.get(&id).map_or(0, |node| node.bytes);
        let more = bytes.div_ceil(PAGE_BYTES).saturating_sub(old.div_ceil(PAGE_BYTES));
        let free = state.free_bytes(capacity).unwrap_or(0);
        if more * PAGE_BYTES <= free {
            return Ok(());
        }
        let what = format!(
            "making a file of {old} bytes {bytes} long on a simulated disk of {capacity} bytes, of \
             which {free} are free"
        );
        Err(Error::io(what, std::io::ErrorKind::StorageFull.into()))
    }
}
