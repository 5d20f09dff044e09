//! A device that has lost both superblocks: what it was divided into.
//!
//! The head of each half of the version log has a copy of the superblock's fields, all but the
//! root: what they were when the store was opened that began this log. The first half begins where
//! every formatting puts it; the second is looked for behind it, wherever one could put it.
//!
//! The same counts where both are another store's, of which a part was copied over them: of that
//! the heads say that they are not.
//!
//! Nothing says then which half was in use, so only a repair looks here, and it tells that it did:
//! the log with the greater number counts, if no other one can have been lost. What is found here
//! is written with the root record that the repair makes for that log, before anything else.
//!
//! Invariants: (1) a head counts only where its own layout has a half, and two must agree; (2) a
//! half that has no head may be that of the log which was in use, and then none counts: it was
//! never used if all of it is blank, as formatting left it, and the other one has the device's
//! first head (whether a log came after that, `db::repair` asks of what the slots hold); (3) the
//! generation goes on behind every one that the device can have had, so that no table of a repair
//! is taken for that of one that was cut off.
//!
//! Source: Weir's own.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::sync::Arc;

use crate::base::error::{ErrorKind, Result};
use crate::base::ids::SegmentNumber;
use crate::device::File;
use crate::storage::LogKind;
use crate::storage::slots::Opened;
use crate::storage::slots::format::{AREA_UNIT, AREAS_OFFSET};
use crate::storage::slots::page::{HEAD_MAGIC, LogHead, PAGE_BYTES};
use crate::storage::slots::superblock::{AreaKind, Superblock, Superblocks};

/// How far the second half is looked for: no formatting makes larger ones.
const HALF_BYTES_MAX: u64 = 1 << 30;

/// The turn of the first head that a device has of its version log.
const FIRST_TURN: u64 = 1;

/// More than the superblocks that an opening can replace.
const GENERATIONS: u64 = 1 << 32;

/// What heads tell of a device.
pub(super) struct Found {
    pub(super) superblock: Superblock,
    /// The fields as the newest head has them.
    pub(super) layout: Vec<u8>,
    /// The newest version log; `None` if another one may have been in use.
    pub(super) log: Option<SegmentNumber>,
    /// The half that has the newest head.
    pub(super) half: u8,
}

/// Finds what both superblocks said; `None` if there is no head.
///
/// # Errors
/// The device's, but for pages that cannot be read.
pub(super) fn find(device: &Arc<dyn File>) -> Result<Option<Found>> {
    let mut found = head_at(device, AREAS_OFFSET, AreaKind::FirstHalf);
    let end = device.len()?.min(AREAS_OFFSET + HALF_BYTES_MAX + PAGE_BYTES as u64);
    let mut at = AREAS_OFFSET + AREA_UNIT;
    while found.is_none() && at < end {
        found = head_at(device, at, AreaKind::SecondHalf);
        at += AREA_UNIT;
    }
    let Some(mut superblock) = found else { return Ok(None) };
    let (mut newest, mut is_certain) = (None, true);
    let (mut turns, mut has_both) = (0, true);
    for (half, kind) in (0u8..).zip([AreaKind::FirstHalf, AreaKind::SecondHalf]) {
        let Some((offset, bytes)) = area_of(&superblock, kind) else { return Ok(None) };
        let page = page_at(device, offset);
        let head = LogHead::decode(&page, &superblock.uuid);
        match head.filter(|head| head.kind == LogKind::Versions) {
            Some(LogHead { number, turn, .. }) => {
                newest = newest.max(Some((number, half)));
                turns = turns.max(turn);
            }
            None => {
                has_both = false;
                is_certain &= is_blank(device, offset, bytes);
            }
        }
        if let Some(other) = head_at(device, offset, kind) {
            let generation = superblock.generation.max(other.generation);
            superblock.generation = generation;
            if (Superblock { generation, ..other }) != superblock {
                return Ok(None);
            }
        }
    }
    let layout = superblock.layout();
    superblock.generation = superblock.generation.saturating_add(GENERATIONS);
    let (number, half) = newest.unwrap_or((SegmentNumber::ZERO, 0));
    is_certain &= has_both || turns <= FIRST_TURN;
    let log = newest.map(|_| number).filter(|_| is_certain);
    Ok(Some(Found { superblock, layout, log, half }))
}

