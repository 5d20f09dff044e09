//! A directory in memory, for experiments: alone, or above another directory that it reads and
//! never changes.
//!
//! What is created is in memory. A file of the directory below is read where it is, and copied into
//! memory by the first handle that may write it; removed names and new lengths are remembered here.
//! So many stores can start from one image, and none pays for files of an operating system: those
//! below are opened for each read, because an image has more tables than a process descriptors.
//!
//! Not here: durability (a sync does nothing), time (`device::spindle`), faults (`device::sim`,
//! `device::faulty`).
//!
//! Invariants: (1) the directory below is only listed and read; (2) open files outlive their names;
//! (3) [`MemDir::copy`] is the state of one instant, as a process that is killed leaves it, and
//! shares content with the original until either writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::sched::Mutex;
use crate::device::sim::content::Content;
use crate::device::{Dir, File, FileClass, Lock, Mode, assert_name, assert_range};

/// A directory in memory; see the module. A clone is the same directory.
#[derive(Clone)]
pub struct MemDir {
    shared: Arc<Shared>,
}

struct Shared {
    path: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    names: BTreeMap<String, Node>,
    locks: BTreeSet<String>,
}

/// A file, or one of the directory below.
#[derive(Clone)]
enum Node {
    Memory(Arc<Mutex<Content>>),
    Below(Arc<Below>),
}

impl std::fmt::Debug for MemDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemDir").field("path", &self.shared.path).finish_non_exhaustive()
    }
}

impl MemDir {
    /// An empty directory that messages call `path`.
    #[must_use]
    pub fn new(path: &str) -> Self {
        Self::of(path, BTreeMap::new())
    }

    /// A directory with the files of `below`, which is not changed. `class_of` returns the class of
    /// each.
    ///
    /// # Errors
    /// Those of listing and opening them.
    pub fn above(dir: &Arc<dyn Dir>, class_of: impl Fn(&str) -> FileClass) -> Result<Self> {
        let mut names = BTreeMap::new();
        for name in dir.list()?.into_iter().filter(|name| !name.ends_with('/')) {
            let class = class_of(&name);
            let bytes = dir.open(&name, class, Mode::Read)?.len()?;
            let below = Below { dir: Arc::clone(dir), name: name.clone(), class, bytes };
            names.insert(name, Node::Below(Arc::new(below)));
        }
        Ok(Self::of(&dir.path(), names))
    }

    /// Another directory with the same files, as they are now. Nothing is locked in it.
    #[must_use]
    pub fn copy(&self) -> Self {
        let state = self.shared.state.lock();
        let copy = |node: &Node| match node {
            Node::Memory(content) => Node::Memory(Arc::new(Mutex::new(content.lock().clone()))),
            Node::Below(file) => Node::Below(Arc::clone(file)),
        };
        let names = state.names.iter().map(|(name, node)| (name.clone(), copy(node)));
        Self::of(&self.shared.path, names.collect())
    }

    /// A handle for the engine.
    #[must_use]
    pub fn dir(&self) -> Arc<dyn Dir> {
        Arc::new(self.clone())
    }

    fn of(path: &str, names: BTreeMap<String, Node>) -> Self {
        let state = State { names, locks: BTreeSet::new() };
        Self { shared: Arc::new(Shared { path: path.to_owned(), state: Mutex::new(state) }) }
    }

    fn path_of(&self, name: &str) -> String {
        format!("{}/{name}", self.shared.path)
    }

    fn missing(&self, what: &str, name: &str) -> Error {
        let path = self.path_of(name);
        Error::new(ErrorKind::NotFound, format!("{what} {path}: there is no such file"))
    }

    fn handle(&self, name: &str, content: Arc<Mutex<Content>>) -> Arc<dyn File> {
        Arc::new(MemFile { path: self.path_of(name), content })
    }
}

/// All bytes of a file, as content in memory.
fn read_whole(file: &dyn File) -> Result<Content> {
    let mut content = Content::default();
    let (bytes, mut at) = (file.len()?, 0);
    let mut buf = vec![0; 1 << 20];
    while at < bytes {
        let got = file.read_at(&mut buf, at)?;
        let Some(read) = buf.get(..got).filter(|read| !read.is_empty()) else { break };
        content.write(at, read);
        at += got as u64;
    }
    content.set_len(bytes);
    Ok(content)
}

