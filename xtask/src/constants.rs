//! The numbers and texts that a Rust file gives names to: constants, variants with a number, and
//! match arms from a variant to a number.
//!
//! What a format page is compared with (`tidy::numbers`). Not a compiler: an expression is read as
//! far as the format's constants need it (arithmetic over literals and constants of the same file,
//! byte strings, lengths); any other has no value here, and a page cannot name it.

use std::collections::BTreeMap;

use crate::source::{Source, Token, tokens, without_tests};

/// What a constant is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number; signed and wide, so that arithmetic over `u64` stays inside.
    Number(i128),
    /// The text of a string or byte string, also of one that is read as a little-endian number.
    Text(String),
}

/// A name with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constant {
    /// The line of its definition, from 1.
    pub line: usize,
    /// `None` if the expression is not one that is read here, or if two definitions differ.
    pub value: Option<Value>,
}

/// Marks a string literal among the words: the hexadecimal of its text follows.
const TEXT: &str = "text_";

/// The constants of the file with this text, by name; `Enum::Variant` for variants. Tests are left
/// out.
pub fn of(text: &str) -> BTreeMap<String, Constant> {
    let view = with_texts(text);
    let tokens = without_tests(&tokens(&view));
    let mut found: BTreeMap<String, (usize, &[Token<'_>])> = BTreeMap::new();
    let mut unclear = Vec::new();
    let mut add = |name: String, line: usize, expression| {
        if let Some((_, other)) = found.insert(name.clone(), (line, expression)) {
            let same = other.iter().map(|t| t.text).eq(expression.iter().map(|t| t.text));
            if !same {
                unclear.push(name);
            }
        }
    };
    for at in 0..tokens.len() {
        if let Some((name, expression)) = constant(&tokens, at) {
            add(name.to_owned(), tokens[at].line, expression);
        } else if let Some((name, expression)) = arm(&tokens, at) {
            add(name, tokens[at].line, expression);
        } else if tokens[at].text == "enum" && at + 1 < tokens.len() {
            for (name, line, expression) in variants(&tokens, at + 1) {
                add(name, line, expression);
            }
        }
    }
    let expressions: BTreeMap<&str, &[Token<'_>]> =
        found.iter().map(|(name, (_, expression))| (name.as_str(), *expression)).collect();
    found
        .iter()
        .map(|(name, &(line, expression))| {
            let value =
                Evaluator { expressions: &expressions, tokens: expression, at: 0, depth: 0 }
                    .whole()
                    .filter(|_| !unclear.contains(name));
            (name.clone(), Constant { line, value })
        })
        .collect()
}

/// The code of `text`, with every string literal as a word that carries its text.
fn with_texts(text: &str) -> String {
    let source = Source::of(text);
    let code: Vec<char> = source.code.chars().collect();
    let comments: Vec<char> = source.comments.chars().collect();
    let original: Vec<char> = text.chars().collect();
    let mut view = String::new();
    let mut at = 0;
    while at < code.len() {
        let blank = code[at] == ' ' && comments[at] == ' ';
        let close = original[at + 1..].iter().position(|&c| c == '"');
        match close {
            Some(close) if blank && original[at] == '"' => {
                let content: String = original[at + 1..=at + close].iter().collect();
                view.push_str(&format!(" {TEXT}{}", hex(&content)));
                view.extend(content.chars().filter(|&c| c == '\n'));
                view.push(' ');
                at += close + 2;
            }
            _ => {
                view.push(code[at]);
                at += 1;
            }
        }
    }
    view
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(word: &str) -> Option<String> {
    let bytes: Option<Vec<u8>> = (0..word.len() / 2)
        .map(|i| u8::from_str_radix(word.get(2 * i..2 * i + 2)?, 16).ok())
        .collect();
    String::from_utf8(bytes?).ok()
}

/// `const NAME: TYPE = EXPRESSION;` at `at`.
fn constant<'a, 't>(tokens: &'t [Token<'a>], at: usize) -> Option<(&'a str, &'t [Token<'a>])> {
    let name = tokens.get(at + 1)?.text;
    if tokens[at].text != "const" || tokens.get(at + 2)?.text != ":" {
        return None;
    }
    let equals = until(tokens, at + 3, &["="])?;
    let end = until(tokens, equals + 1, &[";"])?;
    Some((name, &tokens[equals + 1..end]))
}

/// `Enum::Variant => NUMBER`, a match arm, at `at`; the variant may have a field: `Variant(_)`.
fn arm<'a, 't>(tokens: &'t [Token<'a>], at: usize) -> Option<(String, &'t [Token<'a>])> {
    let [name, colons, variant] = tokens.get(at..at + 3)? else { return None };
    let field = tokens.get(at + 3..at + 6)?.iter().map(|token| token.text);
    let at = if field.eq(["(", "_", ")"]) { at + 6 } else { at + 3 };
    let [equals, greater, number, end] = tokens.get(at..at + 4)? else { return None };
    let is_arm = colons.text == "::" && equals.text == "=" && greater.text == ">";
    let is_number = number.text.starts_with(|c: char| c.is_ascii_digit());
    let ends = matches!(end.text, "," | "}");
    (is_arm && is_number && ends)
        .then(|| (format!("{}::{}", name.text, variant.text), &tokens[at + 2..at + 3]))
}

/// The variants with a number of the enum whose name is at `at`.
fn variants<'a, 't>(tokens: &'t [Token<'a>], at: usize) -> Vec<(String, usize, &'t [Token<'a>])> {
    let mut found = Vec::new();
    let Some(mut next) = until(tokens, at + 1, &["{"]).map(|open| open + 1) else { return found };
    while let Some(end) = until(tokens, next, &[",", "}"]) {
        if let [.., variant, equals, _] = &tokens[next..end]
            && equals.text == "="
        {
            let name = format!("{}::{}", tokens[at].text, variant.text);
            found.push((name, variant.line, &tokens[end - 1..end]));
        }
        if tokens[end].text == "}" {
            break;
        }
        next = end + 1;
    }
    found
}

