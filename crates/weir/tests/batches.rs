//! Batches: lent and used again, made of bytes, put together, looked through.

use std::collections::BTreeMap;

use weir::{BatchRecord, Db, Durability, ErrorKind, Keyspace, Options, WriteBatch};

struct Store {
    _dir: tempfile::TempDir,
    db: Db,
    users: Keyspace,
}

fn store() -> Store {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = Db::open(dir.path().join("db")).expect("opened");
    let users = db.create_keyspace("users", Options::default()).expect("created");
    Store { _dir: dir, db, users }
}

/// A batch over two keyspaces.
fn example(store: &Store) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(&store.users, "ada", "1815");
    batch.put(store.db.default_keyspace(), "", [7; 300]);
    batch.delete(&store.users, "bob");
    batch
}

fn content(keyspace: &Keyspace) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let pairs = keyspace.iter().map(|pair| pair.expect("read"));
    pairs.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// Goal: a batch that was lent has its records afterwards, and its memory: filled again, it
/// allocates nothing. It came back empty, and without memory if another thread led.
/// Method: several writers, each with one batch, that are committed by each other now and then; the
/// bytes stay where they are.
#[test]
fn a_lent_batch_is_used_again() {
    const ROUNDS: u32 = 400;
    let store = store();
    let (db, users) = (&store.db, &store.users);
    std::thread::scope(|scope| {
        for writer in 0..4_u32 {
            scope.spawn(move || {
                let mut batch = WriteBatch::new();
                batch.put(users, [0; 4], [0; 2000]);
                let place = batch.as_bytes().as_ptr();
                for round in 0..ROUNDS {
                    batch.clear();
                    assert!(batch.is_empty() && batch.as_bytes().is_empty());
                    batch.put(users, [writer, round].map(u32::to_be_bytes).concat(), [1; 100]);
                    batch.put(db.default_keyspace(), writer.to_be_bytes(), round.to_be_bytes());
                    let bytes = batch.as_bytes().to_vec();
                    let sync =
                        if round % 64 == 0 { Durability::Sync } else { Durability::Buffered };
                    db.write(&mut batch, sync).expect("written");
                    assert_eq!((batch.len(), batch.as_bytes()), (2, &bytes[..]));
                    assert_eq!(batch.as_bytes().as_ptr(), place, "writer {writer}, round {round}");
                }
            });
        }
    });
    assert_eq!(content(users).len(), 4 * ROUNDS as usize);
    assert!(content(db.default_keyspace()).values().all(|last| *last == 399_u32.to_be_bytes()));
    let metrics = db.metrics();
    assert!(metrics.commit_groups <= metrics.batches, "{metrics:?}");
}

/// Goal: a batch that was refused is what it was and can be written again; what is wrong with a
/// record stays until it is cleared. Method: a durability that is not for it, a key too long.
#[test]
fn a_refused_batch_stays() {
    let store = store();
    let mut batch = example(&store);
    let refused = store.db.write(&mut batch, Durability::None);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(batch.as_bytes(), example(&store).as_bytes());
    store.db.write(&mut batch, Durability::Buffered).expect("written");
    assert_eq!(store.users.get("ada").expect("read").as_deref(), Some(&b"1815"[..]));
    batch.delete(&store.users, vec![0; 1 << 16]);
    for _ in 0..2 {
        let error = store.db.write(&mut batch, Durability::Buffered).unwrap_err();
        assert!(error.to_string().contains("a key of 65536 bytes"), "{error}");
    }
    batch.clear();
    batch.put(&store.users, "ada", "1816");
    store.db.write(&mut batch, Durability::Buffered).expect("written");
    assert_eq!(store.users.get("ada").expect("read").as_deref(), Some(&b"1816"[..]));
}

/// Goal: a batch of a batch's bytes is the same batch, also after the store was opened again.
#[test]
fn bytes_make_the_same_batch() {
    let Store { _dir: dir, db, users } = store();
    let store = Store { _dir: dir, db, users };
    let batch = example(&store);
    let bytes = batch.as_bytes().to_vec();
    let same = WriteBatch::from_bytes(&store.db, &bytes).expect("well formed");
    assert_eq!((same.len(), same.byte_len()), (3, bytes.len()));
    assert_eq!(same.as_bytes(), bytes);
    assert!(same.iter().eq(batch.iter()));
    drop((batch, same));
    let Store { _dir: dir, db, users } = store;
    drop(users);
    db.close().expect("closed");
    let db = Db::open(dir.path().join("db")).expect("opened again");
    let again = WriteBatch::from_bytes(&db, &bytes).expect("well formed");
    db.write(again, Durability::Sync).expect("written");
    let users = db.open_keyspace("users").expect("opened");
    assert_eq!(content(&users), [(b"ada".to_vec(), b"1815".to_vec())].into());
    assert_eq!(content(db.default_keyspace()), [(Vec::new(), vec![7; 300])].into());
    let none = WriteBatch::from_bytes(&db, b"").expect("an empty batch");
    assert!(none.is_empty());
}

