//! The client threads: each does its share of a workload and measures every operation.
//!
//! One clock reading per operation: the end of one is the start of the next, so choosing the key is
//! part of a latency, on every engine alike.

use crate::clock::Stopwatch;
use crate::config::Config;
use crate::engine::{Batch, Engine, EngineError, Result};
use crate::keys::{KeySpace, Permutation};
use crate::prng::Prng;
use crate::progress::Progress;
use crate::report::latency_histogram;
use crate::values::Values;
use crate::windows::{ClientWindow, Window, Windows, count};
use crate::workload::Workload;
use crate::zipf::{Latest, ScrambledZipfian};
use hdrhistogram::Histogram;
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Operations between two updates of the shared progress.
const PROGRESS_STEP: u64 = 256;

/// Entries whose time is one latency of `readseq`.
const READSEQ_STEP: u64 = 1024;

/// Longest wait of the background writer, so that it sees soon that the readers are done.
const WAIT_NANOS_MAX: u64 = 10_000_000;
/// The PRNG stream of the background writer; clients use their number.
const WRITER_STREAM: u64 = 1 << 32;

/// What all clients did together.
pub(crate) struct Totals {
    pub(crate) ops: u64,
    pub(crate) background_ops: u64,
    /// From the first operation to the last acknowledgement of the clients.
    pub(crate) seconds: f64,
    pub(crate) found: u64,
    pub(crate) missing: u64,
    pub(crate) scanned: u64,
    pub(crate) user_bytes: u64,
    /// Of all clients, if the configuration asks for them.
    pub(crate) windows: Vec<Window>,
    /// When the client began and when its last operation was acknowledged, in nanoseconds.
    span: (u64, u64),
    read: Histogram<u64>,
    write: Histogram<u64>,
    scan: Histogram<u64>,
    background_write: Histogram<u64>,
}

impl Totals {
    fn new() -> Self {
        Self {
            ops: 0,
            background_ops: 0,
            seconds: 0.0,
            found: 0,
            missing: 0,
            scanned: 0,
            user_bytes: 0,
            windows: Vec::new(),
            span: (u64::MAX, 0),
            read: latency_histogram(),
            write: latency_histogram(),
            scan: latency_histogram(),
            background_write: latency_histogram(),
        }
    }

