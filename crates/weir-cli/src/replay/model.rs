//! What a correct store would answer: an ordered map in memory.

use crate::failure::Result;
use crate::words::Quoted;
use std::collections::BTreeMap;
use std::ops::Bound;
use weir::{Db, Value};
use weir_bench::lines::decode;

/// A map from keys to values.
pub(crate) struct Model {
    map: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Model {
    /// The pairs that a store holds already.
    pub(crate) fn of_store(db: &Db) -> Result<Self> {
        let mut map = BTreeMap::new();
        for pair in db.iter() {
            let (key, value) = pair?;
            map.insert(key.to_vec(), value.to_vec());
        }
        Ok(Self { map })
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) {
        self.map.insert(key.to_vec(), value.to_vec());
    }

    pub(crate) fn delete(&mut self, key: &[u8]) {
        self.map.remove(key);
    }

    pub(crate) fn len(&self) -> u64 {
        self.map.len() as u64
    }

    /// How the answer to a get differs, if it does.
    pub(crate) fn compare(&self, key: &[u8], answer: Option<&[u8]>) -> Option<String> {
        let expected = self.map.get(key).map(Vec::as_slice);
        (expected != answer).then(|| {
            let show = |value: Option<&[u8]>| value.map_or("nothing".to_owned(), name);
            format!("the store has {}, the model {}", show(answer), show(expected))
        })
    }

    /// What a range must return, both ends included; nothing if they are the wrong way round.
    pub(crate) fn range<'a>(&'a self, from: &[u8], to: &[u8]) -> Expected<'a> {
        if from > to {
            return Expected { pairs: Box::new(std::iter::empty()) };
        }
        let bounds = (Bound::Included(from), Bound::Included(to));
        Expected { pairs: Box::new(self.map.range::<[u8], _>(bounds).map(pair)) }
    }

    /// How the whole store differs, read forward and backward, if it does.
    pub(crate) fn compare_store(&self, db: &Db) -> Result<Option<String>> {
        let forward = Expected { pairs: Box::new(self.map.iter().map(pair)) };
        if let Some(what) = forward.compare_all(db.iter())? {
            return Ok(Some(format!("forward: {what}")));
        }
        let backward = Expected { pairs: Box::new(self.map.iter().rev().map(pair)) };
        let what = backward.compare_all(db.iter().rev())?;
        Ok(what.map(|what| format!("backward: {what}")))
    }
}

fn pair<'a>((key, value): (&'a Vec<u8>, &'a Vec<u8>)) -> (&'a [u8], &'a [u8]) {
    (key, value)
}

/// A key or value for people: the number that it encodes, or else its bytes.
fn name(bytes: &[u8]) -> String {
    decode(bytes).map_or_else(|| Quoted(bytes).to_string(), |number| number.to_string())
}

/// Pairs that must come, in order.
pub(crate) struct Expected<'a> {
    pairs: Box<dyn Iterator<Item = (&'a [u8], &'a [u8])> + 'a>,
}

impl Expected<'_> {
    /// How the next pairs differ, if they do; `ended` says that no more will come.
    pub(crate) fn compare(&mut self, pairs: &[(Value, Value)], ended: bool) -> Option<String> {
        for (key, value) in pairs {
            if let Some(difference) = self.compare_one(Some((key, value))) {
                return Some(difference);
            }
        }
        if ended { self.compare_one(None) } else { None }
    }

    fn compare_one(&mut self, got: Option<(&[u8], &[u8])>) -> Option<String> {
        let expected = self.pairs.next();
        (expected != got).then(|| {
            let show = |pair: Option<(&[u8], &[u8])>| match pair {
                Some((key, value)) => format!("{} = {}", name(key), name(value)),
                None => "the end".to_owned(),
            };
            format!("the store has {}, the model {}", show(got), show(expected))
        })
    }

    fn compare_all(
        mut self,
        pairs: impl Iterator<Item = weir::Result<(Value, Value)>>,
    ) -> Result<Option<String>> {
        for pair in pairs {
            let (key, value) = pair?;
            if let Some(difference) = self.compare_one(Some((&key, &value))) {
                return Ok(Some(difference));
            }
        }
        Ok(self.compare_one(None))
    }
}
