//! The form of a tree: whether a store is left in the middle of a round, and what every policy
//! makes of a tree at rest.
//!
//! An oracle of its own: it reads what `describe` says, and shares no code with the policies.

use weir::{CompactionPolicy, KeyspaceDescription, LevelDescription, Options, RunDescription};

use super::{Checked, Runner};
use crate::op::Val;

/// The keys that [`Op::Midway`](crate::op::Op::Midway) writes: so many, this far apart.
const MIDWAY_KEYS: u32 = 997;
const MIDWAY_STRIDE: u32 = 37;

/// The tree of the default keyspace at one moment.
pub(super) struct Form {
    options: Options,
    levels: Vec<LevelDescription>,
    /// Whether a compaction runs.
    merging: bool,
}

impl Form {
    fn drains(&self) -> bool {
        self.levels.iter().flat_map(|level| &level.runs).any(|run| run.draining)
    }

    /// Whether a reopening now would find a round that has begun and not ended.
    fn is_midway(&self) -> bool {
        self.merging || self.drains()
    }
}

/// What is wrong with a tree that has nothing left to do, by what its options promise.
fn violations(options: &Options, levels: &[LevelDescription]) -> Vec<String> {
    use CompactionPolicy as P;
    let mut found = Vec::new();
    let (policy, last) = (options.compaction, levels.len().saturating_sub(1));
    let mut complain = |level: usize, count: usize, most: usize, what: &str| {
        if count > most {
            found.push(format!("level {level} has {count} {what}, {policy} allows {most}"));
        }
    };
    let mut all = 0;
    for (level, described) in levels.iter().enumerate() {
        // Sentinels count for nothing.
        let runs = described.runs.iter().filter(|run| !run.sentinel);
        let draining = runs.clone().filter(|run| run.draining).count();
        let filling = runs.count() - draining;
        all += filling;
        let (filling_max, draining_max) = match policy {
            P::Leveled(sizes) if level == 0 => (sizes.l0_trigger - 1, 0),
            P::Leveled(_) => (1, 0),
            P::LazyLeveled(_) if level == last => (1, 0),
            P::Tiered(runs) | P::SteppedMerge(runs) | P::LazyLeveled(runs) => {
                (runs.runs_per_level - 1, 0)
            }
            P::SizeTiered(_) => (usize::MAX, 0),
            P::Gear(_) if level == 0 => (0, 0),
            P::TwoPhase(sizes) if level == 0 => (sizes.l0_trigger - 1, 0),
            P::Gear(_) | P::TwoPhase(_) if level == last => (1, 0),
            P::Gear(_) | P::TwoPhase(_) => (1, 1),
            _ => (usize::MAX, usize::MAX),
        };
        complain(level, filling, filling_max, "runs that receive");
        complain(level, draining, draining_max, "runs that drain");
    }
    if let P::SizeTiered(runs) = policy {
        complain(0, all, runs.runs_per_level * levels.len(), "runs with those of all levels");
    }
    found
}

/// What is wrong with any tree: an empty run, runs out of order, tables that overlap.
fn disorder(levels: &[LevelDescription]) -> Option<String> {
    for (level, described) in levels.iter().enumerate() {
        for draining in [false, true] {
            let part: Vec<&RunDescription> =
                described.runs.iter().filter(|run| run.draining == draining).collect();
            if !part.is_sorted_by(|newer, older| newer.epoch > older.epoch) {
                return Some(format!("the runs of level {level} are not newest first"));
            }
            for run in part {
                let disjoint = run.tables.is_sorted_by(|a, b| a.largest < b.smallest);
                let upright = run.tables.iter().all(|table| table.smallest <= table.largest);
                if run.tables.is_empty() || !disjoint || !upright {
                    let tables = &run.tables;
                    return Some(format!("run {} of level {level}: {tables:?}", run.epoch));
                }
            }
        }
    }
    None
}

impl Runner {
    /// The tree of the default keyspace as it is.
    pub(super) fn form(&self) -> Checked<Form> {
        let db = self.db()?;
        let busy = db.property("weir.num-busy-tables").unwrap_or_default();
        let described = db.describe().keyspaces.into_iter().find(|k| k.name == super::NAMES[0]);
        let KeyspaceDescription { options, levels, .. } =
            described.ok_or("the default keyspace is not described")?;
        Ok(Form { options, levels, merging: busy != "0" })
    }

