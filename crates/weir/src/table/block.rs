// FORMAT: docs/format/block.md sha=f047b166d6fe
//! One data block: entries in columns, so that entry `i` is found without touching entry `i - 1`.
//!
//! Not here: checksums and compression (`format`), the block that holds a key (`index`).
//!
//! A block keeps, after the prefix that all its keys share, the next 8 bytes of every key in one
//! column of u64, and lengths, sequence numbers and kinds in columns of the smallest width that
//! holds them (0 if all are equal). Search is a binary search over the u64 column and, as a rule,
//! one comparison of the rest; a step backwards costs as much as one forwards.
//!
//! Invariants: (1) a [`Layout`] that [`Layout::validate`] accepted never reads outside its block;
//! (2) no function here panics on any bytes, validated or not; (3) entries are in the order of
//! `base::key`, which the builder's caller asserts and `Table::verify` checks.
//!
//! Source: columns as in Pebble's `colblk`. Measured against the alternative, restart points with
//! delta-coded keys every 16 entries (LevelDB, `table_format`), on blocks of the same 33 entries,
//! values of 100 bytes; columns against restart points (2 busy cores of an AMD EPYC):
//!
//! | keys | bytes per entry | after LZ4 | search | next | prev |
//! |---|---|---|---|---|---|
//! | 16 digits | 115.4 / 114.6 | 70.0 / 69.2 | 26 / 122 ns | 2.9 / 6.2 ns | 3.5 / 42 ns |
//! | 18 common, 20 digits | 116.0 / 118.7 | 72.7 / 72.2 | 27 / 125 ns | 2.9 / 6.2 ns | 3.5 / 42 ns|
//! | 16 random bytes | 122.5 / 126.5 | 80.2 / 83.5 | 32 / 126 ns | 4.2 / 6.1 ns | 4.8 / 40 ns |

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::cmp::Ordering;
use std::ops::Range;

use crate::base::checksum::hash_entry;
use crate::base::coding::{put_u16, put_u32, put_u64, to_usize};
use crate::base::key::{self, Kind, SEQ_MAX, Seq};

/// Bytes of the fixed header.
const HEADER_BYTES: usize = 24;
/// Bytes of the entry hash at the end. They double as the slack that allows one masked 8-byte load
/// in every column.
const TRAILER_BYTES: usize = 8;
/// Bytes of a key that the prefix column holds.
const PREFIX_BYTES: usize = 8;

/// Upper bound of a block's size over the sum of its keys and values, in bytes: header, trailer,
/// one offset more than entries, and the widest columns for each entry. Bounds the allocation of a
/// decompressor.
pub(super) fn overhead_bytes_max(entries: u64) -> u64 {
    (HEADER_BYTES + TRAILER_BYTES + 4) as u64 + entries.saturating_mul(8 + 4 + 2 + 8 + 1)
}

/// Mask of the bytes of a number in 8 loaded ones, by its width.
#[expect(clippy::indexing_slicing, reason = "computed by the compiler")]
const MASKS: [u64; 9] = {
    let mut masks = [u64::MAX; 9];
    let mut width = 0;
    while width < 8 {
        masks[width] = (1 << (8 * width)) - 1;
        width += 1;
    }
    masks
};

/// A column of numbers of one width: entry `i` lies at `start + i * width`.
#[derive(Clone, Copy, Debug, Default)]
struct Column {
    start: u32,
    /// At most 8.
    width: u8,
}

impl Column {
    /// Requires: `start` below the length of a block that `Layout::parse` takes.
    #[expect(clippy::cast_possible_truncation, reason = "a block has less than 2^32 bytes")]
    fn new(start: usize, width: usize) -> Self {
        Self { start: start as u32, width: width as u8 }
    }

