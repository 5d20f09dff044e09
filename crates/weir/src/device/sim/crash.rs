//! States after a power cut: policies that choose which un-synced changes survive.
//!
//! The unit of survival is the 512-byte sector for content, one number for a file's length, and one
//! directory operation for names; un-synced changes are not ordered. A surviving sector holds the
//! state after one of the writes that touched it (the cache writes back whole sectors, never a
//! write without the older ones below it). Synced content, lengths and names always survive.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::base::prng::Prng;
use crate::device::sim::content::Content;
use crate::device::sim::model::{Inode, Model, Names, Pending};

/// The unit of atomic writes of a disk, in bytes.
pub const SECTOR_BYTES: u64 = 512;

/// Which un-synced changes survive a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashPolicy {
    /// None.
    Nothing,
    /// All.
    All,
    /// All before a random point in the order of changes.
    Prefix,
    /// All after a random point.
    Suffix,
    /// Each sector, length and name independently, with a chance of this many eighths.
    Random(u8),
    /// Only the newest change.
    NewestOnly,
    /// Names and lengths, but no bytes: new ranges read as zeros.
    MetadataFirst,
    /// Bytes, but neither lengths nor names.
    DataFirst,
    /// Names, but neither bytes nor lengths: new files are empty.
    NamesWithoutData,
    /// All but a part of the newest write: its sectors before a random boundary are new, the others
    /// hold what [`Torn`] says.
    TornLast(Torn),
    /// As `TornLast`, torn before this sector of the newest write.
    TornAt(Torn, u32),
    /// All, but each written page of 4 KiB holds garbage with a chance of this many eighths: writes
    /// to all files were in flight, on a disk that replaces a page as a whole (H37).
    TornPages(u8),
    /// Bytes and lengths; of the names none, or each with a chance of one half.
    DropEntries,
    /// All; but if the newest write lies in the first [`SUPERBLOCKS_BYTES`] of its file, which is
    /// longer, the 16 KiB around it hold garbage, though most of them were durable: a device that
    /// tears more than it says, under the superblocks of a store in slots. Any other form of store
    /// relies on what this breaks.
    TornBlock,
}

/// Where superblocks lie.
const SUPERBLOCKS_BYTES: u64 = 2 << 20;

/// What a device tears as one that tears more than it says.
const BLOCK_BYTES: u64 = 16 << 10;

/// The content of the torn part of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Torn {
    /// The old bytes; the file ends at the tear if the write extended it.
    Old,
    /// Zeros.
    Zero,
    /// Garbage.
    Garbage,
    /// The new bytes, while the part *before* the boundary holds the old ones.
    NewBehindOld,
    /// Garbage, from the start of the boundary's page of 4 KiB on: a disk with sectors of that size
    /// replaces a sector as a whole (H37).
    Page,
}

/// Sector size of a disk that tears whole pages.
const PAGE_BYTES: u64 = 4096;

impl CrashPolicy {
    /// Every policy once, the random ones at several densities.
    pub const ALL: [Self; 19] = [
        Self::Nothing,
        Self::All,
        Self::Prefix,
        Self::Suffix,
        Self::Random(1),
        Self::Random(4),
        Self::Random(7),
        Self::NewestOnly,
        Self::MetadataFirst,
        Self::DataFirst,
        Self::NamesWithoutData,
        Self::TornLast(Torn::Old),
        Self::TornLast(Torn::Zero),
        Self::TornLast(Torn::Garbage),
        Self::TornLast(Torn::NewBehindOld),
        Self::TornLast(Torn::Page),
        Self::TornPages(4),
        Self::DropEntries,
        Self::TornBlock,
    ];
}

