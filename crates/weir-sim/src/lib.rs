//! Weir simulated from a seed and compared with an oracle.
//!
//! The whole engine runs on one thread at a time, on a disk that loses, tears and reorders what was
//! not synced and fails at chosen requests; the seed decides everything. `campaign` has the
//! campaigns of docs/campaigns.md, `model`, `history` and `ledger` the oracles, `runner` executes
//! operations, `reduce` cuts failures down. `fixtures` keeps stores that must open for ever. `kill`
//! and `soak` use the real machine; `museum` grades all of them by putting historical bugs back.
//!
//! Uses the engine's public interface and `weir::sim`, nothing else.

pub mod campaign;
pub mod fixtures;
pub mod generate;
pub mod history;
pub mod kill;
pub mod ledger;
pub mod model;
pub mod museum;
pub mod op;
pub mod options;
pub mod powercut;
pub mod reduce;
pub mod runner;
pub mod soak;
pub mod world;
