// FORMAT: docs/format/slots.md sha=19adb194e2d9
//! The superblock: what a store in one file is divided into, and its root record.
//!
//! Two copies of a page of 4 KiB, 1 MiB apart, with a generation. Not here: what the root record
//! means, what areas hold.
//!
//! Invariants: (1) the copy that does not hold the newest content is written first, and is durable
//! before the other one is touched, so that a power cut never finds both torn (H76); (2) after a
//! replacement both hold the new content, so that damage to one of them at rest takes nothing back;
//! (3) the newer of two valid copies holds, and one that is torn, damaged or cannot be read gives
//! way to the other; one of a newer format does not; (4) copies with different uuids are of two
//! lives of the device, and are refused (H78): only a repair asks which of them is the store's.
//!
//! Source: LDS §3.1. We differ: two copies, where the paper has one.

use std::sync::Arc;

use crate::base::checksum::{crc, mask};
use crate::base::coding::{Reader, put_u32, put_varint};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::ids::SegmentNumber;
use crate::base::tagged::{next_field, number, put_field, put_number, unknown};
use crate::device::File;
use crate::storage::slots::format::AREAS_OFFSET;
use crate::storage::slots::page::{LAYOUT_BYTES_MAX, LogHead, PAGE_BYTES, Uuid};
use crate::storage::{LOG_UNIT_BYTES, LogKind, ROOT_RECORD_BYTES_MAX};

/// What synced groups of the write-ahead log may be padded to, in bytes: the page cache's pages,
/// small sectors, and as good as nothing (LDS §4.6).
pub(super) const LOG_UNITS: [u64; 3] = [8, 512, LOG_UNIT_BYTES];

/// First bytes of a superblock.
const SUPERBLOCK_MAGIC: [u8; 8] = *b"WEIRSLOT";
/// Format of the store in slots. 1: the first.
const SLOTS_FORMAT: u32 = 1;
/// Bytes of a copy: a page, which devices write as a whole or tear as one.
const SUPERBLOCK_BYTES: usize = 4096;
/// Where the copies are: so far apart that no torn sector has both, and neither at the end of a
/// device, which moves when it grows.
const COPY_OFFSETS: [u64; 2] = [0, 1 << 20];
/// Bytes before the fields: magic 8, format 4, bytes of the fields 4.
const SUPERBLOCK_HEAD_BYTES: usize = SUPERBLOCK_MAGIC.len() + 4 + 4;
/// Bytes of the checksum, the last of the page.
const SUPERBLOCK_CRC_BYTES: usize = 4;
/// Fewest bytes of an extent of an area, a slot or a cell: what is in it has a page of its own.
const AREA_BYTES_MIN: u64 = 64 << 10;
/// Most extents that all areas together have.
const AREAS_MAX: usize = 16;

const TAG_UUID: u64 = 2;
const TAG_GENERATION: u64 = 4;
const TAG_SLOT_BYTES: u64 = 6;
const TAG_CELL_BYTES: u64 = 8;
const TAG_LOG_UNIT: u64 = 10;
const TAG_AREA: u64 = 12;
const TAG_ROOT: u64 = 14;
const TAG_ROOT_LOG: u64 = 16;
const TAG_ROOT_HALF: u64 = 18;
// Reserved: 20 further spaces, 22 the device of the log, 24 how tables are cut, 26 key id, 1 name
// of the program that wrote it.

/// Bytes of all fields but the root record, at most: 8 of up to 20 bytes, and the areas.
const FIELDS_BYTES_MAX: usize = 8 * 20 + AREAS_MAX * 34;
const _: () = assert!(FIELDS_BYTES_MAX <= LAYOUT_BYTES_MAX);
const _: () = assert!(
    SUPERBLOCK_HEAD_BYTES + FIELDS_BYTES_MAX + ROOT_RECORD_BYTES_MAX + SUPERBLOCK_CRC_BYTES
        <= SUPERBLOCK_BYTES
);

/// Areas end before this.
pub(super) const AREAS_END: u64 = 1 << 56;
/// Generations are smaller: no store gets there.
const GENERATIONS_END: u64 = 1 << 63;

const RECORD: &str = "superblock";

/// What an area is for. The numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum AreaKind {
    /// The first half of the version log's area.
    FirstHalf = 1,
    /// The second half.
    SecondHalf = 2,
    /// The cells of the write-ahead log.
    Log = 3,
    /// The slots of tables.
    Slots = 4,
}

