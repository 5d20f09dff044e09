//! Hand-off: blocks that a merge writes take the place, in the cache, of those that it replaces.
//!
//! With [`Rule::Heat`] the unit is the entry. A cached input block knows which of its entries users
//! have read (`base::heat`); the merge's own cursors carry that along, entry by entry, and an entry
//! that hides a warm one inherits its warmth. An output block with a warm entry goes into the cache
//! as it is written, from memory: no block is read or looked up for it. Its marks are those of the
//! entries it received, and fade as theirs would have.
//!
//! The cache is lent to a merge, not given: a job hands over at most as many bytes as it has taken
//! from cached input blocks, which leave the cache when the outputs are published, and, if the
//! whole store fits, as that leaves of the cache; or as the cache has room for where the blocks
//! belong, which is no part of what it was lent. What exceeds this waits for its turn, the blocks
//! with the most warm entries first; the rest is dropped.
//!
//! Where the output run has a buffer list, an entry is warm where it will be read, and nowhere
//! else: what the list serves is not handed over with the output (LSbM keeps the list's blocks, and
//! the two would share the cache), what lies under a hole of it or was never in it is. A table that
//! goes over into the list stays in the cache as it is: its blocks are no credit, and those that
//! were read through the list of its old run come in as the merge reads them (`execute::input`).
//! Where such an entry hides a warm one of the output run it inherits nothing: users could read it
//! since its flush, and mark it, where it is.
//!
//! A flush has no cached input: the entries of a memtable were read there. With [`Rule::Density`]
//! a block goes into the cache if its range is cached for the most part in the oldest run, where
//! every range has blocks: users read all of the range, and so its newest entries. The blocks are
//! few beside those; an eighth of the cache bounds them.
//!
//! Where nothing below the store caches what it writes (tables in slots pass the page cache by),
//! [`Rule::Heat`] and [`Rule::Density`] let the other blocks in, too, if users read and either the
//! cache has room, where they are newcomers, the first to leave, or the whole store fits in three
//! quarters of it, as the cache has it: without compression. Else a store that fits is read from
//! the device again after every merge, block by block, and what is read slowly has no marks to be
//! handed over by. A warm block of the same job may take their place, they count neither as read
//! nor as cached where that decides something, and what a list serves does not come in. A load that
//! nobody reads fills nothing: memory that is touched first costs as much as a third of a put.
//!
//! With [`Rule::Overlap`] (incremental warm-up) the unit is the block: an output block goes into
//! the cache if its range overlaps that of a block that is cached now. One hot input block of an
//! upper level warms several blocks of the level below, hot or not. It is the baseline, as
//! published: no bound, and its blocks are newcomers.
//!
//! Not here: periods and marks (`base::heat`), the removal of the inputs' blocks (`db::install`).
//!
//! Invariants: (1) an output block is inserted under the uid of a table that no version names yet,
//! and uids are never used again: no reader finds it before its table is published; (2) an
//! abandoned job erases its output blocks from the cache, but for those of tables that an edit of
//! its has published; those of inputs stay, as their tables do;
//! (3) nothing is read for a block, and where no input block is warm nothing is copied but into
//! free room; (4) waiting blocks take at most [`WAITING_BYTES_MAX`].
//!
//! Source: Weir's own. Incremental warm-up is Ahmad and Kemme's for dedicated compaction servers,
//! as LSbM §2.3 and §6.3.1 describe it; we send no block, since the compaction runs in the process
//! that owns the cache.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::buf::Buf;
use crate::base::heat::Heat;
use crate::base::ids::TableUid;
use crate::base::key;
use crate::base::memory::{Accountant, Category, Charge};
use crate::base::sched::Mutex;
use crate::cache::BlockCache;
use crate::table::{BlockSink, Table, WrittenBlock};
use crate::version::foreseen::Served;
use crate::version::run::Run;

/// Most bytes of blocks that wait for their turn.
const WAITING_BYTES_MAX: usize = 2 << 20;

/// Which output blocks go into the cache.
pub(super) enum Rule {
    /// Those with an entry that users have read lately and that no list serves.
    Heat(Served),
    /// Those over a cached block of these inputs, the tables of each slice in key order. Locks: a
    /// leaf.
    Overlap(Mutex<Vec<Vec<Arc<Table>>>>),
    /// Of a flush: those whose range is cached for the most part in this run, the oldest.
    Density(Arc<Run>),
}

/// Blocks of the oldest run that are looked for below a flushed one. At least half of them must be
/// cached.
const DENSITY_SAMPLES: usize = 8;

