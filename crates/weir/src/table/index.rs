// FORMAT: docs/format/table.md sha=afecfa0769b6
//! The index of a table, its *fence pointers*: for every data block a separator key and the block's
//! end.
//!
//! Not here: blocks themselves (`block`). Layout on disk: docs/format/table.md, "Index".
//!
//! The separator of block `b` is at most its first entry and greater than the last entry of block
//! `b - 1`. It is the shortest such prefix of the first key; only if the versions of one user key
//! extend from block `b - 1` into `b` it is the whole key with its sequence number (the block is
//! *continued*). So a search by (key, sequence number) finds one block, and a point lookup that
//! reaches the end of that block needs the next one only if that is continued with its key.
//!
//! Invariants: (1) separators ascend strictly in the order of `base::key`; (2) block ends ascend
//! strictly and the last one is the end of the data; both are checked before an index is used.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::cmp::Ordering;

use crate::base::buf::BLOCK_BYTES_MAX;
use crate::base::coding::to_usize;
use crate::base::key::{self, SEQ_MAX, Seq};
use crate::base::pages::PageVec;
use crate::base::prefetch::{LINE_BYTES, prefetch_lines};
use crate::table::block::shared_prefix_len;

/// Bytes of the fixed header: block count, length of the common prefix, width, reserved.
const HEADER_BYTES: usize = 4 + 2 + 1 + 1;
/// Bytes of a sequence number behind a continued separator.
const SEQ_BYTES: usize = 8;

/// Prefixes between two of the samples that a search begins with: four cache lines.
const GROUP: usize = 32;

/// The index of an open table: the bytes on disk, and a column of 8-byte prefixes.
///
/// A search in a table of 10,000 blocks compares 14 prefixes, each on another cache line, and waits
/// for every one of them. The samples of all tables stay in the CPU's cache, and the lines of the
/// group that they lead to are fetched together.
pub(super) struct Index {
    bytes: PageVec<u8>,
    /// The 8 bytes of each separator after the common prefix.
    prefixes: PageVec<u64>,
    /// Every [`GROUP`]th of them, beginning with the first.
    samples: PageVec<u64>,
    common_len: usize,
    width: usize,
    ends_start: usize,
    /// Column of the ends of the separators in the heap; the top bit says "continued".
    keys_start: usize,
    heap_start: usize,
}

/// Offset and length of a data block in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) offset: u64,
    pub(super) bytes: usize,
}

/// A lower bound of a block's entries.
#[derive(Clone, Copy, Debug)]
struct Separator<'a> {
    /// Without the common prefix.
    suffix: &'a [u8],
    /// `SEQ_MAX` unless the block is continued: all versions of the key are at or after that.
    seq: Seq,
    continued: bool,
}

