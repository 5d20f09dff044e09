//! What a file system writes beside the data of its files: from events to metadata writes with
//! places.
//!
//! Pure: it knows no queue and no clock but the times that it is told. Who syncs a file gets a list
//! of [`Step`]s, one after the other: writes, and whether the disk's cache is emptied behind them.
//! What is written back later, in nobody's way, is given out by [`Metadata::take_due`].
//!
//! * `ext4` (ordered, the default): a sync of a file whose size or blocks changed commits what the
//!   journal has to: a descriptor and every block of metadata that changed since the last commit
//!   (inode table, bitmaps, group descriptors, directory), then, behind a flush, the commit block
//!   and a flush again. The blocks go to their own places 30 s later, or when a quarter of the
//!   journal is used. Sources: LDS section 2.2; the kernel's documentation of ext4 and jbd2.
//! * `xfs`: the same events, but a log record has what changed in each item and not whole blocks;
//!   one forced write behind a flush. Source: "XFS Delayed Logging Design" in the kernel's
//!   documentation.
//! * `f2fs`: each synced data has the direct node block beside it, in the node log, from which a
//!   crash rolls forward; then a flush. A directory's sync is a checkpoint: its blocks and nodes,
//!   then the checkpoint pack. Sources: LDS sections 2.2, 4.2.3 and 4.6; Lee et al., F2FS, 2015.
//! * `btrfs`: the tree of the log, copied on write (leaf, root, root of the log roots; twice where
//!   the disk rotates, as its tools make it), then, behind a flush, the superblock. A directory's
//!   sync commits the transaction: paths of four trees. Sources: LDS section 2.2; btrfs' on-disk
//!   format and `mkfs.btrfs`.
//!
//! A sync of a file whose size and blocks did not change costs `ext4` and `xfs` its data alone. The
//! other two put what is written to a new place and so write metadata for each (LDS section 4.7).
//!
//! Simplifications, with the direction of their error: data stays where the file lies under `f2fs`
//! and `btrfs` too, which do not clean or fragment (too fast for reads later); commits of two
//! actors do not wait for each other (too fast); nothing commits but syncs and what is due (too
//! fast, by little: the engine syncs what it creates); an inode never needs more than one block of
//! extents (too fast for large fragmented files).
//!
//! Invariants: (1) `none` gives no write and one flush; (2) a change is in one commit; (3) places
//! are below the volume's end.

use std::collections::BTreeSet;

/// A file system below the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileSystem {
    /// Metadata costs nothing.
    #[default]
    None,
    /// Updates in place, with a journal.
    Ext4,
    /// Updates in place, with a log of items.
    Xfs,
    /// A log of data and a log of nodes.
    F2fs,
    /// Copy on write.
    Btrfs,
}

/// Bytes of a block, and of a page.
const BLOCK: u64 = 4 << 10;

/// Bytes of a tree's node of `btrfs`.
const NODE: u64 = 16 << 10;

/// Bytes of the journal; the usual size of a volume of some 100 GB.
const JOURNAL_BYTES: u64 = 128 << 20;

/// Bytes of a log record that one changed item of `xfs` takes, with its header; in `f2fs` and
/// `btrfs` the logs of nodes are as long as the journal.
const ITEM_BYTES: u64 = 384;

/// Bytes at the volume's start that hold metadata and no file's data: tables of inodes, bitmaps and
/// directories of the first groups; superblocks, checkpoints and address tables.
const FRONT_BYTES: u64 = 64 << 20;

/// A volume has at least so many bytes, so that everything finds a place.
const VOLUME_BYTES_MIN: u64 = 8 << 20;

/// Bytes of a block group.
const GROUP_BYTES: u64 = 128 << 20;

/// Groups whose bitmaps and inodes lie together (`flex_bg`).
const GROUPS_TOGETHER: u64 = 16;

/// Inodes in a block of their table.
const INODES_PER_BLOCK: u64 = 16;

