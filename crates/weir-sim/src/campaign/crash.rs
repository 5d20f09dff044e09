//! Campaign C: power is lost at every device call, under every policy of what unsynced bytes and
//! names survive.
//!
//! One recorded run gives a trace of device calls. For every boundary `x` of the trace and every
//! policy the disk as it may look after a power loss is built, opened, read completely and checked
//! against the history (`history`): a prefix of the commit order, no acknowledged sync lost,
//! batches whole. Before that, a copy of it is opened read-only and repaired, which must show the
//! same and change nothing (`untouched`). Then the store is used and opened once more, and must
//! hold the same. For one image in a hundred the recovery is itself recorded and crashed at every
//! boundary (depth 2), and must come to the same content.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir::sim::Prng;
use weir::{Db, DbOptions, Durability, Keyspace, Options, WriteBatch};

use crate::campaign::untouched;
use crate::history::{Content, History, Span, read_all};
use crate::model::{Bytes, show};
use crate::op::{Val, key_bytes};
use crate::options::{self, Cell, Pair};
use crate::world::{self, Disk, POLICIES, Schedule, Walk};

/// How a run of the campaign is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The root seed.
    pub seed: u64,
    /// Images to check, at least; the last trace is always finished.
    pub images: u64,
    /// Check one boundary in so many only; 1 for all.
    pub stride: usize,
    /// Begin with this boundary of the first trace.
    pub from: usize,
    /// Steps of each recorded run.
    pub steps: u64,
    /// One image in so many is crashed again during its recovery.
    pub depth_two_every: u64,
    /// One image in so many is also opened read-only and repaired; 1 for all.
    pub repair_every: u64,
    /// Threads that check images at once.
    pub jobs: usize,
    /// Whether to say after every trace how far it is.
    pub progress: bool,
    /// Policy and filters, if they are not to be drawn.
    pub cell: Option<Cell>,
}

/// What the campaign did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Recorded runs.
    pub traces: u64,
    /// Device calls in them.
    pub calls: u64,
    /// Images checked at depth 1.
    pub images: u64,
    /// Images checked at depth 2.
    pub images_deep: u64,
    /// Images, of both, that were opened read-only and repaired.
    pub repaired: u64,
    /// Crashes by site.
    pub sites: BTreeMap<String, u64>,
    /// Images by policy.
    pub policies: BTreeMap<String, u64>,
    /// Commits that survived, over all images.
    pub commits: u64,
}

impl Report {
    fn add(&mut self, other: &Self) {
        self.traces += other.traces;
        self.calls += other.calls;
        self.images += other.images;
        self.images_deep += other.images_deep;
        self.repaired += other.repaired;
        self.commits += other.commits;
        for (site, n) in &other.sites {
            *self.sites.entry(site.clone()).or_default() += n;
        }
        for (policy, n) in &other.policies {
            *self.policies.entry(policy.clone()).or_default() += n;
        }
    }
}

const PERMANENT: [&str; 2] = ["default", "one"];

/// A recorded run.
pub struct Recording {
    seed: u64,
    options: Pair,
    disk: Disk,
    history: History,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What all writers of a run share. The history's lock is never held across a call into the engine
/// or the disk: there another actor may be given the baton, and would wait for the lock outside of
/// the scheduler.
struct Shared {
    disk: Disk,
    history: Mutex<History>,
}

impl Shared {
    fn now(&self) -> usize {
        self.disk.changes()
    }
}

/// One writer of a run.
struct Writer {
    number: usize,
    rng: Prng,
    shared: Arc<Shared>,
    db: Db,
    /// Handles by space; the permanent ones first.
    spaces: Vec<Option<Keyspace>>,
    keys: u64,
    values: u32,
    unlogged: bool,
    /// Whether the run begins with one keyspace.
    alone: bool,
    cell: Option<Cell>,
}

impl Writer {
    fn key(&mut self) -> Vec<u8> {
        let id = self.rng.below(self.keys) as u32;
        [&[b'A' + self.number as u8], &key_bytes(id)[..]].concat()
    }

