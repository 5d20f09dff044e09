//! The skiplist inside a memtable: nodes with a key's head in the node, entries beside them.
//!
//! Not here: what a reader may see (`merge::Visible`), when a memtable is full (`state`).
//!
//! ```text
//! node arena    [ head 16 | entry pointer 8 | links 8 x height ]     searched: about 35 bytes a node
//! entry arena   [ seq and kind 8 | key len 4 | value len 4 | key | value ]       one copy, immutable
//! ```
//!
//! Invariants:
//! (1) the nodes reachable by level-i links are in entry order (key ascending, seq descending) and
//!     are a subsequence of those reachable by level-(i-1) links;
//! (2) a node is published bottom-up by a Release CAS after its head, entry and the link of that
//!     level are written; links are read with Acquire; so who reaches a node sees all of it;
//! (3) nothing is removed or changed but links, and a link only ever moves to a smaller node: a
//!     reader without locks sees every entry whose insert happened before its search;
//! (4) `head` is the key's first 16 bytes, padded with zeros: unequal heads decide the order, equal
//!     heads say nothing, and only then the entry is touched;
//! (5) the finger (predecessors of the last insert) is a hint: each of its slots holds some node
//!     that is linked at that level, or the list's head; whoever uses it compares first.
//!
//! Heights come from the insert's ordinal through a fixed mixer, so the same inserts give the same
//! list: no thread's randomness.
//!
//! Source: Pugh, "Skip Lists" (1990); LevelDB `db/skiplist.h`; the finger is RocksDB's `Splice`
//! (`memtable/inlineskiplist.h`). We differ: nodes are apart from entries and carry 16 bytes of key,
//! so that a search stays in a dense array that fits the L3 cache (0.5 M entries: 18 MB).

use std::cmp::Ordering as Order;
use std::mem::size_of;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crate::base::key::{self, Kind, Seq, compare};
use crate::memtable::arena::{ALIGN, Arena};

/// Most levels. With one in four nodes going up a level, 4^12 = 16 M entries keep the top level to
/// about one node.
const HEIGHT_MAX: usize = 12;

/// Steps along one level before a search from the finger gives up and starts from the top.
const FINGER_STEPS_MAX: usize = 4;

#[repr(C)]
struct Entry {
    packed: u64,
    key_bytes: u32,
    value_bytes: u32,
    // The key's bytes and then the value's follow.
}

#[repr(C)]
pub(super) struct Node {
    head: [u64; 2],
    entry: *const Entry,
    links: [AtomicPtr<Node>; 0],
}

const _: () = assert!(size_of::<Entry>() == 16 && size_of::<Node>() == 24);
const _: () = assert!(align_of::<Entry>() <= ALIGN && align_of::<Node>() <= ALIGN);

/// What is searched for: a place between entries.
struct Target<'a> {
    head: u128,
    key: &'a [u8],
    /// Entries of `key` with a larger packed number lie before the place.
    packed: u64,
}

impl<'a> Target<'a> {
    fn new(key: &'a [u8], packed: u64) -> Self {
        Self { head: key::head(key), key, packed }
    }
}

/// An entry of the list, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryRef<'a> {
    pub(super) key: &'a [u8],
    pub(super) packed: u64,
    pub(super) value: &'a [u8],
}

/// The skiplist.
pub(super) struct List {
    head: *const Node,
    /// Levels in use. A reader that sees an old value starts lower and is only slower.
    height: AtomicUsize,
    count: AtomicU64,
    seq_min: AtomicU64,
    seq_max: AtomicU64,
    finger: [AtomicPtr<Node>; HEIGHT_MAX],
    nodes: Arena,
    entries: Arena,
}

// SAFETY: the raw pointers point into the list's own arenas, whose memory is shared as described by
// invariants 2 and 3 and freed with the list.
unsafe impl Send for List {}
// SAFETY: as for Send; all mutation after publication is by atomics.
unsafe impl Sync for List {}

