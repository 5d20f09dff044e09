//! Reads of every form, each compared with the oracle.

use std::collections::VecDeque;
use std::ops::Bound;

use weir::{CompactionBuffer, Cursor, ErrorKind, Iter, Keyspace, Snapshot};

use super::{Checked, LiveIter, Runner, bounds};
use crate::model::{Bytes, Index, KeyspaceModel, prefix_end, show};
use crate::op::{How, Move, Op, key_bytes};

/// Where a read looks: now, or through a snapshot.
struct View {
    handle: Keyspace,
    snapshot: Option<Snapshot>,
    at: Index,
    model: usize,
}

/// Keys that are read one by one at a time.
const POINTS: usize = 200;

/// From one such time to the next, the first key moves on by this many for each operation between.
const POINTS_STRIDE: u64 = 97;

type Range = (Bound<Vec<u8>>, Bound<Vec<u8>>);

impl View {
    fn range(&self, range: Range) -> Iter {
        match &self.snapshot {
            Some(s) => s.range(&self.handle, range),
            None => self.handle.range(range),
        }
    }

    fn everything(&self) -> Iter {
        match &self.snapshot {
            Some(s) => s.iter(&self.handle),
            None => self.handle.iter(),
        }
    }

    fn prefix(&self, prefix: &[u8]) -> Iter {
        match &self.snapshot {
            Some(s) => s.prefix(&self.handle, prefix),
            None => self.handle.prefix(prefix),
        }
    }

    fn cursor(&self) -> Cursor {
        match &self.snapshot {
            Some(s) => s.cursor(&self.handle),
            None => self.handle.cursor(),
        }
    }

    /// One key through `get`, `multi_get`, `get_into`, a cursor and a range, which must agree.
    fn get(&self, key: &[u8]) -> weir::Result<Vec<Option<Vec<u8>>>> {
        let mut answers = Vec::new();
        let own = |v: Option<weir::Value>| v.map(|v| v.to_vec());
        let mut buf = b"left over".to_vec();
        let found = match &self.snapshot {
            Some(s) => {
                answers.push(own(s.get(&self.handle, key)?));
                answers.extend(s.multi_get(&self.handle, &[key])?.into_iter().map(own));
                s.get_into(&self.handle, key, &mut buf)?
            }
            None => {
                answers.push(own(self.handle.get(key)?));
                answers.extend(self.handle.multi_get(&[key])?.into_iter().map(own));
                self.handle.get_into(key, &mut buf)?
            }
        };
        answers.push(found.then_some(buf));
        let mut cursor = self.cursor();
        cursor.seek(key);
        let at_key = cursor.valid() && cursor.key() == key;
        answers.push(at_key.then(|| cursor.value().to_vec()));
        cursor.status()?;
        cursor.seek_for_prev(key);
        let at_key = cursor.valid() && cursor.key() == key;
        answers.push(at_key.then(|| cursor.value().to_vec()));
        cursor.status()?;
        let one = (Bound::Included(key.to_vec()), Bound::Included(key.to_vec()));
        let mut range = self.range(one.clone());
        answers.push(range.next().transpose()?.map(|(_, v)| v.to_vec()));
        answers.push(self.range(one).next_back().transpose()?.map(|(_, v)| v.to_vec()));
        Ok(answers)
    }
}

/// The ends of a keyspace in a view, and whether it is empty.
type Ends = (Option<(weir::Value, weir::Value)>, Option<(weir::Value, weir::Value)>, bool);

impl View {
    fn contains_key(&self, key: &[u8]) -> weir::Result<bool> {
        match &self.snapshot {
            Some(s) => s.contains_key(&self.handle, key),
            None => self.handle.contains_key(key),
        }
    }

    fn ends(&self) -> weir::Result<Ends> {
        let space = &self.handle;
        Ok(match &self.snapshot {
            Some(s) => (s.first(space)?, s.last(space)?, s.is_empty(space)?),
            None => (space.first()?, space.last()?, space.is_empty()?),
        })
    }
}

const FORMS: [&str; 7] =
    ["get", "multi_get", "get_into", "cursor seek", "seek_for_prev", "range", "range backward"];