/// Nanoseconds after which changed metadata is written to its place: Linux' age of dirty pages, the
/// period of `btrfs`' commits and half of that of `f2fs`' checkpoints.
const DUE_NANOS: u64 = 30_000_000_000;

/// A write of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Write {
    /// Where on the volume.
    pub(super) at: u64,
    pub(super) bytes: u64,
}

/// A part of a sync: the next begins when all of it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) writes: Vec<Write>,
    /// Whether the disk's cache is emptied behind the writes.
    pub(super) flush: bool,
}

/// What happened to a file, other than a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It was made, and has a name.
    Created,
    /// It was given another name.
    Renamed,
    /// Its last name is gone.
    Removed,
    /// It has another length, in the same blocks.
    Length,
    /// It has other blocks, near this place of the volume.
    Blocks(u64),
    /// It was written, within its length and blocks.
    Data,
}

/// A block of metadata that is updated in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Block {
    Groups,
    InodeBitmap,
    Directory,
    InodeTable(u64),
    Bitmap(u64),
}

/// The metadata of a volume, as far as it decides what is written.
#[derive(Debug)]
pub(super) struct Metadata {
    kind: FileSystem,
    volume_bytes: u64,
    /// By what places and times are divided: the store is a part of a real one.
    scale: u64,
    /// How often a node of `btrfs` is written.
    copies: u64,
    /// Blocks that changed since the last commit.
    dirty: BTreeSet<Block>,
    /// Files whose sync needs metadata.
    changed: BTreeSet<u64>,
    /// Blocks that are committed, and not in their places yet.
    behind: BTreeSet<Block>,
    /// When the first of them, or of what a checkpoint takes, was there.
    behind_since: Option<u64>,
    /// Bytes that were written to the journal or the log of nodes, ever, and until the blocks were
    /// last written to their places.
    log_bytes: u64,
    log_bytes_before: u64,
}

impl Metadata {
    /// Metadata of a volume of `volume_bytes`, a part `scale` of a real one, on a disk that
    /// `rotates` or not.
    pub(super) fn new(kind: FileSystem, volume_bytes: u64, scale: u64, rotates: bool) -> Self {
        Self {
            kind,
            volume_bytes: volume_bytes.max(VOLUME_BYTES_MIN),
            scale: scale.max(1),
            copies: if rotates { 2 } else { 1 },
            dirty: BTreeSet::new(),
            changed: BTreeSet::new(),
            behind: BTreeSet::new(),
            behind_since: None,
            log_bytes: 0,
            log_bytes_before: 0,
        }
    }

    /// Bytes at the volume's start that no file lies on.
    pub(super) fn front_bytes(&self) -> u64 {
        match self.kind {
            FileSystem::None => 0,
            _ => (FRONT_BYTES / self.scale).min(self.volume_bytes / 8),
        }
    }

    /// Notes what happened to `file`.
    pub(super) fn change(&mut self, file: u64, change: Change) {
        let in_place = matches!(self.kind, FileSystem::Ext4 | FileSystem::Xfs);
        if self.kind == FileSystem::None || (in_place && change == Change::Data) {
            return;
        }
        let inode = Block::InodeTable(file / INODES_PER_BLOCK);
        let blocks: &[Block] = match change {
            Change::Created => &[Block::Groups, Block::InodeBitmap, Block::Directory, inode],
            Change::Removed => {
                &[Block::Groups, Block::InodeBitmap, Block::Directory, inode, Block::Bitmap(0)]
            }
            Change::Renamed => &[Block::Directory],
            Change::Length => &[inode],
            Change::Blocks(at) => {
                let group = at / (GROUP_BYTES / self.scale).max(1);
                &[inode, Block::Groups, Block::Bitmap(group)]
            }
            Change::Data => &[],
        };
        self.dirty.extend(blocks);
        match change {
            Change::Removed => {
                self.changed.remove(&file);
            }
            Change::Renamed => {}
            _ => {
                self.changed.insert(file);
            }
        }
    }