/// The part of a full cache that one flush may take: an eighth.
const FLUSH_DIVISOR: u64 = 8;

/// The part of the cache that must be free for a block that nobody asked for.
const ROOM_DIVISOR: u64 = 16;

/// Bytes of a cache that all tables of a store leave free, if they fit in three quarters of it.
fn spare_bytes(contents_bytes: u64, cache: &BlockCache) -> Option<u64> {
    let fits = contents_bytes.saturating_add(contents_bytes / 3) <= cache.capacity();
    fits.then(|| cache.capacity().saturating_sub(contents_bytes))
}

/// Users read if they look up a block for so many that a job writes, or more. Not fewer: a reader
/// who waits for the device for each block is slow beside a job, and would stay so (with 16 he had
/// a fiftieth of what he has with this).
const BLOCKS_PER_LOOKUP: u64 = 1024;

/// What one job hands over.
pub(super) struct HandOff {
    cache: Arc<BlockCache>,
    rule: Rule,
    /// Other blocks go where there is room: the lookups of users before the job before.
    fills_room_since: Option<u64>,
    /// What the whole store leaves of the cache, if it fits.
    spare_bytes: Option<u64>,
    accountant: Option<Arc<Accountant>>,
    /// Locks: a leaf.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Blocks that nobody asked for: written, inserted, and the bytes of these.
    unasked: u64,
    unasked_in: u64,
    unasked_bytes: u64,
    /// Table uid and number of every output block inserted into the cache.
    handed: Vec<(TableUid, u32)>,
    /// The same, of those that nobody asked for.
    unread: Vec<(TableUid, u32)>,
    /// Number of input blocks inserted, and of those of outputs that were published.
    inputs: u64,
    kept: u64,
    /// Bytes of cached input blocks read so far, and of blocks handed over in their place.
    taken_bytes: u64,
    spent_bytes: u64,
    waiting: BTreeMap<Rank, Waiting>,
    waiting_bytes: usize,
    charge: Option<Charge>,
}

/// The order in which blocks are handed over, the largest first: that with the most warm entries
/// for its bytes, then the first written.
type Rank = (u64, Reverse<TableUid>, Reverse<u32>);

struct Waiting {
    content: Buf,
    heat: Heat,
    of: Of,
}

/// Whose block it is.
#[derive(Clone, Copy, PartialEq)]
enum Of {
    Output,
    Input,
}

/// In whose place a block comes into the cache.
#[derive(Clone, Copy, PartialEq)]
enum Room {
    /// Nobody's.
    Free,
    /// That of blocks of inputs, or what the store leaves.
    Lent,
}

/// A block of 64 KiB with one warm entry has rank 1.
const RANK_BYTES: u64 = 64 << 10;

impl HandOff {
    /// `contents_bytes`: what the blocks of all tables of the store have, where nothing below the
    /// cache has them.
    pub(super) fn new(
        cache: Arc<BlockCache>,
        rule: Rule,
        contents_bytes: Option<u64>,
        accountant: Option<Arc<Accountant>>,
    ) -> Arc<Self> {
        let mut state = State::default();
        if matches!(rule, Rule::Density(_)) {
            state.taken_bytes = cache.capacity() / FLUSH_DIVISOR;
        }
        let fills_room_since = contents_bytes.map(|_| cache.begin_job());
        let spare_bytes = contents_bytes.and_then(|bytes| spare_bytes(bytes, &cache));
        let state = Mutex::new(state);
        Arc::new(Self { cache, rule, fills_room_since, spare_bytes, accountant, state })
    }

    /// The sink that receives the blocks of an output table.
    pub(super) fn sink(self: &Arc<Self>) -> Box<dyn BlockSink> {
        Box::new(Sink(Arc::clone(self)))
    }

    /// Whether the warmth of entries decides.
    pub(super) fn needs_warmth(&self) -> bool {
        matches!(self.rule, Rule::Heat(_))
    }

    /// Whether users will find what the output holds of `key` in a list, not in the output.
    pub(super) fn is_served(&self, key: &[u8]) -> bool {
        matches!(&self.rule, Rule::Heat(served) if served.covers(key))
    }

    /// Notes that the merge has read so many bytes of cached input blocks, and hands over what
    /// waits for them.
    pub(super) fn note_taken(&self, cached_bytes: u64) {
        let mut state = self.state.lock();
        state.taken_bytes = cached_bytes;
        while let Some(next) = state.waiting.last_entry() {
            let (_, Reverse(uid), Reverse(ordinal)) = *next.key();
            let bytes = next.get().content.memory_bytes();
            let Some(room) = self.room(&state, uid, ordinal, bytes) else { break };
            let Some((_, Waiting { content, heat, of })) = state.waiting.pop_last() else { break };
            state.waiting_bytes -= bytes;
            self.insert(&mut state, (uid, ordinal, of), content.bytes(), heat, room);
        }
        self.account(&mut state);
    }

