//! The program `weir-sim`: runs the campaigns and prints what they covered.

#![expect(
    clippy::disallowed_methods,
    reason = "the program reads its own clock, files and processes"
)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use weir_sim::campaign::{crash, damage, determinism, errors, metamorphic, policies, rounds};
use weir_sim::{fixtures, kill, museum, soak};

const HELP: &str = "\
weir-sim: Weir simulated from a seed, compared with an oracle

  weir-sim m [--ops 1000000] [--seed 1] [--failures DIR] [--tries 1500]
                                              random operations over every kind and option
  weir-sim c [--images 100000] [--seed 1] [--steps 100] [--deep-every 100] [--repair-every 1]
             [--stride 1] [--from 0] [--progress]
                                              power lost at every device call; each image is also
                                              opened read-only and repaired, which changes nothing
  weir-sim e [--calls-max N] [--seed 1]       every device call fails, once and for ever
  weir-sim b [--sample N] [--no-blocks] [--repair-every 200]
                                              every bit inverted; sectors, files, names damaged;
                                              one bit in 200 and all of those repaired, too
  weir-sim policies [--ops 100000] [--images 5000] [--switches 1000] [--seed 1] [--steps 100]
                    [--stride 11] [--deep-every 400] [--repair-every 4] [--policy NAME]
                                              m and c for every policy and division of filter bits,
                                              and reopenings that change the policy midway
  weir-sim rounds [--ops 20000] [--seed 1]    a growing tree of gear: full rounds, byte for byte
  weir-sim determinism [--episodes 200]       the same seed twice
  weir-sim kill [--kills 300] [--dir DIR]     real kill -9 of a writing process
  weir-sim soak [--keys 250000] [--dir DIR]   real threads, smallest memtables
  weir-sim museum [--only NAME] [--seconds N] [--root DIR] [--work DIR]
                                              historical bugs put back: what catches them
  weir-sim fixtures --dir DIR                 writes the stores that must open for ever, if missing
  weir-sim replay FILE                        a failure that `m` has printed
  weir-sim short                              the short forms of all, as in CI

  --jobs N    simulations at once (default 2)
";

/// Options that the help names. `kill-child` is started by `kill` only.
fn is_known(option: &str) -> bool {
    let words = HELP.split(|c: char| c.is_whitespace() || c == '[' || c == ']');
    words.into_iter().any(|word| word == option) || option == "--writers"
}

struct Args {
    words: Vec<String>,
}

impl Args {
    fn value(&self, name: &str) -> Option<&str> {
        let at = self.words.iter().position(|w| w == name)?;
        self.words.get(at + 1).map(String::as_str)
    }

    fn number(&self, name: &str, default: u64) -> Result<u64, String> {
        let Some(word) = self.value(name) else { return Ok(default) };
        word.replace('_', "").parse().map_err(|_| format!("{name} {word} is no number"))
    }

    fn flag(&self, name: &str) -> bool {
        self.words.iter().any(|w| w == name)
    }

