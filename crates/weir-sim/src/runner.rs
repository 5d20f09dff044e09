//! Executes operations on a store and on the oracle, and compares every answer.
//!
//! Runs inside a simulation, on one actor; the engine's background actors run when the scheduler
//! says so. A violation is a sentence; the campaign adds seed and operations to it.
//!
//! What a kill or a power loss may take away (PROMISES.md, P1 to P3): nothing that was
//! acknowledged at the level that was asked for, and never anything but a suffix of the commit
//! order. `Durability::None` is outside of that (H52); see `model::explains`.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir::sim::Faults;
use weir::{Db, Durability, ErrorKind, Keyspace, Options, Snapshot, WriteBatch};

use crate::model::{Bytes, Index, KeyspaceModel, Prefixes, show};
use crate::op::{ITERATORS, Item, Leave, Misuse, Op, SNAPSHOTS, Val, key_bytes};
use crate::options;
use crate::world::Disk;

mod beside;
mod counters;
mod form;
mod full;
mod keyspaces;
mod reads;

pub use beside::VALUES_BESIDE;
pub use counters::{Counters, Switches};

/// Never held across a call into the engine.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives a keyspace these options, if they are not what is stored with it.
fn set_options(keyspace: &Keyspace, options: Options) -> Checked {
    if keyspace.options() == options {
        return Ok(());
    }
    let name = keyspace.name();
    keyspace.set_options(options.clone()).map_err(|e| format!("set_options of {name}: {e}"))?;
    if keyspace.options() == options {
        return Ok(());
    }
    Err(format!("keyspace {name} has other options than were set: {:?}", keyspace.options()))
}

/// What went wrong, for people.
pub type Violation = String;
type Checked<T = ()> = Result<T, Violation>;
type Pair = (Vec<u8>, Vec<u8>);

/// What one record of a batch does: model, key, value or delete.
type Effect = (usize, Vec<u8>, Option<Bytes>);

/// Names of the keyspace slots. The first is the default one.
pub const NAMES: [&str; 4] = ["default", "one", "the second", "drei \u{1f30a}"];

/// Properties that may be empty: there is no error, no snapshot.
const MAY_BE_EMPTY: [&str; 2] = ["weir.background-error", "weir.oldest-snapshot"];

const PROPERTIES: [&str; 12] = [
    "weir.stats",
    "weir.levels",
    "weir.num-tables",
    "weir.num-busy-tables",
    "weir.num-keyspaces",
    "weir.num-snapshots",
    "weir.oldest-snapshot",
    "weir.last-sequence",
    "weir.memory-usage",
    "weir.block-cache-usage",
    "weir.background-error",
    "weir.prometheus",
];

/// An open keyspace: the handle and its model.
#[derive(Clone)]
struct Space {
    handle: Keyspace,
    model: usize,
}

struct LiveSnapshot {
    handle: Snapshot,
    at: Index,
    /// Merges done when it was taken.
    merges: u64,
    /// Models that existed then.
    spaces: usize,
}

struct LiveIter {
    iter: weir::Iter,
    /// Another one that reads no buffer lists, where there may be some.
    bare: Option<weir::Iter>,
    rest: VecDeque<(Vec<u8>, Bytes)>,
    /// The model that it walks through: if that is dropped, it may end with `Closed`.
    model: usize,
    done: bool,
}

/// A store under test with its oracle.
pub struct Runner {
    disk: Disk,
    db: Option<Db>,
    /// Of the device that the store is open on.
    faults: Faults,
    seed: u64,
    db_options: weir::DbOptions,
    models: Vec<KeyspaceModel>,
    spaces: [Option<Space>; 4],
    snaps: Vec<Option<LiveSnapshot>>,
    iters: Vec<Option<LiveIter>>,
    last: Index,
    /// Every commit up to here is promised to survive a power loss.
    synced: Index,
    /// Every commit up to here is promised to survive a process kill.
    written: Index,
    merges_before: (u64, u64),
    /// The same of lookups that buffer lists answered, and of trimmed tables.
    lists_before: (u64, u64),
    /// The same of stretches of merges.
    stretches_before: u64,
    /// What was exercised so far.
    pub counters: Counters,
}

