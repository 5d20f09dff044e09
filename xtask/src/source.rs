//! Rust source as these checks need it: what is code, what is comment, and the tokens of the code.
//!
//! Not a parser: strings and comments are recognised exactly, everything else only as far as a
//! check asks (paths, `mod` items, `#[cfg(test)]` blocks).
//! Invariant: both views keep every line break, so a line number in one holds in the file.

/// A file split into its code and its comments, everything else blanked with spaces.
#[derive(Debug, Default)]
pub struct Source {
    /// The code; the contents of comments, strings and characters are blank.
    pub code: String,
    /// The comments with their marks.
    pub comments: String,
}

/// A piece of code: an identifier, number or lifetime, `::`, or one character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    /// The piece itself.
    pub text: &'a str,
    /// Its line, from 1.
    pub line: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Code,
    Comment,
    Blank,
}

impl Source {
    /// Splits `text`.
    pub fn of(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let mut source = Self::default();
        let mut at = 0;
        while at < chars.len() {
            let (end, part) = piece(&chars, at);
            for &c in &chars[at..end] {
                source.push(c, part);
            }
            at = end;
        }
        source
    }

    fn push(&mut self, c: char, part: Part) {
        let blank = if c == '\n' { '\n' } else { ' ' };
        self.code.push(if part == Part::Code { c } else { blank });
        self.comments.push(if part == Part::Comment { c } else { blank });
    }
}

