//! What runs have exercised: a run that passed says little if it did nothing.

/// What a run has exercised.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Operations executed.
    pub ops: u64,
    /// Keys compared with the oracle.
    pub compared: u64,
    /// Memtables flushed.
    pub flushes: u64,
    /// Merges done, trivial moves not counted.
    pub merges: u64,
    /// Stretches of merges installed.
    pub stretches: u64,
    /// Sentinels built.
    pub sentinels: u64,
    /// Lookups that buffer lists answered.
    pub of_lists: u64,
    /// Tables trimmed from them.
    pub trimmed: u64,
    /// Largest number of levels that held tables at once in one keyspace.
    pub levels: u64,
    /// Reads through snapshots that are older than a merge.
    pub old_reads: u64,
    /// Stores opened again, by [`Leave`](crate::op::Leave).
    pub reopens: [u64; 4],
    /// Values refused because they exceed the limit of the options.
    pub refused: u64,
    /// Calls refused because the device was full.
    pub full: u64,
    /// Such writes that the store took once there was room.
    pub resumed: u64,
    /// Reopenings that gave the default keyspace another policy.
    pub switches: Switches,
}

impl Counters {
    /// Adds another run's counters.
    pub fn add(&mut self, other: &Self) {
        self.ops += other.ops;
        self.compared += other.compared;
        self.flushes += other.flushes;
        self.merges += other.merges;
        self.stretches += other.stretches;
        self.sentinels += other.sentinels;
        self.of_lists += other.of_lists;
        self.trimmed += other.trimmed;
        self.levels = self.levels.max(other.levels);
        self.old_reads += other.old_reads;
        self.refused += other.refused;
        self.full += other.full;
        self.resumed += other.resumed;
        self.switches.add(&other.switches);
        for (a, b) in self.reopens.iter_mut().zip(other.reopens) {
            *a += b;
        }
    }
}

/// How often a tree got another policy at a reopening, and what it was like then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// All.
    pub all: u64,
    /// Those where the store was left while a compaction ran.
    pub merging: u64,
    /// Those with a part that drained.
    pub draining: u64,
    /// Those that were not in the form that the new options demand.
    pub foreign: u64,
    /// Trees that had nothing left to do and were in form.
    pub settled: u64,
    /// Merges between a reopening and the end of the settling that followed, at most.
    pub settling_merges_max: u64,
}

impl Switches {
    /// Adds another run's counts.
    pub fn add(&mut self, other: &Self) {
        self.all += other.all;
        self.merging += other.merging;
        self.draining += other.draining;
        self.foreign += other.foreign;
        self.settled += other.settled;
        self.settling_merges_max = self.settling_merges_max.max(other.settling_merges_max);
    }
}
