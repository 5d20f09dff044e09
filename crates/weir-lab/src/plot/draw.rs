//! Draws a picture with plotters, on any backend: the SVG and the PNG are laid out alike.
//!
//! Layout, from top to bottom: title, origin, panels above one another with one horizontal axis
//! below the last, legend. Nothing of it lies on the data.

use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::prelude::{
    Circle, Color as _, DashedLineSeries, DrawingArea, DrawingBackend, FontTransform,
    IntoDrawingArea, LineSeries, PathElement, RGBColor, Rectangle, TextStyle,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontDesc, FontFamily, FontStyle};

use super::font;
use super::picture::{Color, Line, Panel, Picture};
use super::scale::Scale;
use crate::result::Kind;
use crate::show;

const WIDTH: u32 = 900;
const MARGIN: i32 = 16;
const TITLE_EM: f32 = 16.0;
const TEXT_EM: f32 = 12.0;
const SMALL_EM: f32 = 11.0;
const LEGEND_LINE: i32 = 20;
/// Length of a legend's piece of line, and what is free after it and after the text.
const SWATCH: i32 = 28;
const GAPS: (i32, i32) = (7, 22);
/// Heights of what lies below an axis: tick labels, and the axis' name.
const TICK_LABELS: i32 = 26;
const AXIS_NAME: i32 = 22;

const BACKGROUND: RGBColor = RGBColor(255, 255, 255);
const INK: RGBColor = RGBColor(34, 34, 34);
const FAINT_INK: RGBColor = RGBColor(102, 102, 102);
const AXIS: RGBColor = RGBColor(136, 136, 136);
const GRID: RGBColor = RGBColor(225, 225, 225);
/// Okabe and Ito's colours, which people of every colour vision tell apart; yellow is left out,
/// which is invisible on white.
const SERIES: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 120, 120),
    // None of theirs: a dark purple for an eighth line.
    RGBColor(102, 51, 153),
];
const NEUTRAL: RGBColor = RGBColor(68, 68, 68);
const SPAN: RGBColor = RGBColor(214, 222, 235);

/// What stands for a colour on a dark page; the others are seen on both.
const DARK: [(RGBColor, &str); 11] = [
    (BACKGROUND, "var(--paper)"),
    (INK, "var(--ink)"),
    (FAINT_INK, "var(--faint)"),
    (AXIS, "#8a8f98"),
    (GRID, "var(--line)"),
    (NEUTRAL, "#c4c7cc"),
    (SPAN, "#39424f"),
    (SERIES[0], "#3f9ce0"),
    (SERIES[1], "#f0803c"),
    (SERIES[6], "#9a9a9a"),
    (SERIES[7], "#b08ae6"),
];

/// Rules that make SVGs in a page dark where the page is; the page's style names the variables.
pub(crate) fn dark_style() -> String {
    let mut rules = String::from("@media (prefers-color-scheme: dark) {\n");
    for (RGBColor(r, g, b), dark) in DARK {
        for property in ["fill", "stroke"] {
            rules += &format!(
                "  svg [{property}=\"#{r:02X}{g:02X}{b:02X}\"] {{ {property}: {dark}; }}\n"
            );
        }
    }
    rules + "}\n"
}

type Chart<'a, DB> = ChartContext<'a, DB, Cartesian2d<Scale, Scale>>;
type Done = Result<(), String>;

/// Where everything lies.
pub(super) struct Layout {
    /// Width and height of the whole.
    pub(super) size: (u32, u32),
    title: Vec<String>,
    panel_height: i32,
    /// Width of the values and the name of the vertical axes.
    left: i32,
    groups: Groups,
    /// The legend's entries: line and place of each.
    legend: Vec<(i32, i32)>,
    legend_lines: i32,
}

/// How the names of groups of bars are written.
struct Groups {
    names: Vec<Vec<String>>,
    turned: bool,
    height: i32,
}

