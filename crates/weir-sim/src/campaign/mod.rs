//! The campaigns of docs/campaigns.md.
//!
//! Each is a function from settings to a report or a violation; the program prints reports, the
//! tests run short forms.

pub mod crash;
pub mod damage;
pub mod determinism;
pub mod errors;
pub mod metamorphic;
pub mod policies;
pub mod rounds;
pub mod switches;
mod untouched;
