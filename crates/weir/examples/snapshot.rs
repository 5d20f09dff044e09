//! A snapshot goes on showing the store as it was, whatever is written, flushed or compacted.

use weir::Db;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("weir-example-snapshot-{}", std::process::id()));
    let db = Db::open(&path)?;
    for number in 0..1000u32 {
        db.put(number.to_be_bytes(), "before")?;
    }

    let snapshot = db.snapshot();
    for number in 0..1000u32 {
        if number % 2 == 0 {
            db.delete(number.to_be_bytes())?;
        } else {
            db.put(number.to_be_bytes(), "after")?;
        }
    }
    db.flush()?;
    db.compact_range(..)?;

    let keyspace = db.default_keyspace();
    let now = db.iter().count();
    let then = snapshot.iter(keyspace).count();
    println!("{now} entries now, {then} in the snapshot");
    assert_eq!((now, then), (500, 1000));
    let value = snapshot.get(keyspace, 7u32.to_be_bytes())?;
    assert_eq!(value.as_deref(), Some(&b"before"[..]));

    drop(snapshot); // compactions may drop the old versions from now on
    db.close()?;
    Db::destroy(&path)?;
    // The directory may be older than the store, so that `destroy` leaves it.
    std::fs::remove_dir(&path)?;
    Ok(())
}