impl Runner {
    /// The view that an operation names; `None` if there is none, and then it does nothing.
    fn view(&mut self, ks: u8, snap: Option<u8>) -> Checked<Option<View>> {
        let Some(space) = self.spaces[usize::from(ks)].clone() else { return Ok(None) };
        let Some(slot) = snap else {
            return Ok(Some(View {
                handle: space.handle,
                snapshot: None,
                at: self.last,
                model: space.model,
            }));
        };
        let merges = self.merges()?;
        let Some(live) = &self.snaps[usize::from(slot)] else { return Ok(None) };
        if merges > live.merges {
            self.counters.old_reads += 1;
        }
        // A keyspace that is younger than the snapshot is empty in it.
        let at = if space.model < live.spaces { live.at } else { 0 };
        let snapshot = Some(live.handle.clone());
        Ok(Some(View { handle: space.handle, snapshot, at, model: space.model }))
    }

    /// Where there are buffer lists, everything is read three times: no answer depends on them.
    pub(super) fn read(&mut self, op: &Op) -> Checked {
        self.read_once(op)?;
        let (Op::Get { ks, .. }
        | Op::MultiGet { ks, .. }
        | Op::Scan { ks, .. }
        | Op::Prefix { ks, .. }
        | Op::Cursor { ks, .. }) = op
        else {
            return Ok(());
        };
        if !self.may_have_lists(*ks) {
            return Ok(());
        }
        weir::sim::without_lists(|| self.read_once(op))
            .map_err(|what| format!("without buffer lists, {what}"))?;
        weir::sim::through_lists(|| self.read_once(op))
            .map_err(|what| format!("through buffer lists, {what}"))
    }

    fn may_have_lists(&self, ks: u8) -> bool {
        let space = self.spaces[usize::from(ks)].as_ref();
        let buffer = space.map(|space| space.handle.options().compaction_buffer);
        buffer.is_some_and(|buffer| buffer != CompactionBuffer::Off)
    }

    fn read_once(&mut self, op: &Op) -> Checked {
        match op {
            Op::Get { ks, key, snap } => {
                let Some(view) = self.view(*ks, *snap)? else { return Ok(()) };
                self.check_get(&view, &key_bytes(*key))
            }
            Op::MultiGet { ks, keys, snap } => {
                let Some(view) = self.view(*ks, *snap)? else { return Ok(()) };
                let keys: Vec<Vec<u8>> = keys.iter().map(|k| key_bytes(*k)).collect();
                self.check_multi_get(&view, &keys)
            }
            Op::Scan { ks, lo, hi, snap, how, limit } => {
                let Some(view) = self.view(*ks, *snap)? else { return Ok(()) };
                let range = bounds(*lo, *hi);
                self.check_cursor_range(&view, &range, *how == How::Backward)?;
                self.check_keys(&view, &range, *how == How::Backward, *limit)?;
                let iter = view.range(range.clone());
                self.check_walk(&view, iter, &range, *how, *limit)
            }
            Op::Prefix { ks, key, len, snap, how } => {
                let Some(view) = self.view(*ks, *snap)? else { return Ok(()) };
                let mut prefix = key_bytes(*key);
                prefix.truncate(usize::from(*len));
                let end = prefix_end(&prefix).map_or(Bound::Unbounded, Bound::Excluded);
                let iter = view.prefix(&prefix);
                self.check_walk(&view, iter, &(Bound::Included(prefix), end), *how, u32::MAX)
            }
            Op::Cursor { ks, snap, moves } => self.cursor(*ks, *snap, moves),
            _ => Ok(()),
        }
    }

    fn check_get(&mut self, view: &View, key: &[u8]) -> Checked {
        let expected = self.models[view.model].get(key, view.at).map(|v| v.to_vec());
        let answers = view.get(key).map_err(|e| format!("get {}: {e}", show(key)))?;
        let contained = view.contains_key(key).map_err(|e| format!("contains_key: {e}"))?;
        if contained != expected.is_some() {
            let (key, at) = (show(key), view.at);
            return Err(format!("contains_key of {key} as of commit {at} gives {contained}"));
        }
        for (answer, form) in answers.iter().zip(FORMS) {
            self.counters.compared += 1;
            if *answer != expected {
                let seen = answer.as_deref().map_or("nothing".into(), show);
                let right = expected.as_deref().map_or("nothing".into(), show);
                let (key, at) = (show(key), view.at);
                return Err(format!(
                    "{form} of {key} as of commit {at} gives {seen}, expected {right}"
                ));
            }
        }
        Ok(())
    }