    /// Number of blocks inserted into the cache.
    pub(super) fn blocks(&self) -> u64 {
        let state = self.state.lock();
        state.handed.len() as u64 + state.inputs + state.kept
    }

    /// Number of blocks inserted that nobody asked for.
    pub(super) fn blocks_unasked(&self) -> u64 {
        self.state.lock().unasked_in
    }

    /// The outputs whose blocks were handed over so far are about to be published: these stay,
    /// whatever becomes of the job.
    pub(super) fn keep(&self) {
        let mut state = self.state.lock();
        state.kept += state.handed.len() as u64;
        state.handed.clear();
        state.unread.clear();
    }

    /// Lets go of inputs that have no key at or above `key`.
    pub(super) fn let_go_before(&self, key: &[u8]) {
        let Rule::Overlap(inputs) = &self.rule else { return };
        let is_left = |table: &Arc<Table>| key::compare(&table.meta().largest, key).is_ge();
        inputs.lock().iter_mut().for_each(|tables| tables.retain(is_left));
    }

    /// Erases the output blocks from the cache: their tables are being removed.
    pub(super) fn forget(&self) {
        let state = std::mem::take(&mut *self.state.lock());
        for (uid, ordinal) in state.handed.into_iter().chain(state.unread) {
            self.cache.erase(uid, ordinal);
        }
    }

    /// Where there is room for a block of `bytes`, if there is.
    fn room(&self, state: &State, uid: TableUid, ordinal: u32, bytes: usize) -> Option<Room> {
        if self.cache.has_room(uid, ordinal, bytes) {
            return Some(Room::Free);
        }
        let more = match self.spare_bytes {
            Some(spare) => spare,
            // What nobody asked for gives way: it is what leaves first.
            None => state.unasked_bytes,
        };
        let lent_bytes = state.taken_bytes.saturating_add(more);
        (state.spent_bytes + bytes as u64 <= lent_bytes).then_some(Room::Lent)
    }

    fn insert(
        &self,
        state: &mut State,
        (uid, ordinal, of): (TableUid, u32, Of),
        content: &[u8],
        heat: Heat,
        room: Room,
    ) {
        let buf = Buf::handed_over(content, heat, self.cache.period());
        let bytes = buf.memory_bytes() as u64;
        if !self.cache.hand_over(uid, ordinal, buf) {
            return;
        }
        if room == Room::Lent {
            state.spent_bytes += bytes;
        }
        match of {
            Of::Output => state.handed.push((uid, ordinal)),
            Of::Input => state.inputs += 1,
        }
    }

    /// Hands over the block of an input that goes over into the list of the output run: it takes
    /// the place of blocks that users read through another list.
    pub(super) fn offer_input(&self, at: (TableUid, u32), content: &[u8], heat: Heat) {
        self.offer((at.0, at.1, Of::Input), content, heat);
    }

    /// Hands a warm block over, or lets it wait.
    fn offer(&self, at: (TableUid, u32, Of), content: &[u8], heat: Heat) {
        let mut state = self.state.lock();
        let bytes = content.len();
        let (uid, ordinal, of) = at;
        if let Some(room) = self.room(&state, uid, ordinal, bytes) {
            self.insert(&mut state, at, content, heat, room);
            return;
        }
        let rank = u64::from(heat.marks()) * RANK_BYTES / (bytes as u64).max(1);
        let content = Buf::from(content);
        state.waiting_bytes += content.memory_bytes();
        let rank = (rank, Reverse(uid), Reverse(ordinal));
        state.waiting.insert(rank, Waiting { content, heat, of });
        while state.waiting_bytes > WAITING_BYTES_MAX {
            let Some((_, dropped)) = state.waiting.pop_first() else { break };
            state.waiting_bytes -= dropped.content.memory_bytes();
        }
        self.account(&mut state);
    }

