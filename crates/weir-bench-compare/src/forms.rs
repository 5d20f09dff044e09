//! File systems that stores are measured on, each on a loop device: what `full` and `synced` ask
//! for alike.

use std::os::unix::fs::MetadataExt;

/// As `mkfs` and `mount` call them.
const FORMS: [&str; 3] = ["ext4", "xfs", "btrfs"];

/// All of them.
pub fn all() -> Vec<String> {
    FORMS.map(str::to_owned).to_vec()
}

/// The file systems that a list names.
///
/// # Errors
/// One that there is not.
pub fn named(list: &str) -> Result<Vec<String>, String> {
    let forms: Vec<String> = list.split(',').map(str::to_owned).collect();
    match forms.iter().find(|form| !FORMS.contains(&form.as_str())) {
        Some(form) => Err(format!("--forms: there is no {form:?}")),
        None => Ok(forms),
    }
}

/// Whether loop devices and mounts can be had here; says so if not.
pub fn are_possible() -> bool {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|of_process| of_process.uid() == 0);
    if !is_root {
        println!("skipped: loop devices and mounts need root");
    }
    is_root
}