    fn jobs(&self) -> Result<usize, String> {
        Ok(self.number("--jobs", 2)? as usize)
    }
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let args = Args { words: words.collect() };
    if args.flag("--help") || args.flag("-h") {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    if let Some(odd) = args.words.iter().find(|w| w.starts_with("--") && !is_known(w)) {
        eprintln!("there is no option {odd}; see weir-sim help");
        return ExitCode::FAILURE;
    }
    let started = Instant::now();
    let result = match command.as_str() {
        "m" => metamorphic(&args),
        "c" => crash(&args),
        "e" => errors(&args),
        "b" => damage(&args),
        "policies" => policies(&args),
        "rounds" => gear_rounds(&args),
        "determinism" => determinism(&args),
        "kill" => kill_processes(&args),
        "kill-child" => return child(&args),
        "soak" => soak(&args),
        "museum" => museum(&args),
        "fixtures" => write_fixtures(&args),
        "replay" => replay(&args),
        "short" => short(&args),
        "" | "help" | "--help" => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        other => Err(format!("there is no command {other}; see weir-sim help")),
    };
    let seconds = started.elapsed().as_secs_f64();
    match result {
        Ok(()) => {
            println!("ok: {command} in {seconds:.1} s");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("FAILED after {seconds:.1} s: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Fails unless `got` reaches `goal`.
fn reached(what: &str, got: u64, goal: u64) -> Result<(), String> {
    if got >= goal { Ok(()) } else { Err(format!("{what}: {got}, the goal is {goal}")) }
}

fn metamorphic(args: &Args) -> Result<(), String> {
    let ops = args.number("--ops", 1_000_000)?;
    let settings = metamorphic::Settings {
        seed: args.number("--seed", 1)?,
        ops,
        jobs: args.jobs()?,
        failures: args.value("--failures").map(PathBuf::from),
        tries_max: args.number("--tries", 1_500)? as usize,
        cell: None,
    };
    let counters = metamorphic::run(&settings).map_err(|f| f.to_string())?;
    println!("{counters:#?}");
    if ops >= 1_000_000 {
        reached("flushes", counters.flushes, 1_000)?;
        reached("merges", counters.merges, 1_000)?;
        reached("levels", counters.levels, 3)?;
        reached("reads through old snapshots", counters.old_reads, 1_000)?;
    }
    Ok(())
}

fn crash(args: &Args) -> Result<(), String> {
    let images = args.number("--images", 100_000)?;
    let settings = crash::Settings {
        seed: args.number("--seed", 1)?,
        images,
        stride: args.number("--stride", 1)? as usize,
        from: args.number("--from", 0)? as usize,
        progress: args.flag("--progress"),
        steps: args.number("--steps", 100)?,
        depth_two_every: args.number("--deep-every", 100)?.max(1),
        repair_every: args.number("--repair-every", 1)?.max(1),
        jobs: args.jobs()?,
        cell: None,
    };
    let started = Instant::now();
    let report = crash::run(&settings)?;
    let all = report.images + report.images_deep;
    println!("traces {}, device changes {}", report.traces, report.calls);
    println!("images {} and {} of a second crash", report.images, report.images_deep);
    println!("opened read-only and repaired: {}", report.repaired);
    println!("images per second {:.0}", all as f64 / started.elapsed().as_secs_f64());
    println!("commits that survived, over all images: {}", report.commits);
    println!("policies:");
    report.policies.iter().for_each(|(policy, n)| println!("  {n:>8}  {policy}"));
    println!("crashes by site:");
    report.sites.iter().for_each(|(site, n)| println!("  {n:>8}  {site}"));
    if images >= 100_000 {
        // A site counts in the recorded run and in its recoveries together.
        let both = |site: &String| {
            let again = report.sites.get(&format!("recovery: {site}")).copied().unwrap_or(0);
            report.sites[site] + again
        };
        let mut sites = report.sites.keys().filter(|site| !site.starts_with("recovery: "));
        sites.try_for_each(|site| reached(site, both(site), 50))?;
        reached("policies", report.policies.len() as u64, 12)?;
    }
    Ok(())
}

fn policies(args: &Args) -> Result<(), String> {
    let (seed, jobs) = (args.number("--seed", 1)?, args.jobs()?);
    let settings = policies::Settings {
        metamorphic: metamorphic::Settings {
            seed,
            ops: args.number("--ops", 100_000)?,
            jobs,
            failures: args.value("--failures").map(PathBuf::from),
            tries_max: args.number("--tries", 1_500)? as usize,
            cell: None,
        },
        crash: crash::Settings {
            seed,
            images: args.number("--images", 5_000)?,
            stride: args.number("--stride", 11)?.max(1) as usize,
            from: 0,
            steps: args.number("--steps", 100)?,
            depth_two_every: args.number("--deep-every", 400)?.max(1),
            repair_every: args.number("--repair-every", 4)?.max(1),
            jobs,
            progress: false,
            cell: None,
        },
        only: args.value("--policy").map(str::parse).transpose().map_err(|e| format!("{e}"))?,
        switches: args.number("--switches", 1_000)?,
    };
    policies::run(&settings, |line| println!("{line}"))
}

fn errors(args: &Args) -> Result<(), String> {
    let settings = errors::Settings {
        seed: args.number("--seed", 1)?,
        calls_max: args.value("--calls-max").map(|_| args.number("--calls-max", 0)).transpose()?,
        jobs: args.jobs()?,
        only: args.value("--only").map(str::to_owned),
    };
    let report = errors::run(&settings)?;
    println!("{} runs; {} left the store poisoned", report.runs, report.poisoned);
    println!("writes refused by a full device: {}", report.full_refused);
    let errors::Report { panics, callbacks: (glad, sad), .. } = &report;
    println!(
        "panics: {} on users' threads, {} on the store's; {} poisoned it, these came out: {:?}",
        panics.users, panics.background, panics.poisoned, panics.came_out
    );
    println!("callbacks: {glad} were told of success, {sad} of failure");
    println!("device calls by scenario:");
    report.calls.iter().for_each(|(name, n)| println!("  {n:>6}  {name}"));
    println!("hits by site and error:      once   for ever");
    let mut rows: Vec<_> = report.hits.keys().map(|(site, effect, _)| (*site, *effect)).collect();
    rows.dedup();
    let mut missed = Vec::new();
    for (site, effect) in rows {
        let n = |forever| report.hits.get(&(site, effect, forever)).copied().unwrap_or(0);
        println!("  {:>6} {:>10}   {site}, {effect:?}", n(false), n(true));
        let forever = effect != weir::sim::Effect::Panic;
        if n(false) == 0 || forever && n(true) == 0 {
            missed.push(format!("{site}, {effect:?}"));
        }
    }
    for violation in report.violations.iter().take(20) {
        println!("VIOLATION {violation}");
    }
    match report.violations.len() {
        0 if missed.is_empty() || settings.calls_max.is_some() || settings.only.is_some() => Ok(()),
        0 => Err(format!("not hit both once and for ever: {missed:?}")),
        n => Err(format!("{n} violations")),
    }
}

fn damage(args: &Args) -> Result<(), String> {
    let settings = damage::Settings {
        seed: args.number("--seed", 1)?,
        sample: args.value("--sample").map(|_| args.number("--sample", 0)).transpose()?,
        blocks: !args.flag("--no-blocks"),
        repair_every: args.number("--repair-every", 200)?,
        jobs: args.jobs()?,
    };
    let report = damage::run(&settings)?;
    println!("the store: {} bytes, {}", report.bytes, report.shape);
    println!(
        "{:>22} {:>16}  {:>8} {:>8} {:>8} {:>8} {:>8}",
        "damage", "file", "right", "error", "nameless", "wrong", "missing"
    );
    use damage::Verdict::{Error, Missing, Nameless, Right, Wrong};
    for ((kind, file), verdicts) in &report.verdicts {
        let [a, b, c, d, e] = [Right, Error, Nameless, Wrong, Missing]
            .map(|v| verdicts.get(&v).copied().unwrap_or(0));
        println!("{kind:>22} {file:>16}  {a:>8} {b:>8} {c:>8} {d:>8} {e:>8}");
    }
    println!(
        "{:>22} {:>16}  {:>8} {:>8} {:>8} {:>8} {:>8}  keys kept in lossy ones",
        "repairs after", "file", "healthy", "whole", "rebuilt", "lossy", "refused"
    );
    for ((kind, file), r) in &report.repairs {
        println!(
            "{kind:>22} {file:>16}  {:>8} {:>8} {:>8} {:>8} {:>8}  {} of {}",
            r.healthy, r.whole, r.rebuilt, r.lossy, r.refused, r.kept.0, r.kept.1
        );
    }
    report.bad.iter().take(30).for_each(|bad| println!("BAD {bad}"));
    report.bad_repairs.iter().take(30).for_each(|bad| println!("BAD repair: {bad}"));
    match report.count(Nameless) + report.count(Wrong) + report.count(Missing) {
        0 if report.bad_repairs.is_empty() => Ok(()),
        0 => Err(format!("{} repairs did what they must not", report.bad_repairs.len())),
        n => {
            Err(format!("{n} damages led to wrong or missing answers, or to errors without a file"))
        }
    }
}

fn gear_rounds(args: &Args) -> Result<(), String> {
    let report = rounds::run(args.number("--seed", 1)?, args.number("--ops", 20_000)?)?;
    println!("{report:?}");
    reached("rounds", report.rounds, report.puts / 1_000)
}

fn determinism(args: &Args) -> Result<(), String> {
    let (seed, episodes) = (args.number("--seed", 1)?, args.number("--episodes", 200)?);
    let determinism::Report { ops, bytes, decisions } = determinism::run(seed, episodes)?;
    println!("{episodes} episodes with {ops} operations, each twice: equal");
    println!("bytes {bytes:016x}, decisions {decisions:016x}");
    Ok(())
}

/// A new directory that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(args: &Args, what: &str) -> Result<Self, String> {
        let parent = args.value("--dir").map_or_else(std::env::temp_dir, PathBuf::from);
        let dir = parent.join(format!("weir-{what}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        Ok(Self(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn kill_processes(args: &Args) -> Result<(), String> {
    let scratch = Scratch::new(args, "kill")?;
    let settings = kill::Settings {
        seed: args.number("--seed", 1)?,
        kills: args.number("--kills", 300)?,
        dir: scratch.0.join("store"),
    };
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let report = kill::run(&settings, &program)?;
    println!("{report:#?}");
    Ok(())
}

fn child(args: &Args) -> ExitCode {
    let parse = || {
        let [dir, seed, next @ ..] = args.words.as_slice() else { return Err("arguments".into()) };
        let seed = seed.parse().map_err(|_| format!("{seed} is no number"))?;
        let next: Vec<u64> = next.iter().filter_map(|n| n.parse().ok()).collect();
        kill::child(std::path::Path::new(dir), seed, &next)
    };
    match parse() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn soak(args: &Args) -> Result<(), String> {
    let scratch = Scratch::new(args, "soak")?;
    let settings = soak::Settings {
        seed: args.number("--seed", 1)?,
        keys: args.number("--keys", 250_000)?,
        writers: args.number("--writers", 4)?,
    };
    let (scans, flushes) = soak::run(&settings, &scratch.0.join("store"))?;
    println!("{} keys, {flushes} flushes, {scans} scans of snapshots", settings.keys);
    Ok(())
}

fn museum(args: &Args) -> Result<(), String> {
    let settings = museum::Settings {
        only: args.value("--only").map(str::to_owned),
        seconds_max: args.number("--seconds", 300)?,
        root: PathBuf::from(args.value("--root").unwrap_or(".")),
        work: args.value("--work").map_or_else(std::env::temp_dir, PathBuf::from),
    };
    let rows = museum::run(&settings)?;
    println!("{}", museum::table(&rows));
    match rows.iter().filter(|row| row.caught_by.is_none()).count() {
        0 => Ok(()),
        n => Err(format!("{n} of {} bugs were not caught", rows.len())),
    }
}

fn write_fixtures(args: &Args) -> Result<(), String> {
    let dir = args.value("--dir").ok_or("which directory?")?;
    for name in fixtures::write(std::path::Path::new(dir))? {
        println!("{name}");
    }
    Ok(())
}

fn replay(args: &Args) -> Result<(), String> {
    let path = args.words.first().ok_or("which file?")?;
    let text = std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    let (schedule, ops) = metamorphic::parse(&text)?;
    let (counters, trail) = metamorphic::execute(schedule, &ops)
        .map_err(|(why, at)| format!("operation {at}: {why}"))?;
    println!("{counters:?}\ndisk, decisions, schedule: {trail:?}");
    Ok(())
}

/// The short forms, about three minutes on two cores.
fn short(args: &Args) -> Result<(), String> {
    let with = |words: &[&str]| {
        let mut all: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        all.extend(args.words.iter().cloned());
        Args { words: all }
    };
    type Run = fn(&Args) -> Result<(), String>;
    let all: [(&str, Run, &[&str]); 9] = [
        ("m", metamorphic, &["--ops", "60000"]),
        ("rounds", gear_rounds, &["--ops", "4000"]),
        ("determinism", determinism, &["--episodes", "12"]),
        (
            "c",
            crash,
            &[
                "--images",
                "3000",
                "--steps",
                "60",
                "--stride",
                "7",
                "--deep-every",
                "1500",
                "--repair-every",
                "4",
            ],
        ),
        (
            "policies",
            policies,
            &[
                "--ops",
                "2000",
                "--images",
                "200",
                "--switches",
                "42",
                "--steps",
                "40",
                "--stride",
                "31",
                "--deep-every",
                "4000",
            ],
        ),
        ("e", errors, &["--calls-max", "2"]),
        ("b", damage, &["--sample", "6000", "--repair-every", "2000"]),
        ("soak", soak, &["--keys", "40000"]),
        ("kill", kill_processes, &["--kills", "20"]),
    ];
    for (name, run, words) in all {
        let started = Instant::now();
        run(&with(words)).map_err(|why| format!("{name}: {why}"))?;
        println!("-- {name}: {:.1} s", started.elapsed().as_secs_f64());
    }
    Ok(())
}
