//! Stores as this and earlier versions wrote them: they are kept in the repository and must open
//! for ever.
//!
//! `fixtures/VERSION/NAME.store` has the files of a store, packed; `NAME.txt` lists what it holds.
//! [`check`] opens it in every way there is and compares. Fixtures are never written again: a new
//! format gets new ones beside the old, by `weir-sim fixtures`, which refuses to overwrite.
//!
//! A packed store is a line `file NAME` for each file, followed by its content: `fill BYTE COUNT`
//! for a run of equal bytes (segments are zeros for the most part), `data COUNT` and then the bytes
//! and a line break for the rest.

use std::fmt::Write as _;
use std::path::Path;

use weir::sim::Prng;
use weir::{
    CompactionPolicy, Compression, Db, DbOptions, DebugDbOptions, DebugOptions, Durability,
    Filters, Keyspace, LeveledOptions, Options, Result, RunsOptions, WriteBatch,
};

use crate::op::{Val, key_bytes};
use crate::world::{self, Disk, Schedule};

/// The stores that [`write()`] makes.
pub const NAMES: [&str; 5] = ["new", "policies", "killed", "power-loss", "zstd"];

/// Fewest equal bytes that are packed as a run.
const RUN_BYTES_MIN: usize = 32;

/// First line of a packed store.
const HEAD: &str = "weir store, packed 1";

/// Packs all files of a disk.
#[must_use]
pub fn pack(disk: &Disk) -> Vec<u8> {
    let mut packed = format!("{HEAD}\n").into_bytes();
    for name in disk.names() {
        packed.extend_from_slice(format!("file {name}\n").as_bytes());
        let bytes = disk.sim.read_all(&name).unwrap_or_default();
        let mut data: &[u8] = &[];
        let mut rest = &bytes[..];
        let flush = |packed: &mut Vec<u8>, data: &[u8]| {
            if !data.is_empty() {
                packed.extend_from_slice(format!("data {}\n", data.len()).as_bytes());
                packed.extend_from_slice(data);
                packed.push(b'\n');
            }
        };
        let mut from = 0;
        while let Some(&first) = rest.first() {
            let run = rest.iter().take_while(|&&byte| byte == first).count();
            let at = bytes.len() - rest.len();
            rest = &rest[run..];
            if run >= RUN_BYTES_MIN {
                flush(&mut packed, data);
                packed.extend_from_slice(format!("fill {first} {run}\n").as_bytes());
                from = at + run;
            }
            data = &bytes[from..at + run];
        }
        flush(&mut packed, data);
    }
    packed
}

/// Takes a line off the front of `rest`.
fn take_line(rest: &mut &[u8]) -> Option<String> {
    let end = rest.iter().position(|&byte| byte == b'\n')?;
    let text = String::from_utf8_lossy(&rest[..end]).into_owned();
    *rest = &rest[end + 1..];
    Some(text)
}

/// The disk with the files of a packed store; all of it is durable.
///
/// # Errors
/// The line that cannot be read.
pub fn unpack(packed: &[u8]) -> std::result::Result<Disk, String> {
    let disk = Disk::blank();
    let mut rest = packed;
    if take_line(&mut rest).is_none_or(|text| text != HEAD) {
        return Err("this is no packed store".to_owned());
    }
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    while let Some(text) = take_line(&mut rest) {
        let wrong = || format!("a packed store cannot have the line {text:?}");
        let words: Vec<&str> = text.split(' ').collect();
        let number = |word: &str| word.parse::<usize>().map_err(|_| wrong());
        match (words.as_slice(), files.last_mut()) {
            (["file", name], _) => files.push(((*name).to_owned(), Vec::new())),
            (["fill", byte, count], Some((_, bytes))) => {
                let byte = u8::try_from(number(byte)?).map_err(|_| wrong())?;
                bytes.resize(bytes.len() + number(count)?, byte);
            }
            (["data", count], Some((_, bytes))) => {
                let count = number(count)?;
                bytes.extend_from_slice(rest.get(..count).ok_or_else(wrong)?);
                rest = rest.get(count + 1..).ok_or_else(wrong)?;
            }
            _ => return Err(wrong()),
        }
    }
    if !rest.is_empty() {
        return Err("a packed store ends with a whole line".to_owned());
    }
    for (name, bytes) in files {
        disk.sim.write_all(&name, &bytes);
    }
    Ok(disk)
}

