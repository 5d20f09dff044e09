//! A filter, and filters that are built.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir::fuzz::filter(data));
