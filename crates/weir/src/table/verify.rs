//! Verification: reads a whole table and checks everything that can be checked.
//!
//! Besides all checksums: that blocks follow each other without gaps, entries are in strict order
//! (so no two share key and sequence number), separators bound their blocks, the filter contains
//! every key, and bounds, counts and entry hash are those of the description. The cache is not
//! used, and neither are index and filter in memory: the tail is read again.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use crate::base::buf::Buf;
use crate::base::checksum::{hash_entry, hash_key};
use crate::base::coding::to_usize;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::key::{Kind, Printable, SEQ_MAX, Seq, compare_entries};
use crate::base::table_meta::TableMeta;
use crate::table::VerifyStats;
use crate::table::block::Layout;
use crate::table::fetch::Block;
use crate::table::reader::{Opened, Table};
use crate::table::table_cache::OpenFile;

/// Bytes of one read, unless a single block is larger.
const READ_BYTES: u64 = 1 << 20;

/// First and last keys of ranges.
pub(crate) type KeyRanges = Vec<(Vec<u8>, Vec<u8>)>;

/// Receives entries: key, sequence number, kind, value.
type EntrySink<'a> = &'a mut dyn FnMut(&[u8], Seq, Kind, &[u8]);

impl Table {
    /// Reads all of the table from the device and checks it against itself and its description.
    ///
    /// # Errors
    /// The first flaw found: `Corruption` with file, offset and key range, or `Io`.
    pub(crate) fn verify(&self) -> Result<VerifyStats> {
        let file = self.open_apart()?;
        let opened = self.load(file.source())?;
        let blocks = opened.index.blocks();
        let mut content = Content::new();
        let mut chunk = Vec::new();
        let mut block = 0;
        while block < blocks {
            let start = opened.index.extent(block).offset;
            let mut end_block = block;
            let mut end = start;
            while end_block < blocks {
                let extent = opened.index.extent(end_block);
                let next_end = extent.offset + extent.bytes as u64;
                if end_block > block && next_end - start > READ_BYTES {
                    break;
                }
                (end, end_block) = (next_end, end_block + 1);
            }
            chunk.clear();
            chunk.resize(to_usize(end - start), 0);
            file.source().read_exact_at(&mut chunk, start)?;
            for b in block..end_block {
                let extent = opened.index.extent(b);
                let at = to_usize(extent.offset - start);
                let stored = chunk.get(at..at + extent.bytes).unwrap_or(&[]);
                let Block { buf, layout } =
                    self.verified(&opened, (b, extent), Buf::from(stored))?;
                self.verify_block(&opened, b, &buf, &layout, &mut content)?;
            }
            block = end_block;
        }
        self.verify_totals(&opened, content)?;
        Ok(VerifyStats {
            blocks: blocks as u64,
            entries: self.meta().entries,
            bytes: self.meta().bytes,
        })
    }

