//! What a repair found and did, for programs and for people.

use std::fmt;

use crate::base::error::Error;
use crate::base::key::Printable;

/// A table that a repair gave up, all of it or some blocks.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LostTable {
    /// The table's uid.
    pub uid: u64,
    /// The keyspace that it belonged to, if that is known.
    pub keyspace: Option<String>,
    /// Entries that it held, if that is known.
    pub entries: Option<u64>,
    /// Entries that were found in its sound blocks, or elsewhere, and are in the store.
    pub entries_kept: u64,
    /// Keys between which entries are lost, if that is known. Where these were deletes, or newer
    /// versions, older versions of the keys may be back.
    pub lost_ranges: Vec<(Vec<u8>, Vec<u8>)>,
    /// What is wrong with it.
    pub why: Error,
    /// Name in the store's directory that the file has now; `None` if there was no file.
    pub kept_as: Option<String>,
}

impl LostTable {
    /// Whether all of its entries were kept: what was damaged says nothing that they do not.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.lost_ranges.is_empty() && self.entries == Some(self.entries_kept)
    }

    /// Its lines of the report.
    fn tell(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_whole() { "written again" } else { "lost" };
        write!(f, "{what}: table {}", self.uid)?;
        if let Some(keyspace) = &self.keyspace {
            write!(f, " of keyspace {keyspace:?}")?;
        }
        if let Some(held) = self.entries {
            write!(f, " with {}", entries(held))?;
        }
        writeln!(f, ": {:#}", self.why)?;
        if self.entries_kept > 0 {
            writeln!(f, "  kept of it: {}", entries(self.entries_kept))?;
        }
        for (first, last) in &self.lost_ranges {
            let (first, last) = (Printable(first), Printable(last));
            writeln!(
                f,
                "  lost of it: entries between {first} and {last}; older versions of these \
                 keys, or deleted ones, may be back"
            )?;
        }
        Ok(())
    }
}

/// A stretch of the write-ahead log that a repair gave up: what is behind a damaged place, but for
/// keyspaces that need nothing before it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LostLog {
    /// What is wrong, with file and offset.
    pub why: Error,
    /// Commit groups that are still recognisable there. A lower bound of what was lost.
    pub groups: u64,
    /// Entries in these groups.
    pub entries: u64,
}

