//! The shell's commands, one line at a time.

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::shell::help;
use crate::show::Plural;
use crate::stats;
use crate::words::{Quoted, Word, split};
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::ops::Bound;
use weir::{Db, Durability, ErrorKind, Iter, Keyspace, Options, Snapshot, WriteBatch};

/// What follows a line that was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The next line.
    Next,
    /// The end of the session.
    Exit,
}

/// Why a line was not executed.
#[derive(Debug)]
pub(crate) enum Problem {
    /// The line is wrong or the store refused it; others may go well.
    Line(Failure),
    /// The shell has to end: no later command can succeed.
    Stop(Failure),
}

impl Problem {
    fn line(message: impl fmt::Display) -> Self {
        Self::Line(Failure::new(message))
    }
}

impl From<weir::Error> for Problem {
    fn from(error: weir::Error) -> Self {
        match error.kind() {
            ErrorKind::Poisoned | ErrorKind::Closed => Self::Stop(error.into()),
            _ => Self::Line(Failure::engine(&error)),
        }
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Self::Stop(failure)
    }
}

impl From<std::io::Error> for Problem {
    fn from(error: std::io::Error) -> Self {
        Self::Stop(error.into())
    }
}

type Outcome<T = ()> = Result<T, Problem>;

/// Writes that wait for the end of their batch.
struct OpenBatch {
    writes: WriteBatch,
    /// Lines between `batch` and here that were refused.
    refused: u64,
}

/// A conversation with a store.
pub(crate) struct Session<'a> {
    db: Db,
    keyspace: Keyspace,
    batch: Option<OpenBatch>,
    snapshots: BTreeMap<u64, Snapshot>,
    next_snapshot: u64,
    interrupt: &'a Interrupt,
}

impl<'a> Session<'a> {
    /// A conversation that begins in the default keyspace.
    pub(crate) fn new(db: Db, interrupt: &'a Interrupt) -> Self {
        let keyspace = db.default_keyspace().clone();
        let snapshots = BTreeMap::new();
        Self { db, keyspace, batch: None, snapshots, next_snapshot: 1, interrupt }
    }

    /// What to show before the next line is typed.
    pub(crate) fn prompt(&self) -> String {
        match &self.batch {
            Some(batch) => format!("batch of {}> ", batch.writes.len()),
            None if self.keyspace.name() == self.db.default_keyspace().name() => "weir> ".into(),
            None => format!("weir {}> ", self.keyspace.name()),
        }
    }

