//! The kernel's trace of a block device's requests (tracefs, `block:block_rq_issue`).
//!
//! An instance of its own, so that nobody else's trace is disturbed. Nothing is left behind:
//! neither the instance nor a mount of tracefs that was made for it.

use std::path::{Path, PathBuf};

use weir_bench::loop_device::{run, unique};

/// Where tracefs is by custom.
const USUAL: &str = "/sys/kernel/tracing";

/// Kilobytes of trace for each processor: some 200,000 requests.
const BUFFER_KB: &str = "32768";

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It writes what a file system calls its own: its metadata and its journal.
    Metadata,
    /// Any other write.
    Data,
    /// A flush of the device's cache.
    Flush,
    /// A read.
    Read,
    /// A discard, or what else there is.
    Other,
}

/// A request that was given to the device.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Seconds since the first one.
    pub seconds: f64,
    /// What it does.
    pub kind: Kind,
    /// Its first byte on the device.
    pub at: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Whether it must be on the medium when it ends.
    pub forced: bool,
}

/// A running trace.
#[derive(Debug)]
pub(super) struct Trace {
    instance: PathBuf,
    mounted: Option<PathBuf>,
}

fn failed(what: &str, path: &Path) -> impl FnOnce(std::io::Error) -> String {
    let text = format!("{what} {}", path.display());
    move |error| format!("{text}: {error}; a block trace needs root and tracefs")
}

impl Trace {
    /// Begins to record the requests of one device; `dir` is for a mount of tracefs, where it is
    /// not mounted.
    pub(super) fn start(device: u32, dir: &Path) -> Result<Self, String> {
        let mut mounted = None;
        let mut root = PathBuf::from(USUAL);
        if !root.join("instances").is_dir() {
            root = unique(dir, "tracefs");
            std::fs::create_dir_all(&root).map_err(failed("making", &root))?;
            mounted = Some(root.clone());
        }
        let instance = root.join(format!("instances/weir-{}", std::process::id()));
        let this = Self { instance, mounted };
        if let Some(at) = &this.mounted {
            run("mount", &["-t", "tracefs", "nodev", &at.to_string_lossy()])?;
        }
        std::fs::create_dir(&this.instance).map_err(failed("making", &this.instance))?;
        this.set("buffer_size_kb", BUFFER_KB)?;
        this.set("trace_clock", "mono")?;
        this.set("events/block/block_rq_issue/filter", &format!("dev == {device}"))?;
        this.set("events/block/block_rq_issue/enable", "1")?;
        Ok(this)
    }

    fn set(&self, name: &str, value: &str) -> Result<(), String> {
        let path = self.instance.join(name);
        #[expect(clippy::disallowed_methods, reason = "a switch of the kernel's")]
        std::fs::write(&path, value).map_err(failed("writing", &path))
    }

    fn read(&self, name: &str) -> Result<String, String> {
        let path = self.instance.join(name);
        std::fs::read_to_string(&path).map_err(failed("reading", &path))
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// That it cannot be read, or some of it was overwritten.
    pub(super) fn finish(self) -> Result<Vec<Request>, String> {
        self.set("tracing_on", "0")?;
        let text = self.read("trace")?;
        for line in text.lines().filter(|line| line.starts_with("# entries-in-buffer")) {
            let mut numbers = line.split(|c: char| !c.is_ascii_digit()).filter(|n| !n.is_empty());
            if let (Some(kept), Some(written)) = (numbers.next(), numbers.next())
                && kept != written
            {
                return Err(format!("of {written} requests {kept} were kept: trace fewer"));
            }
        }
        let mut requests: Vec<Request> = text.lines().filter_map(parse).collect();
        let first = requests.first().map_or(0.0, |request| request.seconds);
        requests.iter_mut().for_each(|request| request.seconds -= first);
        Ok(requests)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if self.instance.is_dir()
            && let Err(error) = std::fs::remove_dir(&self.instance)
        {
            eprintln!("removing {}: {error}", self.instance.display());
        }
        if let Some(at) = &self.mounted {
            let unmounted = run("umount", &[&at.to_string_lossy()]);
            let removed = std::fs::remove_dir(at).map_err(|error| error.to_string());
            if let Err(error) = unmounted.and(removed) {
                eprintln!("{}: {error}", at.display());
            }
        }
    }
}

/// One line of a trace, such as `weir-7 [001] ..... 12.345678: block_rq_issue: 7,0 WS 4096 () 2048
/// + 8 none,0,0 [weir]`.
fn parse(line: &str) -> Option<Request> {
    let (head, tail) = line.split_once(": block_rq_issue: ")?;
    let seconds = head.split_whitespace().next_back()?.parse().ok()?;
    let mut words = tail.split_whitespace();
    let (_device, flags) = (words.next()?, words.next()?);
    let (given, _plus) = tail.split_once(" + ")?;
    let sector: u64 = given.split_whitespace().next_back()?.parse().unwrap_or(0);
    let sectors: u64 = tail.split_once(" + ")?.1.split_whitespace().next()?.parse().ok()?;
    // A flush before the operation comes first; then the operation; then what it is like.
    let (flushes, rest) = match flags.strip_prefix('F') {
        Some(rest) if !rest.is_empty() => (true, rest),
        _ => (false, flags),
    };
    let (operation, likes) = rest.split_at_checked(1)?;
    let kind = match operation {
        // Zeros that the device writes by itself.
        "W" if likes.starts_with('Z') => Kind::Other,
        "W" if sectors > 0 && likes.contains('M') => Kind::Metadata,
        "W" if sectors > 0 => Kind::Data,
        "F" | "W" => Kind::Flush,
        "R" => Kind::Read,
        _ if flushes => Kind::Flush,
        _ => Kind::Other,
    };
    let forced = likes.contains('F');
    Some(Request { seconds, kind, at: sector * 512, bytes: sectors * 512, forced })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let line = |flags: &str, sector: u64, sectors: u64| {
            format!(
                "  weir-7   [001] d..1.  12.345678: block_rq_issue: 7,0 {flags} {} () {sector} + \
                 {sectors} none,0,0 [weir]",
                sectors * 512
            )
        };
        let read = |flags: &str, sectors: u64| parse(&line(flags, 2048, sectors)).unwrap();
        let request = read("WS", 8);
        assert_eq!((request.kind, request.at, request.bytes), (Kind::Data, 1 << 20, 4096));
        assert!((request.seconds - 12.345_678).abs() < 1e-9 && !request.forced);
        assert_eq!(read("WSM", 8).kind, Kind::Metadata);
        assert_eq!(read("FF", 0).kind, Kind::Flush);
        assert_eq!(read("R", 8).kind, Kind::Read);
        assert_eq!(read("DS", 8).kind, Kind::Other);
        let forced = read("WFSM", 8);
        assert!(forced.forced && forced.kind == Kind::Metadata);
        let both = read("FWFS", 8);
        assert!(both.forced && both.kind == Kind::Data);
        assert_eq!(parse("# tracer: nop"), None);
    }
}
