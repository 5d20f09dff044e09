//! Whole trees in memory: flushes and merges by the policy's picks, against an oracle of all
//! versions.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::base::cursor::Cursor;
use crate::base::error::ErrorKind;
use crate::base::ids::{KeyspaceId, Level, Lineage, PerLevel, SegmentNumber, TableUid, level};
use crate::base::key::{Kind, SEQ_MAX, Seq};
use crate::base::place::Place;
use crate::base::prng::Prng;
use crate::cache::Purpose;
use crate::compaction::policy::leveled::Leveled;
use crate::compaction::policy::{Policy, RangePick, running_job};
use crate::compaction::task::{MergeTask, Reason, RunSlice, Task};
use crate::device::real::RealDir;
use crate::memtable::Memtable;
use crate::merge::{MergingCursor, Visible};
use crate::options::{LeveledOptions, Options, WarmUp};
use crate::storage::OpenOptions;
use crate::storage::files::Files;
use crate::storage::{
    LiveTable, LogKind, LogRegion, Object, TableSource, TableWriter, WrittenTable,
};
use crate::table::testing::MemoryTables;
use crate::table::{CursorOptions, ReadAhead, TableMemory, TableOptions};
use crate::version::foreseen::Foreseen;
use crate::version::run::{LevelRuns, Run};
use crate::version::set::{Context, VersionSet};
use crate::version::shape::{JobFootprint, Shape};

mod odd_chunk;
const HASH_SEED: u64 = 77;
const KEYSPACE: KeyspaceId = KeyspaceId::DEFAULT;

/// Tables in memory, logs and root in a directory; writing calls fail on demand.
struct TestStorage {
    tables: Arc<MemoryTables>,
    files: Files,
    /// The table-writing call with this number fails; 0: none does.
    failing_write: Arc<AtomicU64>,
    writes: Arc<AtomicU64>,
    _dir: tempfile::TempDir,
}

impl TestStorage {
    fn new() -> Arc<Self> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let device = RealDir::open(dir.path(), true).expect("the directory opens");
        let options = OpenOptions { create: true, read_only: false };
        let files = Files::open(device, options).expect("an empty store");
        Arc::new(Self {
            tables: Arc::default(),
            files,
            failing_write: Arc::default(),
            writes: Arc::default(),
            _dir: dir,
        })
    }

    fn write_call(writes: &AtomicU64, failing: &AtomicU64) -> Result<()> {
        let number = writes.fetch_add(1, Ordering::Relaxed) + 1;
        if number == failing.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::NoSpace, format!("write {number} was told to fail")));
        }
        Ok(())
    }
}

struct FailingWriter {
    inner: Box<dyn TableWriter>,
    writes: Arc<AtomicU64>,
    failing: Arc<AtomicU64>,
}

impl TableWriter for FailingWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        TestStorage::write_call(&self.writes, &self.failing)?;
        self.inner.append(bytes)
    }
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn end(self: Box<Self>) -> Result<Box<dyn WrittenTable>> {
        let Self { inner, writes, failing } = *self;
        Ok(Box::new(FailingSync { inner: inner.end()?, writes, failing }))
    }
    fn abandon(self: Box<Self>) {
        self.inner.abandon();
    }
}

struct FailingSync {
    inner: Box<dyn WrittenTable>,
    writes: Arc<AtomicU64>,
    failing: Arc<AtomicU64>,
}

impl WrittenTable for FailingSync {
    fn place(&self) -> Place {
        self.inner.place()
    }
    fn sync(self: Box<Self>) -> Result<()> {
        // The worst case: the table is complete, but the sync fails.
        let result = TestStorage::write_call(&self.writes, &self.failing);
        self.inner.sync()?;
        result
    }
}

