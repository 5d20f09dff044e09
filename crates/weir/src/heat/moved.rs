//! The hot ranges that were moved last, and why: for people who look.

use std::collections::VecDeque;

/// So many are remembered.
const REMEMBERED: usize = 32;

/// A hot range that was moved.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MovedRange {
    /// Its first key.
    pub(crate) from: Vec<u8>,
    /// The first key behind it, if there is one.
    pub(crate) to: Option<Vec<u8>>,
    /// Up into a sentinel; else down by a level.
    pub(crate) up: bool,
    /// Blocks that reads were expected to save.
    pub(crate) benefit: f64,
    /// Blocks that it was expected to cost.
    pub(crate) cost: f64,
    /// Runs that had something of the range.
    pub(crate) runs: usize,
    /// Bytes that they had of it, an estimate.
    pub(crate) bytes: u64,
}

/// Those that were moved last, the newest last.
#[derive(Debug, Default)]
pub(crate) struct MovedRanges(VecDeque<MovedRange>);

impl MovedRanges {
    /// Adds one; the oldest of too many is forgotten.
    pub(crate) fn add(&mut self, range: MovedRange) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(range);
    }

    /// All of them, the newest last.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &MovedRange> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the newest are remembered, and no more than some.
    #[test]
    fn the_oldest_are_forgotten() {
        let mut moved = MovedRanges::default();
        for number in 0..REMEMBERED + 3 {
            moved.add(MovedRange {
                from: vec![number as u8],
                to: None,
                up: true,
                benefit: 1.0,
                cost: 1.0,
                runs: 2,
                bytes: 1,
            });
        }
        assert_eq!(moved.iter().count(), REMEMBERED);
        assert_eq!(moved.iter().next().map(|range| range.from[0]), Some(3));
    }
}
