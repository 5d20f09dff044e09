//! The program `weir-sim`: runs the campaigns and prints what they covered.

#![expect(
    clippy::disallowed_methods,
    reason = "the program reads its own clock, files and processes"
)]

mod command_line;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use command_line::{
    Command, CommandLine, CrashArgs, DamageArgs, DeterminismArgs, ErrorsArgs, FixturesArgs,
    KillArgs, KillChildArgs, MetamorphicArgs, MuseumArgs, Place, PoliciesArgs, PowercutArgs,
    Reduction, ReplayArgs, RoundsArgs, ShortArgs, SoakArgs,
};
use weir_sim::campaign::{crash, damage, determinism, errors, metamorphic, policies, rounds};
use weir_sim::{fixtures, kill, museum, powercut, soak};

/// The short forms of the campaigns, as in CI.
const SHORT: [&str; 18] = [
    "m --ops 40000",
    "rounds --ops 4000",
    "determinism --episodes 8",
    "c --images 3000 --steps 60 --stride 7 --deep-every 1500 --repair-every 4",
    "policies --ops 450 --images 40 --switches 28 --steps 40 --stride 79 --deep-every 4000",
    "e --calls-max 1",
    "b --sample 4000 --repair-every 2000",
    "soak --keys 40000",
    "kill --kills 20",
    "kill --slots --kills 10",
    "powercut --histories 2 --images 40 --commits 1500",
    "m --slots --ops 12000",
    "m --slots --device-mib 24 --ops 12000",
    "determinism --slots --episodes 4",
    "c --slots --images 1500 --steps 60 --stride 13 --deep-every 1500 --repair-every 16",
    "policies --slots --ops 200 --images 12 --switches 7 --steps 30 --stride 97 --deep-every 4000",
    "e --slots --calls-max 1",
    "b --slots --sample 2000 --no-blocks --repair-every 200",
];

fn main() -> ExitCode {
    let line = CommandLine::parse();
    if let Command::KillChild(args) = &line.command {
        return child(args);
    }
    let gets_full =
        matches!(line.command, Command::M(_) | Command::Determinism(_) | Command::Replay(_));
    if line.device_mib.is_some() && !gets_full {
        let what = "--device-mib is for m, determinism and replay";
        CommandLine::command().error(ErrorKind::ArgumentConflict, what).exit();
    }
    use_disks(&line);
    let started = Instant::now();
    let result = run(&line);
    let seconds = started.elapsed().as_secs_f64();
    match result {
        Ok(()) => {
            println!("ok in {seconds:.1} s");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("FAILED after {seconds:.1} s: {why}");
            ExitCode::FAILURE
        }
    }
}

/// What new disks of this process are like.
fn use_disks(line: &CommandLine) {
    weir_sim::world::use_slots(line.slots);
    weir_sim::world::use_device_bytes(line.device_mib.map(|mib| mib << 20));
}

fn run(line: &CommandLine) -> Result<(), String> {
    let jobs = line.jobs as usize;
    match &line.command {
        Command::M(args) => metamorphic(args, jobs),
        Command::C(args) => crash(args, jobs),
        Command::E(args) => errors(args, jobs),
        Command::B(args) => damage(args, jobs),
        Command::Policies(args) => policies(args, jobs),
        Command::Rounds(args) => gear_rounds(args),
        Command::Determinism(args) => determinism(args),
        Command::Kill(args) => kill_processes(args),
        Command::KillChild(_) => Err("only `kill` starts this".to_owned()),
        Command::Powercut(args) => powercut(args),
        Command::Soak(args) => soak(args),
        Command::Museum(args) => museum(args),
        Command::Fixtures(args) => write_fixtures(args),
        Command::Replay(args) => replay(args),
        Command::Short(args) => short(args, jobs),
    }
}

/// Fails unless `got` reaches `goal`.
fn reached(what: &str, got: u64, goal: u64) -> Result<(), String> {
    if got >= goal { Ok(()) } else { Err(format!("{what}: {got}, the goal is {goal}")) }
}

/// Settings of campaign M.
fn settings_of_m(seed: u64, ops: u64, reduction: &Reduction, jobs: usize) -> metamorphic::Settings {
    metamorphic::Settings {
        seed,
        ops,
        jobs,
        failures: reduction.failures.clone(),
        tries_max: reduction.tries as usize,
        cell: None,
    }
}

fn metamorphic(args: &MetamorphicArgs, jobs: usize) -> Result<(), String> {
    let ops = args.ops;
    let settings = settings_of_m(args.seed.seed, ops, &args.reduction, jobs);
    let counters = metamorphic::run(&settings).map_err(|f| f.to_string())?;
    println!("{counters:#?}");
    if ops >= 1_000_000 {
        reached("flushes", counters.flushes, 1_000)?;
        reached("merges", counters.merges, 1_000)?;
        reached("levels", counters.levels, 3)?;
        reached("stretches of merges", counters.stretches, 1_000)?;
        reached("reads through old snapshots", counters.old_reads, 1_000)?;
    }
    Ok(())
}

