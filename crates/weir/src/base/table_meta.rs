// FORMAT: docs/format/table_meta.md sha=4d1ed8aa1c7b
//! Metadata of a table, known without reading its file (LevelDB's `FileMetaData`): identity,
//! bounds, counts.
//!
//! A `TableMeta` is recorded in version edits; the table file repeats most of it in its properties,
//! so that `repair` can rebuild it. Not here: where the bytes are (`storage`), the file's layout
//! (`table::format`).
//!
//! Invariants: (1) `smallest <= largest`, both present in the table; (2) `seq_min <= seq_max`; (3)
//! `deletes <= entries`, `entries >= 1`; (4) `tail_bytes <= bytes`. `decode` rejects a record that
//! breaks them. (5) bytes, raw bytes and entries are below 2^48, so that sums over tables fit.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use crate::base::coding::Reader;
use crate::base::error::{Error, Result};
use crate::base::ids::{KeyspaceId, TableUid};
use crate::base::interval::{Interval, Intervals};
use crate::base::key::{SEQ_MAX, Seq};
use crate::base::key_scale::KeyScale;
use crate::base::place::{Extent, Place};
use crate::base::tagged::{next_field, number, put_field, put_number, unknown};

/// Identity, bounds and counts of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableMeta {
    /// The table's name, never used twice.
    pub(crate) uid: TableUid,
    /// The uid under which the file was written, to which its checksums are bound. Differs from
    /// `uid` for an ingested or restored table only.
    pub(crate) check_uid: TableUid,
    /// Length of the file.
    pub(crate) bytes: u64,
    /// Length of the file's tail: index, filter, properties and footer.
    pub(crate) tail_bytes: u64,
    /// Checksum in the footer, which covers the checksums of the rest of the tail: it detects a
    /// complete but older or foreign file under the right name.
    pub(crate) tail_checksum: u32,
    /// Bytes of all user keys and values.
    pub(crate) raw_bytes: u64,
    /// Number of entries.
    pub(crate) entries: u64,
    /// Number of entries that are deletes.
    pub(crate) deletes: u64,
    /// Number of data blocks.
    pub(crate) blocks: u32,
    /// Smallest sequence number.
    pub(crate) seq_min: Seq,
    /// Largest sequence number.
    pub(crate) seq_max: Seq,
    /// Smallest user key.
    pub(crate) smallest: Vec<u8>,
    /// Largest user key.
    pub(crate) largest: Vec<u8>,
    /// Wrapping sum of `checksum::hash_entry` over all entries.
    pub(crate) entry_hash: u64,
    /// Id of the keyspace that the entries belong to. It detects a table of another keyspace, and
    /// tells `repair` where a table belongs when the version log is lost.
    pub(crate) keyspace: KeyspaceId,
    /// What is hidden of it in its run.
    pub(crate) masks: Vec<Mask>,
    /// Where its bytes are, where storage does not know that by its uid.
    pub(crate) place: Place,
}

/// An interval of a table whose entries nobody reads in their run any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mask {
    /// The keys.
    pub(crate) interval: Interval,
    /// The entries of the table that it hides.
    pub(crate) hidden: Content,
}

/// Counts of a set of entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    /// Entries.
    pub(crate) entries: u64,
    /// Those of them that are deletes.
    pub(crate) deletes: u64,
    /// Bytes of keys and values.
    pub(crate) raw_bytes: u64,
    /// Wrapping sum of `checksum::hash_entry`.
    pub(crate) hash: u64,
}

impl Content {
    /// Both together.
    #[must_use]
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            entries: self.entries.saturating_add(other.entries),
            deletes: self.deletes.saturating_add(other.deletes),
            raw_bytes: self.raw_bytes.saturating_add(other.raw_bytes),
            hash: self.hash.wrapping_add(other.hash),
        }
    }

    /// Without `part` of it.
    #[must_use]
    pub(crate) fn minus(self, part: Self) -> Self {
        Self {
            entries: self.entries.saturating_sub(part.entries),
            deletes: self.deletes.saturating_sub(part.deletes),
            raw_bytes: self.raw_bytes.saturating_sub(part.raw_bytes),
            hash: self.hash.wrapping_sub(part.hash),
        }
    }
}

