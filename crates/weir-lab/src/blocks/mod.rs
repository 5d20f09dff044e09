//! What reaches a block device: the requests of one store on slots, and of the same store in files
//! on three file systems, as the kernel's own trace has them (LDS §2.2, Fig. 4 and 5a).
//!
//! On real loop devices and in real time, as root: unlike everything else in the laboratory. What
//! is counted does not depend on speed; where a file system puts its own writes does a little.
//!
//! LDS's authors loaded LevelDB in key order with its log off, and called every request that holds
//! neither table nor MANIFEST an index request of the file system. Here a request is the file
//! system's own if the kernel marks it as metadata, which ext4's journal, XFS's log and btrfs's
//! trees are.

pub mod full;
pub mod latency;
mod stand;
mod trace;

use std::path::Path;

use weir::{BytesWritten, Db, Durability, FormatOptions, Options};
use weir_bench::loop_device::{Loop, Mounted};

use crate::result::{Axis, Kind as Drawn, Number, Result as Outcome, Series};
use trace::Trace;
pub use trace::{Kind, Request};

/// Where a store lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Straight on the device.
    Slots,
    /// In files on ext4, which updates in place.
    Ext4,
    /// In files on XFS, which updates in place.
    Xfs,
    /// In files on btrfs, which copies on write.
    Btrfs,
}

impl Form {
    /// All forms; slots first.
    pub const ALL: [Self; 4] = [Self::Slots, Self::Ext4, Self::Xfs, Self::Btrfs];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Slots => "slots",
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }
}

/// What is written.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Bytes of the device.
    pub device_bytes: u64,
    /// Inserts in key order.
    pub inserts: u64,
    /// Bytes of a value; keys have 16.
    pub value_bytes: usize,
    /// Whether each insert is durable before the next; otherwise none is in the log.
    pub synced: bool,
}

/// The requests of one store.
#[derive(Clone, Debug)]
pub struct Traced {
    /// Where it lies.
    pub form: Form,
    /// In the order in which the device got them.
    pub requests: Vec<Request>,
    /// Bytes that the store says it wrote meanwhile.
    pub written: u64,
}

impl Traced {
    /// Requests of a kind.
    #[must_use]
    pub fn count(&self, kind: Kind) -> usize {
        self.requests.iter().filter(|request| request.kind == kind).count()
    }

    /// Bytes of requests of a kind.
    #[must_use]
    pub fn bytes(&self, kind: Kind) -> u64 {
        let of = self.requests.iter().filter(|request| request.kind == kind);
        of.map(|request| request.bytes).sum()
    }

    /// Share of the write requests that are the file system's own.
    fn own_share(&self) -> f64 {
        let own = self.count(Kind::Metadata) as f64;
        own / (own + self.count(Kind::Data) as f64).max(1.0)
    }
}

/// Whether this machine can trace: it has root, loop devices and tracefs.
///
/// # Errors
/// What is missing.
pub fn check_machine(dir: &Path) -> Result<(), String> {
    let device = Loop::new(dir, 1 << 20)?;
    Trace::start(device.number()?, dir)?.finish().map(drop)
}

/// Does the work on a new device whose image lies in `dir`, and traces it from the opened store
/// until its jobs are done and the file system holds nothing back.
///
/// # Errors
/// What is missing: root, a program, a kernel with tracefs; or what failed.
pub fn trace(form: Form, work: Work, dir: &Path) -> Result<Traced, String> {
    let device = Loop::new(dir, work.device_bytes)?;
    if form == Form::Slots {
        weir::format(device.path(), &FormatOptions::new()).map_err(|error| error.to_string())?;
        return traced(form, work, dir, &device, device.path(), &|| Ok(()));
    }
    let mounted = Mounted::new(&device, form.name(), dir)?;
    let store = mounted.path().join("store");
    traced(form, work, dir, &device, &store, &|| mounted.sync())
}

