//! A child process: one workload on one engine, measured from inside.

use crate::engines;
use crate::machine;
use crate::task::{Answer, Task};
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use weir_bench::{
    EngineError, Measurement, ProcessIo, Progress, Result, Session, Workload, anonymous_bytes,
};

/// Time between two samples of the memory.
const SAMPLE: Duration = Duration::from_millis(20);

/// Does the task that `json` describes and writes the answer to its file.
///
/// # Errors
/// The engine's error; nothing is written then.
pub fn run(json: &str) -> Result<()> {
    let task: Task = serde_json::from_str(json).map_err(EngineError::new)?;
    for cgroup in &task.cgroups {
        machine::enter(cgroup).map_err(EngineError::new)?;
    }
    let io_before = ProcessIo::now();
    let stop = AtomicBool::new(false);
    let peak = AtomicU64::new(0);
    let measurement = std::thread::scope(|scope| {
        let sampler = scope.spawn(|| sample_memory(&stop, &peak));
        let measurement = measure(&task);
        stop.store(true, Ordering::Relaxed);
        sampler.thread().unpark();
        measurement
    })?;
    let io = io_before.zip(ProcessIo::now());
    let answer = Answer {
        measurement,
        peak_anonymous_bytes: Some(peak.into_inner()).filter(|&bytes| bytes > 0),
        device_read_bytes: io.map(|(before, after)| after.read_bytes - before.read_bytes),
        device_reads: None,
        device_write_bytes: io.map(|(before, after)| after.write_bytes - before.write_bytes),
    };
    write(&task.answer, &serde_json::to_string(&answer).map_err(EngineError::new)?)
}

fn measure(task: &Task) -> Result<Measurement> {
    let kind = engines::named(&task.engine)
        .ok_or_else(|| EngineError::new(format!("there is no engine {:?}", task.engine)))?;
    let workload = Workload::from_str(&task.workload)?;
    let settings = task.sizes.settings(task.row);
    let config = task.sizes.config();
    let mut session = Session::new(&*kind, &task.dir, settings, config, task.loaded)?;
    let measurement = session.run(workload, &Progress::default())?;
    session.close()?;
    Ok(measurement)
}

/// Keeps the largest anonymous memory in `peak` until `stop`.
fn sample_memory(stop: &AtomicBool, peak: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        peak.fetch_max(anonymous_bytes().unwrap_or(0), Ordering::Relaxed);
        std::thread::park_timeout(SAMPLE);
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    #[expect(clippy::disallowed_methods, reason = "an answer to the parent is no store")]
    std::fs::write(path, text)?;
    Ok(())
}
