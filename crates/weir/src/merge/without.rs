//! A source without the keys of some intervals: of a run, what masks or claims hide.
//!
//! Lazy: a cursor that comes to a hidden interval does not read what lies behind it. It says that
//! it is *ahead* of its next entry: `key` is then the end of the interval, a bound that the next
//! entry does not precede, and only when the merge finds no other source before that bound does it
//! ask the cursor to go there (`Cursor::arrive`). A scan inside a claim reads nothing of the runs
//! below, not even to learn their next key (BiLSM §3.2).
//!
//! ```text
//! inner    a  b [c  d  e] f  g      hidden: [c, f)
//! shown    a  b  ······· (f) f  g   at (f): valid, ahead, nothing read since b
//! ```
//!
//! Invariants: (1) no entry shown has a hidden key; (2) going forwards, `key` while ahead is the
//! first key behind an interval, at or below that of every entry still to come; going backwards it
//! is the first key of the interval, above all that are still to come; its sequence number is the
//! largest, so that real entries of this key come later forwards and earlier backwards.

use std::ops::Bound;
use std::sync::Arc;

use crate::base::cursor::{Approach, Cursor};
use crate::base::error::Result;
use crate::base::heat::Warmth;
use crate::base::interval::{Interval, Intervals};
use crate::base::key::{Kind, SEQ_MAX, Seq, compare};

/// The bounds of a reader, shared by its cursors: what is behind them is not looked for.
pub(crate) type Limits = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Where the cursor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Where `inner` is.
    There,
    /// Forwards, before what lies behind the hidden interval with this number.
    BehindOf(usize),
    /// Backwards, before what lies in front of it.
    InFrontOf(usize),
    /// Past the last entry, or before the first, of those within the limits.
    End,
}

/// A cursor that leaves out the keys of some intervals.
pub(crate) struct Without<C> {
    inner: C,
    hidden: Arc<Intervals>,
    limits: Option<Arc<Limits>>,
    state: State,
    /// Whether `inner` was told of the seek that was announced: its key is not hidden.
    is_led: bool,
    /// Number of the next interval in the direction of travel, while `There`.
    next: Option<usize>,
    forward: bool,
}

impl<C: Cursor> Without<C> {
    /// `inner` without the keys of `hidden`. Not positioned.
    pub(crate) fn new(inner: C, hidden: Arc<Intervals>) -> Self {
        let (state, forward) = (State::There, true);
        Self { inner, hidden, limits: None, state, is_led: false, next: None, forward }
    }

    /// The same for a reader that stays within `limits`.
    pub(crate) fn within(inner: C, hidden: Arc<Intervals>, limits: Arc<Limits>) -> Self {
        Self { limits: Some(limits), ..Self::new(inner, hidden) }
    }

    /// For another reader, which stays within `limits`. Requires: the cursor is at rest.
    pub(crate) fn set_limits(&mut self, limits: Arc<Limits>) {
        self.limits = Some(limits);
    }

    /// The cursor below. Where it stands means something only while this one is not ahead.
    pub(crate) fn inner(&self) -> &C {
        &self.inner
    }

    /// The same, to prepare it for another reader, for which the cursor has to be at rest, or to
    /// let go of what lies behind it. Requires: where it stands does not change.
    pub(crate) fn inner_mut(&mut self) -> &mut C {
        &mut self.inner
    }

    fn interval(&self, index: usize) -> Option<&Interval> {
        self.hidden.get(index)
    }

    /// Goes behind an interval, forwards, without reading.
    fn go_behind(&mut self, index: usize) {
        let is_within = |to: &[u8]| match self.limits.as_ref().map(|limits| &limits.1) {
            None | Some(Bound::Unbounded) => true,
            Some(Bound::Included(last)) => compare(to, last).is_le(),
            Some(Bound::Excluded(end)) => compare(to, end).is_lt(),
        };
        let to = self.interval(index).and_then(|interval| interval.to.as_deref());
        self.state = if to.is_some_and(is_within) { State::BehindOf(index) } else { State::End };
    }

    /// Goes in front of an interval, backwards, without reading.
    fn go_in_front(&mut self, index: usize) {
        // Only keys below `from` are left.
        let is_within = |from: &[u8]| match self.limits.as_ref().map(|limits| &limits.0) {
            None | Some(Bound::Unbounded) => !from.is_empty(),
            Some(Bound::Included(first) | Bound::Excluded(first)) => compare(first, from).is_lt(),
        };
        let from = self.interval(index).map(|interval| &interval.from[..]);
        self.state = if from.is_some_and(is_within) { State::InFrontOf(index) } else { State::End };
    }

    /// After `inner` moved forwards, or was placed for it.
    #[inline]
    fn settle_forward(&mut self) {
        let Some(next) = self.next.and_then(|at| self.hidden.get(at)) else { return };
        if self.inner.valid() && compare(&next.from, self.inner.key()).is_le() {
            self.settle_forward_slow();
        }
    }

    /// The entry is in or behind the next interval.
    fn settle_forward_slow(&mut self) {
        let at = self.hidden.at_or_after(self.inner.key());
        self.next = Some(at);
        let hides = |interval: &Interval| interval.contains(self.inner.key());
        if self.hidden.get(at).is_some_and(hides) {
            self.go_behind(at);
        }
    }

    /// After `inner` moved backwards, or was placed for it.
    #[inline]
    fn settle_backward(&mut self) {
        let Some(next) = self.next.and_then(|at| self.hidden.get(at)) else { return };
        let ends_above = |key: &[u8]| next.to.as_ref().is_none_or(|to| compare(key, to).is_lt());
        if self.inner.valid() && ends_above(self.inner.key()) {
            self.settle_backward_slow();
        }
    }

