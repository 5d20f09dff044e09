//! The map of slots: which are free, reserved, owned or leaving, in memory only.
//!
//! A version says which tables live and where; this says what is left. Not here: what a slot holds,
//! the durability of the edit after which a table is removed (`state::reclaimer`).
//!
//! Invariants: (1) every slot is free, reserved by a table that is being written, owned by one that
//! is finished, or leaving: free + reserved + owned + leaving = all, checked after each change; (2)
//! a slot becomes free when its table was removed, nobody reads it any more, and its discard has
//! ended (H30, H77): until then it is leaving; (3) a uid has slots once; (4) what cannot be taken
//! in whole is not taken at all.
//!
//! Allocation is next-fit, from behind the last one, and with each opening from the first slot on:
//! while it is open a store leaves what was freed alone as long as it can, and what openings write
//! in turn are slots that were written before, which cost a file system no metadata (H36). A table
//! that grows goes on behind its last slot if that is free; one run of slots is preferred, several
//! are accepted.
//!
//! Source: LDS §3.2 (reserve, acquire, forfeit). We differ: a table has several slots, and reserves
//! some when it is begun and more as it grows. That there are enough for a whole job is seen to
//! before it begins (H41, `db::space_checks`).

use std::collections::BTreeMap;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::ids::TableUid;
use crate::base::place::{Extent, Place};

/// A table that has slots.
#[derive(Debug)]
struct Owner {
    place: Place,
    bytes: u64,
    readers: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Being written.
    Reserved,
    Owned,
    /// Its slots are free once nobody reads it and they are discarded.
    Leaving,
}

/// Slots by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) all: u64,
    pub(super) free: u64,
    pub(super) reserved: u64,
    pub(super) owned: u64,
    pub(super) leaving: u64,
}

/// The slots of one space, by state.
#[derive(Debug)]
pub(super) struct SlotMap {
    space: u32,
    /// Free runs: number of slots by the first, none of them neighbours.
    free: BTreeMap<u64, u64>,
    owners: BTreeMap<TableUid, Owner>,
    counts: Counts,
    /// Where the next search begins.
    next: u64,
}

impl SlotMap {
    /// A space of free slots.
    pub(super) fn new(space: u32, slots: u64) -> Self {
        let free = if slots > 0 { BTreeMap::from([(0, slots)]) } else { BTreeMap::new() };
        let counts = Counts { all: slots, free: slots, ..Counts::default() };
        Self { space, free, owners: BTreeMap::new(), counts, next: 0 }
    }

    /// Gives table `uid`, which a version names, the slots of its place.
    ///
    /// # Errors
    /// `Corruption` naming `name` if they are not all free, or not there: another table has them.
    pub(super) fn adopt(
        &mut self,
        uid: TableUid,
        place: &Place,
        bytes: u64,
        name: &str,
    ) -> Result<()> {
        let all_free = place.extents().iter().all(|extent| self.is_free(extent));
        let apart = place.check().is_ok() && !place.extents().is_empty();
        if !all_free || !apart || self.owners.contains_key(&uid) {
            let what = "its slots are another table's, or not there";
            return Err(Error::corruption(name, 0, what));
        }
        for extent in place.extents() {
            self.take(extent);
        }
        let place = place.clone();
        self.counts.owned += slots_of(&place);
        self.owners.insert(uid, Owner { place, bytes, readers: 0, state: State::Owned });
        self.check();
        Ok(())
    }

    /// Begins a table, which has no slots yet.
    ///
    /// # Errors
    /// `Conflict` for a uid that is there, or is leaving.
    pub(super) fn begin(&mut self, uid: TableUid) -> Result<()> {
        if self.owners.contains_key(&uid) {
            return Err(Error::new(ErrorKind::Conflict, format!("there is a table {uid} already")));
        }
        let (place, state) = (Place::default(), State::Reserved);
        self.owners.insert(uid, Owner { place, bytes: 0, readers: 0, state });
        Ok(())
    }

