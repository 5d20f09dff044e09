//! Making a file or a device a store: what its areas are, and the zeros in them.
//!
//! Superblocks and logs are written with zeros at once, so that a small synced write changes
//! nothing but its own bytes (H36); slots when they are first used. Not here: the superblock's
//! bytes.
//!
//! Source: LDS §3.1, the zones.

use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::prng::Prng;
use crate::device::File;
use crate::storage::LOG_UNIT_BYTES;
use crate::storage::slots::CELLS_MAX;
use crate::storage::slots::page::{HEAD_MAGIC, PAGE_BYTES, Uuid};
use crate::storage::slots::superblock::{
    AREAS_END, Area, AreaKind, LOG_UNITS, Superblock, Superblocks,
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Where the areas begin: behind both superblocks.
pub(super) const AREAS_OFFSET: u64 = 2 * MIB;
/// The smallest device: less would be all areas and hardly a slot.
const DEVICE_BYTES_MIN: u64 = 8 * MIB;
/// Slots that a small device has by default: tables leave half of their last one empty, and for
/// what is kept back for merges each table counts as one that leaves all of it.
const SLOTS_WANTED: u64 = 16_384;
const SLOT_BYTES_MIN: u64 = 64 * KIB;
const SLOT_BYTES_MAX: u64 = 1 << 30;
/// Zeros of logs are written in pieces of a page: the page cache keeps a file in folios as large as
/// the writes that made them, and a small write into a large one costs twice the time.
/// Not in tests, in which each write is a place where the power is cut and where a call fails.
const LOG_PIECE: u64 = if cfg!(test) { 256 * KIB } else { 4 * KIB };
/// Areas and cells are multiples of this: a tear of a large sector stays inside one of them.
pub(super) const AREA_UNIT: u64 = 64 * KIB;
/// Cells that the log is divided into: at most half of them are in use between two flushes, one is
/// being prepared, and one is kept for reuse.
const CELLS: u64 = 16;
/// Largest cell: as much as one flush makes obsolete at most.
const CELL_BYTES_MAX: u64 = 64 * MIB;
/// Largest log: of the largest cells, as many as there can be.
const LOG_BYTES_MAX: u64 = CELLS_MAX * CELL_BYTES_MAX;
const LOG_BYTES_DEFAULT_MAX: u64 = 256 * MIB;
/// Bytes of a half of the version log for each slot: a table's description has some 110 bytes with
/// short keys, and a slot holds one table at most; twice that for the edits behind it, and room for
/// longer keys.
const HALF_BYTES_PER_SLOT: u64 = 512;
const HALF_BYTES_MIN: u64 = 4 * MIB;

/// How a file or a block device is divided into areas by [`format`](crate::format).
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("store.weir");
/// weir::format(&path, &weir::FormatOptions::new().size(64 << 20).slot_bytes(64 << 10))?;
/// let db = weir::Db::open(&path)?;
/// db.put("key", "value")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FormatOptions {
    /// Bytes of the file: required for one that does not exist; of an existing file or a device all
    /// of it is taken by default. At least 8 MiB.
    pub size: Option<u64>,
    /// Bytes of a slot, the unit in which tables take space: a power of two from 64 KiB to 1 GiB. A
    /// table takes whole slots: with tables of 32 MiB, slots of 1 MiB waste some 2 % of the space,
    /// with those of eight slots, which are the smallest beside a small cache, some 6 %, and slots
    /// as large as tables some 10 %. Default: 1 MiB, and less below 16 GiB, so that there are
    /// 16,384 slots.
    pub slot_bytes: Option<u64>,
    /// Bytes of the area of the write-ahead log, at least 1 MiB. Default: a sixteenth of the
    /// device, at most 256 MiB. No value can be larger than a quarter of it.
    pub log_bytes: Option<u64>,
    /// What a commit with [`Durability::Sync`](crate::Durability::Sync) is padded to in the
    /// write-ahead log, in bytes: 4,096, 512 or 8; at least
    /// [`atomic_bytes`](field@Self::atomic_bytes). A smaller unit keeps more commits in a segment
    /// of the log, and a replay reads less; the device is written to as before, in whole pages of
    /// 4 KiB, of which one is written again by each commit that shares it. Default: 4,096.
    pub log_unit: Option<u64>,
    /// The bytes that the device writes wholly or not at all, a power cut in the middle included,
    /// and without damage to those beside them: as its maker says. What a device or a file system
    /// tells of its sectors is no promise of that. A power of two from 8 to 4,096. Default: 4,096,
    /// whatever the device says.
    pub atomic_bytes: Option<u64>,
    /// Takes the file or the device although it holds something, which is lost.
    pub force: bool,
    /// Overwrites the slots with zeros, too. It takes as long as writing the whole device; then a
    /// file on a file system has no unwritten extents left, and the first use of a slot costs no
    /// metadata.
    pub zero: bool,
}

