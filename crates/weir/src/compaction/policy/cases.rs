//! Text cases of the policies: a shape in, tasks out, to be read by people.
//!
//! A file holds the cases of one rule. A case is a title, lines that build a shape, a command, and
//! the lines that the command must print:
//!
//! ```text
//! case level 0 at its trigger goes down as a whole
//!   options l0_trigger=2
//!   L0 9: 12[a-m] 13[n-z]         a run with epoch 9 of two tables, newest run first
//!   L0 8: 11[c-p]*300!4/10@77     300 bytes, 4 deletes of 10 entries, largest sequence number 77
//!   L0 7s: 10[a-c]              a sentinel run
//!   sentinel_bytes_max 500        of which all together may have 500 bytes
//!   cache_bytes 9000              of the block cache; without this line it does not matter
//!   L5 3: 7[a-c]
//!   L5' 2: 6[a-b] 8[d-e]          a run of the draining part of level 5
//!   rotated L5 900                which had 900 bytes when it began to drain; without this
//!                                 line, what it has now
//!   cursor L5 c
//!   busy 7
//!   damaged 13                    after the busy ones
//!   job L0 9 L5 2 a-m             a running job from the run of epoch 9 on level 0 to that of
//!                                 epoch 2 on level 5
//!   keeper L5 2 L6 1 a-m          the same of a job whose last output may stay on level 5
//!   build L0 10 L5 2 c-d          a running job that builds a sentinel run of epoch 10 from what
//!                                 is older, to that run
//!   snapshots 5 9
//! pick
//!   merge L0/9:{12,13} L0/8:{11} -> L6 (run-count)
//! ```
//!
//! Commands: `pick`, `moves` (where the moves that were picked go to), `range LOW-HIGH` (or `range
//! all`), `hot LOW-HIGH` (without HIGH), `plan` (of the first task picked), `targets` (of
//! `leveled`), `part_targets` (of `gear` and `two_phase`), `pressure`, `merge_bytes` (of the next
//! merge of level 0), `check`. A table has 100 bytes unless it says otherwise, and so has the
//! option `table_bytes`; `base_level_bytes` is
//! 400, `level_ratio` 10, `l0_trigger` and `runs_per_level` 4.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::Bound;
use std::sync::Arc;

use super::{Policy, RangePick};
use crate::base::ids::{DataEpoch, KeyspaceId, Level, TableUid};
use crate::base::place::Place;
use crate::base::table_meta::TableMeta;
use crate::compaction::policy_of;
use crate::compaction::task::{PartName, Task};
use crate::options::{CompactionPolicy, Compression, LeveledOptions, Options, WarmUp};
use crate::version::shape::{JobFootprint, PartKind, RunId, RunKind, RunShape, Shape, TableList};

/// Options in which 100 bytes are a table, and one write buffer counts nothing.
fn small_options(policy: CompactionPolicy) -> Options {
    let sizes = LeveledOptions::default().base_level_bytes(400).level_ratio(10).l0_trigger(4);
    Options::default()
        .write_buffer_bytes(1)
        .table_bytes(100)
        .compaction(policy.with_options_of(sizes.into()))
}

/// A shape without tables.
fn empty_shape(options: Options) -> Shape {
    Shape::empty(Arc::new(options))
}

/// A table as a policy sees it.
pub(super) fn table(uid: TableUid, smallest: &[u8], largest: &[u8], bytes: u64) -> TableMeta {
    TableMeta {
        uid,
        check_uid: uid,
        bytes,
        tail_bytes: 0,
        tail_checksum: 0,
        raw_bytes: bytes,
        entries: 10,
        deletes: 0,
        blocks: 1,
        seq_min: 1,
        seq_max: 1,
        smallest: smallest.to_vec(),
        largest: largest.to_vec(),
        entry_hash: 0,
        keyspace: KeyspaceId::DEFAULT,
        masks: Vec::new(),
        place: Place::default(),
    }
}

/// One parsed case.
#[derive(Default)]
struct Case {
    title: String,
    shape: Vec<String>,
    command: String,
    expected: Vec<String>,
}