    /// Gives `slots` more slots to a table that is being written; its place then.
    ///
    /// # Errors
    /// `NoSpace` if fewer are free. Nothing is taken then.
    pub(super) fn reserve(&mut self, uid: TableUid, slots: u64) -> Result<Place> {
        assert!(slots > 0, "table {uid} asks for no slots");
        if self.counts.free < slots {
            let what = format!("table {uid} needs {slots} slots, {} are free", self.counts.free);
            return Err(Error::new(ErrorKind::NoSpace, what));
        }
        let mut place = self.being_written(uid).place.clone();
        let mut wanted = slots;
        // The free run behind its last slot.
        if let Some(end) = place.extents().last().map(Extent::end)
            && let Some(&run) = self.free.get(&end)
        {
            let more = Extent { space: self.space, slot: end, slots: run.min(wanted) };
            self.take(&more);
            place.lengthen(more.slots);
            wanted -= more.slots;
        }
        if wanted > 0 {
            for extent in self.find(wanted) {
                self.take(&extent);
                place.push(extent);
            }
        }
        self.next = place.extents().last().map_or(0, Extent::end);
        self.counts.reserved += slots;
        self.being_written(uid).place = place.clone();
        self.check();
        Ok(place)
    }

    /// Takes all but the first `slots` slots back from a table that is being written; its place
    /// then.
    pub(super) fn forfeit(&mut self, uid: TableUid, slots: u64) -> Place {
        let place = self.being_written(uid).place.clone();
        assert!(slots <= slots_of(&place), "table {uid} keeps {slots} slots of {place:?}");
        let (mut kept, mut left) = (Place::default(), slots);
        for extent in place.extents() {
            let own = extent.slots.min(left);
            left -= own;
            if own > 0 {
                kept.push(Extent { slots: own, ..*extent });
            }
            if own < extent.slots {
                let back = Extent { slot: extent.slot + own, slots: extent.slots - own, ..*extent };
                self.release(&back);
                self.counts.reserved -= back.slots;
            }
        }
        self.next = kept.extents().last().map_or(self.next, Extent::end);
        self.being_written(uid).place = kept.clone();
        self.check();
        kept
    }

    /// Ends the writing of a table of `bytes` bytes: it can be read, and has its slots until it is
    /// removed.
    pub(super) fn acquire(&mut self, uid: TableUid, bytes: u64) {
        let owner = self.being_written(uid);
        (owner.bytes, owner.state) = (bytes, State::Owned);
        let slots = slots_of(&owner.place);
        assert!(slots > 0, "table {uid} has no slots");
        self.counts.reserved -= slots;
        self.counts.owned += slots;
        self.check();
    }

    fn being_written(&mut self, uid: TableUid) -> &mut Owner {
        let owner = self.owners.get_mut(&uid).filter(|owner| owner.state == State::Reserved);
        owner.unwrap_or_else(|| panic!("table {uid} is not being written"))
    }

    /// Notes a reader of a table: its slots are not given out before it ends. Its place and bytes;
    /// `None` for a table that is not there.
    pub(super) fn pin(&mut self, uid: TableUid) -> Option<(Place, u64)> {
        let owner = self.owners.get_mut(&uid).filter(|owner| owner.state == State::Owned)?;
        owner.readers += 1;
        Some((owner.place.clone(), owner.bytes))
    }

    /// Ends a reader. The place to discard, if it was the last one of a removed table; then
    /// [`discarded`](Self::discarded) frees it.
    pub(super) fn unpin(&mut self, uid: TableUid) -> Option<Place> {
        let owner = self.owners.get_mut(&uid).unwrap_or_else(|| panic!("no table {uid} is read"));
        assert!(owner.readers > 0, "a reader of table {uid} ends that has not begun");
        owner.readers -= 1;
        (owner.state == State::Leaving && owner.readers == 0).then(|| owner.place.clone())
    }

