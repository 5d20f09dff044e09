// FORMAT: docs/format/table.md sha=afecfa0769b6
//! The table file: stored blocks with their checksums, and the footer that locates everything.
//!
//! ```text
//! data block 0 | data block 1 | ... | index | filter | properties | footer
//!                                   |<-------------- tail --------------->|
//! ```
//!
//! Not here: the content of a data block (`block`), the content of the index (`index`).
//!
//! Invariants: (1) a checksum covers every bit of the file: data blocks have one behind each of
//! them, the other sections have theirs in the footer, and the footer has its own, which the
//! table's description repeats; nothing lies between the sections; (2) every checksum is bound to
//! (check_uid, ordinal, kind), so that a block of another table, another place or another kind does
//! not pass; (3) a checksum is verified before any length inside the checked bytes is used, and no
//! length may exceed the file's own.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use crate::base::buf::{BLOCK_BYTES_MAX, Buf};
use crate::base::checksum;
use crate::base::coding::{Reader, put_u16, put_u32, put_u64};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::ids::TableUid;
use crate::options::Compression;
use crate::table::block::{Flaw, Layout};

/// Newest table format. Versions: 1 the first.
pub(super) const VERSION_LATEST: u16 = 1;
/// Oldest table format that can be read.
pub(super) const VERSION_MIN_READ: u16 = 1;

/// What a checksum is bound to besides uid and ordinal. The numbers are on disk; 0 is invalid.
pub(super) const KIND_DATA: u8 = 1;
pub(super) const KIND_INDEX: u8 = 2;
pub(super) const KIND_FILTER: u8 = 3;
pub(super) const KIND_PROPERTIES: u8 = 4;

/// Compression codes on disk, the byte behind each stored block.
const COMPRESSION_NONE: u8 = 0;
const COMPRESSION_LZ4: u8 = 1;
const COMPRESSION_ZSTD: u8 = 2;

/// Zstandard's level: its default, and the knee of its speed curve.
#[cfg(feature = "zstd")]
const ZSTD_LEVEL: i32 = 3;

/// Bytes before a compressed block: its length when uncompressed.
const RAW_LEN_BYTES: usize = 4;

/// A compressed block is kept only if it saves at least one part in this many.
const COMPRESSION_SAVES_MIN: usize = 8;

/// The last 8 bytes of a table: "weirtabl", readable in a dump.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"weirtabl");

/// Offsets inside the footer, each the end of the field before.
const CHECK_UID_AT: usize = 0;
const FILE_BYTES_AT: usize = CHECK_UID_AT + 8;
const DATA_BYTES_AT: usize = FILE_BYTES_AT + 8;
const INDEX_BYTES_AT: usize = DATA_BYTES_AT + 8;
const FILTER_BYTES_AT: usize = INDEX_BYTES_AT + 8;
const PROPERTIES_BYTES_AT: usize = FILTER_BYTES_AT + 8;
const HASH_CHECK_AT: usize = PROPERTIES_BYTES_AT + 8;
const INDEX_CHECKSUM_AT: usize = HASH_CHECK_AT + 8;
const FILTER_CHECKSUM_AT: usize = INDEX_CHECKSUM_AT + 4;
const PROPERTIES_CHECKSUM_AT: usize = FILTER_CHECKSUM_AT + 4;
const FEATURES_AT: usize = PROPERTIES_CHECKSUM_AT + 4;
/// From here on the layout is fixed for all versions: the footer's length, the version, the
/// checksum of all before it, the magic number.
const FOOTER_LEN_AT: usize = FEATURES_AT + 4;
const VERSION_AT: usize = FOOTER_LEN_AT + 2;
const CHECKSUM_AT: usize = VERSION_AT + 2;
const MAGIC_AT: usize = CHECKSUM_AT + 4;
/// Bytes of the footer.
pub(super) const FOOTER_BYTES: usize = MAGIC_AT + 8;
/// Bytes at the end of a footer that have the same meaning in every version.
const FIXED_END_BYTES: usize = FOOTER_BYTES - FOOTER_LEN_AT;
const _: () = assert!(FOOTER_BYTES == 88);

