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

use bytemuck::must_cast_ref as cast_ref;
use gpu::quant::{Format, with_block};

use super::super::activation::{GROUP, Quantized, Slice};
use super::super::real::sum;
use super::super::simd::Simd;
use super::super::unpack::{Group, Groups, Quants};
use super::{ROWS, SEGMENT, Weights};

const GROUPS: usize = SEGMENT / GROUP;

/// A segment of [`ROWS`] weight rows, unpacked: for each group of columns all rows.
pub(super) struct Tile {
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
    pub(super) fn unpack<S: Simd, B: Quants>(&mut self, blocks: &[B], row: usize) {
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

/// Multiplies rows of weights with every row of `input`; `out` has for each input row as many
/// outputs as there are weight rows.
#[inline(always)]
pub(super) fn multiply<S: Simd, const NARROW: bool>(
    format: Format,
    weights: &[u8],
    input: &Quantized,
    out: &mut [&mut [f32]],
) {
    let columns = input.columns();
    let bytes = |columns: usize| columns / format.block_elements() * format.block_bytes();
    let mut tile = Tile::EMPTY;
    for (index, rows) in weights.chunks(ROWS * bytes(columns)).enumerate() {
        for start in (0..columns).step_by(SEGMENT) {
            let len = SEGMENT.min(columns - start);
            let segment = bytes(start)..bytes(start + len);
            with_block!(format, B => {
                for (row, weights) in rows.chunks_exact(bytes(columns)).enumerate() {
                    // A tensor starts at a multiple of 8 bytes (the reader checks that), a
                    // row at one of its blocks.
                    B::unpack::<S>(bytemuck::cast_slice(&weights[segment.clone()]), &mut tile, row);
                }
            });
            for (row, out) in out.iter_mut().enumerate() {
                let sums = dot::<S, NARROW>(&tile, input.slice(row, start, len));
                let out = out.chunks_mut(ROWS).nth(index).unwrap_or_default();
                for (out, sum) in out.iter_mut().zip(sums) {
                    // The first segment overwrites whatever was there.
                    *out = if start == 0 { sum } else { *out + sum };
                }
            }
        }
    }
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
        let minus_sums = S::mul(S::load(sums), S::splat(-1.0));
        for r in 0..ROWS {
            lanes[r] = S::fma(S::load(cast_ref(&offset[r])), minus_sums, lanes[r]);
        }
    }
    let mut sums = [0.0; ROWS];
    for r in 0..ROWS {
        sums[r] = sum::<S, f32>(lanes[r]);
    }
    sums
}