impl List {
    /// An empty list that expects about `bytes_hint` bytes of entries.
    pub(super) fn new(bytes_hint: usize) -> Self {
        let nodes = Arena::new(bytes_hint / 4);
        let head = new_node(&nodes, HEIGHT_MAX, 0, ptr::null());
        Self {
            head,
            height: AtomicUsize::new(1),
            count: AtomicU64::new(0),
            seq_min: AtomicU64::new(u64::MAX),
            seq_max: AtomicU64::new(0),
            finger: std::array::from_fn(|_| AtomicPtr::new(head.cast_mut())),
            nodes,
            entries: Arena::new(bytes_hint),
        }
    }

    /// Entries whose insert has begun.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Smallest and largest sequence number whose insert has begun.
    pub(super) fn seq_range(&self) -> Option<(Seq, Seq)> {
        let min = self.seq_min.load(Ordering::Relaxed);
        let max = self.seq_max.load(Ordering::Relaxed);
        (min <= max).then_some((min, max))
    }

    /// Bytes of nodes and entries.
    #[inline]
    pub(super) fn used_bytes(&self) -> u64 {
        self.nodes.used_bytes() + self.entries.used_bytes()
    }

    /// Bytes that the arenas took from the system's allocator.
    pub(super) fn reserved_bytes(&self) -> u64 {
        self.nodes.reserved_bytes() + self.entries.reserved_bytes()
    }

    /// Adds an entry. Any thread may call it at any time. Requires: no entry with this key and
    /// sequence number is in the list.
    pub(super) fn insert(&self, key: &[u8], seq: Seq, kind: Kind, value: &[u8]) {
        let target = Target::new(key, key::pack(seq, kind));
        let ordinal = self.count.fetch_add(1, Ordering::Relaxed);
        let height = height_of(ordinal);
        let entry = self.new_entry(target.packed, key, value);
        let node = new_node(&self.nodes, height, target.head, entry);
        self.note_seq(seq);
        if height > self.height.load(Ordering::Relaxed) {
            self.height.fetch_max(height, Ordering::Relaxed);
        }
        let mut before = [self.head; HEIGHT_MAX];
        if !self.find_from_finger(&target, height, &mut before) {
            self.find(&target, &mut before);
            for (slot, &node) in self.finger.iter().zip(&before).skip(height) {
                slot.store(node.cast_mut(), Ordering::Release);
            }
        }
        for (level, &before) in before.iter().enumerate().take(height) {
            // SAFETY: `before` came from a search of this list and is linked at `level`; `node` was
            // made above with `height` links.
            unsafe { link(before, node, level, &target) };
        }
        for slot in self.finger.iter().take(height) {
            slot.store(node.cast_mut(), Ordering::Release);
        }
    }

    fn note_seq(&self, seq: Seq) {
        if seq < self.seq_min.load(Ordering::Relaxed) {
            self.seq_min.fetch_min(seq, Ordering::Relaxed);
        }
        if seq > self.seq_max.load(Ordering::Relaxed) {
            self.seq_max.fetch_max(seq, Ordering::Relaxed);
        }
    }

    /// Copies an entry into the arena.
    #[inline]
    fn new_entry(&self, packed: u64, key: &[u8], value: &[u8]) -> *const Entry {
        let key_bytes = u32::try_from(key.len()).expect("keys are checked against KEY_BYTES_MAX");
        let value_bytes = u32::try_from(value.len()).expect("values: VALUE_BYTES_MAX");
        let place = self.entries.allocate(size_of::<Entry>() + key.len() + value.len());
        let entry = place.as_ptr().cast::<Entry>();
        // SAFETY: the arena gave `size_of::<Entry>() + key + value` bytes at `entry`, aligned to
        // ALIGN >= align_of::<Entry>() and not shared with anyone yet; the sources are disjoint.
        unsafe {
            entry.write(Entry { packed, key_bytes, value_bytes });
            let bytes = place.as_ptr().add(size_of::<Entry>());
            ptr::copy_nonoverlapping(key.as_ptr(), bytes, key.len());
            ptr::copy_nonoverlapping(value.as_ptr(), bytes.add(key.len()), value.len());
        }
        entry
    }