/// What [`Db::repair`](crate::Db::repair) found and did. Its `Display` is a text for people.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RepairReport {
    /// Nothing was wrong, and nothing was changed.
    pub healthy: bool,
    /// The structure of the tree was lost: every keyspace was merged again from its tables.
    pub rebuilt: bool,
    /// The end of the version log was lost where nothing else tells what it said, so the tree is an
    /// earlier one: entries may be lost, and deleted keys, or dropped keyspaces, may be back.
    pub rolled_back: bool,
    /// Both superblocks were lost, another store's, or older than the version log, which name the
    /// one in use: the newest one was taken. If the store used another one, which only a crash at
    /// the end of its last opening can have left, the tree is an earlier one, as in `rolled_back`.
    pub unnamed: bool,
    /// The tree was rebuilt from what lies in the slots of a file or a device, whether it was
    /// obsolete or not ([`RepairOptions::from_trailers`](crate::RepairOptions::from_trailers)).
    pub from_trailers: bool,
    /// Where the new store is, if it went into another place
    /// ([`RepairOptions::rebuild_into`](crate::RepairOptions::rebuild_into)); the damaged one is as
    /// it was.
    pub rebuilt_into: Option<String>,
    /// Of such a rebuild: tables of which a part was written over, damaged or never written. They
    /// were left out. One that was obsolete is no loss, and one in use has lost its trailers; which
    /// is which cannot be known.
    pub left_out: u64,
    /// Bytes that a file in slots lacked at its end: it was cut off.
    pub cut_off_bytes: u64,
    /// Bytes by which it was made longer again, with zeros; 0 if the new store is another one.
    pub lengthened_bytes: u64,
    /// One of the two superblocks was damaged, which costs nothing, and was written again.
    pub superblock_restored: bool,
    /// The tree was rebuilt, and no segment of the write-ahead log was found: what was in no table
    /// is lost, if there was anything.
    pub log_missing: bool,
    /// Tables that lie in the slots of a file or a device and have entries which are newer than
    /// all that the version log and the write-ahead log tell. They are of a flush that a crash cut
    /// off, and then nothing was promised of them, or changes at the end of the version log are
    /// lost. Only a rebuild from trailers takes them.
    pub newer_tables: u64,
    /// What was wrong with the root record and the version log.
    pub structure: Vec<Error>,
    /// What kept the store from being opened without being a part of it, and was renamed: logs of
    /// another store, and what is no file. Each error names the file.
    pub strangers: Vec<Error>,
    /// What was wrong with tables that only the compaction buffer had. It was emptied: they were
    /// copies, and nothing is lost with them.
    pub lists: Vec<Error>,
    /// Tables that were read and are sound.
    pub tables_sound: u64,
    /// Entries in these tables.
    pub entries_sound: u64,
    /// Commit groups of the write-ahead log that are sound; those written to tables long ago are
    /// among them if the tree was rebuilt.
    pub groups_sound: u64,
    /// Tables that were given up, and those that were written again without a loss
    /// ([`LostTable::is_whole`]).
    pub lost_tables: Vec<LostTable>,
    /// Parts of the write-ahead log that were given up.
    pub lost_log: Vec<LostLog>,
    /// Keyspaces whose names were lost: id and new name. Their options are the defaults now.
    pub renamed_keyspaces: Vec<(u32, String)>,
    /// Why the repair has not ended, if it has replaced a part of the damaged tables only: the
    /// others are as they were, and another repair goes on.
    pub unfinished: Option<Error>,
    /// Files that could not be read whole, by the names in the store's directory that they, or
    /// copies of them, have now.
    pub kept_files: Vec<String>,
    /// Such files that earlier repairs have kept, whose reports tell what was given up with them.
    pub kept_before: Vec<String>,
}

impl RepairReport {
    /// Whether anything that the store once held may be missing now. If not, keys that were deleted
    /// may still be back (`rebuilt`), and keyspaces called otherwise (`renamed_keyspaces`).
    #[must_use]
    pub fn lost_data(&self) -> bool {
        let all_kept = self.lost_tables.iter().all(LostTable::is_whole);
        // A table whose trailers are all damaged leaves no trace.
        let unknown = self.rolled_back || self.unnamed || self.from_trailers;
        let unknown = unknown || self.unfinished.is_some() || self.newer_tables > 0;
        unknown || !all_kept || !self.lost_log.is_empty()
    }
}

impl RepairReport {
    /// What the text says of where the tree comes from.
    fn tell_of_the_tree(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rolled_back {
            writeln!(
                f,
                "the tree is an earlier one: changes at the end of the version log are lost, and \
                 nothing else tells what they were; entries may be lost, and keys that were \
                 deleted or keyspaces that were dropped may be back"
            )?;
        }
        if self.unnamed {
            writeln!(
                f,
                "the superblocks were lost, or older than the version log, and the newest one was \
                 taken for the one in use; if that was another one, entries may be lost, and keys \
                 that were deleted or keyspaces that were dropped may be back"
            )?;
        }
        if self.newer_tables > 0 {
            writeln!(
                f,
                "{} in the slots with entries newer than all that the logs tell: of a flush that a \
                 crash cut off, or the end of the version log is lost; before anything is written \
                 to the store, `weir repair --from-trailers --into NEW` builds one with them, in \
                 which keys that were deleted may be back",
                counted(self.newer_tables, "table lies", "tables lie")
            )?;
        }
        if self.from_trailers {
            writeln!(
                f,
                "the tree was built again from the tables that lie in the slots, obsolete ones \
                 too: keys that were deleted and keyspaces that were dropped may be back; left \
                 out: {} of which a part is written over or damaged",
                counted(self.left_out, "table", "tables")
            )?;
        } else if self.rebuilt {
            writeln!(
                f,
                "the tree was built again from the tables that are sound; keys that were deleted \
                 may be back, from tables that were obsolete but not removed yet"
            )?;
        }
        Ok(())
    }

