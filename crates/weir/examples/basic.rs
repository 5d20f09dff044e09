//! Open a store, write, read, delete, close, and find everything again.

use weir::{Db, Durability};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("weir-example-basic-{}", std::process::id()));

    let db = Db::open(&path)?;
    db.put("apple", "red")?;
    db.put("banana", "yellow")?;
    db.put_with("cherry", "dark red", Durability::Sync)?; // safe from power loss when it returns
    db.delete("banana")?;

    assert_eq!(db.get("apple")?.as_deref(), Some(&b"red"[..]));
    assert!(db.get("banana")?.is_none());
    db.close()?;

    let db = Db::builder(&path).create_if_missing(false).memory_budget(64 << 20).open()?;
    for entry in db.iter() {
        let (key, value) = entry?;
        println!("{} is {}", String::from_utf8_lossy(&key), String::from_utf8_lossy(&value));
    }
    db.close()?;
    Db::destroy(&path)?;
    // The directory may be older than the store, so that `destroy` leaves it.
    std::fs::remove_dir(&path)?;
    Ok(())
}
