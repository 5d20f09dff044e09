//! `weir-lab list`: which experiments there are.

use std::io::Write;

use weir_lab::{catalog, plot};

/// Runs the command.
pub(crate) fn run(out: &mut dyn Write) -> super::Result<()> {
    let experiments = catalog::all()?;
    let rows: Vec<Vec<String>> = experiments
        .iter()
        .map(|experiment| {
            vec![
                experiment.name.clone(),
                experiment.paper.clone(),
                plot::figure(&experiment.figure),
                experiment.runs.len().to_string(),
                experiment.title.clone(),
            ]
        })
        .collect();
    super::table(out, &["experiment", "paper", "figure", "runs", "title"], &rows)?;
    Ok(())
}
