//! Bytes on disk: edits, options, the root record, and the worked examples of docs/format.

use std::sync::Arc;
use std::time::Duration;

use super::{meta, random_edit, set};
use crate::base::error::ErrorKind;
use crate::base::ids::{KeyspaceId, Lineage, Lsn, Nonce, epoch, level, lsn, segment, uid};
use crate::base::prng::Prng;
use crate::base::table_meta::TableMeta;
use crate::base::tagged::{put_field, put_number};
use crate::log::LogPosition;
use crate::options::{
    BucketRanges, CompactionBuffer, CompactionPolicy, Compression, CostModel, DebugOptions,
    Filters, HotRanges, LeveledOptions, OddChunk, Options, RunsOptions, SentinelOptions,
    TrimOptions, WarmUp,
};
use crate::version::buffer_list::ListCounts;
use crate::version::edit::{AddedTable, Flushed, ListChange, ListRequests, Rotation, VersionEdit};
use crate::version::options::{decode_options, encode_options};
use crate::version::record::RootRecord;
use crate::version::shape::{PartKind, RunId};

/// The hex bytes of the block that follows `heading` in a format page.
pub(super) fn example(page: &str, heading: &str) -> Vec<u8> {
    let (_, rest) = page.split_once(heading).expect("the page has the example");
    let block = rest.split("```").nth(1).expect("the example is a code block");
    let mut bytes = Vec::new();
    for line in block.lines().skip(1) {
        let hex = line.split("  ").next().unwrap_or("");
        for pair in hex.split_whitespace() {
            bytes.push(u8::from_str_radix(pair, 16).expect("two hex digits"));
        }
    }
    bytes
}

fn decode(bytes: &[u8]) -> crate::base::error::Result<VersionEdit> {
    VersionEdit::decode(bytes, "file", 7)
}

/// The worked examples of the format pages are what the code writes and reads.
#[test]
fn worked_examples() {
    let page = include_str!("../../../../../docs/format/root.md");
    let bytes = example(page, "## Example");
    let record = RootRecord {
        lineage: Lineage::new(0x1122_3344_5566_7788),
        version_log: segment(12),
        opening: 3,
        base_lsn: lsn(5),
        nonce: Nonce::new(300),
    };
    assert_eq!(record.encode(), bytes);
    assert_eq!(RootRecord::decode(&bytes, "ROOT").unwrap(), record);

    let page = include_str!("../../../../../docs/format/edit.md");
    let bytes = example(page, "## Example");
    let mut edit = VersionEdit {
        next_uid: Some(uid(9)),
        next_epoch: Some(epoch(5)),
        next_keyspace: Some(KeyspaceId::new(4)),
        last_seq: Some(1000),
        ..VersionEdit::default()
    };
    let part = edit.keyspace(KeyspaceId::new(3));
    part.remove_table(level(0), uid(8));
    part.set_cursor(level(1), Some(b"k".to_vec()));
    let (segment, offset, lsn, opening) = (segment(7), 4096, lsn(42), 3);
    let log_start = LogPosition { segment, offset, lsn, opening, prev_crc: 0xf3ad_bd42 };
    part.flushed = Some(Flushed { log_start, flushed_seq: 1000, durable_lsn: Lsn::new(41) });
    let mut encoded = Vec::new();
    edit.encode(&mut encoded);
    assert_eq!(encoded, bytes);
    assert_eq!(decode(&bytes).unwrap(), edit);

    let bytes = example(page, "## Parts in bytes");
    let mut edit = VersionEdit::default();
    let part = edit.keyspace(KeyspaceId::new(3));
    part.rotate(level(5), Rotation { bytes: 2_000_000, entries: 1000 });
    part.remove_table_from(level(4), PartKind::Draining, uid(8));
    let mut encoded = Vec::new();
    edit.encode(&mut encoded);
    assert_eq!(encoded, bytes);
    assert_eq!(decode(&bytes).unwrap(), edit);
    // An unknown part.
    let mut foreign = bytes.clone();
    *foreign.last_mut().unwrap() = 2;
    assert_eq!(decode(&foreign).unwrap_err().kind(), ErrorKind::Corruption);
}

