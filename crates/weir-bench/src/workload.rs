//! The names of what can be done to a store.

use crate::engine::EngineError;
use std::fmt;
use std::str::FromStr;

/// A workload. The first are `db_bench`'s or kin to them, the last six are YCSB's core
/// workloads (Cooper et al., SoCC 2010).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Workload {
    /// Every key once, in key order, into an empty store.
    FillSeq,
    /// Every key once, in random order, into an empty store.
    FillRandom,
    /// Random keys into an empty store, each write durable before the next; a hundredth of the
    /// keys.
    FillSync,
    /// Writes to random keys of a loaded store.
    Overwrite,
    /// Reads of random keys that exist.
    ReadRandom,
    /// Reads of random keys that do not exist, between those that do.
    ReadMissing,
    /// Reads of random keys out of one per cent of the keys, which lie together.
    ReadHot,
    /// One scan over the whole store per thread.
    ReadSeq,
    /// Short scans from random positions.
    SeekRandom,
    /// Reads of random keys while one more thread writes random keys.
    ReadWhileWriting,
    /// Reads, 98 % of them in a hot range of 15 % of the keys, while one more thread writes random
    /// keys (LSbM section 6.3, scaled).
    RangeHot,
    /// Scans from random positions in one per cent of the keys, which lie together, while one more
    /// thread writes random keys (BiLSM section 4, scaled).
    ScanHot,
    /// Half reads, half updates; scrambled Zipfian keys.
    YcsbA,
    /// 95 % reads, 5 % updates; scrambled Zipfian keys.
    YcsbB,
    /// Reads; scrambled Zipfian keys.
    YcsbC,
    /// 95 % reads of the latest keys, 5 % inserts.
    YcsbD,
    /// 95 % scans of 1 to 100 entries, 5 % inserts; scrambled Zipfian keys.
    YcsbE,
    /// Half reads, half read-modify-writes; scrambled Zipfian keys.
    YcsbF,
    /// A queue: the first entries are scanned and deleted, and as many are put behind the last. It
    /// takes away keys that the others look for, and is therefore one of the last.
    Queue,
    /// A window of time: an entry is put behind the last one, the oldest is deleted, and the newest
    /// are scanned. As [`Queue`](Self::Queue) it takes away keys that others look for.
    Window,
}

impl Workload {
    /// Every workload, in the order in which they make sense one after the other.
    pub const ALL: [Self; 20] = [
        Self::FillSeq,
        Self::FillSync,
        Self::FillRandom,
        Self::Overwrite,
        Self::ReadRandom,
        Self::ReadMissing,
        Self::ReadHot,
        Self::ReadSeq,
        Self::SeekRandom,
        Self::ReadWhileWriting,
        Self::RangeHot,
        Self::ScanHot,
        Self::YcsbA,
        Self::YcsbB,
        Self::YcsbC,
        Self::YcsbD,
        Self::YcsbE,
        Self::YcsbF,
        Self::Queue,
        Self::Window,
    ];

    /// The name in commands and results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::FillSeq => "fillseq",
            Self::FillRandom => "fillrandom",
            Self::FillSync => "fillsync",
            Self::Overwrite => "overwrite",
            Self::ReadRandom => "readrandom",
            Self::ReadMissing => "readmissing",
            Self::ReadHot => "readhot",
            Self::ReadSeq => "readseq",
            Self::SeekRandom => "seekrandom",
            Self::ReadWhileWriting => "readwhilewriting",
            Self::RangeHot => "rangehot",
            Self::ScanHot => "scanhot",
            Self::Queue => "queue",
            Self::Window => "window",
            Self::YcsbA => "ycsb-a",
            Self::YcsbB => "ycsb-b",
            Self::YcsbC => "ycsb-c",
            Self::YcsbD => "ycsb-d",
            Self::YcsbE => "ycsb-e",
            Self::YcsbF => "ycsb-f",
        }
    }

    /// Whether it starts from an empty store; the others need a loaded one.
    #[must_use]
    pub fn starts_empty(self) -> bool {
        matches!(self, Self::FillSeq | Self::FillRandom | Self::FillSync)
    }

    /// Whether it leaves every key of the configuration in the store.
    #[must_use]
    pub fn loads(self) -> bool {
        matches!(self, Self::FillSeq | Self::FillRandom)
    }

    /// Whether it takes keys of the configuration away: what comes next loads the store again.
    #[must_use]
    pub fn unloads(self) -> bool {
        matches!(self, Self::Queue | Self::Window)
    }

    /// Whether it changes the store: only then is there anything to drain.
    #[must_use]
    pub fn writes(self) -> bool {
        !matches!(
            self,
            Self::ReadRandom
                | Self::ReadMissing
                | Self::ReadHot
                | Self::ReadSeq
                | Self::SeekRandom
                | Self::YcsbC
        )
    }

    /// Whether it reads only keys that a loaded store has: a read that finds none tells that the
    /// store was loaded otherwise. The latest keys of `ycsb-d` may be on their way.
    #[must_use]
    pub fn reads_loaded_keys(self) -> bool {
        !matches!(self, Self::ReadMissing | Self::YcsbD)
    }

    /// Whether one more thread writes while the clients read.
    #[must_use]
    pub fn has_background_writer(self) -> bool {
        matches!(self, Self::ReadWhileWriting | Self::RangeHot | Self::ScanHot)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Workload {
    type Err = EngineError;

    fn from_str(text: &str) -> Result<Self, EngineError> {
        Self::ALL.into_iter().find(|w| w.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|w| w.name()).collect();
            EngineError::new(format!("{text:?} is no workload; choose from {}", names.join(" ")))
        })
    }
}
