//! Heat that comes and goes with the option, and follows the keyspace.

use super::*;
use crate::db::Db;
use crate::heat::shape::HeatShape;
use crate::{BucketRanges, Durability, SentinelOptions, WriteBatch};

fn open(dir: &tempfile::TempDir, sentinels: Sentinels) -> Db {
    let options = Options::default().sentinels(sentinels);
    Db::builder(dir.path()).default_options(options).open().unwrap()
}

fn heat_of(db: &Db) -> Option<Arc<RangeHeat>> {
    db.default_keyspace().tree.pin().heat.clone()
}

fn write(db: &Db, numbers: std::ops::Range<u32>) {
    let mut batch = WriteBatch::new();
    numbers.for_each(|n| batch.put(db.default_keyspace(), format!("{n:06}"), b"value"));
    db.write(&mut batch, Durability::Buffered).unwrap();
    db.flush().unwrap();
}

/// Goal: a keyspace has heat while its option says so, of as many buckets as that says, with memory
/// that is charged; an opened store has it from the start, and a new keyspace too.
#[test]
fn the_option_turns_it_on_and_off() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir, Sentinels::Off);
    write(&db, 0..1000);
    assert!(heat_of(&db).is_none());
    let on = SentinelOptions::default().buckets(BucketRanges::Quantile(20));
    let set =
        |sentinels| db.default_keyspace().set_options(Options::default().sentinels(sentinels));
    let charged = || db.metrics().memory.table_metadata;
    let before = charged();
    set(on.into()).unwrap();
    assert_eq!(heat_of(&db).unwrap().buckets().len(), 20);
    assert!(charged() >= before + 20 * 64, "{} bytes after {before}", charged());
    set(on.buckets(BucketRanges::Equal(7)).into()).unwrap();
    assert_eq!(heat_of(&db).unwrap().buckets().len(), 7);
    let other = db.keyspace_with("other", Options::default().sentinels(on)).unwrap();
    assert_eq!(other.tree.pin().heat.as_ref().unwrap().buckets().len(), 1);
    set(Sentinels::Off).unwrap();
    assert!(heat_of(&db).is_none());
    set(on.into()).unwrap();
    db.close().unwrap();
    let db = open(&dir, Sentinels::Off);
    assert_eq!(heat_of(&db).unwrap().buckets().len(), 20);
}

/// Goal: buckets are cut anew as the keyspace grows, with what was counted, and not by other edits.
#[test]
fn buckets_follow_growth() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir, SentinelOptions::default().buckets(BucketRanges::Quantile(20)).into());
    assert_eq!(heat_of(&db).unwrap().buckets().len(), 1);
    write(&db, 0..1000);
    let first = heat_of(&db).unwrap();
    assert_eq!(first.buckets().len(), 20);
    write(&db, 1000..1900);
    assert!(Arc::ptr_eq(&first, &heat_of(&db).unwrap()), "cut anew without need");
    let gets = |heat: &RangeHeat| {
        let HeatShape { buckets, .. } = heat.shape(0);
        buckets.iter().map(|bucket| bucket.gets).sum::<u64>()
    };
    (0..1000).for_each(|n| drop(db.get(format!("{n:06}")).unwrap()));
    let counted = gets(&first);
    assert!((700..1300).contains(&counted), "{counted} gets of 1,000");
    write(&db, 1900..2100);
    let second = heat_of(&db).unwrap();
    assert!(!Arc::ptr_eq(&first, &second), "not cut anew");
    let middle = second.buckets().find(b"001050");
    assert!((9..=11).contains(&middle), "the middle is in bucket {middle} of 20");
    assert_eq!(gets(&second), counted);
}
