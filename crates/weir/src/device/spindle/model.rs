//! The timing model: striped spindles, each with a head and a queue.
//!
//! Pure arithmetic on virtual nanoseconds, without waiting. A spindle decides what it does next
//! when it is free, among the requests that have arrived by then; whoever asks for a time after
//! that brings it up to date ([`Spindles::advance`]).
//!
//! Invariants: (1) a spindle serves one request at a time: streams (compactions, flushes, the log)
//! as they came, and readers if no stream waits, of whom the one that lies nearest ahead of the
//! head is next, or the first of all if none does (C-LOOK);
//! (2) every byte is charged to exactly one spindle; (3) a spindle is never charged for less time
//! than its requests need, so its work fits into the time that passes.
//!
//! Why streams go first: one thread merges, waits for each of its reads, and has a request for
//! each table of a store that was made small. If it waited for readers too, compactions would fall
//! behind at small scales and not at large ones. Schedulers of operating systems give sequential
//! processes slices of a tenth of a second for the same reason. The writer's rate bounds what
//! streams take.
//!
//! A positioning is a seek, half a rotation and the command. The seek depends on the distance
//! `d` from the head, of a spindle with capacity `C`: `min + (mean - min) * 15/8 * sqrt(d / C)`.
//! The square root is the shape of short seeks, which accelerate and brake (Ruemmler and Wilkes, An
//! introduction to disk drive modeling, 1994); the mean of `sqrt(d / C)` over random pairs of
//! places is 8/15, so that the mean is the drive's average seek. Of the Cheetah 15K.7 it gives a
//! full stroke of 6.2 ms, where its manual says 6.6.

/// The parameters of a disk. Times are virtual nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskModel {
    /// Its name in experiments.
    pub name: &'static str,
    /// Number of spindles, or channels of a solid-state disk, that work in parallel; striped.
    pub spindles: usize,
    /// Bytes of one stripe, contiguous on one spindle.
    pub stripe_bytes: u64,
    /// Bytes of one spindle, over which its head moves.
    pub capacity_bytes: u64,
    /// Seek to a neighbouring track.
    pub seek_min_nanos: u64,
    /// Average seek over the whole spindle; 0: nothing moves.
    pub seek_mean_nanos: u64,
    /// One rotation; 0: nothing rotates. A positioning waits for half of it; a write that follows
    /// on the one before it, but came when that had ended, for the rest of the rotations that
    /// passed: a whole one if it came at once.
    pub rotation_nanos: u64,
    /// Access of a solid-state medium for a read, instead of a positioning.
    pub read_latency_nanos: u64,
    /// The same for a write.
    pub write_latency_nanos: u64,
    /// Command and controller time of every request that positions.
    pub request_nanos: u64,
    /// Transfer rate of one spindle.
    pub bytes_per_second: u64,
    /// Most bytes of a stream of writes that are served by one request: the size to which the
    /// operating system's write-back combines what follows on one another.
    pub cluster_bytes: u64,
    /// What a sync waits for beside the writes themselves: the command that empties the disk's
    /// cache.
    pub flush_nanos: u64,
}

const MICROS: u64 = 1_000;
const MILLIS: u64 = 1_000_000;

impl DiskModel {
    /// Two Seagate Cheetah 15K.7 of 450 GB as RAID 0, the disks of LSbM (section 6.1) and dLSM
    /// (section VII-A). Of the product manual: 15,000 rotations a minute, seeks of reads 0.2 ms to
    /// the next track and 3.4 ms on average, 122 to 204 MB/s, of which the middle.
    pub const HDD_15K_X2: Self = Self {
        name: "hdd-15k-x2",
        spindles: 2,
        stripe_bytes: 512 << 10,
        capacity_bytes: 450_000_000_000,
        seek_min_nanos: 200 * MICROS,
        seek_mean_nanos: 3_400 * MICROS,
        rotation_nanos: 4 * MILLIS,
        read_latency_nanos: 0,
        write_latency_nanos: 0,
        request_nanos: 50 * MICROS,
        bytes_per_second: 160_000_000,
        cluster_bytes: 512 << 10,
        flush_nanos: 50 * MICROS,
    };

