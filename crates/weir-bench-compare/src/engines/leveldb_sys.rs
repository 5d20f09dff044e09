//! LevelDB's C API, as far as the adapter needs it: declarations after leveldb/c.h of version 1.23.
//!
//! Not here: ownership and lifetimes, which are the adapter's (`leveldb.rs`).

use std::ffi::{c_char, c_int, c_uchar};
use std::marker::{PhantomData, PhantomPinned};

/// Declares types that exist only behind pointers.
macro_rules! opaque {
    ($($name:ident)*) => {
        $(
            #[repr(C)]
            pub struct $name {
                _bytes: [u8; 0],
                _marker: PhantomData<(*mut u8, PhantomPinned)>,
            }
        )*
    };
}

opaque!(Db Cache FilterPolicy Iter Options ReadOptions WriteBatch WriteOptions);

/// `leveldb_no_compression`.
pub const NO_COMPRESSION: c_int = 0;

unsafe extern "C" {
    pub fn leveldb_open(
        options: *const Options,
        name: *const c_char,
        error: *mut *mut c_char,
    ) -> *mut Db;
    pub fn leveldb_close(db: *mut Db);
    pub fn leveldb_put(
        db: *mut Db,
        options: *const WriteOptions,
        key: *const c_char,
        key_bytes: usize,
        value: *const c_char,
        value_bytes: usize,
        error: *mut *mut c_char,
    );
    pub fn leveldb_delete(
        db: *mut Db,
        options: *const WriteOptions,
        key: *const c_char,
        key_bytes: usize,
        error: *mut *mut c_char,
    );
    pub fn leveldb_write(
        db: *mut Db,
        options: *const WriteOptions,
        batch: *mut WriteBatch,
        error: *mut *mut c_char,
    );
    pub fn leveldb_get(
        db: *mut Db,
        options: *const ReadOptions,
        key: *const c_char,
        key_bytes: usize,
        value_bytes: *mut usize,
        error: *mut *mut c_char,
    ) -> *mut c_char;
    pub fn leveldb_property_value(db: *mut Db, name: *const c_char) -> *mut c_char;

    pub fn leveldb_create_iterator(db: *mut Db, options: *const ReadOptions) -> *mut Iter;
    pub fn leveldb_iter_destroy(iter: *mut Iter);
    pub fn leveldb_iter_valid(iter: *const Iter) -> c_uchar;
    pub fn leveldb_iter_seek(iter: *mut Iter, key: *const c_char, key_bytes: usize);
    pub fn leveldb_iter_next(iter: *mut Iter);
    pub fn leveldb_iter_key(iter: *const Iter, bytes: *mut usize) -> *const c_char;
    pub fn leveldb_iter_value(iter: *const Iter, bytes: *mut usize) -> *const c_char;
    pub fn leveldb_iter_get_error(iter: *const Iter, error: *mut *mut c_char);

    pub fn leveldb_writebatch_create() -> *mut WriteBatch;
    pub fn leveldb_writebatch_destroy(batch: *mut WriteBatch);
    pub fn leveldb_writebatch_put(
        batch: *mut WriteBatch,
        key: *const c_char,
        key_bytes: usize,
        value: *const c_char,
        value_bytes: usize,
    );

    pub fn leveldb_options_create() -> *mut Options;
    pub fn leveldb_options_destroy(options: *mut Options);
    pub fn leveldb_options_set_create_if_missing(options: *mut Options, on: c_uchar);
    pub fn leveldb_options_set_write_buffer_size(options: *mut Options, bytes: usize);
    pub fn leveldb_options_set_max_file_size(options: *mut Options, bytes: usize);
    pub fn leveldb_options_set_block_size(options: *mut Options, bytes: usize);
    pub fn leveldb_options_set_cache(options: *mut Options, cache: *mut Cache);
    pub fn leveldb_options_set_filter_policy(options: *mut Options, policy: *mut FilterPolicy);
    pub fn leveldb_options_set_compression(options: *mut Options, kind: c_int);
    pub fn leveldb_cache_create_lru(bytes: usize) -> *mut Cache;
    pub fn leveldb_cache_destroy(cache: *mut Cache);
    pub fn leveldb_filterpolicy_create_bloom(bits_per_key: c_int) -> *mut FilterPolicy;
    pub fn leveldb_filterpolicy_destroy(policy: *mut FilterPolicy);

    pub fn leveldb_readoptions_create() -> *mut ReadOptions;
    pub fn leveldb_readoptions_destroy(options: *mut ReadOptions);
    pub fn leveldb_readoptions_set_verify_checksums(options: *mut ReadOptions, on: c_uchar);
    pub fn leveldb_writeoptions_create() -> *mut WriteOptions;
    pub fn leveldb_writeoptions_destroy(options: *mut WriteOptions);
    pub fn leveldb_writeoptions_set_sync(options: *mut WriteOptions, on: c_uchar);

    pub fn leveldb_free(pointer: *mut u8);
    pub fn leveldb_major_version() -> c_int;
    pub fn leveldb_minor_version() -> c_int;
}
