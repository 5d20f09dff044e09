//! TOML files that build on others, and whose every error names the file and the line.
//!
//! A file may name another one as its `base`: it says what the base says, and where it says
//! something itself, that holds. Tables are merged key by key; any other value, a list too, takes
//! the place of the base's. A base may have a base, up to [`FILES_MAX`] files in all.
//!
//! Tables are taken out of a document and given types one after the other: the options of a run are
//! deserialized once for each run, with what the run sets anew in their place, and what is wrong
//! with one of them is still found in the line that states it. For that a place is an offset into
//! all files of a document, one behind the other: each is parsed behind as many blanks as the files
//! before it have bytes.

use std::fmt::{self, Display, Formatter};
use std::ops::Range;
use std::str::FromStr;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Files of one document at most. More hide what holds.
pub const FILES_MAX: usize = 4;

/// A file: what it is called in errors, and what it says.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its name, as people find it.
    pub name: String,
    /// What it says.
    pub text: String,
}

/// Finds a base by its name, for the file of the other name.
pub type FindBase<'a> = &'a dyn Fn(&str, &str) -> Result<Source, String>;

/// A file and its base, the base of that, and so on; and options that are set from outside.
pub struct Files {
    files: Vec<File>,
    /// One line each, behind the files.
    sets: Vec<File>,
}

/// An option that is set from outside, by its full name: `store.eviction=s3_fifo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Its full name.
    pub option: String,
    /// Its value as it was typed: any of TOML, or a name without quotes.
    pub value: String,
}

impl FromStr for Set {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (option, value) =
            text.split_once('=').ok_or("this is no OPTION=VALUE, such as store.eviction=lru")?;
        let (option, value) = (option.trim().to_owned(), value.trim().to_owned());
        if option.is_empty() || value.is_empty() {
            return Err("the option or its value is missing".into());
        }
        Ok(Self { option, value })
    }
}

impl Display for Set {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.option, self.value)
    }
}

impl Set {
    /// One line of TOML; what is no value there is a name.
    fn to_toml(&self) -> String {
        let key = toml::Value::String(self.option.clone());
        let line = format!("{key} = {}", self.value);
        match toml::from_str::<toml::Table>(&line) {
            Ok(table) if table.len() == 1 => line,
            _ => format!("{key} = {}", toml::Value::String(self.value.clone())),
        }
    }
}

struct File {
    name: String,
    /// What it says, behind blanks up to `start`.
    text: String,
    start: usize,
}

/// A table of a document, with the places where its keys and values are stated.
pub type Table<'t> = Spanned<DeTable<'t>>;

/// What a file and its bases say together.
pub struct Document<'t> {
    files: &'t Files,
    /// What they say; callers take out what needs more than its type says.
    pub table: Table<'t>,
    /// What is set from outside, by full names.
    pub sets: DeTable<'t>,
}

impl Files {
    /// `source` and all bases behind it.
    ///
    /// # Errors
    /// A base that is not found, too many, or one that builds on itself, and where it is named.
    pub fn read(source: Source, find: FindBase<'_>) -> Result<Self, String> {
        let mut all = Self { files: Vec::new(), sets: Vec::new() };
        let mut next = Some(source);
        while let Some(source) = next {
            all.push(source);
            next = all.next(find)?;
        }
        Ok(all)
    }

    /// The same with `sets`; what is wrong with one of them is said of it.
    ///
    /// # Errors
    /// An option is set twice.
    pub fn with(mut self, sets: &[Set]) -> Result<Self, String> {
        for (i, set) in sets.iter().enumerate() {
            if sets[..i].iter().any(|other| other.option == set.option) {
                return Err(format!("--set {set}: {} is set twice", set.option));
            }
            let start = self.end();
            let text = " ".repeat(start) + &set.to_toml();
            self.sets.push(File { name: format!("--set {set}"), text, start });
        }
        Ok(self)
    }

