//! The simulated scheduler: one baton, a seed, and a virtual clock.
//!
//! Actors are operating-system threads of which exactly one runs: the holder of the baton. At a
//! switch point (lock, wait, delay, device request) the seed decides whether the baton moves and to
//! which actor; the old holder wakes the new one directly. The virtual clock moves when a device
//! request costs time and, to the next timer, when no actor can run. The same seed and the same
//! code give the same schedule.
//!
//! Not here: the work of actors; simulated devices (`device::sim`).
//!
//! Invariants: (1) one actor is `Running`, all others are parked; (2) an actor is in `runnable`, or
//! in `waiting` under what it waits for and/or in `timers`, or has ended; (3) nothing observable
//! depends on addresses, thread ids or real time: addresses are compared for equality only.
//!
//! Failure: a panic in an actor (but for a planned one, which is caught), a deadlock, or a run
//! beyond its limits ends the run with a message. The other actors' threads stay parked, because
//! unwinding them would run engine code outside the rules; a failed run leaks them.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::base::prng::Prng;

/// Where the virtual clock starts: 1 s, so that code may subtract from it.
const CLOCK_START_NANOS: u64 = 1_000_000_000;

/// How a simulation runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Decides every choice of the scheduler.
    pub seed: u64,
    /// Mean number of switch points from one possible switch to the next; at least 1. A switch that
    /// moves the baton costs about 10 µs of real time, the others a few nanoseconds.
    pub switch_every: u64,
    /// One in so many reads or writes of a lock-free protocol (`switch_point`) pauses its actor for
    /// up to 32 ms of virtual time, as a busy machine does. 0: none; then an actor waits only while
    /// the seed chooses others, rarely more than a few switches, and work for which another actor
    /// needs a hundred switches is not done meanwhile.
    pub pause_one_in: u64,
    /// The same in turns instead of time, for work that costs no virtual time (memory only): one in
    /// so many switches takes the baton from its actor for up to 4,096 turns of the others, or
    /// until no other can run; one actor at a time. 0: none.
    pub hold_one_in: u64,
    /// Keeps all actors on one processor, this one of those that the process may use (modulo their
    /// number): the baton then moves without waking another processor. `None`: the operating system
    /// chooses. Changes nothing that can be observed.
    pub processor: Option<usize>,
    /// Virtual time after which the run fails: an actor waits in vain while timers keep the clock
    /// going.
    pub virtual_limit: Duration,
    /// Real time without a switch point after which the run fails: an actor waits outside `sched`,
    /// or loops forever.
    pub stuck_after: Duration,
}

impl Settings {
    /// A switch at every 16th switch point on average, one virtual day, one real minute.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            switch_every: 16,
            pause_one_in: 0,
            hold_one_in: 0,
            processor: None,
            virtual_limit: Duration::from_secs(86_400),
            stuck_after: Duration::from_secs(60),
        }
    }
}

/// A running simulation, as its actors see it.
#[derive(Clone, Debug)]
pub struct Simulation {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Simulation {
    /// Runs `body` as the first actor of a simulation with this seed.
    ///
    /// # Panics
    /// If an actor panicked, all actors wait for each other, or actors were left when `body` ended;
    /// with a message that names the actors and what they wait for.
    pub fn run<T: Send + 'static>(seed: u64, body: impl FnOnce(&Self) -> T + Send + 'static) -> T {
        Self::run_with(Settings::new(seed), body).unwrap_or_else(|why| panic!("{why}"))
    }

    /// As [`run`](Self::run), with settings and without the panic.
    ///
    /// # Errors
    /// What went wrong, as a text for people that names the seed.
    pub fn run_with<T: Send + 'static>(
        settings: Settings,
        body: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, String> {
        let seed = settings.seed;
        let shared = Arc::new(Shared::new(settings));
        let result = Arc::new(parking_lot::Mutex::new(None));
        let simulation = Self { shared: Arc::clone(&shared) };
        let slot = Arc::clone(&result);
        let start = move || *slot.lock() = Some(body(&simulation));
        start_actor(&shared, "main", start).map_err(|e| format!("no thread for actor 0: {e}"))?;
        {
            let mut state = shared.state.lock();
            let first = state.choose(&shared).ok_or("the first actor is not runnable")?;
            let parker = Arc::clone(&state.actors[first].parker);
            drop(state);
            parker.wake();
        }
        let ended = shared.wait_for_the_end();
        if let Err(why) = ended {
            return Err(format!("simulation with seed {seed}: {why}"));
        }
        let threads = std::mem::take(&mut shared.state.lock().threads);
        for thread in threads.into_iter().flatten() {
            // Its panic, if any, is in the outcome already.
            let _ = thread.join();
        }
        let value = result.lock().take();
        value.ok_or_else(|| format!("simulation with seed {seed}: actor 0 left no result"))
    }

