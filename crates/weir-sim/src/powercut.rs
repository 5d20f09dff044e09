//! Campaign K3: power cuts through the real block layer.
//!
//! A store, on slots or in files, writes to a loop device whose disk remembers every write and
//! flush (`disk`). Afterwards the power is cut at random places of that history: what was written
//! before the last flush is there, and of the rest any sectors. Each image is a file that is opened
//! as a store, or mounted.
//!
//! Promise: it opens; it holds the first commits of the history, no others and none in part; every
//! commit that was acknowledged with `Sync` before the cut is among them; all tables verify; and it
//! takes further writes.
//!
//! The simulation cuts the power at every call of the engine. Here it is seen whether these calls
//! reach a disk as the engine believes: through page cache, direct requests and flushes of the
//! kernel.

#![expect(
    clippy::disallowed_methods,
    reason = "this campaign is about a real device and real threads"
)]

mod disk;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use weir::sim::Prng;
use weir::{
    Db, DbOptions, Durability, FormatOptions, Keyspace, LeveledOptions, Options, WriteBatch,
};

use disk::{Device, Disk, Event, Mounted};

const KEYS: u64 = 800;
/// Holds the number of the last commit.
const COUNTER: &[u8] = b"~counter";

/// Where the store lies.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// `slots`, or the file system as `mkfs` calls it.
    pub name: &'static str,
    /// Bytes of the disk: about the least that each takes.
    disk_bytes: usize,
}

impl Form {
    /// Straight on the device.
    pub const SLOTS: Self = Self { name: "slots", disk_bytes: 32 << 20 };

    /// Every form; the others are in files.
    pub const ALL: [Self; 4] = [
        Self::SLOTS,
        Self { name: "ext4", disk_bytes: 64 << 20 },
        Self { name: "xfs", disk_bytes: 320 << 20 },
        Self { name: "btrfs", disk_bytes: 128 << 20 },
    ];

    /// The file system that the store is in files of.
    fn file_system(self) -> Option<&'static str> {
        (self.name != Self::SLOTS.name).then_some(self.name)
    }
}

/// How a run of the campaign is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the store lies.
    pub form: Form,
    /// Decides what is written and where the power is cut.
    pub seed: u64,
    /// Images of a history.
    pub images: u64,
    /// Histories.
    pub histories: u64,
    /// Commits of a history.
    pub commits: u64,
    /// Directory for the disk and images.
    pub dir: PathBuf,
}

/// What the campaign did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Images opened.
    pub images: u64,
    /// Writes and flushes of all histories.
    pub writes: u64,
    /// See `writes`.
    pub flushes: u64,
    /// Images with writes after the last flush, of which some were left out.
    pub torn: u64,
    /// Commits that images held beyond the last one that was acknowledged with `Sync`.
    pub beyond: u64,
    /// Tables of all images.
    pub tables: u64,
    /// Images that were written to and opened again.
    pub written: u64,
}

type Content = [BTreeMap<Vec<u8>, Vec<u8>>; 2];
type Items = Vec<(usize, Vec<u8>, Option<Vec<u8>>)>;

