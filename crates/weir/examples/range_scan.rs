//! Ranges and prefixes, both directions, and the cursor below them.

use weir::Db;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("weir-example-range-{}", std::process::id()));
    let db = Db::open(&path)?;
    for (city, people) in
        [("lima", 10u32), ("lisbon", 1), ("london", 9), ("madrid", 3), ("oslo", 1)]
    {
        db.put(format!("city/{city}"), people.to_string())?;
    }
    db.put("river/thames", "346 km")?;

    println!("from lisbon to madrid:");
    for entry in db.range("city/lisbon"..="city/madrid") {
        let (key, value) = entry?;
        println!("  {} {}", String::from_utf8_lossy(&key), String::from_utf8_lossy(&value));
    }

    println!("all cities, backwards:");
    for entry in db.prefix("city/").rev() {
        let (key, _) = entry?;
        println!("  {}", String::from_utf8_lossy(&key));
    }

    // An iterator owns what it reads from: it can go to another thread and outlive the handle.
    let cities = db.prefix("city/");
    let count = std::thread::scope(|scope| scope.spawn(move || cities.count()).join());
    println!("{} cities", count.unwrap_or(0));

    // The cursor: no allocation per step. When it stops, `status` tells the end from an error.
    let mut cursor = db.cursor();
    cursor.seek("city/m");
    let mut bytes = 0;
    while cursor.valid() {
        bytes += cursor.key().len() + cursor.value().len();
        cursor.next();
    }
    cursor.status()?;
    println!("{bytes} bytes from city/m on");
    drop(cursor);

    db.close()?;
    Db::destroy(&path)?;
    // The directory may be older than the store, so that `destroy` leaves it.
    std::fs::remove_dir(&path)?;
    Ok(())
}