    /// What a sync of `file` costs beside its data, at `now`.
    pub(super) fn sync(&mut self, now: u64, file: u64) -> Vec<Step> {
        if !self.changed.contains(&file) {
            return vec![Step { writes: Vec::new(), flush: true }];
        }
        match self.kind {
            FileSystem::None => vec![Step { writes: Vec::new(), flush: true }],
            FileSystem::Ext4 | FileSystem::Xfs => self.commit(now),
            FileSystem::F2fs => {
                self.changed.remove(&file);
                self.note_behind(now);
                vec![Step { writes: vec![self.log(BLOCK)], flush: true }]
            }
            FileSystem::Btrfs => {
                self.changed.remove(&file);
                self.note_behind(now);
                self.copy(3)
            }
        }
    }

    /// What a sync of the directory costs, at `now`.
    pub(super) fn sync_dir(&mut self, now: u64) -> Vec<Step> {
        if self.kind == FileSystem::None || self.dirty.is_empty() {
            return Vec::new();
        }
        match self.kind {
            FileSystem::None => Vec::new(),
            FileSystem::Ext4 | FileSystem::Xfs => self.commit(now),
            FileSystem::F2fs => self.checkpoint(),
            FileSystem::Btrfs => self.transaction(),
        }
    }

    /// What is written at `now` without anybody waiting for it.
    pub(super) fn take_due(&mut self, now: u64) -> Vec<Write> {
        let aged = |since: u64| now.saturating_sub(since) >= DUE_NANOS / self.scale;
        let full = self.log_bytes - self.log_bytes_before >= self.journal_bytes() / 4;
        if !self.behind_since.is_some_and(|since| full || aged(since)) {
            return Vec::new();
        }
        let all = |steps: Vec<Step>| steps.into_iter().flat_map(|step| step.writes).collect();
        match self.kind {
            FileSystem::None => Vec::new(),
            FileSystem::Ext4 | FileSystem::Xfs => {
                self.note_written();
                let blocks = std::mem::take(&mut self.behind);
                let write = |block| Write { at: self.place(block), bytes: BLOCK };
                blocks.into_iter().map(write).collect()
            }
            FileSystem::F2fs => all(self.checkpoint()),
            FileSystem::Btrfs => all(self.transaction()),
        }
    }

    /// A commit of the journal, or a log record that is forced.
    fn commit(&mut self, now: u64) -> Vec<Step> {
        let blocks = self.dirty.len() as u64;
        self.note_behind(now);
        self.behind.append(&mut self.dirty);
        self.changed.clear();
        if self.kind == FileSystem::Xfs {
            let record = (512 + blocks * ITEM_BYTES).next_multiple_of(BLOCK);
            return vec![
                Step { writes: Vec::new(), flush: true },
                Step { writes: vec![self.log(record)], flush: true },
            ];
        }
        vec![
            Step { writes: vec![self.log((1 + blocks) * BLOCK)], flush: true },
            Step { writes: vec![self.log(BLOCK)], flush: true },
        ]
    }

    /// A checkpoint of `f2fs`: dirty blocks as nodes, then two packs' ends and the summaries
    /// between them.
    fn checkpoint(&mut self) -> Vec<Step> {
        let nodes = self.dirty.len() as u64;
        self.forget();
        let pack = Write { at: self.scaled(2 << 20), bytes: 4 * BLOCK };
        vec![
            Step { writes: vec![self.log(nodes.max(1) * BLOCK)], flush: true },
            Step { writes: vec![pack], flush: true },
        ]
    }

    /// A commit of a transaction of `btrfs`: paths of the trees of files, extents, checksums and
    /// roots, two nodes each, then the superblock.
    fn transaction(&mut self) -> Vec<Step> {
        self.forget();
        self.copy(4 * 2)
    }