    /// One desktop disk, LDS's Seagate ST2000DM001 (section 4.1): 7,200 rotations a minute, 1.8 TB,
    /// 152 MB/s as the paper says; seeks of 1 ms to the next track and 8.5 ms on average.
    pub const HDD_7200: Self = Self {
        name: "hdd-7200",
        spindles: 1,
        stripe_bytes: 512 << 10,
        capacity_bytes: 1_800_000_000_000,
        seek_min_nanos: MILLIS,
        seek_mean_nanos: 8_500 * MICROS,
        rotation_nanos: 8_330 * MICROS,
        read_latency_nanos: 0,
        write_latency_nanos: 0,
        request_nanos: 50 * MICROS,
        bytes_per_second: 152_000_000,
        cluster_bytes: 512 << 10,
        flush_nanos: 50 * MICROS,
    };

    /// A solid-state disk at SATA: LDS's 360 MB/s (section 4.1), and the latencies of its class, 90
    /// µs a read and 50 µs a write, which the paper does not say.
    pub const SATA_SSD: Self = Self {
        name: "sata-ssd",
        spindles: 4,
        stripe_bytes: 64 << 10,
        capacity_bytes: 64_000_000_000,
        seek_min_nanos: 0,
        seek_mean_nanos: 0,
        rotation_nanos: 0,
        read_latency_nanos: 90 * MICROS,
        write_latency_nanos: 50 * MICROS,
        request_nanos: 5 * MICROS,
        bytes_per_second: 90_000_000,
        cluster_bytes: 512 << 10,
        flush_nanos: 500 * MICROS,
    };

    /// A virtual disk in a data centre (virtio, ext4, `O_DIRECT`), fitted: 4 KiB random reads at
    /// queue depth 1, 4, 8 and 32 gave 6,010, 17,595, 26,665 and 44,039 a second, 1 MiB sequential
    /// reads 428 MB/s from one thread and 930 MB/s from four; a 4 KiB write and `fdatasync` took
    /// 98 µs in quiet hours and 323 µs in others. Eight channels give 5,900, 18,500, 28,800 and
    /// 39,400, and 460 and 860 MB/s.
    pub const VIRTIO: Self = Self {
        name: "virtio",
        spindles: 8,
        stripe_bytes: 256 << 10,
        capacity_bytes: 32_000_000_000,
        seek_min_nanos: 0,
        seek_mean_nanos: 0,
        rotation_nanos: 0,
        read_latency_nanos: 130 * MICROS,
        write_latency_nanos: 57 * MICROS,
        request_nanos: 5 * MICROS,
        bytes_per_second: 115_000_000,
        cluster_bytes: 512 << 10,
        flush_nanos: 40 * MICROS,
    };

    /// All models.
    pub const ALL: [Self; 4] = [Self::HDD_15K_X2, Self::HDD_7200, Self::SATA_SSD, Self::VIRTIO];

    /// The model called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|model| model.name == name)
    }

    /// The same disk, but for all of its times, which are divided by `speed`. 1: the same.
    ///
    /// # Panics
    /// `speed` is not a positive number.
    #[must_use]
    pub fn at_speed(mut self, speed: f64) -> Self {
        assert!(speed > 0.0 && speed.is_finite(), "a disk {speed} times as fast");
        for nanos in [
            &mut self.seek_min_nanos,
            &mut self.seek_mean_nanos,
            &mut self.rotation_nanos,
            &mut self.read_latency_nanos,
            &mut self.write_latency_nanos,
            &mut self.request_nanos,
            &mut self.flush_nanos,
        ] {
            *nanos = (*nanos as f64 / speed).round() as u64;
        }
        self.bytes_per_second = ((self.bytes_per_second as f64 * speed).round() as u64).max(1);
        self
    }

    fn transfer_nanos(&self, bytes: u64) -> u64 {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }

    /// A seek over `distance` bytes.
    fn seek_nanos(&self, distance: u64) -> u64 {
        let part = (distance as f64 / self.capacity_bytes.max(1) as f64).min(1.0);
        let above = self.seek_mean_nanos.saturating_sub(self.seek_min_nanos) as f64;
        self.seek_min_nanos + (above * 15.0 / 8.0 * part.sqrt()) as u64
    }

    /// What a request of a stream pays of a positioning. At scale 1 all of it. At scale `n` tables
    /// are an `n`-th as large and `n` times as many: what is less than a cluster pays by its bytes,
    /// as it would as a part of a real table, but no less than an `n`-th.
    fn share_of_position(&self, position_nanos: u64, bytes: u64, scale: u64) -> u64 {
        let cluster = self.cluster_bytes.max(1);
        let share = bytes.max(cluster / scale).min(cluster);
        let nanos = u128::from(position_nanos) * u128::from(share) / u128::from(cluster);
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }

    /// Seek, half a rotation and command, or the access of a solid-state medium.
    fn position_nanos(&self, distance: u64, direction: Direction) -> u64 {
        let latency = match direction {
            Direction::Read => self.read_latency_nanos,
            Direction::Write => self.write_latency_nanos,
        };
        self.seek_nanos(distance) + self.rotation_nanos / 2 + latency + self.request_nanos
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Read,
    Write,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// A reader.
    User,
    /// A stream that reads.
    StreamRead,
    /// A stream that writes.
    StreamWrite,
}

