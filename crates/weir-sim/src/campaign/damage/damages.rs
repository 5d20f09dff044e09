//! The damages: what is done to a file, and which of it a campaign does.

use weir::sim::Prng;

use super::regions::Region;
use super::specimen::Specimen;
use crate::world::{Disk, STORE_FILE};

/// One damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Damage {
    Nothing,
    Flip {
        file: String,
        offset: u64,
        bit: u32,
    },
    ZeroSector {
        file: String,
        offset: u64,
    },
    CopySector {
        file: String,
        from: u64,
        to: u64,
    },
    Truncate {
        file: String,
        len: u64,
    },
    Append {
        file: String,
    },
    Delete {
        file: String,
    },
    Swap {
        a: String,
        b: String,
    },
    Copy {
        from: String,
        to: String,
    },
    /// Another store's log: which of those that the specimen has.
    Foreign {
        log: usize,
        to: String,
    },
    /// Part of a file over another one.
    CopyPart {
        file: String,
        from: u64,
        to: u64,
        bytes: u64,
    },
    /// What another store in slots has at the same place: which of the parts that the specimen has.
    ForeignPart {
        part: usize,
        at: u64,
    },
}

impl Damage {
    /// Does it; whether there was anything to damage.
    pub(super) fn apply(&self, disk: &Disk, specimen: &Specimen) -> bool {
        let foreign = &specimen.foreign;
        let sim = &disk.sim;
        let write = |to: &str, bytes: Option<&[u8]>| {
            bytes.iter().for_each(|bytes| sim.write_all(to, bytes));
            bytes.is_some()
        };
        match self {
            Self::Nothing => true,
            Self::Flip { file, offset, bit } => sim.flip_bit(file, *offset, *bit),
            Self::ZeroSector { file, offset } => sim.zero_sector(file, *offset),
            Self::CopySector { file, from, to } => sim.copy_sector(file, *from, *to),
            Self::Truncate { file, len } => sim.truncate(file, *len),
            Self::Append { file } => sim.append_garbage(file, &[0xa5; 700]),
            Self::Delete { file } => sim.delete(file),
            Self::Swap { a, b } => sim.swap_files(a, b),
            Self::Copy { from, to } => write(to, sim.read_all(from).as_deref()),
            Self::Foreign { log, to } => write(to, foreign.get(*log).map(|(_, b)| &b[..])),
            Self::CopyPart { file, from, to, bytes } => sim.copy_part(file, *from, *to, *bytes),
            Self::ForeignPart { part, at } => {
                let (_, bytes) = &specimen.foreign_parts[*part];
                sim.overwrite(STORE_FILE, *at, bytes)
            }
        }
    }

    /// What it is, to which file, and where in that.
    pub(super) fn kind(&self) -> (&'static str, &str, u64) {
        match self {
            Self::Nothing => ("nothing", "", 0),
            Self::Flip { file, offset, .. } => ("bit flip", file, *offset),
            Self::ZeroSector { file, offset } => ("zero sector", file, *offset),
            Self::CopySector { file, to, .. } => ("misdirected sector", file, *to),
            Self::Truncate { file, len } => ("truncation", file, *len),
            Self::Append { file } => ("garbage at the end", file, u64::MAX),
            Self::Delete { file } => ("deletion", file, u64::MAX),
            Self::Swap { a, .. } => ("exchange", a, u64::MAX),
            Self::Copy { to, .. } => ("copy", to, u64::MAX),
            Self::Foreign { to, .. } => ("another store's", to, u64::MAX),
            Self::CopyPart { file, to, .. } => ("copy", file, *to),
            Self::ForeignPart { at, .. } => ("another store's", STORE_FILE, *at),
        }
    }
}

/// Of a unit at most so much is copied: it is written at its start, if at all.
const MIB: u64 = 1 << 20;

/// How far a name is from those in use that nothing of the store can have had it.
pub(super) const FAR: u64 = 20_000;

/// The file of this kind with another number.
fn with_number(file: &str, number: u64) -> String {
    let (start, end) = file.split_at(file.find(is_digit).unwrap_or(0));
    let end = end.trim_start_matches(is_digit);
    format!("{start}{number:06}{end}")
}

pub(super) fn number(file: &str) -> u64 {
    file.chars().filter(|&c| is_digit(c)).collect::<String>().parse().unwrap_or(0)
}

/// A file name without its number.
pub(super) fn class(file: &str) -> String {
    file.chars().filter(|&c| !is_digit(c)).collect()
}