    /// So many nodes copied on write, then the superblock.
    fn copy(&mut self, nodes: u64) -> Vec<Step> {
        let first = self.log(nodes * NODE);
        let other = |copy: u64| Write { at: first.at + copy * self.journal_bytes(), ..first };
        let writes = (0..self.copies).map(other).collect();
        let superblock = Write { at: self.scaled(64 << 10), bytes: BLOCK };
        vec![Step { writes, flush: true }, Step { writes: vec![superblock], flush: true }]
    }

    fn forget(&mut self) {
        self.dirty.clear();
        self.changed.clear();
        self.note_written();
    }

    fn note_behind(&mut self, now: u64) {
        self.behind_since.get_or_insert(now);
    }

    fn note_written(&mut self) {
        self.behind_since = None;
        self.log_bytes_before = self.log_bytes;
    }

    /// The next `bytes` of the journal, or of the log of nodes.
    fn log(&mut self, bytes: u64) -> Write {
        let length = self.journal_bytes();
        if self.log_bytes % length + bytes > length {
            self.log_bytes = self.log_bytes.next_multiple_of(length);
        }
        let at = self.log_place() + self.log_bytes % length;
        self.log_bytes += bytes;
        Write { at, bytes }
    }

    /// The journal lies in the middle of the volume, as do the logs of `ext4` and `xfs`; logs of
    /// nodes lie among the data, behind the front.
    fn log_place(&self) -> u64 {
        match self.kind {
            FileSystem::Ext4 | FileSystem::Xfs => self.volume_bytes / 2,
            _ => self.front_bytes() / 2,
        }
    }

    fn journal_bytes(&self) -> u64 {
        (JOURNAL_BYTES / self.scale).min(self.volume_bytes / 8).max(64 * NODE)
    }

    fn place(&self, block: Block) -> u64 {
        match block {
            Block::Groups => self.scaled(BLOCK),
            Block::InodeBitmap => self.scaled(1 << 20),
            Block::Directory => self.scaled(48 << 20),
            Block::InodeTable(number) => self.scaled((2 << 20) + number % 8192 * BLOCK),
            Block::Bitmap(group) => {
                let first = group - group % GROUPS_TOGETHER;
                self.scaled(first * GROUP_BYTES + (1 << 20) + (1 + group % GROUPS_TOGETHER) * BLOCK)
            }
        }
    }