impl Dir for MemDir {
    fn create(&self, name: &str, _class: FileClass) -> Result<Arc<dyn File>> {
        assert_name(name);
        let content = Arc::new(Mutex::new(Content::default()));
        let mut state = self.shared.state.lock();
        if state.names.contains_key(name) {
            let what = format!("creating {}: it exists", self.path_of(name));
            return Err(Error::new(ErrorKind::Conflict, what));
        }
        state.names.insert(name.to_owned(), Node::Memory(Arc::clone(&content)));
        Ok(self.handle(name, content))
    }

    fn open(&self, name: &str, _class: FileClass, mode: Mode) -> Result<Arc<dyn File>> {
        let mut state = self.shared.state.lock();
        let node = state.names.get_mut(name).ok_or_else(|| self.missing("opening", name))?;
        match node {
            Node::Below(file) if mode == Mode::Read => {
                let file: Arc<Below> = Arc::clone(file);
                Ok(file)
            }
            Node::Below(file) => {
                let content = Arc::new(Mutex::new(read_whole(file.as_ref())?));
                *node = Node::Memory(Arc::clone(&content));
                Ok(self.handle(name, content))
            }
            Node::Memory(content) => Ok(self.handle(name, Arc::clone(content))),
        }
    }

    fn rename(&self, from: &str, to: &str, _class: FileClass) -> Result<()> {
        assert_name(to);
        let mut state = self.shared.state.lock();
        let node = state.names.remove(from).ok_or_else(|| self.missing("renaming", from))?;
        state.names.insert(to.to_owned(), node);
        Ok(())
    }

    fn unlink(&self, name: &str, _class: FileClass) -> Result<()> {
        let removed = self.shared.state.lock().names.remove(name);
        removed.map(drop).ok_or_else(|| self.missing("removing", name))
    }

    fn list(&self) -> Result<Vec<String>> {
        Ok(self.shared.state.lock().names.keys().cloned().collect())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn lock(&self, name: &str) -> Result<Box<dyn Lock>> {
        let mut state = self.shared.state.lock();
        if !state.locks.insert(name.to_owned()) {
            let what = format!("{} is held already; close the store there first", self.path());
            return Err(Error::new(ErrorKind::Locked, what));
        }
        let empty = || Node::Memory(Arc::new(Mutex::new(Content::default())));
        state.names.entry(name.to_owned()).or_insert_with(empty);
        Ok(Box::new(MemLock { shared: Arc::clone(&self.shared), name: name.to_owned() }))
    }

    fn path(&self) -> String {
        self.shared.path.clone()
    }
}

struct MemLock {
    shared: Arc<Shared>,
    name: String,
}

impl Lock for MemLock {}

impl Drop for MemLock {
    fn drop(&mut self) {
        self.shared.state.lock().locks.remove(&self.name);
    }
}

/// A file of the directory below, for reading.
struct Below {
    dir: Arc<dyn Dir>,
    name: String,
    class: FileClass,
    bytes: u64,
}

impl Below {
    fn read_only(&self) -> Error {
        Error::new(ErrorKind::ReadOnly, format!("{} is opened for reading", self.path()))
    }
}

impl File for Below {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.dir.open(&self.name, self.class, Mode::Read)?.read_at(buf, offset)
    }

    fn write_at(&self, _buf: &[u8], _offset: u64) -> Result<()> {
        Err(self.read_only())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.bytes)
    }

    fn allocate(&self, _bytes: u64) -> Result<()> {
        Err(self.read_only())
    }

    fn set_len(&self, _bytes: u64) -> Result<()> {
        Err(self.read_only())
    }

    fn path(&self) -> String {
        format!("{}/{}", self.dir.path(), self.name)
    }
}

/// An open file in memory.
struct MemFile {
    path: String,
    content: Arc<Mutex<Content>>,
}

