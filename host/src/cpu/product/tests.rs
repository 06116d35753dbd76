//! Products against scalar sums in f64 over the same blocks and the same 8-bit activations.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use gpu::quant::{dequantize_row, f16};

use super::super::simd::InstructionSet;
use super::super::simd::tests::run_on;
use super::*;
use crate::eight_bit::round_to_8_bits;
use crate::gate::random::{Random, normal, random_blocks};

const INPUT_ROWS: [usize; 6] = [1, 2, 3, 4, 5, 9];
const WEIGHT_ROWS: [usize; 5] = [1, 3, 4, 5, 17];
const ARITHMETICS: [Arithmetic; 3] = [Arithmetic::Exact, Arithmetic::EightBit, HALF];
const HALF: Arithmetic = Arithmetic::Half { draw: 0 };

/// Weights and inputs, with as many rows as the tests need at most.
struct Case {
    format: Format,
    columns: usize,
    /// In words of eight bytes, so that the rows are aligned as in a file.
    weights: Vec<u64>,
    inputs: Vec<f32>,
}

impl Case {
    const INPUT_ROWS: usize = 9;
    const WEIGHT_ROWS: usize = 17;

    fn new(format: Format, columns: usize) -> Self {
        let mut random = Random((columns * 64) as u64 + u64::from(format.id()));
        let bytes = random_blocks(format, Self::WEIGHT_ROWS * columns, 0.05, &mut random);
        let mut weights = vec![0; bytes.len().div_ceil(8)];
        bytemuck::cast_slice_mut(&mut weights)[..bytes.len()].copy_from_slice(&bytes);
        let mut inputs: Vec<f32> =
            (0..Self::INPUT_ROWS * columns).map(|_| normal(&mut random) as f32).collect();
        // An outlier, as activations have them.
        inputs[columns / 2] *= 50.0;
        Self { format, columns, weights, inputs }
    }

    /// The products of some inputs with the first rows of weights, on the threads of the caller.
    fn run(&self, arithmetic: Arithmetic, inputs: &[f32], rows: usize) -> Vec<f32> {
        let bytes = rows * self.format.row_bytes(self.columns).unwrap();
        let weights = &bytemuck::cast_slice(&self.weights)[..bytes];
        let mut out = vec![f32::NAN; inputs.len() / self.columns * rows];
        let input = Input::new(inputs, self.columns, arithmetic, [self.format]);
        multiply(&input, [Product { format: self.format, weights, rows, out: &mut out }]);
        out
    }

    fn expected(&self, arithmetic: Arithmetic) -> Expected {
        let row_bytes = self.format.row_bytes(self.columns).unwrap();
        let bytes: &[u8] = bytemuck::cast_slice(&self.weights);
        let mut weights = vec![f32::NAN; Self::WEIGHT_ROWS * self.columns];
        dequantize_row(self.format, &bytes[..Self::WEIGHT_ROWS * row_bytes], &mut weights).unwrap();
        let mut inputs: Vec<f64> = self.inputs.iter().map(|&x| x.into()).collect();
        if !arithmetic.sums_in_f64() && self.format.block_elements() > 1 {
            inputs.chunks_mut(32).for_each(round_to_8_bits);
        }
        if arithmetic == HALF {
            weights.iter_mut().for_each(|w| *w = f16::from_f32(*w).to_f32());
            inputs.iter_mut().for_each(|x| *x = f16::from_f64(*x).to_f64());
        }
        let mut expected = Expected { arithmetic, rows: Vec::new() };
        for input in inputs.chunks(self.columns) {
            let mut outputs = Row { values: Vec::new(), parts: Vec::new(), plain_error: 0.0, magnitude: 0.0 };
            for row in weights.chunks(self.columns) {
                let terms = || row.iter().zip(input).map(|(&w, &x)| f64::from(w) * x);
                let value: f64 = terms().sum();
                let input: Vec<f32> = input.iter().map(|&x| x as f32).collect();
                let unsigned = !arithmetic.sums_in_f64() && self.format.block_elements() > 1;
                let plain = if unsigned { plain_unsigned(row, &input) } else { plain(row, &input) };
                let magnitude: f64 = terms().map(f64::abs).sum();
                outputs.plain_error = outputs.plain_error.max((f64::from(plain) - value).abs());
                outputs.magnitude = outputs.magnitude.max(magnitude);
                // The two parts of a product with unsigned weights: their difference is the value.
                let offset = if unsigned { offset_part(row, &input) } else { 0.0 };
                outputs.values.push(value);
                outputs.parts.push((value + offset).abs() + offset.abs());
            }
            expected.rows.push(outputs);
        }
        expected
    }
}

