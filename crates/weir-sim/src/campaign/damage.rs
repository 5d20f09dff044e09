//! Campaign B: damage at rest. Every bit of a small store is inverted, one at a time, and sectors,
//! files and names are damaged; after each, the store is opened and read completely.
//!
//! The store has at least three levels, eight tables, two keyspaces, writes that are synced but in
//! the log only, and a version log of a base with edits behind it. It was closed in good order:
//! what is acknowledged as durable is known to the log itself.
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

use weir::sim::Prng;
use weir::{
    Compression, Db, DbOptions, DebugDbOptions, DebugOptions, Durability, LostTable, Options,
    RepairReport,
};

use crate::history::Content;
use crate::model::show;
use crate::op::{Val, key_bytes};
use crate::world::{self, Disk, Schedule};

mod repairs;

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

/// One damage.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Damage {
    Nothing,
    Flip {
        file: String,
        offset: u64,
        bit: u32,
    },
    ZeroSector {
        file: String,
        offset: u64,
    },
    CopySector {
        file: String,
        from: u64,
        to: u64,
    },
    Truncate {
        file: String,
        len: u64,
    },
    Append {
        file: String,
    },
    Delete {
        file: String,
    },
    Swap {
        a: String,
        b: String,
    },
    Copy {
        from: String,
        to: String,
    },
    /// Another store's log: which of those that the specimen has.
    Foreign {
        log: usize,
        to: String,
    },
}

impl Damage {
    fn apply(&self, disk: &Disk, foreign: &[(String, Vec<u8>)]) -> bool {
        let sim = &disk.sim;
        let write = |to: &str, bytes: Option<&[u8]>| {
            bytes.iter().for_each(|bytes| sim.write_all(to, bytes));
            bytes.is_some()
        };
        match self {
            Self::Nothing => true,
            Self::Flip { file, offset, bit } => sim.flip_bit(file, *offset, *bit),
            Self::ZeroSector { file, offset } => sim.zero_sector(file, *offset),
            Self::CopySector { file, from, to } => sim.copy_sector(file, *from, *to),
            Self::Truncate { file, len } => sim.truncate(file, *len),
            Self::Append { file } => sim.append_garbage(file, &[0xa5; 700]),
            Self::Delete { file } => sim.delete(file),
            Self::Swap { a, b } => sim.swap_files(a, b),
            Self::Copy { from, to } => write(to, sim.read_all(from).as_deref()),
            Self::Foreign { log, to } => write(to, foreign.get(*log).map(|(_, b)| &b[..])),
        }
    }

    fn kind(&self) -> (&'static str, &str) {
        match self {
            Self::Nothing => ("nothing", ""),
            Self::Flip { file, .. } => ("bit flip", file),
            Self::ZeroSector { file, .. } => ("zero sector", file),
            Self::CopySector { file, .. } => ("misdirected sector", file),
            Self::Truncate { file, .. } => ("truncation", file),
            Self::Append { file } => ("garbage at the end", file),
            Self::Delete { file } => ("deletion", file),
            Self::Swap { a, .. } => ("exchange", a),
            Self::Copy { to, .. } => ("copy", to),
            Self::Foreign { to, .. } => ("another store's", to),
        }
    }
}

/// How far a name is from those in use that nothing of the store can have had it.
const FAR: u64 = 20_000;

/// The file of this kind with another number.
fn with_number(file: &str, number: u64) -> String {
    let (start, end) = file.split_at(file.find(is_digit).unwrap_or(0));
    let end = end.trim_start_matches(is_digit);
    format!("{start}{number:06}{end}")
}

fn number(file: &str) -> u64 {
    file.chars().filter(|&c| is_digit(c)).collect::<String>().parse().unwrap_or(0)
}

/// A file name without its number.
fn class(file: &str) -> String {
    file.chars().filter(|&c| !is_digit(c)).collect()
}

/// By keyspace and key: the values, `None` where it was deleted.
type Versions = BTreeMap<(String, Vec<u8>), Vec<Option<Vec<u8>>>>;

/// The store to be damaged and what it holds.
struct Specimen {
    seed: u64,
    disk: Disk,
    content: Content,
    /// All that each key of a keyspace ever was, in order; the last is what it is.
    versions: Versions,
    /// Keys of writes that no table holds.
    in_log: std::collections::BTreeSet<(String, Vec<u8>)>,
    /// Logs of another store, by their names there.
    foreign: Vec<(String, Vec<u8>)>,
    shape: String,
}

