//! A picture in memory that plotters draws on, and its PNG form.
//!
//! plotters' own bitmap backend pulls in an image library, and sets text without the glyphs' side
//! bearings. Here coordinates are those of the SVG, each of them [`ZOOM`] pixels wide, and every
//! shape has soft edges: a pixel takes as much of the colour as the shape covers of it.

use std::convert::Infallible;

use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind,
    FontStyle, FontTransform,
};

use super::font;

/// Pixels per unit of the SVG: sharp on today's screens.
const ZOOM: usize = 2;

type Done = Result<(), DrawingErrorKind<Infallible>>;

/// Red, green and blue of every pixel, line by line.
pub(super) struct Raster {
    /// Width and height in units of the SVG.
    size: (u32, u32),
    pixels: Vec<u8>,
}

impl Raster {
    /// A white picture.
    pub(super) fn new(size: (u32, u32)) -> Self {
        let pixels = size.0 as usize * size.1 as usize * ZOOM * ZOOM;
        Self { size, pixels: vec![255; pixels * 3] }
    }

    /// The PNG file.
    pub(super) fn encode(&self) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let (width, height) = (self.size.0 * ZOOM as u32, self.size.1 * ZOOM as u32);
        let mut encoder = png::Encoder::new(&mut bytes, width, height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let written = encoder.write_header().and_then(|mut header| {
            header.write_image_data(&self.pixels)?;
            header.finish()
        });
        written.map_err(|e| format!("cannot write a PNG: {e}"))?;
        Ok(bytes)
    }

    /// Mixes `color` into the pixel; places outside the picture are ignored.
    fn mix(&mut self, x: i64, y: i64, color: BackendColor, coverage: f64) {
        let (width, height) = (self.size.0 as usize * ZOOM, self.size.1 as usize * ZOOM);
        let (Ok(x), Ok(y)) = (usize::try_from(x), usize::try_from(y)) else { return };
        if x >= width || y >= height {
            return;
        }
        let alpha = (color.alpha * coverage).clamp(0.0, 1.0);
        let pixel = self.pixels.iter_mut().skip((y * width + x) * 3).take(3);
        for (channel, new) in pixel.zip(<[u8; 3]>::from(color.rgb)) {
            *channel = (f64::from(*channel) * (1.0 - alpha) + f64::from(new) * alpha).round() as u8;
        }
    }

    /// Fills whole units.
    fn fill(&mut self, from: BackendCoord, to: BackendCoord, color: BackendColor) {
        let zoom = ZOOM as i64;
        let span = |a: i32, b: i32| i64::from(a.min(b)) * zoom..i64::from(a.max(b)) * zoom;
        for y in span(from.1, to.1) {
            for x in span(from.0, to.0) {
                self.mix(x, y, color, 1.0);
            }
        }
    }

    /// A circle's line, with soft edges.
    fn ring(&mut self, center: BackendCoord, radius: f64, width: f64, color: BackendColor) {
        let zoom = ZOOM as f64;
        let (cx, cy) = (f64::from(center.0) * zoom, f64::from(center.1) * zoom);
        let (radius, half) = (radius * zoom, width * zoom / 2.0);
        let reach = (radius + half + 1.0).ceil() as i64;
        for y in cy as i64 - reach..=cy as i64 + reach {
            for x in cx as i64 - reach..=cx as i64 + reach {
                let distance = (x as f64 + 0.5 - cx).hypot(y as f64 + 0.5 - cy);
                let coverage = half + 0.5 - (distance - radius).abs();
                if coverage > 0.0 {
                    self.mix(x, y, color, coverage.min(1.0));
                }
            }
        }
    }

    /// Everything at most `reach` units away from the way from `a` to `b`, with soft edges.
    fn stroke(&mut self, a: BackendCoord, b: BackendCoord, reach: f64, color: BackendColor) {
        let zoom = ZOOM as f64;
        let place = |p: BackendCoord| (f64::from(p.0) * zoom, f64::from(p.1) * zoom);
        let ((ax, ay), (bx, by)) = (place(a), place(b));
        let reach = reach * zoom;
        let (dx, dy) = (bx - ax, by - ay);
        let length = dx * dx + dy * dy;
        let ys = (ay.min(by) - reach - 1.0).floor() as i64..=(ay.max(by) + reach + 1.0) as i64;
        for y in ys {
            for x in (ax.min(bx) - reach - 1.0).floor() as i64..=(ax.max(bx) + reach + 1.0) as i64 {
                let (px, py) = (x as f64 + 0.5 - ax, y as f64 + 0.5 - ay);
                let along = if length == 0.0 { 0.0 } else { (px * dx + py * dy) / length };
                let along = along.clamp(0.0, 1.0);
                let distance = (px - dx * along).hypot(py - dy * along);
                let coverage = reach + 0.5 - distance;
                if coverage > 0.0 {
                    self.mix(x, y, color, coverage.min(1.0));
                }
            }
        }
    }
}

/// What plotters draws with.
pub(super) struct Pen<'a>(pub(super) &'a mut Raster);

