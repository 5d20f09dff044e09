//! Campaign B: damage at rest. Every bit of a small store is inverted, one at a time, and sectors,
//! files and names are damaged; after each, the store is opened and read completely.
//!
//! The store has at least three levels, eight tables, buffer lists, two keyspaces, writes that are
//! synced but in the log only, and a version log of a base with edits behind it. It was closed in
//! good order: what is acknowledged as durable is known to the log itself.
//!
//! Verdicts: *right* (every answer as before), *error* (the store or some reads refuse, all other
//! answers right), *nameless* (the same, by an error that names no file), *wrong* (an answer that
//! never was, a panic, a hang), *missing* (something is silently not there). The last three must
//! never occur (PROMISES.md, P6 and P7).
//!
//! Logs of another store, and copies of the store's own files, come under numbers in use and later
//! ones, too.
//!
//! Some of the damaged stores are repaired, in a copy, too: see `repairs`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::model::show;
use crate::world::{self, Disk, STORE_FILE, Schedule};
use damages::{Damage, block_damages, flips, is_digit, strangers};
use regions::Region;
use specimen::{GETS, Specimen, open, specimen};

mod damages;
mod regions;
mod repairs;
mod specimen;

/// How a run of the campaign is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Decides the content of the store.
    pub seed: u64,
    /// Bits to flip, evenly spread; all of them if `None`.
    pub sample: Option<u64>,
    /// Whether sectors, files and names are damaged too.
    pub blocks: bool,
    /// Every so many-th bit is repaired too, and every 200th part of that of the other damages;
    /// 0: none.
    pub repair_every: u64,
    /// Threads.
    pub jobs: usize,
}

/// What a damage led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Every answer is right.
    Right,
    /// Opening or some reads fail with an error; all other answers are right.
    Error,
    /// The same, and the error does not say which file.
    Nameless,
    /// Something is silently not there.
    Missing,
    /// A wrong answer, a panic or a hang.
    Wrong,
}

/// What the campaign found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Verdicts, by kind of damage and class of file.
    pub verdicts: BTreeMap<(String, String), BTreeMap<Verdict, u64>>,
    /// The first few bad ones, for people.
    pub bad: Vec<String>,
    /// Bytes of the store.
    pub bytes: u64,
    /// Levels with tables, tables, logs, of the store.
    pub shape: String,
    /// What repairs came to, by kind of damage and class of file.
    pub repairs: BTreeMap<(String, String), repairs::Repairs>,
    /// Repairs that did what they must not, for people.
    pub bad_repairs: Vec<String>,
}

impl Report {
    /// Damages with this verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> u64 {
        self.verdicts.values().filter_map(|v| v.get(&verdict)).sum()
    }
}

/// The verdict on an error: every one says which file it is about, or that there is no store.
fn of_error(error: &weir::Error) -> (Verdict, String) {
    let text = error.to_string();
    let numbered = |end| text.match_indices(end).any(|(at, _)| text[..at].ends_with(is_digit));
    let slots = world::uses_slots() && text.contains(STORE_FILE);
    let named = text.contains("ROOT") || numbered(".tbl") || numbered(".log") || slots;
    (if named { Verdict::Error } else { Verdict::Nameless }, text)
}

/// Reads everything there is and compares; the verdict and, if it is a bad one, what was seen. All
/// entries are read by scans in both directions, and one key in [`GETS`] by a get: which ones goes
/// round with `turn`, so that all bits of a byte together meet every key.
fn judge(disk: &Disk, specimen: &Specimen, turn: usize) -> (Verdict, String) {
    let db = match open(disk, specimen.seed) {
        Ok(db) => db,
        Err(e) => return of_error(&e),
    };
    let names = db.keyspaces();
    if !names.iter().eq(specimen.content.keys()) {
        return (Verdict::Missing, format!("the keyspaces are {names:?}"));
    }
    let mut worst = (Verdict::Right, String::new());
    let mut note = |(verdict, what): (Verdict, String)| {
        if verdict > worst.0 {
            worst = (verdict, what);
        }
    };
    for (name, pairs) in &specimen.content {
        let space = match db.open_keyspace(name) {
            Ok(space) => space,
            Err(e) => {
                note(of_error(&e));
                continue;
            }
        };
        for (key, value) in pairs.iter().skip(turn % GETS).step_by(GETS) {
            match space.get(key) {
                Ok(Some(v)) if v[..] == value[..] => {}
                Ok(Some(v)) => {
                    note((Verdict::Wrong, format!("get {}: {}", show(key), show(&v))));
                }
                Ok(None) => note((Verdict::Missing, format!("get {}: nothing", show(key)))),
                Err(e) => note(of_error(&e)),
            }
        }
        for back in [false, true] {
            let mut iter = space.iter();
            let mut rest: std::collections::VecDeque<_> = pairs.iter().collect();
            loop {
                let next = if back { iter.next_back() } else { iter.next() };
                let right = if back { rest.pop_back() } else { rest.pop_front() };
                match (next, right) {
                    (None, None) => break,
                    (Some(Ok((k, v))), Some((ek, ev))) if k[..] == ek[..] && v[..] == ev[..] => {}
                    (Some(Err(e)), _) => {
                        note(of_error(&e));
                        break;
                    }
                    (None, Some((k, _))) => {
                        let what = format!("the scan (back: {back}) ends before {}", show(k));
                        note((Verdict::Missing, what));
                        break;
                    }
                    (Some(Ok((k, _))), right) => {
                        let right = right.map_or("the end".into(), |r| show(&r.0));
                        let what =
                            format!("the scan (back: {back}) gives {} for {right}", show(&k));
                        note((Verdict::Wrong, what));
                        break;
                    }
                }
            }
        }
    }
    worst
}

