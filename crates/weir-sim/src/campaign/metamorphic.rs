//! Campaign M: random operations over every kind and every option, each answer compared.
//!
//! A run is a series of episodes, each a new store with its own mix of operations, options and
//! schedule, all drawn from the root seed; options change at every reopen. An episode that fails is
//! run again with fewer and fewer operations until nothing can be left out.

use std::path::PathBuf;

use weir::sim::Prng;

use crate::generate::{Generator, Mix};
use crate::op::Op;
use crate::options::{self, Cell};
use crate::reduce::reduce;
use crate::runner::{Counters, Runner};
use crate::world::{self, Schedule};

/// How a run of the campaign is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The root seed.
    pub seed: u64,
    /// Operations in all.
    pub ops: u64,
    /// Threads that run episodes at once.
    pub jobs: usize,
    /// Where a reduced failure is written; nowhere if `None`.
    pub failures: Option<PathBuf>,
    /// Runs of the reducer at most.
    pub tries_max: usize,
    /// Policy and filters, if they are not to be drawn.
    pub cell: Option<Cell>,
}

/// A failed episode, reduced.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed of the episode and its schedule.
    pub schedule: Schedule,
    /// The operations that are left.
    pub ops: Vec<Op>,
    /// The violation that these operations give.
    pub why: String,
    /// Operations of all episodes until it was found.
    pub after: u64,
    /// Operations before the reduction, and runs of the reducer.
    pub reduced_from: (usize, usize),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "# after {} operations: {}", self.after, self.why.replace('\n', "\n# "))?;
        let (from, tries) = self.reduced_from;
        writeln!(f, "# reduced from {from} operations in {tries} runs")?;
        let Schedule { seed, switch_every, pause_one_in } = self.schedule;
        writeln!(f, "schedule {seed} {switch_every} {pause_one_in}")?;
        writeln!(f, "{}", Place::of_process())?;
        self.ops.iter().try_for_each(|op| writeln!(f, "{op}"))
    }
}

/// Where the stores of a process are, as a failure names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// In one file, in slots, instead of in a directory.
    pub in_slots: bool,
    /// MiB of a device that gets full.
    pub device_mib: Option<u64>,
}

impl Place {
    /// That of this process.
    #[must_use]
    pub fn of_process() -> Self {
        let device_mib = world::device_bytes().map(|bytes| bytes >> 20);
        Self { in_slots: world::uses_slots(), device_mib }
    }

    /// The one that a printed failure names, if it does: older ones do not.
    #[must_use]
    pub fn named_in(text: &str) -> Option<Self> {
        let words = text.lines().find_map(|line| line.trim().strip_prefix(PLACE))?;
        let mut words = words.split_whitespace();
        let in_slots = words.next() == Some("slots");
        Some(Self { in_slots, device_mib: words.next().and_then(|mib| mib.parse().ok()) })
    }
}

/// What the line of a place begins with.
const PLACE: &str = "place ";

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{PLACE}{}", if self.in_slots { "slots" } else { "files" })?;
        self.device_mib.map_or(Ok(()), |mib| write!(f, " {mib}"))
    }
}

/// A failure as it was printed: schedule and operations. Its place is for [`Place::named_in`].
///
/// # Errors
/// The line that is neither.
pub fn parse(text: &str) -> Result<(Schedule, Vec<Op>), String> {
    let mut schedule = Schedule::new(0, 16);
    let mut ops = Vec::new();
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
        if let Some(numbers) = line.strip_prefix("schedule ") {
            let mut numbers = numbers.split_whitespace().map(str::parse);
            let (Some(Ok(seed)), Some(Ok(switch_every))) = (numbers.next(), numbers.next()) else {
                return Err(format!("{line} is no schedule"));
            };
            // Older ones do not matter.
            let Some(Ok(pause_one_in)) = numbers.next().or(Some(Ok(0))) else {
                return Err(format!("{line} is no schedule"));
            };
            schedule = Schedule { seed, switch_every, pause_one_in };
        } else if !line.starts_with(PLACE) {
            ops.push(line.parse()?);
        }
    }
    Ok((schedule, ops))
}

/// What must be equal for equal runs: the bytes on the disk, the number of decisions of the
/// scheduler, and a hash over them.
pub type Trail = (u64, u64, u64);

