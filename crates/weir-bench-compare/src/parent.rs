//! The parent process: runs the plan, one child per step, and collects their answers.

use crate::args::Args;
use crate::engines;
use crate::machine::{self, Group};
use crate::plan::{self, Step};
use crate::plot;
use crate::report;
use crate::summary::Sample;
use crate::task::{Answer, Row, Task};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use weir_bench::{EngineKind, Workload};

type Result<T> = std::result::Result<T, String>;

/// Measures everything that `args` ask for, prints the tables and writes the JSON file.
///
/// # Errors
/// What stopped the run. A child that fails is shown and counted as a failed sample instead.
pub fn run(args: &Args) -> Result<()> {
    std::fs::create_dir_all(&args.dir)
        .map_err(|error| format!("cannot make {}: {error}", args.dir.display()))?;
    let kinds: Vec<Box<dyn EngineKind>> =
        args.engines.iter().filter_map(|name| engines::named(name)).collect();
    let mut run = Run { args, kinds, loaded: BTreeSet::new(), samples: Vec::new() };
    let steps = plan::steps(&args.rows, args.rounds, &args.workloads, run.kinds.len());
    for (i, step) in steps.iter().enumerate() {
        eprint!("[{}/{}] ", i + 1, steps.len());
        run.step(step)?;
        report::write_json(args, &run.samples)?;
    }
    for &row in &args.rows {
        run.remove_stores(row);
    }
    print!("{}", report::tables(args, &run.samples));
    if let Some(path) = &args.plot {
        plot::write(path, args, &run.samples)?;
    }
    let failed = run.samples.iter().filter(|sample| sample.answer.is_none()).count();
    if failed > 0 { Err(format!("{failed} measurements failed")) } else { Ok(()) }
}

struct Run<'a> {
    args: &'a Args,
    kinds: Vec<Box<dyn EngineKind>>,
    /// Stores that hold every key.
    loaded: BTreeSet<PathBuf>,
    samples: Vec<Sample>,
}

impl Run<'_> {
    /// One measurement, with the load that it needs.
    fn step(&mut self, step: &Step) -> Result<()> {
        let kind = &self.kinds[step.engine];
        let name = kind.name().to_owned();
        let dir = self.dir(&name, step.row);
        if step.starts_round && !(self.args.keep_stores && self.loaded.contains(&dir)) {
            kind.destroy(&dir).map_err(|error| error.to_string())?;
            self.loaded.remove(&dir);
        }
        if !step.workload.starts_empty() && !self.loaded.contains(&dir) {
            eprint!("(loading) ");
            match self.child(&name, step.row, Workload::FillRandom, false)? {
                Ok(_) => self.loaded.insert(dir.clone()),
                Err(error) => {
                    eprintln!("{name} cannot load: {error}");
                    false
                }
            };
        }
        let loaded = self.loaded.contains(&dir);
        let outcome = self.child(&name, step.row, step.workload, loaded)?;
        let Step { row, round, workload, .. } = *step;
        eprint!("{row} round {} {workload} {name}: ", round + 1);
        match &outcome {
            Ok((answer, _)) => {
                let m = &answer.measurement;
                eprintln!("{:.0} ops/s, drained {:.0}", m.ops_per_second, m.ops_per_second_drained);
            }
            Err(error) => eprintln!("FAILED: {error}"),
        }
        if workload.starts_empty() || workload.unloads() || outcome.is_err() {
            self.loaded.remove(&dir);
        }
        if workload.loads() && outcome.is_ok() {
            self.loaded.insert(dir);
        }
        let (answer, cgroup_peak_bytes) = outcome.ok().unzip();
        self.samples.push(Sample {
            row,
            round,
            workload: workload.name().to_owned(),
            engine: name,
            answer,
            cgroup_peak_bytes: cgroup_peak_bytes.flatten(),
        });
        Ok(())
    }

    /// Runs one child to its end: its answer, or what it died of.
    fn child(
        &self,
        engine: &str,
        row: Row,
        workload: Workload,
        loaded: bool,
    ) -> Result<std::result::Result<(Answer, Option<u64>), String>> {
        machine::write_back()?;
        if self.args.drop_caches {
            machine::drop_page_cache()?;
        }
        let group = match self.args.cgroup_memory {
            Some(bytes) => {
                let name = format!("weir-bench-compare-{}", std::process::id());
                let mut group = Group::create(&name, bytes)?;
                if let Some(reads) = self.args.read_iops {
                    group.hold_reads(&name, &self.args.dir, reads)?;
                }
                Some(group)
            }
            None => None,
        };
        let answer = self.args.dir.join("answer.json");
        remove(&answer);
        let task = Task {
            engine: engine.to_owned(),
            workload: workload.name().to_owned(),
            row,
            sizes: self.args.sizes.clone(),
            dir: self.dir(engine, row),
            loaded,
            answer: answer.clone(),
            cgroups: group.as_ref().map(Group::folders).unwrap_or_default(),
        };
        let json = serde_json::to_string(&task).map_err(|error| error.to_string())?;
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let output = Command::new(program)
            .args([super::CHILD, &json])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .output()
            .map_err(|error| format!("cannot start a child: {error}"))?;
        let peak = group.as_ref().and_then(Group::peak_bytes);
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Ok(Err(format!("{}, {}", output.status, said.trim())));
        }
        let text = std::fs::read_to_string(&answer).map_err(|error| error.to_string())?;
        remove(&answer);
        let mut answer: Answer = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        answer.device_reads = group.as_ref().and_then(Group::reads);
        Ok(Ok((answer, peak)))
    }

    fn dir(&self, engine: &str, row: Row) -> PathBuf {
        self.args.dir.join(format!("{engine}-{row}"))
    }

    fn remove_stores(&self, row: Row) {
        for kind in &self.kinds {
            if let Err(error) = kind.destroy(&self.dir(kind.name(), row)) {
                eprintln!("{error}");
            }
        }
    }
}

/// Removes the file of an earlier answer; there may be none.
fn remove(path: &std::path::Path) {
    #[expect(clippy::disallowed_methods, reason = "an answer is no part of a store")]
    let removed = std::fs::remove_file(path);
    drop(removed);
}
