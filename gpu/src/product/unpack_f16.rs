//! `unpack_f16_<format>`: weights of any format as f16 in [panels](super::panels), their rows
//! [interleaved], for [`MatmulF16Wgmma`](super::MatmulF16Wgmma). Panels of two matrices can take turns.
//!
//! # Who owns what
//!
//! ```text
//! grid: x = 256 columns, y = 32 rows
//!
//!                 128 columns     128 columns
//!  8 rows      |    warp 0     |    warp 1     |     a lane has a piece of 32 columns: lane l that of row
//!  8 rows      |    warp 2     |    warp 3     |     l % 8, columns 32 (l / 8)
//!  :           |       :       |       :       |
//! ```
//!
//! A lane has four chunks of 16 bytes. Two neighbouring lanes, which have the same piece of two rows,
//! change every other chunk, so that what they store at a time is two neighbouring chunks of one row:
//! a whole sector.
//!
//! # Registers
//!
//! The piece as it was loaded, up to 10 (f32: 32), and 16 as f16.
//!
//! # Shape contract
//!
//! As [`Unpack`] says. Columns up to a multiple of 64 become zero; rows beyond the matrix are not written.
//!
//! # Numeric contract
//!
//! As the weights of [`MatmulF16Quant`](super::MatmulF16Quant): the f32 that dequantizing gives, rounded once.

#![allow(clippy::needless_range_loop, reason = "loops over registers are plain, so that they are unrolled")]

use core::marker::PhantomData;

use super::panels::{Panels, interleaved, spread};
use super::weights::{CHUNKS, Weights};
use super::{Activations, AsF16Panels};
use crate::quant::Format;
use crate::quant::planes::{EIGHT, PIECE_ELEMENTS, Planes, plane_value_bytes};
use crate::simt::{Contract, Count, Dim3, Expectations, Global, Kernel, Launch, Occurrence, Simt, Work};

/// Threads of a block.
const THREADS: u32 = 256;
/// Rows of a block, and of a warp.
const BLOCK_ROWS: u32 = 32;
const WARP_ROWS: u32 = 8;
/// Pieces of a row in a block, and in a warp.
const BLOCK_PIECES: u32 = THREADS / BLOCK_ROWS;
const WARP_PIECES: u32 = 32 / WARP_ROWS;

/// The arguments of an `unpack_f16`.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct UnpackF16<B> {
    /// [`Panels::bytes`] of all rows that there are with `first` and `apart`, of `k` columns, aligned to 16 bytes,
    /// not overlapping the weights.
    pub out: Global<u8>,
    /// `n` rows of `k` elements in planes, see [`planes`](crate::quant::planes); aligned to 16 bytes.
    pub weights: Global<u8>,
    /// How many rows, at most [`MOST_ROWS`](Self::MOST_ROWS).
    pub n: u32,
    /// Columns: a multiple of the format's block and of 8.
    pub k: u32,
    /// The row of out that the first one is, see [`spread`].
    pub first: u32,
    /// Rows of out from a panel of these weights to the next below it: 128, and more if panels of another matrix lie in
    /// between.
    pub apart: u32,
    /// The format.
    pub format: PhantomData<B>,
}

impl<B> UnpackF16<B> {
    /// The most rows: a grid's second axis has no more blocks.
    pub const MOST_ROWS: u32 = 65_535 * BLOCK_ROWS;
}

