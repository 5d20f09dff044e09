//! How the outputs of a merge are cut where a table is to fill a slot, and what becomes of the
//! last one.

use std::fmt;
use std::str::FromStr;

use super::compaction::CompactionPolicy;
use crate::base::error::{Error, Result};

/// How merges cut their outputs where a slot is as large as a table: each with its filter, its
/// index and the slot's trailer in one slot, unless one key's entries are more. The last output of
/// a merge is what is left over, LDS' *odd chunk*, and wastes the rest of its slot (LDS §3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OddChunk {
    /// Outputs are cut near [`table_bytes`](field@super::Options::table_bytes), also before it to
    /// end where a table below them ends: for slots that are much smaller than tables.
    #[default]
    Off,
    /// Every output but the last is as large as its slot.
    Plain,
    /// All outputs of a merge have about the same size.
    Balanced,
    /// As `Plain`, and the last output of a merge from level n into the next stays in level n, to
    /// be merged with its neighbour, where that is safe: it overlaps no other table of level n, is
    /// at most half of what the merge took from there, and is not the only one. For
    /// [`leveled`](CompactionPolicy::Leveled). Costs merging it once more.
    Upper,
}

names! {
    OddChunk, "way with an odd chunk":
    Off "off", Plain "plain", Balanced "balanced", Upper "upper"
}

impl OddChunk {
    /// Whether merges of this policy can have it.
    #[must_use]
    pub fn suits(self, policy: CompactionPolicy) -> bool {
        self != Self::Upper || matches!(policy, CompactionPolicy::Leveled(_))
    }

    pub(super) fn validate(self, policy: CompactionPolicy) -> Result<()> {
        if self.suits(policy) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "odd_chunk is {self}, which needs levels of one run each, and {policy} has others; \
             choose leveled, or plain or balanced"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{DebugOptions, Options};

    /// Goal: what does nothing is refused with what would do something; a table fits its slot
    /// beside the trailer, whatever the cache has.
    #[test]
    fn it_suits_policies_and_fits_slots() {
        for odd_chunk in OddChunk::ALL {
            assert_eq!(odd_chunk.name().parse::<OddChunk>().unwrap(), odd_chunk);
            for policy in CompactionPolicy::ALL {
                let debug = DebugOptions::default().odd_chunk(odd_chunk);
                let options = Options::default().table_bytes(4 << 20).debug(debug);
                let options = options.compaction(policy);
                let valid = options.validate();
                assert_eq!(valid.is_ok(), odd_chunk.suits(policy), "{odd_chunk} {policy}");
                if let Err(error) = valid {
                    assert!(error.to_string().contains("plain or balanced"), "{error}");
                }
                let room = (odd_chunk != OddChunk::Off).then_some((4 << 20) - 4096);
                assert_eq!(options.slot_room(), room);
                assert_eq!(options.table_bytes_beside(0), room.unwrap_or(4 << 20));
                assert_eq!(options.table_bytes_beside(1), room.unwrap_or(2 << 20));
            }
        }
    }
}
