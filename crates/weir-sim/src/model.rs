//! The oracle: what the store must hold, at every commit index.
//!
//! Every commit has an index: 1 for the first, one more for each later one. A key keeps all its
//! versions, so that a snapshot, an iterator opened long ago and a store recovered to any prefix of
//! the commit order can be compared with the same structure.
//!
//! Not here: how a store is driven (`runner`), where it crashes (`campaign`).
//!
//! Invariants: (1) the versions of a key are in ascending order of index, at most one per index;
//! (2) a version that some live snapshot or possible recovery needs is never pruned; the caller
//! says which indexes those are.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Place of a commit in the commit order; 0 is the empty store.
pub type Index = u64;

/// A value, shared with the operation that wrote it.
pub type Bytes = Arc<[u8]>;

/// What a key became at one commit.
#[derive(Clone, Debug)]
pub struct Version {
    /// The commit that did it.
    pub index: Index,
    /// The value, or `None` for a delete.
    pub value: Option<Bytes>,
    /// False for `Durability::None`: outside the prefix promise (H52).
    pub logged: bool,
}

/// One keyspace, from its creation to its drop. A name that is created again is a new one.
#[derive(Clone, Debug, Default)]
pub struct KeyspaceModel {
    keys: BTreeMap<Vec<u8>, Vec<Version>>,
}

/// The versions of one write: key and value, `None` for a delete.
pub type Write = (Vec<u8>, Option<Bytes>);

impl KeyspaceModel {
    /// Records that `index` set `key`. A later write of the same commit replaces an earlier one.
    pub fn write(&mut self, index: Index, key: &[u8], value: Option<Bytes>, logged: bool) {
        let versions = self.keys.entry(key.to_vec()).or_default();
        if let Some(last) = versions.last_mut() {
            assert!(last.index <= index, "commit {index} after {}", last.index);
            if last.index == index {
                last.value = value;
                return;
            }
        }
        versions.push(Version { index, value, logged });
    }

    /// The last commit, of those up to `at`, that wrote here and is not forgotten; 0 if none did.
    #[must_use]
    pub fn last_write(&self, at: Index) -> Index {
        let indexes = self.keys.values().flatten().map(|v| v.index);
        indexes.filter(|index| *index <= at).max().unwrap_or(0)
    }

    /// The value of `key` as of commit `at`.
    #[must_use]
    pub fn get(&self, key: &[u8], at: Index) -> Option<&Bytes> {
        visible(self.keys.get(key)?, at)
    }

    /// Bytes of keys and values at `at`.
    #[must_use]
    pub fn bytes(&self, at: Index) -> u64 {
        let all = self.range(Bound::Unbounded, Bound::Unbounded, at);
        all.map(|(key, value)| (key.len() + value.len()) as u64).sum()
    }

    /// The pairs in a range as of commit `at`, ascending; double-ended.
    pub fn range<'a>(
        &'a self,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        at: Index,
    ) -> Box<dyn DoubleEndedIterator<Item = (&'a [u8], &'a Bytes)> + 'a> {
        if is_empty_range(lower, upper) {
            return Box::new(std::iter::empty());
        }
        Box::new(
            self.keys
                .range::<[u8], _>((lower, upper))
                .filter_map(move |(k, v)| visible(v, at).map(|value| (k.as_slice(), value))),
        )
    }

    /// Forgets every commit after `at`: the store was recovered to that prefix.
    pub fn truncate_to(&mut self, at: Index) {
        self.keys.retain(|_, versions| {
            versions.retain(|v| v.index <= at);
            !versions.is_empty()
        });
    }

    /// Forgets versions below all live snapshots: of those at or below `floor` only the newest
    /// of each key stays, and that only if it is a value. Below an unlogged one the newest logged
    /// one stays too: it may come back.
    pub fn prune(&mut self, floor: Index) {
        self.keys.retain(|_, versions| {
            let passed = versions.partition_point(|v| v.index <= floor);
            let keep_from = versions[..passed].iter().rposition(|v| v.logged).unwrap_or(0);
            versions.drain(..keep_from);
            let forgotten = |v: &Version| v.logged && v.index <= floor && v.value.is_none();
            !matches!(&versions[..], [only] if forgotten(only))
        });
    }

    /// Keys with any version at all.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether nothing was ever written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Every key that was ever written and not forgotten, ascending.
    pub fn keys(&self) -> impl Iterator<Item = &Vec<u8>> + Clone {
        self.keys.keys()
    }

    /// Takes out of `allowed` every prefix under which this keyspace would not hold exactly
    /// `found` (ascending by key). A key may also hold an unlogged version that came after its last
    /// logged one.
    ///
    /// # Errors
    /// A sentence that names the first key that no prefix explains.
    pub fn restrict(
        &self,
        found: &[(Vec<u8>, Vec<u8>)],
        allowed: &mut Prefixes,
    ) -> Result<(), String> {
        let mut at = 0;
        for (key, versions) in &self.keys {
            if let Some((extra, _)) = found.get(at).filter(|(k, _)| k < key) {
                return Err(format!("key {} was never written", show(extra)));
            }
            let value = match found.get(at) {
                Some((k, v)) if k == key => {
                    at += 1;
                    Some(v.as_slice())
                }
                _ => None,
            };
            let before = allowed.clone();
            allowed.keep(|p, upto| explains(versions, value, p, upto));
            if allowed.is_empty() {
                return Err(format!(
                    "key {} holds {}, which fits no prefix in {before}; its versions are {}",
                    show(key),
                    value.map_or("nothing".into(), show),
                    versions.iter().map(show_version).collect::<Vec<_>>().join(", ")
                ));
            }
        }
        found.get(at).map_or(Ok(()), |(k, _)| Err(format!("key {} was never written", show(k))))
    }

    /// After a recovery to `at` that found these pairs: what was lost is forgotten, unlogged writes
    /// that survived are as good as logged ones.
    pub fn adopt(&mut self, found: &[(Vec<u8>, Vec<u8>)], at: Index) {
        self.truncate_to(at);
        for (key, versions) in &mut self.keys {
            let base = versions.iter().rposition(|v| v.logged);
            let first = base.map_or(0, |i| i + 1);
            if first == versions.len() {
                continue;
            }
            let held = found.binary_search_by(|(k, _)| k.cmp(key)).ok();
            let held = held.and_then(|i| found.get(i)).map(|(_, v)| v.as_slice());
            let survivor = versions.iter().rposition(|v| v.value.as_deref() == held);
            let survivor = survivor.filter(|i| *i >= first).map(|i| versions[i].clone());
            versions.truncate(first);
            versions.extend(survivor.map(|v| Version { logged: true, ..v }));
        }
    }
}

