//! The ring of segments against a plain list of payloads, through failing segments.

use std::sync::Arc;

use super::AckedWhen::{Synced, Written};
use super::test_storage::{Effect, Fault, MemStorage};
use super::wal::{Wal, WalOptions};
use super::{LogPosition, LogSource, replay};
use crate::base::error::{Error, ErrorKind};
use crate::base::ids::{Lineage, Lsn, Nonce, SegmentNumber, segment, segments};
use crate::log::wal::FoundLog;

use crate::storage::{LogKind, Storage};

const SEGMENT_BYTES: u64 = 8 << 10;

fn start(storage: &MemStorage) -> Wal {
    start_with(storage, SEGMENT_BYTES)
}

pub(super) fn start_with(storage: &MemStorage, segment_bytes: u64) -> Wal {
    let options = WalOptions { lineage: Lineage::new(7), opening: 1, segment_bytes };
    let storage: Arc<dyn Storage> = Arc::new(storage.clone());
    let request_segment = Box::new(|| {});
    Wal::start(storage, options, new_log(), request_segment).unwrap()
}

/// A log without segments.
fn new_log() -> FoundLog {
    FoundLog { live: Vec::new(), next_number: SegmentNumber::FIRST, end: LogPosition::ORIGIN }
}

pub(super) fn source(start: LogPosition, durable_lsn: Lsn) -> LogSource {
    let (kind, lineage, nonce) = (LogKind::Wal, Lineage::new(7), Nonce::NONE);
    LogSource { kind, start, durable_lsn, lineage, nonce }
}

/// Payloads that a replay finds, empty groups left out.
pub(super) fn read(storage: &MemStorage, known_durable: Lsn) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    replay(storage, source(LogPosition::ORIGIN, known_durable), &mut |group| {
        if !group.payload.is_empty() {
            payloads.push(group.payload.to_vec());
        }
        Ok(())
    })
    .unwrap();
    payloads
}

/// A log whose last synced group filled its segment to the end can be finished: the empty group
/// goes to the next segment.
#[test]
fn a_full_segment_can_be_finished() {
    let storage = MemStorage::default();
    let wal = start(&storage);
    for i in 0..2u8 {
        // Each group ends with its 4 KiB unit.
        wal.append(&[&[i; 100]], 1, Synced).unwrap();
    }
    wal.finish().unwrap();
    assert_eq!(wal.live_segments().len(), 2);
    assert_eq!(read(&storage, Lsn::new(3)), [vec![0; 100], vec![1; 100]]);
}

/// Goal: a batch that is acknowledged after a segment could not be started is found again. Method:
/// the start of the next segment fails, in three ways, although all of it may be on disk; a smaller
/// batch would still fit in the old segment.
#[test]
fn nothing_is_acknowledged_behind_a_start_that_failed() {
    for effect in [Effect::Nothing, Effect::Half, Effect::All] {
        let storage = MemStorage::default();
        let wal = start(&storage);
        wal.append(&[&[1; 6000]], 1, Written).unwrap();
        wal.prepare_missing().unwrap();
        let kind = ErrorKind::NoSpace;
        storage.set_fault(Some(Fault { at: storage.calls(), times: 1, kind, effect }));
        let error = wal.append(&[&[2; 6000]], 1, Written).unwrap_err();
        assert_eq!(error.kind(), kind);
        wal.prepare_missing().unwrap();
        let lsn = wal.append(&[&[3; 10]], 1, Synced).unwrap();
        wal.sync_to(lsn).unwrap();
        assert_eq!(read(&storage, lsn), [vec![1; 6000], vec![3; 10]], "{effect:?}");
    }
}

/// A batch larger than a segment that fails halfway leaves nothing, no segment either, and what
/// comes after it stays; a position that is taken in between leads there.
#[test]
fn a_batch_that_fails_between_segments_is_given_up() {
    for failing in 0..8 {
        let storage = MemStorage::default();
        let wal = start(&storage);
        wal.append(&[&[1; 10]], 1, Written).unwrap();
        wal.prepare_missing().unwrap();
        let kind = ErrorKind::NoSpace;
        let at = storage.calls() + failing;
        storage.set_fault(Some(Fault { at, times: 1, kind, effect: Effect::All }));
        // Only one more segment is ready: the batch needs three, and the log is closed to more.
        wal.close();
        let before = wal.live_segments();
        wal.append(&[&[2; 20_000]], 1, Written).unwrap_err();
        storage.set_fault(None);
        // The start of the first one may have failed: then it has no fragment.
        let after = wal.live_segments();
        assert!(
            after == before || failing == 0 && after.starts_with(&before),
            "{failing}: {after:?}"
        );
        let (last, position) = wal.settle().unwrap();
        assert_eq!(position.lsn, last.next());
        wal.prepare_missing().unwrap();
        let lsn = wal.append(&[&[3; 10]], 1, Synced).unwrap();
        wal.sync_to(lsn).unwrap();
        assert_eq!(read(&storage, lsn), [vec![1; 10], vec![3; 10]], "{failing}");
        let mut behind = Vec::new();
        let log = source(position, lsn);
        replay(&storage, log, &mut |group| {
            behind.push(group.payload.to_vec());
            Ok(())
        })
        .unwrap();
        assert_eq!(behind.last(), Some(&vec![3; 10]), "{failing}: from {position:?}");
    }
}