/// What commit `number` of a history does.
fn commit(seed: u64, number: u64) -> (Items, Durability) {
    let mut rng = Prng::new(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let count = if rng.chance(1, 20) { 60 } else { 1 + rng.below(4) };
    let mut items: Items = Vec::new();
    for n in 0..count {
        let key = format!("{:06}", rng.below(KEYS)).into_bytes();
        let value = rng.chance(4, 5).then(|| {
            let mut value = number.to_le_bytes().to_vec();
            let bytes = if rng.chance(1, 40) { 9000 } else { 9 + rng.below(500) };
            value.resize(bytes as usize, n as u8);
            value
        });
        items.push((rng.below(2) as usize, key, value));
    }
    items.push((0, COUNTER.to_vec(), Some(number.to_le_bytes().to_vec())));
    // Rows of synced commits begin with pages of their own, which go past the page cache.
    let synced = (number / 16).is_multiple_of(2) || rng.chance(1, 4);
    (items, if synced { Durability::Sync } else { Durability::Buffered })
}

fn open(path: &Path) -> weir::Result<(Db, [Keyspace; 2])> {
    let options = DbOptions::default().memory_budget(4 << 20);
    let small = Options::default()
        .write_buffer_bytes(64 << 10)
        .table_bytes(64 << 10)
        .compaction(LeveledOptions::default().base_level_bytes(128 << 10).level_ratio(4));
    let db = Db::builder(path).options(options).default_options(small.clone()).open()?;
    let second = db.keyspace_with("second", small)?;
    let first = db.default_keyspace().clone();
    Ok((db, [first, second]))
}

/// When something was known, as the number of events that the disk had seen by then.
#[derive(Default)]
struct Known {
    /// Before the commit of this number, from 1 on.
    begun: Vec<usize>,
    /// After a commit with `Sync`, and its number.
    synced: Vec<(usize, u64)>,
}

impl Known {
    /// The commits that must and that may be there after a cut before event `cut`.
    fn bounds(&self, cut: usize) -> (u64, u64) {
        let at_least = self.synced.iter().rev().find(|(events, _)| *events <= cut);
        let at_most = self.begun.partition_point(|&events| events <= cut);
        (at_least.map_or(0, |(_, number)| *number), at_most as u64)
    }
}

/// Why the campaign cannot run here; `None` if it can.
#[must_use]
pub fn missing(dir: &Path) -> Option<String> {
    Device::over(&Disk::new(1 << 20), dir).err()
}

/// Runs the campaign.
///
/// # Errors
/// The first violation, with seed, history and cut; what is missing.
pub fn run(settings: &Settings) -> Result<Report, String> {
    let mut report = Report::default();
    for history in 0..settings.histories {
        let seed = settings.seed.wrapping_add(history.wrapping_mul(0x1_0000_0001));
        one_history(settings, seed, &mut report)
            .map_err(|why| format!("seed {}, history {history}: {why}", settings.seed))?;
    }
    let Report { torn, beyond, flushes, tables, written, .. } = report;
    if [torn, beyond, flushes, tables, written].contains(&0) {
        return Err(format!("something was never looked at: {report:#?}"));
    }
    Ok(report)
}

fn one_history(settings: &Settings, seed: u64, report: &mut Report) -> Result<(), String> {
    let disk = Disk::new(settings.form.disk_bytes);
    let (before, known) = write_history(settings, seed, &disk)?;
    let events = disk.take_events();
    let flushes = events.iter().filter(|event| matches!(event, Event::Flush)).count();
    report.flushes += flushes as u64;
    report.writes += (events.len() - flushes) as u64;
    let mut rng = Prng::new(seed ^ 0xc07);
    let mut cuts: Vec<usize> =
        (0..settings.images).map(|_| rng.below(events.len() as u64 + 1) as usize).collect();
    cuts.sort_unstable();
    let mut image = Image { durable: before, since: Vec::new() };
    let mut seen = 0;
    let mut model = Model::new(seed);
    for (number, cut) in cuts.into_iter().enumerate() {
        events[seen..cut].iter().for_each(|event| image.take(event));
        seen = cut;
        let path = settings.dir.join("image");
        let torn = image.cut(settings.form, &mut rng);
        report.torn += u64::from(torn.1);
        fs::write(&path, torn.0).map_err(|e| format!("writing {}: {e}", path.display()))?;
        let (at_least, at_most) = known.bounds(cut);
        let bounds = (at_least, at_most);
        let checked = match settings.form.file_system() {
            None => check(&path, bounds, &mut model, number % 8 == 0, report),
            Some(name) => Mounted::new(&path, name, &settings.dir).and_then(|mounted| {
                let store = mounted.path().join("store");
                check(&store, bounds, &mut model, number % 8 == 0, report)
            }),
        };
        if let Err(why) = checked {
            return Err(format!("cut before event {cut} of {}: {why}", events.len()));
        }
        report.images += 1;
    }
    Ok(())
}

/// Writes a history to a new store on `disk`: what the disk held before, and what was known when.
fn write_history(settings: &Settings, seed: u64, disk: &Disk) -> Result<(Vec<u8>, Known), String> {
    let failed = |error: weir::Error| error.to_string();
    let device = Device::over(disk, &settings.dir)?;
    let mounted = match settings.form.file_system() {
        None => {
            weir::format(device.path(), &FormatOptions::new()).map_err(failed)?;
            None
        }
        Some(name) => {
            Mounted::make(device.path(), name)?;
            Some(Mounted::new(device.path(), name, &settings.dir)?)
        }
    };
    let store = mounted.as_ref().map(|mounted| mounted.path().join("store"));
    let (db, spaces) = open(store.as_deref().unwrap_or(device.path())).map_err(failed)?;
    db.put_with(b"", b"", Durability::Sync).map_err(failed)?;
    let before = disk.record();
    let mut known = Known::default();
    for number in 1..=settings.commits {
        let (items, durability) = commit(seed, number);
        known.begun.push(disk.len());
        let mut batch = WriteBatch::new();
        for (space, key, value) in &items {
            match value {
                Some(value) => batch.put(&spaces[*space], key, value),
                None => batch.delete(&spaces[*space], key),
            };
        }
        db.write(&mut batch, durability).map_err(failed)?;
        if durability == Durability::Sync {
            known.synced.push((disk.len(), number));
        }
    }
    drop(spaces);
    db.close().map_err(failed)?;
    drop(mounted);
    Ok((before, known))
}

/// A disk while its history is read.
struct Image {
    /// What was durable at the last flush.
    durable: Vec<u8>,
    /// What was written since, in this order.
    since: Vec<(usize, Vec<u8>)>,
}

impl Image {
    fn take(&mut self, event: &Event) {
        match event {
            Event::Write(at, bytes) => self.since.push((*at, bytes.clone())),
            Event::Flush => {
                for (at, bytes) in self.since.drain(..) {
                    self.durable[at..at + bytes.len()].copy_from_slice(&bytes);
                }
            }
        }
    }

    /// What a power cut leaves now, and whether that lacks something of what was written. File
    /// systems expect that a block of 4 KiB is whole.
    fn cut(&self, form: Form, rng: &mut Prng) -> (Vec<u8>, bool) {
        let mut left = self.durable.clone();
        // All of what the cache had, nothing, or any of it.
        let (kept, of) = [(1, 1), (0, 1), (1, 2), (7, 8)][rng.below(4) as usize];
        let sector = if form.file_system().is_none() && rng.chance(1, 2) { 512 } else { 4096 };
        let mut lacks = false;
        for (at, bytes) in &self.since {
            for (piece, bytes) in bytes.chunks(sector).enumerate() {
                if rng.chance(kept, of) {
                    let at = at + piece * sector;
                    left[at..at + bytes.len()].copy_from_slice(bytes);
                } else {
                    lacks = true;
                }
            }
        }
        (left, lacks)
    }
}

/// The content after the first commits of a history.
struct Model {
    seed: u64,
    commits: u64,
    content: Content,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut content = Content::default();
        content[0].insert(Vec::new(), Vec::new());
        Self { seed, commits: 0, content }
    }

    fn go_to(&mut self, commits: u64) -> &Content {
        if commits < self.commits {
            *self = Self::new(self.seed);
        }
        while self.commits < commits {
            self.commits += 1;
            for (space, key, value) in commit(self.seed, self.commits).0 {
                match value {
                    Some(value) => _ = self.content[space].insert(key, value),
                    None => _ = self.content[space].remove(&key),
                }
            }
        }
        &self.content
    }
}

