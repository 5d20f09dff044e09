//! Where an output table ends: at a user-key change, near its size, and in step with the level
//! below.
//!
//! Source: LevelDB's `ShouldStopBefore` (overlap with the level below the output is bounded);
//! Spooky (Dayan et al., VLDB 2022): an output that ends where a table below it ends drags no
//! half-covered table into its own compaction later.
//!
//! Invariants: (1) a cut is never between two entries of one user key (H40); (2) an output overlaps
//! at most `below_bytes_max` and one table of what lies below; (3) an output that could have been
//! cut ends at `table_bytes` and one block, or one user key's entries if these are more; (4) of
//! outputs that fit slots it ends at `table_bytes`, and no sooner than it has to.

use crate::base::key;
use crate::compaction::policy::{Below, Plan};

/// An output may end this much before its size, in parts of it, to end where a table below it ends.
const ALIGN_NUMERATOR: u64 = 4;
const ALIGN_DENOMINATOR: u64 = 5;

/// Decides, key by key, where outputs end. Keys must ascend.
pub(crate) struct Cutter {
    table_bytes: u64,
    fits: bool,
    below_bytes_max: u64,
    below: Vec<Below>,
    /// Index of the first table below that does not end before the last key.
    at: usize,
    /// Head of that table's largest key, all ones if there is none: decides all but ties.
    at_prefix: u64,
    /// Bytes of the tables below that the output has met and left behind.
    passed_bytes: u64,
    /// A table below ended between the last key and the one before.
    crossed: bool,
}

impl Cutter {
    /// A cutter for a plan.
    pub(crate) fn new(plan: Plan) -> Self {
        debug_assert!(plan.below.is_sorted_by(|a, b| a.largest < b.smallest), "{:?}", plan.below);
        let mut cutter = Self {
            table_bytes: plan.table_bytes.max(1),
            fits: plan.fits,
            below_bytes_max: plan.below_bytes_max,
            below: plan.below,
            at: 0,
            at_prefix: u64::MAX,
            passed_bytes: 0,
            crossed: false,
        };
        cutter.at_prefix = cutter.prefix_at();
        cutter
    }

    fn prefix_at(&self) -> u64 {
        self.below.get(self.at).map_or(u64::MAX, |table| key::prefix(&table.largest))
    }

    /// Whether the output that `last_key` was added to last, and has `output_bytes`, ends before
    /// `key`; of outputs that fit slots, `output_bytes` counts the entry of `key` too. Called for
    /// every entry, once, in order; `last_key` is `None` at the start of an output.
    #[inline]
    pub(crate) fn ends_before(
        &mut self,
        key: &[u8],
        last_key: Option<&[u8]>,
        output_bytes: u64,
    ) -> bool {
        if self.at < self.below.len() && key::prefix(key) >= self.at_prefix {
            self.pass_tables(key);
        }
        let Some(last_key) = last_key else {
            self.start_output();
            return false;
        };
        if !self.is_full(output_bytes) && !self.crossed {
            return false;
        }
        let ends = last_key != key && self.is_good_end(output_bytes);
        if ends {
            self.start_output();
        }
        ends
    }

    /// Leaves the tables below behind that end before `key`.
    fn pass_tables(&mut self, key: &[u8]) {
        while let Some(table) = self.below.get(self.at) {
            if key::compare(&table.largest, key).is_ge() {
                break;
            }
            self.passed_bytes += table.bytes;
            self.crossed = true;
            self.at += 1;
        }
        self.at_prefix = self.prefix_at();
    }

    fn is_full(&self, output_bytes: u64) -> bool {
        if self.fits { output_bytes > self.table_bytes } else { output_bytes >= self.table_bytes }
    }

    fn is_good_end(&mut self, output_bytes: u64) -> bool {
        let aligned = std::mem::take(&mut self.crossed)
            && !self.fits
            && output_bytes >= self.table_bytes / ALIGN_DENOMINATOR * ALIGN_NUMERATOR;
        aligned || self.is_full(output_bytes) || self.passed_bytes > self.below_bytes_max
    }

