//! A range of a file as a file of its own: areas of a device that have different uses.
//!
//! A part has a class, so that requests to it are counted, and made to fail, by its use and not by
//! that of the whole file. Not here: which areas a device has (`storage`).
//!
//! Invariants: (1) no request leaves the range: reads end at it, and a write beyond it is a bug of
//! the caller; (2) the length is fixed; (3) a `sync` is one of the whole file, as a device has no
//! other; [`File::write_durable`] is of its own bytes only.
//!
//! Source: LDS §3.1, the zones of a device.

use std::ops::Range;
use std::sync::Arc;

use crate::base::error::{Error, ErrorKind, Result};
use crate::device::{Advice, File, FileClass};

/// A range of a file.
pub struct Part {
    file: Arc<dyn File>,
    start: u64,
    bytes: u64,
}

impl Part {
    /// The part in `range` of `file`, whose requests are of `class`.
    #[must_use]
    pub fn of(file: &Arc<dyn File>, range: Range<u64>, class: FileClass) -> Arc<dyn File> {
        assert!(range.start <= range.end, "a part that ends before its start: {range:?}");
        let file = file.classed(class).unwrap_or_else(|| Arc::clone(file));
        Arc::new(Self { file, start: range.start, bytes: range.end - range.start })
    }

    /// The offset in the file of `bytes` bytes at `offset`, which must be inside.
    fn inside(&self, offset: u64, bytes: u64) -> u64 {
        let end = offset.checked_add(bytes);
        assert!(
            end.is_some_and(|end| end <= self.bytes),
            "{bytes} bytes at offset {offset} of {}, which has {}",
            self.path(),
            self.bytes
        );
        self.start + offset
    }

    /// As much of a range as is inside; 0 bytes: to the end.
    fn clamped(&self, offset: u64, bytes: u64) -> Option<(u64, u64)> {
        let left = self.bytes.checked_sub(offset).filter(|&left| left > 0)?;
        let bytes = if bytes == 0 { left } else { bytes.min(left) };
        Some((self.start + offset, bytes))
    }

    fn fixed<T>(&self) -> Result<T> {
        let what = format!("{} has a fixed length", self.path());
        Err(Error::new(ErrorKind::Unsupported, what))
    }
}

