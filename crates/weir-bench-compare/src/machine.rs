//! What this program asks of the operating system: page cache, memory limits, and what the machine
//! is.
//!
//! Linux only. Dropping the page cache and limiting memory need root.

use std::path::{Path, PathBuf};

type Result<T> = std::result::Result<T, String>;

const V1: &str = "/sys/fs/cgroup/memory";
const V2: &str = "/sys/fs/cgroup";

/// Writes `text` to a control file.
fn control(path: &Path, text: &str) -> Result<()> {
    #[expect(clippy::disallowed_methods, reason = "a control file of the kernel is no store")]
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// The number in a control file.
fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Writes dirty pages back and empties the page cache, so that the next process starts cold.
pub fn drop_page_cache() -> Result<()> {
    let synced = std::process::Command::new("sync").status();
    if !synced.is_ok_and(|status| status.success()) {
        return Err("cannot run `sync`".to_owned());
    }
    control(Path::new("/proc/sys/vm/drop_caches"), "3")
}

/// A cgroup with a memory limit; page cache counts. Removed on drop.
pub struct MemoryGroup {
    folder: PathBuf,
    is_v2: bool,
}

impl MemoryGroup {
    /// A group called `name` that may hold `bytes`.
    pub fn create(name: &str, bytes: u64) -> Result<Self> {
        let is_v2 = Path::new(V2).join("cgroup.controllers").exists();
        let folder = Path::new(if is_v2 { V2 } else { V1 }).join(name);
        std::fs::create_dir_all(&folder)
            .map_err(|error| format!("cannot make the cgroup {}: {error}", folder.display()))?;
        let group = Self { folder, is_v2 };
        let limit = if is_v2 { "memory.max" } else { "memory.limit_in_bytes" };
        control(&group.folder.join(limit), &bytes.to_string())?;
        Ok(group)
    }

    /// Where it is; a process enters by [`enter`].
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The most memory that the group held, page cache included.
    pub fn peak_bytes(&self) -> Option<u64> {
        let peak = if self.is_v2 { "memory.peak" } else { "memory.max_usage_in_bytes" };
        number(&self.folder.join(peak))
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir(&self.folder) {
            eprintln!("cannot remove the cgroup {}: {error}", self.folder.display());
        }
    }
}

/// Moves this process into the cgroup at `folder`.
pub fn enter(folder: &Path) -> Result<()> {
    control(&folder.join("cgroup.procs"), &std::process::id().to_string())
}

/// Processor, cores, memory and kernel in one line.
pub fn describe() -> String {
    let field = |path: &str, name: &str| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once(':').map_or("unknown", |(_, value)| value.trim()).to_owned()
    };
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cores = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{cores} x {}, memory {}, Linux {}",
        field("/proc/cpuinfo", "model name"),
        field("/proc/meminfo", "MemTotal"),
        kernel.trim()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the machine is described from what Linux says, whatever it is.
    #[test]
    fn the_machine_has_a_name() {
        let text = describe();
        assert!(text.contains("memory") && text.contains("Linux"), "{text}");
    }
}
