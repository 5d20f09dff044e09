//! The damages: what is done to a file, and which of it a campaign does.

use weir::sim::Prng;

use crate::world::Disk;

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
}

impl Damage {
    /// Does it; whether there was anything to damage.
    pub(super) fn apply(&self, disk: &Disk, foreign: &[(String, Vec<u8>)]) -> bool {
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
        }
    }

    pub(super) fn kind(&self) -> (&'static str, &str) {
        match self {
            Self::Nothing => ("nothing", ""),
            Self::Flip { file, .. } => ("bit flip", file),
            Self::ZeroSector { file, .. } => ("zero sector", file),
            Self::CopySector { file, .. } => ("misdirected sector", file),
            Self::Truncate { file, .. } => ("truncation", file),
            Self::Append { file } => ("garbage at the end", file),
            Self::Delete { file } => ("deletion", file),
            Self::Swap { a, .. } => ("exchange", a),
            Self::Copy { to, .. } => ("copy", to),
            Self::Foreign { to, .. } => ("another store's", to),
        }
    }
}

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

pub(super) fn files(disk: &Disk) -> Vec<(String, u64)> {
    let size = |name: String| {
        let len = disk.sim.read_all(&name).map_or(0, |bytes| bytes.len() as u64);
        (name, len)
    };
    disk.names().into_iter().map(size).collect()
}

/// Bits, evenly spread over all files if they are sampled.
pub(super) fn flips(files: &[(String, u64)], sample: Option<u64>) -> Vec<Damage> {
    let total: u64 = files.iter().map(|f| f.1 * 8).sum();
    let wanted = sample.unwrap_or(total).clamp(1, total.max(1));
    let mut damages = Vec::with_capacity(wanted as usize);
    for n in 0..wanted {
        let mut bit = (u128::from(n) * u128::from(total) / u128::from(wanted)) as u64;
        if sample.is_some() {
            bit = (bit + n * 7 % (total / wanted).max(1)).min(total - 1);
        }
        for (file, len) in files {
            if bit < len * 8 {
                let (offset, bit) = (bit / 8, (bit % 8) as u32);
                damages.push(Damage::Flip { file: file.clone(), offset, bit });
                break;
            }
            bit -= len * 8;
        }
    }
    damages
}

/// Damage of whole sectors, files and names.
pub(super) fn block_damages(files: &[(String, u64)], seed: u64) -> Vec<Damage> {
    let mut rng = Prng::new(seed);
    let mut damages = Vec::new();
    for (file, len) in files {
        let sectors = len.div_ceil(512);
        for sector in 0..sectors {
            damages.push(Damage::ZeroSector { file: file.clone(), offset: sector * 512 });
            damages.push(Damage::Truncate { file: file.clone(), len: sector * 512 });
            damages.push(Damage::Truncate {
                file: file.clone(),
                len: sector * 512 + rng.below(512).min(len - sector * 512),
            });
            let from = rng.below(sectors) * 512;
            damages.push(Damage::CopySector { file: file.clone(), from, to: sector * 512 });
        }
        damages.push(Damage::Append { file: file.clone() });
        damages.push(Damage::Delete { file: file.clone() });
        for (other, _) in files {
            if class(other) == class(file) && other > file {
                damages.push(Damage::Swap { a: file.clone(), b: other.clone() });
            }
        }
    }
    damages
}

/// Files of another store and copies of the store's own, among its logs.
pub(super) fn strangers(files: &[(String, u64)], foreign: &[(String, Vec<u8>)]) -> Vec<Damage> {
    let mut damages = Vec::new();
    let logs = || files.iter().map(|(file, _)| file).filter(|file| file.ends_with(".log"));
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
