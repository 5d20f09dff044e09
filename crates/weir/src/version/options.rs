// FORMAT: docs/format/edit.md sha=47035008c005
//! The stored form of a keyspace's options.
//!
//! Tagged (`base::tagged`): an absent field has its default; an option that an older version may
//! safely ignore has an odd tag. The options of a policy are fields beside it, in any order; those
//! that the policy does not have are not written, and are ignored where an earlier version wrote
//! them. The page is docs/format/edit.md, "Options".

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::time::Duration;

use crate::base::coding::Reader;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::tagged::{next_field, number, put_field, put_number, unknown};
use crate::options::compaction::LevelSizes;
use crate::options::{
    BucketRanges, CompactionBuffer, CompactionPolicy, Compression, CostModel, Filters, HotRanges,
    OddChunk, Options, RunsOptions, SentinelOptions, Sentinels, TrimOptions, WarmUp,
};

const TAG_WRITE_BUFFER_BYTES: u64 = 1;
const TAG_WRITE_BUFFER_ENTRIES: u64 = 3;
const TAG_IMMUTABLES_MAX: u64 = 5;
const TAG_COMPACTION: u64 = 2;
const TAG_BLOCK_BYTES: u64 = 7;
const TAG_TABLE_BYTES: u64 = 9;
const TAG_BLOOM_BITS: u64 = 11;
const TAG_COMPRESSION: u64 = 4;
const TAG_LEVEL_RATIO: u64 = 13;
const TAG_BASE_LEVEL_BYTES: u64 = 15;
const TAG_L0_TRIGGER: u64 = 17;
const TAG_RUNS_PER_LEVEL: u64 = 19;
const TAG_FILTERS: u64 = 21;
const TAG_WARM_UP: u64 = 23;
const TAG_EXPECTED_BYTES: u64 = 25;
const TAG_COMPACTION_BUFFER: u64 = 6;
const TAG_TRIM_THRESHOLD: u64 = 27;
const TAG_TRIM_INTERVAL: u64 = 29;
const TAG_IDLE_COMPACTION: u64 = 31;
// Sentinels are ignorable: they say what is done from now on. What was moved is in the tree, and is
// critical there if a reader must know of it.
const TAG_SENTINELS: u64 = 33;
const TAG_THETA: u64 = 35;
const TAG_COST_MODEL: u64 = 37;
const TAG_QUANTILE_BUCKETS: u64 = 39;
const TAG_EQUAL_BUCKETS: u64 = 41;
const TAG_HEAT_WINDOW: u64 = 43;
const TAG_HOT_RANGES: u64 = 45;
const TAG_SENTINEL_BYTES_MAX: u64 = 47;
const TAG_ODD_CHUNK: u64 = 49;

const RECORD: &str = "keyspace option";

fn policy_number(policy: CompactionPolicy) -> u64 {
    match policy {
        CompactionPolicy::Leveled(_) => 1,
        CompactionPolicy::Tiered(_) => 2,
        CompactionPolicy::LazyLeveled(_) => 3,
        CompactionPolicy::SizeTiered(_) => 4,
        CompactionPolicy::SteppedMerge(_) => 5,
        CompactionPolicy::Gear(_) => 6,
        CompactionPolicy::TwoPhase(_) => 7,
    }
}

fn filters_number(filters: Filters) -> u64 {
    match filters {
        Filters::Uniform => 1,
        Filters::Monkey => 2,
    }
}

fn compression_number(compression: Compression) -> u8 {
    match compression {
        Compression::None => 0,
        Compression::Lz4 => 1,
        Compression::Zstd => 2,
    }
}