fn parse(file: &str, text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or("").trim_end();
        if line.is_empty() {
            continue;
        }
        if let Some(title) = line.strip_prefix("case ") {
            cases.push(Case { title: format!("{file}: {title}"), ..Case::default() });
            continue;
        }
        let case = cases.last_mut().unwrap_or_else(|| panic!("{file}: a line before any case"));
        match (line.starts_with(' '), case.command.is_empty()) {
            (true, true) => case.shape.push(line.trim().to_owned()),
            (true, false) => case.expected.push(line.trim().to_owned()),
            (false, _) => line.clone_into(&mut case.command),
        }
    }
    cases
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is not a number"))
}

fn parse_uids(text: &str) -> BTreeSet<TableUid> {
    text.split(' ').map(|uid| TableUid::new(number(uid))).collect()
}

/// `12[a-m]*300!4/10@77`
fn parse_table(text: &str) -> TableMeta {
    let (uid, rest) = text.split_once('[').unwrap_or_else(|| panic!("no bounds in {text:?}"));
    let (bounds, rest) = rest.split_once(']').unwrap_or_else(|| panic!("no ] in {text:?}"));
    let (smallest, largest) = bounds.split_once('-').unwrap_or((bounds, bounds));
    let mut meta = table(TableUid::new(number(uid)), smallest.as_bytes(), largest.as_bytes(), 100);
    let (rest, seq) = rest.split_once('@').unwrap_or((rest, "1"));
    meta.seq_max = number(seq);
    if let Some((rest, deletes)) = rest.split_once('!') {
        let (deletes, entries) = deletes.split_once('/').unwrap_or((deletes, "10"));
        (meta.deletes, meta.entries) = (number(deletes), number(entries));
        meta.bytes = rest.strip_prefix('*').map_or(100, number);
    } else {
        meta.bytes = rest.strip_prefix('*').map_or(100, number);
    }
    meta
}

fn set_option(options: &mut Options, text: &str) {
    let (name, value) = text.split_once('=').unwrap_or_else(|| panic!("no = in {text:?}"));
    let policy = options.compaction;
    let (mut sizes, mut runs) = (policy.level_sizes(), policy.runs());
    match name {
        "runs_per_level" => runs.runs_per_level = number(value) as usize,
        "l0_trigger" => sizes.l0_trigger = number(value) as usize,
        "level_ratio" => sizes.level_ratio = number(value) as u32,
        "expected_bytes" => sizes.expected_bytes = number(value),
        "base_level_bytes" => sizes.base_level_bytes = number(value),
        "table_bytes" => options.table_bytes = number(value),
        "odd_chunk" => options.debug.odd_chunk = value.parse().expect("a way"),
        "write_buffer_bytes" => options.write_buffer_bytes = number(value),
        "filters" => options.filters = value.parse().expect("a division of filter bits"),
        "warm_up" if value == "none" => options.warm_up = WarmUp::None,
        "compression" if value == "lz4_below_0" => {
            options.compression = vec![Compression::None, Compression::Lz4];
        }
        _ => panic!("unknown option {text:?}"),
    }
    options.compaction = policy.assembled(sizes, runs);
    let is_set = (sizes, runs) == (options.compaction.level_sizes(), options.compaction.runs());
    assert!(is_set, "{policy} has no option {name}");
}

fn level_of(text: &str) -> Level {
    let number = number(text.strip_prefix('L').unwrap_or_else(|| panic!("{text:?} is no level")));
    Level::new(number as usize).unwrap_or_else(|| panic!("{text:?} is no level"))
}

/// Adds a run: `L5' 2: 6[a-b] 8[d-e]`, split at the first blank.
fn add_run(shape: &mut Shape, part: &str, rest: &str) {
    let (epoch, tables) = rest.split_once(':').expect("PART EPOCH: TABLES");
    let tables = tables.split_whitespace().map(|table| (Arc::new(parse_table(table)), ()));
    let tables = TableList::new(tables.collect()).expect("tables in key order");
    let (epoch, kind) = match epoch.strip_suffix('s') {
        Some(epoch) => (epoch, RunKind::Sentinel),
        None => (epoch, RunKind::Data),
    };
    let epoch = DataEpoch::new(number(epoch));
    let run = RunShape { epoch, kind, tables, claims: None };
    match part.strip_suffix('\'') {
        Some(level) => {
            let draining = &mut shape.levels[level_of(level)].draining;
            let draining = draining.get_or_insert_default();
            draining.rotated_bytes += run.tables.totals().bytes;
            draining.runs.push(run);
        }
        None => shape.levels[level_of(part)].filling.runs.push(run),
    }
}