/// Goal: nothing is called durable that a later write may tear (H37), in release builds too: it is
/// an error, and final.
#[test]
fn only_what_is_settled_can_be_synced() {
    let storage = MemStorage::default();
    let wal = start(&storage);
    let lsn = wal.append(&[&[1; 10]], 1, Written).unwrap();
    assert_eq!(wal.sync_to(lsn).unwrap_err().kind(), ErrorKind::Poisoned);
    assert!(wal.is_failed() && wal.durable_lsn() < lsn);
    wal.sync_to(wal.settle().unwrap().0).unwrap_err();
}

/// Goal: a position that a flush records is found by the next recovery, also if its segment holds
/// nothing yet. Method: power is lost right after the position was made durable, keeping only what
/// was synced; a replay of the whole log must end at that position. (A
/// recovery crashed after its first flush edit; the next one started its log after the segment
/// before, and a write that it acknowledged could not be reached from the recorded position.)
#[cfg(feature = "sim")]
#[test]
fn a_recorded_position_is_durable() {
    use crate::device::sim::{SimDisk, SimOptions, crash::CrashPolicy};
    use crate::storage::OpenOptions;
    use crate::storage::files::Files;
    let files = |disk: &SimDisk| -> Arc<dyn Storage> {
        let options = OpenOptions { create: true, read_only: false };
        Arc::new(Files::open(disk.dir(), options).unwrap())
    };
    let disk = SimDisk::new(SimOptions::default());
    let options = WalOptions { lineage: Lineage::new(7), opening: 1, segment_bytes: SEGMENT_BYTES };
    let want = Box::new(|| {});
    let storage = files(&disk);
    storage.write_root_record(b"root", SegmentNumber::FIRST).unwrap();
    let wal = Wal::start(storage, options, new_log(), want).unwrap();
    wal.append(&[b"a"], 1, Written).unwrap();
    let (lsn, position) = wal.settle().unwrap();
    wal.sync_position(lsn).unwrap();
    let after = files(&disk.crash(CrashPolicy::Nothing, 0));
    let log = source(LogPosition::ORIGIN, Lsn::ZERO);
    let end = replay(&*after, log, &mut |_| Ok(())).unwrap();
    assert_eq!(end.next, position, "the log does not lead to the recorded position");
}

/// Goal: obsolete segments are written again; those that were not zeroed go when a writer syncs.
/// Method: three segments are filled, the first two released; what is in storage then, and when the
/// next one was prepared for a writer that syncs.
#[test]
fn segments_are_recycled() {
    for synced in [false, true] {
        let storage = MemStorage::default();
        let wal = start(&storage);
        for i in 0..3 {
            wal.append(&[&[i; 5000]], 1, if synced { Synced } else { Written }).unwrap();
            wal.prepare_missing().unwrap();
        }
        let live = wal.live_segments();
        let [first, second, active] = live[..] else { panic!("three segments: {live:?}") };
        let (lsn, _) = wal.settle().unwrap();
        wal.sync_position(lsn).unwrap();
        wal.release_before(active);
        let kept = storage.list_logs(LogKind::Wal).unwrap();
        assert!(kept.contains(&first) && kept.contains(&second), "synced {synced}: {kept:?}");
        // The one that is ready was made as the others were.
        wal.append(&[&[7; 5000]], 1, Synced).unwrap();
        wal.prepare_missing().unwrap();
        let left = storage.list_logs(LogKind::Wal).unwrap();
        // The second one was not zeroed, unless for writers that sync.
        assert!(!left.contains(&second), "synced {synced}: {left:?}");
        assert_eq!(left.len(), if synced { 4 } else { 3 }, "synced {synced}: {left:?}");
    }
}

