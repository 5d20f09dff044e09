//! From the files of an experiment to what they state.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Experiment, PaperLine, Plot, Point, Run, Wanted};
use crate::document::{Document, Files, Table, take};
use crate::engine;
use crate::policies::Policy;
use crate::settings::Settings;

/// What a file has beside `settings` and what its runs set.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stated {
    paper: String,
    figure: String,
    title: String,
    notes: Vec<String>,
    runs: Vec<StatedRun>,
    plot: Plot,
    paper_lines: Vec<PaperLine>,
    numbers: Vec<Wanted>,
}

/// What a run has beside what it sets.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatedRun {
    name: String,
    point: Option<Point>,
    #[serde(default)]
    long: bool,
}

impl Experiment {
    /// The experiment in `files`, which is called `name`.
    ///
    /// # Errors
    /// The key that is missing, unknown or wrong, with the file and the line.
    pub fn parse(name: &str, files: &Files) -> Result<Self, String> {
        let mut document = Document::parse(files)?;
        let wrong = |e: &dyn std::fmt::Display| format!("{}: {e}", files.name());
        let sets = std::mem::take(&mut document.sets);
        set_for_all(&mut document, &sets)?;
        let whole = document.typed(document.table.clone())?;
        let table = document.table.get_mut();
        let settings = take(table, "settings").ok_or_else(|| wrong(&"there is no [settings]"))?;
        let of_runs = take_sets(table);
        let stated: Stated = document.typed(document.table.clone())?;
        // What is wrong here is wrong even if every run sets it anew.
        let _: Settings = document.typed(settings.clone())?;
        let mut runs = Vec::new();
        for (StatedRun { name, point, long }, set) in stated.runs.into_iter().zip(of_runs) {
            let named = |e: String| format!("{e}, of the run {name:?}");
            let own = with_set(&document, &settings, &set).map_err(named)?;
            let mut stated: toml::Table = document.typed(own.clone())?;
            let typed: Settings = document.typed(own).map_err(named)?;
            let used = typed.policies_used();
            without_unused_policies(&mut stated, &used);
            refuse_unused_policies(&document, &set, &used).map_err(named)?;
            typed.check().map_err(|e| wrong(&named(e)))?;
            let settings = typed.without_unused_policies().map_err(|e| wrong(&named(e)))?;
            engine::check(&settings).map_err(|e| wrong(&named(e)))?;
            let set = by_full_name(&document.typed(Spanned::new(0..0, set))?);
            runs.push(Run { name, point, long, set, stated, settings });
        }
        if runs.is_empty() {
            return Err(wrong(&"there are no [[runs]]"));
        }
        for (kind, twice) in [
            ("runs", twice(runs.iter().map(|run| run.name.as_str()))),
            ("numbers", twice(stated.numbers.iter().map(|number| number.name.as_str()))),
        ] {
            if let Some(name) = twice {
                return Err(wrong(&format_args!("two {kind} are called {name:?}")));
            }
        }
        let used: Vec<Policy> = runs.iter().flat_map(|run| run.settings.policies_used()).collect();
        refuse_unused_policies(&document, &sets, &used)?;
        stated.plot.check(&runs).map_err(|e| wrong(&format!("plot: {e}")))?;
        for number in &stated.numbers {
            number.check(&runs).map_err(|e| wrong(&format!("number {:?}: {e}", number.name)))?;
        }
        let mut options: toml::Table = document.typed(settings)?;
        without_unused_policies(&mut options, &used);
        Ok(Self {
            name: name.to_owned(),
            source: name.to_owned(),
            paper: stated.paper,
            figure: stated.figure,
            title: stated.title,
            notes: stated.notes,
            options: by_full_name(&options),
            set: by_full_name(&document.typed(Spanned::new(0..0, sets))?),
            whole,
            runs,
            plot: stated.plot,
            paper_lines: stated.paper_lines,
            numbers: stated.numbers,
            short: false,
        })
    }
}

/// The first name that comes twice.
fn twice<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut known = BTreeSet::new();
    names.into_iter().find(|name| !known.insert(*name))
}

/// Puts what is set from outside into `[settings]` and takes it from what runs set: it holds for
/// every run, also where a run has its own value.
fn set_for_all<'t>(document: &mut Document<'t>, sets: &DeTable<'t>) -> Result<(), String> {
    let mut table = document.table.clone();
    let table = table.get_mut();
    if let Some(settings) = table.get_mut("settings")
        && let DeValue::Table(stated) = settings.get_ref()
    {
        let stated = Spanned::new(settings.span(), stated.clone());
        let set = with_set(document, &stated, sets)?;
        *settings = Spanned::new(set.span(), DeValue::Table(set.into_inner()));
    }
    let runs = table.get_mut("runs").map(Spanned::get_mut);
    let runs = match runs {
        Some(DeValue::Array(runs)) => runs.iter_mut(),
        _ => [].iter_mut(),
    };
    for run in runs {
        let DeValue::Table(run) = run.get_mut() else { continue };
        let Some(DeValue::Table(own)) = run.get_mut("set").map(Spanned::get_mut) else { continue };
        for option in sets.keys() {
            own.remove(option.get_ref().as_ref());
        }
    }
    document.table = Spanned::new(document.table.span(), std::mem::take(table));
    Ok(())
}

