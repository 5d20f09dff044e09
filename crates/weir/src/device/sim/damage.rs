//! Damage at rest: corruption of bytes and names by the medium, outside any request.
//!
//! Damage is durable at once, visible through open files, and not recorded. Every function returns
//! whether there was something to damage.

use std::sync::Arc;

use crate::device::sim::content::Content;
use crate::device::sim::crash::SECTOR_BYTES;
use crate::device::sim::{Inode, SimDisk};

/// A part of a file, with its offset.
pub type WrittenPart = (u64, Vec<u8>);

impl SimDisk {
    fn damage(&self, name: &str, how: impl FnOnce(&mut Content) -> bool) -> bool {
        let mut state = self.shared.state.lock();
        let Some(id) = state.model.names.get(name).copied() else { return false };
        let Some(inode) = state.model.inodes.get_mut(&id) else { return false };
        let mut content = Content::clone(&inode.current);
        let done = how(&mut content);
        let content = Arc::new(content);
        inode.durable = Arc::clone(&content);
        inode.current = content;
        inode.pending.clear();
        done
    }

    /// All bytes of a file.
    #[must_use]
    pub fn read_all(&self, name: &str) -> Option<Vec<u8>> {
        self.shared.state.lock().model.file(name).map(|inode| inode.current.to_vec())
    }

    /// A file's length, and the parts of it that were ever written, with their offsets: the rest
    /// are zeros.
    #[must_use]
    pub fn read_written(&self, name: &str) -> Option<(u64, Vec<WrittenPart>)> {
        let state = self.shared.state.lock();
        let content = &state.model.file(name)?.current;
        let parts = content.written().map(|(at, bytes)| (at, bytes.to_vec())).collect();
        Some((content.len(), parts))
    }

    /// Replaces a file's bytes, or creates it: restores an older state, duplicates or misdirects.
    pub fn write_all(&self, name: &str, bytes: &[u8]) {
        let mut content = Content::default();
        content.write(0, bytes);
        let content = Arc::new(content);
        let mut state = self.shared.state.lock();
        let model = &mut state.model;
        let id = model.names.get(name).copied().unwrap_or_else(|| {
            model.next_inode += 1;
            model.next_inode - 1
        });
        model.names.insert(name.into(), id);
        model.durable_names.insert(name.into(), id);
        let inode = model.inodes.entry(id).or_default();
        let (in_use, class) = (Arc::clone(&inode.in_use), inode.class);
        *inode = Inode { in_use, class, ..Inode::at_rest(content) };
    }

    /// Inverts bit `bit` (of 8) of the byte at `offset`.
    pub fn flip_bit(&self, name: &str, offset: u64, bit: u32) -> bool {
        self.damage(name, |content| {
            let mut byte = [0];
            if content.read(offset, &mut byte) == 0 {
                return false;
            }
            content.write(offset, &[byte[0] ^ (1 << (bit % 8))]);
            true
        })
    }

    /// Fills the sector that holds `offset` with zeros.
    pub fn zero_sector(&self, name: &str, offset: u64) -> bool {
        self.damage(name, |content| {
            content.zero(offset / SECTOR_BYTES * SECTOR_BYTES, SECTOR_BYTES);
            offset < content.len()
        })
    }

    /// Copies the sector that holds `from` over the one that holds `to`: a misdirected write.
    pub fn copy_sector(&self, name: &str, from: u64, to: u64) -> bool {
        self.damage(name, |content| {
            let mut sector = [0; SECTOR_BYTES as usize];
            let got = content.read(from / SECTOR_BYTES * SECTOR_BYTES, &mut sector);
            let target = to / SECTOR_BYTES * SECTOR_BYTES;
            let room = content.len().saturating_sub(target).min(got as u64) as usize;
            content.write(target, &sector[..room]);
            room > 0
        })
    }

    /// Replaces some of a file's bytes.
    pub fn overwrite(&self, name: &str, offset: u64, bytes: &[u8]) -> bool {
        self.damage(name, |content| {
            content.write(offset, bytes);
            !bytes.is_empty()
        })
    }

    /// Copies some of a file's bytes over others.
    pub fn copy_part(&self, name: &str, from: u64, to: u64, bytes: u64) -> bool {
        self.damage(name, |content| {
            let mut part = vec![0; bytes as usize];
            let got = content.read(from, &mut part);
            content.write(to, &part[..got]);
            got > 0
        })
    }

    /// Truncates a file.
    pub fn truncate(&self, name: &str, len: u64) -> bool {
        self.damage(name, |content| {
            let shorter = len < content.len();
            content.set_len(content.len().min(len));
            shorter
        })
    }

    /// Appends bytes to a file.
    pub fn append_garbage(&self, name: &str, garbage: &[u8]) -> bool {
        self.damage(name, |content| {
            content.write(content.len(), garbage);
            !garbage.is_empty()
        })
    }

    /// Removes a name.
    pub fn delete(&self, name: &str) -> bool {
        let mut state = self.shared.state.lock();
        state.model.durable_names.remove(name);
        state.model.names.remove(name).is_some()
    }

    /// Exchanges two names.
    pub fn swap_files(&self, a: &str, b: &str) -> bool {
        let mut state = self.shared.state.lock();
        let model = &mut state.model;
        let mut swapped = false;
        for names in [&mut model.durable_names, &mut model.names] {
            let (file_a, file_b) = (names.get(a).copied(), names.get(b).copied());
            swapped = false;
            if let (Some(file_a), Some(file_b)) = (file_a, file_b) {
                names.insert(a.into(), file_b);
                names.insert(b.into(), file_a);
                swapped = true;
            }
        }
        swapped
    }
}
