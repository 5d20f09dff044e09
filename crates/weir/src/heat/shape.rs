//! The heat of a keyspace's ranges at one time, as plain data.

/// One call in so many is counted, on average, and counts for as many.
pub(crate) const SAMPLE: u64 = 16;

/// What was counted for one bucket over the last windows: in the newest one fully, half of that in
/// the one before it, and so on. Estimates from samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BucketHeat {
    /// Its smallest key; empty for the first bucket.
    pub(crate) from: Vec<u8>,
    /// The smallest key behind it; `None` for the last bucket.
    pub(crate) to: Option<Vec<u8>>,
    /// Scans that read in it.
    pub(crate) scans: u64,
    /// Entries that they passed in it.
    pub(crate) scanned: u64,
    /// Point reads.
    pub(crate) gets: u64,
    /// Puts and deletes.
    pub(crate) writes: u64,
    /// Bytes of their keys and values.
    pub(crate) written_bytes: u64,
    /// Runs that reads really opened, beyond one a read. A scan over several buckets counts for
    /// each of them in equal parts.
    pub(crate) opened_beyond: u64,
}

/// The heat of all buckets, in key order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeatShape {
    /// They cover every key once.
    pub(crate) buckets: Vec<BucketHeat>,
    /// Bytes that were written to move hot ranges; fades like what is counted for a bucket.
    pub(crate) moved_bytes: u64,
}
