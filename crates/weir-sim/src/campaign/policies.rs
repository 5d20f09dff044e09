//! Campaigns M and C once for every policy with every division of filter bits, and the campaign of
//! switches between them.
//!
//! In M and C at large each policy gets a seventh of the keyspaces, and changes at every reopening.
//! Here it stays, so that trees grow under one policy for the length of an episode; every other
//! option is drawn as always.

use weir::CompactionPolicy;

use crate::campaign::{crash, metamorphic, switches};
use crate::options::Cell;
use crate::runner::Switches;

/// How a run is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What M gets, but the cell.
    pub metamorphic: metamorphic::Settings,
    /// What C gets, but the cell.
    pub crash: crash::Settings,
    /// The only policy to look at; all if `None`.
    pub only: Option<CompactionPolicy>,
    /// Sequences of switches.
    pub switches: u64,
}

/// Runs all; `print` is given a line for every cell when it is done.
///
/// # Errors
/// The first violation.
pub fn run(settings: &Settings, mut print: impl FnMut(&str)) -> Result<(), String> {
    print(
        "policy        filters  buffer        M ops   compared  flushes   merges of lists  trimmed \
         levels reopens |      C images     deep  commits",
    );
    for cell in Cell::all().filter(|cell| settings.only.is_none_or(|only| only == cell.compaction))
    {
        let m = metamorphic::Settings { cell: Some(cell), ..settings.metamorphic.clone() };
        let m = metamorphic::run(&m).map_err(|failure| format!("{cell}: {failure}"))?;
        let c = crash::Settings { cell: Some(cell), ..settings.crash.clone() };
        let c = crash::run(&c).map_err(|why| format!("{cell}: {why}"))?;
        print(&format!(
            "{:<13} {:<8} {:<8} {:>10} {:>10} {:>8} {:>8} {:>8} {:>8} {:>6} {:>7} | {:>13} {:>8} \
             {:>8}",
            cell.compaction.to_string(),
            cell.filters.to_string(),
            cell.buffer.to_string(),
            m.ops,
            m.compared,
            m.flushes,
            m.merges,
            m.of_lists,
            m.trimmed,
            m.levels,
            m.reopens.iter().sum::<u64>(),
            c.images,
            c.images_deep,
            c.commits,
        ));
    }
    if settings.switches == 0 {
        return Ok(());
    }
    let all = switches::run(&settings.metamorphic, settings.switches).map_err(|f| f.to_string())?;
    let Switches { all: switched, merging, draining, foreign, settled, settling_merges_max } =
        all.switches;
    print(&format!(
        "{} sequences, {} operations: {switched} switches of the default keyspace, {merging} while \
         a compaction ran, {draining} with a part that drained, {foreign} out of the new form; \
         left by close, drop, kill, power loss: {:?}; {settled} trees settled in form, after \
         {settling_merges_max} merges at most",
        settings.switches, all.ops, all.reopens,
    ));
    if settings.switches >= 1_000 && (merging + draining < 1_000 || foreign < 1_000) {
        return Err("too few switches in the middle of a round".into());
    }
    Ok(())
}
