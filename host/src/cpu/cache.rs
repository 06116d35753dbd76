//! The KV cache: keys and values of every position in f16.

use half::f16;
use half::slice::HalfFloatSliceExt;

/// Keys and values of all layers, each `kv_heads` × `context` × `head_dim`: a head's positions
/// are contiguous.
pub(super) struct Cache {
    context: usize,
    kv_heads: usize,
    head_dim: usize,
    keys: Vec<Vec<f16>>,
    values: Vec<Vec<f16>>,
}

/// One layer of the cache.
#[derive(Clone, Copy)]
pub(super) struct LayerCache<'a> {
    keys: &'a [f16],
    values: &'a [f16],
    /// Elements between two heads.
    stride: usize,
}

impl Cache {
    /// A cache of `context` positions, or `None` if there is not the memory for it.
    pub(super) fn new(layers: usize, context: usize, kv_heads: usize, head_dim: usize) -> Option<Self> {
        let len = context.checked_mul(kv_heads)?.checked_mul(head_dim)?;
        // Zeroed by the system: pages that no position reaches are never touched.
        let tensor = || bytemuck::try_zeroed_vec::<f16>(len).ok();
        let tensors = || (0..layers).map(|_| tensor()).collect::<Option<Vec<_>>>();
        Some(Self { context, kv_heads, head_dim, keys: tensors()?, values: tensors()? })
    }

    /// Bytes of a cache of `context` positions.
    pub(super) fn byte_len(layers: usize, context: usize, kv_heads: usize, head_dim: usize) -> u128 {
        2 * size_of::<f16>() as u128 * layers as u128 * context as u128 * (kv_heads * head_dim) as u128
    }

    /// Positions there is room for.
    pub(super) fn context(&self) -> usize {
        self.context
    }

    /// Stores keys and values of one position, each `kv_heads` × `head_dim`.
    pub(super) fn store(&mut self, layer: usize, position: usize, keys: &[f32], values: &[f32]) {
        for (tensor, heads) in [(&mut self.keys[layer], keys), (&mut self.values[layer], values)] {
            for (head, values) in heads.chunks_exact(self.head_dim).enumerate() {
                let at = (head * self.context + position) * self.head_dim;
                tensor[at..at + self.head_dim].convert_from_f32_slice(values);
            }
        }
    }

    /// One layer, to read.
    pub(super) fn layer(&self, layer: usize) -> LayerCache<'_> {
        debug_assert_eq!(self.keys[layer].len(), self.kv_heads * self.context * self.head_dim);
        LayerCache {
            keys: &self.keys[layer],
            values: &self.values[layer],
            stride: self.context * self.head_dim,
        }
    }
}

impl<'a> LayerCache<'a> {
    /// The keys of one head: positions × `head_dim`.
    pub(super) fn keys(self, kv_head: usize) -> &'a [f16] {
        &self.keys[kv_head * self.stride..(kv_head + 1) * self.stride]
    }

    /// The values of one head: positions × `head_dim`.
    pub(super) fn values(self, kv_head: usize) -> &'a [f16] {
        &self.values[kv_head * self.stride..(kv_head + 1) * self.stride]
    }
}
