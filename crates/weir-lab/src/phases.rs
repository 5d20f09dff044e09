//! The phases of a run: who is at work when, what compaction does meanwhile, and what is measured.
//!
//! Phases follow one another without a pause. Unmeasured ones come first: a warm-up. A group that
//! is at work in two phases in a row goes on from the one to the other as if they were one.

use serde::Deserialize;

/// One phase.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// Its name, for numbers.
    pub name: String,
    /// Virtual seconds. Scaled.
    pub seconds: f64,
    /// The groups of readers that are at work.
    pub readers: Vec<String>,
    /// The groups of writers that are.
    pub writers: Vec<String>,
    /// What compaction does.
    pub compaction: Pace,
    /// Whether it is measured.
    pub measured: bool,
}

/// What compaction does in a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// What the policy says.
    Normal,
    /// Every level but the last is emptied, as fast as it goes (dLSM section VII-B.3). For policies
    /// whose levels are one run, or two parts of one.
    Aggressive,
    /// Nothing is flushed and nothing merged, what had begun included. Writers stop once all
    /// memtables are full.
    Paused,
}

/// A stretch of virtual time in which a group is at work, in nanoseconds since the run began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its beginning.
    pub from: u64,
    /// Its end.
    pub to: u64,
}

/// Virtual nanoseconds.
#[must_use]
pub fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// The spans of the phases in which `at_work` holds; those that touch are one.
#[must_use]
pub fn spans(phases: &[Phase], at_work: impl Fn(&Phase) -> bool) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut from = 0;
    for phase in phases {
        let to = from + nanos(phase.seconds);
        if at_work(phase) {
            match spans.last_mut() {
                Some(last) if last.to == from => last.to = to,
                _ => spans.push(Span { from, to }),
            }
        }
        from = to;
    }
    spans
}

/// Phases before the first one that is measured.
#[must_use]
pub fn unmeasured(phases: &[Phase]) -> &[Phase] {
    let first = phases.iter().position(|phase| phase.measured).unwrap_or(phases.len());
    phases.get(..first).unwrap_or_default()
}

/// That names are unique, and that unmeasured phases come first.
///
/// # Errors
/// What does not fit together, as a sentence.
pub fn check(phases: &[Phase]) -> Result<(), String> {
    for (place, phase) in phases.iter().enumerate() {
        let name = &phase.name;
        if phases.iter().take(place).any(|earlier| earlier.name == *name) {
            return Err(format!("two phases are called {name:?}"));
        }
        if !phase.seconds.is_finite() || phase.seconds < 0.0 {
            return Err(format!("the phase {name:?} has {} seconds", phase.seconds));
        }
        if !phase.measured && phases.iter().take(place).any(|earlier| earlier.measured) {
            return Err(format!("the phase {name:?} is not measured and follows one that is"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(name: &str, readers: &[&str], measured: bool) -> Phase {
        Phase {
            name: name.into(),
            seconds: 1.0,
            readers: readers.iter().map(|&name| name.into()).collect(),
            writers: Vec::new(),
            compaction: Pace::Normal,
            measured,
        }
    }

    /// Goal: a group goes on from phase to phase, and rests between two spans.
    #[test]
    fn spans_that_touch_are_one() {
        let phases = [
            phase("warm-up", &["main"], false),
            phase("a", &["main", "scans"], true),
            phase("b", &["scans"], true),
            phase("c", &["main"], true),
        ];
        check(&phases).expect("sound");
        let of = |name: &str| spans(&phases, |p| p.readers.iter().any(|r| r == name));
        let second = 1_000_000_000;
        assert_eq!(
            of("main"),
            [Span { from: 0, to: 2 * second }, Span { from: 3 * second, to: 4 * second }]
        );
        assert_eq!(of("scans"), [Span { from: second, to: 3 * second }]);
        assert_eq!(of("nobody"), []);
        assert_eq!(unmeasured(&phases).len(), 1);
    }

    /// Goal: phases that cannot be told apart or measured are refused.
    #[test]
    fn what_is_wrong_is_named() {
        for (phases, named) in [
            ([phase("a", &[], true), phase("a", &[], true)], "called \"a\""),
            ([phase("a", &[], true), phase("b", &[], false)], "\"b\" is not measured"),
            ([phase("a", &[], true), Phase { seconds: -1.0, ..phase("b", &[], true) }], "-1"),
            ([phase("a", &[], true), Phase { seconds: 1.0 / 0.0, ..phase("b", &[], true) }], "inf"),
        ] {
            let error = check(&phases).expect_err(named);
            assert!(error.contains(named), "{error}");
        }
    }
}