    /// The last node before `target` on every level in use. Ensures: `before[i]` is linked at level
    /// i or is the list's head.
    #[inline]
    fn find(&self, target: &Target<'_>, before: &mut [*const Node; HEIGHT_MAX]) {
        let mut at = self.head;
        let mut beyond = ptr::null();
        for level in (0..self.height.load(Ordering::Relaxed)).rev() {
            // SAFETY: `at` is the list's head or was reached by a link of `level` or above.
            (at, beyond) = unsafe { walk(at, beyond, level, target) };
            before[level] = at;
        }
    }

    /// Like [`List::find`] for the lowest `height` levels, cheap when the target lies beside the last
    /// insert; gives up (false) when it does not.
    #[inline]
    fn find_from_finger(
        &self,
        target: &Target<'_>,
        height: usize,
        before: &mut [*const Node; HEIGHT_MAX],
    ) -> bool {
        for level in 0..height {
            let mut at = self.finger[level].load(Ordering::Acquire).cast_const();
            // SAFETY: a finger's node is linked at its level (invariant 5), or is the head, which
            // has no entry and is not compared.
            if at != self.head && !unsafe { is_before(at, target) } {
                return false;
            }
            let mut steps = 0;
            loop {
                // SAFETY: `at` is linked at `level` or is the head.
                let next = unsafe { next_of(at, level) };
                // SAFETY: `next` is a node of this list when it is not null.
                if next.is_null() || !unsafe { is_before(next, target) } {
                    break;
                }
                steps += 1;
                if steps > FINGER_STEPS_MAX {
                    return false;
                }
                at = next;
            }
            before[level] = at;
        }
        true
    }

    /// The first node at or after the target, or null.
    #[inline]
    fn first_from(&self, target: &Target<'_>) -> *const Node {
        let mut at = self.head;
        let mut beyond = ptr::null();
        for level in (0..self.height.load(Ordering::Relaxed)).rev() {
            // SAFETY: `at` is the list's head or was reached by a link of `level` or above.
            (at, beyond) = unsafe { walk(at, beyond, level, target) };
        }
        beyond
    }

    /// The first node at or after `(key, seq)`, or null.
    #[inline]
    pub(super) fn seek(&self, key: &[u8], seq: Seq) -> *const Node {
        self.first_from(&Target::new(key, seq << 8 | 0xff))
    }

    /// The last node at or before `(key, seq)`, or null.
    pub(super) fn seek_for_prev(&self, key: &[u8], seq: Seq) -> *const Node {
        self.last_before(&Target::new(key, seq << 8))
    }

    /// The first node, or null.
    pub(super) fn first(&self) -> *const Node {
        // SAFETY: the head has all links.
        unsafe { next_of(self.head, 0) }
    }

    /// The last node, or null.
    pub(super) fn last(&self) -> *const Node {
        let mut at = self.head;
        for level in (0..self.height.load(Ordering::Relaxed)).rev() {
            loop {
                // SAFETY: `at` is the head or was reached by a link of `level` or above.
                let next = unsafe { next_of(at, level) };
                if next.is_null() {
                    break;
                }
                at = next;
            }
        }
        if at == self.head { ptr::null() } else { at }
    }

    fn last_before(&self, target: &Target<'_>) -> *const Node {
        let mut before = [self.head; HEIGHT_MAX];
        self.find(target, &mut before);
        if before[0] == self.head { ptr::null() } else { before[0] }
    }

    /// The node after `node`, or null.
    ///
    /// # Safety
    /// `node` is a node of this list.
    #[inline]
    pub(super) unsafe fn next(&self, node: *const Node) -> *const Node {
        // SAFETY: every node has a link of level 0.
        unsafe { next_of(node, 0) }
    }

