//! The generator: operations drawn from a seed.
//!
//! It knows nothing of the store's state beyond counters: an operation that makes no sense where it
//! lands (a snapshot slot that is empty) does nothing, which keeps every sublist of a list valid.

use std::ops::Bound;

use weir::Durability;
use weir::sim::Prng;

use crate::op::{How, ITERATORS, Item, KEYSPACES, Leave, Misuse, Move, Op, SNAPSHOTS, Val};
use crate::options::{self, Cell};
use crate::world;

/// What one episode is like.
#[derive(Clone, Debug)]
pub struct Mix {
    /// Distinct keys per keyspace.
    pub keys: u32,
    /// Typical value length in bytes.
    pub value: u32,
    /// Out of 1,000 operations, how many write.
    pub writes: u32,
    /// Out of 1,000 operations, how many reopen the store.
    pub reopens: u32,
    /// Out of 1,000 operations, how many flush, compact, or wait for either.
    pub maintenance: u32,
    /// Out of 1,000 operations, how many have keyspaces made and dropped beside other actors.
    pub besides: u32,
    /// Whether writes without a log occur.
    pub unlogged: bool,
    /// Whether most writes are deferred.
    pub deferred: bool,
    /// Whether power is ever lost.
    pub power: bool,
    /// Keyspaces used, 1 to [`KEYSPACES`].
    pub keyspaces: u8,
}

impl Mix {
    /// A mix drawn from a seed.
    #[must_use]
    pub fn random(rng: &mut Prng) -> Self {
        Self {
            keys: [16, 80, 400, 2000, 6000][rng.below(5) as usize],
            value: [8, 40, 100, 400][rng.below(4) as usize],
            writes: 300 + rng.below(500) as u32,
            reopens: [0, 1, 3, 20][rng.below(4) as usize],
            maintenance: [2, 10, 40][rng.below(3) as usize],
            besides: 0,
            unlogged: rng.chance(1, 4),
            // What is drawn afterwards stays what it was.
            deferred: rng.clone().fork().chance(1, 4),
            power: rng.chance(3, 4),
            keyspaces: 1 + rng.below(u64::from(KEYSPACES)) as u8,
        }
    }
}

/// Draws operations.
pub struct Generator {
    rng: Prng,
    mix: Mix,
    values: u32,
    hot: u32,
    /// Every keyspace gets options of this cell.
    cell: Option<Cell>,
}

impl Generator {
    /// Operations of this kind, fixed by the seed.
    #[must_use]
    pub fn new(seed: u64, mix: Mix) -> Self {
        Self { rng: Prng::new(seed), mix, values: 0, hot: 0, cell: None }
    }

    /// The same, with options of one cell only.
    #[must_use]
    pub fn of_cell(seed: u64, mix: Mix, cell: Option<Cell>) -> Self {
        Self { cell, ..Self::new(seed, mix) }
    }

    /// A list of operations that begins with the creation of the keyspaces.
    pub fn list(&mut self, count: usize) -> Vec<Op> {
        let mut ops = Vec::with_capacity(count);
        for ks in 0..self.mix.keyspaces {
            ops.push(Op::Keyspace { ks, options: self.options() });
        }
        while ops.len() < count {
            let op = self.op();
            ops.push(op);
        }
        ops.push(Op::Everything);
        ops
    }

    fn number(&mut self) -> u32 {
        self.rng.next_u64() as u32
    }

    /// The number of options of a keyspace.
    fn options(&mut self) -> u32 {
        let cell = self.cell;
        let fit = |n| cell.is_none_or(|cell| cell.has(&options::keyspace(n)));
        options::number_where(|| self.number(), fit)
    }

    /// The number of options of a reopening.
    fn options_again(&mut self) -> u32 {
        let cell = self.cell;
        let fit = |n| cell.is_none_or(|cell| cell.has(&options::reopened(n)));
        options::number_where(|| self.number(), fit)
    }

    /// A way to leave the store.
    pub fn leave(&mut self) -> Leave {
        match self.rng.below(6) {
            0 | 1 => Leave::Close,
            2 => Leave::Drop,
            3 => Leave::Kill,
            _ if self.mix.power => {
                let policy = self.rng.below(u64::from(u8::MAX)) as u8;
                Leave::Power(policy, self.number())
            }
            _ => Leave::Kill,
        }
    }

