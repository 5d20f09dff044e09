//! A store on a simulated disk that it fills.

use weir::sim::{
    Dir, DiskModel, FileClass, Settings, SimDisk, SimOptions, Simulation, TimedDir, TimedOptions,
};
use weir::{Db, DbOptions, ErrorKind, Options};

/// Goal: a store that fills its disk refuses writes with `NoSpace` and answers reads, and goes on
/// when there is space again. Method: a file that is nobody's is removed then.
#[test]
fn a_store_fills_its_disk() {
    let settings = Settings { switch_every: 1 << 40, ..Settings::new(1) };
    let written = Simulation::run_with(settings, |simulation| {
        let content = SimDisk::new(SimOptions::default());
        let capacity_bytes = 24 << 20;
        let options = TimedOptions { capacity_bytes, ..TimedOptions::new(DiskModel::SATA_SSD) };
        let dir = TimedDir::new(content.dir(), weir::sim::class_of, options).expect("empty");
        let options = Options::default().write_buffer_bytes(256 << 10).table_bytes(256 << 10);
        let store = DbOptions::default().log_segment_bytes(256 << 10);
        let builder = Db::builder("full").device(dir.dir()).seed(1).options(store);
        let db = builder.default_options(options).open().expect("opened");
        let other = dir.create("other.bin", FileClass::Other).expect("create");
        other.set_len(12 << 20).expect("half of the disk");
        drop(other);
        let put = |number: u64| db.put(number.to_be_bytes(), [7; 4096]);
        let refused = (0..10_000).find_map(|number| put(number).err().map(|e| (number, e)));
        let (written, error) = refused.expect("12 MB are full before 40 MB are written");
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        assert!(written > 500, "{written} values of 4 KiB");
        for number in 0..written {
            let value = db.get(number.to_be_bytes()).expect("read");
            assert_eq!(value.as_deref(), Some([7; 4096].as_slice()), "{number} of {written}");
        }
        dir.unlink("other.bin", FileClass::Other).expect("unlink");
        simulation.delay(std::time::Duration::from_secs(60));
        (written..written + 500).for_each(|number| put(number).expect("there is space again"));
        db.close().expect("closed");
        written
    });
    assert!(written.is_ok(), "{written:?}");
}