    pub(crate) fn latencies(&self) -> [(&'static str, &Histogram<u64>); 4] {
        [
            ("read", &self.read),
            ("write", &self.write),
            ("scan", &self.scan),
            ("background_write", &self.background_write),
        ]
    }

    fn add(&mut self, other: &Self) -> Result<()> {
        self.ops += other.ops;
        self.background_ops += other.background_ops;
        self.found += other.found;
        self.missing += other.missing;
        self.scanned += other.scanned;
        self.user_bytes += other.user_bytes;
        self.span = (self.span.0.min(other.span.0), self.span.1.max(other.span.1));
        self.read.add(&other.read).map_err(EngineError::new)?;
        self.write.add(&other.write).map_err(EngineError::new)?;
        self.scan.add(&other.scan).map_err(EngineError::new)?;
        self.background_write.add(&other.background_write).map_err(EngineError::new)
    }
}

/// Operations that `workload` will do, for the progress line.
pub(crate) fn planned(workload: Workload, config: &Config) -> u64 {
    match workload {
        Workload::FillSeq | Workload::FillRandom => config.num,
        Workload::FillSync => {
            if config.ops == 0 {
                (config.num / 100).max(1)
            } else {
                config.ops
            }
        }
        Workload::ReadSeq => config.num * config.threads as u64,
        _ => config.operations(),
    }
}

/// Runs `workload` on `engine` with all its threads.
pub(crate) fn run(
    workload: Workload,
    config: &Config,
    engine: &dyn Engine,
    next_index: &AtomicU64,
    progress: &Progress,
) -> Result<Totals> {
    let planned = planned(workload, config);
    let threads = config.threads as u64;
    let actors = config.threads + usize::from(workload.has_background_writer());
    let shared = Shared {
        workload,
        config,
        engine,
        next_index,
        progress,
        start: Barrier::new(actors + 1),
        finished: AtomicBool::new(false),
        failed: AtomicBool::new(false),
        windows: Windows::default(),
        clock: Stopwatch::start(),
    };
    let (mut totals, counted) = std::thread::scope(|scope| {
        let shared = &shared;
        let clients: Vec<_> = (0..threads)
            .map(|thread| {
                let share = planned * thread / threads..planned * (thread + 1) / threads;
                scope.spawn(move || Client::new(shared, thread).run(share))
            })
            .collect();
        let counter = config.windows.then(|| {
            let is_over = || shared.finished.load(Ordering::Relaxed);
            scope.spawn(move || count(engine, || shared.clock.nanos(), is_over))
        });
        let writer = workload
            .has_background_writer()
            .then(|| scope.spawn(move || Client::new(shared, WRITER_STREAM).write_in_background()));
        // Threads are started and values prepared before the time counts.
        shared.start.wait();
        let results: Vec<_> = clients.into_iter().map(join).collect();
        shared.finished.store(true, Ordering::Relaxed);
        let writer = writer.map(join).transpose();
        let counted = counter.and_then(|counter| counter.join().ok()).unwrap_or_default();
        let mut totals = Totals::new();
        for result in results {
            totals.add(&result?)?;
        }
        let (begin, end) = totals.span;
        totals.seconds = end.saturating_sub(begin) as f64 / 1e9;
        if let Some(background) = writer? {
            totals.add(&background)?;
        }
        Ok::<_, EngineError>((totals, counted))
    })?;
    totals.windows = shared.windows.end(&counted);
    Ok(totals)
}

fn join(handle: std::thread::ScopedJoinHandle<'_, Result<Totals>>) -> Result<Totals> {
    handle.join().unwrap_or_else(|_| Err(EngineError::new("a client thread panicked")))
}

/// What every client of a run sees.
struct Shared<'a> {
    workload: Workload,
    config: &'a Config,
    engine: &'a dyn Engine,
    next_index: &'a AtomicU64,
    progress: &'a Progress,
    /// Nobody begins before everybody can.
    start: Barrier,
    /// The clients are done; the background writer stops.
    finished: AtomicBool,
    /// The engine failed under one client; the others stop.
    failed: AtomicBool,
    windows: Windows,
    clock: Stopwatch,
}

/// One thread's state.
struct Client<'a> {
    shared: &'a Shared<'a>,
    space: KeySpace,
    prng: Prng,
    values: Values,
    key: Vec<u8>,
    totals: Totals,
    /// The reads of this second, if they are wanted.
    window: Option<ClientWindow>,
    /// Clock reading at the end of the last operation, in nanoseconds.
    last: u64,
    /// Operations since the last update of the shared progress.
    unreported: u64,
    deadline: u64,
}

impl<'a> Client<'a> {
    fn new(shared: &'a Shared<'a>, stream: u64) -> Self {
        let config = shared.config;
        // The workload is part of the stream: two read workloads in a row do not read the same keys
        // in the same order.
        let purpose = ((shared.workload as u64) << 40) | stream;
        Self {
            shared,
            space: KeySpace::new(config.num, config.key_bytes, config.key_format),
            prng: Prng::new(config.seed, purpose),
            values: Values::new(
                config.value_bytes,
                config.compressibility,
                Prng::new(config.seed, purpose | 1 << 33),
            ),
            key: Vec::with_capacity(config.key_bytes),
            totals: Totals::new(),
            window: config.windows.then(ClientWindow::new),
            last: 0,
            unreported: 0,
            deadline: u64::MAX,
        }
    }

