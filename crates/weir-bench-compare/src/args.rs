//! The command line.

use crate::engines;
use crate::task::{Row, Sizes};
use std::path::PathBuf;
use std::str::FromStr;
use weir_bench::Workload;

/// How to call the program.
pub const USAGE: &str = "\
weir-bench-compare: the same workloads on Weir, RocksDB, LevelDB and fjall, interleaved

usage: weir-bench-compare [options]
       weir-bench-compare full [options]       pairs until a device is full; see full --help
       weir-bench-compare synced [options]     synced inserts on file systems; see synced --help

what runs
  --engines LIST        comma-separated, from weir,rocksdb,leveldb,fjall     (all)
                        and variants of them: weir-none, weir-incremental (warm-up),
                        weir-on (sentinels, as they are by default), weir-up, weir-down
                        (only moved up; only merged down), weir-tiered, weir-tiered-up
                        (the policy; with hot ranges moved up), weir-POLICY,
                        weir-slots, weir-POLICY-slots (in one file of 4 GiB),
                        rocksdb-warm-flush, rocksdb-warm-all (prepopulate_block_cache),
                        rocksdb-larger (a cache of 106 %), rocksdb-read-triggered
                        (tables that are read much are compacted); and lmdb, a B+tree
  --workloads LIST      comma-separated                                      (a dozen)
  --rows LIST           equal: the settings below for all; defaults: each
                        engine's own                                         (equal,defaults)
  --rounds N            how often everything is repeated                     (5)
  --num N               keys in the store                                    (1000000)
  --ops N               operations of workloads that do not load; 0: num     (0)
  --seconds S           stop a workload that does not load after S seconds
  --warm-seconds S      run it for S seconds before it is measured           (0)
  --write-rate N        writes per second beside readers; 0: unlimited       (0)
  --threads N           client threads                                       (1)
  --key-size BYTES      bytes of a key                                       (16)
  --value-size BYTES    bytes of a value                                     (100)
  --batch N             puts per write of fills and overwrite                (1)
  --scan-entries N      entries per seek                                     (10)
  --seed N              fixes keys, values and order                         (42)
  --keep-stores         load once, not anew in every round
  --windows             keep what happened in each second, in the JSON file
  --counts-hits         let RocksDB count the hits of its cache, which costs it time
  --plot FILE           draw the reads of each second (SVG); implies --windows

equal settings
  --write-buffer BYTES --cache BYTES --block BYTES --bloom-bits N --background-threads N
                        sizes may end in k, m or g                           (64m 256m 4k 10 2)

the machine
  --dir DIR             where the stores are; emptied        (weir-bench-compare.data)
  --cgroup-memory BYTES each measurement in a cgroup of this size, page cache included (root)
  --read-iops N         hold the device of --dir to N read requests per second,
                        with --cgroup-memory
  --drop-caches         empty the page cache before each measurement (root)
  --json FILE           all samples and ratios; rewritten after every measurement";

/// Workloads of the usual comparison.
const WORKLOADS: &str = "fillseq,fillsync,fillrandom,overwrite,readrandom,readmissing,readseq,\
                         seekrandom,readwhilewriting,ycsb-a,ycsb-b,ycsb-e";

/// What was asked for.
#[derive(Debug)]
pub struct Args {
    pub engines: Vec<String>,
    pub workloads: Vec<Workload>,
    pub rows: Vec<Row>,
    pub rounds: usize,
    pub keep_stores: bool,
    pub sizes: Sizes,
    pub dir: PathBuf,
    pub cgroup_memory: Option<u64>,
    pub read_iops: Option<u64>,
    pub plot: Option<PathBuf>,
    pub drop_caches: bool,
    pub json: Option<PathBuf>,
}

impl Args {
    /// Reads the words after the program's name; `None` if help is wanted.
    ///
    /// # Errors
    /// A sentence about the first word that is wrong.
    pub fn parse(words: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut args = Self {
            engines: engines::all().iter().map(|kind| kind.name().to_owned()).collect(),
            workloads: list(WORKLOADS)?,
            rows: vec![Row::Equal, Row::Defaults],
            rounds: 5,
            keep_stores: false,
            sizes: Sizes::default(),
            dir: PathBuf::from("weir-bench-compare.data"),
            cgroup_memory: None,
            read_iops: None,
            plot: None,
            drop_caches: false,
            json: None,
        };
        let mut words = words;
        while let Some(word) = words.next() {
            match word.as_str() {
                "--help" | "-h" | "help" => return Ok(None),
                "--keep-stores" => args.keep_stores = true,
                "--drop-caches" => args.drop_caches = true,
                "--windows" => args.sizes.windows = true,
                "--counts-hits" => args.sizes.counts_hits = true,
                option => {
                    let value = words.next().ok_or_else(|| format!("{option} needs a value"))?;
                    args.set(option, &value).map_err(|error| format!("{option}: {error}"))?;
                }
            }
        }
        if args.rounds == 0 {
            return Err("--rounds: at least 1".to_owned());
        }
        if args.read_iops.is_some() && args.cgroup_memory.is_none() {
            return Err("--read-iops: needs --cgroup-memory".to_owned());
        }
        args.sizes.config().validate().map_err(|error| error.to_string())?;
        Ok(Some(args))
    }