impl FormatOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`size`](field@Self::size).
    #[must_use]
    pub fn size(mut self, bytes: u64) -> Self {
        self.size = Some(bytes);
        self
    }

    /// Sets [`slot_bytes`](field@Self::slot_bytes).
    #[must_use]
    pub fn slot_bytes(mut self, bytes: u64) -> Self {
        self.slot_bytes = Some(bytes);
        self
    }

    /// Sets [`log_bytes`](field@Self::log_bytes).
    #[must_use]
    pub fn log_bytes(mut self, bytes: u64) -> Self {
        self.log_bytes = Some(bytes);
        self
    }

    /// Sets [`log_unit`](field@Self::log_unit).
    #[must_use]
    pub fn log_unit(mut self, bytes: u64) -> Self {
        self.log_unit = Some(bytes);
        self
    }

    /// Sets [`atomic_bytes`](field@Self::atomic_bytes).
    #[must_use]
    pub fn atomic_bytes(mut self, bytes: u64) -> Self {
        self.atomic_bytes = Some(bytes);
        self
    }

    /// Sets [`force`](field@Self::force).
    #[must_use]
    pub fn force(mut self, yes: bool) -> Self {
        self.force = yes;
        self
    }

    /// Sets [`zero`](field@Self::zero).
    #[must_use]
    pub fn zero(mut self, yes: bool) -> Self {
        self.zero = yes;
        self
    }

    /// The unit of the write-ahead log.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such unit, or the device may tear it.
    fn checked_log_unit(&self) -> Result<u64> {
        let unit = self.log_unit.unwrap_or(LOG_UNIT_BYTES);
        let atomic = self.atomic_bytes.unwrap_or(LOG_UNIT_BYTES);
        if !LOG_UNITS.contains(&unit) {
            return Err(Error::invalid(format!(
                "a log unit of {unit} bytes: choose 4096, 512 or 8"
            )));
        }
        if !atomic.is_power_of_two() || !(8..=LOG_UNIT_BYTES).contains(&atomic) {
            return Err(Error::invalid(format!(
                "{atomic} bytes that the device writes wholly or not at all: name a power of two \
                 from 8 to 4096"
            )));
        }
        if unit < atomic {
            return Err(Error::invalid(format!(
                "a log unit of {unit} bytes is smaller than the {atomic} bytes that the device is \
                 known to write wholly or not at all: a power cut could damage commits that were \
                 acknowledged. Choose a larger unit or, if the device's maker promises it, say \
                 that the device writes {unit} bytes so (atomic_bytes, `--atomic-bytes {unit}`)"
            )));
        }
        Ok(unit)
    }

    /// The first superblock of a device of `bytes` bytes.
    ///
    /// # Errors
    /// `InvalidArgument` that says which option does not fit.
    pub(super) fn layout(&self, bytes: u64, uuid: Uuid) -> Result<Superblock> {
        if bytes < DEVICE_BYTES_MIN {
            return Err(Error::invalid(format!(
                "{bytes} bytes are too few for a store; at least {DEVICE_BYTES_MIN} (8 MiB) are \
                 needed"
            )));
        }
        if bytes >= AREAS_END {
            return Err(Error::invalid(format!(
                "{bytes} bytes are too many for a store; it has less than {AREAS_END} (64 PiB)"
            )));
        }
        let slots_default = (bytes / SLOTS_WANTED).next_power_of_two();
        let slot_bytes = self.slot_bytes.unwrap_or(slots_default.clamp(SLOT_BYTES_MIN, MIB));
        if !slot_bytes.is_power_of_two() || !(SLOT_BYTES_MIN..=SLOT_BYTES_MAX).contains(&slot_bytes)
        {
            return Err(Error::invalid(format!(
                "slots of {slot_bytes} bytes: choose a power of two from 64 KiB to 1 GiB"
            )));
        }
        let log_default = (bytes / 16).clamp(MIB, LOG_BYTES_DEFAULT_MAX);
        let log = self.log_bytes.unwrap_or(log_default);
        if log < MIB {
            return Err(Error::invalid(format!(
                "{log} bytes are too few for the write-ahead log; at least 1 MiB is needed"
            )));
        }
        if log > LOG_BYTES_MAX {
            return Err(Error::invalid(format!(
                "{log} bytes are too many for the write-ahead log; it has {LOG_BYTES_MAX} (4 TiB) \
                 at most"
            )));
        }
        let cell_bytes = (log / CELLS / AREA_UNIT * AREA_UNIT).clamp(AREA_UNIT, CELL_BYTES_MAX);
        let log = log / cell_bytes * cell_bytes;
        let half = (bytes / slot_bytes * HALF_BYTES_PER_SLOT)
            .max(HALF_BYTES_MIN.min(bytes / 32))
            .next_multiple_of(AREA_UNIT);
        let mut offset = AREAS_OFFSET;
        let mut areas = Vec::new();
        let mut add = |kind, bytes| {
            areas.push(Area { kind, space: 0, offset, bytes });
            offset += bytes;
            offset
        };
        add(AreaKind::FirstHalf, half);
        add(AreaKind::SecondHalf, half);
        let slots = add(AreaKind::Log, log).next_multiple_of(slot_bytes.min(MIB));
        let room = bytes.saturating_sub(slots) / slot_bytes * slot_bytes;
        // Two tables of a flush, and something to merge them into.
        if room < 4 * slot_bytes {
            return Err(Error::invalid(format!(
                "{bytes} bytes leave no room for 4 slots of {slot_bytes} bytes beside {log} bytes \
                 of write-ahead log; choose a larger size, smaller slots or a smaller log"
            )));
        }
        areas.push(Area { kind: AreaKind::Slots, space: 0, offset: slots, bytes: room });
        let log_unit = self.checked_log_unit()?;
        Ok(Superblock { uuid, generation: 1, slot_bytes, cell_bytes, log_unit, areas, root: None })
    }
}

