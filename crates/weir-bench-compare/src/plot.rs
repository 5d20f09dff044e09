//! Reads over time as a picture: for each workload two panels, reads per second and the 99.9th
//! percentile of each second, a line for each engine's round in the middle.

use crate::args::Args;
use crate::summary::Sample;
use crate::summary::{Cell, acknowledged};
use plotters::coord::Shift;
use plotters::prelude::{
    ChartBuilder, DrawingArea, IntoDrawingArea, IntoLogRange, LineSeries, PathElement, SVGBackend,
    SeriesLabelPosition, WHITE,
};
use plotters::style::{Color, Palette, Palette99, RGBAColor};
use std::path::Path;
use weir_bench::Window;

const WIDTH: u32 = 900;
const PANEL_HEIGHT: u32 = 300;
/// One engine's seconds.
struct Course<'a> {
    engine: &'a str,
    colour: RGBAColor,
    windows: &'a [Window],
}

/// What one panel shows of a second.
struct Measure {
    name: &'static str,
    of: fn(&Window) -> f64,
}

const MEASURES: [Measure; 2] = [
    Measure { name: "reads per second", of: |window| window.reads as f64 },
    Measure { name: "p99.9, us", of: |window| window.p999_us },
];

/// Draws what `samples` say of each second into the file at `path`.
pub fn write(path: &Path, args: &Args, samples: &[Sample]) -> Result<(), String> {
    let mut cells = Vec::new();
    for &row in &args.rows {
        for workload in &args.workloads {
            let cell = Cell::of(samples, row, workload.name());
            let courses = courses(args, &cell);
            if !courses.is_empty() {
                cells.push((format!("{workload}, {row} settings"), courses));
            }
        }
    }
    if cells.is_empty() {
        return Err("--plot: no workload was measured for a whole second".to_owned());
    }
    let panels = cells.len() * MEASURES.len();
    let height = PANEL_HEIGHT * u32::try_from(panels).unwrap_or(1);
    let root = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    let failed = |error: String| format!("cannot draw {}: {error}", path.display());
    root.fill(&WHITE).map_err(|error| failed(error.to_string()))?;
    let areas = root.split_evenly((panels, 1));
    let of_cells =
        cells.iter().flat_map(|cell| MEASURES.iter().map(move |measure| (cell, measure)));
    for (area, ((title, courses), measure)) in areas.iter().zip(of_cells) {
        panel(area, title, courses, measure).map_err(failed)?;
    }
    root.present().map_err(|error| failed(error.to_string()))
}

fn courses<'a>(args: &'a Args, cell: &Cell<'a>) -> Vec<Course<'a>> {
    let of = |(at, engine): (usize, &'a String)| {
        let mut answers: Vec<_> = cell.answers(engine).map(|(_, answer)| answer).collect();
        answers.sort_by(|a, b| {
            acknowledged(a).partial_cmp(&acknowledged(b)).unwrap_or(std::cmp::Ordering::Equal)
        });
        let windows = &answers.get(answers.len() / 2)?.measurement.windows;
        (!windows.is_empty()).then_some(Course {
            engine,
            colour: Palette99::pick(at).to_rgba(),
            windows,
        })
    };
    args.engines.iter().enumerate().filter_map(of).collect()
}

fn panel(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    title: &str,
    courses: &[Course<'_>],
    measure: &Measure,
) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let seconds = courses.iter().map(|course| course.windows.len()).max().unwrap_or(1);
    let values = courses.iter().flat_map(|course| course.windows.iter().map(measure.of));
    let (low, high) = values
        .fold((f64::MAX, 1.0_f64), |(low, high), value| (low.min(value.max(1.0)), high.max(value)));
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{title}: {}", measure.name), ("sans-serif", 16))
        .margin(8)
        .x_label_area_size(36)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..seconds as f64, (low / 1.2..high * 1.2).log_scale())
        .map_err(|error| text(&error))?;
    chart
        .configure_mesh()
        .x_desc("seconds")
        .y_desc(measure.name)
        .draw()
        .map_err(|error| text(&error))?;
    for course in courses {
        let colour = course.colour;
        let points = course.windows.iter().enumerate();
        let points = points.map(|(second, w)| (second as f64 + 0.5, (measure.of)(w).max(1.0)));
        chart
            .draw_series(LineSeries::new(points, colour))
            .map_err(|error| text(&error))?
            .label(course.engine)
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], colour));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE)
        .draw()
        .map_err(|error| text(&error))
}
