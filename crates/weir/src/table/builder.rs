//! The table builder: turns sorted entries into one file and its description.
//!
//! Not here: the cutting of outputs (`compaction`), writes to the device (`storage`).
//!
//! Invariants: (1) entries are added in the strict order of `base::key`, asserted in release
//! builds; (2) the entry hash is computed from the encoded blocks, not from the arguments of `add`:
//! comparing it with the sum over the inputs verifies the written bytes (ARCHITECTURE §3); (3)
//! memory holds one block, the index, and 8 bytes per distinct key for the filter.

use crate::base::checksum::hash_key;
use crate::base::error::{Error, Result};
use crate::base::heat::{Heat, Warmth};
use crate::base::ids::TableUid;
use crate::base::key::{self, Kind, SEQ_MAX, Seq};
use crate::base::limits;
use crate::base::pages::PageVec;
use crate::base::table_meta::TableMeta;
use crate::filter;
use crate::storage::{TableWriter, WrittenTable};
use crate::table::TableOptions;
use crate::table::block::BlockBuilder;
use crate::table::format::{
    FOOTER_BYTES, Footer, KIND_FILTER, KIND_INDEX, KIND_PROPERTIES, hash_check, section_checksum,
    store_block,
};
use crate::table::index::{Index, IndexBuilder};

/// A data block that was just written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrittenBlock<'a> {
    /// The table's uid.
    pub(crate) uid: TableUid,
    /// Number of the block in the table.
    pub(crate) ordinal: u32,
    /// Its first and last user key.
    pub(crate) first_key: &'a [u8],
    pub(crate) last_key: &'a [u8],
    /// The bytes that a reader of the block would insert into the cache.
    pub(crate) content: &'a [u8],
    /// The heat that its entries bring along.
    pub(crate) heat: Heat,
}

/// Observes the data blocks of a table while it is written. The table may still be abandoned.
pub(crate) trait BlockSink: Send {
    /// Called after a block was written.
    fn block(&mut self, block: WrittenBlock<'_>);
}

/// A table being written.
pub(crate) struct TableBuilder {
    writer: Box<dyn TableWriter>,
    options: TableOptions,
    block: BlockBuilder,
    /// The warm entries of the current block, by their number.
    warm: Vec<(usize, Warmth)>,
    index: IndexBuilder,
    /// Hashes of the distinct user keys, for the filter.
    hashes: PageVec<u64>,
    /// The key and sequence number added last.
    last_key: Vec<u8>,
    last_seq: Seq,
    /// First entry of the current block.
    block_first_key: Vec<u8>,
    block_first_seq: Seq,
    /// Last user key of the block before the current one.
    block_last_key: Vec<u8>,
    /// Counts so far; file length, tail and bounds are set at the end.
    meta: TableMeta,
    encoded: Vec<u8>,
    stored: Vec<u8>,
    scratch: Vec<u8>,
    sink: Option<Box<dyn BlockSink>>,
    #[cfg(all(test, feature = "sim"))]
    misstated: Option<Vec<u8>>,
}

/// Memory that the builder keeps from block to block; more is freed after a huge value.
const BUFFERS_KEPT_BYTES: usize = 2 << 20;

impl TableBuilder {
    /// Starts table `uid` in `writer`.
    pub(crate) fn new(writer: Box<dyn TableWriter>, uid: TableUid, options: TableOptions) -> Self {
        let keyspace = options.keyspace;
        let meta =
            TableMeta { uid, check_uid: uid, seq_min: SEQ_MAX, keyspace, ..TableMeta::empty() };
        Self {
            writer,
            options,
            block: BlockBuilder::default(),
            warm: Vec::new(),
            index: IndexBuilder::default(),
            hashes: PageVec::new(),
            last_key: Vec::new(),
            last_seq: 0,
            block_first_key: Vec::new(),
            block_first_seq: 0,
            block_last_key: Vec::new(),
            meta,
            encoded: Vec::new(),
            stored: Vec::new(),
            scratch: Vec::new(),
            sink: None,
            #[cfg(all(test, feature = "sim"))]
            misstated: None,
        }
    }