// Tags: even is critical, odd is ignorable (base::tagged). 0 is invalid.
const TAG_UID: u64 = 2;
const TAG_CHECK_UID: u64 = 4;
const TAG_BYTES: u64 = 6;
const TAG_TAIL_BYTES: u64 = 8;
const TAG_TAIL_CHECKSUM: u64 = 10;
const TAG_RAW_BYTES: u64 = 12;
const TAG_ENTRIES: u64 = 14;
const TAG_DELETES: u64 = 16;
const TAG_BLOCKS: u64 = 18;
const TAG_SEQ_MIN: u64 = 20;
const TAG_SEQ_MAX: u64 = 22;
const TAG_SMALLEST: u64 = 24;
const TAG_LARGEST: u64 = 26;
const TAG_ENTRY_HASH: u64 = 28;
const TAG_EXTENT: u64 = 30;
const TAG_MASK: u64 = 40;
const TAG_KEYSPACE: u64 = 42;
// Reserved: 32 global sequence, 33 oldest tombstone,
// 35 smallest expiry, 34 dictionary, 36 key id; for good: 38 virtual bounds.

// Tags of a mask.
const TAG_MASK_FROM: u64 = 2;
const TAG_MASK_TO: u64 = 4;
const TAG_MASK_ENTRIES: u64 = 6;
const TAG_MASK_DELETES: u64 = 8;
const TAG_MASK_RAW_BYTES: u64 = 10;
const TAG_MASK_HASH: u64 = 12;

/// Sizes of a table are smaller, in bytes and in entries: 256 TiB.
const SIZES_END: u64 = 1 << 48;

/// The name of this record in messages.
const RECORD: &str = "table description";

/// Bytes of a description in a base of a version log without what varies: numbers of at most ten
/// bytes and their tags, place in the tree, checksums. An estimate from above.
const FIXED_BYTES: u64 = 200;

/// The same of an extent, and of a mask without its keys.
const EXTENT_BYTES: u64 = 32;
const MASK_BYTES: u64 = 80;

impl TableMeta {
    /// Bytes that its description takes in a base of a version log. An estimate from above.
    pub(crate) fn description_bytes(&self) -> u64 {
        let bytes = |key: &[u8]| key.len() as u64;
        let masks = self.masks.iter().map(|mask| {
            let to = mask.interval.to.as_deref().map_or(0, bytes);
            MASK_BYTES + bytes(&mask.interval.from) + to
        });
        let extents = self.place.extents().len() as u64 * EXTENT_BYTES;
        let keys = bytes(&self.smallest) + bytes(&self.largest);
        FIXED_BYTES + keys + extents + masks.sum::<u64>()
    }

    /// Appends the tagged form.
    pub(crate) fn encode(&self, buf: &mut Vec<u8>) {
        put_number(buf, TAG_UID, self.uid.get());
        put_number(buf, TAG_CHECK_UID, self.check_uid.get());
        put_number(buf, TAG_BYTES, self.bytes);
        put_number(buf, TAG_TAIL_BYTES, self.tail_bytes);
        put_number(buf, TAG_TAIL_CHECKSUM, u64::from(self.tail_checksum));
        self.encode_content(buf);
        let mut part = Vec::new();
        for extent in self.place.extents() {
            part.clear();
            extent.encode(&mut part);
            put_field(buf, TAG_EXTENT, &part);
        }
        for mask in &self.masks {
            part.clear();
            mask.encode(&mut part);
            put_field(buf, TAG_MASK, &part);
        }
    }

    /// The description of the file alone, without a view.
    pub(crate) fn of_file(&self) -> Self {
        Self { masks: Vec::new(), ..self.clone() }
    }

    /// Whether both describe the same file; their views may differ.
    pub(crate) fn is_same_file(&self, other: &Self) -> bool {
        if self.masks.is_empty() && other.masks.is_empty() {
            return self == other;
        }
        self.of_file() == other.of_file()
    }

    /// All of its entries.
    pub(crate) fn content(&self) -> Content {
        let Self { entries, deletes, raw_bytes, entry_hash, .. } = *self;
        Content { entries, deletes, raw_bytes, hash: entry_hash }
    }

    /// What its masks hide.
    pub(crate) fn hidden(&self) -> Content {
        self.masks.iter().fold(Content::default(), |sum, mask| sum.plus(mask.hidden))
    }

    /// The entries that are read in its run.
    pub(crate) fn visible(&self) -> Content {
        self.content().minus(self.hidden())
    }