/// A policy whose random choices are drawn.
enum Plan {
    Nothing,
    All,
    /// Changes before this one.
    Before(u64),
    /// Changes from this one on.
    From(u64),
    Random(u8),
    /// All changes of some kinds.
    Parts {
        bytes: bool,
        lengths: bool,
        names: bool,
    },
    Torn {
        torn: Torn,
        at: u64,
        boundary: u64,
    },
    TornPages(u8),
    DropEntries {
        eighths: u8,
    },
    /// The block around this write.
    TornBlock {
        at: u64,
    },
}

/// Position of the newest un-synced write in the order of changes, and its number of sectors.
pub(super) fn newest_write(model: &Model) -> Option<(u64, u64)> {
    let writes = model.inodes.values().flat_map(|inode| &inode.pending);
    let newest = writes.filter(|p| p.bytes() > 0).max_by_key(|p| p.at)?;
    let first = newest.offset / SECTOR_BYTES;
    let end = (newest.offset + newest.bytes()).div_ceil(SECTOR_BYTES);
    Some((newest.at, end - first))
}

fn draw(model: &Model, policy: CrashPolicy, prng: &mut Prng) -> Plan {
    let changes = || {
        let files = model.inodes.values().flat_map(|i| &i.pending).map(|p| p.at);
        let mut all: Vec<u64> = files.chain(model.pending_names.iter().map(|p| p.at)).collect();
        all.sort_unstable();
        all
    };
    let point = |prng: &mut Prng| {
        let all = changes();
        let chosen = prng.below(all.len() as u64 + 1) as usize;
        all.get(chosen).copied().unwrap_or(u64::MAX)
    };
    let torn = |torn: Torn, boundary: &mut dyn FnMut(u64) -> u64| match newest_write(model) {
        Some((at, sectors)) => Plan::Torn { torn, at, boundary: boundary(sectors) },
        None => Plan::All,
    };
    if let CrashPolicy::Random(eighths) | CrashPolicy::TornPages(eighths) = policy {
        assert!(eighths <= 8, "a chance of {eighths} eighths");
    }
    match policy {
        CrashPolicy::Nothing => Plan::Nothing,
        CrashPolicy::All => Plan::All,
        CrashPolicy::Prefix => Plan::Before(point(prng)),
        CrashPolicy::Suffix => Plan::From(point(prng)),
        CrashPolicy::Random(eighths) => Plan::Random(eighths),
        CrashPolicy::NewestOnly => Plan::From(changes().last().copied().unwrap_or(u64::MAX)),
        CrashPolicy::MetadataFirst => Plan::Parts { bytes: false, lengths: true, names: true },
        CrashPolicy::DataFirst => Plan::Parts { bytes: true, lengths: false, names: false },
        CrashPolicy::NamesWithoutData => Plan::Parts { bytes: false, lengths: false, names: true },
        CrashPolicy::TornLast(how) => torn(how, &mut |sectors| prng.below(sectors)),
        CrashPolicy::TornAt(how, boundary) => torn(how, &mut |_| u64::from(boundary)),
        CrashPolicy::TornPages(eighths) => Plan::TornPages(eighths),
        CrashPolicy::TornBlock => match newest_write(model) {
            Some((at, _)) => Plan::TornBlock { at },
            None => Plan::All,
        },
        CrashPolicy::DropEntries => {
            Plan::DropEntries { eighths: if prng.chance(1, 2) { 0 } else { 4 } }
        }
    }
}

impl Plan {
    /// Whether a name operation survives.
    fn keeps_name(&self, at: u64, prng: &mut Prng) -> bool {
        match *self {
            Self::Nothing => false,
            Self::All | Self::Torn { .. } | Self::TornPages(_) | Self::TornBlock { .. } => true,
            Self::Before(point) => at < point,
            Self::From(point) => at >= point,
            Self::Parts { names, .. } => names,
            Self::Random(eighths) | Self::DropEntries { eighths } => {
                prng.chance(u64::from(eighths), 8)
            }
        }
    }

