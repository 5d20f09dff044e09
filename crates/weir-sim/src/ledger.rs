//! The oracle for runs in which operations fail: a list of commits, each acknowledged or not.
//!
//! A commit whose call failed may or may not have happened; everything else must be exact. Which of
//! the failed ones happened is told from the store itself, and must be told the same by every key
//! that they touch: a batch is whole even then.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::Content;
use crate::model::show;

/// What one commit does to one key: keyspace, key, value or delete.
pub type Item = (&'static str, Vec<u8>, Option<Vec<u8>>);

/// One commit.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Keyspace, key, value or delete.
    pub items: Vec<Item>,
    /// The call returned `Ok`.
    pub acknowledged: bool,
    /// The call returned `Ok` and promised durability.
    pub durable: bool,
    /// Acknowledged with `Durability::None` and in no table for sure: it is there while the store
    /// is open, and may be lost with it.
    pub unlogged: bool,
    /// Acknowledged with `Durability::Deferred`, and nothing that makes it survive has been since:
    /// it may be lost with the process, with all that came after it.
    pub deferred: bool,
    /// The call failed in a way that promises that nothing was written.
    pub void: bool,
}

/// What happened to a store.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// The commits, in order.
    pub entries: Vec<Entry>,
    /// Keyspaces that exist for sure.
    pub spaces: BTreeSet<&'static str>,
    /// Keyspaces whose creation or drop failed: they exist or not.
    pub unsure: BTreeSet<&'static str>,
}

impl Ledger {
    /// Everything acknowledged so far is durable now.
    pub fn all_durable(&mut self) {
        for entry in self.entries.iter_mut().filter(|e| e.acknowledged && !e.unlogged) {
            entry.durable = true;
            entry.deferred = false;
        }
    }

    /// Everything acknowledged so far survives a kill of the process.
    pub fn all_written(&mut self) {
        self.entries.iter_mut().filter(|e| e.acknowledged).for_each(|e| e.deferred = false);
    }

    /// The store was closed in good order: unlogged entries are in tables now.
    pub fn closed(&mut self) {
        self.entries.iter_mut().for_each(|e| e.unlogged = false);
        self.all_durable();
    }

    /// Checks a store that lost nothing but what failed.
    ///
    /// # Errors
    /// The difference.
    pub fn check_live(&self, content: &Content) -> Result<(), String> {
        self.check_spaces(content)?;
        self.explain(content, self.entries.len(), true)
    }

    /// Checks a store that was opened again without a power loss.
    ///
    /// # Errors
    /// The difference.
    pub fn check_reopened(&self, content: &Content) -> Result<(), String> {
        self.check_spaces(content)?;
        let survives = |e: &Entry| e.acknowledged && !e.unlogged && !e.deferred;
        let least = match self.entries.iter().rposition(|e| e.acknowledged && e.deferred) {
            Some(_) => self.entries.iter().rposition(survives).map_or(0, |i| i + 1),
            None => self.entries.len(),
        };
        self.check_prefix(content, least)
    }

    /// Checks a store after a power loss: a prefix that holds everything durable.
    ///
    /// # Errors
    /// The difference to the longest prefix.
    pub fn check_power_loss(&self, content: &Content) -> Result<(), String> {
        self.check_spaces(content)?;
        self.check_prefix(
            content,
            self.entries.iter().rposition(|e| e.durable).map_or(0, |i| i + 1),
        )
    }

    /// Whether a prefix of at least so many commits explains the content.
    fn check_prefix(&self, content: &Content, least: usize) -> Result<(), String> {
        let mut why = Ok(());
        for p in (least..=self.entries.len()).rev() {
            match self.explain(content, p, false) {
                Ok(()) => return Ok(()),
                Err(e) if why.is_ok() => why = Err(e),
                Err(_) => {}
            }
        }
        why
    }

    fn check_spaces(&self, content: &Content) -> Result<(), String> {
        for space in &self.spaces {
            if !content.contains_key(*space) && !self.unsure.contains(space) {
                return Err(format!("keyspace {space} is missing"));
            }
        }
        for space in content.keys() {
            let known = |s: &&'static str| *s == space.as_str();
            if !self.spaces.iter().any(known) && !self.unsure.iter().any(known) {
                return Err(format!("keyspace {space} should not exist"));
            }
        }
        Ok(())
    }

