//! Sites of device requests: the kind of request and the class of the file. Only counters and fault
//! plans depend on them.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::device::FileClass;

/// A kind of request to a [`Dir`](crate::device::Dir) or a [`File`](crate::device::File).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum OpKind {
    /// `Dir::create`.
    Create = 0,
    /// `Dir::open`.
    Open,
    /// `Dir::rename`; counted for the new name.
    Rename,
    /// `Dir::unlink`.
    Unlink,
    /// `Dir::list`.
    List,
    /// `Dir::sync`.
    SyncDir,
    /// `Dir::lock`.
    Lock,
    /// `File::read_at`.
    Read,
    /// `File::write_at` and `File::write_parts_at`.
    Write,
    /// `File::sync`.
    Sync,
    /// `File::write_back`.
    WriteBack,
    /// `File::len`.
    Len,
    /// `File::allocate`.
    Allocate,
    /// `File::set_len`.
    SetLen,
    /// `File::discard`.
    Discard,
}

impl OpKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 15] = [
        Self::Create,
        Self::Open,
        Self::Rename,
        Self::Unlink,
        Self::List,
        Self::SyncDir,
        Self::Lock,
        Self::Read,
        Self::Write,
        Self::Sync,
        Self::WriteBack,
        Self::Len,
        Self::Allocate,
        Self::SetLen,
        Self::Discard,
    ];
}

/// A kind of request to a class of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    /// The kind of request.
    pub op: OpKind,
    /// The class of its file.
    pub class: FileClass,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} x {:?}", self.op, self.class)
    }
}

/// The requests at one site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteCount {
    /// The site.
    pub site: Site,
    /// Requests.
    pub calls: u64,
    /// Bytes read or written; 0 for requests without data.
    pub bytes: u64,
}

#[derive(Debug, Default)]
struct Count {
    calls: AtomicU64,
    bytes: AtomicU64,
}

/// Counters per site. Relaxed: each is exact, but they are not read at one instant.
#[derive(Debug, Default)]
pub struct SiteCounters {
    counts: [[Count; OpKind::ALL.len()]; FileClass::ALL.len()],
}

impl SiteCounters {
    /// Counts one request with `bytes` of data; returns the number of earlier ones at this site.
    pub(crate) fn count(&self, op: OpKind, class: FileClass, bytes: usize) -> u64 {
        let count = &self.counts[class as usize][op as usize];
        if bytes > 0 {
            count.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        count.calls.fetch_add(1, Ordering::Relaxed)
    }

    /// Requests and bytes at one site.
    #[must_use]
    pub fn get(&self, op: OpKind, class: FileClass) -> SiteCount {
        let count = &self.counts[class as usize][op as usize];
        SiteCount {
            site: Site { op, class },
            calls: count.calls.load(Ordering::Relaxed),
            bytes: count.bytes.load(Ordering::Relaxed),
        }
    }

    /// All sites with at least one request, in the order of class and kind.
    #[must_use]
    pub fn sites(&self) -> Vec<SiteCount> {
        let all = FileClass::ALL
            .into_iter()
            .flat_map(|class| OpKind::ALL.into_iter().map(move |op| self.get(op, class)));
        all.filter(|count| count.calls > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_and_numbers() {
        use FileClass::Wal;
        assert!(OpKind::ALL.iter().enumerate().all(|(i, &op)| op as usize == i));
        assert!(FileClass::ALL.iter().enumerate().all(|(i, &class)| class as usize == i));
        let counters = SiteCounters::default();
        assert_eq!(counters.count(OpKind::Write, Wal, 10), 0);
        assert_eq!(counters.count(OpKind::Write, Wal, 5), 1);
        let site = Site { op: OpKind::Write, class: Wal };
        assert_eq!(counters.sites(), [SiteCount { site, calls: 2, bytes: 15 }]);
    }
}
