//! `embed_q4_k` and its like, one a format: rows of the embedding matrix, dequantized.
//!
//! `out[r][c] = scale · table[tokens[r]][c]`; out `rows × width` f32, row major; the table in the
//! layout of [`planes`](crate::quant::planes), as products read it, so that a model whose output matrix is its
//! embedding has it once.
//!
//! The ids lie in device memory: `argmax` leaves the next one where this kernel finds it.
//!
//! # Who owns what
//!
//! ```text
//! grid: x = row, y = 64 lots of its elements; thread t the lot t:
//!       a piece of 32 elements of a quantized format, eight of the others
//! ```
//!
//! # Numeric contract
//!
//! The table's values are those of [`Block::dequantize`](crate::quant::Block::dequantize), but for the
//! sign of zero; the product with `scale` rounds once, and with a scale of 1 not at all. A token that
//! the table does not have gives a row of NaN.

use core::marker::PhantomData;

use crate::quant::planes::{EIGHT, Numbers, PIECE_ELEMENTS, Pieces, Planes, RUN_ELEMENTS, plane_value_bytes};
use crate::quant::{
    Block, BlockIQ4_NL, BlockIQ4_XS, BlockQ2_K, BlockQ3_K, BlockQ4_0, BlockQ4_1, BlockQ4_K, BlockQ5_0,
    BlockQ5_1, BlockQ5_K, BlockQ6_K, BlockQ8_0, BlockQ8_K, bf16, f16,
};
use crate::simt::{Contract, Dim3, Expectations, Global, Kernel, Launch, Simt, Work, product};

/// Threads of a block.
const THREADS: u32 = 64;

/// A format that a table can have.
pub trait Table: Block {
    /// The kernel's name.
    const KERNEL: &'static str;
    /// Elements of a lot: what a thread takes.
    const LOT: u32;

    /// Calls `store` with each four elements of lot `index` and the column of the first.
    ///
    /// # Safety
    /// The row at `row`, of `blocks` blocks, lies in a live buffer that nobody writes, and has the lot.
    unsafe fn read<S: Simt>(s: S, row: Global<u8>, blocks: u32, index: u32, store: impl FnMut(u32, [f32; 4]));
}

macro_rules! quantized {
    ($($block:ty => $name:literal,)*) => {$(
        impl Table for $block {
            const KERNEL: &'static str = $name;
            const LOT: u32 = PIECE_ELEMENTS;

            #[inline(always)]
            #[track_caller]
            unsafe fn read<S: Simt>(
                s: S,
                row: Global<u8>,
                blocks: u32,
                index: u32,
                mut store: impl FnMut(u32, [f32; 4]),
            ) {
                // SAFETY: the caller's.
                let runs = unsafe { Self::piece(s, row, blocks, index) };
                for run in &runs {
                    for i in 0..const { (RUN_ELEMENTS / 4) as usize } {
                        let quants = run.quants[i].to_le_bytes();
                        let values = quants.map(|q| s.fma(run.scale, f32::from(q.cast_signed()), -run.min));
                        store(run.first + 4 * i as u32, values);
                    }
                }
            }
        }
    )*};
}

quantized! {
    BlockQ4_0 => "embed_q4_0",
    BlockQ4_1 => "embed_q4_1",
    BlockQ5_0 => "embed_q5_0",
    BlockQ5_1 => "embed_q5_1",
    BlockQ8_0 => "embed_q8_0",
    BlockQ2_K => "embed_q2_k",
    BlockQ3_K => "embed_q3_k",
    BlockQ4_K => "embed_q4_k",
    BlockQ5_K => "embed_q5_k",
    BlockQ6_K => "embed_q6_k",
    BlockQ8_K => "embed_q8_k",
    BlockIQ4_NL => "embed_iq4_nl",
    BlockIQ4_XS => "embed_iq4_xs",
}

