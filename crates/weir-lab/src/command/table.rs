//! `weir-lab table`: every number of the results in a folder, its seeds beside one another.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

use weir_lab::report::bounds;
use weir_lab::result::Verdict;
use weir_lab::seeds::{self, Counts, Group, OverSeeds};
use weir_lab::show;

use super::{Failure, Result, folder, table, verdict};

/// Arguments of `weir-lab table`.
#[derive(clap::Args, Debug)]
pub(crate) struct TableArgs {
    /// Folder of the results
    #[arg(long, default_value = folder::DEFAULT)]
    results: PathBuf,
    /// Only results at this scale
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    scale: Option<u32>,
    /// As a table in Markdown
    #[arg(long)]
    markdown: bool,
}

/// Runs the command.
pub(crate) fn run(args: &TableArgs, out: &mut dyn Write) -> Result<()> {
    let (mut results, others) = folder::read_results(&args.results)?;
    results.retain(|result| args.scale.is_none_or(|scale| result.scale == scale));
    if let (true, Some(scale)) = (results.is_empty(), args.scale) {
        let shown = args.results.display();
        return Err(Failure::new(format_args!("{shown} has no result at scale {scale}")));
    }
    let groups = seeds::groups(&results);
    let all: BTreeSet<u64> = results.iter().map(|result| result.seed).collect();
    let mut header: Vec<String> =
        ["experiment", "scale", "number", "kind", "paper", "accepted"].map(String::from).into();
    header.extend(all.iter().map(|seed| format!("seed {seed}")));
    if all.len() > 1 {
        header.push("range".into());
    }
    header.extend(["verdict", "where the bounds come from"].map(String::from));
    let mut rows = Vec::new();
    for group in &groups {
        rows.extend(group.numbers().iter().map(|over| row(group, over, &all)));
    }
    if args.markdown {
        markdown(out, &header, &rows)?;
    } else {
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        table(out, &header, &rows)?;
    }
    writeln!(out, "\n{}", Counts::of(&groups))?;
    folder::print_left_out(out, others)
}

fn row(group: &Group<'_>, over: &OverSeeds<'_>, seeds: &BTreeSet<u64>) -> Vec<String> {
    let number = over.number;
    let mut cells = vec![
        group.first().experiment.clone(),
        group.first().shown_scale(),
        over.name(),
        if number.guard { "guard" } else { "reproduction" }.to_owned(),
        number.paper.map_or("-".to_owned(), show::number),
        match bounds(number) {
            none if none.is_empty() => "-".to_owned(),
            bounds => bounds,
        },
    ];
    cells.extend(seeds.iter().map(|seed| {
        let value = over.values.iter().find(|(of, _)| of == seed);
        value.map_or("-".to_owned(), |(_, value)| show::number(*value))
    }));
    if seeds.len() > 1 {
        cells.push(over.spread());
    }
    let because = number.differs.as_ref().filter(|_| over.verdict == Verdict::Differs);
    let because = because.map_or(String::new(), |differs| format!(" Here: {}", differs.because));
    cells.extend([verdict(over.verdict, false).to_owned(), format!("{}{because}", number.note)]);
    cells
}

fn markdown(out: &mut dyn Write, header: &[String], rows: &[Vec<String>]) -> Result<()> {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        format!("| {} |", cells.join(" | "))
    };
    writeln!(out, "{}", line(header))?;
    writeln!(out, "|{}", "---|".repeat(header.len()))?;
    for row in rows {
        writeln!(out, "{}", line(row))?;
    }
    Ok(())
}
