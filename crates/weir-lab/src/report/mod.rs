//! The report: one HTML page that needs nothing else, made of results alone.
//!
//! A table of contents with verdict counts, grouped by paper; then for each experiment its figure,
//! the paper's numbers beside ours with a verdict each, notes, settings and the command that makes
//! it again. No script, nothing loaded from elsewhere; light and dark as the reader's machine is.
//!
//! Not here: what is measured (`run`), and how plots look (`plot`).
//!
//! Invariants: (1) every text of a result is escaped; (2) the page is well-formed XML but for its
//! first line, so that a test can parse it; (3) the same results give the same bytes.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::plot;
use crate::result::{Number, Result as Outcome, Verdict};
use crate::seeds::{self, Counts, Group};
use crate::show::{escaped, number};

const STYLE: &str = include_str!("style.css");

/// The papers in the order of docs/papers.md; others follow by name.
const PAPERS: [(&str, &str); 6] = [
    ("LSbM", "a compaction buffer that keeps the cache valid"),
    ("dLSM", "two-phase compaction and multi-segment cascading"),
    ("BiLSM", "components that move back up"),
    ("LDS", "an LSM-tree on raw storage"),
    ("Merfeld", "a tiered tree with Bloom filters and fences"),
    ("Weir", "cached heat that goes through merges, which no paper has"),
];

/// What a number must be: `at least 2`, `1 to 3`, `1 to 3; here 4 to 5` where it is known to
/// differ; empty without bounds.
#[must_use]
pub fn bounds(wanted: &Number) -> String {
    let range = |low: f64, high: f64| format!("{} to {}", number(low), number(high));
    let mut text = match (wanted.low, wanted.high) {
        (None, None) => String::new(),
        (Some(low), None) => format!("at least {}", number(low)),
        (None, Some(high)) => format!("at most {}", number(high)),
        (Some(low), Some(high)) => range(low, high),
    };
    if let Some(differs) = &wanted.differs {
        let _ = write!(text, "; here {}", range(differs.low, differs.high));
    }
    text
}

/// The page about `results`, in any order.
///
/// # Errors
/// What could not be drawn.
pub fn html(results: &[Outcome]) -> Result<String, String> {
    let mut sorted: Vec<&Outcome> = results.iter().collect();
    sorted.sort_by_cached_key(|result| {
        let place = PAPERS.iter().position(|paper| paper.0 == result.paper);
        let paper = (place.unwrap_or(PAPERS.len()), result.paper.clone());
        (paper, natural(&result.figure), result.experiment.clone(), result.scale, result.seed)
    });
    let mut page = String::new();
    page.push_str(
        "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n",
    );
    page.push_str("<meta charset=\"utf-8\"/>\n");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n");
    page.push_str("<meta name=\"color-scheme\" content=\"light dark\"/>\n");
    page.push_str("<title>Weir's laboratory</title>\n<style>\n");
    page.push_str(STYLE);
    page.push_str(&plot::dark_style());
    page.push_str("</style>\n</head>\n<body>\n<main>\n<h1>Weir's laboratory</h1>\n");
    let sorted = seeds::groups(sorted);
    page.push_str(&summary(&sorted));
    page.push_str(&contents(&sorted));
    for of_paper in sorted.chunk_by(|a, b| a.first().paper == b.first().paper) {
        let paper = &of_paper[0].first().paper;
        let _ = writeln!(page, "<section>\n<h2 id=\"{}\">{}</h2>", id(paper), paper_title(paper));
        for group in of_paper {
            page.push_str(&article(group)?);
        }
        page.push_str("</section>\n");
    }
    page.push_str("</main>\n</body>\n</html>\n");
    Ok(page)
}

