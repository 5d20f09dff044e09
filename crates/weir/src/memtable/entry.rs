//! Entries as they lie in the arena, and positions between them.
//!
//! Not here: how an entry is found (`index`, `list`).
//!
//! ```text
//! [ seq and kind 8 | next entry 8 | key length 4 | value length 4 | key | value ]      one copy
//! ```
//!
//! Invariant: an entry is complete before its address is published, and nothing but `next` is
//! written after that.

use std::cmp::Ordering as Order;
use std::mem::size_of;
use std::ptr;

use crate::base::atomic::AtomicPtr;
use crate::base::key::{compare, prefix};
use crate::memtable::arena::Arena;

#[repr(C)]
pub(super) struct Entry {
    packed: u64,
    pub(super) next: AtomicPtr<Entry>,
    key_bytes: u32,
    value_bytes: u32,
    // The key's bytes and then the value's follow.
}

pub(super) const ENTRY_ALIGN: usize = 8;
const HEADER_BYTES: usize = size_of::<Entry>();
const _: () = assert!(HEADER_BYTES == 24 && align_of::<Entry>() <= ENTRY_ALIGN);

/// An entry, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryRef<'a> {
    pub(super) key: &'a [u8],
    /// Sequence number and kind (`base::key::pack`).
    pub(super) packed: u64,
    pub(super) value: &'a [u8],
}

/// A position between entries: all versions of smaller keys, and those of `key` with a larger
/// packed number, lie before it.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) key: &'a [u8],
    pub(super) packed: u64,
}

impl Target<'_> {
    /// The 8 bytes of the key after the first `skip`.
    #[inline]
    pub(super) fn head(&self, skip: usize) -> u64 {
        head_after(self.key, skip)
    }
}

/// The 8 bytes of `key` after the first `skip`, as a big-endian number padded with zeros.
#[inline]
pub(super) fn head_after(key: &[u8], skip: usize) -> u64 {
    let rest = key.get(skip..).unwrap_or_default();
    if rest.len() >= 8 || key.len() < 8 {
        return prefix(rest);
    }
    match key.last_chunk::<8>() {
        // The last 8 bytes, those before `rest` shifted out: cheaper than a short copy.
        Some(last) if !rest.is_empty() => u64::from_be_bytes(*last) << (8 * (8 - rest.len())),
        _ => 0,
    }
}

/// Copies an entry into the arena. Its `next` is null.
#[inline]
pub(super) fn new_entry(
    arena: &Arena<ENTRY_ALIGN>,
    packed: u64,
    key: &[u8],
    value: &[u8],
) -> *const Entry {
    let key_bytes = u32::try_from(key.len()).expect("the caller keeps to KEY_BYTES_MAX");
    let value_bytes = u32::try_from(value.len()).expect("the caller keeps to VALUE_BYTES_MAX");
    let place = arena.allocate(HEADER_BYTES + key.len() + value.len());
    let entry = place.as_ptr().cast::<Entry>();
    // SAFETY: the arena gave room for the header, the key and the value at `place`, aligned for an
    // Entry and not shared with anyone yet; the sources are borrowed and so lie elsewhere.
    unsafe {
        let next = AtomicPtr::new(ptr::null_mut());
        entry.write(Entry { packed, next, key_bytes, value_bytes });
        let bytes = place.as_ptr().add(HEADER_BYTES);
        ptr::copy_nonoverlapping(key.as_ptr(), bytes, key.len());
        ptr::copy_nonoverlapping(value.as_ptr(), bytes.add(key.len()), value.len());
    }
    entry
}

/// The entry's fields.
///
/// # Safety
/// `entry` was made by [`new_entry`], its address was taken with Acquire, and its arena outlives
/// `'a`.
#[inline(always)]
pub(super) unsafe fn read<'a>(entry: *const Entry) -> EntryRef<'a> {
    // SAFETY: `new_entry` wrote header, key and value into one allocation in this order, and these
    // parts are never written again.
    unsafe {
        let (key_bytes, value_bytes) = ((*entry).key_bytes as usize, (*entry).value_bytes as usize);
        let bytes = entry.cast::<u8>().add(HEADER_BYTES);
        let key = std::slice::from_raw_parts(bytes, key_bytes);
        let value = std::slice::from_raw_parts(bytes.add(key_bytes), value_bytes);
        EntryRef { key, packed: (*entry).packed, value }
    }
}

/// Whether the entry lies before the target.
///
/// # Safety
/// As for [`read`].
#[inline(always)]
pub(super) unsafe fn is_before(entry: *const Entry, target: &Target<'_>) -> bool {
    // SAFETY: by contract.
    let entry = unsafe { read(entry) };
    match compare(entry.key, target.key) {
        Order::Less => true,
        Order::Equal => entry.packed > target.packed,
        Order::Greater => false,
    }
}
