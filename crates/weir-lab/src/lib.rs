//! Weir's laboratory: the papers' experiments on the real engine, on simulated disks and a virtual
//! clock, from a seed.
//!
//! [`catalog`] has all experiments, [`suite`] runs them. [`experiment`] is what an experiment
//! states (one TOML file per figure), [`result`] what comes out of it (one JSON file per figure),
//! [`plot`] and [`report`] how people see that. [`required`] is what has to come out, [`invented`]
//! what must not go unnoticed.
//!
//! Uses the engine's public interface and `weir::sim`, nothing else.

pub mod amplification;
pub mod blocks;
pub mod catalog;
pub mod choice;
pub mod clients;
mod count;
pub mod counted;
mod crash;
pub mod disk;
pub mod document;
pub mod engine;
pub mod experiment;
pub mod files;
pub mod formulas;
mod image;
pub mod invented;
pub mod measure;
pub mod operations;
pub mod outcome;
mod paid;
pub mod phases;
pub mod plot;
pub mod policies;
pub mod race;
pub mod record;
pub mod report;
pub mod required;
pub mod result;
pub mod seeds;
pub mod sentinels;
pub mod settings;
pub mod show;
pub mod simulate;
pub mod store;
pub mod suite;
pub mod workload;
