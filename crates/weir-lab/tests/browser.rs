//! Goal: a real browser shows the report on a phone without anything that sticks out, and in the
//! dark with light text. Method: a page of made-up results in a frame that is 400 pixels wide, in a
//! Chromium without a window; a script around the frame writes down what it measures. Without a
//! browser nothing is checked, and the test says so: it is no package that the project needs.

use std::path::Path;
use std::process::Command;

use weir_lab::report;
use weir_lab::result::Result as Outcome;

const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Made-up results, as wide as real ones get, from two seeds.
fn results() -> Vec<Outcome> {
    let text = r#"{
        "experiment": "made-up", "paper": "LSbM", "figure": "12",
        "title": "A title that is longer than a phone is wide, under writes, reads in a hot range",
        "scale": 64, "seed": 1,
        "command": "weir lab run made-up --scale 64 --set store.block_cache_bytes=6442450944",
        "settings": {"a run with a long name: policies.two_phase.base_level_bytes": "1073741824"},
        "kind": "bars", "x": {"label": "tree", "unit": ""}, "y": {"label": "gain", "unit": "1/s"},
        "series": [{"name": "gain", "unit": "1/s", "points": [[0, 1234.5], [1, 2345.6]],
                    "labels": ["bLSM", "key-value cache"]}],
        "paper_lines": [], "virtual_seconds": 1.0, "real_seconds": 1.0,
        "notes": ["bLSM at its end: level_4_and_a_word_that_is_much_longer_than_a_phone_is"],
        "numbers": [{"name": "update rate, level 1 over level 2, two-phase", "unit": "1/s",
                     "statistic": "mean of windows", "ours": 1234.5, "paper": 2000.0,
                     "low": 1000.0, "high": 3000.0,
                     "note": "where the bounds come from, at length"}]
    }"#;
    let first = Outcome::from_json(text).expect("a result");
    let second = Outcome { seed: 2, ..first.clone() };
    vec![first, second]
}

#[expect(clippy::disallowed_methods, reason = "the test's own files")]
fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("written");
}

/// What the script around the frame wrote down, in a browser that prefers dark pages or not.
fn measured(browser: &str, dir: &Path, dark: bool) -> Vec<String> {
    let scheme = format!("--blink-settings=preferredColorScheme={}", u8::from(!dark));
    let profile = format!("--user-data-dir={}", dir.join("profile").display());
    let around = format!("file://{}", dir.join("around.html").display());
    // Without a sandbox, which root and many containers do not have: the page is our own.
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"])
        .args(["--virtual-time-budget=10000", "--dump-dom", &scheme, &profile, &around])
        .output()
        .expect("the browser can be started");
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let title = dom.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>"));
    let Some((title, _)) = title else { panic!("{}: {output:?}", browser) };
    title.split(' ').map(str::to_owned).collect()
}

#[test]
fn a_phone_shows_the_report() {
    let started = |name: &&&str| Command::new(name).arg("--version").output().is_ok();
    let Some(browser) = BROWSERS.iter().find(started) else {
        println!("skipped: there is no browser; the Debian package chromium has one");
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    write(&dir.path().join("page.html"), &report::html(&results()).expect("made"));
    write(
        &dir.path().join("around.html"),
        r#"<!DOCTYPE html><title>nothing</title>
        <iframe width="400" height="800" style="border: 0" src="page.html" onload="
            const page = this.contentDocument.documentElement, body = this.contentDocument.body;
            const color = (what) => getComputedStyle(body)[what].replaceAll(' ', '');
            const figure = page.querySelector('figure svg').getBoundingClientRect();
            const colors = [color('color'), color('backgroundColor')];
            const sizes = [page.scrollWidth, page.clientWidth, Math.round(figure.height)];
            document.title = sizes.concat(colors).join(' ');
        "></iframe>"#,
    );
    for (dark, ink, paper) in
        [(false, "rgb(29,29,31)", "rgb(255,255,255)"), (true, "rgb(230,230,230)", "rgb(23,25,28)")]
    {
        let found = measured(browser, dir.path(), dark);
        let [width, room, height, found_ink, found_paper] = found.as_slice() else {
            panic!("the script measured {found:?}");
        };
        assert_eq!(width, room, "the page is wider than the phone");
        assert!(height.parse::<u32>().is_ok_and(|height| height > 200), "a figure of {height}");
        assert_eq!((found_ink.as_str(), found_paper.as_str()), (ink, paper));
    }
}
