//! `weir options`: what options the keyspaces of a store have, and giving one other ones.

use crate::failure::{Failure, Result};
use crate::inspect::{explain, open_read_only, options_line};
use crate::show::parse_size;
use crate::tree::{TreeArgs, flag};
use crate::words::Quoted;
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use weir::{Db, Options};

/// Options of `weir options`.
#[derive(Args, Debug)]
pub(crate) struct OptionsArgs {
    /// The store: a directory, or a file or device that `weir format` made one. Without further
    /// options those of its keyspaces are shown
    dir: PathBuf,
    /// The keyspace that is given the options, or whose are shown [default: the default keyspace;
    /// all are shown]
    #[arg(long, value_name = "NAME")]
    keyspace: Option<String>,
    /// Bytes of the write buffer (k, m, g)
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    write_buffer: Option<u64>,
    /// Bits per key of the Bloom filters
    #[arg(long, value_name = "BITS")]
    bloom_bits: Option<u32>,
    #[command(flatten)]
    tree: TreeArgs,
    /// Wait until compactions have given the tree the form that the options ask for; else they go
    /// on whenever the store is open
    #[arg(long)]
    wait: bool,
}

impl OptionsArgs {
    /// What was given, as it is typed.
    fn given(&self) -> Vec<String> {
        let own =
            [flag("--write-buffer", self.write_buffer), flag("--bloom-bits", self.bloom_bits)];
        own.into_iter().flatten().chain(self.tree.given()).collect()
    }

    fn keyspace_to_change(&self) -> &str {
        self.keyspace.as_deref().unwrap_or("default")
    }

    /// The refusal of a keyspace that the store does not have; `known`: those that it has.
    fn unknown(&self, known: impl IntoIterator<Item = String>) -> Failure {
        let known = known.into_iter().map(|name| Quoted(name.as_bytes()).to_string());
        Failure::new(format_args!(
            "there is no keyspace {} in {}; it has {}",
            Quoted(self.keyspace_to_change().as_bytes()),
            self.dir.display(),
            known.collect::<Vec<_>>().join(", ")
        ))
    }

    fn apply(&self, options: &mut Options) -> Result<()> {
        options.write_buffer_bytes = self.write_buffer.unwrap_or(options.write_buffer_bytes);
        if let Some(bits) = self.bloom_bits {
            options.bloom_bits = vec![bits as f32];
        }
        self.tree.apply(options)
    }
}

/// Runs `weir options`.
pub(crate) fn run(args: &OptionsArgs, out: &mut dyn Write) -> Result<()> {
    if args.given().is_empty() && !args.wait {
        let db = open_read_only(&args.dir)?;
        let description = db.describe();
        db.close()?;
        let is_asked = |name: &str| args.keyspace.as_ref().is_none_or(|asked| asked == name);
        let names = || description.keyspaces.iter().map(|keyspace| keyspace.name.clone());
        if !names().any(|name| is_asked(&name)) {
            return Err(args.unknown(names()));
        }
        for keyspace in description.keyspaces.iter().filter(|keyspace| is_asked(&keyspace.name)) {
            let (name, options) = (Quoted(keyspace.name.as_bytes()), &keyspace.options);
            writeln!(out, "{name}: {}", options_line(options))?;
        }
        return Ok(());
    }
    // Nothing is opened for a command line that is wrong whatever the store has.
    let mut asked = Options::default().compaction(args.tree.fitting_policy());
    if args.tree.apply(&mut asked).is_ok() {
        asked.validate().map_err(|e| Failure::options(&e))?;
    }
    let opened = Db::builder(&args.dir).create_if_missing(false).open();
    let db = opened.map_err(|e| explain(&args.dir, e))?;
    let name = args.keyspace_to_change();
    if !db.keyspaces().iter().any(|known| known == name) {
        return Err(args.unknown(db.keyspaces()));
    }
    let keyspace = db.keyspace(name)?;
    let stored = keyspace.options();
    let mut wanted = stored.clone();
    args.apply(&mut wanted)?;
    wanted.validate().map_err(|e| Failure::options(&e))?;
    if wanted == stored {
        writeln!(out, "nothing to change")?;
    } else {
        keyspace.set_options(wanted)?;
        writeln!(out, "set: {}", args.given().join(" "))?;
    }
    if args.wait {
        db.wait_idle()?;
    }
    let name = Quoted(name.as_bytes());
    writeln!(out, "{name}: {}", options_line(&keyspace.options()))?;
    Ok(db.close()?)
}
