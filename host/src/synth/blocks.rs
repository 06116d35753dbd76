//! Blocks of random quants, with scales that make them weights.

use std::ops::Range;
use std::sync::OnceLock;

use bytemuck::must_cast_slice;
use gpu::quant::{
    Block, BlockIQ4_NL, BlockIQ4_XS, BlockQ2_K, BlockQ3_K, BlockQ4_0, BlockQ4_1, BlockQ4_K, BlockQ5_0,
    BlockQ5_1, BlockQ5_K, BlockQ6_K, BlockQ8_0, Format, bf16, f16,
};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// About as many bytes are in a piece: enough that handing it to a thread costs nothing beside making it.
/// The bytes of a model depend on this number.
const PIECE_BYTES: usize = 256 << 10;

/// Pieces are a multiple of so many blocks. Blocks have an even number of bytes, so pieces start at
/// multiples of 32 bytes, as tensors do.
const PIECE_BLOCKS: usize = 16;

/// Blocks that are made to learn the size of a format's values.
const SAMPLE_BLOCKS: usize = 4096;

/// A part of a file that can be made by itself.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    /// Where it stands in the file; it starts at a multiple of 32 bytes.
    pub(super) range: Range<u64>,
    content: Content,
}

#[derive(Clone, Copy, Debug)]
enum Content {
    /// F32.
    Ones,
    Random {
        settle: Settle,
        scale: f32,
        seed: u64,
        /// Which of ChaCha's streams: another one for each piece.
        stream: u64,
    },
}

impl Piece {
    pub(super) fn ones(range: Range<u64>) -> Self {
        Self { range, content: Content::Ones }
    }

    /// The pieces of tensor `number`, which stands at `range`: values whose root mean square is `deviation`.
    ///
    /// # Panics
    /// For Q8_K, of which nothing is made.
    pub(super) fn random(
        format: Format,
        deviation: f64,
        (range, number): (Range<u64>, u32),
        seed: u64,
    ) -> impl Iterator<Item = Self> {
        let maker = MAKERS.iter().find(|maker| maker.format == format);
        let maker = maker.unwrap_or_else(|| panic!("no mix has {format}"));
        let scale = (deviation / maker.unit.get_or_init(maker.measure)) as f32;
        let bytes = PIECE_BYTES / format.block_bytes() / PIECE_BLOCKS * PIECE_BLOCKS * format.block_bytes();
        let starts = range.clone().step_by(bytes);
        starts.zip(0_u64..).map(move |(start, index)| {
            let content = Content::Random {
                settle: maker.settle,
                scale,
                seed,
                stream: u64::from(number) << 32 | index,
            };
            Self { range: start..range.end.min(start + bytes as u64), content }
        })
    }

    /// Makes it, in place of zeros. `out` is aligned to 4 bytes.
    pub(super) fn make(&self, out: &mut [u8]) {
        match self.content {
            Content::Ones => out.copy_from_slice(must_cast_slice(&vec![1.0_f32; out.len() / 4])),
            Content::Random { settle, scale, seed, stream } => {
                random_bits(out, seed, stream);
                settle(out, scale);
            }
        }
    }
}

/// Fills bytes from ChaCha8 keyed with the seed's eight little-endian bytes and zeros.
fn random_bits(out: &mut [u8], seed: u64, stream: u64) {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut random = ChaCha8Rng::from_seed(key);
    random.set_stream(stream);
    random.fill_bytes(out);
}

/// Turns blocks of random bits into blocks of weights.
type Settle = fn(&mut [u8], f32);

/// How blocks of a format are made.
struct Maker {
    format: Format,
    settle: Settle,
    /// Measures `unit`.
    measure: fn() -> f64,
    /// The root mean square of values made with scale 1.
    unit: OnceLock<f64>,
}

/// The formats that can be made, in the order of the file's type ids.
static MAKERS: [Maker; 15] = [
    maker::<f32>(),
    maker::<f16>(),
    maker::<BlockQ4_0>(),
    maker::<BlockQ4_1>(),
    maker::<BlockQ5_0>(),
    maker::<BlockQ5_1>(),
    maker::<BlockQ8_0>(),
    maker::<BlockQ2_K>(),
    maker::<BlockQ3_K>(),
    maker::<BlockQ4_K>(),
    maker::<BlockQ5_K>(),
    maker::<BlockQ6_K>(),
    maker::<BlockIQ4_NL>(),
    maker::<BlockIQ4_XS>(),
    maker::<bf16>(),
];