    /// Bytes of the file for the entries that are read in its run, in proportion.
    pub(crate) fn visible_bytes(&self) -> u64 {
        if self.masks.is_empty() {
            return self.bytes;
        }
        let (visible, all) = (self.visible(), self.content());
        let share =
            |part: u64, all: u64| u128::from(self.bytes) * u128::from(part) / u128::from(all);
        let bytes = match all.raw_bytes {
            0 => share(visible.entries, all.entries.max(1)),
            raw_bytes => share(visible.raw_bytes, raw_bytes),
        };
        // Something is always left, and no more than there is.
        u64::try_from(bytes).unwrap_or(self.bytes).clamp(1, self.bytes.max(1))
    }

    /// The part of what no mask hides that lies within an interval, as if keys were spread evenly
    /// between the table's ends.
    pub(crate) fn shown_part(&self, interval: &Interval) -> f64 {
        let scale = KeyScale::new(&self.smallest, &self.largest);
        let part = |of: &Interval| scale.part_inside(&of.from, of.to.as_deref());
        let hidden = |of: &Interval| -> f64 {
            self.masks.iter().map(|mask| part(&mask.interval.common(of))).sum()
        };
        let all = Interval::closed(&self.smallest, &self.largest);
        let (inside, shown) = (part(interval) - hidden(interval), 1.0 - hidden(&all));
        // Where next to nothing seems to be left, keys are not spread evenly.
        let least = f64::EPSILON * 1e3;
        if shown < least { part(interval) } else { (inside / shown).clamp(0.0, 1.0) }
    }

    /// The same table with one more mask over its part of `interval`, under which lie `hidden`
    /// entries that no mask hides yet. `None` if nothing is left to be read. Requires: they
    /// overlap.
    pub(crate) fn masked(&self, interval: &Interval, hidden: Content) -> Option<Self> {
        // No wider: the next table of the run has masks of its own.
        let interval = &interval.common(&Interval::closed(&self.smallest, &self.largest));
        let mut masked = self.clone();
        let mut all: Intervals = self.masks.iter().map(|mask| mask.interval.clone()).collect();
        all.add(interval.clone());
        let merged = all.iter().map(|interval| {
            let within = self.masks.iter().filter(|mask| interval.contains(&mask.interval.from));
            let hidden = within.fold(Content::default(), |sum, mask| sum.plus(mask.hidden));
            Mask { interval: interval.clone(), hidden }
        });
        masked.masks = merged.collect();
        let mut holder = masked.masks.iter_mut();
        let holder = holder.find(|mask| mask.interval.contains(&interval.from));
        if let Some(mask) = holder {
            mask.hidden = mask.hidden.plus(hidden);
        }
        (masked.visible().entries > 0).then_some(masked)
    }

    /// What the masks of this view hide and those of the view `before` did not.
    pub(crate) fn newly_hidden(&self, before: &Self) -> Intervals {
        let mut fresh: Intervals = self.masks.iter().map(|mask| mask.interval.clone()).collect();
        before.masks.iter().for_each(|mask| fresh.subtract(&mask.interval));
        fresh
    }

    /// The least interval that has all keys which the view may show.
    pub(crate) fn shown(&self) -> Interval {
        let whole = Interval::closed(&self.smallest, &self.largest);
        if self.masks.is_empty() {
            return whole;
        }
        let mut shown: Intervals = [whole.clone()].into_iter().collect();
        self.masks.iter().for_each(|mask| shown.subtract(&mask.interval));
        shown.hull().unwrap_or(whole)
    }

    /// Whether two descriptions agree on a table's content; its uids and its file are not compared.
    pub(crate) fn same_content(&self, other: &Self) -> bool {
        let content = |meta: &Self| {
            let mut bytes = Vec::new();
            meta.encode_content(&mut bytes);
            bytes
        };
        content(self) == content(other)
    }

