//! The tables that a rebuild in slots begins with, where no version tells which of them live.
//!
//! What was once written and not written over is taken: sequence numbers decide between versions of
//! a key, as in every rebuild. An older version log that is sound says names and options, and where
//! its tables are; not which others are obsolete: a table that was being written when the log was
//! begun anew has a smaller uid than some that it names.
//!
//! Not here: finding the parts of a table (`storage`), merging the tables (`rebuild`).
//!
//! Invariants: (1) only a repair that was asked for it comes here (H72); (2) no two tables that are
//! taken share a slot, and a sound one is preferred: slots are given out again only when their
//! table is obsolete, so that what lies under a sound table is no loss and is not kept. Nor is what
//! lacks a part: that is what most obsolete tables come to. Under a damaged one it is kept.

use std::collections::BTreeMap;

use super::{Repair, damage, sound_table};
use crate::base::error::Result;
use crate::base::ids::TableUid;
use crate::base::place::Place;
use crate::base::table_meta::TableMeta;
use crate::storage::{LiveTable, Object};
use crate::version::salvage::Salvage;

/// A table that may live.
struct Candidate {
    uid: TableUid,
    place: Place,
    bytes: u64,
}

impl Candidate {
    fn live(&self) -> LiveTable<'_> {
        LiveTable { uid: self.uid, place: &self.place, bytes: self.bytes }
    }
}

impl Repair {
    /// Lets storage adopt the tables that lie in its slots.
    pub(super) fn take_written(&mut self, salvage: &Salvage) -> Result<()> {
        let written = self.aside.written_tables()?;
        self.written = written.uids;
        let mut left_out = written.fragments;
        let (mut sound, mut damaged) = (Vec::new(), Vec::new());
        self.unfinished = written.unfinished;
        for candidate in candidates(salvage, written.tables, &self.unfinished) {
            match self.is_sound(&candidate) {
                Ok(()) => sound.push(candidate),
                Err(error) => {
                    damage(error)?;
                    damaged.push(candidate);
                }
            }
        }
        let mut taken = Taken::default();
        sound.retain(|table| taken.take(&table.place));
        let of_sound = taken.clone();
        for table in damaged {
            // Of one that lies alone the sound blocks are kept.
            if taken.take(&table.place) {
                sound.push(table);
                continue;
            }
            left_out += 1;
            if of_sound.is_free(&table.place) {
                // Of two that are damaged either may be the one that lived.
                self.storage.adopt(&mut std::iter::once(table.live()))?;
                self.keep_copy(Object::Table(table.uid))?;
            }
        }
        self.storage.adopt(&mut sound.iter().map(Candidate::live))?;
        self.report.from_trailers = true;
        self.report.left_out = left_out;
        Ok(())
    }

    /// Reads all of a table that lies where nothing else is known to lie.
    fn is_sound(&self, candidate: &Candidate) -> Result<()> {
        self.storage.adopt(&mut std::iter::once(candidate.live()))?;
        sound_table(&self.storage, candidate.uid).map(drop)
    }
}

/// The tables that may live, the newest ones first. The version log may be that of a repair that
/// was cut off: what it was made of is there, and is read instead of what it wrote.
fn candidates(
    salvage: &Salvage,
    written: Vec<(TableUid, Place, u64)>,
    unfinished: &[TableUid],
) -> Vec<Candidate> {
    let mut all: BTreeMap<TableUid, Candidate> = BTreeMap::new();
    if salvage.whole {
        let finished = |meta: &TableMeta| unfinished.binary_search(&meta.uid).is_err();
        let metas = salvage.root.all_tables().map(|table| table.meta());
        for meta in metas.filter(|meta| finished(meta)) {
            let (uid, place, bytes) = (meta.uid, meta.place.clone(), meta.bytes);
            all.insert(uid, Candidate { uid, place, bytes });
        }
    }
    for (uid, place, bytes) in written {
        all.entry(uid).or_insert(Candidate { uid, place, bytes });
    }
    all.into_values().rev().collect()
}

/// Slots that have a table: ends of extents by their beginning.
#[derive(Clone, Default)]
struct Taken(BTreeMap<(u32, u64), u64>);

impl Taken {
    /// Takes a place if nothing of it is taken.
    fn take(&mut self, place: &Place) -> bool {
        let free = self.is_free(place);
        if free {
            let ends = place.extents().iter().map(|e| ((e.space, e.slot), e.end()));
            self.0.extend(ends);
        }
        free
    }

    /// Whether nothing of a place is taken.
    fn is_free(&self, place: &Place) -> bool {
        place.extents().iter().all(|extent| {
            let before = self.0.range(..(extent.space, extent.end())).next_back();
            before.is_none_or(|(&(space, _), &end)| space != extent.space || end <= extent.slot)
        })
    }
}
