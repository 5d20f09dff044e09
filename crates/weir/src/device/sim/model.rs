//! The state of a simulated disk: durable content, and un-synced changes in their order.
//!
//! Every change is an [`Op`]; the live disk applies ops as they are requested, the replayer applies
//! the same ops again. Reads are no ops.
//!
//! INVARIANT: `current` is `durable` plus `pending` in order (unless dirty data was `lost`);
//! `names` is `durable_names` plus `pending_names` in order.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::base::prng::Prng;
use crate::device::FileClass;
use crate::device::sim::content::Content;
use crate::device::site::{OpKind, Site};

/// One change of the disk.
#[derive(Clone)]
pub(super) enum Op {
    Create {
        name: Arc<str>,
        inode: u64,
        class: FileClass,
    },
    Rename {
        from: Arc<str>,
        to: Arc<str>,
        class: FileClass,
    },
    Unlink {
        name: Arc<str>,
        class: FileClass,
    },
    Write {
        inode: u64,
        class: FileClass,
        offset: u64,
        data: Arc<[u8]>,
    },
    /// Makes the changes durable that share a byte with a range.
    SyncRange {
        inode: u64,
        class: FileClass,
        offset: u64,
        bytes: u64,
    },
    Discard {
        inode: u64,
        class: FileClass,
        offset: u64,
        bytes: u64,
        leaves: Leaves,
    },
    SetLen {
        inode: u64,
        bytes: u64,
    },
    Sync {
        inode: u64,
        class: FileClass,
    },
    /// A failed sync: un-synced changes never become durable; `revert`: nor are they read.
    LoseDirty {
        inode: u64,
        revert: bool,
    },
    SyncDir,
    /// Set by a test, for instance when a write was acknowledged.
    Mark(u64),
}

/// What a range holds after it was discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaves {
    /// What it held before.
    Old,
    /// Zeros.
    Zeros,
    /// Bytes from a generator with this seed.
    Garbage(u64),
}

impl Leaves {
    /// What the discard of a range leaves: any of the three, by place and order of the changes.
    pub(super) fn drawn(at: u64, inode: u64, offset: u64) -> Self {
        let mut prng = Prng::new(at ^ inode.rotate_left(40) ^ offset.rotate_left(20));
        match prng.below(3) {
            0 => Self::Old,
            1 => Self::Zeros,
            _ => Self::Garbage(prng.next_u64()),
        }
    }

    fn change(self, bytes: u64) -> Option<Change> {
        match self {
            Self::Old => None,
            Self::Zeros => Some(Change::Zeros(bytes)),
            Self::Garbage(seed) => {
                let mut prng = Prng::new(seed);
                Some(Change::Bytes((0..bytes).map(|_| prng.next_u64() as u8).collect()))
            }
        }
    }
}

/// A change of a file that is not durable yet.
#[derive(Clone)]
pub(super) struct Pending {
    /// Position in the order of all changes.
    pub(super) at: u64,
    /// Length of the file after the change.
    pub(super) len_after: u64,
    pub(super) offset: u64,
    pub(super) change: Change,
}

#[derive(Clone)]
pub(super) enum Change {
    Bytes(Arc<[u8]>),
    Zeros(u64),
    /// A change of the length only.
    Length,
}

impl Pending {
    /// Number of bytes written from `offset` on.
    pub(super) fn bytes(&self) -> u64 {
        match &self.change {
            Change::Bytes(data) => data.len() as u64,
            Change::Zeros(bytes) => *bytes,
            Change::Length => 0,
        }
    }

    /// Applies the part of it inside `[start, end)` to `content`.
    pub(super) fn apply(&self, content: &mut Content, start: u64, end: u64) {
        let from = self.offset.max(start);
        let to = self.offset.saturating_add(self.bytes()).min(end);
        if from >= to {
            return;
        }
        match &self.change {
            Change::Bytes(data) => {
                let range = (from - self.offset) as usize..(to - self.offset) as usize;
                content.write(from, &data[range]);
            }
            Change::Zeros(_) => content.zero(from, to - from),
            Change::Length => {}
        }
    }
}

/// A file, with or without a name.
#[derive(Clone, Default)]
pub(super) struct Inode {
    pub(super) durable: Arc<Content>,
    pub(super) current: Arc<Content>,
    pub(super) pending: Vec<Pending>,
    /// A failed sync dropped dirty data, which can still be read.
    pub(super) lost: bool,
    /// The class of its creation or last rename; `None` if a test wrote it directly.
    pub(super) class: Option<FileClass>,
    /// Cloned by every handle, so that a file without a name is kept while it is open.
    pub(super) in_use: Arc<()>,
}

impl Inode {
    /// A file whose content is durable.
    pub(super) fn at_rest(content: Arc<Content>) -> Self {
        Self { durable: Arc::clone(&content), current: content, ..Self::default() }
    }

