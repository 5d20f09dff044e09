//! The lines of a replay file, read one at a time from anything, whatever it contains.
//!
//! | line | operation |
//! |---|---|
//! | `i,k,v` | insert |
//! | `u,k,v` | update |
//! | `d,k` | delete |
//! | `g,k` | point read |
//! | `r,lo,hi` | range read, both ends included |
//! | `r,k` | remove: the older word for `d,k` |
//!
//! Numbers are decimal and fit 64 bits with sign. The two meanings of `r` never mix in one file: a
//! range whose second number was lost must not delete anything. Lines end with LF or CRLF; empty
//! lines are skipped.

use std::fmt;
use std::io::{self, BufRead};

/// Longest line that can be right, with room: an operation and two numbers need 44 bytes.
const LINE_BYTES_MAX: usize = 256;

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Store the second number under the first; insert and update are the same to a store.
    Put(i64, i64),
    /// Delete the key.
    Delete(i64),
    /// Read the key.
    Get(i64),
    /// Read every pair from the first key to the second.
    Range(i64, i64),
}

/// A number as a key or value: eight bytes whose order is the order of the numbers.
#[must_use]
pub fn encode(number: i64) -> [u8; 8] {
    (number as u64 ^ 1 << 63).to_be_bytes()
}

/// The reverse of [`encode`]; `None` for bytes of another length.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<i64> {
    let bytes: [u8; 8] = bytes.try_into().ok()?;
    Some((u64::from_be_bytes(bytes) ^ 1 << 63) as i64)
}

/// What ended the reading of a file before its end.
#[derive(Debug)]
pub enum LineError {
    /// The file cannot be read.
    Io(io::Error),
    /// A line is wrong.
    Bad {
        /// Its number; the first line is 1.
        number: u64,
        /// Why.
        reason: String,
    },
}

/// Reads operations from a file, holding one line in memory.
pub struct Lines<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
    /// What `r` means in this file, from its first `r` line on.
    r_is_range: Option<bool>,
}

impl<R: BufRead> Lines<R> {
    /// Reads from `input`.
    #[must_use]
    pub fn new(input: R) -> Self {
        Self { input, line: Vec::with_capacity(LINE_BYTES_MAX), number: 0, r_is_range: None }
    }

    /// The next operation; `None` at the end of the file.
    ///
    /// # Errors
    /// A file that cannot be read, or a line that is wrong.
    pub fn next_operation(&mut self) -> Result<Option<Operation>, LineError> {
        loop {
            self.line.clear();
            let limit = LINE_BYTES_MAX as u64 + 1;
            let mut limited = io::Read::take(&mut self.input, limit);
            let read = limited.read_until(b'\n', &mut self.line).map_err(LineError::Io)?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.len() > LINE_BYTES_MAX {
                let reason = format!("it is longer than {LINE_BYTES_MAX} bytes");
                return Err(self.bad(reason));
            }
            if line.is_empty() {
                continue;
            }
            return match parse(line, &mut self.r_is_range) {
                Ok(operation) => Ok(Some(operation)),
                Err(reason) => Err(self.bad(reason)),
            };
        }
    }

    /// Number of the line that was read last.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether the file writes its deletes as `r,k`.
    #[must_use]
    pub fn r_is_remove(&self) -> bool {
        self.r_is_range == Some(false)
    }

    fn bad(&self, reason: String) -> LineError {
        LineError::Bad { number: self.number, reason }
    }
}

/// One line without its end.
fn parse(line: &[u8], r_is_range: &mut Option<bool>) -> Result<Operation, String> {
    let mut fields = line.split(|&byte| byte == b',');
    let name = fields.next().unwrap_or_default();
    let (first, second) = (fields.next(), fields.next());
    if fields.next().is_some() {
        return Err("it has more than three fields".into());
    }
    let expect = |form: &str| format!("write it as {form}, with decimal numbers");
    match (name, first, second) {
        (b"i" | b"u", Some(key), Some(value)) => {
            Ok(Operation::Put(number("key", key)?, number("value", value)?))
        }
        (b"d", Some(key), None) => Ok(Operation::Delete(number("key", key)?)),
        (b"g", Some(key), None) => Ok(Operation::Get(number("key", key)?)),
        (b"r", Some(low), Some(high)) => {
            let range = Operation::Range(number("low key", low)?, number("high key", high)?);
            the_meaning_of_r(r_is_range, true)?;
            Ok(range)
        }
        (b"r", Some(key), None) => {
            let delete = Operation::Delete(number("key", key)?);
            the_meaning_of_r(r_is_range, false)?;
            Ok(delete)
        }
        (b"i", ..) => Err(expect("i,key,value")),
        (b"u", ..) => Err(expect("u,key,value")),
        (b"d", ..) => Err(expect("d,key")),
        (b"g", ..) => Err(expect("g,key")),
        (b"r", ..) => Err(expect("r,low,high")),
        _ => Err(format!("{} is no operation; the first field is i, u, d, g or r", Quoted(name))),
    }
}