    /// Entry `i`; 0 outside the block. One load for every width, thanks to the trailer.
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "there are masks up to 8")]
    fn get(self, block: &[u8], i: usize) -> u64 {
        let width = usize::from(self.width);
        let at = self.start as usize + i * width;
        match block.get(at..at + 8).and_then(|b| b.first_chunk::<8>()) {
            Some(bytes) => u64::from_le_bytes(*bytes) & MASKS[width.min(8)],
            None => 0,
        }
    }
}

/// Offsets of the parts of one block. Cheap to parse, and to copy.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Layout {
    seq_base: Seq,
    count: u32,
    rows_start: u32,
    offsets: Column,
    key_lens: Column,
    seqs: Column,
    kinds: Column,
    common_len: u16,
    key_len_base: u16,
    kind_base: u8,
}

const _: () = assert!(size_of::<Layout>() == 56, "a layout is one cache line");

/// One entry of a block, without its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) seq: Seq,
    pub(super) kind: Kind,
    /// Bytes of the key after the common prefix.
    suffix_len: usize,
    /// Start of the rest of the key, which is neither in the common prefix nor in the column.
    rest_start: usize,
    /// Start and end of the value.
    pub(super) value_start: usize,
    pub(super) value_end: usize,
}

impl Row {
    pub(super) fn value_range(&self) -> Range<usize> {
        self.value_start..self.value_end
    }
}