    /// Passes the entries of every sound block to `take`, in order. Returns the key ranges of the
    /// other blocks, neighbours joined.
    ///
    /// # Errors
    /// `Corruption` if the index or the footer is damaged, without which no block can be found; the
    /// device's.
    pub(crate) fn read_remains(&self, take: EntrySink<'_>) -> Result<KeyRanges> {
        let file = self.open_remains()?;
        let opened = self.load_index(file.source())?;
        let mut lost = KeyRanges::new();
        let mut before_is_lost = false;
        for b in 0..opened.index.blocks() {
            match self.read_sound_block(&file, &opened, b) {
                Ok((buf, layout)) => {
                    let bytes = buf.bytes();
                    let mut key = layout.common(bytes).to_vec();
                    for i in 0..layout.count() {
                        let row = layout.row(bytes, i);
                        let key_len = layout.write_key(bytes, i, &row, &mut key);
                        let value = bytes.get(row.value_range()).unwrap_or(&[]);
                        take(key.get(..key_len).unwrap_or(&[]), row.seq, row.kind, value);
                    }
                    before_is_lost = false;
                }
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    let (first, last) = self.block_bounds(&opened, b);
                    match lost.last_mut() {
                        Some(range) if before_is_lost => range.1 = last,
                        _ => lost.push((first, last)),
                    }
                    before_is_lost = true;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(lost)
    }

    /// Reads a block and checks it alone: flaws of its neighbours do not matter.
    fn read_sound_block(
        &self,
        file: &OpenFile,
        opened: &Opened,
        block: usize,
    ) -> Result<(Buf, Layout)> {
        let extent = opened.index.extent(block);
        let mut stored = vec![0; extent.bytes];
        file.source().read_exact_at(&mut stored, extent.offset)?;
        let Block { buf, layout } =
            self.verified(opened, (block, extent), Buf::from(&stored[..]))?;
        self.verify_block(opened, block, &buf, &layout, &mut Content::new())?;
        Ok((buf, layout))
    }

    fn verify_block(
        &self,
        opened: &Opened,
        block: usize,
        buf: &Buf,
        layout: &Layout,
        content: &mut Content,
    ) -> Result<()> {
        let damaged = |what: &str| {
            let offset = opened.index.extent(block).offset;
            let (first, last) = self.block_bounds(opened, block);
            Error::corruption(opened.path(), offset, format_args!("data block {block} {what}"))
                .with_key_range(&first, &last)
        };
        let bytes = buf.bytes();
        let (separator, separator_seq) = opened.index.separator_key(block);
        let separator = (&separator[..], separator_seq);
        if content.meta.entries > 0 && compare_entries(content.last(), separator).is_ge() {
            return Err(damaged("has a separator that is not above the block before"));
        }
        let mut key = layout.common(bytes).to_vec();
        let mut hash = 0u64;
        for i in 0..layout.count() {
            let row = layout.row(bytes, i);
            let key_len = layout.write_key(bytes, i, &row, &mut key);
            let entry_key = key.get(..key_len).unwrap_or(&[]);
            if i == 0 && compare_entries((entry_key, row.seq), separator).is_lt() {
                return Err(damaged("begins before its separator"));
            }
            let found = layout.search(bytes, entry_key, row.seq);
            if found.index != i || !found.same_key {
                return Err(damaged("has an entry that a search does not find"));
            }
            let seed = self.hash_seed();
            if seed.is_some_and(|seed| !opened.may_contain(hash_key(entry_key, seed))) {
                return Err(damaged("has a key that the filter excludes"));
            }
            let value = bytes.get(row.value_range()).unwrap_or(&[]);
            if row.kind == Kind::Delete && !value.is_empty() {
                return Err(damaged("has a delete with a value"));
            }
            hash = hash.wrapping_add(hash_entry(entry_key, row.seq, row.kind, value));
            content.add(entry_key, row.seq, row.kind, value).map_err(|what| damaged(&what))?;
        }
        if hash != layout.stored_hash(bytes) {
            return Err(damaged("has a wrong entry hash"));
        }
        content.meta.blocks += 1;
        content.meta.entry_hash = content.meta.entry_hash.wrapping_add(hash);
        Ok(())
    }

    fn verify_totals(&self, opened: &Opened, content: Content) -> Result<()> {
        let mut found = content.meta;
        found.largest = content.last_key;
        // Blocks do not contain it; opening has compared the properties with the description.
        found.keyspace = self.meta().keyspace;
        if found.same_content(self.meta()) {
            return Ok(());
        }
        Err(Error::corruption(
            opened.path(),
            0,
            format_args!(
                "a table of {} entries, {} to {}, whose description says {} entries, {} to {}",
                found.entries,
                Printable(&found.smallest),
                Printable(&found.largest),
                self.meta().entries,
                Printable(&self.meta().smallest),
                Printable(&self.meta().largest),
            ),
        ))
    }
}

/// Totals of the blocks read so far.
struct Content {
    meta: TableMeta,
    last_key: Vec<u8>,
    last_seq: Seq,
}

impl Content {
    fn new() -> Self {
        let meta = TableMeta { seq_min: SEQ_MAX, ..TableMeta::empty() };
        Self { meta, last_key: Vec::new(), last_seq: 0 }
    }

    fn last(&self) -> (&[u8], Seq) {
        (&self.last_key, self.last_seq)
    }

    fn add(&mut self, key: &[u8], seq: Seq, kind: Kind, value: &[u8]) -> Result<(), String> {
        let meta = &mut self.meta;
        if meta.entries == 0 {
            meta.smallest = key.to_vec();
        } else if compare_entries((&self.last_key, self.last_seq), (key, seq)).is_ge() {
            return Err(format!("has {} at {seq} out of order", Printable(key)));
        }
        meta.entries += 1;
        meta.deletes += u64::from(kind == Kind::Delete);
        meta.raw_bytes += (key.len() + value.len()) as u64;
        meta.seq_min = meta.seq_min.min(seq);
        meta.seq_max = meta.seq_max.max(seq);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.last_seq = seq;
        Ok(())
    }
}