    /// Passes every block to `sink` from now on.
    pub(crate) fn show_blocks_to(&mut self, sink: Box<dyn BlockSink>) {
        self.sink = Some(sink);
    }

    /// Adds an entry that sorts after all others in the order of `base::key`.
    ///
    /// # Errors
    /// The writer's; `InvalidArgument` for a key or value above its limit; `Corruption` if the
    /// entry is out of order, so that searches in the table would not find it: a merge reads it
    /// from tables that state other bounds than they have. After an error the table must be
    /// abandoned.
    pub(crate) fn add(&mut self, key: &[u8], seq: Seq, kind: Kind, value: &[u8]) -> Result<()> {
        let first = self.meta.entries == 0;
        let key_order = key::compare(&self.last_key, key);
        if !(first || key_order.is_lt() || (key_order.is_eq() && seq < self.last_seq)) {
            return Err(self.out_of_order(key, seq));
        }
        assert!(kind != Kind::Delete || value.is_empty(), "a delete has no value");
        assert!(seq <= SEQ_MAX, "sequence number {seq} exceeds {SEQ_MAX}");
        if key.len() > limits::KEY_BYTES_MAX || value.len() > limits::VALUE_BYTES_MAX {
            return Err(Error::invalid(format!(
                "an entry of a {}-byte key and a {}-byte value exceeds the limits of {} and {}",
                key.len(),
                value.len(),
                limits::KEY_BYTES_MAX,
                limits::VALUE_BYTES_MAX
            )));
        }
        let block_bytes = self.options.block_bytes as usize;
        if !self.block.is_empty() && self.block.size_with(key, seq, kind, value) > block_bytes {
            self.finish_block()?;
        }
        if self.block.is_empty() {
            self.block_first_key.clear();
            self.block_first_key.extend_from_slice(key);
            self.block_first_seq = seq;
        }
        self.block.add(key, seq, kind, value);
        self.count(key, seq, kind, value, first || key_order.is_lt());
        Ok(())
    }

    /// Makes the entry added last at least so warm, for the observer of its block.
    #[inline]
    pub(crate) fn warm_last(&mut self, warmth: Warmth) {
        if warmth != Warmth::Cold {
            self.warm.push((self.block.count().saturating_sub(1), warmth));
        }
    }

    #[cold]
    fn out_of_order(&self, key: &[u8], seq: Seq) -> Error {
        let what = format_args!(
            "entry {} at {seq} comes after {} at {}",
            key::Printable(key),
            key::Printable(&self.last_key),
            self.last_seq
        );
        Error::corruption(format!("the entries of table {}", self.meta.uid), 0, what)
    }

    /// States `key` as the largest from now on, as only a hostile program would.
    #[cfg(all(test, feature = "sim"))]
    pub(crate) fn misstate_largest(&mut self, key: &[u8]) {
        self.misstated = Some(key.to_vec());
    }

    /// Updates the description for an entry just added.
    #[inline]
    fn count(&mut self, key: &[u8], seq: Seq, kind: Kind, value: &[u8], new_key: bool) {
        let meta = &mut self.meta;
        if meta.entries == 0 {
            meta.smallest = key.to_vec();
        }
        meta.entries += 1;
        meta.deletes += u64::from(kind == Kind::Delete);
        meta.raw_bytes += (key.len() + value.len()) as u64;
        meta.seq_min = meta.seq_min.min(seq);
        meta.seq_max = meta.seq_max.max(seq);
        self.last_seq = seq;
        if new_key {
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
            if self.options.bloom_bits > 0.0 {
                self.hashes.push(hash_key(key, self.options.hash_seed));
            }
        }
    }