    /// Inserts a block that nobody asked for, if the cache has room for it or for the whole store,
    /// nothing below it would have the block, and users read.
    fn fill_room(&self, block: &WrittenBlock<'_>) {
        let Some(before) = self.fills_room_since else { return };
        if self.is_served(block.first_key) || self.is_served(block.last_key) {
            return;
        }
        let mut state = self.state.lock();
        state.unasked += 1;
        let lookups = self.cache.lookups_of_users().saturating_sub(before);
        if lookups * BLOCKS_PER_LOOKUP < state.unasked {
            return;
        }
        let WrittenBlock { uid, ordinal, content, .. } = *block;
        let is_in = if self.spare_bytes.is_some() {
            let room = self.room(&state, uid, ordinal, content.len());
            let is_in = room.is_some() && self.cache.insert_unasked(uid, ordinal, content);
            if is_in && room == Some(Room::Lent) {
                state.spent_bytes += content.len() as u64;
            }
            is_in
        } else {
            self.cache.is_free_for(ROOM_DIVISOR)
                && self.cache.insert_into_room(uid, ordinal, content)
        };
        if is_in {
            state.unasked_in += 1;
            state.unasked_bytes += block.content.len() as u64;
            state.unread.push((uid, ordinal));
        }
    }

    /// Charges the waiting blocks.
    fn account(&self, state: &mut State) {
        let bytes = state.waiting_bytes as u64;
        match &mut state.charge {
            Some(charge) if charge.bytes() != bytes => charge.resize(bytes),
            None if bytes > 0 => {
                let charge =
                    |accountant: &Arc<Accountant>| accountant.charge(Category::Jobs, bytes);
                state.charge = self.accountant.as_ref().map(charge);
            }
            _ => {}
        }
    }
}

/// Whether an input block that overlaps `[first, last]` is cached now. An overestimate at either
/// end, by at most one block of each table that ends there.
fn is_over_cached(inputs: &[Vec<Arc<Table>>], first: &[u8], last: &[u8]) -> bool {
    inputs.iter().any(|tables| {
        let ends_before = |table: &Arc<Table>| key::compare(&table.meta().largest, first).is_lt();
        let from = tables.partition_point(ends_before);
        tables
            .iter()
            .skip(from)
            .take_while(|table| key::compare(&table.meta().smallest, last).is_le())
            .any(|table| table.is_cached_between(first, last))
    })
}

/// Whether at least half of some blocks of `run` that may hold keys of `[first, last]` are cached.
fn is_mostly_cached(run: &Run, first: &[u8], last: &[u8]) -> bool {
    let begin = run.tables.lower_bound(first);
    // The table in which `last` may lie, too. One beyond it has no block of the range.
    let tables = (run.tables.lower_bound(last) + 1).min(run.tables.len()).saturating_sub(begin);
    let samples = DENSITY_SAMPLES.min(tables);
    let (mut sampled, mut cached) = (0, 0);
    for sample in 0..samples {
        let Some((meta, table)) = run.tables.get(begin + sample * tables / samples) else { break };
        if key::compare(&meta.smallest, last).is_gt() {
            break;
        }
        // Of one that is not open nobody reads much.
        let (asked, found) = table.sample_cached(first, last, DENSITY_SAMPLES);
        sampled += asked.max(1);
        cached += found;
    }
    sampled > 0 && cached * 2 >= sampled
}

struct Sink(Arc<HandOff>);

