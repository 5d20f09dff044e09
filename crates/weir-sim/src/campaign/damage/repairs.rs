//! Repair of damaged stores, against what was written.
//!
//! What must hold: a store that opens and whose tables are sound is called healthy, and no byte of
//! it is changed; a repair that refuses changes nothing either; a repaired store opens and is
//! sound. In it no key has a value that it never had. A key is as before unless the report says
//! that entries between two keys around it are lost, or a part of the log that held it; in a tree
//! that was rebuilt, deleted keys may be back. "Without loss" is a store as it was.

use std::collections::{BTreeMap, BTreeSet};

use weir::{Db, LostTable, RepairReport};

use super::damages::{Damage, FAR, number};
use super::specimen::{Specimen, open, options};
use crate::model::show;
use crate::world::Disk;

/// What repairs came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Repairs {
    /// Stores that were not changed because nothing was wrong.
    pub healthy: u64,
    /// Repaired without loss.
    pub whole: u64,
    /// Built again, or with other names, and no entry known to be lost.
    pub rebuilt: u64,
    /// Repaired with losses.
    pub lossy: u64,
    /// Refused, for example because the format seems to be a newer one.
    pub refused: u64,
    /// Keys that are as before in stores repaired with losses, and all keys of these.
    pub kept: (u64, u64),
}

impl Repairs {
    pub(super) fn add(&mut self, other: Self) {
        self.healthy += other.healthy;
        self.whole += other.whole;
        self.rebuilt += other.rebuilt;
        self.lossy += other.lossy;
        self.refused += other.refused;
        self.kept.0 += other.kept.0;
        self.kept.1 += other.kept.1;
    }

    /// Passes it on, unless what was wrong must not have cost anything and did: a file under a
    /// number far above those of the store.
    pub(super) fn at_no_cost(self, damage: &Damage) -> Result<Self, String> {
        let cost = self.lossy + self.rebuilt + self.refused;
        match damage {
            Damage::Foreign { to, .. } | Damage::Copy { to, .. }
                if number(to) > FAR && cost > 0 =>
            {
                Err(format!("a file that is none of the store's had its price: {self:?}"))
            }
            _ => Ok(self),
        }
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.healthy + self.whole + self.rebuilt + self.lossy + self.refused
    }
}

/// Repairs `disk`, which is damaged and nobody else's.
///
/// # Errors
/// What does not hold.
pub(super) fn examine(disk: &Disk, specimen: &Specimen) -> Result<Repairs, String> {
    disk.make_lock_file()?;
    let mut before = disk.fingerprint();
    let sound = {
        let copy = disk.kill();
        open(&copy, specimen.seed).is_ok_and(|db| is_sound(&db).is_ok())
    };
    let builder = disk.builder(specimen.seed).options(options().0);
    let repaired = match builder.repair() {
        // One of two that is damaged costs nothing, and is all that is changed then.
        Ok(report) if report.superblock_restored && !report.lost_data() => {
            before = disk.fingerprint();
            disk.builder(specimen.seed).options(options().0).repair()
        }
        repaired => repaired,
    };
    let report = match repaired {
        Ok(report) => report,
        Err(error) if sound => return Err(format!("a sound store is not repaired: {error}")),
        Err(error) if disk.fingerprint() != before => {
            return Err(format!("a repair that refuses changed something: {error}"));
        }
        Err(_) => return Ok(Repairs { refused: 1, ..Repairs::default() }),
    };
    let changed = disk.fingerprint() != before;
    // An open store may drop a list before it is looked at.
    let sound = sound && report.lists.is_empty();
    if (sound || report.healthy) && (changed || !report.healthy) {
        let changed = if changed { "changed" } else { "not changed" };
        return Err(format!("the store was sound: {sound}, was {changed}: {report}"));
    }
    let blame = |why: String| format!("{why}; the report: {report}");
    let db = open(disk, specimen.seed).map_err(|e| blame(format!("does not open: {e}")))?;
    is_sound(&db).map_err(blame)?;
    let kept = compare(&db, specimen, &report).map_err(blame)?;
    db.close().map_err(|e| blame(format!("close: {e}")))?;
    let mut repairs = Repairs::default();
    match &report {
        report if report.healthy => repairs.healthy = 1,
        report if report.lost_data() => (repairs.lossy, repairs.kept) = (1, kept),
        report if report.rebuilt || !report.renamed_keyspaces.is_empty() => repairs.rebuilt = 1,
        _ => repairs.whole = 1,
    }
    Ok(repairs)
}

