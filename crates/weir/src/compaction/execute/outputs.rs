//! The output tables of a job: cut, finished and checked against the entries added, or removed.

use std::sync::Arc;

use crate::base::cursor::Cursor;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::heat::Warmth;
use crate::base::ids::TableUid;
use crate::base::key::{self, Kind, Printable, Seq};
use crate::base::memory::{Category, Charge};
use crate::base::table_meta::TableMeta;
use crate::compaction::execute::handoff::HandOff;
use crate::compaction::execute::stretch::Cuts;
use crate::compaction::execute::{JobContext, STEP_BYTES, verify};
use crate::compaction::policy::Plan;
use crate::compaction::policy::cut::Cutter;
use crate::merge::{Retain, Tally};
use crate::storage::WrittenTable;
use crate::table::{TableBuilder, TableOptions};

/// The cached input blocks that a job has read are added up after this many bytes of keys and
/// values: a block's worth.
const TAKE_BYTES: u64 = 4 << 10;

/// The builder's estimate of its size is refreshed after this many bytes of keys and values.
const ESTIMATE_BYTES: u64 = 32 << 10;

/// Memory of a table's writer besides the builder's: the bytes that `storage` buffers before a
/// write. In slots two more such buffers may be on their way to the device, which do not count.
const WRITER_MEMORY_BYTES: u64 = 512 << 10;

/// Tables of a job are made durable together when they have so many bytes: a barrier for each is
/// much where tables are small, and one for many large ones would hold up others' syncs.
const UNSYNCED_BYTES_MAX: u64 = 32 << 20;

/// Or when they are so many: each keeps its file open.
const UNSYNCED_TABLES_MAX: usize = 16;

/// The table being written.
struct Open {
    builder: TableBuilder,
    uid: TableUid,
    /// The entries added, hashed as they were read.
    meant: Tally,
    first_key: Vec<u8>,
    /// The builder's estimate, and bytes of keys and values added since.
    estimated_bytes: u64,
    since_bytes: u64,
}

/// How a step of a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// There is more to write, or to read back.
    More,
    /// A stretch is complete: the entries are at the first key behind it.
    Stretch,
    /// All entries are in finished tables.
    All,
}

/// Outputs of earlier stretches, which belong to the tree.
#[derive(Default)]
struct Before {
    bytes: u64,
    tables: u64,
    last: Option<Arc<TableMeta>>,
}

/// The outputs of one job, in key order.
pub(super) struct Outputs {
    context: JobContext,
    options: TableOptions,
    cutter: Cutter,
    table_bytes: u64,
    /// Outputs are cut before the entry with which they would not fit.
    fits: bool,
    open: Option<Open>,
    /// Those of this stretch; of a job that is not cut into stretches, all.
    finished: Vec<Arc<TableMeta>>,
    /// What earlier stretches have: bytes, tables, and the last one.
    before: Before,
    cuts: Option<Cuts>,
    /// The stretch ends here: its tables are being read back.
    is_ending: bool,
    /// The last of them, which are not durable yet, and their bytes.
    unsynced: Vec<Box<dyn WrittenTable>>,
    unsynced_bytes: u64,
    /// Number of finished tables that were read back.
    verified: usize,
    hand_off: Option<Arc<HandOff>>,
    /// The finished tables were taken, or all of them removed.
    closed: bool,
    /// The charge for the open table.
    memory: Option<Charge>,
}

impl Outputs {
    pub(super) fn new(context: JobContext, options: TableOptions, plan: Plan) -> Self {
        let (table_bytes, fits) = (plan.table_bytes, plan.fits);
        let cutter = Cutter::new(plan);
        let memory = context.accountant.as_ref().map(|a| a.charge(Category::Jobs, 0));
        Self {
            context,
            options,
            cutter,
            table_bytes,
            fits,
            open: None,
            finished: Vec::new(),
            before: Before::default(),
            cuts: None,
            is_ending: false,
            unsynced: Vec::new(),
            unsynced_bytes: 0,
            verified: 0,
            hand_off: None,
            closed: false,
            memory,
        }
    }

    /// Hands blocks of the tables created from now on over to the cache.
    pub(super) fn hand_over(&mut self, hand_off: Arc<HandOff>) {
        self.hand_off = Some(hand_off);
    }

