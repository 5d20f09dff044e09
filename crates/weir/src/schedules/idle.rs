//! Merges that cursors leave for the next one, beside publications.

use std::sync::Arc;
use std::time::Duration;

use super::{actor, explore, open_small_store};
use crate::base::sched;
use crate::base::stripe::share_stripe;
use crate::device::sim::{SimDisk, SimOptions};
use crate::read::merged::is_fresh;
use crate::table::Gates;
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
            // A worker may look at it for a moment.
            let mut looks = 0;
            while before.upgrade().is_some() {
                assert!(looks < 100, "the state of round {round} is held");
                looks += 1;
                sched::delay(Duration::from_millis(1));
            }
        }
    });
}

/// Goal: the same with readers that share a slot, who take each other's merges and replace them,
/// and for indexes of tables that are closed and a store that is. Method: in each round two readers
/// of one stripe end while tables are closed; what waits then was made afterwards. In the last one
/// the store is closed, and nothing waits.
#[test]
fn nothing_closed_waits() {
    explore(|mut prng| {
        let disk = SimDisk::new(SimOptions::default());
        let (options, seed) = (DbOptions::default(), prng.next_u64());
        let db = open_small_store(&disk, seed, options, Options::default());
        db.put(b"k", b"v").expect("put");
        let tree = Arc::clone(&db.default_keyspace().tree);
        let read = |db: &crate::Db| {
            let db = db.clone();
            actor("reader", move || {
                share_stripe();
                let mut cursor = db.cursor();
                cursor.seek(b"a");
                drop(cursor);
                db.cursor().seek(b"b");
            })
        };
        share_stripe();
        for round in 0..ROUNDS {
            let readers = [read(&db), read(&db)];
            tree.keep(Vec::new());
            readers.into_iter().for_each(|reader| assert!(reader.join(), "a reader failed"));
            let waiting = tree.idle.take();
            let fresh = waiting.is_none_or(|idle| is_fresh(&*idle, &tree));
            assert!(fresh, "what waits after round {round} may hold closed tables");
        }
        let readers = [read(&db), read(&db)];
        db.close().expect("closed");
        readers.into_iter().for_each(|reader| assert!(reader.join(), "a reader failed"));
        assert!(tree.idle.take().is_none(), "a merge waits in a store that is closed");
    });
}
