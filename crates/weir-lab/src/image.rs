//! Images: loaded stores that runs start from, made once and kept for later programs.
//!
//! An image is a loaded store, or one that has aged by `load.updates` as well; the second is made
//! from the first, which trees of several policies share. It is kept by what its bytes depend on:
//! the options, the seed, and the engine. For the engine stands a *probe*: the same image at a
//! small part of its size, made anew by every program; its bytes change with the policies and the
//! table format, and do not when something else does.
//!
//! An image is a cache: one that cannot be opened is an error that says which directory to remove,
//! or is made again where that is asked for.
//!
//! Not here: how a store is loaded and ages (`store`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use weir::sim::{Dir, MemDir, RealDir};
use weir::{Db, DbOptions, ErrorKind};

use crate::files::{self, WorkDir};
use crate::sentinels::{Ranges, Sentinels};
use crate::settings::{
    CompactionBuffer, Durability, Eviction, Load, Order, Settings, Store, WarmUp,
};
use crate::store;

/// A probe has so many keys at least, so that its tree has a few merges, and a part of the image's
/// otherwise.
const PROBE_KEYS_MIN: u64 = 4_000;

/// What an image is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Loaded,
    Aged,
}

/// Where images are kept.
#[derive(Clone, Copy, Debug)]
pub struct Images<'a> {
    /// The cache of which they are a part.
    pub cache: &'a Path,
    /// Whether one that is damaged is made again. All of its bytes are read first.
    pub again: bool,
}

/// The image that a run with `settings` starts from: one that is kept, or made now.
///
/// # Errors
/// The engine's and the file system's, as text; an image that cannot be opened.
pub fn of(
    images: Images<'_>,
    settings: &Settings,
    seed: u64,
    processor: usize,
) -> Result<PathBuf, String> {
    let loaded = kept(images, Stage::Loaded, settings, seed, processor, |path| {
        made(path, None, settings, |files| store::load(files, settings, seed, processor))
    })?;
    if settings.load.updates == 0 {
        return Ok(loaded);
    }
    kept(images, Stage::Aged, settings, seed, processor, |path| {
        let below = Some(loaded.as_path());
        made(path, below, settings, |files| store::age(files, settings, seed, processor))
    })
}

/// The images that [`of`] makes or takes for a run with `settings`.
pub(crate) fn stages(settings: &Settings) -> &'static [Stage] {
    match (settings.load.keys, settings.load.updates) {
        (0, _) => &[],
        (_, 0) => &[Stage::Loaded],
        _ => &[Stage::Loaded, Stage::Aged],
    }
}

/// Removes an image that no run will start from again, if there is one.
///
/// # Errors
/// The file system's, as text.
pub(crate) fn discard(
    images: Images<'_>,
    stage: Stage,
    settings: &Settings,
    seed: u64,
    processor: usize,
) -> Result<(), String> {
    let path = path_of(images, stage, settings, seed, processor)?;
    if !path.is_dir() {
        return Ok(());
    }
    WorkDir::new(&images.cache.join("images"))?.take(&path)
}

/// That the image in `path` can be opened; that all of its bytes are sound, if `whole`.
///
/// # Errors
/// What is wrong with it, and which directory to remove.
pub fn check(path: &Path, whole: bool) -> Result<(), String> {
    let wrong = |what: &dyn std::fmt::Display| {
        Err(format!(
            "the image {} is damaged: {what}; it is a cache: remove this directory, and it is made \
             again, as it is with --fresh",
            path.display()
        ))
    };
    let files = match files::above(path) {
        Ok(files) => files,
        Err(error) => return wrong(&error),
    };
    // An empty store would be opened as well as the image.
    let options = DbOptions::default().create_if_missing(false);
    let db = match Db::builder("image").device(files.dir()).options(options).open() {
        Ok(db) => db,
        Err(error) if error.kind() == ErrorKind::NotFound => return wrong(&"it has no store"),
        Err(error) => return wrong(&format_args!("{error:#}")),
    };
    let damage = match whole.then(|| db.verify()) {
        Some(Ok(report)) => report.damages.into_iter().next(),
        Some(Err(error)) => Some(error),
        None => None,
    };
    db.close().map_err(|e| e.to_string())?;
    damage.map_or(Ok(()), |damage| wrong(&format_args!("{damage:#}")))
}

/// Bytes of a loaded store up to which images are made in memory: one may have three times as many
/// while it ages, and one is made for each processor.
const IN_MEMORY_BYTES_MAX: u64 = 2 << 30;

