//! Point lookups.

use crate::base::checksum;
use crate::base::error::Result;
use crate::base::key::{Kind, Seq};
use crate::base::value::Value;
use crate::cache::Purpose;
use crate::cache::row::{RowCache, RowKey};
use crate::memtable::Found;
use crate::read::buffered::{self, HeldBlocks, list_of};
use crate::read::sampled::SampledGet;
use crate::state::shared::Shared;
use crate::state::tree::{Peek, SuperVersion, Tree};
use crate::table::HashedKey;

/// The value of `key` in the newest state, or in the state at `snapshot`.
#[inline]
pub(crate) fn get(
    shared: &Shared,
    tree: &Tree,
    key: &[u8],
    snapshot: Option<Seq>,
) -> Result<Option<Value>> {
    let current = tree.peek();
    let sampled = SampledGet::begin(&current);
    let found = match snapshot {
        Some(seq) => get_in(shared, &current, key, seq)?,
        None => get_newest(shared, tree, &current, key)?,
    };
    SampledGet::end(sampled, key);
    count(shared, found.as_ref());
    Ok(found.map(|value| value.keep(&shared.accountant)))
}

/// Copies the value of `key` into `buf`; false if the key has none.
#[inline]
pub(crate) fn get_into(
    shared: &Shared,
    tree: &Tree,
    key: &[u8],
    snapshot: Option<Seq>,
    buf: &mut Vec<u8>,
) -> Result<bool> {
    buf.clear();
    let current = tree.peek();
    let sampled = SampledGet::begin(&current);
    let found = match snapshot {
        Some(seq) => get_in(shared, &current, key, seq)?,
        None => get_newest(shared, tree, &current, key)?,
    };
    SampledGet::end(sampled, key);
    count(shared, found.as_ref());
    if let Some(value) = &found {
        buf.extend_from_slice(value);
    }
    Ok(found.is_some())
}

/// Whether `key` has a value. Copies none, into the row cache neither.
pub(crate) fn contains(
    shared: &Shared,
    tree: &Tree,
    key: &[u8],
    snapshot: Option<Seq>,
) -> Result<bool> {
    let current = tree.peek();
    let sampled = SampledGet::begin(&current);
    // After the super-version: H45.
    let seq = snapshot.unwrap_or_else(|| shared.visible());
    let found = match find_in_memtables(&current, key, seq) {
        Some(found) => found.kind == Kind::Put,
        None => {
            let hash = checksum::hash_key(key, shared.hash_seed);
            let rows = rows_of(shared).filter(|_| snapshot.is_none());
            let row = RowKey { keyspace: tree.id, hash, key };
            match rows.and_then(|rows| rows.get(row, current.disk_generation)) {
                Some(answer) => answer.is_some(),
                None => on_disk(shared, &current, (key, hash), seq)?.is_some(),
            }
        }
    };
    SampledGet::end(sampled, key);
    shared.counters.gets.add(1);
    shared.counters.gets_found.add(u64::from(found));
    Ok(found)
}

#[inline]
fn count(shared: &Shared, found: Option<&Value>) {
    shared.counters.gets.add(1);
    if let Some(value) = found {
        shared.counters.gets_found.add(1);
        shared.counters.bytes_found.add(value.len() as u64);
    }
}

/// A key of a batch that memtables and newer runs have not answered.
struct Open {
    /// Its index in the batch.
    at: usize,
    hash: u64,
}

/// The values of `keys`, all at the same sequence number, in the order of `keys`. Each run is
/// searched for all keys that newer ones have not answered, in key order: keys in one block cost
/// one cache lookup.
pub(crate) fn multi_get<K: AsRef<[u8]>>(
    shared: &Shared,
    tree: &Tree,
    keys: &[K],
    snapshot: Option<Seq>,
) -> Result<Vec<Option<Value>>> {
    let current = tree.pin();
    let sampled = SampledGet::begin_batch(&current);
    let seq = snapshot.unwrap_or_else(|| shared.visible());
    let mut answers: Vec<Option<Value>> = vec![None; keys.len()];
    let mut open = Vec::with_capacity(keys.len());
    for (at, key) in keys.iter().enumerate() {
        match in_memtables(&current, key.as_ref(), seq) {
            Some(answer) => answers[at] = answer,
            None => {
                open.push(Open { at, hash: checksum::hash_key(key.as_ref(), shared.hash_seed) })
            }
        }
    }
    open.sort_unstable_by(|a, b| keys[a.at].as_ref().cmp(keys[b.at].as_ref()));
    for run in current.version.runs_newest_first() {
        if open.is_empty() {
            break;
        }
        let (list, mut held) = (list_of(run), HeldBlocks::default());
        let mut failed = None;
        open.retain(|&Open { at, hash }| {
            let key = keys[at].as_ref();
            let Some(table) = run.find(key).filter(|_| failed.is_none()) else { return true };
            let found = buffered::get_in_batch(list, table, &mut held, (key, hash), seq);
            let found = found.map(|(hit, from_list)| {
                shared.counters.gets_of_lists.add(u64::from(from_list));
                hit
            });
            match found {
                Ok(None) => return true,
                Ok(Some(hit)) if hit.kind == Kind::Put => {
                    // Now, not at the end: the batch would hold a block for every small value.
                    answers[at] = Some(hit.value.keep(&shared.accountant));
                }
                Ok(Some(_)) => {}
                Err(error) => failed = Some(error),
            }
            false
        });
        failed.map_or(Ok(()), Err)?;
        if let Some(claims) = buffered::claims_of(run) {
            open.retain(|open| !claims.contain(keys[open.at].as_ref()));
        }
    }
    SampledGet::end_batch(sampled, keys);
    shared.counters.gets.add(keys.len() as u64);
    shared.counters.gets_found.add(answers.iter().flatten().count() as u64);
    let bytes: usize = answers.iter().flatten().map(|value| value.len()).sum();
    shared.counters.bytes_found.add(bytes as u64);
    Ok(answers)
}

