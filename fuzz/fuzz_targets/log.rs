//! Segments of a log, their checksums made right: replayed, and what their groups hold.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir::fuzz::log_segments(data));