    /// Appends the fields that describe the content, not the file: the properties of a table file.
    pub(crate) fn encode_content(&self, buf: &mut Vec<u8>) {
        put_number(buf, TAG_RAW_BYTES, self.raw_bytes);
        put_number(buf, TAG_ENTRIES, self.entries);
        put_number(buf, TAG_DELETES, self.deletes);
        put_number(buf, TAG_BLOCKS, u64::from(self.blocks));
        put_number(buf, TAG_SEQ_MIN, self.seq_min);
        put_number(buf, TAG_SEQ_MAX, self.seq_max);
        put_field(buf, TAG_SMALLEST, &self.smallest);
        put_field(buf, TAG_LARGEST, &self.largest);
        put_field(buf, TAG_ENTRY_HASH, &self.entry_hash.to_le_bytes());
        put_number(buf, TAG_KEYSPACE, u64::from(self.keyspace));
    }

    /// Parses all of `bytes`: the description, and the fields present, as a set of `1 << (tag /
    /// 2)`.
    fn decode_fields(bytes: &[u8]) -> Result<(Self, u32), DecodeError> {
        let mut meta = Self::empty();
        let mut seen = 0u32;
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            let (tag, content) = next_field(&mut reader).ok_or("is cut off")?;
            let known = meta.set_field(tag, content)?;
            if !known {
                unknown(RECORD, tag).map_err(DecodeError::Refused)?;
                continue;
            }
            let bit = 1u32 << (tag / 2);
            if tag == TAG_MASK || tag == TAG_EXTENT {
                seen |= bit;
                continue;
            }
            if seen & bit != 0 {
                return Err("has a field twice".into());
            }
            seen |= bit;
        }
        Ok((meta, seen))
    }

    /// Decodes the tagged form: all of `bytes`, which lie at `offset` of `file`.
    ///
    /// # Errors
    /// `Corruption` naming `file` and `offset`; `Unsupported` for an unknown critical field.
    pub(crate) fn decode(bytes: &[u8], file: &str, offset: u64) -> Result<Self> {
        Self::decode_with(bytes, ALL_FIELDS, MASKS | EXTENTS, file, offset)
    }

    /// Decodes the properties of a table file; the fields that describe the file stay 0.
    ///
    /// # Errors
    /// As [`TableMeta::decode`].
    pub(crate) fn decode_content(bytes: &[u8], file: &str, offset: u64) -> Result<Self> {
        Self::decode_with(bytes, CONTENT_FIELDS, 0, file, offset)
    }

    /// Decodes a form with the `required` fields, and with no others but `allowed` ones.
    fn decode_with(
        bytes: &[u8],
        required: u32,
        allowed: u32,
        file: &str,
        offset: u64,
    ) -> Result<Self> {
        let damaged =
            |what: &str| Error::corruption(file, offset, format_args!("a {RECORD} {what}"));
        let (meta, seen) = Self::decode_fields(bytes).map_err(|error| match error {
            DecodeError::Damaged(what) => damaged(what),
            DecodeError::Refused(error) => error,
        })?;
        if seen & !allowed != required {
            return Err(damaged("lacks a field or has one that does not belong there"));
        }
        meta.check().map_err(damaged)?;
        Ok(meta)
    }

    /// Sets the field `tag` from its content; false if the tag is not known.
    fn set_field(&mut self, tag: u64, content: &[u8]) -> Result<bool, DecodeError> {
        let value = || number(content).ok_or(DecodeError::Damaged("has a malformed number"));
        let small = || {
            let wide = value()?;
            u32::try_from(wide).map_err(|_| DecodeError::Damaged("has a number above 32 bits"))
        };
        let beyond = DecodeError::Damaged("has a uid that no store gets to");
        let uid = || TableUid::stored(value()?).ok_or(beyond);
        match tag {
            TAG_UID => self.uid = uid()?,
            TAG_CHECK_UID => self.check_uid = uid()?,
            TAG_BYTES => self.bytes = value()?,
            TAG_TAIL_BYTES => self.tail_bytes = value()?,
            TAG_TAIL_CHECKSUM => self.tail_checksum = small()?,
            TAG_RAW_BYTES => self.raw_bytes = value()?,
            TAG_ENTRIES => self.entries = value()?,
            TAG_DELETES => self.deletes = value()?,
            TAG_BLOCKS => self.blocks = small()?,
            TAG_SEQ_MIN => self.seq_min = value()?,
            TAG_SEQ_MAX => self.seq_max = value()?,
            TAG_SMALLEST => self.smallest = content.to_vec(),
            TAG_LARGEST => self.largest = content.to_vec(),
            TAG_ENTRY_HASH => {
                let bytes =
                    content.try_into().map_err(|_| "has an entry hash that is not 8 bytes")?;
                self.entry_hash = u64::from_le_bytes(bytes);
            }
            TAG_KEYSPACE => self.keyspace = KeyspaceId::new(small()?),
            TAG_MASK => self.masks.push(Mask::decode(content)?),
            TAG_EXTENT => {
                let extent = Extent::decode(content).ok_or("has an extent that no table has")?;
                self.place.push(extent);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Checks the invariants of the module header.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if self.entries == 0 || self.deletes > self.entries || self.blocks == 0 {
            return Err("has counts that contradict each other");
        }
        if self.seq_min > self.seq_max || self.seq_max > SEQ_MAX {
            return Err("has sequence numbers that contradict each other");
        }
        if crate::base::key::compare(&self.smallest, &self.largest).is_gt() {
            return Err("has its smallest key above its largest");
        }
        if self.largest.len() > crate::base::limits::KEY_BYTES_MAX
            || self.smallest.len() > crate::base::limits::KEY_BYTES_MAX
        {
            return Err("has a bound longer than a key may be");
        }
        if self.tail_bytes > self.bytes {
            return Err("has a tail longer than the file");
        }
        if self.bytes.max(self.raw_bytes).max(self.entries) >= SIZES_END {
            return Err("has a size that no table has");
        }
        self.place.check()?;
        self.check_masks()
    }

    fn check_masks(&self) -> Result<(), &'static str> {
        if self.masks.is_empty() {
            return Ok(());
        }
        let all: Intervals = self.masks.iter().map(|mask| mask.interval.clone()).collect();
        if !all.iter().eq(self.masks.iter().map(|mask| &mask.interval)) {
            return Err("has masks that touch each other or are out of order");
        }
        let (hidden, content) = (self.hidden(), self.content());
        let puts = |content: Content| content.entries.saturating_sub(content.deletes);
        let is_part = hidden.entries < content.entries
            && hidden.deletes <= content.deletes
            && hidden.raw_bytes <= content.raw_bytes
            && puts(hidden) <= puts(content);
        let whole = Interval::closed(&self.smallest, &self.largest);
        let each = self.masks.iter().all(|Mask { interval, hidden }| {
            hidden.deletes <= hidden.entries && !interval.is_empty() && whole.includes(interval)
        });
        if is_part && each { Ok(()) } else { Err("has masks that hide what it does not hold") }
    }

    /// A description with all fields zero: a builder's starting point, not valid by itself.
    pub(crate) fn empty() -> Self {
        Self {
            uid: TableUid::NONE,
            check_uid: TableUid::NONE,
            bytes: 0,
            tail_bytes: 0,
            tail_checksum: 0,
            raw_bytes: 0,
            entries: 0,
            deletes: 0,
            blocks: 0,
            seq_min: 0,
            seq_max: 0,
            smallest: Vec::new(),
            largest: Vec::new(),
            entry_hash: 0,
            keyspace: KeyspaceId::DEFAULT,
            masks: Vec::new(),
            place: Place::default(),
        }
    }
}

