//! Lookups of many keys in ascending order: neighbours in one block share its fetch.
//!
//! Not here: a single lookup (`reader`), which runs a batch asks (`read`).
//!
//! Source: Merfeld, "Future work": queries in batches that share loaded pages.

use std::sync::Arc;

use crate::base::buf::Buf;
use crate::base::error::Result;
use crate::base::key::Seq;
use crate::base::value::Value;
use crate::cache::Purpose;
use crate::table::TableHit;
use crate::table::block::Layout;
use crate::table::reader::{Opened, Table};

/// The table and the block that the last lookup of a batch looked into: one of each at most.
#[derive(Default)]
pub(crate) struct HeldBlock {
    uid: u64,
    block: usize,
    content: Option<(Buf, Layout)>,
    /// What table `uid` has open.
    opened: Option<Arc<Opened>>,
}

impl Table {
    /// As [`Table::get`]. The block is taken from `held` if it is the one; else it is fetched and
    /// held.
    ///
    /// # Errors
    /// As [`Table::get`]; nothing is held then.
    pub(crate) fn get_in_batch(
        &self,
        held: &mut HeldBlock,
        (key, key_hash): (&[u8], u64),
        snapshot: Seq,
        purpose: Purpose,
    ) -> Result<Option<TableHit>> {
        let meta = self.meta();
        if snapshot < meta.seq_min {
            return Ok(None);
        }
        let opened = match held.opened.take().filter(|_| held.uid == meta.uid) {
            Some(opened) => opened,
            None => {
                held.content = None;
                self.pin()?
            }
        };
        held.uid = meta.uid;
        let opened = &*held.opened.insert(opened);
        if !opened.may_contain(key_hash) {
            return Ok(None);
        }
        let Some(mut block) = opened.index.find(key, snapshot) else { return Ok(None) };
        loop {
            let here = held.block == block;
            let (buf, layout) = match held.content.take().filter(|_| here) {
                Some(content) => content,
                None => self.block(opened, block, purpose, true)?,
            };
            held.block = block;
            let (buf, layout) = &*held.content.insert((buf, layout));
            let found = layout.search(buf.bytes(), key, snapshot);
            if found.same_key && found.index < layout.count() {
                let row = layout.row(buf.bytes(), found.index);
                let len = row.value_end - row.value_start;
                let value = Value::shared(buf.clone(), row.value_start, len);
                return Ok(Some(TableHit { seq: row.seq, kind: row.kind, value }));
            }
            // Older versions of the key follow only in a block that is continued with it.
            let past_end = found.index >= layout.count();
            if !past_end || !opened.index.continues(block + 1, key) {
                return Ok(None);
            }
            block += 1;
        }
    }
}