    /// Encodes, stores and indexes the current block.
    fn finish_block(&mut self) -> Result<()> {
        let blocks = self.index.blocks();
        assert!(u32::try_from(blocks).is_ok(), "block number {blocks} exceeds 32 bits");
        let ordinal = blocks as u32;
        let mut heat = Heat::COLD;
        let count = self.block.count();
        self.warm.drain(..).for_each(|(row, warmth)| heat.add(row, count, warmth));
        self.encoded.clear();
        let hash = self.block.finish(&mut self.encoded, &mut self.scratch);
        self.stored.clear();
        store_block(
            &self.encoded,
            self.options.compression,
            self.meta.check_uid,
            ordinal,
            &mut self.stored,
        )?;
        let offset = self.writer.len();
        self.writer.append(&self.stored)?;
        assert_eq!(
            self.writer.len(),
            offset + self.stored.len() as u64,
            "end of block {ordinal} of table {}, stored at {offset}",
            self.meta.uid
        );
        let last_key = (ordinal > 0).then_some(&self.block_last_key[..]);
        let first = (&self.block_first_key[..], self.block_first_seq);
        self.index.add(first, last_key, self.writer.len());
        self.block_last_key.clear();
        self.block_last_key.extend_from_slice(&self.last_key);
        self.meta.entry_hash = self.meta.entry_hash.wrapping_add(hash);
        if let Some(sink) = &mut self.sink {
            sink.block(WrittenBlock {
                uid: self.meta.uid,
                ordinal,
                first_key: &self.block_first_key,
                last_key: &self.block_last_key,
                content: &self.encoded,
                heat,
            });
        }
        self.encoded.shrink_to(BUFFERS_KEPT_BYTES);
        self.stored.shrink_to(BUFFERS_KEPT_BYTES);
        Ok(())
    }

    /// Bytes of the file if it were finished now: an upper bound, which ignores the compression of
    /// the current block.
    pub(crate) fn estimated_bytes(&self) -> u64 {
        let filter_bits = self.hashes.len() as f64 * f64::from(self.options.bloom_bits);
        // Both bounds, and the separator of the current block, which is not in the index yet.
        let keys = self.meta.smallest.len() + self.last_key.len() + self.block_first_key.len();
        self.writer.len()
            + self.block.bytes_max() as u64
            + self.index.bytes_max()
            + filter_bits as u64 / 8
            + (keys + TAIL_OVERHEAD_BYTES) as u64
    }

    /// The same with one more entry.
    pub(crate) fn estimated_bytes_with(&self, key: &[u8], value: &[u8]) -> u64 {
        // It may be in the block, twice the last or the first of something, and a separator.
        let keys = key.len().saturating_mul(4);
        self.estimated_bytes() + (keys + value.len() + ENTRY_OVERHEAD_BYTES) as u64
    }

    /// Bytes of memory held for the unwritten parts.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let block = self.block.bytes_max();
        let buffers = self.encoded.capacity() + self.stored.capacity() + self.scratch.capacity();
        (self.hashes.memory_bytes() + self.index.memory_bytes() + block + buffers) as u64
    }

