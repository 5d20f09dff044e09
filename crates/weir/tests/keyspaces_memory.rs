//! Many keyspaces with a little in each stay within the memory budget.
#![cfg(feature = "sim")]

use weir::Db;
use weir::sim::{SimDisk, SimOptions};

/// How many; in the environment for the long form, 4,096 are as many as a store may have.
fn keyspaces_wanted() -> u32 {
    std::env::var("WEIR_TEST_KEYSPACES").map_or(512, |n| n.parse().expect("a number"))
}

/// A memtable with one entry takes two pages: together they take twice what memtables may have.
const BUDGET_PER_KEYSPACE: u64 = 8 << 10;

/// Goal: a memtable is counted from its first entry on, and what small memtables take together
/// stays within the half of the budget that memtables have, although none is full.
/// Method: write a little to many keyspaces, twice, and look at the account all the time. Writers
/// go on until a quarter above the limit.
#[test]
fn small_memtables_of_many_keyspaces_stay_within_the_budget() {
    let budget = u64::from(keyspaces_wanted()) * BUDGET_PER_KEYSPACE;
    let limit = budget / 2 + budget / 8 + (64 << 10);
    let disk = SimDisk::new(SimOptions::default());
    let db = Db::builder("sim").memory_budget(budget).seed(1).device(disk.dir()).open().unwrap();
    let used = || db.metrics().memory.memtables;
    let name = |i: u32| format!("keyspace {i}");
    let create = |i| db.keyspace(&name(i)).unwrap();
    let keyspaces: Vec<_> = (1..keyspaces_wanted()).map(create).collect();
    assert_eq!(used(), 0, "no keyspace has an entry");
    db.put(b"k", b"v").unwrap();
    let first = used();
    assert!(first >= 4096, "a memtable of one entry takes a page, and {first} bytes were counted");
    let mut worst = 0;
    for round in 0..2_u8 {
        for (i, keyspace) in keyspaces.iter().enumerate() {
            keyspace.put(b"k", [round; 100]).unwrap();
            if i % 64 == 0 {
                worst = worst.max(used());
            }
        }
    }
    assert!(worst > budget / 4, "the test writes too little: {worst} bytes of memtables");
    assert!(worst <= limit, "memtables held {worst} bytes of {limit}");
    for keyspace in &keyspaces {
        assert_eq!(keyspace.get(b"k").unwrap().as_deref(), Some(&[1; 100][..]));
    }
}
