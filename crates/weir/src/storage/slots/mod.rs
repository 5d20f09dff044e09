//! A store in one file or on a raw device: no file system knows its objects.
//!
//! So far the map of slots; nothing opens this form yet.
//!
//! Source: LDS §3.1 to §3.3. We differ: a table is a list of extents of slots.

mod map;