impl Mask {
    fn encode(&self, buf: &mut Vec<u8>) {
        put_field(buf, TAG_MASK_FROM, &self.interval.from);
        if let Some(to) = &self.interval.to {
            put_field(buf, TAG_MASK_TO, to);
        }
        put_number(buf, TAG_MASK_ENTRIES, self.hidden.entries);
        put_number(buf, TAG_MASK_DELETES, self.hidden.deletes);
        put_number(buf, TAG_MASK_RAW_BYTES, self.hidden.raw_bytes);
        put_field(buf, TAG_MASK_HASH, &self.hidden.hash.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (mut from, mut to, mut hidden) = (None, None, Content::default());
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            let (tag, content) = next_field(&mut reader).ok_or("has a mask that is cut off")?;
            let value = || number(content).ok_or(DecodeError::Damaged("has a malformed number"));
            match tag {
                TAG_MASK_FROM => from = Some(content),
                TAG_MASK_TO => to = Some(content),
                TAG_MASK_ENTRIES => hidden.entries = value()?,
                TAG_MASK_DELETES => hidden.deletes = value()?,
                TAG_MASK_RAW_BYTES => hidden.raw_bytes = value()?,
                TAG_MASK_HASH => {
                    let bytes = content.try_into();
                    let bytes = bytes.map_err(|_| "has an entry hash that is not 8 bytes")?;
                    hidden.hash = u64::from_le_bytes(bytes);
                }
                _ => unknown("mask", tag).map_err(DecodeError::Refused)?,
            }
        }
        // An end is a key with a zero behind it at most.
        let is_long = |key: &[u8]| key.len() > crate::base::limits::KEY_BYTES_MAX + 1;
        let from = from.filter(|from| !is_long(from) && to.is_none_or(|to| !is_long(to)));
        let from =
            from.ok_or("has a mask without a first key, or with a longer one than keys are")?;
        Ok(Self { interval: Interval::new(from, to), hidden })
    }
}

