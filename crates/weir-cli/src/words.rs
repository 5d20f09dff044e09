//! The shell's language: words with quotes and escapes, over bytes.
//!
//! A word is a run of bytes without spaces. Inside double quotes spaces are part of it; inside and
//! outside `\xNN` is a byte, `\n \t \r \0` what they are in C, and a backslash before any other
//! punctuation is that character. `#` at the start of a word begins a comment. What [`Quoted`]
//! prints is read back as the same bytes.

use std::fmt;

/// One word of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// Its bytes, quotes and escapes resolved.
    pub(crate) bytes: Vec<u8>,
    /// Whether any part was quoted or escaped: such a word is data, never an option.
    pub(crate) literal: bool,
}

impl Word {
    /// The word as an option or command name, if it is written plainly.
    pub(crate) fn plain(&self) -> Option<&str> {
        if self.literal { None } else { std::str::from_utf8(&self.bytes).ok() }
    }
}

/// Splits a line into words; the error says what is wrong with it.
pub(crate) fn split(line: &[u8]) -> Result<Vec<Word>, String> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        match rest.first() {
            None | Some(b'#') => return Ok(words),
            Some(_) => {
                let (word, tail) = take_word(rest)?;
                words.push(word);
                rest = tail;
            }
        }
    }
}

/// The first word of `rest`, which does not begin with a space, and what follows it.
fn take_word(mut rest: &[u8]) -> Result<(Word, &[u8]), String> {
    let mut word = Word { bytes: Vec::new(), literal: false };
    let mut quoted = false;
    while let Some((&byte, tail)) = rest.split_first() {
        match byte {
            b'"' => {
                quoted = !quoted;
                word.literal = true;
                rest = tail;
            }
            b'\\' => {
                let (resolved, tail) = take_escape(tail)?;
                word.bytes.push(resolved);
                word.literal = true;
                rest = tail;
            }
            _ if byte.is_ascii_whitespace() && !quoted => break,
            _ => {
                word.bytes.push(byte);
                rest = tail;
            }
        }
    }
    if quoted {
        return Err("a quote is not closed; end the word with \" (inside it, write \\\")".into());
    }
    Ok((word, rest))
}

/// The byte that an escape stands for, from what follows the backslash on.
fn take_escape(rest: &[u8]) -> Result<(u8, &[u8]), String> {
    let Some((&byte, tail)) = rest.split_first() else {
        return Err("the line ends in a backslash; write \\\\ for the character itself".into());
    };
    let resolved = match byte {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'0' => 0,
        b'x' => {
            let digits = tail.first_chunk::<2>().and_then(|pair| std::str::from_utf8(pair).ok());
            let value = digits
                .filter(|pair| pair.bytes().all(|b| b.is_ascii_hexdigit()))
                .and_then(|pair| u8::from_str_radix(pair, 16).ok());
            let Some(value) = value else {
                return Err("\\x needs two hexadecimal digits, such as \\x0a".into());
            };
            return Ok((value, &tail[2..]));
        }
        _ if byte.is_ascii_punctuation() || byte == b' ' => byte,
        _ => {
            return Err(format!(
                "\\{} is no escape; use \\xNN, \\n, \\t, \\r, \\0, or a backslash before a \
                 punctuation mark",
                Escaped(&[byte])
            ));
        }
    };
    Ok((resolved, tail))
}

/// Bytes as a word of the shell, always in quotes.
pub(crate) struct Quoted<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", Escaped(self.0))
    }
}

/// Bytes with everything escaped that could be mistaken; text in UTF-8 stays text.
pub(crate) struct Escaped<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '"' => f.write_str("\\\"")?,
                    '\\' => f.write_str("\\\\")?,
                    '\n' => f.write_str("\\n")?,
                    '\t' => f.write_str("\\t")?,
                    '\r' => f.write_str("\\r")?,
                    // Control characters, also those beyond ASCII that move a terminal's cursor or
                    // its direction.
                    _ if c.is_control() || is_invisible(c) => {
                        let mut buffer = [0; 4];
                        for byte in c.encode_utf8(&mut buffer).bytes() {
                            write!(f, "\\x{byte:02x}")?;
                        }
                    }
                    _ => write!(f, "{c}")?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// Characters that show nothing or turn the direction of writing.
fn is_invisible(c: char) -> bool {
    ('\u{200b}'..='\u{200f}').contains(&c)
        || ('\u{2028}'..='\u{202e}').contains(&c)
        || ('\u{2060}'..='\u{206f}').contains(&c)
        || c == '\u{feff}'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[u8]) -> Vec<Vec<u8>> {
        split(line).expect("a valid line").into_iter().map(|word| word.bytes).collect()
    }

    /// Goal: spaces, quotes, escapes and comments. Method: one line each.
    #[test]
    fn lines_become_words() {
        assert_eq!(words(b""), Vec::<Vec<u8>>::new());
        assert_eq!(words(b"  # nothing"), Vec::<Vec<u8>>::new());
        assert_eq!(words(b"put a  b\r\n"), [b"put".to_vec(), b"a".to_vec(), b"b".to_vec()]);
        assert_eq!(words(b"\"a b\" \"\" c#d"), [b"a b".to_vec(), b"".to_vec(), b"c#d".to_vec()]);
        assert_eq!(words(b"\\x00\\xFF\\n\\\\ a\\ b"), [b"\0\xff\n\\".to_vec(), b"a b".to_vec()]);
        assert_eq!(words(b"\xff\xfe x"), [b"\xff\xfe".to_vec(), b"x".to_vec()]);
        assert_eq!(words(b"pre\"fix it\"s"), [b"prefix its".to_vec()]);
    }

    /// Goal: what is wrong is said. Method: every way to be wrong.
    #[test]
    fn wrong_lines_are_refused() {
        for line in [&b"\"open"[..], b"tail\\", b"\\x4", b"\\xzz", b"\\q", b"\\x+1", b"\\\xc3\xa4"]
        {
            assert!(split(line).is_err(), "{}", Quoted(line));
        }
    }

    /// Goal: what is printed can be read back. Method: every byte, every pair with a special one,
    /// and characters that terminals act upon.
    #[test]
    fn printed_words_read_back() {
        let mut cases: Vec<Vec<u8>> = (0..=255).map(|b| vec![b]).collect();
        cases.extend((0..=255).flat_map(|b| [vec![b, b'"'], vec![b'\\', b], vec![0xe2, b]]));
        cases.push("täxt ☃ \u{202e}evil\u{7}".as_bytes().to_vec());
        for case in cases {
            let printed = Quoted(&case).to_string();
            assert!(!printed.contains(|c: char| c.is_control()), "{printed:?}");
            assert_eq!(words(printed.as_bytes()), [case], "{printed}");
        }
    }

    /// Goal: data never becomes an option. Method: the same word plain and quoted.
    #[test]
    fn quoted_words_are_data() {
        let words = split(b"-r \"-r\"").expect("a valid line");
        assert_eq!(words[0].plain(), Some("-r"));
        assert_eq!(words[1].plain(), None);
    }
}
