//! The map of slots: which are free, reserved, owned or leaving, in memory only.
//!
//! A version says which tables live and where; this says what is left. Not here: what a slot holds,
//! the durability of the edit after which a table is removed (`state::reclaimer`).
//!
//! Invariants: (1) every slot is free, owned by one table, or leaving: free + owned + leaving =
//! all; reserved are counts of free ones, never more than there are; checked after each change; (2)
//! a slot becomes free when its table was removed, nobody reads it any more, and its discard has
//! ended (H30, H77): until then it is leaving; (3) a uid owns slots once; (4) what cannot be taken
//! in whole is not taken at all.
//!
//! Allocation is next-fit, from behind the last one: it writes evenly, and leaves what was freed
//! alone as long as it can. One run of slots is preferred, several are accepted.
//!
//! Source: LDS §3.2. We differ: slots are reserved before a job begins (H41), and a table has
//! several.

use std::collections::BTreeMap;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::ids::TableUid;
use crate::base::place::{Extent, Place};

/// Slots that a job may still take.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "slots stay reserved until they are taken or given back"]
pub(super) struct Reservation {
    slots: u64,
}

impl Reservation {
    /// How many are left of it.
    pub(super) fn slots(&self) -> u64 {
        self.slots
    }
}

/// A table that has slots.
#[derive(Debug)]
struct Owner {
    place: Place,
    readers: u64,
    /// It was removed, and its slots are free once nobody reads it and they are discarded.
    removed: bool,
}

/// The slots of one space, by state.
#[derive(Debug)]
pub(super) struct SlotMap {
    space: u32,
    slots: u64,
    /// Free runs: number of slots by the first, none of them neighbours.
    free: BTreeMap<u64, u64>,
    free_slots: u64,
    reserved: u64,
    owners: BTreeMap<TableUid, Owner>,
    owned: u64,
    leaving: u64,
    /// Where the next search begins.
    next: u64,
}

impl SlotMap {
    /// A space of free slots.
    pub(super) fn new(space: u32, slots: u64) -> Self {
        let free = if slots > 0 { BTreeMap::from([(0, slots)]) } else { BTreeMap::new() };
        Self {
            space,
            slots,
            free,
            free_slots: slots,
            reserved: 0,
            owners: BTreeMap::new(),
            owned: 0,
            leaving: 0,
            next: 0,
        }
    }

    /// Gives table `uid`, which a version names, the slots of its place.
    ///
    /// # Errors
    /// `Corruption` naming `name` if they are not all free, or not there: another table has them.
    pub(super) fn adopt(&mut self, uid: TableUid, place: &Place, name: &str) -> Result<()> {
        let all_free = place.extents().iter().all(|extent| self.is_free(extent));
        if !all_free || place.extents().is_empty() || self.owners.contains_key(&uid) {
            let what = "its slots are another table's, or not there";
            return Err(Error::corruption(name, 0, what));
        }
        self.own(uid, place.clone());
        Ok(())
    }

    /// Keeps `slots` free ones back for a job; `None` if there are fewer.
    pub(super) fn reserve(&mut self, slots: u64) -> Option<Reservation> {
        if self.available() < slots {
            return None;
        }
        self.reserved += slots;
        self.check();
        Some(Reservation { slots })
    }

    /// Gives back what a job has not taken.
    pub(super) fn forfeit(&mut self, reservation: Reservation) {
        assert!(reservation.slots <= self.reserved, "{reservation:?} of {}", self.reserved);
        self.reserved -= reservation.slots;
        self.check();
    }

    /// Takes `slots` of a reservation for table `uid`, which has none yet.
    ///
    /// # Errors
    /// `NoSpace` if fewer are reserved and available beyond that; `Conflict` for a uid that has
    /// slots. Nothing is taken then.
    pub(super) fn acquire(
        &mut self,
        uid: TableUid,
        slots: u64,
        reservation: &mut Reservation,
    ) -> Result<Place> {
        assert!(slots > 0, "table {uid} without slots");
        if self.owners.contains_key(&uid) {
            return Err(Error::new(ErrorKind::Conflict, format!("table {uid} has slots already")));
        }
        let kept = slots.min(reservation.slots);
        if self.available() < slots - kept {
            let what = format!("table {uid} needs {slots} slots, {} are free", self.free_slots);
            return Err(Error::new(ErrorKind::NoSpace, what));
        }
        reservation.slots -= kept;
        self.reserved -= kept;
        let place = self.find(slots);
        self.own(uid, place.clone());
        Ok(place)
    }

