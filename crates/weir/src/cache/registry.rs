//! The directories of a cache's tables, by uid.
//!
//! A directory lives as long as its table, or a cached block of it: blocks are handed over before
//! their table is opened, and stay until the reclaimer erases them. Invariant: at most one
//! directory of a table is in use. Locks: a leaf.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::{Arc, Weak};

use super::directory::Directory;
use crate::base::atomic::LeafMutex;
use crate::base::ids::TableUid;
use crate::base::memory::{Accountant, Category};

/// See the module.
#[derive(Default)]
pub(super) struct Registry {
    directories: LeafMutex<BTreeMap<TableUid, Weak<Directory>>>,
}

impl Registry {
    /// The directory of a table; the memory of its segments is charged as a table's.
    pub(super) fn directory(
        self: &Arc<Self>,
        uid: TableUid,
        accountant: Option<&Arc<Accountant>>,
    ) -> Arc<Directory> {
        let mut directories = self.directories.lock();
        if let Some(found) = directories.get(&uid).and_then(Weak::upgrade) {
            return found;
        }
        // It is a part of its table, which is not charged either; its segments are.
        let charge = accountant.map(|a| a.charge(Category::TableMetadata, 0));
        let made = Arc::new(Directory::new(uid, self, charge));
        directories.insert(uid, Arc::downgrade(&made));
        made
    }

    /// Forgets a directory that is being dropped, unless there is a new one of its table.
    pub(super) fn forget(&self, directory: &Directory) {
        let mut directories = self.directories.lock();
        let is_it = |held: &Weak<Directory>| ptr::eq(held.as_ptr(), directory);
        if directories.get(&directory.uid).is_some_and(is_it) {
            directories.remove(&directory.uid);
        }
    }
}
