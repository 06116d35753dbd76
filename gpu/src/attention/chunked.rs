//! What both kernels of attention by chunks know, and how a row's positions are in chunks.

use super::cache::{KvCache, KvPlace};
use super::problem::{Scaling, Sight};
use crate::simt::{Global, product};

#[cfg(doc)]
use super::MOST_GROUP;

/// Positions of a chunk.
pub const CHUNK: u32 = 128;

/// The arguments of both kernels of attention by chunks.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct Chunked {
    /// `rows × heads × chunks × head size`, aligned to 16 bytes; with `scales` it overlaps nothing.
    pub partial: Global<f32>,
    /// `rows × heads × chunks`, aligned to 8 bytes.
    pub scales: Global<[f32; 2]>,
    /// The cache; its width is KV heads × head size. Places, and keys and values of positions before theirs, are what the
    /// host or launches wrote that are done when the kernels begin, however [early](crate::simt) they do.
    pub cache: KvCache,
    /// Rows, at most 65,535: a grid's second axis has no more blocks.
    pub rows: u32,
    /// Chunks of the longest context, at most 65,535: a grid's third axis has no more blocks.
    pub chunks: u32,
    /// Positions that there are angles for.
    pub positions: u32,
    /// KV heads, at most 65,535.
    pub kv_heads: u32,
    /// Query heads that share a KV head, 1 to [`MOST_GROUP`].
    pub group: u32,
    /// Which of the positions up to its own a row sees.
    pub sight: Sight,
    /// What becomes of the products of queries and keys.
    pub scaling: Scaling,
}

impl Chunked {
    /// Query heads.
    #[inline(always)]
    pub(super) const fn heads(&self) -> u32 {
        self.kv_heads.wrapping_mul(self.group)
    }

    /// The positions that a row at `position` sees: from the first, up to and without the second.
    /// None if it stands behind the last chunk or behind the angles.
    #[inline(always)]
    pub(super) const fn reach(&self, position: u32) -> Option<(u32, u32)> {
        if position / CHUNK >= self.chunks || position >= self.positions {
            return None;
        }
        Some(self.sight.reach(position, position, position + 1))
    }

    /// Bytes of the rows' places.
    pub(super) fn place_bytes(&self) -> u64 {
        u64::from(self.rows) * size_of::<KvPlace>() as u64
    }

    /// Bytes of the parts and scales of chunks that rows at `position` see something of.
    pub(super) fn part_bytes(&self, position: u32, head_size: u32) -> u64 {
        let chunks = match self.reach(position) {
            Some((first, end)) if first < end => (end - 1) / CHUNK - first / CHUNK + 1,
            _ => 0,
        };
        let parts = product([self.rows, self.heads(), chunks]);
        parts.saturating_mul(4 * u64::from(head_size) + size_of::<[f32; 2]>() as u64)
    }

    /// Which chunk of all rows' and heads' it is.
    #[inline(always)]
    pub(super) const fn index(&self, row: u32, head: u32, chunk: u32) -> u64 {
        let head = row as u64 * self.heads() as u64 + head as u64;
        head * self.chunks as u64 + chunk as u64
    }
}
