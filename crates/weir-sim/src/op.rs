//! Operations: what a campaign does to a store, as plain data.
//!
//! A list of operations is all that a run needs besides a seed for the scheduler: it is generated
//! (`generate`), executed and judged (`runner`), cut down when it fails (`reduce`), printed, and
//! read again from a file, one operation a line, for the regression tests.
//!
//! Keys and values are numbers here; `key_bytes` and `Val::bytes` say which bytes they stand for.

use std::fmt;
use std::ops::Bound;
use std::str::FromStr;

use weir::Durability;

use crate::world;

/// Keyspaces that operations name: 0 is the default one.
pub const KEYSPACES: u8 = 4;
/// Snapshots that may live at once.
pub const SNAPSHOTS: u8 = 6;
/// Iterators that may live at once.
pub const ITERATORS: u8 = 4;

/// A value: its identity and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Val {
    /// Which value; two writes of one run never share it.
    pub id: u32,
    /// Its length in bytes.
    pub len: u32,
}

impl Val {
    /// The bytes: begin with the identity, go on with noise, or with zeros in every fourth value,
    /// so that compression has something to do.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len as usize);
        out.extend_from_slice(&self.id.to_be_bytes());
        let mut x = u64::from(self.id).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        while out.len() < self.len as usize {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            let word = if self.id.is_multiple_of(4) { 0 } else { x };
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.truncate(self.len as usize);
        out
    }
}

/// Bytes behind the number in a long key: up to 319; of some, up to the limit of a key. Where
/// devices get full it is less: the version log of a small one has no room for tables with such
/// bounds.
fn padding(n: u32) -> usize {
    match n % 256 {
        63 | 127 | 191 if world::device_bytes().is_some() => 1_000,
        63 => 65_535 - 9,
        127 => 40_000,
        191 => 5_000,
        _ => 20 + (n % 300) as usize,
    }
}

/// The bytes of key number `id`. Neighbouring numbers give keys of all kinds: empty, short, long,
/// sharing eight bytes and more, ending in 0x00 and 0xff, one a prefix of the next. Two numbers may
/// give one key; nothing depends on it.
#[must_use]
pub fn key_bytes(id: u32) -> Vec<u8> {
    let n = id / 8;
    match id % 8 {
        0 if n == 0 => Vec::new(),
        0 => n.to_be_bytes().to_vec(),
        1 => format!("key{n:06}").into_bytes(),
        2 => [b"shared-prefix-of-24-bytes".as_slice(), &n.to_be_bytes()].concat(),
        3 => [format!("key{n:06}").as_bytes(), &[0][..]].concat(),
        4 => [format!("key{n:06}").as_bytes(), &vec![b'x'; padding(n)][..]].concat(),
        5 => [&[0xff; 7][..], &n.to_be_bytes()[..], &[0xff][..]].concat(),
        6 => vec![(n >> 8) as u8, n as u8],
        _ => [&u64::from(n).to_be_bytes()[..], &[0xff; 3][..]].concat(),
    }
}

/// The direction and manner of a walk through a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// First to last.
    Forward,
    /// Last to first.
    Backward,
    /// From both ends; the bits of the number say which end is next.
    Both(u32),
}

/// One move of a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// To the first key at or after this one.
    Seek(u32),
    /// To the last key at or before this one.
    SeekForPrev(u32),
    /// To the first key.
    First,
    /// To the last key.
    Last,
    /// One further.
    Next,
    /// One back.
    Prev,
}

/// How a store is left before it is opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// `Db::close`.
    Close,
    /// Every handle is dropped.
    Drop,
    /// The process dies; what was written stays.
    Kill,
    /// Power is lost; the policy and the seed say which unsynced bytes and names stay.
    Power(u8, u32),
}

/// What must be refused, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misuse {
    /// A key one byte too long.
    LongKey,
    /// An unlogged batch over two keyspaces (H52).
    UnloggedBatch,
    /// Creating a keyspace that exists.
    CreateAgain,
    /// Opening or dropping one that does not exist.
    Unknown,
    /// Opening the store a second time.
    SecondOpen,
    /// An option out of its range.
    BadOption,
    /// A range whose end lies before its start holds nothing.
    InvertedRange,
}