impl Runner {
    /// A new store on an empty disk.
    ///
    /// # Errors
    /// The sentence that says why it could not be opened.
    pub fn new(seed: u64) -> Checked<Self> {
        Self::on(Disk::drawn(seed), seed)
    }

    /// A new store on this empty disk.
    ///
    /// # Errors
    /// The sentence that says why it could not be opened.
    pub fn on(disk: Disk, seed: u64) -> Checked<Self> {
        let mut runner = Self {
            disk,
            db: None,
            faults: Faults::default(),
            seed,
            db_options: options::store(seed as u32),
            models: vec![KeyspaceModel::default()],
            spaces: [const { None }; 4],
            snaps: (0..SNAPSHOTS).map(|_| None).collect(),
            iters: (0..ITERATORS).map(|_| None).collect(),
            last: 0,
            synced: 0,
            written: 0,
            merges_before: (0, 0),
            lists_before: (0, 0),
            stretches_before: 0,
            counters: Counters::default(),
        };
        runner.open(options::keyspace(seed as u32))?;
        runner.spaces[0] =
            Some(Space { handle: runner.db()?.default_keyspace().clone(), model: 0 });
        Ok(runner)
    }

    /// Opens the store, or makes it, and gives the default keyspace these options.
    fn open(&mut self, default: weir::Options) -> Checked {
        let (builder, faults) = self.disk.faulty_builder(self.seed);
        let builder = builder.options(self.db_options.clone()).default_options(default.clone());
        let db = builder.open().map_err(|e| format!("open: {e}"))?;
        self.faults = faults;
        set_options(db.default_keyspace(), default)?;
        self.db = Some(db);
        Ok(())
    }

    fn db(&self) -> Checked<&Db> {
        self.db.as_ref().ok_or_else(|| "the store is closed".to_owned())
    }

    /// Executes one operation and checks what it returns.
    ///
    /// # Errors
    /// The violation, if the store did not do as the oracle says.
    pub fn step(&mut self, op: &Op) -> Checked {
        let before = self.counters.full;
        self.once(op)?;
        if self.counters.full == before { Ok(()) } else { self.make_room(op) }
    }

    fn once(&mut self, op: &Op) -> Checked {
        self.counters.ops += 1;
        match op {
            Op::Put { ks, key, val, dur } => self.put(*ks, *key, *val, *dur),
            Op::Delete { ks, key, dur } => self.delete(*ks, *key, *dur),
            Op::Batch { items, dur } => self.batch(items, *dur),
            Op::Commits { batches, dur } => self.commits(batches, *dur),
            Op::Sync => {
                self.db()?.sync().map_err(|e| format!("sync: {e}"))?;
                self.acknowledge(Durability::Sync);
                Ok(())
            }
            Op::Get { .. }
            | Op::MultiGet { .. }
            | Op::Scan { .. }
            | Op::Prefix { .. }
            | Op::Cursor { .. } => self.read(op),
            Op::IterOpen { slot, ks, lo, hi, snap } => self.iter_open(*slot, *ks, *lo, *hi, *snap),
            Op::IterStep { slot, steps, back } => self.iter_step(*slot, *steps, *back),
            Op::IterDrop { slot } => {
                self.iters[usize::from(*slot)] = None;
                Ok(())
            }
            Op::SnapTake { slot } => self.snap_take(*slot),
            Op::SnapDrop { slot } => {
                self.snaps[usize::from(*slot)] = None;
                Ok(())
            }
            Op::Everything => self.everything(),
            Op::Reopen { leave, options } => self.reopen(*leave, *options),
            Op::Misuse { what } => self.misuse(*what),
            Op::Midway { key, val, count } => self.midway(*key, *val, *count),
            Op::Beside { key, val, options } => self.beside(*key, *val, *options),
            Op::Settle => self.settle(),
            _ => self.manage(op),
        }
    }

