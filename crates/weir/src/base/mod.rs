//! Types that every other module uses (errors, keys, cursors, coding, checksums, memory
//! accounting), and the only doors to the clock, to randomness and to waiting.
//!
//! Not here: any I/O (`device`), the meaning of the bytes.

pub(crate) mod atomic;
pub(crate) mod buf;
pub(crate) mod checksum;
pub(crate) mod clock;
pub(crate) mod coding;
pub(crate) mod cursor;
pub(crate) mod error;
pub(crate) mod frame;
pub(crate) mod heat;
pub(crate) mod ids;
pub(crate) mod interval;
pub(crate) mod key;
pub(crate) mod key_scale;
pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod pages;
pub(crate) mod place;
pub(crate) mod pointer;
pub(crate) mod prefetch;
pub(crate) mod prng;
pub(crate) mod process;
pub(crate) mod sched;
pub(crate) mod slabs;
pub(crate) mod stripe;
pub(crate) mod table_meta;
pub(crate) mod tagged;
pub(crate) mod value;
