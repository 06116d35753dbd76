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

#[cfg(test)]
mod tests {
    use super::super::simd::InstructionSet;
    use super::super::simd::tests::run_on;
    use super::*;
    use crate::eight_bit::eight_bits;
    use crate::gate::random::{Random, normal};

    /// Groups of every kind: ordinary, one element only, all zero, halves, tiny, huge, and not finite.
    fn values(columns: usize, rows: usize) -> Vec<f32> {
        let mut random = Random(columns as u64);
        let mut values: Vec<f32> = (0..rows * columns).map(|_| normal(&mut random) as f32).collect();
        for (kind, group) in values.chunks_exact_mut(GROUP).enumerate() {
            match kind % 9 {
                1 => group[1..].fill(0.0),
                2 => group.fill(0.0),
                // The step is 1, so that halves must go to the even neighbour.
                3 => group.iter_mut().enumerate().for_each(|(i, x)| *x = i as f32 - 16.5),
                4 => group.iter_mut().for_each(|x| *x *= 1e-38),
                5 => group.iter_mut().for_each(|x| *x *= 1e37),
                6 => group[7] = f32::NAN,
                7 => group[31] = f32::NEG_INFINITY,
                8 => group.fill(-3000.0),
                _ => {}
            }
            if kind % 9 == 3 {
                group[0] = 127.0;
            }
        }
        values
    }

    #[test]
    fn groups_are_rounded_as_the_contract_says_on_every_set() {
        for (columns, rows) in [(32, 1), (32, 10), (96, 3), (160, 2), (576, 3), (1056, 2)] {
            let values = values(columns, rows);
            for set in InstructionSet::available() {
                let quantized = run_on(set, 1, || Quantized::new(&values, columns));
                assert_eq!((quantized.d.len(), quantized.columns()), (rows * columns / GROUP, columns));
                for row in 0..rows {
                    let slice = quantized.slice(row, 0, columns);
                    assert_eq!((slice.q.len(), slice.d.len()), (columns / GROUP, columns / GROUP));
                    let sums = slice.sums.as_flattened();
                    assert!(sums[columns / 16..].iter().all(|&sum| sum == 0.0), "the padding is not zero");
                    for (group, x) in
                        values[row * columns..(row + 1) * columns].chunks_exact(GROUP).enumerate()
                    {
                        let (q, d) = (&slice.q[group], slice.d[group]);
                        let what = format!("{columns} columns, {}, group {group} of row {row}", set.name());
                        if !x.iter().all(|x| x.is_finite()) {
                            assert!(!d.is_finite(), "{what}: a step of {d} hides what is not finite");
                            continue;
                        }
                        let (step, numbers) = eight_bits(x);
                        assert_eq!(d, step, "{what}");
                        assert_eq!(q.map(f32::from)[..], numbers, "{what}: {x:?}");
                        for (half, q) in q.chunks(16).enumerate() {
                            let sum: f32 = q.iter().map(|&q| f32::from(q)).sum();
                            assert_eq!(sums[2 * group + half], d * sum, "{what}: sum {half}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn slices_are_where_they_should_be() {
        let (columns, rows) = (1056, 3);
        let values: Vec<f32> = (0..columns * rows).map(|i| (i / 16) as f32 + 1.0).collect();
        let quantized = Quantized::new(&values, columns);
        for row in 0..rows {
            for (start, len) in [(0, 128), (128, 32), (1024, 32), (256, 800)] {
                let slice = quantized.slice(row, start, len);
                assert_eq!(
                    (slice.q.len(), slice.d.len(), slice.sums.len()),
                    (len / 32, len / 32, len.div_ceil(128))
                );
                for (index, sum) in slice.sums.as_flattened()[..len / 16].iter().enumerate() {
                    let expected = 16.0 * values[row * columns + start + 16 * index];
                    let error = (sum - expected).abs();
                    assert!(
                        error <= 16.0 * (expected / 16.0 + 1.0) / 254.0,
                        "row {row}, {start}: sum {index} is {sum}, expected {expected}"
                    );
                }
                let first = f32::from(slice.q[0][31]) * slice.d[0];
                assert_eq!(first, values[row * columns + start + 31], "row {row}, {start}");
            }
        }
    }
}