/// A plain loop in f32.
fn plain(weights: &[f32], inputs: &[f32]) -> f32 {
    weights.iter().zip(inputs).map(|(w, x)| w * x).sum()
}

/// A plain loop in f32 over weights as unsigned numbers with an offset, `w = (w + m) - m`, which is how
/// quants are multiplied. The offset `m` of 16 weights is taken as their largest magnitude.
fn plain_unsigned(weights: &[f32], inputs: &[f32]) -> f32 {
    let mut sum = 0.0;
    for (weights, inputs) in weights.chunks(16).zip(inputs.chunks(16)) {
        let offset = offset_of(weights);
        for (w, x) in weights.iter().zip(inputs) {
            sum += (w + offset) * x;
            sum -= offset * x;
        }
    }
    sum
}

/// What [`plain_unsigned`] takes off again, without its errors.
fn offset_part(weights: &[f32], inputs: &[f32]) -> f64 {
    let sum = |inputs: &[f32]| inputs.iter().copied().map(f64::from).sum::<f64>();
    weights.chunks(16).zip(inputs.chunks(16)).map(|(w, x)| f64::from(offset_of(w)) * sum(x)).sum()
}

fn offset_of(weights: &[f32]) -> f32 {
    weights.iter().fold(0.0_f32, |m, w| m.max(w.abs()))
}

/// What is expected of each input row.
struct Expected {
    arithmetic: Arithmetic,
    rows: Vec<Row>,
}

/// The outputs of one input row. Bounds are taken for each by itself, because a row with an outlier has
/// errors that would hide those of the others.
struct Row {
    /// One for each row of weights.
    values: Vec<f64>,
    /// The magnitudes of the parts that are rounded to f32 last: the value itself, or with unsigned
    /// weights the two parts whose difference it is.
    parts: Vec<f64>,
    /// The largest error of a plain loop in f32.
    plain_error: f64,
    /// The largest sum of the terms' magnitudes.
    magnitude: f64,
}

impl Row {
    /// What an output may be off by, one rounding of its parts aside: where sums are f64 what they
    /// lose, otherwise twice the error of the plain loop.
    fn allowed(&self, arithmetic: Arithmetic) -> f64 {
        if arithmetic.sums_in_f64() { 1e-13 * self.magnitude } else { 2.0 * self.plain_error }
    }
}

impl Expected {
    fn hold(&self, what: &str, got: &[f32]) {
        assert_eq!(got.len(), self.rows.len() * Case::WEIGHT_ROWS);
        for (row, (got, expected)) in got.chunks(Case::WEIGHT_ROWS).zip(&self.rows).enumerate() {
            let values = expected.values.iter().zip(&expected.parts);
            for (index, (&got, (&value, &parts))) in got.iter().zip(values).enumerate() {
                let allowed = parts * 2.0_f64.powi(-24) + expected.allowed(self.arithmetic);
                let error = (f64::from(got) - value).abs();
                // Written so that a NaN fails.
                assert!(
                    error <= allowed,
                    "{what}: output {index} of row {row} is {got}, expected {value}: \
                     error {error:.1e}, allowed {allowed:.1e}"
                );
            }
        }
    }

    /// In every row some value is far above the bound, so that an output of zeros would fail.
    fn assert_not_trivial(&self, what: &str) {
        for (row, expected) in self.rows.iter().enumerate() {
            let largest = expected.values.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
            let allowed = expected.allowed(self.arithmetic);
            assert!(
                1e4 * allowed < largest,
                "{what}: row {row} reaches {largest:.1e}, allowed {allowed:.1e}"
            );
        }
    }
}

fn columns_of(format: Format) -> &'static [usize] {
    match format.block_elements() {
        1 => &[1, 7, 33, 576, 1024, 1056, 2304],
        32 => &[32, 96, 160, 576, 1024, 1056, 2304],
        _ => &[256, 768, 1024, 1280, 2304],
    }
}