    /// The writes in a batch that was not ended.
    pub(crate) fn open_batch(&self) -> Option<Plural<'static>> {
        self.batch.as_ref().map(|batch| Plural(batch.writes.len() as u64, "write"))
    }

    /// Executes one line.
    pub(crate) fn line(&mut self, line: &[u8], out: &mut dyn Write) -> Outcome<Step> {
        let result = match split(line) {
            Ok(words) => self.words(&words, out),
            Err(message) => Err(Problem::line(message)),
        };
        if let (Err(Problem::Line(_)), Some(batch)) = (&result, &mut self.batch) {
            batch.refused += 1;
        }
        result
    }

    fn words(&mut self, words: &[Word], out: &mut dyn Write) -> Outcome<Step> {
        let Some((command, rest)) = words.split_first() else { return Ok(Step::Next) };
        let name = command.plain().unwrap_or_default();
        if self.batch.is_some() && !matches!(name, "put" | "del" | "end" | "abort" | "use" | "help")
        {
            return Err(Problem::line(format_args!(
                "{} does not go into a batch; only put, del and use do, then end or abort",
                Quoted(&command.bytes)
            )));
        }
        let mut words = Arguments { rest };
        match name {
            "put" => self.put(words)?,
            "get" => self.get(words, out)?,
            "del" => self.delete(words)?,
            "scan" => self.scan(words, true, out)?,
            "count" => self.scan(words, false, out)?,
            "stats" => {
                let prometheus = words.option("-p");
                words.end("stats [-p]")?;
                if prometheus {
                    write!(out, "{}", self.db.metrics().prometheus())?;
                } else {
                    stats::print(&self.db, out)?;
                }
            }
            "use" | "create" | "drop" => self.change_keyspace(name, words)?,
            "release" => {
                let number = words.number("release N")?;
                words.end("release N")?;
                self.snapshots.remove(&number).ok_or_else(|| no_snapshot(number))?;
            }
            "batch" | "end" | "abort" | "snapshot" | "snapshots" | "keyspaces" | "flush"
            | "compact" | "sync" | "help" | "exit" | "quit" => {
                words.end(name)?;
                return self.alone(name, out);
            }
            _ => {
                return Err(Problem::line(format_args!(
                    "{} is no command; type help for the list",
                    Quoted(&command.bytes)
                )));
            }
        }
        Ok(Step::Next)
    }

    /// The commands that take no words.
    fn alone(&mut self, name: &str, out: &mut dyn Write) -> Outcome<Step> {
        match name {
            "batch" => self.batch = Some(OpenBatch { writes: WriteBatch::new(), refused: 0 }),
            "end" => self.end_batch(out)?,
            "abort" => {
                let batch = self.batch.take().ok_or_else(no_batch)?;
                writeln!(out, "{} forgotten", Plural(batch.writes.len() as u64, "write"))?;
            }
            "snapshot" => {
                let snapshot = self.db.snapshot();
                let number = self.next_snapshot;
                self.next_snapshot += 1;
                writeln!(out, "@{number} at sequence {}", snapshot.sequence())?;
                self.snapshots.insert(number, snapshot);
            }
            "snapshots" => {
                for (number, snapshot) in &self.snapshots {
                    writeln!(out, "@{number} at sequence {}", snapshot.sequence())?;
                }
            }
            "keyspaces" => {
                for name in self.db.keyspaces() {
                    let here = if name == self.keyspace.name() { " (here)" } else { "" };
                    writeln!(out, "{}{here}", Quoted(name.as_bytes()))?;
                }
            }
            "flush" => self.keyspace.flush()?,
            "compact" => self.keyspace.compact_range(..)?,
            "sync" => self.db.sync()?,
            "help" => writeln!(out, "{}", help::TEXT)?,
            _ => return Ok(Step::Exit),
        }
        Ok(Step::Next)
    }

    fn put(&mut self, mut words: Arguments<'_>) -> Outcome {
        const FORM: &str = "put [-s] KEY VALUE";
        let durability = words.durability();
        words.no_more_options(FORM)?;
        let (key, value) = (words.next(FORM)?, words.next(FORM)?);
        words.end(FORM)?;
        match &mut self.batch {
            Some(_) if durability == Durability::Sync => return Err(sync_in_batch()),
            Some(batch) => batch.writes.put(&self.keyspace, key, value),
            None => self.keyspace.put_with(key, value, durability)?,
        }
        Ok(())
    }

    fn delete(&mut self, mut words: Arguments<'_>) -> Outcome {
        const FORM: &str = "del [-s] KEY";
        let durability = words.durability();
        words.no_more_options(FORM)?;
        let key = words.next(FORM)?;
        words.end(FORM)?;
        match &mut self.batch {
            Some(_) if durability == Durability::Sync => return Err(sync_in_batch()),
            Some(batch) => batch.writes.delete(&self.keyspace, key),
            None => self.keyspace.delete_with(key, durability)?,
        }
        Ok(())
    }

    fn get(&self, mut words: Arguments<'_>, out: &mut dyn Write) -> Outcome {
        const FORM: &str = "get KEY [@N]";
        let snapshot = self.snapshot(&mut words)?;
        words.no_more_options(FORM)?;
        let key = words.next(FORM)?;
        words.end(FORM)?;
        let value = match snapshot {
            Some(snapshot) => snapshot.get(&self.keyspace, key)?,
            None => self.keyspace.get(key)?,
        };
        match value {
            Some(value) => writeln!(out, "{}", Quoted(&value))?,
            None => writeln!(out, "(none)")?,
        }
        Ok(())
    }

    fn scan(&self, mut words: Arguments<'_>, show: bool, out: &mut dyn Write) -> Outcome {
        const FORM: &str = "scan [-r] [-n COUNT] [-k] [-p PREFIX | FROM [TO]] [@N]";
        let snapshot = self.snapshot(&mut words)?;
        let (mut backward, mut keys_only, mut limit, mut prefix) = (false, false, u64::MAX, None);
        loop {
            if words.option("-r") {
                backward = true;
            } else if words.option("-k") {
                keys_only = true;
            } else if words.option("-n") {
                limit = words.number(FORM)?;
            } else if words.option("-p") {
                prefix = Some(words.next(FORM)?);
            } else {
                break;
            }
        }
        words.no_more_options(FORM)?;
        let (from, to) = (words.maybe(), words.maybe());
        words.end(FORM)?;
        if prefix.is_some() && from.is_some() {
            return Err(Problem::line(format_args!("give a prefix or a range; write {FORM}")));
        }
        let range = (
            from.map_or(Bound::Unbounded, Bound::Included),
            to.map_or(Bound::Unbounded, Bound::Excluded),
        );
        let pairs = match (snapshot, prefix) {
            (None, None) => self.keyspace.range(range),
            (None, Some(prefix)) => self.keyspace.prefix(prefix),
            (Some(snapshot), None) => snapshot.range(&self.keyspace, range),
            (Some(snapshot), Some(prefix)) => snapshot.prefix(&self.keyspace, prefix),
        };
        let mut shown = Shown { show, keys_only, limit, seen: 0 };
        let ended = if backward {
            self.show(pairs.rev(), &mut shown, out)
        } else {
            self.show(pairs, &mut shown, out)
        };
        // A count that an error cut short is no answer.
        ended?;
        if !show {
            writeln!(out, "{}", shown.seen)?;
        }
        Ok(())
    }

    fn show(
        &self,
        pairs: impl Iterator<Item = <Iter as Iterator>::Item>,
        shown: &mut Shown,
        out: &mut dyn Write,
    ) -> Outcome {
        for pair in pairs {
            if shown.seen == shown.limit {
                break;
            }
            if self.interrupt.requested() {
                self.interrupt.clear();
                return Err(Problem::line(format_args!(
                    "interrupted after {}",
                    Plural(shown.seen, "pair")
                )));
            }
            let (key, value) = pair?;
            shown.seen += 1;
            match (shown.show, shown.keys_only) {
                (false, _) => {}
                (true, true) => writeln!(out, "{}", Quoted(&key))?,
                (true, false) => writeln!(out, "{} {}", Quoted(&key), Quoted(&value))?,
            }
        }
        Ok(())
    }

    /// The snapshot that the last word names, taken off the words.
    fn snapshot(&self, words: &mut Arguments<'_>) -> Outcome<Option<&Snapshot>> {
        let Some((last, rest)) = words.rest.split_last() else { return Ok(None) };
        let Some(digits) = last.plain().and_then(|word| word.strip_prefix('@')) else {
            return Ok(None);
        };
        words.rest = rest;
        let number: u64 = digits.parse().map_err(|_| {
            Problem::line(format_args!(
                "@{digits} is no snapshot number; quote the word if it is data"
            ))
        })?;
        self.snapshots.get(&number).map(Some).ok_or_else(|| no_snapshot(number))
    }

    fn change_keyspace(&mut self, command: &str, mut words: Arguments<'_>) -> Outcome {
        let form = format!("{command} NAME");
        let name = words.next(&form)?;
        words.end(&form)?;
        let name = std::str::from_utf8(name).map_err(|_| {
            Problem::line(format_args!("{} is no UTF-8; keyspace names are", Quoted(name)))
        })?;
        match command {
            "create" => self.keyspace = self.db.create_keyspace(name, Options::default())?,
            "drop" => {
                self.db.drop_keyspace(name)?;
                if name == self.keyspace.name() {
                    self.keyspace = self.db.default_keyspace().clone();
                }
            }
            _ => self.keyspace = self.db.open_keyspace(name)?,
        }
        Ok(())
    }

    fn end_batch(&mut self, out: &mut dyn Write) -> Outcome {
        let batch = self.batch.take().ok_or_else(no_batch)?;
        let count = Plural(batch.writes.len() as u64, "write");
        if batch.refused > 0 {
            return Err(Problem::line(format_args!(
                "the batch has {}; it was not applied ({count})",
                Plural(batch.refused, "refused line")
            )));
        }
        self.db.write(batch.writes, Durability::Buffered)?;
        writeln!(out, "{count} applied")?;
        Ok(())
    }
}

