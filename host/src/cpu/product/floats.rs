//! Products in floating point: of the float formats, and of every format in the exact mode.

use super::super::real::{Real, sum};
use super::super::simd::Simd;
use super::{COLUMNS, Input, ROWS, SEGMENT, Weights};

/// Multiplies rows of blocks with every row of `input`, with sums of type `R`; `out` has for
/// each input row as many outputs as there are weight rows.
#[inline(always)]
pub(super) fn multiply<S: Simd, B: Weights, R: Real>(
    weights: &[B],
    input: &Input<'_>,
    out: &mut [&mut [f32]],
) {
    let elements = const { B::FORMAT.block_elements() };
    let blocks = input.columns / elements;
    let mut tile = [[0.0f32; SEGMENT]; ROWS];
    let mut sums = vec![[R::ZERO; ROWS]; input.rows()];
    for (index, rows) in weights.chunks(ROWS * blocks).enumerate() {
        sums.fill([R::ZERO; ROWS]);
        for start in (0..input.columns).step_by(SEGMENT) {
            let len = SEGMENT.min(input.columns - start);
            for (row, tile) in rows.chunks_exact(blocks).zip(&mut tile) {
                B::decode::<S>(&row[start / elements..(start + len) / elements], &mut tile[..len]);
            }
            let slice = |row: usize| &input.values[row * input.columns + start..][..len];
            let (groups, rest) = sums.as_chunks_mut::<COLUMNS>();
            let first_rest = groups.len() * COLUMNS;
            for (group, sums) in groups.iter_mut().enumerate() {
                add::<S, R, COLUMNS>(&tile, core::array::from_fn(|c| slice(group * COLUMNS + c)), sums);
            }
            for (row, sums) in rest.iter_mut().enumerate() {
                add::<S, R, 1>(&tile, [slice(first_rest + row)], core::array::from_mut(sums));
            }
        }
        let count = rows.len() / blocks;
        for (out, sums) in out.iter_mut().zip(&sums) {
            for (out, sum) in out[index * ROWS..index * ROWS + count].iter_mut().zip(sums) {
                *out = sum.to_f32();
            }
        }
    }
}

/// Adds the products of a tile's rows with stretches of `N` input rows.
#[inline(always)]
fn add<S: Simd, R: Real, const N: usize>(
    tile: &[[f32; SEGMENT]; ROWS],
    inputs: [&[f32]; N],
    sums: &mut [[R; ROWS]; N],
) {
    let mut lanes = [[[R::ZERO; 8]; ROWS]; N];
    let chunks = inputs.map(|input| input.as_chunks::<8>());
    let tiles = tile.each_ref().map(|row| row.as_chunks::<8>().0);
    let whole = chunks[0].0.len().min(SEGMENT / 8);
    for chunk in 0..whole {
        for c in 0..N {
            for r in 0..ROWS {
                for l in 0..8 {
                    lanes[c][r][l] = R::fma::<S>(tiles[r][chunk][l], chunks[c].0[chunk][l], lanes[c][r][l]);
                }
            }
        }
    }
    for c in 0..N {
        for r in 0..ROWS {
            let mut total = sum(lanes[c][r]);
            for (l, &x) in chunks[c].1.iter().enumerate() {
                total = R::fma::<S>(tile[r][whole * 8 + l], x, total);
            }
            sums[c][r] = sums[c][r] + total;
        }
    }
}
