//! What users may give as a range of keys.
//!
//! Not `RangeBounds`: a range of references is a `RangeBounds` of two types, so that `b"a"..b"z"`
//! and `..` would need type annotations.

use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// Bounds that own their keys.
pub(crate) type OwnedBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A range of keys: every form of `a..b` over anything that is bytes, and a pair of
/// [`Bound`]s.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = weir::Db::open(dir.path().join("data"))?;
/// use std::ops::Bound;
/// db.range(b"a"..b"m");
/// db.range("apple"..="banana");
/// db.range(vec![7u8]..);
/// db.range((Bound::Excluded("a"), Bound::<&[u8]>::Unbounded));
/// db.compact_range(..)?;
/// # Ok::<(), weir::Error>(())
/// ```
pub trait KeyRange {
    /// Lower and upper bound.
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>);
}

fn included(key: &impl AsRef<[u8]>) -> Bound<Vec<u8>> {
    Bound::Included(key.as_ref().to_vec())
}

fn excluded(key: &impl AsRef<[u8]>) -> Bound<Vec<u8>> {
    Bound::Excluded(key.as_ref().to_vec())
}

impl KeyRange for RangeFull {
    fn into_bounds(self) -> OwnedBounds {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

impl<K: AsRef<[u8]>> KeyRange for Range<K> {
    fn into_bounds(self) -> OwnedBounds {
        (included(&self.start), excluded(&self.end))
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeInclusive<K> {
    fn into_bounds(self) -> OwnedBounds {
        (included(self.start()), included(self.end()))
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeFrom<K> {
    fn into_bounds(self) -> OwnedBounds {
        (included(&self.start), Bound::Unbounded)
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeTo<K> {
    fn into_bounds(self) -> OwnedBounds {
        (Bound::Unbounded, excluded(&self.end))
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeToInclusive<K> {
    fn into_bounds(self) -> OwnedBounds {
        (Bound::Unbounded, included(&self.end))
    }
}

impl<A: AsRef<[u8]>, B: AsRef<[u8]>> KeyRange for (Bound<A>, Bound<B>) {
    fn into_bounds(self) -> OwnedBounds {
        (self.0.map(|key| key.as_ref().to_vec()), self.1.map(|key| key.as_ref().to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each form of a range has the ends that Rust gives it.
    #[test]
    fn ranges_keep_their_ends() {
        let (a, b) = (vec![b'a'], vec![b'b']);
        let (from, to) = (Bound::Included(a), Bound::Excluded(b.clone()));
        let end = Bound::Included(b);
        let open: Bound<Vec<u8>> = Bound::Unbounded;
        assert_eq!((b"a"..b"b").into_bounds(), (from.clone(), to.clone()));
        assert_eq!(("a"..="b").into_bounds(), (from.clone(), end.clone()));
        assert_eq!((vec![b'a']..).into_bounds(), (from.clone(), open.clone()));
        assert_eq!((..String::from("b")).into_bounds(), (open.clone(), to.clone()));
        assert_eq!((..=b"b").into_bounds(), (open.clone(), end));
        assert_eq!((..).into_bounds(), (open.clone(), open.clone()));
        let pair = (Bound::Included("a"), Bound::Excluded(b"b"));
        assert_eq!(pair.into_bounds(), (from, to));
    }
}