fn crash(args: &CrashArgs, jobs: usize) -> Result<(), String> {
    let images = args.images;
    let settings = crash::Settings {
        seed: args.seed.seed,
        images,
        stride: args.stride as usize,
        from: args.from as usize,
        progress: args.progress,
        steps: args.steps,
        depth_two_every: args.deep_every,
        repair_every: args.repair_every,
        jobs,
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

fn policies(args: &PoliciesArgs, jobs: usize) -> Result<(), String> {
    let settings = policies::Settings {
        metamorphic: settings_of_m(args.seed.seed, args.ops, &args.reduction, jobs),
        crash: crash::Settings {
            seed: args.seed.seed,
            images: args.images,
            stride: args.stride as usize,
            from: 0,
            steps: args.steps,
            depth_two_every: args.deep_every,
            repair_every: args.repair_every,
            jobs,
            progress: false,
            cell: None,
        },
        only: args.policy,
        switches: args.switches,
    };
    policies::run(&settings, |line| println!("{line}"))
}

fn errors(args: &ErrorsArgs, jobs: usize) -> Result<(), String> {
    let settings = errors::Settings {
        seed: args.seed.seed,
        calls_max: args.calls_max,
        jobs,
        only: args.only.clone(),
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

fn damage(args: &DamageArgs, jobs: usize) -> Result<(), String> {
    let settings = damage::Settings {
        seed: args.seed.seed,
        sample: args.sample,
        blocks: !args.no_blocks,
        repair_every: args.repair_every,
        jobs,
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

fn gear_rounds(args: &RoundsArgs) -> Result<(), String> {
    let report = rounds::run(args.seed.seed, args.ops)?;
    println!("{report:?}");
    reached("rounds", report.rounds, report.puts / 1_000)
}

fn determinism(args: &DeterminismArgs) -> Result<(), String> {
    let (seed, episodes) = (args.seed.seed, args.episodes);
    let determinism::Report { ops, bytes, decisions } = determinism::run(seed, episodes)?;
    println!("{episodes} episodes with {ops} operations, each twice: equal");
    println!("bytes {bytes:016x}, decisions {decisions:016x}");
    Ok(())
}

/// A new directory that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(place: &Place, what: &str) -> Result<Self, String> {
        let parent = place.dir.clone().unwrap_or_else(std::env::temp_dir);
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

fn kill_processes(args: &KillArgs) -> Result<(), String> {
    let scratch = Scratch::new(&args.place, "kill")?;
    let settings =
        kill::Settings { seed: args.seed.seed, kills: args.kills, dir: scratch.0.join("store") };
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let report = kill::run(&settings, &program)?;
    println!("{report:#?}");
    Ok(())
}

fn powercut(args: &PowercutArgs) -> Result<(), String> {
    let scratch = Scratch::new(&args.place, "powercut")?;
    if let Some(what) = powercut::missing(&scratch.0) {
        println!("skipped: {what}");
        return Ok(());
    }
    let form = powercut::Form::ALL.into_iter().find(|form| form.name == args.form);
    let settings = powercut::Settings {
        form: form.unwrap_or(powercut::Form::SLOTS),
        seed: args.seed.seed,
        images: args.images,
        histories: args.histories,
        commits: args.commits,
        dir: scratch.0.clone(),
    };
    let report = powercut::run(&settings)?;
    println!("{report:#?}");
    Ok(())
}

fn child(args: &KillChildArgs) -> ExitCode {
    match kill::child(&args.dir, args.seed, &args.next) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn soak(args: &SoakArgs) -> Result<(), String> {
    let scratch = Scratch::new(&args.place, "soak")?;
    let settings = soak::Settings { seed: args.seed.seed, keys: args.keys, writers: args.writers };
    let (scans, flushes) = soak::run(&settings, &scratch.0.join("store"))?;
    println!("{} keys, {flushes} flushes, {scans} scans of snapshots", settings.keys);
    Ok(())
}

fn museum(args: &MuseumArgs) -> Result<(), String> {
    let settings = museum::Settings {
        only: args.only.clone(),
        seconds_max: args.seconds,
        root: args.root.clone(),
        work: args.work.clone().unwrap_or_else(std::env::temp_dir),
    };
    if args.check {
        let checked = museum::check(&settings, &command_line::check)?;
        println!("{checked} patches apply and compile");
        return Ok(());
    }
    let rows = museum::run(&settings)?;
    println!("{}", museum::table(&rows));
    match rows.iter().filter(|row| row.caught_by.is_none()).count() {
        0 => Ok(()),
        n => Err(format!("{n} of {} bugs were not caught", rows.len())),
    }
}

fn write_fixtures(args: &FixturesArgs) -> Result<(), String> {
    for name in fixtures::write(&args.dir)? {
        println!("{name}");
    }
    Ok(())
}

fn replay(args: &ReplayArgs) -> Result<(), String> {
    let path = &args.file;
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let (schedule, ops) = metamorphic::parse(&text)?;
    let given = metamorphic::Place::of_process();
    let is_given = given.in_slots || given.device_mib.is_some();
    if let Some(place) = metamorphic::Place::named_in(&text).filter(|_| !is_given) {
        println!("{place}");
        weir_sim::world::use_slots(place.in_slots);
        weir_sim::world::use_device_bytes(place.device_mib.map(|mib| mib << 20));
    }
    let (counters, trail) = metamorphic::execute(schedule, &ops)
        .map_err(|(why, at)| format!("operation {at}: {why}"))?;
    println!("{counters:?}\ndisk, decisions, schedule: {trail:?}");
    Ok(())
}

fn short(args: &ShortArgs, jobs: usize) -> Result<(), String> {
    for words in SHORT {
        let name = words.split(' ').next().unwrap_or_default();
        let mut line: Vec<String> = vec!["weir-sim".to_owned()];
        line.extend(words.split(' ').map(str::to_owned));
        line.extend([format!("--seed={}", args.seed.seed), format!("--jobs={jobs}")]);
        if let (Some(dir), "soak" | "kill" | "powercut") = (&args.place.dir, name) {
            line.push(format!("--dir={}", dir.display()));
        }
        let line = CommandLine::try_parse_from(line).map_err(|error| error.to_string())?;
        use_disks(&line);
        let started = Instant::now();
        run(&line).map_err(|why| format!("{name}: {why}"))?;
        println!("-- {name}: {:.1} s", started.elapsed().as_secs_f64());
    }
    Ok(())
}
