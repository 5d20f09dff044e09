//! A table's description.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir::fuzz::table_meta(data));