    /// Waits for the others and starts the time.
    fn begin(&mut self) {
        self.shared.start.wait();
        self.last = self.shared.clock.nanos();
        self.totals.span.0 = self.last;
        if let Some(seconds) = self.shared.config.seconds
            && !self.shared.workload.starts_empty()
        {
            self.deadline = self.last.saturating_add((seconds * 1e9) as u64);
        }
    }

    /// Does the operations of `share`, a part of the workload's operations.
    fn run(mut self, share: std::ops::Range<u64>) -> Result<Totals> {
        self.begin();
        let result = self.operate(share);
        self.shared.failed.fetch_or(result.is_err(), Ordering::Relaxed);
        result?;
        self.report(self.unreported);
        if let Some(window) = &mut self.window {
            window.leave(&self.shared.windows);
        }
        self.totals.span.1 = self.last;
        Ok(self.totals)
    }

    fn operate(&mut self, share: std::ops::Range<u64>) -> Result<()> {
        match self.shared.workload {
            Workload::FillSeq => self.fill(share, |place| place)?,
            Workload::FillRandom => {
                let order = Permutation::new(self.shared.config.num, self.shared.config.seed);
                self.fill(share, |place| order.at(place))?;
            }
            Workload::FillSync => self.fill_sync(share)?,
            Workload::Overwrite => self.overwrite(share)?,
            Workload::ReadRandom | Workload::ReadWhileWriting => {
                self.read(share, |prng, num| prng.below(num))?;
            }
            Workload::ReadMissing => self.read_missing(share)?,
            Workload::ReadHot => self.read(share, |prng, num| prng.below(num.div_ceil(100)))?,
            Workload::RangeHot => self.read(share, |prng, num| {
                // The hot range begins in the middle, so that it is in no table's first block.
                let hot = (num * 15 / 100).max(1);
                if prng.below(100) < 98 {
                    (num / 2 + prng.below(hot)).min(num - 1)
                } else {
                    prng.below(num)
                }
            })?,
            Workload::ReadSeq => self.read_seq()?,
            Workload::SeekRandom => self.seek(share, |prng, num| prng.below(num))?,
            Workload::ScanHot => self.seek(share, |prng, num| {
                // In the middle, as of `RangeHot`.
                (num / 2 + prng.below(num.div_ceil(100))).min(num - 1)
            })?,
            Workload::Queue => self.queue(share)?,
            Workload::Window => self.window(share)?,
            Workload::YcsbA => self.ycsb_point(share, 50, false)?,
            Workload::YcsbB => self.ycsb_point(share, 95, false)?,
            Workload::YcsbC => self.ycsb_point(share, 100, false)?,
            Workload::YcsbD => self.ycsb_latest(share)?,
            Workload::YcsbE => self.ycsb_scan(share)?,
            Workload::YcsbF => self.ycsb_point(share, 50, true)?,
        }
        Ok(())
    }

    fn fill(&mut self, share: std::ops::Range<u64>, order: impl Fn(u64) -> u64) -> Result<()> {
        if self.shared.config.batch == 1 {
            for place in share {
                if self.over() {
                    break;
                }
                self.put_index(order(place), false)?;
            }
            return Ok(());
        }
        self.put_batches(share, |_, place| order(place))
    }

    /// Writes the keys that `choose` names for each place, `Config::batch` of them at once.
    fn put_batches(
        &mut self,
        share: std::ops::Range<u64>,
        mut choose: impl FnMut(&mut Prng, u64) -> u64,
    ) -> Result<()> {
        let mut batch = Batch::default();
        let last_place = share.end.saturating_sub(1);
        for place in share {
            let index = choose(&mut self.prng, place);
            self.space.existing(index, &mut self.key);
            batch.put(&self.key, self.values.next_value());
            if batch.len() < self.shared.config.batch && place != last_place {
                continue;
            }
            self.shared.engine.put_batch(&batch)?;
            self.totals.user_bytes += self.pair_bytes() * batch.len() as u64;
            let elapsed = self.lap();
            self.totals.write.saturating_record(elapsed);
            self.done(batch.len() as u64);
            batch.clear();
            if self.over() {
                break;
            }
        }
        Ok(())
    }

