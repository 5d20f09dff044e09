//! What a failed request must do to a store: heal, or poison it.
//!
//! | request | file | error | verdict |
//! |---|---|---|---|
//! | read, open, length, list, lock, create, unlink | any | any | heals |
//! | write, write-back | table | any | heals |
//! | allocate | any | any | heals: the file is removed, nothing names it yet |
//! | any | any | a stall, no space or quota | heals, but for syncs |
//! | write | write-ahead log, with deferred groups | no space or quota | either: they may be lost |
//! | sync | any | `EIO` | poisons |
//! | sync of the directory | | `EIO` | poisons |
//! | write | version log, root | `EIO` | poisons |
//! | write | version log, on slots | any | either: the head of a half heals |
//! | rename | root | `EIO` | poisons |
//! | sync | any | no space or quota | either: what syncs it knows whether anything relies on it |
//! | write, length set | write-ahead log | `EIO` | either: a failed write seals its segment |
//! | the rest | | | either |
//!
//! "Poisons" is asked only of stores that are open and stay open while the fault is there: an
//! opening or a closing that fails gives its error and leaves no store to be poisoned.

use weir::sim::{Effect, ErrorCode, Fault, FileClass, OpKind, Site};

use super::caught::Outcome;
use super::scenario::{Scenario, opens_under_faults};
use super::scene::Scene;

/// What must become of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It takes writes once the device is healed.
    Heals,
    /// It refuses writes until it is reopened.
    Poisons,
    /// Both are right.
    Either,
}

/// Compares what became of a store with what had to.
pub(super) fn judge(scenario: Scenario, fault: Fault, scene: &Scene) -> Outcome {
    let (Some(op), Some(class)) = (fault.op, fault.class) else { return Ok(()) };
    let closes = matches!(scenario, Scenario::Close | Scenario::Callbacks(_));
    let stays_open = !opens_under_faults(scenario) && !closes;
    let verdict = match fault.effect {
        Effect::Panic => panic_verdict(scene),
        // What is held by then has been acknowledged.
        Effect::Fail(_) | Effect::FailButDone(_) | Effect::ShortWrite(..)
            if scenario == Scenario::WriteDeferred
                && (op, class) == (OpKind::Write, FileClass::Wal) =>
        {
            Verdict::Either
        }
        effect => verdict(Site { op, class }, effect),
    };
    match verdict {
        Verdict::Heals if scene.poisoned => {
            Err("the store is poisoned although nothing is unknown".into())
        }
        Verdict::Poisons if !scene.poisoned && stays_open => {
            Err("the store takes writes although it is unknown what is on the device".into())
        }
        _ => Ok(()),
    }
}

/// Calls that change nothing: a panic that comes out of one poisons nothing.
const READS: [&str; 5] = ["open", "reading", "get", "verify", "reading beside"];

/// What must become of a store in which a panic was injected.
fn panic_verdict(scene: &Scene) -> Verdict {
    match scene.came_out_of() {
        Some(call) if READS.contains(&call) => Verdict::Heals,
        _ => Verdict::Poisons,
    }
}

/// The verdict on a fault at a site.
fn verdict(site: Site, effect: Effect) -> Verdict {
    use FileClass::{Root, Table, Versions};
    use OpKind::{
        Allocate, Create, Len, List, Lock, Open, Read, Rename, Sync, SyncDir, Unlink, Write,
        WriteBack,
    };
    let code = match effect {
        Effect::Stall(_) => return Verdict::Heals,
        Effect::Fail(code) | Effect::FailButDone(code) | Effect::ShortWrite(code, _) => code,
        Effect::LoseDirty(_) => ErrorCode::Eio,
        Effect::FlipBit(_) | Effect::PretendDone => return Verdict::Either,
        // What counts is where it comes out: see `panics`.
        Effect::Panic => return Verdict::Either,
    };
    let no_space = matches!(code, ErrorCode::Enospc | ErrorCode::Edquot);
    match (site.op, site.class) {
        (Read | Open | Len | List | Lock | Create | Unlink | Allocate, _) => Verdict::Heals,
        (Write | WriteBack, Table) => Verdict::Heals,
        // Areas of a device are not short of space, a log there cannot be cut, and a sync is of
        // all.
        (Write, Root) | (Sync, _) if no_space && crate::world::uses_slots() => Verdict::Either,
        // The head of a half is written before anything is said to be there, and no site tells it
        // from an edit.
        (Write, Versions) if crate::world::uses_slots() => Verdict::Either,
        (Sync | SyncDir, _) if !no_space => Verdict::Poisons,
        (Write, Versions | Root) | (Rename, Root) if !no_space => Verdict::Poisons,
        // Areas of a device are not short of space, and a log there cannot be cut.
        (Write, _) if no_space => Verdict::Heals,
        _ => Verdict::Either,
    }
}