impl Layout {
    /// The layout of `picture`.
    pub(super) fn of(picture: &Picture) -> Self {
        let inner = WIDTH as i32 - 2 * MARGIN;
        let mut title = font::wrapped(&picture.title, TITLE_EM, true, inner as f32);
        title.truncate(3);
        for line in &mut title {
            *line = font::fitted(line, TITLE_EM, true, inner as f32);
        }
        let ticks = picture.panels.iter().flat_map(|panel| &panel.y.ticks);
        let widest = ticks.map(|tick| font::width(&tick.1, SMALL_EM, false)).fold(0.0, f32::max);
        let left = widest.ceil() as i32 + 34;
        let group = (inner - left) as f32 / picture.groups.len().max(1) as f32;
        let groups = Groups::of(&picture.groups, group);
        let (mut legend, mut line, mut x) = (Vec::new(), 0, 0);
        for entry in &picture.legend {
            let width = SWATCH + GAPS.0 + font::width(&entry.text, TEXT_EM, false).ceil() as i32;
            if x > 0 && x + width > inner {
                (line, x) = (line + 1, 0);
            }
            legend.push((line, x));
            x += width + GAPS.1;
        }
        let legend_lines = if legend.is_empty() { 0 } else { line + 1 };
        let panel_height = match picture.panels.len() {
            0 | 1 => 340,
            2 => 220,
            _ => 170,
        };
        let below =
            AXIS_NAME + if picture.kind == Kind::Bars { groups.height } else { TICK_LABELS };
        let panels = picture.panels.len() as i32 * panel_height;
        let height = header_height(&title) + panels + below + legend_lines * LEGEND_LINE + 22;
        let size = (WIDTH, height as u32);
        Self { size, title, panel_height, left, groups, legend, legend_lines }
    }
}

fn header_height(title: &[String]) -> i32 {
    12 + title.len() as i32 * 21 + 26
}

impl Groups {
    fn of(names: &[String], width: f32) -> Self {
        let words = names.iter().flat_map(|name| name.split_whitespace());
        let widest = words.map(|word| font::width(word, SMALL_EM, false)).fold(0.0, f32::max);
        let wrap = |name: &String| font::wrapped(name, SMALL_EM, false, width - 8.0);
        let wrapped: Vec<Vec<String>> = names.iter().map(wrap).collect();
        let lines = wrapped.iter().map(Vec::len).max().unwrap_or(0);
        if widest <= width - 8.0 && lines <= 4 {
            return Self { names: wrapped, turned: false, height: lines as i32 * 14 + 14 };
        }
        let fit = |name: &String| vec![font::fitted(name, SMALL_EM, false, 150.0)];
        let names: Vec<Vec<String>> = names.iter().map(fit).collect();
        let length = |name: &Vec<String>| font::width(&name.concat(), SMALL_EM, false);
        let longest = names.iter().map(length).fold(0.0, f32::max);
        Self { names, turned: true, height: longest.ceil() as i32 + 16 }
    }
}

/// Draws `picture` on `backend`.
pub(super) fn draw<DB: DrawingBackend>(backend: DB, picture: &Picture, layout: &Layout) -> Done {
    let root = backend.into_drawing_area();
    let (width, height) = (layout.size.0 as i32, layout.size.1 as i32);
    let everything = Rectangle::new([(0, 0), (width, height)], BACKGROUND.filled());
    root.draw(&everything).map_err(text)?;
    let mut y = 12;
    for line in &layout.title {
        let style = style(TITLE_EM, true, INK, HPos::Left, VPos::Top);
        root.draw_text(line, &style, (MARGIN, y)).map_err(text)?;
        y += 21;
    }
    let faint = style(SMALL_EM, false, FAINT_INK, HPos::Left, VPos::Top);
    root.draw_text(&picture.subtitle, &faint, (MARGIN, y)).map_err(text)?;
    y = header_height(&layout.title);
    for (i, panel) in picture.panels.iter().enumerate() {
        let last = i + 1 == picture.panels.len();
        draw_panel(&root, picture, panel, layout, (y, last))?;
        y += layout.panel_height;
    }
    let legend_top = height - layout.legend_lines * LEGEND_LINE - 8;
    draw_legend(&root, picture, layout, legend_top)?;
    root.present().map_err(text)
}