impl<B: Weights> Contract for UnpackF16<B> {
    const NAME: &'static str = match B::FORMAT {
        Format::F32 => "unpack_f16_f32",
        Format::F16 => "unpack_f16_f16",
        Format::BF16 => "unpack_f16_bf16",
        Format::Q4_0 => "unpack_f16_q4_0",
        Format::Q4_1 => "unpack_f16_q4_1",
        Format::Q5_0 => "unpack_f16_q5_0",
        Format::Q5_1 => "unpack_f16_q5_1",
        Format::Q8_0 => "unpack_f16_q8_0",
        Format::Q2_K => "unpack_f16_q2_k",
        Format::Q3_K => "unpack_f16_q3_k",
        Format::Q4_K => "unpack_f16_q4_k",
        Format::Q5_K => "unpack_f16_q5_k",
        Format::Q6_K => "unpack_f16_q6_k",
        Format::Q8_K => "unpack_f16_q8_k",
        Format::IQ4_NL => "unpack_f16_iq4_nl",
        Format::IQ4_XS => "unpack_f16_iq4_xs",
    };
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[
            Occurrence::new("st.global.v4.b32", Count::Exactly(4)),
            Occurrence::new("shfl.sync.bfly", Count::Exactly(8)),
        ],
        registers: 64,
        local_memory: false,
    };

    fn launch(&self) -> Launch {
        let pieces = Panels::new(self.k).padded_columns() / PIECE_ELEMENTS;
        let grid = Dim3 { x: pieces.div_ceil(BLOCK_PIECES), y: self.n.div_ceil(BLOCK_ROWS), z: 1 };
        Launch { grid, threads: THREADS, shared_bytes: 0 }
    }

    fn work(&self, _: u32) -> Option<Work> {
        let (weights, halves) = (plane_value_bytes(B::FORMAT, self.k), AsF16Panels::value_bytes(self.k));
        Some(Work::moving(u64::from(self.n) * weights, u64::from(self.n) * halves))
    }
}

impl<S: Simt, B: Weights> Kernel<S> for UnpackF16<B> {
    #[inline(always)]
    unsafe fn run(self, s: S) {
        let Dim3 { x: columns, y: rows, .. } = s.block();
        let (lane, warp) = (s.lane(), s.warp());
        let halves_of_block = BLOCK_PIECES / WARP_PIECES;
        let row = rows * BLOCK_ROWS + warp / halves_of_block * WARP_ROWS + lane % WARP_ROWS;
        let piece = columns * BLOCK_PIECES + warp % halves_of_block * WARP_PIECES + lane / WARP_ROWS;

        let stride = const { Planes::of(B::FORMAT) }.offsets(self.k / B::FORMAT.block_elements() as u32).row;
        // A row or a piece that does not exist is another one that does, and is not stored or zero.
        let source = self.weights.row(row.min(self.n - 1), stride);
        let existing = piece.min(self.k.div_ceil(PIECE_ELEMENTS) - 1);
        // SAFETY: there are rows and columns, or there would be no block.
        let loaded = unsafe { B::load_piece(s, source, self.k, existing) };
        let mut chunks = B::halves(s, loaded, existing);
        for (chunk, column) in chunks.iter_mut().zip((piece * PIECE_ELEMENTS..).step_by(EIGHT as usize)) {
            if column >= self.k {
                *chunk = [0; 4];
            }
        }

        // An even lane keeps its chunks 0 and 2 and gets the odd lane's, which keeps 1 and 3 and gets these.
        let odd = lane % 2;
        let panels = Panels::new(self.k);
        // Not by a branch: rustc would join two that ask the same, and copy the shuffles in between into both
        // arms, where lanes do not meet.
        let choose = |even: [u32; 4], of_odd: [u32; 4]| {
            let mask = odd.wrapping_neg();
            let mut chosen = even;
            for i in 0..4 {
                chosen[i] ^= (even[i] ^ of_odd[i]) & mask;
            }
            chosen
        };
        for pair in 0..CHUNKS as usize / 2 {
            let (first, second) = (chunks[2 * pair], chunks[2 * pair + 1]);
            let (kept, sent) = (choose(first, second), choose(second, first));
            let received = sent.map(|word| s.shuffle_xor(word, 1));
            let (of_even, of_odd) = (choose(kept, received), choose(received, kept));
            let column = piece * PIECE_ELEMENTS + (2 * pair as u32 + odd) * EIGHT;
            for (row, chunk) in [(row - odd, of_even), (row | 1, of_odd)] {
                if row < self.n && column < panels.padded_columns() {
                    let place = interleaved(spread(row, [self.first, self.apart]));
                    let to = self.out.at(panels.chunk(place, column));
                    // SAFETY: the chunk lies in the matrix, and is this lane's alone.
                    unsafe { s.store_global(to.cast(), chunk) };
                }
            }
        }
    }
}
