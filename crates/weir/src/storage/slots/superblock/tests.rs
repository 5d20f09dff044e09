//! Goal: a superblock is the old one or the new one, whatever is cut off, torn or damaged, and
//! never another one.

use super::*;

const MIB: u64 = 1 << 20;

fn example() -> Superblock {
    let area = |kind, offset, bytes| Area { kind, space: 0, offset, bytes };
    Superblock {
        uuid: *b"0123456789abcdef",
        generation: 3,
        slot_bytes: MIB,
        cell_bytes: 4 * MIB,
        log_unit: 4096,
        areas: vec![
            area(AreaKind::FirstHalf, 2 * MIB, 4 * MIB),
            area(AreaKind::SecondHalf, 6 * MIB, 4 * MIB),
            area(AreaKind::Log, 10 * MIB, 64 * MIB),
            area(AreaKind::Slots, 74 * MIB, 950 * MIB),
        ],
        root: Some(RootCopy { record: b"root".to_vec(), log: SegmentNumber::new(12), half: 1 }),
    }
}

fn decode(page: &[u8]) -> Result<Superblock> {
    Superblock::decode(page, "device")
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

/// With another checksum, right for the page as it is.
fn sealed(mut page: Vec<u8>) -> Vec<u8> {
    page.truncate(SUPERBLOCK_BYTES - SUPERBLOCK_CRC_BYTES);
    let checksum = mask(crc(&page));
    put_u32(&mut page, checksum);
    page
}

/// Goal: the worked example of docs/format/slots.md is what the code writes.
#[test]
fn worked_example() {
    let page = include_str!("../../../../../../docs/format/slots.md");
    let (_, rest) = page.split_once("## Example").expect("the page has the example");
    let block = rest.split("```").nth(1).expect("the example is a code block");
    let digits = block.lines().skip(1).flat_map(|line| {
        line.split("  ").next().unwrap_or("").split_whitespace().collect::<Vec<_>>()
    });
    let listed: Vec<u8> = digits.map(|d| u8::from_str_radix(d, 16).expect("hex")).collect();
    let encoded = example().encode();
    let (fields, checksum) = listed.split_at(listed.len() - SUPERBLOCK_CRC_BYTES);
    let shown: String = encoded[..160].iter().map(|b| format!("{b:02x} ")).collect();
    assert!(encoded.starts_with(fields), "{shown}");
    assert!(encoded[fields.len()..SUPERBLOCK_BYTES - 4].iter().all(|&byte| byte == 0), "{shown}");
    assert!(encoded.ends_with(checksum), "{:02x?}", &encoded[SUPERBLOCK_BYTES - 4..]);
    assert_eq!(decode(&encoded).expect("sound"), example());
}

/// Goal: damage is an error, never another superblock (P6). Method: every bit flipped; every field
/// left out or wrong under a right checksum; a newer format; the largest content.
#[test]
fn damage_is_refused() {
    let page = example().encode();
    for bit in 0..page.len() * 8 {
        let mut bad = page.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(kind(decode(&bad)), Some(ErrorKind::Corruption), "bit {bit}");
    }
    assert_eq!(kind(decode(&page[..4095])), Some(ErrorKind::Corruption));
    let mut newer = page.clone();
    newer[SUPERBLOCK_MAGIC.len()] = 2;
    assert_eq!(kind(decode(&sealed(newer))), Some(ErrorKind::Unsupported));
    let mut long = page.clone();
    long[12..16].copy_from_slice(&5000u32.to_le_bytes());
    assert_eq!(kind(decode(&sealed(long))), Some(ErrorKind::Corruption));
    let wrong: [fn(&mut Superblock); 7] = [
        |s| s.generation = 0,
        // One more would wrap.
        |s| s.generation = u64::MAX,
        |s| s.slot_bytes = 0,
        |s| s.areas[1].offset -= 1,
        |s| s.areas[0].offset = MIB,
        |s| s.areas[3].bytes = 0,
        |s| s.areas[3].bytes = u64::MAX,
    ];
    for (at, change) in wrong.into_iter().enumerate() {
        let mut superblock = example();
        change(&mut superblock);
        assert!(superblock.check().is_err(), "change {at}");
    }
    let mut largest = example();
    largest.root.as_mut().expect("a root").record = vec![0xab; ROOT_RECORD_BYTES_MAX];
    let area = |n: u64| Area {
        kind: AreaKind::Slots,
        space: u32::MAX,
        offset: (1 << 55) + n * MIB,
        bytes: MIB,
    };
    largest.areas = (0..AREAS_MAX as u64).map(area).collect();
    assert_eq!(decode(&largest.encode()).expect("it fits a page"), largest);
}

#[cfg(feature = "sim")]
mod on_a_disk {
    use super::*;
    use crate::base::prng::Prng;
    use crate::device::Mode;
    use crate::device::sim::crash::CrashPolicy;
    use crate::device::sim::{SimDisk, SimOptions};
    use crate::device::{FileClass, part::Part};

    const NAME: &str = "device";

    fn device(disk: &SimDisk) -> Arc<dyn File> {
        let file = disk.dir().open(NAME, FileClass::Root, Mode::ReadWrite).expect("opened");
        let bytes = file.len().expect("known");
        Part::of(&file, 0..bytes, FileClass::Root)
    }

    fn blank() -> SimDisk {
        let disk = SimDisk::new(SimOptions { record: true, ..SimOptions::default() });
        let file = disk.dir().create(NAME, FileClass::Root).expect("created");
        file.set_len(4 * MIB).expect("extended");
        file.sync().expect("synced");
        disk.dir().sync().expect("synced");
        disk
    }

    fn first() -> Superblock {
        Superblock { generation: 1, root: None, ..example() }
    }

    fn format(disk: &SimDisk, first: Superblock) -> Superblocks {
        Superblocks::wipe(&device(disk)).expect("wiped");
        Superblocks::format(device(disk), first).expect("formatted")
    }

    fn set_root(superblocks: &mut Superblocks, number: u64) -> Result<()> {
        let (record, log) = (number.to_le_bytes().to_vec(), SegmentNumber::new(number + 1));
        let root = RootCopy { record, log, half: (number % 2) as u8 };
        superblocks.replace(|next| next.root = Some(root))
    }

    /// The root that a disk has; `None` before the first.
    fn root_of(disk: &SimDisk, place: &str) -> Option<u64> {
        let superblocks = Superblocks::open(device(disk)).expect(place).expect(place);
        let root = superblocks.current().root.as_ref()?;
        let number = u64::from_le_bytes(root.record[..].try_into().expect(place));
        assert_eq!((root.log.get(), root.half), (number + 1, (number % 2) as u8), "{place}");
        Some(number)
    }

    /// Goal: the power may be cut at every request: the root is the last one that was acknowledged,
    /// or the one that was being written; and so it is if the cut tears 16 KiB around a write.
    #[test]
    fn power_cuts() {
        let disk = blank();
        let formatted = disk.trace_len();
        let mut superblocks = format(&disk, first());
        disk.mark(0);
        for number in 1..8 {
            set_root(&mut superblocks, number).expect("written");
            disk.mark(number);
        }
        let mut replayer = disk.replayer();
        for boundary in formatted..=replayer.len() {
            replayer.go_to(boundary);
            let done = replayer.marks().last().copied();
            for (policy, seed) in CrashPolicy::ALL.into_iter().zip(0..).cycle().take(54) {
                let place = format!("{policy:?} {seed} at\n{}", replayer.describe(5, 3));
                let image = replayer.image(policy, seed);
                let Some(done) = done else {
                    // Being formatted: none, the first one, or none that is sound.
                    // What is torn is not sound, and the other copy is zeros or torn, too.
                    let found = Superblocks::open(device(&image));
                    let is_first = |found: Option<Superblocks>| {
                        found.is_none_or(|found| found.current == first())
                    };
                    match found {
                        Ok(found) => assert!(is_first(found), "{place}"),
                        Err(e) => assert_eq!(e.kind(), ErrorKind::Corruption, "{place}"),
                    }
                    continue;
                };
                let root = root_of(&image, &place).unwrap_or(0);
                assert!(root == done || root == done + 1, "{root} after {done}, {place}");
                // While one is being written the other one is all there is.
                let sound = |&copy: &u64| {
                    let mut page = [0; SUPERBLOCK_BYTES];
                    device(&image).read_at(&mut page, copy).expect(&place);
                    decode(&page).is_ok()
                };
                if !COPY_OFFSETS.iter().all(sound) {
                    continue;
                }
                for copy in COPY_OFFSETS {
                    let torn = image.copy();
                    let mut prng = Prng::new(seed);
                    let garbage: Vec<u8> = (0..16 << 10).map(|_| prng.next_u64() as u8).collect();
                    device(&torn).write_at(&garbage, copy).expect("written");
                    let left = root_of(&torn, &place).unwrap_or(0);
                    // A replacement that was acknowledged is in both.
                    assert!(left == done || left == done + 1, "{left} after {done}, {place}");
                }
            }
        }
    }

    fn with_copies(copies: [&[u8]; 2]) -> Result<Option<u64>> {
        let disk = blank();
        for (copy, offset) in copies.into_iter().zip(COPY_OFFSETS) {
            device(&disk).write_at(copy, offset).expect("written");
        }
        Ok(Superblocks::open(device(&disk))?.map(|found| found.current().generation))
    }

    /// Goal: which copy holds, and what is refused. Method: pairs of copies.
    #[test]
    fn the_newer_sound_copy_holds() {
        let of = |change: fn(&mut Superblock)| {
            let mut superblock = example();
            change(&mut superblock);
            superblock.encode()
        };
        let (three, four) = (of(|_| {}), of(|s| s.generation = 4));
        let (damaged, other) =
            (&[&three[..40], &[0xff], &three[41..]].concat(), of(|s| s.uuid[0] = 1));
        let mut newer = four.clone();
        newer[SUPERBLOCK_MAGIC.len()] = 2;
        let (newer, zeros) = (sealed(newer), vec![0; SUPERBLOCK_BYTES]);
        let cases: [(&[u8], &[u8], Option<u64>); 5] = [
            (&three, &four, Some(4)),
            (&three, &three, Some(3)),
            (&three, damaged, Some(3)),
            (&three, &zeros, Some(3)),
            (&zeros, &zeros, None),
        ];
        for (at, (a, b, expected)) in cases.into_iter().enumerate() {
            assert_eq!(with_copies([a, b]).expect("sound"), expected, "case {at}");
            assert_eq!(with_copies([b, a]).expect("sound"), expected, "case {at} the other way");
        }
        let differing = of(|s| s.slot_bytes = 2 * MIB);
        let refused: [(&[u8], &[u8], ErrorKind); 5] = [
            (&three, &other, ErrorKind::Corruption),
            (&three, &differing, ErrorKind::Corruption),
            (damaged, damaged, ErrorKind::Corruption),
            (&three, &newer, ErrorKind::Unsupported),
            (damaged, &newer, ErrorKind::Unsupported),
        ];
        for (at, (a, b, expected)) in refused.into_iter().enumerate() {
            assert_eq!(kind(with_copies([a, b])), Some(expected), "case {at}");
            assert_eq!(kind(with_copies([b, a])), Some(expected), "case {at} the other way");
        }
    }

    /// Goal: formatting ends an earlier life, also if it is cut off. Method: a device that has
    /// roots of a higher generation is formatted again.
    #[test]
    fn formatting_ends_an_earlier_life() {
        let disk = blank();
        let mut superblocks = format(&disk, first());
        (1..8).for_each(|number| set_root(&mut superblocks, number).expect("written"));
        let before = disk.trace_len();
        let second = Superblock { uuid: [7; 16], ..first() };
        format(&disk, second.clone());
        let mut replayer = disk.replayer();
        for boundary in before..=replayer.len() {
            replayer.go_to(boundary);
            for (policy, seed) in CrashPolicy::ALL.into_iter().zip(0..) {
                let place = format!("{policy:?} {seed} at\n{}", replayer.describe(5, 3));
                let found = Superblocks::open(device(&replayer.image(policy, seed)));
                let left = replayer.len() - boundary;
                // A copy that is torn beside one of zeros: it has to be formatted again.
                assert!(left > 0 || found.is_ok(), "{place}");
                let Ok(found) = found else { continue };
                let is_second = found.as_ref().is_some_and(|found| found.current == second);
                let is_first = found.as_ref().is_some_and(|found| found.current.uuid != [7; 16]);
                assert!(left > 0 || is_second, "{place}");
                // A write and its sync for each of four pages; the second ends the earlier life.
                assert!(!is_first || left >= 4, "the earlier life came back: {place}");
            }
        }
    }
}
