//! Weights on their way into a product: a piece of 32 elements as it is loaded, and as f16.

use crate::quant::planes::{EIGHT, Numbers, PIECE_ELEMENTS, Pieces, Run};
use crate::quant::{Block, bf16, f16};
use crate::simt::{Global, Simt};

/// Chunks of eight f16 in a piece.
pub(super) const CHUNKS: u32 = PIECE_ELEMENTS / EIGHT;

/// Rows of weights in planes, a piece of 32 elements at a time, whatever their format.
pub trait Weights: Block {
    /// A piece as it is loaded. The default is one of zeros.
    type Loaded: Copy + Default;

    /// Loads a piece of a row of `k` elements. What of the row's last piece does not exist is other
    /// elements of the row.
    ///
    /// # Safety
    /// The row lies in a live buffer that nobody writes, and has an element of the piece; `k` is a multiple
    /// of the format's block and of 8, and not 0.
    unsafe fn load_piece<S: Simt>(s: S, row: Global<u8>, k: u32, piece: u32) -> Self::Loaded;

    /// The piece's elements, each rounded once to f16, to nearest even.
    fn halves<S: Simt>(s: S, loaded: Self::Loaded, piece: u32) -> [[u32; 4]; CHUNKS as usize];
}

impl<B: Pieces> Weights for B {
    type Loaded = B::Words;

    #[inline(always)]
    #[track_caller]
    unsafe fn load_piece<S: Simt>(s: S, row: Global<u8>, k: u32, piece: u32) -> B::Words {
        // SAFETY: the caller's; blocks are whole pieces.
        unsafe { B::load(s, row, k / B::FORMAT.block_elements() as u32, piece) }
    }

    #[inline(always)]
    #[track_caller]
    fn halves<S: Simt>(s: S, words: B::Words, piece: u32) -> [[u32; 4]; CHUNKS as usize] {
        let [first, second] = B::unpack(s, words, piece);
        let ([a, b], [c, d]) = (halves_of_run::<B, S>(s, &first), halves_of_run::<B, S>(s, &second));
        [a, b, c, d]
    }
}

macro_rules! numbers {
    ($($Number:ty)*) => {$(
        impl Weights for $Number {
            type Loaded = [<Self as Numbers>::Words; CHUNKS as usize];

            #[inline(always)]
            #[track_caller]
            unsafe fn load_piece<S: Simt>(s: S, row: Global<u8>, k: u32, piece: u32) -> Self::Loaded {
                let (first, last) = (piece * CHUNKS, k / EIGHT - 1);
                // SAFETY: the caller's; the row has what is loaded.
                [0, 1, 2, 3].map(|i| unsafe { <Self as Numbers>::load(s, row, (first + i).min(last)) })
            }

            #[inline(always)]
            #[track_caller]
            fn halves<S: Simt>(s: S, eights: Self::Loaded, _: u32) -> [[u32; 4]; CHUNKS as usize] {
                eights.map(|eight| <Self as Numbers>::halves(s, eight))
            }
        }
    )*};
}

numbers!(f32 f16 bf16);

/// A run's values as f16, in two chunks.
#[inline(always)]
#[track_caller]
fn halves_of_run<B: Pieces, S: Simt>(s: S, run: &Run) -> [[u32; 4]; 2] {
    let mut pairs = [0; 8];
    for (i, &quants) in run.quants.iter().enumerate() {
        let [a, b, c, d] = values::<B, S>(s, quants, run.scale, run.min);
        pairs[2 * i] = s.f16x2_from_f32(a, b);
        pairs[2 * i + 1] = s.f16x2_from_f32(c, d);
    }
    [[pairs[0], pairs[1], pairs[2], pairs[3]], [pairs[4], pairs[5], pairs[6], pairs[7]]]
}

/// `scale · q - min` for four quants, each rounded once.
///
/// A byte becomes a float by standing in the mantissa of one: below a 2 as `2 + q / 64`, where it
/// has seven bits, below 2^23 as `2^23 + q`, where it has eight.
#[inline(always)]
#[track_caller]
fn values<B: Pieces, S: Simt>(s: S, quants: u32, scale: f32, min: f32) -> [f32; 4] {
    if !B::HAS_MIN {
        // Signed: q + 128 in eight bits. The subtraction is exact.
        let quants = quants ^ 0x8080_8080;
        return BYTES.map(|byte| {
            let q =
                f32::from_bits(s.permute_bytes(quants, 0x4b00_0000, 0x7440 | byte)) - (8_388_608.0 + 128.0);
            scale * q
        });
    }
    let float = |byte: u32| f32::from_bits(s.permute_bytes(quants, 0x4000_0000, 0x7044 | byte << 8));
    if !B::OWN_MIN {
        // 128 scale + min is (128 + offset) scale, exact, and so is the whole before its rounding.
        let below = -(128.0 * scale + min);
        BYTES.map(|byte| s.fma(64.0 * scale, float(byte), below))
    } else {
        BYTES.map(|byte| s.fma(64.0 * scale, float(byte) - 2.0, -min))
    }
}

/// The bytes of a register.
const BYTES: [u32; 4] = [0, 1, 2, 3];