/// The end of a table file: the lengths of all sections, and their checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    /// The uid that the table was written under. Defends against misplaced and stale files.
    pub(super) check_uid: TableUid,
    /// Length of the file. Defends against cut and extended files.
    pub(super) file_bytes: u64,
    /// Length of all data blocks: where the index begins.
    pub(super) data_bytes: u64,
    pub(super) index_bytes: u64,
    pub(super) filter_bytes: u64,
    pub(super) properties_bytes: u64,
    /// Hash of [`HASH_CHECK_INPUT`] under the filter's seed. Defends against a filter that was
    /// built with another store's seed and would answer "absent" for present keys.
    pub(super) hash_check: u64,
    pub(super) index_checksum: u32,
    pub(super) filter_checksum: u32,
    pub(super) properties_checksum: u32,
    /// The footer's own checksum, as stored.
    pub(super) checksum: u32,
}

/// Input of [`Footer::hash_check`].
const HASH_CHECK_INPUT: &[u8] = b"weir hash seed";

/// The value of [`Footer::hash_check`] for a seed.
pub(super) fn hash_check(seed: u64) -> u64 {
    checksum::hash_key(HASH_CHECK_INPUT, seed)
}

/// Checksum of a section of the tail.
pub(super) fn section_checksum(content: &[u8], check_uid: TableUid, kind: u8) -> u32 {
    checksum::bind(checksum::crc(content), checksum::place(check_uid, 0, kind))
}

impl Footer {
    /// Appends the footer to `out` and sets `self.checksum`.
    #[expect(clippy::cast_possible_truncation, reason = "a footer of 88 bytes")]
    pub(super) fn encode(&mut self, out: &mut Vec<u8>) {
        let start = out.len();
        put_u64(out, self.check_uid.get());
        put_u64(out, self.file_bytes);
        put_u64(out, self.data_bytes);
        put_u64(out, self.index_bytes);
        put_u64(out, self.filter_bytes);
        put_u64(out, self.properties_bytes);
        put_u64(out, self.hash_check);
        put_u32(out, self.index_checksum);
        put_u32(out, self.filter_checksum);
        put_u32(out, self.properties_checksum);
        put_u32(out, 0); // features: none yet
        put_u16(out, FOOTER_BYTES as u16);
        put_u16(out, VERSION_LATEST);
        let (_, footer) = out.split_at(start);
        self.checksum = checksum::mask(checksum::crc(footer));
        put_u32(out, self.checksum);
        put_u64(out, MAGIC);
        assert_eq!(out.len() - start, FOOTER_BYTES, "the footer's layout and encoder differ");
    }

    /// Decodes the footer at the end of `tail`, which ends where `file`, of `file_bytes` bytes,
    /// ends.
    ///
    /// # Errors
    /// `Corruption`; `Unsupported` for a complete footer of another version or with features that
    /// this version does not know.
    pub(super) fn decode(tail: &[u8], file: &str, file_bytes: u64) -> Result<Self> {
        let damaged = |back: usize, what: &str| {
            let offset = file_bytes.saturating_sub(back as u64);
            Error::corruption(file, offset, format_args!("a table's footer {what}"))
        };
        let cut = || damaged(tail.len(), "is cut off");
        let fixed = tail.last_chunk::<FIXED_END_BYTES>().ok_or_else(cut)?;
        let mut end = Reader::new(fixed);
        let (footer_len, version) = (end.u16().ok_or_else(cut)?, end.u16().ok_or_else(cut)?);
        let (stored_checksum, magic) = (end.u32().ok_or_else(cut)?, end.u64().ok_or_else(cut)?);
        if magic != MAGIC {
            return Err(damaged(8, "does not end in a table's magic number"));
        }
        let footer_len = usize::from(footer_len);
        let start = tail.len().checked_sub(footer_len);
        let checked = start.and_then(|at| tail.get(at..tail.len() - MAGIC_BYTES_AND_CHECKSUM));
        let checked =
            checked.ok_or_else(|| damaged(FIXED_END_BYTES, "has a length that does not fit"))?;
        if checksum::mask(checksum::crc(checked)) != stored_checksum {
            return Err(damaged(footer_len, "has a wrong checksum"));
        }
        if !(VERSION_MIN_READ..=VERSION_LATEST).contains(&version) {
            return Err(unsupported(file, format_args!("table format {version}")));
        }
        if footer_len != FOOTER_BYTES {
            return Err(damaged(footer_len, "has a length that its version does not have"));
        }
        let footer = Self::decode_fields(checked, stored_checksum, file)
            .and_then(|footer| footer.ok_or_else(cut))?;
        footer.check(file_bytes).map_err(|what| damaged(footer_len, what))?;
        Ok(footer)
    }

