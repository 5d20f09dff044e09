//! Numbers and text as people read them, in plots and reports.

/// About four significant digits, thousands apart; tiny and huge values with an exponent.
#[must_use]
pub fn number(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        return "0".into();
    }
    if !(1e-4..1e15).contains(&size) {
        return format!("{value:.2e}");
    }
    let decimals = (3.0 - size.log10().floor()).clamp(0.0, 7.0) as usize;
    let text = format!("{value:.decimals$}");
    // Rounding may have carried into one digit more: 9.9996 is 10, not 10.000.
    trimmed(&grouped(&text)).to_owned()
}

/// `value` with `decimals` places, thousands apart.
pub(crate) fn fixed(value: f64, decimals: usize) -> String {
    let text = grouped(&format!("{value:.decimals$}"));
    if text.trim_start_matches('-').chars().all(|c| matches!(c, '0' | '.')) {
        return text.trim_start_matches('-').to_owned();
    }
    text
}

/// `label (unit)`, or what of it there is.
#[must_use]
pub fn with_unit(label: &str, unit: &str) -> String {
    match (label, unit) {
        (label, "") => label.to_owned(),
        ("", unit) => unit.to_owned(),
        (label, unit) => format!("{label} ({unit})"),
    }
}

/// `100 s`, or the number alone.
#[must_use]
pub fn with_unit_behind(value: f64, unit: &str) -> String {
    format!("{} {unit}", number(value)).trim_end().to_owned()
}

/// `text` as it may stand in XML and HTML, in an attribute as well; characters that neither can
/// hold become a question mark.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(printable(c)),
        }
    }
    out
}

/// `c`, or a question mark if XML cannot hold it.
pub(crate) fn printable(c: char) -> char {
    let control = c.is_control() && !matches!(c, '\t' | '\n');
    if control || matches!(c, '\u{fffe}' | '\u{ffff}') { '?' } else { c }
}

fn grouped(text: &str) -> String {
    let (sign, text) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut out = sign.to_owned();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

fn trimmed(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a reader sees neither noise nor a rounded-away value. Method: one case per rule.
    #[test]
    fn numbers_have_four_digits() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.86123, "0.8612"),
            (0.5, "0.5"),
            (9.99996, "10"),
            (47.251, "47.25"),
            (1947.4, "1,947"),
            (1_234_567.8, "1,234,568"),
            (-1234.0, "-1,234"),
            (0.000_25, "0.00025"),
            (0.000_001_25, "1.25e-6"),
            (3e20, "3.00e20"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!(fixed(-0.001, 1), "0.0");
        assert_eq!(fixed(12345.678, 1), "12,345.7");
    }

    /// Goal: no text of a result can become markup.
    #[test]
    fn text_is_escaped() {
        assert_eq!(escaped("<a b=\"c\">&'\0é"), "&lt;a b=&quot;c&quot;&gt;&amp;&#39;?é");
        assert_eq!(with_unit("hit ratio", "%"), "hit ratio (%)");
        assert_eq!(with_unit("", "%"), "%");
        assert_eq!(with_unit("runs", ""), "runs");
        assert_eq!(
            (with_unit_behind(100.0, "s"), with_unit_behind(2.5, "")),
            ("100 s".into(), "2.5".into())
        );
    }
}