/// One item of a batch: keyspace, key, value or delete.
pub type Item = (u8, u32, Option<Val>);

/// An operation. Keyspaces, snapshots and iterators are named by slot; an operation on an empty
/// slot does nothing, so that any part of a list is a list.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the fields are the arguments of the call that the variant names")]
pub enum Op {
    Put {
        ks: u8,
        key: u32,
        val: Val,
        dur: Durability,
    },
    Delete {
        ks: u8,
        key: u32,
        dur: Durability,
    },
    Batch {
        items: Vec<Item>,
        dur: Durability,
    },
    /// Several commits in flight at once.
    Commits {
        batches: Vec<Vec<Item>>,
        dur: Durability,
    },
    Sync,
    Get {
        ks: u8,
        key: u32,
        snap: Option<u8>,
    },
    MultiGet {
        ks: u8,
        keys: Vec<u32>,
        snap: Option<u8>,
    },
    Scan {
        ks: u8,
        lo: Bound<u32>,
        hi: Bound<u32>,
        snap: Option<u8>,
        how: How,
        limit: u32,
    },
    Prefix {
        ks: u8,
        key: u32,
        len: u8,
        snap: Option<u8>,
        how: How,
    },
    Cursor {
        ks: u8,
        snap: Option<u8>,
        moves: Vec<Move>,
    },
    IterOpen {
        slot: u8,
        ks: u8,
        lo: Bound<u32>,
        hi: Bound<u32>,
        snap: Option<u8>,
    },
    IterStep {
        slot: u8,
        steps: u8,
        back: bool,
    },
    IterDrop {
        slot: u8,
    },
    SnapTake {
        slot: u8,
    },
    SnapDrop {
        slot: u8,
    },
    Flush {
        ks: u8,
    },
    Compact {
        ks: u8,
        lo: Bound<u32>,
        hi: Bound<u32>,
    },
    /// Builds a sentinel over the range, if nothing is in its way.
    Sentinel {
        ks: u8,
        lo: Bound<u32>,
        hi: Bound<u32>,
    },
    Idle,
    Wait {
        millis: u32,
    },
    /// Opens or creates, with new options.
    Keyspace {
        ks: u8,
        options: u32,
    },
    Create {
        ks: u8,
        options: u32,
    },
    OpenStored {
        ks: u8,
    },
    DropKeyspace {
        ks: u8,
    },
    List,
    Size {
        ks: u8,
        lo: Bound<u32>,
        hi: Bound<u32>,
    },
    Inspect,
    Verify,
    Misuse {
        what: Misuse,
    },
    Reopen {
        leave: Leave,
        options: u32,
    },
    /// Every key of every keyspace, both directions.
    Everything,
    /// Puts into the default keyspace until its tree is in the middle of a round, at most `count`.
    /// The values are numbered from that of `val` on.
    Midway {
        key: u32,
        val: Val,
        count: u32,
    },
    /// A keyspace with options `options` is created by two actors while all others are written to
    /// and flushed, and then written to and dropped while others read and flush it. The values are
    /// numbered from that of `val` on.
    Beside {
        key: u32,
        val: Val,
        options: u32,
    },
    /// Waits until nothing is left to do. Every tree must be in the form that its options demand.
    Settle,
}

struct Words<'a>(std::str::SplitWhitespace<'a>);