    /// The version-dependent part; `None` if it is too short.
    fn decode_fields(bytes: &[u8], checksum: u32, file: &str) -> Result<Option<Self>> {
        let mut reader = Reader::new(bytes);
        let mut next = || reader.u64();
        let numbers: [Option<u64>; 7] = std::array::from_fn(|_| next());
        let words: [Option<u32>; 4] = std::array::from_fn(|_| reader.u32());
        let [
            Some(check_uid),
            Some(file_bytes),
            Some(data_bytes),
            Some(index_bytes),
            Some(filter_bytes),
            Some(properties_bytes),
            Some(hash_check),
        ] = numbers
        else {
            return Ok(None);
        };
        let [
            Some(index_checksum),
            Some(filter_checksum),
            Some(properties_checksum),
            Some(features),
        ] = words
        else {
            return Ok(None);
        };
        let Some(check_uid) = TableUid::stored(check_uid) else { return Ok(None) };
        if features != 0 {
            return Err(unsupported(file, format_args!("table features {features:#x}")));
        }
        Ok(Some(Self {
            check_uid,
            file_bytes,
            data_bytes,
            index_bytes,
            filter_bytes,
            properties_bytes,
            hash_check,
            index_checksum,
            filter_checksum,
            properties_checksum,
            checksum,
        }))
    }

    /// Whether the sections fill the file exactly.
    fn check(&self, file_bytes: u64) -> Result<(), &'static str> {
        let tail = self.tail_bytes().ok_or("has lengths that overflow")?;
        if self.file_bytes != file_bytes {
            return Err("names another file length");
        }
        if self.data_bytes.checked_add(tail) != Some(file_bytes) {
            return Err("has sections that do not add up to the file");
        }
        Ok(())
    }

    /// Bytes from the index to the end of the file.
    pub(super) fn tail_bytes(&self) -> Option<u64> {
        self.index_bytes
            .checked_add(self.filter_bytes)?
            .checked_add(self.properties_bytes)?
            .checked_add(FOOTER_BYTES as u64)
    }
}

/// Checksum and magic number, which a footer's checksum does not cover.
const MAGIC_BYTES_AND_CHECKSUM: usize = FOOTER_BYTES - CHECKSUM_AT;

fn unsupported(file: &str, what: std::fmt::Arguments<'_>) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("{file} has {what}, which this version does not know; use a newer Weir"),
    )
}

/// Checks one section of the tail.
///
/// # Errors
/// `Corruption` with the section's name and offset.
pub(super) fn check_section(
    content: &[u8],
    checksum: u32,
    place: (TableUid, u8),
    file: &str,
    offset: u64,
) -> Result<()> {
    let (check_uid, kind) = place;
    if section_checksum(content, check_uid, kind) == checksum {
        return Ok(());
    }
    let name = match kind {
        KIND_INDEX => "index",
        KIND_FILTER => "filter",
        _ => "list of properties",
    };
    Err(Error::corruption(file, offset, format_args!("a table's {name} has a wrong checksum")))
}