    /// Cuts the job into stretches.
    pub(super) fn cut_by(&mut self, cuts: Cuts) {
        self.cuts = Some(cuts);
    }

    /// Number of blocks handed over.
    pub(super) fn blocks_handed_over(&self) -> u64 {
        self.hand_off.as_ref().map_or(0, |hand_off| hand_off.blocks())
    }

    /// Number of blocks that went where the cache had room.
    pub(super) fn blocks_unasked(&self) -> u64 {
        self.hand_off.as_ref().map_or(0, |hand_off| hand_off.blocks_unasked())
    }

    /// One step of a job: writes surviving entries of `entries`, which is moved to its first
    /// unless it was `started`. `All` when all entries are in finished tables, `Stretch` when as
    /// many are as make one; these tables are durable, and read back if the store verifies outputs.
    ///
    /// # Errors
    /// The inputs', the device's, or those of [`finish_table`](Self::finish_table).
    pub(super) fn take_from<C: Cursor>(
        &mut self,
        entries: &mut Retain<C, impl FnMut(&[u8]) -> bool>,
        started: &mut bool,
    ) -> Result<Taken> {
        assert!(!self.closed, "a step of a job that has ended, in {}", self.context.storage.path());
        if !std::mem::replace(started, true) {
            entries.seek_to_first();
        }
        if self.is_ending {
            return self.end_stretch();
        }
        let needs_warmth = self.hand_off.as_ref().is_some_and(|hand_off| hand_off.needs_warmth());
        let (mut bytes, mut taken_at) = (0, 0);
        while entries.valid() {
            let (key, value) = (entries.key(), entries.value());
            if self.ends_before(key, value)? {
                self.note_taken(entries.cached_bytes());
                return self.end_stretch();
            }
            bytes += (key.len() + value.len()) as u64;
            self.add(key, entries.seq(), entries.kind(), value, entries.hash())?;
            if needs_warmth {
                let (stays, warmth) = (entries.stays(), entries.warmth());
                entries.next();
                if !stays {
                    self.warm_last(warmth.max(entries.hidden_warmth()));
                }
                if bytes >= taken_at {
                    taken_at = bytes + TAKE_BYTES;
                    self.note_taken(entries.cached_bytes());
                }
            } else {
                entries.next();
            }
            if bytes >= STEP_BYTES {
                self.account();
                return Ok(Taken::More);
            }
        }
        entries.status()?;
        self.finish_table()?;
        self.note_taken(entries.cached_bytes());
        self.sync()?;
        Ok(if self.verify_next()? { Taken::More } else { Taken::All })
    }

    /// Ends the open table if it should end before this entry; whether the stretch ends
    /// there too. A second call with the same key changes nothing.
    fn ends_before(&mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        let (table_bytes, fits) = (self.table_bytes, self.fits);
        let bytes = self.open.as_mut().map_or(0, |open| match fits {
            true => open.bytes_with(key, value),
            false => open.bytes(table_bytes),
        });
        let last_key = self.open.as_ref().map(|open| open.builder.last_key());
        let may_be_cut = self.cuts.is_some() && last_key.is_none_or(|last| last != key);
        if self.cutter.ends_before(key, last_key, bytes) {
            self.finish_table()?;
        }
        let Some(cuts) = self.cuts.as_mut().filter(|_| may_be_cut) else { return Ok(false) };
        let finished = self.finished.iter().map(|meta| meta.bytes).sum::<u64>();
        let ends = match self.open {
            // Not in the middle of a table, unless there is no other place, and of a small one only
            // in the last resort.
            Some(_) if !cuts.has_few_places() => false,
            Some(_) if bytes < self.table_bytes / 2 => {
                cuts.may_end_before(key, (finished + bytes) / 2)
            }
            Some(_) => cuts.may_end_before(key, finished + bytes),
            None => !self.finished.is_empty() && cuts.may_end_before(key, finished),
        };
        if ends {
            self.finish_table()?;
        }
        Ok(ends)
    }

    /// A step at the end of a stretch.
    fn end_stretch(&mut self) -> Result<Taken> {
        self.sync()?;
        self.is_ending = self.verify_next()?;
        Ok(if self.is_ending { Taken::More } else { Taken::Stretch })
    }

