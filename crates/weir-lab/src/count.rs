//! Does what `counted` describes, and counts blocks: no time passes but what the disk takes, and
//! nothing depends on it, since flushes and merges end before the next step begins. Between two
//! steps lies `counted.step_seconds`: the engine looks for hot ranges now and then.

use std::time::Duration;

use weir::sim::Simulation;
use weir::{Db, Durability};
use weir_bench::{KeySpace, Prng, Values};

use crate::counted::{Step, Steps};
use crate::paid::Paid;
use crate::sentinels::Rule;
use crate::settings::Settings;
use crate::store;

/// The stream of the values that are written.
const VALUE_STREAM: u64 = 1 << 51;

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Scans.
    pub scans: u64,
    /// Writes.
    pub writes: u64,
    /// Tables that scans entered, and those of them that they entered as they began: runs.
    pub tables: u64,
    /// See `tables`.
    pub runs: u64,
    /// Blocks that they entered.
    pub blocks: u64,
    /// Sentinels by which scans saved fewer blocks than were written for them.
    pub unpaid: u64,
}

struct Counting<'a> {
    db: &'a Db,
    space: KeySpace,
    /// Loaded keys.
    keys: u64,
    values: Values,
    durability: Durability,
    rule: Option<Rule>,
    paid: Option<Paid>,
    /// The number of the next key that is inserted.
    next: u64,
    totals: Totals,
    key: Vec<u8>,
}

/// Does all steps of `counted`.
///
/// # Errors
/// The engine's, as text; a scan that lacks a key.
pub fn run(
    simulation: &Simulation,
    db: &Db,
    settings: &Settings,
    seed: u64,
) -> Result<Totals, String> {
    let Some(counted) = settings.counted else { return Ok(Totals::default()) };
    let pause = Duration::from_secs_f64(counted.step_seconds);
    weir::sim::this_actor_reads();
    let (load, store) = (&settings.load, &settings.store);
    let mut counting = Counting {
        db,
        space: store::keys(settings),
        keys: load.keys,
        values: Values::new(load.value_bytes, 1.0, Prng::new(seed, VALUE_STREAM)),
        durability: store::durability(settings),
        rule: Rule::of(store, false),
        paid: Paid::of(settings),
        next: load.keys,
        totals: Totals::default(),
        key: Vec::new(),
    };
    for step in Steps::new(counted, load.keys, store.sentinel_bucket_keys, seed) {
        match step {
            Step::Scan(from, to) => counting.scan(from, to)?,
            Step::Update(key) => counting.write(key)?,
            Step::Insert => {
                counting.next += 1;
                counting.write(counting.next - 1)?;
            }
        }
        simulation.delay(pause);
    }
    counting.totals.unpaid = counting.paid.map_or(0, Paid::unpaid);
    Ok(counting.totals)
}

impl Counting<'_> {
    fn scan(&mut self, from: u64, to: u64) -> Result<(), String> {
        let mut end = Vec::new();
        self.space.existing(from, &mut self.key);
        self.space.missing(to - 1, &mut end);
        let (before, blocks) = (weir::sim::tables_touched(), weir::sim::blocks_entered());
        let mut cursor = self.db.cursor_range(self.key.as_slice()..end.as_slice());
        cursor.seek_to_first();
        let begun = weir::sim::tables_touched();
        let mut passed = 0;
        while cursor.valid() {
            passed += 1;
            cursor.next();
        }
        cursor.status().map_err(|e| format!("a scan failed: {e}"))?;
        if passed < to - from {
            return Err(format!("a scan of the keys {from} to {to} has {passed} entries"));
        }
        self.totals.scans += 1;
        self.totals.runs += begun - before;
        self.totals.blocks += weir::sim::blocks_entered() - blocks;
        self.totals.tables += weir::sim::tables_touched() - before;
        if let Some(rule) = &self.rule {
            rule.scanned(from, to);
        }
        if let Some(paid) = &mut self.paid {
            paid.look(self.db);
            paid.scanned(from, to);
        }
        self.build()
    }

    fn write(&mut self, number: u64) -> Result<(), String> {
        self.space.existing(number, &mut self.key);
        let put = self.db.put_with(&self.key, self.values.next_value(), self.durability);
        put.map_err(|e| format!("a write failed: {e}"))?;
        self.totals.writes += 1;
        if let Some(rule) = &self.rule {
            rule.written(self.space.neighbour(number));
        }
        self.db.wait_idle().map_err(|e| e.to_string())?;
        if let Some(rule) = &self.rule {
            rule.look_at_flushes(self.db);
        }
        Ok(())
    }

    /// Builds the sentinels that are due.
    fn build(&mut self) -> Result<(), String> {
        let Some(rule) = self.rule.as_ref().filter(|rule| rule.is_due()) else { return Ok(()) };
        rule.build(self.db, |number| {
            let mut key = Vec::new();
            self.space.existing(number, &mut key);
            (number < self.keys).then_some(key)
        })?;
        self.db.wait_idle().map_err(|e| e.to_string())
    }
}
