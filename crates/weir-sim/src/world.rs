//! The world that a store is simulated in: disk, scheduler, and the machine that runs simulations.
//!
//! Everything that the campaigns need of `weir::sim` goes through here.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use weir::sim::{
    CrashPolicy, Dir, Faults, FaultyDir, Prng, Replayer, Settings, SimDisk, SimOptions, Simulation,
    Torn, format_in,
};
use weir::{Builder, Db, Durability, FormatOptions, Options};

pub use weir::sim::{ActorHandle, Site};

/// Number of ways in which a power loss treats what was not synced.
pub const POLICIES: usize = CrashPolicy::ALL.len();

/// Virtual time after which a simulation counts as hanging: ten hours, more than a thousand device
/// calls that take ten seconds each.
const VIRTUAL_LIMIT: Duration = Duration::from_secs(36_000);

/// The name of a policy.
#[must_use]
pub fn policy_name(policy: usize) -> String {
    CrashPolicy::ALL.get(policy % POLICIES).map_or_else(String::new, |p| format!("{p:?}"))
}

/// Policy `number`, on a disk that writes so many bytes wholly or not at all, if that is less than
/// a page: one that tears pages is another disk. Nor does a disk tear more than a page but under a
/// store in `slots`, which expects that of its superblocks.
fn policy(number: usize, atomic_bytes: u64, slots: bool) -> CrashPolicy {
    match CrashPolicy::ALL[number % POLICIES] {
        CrashPolicy::TornBlock if !slots || atomic_bytes < PAGE => {
            CrashPolicy::TornLast(Torn::Garbage)
        }
        CrashPolicy::TornLast(Torn::Page) if atomic_bytes < PAGE => {
            CrashPolicy::TornLast(Torn::Garbage)
        }
        CrashPolicy::TornPages(density) if atomic_bytes < PAGE => CrashPolicy::Random(density),
        policy => policy,
    }
}

/// Bytes of a page, which disks write wholly or not at all or tear as one.
const PAGE: u64 = 4096;

/// A simulated disk. A clone is the same disk.
#[derive(Clone)]
pub struct Disk {
    /// The disk of the engine's own simulation.
    pub sim: SimDisk,
    /// Whether the store is in one file of it, in slots.
    slots: bool,
    /// The unit of such a store's write-ahead log, in bytes.
    log_unit: u64,
}

/// Whether new disks hold their stores in slots.
static SLOTS: AtomicBool = AtomicBool::new(false);

/// The file that a store in slots is in.
pub const STORE_FILE: &str = "store.weir";

/// Bytes of that file, where devices do not get full. Most of it is never written, and takes no
/// memory.
const STORE_BYTES: u64 = 512 << 20;

/// Bytes of new disks, if they are to get full; otherwise 0.
static DEVICE: AtomicU64 = AtomicU64::new(0);

/// Lets new disks of this process have so many bytes, or no limit.
pub fn use_device_bytes(bytes: Option<u64>) {
    DEVICE.store(bytes.unwrap_or(0), Ordering::Relaxed);
}

/// Bytes of new disks, if they are to get full.
#[must_use]
pub fn device_bytes() -> Option<u64> {
    Some(DEVICE.load(Ordering::Relaxed)).filter(|&bytes| bytes > 0)
}

/// Lets stores on new disks of this process be in slots, or in directories.
pub fn use_slots(slots: bool) {
    SLOTS.store(slots, Ordering::Relaxed);
}

/// Whether they are in slots.
#[must_use]
pub fn uses_slots() -> bool {
    SLOTS.load(Ordering::Relaxed)
}

impl Disk {
    /// A disk without a store. In slots it has what two earlier stores have left.
    #[must_use]
    pub fn new() -> Self {
        let slots = SLOTS.load(Ordering::Relaxed);
        Self::with(new_sim(slots), slots, PAGE)
    }

    /// The same, one that nobody has written to before.
    #[must_use]
    pub fn blank() -> Self {
        let slots = SLOTS.load(Ordering::Relaxed);
        Self::with(SimDisk::new(SimOptions::default()), slots, PAGE)
    }