impl Storage for TestStorage {
    fn adopt(&self, _: &mut dyn Iterator<Item = LiveTable<'_>>) -> Result<()> {
        Ok(())
    }
    fn create_table(&self, uid: TableUid, bytes_hint: u64) -> Result<Box<dyn TableWriter>> {
        Self::write_call(&self.writes, &self.failing_write)?;
        let inner = self.tables.create_table(uid, bytes_hint)?;
        let (writes, failing) = (Arc::clone(&self.writes), Arc::clone(&self.failing_write));
        Ok(Box::new(FailingWriter { inner, writes, failing }))
    }
    fn open_table(&self, uid: TableUid) -> Result<Arc<dyn TableSource>> {
        self.tables.open_table(uid)
    }
    fn remove_table(&self, uid: TableUid) -> Result<()> {
        self.tables.remove_table(uid)
    }
    fn list_tables(&self) -> Result<Vec<TableUid>> {
        self.tables.list_tables()
    }
    fn create_log(
        &self,
        kind: LogKind,
        number: SegmentNumber,
        bytes: u64,
    ) -> Result<Arc<dyn LogRegion>> {
        self.files.create_log(kind, number, bytes)
    }
    fn recycle_log(
        &self,
        kind: LogKind,
        old: SegmentNumber,
        new: SegmentNumber,
    ) -> Result<Arc<dyn LogRegion>> {
        self.files.recycle_log(kind, old, new)
    }
    fn open_log(&self, kind: LogKind, number: SegmentNumber) -> Result<Arc<dyn LogRegion>> {
        self.files.open_log(kind, number)
    }
    fn remove_log(&self, kind: LogKind, number: SegmentNumber) -> Result<()> {
        self.files.remove_log(kind, number)
    }
    fn list_logs(&self, kind: LogKind) -> Result<Vec<SegmentNumber>> {
        self.files.list_logs(kind)
    }
    fn read_root_record(&self) -> Result<Option<Vec<u8>>> {
        self.files.read_root_record()
    }
    fn write_root_record(&self, root: &[u8], log: SegmentNumber) -> Result<()> {
        self.files.write_root_record(root, log)
    }
    fn remove_root_record(&self) -> Result<()> {
        self.files.remove_root_record()
    }
    fn sync_names(&self) -> Result<()> {
        self.files.sync_names()
    }
    fn path(&self) -> String {
        "test".to_owned()
    }
    fn name_of(&self, object: Object) -> String {
        self.files.name_of(object)
    }
}

/// All versions of all keys: `None` is a delete.
type Oracle = BTreeMap<Vec<u8>, BTreeMap<Reverse<Seq>, Option<Vec<u8>>>>;
type Content = Vec<(Vec<u8>, Vec<u8>)>;

impl Finished {
    /// Removes the outputs of an edit that is not applied.
    fn remove_outputs(self, storage: &TestStorage) {
        for table in &self.outputs {
            storage.remove_table(table.uid).expect("the table is there");
        }
    }
}

struct RunningJob {
    task: Task,
    shape: Option<JobFootprint>,
    job: CompactionJob,
}

/// One keyspace with its memtable, its jobs and its oracle.
struct Store {
    storage: Arc<TestStorage>,
    set: Arc<VersionSet>,
    context: JobContext,
    options: Arc<Options>,
    memtable: Arc<Memtable>,
    seq: Seq,
    snapshots: Vec<Seq>,
    oracle: Oracle,
    jobs: Vec<RunningJob>,
    flushes: Vec<JobStats>,
    merges: Vec<JobStats>,
}

impl Store {
    fn new(options: Options) -> Self {
        let storage = TestStorage::new();
        let set_context = Context {
            tables: None,
            storage: storage.clone(),
            cache: None,
            accountant: None,
            version_log_bytes: 1 << 20,
            seed: 1,
        };
        let options = Arc::new(options);
        let mut initial = VersionEdit::default();
        let keyspace = initial.keyspace(KEYSPACE);
        keyspace.create = Some("test".to_owned());
        keyspace.options = Some(Arc::clone(&options));
        let set = VersionSet::create(set_context, Lineage::new(1), HASH_SEED, &initial)
            .expect("a version set");
        let set = Arc::new(set);
        let uids = Arc::clone(&set);
        let context = JobContext {
            storage: storage.clone(),
            cache: None,
            contents_bytes: None,
            accountant: None,
            hash_seed: HASH_SEED,
            verify_outputs: true,
            merge_read_bytes: None,
            hand_over_flushes: true,
            new_uid: Arc::new(move || uids.new_uid()),
            note_orphan: Arc::new(|_| {}),
        };
        Self {
            storage,
            set,
            context,
            options,
            memtable: Arc::new(Memtable::new(4096)),
            seq: 0,
            snapshots: Vec::new(),
            oracle: Oracle::new(),
            jobs: Vec::new(),
            flushes: Vec::new(),
            merges: Vec::new(),
        }
    }

