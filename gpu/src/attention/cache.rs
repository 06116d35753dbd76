//! The KV cache in device memory, and where a row of a launch stands in it.

use half::f16;

use crate::simt::{Global, Simt};

/// One layer of the caches of some sequences.
///
/// The cache of a sequence is, for keys and for values each, `layers × context × KV heads × head size`
/// f16, row major. The caches of all sequences lie in one memory, anywhere in it, those of keys and of
/// values alike.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct KvCache {
    /// All keys, `elements`, aligned to 16 bytes.
    pub keys: Global<f16>,
    /// All values, `elements`, aligned to 16 bytes.
    pub values: Global<f16>,
    /// f16 of either.
    pub elements: u64,
    /// Where each row stands.
    pub places: Global<KvPlace>,
    /// The layer, below 2^16.
    pub layer: u32,
    /// KV heads times head size, below 2^16.
    pub width: u32,
}

/// Where a row of a launch stands: the cache of its sequence, and its position there.
///
/// An array of these, one a row, lies in device memory, so that the work of one token is the same
/// launches with the same arguments as that of the token before, and a captured graph can be
/// replayed.
///
/// A row that stands behind its context, or whose cache is not inside the memory, is left alone: a
/// kernel reads and writes nothing for it. So a graph that is replayed too often does no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct KvPlace {
    /// Where the sequence's first layer begins, in elements, a multiple of 8.
    pub start: u64,
    /// The row's position: so many are before it.
    pub position: u32,
    /// Positions that the sequence's cache has room for, below 2^31.
    pub context: u32,
}

impl KvPlace {
    /// Where the position is in a place, counted in words of 4 bytes.
    pub(crate) const POSITION: u64 = core::mem::offset_of!(Self, position) as u64 / 4;
}

const _: () = assert!(size_of::<KvPlace>() == 16 && align_of::<KvPlace>() == 8);

/// A row's layer of its sequence's cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerPlace {
    /// `context` positions of keys.
    pub(crate) keys: Global<f16>,
    /// As many of values.
    pub(crate) values: Global<f16>,
    /// The row's position, below the context.
    pub(crate) position: u32,
}

impl KvCache {
    /// What layers and widths are below: so that no product of theirs overflows.
    pub const LIMIT: u32 = 1 << 16;

    /// Where row `row` stands, if it does.
    ///
    /// # Safety
    /// `places` has more than `row` elements, aligned to 8 bytes, and nobody writes them meanwhile.
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn place<S: Simt>(self, s: S, row: u32) -> Option<LayerPlace> {
        let place = self.places.at(u64::from(row)).cast::<u64>();
        // SAFETY: the caller's; a field of 8 bytes, then two of 4.
        let (start, [position, context]): (u64, [u32; 2]) =
            unsafe { (s.load_global(place), s.load_global(place.at(1).cast())) };
        let layer = u64::from(context) * u64::from(self.width);
        let first = layer.wrapping_mul(u64::from(self.layer));
        let is_inside = start <= self.elements && first.wrapping_add(layer) <= self.elements - start;
        if !is_inside || !start.is_multiple_of(8) || position >= context {
            return None;
        }
        Some(LayerPlace {
            keys: self.keys.at(start).at(first),
            values: self.values.at(start).at(first),
            position,
        })
    }
}