/// What is wrong with a block, as the end of a sentence that begins with "block 7".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// No version writes this.
    Damaged(&'static str),
    /// A newer version may write this.
    Unknown(&'static str),
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The first entry at or after the target; the entry count if there is none.
    pub(super) index: usize,
    /// Whether that entry has the target's user key.
    pub(super) same_key: bool,
}

impl Layout {
    /// Reads the header of `block`, which may be followed by other bytes. O(1).
    ///
    /// # Errors
    /// What is wrong with the block.
    #[expect(clippy::cast_possible_truncation, reason = "the block has less than 2^32 bytes")]
    #[inline]
    pub(super) fn parse(block: &[u8]) -> Result<Self, Flaw> {
        let header = block.first_chunk::<HEADER_BYTES>();
        let header = header.ok_or(Flaw::Damaged("is shorter than its header"))?;
        let count = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let [offset_width, key_len_width, seq_width, kind_width] =
            [header[16], header[17], header[18], header[19]].map(usize::from);
        let widths_known = matches!(offset_width, 2 | 4)
            && key_len_width <= 2
            && matches!(seq_width, 0 | 1 | 2 | 4 | 8)
            && kind_width <= 1;
        if !widths_known || header[21..24] != [0; 3] {
            return Err(Flaw::Unknown("has a layout that this version does not know"));
        }
        let common_len = usize::from(u16::from_le_bytes([header[4], header[5]]));
        let columns = [PREFIX_BYTES, offset_width, key_len_width, seq_width, kind_width];
        // Cannot overflow: count is below 2^32 and the widths sum up to 23 at most.
        let rows_start =
            HEADER_BYTES + count * columns.iter().sum::<usize>() + offset_width + common_len;
        let fits = rows_start + TRAILER_BYTES <= block.len() && block.len() <= u32::MAX as usize;
        if count == 0 || !fits {
            return Err(Flaw::Damaged("has an entry count that does not fit it"));
        }
        let offsets_start = HEADER_BYTES + count * PREFIX_BYTES;
        let key_lens_start = offsets_start + (count + 1) * offset_width;
        let seqs_start = key_lens_start + count * key_len_width;
        let kinds_start = seqs_start + count * seq_width;
        let mut seq_bytes = [0; 8];
        seq_bytes.copy_from_slice(&header[8..16]);
        Ok(Self {
            seq_base: u64::from_le_bytes(seq_bytes),
            count: count as u32,
            rows_start: rows_start as u32,
            offsets: Column::new(offsets_start, offset_width),
            key_lens: Column::new(key_lens_start, key_len_width),
            seqs: Column::new(seqs_start, seq_width),
            kinds: Column::new(kinds_start, kind_width),
            common_len: common_len as u16,
            key_len_base: u16::from_le_bytes([header[6], header[7]]),
            kind_base: header[20],
        })
    }

    /// Number of entries; 0 for the default layout.
    #[inline(always)]
    pub(super) fn count(&self) -> usize {
        self.count as usize
    }

    #[inline(always)]
    fn common_len(&self) -> usize {
        usize::from(self.common_len)
    }

    #[inline(always)]
    fn rows_start(&self) -> usize {
        self.rows_start as usize
    }

    /// Checks every entry's bounds, so that later reads need not. `block` may be longer than the
    /// block's content. O(entries).
    ///
    /// # Errors
    /// What is wrong with the block.
    pub(super) fn validate(&self, block: &[u8]) -> Result<(), Flaw> {
        let rows_end = u64::from(self.rows_start) + self.offsets.get(block, self.count());
        if rows_end + TRAILER_BYTES as u64 > block.len() as u64 {
            return Err(Flaw::Damaged("has rows that exceed it"));
        }
        if self.seq_base > SEQ_MAX {
            return Err(Flaw::Damaged("has a sequence number above the largest"));
        }
        let mut start = 0;
        for i in 0..self.count() {
            let end = self.offsets.get(block, i + 1);
            let suffix_len = self.suffix_len(block, i);
            let rest_len = suffix_len.saturating_sub(PREFIX_BYTES) as u64;
            if start > end || (i == 0 && self.offsets.get(block, 0) != 0) {
                return Err(Flaw::Damaged("has entries out of place"));
            }
            if rest_len > end - start
                || self.common_len() + suffix_len > crate::base::limits::KEY_BYTES_MAX
            {
                return Err(Flaw::Damaged("has a key that exceeds its entry"));
            }
            if self.seqs.get(block, i) > SEQ_MAX - self.seq_base {
                return Err(Flaw::Damaged("has a sequence number above the largest"));
            }
            if Kind::from_u8(self.kind_byte(block, i)).is_none() {
                return Err(Flaw::Unknown(
                    "has an entry of a kind that this version does not know",
                ));
            }
            start = end;
        }
        Ok(())
    }

    /// Bytes of the block's content. Requires: validated.
    pub(super) fn len(&self, block: &[u8]) -> usize {
        self.rows_end(block) + TRAILER_BYTES
    }

    /// The stored sum of the entries' hashes. Requires: validated.
    pub(super) fn stored_hash(&self, block: &[u8]) -> u64 {
        Column::new(self.rows_end(block), 8).get(block, 0)
    }

    fn rows_end(&self, block: &[u8]) -> usize {
        self.rows_start() + to_usize(self.offsets.get(block, self.count()))
    }

    #[inline(always)]
    fn suffix_len(&self, block: &[u8], i: usize) -> usize {
        usize::from(self.key_len_base) + to_usize(self.key_lens.get(block, i))
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "a column of one byte")]
    fn kind_byte(&self, block: &[u8], i: usize) -> u8 {
        self.kind_base.wrapping_add(self.kinds.get(block, i) as u8)
    }

    #[inline(always)]
    fn prefixes<'a>(&self, block: &'a [u8]) -> &'a [[u8; PREFIX_BYTES]] {
        let column = block.get(HEADER_BYTES..HEADER_BYTES + self.count() * PREFIX_BYTES);
        column.map_or(&[], |bytes| bytes.as_chunks().0)
    }

    /// Entry `i`. Requires: validated, `i < count`.
    #[inline(always)]
    pub(super) fn row(&self, block: &[u8], i: usize) -> Row {
        debug_assert!(i < self.count(), "row {i} of {}", self.count());
        let start = self.rows_start() + to_usize(self.offsets.get(block, i));
        let end = self.rows_start() + to_usize(self.offsets.get(block, i + 1));
        let suffix_len = self.suffix_len(block, i);
        Row {
            seq: self.seq(block, i),
            kind: if self.kind_byte(block, i) == Kind::Put as u8 {
                Kind::Put
            } else {
                Kind::Delete
            },
            suffix_len,
            rest_start: start,
            value_start: start + suffix_len.saturating_sub(PREFIX_BYTES),
            value_end: end,
        }
    }

    #[inline(always)]
    fn seq(&self, block: &[u8], i: usize) -> Seq {
        self.seq_base.wrapping_add(self.seqs.get(block, i))
    }

    /// The prefix that all keys of the block share.
    pub(super) fn common<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        let end = self.rows_start();
        block.get(end.saturating_sub(self.common_len())..end).unwrap_or(&[])
    }

    /// Writes the key of entry `i` to the front of `key`, which already begins with the common
    /// prefix, and returns its length. `key` grows as needed and is never cut.
    #[inline(always)]
    pub(super) fn write_key(&self, block: &[u8], i: usize, row: &Row, key: &mut Vec<u8>) -> usize {
        let head_end = self.common_len() + PREFIX_BYTES;
        let key_len = self.common_len() + row.suffix_len;
        if key.len() < head_end.max(key_len) {
            key.resize(head_end.max(key_len), 0);
        }
        if let (Some(column), Some(head)) =
            (self.prefixes(block).get(i), key.get_mut(self.common_len()..head_end))
        {
            // On disk the number is little-endian; the key has its bytes in reverse.
            let mut bytes = *column;
            bytes.reverse();
            head.copy_from_slice(&bytes);
        }
        if row.suffix_len > PREFIX_BYTES
            && let Some(rest) = block.get(row.rest_start..row.value_start)
            && let Some(tail) = key.get_mut(head_end..key_len)
            && tail.len() == rest.len()
        {
            tail.copy_from_slice(rest);
        }
        key_len
    }

    /// Order of entry `i`'s key and a key with the common prefix whose rest is `suffix`, if their
    /// column prefixes are equal. Padded prefixes are equal for `a` and `a\0` too, hence the
    /// lengths.
    #[inline]
    fn compare_rest(&self, block: &[u8], i: usize, suffix: &[u8]) -> Ordering {
        let suffix_len = self.suffix_len(block, i);
        if suffix_len.min(suffix.len()) <= PREFIX_BYTES {
            // One of them ends within the prefix, so it is a prefix of the other. A comparison of
            // empty rests would cost more than all else: memcmp at the dangling pointer of an empty
            // slice is slow (measured: 75 ns).
            return suffix_len.cmp(&suffix.len());
        }
        let start = self.rows_start() + to_usize(self.offsets.get(block, i));
        let rest = block.get(start..start + (suffix_len - PREFIX_BYTES)).unwrap_or(&[]);
        key::compare(rest, suffix.get(PREFIX_BYTES..).unwrap_or(&[]))
    }

    /// The first entry at or after `(key, seq)`. Requires: validated.
    #[inline]
    pub(super) fn search(&self, block: &[u8], key: &[u8], seq: Seq) -> Found {
        let common = self.common(block);
        let suffix = match key.strip_prefix(common) {
            Some(suffix) => suffix,
            None => {
                let before = key::compare(key, common).is_lt();
                return Found { index: if before { 0 } else { self.count() }, same_key: false };
            }
        };
        let target = key::prefix(suffix);
        let prefixes = self.prefixes(block);
        let mut index = prefixes.partition_point(|p| u64::from_le_bytes(*p) < target);
        let mut steps = 0;
        while prefixes.get(index).is_some_and(|p| u64::from_le_bytes(*p) == target) {
            match self.compare_rest(block, index, suffix) {
                Ordering::Greater => break,
                Ordering::Equal if self.seq(block, index) <= seq => {
                    return Found { index, same_key: true };
                }
                _ => index += 1,
            }
            steps += 1;
            if steps == LINEAR_STEPS {
                return self.search_equals(block, index, target, suffix, seq);
            }
        }
        Found { index, same_key: false }
    }

    /// Continues a search among many entries whose column prefixes all equal `target`.
    #[cold]
    fn search_equals(
        &self,
        block: &[u8],
        start: usize,
        target: u64,
        suffix: &[u8],
        seq: Seq,
    ) -> Found {
        let prefixes = self.prefixes(block);
        let equals = prefixes.get(start..).unwrap_or(&[]);
        let equals = equals.partition_point(|p| u64::from_le_bytes(*p) <= target);
        let (mut low, mut high) = (start, start + equals);
        let mut same_key = false;
        while low < high {
            let middle = low + (high - low) / 2;
            let order = self.compare_rest(block, middle, suffix);
            if order.then_with(|| seq.cmp(&self.seq(block, middle))).is_lt() {
                low = middle + 1;
            } else {
                high = middle;
                same_key = order.is_eq();
            }
        }
        // `same_key` belongs to the last `high`, which is `low` now, if `high` ever moved.
        Found { index: low, same_key }
    }

    /// Sum of the hashes of all entries, computed from the block's bytes. Requires: validated.
    pub(super) fn compute_hash(&self, block: &[u8], scratch: &mut Vec<u8>) -> u64 {
        scratch.clear();
        scratch.extend_from_slice(self.common(block));
        let mut sum = 0u64;
        for i in 0..self.count() {
            let row = self.row(block, i);
            let key_len = self.write_key(block, i, &row, scratch);
            let key = scratch.get(..key_len).unwrap_or(&[]);
            let value = block.get(row.value_range()).unwrap_or(&[]);
            sum = sum.wrapping_add(hash_entry(key, row.seq, row.kind, value));
        }
        sum
    }
}