impl File for MemFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        Ok(self.content.lock().read(offset, buf))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        assert_range(&self.path, offset, buf.len() as u64);
        self.content.lock().write(offset, buf);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.content.lock().len())
    }

    fn allocate(&self, bytes: u64) -> Result<()> {
        assert_range(&self.path, 0, bytes);
        let mut content = self.content.lock();
        if content.len() < bytes {
            content.set_len(bytes);
        }
        Ok(())
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        assert_range(&self.path, 0, bytes);
        self.content.lock().set_len(bytes);
        Ok(())
    }

    fn path(&self) -> String {
        self.path.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::prng::Prng;
    use crate::device::real::RealDir;

    fn bytes_of(dir: &dyn Dir, name: &str) -> Option<Vec<u8>> {
        let file = dir.open(name, FileClass::Other, Mode::Read).ok()?;
        let mut bytes = vec![0; file.len().expect("a length") as usize];
        file.read_exact_at(&mut bytes, 0).expect("all of it");
        Some(bytes)
    }

    /// Goal: it behaves as a map from names to bytes, what is below stays as it was, and a copy is
    /// independent. Method: random calls against a map, above a real directory with some files.
    #[test]
    fn against_a_map() {
        for seed in 0..30 {
            let folder = tempfile::tempdir().expect("a directory");
            let below = RealDir::open(folder.path(), true).expect("opens");
            let mut map: BTreeMap<String, Vec<u8>> = BTreeMap::new();
            for i in 0..3u8 {
                let file = below.create(&i.to_string(), FileClass::Other).expect("created");
                file.write_at(&[i; 5000], 0).expect("written");
                map.insert(i.to_string(), vec![i; 5000]);
            }
            let original = map.clone();
            let below: Arc<dyn Dir> = below;
            let dir = MemDir::above(&below, |_| FileClass::Other).expect("opens");
            let mut copy = (dir.copy(), map.clone());
            let mut prng = Prng::new(seed);
            for _ in 0..200 {
                let name = prng.below(6).to_string();
                match prng.below(6) {
                    0 => {
                        let created = dir.create(&name, FileClass::Other).is_ok();
                        assert_eq!(created, !map.contains_key(&name), "seed {seed}");
                        map.entry(name.clone()).or_default();
                    }
                    1 => {
                        let removed = dir.unlink(&name, FileClass::Other).is_ok();
                        assert_eq!(removed, map.remove(&name).is_some(), "seed {seed}");
                    }
                    2 => {
                        let to = prng.below(6).to_string();
                        let done = dir.rename(&name, &to, FileClass::Other).is_ok();
                        assert_eq!(done, map.contains_key(&name), "seed {seed}");
                        if let Some(bytes) = map.remove(&name) {
                            map.insert(to, bytes);
                        }
                    }
                    3 => copy = (dir.copy(), map.clone()),
                    _ => {
                        let file = dir.open(&name, FileClass::Other, Mode::ReadWrite).ok();
                        assert_eq!(file.is_some(), map.contains_key(&name), "seed {seed}");
                        if let (Some(file), Some(bytes)) = (file, map.get_mut(&name)) {
                            let (at, n) = (prng.below(6000) as usize, prng.below(500) as usize);
                            file.write_at(&vec![7; n], at as u64).expect("written");
                            bytes.resize(bytes.len().max(if n > 0 { at + n } else { 0 }), 0);
                            bytes.iter_mut().skip(at).take(n).for_each(|b| *b = 7);
                        }
                    }
                }
                let names: Vec<String> = map.keys().cloned().collect();
                assert_eq!(dir.list().expect("listed"), names, "seed {seed}");
                assert_eq!(bytes_of(&dir, &name), map.get(&name).cloned(), "seed {seed}");
            }
            for (dir, map) in [(&copy.0 as &dyn Dir, &copy.1), (&*below, &original)] {
                let names: Vec<String> = map.keys().cloned().collect();
                assert_eq!(dir.list().expect("listed"), names, "seed {seed}");
                names.iter().for_each(|n| assert_eq!(bytes_of(dir, n), map.get(n).cloned()));
            }
        }
    }

    /// Goal: a file stays readable after its name is gone, and a lock is held once.
    #[test]
    fn names_and_locks() {
        let dir = MemDir::new("here");
        let file = dir.create("a", FileClass::Table).expect("created");
        file.write_at(b"abc", 0).expect("written");
        dir.unlink("a", FileClass::Table).expect("removed");
        let mut buf = [0; 3];
        file.read_exact_at(&mut buf, 0).expect("still there");
        assert_eq!(&buf, b"abc");
        let held = dir.lock("LOCK").expect("free");
        assert_eq!(dir.lock("LOCK").err().map(|e| e.kind()), Some(ErrorKind::Locked));
        assert!(dir.copy().lock("LOCK").is_ok(), "a copy is another directory");
        drop(held);
        assert!(dir.lock("LOCK").is_ok());
    }
}