/// The version that a reader at `at` sees.
fn visible(versions: &[Version], at: Index) -> Option<&Bytes> {
    let n = versions.partition_point(|v| v.index <= at);
    versions[..n].last().and_then(|v| v.value.as_ref())
}

/// The widest interval `p..=q` within `p..=upto` for which the same verdict holds, and the verdict:
/// whether a store recovered to that prefix may hold `value` under the key of these versions.
fn explains(versions: &[Version], value: Option<&[u8]>, p: Index, upto: Index) -> (Index, bool) {
    let n = versions.partition_point(|v| v.index <= p);
    let until = versions.get(n).map_or(upto, |v| (v.index - 1).min(upto));
    let logged = versions[..n].iter().rposition(|v| v.logged);
    let base = logged.and_then(|i| versions[i].value.as_deref());
    let same = |v: &Version| v.value.as_deref() == value;
    // An unlogged write that was flushed in time: a flush makes the log durable up to the last
    // sequence in its memtable first (H52), so the prefix reaches at least as far as it does.
    let flushed = || versions[logged.map_or(0, |i| i + 1)..n].iter().any(same);
    (until, base == value || flushed())
}

/// Whether the bounds exclude every key (and `BTreeMap::range` would panic).
#[must_use]
pub fn is_empty_range(lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> bool {
    match (lower, upper) {
        (Bound::Included(a), Bound::Included(b)) => a > b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Excluded(b))
        | (Bound::Excluded(a), Bound::Included(b)) => a >= b,
        _ => false,
    }
}

/// The least key that does not start with `prefix` and is larger; `None` if there is none.
#[must_use]
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return Some(end);
        }
    }
    None
}

/// A set of possible prefixes of the commit order: sorted, disjoint, closed intervals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefixes {
    intervals: Vec<(Index, Index)>,
}

impl Prefixes {
    /// Every prefix from `lower` to `upper`, both included.
    #[must_use]
    pub fn between(lower: Index, upper: Index) -> Self {
        assert!(lower <= upper, "no prefix between {lower} and {upper}");
        Self { intervals: vec![(lower, upper)] }
    }

    /// Keeps the prefixes that `verdict(p, upto)` allows. It returns the last prefix `q >= p` that
    /// its verdict holds for.
    fn keep(&mut self, verdict: impl Fn(Index, Index) -> (Index, bool)) {
        let mut kept: Vec<(Index, Index)> = Vec::with_capacity(self.intervals.len());
        for &(from, upto) in &self.intervals {
            let mut p = from;
            loop {
                let (q, allowed) = verdict(p, upto);
                if allowed {
                    match kept.last_mut() {
                        Some(last) if last.1 + 1 == p => last.1 = q,
                        _ => kept.push((p, q)),
                    }
                }
                if q >= upto {
                    break;
                }
                p = q + 1;
            }
        }
        self.intervals = kept;
    }

