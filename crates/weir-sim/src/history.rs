//! What several writers did to one store, and when: the oracle of the crash campaign.
//!
//! Time is counted in device calls. Every commit, sync and keyspace operation has a span: the
//! number of device calls before it began and when it was acknowledged. A crash after `x` calls may
//! lose what was acknowledged later, and may keep what had begun.
//!
//! Each writer owns the keys that begin with its letter, so that the order among writers need not
//! be known: of each one a prefix must have survived, and together these must respect real time:
//! what was acknowledged before a surviving commit began has survived too. The same holds for a
//! surviving creation or drop of a keyspace: it is a barrier for the commits around it. (A change
//! is durable when it is acknowledged, so a commit that began later never survives without it.)

use std::collections::BTreeMap;

use weir::Db;

use crate::model::{Bytes, Index, KeyspaceModel, Prefixes, show};

/// Device calls before something began, and when it was acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Calls made when it began.
    pub start: usize,
    /// Calls made when it was acknowledged; `usize::MAX` until then.
    pub end: usize,
}

/// One writer's commits: number `i` is `commits[i - 1]`.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    /// By space.
    pub models: Vec<KeyspaceModel>,
    /// Span, and whether the acknowledgement promised durability.
    pub commits: Vec<(Span, bool)>,
}

/// A keyspace operation: span, and the space that came or went.
#[derive(Clone, Debug)]
pub struct Change {
    /// When.
    pub span: Span,
    /// Which space.
    pub space: usize,
    /// Created, not dropped.
    pub created: bool,
    /// Commits of each writer that had been acknowledged when it began.
    pub covered: Vec<Index>,
}

/// Everything that was done to one store.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The writers.
    pub writers: Vec<Writer>,
    /// The name of every keyspace that ever was; a name may occur twice.
    pub spaces: Vec<String>,
    /// Creations and drops in order; they never overlap each other.
    pub changes: Vec<Change>,
    /// Acknowledged calls that made everything before them durable, or a keyspace and all that is
    /// older, with the number of commits of each writer that this covers.
    pub barriers: Vec<(Span, Vec<Index>)>,
}

/// The content of a store, by name of the keyspace.
pub type Content = BTreeMap<String, Vec<(Vec<u8>, Vec<u8>)>>;

/// Everything that a store holds.
///
/// # Errors
/// What could not be opened or read.
pub fn read_all(db: &Db) -> Result<Content, String> {
    let mut content = Content::new();
    for name in db.keyspaces() {
        let space = db.open_keyspace(&name).map_err(|e| format!("open {name}: {e}"))?;
        let mut pairs = Vec::new();
        for kv in space.iter() {
            let (k, v) = kv.map_err(|e| format!("scan of {name}: {e}"))?;
            pairs.push((k.to_vec(), v.to_vec()));
        }
        content.insert(name, pairs);
    }
    Ok(content)
}

impl History {
    /// A history of this many writers with these keyspaces, which exist from the beginning.
    #[must_use]
    pub fn new(writers: usize, spaces: &[&str]) -> Self {
        let spaces: Vec<String> = spaces.iter().map(|s| (*s).to_owned()).collect();
        let writer =
            Writer { models: vec![KeyspaceModel::default(); spaces.len()], commits: Vec::new() };
        Self { writers: vec![writer; writers], spaces, ..Self::default() }
    }

    /// A commit begins. Returns its index.
    pub fn begin(
        &mut self,
        writer: usize,
        now: usize,
        items: Vec<(usize, Vec<u8>, Option<Bytes>)>,
        logged: bool,
        durable: bool,
    ) -> Index {
        let writer = &mut self.writers[writer];
        writer.commits.push((Span { start: now, end: usize::MAX }, durable));
        let index = writer.commits.len() as Index;
        for (space, key, value) in items {
            writer.models[space].write(index, &key, value, logged);
        }
        index
    }

    /// The commit is acknowledged.
    pub fn end(&mut self, writer: usize, index: Index, now: usize) {
        self.writers[writer].commits[index as usize - 1].0.end = now;
    }

    /// Commits of each writer that are acknowledged by now.
    #[must_use]
    pub fn acknowledged(&self) -> Vec<Index> {
        let count = |w: &Writer| w.commits.partition_point(|c| c.0.end != usize::MAX) as Index;
        self.writers.iter().map(count).collect()
    }

    /// Commits of each writer up to the last acknowledged one that wrote to a space: what a flush
    /// of that keyspace makes durable. It says nothing of what others were given later.
    #[must_use]
    pub fn acknowledged_in(&self, space: usize) -> Vec<Index> {
        let last = |(w, acknowledged): (&Writer, Index)| w.models[space].last_write(acknowledged);
        self.writers.iter().zip(self.acknowledged()).map(last).collect()
    }

    /// A keyspace is about to come; the new space's number. `ends` when it is acknowledged.
    pub fn create(&mut self, name: &str, now: usize) -> usize {
        self.spaces.push(name.to_owned());
        for writer in &mut self.writers {
            writer.models.push(KeyspaceModel::default());
        }
        let space = self.spaces.len() - 1;
        self.change(space, now, true);
        space
    }