impl Index {
    /// Decodes the index section of a table with `blocks` data blocks in `data_bytes` bytes.
    ///
    /// # Errors
    /// What is wrong, as the end of a sentence.
    pub(super) fn decode(
        bytes: PageVec<u8>,
        blocks: u32,
        data_bytes: u64,
    ) -> Result<Self, &'static str> {
        let header = *bytes.first_chunk::<HEADER_BYTES>().ok_or("is shorter than its header")?;
        let count = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let common_len = usize::from(u16::from_le_bytes([header[4], header[5]]));
        let width = usize::from(header[6]);
        if count != blocks || count == 0 {
            return Err("has another number of blocks than the table");
        }
        if !matches!(width, 4 | 8) || header[7] != 0 {
            return Err("has a layout that no version writes");
        }
        let count = count as usize;
        // Cannot overflow: the count is below 2^32 and the widths sum up to 16 at most.
        let ends_start = HEADER_BYTES + common_len;
        let keys_start = ends_start + count * width;
        let heap_start = keys_start + count * width;
        if heap_start > bytes.len() {
            return Err("has an entry count that does not fit it");
        }
        let mut index = Self {
            bytes,
            prefixes: PageVec::new(),
            samples: PageVec::new(),
            common_len,
            width,
            ends_start,
            keys_start,
            heap_start,
        };
        index.check(count, data_bytes)?;
        index.prefixes = (0..count).map(|b| key::prefix(index.separator(b).suffix)).collect();
        index.samples = index.prefixes.iter().copied().step_by(GROUP).collect();
        Ok(index)
    }

    /// Checks invariants 1 and 2.
    fn check(&self, count: usize, data_bytes: u64) -> Result<(), &'static str> {
        let (mut block_end, mut key_end) = (0, 0);
        let heap_bytes = (self.bytes.len() - self.heap_start) as u64;
        for b in 0..count {
            let end = self.number(self.ends_start, b);
            let (next_key_end, continued) = self.key_end(b);
            if end <= block_end || end > data_bytes {
                return Err("has blocks out of place");
            }
            if end - block_end > BLOCK_BYTES_MAX as u64 {
                return Err("has a block of 4 GiB or more");
            }
            let seq_bytes = if continued { SEQ_BYTES as u64 } else { 0 };
            if next_key_end < key_end + seq_bytes || next_key_end > heap_bytes {
                return Err("has separators out of place");
            }
            (block_end, key_end) = (end, next_key_end);
            if b == 0 {
                if continued {
                    return Err("has a first block that continues another");
                }
            } else if self.compare(b - 1, self.separator(b).suffix, self.separator(b).seq).is_ge() {
                return Err("has separators out of order");
            }
            if self.separator(b).seq > SEQ_MAX {
                return Err("has a sequence number above the largest");
            }
        }
        if block_end != data_bytes || key_end != heap_bytes {
            return Err("does not cover all of the table's data");
        }
        Ok(())
    }

    /// Number of data blocks.
    pub(super) fn blocks(&self) -> usize {
        self.prefixes.len()
    }

    /// Bytes of memory that the index holds.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.memory_bytes() + self.prefixes.memory_bytes() + self.samples.memory_bytes()
    }

    /// Number `i` of the column that begins at `start`; 0 outside.
    #[inline]
    fn number(&self, start: usize, i: usize) -> u64 {
        let at = start + i * self.width;
        let bytes = self.bytes.get(at..at + self.width).unwrap_or(&[]);
        match *bytes {
            [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            _ => 0,
        }
    }

    /// End of separator `b` in the heap, and whether its block is continued.
    #[inline]
    fn key_end(&self, b: usize) -> (u64, bool) {
        let flag = 1u64 << (8 * self.width - 1);
        let number = self.number(self.keys_start, b);
        (number & (flag - 1), number & flag != 0)
    }

    #[inline]
    fn separator(&self, b: usize) -> Separator<'_> {
        let start = if b == 0 { 0 } else { to_usize(self.key_end(b - 1).0) };
        let (end, continued) = self.key_end(b);
        let heap = self.bytes.get(self.heap_start..).unwrap_or(&[]);
        let stored = heap.get(start..to_usize(end)).unwrap_or(&[]);
        match (continued, stored.split_last_chunk::<SEQ_BYTES>()) {
            (true, Some((suffix, seq))) => {
                Separator { suffix, seq: u64::from_le_bytes(*seq), continued }
            }
            _ => Separator { suffix: stored, seq: SEQ_MAX, continued: false },
        }
    }

    fn common(&self) -> &[u8] {
        self.bytes.get(HEADER_BYTES..HEADER_BYTES + self.common_len).unwrap_or(&[])
    }

    /// Order of separator `b` and the entry `(common prefix + suffix, seq)`.
    #[inline]
    fn compare(&self, b: usize, suffix: &[u8], seq: Seq) -> Ordering {
        let separator = self.separator(b);
        key::compare_entries((separator.suffix, separator.seq), (suffix, seq))
    }

    /// The only block that may hold `(key, seq)`: the last whose separator is at or before it;
    /// `None` if the first is after it.
    #[inline]
    pub(super) fn find(&self, key: &[u8], seq: Seq) -> Option<usize> {
        let common = self.common();
        let Some(suffix) = key.strip_prefix(common) else {
            let after = key::compare(key, common).is_gt();
            return after.then(|| self.blocks() - 1);
        };
        let target = key::prefix(suffix);
        let upper = self.upper_bound(target);
        let last = upper.checked_sub(1)?;
        if self.prefixes.get(last).is_some_and(|&p| p < target) {
            return Some(last);
        }
        self.find_among_equals(upper, target, suffix, seq)
    }

    /// Number of blocks whose prefix is at most `target`.
    #[inline]
    fn upper_bound(&self, target: u64) -> usize {
        let samples = self.samples.partition_point(|&p| p <= target);
        let Some(group) = samples.checked_sub(1) else { return 0 };
        let start = group * GROUP;
        let end = self.prefixes.len().min(start + GROUP);
        let group = self.prefixes.get(start..end).unwrap_or(&[]);
        prefetch_lines(group.as_ptr().cast(), GROUP * size_of::<u64>() / LINE_BYTES);
        start + group.partition_point(|&p| p <= target)
    }

    /// As [`Index::find`] where block `upper - 1` has the target's prefix.
    fn find_among_equals(
        &self,
        upper: usize,
        target: u64,
        suffix: &[u8],
        seq: Seq,
    ) -> Option<usize> {
        // Usually it is the last block with this prefix.
        if self.compare(upper - 1, suffix, seq).is_le() {
            return Some(upper - 1);
        }
        let equals = self.prefixes.get(..upper).unwrap_or(&[]);
        let (mut low, mut high) = (equals.partition_point(|&p| p < target), upper);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.compare(middle, suffix, seq).is_le() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.checked_sub(1)
    }

    /// Whether the versions of `key` extend from the block before into block `b`.
    #[inline]
    pub(super) fn continues(&self, b: usize, key: &[u8]) -> bool {
        if b >= self.blocks() {
            return false;
        }
        let separator = self.separator(b);
        separator.continued && key.strip_prefix(self.common()) == Some(separator.suffix)
    }

    /// Offset and length of block `b`. Requires: `b < blocks()`.
    #[inline]
    pub(super) fn extent(&self, b: usize) -> Extent {
        debug_assert!(b < self.blocks(), "block {b} of {}", self.blocks());
        let offset = if b == 0 { 0 } else { self.number(self.ends_start, b - 1) };
        let end = self.number(self.ends_start, b);
        Extent { offset, bytes: to_usize(end.saturating_sub(offset)) }
    }

    /// The whole separator of block `b`: key and sequence number.
    pub(super) fn separator_key(&self, b: usize) -> (Vec<u8>, Seq) {
        let separator = self.separator(b);
        ([self.common(), separator.suffix].concat(), separator.seq)
    }
}