    fn scaled(&self, at: u64) -> u64 {
        (at / self.scale).min(self.volume_bytes - BLOCK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [FileSystem; 5] =
        [FileSystem::None, FileSystem::Ext4, FileSystem::Xfs, FileSystem::F2fs, FileSystem::Btrfs];

    fn metadata(kind: FileSystem) -> Metadata {
        Metadata::new(kind, 100 << 30, 1, true)
    }

    fn bytes(steps: &[Step]) -> u64 {
        steps.iter().flat_map(|step| &step.writes).map(|write| write.bytes).sum()
    }

    /// Goal: a commit of a journal has every block that changed, once, between two flushes, and
    /// what did not change costs a flush. Method: a file that is made, grows, and is overwritten.
    #[test]
    fn journals() {
        let mut ext4 = metadata(FileSystem::Ext4);
        ext4.change(1, Change::Created);
        ext4.change(1, Change::Blocks(5 << 30));
        ext4.change(1, Change::Length);
        let middle = 50 << 30;
        let commit = |at: u64, blocks: u64| {
            let write = |at, bytes| Step { writes: vec![Write { at, bytes }], flush: true };
            vec![write(at, (1 + blocks) * BLOCK), write(at + (1 + blocks) * BLOCK, BLOCK)]
        };
        assert_eq!(ext4.sync(0, 1), commit(middle, 5));
        let flush = vec![Step { writes: Vec::new(), flush: true }];
        assert_eq!(ext4.sync(0, 1), flush);
        ext4.change(1, Change::Data);
        assert_eq!(ext4.sync(0, 1), flush);
        ext4.change(1, Change::Length);
        assert_eq!(ext4.sync(1, 1), commit(middle + 7 * BLOCK, 1));
        assert!(ext4.sync_dir(1).is_empty());
        ext4.change(1, Change::Renamed);
        assert_eq!(ext4.sync_dir(1), commit(middle + 10 * BLOCK, 1));
        // Six blocks at their places, after 30 s.
        assert!(ext4.take_due(DUE_NANOS - 1).is_empty());
        let due = ext4.take_due(DUE_NANOS);
        assert_eq!(due.len(), 5, "{due:?}");
        assert!(due.iter().any(|write| write.at > 4 << 30), "the bitmap lies near the data");
        assert!(ext4.take_due(1 << 60).is_empty());
        let mut xfs = metadata(FileSystem::Xfs);
        xfs.change(1, Change::Created);
        xfs.change(1, Change::Blocks(0));
        let steps = xfs.sync(0, 1);
        assert_eq!((steps.len(), bytes(&steps)), (2, BLOCK));
        assert!(steps[0].flush && steps[1].flush);
    }

    /// Goal: logging writes as much as LDS section 4.6 says: f2fs 64 times 128 bytes, and 8 KiB
    /// between 1.7 times (f2fs; 15 % are accepted) and 22 times. Method: synced appends.
    #[test]
    fn amplification_of_logging() {
        let amplification = |kind, bytes_logged: u64| {
            let mut metadata = metadata(kind);
            metadata.change(1, Change::Created);
            metadata.sync(0, 1);
            let change =
                if bytes_logged < BLOCK { Change::Length } else { Change::Blocks(1 << 30) };
            metadata.change(1, change);
            let written = bytes_logged.next_multiple_of(BLOCK) + bytes(&metadata.sync(0, 1));
            written as f64 / bytes_logged as f64
        };
        assert_eq!(amplification(FileSystem::F2fs, 128), 64.0);
        for kind in [FileSystem::Ext4, FileSystem::F2fs, FileSystem::Btrfs] {
            let found = amplification(kind, 8 << 10);
            assert!((1.7 * 0.85..=22.0).contains(&found), "{kind:?}: {found}");
            assert!(amplification(kind, 128) >= 64.0, "{kind:?}");
        }
        assert_eq!(amplification(FileSystem::None, 8 << 10), 1.0);
    }

    /// Goal: no file system writes beyond its volume, whatever its size and scale; every sync ends
    /// with a flush; `none` writes nothing. Method: many files, syncs and times.
    #[test]
    fn places_are_on_the_volume() {
        for (kind, volume, scale) in ALL.into_iter().flat_map(|kind| {
            [(kind, 1 << 20, 1), (kind, 100 << 30, 1), (kind, 14 << 30, 64), (kind, 8 << 20, 64)]
        }) {
            let mut metadata = Metadata::new(kind, volume, scale, true);
            let end = metadata.volume_bytes;
            let mut steps = Vec::new();
            for number in 0..3_000_u64 {
                let now = number * 100_000_000;
                metadata.change(number, Change::Created);
                metadata.change(number, Change::Blocks(number * 7919 * 4096 % end));
                let synced = metadata.sync(now, number);
                assert!(synced.last().is_some_and(|step| step.flush), "{kind:?}");
                steps.extend(synced);
                metadata.change(number, Change::Removed);
                if number % 10 == 0 {
                    steps.extend(metadata.sync_dir(now));
                }
                steps.push(Step { writes: metadata.take_due(now), flush: false });
            }
            for write in steps.iter().flat_map(|step| &step.writes) {
                assert!(write.at + write.bytes <= end, "{kind:?}, {volume}, {scale}: {write:?}");
            }
            assert_eq!(bytes(&steps) == 0, kind == FileSystem::None, "{kind:?}");
        }
    }
}
