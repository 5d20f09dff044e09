//! Campaign S: stores whose policy changes at every reopening, from the middle of what the last one
//! was doing.
//!
//! A sequence writes until a compaction runs or a part drains, leaves the store there (closed,
//! dropped, killed, or without power), opens it with another policy, other filters and other runs
//! per level, reads everything, goes on writing, and so on. Every change of the tree passes
//! `version::check` as always; when it is let come to rest it must be in the form that its options
//! demand (`runner::form`), whatever it came from.

use weir::CompactionPolicy;
use weir::sim::Prng;

use crate::campaign::metamorphic::{self, Failure};
use crate::generate::{Generator, Mix};
use crate::op::Op;
use crate::options;
use crate::runner::Counters;
use crate::world::{self, Schedule};

/// Puts at most until a tree has something to do: the largest write buffer takes fewer.
const MIDWAY_PUTS: u32 = 1_500;

/// Whether a few hundred writes make several rounds of a tree with these options.
fn is_busy(options: &weir::Options) -> bool {
    let small = options.write_buffer_bytes <= 8 << 10
        || options.debug.write_buffer_entries.is_some_and(|entries| entries <= 100);
    let policy = options.compaction;
    let deep = policy.base_level_bytes().is_none_or(|bytes| bytes <= 16 << 10)
        && policy.level_ratio().is_none_or(|ratio| ratio < 10)
        && policy.l0_trigger().is_none_or(|runs| runs <= 4);
    small && deep && policy.runs_per_level().is_none_or(|runs| runs <= 4)
}

/// The operations of sequence `number`. Every pair of policies has its turn.
#[must_use]
pub fn sequence(root: u64, number: u64) -> (Schedule, Vec<Op>) {
    let all = CompactionPolicy::ALL;
    let mut rng = Prng::new(root ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93));
    let count = all.len() as u64;
    let from = number % count;
    let to = (from + 1 + number / count % (count - 1)) % count;
    let mut policy = all[to as usize];
    let seed = metamorphic::seed_where(&mut rng, |options| {
        options.compaction.name() == all[from as usize].name() && is_busy(options)
    });
    let schedule = Schedule::new(seed, [1, 4, 16][rng.below(3) as usize]);
    let keyspaces = 1 + rng.below(2) as u8;
    let writing = Mix {
        keys: [80, 400, 2000][rng.below(3) as usize],
        value: [8, 40, 100][rng.below(3) as usize],
        writes: 900,
        reopens: 0,
        // Sentinels built on request are among it.
        maintenance: [4, 40][rng.below(2) as usize],
        besides: 0,
        unlogged: rng.chance(1, 8),
        deferred: false,
        power: true,
        keyspaces,
    };
    let mut generator = Generator::new(rng.next_u64(), writing);
    let mut ops = Vec::new();
    let keyspace = |ks: u8, rng: &mut Prng| Op::Keyspace { ks, options: rng.next_u64() as u32 };
    ops.extend((1..keyspaces).map(|ks| keyspace(ks, &mut rng)));
    for _ in 0..2 + rng.below(3) {
        let writes = 50 + rng.below(400);
        ops.extend((0..writes).map(|_| generator.op()));
        ops.push(generator.midway(MIDWAY_PUTS));
        let fit = |n| {
            let drawn = options::reopened(n);
            drawn.compaction.name() == policy.name() && is_busy(&drawn)
        };
        let options = options::number_where(|| rng.next_u64() as u32, fit);
        ops.push(Op::Reopen { leave: generator.leave(), options });
        ops.extend((1..keyspaces).map(|ks| keyspace(ks, &mut rng)));
        if rng.chance(1, 2) {
            ops.extend((0..rng.below(80)).map(|_| generator.op()));
        }
        if rng.chance(1, 2) {
            ops.push(Op::Settle);
        }
        let others = all.into_iter().filter(|other| *other != policy);
        policy = others.clone().nth(rng.below(count - 1) as usize).unwrap_or(policy);
    }
    ops.push(Op::Settle);
    ops.push(Op::Everything);
    (schedule, ops)
}

/// Runs the campaign: so many sequences.
///
/// # Errors
/// The first failure, reduced.
pub fn run(settings: &metamorphic::Settings, sequences: u64) -> Result<Counters, Box<Failure>> {
    let total = std::sync::Mutex::new((Counters::default(), 0u64));
    let lock = || total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    world::parallel(settings.jobs, |_| -> Result<(), Box<Failure>> {
        loop {
            let number = {
                let mut total = lock();
                total.1 += 1;
                total.1 - 1
            };
            if number >= sequences {
                return Ok(());
            }
            let (schedule, ops) = sequence(settings.seed, number);
            let (counters, _) = metamorphic::execute(schedule, &ops).map_err(|(why, at)| {
                let before = lock().0.ops;
                metamorphic::reduce_failure(settings, schedule, &ops, why, at, before)
            })?;
            lock().0.add(&counters);
        }
    })?;
    Ok(lock().0.clone())
}
