//! One store under one sequence of workloads: opened, loaded where needed, run, measured, closed.

use crate::client::{self, Totals};
use crate::clock::Stopwatch;
use crate::config::{Config, OPS_UNLIMITED};
use crate::engine::{Counters, Engine, EngineError, EngineKind, Requests, Result, Settings};
use crate::process::{ProcessIo, anonymous_bytes, directory_bytes};
use crate::progress::{Phase, Progress};
use crate::report::{Latency, Measurement, ratio};
use crate::workload::Workload;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A store in a directory and what was done to it so far.
pub struct Session<'a> {
    kind: &'a dyn EngineKind,
    dir: PathBuf,
    settings: Settings,
    config: Config,
    engine: Option<Box<dyn Engine>>,
    /// Whether the store holds every key of the configuration.
    loaded: bool,
    /// Indices from here on were not inserted yet.
    next_index: AtomicU64,
}

impl<'a> Session<'a> {
    /// A session on the store in `dir`, which is not touched before the first workload. With
    /// `loaded`, the store is there already and holds the configuration's keys.
    ///
    /// # Errors
    /// A configuration outside its ranges.
    pub fn new(
        kind: &'a dyn EngineKind,
        dir: &Path,
        settings: Settings,
        config: Config,
        loaded: bool,
    ) -> Result<Self> {
        config.validate()?;
        let next_index = AtomicU64::new(config.num);
        let dir = dir.to_path_buf();
        Ok(Self { kind, dir, settings, config, engine: None, loaded, next_index })
    }

    /// Runs `workload` and measures it. A workload that starts empty removes what is there; the
    /// others load the store first if nothing did, outside the measurement.
    ///
    /// # Errors
    /// The first error of the engine; the store is then as the engine left it.
    pub fn run(&mut self, workload: Workload, progress: &Progress) -> Result<Measurement> {
        self.prepare(workload, progress)?;
        self.warm(workload, progress)?;
        let engine = self.engine.as_deref().ok_or_else(no_engine)?;
        let before = engine.counters();
        let io_before = ProcessIo::now();
        progress.begin(Phase::Running, client::planned(workload, &self.config));
        let totals = client::run(workload, &self.config, engine, &self.next_index, progress)?;
        let mut seconds_drained = totals.seconds;
        let clock = Stopwatch::start();
        if workload.writes() {
            progress.begin(Phase::Draining, 0);
            engine.wait_idle()?;
            seconds_drained += clock.seconds();
        }
        progress.begin(Phase::Idle, 0);
        if workload.loads() {
            self.loaded = !progress.stopped();
        }
        if workload.unloads() {
            self.loaded = false;
        }
        let counters = difference(&engine.counters(), &before);
        let process_bytes = io_before
            .zip(ProcessIo::now())
            .map(|(before, after)| after.write_bytes.saturating_sub(before.write_bytes));
        Ok(self.measurement(workload, &totals, seconds_drained, &counters, process_bytes))
    }

    /// Brings the store into the state that `workload` starts from.
    fn prepare(&mut self, workload: Workload, progress: &Progress) -> Result<()> {
        if workload.starts_empty() {
            self.close()?;
            self.kind.destroy(&self.dir)?;
            self.loaded = false;
            self.next_index.store(self.config.num, Ordering::Relaxed);
        }
        if self.engine.is_none() {
            self.engine = Some(self.kind.open(&self.dir, &self.settings)?);
        }
        if workload.starts_empty() || self.loaded {
            return Ok(());
        }
        let engine = self.engine.as_deref().ok_or_else(no_engine)?;
        progress.begin(Phase::Loading, self.config.num);
        client::run(Workload::FillRandom, &self.config, engine, &self.next_index, progress)?;
        engine.wait_idle()?;
        self.loaded = !progress.stopped();
        Ok(())
    }

    /// Runs `workload` for as long as the configuration wants before it is measured. Its merges go
    /// on into the measured time.
    fn warm(&self, workload: Workload, progress: &Progress) -> Result<()> {
        if self.config.warm_seconds == 0.0 || workload.loads() || workload.starts_empty() {
            return Ok(());
        }
        let config = Config {
            seconds: Some(self.config.warm_seconds),
            ops: OPS_UNLIMITED,
            windows: false,
            seed: !self.config.seed,
            ..self.config.clone()
        };
        let engine = self.engine.as_deref().ok_or_else(no_engine)?;
        progress.begin(Phase::Warming, 0);
        client::run(workload, &config, engine, &self.next_index, progress)?;
        Ok(())
    }