    /// Fills `back` with nodes before `node`, in list order, the nearest one last: at least one if
    /// there is one, about 16 on average.
    ///
    /// # Safety
    /// `node` is a node of this list.
    pub(super) unsafe fn gather_before(&self, node: *const Node, back: &mut Vec<*const Node>) {
        const GATHER_LEVEL: usize = 2;
        const GATHER_MAX: usize = 64;
        back.clear();
        // SAFETY: by contract.
        let entry = unsafe { self.entry(node) };
        let mut before = [self.head; HEIGHT_MAX];
        self.find(&Target::new(entry.key, entry.packed), &mut before);
        let start = before[GATHER_LEVEL];
        let mut at = if start == self.head { self.first() } else { start };
        while !at.is_null() && at != node {
            if back.len() == GATHER_MAX {
                back.drain(..GATHER_MAX / 2);
            }
            back.push(at);
            // SAFETY: `at` was reached by links of this list.
            at = unsafe { next_of(at, 0) };
        }
    }

    /// The entry of `node`.
    ///
    /// # Safety
    /// `node` is a node of this list.
    #[inline]
    pub(super) unsafe fn entry(&self, node: *const Node) -> EntryRef<'_> {
        // SAFETY: a node of the list (not its head) has a complete, immutable entry that lives as
        // long as the list's arena, which outlives the borrow of `self`.
        unsafe { read_entry((*node).entry) }
    }

    /// The newest entry of `key` whose sequence number is at most `snapshot`.
    #[inline]
    pub(super) fn get(&self, key: &[u8], snapshot: Seq) -> Option<EntryRef<'_>> {
        let target = Target::new(key, snapshot << 8 | 0xff);
        let node = self.first_from(&target);
        // SAFETY: the search gave a node of this list.
        if node.is_null() || unsafe { head_of(node) } != target.head {
            return None;
        }
        // SAFETY: as above.
        let entry = unsafe { self.entry(node) };
        (entry.key == key).then_some(entry)
    }
}

/// Number of levels of the `ordinal`-th node: one node in four goes up a level.
#[inline]
fn height_of(ordinal: u64) -> usize {
    // SplitMix64's finalizer: every bit of the result depends on every bit of the ordinal.
    let mut z = ordinal.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    (1 + z.trailing_zeros() as usize / 2).min(HEIGHT_MAX)
}

/// A node with `height` null links, not yet linked.
#[inline]
fn new_node(nodes: &Arena, height: usize, head: u128, entry: *const Entry) -> *const Node {
    let place = nodes.allocate(size_of::<Node>() + height * size_of::<AtomicPtr<Node>>());
    let node = place.as_ptr().cast::<Node>();
    // SAFETY: the arena gave room for a node and `height` links, aligned to ALIGN and not shared
    // with anyone yet; `links` starts where the node's fixed part ends.
    unsafe {
        node.write(Node { head: [(head >> 64) as u64, head as u64], entry, links: [] });
        let links = place.as_ptr().add(size_of::<Node>()).cast::<AtomicPtr<Node>>();
        for level in 0..height {
            links.add(level).write(AtomicPtr::new(ptr::null_mut()));
        }
    }
    node
}

/// The link of `level`.
///
/// # Safety
/// `node` is alive for `'a` and has more than `level` links.
#[inline(always)]
unsafe fn link_of<'a>(node: *const Node, level: usize) -> &'a AtomicPtr<Node> {
    // SAFETY: the links follow the fixed part in the same allocation, and there are enough of them.
    unsafe { &*node.byte_add(size_of::<Node>()).cast::<AtomicPtr<Node>>().add(level) }
}

/// The node after `node` on `level`, or null.
///
/// # Safety
/// `node` is alive and has more than `level` links.
#[inline(always)]
unsafe fn next_of(node: *const Node, level: usize) -> *const Node {
    // SAFETY: by contract.
    unsafe { link_of(node, level) }.load(Ordering::Acquire)
}