    /// Counts a reopening that gave the default keyspace another policy than it had with `form`.
    pub(super) fn count_switch(&mut self, form: &Form) -> Checked {
        let options = self.form()?.options;
        if options.compaction.name() != form.options.compaction.name() {
            let counts = &mut self.counters.switches;
            counts.all += 1;
            counts.merging += u64::from(form.merging);
            counts.draining += u64::from(form.drains());
            counts.foreign += u64::from(!violations(&options, &form.levels).is_empty());
        }
        Ok(())
    }

    /// See [`Op::Midway`](crate::op::Op::Midway).
    pub(super) fn midway(&mut self, key: u32, val: Val, count: u32) -> Checked {
        for n in 0..count {
            if self.form()?.is_midway() {
                break;
            }
            let key = (key + n * MIDWAY_STRIDE) % MIDWAY_KEYS;
            self.put(0, key, Val { id: val.id + n, ..val }, weir::Durability::Buffered)?;
        }
        Ok(())
    }

    /// See [`Op::Settle`](crate::op::Op::Settle).
    pub(super) fn settle(&mut self) -> Checked {
        let db = self.db()?.clone();
        db.wait_idle().map_err(|e| format!("wait_idle: {e}"))?;
        for KeyspaceDescription { name, options, levels, .. } in db.describe().keyspaces {
            let wrong = violations(&options, &levels).into_iter().chain(disorder(&levels));
            if let Some(wrong) = wrong.into_iter().next() {
                return Err(format!("keyspace {name:?} at rest: {wrong}"));
            }
            self.counters.switches.settled += 1;
        }
        let refused = db.metrics().compactions_refused;
        if refused > 0 {
            return Err(format!("{refused} compactions were refused by the check of their edit"));
        }
        self.measure()?;
        let merges = self.counters.merges - self.merges_before.1;
        let most = &mut self.counters.switches.settling_merges_max;
        *most = merges.max(*most);
        let report = db.verify().map_err(|e| format!("verify: {e}"))?;
        if let Some(damage) = report.damages.first() {
            return Err(format!("verify: {damage}"));
        }
        self.everything()
    }
}

#[cfg(test)]
mod tests {
    use weir::{CompactionPolicy as P, LeveledOptions, RunsOptions};

    use super::*;

    fn level(filling: u64, draining: u64) -> LevelDescription {
        let mut level = LevelDescription::default();
        for n in (0..filling + draining).rev() {
            let mut run = RunDescription::default();
            (run.epoch, run.draining) = (n, n < draining);
            level.runs.push(run);
        }
        level
    }

    /// Goal: the oracle itself distinguishes forms. Method: trees that some policies allow and
    /// others do not.
    #[test]
    fn the_oracle_knows_every_form() {
        let allowing = |levels: [LevelDescription; 3]| -> Vec<String> {
            let fits = |policy: &P| {
                let sizes = LeveledOptions::default().l0_trigger(2).into();
                let runs = P::Tiered(RunsOptions::default().runs_per_level(3));
                let policy = policy.with_options_of(sizes).with_options_of(runs);
                let options = Options::default().compaction(policy);
                violations(&options, &levels).is_empty()
            };
            P::ALL.into_iter().filter(fits).map(|p| p.to_string()).collect()
        };
        let none = || level(0, 0);
        let every = P::ALL.map(|p| p.to_string());
        assert_eq!(allowing([none(), level(1, 0), level(1, 0)]), every);
        assert_eq!(allowing([none(), level(1, 1), level(1, 0)]), ["gear", "two_phase"]);
        let stacked = ["tiered", "lazy_leveled", "size_tiered", "stepped_merge"];
        let of = |all: Vec<String>| -> Vec<String> {
            all.into_iter().filter(|p| stacked.contains(&p.as_str())).collect()
        };
        let found = allowing([none(), level(2, 0), level(1, 0)]);
        assert_eq!((found.len(), of(found).len()), (4, 4));
        let found = allowing([none(), level(1, 0), level(2, 0)]);
        assert!(!found.contains(&"lazy_leveled".to_owned()) && found.len() == 3, "{found:?}");
        assert_eq!(allowing([none(), level(9, 0), none()]), ["size_tiered"]);
        assert_eq!(allowing([none(), level(1, 2), level(1, 0)]), [""; 0]);
    }
}
