//! Reading a whole file in pieces of bounded memory.

use std::sync::Arc;

use crate::base::coding::to_usize;
use crate::base::error::{Error, Result};
use crate::device::File;

/// Calls `take` with the offset and the bytes of each piece of a file, at most 1 MiB each, without
/// its holes.
pub(super) fn each_piece(
    file: &Arc<dyn File>,
    mut take: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    const PIECE_BYTES: u64 = 1 << 20;
    let len = file.len()?;
    let mut piece = Vec::new();
    let mut offset = file.next_data(0)?;
    while offset < len {
        piece.resize(to_usize(PIECE_BYTES.min(len - offset)), 0);
        file.read_exact_at(&mut piece, offset)?;
        take(offset, &piece)?;
        offset = file.next_data(offset + piece.len() as u64)?;
    }
    Ok(())
}

/// Whether two files have the same bytes; false if one of them cannot be read.
pub(super) fn same_bytes(a: &Arc<dyn File>, b: &Arc<dyn File>) -> bool {
    let covers = |a: &Arc<dyn File>, b: &Arc<dyn File>| {
        let mut other = Vec::new();
        let pieces = each_piece(a, |offset, piece| {
            other.resize(piece.len(), 0);
            b.read_exact_at(&mut other, offset)?;
            if other == piece {
                return Ok(());
            }
            Err(Error::corruption(b.path(), offset, "other bytes"))
        });
        pieces.is_ok()
    };
    let lens = (a.len(), b.len());
    // Both ways: a hole of one may be data in the other.
    matches!(lens, (Ok(a), Ok(b)) if a == b) && covers(a, b) && covers(b, a)
}
