//! Campaign E: every device call of every scenario fails once and for ever, in every way that
//! applies.
//!
//! A scenario is a prepared store and an action. A first run without faults counts the action's
//! device calls by site. Then, for every site, every call at it, every effect that can happen
//! there, and "once" and "for ever", the action is run again with that fault. Afterwards the device
//! is healed, the store is used, left, opened again and compared with the ledger.
//!
//! Besides, every call panics once in place of an error (`panics`), while other actors write, read
//! and wait beside the action; and callbacks write, close the store and panic (`callbacks`).
//!
//! Violations: a store that is poisoned, or is not, against the table in `verdicts`; a wrong
//! answer; an acknowledgement after a failed log sync; a store that does not take writes after the
//! device is healed although it is not poisoned, or does not open; a hang (a deadlock, or an hour
//! of virtual time); a panic that was not injected, or is not told of; a callback that is told
//! something else than what happened, or not called; files that nobody needs when the healed
//! store is closed or after reopening, or open files.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir::sim::{Effect, ErrorCode, Fault, Faults, FaultyDir, OpKind, Prng, Site, Times};
use weir::{
    Db, DbOptions, DebugDbOptions, DebugOptions, Durability, ErrorKind, Keyspace, Options,
    WriteBatch,
};

use crate::campaign::crash::read_all;
use crate::history::Content;
use crate::ledger::{Entry, Item, Ledger};
use crate::op::{Val, key_bytes};
use crate::world::{self, Disk, Schedule};
use aftermath::aftermath;
use panics::{Beside, Caught, Known, caught};
use verdicts::{Verdict, judge};

mod aftermath;
mod callbacks;
mod full;
mod panics;
mod verdicts;

/// How a run of the campaign is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The root seed.
    pub seed: u64,
    /// At most so many calls per site and scenario are made to fail, evenly spread; `None`: all.
    pub calls_max: Option<u64>,
    /// Threads.
    pub jobs: usize,
    /// Only the scenario of this name.
    pub only: Option<String>,
}

/// What the campaign did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Runs with a fault.
    pub runs: u64,
    /// Faults that hit, by site, effect and whether for ever.
    pub hits: BTreeMap<(Site, Effect, bool), u64>,
    /// Runs that left the store poisoned.
    pub poisoned: u64,
    /// Calls without faults, by scenario.
    pub calls: BTreeMap<&'static str, u64>,
    /// Writes that a full device refused.
    pub full_refused: u64,
    /// Where panics were injected, and what became of them.
    pub panics: panics::Panics,
    /// Callbacks that were told of a success, and of a failure.
    pub callbacks: (u64, u64),
    /// Violations; the campaign goes on after them.
    pub violations: Vec<String>,
}

/// A prepared store and what is done to it under faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scenario {
    Create,
    OpenClean,
    OpenCrashed,
    OpenReadOnly,
    Write,
    WriteSync,
    BigBatch,
    Flush,
    Compact,
    Load,
    BaseRewrite,
    Keyspaces,
    Iterate,
    Verify,
    Close,
    Callbacks(callbacks::Reaction),
}

const SCENARIOS: [(Scenario, &str); 18] = [
    (Scenario::Create, "create"),
    (Scenario::OpenClean, "open"),
    (Scenario::OpenCrashed, "open after a crash"),
    (Scenario::OpenReadOnly, "open for reading"),
    (Scenario::Write, "write"),
    (Scenario::WriteSync, "write and sync"),
    (Scenario::BigBatch, "batch larger than a segment"),
    (Scenario::Flush, "flush"),
    (Scenario::Compact, "compact"),
    (Scenario::Load, "flushes and merges under load"),
    (Scenario::BaseRewrite, "base rewrite"),
    (Scenario::Keyspaces, "create and drop keyspaces"),
    (Scenario::Iterate, "get and iterate"),
    (Scenario::Verify, "verify"),
    (Scenario::Close, "close"),
    (Scenario::Callbacks(callbacks::Reaction::Write), "callbacks that write"),
    (Scenario::Callbacks(callbacks::Reaction::Close), "callbacks that close"),
    (Scenario::Callbacks(callbacks::Reaction::Panic), "callbacks that panic"),
];

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