    fn change(&mut self, at: u64, offset: u64, change: Change) {
        let mut pending = Pending { at, len_after: 0, offset, change };
        let content = Arc::make_mut(&mut self.current);
        pending.apply(content, 0, u64::MAX);
        pending.len_after = content.len();
        self.push(pending);
    }

    /// Adds a change. INVARIANT: `pending` is in the order of changes, which crash policies search.
    fn push(&mut self, pending: Pending) {
        let last = self.pending.last().map_or(0, |last| last.at);
        assert!(last <= pending.at, "change {} of a file after change {last}", pending.at);
        self.pending.push(pending);
    }

    fn set_len(&mut self, at: u64, len: u64) {
        let old = self.current.len();
        if len < old {
            self.change(at, len, Change::Zeros(old - len));
        }
        Arc::make_mut(&mut self.current).set_len(len);
        self.push(Pending { at, len_after: len, offset: len, change: Change::Length });
    }

    /// Makes the changes durable that share a byte with a range, with what they are over; all of
    /// them if the length is not durable.
    fn sync_range(&mut self, offset: u64, bytes: u64) {
        let (end, len) = (offset + bytes, self.current.len());
        if self.lost || self.durable.len() != len {
            self.durable = self.synced();
            self.pending.clear();
            return;
        }
        // From new to old, because what lies below a durable change is durable, too.
        let mut covered = vec![(offset, end)];
        let mut stays = vec![true; self.pending.len()];
        for (pending, stays) in self.pending.iter().zip(&mut stays).rev() {
            let (from, to) = (pending.offset, pending.offset + pending.bytes());
            *stays = covered.iter().all(|&(start, end)| from >= end || to <= start);
            if !*stays {
                covered.push((from, to));
            }
        }
        let durable = Arc::make_mut(&mut self.durable);
        let mut each = stays.into_iter();
        self.pending.retain(|pending| {
            let stays = each.next().unwrap_or(true);
            if !stays {
                pending.apply(durable, 0, u64::MAX);
            }
            stays
        });
        assert_eq!(self.durable.len(), len, "a change inside a file has changed its length");
    }

    /// The content that a sync makes durable.
    pub(super) fn synced(&self) -> Arc<Content> {
        if !self.lost {
            let len = self.pending.last().map_or(self.durable.len(), |p| p.len_after);
            assert_eq!(self.current.len(), len, "length of a file and after its last change");
            return Arc::clone(&self.current);
        }
        let mut content = Content::clone(&self.durable);
        for pending in &self.pending {
            pending.apply(&mut content, 0, u64::MAX);
            content.set_len(pending.len_after);
        }
        Arc::new(content)
    }
}

/// A change of the directory that is not durable yet.
#[derive(Clone)]
pub(super) struct PendingName {
    pub(super) at: u64,
    pub(super) remove: Option<Arc<str>>,
    pub(super) insert: Option<(Arc<str>, u64)>,
}

pub(super) type Names = BTreeMap<Arc<str>, u64>;

impl PendingName {
    pub(super) fn apply(&self, names: &mut Names) {
        if let Some(name) = &self.remove {
            names.remove(name);
        }
        if let Some((name, inode)) = &self.insert {
            names.insert(Arc::clone(name), *inode);
        }
    }
}

/// A whole disk.
#[derive(Clone, Default)]
pub(super) struct Model {
    pub(super) inodes: BTreeMap<u64, Inode>,
    pub(super) next_inode: u64,
    pub(super) names: Names,
    pub(super) durable_names: Names,
    pub(super) pending_names: Vec<PendingName>,
    /// Number of ops so far.
    pub(super) at: u64,
}

impl Model {
    /// The same disk without its open files.
    pub(super) fn detached(&self) -> Self {
        let mut copy = self.clone();
        copy.inodes.values_mut().for_each(|inode| inode.in_use = Arc::default());
        copy
    }

    /// The file called `name`.
    pub(super) fn file(&self, name: &str) -> Option<&Inode> {
        self.inodes.get(self.names.get(name)?)
    }

    /// Bytes of all files, also of those kept only by open handles or durable names.
    pub(super) fn used_bytes(&self) -> u64 {
        self.inodes.values().map(|inode| inode.current.len()).sum()
    }

    fn change_names(&mut self, at: u64, remove: Option<Arc<str>>, insert: Option<(Arc<str>, u64)>) {
        let pending = PendingName { at, remove, insert };
        pending.apply(&mut self.names);
        self.pending_names.push(pending);
    }

