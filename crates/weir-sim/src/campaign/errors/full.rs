//! The full device: writes until nothing fits, at every distance from the end of the space.
//!
//! Method: the disk gets a capacity, or a number of files, a little larger than what the store
//! takes; then writes go on until some are refused. That must be `NoSpace` and nothing else; reads
//! go on. Where there are buffer lists, they are dropped by then. When exactly what the refusal
//! names is free, writes go on by themselves; so they do when the disk is larger again, without a
//! reopening. Then as after every fault of campaign E.

use weir::Durability;

use super::aftermath::aftermath;
use super::caught::{Outcome, caught};
use super::report::{Report, Settings};
use super::scenario::{Scenario, listed_tables, points, prepare};
use super::scene::Scene;
use crate::world::{self, Schedule};

/// Writes after which a disk must be full: a few times its capacity.
const WRITES_MAX: u32 = 4000;

/// Virtual time after which jobs that found something to do on a full disk have done it.
const SETTLED_MILLIS: u64 = 2000;

/// How often something larger may be named: where writers wait for compactions, the first of them
/// may make a larger one due.
const NAMED_MAX: usize = 4;

/// What runs short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Short {
    Bytes,
    Files,
}

/// What a refusal names: what runs short, and how much of it is needed.
fn named(refusal: &str) -> Vec<(Short, u64)> {
    let needs = refusal.split(" may need ").skip(1).filter_map(|need| {
        let mut words = need.split(' ');
        let amount = words.next()?.parse().ok()?;
        match words.next()? {
            "bytes" => Some((Short::Bytes, amount)),
            "files" => Some((Short::Files, amount)),
            _ => None,
        }
    });
    needs.collect()
}

/// The runs, by name, on the store of a scenario.
pub(super) const RUNS: [(&str, Scenario); 2] =
    [("full device", Scenario::Write), ("full device with buffer lists", Scenario::ListAppend)];

/// Runs at this many distances, for bytes and for files.
pub(super) fn run(
    settings: &Settings,
    (name, scenario): (&'static str, Scenario),
    runs: u64,
    report: &mut Report,
) -> Result<(), String> {
    let schedule = Schedule::new(settings.seed, 8);
    let prepared = world::simulate(schedule, move || prepare(scenario))?
        .map_err(|e| format!("{name}: {e}"))?;
    for number in 0..2 * runs {
        let (disk, ledger) = (prepared.0.kill(), prepared.1.clone());
        let schedule = Schedule::new(settings.seed.wrapping_add(number), 8);
        let (short, number) =
            (if number < runs { Short::Bytes } else { Short::Files }, number % runs);
        let extra = match short {
            // From some 260,000 on the few keys that are written have all the room they ever need.
            Short::Bytes => (16 << 10) + number * 1777,
            // From some forty on the store has as many as it ever needs.
            Short::Files => 4 + number * 5 % 36,
        };
        report.runs += 1;
        let has_lists = scenario == Scenario::ListAppend;
        let one = move || one(Scene::new(disk, ledger), has_lists, (short, extra), number);
        match world::simulate(schedule, one).and_then(|outcome| outcome) {
            Ok(refused) => report.full_refused += refused,
            Err(why) => {
                report.violations.push(format!("{name}, {extra} {short:?} left: {why}"));
            }
        }
    }
    Ok(())
}

/// One run; the number of writes that were refused.
fn one(
    mut scene: Scene,
    has_lists: bool,
    (short, extra): (Short, u64),
    number: u64,
) -> Outcome<u64> {
    scene.open().map_err(|e| format!("open: {e}"))?;
    let disk = scene.disk.sim.clone();
    match short {
        Short::Bytes => disk.set_capacity(Some(disk.used_bytes() + extra)),
        Short::Files => disk.set_files_max(Some(disk.used_files() + extra)),
    }
    scene.full = true;
    let db = scene.db()?;
    if has_lists && listed_tables(&db) == 0 {
        return Err("the store has no lists".into());
    }
    let mut refused = 0;
    for n in 0..WRITES_MAX {
        refused += u64::from(!write(&mut scene, n)?);
        if refused >= 10 {
            break;
        }
    }
    if refused == 0 {
        return Err(format!("{WRITES_MAX} writes fit"));
    }
    if has_lists && db.metrics().lists_dropped == 0 {
        return Err("writes are refused, and lists keep their tables".into());
    }
    scene.look()?;
    resume(&mut scene)?;
    points(&mut scene, &db)?;
    let flushed = caught(|| db.flush());
    scene.tolerate("flush", flushed)?;
    if scene.poisoned {
        return Err("a full device poisons the store".into());
    }
    drop(db);
    disk.set_capacity(None);
    disk.set_files_max(None);
    scene.full = false;
    aftermath(&mut scene, number)?;
    Ok(refused)
}

fn write(scene: &mut Scene, n: u32) -> Outcome<bool> {
    let durability = if n.is_multiple_of(16) { Durability::Sync } else { Durability::Buffered };
    let items = scene.some_items(1 + n % 3, 300, &["default", "second"]);
    scene.write(items, durability)
}

/// Makes exactly what a refusal names free, and nothing more: writes go on.
fn resume(scene: &mut Scene) -> Outcome {
    let disk = scene.disk.sim.clone();
    let mut refusals = Vec::new();
    for _ in 0..=NAMED_MAX {
        world::delay_millis(SETTLED_MILLIS);
        if write(scene, 0)? {
            return Ok(());
        }
        let refusal = scene.refusal.clone();
        for (short, needed) in named(&refusal) {
            match short {
                Short::Bytes => disk.set_capacity(Some(disk.used_bytes() + needed)),
                Short::Files => disk.set_files_max(Some(disk.used_files() + needed)),
            }
        }
        refusals.push(refusal);
    }
    Err(format!("writes do not go on when what a refusal names is free: {refusals:#?}"))
}