fn summary(groups: &[Group<'_>]) -> String {
    let scales: BTreeMap<(u32, Option<u32>), String> = groups
        .iter()
        .map(|group| group.first())
        .map(|result| ((result.scale, result.first), result.shown_scale()))
        .collect();
    let scales: Vec<String> = scales.into_values().collect();
    format!(
        "<p>The papers' experiments on Weir, in simulation: simulated disks, virtual time, \
         everything decided by a seed. Data, caches, files and durations are divided by a scale; \
         rates, latencies, blocks and ratios are not. Guards reproduce nothing and say whether an \
         experiment is what it says; what differs does so for a known reason; what is open has no \
         bounds.</p>\n<p class=\"counts\">{} with {}; scale {}. Made by weir-lab {}.</p>\n",
        plural(groups.len(), "experiment"),
        Counts::of(groups),
        if scales.is_empty() { "-".to_owned() } else { scales.join("; ") },
        env!("CARGO_PKG_VERSION")
    )
}

fn plural(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn contents(groups: &[Group<'_>]) -> String {
    let mut out = String::from(
        "<nav aria-label=\"Contents\" class=\"wide\">\n<table class=\"contents\">\n\
         <thead><tr><th>Figure</th><th>Experiment</th><th>Scale</th><th class=\"n\">Seeds</th>\
         <th class=\"n\">Holds</th><th class=\"n\">Differs</th><th class=\"n\">Outside</th>\
         <th class=\"n\">No bounds</th><th class=\"n\">Guards</th></tr>\
         </thead>\n",
    );
    for of_paper in groups.chunk_by(|a, b| a.first().paper == b.first().paper) {
        let paper = &of_paper[0].first().paper;
        let _ = writeln!(
            out,
            "<tbody>\n<tr class=\"paper\"><th colspan=\"4\"><a href=\"#{}\">{}</a></th>{}</tr>",
            id(paper),
            paper_title(paper),
            count_cells(Counts::of(of_paper))
        );
        for group in of_paper {
            let result = group.first();
            let _ = writeln!(
                out,
                "<tr><td class=\"accepted\">{}</td><td><a href=\"#{}\">{}</a></td>\
                 <td>{}</td><td class=\"n\">{}</td>{}</tr>",
                escaped(&plot::figure(&result.figure)),
                article_id(result),
                escaped(&result.title),
                result.shown_scale(),
                group.results().len(),
                count_cells(Counts::of([group]))
            );
        }
        out.push_str("</tbody>\n");
    }
    out.push_str("</table>\n</nav>\n");
    out
}

fn count_cells(counts: Counts) -> String {
    let cell = |count: usize, class: &str| {
        let class = if count == 0 { "zero" } else { class };
        format!("<td class=\"n {class}\">{count}</td>")
    };
    [
        cell(counts.holds, "holds"),
        cell(counts.differs, "differs"),
        cell(counts.fails, "fails"),
        cell(counts.open, "open"),
        cell(counts.guards, if counts.guards_failed == 0 { "open" } else { "fails" }),
    ]
    .concat()
}

fn article(group: &Group<'_>) -> Result<String, String> {
    let result = group.first();
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<article id=\"{}\">\n<h3>{}</h3>\n<p class=\"origin\">{}, {} · experiment \
         <code>{}</code> · scale {} · {} · {} s of virtual time in {} s</p>",
        article_id(result),
        escaped(&result.title),
        escaped(&result.paper),
        escaped(&plot::figure(&result.figure)),
        escaped(&result.experiment),
        result.shown_scale(),
        group.seeds(),
        number(group.results().iter().map(|result| result.virtual_seconds).sum()),
        number(group.results().iter().map(|result| result.real_seconds).sum())
    );
    let _ = writeln!(out, "<figure>\n{}</figure>", plot::svg_over(group)?);
    out.push_str(&numbers(group));
    if !result.notes.is_empty() {
        out.push_str("<ul class=\"notes\">\n");
        for note in &result.notes {
            let _ = writeln!(out, "<li>{}</li>", escaped(note));
        }
        out.push_str("</ul>\n");
    }
    let _ =
        writeln!(out, "<p class=\"again\">Again: <code>{}</code></p>", escaped(&result.command));
    let count = plural(result.settings.len(), "setting");
    let _ = writeln!(out, "<details>\n<summary>{count}</summary>\n<table class=\"settings\">");
    for (name, value) in &result.settings {
        let (name, value) = (escaped(name), escaped(value));
        let _ = writeln!(out, "<tr><th><code>{name}</code></th><td><code>{value}</code></td></tr>");
    }
    out.push_str("</table>\n</details>\n</article>\n");
    Ok(out)
}

fn numbers(group: &Group<'_>) -> String {
    let numbers = group.numbers();
    if numbers.is_empty() {
        return String::new();
    }
    let several = group.results().len() > 1;
    let range = if several { "<th>Range</th>" } else { "" };
    let mut out = format!(
        "<div class=\"wide\">\n<table class=\"numbers\">\n<thead><tr><th>Number</th>\
         <th class=\"n\">Paper</th><th class=\"n\">Weir</th>{range}<th>Accepted</th>\
         <th>Verdict</th><th>Why</th></tr></thead>\n<tbody>\n"
    );
    for over in &numbers {
        let wanted = over.number;
        let (class, verdict) = match over.verdict {
            Verdict::Holds if wanted.guard => ("open", "✓ guard"),
            Verdict::Holds => ("holds", "✓ holds"),
            Verdict::Differs => ("differs", "≠ differs"),
            Verdict::Fails => ("fails", "✗ outside"),
            Verdict::Open => ("open", "– open"),
        };
        let each = |(_, value): &(u64, f64)| format!("<span>{}</span>", number(*value));
        let values: Vec<String> = over.values.iter().map(each).collect();
        let range = if several {
            format!("<td class=\"accepted\" data-label=\"Range\">{}</td>", over.spread())
        } else {
            String::new()
        };
        let _ = writeln!(
            out,
            "<tr><td>{}{}</td><td class=\"n\" data-label=\"Paper\">{}</td>\
             <td class=\"n\" data-label=\"Weir\">{}</td>{range}\
             <td class=\"accepted\" data-label=\"Accepted\">{}</td>\
             <td class=\"{class}\" data-label=\"Verdict\">{verdict}</td>\
             <td class=\"why\">{}</td></tr>",
            escaped(&over.name()),
            how(wanted),
            wanted.paper.map_or("–".to_owned(), number),
            values.join(" "),
            bounds(wanted),
            escaped(&why(wanted))
        );
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
    out
}

/// How a number is made of windows, below its name.
fn how(wanted: &Number) -> String {
    match wanted.statistic.as_str() {
        "" => String::new(),
        statistic => format!("<br/><small>{}</small>", escaped(statistic)),
    }
}

/// Where the bounds come from and, where a number is known to differ, the reason.
fn why(wanted: &Number) -> String {
    match &wanted.differs {
        None => wanted.note.clone(),
        Some(differs) if wanted.note.is_empty() => format!("here: {}", differs.because),
        Some(differs) => format!("{}. Here: {}", wanted.note, differs.because),
    }
}

fn paper_title(paper: &str) -> String {
    let title = PAPERS.iter().find(|known| known.0 == paper);
    match title {
        Some((name, what)) => format!("{name}: {what}"),
        None => escaped(paper),
    }
}

/// One result of an experiment, scale and seed is expected; a second has the same name and the
/// contents lead to the first.
fn article_id(result: &Outcome) -> String {
    id(&format!("{}-{}-{}", result.experiment, result.shown_scale(), result.seed))
}

/// Letters, digits and dashes only.
fn id(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    format!("x-{}", text.chars().map(plain).collect::<String>())
}

/// A key by which `9b` comes before `11a`, and `Figure 2` before `Figure 10`.
fn natural(text: &str) -> Vec<(u64, String)> {
    let mut parts: Vec<(u64, String)> = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, tail) = rest.split_at(digits);
        let words = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (word, tail) = tail.split_at(words);
        parts.push((number.parse().unwrap_or(0), word.to_owned()));
        rest = tail;
    }
    parts
}