    /// What becomes a sentinel: all keys, or some of a writer's, so that tables stay where they are
    /// and hide a part of what they have. Drawn by what was written so far.
    fn hot_range(&self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let (number, writer) = (u64::from(self.values), self.values as u8 % 3);
        let key = |n: u64| [&[b'A' + writer], &key_bytes((n % self.keys) as u32)[..]].concat();
        let mut ends = [key(number * 37), key(number * 59 + 1)];
        ends.sort();
        match ends {
            [from, to] if number % 4 > 0 && from < to => {
                (Bound::Included(from), Bound::Excluded(to))
            }
            _ => (Bound::Unbounded, Bound::Unbounded),
        }
    }

    fn value(&mut self) -> Bytes {
        self.values += 1;
        let len = match self.rng.below(24) {
            0 => 3000 + self.rng.below(4000),
            1 => 0,
            _ => 8 + self.rng.below(150),
        };
        Bytes::from(Val { id: self.values << 3 | self.number as u32, len: len as u32 }.bytes())
    }

    fn durability(&mut self) -> Durability {
        match self.rng.below(10) {
            0 | 1 => Durability::Sync,
            2 if self.unlogged => Durability::None,
            3 | 4 => Durability::Deferred,
            _ => Durability::Buffered,
        }
    }

    /// One random commit over the keyspaces that exist.
    fn commit(&mut self) -> Result<(), String> {
        let durability = self.durability();
        let live: Vec<usize> =
            (0..self.spaces.len()).filter(|s| self.spaces[*s].is_some()).collect();
        let count = if self.rng.chance(1, 12) { 20 } else { 1 + self.rng.below(4) };
        let only = live[self.rng.below(live.len() as u64) as usize];
        let mut items = Vec::new();
        for _ in 0..count {
            let any = live[self.rng.below(live.len() as u64) as usize];
            let space = if durability == Durability::None { only } else { any };
            let value = self.rng.chance(4, 5).then(|| self.value());
            items.push((space, self.key(), value));
        }
        let mut batch = WriteBatch::new();
        for (space, key, value) in &items {
            let Some(handle) = &self.spaces[*space] else { continue };
            match value {
                Some(v) => batch.put(handle, key, v),
                None => batch.delete(handle, key),
            };
        }
        let logged = durability != Durability::None;
        let durable = durability == Durability::Sync;
        let now = self.shared.now();
        let index = lock(&self.shared.history).begin(self.number, now, items, logged, durable);
        self.db.write(batch, durability).map_err(|e| format!("write: {e}"))?;
        let now = self.shared.now();
        lock(&self.shared.history).end(self.number, index, now);
        Ok(())
    }

    /// A call that makes everything before it durable, or what it does to one keyspace and all
    /// that is older.
    fn barrier(
        &mut self,
        space: Option<usize>,
        call: impl FnOnce(&Self) -> weir::Result<()>,
    ) -> Result<(), String> {
        let start = self.shared.now();
        let covered = {
            let history = lock(&self.shared.history);
            space.map_or_else(|| history.acknowledged(), |space| history.acknowledged_in(space))
        };
        call(self).map_err(|e| format!("sync or flush: {e}"))?;
        let span = Span { start, end: self.shared.now() };
        lock(&self.shared.history).barriers.push((span, covered));
        Ok(())
    }

    fn create(&mut self) -> Result<(), String> {
        let taken = self.spaces.iter().skip(PERMANENT.len()).flatten().count();
        let name = ["x", "y"][taken % 2];
        let there = self.db.keyspaces().iter().any(|n| n == name);
        if there {
            return Ok(());
        }
        let now = self.shared.now();
        let space = lock(&self.shared.history).create(name, now);
        let drawn = draw_keyspace(&mut self.rng, self.cell);
        let handle = self.db.create_keyspace(name, drawn).map_err(|e| format!("create: {e}"))?;
        let now = self.shared.now();
        lock(&self.shared.history).changed(now);
        assert_eq!(space, self.spaces.len(), "spaces are numbered in order");
        self.spaces.push(Some(handle));
        Ok(())
    }

    fn remove(&mut self) -> Result<(), String> {
        let live: Vec<usize> =
            (PERMANENT.len()..self.spaces.len()).filter(|s| self.spaces[*s].is_some()).collect();
        let Some(&space) = live.first() else { return Ok(()) };
        self.spaces[space] = None;
        let name = lock(&self.shared.history).spaces[space].clone();
        let now = self.shared.now();
        lock(&self.shared.history).remove(space, now);
        self.db.drop_keyspace(&name).map_err(|e| format!("drop: {e}"))?;
        let now = self.shared.now();
        lock(&self.shared.history).changed(now);
        Ok(())
    }

