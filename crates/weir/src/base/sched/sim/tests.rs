//! Goal: the scheduler is deterministic, exclusive and honest about failures. Method: small
//! programs with an observable interleaving.

use std::sync::atomic::AtomicUsize;

use super::*;
use crate::base::sched::{self, Condvar, Mutex};

/// Several actors append to one list under a mutex held across switch points; returns the list and
/// the schedule.
fn interleaving(seed: u64, switch_every: u64) -> (Vec<u32>, (u64, u64)) {
    let settings = Settings { switch_every, ..Settings::new(seed) };
    Simulation::run_with(settings, |sim| {
        let list = Arc::new(Mutex::new(Vec::new()));
        let actors: Vec<_> = (0..4u32)
            .map(|n| {
                let list = Arc::clone(&list);
                sched::spawn("writer", move || {
                    for i in 0..20 {
                        let mut held = list.lock();
                        sched::switch_point();
                        held.push(n * 100 + i);
                        sched::switch_point();
                        drop(held);
                        sched::delay(Duration::from_nanos(u64::from(n)));
                    }
                })
                .expect("started")
            })
            .collect();
        for actor in actors {
            assert!(actor.join());
        }
        let list = std::mem::take(&mut *list.lock());
        (list, sim.schedule())
    })
    .expect("it ends")
}

/// Goal: the same seed gives the same schedule, other seeds give others, at any density of
/// switches.
#[test]
fn same_seed_same_schedule() {
    let mut seen = BTreeSet::new();
    for seed in 0..20 {
        for switch_every in [1, 7] {
            let first = interleaving(seed, switch_every);
            assert_eq!(first, interleaving(seed, switch_every), "seed {seed}");
            assert_eq!(first.0.len(), 80);
            for n in 0..4 {
                let own: Vec<u32> = first.0.iter().copied().filter(|x| x / 100 == n).collect();
                assert!(own.is_sorted(), "an actor's own order is kept");
            }
            seen.insert(first.0);
        }
    }
    assert!(seen.len() > 30, "only {} schedules out of 40", seen.len());
}

/// Goal: keeping all actors on one processor changes nothing observable.
#[test]
fn one_processor_same_schedule() {
    let run = |processor| {
        let settings = Settings { processor, switch_every: 3, ..Settings::new(9) };
        let body = |sim: &Simulation| {
            let actors: Vec<_> = (0..4)
                .map(|n| {
                    let body = move || (0..50).for_each(|i| spend_or_wait(n * 50 + i));
                    sim.spawn("actor", body).expect("started")
                })
                .collect();
            assert!(actors.into_iter().all(ActorHandle::join));
            (sim.schedule(), sim.now_nanos())
        };
        Simulation::run_with(settings, body).expect("it ends")
    };
    assert_eq!(run(None), run(Some(0)));
    assert_eq!(run(None), run(Some(usize::MAX)));
}

fn spend_or_wait(i: u64) {
    sched::switch_point();
    if i.is_multiple_of(3) {
        sched::delay(Duration::from_nanos(i));
    } else {
        spend(i);
    }
}

/// Goal: virtual time costs no real time, and timeouts fire in its order. Method: an hour of
/// delays; two waits, one notified, one not.
#[test]
fn time_is_virtual() {
    let order = Simulation::run(1, |sim| {
        let start = sim.now_nanos();
        let pair = Arc::new((Mutex::new(0), Condvar::new()));
        let waiter = Arc::clone(&pair);
        let actor = sched::spawn("waiter", move || {
            let mut value = waiter.0.lock();
            while *value == 0 {
                assert!(!waiter.1.wait_for(&mut value, Duration::from_secs(4000)));
            }
            assert!(waiter.1.wait_for(&mut value, Duration::from_secs(5)), "nobody notifies");
        })
        .expect("started");
        sched::delay(Duration::from_secs(3600));
        *pair.0.lock() = 1;
        pair.1.notify_all();
        assert!(actor.join());
        sim.now_nanos() - start
    });
    assert_eq!(order, 3_605_000_000_000);
}