/// The example of a creation has every field of options that one policy has, another one's beside
/// it, and an added table.
#[test]
fn worked_example_of_a_creation() {
    let page = include_str!("../../../../../docs/format/table_meta.md");
    let (_, block) = page.split_once("## Example").expect("the page has the example");
    let lines = block.lines().filter_map(|line| line.split_once('|'));
    let hex = lines.flat_map(|(hex, _)| hex.split_whitespace().skip(1));
    let meta: Vec<u8> = hex.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
    let meta = TableMeta::decode(&meta, "file", 0).unwrap();
    let page = include_str!("../../../../../docs/format/edit.md");
    let bytes = example(page, "## A creation in bytes");
    let common = Options::default()
        .write_buffer_bytes(1 << 20)
        .immutables_max(3)
        .block_bytes(8192)
        .table_bytes(2 << 20)
        .bloom_bits([10.0, 4.5])
        .compression([Compression::None, Compression::Lz4])
        .filters(Filters::Monkey)
        .warm_up(WarmUp::Incremental)
        .debug(DebugOptions::default().write_buffer_entries(Some(500)));
    let sizes = LeveledOptions::default()
        .level_ratio(8)
        .base_level_bytes(16 << 20)
        .l0_trigger(5)
        .expected_bytes(1 << 30);
    let mut edit = VersionEdit {
        opening: Some(1),
        hash_seed: Some(300),
        wal_durable_lsn: Some(lsn(41)),
        ..VersionEdit::default()
    };
    let part = edit.keyspace(KeyspaceId::new(3));
    part.create = Some("users".to_owned());
    part.options = Some(Arc::new(common.compaction(sizes)));
    part.add_table(level(0), epoch(4), Arc::new(meta));
    let runs = CompactionPolicy::Tiered(RunsOptions::default().runs_per_level(6));
    let tiered = Options::default().compaction(runs);
    edit.keyspace(KeyspaceId::new(4)).options = Some(Arc::new(tiered));
    let mut encoded = Vec::new();
    edit.encode(&mut encoded);
    assert_eq!(encoded, bytes, "{encoded:02x?}");
    assert_eq!(decode(&bytes).unwrap(), edit);
}

#[test]
fn random_edits_round_trip() {
    let (set, _) = set::fresh(1 << 20);
    let mut prng = Prng::new(3);
    for _ in 0..200 {
        let edit = random_edit(&set, &mut prng);
        let mut bytes = Vec::new();
        edit.encode(&mut bytes);
        let mut stored = edit.clone();
        stored.keyspaces.values_mut().for_each(|k| k.requests = ListRequests::default());
        assert_eq!(decode(&bytes).unwrap(), stored);
        set.apply(edit).unwrap();
    }
}

/// One change of every kind.
fn list_changes() -> Vec<ListChange> {
    let run = RunId { level: level(3), part: PartKind::Filling, epoch: epoch(5) };
    let draining = RunId { part: PartKind::Draining, ..run };
    let counts = ListCounts { appended: 500, shadowed: 7, quiet: true };
    vec![
        ListChange::Hole { run, smallest: b"b".to_vec(), largest: b"m".to_vec() },
        ListChange::Append { run, uid: uid(9), begins_run: true, meta: None },
        ListChange::Count { run, counts },
        ListChange::Trim { run: draining, uid: uid(8) },
        ListChange::Drop { run: draining },
        ListChange::Append {
            run: draining,
            uid: uid(9),
            begins_run: false,
            meta: Some(meta(9, "a", "b", (1, 2))),
        },
    ]
}

/// The worked example of buffer lists.
#[test]
fn worked_example_of_lists() {
    let page = include_str!("../../../../../docs/format/edit.md");
    let bytes = example(page, "## Buffer lists in bytes");
    let mut edit = VersionEdit::default();
    edit.keyspace(KeyspaceId::new(3)).lists = list_changes()[..5].to_vec();
    let mut encoded = Vec::new();
    edit.encode(&mut encoded);
    assert_eq!(encoded, bytes, "{encoded:02x?}");
    assert_eq!(decode(&bytes).unwrap(), edit);
}

