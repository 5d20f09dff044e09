//! Who is refused on a full device: nobody whom waiting would have helped.
#![cfg(feature = "sim")]

use std::sync::Arc;
use std::time::Duration;

use weir::sim::{SimDisk, SimOptions, Simulation};
use weir::{CompactionPolicy, Db, ErrorKind, LeveledOptions, Options, RunsOptions};

/// Refusals that two seconds later were none, and all of them.
fn refusals(sim: &Simulation, seed: u64, policy: CompactionPolicy) -> (usize, usize) {
    let sizes = LeveledOptions::default().base_level_bytes(64 << 10).level_ratio(4);
    let runs = CompactionPolicy::Tiered(RunsOptions::default().runs_per_level(3));
    let options = Options::default()
        .compaction(policy.with_options_of(sizes.l0_trigger(2).into()).with_options_of(runs))
        .write_buffer_bytes(16 << 10)
        .block_bytes(1 << 10)
        .table_bytes(16 << 10);
    let disk = SimDisk::new(SimOptions::default());
    let builder = Db::builder("sim").default_options(options).memory_budget(1 << 20);
    let builder = builder.log_segment_bytes(32 << 10).log_area_bytes(256 << 10);
    let db = builder.seed(seed).device(Arc::new(disk.clone())).open().unwrap();
    let mut random = seed;
    let mut put = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        db.put(((random >> 33) as u32 % 2000).to_be_bytes(), random.to_be_bytes().repeat(60))
    };
    (0..400).for_each(|_| put().unwrap());
    disk.set_capacity(Some(disk.used_bytes() + (600 << 10)));
    let (mut lifted, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let Err(error) = put() else { continue };
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        refused += 1;
        sim.delay(Duration::from_secs(2));
        if put().is_err() {
            break;
        }
        lifted += 1;
    }
    db.close().unwrap();
    (lifted, refused)
}

/// Goal: a writer waits for a flush or a merge that is to come and may make room; it is refused
/// when there is none. Method: random overwrites on a small disk; what was refused is tried again
/// when everything that was due has run. Nobody waits for work that has found no space and is tried
/// again later, so that a few may be refused too early.
#[test]
fn who_is_refused_would_wait_in_vain() {
    let (mut lifted, mut refused) = (0, 0);
    for policy in CompactionPolicy::ALL {
        for seed in 0..6 {
            let (some, all) = Simulation::run(seed, move |sim| refusals(sim, seed, policy));
            println!("{policy}, seed {seed}: {some} of {all} refusals lifted");
            (lifted, refused) = (lifted + some, refused + all);
        }
    }
    assert!(refused > 40 && lifted <= refused / 10, "{lifted} of {refused} refusals lifted");
}