fn draw_panel<DB: DrawingBackend>(
    root: &DrawingArea<DB, Shift>,
    picture: &Picture,
    panel: &Panel,
    layout: &Layout,
    (top, last): (i32, bool),
) -> Done {
    let bars = picture.kind == Kind::Bars;
    let labels = if bars { layout.groups.height } else { TICK_LABELS };
    // The axis below the last panel does not take from its height.
    let below = if last { labels + AXIS_NAME } else { 0 };
    let rest = layout.size.1 as i32 - top - layout.panel_height - below;
    let area = root.margin(top, rest, MARGIN, MARGIN);
    let mut chart = ChartBuilder::on(&area)
        .margin_top(8)
        .margin_bottom(if last { 0 } else { 12 })
        .margin_right(14)
        .x_label_area_size(below.max(1))
        .y_label_area_size(layout.left)
        .build_cartesian_2d(picture.x.clone(), panel.y.clone())
        .map_err(text)?;
    let x_text = |place: &f64| if last { picture.x.text_at(*place) } else { String::new() };
    let y_text = |place: &f64| panel.y.text_at(*place);
    let name = style(TEXT_EM, false, INK, HPos::Center, VPos::Center);
    let plot_height = (layout.panel_height - 20) as f32;
    let mut mesh = chart.configure_mesh();
    mesh.bold_line_style(GRID)
        .light_line_style(GRID)
        .axis_style(AXIS)
        .label_style(style(SMALL_EM, false, INK, HPos::Center, VPos::Center))
        .axis_desc_style(name)
        .x_label_formatter(&x_text)
        .y_label_formatter(&y_text)
        .y_desc(font::fitted(&panel.y_text, TEXT_EM, false, plot_height));
    if last {
        mesh.x_desc(picture.x_text.clone());
    }
    mesh.draw().map_err(text)?;
    if bars {
        draw_bars(root, &mut chart, panel)?;
        if last {
            draw_groups(root, &chart, picture, layout)?;
        }
        return Ok(());
    }
    draw_spans(root, &mut chart, picture)?;
    for line in &panel.lines {
        draw_line(&mut chart, picture, panel, line)?;
    }
    draw_labels(root, &chart, picture, panel)
}

/// Parts of the horizontal axis, shaded, with their letters at the top.
fn draw_spans<DB: DrawingBackend>(
    root: &DrawingArea<DB, Shift>,
    chart: &mut Chart<'_, DB>,
    picture: &Picture,
) -> Done {
    let rows = chart.plotting_area().get_y_axis_pixel_range();
    for span in &picture.spans {
        let at = |x: f64| chart.backend_coord(&(picture.x.place(x), 0.0)).0;
        // A gap, so that neighbours are told apart.
        let (left, right) = (at(span.ends[0]) + 1, at(span.ends[1]) - 1);
        let top = rows.start + 1 + 16 * span.lane;
        let band = [(left, top), (right.max(left + 1), top + 15)];
        root.draw(&Rectangle::new(band, SPAN.filled())).map_err(text)?;
        for edge in [left, right] {
            let line = vec![(edge, top), (edge, rows.end)];
            root.draw(&PathElement::new(line, SPAN.stroke_width(1))).map_err(text)?;
        }
        let style = style(SMALL_EM, false, INK, HPos::Center, VPos::Center);
        let middle = (i32::midpoint(left, right), top + 8);
        root.draw_text(&span.letter.to_string(), &style, middle).map_err(text)?;
    }
    Ok(())
}

/// One line or cloud.
fn draw_line<DB: DrawingBackend>(
    chart: &mut Chart<'_, DB>,
    picture: &Picture,
    panel: &Panel,
    line: &Line,
) -> Done {
    let color = rgb(line.color);
    let mut places: Vec<(f64, f64)> =
        line.points.iter().map(|p| (picture.x.place(p[0]), panel.y.place(p[1]))).collect();
    let scatter = picture.kind == Kind::Scatter;
    // One value of the paper holds along the whole axis.
    if let (true, false, [(_, y)]) = (line.dashed, scatter, places.as_slice()) {
        places = vec![(picture.x.low, *y), (picture.x.high, *y)];
    }
    if scatter {
        for place in places {
            let style = if line.dashed { color.stroke_width(2) } else { color.filled() };
            chart.draw_series([Circle::new(place, 6, style)]).map_err(text)?;
        }
        return Ok(());
    }
    if line.dashed {
        let dashes = DashedLineSeries::new(places, 7, 5, color.stroke_width(2));
        chart.draw_series(dashes).map_err(text)?;
        return Ok(());
    }
    if line.marked || places.len() == 1 {
        let dots = places.iter().map(|place| Circle::new(*place, 4, color.filled()));
        chart.draw_series(dots).map_err(text)?;
    }
    chart.draw_series(LineSeries::new(places, color.stroke_width(2))).map_err(text)?;
    Ok(())
}

