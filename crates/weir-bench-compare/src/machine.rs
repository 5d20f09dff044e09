//! What this program asks of the operating system: page cache, memory limits, and what the machine
//! is.
//!
//! Linux only. Dropping the page cache and limiting memory need root.

use std::path::{Path, PathBuf};

type Result<T> = std::result::Result<T, String>;

const V1: &str = "/sys/fs/cgroup/memory";
const BLOCK_V1: &str = "/sys/fs/cgroup/blkio";
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

/// Writes dirty pages back, so that the next process does not pay for those of the last one.
pub fn write_back() -> Result<()> {
    let synced = std::process::Command::new("sync").status();
    if !synced.is_ok_and(|status| status.success()) {
        return Err("cannot run `sync`".to_owned());
    }
    Ok(())
}

/// Empties the page cache of what is written back, so that the next process starts cold.
pub fn drop_page_cache() -> Result<()> {
    control(Path::new("/proc/sys/vm/drop_caches"), "3")
}

/// A cgroup with a memory limit; page cache counts. Under version 1 of cgroups, requests to a
/// device have a group of their own. Removed on drop.
pub struct Group {
    memory: PathBuf,
    /// With the device, as `MAJOR:MINOR`.
    device: Option<(PathBuf, String)>,
    is_v2: bool,
}

impl Group {
    /// A group called `name` that may hold `bytes`.
    pub fn create(name: &str, bytes: u64) -> Result<Self> {
        let is_v2 = Path::new(V2).join("cgroup.controllers").exists();
        let memory = make(Path::new(if is_v2 { V2 } else { V1 }).join(name))?;
        let group = Self { memory, device: None, is_v2 };
        let limit = if is_v2 { "memory.max" } else { "memory.limit_in_bytes" };
        control(&group.memory.join(limit), &bytes.to_string())?;
        Ok(group)
    }

    /// Holds the whole disk on which `dir` is to `reads` requests per second.
    pub fn hold_reads(&mut self, name: &str, dir: &Path, reads: u64) -> Result<()> {
        let device = whole_disk(dir)?;
        if self.is_v2 {
            control(&self.memory.join("io.max"), &format!("{device} riops={reads}"))?;
            self.device = Some((self.memory.clone(), device));
        } else {
            let folder = make(Path::new(BLOCK_V1).join(name))?;
            let limit = folder.join("blkio.throttle.read_iops_device");
            self.device = Some((folder, device.clone()));
            control(&limit, &format!("{device} {reads}"))?;
        }
        Ok(())
    }

    /// Where it is; a process enters each by [`enter`].
    pub fn folders(&self) -> Vec<PathBuf> {
        let device = self.device.iter().map(|(folder, _)| folder.clone());
        let device = device.filter(|folder| *folder != self.memory);
        std::iter::once(self.memory.clone()).chain(device).collect()
    }

    /// The most memory that the group held, page cache included.
    pub fn peak_bytes(&self) -> Option<u64> {
        let peak = if self.is_v2 { "memory.peak" } else { "memory.max_usage_in_bytes" };
        number(&self.memory.join(peak))
    }

    /// Requests for reads that the group sent to the device which is held.
    pub fn reads(&self) -> Option<u64> {
        let (folder, device) = self.device.as_ref()?;
        let file = if self.is_v2 { "io.stat" } else { "blkio.throttle.io_serviced" };
        let text = std::fs::read_to_string(folder.join(file)).ok()?;
        let words = text.lines().filter_map(|line| line.strip_prefix(device)?.strip_prefix(' '));
        let reads = |line: &str| -> Option<u64> {
            let mut words = line.split_whitespace();
            let count = words.find_map(|word| word.strip_prefix("rios="));
            count.or_else(|| line.strip_prefix("Read "))?.trim().parse().ok()
        };
        words.into_iter().find_map(reads)
    }
}

/// The folder of a new group.
fn make(folder: PathBuf) -> Result<PathBuf> {
    std::fs::create_dir_all(&folder)
        .map_err(|error| format!("cannot make the cgroup {}: {error}", folder.display()))?;
    Ok(folder)
}

/// The number of the disk on which `dir` is, not of its partition: only disks can be held.
fn whole_disk(dir: &Path) -> Result<String> {
    use std::os::unix::fs::MetadataExt;
    let failed = |what: &str| format!("cannot tell the disk of {}: {what}", dir.display());
    let device = std::fs::metadata(dir).map_err(|error| failed(&error.to_string()))?.dev();
    let number = format!("{}:{}", major(device), minor(device));
    let device = Path::new("/sys/dev/block").join(number);
    let device = std::fs::canonicalize(&device).map_err(|error| failed(&error.to_string()))?;
    let disk = if device.join("partition").exists() { device.parent() } else { Some(&*device) };
    let number = disk.and_then(|disk| std::fs::read_to_string(disk.join("dev")).ok());
    Ok(number.ok_or_else(|| failed("it has no number"))?.trim().to_owned())
}

/// The major number in Linux' encoding of a device.
fn major(device: u64) -> u64 {
    (device >> 32 & 0xffff_f000) | (device >> 8 & 0xfff)
}

/// The minor number.
fn minor(device: u64) -> u64 {
    (device >> 12 & 0xffff_ff00) | (device & 0xff)
}

impl Drop for Group {
    fn drop(&mut self) {
        for folder in self.folders() {
            if let Err(error) = std::fs::remove_dir(&folder) {
                eprintln!("cannot remove the cgroup {}: {error}", folder.display());
            }
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