    fn version(&self) -> Arc<Version> {
        Arc::clone(&self.set.current().keyspaces.get(KEYSPACE).unwrap().version)
    }

    fn busy(&self) -> BTreeSet<TableUid> {
        self.jobs.iter().flat_map(|running| running.task.input_uids()).collect()
    }

    fn shape(&self) -> Shape {
        let keyspace = Arc::clone(self.set.current().keyspaces.get(KEYSPACE).unwrap());
        let jobs = self.jobs.iter().filter_map(|running| running.shape.clone()).collect();
        Shape { jobs, ..keyspace.shape(self.busy(), self.snapshots.clone()) }
    }

    fn write(&mut self, key: &[u8], value: Option<Vec<u8>>) {
        self.seq += 1;
        let kind = if value.is_some() { Kind::Put } else { Kind::Delete };
        self.memtable.insert(key, self.seq, kind, value.as_deref().unwrap_or(&[]));
        self.oracle.entry(key.to_vec()).or_default().insert(Reverse(self.seq), value);
    }

    fn flush_job(&self) -> FlushJob<crate::memtable::MemtableCursor> {
        let spec = FlushSpec {
            keyspace: KEYSPACE,
            placement: Leveled.place_flush(&self.shape()),
            epoch: self.set.new_epoch(),
            entries: self.memtable.entries(),
            snapshots: self.snapshots.clone(),
            table_bytes: self.options.table_bytes,
            table: TableOptions::of_level(KEYSPACE, &self.options, level(0), HASH_SEED),
            oldest: None,
        };
        FlushJob::new(self.context.clone(), spec, self.memtable.cursor())
    }

    fn apply(&mut self, edit: VersionEdit) {
        let installed = self.set.apply(edit).map_err(|failed| failed.error).expect("a sound edit");
        for table in installed.removed {
            self.storage.remove_table(table.meta().uid).expect("the table is there");
        }
    }

    fn flush(&mut self) {
        if self.memtable.is_empty() {
            return;
        }
        let finished = run(&mut self.flush_job()).expect("the flush succeeds");
        self.flushes.push(finished.stats);
        self.apply(finished.edit);
        self.memtable = Arc::new(Memtable::new(4096));
    }

    fn merge_job(&self, shape: &Shape, task: &MergeTask) -> CompactionJob {
        let version = self.version();
        let spec = self.spec_of(shape, task, self.snapshots.clone());
        CompactionJob::new(self.context.clone(), &version, spec).expect("the inputs exist")
    }

    fn spec_of(&self, shape: &Shape, task: &MergeTask, snapshots: Vec<Seq>) -> MergeSpec {
        MergeSpec {
            keyspace: KEYSPACE,
            task: task.clone(),
            plan: Leveled.plan(shape, task),
            snapshots,
            table: TableOptions::of_level(KEYSPACE, &self.options, task.output.level, HASH_SEED),
            warm_up: WarmUp::None,
            lists: Foreseen::default(),
            stretch_bytes: None,
            claim: None,
        }
    }

    fn start(&mut self, task: Task) {
        match &task {
            Task::Move(moved) => {
                let edit = move_edit(KEYSPACE, &self.version(), moved).expect("the inputs exist");
                self.apply(edit);
            }
            Task::Rotate(rotate) => {
                let edit = rotate_edit(KEYSPACE, &self.version(), rotate).expect("a sound edit");
                self.apply(edit);
            }
            Task::Merge(merge) => {
                let shape = self.shape();
                let job = self.merge_job(&shape, merge);
                let shape = running_job(&shape, &task);
                self.jobs.push(RunningJob { task, shape, job });
            }
            Task::Sentinel(_) => panic!("no policy picks a sentinel: {task}"),
        }
    }

    /// One step of one job. True if it ended.
    fn step(&mut self, index: usize) -> bool {
        let running = &mut self.jobs[index];
        match running.job.step().expect("the job succeeds") {
            Progress::Continue => false,
            Progress::Done(finished) => {
                self.jobs.swap_remove(index);
                self.merges.push(finished.stats);
                self.apply(finished.edit);
                true
            }
        }
    }

    fn finish_jobs(&mut self) {
        while !self.jobs.is_empty() {
            self.step(0);
        }
    }

