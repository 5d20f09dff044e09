// FORMAT: docs/format/batch.md sha=4167f84754e6
//! The encoding of a batch: written by the writer, stored in the log, inserted into the memtables.
//!
//! A batch is a sequence of records without a header; the sequence number of a record is that of
//! the batch's first record plus its index. The same bytes are the payload of a log group, after
//! the varint of the group's first sequence number.
//!
//! Not here: sequence numbers, checksums (the log's groups carry both).

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use crate::base::coding::{self, Reader};
use crate::base::ids::KeyspaceId;
use crate::base::key::{Kind, SEQ_MAX, Seq};
use crate::base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// One record of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) kind: Kind,
    pub(crate) keyspace: KeyspaceId,
    pub(crate) key: &'a [u8],
    /// Empty for a delete.
    pub(crate) value: &'a [u8],
}

/// Appends a record to `bytes`.
#[inline]
pub(crate) fn encode(bytes: &mut Vec<u8>, record: Record<'_>) {
    const OVERHEAD_MAX: usize = 1 + 5 + 3 + 5;
    bytes.reserve(OVERHEAD_MAX + record.key.len() + record.value.len());
    bytes.push(record.kind as u8);
    coding::put_varint(bytes, u64::from(record.keyspace));
    coding::put_bytes(bytes, record.key);
    if record.kind == Kind::Put {
        coding::put_bytes(bytes, record.value);
    }
}

/// The records of a batch, in order. After the end, `damaged` is whether the bytes did not end with
/// a whole record.
#[derive(Clone)]
pub(crate) struct Records<'a> {
    reader: Reader<'a>,
    damaged: bool,
}

impl<'a> Records<'a> {
    /// The records in `bytes`.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { reader: Reader::new(bytes), damaged: false }
    }

    /// Offset of the next record.
    pub(crate) fn position(&self) -> usize {
        self.reader.position()
    }

    /// Whether decoding stopped at bytes that are not a record.
    pub(crate) fn damaged(&self) -> bool {
        self.damaged
    }

    #[inline]
    fn decode(&mut self) -> Option<Record<'a>> {
        let kind = Kind::from_u8(self.reader.u8()?)?;
        let keyspace = KeyspaceId::try_from(self.reader.varint()?).ok()?;
        let key = self.reader.bytes()?;
        let value = if kind == Kind::Put { self.reader.bytes()? } else { &[] };
        Some(Record { kind, keyspace, key, value })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    #[inline]
    fn next(&mut self) -> Option<Record<'a>> {
        if self.damaged || self.reader.is_empty() {
            return None;
        }
        let record = self.decode();
        self.damaged = record.is_none();
        record
    }
}

/// Decodes the payload of a log group: the sequence number of its first record, and its records.
/// `count`: the number of records in the group's header.
///
/// # Errors
/// Why the payload is malformed, to follow "log group N".
pub(crate) fn open_group(payload: &[u8], count: u64) -> Result<(Seq, Records<'_>), &'static str> {
    let mut reader = Reader::new(payload);
    let first = reader.varint().ok_or("has no sequence number")?;
    let last = first.checked_add(count.saturating_sub(1));
    if last.is_none_or(|last| last > SEQ_MAX) {
        return Err("has sequence numbers above the greatest there is");
    }
    Ok((first, Records::new(reader.rest())))
}

/// Why a record of a log group is invalid, to follow "log group N"; `None` if it is valid.
pub(crate) fn record_fault(record: &Record<'_>) -> Option<&'static str> {
    if record.key.len() > KEY_BYTES_MAX {
        return Some("holds a key longer than a key may be");
    }
    (record.value.len() > VALUE_BYTES_MAX).then_some("holds a value longer than a value may be")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(
            &mut bytes,
            Record { kind: Kind::Put, keyspace: KeyspaceId::DEFAULT, key: b"ab", value: b"xyz" },
        );
        encode(
            &mut bytes,
            Record { kind: Kind::Delete, keyspace: KeyspaceId::new(300), key: b"", value: b"" },
        );
        bytes
    }

    /// The worked example of docs/format/batch.md.
    #[test]
    fn the_documented_example_holds() {
        let page = include_str!("../../../../docs/format/batch.md");
        let hex: Vec<String> = example().iter().map(|b| format!("{b:02x}")).collect();
        assert!(page.contains(&hex.join(" ")), "docs/format/batch.md lacks {}", hex.join(" "));
    }

    #[test]
    fn records_round_trip_and_cuts_are_seen() {
        let bytes = example();
        let mut records = Records::new(&bytes);
        let first = records.next().unwrap();
        assert_eq!(
            (first.kind, first.keyspace, first.key, first.value),
            (Kind::Put, KeyspaceId::DEFAULT, &b"ab"[..], &b"xyz"[..])
        );
        let second = records.next().unwrap();
        assert_eq!(
            (second.kind, second.keyspace, second.key),
            (Kind::Delete, KeyspaceId::new(300), &b""[..])
        );
        assert!(records.next().is_none() && !records.damaged());
        for cut in 1..bytes.len() {
            let mut records = Records::new(&bytes[..cut]);
            let whole = records.by_ref().count();
            // The first record is 9 bytes: cut right behind it, the rest is a whole batch.
            assert!(records.damaged() || cut == 9, "cut at {cut} gave {whole} records in silence");
        }
    }
}
