//! What sources say of the disks, and how near a model has to be.
//!
//! Bounds are written before a number is seen, from what is known of the source and of the
//! measurement; a number outside of them stays outside, and says why if that is known.

use super::What;
use crate::result::{Differs, Number};

/// What a source says.
pub(super) struct Source {
    pub(super) what: What,
    value: f64,
    low: f64,
    high: f64,
    note: &'static str,
    differs: Option<(f64, f64, &'static str)>,
}

impl Source {
    fn new(what: What, value: f64, (low, high): (f64, f64), note: &'static str) -> Self {
        Self { what, value, low, high, note, differs: None }
    }

    /// A value, and how far from it is accepted.
    fn near(what: What, value: f64, part: f64, note: &'static str) -> Self {
        Self::new(what, value, (value * (1.0 - part), value * (1.0 + part)), note)
    }

    /// The same beside what was measured.
    pub(super) fn number(&self, model: &str, ours: f64) -> Number {
        let differs = self.differs.map(|(low, high, because)| Differs {
            low,
            high,
            because: because.to_owned(),
        });
        Number {
            name: format!("{model}: {}", self.what.name()),
            unit: self.what.unit().to_owned(),
            ours,
            paper: Some(self.value),
            low: Some(self.low),
            high: Some(self.high),
            differs,
            guard: false,
            statistic: String::new(),
            span: None,
            over_span: None,
            note: self.note.to_owned(),
        }
    }
}

/// What is accepted of a number that follows from two or three of a manual's: command and transfer,
/// which it does not count, are 1 to 2 % of a random read, and a mean of so many is known to 1 %.
const MANUAL: f64 = 0.05;

/// What is accepted of a rate that is one number of the model.
const RATE: f64 = 0.05;

/// What is accepted of a time with two digits that has the opening of a store in it.
const OPENING: f64 = 0.15;

/// What is accepted of a fit of a service time, a rate and a number of channels to measurements of
/// a machine that others share.
const FIT: f64 = 0.15;

/// One reader over all of the disk.
const ONE: What = What::Reads { depth: 1, part: 1 };

/// An append of a page.
const fn page(write_cache: bool) -> What {
    What::Append { bytes: 4 << 10, write_cache }
}

/// What sources say of the model called `name`.
pub(super) fn of(name: &str) -> Vec<Source> {
    match name {
        "hdd-15k-x2" => cheetah(),
        "hdd-7200" => barracuda(),
        "sata-ssd" => solid_state(),
        "virtio" => data_centre(),
        _ => Vec::new(),
    }
}

fn cheetah() -> Vec<Source> {
    let rate = "manual: 122 to 204 MB/s each, by the place";
    let both = (2.0 * 122.0, 2.0 * 204.0);
    vec![
        Source::near(ONE, 1e3 / (3.4 + 2.0), MANUAL, "manual: 3.4 ms and half of 4.0 ms"),
        Source::new(What::StreamReads { readers: 1 }, 326.0, both, rate),
        Source::new(What::StreamWrites, 326.0, both, rate),
        Source::near(page(false), 4.0, MANUAL, "manual: one rotation at 15,000 a minute"),
    ]
}

fn barracuda() -> Vec<Source> {
    let two = "64 MiB at the 152 MB/s of section 4.1 are 0.44 s: the paper's two values of its \
               disk are a quarter apart, and the model has the one that it states of the disk \
               (hdd-7200: sequential writes)";
    vec![
        Source::near(ONE, 1e3 / (8.5 + 4.165), MANUAL, "its class: 8.5 ms and half of 8.33 ms"),
        Source::near(What::StreamWrites, 152.0, RATE, "LDS section 4.1"),
        Source {
            differs: Some((0.42, 0.46, two)),
            ..Source::near(What::Scan, 0.35, OPENING, "LDS section 4.4: the version log")
        },
        Source::near(page(false), 8.33, MANUAL, "a rotation of 7,200 a minute; LDS Fig. 5b"),
    ]
}

fn solid_state() -> Vec<Source> {
    vec![
        Source::near(What::StreamWrites, 360.0, RATE, "LDS section 4.1"),
        Source::near(What::Scan, 0.18, OPENING, "LDS section 4.4: the version log"),
    ]
}

fn data_centre() -> Vec<Source> {
    let reads = [(1, 6_010.0), (4, 17_595.0), (8, 26_665.0), (32, 44_039.0)];
    let measured = "measured on such a disk";
    let mut sources: Vec<Source> = reads
        .into_iter()
        .map(|(depth, rate)| Source::near(What::Reads { depth, part: 1 }, rate, FIT, measured))
        .collect();
    for (readers, rate) in [(1, 428.0), (4, 930.0)] {
        sources.push(Source::near(What::StreamReads { readers }, rate, FIT, measured));
    }
    let hours = "measured: 98 us in quiet hours, 323 in others";
    sources.push(Source::new(page(true), 0.098, (0.098, 0.323), hours));
    sources
}