    /// The same, of which `seed` draws the unit of the write-ahead log, if it is in slots.
    #[must_use]
    pub fn drawn(seed: u64) -> Self {
        let slots = SLOTS.load(Ordering::Relaxed);
        let unit = if slots { [PAGE, PAGE, 512, 8][(seed % 4) as usize] } else { PAGE };
        Self::with(new_sim(slots), slots, unit)
    }

    /// The same, one that records its changes.
    #[must_use]
    pub fn recording(seed: u64) -> Self {
        let Self { sim, slots, log_unit } = Self::drawn(seed);
        Self { sim: sim.recorded(), slots, log_unit }
    }

    fn with(sim: SimDisk, slots: bool, log_unit: u64) -> Self {
        if slots {
            let mut options = FormatOptions::new();
            let log = if device_bytes().is_some() { 4 << 20 } else { 8 << 20 };
            (options.slot_bytes, options.log_bytes) = (Some(64 << 10), Some(log));
            (options.log_unit, options.atomic_bytes) = (Some(log_unit), Some(log_unit));
            options.force = true;
            let formatted =
                format_in(&sim.dir(), STORE_FILE, device_bytes().unwrap_or(STORE_BYTES), &options);
            formatted.expect("a simulated disk without faults is formatted");
        } else {
            sim.set_capacity(device_bytes());
        }
        Self { sim, slots, log_unit }
    }

    /// A builder for the store on this disk through `dir`, which is over it.
    pub fn builder_in(&self, dir: Arc<dyn Dir>, seed: u64) -> Builder {
        let builder = Db::builder("simulated").device(dir).seed(seed);
        if self.slots {
            builder.device_file(STORE_FILE).discard(seed.is_multiple_of(2))
        } else {
            builder
        }
    }

    /// A builder for the store on this disk.
    pub fn builder(&self, seed: u64) -> Builder {
        self.builder_in(self.sim.dir(), seed)
    }

    /// The same, with faults that can be armed while the store is open.
    pub fn faulty_builder(&self, seed: u64) -> (Builder, Faults) {
        let dir = FaultyDir::over_disk(&self.sim);
        let faults = dir.faults();
        (self.builder_in(Arc::new(dir), seed), faults)
    }

    /// The disk as a process sees it that starts after this one was killed: what was written is
    /// there, what was not synced can still be lost.
    #[must_use]
    pub fn kill(&self) -> Self {
        Self { sim: self.sim.fork(), ..*self }
    }

    /// The disk after a power loss.
    #[must_use]
    pub fn power_loss(&self, number: u8, seed: u32) -> Self {
        let policy = policy(usize::from(number), self.log_unit, self.slots);
        Self { sim: self.sim.crash(policy, u64::from(seed)), ..*self }
    }

    /// Leaves what every opening leaves, the lock file.
    ///
    /// # Errors
    /// The store is open.
    pub fn make_lock_file(&self) -> Result<(), String> {
        let name = if self.slots { STORE_FILE } else { "LOCK" };
        self.sim.dir().lock(name).map(drop).map_err(|e| e.to_string())
    }

    /// Changes recorded so far.
    #[must_use]
    pub fn changes(&self) -> usize {
        self.sim.trace_len()
    }

    /// A hash over all names and bytes on the disk.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        let mut mix = |bytes: &[u8]| {
            for b in bytes {
                hash = (hash ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        for name in self.names() {
            mix(name.as_bytes());
            let Some((bytes, written)) = self.sim.read_written(&name) else { continue };
            mix(&bytes.to_le_bytes());
            for (at, part) in written.iter().filter(|(_, part)| part.iter().any(|&b| b != 0)) {
                mix(&at.to_le_bytes());
                mix(part);
            }
        }
        hash
    }

    /// The names on the disk.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.sim.dir().list().unwrap_or_default()
    }
}

impl Default for Disk {
    fn default() -> Self {
        Self::new()
    }
}