/// `L0 9 L5 2 a-m`
fn parse_job(text: &str) -> JobFootprint {
    let words: Vec<&str> = text.split(' ').collect();
    let [source, source_epoch, output, output_epoch, keys] = words[..] else {
        panic!("job LEVEL EPOCH LEVEL EPOCH LOW-HIGH, not {text:?}");
    };
    let rank = |name: &str, epoch| {
        let part = if name.ends_with('\'') { PartKind::Draining } else { PartKind::Filling };
        let level = level_of(name.trim_end_matches('\''));
        RunId { level, part, epoch: DataEpoch::new(number(epoch)) }
    };
    let (newest, output) = (rank(source, source_epoch), rank(output, output_epoch));
    let (smallest, largest) = keys.split_once('-').expect("LOW-HIGH");
    let (smallest, largest) = (smallest.as_bytes().to_vec(), largest.as_bytes().to_vec());
    JobFootprint { smallest, largest, newest, oldest: output, output, keeps: None }
}

/// A shape from lines as in a case.
pub(crate) fn shape_of(policy: CompactionPolicy, text: &str) -> Shape {
    let lines: Vec<String> = text.lines().map(|line| line.trim().to_owned()).collect();
    build_shape(policy, &lines)
}

fn build_shape(policy: CompactionPolicy, lines: &[String]) -> Shape {
    let mut shape = empty_shape(small_options(policy));
    for line in lines {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim();
        match word {
            "options" => {
                let mut options = small_options(policy);
                rest.split_whitespace().for_each(|option| set_option(&mut options, option));
                shape.options = Arc::new(options);
            }
            "damaged" => {
                shape.damaged = parse_uids(rest);
                shape.busy.extend(&shape.damaged);
            }
            "sentinel_bytes_max" => shape.sentinel_bytes_max = number(rest),
            "cache_bytes" => shape.cache_bytes = number(rest),
            "busy" => shape.busy = parse_uids(rest),
            "job" => shape.jobs.push(parse_job(rest)),
            "keeper" => {
                let job = parse_job(rest);
                shape.jobs.push(JobFootprint { keeps: Some(job.newest), ..job });
            }
            "build" => {
                let job = parse_job(rest);
                shape.jobs.push(JobFootprint { output: job.newest, ..job });
            }
            "snapshots" => shape.snapshots = rest.split(' ').map(number).collect(),
            "cursor" => {
                let (level, key) = rest.split_once(' ').expect("cursor LEVEL KEY");
                shape.levels[level_of(level)].cursor = Some(key.as_bytes().to_vec());
            }
            "rotated" => {
                let (level, bytes) = rest.split_once(' ').expect("rotated LEVEL BYTES");
                let draining = shape.levels[level_of(level)].draining.as_mut().expect("its runs");
                draining.rotated_bytes = number(bytes);
            }
            _ => add_run(&mut shape, word, rest),
        }
    }
    shape
}

