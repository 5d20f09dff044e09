//! Merges that cursors leave for the next one, beside publications.

use std::sync::Arc;

use super::{actor, explore, open_small_store};
use crate::device::sim::{SimDisk, SimOptions};
use crate::{DbOptions, Options};

/// Publications of one exploration.
const ROUNDS: u64 = 8;

/// Goal: when all cursors have ended nothing but the newest super-version is held, however a
/// publication falls between a cursor's looks. Method: in each round two cursors end while a state
/// is replaced; then nobody holds it.
#[test]
fn nothing_old_waits() {
    explore(|mut prng| {
        let disk = SimDisk::new(SimOptions::default());
        let (options, seed) = (DbOptions::default(), prng.next_u64());
        let db = open_small_store(&disk, seed, options, Options::default());
        db.put(b"k", b"v").expect("put");
        let tree = Arc::clone(&db.default_keyspace().tree);
        for round in 0..ROUNDS {
            let before = Arc::downgrade(&tree.pin());
            let readers = [0, 1].map(|_| {
                let db = db.clone();
                actor("reader", move || {
                    let mut cursor = db.cursor();
                    cursor.seek(b"a");
                    assert!(cursor.valid());
                })
            });
            tree.update(Clone::clone);
            readers.into_iter().for_each(|reader| assert!(reader.join(), "a reader failed"));
            assert!(before.upgrade().is_none(), "the state of round {round} is held by nobody");
        }
    });
}
