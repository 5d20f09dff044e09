//! What there is to damage: files, or what is written of the areas of a store in slots.
//!
//! In slots it is what is not zero, to the 512 bytes: both superblocks, heads and used parts of the
//! halves of the version log and of the cells of the write-ahead log, and slots, those of obsolete
//! tables too. Zeros of formatting, which nobody reads, are left out.

use weir::SlotSpace;

use super::damages::class;
use crate::world::{Disk, STORE_FILE};

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) file: String,
    /// What it is, for people and for exchanges: damage of one is of its kind.
    pub(super) class: String,
    pub(super) start: u64,
    pub(super) bytes: u64,
    /// Where the unit begins that it is in (a cell, a slot), and how large that is; of a file,
    /// where that begins and ends.
    pub(super) unit: (u64, u64),
}

/// Where an area of a store in slots is, and in what units it is used.
struct Area {
    class: &'static str,
    start: u64,
    units: u64,
    unit_bytes: u64,
}

/// Where the second superblock begins, and the areas behind both.
const MIB: u64 = 1 << 20;
/// The head of a log's cell.
const HEAD_BYTES: u64 = 4096;
const SECTOR_BYTES: u64 = 512;

/// Everything that there is on the disk of a store, which has these slots or is in files.
pub(super) fn regions(disk: &Disk, space: Option<SlotSpace>) -> Vec<Region> {
    let Some(space) = space else {
        let names = disk.names().into_iter().filter(|name| name != "LOCK");
        let region = |file: String| {
            let bytes = disk.sim.read_all(&file).map_or(0, |bytes| bytes.len() as u64);
            Region { class: class(&file), start: 0, bytes, file, unit: (0, bytes) }
        };
        return names.map(region).collect();
    };
    let areas = areas(&space);
    let mut regions: Vec<Region> = Vec::new();
    let (_, written) = disk.sim.read_written(STORE_FILE).unwrap_or_default();
    for (at, part) in &written {
        let sectors = (*at..).step_by(SECTOR_BYTES as usize).zip(part.chunks(512));
        for (at, _) in sectors.filter(|(_, sector)| sector.iter().any(|&byte| byte != 0)) {
            let is_in = |area: &&Area| {
                (area.start..area.start + area.units * area.unit_bytes).contains(&at)
            };
            let Some(area) = areas.iter().find(is_in) else { continue };
            let unit = at - (at - area.start) % area.unit_bytes;
            match regions.last_mut() {
                Some(last) if last.start + last.bytes == at && last.unit.0 == unit => {
                    last.bytes += SECTOR_BYTES;
                }
                _ => regions.push(Region {
                    file: STORE_FILE.to_owned(),
                    class: area.class.to_owned(),
                    start: at,
                    bytes: SECTOR_BYTES,
                    unit: (unit, area.unit_bytes),
                }),
            }
        }
    }
    regions
}

/// The areas, as docs/format/slots.md has them in a store that was formatted with this space.
fn areas(space: &SlotSpace) -> [Area; 4] {
    let half = space.version_log_bytes + HEAD_BYTES;
    let cell = space.log_segment_bytes + HEAD_BYTES;
    let logs = 2 * MIB + 2 * half;
    let slots = (logs + space.log_segments * cell).next_multiple_of(space.slot_bytes.min(MIB));
    let area = |class, start, units, unit_bytes| Area { class, start, units, unit_bytes };
    [
        area("superblock", 0, 2, MIB),
        area("version log", 2 * MIB, 2, half),
        area("write-ahead log", logs, space.log_segments, cell),
        area("slot", slots, space.slots, space.slot_bytes),
    ]
}