/// The first token from `at` on that is one of `ends`, outside of brackets that open after `at`.
fn until(tokens: &[Token<'_>], at: usize, ends: &[&str]) -> Option<usize> {
    let mut depth = 0usize;
    for (i, token) in tokens.iter().enumerate().skip(at) {
        match token.text {
            text if depth == 0 && ends.contains(&text) => return Some(i),
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.checked_sub(1)?,
            _ => {}
        }
    }
    None
}

/// Constants that refer to each other are followed this far.
const DEPTH_MAX: usize = 16;

/// Reads one expression, by recursive descent.
struct Evaluator<'a, 't> {
    expressions: &'t BTreeMap<&'t str, &'t [Token<'a>]>,
    tokens: &'t [Token<'a>],
    at: usize,
    depth: usize,
}

impl Evaluator<'_, '_> {
    /// The value of all tokens.
    fn whole(mut self) -> Option<Value> {
        let value = self.binary(0)?;
        (self.at == self.tokens.len()).then_some(value)
    }

    fn peek(&self) -> &str {
        self.tokens.get(self.at).map_or("", |token| token.text)
    }

    fn take(&mut self, text: &str) -> bool {
        let is = self.peek() == text;
        self.at += usize::from(is);
        is
    }

    fn take_all(&mut self, texts: &[&str]) -> bool {
        let window = self.tokens.get(self.at..self.at + texts.len());
        let is = window.is_some_and(|w| w.iter().map(|t| t.text).eq(texts.iter().copied()));
        self.at += if is { texts.len() } else { 0 };
        is
    }

    /// Operators by how weakly they bind: or, shift, sum, product.
    fn binary(&mut self, rank: usize) -> Option<Value> {
        const RANKS: [&[&str]; 4] = [&["|"], &["<<"], &["+", "-"], &["*", "/"]];
        let Some(operators) = RANKS.get(rank) else { return self.cast() };
        let mut left = self.binary(rank + 1)?;
        loop {
            let operator = operators.iter().copied().find(|&operator| match operator {
                "<<" => self.take_all(&["<", "<"]),
                operator => self.take(operator),
            });
            let Some(operator) = operator else { return Some(left) };
            let (Value::Number(a), Value::Number(b)) = (left, self.binary(rank + 1)?) else {
                return None;
            };
            left = Value::Number(match operator {
                "|" => a | b,
                "<<" => a.checked_shl(u32::try_from(b).ok()?)?,
                "+" => a.checked_add(b)?,
                "-" => a.checked_sub(b)?,
                "*" => a.checked_mul(b)?,
                _ => a.checked_div(b)?,
            });
        }
    }

