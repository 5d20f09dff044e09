//! What a file holds, in pieces that fit into memory.

use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::device::File;

/// Hands over what a file holds, in pieces of at most 1 MiB, without its holes.
pub(super) fn each_piece(
    file: &Arc<dyn File>,
    mut take: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    const PIECE_BYTES: u64 = 1 << 20;
    let len = file.len()?;
    let mut piece = Vec::new();
    let mut offset = file.next_data(0)?;
    while offset < len {
        piece.resize(PIECE_BYTES.min(len - offset) as usize, 0);
        file.read_exact_at(&mut piece, offset)?;
        take(offset, &piece)?;
        offset = file.next_data(offset + piece.len() as u64)?;
    }
    Ok(())
}

/// Whether two files hold the same; false if one of them cannot be read.
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
    // Both ways: what is a hole here may hold something there.
    matches!(lens, (Ok(a), Ok(b)) if a == b) && covers(a, b) && covers(b, a)
}