    /// Makes the entry added last so warm, if users will read it here.
    #[inline]
    fn warm_last(&mut self, warmth: Warmth) {
        if warmth == Warmth::Cold {
            return;
        }
        if let (Some(open), Some(hand_off)) = (&mut self.open, &self.hand_off)
            && !hand_off.is_served(open.builder.last_key())
        {
            open.builder.warm_last(warmth);
        }
    }

    /// Notes the bytes of cached input blocks that were read so far.
    fn note_taken(&self, cached_bytes: u64) {
        if let Some(hand_off) = &self.hand_off {
            hand_off.note_taken(cached_bytes);
        }
    }

    /// Resizes the charge to the open table's memory.
    fn account(&mut self) {
        let held = |open: &Open| open.builder.memory_bytes() + WRITER_MEMORY_BYTES;
        if let Some(memory) = &mut self.memory {
            memory.resize(self.open.as_ref().map_or(0, held));
        }
    }

    /// Writes an entry. Requires: it sorts after all others, and the open table does not end before
    /// it. `hash` is its entry hash as read.
    fn add(&mut self, key: &[u8], seq: Seq, kind: Kind, value: &[u8], hash: u64) -> Result<()> {
        if self.open.is_none() {
            self.open = Some(self.create_table(key)?);
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        open.builder.add(key, seq, kind, value)?;
        open.meant.add(hash);
        open.since_bytes += (key.len() + value.len()) as u64;
        Ok(())
    }

    fn create_table(&self, first_key: &[u8]) -> Result<Open> {
        let uid = (self.context.new_uid)()?;
        let before = self.previous(self.finished.len()).map_or(TableUid::NONE, |meta| meta.uid);
        assert!(uid > before, "uid {uid} drawn for an output after {before}");
        let created = self.context.storage.create_table(uid, self.table_bytes);
        // The device may have created the file although it reports an error.
        let writer = created.inspect_err(|_| self.remove(uid))?;
        let mut builder = TableBuilder::new(writer, uid, self.options);
        if let Some(hand_off) = &self.hand_off {
            builder.show_blocks_to(hand_off.sink());
        }
        Ok(Open {
            builder,
            uid,
            meant: Tally::default(),
            first_key: first_key.to_vec(),
            estimated_bytes: 0,
            since_bytes: 0,
        })
    }

    /// Ends the open table and checks its description against the entries added.
    pub(super) fn finish_table(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let last_key = open.builder.last_key().to_vec();
        let meta = match open.builder.finish() {
            Ok((meta, written)) => {
                self.unsynced.push(written);
                self.unsynced_bytes += meta.bytes;
                Arc::new(meta)
            }
            Err(error) => {
                // The file may exist although its sync failed.
                self.remove(open.uid);
                return Err(error);
            }
        };
        self.account();
        self.finished.push(Arc::clone(&meta));
        if self.unsynced_bytes >= UNSYNCED_BYTES_MAX || self.unsynced.len() >= UNSYNCED_TABLES_MAX {
            self.sync()?;
        }
        let same = meta.uid == open.uid
            && meta.entries == open.meant.entries
            && meta.entry_hash == open.meant.hash
            && meta.smallest == open.first_key
            && meta.largest == last_key;
        let before = self.previous(self.finished.len() - 1);
        let after_previous =
            before.is_none_or(|before| key::compare(&before.largest, &meta.smallest).is_lt());
        if same && after_previous {
            return Ok(());
        }
        Err(Error::corruption(
            self.name(open.uid),
            0,
            format_args!(
                "the table does not hold what was meant for it ({} entries from {} to {} became {} \
                 from {} to {})",
                open.meant.entries,
                Printable(&open.first_key),
                Printable(&last_key),
                meta.entries,
                Printable(&meta.smallest),
                Printable(&meta.largest)
            ),
        ))
    }

    /// The table before the one at `index` of this stretch.
    fn previous(&self, index: usize) -> Option<&Arc<TableMeta>> {
        match index.checked_sub(1) {
            Some(before) => self.finished.get(before),
            None => self.before.last.as_ref(),
        }
    }

    /// Makes the finished tables durable.
    pub(super) fn sync(&mut self) -> Result<()> {
        let unsynced = std::mem::take(&mut self.unsynced);
        self.unsynced_bytes = 0;
        if unsynced.is_empty() { Ok(()) } else { self.context.storage.sync_tables(unsynced) }
    }

    /// Reads back the next finished table, if the store verifies outputs. False if there is none.
    pub(super) fn verify_next(&mut self) -> Result<bool> {
        if !self.context.verify_outputs {
            return Ok(false);
        }
        let Some(meta) = self.finished.get(self.verified) else { return Ok(false) };
        verify(&self.context, meta)?;
        self.verified += 1;
        Ok(true)
    }

    /// Bytes written so far, and the number of their tables. For the open table an estimate: a few
    /// blocks too high, less the bytes that its writer may still buffer.
    pub(super) fn so_far(&self) -> (u64, u64) {
        let open = self
            .open
            .as_ref()
            .map_or(0, |open| open.estimated_bytes.saturating_sub(WRITER_MEMORY_BYTES));
        let finished = self.finished.iter().map(|meta| meta.bytes).sum::<u64>();
        let tables = self.finished.len() as u64 + u64::from(self.open.is_some());
        (self.before.bytes + finished + open, self.before.tables + tables)
    }

    /// The finished tables of this stretch, in key order.
    pub(super) fn finished(&self) -> &[Arc<TableMeta>] {
        &self.finished
    }

    /// Returns the finished tables, whose removal is then the caller's responsibility, and ends the
    /// job.
    pub(super) fn take(&mut self) -> Vec<Arc<TableMeta>> {
        let tables = self.take_stretch();
        self.closed = true;
        tables
    }

    /// The same at the end of a stretch behind which the job goes on.
    pub(super) fn take_stretch(&mut self) -> Vec<Arc<TableMeta>> {
        let open = self.open.as_ref().map(|open| open.uid);
        assert_eq!(open, None, "the table still being written when outputs are taken");
        assert_eq!(self.unsynced.len(), 0, "tables not durable when outputs are taken");
        let to_verify = if self.context.verify_outputs { self.finished.len() } else { 0 };
        assert_eq!(self.verified, to_verify, "outputs read back when they are taken");
        self.verified = 0;
        self.before.bytes += self.finished.iter().map(|meta| meta.bytes).sum::<u64>();
        self.before.tables += self.finished.len() as u64;
        self.before.last = self.finished.last().cloned().or_else(|| self.before.last.take());
        if let Some(hand_off) = &self.hand_off {
            hand_off.keep();
        }
        std::mem::take(&mut self.finished)
    }

    /// Lets go of inputs that have no key at or above `key`.
    pub(super) fn let_go_before(&self, key: &[u8]) {
        if let Some(hand_off) = &self.hand_off {
            hand_off.let_go_before(key);
        }
    }

    /// Removes all tables written and not taken.
    pub(super) fn abandon(&mut self) {
        self.closed = true;
        if let Some(open) = self.open.take() {
            open.builder.abandon();
            // `abandon` has removed it, unless the device failed to.
            self.remove(open.uid);
        }
        for meta in std::mem::take(&mut self.finished) {
            self.remove(meta.uid);
        }
        if let Some(hand_off) = &self.hand_off {
            hand_off.forget();
        }
    }

    fn remove(&self, uid: TableUid) {
        match self.context.storage.remove_table(uid) {
            Err(error) if error.kind() != ErrorKind::NotFound => (self.context.note_orphan)(uid),
            _ => {}
        }
    }

    fn name(&self, uid: TableUid) -> String {
        format!("{}, table {uid}", self.context.storage.path())
    }
}

impl Open {
    /// Bytes of the table if it were finished now: at most a few blocks too high, if compression
    /// does not save more than it did so far.
    #[inline]
    fn bytes(&mut self, table_bytes: u64) -> u64 {
        let bytes = self.estimated_bytes + self.since_bytes;
        if self.since_bytes < ESTIMATE_BYTES && bytes < table_bytes {
            return bytes;
        }
        self.estimated_bytes = self.builder.estimated_bytes();
        self.since_bytes = 0;
        self.estimated_bytes
    }

    /// The same with one more entry, always from above: a table that does not fit its slot takes a
    /// second one.
    fn bytes_with(&mut self, key: &[u8], value: &[u8]) -> u64 {
        let bytes = self.builder.estimated_bytes_with(key, value);
        (self.estimated_bytes, self.since_bytes) = (bytes, 0);
        bytes
    }
}