    /// Number of the writes to a sector, oldest first, that its surviving state includes.
    fn sector_state(&self, writes: &[&Pending], prng: &mut Prng) -> usize {
        let all = writes.len();
        match *self {
            Self::Nothing => 0,
            Self::All | Self::DropEntries { .. } | Self::TornPages(_) | Self::TornBlock { .. } => {
                all
            }
            Self::Before(point) | Self::Torn { at: point, .. } => {
                writes.partition_point(|p| p.at < point)
            }
            Self::From(point) => {
                if writes.last().is_some_and(|p| p.at >= point) {
                    all
                } else {
                    0
                }
            }
            Self::Parts { bytes, .. } => {
                if bytes {
                    all
                } else {
                    0
                }
            }
            Self::Random(eighths) => {
                if !prng.chance(u64::from(eighths), 8) {
                    0
                } else if prng.chance(3, 4) {
                    all
                } else {
                    1 + prng.below(all as u64) as usize
                }
            }
        }
    }

    /// The surviving length of a file with un-synced changes.
    fn len(&self, inode: &Inode, prng: &mut Prng) -> u64 {
        let (old, new) = (inode.durable.len(), inode.pending.last().map_or(0, |p| p.len_after));
        match *self {
            Self::Nothing => old,
            Self::All
            | Self::DropEntries { .. }
            | Self::Torn { .. }
            | Self::TornPages(_)
            | Self::TornBlock { .. } => new,
            Self::Before(point) => {
                let before = inode.pending.partition_point(|p| p.at < point);
                before.checked_sub(1).map_or(old, |last| inode.pending[last].len_after)
            }
            Self::From(point) => {
                if inode.pending.last().is_some_and(|p| p.at >= point) {
                    new
                } else {
                    old
                }
            }
            Self::Parts { lengths, .. } => {
                if lengths {
                    new
                } else {
                    old
                }
            }
            Self::Random(eighths) => {
                if prng.chance(u64::from(eighths), 8) {
                    return new;
                }
                let chosen = prng.below(inode.pending.len() as u64 + 1) as usize;
                inode.pending.get(chosen).map_or(old, |p| p.len_after)
            }
        }
    }

    fn content(&self, inode: &Inode, prng: &mut Prng) -> Arc<Content> {
        let torn_here = match *self {
            Self::Torn { at, .. } => inode.pending.iter().rfind(|p| p.at == at),
            _ => None,
        };
        if inode.pending.is_empty() || matches!(self, Self::Nothing) {
            return Arc::clone(&inode.durable);
        }
        let whole = matches!(self, Self::All | Self::DropEntries { .. } | Self::Torn { .. });
        if whole && torn_here.is_none() {
            return inode.synced();
        }
        if let Self::TornPages(eighths) = *self {
            return Arc::new(torn_pages(inode, u64::from(eighths), prng));
        }
        if let Self::TornBlock { at } = *self {
            return torn_block(inode, at, prng);
        }
        let mut content = Content::clone(&inode.durable);
        let mut sectors: BTreeMap<u64, Vec<&Pending>> = BTreeMap::new();
        for pending in inode.pending.iter().filter(|p| p.bytes() > 0) {
            // `set_len` below cuts sectors beyond the surviving length.
            let first = pending.offset / SECTOR_BYTES;
            let end = (pending.offset + pending.bytes()).div_ceil(SECTOR_BYTES);
            for sector in first..end {
                sectors.entry(sector).or_default().push(pending);
            }
        }
        for (sector, writes) in &sectors {
            let state = self.sector_state(writes, prng);
            for write in &writes[..state] {
                write.apply(&mut content, sector * SECTOR_BYTES, (sector + 1) * SECTOR_BYTES);
            }
        }
        let mut len = self.len(inode, prng);
        if let Some(write) = torn_here {
            len = self.tear(&mut content, write, inode, len, prng);
        }
        content.set_len(len);
        Arc::new(content)
    }