impl<'a> Words<'a> {
    fn word(&mut self) -> Result<&'a str, String> {
        self.0.next().ok_or_else(|| "a word is missing".to_owned())
    }
    fn num<T: FromStr>(&mut self) -> Result<T, String> {
        number(self.word()?)
    }
    fn rest<T>(&mut self, parse: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
        self.0.by_ref().map(parse).collect()
    }
    fn optional(&mut self) -> Result<Option<u8>, String> {
        match self.word()? {
            "-" => Ok(None),
            w => number(w).map(Some),
        }
    }
    fn bound(&mut self) -> Result<Bound<u32>, String> {
        let w = self.word()?;
        match w.split_at_checked(1) {
            Some(("*", "")) => Ok(Bound::Unbounded),
            Some(("=", n)) => number(n).map(Bound::Included),
            Some(("~", n)) => number(n).map(Bound::Excluded),
            _ => Err(format!("{w} is no bound")),
        }
    }
    fn durability(&mut self) -> Result<Durability, String> {
        match self.word()? {
            "none" => Ok(Durability::None),
            "deferred" => Ok(Durability::Deferred),
            "buffered" => Ok(Durability::Buffered),
            "sync" => Ok(Durability::Sync),
            w => Err(format!("{w} is no durability")),
        }
    }
    fn how(&mut self) -> Result<How, String> {
        match self.word()? {
            "forward" => Ok(How::Forward),
            "backward" => Ok(How::Backward),
            w => w
                .strip_prefix("both:")
                .ok_or_else(|| format!("{w} is no direction"))
                .and_then(number)
                .map(How::Both),
        }
    }
    fn boolean(&mut self) -> Result<bool, String> {
        Ok(self.word()? == "back")
    }
}

fn number<T: FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{word} is no number"))
}

fn val(word: &str) -> Result<Val, String> {
    let (id, len) = word.split_once('x').ok_or_else(|| format!("{word} is no value"))?;
    Ok(Val { id: number(id)?, len: number(len)? })
}

fn item(word: &str) -> Result<Item, String> {
    let mut parts = word.split(':');
    let mut next = || parts.next().ok_or_else(|| format!("{word} is no item"));
    let (ks, key, value) = (number(next()?)?, number(next()?)?, next()?);
    Ok((ks, key, if value == "del" { None } else { Some(val(value)?) }))
}

fn cursor_move(word: &str) -> Result<Move, String> {
    match word.split_once(':') {
        Some(("seek", n)) => number(n).map(Move::Seek),
        Some(("seek_for_prev", n)) => number(n).map(Move::SeekForPrev),
        _ => match word {
            "first" => Ok(Move::First),
            "last" => Ok(Move::Last),
            "next" => Ok(Move::Next),
            "prev" => Ok(Move::Prev),
            _ => Err(format!("{word} is no move")),
        },
    }
}

struct Show<'a, T>(&'a T);

impl fmt::Display for Show<'_, Bound<u32>> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Bound::Unbounded => f.write_str("*"),
            Bound::Included(n) => write!(f, "={n}"),
            Bound::Excluded(n) => write!(f, "~{n}"),
        }
    }
}

impl fmt::Display for Show<'_, Option<u8>> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("-"),
            Some(n) => write!(f, "{n}"),
        }
    }
}

impl fmt::Display for Show<'_, Durability> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

impl fmt::Display for Show<'_, How> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            How::Forward => f.write_str("forward"),
            How::Backward => f.write_str("backward"),
            How::Both(bits) => write!(f, "both:{bits}"),
        }
    }
}

impl fmt::Display for Show<'_, Vec<Item>> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (ks, key, value) in self.0 {
            match value {
                Some(v) => write!(f, " {ks}:{key}:{}x{}", v.id, v.len)?,
                None => write!(f, " {ks}:{key}:del")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Show<'_, Vec<Move>> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for m in self.0 {
            match m {
                Move::Seek(k) => write!(f, " seek:{k}")?,
                Move::SeekForPrev(k) => write!(f, " seek_for_prev:{k}")?,
                Move::First => f.write_str(" first")?,
                Move::Last => f.write_str(" last")?,
                Move::Next => f.write_str(" next")?,
                Move::Prev => f.write_str(" prev")?,
            }
        }
        Ok(())
    }
}

