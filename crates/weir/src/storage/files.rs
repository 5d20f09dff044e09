//! The store as a directory of files.
