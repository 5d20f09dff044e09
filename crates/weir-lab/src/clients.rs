//! The options of those who use a store during a run: groups of readers and of writers, by name.
//!
//! A run may have any number of groups, and a phase says which of them are at work. The group
//! called `main` draws from the seed itself, every other one from the seed and its name: a group
//! that comes or goes changes no key of another. Not here: what they do (`workload`), which keys
//! they choose (`choice`), when (`phases`).

use std::collections::BTreeMap;

use serde::Deserialize;
use weir_bench::Prng;

/// The group whose random numbers are those of the seed itself, and whose updates `latest_*` reads.
pub const MAIN: &str = "main";

/// Groups of readers, by name.
pub type Readers = BTreeMap<String, Reads>;

/// Groups of writers, by name.
pub type Writers = BTreeMap<String, Writes>;

/// A group of readers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reads {
    /// Number of readers; 0: none.
    pub threads: usize,
    /// When the next operation begins.
    #[serde(rename = "loop")]
    pub pace: Loop,
    /// Operations of all readers of the group together per virtual second, in an open loop; 0 in a
    /// closed one.
    pub per_second: f64,
    /// What they do.
    pub kind: ReadKind,
    /// Which keys they choose.
    pub choice: ReadChoice,
    /// How many of the keys that were written last before the measured part count as recent, for
    /// `latest_*`; at most as many as were written. Scaled.
    pub recent_keys: u64,
    /// The skew of `zipfian` and `latest_zipfian`.
    pub zipf_theta: f64,
    /// The hot range's part of all keys, for `range_hot`.
    pub hot_keys: f64,
    /// The reads' part that goes to it.
    pub hot_reads: f64,
    /// Virtual seconds after which the hot range is at another place, again and again; 0: never.
    /// Scaled.
    pub hot_moves_seconds: f64,
    /// Bytes that one scan covers; divided by the scale if `scan_scaled`.
    pub scan_bytes: u64,
    /// Whether `scan_bytes` are divided by the scale.
    pub scan_scaled: bool,
    /// Virtual processor time of a read, beside what it waits for.
    pub cpu_nanos: u64,
    /// As much per entry that a scan passes.
    pub entry_cpu_nanos: u64,
}

/// A group of writers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Writes {
    /// Number of writers; 0: none.
    pub threads: usize,
    /// When the next operation begins.
    #[serde(rename = "loop")]
    pub pace: Loop,
    /// Operations of all writers of the group together per virtual second, in an open loop; 0 in a
    /// closed one.
    pub per_second: f64,
    /// What they do.
    pub kind: WriteKind,
    /// Which keys they choose.
    pub choice: WriteChoice,
    /// The skew of `zipfian`.
    pub zipf_theta: f64,
    /// Virtual processor time of a write.
    pub cpu_nanos: u64,
}

/// When a client begins its next operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loop {
    /// When the one before is done.
    Closed,
    /// When it is due, by a rate, or as soon after that as a client of the group is free: the time
    /// that it waited for one counts as a part of its latency.
    Open,
}

/// What readers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadKind {
    /// Point reads.
    Get,
    /// Range reads.
    Scan,
    /// YCSB's mix A: half of the operations update.
    YcsbA,
    /// A twentieth updates.
    YcsbB,
    /// Point reads only.
    YcsbC,
    /// A twentieth inserts, and what was inserted last is read most.
    YcsbD,
    /// Scans, and a twentieth inserts.
    YcsbE,
    /// Half of the operations read, modify and write.
    YcsbF,
}

/// Which keys readers choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadChoice {
    /// Any.
    Uniform,
    /// The next one in key order; a scan begins where the one before it ended.
    Sequential,
    /// The first key that is not deleted; a scan begins before all keys, as who takes from a queue
    /// does not know which are gone.
    Front,
    /// The last keys, as many as a scan passes.
    Back,
    /// Popular keys, which do not lie together.
    Zipfian,
    /// Keys of one range most of the time.
    RangeHot,
    /// Any of those that were written last before the measured part.
    LatestUniform,
    /// The same; the later one was written, the more popular it is. What is written during the
    /// measured part changes no popularity.
    LatestZipfian,
    /// Those that were written last in one range.
    LatestRangeHot,
}

/// What writers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteKind {
    /// Writes keys that were loaded.
    Update,
    /// Writes new keys.
    Insert,
    /// Deletes keys.
    Delete,
}