const MISUSES: [(Misuse, &str); 7] = [
    (Misuse::LongKey, "long_key"),
    (Misuse::UnloggedBatch, "unlogged_batch"),
    (Misuse::CreateAgain, "create_again"),
    (Misuse::Unknown, "unknown"),
    (Misuse::SecondOpen, "second_open"),
    (Misuse::BadOption, "bad_option"),
    (Misuse::InvertedRange, "inverted_range"),
];

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put { ks, key, val, dur } => {
                write!(f, "put {ks} {key} {}x{} {}", val.id, val.len, Show(dur))
            }
            Self::Delete { ks, key, dur } => write!(f, "delete {ks} {key} {}", Show(dur)),
            Self::Batch { items, dur } => write!(f, "batch {}{}", Show(dur), Show(items)),
            Self::Commits { batches, dur } => {
                write!(f, "commits {}", Show(dur))?;
                for (i, b) in batches.iter().enumerate() {
                    write!(f, "{}{}", if i > 0 { " /" } else { "" }, Show(b))?;
                }
                Ok(())
            }
            Self::Sync => f.write_str("sync"),
            Self::Get { ks, key, snap } => write!(f, "get {ks} {key} {}", Show(snap)),
            Self::MultiGet { ks, keys, snap } => {
                write!(f, "multi_get {ks} {}", Show(snap))?;
                keys.iter().try_for_each(|k| write!(f, " {k}"))
            }
            Self::Scan { ks, lo, hi, snap, how, limit } => {
                let (lo, hi, snap, how) = (Show(lo), Show(hi), Show(snap), Show(how));
                write!(f, "scan {ks} {lo} {hi} {snap} {how} {limit}")
            }
            Self::Prefix { ks, key, len, snap, how } => {
                write!(f, "prefix {ks} {key} {len} {} {}", Show(snap), Show(how))
            }
            Self::Cursor { ks, snap, moves } => {
                write!(f, "cursor {ks} {}{}", Show(snap), Show(moves))
            }
            Self::IterOpen { slot, ks, lo, hi, snap } => {
                write!(f, "iter_open {slot} {ks} {} {} {}", Show(lo), Show(hi), Show(snap))
            }
            Self::IterStep { slot, steps, back } => {
                write!(f, "iter_step {slot} {steps} {}", if *back { "back" } else { "on" })
            }
            Self::IterDrop { slot } => write!(f, "iter_drop {slot}"),
            Self::SnapTake { slot } => write!(f, "snap_take {slot}"),
            Self::SnapDrop { slot } => write!(f, "snap_drop {slot}"),
            Self::Flush { ks } => write!(f, "flush {ks}"),
            Self::Compact { ks, lo, hi } => write!(f, "compact {ks} {} {}", Show(lo), Show(hi)),
            Self::Sentinel { ks, lo, hi } => write!(f, "sentinel {ks} {} {}", Show(lo), Show(hi)),
            Self::Idle => f.write_str("idle"),
            Self::Wait { millis } => write!(f, "wait {millis}"),
            Self::Keyspace { ks, options } => write!(f, "keyspace {ks} {options}"),
            Self::Create { ks, options } => write!(f, "create {ks} {options}"),
            Self::OpenStored { ks } => write!(f, "open_stored {ks}"),
            Self::DropKeyspace { ks } => write!(f, "drop_keyspace {ks}"),
            Self::List => f.write_str("list"),
            Self::Size { ks, lo, hi } => write!(f, "size {ks} {} {}", Show(lo), Show(hi)),
            Self::Inspect => f.write_str("inspect"),
            Self::Verify => f.write_str("verify"),
            Self::Misuse { what } => {
                let name = MISUSES.iter().find(|m| m.0 == *what).map_or("", |m| m.1);
                write!(f, "misuse {name}")
            }
            Self::Reopen { leave, options } => match leave {
                Leave::Close => write!(f, "reopen {options} close"),
                Leave::Drop => write!(f, "reopen {options} drop"),
                Leave::Kill => write!(f, "reopen {options} kill"),
                Leave::Power(policy, seed) => write!(f, "reopen {options} power {policy} {seed}"),
            },
            Self::Everything => f.write_str("everything"),
            Self::Midway { key, val, count } => {
                write!(f, "midway {key} {}x{} {count}", val.id, val.len)
            }
            Self::Beside { key, val, options } => {
                write!(f, "beside {key} {}x{} {options}", val.id, val.len)
            }
            Self::Settle => f.write_str("settle"),
        }
    }
}

impl FromStr for Op {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        parse(line).map_err(|why| format!("{why} in the operation `{line}`"))
    }
}

