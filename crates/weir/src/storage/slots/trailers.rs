//! Tables put together by their trailers, for a repair that has no version to go by.
//!
//! Not here: reading the trailers (`table`), what one holds (`page`), and which of these tables
//! live, which nothing here can tell (H72): a table that was merged away is as whole as one that
//! was not, until its slots are written again.
//!
//! Invariant: the extents of a table are those that its writer said were its parts, from the first
//! to the last, with as many bytes in each as it has room for. What has lost a part is none: its
//! bytes could not be told apart from those of the table that lies there now.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::ids::TableUid;
use crate::base::place::{Extent, Place};
use crate::storage::WrittenTables;
use crate::storage::slots::page::Trailer;

/// What lies at the ends of a table's extents, by their number in it.
type Parts = BTreeMap<u32, (Extent, Trailer)>;

/// Puts tables together. `room`: the bytes that an extent has room for; `generation`: that of the
/// superblock. What a repair wrote that found the same one, and so was cut off, is none: all that
/// it was made of is there.
pub(super) fn assemble(
    trailers: Vec<(Extent, Trailer)>,
    room: impl Fn(&Extent) -> u64,
    generation: u64,
) -> WrittenTables {
    let uids: BTreeSet<TableUid> = trailers.iter().map(|(_, trailer)| trailer.uid).collect();
    let of_store = trailers.iter().filter(|(_, trailer)| trailer.repairs == 0);
    let newest = of_store.map(|(_, trailer)| trailer.uid).max();
    let uids = uids.into_iter().collect();
    let mut found = WrittenTables { uids, newest, ..WrittenTables::default() };
    let mut by_uid: BTreeMap<TableUid, Parts> = BTreeMap::new();
    let mut unfinished = BTreeSet::new();
    for (extent, trailer) in trailers {
        if trailer.repairs == generation {
            unfinished.insert(trailer.uid);
            continue;
        }
        let parts = by_uid.entry(trailer.uid).or_default();
        // A table has one end. Where it was shortened to it, an older trailer may lie behind.
        match parts.get(&trailer.part) {
            // Two of a uid, which is never given out twice: one is not the store's.
            Some((_, known)) if known.last && trailer.last => found.fragments += 1,
            Some((_, known)) if known.last => {}
            _ => drop(parts.insert(trailer.part, (extent, trailer))),
        }
    }
    found.unfinished = unfinished.into_iter().collect();
    for (uid, parts) in by_uid {
        match whole(&parts, &room) {
            Some((place, bytes)) => found.tables.push((uid, place, bytes)),
            None => found.fragments += 1,
        }
    }
    found
}

/// Place and length of a table of which all parts are there.
fn whole(parts: &Parts, room: impl Fn(&Extent) -> u64) -> Option<(Place, u64)> {
    let (mut place, mut before) = (Place::default(), 0u64);
    for (expected, (&part, (extent, trailer))) in (0..).zip(parts) {
        let until = before.checked_add(room(extent))?;
        if part != expected {
            return None;
        }
        place.push(*extent);
        if trailer.last {
            let fits = before < trailer.bytes && trailer.bytes <= until;
            return (fits && place.check().is_ok()).then_some((place, trailer.bytes));
        }
        if trailer.bytes != until {
            return None;
        }
        before = until;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::uid;

    const ROOM: u64 = 100;

    fn part(
        of: u64,
        part: u32,
        slot: u64,
        slots: u64,
        bytes: u64,
        last: bool,
    ) -> (Extent, Trailer) {
        let extent = Extent { space: 0, slot, slots };
        (extent, Trailer { uid: uid(of), part, slots, bytes, last, repairs: 0 })
    }

    fn assembled(trailers: &[(Extent, Trailer)]) -> WrittenTables {
        assemble(trailers.to_vec(), |extent| extent.slots * ROOM, 3)
    }

    fn tables(trailers: &[(Extent, Trailer)]) -> (Vec<(u64, u64, usize)>, u64) {
        let found = assembled(trailers);
        let tables = found.tables.iter();
        let tables = tables.map(|(uid, place, bytes)| (uid.get(), *bytes, place.extents().len()));
        (tables.collect(), found.fragments)
    }

    /// Goal: a table is put together from all of its parts, in their order, wherever they lie.
    #[test]
    fn parts_are_joined_in_their_order() {
        let trailers = [
            part(7, 1, 0, 1, 300, false),
            part(5, 0, 3, 1, 40, true),
            part(7, 2, 5, 3, 301, true),
            part(7, 0, 8, 2, 200, false),
        ];
        assert_eq!(tables(&trailers), (vec![(5, 40, 1), (7, 301, 3)], 0));
        let found = assembled(&trailers);
        assert_eq!(found.uids, [uid(5), uid(7)]);
        let slots: Vec<u64> = found.tables[1].1.extents().iter().map(|e| e.slot).collect();
        assert_eq!(slots, [8, 0, 5]);
    }

    /// Goal: what lacks a part, or whose parts do not agree about its bytes, is a fragment.
    #[test]
    fn fragments_are_no_tables() {
        let whole = [
            part(7, 0, 0, 1, 100, false),
            part(7, 1, 1, 1, 200, false),
            part(7, 2, 2, 1, 250, true),
        ];
        assert_eq!(tables(&whole).1, 0);
        for gone in 0..3 {
            let mut parts = whole.to_vec();
            parts.remove(gone);
            assert_eq!(tables(&parts), (vec![], 1), "part {gone}");
        }
        for bytes in [0, 200, 301] {
            let mut parts = whole;
            parts[2].1.bytes = bytes;
            assert_eq!(tables(&parts), (vec![], 1), "{bytes} bytes");
        }
        let mut parts = whole;
        parts[1].1.bytes = 199;
        assert_eq!(tables(&parts), (vec![], 1), "an extent that is not full");
        let mut parts = whole;
        parts[1].0.slot = 0;
        assert_eq!(tables(&parts), (vec![], 1), "two parts in one place");
    }

    /// Goal: a trailer that lies where the table once was to go on does not hide its end, in
    /// whichever order they are found.
    #[test]
    fn the_end_of_a_table_counts() {
        let trailers = [
            part(7, 0, 0, 1, 60, true),
            part(7, 0, 0, 4, 400, false),
            part(7, 1, 4, 2, 600, false),
        ];
        assert_eq!(tables(&trailers), (vec![(7, 60, 1)], 0));
        let turned: Vec<_> = trailers.into_iter().rev().collect();
        assert_eq!(tables(&turned), (vec![(7, 60, 1)], 0));
    }

    /// Goal: what a repair wrote before it was cut off is no table, but its uid is taken; what one
    /// wrote that came to its end is. Two ends of one table are told.
    #[test]
    fn a_repair_that_was_cut_off_has_written_nothing() {
        let of = |repairs: u64, uid: u64, slot: u64| {
            let (extent, trailer) = part(uid, 0, slot, 1, 60, true);
            (extent, Trailer { repairs, ..trailer })
        };
        let trailers = [of(0, 5, 0), of(2, 6, 1), of(3, 7, 2)];
        assert_eq!(tables(&trailers), (vec![(5, 60, 1), (6, 60, 1)], 0));
        assert_eq!(assembled(&trailers).uids, [uid(5), uid(6), uid(7)]);
        assert_eq!(assembled(&trailers).unfinished, [uid(7)]);
        // No repair's uid tells how far the store itself had come.
        assert_eq!(assembled(&trailers).newest, Some(uid(5)));
        assert_eq!(tables(&[of(0, 5, 0), of(0, 5, 1)]), (vec![(5, 60, 1)], 1));
    }
}