    /// Maintenance, keyspaces and inspection.
    fn manage(&mut self, op: &Op) -> Checked {
        match op {
            Op::Flush { ks } => {
                let Some(space) = &self.spaces[usize::from(*ks)] else { return Ok(()) };
                let all = *ks == 0 && self.last.is_multiple_of(2);
                let flushed = if all { self.db()?.flush() } else { space.handle.flush() };
                self.unless_full(flushed, "flush")?;
                self.measure()?;
                self.first_hits()
            }
            Op::Compact { ks, lo, hi } => {
                if let Some(space) = &self.spaces[usize::from(*ks)] {
                    let range = bounds(*lo, *hi);
                    let compacted = space.handle.compact_range(range);
                    self.unless_full(compacted, "compact")?;
                    self.measure()?;
                }
                self.first_hits()
            }
            Op::Sentinel { ks, lo, hi } => {
                if let Some(space) = &self.spaces[usize::from(*ks)] {
                    let range = bounds(*lo, *hi);
                    let built = space.handle.build_sentinel(range);
                    let built = self.unless_full(built, "sentinel")?.unwrap_or(false);
                    self.counters.sentinels += u64::from(built);
                    self.measure()?;
                }
                self.first_hits()
            }
            Op::Idle => {
                let idle = self.db()?.wait_idle();
                self.unless_full(idle, "wait_idle")?;
                self.measure()?;
                self.first_hits()
            }
            Op::Wait { millis } => {
                crate::world::delay_millis(u64::from(*millis));
                self.first_hits()
            }
            Op::Keyspace { ks, options } => self.keyspace(*ks, *options),
            Op::Create { ks, options } => self.create(*ks, *options),
            Op::OpenStored { ks } => self.open_stored(*ks),
            Op::DropKeyspace { ks } => self.drop_keyspace(*ks),
            Op::List => self.list(),
            Op::Size { ks, lo, hi } => self.size(*ks, *lo, *hi),
            Op::Inspect => self.inspect(),
            Op::Verify => {
                let report = self.db()?.verify().map_err(|e| format!("verify: {e}"))?;
                if report.damages.is_empty() {
                    return Ok(());
                }
                Err(format!("verify found damage: {:?}", report.damages))
            }
            _ => Ok(()),
        }
    }

    /// Largest value that the options allow (ARCHITECTURE §9).
    fn value_max(&self) -> usize {
        let budget = self.db_options.memory_budget / 8;
        budget.min(self.db_options.log_area_bytes / 4).min(1 << 30) as usize
    }

    /// Checks a refusal: for size it is right if some value exceeds the limit, and then required;
    /// for space where devices get full.
    fn refused(&mut self, result: weir::Result<()>, largest: usize, what: &str) -> Checked<bool> {
        let too_large = largest > self.value_max();
        if !too_large && self.no_space(&result) {
            return Ok(true);
        }
        match result {
            Ok(()) if too_large => Err(format!(
                "{what}: a value of {largest} bytes was taken, the limit is {}",
                self.value_max()
            )),
            Ok(()) => Ok(false),
            Err(e) if too_large && e.kind() == ErrorKind::InvalidArgument => {
                self.counters.refused += 1;
                Ok(true)
            }
            Err(e) => Err(format!("{what}: {e}")),
        }
    }

    fn put(&mut self, ks: u8, key: u32, val: Val, dur: Durability) -> Checked {
        let Some(space) = self.spaces[usize::from(ks)].clone() else { return Ok(()) };
        let (key, value) = (key_bytes(key), val.bytes());
        let result = match dur {
            Durability::Buffered if ks == 0 && val.id.is_multiple_of(2) => {
                self.db()?.put(&key, &value)
            }
            Durability::Buffered => space.handle.put(&key, &value),
            _ => space.handle.put_with(&key, &value, dur),
        };
        if !self.refused(result, value.len(), "put")? {
            self.last += 1;
            let logged = dur != Durability::None;
            self.models[space.model].write(self.last, &key, Some(value.into()), logged);
            self.acknowledge(dur);
        }
        Ok(())
    }

    fn delete(&mut self, ks: u8, key: u32, dur: Durability) -> Checked {
        let Some(space) = self.spaces[usize::from(ks)].clone() else { return Ok(()) };
        let key = key_bytes(key);
        let result = match dur {
            Durability::Buffered => space.handle.delete(&key),
            _ => space.handle.delete_with(&key, dur),
        };
        if !self.refused(result, 0, "delete")? {
            self.last += 1;
            self.models[space.model].write(self.last, &key, None, dur != Durability::None);
            self.acknowledge(dur);
        }
        Ok(())
    }

