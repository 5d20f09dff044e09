//! How a command ends when it does not end well: one sentence on stderr and an exit code.

use std::error::Error as _;
use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

/// Exit code of a command that failed.
pub(crate) const ERROR: u8 = 1;

/// Exit code of a command line that is wrong, independent of what is on the disk.
const USAGE: u8 = 2;

/// Exit code of every command that met damage, lost data, or got answers that differ from what
/// they must be.
pub(crate) const DIFFERENCE: u8 = 3;

/// The last section of `--help`. Most usage errors (2) come from the argument parser.
pub(crate) const EXIT_CODES: &str = "Exit codes:
  0  done
  1  an error; one sentence on stderr says what happened and what to do
  2  the command line was wrong
  3  the store is damaged, data was lost, or an answer is not what it must be
130  interrupted; the store was closed cleanly";

/// The engine's options that the command line sets.
const OPTIONS: [(&str, &str); 17] = [
    ("write_buffer_bytes", "--write-buffer"),
    ("table_bytes", "--table-bytes"),
    ("write_buffer_entries", "--write-buffer-entries"),
    ("immutables_max", "--immutables"),
    ("bloom_bits", "--bloom-bits"),
    ("background_threads", "--background-threads"),
    ("level_ratio", "--level-ratio"),
    ("base_level_bytes", "--base-level-bytes"),
    ("l0_trigger", "--l0-trigger"),
    ("runs_per_level", "--runs-per-level"),
    ("theta", "--theta"),
    ("number of buckets", "--buckets"),
    ("the window of sentinels", "--heat-window"),
    ("idle_compaction", "--idle-compaction"),
    ("odd_chunk", "--odd-chunk"),
    ("block_cache_bytes", "--cache"),
    ("memory_budget", "the memory of --cache and --write-buffer"),
];

/// What the engine's sentences say to programs, and what people at a terminal can do.
const WORDS: [(&str, &str); 10] = [
    ("without read_only", "without --read-only"),
    ("lose that by `force`", "lose that by --force"),
    ("shall be (`size`)", "shall be: --size 20g, for example"),
    (
        "let this process read and write the store's directory and its files,",
        "let this user read and write the store's directory and its files (chown, chmod), run weir \
         as the user to whom they belong,",
    ),
    ("can be read (`read_only`)", "can be read (`--read-only`)"),
    ("open the store with `read_only`", "look at the store with `weir shell --read-only`"),
    (
        "memory_budget / 8 and log_area_bytes / 4",
        "an eighth of its memory and a quarter of its log",
    ),
    (
        ", drop a keyspace, or choose smaller log_segment_bytes and write_buffer_bytes",
        " or drop a keyspace",
    ),
    (
        ", drop a keyspace, or choose smaller write_buffer_bytes",
        ", drop a keyspace, or let it keep back less by smaller options than `weir options PATH` \
         shows (`--write-buffer 1m --table-bytes 1m`, for example, and `--base-level-bytes 4m` \
         where the policy has it; they last until they are set back)",
    ),
    (", drop a keyspace, or choose larger table_bytes", " or drop a keyspace"),
];

/// An input or output error, on Linux.
const EIO: i32 = 5;

/// What to do about it.
const DEVICE_ADVICE: &str = "; look at the device and the system's log";

/// The result of a command.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// Why a command ends.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The process's exit code.
    pub(crate) code: u8,
    /// The sentence; empty if there is nothing to say.
    pub(crate) message: String,
}

impl Failure {
    /// An error that reads `message`.
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        Self { code: ERROR, message: message.to_string() }
    }

    /// A command line that is wrong.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self { code: USAGE, message: message.to_string() }
    }

    /// A command line that asks for options which the engine does not take: its refusal, in the
    /// words of the command line.
    pub(crate) fn options(error: &weir::Error) -> Self {
        Self::option(error).unwrap_or_else(|| Self::usage(argument(error)))
    }

    /// The same, if the engine refuses an option that the command line sets.
    fn option(error: &weir::Error) -> Option<Self> {
        let message = argument(error);
        OPTIONS.iter().find_map(|(name, option)| {
            let rest = message.strip_prefix(name)?;
            rest.starts_with(' ').then(|| Self::usage(format_args!("{option}{rest}")))
        })
    }

    /// An error of the engine, about what the command line asks for or about what is on the disk.
    pub(crate) fn of_arguments(error: &weir::Error) -> Self {
        match error.kind() {
            weir::ErrorKind::InvalidArgument => {
                let message = sentence(error);
                Self::usage(message.strip_prefix("invalid argument: ").unwrap_or(&message))
            }
            _ => Self::engine(error),
        }
    }

    /// An error of the engine, about what is on the disk.
    pub(crate) fn engine(error: &weir::Error) -> Self {
        let cause = error.source().and_then(|source| source.downcast_ref::<weir::Error>());
        let is_damage = error.damage().or_else(|| cause?.damage()).is_some();
        let code = if is_damage { DIFFERENCE } else { ERROR };
        Self { code, message: sentence(error) }
    }

    /// Damage or a difference that was found.
    pub(crate) fn difference(message: impl fmt::Display) -> Self {
        Self { code: DIFFERENCE, message: message.to_string() }
    }
}

/// The engine's sentence about an argument, without the kind of the error.
fn argument(error: &weir::Error) -> String {
    let message = error.to_string();
    message.strip_prefix("invalid argument: ").unwrap_or(&message).to_owned()
}

/// A value of the command line that the engine reads.
pub(crate) fn parse<T: FromStr<Err = weir::Error>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error| argument(&error))
}

/// What to do about an error of the operating system at a store's files.
pub(crate) fn os_advice(error: &io::Error) -> &'static str {
    match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::PermissionDenied, _) => {
            "; let this user read and write the store's directory and its files (chown, chmod), or \
             run weir as the user to whom they belong"
        }
        // ENFILE and EMFILE of Linux.
        (_, Some(23 | 24)) => "; raise the limit of open files (`ulimit -n`)",
        (_, Some(EIO)) => DEVICE_ADVICE,
        _ => "",
    }
}

/// An error of the engine as the program says it: in its words, and with advice where the engine
/// has none.
pub(crate) fn sentence(error: &weir::Error) -> String {
    let mut sentence = error.to_string();
    for (library, program) in WORDS {
        sentence = sentence.replace(library, program);
    }
    let os = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    if os.is_some_and(|os| os.raw_os_error() == Some(EIO)) {
        sentence.push_str(DEVICE_ADVICE);
    }
    sentence
}

/// Writes until the reader has gone away, and lets the command go on as if he had not: what it
/// finds out is in its exit code, too.
pub(crate) struct UntilClosed<'a>(pub(crate) &'a mut dyn Write);

impl Write for UntilClosed<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self.0.write(buf) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(buf.len()),
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0.flush() {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            flushed => flushed,
        }
    }
}

impl From<weir::Error> for Failure {
    fn from(error: weir::Error) -> Self {
        if let Some(failure) = Self::option(&error) {
            return failure;
        }
        Self::engine(&error)
    }
}

impl From<weir_bench::EngineError> for Failure {
    fn from(error: weir_bench::EngineError) -> Self {
        let Some(error) = error.weir() else { return Self::new(&error) };
        error.clone().into()
    }
}

impl From<io::Error> for Failure {
    /// An error of stdout or stdin. Who reads our output may have seen enough: that is no error.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self { code: 0, message: String::new() };
        }
        Self::new(format_args!("cannot write the output: {error}"))
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::from(io::Error::from(error))
    }
}
