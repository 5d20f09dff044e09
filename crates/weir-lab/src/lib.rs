//! Weir's laboratory: the papers' experiments on the real engine, on simulated disks and a virtual
//! clock, from a seed.
//!
//! [`experiment`] is what an experiment states (one TOML file per figure), [`result`] what comes
//! out of it (one JSON file per figure), [`plot`] and [`report`] how people see that.
//!
//! Uses the engine's public interface and `weir::sim`, nothing else.

pub mod experiment;
pub mod formulas;
pub mod plot;
pub mod report;
pub mod result;
pub mod show;
