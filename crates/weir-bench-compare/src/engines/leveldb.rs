//! LevelDB, Debian's library, through its C API.
//!
//! Invariants: (1) every pointer of [`LevelDb`] comes from the matching `create` or `open`, is
//! never null, and is given back once, in `Drop`, the database first; (2) LevelDB allows every call
//! on one database from several threads at once; an iterator or batch belongs to the call that made
//! it.

use super::leveldb_sys as sys;
use super::wait_until_idle;
use std::ffi::{CStr, CString, c_char, c_int};
use std::path::Path;
use std::ptr;
use weir_bench::{Batch, Counters, Engine, EngineError, EngineKind, Result, Settings};

/// How to open LevelDB.
#[derive(Default)]
pub struct Kind {
    /// Bytes of a table; `None`: its default.
    pub table_bytes: Option<u64>,
}

struct LevelDb {
    db: *mut sys::Db,
    options: *mut sys::Options,
    cache: *mut sys::Cache,
    filter: *mut sys::FilterPolicy,
    reads: *mut sys::ReadOptions,
    buffered: *mut sys::WriteOptions,
    synced: *mut sys::WriteOptions,
    /// Bytes of level 1 and above that LevelDB puts up with before it compacts; index is the level.
    level_bytes: [f64; 7],
}

// SAFETY: invariant 2; the option objects are not changed after `open`.
unsafe impl Send for LevelDb {}
// SAFETY: as above.
unsafe impl Sync for LevelDb {}

/// The library's version.
pub fn version() -> String {
    // SAFETY: both only return a number.
    unsafe { format!("{}.{}", sys::leveldb_major_version(), sys::leveldb_minor_version()) }
}

impl EngineKind for Kind {
    fn name(&self) -> &str {
        "leveldb"
    }

    fn open(&self, dir: &Path, settings: &Settings) -> Result<Box<dyn Engine>> {
        let name = CString::new(dir.as_os_str().as_encoded_bytes()).map_err(EngineError::new)?;
        // LevelDB makes the directory but not its parents.
        std::fs::create_dir_all(dir)?;
        // SAFETY: the `create` calls have no preconditions; the setters get what was just created.
        // Everything is owned by `this` before the first call that can fail.
        let mut this = unsafe {
            let this = LevelDb {
                db: ptr::null_mut(),
                options: sys::leveldb_options_create(),
                cache: ptr::null_mut(),
                filter: ptr::null_mut(),
                reads: sys::leveldb_readoptions_create(),
                buffered: sys::leveldb_writeoptions_create(),
                synced: sys::leveldb_writeoptions_create(),
                level_bytes: [0.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6].map(|m| m * 1_048_576.0),
            };
            sys::leveldb_options_set_create_if_missing(this.options, 1);
            sys::leveldb_writeoptions_set_sync(this.synced, 1);
            this
        };
        if !settings.engine_defaults {
            this.set(settings);
        }
        if let Some(bytes) = self.table_bytes {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            // SAFETY: invariant 1.
            unsafe { sys::leveldb_options_set_max_file_size(this.options, bytes) };
        }
        let mut error = ptr::null_mut();
        // SAFETY: `options` is initialised, `name` ends in NUL, `error` is a valid place.
        this.db = unsafe { sys::leveldb_open(this.options, name.as_ptr(), &mut error) };
        check(error)?;
        Ok(Box::new(this))
    }
}

impl LevelDb {
    /// The equal settings. Background threads cannot be set: LevelDB has one.
    fn set(&mut self, settings: &Settings) {
        let bytes = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        // SAFETY: invariant 1; cache and filter live until `Drop`, longer than the database.
        unsafe {
            self.cache = sys::leveldb_cache_create_lru(bytes(settings.cache_bytes));
            sys::leveldb_options_set_cache(self.options, self.cache);
            if settings.bloom_bits > 0 {
                let bits = c_int::try_from(settings.bloom_bits).unwrap_or(c_int::MAX);
                self.filter = sys::leveldb_filterpolicy_create_bloom(bits);
                sys::leveldb_options_set_filter_policy(self.options, self.filter);
            }
            sys::leveldb_options_set_write_buffer_size(
                self.options,
                bytes(settings.write_buffer_bytes),
            );
            sys::leveldb_options_set_block_size(self.options, settings.block_bytes as usize);
            sys::leveldb_options_set_compression(self.options, sys::NO_COMPRESSION);
            // The other engines verify a block's checksum whenever they read it.
            sys::leveldb_readoptions_set_verify_checksums(self.reads, 1);
        }
    }

