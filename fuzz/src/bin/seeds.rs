//! Writes the first inputs of the corpora: a few sound ones of each kind, from the fixtures.
//!
//! `cargo run --manifest-path fuzz/Cargo.toml --bin seeds`, in the root of the repository.

use std::path::Path;

fn write(target: &str, name: &str, bytes: &[u8]) {
    let dir = Path::new("fuzz/corpus").join(target);
    std::fs::create_dir_all(&dir).expect("the corpus can be made");
    std::fs::write(dir.join(name), bytes).expect("a seed can be written");
}

/// The blocks of the pages of docs/format that show bytes: `hex` blocks, one part a line.
fn examples(page: &str) -> Vec<Vec<u8>> {
    let path = format!("docs/format/{page}.md");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let byte = |word: &str| u8::from_str_radix(word, 16).ok().filter(|_| word.len() == 2);
    let line = |line: &str| -> Vec<u8> {
        let line = line.split('|').next().unwrap_or("");
        line.split_whitespace().skip_while(|word| word.len() == 4).map_while(byte).collect()
    };
    text.split("```hex\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .map(|block| block.lines().flat_map(line).collect())
        .collect()
}

fn main() {
    for lz4 in [false, true] {
        let table = weir::fuzz::sample_table(lz4);
        write("table", if lz4 { "lz4" } else { "plain" }, &table);
        let index_bytes = table[table.len() - 64..][..8].first_chunk::<8>();
        let data_bytes = table[table.len() - 72..][..8].first_chunk::<8>();
        let [index_bytes, data_bytes] =
            [index_bytes, data_bytes].map(|b| b.map_or(0, |b| u64::from_le_bytes(*b)) as usize);
        let index = &table[data_bytes..data_bytes + index_bytes];
        write("index", "one", &[&(data_bytes as u32).to_le_bytes()[..], index].concat());
    }
    let segment = weir::fuzz::sealed_segment(&[1, 1, 0, 2, 97, 98, 1, 99]);
    let log = [&[0][..], &(segment.len() as u16).to_le_bytes(), &segment].concat();
    write("log", "one", &log);
    for (target, page) in [
        ("block", "block"),
        ("table", "table"),
        ("table_meta", "table_meta"),
        ("edit", "edit"),
        ("root", "root"),
        ("log", "log"),
    ] {
        for (n, bytes) in examples(page).iter().enumerate() {
            let bytes = if target == "root" { &bytes[..bytes.len() - 4] } else { bytes };
            write(target, &format!("example-{n}"), bytes);
        }
    }
    write("options", "two", &[1, 2, 128, 32, 2, 1, 1, 11, 4, 0, 0, 32, 65, 4, 2, 0, 1]);
    write("batch", "two", &[1, 0, 2, 97, 98, 3, 120, 121, 122, 2, 172, 2, 0]);
    write("filter", "one", &[7; 80]);
    write("lines", "all", b"i,1,2\nu,1,-3\nd,1\ng,4\r\nr,1,9\n");
    let calls: Vec<u8> = (0..120u8).flat_map(|n| [n.wrapping_mul(7), n]).collect();
    write("ops", "mixed", &[&[1, 2, 3, 4, 5][..], &calls].concat());
}
