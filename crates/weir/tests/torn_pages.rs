//! The log on a disk that replaces pages of 4 KiB as a whole: a power cut may leave garbage in any
//! page that was being written to, also where it held what was durable before (H37, H52). Goes
//! against a history of the store's states.
#![cfg(feature = "sim")]

use std::collections::BTreeMap;
use std::sync::Arc;

use weir::sim::{
    CrashPolicy, Dir, Effect, ErrorCode, Fault, FaultyDir, FileClass, OpKind, Prng, SimDisk,
    SimOptions, Times,
};
use weir::{Builder, Db, Durability, Keyspace, Options, WriteBatch};

/// Keyspace and key, and the value.
type State = BTreeMap<(u8, u8), Vec<u8>>;

const NAMES: [&str; 3] = ["default", "a", "b"];

fn builder(segment_bytes: u64) -> Builder {
    let options = Options::default().write_buffer_bytes(16 << 10).immutables_max(64);
    Db::builder("sim")
        .default_options(options)
        .memory_budget(8 << 20)
        .log_segment_bytes(segment_bytes)
        .log_area_bytes(1 << 20)
        .background_threads(1)
        .seed(1)
}

fn keyspaces(db: &Db) -> [Keyspace; 3] {
    NAMES.map(|name| db.keyspace(name).unwrap())
}

fn state_of(db: &Db) -> State {
    let mut state = State::new();
    for (number, keyspace) in (0..).zip(keyspaces(db)) {
        for pair in keyspace.iter() {
            let (key, value) = pair.unwrap();
            state.insert((number, key[0]), value.to_vec());
        }
    }
    state
}

/// A store and every state that it went through.
struct Run {
    db: Db,
    history: Vec<State>,
    /// Place in the history of the oldest state that a power cut may leave.
    durable: usize,
    /// Batches that failed, as the place in the history that they came after and the state with
    /// them: the device may have kept them, and nothing durable says otherwise.
    failed: Vec<(usize, State)>,
    what: String,
}

impl Run {
    fn open(dir: Arc<dyn Dir>, segment_bytes: u64, what: String) -> Self {
        let db = builder(segment_bytes).device(dir).open();
        let db = db.unwrap_or_else(|error| panic!("{what}: {error}"));
        let state = state_of(&db);
        Self { db, history: vec![state], durable: 0, failed: Vec::new(), what }
    }

    fn newest(&self) -> usize {
        self.history.len() - 1
    }

    /// One batch over one or two keyspaces; whether it was acknowledged.
    fn write(&mut self, prng: &mut Prng, bytes_max: u64, durability: Durability) -> bool {
        let keyspaces = keyspaces(&self.db);
        let mut batch = WriteBatch::new();
        let mut state = self.history[self.newest()].clone();
        for _ in 0..=prng.below(2) {
            let (number, key) = (prng.below(3) as u8, prng.below(6) as u8);
            let len = prng.below(bytes_max);
            let value: Vec<u8> = (0..len).map(|_| prng.next_u64() as u8).collect();
            batch.put(&keyspaces[usize::from(number)], [key], &value);
            state.insert((number, key), value);
        }
        let done = self.db.write(batch, durability).is_ok();
        if done {
            self.history.push(state);
            if durability == Durability::Sync {
                self.durable = self.newest();
            }
        } else {
            self.failed.push((self.newest(), state));
        }
        done
    }

    fn step(&mut self, prng: &mut Prng) {
        let newest = self.newest();
        match prng.below(16) {
            0..6 => assert!(self.write(prng, 200, Durability::Buffered), "{}", self.what),
            6 => assert!(self.write(prng, 6000, Durability::Buffered), "{}", self.what),
            7 => assert!(self.write(prng, 20_000, Durability::Buffered), "{}", self.what),
            8..10 => assert!(self.write(prng, 200, Durability::Sync), "{}", self.what),
            10 => {
                self.db.sync().unwrap();
                self.durable = newest;
            }
            // What a flush or a keyspace's creation relies on is durable afterwards, and with it
            // all that is older; but a flush of nothing does nothing.
            11..14 => {
                let keyspace = &keyspaces(&self.db)[prng.below(3) as usize];
                keyspace.flush().unwrap();
                let mut state = self.history[newest].clone();
                keyspace.put(b"\xff", b"flushed").unwrap();
                let number = NAMES.iter().position(|name| *name == keyspace.name());
                state.insert((number.unwrap() as u8, 0xff), b"flushed".to_vec());
                keyspace.flush().unwrap();
                self.history.push(state);
                self.durable = newest + 1;
            }
            14 => {
                if self.db.create_keyspace("passing", Options::default()).is_ok() {
                    self.durable = newest;
                }
            }
            _ => drop(self.db.drop_keyspace("passing")),
        }
    }

    /// What a power cut leaves is one of the states, and not an older one than promised.
    fn check(&self, found: &State) {
        let allowed = &self.history[self.durable..];
        let kept = |(after, state): &(usize, State)| *after >= self.durable && state == found;
        if !allowed.contains(found) && !self.failed.iter().any(kept) {
            let place = self.history.iter().rposition(|state| state == found);
            let (what, newest, durable) = (&self.what, self.newest(), self.durable);
            panic!("{what}: found state {place:?}; {durable} was durable, {newest} is the newest");
        }
    }
}

/// Goal: no page that the log writes again holds what was called durable, whatever is done to a
/// store, also after a failed write. Method: random operations of every kind over three keyspaces
/// and one that comes and goes, in segments of two sizes; after each, power is cut and every page
/// that was being written to may hold garbage; what is found is a state between the newest that was
/// promised and the newest; it is written to and cut once more.
#[test]
fn a_page_is_never_shared_with_what_is_durable() {
    for seed in 0..24 {
        let mut prng = Prng::new(seed);
        let segment_bytes = [4 << 10, 64 << 10][seed as usize % 2];
        let disk = SimDisk::new(SimOptions::default());
        let faulty = FaultyDir::over_disk(&disk);
        let faults = faulty.faults();
        let what = format!("seed {seed}");
        let mut run = Run::open(Arc::new(faulty), segment_bytes, what);
        for step in 0..40 {
            if prng.chance(1, 12) {
                let effect = match prng.below(3) {
                    0 => Effect::Fail(ErrorCode::Enospc),
                    1 => Effect::ShortWrite(ErrorCode::Enospc, 1 + prng.below(7) as u8),
                    _ => Effect::FailButDone(ErrorCode::Enospc),
                };
                let (op, class) = (Some(OpKind::Write), Some(FileClass::Wal));
                faults.arm(Fault { op, class, after: 0, times: Times::Once, effect });
                // The write that meets it, or the padding of a flush or a creation.
                match prng.below(3) {
                    0 => drop(run.write(&mut prng, 200, Durability::Buffered)),
                    1 => drop(keyspaces(&run.db)[0].flush()),
                    _ => drop(run.db.create_keyspace("passing", Options::default())),
                }
                faults.heal();
            }
            run.step(&mut prng);
            let policy = CrashPolicy::TornPages(1 + prng.below(8) as u8);
            let torn = disk.crash(policy, seed * 1000 + step);
            let what = format!("seed {seed} step {step}");
            let mut second = Run::open(torn.dir(), segment_bytes, what.clone());
            run.check(&second.history[0]);
            for _ in 0..3 {
                second.step(&mut prng);
            }
            let torn = torn.crash(CrashPolicy::TornPages(8), seed);
            let third = Run::open(torn.dir(), segment_bytes, format!("{what}, twice"));
            second.check(&third.history[0]);
        }
    }
}