    /// Virtual nanoseconds.
    #[must_use]
    pub fn now_nanos(&self) -> u64 {
        self.shared.clock.load(Ordering::Relaxed)
    }

    /// Starts an actor.
    ///
    /// # Errors
    /// The operating system's error if it has no thread to give.
    pub fn spawn(
        &self,
        name: &str,
        body: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<ActorHandle> {
        spawn(name, body)
    }

    /// Lets virtual time pass for the calling actor.
    #[track_caller]
    pub fn delay(&self, duration: Duration) {
        delay(duration);
    }

    /// Lets the seed choose whether another actor runs now.
    pub fn switch_point(&self) {
        switch_point();
    }

    /// Changes the mean number of switch points per switch to `switch_every` from now on.
    pub fn set_switch_every(&self, switch_every: u64) {
        let mut state = self.shared.state.lock();
        state.settings.switch_every = switch_every.max(1);
        self.shared.countdown.store(state.draw_countdown(), Ordering::Relaxed);
    }

    /// Number of decisions so far and a hash over all of them: which actor got the baton, and when.
    /// Equal for equal seeds, or something is not deterministic.
    #[must_use]
    pub fn schedule(&self) -> (u64, u64) {
        (self.shared.decisions.load(Ordering::Relaxed), self.shared.state.lock().schedule_hash)
    }
}

/// The payload of a planned panic in a simulation, which distinguishes it from a bug.
#[derive(Debug)]
pub struct PlannedPanic(String);

/// Panics on behalf of a test or a campaign. In a simulation nothing is printed, and the engine
/// treats it like any panic on a real machine.
#[expect(clippy::panic, reason = "this is what was asked for")]
pub fn panic_as_planned(what: String) -> ! {
    if is_actor() {
        std::panic::resume_unwind(Box::new(PlannedPanic(what)));
    }
    panic!("{what}")
}

/// A panic's payload, as text in place of a [`PlannedPanic`]. In a simulation every other panic
/// propagates.
pub(super) fn only_planned(payload: Box<dyn Any + Send>) -> Box<dyn Any + Send> {
    match payload.downcast::<PlannedPanic>() {
        Ok(planned) => Box::new(planned.0),
        Err(bug) if is_actor() => std::panic::resume_unwind(bug),
        Err(real) => real,
    }
}

/// An actor that was started and can be waited for. Dropping it lets the actor run on.
#[derive(Debug)]
pub struct ActorHandle {
    shared: Arc<Shared>,
    id: usize,
}

impl ActorHandle {
    /// Waits, in virtual time, until the actor has ended. Always true: a panic in an actor ends the
    /// whole run.
    #[track_caller]
    pub fn join(self) -> bool {
        let location = Location::caller();
        loop {
            let ended = {
                let mut state = self.shared.state.lock();
                let ended = matches!(state.actors[self.id].status, Status::Ended);
                ended.then(|| state.threads[self.id].take())
            };
            if let Some(thread) = ended {
                // The thread no longer uses the simulation. A panic in it would have ended the run.
                thread.map(std::thread::JoinHandle::join);
                return true;
            }
            let wait = Wait::End(self.id);
            if with_actor(|me| me.block(wait, None, location)).is_none() {
                return false;
            }
        }
    }
}

/// What an actor waits for. Addresses serve as identity only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wait {
    Mutex(usize),
    Condvar(usize),
    End(usize),
    Time,
}

#[derive(Clone, Copy)]
enum Status {
    Runnable,
    Running,
    Blocked { wait: Wait, since: u64, location: &'static Location<'static>, panicking: bool },
    Ended,
}

