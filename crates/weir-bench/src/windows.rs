//! What happened in each second of a workload.
//!
//! Clients keep the latencies of the second that they are in and leave them for all when it is
//! over; a thread of its own asks the engine and the operating system once a second.

use crate::engine::Engine;
use crate::process::{ProcessIo, anonymous_bytes};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const SECOND_NANOS: u64 = 1_000_000_000;
/// Latencies are told apart up to a minute, to two digits: a histogram then takes 50 KiB, so that a
/// store with little memory is not measured beside its own measurements.
const LATENCY_MAX_NANOS: u64 = 60 * SECOND_NANOS;

/// One second of a workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Reads that ended in it: lookups and scans.
    pub reads: u64,
    /// 99 of 100 reads took at most so many microseconds.
    pub p99_us: f64,
    /// 999 of 1,000 did.
    pub p999_us: f64,
    /// Part of the users' block reads that the engine's cache answered, if the engine counts them.
    pub hit_ratio: Option<f64>,
    /// Bytes that the process fetched from the storage layer, for every cause.
    pub read_bytes: Option<u64>,
    /// Anonymous memory of the process at its end.
    pub anonymous_bytes: Option<u64>,
}

/// Latencies of all clients, by the second in which a read or a scan ended.
#[derive(Default)]
pub(crate) struct Windows(Mutex<Vec<Histogram<u64>>>);

/// One client's second.
pub(crate) struct ClientWindow {
    second: u64,
    latencies: Histogram<u64>,
}

/// What the engine and the system counted up to a moment.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counted {
    hits_and_misses: Option<(u64, u64)>,
    read_bytes: Option<u64>,
    anonymous_bytes: Option<u64>,
}

fn histogram() -> Histogram<u64> {
    #[expect(clippy::expect_used, reason = "constants within hdrhistogram's range")]
    Histogram::new_with_max(LATENCY_MAX_NANOS, 2).expect("bounds and digits are valid")
}

impl ClientWindow {
    pub(crate) fn new() -> Self {
        Self { second: 0, latencies: histogram() }
    }

    /// A read that took `elapsed` nanoseconds ended `now`.
    pub(crate) fn record(&mut self, now: u64, elapsed: u64, all: &Windows) {
        if now / SECOND_NANOS != self.second {
            self.leave(all);
            self.second = now / SECOND_NANOS;
        }
        self.latencies.saturating_record(elapsed);
    }

    /// Leaves what it holds for all.
    pub(crate) fn leave(&mut self, all: &Windows) {
        let mut all = all.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = usize::try_from(self.second).unwrap_or(usize::MAX);
        while all.len() <= place {
            all.push(histogram());
        }
        if let Some(window) = all.get_mut(place) {
            // Of equal ranges: it cannot fail.
            let _ = window.add(&self.latencies);
        }
        self.latencies.reset();
    }
}

impl Counted {
    fn now(engine: &dyn Engine) -> Self {
        let counters = engine.counters();
        Self {
            hits_and_misses: counters.cache_hits.zip(counters.cache_misses),
            read_bytes: ProcessIo::now().map(|io| io.read_bytes),
            anonymous_bytes: anonymous_bytes(),
        }
    }
}

/// Counts at the beginning and after each second by `nanos`, until `is_over`.
pub(crate) fn count(
    engine: &dyn Engine,
    nanos: impl Fn() -> u64,
    is_over: impl Fn() -> bool,
) -> Vec<Counted> {
    const PAUSE_NANOS: u64 = 5_000_000;
    let mut counted = vec![Counted::now(engine)];
    while !is_over() {
        let due = counted.len() as u64 * SECOND_NANOS;
        let early = due.saturating_sub(nanos());
        if early == 0 {
            counted.push(Counted::now(engine));
        } else {
            std::thread::park_timeout(Duration::from_nanos(early.min(PAUSE_NANOS)));
        }
    }
    counted
}

impl Windows {
    /// Every second that was counted to its end.
    pub(crate) fn end(self, counted: &[Counted]) -> Vec<Window> {
        let latencies = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let since = |after: Option<u64>, before: Option<u64>| Some(after?.saturating_sub(before?));
        let window = |(latencies, between): (&Histogram<u64>, &[Counted])| {
            let &[before, after] = between else { return Window::default() };
            let micros = |quantile| latencies.value_at_quantile(quantile) as f64 / 1000.0;
            let hit_ratio = after.hits_and_misses.zip(before.hits_and_misses).and_then(|(a, b)| {
                let (hits, misses) = (a.0.saturating_sub(b.0), a.1.saturating_sub(b.1));
                (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64)
            });
            Window {
                reads: latencies.len(),
                p99_us: micros(0.99),
                p999_us: micros(0.999),
                hit_ratio,
                read_bytes: since(after.read_bytes, before.read_bytes),
                anonymous_bytes: after.anonymous_bytes,
            }
        };
        latencies.iter().zip(counted.windows(2)).map(window).collect()
    }
}
