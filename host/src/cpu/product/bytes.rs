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

use gpu::quant::{Format, with_block};

use super::super::activation::{GROUP, Quantized, Slice};
use super::super::real::sum;
use super::super::simd::Simd;
use super::super::unpack::Quants;
use super::{COLUMNS, ROWS, SEGMENT, Weights};

const GROUPS: usize = SEGMENT / GROUP;

/// A segment of [`ROWS`] weight rows, unpacked.
pub(super) struct Tile {
    q: [[[u8; GROUP]; GROUPS]; ROWS],
    /// A group's scales, one for each lane of the product.
    scale: [[[f32; 8]; GROUPS]; ROWS],
    /// Offsets of 16 columns each; zero behind the segment's end up to a whole chunk.
    offset: [[[f32; 8]; GROUPS / 4]; ROWS],
}

impl Tile {
    /// Unpacks a segment of one weight row.
    #[inline(always)]
    pub(super) fn unpack<S: Simd, B: Quants>(&mut self, blocks: &[B], row: usize) {
        let (q, scale) = (&mut self.q[row], &mut self.scale[row]);
        let (offset, _) = self.offset[row].as_flattened_mut().as_chunks_mut::<2>();
        let mut at = 0;
        for block in blocks {
            block.groups::<S>(|group| {
                let [low, high] = group.scale;
                q[at] = group.q;
                scale[at] = [low, low, low, low, high, high, high, high];
                offset[at] = group.offset;
                at += 1;
            });
        }
        offset[at..at.next_multiple_of(4)].fill([0.0; 2]);
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
    let mut tile = Tile {
        q: [[[0; GROUP]; GROUPS]; ROWS],
        scale: [[[0.0; 8]; GROUPS]; ROWS],
        offset: [[[0.0; 8]; GROUPS / 4]; ROWS],
    };
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
            let mut store = |row: usize, sums: [f32; ROWS]| {
                let out = out[row].chunks_mut(ROWS).nth(index).unwrap_or_default();
                for (out, sum) in out.iter_mut().zip(sums) {
                    // The first segment overwrites whatever was there.
                    *out = if start == 0 { sum } else { *out + sum };
                }
            };
            let mut row = 0;
            while row + COLUMNS <= input.rows() {
                let slices = core::array::from_fn(|c| input.slice(row + c, start, len));
                for (c, sums) in dot::<S, NARROW, COLUMNS>(&tile, slices).into_iter().enumerate() {
                    store(row + c, sums);
                }
                row += COLUMNS;
            }
            while row < input.rows() {
                let [sums] = dot::<S, NARROW, 1>(&tile, [input.slice(row, start, len)]);
                store(row, sums);
                row += 1;
            }
        }
    }
}

/// Products of a tile's rows with stretches of `N` input rows.
#[inline(always)]
fn dot<S: Simd, const NARROW: bool, const N: usize>(tile: &Tile, inputs: [Slice<'_>; N]) -> [[f32; ROWS]; N] {
    let mut lanes = [[S::splat(0.0); ROWS]; N];
    let groups = inputs[0].q.len().min(GROUPS);
    let (a, d) = (inputs.map(|input| &input.q[..groups]), inputs.map(|input| &input.d[..groups]));
    let (q, scale) = (tile.q.each_ref().map(|q| &q[..groups]), tile.scale.each_ref().map(|s| &s[..groups]));
    for group in 0..groups {
        for c in 0..N {
            let d = S::splat(d[c][group]);
            for r in 0..ROWS {
                let products = S::mul(S::dot(&q[r][group], &a[c][group], NARROW), d);
                lanes[c][r] = S::fma(products, S::load(&scale[r][group]), lanes[c][r]);
            }
        }
    }
    let chunks = groups.div_ceil(4);
    let sums = inputs.map(|input| &input.sums[..chunks]);
    let offset = tile.offset.each_ref().map(|offset| &offset[..chunks]);
    for chunk in 0..chunks {
        for c in 0..N {
            let minus_sums = S::mul(S::load(&sums[c][chunk]), S::splat(-1.0));
            for r in 0..ROWS {
                lanes[c][r] = S::fma(S::load(&offset[r][chunk]), minus_sums, lanes[c][r]);
            }
        }
    }
    // Loops, because `map` is not always inlined.
    let mut out = [[0.0; ROWS]; N];
    for c in 0..N {
        for r in 0..ROWS {
            out[c][r] = sum(S::store(lanes[c][r]));
        }
    }
    out
}