/// Bytes as a listing shows them: as text, long ones by their start, length and a hash.
fn shown(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 80;
    if bytes.len() <= SHOWN_MAX {
        return bytes.escape_ascii().to_string();
    }
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{}... {} bytes, {hash:016x}", bytes[..16].escape_ascii(), bytes.len())
}

/// What a store holds: its keyspaces with the options that are stored, all pairs in order. Reads
/// forwards, backwards and each key by itself.
///
/// # Errors
/// Any that the store gives.
///
/// # Panics
/// If the three ways of reading differ.
pub fn listing(db: &Db) -> Result<String> {
    let mut text = String::new();
    for name in db.keyspaces() {
        let space = db.open_keyspace(&name)?;
        let options = space.options();
        let _ = writeln!(
            text,
            "keyspace {name}: {}, filters {} of {:?} bits, compression {:?}, blocks of {}",
            options.compaction,
            options.filters,
            options.bloom_bits,
            options.compression,
            options.block_bytes
        );
        let pairs = space.iter().collect::<Result<Vec<_>>>()?;
        let mut back = space.iter().rev().collect::<Result<Vec<_>>>()?;
        back.reverse();
        assert!(pairs == back, "{name}: forwards and backwards differ");
        for (key, value) in &pairs {
            let got = space.get(key)?;
            assert!(got.as_deref() == Some(&value[..]), "{name}: get {} differs", shown(key));
            let _ = writeln!(text, "  {} = {}", shown(key), shown(value));
        }
    }
    Ok(text)
}

/// Options of the store: everything small, so that little data makes many files.
fn db_options() -> DbOptions {
    DbOptions::default()
        .memory_budget(1 << 20)
        .background_threads(1)
        .log_segment_bytes(4 << 10)
        .log_area_bytes(64 << 10)
        .debug(DebugDbOptions::default().version_log_bytes(16 << 10))
}

/// Options of a keyspace: a few dozen writes make several levels.
fn keyspace_options(policy: CompactionPolicy, filters: Filters, codec: Compression) -> Options {
    let sizes = LeveledOptions::default().level_ratio(2).base_level_bytes(1 << 10).l0_trigger(2);
    let runs = CompactionPolicy::Tiered(RunsOptions::default().runs_per_level(2));
    Options::default()
        .compaction(policy.with_options_of(sizes.into()).with_options_of(runs))
        .filters(filters)
        .compression([Compression::None, codec])
        .write_buffer_bytes(4 << 10)
        .debug(DebugOptions::default().write_buffer_entries(16))
        .block_bytes(512)
        .table_bytes(1 << 10)
        .bloom_bits([10.0, 4.5])
}

fn open(disk: &Disk) -> Result<Db> {
    disk.builder(1).options(db_options()).open()
}

/// Writes to a keyspace: mostly puts, over and over the same keys.
fn fill(space: &Keyspace, rng: &mut Prng, count: u32, durability: Durability) -> Result<()> {
    for id in 0..count {
        let key = key_bytes(rng.below(60) as u32);
        if rng.chance(1, 6) {
            space.delete_with(&key, durability)?;
        } else {
            space.put_with(&key, Val { id, len: rng.below(24) as u32 }.bytes(), durability)?;
        }
    }
    Ok(())
}

