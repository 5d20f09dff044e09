//! What the operating system says about this process and a directory.
//!
//! Linux only; elsewhere, or where /proc cannot be read, the answers are `None`.

use std::path::Path;

/// Bytes that this process moved to and from storage since it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessIo {
    /// Bytes fetched from the storage layer.
    pub read_bytes: u64,
    /// Bytes sent to the storage layer, counted when a page becomes dirty; an upper bound where
    /// files are removed before they are written back.
    pub write_bytes: u64,
}

impl ProcessIo {
    /// Reads /proc/self/io.
    #[must_use]
    pub fn now() -> Option<Self> {
        let text = std::fs::read_to_string("/proc/self/io").ok()?;
        Some(Self {
            read_bytes: field(&text, "read_bytes:")?,
            write_bytes: field(&text, "write_bytes:")?,
        })
    }
}

/// Anonymous memory of this process now, in bytes.
#[must_use]
pub fn anonymous_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    Some(field(&text, "RssAnon:")? * 1024)
}

/// The number after `name` at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Bytes of all files below `dir`, as their lengths say. A file that vanishes meanwhile, or cannot
/// be read, counts nothing.
#[must_use]
pub fn directory_bytes(dir: &Path) -> u64 {
    #[expect(clippy::disallowed_methods, reason = "a sum does not depend on the order of the list")]
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => directory_bytes(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}