fn traced(
    form: Form,
    work: Work,
    dir: &Path,
    device: &Loop,
    store: &Path,
    settle: &dyn Fn() -> Result<(), String>,
) -> Result<Traced, String> {
    let failed = |error: weir::Error| error.to_string();
    // Tables of 4 MB, as in the paper.
    let options = Options::default().write_buffer_bytes(4 << 20).table_bytes(4 << 20);
    let db = Db::builder(store).default_options(options).open().map_err(failed)?;
    db.wait_idle().map_err(failed)?;
    settle()?;
    let before = db.metrics().bytes_written;
    let trace = Trace::start(device.number()?, dir)?;
    let durability = if work.synced { Durability::Sync } else { Durability::None };
    let mut value = vec![0; work.value_bytes];
    for insert in 0..work.inserts {
        let stamp = insert.to_le_bytes();
        value.iter_mut().zip(stamp).for_each(|(byte, stamp)| *byte = stamp);
        let key = format!("{insert:016}");
        db.put_with(key.as_bytes(), &value, durability).map_err(failed)?;
    }
    if !work.synced {
        db.flush().map_err(failed)?;
        db.wait_idle().map_err(failed)?;
        settle()?;
    }
    let after = db.metrics().bytes_written;
    let requests = trace.finish()?;
    db.close().map_err(failed)?;
    let all = |bytes: BytesWritten| bytes.log + bytes.flush + bytes.compaction + bytes.versions;
    Ok(Traced { form, requests, written: all(after) - all(before) })
}

const MIB: f64 = 1_048_576.0;

fn axis(label: &str, unit: &str) -> Axis {
    Axis { label: label.into(), unit: unit.into() }
}

fn number(name: String, unit: &str, ours: f64, bounds: [Option<f64>; 2], note: &str) -> Number {
    Number {
        name,
        unit: unit.into(),
        statistic: String::new(),
        ours,
        span: None,
        over_span: None,
        paper: None,
        low: bounds[0],
        high: bounds[1],
        differs: None,
        guard: false,
        note: note.into(),
    }
}

/// A result of the laboratory's form about `work`.
fn outcome(name: &str, figure: &str, title: String, work: Work, kind: Drawn) -> Outcome {
    let settings = [
        ("device_bytes", work.device_bytes.to_string()),
        ("inserts", work.inserts.to_string()),
        ("value_bytes", work.value_bytes.to_string()),
        ("durability", if work.synced { "sync" } else { "none" }.to_owned()),
    ];
    outcome_of(name, figure, title, &settings, kind)
}

/// A result of the laboratory's form, of a real device.
fn outcome_of(
    name: &str,
    figure: &str,
    title: String,
    settings: &[(&str, String)],
    kind: Drawn,
) -> Outcome {
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    Outcome {
        experiment: name.into(),
        paper: "LDS".into(),
        figure: figure.into(),
        title,
        scale: 1,
        shrink: None,
        first: None,
        short: false,
        seed: 1,
        command: "weir-lab requests".into(),
        settings: settings.collect(),
        set: std::collections::BTreeMap::new(),
        kind,
        x: axis("time", "s"),
        y: axis("place on the device", "MiB"),
        series: Vec::new(),
        paper_lines: Vec::new(),
        numbers: Vec::new(),
        virtual_seconds: 0.0,
        real_seconds: 0.0,
        notes: vec!["a real loop device and the kernel's clock, not a simulated disk".into()],
    }
}

/// Fig. 4 for one form: where on the device what was written when.
#[must_use]
pub fn pattern(traced: &Traced, work: Work) -> Outcome {
    let (name, form) = (format!("lds-fig04-{}", traced.form.name()), traced.form.name());
    let title = format!("Write requests of a load in key order, {form}");
    let mut result = outcome(&name, "4", title, work, Drawn::Scatter);
    result.real_seconds = traced.requests.last().map_or(0.0, |request| request.seconds);
    for (name, kind) in [("the store's", Kind::Data), ("the file system's own", Kind::Metadata)] {
        let of = traced.requests.iter().filter(|request| request.kind == kind);
        let points: Vec<[f64; 2]> = of.map(|r| [r.seconds, r.at as f64 / MIB]).collect();
        if !points.is_empty() {
            let labels = Vec::new();
            result.series.push(Series { name: name.into(), unit: "MiB".into(), points, labels });
        }
    }
    result.numbers = counts(traced);
    result
}