/// How pairs are shown, and how many were.
struct Shown {
    show: bool,
    keys_only: bool,
    limit: u64,
    seen: u64,
}

/// The words behind a command.
struct Arguments<'a> {
    rest: &'a [Word],
}

impl<'a> Arguments<'a> {
    /// The next word, if there is one.
    fn maybe(&mut self) -> Option<&'a [u8]> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(&first.bytes)
    }

    /// The next word, which `form` needs.
    fn next(&mut self, form: &str) -> Outcome<&'a [u8]> {
        self.maybe().ok_or_else(|| Problem::line(format_args!("a word is missing; write {form}")))
    }

    /// The next word as a number.
    fn number(&mut self, form: &str) -> Outcome<u64> {
        let word = self.next(form)?;
        std::str::from_utf8(word).ok().and_then(|text| text.parse().ok()).ok_or_else(|| {
            Problem::line(format_args!("{} is no number; write {form}", Quoted(word)))
        })
    }

    /// Whether the next word is this option; it is taken then.
    fn option(&mut self, name: &str) -> bool {
        let is = self.rest.first().is_some_and(|word| word.plain() == Some(name));
        if is {
            self.rest = &self.rest[1..];
        }
        is
    }

    fn durability(&mut self) -> Durability {
        if self.option("-s") { Durability::Sync } else { Durability::Buffered }
    }

    /// That the next word is no option that `form` does not know. A number may be negative.
    fn no_more_options(&self, form: &str) -> Outcome {
        let word = self.rest.first().and_then(|word| word.plain()).unwrap_or_default();
        let letter = word.strip_prefix('-').and_then(|rest| rest.chars().next());
        if !letter.is_some_and(char::is_alphabetic) {
            return Ok(());
        }
        Err(Problem::line(format_args!(
            "{word} is no option here; write {form} (if it is data, quote it: \"{word}\")"
        )))
    }

    /// That no word is left.
    fn end(&self, form: &str) -> Outcome {
        match self.rest.first() {
            None => Ok(()),
            Some(word) => Err(Problem::line(format_args!(
                "{} is one word too many; write {form} (quote words with spaces)",
                Quoted(&word.bytes)
            ))),
        }
    }
}

fn no_snapshot(number: u64) -> Problem {
    Problem::line(format_args!("there is no snapshot @{number}; type snapshot to take one"))
}

fn no_batch() -> Problem {
    Problem::line("no batch was begun; type batch first")
}

fn sync_in_batch() -> Problem {
    Problem::line("-s does not go into a batch; type sync after its end")
}
