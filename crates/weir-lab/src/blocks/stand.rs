//! A store on a loop device of its own, on slots or in files, or the bare device; and a neighbour
//! on the same device.

use std::path::{Path, PathBuf};

use weir::{Db, FormatOptions, Options};
use weir_bench::loop_device::{Loop, Mounted};

use super::Form;

/// Where one store lies. The fields are in the order in which they are taken down.
pub(super) struct Stand {
    form: Option<Form>,
    db: Option<Db>,
    mounted: Option<Mounted>,
    /// A file system behind the end of a device that has none.
    rest: Option<(Mounted, Loop)>,
    device: Loop,
}

/// What a stand is made of.
#[derive(Clone, Debug)]
pub(super) struct Plot {
    /// Where the store lies; `None`: there is none.
    pub(super) form: Option<Form>,
    /// Bytes of the device.
    pub(super) bytes: u64,
    /// Bytes of a slot; `None`: the default.
    pub(super) slot_bytes: Option<u64>,
    /// Bytes of the write-ahead log's area on slots; `None`: the default.
    pub(super) log_bytes: Option<u64>,
    /// Bytes behind it, on the same disk, for a neighbour that finds no file system on it; 0: none.
    pub(super) rest_bytes: u64,
}

impl Stand {
    /// A new device whose image lies in `dir`, with a store of `options` on it. Images are written
    /// in full first: an extent that the file below was only promised is first made one of its own,
    /// with its journal.
    pub(super) fn new(plot: &Plot, options: &Options, dir: &Path) -> Result<Self, String> {
        let of_files = plot.form.is_some_and(|form| form != Form::Slots);
        let rest_bytes = if of_files { 0 } else { plot.rest_bytes };
        let (device, rest) = Loop::written(dir, plot.bytes, rest_bytes)?;
        let mut this = Self { form: plot.form, db: None, mounted: None, rest: None, device };
        if let Some(rest) = rest {
            this.rest = Some((Mounted::new(&rest, Form::Ext4.name(), dir)?, rest));
        }
        match plot.form {
            None => return Ok(this),
            Some(Form::Slots) => {
                let mut format = FormatOptions::new();
                (format.slot_bytes, format.log_bytes) = (plot.slot_bytes, plot.log_bytes);
                let formatted = weir::format(this.device.path(), &format);
                formatted.map_err(|error| error.to_string())?;
            }
            Some(form) => this.mounted = Some(Mounted::new(&this.device, form.name(), dir)?),
        }
        this.open(options)?;
        Ok(this)
    }

    /// Opens the store, closed before if it is open.
    pub(super) fn open(&mut self, options: &Options) -> Result<(), String> {
        self.db = None;
        let at = match &self.mounted {
            Some(mounted) => mounted.path().join("store"),
            None => self.device.path().to_owned(),
        };
        let opened = Db::builder(at).default_options(options.clone()).open();
        self.db = Some(opened.map_err(|error| error.to_string())?);
        Ok(())
    }

    /// The store, if this is not the bare device.
    pub(super) fn db(&self) -> Option<&Db> {
        self.db.as_ref()
    }

    /// `raw`, or the name of the form.
    pub(super) fn place(&self) -> &'static str {
        self.form.map_or("raw", Form::name)
    }

    /// The device.
    pub(super) fn device(&self) -> &Path {
        self.device.path()
    }

    /// A folder on the same disk for somebody else's files; `None` without a file system there.
    pub(super) fn beside(&self) -> Option<PathBuf> {
        let mounted = self.mounted.as_ref().or(self.rest.as_ref().map(|(mounted, _)| mounted));
        mounted.map(|mounted| mounted.path().join("neighbour"))
    }
}
