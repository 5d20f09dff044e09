//! A store on real files, to be damaged and repaired.

use std::path::Path;

use weir::{Builder, Db};

pub fn builder(path: &Path) -> Builder {
    Db::builder(path).memory_budget(8 << 20).log_segment_bytes(4 << 10).log_area_bytes(1 << 20)
}

pub fn open(path: &Path) -> Db {
    builder(path).open().expect("opened")
}