    /// Notes a reader of a table: its slots are not given out before it ends. `None` for a table
    /// that is not there.
    pub(super) fn pin(&mut self, uid: TableUid) -> Option<&Place> {
        let owner = self.owners.get_mut(&uid).filter(|owner| !owner.removed)?;
        owner.readers += 1;
        Some(&owner.place)
    }

    /// Ends a reader. The place to discard, if it was the last one of a removed table; then
    /// [`discarded`](Self::discarded) frees it.
    pub(super) fn unpin(&mut self, uid: TableUid) -> Option<Place> {
        let owner = self.owners.get_mut(&uid).unwrap_or_else(|| panic!("no table {uid} is read"));
        assert!(owner.readers > 0, "a reader of table {uid} ends that has not begun");
        owner.readers -= 1;
        (owner.removed && owner.readers == 0).then(|| owner.place.clone())
    }

    /// Removes a table, after the edit that does is durable. The place to discard, if nobody reads
    /// it.
    ///
    /// # Errors
    /// `NotFound`.
    pub(super) fn remove(&mut self, uid: TableUid) -> Result<Option<Place>> {
        let owner = self.owners.get_mut(&uid).filter(|owner| !owner.removed);
        let Some(owner) = owner else {
            return Err(Error::new(ErrorKind::NotFound, format!("there is no table {uid}")));
        };
        owner.removed = true;
        let place = (owner.readers == 0).then(|| owner.place.clone());
        let slots = slots_of(&owner.place);
        self.owned -= slots;
        self.leaving += slots;
        self.check();
        Ok(place)
    }

    /// Frees the slots of a removed table that nobody reads, after their discard has ended, or was
    /// left out.
    pub(super) fn discarded(&mut self, uid: TableUid) {
        let owner = self.owners.remove(&uid).unwrap_or_else(|| panic!("no table {uid} leaves"));
        assert!(owner.removed && owner.readers == 0, "table {uid} is freed too early: {owner:?}");
        self.leaving -= slots_of(&owner.place);
        for extent in owner.place.extents() {
            self.release(extent);
        }
        self.check();
    }

    /// Tables that are there, ascending.
    pub(super) fn uids(&self) -> impl Iterator<Item = TableUid> {
        self.owners.iter().filter(|(_, owner)| !owner.removed).map(|(&uid, _)| uid)
    }