/// A new identity.
pub(super) fn new_uuid() -> Uuid {
    let mut uuid = [0; 16];
    let (a, b) = uuid.split_at_mut(8);
    a.copy_from_slice(&Prng::entropy().to_le_bytes());
    b.copy_from_slice(&Prng::entropy().to_le_bytes());
    uuid
}

/// Makes `device`, which has its whole length already, a store. Whatever it held is lost. A power
/// cut in between leaves no store.
///
/// # Errors
/// `InvalidArgument` as [`FormatOptions::layout`], before anything is changed; the device's.
pub(super) fn format(device: &Arc<dyn File>, options: &FormatOptions, uuid: Uuid) -> Result<()> {
    let first = options.layout(device.len()?, uuid)?;
    Superblocks::wipe(device)?;
    for area in &first.areas {
        if area.kind != AreaKind::Slots || options.zero {
            let piece = if area.kind == AreaKind::Slots { MIB } else { LOG_PIECE };
            write_zeros(&**device, area.offset, area.bytes, piece)?;
        }
    }
    device.sync()?;
    Superblocks::format(Arc::clone(device), first)?;
    Ok(())
}

/// Clears what [`content_of`] looks at at the end of a file or device, which slots may have
/// reached.
///
/// # Errors
/// The device's.
pub(super) fn clear_end(device: &Arc<dyn File>) -> Result<()> {
    let bytes = device.len()?;
    let start = bytes.saturating_sub(MIB).max(AREAS_OFFSET).min(bytes);
    device.write_at(&vec![0; (bytes - start) as usize], start)?;
    device.sync()
}

