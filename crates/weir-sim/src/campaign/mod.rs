//! The campaigns of reliability.md section 4.3.
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
