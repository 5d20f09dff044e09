//! A data block without compression.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir::fuzz::block(data));