impl AreaKind {
    fn from_number(number: u64) -> Option<Self> {
        let all = [Self::FirstHalf, Self::SecondHalf, Self::Log, Self::Slots];
        all.into_iter().find(|&kind| kind as u64 == number)
    }
}

/// An extent of an area. Several of one kind are one area, in their order, so that it can grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Area {
    pub(super) kind: AreaKind,
    /// Number of the space: 0 is the device that the superblock is on.
    pub(super) space: u32,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// The root record, as storage knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RootCopy {
    pub(super) record: Vec<u8>,
    /// The version log that it names, and the half which that is in.
    pub(super) log: SegmentNumber,
    pub(super) half: u8,
}

/// The content of a superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Superblock {
    /// Identity of the formatted device, drawn when it was formatted (H78).
    pub(super) uuid: Uuid,
    /// Rises by one with each write.
    pub(super) generation: u64,
    pub(super) slot_bytes: u64,
    pub(super) cell_bytes: u64,
    /// What a synced group of a log is padded to, in bytes.
    pub(super) log_unit: u64,
    pub(super) areas: Vec<Area>,
    /// `None` before the first root was written.
    pub(super) root: Option<RootCopy>,
}

impl Superblock {
    /// Whether a half of the version log has a head of this store, as each has that was opened.
    pub(super) fn is_at_home(&self, device: &dyn File) -> bool {
        let halves = [AreaKind::FirstHalf, AreaKind::SecondHalf];
        let mut areas = self.areas.iter().filter(|area| halves.contains(&area.kind));
        areas.any(|area| {
            let mut page = vec![0; PAGE_BYTES];
            let read = device.read_at(&mut page, area.offset).unwrap_or(0);
            let head = LogHead::decode(page.get(..read).unwrap_or_default(), &self.uuid);
            head.is_some_and(|head| head.kind == LogKind::Versions)
        })
    }

    /// All fields but those of the root.
    pub(super) fn layout(&self) -> Vec<u8> {
        assert!(self.areas.len() <= AREAS_MAX, "{} extents of areas", self.areas.len());
        let mut fields = Vec::new();
        put_field(&mut fields, TAG_UUID, &self.uuid);
        put_number(&mut fields, TAG_GENERATION, self.generation);
        put_number(&mut fields, TAG_SLOT_BYTES, self.slot_bytes);
        put_number(&mut fields, TAG_CELL_BYTES, self.cell_bytes);
        put_number(&mut fields, TAG_LOG_UNIT, self.log_unit);
        for area in &self.areas {
            let mut numbers = Vec::new();
            for number in [area.kind as u64, u64::from(area.space), area.offset, area.bytes] {
                put_varint(&mut numbers, number);
            }
            put_field(&mut fields, TAG_AREA, &numbers);
        }
        fields
    }

    /// A superblock without a root, of its [layout](Self::layout).
    ///
    /// # Errors
    /// `Corruption`; `Unsupported` for an unknown critical field.
    pub(super) fn of_layout(fields: &[u8], file: &str) -> Result<Self> {
        let superblock = Self::decode_fields(fields, file)?;
        let damaged = |what: &str| Error::corruption(file, 0, format_args!("a {RECORD} {what}"));
        superblock.check().map_err(damaged)?;
        Ok(superblock)
    }

    /// A whole copy.
    fn encode(&self) -> Vec<u8> {
        let mut fields = self.layout();
        if let Some(RootCopy { record, log, half }) = &self.root {
            assert!(record.len() <= ROOT_RECORD_BYTES_MAX, "a root of {} bytes", record.len());
            put_field(&mut fields, TAG_ROOT, record);
            put_number(&mut fields, TAG_ROOT_LOG, log.get());
            put_number(&mut fields, TAG_ROOT_HALF, u64::from(*half));
        }
        let mut page = Vec::with_capacity(SUPERBLOCK_BYTES);
        page.extend_from_slice(&SUPERBLOCK_MAGIC);
        put_u32(&mut page, SLOTS_FORMAT);
        put_u32(&mut page, fields.len() as u32);
        page.extend_from_slice(&fields);
        assert!(page.len() + SUPERBLOCK_CRC_BYTES <= SUPERBLOCK_BYTES, "{} bytes", page.len());
        page.resize(SUPERBLOCK_BYTES - SUPERBLOCK_CRC_BYTES, 0);
        let checksum = mask(crc(&page));
        put_u32(&mut page, checksum);
        debug_assert_eq!(Self::decode(&page, "the encoded superblock").ok().as_ref(), Some(self));
        page
    }