/// A keyspace of every policy, with and without compression, tables in several levels, what came
/// last in the log only; closed in good order.
fn policies(disk: &Disk) -> Result<()> {
    let db = open(disk)?;
    let mut rng = Prng::new(1);
    db.keyspace("dropped")?.put("k", "v")?;
    db.drop_keyspace("dropped")?;
    for (i, policy) in CompactionPolicy::ALL.into_iter().enumerate() {
        let filters = Filters::ALL[i % 2];
        let codec = [Compression::None, Compression::Lz4][i % 2];
        let space = db.keyspace_with(policy.name(), keyspace_options(policy, filters, codec))?;
        fill(&space, &mut rng, 220, Durability::Buffered)?;
        if i % 2 == 0 {
            db.wait_idle()?;
        }
        fill(&space, &mut rng, 7, Durability::Sync)?;
    }
    db.close()
}

/// Keys and values of every extreme, a batch of several segments, a keyspace that came and went, a
/// flush in between; nothing closed it.
fn unclosed(disk: &Disk) -> Result<Db> {
    let db = open(disk)?;
    let options = keyspace_options(CompactionPolicy::leveled(), Filters::Uniform, Compression::Lz4);
    let mut rng = Prng::new(2);
    let second = db.keyspace_with("second", options.clone())?;
    let gone = db.keyspace_with("gone", options)?;
    fill(db.default_keyspace(), &mut rng, 40, Durability::Buffered)?;
    fill(&second, &mut rng, 40, Durability::Buffered)?;
    fill(&gone, &mut rng, 5, Durability::Sync)?;
    second.flush()?;
    db.drop_keyspace("gone")?;
    db.put_with("", "the empty key", Durability::Sync)?;
    db.put_with("empty value", "", Durability::Sync)?;
    db.put_with([b'k'; 65_535], "the longest key", Durability::Buffered)?;
    let mut batch = WriteBatch::new();
    for i in 0..20 {
        batch.put(&second, format!("batch {i:02}"), [b'a' + i; 1000]);
        batch.put(db.default_keyspace(), format!("batch {i:02}"), format!("{i}"));
    }
    db.write(batch, Durability::Buffered)?;
    db.sync()?;
    fill(db.default_keyspace(), &mut rng, 12, Durability::Sync)?;
    fill(&second, &mut rng, 6, Durability::Buffered)?;
    Ok(db)
}

/// Builds a store of [`NAMES`]: its disk, and what it holds.
///
/// # Errors
/// What went wrong, for people.
pub fn build(name: &str) -> std::result::Result<(Disk, String), String> {
    let name = name.to_owned();
    let schedule = Schedule::new(1, 16);
    let built = world::simulate(schedule, move || -> Result<(Disk, String)> {
        let disk = Disk::blank();
        let disk = match name.as_str() {
            "new" => {
                open(&disk)?.close()?;
                disk
            }
            "policies" => {
                policies(&disk)?;
                disk
            }
            "killed" => {
                let db = unclosed(&disk)?;
                let killed = disk.kill();
                db.close()?;
                killed
            }
            "power-loss" => {
                let db = unclosed(&disk)?;
                let lost = disk.power_loss(2, 7);
                db.close()?;
                lost
            }
            _ => {
                let leveled = CompactionPolicy::leveled();
                let options = keyspace_options(leveled, Filters::Uniform, Compression::Zstd);
                let db = open(&disk)?;
                let space = db.keyspace_with("compressed", options)?;
                fill(&space, &mut Prng::new(3), 120, Durability::Buffered)?;
                db.close()?;
                disk
            }
        };
        // A copy, because opening writes.
        let db = open(&disk.kill())?;
        let text = listing(&db)?;
        db.close()?;
        Ok((disk, text))
    });
    built?.map_err(|error| error.to_string())
}