/// Bars side by side, each with its value, and the paper's values across them.
fn draw_bars<DB: DrawingBackend>(
    root: &DrawingArea<DB, Shift>,
    chart: &mut Chart<'_, DB>,
    panel: &Panel,
) -> Done {
    let step = 0.8 / panel.bars.max(1) as f64;
    let left = |place: f64, slot: usize| place - 0.4 + slot as f64 * step;
    let zero = panel.y.place(0.0);
    let mut marks: Vec<(i32, i32, i32)> = Vec::new();
    for line in panel.lines.iter().filter(|line| !line.dashed) {
        let slot = line.slot.unwrap_or(0);
        let bars = line.points.iter().map(|p| {
            let x = left(p[0], slot) + step * 0.04;
            Rectangle::new(
                [(x, zero), (x + step * 0.92, panel.y.place(p[1]))],
                rgb(line.color).filled(),
            )
        });
        chart.draw_series(bars).map_err(text)?;
        draw_ranges(chart, panel, line, (step, left(0.0, slot)))?;
    }
    for line in panel.lines.iter().filter(|line| line.dashed) {
        for p in &line.points {
            let y = panel.y.place(p[1]);
            let (from, to) = match line.slot {
                Some(slot) => (left(p[0], slot), left(p[0], slot) + step),
                None => (p[0] - 0.45, p[0] + 0.45),
            };
            // Dark on its own bar, which is of its colour.
            let dashes = DashedLineSeries::new([(from, y), (to, y)], 6, 4, INK.stroke_width(2));
            chart.draw_series(dashes).map_err(text)?;
            let (x0, y0) = chart.backend_coord(&(from, y));
            marks.push((x0, chart.backend_coord(&(to, y)).0, y0));
        }
    }
    for line in panel.lines.iter().filter(|line| !line.dashed) {
        for p in &line.points {
            let x = left(p[0], line.slot.unwrap_or(0));
            let high = line.ranges.iter().find(|r| r[0] == p[0]).map_or(p[1], |r| r[2].max(p[1]));
            let (x0, top) = chart.backend_coord(&(x, panel.y.place(high)));
            let x1 = chart.backend_coord(&(x + step, zero)).0;
            let value = show::number(p[1]);
            let width = font::width(&value, SMALL_EM, false);
            if width > (x1 - x0) as f32 - 2.0 {
                continue;
            }
            // Above the bar, and above a mark that would cross it.
            let mut y = top.min(chart.backend_coord(&(x, zero)).1) - 8;
            for mark in marks.iter().filter(|mark| mark.0 < x1 && x0 < mark.1) {
                if (mark.2 - y).abs() < 9 {
                    y = mark.2 - 9;
                }
            }
            let style = style(SMALL_EM, false, INK, HPos::Center, VPos::Center);
            // No line of the grid goes through the text.
            let (middle, half) = (i32::midpoint(x0, x1), width as i32 / 2 + 1);
            let behind = [(middle - half, y - 6), (middle + half, y + 6)];
            root.draw(&Rectangle::new(behind, BACKGROUND.filled())).map_err(text)?;
            root.draw_text(&value, &style, (middle, y)).map_err(text)?;
        }
    }
    Ok(())
}

/// How far the seeds are apart, across the middle of each bar of `line`; a bar of the group at 0 is
/// `step` wide and begins at `left`.
fn draw_ranges<DB: DrawingBackend>(
    chart: &mut Chart<'_, DB>,
    panel: &Panel,
    line: &Line,
    (step, left): (f64, f64),
) -> Done {
    for [x, low, high] in &line.ranges {
        let (low, high) = (panel.y.place(*low), panel.y.place(*high));
        let (middle, cap) = (x + left + step / 2.0, step * 0.12);
        let across = |y: f64| vec![(middle - cap, y), (middle + cap, y)];
        let paths = [vec![(middle, low), (middle, high)], across(low), across(high)];
        let paths = paths.map(|path| PathElement::new(path, INK.stroke_width(1)));
        chart.draw_series(paths).map_err(text)?;
    }
    Ok(())
}

/// The names of the groups of bars, below the axis.
fn draw_groups<DB: DrawingBackend>(
    root: &DrawingArea<DB, Shift>,
    chart: &Chart<'_, DB>,
    picture: &Picture,
    layout: &Layout,
) -> Done {
    let bottom = chart.plotting_area().get_y_axis_pixel_range().end;
    for (i, lines) in layout.groups.names.iter().enumerate() {
        let x = chart.backend_coord(&(picture.x.place(i as f64), 0.0)).0;
        for (k, line) in lines.iter().enumerate() {
            let (turn, anchor, y) = if layout.groups.turned {
                (FontTransform::Rotate270, (HPos::Right, VPos::Center), bottom + 7)
            } else {
                (FontTransform::None, (HPos::Center, VPos::Top), bottom + 7 + 14 * k as i32)
            };
            let style = style(SMALL_EM, false, INK, anchor.0, anchor.1).transform(turn);
            root.draw_text(line, &style, (x, y)).map_err(text)?;
        }
    }
    Ok(())
}