    /// The batch in the store's form, its largest value and its effect on the models.
    fn encode(&self, items: &[Item]) -> Checked<(WriteBatch, usize, Vec<Effect>)> {
        let (mut batch, mut largest, mut effect) = (WriteBatch::new(), 0, Vec::new());
        for (ks, key, val) in items {
            let Some(space) = &self.spaces[usize::from(*ks)] else { continue };
            let key = key_bytes(*key);
            match val {
                Some(v) => batch.put(&space.handle, &key, v.bytes()),
                None => batch.delete(&space.handle, &key),
            };
            let value = val.map(|v| Bytes::from(v.bytes()));
            largest = largest.max(value.as_ref().map_or(0, |v| v.len()));
            effect.push((space.model, key, value));
        }
        let too_large = largest > self.value_max();
        let same = |(record, (_, key, value)): (weir::BatchRecord<'_>, &Effect)| match record {
            weir::BatchRecord::Put { key: k, value: v, .. } => {
                k == key && Some(v) == value.as_deref()
            }
            weir::BatchRecord::Delete { key: k, .. } => k == key && value.is_none(),
            _ => false,
        };
        if !too_large && (batch.len() != effect.len() || !batch.iter().zip(&effect).all(same)) {
            return Err("a batch does not hold what was put into it".into());
        }
        Ok((batch, largest, effect))
    }

    fn apply(&mut self, effect: Vec<Effect>, dur: Durability) {
        if effect.is_empty() {
            return;
        }
        self.last += 1;
        for (model, key, value) in effect {
            self.models[model].write(self.last, &key, value, dur != Durability::None);
        }
        self.acknowledge(dur);
    }

    fn batch(&mut self, items: &[Item], dur: Durability) -> Checked {
        let (mut batch, largest, effect) = self.encode(items)?;
        // One in two goes through its bytes.
        if items.len().is_multiple_of(2) && largest <= self.value_max() {
            let mut again = WriteBatch::from_bytes(self.db()?, batch.as_bytes())
                .map_err(|e| format!("a batch of a batch's bytes: {e}"))?;
            again.append(&WriteBatch::new());
            if !again.iter().eq(&batch) {
                return Err("a batch of a batch's bytes is another one".into());
            }
            batch = again;
        }
        let before = batch.as_bytes().to_vec();
        let result = self.db()?.write(&mut batch, dur);
        if batch.as_bytes() != before {
            return Err("a batch that was written has changed".into());
        }
        if !self.refused(result, largest, "write")? {
            self.apply(effect, dur);
        }
        Ok(())
    }

    /// Every second commit is waited for, the others call back.
    fn commits(&mut self, batches: &[Vec<Item>], dur: Durability) -> Checked {
        type Called = Arc<Mutex<Option<weir::Result<()>>>>;
        enum Waiting {
            Handle(weir::Commit),
            Callback(Called),
        }
        let mut all = Vec::new();
        for (n, items) in batches.iter().enumerate() {
            let (batch, largest, effect) = self.encode(items)?;
            let commit = self.db()?.commit(batch, dur);
            let waiting = if n % 2 == 0 {
                Waiting::Handle(commit)
            } else {
                let called = Called::default();
                let slot = Arc::clone(&called);
                commit.on_done(move |result| *lock(&slot) = Some(result));
                Waiting::Callback(called)
            };
            all.push((waiting, largest, effect));
        }
        for (waiting, largest, effect) in all {
            let result = match waiting {
                Waiting::Handle(commit) => commit.wait(),
                Waiting::Callback(called) => {
                    let mut tries = 0;
                    loop {
                        if let Some(result) = lock(&called).take() {
                            break result;
                        }
                        tries += 1;
                        if tries > 10_000 {
                            return Err("a commit never calls back".into());
                        }
                        crate::world::delay_millis(1);
                    }
                }
            };
            if !self.refused(result, largest, "commit")? {
                self.apply(effect, dur);
            }
        }
        Ok(())
    }

    /// The last commit, and with it every earlier one, was acknowledged at this level.
    fn acknowledge(&mut self, dur: Durability) {
        if dur >= Durability::Buffered {
            self.written = self.last;
        }
        if dur == Durability::Sync {
            self.synced = self.last;
        }
    }