impl File for Part {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let Some((at, bytes)) = self.clamped(offset, buf.len() as u64) else { return Ok(0) };
        let bytes = bytes.min(buf.len() as u64) as usize;
        self.file.read_at(&mut buf[..bytes], at)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.file.write_at(buf, self.inside(offset, buf.len() as u64))
    }
    fn write_parts_at(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        self.file.write_parts_at(parts, self.inside(offset, bytes))
    }
    fn write_durable(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.file.write_durable(buf, self.inside(offset, buf.len() as u64))
    }
    fn sync(&self) -> Result<()> {
        self.file.sync()
    }
    fn write_back(&self, offset: u64, bytes: u64) -> Result<()> {
        self.file.write_back(self.inside(offset, bytes), bytes)
    }
    fn discard(&self, offset: u64, bytes: u64) -> Result<()> {
        self.file.discard(self.inside(offset, bytes), bytes)
    }
    fn len(&self) -> Result<u64> {
        Ok(self.bytes)
    }
    fn next_data(&self, offset: u64) -> Result<u64> {
        let Some((at, _)) = self.clamped(offset, 0) else { return Ok(offset) };
        Ok(self.file.next_data(at)?.saturating_sub(self.start).min(self.bytes))
    }
    fn allocate(&self, bytes: u64) -> Result<()> {
        if bytes <= self.bytes { Ok(()) } else { self.fixed() }
    }
    fn set_len(&self, bytes: u64) -> Result<()> {
        if bytes == self.bytes { Ok(()) } else { self.fixed() }
    }
    fn advise(&self, offset: u64, bytes: u64, advice: Advice) {
        if let Some((at, bytes)) = self.clamped(offset, bytes) {
            self.file.advise(at, bytes, advice);
        }
    }
    fn classed(&self, class: FileClass) -> Option<Arc<dyn File>> {
        Some(Self::of(&self.file, self.start..self.start + self.bytes, class))
    }
    fn path(&self) -> String {
        format!("{}+{}", self.file.path(), self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Mode;
    use crate::device::real::RealDir;

    /// Goal: a part behaves as a file of its length, and nothing outside of it changes. Method: two
    /// parts with a gap between them in a real file, against vectors of bytes.
    #[test]
    fn parts_are_files_of_fixed_length() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let dir = RealDir::open(temp.path(), false).expect("opened");
        let file = dir.create("device", FileClass::Other).expect("created");
        file.write_at(&[9; 20_000], 0).expect("written");
        let a = Part::of(&file, 4096..8192, FileClass::Wal);
        let b = Part::of(&file, 12_288..20_000, FileClass::Table);
        assert_eq!((a.len().expect("known"), b.len().expect("known")), (4096, 7712));
        a.write_at(&[1; 4096], 0).expect("all of it");
        b.write_parts_at(&[&[2; 100], &[3; 12]], 7600).expect("up to the end");
        b.write_durable(&[4; 50], 0).expect("durable");
        a.sync().expect("synced");
        let mut bytes = [0; 200];
        assert_eq!(b.read_at(&mut bytes, 7590).expect("read"), 122, "a read ends with the part");
        assert_eq!((bytes[9], bytes[10], bytes[110], bytes[121]), (9, 2, 3, 3));
        assert_eq!(b.read_at(&mut bytes, 7712).expect("read"), 0);
        assert_eq!(b.read_at(&mut bytes, 9000).expect("read"), 0);
        b.advise(0, 0, Advice::Sequential);
        assert!(a.allocate(4096).is_ok() && a.set_len(4096).is_ok());
        for refused in [a.allocate(4097), a.set_len(4095), a.set_len(5000)] {
            assert_eq!(refused.expect_err("fixed").kind(), ErrorKind::Unsupported);
        }
        let mut expected = vec![9; 20_000];
        expected[4096..8192].fill(1);
        expected[12_288..12_338].fill(4);
        expected[19_888..19_988].fill(2);
        expected[19_988..].fill(3);
        let mut all = vec![0; 20_001];
        let whole = dir.open("device", FileClass::Other, Mode::Read).expect("opened");
        assert_eq!(whole.read_at(&mut all, 0).expect("read"), 20_000);
        assert!(all[..20_000] == expected);
        let beyond = || b.write_at(&[5; 13], 7700);
        let beyond = std::panic::catch_unwind(std::panic::AssertUnwindSafe(beyond));
        assert!(beyond.is_err(), "a write beyond the part");
    }

    /// Goal: requests are counted and fail by the class of the part. Method: two parts of one file
    /// of a simulated disk, of which one fails.
    #[cfg(feature = "sim")]
    #[test]
    fn parts_have_classes_of_their_own() {
        use crate::device::Dir;
        use crate::device::faulty::{Effect, ErrorCode, Fault, FaultyDir, Times};
        use crate::device::sim::{SimDisk, SimOptions};
        use crate::device::site::{OpKind, Site};

        let disk = SimDisk::new(SimOptions { record: true, ..SimOptions::default() });
        let dir = FaultyDir::over_disk(&disk);
        let faults = dir.faults();
        let file = dir.create("device", FileClass::Other).expect("created");
        file.set_len(16_384).expect("extended");
        let log = Part::of(&file, 0..4096, FileClass::Wal);
        let slots = Part::of(&file, 8192..16_384, FileClass::Table);
        let (op, class) = (Some(OpKind::Write), Some(FileClass::Table));
        let effect = Effect::Fail(ErrorCode::Eio);
        faults.arm(Fault { op, class, after: 0, times: Times::Forever, effect });
        log.write_at(&[1; 100], 0).expect("another class");
        slots.write_at(&[1; 100], 0).expect_err("its class fails");
        faults.heal();
        slots.write_at(&[1; 100], 0).expect("healed");
        slots.discard(0, 4096).expect("a simulated disk can");
        let calls = |op, class| disk.counters().get(op, class).calls;
        assert_eq!(calls(OpKind::Write, FileClass::Wal), 1);
        assert_eq!(calls(OpKind::Write, FileClass::Table), 1);
        assert_eq!(calls(OpKind::Discard, FileClass::Table), 1);
        let mut replayer = disk.replayer();
        replayer.go_to(replayer.len() - 1);
        let site = Site { op: OpKind::Discard, class: FileClass::Table };
        assert_eq!(replayer.next_site(), Some(site), "the trace tells by the part");
    }
}
