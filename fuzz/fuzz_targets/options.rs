//! Options of a keyspace as they are stored.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir::fuzz::options(data));