/// Goal: bytes that are no batch of this store are refused with what is wrong and where (P13); none
/// of them panics. Method: a table; every cut; every flipped bit, written if it is a batch.
#[test]
fn bytes_that_are_no_batch_are_refused() {
    let store = store();
    let (db, number) = (&store.db, 1_u8);
    let large = [vec![1, 0, 0, 0x81, 0x80, 0x80, 0x20], vec![0; (64 << 20) + 1]].concat();
    let long = [vec![2, number, 0x80, 0x80, 0x04], vec![0; 1 << 16]].concat();
    let cases: [(&[u8], ErrorKind, &str); 8] = [
        (b"\x00", ErrorKind::InvalidArgument, "no record begins at offset 0 of 1"),
        (b"\x02\x00\x00\x07\x00", ErrorKind::InvalidArgument, "at offset 3 of 5"),
        (b"\x01\x00\x02ab\x09xyz", ErrorKind::InvalidArgument, "at offset 0 of 9"),
        (b"\x01\xff\xff\xff\xff\x7f\x00\x00", ErrorKind::InvalidArgument, "at offset 0 of 8"),
        (&long, ErrorKind::InvalidArgument, "at offset 0: a key of 65536 bytes is too long"),
        (&large, ErrorKind::InvalidArgument, "at offset 0: a value of 67108865 bytes is too long"),
        (b"\x02\x00\x00\x02\x63\x00", ErrorKind::NotFound, "at offset 3 is for keyspace number 99"),
        (b"\x02\xac\x02\x00", ErrorKind::NotFound, "at offset 0 is for keyspace number 300"),
    ];
    for (bytes, kind, part) in cases {
        let error = WriteBatch::from_bytes(db, bytes).map(|batch| batch.len()).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(part), "{part:?} is not in {error}");
    }
    let bytes = example(&store).as_bytes().to_vec();
    for cut in 0..bytes.len() {
        let refused = WriteBatch::from_bytes(db, &bytes[..cut]);
        assert!(refused.is_err() || refused.is_ok_and(|batch| batch.as_bytes() == &bytes[..cut]));
    }
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        if let Ok(batch) = WriteBatch::from_bytes(db, &flipped) {
            db.write(batch, Durability::Buffered).expect("written");
        }
    }
    // A keyspace that is dropped between the two.
    let mut late = WriteBatch::from_bytes(db, &bytes).expect("well formed");
    db.drop_keyspace("users").expect("dropped");
    assert_eq!(db.write(&mut late, Durability::Buffered).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(
        WriteBatch::from_bytes(db, &bytes).map(drop).unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

/// Goal: appended records come behind those that are there, and what is wrong with either batch is
/// wrong with the whole.
#[test]
fn batches_are_appended() {
    let store = store();
    let (db, other) = (&store.db, self::store());
    let mut all = WriteBatch::new();
    all.append(&WriteBatch::new());
    assert!(all.is_empty());
    all.append(&example(&store));
    let mut more = WriteBatch::new();
    more.delete(&store.users, "ada");
    more.put(&store.users, "bob", "1");
    all.append(&more);
    assert_eq!((all.len(), all.byte_len()), (5, example(&store).byte_len() + more.byte_len()));
    let names: Vec<&str> = (&all)
        .into_iter()
        .map(|record| match record {
            BatchRecord::Put { keyspace, .. } | BatchRecord::Delete { keyspace, .. } => keyspace,
            _ => "unknown",
        })
        .collect();
    assert_eq!(names, ["users", "default", "users", "users", "users"]);
    db.write(&mut all, Durability::Buffered).expect("written");
    assert_eq!(content(&store.users), [(b"bob".to_vec(), b"1".to_vec())].into());
    let twice = all.clone();
    assert!(twice.iter().eq(all.iter()));

    let mut wrong = WriteBatch::new();
    wrong.put(&store.users, vec![0; 1 << 16], "");
    for bad in [wrong, example(&other)] {
        let mut all = example(&store);
        all.append(&bad);
        all.append(&more);
        let error = db.write(&mut all, Durability::Buffered).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    let error = db.write(example(&other), Durability::Buffered).unwrap_err();
    assert!(error.to_string().contains("another store"), "{error}");
    assert_eq!(content(&store.users).len(), 1, "nothing was written");
}

/// Goal: a store that was opened for reading refuses every batch, an empty one too, and says so.
#[test]
fn a_store_for_reading_refuses_batches() {
    let Store { _dir, db, users } = store();
    drop((users, db));
    let builder = Db::builder(_dir.path().join("db"));
    let db = builder.read_only(true).open().expect("opened");
    for durability in [Durability::None, Durability::Buffered, Durability::Sync] {
        let error = db.write(WriteBatch::new(), durability).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{durability:?}: {error}");
        let error = db.commit(WriteBatch::new(), durability).wait().expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{durability:?}: {error}");
    }
}