/// Appends the tagged form.
pub(crate) fn encode_options(options: &Options, buf: &mut Vec<u8>) {
    put_number(buf, TAG_WRITE_BUFFER_BYTES, options.write_buffer_bytes);
    if let Some(entries) = options.debug.write_buffer_entries {
        put_number(buf, TAG_WRITE_BUFFER_ENTRIES, entries);
    }
    put_number(buf, TAG_IMMUTABLES_MAX, options.immutables_max as u64);
    put_number(buf, TAG_COMPACTION, policy_number(options.compaction));
    put_number(buf, TAG_BLOCK_BYTES, u64::from(options.block_bytes));
    put_number(buf, TAG_TABLE_BYTES, options.table_bytes);
    let bits: Vec<u8> = options.bloom_bits.iter().flat_map(|bits| bits.to_le_bytes()).collect();
    put_field(buf, TAG_BLOOM_BITS, &bits);
    let numbers: Vec<u8> = options.compression.iter().map(|&c| compression_number(c)).collect();
    put_field(buf, TAG_COMPRESSION, &numbers);
    let sizes = options.compaction.sizes_if_any();
    if let Some(sizes) = sizes {
        put_number(buf, TAG_LEVEL_RATIO, u64::from(sizes.level_ratio));
        put_number(buf, TAG_BASE_LEVEL_BYTES, sizes.base_level_bytes);
        put_number(buf, TAG_L0_TRIGGER, sizes.l0_trigger as u64);
    }
    if let Some(runs) = options.compaction.runs_if_any() {
        put_number(buf, TAG_RUNS_PER_LEVEL, runs.runs_per_level as u64);
    }
    put_number(buf, TAG_FILTERS, filters_number(options.filters));
    put_number(buf, TAG_WARM_UP, warm_up_number(options.warm_up));
    if let Some(sizes) = sizes {
        put_number(buf, TAG_EXPECTED_BYTES, sizes.expected_bytes);
    }
    // A store without a buffer stays readable for versions that know none.
    if options.compaction_buffer != CompactionBuffer::Off {
        put_number(buf, TAG_COMPACTION_BUFFER, buffer_number(options.compaction_buffer));
    }
    if let CompactionBuffer::Trimmed(TrimOptions { threshold, interval }) =
        options.compaction_buffer
    {
        put_field(buf, TAG_TRIM_THRESHOLD, &threshold.to_le_bytes());
        let micros = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX);
        put_number(buf, TAG_TRIM_INTERVAL, micros);
    }
    if let Some(rest) = options.idle_compaction {
        put_number(buf, TAG_IDLE_COMPACTION, u64::try_from(rest.as_micros()).unwrap_or(u64::MAX));
    }
    if let Sentinels::On(sentinels) = options.sentinels {
        encode_sentinels(&sentinels, buf);
    }
    if options.debug.odd_chunk != OddChunk::Off {
        put_number(buf, TAG_ODD_CHUNK, odd_chunk_number(options.debug.odd_chunk));
    }
}

fn odd_chunk_number(odd_chunk: OddChunk) -> u64 {
    match odd_chunk {
        OddChunk::Off => 0,
        OddChunk::Plain => 1,
        OddChunk::Balanced => 2,
        OddChunk::Upper => 3,
    }
}

/// An unknown way becomes the default.
fn decode_odd_chunk(value: u64) -> OddChunk {
    OddChunk::ALL.into_iter().find(|&odd| odd_chunk_number(odd) == value).unwrap_or_default()
}

fn encode_sentinels(sentinels: &SentinelOptions, buf: &mut Vec<u8>) {
    let SentinelOptions { theta, cost, buckets, window, ways, bytes_max } = *sentinels;
    put_number(buf, TAG_SENTINELS, 1);
    put_field(buf, TAG_THETA, &theta.to_le_bytes());
    put_number(buf, TAG_COST_MODEL, cost_number(cost));
    match buckets {
        BucketRanges::Quantile(count) => put_number(buf, TAG_QUANTILE_BUCKETS, u64::from(count)),
        BucketRanges::Equal(count) => put_number(buf, TAG_EQUAL_BUCKETS, u64::from(count)),
    }
    put_number(buf, TAG_HEAT_WINDOW, u64::try_from(window.as_micros()).unwrap_or(u64::MAX));
    put_number(buf, TAG_HOT_RANGES, ways_number(ways));
    if let Some(bytes) = bytes_max {
        put_number(buf, TAG_SENTINEL_BYTES_MAX, bytes);
    }
}