fn options() -> (DbOptions, Options) {
    let db = DbOptions {
        memory_budget: 1 << 20,
        block_cache_bytes: Some(0),
        background_threads: 1,
        log_segment_bytes: 4 << 10,
        log_area_bytes: 128 << 10,
        debug: DebugDbOptions::default().version_log_bytes(4 << 10).verify_outputs(true),
        ..DbOptions::default()
    };
    let ks = Options {
        write_buffer_bytes: 4 << 10,
        debug: DebugOptions::default().write_buffer_entries(30),
        block_bytes: 512,
        table_bytes: 2 << 10,
        base_level_bytes: 4 << 10,
        level_ratio: 2,
        l0_trigger: 2,
        ..Options::default()
    };
    (db, ks)
}

/// A run: the store, the device and the ledger.
struct Scene {
    disk: Disk,
    dir: Arc<FaultyDir>,
    ledger: Ledger,
    db: Option<Db>,
    values: u32,
    /// Set when a call said that the store is poisoned.
    poisoned: bool,
    /// `Db::sync` failed: nothing may be acknowledged any more (H43).
    sync_failed: bool,
    read_only: bool,
    /// The disk is full: `NoSpace` needs no fault.
    full: bool,
    /// What other actors do beside the action, if they do.
    beside: Option<Arc<Beside>>,
    /// The call that a panic came out of.
    panicked_in: Option<&'static str>,
    /// Callbacks that were told of a success, and of a failure.
    callbacks: (u64, u64),
    /// What the last write said that was refused on a full disk.
    refusal: String,
}

type Outcome<T = ()> = Result<T, String>;

impl Scene {
    fn new(disk: Disk, ledger: Ledger) -> Self {
        let dir = Arc::new(FaultyDir::over_disk(&disk.sim));
        let values = 1000 * ledger.entries.len() as u32;
        Self {
            disk,
            dir,
            ledger,
            db: None,
            values,
            poisoned: false,
            sync_failed: false,
            read_only: false,
            full: false,
            beside: None,
            panicked_in: None,
            callbacks: (0, 0),
            refusal: String::new(),
        }
    }

    fn faults(&self) -> Faults {
        self.dir.faults()
    }

    fn open(&mut self) -> weir::Result<()> {
        let (mut db, ks) = options();
        db.read_only = self.read_only;
        let dir = Arc::clone(&self.dir) as Arc<dyn weir::sim::Dir>;
        let builder = Db::builder("simulated").device(dir).seed(7);
        let opened = builder.options(db).default_options(ks).open()?;
        self.ledger.spaces.insert("default");
        self.db = Some(opened);
        Ok(())
    }

    fn db(&self) -> Outcome<Db> {
        self.db.clone().ok_or_else(|| "the store is not open".to_owned())
    }

    /// A call that may fail because of the fault, but only as such a call may.
    fn tolerate<T>(&mut self, what: &'static str, result: Caught<T>) -> Outcome<Option<T>> {
        match result {
            Caught::Panic => {
                self.panicked_in = Some(what);
                Ok(None)
            }
            Caught::Returned(Ok(value)) => Ok(Some(value)),
            Caught::Returned(Err(error)) => {
                self.poisoned |= error.kind() == ErrorKind::Poisoned;
                panics::check_reason(self.faults().panicked().len(), &error)?;
                if self.full && error.kind() == ErrorKind::NoSpace {
                    self.refusal = error.to_string();
                    return Ok(None);
                }
                if self.faults().injected_total() == 0 {
                    return Err(format!("{what} fails without a fault: {error}"));
                }
                match error.kind() {
                    ErrorKind::Io
                    | ErrorKind::NoSpace
                    | ErrorKind::Poisoned
                    | ErrorKind::NotFound
                    | ErrorKind::Locked
                    | ErrorKind::Conflict
                    | ErrorKind::Closed => Ok(None),
                    _ => Err(format!("{what} gives a misleading error: {error}")),
                }
            }
        }
    }

    fn write(&mut self, items: Vec<Item>, durability: Durability) -> Outcome<bool> {
        let db = self.db()?;
        let mut batch = WriteBatch::new();
        let mut handles: BTreeMap<&str, Keyspace> = BTreeMap::new();
        for (space, key, value) in &items {
            if !handles.contains_key(space) {
                let handle = if *space == "default" {
                    Ok(db.default_keyspace().clone())
                } else {
                    db.open_keyspace(space)
                };
                handles.insert(space, handle.map_err(|e| format!("open {space}: {e}"))?);
            }
            match value {
                Some(v) => batch.put(&handles[space], key, v),
                None => batch.delete(&handles[space], key),
            }
        }
        let refused_before = self.poisoned || self.sync_failed;
        let result = caught(|| db.write(batch, durability));
        let acknowledged = result.is_ok();
        if acknowledged && refused_before {
            return Err("a write was acknowledged after a failed log sync".into());
        }
        self.ledger.entries.push(Entry {
            items,
            acknowledged,
            durable: acknowledged && durability == Durability::Sync,
            unlogged: durability == Durability::None,
            void: durability != Durability::Sync,
        });
        self.tolerate("write", result)?;
        Ok(acknowledged)
    }

