// FORMAT: docs/format/table_meta.md sha=4d1ed8aa1c7b
//! Where a table's bytes are in a form of storage that has no names: a list of extents of slots.
//!
//! In a directory the file's name says it all, and the place is empty. Recorded with the table's
//! description; not here: how large a slot is, which of them are free, what an extent ends with
//! (`storage`).
//!
//! Invariants, which `decode` and [`Place::check`] reject: (1) an extent has at least one slot; (2)
//! slots end before 2^40; (3) the extents of a place do not share a slot.
//!
//! Source: LDS §3.2. We differ: a table is a list of extents, not one slot.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use crate::base::coding::{Reader, put_varint};

/// What the last slot of an extent keeps for storage: the trailer that says whose the extent is.
pub(crate) const TRAILER_BYTES: u64 = 4096;

/// Slots of a space end before: 2^40 of 64 KiB would be 64 PiB.
const SLOTS_END: u64 = 1 << 40;

/// Neighbouring slots of one space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extent {
    /// Number of the space: a device, or a part of one.
    pub space: u32,
    /// The first slot.
    pub slot: u64,
    /// How many slots.
    pub slots: u64,
}

impl Extent {
    /// The slot behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.slot.saturating_add(self.slots)
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.space == other.space && self.slot < other.end() && other.slot < self.end()
    }

    /// Appends its three numbers.
    pub(crate) fn encode(&self, buf: &mut Vec<u8>) {
        put_varint(buf, u64::from(self.space));
        put_varint(buf, self.slot);
        put_varint(buf, self.slots);
    }

    /// The extent that is all of `bytes`; `None` if it is none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let space = u32::try_from(reader.varint()?).ok()?;
        let (slot, slots) = (reader.varint()?, reader.varint()?);
        let extent = Self { space, slot, slots };
        let sound = reader.is_empty() && slots > 0 && extent.end() < SLOTS_END;
        sound.then_some(extent)
    }
}

/// The extents of a table, in the order of its bytes; none in a form that has names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place(Vec<Extent>);

impl Place {
    /// The place in these extents.
    #[cfg(test)]
    pub(crate) fn new(extents: Vec<Extent>) -> Self {
        Self(extents)
    }

    /// Its extents.
    #[must_use]
    pub fn extents(&self) -> &[Extent] {
        &self.0
    }

    /// Appends an extent.
    pub(crate) fn push(&mut self, extent: Extent) {
        self.0.push(extent);
    }

    /// Adds the slots behind the last one.
    pub(crate) fn lengthen(&mut self, slots: u64) {
        if let Some(last) = self.0.last_mut() {
            last.slots += slots;
        }
    }

    /// Checks invariant 3.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let apart = sorted.iter().zip(sorted.iter().skip(1)).all(|(a, b)| !a.overlaps(b));
        if apart { Ok(()) } else { Err("has extents that share a slot") }
    }
}
