//! Results of one experiment at one scale from several seeds, beside one another.
//!
//! A number near a bound says little from one seed. The verdict over several seeds is the worst of
//! them, and how far apart they are stands beside it. Pure: results in, what is shown out.

use std::fmt;

use crate::result::{Number, Result as Outcome, Verdict};
use crate::show::{self, number};

/// The results of one experiment at one scale, one for each seed, by seed; at least one.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    results: Vec<&'a Outcome>,
}

/// One number from every seed of a group.
#[derive(Clone, Debug)]
pub struct OverSeeds<'a> {
    /// As the first seed has it, bounds and note included.
    pub number: &'a Number,
    /// The seeds, and what was measured.
    pub values: Vec<(u64, f64)>,
    /// The worst of all seeds.
    pub verdict: Verdict,
}

/// The groups of `results`, in the order of the first of each.
#[must_use]
pub fn groups<'a>(results: impl IntoIterator<Item = &'a Outcome>) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for result in results {
        let same = |group: &&mut Group<'a>| {
            let first = group.first();
            (&first.experiment, first.shown_scale(), &first.set)
                == (&result.experiment, result.shown_scale(), &result.set)
                && group.results.iter().all(|other| other.seed != result.seed)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.results.push(result),
            None => groups.push(Group { results: vec![result] }),
        }
    }
    for group in &mut groups {
        group.results.sort_by_key(|result| result.seed);
    }
    groups
}

impl<'a> Group<'a> {
    /// The result of the first seed.
    #[must_use]
    pub fn first(&self) -> &'a Outcome {
        self.results[0]
    }

    /// All results.
    #[must_use]
    pub fn results(&self) -> &[&'a Outcome] {
        &self.results
    }

    /// `seed 1`, or `seeds 1, 2, 3`.
    #[must_use]
    pub fn seeds(&self) -> String {
        let seeds: Vec<String> = self.results.iter().map(|r| r.seed.to_string()).collect();
        let word = if seeds.len() == 1 { "seed" } else { "seeds" };
        format!("{word} {}", seeds.join(", "))
    }

    /// The numbers of the first seed with what the others have for them.
    #[must_use]
    pub fn numbers(&self) -> Vec<OverSeeds<'a>> {
        let of = |(place, wanted): (usize, &'a Number)| {
            // A result of another program may have them elsewhere.
            let here = |result: &'a Outcome| {
                let same = result.numbers.get(place).filter(|number| number.name == wanted.name);
                same.or_else(|| result.number(&wanted.name))
            };
            let found = self
                .results
                .iter()
                .filter_map(|result| here(result).map(|number| (result.seed, number)));
            let found: Vec<(u64, &Number)> = found.collect();
            let verdicts = found.iter().map(|(_, number)| number.verdict());
            OverSeeds {
                number: wanted,
                verdict: verdicts.max_by_key(|v| badness(*v)).unwrap_or(Verdict::Open),
                values: found.into_iter().map(|(seed, number)| (seed, number.ours)).collect(),
            }
        };
        self.first().numbers.iter().enumerate().map(of).collect()
    }
}

/// The worst verdict has the greatest.
fn badness(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Holds => 0,
        Verdict::Open => 1,
        Verdict::Differs => 2,
        Verdict::Fails => 3,
    }
}

impl OverSeeds<'_> {
    /// The least and the greatest value.
    #[must_use]
    pub fn range(&self) -> (f64, f64) {
        let values = self.values.iter().map(|(_, value)| *value);
        (values.clone().fold(f64::INFINITY, f64::min), values.fold(f64::NEG_INFINITY, f64::max))
    }

    /// `0.76 to 0.767`; empty if there is one seed.
    #[must_use]
    pub fn spread(&self) -> String {
        let (low, high) = self.range();
        match self.values.len() {
            0 | 1 => String::new(),
            _ => format!("{} to {}", number(low), number(high)),
        }
    }

    /// Its name and unit.
    #[must_use]
    pub fn name(&self) -> String {
        show::with_unit(&self.number.name, &self.number.unit)
    }
}

