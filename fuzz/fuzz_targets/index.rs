//! The index of a table.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir::fuzz::index(data));
