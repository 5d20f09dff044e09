//! The full device: writes until nothing fits, at every distance from the end of the space.
//!
//! Method: the disk gets a capacity a little larger than what the store takes; then writes go on
//! until some are refused. That must be `NoSpace` and nothing else; reads go on; when the disk is
//! larger again, writes resume without a reopening. Then as after every fault of campaign E.

use super::*;

/// Writes after which a disk must be full: a few times its capacity.
const WRITES_MAX: u32 = 4000;

/// Runs at this many distances.
pub(super) fn run(settings: &Settings, runs: u64, report: &mut Report) -> Result<(), String> {
    let schedule = Schedule::new(settings.seed, 8);
    let prepared = world::simulate(schedule, || prepare(Scenario::Write))?
        .map_err(|e| format!("full device: {e}"))?;
    for number in 0..runs {
        let (disk, ledger) = (prepared.0.kill(), prepared.1.clone());
        let schedule = Schedule::new(settings.seed.wrapping_add(number), 8);
        let extra = (16 << 10) + number * 3777;
        report.runs += 1;
        let ran = world::simulate(schedule, move || one(Scene::new(disk, ledger), extra, number));
        match ran.and_then(|outcome| outcome) {
            Ok(refused) => report.full_refused += refused,
            Err(why) => report.violations.push(format!("full device, {extra} bytes left: {why}")),
        }
    }
    Ok(())
}

/// One run; the number of writes that were refused.
fn one(mut scene: Scene, extra: u64, number: u64) -> Outcome<u64> {
    scene.open().map_err(|e| format!("open: {e}"))?;
    let disk = scene.disk.sim.clone();
    disk.set_capacity(Some(disk.used_bytes() + extra));
    scene.full = true;
    let mut refused = 0;
    for n in 0..WRITES_MAX {
        let durability = if n % 16 == 0 { Durability::Sync } else { Durability::Buffered };
        let items = scene.some_items(1 + n % 3, 300, &["default", "second"]);
        refused += u64::from(!scene.write(items, durability)?);
        if refused >= 10 {
            break;
        }
    }
    if refused == 0 {
        return Err(format!("{WRITES_MAX} writes fit"));
    }
    scene.look()?;
    let db = scene.db()?;
    points(&mut scene, &db)?;
    let flushed = caught(|| db.flush());
    scene.tolerate("flush", flushed)?;
    if scene.poisoned {
        return Err("a full device poisons the store".into());
    }
    drop(db);
    disk.set_capacity(None);
    scene.full = false;
    aftermath(&mut scene, number)?;
    Ok(refused)
}
