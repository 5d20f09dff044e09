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
    /// The keyspace that is given the options
    #[arg(long, value_name = "NAME", default_value = "default")]
    keyspace: String,
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
        for keyspace in &description.keyspaces {
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
    if !db.keyspaces().contains(&args.keyspace) {
        let names: Vec<_> =
            db.keyspaces().iter().map(|name| Quoted(name.as_bytes()).to_string()).collect();
        return Err(Failure::usage(format_args!(
            "there is no keyspace {} in {}; it has {}",
            Quoted(args.keyspace.as_bytes()),
            args.dir.display(),
            names.join(", ")
        )));
    }
    let keyspace = db.keyspace(&args.keyspace)?;
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
    let name = Quoted(args.keyspace.as_bytes()).to_string();
    writeln!(out, "{name}: {}", options_line(&keyspace.options()))?;
    Ok(db.close()?)
}