macro_rules! numbers {
    ($($number:ty => $name:literal,)*) => {$(
        impl Table for $number {
            const KERNEL: &'static str = $name;
            const LOT: u32 = EIGHT;

            #[inline(always)]
            #[track_caller]
            unsafe fn read<S: Simt>(
                s: S,
                row: Global<u8>,
                _: u32,
                index: u32,
                mut store: impl FnMut(u32, [f32; 4]),
            ) {
                // SAFETY: the caller's.
                let words = unsafe { <Self as Numbers>::load(s, row, index) };
                let [a, b, c, d, e, f, g, h] = <Self as Numbers>::unpack(s, words);
                store(EIGHT * index, [a, b, c, d]);
                store(EIGHT * index + 4, [e, f, g, h]);
            }
        }
    )*};
}

numbers! {
    f32 => "embed_f32",
    f16 => "embed_f16",
    bf16 => "embed_bf16",
}

/// The arguments of an `embed`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Embed<B> {
    /// `rows × width`, aligned to 16 bytes; overlaps no input.
    pub out: Global<f32>,
    /// `vocabulary` rows of [`Planes`], aligned to 16 bytes.
    pub table: Global<u8>,
    /// `rows` ids.
    pub tokens: Global<u32>,
    /// How many rows, at most 2^31 - 1.
    pub rows: u32,
    /// Rows of the table.
    pub vocabulary: u32,
    /// Blocks of a row of the table; they make a multiple of [`LOT`](Table::LOT) elements, at most
    /// [`MOST_WIDTH`](Self::MOST_WIDTH).
    pub blocks: u32,
    /// What each element is multiplied by.
    pub scale: f32,
    /// The table's format.
    pub format: PhantomData<B>,
}

// SAFETY: addresses and numbers, which may be zero.
unsafe impl<B> bytemuck::Zeroable for Embed<B> {}

impl<B: Table> Embed<B> {
    /// Elements of the widest row: a grid's second axis has no more blocks.
    pub const MOST_WIDTH: u32 = 65_535 * THREADS * EIGHT;

    /// Elements of a row.
    const fn width(&self) -> u32 {
        self.blocks * B::FORMAT.block_elements() as u32
    }
}

impl<B: Table> Contract for Embed<B> {
    const NAME: &'static str = B::KERNEL;
    const EXPECTATIONS: Expectations = Expectations { instructions: &[], registers: 72, local_memory: false };
    const STARTS_EARLY: bool = true;

    fn launch(&self) -> Launch {
        let y = (self.width() / B::LOT).div_ceil(THREADS);
        Launch { grid: Dim3 { x: self.rows, y, z: 1 }, threads: THREADS, shared_bytes: 0 }
    }

    fn work(&self, _: u32) -> Option<Work> {
        let (rows, width) = (u64::from(self.rows), self.width());
        let read = rows * (4 + plane_value_bytes(B::FORMAT, width));
        Some(Work::moving(read, 4 * product([self.rows, width])))
    }
}

impl<S: Simt, B: Table> Kernel<S> for Embed<B> {
    #[inline(always)]
    unsafe fn run(self, s: S) {
        let row = s.block().x;
        let lot = s.block().y * THREADS + s.thread();
        let width = self.width();
        s.let_next_begin();
        s.wait_for_previous();
        if lot >= width / B::LOT {
            return;
        }
        let out = self.out.row(row, width);
        // SAFETY: a lot of a row of the table; each element of out has one thread. The ids may be what an
        // earlier launch has written.
        unsafe {
            let token = s.load_global(self.tokens.at(u64::from(row)));
            if token >= self.vocabulary {
                let first = lot * B::LOT;
                for i in 0..B::LOT / 4 {
                    s.store_global(out.at(u64::from(first + 4 * i)).cast(), [f32::NAN; 4]);
                }
                return;
            }
            let table = self.table.row(token, Planes::of(B::FORMAT).offsets(self.blocks).row);
            B::read(s, table, self.blocks, lot, |column, values| {
                let values = values.map(|x| x * self.scale);
                s.store_global(out.at(u64::from(column)).cast(), values);
            });
        }
    }
}