    fn put_with(&self, options: *mut sys::WriteOptions, key: &[u8], value: &[u8]) -> Result<()> {
        let mut error = ptr::null_mut();
        // SAFETY: invariant 1; pointers and lengths come from slices that outlive the call.
        unsafe {
            sys::leveldb_put(
                self.db,
                options,
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len(),
                &mut error,
            );
        }
        check(error)
    }

    /// A property as text.
    fn property(&self, name: &CStr) -> Option<String> {
        // SAFETY: invariant 1; `name` ends in NUL; the answer is NUL-terminated and ours to free.
        unsafe {
            let text = sys::leveldb_property_value(self.db, name.as_ptr());
            if text.is_null() {
                return None;
            }
            let owned = CStr::from_ptr(text).to_string_lossy().into_owned();
            sys::leveldb_free(text.cast());
            Some(owned)
        }
    }

    /// Whether LevelDB's own rule asks for no compaction: level 0 below four files, no other level
    /// above its size. Sizes are printed in whole MiB, so a level may be over by half of one.
    fn no_compaction_due(stats: &str, level_bytes: &[f64; 7]) -> bool {
        stats.lines().all(|line| {
            let mut fields = line.split_whitespace().map(str::parse::<f64>);
            let (Some(Ok(level)), Some(Ok(files)), Some(Ok(mib))) =
                (fields.next(), fields.next(), fields.next())
            else {
                return true; // a heading
            };
            match level_bytes.get(level as usize) {
                Some(_) if level == 0.0 => files < 4.0,
                Some(&limit) if level < 6.0 => mib * 1_048_576.0 <= limit,
                _ => true,
            }
        })
    }
}

/// The error that LevelDB left, if it did.
fn check(error: *mut c_char) -> Result<()> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: a set error is a NUL-terminated string that is ours to free.
    let text = unsafe {
        let text = CStr::from_ptr(error).to_string_lossy().into_owned();
        sys::leveldb_free(error.cast());
        text
    };
    Err(EngineError::new(text))
}

/// The bytes at `pointer`.
///
/// # Safety
/// `pointer` points to `bytes` readable bytes that live for `'a`, or `bytes` is 0.
unsafe fn slice<'a>(pointer: *const c_char, bytes: usize) -> &'a [u8] {
    if bytes == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(pointer.cast(), bytes) }
}