/// A field as messages show it: anything may be in it.
struct Quoted<'a>(&'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// Fixes what `r` means in this file, or refuses a line that means the other thing.
fn the_meaning_of_r(r_is_range: &mut Option<bool>, range: bool) -> Result<(), String> {
    if *r_is_range.get_or_insert(range) == range {
        return Ok(());
    }
    Err(if range {
        "it reads a range, but earlier lines remove a key with r,key; write those as d,key"
    } else {
        "r has one number, but earlier lines read ranges with r,low,high; to delete write d,key"
    }
    .into())
}

/// A decimal number of 64 bits with sign.
fn number(what: &str, field: &[u8]) -> Result<i64, String> {
    let shown = Quoted(field);
    let digits = field.strip_prefix(b"-").unwrap_or(field);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(format!("the {what} {shown} is no decimal number"));
    }
    let text = std::str::from_utf8(field).unwrap_or_default();
    text.parse().map_err(|_| format!("the {what} {shown} does not fit 64 bits with sign"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> (Vec<Operation>, Option<(u64, String)>) {
        let mut lines = Lines::new(bytes);
        let mut operations = Vec::new();
        loop {
            match lines.next_operation() {
                Ok(Some(operation)) => operations.push(operation),
                Ok(None) => return (operations, None),
                Err(LineError::Bad { number, reason }) => {
                    return (operations, Some((number, reason)));
                }
                Err(LineError::Io(error)) => panic!("a slice cannot fail: {error}"),
            }
        }
    }

    /// Goal: every form is understood. Method: one line each, both line ends, no last line end.
    #[test]
    fn every_operation() {
        let (operations, bad) = read(b"i,1,2\nu,-3,4\r\n\nd,5\ng,6\nr,7,8");
        assert_eq!(bad, None);
        assert_eq!(
            operations,
            [
                Operation::Put(1, 2),
                Operation::Put(-3, 4),
                Operation::Delete(5),
                Operation::Get(6),
                Operation::Range(7, 8)
            ]
        );
        assert_eq!(read(b"r,1\nr,2\n").0, [Operation::Delete(1), Operation::Delete(2)]);
    }

    /// Goal: a wrong line is refused with its number, and what came before it is not lost. Method:
    /// each wrong line behind a good one.
    #[test]
    fn wrong_lines() {
        let long = [b"i,1,", [b'1'; 300].as_slice()].concat();
        let endless = vec![b'i'; 100_000];
        let wrong: [&[u8]; 22] = [
            b"x,1",
            b"i",
            b"i,1",
            b"i,1,2,3",
            b"d",
            b"d,1,2",
            b"g,",
            b"g,1,",
            b"r",
            b"r,1,2,3",
            b"i,a,1",
            b"i,1,b",
            b"i,+1,1",
            b"i,--1,1",
            b"i,1 ,1",
            b" i,1,1",
            b"I,1,1",
            b"g,\xff\xfe",
            b"\0",
            b"g,9223372036854775808",
            &long,
            &endless,
        ];
        for line in wrong {
            let file = [b"g,1\n", line, b"\ng,2\n"].concat();
            let (operations, bad) = read(&file);
            assert_eq!(operations, [Operation::Get(1)]);
            let (number, reason) = bad.expect("the line is wrong");
            assert_eq!(number, 2, "{reason}");
            assert!(reason.len() < 1000 && !reason.contains('\0'), "{reason}");
        }
    }

    /// Goal: a range that lost its end deletes nothing. Method: both meanings of `r` in one file,
    /// in both orders.
    #[test]
    fn r_has_one_meaning() {
        let (operations, bad) = read(b"r,1,2\nr,1\n");
        assert_eq!((operations.len(), bad.expect("mixed").0), (1, 2));
        let (operations, bad) = read(b"r,1\nr,1,2\n");
        assert_eq!((operations.len(), bad.expect("mixed").0), (1, 2));
    }

    /// Goal: bytes are ordered as numbers are. Method: neighbours around every turning point.
    #[test]
    fn numbers_keep_their_order() {
        let numbers = [i64::MIN, i64::MIN + 1, -256, -1, 0, 1, 255, 256, i64::MAX - 1, i64::MAX];
        let encoded: Vec<_> = numbers.iter().map(|&n| encode(n)).collect();
        assert!(encoded.is_sorted());
        for (number, bytes) in numbers.iter().zip(&encoded) {
            assert_eq!(decode(bytes), Some(*number));
        }
        assert_eq!(decode(b"short"), None);
    }
}
