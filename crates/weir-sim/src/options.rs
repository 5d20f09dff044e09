//! Options drawn from a number, small enough that a few hundred writes fill several levels.

use std::time::Duration;

use weir::sim::Prng;
use weir::{
    BucketRanges, CompactionBuffer, CompactionPolicy, Compression, CostModel, DbOptions,
    DebugDbOptions, DebugOptions, Filters, HotRanges, LeveledOptions, OddChunk, Options,
    RunsOptions, SentinelOptions, Sentinels, TrimOptions, WarmUp,
};

use crate::world;

/// Options of a store and of its default keyspace.
pub type Pair = (DbOptions, Options);

/// One of the choices.
fn one<T: Copy>(rng: &mut Prng, choices: &[T]) -> T {
    choices[rng.below(choices.len() as u64) as usize]
}

/// Options of a keyspace; every field takes part.
#[must_use]
pub fn keyspace(number: u32) -> Options {
    let mut rng = Prng::new(0x6b73_0000_0000 ^ u64::from(number));
    let rng = &mut rng;
    let list = |rng: &mut Prng| 1 + rng.below(4) as usize;
    let bits = list(rng);
    let codecs = list(rng);
    let entries = [None, None, Some(1), Some(20), Some(100)];
    let options = Options::default()
        .write_buffer_bytes(one(rng, &[4 << 10, 8 << 10, 16 << 10, 64 << 10]))
        .debug(DebugOptions::default().write_buffer_entries(one(rng, &entries)))
        .immutables_max(one(rng, &[1, 2, 4]))
        .block_bytes(one(rng, &[512, 600, 1024, 4096]))
        .table_bytes(one(rng, &[1 << 10, 2 << 10, 4 << 10, 16 << 10]))
        .bloom_bits((0..bits).map(|_| one(rng, &[0.0, 1.0, 4.5, 10.0, 32.0])).collect::<Vec<_>>())
        .compression(
            (0..codecs)
                .map(|_| one(rng, &[Compression::None, Compression::None, Compression::Lz4]))
                .collect::<Vec<_>>(),
        );
    // Options of every policy are drawn, whichever it is.
    let sizes = LeveledOptions::default()
        .level_ratio(one(rng, &[2, 3, 10]))
        .base_level_bytes(one(rng, &[1 << 10, 4 << 10, 16 << 10, 64 << 10]))
        .l0_trigger(one(rng, &[1, 2, 4, 8]))
        .expected_bytes(one(rng, &[0, 0, 64 << 10, 1 << 20]));
    let policy = one(rng, &CompactionPolicy::ALL);
    let runs = RunsOptions::default().runs_per_level(one(rng, &[2, 3, 4, 10]));
    let options = options
        .compaction(
            policy.with_options_of(sizes.into()).with_options_of(CompactionPolicy::Tiered(runs)),
        )
        .filters(one(rng, &Filters::ALL))
        .warm_up(warm_up(rng));
    let buffer = compaction_buffer(rng);
    let buffer = if buffer.suits(options.compaction) { buffer } else { CompactionBuffer::Off };
    let options = options.compaction_buffer(buffer);
    let rest = one(rng, &[None, None, Some(1_000), Some(100_000), Some(3_000_000)]);
    let rest = rest.filter(|_| options.compaction.level_ratio().is_some());
    let mut options =
        options.idle_compaction(rest.map(Duration::from_micros)).sentinels(sentinels(rng));
    // Last, so that a number stands for the options that it did before there was this one.
    let odd_chunk = one(rng, &[OddChunk::Plain, OddChunk::Balanced, OddChunk::Upper]);
    if rng.chance(1, 2) && odd_chunk.suits(options.compaction) {
        options.debug.odd_chunk = odd_chunk;
    }
    if world::device_bytes().is_some() { wider(options) } else { options }
}

/// Tables, and what becomes tables, of a few slots of a device that gets full: each of the usual
/// ones would take a slot for a sixty-fourth of its bytes.
fn wider(mut options: Options) -> Options {
    options.table_bytes *= 64;
    options.write_buffer_bytes *= 16;
    let entries = &mut options.debug.write_buffer_entries;
    *entries = entries.map(|entries| entries.max(100));
    options
}

/// Windows end within an operation, or outlive an episode. No way needs a policy.
fn sentinels(rng: &mut Prng) -> Sentinels {
    let on = SentinelOptions::default()
        .theta(one(rng, &[0.0, 0.1, 1.0]))
        .cost(one(rng, &CostModel::ALL))
        .buckets(one(rng, &[BucketRanges::Quantile(8), BucketRanges::Equal(8)]))
        .window(Duration::from_micros(one(rng, &[10_000, 1_000_000, 100_000_000])))
        .ways(one(rng, &[HotRanges::Up, HotRanges::Cheaper]));
    let sentinels = one(rng, &[Sentinels::Off, on.into()]);
    let bytes_max = one(rng, &[None, Some(2_000), Some(u64::MAX)]);
    match sentinels {
        Sentinels::On(on) => on.bytes_max(bytes_max).into(),
        off => off,
    }
}

