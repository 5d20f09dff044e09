//! A batch is written as a whole or not at all; a commit may be waited for later.

use weir::{Db, Durability, WriteBatch};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("weir-example-batch-{}", std::process::id()));
    let db = Db::open(&path)?;
    let accounts = db.default_keyspace().clone();
    db.put("alice", "100")?;
    db.put("bob", "20")?;

    // Nobody ever sees the money in neither account or in both.
    let mut transfer = WriteBatch::new();
    transfer.put(&accounts, "alice", "70");
    transfer.put(&accounts, "bob", "50");
    db.write(transfer, Durability::Sync)?;

    // One that is lent keeps its memory for the next records.
    let mut interest = WriteBatch::new();
    for amount in ["71", "72"] {
        interest.clear();
        interest.put(&accounts, "alice", amount);
        db.write(&mut interest, Durability::Buffered)?;
    }

    // Two batches on their way at once; one sync of the log serves both.
    let mut first = WriteBatch::new();
    first.put(&accounts, "carol", "5");
    let mut second = WriteBatch::new();
    second.delete(&accounts, "bob");
    let first = db.commit(first, Durability::Sync);
    let second = db.commit(second, Durability::Sync);
    first.wait()?;
    second.wait()?;

    for (name, amount) in db.iter().collect::<weir::Result<Vec<_>>>()? {
        println!("{} has {}", String::from_utf8_lossy(&name), String::from_utf8_lossy(&amount));
    }
    db.close()?;
    Db::destroy(&path)?;
    // The directory may be older than the store, so that `destroy` leaves it.
    std::fs::remove_dir(&path)?;
    Ok(())
}