/// Where one actor's thread sleeps while it does not hold the baton.
struct Parker {
    go: AtomicBool,
    thread: std::sync::OnceLock<std::thread::Thread>,
}

impl Parker {
    fn wake(&self) {
        self.go.store(true, Ordering::Release);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    fn sleep(&self) {
        while !self.go.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
    }
}

struct ActorState {
    name: String,
    status: Status,
    timer: Option<(u64, u64)>,
    timed_out: bool,
    parker: Arc<Parker>,
}

struct State {
    settings: Settings,
    prng: Prng,
    actors: Vec<ActorState>,
    /// Runnable actors, in no meaningful order.
    runnable: Vec<usize>,
    /// The actor that is held, and until which decision, unless no other can run.
    held: Option<(usize, u64)>,
    waiting: BTreeMap<Wait, Vec<usize>>,
    /// (when, in which order set, actor).
    timers: BTreeSet<(u64, u64, usize)>,
    timers_set: u64,
    main_ended: bool,
    schedule_hash: u64,
    /// By actor, until they are joined: an ended thread keeps its stack until then.
    threads: Vec<Option<std::thread::JoinHandle<()>>>,
}

struct Shared {
    clock: AtomicU64,
    /// Switch points until the next possible switch.
    countdown: AtomicU64,
    /// Actors that wait for a mutex: while there are none, unlocking costs nothing.
    waiting_for_mutex: AtomicU64,
    /// In place of the operating system's, which no seed decides: apart from `State::prng`, so that
    /// drawing it changes no schedule.
    entropy: parking_lot::Mutex<Prng>,
    stuck_after: Duration,
    /// Whether actors are paused at all.
    pauses: bool,
    decisions: AtomicU64,
    /// Switch points passed, for the watchdog.
    passed: AtomicU64,
    state: parking_lot::Mutex<State>,
    outcome: parking_lot::Mutex<Option<Result<(), String>>>,
    outcome_known: parking_lot::Condvar,
}

/// The calling thread as an actor.
struct Actor {
    shared: Arc<Shared>,
    id: usize,
    parker: Arc<Parker>,
    /// Depth of [`without_switches`].
    still: Cell<usize>,
}

thread_local! {
    static CURRENT: RefCell<Option<Actor>> = const { RefCell::new(None) };
}

#[inline]
fn with_actor<R>(f: impl FnOnce(&Actor) -> R) -> Option<R> {
    // Not available while the thread's locals are destroyed: then it is no longer an actor.
    CURRENT.try_with(|current| current.try_borrow().ok()?.as_ref().map(f)).ok().flatten()
}

/// The number of the calling thread's actor, from 0 in the order of their starts; `None` on a real
/// machine.
#[inline]
pub(crate) fn actor_id() -> Option<usize> {
    with_actor(|actor| actor.id)
}

impl Shared {
    fn new(mut settings: Settings) -> Self {
        settings.switch_every = settings.switch_every.max(1);
        let (stuck_after, pauses) = (settings.stuck_after, settings.pause_one_in > 0);
        let entropy = parking_lot::Mutex::new(Prng::new(!settings.seed));
        let mut state = State {
            prng: Prng::new(settings.seed),
            settings,
            actors: Vec::new(),
            runnable: Vec::new(),
            held: None,
            waiting: BTreeMap::new(),
            timers: BTreeSet::new(),
            timers_set: 0,
            main_ended: false,
            schedule_hash: 0,
            threads: Vec::new(),
        };
        Self {
            clock: AtomicU64::new(CLOCK_START_NANOS),
            countdown: AtomicU64::new(state.draw_countdown()),
            waiting_for_mutex: AtomicU64::new(0),
            entropy,
            stuck_after,
            pauses,
            decisions: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            state: parking_lot::Mutex::new(state),
            outcome: parking_lot::Mutex::new(None),
            outcome_known: parking_lot::Condvar::new(),
        }
    }

    /// Fixes the outcome; the first one counts.
    fn end(&self, outcome: Result<(), String>) {
        self.outcome.lock().get_or_insert(outcome);
        self.outcome_known.notify_all();
    }