const fn maker<B: Weights>() -> Maker {
    Maker { format: B::FORMAT, settle: settle::<B>, measure: measure::<B>, unit: OnceLock::new() }
}

fn settle<B: Weights>(bytes: &mut [u8], scale: f32) {
    for block in bytemuck::cast_slice_mut::<u8, B>(bytes) {
        block.settle(scale);
    }
}

/// The root mean square of some values made with scale 1: rather than a formula for each format.
fn measure<B: Weights>() -> f64 {
    let mut blocks = vec![B::zeroed(); SAMPLE_BLOCKS];
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut blocks);
    random_bits(bytes, 0, 0);
    settle::<B>(bytes, 1.0);
    let values = blocks.iter().map(|block| block.dequantize());
    let squares: f64 = values.flat_map(|values| values.as_ref().to_vec()).map(|x| f64::from(x).powi(2)).sum();
    (squares / (SAMPLE_BLOCKS * B::FORMAT.block_elements()) as f64).sqrt()
}

/// A block of random bits that becomes one of weights.
trait Weights: Block {
    /// Sets scales and minimums so that values lie evenly around zero, over some blocks at least, with a size
    /// in proportion to `scale`. The quants stay as they are.
    fn settle(&mut self, scale: f32);
}

/// The scale of one block: between a half and three halves of the size, as random bits have it. So a kernel
/// that takes a neighbour's scale gives other numbers.
fn step(bits: f16, scale: f32) -> f32 {
    scale * (0.5 + f32::from(bits.to_bits() as u8) / 256.0)
}

/// The same with either sign: for quants that are not even around zero.
fn signed_step(bits: f16, scale: f32) -> f32 {
    let step = step(bits, scale);
    if bits.is_sign_negative() { -step } else { step }
}

impl Weights for f32 {
    fn settle(&mut self, scale: f32) {
        *self = scale * self.to_bits().cast_signed() as f32;
    }
}

impl Weights for f16 {
    fn settle(&mut self, scale: f32) {
        *self = Self::from_f32(scale * f32::from(self.to_bits().cast_signed()));
    }
}

impl Weights for bf16 {
    fn settle(&mut self, scale: f32) {
        *self = Self::from_f32(scale * f32::from(self.to_bits().cast_signed()));
    }
}

/// Formats with one signed scale.
macro_rules! one_scale {
    ($($block:ty),*) => {$(
        impl Weights for $block {
            fn settle(&mut self, scale: f32) {
                self.d = f16::from_f32(signed_step(self.d, scale));
            }
        }
    )*};
}
one_scale!(BlockQ4_0, BlockQ5_0, BlockQ8_0, BlockQ3_K, BlockQ6_K, BlockIQ4_NL, BlockIQ4_XS);

impl Weights for BlockQ4_1 {
    fn settle(&mut self, scale: f32) {
        let d = step(self.d, scale);
        (self.d, self.m) = (f16::from_f32(d), f16::from_f32(-7.5 * d));
    }
}

impl Weights for BlockQ5_1 {
    fn settle(&mut self, scale: f32) {
        let d = step(self.d, scale);
        (self.d, self.m) = (f16::from_f32(d), f16::from_f32(-15.5 * d));
    }
}

/// Every sub-block's minimum equals its scale.
impl Weights for BlockQ2_K {
    fn settle(&mut self, scale: f32) {
        let d = step(self.d, scale);
        (self.d, self.dmin) = (f16::from_f32(d), f16::from_f32(1.5 * d));
        self.scales = self.scales.map(|both| (both & 0x0F) * 0x11);
    }
}

impl Weights for BlockQ4_K {
    fn settle(&mut self, scale: f32) {
        let d = step(self.d, scale);
        (self.d, self.dmin) = (f16::from_f32(d), f16::from_f32(7.5 * d));
        equal_mins(&mut self.scales);
    }
}

impl Weights for BlockQ5_K {
    fn settle(&mut self, scale: f32) {
        let d = step(self.d, scale);
        (self.d, self.dmin) = (f16::from_f32(d), f16::from_f32(15.5 * d));
        equal_mins(&mut self.scales);
    }
}

/// Makes every minimum equal its scale: see [`gpu::quant::bits::scales_and_mins`].
fn equal_mins(packed: &mut [u8; 12]) {
    for j in 0..4 {
        packed[j + 4] = packed[j];
        packed[j + 8] = (packed[j + 8] & 0x0F) * 0x11;
    }
}
