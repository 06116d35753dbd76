//! Products of quantized blocks with 8-bit activations.
//!
//! For a group of 32 columns, with weights `scale · q − offset` and activations `d · a`:
//!
//! ```text
//! Σ w·x = d · Σ scale · (Σ q·a)  −  Σ offset · (d · Σ a)
//!         8 lanes of 4 products      one term per 16 columns
//! ```
//!
//! The inner sums are exact in integers; the outer ones are f32, eight lanes wide.

use core::iter::Zip;
use core::marker::PhantomData;
use core::slice::{Iter, IterMut};

use bytemuck::{cast_slice, must_cast_ref};
use gpu::quant::{Format, with_block};

use super::super::activation::{GROUP, Quantized, Slice};
use super::super::real::sum;
use super::super::simd::Simd;
use super::super::unpack::{Group, Groups, Quants};
use super::{ROWS, SEGMENT};

const GROUPS: usize = SEGMENT / GROUP;

/// A segment of [`ROWS`] weight rows, unpacked: for each group of columns all rows.
struct Tile {
    q: [[[u8; GROUP]; ROWS]; GROUPS],
    /// A group's scales, one for each lane of the product.
    scale: [[[f32; 8]; ROWS]; GROUPS],
    /// Offsets of 16 columns each; zero behind the segment's end up to a whole chunk.
    offset: [[[[f32; 2]; 4]; ROWS]; GROUPS / 4],
}

impl Tile {
    const EMPTY: Self = Self {
        q: [[[0; GROUP]; ROWS]; GROUPS],
        scale: [[[0.0; 8]; ROWS]; GROUPS],
        offset: [[[[0.0; 2]; 4]; ROWS]; GROUPS / 4],
    };

    /// Unpacks a segment of one weight row.
    #[inline(always)]
    fn unpack<S: Simd, B: Quants>(&mut self, blocks: &[B], row: usize) {
        let mut out = TileRow { tile: self, row, at: 0 };
        for block in blocks {
            block.groups::<S>(&mut out);
        }
        for at in out.at..out.at.next_multiple_of(4) {
            self.offset[at / 4][row][at % 4] = [0.0; 2];
        }
    }
}

/// A row that is being unpacked: `at` is the next group.
struct TileRow<'a> {
    tile: &'a mut Tile,
    row: usize,
    at: usize,
}

impl Groups for TileRow<'_> {
    #[inline(always)]
    fn push(&mut self, Group { q, scale: [low, high], offset }: Group) {
        let (at, row) = (self.at, self.row);
        self.tile.q[at][row] = q;
        self.tile.scale[at][row] = [low, low, low, low, high, high, high, high];
        self.tile.offset[at / 4][row][at % 4] = offset;
        self.at += 1;
    }
}

/// Multiplies rows of weights in a quantized `format` with every row of `input`; `out` has for
/// each input row as many outputs as there are weight rows.
///
/// Formats are matched to blocks where these are unpacked and nowhere else, so that the loops
/// are compiled once and not for every format.
#[inline(always)]
pub(super) fn multiply<S: Simd, const NARROW: bool>(
    format: Format,
    weights: &[u8],
    input: &Quantized,
    out: &mut [&mut [f32]],
) {
    let rows = Rows { format, weights, columns: input.columns() };
    match out {
        [out] => multiply_one::<S>(&rows, input, out),
        _ => multiply_many::<S, NARROW>(&rows, input, out),
    }
}

/// Rows of weights. A tensor starts at a multiple of 8 bytes (the reader checks that), a row at
/// one of its blocks: casts to blocks find them aligned.
struct Rows<'a> {
    format: Format,
    weights: &'a [u8],
    columns: usize,
}

impl Rows<'_> {
    /// Bytes of so many columns.
    #[inline(always)]
    fn bytes(&self, columns: usize) -> usize {
        self.format.bytes_of(columns)
    }

    /// First column and length of each segment.
    #[inline(always)]
    fn segments(&self) -> impl Iterator<Item = (usize, usize)> {
        let columns = self.columns;
        (0..columns).step_by(SEGMENT).map(move |start| (start, SEGMENT.min(columns - start)))
    }
}

