//! A loop device over an image, with a file system or without, of which root fills a real store;
//! taken down when dropped, after a panic too.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs a program; what it printed.
///
/// # Errors
/// That it is missing or failed, and what it said.
pub fn run(program: &str, args: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(args).output();
    let output = output.map_err(|error| format!("{program} cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program} {}: {}", args.join(" "), said.trim()))
}

fn text(path: &Path) -> Result<&str, String> {
    path.to_str().ok_or_else(|| format!("{} is no UTF-8", path.display()))
}

/// A path below `dir` that nobody else has.
#[must_use]
pub fn unique(dir: &Path, what: &str) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    dir.join(format!("requests-{}-{count}.{what}", std::process::id()))
}

/// A loop device. Its requests go past the page cache to the image.
#[derive(Debug)]
pub struct Loop {
    device: PathBuf,
    image: PathBuf,
    /// The image goes with it.
    owns_image: bool,
}

impl Loop {
    /// A device of `bytes` over a new image in `dir`, all of it allocated.
    ///
    /// # Errors
    /// What is missing: root, a program, space; or what failed.
    pub fn new(dir: &Path, bytes: u64) -> Result<Self, String> {
        let mut this = Self::image(dir, bytes)?;
        run("fallocate", &["--length", &bytes.to_string(), text(&this.image)?])?;
        this.attach(&[])?;
        Ok(this)
    }

    /// The same, all of the image written, and one of `rest` bytes behind it on the same image, if
    /// that is more than none.
    ///
    /// # Errors
    /// As [`Loop::new`].
    pub fn written(dir: &Path, bytes: u64, rest: u64) -> Result<(Self, Option<Self>), String> {
        let mut this = Self::image(dir, bytes + rest)?;
        let count = format!("count={}", (bytes + rest) >> 20);
        let to = format!("of={}", text(&this.image)?);
        run("dd", &["if=/dev/zero", &to, "bs=1M", &count, "conv=fsync", "status=none"])?;
        let ends = bytes.to_string();
        this.attach(&["--sizelimit", &ends])?;
        if rest == 0 {
            return Ok((this, None));
        }
        let mut behind =
            Self { device: PathBuf::new(), image: this.image.clone(), owns_image: false };
        behind.attach(&["--offset", &ends])?;
        Ok((this, Some(behind)))
    }

    /// A new image without a device.
    fn image(dir: &Path, bytes: u64) -> Result<Self, String> {
        let image = unique(dir, "image");
        let shown = image.display().to_string();
        let failed = |error| format!("making {shown}: {error}");
        #[expect(clippy::disallowed_methods, reason = "an image of a disk, no store's file")]
        let file = std::fs::File::create(&image).map_err(failed)?;
        // Taken down from here on, whatever fails.
        let this = Self { device: PathBuf::new(), image, owns_image: true };
        file.set_len(bytes).map_err(failed)?;
        Ok(this)
    }

    fn attach(&mut self, part: &[&str]) -> Result<(), String> {
        let args = [&["--find", "--show"], part, &[text(&self.image)?]].concat();
        self.device = run("losetup", &args)?.into();
        run("losetup", &["--direct-io=on", text(&self.device)?]).map(drop)
    }

    /// The device.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.device
    }

    /// The device's number as the kernel's trace filters it: major << 20 | minor.
    ///
    /// # Errors
    /// That `stat` failed.
    pub fn number(&self) -> Result<u32, String> {
        let numbers = run("stat", &["--format", "%t %T", text(&self.device)?])?;
        let hex = |part: &str| u32::from_str_radix(part, 16).ok();
        let (major, minor) = numbers.split_once(' ').unwrap_or_default();
        let number = hex(major).zip(hex(minor)).map(|(major, minor)| (major << 20) | minor);
        number.ok_or_else(|| format!("{}: no device number in {numbers:?}", self.device.display()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Ok(device) = text(&self.device)
            && !device.is_empty()
            && let Err(error) = run("losetup", &["--detach", device])
        {
            eprintln!("{error}");
        }
        if !self.owns_image {
            return;
        }
        #[expect(clippy::disallowed_methods, reason = "an image of a disk, no store's file")]
        if let Err(error) = std::fs::remove_file(&self.image) {
            eprintln!("removing {}: {error}", self.image.display());
        }
    }
}

/// A file system on a loop device.
#[derive(Debug)]
pub struct Mounted {
    at: PathBuf,
}

impl Mounted {
    /// Makes a file system with its own defaults and mounts it below `dir`.
    ///
    /// # Errors
    /// As [`Loop::new`].
    pub fn new(device: &Loop, file_system: &str, dir: &Path) -> Result<Self, String> {
        // What ext4 would write later in the background it writes now.
        let options: &[&str] = match file_system {
            "ext4" => &["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
            "btrfs" => &["--quiet"],
            _ => &["-q"],
        };
        let args: Vec<&str> = options.iter().copied().chain([text(device.path())?]).collect();
        run(&format!("mkfs.{file_system}"), &args)?;
        let at = unique(dir, "mount");
        std::fs::create_dir_all(&at).map_err(|e| format!("making {}: {e}", at.display()))?;
        let args = ["-t", file_system, text(device.path())?, text(&at)?];
        let mounted = run("mount", &args);
        let this = Self { at };
        mounted.map(|_| this)
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Writes back everything that the file system still holds.
    ///
    /// # Errors
    /// That `sync` failed.
    pub fn sync(&self) -> Result<(), String> {
        run("sync", &["--file-system", text(&self.at)?]).map(drop)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = text(&self.at).and_then(|at| run("umount", &[at]));
        if let Err(error) = unmounted {
            eprintln!("{error}");
        }
        if let Err(error) = std::fs::remove_dir(&self.at) {
            eprintln!("removing {}: {error}", self.at.display());
        }
    }
}