/// Opens an image and compares it with the history.
fn check(
    path: &Path,
    (at_least, at_most): (u64, u64),
    model: &mut Model,
    write: bool,
    report: &mut Report,
) -> Result<(), String> {
    let failed = |what: &'static str| move |error: weir::Error| format!("{what}: {error}");
    let (db, spaces) = open(path).map_err(failed("opening"))?;
    let counter = db.get(COUNTER).map_err(failed("reading"))?;
    let counter = counter.map(|bytes| bytes.as_ref().try_into().map(u64::from_le_bytes));
    let commits = counter.transpose().map_err(|_| "a counter of a wrong size")?.unwrap_or(0);
    if !(at_least..=at_most).contains(&commits) {
        return Err(format!("{commits} commits, not {at_least} to {at_most}"));
    }
    report.beyond += commits - at_least;
    let expected = model.go_to(commits);
    for (space, expected) in spaces.iter().zip(expected) {
        let found = space.iter().map(|pair| pair.map(|(k, v)| (k.to_vec(), v.to_vec())));
        let found: BTreeMap<_, _> = found.collect::<weir::Result<_>>().map_err(failed("a scan"))?;
        if found != *expected {
            let wrong = expected.iter().find(|(key, value)| found.get(*key) != Some(value));
            return Err(format!(
                "after {commits} commits {} pairs, not {}; such as {:?}",
                found.len(),
                expected.len(),
                wrong.map(|(key, _)| String::from_utf8_lossy(key).into_owned())
            ));
        }
    }
    let verified = db.verify().map_err(failed("verifying"))?;
    if let Some(damage) = verified.damages.first() {
        return Err(format!("damage: {damage:?}"));
    }
    report.tables += verified.tables;
    if !write {
        return Ok(());
    }
    db.put_with(b"again", b"and again", Durability::Sync).map_err(failed("writing"))?;
    drop(spaces);
    db.close().map_err(failed("closing"))?;
    let (db, _) = open(path).map_err(failed("opening again"))?;
    let again = db.get(b"again").map_err(failed("reading again"))?;
    report.written += 1;
    match again.as_deref() {
        Some(b"and again") => Ok(()),
        other => Err(format!("what was written to the image is {other:?}")),
    }
}