    /// The content of a copy; `file` is for messages.
    ///
    /// # Errors
    /// `Corruption`; `Unsupported` for a newer format or an unknown critical field.
    fn decode(page: &[u8], file: &str) -> Result<Self> {
        let damaged = |what: &str| Error::corruption(file, 0, format_args!("a {RECORD} {what}"));
        if page.len() != SUPERBLOCK_BYTES && page.starts_with(&SUPERBLOCK_MAGIC) {
            let what = format!(
                "{file} is cut off within its first {SUPERBLOCK_BYTES} bytes: nothing of a store \
                 that it was can be read or repaired; restore a backup"
            );
            return Err(Error::hopeless(file, 0, what));
        }
        if page.len() != SUPERBLOCK_BYTES || !page.starts_with(&SUPERBLOCK_MAGIC) {
            return Err(damaged("that is none"));
        }
        let (covered, stored) = page.split_at(SUPERBLOCK_BYTES - SUPERBLOCK_CRC_BYTES);
        if Reader::new(stored).u32() != Some(mask(crc(covered))) {
            return Err(damaged("with a wrong checksum"));
        }
        let mut reader = Reader::new(covered);
        let magic = reader.take(SUPERBLOCK_MAGIC.len());
        let head = magic.and_then(|_| Some((reader.u32()?, reader.u32()?)));
        let (format, bytes) = head.ok_or_else(|| damaged("that is cut off"))?;
        if format > SLOTS_FORMAT {
            let what = format!(
                "{file} has format {format} of slots, this version knows up to {SLOTS_FORMAT}; \
                 open the store with the version that wrote it"
            );
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        let fields = reader.take(bytes as usize).ok_or_else(|| damaged("that is cut off"))?;
        let superblock = Self::decode_fields(fields, file)?;
        superblock.check().map_err(damaged)?;
        Ok(superblock)
    }

    fn decode_fields(fields: &[u8], file: &str) -> Result<Self> {
        let damaged = |what: &str| Error::corruption(file, 0, format_args!("a {RECORD} {what}"));
        let mut superblock = Self {
            uuid: [0; 16],
            generation: 0,
            slot_bytes: 0,
            cell_bytes: 0,
            log_unit: 0,
            areas: Vec::new(),
            root: None,
        };
        let (mut record, mut log, mut half) = (None, None, None);
        let mut reader = Reader::new(fields);
        while !reader.is_empty() {
            let (tag, content) =
                next_field(&mut reader).ok_or_else(|| damaged("with a field that is cut off"))?;
            let value = || number(content).ok_or_else(|| damaged("with a malformed number"));
            match tag {
                TAG_UUID => {
                    let uuid = content.try_into();
                    superblock.uuid = uuid.map_err(|_| damaged("with a malformed uuid"))?;
                }
                TAG_GENERATION => superblock.generation = value()?,
                TAG_SLOT_BYTES => superblock.slot_bytes = value()?,
                TAG_CELL_BYTES => superblock.cell_bytes = value()?,
                TAG_LOG_UNIT => superblock.log_unit = value()?,
                TAG_AREA => {
                    let area = Area::decode(content);
                    superblock.areas.push(area.ok_or_else(|| damaged("with a malformed area"))?);
                }
                TAG_ROOT => record = Some(content.to_vec()),
                TAG_ROOT_LOG => log = SegmentNumber::stored(value()?),
                TAG_ROOT_HALF => half = u8::try_from(value()?).ok().filter(|&half| half < 2),
                _ => unknown(RECORD, tag)?,
            }
        }
        superblock.root = match (record, log, half) {
            (None, None, None) => None,
            (Some(record), Some(log), Some(half)) => Some(RootCopy { record, log, half }),
            _ => return Err(damaged("with a part of a root record")),
        };
        Ok(superblock)
    }

    #[cfg(test)]
    pub(super) fn is_sound(&self) -> bool {
        self.check().is_ok()
    }

    /// That the numbers fit each other.
    fn check(&self) -> Result<(), &'static str> {
        let pages = [self.slot_bytes, self.cell_bytes];
        let sound = |bytes: &u64| *bytes > 0 && bytes.is_multiple_of(SUPERBLOCK_BYTES as u64);
        let areas =
            self.areas.iter().map(|area| area.bytes).chain([self.slot_bytes, self.cell_bytes]);
        let small = areas.min().is_some_and(|bytes| bytes < AREA_BYTES_MIN);
        let generations = 1..GENERATIONS_END;
        let unit = LOG_UNITS.contains(&self.log_unit);
        if !generations.contains(&self.generation) || small || !unit || !pages.iter().all(sound) {
            return Err("with a number that cannot be");
        }
        if self.areas.len() > AREAS_MAX {
            return Err("with more areas than there can be");
        }
        // The copies and all areas of a device are apart.
        let copy = |&offset: &u64| (0, offset, offset + SUPERBLOCK_BYTES as u64);
        let mut ranges: Vec<(u32, u64, u64)> = COPY_OFFSETS.iter().map(copy).collect();
        for Area { space, offset, bytes, .. } in &self.areas {
            let end = offset.checked_add(*bytes).filter(|&end| end > *offset && end < AREAS_END);
            // Requests that pass the page cache have to be aligned.
            let end = end.filter(|_| offset.is_multiple_of(SUPERBLOCK_BYTES as u64));
            ranges.push((*space, *offset, end.ok_or("with an area that no device has")?));
        }
        ranges.sort_unstable();
        let apart = ranges.iter().zip(ranges.iter().skip(1)).all(|(a, b)| a.0 != b.0 || a.2 <= b.1);
        if apart { Ok(()) } else { Err("with areas that overlap") }
    }
}