/// How many numbers are inside their bounds, outside as expected, outside, and without bounds.
/// Guards, which reproduce nothing, are counted apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Inside, from every seed.
    pub holds: usize,
    /// Outside, where it is known why.
    pub differs: usize,
    /// Outside.
    pub fails: usize,
    /// Without bounds.
    pub open: usize,
    /// Guards.
    pub guards: usize,
    /// Guards that are outside their bounds.
    pub guards_failed: usize,
}

impl Counts {
    /// The counts of all numbers of `groups`.
    #[must_use]
    pub fn of<'a>(groups: impl IntoIterator<Item = &'a Group<'a>>) -> Self {
        let mut counts = Self::default();
        for over in groups.into_iter().flat_map(Group::numbers) {
            match over.verdict {
                verdict if over.number.guard => {
                    counts.guards += 1;
                    counts.guards_failed += usize::from(verdict == Verdict::Fails);
                }
                Verdict::Holds => counts.holds += 1,
                Verdict::Differs => counts.differs += 1,
                Verdict::Fails => counts.fails += 1,
                Verdict::Open => counts.open += 1,
            }
        }
        counts
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { holds, differs, fails, open, guards, guards_failed } = self;
        let all = holds + differs + fails + open;
        let many = |count: usize, what: &str| {
            if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
        };
        write!(
            f,
            "{}: {holds} {} in all seeds, {fails} outside, {differs} {}, {open} open; {}, \
             {guards_failed} of them outside",
            many(all, "reproduction"),
            if *holds == 1 { "holds" } else { "hold" },
            if *differs == 1 { "differs" } else { "differ" },
            many(*guards, "guard"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::tests::samples;

    /// Results of three seeds, whose number is `ours` there; 75 to 100 is accepted.
    fn of_seeds(ours: [f64; 3]) -> Vec<Outcome> {
        let sample = samples().swap_remove(0);
        let of = |(i, ours): (usize, f64)| {
            let mut result = sample.clone();
            result.seed = 3 - i as u64;
            result.numbers[0].ours = ours;
            result
        };
        ours.into_iter().enumerate().map(of).collect()
    }

    /// Goal: seeds of one experiment and scale stand beside one another, by seed, with their range
    /// and the worst verdict; another scale does not.
    #[test]
    fn seeds_stand_together() {
        let mut results = of_seeds([80.0, 70.0, 90.0]);
        let mut other = results[0].clone();
        other.scale = 8;
        results.push(other);
        let groups = groups(&results);
        assert_eq!(groups.len(), 2);
        assert_eq!(
            (groups[0].seeds(), groups[1].seeds()),
            ("seeds 1, 2, 3".into(), "seed 3".into())
        );
        let numbers = groups[0].numbers();
        assert_eq!(numbers[0].values, [(1, 90.0), (2, 70.0), (3, 80.0)]);
        assert_eq!((numbers[0].spread(), numbers[0].verdict), ("70 to 90".into(), Verdict::Fails));
        let alone = groups[1].numbers();
        assert_eq!((alone[0].spread(), alone[0].verdict), (String::new(), Verdict::Holds));
        let counts = Counts::of(&groups);
        assert_eq!((counts.holds, counts.fails), (1, 1));
        let text = "2 reproductions: 1 holds in all seeds, 1 outside, 0 differ, 0 open; 0 guards, \
                    0 of them outside";
        assert_eq!(counts.to_string(), text);
    }

    /// Goal: one seed that fails makes a number fail, and one that differs makes it differ.
    #[test]
    fn the_worst_seed_counts() {
        for (ours, verdict) in [
            ([80.0, 80.0, 80.0], Verdict::Holds),
            ([80.0, 50.0, 80.0], Verdict::Differs),
            ([50.0, 20.0, 80.0], Verdict::Fails),
        ] {
            let mut results = of_seeds(ours);
            let because = "a reason".to_owned();
            let differs = crate::result::Differs { low: 40.0, high: 60.0, because };
            results.iter_mut().for_each(|r| r.numbers[0].differs = Some(differs.clone()));
            assert_eq!(groups(&results)[0].numbers()[0].verdict, verdict, "{ours:?}");
        }
    }
}
