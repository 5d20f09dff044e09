//! How many pairs a store takes until it says that its device is full (LDS §4.5, Fig. 18).
//!
//! Pairs of new keys in random order, values that do not compress, on a loop device of its own for
//! each place. What was taken is read afterwards from the store opened again: a pair that was
//! acknowledged and is not there is an error, not a number.

use std::path::Path;

use weir::{
    CompactionPolicy, Compression, DebugOptions, Description, Durability, ErrorKind, OddChunk,
    Options,
};
use weir_bench::{Pairs, Stopwatch};

use super::stand::{Plot, Stand};
use super::{Form, MIB, axis, number, outcome_of};
use crate::result::{Kind as Drawn, Result as Outcome, Series};

/// Bytes of write buffers and tables, as in the paper.
const TABLE_BYTES: u64 = 4 << 20;

/// What an extent of slots keeps for its trailer (docs/format/slots.md).
const TRAILER_BYTES: u64 = 4096;

/// Where a store lies, and on slots, how these and its tables fit each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The form.
    pub form: Form,
    /// So many slots have the bytes of a table; `None`: slots as they are by default.
    slots_per_table: Option<u64>,
    /// What becomes of the last output of a merge.
    odd_chunk: OddChunk,
}

impl Place {
    /// A store as it is by default.
    #[must_use]
    pub fn of(form: Form) -> Self {
        Self { form, slots_per_table: None, odd_chunk: OddChunk::Off }
    }

