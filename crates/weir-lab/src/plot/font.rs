//! The font of the PNGs, and how wide text is. DejaVu Sans, cut down to Latin, Greek and
//! mathematical characters; its licence is beside it in `fonts/`.

use ab_glyph::{Font, FontRef, Glyph, PxScale};
use std::sync::OnceLock;

static BOOK: &[u8] = include_bytes!("../../fonts/DejaVuSans.ttf");
static BOLD: &[u8] = include_bytes!("../../fonts/DejaVuSans-Bold.ttf");

fn font(bold: bool) -> &'static FontRef<'static> {
    static FONTS: OnceLock<[FontRef<'static>; 2]> = OnceLock::new();
    let load = |bytes| FontRef::try_from_slice(bytes).expect("the font in fonts/ is a font");
    let fonts = FONTS.get_or_init(|| [load(BOOK), load(BOLD)]);
    if bold { &fonts[1] } else { &fonts[0] }
}

/// The scale at which an em is `em` pixels.
fn scale(font: &FontRef<'_>, em: f32) -> PxScale {
    PxScale::from(em * font.height_unscaled() / font.units_per_em().unwrap_or(2048.0))
}

/// Width of `text` in pixels, where an em is `em` pixels.
pub(super) fn width(text: &str, em: f32, bold: bool) -> f32 {
    let font = font(bold);
    let units = font.units_per_em().unwrap_or(2048.0);
    let advances = text.chars().map(|c| font.h_advance_unscaled(font.glyph_id(c)));
    advances.sum::<f32>() * em / units
}

/// Calls `dot(x, y, coverage)` for every pixel of `text` whose baseline begins at (0, 0).
pub(super) fn draw(text: &str, em: f32, bold: bool, mut dot: impl FnMut(f32, f32, f32)) {
    let font = font(bold);
    let scale = scale(font, em);
    let units = font.units_per_em().unwrap_or(2048.0);
    let mut x = 0.0;
    for c in text.chars() {
        let id = font.glyph_id(c);
        let glyph: Glyph = id.with_scale_and_position(scale, ab_glyph::point(x, 0.0));
        x += font.h_advance_unscaled(id) * em / units;
        if let Some(outline) = font.outline_glyph(glyph) {
            let corner = outline.px_bounds().min;
            outline.draw(|dx, dy, coverage| {
                dot(corner.x + dx as f32, corner.y + dy as f32, coverage.min(1.0));
            });
        }
    }
}

/// `text` in lines of at most `width_max` pixels, broken at spaces; a longer word has a line of its
/// own.
pub(super) fn wrapped(text: &str, em: f32, bold: bool, width_max: f32) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(&format!("{line} {word}"), em, bold) <= width_max => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// `text`, cut with an ellipsis if it is wider than `width_max` pixels.
pub(super) fn fitted(text: &str, em: f32, bold: bool, width_max: f32) -> String {
    if width(text, em, bold) <= width_max {
        return text.to_owned();
    }
    let mut cut = text.to_owned();
    while cut.pop().is_some() {
        let short = format!("{}…", cut.trim_end());
        if width(&short, em, bold) <= width_max {
            return short;
        }
    }
    "…".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what plots say can be drawn. Method: every character that ours use has a glyph.
    #[test]
    fn characters_have_glyphs() {
        let others = "äöüéñß×·–—…µ±≤≥≈→αβεθσ²³₀₁°€";
        for c in (' '..='~').chain(others.chars()) {
            assert_ne!(font(false).glyph_id(c).0, 0, "{c:?}");
            assert_ne!(font(true).glyph_id(c).0, 0, "{c:?} in bold");
        }
    }

    /// Goal: text is as wide as its parts, breaks at spaces and fits when it is cut.
    #[test]
    fn text_is_measured_and_broken() {
        assert_eq!(width("", 12.0, false), 0.0);
        assert!((width("mm", 12.0, false) - 2.0 * width("m", 12.0, false)).abs() < 1e-3);
        assert!(width("m", 12.0, true) > width("m", 12.0, false));
        let lines = wrapped("one two  three", 12.0, false, width("one two", 12.0, false) + 0.1);
        assert_eq!(lines, ["one two", "three"]);
        assert_eq!(wrapped("unbreakable", 12.0, false, 1.0), ["unbreakable"]);
        let cut = fitted("a long sentence", 12.0, false, 60.0);
        assert!(cut.ends_with('…') && width(&cut, 12.0, false) <= 60.0, "{cut}");
    }
}
