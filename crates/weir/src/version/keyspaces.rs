//! The keyspaces of a root, in chunks that roots share.
//!
//! A root never changes, so every edit makes a new one. It copies the chunk of the keyspace that it
//! changes and the list of chunks: with 4,096 keyspaces twice 64 pointers in place of 4,096
//! (dropped ids make chunks smaller; at worst there is one keyspace in each). Each chunk knows its
//! earliest log start, which every flush needs.
//!
//! Invariants: (1) chunks are ascending and none is empty; (2) the keyspaces of a chunk are
//! ascending by id, and their ids differ in the last `CHUNK_BITS` bits only; (3) `log_start` of a
//! chunk is the earliest of its keyspaces'.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::run::Version;
use super::shape::Shape;
use crate::base::ids::{KeyspaceId, Lsn, SegmentNumber, TableUid};
use crate::base::key::Seq;
use crate::log::LogPosition;
use crate::options::Options;

/// One keyspace at one moment.
#[derive(Clone, Debug)]
pub(crate) struct KeyspaceVersion {
    /// Its id, never reused.
    pub(crate) id: KeyspaceId,
    /// Its name.
    pub(crate) name: Arc<str>,
    /// Its options.
    pub(crate) options: Arc<Options>,
    /// Its tree.
    pub(crate) version: Arc<Version>,
    /// The first write-ahead log group that its tables do not cover.
    pub(crate) log_start: LogPosition,
    /// Sequence numbers up to here are in tables.
    pub(crate) flushed_seq: Seq,
}

impl KeyspaceVersion {
    /// The shape that policies see of this keyspace.
    pub(crate) fn shape(&self, busy: BTreeSet<TableUid>, snapshots: Vec<Seq>) -> Shape {
        self.version.shape(Arc::clone(&self.options), busy, snapshots)
    }

    /// The same without buffer lists, for a job that lasts: it keeps no table of theirs alive.
    /// O(runs).
    pub(crate) fn without_lists(&self) -> Self {
        Self { version: Arc::new(self.version.without_lists()), ..self.clone() }
    }
}

/// The keyspaces of a chunk have ids that differ in this many low bits only.
const CHUNK_BITS: u32 = 6;

#[derive(Debug)]
struct Chunk {
    keyspaces: Vec<Arc<KeyspaceVersion>>,
    log_start: LogPosition,
}

impl Chunk {
    /// `None` without a keyspace.
    fn new(keyspaces: Vec<Arc<KeyspaceVersion>>) -> Option<Arc<Self>> {
        let starts = keyspaces.iter().map(|keyspace| keyspace.log_start);
        let log_start = starts.min_by_key(by_time)?;
        let ids = || keyspaces.iter().map(|keyspace| keyspace.id);
        assert!(
            ids().is_sorted_by(|a, b| a < b)
                && ids().all(|id| id.get() >> CHUNK_BITS == keyspaces[0].id.get() >> CHUNK_BITS),
            "keyspaces {:?} are no chunk",
            ids().collect::<Vec<_>>()
        );
        Some(Arc::new(Self { keyspaces, log_start }))
    }

    fn number(&self) -> Option<u32> {
        self.keyspaces.first().map(|keyspace| keyspace.id.get() >> CHUNK_BITS)
    }

    fn find(&self, id: KeyspaceId) -> Result<usize, usize> {
        self.keyspaces.binary_search_by_key(&id, |keyspace| keyspace.id)
    }
}

fn by_time(start: &LogPosition) -> (Lsn, SegmentNumber) {
    (start.lsn, start.segment)
}

/// Keyspaces by id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keyspaces {
    chunks: Vec<Arc<Chunk>>,
}

impl Keyspaces {
    /// Index of the chunk of `id`, or of its insertion.
    fn chunk(&self, id: KeyspaceId) -> Result<usize, usize> {
        let number = Some(id.get() >> CHUNK_BITS);
        self.chunks.binary_search_by_key(&number, |chunk| chunk.number())
    }

    /// The keyspace with this id.
    pub(crate) fn get(&self, id: KeyspaceId) -> Option<&Arc<KeyspaceVersion>> {
        let chunk = &self.chunks[self.chunk(id).ok()?];
        chunk.keyspaces.get(chunk.find(id).ok()?)
    }

    /// Whether there is a keyspace with this id.
    pub(crate) fn contains(&self, id: KeyspaceId) -> bool {
        self.get(id).is_some()
    }

    /// Number of keyspaces.
    pub(crate) fn len(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.keyspaces.len()).sum()
    }

    /// All, ascending by id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<KeyspaceVersion>> {
        self.chunks.iter().flat_map(|chunk| &chunk.keyspaces)
    }

    /// Inserts a keyspace, or replaces the one with its id.
    pub(crate) fn insert(&mut self, keyspace: Arc<KeyspaceVersion>) {
        let id = keyspace.id;
        match self.chunk(id) {
            Ok(at) => {
                let mut keyspaces = self.chunks[at].keyspaces.clone();
                match self.chunks[at].find(id) {
                    Ok(there) => keyspaces[there] = keyspace,
                    Err(before) => keyspaces.insert(before, keyspace),
                }
                self.replace(at, keyspaces);
            }
            Err(before) => {
                if let Some(chunk) = Chunk::new(vec![keyspace]) {
                    self.chunks.insert(before, chunk);
                }
            }
        }
        debug_assert!(self.chunks.is_sorted_by_key(|chunk| chunk.number()), "{:?}", self.chunks);
        assert!(self.contains(id), "keyspace {id} cannot be found after its insertion");
    }

    /// Removes the keyspace with this id.
    pub(super) fn remove(&mut self, id: KeyspaceId) {
        let Ok(at) = self.chunk(id) else { return };
        let Ok(there) = self.chunks[at].find(id) else { return };
        let mut keyspaces = self.chunks[at].keyspaces.clone();
        keyspaces.remove(there);
        self.replace(at, keyspaces);
        assert!(!self.contains(id), "keyspace {id} is found after its removal");
    }

    fn replace(&mut self, at: usize, keyspaces: Vec<Arc<KeyspaceVersion>>) {
        match Chunk::new(keyspaces) {
            Some(chunk) => self.chunks[at] = chunk,
            None => drop(self.chunks.remove(at)),
        }
    }

    /// The earliest log start of all.
    pub(crate) fn log_start(&self) -> Option<LogPosition> {
        self.chunks.iter().map(|chunk| chunk.log_start).min_by_key(by_time)
    }

    /// The keyspaces whose log start is in `segment`. Requires: the log starts in that segment
    /// ([`log_start`](Self::log_start)), so these keyspaces keep it alive.
    pub(crate) fn starting_in(
        &self,
        segment: SegmentNumber,
    ) -> impl Iterator<Item = &Arc<KeyspaceVersion>> {
        let chunks = self.chunks.iter().filter(move |chunk| chunk.log_start.segment == segment);
        let keyspaces = chunks.flat_map(|chunk| &chunk.keyspaces);
        keyspaces.filter(move |keyspace| keyspace.log_start.segment == segment)
    }
}

#[cfg(test)]
mod tests;