    fn settle(&mut self) {
        for _ in 0..10_000 {
            self.finish_jobs();
            let Some(task) = Leveled.pick(&self.shape()).into_iter().next() else { return };
            self.start(task);
        }
        panic!("the policy does not come to rest");
    }

    fn content(&self, snapshot: Seq) -> Content {
        let version = self.version();
        let mut sources: Vec<Box<dyn Cursor>> = vec![Box::new(self.memtable.cursor())];
        for run in version.runs_newest_first() {
            sources.push(Box::new(cursor_of(run)));
        }
        let merge = MergingCursor::new(sources);
        let mut view = Visible::new(merge, snapshot, Bound::Unbounded, Bound::Unbounded);
        let mut content = Vec::new();
        view.seek_to_first(None);
        while view.valid() {
            content.push((view.key().to_vec(), view.value().to_vec()));
            view.next(None);
        }
        view.status().expect("everything can be read");
        content
    }

    fn expected(&self, snapshot: Seq) -> Content {
        let newest = |versions: &BTreeMap<Reverse<Seq>, Option<Vec<u8>>>| {
            versions.range(Reverse(snapshot)..).next().and_then(|(_, value)| value.clone())
        };
        let keys = self.oracle.iter();
        keys.filter_map(|(key, versions)| Some((key.clone(), newest(versions)?))).collect()
    }

    fn check(&self) {
        for &snapshot in self.snapshots.iter().chain([&self.seq]) {
            assert_eq!(self.content(snapshot), self.expected(snapshot), "at snapshot {snapshot}");
        }
        let shape = self.shape();
        assert_eq!(Leveled.check(&shape), Vec::<String>::new());
    }
}

fn cursor_of(run: &Arc<Run>) -> impl Cursor + use<> {
    let options = CursorOptions {
        purpose: Purpose::Foreground,
        fill_cache: false,
        readahead: ReadAhead::Scan,
    };
    run.cursor(options)
}

fn small_options(prng: &mut Prng) -> Options {
    Options::default()
        .write_buffer_bytes(1)
        .block_bytes(512)
        .table_bytes(1024 << prng.below(3))
        .compaction(
            LeveledOptions::default()
                .base_level_bytes(2048 << prng.below(3))
                .level_ratio(2 + prng.below(4) as u32)
                .l0_trigger(1 + prng.below(4) as usize),
        )
        .bloom_bits([prng.below(12) as f32])
}

fn random_write(store: &mut Store, prng: &mut Prng, keys: u64) {
    let key = format!("key{:05}", prng.below(keys)).into_bytes();
    let value = match prng.below(4) {
        0 => None,
        1 => Some(vec![b'v'; prng.below(300) as usize]),
        _ => Some(format!("{}", prng.next_u64()).into_bytes()),
    };
    store.write(&key, value);
}

/// Goal: for any sequence of flushes, merges and moves, in any order of the jobs' steps and ends,
/// every live snapshot and the newest state read as the oracle; the policy becomes idle; the disk
/// holds exactly the tables of the version. Method: random operations over few keys, several
/// running jobs, outputs read back.
#[test]
fn random_trees_read_like_the_oracle_at_every_snapshot() {
    for seed in 0..12u64 {
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        let mut store = Store::new(small_options(&mut prng));
        random_operations(&mut store, &mut prng);
        assert_deletes_end(&mut store);
    }
}

fn random_operations(store: &mut Store, prng: &mut Prng) {
    let keys = 20 + prng.below(300);
    for _ in 0..400 {
        match prng.below(12) {
            0..=3 => (0..prng.below(30)).for_each(|_| random_write(store, prng, keys)),
            4 => store.flush(),
            5 if store.snapshots.len() < 5 => {
                store.snapshots.push(store.seq);
                store.snapshots.dedup();
            }
            6 if !store.snapshots.is_empty() => {
                let index = prng.below(store.snapshots.len() as u64) as usize;
                store.snapshots.remove(index);
            }
            7 | 8 => {
                let tasks = Leveled.pick(&store.shape());
                let take = prng.below(tasks.len() as u64 + 1) as usize;
                tasks.into_iter().take(take).for_each(|task| store.start(task));
            }
            9 if prng.chance(1, 5) => {
                let all = Bound::Unbounded;
                if let RangePick::Task(task) = Leveled.pick_range(&store.shape(), all, all) {
                    store.start(task);
                }
            }
            _ if !store.jobs.is_empty() => {
                let index = prng.below(store.jobs.len() as u64) as usize;
                if store.step(index) {
                    store.check();
                }
            }
            _ => {}
        }
    }
    store.flush();
    store.settle();
    store.check();
    let live: Vec<_> = store.set.live_tables().into_iter().collect();
    assert_eq!(store.storage.list_tables().expect("a list"), live);
}