/// Lets `make` work on a directory that begins as the image `below`, and leaves it in the empty
/// directory `path`. In memory if it fits: an operating system's files take longer than merges.
fn made(
    path: &Path,
    below: Option<&Path>,
    settings: &Settings,
    make: impl FnOnce(Arc<dyn Dir>) -> Result<(), String>,
) -> Result<(), String> {
    if settings.loaded_bytes() / u64::from(settings.disk.charge) > IN_MEMORY_BYTES_MAX {
        if let Some(below) = below {
            files::fill(path, below)?;
        }
        return make(RealDir::open(path, true).map_err(|e| e.to_string())?);
    }
    let memory = match below {
        Some(below) => files::above(below)?,
        None => MemDir::new(&path.display().to_string()),
    };
    make(memory.dir())?;
    files::save(path, &memory, below)
}

/// The image of `stage`; `make` puts it into an empty directory if there is none.
fn kept(
    images: Images<'_>,
    stage: Stage,
    settings: &Settings,
    seed: u64,
    processor: usize,
    make: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let path = path_of(images, stage, settings, seed, processor)?;
    // Two runs often need the same image at once. Whether it is known to be sound.
    static MAKING: Mutex<BTreeMap<PathBuf, Arc<Mutex<bool>>>> = Mutex::new(BTreeMap::new());
    let one = {
        let mut making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(making.entry(path.clone()).or_default())
    };
    let mut sound = one.lock().map_err(|_| "making an image panicked")?;
    if !*sound && path.is_dir() {
        match check(&path, images.again) {
            Err(_) if images.again => files::remove_dir(&path)?,
            checked => checked?,
        }
    }
    if !path.is_dir() {
        let work = WorkDir::new(&images.cache.join("images"))?;
        make(work.path())?;
        work.keep_as(&path)?;
    }
    *sound = true;
    Ok(path)
}

/// Where the image of `stage` is, or would be.
fn path_of(
    images: Images<'_>,
    stage: Stage,
    settings: &Settings,
    seed: u64,
    processor: usize,
) -> Result<PathBuf, String> {
    let (text, seed_text) = (stated(stage, settings)?, seed.to_string());
    let probe = probe(stage, settings, seed, processor)?;
    let name = files::hash(&[text.as_bytes(), seed_text.as_bytes(), probe.as_bytes()]);
    Ok(images.cache.join("images").join(name))
}

/// What the bytes of an image depend on, as text: the cache's size and the like do not change one.
pub(crate) fn stated(stage: Stage, settings: &Settings) -> Result<String, String> {
    let policies = match stage {
        Stage::Loaded => vec![settings.load.policy],
        Stage::Aged => vec![settings.load.policy, settings.store.policy],
    };
    let trees: Result<Vec<_>, String> =
        policies.iter().map(|&policy| settings.policies.tree(policy)).collect();
    let mut load = settings.load.clone();
    let mut store = Store {
        block_cache_bytes: 0,
        row_cache_bytes: 0,
        eviction: Eviction::Lru,
        warm_up: WarmUp::None,
        durability: Durability::None,
        trim_threshold: 0.0,
        trim_interval_seconds: 0.0,
        sentinels: Sentinels::Off,
        sentinel_bucket_keys: 1,
        sentinel_scans: 1,
        sentinel_ranges: Ranges::Quantile,
        sentinel_theta: 1.0,
        sentinel_window_seconds: 0.0,
        ..settings.store.clone()
    };
    if stage == Stage::Loaded {
        store.compaction_buffer = CompactionBuffer::Off;
    }
    if stage == Stage::Loaded {
        load.updates = 0;
        store.policy = load.policy;
        if load.order == Order::Sequential {
            // Loaded in key order, memtables have the size of tables.
            (store.write_buffer_bytes, store.write_buffer_entries) = (0, 0);
        }
    }
    Ok(format!("{stage:?} {load:?} {:?} {store:?}", trees?))
}