impl Access {
    fn direction(self) -> Direction {
        match self {
            Self::User | Self::StreamRead => Direction::Read,
            Self::StreamWrite => Direction::Write,
        }
    }
}

/// A piece that waits for its turn.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    request: u64,
    access: Access,
    arrived: u64,
    at: u64,
    bytes: u64,
}

/// One spindle: its queue in the order of arrival, and the position of its head when what was begun
/// is done.
#[derive(Clone, Debug, Default)]
struct Spindle {
    free_nanos: u64,
    head: u64,
    busy_nanos: u64,
    queue: Vec<Waiting>,
}

/// When a piece of a request is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Served {
    pub(super) request: u64,
    pub(super) done_nanos: u64,
}

/// All spindles of a disk.
#[derive(Debug)]
pub(super) struct Spindles {
    model: DiskModel,
    /// The store is a part of one that is so many times as large.
    scale: u64,
    spindles: Vec<Spindle>,
}

impl Spindle {
    /// When it decides what is next; `None` if nothing waits.
    fn next_decision(&self) -> Option<u64> {
        let earliest = self.queue.iter().map(|waiting| waiting.arrived).min()?;
        Some(self.free_nanos.max(earliest))
    }

    /// Which of the queue is next at `start`.
    fn next(&self, start: u64) -> Option<usize> {
        let arrived = || self.queue.iter().enumerate().filter(|(_, w)| w.arrived <= start);
        let users = || arrived().filter(|(_, w)| w.access == Access::User);
        let place = |(_, waiting): &(usize, &Waiting)| (waiting.at, waiting.request);
        let ahead = users().filter(|(_, w)| w.at >= self.head).min_by_key(place);
        let user = ahead.or_else(|| users().min_by_key(place));
        let stream = arrived().find(|(_, w)| w.access != Access::User);
        stream.or(user).map(|(index, _)| index)
    }

    /// Serves a piece from `start` on; when it is done.
    fn serve(&mut self, model: &DiskModel, scale: u64, start: u64, waiting: Waiting) -> u64 {
        let distance = waiting.at.abs_diff(self.head).saturating_mul(scale);
        let idle = start.saturating_sub(self.free_nanos);
        let came_late = waiting.arrived >= self.free_nanos;
        let position = match (distance, waiting.access.direction()) {
            (0, Direction::Read) => 0,
            // The place has passed under the head since the request before it ended, or passes
            // while this one is on its way, and comes again.
            (0, Direction::Write) if came_late && model.rotation_nanos > 0 => {
                model.rotation_nanos - idle % model.rotation_nanos + model.request_nanos
            }
            // It has waited while the one before it was written: a solid-state disk has begun it.
            (0, Direction::Write) if !came_late => 0,
            (_, direction) => model.position_nanos(distance, direction),
        };
        let position = match waiting.access {
            Access::User => position,
            _ => model.share_of_position(position, waiting.bytes, scale),
        };
        self.head = waiting.at + waiting.bytes;
        self.spend(start, position + model.transfer_nanos(waiting.bytes))
    }

    /// Is busy for `service`, from `now` on or when it is free; until when.
    fn spend(&mut self, now: u64, service: u64) -> u64 {
        self.free_nanos = self.free_nanos.max(now) + service;
        self.busy_nanos += service;
        let Self { busy_nanos, free_nanos, .. } = *self;
        assert!(busy_nanos <= free_nanos, "busy for {busy_nanos} of {free_nanos} ns");
        self.free_nanos
    }
}

impl Spindles {
    pub(super) fn new(model: DiskModel, scale: u64) -> Self {
        let (name, rate) = (model.name, model.bytes_per_second);
        assert!(rate > 0, "the disk {name} transfers {rate} bytes a second");
        let spindles = vec![Spindle::default(); model.spindles.max(1)];
        Self { model, scale: scale.max(1), spindles }
    }

    pub(super) fn model(&self) -> &DiskModel {
        &self.model
    }

