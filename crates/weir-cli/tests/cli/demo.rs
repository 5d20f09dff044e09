//! `weir demo`.

use crate::{temporary, weir, weir_with};

/// Goal: the demo shows what it promises and leaves a store for the shell; it runs again on its own
/// store and on no other. Method: a short one, twice, then the shell.
#[test]
fn a_short_demo() {
    let dir = temporary();
    let args = ["demo", "--seconds", "1", "--keys", "3000"];
    for _ in 0..2 {
        let ran = weir(dir.path(), &args);
        let parts = [
            "loaded 3,000 people",
            "per second",
            "p99.9",
            "gets",
            "puts",
            "scans",
            "hit ratio",
            "written by",
            "compaction",
            "size on disk",
            // As the program was called.
            concat!("\n  ", env!("CARGO_BIN_EXE_weir"), " shell weir-demo"),
        ];
        for part in parts {
            assert!(ran.ok().contains(part), "{part:?} is not in {}", ran.out);
        }
    }
    let ran = weir_with(dir.path(), &["shell", "weir-demo"], b"count\nget user:0000000000\n");
    assert!(ran.ok().starts_with("3001\n\"{\\\"name\\\":\\\"Ada 0\\\""), "{}", ran.out);
    weir_with(dir.path(), &["shell", "--create", "mine"], b"put a 1\n").ok();
    weir(dir.path(), &["demo", "--dir", "mine"]).fails(1, &["mine", "--dir"]);
    assert_eq!(weir_with(dir.path(), &["shell", "mine"], b"count\n").ok(), "1\n");
}