    fn step(&mut self) -> Result<(), String> {
        let first = self.number == 0;
        match self.rng.below(40) {
            0 => self.barrier(None, |me| me.db.sync()),
            1 => {
                let space = self.rng.below(PERMANENT.len() as u64) as usize;
                if self.spaces.get(space).is_none_or(Option::is_none) {
                    return Ok(());
                }
                let flush = |me: &Self| me.spaces[space].as_ref().map_or(Ok(()), Keyspace::flush);
                self.barrier(Some(space), flush)
            }
            2 if first => {
                let space = self.rng.below(2) as usize;
                let space = self.spaces.get(space).and_then(Option::as_ref);
                space.map_or(Ok(()), |s| s.compact_range(..)).map_err(|e| format!("compact: {e}"))
            }
            9 if first => {
                let space = self.rng.below(2) as usize;
                let space = self.spaces.get(space).and_then(Option::as_ref);
                let range = self.hot_range();
                let built = space.map_or(Ok(false), |s| s.build_sentinel(range));
                built.map(|_| ()).map_err(|e| format!("sentinel: {e}"))
            }
            3..=5 if first && (!self.alone || self.rng.chance(1, 8)) => self.create(),
            6 | 7 if first => self.remove(),
            8 if first => self.db.wait_idle().map_err(|e| format!("wait_idle: {e}")),
            _ => self.commit(),
        }
    }
}

fn open(disk: &Disk, seed: u64, options: &Pair) -> Result<Db, String> {
    disk.builder(seed)
        .options(options.0.clone())
        .default_options(options.1.clone())
        .open()
        .map_err(|e| format!("open: {e}"))
}

/// Options of a keyspace.
fn draw_keyspace(rng: &mut Prng, cell: Option<Cell>) -> Options {
    let fit = |n| cell.is_none_or(|cell| cell.has(&options::keyspace(n)));
    options::keyspace(options::number_where(|| rng.next_u64() as u32, fit))
}

/// Options that fill several log segments and rewrite the base within a few hundred writes.
fn draw_options(rng: &mut Prng, cell: Option<Cell>) -> (DbOptions, Options) {
    let mut db = options::store(rng.next_u64() as u32);
    db.memory_budget = db.memory_budget.max(256 << 10);
    db.log_area_bytes = db.log_area_bytes.max(64 << 10);
    db.log_segment_bytes = db.log_segment_bytes.min(8 << 10);
    db.debug.version_log_bytes = 4 << 10;
    let mut ks = draw_keyspace(rng, cell);
    ks.debug.write_buffer_entries = ks.debug.write_buffer_entries.or(Some(40));
    (db, ks)
}

/// Runs a workload on a new store and records it.
///
/// # Errors
/// What the workload met; nothing may fail on a disk without faults.
pub fn record(seed: u64, steps: u64, cell: Option<Cell>) -> Result<Recording, String> {
    let mut rng = Prng::new(seed);
    let writers = [1, 1, 2, 3][rng.below(4) as usize];
    let schedule = Schedule::new(rng.next_u64() >> 1, [1, 4, 16][rng.below(3) as usize]);
    let options = draw_options(&mut rng, cell);
    let unlogged = rng.chance(1, 4);
    // Flushes of a store with one keyspace leave the log unsynced.
    let alone = seed.is_multiple_of(2);
    let drawn = options.clone();
    let (disk, history) = world::simulate(schedule, move || {
        let disk = Disk::recording(seed);
        let db = open(&disk, seed, &drawn)?;
        let mut spaces = vec![Some(db.default_keyspace().clone())];
        let mut history = History::new(writers, &PERMANENT[..1]);
        if !alone {
            let one = db.create_keyspace(PERMANENT[1], drawn.1.clone());
            spaces.push(Some(one.map_err(|e| format!("create: {e}"))?));
            history.create(PERMANENT[1], 0);
            history.changed(disk.changes());
        }
        let shared = Arc::new(Shared { disk: disk.clone(), history: Mutex::new(history) });
        let make = |number: usize, rng: &mut Prng, db: &Db, spaces: &[Option<Keyspace>]| Writer {
            number,
            rng: rng.fork(),
            shared: Arc::clone(&shared),
            db: db.clone(),
            spaces: spaces.to_vec(),
            keys: 120,
            values: 0,
            unlogged,
            alone,
            cell,
        };
        if writers == 1 {
            let mut writer = make(0, &mut rng, &db, &spaces);
            drop((db, spaces));
            for n in 0..steps {
                writer.step()?;
                if !unlogged && n % (steps / 3).max(1) == steps / 4 {
                    writer = reopen(writer, seed, &drawn, rng.chance(1, 2))?;
                }
            }
            writer.db.close().map_err(|e| format!("close: {e}"))?;
        } else {
            several(writers, steps, |n| make(n, &mut rng, &db, &spaces))?;
            drop(spaces);
            db.close().map_err(|e| format!("close: {e}"))?;
        }
        let history = lock(&shared.history).clone();
        Ok::<_, String>((disk, history))
    })??;
    Ok(Recording { seed, options, disk, history })
}

/// Runs writers as actors of their own.
fn several(
    writers: usize,
    steps: u64,
    mut make: impl FnMut(usize) -> Writer,
) -> Result<(), String> {
    let failed = Arc::new(Mutex::new(None));
    let actors: Vec<world::ActorHandle> = (0..writers)
        .map(|n| {
            let mut writer = make(n);
            let failed = Arc::clone(&failed);
            let name = format!("writer {n}");
            world::spawn(&name, move || {
                for _ in 0..steps / writers as u64 {
                    if let Err(why) = writer.step() {
                        lock(&failed).get_or_insert(format!("writer {n}: {why}"));
                        return;
                    }
                }
            })
        })
        .collect::<Result<_, _>>()?;
    for actor in actors {
        actor.join();
    }
    lock(&failed).take().map_or(Ok(()), Err)
}

/// Closes or abandons the store in the middle of the recording and opens it again.
fn reopen(writer: Writer, seed: u64, options: &Pair, close: bool) -> Result<Writer, String> {
    let Writer { number, rng, shared, db, spaces, keys, values, unlogged, alone, cell } = writer;
    if close {
        db.clone().close().map_err(|e| format!("close: {e}"))?;
    }
    let there: Vec<bool> = spaces.iter().map(Option::is_some).collect();
    drop((spaces, db));
    let db = open(&shared.disk, seed, options)?;
    let names = lock(&shared.history).spaces.clone();
    let mut spaces = Vec::new();
    for (name, there) in names.iter().zip(there) {
        let handle = there.then(|| db.open_keyspace(name)).transpose();
        spaces.push(handle.map_err(|e| format!("open {name}: {e}"))?);
    }
    Ok(Writer { number, rng, shared, db, spaces, keys, values, unlogged, alone, cell })
}

/// Point reads and a backward walk must show what the forward walk showed.
fn cross_check(db: &Db, content: &Content, rng: &mut Prng) -> Result<(), String> {
    for (name, pairs) in content {
        let space = db.open_keyspace(name).map_err(|e| format!("open {name}: {e}"))?;
        let mut back = space.iter();
        for (k, v) in pairs.iter().rev() {
            match back.next_back() {
                Some(Ok((bk, bv))) if bk[..] == k[..] && bv[..] == v[..] => {}
                other => {
                    return Err(format!("backward walk of {name} gives {other:?} at {}", show(k)));
                }
            }
        }
        for _ in 0..4.min(pairs.len()) {
            let (k, v) = &pairs[rng.below(pairs.len() as u64) as usize];
            let got = space.get(k).map_err(|e| format!("get {}: {e}", show(k)))?;
            if got.as_deref() != Some(&v[..]) {
                return Err(format!("get of {} in {name} differs from the scan", show(k)));
            }
        }
    }
    Ok(())
}

/// What an image showed.
struct Examined {
    content: Content,
    commits: u64,
    /// What the recovery did to the disk, if the image recorded it.
    recovery: Option<Walk>,
    /// Whether a copy was opened read-only and repaired.
    repaired: bool,
}

/// How closely an image is looked at.
#[derive(Clone, Copy)]
struct Look {
    /// Decides all that is drawn.
    number: u64,
    /// The image records what happens on it.
    record: bool,
    /// A copy is opened read-only and repaired.
    repair: bool,
}

/// One number in `every`, evenly spread.
fn is_drawn(number: u64, every: u64) -> bool {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33 < (1 << 31) / every.max(1)
}

const MARKER: &[u8] = b"Z marker";

/// Opens an image, checks it, uses it, and opens it again.
fn examine(
    image: &Disk,
    recording: &Arc<Recording>,
    verdict: impl FnOnce(&Content) -> Result<u64, String> + Send + 'static,
    look: Look,
) -> Result<Examined, String> {
    let Look { number, record, repair } = look;
    let schedule = Schedule::new(number, 16);
    let (image, recording) = (image.clone(), Arc::clone(recording));
    world::simulate(schedule, move || {
        let (seed, options) = (recording.seed, &recording.options);
        let mut rng = Prng::new(seed ^ number);
        let shown = if repair { untouched::examine(&image, seed, options)? } else { None };
        let db = open(&image, seed, options)?;
        let recovery = record.then(|| Walk::over(&image));
        let content = read_all(&db)?;
        if let Some(shown) = shown.filter(|shown| *shown != content) {
            let difference = difference(&shown, &content);
            return Err(format!("differs from the read-only opening: {difference}"));
        }
        let commits = verdict(&content)?;
        cross_check(&db, &content, &mut rng)?;
        if number.is_multiple_of(16) {
            let report = db.verify().map_err(|e| format!("verify: {e}"))?;
            if let Some(damage) = report.damages.first() {
                return Err(format!("verify: {damage}"));
            }
        }
        let mut expected = content.clone();
        let again = match number % 3 {
            // Power is lost at once: what was read must have been durable, or come back again.
            0 => image.power_loss(0, number as u32),
            1 => {
                let put = db.default_keyspace().put_with(MARKER, b"here", Durability::Sync);
                put.map_err(|e| format!("put after recovery: {e}"))?;
                let default = expected.entry(PERMANENT[0].into()).or_default();
                default.push((MARKER.to_vec(), b"here".to_vec()));
                default.sort();
                image.power_loss((number / 3) as u8, number as u32)
            }
            _ => {
                db.clone().close().map_err(|e| format!("close: {e}"))?;
                image
            }
        };
        drop(db);
        let db = open(&again, seed, options).map_err(|e| format!("second {e}"))?;
        let second = read_all(&db)?;
        if second != expected {
            return Err(format!("the second open differs: {}", difference(&expected, &second)));
        }
        db.close().map_err(|e| format!("close: {e}"))?;
        Ok(Examined { content, commits, recovery, repaired: repair })
    })?
}

/// The first key that differs, for people.
fn difference(expected: &Content, found: &Content) -> String {
    for name in expected.keys().chain(found.keys()) {
        let (e, f) = (expected.get(name), found.get(name));
        let (Some(e), Some(f)) = (e, f) else { return format!("keyspace {name} is in one only") };
        let e: BTreeMap<_, _> = e.iter().cloned().collect();
        let f: BTreeMap<_, _> = f.iter().cloned().collect();
        for key in e.keys().chain(f.keys()) {
            if e.get(key) != f.get(key) {
                let text = |v: Option<&Vec<u8>>| v.map_or("nothing".into(), |v| show(v));
                let (k, e, f) = (show(key), text(e.get(key)), text(f.get(key)));
                return format!("key {k} in {name}: {f}, expected {e}");
            }
        }
    }
    "nothing".into()
}

/// The site of the change that the crash prevents.
fn site(walk: &mut Walk, x: usize) -> String {
    walk.site(x).map_or("after the last change".into(), |s| s.to_string())
}

/// Checks every image of the boundary `x`.
fn boundary(
    recording: &Arc<Recording>,
    walk: &mut Walk,
    x: usize,
    settings: &Settings,
    report: &mut Report,
) -> Result<(), String> {
    let site = site(walk, x);
    for policy in 0..POLICIES {
        let number = (x as u64) << 8 | policy as u64;
        let deep = is_drawn(number, settings.depth_two_every);
        let repair = is_drawn(number ^ recording.seed, settings.repair_every);
        let image = walk.image(x, policy, number, deep);
        let mine = Arc::clone(recording);
        let verdict = move |content: &Content| {
            mine.history.check(x, content).map(|prefixes| prefixes.iter().sum())
        };
        let look = Look { number, record: deep, repair };
        let checked = examine(&image, recording, verdict, look).and_then(|mut examined| {
            report.images += 1;
            report.repaired += u64::from(examined.repaired);
            report.commits += examined.commits;
            match examined.recovery.take() {
                Some(mut recovery) => {
                    let every = settings.repair_every;
                    again(recording, &examined, (x, every), &mut recovery, report)
                }
                None => Ok(()),
            }
        });
        checked.map_err(|why| {
            format!(
                "seed {}: crash after {x} changes, before {site}, policy {}: {why}\n{}",
                recording.seed,
                world::policy_name(policy),
                walk.describe(x)
            )
        })?;
        *report.sites.entry(site.clone()).or_default() += 1;
        *report.policies.entry(world::policy_name(policy)).or_default() += 1;
    }
    Ok(())
}

/// Crashes a recovery at each of its own device calls, under one policy in four (in turn); it must
/// come to the same content each time.
fn again(
    recording: &Arc<Recording>,
    first: &Examined,
    (x, repair_every): (usize, u64),
    recovery: &mut Walk,
    report: &mut Report,
) -> Result<(), String> {
    for y in 0..=recovery.len() {
        let site = site(recovery, y);
        for policy in (0..POLICIES).filter(|policy| (policy + y + x).is_multiple_of(4)) {
            let number = (y as u64) << 8 | policy as u64;
            let image = recovery.image(y, policy, number, false);
            let expected = first.content.clone();
            let verdict = move |content: &Content| {
                if *content == expected {
                    return Ok(0);
                }
                Err(difference(&expected, content))
            };
            let repair = is_drawn(number ^ x as u64, repair_every);
            let look = Look { number, record: false, repair };
            let examined = examine(&image, recording, verdict.clone(), look).map_err(|why| {
                let same = recovery.image(y, policy, number, true);
                let told = examine(&same, recording, verdict, look).is_err();
                let after = Walk::over(&same);
                let len = after.len();
                format!(
                    "and again after {y} changes of the recovery, before {site}, \
                     policy {}: {why}\n{}\nwhat was done then (fails again: {told}):\n{}",
                    world::policy_name(policy),
                    recovery.describe(y),
                    after.last(len.min(800))
                )
            })?;
            report.images_deep += 1;
            report.repaired += u64::from(examined.repaired);
            *report.sites.entry(format!("recovery: {site}")).or_default() += 1;
        }
    }
    Ok(())
}

/// Runs the campaign.
///
/// # Errors
/// The first violation: seed, call, policy and what is wrong.
pub fn run(settings: &Settings) -> Result<Report, String> {
    let total = Mutex::new(Report::default());
    let mut trace = 0;
    while lock(&total).images < settings.images {
        let seed = settings.seed.wrapping_add(trace);
        let recording = record(seed, settings.steps, settings.cell);
        let recording = Arc::new(recording.map_err(|e| format!("seed {seed}: {e}"))?);
        let walk = Walk::over(&recording.disk);
        let first =
            if trace == 0 { settings.from } else { trace as usize % settings.stride.max(1) };
        let (boundaries, next) = (walk.len() + 1, Mutex::new(first));
        let walks: Vec<Walk> = (0..settings.jobs.max(1)).map(|_| walk.again()).collect();
        let walks = Mutex::new(walks);
        let walked = world::parallel(settings.jobs, |_| -> Result<(), String> {
            let mut report = Report::default();
            let Some(mut walk) = lock(&walks).pop() else { return Ok(()) };
            loop {
                let x = {
                    let mut next = lock(&next);
                    *next += settings.stride.max(1);
                    *next - settings.stride.max(1)
                };
                if x >= boundaries {
                    lock(&total).add(&report);
                    return Ok(());
                }
                let found = boundary(&recording, &mut walk, x, settings, &mut report);
                if found.is_err() {
                    lock(&total).add(&report);
                    return found;
                }
            }
        });
        let mut total = lock(&total);
        // Those of the threads that have not ended are missing.
        let looked_at = total.images + total.images_deep;
        walked.map_err(|why| format!("after {looked_at} images: {why}"))?;
        total.traces += 1;
        total.calls += boundaries as u64 - 1;
        trace += 1;
        if settings.progress {
            eprintln!("{} traces, {} + {} images", trace, total.images, total.images_deep);
        }
    }
    Ok(total.into_inner().unwrap_or_else(PoisonError::into_inner))
}