fn options() -> (DbOptions, Options) {
    let db = DbOptions {
        memory_budget: 1 << 20,
        block_cache_bytes: Some(0),
        background_threads: 1,
        log_segment_bytes: 4 << 10,
        log_area_bytes: 64 << 10,
        debug: DebugDbOptions::default().version_log_bytes(64 << 10),
        ..DbOptions::default()
    };
    let ks = Options {
        write_buffer_bytes: 4 << 10,
        debug: DebugOptions::default().write_buffer_entries(40),
        block_bytes: 512,
        table_bytes: 1 << 10,
        bloom_bits: vec![10.0],
        compression: vec![Compression::None, Compression::None, Compression::Lz4],
        level_ratio: 2,
        base_level_bytes: 3 << 10,
        l0_trigger: 2,
        ..Options::default()
    };
    (db, ks)
}

fn open(disk: &Disk, seed: u64) -> weir::Result<Db> {
    let (db, ks) = options();
    disk.builder(seed).options(db).default_options(ks).open()
}

/// A key like those of the other campaigns, but short: with their longest, of 64 KiB, which bound
/// tables and so are in every edit, the store would have ten times the bits, more than can be
/// looked at. One is longer than a block.
fn short_key(id: u32) -> Vec<u8> {
    let mut key = key_bytes(id);
    key.truncate(if id == LONG_KEY { 700 } else { 64 });
    key
}

/// Number of the key that is long: the longest of the others.
const LONG_KEY: u32 = 8 * 63 + 4;

/// One key in so many is asked for after each damage.
const GETS: usize = 4;

/// Logs of another store, with some openings.
fn foreign_logs(seed: u64) -> weir::Result<Vec<(String, Vec<u8>)>> {
    let disk = Disk::new();
    for round in 0..3u8 {
        let db = open(&disk, seed ^ 0xf0)?;
        db.put_with(b"foreign", [round], Durability::Sync)?;
        db.close()?;
    }
    let logs = disk.names().into_iter().filter(|name| name.ends_with(".log"));
    let logs = logs.filter_map(|name| disk.sim.read_all(&name).map(|bytes| (name, bytes)));
    Ok(logs.filter(|(_, bytes)| bytes.iter().any(|&byte| byte != 0)).collect())
}

/// Builds the store.
fn specimen(seed: u64) -> Result<Specimen, String> {
    let schedule = Schedule::new(seed, 16);
    world::simulate(schedule, move || -> weir::Result<Specimen> {
        let disk = Disk::new();
        let db = open(&disk, seed)?;
        let second = db.keyspace_with("second", options().1)?;
        let mut rng = Prng::new(seed);
        let mut content = Content::new();
        let mut model: [BTreeMap<Vec<u8>, Vec<u8>>; 2] = Default::default();
        let mut versions = Versions::new();
        let mut in_log = std::collections::BTreeSet::new();
        let mut write = |rng: &mut Prng, space: usize, id: u32, durability| -> weir::Result<()> {
            let key = short_key(rng.below([520, 60][space]) as u32);
            let handle = if space == 0 { db.default_keyspace() } else { &second };
            let entry = (["default", "second"][space].to_owned(), key.clone());
            // Only what is written last is synced.
            if durability == Durability::Sync {
                in_log.insert(entry.clone());
            }
            let versions = versions.entry(entry).or_default();
            if rng.chance(1, 6) {
                model[space].remove(&key);
                versions.push(None);
                return handle.delete_with(&key, durability);
            }
            let value = Val { id, len: rng.below(70) as u32 }.bytes();
            handle.put_with(&key, &value, durability)?;
            versions.push(Some(value.clone()));
            model[space].insert(key, value);
            Ok(())
        };
        for id in 0..900 {
            write(&mut rng, usize::from(id % 8 == 0), id, Durability::Buffered)?;
        }
        db.default_keyspace().flush()?;
        second.flush()?;
        db.wait_idle()?;
        // A fresh base, then edits behind it.
        drop(second.clone());
        for id in 500..530 {
            write(&mut rng, 0, id, Durability::Buffered)?;
        }
        db.default_keyspace().flush()?;
        // In the log only, and synced.
        for id in 600..608 {
            write(&mut rng, usize::from(id % 2 == 0), id, Durability::Sync)?;
        }
        let metrics = db.metrics();
        let tables: u64 = metrics.keyspaces.iter().flat_map(|k| &k.levels).map(|l| l.tables).sum();
        let levels = world::levels_in_use(&db);
        drop(second);
        db.close()?;
        let [default, second] = model;
        content.insert("default".into(), default.into_iter().collect());
        content.insert("second".into(), second.into_iter().collect());
        let by_level =
            |k: &weir::KeyspaceMetrics| k.levels.iter().map(|l| l.tables).collect::<Vec<_>>();
        let tree: Vec<Vec<u64>> = metrics.keyspaces.iter().map(by_level).collect();
        let shape = format!("{levels} levels, {tables} tables {tree:?}; files: {:?}", disk.names());
        assert!(levels >= 3 && tables >= 8, "the store is too simple: {shape}");
        let foreign = foreign_logs(seed)?;
        Ok(Specimen { seed, disk, content, versions, in_log, foreign, shape })
    })?
    .map_err(|e| format!("building the store: {e}"))
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit()
}

