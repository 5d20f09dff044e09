//! The one source of randomness: a small seeded generator.
//!
//! Source: SplitMix64 for seeding and xoshiro256++ for the stream (Blackman and Vigna). Not for
//! secrets.

/// A seeded pseudo-random number generator. The same seed gives the same stream on every machine.
#[derive(Clone, Debug)]
pub struct Prng {
    state: [u64; 4],
}

impl Prng {
    /// A generator whose stream is fixed by `seed`.
    pub fn new(seed: u64) -> Self {
        let mut x = seed;
        let state = std::array::from_fn(|_| {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = x;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        });
        Self { state }
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `bound`, which must not be 0. The bias is below 2^-32 for bounds below 2^32.
    #[cfg(any(test, feature = "sim"))]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a random number below 0 does not exist");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True `numerator` times in `denominator`.
    #[cfg(any(test, feature = "sim"))]
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// An independent generator, fixed by this one's state.
    #[cfg(any(test, feature = "sim"))]
    pub fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }

    /// 64 bits that no other store has, for its uuid, its lineage and its hash seed. They come from
    /// the operating system, the clock and the process, which differ where a program was forked, or
    /// in simulation from the seed and the count of those drawn before.
    #[expect(clippy::disallowed_types, reason = "it hashes nothing: its keys are wanted")]
    pub(crate) fn entropy() -> u64 {
        use std::hash::{BuildHasher, Hasher, RandomState};
        crate::base::sched::virtual_entropy().unwrap_or_else(|| {
            // Each has keys of its own, of the operating system's entropy.
            let random = RandomState::new().build_hasher().finish();
            let now = crate::base::clock::unix_nanos();
            Self::new(random ^ now ^ (u64::from(std::process::id()) << 17)).next_u64()
        })
    }
}
