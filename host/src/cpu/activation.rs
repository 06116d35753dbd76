//! Activations, and their 8-bit form.

use super::simd::{Kernel, Simd, dispatch};

/// Elements that share one scale.
pub(super) const GROUP: usize = 32;

/// Groups with no larger value are taken as zero: below, `127 / max` overflows.
const SMALLEST: f32 = 1e-36;

/// 1.5 · 2^23: a number of magnitude up to 2^22 that is added to it has no fraction left.
const ROUND: f32 = 12_582_912.0;

/// Rows of activations, each in groups of 32 signed bytes with one scale: `x ≈ d · q`,
/// `d = max |x| / 127`, `q` rounded to nearest.
pub(super) struct Quantized {
    columns: usize,
    q: Vec<[i8; GROUP]>,
    d: Vec<f32>,
    /// `d · Σ q` of each 16 elements: what a weight's offset is multiplied by. A row is
    /// padded with zeros to whole chunks of eight sums.
    sums: Vec<[f32; 8]>,
}

/// A stretch of one row.
#[derive(Clone, Copy)]
pub(super) struct Slice<'a> {
    pub(super) q: &'a [[i8; GROUP]],
    pub(super) d: &'a [f32],
    pub(super) sums: &'a [[f32; 8]],
}

impl Quantized {
    /// Quantizes `values`, rows of `columns` (a multiple of 32), row major.
    pub(super) fn new(values: &[f32], columns: usize) -> Self {
        debug_assert!(columns.is_multiple_of(GROUP) && values.len().is_multiple_of(columns));
        let groups = values.len() / GROUP;
        let rows = values.len() / columns;
        let mut out = Self {
            columns,
            q: vec![[0; GROUP]; groups],
            d: vec![0.0; groups],
            sums: vec![[0.0; 8]; rows * Self::sum_chunks(columns)],
        };
        dispatch(Quantize { values, out: &mut out });
        out
    }

    /// Elements of a row.
    #[inline(always)]
    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    const fn sum_chunks(columns: usize) -> usize {
        (columns / 16).div_ceil(8)
    }

    /// The elements `start..start + len` of `row`; `start` is a multiple of 128, `len` of 32.
    #[inline(always)]
    pub(super) fn slice(&self, row: usize, start: usize, len: usize) -> Slice<'_> {
        let groups = (row * self.columns + start) / GROUP..(row * self.columns + start + len) / GROUP;
        let sums = row * Self::sum_chunks(self.columns) + start / 128;
        Slice {
            q: &self.q[groups.clone()],
            d: &self.d[groups],
            sums: &self.sums[sums..sums + Self::sum_chunks(len)],
        }
    }
}

struct Quantize<'a> {
    values: &'a [f32],
    out: &'a mut Quantized,
}

impl Kernel for Quantize<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        let out = self.out;
        let groups = out.columns / GROUP;
        let chunks = Quantized::sum_chunks(out.columns);
        for (row, values) in self.values.chunks_exact(out.columns).enumerate() {
            let (values, _) = values.as_chunks::<GROUP>();
            let q = &mut out.q[row * groups..(row + 1) * groups];
            let d = &mut out.d[row * groups..(row + 1) * groups];
            let sums = out.sums[row * chunks..(row + 1) * chunks].as_flattened_mut();
            let (sums, _) = sums.as_chunks_mut::<2>();
            for (((values, q), d), sums) in values.iter().zip(q).zip(d).zip(sums) {
                // As integers, because `f32::max` passes over NaN: here one NaN makes the scale
                // NaN, and with it every product.
                let max = values.iter().fold(0, |max, x| max.max(x.to_bits() & 0x7fff_ffff));
                let max = f32::from_bits(max);
                *d = max / 127.0;
                let inverse = if max > SMALLEST { 127.0 / max } else { 0.0 };
                for (q, x) in q.iter_mut().zip(values) {
                    // Rounds to nearest, and leaves the integer in the low bits.
                    *q = (x * inverse + ROUND).to_bits() as i8;
                }
                let (halves, _) = q.as_chunks::<16>();
                for (sum, half) in sums.iter_mut().zip(halves) {
                    *sum = *d * half.iter().map(|&q| i32::from(q)).fold(0, i32::wrapping_add) as f32;
                }
            }
        }
    }
}