    /// Whether no prefix is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    /// The longest prefix in the set.
    #[must_use]
    pub fn longest(&self) -> Option<Index> {
        self.intervals.last().map(|i| i.1)
    }

    /// The shortest prefix in the set that is at least `lower`.
    #[must_use]
    pub fn at_least(&self, lower: Index) -> Option<Index> {
        self.intervals.iter().find(|i| i.1 >= lower).map(|i| i.0.max(lower))
    }
}

impl std::fmt::Display for Prefixes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts: Vec<_> = self.intervals.iter().map(|(a, b)| format!("{a}..={b}")).collect();
        f.write_str(&parts.join(", "))
    }
}

/// Bytes for people: printable as they are, the rest in hex, cut after 40.
#[must_use]
pub fn show(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for &b in bytes.iter().take(40) {
        match b {
            b'"' | b'\\' => out.extend(['\\', b as char]),
            0x20..=0x7e => out.push(b as char),
            _ => out.push_str(&format!("\\x{b:02x}")),
        }
    }
    out.push('"');
    if bytes.len() > 40 {
        out.push_str(&format!("... ({} bytes)", bytes.len()));
    }
    out
}

fn show_version(version: &Version) -> String {
    format!(
        "{}{}={}",
        version.index,
        if version.logged { "" } else { " (not logged)" },
        version.value.as_deref().map_or("deleted".into(), show)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(s: &str) -> Option<Bytes> {
        Some(Bytes::from(s.as_bytes()))
    }

    fn pairs(list: &[(&str, &str)]) -> Vec<(Vec<u8>, Vec<u8>)> {
        list.iter().map(|(k, v)| (k.as_bytes().to_vec(), v.as_bytes().to_vec())).collect()
    }

    /// a=1 at 1, b=1 at 2, a deleted at 3, b=2 at 4 (not logged).
    fn sample() -> KeyspaceModel {
        let mut m = KeyspaceModel::default();
        m.write(1, b"a", bytes("1"), true);
        m.write(2, b"b", bytes("1"), true);
        m.write(3, b"a", None, true);
        m.write(4, b"b", bytes("2"), false);
        m
    }

    #[test]
    fn versions_are_read_as_of_an_index() {
        let m = sample();
        assert_eq!(m.get(b"a", 0), None);
        assert_eq!(m.get(b"a", 2).map(|v| &v[..]), Some(&b"1"[..]));
        assert_eq!(m.get(b"a", 3), None);
        let at2: Vec<_> = m.range(Bound::Unbounded, Bound::Unbounded, 2).map(|(k, _)| k).collect();
        assert_eq!(at2, [b"a", b"b"]);
    }

    /// The oracle must reject a hole, a resurrection and a lost acknowledged write, and accept
    /// every prefix; unlogged writes may or may not be there.
    #[test]
    fn recovered_content_is_matched_with_prefixes() {
        let m = sample();
        let fits = |found: &[(&str, &str)], lower, upper| {
            let mut allowed = Prefixes::between(lower, upper);
            m.restrict(&pairs(found), &mut allowed).map(|()| allowed.to_string())
        };
        assert_eq!(fits(&[], 0, 4).as_deref(), Ok("0..=0"));
        assert_eq!(fits(&[("a", "1"), ("b", "1")], 0, 4).as_deref(), Ok("2..=2"));
        assert_eq!(fits(&[("b", "1")], 0, 4).as_deref(), Ok("3..=4"));
        assert_eq!(fits(&[("b", "2")], 0, 4).as_deref(), Ok("4..=4"));
        assert!(fits(&[("a", "1"), ("b", "1")], 3, 4).is_err(), "a deleted key came back");
        assert!(fits(&[], 1, 4).is_err(), "an acknowledged write is lost");
        assert!(fits(&[("c", "1")], 0, 4).is_err(), "a key that was never written");
        assert!(fits(&[("a", "7")], 0, 4).is_err(), "a value that was never written");
    }

    #[test]
    fn pruning_keeps_what_the_floor_sees() {
        let mut m = sample();
        m.prune(3);
        assert_eq!(m.get(b"b", 3).map(|v| &v[..]), Some(&b"1"[..]));
        assert_eq!(m.len(), 1, "a deleted key is forgotten");
        m.truncate_to(3);
        assert_eq!(m.get(b"b", 9).map(|v| &v[..]), Some(&b"1"[..]));
    }

    #[test]
    fn prefix_end_is_the_least_larger_key() {
        assert_eq!(prefix_end(b"a\xff"), Some(b"b".to_vec()));
        assert_eq!(prefix_end(b"\xff\xff"), None);
        assert_eq!(prefix_end(b""), None);
    }
}
