//! Goal: what the papers lead one to expect is what results say. Method: the JSON files of a whole
//! run, or of a short one (`run --all --short`), named by the environment variable
//! `WEIR_LAB_RESULTS`, against the experiments of this program and against the lists of `required`,
//! which no experiment can change. Without the variable nothing is checked, and the test says so:
//! `.ci/run lab` sets it. A relative path is seen from the root of the repository.

use std::collections::BTreeMap;
use std::path::Path;

use weir_lab::catalog;
use weir_lab::required::{self, REQUIRED};
use weir_lab::result::{Result as Outcome, Verdict};

/// The results in `folder`, by name, scale, seed and whether they are short.
fn read(folder: &Path) -> BTreeMap<(String, u32, u64, bool), Outcome> {
    let mut results = BTreeMap::new();
    let dir = weir::sim::RealDir::open(folder, false).expect("the folder of WEIR_LAB_RESULTS");
    for file in dir.list().expect("its files").iter().filter(|name| name.ends_with(".json")) {
        let text = std::fs::read_to_string(folder.join(file)).expect("a file");
        let result = Outcome::from_json(&text).unwrap_or_else(|e| panic!("{file}: {e}"));
        // With options of `--set` it is another experiment, and with `--first` a part of one.
        if result.is_whole() {
            let Outcome { scale, seed, short, .. } = result;
            results.insert((result.experiment.clone(), scale, seed, short), result);
        }
    }
    results
}

#[test]
fn results_are_as_expected() {
    let Some(folder) = std::env::var_os("WEIR_LAB_RESULTS") else {
        println!("skipped: WEIR_LAB_RESULTS names no folder of results; `.ci/run lab` makes one");
        return;
    };
    // Tests run in the crate's directory, and people and scripts in the root of the repository.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = root.join(folder);
    let results = read(&folder);
    let mut wholes: Vec<(u32, u64)> =
        results.keys().map(|(_, scale, seed, _)| (*scale, *seed)).collect();
    wholes.sort_unstable();
    wholes.dedup();
    assert!(!wholes.is_empty(), "{} has no results", folder.display());
    let mut complaints = Vec::new();
    for (scale, seed) in wholes {
        // Whole results where there are any, or else what a short run has of them.
        let short =
            results.keys().any(|(_, s, of, short)| (*s, *of, *short) == (scale, seed, true));
        let with = |name: &str, short| results.get(&(name.to_owned(), scale, seed, short));
        let of = |name: &str| with(name, false).or_else(|| with(name, true));
        for experiment in catalog::all().expect("sound files") {
            let name = experiment.name.clone();
            let short_form = experiment.clone().shortened();
            let (experiment, result) = match (of(&name), short_form) {
                (None, None) if short => continue,
                (Some(result), Some(short_form)) if result.short => (short_form, result),
                (Some(result), _) => (experiment, result),
                (None, _) => {
                    complaints.push(format!("{name} at scale {scale}, seed {seed} is missing"));
                    continue;
                }
            };
            // A result from before an experiment changed proves nothing about it.
            let found = result.numbers.iter().map(|n| (&n.name, n.low, n.high, &n.differs));
            let stated = experiment.numbers.iter().map(|n| (&n.name, n.low, n.high, &n.differs));
            if !found.eq(stated) {
                complaints.push(format!("{name}: the result has other bounds; run it again"));
            }
            // What is outside is known of one scale and seed.
            let usual = (scale, seed) == (64, 1);
            let known = result.numbers.iter().filter(|n| usual || n.verdict() == Verdict::Fails);
            complaints.extend(known.filter_map(|number| required::unexpected(&name, number)));
        }
        for required in REQUIRED {
            let numbers = of(required.experiment).map_or(&[][..], |result| &result.numbers);
            complaints.extend(required.complaint(numbers));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
