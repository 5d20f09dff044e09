//! How the row cache uses `quick_cache`: number of shards, memory of a slot.

use quick_cache::OptionsBuilder;

/// Most shards: enough that two threads rarely contend for one.
const SHARDS_MAX: u64 = 16;
/// A shard is not made smaller than this, because it cannot hold an item larger than itself.
const SHARD_BYTES_MIN: u64 = 1 << 20;
const _: () = assert!(SHARDS_MAX.is_power_of_two());

/// Bytes of a slot of `quick_cache` besides key and value: two links of 32 bits, state, padding.
pub(super) const LINK_BYTES: usize = 16;

/// The size of either cache is reported to the accountant once per this many inserts.
pub(super) const ACCOUNT_EVERY: u64 = 16;

/// Layout of a cache of `capacity_bytes` for items of about `item_bytes` each. A wrong guess costs
/// the growth of a hash table, nothing else.
pub(super) fn options_for(capacity_bytes: u64, item_bytes: u64) -> quick_cache::Options {
    let items = usize::try_from(capacity_bytes / item_bytes).unwrap_or(usize::MAX);
    let options = OptionsBuilder::new()
        .shards(shards_for(capacity_bytes))
        .estimated_items_capacity(items.clamp(32, 1 << 22))
        .weight_capacity(capacity_bytes)
        .build();
    options.expect("all required options of the cache are set just above")
}

/// Number of shards of a cache of this capacity.
fn shards_for(capacity_bytes: u64) -> usize {
    let shards = (capacity_bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
    1usize << shards.ilog2()
}