/// Entries with equal column prefixes that are compared one by one before a binary search pays for
/// its mispredicted branches.
const LINEAR_STEPS: usize = 8;

/// Staging memory that a builder keeps from block to block; a huge value's is freed before the rest
/// of the table is written.
const STAGING_KEPT_BYTES: usize = 2 << 20;

/// Collects the entries of one block.
#[derive(Default)]
pub(super) struct BlockBuilder {
    keys: Vec<u8>,
    values: Vec<u8>,
    entries: Vec<Staged>,
    /// Bytes of the prefix that all keys so far share.
    common_len: usize,
    key_lens: Bounds<usize>,
    seqs: Bounds<Seq>,
    kinds: Bounds<u8>,
}

#[derive(Clone, Copy)]
struct Staged {
    key_end: usize,
    value_end: usize,
    seq: Seq,
    kind: Kind,
}

/// Smallest and largest of some numbers.
#[derive(Clone, Copy, Default)]
struct Bounds<T> {
    min: T,
    max: T,
}

impl<T: Ord + Copy> Bounds<T> {
    fn with(self, first: bool, value: T) -> Self {
        if first {
            return Self { min: value, max: value };
        }
        Self { min: self.min.min(value), max: self.max.max(value) }
    }
}

/// Bytes of the prefix that two keys share.
#[inline]
pub(super) fn shared_prefix_len(a: &[u8], b: &[u8]) -> usize {
    let mut len = 0;
    for (x, y) in a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0) {
        let difference = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if difference != 0 {
            return len + (difference.trailing_zeros() / 8) as usize;
        }
        len += 8;
    }
    let rest = a.iter().skip(len).zip(b.iter().skip(len));
    len + rest.take_while(|(x, y)| x == y).count()
}