/// Goal: a segment that could not be recycled does not stay behind and take space that is short.
/// Method: the first segment of an opening becomes obsolete; its renaming finds no space.
#[test]
fn a_segment_that_cannot_be_recycled_goes() {
    let storage = MemStorage::default();
    let wal = start(&storage);
    for i in 0..2 {
        wal.append(&[&[i; 5000]], 1, Synced).unwrap();
        wal.prepare_missing().unwrap();
    }
    let active = *wal.live_segments().last().unwrap();
    let lsn = wal.append(&[&[2; 5000]], 1, Synced).unwrap();
    wal.sync_position(lsn).unwrap();
    wal.release_before(active);
    let last = *wal.live_segments().last().unwrap();
    assert_eq!(storage.list_logs(LogKind::Wal).unwrap().len(), 3);
    let (at, kind, effect) = (storage.calls(), ErrorKind::NoSpace, Effect::Nothing);
    storage.set_fault(Some(Fault { at, times: 1, kind, effect }));
    assert_eq!(wal.prepare_missing().unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(storage.list_logs(LogKind::Wal).unwrap(), [active, last]);
    wal.prepare_missing().unwrap();
    assert_eq!(storage.list_logs(LogKind::Wal).unwrap().len(), 3);
}

/// Goal: an opening that writes nothing adds nothing to the log, and the position that it records
/// is where the log that it found goes on. Method: start, settle and finish, twice, between two
/// openings that write.
#[test]
fn an_opening_without_a_write_adds_nothing() {
    let storage = MemStorage::default();
    let idle = start(&storage);
    assert_eq!(idle.settle().unwrap(), (Lsn::ZERO, LogPosition::ORIGIN));
    idle.sync_position(Lsn::ZERO).unwrap();
    idle.finish().unwrap();
    assert!(storage.list_logs(LogKind::Wal).unwrap().is_empty());
    let wal = start(&storage);
    wal.append(&[b"first"], 1, Synced).unwrap();
    wal.finish().unwrap();
    let found = |from: LogPosition| {
        let mut payloads = Vec::new();
        let end = replay(&storage, source(from, Lsn::ZERO), &mut |group| {
            payloads.push(group.payload.to_vec());
            Ok(())
        });
        (end.unwrap(), payloads)
    };
    let (end, _) = found(LogPosition::ORIGIN);
    let open = |opening| {
        let options =
            WalOptions { lineage: Lineage::new(7), opening, segment_bytes: SEGMENT_BYTES };
        let all: Arc<dyn Storage> = Arc::new(storage.clone());
        let found = FoundLog { live: vec![segment(1)], next_number: segment(2), end: end.next };
        Wal::start(all, options, found, Box::new(|| {})).unwrap()
    };
    let idle = open(2);
    let (lsn, position) = idle.settle().unwrap();
    assert_eq!(position, end.next);
    idle.sync_position(lsn).unwrap();
    idle.finish().unwrap();
    assert_eq!(storage.list_logs(LogKind::Wal).unwrap(), segments([1]));
    let wal = open(3);
    wal.append(&[b"second"], 1, Synced).unwrap();
    wal.finish().unwrap();
    let (_, payloads) = found(position);
    assert_eq!(payloads[0], b"second");
}

/// Goal: who begins to sync gets a segment of zeros soon, not when the reserved one is full.
/// Method: a store that was written to without syncs is in its second segment, and a third one is
/// reserved; then it syncs.
#[test]
fn syncs_leave_a_reserved_segment() {
    let storage = MemStorage::default();
    // A second group does not fit, and leaves room for small ones.
    let wal = start_with(&storage, 64 << 10);
    for i in 0..2 {
        wal.append(&[&[i; 40_000]], 1, Written).unwrap();
        wal.prepare_missing().unwrap();
    }
    assert_eq!(wal.live_segments(), segments([1, 2]));
    wal.append(&[&[2; 10]], 1, Synced).unwrap();
    assert_eq!(wal.live_segments(), segments([1, 2]), "a sync does not wait for zeros");
    assert!(wal.requested_segment().is_some());
    wal.prepare_missing().unwrap();
    assert!(
        !storage.list_logs(LogKind::Wal).unwrap().contains(&segment(3)),
        "it was only reserved"
    );
    let lsn = wal.append(&[&[3; 10]], 1, Synced).unwrap();
    assert_eq!(wal.live_segments(), segments([1, 2, 4]));
    wal.append(&[&[4; 10]], 1, Synced).unwrap();
    assert_eq!(wal.live_segments(), segments([1, 2, 4]));
    assert_eq!(read(&storage, lsn).len(), 5);
}

/// Goal: a stale request neither prepares the segment after the requested one, whose space was not
/// checked, nor fails the appender. Method: two threads get the same request; the segment is taken
/// in between.
#[test]
fn a_stale_request_prepares_nothing() {
    let storage = MemStorage::default();
    let wal = start(&storage);
    wal.append(&[&[1; 5000]], 1, Synced).unwrap();
    let request = wal.requested_segment().unwrap();
    wal.prepare(request).unwrap();
    wal.append(&[&[2; 5000]], 1, Synced).unwrap();
    assert_eq!(wal.live_segments().len(), 2);
    wal.prepare(request).unwrap();
    let late = Error::new(ErrorKind::NoSpace, "for the segment that is live by now");
    assert!(!wal.refuse_segment(request, &late));
    assert_eq!(wal.missing_segment().unwrap().number, request.number.next());
    assert_eq!(storage.list_logs(LogKind::Wal).unwrap().len(), 2);
}
