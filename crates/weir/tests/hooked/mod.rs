//! A directory that does something before it creates or opens a file: panics, waits, loses it.

use std::sync::Arc;

use weir::Result;
use weir::sim::{Dir, File, FileClass, Lock, Mode, OpKind};

/// Calls `before` with `OpKind::Create` or `OpKind::Open` and the file's name.
pub struct Hooked<F> {
    pub inner: Arc<dyn Dir>,
    pub before: F,
}

impl<F: Fn(OpKind, &str) + Send + Sync> Dir for Hooked<F> {
    fn create(&self, name: &str, class: FileClass) -> Result<Arc<dyn File>> {
        (self.before)(OpKind::Create, name);
        self.inner.create(name, class)
    }
    fn open(&self, name: &str, class: FileClass, mode: Mode) -> Result<Arc<dyn File>> {
        (self.before)(OpKind::Open, name);
        self.inner.open(name, class, mode)
    }
    fn rename(&self, from: &str, to: &str, class: FileClass) -> Result<()> {
        self.inner.rename(from, to, class)
    }
    fn unlink(&self, name: &str, class: FileClass) -> Result<()> {
        self.inner.unlink(name, class)
    }
    fn list(&self) -> Result<Vec<String>> {
        self.inner.list()
    }
    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }
    fn lock(&self, name: &str) -> Result<Box<dyn Lock>> {
        self.inner.lock(name)
    }
    fn path(&self) -> String {
        self.inner.path()
    }
}
