//! One axis of a plot: from values to places, and where its ticks are. Pure.

use std::ops::Range;

use plotters::coord::ranged1d::{
    KeyPointHint, KeyPointWeight, NoDefaultFormatting, Ranged, ValueFormatter,
};

use crate::show;

/// An axis. A place is what is drawn: the value, or its logarithm.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    /// First place.
    pub(super) low: f64,
    /// Last place; greater than the first.
    pub(super) high: f64,
    /// Places that have a text, ascending.
    pub(super) ticks: Vec<(f64, String)>,
    log: bool,
}

impl Scale {
    /// Steps of equal size from `low` to at least `high`, about `wanted` of them. With `round` the
    /// axis ends at a tick, else at `high`.
    pub(super) fn linear(low: f64, high: f64, wanted: u32, round: bool) -> Self {
        let high = if high > low { high } else { low + low.abs().max(1.0) };
        let rough = (high - low) / f64::from(wanted.max(1));
        let unit = 10_f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 5.0, 10.0].map(|m| m * unit).into_iter().find(|s| *s >= rough * 0.999);
        let step = step.unwrap_or(unit * 10.0);
        let decimals = (-(step * 1.000_001).log10().floor()).clamp(0.0, 12.0) as usize;
        let (first, last) = ((low / step).floor(), (high / step - 1e-9).ceil());
        let (low, high) = if round { (first * step, last * step) } else { (low, high) };
        let slack = step * 1e-6;
        let ticks = (0..=(last - first) as u32)
            .map(|i| (first + f64::from(i)) * step)
            .filter(|tick| (low - slack..=high + slack).contains(tick))
            .map(|tick| (tick, show::fixed(tick, decimals)))
            .collect();
        Self { low, high, ticks, log: false }
    }

    /// A logarithmic axis over `values`, all of them positive, with a tick at each value if they
    /// are `few`, else at powers of ten (or parts of them).
    pub(super) fn logarithmic(values: &[f64], few: bool) -> Self {
        let (min, max) = bounds(values).unwrap_or((1.0, 10.0));
        let (mut low, mut high) = (min.log10(), max.log10());
        if few {
            let margin = ((high - low) * 0.03).max(0.02);
            let ticks = values.iter().map(|v| (v.log10(), show::number(*v))).collect();
            return Self { low: low - margin, high: high + margin, ticks, log: true };
        }
        (low, high) = ((low + 1e-9).floor(), (high - 1e-9).ceil().max(low.floor() + 1.0));
        let parts: &[f64] = if high - low <= 2.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let ticks = (low as i32..=high as i32)
            .flat_map(|power| parts.iter().map(move |part| part * 10_f64.powi(power)))
            .map(|value| (value.log10(), show::number(value)))
            .filter(|(place, _)| *place <= high + 1e-9)
            .collect();
        Self { low, high, ticks, log: true }
    }

    /// Places 0 to `count` - 1, half a place free at both ends, no ticks: the labels of bars are
    /// drawn apart.
    pub(super) fn categories(count: usize) -> Self {
        Self { low: -0.5, high: count.max(1) as f64 - 0.5, ticks: Vec::new(), log: false }
    }

    /// Where `value` is drawn, inside the axis.
    pub(super) fn place(&self, value: f64) -> f64 {
        let place = if self.log { value.max(f64::MIN_POSITIVE).log10() } else { value };
        place.clamp(self.low, self.high)
    }

    /// The text of the tick at `place`; empty if there is none.
    pub(super) fn text_at(&self, place: f64) -> String {
        let near = |tick: &&(f64, String)| (tick.0 - place).abs() <= (self.high - self.low) * 1e-9;
        self.ticks.iter().find(near).map(|tick| tick.1.clone()).unwrap_or_default()
    }
}

/// plotters draws places: its key points are our ticks.
impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, place: &f64, (from, to): (i32, i32)) -> i32 {
        // What lies outside stays near, so that no sum of pixels overflows.
        let part = ((place - self.low) / (self.high - self.low)).clamp(-1.0, 2.0);
        from + (part * f64::from(to - from)).round() as i32
    }

    fn key_points<H: KeyPointHint>(&self, hint: H) -> Vec<f64> {
        let finer = matches!(hint.weight(), KeyPointWeight::Any);
        if finer { Vec::new() } else { self.ticks.iter().map(|tick| tick.0).collect() }
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Scale {
    fn format_ext(&self, place: &f64) -> String {
        self.text_at(*place)
    }
}

/// The least and the greatest of `values`; `None` without values.
pub(super) fn bounds(values: &[f64]) -> Option<(f64, f64)> {
    let min = values.iter().copied().reduce(f64::min)?;
    let max = values.iter().copied().reduce(f64::max)?;
    Some((min, max))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(scale: &Scale) -> Vec<&str> {
        scale.ticks.iter().map(|tick| tick.1.as_str()).collect()
    }

    /// Goal: ticks are round and cover what is drawn. Method: typical axes, then many random ones.
    #[test]
    fn linear_ticks_are_round() {
        let scale = Scale::linear(0.0, 96.3, 5, true);
        assert_eq!(texts(&scale), ["0", "20", "40", "60", "80", "100"]);
        let scale = Scale::linear(0.0, 0.86, 5, true);
        assert_eq!(texts(&scale), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        let scale = Scale::linear(0.0, 312.5, 6, false);
        assert_eq!((texts(&scale), scale.high), (vec!["0", "100", "200", "300"], 312.5));
        assert_eq!(texts(&Scale::linear(0.0, 2900.0, 5, true)).last(), Some(&"3,000"));
        assert_eq!(Scale::linear(0.0, 0.0, 5, true).high, 1.0);
        let mut state = 1_u64;
        for _ in 0..10_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let high = 10_f64.powf((state >> 40) as f64 / (1 << 24) as f64 * 18.0 - 6.0);
            let scale = Scale::linear(0.0, high, 5, true);
            let count = scale.ticks.len();
            assert!((3..=8).contains(&count), "{high}: {count} ticks");
            assert!(scale.high >= high * (1.0 - 1e-8), "{high}: ends at {}", scale.high);
            let mut distinct = texts(&scale);
            distinct.dedup();
            assert_eq!(distinct.len(), count, "{high}: {distinct:?}");
        }
    }

    /// Goal: logarithmic axes show the values themselves, or powers of ten.
    #[test]
    fn logarithmic_ticks() {
        let few = Scale::logarithmic(&[4.0, 16.0, 64.0, 256.0], true);
        assert_eq!(texts(&few), ["4", "16", "64", "256"]);
        assert!(few.low < few.place(4.0) && few.place(256.0) < few.high);
        let many = Scale::logarithmic(&[0.5, 5000.0], false);
        assert_eq!(texts(&many), ["0.1", "1", "10", "100", "1,000", "10,000"]);
        let short = Scale::logarithmic(&[3.0, 70.0], false);
        assert_eq!(texts(&short), ["1", "2", "5", "10", "20", "50", "100"]);
        assert_eq!(many.text_at(0.0), "1");
        assert_eq!(many.text_at(0.5), "");
    }
}
