//! Hits of the block cache beside evictions, explored.

use std::sync::Arc;

use crate::base::buf::Buf;
use crate::base::heat::Heat;
use crate::base::ids::{TableUid, uid};
use crate::base::prng::Prng;
use crate::cache::{BlockCache, Purpose, TableBlocks};

use super::{actor, explore};

/// Blocks of two pages, and one of a third.
const ORDINALS: [u32; 4] = [0, 1, 16, 300];

/// Tables of each cache; those of both caches have the same uids.
const TABLES: u64 = 2;

/// Bytes of a block.
const BYTES: u64 = 64;

/// Room for two blocks in two pages, of 248 bytes each: most insertions evict.
const CAPACITY: u64 = 510;

/// The content of a block says which one it is.
fn content(cache: usize, table: u64, ordinal: u32) -> [u8; BYTES as usize] {
    let mut bytes = [cache as u8; BYTES as usize];
    bytes[1] = table as u8;
    bytes[2..6].copy_from_slice(&ordinal.to_le_bytes());
    bytes[60..].copy_from_slice(&ordinal.to_le_bytes());
    bytes
}

struct User {
    number: usize,
    cache: Arc<BlockCache>,
    prng: Prng,
    /// Blocks that are held on to.
    held: Vec<(u64, u32, Buf)>,
}

impl User {
    fn draw(&mut self) -> (u64, u32, TableBlocks) {
        let table = self.prng.below(TABLES);
        let ordinal = ORDINALS[self.prng.below(ORDINALS.len() as u64) as usize];
        (table, ordinal, self.cache.table(uid(table)))
    }

    fn check(&self, table: u64, ordinal: u32, buf: &Buf) {
        assert_eq!(buf.bytes(), content(self.number, table, ordinal), "another block");
        assert!(self.cache.bytes() <= CAPACITY, "{} bytes", self.cache.bytes());
    }

    fn keep(&mut self, table: u64, ordinal: u32, buf: Buf) {
        self.check(table, ordinal, &buf);
        // Most are let go at once, so that they are freed when they leave.
        if self.prng.below(4) == 0 {
            self.held.push((table, ordinal, buf));
        }
        if self.held.len() > 1 {
            let (table, ordinal, buf) = self.held.remove(0);
            self.check(table, ordinal, &buf);
        }
    }

    fn read(&mut self, times: u64) {
        for _ in 0..times {
            let (table, ordinal, blocks) = self.draw();
            match self.prng.below(3) {
                0 => drop(blocks.probe(ordinal).map(|buf| self.check(table, ordinal, &buf))),
                _ => {
                    let found = blocks.get(ordinal, Purpose::Foreground);
                    found.into_iter().for_each(|buf| self.keep(table, ordinal, buf));
                }
            }
        }
    }

    fn write(&mut self, times: u64) {
        for _ in 0..times {
            let (table, ordinal, blocks) = self.draw();
            let bytes = content(self.number, table, ordinal);
            match self.prng.below(8) {
                0 => self.cache.erase(uid(table), ordinal),
                1 => self.cache.erase_table(uid(table), 301),
                2 => {
                    let buf = Buf::handed_over(&bytes, Heat::COLD, 0);
                    self.cache.hand_over(TableUid::new(table), ordinal, buf);
                }
                3 => {
                    // Once more, cached or not.
                    if let Some((table, ordinal, buf)) = self.held.pop() {
                        self.cache.table(uid(table)).insert(ordinal, buf.clone());
                        self.check(table, ordinal, &buf);
                    }
                }
                _ => {
                    let buf = Buf::from(&bytes[..]);
                    blocks.insert(ordinal, buf.clone());
                    self.keep(table, ordinal, buf);
                }
            }
        }
    }
}

/// Goal: a hit returns the block that was asked for, and keeps it, whatever leaves and comes back
/// meanwhile; and the cache is never above its capacity. Method: two caches with tables of the same
/// uids, so that a frame or a page that is used again for another block, also of the other store,
/// is found out by the content; two readers and a writer each, in caches of two blocks.
#[test]
fn hits_beside_evictions() {
    explore(|mut prng| {
        let caches: Vec<Arc<BlockCache>> =
            (0..2).map(|_| Arc::new(BlockCache::new(CAPACITY))).collect();
        let mut actors = Vec::new();
        for (number, cache) in caches.iter().enumerate() {
            for role in 0..3 {
                let (cache, prng) = (Arc::clone(cache), Prng::new(prng.next_u64()));
                let mut user = User { number, cache, prng, held: Vec::new() };
                let body = move || if role == 0 { user.write(60) } else { user.read(60) };
                actors.push(actor("user", body));
            }
        }
        actors.into_iter().for_each(|actor| assert!(actor.join()));
    });
}