fn run_command(policy: &dyn Policy, shape: &Shape, command: &str) -> Vec<String> {
    let mut out = String::new();
    let (word, rest) = command.split_once(' ').unwrap_or((command, ""));
    match word {
        "pick" => {
            for task in policy.pick(shape) {
                writeln!(out, "{task}").expect("writing to a string");
                if let Some(cursor) = task.cursor() {
                    let key = String::from_utf8_lossy(&cursor.key);
                    writeln!(out, "cursor L{} {key}", cursor.level).expect("writing to a string");
                }
            }
        }
        "range" => {
            let (lower, upper) = match rest.split_once('-') {
                Some((a, b)) => (Bound::Included(a.as_bytes()), Bound::Included(b.as_bytes())),
                None => (Bound::Unbounded, Bound::Unbounded),
            };
            out = match policy.pick_range(shape, lower, upper) {
                RangePick::Task(task) => task.to_string(),
                RangePick::Wait => "wait".to_owned(),
                RangePick::Done => "done".to_owned(),
            };
        }
        "hot" => {
            let (a, b) = rest.split_once('-').expect("hot LOW-HIGH");
            let (a, b) = (Bound::Included(a.as_bytes()), Bound::Excluded(b.as_bytes()));
            let task = policy.pick_hot(shape, a, b);
            out = task.map_or_else(|| "none".to_owned(), |task| task.to_string());
        }
        "plan" => {
            let tasks = policy.pick(shape);
            let Some(Task::Merge(merge)) = tasks.first() else { panic!("no merge: {tasks:?}") };
            let plan = policy.plan(shape, merge);
            let below: Vec<String> =
                plan.below.iter().map(|b| String::from_utf8_lossy(&b.largest).into()).collect();
            out = format!(
                "level {} epoch {} table_bytes {} below [{}]",
                merge.output.level,
                merge.output.epoch,
                plan.table_bytes,
                below.join(" ")
            );
            if let Some(run) = plan.keeps {
                write!(out, " keeps L{}/{}", run.level, run.epoch).expect("a string");
            }
        }
        "moves" => {
            for task in policy.pick(shape) {
                if let Task::Move(moved) = &task {
                    let to = PartName(moved.output.level, moved.output.part);
                    writeln!(out, "to {to} epoch {}", moved.output.epoch).expect("a string");
                }
            }
        }
        "merge_bytes" => out = policy.level_0_merge_bytes(shape).to_string(),
        "part_targets" => out = super::parts::targets_of(shape).describe(),
        "targets" => out = super::leveled::targets_of(shape).describe(),
        "pressure" => {
            let p = policy.pressure(shape);
            out = format!(
                "runs {}/{} debt {}/{}",
                p.l0_runs, p.l0_trigger, p.debt_bytes, p.debt_unit_bytes
            );
        }
        "check" => out = policy.check(shape).join("\n"),
        _ => panic!("unknown command {command:?}"),
    }
    out.lines().map(str::to_owned).collect()
}

/// Runs all cases of a file for a policy, and reports every one that fails, with what was printed
/// instead.
fn run_file(policy: &str, file: &str, text: &str) {
    let option: CompactionPolicy = policy.parse().expect("the name of a policy");
    let policy = policy_of(option);
    let cases = parse(file, text);
    assert!(!cases.is_empty(), "{file} has no case");
    let mut failures = String::new();
    for case in cases {
        let shape = build_shape(option, &case.shape);
        let got = run_command(policy, &shape, &case.command);
        if got != case.expected {
            writeln!(
                failures,
                "{}\n{}:\n  expected:\n    {}\n  got:\n    {}\n",
                case.title,
                case.command,
                case.expected.join("\n    "),
                got.join("\n    ")
            )
            .expect("writing to a string");
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
}

/// Goal: every rule of a policy does what its text says. Method: one file of cases per rule.
macro_rules! cases {
    ($($policy:ident: $($name:ident)*;)*) => {
        $(mod $policy {
            $(
                #[test]
                fn $name() {
                    let file = concat!(stringify!($policy), "/", stringify!($name), ".txt");
                    let text = include_str!(concat!(
                        "cases/", stringify!($policy), "/", stringify!($name), ".txt"
                    ));
                    super::run_file(stringify!($policy), file, text);
                }
            )*
        })*
    };
}

cases! {
    leveled: targets level0 level_bytes cursor widen moves whole_keys busy jobs damaged deletes
        drain range hot plan_outputs odd_chunk pressure check parts sentinels;
    tiered: level along gap epoch busy range deletes check pressure sentinels;
    lazy_leveled: level drain check sentinels;
    size_tiered: similar place cap sentinels;
    stepped_merge: level room sentinels;
    gear: targets level0 pace rotate foreign jobs damaged range check pressure sentinels;
    two_phase: level foreign check sentinels;
}
