//! Content of a simulated file, copied on write.
//!
//! INVARIANT: bytes beyond the length are zero, so that an extension reads as zeros.

use std::sync::Arc;

/// Unit of sharing and copying: large enough that cloning a file of some MiB increments only some
/// hundred reference counts, small enough that a copy before a write takes about 1 µs.
const CHUNK_BYTES: usize = 16 << 10;

type Chunk = [u8; CHUNK_BYTES];

/// Content of a file. A clone shares all chunks.
#[derive(Clone, Default)]
pub(in crate::device) struct Content {
    /// `None` is zeros, and so are chunks beyond the last one.
    chunks: Vec<Option<Arc<Chunk>>>,
    len: u64,
}

impl Content {
    pub(in crate::device) fn len(&self) -> u64 {
        self.len
    }

    /// Reads at `offset` until `buf` is full or the content ends; the number of bytes read.
    pub(in crate::device) fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let left = self.len.saturating_sub(offset);
        let wanted = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut done = 0;
        while done < wanted {
            let (index, start) = locate(offset + done as u64);
            let n = (wanted - done).min(CHUNK_BYTES - start);
            let target = &mut buf[done..done + n];
            match self.chunks.get(index) {
                Some(Some(chunk)) => target.copy_from_slice(&chunk[start..start + n]),
                _ => target.fill(0),
            }
            done += n;
        }
        wanted
    }

    /// The parts that were ever written, with their offsets; the rest are zeros.
    pub(in crate::device) fn written(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let chunks = self.chunks.iter().enumerate();
        chunks.filter_map(|(index, chunk)| {
            chunk.as_ref().map(|chunk| ((index * CHUNK_BYTES) as u64, &chunk[..]))
        })
    }

    /// All bytes.
    pub(in crate::device) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        self.read(0, &mut bytes);
        bytes
    }

    /// Writes `bytes` at `offset`, extending the content if they end beyond it.
    pub(in crate::device) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let (index, start) = locate(offset + done as u64);
            let n = (bytes.len() - done).min(CHUNK_BYTES - start);
            let is_absent = self.chunks.get(index).is_none_or(Option::is_none);
            if is_absent && bytes[done..done + n].iter().all(|&byte| byte == 0) {
                done += n;
                continue;
            }
            self.chunk(index)[start..start + n].copy_from_slice(&bytes[done..done + n]);
            done += n;
        }
        if !bytes.is_empty() {
            self.len = self.len.max(offset + bytes.len() as u64);
        }
        self.assert_chunks();
    }

    /// Sets the part of `[offset, offset + bytes)` within the length to zero.
    pub(in crate::device) fn zero(&mut self, offset: u64, bytes: u64) {
        let end = offset.saturating_add(bytes).min(self.len);
        let mut at = offset;
        while at < end {
            let (index, start) = locate(at);
            let n = (end - at).min((CHUNK_BYTES - start) as u64) as usize;
            match self.chunks.get_mut(index) {
                Some(slot) if n == CHUNK_BYTES => *slot = None,
                Some(Some(_)) => self.chunk(index)[start..start + n].fill(0),
                _ => {}
            }
            at += n as u64;
        }
    }

    /// Truncates, or extends with zeros.
    pub(in crate::device) fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.zero(len, self.len - len);
            self.chunks.truncate(len.div_ceil(CHUNK_BYTES as u64) as usize);
        }
        self.len = len;
        self.assert_chunks();
        debug_assert!(self.has_zero_tail(), "bytes beyond the length {len}");
    }

    fn assert_chunks(&self) {
        let (chunks, len) = (self.chunks.len() as u64, self.len);
        let chunks_max = len.div_ceil(CHUNK_BYTES as u64);
        assert!(chunks <= chunks_max, "{chunks} chunks of a file of {len} bytes");
    }

    /// The module's invariant, for the chunk that holds the length.
    fn has_zero_tail(&self) -> bool {
        let (index, start) = locate(self.len);
        let chunk = self.chunks.get(index).and_then(Option::as_ref);
        chunk.is_none_or(|chunk| chunk.iter().skip(start).all(|&byte| byte == 0))
    }

    fn chunk(&mut self, index: usize) -> &mut Chunk {
        if self.chunks.len() <= index {
            self.chunks.resize(index + 1, None);
        }
        Arc::make_mut(self.chunks[index].get_or_insert_with(|| Arc::new([0; CHUNK_BYTES])))
    }
}

fn locate(offset: u64) -> (usize, usize) {
    ((offset / CHUNK_BYTES as u64) as usize, (offset % CHUNK_BYTES as u64) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::prng::Prng;

    /// Goal: content behaves as a vector of bytes, and clones are independent. Method: random
    /// writes, cuts, extensions and zeroings against a `Vec`, with a clone now and then checked
    /// later.
    #[test]
    fn content_is_a_vector() {
        for seed in 0..50 {
            let mut prng = Prng::new(seed);
            let (mut content, mut oracle) = (Content::default(), Vec::new());
            let mut clone = (content.clone(), oracle.clone());
            for _ in 0..60 {
                let offset = prng.below(3 * CHUNK_BYTES as u64) as usize;
                let n = prng.below(2 * CHUNK_BYTES as u64) as usize;
                match prng.below(5) {
                    0 | 1 => {
                        let byte = prng.below(255) as u8 + 1;
                        if n > 0 && oracle.len() < offset + n {
                            oracle.resize(offset + n, 0);
                        }
                        content.write(offset as u64, &vec![byte; n]);
                        oracle.iter_mut().skip(offset).take(n).for_each(|b| *b = byte);
                    }
                    2 => {
                        content.set_len(offset as u64);
                        oracle.resize(offset, 0);
                    }
                    3 => {
                        content.zero(offset as u64, n as u64);
                        oracle.iter_mut().skip(offset).take(n).for_each(|b| *b = 0);
                    }
                    _ => {
                        assert!(clone.0.to_vec() == clone.1, "seed {seed}: a clone changed");
                        clone = (content.clone(), oracle.clone());
                    }
                }
                assert!(content.to_vec() == oracle, "seed {seed}");
                let mut buf = vec![7; n];
                let got = content.read(offset as u64, &mut buf);
                assert_eq!(got, oracle.len().saturating_sub(offset).min(n));
                assert!(buf[..got] == oracle[offset.min(oracle.len())..][..got]);
            }
        }
    }
}
