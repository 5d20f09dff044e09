//! The version set on a simulated disk: power cut at every boundary between two device operations,
//! with every policy of what survives, and again at every boundary of the recovery.

use std::sync::Arc;

use super::{HASH_SEED, LINEAGE, context, dump, random_edit};
use crate::base::error::{ErrorKind, Result};
use crate::base::prng::Prng;
use crate::device::sim::crash::CrashPolicy;
use crate::device::sim::{SimDisk, SimOptions};
use crate::storage::OpenOptions;
use crate::storage::files::Files;
use crate::version::edit::VersionEdit;
use crate::version::set::{Context, VersionSet};

const LOG_BYTES: u64 = 16 << 10;

fn on(disk: &SimDisk) -> Result<Context> {
    let files = Files::open(disk.dir(), OpenOptions { create: true, read_only: false })?;
    Ok(context(Arc::new(files), LOG_BYTES))
}

/// Opens the store on `disk`, creating it if its root was never written.
fn open(disk: &SimDisk) -> Result<VersionSet> {
    let context = on(disk)?;
    match VersionSet::recover(context.clone()) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            VersionSet::create(context, LINEAGE, HASH_SEED, &VersionEdit::default())
        }
        other => other,
    }
}

/// Runs edits on a recording disk, which marks each that was acknowledged; the roots by number of
/// acknowledged edits.
fn record(seed: u64, edits: usize) -> (SimDisk, Vec<String>) {
    let disk = SimDisk::new(SimOptions { record: true, ..SimOptions::default() });
    let set = open(&disk).unwrap();
    let mut dumps = vec![dump(&set.current())];
    let mut prng = Prng::new(seed);
    for number in 0..edits {
        set.apply(random_edit(&set, &mut prng)).unwrap();
        dumps.push(dump(&set.current()));
        disk.mark(number as u64);
    }
    (disk, dumps)
}

/// Goal: after a power cut anywhere the root is the last acknowledged one or the one in flight.
#[test]
fn power_cut_at_every_boundary() {
    for seed in 0..2 {
        let (disk, dumps) = record(seed, 12);
        let mut replayer = disk.replayer();
        for boundary in 0..=replayer.len() {
            replayer.go_to(boundary);
            let acknowledged = replayer.marks().len();
            for (i, policy) in (0u64..).zip(CrashPolicy::ALL) {
                let image = replayer.image(policy, seed ^ boundary as u64 ^ (i << 32));
                let found = open(&image).unwrap_or_else(|error| {
                    panic!("seed {seed}, {policy:?}: {error}\n{}", replayer.describe(8, 2))
                });
                let found = dump(&found.current());
                let fits = found == dumps[acknowledged]
                    || dumps.get(acknowledged + 1).is_some_and(|next| found == *next);
                assert!(
                    fits,
                    "seed {seed}, {policy:?}, {acknowledged} acknowledged, found\n{found}\n{}",
                    replayer.describe(8, 2)
                );
            }
        }
    }
}

/// Goal: a recovery that is cut off anywhere is followed by one that finds the same root (bugs
/// 33, 44). Method: at boundaries spread over a run, record the recovery and cut that at every
/// boundary too.
#[test]
fn power_cut_in_recovery() {
    let (disk, _) = record(11, 10);
    let mut replayer = disk.replayer();
    for boundary in (0..=replayer.len()).step_by(7) {
        replayer.go_to(boundary);
        let first = CrashPolicy::Random(4);
        let image = replayer.recording_image(first, boundary as u64);
        let set = open(&image).unwrap();
        let expected = dump(&set.current());
        let mut again = image.replayer();
        for cut in 0..=again.len() {
            again.go_to(cut);
            for policy in [
                CrashPolicy::Nothing,
                CrashPolicy::All,
                CrashPolicy::Random(4),
                CrashPolicy::NamesWithoutData,
                CrashPolicy::DropEntries,
            ] {
                let disk = again.image(policy, cut as u64);
                let set = open(&disk).unwrap_or_else(|error| {
                    panic!("{boundary}, {policy:?}: {error}\n{}", again.describe(8, 2))
                });
                assert_eq!(dump(&set.current()), expected, "{boundary} {cut} {policy:?}");
                let mut prng = Prng::new(cut as u64);
                set.apply(random_edit(&set, &mut prng)).unwrap();
            }
        }
    }
}

/// Goal: a full disk damages nothing, and edits go on when there is room again (P9, bug 31).
/// Method: disks of every size around the need of a run of edits.
#[test]
fn a_full_disk_damages_nothing() {
    for capacity in (2_000..60_000).step_by(1_500) {
        let options = SimOptions { capacity_bytes: Some(capacity), ..SimOptions::default() };
        let disk = SimDisk::new(options);
        let Ok(set) = open(&disk) else { continue };
        let mut prng = Prng::new(capacity);
        for _ in 0..30 {
            let edit = random_edit(&set, &mut prng);
            if let Err(failed) = set.apply(edit) {
                assert_eq!(failed.error.kind(), ErrorKind::NoSpace, "{}", failed.error);
                assert!(!failed.maybe_persisted);
                break;
            }
        }
        let expected = dump(&set.current());
        drop(set);
        let read_only = VersionSet::open_read_only(on(&disk).unwrap()).unwrap();
        assert_eq!(dump(&read_only.current()), expected, "capacity {capacity}");
    }
}