    /// The base of the last file, if it has one.
    fn next(&self, find: FindBase<'_>) -> Result<Option<Source>, String> {
        let Some(last) = self.files.last() else { return Ok(None) };
        let Some(base) = self.parse(last)?.get_mut().remove("base") else { return Ok(None) };
        let wrong =
            |message: &dyn Display| Err(self.wrong(base.span(), &format_args!("base: {message}")));
        let DeValue::String(name) = base.get_ref() else {
            return wrong(&"this is no name of a file");
        };
        let found = match find(name, &last.name) {
            Ok(found) => found,
            Err(error) => return wrong(&error),
        };
        let mut names: Vec<&str> = self.files.iter().map(|file| file.name.as_str()).collect();
        let circle = names.contains(&found.name.as_str());
        names.push(&found.name);
        let names = names.join(", ");
        if circle {
            return wrong(&format_args!("a file builds on itself: {names}"));
        }
        if self.files.len() == FILES_MAX {
            return wrong(&format_args!("more than {FILES_MAX} files: {names}"));
        }
        Ok(Some(found))
    }

    /// The name of the first file.
    #[must_use]
    pub fn name(&self) -> &str {
        self.files.first().map_or("", |file| &file.name)
    }

    /// Where the next file starts: one more, so that the end of a file is not its start.
    fn end(&self) -> usize {
        self.sets.last().or(self.files.last()).map_or(0, |last| last.text.len() + 1)
    }

    fn push(&mut self, source: Source) {
        let start = self.end();
        let text = " ".repeat(start) + &source.text;
        self.files.push(File { name: source.name, text, start });
    }

    fn parse<'t>(&self, file: &'t File) -> Result<Table<'t>, String> {
        DeTable::parse(&file.text).map_err(|error| {
            let place = error.span().unwrap_or(file.start..file.start);
            self.wrong(place, &error.message())
        })
    }

    /// An error at `place`.
    fn wrong(&self, place: Range<usize>, message: &dyn Display) -> String {
        if let Some(set) = self.sets.iter().rfind(|set| set.start <= place.start) {
            return format!("{}: {message}", set.name);
        }
        let file = self.files.iter().rfind(|file| file.start <= place.start);
        let line = file
            .and_then(|file| file.text.get(..place.start))
            .map_or(0, |before| before.matches('\n').count() + 1);
        format!("{}: line {line}: {message}", file.map_or("", |file| &file.name))
    }
}

impl<'t> Document<'t> {
    /// What `files` say together.
    ///
    /// # Errors
    /// What is no TOML, and where.
    pub fn parse(files: &'t Files) -> Result<Self, String> {
        let (mut table, mut span) = (DeTable::new(), 0..0);
        for file in files.files.iter().rev() {
            let upper = files.parse(file)?;
            span = upper.span();
            overlay(&mut table, upper.into_inner());
        }
        table.remove("base");
        let mut sets = DeTable::new();
        for set in &files.sets {
            sets.extend(files.parse(set)?.into_inner());
        }
        Ok(Self { files, table: Spanned::new(span, table), sets })
    }

    /// `table` as a `T`.
    ///
    /// # Errors
    /// The key that is missing, unknown or wrong, and where.
    pub fn typed<T: DeserializeOwned>(&self, table: Table<'t>) -> Result<T, String> {
        let whole = table.span();
        T::deserialize(toml::Deserializer::from(table)).map_err(|error| {
            // Two lines: the message, and the keys that lead to the value.
            let message = error.to_string().trim_end().replace('\n', ", ");
            self.files.wrong(error.span().unwrap_or(whole), &message)
        })
    }

    /// An error about what is stated at `place`, a value or a key of this document.
    #[must_use]
    pub fn wrong<T>(&self, place: &Spanned<T>, message: impl Display) -> String {
        self.files.wrong(place.span(), &message)
    }
}