/// Bits, evenly spread over everything if they are sampled.
pub(super) fn flips(regions: &[Region], sample: Option<u64>) -> Vec<Damage> {
    let total: u64 = regions.iter().map(|region| region.bytes * 8).sum();
    let wanted = sample.unwrap_or(total).clamp(1, total.max(1));
    let mut damages = Vec::with_capacity(wanted as usize);
    for n in 0..wanted {
        let mut bit = (u128::from(n) * u128::from(total) / u128::from(wanted)) as u64;
        if sample.is_some() {
            bit = (bit + n * 7 % (total / wanted).max(1)).min(total - 1);
        }
        for Region { file, start, bytes, .. } in regions {
            if bit < bytes * 8 {
                let (offset, bit) = (start + bit / 8, (bit % 8) as u32);
                damages.push(Damage::Flip { file: file.clone(), offset, bit });
                break;
            }
            bit -= bytes * 8;
        }
    }
    damages
}

/// Damage of whole sectors, files and names.
pub(super) fn block_damages(regions: &[Region], seed: u64) -> Vec<Damage> {
    let mut rng = Prng::new(seed);
    let mut damages = Vec::new();
    for Region { file, class, start, bytes, .. } in regions {
        let sectors = bytes.div_ceil(512);
        for sector in 0..sectors {
            let offset = start + sector * 512;
            damages.push(Damage::ZeroSector { file: file.clone(), offset });
            damages.push(Damage::Truncate { file: file.clone(), len: offset });
            damages.push(Damage::Truncate {
                file: file.clone(),
                len: offset + rng.below(512).min(bytes - sector * 512),
            });
            let from = start + rng.below(sectors) * 512;
            damages.push(Damage::CopySector { file: file.clone(), from, to: offset });
        }
        damages.push(Damage::Append { file: file.clone() });
        damages.push(Damage::Delete { file: file.clone() });
        for other in regions.iter().filter(|other| other.class == *class) {
            if other.file > *file {
                damages.push(Damage::Swap { a: file.clone(), b: other.file.clone() });
            }
        }
    }
    // Each unit of an area over the next one that is used, and the last one over the first.
    let units = |class: &str| -> Vec<(u64, u64)> {
        let of_it = regions.iter().filter(|r| r.class == class && r.file == STORE_FILE);
        let mut units: Vec<_> = of_it.map(|region| region.unit).collect();
        units.dedup();
        units
    };
    for class in ["superblock", "version log", "write-ahead log", "slot"] {
        let units = units(class);
        for (from, to) in units.iter().zip(units.iter().cycle().skip(1)).filter(|(a, b)| a != b) {
            let (from, to, bytes) = (from.0, to.0, from.1.min(MIB));
            damages.push(Damage::CopyPart { file: STORE_FILE.to_owned(), from, to, bytes });
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    // One region of a file is as good as the next for what is done to all of it.
    damages.retain(|damage| {
        let whole = matches!(damage, Damage::Append { .. } | Damage::Delete { .. });
        !whole || seen.insert(format!("{damage:?}"))
    });
    damages
}

/// Files of another store and copies of the store's own, among its logs.
pub(super) fn strangers(specimen: &Specimen) -> Vec<Damage> {
    let Specimen { regions, foreign, foreign_parts, .. } = specimen;
    let mut damages: Vec<Damage> = foreign_parts
        .iter()
        .enumerate()
        .map(|(part, (at, _))| Damage::ForeignPart { part, at: *at })
        .collect();
    let logs = || regions.iter().map(|r| &r.file).filter(|file| file.ends_with(".log"));
    let names = |kind: &str| -> Vec<String> {
        let ours = logs().filter(|file| class(file) == class(kind)).map(|file| number(file));
        let last = ours.clone().max().unwrap_or(0);
        ours.chain([last + 1, last + FAR]).map(|number| with_number(kind, number)).collect()
    };
    for (log, (name, _)) in foreign.iter().enumerate() {
        damages.extend(names(name).into_iter().map(|to| Damage::Foreign { log, to }));
        damages.push(Damage::Foreign { log, to: name.clone() });
    }
    for from in logs() {
        let others = names(from).into_iter().filter(|to| to != from);
        damages.extend(others.map(|to| Damage::Copy { from: from.clone(), to }));
    }
    damages
}

pub(super) fn is_digit(c: char) -> bool {
    c.is_ascii_digit()
}