    fn snap_take(&mut self, slot: u8) -> Checked {
        let handle = self.db()?.snapshot();
        let older = self.snaps.iter().flatten().find(|s| s.handle.sequence() > handle.sequence());
        if let Some(older) = older {
            let (a, b) = (older.handle.sequence(), handle.sequence());
            return Err(format!("a snapshot has sequence {b} after one with {a}"));
        }
        self.snaps[usize::from(slot)] = Some(LiveSnapshot {
            handle,
            at: self.last,
            merges: self.merges()?,
            spaces: self.models.len(),
        });
        Ok(())
    }

    fn size(&mut self, ks: u8, lo: Bound<u32>, hi: Bound<u32>) -> Checked {
        let Some(space) = &self.spaces[usize::from(ks)] else { return Ok(()) };
        let whole = || {
            let all = (Bound::<Vec<u8>>::Unbounded, Bound::<Vec<u8>>::Unbounded);
            space.handle.approximate_size(all).map_err(|e| format!("approximate_size: {e}"))
        };
        let all = (Bound::<Vec<u8>>::Unbounded, Bound::<Vec<u8>>::Unbounded);
        let count = space.handle.approximate_count(all);
        let count = count.map_err(|e| format!("approximate_count: {e}"))?;
        let entries = self.models[space.model]
            .range(Bound::Unbounded, Bound::Unbounded, self.last)
            .count() as u64;
        if count < entries {
            return Err(format!("{entries} entries are estimated from above as {count}"));
        }
        let before = whole()?;
        let part = space.handle.approximate_size(bounds(lo, hi));
        let part = part.map_err(|e| format!("approximate_size: {e}"))?;
        let all = whole()?;
        // A flush or a merge in between has changed what there is to compare.
        if part <= all || before != all {
            return Ok(());
        }
        Err(format!("a range takes {part} bytes, the whole keyspace {all}"))
    }

    fn misuse(&mut self, what: Misuse) -> Checked {
        let db = self.db()?.clone();
        let expect = |result: weir::Result<()>, kind: ErrorKind| match result {
            Err(e) if e.kind() == kind => Ok(()),
            Err(e) => Err(format!("{what:?} gives the wrong error: {e}")),
            Ok(()) => Err(format!("{what:?} was accepted")),
        };
        match what {
            Misuse::LongKey => expect(db.put(vec![b'k'; 65_536], b"v"), ErrorKind::InvalidArgument),
            Misuse::UnloggedBatch => {
                let open: Vec<_> = self.spaces.iter().flatten().collect();
                let [first, second, ..] = open[..] else { return Ok(()) };
                let mut batch = WriteBatch::new();
                batch.put(&first.handle, b"a", b"1");
                batch.put(&second.handle, b"a", b"1");
                expect(db.write(batch, Durability::None), ErrorKind::InvalidArgument)
            }
            Misuse::CreateAgain => {
                let again = db.create_keyspace(NAMES[0], weir::Options::default());
                expect(again.map(drop), ErrorKind::Conflict)
            }
            Misuse::Unknown => {
                expect(db.open_keyspace("nobody").map(drop), ErrorKind::NotFound)?;
                expect(db.drop_keyspace("nobody"), ErrorKind::NotFound)
            }
            Misuse::SecondOpen => {
                expect(self.disk.builder(self.seed).open().map(drop), ErrorKind::Locked)
            }
            Misuse::BadOption => {
                let bad = weir::Options::default().block_bytes(1);
                let set = db.default_keyspace().set_options(bad.clone());
                expect(set, ErrorKind::InvalidArgument)?;
                expect(db.keyspace_with("bad", bad).map(drop), ErrorKind::InvalidArgument)
            }
            Misuse::InvertedRange => {
                let Some(space) = &self.spaces[0] else { return Ok(()) };
                let range = (Bound::Included(b"b".to_vec()), Bound::Excluded(b"a".to_vec()));
                match space.handle.range(range).next() {
                    None => Ok(()),
                    Some(_) => Err("a range whose end is before its start holds something".into()),
                }
            }
        }
    }

    /// Merges done since the first open.
    fn merges(&self) -> Checked<u64> {
        Ok(self.merges_before.1 + crate::world::work_done(self.db()?).1)
    }