impl DrawingBackend for Pen<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        self.0.size
    }

    fn ensure_prepared(&mut self) -> Done {
        Ok(())
    }

    fn present(&mut self) -> Done {
        Ok(())
    }

    fn draw_pixel(&mut self, point: BackendCoord, color: BackendColor) -> Done {
        self.0.fill(point, (point.0 + 1, point.1 + 1), color);
        Ok(())
    }

    fn draw_line<S: BackendStyle>(&mut self, a: BackendCoord, b: BackendCoord, style: &S) -> Done {
        self.0.stroke(a, b, f64::from(style.stroke_width()) / 2.0, style.color());
        Ok(())
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        corner: BackendCoord,
        other: BackendCoord,
        style: &S,
        fill: bool,
    ) -> Done {
        if fill {
            self.0.fill(corner, other, style.color());
            return Ok(());
        }
        let corners = [corner, (other.0, corner.1), other, (corner.0, other.1), corner];
        self.draw_path(corners, style)
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> Done {
        let mut path = path.into_iter();
        let Some(mut from) = path.next() else { return Ok(()) };
        for to in path {
            self.draw_line(from, to, style)?;
            from = to;
        }
        Ok(())
    }

    fn draw_circle<S: BackendStyle>(
        &mut self,
        center: BackendCoord,
        radius: u32,
        style: &S,
        fill: bool,
    ) -> Done {
        if fill {
            self.0.stroke(center, center, f64::from(radius), style.color());
            return Ok(());
        }
        self.0.ring(center, f64::from(radius), f64::from(style.stroke_width()), style.color());
        Ok(())
    }

    /// Where plotters' SVG puts it: `dy` as there, an x-height of 0.547 em.
    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, at: BackendCoord) -> Done {
        let zoom = ZOOM as f32;
        // plotters counts a line's height, SVG an em.
        let em = (style.size() / 1.24) as f32 * zoom;
        let bold = matches!(style.style(), FontStyle::Bold);
        let width = font::width(text, em, bold);
        let left = match style.anchor().h_pos {
            HPos::Left => 0.0,
            HPos::Center => -width / 2.0,
            HPos::Right => -width,
        };
        let down = match style.anchor().v_pos {
            VPos::Top => 0.76 * em,
            VPos::Center => 0.2735 * em,
            VPos::Bottom => -0.2735 * em,
        };
        let (x0, y0) = (at.0 as f32 * zoom, at.1 as f32 * zoom);
        let (color, turn) = (style.color(), style.transform());
        // Turned glyphs are drawn from turned pixels, so these lie on whole places.
        let (left, down) = (left.round(), down.round());
        font::draw(text, em, bold, |x, y, coverage| {
            let (x, y) = (x + left, y + down);
            let (x, y) = match turn {
                FontTransform::None => (x, y),
                FontTransform::Rotate90 => (-y - 1.0, x),
                FontTransform::Rotate180 => (-x - 1.0, -y - 1.0),
                FontTransform::Rotate270 => (y, -x - 1.0),
            };
            self.0.mix((x0 + x) as i64, (y0 + y) as i64, color, f64::from(coverage));
        });
        Ok(())
    }

    fn estimate_text_size<S: BackendTextStyle>(
        &self,
        text: &str,
        style: &S,
    ) -> Result<(u32, u32), DrawingErrorKind<Infallible>> {
        let em = (style.size() / 1.24) as f32;
        let bold = matches!(style.style(), FontStyle::Bold);
        Ok((font::width(text, em, bold).ceil() as u32, style.size().ceil() as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLACK: BackendColor = BackendColor { alpha: 1.0, rgb: (0, 0, 0) };

    fn darkness(raster: &Raster) -> f64 {
        raster.pixels.iter().map(|c| f64::from(255 - c) / 255.0 / 3.0).sum()
    }

    /// Goal: shapes cover their area, edges are soft, the outside is ignored. Method: the sum of
    /// what is dark against geometry.
    #[test]
    fn shapes_cover_their_area() {
        let zoom = (ZOOM * ZOOM) as f64;
        let mut raster = Raster::new((40, 40));
        Pen(&mut raster).draw_circle((20, 20), 10, &BLACK, true).expect("infallible");
        let circle = std::f64::consts::PI * 100.0;
        assert!((darkness(&raster) / zoom / circle - 1.0).abs() < 0.02);
        let mut raster = Raster::new((40, 40));
        Pen(&mut raster).draw_rect((-5, -5), (10, 10), &BLACK, true).expect("infallible");
        assert!((darkness(&raster) / zoom - 100.0).abs() < 1e-6);
    }

    /// Goal: the PNG holds the pixels. Method: decode it.
    #[test]
    fn png_holds_the_pixels() {
        let mut raster = Raster::new((7, 5));
        Pen(&mut raster).draw_pixel((3, 2), BLACK).expect("infallible");
        let bytes = raster.encode().expect("encodes");
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().expect("a PNG");
        let mut pixels = vec![0; reader.output_buffer_size().expect("fits")];
        let info = reader.next_frame(&mut pixels).expect("a frame");
        assert_eq!((info.width, info.height), (14, 10));
        assert_eq!(pixels, raster.pixels);
        assert_eq!(pixels.iter().filter(|c| **c == 0).count(), ZOOM * ZOOM * 3);
    }
}