impl Area {
    fn decode(content: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(content);
        let kind = AreaKind::from_number(reader.varint()?)?;
        let space = u32::try_from(reader.varint()?).ok()?;
        let (offset, bytes) = (reader.varint()?, reader.varint()?);
        reader.is_empty().then_some(Self { kind, space, offset, bytes })
    }
}

/// The two copies on a device.
pub(super) struct Superblocks {
    device: Arc<dyn File>,
    /// What the newest copy holds.
    current: Superblock,
    /// Which of the two that is.
    newest: usize,
    /// How many of the two are sound.
    sound: u32,
}

impl Superblocks {
    /// Ends an earlier life of a device: it is no store then, nor what a repair makes one again by
    /// the heads of its version log.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn wipe(device: &Arc<dyn File>) -> Result<()> {
        let before = Self::open(Arc::clone(device)).ok().flatten();
        let halves = [AreaKind::FirstHalf, AreaKind::SecondHalf];
        let areas = before.iter().flat_map(|before| &before.current.areas);
        let heads = areas.filter(|area| area.space == 0 && halves.contains(&area.kind));
        let end = device.len()?;
        let heads = heads.map(|area| area.offset).chain([AREAS_OFFSET]);
        let pages: Vec<u64> = COPY_OFFSETS.into_iter().chain(heads).collect();
        // What was cut off may end within one.
        let there = |at: u64| end.saturating_sub(at).min(SUPERBLOCK_BYTES as u64) as usize;
        pages.iter().filter(|&&at| there(at) > 0).try_for_each(|&at| {
            let zeros = [0; SUPERBLOCK_BYTES];
            device.write_durable(zeros.get(..there(at)).unwrap_or_default(), at)
        })
    }

    /// Makes `first` the superblock of a device that was [wiped](Self::wipe). A power cut in
    /// between leaves a device without a superblock or with this one.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn format(device: Arc<dyn File>, first: Superblock) -> Result<Self> {
        assert_eq!(first.check(), Ok(()), "the superblock of a new store");
        let page = first.encode();
        for offset in COPY_OFFSETS {
            device.write_durable(&page, offset)?;
        }
        Ok(Self { device, current: first, newest: 0, sound: 2 })
    }

    /// Finds the newest copy. `None` if neither says that it is a superblock: the device is
    /// somebody else's, or its formatting was interrupted.
    ///
    /// # Errors
    /// `Corruption` if no copy is sound, or they contradict each other; `Unsupported` if one is of
    /// a newer format, which may be the newer one; the device's.
    pub(super) fn open(device: Arc<dyn File>) -> Result<Option<Self>> {
        let path = name_in(&device.path());
        let mut copies = Vec::new();
        let mut claims = false;
        for offset in COPY_OFFSETS {
            let mut page = vec![0; SUPERBLOCK_BYTES];
            let read = device.read_at(&mut page, offset);
            page.truncate(*read.as_ref().unwrap_or(&0));
            claims |= page.starts_with(&SUPERBLOCK_MAGIC);
            copies.push(read.and_then(|_| Superblock::decode(&page, &path)));
        }
        let is_unread = |copy: &Result<Superblock>| {
            copy.as_ref().is_err_and(|error| error.kind() == ErrorKind::Io)
        };
        if !claims {
            let unread = copies.into_iter().find(is_unread);
            return unread.map_or(Ok(None), |unread| unread.map(|_| None));
        }
        let newest = match (&copies[0], &copies[1]) {
            (Ok(a), Ok(b)) => newer(a, b, &path)?,
            // Not its bytes alone are bad, if it cannot be read: all the more the other one counts.
            (Ok(_), Err(error)) | (Err(error), Ok(_))
                if !matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Io) =>
            {
                return Err(error.clone());
            }
            (Ok(_), Err(_)) => 0,
            (Err(_), Ok(_)) => 1,
            (Err(a), Err(b)) => {
                let newer = [a, b].into_iter().find(|e| e.kind() != ErrorKind::Corruption);
                return Err(newer.unwrap_or(a).clone());
            }
        };
        let sound = copies.iter().filter(|copy| copy.is_ok()).count() as u32;
        let current = copies.swap_remove(newest)?;
        Ok(Some(Self { device, current, newest, sound }))
    }

    /// The copy that is of the store whose version log is there, if the other one is not: a part of
    /// another device was copied over that. For a repair.
    pub(super) fn open_own(device: &Arc<dyn File>) -> Option<Self> {
        let own = COPY_OFFSETS.map(|offset| {
            let mut page = vec![0; SUPERBLOCK_BYTES];
            let read = device.read_at(&mut page, offset).ok()?;
            let copy = Superblock::decode(page.get(..read)?, "").ok()?;
            Some(copy).filter(|copy| copy.is_at_home(&**device))
        });
        let (newest, current) = match own {
            [Some(first), None] => (0, first),
            [None, Some(second)] => (1, second),
            _ => return None,
        };
        Some(Self { device: Arc::clone(device), current, newest, sound: 1 })
    }

    /// How many of the two copies are sound.
    pub(super) fn sound(&self) -> u32 {
        self.sound
    }

    /// The superblock of a device that has lost both copies, as heads tell it (`lost`). It is
    /// written with the next root.
    pub(super) fn found_again(device: Arc<dyn File>, superblock: Superblock) -> Self {
        assert!(superblock.root.is_none() && superblock.check().is_ok(), "{superblock:?}");
        Self { device, current: superblock, newest: 0, sound: 0 }
    }

    /// Whether a copy can be read.
    pub(super) fn has_sound_copy(device: &dyn File) -> bool {
        COPY_OFFSETS.iter().any(|&offset| {
            let mut page = vec![0; SUPERBLOCK_BYTES];
            let read = device.read_at(&mut page, offset);
            read.is_ok_and(|read| Superblock::decode(&page[..read], "").is_ok())
        })
    }

    /// What holds now.
    pub(super) fn current(&self) -> &Superblock {
        &self.current
    }

    /// Replaces the superblock, atomically and durably, by what `change` makes of it. Two durable
    /// writes.
    ///
    /// # Errors
    /// The device's: whether the old or the new one holds is unknown then.
    pub(super) fn replace(&mut self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        let mut next = self.current.clone();
        change(&mut next);
        assert_eq!(next.uuid, self.current.uuid, "a superblock of another device");
        next.generation = self.current.generation + 1;
        if next.generation == GENERATIONS_END {
            return Err(Error::used_up("the generations of superblocks"));
        }
        assert_eq!(next.check(), Ok(()), "a superblock as changed");
        let (page, before) = (next.encode(), self.newest);
        let target = 1 - before;
        self.device.write_durable(&page, COPY_OFFSETS[target])?;
        (self.current, self.newest) = (next, target);
        self.device.write_durable(&page, COPY_OFFSETS[before])?;
        self.sound = 2;
        Ok(())
    }
}

/// What messages call the superblock of the store at `path`, which may be that of the part of it
/// from the first byte on.
pub(super) fn name_in(path: &str) -> String {
    format!("{}: superblock", path.strip_suffix("+0").unwrap_or(path))
}

/// Which of two sound copies is the newer one.
fn newer(a: &Superblock, b: &Superblock, path: &str) -> Result<usize> {
    if a.uuid != b.uuid {
        let what = "two superblocks of different stores, a part of one of which was copied over \
                    the other,";
        return Err(Error::corruption(path, COPY_OFFSETS[1], what));
    }
    if a.generation == b.generation && a != b {
        let what = "two superblocks of one generation that differ";
        return Err(Error::corruption(path, COPY_OFFSETS[1], what));
    }
    Ok(usize::from(b.generation > a.generation))
}

#[cfg(test)]
mod tests;
