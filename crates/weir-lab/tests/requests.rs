//! What a store on a real block device asks of it, by the kernel's own trace. Needs root.

use weir_lab::blocks::{self, Form, Kind, Work};
use weir_lab::result::Verdict;

/// Goal: a store on slots writes its own and nothing else: a load tables, trailers and edits, a
/// synced insert one request and one flush; in files on ext4 a journal and more. Method: loop
/// devices, the trace of their requests beside what the store says that it wrote.
#[test]
fn a_store_on_slots_writes_its_own_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let device_bytes = 256 << 20;
    let load = Work { device_bytes, inserts: 60_000, value_bytes: 1000, synced: false };
    let inserts = Work { device_bytes, inserts: 300, value_bytes: 100, synced: true };
    if let Err(error) = blocks::check_machine(dir.path()) {
        return println!("skipped: {error}");
    }
    let slots = blocks::trace(Form::Slots, load, dir.path()).unwrap();
    let synced = blocks::trace(Form::Slots, inserts, dir.path()).unwrap();
    let ext4 = blocks::trace(Form::Ext4, load, dir.path()).unwrap();
    assert!(ext4.count(Kind::Metadata) > 0, "the trace knows what is a file system's own");
    let mut results = vec![blocks::pattern(&slots, load), blocks::pattern(&ext4, load)];
    results.push(blocks::synced(&[synced], inserts));
    for number in results.iter().flat_map(|result| &result.numbers) {
        println!("{}: {} {}", number.name, number.ours, number.unit);
    }
    for number in results.iter().flat_map(|result| &result.numbers) {
        assert_ne!(number.verdict(), Verdict::Fails, "{}: {}", number.name, number.ours);
    }
    #[expect(clippy::disallowed_methods, reason = "a folder of the laboratory, not a store's")]
    let left = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(left, 0, "nothing is left behind");
}