    fn set(&mut self, option: &str, value: &str) -> Result<(), String> {
        let sizes = &mut self.sizes;
        match option {
            "--engines" => {
                self.engines = list(value)?;
                if let Some(name) = self.engines.iter().find(|n| engines::named(n).is_none()) {
                    return Err(format!("there is no engine {name:?}"));
                }
            }
            "--workloads" => self.workloads = list(value)?,
            "--rows" => self.rows = list(value)?,
            "--rounds" => self.rounds = number(value)?,
            "--num" => sizes.num = number(value)?,
            "--ops" => sizes.ops = number(value)?,
            "--seconds" => sizes.seconds = Some(number(value)?),
            "--warm-seconds" => sizes.warm_seconds = number(value)?,
            "--write-rate" => sizes.write_rate = number(value)?,
            "--threads" => sizes.threads = number(value)?,
            "--key-size" => sizes.key_bytes = number(value)?,
            "--value-size" => sizes.value_bytes = number(value)?,
            "--batch" => sizes.batch = number(value)?,
            "--scan-entries" => sizes.scan_entries = number(value)?,
            "--seed" => sizes.seed = number(value)?,
            "--write-buffer" => sizes.write_buffer_bytes = bytes(value)?,
            "--cache" => sizes.cache_bytes = bytes(value)?,
            "--block" => {
                sizes.block_bytes = u32::try_from(bytes(value)?).map_err(|e| e.to_string())?;
            }
            "--bloom-bits" => sizes.bloom_bits = number(value)?,
            "--background-threads" => sizes.background_threads = number(value)?,
            "--dir" => self.dir = PathBuf::from(value),
            "--cgroup-memory" => {
                self.cgroup_memory = Some(bytes(value)?);
                sizes.memory_bytes = self.cgroup_memory;
            }
            "--read-iops" => self.read_iops = Some(number(value)?),
            "--plot" => {
                self.plot = Some(PathBuf::from(value));
                self.sizes.windows = true;
            }
            "--json" => self.json = Some(PathBuf::from(value)),
            _ => return Err("no such option; see --help".to_owned()),
        }
        Ok(())
    }
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is no such number"))
}

/// A number of bytes; `k`, `m`, `g` are powers of 1,024.
fn bytes(text: &str) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    let (digits, shift) = match lower.strip_suffix(['k', 'm', 'g']) {
        Some(digits) if lower.ends_with('k') => (digits, 10),
        Some(digits) if lower.ends_with('m') => (digits, 20),
        Some(digits) => (digits, 30),
        None => (lower.as_str(), 0),
    };
    number::<u64>(digits)?.checked_shl(shift).ok_or_else(|| format!("{text:?} is too large"))
}

fn list<T: FromStr>(text: &str) -> Result<Vec<T>, String>
where
    T::Err: std::fmt::Display,
{
    text.split(',').map(|word| word.trim().parse().map_err(|e: T::Err| e.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Option<Args>, String> {
        Args::parse(words.iter().map(|&word| word.to_owned()))
    }

    /// Goal: the defaults are valid, and every size and list reaches its place.
    #[test]
    fn options_are_read() {
        assert!(parse(&[]).is_ok_and(|args| args.is_some()));
        assert!(parse(&["--rounds", "2", "--help"]).is_ok_and(|args| args.is_none()));
        let words = ["--cache", "64m", "--engines", "weir,fjall", "--cgroup-memory", "256M"];
        let args = parse(&words).expect("valid").expect("no help");
        assert_eq!(args.sizes.cache_bytes, 64 << 20);
        assert_eq!(args.cgroup_memory, Some(256 << 20));
        assert_eq!(args.engines, ["weir", "fjall"]);
    }

    /// Goal: a wrong word is refused in a sentence that names it.
    #[test]
    fn wrong_words_are_named() {
        for (words, part) in [
            (&["--engines", "weird"][..], "weird"),
            (&["--workloads", "fill"], "fill"),
            (&["--num"], "needs a value"),
            (&["--num", "many"], "many"),
            (&["--fast", "1"], "no such option"),
            (&["--rounds", "0"], "at least 1"),
            (&["--key-size", "2"], "key-size"),
        ] {
            let error = parse(words).expect_err("refused");
            assert!(error.contains(part), "{words:?}: {error}");
        }
    }
}
