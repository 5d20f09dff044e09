//! Replaying the trace of one run, to cut the power at every boundary.

use std::sync::Arc;

use crate::device::sim::crash::{self, CrashPolicy};
use crate::device::sim::model::{Model, Op};
use crate::device::sim::{SimDisk, SimOptions};
use crate::device::site::Site;

/// The ops of one run and its initial disk.
#[derive(Clone, Default)]
pub(super) struct Trace {
    pub(super) initial: Model,
    pub(super) ops: Vec<Op>,
}

/// A boundary in the trace of a recorded run, and the disk at it.
pub struct Replayer {
    trace: Arc<Trace>,
    model: Model,
    at: usize,
    marks: Vec<u64>,
    options: SimOptions,
}

impl std::fmt::Debug for Replayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replayer").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Replayer {
    pub(super) fn new(trace: Trace, options: SimOptions) -> Self {
        let model = trace.initial.clone();
        let options = SimOptions { record: false, ..options };
        Self { trace: Arc::new(trace), model, at: 0, marks: Vec::new(), options }
    }

    /// Another replayer of the same trace, at its start. Cheap, so that each thread can have one.
    #[must_use]
    pub fn restarted(&self) -> Self {
        Self {
            trace: Arc::clone(&self.trace),
            model: self.trace.initial.clone(),
            at: 0,
            marks: Vec::new(),
            options: self.options.clone(),
        }
    }

    /// Number of ops in the trace. There are `len() + 1` boundaries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.trace.ops.len()
    }

    /// Whether the trace has no op.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The boundary: number of ops applied.
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Goes to a boundary, backwards by restarting. Costs the ops applied on the way.
    pub fn go_to(&mut self, boundary: usize) {
        if boundary < self.at {
            *self = self.restarted();
        }
        let end = boundary.min(self.len());
        for op in &self.trace.ops[self.at.min(end)..end] {
            if let Op::Mark(mark) = op {
                self.marks.push(*mark);
            }
            self.model.apply(op);
        }
        self.at = end;
        let applied = self.model.at - self.trace.initial.at;
        assert_eq!(applied, end as u64, "ops of the trace applied at boundary {boundary}");
    }

    /// The marks before this boundary, in order.
    #[must_use]
    pub fn marks(&self) -> &[u64] {
        &self.marks
    }

    /// The site of the op after this boundary; `None` for a mark and at the end.
    #[must_use]
    pub fn next_site(&self) -> Option<Site> {
        let class_of = |inode: u64| self.model.inodes.get(&inode)?.class;
        self.trace.ops.get(self.at)?.site(class_of)
    }

    /// Whether the op after this boundary is a mark, which does not change the disk.
    #[must_use]
    pub fn next_is_mark(&self) -> bool {
        matches!(self.trace.ops.get(self.at), Some(Op::Mark(_)))
    }

    /// The ops around this boundary, for messages.
    #[must_use]
    pub fn describe(&self, before: usize, after: usize) -> String {
        let end = (self.at + after).min(self.len());
        let first = self.at.saturating_sub(before);
        let mut text = String::new();
        for (i, op) in self.trace.ops.iter().enumerate().take(end).skip(first) {
            if i == self.at {
                text.push_str("  --- power cut ---\n");
            }
            text.push_str(&format!("  {i}: {op}\n"));
        }
        text
    }

    /// The disk after a power cut at this boundary, a pure function of the arguments.
    #[must_use]
    pub fn image(&self, policy: CrashPolicy, seed: u64) -> SimDisk {
        SimDisk::from_model(crash::image(&self.model, policy, seed), self.options.clone())
    }

    /// As [`image`](Self::image), but the disk records: for a second power cut during the recovery
    /// from the first.
    #[must_use]
    pub fn recording_image(&self, policy: CrashPolicy, seed: u64) -> SimDisk {
        let options = SimOptions { record: true, ..self.options.clone() };
        SimDisk::from_model(crash::image(&self.model, policy, seed), options)
    }

    /// Number of sectors of the newest un-synced write, the exclusive limit of `TornAt`'s boundary.
    /// 0 if there is none.
    #[must_use]
    pub fn torn_sectors(&self) -> u64 {
        crash::newest_write(&self.model).map_or(0, |(_, sectors)| sectors)
    }
}