    /// A value, perhaps `as` a type, which is taken not to change it, or its length.
    fn cast(&mut self) -> Option<Value> {
        let mut value = self.primary()?;
        loop {
            if self.take("as") {
                self.at += 1;
            } else if self.take_all(&[".", "len", "(", ")"]) {
                let Value::Text(text) = value else { return None };
                value = Value::Number(text.len() as i128);
            } else {
                return Some(value);
            }
        }
    }

    fn primary(&mut self) -> Option<Value> {
        if self.take("*") || self.take("&") || self.take("b") {
            return self.primary();
        }
        let reads = ["u16", "u32", "u64"];
        if self.take("(") || reads.iter().any(|ty| self.take_all(&[ty, "::", "from_le_bytes", "("]))
        {
            let value = self.binary(0)?;
            return self.take(")").then_some(value);
        }
        let word = self.peek().to_owned();
        self.at += 1;
        if let Some(text) = word.strip_prefix(TEXT) {
            return unhex(text).map(Value::Text);
        }
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return number(&word).map(Value::Number);
        }
        let tokens = *self.expressions.get(word.as_str()).filter(|_| self.depth < DEPTH_MAX)?;
        let expressions = self.expressions;
        Evaluator { expressions, tokens, at: 0, depth: self.depth + 1 }.whole()
    }
}

/// A literal: decimal, hexadecimal or binary, with `_` and a type behind it.
pub fn number(word: &str) -> Option<i128> {
    let plain = word.replace('_', "");
    let plain = ["usize", "u8", "u16", "u32", "u64"]
        .iter()
        .find_map(|ty| plain.strip_suffix(ty))
        .unwrap_or(&plain);
    match (plain.strip_prefix("0x"), plain.strip_prefix("0b")) {
        (Some(digits), _) => i128::from_str_radix(digits, 16).ok(),
        (_, Some(digits)) => i128::from_str_radix(digits, 2).ok(),
        _ => plain.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str, name: &str) -> Option<Value> {
        of(text).get(name).unwrap_or_else(|| panic!("no {name}")).value.clone()
    }

    fn is_number(text: &str, name: &str, expected: i128) {
        assert_eq!(value(text, name), Some(Value::Number(expected)), "{name} in {text}");
    }

    /// Goal: the forms in which format modules write their numbers are read.
    #[test]
    fn expressions_are_read() {
        is_number("const A: u8 = 0x9d;", "A", 0x9d);
        is_number("pub(super) const A: u32 = 0x9e37_79b9_u32;", "A", 0x9e37_79b9);
        is_number("const A: u64 = (1 << 56) - 1;", "A", (1 << 56) - 1);
        is_number("const A: u8 = 1 << 4 | 2;", "A", 18);
        is_number("const B: usize = A + 8;\n/* x */ const A: usize = 2 * 4;", "B", 16);
        is_number("const M: [u8; 8] = *b\"WEIRROOT\";\nconst H: usize = M.len() + 4;", "H", 12);
        is_number("const A: u32 = 8 * B as u32;\nconst B: usize = 64;", "A", 512);
        let text = "const M: u64 = u64::from_le_bytes(*b\"weir tabl\");";
        assert_eq!(value(text, "M"), Some(Value::Text("weir tabl".to_owned())));
        let text = "const M: &str = \"wal-\"; // \"not this\"";
        assert_eq!(value(text, "M"), Some(Value::Text("wal-".to_owned())));
        assert_eq!(value("const A: u32 = f(1);", "A"), None);
        assert_eq!(value("const A: u32 = A;", "A"), None, "a circle ends");
    }

    /// Goal: variants with a number and arms to a number are found, tests are not, and two arms
    /// that differ have no value.
    #[test]
    fn variants_and_arms_are_found() {
        let text = "#[repr(u8)]\nenum K {\n /// x\n Put = 1,\n #[doc(hidden)] Delete = 2, Last }\n";
        is_number(text, "K::Put", 1);
        is_number(text, "K::Delete", 2);
        assert_eq!(of(text).len(), 2);
        assert_eq!(of(text)["K::Delete"].line, 5);
        let text = "fn f(p: P) -> u64 { match p { P::A => 1, P::B => 2, P::C(_) => 3 } }";
        is_number(text, "P::B", 2);
        is_number(text, "P::C", 3);
        let twice = "fn f() { match p { P::A => 1, P::B => 2 } } fn g() { match p { P::A => 3, } }";
        assert_eq!(value(twice, "P::A"), None);
        assert!(of("#[cfg(test)] mod tests { const A: u8 = 1; }").is_empty());
    }
}
