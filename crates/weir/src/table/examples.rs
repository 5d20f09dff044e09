//! The worked examples of the format pages, built and compared with the pages.

use std::sync::Arc;

use crate::base::ids::uid;
use crate::base::key::Kind;
use crate::table::block::BlockBuilder;
use crate::table::testing::*;

const TABLE_PAGE: &str = include_str!("../../../../docs/format/table.md");
const BLOCK_PAGE: &str = include_str!("../../../../docs/format/block.md");
const META_PAGE: &str = include_str!("../../../../docs/format/table_meta.md");

/// The entries of all three examples.
fn entries() -> Vec<Entry> {
    vec![
        (b"apple".to_vec(), 5, Kind::Put, b"red".to_vec()),
        (b"apple".to_vec(), 3, Kind::Delete, Vec::new()),
        (b"apricot".to_vec(), 4, Kind::Put, b"orange".to_vec()),
    ]
}

/// The bytes of the page's only `hex` listing: in each line an offset, bytes, and a remark after
/// `|`.
fn listing(page: &str) -> Vec<u8> {
    let start = page.find("```hex\n").expect("a format page has a hex listing") + 7;
    let lines = page[start..].lines().take_while(|line| !line.starts_with("```"));
    let mut bytes = Vec::new();
    for line in lines {
        let (dump, _) = line.split_once('|').unwrap_or((line, ""));
        let mut words = dump.split_whitespace();
        let offset = words.next().expect("a line of a listing begins with its offset");
        assert_eq!(usize::from_str_radix(offset, 16), Ok(bytes.len()), "offset in {line:?}");
        bytes.extend(words.map(|word| u8::from_str_radix(word, 16).expect(line)));
    }
    bytes
}

fn assert_listed(page: &str, built: &[u8]) {
    let dump: Vec<String> = built
        .chunks(8)
        .enumerate()
        .map(|(i, row)| {
            let bytes: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{:04x} {}", i * 8, bytes.join(" "))
        })
        .collect();
    assert!(listing(page) == built, "the page differs from what is built:\n{}", dump.join("\n"));
}

#[test]
fn block_page_shows_what_is_built() {
    let mut builder = BlockBuilder::default();
    for (key, seq, kind, value) in entries() {
        builder.add(&key, seq, kind, &value);
    }
    let mut bytes = Vec::new();
    builder.finish(&mut bytes, &mut Vec::new());
    assert_listed(BLOCK_PAGE, &bytes);
}

#[test]
fn table_and_description_pages_show_what_is_built() {
    let storage = Arc::new(MemoryTables::default());
    let options = crate::table::TableOptions { bloom_bits: 0.0, ..options(4096) };
    let meta = write_table(&storage, uid(7), options, &entries());
    let mut described = Vec::new();
    meta.encode(&mut described);
    assert_listed(META_PAGE, &described);
    assert_listed(TABLE_PAGE, &storage.bytes_of(uid(7)));
}