    /// Applies `op`. Ops on missing files have no effect: the live disk has refused them.
    pub(super) fn apply(&mut self, op: &Op) {
        let at = self.at;
        self.at += 1;
        match op {
            Op::Create { name, inode, class } => {
                let file = Inode { class: Some(*class), ..Inode::default() };
                let old = self.inodes.insert(*inode, file);
                assert!(old.is_none(), "file {inode} is created twice, as {name} now");
                self.next_inode = self.next_inode.max(*inode + 1);
                self.change_names(at, None, Some((Arc::clone(name), *inode)));
            }
            Op::Rename { from, to, class } => {
                if let Some(&inode) = self.names.get(from) {
                    if let Some(inode) = self.inodes.get_mut(&inode) {
                        inode.class = Some(*class);
                    }
                    let insert = Some((Arc::clone(to), inode));
                    self.change_names(at, Some(Arc::clone(from)), insert);
                }
            }
            Op::Unlink { name, .. } => self.change_names(at, Some(Arc::clone(name)), None),
            Op::SyncDir => self.sync_names(),
            Op::Mark(_) => {}
            Op::Write { inode, .. }
            | Op::SyncRange { inode, .. }
            | Op::Discard { inode, .. }
            | Op::SetLen { inode, .. }
            | Op::Sync { inode, .. }
            | Op::LoseDirty { inode, .. } => {
                if let Some(inode) = self.inodes.get_mut(inode) {
                    apply_to_file(inode, at, op);
                }
            }
        }
    }

    fn sync_names(&mut self) {
        self.durable_names.clone_from(&self.names);
        self.pending_names.clear();
        let named: std::collections::BTreeSet<u64> = self.names.values().copied().collect();
        self.inodes.retain(|id, inode| named.contains(id) || Arc::strong_count(&inode.in_use) > 1);
        self.assert_names();
    }

    /// That every name is a file's.
    pub(super) fn assert_names(&self) {
        for (name, inode) in self.names.iter().chain(&self.durable_names) {
            debug_assert!(self.inodes.contains_key(inode), "{name} is file {inode}, which is gone");
        }
    }
}

fn apply_to_file(inode: &mut Inode, at: u64, op: &Op) {
    match op {
        Op::Write { offset, data, .. } => {
            inode.change(at, *offset, Change::Bytes(Arc::clone(data)));
        }
        Op::SyncRange { offset, bytes, .. } => inode.sync_range(*offset, *bytes),
        Op::Discard { offset, bytes, leaves, .. } => {
            if let Some(change) = leaves.change(*bytes) {
                inode.change(at, *offset, change);
            }
        }
        Op::SetLen { bytes, .. } => inode.set_len(at, *bytes),
        Op::Sync { .. } => {
            inode.durable = inode.synced();
            inode.pending.clear();
        }
        Op::LoseDirty { revert, .. } => {
            inode.lost |= !inode.pending.is_empty();
            inode.pending.clear();
            if *revert {
                inode.current = Arc::clone(&inode.durable);
                inode.lost = false;
            }
        }
        Op::Create { .. } | Op::Rename { .. } | Op::Unlink { .. } | Op::SyncDir | Op::Mark(_) => {}
    }
}

impl Op {
    /// The site of its request; `None` for a mark. `class_of` returns the class of a file.
    pub(super) fn site(&self, class_of: impl Fn(u64) -> Option<FileClass>) -> Option<Site> {
        let class = |inode: u64| class_of(inode).unwrap_or(FileClass::Other);
        let (op, class) = match self {
            Self::Create { class, .. } => (OpKind::Create, *class),
            Self::Rename { class, .. } => (OpKind::Rename, *class),
            Self::Unlink { class, .. } => (OpKind::Unlink, *class),
            Self::Write { class, .. } => (OpKind::Write, *class),
            Self::Discard { class, .. } => (OpKind::Discard, *class),
            Self::SetLen { inode, .. } => (OpKind::SetLen, class(*inode)),
            Self::Sync { class, .. } | Self::SyncRange { class, .. } => (OpKind::Sync, *class),
            Self::LoseDirty { inode, .. } => (OpKind::Sync, class(*inode)),
            Self::SyncDir => (OpKind::SyncDir, FileClass::Directory),
            Self::Mark(_) => return None,
        };
        Some(Site { op, class })
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { name, inode, .. } => write!(f, "create {name} (file {inode})"),
            Self::Rename { from, to, .. } => write!(f, "rename {from} to {to}"),
            Self::Unlink { name, .. } => write!(f, "unlink {name}"),
            Self::Write { inode, offset, data, .. } => {
                write!(f, "write {} bytes at {offset} to file {inode}", data.len())
            }
            Self::SyncRange { inode, offset, bytes, .. } => {
                write!(f, "sync {bytes} bytes at {offset} of file {inode}")
            }
            Self::Discard { inode, offset, bytes, leaves, .. } => {
                write!(f, "discard {bytes} bytes at {offset} of file {inode}, leaving {leaves:?}")
            }
            Self::SetLen { inode, bytes } => write!(f, "set the length of file {inode} to {bytes}"),
            Self::Sync { inode, .. } => write!(f, "sync file {inode}"),
            Self::LoseDirty { inode, .. } => write!(f, "lose the dirty data of file {inode}"),
            Self::SyncDir => write!(f, "sync the directory"),
            Self::Mark(mark) => write!(f, "mark {mark}"),
        }
    }
}
