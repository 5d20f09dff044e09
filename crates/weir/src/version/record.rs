// FORMAT: docs/format/root.md sha=3d8bc2375a9d
//! The root record (LevelDB's CURRENT): the only file of a store that is replaced in place; it
//! names the version log.
//!
//! Not here: the atomic replacement of the record (`storage`), the content of the version log
//! (`edit`).
//!
//! Invariant: the record is written only after the log that it names is durable up to `base_lsn`.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use crate::base::checksum::{crc, mask};
use crate::base::coding::{Reader, put_u32};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::ids::{Lineage, Lsn, Nonce, SegmentNumber};
use crate::base::tagged::{next_field, number, put_number, unknown};

/// Format of the store, written by this version. 1: the first.
pub(crate) const LATEST: u32 = 1;

/// Bytes before the fields: format 4.
const HEAD_BYTES: usize = 4;
/// Bytes after the fields: checksum 4.
const CHECKSUM_BYTES: usize = 4;

/// The fields of the root record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RootRecord {
    /// Identity of the store, drawn once.
    pub(crate) lineage: Lineage,
    /// Number of the version log that starts with the newest durable base.
    pub(crate) version_log: SegmentNumber,
    /// The opening of the store that wrote the log.
    pub(crate) opening: u32,
    /// LSN of the last group of the base: a log that ends before it is damaged.
    pub(crate) base_lsn: Lsn,
    /// That of the log: one of the same number that an interrupted opening began has another.
    pub(crate) nonce: Nonce,
}

const TAG_LINEAGE: u64 = 2;
const TAG_VERSION_LOG: u64 = 4;
const TAG_OPENING: u64 = 6;
const TAG_BASE_LSN: u64 = 8;
const TAG_NONCE: u64 = 16;
/// In a record without the other fields but the lineage: of a store that a repair is building.
const TAG_UNFINISHED: u64 = 18;
// Reserved: 10 log unit, 12 second device for the write-ahead log, 14 key id, 1 name of the program
// that wrote it.

const RECORD: &str = "root record";

impl RootRecord {
    /// The bytes of a record that says that a repair is building a store here, and has not ended.
    pub(crate) fn unfinished(lineage: Lineage) -> Vec<u8> {
        let mut buf = Vec::new();
        put_u32(&mut buf, LATEST);
        put_number(&mut buf, TAG_LINEAGE, lineage.get());
        put_number(&mut buf, TAG_UNFINISHED, 1);
        let checksum = mask(crc(&buf));
        put_u32(&mut buf, checksum);
        buf
    }

    /// Whether these are the bytes of such a record.
    pub(crate) fn is_unfinished(bytes: &[u8]) -> bool {
        Self::decode(bytes, "").is_err_and(|error| error.kind() == ErrorKind::InvalidArgument)
    }

    /// The bytes of the record.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Self { version_log, base_lsn, .. } = *self;
        let has_base = version_log > SegmentNumber::ZERO && base_lsn > Lsn::ZERO;
        assert!(has_base, "log {version_log} with a base to {base_lsn}");
        let mut buf = Vec::new();
        put_u32(&mut buf, LATEST);
        put_number(&mut buf, TAG_LINEAGE, self.lineage.get());
        put_number(&mut buf, TAG_VERSION_LOG, self.version_log.get());
        put_number(&mut buf, TAG_OPENING, u64::from(self.opening));
        put_number(&mut buf, TAG_BASE_LSN, self.base_lsn.get());
        if self.nonce != Nonce::NONE {
            put_number(&mut buf, TAG_NONCE, self.nonce.get());
        }
        let checksum = mask(crc(&buf));
        put_u32(&mut buf, checksum);
        let decoded = Self::decode(&buf, "the encoded record");
        assert!(
            decoded.as_ref().is_ok_and(|decoded| decoded == self),
            "a root record is decoded as another one: {self:?} as {decoded:?}"
        );
        buf
    }

    /// Decodes the record, which is all of `bytes`; `file` is for messages.
    ///
    /// # Errors
    /// `Unsupported` for a newer format or an unknown critical field; `InvalidArgument` for a store
    /// that a repair has not finished; `Corruption` otherwise.
    pub(crate) fn decode(bytes: &[u8], file: &str) -> Result<Self> {
        let damaged = |what: &str| Error::corruption(file, 0, format_args!("a {RECORD} {what}"));
        let cut_off = || damaged("is cut off");
        let fields_bytes = bytes.len().checked_sub(HEAD_BYTES + CHECKSUM_BYTES);
        let mut reader = Reader::new(bytes);
        let format = reader.u32().ok_or_else(cut_off)?;
        let fields = fields_bytes.and_then(|n| reader.take(n)).ok_or_else(cut_off)?;
        let covered = bytes.get(..HEAD_BYTES + fields.len()).ok_or_else(cut_off)?;
        if reader.u32() != Some(mask(crc(covered))) {
            return Err(damaged("has a wrong checksum"));
        }
        if format > LATEST {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "{file} has store format {format}, this version knows up to {LATEST}; open the \
                     store with the version that wrote it"
                ),
            ));
        }
        let (mut lineage, mut version_log, mut opening, mut base_lsn) = (None, None, None, None);
        let mut nonce = Nonce::NONE;
        let mut reader = Reader::new(fields);
        while !reader.is_empty() {
            let (tag, content) = next_field(&mut reader).ok_or_else(cut_off)?;
            let value = number(content).ok_or_else(|| damaged("has a malformed number"));
            match tag {
                TAG_LINEAGE => lineage = Some(Lineage::new(value?)),
                TAG_VERSION_LOG => version_log = SegmentNumber::stored(value?),
                TAG_OPENING => opening = u32::try_from(value?).ok(),
                TAG_BASE_LSN => base_lsn = Lsn::stored(value?),
                TAG_NONCE => nonce = Nonce::new(value?),
                TAG_UNFINISHED => {
                    return Err(Error::invalid(format!(
                        "{file}: a repair was building a store here and has not ended, so that \
                         a part of it is missing: remove it (`weir destroy`; a file is to be \
                         formatted again, `weir format --force`), and run that repair again"
                    )));
                }
                _ => unknown(RECORD, tag)?,
            }
        }
        match (format, lineage, version_log, opening, base_lsn) {
            (1.., Some(lineage), Some(version_log), Some(opening), Some(base_lsn)) => {
                Ok(Self { lineage, version_log, opening, base_lsn, nonce })
            }
            _ => Err(damaged("lacks a field, or has a number that no store gets to")),
        }
    }
}