/// A damage, what it led to, and what its repair came to, if it was repaired.
struct Judged {
    damage: Damage,
    verdict: Verdict,
    what: String,
    repaired: Option<Result<repairs::Repairs, String>>,
}

/// Applies damages one after the other to copies of the store, in one simulation; those with a flag
/// are repaired too.
fn judge_all(specimen: &Arc<Specimen>, damages: &[(Damage, bool)]) -> Vec<Judged> {
    let mine = Arc::clone(specimen);
    // Made here and not by the actor: other simulations use the specimen at the same time, and an
    // actor must not wait for a lock of theirs.
    let damaged: Vec<(Damage, bool, Option<Disk>)> = damages
        .iter()
        .map(|(damage, repair)| {
            let disk = mine.disk.power_loss(1, 0);
            (damage.clone(), *repair, damage.apply(&disk, &mine).then_some(disk))
        })
        .collect();
    let schedule = Schedule::new(1, 64);
    let all = world::simulate(schedule, move || {
        let each = |(damage, repair, disk): (Damage, bool, Option<Disk>)| {
            let Some(disk) = disk else {
                let what = "nothing to damage".to_owned();
                return Judged { damage, verdict: Verdict::Right, what, repaired: None };
            };
            let turn = match &damage {
                Damage::Flip { bit, .. } => *bit as usize,
                _ => 0,
            };
            let copy = repair.then(|| disk.kill());
            let (verdict, what) = judge(&disk, &mine, turn);
            let repaired = copy.map(|copy| repairs::examine(&copy, &mine));
            let repaired = repaired.map(|repaired| repaired.and_then(|r| r.at_no_cost(&damage)));
            Judged { damage, verdict, what, repaired }
        };
        damaged.into_iter().map(each).collect::<Vec<_>>()
    });
    match all {
        Ok(verdicts) => verdicts,
        Err(why) if damages.len() == 1 => {
            let what = format!("panic or hang: {why}");
            let (damage, _) = damages[0].clone();
            vec![Judged { damage, verdict: Verdict::Wrong, what, repaired: None }]
        }
        // One of them panicked and took the others with it.
        Err(_) => {
            damages.iter().flat_map(|d| judge_all(specimen, std::slice::from_ref(d))).collect()
        }
    }
}

/// The kind of a damage, and the class of what is damaged.
fn kind_of(damage: &Damage, regions: &[Region]) -> (String, String) {
    let (kind, file, offset) = damage.kind();
    let is_in = |region: &&Region| {
        region.file == file && (region.start..region.start + region.bytes).contains(&offset)
    };
    let class =
        regions.iter().find(is_in).map_or_else(|| damages::class(file), |r| r.class.clone());
    (kind.to_owned(), class)
}

/// Runs the campaign.
///
/// # Errors
/// If the undamaged store cannot be built or does not read as it was written.
pub fn run(settings: &Settings) -> Result<Report, String> {
    let specimen = Arc::new(specimen(settings.seed)?);
    let regions = &specimen.regions;
    let mut damages = flips(regions, settings.sample);
    if settings.blocks {
        damages.extend(block_damages(regions, settings.seed));
        damages.extend(strangers(&specimen));
    }
    // Spread over all bits of a byte, whatever the number.
    let is_repaired = |(at, damage): (usize, Damage)| {
        let every = settings.repair_every;
        let at = at as u64;
        let chosen = match &damage {
            _ if every == 0 => false,
            Damage::Flip { .. } => at % every == at / every % every.min(8),
            _ => at.is_multiple_of((every / 200).max(1)),
        };
        (damage, chosen)
    };
    let damages: Vec<(Damage, bool)> = damages.into_iter().enumerate().map(is_repaired).collect();
    for control in judge_all(&specimen, &[(Damage::Nothing, true)]) {
        let repaired = control.repaired.map_or(Ok(1), |repaired| repaired.map(|r| r.healthy));
        if control.verdict != Verdict::Right || repaired != Ok(1) {
            let what = control.what;
            return Err(format!("the undamaged store is not right: {what}; repair: {repaired:?}"));
        }
    }
    let report = Mutex::new(Report {
        bytes: regions.iter().map(|region| region.bytes).sum(),
        shape: specimen.shape.clone(),
        ..Report::default()
    });
    let next = Mutex::new(0usize);
    const CHUNK: usize = 64;
    world::parallel(settings.jobs, |_| -> Result<(), String> {
        loop {
            let from = {
                let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
                *next += CHUNK;
                *next - CHUNK
            };
            if from >= damages.len() {
                return Ok(());
            }
            let chunk = &damages[from..damages.len().min(from + CHUNK)];
            let verdicts = judge_all(&specimen, chunk);
            let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
            for Judged { damage, verdict, what, repaired } in verdicts {
                let key = kind_of(&damage, regions);
                match repaired {
                    Some(Ok(one)) => report.repairs.entry(key.clone()).or_default().add(one),
                    Some(Err(why)) => report.bad_repairs.push(format!("{damage:?}: {why}")),
                    None => {}
                }
                *report.verdicts.entry(key).or_default().entry(verdict).or_default() += 1;
                if verdict >= Verdict::Nameless && report.bad.len() < 200 {
                    report.bad.push(format!("{damage:?}: {verdict:?}: {what}"));
                }
            }
        }
    })?;
    Ok(report.into_inner().unwrap_or_else(PoisonError::into_inner))
}