    /// A keyspace is about to go.
    pub fn remove(&mut self, space: usize, now: usize) {
        self.change(space, now, false);
    }

    fn change(&mut self, space: usize, now: usize, created: bool) {
        let span = Span { start: now, end: usize::MAX };
        self.changes.push(Change { span, space, created, covered: self.acknowledged() });
    }

    /// The last change of keyspaces is acknowledged.
    pub fn changed(&mut self, now: usize) {
        if let Some(last) = self.changes.last_mut() {
            last.span.end = now;
        }
    }

    /// Whether a store that crashed after `x` device calls may hold this content. Returns how many
    /// commits of each writer survived.
    ///
    /// # Errors
    /// The promise that is broken.
    pub fn check(&self, x: usize, content: &Content) -> Result<Vec<Index>, String> {
        let done = self.changes.iter().filter(|c| c.span.end <= x).count();
        let begun = self.changes.iter().filter(|c| c.span.start < x).count().max(done);
        let mut why = None;
        for changes in (done..=begun).rev() {
            let live = self.live(changes);
            if !live.keys().copied().eq(content.keys().map(String::as_str)) {
                continue;
            }
            match self.check_after(changes, &live, x, content) {
                Ok(prefixes) => return Ok(prefixes),
                Err(e) => why = Some(format!("after {changes} changes of keyspaces: {e}")),
            }
        }
        Err(why.unwrap_or_else(|| {
            let found: Vec<&String> = content.keys().collect();
            let live = self.live(begun);
            let expected: Vec<&str> = live.keys().copied().collect();
            format!("the keyspaces are {found:?}, expected {expected:?} or those before")
        }))
    }

    /// Keyspaces after so many changes: name and space.
    fn live(&self, changes: usize) -> BTreeMap<&str, usize> {
        let from_start = self.spaces.len() - self.changes.iter().filter(|c| c.created).count();
        let mut live: BTreeMap<&str, usize> =
            (0..from_start).map(|s| (self.spaces[s].as_str(), s)).collect();
        for change in &self.changes[..changes] {
            let name = self.spaces[change.space].as_str();
            if change.created {
                live.insert(name, change.space);
            } else {
                live.remove(name);
            }
        }
        live
    }

    fn check_after(
        &self,
        changes: usize,
        live: &BTreeMap<&str, usize>,
        x: usize,
        content: &Content,
    ) -> Result<Vec<Index>, String> {
        let mut allowed: Vec<Prefixes> =
            (0..self.writers.len()).map(|w| self.bounds(w, x, changes)).collect();
        for (name, pairs) in content {
            let space = live[name.as_str()];
            let mut shares: Vec<Vec<_>> = vec![Vec::new(); self.writers.len()];
            for pair in pairs {
                let owner = pair.0.first().map(|b| usize::from(b.wrapping_sub(b'A')));
                match owner.and_then(|w| shares.get_mut(w)) {
                    Some(share) => share.push(pair.clone()),
                    None => return Err(format!("key {} was never written", show(&pair.0))),
                }
            }
            for (w, share) in shares.iter().enumerate() {
                self.writers[w].models[space]
                    .restrict(share, &mut allowed[w])
                    .map_err(|e| format!("writer {w}, keyspace {name}: {e}"))?;
            }
        }
        self.respect_time(&allowed)
    }

    /// What may have survived of one writer, by its own acknowledgements and the changes of
    /// keyspaces that survived.
    fn bounds(&self, w: usize, x: usize, changes: usize) -> Prefixes {
        let commits = &self.writers[w].commits;
        let promised = commits.iter().rposition(|(span, durable)| *durable && span.end <= x);
        let mut lower = promised.map_or(0, |i| i as Index + 1);
        for (span, covered) in &self.barriers {
            if span.end <= x {
                lower = lower.max(covered[w]);
            }
        }
        for change in &self.changes[..changes] {
            lower = lower.max(change.covered[w]);
        }
        // A commit that began with `x` calls made has had none of its own.
        let upper = commits.partition_point(|(span, _)| span.start < x) as Index;
        Prefixes::between(lower, upper.max(lower))
    }