/// Which keys writers choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteChoice {
    /// Any: of the loaded keys for updates, of the key space for inserts.
    Uniform,
    /// Popular keys, which do not lie together, for updates.
    Zipfian,
    /// The next one in key order, for updates and inserts; what is inserted lies behind all keys.
    Sequential,
    /// The key that was loaded or inserted first, for deletes: a queue.
    Oldest,
}

/// The seed that the group `name` draws from.
#[must_use]
pub fn seed_of(name: &str, seed: u64) -> u64 {
    if name == MAIN {
        return seed;
    }
    // FNV-1a.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    Prng::new(seed, hash).next_u64()
}

/// That a group's rate fits its loop, and that a closed one takes time.
fn check_pace(pace: Loop, per_second: f64, cpu_nanos: u64) -> Result<(), String> {
    match pace {
        Loop::Closed if cpu_nanos == 0 => {
            Err("cpu_nanos is 0 in a closed loop, which would never end".into())
        }
        Loop::Closed if per_second != 0.0 => {
            Err(format!("per_second is {per_second} in a closed loop: say 0, or loop = \"open\""))
        }
        Loop::Open if !per_second.is_finite() || per_second <= 0.0 => {
            Err(format!("per_second is {per_second} in an open loop: say threads = 0 for none"))
        }
        _ => Ok(()),
    }
}

/// That a skew can be drawn.
fn check_theta(zipf_theta: f64) -> Result<(), String> {
    if zipf_theta > 0.0 && zipf_theta < 1.0 {
        return Ok(());
    }
    Err(format!("zipf_theta is {zipf_theta}: choose a number above 0 and below 1"))
}

impl Reads {
    /// Whether recent keys are read.
    #[must_use]
    pub fn is_latest(&self) -> bool {
        use ReadChoice::{LatestRangeHot, LatestUniform, LatestZipfian};
        matches!(self.choice, LatestUniform | LatestZipfian | LatestRangeHot)
    }

    /// That what is read has been written: `loaded` keys, and `written` updates before the measured
    /// part.
    ///
    /// # Errors
    /// What does not fit together, as a sentence.
    pub fn check(&self, loaded: u64, written: u64) -> Result<(), String> {
        check_pace(self.pace, self.per_second, self.cpu_nanos)?;
        check_theta(self.zipf_theta)?;
        let Self { hot_keys, hot_reads, hot_moves_seconds, .. } = self;
        if !(*hot_keys > 0.0 && *hot_keys <= 1.0) {
            return Err(format!("hot_keys is {hot_keys}: choose a number above 0, 1 at most"));
        }
        if !(0.0..=1.0).contains(hot_reads) {
            return Err(format!("hot_reads is {hot_reads}: choose a number from 0 to 1"));
        }
        if !hot_moves_seconds.is_finite() || *hot_moves_seconds < 0.0 {
            return Err(format!(
                "hot_moves_seconds is {hot_moves_seconds}: choose 0 for never, or a number above"
            ));
        }
        if self.threads > 0 && loaded == 0 {
            return Err("load.keys is 0: there is nothing to read".into());
        }
        if self.is_latest() && self.threads > 0 && !(1..=written).contains(&self.recent_keys) {
            return Err(format!(
                "recent_keys is {}, and load.updates and the writers {MAIN:?} write {written} keys \
                 before the measured part: choose a number from 1 to that",
                self.recent_keys
            ));
        }
        Ok(())
    }
}

impl Writes {
    /// Whether it writes as `load.updates` do, so that its keys are known by their numbers.
    #[must_use]
    pub fn is_uniform_update(&self) -> bool {
        (self.kind, self.choice) == (WriteKind::Update, WriteChoice::Uniform)
    }

    /// That there is something to write, by a choice that makes sense.
    ///
    /// # Errors
    /// What does not fit together, as a sentence.
    pub fn check(&self, loaded: u64) -> Result<(), String> {
        use WriteChoice::{Oldest, Sequential, Uniform, Zipfian};
        check_pace(self.pace, self.per_second, self.cpu_nanos)?;
        check_theta(self.zipf_theta)?;
        let choices: &[WriteChoice] = match self.kind {
            WriteKind::Update => &[Uniform, Zipfian, Sequential],
            WriteKind::Insert => &[Uniform, Sequential],
            WriteKind::Delete => &[Oldest],
        };
        if !choices.contains(&self.choice) {
            let (kind, choice) = (self.kind, self.choice);
            return Err(format!("{kind:?} goes with one of {choices:?}, not with {choice:?}"));
        }
        if self.threads > 0 && loaded == 0 && self.kind == WriteKind::Update {
            return Err("load.keys is 0: there is nothing to update".into());
        }
        Ok(())
    }
}
