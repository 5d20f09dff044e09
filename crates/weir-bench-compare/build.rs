//! Links LevelDB, and takes the peers' versions from the lock file so that results can name them.

use std::path::Path;

fn main() {
    println!("cargo::rustc-link-lib=dylib=leveldb");
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    println!("cargo::rerun-if-changed={}", lock.display());
    let text = std::fs::read_to_string(&lock).unwrap_or_default();
    for (package, variable) in
        [("librocksdb-sys", "PEER_ROCKSDB_VERSION"), ("fjall", "PEER_FJALL_VERSION")]
    {
        let version = version_of(&text, package).unwrap_or("unknown");
        // librocksdb-sys is numbered "its own + RocksDB's".
        let version = version.rsplit('+').next().unwrap_or(version);
        println!("cargo::rustc-env={variable}={version}");
    }
}

/// The version of `package` in the text of a lock file.
fn version_of<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let name = format!("name = \"{package}\"\n");
    let rest = &lock[lock.find(&name)? + name.len()..];
    rest.lines().next()?.strip_prefix("version = \"")?.strip_suffix('"')
}