/// With no snapshot left, compacting everything leaves one entry per live key and no delete.
fn assert_deletes_end(store: &mut Store) {
    store.snapshots.clear();
    let all = Bound::Unbounded;
    while let RangePick::Task(task) = Leveled.pick_range(&store.shape(), all, all) {
        store.start(task);
        store.finish_jobs();
    }
    store.settle();
    store.check();
    let totals = store.version().totals();
    assert_eq!(totals.deletes, 0);
    if store
        .version()
        .levels()
        .iter()
        .all(|(at, level)| at == Level::LAST || level.totals().tables == 0)
    {
        // Older entries of the last level, kept for a snapshot, stay until it is rewritten.
        assert!(totals.entries >= store.expected(SEQ_MAX).len() as u64);
    }
}

/// A store with three overlapping runs in level 0, at its trigger.
fn store_with_level0(seed: u64) -> Store {
    let mut prng = Prng::new(seed);
    let mut store = Store::new(
        Options::default()
            .write_buffer_bytes(1)
            .block_bytes(512)
            .table_bytes(4096)
            .compaction(LeveledOptions::default().base_level_bytes(1 << 20).l0_trigger(3)),
    );
    for _ in 0..3 {
        (0..120).for_each(|_| random_write(&mut store, &mut prng, 150));
        store.flush();
    }
    store
}

fn first_merge(store: &Store) -> MergeTask {
    match Leveled.pick(&store.shape()).into_iter().next() {
        Some(Task::Merge(merge)) => merge,
        other => panic!("a merge is due, not {other:?}"),
    }
}

/// The version with its tables not opened yet.
fn reopened(store: &Store) -> Version {
    let mut levels = PerLevel::<LevelRuns>::default();
    for (level, old) in store.version().levels().iter() {
        for run in &old.filling.runs {
            let tables = run.tables.iter().map(|(meta, _)| {
                let storage: Arc<dyn Storage> = store.storage.clone();
                let table =
                    Table::new(storage, (**meta).clone(), HASH_SEED, TableMemory::default());
                (Arc::clone(meta), table)
            });
            let tables = crate::version::tables::TableList::new(tables.collect()).expect("a run");
            levels[level].filling.runs.push(Arc::new(Run::new(run.epoch, run.kind, tables)));
        }
    }
    Version::new(levels)
}

fn job_over(store: &Store, version: &Version, task: &MergeTask) -> CompactionJob {
    let spec = store.spec_of(&store.shape(), task, Vec::new());
    CompactionJob::new(store.context.clone(), version, spec).expect("the inputs exist")
}

/// Bug 39: a read error of an input is taken for its end, and its entries are lost. Method: fail
/// every single read of a merge in turn; each time the job must fail, remove its outputs and not
/// change the tree.
#[test]
fn every_failing_read_fails_the_job() {
    let mut store = store_with_level0(1);
    store.context.verify_outputs = false;
    let task = first_merge(&store);
    let before = store.storage.list_tables().expect("a list");
    let expected = store.expected(SEQ_MAX);
    let tables = Arc::clone(&store.storage.tables);
    for failing in 1..10_000 {
        let version = reopened(&store);
        let reads = tables.reads.load(Ordering::Relaxed);
        tables.failing_read.store(reads + failing, Ordering::Relaxed);
        let result = run(&mut job_over(&store, &version, &task));
        tables.failing_read.store(0, Ordering::Relaxed);
        if tables.reads.load(Ordering::Relaxed) < reads + failing {
            assert!(failing > 6, "only {failing} reads");
            let finished = result.expect("no read failed");
            store.apply(finished.edit);
            store.check();
            return;
        }
        let error = result.err().unwrap_or_else(|| panic!("read {failing} failed unnoticed"));
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert_eq!(store.storage.list_tables().expect("a list"), before, "read {failing}");
        assert_eq!(store.content(SEQ_MAX), expected);
    }
    panic!("the merge does not end");
}