/// The first 16 bytes of the node's key.
///
/// # Safety
/// `node` is alive.
#[inline(always)]
unsafe fn head_of(node: *const Node) -> u128 {
    // SAFETY: by contract; the head is never written after the node was published.
    let [high, low] = unsafe { (*node).head };
    u128::from(high) << 64 | u128::from(low)
}

/// Whether the node's entry lies before the target.
///
/// # Safety
/// `node` is a published node, not the list's head.
#[inline(always)]
unsafe fn is_before(node: *const Node, target: &Target<'_>) -> bool {
    // SAFETY: by contract.
    let head = unsafe { head_of(node) };
    if head != target.head {
        return head < target.head;
    }
    // SAFETY: by contract.
    unsafe { is_before_slow(node, target) }
}

/// [`is_before`] for a node whose head equals the target's.
///
/// # Safety
/// As for [`is_before`].
unsafe fn is_before_slow(node: *const Node, target: &Target<'_>) -> bool {
    // SAFETY: a published node has a complete entry.
    let entry = unsafe { read_entry((*node).entry) };
    match compare(entry.key, target.key) {
        Order::Less => true,
        Order::Equal => entry.packed > target.packed,
        Order::Greater => false,
    }
}

/// The entry at `entry`.
///
/// # Safety
/// `entry` was made by `List::new_entry` and its arena outlives `'a`.
#[inline(always)]
unsafe fn read_entry<'a>(entry: *const Entry) -> EntryRef<'a> {
    // SAFETY: `new_entry` wrote the header, the key and the value into one allocation, in this
    // order, and nobody writes to it again.
    unsafe {
        let Entry { packed, key_bytes, value_bytes } = entry.read();
        let bytes = entry.cast::<u8>().add(size_of::<Entry>());
        let key = std::slice::from_raw_parts(bytes, key_bytes as usize);
        let value = std::slice::from_raw_parts(bytes.add(key_bytes as usize), value_bytes as usize);
        EntryRef { key, packed, value }
    }
}

/// Walks along `level` from `at` to the last node before the target: that node and the one after it.
/// `beyond` is a node known to be at or after the target, or null: it is not compared again.
///
/// # Safety
/// `at` is before the target or the list's head, and has more than `level` links.
#[inline(always)]
unsafe fn walk(
    mut at: *const Node,
    beyond: *const Node,
    level: usize,
    target: &Target<'_>,
) -> (*const Node, *const Node) {
    loop {
        // SAFETY: `at` has more than `level` links: by contract, or because it was reached by one.
        let next = unsafe { next_of(at, level) };
        // SAFETY: `next` is a published node when it is neither null nor `beyond`.
        if next.is_null() || next == beyond || !unsafe { is_before(next, target) } {
            return (at, next);
        }
        at = next;
    }
}

/// Publishes `node` on `level` behind `before` or, if others were faster, behind a later node.
///
/// # Safety
/// `before` is before the target or the list's head, and has more than `level` links; so has `node`,
/// which is the target's and is linked on all lower levels.
#[inline]
unsafe fn link(mut before: *const Node, node: *const Node, level: usize, target: &Target<'_>) {
    loop {
        // SAFETY: `before` as by contract, or moved on by an earlier walk along this level.
        let (at, next) = unsafe { walk(before, ptr::null(), level, target) };
        // SAFETY: `node` has more than `level` links.
        unsafe { link_of(node, level) }.store(next.cast_mut(), Ordering::Relaxed);
        // SAFETY: `at` has more than `level` links.
        let place = unsafe { link_of(at, level) };
        let (old, new) = (next.cast_mut(), node.cast_mut());
        if place.compare_exchange(old, new, Ordering::Release, Ordering::Relaxed).is_ok() {
            return;
        }
        before = at;
    }
}
