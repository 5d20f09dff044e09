//! Keyspaces begin, change their options and end.
//!
//! Not here: what a keyspace's tree is (`state::tree`), its public handle (`keyspace`).
//!
//! Invariants: (1) one keyspace begins or ends at a time (`ddl`); (2) no group of the log before a
//! keyspace's first log start holds an entry of it; (3) no job names a keyspace that has ended; (4)
//! a beginning or an end is durable only after every commit that was acknowledged before it began:
//! both take their place in the order of the log, although they are edits of the version set.

use std::sync::Arc;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::ids::KeyspaceId;
use crate::base::limits;
use crate::db::engine::{DEFAULT_KEYSPACE, Engine, Writer};
use crate::db::heat::heat_for;
use crate::options::Options;
use crate::state::tree::{Flushable, SuperVersion, Tree};
use crate::version::edit::{Flushed, VersionEdit};

/// How a keyspace is asked for. Options are those of a keyspace that is created; one that exists
/// keeps its own.
pub(crate) enum KeyspaceAsk {
    Open,
    Create(Options),
    OpenOrCreate(Options),
}

impl Engine {
    /// Opens or creates a keyspace, as it is asked for.
    pub(crate) fn keyspace(&self, name: &str, ask: KeyspaceAsk) -> Result<Arc<Tree>> {
        self.shared.health.check_open()?;
        check_name(name)?;
        let ask = match ask {
            KeyspaceAsk::Open => KeyspaceAsk::Open,
            KeyspaceAsk::Create(options) => KeyspaceAsk::Create(options.taken_in()?),
            KeyspaceAsk::OpenOrCreate(options) => KeyspaceAsk::OpenOrCreate(options.taken_in()?),
        };
        let existing = self.trees.lock().values().find(|t| t.name == name).cloned();
        match (existing, ask) {
            (Some(_), KeyspaceAsk::Create(_)) => Err(exists(name)),
            // It is being dropped: created again, once the drop is through.
            (Some(tree), KeyspaceAsk::OpenOrCreate(options)) if tree.is_dropped() => {
                self.create_keyspace(name, options, false)
            }
            (Some(tree), _) => Ok(tree),
            (None, KeyspaceAsk::Open) => Err(Error::new(
                ErrorKind::NotFound,
                format!("there is no keyspace {name:?}; create it, or correct the name"),
            )),
            (None, KeyspaceAsk::Create(options)) => self.create_keyspace(name, options, true),
            (None, KeyspaceAsk::OpenOrCreate(options)) => {
                self.create_keyspace(name, options, false)
            }
        }
    }

    /// Replaces the stored options of a keyspace.
    pub(crate) fn set_options(&self, tree: &Arc<Tree>, options: Options) -> Result<()> {
        let options = options.taken_in()?;
        self.shared.health.check_writable()?;
        if self.writer.is_none() {
            return Err(Error::new(
                ErrorKind::ReadOnly,
                format!(
                    "the options of keyspace {:?} cannot be changed: the store was opened for \
                     reading only; open it without read_only",
                    tree.name
                ),
            ));
        }
        let stored = {
            let root = self.set.current();
            root.keyspaces.get(tree.id).map(|k| Arc::clone(&k.options))
        };
        if stored.is_some_and(|s| *s == options) {
            return Ok(());
        }
        let mut edit = VersionEdit::default();
        edit.keyspace(tree.id).options = Some(Arc::new(options));
        self.install_outputs(edit, &[], None).map_err(|e| self.note_install_error(e))?;
        self.update_pressure_of(tree);
        // It may have let stalled writers go on.
        self.shared.announce_progress();
        self.shared.wake_workers();
        Ok(())
    }

    /// Creates a keyspace with options that are in their ranges. If another thread was faster, that
    /// is a conflict for who asked to be the only one; others get its keyspace.
    fn create_keyspace(&self, name: &str, options: Options, exclusive: bool) -> Result<Arc<Tree>> {
        let writer = self.writer()?;
        self.shared.health.check_writable()?;
        let _ddl = self.ddl.lock();
        let faster = self.trees.lock().values().find(|t| t.name == name).cloned();
        if let Some(tree) = faster {
            return if exclusive { Err(exists(name)) } else { Ok(tree) };
        }
        if self.trees.lock().len() >= limits::KEYSPACES_MAX {
            return Err(Error::invalid(format!(
                "a store has at most {} keyspaces; drop some, or put a prefix on the keys",
                limits::KEYSPACES_MAX
            )));
        }
        let created = self.install_keyspace(writer, name, options);
        self.release_log();
        created
    }

