//! The one error of the engine.
//!
//! `kind()` is for programs (few, and each says what the caller must do), `Display` is a sentence
//! for people: what happened, where, and what to do about it. An error is cheap to clone, because a
//! failed commit group gives the same error to every writer in it.

use std::fmt;
use std::sync::Arc;

/// The result of a fallible operation of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, in terms of what the caller can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The device or the file system failed, or there are too many open files. Check the device;
    /// failed background work is retried, and a failed call may be repeated.
    Io,
    /// Bytes on disk are not what was written. The error names file, offset and, where known, the
    /// key range. Run `weir verify`; restore a backup or run `weir repair`.
    Corruption,
    /// Another process (or another handle) has the store open. Close it, or wait for it.
    Locked,
    /// Two requests cannot both be granted, such as creating what exists. Choose another name or
    /// ask for the existing one.
    Conflict,
    /// The device is full. Reads go on; free space and retry the write.
    NoSpace,
    /// An argument or option is outside its stated range. Correct it; nothing was changed.
    InvalidArgument,
    /// The store, the keyspace or a file named by the root does not exist.
    NotFound,
    /// The store was opened for reading only.
    ReadOnly,
    /// An earlier failed sync or log write, or a failed internal check, made the state unknown: no
    /// write is accepted until the store is reopened. Reads go on.
    Poisoned,
    /// The handle, the keyspace or the store was closed or dropped.
    Closed,
    /// The bytes were written by a newer Weir, or need a feature that this build does not have. Use
    /// a version that has it; nothing was changed.
    Unsupported,
}

impl ErrorKind {
    /// The kind's name as shown in messages and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Io => "i/o error",
            Self::Corruption => "corruption",
            Self::Locked => "locked",
            Self::Conflict => "conflict",
            Self::NoSpace => "no space",
            Self::InvalidArgument => "invalid argument",
            Self::NotFound => "not found",
            Self::ReadOnly => "read only",
            Self::Poisoned => "poisoned",
            Self::Closed => "closed",
            Self::Unsupported => "unsupported",
        }
    }
}

/// Where damaged bytes were found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The file (or slot) that holds the damaged bytes.
    pub file: String,
    /// Offset of the damaged structure in the file, in bytes.
    pub offset: u64,
    /// Smallest and largest user key that may be affected, where known.
    pub key_range: Option<(Vec<u8>, Vec<u8>)>,
}

/// What to do about damage: it depends on what is damaged.
#[derive(Clone, Copy)]
enum Advice {
    /// Bytes of a file. A store that does not open cannot be verified either, so repair is named
    /// too.
    Damaged,
    /// The same, met by a job or a check that cannot name the file.
    Found,
    /// Something else is in the place of a file.
    Misplaced,
    /// A table is missing.
    Missing,
}

impl Advice {
    /// The advice for the store at `path`.
    fn write(self, path: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A device has no place beside it for copies of what is damaged.
        let keep_in = if path.starts_with("/dev/") { " --keep-in DIR" } else { "" };
        match self {
            Self::Damaged | Self::Found => write!(
                f,
                "; `weir verify {path}` shows what else is damaged; restore a backup, or salvage \
                 what can be read with `weir repair {path}{keep_in}`"
            ),
            Self::Misplaced => write!(
                f,
                "; move it away, and open the store again; if that misses a file, restore a \
                 backup, or salvage what can be read with `weir repair {path}`"
            ),
            Self::Missing => write!(
                f,
                "; put it back from a backup, or salvage the others with `weir repair {path}`"
            ),
        }
    }
}

/// An error of the engine: a kind, a sentence, and what caused it.
///
/// `{}` adds advice about the store as a whole to damage; `{:#}` omits it, for lists of damages and
/// for programs that give their own. All other advice is part of the sentence.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    damage: Option<Damage>,
    /// What to do about the damage.
    advice: Option<Advice>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
    /// Whether the failure leaves nothing unknown; see [`Error::leaves_unknown`].
    nothing_unknown: bool,
}

