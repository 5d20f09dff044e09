//! `weir shell`: commands typed at a store, or piped into it.
//!
//! Typed: line editing, errors shown and forgotten. Piped: an error goes to stderr with its line
//! number (once for all lines in a row that fail with the same words), the following lines still
//! run, and the exit code says that something failed, or that damage was met. A batch in which a
//! line failed is not written, and neither is one that the input does not end.

mod execute;
mod help;

use crate::failure::{EXIT_CODES, Failure, Result};
use crate::inspect::explain;
use crate::interrupt::Interrupt;
use crate::show::{Count, Plural};
use clap::Args;
use execute::{Problem, Session, Step};
use rustyline::error::ReadlineError;
use std::io::{BufRead, BufReader, BufWriter, IsTerminal, Read, Write};
use std::path::PathBuf;
use weir::{Db, ErrorKind};

/// Longest line that is read: room for a value of 16 MiB with every byte escaped.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// Options of `weir shell`.
#[derive(Args, Debug)]
#[command(after_long_help = format!("{}\n\n{EXIT_CODES}", help::TEXT))]
pub(crate) struct ShellArgs {
    /// The store: a directory, or a file or device that `weir format` made one
    dir: PathBuf,
    /// Create the store if there is none
    #[arg(long, conflicts_with = "read_only")]
    create: bool,
    /// Open the store for reading only
    #[arg(long)]
    read_only: bool,
}

/// Runs `weir shell`.
pub(crate) fn run(args: &ShellArgs, interrupt: &Interrupt, out: &mut dyn Write) -> Result<()> {
    let db = Db::builder(&args.dir)
        .create_if_missing(args.create)
        .read_only(args.read_only)
        .open()
        .map_err(|e| match e.kind() {
            // The directory cannot be made: the error says why.
            ErrorKind::NotFound if args.create => Failure::from(e),
            ErrorKind::NotFound if args.dir.exists() && !args.read_only => Failure::new(
                format_args!("there is no store in {}; --create makes one", args.dir.display()),
            ),
            ErrorKind::NotFound if !args.dir.exists() => Failure::new(format_args!(
                "there is no store in {dir}: it does not exist; name another, or make one: `weir \
                 shell --create {dir}` in a directory, `weir format {dir} --size 1g` in a file",
                dir = args.dir.display()
            )),
            _ => explain(&args.dir, e),
        })?;
    let mut session = Session::new(db.clone(), interrupt);
    let ended = if std::io::stdin().is_terminal() {
        typed(&mut session, args, interrupt, out)
    } else {
        // Answers are many and short: written together, but before anyone waits for them.
        piped(&mut session, interrupt, &mut BufWriter::new(out))
    };
    drop(session);
    let closed = db.close().map_err(Failure::from);
    ended.and(closed)
}

fn typed(
    session: &mut Session<'_>,
    args: &ShellArgs,
    interrupt: &Interrupt,
    out: &mut dyn Write,
) -> Result<()> {
    let broken = |e: ReadlineError| Failure::new(format_args!("cannot read the terminal: {e}"));
    let mut editor = rustyline::DefaultEditor::new().map_err(broken)?;
    writeln!(
        out,
        "Weir store in {}. Type help for the commands, exit to leave.",
        args.dir.display()
    )?;
    loop {
        out.flush()?;
        let line = match editor.readline(&session.prompt()) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => {
                writeln!(out, "Type exit or press Ctrl-D to leave.")?;
                continue;
            }
            Err(ReadlineError::Eof) => {
                if let Some(writes) = session.open_batch() {
                    eprintln!("the batch has no end; it was not applied ({writes})");
                }
                return Ok(());
            }
            Err(error) => return Err(broken(error)),
        };
        if !line.trim().is_empty() {
            editor.add_history_entry(line.as_str()).map_err(broken)?;
        }
        // A Ctrl-C that came while the last line ran is not for this one.
        interrupt.clear();
        match session.line(line.as_bytes(), out) {
            Ok(Step::Next) => {}
            Ok(Step::Exit) => return Ok(()),
            Err(Problem::Line(failure)) => eprintln!("{}", failure.message),
            Err(Problem::Stop(failure)) => return Err(failure),
        }
    }
}

fn piped(session: &mut Session<'_>, interrupt: &Interrupt, out: &mut dyn Write) -> Result<()> {
    let mut input = BufReader::with_capacity(1 << 16, std::io::stdin().lock());
    let mut line = Vec::new();
    let mut number = 0u64;
    let mut failed = Failed::default();
    loop {
        if interrupt.requested() {
            out.flush()?;
            return Err(Interrupt::failure());
        }
        line.clear();
        if input.buffer().is_empty() {
            // Who pipes may wait for the answers before the next line comes.
            out.flush()?;
        }
        let read = (&mut input)
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)
            .map_err(|e| Failure::new(format_args!("cannot read stdin: {e}")))?;
        if read == 0 {
            break;
        }
        number += 1;
        if read as u64 == LINE_BYTES_MAX {
            out.flush()?;
            return Err(Failure::new(format_args!(
                "line {number}: it is longer than {} bytes; use the library for such values",
                Count(LINE_BYTES_MAX)
            )));
        }
        let content = line.strip_suffix(b"\n").unwrap_or(&line);
        match session.line(content.strip_suffix(b"\r").unwrap_or(content), out) {
            Ok(Step::Next) => {}
            Ok(Step::Exit) => break,
            Err(Problem::Line(failure)) => {
                out.flush()?;
                failed.add(number, failure);
            }
            Err(Problem::Stop(failure)) => {
                out.flush()?;
                return Err(failure);
            }
        }
    }
    if let Some(writes) = session.open_batch() {
        out.flush()?;
        let what = format_args!("the batch has no end; it was not applied ({writes})");
        failed.add(number, Failure::new(what));
    }
    out.flush()?;
    failed.end()
}

/// The lines that failed so far. A store that is full refuses each of a million puts with the same
/// words: they are said once.
#[derive(Default)]
struct Failed {
    /// The worst of all lines: damage, if one of them met it.
    code: u8,
    /// The last sentence printed.
    message: String,
    /// Lines since then that failed with the same, and the last of them.
    same: u64,
    last: u64,
}

impl Failed {
    fn add(&mut self, number: u64, failure: Failure) {
        self.code = self.code.max(failure.code);
        if failure.message == self.message {
            (self.same, self.last) = (self.same + 1, number);
            return;
        }
        self.say_same();
        eprintln!("weir: line {number}: {}", failure.message);
        self.message = failure.message;
    }

    fn say_same(&mut self) {
        if self.same > 0 {
            let lines = Plural(self.same, "more line");
            eprintln!("weir: line {}: the same, as in {lines} up to here", self.last);
        }
        self.same = 0;
    }

    /// What all of it comes to. Every error was printed already.
    fn end(mut self) -> Result<()> {
        self.say_same();
        let code = self.code;
        if code == 0 { Ok(()) } else { Err(Failure { code, message: String::new() }) }
    }
}