    /// Writes the surviving part of the torn write; returns the file's length.
    fn tear(
        &self,
        content: &mut Content,
        write: &Pending,
        inode: &Inode,
        len: u64,
        prng: &mut Prng,
    ) -> u64 {
        let Self::Torn { torn, boundary, .. } = *self else { return len };
        let end = write.offset + write.bytes();
        let tear =
            ((write.offset / SECTOR_BYTES + boundary) * SECTOR_BYTES).clamp(write.offset, end);
        if torn == Torn::NewBehindOld {
            write.apply(content, tear, end);
            return len;
        }
        write.apply(content, write.offset, tear);
        match torn {
            Torn::Zero => content.zero(tear, end - tear),
            Torn::Garbage | Torn::Page => {
                let page = tear / PAGE_BYTES * PAGE_BYTES;
                let start = if torn == Torn::Page { page } else { tear };
                let garbage: Vec<u8> = (start..end).map(|_| prng.next_u64() as u8).collect();
                content.write(start, &garbage);
            }
            Torn::Old | Torn::NewBehindOld => {
                let older = inode.pending.iter().rfind(|p| p.at < write.at);
                let before = older.map_or(inode.durable.len(), |p| p.len_after);
                return len.min(tear.max(before));
            }
        }
        len
    }
}

/// The newest content, in which each written page holds garbage by chance.
fn torn_pages(inode: &Inode, eighths: u64, prng: &mut Prng) -> Content {
    let mut content = Content::clone(&inode.synced());
    let len = content.len();
    let written = |p: &Pending| p.offset / PAGE_BYTES..(p.offset + p.bytes()).div_ceil(PAGE_BYTES);
    let writes = inode.pending.iter().filter(|p| p.bytes() > 0);
    let pages: BTreeSet<u64> = writes.flat_map(written).collect();
    for start in pages.into_iter().map(|page| page * PAGE_BYTES).filter(|&start| start < len) {
        if prng.chance(eighths, 8) {
            let end = len.min(start + PAGE_BYTES);
            let garbage: Vec<u8> = (start..end).map(|_| prng.next_u64() as u8).collect();
            content.write(start, &garbage);
        }
    }
    content
}

/// The newest content, with garbage around the write `at` if it is one of a superblock.
fn torn_block(inode: &Inode, at: u64, prng: &mut Prng) -> Arc<Content> {
    let newest = inode.synced();
    let len = newest.len();
    let write = inode.pending.iter().rfind(|p| p.at == at);
    let is_superblock = |p: &&Pending| p.offset + p.bytes() <= SUPERBLOCKS_BYTES;
    let Some(write) = write.filter(is_superblock).filter(|_| len > SUPERBLOCKS_BYTES) else {
        return newest;
    };
    let start = write.offset / BLOCK_BYTES * BLOCK_BYTES;
    let end = (write.offset + write.bytes()).next_multiple_of(BLOCK_BYTES).min(len);
    let garbage: Vec<u8> = (start..end).map(|_| prng.next_u64() as u8).collect();
    let mut content = Content::clone(&newest);
    content.write(start, &garbage);
    Arc::new(content)
}

/// The disk after a power cut: all of its content is durable.
pub(super) fn image(model: &Model, policy: CrashPolicy, seed: u64) -> Model {
    let mut prng = Prng::new(seed);
    let plan = draw(model, policy, &mut prng);
    let mut names: Names = model.durable_names.clone();
    for pending in &model.pending_names {
        if plan.keeps_name(pending.at, &mut prng) {
            pending.apply(&mut names);
        }
    }
    let mut inodes = BTreeMap::new();
    for &id in names.values() {
        let Some(inode) = model.inodes.get(&id) else { continue };
        let content = plan.content(inode, &mut prng);
        inodes.insert(id, Inode { class: inode.class, ..Inode::at_rest(content) });
    }
    let image = Model {
        inodes,
        next_inode: model.next_inode,
        durable_names: names.clone(),
        names,
        pending_names: Vec::new(),
        at: 0,
    };
    image.assert_names();
    image
}
