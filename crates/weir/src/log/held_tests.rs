//! Held groups: for how long they wait, that the log is a prefix of what was appended whenever
//! the process or the machine ends, and what becomes of it if they cannot be written.

use std::time::Duration;

use super::AckedWhen::{self, Held, Synced, Written};
use super::test_storage::{Effect, Fault, MemStorage};
use super::wal_tests::{read, start_with};
use crate::base::error::ErrorKind;
use crate::base::ids::Lsn;
use crate::base::prng::Prng;
use crate::base::sched;
use crate::base::sched::sim::Simulation;

/// Goal: deferred groups go with the next one that asks for more, in one write; by themselves when
/// they are many; and before a position is recorded.
#[test]
fn they_wait_for_the_next_one() {
    Simulation::run(1, |_| {
        let storage = MemStorage::default();
        let wal = start_with(&storage, 1 << 20);
        let mut all = vec![vec![0]];
        wal.append(&[&[0]], 1, Written).unwrap();
        let mut append = |payload: Vec<u8>, acked: AckedWhen| {
            let before = storage.calls();
            wal.append(&[&payload], 1, acked).unwrap();
            all.push(payload);
            (storage.calls() - before, all.clone())
        };
        for i in 1..4 {
            assert_eq!(append(vec![i], Held).0, 0);
        }
        assert_eq!(read(&storage, Lsn::ZERO).len(), 1);
        let (calls, written) = append(vec![4], Written);
        assert_eq!((calls, read(&storage, Lsn::ZERO)), (1, written));
        let calls: u64 = (0..100).map(|i| append(vec![i; 1000], Held).0).sum();
        assert_eq!(calls, 1, "64 KiB of 100");
        let (_, written) = append(vec![5], Held);
        assert!(written.starts_with(&read(&storage, Lsn::ZERO)));
        wal.prepare_missing().unwrap();
        let (calls, written) = append(vec![6; 100_000], Held);
        assert_eq!(calls, 3, "what waits, the start of a segment, and a large one, which does not");
        assert_eq!(read(&storage, Lsn::ZERO), written);
        let (_, written) = append(vec![7], Held);
        let (lsn, position) = wal.settle().unwrap();
        assert_eq!(position.lsn, lsn.next());
        wal.sync_to(lsn).unwrap();
        assert_eq!(read(&storage, lsn), written);
    });
}

/// Goal: what is held is not settled, also where it ends with its unit: a sync that begins now
/// would call it durable.
#[test]
fn what_is_held_is_not_settled() {
    Simulation::run(1, |_| {
        for bytes in 3800..4100 {
            let storage = MemStorage::default();
            let wal = start_with(&storage, 8 << 10);
            wal.append(&[&[0]], 1, Written).unwrap();
            let lsn = wal.append(&[&vec![1; bytes]], 1, Held).unwrap();
            assert!(wal.settled_lsn() < lsn, "{bytes} bytes");
        }
    });
}

/// Goal: they wait for 100 ms at most: who appends then writes them, and a background thread is
/// woken once, and is told when to look.
#[test]
fn they_do_not_wait_for_long() {
    Simulation::run(1, |sim| {
        let storage = MemStorage::default();
        let wal = start_with(&storage, 1 << 20);
        wal.append(&[&[0]], 1, Written).unwrap();
        assert_eq!(wal.held_look_at(sim.now_nanos()), None);
        wal.append(&[&[1]], 1, Held).unwrap();
        let due = sim.now_nanos() + 100_000_000;
        assert_eq!(wal.held_look_at(sim.now_nanos()), Some(due));
        sched::delay(Duration::from_millis(99));
        wal.append(&[&[2]], 1, Held).unwrap();
        assert!(!wal.is_held_due() && read(&storage, Lsn::ZERO).len() == 1);
        sched::delay(Duration::from_millis(1));
        assert!(wal.is_held_due());
        // The queue is busy: again, but not at once.
        assert_eq!(wal.held_look_at(due), Some(due + 10_000_000));
        wal.append(&[&[3]], 1, Held).unwrap();
        assert!(!wal.is_held_due() && read(&storage, Lsn::ZERO).len() == 4);
        wal.append(&[&[4]], 1, Held).unwrap();
        wal.write_out().unwrap();
        assert_eq!(read(&storage, Lsn::ZERO).len(), 5);
        assert_eq!(wal.held_look_at(due), None);
    });
}

