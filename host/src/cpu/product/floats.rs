//! Products in floating point: of the float formats, and of every format in the exact mode.

use gpu::quant::{Format, dequantize_row};

use super::super::real::{Real, sum};
use super::super::simd::{Simd, widen_slice};
use super::{Form, Input, ROWS, SEGMENT};

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
    let bytes = |columns: usize| format.bytes_of(columns);
    let mut tile = [[0.0f32; SEGMENT]; ROWS];
    let mut sums = vec![[R::ZERO; ROWS]; input.rows()];
    for (index, rows) in weights.chunks(ROWS * bytes(columns)).enumerate() {
        sums.fill([R::ZERO; ROWS]);
        for start in (0..columns).step_by(SEGMENT) {
            let len = SEGMENT.min(columns - start);
            for (row, tile) in rows.chunks_exact(bytes(columns)).zip(&mut tile) {
                decode::<S>(format, &row[bytes(start)..bytes(start + len)], &mut tile[..len]);
                if let Form::Rounded(grid) = input.form {
                    grid.round_in_place(&mut tile[..len]);
                }
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                add::<S, R>(&tile, &input.values[row * columns + start..][..len], sums);
            }
        }
        for (out, sums) in out.iter_mut().zip(&sums) {
            let out = out[index * ROWS..].iter_mut().take(ROWS);
            for (out, sum) in out.zip(sums) {
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

/// Adds the products of a tile's rows with a stretch of one input row.
#[inline(always)]
fn add<S: Simd, R: Real>(tile: &[[f32; SEGMENT]; ROWS], input: &[f32], sums: &mut [R; ROWS]) {
    let (chunks, rest) = input.as_chunks::<8>();
    let [w0, w1, w2, w3] = tile.each_ref().map(|row| row.as_chunks::<8>().0);
    let mut lanes = [R::load::<S>(&[R::ZERO; 8]); ROWS];
    for ((((x, w0), w1), w2), w3) in chunks.iter().zip(w0).zip(w1).zip(w2).zip(w3) {
        lanes[0] = R::fma_lanes::<S>(w0, x, lanes[0]);
        lanes[1] = R::fma_lanes::<S>(w1, x, lanes[1]);
        lanes[2] = R::fma_lanes::<S>(w2, x, lanes[2]);
        lanes[3] = R::fma_lanes::<S>(w3, x, lanes[3]);
    }
    for r in 0..ROWS {
        let mut total = sum::<S, R>(lanes[r]);
        for (&w, &x) in tile[r][8 * chunks.len()..].iter().zip(rest) {
            total = R::fma::<S>(w, x, total);
        }
        sums[r] = sums[r] + total;
    }
}