/// Caches are so small here that all but a threshold of 0 trims whatever it may; intervals end
/// within an operation, or outlive an episode.
fn compaction_buffer(rng: &mut Prng) -> CompactionBuffer {
    let trim = TrimOptions::default()
        .threshold(one(rng, &[0.0, 0.0, 0.5, 0.8, 1.0]))
        .interval(Duration::from_micros(one(rng, &[10_000, 100_000, 1_000_000, 10_000_000])));
    one(rng, &[CompactionBuffer::Off, CompactionBuffer::Cascade, trim.into()])
}

/// A third of each, where an earlier version of this program, whose numbers are in regression
/// tests, drew one of the first two.
fn warm_up(rng: &mut Prng) -> WarmUp {
    let before = one(rng, &[WarmUp::None, WarmUp::Incremental]);
    if rng.below(3) == 0 { WarmUp::HandOff } else { before }
}

/// What stays as it is while all other options are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// The policy of every keyspace.
    pub compaction: CompactionPolicy,
    /// How every keyspace divides its filter bits.
    pub filters: Filters,
    /// The compaction buffer of every keyspace.
    pub buffer: CompactionBuffer,
}

impl Cell {
    /// Every policy with every division of filter bits and every compaction buffer that it can
    /// have.
    pub fn all() -> impl Iterator<Item = Self> {
        CompactionPolicy::ALL.into_iter().flat_map(|compaction| {
            Filters::ALL.into_iter().flat_map(move |filters| {
                let buffers = CompactionBuffer::ALL.into_iter();
                let buffers = buffers.filter(move |buffer| buffer.suits(compaction));
                buffers.map(move |buffer| Self { compaction, filters, buffer })
            })
        })
    }

    /// Whether these options are of the cell.
    #[must_use]
    pub fn has(self, options: &Options) -> bool {
        (options.compaction.name(), options.filters) == (self.compaction.name(), self.filters)
            && options.compaction_buffer.name() == self.buffer.name()
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.compaction, self.filters, self.buffer)
    }
}

/// Options that a reopening with this number gives the default keyspace.
#[must_use]
pub fn reopened(number: u32) -> Options {
    keyspace(number.rotate_left(9))
}

/// The first number of `draw` that stands for options which `fit`. Numbers, not options, are what
/// operations carry, so a list that was made for one cell is executed like any other.
pub fn number_where(mut draw: impl FnMut() -> u32, fit: impl Fn(u32) -> bool) -> u32 {
    loop {
        let number = draw();
        if fit(number) {
            return number;
        }
    }
}

/// Options of a store; every field that is not about opening takes part.
#[must_use]
pub fn store(number: u32) -> DbOptions {
    let mut rng = Prng::new(0x6462_0000_0000 ^ u64::from(number));
    let rng = &mut rng;
    let memory_budget = one(rng, &[64 << 10, 256 << 10, 1 << 20, 8 << 20]);
    let mut options = DbOptions::default()
        .memory_budget(memory_budget)
        .block_cache_bytes(one(rng, &[None, None, Some(0), Some(8 << 10), Some(32 << 10)]))
        .background_threads(one(rng, &[1, 1, 2, 3]))
        .log_segment_bytes(one(rng, &[4 << 10, 8 << 10, 32 << 10, 1 << 20]))
        .log_area_bytes(one(rng, &[16 << 10, 64 << 10, 256 << 10, 4 << 20]))
        .debug(
            DebugDbOptions::default()
                .verify_outputs(rng.chance(1, 2))
                .version_log_bytes(one(rng, &[4 << 10, 16 << 10, 1 << 20])),
        )
        .open_files_max(one(rng, &[None, Some(4), Some(12)]))
        .row_cache_bytes(one(rng, &[0, 0, 2 << 10, 16 << 10, 32 << 10]));
    options.debug.gap_entries = one(rng, &[1, 2, 8, 64]);
    options.debug.stretch_bytes =
        one(rng, &[None, None, None, None, None, None, Some(500), Some(5000)]);
    if world::device_bytes().is_some() {
        options.memory_budget = options.memory_budget.max(1 << 20);
        options.log_segment_bytes = options.log_segment_bytes.max(32 << 10);
        options.log_area_bytes = options.log_area_bytes.max(256 << 10);
        options.debug.stretch_bytes = options.debug.stretch_bytes.map(|bytes| 64 * bytes);
    }
    options
}

#[cfg(test)]
mod tests {
    /// Whatever number is drawn, the engine accepts the options.
    #[test]
    fn drawn_options_are_valid() {
        for number in 0..2000 {
            super::keyspace(number).validate().unwrap();
            super::store(number).validate().unwrap();
        }
    }

    /// Every cell is drawn, also by the numbers of reopenings.
    #[test]
    fn every_cell_is_drawn() {
        let mut rng = super::Prng::new(1);
        for cell in super::Cell::all() {
            let mut draw = || rng.next_u64() as u32;
            let number = super::number_where(&mut draw, |n| cell.has(&super::reopened(n)));
            assert!(cell.has(&super::reopened(number)), "{cell}");
        }
        assert_eq!(super::Cell::all().count(), 24);
    }
}