    /// On slots as large as tables, with each way of cutting these, and on smaller slots; those
    /// that a policy can have.
    pub fn by_slots(policy: CompactionPolicy) -> impl Iterator<Item = Self> {
        let ways = [OddChunk::Plain, OddChunk::Balanced, OddChunk::Upper];
        let ways = ways.into_iter().filter(move |way| way.suits(policy)).map(|way| (1, way));
        let smaller = [4, 16, 64].map(|slots| (slots, OddChunk::Off));
        ways.chain(smaller).map(|(slots, odd_chunk)| Self {
            form: Form::Slots,
            slots_per_table: Some(slots),
            odd_chunk,
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> String {
        match self.slots_per_table {
            None => self.form.name().to_owned(),
            Some(1) => format!("slot = table, {}", self.odd_chunk),
            Some(slots) => format!("slot = table/{slots}"),
        }
    }
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where stores lie.
    pub forms: Vec<Form>,
    /// Whether stores on slots lie on slots of several sizes too.
    pub by_slots: bool,
    /// Their policies, with default options; write buffers and tables have 4 MB, as in the paper.
    pub policies: Vec<CompactionPolicy>,
    /// Bytes of a value; keys have 16.
    pub value_bytes: usize,
    /// Bytes of each device.
    pub device_bytes: u64,
    /// Bytes of the write-ahead log's area on slots; `None`: the default.
    pub log_bytes: Option<u64>,
}

impl Plan {
    fn places(&self, policy: CompactionPolicy) -> Vec<Place> {
        let by_slots = self.by_slots.then(|| Place::by_slots(policy));
        self.forms
            .iter()
            .map(|&form| Place::of(form))
            .chain(by_slots.into_iter().flatten())
            .collect()
    }
}

/// What one store took.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// Where it lies.
    pub place: Place,
    /// Its policy.
    pub policy: CompactionPolicy,
    /// Pairs until it was full.
    pub pairs: u64,
    /// Seconds until then.
    pub seconds: f64,
    /// Bytes of tables over those of the slots that they take, where there are slots.
    pub fill: Option<f64>,
    /// Bytes that it kept back when it was full: less was free, where that is known.
    pub kept: Option<u64>,
}

fn failed(error: weir::Error) -> String {
    error.to_string()
}

/// Fills each; images lie in `dir`. `told` hears of each when it is full.
///
/// # Errors
/// What is missing or failed, or what a store has lost.
pub fn fill(
    plan: &Plan,
    dir: &Path,
    mut told: impl FnMut(&Taken) -> Result<(), String>,
) -> Result<Vec<Taken>, String> {
    let mut all = Vec::new();
    for &policy in &plan.policies {
        for place in plan.places(policy) {
            let taken = fill_one(plan, policy, place, dir)?;
            told(&taken)?;
            all.push(taken);
        }
    }
    Ok(all)
}

fn fill_one(
    plan: &Plan,
    policy: CompactionPolicy,
    place: Place,
    dir: &Path,
) -> Result<Taken, String> {
    let options = Options::default().write_buffer_bytes(TABLE_BYTES).table_bytes(TABLE_BYTES);
    let options = options.compression([Compression::None]).compaction(policy);
    let options = options.debug(DebugOptions::default().odd_chunk(place.odd_chunk));
    let slot_bytes = place.slots_per_table.map(|slots| TABLE_BYTES / slots);
    let form = Some(place.form);
    let (bytes, log_bytes) = (plan.device_bytes, plan.log_bytes);
    let plot = Plot { form, bytes, slot_bytes, log_bytes, rest_bytes: 0 };
    let mut stand = Stand::new(&plot, &options, dir)?;
    let mut all = Pairs::for_device(plan.device_bytes, plan.value_bytes);
    let (watch, mut pairs) = (Stopwatch::start(), 0);
    let db = stand.db().ok_or("no store")?;
    while let Some((key, value)) = all.next_pair() {
        match db.put_with(key, value, Durability::Buffered) {
            Ok(()) => pairs += 1,
            Err(error) if error.kind() == ErrorKind::NoSpace => break,
            Err(error) => return Err(failed(error)),
        }
    }
    let seconds = watch.nanos() as f64 / 1e9;
    let kept = db.kept_back_bytes();
    stand.open(&options)?;
    let db = stand.db().ok_or("no store")?;
    let mut found = 0;
    for entry in db.iter() {
        entry.map_err(failed)?;
        found += 1;
    }
    // The one that was refused may be in the log.
    if found != pairs && found != pairs + 1 {
        let name = place.name();
        return Err(format!("{policy} on {name} took {pairs} pairs, and has {found}"));
    }
    let fill = db.slot_space().map(|space| fill_of(&db.describe(), space.slot_bytes));
    Ok(Taken { place, policy, pairs, seconds, fill, kept })
}

/// Bytes of tables over those of the slots that they take, one extent each.
fn fill_of(description: &Description, slot_bytes: u64) -> f64 {
    let levels = description.keyspaces.iter().flat_map(|keyspace| &keyspace.levels);
    let tables = levels.flat_map(|level| &level.runs).flat_map(|run| &run.tables);
    let (mut bytes, mut slots) = (0, 0);
    for table in tables {
        bytes += table.bytes;
        slots += (table.bytes + TRAILER_BYTES).div_ceil(slot_bytes);
    }
    bytes as f64 / (slots * slot_bytes).max(1) as f64
}

/// Fig. 18: pairs by place, and slots over the best file system.
#[must_use]
pub fn outcome(all: &[Taken], plan: &Plan) -> Outcome {
    let pair = (Pairs::KEY_BYTES + plan.value_bytes) as f64;
    let settings = [
        ("device_bytes", plan.device_bytes.to_string()),
        ("value_bytes", plan.value_bytes.to_string()),
    ];
    let title = "Pairs until the device is full".to_owned();
    let mut result = outcome_of("lds-fig18", "18", title, &settings, Drawn::Bars);
    (result.x, result.y) = (axis("storage", ""), axis("pairs", ""));
    for policy in &plan.policies {
        let of: Vec<&Taken> = all.iter().filter(|taken| taken.policy == *policy).collect();
        result.series.push(Series {
            name: policy.name().to_owned(),
            unit: String::new(),
            points: of.iter().enumerate().map(|(at, t)| [at as f64, t.pairs as f64]).collect(),
            labels: of.iter().map(|taken| taken.place.name()).collect(),
        });
        for taken in &of {
            let name = format!("{policy} on {}", taken.place.name());
            let share = taken.pairs as f64 * pair / plan.device_bytes as f64;
            let fill = taken.fill.map(|fill| ("fill of its slots", "", fill));
            let kept = taken.kept.map(|kept| kept as f64 / plan.device_bytes as f64);
            let kept = kept.map(|kept| ("share kept back", "", kept));
            let numbers = [
                ("pairs", "", taken.pairs as f64),
                ("share of the device", "", share),
                ("rate", "MiB/s", taken.pairs as f64 * pair / MIB / taken.seconds),
            ];
            for (what, unit, ours) in numbers.into_iter().chain(fill).chain(kept) {
                result.numbers.push(number(format!("{name}: {what}"), unit, ours, [None; 2], ""));
            }
        }
        result.numbers.extend(over_files(*policy, &of));
        result.numbers.extend(over_small_slots(*policy, &of));
    }
    result
}

/// Slots of default size over the best file system.
fn over_files(policy: CompactionPolicy, of: &[&Taken]) -> Option<crate::result::Number> {
    let slots = of.iter().find(|taken| taken.place == Place::of(Form::Slots))?;
    let files = of.iter().filter(|taken| taken.place.form != Form::Slots);
    let best = files.map(|taken| taken.pairs).max()?;
    let ours = slots.pairs as f64 / best as f64;
    let name = format!("{policy}: slots over the best file system");
    let note = "at least the best file system's (section 4.5)";
    Some(number(name, "", ours, [Some(1.0), None], note))
}

/// Larger slots over those of which 64 are a table.
fn over_small_slots(policy: CompactionPolicy, of: &[&Taken]) -> Vec<crate::result::Number> {
    let small = of.iter().find(|taken| taken.place.slots_per_table == Some(64));
    let Some(small) = small else { return Vec::new() };
    let larger = of.iter().filter(|taken| taken.place.slots_per_table.is_some_and(|n| n < 64));
    let over = |taken: &&Taken| {
        let ours = taken.pairs as f64 / small.pairs as f64;
        let name = format!("{policy}: {} over table/64", taken.place.name());
        number(name, "", ours, [None; 2], "what the odd chunk costs (section 3.4)")
    };
    larger.map(over).collect()
}