/// A disk for a new store: in slots, with the file that two earlier stores were in, one formatted
/// over the other, so that stale superblocks, logs and tables of both are where theirs were.
#[expect(clippy::disallowed_methods, reason = "a simulation of its own is no actor of another")]
fn new_sim(slots: bool) -> SimDisk {
    static LIVED: Mutex<BTreeMap<Option<u64>, SimDisk>> = Mutex::new(BTreeMap::new());
    if !slots {
        return SimDisk::new(SimOptions::default());
    }
    let mut lived = LIVED.lock().unwrap_or_else(PoisonError::into_inner);
    let disk = lived.entry(device_bytes()).or_insert_with(|| {
        // The caller may be in the middle of a simulation.
        let lives = std::thread::spawn(|| {
            let blank = SimDisk::new(SimOptions::default());
            EARLIER_LIVES.iter().fold(blank, |sim, &seed| live(sim, seed))
        });
        lives.join().expect("the earlier lives of a disk without faults")
    });
    disk.copy()
}

/// Seeds of the stores that were on a disk before: no campaign's, which would have their identity.
const EARLIER_LIVES: [u64; 2] = [0xea71_1e57_0000_0001, 0xea71_1e57_0000_0002];

/// A store on `sim` that is written, flushed and merged, and then left to the next one.
fn live(sim: SimDisk, seed: u64) -> SimDisk {
    simulate(Schedule::new(seed, 16), move || {
        let disk = Disk::with(sim, true, PAGE);
        let options = Options::default().write_buffer_bytes(64 << 10).table_bytes(64 << 10);
        for round in 0..3u64 {
            let builder = disk.builder(seed).default_options(options.clone());
            let db = builder.open().expect("it opens");
            for n in 0..200u64 {
                let key = Prng::new(seed ^ n).below(300).to_be_bytes();
                let value: Vec<u8> = (0..300)
                    .map(|at| Prng::new(round << 32 ^ n << 16 ^ at).next_u64() as u8)
                    .collect();
                db.put_with(key, value, Durability::Sync).expect("it is written");
            }
            db.flush().expect("it is flushed");
            if round == 1 {
                db.compact_range(..).expect("it is merged");
            }
            db.close().expect("it is closed");
        }
        disk.sim
    })
    .expect("a life without faults")
}

/// A seed for the scheduler and how often it may switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Decides which actor runs.
    pub seed: u64,
    /// Mean number of switch points from one possible switch to the next.
    pub switch_every: u64,
    /// One place of a protocol in so many puts its actor off for a while; 0: none.
    pub pause_one_in: u64,
}

impl Schedule {
    /// A schedule that delays no actor.
    #[must_use]
    pub const fn new(seed: u64, switch_every: u64) -> Self {
        Self { seed, switch_every, pause_one_in: 0 }
    }
}

/// Runs `body` as the first actor of a simulation.
///
/// # Errors
/// A panic, a deadlock, or virtual time without end; as a text for people.
pub fn simulate<T: Send + 'static>(
    schedule: Schedule,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let settings = Settings {
        seed: schedule.seed,
        switch_every: schedule.switch_every,
        pause_one_in: schedule.pause_one_in,
        virtual_limit: VIRTUAL_LIMIT,
        ..Settings::new(schedule.seed)
    };
    Simulation::run_with(settings, move |simulation| {
        CURRENT.with(|current| *current.borrow_mut() = Some(simulation.clone()));
        let result = body();
        CURRENT.with(|current| *current.borrow_mut() = None);
        result
    })
}

thread_local! {
    static CURRENT: RefCell<Option<Simulation>> = const { RefCell::new(None) };
}

/// Lets virtual time pass. Requires: the first actor of a simulation.
pub fn delay_millis(millis: u64) {
    let simulation = CURRENT.with(|current| current.borrow().clone());
    if let Some(simulation) = simulation {
        simulation.delay(Duration::from_millis(millis));
    }
}

/// Virtual nanoseconds. Requires: the first actor of a simulation.
#[must_use]
pub fn now_nanos() -> u64 {
    CURRENT.with(|current| current.borrow().as_ref().map_or(0, Simulation::now_nanos))
}

