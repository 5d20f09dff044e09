//! The tree as data: versions, the edits that change them, and the log that makes edits durable.
//!
//! Not here: deciding (`compaction`), reading and writing entries (`read`, `table`), freeing what
//! no version names any more (`state`).
//!
//! An edit (`edit`) is applied to a root (`root`), judged (`check`), made durable (`set`,
//! `base_log`) and published; deciders see shapes (`shape`), readers runs (`run`, `run_cursor`).

mod base_log;
mod check;
pub(crate) mod edit;
pub(crate) mod keyspaces;
pub(crate) mod options;
pub(crate) mod record;
pub(crate) mod root;
pub(crate) mod run;
pub(crate) mod run_cursor;
pub(crate) mod salvage;
pub(crate) mod set;
pub(crate) mod shape;
pub(crate) mod tables;

#[cfg(test)]
mod tests;
