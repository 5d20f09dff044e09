//! Requests that the page cache does not see (`O_DIRECT`), of any offset, length and memory.
//!
//! Such requests have to be aligned. Those that are not go through a buffer that is: reads of the
//! whole pages around them; writes have whole pages anyway, and only their memory may not be
//! aligned. Not here: who asks for what.
//!
//! Invariant: every request below is aligned to [`ALIGNED_BYTES`] in offset, length and memory.
//!
//! Source: LDS §3.1.

use std::sync::Arc;

use crate::base::error::Result;
use crate::device::{Advice, File, FileClass};

/// What requests are aligned to: the largest logical sector of common disks, and a page.
const ALIGNED_BYTES: usize = 4096;
const ALIGNED: u64 = ALIGNED_BYTES as u64;

/// A file below which the page cache is passed by.
pub(crate) struct Direct {
    inner: Arc<dyn File>,
}

impl Direct {
    /// The file behind a descriptor that was opened for direct requests.
    pub(crate) fn over(inner: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(Self { inner })
    }
}

fn is_aligned(memory: &[u8], offset: u64) -> bool {
    let at = memory.as_ptr() as usize;
    at.is_multiple_of(ALIGNED_BYTES)
        && memory.len().is_multiple_of(ALIGNED_BYTES)
        && offset.is_multiple_of(ALIGNED)
}

/// Calls `with` with `bytes` bytes of aligned memory, which hold anything.
fn with_buffer<T>(bytes: usize, with: impl FnOnce(&mut [u8]) -> T) -> T {
    let mut buffer = vec![0; bytes + ALIGNED_BYTES];
    let skipped = buffer.as_ptr().align_offset(ALIGNED_BYTES);
    with(&mut buffer[skipped..skipped + bytes])
}

impl File for Direct {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        if is_aligned(buf, offset) {
            return self.inner.read_at(buf, offset);
        }
        let start = offset / ALIGNED * ALIGNED;
        let skipped = (offset - start) as usize;
        let bytes = (skipped + buf.len()).next_multiple_of(ALIGNED_BYTES);
        with_buffer(bytes, |pages| {
            let got = self.inner.read_at(pages, start)?.saturating_sub(skipped).min(buf.len());
            buf[..got].copy_from_slice(&pages[skipped..skipped + got]);
            Ok(got)
        })
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        if is_aligned(buf, offset) {
            return self.inner.write_at(buf, offset);
        }
        let pages = buf.len().is_multiple_of(ALIGNED_BYTES) && offset.is_multiple_of(ALIGNED);
        assert!(pages, "{} bytes at offset {offset} of {} are no pages", buf.len(), self.path());
        with_buffer(buf.len(), |pages| {
            pages.copy_from_slice(buf);
            self.inner.write_at(pages, offset)
        })
    }
    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }
    fn discard(&self, offset: u64, bytes: u64) -> Result<()> {
        self.inner.discard(offset, bytes)
    }
    fn classed(&self, class: FileClass) -> Option<Arc<dyn File>> {
        self.inner.classed(class).map(Self::over)
    }
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }
    fn allocate(&self, bytes: u64) -> Result<()> {
        self.inner.allocate(bytes)
    }
    fn set_len(&self, bytes: u64) -> Result<()> {
        self.inner.set_len(bytes)
    }
    fn advise(&self, _: u64, _: u64, _: Advice) {}
    fn path(&self) -> String {
        self.inner.path()
    }
}