/// Puts what `upper` says over what `table` says.
fn overlay<'t>(table: &mut DeTable<'t>, upper: DeTable<'t>) {
    for (key, value) in upper {
        let span = value.span();
        let below = table.remove(key.get_ref().as_ref()).map(Spanned::into_inner);
        let value = match (below, value.into_inner()) {
            (Some(DeValue::Table(mut below)), DeValue::Table(upper)) => {
                overlay(&mut below, upper);
                DeValue::Table(below)
            }
            (_, value) => value,
        };
        table.insert(key, Spanned::new(span, value));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A document of `files`, names and texts, the first of which is read.
    fn document(files: &[(&str, &str)]) -> Result<toml::Table, String> {
        let find = |name: &str, from: &str| {
            let found = files.iter().find(|(known, _)| *known == name);
            let (name, text) = found.ok_or_else(|| format!("{from} names {name:?}"))?;
            Ok(Source { name: (*name).to_owned(), text: (*text).to_owned() })
        };
        let first = find(files[0].0, "")?;
        let files = Files::read(first, &find)?;
        let document = Document::parse(&files)?;
        document.typed(document.table.clone())
    }

    /// Goal: the rules of merging. Method: one key for each rule, in three files.
    #[test]
    fn tables_merge_and_values_replace() {
        let merged = document(&[
            ("a", "base = 'b'\nown = 1\nlist = [3]\nall.both = 'a'\nall.a = 1\nturned = 1"),
            ("b", "base = 'c'\nmiddle = 1\nlist = [1, 2]\n[all]\nboth = 'b'\nb.deep = 1"),
            ("c", "list = [0]\nturned = { x = 1 }\n[all]\nboth = 'c'\nb = { deep = 0, c = 1 }"),
        ]);
        let wanted = "own = 1\nmiddle = 1\nlist = [3]\nturned = 1\n[all]\nboth = 'a'\na = 1\n\
                      b = { deep = 1, c = 1 }";
        assert_eq!(merged.expect("merged"), toml::from_str(wanted).expect("parses"));
    }

    /// Goal: whatever is wrong with a base is said where it is named, and what a base says wrongly
    /// where it says it.
    #[test]
    fn errors_name_the_file() {
        let chain = ["a", "b", "c", "d", "e"];
        let long: Vec<(&str, String)> =
            (0..5).map(|i| (chain[i], format!("base = '{}'", chain[(i + 1) % 5]))).collect();
        let long: Vec<(&str, &str)> = long.iter().map(|(name, text)| (*name, &**text)).collect();
        for (files, error) in [
            (&[("a", "\nbase = 'b'")][..], "a: line 2: base: a names \"b\""),
            (&[("a", "base = 'a'")], "a: line 1: base: a file builds on itself: a, a"),
            (
                &[("a", "base = 'b'"), ("b", "# b\n\nbase = 'a'")],
                "b: line 3: base: a file builds on itself: a, b, a",
            ),
            (&long, "d: line 1: base: more than 4 files: a, b, c, d, e"),
            (&[("a", "base = 1")], "a: line 1: base: this is no name of a file"),
        ] {
            assert_eq!(document(files).expect_err(error), error);
        }
        for (files, start) in [
            (&[("a", "base = 'b'\n"), ("b", "x = 1\n= 2")][..], "b: line 2: "),
            (&[("a", "base = 'b'\nx = ")], "a: line 2: "),
        ] {
            let error = document(files).expect_err(start);
            assert!(error.starts_with(start), "{error}");
        }
        // The last byte of one file and the first of the next are told apart.
        let find = |_: &str, _: &str| Ok(Source { name: "b".into(), text: "y = 1".into() });
        let first = Source { name: "a".into(), text: "base = 'b'\nx = 1".into() };
        let files = Files::read(first, &find).expect("read");
        let document = Document::parse(&files).expect("parsed");
        for (key, place) in [("x", "a: line 2: !"), ("y", "b: line 1: !")] {
            let (stated, value) = document.table.get_ref().get_key_value(key).expect(key);
            assert_eq!(document.wrong(stated, '!'), place);
            assert_eq!(document.wrong(value, '!'), place);
        }
    }
}
