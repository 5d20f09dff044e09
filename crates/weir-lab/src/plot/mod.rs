//! Plots: one picture for one result, as SVG for reports and as PNG for everything else.
//!
//! Every plot has a title, what it comes from, axes with label and unit, a legend below the data
//! and, dashed, what the paper gives. Series of different units are in panels of their own.
//!
//! Not here: what is measured and derived (`outcome`); pages of plots (`report`).
//!
//! The same result gives the same bytes: no clock, no font of the machine, no place in the order of
//! a hash table.

mod draw;
mod font;
mod picture;
mod raster;
mod scale;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use draw::dark_style;
pub use picture::figure;

use plotters::backend::SVGBackend;

use crate::result::Result as Outcome;
use crate::seeds::{self, Group};
use crate::show;
use draw::Layout;
use picture::Picture;
use raster::{Pen, Raster};

/// The plot as an SVG document, text as text in the reader's sans-serif font.
///
/// # Errors
/// What plotters could not draw.
pub fn svg(result: &Outcome) -> Result<String, String> {
    seeds::groups([result]).first().map_or(Err("there is no result".into()), svg_over)
}

/// The plot of one experiment from several seeds.
///
/// # Errors
/// What plotters could not draw.
pub fn svg_over(group: &Group<'_>) -> Result<String, String> {
    let (result, picture) = (group.first(), Picture::of(group));
    let layout = Layout::of(&picture);
    let mut drawn = String::new();
    draw::draw(SVGBackend::with_string(&mut drawn, layout.size), &picture, &layout)?;
    // For screen readers: the title and a description.
    let names: Vec<&str> = picture.legend.iter().map(|entry| entry.text.as_str()).collect();
    let head =
        format!("<svg role=\"img\" aria-label=\"{title}\" ", title = show::escaped(&result.title));
    let body = format!(
        "\n<title>{}</title>\n<desc>{} over {}. Drawn: {}.</desc>",
        show::escaped(&result.title),
        show::escaped(&show::with_unit(&result.y.label, &result.y.unit)),
        show::escaped(&show::with_unit(&result.x.label, &result.x.unit)),
        show::escaped(&names.join("; "))
    );
    let opened = drawn.replacen("<svg ", &head, 1);
    let Some(end) = opened.find('>') else {
        return Err("plotters wrote no SVG".into());
    };
    let (tag, rest) = opened.split_at(end + 1);
    Ok(format!("{tag}{body}{rest}"))
}

/// The plot as a PNG file, twice as many pixels wide as the SVG has units.
///
/// # Errors
/// What plotters could not draw, or the encoder not write.
pub fn png(result: &Outcome) -> Result<Vec<u8>, String> {
    let groups = seeds::groups([result]);
    let picture = groups.first().map(Picture::of).ok_or("there is no result")?;
    let layout = Layout::of(&picture);
    let mut raster = Raster::new(layout.size);
    draw::draw(Pen(&mut raster), &picture, &layout)?;
    raster.encode()
}
