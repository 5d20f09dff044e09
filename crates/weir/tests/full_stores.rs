//! Full stores whose tables are large beside the device: who compacts and deletes gets out.

#![cfg(feature = "sim")]

use std::collections::BTreeSet;
use std::sync::Arc;

use weir::sim::{Prng, SimDisk, SimOptions};
use weir::{Db, ErrorKind};

mod small_stores;

use small_stores::{MIB, STORE, Shape, policy};

/// A store, and what fills it.
#[derive(Debug)]
struct Case {
    shape: Shape,
    /// Keys come one after the other, again and again.
    is_ordered: bool,
}

impl Case {
    /// One of many.
    fn random(seed: u64, prng: &mut Prng) -> Self {
        let policy = policy(prng, seed);
        let mib = 24 + prng.below(49);
        let (table_kib, buffer_kib) = (64 << prng.below(4), 64 << prng.below(3));
        let key_bytes = [16, 100, 1500][prng.below(3) as usize];
        let value_bytes = [100, 2000, 6000][prng.below(3) as usize];
        let keys = [2000, 20_000, 1_000_000][prng.below(3) as usize];
        let shape = Shape { policy, mib, table_kib, buffer_kib, key_bytes, value_bytes, keys };
        Self { shape, is_ordered: prng.chance(1, 4) }
    }

    fn open(&self) -> Db {
        let disk = SimDisk::new(SimOptions::default());
        self.shape.format(&disk);
        let options = self.shape.options();
        let builder = Db::builder("simulated").default_options(options).memory_budget(8 * MIB);
        let builder = builder.background_threads(1).seed(1).device(Arc::new(disk.clone()));
        builder.device_file(STORE).open().expect("it opens")
    }

    /// Writes until something is refused; what is there then, or `None` if it is never full.
    fn fill(&self, db: &Db, prng: &mut Prng) -> Option<BTreeSet<u64>> {
        let (shape, mut there) = (&self.shape, BTreeSet::new());
        for count in 0..400_000 {
            let number = if self.is_ordered { count % shape.keys } else { prng.below(shape.keys) };
            let value = vec![prng.below(256) as u8; 1 + prng.below(shape.value_bytes) as usize];
            let deletes = prng.chance(1, 10);
            let key = shape.key(number);
            match if deletes { db.delete(key) } else { db.put(key, &value) } {
                Ok(()) if deletes => there.remove(&number),
                Ok(()) => there.insert(number),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                    return Some(there);
                }
            };
        }
        None
    }
}

/// Fills a store, and compacts and deletes in turns until half of it is gone; whether it got full.
fn get_out(seed: u64) -> bool {
    let mut prng = Prng::new(seed);
    let case = Case::random(seed, &mut prng);
    let db = case.open();
    let Some(mut there) = case.fill(&db, &mut prng) else { return false };
    let _ = db.wait_idle();
    println!("seed {seed}, {case:?}:\n{}", db.property("weir.levels").expect("it has levels"));
    let half = there.len() / 2;
    let free = || db.slot_space().expect("it is in slots").free;
    let mut in_vain = 0;
    while there.len() > half {
        let before = (there.len(), free());
        let compacted = db.compact_range(..);
        while let Some(&number) = there.first().filter(|_| there.len() > half) {
            match db.delete(case.shape.key(number)) {
                Ok(()) => there.remove(&number),
                Err(error) if error.kind() == ErrorKind::NoSpace => break,
                Err(error) => panic!("seed {seed}: {error}"),
            };
        }
        // A compaction that ends early has done a part.
        in_vain = if there.len() < before.0 || free() > before.1 { 0 } else { in_vain + 1 };
        assert!(in_vain < 3, "seed {seed} is stuck: {compacted:?}, {} of {half} left", there.len());
    }
    db.compact_range(..).unwrap_or_else(|error| panic!("seed {seed}, half empty: {error}"));
    let found = db.iter().map(|entry| entry.expect("it is read").0.to_vec());
    assert!(found.eq(there.iter().map(|&number| case.shape.key(number))), "seed {seed}");
    db.close().expect("it is closed");
    true
}

/// Goal: a full store gets out by compactions and deletes, also where some tables are a large part
/// of it. Method: the shapes of random ones that were stuck, each for a reason of its own: keys in
/// order, so that tables of two runs seldom lie over each other (3); parts, of which only all went
/// together (12, 48); writers who left less than two runs take (59); long keys (61). And as many
/// others as `WEIR_FULL_STORES` says, some seconds each.
#[test]
fn who_compacts_and_deletes_gets_out() {
    for seed in [3, 12, 48, 59, 61] {
        assert!(get_out(seed), "seed {seed} is never full");
    }
    let count = std::env::var("WEIR_FULL_STORES").map_or(0, |count| count.parse().unwrap());
    let full = (0..count).filter(|&seed| get_out(seed)).count();
    println!("{full} of {count} others got full");
}
