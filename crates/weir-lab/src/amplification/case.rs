//! What is measured: a policy, a ratio and a number of write buffers.

use weir::CompactionPolicy;

/// How far a number may be from what is expected of it: 15 %.
pub const TOLERANCE: f64 = 0.15;

/// What is measured on one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The policy.
    pub policy: CompactionPolicy,
    /// The ratio T: of levels of one run, or the runs that make a level full.
    pub t: u32,
    /// Write buffers of unique keys that fill the store: N / M.
    pub buffers: u64,
    /// Write buffers of overwritten keys that are counted, after `buffers` that are not; 0: none.
    pub overwrites: u64,
}

impl Case {
    /// Such as `tiered T 4 N/M 256`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{} T {} N/M {}", self.policy, self.t, self.buffers)
    }

    /// All write buffers that it flushes.
    #[must_use]
    pub fn flushes(&self) -> u64 {
        self.buffers + if self.overwrites > 0 { self.buffers + self.overwrites } else { 0 }
    }
}

/// The cases that the documentation shows.
#[must_use]
pub fn cases() -> Vec<Case> {
    let [leveled, tiered, lazy_leveled, size_tiered, stepped_merge, gear, two_phase] =
        CompactionPolicy::ALL;
    let mut cases = Vec::new();
    let mut add = |policies: &[CompactionPolicy], t, buffers, overwrites| {
        cases.extend(policies.iter().map(|&policy| Case { policy, t, buffers, overwrites }));
    };
    add(&[tiered, stepped_merge, size_tiered, lazy_leveled], 4, 1024, 0);
    add(&[tiered, stepped_merge, size_tiered, lazy_leveled], 10, 1000, 0);
    add(&[tiered, stepped_merge, size_tiered, lazy_leveled], 4, 256, 1024);
    // No powers of T.
    add(&[tiered], 4, 600, 0);
    add(&[lazy_leveled], 4, 384, 1024);
    add(&[leveled, gear, two_phase], 4, 256, 512);
    add(&[leveled, gear, two_phase], 10, 250, 500);
    cases
}