fn cost_number(cost: CostModel) -> u64 {
    match cost {
        CostModel::Paper => 1,
        CostModel::Corrected => 2,
    }
}

fn ways_number(ways: HotRanges) -> u64 {
    match ways {
        HotRanges::Up => 1,
        HotRanges::Down => 2,
        HotRanges::Cheaper => 3,
    }
}

/// An unknown model, and an unknown way, become the default.
fn decode_cost(value: u64) -> CostModel {
    CostModel::ALL.into_iter().find(|&cost| cost_number(cost) == value).unwrap_or_default()
}

fn decode_ways(value: u64) -> HotRanges {
    HotRanges::ALL.into_iter().find(|&ways| ways_number(ways) == value).unwrap_or_default()
}

fn buffer_number(buffer: CompactionBuffer) -> u64 {
    match buffer {
        CompactionBuffer::Off => 0,
        CompactionBuffer::Cascade => 1,
        CompactionBuffer::Trimmed(_) => 2,
    }
}

/// Decodes the tagged form: all of `bytes`, which lie in a record at `offset` of `file`.
///
/// # Errors
/// `Corruption` naming `file` and `offset`; `Unsupported` for an unknown critical field, policy or
/// compression, and for an option outside the range that this version has for it.
pub(crate) fn decode_options(bytes: &[u8], file: &str, offset: u64) -> Result<Options> {
    let damaged = |what: &str| Error::corruption(file, offset, format_args!("a {RECORD} {what}"));
    let mut options = Options::default();
    let (mut sizes, mut runs) = (LevelSizes::DEFAULT, RunsOptions::DEFAULT);
    let mut trim = TrimOptions::default();
    let (mut has_sentinels, mut sentinels) = (false, SentinelOptions::default());
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        let (tag, content) = next_field(&mut reader).ok_or_else(|| damaged("is cut off"))?;
        let wide = || number(content).ok_or_else(|| damaged("has a malformed number"));
        let small = || u32::try_from(wide()?).map_err(|_| damaged("has a number above 32 bits"));
        let size = || usize::try_from(wide()?).map_err(|_| damaged("has a number too large"));
        match tag {
            TAG_WRITE_BUFFER_BYTES => options.write_buffer_bytes = wide()?,
            TAG_WRITE_BUFFER_ENTRIES => options.debug.write_buffer_entries = Some(wide()?),
            TAG_IMMUTABLES_MAX => options.immutables_max = size()?,
            TAG_COMPACTION => options.compaction = decode_policy(wide()?)?,
            TAG_BLOCK_BYTES => options.block_bytes = small()?,
            TAG_TABLE_BYTES => options.table_bytes = wide()?,
            TAG_BLOOM_BITS => {
                let (floats, rest) = content.as_chunks::<4>();
                if !rest.is_empty() {
                    return Err(damaged("has a list of numbers that is cut off"));
                }
                options.bloom_bits = floats.iter().map(|bits| f32::from_le_bytes(*bits)).collect();
            }
            TAG_COMPRESSION => {
                options.compression =
                    content.iter().map(|&n| decode_compression(n)).collect::<Result<_>>()?;
            }
            TAG_LEVEL_RATIO => sizes.level_ratio = small()?,
            TAG_BASE_LEVEL_BYTES => sizes.base_level_bytes = wide()?,
            TAG_L0_TRIGGER => sizes.l0_trigger = size()?,
            TAG_RUNS_PER_LEVEL => runs.runs_per_level = size()?,
            // An unknown division becomes the default.
            TAG_FILTERS => options.filters = decode_filters(wide()?),
            TAG_WARM_UP => options.warm_up = decode_warm_up(wide()?),
            TAG_EXPECTED_BYTES => sizes.expected_bytes = wide()?,
            TAG_COMPACTION_BUFFER => options.compaction_buffer = decode_buffer(wide()?)?,
            TAG_TRIM_THRESHOLD => {
                let bits = <[u8; 4]>::try_from(content);
                let bits = bits.map_err(|_| damaged("has a threshold that is no number"))?;
                trim.threshold = f32::from_le_bytes(bits);
            }
            TAG_IDLE_COMPACTION => {
                options.idle_compaction = Some(Duration::from_micros(wide()?));
            }
            TAG_TRIM_INTERVAL => trim.interval = Duration::from_micros(wide()?),
            TAG_SENTINELS => has_sentinels = wide()? != 0,
            TAG_THETA => {
                let bits = <[u8; 4]>::try_from(content);
                let bits = bits.map_err(|_| damaged("has a theta that is no number"))?;
                sentinels.theta = f32::from_le_bytes(bits);
            }
            TAG_COST_MODEL => sentinels.cost = decode_cost(wide()?),
            TAG_QUANTILE_BUCKETS => sentinels.buckets = BucketRanges::Quantile(small()?),
            TAG_EQUAL_BUCKETS => sentinels.buckets = BucketRanges::Equal(small()?),
            TAG_HEAT_WINDOW => sentinels.window = Duration::from_micros(wide()?),
            TAG_HOT_RANGES => sentinels.ways = decode_ways(wide()?),
            TAG_SENTINEL_BYTES_MAX => sentinels.bytes_max = Some(wide()?),
            TAG_ODD_CHUNK => options.debug.odd_chunk = decode_odd_chunk(wide()?),
            _ => unknown(RECORD, tag)?,
        }
    }
    options.compaction = options.compaction.assembled(sizes, runs);
    if let CompactionBuffer::Trimmed(options) = &mut options.compaction_buffer {
        *options = trim;
    }
    if has_sentinels {
        options.sentinels = sentinels.into();
    }
    options.check_ranges().map_err(|error| out_of_range(&error, file))?;
    Ok(options)
}