    fn fill_sync(&mut self, share: std::ops::Range<u64>) -> Result<()> {
        for _ in share {
            if self.over() {
                break;
            }
            let index = self.prng.below(self.shared.config.num);
            self.put_index(index, true)?;
        }
        Ok(())
    }

    fn overwrite(&mut self, share: std::ops::Range<u64>) -> Result<()> {
        let num = self.shared.config.num;
        if self.shared.config.batch > 1 {
            return self.put_batches(share, |prng, _| prng.below(num));
        }
        for _ in share {
            if self.over() {
                break;
            }
            let index = self.prng.below(num);
            self.put_index(index, false)?;
        }
        Ok(())
    }

    fn read(
        &mut self,
        share: std::ops::Range<u64>,
        choose: impl Fn(&mut Prng, u64) -> u64,
    ) -> Result<()> {
        self.at_keys(share, choose, Self::get_key)
    }

    /// One operation at each of the loaded keys that `choose` names.
    fn at_keys(
        &mut self,
        share: std::ops::Range<u64>,
        choose: impl Fn(&mut Prng, u64) -> u64,
        operate: impl Fn(&mut Self) -> Result<()>,
    ) -> Result<()> {
        for _ in share {
            if self.over() {
                break;
            }
            let index = choose(&mut self.prng, self.shared.config.num);
            self.space.existing(index, &mut self.key);
            operate(self)?;
        }
        Ok(())
    }

    fn read_missing(&mut self, share: std::ops::Range<u64>) -> Result<()> {
        for _ in share {
            if self.over() {
                break;
            }
            let index = self.prng.below(self.shared.config.num);
            self.space.missing(index, &mut self.key);
            self.get_key()?;
        }
        Ok(())
    }

    fn read_seq(&mut self) -> Result<()> {
        let Shared { engine, config, .. } = *self.shared;
        let (mut start, mut next) = (Vec::new(), Vec::new());
        let mut left = config.num;
        // One scan; a new one only to look at the clock between, every 64 steps.
        while left > 0 && !self.over() {
            let count = left.min(READSEQ_STEP * 64);
            let mut seen = 0;
            let returned = engine.scan(&start, count, &mut |key, value| {
                black_box((key, value));
                seen += 1;
                if seen == count {
                    // The smallest key behind this one.
                    next.clear();
                    next.extend_from_slice(key);
                    next.push(0);
                }
                if seen % READSEQ_STEP == 0 {
                    let elapsed = self.lap();
                    self.totals.scan.saturating_record(elapsed);
                }
            })?;
            self.totals.scanned += returned;
            self.lap();
            self.done(returned);
            left -= returned.min(left);
            if returned < count {
                break;
            }
            std::mem::swap(&mut start, &mut next);
        }
        Ok(())
    }

    /// Takes entries from the front and puts as many behind the last. Several clients may take the
    /// same ones.
    fn queue(&mut self, share: std::ops::Range<u64>) -> Result<()> {
        let mut front: Vec<Vec<u8>> = Vec::new();
        for _ in share {
            if self.over() {
                break;
            }
            front.clear();
            let engine = self.shared.engine;
            self.totals.scanned +=
                engine.scan(&[], self.shared.config.scan_entries, &mut |key, _| {
                    front.push(key.to_vec());
                })?;
            let elapsed = self.lap();
            self.totals.scan.saturating_record(elapsed);
            self.note_in_window(elapsed);
            self.done(1);
            for key in &front {
                engine.delete(key)?;
                let index = self.shared.next_index.fetch_add(1, Ordering::Relaxed);
                self.space.behind(index, &mut self.key);
                self.put_key(false)?;
            }
        }
        Ok(())
    }