    fn start_output(&mut self) {
        self.passed_bytes = 0;
        self.crossed = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(below: &[(&str, &str, u64)]) -> Plan {
        let table = |&(smallest, largest, bytes): &(&str, &str, u64)| Below {
            smallest: smallest.into(),
            largest: largest.into(),
            bytes,
        };
        let below = below.iter().map(table).collect();
        Plan { below_bytes_max: 30, below, ..Plan::of_bytes(10) }
    }

    /// The outputs, as strings of one-byte keys of 1 byte each, that a cutter makes of `keys`.
    fn outputs(plan: Plan, keys: &str) -> Vec<String> {
        let next_bytes = usize::from(plan.fits);
        let mut cutter = Cutter::new(plan);
        let mut outputs: Vec<String> = vec![String::new()];
        for key in keys.bytes() {
            let last = outputs.last_mut().expect("there is one");
            let last_key = last.as_bytes().last().map(std::slice::from_ref);
            if cutter.ends_before(&[key], last_key, (last.len() + next_bytes) as u64) {
                outputs.push(String::new());
            }
            outputs.last_mut().expect("there is one").push(key as char);
        }
        outputs
    }

    #[test]
    fn at_its_size() {
        assert_eq!(
            outputs(plan(&[]), "abcdefghijklmnopqrstuvwxyz"),
            ["abcdefghij", "klmnopqrst", "uvwxyz"]
        );
    }

    /// docs/hazards.md, bug 1 (LevelDB #320): one user key in two tables of a level.
    #[test]
    fn never_inside_a_user_key() {
        assert_eq!(
            outputs(plan(&[]), "abcdefghiiiiiiiiiiijklmnopqrstu"),
            ["abcdefghiiiiiiiiiii", "jklmnopqrs", "tu"]
        );
        assert_eq!(outputs(plan(&[]), "aaaaaaaaaaaaaaaa"), ["aaaaaaaaaaaaaaaa"]);
    }

    #[test]
    fn where_a_table_below_ends_if_that_is_near() {
        let below = plan(&[("a", "h", 1), ("k", "n", 1), ("o", "z", 1)]);
        assert_eq!(
            outputs(below, "abcdefghijklmnopqrstuvwxyz"),
            ["abcdefgh", "ijklmnopqr", "stuvwxyz"]
        );
    }

    /// Goal: a slot is filled, whatever lies below, unless that is too much; one key's entries stay
    /// together all the same.
    #[test]
    fn at_the_end_of_a_slot() {
        let plan = |below| Plan { fits: true, ..plan(below) };
        let below = plan(&[("a", "h", 1), ("k", "n", 1), ("o", "z", 1)]);
        assert_eq!(
            outputs(below, "abcdefghijklmnopqrstuvwxyz"),
            ["abcdefghij", "klmnopqrst", "uvwxyz"]
        );
        let below = plan(&[("a", "a", 20), ("b", "b", 20), ("c", "z", 20)]);
        assert_eq!(outputs(below, "abcdefghijklmn"), ["ab", "cdefghijkl", "mn"]);
        assert_eq!(outputs(plan(&[]), "abcdefghiiiijk"), ["abcdefghiiii", "jk"]);
    }

    #[test]
    fn before_it_overlaps_too_much_below() {
        let below = plan(&[("a", "a", 20), ("b", "b", 20), ("c", "c", 20), ("d", "z", 20)]);
        assert_eq!(outputs(below, "abcdefgh"), ["ab", "cdefgh"]);
    }

    /// What was passed before an output began does not count for it.
    #[test]
    fn only_what_the_output_itself_overlaps_counts() {
        let below = plan(&[("a", "c", 1000), ("x", "z", 1000)]);
        assert_eq!(outputs(below, "efghijkl"), ["efghijkl"]);
    }
}
