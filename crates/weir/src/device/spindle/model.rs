//! The timing model: striped spindles, each with a head and a queue.
//!
//! Pure arithmetic on virtual nanoseconds, without waiting.
//!
//! Invariants: (1) a spindle serves readers first in, first out, so its queue is one number: the
//! time when it is free; (2) every byte is charged to exactly one spindle; (3) a spindle is never
//! charged for less time than its requests need, so its work fits into the time that passes.
//!
//! Streams (compactions, flushes, the log) wait for the streams before them, not for readers:
//! read-ahead and write-back queue their requests early. Readers wait for both. A real disk gets
//! the same effect from deep queues; here it makes the speed of compactions independent of how
//! small their files were scaled.

/// The parameters of a disk. Times are virtual nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskModel {
    /// Its name in experiments.
    pub name: &'static str,
    /// Number of spindles, or channels of a solid-state disk, that work in parallel; striped.
    pub spindles: usize,
    /// Bytes of one stripe, contiguous on one spindle.
    pub stripe_bytes: u64,
    /// Positioning for a read that does not continue the request before it: average seek and half
    /// a rotation; or the latency of a solid-state disk.
    pub read_position_nanos: u64,
    /// The same for a write.
    pub write_position_nanos: u64,
    /// Positioning for a read within [`near_bytes`](Self::near_bytes) of the head.
    pub near_position_nanos: u64,
    /// Largest distance from the head that costs only the near positioning.
    pub near_bytes: u64,
    /// Command and controller time of every request that positions.
    pub request_nanos: u64,
    /// Transfer rate of one spindle.
    pub bytes_per_second: u64,
    /// Bytes of a background stream (compactions, flushes, the log) served per positioning: the
    /// size to which the operating system's read-ahead and write-back combine requests. Each
    /// request is charged its share, so that small scaled files do not cost more seeks per byte
    /// than large ones.
    pub cluster_bytes: u64,
    /// Additional wait of a sync of the write-ahead log: for the rotation of the medium, or for the
    /// flush of the disk's cache.
    pub log_sync_nanos: u64,
}

const MICROS: u64 = 1_000;
const MILLIS: u64 = 1_000_000;

impl DiskModel {
    /// Two Seagate Cheetah 15K.7 as RAID 0, the disks of LSbM (section 6.1): 3.4 ms seek and 2.0 ms
    /// half rotation.
    pub const HDD_15K_X2: Self = Self {
        name: "hdd-15k-x2",
        spindles: 2,
        stripe_bytes: 512 << 10,
        read_position_nanos: 5_400 * MICROS,
        write_position_nanos: 5_400 * MICROS,
        near_position_nanos: 2_400 * MICROS,
        near_bytes: 1 << 20,
        request_nanos: 50 * MICROS,
        bytes_per_second: 150_000_000,
        cluster_bytes: 512 << 10,
        log_sync_nanos: 4 * MILLIS,
    };

    /// One desktop disk, that of LDS: 8.5 ms seek and 4.17 ms half rotation.
    pub const HDD_7200: Self = Self {
        name: "hdd-7200",
        spindles: 1,
        stripe_bytes: 512 << 10,
        read_position_nanos: 12_670 * MICROS,
        write_position_nanos: 12_670 * MICROS,
        near_position_nanos: 5_000 * MICROS,
        near_bytes: 1 << 20,
        request_nanos: 50 * MICROS,
        bytes_per_second: 152_000_000,
        cluster_bytes: 512 << 10,
        log_sync_nanos: 8_330 * MICROS,
    };

    /// A solid-state disk at SATA, that of LDS: 90 µs a read, 50 µs a write, 360 MB/s.
    pub const SATA_SSD: Self = Self {
        name: "sata-ssd",
        spindles: 4,
        stripe_bytes: 64 << 10,
        read_position_nanos: 90 * MICROS,
        write_position_nanos: 50 * MICROS,
        near_position_nanos: 90 * MICROS,
        near_bytes: 0,
        request_nanos: 5 * MICROS,
        bytes_per_second: 90_000_000,
        cluster_bytes: 512 << 10,
        log_sync_nanos: 500 * MICROS,
    };

    /// A virtual disk in a data centre (virtio, ext4, `O_DIRECT`), fitted: 4 KiB random reads at
    /// queue depth 1, 4, 8 and 32 gave 6,010, 17,595, 26,665 and 44,039 a second, 1 MiB sequential
    /// reads 428 MB/s from one thread and 930 MB/s from four; a 4 KiB write and `fdatasync` took
    /// 98 µs in quiet hours and 323 µs in others. Four channels give 6,500, 26,000, 26,000 and
    /// 26,000, and 450 and 920 MB/s: right at the ends, high at depth 4, low beyond 8.
    pub const VIRTIO: Self = Self {
        name: "virtio",
        spindles: 4,
        stripe_bytes: 512 << 10,
        read_position_nanos: 130 * MICROS,
        write_position_nanos: 57 * MICROS,
        near_position_nanos: 130 * MICROS,
        near_bytes: 0,
        request_nanos: 5 * MICROS,
        bytes_per_second: 230_000_000,
        cluster_bytes: 512 << 10,
        log_sync_nanos: 100 * MICROS,
    };

