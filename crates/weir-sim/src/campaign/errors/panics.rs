//! Panics in place of errors: every device call panics once, on the thread that makes it.
//!
//! Such a run has others beside the action, so that threads wait: two writers, one
//! that flushes and waits for background work, and a reader. What must hold: the panic comes out of
//! a read or an opening on the user's own thread, and leaves the store as it was; any other poisons
//! the store, and errors of refused calls name the panic; all actors end; and what was
//! acknowledged is there, as after an error.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir::Db;

use super::beside::Beside;
use super::caught::Outcome;
use super::scenario::{Scenario, act};
use super::scene::Scene;
use crate::world;

/// What became of the panics of all runs.
#[derive(Clone, Debug, Default)]
pub struct Panics {
    /// That hit a user's thread.
    pub users: u64,
    /// That hit a thread of the store.
    pub background: u64,
    /// Runs in which the store was poisoned by one.
    pub poisoned: u64,
    /// That came out of a call, by the call.
    pub came_out: BTreeMap<&'static str, u64>,
}

impl Panics {
    pub(super) fn add(&mut self, threads: &[String], out: Option<&'static str>, poisoned: bool) {
        let background = threads.iter().filter(|name| name.starts_with("weir-")).count() as u64;
        self.background += background;
        self.users += threads.len() as u64 - background;
        self.poisoned += u64::from(poisoned && !threads.is_empty());
        if let Some(call) = out {
            *self.came_out.entry(call).or_default() += 1;
        }
    }
}

/// The action, with others beside it if the store is open. All of them must come to an end.
pub(super) fn act_among_others(scene: &mut Scene, scenario: Scenario) -> Outcome {
    let Some(db) = scene.db.clone() else { return act(scene, scenario) };
    let beside = Arc::new(Beside::default());
    scene.beside = Some(Arc::clone(&beside));
    type Role = fn(&Beside, &Db);
    let roles: [(&str, Role); 4] = [
        ("writer beside", |beside, db| beside.write(db, 0)),
        ("other writer beside", |beside, db| beside.write(db, 1)),
        ("waiter beside", Beside::wait),
        ("reader beside", Beside::read),
    ];
    let start = |(name, role): (&str, Role)| {
        let (beside, db) = (Arc::clone(&beside), db.clone());
        world::spawn(name, move || role(&beside, &db))
    };
    let actors: Vec<_> = roles.into_iter().map(start).collect();
    drop(db);
    let acted = act(scene, scenario);
    for actor in actors {
        actor?.join();
    }
    acted?;
    beside.complaint().map_or(Ok(()), Err)
}
