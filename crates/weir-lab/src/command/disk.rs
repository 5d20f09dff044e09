//! `weir-lab disk`: what the models of disks do, beside what their sources say.

use std::io::Write;

use weir::sim::DiskModel;
use weir_lab::disk::{self, APPENDS, DEPTHS, Measured, PARTS, What};
use weir_lab::result::Number;
use weir_lab::show;

use super::{Result, bounds, folder, print_reasons, refuse_numbers, table, verdict};

/// Arguments of `weir-lab disk`.
#[derive(clap::Args, Debug)]
pub(crate) struct DiskArgs {
    /// The model to measure; all if none is named
    #[arg(long, value_name = "NAME", value_parser = models())]
    model: Option<String>,
    /// Decides the places of random reads
    #[arg(long, default_value_t = folder::SEED)]
    seed: u64,
    /// End with exit code 3 if a number is outside what its source leads one to expect
    #[arg(long)]
    check: bool,
}

fn models() -> clap::builder::PossibleValuesParser {
    DiskModel::ALL.map(|model| model.name).into()
}

/// Runs the command.
pub(crate) fn run(args: &DiskArgs, out: &mut dyn Write) -> Result<()> {
    let wanted = |model: &DiskModel| args.model.as_ref().is_none_or(|name| name == model.name);
    let mut all = Vec::new();
    for model in DiskModel::ALL.into_iter().filter(wanted) {
        let measured = disk::measure(&model, args.seed)?;
        all.push((model, measured));
    }
    print_reads(out, &all)?;
    print_streams(out, &all)?;
    let mut numbers = Vec::new();
    for (model, measured) in &all {
        numbers.extend(disk::beside_sources(model, measured)?);
    }
    print_sources(out, &numbers)?;
    if args.check { refuse_numbers(numbers.iter().map(|number| ("disk", number))) } else { Ok(()) }
}

fn value(measured: &[Measured], what: What) -> String {
    let found = measured.iter().find(|m| m.what == what);
    found.map_or("-".to_owned(), |found| show::number(found.value))
}

/// One row for each part of each disk.
fn print_reads(out: &mut dyn Write, all: &[(DiskModel, Vec<Measured>)]) -> Result<()> {
    let mut rows = Vec::new();
    for (model, measured) in all {
        let has = |part: &u64| {
            measured.iter().any(|m| matches!(m.what, What::Reads { part: p, .. } if p == *part))
        };
        for part in PARTS.into_iter().filter(has) {
            let of = if part == 1 { "all".to_owned() } else { format!("1/{part}") };
            let mut row = vec![model.name.to_owned(), of];
            row.extend(DEPTHS.map(|depth| value(measured, What::Reads { depth, part })));
            rows.push(row);
        }
    }
    let depths = DEPTHS.map(|depth| depth.to_string());
    let mut header = vec!["random reads of 4 KiB (1/s)", "part of the disk"];
    header.extend(depths.iter().map(String::as_str));
    table(out, &header, &rows)?;
    Ok(writeln!(out)?)
}

/// Streams, and appends with the write cache on and off.
fn print_streams(out: &mut dyn Write, all: &[(DiskModel, Vec<Measured>)]) -> Result<()> {
    let streams = [1, 4].map(|readers| What::StreamReads { readers });
    let streams: Vec<What> = streams.into_iter().chain([What::StreamWrites]).collect();
    print_columns(out, "streams", &streams, all)?;
    for (name, write_cache) in [("write cache on", true), ("write cache off", false)] {
        let appends = APPENDS.map(|bytes| What::Append { bytes, write_cache });
        print_columns(out, name, &appends, all)?;
    }
    Ok(())
}

/// One row for each disk, one column for each of `whats`.
fn print_columns(
    out: &mut dyn Write,
    name: &str,
    whats: &[What],
    all: &[(DiskModel, Vec<Measured>)],
) -> Result<()> {
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|(model, measured)| {
            let values = whats.iter().map(|&what| value(measured, what));
            std::iter::once(model.name.to_owned()).chain(values).collect()
        })
        .collect();
    let names = whats.iter().map(|what| show::with_unit(&what.name(), what.unit()));
    let names: Vec<String> = names.collect();
    let header: Vec<&str> = std::iter::once(name).chain(names.iter().map(String::as_str)).collect();
    table(out, &header, &rows)?;
    Ok(writeln!(out)?)
}

/// One row for each value of a source, then why some differ.
fn print_sources(out: &mut dyn Write, numbers: &[Number]) -> Result<()> {
    let rows: Vec<Vec<String>> = numbers
        .iter()
        .map(|number| {
            vec![
                show::with_unit(&number.name, &number.unit),
                number.paper.map_or("-".to_owned(), show::number),
                show::number(number.ours),
                bounds(number),
                verdict(number.verdict(), number.guard).to_owned(),
                number.note.clone(),
            ]
        })
        .collect();
    table(out, &["number", "source", "weir", "accepted", "verdict", "where"], &rows)?;
    Ok(print_reasons(out, numbers.iter().map(|number| ("disk", number)))?)
}