/// Where an area begins, and its bytes.
fn area_of(superblock: &Superblock, kind: AreaKind) -> Option<(u64, u64)> {
    let area = superblock.areas.iter().find(|area| area.kind == kind)?;
    Some((area.offset, area.bytes))
}

/// Whether there is nothing but zeros, all of which can be read.
fn is_blank(device: &Arc<dyn File>, offset: u64, bytes: u64) -> bool {
    let pages = bytes.div_ceil(PAGE_BYTES as u64);
    (0..pages).all(|page| {
        let page = page_at(device, offset + page * PAGE_BYTES as u64);
        page.len() == PAGE_BYTES && page.iter().all(|&byte| byte == 0)
    })
}

fn page_at(device: &Arc<dyn File>, offset: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES];
    let read = device.read_at(&mut page, offset).unwrap_or(0);
    page.truncate(read);
    page
}

/// The layout in a head at `offset`, if that is where it has a half of this kind.
fn head_at(device: &Arc<dyn File>, offset: u64, kind: AreaKind) -> Option<Superblock> {
    let page = page_at(device, offset);
    if !page.starts_with(&HEAD_MAGIC) {
        return None;
    }
    let (uuid, layout) = LogHead::layout(&page)?;
    let superblock = Superblock::of_layout(layout, &device.path()).ok()?;
    let fits = superblock.uuid == uuid
        && area_of(&superblock, kind).map(|(start, _)| start) == Some(offset);
    fits.then_some(superblock)
}

/// Whether a half has a head, as only a store has.
pub(super) fn has_head(device: &Arc<dyn File>) -> bool {
    find(device).is_ok_and(|found| found.is_some())
}

/// Clears the heads, so that nothing tells of a store any more.
///
/// # Errors
/// The device's.
pub(super) fn forget(device: &Arc<dyn File>) -> Result<()> {
    let Some(found) = find(device)? else { return Ok(()) };
    for kind in [AreaKind::FirstHalf, AreaKind::SecondHalf] {
        let Some((offset, _)) = area_of(&found.superblock, kind) else { continue };
        if offset.saturating_add(PAGE_BYTES as u64) <= device.len()? {
            device.write_durable(&[0; PAGE_BYTES], offset)?;
        }
    }
    Ok(())
}

/// Whether a superblock is of another store than the version log that is there.
pub(super) fn is_foreign(device: &Arc<dyn File>, superblock: &Superblock) -> bool {
    if superblock.is_at_home(&**device) {
        return false;
    }
    let second = area_of(superblock, AreaKind::SecondHalf).map(|(offset, _)| offset);
    let second = second.map(|offset| (offset, AreaKind::SecondHalf));
    let mut heads = [Some((AREAS_OFFSET, AreaKind::FirstHalf)), second].into_iter().flatten();
    heads.any(|(offset, kind)| {
        head_at(device, offset, kind).is_some_and(|other| other.uuid != superblock.uuid)
    })
}

/// Opens the superblocks of a damaged device: as they are; the one that is the store's, if the
/// other is not; or as heads tell them if both are lost, or another store's.
///
/// # Errors
/// As [`Superblocks::open`].
pub(super) fn open(device: Arc<dyn File>) -> Result<Opened> {
    let opened = Superblocks::open(Arc::clone(&device));
    let are_lost = match &opened {
        Ok(Some(superblocks)) => is_foreign(&device, superblocks.current()),
        Ok(None) => true,
        // A newer format is no damage.
        Err(error) => matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Io),
    };
    if !are_lost {
        return Ok((opened?, None));
    }
    if let Some(own) = Superblocks::open_own(&device) {
        return Ok((Some(own), None));
    }
    // Copies of one store that contradict each other are sound.
    if opened.is_err() && Superblocks::has_sound_copy(&*device) {
        return Ok((opened?, None));
    }
    match find(&device)? {
        Some(found) => {
            let superblocks = Superblocks::found_again(device, found.superblock.clone());
            Ok((Some(superblocks), Some(found)))
        }
        None => Ok((opened?, None)),
    }
}
