//! Reading: point lookups and cursors over one pinned super-version (ARCHITECTURE §5).
//!
//! Invariants: (1) a point lookup takes the super-version before the visible sequence number (H45);
//! a scan enters its sequence number in the snapshot list, which protects it, before it takes the
//! super-version (H47); (2) runs are searched newest first, and the first entry at or below the
//! read sequence answers; (3) a cursor owns what it reads from: it can be sent to another thread
//! and outlives the handle it was made from; (4) an error is reported, never taken for "not found"
//! or "end" (docs/hazards.md, bugs 14 and 39); (5) the row cache is searched after the memtables
//! and for the newest state only (H53).

pub(crate) mod buffered;
pub(crate) mod cursor;
pub(crate) mod get;
pub(crate) mod merged;
mod sampled;
