//! The engines that are compared, each behind `weir_bench`'s `Engine`.
//!
//! An adapter translates and nothing more. What each row of settings means for each engine stands
//! in docs/benchmarks.md.

mod fjall;
mod leveldb;
mod leveldb_sys;
mod lmdb;
#[cfg(feature = "rocksdb")]
mod rocksdb;

use std::str::FromStr;
use std::time::Duration;
use weir::{CompactionPolicy, HotRanges, Options, SentinelOptions, WarmUp};
use weir_bench::{EngineKind, WeirKind};

/// The engine that the others are compared with.
pub const OWN: &str = "weir";

/// Every engine, in the order in which they are shown.
pub fn all() -> Vec<Box<dyn EngineKind>> {
    vec![
        Box::new(WeirKind::default()),
        #[cfg(feature = "rocksdb")]
        Box::new(rocksdb::Kind::default()),
        Box::new(leveldb::Kind::default()),
        Box::new(fjall::Kind),
    ]
}

/// What is compared only if it is named: other settings of an engine (what the cache of a store
/// gets from flushes and merges, and hot ranges that are moved), and an engine of another kind.
pub fn variants() -> Vec<Box<dyn EngineKind>> {
    let weir = |variant: &'static str, warm_up| {
        let tree = Options::default().warm_up(warm_up);
        Box::new(WeirKind { variant: Some(variant.into()), tree, ..WeirKind::default() })
    };
    let moving = |variant: &'static str, ways| {
        let sentinels = SentinelOptions::default().ways(ways).window(WINDOW);
        let tree = Options::default().sentinels(sentinels);
        Box::new(WeirKind { variant: Some(variant.into()), tree, ..WeirKind::default() })
    };
    let on = Options::default().sentinels(SentinelOptions::default());
    let tiered = Options::default().compaction(CompactionPolicy::tiered());
    let up = SentinelOptions::default().ways(HotRanges::Up).window(WINDOW);
    let tiered_up = tiered.clone().sentinels(up);
    vec![
        Box::new(WeirKind {
            variant: Some("weir-tiered".into()),
            tree: tiered,
            ..WeirKind::default()
        }),
        Box::new(WeirKind {
            variant: Some("weir-tiered-up".into()),
            tree: tiered_up,
            ..WeirKind::default()
        }),
        Box::new(WeirKind { variant: Some("weir-on".into()), tree: on, ..WeirKind::default() }),
        moving("weir-up", HotRanges::Up),
        moving("weir-down", HotRanges::Down),
        weir("weir-none", WarmUp::None),
        weir("weir-incremental", WarmUp::Incremental),
        #[cfg(feature = "rocksdb")]
        Box::new(rocksdb::Kind { warms: rocksdb::Warms::Flushes, ..rocksdb::Kind::default() }),
        #[cfg(feature = "rocksdb")]
        Box::new(rocksdb::Kind { warms: rocksdb::Warms::All, ..rocksdb::Kind::default() }),
        #[cfg(feature = "rocksdb")]
        Box::new(rocksdb::Kind { cache_percent: 106, ..rocksdb::Kind::default() }),
        #[cfg(feature = "rocksdb")]
        Box::new(rocksdb::Kind { read_triggered: true, ..rocksdb::Kind::default() }),
        Box::new(lmdb::Kind),
    ]
}

/// LevelDB with tables of so many bytes.
pub fn leveldb(table_bytes: u64) -> Box<dyn EngineKind> {
    Box::new(leveldb::Kind { table_bytes: Some(table_bytes) })
}

/// The engine, or the variant of one, called `name`.
pub fn named(name: &str) -> Option<Box<dyn EngineKind>> {
    let known = all().into_iter().chain(variants()).find(|kind| kind.name() == name);
    known.or_else(|| by_policy_and_form(name))
}

/// Bytes of the file that a store on slots gets.
const SLOTS_BYTES: u64 = 4 << 30;

/// Weir with another policy, in slots, or both: `weir-POLICY`, `weir-slots`, `weir-POLICY-slots`.
fn by_policy_and_form(name: &str) -> Option<Box<dyn EngineKind>> {
    let rest = name.strip_prefix("weir-")?;
    let (policy, form) = match rest.rsplit_once('-') {
        None if rest == "slots" => (None, Some(rest)),
        None => (Some(rest), None),
        Some((policy, form)) => (Some(policy), Some(form)),
    };
    if form.is_some_and(|form| form != "slots") {
        return None;
    }
    let policy = policy.map(CompactionPolicy::from_str).transpose().ok()?.unwrap_or_default();
    Some(Box::new(WeirKind {
        variant: Some(name.to_owned().into()),
        tree: Options::default().compaction(policy),
        slots: form.map(|_| SLOTS_BYTES),
        ..WeirKind::default()
    }))
}

/// How long the variants that move hot ranges count before they decide.
const WINDOW: Duration = Duration::from_secs(4);

/// Name and version of every engine, for the report.
pub fn versions() -> Vec<(&'static str, String)> {
    vec![
        (OWN, env!("CARGO_PKG_VERSION").to_owned()),
        #[cfg(feature = "rocksdb")]
        ("rocksdb", env!("PEER_ROCKSDB_VERSION").to_owned()),
        ("leveldb", leveldb::version()),
        ("fjall", env!("PEER_FJALL_VERSION").to_owned()),
        ("lmdb", lmdb::version()),
    ]
}

/// How often an engine that cannot be waited for is asked whether it is idle.
const POLL: Duration = Duration::from_millis(10);
/// Answers in a row that must say so: between two jobs an engine looks idle for a moment.
const IDLE_ANSWERS: u32 = 3;

/// Waits until `is_idle` says so [`IDLE_ANSWERS`] times in a row.
fn wait_until_idle(mut is_idle: impl FnMut() -> bool) {
    let mut answers = 0;
    while answers < IDLE_ANSWERS {
        answers = if is_idle() { answers + 1 } else { 0 };
        std::thread::park_timeout(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a policy and a form make a name, and nothing else does.
    #[test]
    fn policies_and_forms_are_named() {
        for policy in CompactionPolicy::ALL {
            for name in [format!("weir-{policy}"), format!("weir-{policy}-slots")] {
                assert_eq!(named(&name).expect("it is known").name(), name);
            }
        }
        assert_eq!(named("weir-slots").expect("it is known").name(), "weir-slots");
        for name in ["weir-", "weir-slot", "weir--slots", "weir-tiered-", "weir-slots-tiered"] {
            assert!(named(name).is_none(), "{name}");
        }
    }
}