    /// Puts an entry behind the last one, takes the oldest, and scans the newest ones.
    fn window(&mut self, share: std::ops::Range<u64>) -> Result<()> {
        let Shared { engine, config, next_index, .. } = *self.shared;
        for _ in share {
            if self.over() {
                break;
            }
            let index = next_index.fetch_add(1, Ordering::Relaxed);
            self.space.behind(index, &mut self.key);
            self.put_key(false)?;
            self.space.behind(index - config.num, &mut self.key);
            engine.delete(&self.key)?;
            self.space.behind((index + 1).saturating_sub(config.scan_entries), &mut self.key);
            // The scan's time alone.
            self.lap();
            self.totals.scanned += engine.scan(&self.key, config.scan_entries, &mut |_, _| {})?;
            let elapsed = self.lap();
            self.totals.scan.saturating_record(elapsed);
            self.note_in_window(elapsed);
            self.done(1);
        }
        Ok(())
    }

    /// Short scans from positions that `choose` names.
    fn seek(
        &mut self,
        share: std::ops::Range<u64>,
        choose: impl Fn(&mut Prng, u64) -> u64,
    ) -> Result<()> {
        self.at_keys(share, choose, |client| {
            client.scan_from_key(client.shared.config.scan_entries)
        })
    }

    /// YCSB A, B, C and F: reads in `read_percent` of the operations, else an update, which F
    /// precedes with a read of the same key.
    fn ycsb_point(
        &mut self,
        share: std::ops::Range<u64>,
        read_percent: u64,
        read_before_write: bool,
    ) -> Result<()> {
        let chosen = ScrambledZipfian::new(self.shared.config.num);
        for _ in share {
            if self.over() {
                break;
            }
            let index = chosen.next(&mut self.prng);
            if self.prng.below(100) < read_percent {
                self.space.existing(index, &mut self.key);
                self.get_key()?;
                continue;
            }
            if read_before_write {
                self.space.existing(index, &mut self.key);
                self.get()?;
            }
            self.put_index(index, false)?;
        }
        Ok(())
    }

    fn ycsb_latest(&mut self, share: std::ops::Range<u64>) -> Result<()> {
        let latest = Latest::new(self.shared.config.num);
        for _ in share {
            if self.over() {
                break;
            }
            if self.prng.below(100) < 95 {
                let count = self.shared.next_index.load(Ordering::Relaxed);
                let index = latest.next(&mut self.prng, count);
                self.space.existing(index, &mut self.key);
                self.get_key()?;
            } else {
                self.insert()?;
            }
        }
        Ok(())
    }

    fn ycsb_scan(&mut self, share: std::ops::Range<u64>) -> Result<()> {
        let chosen = ScrambledZipfian::new(self.shared.config.num);
        for _ in share {
            if self.over() {
                break;
            }
            if self.prng.below(100) < 95 {
                let index = chosen.next(&mut self.prng);
                let count = 1 + self.prng.below(100);
                self.space.existing(index, &mut self.key);
                self.scan_from_key(count)?;
            } else {
                self.insert()?;
            }
        }
        Ok(())
    }

    fn write_in_background(mut self) -> Result<Totals> {
        self.begin();
        loop {
            let index = self.prng.below(self.shared.config.num);
            self.space.existing(index, &mut self.key);
            self.shared.engine.put(&self.key, self.values.next_value())?;
            self.totals.user_bytes += self.pair_bytes();
            let elapsed = self.lap();
            self.totals.background_write.saturating_record(elapsed);
            self.totals.background_ops += 1;
            self.keep_to_rate();
            if self.shared.finished.load(Ordering::Relaxed) {
                return Ok(self.totals);
            }
        }
    }