    /// Number of entries added.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> u64 {
        self.meta.entries
    }

    /// The last user key added; empty if there is none.
    pub(crate) fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Writes the tail. The table is durable after
    /// [`Storage::sync_tables`](crate::storage::Storage::sync_tables).
    ///
    /// # Errors
    /// The writer's; `InvalidArgument` for a table without entries. The table is abandoned then.
    pub(crate) fn finish(mut self) -> Result<(TableMeta, Box<dyn WrittenTable>)> {
        let estimated_bytes = self.estimated_bytes();
        match self.finish_tail() {
            Ok(()) => {
                let bytes = self.meta.bytes;
                debug_assert!(bytes <= estimated_bytes, "{bytes} bytes, above {estimated_bytes}");
                assert_eq!(self.meta.check(), Ok(()), "table {} as written", self.meta.uid);
                let written = self.writer.end()?;
                self.meta.place = written.place();
                Ok((self.meta, written))
            }
            Err(error) => {
                self.writer.abandon();
                Err(error)
            }
        }
    }

    fn finish_tail(&mut self) -> Result<()> {
        if self.meta.entries == 0 {
            return Err(Error::invalid("a table without entries cannot be written"));
        }
        if !self.block.is_empty() {
            self.finish_block()?;
        }
        self.meta.largest = std::mem::take(&mut self.last_key);
        #[cfg(all(test, feature = "sim"))]
        if let Some(key) = self.misstated.take() {
            self.meta.largest = key;
        }
        self.meta.blocks = self.index.blocks() as u32;
        let index = self.index.finish();
        let filter = filter::build(&self.hashes, self.options.bloom_bits);
        let mut properties = Vec::new();
        self.meta.encode_content(&mut properties);

        let uid = self.meta.check_uid;
        let data_bytes = self.writer.len();
        self.assert_tail(&index, &filter, data_bytes);
        let mut footer = Footer {
            check_uid: uid,
            file_bytes: 0,
            data_bytes,
            index_bytes: index.len() as u64,
            filter_bytes: filter.len() as u64,
            properties_bytes: properties.len() as u64,
            hash_check: hash_check(self.options.hash_seed),
            index_checksum: section_checksum(&index, uid, KIND_INDEX),
            filter_checksum: section_checksum(&filter, uid, KIND_FILTER),
            properties_checksum: section_checksum(&properties, uid, KIND_PROPERTIES),
            checksum: 0,
        };
        let tail_bytes = (index.len() + filter.len() + properties.len() + FOOTER_BYTES) as u64;
        footer.file_bytes = data_bytes + tail_bytes;
        self.writer.append(&index)?;
        self.writer.append(&filter)?;
        let footer_start = properties.len();
        footer.encode(&mut properties);
        let decoded = Footer::decode(&properties[footer_start..], "a footer", footer.file_bytes);
        assert!(
            decoded.as_ref().is_ok_and(|decoded| *decoded == footer),
            "a footer is decoded as another one: {footer:?} as {decoded:?}"
        );
        self.writer.append(&properties)?;
        assert_eq!(self.writer.len(), footer.file_bytes, "a table's parts must add up");
        self.meta.bytes = footer.file_bytes;
        self.meta.tail_bytes = tail_bytes;
        self.meta.tail_checksum = footer.checksum;
        Ok(())
    }

    /// That index and filter cover what was written.
    fn assert_tail(&self, index: &PageVec<u8>, filter: &[u8], data_bytes: u64) {
        let TableMeta { uid, blocks, entries, .. } = self.meta;
        let (end, hashes) = (self.index.end(), self.hashes.len() as u64);
        assert_eq!(end, data_bytes, "end of the last block in the index of table {uid}");
        assert!(hashes <= entries, "{hashes} distinct keys in {entries} entries of table {uid}");
        debug_assert_eq!(
            Index::decode(index[..].into(), blocks, data_bytes).err(),
            None,
            "the index of table {uid}"
        );
        debug_assert!(
            self.hashes.iter().all(|&hash| filter::may_contain(filter, hash)),
            "the filter of table {uid} excludes a key of it"
        );
    }

    /// Abandons the table: removes its file.
    pub(crate) fn abandon(self) {
        self.writer.abandon();
    }
}

/// What an entry adds besides its key and value, an upper bound: the columns of a new block, its
/// header and trailer, a row of the index, 4 bytes of the filter.
const ENTRY_OVERHEAD_BYTES: usize = 256;

/// Bytes of the tail that do not grow with the table, an upper bound: footer 88, ten properties of
/// at most 12, one index row 24, rounding of the filter to its 64-byte blocks and its trailer 96.
const TAIL_OVERHEAD_BYTES: usize = 88 + 10 * 12 + 24 + 96;