impl BlockSink for Sink {
    fn block(&mut self, block: WrittenBlock<'_>) {
        let WrittenBlock { uid, ordinal, first_key, last_key, content, heat } = block;
        debug_assert!(
            key::compare(first_key, last_key).is_le(),
            "block {ordinal} of table {uid} from {} to {}",
            key::Printable(first_key),
            key::Printable(last_key)
        );
        match &self.0.rule {
            Rule::Heat(_) if heat == Heat::COLD => self.0.fill_room(&block),
            Rule::Heat(_) => self.0.offer((uid, ordinal, Of::Output), content, heat),
            Rule::Density(run) => {
                if is_mostly_cached(run, first_key, last_key) {
                    let mut state = self.0.state.lock();
                    if let Some(room) = self.0.room(&state, uid, ordinal, content.len()) {
                        let at = (uid, ordinal, Of::Output);
                        self.0.insert(&mut state, at, content, Heat::ALL_FADING, room);
                    }
                } else {
                    self.0.fill_room(&block);
                }
            }
            Rule::Overlap(inputs) => {
                if is_over_cached(&inputs.lock(), first_key, last_key)
                    && self.0.cache.insert(uid, ordinal, Buf::from(content))
                {
                    self.0.state.lock().handed.push((uid, ordinal));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::uid;
    use crate::cache::Purpose;

    const CAPACITY: u64 = 1 << 20;

    struct Job {
        cache: Arc<BlockCache>,
        hand_off: Arc<HandOff>,
        written: u32,
    }

    impl Job {
        fn new(contents_bytes: Option<u64>) -> Self {
            let cache = Arc::new(BlockCache::new(CAPACITY));
            let rule = Rule::Heat(Served::default());
            let hand_off = HandOff::new(Arc::clone(&cache), rule, contents_bytes, None);
            Self { cache, hand_off, written: 0 }
        }

        fn write(&mut self, blocks: u32, heat: Heat) {
            for _ in 0..blocks {
                let key = self.written.to_be_bytes();
                let (uid, ordinal, content) = (uid(1), self.written, &[7; 4000]);
                let (first_key, last_key) = (&key[..], &key[..]);
                let block = WrittenBlock { uid, ordinal, first_key, last_key, content, heat };
                self.hand_off.sink().block(block);
                self.written += 1;
            }
        }

        /// Users look up so many blocks, none of which is there.
        fn look_up(&self, blocks: u64) {
            let table = self.cache.table(uid(9));
            (0..blocks).for_each(|_| drop(table.get(0, Purpose::Foreground)));
        }
    }

    /// Goal: where nothing below caches what is written it goes into free room, but for a quarter,
    /// as fast as users read and no faster; a warm block takes the place of it if need be, and of
    /// nothing else; and a job that is given up leaves nothing.
    #[test]
    fn what_is_written_fills_the_room() {
        let mut job = Job::new(Some(CAPACITY));
        job.write(1500, Heat::COLD);
        assert_eq!(job.hand_off.blocks_unasked(), 0, "nobody reads");
        job.look_up(1);
        job.write(10, Heat::COLD);
        assert_eq!(job.hand_off.blocks_unasked(), 0, "a lookup for more than 1,024 blocks");
        job.look_up(1);
        job.write(10, Heat::COLD);
        assert_eq!(job.hand_off.blocks_unasked(), 10);
        job.look_up(100);
        job.write(1000, Heat::COLD);
        let (unasked, bytes) = (job.hand_off.blocks_unasked(), job.cache.bytes());
        assert!((220..250).contains(&unasked), "{unasked} blocks of 4,000 bytes in 1 MiB");
        assert!(bytes <= CAPACITY * 15 / 16 + 8192, "{bytes} bytes");
        // What users read fills the rest.
        let others = job.cache.table(uid(2));
        (0..80).for_each(|ordinal| others.insert(ordinal, Buf::from(&[1; 4000][..])));
        job.write(unasked as u32 / 2, Heat::ALL_FADING);
        assert_eq!(job.hand_off.blocks(), unasked / 2, "warm ones take the place of the others");
        job.write(1000, Heat::ALL_FADING);
        assert!(job.hand_off.blocks() <= unasked + 2, "and no more than that");
        assert_eq!(job.hand_off.blocks_unasked(), unasked);
        job.hand_off.forget();
        let table = job.cache.table(uid(1));
        assert!((0..job.written).all(|ordinal| !table.contains(ordinal)));
    }

    /// Goal: where all of a store fits in three quarters of the cache, what is written comes in
    /// whatever the cache has left; not more than the store leaves of it, and what is taken.
    #[test]
    fn what_is_written_of_a_store_that_fits_comes_in() {
        for (table_bytes, fits) in [(CAPACITY * 3 / 4 - 1, true), (CAPACITY * 3 / 4 + 2, false)] {
            let mut job = Job::new(Some(table_bytes));
            job.look_up(10);
            let others = job.cache.table(uid(2));
            (0..300).for_each(|ordinal| others.insert(ordinal, Buf::from(&[1; 4000][..])));
            job.write(100, Heat::COLD);
            // A quarter of the cache, and the room of what gave way.
            let most = if fits { (60..70).contains(&job.hand_off.blocks_unasked()) } else { false };
            assert_eq!(most, fits, "{}", job.hand_off.blocks_unasked());
            job.hand_off.note_taken(20 * 4000);
            let before = job.hand_off.blocks_unasked();
            job.write(100, Heat::COLD);
            let more = job.hand_off.blocks_unasked() - before;
            assert_eq!(more, if fits { 20 } else { 0 });
        }
    }

    /// Goal: where the page cache has it, what nobody has read stays out.
    #[test]
    fn what_is_cached_below_fills_nothing() {
        let mut job = Job::new(None);
        job.look_up(1000);
        job.write(64, Heat::COLD);
        assert_eq!((job.hand_off.blocks_unasked(), job.cache.bytes()), (0, 0));
        job.write(64, Heat::ALL_FADING);
        assert_eq!(job.hand_off.blocks(), 64);
    }
}