/// Every cut and every flip of an edit is an error or another edit, never a panic.
#[test]
fn damaged_edits_are_refused_or_decoded() {
    let mut edit = VersionEdit::default();
    let part = edit.keyspace(KeyspaceId::new(3));
    part.create = Some("users".into());
    part.options = Some(Arc::new(Options::default()));
    part.add_table(level(1), epoch(5), meta(9, "a", "b", (1, 2)));
    part.remove_table(level(1), uid(8));
    part.remove_table_from(level(2), PartKind::Draining, uid(7));
    part.added.push(AddedTable {
        run: RunId { level: level(2), part: PartKind::Draining, epoch: epoch(4) },
        meta: meta(10, "c", "d", (1, 2)),
    });
    part.rotate(level(3), Rotation { bytes: 4000, entries: 40 });
    part.set_cursor(level(1), Some(b"k".to_vec()));
    part.flushed =
        Some(Flushed { log_start: LogPosition::ORIGIN, flushed_seq: 9, durable_lsn: Lsn::ZERO });
    part.lists = list_changes();
    let mut bytes = Vec::new();
    edit.encode(&mut bytes);
    assert_eq!(decode(&bytes).unwrap(), edit);
    for len in 1..bytes.len() {
        assert_eq!(decode(&bytes[..len]).unwrap_err().kind(), ErrorKind::Corruption, "{len}");
    }
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        if let Err(error) = decode(&flipped) {
            assert!(matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported));
        }
    }
}

#[test]
fn unknown_tags_are_refused_by_name_or_skipped() {
    let mut bytes = Vec::new();
    put_field(&mut bytes, 101, b"from the future");
    put_number(&mut bytes, 2, 77);
    assert_eq!(decode(&bytes).unwrap().next_uid, Some(uid(77)));
    put_field(&mut bytes, 102, b"");
    let error = decode(&bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("version edit") && error.to_string().contains("102"));
    // The same one level down.
    let mut part = Vec::new();
    put_number(&mut part, 2, 1);
    put_field(&mut part, 40, b"from the future");
    let mut bytes = Vec::new();
    put_field(&mut bytes, 16, &part);
    assert_eq!(decode(&bytes).unwrap_err().kind(), ErrorKind::Unsupported);
    // An unknown key order.
    let mut part = Vec::new();
    put_number(&mut part, 2, 1);
    put_field(&mut part, 18, b"reverse");
    let mut bytes = Vec::new();
    put_field(&mut bytes, 16, &part);
    let error = decode(&bytes).unwrap_err();
    assert!(error.to_string().contains("reverse"), "{error}");
}

#[test]
fn options_round_trip() {
    let options = Options::default()
        .debug(DebugOptions::default().write_buffer_entries(12))
        .bloom_bits([10.0, 0.5, 0.0])
        .compression([Compression::None, Compression::Lz4, Compression::Zstd])
        .compaction(LeveledOptions::default().l0_trigger(9).expected_bytes(1 << 40))
        .filters(Filters::Monkey)
        .warm_up(WarmUp::Incremental)
        .idle_compaction(Duration::from_micros(7007));
    let runs = CompactionPolicy::Tiered(RunsOptions::default().runs_per_level(7));
    let policies = CompactionPolicy::ALL.map(|policy| {
        let policy = policy.with_options_of(options.compaction).with_options_of(runs);
        let rest = options.idle_compaction.filter(|_| policy.level_ratio().is_some());
        options.clone().compaction(policy).idle_compaction(rest)
    });
    let trim = TrimOptions::default().threshold(0.25).interval(Duration::from_micros(1500));
    let buffers = [CompactionBuffer::Cascade, trim.into()];
    let buffers = buffers.map(|buffer| {
        options.clone().compaction(CompactionPolicy::gear()).compaction_buffer(buffer)
    });
    let sentinels = SentinelOptions::default().theta(2.5).window(Duration::from_micros(1500));
    let equal = sentinels.buckets(BucketRanges::Equal(500)).cost(CostModel::Paper);
    let sentinels = [sentinels.ways(HotRanges::Up), equal].map(|s| Options::default().sentinels(s));
    let odd_chunks = OddChunk::ALL.map(|odd_chunk| {
        let debug = DebugOptions::default().odd_chunk(odd_chunk);
        Options::default().debug(debug)
    });
    let all = policies.into_iter().chain(buffers).chain(sentinels).chain(odd_chunks);
    for options in all {
        let mut bytes = Vec::new();
        encode_options(&options, &mut bytes);
        assert_eq!(decode_options(&bytes, "file", 0).unwrap(), options);
        put_number(&mut bytes, 99, 5);
        assert_eq!(decode_options(&bytes, "file", 0).unwrap(), options);
    }
    assert_eq!(decode_options(&[], "file", 0).unwrap(), Options::default());
    let mut bytes = Vec::new();
    put_field(&mut bytes, 4, &[0, 9]);
    assert_eq!(decode_options(&bytes, "file", 0).unwrap_err().kind(), ErrorKind::Unsupported);
}