impl Engine for LevelDb {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_with(self.buffered, key, value)
    }

    fn put_sync(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_with(self.synced, key, value)
    }

    fn put_batch(&self, batch: &Batch) -> Result<()> {
        let mut error = ptr::null_mut();
        // SAFETY: the batch is created, filled, used and destroyed here; slices outlive each call.
        unsafe {
            let writes = sys::leveldb_writebatch_create();
            for (key, value) in batch.iter() {
                sys::leveldb_writebatch_put(
                    writes,
                    key.as_ptr().cast(),
                    key.len(),
                    value.as_ptr().cast(),
                    value.len(),
                );
            }
            sys::leveldb_write(self.db, self.buffered, writes, &mut error);
            sys::leveldb_writebatch_destroy(writes);
        }
        check(error)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        let mut error = ptr::null_mut();
        // SAFETY: as in `put_with`.
        unsafe {
            let (pointer, bytes) = (key.as_ptr().cast(), key.len());
            sys::leveldb_delete(self.db, self.buffered, pointer, bytes, &mut error);
        }
        check(error)
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut error = ptr::null_mut();
        let mut bytes = 0;
        // SAFETY: as in `put_with`; `bytes` is a valid place.
        let value = unsafe {
            let key_pointer = key.as_ptr().cast();
            sys::leveldb_get(self.db, self.reads, key_pointer, key.len(), &mut bytes, &mut error)
        };
        check(error)?;
        if value.is_null() {
            return Ok(false);
        }
        // SAFETY: a value that is not null has `bytes` bytes and is ours until it is freed.
        unsafe {
            visit(slice(value, bytes));
            sys::leveldb_free(value.cast());
        }
        Ok(true)
    }

    fn scan(&self, start: &[u8], count: u64, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut error = ptr::null_mut();
        let mut seen = 0;
        // SAFETY: the iterator is created, used and destroyed here. Key and value live until it
        // moves, and are read only while it is valid.
        unsafe {
            let iter = sys::leveldb_create_iterator(self.db, self.reads);
            sys::leveldb_iter_seek(iter, start.as_ptr().cast(), start.len());
            while seen < count && sys::leveldb_iter_valid(iter) != 0 {
                let (mut key_bytes, mut value_bytes) = (0, 0);
                let key = sys::leveldb_iter_key(iter, &mut key_bytes);
                let value = sys::leveldb_iter_value(iter, &mut value_bytes);
                visit(slice(key, key_bytes), slice(value, value_bytes));
                seen += 1;
                sys::leveldb_iter_next(iter);
            }
            sys::leveldb_iter_get_error(iter, &mut error);
            sys::leveldb_iter_destroy(iter);
        }
        check(error)?;
        Ok(seen)
    }

    fn flush(&self) -> Result<()> {
        Err(EngineError::new("LevelDB's C API has no flush"))
    }

    fn wait_idle(&self) -> Result<()> {
        // The C API cannot wait, so its own trigger is evaluated on its statistics. A level may
        // print as full without being due: what does not change for long is idle too.
        let mut last = String::new();
        let mut unchanged = 0;
        wait_until_idle(|| {
            let stats = self.property(c"leveldb.stats").unwrap_or_default();
            unchanged = if stats == last { unchanged + 1 } else { 0 };
            let idle = unchanged > 0 && Self::no_compaction_due(&stats, &self.level_bytes);
            last = stats;
            idle || unchanged > UNCHANGED_IS_IDLE
        });
        Ok(())
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self);
        Ok(())
    }
}

/// Polls without a change after which LevelDB counts as idle whatever its levels say: 2 s, several
/// times the longest compaction of 2 MiB files.
const UNCHANGED_IS_IDLE: u32 = 200;

impl Drop for LevelDb {
    fn drop(&mut self) {
        // SAFETY: invariant 1; the database goes first, then what it used. Null is skipped.
        unsafe {
            if !self.db.is_null() {
                sys::leveldb_close(self.db);
            }
            sys::leveldb_options_destroy(self.options);
            sys::leveldb_readoptions_destroy(self.reads);
            sys::leveldb_writeoptions_destroy(self.buffered);
            sys::leveldb_writeoptions_destroy(self.synced);
            if !self.cache.is_null() {
                sys::leveldb_cache_destroy(self.cache);
            }
            if !self.filter.is_null() {
                sys::leveldb_filterpolicy_destroy(self.filter);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: LevelDB's statistics are read as its compaction rule reads its levels.
    #[test]
    fn statistics_tell_what_is_due() {
        let level_bytes = [0.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6].map(|m| m * 1_048_576.0);
        let due = |levels: &str| {
            let heading = "                               Compactions\n\
                           Level  Files Size(MB) Time(sec) Read(MB) Write(MB)\n\
                           --------------------------------------------------\n";
            !LevelDb::no_compaction_due(&format!("{heading}{levels}"), &level_bytes)
        };
        assert!(!due(""));
        assert!(!due("  0        3       12         0        0        12\n"));
        assert!(due("  0        4       16         0        0        12\n"));
        assert!(!due("  1        5       10         0        0        12\n"));
        assert!(due("  1        6       11         0        0        12\n"));
        assert!(due("  0        1        4         0        0         0\n  2  50  101  0  0  0\n"));
    }
}
