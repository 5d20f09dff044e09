//! What campaign C asks of every image that opens, besides its content: a read-only opening shows
//! what the ordinary one will show and changes nothing, and neither does a repair, but of one of
//! two superblocks that is torn.
//!
//! Called before the image is opened for writing, as an actor of the image's simulation. Works on
//! a copy of the image.

use weir::ErrorKind;

use crate::history::{Content, read_all};
use crate::options::Pair;
use crate::world::Disk;

/// Opens a copy of `image` for reading, and repairs it; what the reader saw. `None` if there is no
/// store on it yet.
///
/// # Errors
/// What the reader could not open or read; what the repair refused or changed.
pub fn examine(image: &Disk, seed: u64, options: &Pair) -> Result<Option<Content>, String> {
    let copy = image.kill();
    copy.make_lock_file()?;
    let before = copy.fingerprint();
    let builder = || copy.builder(seed).options(options.0.clone());
    let content = match builder().read_only(true).open() {
        Ok(db) => read_all(&db).map_err(|why| format!("read-only: {why}"))?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("read-only opening: {error}")),
    };
    if copy.fingerprint() != before {
        return Err("the read-only opening changed something".into());
    }
    let repair = || builder().repair().map_err(|error| format!("repair: {error}"));
    let (mut report, mut before) = (repair()?, before);
    if report.superblock_restored {
        // One of two may be torn, which costs nothing, and is all that a repair changes then.
        before = copy.fingerprint();
        report = repair()?;
    }
    if !report.healthy {
        return Err(format!("the store opens, but its repair says: {report}"));
    }
    if copy.fingerprint() != before {
        return Err(format!("the repair changed something: {report}"));
    }
    Ok(Some(content))
}