    /// What the store says of itself.
    fn inspect(&mut self) -> Checked {
        let db = self.db()?;
        for name in PROPERTIES {
            let text = db.property(name).ok_or_else(|| format!("there is no property {name}"))?;
            if text.is_empty() && !MAY_BE_EMPTY.contains(&name) {
                return Err(format!("the property {name} is empty"));
            }
        }
        if db.property("weir.nothing").is_some() {
            return Err("a property that does not exist has a value".into());
        }
        let (described, metrics) = (db.describe(), db.metrics());
        let open = self.spaces.iter().flatten().count();
        if described.keyspaces.len() != open || metrics.keyspaces.len() != open {
            return Err(format!("{open} keyspaces are open; the store describes others"));
        }
        let live = self.snaps.iter().flatten().count() as u64;
        if metrics.snapshots < u64::from(live > 0) {
            return Err(format!("{live} snapshots live, the metrics say {}", metrics.snapshots));
        }
        if metrics.prometheus().lines().count() < 30 {
            return Err("the metrics in text form are too few".into());
        }
        self.measure()
    }

    /// Updates the counters from the store's own metrics.
    fn measure(&mut self) -> Checked {
        let db = self.db()?;
        let (flushes, merges) = crate::world::work_done(db);
        let levels = crate::world::levels_in_use(db);
        self.counters.flushes = self.merges_before.0 + flushes;
        self.counters.merges = self.merges_before.1 + merges;
        self.counters.levels = self.counters.levels.max(levels);
        let metrics = self.db()?.metrics();
        let (of_lists, trimmed) = (metrics.gets_of_lists, metrics.tables_trimmed);
        self.counters.of_lists = self.lists_before.0 + of_lists;
        self.counters.trimmed = self.lists_before.1 + trimmed;
        self.counters.stretches = self.stretches_before + metrics.stretches;
        Ok(())
    }

    /// Leaves the store in one of four ways, opens it with new options and compares.
    fn reopen(&mut self, leave: Leave, number: u32) -> Checked {
        self.measure()?;
        let form = self.form()?;
        self.merges_before = (self.counters.flushes, self.counters.merges);
        self.lists_before = (self.counters.of_lists, self.counters.trimmed);
        self.stretches_before = self.counters.stretches;
        let (kind, lower) = match leave {
            // A store that ends in good order keeps everything, unlogged writes too.
            Leave::Close => (0, self.last),
            Leave::Drop => (1, self.last),
            Leave::Kill => (2, self.written),
            Leave::Power(..) => (3, self.synced),
        };
        self.counters.reopens[kind] += 1;
        match leave {
            Leave::Close => {
                self.db()?.clone().close().map_err(|e| format!("close: {e}"))?;
                self.check_closed()?;
            }
            Leave::Drop => {}
            Leave::Kill => self.disk = self.disk.kill(),
            Leave::Power(policy, seed) => self.disk = self.disk.power_loss(policy, seed),
        }
        self.iters.iter_mut().for_each(|i| *i = None);
        self.snaps.iter_mut().for_each(|s| *s = None);
        let live: Vec<Option<usize>> =
            self.spaces.iter_mut().map(|s| s.take().map(|s| s.model)).collect();
        self.db = None;
        if number.is_multiple_of(4) {
            self.read_only(lower, &live).map_err(|e| format!("read only after {leave:?}: {e}"))?;
        }
        self.db_options = options::store(number);
        self.open(options::reopened(number))?;
        self.count_switch(&form)?;
        let db = self.db()?.clone();
        for (slot, model) in live.iter().enumerate() {
            let Some(model) = *model else { continue };
            let handle = db.open_keyspace(NAMES[slot]);
            let handle =
                handle.map_err(|e| format!("keyspace {} after {leave:?}: {e}", NAMES[slot]))?;
            self.spaces[slot] = Some(Space { handle, model });
        }
        self.list()?;
        self.recovered(lower).map_err(|e| format!("after {leave:?}: {e}"))?;
        self.everything().map_err(|e| format!("after {leave:?}: {e}"))
    }