/// Collects the separators and ends of the blocks of a table being written.
#[derive(Default)]
pub(super) struct IndexBuilder {
    /// Whole separators, each followed by its sequence number if it is continued.
    heap: PageVec<u8>,
    rows: PageVec<IndexRow>,
}

#[derive(Clone, Copy)]
struct IndexRow {
    /// End of the stored block.
    end: u64,
    /// The separator in the builder's heap, without the sequence number.
    key_start: usize,
    key_end: usize,
    continued: bool,
}

impl IndexBuilder {
    pub(super) fn blocks(&self) -> usize {
        self.rows.len()
    }

    /// Adds the next block, which begins with `first` and is stored up to `end`; `last_key` is the
    /// last user key of the block before.
    pub(super) fn add(&mut self, first: (&[u8], Seq), last_key: Option<&[u8]>, end: u64) {
        let (key, seq) = first;
        assert!(
            end > self.end(),
            "block {} ends at {end}, the block before it at {}",
            self.blocks(),
            self.end()
        );
        assert!(
            last_key.is_none_or(|last_key| key::compare(last_key, key).is_le()),
            "block {} begins with {}, the block before it ends with {}",
            self.blocks(),
            key::Printable(key),
            key::Printable(last_key.unwrap_or_default())
        );
        let continued = last_key == Some(key);
        let separator_len = match last_key {
            Some(last_key) if !continued => shared_prefix_len(last_key, key) + 1,
            _ => key.len(),
        };
        let key_start = self.heap.len();
        self.heap.extend_from_slice(key.get(..separator_len).unwrap_or(key));
        let key_end = self.heap.len();
        if continued {
            self.heap.extend_from_slice(&seq.to_le_bytes());
        }
        self.rows.push(IndexRow { end, key_start, key_end, continued });
    }