/// The names of dots, each at the first side of its dot where it covers no other dot or name.
fn draw_labels<DB: DrawingBackend>(
    root: &DrawingArea<DB, Shift>,
    chart: &Chart<'_, DB>,
    picture: &Picture,
    panel: &Panel,
) -> Done {
    if picture.kind != Kind::Scatter {
        return Ok(());
    }
    let at = |p: &[f64; 2]| chart.backend_coord(&(picture.x.place(p[0]), panel.y.place(p[1])));
    let dots = panel.lines.iter().flat_map(|line| &line.points).map(at);
    let mut taken: Vec<[i32; 4]> = dots.map(|(x, y)| [x - 7, y - 7, x + 7, y + 7]).collect();
    let x_range = chart.plotting_area().get_x_axis_pixel_range();
    let y_range = chart.plotting_area().get_y_axis_pixel_range();
    for line in &panel.lines {
        for (p, label) in line.points.iter().zip(&line.labels).filter(|pair| !pair.1.is_empty()) {
            let (x, y) = at(p);
            let width = font::width(label, SMALL_EM, false).ceil() as i32;
            let sides = [
                [x + 10, y - 7, x + 10 + width, y + 7],
                [x - 10 - width, y - 7, x - 10, y + 7],
                [x - width / 2, y - 23, x + width / 2, y - 9],
                [x - width / 2, y + 9, x + width / 2, y + 23],
            ];
            let free = |side: &&[i32; 4]| {
                let inside = x_range.contains(&side[0]) && x_range.contains(&side[2]);
                let inside = inside && y_range.contains(&side[1]) && y_range.contains(&side[3]);
                let crosses = |t: &[i32; 4]| {
                    t[0] < side[2] && side[0] < t[2] && t[1] < side[3] && side[1] < t[3]
                };
                inside && !taken.iter().any(crosses)
            };
            // No side is free: the legend still names the dot.
            let Some(side) = sides.iter().find(free).copied() else { continue };
            taken.push(side);
            let style = style(SMALL_EM, false, INK, HPos::Left, VPos::Center);
            root.draw_text(label, &style, (side[0], (side[1] + side[3]) / 2)).map_err(text)?;
        }
    }
    Ok(())
}

fn draw_legend<DB: DrawingBackend>(
    root: &DrawingArea<DB, Shift>,
    picture: &Picture,
    layout: &Layout,
    top: i32,
) -> Done {
    for (entry, (line, x)) in picture.legend.iter().zip(&layout.legend) {
        let (x, y) = (MARGIN + x, top + line * LEGEND_LINE + LEGEND_LINE / 2);
        let bars = picture.kind == Kind::Bars;
        let color = if bars && entry.dashed { INK } else { rgb(entry.color) };
        if picture.kind == Kind::Scatter {
            let style = if entry.dashed { color.stroke_width(2) } else { color.filled() };
            root.draw(&Circle::new((x + SWATCH / 2, y), 6, style)).map_err(text)?;
        } else if entry.dashed {
            for dash in [(0, 7), (11, 18), (22, 28)] {
                let path = vec![(x + dash.0, y), (x + dash.1, y)];
                root.draw(&PathElement::new(path, color.stroke_width(2))).map_err(text)?;
            }
        } else if bars || entry.color == Color::Span {
            let square = [(x + 8, y - 6), (x + SWATCH, y + 6)];
            root.draw(&Rectangle::new(square, color.filled())).map_err(text)?;
        } else {
            let path = vec![(x, y), (x + SWATCH, y)];
            root.draw(&PathElement::new(path, color.stroke_width(3))).map_err(text)?;
        }
        let width_max = WIDTH as i32 - MARGIN - x - SWATCH - GAPS.0;
        let name = font::fitted(&entry.text, TEXT_EM, false, width_max as f32);
        let style = style(TEXT_EM, false, INK, HPos::Left, VPos::Center);
        root.draw_text(&name, &style, (x + SWATCH + GAPS.0, y)).map_err(text)?;
    }
    Ok(())
}

fn rgb(color: Color) -> RGBColor {
    match color {
        Color::Series(i) => SERIES[i % SERIES.len()],
        Color::Neutral => NEUTRAL,
        Color::Span => SPAN,
    }
}

fn style(em: f32, bold: bool, color: RGBColor, h: HPos, v: VPos) -> TextStyle<'static> {
    let weight = if bold { FontStyle::Bold } else { FontStyle::Normal };
    // plotters counts a line's height.
    let font = FontDesc::new(FontFamily::SansSerif, f64::from(em) * 1.24, weight);
    font.color(&color).pos(Pos::new(h, v))
}

/// plotters' errors, whose type depends on the backend.
fn text(error: impl std::fmt::Display) -> String {
    format!("cannot draw the plot: {error}")
}