    /// Whether the first `p` commits explain the content.
    fn explain(&self, content: &Content, p: usize, live: bool) -> Result<(), String> {
        type Versions<'a> = Vec<(usize, Option<&'a [u8]>)>;
        let mut keys: BTreeMap<(&str, &[u8]), Versions<'_>> = BTreeMap::new();
        for (i, entry) in self.entries[..p].iter().enumerate() {
            for (space, key, value) in &entry.items {
                let versions = keys.entry((space, key)).or_default();
                // A batch that writes a key twice: the last one counts.
                if versions.last().is_some_and(|v| v.0 == i) {
                    versions.pop();
                }
                versions.push((i, value.as_deref()));
            }
        }
        let mut votes: BTreeMap<usize, (bool, &[u8])> = BTreeMap::new();
        for ((space, key), versions) in &keys {
            let Some(pairs) = content.get(*space) else { continue };
            let at = pairs.binary_search_by(|(k, _)| k.as_slice().cmp(key)).ok();
            let found = at.and_then(|i| pairs.get(i)).map(|(_, v)| v.as_slice());
            self.vote(key, versions, found, live, &mut votes)?;
        }
        for (space, pairs) in content {
            for (key, _) in pairs {
                if !keys.contains_key(&(space.as_str(), key.as_slice())) {
                    return Err(format!("{space}: key {} was never written", show(key)));
                }
            }
        }
        Ok(())
    }

    /// What one key says about the commits that failed.
    fn vote<'a>(
        &self,
        key: &'a [u8],
        versions: &[(usize, Option<&[u8]>)],
        found: Option<&[u8]>,
        live: bool,
        votes: &mut BTreeMap<usize, (bool, &'a [u8])>,
    ) -> Result<(), String> {
        let text = |v: Option<&[u8]>| v.map_or("nothing".to_owned(), show);
        let sure = |e: &Entry| e.acknowledged && (live || !e.unlogged);
        let firm = versions.iter().rposition(|(i, _)| sure(&self.entries[*i]));
        let firm_value = firm.and_then(|at| versions[at].1);
        let open = &versions[firm.map_or(0, |at| at + 1)..];
        let possible = |i: usize| !(live && self.entries[i].void);
        let matching: Vec<usize> =
            open.iter().filter(|(i, v)| *v == found && possible(*i)).map(|(i, _)| *i).collect();
        if firm_value == found {
            // A failed commit that left the same value proves nothing; the others did not happen.
            if matching.is_empty() {
                for (i, _) in open {
                    cast(votes, *i, false, key)?;
                }
            }
            return Ok(());
        }
        match matching[..] {
            [] => Err(format!(
                "key {} holds {}, expected {}; failed writes since: {:?}",
                show(key),
                text(found),
                text(firm_value),
                open.iter().map(|(i, v)| format!("{i}: {}", text(*v))).collect::<Vec<_>>()
            )),
            [only] => {
                cast(votes, only, true, key)?;
                open.iter()
                    .filter(|(i, _)| *i > only)
                    .try_for_each(|(i, _)| cast(votes, *i, false, key))
            }
            _ => Ok(()),
        }
    }
}

fn cast<'a>(
    votes: &mut BTreeMap<usize, (bool, &'a [u8])>,
    commit: usize,
    happened: bool,
    key: &'a [u8],
) -> Result<(), String> {
    let (before, other) = *votes.entry(commit).or_insert((happened, key));
    if before == happened {
        return Ok(());
    }
    Err(format!("half of commit {commit}: keys {} and {} disagree", show(other), show(key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(items: &[(&'static str, &str, &str)], acknowledged: bool, void: bool) -> Entry {
        let item = |(s, k, v): &(&'static str, &str, &str)| {
            (*s, k.as_bytes().to_vec(), (!v.is_empty()).then(|| v.as_bytes().to_vec()))
        };
        let items = items.iter().map(item).collect();
        Entry { items, acknowledged, durable: false, unlogged: false, deferred: false, void }
    }

    fn content(pairs: &[(&str, &str)]) -> Content {
        let pair = |(k, v): &(&str, &str)| (k.as_bytes().to_vec(), v.as_bytes().to_vec());
        Content::from([("s".to_owned(), pairs.iter().map(pair).collect())])
    }

    #[test]
    fn failed_commits_are_whole_or_absent() {
        let mut ledger = Ledger { spaces: ["s"].into(), ..Ledger::default() };
        ledger.entries.push(entry(&[("s", "a", "1"), ("s", "b", "1")], true, false));
        ledger.entries.push(entry(&[("s", "a", "2"), ("s", "b", "2")], false, false));
        assert!(ledger.check_live(&content(&[("a", "1"), ("b", "1")])).is_ok());
        assert!(ledger.check_live(&content(&[("a", "2"), ("b", "2")])).is_ok());
        assert!(ledger.check_live(&content(&[("a", "1"), ("b", "2")])).is_err(), "half a batch");
        assert!(ledger.check_live(&content(&[("a", "1")])).is_err(), "b is lost");
        ledger.entries[1].void = true;
        assert!(ledger.check_live(&content(&[("a", "2"), ("b", "2")])).is_err(), "void");
        assert!(ledger.check_reopened(&content(&[("a", "2"), ("b", "2")])).is_ok());
        assert!(ledger.check_power_loss(&content(&[])).is_ok());
        ledger.entries[0].durable = true;
        assert!(ledger.check_power_loss(&content(&[])).is_err(), "a durable commit is lost");
    }
}
