//! Ghosts: which blocks left a shard lately, so that one that comes back soon is known.
//!
//! A table of hashes in groups of four, each with the number of the departure that it stands for.
//! A ghost fades after two departures for every five blocks that the shard has: with as many as it
//! has blocks, what a scan and rare keys leave is taken for what is used (`weir-lab cache-race`: 3
//! points less for reads beside a scan). A group that is full loses its
//! oldest ghost, and two blocks in 2^30 have the same hash: both only place a block in the wrong
//! queue. One owner, under the shard's lock.

/// Places of a group.
const GROUP: usize = 4;

/// Fewest places of a table.
const PLACES_MIN: usize = 64;

#[derive(Clone, Copy, Default)]
struct Ghost {
    hash: u32,
    /// Of its departure; 0: there is none.
    number: u32,
}

/// Ghosts for so many of a shard's blocks: 2 / 5.
fn lifetime(blocks: usize) -> u32 {
    u32::try_from(blocks * 2 / 5).unwrap_or(u32::MAX)
}

/// Most bytes of ghosts per block of a shard: a table grows when the ghosts take four fifths of its
/// places, to at most two and a half for each.
pub(super) const GHOST_BYTES: usize = size_of::<Ghost>();

/// See the module.
pub(super) struct Ghosts {
    places: Vec<Ghost>,
    departures: u32,
}

impl Ghosts {
    pub(super) fn new() -> Self {
        Self { places: vec![Ghost::default(); PLACES_MIN], departures: 0 }
    }

    /// Notes that the block with this hash left a shard that has `blocks`.
    pub(super) fn add(&mut self, hash: u32, blocks: usize) {
        let ghosts = lifetime(blocks) as usize;
        if ghosts > self.places.len() / 5 * 4 {
            self.grow(ghosts);
        }
        // It begins again after 2^32 departures, and forgets what was before.
        if self.departures == u32::MAX {
            *self = Self { departures: 0, places: vec![Ghost::default(); self.places.len()] };
        }
        self.departures += 1;
        let ghost = Ghost { hash, number: self.departures };
        put(&mut self.places, ghost);
    }

    /// Whether a block with this hash left lately; it is forgotten then. `blocks` as in `add`.
    pub(super) fn take(&mut self, hash: u32, blocks: usize) -> bool {
        let oldest = self.departures.saturating_sub(lifetime(blocks));
        let group = group_of(&mut self.places, hash);
        let found = group.iter_mut().find(|ghost| ghost.number > oldest && ghost.hash == hash);
        found.map(|ghost| ghost.number = 0).is_some()
    }

    #[cold]
    fn grow(&mut self, ghosts: usize) {
        let places = (ghosts * 5 / 4 + 1).next_power_of_two().max(self.places.len());
        let old = std::mem::replace(&mut self.places, vec![Ghost::default(); places]);
        for ghost in old.into_iter().filter(|ghost| ghost.number > 0) {
            put(&mut self.places, ghost);
        }
    }
}

/// The group of a hash: by its upper bits.
fn group_of(places: &mut [Ghost], hash: u32) -> &mut [Ghost] {
    let groups = places.len() / GROUP;
    let group = ((u64::from(hash) * groups as u64) >> u32::BITS) as usize;
    &mut places[group * GROUP..(group + 1) * GROUP]
}

/// Puts a ghost in place of the oldest of its group.
fn put(places: &mut [Ghost], ghost: Ghost) {
    let group = group_of(places, ghost.hash);
    if let Some(oldest) = group.iter_mut().min_by_key(|ghost| ghost.number) {
        *oldest = ghost;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::prng::Prng;

    /// Goal: a ghost is known as long as it lives, once, and fades in time; growing forgets none.
    /// Method: against a list of departures; a full group may lose one, which is counted.
    #[test]
    fn against_a_list() {
        let seed = 0x6057;
        println!("seed {seed:#x}");
        let mut prng = Prng::new(seed);
        for blocks in [0, 10, 100, 5000] {
            let mut ghosts = Ghosts::new();
            let mut list: Vec<u32> = Vec::new();
            let (mut known, mut lost) = (0, 0);
            for _ in 0..20_000 {
                let hash = prng.below(2 * blocks as u64 + 2) as u32;
                let hash = hash.wrapping_mul(0x9e37_79b9);
                let alive = list.len().saturating_sub(lifetime(blocks) as usize);
                let at = list.iter().rposition(|held| *held == hash).filter(|at| *at >= alive);
                let is_known = ghosts.take(hash, blocks);
                assert!(!is_known || at.is_some(), "a ghost of what did not leave lately");
                known += usize::from(is_known);
                lost += usize::from(!is_known && at.is_some());
                // Its number is its place in the list: nothing is removed.
                list.iter_mut().filter(|held| **held == hash).for_each(|held| *held = u32::MAX);
                if prng.below(2) == 0 {
                    ghosts.add(hash, blocks);
                    list.push(hash);
                }
            }
            assert!(lost * 10 <= known, "{lost} lost, {known} known of {blocks} blocks");
            assert!(blocks < 10 || known > 100, "{known} known of {blocks} blocks");
            let bytes = ghosts.places.len() * size_of::<Ghost>();
            assert!(bytes <= (PLACES_MIN * size_of::<Ghost>()).max(blocks * GHOST_BYTES));
        }
    }
}
