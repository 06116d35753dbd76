//! The arguments of the products with weights in planes, and how a block reads weights.

use crate::quant::Format;
use crate::quant::planes::{PIECE_ELEMENTS, Planes, plane_value_bytes};
use crate::simt::{Global, Simt, Unit, Work, product};

use super::tiling::Tiling;
use super::weights::Weights;

/// Elements of K that are staged at a time: a slab.
pub(super) const SLAB: u32 = 64;
/// Pieces of a weight row in a slab.
pub(super) const PIECES: u32 = SLAB / PIECE_ELEMENTS;

/// `out[m][n] = Σ_k input[m][k] · weights[n][k] + bias[n]`.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct Product {
    /// `m × n`, row major, not overlapping the others; aligned to 8 bytes if `n` is even.
    pub out: Global<f32>,
    /// `m` rows of `k` elements, as the kernel says; aligned to 16 bytes.
    pub input: Global<u8>,
    /// `n` rows of `k` elements in planes, see [`planes`](crate::quant::planes); aligned to 16 bytes.
    pub weights: Global<u8>,
    /// `n`, or address 0 if there is none.
    pub bias: Global<f32>,
    /// Rows of input and out.
    pub m: u32,
    /// Rows of weights, columns of out.
    pub n: u32,
    /// Columns of input and weights, a multiple of the format's block and of 8.
    pub k: u32,
}

impl Product {
    /// The most rows and columns: bytes of a row of f16, counted in whole slabs, stay below 2^32.
    pub const MOST: u32 = 1 << 30;

    /// What its kernels have to do, given the bytes of a row of input that are read.
    pub(super) fn work(&self, weights: Format, input_row_bytes: u64) -> Work {
        let Self { m, n, k, bias, .. } = *self;
        work([m, n, k], bias, [input_row_bytes, plane_value_bytes(weights, k)])
    }

    /// Slabs of a row.
    #[inline(always)]
    pub(super) const fn slabs(&self) -> u32 {
        self.k.div_ceil(SLAB)
    }

    /// Loads what thread and `i` say of a tile's weights: a piece.
    ///
    /// A row or a piece that does not exist is another one that does: its products go into columns
    /// that nobody stores, or are products with an input that is zero.
    ///
    /// # Safety
    /// There are weights, and nobody writes them.
    #[inline(always)]
    #[track_caller]
    pub(super) unsafe fn load_piece<B: Weights, S: Simt>(
        &self,
        s: S,
        tiling: Tiling,
        first_row: u32,
        slab: u32,
        i: u32,
    ) -> B::Loaded {
        let (row, piece) = place_of_piece(s, tiling, i);
        let row = (first_row + row).min(self.n - 1);
        let piece = (slab * PIECES + piece).min(self.k.div_ceil(PIECE_ELEMENTS) - 1);
        let stride = const { Planes::of(B::FORMAT) }.offsets(self.k / B::FORMAT.block_elements() as u32).row;
        // SAFETY: the row has elements of the piece.
        unsafe { B::load_piece(s, self.weights.row(row, stride), self.k, piece) }
    }
}

/// What a product of `m × n × k` into f32 has to do on the tensor cores, given the bytes that are read of a row of
/// input and of a row of weights.
pub(super) fn work([m, n, k]: [u32; 3], bias: Global<f32>, [input, weights]: [u64; 2]) -> Work {
    let biases = if bias.address() == 0 { 0 } else { 4 * u64::from(n) };
    let read = u64::from(m) * input + u64::from(n) * weights + biases;
    Work::moving(read, 4 * product([m, n])).multiplying(product([m, n, k]), Unit::TensorF16)
}

/// The row of the tile and the piece of the slab that a thread unpacks as its `i`-th: eight
/// neighbouring lanes have the same piece of eight rows, so that their chunks lie in different
/// banks, and the next eight the other piece of the same rows, which is in the same sectors.
#[inline(always)]
#[track_caller]
pub(super) fn place_of_piece<S: Simt>(s: S, tiling: Tiling, i: u32) -> (u32, u32) {
    let index = s.thread() + i * tiling.threads();
    (index % 8 + index / (8 * PIECES) * 8, index / 8 % PIECES)
}

/// Pieces of a tile's weights that each thread unpacks in a slab.
pub(super) const fn pieces_of_a_thread(tiling: Tiling) -> u32 {
    let pieces = tiling.tile_n * PIECES;
    assert!(pieces.is_multiple_of(tiling.threads()) && tiling.threads().is_multiple_of(8 * PIECES));
    let each = pieces / tiling.threads();
    assert!(each == 1 || each == 2, "see `Pending`");
    each
}

/// What a thread holds of the next slab's weights.
pub(super) struct Pending<B: Weights>(B::Loaded, B::Loaded);

impl<B: Weights> Pending<B> {
    /// Loads a thread's pieces of a slab.
    ///
    /// # Safety
    /// As [`Product::load_piece`].
    #[inline(always)]
    #[track_caller]
    pub(super) unsafe fn load<S: Simt>(
        s: S,
        product: &Product,
        tiling: Tiling,
        first_row: u32,
        slab: u32,
    ) -> Self {
        // SAFETY: the caller's.
        let load = |i| unsafe { product.load_piece::<B, S>(s, tiling, first_row, slab, i) };
        // Each by its name: an array of them would be one in local memory.
        let first = load(0);
        Self(first, if pieces_of_a_thread(tiling) == 2 { load(1) } else { B::Loaded::default() })
    }

    /// Calls `store` with each piece's words and its number.
    #[inline(always)]
    #[track_caller]
    pub(super) fn each(self, tiling: Tiling, mut store: impl FnMut(B::Loaded, u32)) {
        store(self.0, 0);
        if pieces_of_a_thread(tiling) == 2 {
            store(self.1, 1);
        }
    }
}
