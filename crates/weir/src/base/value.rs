//! A value as the engine returns it: a reference-counted slice of a block, or bytes of its own.
//!
//! Invariant: a [`Value`] keeps the whole block that it points into alive, after the block's
//! eviction from the cache and the deletion of its table too (H32).

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::base::buf::Buf;
use crate::base::memory::{Accountant, Category, Charge};

/// A value read from the store: dereferences to its bytes.
///
/// Cloning is cheap. A value may share memory with a cached block and keep that block alive: to
/// hold many values for long, copy them with `to_vec`.
#[derive(Clone)]
pub struct Value(Repr);

#[derive(Clone)]
enum Repr {
    /// INVARIANT: `start + len` is within the buffer.
    Shared {
        buf: Buf,
        start: u32,
        len: u32,
    },
    /// A slice of a block that is charged to the memory budget.
    Pinned(Arc<Pin>),
    Owned(Box<[u8]>),
}

struct Pin {
    slice: Value,
    _charge: Charge,
}

/// Values below this size are copied out of their block: the copy costs no more than the
/// bookkeeping of a pin, and keeps a block of 4 KiB from being held for a few bytes.
const PIN_BYTES_MIN: usize = 4 << 10;

/// Pinned values together may hold the memory budget divided by this (ARCHITECTURE §10).
const PIN_BUDGET_DIVISOR: u64 = 8;

impl Value {
    /// The slice `[start, start + len)` of a block. Requires: the range lies within `buf`; values
    /// are at most `limits::VALUE_BYTES_MAX`, and a block that holds one fits 32 bits.
    ///
    /// # Panics
    /// If the range is outside: a caller's bug, never disk content.
    #[inline]
    pub(crate) fn shared(buf: Buf, start: usize, len: usize) -> Self {
        assert!(
            start
                .checked_add(len)
                .is_some_and(|end| end <= buf.bytes().len() && end <= u32::MAX as usize),
            "value at {start} of {len} bytes exceeds its block of {} bytes",
            buf.bytes().len()
        );
        Self(Repr::Shared { buf, start: start as u32, len: len as u32 })
    }

    /// The value in a form that may be kept for long: a small one is copied, a large one pins its
    /// block and is charged for it, unless pinned values hold their share of the budget already.
    pub(crate) fn keep(self, accountant: &Arc<Accountant>) -> Self {
        let Repr::Shared { buf, len, .. } = &self.0 else { return self };
        let block_bytes = buf.memory_bytes() as u64;
        let limit = accountant.budget_bytes() / PIN_BUDGET_DIVISOR;
        let small = (*len as usize) < PIN_BYTES_MIN || u64::from(*len) * 2 < block_bytes;
        if small || accountant.used(Category::Pinned) + block_bytes > limit {
            return Self::from(self.as_bytes());
        }
        let charge = accountant.charge(Category::Pinned, block_bytes);
        Self(Repr::Pinned(Arc::new(Pin { slice: self, _charge: charge })))
    }

    /// The bytes of the value.
    #[must_use]
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Shared { buf, start, len } => {
                &buf.bytes()[*start as usize..*start as usize + *len as usize]
            }
            Repr::Pinned(pin) => pin.slice.as_bytes(),
            Repr::Owned(bytes) => bytes,
        }
    }

    /// The bytes as a vector; copies them unless the value owns them.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Repr::Owned(bytes) => bytes.into_vec(),
            Repr::Shared { .. } | Repr::Pinned(_) => self.as_bytes().to_vec(),
        }
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self(Repr::Owned(bytes.into()))
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Repr::Owned(bytes.into_boxed_slice()))
    }
}

impl From<Value> for Vec<u8> {
    fn from(value: Value) -> Self {
        value.into_vec()
    }
}

impl Default for Value {
    fn default() -> Self {
        Self(Repr::Owned(Box::default()))
    }
}

impl Deref for Value {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl AsRef<[u8]> for Value {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl std::borrow::Borrow<[u8]> for Value {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&crate::base::key::Printable(self.as_bytes()), f)
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Value {}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl std::hash::Hash for Value {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl PartialEq<[u8]> for Value {
    fn eq(&self, other: &[u8]) -> bool {
        self.as_bytes() == other
    }
}

impl PartialEq<&[u8]> for Value {
    fn eq(&self, other: &&[u8]) -> bool {
        self.as_bytes() == *other
    }
}

impl<const N: usize> PartialEq<[u8; N]> for Value {
    fn eq(&self, other: &[u8; N]) -> bool {
        self.as_bytes() == other
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for Value {
    fn eq(&self, other: &&[u8; N]) -> bool {
        self.as_bytes() == *other
    }
}

impl PartialEq<Vec<u8>> for Value {
    fn eq(&self, other: &Vec<u8>) -> bool {
        self.as_bytes() == other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value is three words in every form, and the forms compare by their bytes.
    #[test]
    fn values_compare_by_bytes() {
        assert_eq!(size_of::<Value>(), 24);
        let buf = Buf::from(&b"hello world"[..]);
        let shared = Value::shared(buf.clone(), 6, 5);
        let owned = Value::from(&b"world"[..]);
        assert_eq!(shared, owned);
        assert_eq!(shared, b"world");
        assert_eq!(format!("{shared:?}"), "\"world\"");
        drop(buf);
        assert_eq!(shared.clone().into_vec(), b"world");
        assert_eq!(Value::shared(Buf::unfilled(0), 0, 0), Value::default());
    }

    #[test]
    #[should_panic(expected = "exceeds its block")]
    fn a_range_outside_its_block_is_a_bug() {
        let _ = Value::shared(Buf::unfilled(4), 2, 3);
    }
}