    /// Draws a log start for a new keyspace and installs it.
    fn install_keyspace(&self, writer: &Writer, name: &str, options: Options) -> Result<Arc<Tree>> {
        // No group before this position can hold an entry of the new keyspace. The pin not before:
        // whoever leads may be waiting for a part of the log to become obsolete.
        let (pin, settled) =
            writer.committer.exclusively(|lead| (self.pin_log(), lead.settle_log()))?;
        let (durable_lsn, position) = settled?;
        self.sync_position(durable_lsn)?;
        let id = self.set.new_keyspace_id().ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "all keyspace numbers of this store were used")
        })?;
        assert_ne!(id, KeyspaceId::DEFAULT, "keyspace {name:?} gets the number of the default one");
        let mut edit = VersionEdit::default();
        let created = edit.keyspace(id);
        created.create = Some(name.to_owned());
        created.options = Some(Arc::new(options));
        created.flushed = Some(Flushed { log_start: position, flushed_seq: 0, durable_lsn });
        let installed = match self.set.apply(edit) {
            Ok(installed) => installed,
            Err(failed) => {
                // The keyspace may be there when the store is opened again, with its log start.
                if failed.maybe_persisted {
                    pin.keep();
                }
                return Err(self.note_install_error(failed.error));
            }
        };
        let state = installed.root.keyspaces.get(id).ok_or_else(|| {
            Error::new(ErrorKind::Corruption, "a created keyspace is missing from the root")
        })?;
        let options = self.effective(&state.options);
        let active =
            Flushable::new(options.write_buffer_bytes, position, &self.shared.memtable_memory);
        let heat = heat_for(&self.shared.accountant, &options, &state.version, None);
        let first = SuperVersion::new(active, Arc::clone(&state.version), options);
        let first = first.with_heat(heat);
        let tree = Arc::new(Tree::new(id, name.to_owned(), first));
        let other = self.trees.lock().insert(id, Arc::clone(&tree));
        assert!(other.is_none(), "two keyspaces with number {id}");
        drop(pin);
        Ok(tree)
    }

    /// Drops a keyspace with everything in it.
    pub(crate) fn drop_keyspace(&self, name: &str) -> Result<()> {
        self.shared.health.check_writable()?;
        let writer = self.writer()?;
        if name == DEFAULT_KEYSPACE {
            return Err(Error::invalid(
                "the keyspace \"default\" cannot be dropped; delete its keys",
            ));
        }
        let _ddl = self.ddl.lock();
        let tree = self.keyspace(name, KeyspaceAsk::Open)?;
        // What was acknowledged before is durable before the drop is: what was moved out of the
        // keyspace is not lost with it. Before the jobs end: who leads may be waiting for them.
        let (durable_lsn, _) = writer.committer.exclusively(|lead| lead.settle_log())??;
        self.sync_position(durable_lsn)?;
        // Jobs of the keyspace end first, so that no edit names it after it is gone.
        self.jobs.close_keyspace(&self.shared, tree.id);
        let mut edit = VersionEdit::default();
        edit.keyspace(tree.id).drop = true;
        let installed = match self.set.apply(edit) {
            Ok(installed) => installed,
            Err(failed) => {
                self.jobs.reopen_keyspace(tree.id);
                self.shared.wake_workers();
                return Err(self.note_install_error(failed.error));
            }
        };
        let left = installed.root.keyspaces.get(tree.id);
        assert!(left.is_none(), "keyspace {name:?} is dropped, and in the root");
        tree.set_dropped();
        self.release_writers(&tree);
        let removed = self.trees.lock().remove(&tree.id);
        assert!(removed.is_some(), "keyspace {name:?} is dropped twice");
        for table in &installed.removed {
            self.cache.erase_table(table.meta().uid, table.meta().blocks);
            self.reclaimer.retire(table);
        }
        drop(installed);
        self.cache.set_capacity(self.cache_share());
        tree.clear(&self.shared);
        // It may have been the one that kept the log.
        self.release_log();
        self.shared.announce_progress();
        self.shared.wake_workers();
        Ok(())
    }
}

fn exists(name: &str) -> Error {
    Error::new(
        ErrorKind::Conflict,
        format!("keyspace {name:?} exists; open it, or choose another name"),
    )
}

/// A name that people can read and that fits its length field.
fn check_name(name: &str) -> Result<()> {
    let max = limits::KEYSPACE_NAME_BYTES_MAX;
    if name.is_empty() || name.len() > max || name.chars().any(char::is_control) {
        return Err(Error::invalid(format!(
            "{name:?} cannot name a keyspace; use 1 to {max} bytes without control characters"
        )));
    }
    Ok(())
}
