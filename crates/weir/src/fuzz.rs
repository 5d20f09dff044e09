//! What the targets of `fuzz/` call: one function for each decoder, bytes in, nothing out.
//!
//! Whatever the bytes are, a decoder answers or refuses: it does not panic, overflow, hang or ask
//! for memory out of proportion. Where bytes have checksums, these are made right first
//! (`table::fuzz`, `log::fuzz`), because a fuzzer does not guess them and what a wrong one leads to
//! is campaign B's. What is accepted must be consistent in itself. Not part of the stable
//! interface.

use crate::base::checksum::{crc, mask};
use crate::base::table_meta::TableMeta;
use crate::version::edit::VersionEdit;
use crate::version::options::{decode_options, encode_options};
use crate::version::record::RootRecord;
use crate::write::batch::{Records, encode};

pub use crate::log::fuzz::{log_segments, sealed_segment};
pub use crate::table::fuzz::{block, index, sample_table, table};

/// The name of the file in messages.
const FILE: &str = "fuzz";

/// A filter: it answers, and a filter of keys contains them.
pub fn filter(data: &[u8]) {
    let (head, rest) = data.split_at_checked(8).unwrap_or((&[], data));
    let hash = head.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let _ = crate::filter::may_contain(rest, hash);
    let hashes: Vec<u64> =
        rest.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
    let bits = f32::from((hash % 40) as u8);
    let filter = crate::filter::build(&hashes, bits);
    assert!(hashes.iter().all(|&hash| crate::filter::may_contain(&filter, hash)));
}

/// A version edit: what is decoded is encoded to what decodes to the same.
pub fn edit(data: &[u8]) {
    if let Ok(edit) = VersionEdit::decode(data, FILE, 0) {
        let mut again = Vec::new();
        edit.encode(&mut again);
        let decoded = VersionEdit::decode(&again, FILE, 0);
        // Floats that are no numbers differ from themselves.
        let comparable = edit.keyspaces.values().all(|k| {
            k.options.as_ref().is_none_or(|o| o.bloom_bits.iter().all(|bits| !bits.is_nan()))
        });
        assert!(!comparable || decoded.is_ok_and(|decoded| decoded == edit), "{edit:?}");
    }
}

/// Options of a keyspace.
pub fn options(data: &[u8]) {
    if let Ok(options) = decode_options(data, FILE, 0) {
        let _ = options.validate();
        let mut again = Vec::new();
        encode_options(&options, &mut again);
        assert!(decode_options(&again, FILE, 0).is_ok(), "{options:?}");
    }
}

/// A table's description, whole and as the properties of a table file.
pub fn table_meta(data: &[u8]) {
    if let Ok(meta) = TableMeta::decode(data, FILE, 0) {
        let mut again = Vec::new();
        meta.encode(&mut again);
        assert!(TableMeta::decode(&again, FILE, 0).is_ok_and(|decoded| decoded == meta));
    }
    let _ = TableMeta::decode_content(data, FILE, 0);
}

/// A root record, as it is and with a right checksum.
pub fn root(data: &[u8]) {
    let _ = RootRecord::decode(data, FILE);
    let mut record = data.to_vec();
    record.extend_from_slice(&mask(crc(data)).to_le_bytes());
    if let Ok(root) = RootRecord::decode(&record, FILE) {
        let again = RootRecord::decode(&root.encode(), FILE);
        assert!(again.is_ok_and(|decoded| decoded == root));
    }
}

/// The records of a batch: what was read is what encodes to the bytes read, unless a varint was
/// longer than it need be.
pub fn batch(data: &[u8]) {
    let mut records = Records::new(data);
    let mut again = Vec::new();
    for record in records.by_ref() {
        encode(&mut again, record);
    }
    let whole = !records.damaged();
    assert!(again.len() <= data.len());
    assert!(!whole || again.len() < data.len() || again == data);
}