/// Takes what each run sets out of `[[runs]]`; nothing where a run sets nothing.
fn take_sets<'t>(table: &mut DeTable<'t>) -> Vec<DeTable<'t>> {
    let runs = table.get_mut("runs").map(Spanned::get_mut);
    let Some(DeValue::Array(runs)) = runs else { return Vec::new() };
    let set = |run: &mut Spanned<DeValue<'t>>| match run.get_mut() {
        DeValue::Table(run) => take(run, "set").map(Spanned::into_inner).unwrap_or_default(),
        _ => DeTable::new(),
    };
    runs.iter_mut().map(set).collect()
}

/// `settings` with the options that a run sets in their place.
fn with_set<'t>(
    document: &Document<'t>,
    settings: &Table<'t>,
    set: &DeTable<'t>,
) -> Result<Table<'t>, String> {
    let mut tree = settings.clone();
    for (option, value) in set {
        let name = option.get_ref().as_ref();
        let mut keys = name.split('.');
        let first = keys.next().and_then(|key| tree.get_mut().get_mut(key));
        let place = keys.try_fold(first, |place, key| Some(inner(place?, key)));
        match place.flatten() {
            Some(place) if !matches!(place.get_ref(), DeValue::Table(_)) => *place = value.clone(),
            _ => {
                let there = there(settings.get_ref(), name);
                let message = format_args!("there is no option {name:?} in [settings]{there}");
                return Err(document.wrong(option, message));
            }
        }
    }
    Ok(tree)
}

/// What is called `key` in a table, or in a list of tables that have names: a phase.
fn inner<'a, 't>(
    place: &'a mut Spanned<DeValue<'t>>,
    key: &str,
) -> Option<&'a mut Spanned<DeValue<'t>>> {
    let is_named = |item: &Spanned<DeValue<'t>>| match item.get_ref() {
        DeValue::Table(table) => {
            let name = table.get("name").map(Spanned::get_ref);
            matches!(name, Some(DeValue::String(name)) if name == key)
        }
        _ => false,
    };
    match place.get_mut() {
        DeValue::Table(table) => table.get_mut(key),
        DeValue::Array(items) => items.iter_mut().find(|item| is_named(item)),
        _ => None,
    }
}

/// What there is in the innermost table of `settings` on the way to the option `name`.
fn there(settings: &DeTable<'_>, name: &str) -> String {
    let (mut table, mut place) = (settings, "settings".to_owned());
    for key in name.split('.') {
        let Some(DeValue::Table(inner)) = table.get(key).map(Spanned::get_ref) else { break };
        (table, place) = (inner, format!("{place}.{key}"));
    }
    let mut names: Vec<&str> = table.keys().map(|key| key.get_ref().as_ref()).collect();
    names.sort_unstable();
    format!("; [{place}] has {}", names.join(", "))
}

/// That a run sets no option of a policy that it does not use.
fn refuse_unused_policies(
    document: &Document<'_>,
    set: &DeTable<'_>,
    used: &[Policy],
) -> Result<(), String> {
    for option in set.keys() {
        let mut keys = option.get_ref().split('.');
        if keys.next() == Some("policies")
            && let Some(name) = keys.next()
            && !used.iter().any(|policy| policy.name() == name)
        {
            return Err(document.wrong(option, format_args!("the policy {name} is not used")));
        }
    }
    Ok(())
}

/// Drops the options of all policies but `used` from settings.
fn without_unused_policies(settings: &mut toml::Table, used: &[Policy]) {
    if let Some(policies) = settings.get_mut("policies").and_then(toml::Value::as_table_mut) {
        policies.retain(|name, _| used.iter().any(|policy| policy.name() == name));
    }
}

/// The options of a table and of the tables in it as text, by their full names. Tables of a list
/// are called by their names, or by their numbers if they have none.
fn by_full_name(table: &toml::Table) -> BTreeMap<String, String> {
    fn collect(prefix: &str, table: &toml::Table, all: &mut BTreeMap<String, String>) {
        for (key, value) in table {
            match value {
                toml::Value::Table(inner) => collect(&format!("{prefix}{key}."), inner, all),
                toml::Value::Array(items) if items.iter().all(toml::Value::is_table) => {
                    for (number, item) in items.iter().filter_map(toml::Value::as_table).enumerate()
                    {
                        let name = item.get("name").and_then(toml::Value::as_str);
                        let name = name.map_or_else(|| number.to_string(), str::to_owned);
                        collect(&format!("{prefix}{key}.{name}."), item, all);
                    }
                }
                value => {
                    all.insert(format!("{prefix}{key}"), shown(value));
                }
            }
        }
    }
    let mut all = BTreeMap::new();
    collect("", table, &mut all);
    all
}

/// A value as people write it.
fn shown(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Float(number) => number.to_string(),
        toml::Value::Boolean(yes) => yes.to_string(),
        toml::Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(", "),
        other => format!("{other:?}"),
    }
}