/// Goal: an error of the device fails the job and nothing else. Method: fail every single writing
/// call of a merge in turn; a failing sync at a table's end does not remove the table.
#[test]
fn every_failing_write_fails_the_job() {
    let store = store_with_level0(2);
    let task = first_merge(&store);
    let before = store.storage.list_tables().expect("a list");
    let storage = Arc::clone(&store.storage);
    for failing in 1..10_000 {
        let writes = storage.writes.load(Ordering::Relaxed);
        storage.failing_write.store(writes + failing, Ordering::Relaxed);
        let result = run(&mut job_over(&store, &store.version(), &task));
        if storage.writes.load(Ordering::Relaxed) < writes + failing {
            assert!(failing > 6, "only {failing} writes");
            result.expect("no write failed").remove_outputs(&storage);
            assert_eq!(storage.list_tables().expect("a list"), before);
            return;
        }
        let error = result.err().unwrap_or_else(|| panic!("write {failing} failed unnoticed"));
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        assert_eq!(storage.list_tables().expect("a list"), before, "write {failing}");
    }
    panic!("the merge does not end");
}

/// Goal: a job abandoned after any number of steps removes all of its outputs.
#[test]
fn an_abandoned_job_leaves_no_table() {
    let store = store_with_level0(3);
    let task = first_merge(&store);
    let before = store.storage.list_tables().expect("a list");
    for steps in 0..100 {
        let mut job = job_over(&store, &store.version(), &task);
        let done = (0..steps).find_map(|_| match job.step().expect("the job succeeds") {
            Progress::Done(finished) => Some(finished),
            Progress::Continue => None,
        });
        job.abandon();
        if let Some(finished) = done {
            assert!(steps > 2, "the merge is too small for this test");
            // The tables belong to the edit.
            assert_ne!(store.storage.list_tables().expect("a list"), before);
            finished.remove_outputs(&store.storage);
            assert_eq!(store.storage.list_tables().expect("a list"), before);
            return;
        }
        assert_eq!(store.storage.list_tables().expect("a list"), before);
    }
    panic!("the merge does not end");
}

/// Goal: the conservation law detects an input whose entries differ from its description. Method:
/// descriptions that are off by one entry, or by one bit of the hash.
#[test]
fn an_input_that_does_not_hold_what_it_promises_fails_the_job() {
    let store = store_with_level0(4);
    let task = first_merge(&store);
    let before = store.storage.list_tables().expect("a list");
    let lies: [fn(&mut TableMeta); 2] = [|meta| meta.entries += 1, |meta| meta.entry_hash ^= 1];
    for lie in lies {
        let mut levels = reopened(&store).levels().clone();
        let run_of = &mut levels[level(0)].filling.runs[1];
        let tables = run_of.tables.iter().enumerate().map(|(i, (meta, _))| {
            let mut meta = (**meta).clone();
            if i == 0 {
                lie(&mut meta);
            }
            let storage: Arc<dyn Storage> = store.storage.clone();
            let table = Table::new(storage, meta.clone(), HASH_SEED, TableMemory::default());
            (Arc::new(meta), table)
        });
        let tables = crate::version::tables::TableList::new(tables.collect()).expect("a run");
        *run_of = Arc::new(Run::new(run_of.epoch, run_of.kind, tables));
        let version = Version::new(levels);
        let error = run(&mut job_over(&store, &version, &task)).expect_err("a lie is found");
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        assert_eq!(store.storage.list_tables().expect("a list"), before);
    }
}

/// Goal: a flush whose cursor omits an entry fails. Method: state one entry more in its spec.
#[test]
fn a_flush_that_loses_an_entry_fails() {
    let mut store = store_with_level0(5);
    store.write(b"a", Some(b"1".to_vec()));
    let spec = FlushSpec {
        keyspace: KEYSPACE,
        placement: Leveled.place_flush(&store.shape()),
        epoch: store.set.new_epoch(),
        entries: store.memtable.entries() + 1,
        snapshots: Vec::new(),
        table_bytes: 4096,
        table: TableOptions::of_level(KEYSPACE, &store.options, level(0), HASH_SEED),
        oldest: None,
    };
    let before = store.storage.list_tables().expect("a list");
    let mut job = FlushJob::new(store.context.clone(), spec, store.memtable.cursor());
    let error = run(&mut job).expect_err("an entry is missing");
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert_eq!(store.storage.list_tables().expect("a list"), before);
}