    /// Queues a piece of a request, which arrives at `now`.
    pub(super) fn queue(&mut self, now: u64, request: u64, piece: Piece, access: Access) {
        let index = piece.spindle % self.spindles.len();
        let Piece { at, bytes, .. } = piece;
        if let Some(spindle) = self.spindles.get_mut(index) {
            spindle.queue.push(Waiting { request, access, arrived: now, at, bytes });
        }
    }

    /// Makes all decisions up to `now`; what was decided.
    pub(super) fn advance(&mut self, now: u64) -> Vec<Served> {
        let mut served = Vec::new();
        for spindle in &mut self.spindles {
            while let Some(start) = spindle.next_decision().filter(|&start| start <= now)
                && let Some(place) = spindle.next(start)
            {
                let waiting = spindle.queue.remove(place);
                let done_nanos = spindle.serve(&self.model, self.scale, start, waiting);
                served.push(Served { request: waiting.request, done_nanos });
            }
        }
        served
    }

    /// When a piece of one of the requests that `wanted` names may be decided on next; `None` if
    /// none waits.
    pub(super) fn next_decision(&self, wanted: impl Fn(u64) -> bool) -> Option<u64> {
        let waits = |spindle: &&Spindle| spindle.queue.iter().any(|w| wanted(w.request));
        self.spindles.iter().filter(waits).filter_map(Spindle::next_decision).min()
    }