/// Writes the fixtures that do not exist yet to `dir`; returns their names.
///
/// # Errors
/// What went wrong, for people.
#[expect(clippy::disallowed_methods, reason = "fixtures lie in the real file system")]
pub fn write(dir: &Path) -> std::result::Result<Vec<&'static str>, String> {
    let failed = |what: &Path, error: std::io::Error| format!("{}: {error}", what.display());
    std::fs::create_dir_all(dir).map_err(|error| failed(dir, error))?;
    let mut written = Vec::new();
    for name in NAMES {
        let store = dir.join(name).with_extension("store");
        if store.exists() || (name == "zstd" && !cfg!(feature = "zstd")) {
            continue;
        }
        let (disk, text) = build(name)?;
        let list = dir.join(name).with_extension("txt");
        std::fs::write(&list, text).map_err(|error| failed(&list, error))?;
        std::fs::write(&store, pack(&disk)).map_err(|error| failed(&store, error))?;
        written.push(name);
    }
    Ok(written)
}

/// Opens a packed store in every way, and compares what it holds with `expected`: for reading only,
/// which changes nothing; by `repair`, which finds nothing to do; as a writer, which goes on
/// writing; and once more.
///
/// # Errors
/// What differs, for people.
pub fn check(packed: &[u8], expected: &str) -> std::result::Result<(), String> {
    let disk = unpack(packed)?;
    let expected = expected.to_owned();
    let schedule = Schedule::new(3, 16);
    let checked = world::simulate(schedule, move || -> Result<std::result::Result<(), String>> {
        let same = |how: &str, db: &Db| -> Result<std::result::Result<(), String>> {
            let damages = db.verify()?.damages;
            if !damages.is_empty() {
                return Ok(Err(format!("{how}: verify says {damages:?}")));
            }
            let found = listing(db)?;
            let differs = found.lines().zip(expected.lines()).find(|(a, b)| a != b);
            Ok(match differs {
                _ if found == expected => Ok(()),
                Some((found, expected)) => Err(format!("{how}: {found:?} and not {expected:?}")),
                None => Err(format!("{how}: more or less lines than expected")),
            })
        };
        let before = disk.fingerprint();
        let read_only = db_options().read_only(true);
        let db = disk.builder(1).options(read_only).open()?;
        let outcome = same("read-only", &db)?;
        db.close()?;
        if outcome.is_err() || disk.fingerprint() != before {
            return Ok(outcome.and(Err("opening for reading only changed the store".to_owned())));
        }
        let report = disk.builder(1).options(db_options()).repair()?;
        if report.rebuilt || disk.fingerprint() != before {
            return Ok(Err(format!("repair changed a store that is sound: {report:?}")));
        }
        for how in ["as a writer", "after a reopening"] {
            let db = open(&disk)?;
            if let Err(what) = same(how, &db)? {
                return Ok(Err(what));
            }
            for name in db.keyspaces() {
                let space = db.open_keyspace(&name)?;
                space.put_with("zz new", "value", Durability::Sync)?;
                space.flush()?;
                space.compact_range(..)?;
                space.delete("zz new")?;
            }
            db.close()?;
        }
        Ok(Ok(()))
    });
    checked?.map_err(|error| error.to_string())?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a packed disk is the disk, for any bytes.
    #[test]
    fn packing_keeps_every_byte() {
        let disk = Disk::blank();
        let mut bytes = vec![7; 31];
        bytes.extend([0; 32]);
        bytes.extend(b"data 3\nfile x\n");
        bytes.extend([255; 5000]);
        disk.sim.write_all("a", &bytes);
        disk.sim.write_all("b", b"");
        disk.sim.write_all("c", &[0; 4096]);
        let packed = pack(&disk);
        assert!(packed.len() < 200, "{} bytes", packed.len());
        assert_eq!(unpack(&packed).map(|disk| disk.fingerprint()), Ok(disk.fingerprint()));
        assert!(unpack(b"weir store, packed 2\n").is_err());
        assert!(unpack(&packed[..packed.len() - 20]).is_err());
    }
}
