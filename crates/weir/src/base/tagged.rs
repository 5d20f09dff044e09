// FORMAT: docs/format/table_meta.md sha=4d1ed8aa1c7b
//! Tagged fields, by which records on disk can grow without a change of format.
//!
//! A record is a sequence of fields, each a varint tag, a varint length and that many bytes. Tag 0
//! is invalid. An *even* tag is critical: a reader that does not know it must refuse the record by
//! name (`Unsupported`). An *odd* tag is ignorable: a reader that does not know it skips it. Fields
//! may stand in any order; each record defines whether one may repeat.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use crate::base::coding::{Reader, put_bytes, put_varint};
use crate::base::error::{Error, ErrorKind};

/// Appends a field whose content is `bytes`.
pub(crate) fn put_field(buf: &mut Vec<u8>, tag: u64, bytes: &[u8]) {
    debug_assert!(tag != 0, "tag 0 is invalid");
    put_varint(buf, tag);
    put_bytes(buf, bytes);
}

/// Appends a field whose content is one varint.
pub(crate) fn put_number(buf: &mut Vec<u8>, tag: u64, number: u64) {
    debug_assert!(tag != 0, "tag 0 is invalid");
    put_varint(buf, tag);
    put_varint(buf, crate::base::coding::varint_len(number) as u64);
    put_varint(buf, number);
}

/// The next field: its tag and content. `None` if the bytes are cut off or the tag is 0; ask
/// [`Reader::is_empty`] first.
pub(crate) fn next_field<'a>(reader: &mut Reader<'a>) -> Option<(u64, &'a [u8])> {
    let tag = reader.varint().filter(|&tag| tag != 0)?;
    Some((tag, reader.bytes()?))
}

/// The content of a field that holds exactly one varint.
pub(crate) fn number(content: &[u8]) -> Option<u64> {
    let mut reader = Reader::new(content);
    reader.varint().filter(|_| reader.is_empty())
}

/// Handles a tag that this version does not know; an ignorable one is skipped.
///
/// # Errors
/// `Unsupported` with the record's name and the tag if it is critical.
pub(crate) fn unknown(record: &str, tag: u64) -> Result<(), Error> {
    if tag % 2 == 1 {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        format!(
            "a {record} has the critical field {tag}, which this version does not know; \
             use a newer Weir"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_round_trip_and_cut_fields_are_noticed() {
        let mut buf = Vec::new();
        put_field(&mut buf, 2, b"abc");
        put_number(&mut buf, 300, u64::MAX);
        let mut reader = Reader::new(&buf);
        assert_eq!(next_field(&mut reader), Some((2, &b"abc"[..])));
        let (tag, content) = next_field(&mut reader).unwrap();
        assert_eq!((tag, number(content)), (300, Some(u64::MAX)));
        assert!(reader.is_empty());
        assert_eq!(next_field(&mut Reader::new(&buf[..4])), None);
        assert_eq!(next_field(&mut Reader::new(&[0, 0])), None);
        assert!(unknown("thing", 7).is_ok());
        assert_eq!(unknown("thing", 8).unwrap_err().kind(), ErrorKind::Unsupported);
    }
}