    /// Waits until the background writer's next write is due; no latency counts the wait. A writer
    /// that is behind catches up.
    fn keep_to_rate(&mut self) {
        let rate = self.shared.config.write_rate;
        if rate == 0 {
            return;
        }
        let due = u128::from(self.totals.background_ops) * 1_000_000_000 / u128::from(rate);
        let due = self.totals.span.0.saturating_add(u64::try_from(due).unwrap_or(u64::MAX));
        // One wait for many writes: a short sleep lasts longer than asked for.
        const WAIT_NANOS_MIN: u64 = 1_000_000;
        let early = due.saturating_sub(self.last);
        if early >= WAIT_NANOS_MIN && !self.shared.finished.load(Ordering::Relaxed) {
            let pause = Duration::from_nanos(early.min(WAIT_NANOS_MAX));
            #[expect(clippy::disallowed_methods, reason = "real time on a real machine")]
            std::thread::sleep(pause);
            self.last = self.shared.clock.nanos();
        }
    }

    /// Inserts a key that no client inserted before.
    fn insert(&mut self) -> Result<()> {
        let index = self.shared.next_index.fetch_add(1, Ordering::Relaxed);
        self.put_index(index, false)
    }

    fn put_index(&mut self, index: u64, sync: bool) -> Result<()> {
        self.space.existing(index, &mut self.key);
        self.put_key(sync)?;
        self.done(1);
        Ok(())
    }

    /// Puts the key, which is part of an operation.
    fn put_key(&mut self, sync: bool) -> Result<()> {
        let value = self.values.next_value();
        if sync {
            self.shared.engine.put_sync(&self.key, value)?;
        } else {
            self.shared.engine.put(&self.key, value)?;
        }
        self.totals.user_bytes += self.pair_bytes();
        let elapsed = self.lap();
        self.totals.write.saturating_record(elapsed);
        Ok(())
    }

    /// Reads `self.key` as one operation.
    fn get_key(&mut self) -> Result<()> {
        self.get()?;
        let elapsed = self.lap();
        self.totals.read.saturating_record(elapsed);
        self.note_in_window(elapsed);
        self.done(1);
        Ok(())
    }

    /// Notes a read, or a scan, that took so many nanoseconds and has just ended.
    fn note_in_window(&mut self, elapsed: u64) {
        if let Some(window) = &mut self.window {
            window.record(self.last, elapsed, &self.shared.windows);
        }
    }

    /// Reads `self.key` and counts the answer.
    fn get(&mut self) -> Result<()> {
        let found = self.shared.engine.get(&self.key, &mut |value| {
            black_box(value);
        })?;
        if found {
            self.totals.found += 1;
        } else {
            self.totals.missing += 1;
        }
        Ok(())
    }

    /// Reads up to `count` entries from `self.key` on as one operation.
    fn scan_from_key(&mut self, count: u64) -> Result<()> {
        self.totals.scanned += self.shared.engine.scan(&self.key, count, &mut |key, value| {
            black_box((key, value));
        })?;
        let elapsed = self.lap();
        self.totals.scan.saturating_record(elapsed);
        self.note_in_window(elapsed);
        self.done(1);
        Ok(())
    }

    fn pair_bytes(&self) -> u64 {
        (self.shared.config.key_bytes + self.shared.config.value_bytes) as u64
    }

    /// Nanoseconds since the last operation ended; this one ends now.
    fn lap(&mut self) -> u64 {
        let now = self.shared.clock.nanos();
        let elapsed = now.saturating_sub(self.last);
        self.last = now;
        elapsed
    }

    /// Counts operations.
    fn done(&mut self, ops: u64) {
        self.totals.ops += ops;
        self.unreported += ops;
        if self.unreported >= PROGRESS_STEP {
            self.report(self.unreported);
            self.unreported = 0;
        }
    }

    fn report(&self, ops: u64) {
        self.shared.progress.done.fetch_add(ops, Ordering::Relaxed);
    }

    /// Whether to stop: asked to, or out of time.
    fn over(&self) -> bool {
        self.last >= self.deadline
            || self.shared.progress.stopped()
            || self.shared.failed.load(Ordering::Relaxed)
    }
}