    fn wait_for_the_end(&self) -> Result<(), String> {
        let mut outcome = self.outcome.lock();
        let mut progress = self.progress();
        while outcome.is_none() {
            let quiet = self.outcome_known.wait_for(&mut outcome, self.stuck_after).timed_out();
            if quiet && progress == self.progress() && outcome.is_none() {
                // Actors take the outcome's lock under the state's.
                drop(outcome);
                let state = self.state.lock();
                return Err(format!(
                    "no switch point for {:?} of real time: the running actor waits outside \
                     base::sched or never ends\n{}",
                    self.stuck_after,
                    state.describe(self.clock.load(Ordering::Relaxed))
                ));
            }
            progress = self.progress();
        }
        outcome.clone().unwrap_or(Ok(()))
    }

    fn progress(&self) -> (u64, u64) {
        (self.passed.load(Ordering::Relaxed), self.decisions.load(Ordering::Relaxed))
    }
}

impl State {
    /// Switch points until the next possible switch: uniform with the wanted mean.
    fn draw_countdown(&mut self) -> u64 {
        1 + self.prng.below(2 * self.settings.switch_every - 1)
    }

    fn make_runnable(&mut self, id: usize, timed_out: bool) {
        let actor = &mut self.actors[id];
        if let Some((when, order)) = actor.timer.take() {
            self.timers.remove(&(when, order, id));
        }
        if let Status::Blocked { wait, .. } = actor.status
            && let Some(list) = self.waiting.get_mut(&wait)
        {
            list.retain(|&other| other != id);
            if list.is_empty() {
                self.waiting.remove(&wait);
            }
        }
        actor.timed_out = timed_out;
        actor.status = Status::Runnable;
        self.runnable.push(id);
    }

    /// Wakes the actors that wait for `wait`: all, or one that the seed chooses.
    fn wake(&mut self, wait: Wait, all: bool) {
        let Some(list) = self.waiting.get(&wait) else { return };
        if all {
            for id in list.clone() {
                self.make_runnable(id, false);
            }
        } else {
            let at = self.prng.below(list.len() as u64) as usize;
            self.make_runnable(list[at], false);
        }
    }

    fn fire_timers(&mut self, shared: &Shared) {
        let now = shared.clock.load(Ordering::Relaxed);
        while let Some(&(when, _, id)) = self.timers.first() {
            if when > now {
                break;
            }
            self.make_runnable(id, true);
        }
    }

    /// Chooses the actor that runs next and marks it. `None` if the run has ended; its outcome is
    /// then fixed.
    fn choose(&mut self, shared: &Shared) -> Option<usize> {
        loop {
            self.fire_timers(shared);
            let now = shared.clock.load(Ordering::Relaxed);
            let limit = self.settings.virtual_limit.as_nanos() as u64;
            if now - CLOCK_START_NANOS > limit {
                let what = format!("more than {limit} virtual ns passed\n{}", self.describe(now));
                shared.end(Err(what));
                return None;
            }
            if !self.runnable.is_empty() {
                break;
            }
            let all_ended = self.actors.iter().all(|a| matches!(a.status, Status::Ended));
            if self.main_ended {
                shared.end(if all_ended {
                    Ok(())
                } else {
                    Err(format!("actors were left when actor 0 ended\n{}", self.describe(now)))
                });
                return None;
            }
            let Some(&(when, ..)) = self.timers.first() else {
                shared.end(Err(format!("deadlock: nobody can run\n{}", self.describe(now))));
                return None;
            };
            shared.clock.store(when, Ordering::Relaxed);
        }
        let at = self.draw_runnable(shared.decisions.load(Ordering::Relaxed));
        let id = self.runnable.swap_remove(at);
        self.actors[id].status = Status::Running;
        shared.decisions.fetch_add(1, Ordering::Relaxed);
        let now = shared.clock.load(Ordering::Relaxed);
        let mixed = (self.schedule_hash ^ now).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ id as u64;
        self.schedule_hash = mixed.rotate_left(23).wrapping_mul(0xd6e8_feb8_6659_fd93);
        Some(id)
    }