/// Goal: groups that were acknowledged and cannot be written end the log: what it has is a prefix,
/// and nothing behind them is acknowledged or becomes durable. Method: the write fails, in three
/// ways, at the next group, at a settling, at a new segment.
#[test]
fn groups_that_are_lost_end_the_log() {
    for effect in [Effect::Nothing, Effect::Half, Effect::All] {
        for by in 0..3 {
            Simulation::run(1, move |_| {
                let storage = MemStorage::default();
                let wal = start_with(&storage, 8 << 10);
                let synced = wal.append(&[&[0]], 1, Synced).unwrap();
                wal.sync_to(synced).unwrap();
                wal.prepare_missing().unwrap();
                wal.append(&[&[1]], 1, Held).unwrap();
                wal.append(&[&[2]], 1, Held).unwrap();
                let kind = ErrorKind::Io;
                storage.set_fault(Some(Fault { at: storage.calls(), times: 1, kind, effect }));
                match by {
                    0 => drop(wal.append(&[&[3]], 1, Written).unwrap_err()),
                    1 => drop(wal.append(&[&[3; 8000]], 1, Written).unwrap_err()),
                    _ => {}
                }
                let settled = wal.settle().map(|_| ());
                let lsn = wal.written_lsn();
                let synced_later = [wal.sync_to(lsn), wal.sync_position(lsn)];
                for failed in synced_later.into_iter().chain([settled, wal.write_out()]) {
                    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Poisoned);
                }
                for acked in [Held, Written, Synced] {
                    let failed = wal.append(&[&[4]], 1, acked).unwrap_err();
                    assert_eq!(failed.kind(), ErrorKind::Poisoned);
                }
                assert!(wal.is_failed() && wal.durable_lsn() == synced);
                let all = [vec![0], vec![1], vec![2], vec![3]];
                let found = read(&storage, synced);
                assert!(all.starts_with(&found), "{effect:?}, {by}: {found:?}");
            });
        }
    }
}

/// Goal: whenever the process ends, the log is a prefix of what was appended and has all that is
/// not deferred; whenever the machine ends, all that was synced. Method: random groups in small
/// segments, against a list.
#[test]
fn the_log_is_a_prefix_always() {
    for seed in 0..20 {
        Simulation::run(seed, move |_| {
            let mut prng = Prng::new(seed);
            let storage = MemStorage::default();
            let wal = start_with(&storage, 8 << 10);
            let (mut all, mut kept, mut durable) = (Vec::new(), 0, (0, Lsn::ZERO));
            let mut lsns = Vec::new();
            for i in 0..200u8 {
                let bytes_max = if i % 16 == 0 { 7_000 } else { 300 };
                let payload = vec![i; prng.below(bytes_max) as usize + 1];
                let acked = [Held, Held, Written, Synced][prng.below(4) as usize];
                let lsn = wal.append(&[&payload], 1, acked).unwrap();
                all.push(payload);
                lsns.push(lsn);
                if acked > Held {
                    kept = all.len();
                }
                if acked == Synced {
                    wal.sync_to(lsn).unwrap();
                    durable = (all.len(), lsn);
                }
                wal.prepare_missing().unwrap();
                let found = read(&storage, durable.1);
                assert!(all.starts_with(&found) && found.len() >= kept, "seed {seed}, group {i}");
                // A sync that begins now would call them durable.
                let settled = lsns.partition_point(|&lsn| lsn <= wal.settled_lsn());
                assert!(settled <= found.len(), "seed {seed}, group {i}: {settled} are settled");
            }
            storage.restart(&mut prng, 2);
            let found = read(&storage, durable.1);
            assert!(all.starts_with(&found) && found.len() >= durable.0, "seed {seed}");
        });
    }
}