/// The hash of a small image of the same kind.
fn probe(stage: Stage, settings: &Settings, seed: u64, processor: usize) -> Result<String, String> {
    static MADE: Mutex<BTreeMap<(String, u64), String>> = Mutex::new(BTreeMap::new());
    let part = (settings.load.keys / PROBE_KEYS_MIN).max(1);
    let mut small = settings.clone().scaled(u32::try_from(part).unwrap_or(u32::MAX));
    if stage == Stage::Loaded {
        small.load = Load { updates: 0, ..small.load };
    }
    let key = (stated(stage, &small)?, seed);
    if let Some(hash) = MADE.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
        return Ok(hash.clone());
    }
    let memory = MemDir::new("the store of a probe");
    store::load(memory.dir(), &small, seed, processor)?;
    if stage == Stage::Aged {
        store::age(memory.dir(), &small, seed, processor)?;
    }
    let hash = files::hash_of(&memory)?;
    MADE.lock().unwrap_or_else(PoisonError::into_inner).insert(key, hash.clone());
    Ok(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::Policy;

    fn settings() -> Settings {
        let experiment = crate::catalog::named("lsbm-fig11a").expect("built in");
        let mut settings = experiment.runs[0].settings.clone().scaled(4096);
        settings.load.updates = 2 * settings.load.keys;
        // Fewer files: they take longer than what is in them.
        settings.store.table_bytes = 256 << 10;
        settings
    }

    /// Goal: an image is taken again where nothing changed that its bytes depend on, and only
    /// there. Method: the names under one change at a time; what does not matter, and what does.
    #[test]
    fn images_are_made_once() {
        let cache = tempfile::tempdir().expect("a directory");
        let cache = cache.path();
        let images = Images { cache, again: false };
        let of =
            |settings: &Settings, seed: u64| super::of(images, settings, seed, 0).expect("made");
        let first = of(&settings(), 1);
        let mut same = settings();
        same.store.block_cache_bytes += 1;
        same.store.eviction = Eviction::S3Fifo;
        same.store.warm_up = WarmUp::Incremental;
        same.store.durability = Durability::Sync;
        same.store.trim_threshold /= 2.0;
        same.readers.get_mut("main").expect("a group").threads += 1;
        assert_eq!(of(&same, 1), first);
        let changes: [fn(&mut Settings); 6] = [
            |settings| settings.load.updates += 1,
            |settings| settings.store.policy = Policy::Leveled,
            |settings| settings.store.bloom_bits = 3.0,
            |settings| settings.load.value_bytes += 1,
            |settings| settings.store.compaction_buffer = CompactionBuffer::Cascade,
            |settings| settings.store.compaction_buffer = CompactionBuffer::Trimmed,
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut other = settings();
            change(&mut other);
            assert_ne!(of(&other, 1), first, "change {number}");
        }
        assert_ne!(of(&settings(), 2), first);
    }

    /// Goal: a tree that has aged is as full as it stays, and one that was only loaded is not.
    /// Method: sizes after one and after two more lives.
    #[test]
    fn a_tree_ages_until_it_is_steady() {
        let cache = tempfile::tempdir().expect("a directory");
        let bytes = |updates: u64| {
            let mut settings = settings();
            settings.load.updates = updates * settings.load.keys;
            let images = Images { cache: cache.path(), again: false };
            let path = super::of(images, &settings, 1, 0).expect("made");
            files::bytes_in(&path).expect("sizes") as f64
        };
        let (loaded, once, twice) = (bytes(0), bytes(2), bytes(3));
        assert!(once > 1.2 * loaded, "{once} of {loaded}");
        assert!((once / twice - 1.0).abs() < 0.15, "{once} and {twice}");
    }

    /// Goal: a tree with a compaction buffer begins with lists, those that are trimmed too. Method:
    /// what they take of the disk, beside a tree without.
    #[test]
    fn a_tree_ages_with_its_lists() {
        let cache = tempfile::tempdir().expect("a directory");
        let bytes = |buffer: CompactionBuffer| {
            let mut settings = settings();
            settings.store.compaction_buffer = buffer;
            let images = Images { cache: cache.path(), again: false };
            let path = super::of(images, &settings, 1, 0).expect("made");
            files::bytes_in(&path).expect("sizes") as f64
        };
        let [off, cascade, trimmed] =
            [CompactionBuffer::Off, CompactionBuffer::Cascade, CompactionBuffer::Trimmed]
                .map(bytes);
        assert!(cascade > 1.1 * off && trimmed > 1.1 * off, "{off}, {cascade}, {trimmed}");
    }

    /// Goal: an image that is damaged is said to be a cache, by its directory. Method: a table of
    /// which some bytes are others, and an empty directory.
    #[test]
    fn damaged_images_are_named() {
        let cache = tempfile::tempdir().expect("a directory");
        let mut settings = settings();
        settings.load.updates = 0;
        let images = Images { cache: cache.path(), again: false };
        let path = of(images, &settings, 1, 0).expect("made");
        check(&path, true).expect("sound");
        let names = RealDir::open(&path, false).expect("there").list().expect("listed");
        let table = names.iter().find(|name| name.ends_with(".tbl")).expect("a table");
        let refused = |whole: bool, what: &str| {
            let error = check(&path, whole).expect_err(what);
            for part in [path.to_str().expect("plain"), what, "remove this directory"] {
                assert!(error.contains(part), "{part} in {error}");
            }
            assert!(!error.contains("weir repair"), "{error}");
        };
        let bytes = std::fs::metadata(path.join(table)).expect("a table").len();
        #[expect(clippy::disallowed_methods, reason = "damage is done to the file itself")]
        let file = std::fs::File::options().write(true).open(path.join(table)).expect("opened");
        std::os::unix::fs::FileExt::write_all_at(&file, &[0x55; 64], bytes / 3).expect("written");
        check(&path, false).expect("it can be opened");
        refused(true, "damaged");
        files::remove_dir(&path).expect("removed");
        std::fs::create_dir(&path).expect("made");
        refused(false, "it has no store");
    }
}