    fn measurement(
        &self,
        workload: Workload,
        totals: &Totals,
        seconds_drained: f64,
        counters: &Counters,
        process_bytes: Option<u64>,
    ) -> Measurement {
        let rate = |n: u64, seconds: f64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
        let lookups = counters.cache_hits.zip(counters.cache_misses).map_or(0, |(h, m)| h + m);
        Measurement {
            workload: workload.name().to_owned(),
            engine: self.kind.name().to_owned(),
            engine_defaults: self.settings.engine_defaults,
            num: self.config.num,
            key_bytes: self.config.key_bytes as u64,
            value_bytes: self.config.value_bytes as u64,
            threads: self.config.threads as u64,
            seed: self.config.seed,
            ops: totals.ops,
            background_ops: totals.background_ops,
            warm_seconds: self.config.warm_seconds,
            seconds: totals.seconds,
            ops_per_second: rate(totals.ops, totals.seconds),
            background_ops_per_second: rate(totals.background_ops, totals.seconds),
            seconds_drained,
            ops_per_second_drained: rate(totals.ops, seconds_drained),
            found: totals.found,
            missing: totals.missing,
            scanned: totals.scanned,
            latency: totals
                .latencies()
                .into_iter()
                .filter_map(|(name, histogram)| Some((name.to_owned(), Latency::of(histogram)?)))
                .collect(),
            user_bytes: totals.user_bytes,
            engine_bytes: counters.bytes_written,
            engine_bytes_by_cause: counters.written_by_cause.iter().cloned().collect(),
            io_by_cause: counters.io_by_cause.iter().cloned().collect(),
            process_bytes,
            engine_write_ratio: ratio(counters.bytes_written, totals.user_bytes),
            process_write_ratio: ratio(process_bytes, totals.user_bytes),
            hit_ratio: ratio(counters.cache_hits, lookups),
            of_reads: counters.of_reads.iter().map(|&(name, n)| (name.to_owned(), n)).collect(),
            directory_bytes: counters.disk_bytes.unwrap_or_else(|| directory_bytes(&self.dir)),
            anonymous_bytes: anonymous_bytes(),
            windows: totals.windows.clone(),
        }
    }

    /// The open store, if a workload ran.
    #[must_use]
    pub fn engine(&self) -> Option<&dyn Engine> {
        self.engine.as_deref()
    }

    /// Closes the store; the next workload opens it again, with a cold cache.
    ///
    /// # Errors
    /// The engine's error.
    pub fn close(&mut self) -> Result<()> {
        self.engine.take().map_or(Ok(()), |engine| engine.close())
    }

    /// Closes the store and removes it.
    ///
    /// # Errors
    /// The engine's error.
    pub fn destroy(mut self) -> Result<()> {
        self.close()?;
        self.kind.destroy(&self.dir)
    }
}

fn no_engine() -> EngineError {
    EngineError::new("the store is not open")
}

/// What was counted between two moments.
fn difference(after: &Counters, before: &Counters) -> Counters {
    let minus = |a: Option<u64>, b: Option<u64>| a.map(|a| a.saturating_sub(b.unwrap_or(0)));
    let earlier = |cause: &str| {
        before.written_by_cause.iter().find(|(name, _)| name == cause).map_or(0, |&(_, n)| n)
    };
    let io_since = |(cause, io): &(String, Requests)| {
        let earlier = before.io_by_cause.iter().find(|(name, _)| name == cause);
        let since = io.since(&earlier.map(|&(_, io)| io).unwrap_or_default());
        (since != Requests::default()).then(|| (cause.clone(), since))
    };
    let of_reads = after.of_reads.iter().filter_map(|&(name, n)| {
        let earlier = before.of_reads.iter().find(|&&(known, _)| known == name);
        let since = n.saturating_sub(earlier.map_or(0, |&(_, n)| n));
        (since > 0).then_some((name, since))
    });
    Counters {
        of_reads: of_reads.collect(),
        io_by_cause: after.io_by_cause.iter().filter_map(io_since).collect(),
        bytes_written: minus(after.bytes_written, before.bytes_written),
        written_by_cause: after
            .written_by_cause
            .iter()
            .map(|(cause, n)| (cause.clone(), n.saturating_sub(earlier(cause))))
            .collect(),
        cache_hits: minus(after.cache_hits, before.cache_hits),
        cache_misses: minus(after.cache_misses, before.cache_misses),
        disk_bytes: after.disk_bytes,
    }
}