impl Inner {
    fn damaged(kind: ErrorKind, message: String, damage: Damage, advice: Advice) -> Self {
        Self {
            kind,
            message,
            damage: Some(damage),
            advice: Some(advice),
            source: None,
            nothing_unknown: false,
        }
    }
}

impl Error {
    /// A new error of `kind` with a sentence that says what happened and what to do.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            kind,
            message: message.into(),
            damage: None,
            advice: None,
            source: None,
            nothing_unknown: false,
        }))
    }

    /// An error caused by another one.
    pub(crate) fn with_source(
        kind: ErrorKind,
        message: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self(Arc::new(Inner {
            kind,
            message: message.into(),
            damage: None,
            advice: None,
            source: Some(source.into()),
            nothing_unknown: false,
        }))
    }

    /// Damaged bytes in `file` at `offset`: `what` names the structure and what is wrong with it.
    pub(crate) fn corruption(
        file: impl Into<String>,
        offset: u64,
        what: impl fmt::Display,
    ) -> Self {
        let file = file.into();
        let message = format!("{what} in {file} at offset {offset}");
        let damage = Damage { file, offset, key_range: None };
        Self(Arc::new(Inner::damaged(ErrorKind::Corruption, message, damage, Advice::Damaged)))
    }

    /// Damage in `file` at `offset` of which nothing can be salvaged: `message` says what to do.
    pub(crate) fn hopeless(
        file: impl Into<String>,
        offset: u64,
        message: impl Into<String>,
    ) -> Self {
        let damage = Damage { file: file.into(), offset, key_range: None };
        let (kind, message) = (ErrorKind::Corruption, message.into());
        let inner = Inner::damaged(kind, message, damage, Advice::Damaged);
        Self(Arc::new(Inner { advice: None, ..inner }))
    }

    /// Damage that `finder`, which is no file, has met: `what` says what is wrong.
    pub(crate) fn corruption_found(finder: impl Into<String>, what: impl fmt::Display) -> Self {
        let finder = finder.into();
        let message = format!("{what} in {finder} at offset 0");
        let damage = Damage { file: finder, offset: 0, key_range: None };
        Self(Arc::new(Inner::damaged(ErrorKind::Corruption, message, damage, Advice::Found)))
    }

    /// Something under the name of a store's `file` that is no regular file: `found` says what it
    /// is.
    pub(crate) fn misplaced(file: impl Into<String>, found: &str) -> Self {
        let file = file.into();
        let message = format!("{file} is {found} and no regular file: it is not the store's");
        let damage = Damage { file, offset: 0, key_range: None };
        Self(Arc::new(Inner::damaged(ErrorKind::Corruption, message, damage, Advice::Misplaced)))
    }

    /// The table in `file` is missing, as `source` says.
    pub(crate) fn missing_table(file: impl Into<String>, source: Self) -> Self {
        let file = file.into();
        let message = format!("the table {file} is missing");
        let damage = Damage { file, offset: 0, key_range: None };
        let inner = Inner::damaged(ErrorKind::NotFound, message, damage, Advice::Missing);
        Self(Arc::new(Inner { source: Some(Box::new(source)), ..inner }))
    }

    /// The same corruption, with the user keys that it may affect. Other kinds stay as they are.
    #[must_use]
    pub(crate) fn with_key_range(self, smallest: &[u8], largest: &[u8]) -> Self {
        let Some(damage) = self.0.damage.as_ref() else { return self };
        if self.0.kind != ErrorKind::Corruption || damage.key_range.is_some() {
            return self;
        }
        let message = format!(
            "{} (keys {} to {})",
            self.0.message,
            crate::base::key::Printable(smallest),
            crate::base::key::Printable(largest)
        );
        let key_range = Some((smallest.to_vec(), largest.to_vec()));
        Self(Arc::new(Inner {
            kind: self.0.kind,
            message,
            damage: Some(Damage { key_range, ..damage.clone() }),
            advice: self.0.advice,
            source: None,
            nothing_unknown: false,
        }))
    }

    /// The same device error, marked as leaving nothing unknown: the call was a read, an opening, a
    /// creation, or a write of a table that no version names yet. Other kinds stay as they are: the
    /// kind itself decides.
    ///
    /// The code that makes the call decides, because only it knows what depends on the bytes; see
    /// `storage`.
    #[must_use]
    pub(crate) fn leaving_nothing_unknown(mut self) -> Self {
        if !matches!(self.kind(), ErrorKind::Io | ErrorKind::NotFound) {
            return self;
        }
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.nothing_unknown = true;
            return self;
        }
        Self(Arc::new(Inner {
            kind: self.0.kind,
            message: self.0.message.clone(),
            damage: self.0.damage.clone(),
            advice: self.0.advice,
            source: Some(Box::new(self)),
            nothing_unknown: true,
        }))
    }

    /// Whether the failure leaves the state of the device, or of the engine, unknown. If not, the
    /// operation may be retried; if so, nothing may rely on it (H43).
    #[must_use]
    pub(crate) fn leaves_unknown(&self) -> bool {
        match self.0.kind {
            // An operation that finds no space, or a closed store, ends before anything relies on
            // it.
            ErrorKind::NoSpace | ErrorKind::Closed => false,
            _ => !self.0.nothing_unknown,
        }
    }

    /// Whether the process, or the system, has no descriptor left.
    pub(crate) fn is_too_many_open_files(&self) -> bool {
        // ENFILE and EMFILE of Linux.
        let os = |source: &(dyn std::error::Error + Send + Sync + 'static)| {
            source.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error)
        };
        matches!(self.0.source.as_deref().and_then(os), Some(23 | 24))
    }

    /// All `numbers` of a kind were given out, which only damaged or hostile bytes bring about.
    pub(crate) fn used_up(numbers: impl fmt::Display) -> Self {
        let what = format!("{numbers} are used up; copy what the store holds into a new one");
        Self::new(ErrorKind::Unsupported, what)
    }

    /// An argument outside its stated range.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message)
    }

    /// An operating-system error while doing `what`; a full disk or quota becomes
    /// [`ErrorKind::NoSpace`], a missing file [`ErrorKind::NotFound`].
    pub(crate) fn io(what: impl fmt::Display, error: std::io::Error) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                ErrorKind::NoSpace
            }
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            _ => ErrorKind::Io,
        };
        Self::with_source(kind, format!("{what}: {error}"), error)
    }

    /// The damaged store, for commands that name it: the directory of its file, or the file or
    /// device whose part is called `PATH: PART`.
    fn store(&self) -> &str {
        let path = match (&self.0.damage, self.0.advice) {
            (_, Some(Advice::Found)) | (None, _) => None,
            (Some(Damage { file, .. }), _) => match file.rsplit_once(": ") {
                Some((path, part)) if !part.contains('/') => Some(path),
                _ => file.rsplit_once('/').map(|(dir, _)| if dir.is_empty() { "/" } else { dir }),
            },
        };
        path.unwrap_or("PATH")
    }

    /// What went wrong, in terms of what the caller can do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The sentence, without kind and advice.
    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }

    /// Where the damaged bytes are, for [`ErrorKind::Corruption`]; and which table it is that is
    /// missing, for [`ErrorKind::NotFound`]. All other errors are none of damage.
    #[must_use]
    pub fn damage(&self) -> Option<&Damage> {
        self.0.damage.as_ref()
    }

    /// Whether this is of damage in spite of which a repair may salvage something. Where it is of
    /// damage and this is false, the sentence itself says what to do.
    #[must_use]
    pub fn may_be_salvaged(&self) -> bool {
        self.0.damage.is_some() && self.0.advice.is_some()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.kind.name(), self.0.message)?;
        match self.0.advice {
            Some(advice) if !f.alternate() => advice.write(self.store(), f),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({self})")
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|s| &**s as &(dyn std::error::Error + 'static))
    }
}

/// Marks in code, for searches, that an error does not matter here, and why.
pub(crate) trait IgnoreError {
    /// Drops the error; `reason` is for the reader of the code only.
    fn ignore_error(self, reason: &str);
}

impl<T> IgnoreError for Result<T> {
    fn ignore_error(self, _reason: &str) {}
}
