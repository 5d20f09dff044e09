//! The laboratory's own files: cached runs, images of loaded stores, directories of runs.
//!
//! The only place here that touches the file system outside of a store. Everything lies in one
//! cache directory that may be removed at any time:
//!
//! | path | what |
//! |---|---|
//! | `runs/KEY.json` | what a run gave; the key covers its options, the seed and the program |
//! | `images/KEY/` | a loaded store that runs start from; see `image` |
//! | `images/work/` | images that are being made: beside the others, so that a name is no copy |
//! | `work/` | stores that are measured in directories |
//!
//! A directory in `work` belongs to who holds the lock of the file beside it; one that nobody holds
//! is of a process that has ended in the middle, and is removed.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use weir::sim::{Dir, MemDir, Mode, RealDir};

/// What can go wrong, as a sentence.
pub type Result<T> = std::result::Result<T, String>;

fn failed(what: &str, path: &Path) -> impl FnOnce(std::io::Error) -> String {
    let text = format!("{what} {}", path.display());
    move |error| format!("{text}: {error}")
}

/// FNV-1a, in 128 bits.
pub(crate) fn hash(parts: &[&[u8]]) -> String {
    let mut hash = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
    for part in parts {
        // The length keeps two parts from being taken for one.
        let length = (part.len() as u64).to_le_bytes();
        for &byte in length.iter().chain(*part) {
            hash =
                (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }
    format!("{hash:032x}").split_off(12)
}

/// A hash of the running program: what it measures may change with any of its bytes.
fn program() -> Result<String> {
    static PROGRAM: OnceLock<Result<String>> = OnceLock::new();
    let read = || {
        let path = std::env::current_exe().map_err(|e| format!("finding this program: {e}"))?;
        #[expect(clippy::disallowed_methods, reason = "the program's own file, not a store's")]
        let bytes = std::fs::read(&path).map_err(failed("reading", &path))?;
        // Eight bytes at a time: the program has hundreds of megabytes with its symbols.
        let words = bytes.chunks(8).fold(0xcbf2_9ce4_8422_2325_u64, |hash, chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            (hash.rotate_left(23) ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        Ok(format!("{word:016x}", word = words))
    };
    PROGRAM.get_or_init(read).clone()
}

/// A key for what `parts` and this program determine.
///
/// # Errors
/// The program cannot be read.
pub fn key(parts: &[&str]) -> Result<String> {
    let program = program()?;
    let mut all: Vec<&[u8]> = vec![program.as_bytes()];
    all.extend(parts.iter().map(|part| part.as_bytes()));
    Ok(hash(&all))
}

/// Reads a file as text; `None` if there is none.
#[must_use]
pub fn read_text(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// Writes a file atomically.
///
/// # Errors
/// What failed, and where.
#[expect(clippy::disallowed_methods, reason = "files of the laboratory, not stores")]
pub fn write_text(path: &Path, text: &str) -> Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(failed("making", parent))?;
    }
    let draft = path.with_extension(format!("draft{}", std::process::id()));
    std::fs::write(&draft, text).map_err(failed("writing", &draft))?;
    std::fs::rename(&draft, path).map_err(failed("naming", path))
}

/// Removes a directory and all that is in it.
///
/// # Errors
/// What failed, and where.
pub(crate) fn remove_dir(path: &Path) -> Result<()> {
    std::fs::remove_dir_all(path).map_err(failed("removing", path))
}

/// The names in `path`.
pub(crate) fn list(path: &Path) -> Result<Vec<String>> {
    let dir = RealDir::open(path, false).map_err(|e| e.to_string())?;
    dir.list().map_err(|e| e.to_string())
}

/// Puts the store of `image` into the directory `path`: tables, which are never changed, by links,
/// the rest as copies.
///
/// # Errors
/// What failed, and where.
pub(crate) fn fill(path: &Path, image: &Path) -> Result<()> {
    for name in list(image)? {
        let (from, to) = (image.join(&name), path.join(&name));
        if !name.ends_with(".tbl") || std::fs::hard_link(&from, &to).is_err() {
            std::fs::copy(&from, &to).map_err(failed("copying", &from))?;
        }
    }
    Ok(())
}

/// A directory in memory that begins as the image does.
///
/// # Errors
/// What failed, and where.
pub(crate) fn above(image: &Path) -> Result<MemDir> {
    let image: Arc<dyn Dir> = RealDir::open(image, false).map_err(|e| e.to_string())?;
    MemDir::above(&image, weir::sim::class_of).map_err(|e| e.to_string())
}

/// Puts what is in `memory`, which began as the image `below`, into the directory `path`.
///
/// # Errors
/// What failed, and where.
#[expect(clippy::disallowed_methods, reason = "an image, as files")]
pub(crate) fn save(path: &Path, memory: &MemDir, below: Option<&Path>) -> Result<()> {
    for name in memory.list().map_err(|e| e.to_string())? {
        let to = path.join(&name);
        // A table's name is never given to another one.
        let same = below.filter(|_| name.ends_with(".tbl")).map(|below| below.join(&name));
        if same.is_none_or(|same| std::fs::hard_link(same, &to).is_err()) {
            std::fs::write(&to, bytes_of(memory, &name)?).map_err(failed("writing", &to))?;
        }
    }
    Ok(())
}

/// The bytes of the file `name`.
fn bytes_of(memory: &MemDir, name: &str) -> Result<Vec<u8>> {
    let read = || -> weir::Result<Vec<u8>> {
        let file = memory.open(name, weir::sim::class_of(name), Mode::Read)?;
        let mut bytes = vec![0; usize::try_from(file.len()?).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    };
    read().map_err(|e| e.to_string())
}

/// A hash of the names and bytes of all files in `memory`.
///
/// # Errors
/// What failed, and where.
pub(crate) fn hash_of(memory: &MemDir) -> Result<String> {
    let mut parts: Vec<Vec<u8>> = Vec::new();
    for name in memory.list().map_err(|e| e.to_string())? {
        parts.push(bytes_of(memory, &name)?);
        parts.push(name.into_bytes());
    }
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    Ok(hash(&parts))
}

/// Bytes of all tables in `path`.
#[cfg(test)]
pub(crate) fn bytes_in(path: &Path) -> Result<u64> {
    let tables = list(path)?.into_iter().filter(|name| name.ends_with(".tbl"));
    let sizes = tables.map(|name| std::fs::metadata(path.join(name)).map(|file| file.len()));
    let sizes: std::io::Result<Vec<u64>> = sizes.collect();
    sizes.map(|sizes| sizes.iter().sum()).map_err(failed("looking at", path))
}

/// A lock file, held.
struct Claim {
    path: PathBuf,
    /// The lock goes with it.
    _file: File,
}

impl Claim {
    /// The lock file `path`, made if need be; `None` if another process or thread holds it.
    fn new(path: PathBuf) -> std::io::Result<Option<Self>> {
        let mut options = File::options();
        #[expect(clippy::disallowed_methods, reason = "a file of the laboratory, not a store's")]
        let file = options.write(true).create(true).truncate(false).open(&path)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
            Ok(()) => Ok(Some(Self { path, _file: file })),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // It is removed while it is held: who opens it later finds another one.
        #[expect(clippy::disallowed_methods, reason = "a file of the laboratory, not a store's")]
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A directory of its own that is removed at the end.
pub struct WorkDir {
    path: PathBuf,
    _claim: Claim,
}

impl WorkDir {
    /// A new empty directory in `parent/work`.
    ///
    /// # Errors
    /// What failed, and where.
    pub fn new(parent: &Path) -> Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let work = parent.join("work");
        std::fs::create_dir_all(&work).map_err(failed("making", &work))?;
        loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = work.join(format!("{}-{number}", std::process::id()));
            let lock = path.with_extension(LOCK);
            // Held by a process of the same number elsewhere, which shares the folder.
            let Some(claim) = Claim::new(lock.clone()).map_err(failed("locking", &lock))? else {
                continue;
            };
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(&path).map_err(failed("making", &path))?;
            return Ok(Self { path, _claim: claim });
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it a name for good.
    ///
    /// # Errors
    /// What failed, and where. A directory of that name that another process made meanwhile is as
    /// good.
    pub fn keep_as(self, path: &Path) -> Result<()> {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(failed("making", parent))?;
        }
        #[expect(clippy::disallowed_methods, reason = "a directory of the laboratory")]
        match std::fs::rename(&self.path, path) {
            Err(_) if path.is_dir() => Ok(()),
            other => other.map_err(failed("naming", path)),
        }
    }

    /// Takes the directory `path` in, to be removed with this one: at once by its name, so that
    /// one that is removed in part is never taken for a whole one.
    ///
    /// # Errors
    /// What failed, and where.
    pub(crate) fn take(self, path: &Path) -> Result<()> {
        #[expect(clippy::disallowed_methods, reason = "a directory of the laboratory")]
        std::fs::rename(path, self.path.join("removed")).map_err(failed("removing", path))
    }
}

/// What the names of lock files end with.
const LOCK: &str = "lock";

/// Removes what processes that have ended left behind in the `work` directories of `cache`.
pub(crate) fn remove_left(cache: &Path) {
    for work in [cache.join("work"), cache.join("images").join("work")] {
        // There may be none, and what cannot be removed is only space.
        for name in list(&work).unwrap_or_default() {
            let lock = work.join(&name);
            if lock.extension().is_some_and(|end| end == LOCK)
                && let Ok(Some(_claim)) = Claim::new(lock.clone())
            {
                let _ = std::fs::remove_dir_all(lock.with_extension(""));
            }
        }
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        // What is left behind is only space, and is removed with the cache.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what a process left that was killed is removed, and what is being made is not.
    #[test]
    fn what_is_left_is_removed() {
        let cache = tempfile::tempdir().expect("a directory");
        let images = cache.path().join("images");
        let mine = WorkDir::new(&images).expect("made");
        let left = images.join("work").join("1-0");
        std::fs::create_dir_all(left.join("store")).expect("made");
        let other = Claim::new(left.with_extension(LOCK)).expect("made").expect("free");
        remove_left(cache.path());
        assert!(mine.path().is_dir() && left.is_dir(), "both are held");
        // The lock of a process that is gone is a file that nobody holds.
        write_text(&images.join("work").join("2-0.lock"), "").expect("written");
        std::fs::create_dir_all(images.join("work").join("2-0")).expect("made");
        remove_left(cache.path());
        assert!(!images.join("work").join("2-0").exists());
        let kept = images.join("kept");
        mine.keep_as(&kept).expect("named");
        assert!(kept.is_dir());
        drop(other);
        std::fs::remove_dir_all(left).expect("removed");
        assert_eq!(list(&images.join("work")), Ok(Vec::new()));
    }
}