/// The newest entry of `key` in the memtables at `seq`.
#[inline]
fn find_in_memtables<'a>(current: &'a SuperVersion, key: &[u8], seq: Seq) -> Option<Found<'a>> {
    let mut memtables = std::iter::once(&current.active).chain(&current.immutables);
    memtables.find_map(|flushable| flushable.memtable.get(key, seq))
}

/// What the memtables say about `key` at `seq`: `Some(None)` is a delete.
#[inline]
fn in_memtables(current: &SuperVersion, key: &[u8], seq: Seq) -> Option<Option<Value>> {
    let found = find_in_memtables(current, key, seq)?;
    Some((found.kind == Kind::Put).then(|| Value::from(found.value)))
}

/// The tables' answer for `key` at `seq`: runs, newest first.
#[inline]
fn on_disk(
    shared: &Shared,
    current: &Peek,
    (key, hash): HashedKey<'_>,
    seq: Seq,
) -> Result<Option<Value>> {
    for run in buffered::runs_for(&current.version, key) {
        let Some(table) = run.find(key) else { continue };
        let hit = match list_of(run) {
            None => table.get_at(current.gate(), (key, hash), seq, Purpose::Foreground)?,
            Some(list) => {
                let (hit, from_list) =
                    buffered::get(list, table, current.gate(), (key, hash), seq)?;
                shared.counters.gets_of_lists.add(u64::from(from_list));
                hit
            }
        };
        if let Some(hit) = hit {
            debug_assert!(hit.seq <= seq, "a hit of {} at the snapshot {seq}", hit.seq);
            return Ok((hit.kind == Kind::Put).then_some(hit.value));
        }
    }
    Ok(None)
}

/// The value of `key` at `seq` in this super-version: memtables, then tables.
fn get_in(shared: &Shared, current: &Peek, key: &[u8], seq: Seq) -> Result<Option<Value>> {
    if let Some(answer) = in_memtables(current, key, seq) {
        return Ok(answer);
    }
    on_disk(shared, current, (key, checksum::hash_key(key, shared.hash_seed)), seq)
}

/// The row cache that serves reads.
#[inline]
fn rows_of(shared: &Shared) -> Option<&RowCache> {
    #[cfg(feature = "sim")]
    if buffered::bare::is_on() {
        return None;
    }
    shared.rows.as_ref()
}

/// As [`get_in`] at the newest sequence number: memtables, then the row cache if there is one, then
/// tables.
#[inline]
fn get_newest(shared: &Shared, tree: &Tree, current: &Peek, key: &[u8]) -> Result<Option<Value>> {
    // After the super-version: H45.
    let seq = shared.visible();
    match rows_of(shared) {
        None => get_in(shared, current, key, seq),
        Some(rows) => {
            if let Some(answer) = in_memtables(current, key, seq) {
                return Ok(answer);
            }
            let hash = checksum::hash_key(key, shared.hash_seed);
            through_rows(shared, rows, (tree, current), (key, hash), seq)
        }
    }
}

/// The tables' answer for a key: from the row cache, or inserted into it (H53).
fn through_rows(
    shared: &Shared,
    rows: &RowCache,
    (tree, current): (&Tree, &Peek),
    (key, hash): HashedKey<'_>,
    seq: Seq,
) -> Result<Option<Value>> {
    let row = RowKey { keyspace: tree.id, hash, key };
    if let Some(answer) = rows.get(row, current.disk_generation) {
        return Ok(answer.map(|buf| {
            let len = buf.bytes().len();
            Value::shared(buf, 0, len)
        }));
    }
    let answer = on_disk(shared, current, (key, hash), seq)?;
    rows.insert(row, answer.as_deref(), current.disk_generation, tree.newest_generation());
    Ok(answer)
}