#[test]
fn every_format_size_mode_and_instruction_set() {
    for format in Format::ALL {
        for &columns in columns_of(format) {
            let case = Case::new(format, columns);
            for arithmetic in ARITHMETICS {
                let expected = case.expected(arithmetic);
                expected.assert_not_trivial(&format!("{format}, {columns} columns, {arithmetic:?}"));
                for set in InstructionSet::available() {
                    let what = format!("{format}, {columns} columns, {arithmetic:?}, {}", set.name());
                    let whole = run_on(set, 1, || case.run(arithmetic, &case.inputs, Case::WEIGHT_ROWS));
                    expected.hold(&what, &whole);
                    run_on(set, 1, || parts_have_the_bits_of(&case, arithmetic, &whole, &what));
                }
            }
        }
    }
}

/// Fewer inputs and fewer weights give the same bits.
fn parts_have_the_bits_of(case: &Case, arithmetic: Arithmetic, whole: &[f32], what: &str) {
    for inputs in INPUT_ROWS {
        for weights in WEIGHT_ROWS {
            // The last inputs, so that a row's place in the batch changes.
            let first = Case::INPUT_ROWS - inputs;
            let part = case.run(arithmetic, &case.inputs[first * case.columns..], weights);
            for (index, got) in part.iter().enumerate() {
                let place = (first + index / weights) * Case::WEIGHT_ROWS + index % weights;
                assert_eq!(
                    got.to_bits(),
                    whole[place].to_bits(),
                    "{what}: output {index} of {inputs} × {weights}: {got} and {}",
                    whole[place]
                );
            }
        }
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    for (format, columns) in
        [(Format::Q4_1, 576), (Format::Q6_K, 1280), (Format::F16, 33), (Format::Q8_0, 2304)]
    {
        let case = Case::new(format, columns);
        for arithmetic in ARITHMETICS {
            for inputs in INPUT_ROWS {
                let run = |threads| {
                    let inputs = &case.inputs[..inputs * columns];
                    let out = run_on(InstructionSet::selected(), threads, || {
                        case.run(arithmetic, inputs, Case::WEIGHT_ROWS)
                    });
                    assert!(out.iter().all(|x| x.is_finite()));
                    out
                };
                let one = run(1);
                for threads in [2, 3] {
                    assert_eq!(
                        run(threads),
                        one,
                        "{format}, {arithmetic:?}, {inputs} inputs, {threads} threads"
                    );
                }
            }
        }
    }
}

/// Several products of one input, of different formats and sizes, each in its own place.
#[test]
fn products_beside_each_other() {
    let cases = [Format::Q4_K, Format::F16, Format::Q8_0, Format::F32].map(|format| Case::new(format, 768));
    let inputs = &cases[0].inputs[..3 * 768];
    for arithmetic in ARITHMETICS {
        for threads in [1, 2, 3] {
            run_on(InstructionSet::selected(), threads, || {
                let rows = [17, 1, 5, 3];
                let mut outs = rows.map(|rows| vec![f32::NAN; 3 * rows]);
                let input = Input::new(inputs, 768, arithmetic, cases.iter().map(|case| case.format));
                let products = cases.iter().zip(rows).zip(&mut outs).map(|((case, rows), out)| {
                    let bytes = rows * case.format.row_bytes(768).unwrap();
                    let weights = &bytemuck::cast_slice(&case.weights)[..bytes];
                    Product { format: case.format, weights, rows, out }
                });
                multiply(&input, products);
                for ((case, rows), out) in cases.iter().zip(rows).zip(&outs) {
                    assert_eq!(*out, case.run(arithmetic, inputs, rows), "{}, {arithmetic:?}", case.format);
                }
            });
        }
    }
}

/// Activations whose sums, steps or products leave the range of f16, or vanish.
#[test]
fn large_and_vanishing_activations() {
    let columns = 768;
    for format in Format::ALL {
        let mut case = Case::new(format, columns);
        for (row, inputs) in case.inputs.chunks_mut(columns).enumerate() {
            match row {
                // One block of constant sign: its sum is 96 000.
                0 => inputs[64..96].fill(3000.0),
                1 => inputs[64..96].fill(-3000.0),
                2 => inputs[100] = 60_000.0,
                3 => inputs.fill(0.0),
                4 => inputs.fill(3000.0),
                5 => inputs[..256].fill(0.0),
                6 => inputs.iter_mut().for_each(|x| *x *= 1e-30),
                7 => inputs.iter_mut().for_each(|x| *x *= 1e20),
                _ => inputs.fill(-60_000.0),
            }
        }
        // Some of these are outside the range of f16.
        for arithmetic in [Arithmetic::Exact, Arithmetic::EightBit] {
            for set in InstructionSet::available() {
                // Each row by itself, which is multiplied in another way than several.
                for row in 0..Case::INPUT_ROWS {
                    let inputs = case.inputs[row * columns..(row + 1) * columns].to_vec();
                    let alone = Case { inputs, weights: case.weights.clone(), ..case };
                    let out = run_on(set, 1, || alone.run(arithmetic, &alone.inputs, Case::WEIGHT_ROWS));
                    alone
                        .expected(arithmetic)
                        .hold(&format!("{format}, row {row}, {arithmetic:?}, {}", set.name()), &out);
                    if row == 3 {
                        assert!(out.iter().all(|&x| x == 0.0), "{format}: {out:?} from nothing but zeros");
                    }
                }
            }
        }
    }
}

/// A NaN or an infinity in a row of inputs makes that row's outputs not finite, and no other's.
#[test]
fn what_is_not_finite_stays_so_and_stays_in_its_row() {
    for format in Format::ALL {
        let columns = 768;
        let case = Case::new(format, columns);
        for (bad, at) in [(f32::NAN, 0), (f32::NAN, 767), (f32::INFINITY, 300), (f32::NEG_INFINITY, 31)] {
            let mut inputs = case.inputs[..5 * columns].to_vec();
            inputs[2 * columns + at] = bad;
            for arithmetic in ARITHMETICS {
                for set in InstructionSet::available() {
                    let rows = Case::WEIGHT_ROWS;
                    let clean = run_on(set, 1, || case.run(arithmetic, &case.inputs[..5 * columns], rows));
                    let out = run_on(set, 1, || case.run(arithmetic, &inputs, rows));
                    for (index, (x, clean)) in out.iter().zip(clean).enumerate() {
                        let what = format!("{format}, {bad} at {at}, {arithmetic:?}, {}", set.name());
                        if index / rows == 2 {
                            assert!(!x.is_finite(), "{what}: output {index} is {x}");
                        } else {
                            assert_eq!(x.to_bits(), clean.to_bits(), "{what}: output {index}");
                        }
                    }
                }
            }
        }
    }
}

/// A NaN in a row of weights makes that row's outputs NaN, and no other's, also where the next rows take
/// its place in a tile.
#[test]
fn a_nan_in_a_weight_stays_in_its_row() {
    // The formats whose blocks begin with an f16 scale, in rows that end within a tile's chunk.
    let formats =
        [Format::Q4_0, Format::Q4_1, Format::Q5_0, Format::Q5_1, Format::Q8_0, Format::IQ4_NL, Format::F16];
    for (format, columns) in formats.into_iter().flat_map(|format| [96, 160, 1056, 1088].map(|c| (format, c)))
    {
        let clean = Case::new(format, columns);
        let row_bytes = format.row_bytes(columns).unwrap();
        for block in [0, columns / format.block_elements() - 1] {
            let mut case = Case { weights: clean.weights.clone(), inputs: clean.inputs.clone(), ..clean };
            let at = row_bytes + block * format.block_bytes();
            bytemuck::cast_slice_mut(&mut case.weights)[at..at + 2].copy_from_slice(&f16::NAN.to_le_bytes());
            for arithmetic in ARITHMETICS {
                for set in InstructionSet::available() {
                    let run = |case: &Case| {
                        run_on(set, 1, || case.run(arithmetic, &case.inputs, Case::WEIGHT_ROWS))
                    };
                    for (index, (x, clean)) in run(&case).iter().zip(run(&clean)).enumerate() {
                        let what = format!("{format}, {columns} columns, {arithmetic:?}, {}", set.name());
                        match index % Case::WEIGHT_ROWS {
                            1 => assert!(x.is_nan(), "{what}: output {index} is {x}"),
                            _ => assert_eq!(x.to_bits(), clean.to_bits(), "{what}: output {index}"),
                        }
                    }
                }
            }
        }
    }
}
