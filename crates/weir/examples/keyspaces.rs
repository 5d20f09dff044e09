//! Keyspaces: trees with options of their own in one store, with one log and atomic batches.

use weir::{Compression, Db, Durability, Options, WriteBatch};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("weir-example-keyspaces-{}", std::process::id()));
    let db = Db::open(&path)?;

    let users = db.keyspace("users")?;
    // Uncompressed at the top, LZ4 from level 2 on: the last entry repeats. These are the options
    // of a new keyspace; one that exists keeps its own, until `set_options` changes them.
    let documents = Options::default().block_bytes(16 << 10).compression(vec![
        Compression::None,
        Compression::None,
        Compression::Lz4,
    ]);
    let documents = db.keyspace_with("documents", documents)?;
    users.set_options(users.options().write_buffer_bytes(8 << 20))?;

    let mut batch = WriteBatch::new();
    batch.put(&users, "ada", "analyst");
    batch.put(&documents, "ada/1", "Notes on the engine");
    batch.put(&documents, "ada/2", "Letters");
    db.write(batch, Durability::Buffered)?;

    println!("keyspaces: {}", db.keyspaces().join(", "));
    let titles = documents.prefix("ada/").collect::<weir::Result<Vec<_>>>()?;
    for (key, title) in &titles {
        println!("{}: {}", String::from_utf8_lossy(key), String::from_utf8_lossy(title));
    }
    assert_eq!(titles.len(), 2);

    db.drop_keyspace("documents")?;
    assert!(documents.get("ada/1").is_err()); // the handle answers `Closed` from now on
    assert_eq!(db.keyspaces(), ["default", "users"]);
    db.close()?;
    Db::destroy(&path)?;
    // The directory may be older than the store, so that `destroy` leaves it.
    std::fs::remove_dir(&path)?;
    Ok(())
}
