//! Where a row of a launch stands in the cache of its sequence.

use half::f16;

use crate::simt::{Global, Simt};

/// Where a row stands: the cache of its sequence, and its position there.
///
/// A KV cache is, for keys and for values each, `layers × context × KV heads × head size` f16, row
/// major; each sequence has its own. An array of these, one a row, lies in device memory, so that the
/// work of one token is the same launches with the same arguments as that of the token before, and a
/// captured graph can be replayed.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct KvPlace {
    /// Keys of the sequence's first layer, aligned to 16 bytes.
    pub keys: Global<f16>,
    /// Values, as `keys`.
    pub values: Global<f16>,
    /// f16 from one layer to the next, a multiple of 8: `context × KV heads × head size`.
    pub layer_stride: u64,
    /// The row's position, below the context. So many positions are before it.
    pub position: u32,
    /// Not read.
    pub reserved: u32,
}

// SAFETY: `repr(C)`, numbers without padding between or after them.
unsafe impl bytemuck::Pod for KvPlace {}

const _: () = assert!(size_of::<KvPlace>() == 32 && align_of::<KvPlace>() == 8);

/// A [`KvPlace`] as a kernel works with it: one layer of the cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerPlace {
    /// Keys of the layer.
    pub(crate) keys: Global<f16>,
    /// Values of the layer.
    pub(crate) values: Global<f16>,
    /// The row's position.
    pub(crate) position: u32,
}

impl LayerPlace {
    /// Where row `row` stands in `layer`.
    ///
    /// # Safety
    /// `places` has more than `row` elements, aligned to 8 bytes, and nobody writes them meanwhile.
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn load<S: Simt>(s: S, places: Global<KvPlace>, row: u32, layer: u32) -> Self {
        let place = places.at(u64::from(row));
        let fields = place.cast::<u64>();
        // SAFETY: the caller's; three fields of 8 bytes, then one of 4.
        unsafe {
            let offset = s.load_global(fields.at(2)).wrapping_mul(u64::from(layer));
            Self {
                keys: Global::from_address(s.load_global(fields)).at(offset),
                values: Global::from_address(s.load_global(fields.at(1))).at(offset),
                position: s.load_global(fields.at(3).cast()),
            }
        }
    }
}
