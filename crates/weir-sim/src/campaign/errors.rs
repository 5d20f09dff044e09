//! Campaign E: every device call of every scenario fails once and permanently, in every way that
//! applies.
//!
//! A scenario is a prepared store and an action. A first run without faults counts the action's
//! device calls by site. Then, for every site, every call at it, every effect that can happen
//! there, and "once" and "permanently", the action is run again with that fault. Afterwards the
//! device is healed, the store is used, left, opened again and compared with the ledger.
//!
//! Besides, every call panics once in place of an error (`panics`), while other actors write, read
//! and wait beside the action; and callbacks write, close the store and panic (`callbacks`).
//!
//! Violations: a store that is poisoned, or is not, against the table in `verdicts`; a wrong
//! answer; an acknowledgement after a failed log sync; a store that does not take writes after the
//! device is healed although it is not poisoned, or does not open; a hang (a deadlock, or an hour
//! of virtual time); a panic that was not injected, or is not reported; a callback that gets
//! a wrong outcome, or is not called; obsolete files when the healed
//! store is closed or after reopening, or open files.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use weir::sim::{Effect, ErrorCode, Fault, OpKind, Prng, Site, Times};

use crate::ledger::Ledger;
use crate::world::{self, Disk, Schedule};
use aftermath::aftermath;
use caught::lock;
pub use report::{Report, Settings};
use scenario::{SCENARIOS, Scenario, act, opens_under_faults, prepare};
use scene::Scene;
use verdicts::judge;

mod aftermath;
mod beside;
mod callbacks;
mod caught;
mod full;
mod panics;
mod report;
mod scenario;
mod scene;
mod verdicts;

/// The effects that make sense for a kind of request.
fn effects(op: OpKind) -> Vec<Effect> {
    use ErrorCode::{Edquot, Eio, Emfile, Enospc};
    let mut all = vec![Effect::Fail(Eio), Effect::Stall(10_000)];
    match op {
        OpKind::Create => all.extend([Enospc, Edquot, Emfile].map(Effect::Fail)),
        OpKind::Open | OpKind::Lock => all.push(Effect::Fail(Emfile)),
        OpKind::Write => {
            all.extend([Enospc, Edquot].map(Effect::Fail));
            all.extend([Effect::ShortWrite(Eio, 4), Effect::ShortWrite(Enospc, 7)]);
        }
        OpKind::Sync => {
            all.extend([Enospc, Edquot].map(Effect::Fail));
            all.extend([Effect::LoseDirty(false), Effect::LoseDirty(true)]);
        }
        OpKind::Allocate | OpKind::SetLen | OpKind::Rename | OpKind::SyncDir => {
            all.extend([Enospc, Edquot].map(Effect::Fail));
        }
        _ => {}
    }
    if !matches!(op, OpKind::Read | OpKind::Len | OpKind::List | OpKind::Lock) {
        all.push(Effect::FailButDone(Eio));
    }
    all
}

/// The observations of one run.
struct Ran {
    poisoned: bool,
    sites: Vec<(Site, u64)>,
    callbacks: (u64, u64),
    /// Threads that a panic hit, and the call that one came out of.
    panicked: (Vec<String>, Option<&'static str>),
}

/// The faults that hit in a run, known also if it ends badly.
type Injected = Arc<Mutex<Vec<(Site, Effect, u64)>>>;

/// One run of a scenario, with or without a fault; with panics it runs among others.
fn run_one(
    scenario: Scenario,
    prepared: &(Disk, Ledger),
    (fault, crowded): (Option<Fault>, bool),
    number: u64,
    injected: &Injected,
) -> Result<Ran, String> {
    let injected = Arc::clone(injected);
    let (disk, ledger) = (prepared.0.kill(), prepared.1.clone());
    let schedule = Schedule::new(number, 8);
    world::simulate(schedule, move || {
        let mut scene = Scene::new(disk, ledger);
        if !opens_under_faults(scenario) {
            scene.open().map_err(|e| format!("open: {e}"))?;
        }
        let count = |scene: &Scene| -> Vec<(Site, u64)> {
            scene.faults().counters().sites().iter().map(|s| (s.site, s.calls)).collect()
        };
        let before: BTreeMap<Site, u64> = count(&scene).into_iter().collect();
        if let Some(fault) = fault {
            scene.faults().arm(fault);
        }
        let acted = match crowded {
            true => panics::act_among_others(&mut scene, scenario),
            false => act(&mut scene, scenario),
        };
        *lock(&injected) = scene.faults().injected();
        acted?;
        let hit = scene.faults().injected_total() > 0;
        let panicked = scene.faults().panicked();
        let mut sites = count(&scene);
        for (site, n) in &mut sites {
            *n -= before.get(site).copied().unwrap_or(0);
        }
        aftermath(&mut scene, number)?;
        if let Some(fault) = fault.filter(|_| hit) {
            judge(scenario, fault, &scene)?;
        }
        let panicked = (panicked, scene.came_out_of());
        Ok(Ran { poisoned: scene.poisoned, sites, callbacks: scene.callbacks, panicked })
    })?
}

/// The faults of one scenario; panics only, or all others.
fn plan(sites: &[(Site, u64)], calls_max: Option<u64>, panics: bool) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (site, calls) in sites {
        let wanted = calls_max.unwrap_or(*calls).min(*calls);
        for n in 0..wanted {
            let after = n * calls / wanted.max(1);
            let (op, class) = (Some(site.op), Some(site.class));
            if panics {
                let (times, effect) = (Times::Once, Effect::Panic);
                faults.push(Fault { op, class, after, times, effect });
                continue;
            }
            for effect in effects(site.op) {
                for times in [Times::Once, Times::Forever] {
                    faults.push(Fault { op, class, after, times, effect });
                }
            }
        }
    }
    faults
}