/// The verdict on an error: every one says which file it is about, or that there is no store.
fn of_error(error: &weir::Error) -> (Verdict, String) {
    let text = error.to_string();
    let numbered = |end| text.match_indices(end).any(|(at, _)| text[..at].ends_with(is_digit));
    let named = text.contains("ROOT") || numbered(".tbl") || numbered(".log");
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
            (damage.clone(), *repair, damage.apply(&disk, &mine.foreign).then_some(disk))
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

fn files(disk: &Disk) -> Vec<(String, u64)> {
    let size = |name: String| {
        let len = disk.sim.read_all(&name).map_or(0, |bytes| bytes.len() as u64);
        (name, len)
    };
    disk.names().into_iter().map(size).collect()
}

/// Bits, evenly spread over all files if they are sampled.
fn flips(files: &[(String, u64)], sample: Option<u64>) -> Vec<Damage> {
    let total: u64 = files.iter().map(|f| f.1 * 8).sum();
    let wanted = sample.unwrap_or(total).clamp(1, total.max(1));
    let mut damages = Vec::with_capacity(wanted as usize);
    for n in 0..wanted {
        let mut bit = (u128::from(n) * u128::from(total) / u128::from(wanted)) as u64;
        if sample.is_some() {
            bit = (bit + n * 7 % (total / wanted).max(1)).min(total - 1);
        }
        for (file, len) in files {
            if bit < len * 8 {
                let (offset, bit) = (bit / 8, (bit % 8) as u32);
                damages.push(Damage::Flip { file: file.clone(), offset, bit });
                break;
            }
            bit -= len * 8;
        }
    }
    damages
}

/// Damage of whole sectors, files and names.
fn block_damages(files: &[(String, u64)], seed: u64) -> Vec<Damage> {
    let mut rng = Prng::new(seed);
    let mut damages = Vec::new();
    for (file, len) in files {
        let sectors = len.div_ceil(512);
        for sector in 0..sectors {
            damages.push(Damage::ZeroSector { file: file.clone(), offset: sector * 512 });
            damages.push(Damage::Truncate { file: file.clone(), len: sector * 512 });
            damages.push(Damage::Truncate {
                file: file.clone(),
                len: sector * 512 + rng.below(512).min(len - sector * 512),
            });
            let from = rng.below(sectors) * 512;
            damages.push(Damage::CopySector { file: file.clone(), from, to: sector * 512 });
        }
        damages.push(Damage::Append { file: file.clone() });
        damages.push(Damage::Delete { file: file.clone() });
        for (other, _) in files {
            if class(other) == class(file) && other > file {
                damages.push(Damage::Swap { a: file.clone(), b: other.clone() });
            }
        }
    }
    damages
}

/// Files of another store and copies of the store's own, among its logs.
fn strangers(files: &[(String, u64)], foreign: &[(String, Vec<u8>)]) -> Vec<Damage> {
    let mut damages = Vec::new();
    let logs = || files.iter().map(|(file, _)| file).filter(|file| file.ends_with(".log"));
    let names = |kind: &str| -> Vec<String> {
        let ours = logs().filter(|file| class(file) == class(kind)).map(|file| number(file));
        let last = ours.clone().max().unwrap_or(0);
        ours.chain([last + 1, last + FAR]).map(|number| with_number(kind, number)).collect()
    };
    for (log, (name, _)) in foreign.iter().enumerate() {
        damages.extend(names(name).into_iter().map(|to| Damage::Foreign { log, to }));
        damages.push(Damage::Foreign { log, to: name.clone() });
    }
    for from in logs() {
        let others = names(from).into_iter().filter(|to| to != from);
        damages.extend(others.map(|to| Damage::Copy { from: from.clone(), to }));
    }
    damages
}

/// Runs the campaign.
///
/// # Errors
/// If the undamaged store cannot be built or does not read as it was written.
pub fn run(settings: &Settings) -> Result<Report, String> {
    let specimen = Arc::new(specimen(settings.seed)?);
    let files: Vec<(String, u64)> =
        files(&specimen.disk).into_iter().filter(|f| f.0 != "LOCK").collect();
    let mut damages = flips(&files, settings.sample);
    if settings.blocks {
        damages.extend(block_damages(&files, settings.seed));
        damages.extend(strangers(&files, &specimen.foreign));
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
        bytes: files.iter().map(|f| f.1).sum(),
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
                let (kind, file) = damage.kind();
                let key = (kind.to_owned(), class(file));
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