    /// All actors that have not ended, and what they wait for.
    fn describe(&self, now: u64) -> String {
        let mut text = String::new();
        for (id, actor) in self.actors.iter().enumerate() {
            let name = &actor.name;
            let line = match actor.status {
                Status::Ended => continue,
                Status::Running => format!("  actor {id} \"{name}\" runs"),
                Status::Runnable => format!("  actor {id} \"{name}\" could run"),
                Status::Blocked { wait, since, location, panicking } => {
                    let what = match wait {
                        Wait::Mutex(_) => "a mutex".to_owned(),
                        Wait::Condvar(_) => "a condition variable".to_owned(),
                        Wait::End(other) => {
                            format!("the end of actor {other} \"{}\"", self.actors[other].name)
                        }
                        Wait::Time => "time to pass".to_owned(),
                    };
                    let until = actor.timer.map_or_else(String::new, |(when, _)| {
                        format!(" for at most {} ns more", when.saturating_sub(now))
                    });
                    let panicking = if panicking { ", while it panics" } else { "" };
                    let waited = now - since;
                    format!(
                        "  actor {id} \"{name}\" waits for {what} at {location} since {waited} \
                         ns{until}{panicking}"
                    )
                }
            };
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

impl Actor {
    /// Gives the baton to the actor that the seed chooses and waits to get it back. Requires: this
    /// actor is marked as runnable or blocked.
    fn switch(&self, mut state: parking_lot::MutexGuard<'_, State>) {
        let Some(next) = state.choose(&self.shared) else {
            drop(state);
            // The run has failed; this thread is leaked.
            loop {
                std::thread::park();
            }
        };
        if next == self.id {
            return;
        }
        let parker = Arc::clone(&state.actors[next].parker);
        drop(state);
        parker.wake();
        self.parker.sleep();
    }

    /// Waits for `wait`, until `deadline` at most. True if the time ran out.
    fn block(
        &self,
        wait: Wait,
        deadline: Option<u64>,
        location: &'static Location<'static>,
    ) -> bool {
        let mut state = self.shared.state.lock();
        let since = self.shared.clock.load(Ordering::Relaxed);
        let panicking = std::thread::panicking();
        state.actors[self.id].status = Status::Blocked { wait, since, location, panicking };
        if wait != Wait::Time {
            state.waiting.entry(wait).or_default().push(self.id);
        }
        let for_mutex = matches!(wait, Wait::Mutex(_));
        if for_mutex {
            self.shared.waiting_for_mutex.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(when) = deadline {
            let order = state.timers_set;
            state.timers_set += 1;
            state.timers.insert((when, order, self.id));
            state.actors[self.id].timer = Some((when, order));
        }
        self.switch(state);
        if for_mutex {
            self.shared.waiting_for_mutex.fetch_sub(1, Ordering::Relaxed);
        }
        self.shared.state.lock().actors[self.id].timed_out
    }

    /// One switch point.
    #[inline]
    fn pass(&self) {
        let shared = &*self.shared;
        shared.passed.store(shared.passed.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if self.still.get() > 0 {
            return;
        }
        let left = shared.countdown.load(Ordering::Relaxed);
        if left > 1 {
            shared.countdown.store(left - 1, Ordering::Relaxed);
            return;
        }
        self.maybe_switch();
    }

    /// A place of a lock-free protocol: pauses the actor, if the seed says so. True if it did.
    #[inline]
    fn pause(&self) -> bool {
        if !self.shared.pauses || self.still.get() > 0 {
            return false;
        }
        let pause = self.shared.state.lock().draw_pause();
        if let Some(pause) = pause {
            self.block(Wait::Time, Some(self.deadline(pause)), Location::caller());
        }
        pause.is_some()
    }

    #[cold]
    fn maybe_switch(&self) {
        let shared = &*self.shared;
        let mut state = shared.state.lock();
        shared.countdown.store(state.draw_countdown(), Ordering::Relaxed);
        state.make_runnable(self.id, false);
        state.maybe_hold(self.id, shared.decisions.load(Ordering::Relaxed));
        self.switch(state);
    }

    fn deadline(&self, duration: Duration) -> u64 {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.shared.clock.load(Ordering::Relaxed).saturating_add(nanos)
    }
}

/// Makes a thread for an actor and lists it as runnable.
fn start_actor(
    shared: &Arc<Shared>,
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> std::io::Result<usize> {
    let parker =
        Arc::new(Parker { go: AtomicBool::new(false), thread: std::sync::OnceLock::new() });
    let mut state = shared.state.lock();
    let processor = state.settings.processor;
    let id = state.actors.len();
    let (own, still) = (Arc::clone(&parker), Cell::new(0));
    let actor = Actor { shared: Arc::clone(shared), id, parker: own, still };
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        stay_on(processor);
        actor.parker.sleep();
        let shared = Arc::clone(&actor.shared);
        CURRENT.set(Some(actor));
        let ended = catch_unwind(AssertUnwindSafe(body));
        CURRENT.set(None);
        end_actor(&shared, id, ended);
    })?;
    // The thread sleeps until it gets the baton, which it cannot before it is listed.
    let _ = parker.thread.set(thread.thread().clone());
    state.threads.push(Some(thread));
    state.actors.push(ActorState {
        name: name.to_owned(),
        status: Status::Runnable,
        timer: None,
        timed_out: false,
        parker,
    });
    state.runnable.push(id);
    Ok(id)
}

/// Keeps the calling thread on one of the processors that it may use; if that fails, on any of
/// them.
fn stay_on(processor: Option<usize>) {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let Some(number) = processor else { return };
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
    let mut one = CpuSet::new();
    if let Some(&cpu) = allowed.get(number % allowed.len().max(1)) {
        one.set(cpu);
        let _ = sched_setaffinity(None, &one);
    }
}

/// Ends an actor's thread: passes the baton on, or ends the run.
fn end_actor(shared: &Arc<Shared>, id: usize, ended: Result<(), Box<dyn Any + Send>>) {
    let mut state = shared.state.lock();
    if let Err(payload) = ended {
        let text = payload
            .downcast_ref::<&str>()
            .map(|s| (*s).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .or_else(|| payload.downcast_ref::<PlannedPanic>().map(|planned| planned.0.clone()))
            .unwrap_or_else(|| "(no text)".to_owned());
        let name = &state.actors[id].name;
        shared.end(Err(format!("actor {id} \"{name}\" panicked: {text}")));
        return;
    }
    state.actors[id].status = Status::Ended;
    state.main_ended |= id == 0;
    state.wake(Wait::End(id), true);
    if let Some(next) = state.choose(shared) {
        let parker = Arc::clone(&state.actors[next].parker);
        drop(state);
        parker.wake();
    }
}

/// Virtual nanoseconds, if the calling thread is an actor.
#[inline]
pub(crate) fn now_nanos() -> Option<u64> {
    with_actor(|me| me.shared.clock.load(Ordering::Relaxed))
}

/// The next number of the caller's simulation in place of entropy.
pub(crate) fn entropy() -> Option<u64> {
    with_actor(|me| me.shared.entropy.lock().next_u64())
}

pub(crate) fn is_actor() -> bool {
    with_actor(|_| ()).is_some()
}

/// See [`Simulation::switch_point`]. Does nothing outside a simulation.
#[inline]
pub fn switch_point() {
    with_actor(|me| {
        if !me.pause() {
            me.pass();
        }
    });
}

/// Pauses the calling actor, if the simulation pauses actors and the seed says so.
#[inline]
pub(super) fn pause_point() {
    with_actor(Actor::pause);
}

/// Moves the virtual clock by the cost of an operation of the caller, without a wait: the cheap
/// form of a delay. Does nothing outside a simulation.
pub(crate) fn spend(nanos: u64) {
    with_actor(|me| {
        me.shared.clock.fetch_add(nanos, Ordering::Relaxed);
    });
}

/// Starts an actor in the caller's simulation.
pub(crate) fn spawn(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> std::io::Result<ActorHandle> {
    let Some(shared) = with_actor(|me| Arc::clone(&me.shared)) else {
        return Err(std::io::Error::other("an actor is started outside a simulation"));
    };
    let id = start_actor(&shared, name, body)?;
    switch_point();
    Ok(ActorHandle { shared, id })
}

/// Delays the calling actor; false if the caller is none.
#[track_caller]
pub(crate) fn delay(duration: Duration) -> bool {
    let location = Location::caller();
    with_actor(|me| me.block(Wait::Time, Some(me.deadline(duration)), location)).is_some()
}

mod put_off;
mod waits;

pub(super) use waits::{before_lock, before_unlock, notify, wait, without_switches};

#[cfg(test)]
mod tests;