/// Products with several input rows, through a tile.
#[inline(always)]
fn multiply_many<S: Simd, const NARROW: bool>(rows: &Rows<'_>, input: &Quantized, out: &mut [&mut [f32]]) {
    let row_bytes = rows.bytes(rows.columns);
    let mut tile = Tile::EMPTY;
    for (index, weights) in rows.weights.chunks(ROWS * row_bytes).enumerate() {
        for (start, len) in rows.segments() {
            let segment = rows.bytes(start)..rows.bytes(start + len);
            with_block!(rows.format, quantized B => {
                for (row, weights) in weights.chunks_exact(row_bytes).enumerate() {
                    tile.unpack::<S, B>(cast_slice(&weights[segment.clone()]), row);
                }
            }, else unreachable!("a float format"));
            for (row, out) in out.iter_mut().enumerate() {
                let sums = dot::<S, NARROW>(&tile, input.slice(row, start, len));
                let out = out[index * ROWS..].iter_mut().take(ROWS);
                for (out, sum) in out.zip(sums) {
                    // The first segment overwrites whatever was there.
                    *out = if start == 0 { sum } else { *out + sum };
                }
            }
        }
    }
}

/// Products with a single input row.
#[inline(always)]
fn multiply_one<S: Simd>(rows: &Rows<'_>, input: &Quantized, out: &mut [f32]) {
    for (out, weights) in out.iter_mut().zip(rows.weights.chunks_exact(rows.bytes(rows.columns))) {
        for (start, len) in rows.segments() {
            let segment = &weights[rows.bytes(start)..rows.bytes(start + len)];
            let sum = with_block!(rows.format, quantized B => {
                dot_one::<S, B>(cast_slice(segment), input.slice(0, start, len))
            }, else unreachable!("a float format"));
            *out = if start == 0 { sum } else { *out + sum };
        }
    }
}

/// The product of a segment of one weight row with one of the single input row, without a tile
/// in between: each group is multiplied as it is unpacked, in the order of [`dot`], so that
/// the result has the same bits.
#[inline(always)]
fn dot_one<S: Simd, B: Quants>(blocks: &[B], input: Slice<'_>) -> f32 {
    // Beside the row, not in it: an array in memory must not hold its lanes out of a register.
    let mut offset = [[0.0; 2]; GROUPS];
    let mut row = OneRow::<S, B> {
        lanes: S::splat(0.0),
        groups: input.q.iter().zip(input.d).zip(&mut offset),
        format: PhantomData,
    };
    for block in blocks {
        block.groups::<S>(&mut row);
    }
    let mut lanes = row.lanes;
    let (offset, _) = offset.as_chunks::<4>();
    for (sums, offset) in input.sums.iter().zip(offset) {
        lanes = subtract_offset::<S>(offset, sums, lanes);
    }
    sum::<S, f32>(lanes)
}

/// Groups of activations and their scales.
type Activations<'a> = Zip<Iter<'a, [i8; GROUP]>, Iter<'a, f32>>;

/// A row that is being multiplied.
struct OneRow<'a, S: Simd, B> {
    lanes: S::Lanes,
    /// The groups that are still to come: activations, their scale, and where the weights'
    /// offset goes.
    groups: Zip<Activations<'a>, IterMut<'a, [f32; 2]>>,
    format: PhantomData<B>,
}

impl<S: Simd, B: Quants> Groups for OneRow<'_, S, B> {
    #[inline(always)]
    fn push(&mut self, Group { q, scale: [low, high], offset }: Group) {
        if let Some(((a, &d), out)) = self.groups.next() {
            let products = S::mul(S::dot(&q, a, B::NARROW), S::splat(d));
            self.lanes = S::fma(products, S::halves(low, high), self.lanes);
            *out = offset;
        }
    }
}

/// `lanes − offset · sums` for the offsets of four groups.
#[inline(always)]
fn subtract_offset<S: Simd>(offset: &[[f32; 2]; 4], sums: &[f32; 8], lanes: S::Lanes) -> S::Lanes {
    let minus_sums = S::mul(S::load(sums), S::splat(-1.0));
    S::fma(S::load(must_cast_ref(offset)), minus_sums, lanes)
}

/// Products of a tile's rows with a stretch of one input row.
#[inline(always)]
fn dot<S: Simd, const NARROW: bool>(tile: &Tile, input: Slice<'_>) -> [f32; ROWS] {
    let mut lanes = [S::splat(0.0); ROWS];
    for (((a, &d), q), scale) in input.q.iter().zip(input.d).zip(&tile.q).zip(&tile.scale) {
        let d = S::splat(d);
        for r in 0..ROWS {
            lanes[r] = S::fma(S::mul(S::dot(&q[r], a, NARROW), d), S::load(&scale[r]), lanes[r]);
        }
    }
    for (sums, offset) in input.sums.iter().zip(&tile.offset) {
        for r in 0..ROWS {
            lanes[r] = subtract_offset::<S>(&offset[r], sums, lanes[r]);
        }
    }
    let mut sums = [0.0; ROWS];
    for r in 0..ROWS {
        sums[r] = sum::<S, f32>(lanes[r]);
    }
    sums
}