    /// The least prefixes that are allowed and respect real time among the writers.
    fn respect_time(&self, allowed: &[Prefixes]) -> Result<Vec<Index>, String> {
        let least = |w: usize, lower: Index| {
            allowed[w].at_least(lower).ok_or_else(|| {
                format!(
                    "writer {w}: commit {lower} was acknowledged before a surviving commit of \
                     another writer began, but only {} can have survived",
                    allowed[w]
                )
            })
        };
        let mut at: Vec<Index> =
            (0..allowed.len()).map(|w| least(w, 0)).collect::<Result<_, _>>()?;
        loop {
            let before = at.clone();
            for w in 0..at.len() {
                let Some(last) = (at[w] as usize).checked_sub(1) else { continue };
                let began = self.writers[w].commits[last].0.start;
                for (other, writer) in self.writers.iter().enumerate() {
                    let commits = &writer.commits;
                    let needed = commits.partition_point(|(span, _)| span.end < began) as Index;
                    at[other] = least(other, at[other].max(needed))?;
                }
            }
            if at == before {
                return Ok(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(h: &mut History, w: usize, space: usize, start: usize, end: usize, durable: bool) {
        let n = h.writers[w].commits.len() + 1;
        let key = vec![b'A' + w as u8, n as u8];
        let value = Some(Bytes::from(&[n as u8][..]));
        let index = h.begin(w, start, vec![(space, key, value)], true, durable);
        h.end(w, index, end);
    }

    fn holds(list: &[(usize, u8)]) -> Content {
        let pair = |&(w, n): &(usize, u8)| (vec![b'A' + w as u8, n], vec![n]);
        Content::from([("default".to_owned(), list.iter().map(pair).collect())])
    }

    /// Two writers: A1 (synced), A2, B1 after A2 was acknowledged.
    #[test]
    fn broken_promises_are_found() {
        let mut h = History::new(2, &["default"]);
        put(&mut h, 0, 0, 0, 5, true);
        put(&mut h, 0, 0, 6, 8, false);
        put(&mut h, 1, 0, 10, 12, false);
        assert_eq!(h.check(20, &holds(&[(0, 1), (0, 2), (1, 1)])), Ok(vec![2, 1]));
        assert_eq!(h.check(20, &holds(&[(0, 1)])), Ok(vec![1, 0]));
        assert!(h.check(20, &holds(&[])).is_err(), "an acknowledged sync is lost");
        assert!(h.check(20, &holds(&[(0, 2)])).is_err(), "a hole");
        let later = h.check(20, &holds(&[(0, 1), (1, 1)]));
        assert!(later.is_err(), "B1 survived, but A2 was acknowledged before it began");
        assert!(h.check(4, &holds(&[])).is_ok(), "not acknowledged yet");
        assert!(h.check(9, &holds(&[(0, 1), (0, 2), (1, 1)])).is_err(), "from the future");
        let barrier = (Span { start: 13, end: 15 }, h.acknowledged());
        h.barriers.push(barrier);
        assert!(h.check(20, &holds(&[(0, 1)])).is_err(), "a sync covered A2 and B1");
    }

    /// A2 and A3 write to different keyspaces.
    #[test]
    fn a_flush_covers_its_keyspace_and_what_is_older() {
        let mut h = History::new(1, &["default", "x"]);
        put(&mut h, 0, 0, 0, 2, false);
        put(&mut h, 0, 1, 3, 4, false);
        put(&mut h, 0, 0, 5, 6, false);
        assert_eq!(h.acknowledged_in(0), [3]);
        assert_eq!(h.acknowledged_in(1), [2]);
        let index = h.begin(0, 7, vec![(1, b"A4".to_vec(), None)], true, false);
        assert_eq!(h.acknowledged_in(1), [2], "not acknowledged yet");
        h.end(0, index, 8);
        assert_eq!(h.acknowledged_in(1), [4]);
    }

    #[test]
    fn keyspaces_come_and_go_in_order() {
        let mut h = History::new(1, &["default"]);
        let space = h.create("x", 1);
        h.changed(3);
        put(&mut h, 0, space, 4, 5, true);
        h.remove(space, 7);
        h.changed(9);
        let with = |x: &[(usize, u8)]| {
            let mut c = holds(&[]);
            c.insert("x".into(), holds(x)["default"].clone());
            c
        };
        assert!(h.check(6, &with(&[(0, 1)])).is_ok());
        assert!(h.check(6, &holds(&[])).is_err(), "a created keyspace is lost");
        assert!(h.check(8, &holds(&[])).is_ok() && h.check(8, &with(&[(0, 1)])).is_ok());
        assert!(h.check(8, &with(&[])).is_err(), "its synced content is lost");
        assert!(h.check(9, &with(&[(0, 1)])).is_err(), "a dropped keyspace came back");
    }

    /// A1 is acknowledged before the drop of `x` begins, A2 runs beside it, neither is synced.
    #[test]
    fn a_change_that_survives_keeps_what_was_before_it() {
        let mut h = History::new(1, &["default", "x"]);
        put(&mut h, 0, 0, 1, 3, false);
        h.remove(1, 3);
        put(&mut h, 0, 0, 4, 6, false);
        h.changed(7);
        let mut both = holds(&[]);
        both.insert("x".into(), Vec::new());
        assert!(h.check(5, &both).is_ok(), "neither is durable yet");
        assert!(h.check(5, &holds(&[(0, 1)])).is_ok());
        assert!(h.check(9, &holds(&[(0, 1)])).is_ok(), "A2 is not older than the drop");
        assert!(h.check(9, &holds(&[(0, 1), (0, 2)])).is_ok());
        assert!(h.check(5, &holds(&[])).is_err(), "the drop survived, A1 did not");
    }
}