/// What a file or device seems to hold, by its first and last MiB; `None`: zeros.
///
/// # Errors
/// The device's.
pub(crate) fn content_of(device: &Arc<dyn File>) -> Result<Option<&'static str>> {
    /// What is where, and what it says.
    const KNOWN: [(usize, &[u8], &str); 9] = [
        (0, b"WEIRSLOT", "a Weir store"),
        (0x438, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
        (0, b"XFSB", "an XFS file system"),
        (0x1_0040, b"_BHRfS_M", "a btrfs file system"),
        (0x400, b"\x10\x20\xf5\xf2", "an F2FS file system"),
        (0xff6, b"SWAPSPACE2", "swap space"),
        (512, b"EFI PART", "a partition table (GPT)"),
        (0, b"LUKS", "an encrypted volume (LUKS)"),
        (510, b"\x55\xaa", "a boot record or partition table"),
    ];
    let bytes = device.len()?;
    let ends = MIB.min(bytes);
    let (mut first, mut last) = (vec![0; ends as usize], vec![0; ends as usize]);
    device.read_exact_at(&mut first, 0)?;
    device.read_exact_at(&mut last, bytes - ends)?;
    let is_there = |(at, magic, _): &&(usize, &[u8], &str)| {
        first.get(*at..).is_some_and(|rest| rest.starts_with(magic))
    };
    if let Some((_, _, what)) = KNOWN.iter().find(is_there) {
        return Ok(Some(what));
    }
    // Where its superblocks are lost, its logs may not be.
    let mut head = [0; PAGE_BYTES];
    let got = device.read_at(&mut head, AREAS_OFFSET)?;
    if head[..got].starts_with(&HEAD_MAGIC) {
        return Ok(Some("what was a Weir store: its superblocks are lost, and its logs are not"));
    }
    let is_blank = first.iter().chain(&last).all(|&byte| byte == 0);
    Ok((!is_blank).then_some("something: its first or last MiB is not all zeros"))
}

fn write_zeros(device: &dyn File, offset: u64, bytes: u64, piece: u64) -> Result<()> {
    let zeros = vec![0; piece as usize];
    let mut done = 0;
    while done < bytes {
        let piece = (bytes - done).min(piece);
        device.write_at(&zeros[..piece as usize], offset + done)?;
        done += piece;
        if done.is_multiple_of(MIB) {
            device.write_back(offset + done - MIB, MIB)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::ErrorKind;

    /// Goal: whatever is asked for, areas fit the device and leave slots, or the error says what to
    /// change. Method: many sizes and options.
    #[test]
    fn layouts_fit() {
        let mut laid_out = 0;
        let small = [0, 7 * MIB, 8 * MIB, 9 * MIB + 4097, 100 * MIB];
        let large = [2 << 30, 1 << 40, 1 << 50, (1 << 56) - 1, 1 << 56, 1 << 63, u64::MAX];
        for bytes in small.into_iter().chain(large) {
            for slot_bytes in [1, 4096, 64 * KIB, MIB, 3 * MIB, 32 * MIB, 1 << 30, 1 << 31] {
                let logs =
                    [0, MIB, 5 * MIB + 1, 1 << 30, 4 << 40, (4 << 40) + 1, 1 << 63, u64::MAX];
                for log_bytes in logs.map(Some).into_iter().chain([None]) {
                    let options = FormatOptions {
                        slot_bytes: Some(slot_bytes),
                        log_bytes,
                        ..Default::default()
                    };
                    let superblock = match options.layout(bytes, [1; 16]) {
                        Ok(superblock) => superblock,
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
                            continue;
                        }
                    };
                    laid_out += 1;
                    assert!(superblock.is_sound(), "{options:?} in {bytes}");
                    let end = superblock.areas.iter().map(|a| a.offset + a.bytes).max();
                    assert!(end.is_some_and(|end| end <= bytes), "{options:?} in {bytes}");
                    let cells = superblock.areas[2].bytes / superblock.cell_bytes;
                    assert!(
                        (16..=CELLS_MAX).contains(&cells),
                        "{cells} cells of {options:?} in {bytes}"
                    );
                    assert!(superblock.areas[3].bytes >= 4 * slot_bytes);
                    // H44: slots begin where the device's own units do.
                    assert_eq!(superblock.areas[3].offset % slot_bytes.min(MIB), 0);
                }
            }
        }
        assert!(laid_out > 50, "{laid_out}");
    }
}
