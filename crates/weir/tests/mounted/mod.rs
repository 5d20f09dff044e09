//! A real ext4 in a loop device: mounted for one test, and taken down with it.
//!
//! Needs root, `mkfs.ext4` and loop devices; who has not is told why, and skips.
#![expect(clippy::disallowed_methods, reason = "makes a file system")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn run(program: &str, args: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(args).output();
    let output = output.map_err(|e| format!("{program}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// A mounted file system, taken down with its loop device when it is dropped, in a panic too.
pub struct Mounted {
    pub at: PathBuf,
    _dir: tempfile::TempDir,
}

impl Mounted {
    /// A file system of so many bytes, made with `options`.
    pub fn new(bytes: u64, options: &[&str]) -> Result<Self, String> {
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        let (image, at) = (dir.path().join("image"), dir.path().join("mount"));
        let file = std::fs::File::create(&image).map_err(|e| e.to_string())?;
        file.set_len(bytes).map_err(|e| e.to_string())?;
        std::fs::create_dir(&at).map_err(|e| e.to_string())?;
        let text = |path: &Path| path.to_str().map(str::to_owned).ok_or("a strange path");
        run("mkfs.ext4", &[&["-q", "-F"], options, &[&text(&image)?]].concat())?;
        // The loop device goes with the mount.
        run("mount", &["-o", "loop", &text(&image)?, &text(&at)?])?;
        Ok(Self { at, _dir: dir })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let at = self.at.to_string_lossy().into_owned();
        let unmounted = run("umount", &[&at]).or_else(|_| run("umount", &["-l", &at]));
        if let Err(why) = unmounted {
            eprintln!("{at} stays mounted: {why}");
        }
    }
}
