//! The records of a batch.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir::fuzz::batch(data));