/// Compresses `block` and appends its stored form with trailer, as block `ordinal` of the table
/// `check_uid`, to `out`. `block` is stored uncompressed if compression saves too little.
pub(super) fn store_block(
    block: &[u8],
    compression: Compression,
    check_uid: TableUid,
    ordinal: u32,
    out: &mut Vec<u8>,
) -> Result<()> {
    let start = out.len();
    let mut code = COMPRESSION_NONE;
    if let Some(used) = compress(block, compression, out)? {
        let saves = out.len() - start <= block.len() - block.len() / COMPRESSION_SAVES_MIN;
        if saves {
            code = used;
        } else {
            out.truncate(start);
        }
    }
    if code == COMPRESSION_NONE {
        out.extend_from_slice(block);
    }
    out.push(code);
    let (stored, most) = (out.len() - start, block.len() + 1);
    assert!(stored <= most, "block {ordinal} is stored in {stored} bytes, more than {most}");
    let crc = checksum::crc(out.split_at(start).1);
    put_u32(out, checksum::bind(crc, checksum::place(check_uid, ordinal, KIND_DATA)));
    Ok(())
}

/// Appends the compressed form of `block`, its length first; `None` if `compression` is none.
fn compress(block: &[u8], compression: Compression, out: &mut Vec<u8>) -> Result<Option<u8>> {
    compression.available()?;
    let len = u32::try_from(block.len());
    let len = len.unwrap_or_else(|_| panic!("a block of {} bytes", block.len()));
    match compression {
        Compression::None => Ok(None),
        Compression::Lz4 => {
            put_u32(out, len);
            lz4_compress(block, out)?;
            Ok(Some(COMPRESSION_LZ4))
        }
        Compression::Zstd => {
            put_u32(out, len);
            zstd_compress(block, out)?;
            Ok(Some(COMPRESSION_ZSTD))
        }
    }
}

#[cfg(feature = "lz4")]
fn lz4_compress(block: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    out.resize(start + lz4_flex::block::get_maximum_output_size(block.len()), 0);
    let written = lz4_flex::block::compress_into(block, out.split_at_mut(start).1)
        .map_err(|e| Error::with_source(ErrorKind::Io, "LZ4 cannot compress a block", e))?;
    out.truncate(start + written);
    Ok(())
}

#[cfg(not(feature = "lz4"))]
fn lz4_compress(_: &[u8], _: &mut Vec<u8>) -> Result<()> {
    Compression::Lz4.available()
}

#[cfg(feature = "zstd")]
fn zstd_compress(block: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let compressed = zstd::bulk::compress(block, ZSTD_LEVEL)
        .map_err(|e| Error::io("compressing a block with zstd", e))?;
    out.extend_from_slice(&compressed);
    Ok(())
}

#[cfg(not(feature = "zstd"))]
fn zstd_compress(_: &[u8], _: &mut Vec<u8>) -> Result<()> {
    Compression::Zstd.available()
}

#[cfg(feature = "lz4")]
fn lz4_decompress(compressed: &[u8], out: &mut [u8]) -> Result<bool> {
    Ok(lz4_flex::block::decompress_into(compressed, out).is_ok_and(|n| n == out.len()))
}

#[cfg(not(feature = "lz4"))]
fn lz4_decompress(_: &[u8], _: &mut [u8]) -> Result<bool> {
    Compression::Lz4.available().map(|()| false)
}

#[cfg(feature = "zstd")]
fn zstd_decompress(compressed: &[u8], out: &mut [u8]) -> Result<bool> {
    Ok(zstd::bulk::decompress_to_buffer(compressed, out).is_ok_and(|n| n == out.len()))
}

#[cfg(not(feature = "zstd"))]
fn zstd_decompress(_: &[u8], _: &mut [u8]) -> Result<bool> {
    Compression::Zstd.available().map(|()| false)
}