    fn some_items(&mut self, count: u32, len: u32, spaces: &[&'static str]) -> Vec<Item> {
        let mut items = Vec::new();
        for _ in 0..count {
            self.values += 1;
            let n = self.values;
            let key = key_bytes(n.wrapping_mul(2_654_435_761) >> 8 & 63);
            let value = (!n.is_multiple_of(7)).then(|| Val { id: n, len: 8 + n % len }.bytes());
            items.push((spaces[n as usize % spaces.len()], key, value));
        }
        items
    }

    fn writes(&mut self, count: u32, durability: Durability) -> Outcome {
        for n in 0..count {
            let batch = if n % 5 == 0 { 3 } else { 1 };
            let items = self.some_items(batch, 300, &["default", "second"]);
            self.write(items, durability)?;
        }
        Ok(())
    }

    /// The store as far as it can be read. An error of a faulty device is tolerated.
    fn look(&mut self) -> Outcome {
        let db = self.db()?;
        let known = self.known(false);
        let Some(read) = panics::survived(|| read_all(&db)) else {
            self.panicked_in = Some("reading");
            return Ok(());
        };
        match read {
            Ok(content) => self.check_live(&known, content),
            Err(_) if self.faults().injected_total() > 0 => Ok(()),
            Err(why) => Err(why),
        }
    }

    fn close(&mut self) -> Outcome {
        if let Some(db) = self.db.take() {
            let result = caught(|| db.close());
            if self.tolerate("close", result)?.is_some() {
                self.ledger.closed();
            }
        }
        Ok(())
    }
}

/// A disk and a ledger to begin with.
fn prepare(scenario: Scenario) -> Outcome<(Disk, Ledger)> {
    let mut scene = Scene::new(Disk::new(), Ledger::default());
    if scenario == Scenario::Create {
        return Ok((scene.disk, scene.ledger));
    }
    scene.open().map_err(|e| format!("prepare: {e}"))?;
    let db = scene.db()?;
    db.keyspace_with("second", options().1).map_err(|e| format!("prepare: {e}"))?;
    scene.ledger.spaces.insert("second");
    scene.writes(150, Durability::Buffered)?;
    db.flush().and_then(|()| db.wait_idle()).map_err(|e| format!("prepare: {e}"))?;
    scene.writes(20, Durability::Sync)?;
    drop(db);
    if scenario == Scenario::OpenCrashed {
        scene.writes(20, Durability::Buffered)?;
        let crashed = scene.disk.power_loss(2, 5);
        let content = {
            scene.db = None;
            let mut after = Scene::new(crashed.kill(), Ledger::default());
            after.open().map_err(|e| format!("prepare: {e}"))?;
            let content = read_all(&after.db()?)?;
            after.close()?;
            content
        };
        scene.ledger.check_power_loss(&content)?;
        // What survived is what the ledger begins with.
        let mut ledger = Ledger { spaces: scene.ledger.spaces.clone(), ..Ledger::default() };
        for (space, pairs) in content {
            let space = if space == "default" { "default" } else { "second" };
            let items = pairs.into_iter().map(|(k, v)| (space, k, Some(v))).collect();
            ledger.entries.push(Entry {
                items,
                acknowledged: true,
                durable: true,
                unlogged: false,
                void: false,
            });
        }
        return Ok((crashed, ledger));
    }
    scene.close()?;
    Ok((scene.disk.power_loss(1, 0), scene.ledger))
}

/// Whether faults begin before the store is opened.
fn opens_under_faults(scenario: Scenario) -> bool {
    use Scenario::{Create, OpenClean, OpenCrashed, OpenReadOnly};
    matches!(scenario, Create | OpenClean | OpenCrashed | OpenReadOnly)
}

/// The action, under faults.
fn act(scene: &mut Scene, scenario: Scenario) -> Outcome {
    if opens_under_faults(scenario) {
        scene.read_only = scenario == Scenario::OpenReadOnly;
        let opened = caught(|| scene.open());
        if scene.tolerate("open", opened)?.is_some() {
            scene.look()?;
        }
        return Ok(());
    }
    let db = scene.db()?;
    let all: (std::ops::Bound<Vec<u8>>, std::ops::Bound<Vec<u8>>) =
        (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    match scenario {
        Scenario::Write => scene.writes(40, Durability::Buffered)?,
        Scenario::WriteSync => {
            scene.writes(12, Durability::Sync)?;
            scene.writes(3, Durability::Buffered)?;
            let result = caught(|| db.sync());
            match scene.tolerate("sync", result)? {
                Some(()) => scene.ledger.all_durable(),
                None => scene.sync_failed = true,
            }
        }
        Scenario::BigBatch => {
            let items = scene.some_items(60, 600, &["default", "second"]);
            scene.write(items, Durability::Buffered)?;
            let items = scene.some_items(40, 600, &["second"]);
            scene.write(items, Durability::Sync)?;
            scene.writes(3, Durability::Buffered)?;
        }
        Scenario::Flush => {
            scene.writes(10, Durability::Buffered)?;
            let result = caught(|| db.flush());
            scene.tolerate("flush", result)?;
            scene.writes(3, Durability::Buffered)?;
        }
        Scenario::Compact => {
            let result = caught(|| db.compact_range(all.clone()));
            scene.tolerate("compact", result)?;
            let second = db.open_keyspace("second").map_err(|e| e.to_string())?;
            let result = caught(|| second.compact_range(all));
            scene.tolerate("compact", result)?;
        }
        Scenario::Load => {
            scene.writes(180, Durability::Buffered)?;
            let result = caught(|| db.wait_idle());
            scene.tolerate("wait_idle", result)?;
        }
        Scenario::BaseRewrite => {
            let second = db.open_keyspace("second").map_err(|e| e.to_string())?;
            for n in 0..60u64 {
                let changed = Options { level_ratio: 2 + (n % 8) as u32, ..options().1 };
                let result = caught(|| second.set_options(changed));
                scene.tolerate("set options", result)?;
            }
        }
        Scenario::Keyspaces => keyspaces(scene, &db)?,
        Scenario::Iterate => {
            for _ in 0..2 {
                scene.look()?;
                points(scene, &db)?;
            }
        }
        Scenario::Verify => {
            let result = caught(|| db.verify());
            scene.tolerate("verify", result)?;
        }
        Scenario::Close => {
            let items = scene.some_items(4, 100, &["second"]);
            scene.write(items, Durability::None)?;
            scene.writes(3, Durability::Buffered)?;
            drop(db);
            return scene.close();
        }
        Scenario::Callbacks(reaction) => {
            drop(db);
            return callbacks::act(scene, reaction);
        }
        _ => {}
    }
    scene.look()
}

fn keyspaces(scene: &mut Scene, db: &Db) -> Outcome {
    for name in ["x", "y"] {
        let made = caught(|| db.create_keyspace(name, options().1));
        match scene.tolerate("create keyspace", made)? {
            Some(_) => {
                scene.ledger.spaces.insert(name);
                let items = scene.some_items(5, 100, &[name]);
                scene.write(items, Durability::Sync)?;
                let items = scene.some_items(5, 100, &["default", name]);
                scene.write(items, Durability::Buffered)?;
            }
            None => {
                scene.ledger.unsure.insert(name);
            }
        }
    }
    if scene.ledger.spaces.contains("x") {
        let dropped = caught(|| db.drop_keyspace("x"));
        match scene.tolerate("drop keyspace", dropped)? {
            Some(()) => {
                scene.ledger.spaces.remove("x");
                scene.ledger.unsure.remove("x");
            }
            None => {
                scene.ledger.unsure.insert("x");
            }
        }
    }
    Ok(())
}

/// Point reads: right or an error.
fn points(scene: &mut Scene, db: &Db) -> Outcome {
    let mut content = Content::new();
    for name in ["default", "second"] {
        let space = db.open_keyspace(name).map_err(|e| e.to_string())?;
        let mut pairs = Vec::new();
        for id in 0..64 {
            let key = key_bytes(id);
            match scene.tolerate("get", caught(|| space.get(&key)))? {
                Some(Some(value)) => pairs.push((key, value.to_vec())),
                Some(None) => {}
                None => return Ok(()),
            }
        }
        pairs.sort();
        pairs.dedup();
        content.insert(name.to_owned(), pairs);
    }
    scene.ledger.check_live(&content)
}

/// What one run told.
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        if settings.only.as_ref().is_some_and(|only| only != name) {
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
    if settings.only.as_ref().is_none_or(|only| only == "full device") {
        full::run(settings, if settings.calls_max.is_some() { 12 } else { 120 }, &mut report)?;
    }
    Ok(report)
}