    fn check_multi_get(&mut self, view: &View, keys: &[Vec<u8>]) -> Checked {
        let answers = match &view.snapshot {
            Some(s) => s.multi_get(&view.handle, keys),
            None => view.handle.multi_get(keys),
        };
        let answers = answers.map_err(|e| format!("multi_get: {e}"))?;
        if answers.len() != keys.len() {
            return Err(format!("multi_get of {} keys gives {}", keys.len(), answers.len()));
        }
        for (key, answer) in keys.iter().zip(&answers) {
            self.counters.compared += 1;
            let expected = self.models[view.model].get(key, view.at);
            if answer.as_deref() != expected.map(|v| &**v) {
                let seen = answer.as_deref().map_or("nothing".into(), show);
                let right = expected.map_or("nothing".into(), |v| show(v));
                return Err(format!(
                    "multi_get of {} as of commit {} gives {seen}, expected {right}",
                    show(key),
                    view.at
                ));
            }
        }
        Ok(())
    }

    fn check_walk(
        &mut self,
        view: &View,
        mut iter: Iter,
        range: &Range,
        how: How,
        limit: u32,
    ) -> Checked {
        let mut rest = expected(&self.models[view.model], range, view.at);
        let mut bits = match how {
            How::Both(bits) => u64::from(bits) | 1 << 40,
            _ => 0,
        };
        for _ in 0..limit {
            let back = match how {
                How::Forward => false,
                How::Backward => true,
                How::Both(_) => {
                    bits = bits.rotate_left(1);
                    bits & 1 == 1
                }
            };
            self.counters.compared += 1;
            if !step(&mut iter, &mut rest, back, view.at)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The keys of a range are those of its entries.
    fn check_keys(&mut self, view: &View, range: &Range, back: bool, limit: u32) -> Checked {
        let mut rest = expected(&self.models[view.model], range, view.at);
        let mut keys = view.range(range.clone()).keys();
        for _ in 0..limit {
            self.counters.compared += 1;
            let seen = if back { keys.next_back() } else { keys.next() };
            let seen = seen.transpose().map_err(|e| format!("keys: {e}"))?;
            let right = if back { rest.pop_back() } else { rest.pop_front() };
            let right = right.map(|(key, _)| key);
            if seen.as_deref() != right.as_deref() {
                let key = |k: Option<&[u8]>| k.map_or("the end".into(), show);
                let (seen, right) = (key(seen.as_deref()), key(right.as_deref()));
                return Err(format!("keys of {range:?} (back: {back}) give {seen}, not {right}"));
            }
            if right.is_none() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The first and the last entry, and whether there is one.
    fn check_ends(&mut self, view: &View) -> Checked {
        let all = (Bound::Unbounded, Bound::Unbounded);
        let list = expected(&self.models[view.model], &all, view.at);
        let (first, last, empty) = view.ends().map_err(|e| format!("first and last: {e}"))?;
        self.counters.compared += 3;
        let same = |seen: &Option<(weir::Value, weir::Value)>, right: Option<&(Vec<u8>, Bytes)>| {
            seen.as_ref().map(|(k, v)| (&k[..], &v[..])) == right.map(|(k, v)| (&k[..], &v[..]))
        };
        if same(&first, list.front()) && same(&last, list.back()) && empty == list.is_empty() {
            return Ok(());
        }
        let keys = (first.map(|(k, _)| show(&k)), last.map(|(k, _)| show(&k)));
        Err(format!("the ends as of commit {} are {keys:?}, empty: {empty}", view.at))
    }

    /// A cursor with bounds stands on the first or last entry within them, and stops at them.
    fn check_cursor_range(&mut self, view: &View, range: &Range, back: bool) -> Checked {
        let rest = expected(&self.models[view.model], range, view.at);
        let mut cursor = match &view.snapshot {
            Some(s) => s.cursor_range(&view.handle, range.clone()),
            None => view.handle.cursor_range(range.clone()),
        };
        let mut rest: Box<dyn Iterator<Item = _>> =
            if back { Box::new(rest.into_iter().rev()) } else { Box::new(rest.into_iter()) };
        if back {
            cursor.seek_to_last()
        } else {
            cursor.seek_to_first()
        }
        for _ in 0..4 {
            self.counters.compared += 1;
            cursor.status().map_err(|e| format!("cursor_range: {e}"))?;
            let seen = cursor.valid().then(|| (cursor.key(), cursor.value()));
            let right = rest.next();
            let right = right.as_ref().map(|(k, v)| (&k[..], &v[..]));
            if seen != right {
                let key = |p: Option<(&[u8], &[u8])>| p.map_or("the end".into(), |(k, _)| show(k));
                return Err(format!(
                    "a cursor in {range:?} (back: {back}) stands on {}, expected {}",
                    key(seen),
                    key(right)
                ));
            }
            if seen.is_none() {
                return Ok(());
            }
            if back { cursor.prev() } else { cursor.next() }
        }
        Ok(())
    }

    /// Walks a cursor and, beside it, a position in the expected list.
    fn cursor(&mut self, ks: u8, snap: Option<u8>, moves: &[Move]) -> Checked {
        let Some(view) = self.view(ks, snap)? else { return Ok(()) };
        let all = (Bound::Unbounded, Bound::Unbounded);
        let list: Vec<_> = expected(&self.models[view.model], &all, view.at).into();
        let mut cursor = view.cursor();
        let mut at: Option<usize> = None;
        for (i, m) in moves.iter().enumerate() {
            match m {
                Move::Seek(key) => {
                    let key = key_bytes(*key);
                    cursor.seek(&key);
                    let n = list.partition_point(|(k, _)| *k < key);
                    at = (n < list.len()).then_some(n);
                }
                Move::SeekForPrev(key) => {
                    let key = key_bytes(*key);
                    cursor.seek_for_prev(&key);
                    at = list.partition_point(|(k, _)| *k <= key).checked_sub(1);
                }
                Move::First => {
                    cursor.seek_to_first();
                    at = (!list.is_empty()).then_some(0);
                }
                Move::Last => {
                    cursor.seek_to_last();
                    at = list.len().checked_sub(1);
                }
                Move::Next if cursor.valid() => {
                    cursor.next();
                    at = at.map(|n| n + 1).filter(|n| *n < list.len());
                }
                Move::Prev if cursor.valid() => {
                    cursor.prev();
                    at = at.and_then(|n| n.checked_sub(1));
                }
                _ => continue,
            }
            cursor.status().map_err(|e| format!("cursor: {e}"))?;
            self.counters.compared += 1;
            let seen = cursor.valid().then(|| (cursor.key(), cursor.value()));
            let right = at.map(|n| (&list[n].0[..], &list[n].1[..]));
            if seen != right {
                let text = |p: Option<(&[u8], &[u8])>| {
                    p.map_or("the end".into(), |(k, v)| format!("{}={}", show(k), show(v)))
                };
                return Err(format!(
                    "a cursor as of commit {} stands on {} after {:?}, expected {}",
                    view.at,
                    text(seen),
                    &moves[..=i],
                    text(right)
                ));
            }
        }
        Ok(())
    }

    pub(super) fn iter_open(
        &mut self,
        slot: u8,
        ks: u8,
        lo: Bound<u32>,
        hi: Bound<u32>,
        snap: Option<u8>,
    ) -> Checked {
        let Some(view) = self.view(ks, snap)? else { return Ok(()) };
        let range = bounds(lo, hi);
        let bare = || weir::sim::without_lists(|| view.range(range.clone()));
        self.iters[usize::from(slot)] = Some(LiveIter {
            rest: expected(&self.models[view.model], &range, view.at),
            bare: self.may_have_lists(ks).then(bare),
            iter: view.range(range),
            model: view.model,
            done: false,
        });
        Ok(())
    }

    pub(super) fn iter_step(&mut self, slot: u8, steps: u8, back: bool) -> Checked {
        let dropped = |model: usize| self.spaces.iter().flatten().all(|s| s.model != model);
        let Some(live) = &mut self.iters[usize::from(slot)] else { return Ok(()) };
        let may_close = dropped(live.model);
        for _ in 0..steps {
            if live.done {
                return Ok(());
            }
            let step = |iter: &mut Iter| if back { iter.next_back() } else { iter.next() };
            let right = if back { live.rest.pop_back() } else { live.rest.pop_front() };
            self.counters.compared += 1;
            if let Some(bare) = &mut live.bare {
                match weir::sim::without_lists(|| step(bare)) {
                    Some(Err(e)) if may_close && e.kind() == ErrorKind::Closed => {}
                    next => judge(
                        next,
                        right.clone(),
                        "an iterator opened earlier, without buffer lists,",
                    )?,
                }
            }
            let next = match live.bare {
                Some(_) => weir::sim::through_lists(|| step(&mut live.iter)),
                None => step(&mut live.iter),
            };
            live.done = !matches!(next, Some(Ok(_)));
            match (next, right) {
                (Some(Err(e)), _) if may_close && e.kind() == ErrorKind::Closed => {}
                (next, right) => judge(next, right, "an iterator opened earlier")?,
            }
        }
        Ok(())
    }

    /// Every key of every keyspace, now and through every snapshot, both directions.
    pub(super) fn everything(&mut self) -> Checked {
        for ks in 0..self.spaces.len() as u8 {
            let snaps = (0..self.snaps.len() as u8).map(Some);
            for snap in std::iter::once(None).chain(snaps) {
                let Some(view) = self.view(ks, snap)? else { continue };
                self.check_ends(&view)?;
                let all = (Bound::Unbounded, Bound::Unbounded);
                for back in [false, true] {
                    let mut rest = expected(&self.models[view.model], &all, view.at);
                    let mut iter = view.everything();
                    while step(&mut iter, &mut rest, back, view.at)? {
                        self.counters.compared += 1;
                    }
                }
            }
            self.points(ks, usize::MAX)?;
        }
        Ok(())
    }

    /// Keys of every keyspace, one by one, after what may have changed the tree. Such a read ends
    /// at the first run that has the key, so it alone sees runs that stand in a wrong order (H22,
    /// H48); walks compare sequence numbers.
    pub(super) fn first_hits(&mut self) -> Checked {
        (0..self.spaces.len() as u8).try_for_each(|ks| self.points(ks, POINTS))
    }

    /// So many keys of a keyspace, from one on that the operations so far name.
    fn points(&mut self, ks: u8, count: usize) -> Checked {
        let Some(view) = self.view(ks, None)? else { return Ok(()) };
        let known = self.models[view.model].keys().count();
        let first = self.counters.ops.wrapping_mul(POINTS_STRIDE) as usize % known.max(1);
        let keys = self.models[view.model].keys().cycle().skip(first).take(count.min(known));
        let keys: Vec<Vec<u8>> = keys.cloned().collect();
        keys.chunks(POINTS).try_for_each(|keys| self.check_multi_get(&view, keys))
    }
}

/// The pairs that a walk must give.
fn expected(model: &KeyspaceModel, range: &Range, at: Index) -> VecDeque<(Vec<u8>, Bytes)> {
    let lower = range.0.as_ref().map(Vec::as_slice);
    let upper = range.1.as_ref().map(Vec::as_slice);
    model.range(lower, upper, at).map(|(k, v)| (k.to_vec(), v.clone())).collect()
}

/// One step from either end. False at the end.
fn step(
    iter: &mut Iter,
    rest: &mut VecDeque<(Vec<u8>, Bytes)>,
    back: bool,
    at: Index,
) -> Checked<bool> {
    let next = if back { iter.next_back() } else { iter.next() };
    let right = if back { rest.pop_back() } else { rest.pop_front() };
    let more = right.is_some();
    let direction = if back { "backward" } else { "forward" };
    judge(next, right, &format!("a walk {direction} as of commit {at}"))?;
    Ok(more)
}

fn judge(
    next: Option<weir::Result<(weir::Value, weir::Value)>>,
    right: Option<(Vec<u8>, Bytes)>,
    what: &str,
) -> Checked {
    let text = |p: Option<(&[u8], &[u8])>| {
        p.map_or("the end".into(), |(k, v)| format!("{}={}", show(k), show(v)))
    };
    let seen = next.transpose().map_err(|e| format!("{what}: {e}"))?;
    let seen = seen.as_ref().map(|(k, v)| (&**k, &**v));
    let right = right.as_ref().map(|(k, v)| (&k[..], &v[..]));
    if seen == right {
        return Ok(());
    }
    Err(format!("{what} gives {}, expected {}", text(seen), text(right)))
}