/// Executes a list of operations on a new store.
///
/// # Errors
/// The violation and the number of operations up to and including the one that showed it.
pub fn execute(schedule: Schedule, ops: &[Op]) -> Result<(Counters, Trail), (String, usize)> {
    let list = ops.to_vec();
    let result = world::simulate(schedule, move || {
        let mut runner = Runner::new(schedule.seed).map_err(|why| (why, 0))?;
        for (i, op) in list.iter().enumerate() {
            runner.step(op).map_err(|why| (format!("{op}: {why}"), i + 1))?;
            if i % 64 == 63 {
                runner.prune();
            }
        }
        let (counters, disk) = runner.finish().map_err(|why| (why, list.len()))?;
        let (decisions, hash) = world::schedule_so_far();
        Ok((counters, (disk.fingerprint(), decisions, hash)))
    });
    result.unwrap_or_else(|why| Err((why, ops.len())))
}

/// The operations of episode `number`.
#[must_use]
pub fn episode(root: u64, number: u64) -> (Schedule, Vec<Op>) {
    episode_of(root, number, None)
}

/// The operations of episode `number`, with options of one cell only.
fn episode_of(root: u64, number: u64, cell: Option<Cell>) -> (Schedule, Vec<Op>) {
    let mut rng = Prng::new(root ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut mix = Mix::random(&mut rng);
    let count = [100, 600, 3_000, 12_000][rng.below(4) as usize];
    let seed = seed_where(&mut rng, |options| cell.is_none_or(|cell| cell.has(options)));
    let mut schedule = Schedule::new(seed, [1, 4, 16, 64][rng.below(4) as usize]);
    let list_seed = rng.next_u64();
    schedule.pause_one_in = [0, 8, 24, 72][rng.below(4) as usize];
    // What is wrong only if two actors are put off in the right places is seen only if there is
    // much of it (H38).
    mix.besides = [0, 0, 0, 60][rng.below(4) as usize];
    (schedule, Generator::of_cell(list_seed, mix, cell).list(count))
}

/// A seed for a schedule with which the default keyspace begins with options that `fit`.
pub(super) fn seed_where(rng: &mut Prng, fit: impl Fn(&weir::Options) -> bool) -> u64 {
    loop {
        let seed = rng.next_u64() >> 1;
        if fit(&options::keyspace(seed as u32)) {
            return seed;
        }
    }
}

/// Runs the campaign.
///
/// # Errors
/// The first failure, reduced.
pub fn run(settings: &Settings) -> Result<Counters, Box<Failure>> {
    let total = std::sync::Mutex::new((Counters::default(), 0u64));
    let outcome = world::parallel(settings.jobs, |_| {
        loop {
            let number = {
                let mut total = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                if total.0.ops >= settings.ops {
                    return Ok(());
                }
                total.1 += 1;
                total.1 - 1
            };
            let (schedule, mut ops) = episode_of(settings.seed, number, settings.cell);
            // A short run needs no long episode.
            ops.truncate(settings.ops as usize);
            let (counters, _) = execute(schedule, &ops).map_err(|(why, at)| {
                let before = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner).0.ops;
                reduce_failure(settings, schedule, &ops, why, at, before)
            })?;
            let mut total = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            total.0.add(&counters);
        }
    });
    outcome.map(|()| total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).0)
}

pub(super) fn reduce_failure(
    settings: &Settings,
    schedule: Schedule,
    ops: &[Op],
    why: String,
    at: usize,
    ops_before: u64,
) -> Box<Failure> {
    let after = ops_before + at as u64;
    let why_first = why.clone();
    let ops = ops[..at.min(ops.len())].to_vec();
    let from = ops.len();
    let quiet = world::Quiet::begin();
    let (left, tries) = reduce(ops, settings.tries_max, |list| execute(schedule, list).is_err());
    drop(quiet);
    let why = execute(schedule, &left).err().map_or(why_first, |(why, _)| why);
    let failure =
        Box::new(Failure { schedule, ops: left, why, after, reduced_from: (from, tries) });
    if let Some(dir) = &settings.failures {
        let path = dir.join(format!("m-{}.ops", schedule.seed));
        world::write_report(&path, &failure.to_string());
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a printed failure says where its store was, and older ones, which do not, can be read.
    #[test]
    fn a_failure_names_its_place() {
        for (in_slots, device_mib) in [(false, None), (true, None), (true, Some(24))] {
            let place = Place { in_slots, device_mib };
            let text = format!("# why\nschedule 7 16 0\n{place}\n");
            assert_eq!(Place::named_in(&text), Some(place));
            let (schedule, ops) = parse(&text).expect("a failure");
            assert_eq!((schedule.seed, ops.len()), (7, 0));
        }
        assert_eq!(Place::named_in("schedule 7 16 0\n"), None);
    }
}
