//! Numbers, bytes and tables for people.

use indicatif::{ProgressState, ProgressStyle};
use std::fmt;
use std::io::{self, Write};

/// A number of bytes with a binary unit: `12.3 MiB`.
pub(crate) struct Bytes(pub(crate) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return f.pad(&format!("{} B", self.0));
        }
        let mut value = self.0 as f64;
        let mut unit = "B";
        for next in UNITS {
            if value < 1024.0 {
                break;
            }
            value /= 1024.0;
            unit = next;
        }
        f.pad(&format!("{value:.1} {unit}"))
    }
}

/// A count with thin groups of three: `1,234,567`.
pub(crate) struct Count(pub(crate) u64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut text = String::with_capacity(digits.len() + digits.len() / 3);
        for (i, digit) in digits.chars().enumerate() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        f.pad(&text)
    }
}

/// A count of things that have a name: `1 table`, `2,000 tables`.
pub(crate) struct Plural<'a>(pub(crate) u64, pub(crate) &'a str);

impl fmt::Display for Plural<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{}", Count(self.0), self.1, if self.0 == 1 { "" } else { "s" })
    }
}

/// A count of entries, whose plural is not regular.
pub(crate) struct Entries(pub(crate) u64);

impl fmt::Display for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", Count(self.0), if self.0 == 1 { "entry" } else { "entries" })
    }
}

/// A latency in microseconds with the unit that fits: `850 ns`, `12.3 us`, `4.5 ms`.
pub(crate) struct Micros(pub(crate) f64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = self.0;
        f.pad(&if us < 1.0 {
            format!("{:.0} ns", us * 1e3)
        } else if us < 1e3 {
            format!("{us:.1} us")
        } else if us < 1e6 {
            format!("{:.1} ms", us / 1e3)
        } else {
            format!("{:.2} s", us / 1e6)
        })
    }
}

/// The look of a progress line; `{rate}` in it is the operations per second.
pub(crate) fn progress_style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key("rate", |state: &ProgressState, out: &mut dyn fmt::Write| {
            // A progress line that cannot be drawn is not drawn.
            let _drawn = write!(out, "{} per second", Count(state.per_sec() as u64));
        })
}

/// `part` out of `whole` as a percentage; a dash if there is no whole.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1} %", 100.0 * part as f64 / whole as f64) }
}

/// Prints rows under a header, columns aligned: the first to the left, the others to the right.
pub(crate) fn table(out: &mut dyn Write, header: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
    let mut widths: Vec<usize> = header.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |out: &mut dyn Write, cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (i, (cell, &width)) in cells.zip(&widths).enumerate() {
            if i == 0 {
                text.push_str(&format!("{cell:<width$}"));
            } else {
                text.push_str(&format!("  {cell:>width$}"));
            }
        }
        writeln!(out, "{}", text.trim_end())
    };
    line(out, &mut header.iter().copied())?;
    rows.iter().try_for_each(|row| line(out, &mut row.iter().map(String::as_str)))
}

/// A size on the command line: a number, or one with the unit k, m or g (powers of 1,024).
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    let stem = lower.trim_end_matches("ib").trim_end_matches('b');
    let (digits, shift) = match stem.chars().last() {
        Some('k') => (&stem[..stem.len() - 1], 10),
        Some('m') => (&stem[..stem.len() - 1], 20),
        Some('g') => (&stem[..stem.len() - 1], 30),
        _ => (stem, 0),
    };
    let number: u64 = digits.trim().parse().map_err(|_| {
        format!("{text:?} is no size; write a number of bytes, or one with k, m or g: 64m")
    })?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text} does not fit 64 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: people read the right unit. Method: values on both sides of each step.
    #[test]
    fn units() {
        assert_eq!(Bytes(1023).to_string(), "1023 B");
        assert_eq!(Bytes(1024).to_string(), "1.0 KiB");
        assert_eq!(Bytes(3 << 29).to_string(), "1.5 GiB");
        assert_eq!(Bytes(u64::MAX).to_string(), "16.0 EiB");
        assert_eq!(Count(0).to_string(), "0");
        assert_eq!(Count(999).to_string(), "999");
        assert_eq!(Count(1_234_567).to_string(), "1,234,567");
        assert_eq!(Plural(0, "table").to_string(), "0 tables");
        assert_eq!(Plural(1, "table").to_string(), "1 table");
        assert_eq!(Plural(2000, "table").to_string(), "2,000 tables");
        assert_eq!(
            (Entries(1).to_string(), Entries(2).to_string()),
            ("1 entry".into(), "2 entries".into())
        );
        assert_eq!(Micros(0.85).to_string(), "850 ns");
        assert_eq!(Micros(12.34).to_string(), "12.3 us");
        assert_eq!(Micros(4500.0).to_string(), "4.5 ms");
        assert_eq!(percent(1, 0), "-");
        assert_eq!(percent(1, 4), "25.0 %");
    }

    /// Goal: sizes mean what people write. Method: every unit, and what is refused.
    #[test]
    fn sizes() {
        assert_eq!(parse_size("123"), Ok(123));
        assert_eq!(parse_size("64k"), Ok(64 << 10));
        assert_eq!(parse_size("64MiB"), Ok(64 << 20));
        assert_eq!(parse_size("2 GB"), Ok(2 << 30));
        for wrong in ["", "k", "-1", "1.5m", "12x", "999999999999g"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    /// Goal: columns line up. Method: a cell wider than its header.
    #[test]
    fn columns() {
        let mut out = Vec::new();
        let rows = [vec!["a".into(), "12345".into()], vec!["long".into(), "6".into()]];
        table(&mut out, &["name", "n"], &rows).expect("a vector takes everything");
        assert_eq!(String::from_utf8_lossy(&out), "name      n\na     12345\nlong      6\n");
    }
}