/// Numbers about a load without a log.
fn counts(traced: &Traced) -> Vec<Number> {
    let form = traced.form.name();
    let slots = traced.form == Form::Slots;
    let data = traced.bytes(Kind::Data) as f64;
    let said = traced.written as f64;
    let own = traced.count(Kind::Metadata) as f64;
    let flushes = traced.count(Kind::Flush) as f64;
    vec![
        number(
            format!("write requests of the file system's own, {form}"),
            "",
            own,
            if slots { [None, Some(0.0)] } else { [Some(1.0), None] },
            "LDS has no file system; every file system has an index to write",
        ),
        number(
            format!("write requests of the store's, {form}"),
            "",
            traced.count(Kind::Data) as f64,
            [None; 2],
            "",
        ),
        number(format!("flushes of the device's cache, {form}"), "", flushes, [None; 2], ""),
        number(
            format!("bytes written over what the store says, {form}"),
            "",
            data / said.max(1.0),
            if slots { [Some(1.0), Some(1.01)] } else { [None; 2] },
            "tables with their trailers and edits, each to a whole page, and nothing else",
        ),
    ]
}

/// Fig. 5a: which share of the write requests is the file system's own.
#[must_use]
pub fn shares(all: &[Traced], work: Work) -> Outcome {
    let title = "Write requests that are the file system's own".to_owned();
    let mut result = outcome("lds-fig05a", "5a", title, work, Drawn::Bars);
    (result.x, result.y) = (axis("storage", ""), axis("share", ""));
    let points = all.iter().enumerate().map(|(at, traced)| [at as f64, traced.own_share()]);
    let labels = all.iter().map(|traced| traced.form.name().to_owned()).collect();
    let (name, points) = ("a load in key order without a log".to_owned(), points.collect());
    result.series = vec![Series { name, unit: String::new(), points, labels }];
    result.numbers = all.iter().flat_map(counts).collect();
    result
}

/// What a synced insert asks of the device.
#[must_use]
pub fn synced(all: &[Traced], work: Work) -> Outcome {
    let title = "Requests of a synced insert".to_owned();
    let mut result = outcome("lds-synced-inserts", "3.2", title, work, Drawn::Bars);
    (result.x, result.y) = (axis("storage", ""), axis("requests of an insert", ""));
    let per = |count: usize| count as f64 / work.inserts as f64;
    for kind in [Kind::Data, Kind::Metadata, Kind::Flush] {
        let points = all.iter().enumerate().map(|(at, t)| [at as f64, per(t.count(kind))]);
        let labels = all.iter().map(|traced| traced.form.name().to_owned()).collect();
        let (name, points) = (name_of(kind).to_owned(), points.collect());
        result.series.push(Series { name, unit: String::new(), points, labels });
        for traced in all {
            let ours = per(traced.count(kind));
            let bounds = match (traced.form, kind) {
                (Form::Slots, Kind::Metadata) => [None, Some(0.0)],
                // A new segment and the heads of areas cost a few more.
                (Form::Slots, _) => [Some(1.0), Some(1.02)],
                _ => [None; 2],
            };
            let name = format!("{} of an insert, {}", name_of(kind), traced.form.name());
            let note = "one write of whole pages and one flush, and nothing else";
            result.numbers.push(number(name, "", ours, bounds, note));
        }
    }
    for traced in all {
        let bytes = traced.bytes(Kind::Data) + traced.bytes(Kind::Metadata);
        let name = format!("bytes of an insert, {}", traced.form.name());
        result.numbers.push(number(name, "B", bytes as f64 / work.inserts as f64, [None; 2], ""));
    }
    result
}

fn name_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Data => "writes of the store's",
        Kind::Metadata => "writes of the file system's own",
        Kind::Flush => "flushes",
        Kind::Read => "reads",
        Kind::Other => "other requests",
    }
}