/// The error for a stored option that this version would not have stored.
fn out_of_range(error: &Error, file: &str) -> Error {
    let what = format!(
        "an option of a keyspace in {file} is outside its range ({}); open the store with the \
         version that wrote it",
        error.message()
    );
    Error::new(ErrorKind::Unsupported, what)
}

fn warm_up_number(warm_up: WarmUp) -> u64 {
    match warm_up {
        WarmUp::None => 0,
        WarmUp::Incremental => 1,
        WarmUp::HandOff => 2,
    }
}

/// An unknown way of warming up becomes none.
fn decode_warm_up(value: u64) -> WarmUp {
    match value {
        1 => WarmUp::Incremental,
        2 => WarmUp::HandOff,
        _ => WarmUp::None,
    }
}

fn decode_buffer(value: u64) -> Result<CompactionBuffer> {
    let known = CompactionBuffer::ALL.into_iter().find(|&buffer| buffer_number(buffer) == value);
    known.ok_or_else(|| {
        Error::new(
            ErrorKind::Unsupported,
            format!(
                "compaction buffer {value} is not one that this version knows; use a newer Weir"
            ),
        )
    })
}

fn decode_policy(value: u64) -> Result<CompactionPolicy> {
    CompactionPolicy::ALL.into_iter().find(|&policy| policy_number(policy) == value).ok_or_else(
        || {
            Error::new(
                ErrorKind::Unsupported,
                format!(
                    "compaction policy {value} is not one that this version knows; use a newer Weir"
                ),
            )
        },
    )
}

fn decode_filters(value: u64) -> Filters {
    let known = Filters::ALL.into_iter().find(|&filters| filters_number(filters) == value);
    known.unwrap_or_default()
}

fn decode_compression(value: u8) -> Result<Compression> {
    match value {
        0 => Ok(Compression::None),
        1 => Ok(Compression::Lz4),
        2 => Ok(Compression::Zstd),
        _ => Err(Error::new(
            ErrorKind::Unsupported,
            format!("compression {value} is not one that this version knows; use a newer Weir"),
        )),
    }
}
