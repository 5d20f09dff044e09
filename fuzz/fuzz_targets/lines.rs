//! The lines of a replay file (`weir replay`): read to the end or to the first wrong one.

#![no_main]

use weir_bench::lines::{Lines, Operation, decode, encode};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut lines = Lines::new(data);
    while let Ok(Some(operation)) = lines.next_operation() {
        if let Operation::Put(key, value) | Operation::Range(key, value) = operation {
            assert_eq!(decode(&encode(key)), Some(key));
            assert_eq!((encode(key) < encode(value)), (key < value));
        }
    }
});
