//! The tree as data: versions, the edits that change them, and the version log (LevelDB's
//! MANIFEST), which makes edits durable.
//!
//! Not here: picking compactions (`compaction`), reading and writing entries (`read`, `table`),
//! freeing obsolete tables (`state`).
//!
//! An edit (`edit`) gets what it does to buffer lists (`buffer_effects`), is applied to a root
//! (`root`), checked (`check`), made durable (`set`, `base_log`; read back in sums: `bulk`) and
//! published; policies see shapes (`shape`), readers see runs (`run`, `run_cursor`, `buffer_list`).
//! A merge learns what it will do to lists when it begins (`foreseen`), and what was read through
//! them (`list_heat`).

mod base_log;
mod buffer_effects;
pub(crate) mod buffer_list;
mod bulk;
mod check;
mod claims;
pub(crate) mod edit;
pub(crate) mod foreseen;
pub(crate) mod keyspaces;
pub(crate) mod list_heat;
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