/// Where a stored block was read from, for its checksum and for messages.
#[derive(Clone, Copy)]
pub(super) struct BlockPlace<'a> {
    pub(super) check_uid: TableUid,
    pub(super) ordinal: u32,
    /// Upper bound of an uncompressed block of this table.
    pub(super) raw_bytes_max: u64,
    pub(super) file: &'a dyn Fn() -> String,
    pub(super) offset: u64,
}

impl BlockPlace<'_> {
    pub(super) fn damaged(&self, what: &str) -> Error {
        let ordinal = self.ordinal;
        Error::corruption((self.file)(), self.offset, format_args!("data block {ordinal} {what}"))
    }

    fn unknown(&self, what: &str) -> Error {
        let (file, ordinal) = ((self.file)(), self.ordinal);
        Error::new(
            ErrorKind::Unsupported,
            format!("data block {ordinal} of {file} {what}; use a newer Weir"),
        )
    }

    /// Turns a block's flaw into an error.
    pub(super) fn flawed(&self, flaw: Flaw) -> Error {
        match flaw {
            Flaw::Damaged(what) => self.damaged(what),
            Flaw::Unknown(what) => self.unknown(what),
        }
    }

    /// Checks the trailer of a stored block; returns its compression code and its content.
    ///
    /// # Errors
    /// `Corruption`.
    pub(super) fn check<'b>(&self, stored: &'b [u8]) -> Result<(u8, &'b [u8])> {
        let split = stored.split_last_chunk::<4>();
        let (checked, checksum) = split.ok_or_else(|| self.damaged("is too short"))?;
        let (&code, content) = checked.split_last().ok_or_else(|| self.damaged("is too short"))?;
        let place = checksum::place(self.check_uid, self.ordinal, KIND_DATA);
        if checksum::bind(checksum::crc(checked), place) != u32::from_le_bytes(*checksum) {
            return Err(self.damaged("has a wrong checksum"));
        }
        Ok((code, content))
    }

    /// Turns the stored bytes of a block into a validated block. An uncompressed block keeps its
    /// trailer behind it and is not copied.
    ///
    /// # Errors
    /// `Corruption`; `Unsupported` for a compression or layout that this build does not know.
    pub(super) fn open(&self, stored: Buf) -> Result<(Buf, Layout)> {
        let (code, content) = self.check(stored.bytes())?;
        let (buf, len) = if code == COMPRESSION_NONE {
            let len = content.len();
            (stored, len)
        } else {
            let buf = self.decompress(code, content)?;
            let len = buf.bytes().len();
            (buf, len)
        };
        let layout = Layout::parse(buf.bytes()).map_err(|flaw| self.flawed(flaw))?;
        layout.validate(buf.bytes()).map_err(|flaw| self.flawed(flaw))?;
        if layout.len(buf.bytes()) != len {
            return Err(self.damaged("does not end where it should"));
        }
        Ok((buf, layout))
    }

    fn decompress(&self, code: u8, content: &[u8]) -> Result<Buf> {
        let split = content.split_first_chunk::<RAW_LEN_BYTES>();
        let (raw_len, compressed) = split.ok_or_else(|| self.damaged("is too short"))?;
        let raw_len = u32::from_le_bytes(*raw_len);
        if u64::from(raw_len) > self.raw_bytes_max {
            return Err(self.damaged("claims to be larger than all of its table"));
        }
        if raw_len as usize > BLOCK_BYTES_MAX {
            return Err(self.damaged("claims to be larger than any block"));
        }
        Buf::written(raw_len as usize, |out| {
            let complete = match code {
                COMPRESSION_LZ4 => lz4_decompress(compressed, out)?,
                COMPRESSION_ZSTD => zstd_decompress(compressed, out)?,
                _ => {
                    let what = "is compressed in a way that this version does not know";
                    return Err(self.unknown(what));
                }
            };
            if complete { Ok(()) } else { Err(self.damaged("cannot be decompressed")) }
        })
    }
}
