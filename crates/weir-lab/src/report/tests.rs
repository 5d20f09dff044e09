//! Goal: the page is complete, stands alone and is well-formed, whatever results say. Method: the
//! plots' sample results, and awkward ones; the page parsed as XML.

use super::*;
use crate::plot::tests::samples;
use crate::result::Differs;

fn parsed(page: &str) -> roxmltree::Document<'_> {
    let body = page.strip_prefix("<!DOCTYPE html>\n").expect("the document type comes first");
    roxmltree::Document::parse(body).expect("well-formed")
}

/// Goal: every number of every experiment is there, with its verdict, settings and command.
#[test]
fn the_page_has_everything() {
    let mut results = samples();
    results[0].numbers[0].ours = 12.0;
    results[1].numbers[0].low = None;
    results[1].numbers[0].high = None;
    let ours = results[2].numbers[0].ours;
    results[2].numbers[0].low = Some(ours + 1.0);
    results[2].numbers[0].high = Some(ours + 2.0);
    let because = "for a reason".to_owned();
    results[2].numbers[0].differs = Some(Differs { low: ours, high: ours, because });
    let guard = Number { name: "a guard".into(), guard: true, ..results[1].numbers[0].clone() };
    results[1].numbers.push(Number { low: Some(f64::MIN), ..guard });
    let page = html(&results).expect("made");
    let document = parsed(&page);
    let all: String = document.descendants().filter_map(|node| node.text()).collect();
    let count = |class: &str, name: &str| {
        let cells = document.descendants().filter(|node| node.tag_name().name() == "td");
        cells.filter(|n| n.attribute("class") == Some(class) && n.text() == Some(name)).count()
    };
    assert_eq!(count("fails", "✗ outside"), 1);
    assert_eq!(count("open", "– open"), 1);
    assert_eq!(count("holds", "✓ holds"), 1);
    assert_eq!(count("differs", "≠ differs"), 1);
    let summary = "4 experiments with 4 reproductions: 1 holds in all seeds, 1 outside, 1 differs, \
                   1 open; 1 guard, 0 of them outside";
    assert!(all.contains(summary), "{all}");
    assert!(all.contains("Here: for a reason"));
    for result in &results {
        for text in [&result.title, &result.command, &result.numbers[0].note, &result.notes[0]] {
            assert!(all.contains(text.as_str()), "{text}");
        }
    }
    let figures = document.descendants().filter(|n| n.tag_name().name() == "svg").count();
    assert_eq!(figures, results.len());
    // Every link of the contents leads somewhere.
    for link in document.descendants().filter_map(|node| node.attribute("href")) {
        let id = link.strip_prefix('#').expect("leads into the page");
        assert!(document.descendants().any(|node| node.attribute("id") == Some(id)), "{id}");
    }
    assert_eq!(page, html(&results).expect("made"), "the same bytes");
}

/// Goal: several seeds of an experiment are one figure, with each value, their range and the worst
/// verdict. Method: a second seed of one sample, which is outside.
#[test]
fn seeds_are_one_figure() {
    let mut results = samples();
    let mut second = results[1].clone();
    second.seed = 2;
    second.numbers[0].ours = 12.0;
    results.push(second);
    let page = html(&results).expect("made");
    let document = parsed(&page);
    let figures = document.descendants().filter(|n| n.tag_name().name() == "svg").count();
    assert_eq!(figures, samples().len());
    for part in [
        "<span>84.2</span> <span>12</span>",
        "data-label=\"Range\">12 to 84.2</td>",
        "seeds 1, 2",
        "✗ outside",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

/// Goal: nothing is loaded from elsewhere, nothing runs.
#[test]
fn the_page_stands_alone() {
    let page = html(&samples()).expect("made");
    for node in parsed(&page).descendants() {
        assert!(!["script", "link", "img", "iframe"].contains(&node.tag_name().name()));
        assert!(node.attribute("src").is_none());
    }
    assert!(!page.contains("url(") && !page.contains("@import"));
}

/// Goal: no text of a result becomes markup. Method: the same hostile text everywhere.
#[test]
fn every_text_is_escaped() {
    let evil = "\"'><script>alert(1)</script></style>&amp;<!--]]>\u{0}\u{8}\u{ffff}";
    let mut results = samples();
    for result in &mut results {
        let texts = [&mut result.experiment, &mut result.paper, &mut result.figure];
        for text in texts.into_iter().chain([&mut result.title, &mut result.command]) {
            *text = evil.to_owned();
        }
        for series in result.series.iter_mut().chain(&mut result.paper_lines) {
            (series.name, series.unit) = (evil.to_owned(), evil.to_owned());
            series.labels = vec![evil.to_owned(); series.labels.len()];
        }
        result.numbers[0].name = evil.to_owned();
        result.numbers[0].unit = evil.to_owned();
        result.numbers[0].note = evil.to_owned();
        let because = evil.to_owned();
        result.numbers[0].differs = Some(Differs { low: 1.0, high: 2.0, because });
        result.settings.insert(evil.to_owned(), evil.to_owned());
        result.notes = vec![evil.to_owned()];
        result.x.label = evil.to_owned();
        result.y.unit = evil.to_owned();
    }
    let page = html(&results).expect("made");
    let document = parsed(&page);
    assert!(!document.descendants().any(|node| node.tag_name().name() == "script"));
}

/// Goal: no results give a page that says so; figures are in the papers' order.
#[test]
fn order_and_nothing() {
    parsed(&html(&[]).expect("made"));
    let mut figures = ["Figure 12", "2a", "11b", "11a", "Table 1", "9"];
    figures.sort_by_cached_key(|figure| natural(figure));
    assert_eq!(figures, ["Figure 12", "Table 1", "2a", "9", "11a", "11b"]);
}