    /// How the repair ended, in a few words.
    fn outcome(&self) -> &'static str {
        if self.unfinished.is_some() {
            "repaired in part"
        } else if self.lost_data() {
            "repaired with losses"
        } else if self.rebuilt || !self.renamed_keyspaces.is_empty() {
            "repaired; no entry is known to be lost, but it is not what the store was"
        } else {
            "repaired without loss"
        }
    }

    /// What the end of the text says of earlier repairs.
    fn told_before(&self) -> String {
        if self.kept_before.is_empty() {
            return String::new();
        }
        format!(
            "\nstill there from earlier repairs: {}; what these gave up, one that was cut off too, \
             is not in this report",
            self.kept_before.join(", ")
        )
    }
}

/// A count with the name of what is counted: `1 table`, `2 tables`.
fn counted(n: u64, one: &str, more: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { more })
}

fn entries(n: u64) -> String {
    counted(n, "entry", "entries")
}

impl fmt::Display for RepairReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tables = counted(self.tables_sound, "table", "tables");
        let held = entries(self.entries_sound);
        let groups = counted(self.groups_sound, "commit group", "commit groups");
        if self.healthy {
            return write!(
                f,
                "nothing to repair, all is sound: {tables} with {held}, {groups}; nothing was \
                 changed{}",
                self.told_before()
            );
        }
        writeln!(f, "sound: {tables} with {held}, {groups}")?;
        let bytes = counted(self.cut_off_bytes, "byte", "bytes");
        if self.lengthened_bytes > 0 {
            writeln!(f, "made longer again: the file had been cut off, and lacked {bytes}")?;
        } else if self.cut_off_bytes > 0 {
            writeln!(f, "cut off: the damaged file lacks {bytes} at its end")?;
        }
        if self.superblock_restored {
            writeln!(f, "one of the two superblocks was damaged, and is whole again")?;
        }
        for fault in &self.structure {
            writeln!(f, "structure: {fault:#}")?;
        }
        for stranger in &self.strangers {
            writeln!(f, "not of this store: {stranger:#}")?;
        }
        for fault in &self.lists {
            writeln!(f, "copies in the compaction buffer, which was emptied: {fault:#}")?;
        }
        self.tell_of_the_tree(f)?;
        for table in &self.lost_tables {
            table.tell(f)?;
        }
        for log in &self.lost_log {
            let why = &log.why;
            match log.groups {
                0 => writeln!(f, "perhaps lost: what the write-ahead log had here: {why:#}")?,
                _ => writeln!(
                    f,
                    "lost: the write-ahead log from a damaged place on, at least {} with {}: \
                     {why:#}",
                    counted(log.groups, "group", "groups"),
                    entries(log.entries)
                )?,
            }
        }
        if self.log_missing {
            writeln!(
                f,
                "no write-ahead log was found: what was in no table yet is lost, if there was \
                 anything"
            )?;
        }
        for (id, name) in &self.renamed_keyspaces {
            writeln!(f, "renamed: the name of keyspace {id} is lost, it is called {name:?} now")?;
        }
        for name in &self.kept_files {
            writeln!(f, "kept aside: {name}")?;
        }
        if let Some(error) = &self.unfinished {
            writeln!(
                f,
                "not finished: other damaged tables are as they were, and another repair goes on \
                 where this one ended: {error}"
            )?;
        }
        let outcome = self.outcome();
        let opened = match &self.rebuilt_into {
            Some(path) => {
                format!("the new store in {path} can be opened; the damaged one is as it was")
            }
            None if self.unfinished.is_some() => "the rest is as it was".to_owned(),
            None => "the store can be opened".to_owned(),
        };
        write!(f, "{outcome}; {opened}{}", self.told_before())
    }
}