    /// Puts that bring the default keyspace into the middle of a round, at most `count`.
    pub fn midway(&mut self, count: u32) -> Op {
        let (key, val) = (self.number() % 1000, self.val());
        self.values += count;
        Op::Midway { key, val: Val { len: val.len % 200, ..val }, count }
    }

    fn beside(&mut self) -> Op {
        let (key, val) = (self.key(), self.val());
        self.values += crate::runner::VALUES_BESIDE;
        Op::Beside { key, val: Val { len: val.len % 400, ..val }, options: self.options() }
    }

    fn ks(&mut self) -> u8 {
        self.rng.below(u64::from(self.mix.keyspaces)) as u8
    }

    /// Mostly uniform, sometimes near a moving hot spot, sometimes ascending.
    fn key(&mut self) -> u32 {
        let keys = u64::from(self.mix.keys);
        match self.rng.below(8) {
            0 | 1 => ((u64::from(self.hot) + self.rng.below(24)) % keys) as u32,
            2 => {
                self.hot = (self.hot + 1) % self.mix.keys;
                self.hot
            }
            _ => self.rng.below(keys) as u32,
        }
    }

    fn bound(&mut self) -> Bound<u32> {
        match self.rng.below(5) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Included(self.key()),
            _ => Bound::Excluded(self.key()),
        }
    }

    /// A value that no other write of this list has.
    pub fn val(&mut self) -> Val {
        self.values += 1;
        let typical = u64::from(self.mix.value);
        let len = match self.rng.below(64) {
            0 => 0,
            1 | 2 => self.rng.below(9),
            3 => 1000 + self.rng.below(7000),
            4 if self.rng.chance(1, 8) => 20_000 + self.rng.below(60_000),
            _ => 4 + self.rng.below(2 * typical),
        };
        // Entries as large as tables are, where devices get full.
        let times = if world::device_bytes().is_some() { 8 } else { 1 };
        Val { id: self.values, len: (times * len) as u32 }
    }

    fn durability(&mut self) -> Durability {
        match self.rng.below(16) {
            0..=2 => Durability::Sync,
            3 | 4 if self.mix.unlogged => Durability::None,
            5..=13 if self.mix.deferred => Durability::Deferred,
            5 => Durability::Deferred,
            _ => Durability::Buffered,
        }
    }

    fn items(&mut self, ks: Option<u8>) -> Vec<Item> {
        let count = match self.rng.below(12) {
            0 => 0,
            1 => 30 + self.rng.below(60),
            _ => 1 + self.rng.below(8),
        };
        (0..count)
            .map(|_| {
                let ks = ks.unwrap_or_else(|| self.ks());
                let key = self.key();
                (ks, key, if self.rng.chance(3, 4) { Some(self.val()) } else { None })
            })
            .collect()
    }

    fn snap(&mut self) -> Option<u8> {
        self.rng.chance(1, 3).then(|| self.rng.below(u64::from(SNAPSHOTS)) as u8)
    }

    fn how(&mut self) -> How {
        match self.rng.below(3) {
            0 => How::Forward,
            1 => How::Backward,
            _ => How::Both(self.number()),
        }
    }

    fn limit(&mut self) -> u32 {
        if self.rng.chance(1, 20) { u32::MAX } else { 1 + self.rng.below(40) as u32 }
    }

    /// The next operation.
    pub fn op(&mut self) -> Op {
        let mut dice = self.rng.below(1000) as u32;
        for (share, draw) in [
            (self.mix.writes, Self::write as fn(&mut Self) -> Op),
            (self.mix.reopens, Self::reopen),
            (self.mix.maintenance, Self::maintenance),
            (self.mix.besides, Self::beside),
            (60, Self::handles),
            (8, Self::rare),
        ] {
            if dice < share {
                return draw(self);
            }
            dice -= share;
        }
        self.read()
    }

    fn write(&mut self) -> Op {
        let dur = self.durability();
        match self.rng.below(20) {
            0..=11 => Op::Put { ks: self.ks(), key: self.key(), val: self.val(), dur },
            12..=15 => Op::Delete { ks: self.ks(), key: self.key(), dur },
            16 => Op::Sync,
            17 => {
                let logged = Some(dur).filter(|&dur| dur != Durability::None);
                let dur = logged.unwrap_or_default();
                let count = 1 + self.rng.below(4);
                Op::Commits { batches: (0..count).map(|_| self.items(None)).collect(), dur }
            }
            _ if dur == Durability::None => {
                let ks = self.ks();
                Op::Batch { items: self.items(Some(ks)), dur }
            }
            _ => Op::Batch { items: self.items(None), dur },
        }
    }

    fn reopen(&mut self) -> Op {
        let leave = self.leave();
        Op::Reopen { leave, options: self.options_again() }
    }

    fn maintenance(&mut self) -> Op {
        match self.rng.below(14) {
            0..=3 => Op::Flush { ks: self.ks() },
            4..=6 => Op::Compact { ks: self.ks(), lo: self.bound(), hi: self.bound() },
            7 => Op::Idle,
            10.. => Op::Sentinel { ks: self.ks(), lo: self.bound(), hi: self.bound() },
            _ => Op::Wait { millis: 1 << self.rng.below(12) },
        }
    }

    fn handles(&mut self) -> Op {
        let slot = self.rng.below(u64::from(SNAPSHOTS)) as u8;
        let iter = slot % ITERATORS;
        match self.rng.below(8) {
            0 | 1 => Op::SnapTake { slot },
            2 => Op::SnapDrop { slot },
            3 => Op::IterOpen {
                slot: iter,
                ks: self.ks(),
                lo: self.bound(),
                hi: self.bound(),
                snap: self.snap(),
            },
            4..=6 => Op::IterStep {
                slot: iter,
                steps: 1 + self.rng.below(9) as u8,
                back: self.rng.chance(1, 2),
            },
            _ => Op::IterDrop { slot: iter },
        }
    }

    fn rare(&mut self) -> Op {
        match self.rng.below(14) {
            0 => Op::Everything,
            1 => Op::Verify,
            2 => Op::Inspect,
            3 => Op::List,
            4 => Op::Size { ks: self.ks(), lo: self.bound(), hi: self.bound() },
            5 => Op::Keyspace { ks: self.ks(), options: self.options() },
            9 => self.beside(),
            6 => Op::OpenStored { ks: self.ks() },
            7 if self.rng.chance(1, 2) => Op::DropKeyspace { ks: self.ks() },
            8 => Op::Create { ks: self.ks(), options: self.options() },
            _ => {
                let all = [
                    Misuse::LongKey,
                    Misuse::UnloggedBatch,
                    Misuse::CreateAgain,
                    Misuse::Unknown,
                    Misuse::SecondOpen,
                    Misuse::BadOption,
                    Misuse::InvertedRange,
                ];
                Op::Misuse { what: all[self.rng.below(all.len() as u64) as usize] }
            }
        }
    }

    fn read(&mut self) -> Op {
        match self.rng.below(10) {
            0..=3 => Op::Get { ks: self.ks(), key: self.key(), snap: self.snap() },
            4 => {
                let count = self.rng.below(12);
                let keys = (0..count).map(|_| self.key()).collect();
                Op::MultiGet { ks: self.ks(), keys, snap: self.snap() }
            }
            5 | 6 => Op::Scan {
                ks: self.ks(),
                lo: self.bound(),
                hi: self.bound(),
                snap: self.snap(),
                how: self.how(),
                limit: self.limit(),
            },
            7 => Op::Prefix {
                ks: self.ks(),
                key: self.key(),
                len: self.rng.below(10) as u8,
                snap: self.snap(),
                how: self.how(),
            },
            _ => {
                let count = 1 + self.rng.below(12);
                let moves = (0..count).map(|i| self.cursor_move(i == 0)).collect();
                Op::Cursor { ks: self.ks(), snap: self.snap(), moves }
            }
        }
    }

    fn cursor_move(&mut self, first: bool) -> Move {
        match self.rng.below(if first { 6 } else { 16 }) {
            0 | 1 => Move::Seek(self.key()),
            2 | 3 => Move::SeekForPrev(self.key()),
            4 => Move::First,
            5 => Move::Last,
            6..=10 => Move::Next,
            _ => Move::Prev,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is printed for a failure must be what is read back.
    #[test]
    fn operations_survive_being_printed() {
        for seed in 0..20 {
            let mut rng = Prng::new(seed);
            let mix = Mix { reopens: 50, maintenance: 100, ..Mix::random(&mut rng) };
            for op in Generator::new(seed, mix).list(2000) {
                assert_eq!(op.to_string().parse::<Op>().as_ref(), Ok(&op), "seed {seed}");
            }
            let midway = Generator::new(seed, Mix::random(&mut rng)).midway(100);
            for op in [midway, Op::Settle] {
                assert_eq!(op.to_string().parse::<Op>().as_ref(), Ok(&op), "seed {seed}");
            }
        }
    }
}