    /// All models.
    pub const ALL: [Self; 4] = [Self::HDD_15K_X2, Self::HDD_7200, Self::SATA_SSD, Self::VIRTIO];

    /// The model called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|model| model.name == name)
    }

    fn transfer_nanos(&self, bytes: u64) -> u64 {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }

    /// The share of a positioning charged to `bytes` of a background stream.
    fn share_of_position(&self, position_nanos: u64, bytes: u64) -> u64 {
        let nanos =
            u128::from(position_nanos) * u128::from(bytes) / u128::from(self.cluster_bytes.max(1));
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }
}

/// A part of a request that lies on one spindle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) spindle: usize,
    /// Position on the spindle, in bytes.
    pub(super) at: u64,
    pub(super) bytes: u64,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// A read for a user that does not continue an earlier one.
    Random,
    /// A read that continues one of the reader's last reads: the drive has read ahead.
    Continued,
    /// A read of a background stream.
    StreamRead,
    /// A write of a background stream.
    StreamWrite,
}

/// One spindle: its queue, and the position of its head at the end of it.
#[derive(Clone, Copy, Debug, Default)]
struct Spindle {
    free_nanos: u64,
    /// Virtual time when the streams queued so far are served.
    streamed_nanos: u64,
    head: u64,
    busy_nanos: u64,
}

/// All spindles of a disk.
#[derive(Debug)]
pub(super) struct Spindles {
    model: DiskModel,
    spindles: Vec<Spindle>,
}

impl Spindles {
    pub(super) fn new(model: DiskModel) -> Self {
        let (name, rate) = (model.name, model.bytes_per_second);
        assert!(rate > 0, "the disk {name} transfers {rate} bytes a second");
        let spindles = vec![Spindle::default(); model.spindles.max(1)];
        Self { model, spindles }
    }

    pub(super) fn model(&self) -> &DiskModel {
        &self.model
    }

    /// Queues one piece at `now`; the time when it is served.
    pub(super) fn queue(&mut self, now: u64, piece: Piece, access: Access) -> u64 {
        let model = &self.model;
        let index = piece.spindle % self.spindles.len();
        let Some(spindle) = self.spindles.get_mut(index) else { return now };
        let distance = piece.at.abs_diff(spindle.head);
        let position = match access {
            Access::Continued => 0,
            Access::Random if distance == 0 => 0,
            Access::Random if distance <= model.near_bytes => {
                model.near_position_nanos + model.request_nanos
            }
            Access::Random => model.read_position_nanos + model.request_nanos,
            Access::StreamRead => model
                .share_of_position(model.read_position_nanos + model.request_nanos, piece.bytes),
            Access::StreamWrite => model
                .share_of_position(model.write_position_nanos + model.request_nanos, piece.bytes),
        };
        let service = position + model.transfer_nanos(piece.bytes);
        spindle.free_nanos = spindle.free_nanos.max(now) + service;
        spindle.busy_nanos += service;
        spindle.head = piece.at + piece.bytes;
        let Spindle { busy_nanos, free_nanos, .. } = *spindle;
        assert!(busy_nanos <= free_nanos, "busy for {busy_nanos} of {free_nanos} ns");
        match access {
            Access::Random | Access::Continued => spindle.free_nanos,
            Access::StreamRead | Access::StreamWrite => {
                spindle.streamed_nanos = spindle.streamed_nanos.max(now) + service;
                spindle.streamed_nanos
            }
        }
    }

    /// Sum of the spindles' busy time.
    pub(super) fn busy_nanos(&self) -> u64 {
        self.spindles.iter().map(|s| s.busy_nanos).sum()
    }

