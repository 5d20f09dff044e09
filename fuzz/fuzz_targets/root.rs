//! The root record.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir::fuzz::root(data));