/// Goal: a notification is never lost between release and wait. Method: a bounded queue of one
/// slot, two producers, two consumers, many seeds.
#[test]
fn condition_variables_lose_nothing() {
    for seed in 0..50 {
        let settings = Settings { switch_every: 2, ..Settings::new(seed) };
        let sum = Simulation::run_with(settings, |_| {
            let slot = Arc::new((Mutex::new(None::<usize>), Condvar::new()));
            let sum = Arc::new(AtomicUsize::new(0));
            let mut actors = Vec::new();
            for n in 0..2 {
                let producer = Arc::clone(&slot);
                let produce = move || {
                    for i in 0..10 {
                        let mut held = producer.0.lock();
                        while held.is_some() {
                            producer.1.wait(&mut held);
                        }
                        *held = Some(n * 10 + i);
                        producer.1.notify_all();
                    }
                };
                let (consumer, sum) = (Arc::clone(&slot), Arc::clone(&sum));
                let consume = move || {
                    for _ in 0..10 {
                        let mut held = consumer.0.lock();
                        while held.is_none() {
                            consumer.1.wait(&mut held);
                        }
                        sum.fetch_add(held.take().expect("full"), Ordering::Relaxed);
                        consumer.1.notify_all();
                    }
                };
                actors.push(sched::spawn("produce", produce).expect("started"));
                actors.push(sched::spawn("consume", consume).expect("started"));
            }
            for actor in actors {
                actor.join();
            }
            sum.load(Ordering::Relaxed)
        });
        assert_eq!(sum.expect("it ends"), (0..20).sum());
    }
}

/// Goal: a deadlock is reported with each actor that waits, and where. Method: two locks in
/// opposite order.
#[test]
fn deadlock_is_named() {
    let deadlocks = (0..50).filter(|&seed| {
        let settings = Settings { switch_every: 1, ..Settings::new(seed) };
        let result = Simulation::run_with(settings, |_| {
            let locks = Arc::new((Mutex::new(()), Mutex::new(())));
            let other = Arc::clone(&locks);
            let actor = sched::spawn("other", move || {
                let _second = other.1.lock();
                let _first = other.0.lock();
            })
            .expect("started");
            {
                let _first = locks.0.lock();
                let _second = locks.1.lock();
            }
            actor.join();
        });
        let Err(why) = result else { return false };
        assert!(why.contains("deadlock") && why.contains("seed"), "{why}");
        assert!(why.contains("\"other\" waits for a mutex at"), "{why}");
        assert!(why.contains("tests.rs"), "{why}");
        true
    });
    let deadlocks = deadlocks.count();
    assert!((1..50).contains(&deadlocks), "{deadlocks} of 50 seeds found it");
}

/// Goal: a panic in any actor, an actor left over, and endless waiting fail the run with a reason.
#[test]
fn failures_are_reported() {
    let why = Simulation::run_with(Settings::new(1), |_| {
        sched::spawn("bad", || panic!("as planned")).expect("started").join();
    })
    .expect_err("it panics");
    assert!(why.contains("\"bad\" panicked: as planned"), "{why}");

    let why = Simulation::run_with(Settings::new(1), |_| {
        sched::spawn("sleeper", || sched::delay(Duration::from_secs(1))).expect("started");
    })
    .expect_err("it is left");
    assert!(why.contains("left") && why.contains("\"sleeper\" waits for time"), "{why}");

    let settings = Settings { virtual_limit: Duration::from_secs(10), ..Settings::new(1) };
    let why = Simulation::run_with(settings, |_| {
        loop {
            sched::delay(Duration::from_secs(1));
        }
    });
    let why: Result<(), String> = why;
    assert!(why.expect_err("it never ends").contains("virtual ns"));

    let settings = Settings { stuck_after: Duration::from_millis(50), ..Settings::new(1) };
    let why = Simulation::run_with(settings, |_| {
        loop {
            std::thread::park();
        }
    });
    let why: Result<(), String> = why;
    assert!(why.expect_err("it waits outside").contains("\"main\" runs"));
}

/// Goal: outside a simulation nothing is simulated, also in a build with the feature.
#[test]
fn real_threads_stay_real() {
    assert_eq!(sched::virtual_nanos(), None);
    let flag = Arc::new((Mutex::new(false), Condvar::new()));
    let other = Arc::clone(&flag);
    let thread = sched::spawn("real", move || {
        *other.0.lock() = true;
        other.1.notify_all();
    })
    .expect("started");
    let mut held = flag.0.lock();
    while !*held {
        flag.1.wait(&mut held);
    }
    drop(held);
    assert!(thread.join());
}

/// Goal: what stands in for entropy is decided by the seed, never twice the same, and drawing it
/// changes no schedule.
#[test]
fn entropy_is_the_seeds() {
    let drawn = |seed| {
        Simulation::run(seed, |sim| {
            let numbers = [(); 3].map(|()| crate::base::prng::Prng::entropy());
            (numbers, sim.schedule())
        })
    };
    let (numbers, schedule) = drawn(1);
    assert_eq!((numbers, schedule), drawn(1));
    assert_ne!(numbers, drawn(2).0);
    assert!(numbers[0] != numbers[1] && numbers[1] != numbers[2] && numbers[0] != numbers[2]);
    assert_eq!(schedule, Simulation::run(1, Simulation::schedule));
}