/// Goal: stores that were written when every option stood beside the policy are read: of the
/// options, the policy gets those that it has, in whatever order they come, and no others are
/// written again. Method: the bytes of that time.
#[test]
fn options_of_other_policies_are_dropped() {
    let fields: [&[u8]; 14] = [
        &[1, 4, 0x80, 0x80, 0x80, 0x20],
        &[5, 1, 4],
        &[2, 1, 2], // tiered
        &[7, 2, 0x80, 0x20],
        &[9, 4, 0x80, 0x80, 0x80, 0x10],
        &[11, 4, 0, 0, 0x20, 0x41],
        &[4, 1, 0],
        &[13, 1, 7],                            // level_ratio
        &[15, 5, 0x80, 0x80, 0x80, 0x80, 0x01], // base_level_bytes
        &[17, 1, 9],                            // l0_trigger
        &[19, 1, 6],                            // runs_per_level
        &[21, 1, 1],
        &[23, 1, 0],
        &[25, 1, 0], // expected_bytes
    ];
    let decode = |fields: &[&[u8]]| decode_options(&fields.concat(), "file", 0).unwrap();
    let without = |tags: &[u8]| -> Vec<&[u8]> {
        fields.into_iter().filter(|field| !tags.contains(&field[0])).collect()
    };
    let tiered = CompactionPolicy::Tiered(RunsOptions::default().runs_per_level(6));
    let options = Options::default().compaction(tiered).warm_up(WarmUp::None);
    let backwards: Vec<&[u8]> = fields.into_iter().rev().collect();
    assert_eq!(decode(&fields), options);
    assert_eq!(decode(&backwards), options);
    let mut bytes = Vec::new();
    encode_options(&options, &mut bytes);
    assert_eq!(bytes, without(&[13, 15, 17, 25]).concat());

    let leveled = |fields: &[&[u8]]| -> Vec<u8> {
        let policy: &[u8] = &[2, 1, 1];
        let field = |field: &&[u8]| if field[0] == 2 { policy } else { *field }.to_vec();
        fields.iter().flat_map(field).collect()
    };
    let sizes = LeveledOptions::default().level_ratio(7).base_level_bytes(256 << 20).l0_trigger(9);
    let options = Options::default().compaction(sizes).warm_up(WarmUp::None);
    for fields in [&fields[..], &backwards] {
        assert_eq!(decode_options(&leveled(fields), "file", 0).unwrap(), options);
    }
    let mut bytes = Vec::new();
    encode_options(&options, &mut bytes);
    assert_eq!(bytes, leveled(&without(&[19])));
}

#[test]
fn root_records_notice_every_flip_and_cut() {
    let record = RootRecord {
        lineage: Lineage::new(u64::MAX - 5),
        version_log: segment(12),
        opening: 3,
        base_lsn: lsn(400),
        nonce: Nonce::new(1 << 60),
    };
    let bytes = record.encode();
    assert_eq!(RootRecord::decode(&bytes, "ROOT").unwrap(), record);
    for len in 0..bytes.len() {
        assert!(RootRecord::decode(&bytes[..len], "ROOT").is_err());
    }
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let error = RootRecord::decode(&flipped, "ROOT").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "bit {bit}");
    }
}

#[test]
fn root_records_of_a_newer_format_are_refused() {
    let mut bytes = RootRecord {
        lineage: Lineage::new(1),
        version_log: segment(1),
        opening: 1,
        base_lsn: lsn(1),
        nonce: Nonce::NONE,
    }
    .encode();
    bytes.truncate(bytes.len() - 4);
    bytes[0] = 2;
    let checksum = crate::base::checksum::mask(crate::base::checksum::crc(&bytes));
    bytes.extend_from_slice(&checksum.to_le_bytes());
    let error = RootRecord::decode(&bytes, "ROOT").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}
