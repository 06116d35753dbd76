//! Products in floating point: of the float formats, and of every format in the exact mode.

use gpu::quant::{Format, dequantize_row};

use super::super::real::{Real, sum};
use super::super::simd::{Simd, widen_slice};
use super::{COLUMNS, Input, ROWS, SEGMENT};

/// Multiplies rows of weights with every row of `input`, with sums of type `R`; `out` has for
/// each input row as many outputs as there are weight rows.
#[inline(always)]
pub(super) fn multiply<S: Simd, R: Real>(
    format: Format,
    weights: &[u8],
    input: &Input<'_>,
    out: &mut [&mut [f32]],
) {
    let columns = input.columns;
    let bytes = |columns: usize| columns / format.block_elements() * format.block_bytes();
    let mut tile = [[0.0f32; SEGMENT]; ROWS];
    let mut sums = vec![[R::ZERO; ROWS]; input.rows()];
    for (index, rows) in weights.chunks(ROWS * bytes(columns)).enumerate() {
        sums.fill([R::ZERO; ROWS]);
        for start in (0..columns).step_by(SEGMENT) {
            let len = SEGMENT.min(columns - start);
            for (row, tile) in rows.chunks_exact(bytes(columns)).zip(&mut tile) {
                decode::<S>(format, &row[bytes(start)..bytes(start + len)], &mut tile[..len]);
            }
            let slice = |row: usize| &input.values[row * columns + start..][..len];
            let (groups, rest) = sums.as_chunks_mut::<COLUMNS>();
            let first_rest = groups.len() * COLUMNS;
            for (group, sums) in groups.iter_mut().enumerate() {
                add::<S, R, COLUMNS>(&tile, core::array::from_fn(|c| slice(group * COLUMNS + c)), sums);
            }
            for (row, sums) in rest.iter_mut().enumerate() {
                add::<S, R, 1>(&tile, [slice(first_rest + row)], core::array::from_mut(sums));
            }
        }
        for (out, sums) in out.iter_mut().zip(&sums) {
            let out = out.chunks_mut(ROWS).nth(index).unwrap_or_default();
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = sum.to_f32();
            }
        }
    }
}

/// Decodes a stretch of a row.
#[inline(always)]
fn decode<S: Simd>(format: Format, blocks: &[u8], out: &mut [f32]) {
    match format {
        // The scalar conversion of the crate `half` is a call; this one vectorizes.
        Format::F16 => widen_slice::<S>(bytemuck::cast_slice(blocks), out),
        _ => dequantize_row(format, blocks, out).expect("a segment is whole blocks"),
    }
}

/// Adds the products of a tile's rows with stretches of `N` input rows.
#[inline(always)]
fn add<S: Simd, R: Real, const N: usize>(
    tile: &[[f32; SEGMENT]; ROWS],
    inputs: [&[f32]; N],
    sums: &mut [[R; ROWS]; N],
) {
    let whole = inputs[0].len() / 8;
    let x = inputs.map(|input| &input.as_chunks::<8>().0[..whole]);
    let w = tile.each_ref().map(|row| &row.as_chunks::<8>().0[..whole]);
    let mut lanes = [[R::load::<S>(&[R::ZERO; 8]); ROWS]; N];
    for chunk in 0..whole {
        for c in 0..N {
            for r in 0..ROWS {
                lanes[c][r] = R::fma_lanes::<S>(&w[r][chunk], &x[c][chunk], lanes[c][r]);
            }
        }
    }
    for c in 0..N {
        for r in 0..ROWS {
            let mut total = sum(R::store::<S>(lanes[c][r]));
            for (&w, &x) in tile[r].iter().zip(inputs[c]).skip(8 * whole) {
                total = R::fma::<S>(w, x, total);
            }
            sums[c][r] = sums[c][r] + total;
        }
    }
}
