//! Sequences of calls against a map: every byte or two is a call on a store in simulation.
//!
//! The first bytes are the seed of the scheduler and the number of the options; then each call is a
//! byte that says which, and one that says which key. At the end everything is compared, before and
//! after a reopening, a kill or a power loss (of which only what was synced must be left).

#![no_main]

use std::collections::BTreeMap;

use weir::{Db, Durability};
use weir_sim::options;
use weir_sim::world::{self, Disk, Schedule};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Most calls of a run: the fuzzer learns nothing from longer ones.
const CALLS_MAX: usize = 400;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((head, calls)) = data.split_first_chunk::<5>() else { return };
    let (head, calls) = (*head, calls[..calls.len().min(2 * CALLS_MAX)].to_vec());
    let number = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
    let schedule = Schedule::new(u64::from(head[0]), 16);
    let outcome = world::simulate(schedule, move || run(number, &calls));
    match outcome {
        Ok(Ok(())) => {}
        Ok(Err(error)) => panic!("{error}"),
        Err(why) => panic!("{why}"),
    }
});

fn open(disk: &Disk, number: u32) -> weir::Result<Db> {
    let (store, keyspace) = (options::store(number), options::keyspace(number));
    disk.builder(1).options(store).default_options(keyspace).open()
}

fn key_of(byte: u8) -> Vec<u8> {
    match byte % 4 {
        0 => vec![byte],
        1 => format!("key{:03}", byte / 4).into_bytes(),
        2 => vec![0xff; usize::from(byte / 16)],
        _ => [&b"a prefix that is long/"[..], &[byte, 0]].concat(),
    }
}

fn compare(db: &Db, map: &Map, how: &str) -> weir::Result<()> {
    let forward = db.iter().collect::<weir::Result<Vec<_>>>()?;
    let mut backward = db.iter().rev().collect::<weir::Result<Vec<_>>>()?;
    backward.reverse();
    assert!(forward == backward, "{how}: forwards and backwards differ");
    let same = forward.len() == map.len()
        && forward.iter().zip(map).all(|((k, v), (ek, ev))| k[..] == ek[..] && v[..] == ev[..]);
    assert!(same, "{how}: {} pairs, {} expected, or another value", forward.len(), map.len());
    Ok(())
}

fn run(number: u32, calls: &[u8]) -> weir::Result<()> {
    let mut disk = Disk::new();
    let mut db = open(&disk, number)?;
    let (mut map, mut snapshots) = (Map::new(), Vec::new());
    let mut turn = 0u32;
    for call in calls.as_chunks::<2>().0 {
        let (key, durability) = (
            key_of(call[1]),
            match call[0] >> 6 {
                0 => Durability::Sync,
                _ => Durability::Buffered,
            },
        );
        turn += 1;
        match call[0] % 32 {
            0..=11 => {
                let value = vec![turn as u8; usize::from(call[0] / 2)];
                db.put_with(&key, &value, durability)?;
                map.insert(key, value);
            }
            12..=15 => {
                db.delete_with(&key, durability)?;
                map.remove(&key);
            }
            16..=19 => {
                let got = db.get(&key)?;
                assert_eq!(got.as_deref(), map.get(&key).map(Vec::as_slice), "get");
            }
            20 => db.flush()?,
            21 => db.compact_range(key..)?,
            22 => compare(&db, &map, "a scan")?,
            23 => snapshots.push((db.snapshot(), map.clone())),
            24 => {
                if let Some((snapshot, then)) = snapshots.pop() {
                    let got = snapshot.get(db.default_keyspace(), &key)?;
                    assert_eq!(got.as_deref(), then.get(&key).map(Vec::as_slice), "a snapshot");
                }
            }
            25 => {
                let mut cursor = db.cursor();
                cursor.seek(&key);
                let first = map.range(key..).next();
                assert_eq!(cursor.valid(), first.is_some(), "a seek");
                if let Some((key, value)) = first {
                    assert!(cursor.key() == key && cursor.value() == value, "a seek");
                }
            }
            26 => db.wait_idle()?,
            27 | 28 => {
                snapshots.clear();
                db.close()?;
                db = open(&disk, number.wrapping_add(u32::from(call[1])))?;
            }
            29 => {
                snapshots.clear();
                let killed = disk.kill();
                db.close()?;
                disk = killed;
                db = open(&disk, number)?;
            }
            _ => {
                snapshots.clear();
                db.sync()?;
                let lost = disk.power_loss(call[1], turn);
                db.close()?;
                disk = lost;
                db = open(&disk, number)?;
            }
        }
    }
    drop(snapshots);
    compare(&db, &map, "at the end")?;
    let damages = db.verify()?.damages;
    assert!(damages.is_empty(), "{damages:?}");
    db.close()?;
    let db = open(&disk, number)?;
    compare(&db, &map, "reopened")?;
    db.close()
}
