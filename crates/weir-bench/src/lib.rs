//! Workloads for key-value stores on the real machine, over one small trait.
//!
//! [`Engine`] is what a store must offer, [`Workload`] names what is done to it, [`Session`] opens,
//! loads and runs, [`Measurement`] is what comes out. Everything is fixed by [`Config::seed`]
//! except the time that it takes: two runs of one configuration do the same operations per client
//! thread, on every engine.
//!
//! Not here: how other engines are linked (`weir-bench-compare`) and how results are shown
//! (`weir-cli`).

mod client;
mod clock;
mod config;
mod engine;
mod keys;
pub mod lines;
pub mod loop_device;
mod pairs;
mod prng;
mod process;
mod progress;
mod report;
mod session;
mod values;
mod weir_engine;
mod windows;
mod workload;
mod zipf;

pub use clock::Stopwatch;
pub use config::{Config, KeyFormat};
pub use engine::{Batch, Counters, Engine, EngineError, EngineKind, Requests, Result, Settings};
pub use keys::{KeySpace, KeySpread, Permutation};
pub use pairs::Pairs;
pub use prng::Prng;
pub use process::{ProcessIo, anonymous_bytes, directory_bytes};
pub use progress::{Phase, Progress};
pub use report::{Latency, Measurement, latency_histogram};
pub use session::Session;
pub use values::Values;
pub use weir_engine::WeirKind;
pub use windows::Window;
pub use workload::Workload;
pub use zipf::{Latest, ScrambledZipfian, Zipfian};