    /// End of the last block; 0 if there is none.
    pub(super) fn end(&self) -> u64 {
        self.rows.last().map_or(0, |row| row.end)
    }

    /// Bytes of memory held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.heap.memory_bytes() + self.rows.memory_bytes()
    }

    /// Bytes of the section, an upper bound.
    pub(super) fn bytes_max(&self) -> u64 {
        (HEADER_BYTES + self.heap.len() + 16 * self.rows.len()) as u64
    }

    /// The section's bytes.
    #[expect(clippy::cast_possible_truncation, reason = "a table's blocks; keys are below 2^16")]
    #[expect(clippy::indexing_slicing, reason = "offsets that `push` counted")]
    pub(super) fn finish(&self) -> PageVec<u8> {
        let separator = |row: &IndexRow| &self.heap[row.key_start..row.key_end];
        let seq = |row: &IndexRow| {
            let seq_bytes = if row.continued { SEQ_BYTES } else { 0 };
            &self.heap[row.key_end..row.key_end + seq_bytes]
        };
        let first = self.rows.first().map_or(&[][..], separator);
        let last = self.rows.last().map_or(&[][..], separator);
        let common_len = shared_prefix_len(first, last);
        let heap_bytes = self.heap.len() - common_len * self.rows.len();
        let data_bytes = self.end();
        let narrow_max = u64::from(u32::MAX >> 1);
        let wide = heap_bytes as u64 > narrow_max || data_bytes > u64::from(u32::MAX);

        let width = if wide { 8 } else { 4 };
        let mut out = PageVec::with_capacity(HEADER_BYTES + self.rows.len() * 16 + heap_bytes);
        out.extend_from_slice(&(self.rows.len() as u32).to_le_bytes());
        out.extend_from_slice(&(common_len as u16).to_le_bytes());
        out.extend_from_slice(&[width as u8, 0]);
        out.extend_from_slice(&first[..common_len]);
        let number = |out: &mut PageVec<u8>, value: u64| {
            out.extend_from_slice(&value.to_le_bytes()[..width]);
        };
        for row in self.rows.iter() {
            number(&mut out, row.end);
        }
        let flag = if wide { 1 << 63 } else { 1 << 31 };
        let mut end = 0;
        for row in self.rows.iter() {
            end += (separator(row).len() - common_len + seq(row).len()) as u64;
            number(&mut out, if row.continued { end | flag } else { end });
        }
        for row in self.rows.iter() {
            out.extend_from_slice(&separator(row)[common_len..]);
            out.extend_from_slice(seq(row));
        }
        let bytes = HEADER_BYTES + common_len + 2 * width * self.rows.len() + heap_bytes;
        assert_eq!(out.len(), bytes, "bytes of an index and of its layout");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First key and sequence number of a block, and the last key of the block before.
    type Block<'a> = (&'a [u8], Seq, Option<&'a [u8]>);

    fn index(blocks: &[Block<'_>]) -> Index {
        let mut builder = IndexBuilder::default();
        for (i, &(first, seq, last_key)) in blocks.iter().enumerate() {
            builder.add((first, seq), last_key, (i as u64 + 1) * 100);
        }
        let bytes = builder.finish();
        assert!(bytes.len() as u64 <= builder.bytes_max());
        let end = blocks.len() as u64 * 100;
        Index::decode(bytes[..].into(), blocks.len() as u32, end).unwrap()
    }

    /// Separators are as short as possible; a key whose versions span blocks is found exactly by
    /// its sequence number.
    #[test]
    fn separators_are_short_and_exact() {
        let index = index(&[
            (b"abcde", 9, None),
            (b"abxyz", 8, Some(b"abcdz")),
            (b"abxyz", 5, Some(b"abxyz")),
            (b"abxyz", 2, Some(b"abxyz")),
            (b"ac", 7, Some(b"abxyzz")),
        ]);
        assert_eq!(index.common(), b"a");
        assert_eq!(index.separator_key(0), (b"abcde".to_vec(), SEQ_MAX));
        assert_eq!(index.separator_key(1), (b"abx".to_vec(), SEQ_MAX));
        assert_eq!(index.separator_key(2), (b"abxyz".to_vec(), 5));
        let find = |key: &[u8], seq| index.find(key, seq);
        assert_eq!(find(b"abcdd", 0), None);
        assert_eq!(find(b"", SEQ_MAX), None);
        assert_eq!(find(b"abcde", SEQ_MAX), Some(0));
        assert_eq!(find(b"abww", 0), Some(0));
        assert_eq!(find(b"abxyz", SEQ_MAX), Some(1));
        assert_eq!(find(b"abxyz", 6), Some(1));
        assert_eq!(find(b"abxyz", 5), Some(2));
        assert_eq!(find(b"abxyz", 3), Some(2));
        assert_eq!(find(b"abxyz", 0), Some(3));
        assert_eq!(find(b"abxyzz", SEQ_MAX), Some(3));
        assert_eq!(find(b"ac", 3), Some(4));
        assert_eq!(find(b"b", SEQ_MAX), Some(4));
        assert!(index.continues(2, b"abxyz") && index.continues(3, b"abxyz"));
        assert!(!index.continues(1, b"abxyz") && !index.continues(4, b"ac"));
        assert!(!index.continues(5, b"abxyz"));
        assert_eq!(index.extent(0), Extent { offset: 0, bytes: 100 });
        assert_eq!(index.extent(4), Extent { offset: 400, bytes: 100 });
    }

    /// A search through samples and group is the search through all separators, in indexes of
    /// every number of groups and with equal prefixes across their edges.
    #[test]
    fn samples_lead_to_the_right_group() {
        for count in [1, 2, GROUP - 1, GROUP, GROUP + 1, 3 * GROUP, 5 * GROUP + 7] {
            // Three separators in a row have a prefix of 8 bytes in common.
            let keys: Vec<String> =
                (0..count).map(|i| format!("{:08}{}", 2 * (i / 3), i % 3)).collect();
            let blocks: Vec<Block<'_>> = (0..count)
                .map(|i| (keys[i].as_bytes(), 1, i.checked_sub(1).map(|i| keys[i].as_bytes())))
                .collect();
            let index = index(&blocks);
            for i in 0..2 * count + 2 {
                for tail in ["", "0", "1", "2", "9"] {
                    let key = format!("{i:08}{tail}");
                    let expected = (0..count)
                        .rfind(|&b| index.separator_key(b).0.as_slice() <= key.as_bytes());
                    assert_eq!(index.find(key.as_bytes(), SEQ_MAX), expected, "{key} of {count}");
                }
            }
        }
    }

    /// Damage behind a correct checksum must neither panic nor give an index that points outside
    /// the file: every byte of an index is set to several values.
    #[test]
    fn mutated_indexes_never_panic() {
        let mut builder = IndexBuilder::default();
        builder.add((b"k1", 9), None, 100);
        builder.add((b"k1", 7), Some(b"k1"), 200);
        builder.add((b"k7", 7), Some(b"k3"), 300);
        let bytes = builder.finish();
        for i in 0..bytes.len() {
            for value in [0, 1, 2, 0x7f, 0x80, 0xff] {
                let mut mutated = bytes.to_vec();
                mutated[i] = value;
                let Ok(index) = Index::decode(mutated[..].into(), 3, 300) else { continue };
                for b in 0..3 {
                    let extent = index.extent(b);
                    assert!(extent.offset + extent.bytes as u64 <= 300);
                    index.separator_key(b);
                }
                index.find(b"k1", 8);
                index.continues(1, b"k1");
            }
            assert!(Index::decode(bytes[..i].into(), 3, 300).is_err(), "cut to {i}");
        }
    }
}