    /// Removes a table, after the edit that does is durable; one that is being written, at any
    /// time. The place to discard, if nobody reads it.
    ///
    /// # Errors
    /// `NotFound`.
    pub(super) fn remove(&mut self, uid: TableUid) -> Result<Option<Place>> {
        let owner = self.owners.get_mut(&uid).filter(|owner| owner.state != State::Leaving);
        let Some(owner) = owner else {
            return Err(Error::new(ErrorKind::NotFound, format!("there is no table {uid}")));
        };
        let slots = slots_of(&owner.place);
        match owner.state {
            State::Reserved => self.counts.reserved -= slots,
            _ => self.counts.owned -= slots,
        }
        owner.state = State::Leaving;
        let place = (owner.readers == 0).then(|| owner.place.clone());
        self.counts.leaving += slots;
        self.check();
        Ok(place)
    }

    /// Frees the slots of a removed table that nobody reads, after their discard has ended, or was
    /// left out.
    pub(super) fn discarded(&mut self, uid: TableUid) {
        let owner = self.owners.remove(&uid).unwrap_or_else(|| panic!("no table {uid} leaves"));
        let left = owner.state == State::Leaving && owner.readers == 0;
        assert!(left, "table {uid} is freed too early: {owner:?}");
        self.counts.leaving -= slots_of(&owner.place);
        for extent in owner.place.extents() {
            self.release(extent);
        }
        self.check();
    }

    /// Tables that are there, ascending; those that are being written among them.
    pub(super) fn uids(&self) -> impl Iterator<Item = TableUid> {
        self.owners.iter().filter(|(_, owner)| owner.state != State::Leaving).map(|(&uid, _)| uid)
    }

    /// Readers of all tables together.
    pub(super) fn readers(&self) -> u64 {
        self.owners.values().map(|owner| owner.readers).sum()
    }

    /// Slots by state.
    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// Extents that all tables together have.
    pub(super) fn extents(&self) -> u64 {
        self.owners.values().map(|owner| owner.place.extents().len() as u64).sum()
    }

    /// Slots in the largest free run.
    pub(super) fn largest_run(&self) -> u64 {
        self.free.values().copied().max().unwrap_or(0)
    }

    fn is_free(&self, extent: &Extent) -> bool {
        let run = self.free.range(..=extent.slot).next_back();
        extent.space == self.space
            && run.is_some_and(|(start, slots)| extent.end() <= start + slots)
    }

    /// Free slots in as few extents as next-fit finds: the first run behind the last allocation
    /// that has all of them, else whole runs from there on.
    fn find(&self, slots: u64) -> Vec<Extent> {
        let extent = |slot, slots| Extent { space: self.space, slot, slots };
        // The run that the last allocation was cut from begins behind it.
        let runs = || self.free.range(self.next..).chain(self.free.range(..self.next));
        if let Some((&slot, _)) = runs().find(|(_, run)| **run >= slots) {
            return vec![extent(slot, slots)];
        }
        let mut left = slots;
        let mut found = Vec::new();
        for (&slot, &run) in runs() {
            let taken = run.min(left);
            found.push(extent(slot, taken));
            left -= taken;
            if left == 0 {
                break;
            }
        }
        assert_eq!(left, 0, "{slots} slots of {} free ones", self.counts.free);
        found
    }

    /// Cuts an extent out of the free run that it is in.
    fn take(&mut self, extent: &Extent) {
        let run =
            self.free.range(..=extent.slot).next_back().map(|(&start, &slots)| (start, slots));
        let Some((start, slots)) = run.filter(|(start, slots)| extent.end() <= start + slots)
        else {
            panic!("{extent:?} is not free");
        };
        self.free.remove(&start);
        if start < extent.slot {
            self.free.insert(start, extent.slot - start);
        }
        if extent.end() < start + slots {
            self.free.insert(extent.end(), start + slots - extent.end());
        }
        self.counts.free -= extent.slots;
    }

