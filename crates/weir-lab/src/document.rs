//! A TOML file whose every error names the file and the line.
//!
//! Tables are taken out of it and given types one after the other: the options of a run are
//! deserialized once for each run, with what the run sets anew in their place, and what is wrong
//! with one of them is still found in the line that states it.

use std::fmt::Display;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A file: what it is called in errors, and what it says.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its name, as people find it.
    pub name: String,
    /// What it says.
    pub text: String,
}

/// A table of a document, with the places where its keys and values are stated.
pub type Table<'t> = Spanned<DeTable<'t>>;

/// A file that was read.
pub struct Document<'t> {
    source: &'t Source,
    /// What it says; callers take out what needs more than its type says.
    pub table: Table<'t>,
}

impl<'t> Document<'t> {
    /// Reads `source`.
    ///
    /// # Errors
    /// What is no TOML, and where.
    pub fn parse(source: &'t Source) -> Result<Self, String> {
        match DeTable::parse(&source.text) {
            Ok(table) => Ok(Self { source, table }),
            Err(error) => Err(located(source, error.span().map(|s| s.start), error.message())),
        }
    }

    /// `table` as a `T`.
    ///
    /// # Errors
    /// The key that is missing, unknown or wrong, and where.
    pub fn typed<T: DeserializeOwned>(&self, table: Table<'t>) -> Result<T, String> {
        T::deserialize(toml::Deserializer::from(table)).map_err(|error| {
            // Two lines: the message, and the keys that lead to the value.
            let message = error.to_string().trim_end().replace('\n', ", ");
            located(self.source, error.span().map(|span| span.start), &message)
        })
    }

    /// An error about what is stated at `place`, a value or a key of this document.
    #[must_use]
    pub fn wrong<T>(&self, place: &Spanned<T>, message: impl Display) -> String {
        located(self.source, Some(place.span().start), &message.to_string())
    }
}

/// Takes the table called `name` out of `table`; `None` if there is no table of that name.
pub fn take<'t>(table: &mut DeTable<'t>, name: &str) -> Option<Table<'t>> {
    let value = table.remove(name)?;
    let span = value.span();
    match value.into_inner() {
        DeValue::Table(inner) => Some(Spanned::new(span, inner)),
        _ => None,
    }
}

/// `message` with the file it is about, and the line, if that is known.
fn located(source: &Source, start: Option<usize>, message: &str) -> String {
    match start.and_then(|start| source.text.get(..start)) {
        Some(before) => {
            let line = before.matches('\n').count() + 1;
            format!("{}: line {line}: {message}", source.name)
        }
        None => format!("{}: {message}", source.name),
    }
}