/// Goal: a task picked from an older version is refused if its inputs are gone.
#[test]
fn a_task_for_tables_that_are_gone_is_refused() {
    let mut store = store_with_level0(6);
    let task = first_merge(&store);
    store.settle();
    let spec = store.spec_of(&store.shape(), &task, Vec::new());
    let result = CompactionJob::new(store.context.clone(), &store.version(), spec);
    assert_eq!(result.err().expect("refused").kind(), ErrorKind::Conflict);
}

/// Goal: the counters of jobs agree with the tables. Method: three flushes and the merge of their
/// runs against the tables of the version.
#[test]
fn costs_add_up() {
    let mut store = store_with_level0(7);
    store.settle();
    let flushed = |of: fn(&JobStats) -> u64| store.flushes.iter().map(of).sum::<u64>();
    let [merge] = store.merges[..] else { panic!("{} merges", store.merges.len()) };
    let totals = store.version().totals();
    assert_eq!(flushed(|stats| stats.entries_read), 360);
    assert_eq!(merge.entries_read, flushed(|stats| stats.entries_written));
    assert_eq!(merge.bytes_read, flushed(|stats| stats.bytes_written));
    assert_eq!(merge.tables_read, flushed(|stats| stats.tables_written));
    let dropped = merge.entries_shadowed + merge.deletes_dropped;
    assert_eq!(merge.entries_read, merge.entries_written + dropped);
    assert_eq!((merge.bytes_written, merge.entries_written), (totals.bytes, totals.entries));
    assert_eq!(merge.tables_written, totals.tables as u64);
}

/// The slice of all tables of the newest run of a part.
fn newest_run(store: &Store, level: Level, part: PartKind) -> RunSlice {
    let version = store.version();
    let runs = &version.levels()[level].part(part).expect("the part").runs;
    let run = runs.first().expect("a run");
    let uids = run.tables.iter().map(|(meta, _)| meta.uid).collect();
    RunSlice { run: RunId { level, part, epoch: run.epoch }, uids }
}

/// Goal: a delete that is merged into the filling part of a level is kept while the draining part
/// of that level, or of one below, may hold an older entry of its key (H9). Method: the put is in
/// the draining part of level 5 when its delete is merged into the filling part.
#[test]
fn deletes_stay_above_older_entries_in_a_draining_part() {
    let mut store = Store::new(Options { block_bytes: 512, ..Options::default() });
    store.write(b"k", Some(b"old".to_vec()));
    store.flush();
    let input = newest_run(&store, level(0), PartKind::Filling);
    let (output, cursor, reason) = (RunId::filling(level(5), input.run.epoch), None, Reason::Drain);
    store.start(Task::Move(MoveTask { input, output, cursor, reason }));
    let inputs = vec![newest_run(&store, level(5), PartKind::Filling)];
    store.start(Task::Rotate(RotateTask { inputs, level: level(5), reason }));

    store.write(b"k", None);
    store.flush();
    let merge = |input: RunSlice, output_level| {
        let (output, inputs) = (RunId::filling(output_level, input.run.epoch), vec![input]);
        Task::Merge(MergeTask { inputs, output, cursor: None, reason })
    };
    store.start(merge(newest_run(&store, level(0), PartKind::Filling), level(5)));
    store.finish_jobs();
    store.check();
    assert_eq!(store.version().totals().deletes, 1);

    // The delete is dropped when it is merged with its put, which is below it now.
    store.start(merge(newest_run(&store, level(5), PartKind::Draining), level(6)));
    store.finish_jobs();
    assert_eq!(store.version().totals().deletes, 1);
    let mut both = merge(newest_run(&store, level(5), PartKind::Filling), level(6));
    if let Task::Merge(merge) = &mut both {
        merge.inputs.push(newest_run(&store, level(6), PartKind::Filling));
    }
    store.start(both);
    store.finish_jobs();
    store.check();
    assert_eq!(store.version().totals().entries, 0);
}
