//! Requests past the page cache that let go of their file while the device works (io_uring).
//!
//! ext4 and XFS hold the lock of an inode for as long as a direct `pread` or `pwrite` takes, and a
//! write through the page cache, as of the write-ahead log in the same file, waits for all of them.
//! A request that is given to the kernel and waited for apart holds it until the device has it. So
//! in a file each direct request goes through a ring of its thread, one at a time. A block device
//! has no such lock. Not here: alignment (`device::direct`), reading ahead and writing behind
//! (`storage::slots`).
//!
//! Invariants: (1) a call returns when the kernel is through with its memory, whatever fails; (2)
//! where there is no ring, because the kernel is older than 5.6 or does not let this process have
//! one (a container may not), or where an error may be the ring's and not the device's, [`None`] is
//! returned and nothing has happened that the same plain request does not do again; (3) a fork does
//! not use the ring of its parent.
//!
//! Costs: a descriptor and two pages for each thread that has read or written a table past the page
//! cache, until it ends.
//!
//! Source: measured: puts that are not synced into a store in one file of ext4
//! (docs/benchmarks.md).

use std::cell::RefCell;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::Errno;

use crate::base::process::ProcessMark;

/// What a thread has.
enum Ring {
    Unasked,
    Refused,
    Of(Box<IoUring>, ProcessMark),
}

thread_local! {
    static RING: RefCell<Ring> = const { RefCell::new(Ring::Unasked) };
}

/// Errors by which a ring may mean that it could not: a plain request waits, or says itself why
/// not.
const OF_THE_RING: [Errno; 9] = [
    Errno::ACCESS,
    Errno::AGAIN,
    Errno::CANCELED,
    Errno::INTR,
    Errno::INVAL,
    Errno::NOBUFS,
    Errno::NOMEM,
    Errno::OPNOTSUPP,
    Errno::PERM,
];

type Transferred = Option<std::result::Result<usize, Errno>>;

/// Reads into `buf` at `offset`, as `pread` does.
pub(super) fn read_at(fd: BorrowedFd<'_>, buf: &mut [u8], offset: u64) -> Transferred {
    let bytes = u32::try_from(buf.len()).ok()?;
    let entry = opcode::Read::new(types::Fd(fd.as_raw_fd()), buf.as_mut_ptr(), bytes);
    // SAFETY: `buf` is borrowed exclusively, and `fd` is open, until this returns.
    unsafe { transfer(&entry.offset(offset).build()) }
}

/// Writes `buf` at `offset`, as `pwrite` does.
pub(super) fn write_at(fd: BorrowedFd<'_>, buf: &[u8], offset: u64) -> Transferred {
    let bytes = u32::try_from(buf.len()).ok()?;
    let entry = opcode::Write::new(types::Fd(fd.as_raw_fd()), buf.as_ptr(), bytes);
    // SAFETY: `buf` is borrowed, and `fd` is open, until this returns.
    unsafe { transfer(&entry.offset(offset).build()) }
}

/// Gives the kernel a request and waits for it.
///
/// # Safety
/// Its memory and its descriptor stay valid until this returns.
unsafe fn transfer(entry: &squeue::Entry) -> Transferred {
    // A thread that ends has none any more.
    let done = RING.try_with(|ring| {
        let mut ring = ring.try_borrow_mut().ok()?;
        if matches!(&*ring, Ring::Unasked) {
            *ring = new_ring()
                .map_or(Ring::Refused, |new| Ring::Of(Box::new(new), ProcessMark::current()));
        }
        let Ring::Of(uring, mark) = &mut *ring else { return None };
        if !mark.is_current() {
            // Shared with the parent: neither used nor unmapped by us.
            std::mem::forget(std::mem::replace(&mut *ring, Ring::Unasked));
            return None;
        }
        // SAFETY: the caller's promise; this waits for its completion below.
        if unsafe { uring.submission().push(entry) }.is_err() {
            return None;
        }
        loop {
            let waited = uring.submit_and_wait(1);
            if let Some(done) = uring.completion().next() {
                let code = done.result();
                return match usize::try_from(code) {
                    Ok(bytes) => Some(Ok(bytes)),
                    Err(_) => Some(Errno::from_raw_os_error(-code))
                        .filter(|errno| !OF_THE_RING.contains(errno))
                        .map(Err),
                };
            }
            if waited.is_err() && !uring.submission().is_empty() {
                // The kernel has not seen it. Closed, the ring is forgotten with it.
                *ring = Ring::Refused;
                return None;
            }
            // It has it: whatever the wait says, the memory is in use.
        }
    });
    done.ok().flatten()
}

fn new_ring() -> Option<IoUring> {
    let cheap = || IoUring::builder().setup_single_issuer().setup_coop_taskrun().build(2);
    cheap().or_else(|_| IoUring::new(2)).ok()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use rustix::fs::{Mode, OFlags};

    use super::*;

    /// Goal: what a ring transfers is what a plain request transfers, ends and errors included; and
    /// it is used where the system has it. Method: a file with some bytes, read to its end and
    /// beyond it, and one that cannot be written; threads that come and go.
    #[test]
    fn as_plain_requests() {
        let file = tempfile::tempfile().expect("a temporary file");
        file.write_all_at(&[7; 1000], 0).expect("written");
        if new_ring().is_none() {
            eprintln!("skipped as_plain_requests: this process may have no io_uring");
            return;
        }
        for round in 0..3u8 {
            std::thread::scope(|scope| {
                let spawned = scope.spawn(|| {
                    let mut buf = [0; 700];
                    assert_eq!(read_at(file.as_fd(), &mut buf, 0), Some(Ok(700)));
                    assert_eq!(buf[0], if round == 0 { 7 } else { round - 1 });
                    assert_eq!(read_at(file.as_fd(), &mut buf, 600), Some(Ok(400)));
                    assert_eq!(read_at(file.as_fd(), &mut buf, 1000), Some(Ok(0)));
                    assert_eq!(write_at(file.as_fd(), &[round; 300], 0), Some(Ok(300)));
                });
                spawned.join().expect("no panic");
            });
        }
        let (flags, mode) = (OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
        let full = rustix::fs::open("/dev/full", flags, mode).expect("opened");
        assert_eq!(write_at(full.as_fd(), &[0; 10], 0), Some(Err(Errno::NOSPC)));
        let refused = read_at(full.as_fd(), &mut [0; 10], 0).expect("an answer");
        assert_eq!(refused, Err(Errno::BADF));
    }

    /// Goal: errors that a ring makes up are left to the plain request. Method: an offset that is
    /// none.
    #[test]
    fn errors_that_may_be_the_ring_s() {
        let file = tempfile::tempfile().expect("a temporary file");
        if new_ring().is_none() {
            eprintln!("skipped errors_that_may_be_the_ring_s: this process may have no io_uring");
            return;
        }
        assert_eq!(read_at(file.as_fd(), &mut [0; 10], 1 << 63), None);
    }
}
