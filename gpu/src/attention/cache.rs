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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::vec::Vec;

    use super::*;
    use crate::simt::emulator::{Emulator, Memory};
    use crate::simt::{Contract, Dim3, Expectations, Kernel, Launch, WARP_LANES};

    /// What stands for a row that is left alone.
    const NOWHERE: [u64; 3] = [u64::MAX; 3];

    /// Where each of at most 32 rows stands: bytes from the first key, from the first value, and its position.
    #[derive(Clone, Copy)]
    struct Find {
        out: Global<u64>,
        cache: KvCache,
        rows: u32,
    }

    impl Contract for Find {
        const NAME: &'static str = "find";
        const EXPECTATIONS: Expectations =
            Expectations { instructions: &[], registers: 255, local_memory: false };

        fn launch(&self) -> Launch {
            Launch { grid: Dim3::linear(1), threads: WARP_LANES, shared_bytes: 0 }
        }
    }

    impl<S: Simt> Kernel<S> for Find {
        unsafe fn run(self, s: S) {
            let row = s.thread();
            if row >= self.rows {
                return;
            }
            let KvCache { keys, values, .. } = self.cache;
            // SAFETY: there is a place and three words of the output for each thread.
            unsafe {
                let found = self.cache.place(s, row).map_or(NOWHERE, |found| {
                    let from = |start: Global<f16>, at: Global<f16>| at.address() - start.address();
                    [from(keys, found.keys), from(values, found.values), found.position.into()]
                });
                for (i, word) in found.into_iter().enumerate() {
                    s.store_global(self.out.row(row, 3).at(i as u64), word);
                }
            }
        }
    }

    /// Where rows of this layer stand in a cache of so many elements with rows of `width`.
    fn find(places: &[KvPlace], elements: u64, layer: u32, width: u32) -> Vec<u64> {
        let mut memory = Memory::new();
        // Nothing is read or written there.
        let [keys, values] = [1 << 50, 1 << 51].map(Global::from_address);
        let out = memory.output("out", 3 * places.len());
        let places_in_memory = memory.input("places", places);
        let cache = KvCache { keys, values, elements, places: places_in_memory, layer, width };
        let rows = places.len() as u32;
        Emulator::new().launch(&mut memory, Find { out, cache, rows }).unwrap();
        memory.values(out)
    }

    /// Six sequences of 32,768 positions in the shape of a 7B model: 28 layers of 4 heads of 128.
    #[test]
    fn rows_past_two_to_the_31_elements_stand_where_they_should() {
        let (layers, context, width, sequences) = (28, 32_768, 4 * 128, 6);
        let sequence = u64::from(layers * context) * u64::from(width);
        let places: Vec<_> = (0..sequences)
            .map(|index| KvPlace { start: index * sequence, position: context - 1 - index as u32, context })
            .collect();
        for layer in [0, 1, layers - 1] {
            let found = find(&places, sequences * sequence, layer, width);
            for (index, found) in found.chunks_exact(3).enumerate() {
                let row = (index as u128 * 28 + u128::from(layer)) * 32_768;
                let bytes = u64::try_from(row * 512 * 2).unwrap();
                assert_eq!(found, [bytes, bytes, 32_767 - index as u64], "sequence {index}, layer {layer}");
            }
            let last = found[3 * 5];
            assert!(last >= 1 << 32 && last / 2 >= 1 << 31, "{last} bytes");
        }
    }

    #[test]
    fn rows_that_do_not_stand_inside_stand_nowhere() {
        let (context, width, layer) = (1 << 16, 1 << 15, 1);
        let two_layers = 1 << 32;
        let good = KvPlace { start: 1 << 33, position: 5, context };
        let elements = good.start + two_layers;
        let places = [
            good,
            KvPlace { start: good.start + 8, ..good },
            KvPlace { start: good.start - 4, ..good },
            KvPlace { start: elements + 8, ..good },
            KvPlace { start: u64::MAX - 7, ..good },
            KvPlace { position: context, ..good },
            KvPlace { context: context + 1, ..good },
        ];
        let found = find(&places, elements, layer, width);
        let bytes = 2 * (good.start + two_layers / 2);
        assert_eq!(found[..3], [bytes, bytes, 5]);
        assert!(found[3..].iter().all(|&word| word == u64::MAX), "{found:?}");
        // The memory ends one element earlier.
        assert_eq!(find(&places[..1], elements - 1, layer, width), NOWHERE);
    }
}