/// Runs a scenario once for each fault, each under a schedule of its own.
fn run_faults(
    (scenario, name): (Scenario, &'static str),
    prepared: &(Disk, Ledger),
    faults: &[Fault],
    settings: &Settings,
    report: &Mutex<Report>,
) -> Result<(), String> {
    let next = Mutex::new(0usize);
    world::parallel(settings.jobs, |_| -> Result<(), String> {
        loop {
            let at = {
                let mut next = lock(&next);
                *next += 1;
                *next - 1
            };
            let Some(fault) = faults.get(at) else { return Ok(()) };
            let injected = Injected::default();
            let how = (Some(*fault), fault.effect == Effect::Panic);
            let number = Prng::new(settings.seed.wrapping_add(at as u64)).next_u64();
            let ran = run_one(scenario, prepared, how, number, &injected);
            let mut report = lock(report);
            report.runs += 1;
            let forever = fault.times == Times::Forever;
            for (site, effect, n) in lock(&injected).drain(..) {
                *report.hits.entry((site, effect, forever)).or_default() += n;
            }
            match ran {
                Ok(ran) => {
                    report.poisoned += u64::from(ran.poisoned);
                    report.callbacks.0 += ran.callbacks.0;
                    report.callbacks.1 += ran.callbacks.1;
                    report.panics.add(&ran.panicked.0, ran.panicked.1, ran.poisoned);
                }
                Err(why) => {
                    let (op, class) = (fault.op, fault.class);
                    report.violations.push(format!(
                        "{name}: call {} of {op:?} x {class:?}, {:?} {:?} (run {at}): {why}",
                        fault.after, fault.effect, fault.times
                    ));
                }
            }
        }
    })
}

/// Runs the campaign.
///
/// # Errors
/// If a scenario does not run without faults. Violations are in the report.
pub fn run(settings: &Settings) -> Result<Report, String> {
    let report = Mutex::new(Report::default());
    for (scenario, name) in SCENARIOS {
        if !settings.names(name) {
            continue;
        }
        let schedule = Schedule::new(settings.seed, 8);
        let prepared = world::simulate(schedule, move || prepare(scenario))?
            .map_err(|e| format!("scenario {name}: {e}"))?;
        for panics in [false, true] {
            let clean = run_one(scenario, &prepared, (None, panics), 0, &Injected::default())
                .map_err(|e| format!("scenario {name} without faults: {e}"))?;
            let calls = clean.sites.iter().map(|s| s.1).sum();
            lock(&report).calls.entry(name).or_insert(calls);
            let faults = plan(&clean.sites, settings.calls_max, panics);
            run_faults((scenario, name), &prepared, &faults, settings, &report)?;
        }
    }
    let mut report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
    // A file that is allocated is not filled by what is written into it; a store in slots that is
    // full is a test of the engine.
    let full = if crate::world::uses_slots() { &[][..] } else { &full::RUNS[..] };
    for &(name, scenario) in full {
        if settings.names(name) {
            let runs = if settings.calls_max.is_some() { 12 } else { 120 };
            full::run(settings, (name, scenario), runs, &mut report)?;
        }
    }
    Ok(report)
}