fn is_sound(db: &Db) -> Result<(), String> {
    let report = db.verify().map_err(|e| format!("verify: {e}"))?;
    report.damages.first().map_or(Ok(()), |damage| Err(format!("verify: {damage}")))
}

/// Compares the store with what was written; how many keys are as before, of how many.
fn compare(db: &Db, specimen: &Specimen, report: &RepairReport) -> Result<(u64, u64), String> {
    let mut found: BTreeMap<(String, Vec<u8>), Vec<u8>> = BTreeMap::new();
    let renamed: BTreeSet<&str> =
        report.renamed_keyspaces.iter().map(|(_, name)| name.as_str()).collect();
    for name in db.keyspaces() {
        let space = db.open_keyspace(&name).map_err(|e| format!("open {name}: {e}"))?;
        for pair in space.iter() {
            let (key, value) = pair.map_err(|e| format!("scan of {name}: {e}"))?;
            found.insert((name.clone(), key.to_vec()), value.to_vec());
        }
    }
    for ((space, key), value) in &found {
        let is_its = |name: &str| {
            let versions = specimen.versions.get(&(name.to_owned(), key.clone()));
            versions.is_some_and(|all| all.iter().any(|v| v.as_ref() == Some(value)))
        };
        let names = if renamed.contains(space.as_str()) {
            specimen.content.keys().map(String::as_str).collect()
        } else {
            vec![space.as_str()]
        };
        if !names.iter().any(|name| is_its(name)) {
            return Err(format!("{space}: {} has a value that it never had", show(key)));
        }
    }
    // Which is which is not known any more if names are lost: one of them must have it.
    let in_space = |space: &str, key: &[u8], right: Option<&Vec<u8>>| {
        let names = std::iter::once(space).chain(renamed.iter().copied());
        let all = names.map(|name| found.get(&(name.to_owned(), key.to_vec())));
        let all: Vec<Option<&Vec<u8>>> = all.collect();
        let of_it = all.iter().find(|now| now.is_some() && **now == right);
        of_it.copied().unwrap_or(all[0])
    };
    let (mut kept, mut all) = (0, 0);
    for ((space, key), versions) in &specimen.versions {
        let right = versions.last().and_then(Option::as_ref);
        let now = in_space(space, key, right);
        all += 1;
        if now == right {
            kept += 1;
            continue;
        }
        let is_back = right.is_none() && report.rebuilt;
        if !is_back && !is_affected(report, specimen, space, key) {
            let text = |v: Option<&Vec<u8>>| v.map_or("nothing".to_owned(), |v| show(v));
            return Err(format!(
                "{space}: {} holds {}, expected {}, and the report does not tell of it",
                show(key),
                text(now),
                text(right)
            ));
        }
    }
    Ok((kept, all))
}

/// Whether the report says that entries of this key may be lost.
fn is_affected(report: &RepairReport, specimen: &Specimen, space: &str, key: &[u8]) -> bool {
    let in_log = || specimen.in_log.contains(&(space.to_owned(), key.to_vec()));
    let by_table = |table: &LostTable| {
        let is_whole = table.entries == Some(table.entries_kept);
        let is_unknown = table.lost_ranges.is_empty() && !is_whole;
        let is_between =
            |(first, last): &(Vec<u8>, Vec<u8>)| first.as_slice() <= key && key <= last.as_slice();
        let is_renamed = |name| report.renamed_keyspaces.iter().any(|(_, new)| new == name);
        table.keyspace.as_ref().is_none_or(|name| name == space || is_renamed(name))
            && (is_unknown || table.lost_ranges.iter().any(is_between))
    };
    !report.lost_log.is_empty() && in_log() || report.lost_tables.iter().any(by_table)
}