    /// A reader's piece that the operating system has read ahead, with the request before: it costs
    /// its transfer and waits for nobody. When it is there.
    pub(super) fn read_ahead(&mut self, now: u64, piece: Piece) -> u64 {
        let (index, model) = (piece.spindle % self.spindles.len(), &self.model);
        let Some(spindle) = self.spindles.get_mut(index) else { return now };
        let transfer = model.transfer_nanos(piece.bytes);
        spindle.spend(now, transfer);
        now + transfer
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

    fn disk() -> Spindles {
        Spindles::new(MODEL, 1)
    }

    fn transfer(bytes: u64) -> u64 {
        bytes * 1_000_000_000 / MODEL.bytes_per_second
    }

    /// Rotation and command of a positioning.
    const TURN: u64 = MODEL.rotation_nanos / 2 + MODEL.request_nanos;

    /// Goal: the drives' seeks are those of their manuals. Method: the average over pairs of places
    /// a hundredth of the spindle apart, the shortest and the longest.
    #[test]
    fn seeks_are_the_manuals() {
        for (model, mean, full) in [(MODEL, 3.4e6, 6.6e6), (DiskModel::HDD_7200, 8.5e6, 16.0e6)] {
            let places: Vec<u64> = (0..100).map(|i| i * (model.capacity_bytes / 100)).collect();
            let pairs = || places.iter().flat_map(|a| places.iter().map(|b| a.abs_diff(*b)));
            let sum: f64 = pairs().map(|distance| model.seek_nanos(distance) as f64).sum();
            let measured = sum / pairs().count() as f64;
            assert!((measured / mean - 1.0).abs() < 0.02, "{}: {measured}", model.name);
            let longest = model.seek_nanos(model.capacity_bytes) as f64;
            assert!((longest / full - 1.0).abs() < 0.1, "{}: {longest}", model.name);
            assert!(model.seek_nanos(1) < model.seek_min_nanos + 1_000);
        }
        assert_eq!(DiskModel::SATA_SSD.seek_nanos(1 << 40), 0);
    }

    /// Queues a piece at `now` on a disk where nothing else waits; when it is served.
    fn alone(disk: &mut Spindles, now: u64, piece: Piece, access: Access) -> u64 {
        disk.queue(now, 0, piece, access);
        let far = now + 1_000_000_000_000;
        disk.advance(far).last().expect("served").done_nanos
    }

    /// Goal: a read where the head is costs its transfer, a distant one a seek for its distance,
    /// which the scale multiplies. Method: computed by hand from the model's numbers.
    #[test]
    fn distance_costs() {
        let mut disk = disk();
        let far = 112_500_000_000;
        let seek = MODEL.seek_min_nanos + (MODEL.seek_mean_nanos - MODEL.seek_min_nanos) * 15 / 16;
        assert_eq!(MODEL.seek_nanos(far), seek, "a quarter of the spindle is half of the root");
        let first = alone(&mut disk, 0, piece(0, far, 4096), Access::User);
        assert_eq!(first, seek + TURN + transfer(4096));
        let next = alone(&mut disk, first, piece(0, far + 4096, 4096), Access::User);
        assert_eq!(next - first, transfer(4096), "the head is there already");
        let mut scaled = Spindles::new(MODEL, 64);
        assert_eq!(alone(&mut scaled, 0, piece(0, far / 64, 4096), Access::User), first);
    }

    /// Goal: spindles work in parallel; of those that wait for one, the nearest ahead is next, not
    /// the first that came; who has not arrived yet is not chosen; idle time is not credited.
    #[test]
    fn queues_are_reordered() {
        let mut disk = disk();
        let at = |i: u64| piece(0, i * 10_000_000_000, 4096);
        disk.queue(0, 1, at(10), Access::User);
        disk.queue(0, 2, Piece { spindle: 1, ..at(10) }, Access::User);
        let begun = disk.advance(0);
        let one = begun[0].done_nanos;
        assert_eq!(begun.len(), 2);
        assert_eq!(begun[0].done_nanos, begun[1].done_nanos, "two spindles");
        for (request, place) in [(3, 30), (4, 5), (5, 12), (6, 20)] {
            disk.queue(1, request, at(place), Access::User);
        }
        disk.queue(one + 1, 7, at(11), Access::User);
        assert_eq!(disk.next_decision(|request| request == 4), Some(one));
        assert_eq!(disk.next_decision(|request| request == 1), None);
        assert!(disk.advance(one - 1).is_empty());
        let served = disk.advance(10 * one);
        let order: Vec<u64> = served.iter().map(|s| s.request).collect();
        assert_eq!(order, [5, 6, 3, 4, 7]);
        let (busy, last) = (disk.busy_nanos(), served[4].done_nanos);
        assert_eq!(busy, last + one);
        let later = alone(&mut disk, 100 * one, at(40), Access::User);
        assert_eq!(disk.busy_nanos() - busy, later - 100 * one);
    }

    /// Goal: more requests at once give more reads a second, as an elevator does, and none waits
    /// for ever. Method: closed loops of random places over a twentieth of the spindle.
    #[test]
    fn depth_gives_throughput() {
        let rate = |depth: u64| {
            let (mut disk, mut prng) = (disk(), crate::base::prng::Prng::new(7));
            let mut place = || piece(0, prng.below(22_500_000_000), 4096);
            let (mut now, mut served) = (0, vec![0u64; depth as usize]);
            (0..depth).for_each(|reader| disk.queue(0, reader, place(), Access::User));
            for _ in 0..4_000 {
                let begun = disk.advance(now);
                assert_eq!(begun.len(), 1);
                now = begun[0].done_nanos;
                served[begun[0].request as usize] += 1;
                disk.queue(now, begun[0].request, place(), Access::User);
            }
            assert!(served.iter().all(|&n| n > 4_000 / depth / 2), "{served:?}");
            4_000.0 / (now as f64 / 1e9)
        };
        let rates = [1, 4, 16].map(rate);
        // 0.2 + 6 * sqrt(0.05) * 8/15 ms of seek, 2 of rotation, 0.08 of the rest.
        assert!((rates[0] / 333.0 - 1.0).abs() < 0.05, "{rates:?}");
        assert!(rates[1] > 1.04 * rates[0] && rates[2] > 1.1 * rates[1], "{rates:?}");
        assert!(rates[2] < 1e9 / TURN as f64, "{rates:?}");
    }

    /// Goal: a stream pays a positioning for each request that does not follow on the one before.
    #[test]
    fn streams_pay_by_the_request() {
        let cluster = MODEL.cluster_bytes;
        let (start, write) = (1 << 30, Access::StreamWrite);
        let mut disk = disk();
        disk.queue(0, 1, piece(0, start, cluster), write);
        disk.queue(0, 2, piece(0, start + cluster, cluster), write);
        disk.queue(0, 3, piece(0, start, cluster), Access::StreamRead);
        let done: Vec<u64> = disk.advance(u64::MAX).iter().map(|s| s.done_nanos).collect();
        assert_eq!(done[0], MODEL.seek_nanos(start) + TURN + transfer(cluster));
        assert_eq!(done[1] - done[0], transfer(cluster));
        let seek = MODEL.seek_nanos(2 * cluster);
        assert_eq!(done[2] - done[1], seek + TURN + transfer(cluster));
    }

    /// Goal: what a stream pays for its bytes does not depend on the scale, and at scale 1 each
    /// request pays for itself. Method: a table of twenty clusters, and the parts of it that stand
    /// for it at other scales.
    #[test]
    fn small_tables_cost_no_more() {
        let (cluster, far) = (MODEL.cluster_bytes, 5_000_000_000);
        let cost = |scale: u64, requests: u64, bytes: u64| {
            let mut disk = Spindles::new(MODEL, scale);
            let place = |i: u64| piece(0, (far + (i % 2) * far) / scale, bytes);
            (0..requests).for_each(|i| disk.queue(0, i, place(i), Access::StreamWrite));
            disk.advance(u64::MAX);
            disk.busy_nanos()
        };
        let whole = cost(1, 20, cluster) as f64;
        for scale in [4, 20, 64] {
            let parts = cost(scale, scale, 20 * cluster / scale) as f64;
            let expected = if scale == 4 { whole - 16.0 * 3.06e6 } else { whole };
            assert!((parts / expected - 1.0).abs() < 0.05, "{scale}: {parts} of {whole}");
        }
        assert!(cost(1, 64, 4096) > 20 * cost(64, 64, 4096));
    }

    /// Goal: a write that follows on another after a pause waits for its place to come round: back
    /// to back it takes a whole rotation each. Method: LDS's disk without a cache.
    #[test]
    fn appends_wait_for_the_rotation() {
        let model = DiskModel::HDD_7200;
        let mut disk = Spindles::new(model.clone(), 1);
        let mut now = alone(&mut disk, 0, piece(0, 0, 4096), Access::StreamWrite);
        for i in 1..4 {
            let append = piece(0, i * 4096, 4096);
            let done = alone(&mut disk, now + 100_000, append, Access::StreamWrite);
            let one = model.rotation_nanos + model.request_nanos + model.transfer_nanos(4096);
            assert_eq!(done - now, one, "append {i}");
            now = done;
        }
    }

    /// Goal: streams go first, in their order, but stop nobody who is served.
    #[test]
    fn streams_go_first() {
        let mut disk = disk();
        let at = |i: u64| piece(0, i << 30, 4096);
        for request in 0..4 {
            disk.queue(0, request, at(10 + request), Access::StreamRead);
            disk.queue(0, 10 + request, at(5 - request), Access::User);
        }
        let order: Vec<u64> = disk.advance(u64::MAX).iter().map(|s| s.request).collect();
        assert_eq!(order, [0, 1, 2, 3, 13, 12, 11, 10]);
        let start = disk.busy_nanos();
        disk.queue(start, 20, at(9), Access::User);
        disk.queue(start + 1, 21, at(8), Access::StreamWrite);
        let order: Vec<u64> = disk.advance(u64::MAX).iter().map(|s| s.request).collect();
        assert_eq!(order, [20, 21]);
        let now = disk.busy_nanos();
        assert_eq!(disk.read_ahead(now, at(0)), now + transfer(4096));
        assert_eq!(disk.busy_nanos(), now + transfer(4096));
    }

    /// Goal: striping puts neighbouring stripes on different spindles and loses no byte.
    #[test]
    fn striping() {
        let disk = disk();
        let stripe = MODEL.stripe_bytes;
        let pieces: Vec<Piece> = disk.pieces(&[4, 5, 7], stripe - 100, stripe + 300).collect();
        let expected = [
            piece(0, 2 * stripe + stripe - 100, 100),
            piece(1, 2 * stripe, stripe),
            piece(1, 3 * stripe, 200),
        ];
        assert_eq!(pieces, expected);
    }

    /// Goal: a disk that is twice as fast takes half the time for whatever it does, one of speed 1
    /// is the same. Method: a read and a write that position, an append that waits for its place.
    #[test]
    fn speed_divides_every_time() {
        let served = |model: DiskModel, pause: u64| {
            let mut disk = Spindles::new(model, 1);
            let mut now = alone(&mut disk, 0, piece(0, 1 << 30, 4096), Access::User);
            for at in [5 << 30, (5 << 30) + 4096] {
                now = alone(&mut disk, now + pause, piece(0, at, 4096), Access::StreamWrite);
            }
            now
        };
        for model in DiskModel::ALL {
            assert_eq!(model.clone().at_speed(1.0), model);
            let fast = model.clone().at_speed(2.0);
            assert_eq!(fast.flush_nanos, model.flush_nanos / 2);
            let (fast, slow) = (served(fast, 500), served(model.clone(), 1_000));
            assert!(fast.abs_diff(slow / 2) < 10, "{}: {fast} of {slow}", model.name);
        }
    }

    #[test]
    fn names() {
        for model in DiskModel::ALL {
            assert_eq!(DiskModel::named(model.name), Some(model.clone()));
        }
        assert_eq!(DiskModel::named("tape"), None);
    }
}