    /// Opens for reading only: the content must be right, writes refused, and the disk unchanged.
    fn read_only(&mut self, lower: Index, live: &[Option<usize>]) -> Checked {
        let before = self.disk.fingerprint();
        let again = self.disk.builder(self.seed).error_if_exists(true).open().map(drop);
        if again.err().is_none_or(|e| e.kind() != ErrorKind::Conflict) {
            return Err("error_if_exists did not stop the opening".into());
        }
        let options = self.db_options.clone().read_only(true);
        let db = self.disk.builder(self.seed).options(options).open();
        let db = db.map_err(|e| format!("open: {e}"))?;
        let mut allowed = Prefixes::between(lower, self.last);
        for (slot, model) in live.iter().enumerate() {
            let Some(model) = *model else { continue };
            let space = db.open_keyspace(NAMES[slot]).map_err(|e| e.to_string())?;
            let pairs: weir::Result<Vec<Pair>> =
                space.iter().map(|kv| kv.map(|(k, v)| (k.to_vec(), v.to_vec()))).collect();
            let pairs = pairs.map_err(|e| format!("scan: {e}"))?;
            self.models[model].restrict(&pairs, &mut allowed)?;
            let put = space.put(b"k", b"v").err().map(|e| e.kind());
            let set = space.set_options(space.options()).err().map(|e| e.kind());
            if [put, set] != [Some(ErrorKind::ReadOnly); 2] {
                return Err(format!("a put gives {put:?}, a change of options {set:?}"));
            }
        }
        db.close().map_err(|e| format!("close: {e}"))?;
        if self.disk.fingerprint() == before {
            return Ok(());
        }
        Err("the disk was changed".into())
    }

    /// The store must hold a prefix of the commit order, at least `lower`; the oracle goes back to
    /// it.
    fn recovered(&mut self, lower: Index) -> Checked {
        let mut allowed = Prefixes::between(lower, self.last);
        let mut contents = Vec::new();
        for space in self.spaces.iter().flatten() {
            let pairs: weir::Result<Vec<Pair>> =
                space.handle.iter().map(|kv| kv.map(|(k, v)| (k.to_vec(), v.to_vec()))).collect();
            let pairs = pairs.map_err(|e| format!("scan: {e}"))?;
            self.models[space.model].restrict(&pairs, &mut allowed)?;
            contents.push((space.model, pairs));
        }
        let at = allowed.longest().ok_or("no prefix explains what was recovered")?;
        for (model, pairs) in contents {
            self.models[model].adopt(&pairs, at);
        }
        self.last = at;
        self.synced = self.synced.min(at);
        // All of it has just survived.
        self.written = at;
        Ok(())
    }

    /// Handles that outlive `close` must fail with `Closed`, and must not show anything wrong.
    fn check_closed(&mut self) -> Checked {
        let closed = |result: weir::Result<()>, what: &str| match result {
            Err(e) if e.kind() == ErrorKind::Closed => Ok(()),
            Err(e) => Err(format!("{what} after close: {e}")),
            Ok(()) => Err(format!("{what} after close succeeded")),
        };
        closed(self.db()?.put(b"x", b"y"), "put")?;
        closed(self.db()?.get(b"x").map(drop), "get")?;
        closed(self.db()?.sync(), "sync")?;
        for live in self.iters.iter_mut().flatten().filter(|live| !live.done) {
            match live.iter.next() {
                Some(Err(e)) if e.kind() == ErrorKind::Closed => {}
                Some(Err(e)) => return Err(format!("an iterator after close: {e}")),
                Some(Ok((k, _))) if live.rest.front().is_some_and(|x| x.0[..] == k[..]) => {}
                Some(Ok((k, _))) => {
                    return Err(format!("an iterator after close gives {}", show(&k)));
                }
                None if live.rest.is_empty() => {}
                None => return Err("an iterator ends early after close, without an error".into()),
            }
        }
        Ok(())
    }

    /// Lets the oracle forget versions below all live snapshots.
    pub fn prune(&mut self) {
        let snaps = self.snaps.iter().flatten().map(|s| s.at).min().unwrap_or(self.last);
        let floor = snaps.min(self.synced).min(self.written);
        self.models.iter_mut().for_each(|m| m.prune(floor));
    }

    /// Closes the store in good order.
    ///
    /// # Errors
    /// The violation, if closing fails.
    pub fn finish(mut self) -> Checked<(Counters, Disk)> {
        self.measure()?;
        self.iters.clear();
        self.snaps.clear();
        self.spaces = [const { None }; 4];
        if let Some(db) = self.db.take() {
            db.close().map_err(|e| format!("close: {e}"))?;
        }
        Ok((self.counters.clone(), self.disk.clone()))
    }
}

/// The bounds in bytes.
fn bounds(lo: Bound<u32>, hi: Bound<u32>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    (lo.map(key_bytes), hi.map(key_bytes))
}