    /// The entry is in or in front of the next interval.
    fn settle_backward_slow(&mut self) {
        let at = self.hidden.at_or_after(self.inner.key());
        let hides = |interval: &Interval| interval.contains(self.inner.key());
        if self.hidden.get(at).is_some_and(hides) {
            self.go_in_front(at);
        } else {
            self.next = at.checked_sub(1);
        }
    }

    /// Notes that `inner` was placed to go forwards, before, in or behind the interval `next`.
    fn placed_forward(&mut self, next: usize) {
        (self.state, self.forward, self.next) = (State::There, true, Some(next));
        self.settle_forward();
    }

    /// Notes that `inner` was placed to go backwards, behind or in the interval `next`, or in front
    /// of it.
    fn placed_backward(&mut self, next: Option<usize>) {
        (self.state, self.forward, self.next) = (State::There, false, next);
        self.settle_backward();
    }
}

impl<C: Cursor> Cursor for Without<C> {
    #[inline]
    fn valid(&self) -> bool {
        match self.state {
            State::There => self.inner.valid(),
            State::BehindOf(_) | State::InFrontOf(_) => true,
            State::End => false,
        }
    }

    #[inline]
    fn key(&self) -> &[u8] {
        match self.state {
            State::There | State::End => self.inner.key(),
            State::BehindOf(at) => {
                self.interval(at).and_then(|interval| interval.to.as_deref()).unwrap_or(&[])
            }
            State::InFrontOf(at) => self.interval(at).map_or(&[], |interval| &interval.from),
        }
    }

    #[inline]
    fn seq(&self) -> Seq {
        if self.is_ahead() { SEQ_MAX } else { self.inner.seq() }
    }

    #[inline]
    fn kind(&self) -> Kind {
        debug_assert!(!self.is_ahead(), "an entry that was not read");
        self.inner.kind()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        debug_assert!(!self.is_ahead(), "an entry that was not read");
        self.inner.value()
    }

    #[inline]
    fn warmth(&self) -> Warmth {
        self.inner.warmth()
    }

    #[inline]
    fn stays(&self) -> bool {
        self.inner.stays()
    }

    fn cached_bytes(&self) -> u64 {
        self.inner.cached_bytes()
    }

    fn approach(&mut self, key: &[u8], seq: Seq, step: Approach) {
        if step == Approach::Find {
            self.is_led = !self.hidden.contain(key);
        }
        if self.is_led {
            self.inner.approach(key, seq, step);
        }
    }

    fn rest(&mut self) {
        self.inner.rest();
        (self.state, self.is_led) = (State::End, false);
    }

    fn seek(&mut self, key: &[u8], seq: Seq) {
        self.forward = true;
        match self.hidden.locate(key) {
            Ok(at) => self.go_behind(at),
            Err(next) => {
                self.inner.seek(key, seq);
                self.placed_forward(next);
            }
        }
    }

    fn seek_for_prev(&mut self, key: &[u8], seq: Seq) {
        self.forward = false;
        match self.hidden.locate(key) {
            Ok(at) => self.go_in_front(at),
            Err(next) => {
                self.inner.seek_for_prev(key, seq);
                self.placed_backward(next.checked_sub(1));
            }
        }
    }

    fn seek_to_first(&mut self) {
        self.forward = true;
        // The empty key is the first of all.
        match self.hidden.locate(&[]) {
            Ok(at) => self.go_behind(at),
            Err(next) => {
                self.inner.seek_to_first();
                self.placed_forward(next);
            }
        }
    }

    fn seek_to_last(&mut self) {
        self.forward = false;
        let last = self.hidden.iter().len().checked_sub(1);
        match last.filter(|&at| self.interval(at).is_some_and(|interval| interval.to.is_none())) {
            Some(at) => self.go_in_front(at),
            None => {
                self.inner.seek_to_last();
                self.placed_backward(last);
            }
        }
    }

    #[inline]
    fn next(&mut self) {
        debug_assert!(self.state == State::There, "next on an entry that was not read");
        self.inner.next();
        if self.forward {
            self.settle_forward();
        } else {
            // The one that was next backwards is behind the cursor.
            self.placed_forward(self.next.map_or(0, |before| before + 1));
        }
    }

    #[inline]
    fn prev(&mut self) {
        debug_assert!(self.state == State::There, "prev on an entry that was not read");
        self.inner.prev();
        if self.forward {
            self.placed_backward(self.next.and_then(|next| next.checked_sub(1)));
        } else {
            self.settle_backward();
        }
    }

    fn status(&self) -> Result<()> {
        match self.state {
            State::There => self.inner.status(),
            _ => Ok(()),
        }
    }

    #[inline]
    fn may_be_ahead(&self) -> bool {
        !self.hidden.is_empty()
    }

    #[inline]
    fn is_ahead(&self) -> bool {
        matches!(self.state, State::BehindOf(_) | State::InFrontOf(_))
    }

    fn arrive(&mut self) {
        let hidden = Arc::clone(&self.hidden);
        match self.state {
            State::BehindOf(at) => {
                if let Some(to) = hidden.get(at).and_then(|interval| interval.to.as_deref()) {
                    self.inner.seek(to, SEQ_MAX);
                    self.placed_forward(at + 1);
                }
            }
            State::InFrontOf(at) => {
                let Some(interval) = hidden.get(at) else { return };
                self.inner.seek_for_prev(&interval.from, SEQ_MAX);
                if self.inner.valid() && self.inner.key() == &interval.from[..] {
                    self.inner.prev();
                }
                self.placed_backward(at.checked_sub(1));
            }
            State::There | State::End => {}
        }
    }
}
