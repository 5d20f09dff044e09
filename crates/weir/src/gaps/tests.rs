//! What is watched, proven, cut and forgotten.

use super::*;

struct Setup {
    gaps: Gaps,
    commits: Commits,
}

impl Setup {
    fn after(published: Seq) -> Self {
        Self { gaps: Gaps::default(), commits: Commits::after(published) }
    }

    fn leaps(&self) -> Leaps<'_> {
        Leaps { gaps: &self.gaps, commits: &self.commits, entries: 1 }
    }

    /// Number of ranges.
    fn count(&self) -> u64 {
        self.gaps.count.load(Ordering::SeqCst)
    }

    fn around(&self, key: &[u8], snapshot: Seq) -> Option<(Vec<u8>, Vec<u8>)> {
        self.leaps().around(key, snapshot)
    }

    /// A commit that puts one key.
    fn put(&self, key: &[u8], seq: Seq) {
        self.commits.begin();
        if self.gaps.are_any() {
            self.gaps.cut([key].into_iter());
        }
        self.commits.end(seq);
    }
}

fn range(from: &[u8], to: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    Some((from.to_vec(), to.to_vec()))
}

/// Goal: a range is proven by the second scan that sees nothing, and only if that scan's snapshot
/// has all that was written unwatched; who reads an older state does not leap.
#[test]
fn the_second_look_proves() {
    let setup = Setup::after(10);
    setup.leaps().note((b"b", b"f"), 10, false);
    assert_eq!(setup.around(b"c", 20), None, "watched only");
    setup.leaps().note((b"a", b"g"), 9, false);
    assert_eq!(setup.around(b"c", 20), None, "seen by an older state");
    setup.leaps().note((b"a", b"g"), 12, false);
    assert_eq!(setup.around(b"c", 12), range(b"b", b"f"));
    assert_eq!(setup.around(b"c", 11), None, "an older reader");
    assert_eq!((setup.around(b"a", 20), setup.around(b"f", 20)), (None, None), "outside");
    assert_eq!(setup.gaps.leaps(), 1);
}

/// Goal: a put ends what is watched around it, and leaves of what is proven the parts beside it.
#[test]
fn a_put_ends_it() {
    let setup = Setup::after(10);
    setup.leaps().note((b"b", b"f"), 10, false);
    setup.put(b"c", 11);
    setup.leaps().note((b"b", b"f"), 12, false);
    assert_eq!(setup.around(b"d", 20), None, "the put ended the watch");
    setup.leaps().note((b"b", b"f"), 12, false);
    assert_eq!(setup.around(b"d", 20), range(b"b", b"f"), "which began again");
    setup.put(b"d", 13);
    assert_eq!(setup.around(b"d", 20), None);
    assert_eq!(setup.around(b"c", 20), range(b"b", b"d"));
    assert_eq!(setup.around(b"e", 20), range(b"d\0", b"f"));
    setup.put(b"b", 14);
    assert_eq!(setup.around(b"b\0", 20), range(b"b\0", b"d"));
    setup.put(b"z", 15);
    assert!(setup.gaps.are_any());
}

/// Goal: what is seen while a commit is under way is not watched: that commit may not have looked.
#[test]
fn nothing_is_watched_beside_a_commit() {
    let setup = Setup::after(10);
    setup.commits.begin();
    setup.leaps().note((b"b", b"f"), 10, false);
    assert!(!setup.gaps.are_any());
    setup.commits.end(11);
    setup.leaps().note((b"b", b"f"), 11, false);
    setup.leaps().note((b"b", b"f"), 11, false);
    assert_eq!(setup.around(b"b", 11), range(b"b", b"f"));
}

/// Goal: ranges that touch become one, at the newer of their states.
#[test]
fn neighbours_are_joined() {
    let setup = Setup::after(10);
    let prove = |from: &[u8], to: &[u8], snapshot| {
        setup.leaps().note((from, to), 10, false);
        setup.leaps().note((from, to), snapshot, false);
    };
    prove(b"b", b"d", 11);
    prove(b"f", b"h", 12);
    assert_eq!(setup.around(b"b", 20), range(b"b", b"d"));
    prove(b"d", b"f", 10);
    assert_eq!(setup.around(b"g", 12), range(b"b", b"h"));
    assert_eq!(setup.around(b"b", 11), None);
}

/// Goal: only some are remembered, of short keys, and not forever.
#[test]
fn what_is_remembered_is_bounded() {
    let setup = Setup::after(10);
    let long = vec![b'a'; KEY_BYTES_MAX + 1];
    setup.leaps().note((&long, b"b"), 10, false);
    setup.leaps().note((b"b", b"b"), 10, false);
    assert!(!setup.gaps.are_any());
    for n in 0..100u8 {
        for _ in 0..2 {
            setup.leaps().note((&[n, 1], &[n, 2]), 10, false);
        }
    }
    assert!(setup.count() <= 2 * RANGES_MAX as u64);
    assert_eq!(setup.around(&[99, 1], 10), range(&[99, 1], &[99, 2]));
    assert_eq!(setup.around(&[1, 1], 10), None, "the oldest go first");
    for _ in 0..IDLE_FREEZES_MAX {
        setup.gaps.age();
        assert!(setup.around(&[99, 1], 10).is_some(), "it is used");
    }
    assert!(setup.count() > 1);
    setup.gaps.age();
    assert_eq!(setup.count(), 1, "the others are not");
}

/// Goal: a long key that is put does not become the bound of a range.
#[test]
fn a_long_key_is_no_bound() {
    let setup = Setup::after(10);
    for _ in 0..2 {
        setup.leaps().note((b"a", b"c"), 10, false);
    }
    setup.put(&vec![b'b'; 60_000], 11);
    assert_eq!((setup.around(b"a", 20), setup.around(b"bz", 20)), (None, None));
    assert!(!setup.gaps.are_any());
}

/// Goal: what is proven is not watched again, nor what holds entries that are too new for the scan.
#[test]
fn what_need_not_be_watched_is_not() {
    let setup = Setup::after(10);
    setup.leaps().note((b"a", b"c"), 10, true);
    assert!(!setup.gaps.are_any());
    for _ in 0..2 {
        setup.leaps().note((b"a", b"c"), 10, false);
    }
    for _ in 0..3 {
        setup.leaps().note((b"a\0", b"b"), 11, false);
        assert_eq!(setup.count(), 1);
    }
}

/// Goal: of too many ranges the ones go that nobody leaps over.
#[test]
fn what_is_used_stays() {
    let setup = Setup::after(10);
    let prove = |n: u8| {
        for _ in 0..2 {
            setup.leaps().note((&[n, 1], &[n, 2]), 10, false);
        }
    };
    prove(0);
    for n in 1..100 {
        prove(n);
        setup.gaps.age();
        assert!(setup.around(&[0, 1], 10).is_some(), "after {n} others");
    }
}
