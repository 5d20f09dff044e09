//! A whole table file, its checksums made right: opened, verified, read in every way.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir::fuzz::table(data));