    /// Splits `bytes` at `offset` of a file with these `stripes` into pieces.
    pub(super) fn pieces<'a>(
        &'a self,
        stripes: &'a [u64],
        offset: u64,
        bytes: u64,
    ) -> impl Iterator<Item = Piece> + 'a {
        let stripe_bytes = self.model.stripe_bytes.max(1);
        let spindles = self.spindles.len() as u64;
        let (mut at, end) = (offset, offset + bytes);
        let striped = stripes.len() as u64 * stripe_bytes;
        assert!(end <= striped, "a request up to {end} in stripes of {striped} bytes");
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let stripe = stripes.get((at / stripe_bytes) as usize).copied().unwrap_or(0);
            let inside = at % stripe_bytes;
            let bytes = (stripe_bytes - inside).min(end - at);
            at += bytes;
            let spindle = (stripe % spindles) as usize;
            Some(Piece { spindle, at: stripe / spindles * stripe_bytes + inside, bytes })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: DiskModel = DiskModel::HDD_15K_X2;

    fn piece(spindle: usize, at: u64, bytes: u64) -> Piece {
        Piece { spindle, at, bytes }
    }

    /// Goal: a sequential read costs its transfer, a distant one a seek, a near one less. Method:
    /// computed by hand from the model's numbers.
    #[test]
    fn sequential_near_and_random() {
        let mut disk = Spindles::new(MODEL);
        let transfer = |bytes: u64| bytes * 1_000_000_000 / MODEL.bytes_per_second;
        let seek = MODEL.read_position_nanos + MODEL.request_nanos;
        let far = 10 << 30;
        let first = disk.queue(0, piece(0, far, 4096), Access::Random);
        assert_eq!(first, seek + transfer(4096));
        let next = disk.queue(first, piece(0, far + 4096, 4096), Access::Random);
        assert_eq!(next - first, transfer(4096), "the head is there already");
        let near = disk.queue(next, piece(0, far, 4096), Access::Random);
        assert_eq!(near - next, MODEL.near_position_nanos + MODEL.request_nanos + transfer(4096));
        let continued = disk.queue(near, piece(0, 0, 4096), Access::Continued);
        assert_eq!(continued - near, transfer(4096));
    }

    /// Goal: spindles work in parallel, requests of one spindle sequentially, and idle time is not
    /// credited.
    #[test]
    fn queues() {
        let mut disk = Spindles::new(MODEL);
        let one = disk.queue(0, piece(0, 1 << 30, 4096), Access::Random);
        let other = disk.queue(0, piece(1, 1 << 30, 4096), Access::Random);
        assert_eq!(one, other, "two spindles in parallel");
        let behind = disk.queue(0, piece(0, 2 << 30, 4096), Access::Random);
        assert_eq!(behind, 2 * one, "the second waits for the first");
        let later = disk.queue(10 * one, piece(0, 3 << 30, 4096), Access::Random);
        assert_eq!(later, 11 * one, "an idle spindle starts at once");
        assert_eq!(disk.busy_nanos(), 4 * one);
    }

    /// Goal: a stream costs the same per byte in pieces of any size, and one positioning per
    /// cluster.
    #[test]
    fn streams_pay_by_the_byte() {
        let cluster = MODEL.cluster_bytes;
        let whole = Spindles::new(MODEL).queue(0, piece(0, 1 << 30, cluster), Access::StreamWrite);
        let mut disk = Spindles::new(MODEL);
        let mut done = 0;
        for i in 0..64 {
            done = disk.queue(0, piece(0, (7 * i) << 30, cluster / 64), Access::StreamWrite);
        }
        assert!(whole.abs_diff(done) < 1000, "{whole} and {done}");
        let seek = MODEL.write_position_nanos + MODEL.request_nanos;
        assert_eq!(whole, seek + MODEL.transfer_nanos(cluster));
    }

    /// Goal: readers wait for streams, streams not for readers; the spindle is busy for both.
    #[test]
    fn streams_go_ahead() {
        let mut disk = Spindles::new(MODEL);
        let read = disk.queue(0, piece(0, 1 << 30, 4096), Access::Random);
        let cluster = MODEL.cluster_bytes;
        let streamed = disk.queue(0, piece(0, 2 << 30, cluster), Access::StreamRead);
        let alone = Spindles::new(MODEL).queue(0, piece(0, 2 << 30, cluster), Access::StreamRead);
        assert_eq!(streamed, alone);
        let behind = disk.queue(0, piece(0, 3 << 30, 4096), Access::Random);
        assert_eq!(behind, 2 * read + streamed);
        assert_eq!(disk.busy_nanos(), behind);
    }

    /// Goal: striping puts neighbouring stripes on different spindles and loses no byte.
    #[test]
    fn striping() {
        let disk = Spindles::new(MODEL);
        let stripe = MODEL.stripe_bytes;
        let pieces: Vec<Piece> = disk.pieces(&[4, 5, 7], stripe - 100, stripe + 300).collect();
        let expected = [
            piece(0, 2 * stripe + stripe - 100, 100),
            piece(1, 2 * stripe, stripe),
            piece(1, 3 * stripe, 200),
        ];
        assert_eq!(pieces, expected);
    }

    #[test]
    fn names() {
        for model in DiskModel::ALL {
            assert_eq!(DiskModel::named(model.name), Some(model.clone()));
        }
        assert_eq!(DiskModel::named("tape"), None);
    }
}
