//! The KV cache: keys and values of every position in f16.

use half::f16;
use half::slice::HalfFloatSliceExt;

/// Keys and values of all layers: layers × (keys, values) × `kv_heads` × `context` ×
/// `head_dim`, so that a head's positions are contiguous.
pub(super) struct KvCache {
    context: usize,
    kv_heads: usize,
    head_dim: usize,
    data: Vec<f16>,
}

/// One layer of the cache.
#[derive(Clone, Copy)]
pub(super) struct LayerCache<'a> {
    keys: &'a [f16],
    values: &'a [f16],
    /// Elements between two heads.
    stride: usize,
}

impl KvCache {
    /// A cache of `context` positions, or `None` if the system refuses the memory for it.
    ///
    /// One allocation, so that a size beyond the machine is refused at once, and zeroed by the
    /// system: pages that no position reaches are never touched.
    pub(super) fn new(layers: usize, context: usize, kv_heads: usize, head_dim: usize) -> Option<Self> {
        let bytes = usize::try_from(Self::byte_len(layers, context, kv_heads, head_dim)).ok()?;
        let data = bytemuck::try_zeroed_vec(bytes / size_of::<f16>()).ok()?;
        Some(Self { context, kv_heads, head_dim, data })
    }

    /// Bytes of a cache of `context` positions.
    pub(super) fn byte_len(layers: usize, context: usize, kv_heads: usize, head_dim: usize) -> u128 {
        2 * size_of::<f16>() as u128 * layers as u128 * context as u128 * (kv_heads * head_dim) as u128
    }

    /// Positions there is room for.
    pub(super) fn context(&self) -> usize {
        self.context
    }

    /// Elements of one layer's keys, and of its values.
    fn half_layer(&self) -> usize {
        self.kv_heads * self.context * self.head_dim
    }

    /// Stores keys and values of one position, each `kv_heads` × `head_dim`.
    pub(super) fn store(&mut self, layer: usize, position: usize, keys: &[f32], values: &[f32]) {
        let half = self.half_layer();
        for (half_layer, heads) in [(2 * layer, keys), (2 * layer + 1, values)] {
            for (head, values) in heads.chunks_exact(self.head_dim).enumerate() {
                let at = half_layer * half + (head * self.context + position) * self.head_dim;
                self.data[at..at + self.head_dim].convert_from_f32_slice(values);
            }
        }
    }

    /// One layer, to read.
    pub(super) fn layer(&self, layer: usize) -> LayerCache<'_> {
        let half = self.half_layer();
        let (keys, values) = self.data[2 * layer * half..2 * (layer + 1) * half].split_at(half);
        LayerCache { keys, values, stride: self.context * self.head_dim }
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