    /// Slots that are neither owned nor leaving nor reserved.
    pub(super) fn available(&self) -> u64 {
        self.free_slots - self.reserved
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

    fn own(&mut self, uid: TableUid, place: Place) {
        for extent in place.extents() {
            self.take(extent);
        }
        self.owned += slots_of(&place);
        let owner = Owner { place, readers: 0, removed: false };
        let before = self.owners.insert(uid, owner);
        assert!(before.is_none(), "table {uid} owns slots twice");
        self.check();
    }

    /// Free slots in as few extents as next-fit finds: the first run behind the last allocation
    /// that has all of them, else whole runs from there on.
    fn find(&mut self, slots: u64) -> Place {
        let from_next = |part: &(&u64, &u64)| (*part.0 < self.next, *part.0);
        // The run that the last allocation was cut from begins behind it.
        let mut runs: Vec<(&u64, &u64)> = self.free.iter().collect();
        runs.sort_by_key(from_next);
        let mut place = Place::default();
        let whole = runs.iter().find(|(_, run)| **run >= slots);
        match whole {
            Some(&(&slot, _)) => place.push(Extent { space: self.space, slot, slots }),
            None => {
                let mut left = slots;
                for (&slot, &run) in runs {
                    let taken = run.min(left);
                    place.push(Extent { space: self.space, slot, slots: taken });
                    left -= taken;
                    if left == 0 {
                        break;
                    }
                }
                assert_eq!(left, 0, "{slots} slots of {} free ones", self.free_slots);
            }
        }
        self.next = place.extents().last().map_or(0, Extent::end);
        place
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
        self.free_slots -= extent.slots;
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
        self.free_slots += extent.slots;
    }

    /// Invariant 1.
    fn check(&self) {
        let Self { slots, free_slots, reserved, owned, leaving, .. } = *self;
        assert!(
            free_slots + owned + leaving == slots && reserved <= free_slots,
            "{free_slots} free, of them {reserved} reserved, {owned} owned, {leaving} leaving, in \
             all {slots}"
        );
    }
}

fn slots_of(place: &Place) -> u64 {
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

    /// Goal: no slot has two tables, none is lost, and none is given out while a removed table is
    /// read or discarded. Method: random calls against a list of slots.
    #[test]
    fn against_a_list() {
        for seed in 0..40 {
            let mut prng = Prng::new(seed);
            let mut map = SlotMap::new(3, 64);
            let mut list = vec![Slot::Free; 64];
            let mut readers: Vec<TableUid> = Vec::new();
            let mut kept: Vec<Reservation> = Vec::new();
            let mut number = 0;
            for step in 0..400 {
                let place = format!("seed {seed}, step {step}");
                let live: Vec<TableUid> = map.uids().collect();
                let mut ended = None;
                match prng.below(6) {
                    0 => kept.extend(map.reserve(prng.below(20))),
                    1 if !kept.is_empty() => map.forfeit(kept.swap_remove(0)),
                    2 | 3 => {
                        number += 1;
                        let mut none = Reservation { slots: 0 };
                        let from = kept.last_mut().unwrap_or(&mut none);
                        let (free, slots) = (map.available() + from.slots(), 1 + prng.below(12));
                        let taken = map.acquire(uid(number), slots, from);
                        assert_eq!(taken.is_ok(), slots <= free, "{place}: {taken:?}");
                        let extents = taken.unwrap_or_default();
                        let slots_in = |e: &Extent| (e.slot..e.end()).collect::<Vec<_>>();
                        for slot in extents.extents().iter().flat_map(slots_in) {
                            let before = &mut list[slot as usize];
                            assert_eq!(*before, Slot::Free, "{place}: slot {slot}");
                            *before = Slot::Of(uid(number));
                        }
                    }
                    4 if !live.is_empty() => {
                        let chosen = live[prng.below(live.len() as u64) as usize];
                        if prng.chance(1, 2) {
                            map.pin(chosen).expect(&place);
                            readers.push(chosen);
                        } else {
                            ended = map.remove(chosen).expect(&place).map(|_| chosen);
                        }
                    }
                    5 if !readers.is_empty() => {
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
                assert_eq!(map.free_slots, free, "{place}");
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
        map.adopt(uid(1), &at(&[extent(0, 8, 2), extent(0, 0, 1)]), "table 1").expect("free");
        map.adopt(uid(2), &at(&[extent(0, 1, 3)]), "table 2").expect("free");
        let bad = [
            (uid(3), at(&[extent(0, 3, 2)])),
            (uid(3), at(&[extent(0, 9, 2)])),
            (uid(3), at(&[extent(1, 5, 1)])),
            (uid(3), at(&[extent(0, 5, 1), extent(0, 8, 1)])),
            (uid(3), at(&[])),
            (uid(2), at(&[extent(0, 5, 1)])),
        ];
        for (uid, place) in bad {
            let error = map.adopt(uid, &place, "table 3").expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Corruption, "{place:?}");
        }
        assert_eq!((map.available(), map.largest_run()), (4, 4));
        // From behind the last allocation, and around the end.
        let mut all = map.reserve(4).expect("they are free");
        assert_eq!(map.reserve(1), None);
        let taken = map.acquire(uid(3), 4, &mut all).expect("reserved");
        assert_eq!(taken.extents(), [extent(0, 4, 4)]);
        let full = map.acquire(uid(4), 1, &mut all).expect_err("nothing is left");
        assert_eq!((full.kind(), all.slots()), (ErrorKind::NoSpace, 0));
        map.forfeit(all);
    }

    /// Goal: allocation goes on behind the last one, and a table in pieces has few. Method: every
    /// other table of a full map is removed.
    #[test]
    fn next_fit_prefers_one_run() {
        let mut map = SlotMap::new(0, 12);
        let take = |map: &mut SlotMap, number, slots| {
            let mut kept = map.reserve(slots).expect("free");
            let place = map.acquire(uid(number), slots, &mut kept).expect("reserved");
            map.forfeit(kept);
            place.extents().iter().map(|extent| (extent.slot, extent.slots)).collect::<Vec<_>>()
        };
        for number in 0..6 {
            assert_eq!(take(&mut map, number + 1, 2), [(number * 2, 2)]);
        }
        for number in [1, 3, 5] {
            map.remove(uid(number)).expect("there");
            map.discarded(uid(number));
        }
        assert_eq!(take(&mut map, 7, 1), [(0, 1)], "around the end");
        assert_eq!(take(&mut map, 8, 2), [(4, 2)], "behind, in one run");
        assert_eq!(take(&mut map, 9, 3), [(8, 2), (1, 1)], "what is left, in pieces");
    }
}
