//! The small files beside this tool: `layers.toml` and the allow lists.
//!
//! `layers.toml` uses one form of TOML only, `name = ["a", "b"]` with comments; anything else is an
//! error with its line number.

/// One line of an allow list: what is allowed, and where it says so.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The words of the line.
    pub words: Vec<&'a str>,
    /// What stands behind its `#`; empty without one.
    pub comment: &'a str,
    /// Its number, from 1.
    pub line: usize,
}

/// The lines of an allow list; `#` starts a comment.
pub fn entries(text: &str) -> Vec<Entry<'_>> {
    text.lines()
        .enumerate()
        .map(|(i, line)| Entry {
            words: without_comment(line).split_whitespace().collect(),
            comment: line.split_once('#').map_or("", |(_, comment)| comment.trim()),
            line: i + 1,
        })
        .filter(|entry| !entry.words.is_empty())
        .collect()
}

/// The `name = ["a", "b"]` lines of `text`; an array may go over several lines.
///
/// # Errors
/// The number of the first line that has another form.
pub fn tables(text: &str) -> Result<Vec<(String, Vec<String>)>, usize> {
    let mut found = Vec::new();
    let mut statement = String::new();
    for (i, line) in text.lines().enumerate() {
        statement.push_str(without_comment(line).trim());
        if statement.is_empty() || (statement.contains('[') && !statement.ends_with(']')) {
            continue;
        }
        found.push(parse(&statement).ok_or(i + 1)?);
        statement.clear();
    }
    if statement.is_empty() { Ok(found) } else { Err(text.lines().count()) }
}

/// One `name = ["a", "b"]`.
fn parse(statement: &str) -> Option<(String, Vec<String>)> {
    let (name, list) = statement.split_once('=')?;
    let list = list.trim().strip_prefix('[')?.strip_suffix(']')?;
    let mut values = Vec::new();
    for value in list.split(',').map(str::trim).filter(|value| !value.is_empty()) {
        values.push(value.strip_prefix('"')?.strip_suffix('"')?.to_owned());
    }
    Some((name.trim().trim_matches('"').to_owned(), values))
}

fn without_comment(line: &str) -> &str {
    line.split_once('#').map_or(line, |(before, _)| before)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the form that layers.toml uses is read, over one line and several.
    #[test]
    fn tables_are_read() {
        let text =
            "# law\nbase = []\n\"version::shape\" = [\"base\"] # pure\na = [\n \"b\",\n \"c\"\n]\n";
        let tables = tables(text).expect("the form is known");
        assert_eq!(
            tables,
            [
                ("base".to_owned(), vec![]),
                ("version::shape".to_owned(), vec!["base".to_owned()]),
                ("a".to_owned(), vec!["b".to_owned(), "c".to_owned()]),
            ]
        );
    }

    /// Goal: another form is refused by line, not skipped.
    #[test]
    fn another_form_is_refused() {
        assert_eq!(tables("a = []\nb = 3\n"), Err(2));
        assert_eq!(tables("a = [\"b\",\n"), Err(1));
        assert_eq!(tables("a = [b]\n"), Err(1));
    }

    /// Goal: comments and empty lines of an allow list are skipped, line numbers stay right.
    #[test]
    fn entries_keep_their_lines() {
        let entries = entries("# head\n\na.rs lines=900 # why\n");
        assert_eq!(entries, [Entry { words: vec!["a.rs", "lines=900"], comment: "why", line: 3 }]);
    }
}