/// The smallest column width that holds `number`.
fn width_of(number: u64) -> usize {
    match number {
        0 => 0,
        1..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8,
    }
}

/// The columns' widths and the common prefix of a block being built.
struct Shape {
    common_len: usize,
    rows_bytes: usize,
    offset_width: usize,
    key_len_width: usize,
    seq_width: usize,
    kind_width: usize,
}

impl Shape {
    fn bytes(&self, count: usize) -> usize {
        let columns = PREFIX_BYTES
            + self.offset_width
            + self.key_len_width
            + self.seq_width
            + self.kind_width;
        HEADER_BYTES
            + count * columns
            + self.offset_width
            + self.common_len
            + self.rows_bytes
            + TRAILER_BYTES
    }
}

impl BlockBuilder {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of entries.
    pub(super) fn count(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of the block if it were finished now, an upper bound.
    pub(super) fn bytes_max(&self) -> usize {
        let columns = to_usize(overhead_bytes_max(self.entries.len() as u64));
        self.keys.len() + self.values.len() + if self.is_empty() { 0 } else { columns }
    }

    /// Bytes of the block with this entry added: exact while no key is shorter than the common
    /// prefix and the column, otherwise an upper bound.
    #[inline]
    pub(super) fn size_with(&self, key: &[u8], seq: Seq, kind: Kind, value: &[u8]) -> usize {
        let first = self.entries.is_empty();
        let common_len = if first {
            key.len()
        } else {
            let first_key = self.keys.get(..self.common_len).unwrap_or(&[]);
            shared_prefix_len(first_key, key)
        };
        let count = self.entries.len() + 1;
        let key_lens = self.key_lens.with(first, key.len());
        let in_columns = if key_lens.min >= common_len + PREFIX_BYTES { PREFIX_BYTES } else { 0 };
        let keys = self.keys.len() + key.len() - count * (common_len + in_columns);
        let rows_bytes = keys + self.values.len() + value.len();
        let shape = self.shape(
            common_len,
            rows_bytes,
            key_lens,
            self.seqs.with(first, seq),
            self.kinds.with(first, kind as u8),
        );
        shape.bytes(count)
    }

    fn shape(
        &self,
        common_len: usize,
        rows_bytes: usize,
        key_lens: Bounds<usize>,
        seqs: Bounds<Seq>,
        kinds: Bounds<u8>,
    ) -> Shape {
        Shape {
            common_len,
            rows_bytes,
            offset_width: if rows_bytes <= usize::from(u16::MAX) { 2 } else { 4 },
            key_len_width: width_of((key_lens.max - key_lens.min) as u64),
            seq_width: width_of(seqs.max - seqs.min),
            kind_width: width_of(u64::from(kinds.max - kinds.min)),
        }
    }

    /// Adds an entry that sorts after all others.
    #[inline]
    pub(super) fn add(&mut self, key: &[u8], seq: Seq, kind: Kind, value: &[u8]) {
        let first = self.entries.is_empty();
        self.common_len = if first {
            key.len()
        } else {
            shared_prefix_len(self.keys.get(..self.common_len).unwrap_or(&[]), key)
        };
        self.key_lens = self.key_lens.with(first, key.len());
        self.seqs = self.seqs.with(first, seq);
        self.kinds = self.kinds.with(first, kind as u8);
        self.keys.extend_from_slice(key);
        self.values.extend_from_slice(value);
        self.entries.push(Staged {
            key_end: self.keys.len(),
            value_end: self.values.len(),
            seq,
            kind,
        });
    }

    /// Appends the encoded block to `out`, without its entry hash, and empties the builder: the
    /// caller computes the hash from the encoded bytes and appends it.
    fn encode_body(&mut self, out: &mut Vec<u8>) {
        let common_len = self.common_len;
        let rest_starts = |key_len: usize| (common_len + PREFIX_BYTES).min(key_len);
        let mut rows_bytes = self.values.len();
        let mut key_start = 0;
        for entry in &self.entries {
            let key_len = entry.key_end - key_start;
            rows_bytes += key_len - rest_starts(key_len);
            key_start = entry.key_end;
        }
        let shape = self.shape(common_len, rows_bytes, self.key_lens, self.seqs, self.kinds);
        let (start, bytes) = (out.len(), shape.bytes(self.entries.len()));
        out.reserve(bytes);
        self.encode_header(&shape, out);
        self.encode_columns(&shape, out);
        out.extend_from_slice(self.keys.get(..common_len).unwrap_or(&[]));
        let (mut keys, mut values) = (&self.keys[..], &self.values[..]);
        let (mut key_start, mut value_start) = (0, 0);
        for entry in &self.entries {
            let (key, keys_rest) = keys.split_at(entry.key_end - key_start);
            let (value, values_rest) = values.split_at(entry.value_end - value_start);
            out.extend_from_slice(key.split_at(rest_starts(key.len())).1);
            out.extend_from_slice(value);
            (keys, values) = (keys_rest, values_rest);
            (key_start, value_start) = (entry.key_end, entry.value_end);
        }
        assert_eq!(out.len() - start + TRAILER_BYTES, bytes, "bytes of a block and of its layout");
    }

    #[expect(clippy::cast_possible_truncation, reason = "what `shape` and `size_with` allow")]
    fn encode_header(&self, shape: &Shape, out: &mut Vec<u8>) {
        put_u32(out, self.entries.len() as u32);
        put_u16(out, shape.common_len as u16);
        put_u16(out, (self.key_lens.min - shape.common_len) as u16);
        put_u64(out, self.seqs.min);
        let widths = [shape.offset_width, shape.key_len_width, shape.seq_width, shape.kind_width];
        out.extend(widths.map(|width| width as u8));
        out.extend([self.kinds.min, 0, 0, 0]);
    }

    #[expect(clippy::cast_possible_truncation, reason = "the widths are those of the greatest")]
    fn encode_columns(&self, shape: &Shape, out: &mut Vec<u8>) {
        let mut key_start = 0;
        for entry in &self.entries {
            let suffix = self.keys.get(key_start + shape.common_len..entry.key_end);
            put_u64(out, key::prefix(suffix.unwrap_or(&[])));
            key_start = entry.key_end;
        }
        let mut column = |width: usize, number: u64| match width {
            0 => {}
            1 => out.push(number as u8),
            2 => put_u16(out, number as u16),
            4 => put_u32(out, number as u32),
            _ => put_u64(out, number),
        };
        column(shape.offset_width, 0);
        let (mut offset, mut key_start, mut value_start) = (0, 0, 0);
        for entry in &self.entries {
            let key_len = entry.key_end - key_start;
            offset += key_len.saturating_sub(shape.common_len + PREFIX_BYTES);
            offset += entry.value_end - value_start;
            column(shape.offset_width, offset as u64);
            (key_start, value_start) = (entry.key_end, entry.value_end);
        }
        let mut key_start = 0;
        for entry in &self.entries {
            let key_len = entry.key_end - key_start;
            column(shape.key_len_width, (key_len - self.key_lens.min) as u64);
            key_start = entry.key_end;
        }
        for entry in &self.entries {
            column(shape.seq_width, entry.seq - self.seqs.min);
        }
        for entry in &self.entries {
            column(shape.kind_width, u64::from(entry.kind as u8 - self.kinds.min));
        }
    }

    /// Appends the encoded block to `out` and empties the builder. Returns the sum of the entries'
    /// hashes, computed from the encoded bytes, so that it checks what is written.
    ///
    /// # Panics
    /// If the encoded bytes cannot be decoded, before they reach the disk: a bug or bad memory.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>, scratch: &mut Vec<u8>) -> u64 {
        let start = out.len();
        self.encode_body(out);
        out.extend_from_slice(&[0; TRAILER_BYTES]);
        let block = out.split_at(start).1;
        let layout = Layout::parse(block).and_then(|l| l.validate(block).map(|()| l));
        let layout = match layout {
            Ok(layout) => layout,
            Err(flaw) => panic!("a block just built cannot be read: {flaw:?}"),
        };
        assert_eq!(layout.count(), self.entries.len(), "a block just built lost entries");
        let hash = layout.compute_hash(block, scratch);
        let hash_start = out.len() - TRAILER_BYTES;
        out.truncate(hash_start);
        put_u64(out, hash);
        self.keys.clear();
        self.keys.shrink_to(STAGING_KEPT_BYTES);
        self.values.clear();
        self.values.shrink_to(STAGING_KEPT_BYTES);
        self.entries.clear();
        hash
    }
}