/// Decisions of the scheduler so far and a hash over them. Requires: the first actor.
#[must_use]
pub fn schedule_so_far() -> (u64, u64) {
    CURRENT.with(|current| current.borrow().as_ref().map_or((0, 0), Simulation::schedule))
}

/// Starts an actor. Requires: the first actor of a simulation.
///
/// # Errors
/// The operating system has no thread to give.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<ActorHandle, String> {
    let simulation = CURRENT.with(|current| current.borrow().clone());
    let simulation = simulation.ok_or("an actor is started outside a simulation")?;
    simulation.spawn(name, body).map_err(|e| e.to_string())
}

/// A walk over a recorded run, for one thread.
pub struct Walk {
    replayer: Replayer,
    slots: bool,
    log_unit: u64,
}

impl Walk {
    /// A walk over what the disk has recorded.
    #[must_use]
    pub fn over(disk: &Disk) -> Self {
        Self { replayer: disk.sim.replayer(), slots: disk.slots, log_unit: disk.log_unit }
    }

    /// Another walk over the same recording.
    #[must_use]
    pub fn again(&self) -> Self {
        Self { replayer: self.replayer.restarted(), ..*self }
    }

    /// Changes in the recording.
    #[must_use]
    pub fn len(&self) -> usize {
        self.replayer.len()
    }

    /// Whether nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.replayer.is_empty()
    }

    /// The change that would come next after `x` of them; `None` at the end.
    pub fn site(&mut self, x: usize) -> Option<Site> {
        self.replayer.go_to(x);
        self.replayer.next_site()
    }

    /// The disk after a power loss after `x` changes; it records what happens on it if `record`.
    pub fn image(&mut self, x: usize, number: usize, seed: u64, record: bool) -> Disk {
        self.replayer.go_to(x);
        let policy = policy(number, self.log_unit, self.slots);
        let sim = if record {
            self.replayer.recording_image(policy, seed)
        } else {
            self.replayer.image(policy, seed)
        };
        Disk { sim, slots: self.slots, log_unit: self.log_unit }
    }

    /// The last changes, for messages.
    #[must_use]
    pub fn last(mut self, count: usize) -> String {
        self.replayer.go_to(self.len());
        self.replayer.describe(count, 0)
    }

    /// The changes around `x`, for messages.
    pub fn describe(&mut self, x: usize) -> String {
        self.replayer.go_to(x);
        self.replayer.describe(6, 3)
    }
}

/// Flushes and merges that a store has done since it was opened.
#[must_use]
pub fn work_done(db: &Db) -> (u64, u64) {
    let metrics = db.metrics();
    (metrics.flushes, metrics.compactions)
}

/// The largest number of levels that hold tables in one keyspace.
#[must_use]
pub fn levels_in_use(db: &Db) -> u64 {
    let metrics = db.metrics();
    let levels = metrics.keyspaces.iter().map(|k| k.levels.iter().filter(|l| l.tables > 0).count());
    levels.max().unwrap_or(0) as u64
}

/// Runs `body` on `jobs` threads; the first error wins.
///
/// # Errors
/// That of the first thread that has one.
pub fn parallel<E: Send>(
    jobs: usize,
    body: impl Fn(usize) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let results: Vec<Result<(), E>> = std::thread::scope(|scope| {
        let body = &body;
        let threads: Vec<_> = (0..jobs.max(1)).map(|job| scope.spawn(move || body(job))).collect();
        threads
            .into_iter()
            .map(|t| t.join().unwrap_or_else(|p| std::panic::resume_unwind(p)))
            .collect()
    });
    results.into_iter().collect()
}

/// While it lives, panics print nothing: the reducer provokes hundreds.
pub struct Quiet;

impl Quiet {
    /// Silences panics.
    #[must_use]
    pub fn begin() -> Self {
        std::panic::set_hook(Box::new(|_| {}));
        Self
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::panic::take_hook();
        }
    }
}

/// Keeps a failure for people; not being able to is not a failure of its own.
#[expect(clippy::disallowed_methods, reason = "reports go to the real file system")]
pub fn write_report(path: &Path, text: &str) {
    if let Err(error) = std::fs::write(path, text) {
        eprintln!("{}: {error}", path.display());
    }
}