/// The fields of the properties, as a set of `1 << (tag / 2)`.
const CONTENT_FIELDS: u32 = ALL_FIELDS & !0b11_1110;
/// The masks, as a set of `1 << (tag / 2)`.
const MASKS: u32 = 1 << (TAG_MASK / 2);
/// The extents, as a set of `1 << (tag / 2)`.
const EXTENTS: u32 = 1 << (TAG_EXTENT / 2);
/// All required fields, as a set of `1 << (tag / 2)`: tags 2 to 28, and 42.
const ALL_FIELDS: u32 = 0b111_1111_1111_1110 | 1 << (TAG_KEYSPACE / 2);
const _: () = assert!(ALL_FIELDS & !(1 << 21) == (2 << (TAG_ENTRY_HASH / 2)) - 2);
const _: () = assert!(CONTENT_FIELDS.trailing_zeros() as u64 == TAG_RAW_BYTES / 2);

/// Why a description cannot be decoded.
enum DecodeError {
    Damaged(&'static str),
    Refused(Error),
}

impl From<&'static str> for DecodeError {
    fn from(what: &'static str) -> Self {
        Self::Damaged(what)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::error::ErrorKind;

    fn example() -> TableMeta {
        TableMeta {
            uid: TableUid::new(7),
            check_uid: TableUid::new(7),
            bytes: 300,
            tail_bytes: 200,
            tail_checksum: 0x1234_5678,
            raw_bytes: 12,
            entries: 3,
            deletes: 1,
            blocks: 1,
            seq_min: 4,
            seq_max: 6,
            smallest: b"a".to_vec(),
            largest: b"c".to_vec(),
            entry_hash: 0x0102_0304_0506_0708,
            keyspace: KeyspaceId::new(9),
            masks: Vec::new(),
            place: Place::default(),
        }
    }

    /// Two masks with a key between them.
    fn masked() -> TableMeta {
        let hides = |entries, hash| Content { entries, deletes: 0, raw_bytes: 4, hash };
        let first = example().masked(&Interval::new(b"", Some(b"b")), hides(1, 5)).unwrap();
        first.masked(&Interval::new(b"c", None), hides(1, 7)).unwrap()
    }

    fn decode(bytes: &[u8]) -> Result<TableMeta> {
        TableMeta::decode(bytes, "file", 9)
    }

    /// Goal: a place is told as it is, and one that no table has is damage. Method: three extents,
    /// not in order; then none of a slot, one that ends too far, and two that share one.
    #[test]
    fn places_round_trip_and_are_checked() {
        let extent = |space, slot, slots| Extent { space, slot, slots };
        let at = |extents: &[Extent]| {
            let meta = TableMeta { place: Place::new(extents.to_vec()), ..example() };
            let mut bytes = Vec::new();
            meta.encode(&mut bytes);
            decode(&bytes).map(|decoded| assert_eq!(decoded, meta))
        };
        let near = extent(0, 7, 2);
        at(&[near, extent(0, 3, 4), extent(1, 7, 1)]).expect("a place");
        for bad in [extent(0, 9, 0), extent(0, (1 << 40) - 1, 1), extent(0, 8, 1), near] {
            let error = at(&[near, bad]).expect_err("no place");
            assert_eq!(error.kind(), ErrorKind::Corruption, "{bad:?}: {error}");
        }
        let mut properties = Vec::new();
        example().encode_content(&mut properties);
        put_field(&mut properties, TAG_EXTENT, &[0, 7, 2]);
        let error = TableMeta::decode_content(&properties, "file", 0).expect_err("no property");
        assert_eq!(error.kind(), ErrorKind::Corruption);
    }

    #[test]
    fn descriptions_round_trip() {
        let mut bytes = Vec::new();
        example().encode(&mut bytes);
        assert_eq!(decode(&bytes).unwrap(), example());
        let mut content = Vec::new();
        example().encode_content(&mut content);
        let got = TableMeta::decode_content(&content, "file", 0).unwrap();
        assert_eq!(
            (got.entries, got.keyspace, got.uid, got.bytes),
            (3, KeyspaceId::new(9), TableUid::NONE, 0)
        );
        assert!(TableMeta::decode_content(&bytes, "file", 0).is_err());
        assert!(decode(&content).is_err());
    }

    /// Goal: masks come back, their tallies add up when they meet; what is hidden whole is gone.
    #[test]
    fn masks_hide_exactly_what_they_say() {
        let meta = masked();
        let mut bytes = Vec::new();
        meta.encode(&mut bytes);
        assert_eq!(decode(&bytes).unwrap(), meta);
        assert!(meta.is_same_file(&example()) && meta != example());
        assert_eq!(meta.visible().entries, 1);
        assert_eq!(meta.visible().hash, example().entry_hash - 12);
        assert_eq!(meta.visible_bytes(), 300 * 4 / 12);
        let none = Content { entries: 0, ..Content::default() };
        let joined = meta.masked(&Interval::new(b"b", Some(b"c")), none).unwrap();
        let all = Content { entries: 2, deletes: 0, raw_bytes: 8, hash: 12 };
        let whole = Interval::closed(b"a", b"c");
        assert_eq!(joined.masks, [Mask { interval: whole, hidden: all }]);
        assert_eq!(meta.shown(), Interval::new(b"b", Some(b"c")));
        let fresh = joined.newly_hidden(&meta);
        assert_eq!(fresh.hull(), Some(Interval::new(b"b", Some(b"c"))));
        let last = Content { entries: 1, deletes: 1, raw_bytes: 4, hash: 9 };
        assert_eq!(meta.masked(&Interval::new(b"b", Some(b"c")), last), None);
        let empty = example().masked(&Interval::new(b"bb", Some(b"c")), none).unwrap();
        assert_eq!((empty.masks.len(), empty.visible()), (1, example().content()));
        let mut content = Vec::new();
        meta.encode_content(&mut content);
        let from_file = TableMeta::decode_content(&content, "file", 0).unwrap();
        assert_eq!(from_file.masks, [], "a file knows no view");
    }

    /// Unknown fields: an odd one is skipped, an even one is refused by name; every cut is damage.
    #[test]
    fn unknown_and_cut_fields() {
        let mut bytes = Vec::new();
        example().encode(&mut bytes);
        for n in 0..bytes.len() {
            let error = decode(&bytes[..n]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption, "cut to {n}");
        }
        let mut ignorable = bytes.clone();
        put_field(&mut ignorable, 33, b"whatever");
        assert_eq!(decode(&ignorable).unwrap(), example());
        let mut critical = bytes.clone();
        put_field(&mut critical, 32, b"whatever");
        let error = decode(&critical).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("32"), "{error}");
        let mut twice = bytes.clone();
        put_number(&mut twice, TAG_UID, 7);
        assert_eq!(decode(&twice).unwrap_err().kind(), ErrorKind::Corruption);
    }

    #[test]
    fn contradictions_are_refused() {
        let breakers: [fn(&mut TableMeta); 14] = [
            |m| m.deletes = 4,
            |m| m.entries = 0,
            |m| m.seq_min = 7,
            |m| m.smallest = b"d".to_vec(),
            |m| m.tail_bytes = 301,
            |m| m.seq_max = SEQ_MAX + 1,
            |m| m.bytes = SIZES_END,
            |m| m.raw_bytes = u64::MAX,
            |m| m.entries = SIZES_END,
            |m| m.check_uid = TableUid::new(u64::MAX),
            |m| m.masks.reverse(),
            |m| m.masks[0].hidden.entries = 2,
            |m| m.masks[0].interval = Interval::new(b"x", None),
            |m| m.masks[0].interval.to = Some(Arc::from(&b"c"[..])),
        ];
        for breaker in breakers {
            let mut meta = masked();
            breaker(&mut meta);
            let mut bytes = Vec::new();
            meta.encode(&mut bytes);
            assert_eq!(decode(&bytes).unwrap_err().kind(), ErrorKind::Corruption, "{meta:?}");
        }
    }
}