fn leave(w: &mut Words<'_>) -> Result<Leave, String> {
    Ok(match w.word()? {
        "close" => Leave::Close,
        "drop" => Leave::Drop,
        "kill" => Leave::Kill,
        "power" => Leave::Power(w.num()?, w.num()?),
        other => return Err(format!("{other} is no way to leave")),
    })
}

fn parse(line: &str) -> Result<Op, String> {
    let mut w = Words(line.split_whitespace());
    Ok(match w.word()? {
        "put" => {
            Op::Put { ks: w.num()?, key: w.num()?, val: val(w.word()?)?, dur: w.durability()? }
        }
        "delete" => Op::Delete { ks: w.num()?, key: w.num()?, dur: w.durability()? },
        "batch" => Op::Batch { dur: w.durability()?, items: w.rest(item)? },
        "commits" => {
            let dur = w.durability()?;
            let words: Vec<&str> = w.0.by_ref().collect();
            let batches = words.split(|word| *word == "/");
            Op::Commits {
                dur,
                batches: batches
                    .map(|b| b.iter().map(|word| item(word)).collect())
                    .collect::<Result<_, _>>()?,
            }
        }
        "sync" => Op::Sync,
        "get" => Op::Get { ks: w.num()?, key: w.num()?, snap: w.optional()? },
        "multi_get" => Op::MultiGet { ks: w.num()?, snap: w.optional()?, keys: w.rest(number)? },
        "scan" => Op::Scan {
            ks: w.num()?,
            lo: w.bound()?,
            hi: w.bound()?,
            snap: w.optional()?,
            how: w.how()?,
            limit: w.num()?,
        },
        "prefix" => Op::Prefix {
            ks: w.num()?,
            key: w.num()?,
            len: w.num()?,
            snap: w.optional()?,
            how: w.how()?,
        },
        "cursor" => Op::Cursor { ks: w.num()?, snap: w.optional()?, moves: w.rest(cursor_move)? },
        "iter_open" => Op::IterOpen {
            slot: w.num()?,
            ks: w.num()?,
            lo: w.bound()?,
            hi: w.bound()?,
            snap: w.optional()?,
        },
        "iter_step" => Op::IterStep { slot: w.num()?, steps: w.num()?, back: w.boolean()? },
        "iter_drop" => Op::IterDrop { slot: w.num()? },
        "snap_take" => Op::SnapTake { slot: w.num()? },
        "snap_drop" => Op::SnapDrop { slot: w.num()? },
        "flush" => Op::Flush { ks: w.num()? },
        "compact" => Op::Compact { ks: w.num()?, lo: w.bound()?, hi: w.bound()? },
        "sentinel" => Op::Sentinel { ks: w.num()?, lo: w.bound()?, hi: w.bound()? },
        "idle" => Op::Idle,
        "wait" => Op::Wait { millis: w.num()? },
        "keyspace" => Op::Keyspace { ks: w.num()?, options: w.num()? },
        "create" => Op::Create { ks: w.num()?, options: w.num()? },
        "open_stored" => Op::OpenStored { ks: w.num()? },
        "drop_keyspace" => Op::DropKeyspace { ks: w.num()? },
        "list" => Op::List,
        "size" => Op::Size { ks: w.num()?, lo: w.bound()?, hi: w.bound()? },
        "inspect" => Op::Inspect,
        "verify" => Op::Verify,
        "misuse" => {
            let name = w.word()?;
            let found = MISUSES.iter().find(|m| m.1 == name);
            Op::Misuse { what: found.ok_or_else(|| format!("{name} is no misuse"))?.0 }
        }
        "reopen" => Op::Reopen { options: w.num()?, leave: leave(&mut w)? },
        "everything" => Op::Everything,
        "midway" => Op::Midway { key: w.num()?, val: val(w.word()?)?, count: w.num()? },
        "beside" => Op::Beside { key: w.num()?, val: val(w.word()?)?, options: w.num()? },
        "settle" => Op::Settle,
        other => return Err(format!("{other} is no operation")),
    })
}
