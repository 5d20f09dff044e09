//! The tree as data: versions, the edits that change them, and the log that makes edits durable.
//!
//! Not here: deciding (`compaction`), reading and writing entries (`read`, `table`), freeing what no
//! version names any more (`state`).

pub(crate) mod edit;
pub(crate) mod options;
pub(crate) mod record;
pub(crate) mod shape;
pub(crate) mod tables;