/// The end and kind of the piece that starts at `at`. The quotes of strings are blanked with them.
fn piece(chars: &[char], at: usize) -> (usize, Part) {
    let next = chars.get(at + 1).copied();
    match chars[at] {
        '/' if next == Some('/') => {
            let end = chars[at..].iter().position(|&c| c == '\n').map_or(chars.len(), |n| at + n);
            (end, Part::Comment)
        }
        '/' if next == Some('*') => (block_comment_end(chars, at), Part::Comment),
        '"' => (string_end(chars, at + 1), Part::Blank),
        '\'' => char_end(chars, at).map_or((at + 1, Part::Code), |end| (end, Part::Blank)),
        c if is_word(c) => {
            let end = chars[at..].iter().position(|&c| !is_word(c)).map_or(chars.len(), |n| at + n);
            let word: String = chars[at..end].iter().collect();
            raw_string_end(chars, &word, end).map_or((end, Part::Code), |end| (end, Part::Blank))
        }
        _ => (at + 1, Part::Code),
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Block comments nest.
fn block_comment_end(chars: &[char], at: usize) -> usize {
    let mut depth = 0;
    let mut i = at;
    while i < chars.len() {
        match (chars[i], chars.get(i + 1)) {
            ('/', Some('*')) => (depth, i) = (depth + 1, i + 2),
            ('*', Some('/')) => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
        if depth == 0 {
            return i;
        }
    }
    chars.len()
}

/// The end of a string whose opening quote is before `at`.
fn string_end(chars: &[char], at: usize) -> usize {
    let mut i = at;
    while i < chars.len() {
        match chars[i] {
            '\\' => i += 2,
            '"' => return i + 1,
            _ => i += 1,
        }
    }
    chars.len()
}

/// The end of a raw string after its prefix `word`; `None` if this is none.
fn raw_string_end(chars: &[char], word: &str, at: usize) -> Option<usize> {
    if !matches!(word, "r" | "br" | "cr") {
        return None;
    }
    let hashes = chars[at..].iter().take_while(|&&c| c == '#').count();
    if chars.get(at + hashes) != Some(&'"') {
        return None;
    }
    let mut i = at + hashes + 1;
    while i < chars.len() {
        let closing = chars[i + 1..].iter().take_while(|&&c| c == '#').count();
        if chars[i] == '"' && closing >= hashes {
            return Some(i + 1 + hashes);
        }
        i += 1;
    }
    Some(chars.len())
}

/// The end of a character literal at `at`; `None` if it is a lifetime.
fn char_end(chars: &[char], at: usize) -> Option<usize> {
    if chars.get(at + 1) == Some(&'\\') {
        let close = chars.get(at + 3..)?.iter().position(|&c| c == '\'')?;
        return Some(at + 3 + close + 1);
    }
    (chars.get(at + 2) == Some(&'\'')).then_some(at + 3)
}

/// The tokens of a [`Source::code`] view.
pub fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut rest = code;
    while let Some(c) = rest.chars().next() {
        let length = if is_word(c) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            c.len_utf8()
        };
        let (text, after) = rest.split_at(length);
        if c == '\n' {
            line += 1;
        } else if !c.is_whitespace() {
            tokens.push(Token { text, line });
        }
        rest = after;
    }
    tokens
}

/// The index after the brace that closes the one at `open`; the end if none does.
pub fn after_braces(tokens: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0usize;
    for (i, token) in tokens.iter().enumerate().skip(open) {
        match token.text {
            "{" => depth += 1,
            "}" if depth == 1 => return i + 1,
            "}" => depth -= 1,
            _ => {}
        }
    }
    tokens.len()
}

/// `tokens` without modules, functions and imports under `#[cfg(test)]`.
pub fn without_tests<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    const CFG_TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let window = &tokens[at..tokens.len().min(at + CFG_TEST.len())];
        if !window.iter().map(|token| token.text).eq(CFG_TEST) {
            kept.push(tokens[at]);
            at += 1;
            continue;
        }
        // The item ends at its first semicolon, or with its first braces; a `use` has both.
        let item = at + CFG_TEST.len();
        let is_use = tokens[item..].iter().take(6).any(|token| token.text == "use");
        let end = tokens[item..]
            .iter()
            .position(|token| token.text == ";" || (!is_use && token.text == "{"))
            .map_or(tokens.len(), |n| item + n);
        let braces = tokens.get(end).is_some_and(|token| token.text == "{");
        at = if braces { after_braces(tokens, end) } else { end + 1 };
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(code: &str) -> Vec<String> {
        tokens(&Source::of(code).code).iter().map(|token| token.text.to_owned()).collect()
    }

    /// Goal: nothing inside strings, characters or comments is taken for code, and no code is lost.
    #[test]
    fn strings_and_comments_are_not_code() {
        assert_eq!(texts("a /* b /* c */ d */ e // f\ng"), ["a", "e", "g"]);
        assert_eq!(texts(r#"a "b \" c" d"#), ["a", "d"]);
        assert_eq!(texts("a r#\"b \" c\"# d br\"x\\\" e"), ["a", "d", "e"]);
        assert_eq!(texts(r"a '\'' b '{' c '\u{1f}' d"), ["a", "b", "c", "d"]);
        assert_eq!(texts("fn f<'a>(x: &'a str)")[2..5], ["<", "'", "a"]);
        let source = Source::of("x; // note\n/* two\nlines */ y");
        assert_eq!(source.comments.trim_end(), "   // note\n/* two\nlines */");
    }

    /// Goal: a token knows the line it stands on, also after blanked strings and comments.
    #[test]
    fn lines_survive() {
        let source = Source::of("/* a\n */ \"b\nc\" d");
        let tokens = tokens(&source.code);
        assert_eq!(tokens, [Token { text: "d", line: 3 }]);
    }

    /// Goal: items under `#[cfg(test)]` vanish, the item after them stays.
    #[test]
    fn test_items_are_removed() {
        let code = "use a; #[cfg(test)] mod t { fn f() {} } #[cfg(test)] use b::{c}; fn g() {}";
        let source = Source::of(code);
        let kept: Vec<&str> =
            without_tests(&tokens(&source.code)).iter().map(|token| token.text).collect();
        assert_eq!(kept, ["use", "a", ";", "fn", "g", "(", ")", "{", "}"]);
    }
}