    /// Makes an extent free, joined with its neighbours.
    fn release(&mut self, extent: &Extent) {
        let (mut start, mut end) = (extent.slot, extent.end());
        if let Some((&before, &slots)) = self.free.range(..start).next_back() {
            assert!(before + slots <= start, "{extent:?} is free already");
            if before + slots == start {
                start = before;
            }
        }
        if let Some((&after, &slots)) = self.free.range(extent.slot..).next() {
            assert!(end <= after, "{extent:?} is free already");
            if end == after {
                self.free.remove(&after);
                end += slots;
            }
        }
        self.free.insert(start, end - start);
        self.counts.free += extent.slots;
    }

    /// Invariant 1.
    fn check(&self) {
        let Counts { all, free, reserved, owned, leaving } = self.counts;
        assert!(
            free + reserved + owned + leaving == all,
            "{free} free, {reserved} reserved, {owned} owned, {leaving} leaving, in all {all}"
        );
    }
}

/// Slots of a table.
pub(super) fn slots_of(place: &Place) -> u64 {
    place.extents().iter().map(|extent| extent.slots).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::uid;
    use crate::base::prng::Prng;

    /// What each slot is, by a plain list.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Slot {
        Free,
        Of(TableUid),
    }

    fn slots_in(place: &Place) -> Vec<usize> {
        let slots = |e: &Extent| e.slot as usize..e.end() as usize;
        place.extents().iter().flat_map(slots).collect()
    }

    /// Goal: no slot has two tables, none is lost, and none is given out while a removed table is
    /// read or discarded (H30). Method: random calls against a list of slots.
    #[test]
    fn against_a_list() {
        for seed in 0..40 {
            let mut prng = Prng::new(seed);
            let mut map = SlotMap::new(3, 64);
            let mut list = [Slot::Free; 64];
            let (mut readers, mut written): (Vec<TableUid>, Vec<TableUid>) = Default::default();
            for (step, number) in (1..400).enumerate() {
                let place = format!("seed {seed}, step {step}");
                let live: Vec<TableUid> = map.uids().filter(|uid| !written.contains(uid)).collect();
                let mut ended = None;
                match prng.below(8) {
                    0 => {
                        map.begin(uid(number)).expect("new");
                        assert_eq!(map.begin(uid(number)).unwrap_err().kind(), ErrorKind::Conflict);
                        written.push(uid(number));
                    }
                    1 | 2 if !written.is_empty() => {
                        let chosen = written[prng.below(written.len() as u64) as usize];
                        let (free, slots) = (map.counts().free, 1 + prng.below(12));
                        let taken = map.reserve(chosen, slots);
                        assert_eq!(taken.is_ok(), slots <= free, "{place}: {taken:?}");
                        let taken = taken.map_or_else(|_| Vec::new(), |place| slots_in(&place));
                        for slot in taken {
                            let is_ours = [Slot::Free, Slot::Of(chosen)].contains(&list[slot]);
                            assert!(is_ours, "{place}: slot {slot}");
                            list[slot] = Slot::Of(chosen);
                        }
                    }
                    3 if !written.is_empty() => {
                        let chosen = written.swap_remove(0);
                        let own = list.iter().filter(|slot| **slot == Slot::Of(chosen)).count();
                        if own == 0 {
                            ended = map.remove(chosen).expect("there").map(|_| chosen);
                        } else {
                            let keep = 1 + prng.below(own as u64);
                            let kept = slots_in(&map.forfeit(chosen, keep));
                            assert_eq!(kept.len() as u64, keep, "{place}");
                            for (at, slot) in list.iter_mut().enumerate() {
                                if *slot == Slot::Of(chosen) && !kept.contains(&at) {
                                    *slot = Slot::Free;
                                }
                            }
                            map.acquire(chosen, 7);
                        }
                    }
                    4 | 5 if !live.is_empty() => {
                        let chosen = live[prng.below(live.len() as u64) as usize];
                        if prng.chance(1, 2) {
                            assert_eq!(map.pin(chosen).expect(&place).1, 7);
                            readers.push(chosen);
                        } else {
                            ended = map.remove(chosen).expect(&place).map(|_| chosen);
                        }
                    }
                    6 if !readers.is_empty() => {
                        let chosen = readers.swap_remove(0);
                        ended = map.unpin(chosen).map(|_| chosen);
                    }
                    _ => {}
                }
                if let Some(gone) = ended {
                    assert!(!readers.contains(&gone) && map.pin(gone).is_none(), "{place}");
                    map.discarded(gone);
                    list.iter_mut().filter(|s| **s == Slot::Of(gone)).for_each(|s| *s = Slot::Free);
                }
                let free = list.iter().filter(|slot| **slot == Slot::Free).count() as u64;
                assert_eq!(map.counts().free, free, "{place}");
                let runs = list.split(|slot| *slot != Slot::Free).map(<[Slot]>::len).max();
                assert_eq!(map.largest_run() as usize, runs.unwrap_or(0), "{place}");
            }
        }
    }

    /// Goal: what a version names is taken as it is, and twice is damage. Method: two tables side
    /// by side, then one over both, one behind the end, one of another space, and one again.
    #[test]
    fn places_of_versions_are_adopted() {
        let mut map = SlotMap::new(0, 10);
        let extent = |space, slot, slots| Extent { space, slot, slots };
        let at = |extents: &[Extent]| Place::new(extents.to_vec());
        map.adopt(uid(1), &at(&[extent(0, 8, 2), extent(0, 0, 1)]), 1, "table 1").expect("free");
        map.adopt(uid(2), &at(&[extent(0, 1, 3)]), 2, "table 2").expect("free");
        let bad = [
            (uid(3), at(&[extent(0, 3, 2)])),
            (uid(3), at(&[extent(0, 9, 2)])),
            (uid(3), at(&[extent(1, 5, 1)])),
            (uid(3), at(&[extent(0, 5, 1), extent(0, 8, 1)])),
            (uid(3), at(&[extent(0, 5, 1), extent(0, 5, 1)])),
            (uid(3), at(&[])),
            (uid(2), at(&[extent(0, 5, 1)])),
        ];
        for (uid, place) in bad {
            let error = map.adopt(uid, &place, 3, "table 3").expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Corruption, "{place:?}");
        }
        assert_eq!((map.counts().free, map.largest_run()), (4, 4));
        map.begin(uid(3)).expect("new");
        let taken = map.reserve(uid(3), 4).expect("they are free");
        assert_eq!(taken.extents(), [extent(0, 4, 4)]);
        let full = map.reserve(uid(3), 1).expect_err("nothing is left");
        assert_eq!(full.kind(), ErrorKind::NoSpace);
    }

    /// Goal: allocation goes on behind the last one, a table that grows goes on behind itself, and
    /// one in pieces has few. Method: every other table of a full map is removed.
    #[test]
    fn next_fit_prefers_one_run() {
        let mut map = SlotMap::new(0, 12);
        let take = |map: &mut SlotMap, number, slots: &[u64]| {
            map.begin(uid(number)).expect("new");
            let places = slots.iter().map(|&slots| map.reserve(uid(number), slots).expect("free"));
            let place = places.last().expect("some");
            map.acquire(uid(number), 1);
            place.extents().iter().map(|extent| (extent.slot, extent.slots)).collect::<Vec<_>>()
        };
        for number in 0..6 {
            assert_eq!(take(&mut map, number + 1, &[1, 1]), [(number * 2, 2)]);
        }
        for number in [1, 3, 5] {
            map.remove(uid(number)).expect("there");
            map.discarded(uid(number));
        }
        assert_eq!(take(&mut map, 7, &[1]), [(0, 1)], "around the end");
        assert_eq!(take(&mut map, 8, &[2]), [(4, 2)], "behind, in one run");
        assert_eq!(take(&mut map, 9, &[2, 1]), [(8, 2), (1, 1)], "what is left, in pieces");
    }
}
