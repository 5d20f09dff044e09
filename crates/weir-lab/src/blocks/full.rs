//! How many pairs a store takes until it says that its device is full (LDS §4.5, Fig. 18).
//!
//! Pairs of new keys in random order, values that do not compress, on a loop device of its own for
//! each place. What was taken is read afterwards from the store opened again: a pair that was
//! acknowledged and is not there is an error, not a number.

use std::path::Path;

use weir::{CompactionPolicy, Compression, Durability, ErrorKind, Options};
use weir_bench::{KeyFormat, KeySpace, Permutation, Prng, Stopwatch, Values};

use super::stand::{Plot, Stand};
use super::{Form, MIB, axis, number, outcome_of};
use crate::result::{Kind as Drawn, Result as Outcome, Series};

/// Bytes of a key.
const KEY_BYTES: usize = 16;

/// The stream of the values.
const STREAM: u64 = 1 << 41;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where stores lie.
    pub forms: Vec<Form>,
    /// Their policies, with default options; write buffers and tables have 4 MB, as in the paper.
    pub policies: Vec<CompactionPolicy>,
    /// Bytes of a value; keys have 16.
    pub value_bytes: usize,
    /// Bytes of each device.
    pub device_bytes: u64,
}

/// What one store took.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// Where it lies.
    pub form: Form,
    /// Its policy.
    pub policy: CompactionPolicy,
    /// Pairs until it was full.
    pub pairs: u64,
    /// Seconds until then.
    pub seconds: f64,
}

fn failed(error: weir::Error) -> String {
    error.to_string()
}

/// Fills each; images lie in `dir`.
///
/// # Errors
/// What is missing or failed, or what a store has lost.
pub fn fill(plan: &Plan, dir: &Path) -> Result<Vec<Taken>, String> {
    let each = |policy| plan.forms.iter().map(move |&form| (policy, form));
    let all = plan.policies.iter().copied().flat_map(each);
    all.map(|(policy, form)| fill_one(plan, policy, form, dir)).collect()
}

fn fill_one(
    plan: &Plan,
    policy: CompactionPolicy,
    form: Form,
    dir: &Path,
) -> Result<Taken, String> {
    // Write buffers and tables of 4 MB, as in the paper.
    let options = Options::default().write_buffer_bytes(4 << 20).table_bytes(4 << 20);
    let options = options.compression([Compression::None]).compaction(policy);
    let plot = Plot { form: Some(form), bytes: plan.device_bytes, rest_bytes: 0 };
    let mut stand = Stand::new(&plot, &options, dir)?;
    // More than any store can take.
    let num = plan.device_bytes / (KEY_BYTES + plan.value_bytes) as u64;
    let space = KeySpace::new(num, KEY_BYTES, KeyFormat::Decimal);
    let order = Permutation::new(num, 1);
    let mut values = Values::new(plan.value_bytes, 1.0, Prng::new(1, STREAM));
    let mut key = Vec::new();
    let (watch, mut pairs) = (Stopwatch::start(), 0);
    let db = stand.db().ok_or("no store")?;
    while pairs < num {
        space.existing(order.at(pairs), &mut key);
        match db.put_with(&key, values.next_value(), Durability::Buffered) {
            Ok(()) => pairs += 1,
            Err(error) if error.kind() == ErrorKind::NoSpace => break,
            Err(error) => return Err(failed(error)),
        }
    }
    let seconds = watch.nanos() as f64 / 1e9;
    stand.open(&options)?;
    let mut found = 0;
    for entry in stand.db().ok_or("no store")?.iter() {
        entry.map_err(failed)?;
        found += 1;
    }
    // The one that was refused may be in the log.
    if found != pairs && found != pairs + 1 {
        let name = form.name();
        return Err(format!("{policy} on {name} took {pairs} pairs, and has {found}"));
    }
    Ok(Taken { form, policy, pairs, seconds })
}

/// Fig. 18: pairs by place, and slots over the best file system.
#[must_use]
pub fn outcome(all: &[Taken], plan: &Plan) -> Outcome {
    let pair = (KEY_BYTES + plan.value_bytes) as f64;
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
            labels: of.iter().map(|taken| taken.form.name().to_owned()).collect(),
        });
        for taken in &of {
            let name = format!("{policy} on {}", taken.form.name());
            let share = taken.pairs as f64 * pair / plan.device_bytes as f64;
            for (what, unit, ours) in [
                ("pairs", "", taken.pairs as f64),
                ("share of the device", "", share),
                ("rate", "MiB/s", taken.pairs as f64 * pair / MIB / taken.seconds),
            ] {
                result.numbers.push(number(format!("{name}: {what}"), unit, ours, [None; 2], ""));
            }
        }
        let (slots, files): (Vec<&&Taken>, _) = of.iter().partition(|t| t.form == Form::Slots);
        let best = files.iter().map(|taken| taken.pairs).max();
        if let (Some(slots), Some(best)) = (slots.first(), best) {
            let ours = slots.pairs as f64 / best as f64;
            let name = format!("{policy}: slots over the best file system");
            let note = "at least the best file system's (section 4.5)";
            result.numbers.push(number(name, "", ours, [Some(1.0), None], note));
        }
    }
    result
}
