//! `matmul_splitk_<format>` against f64. The device needs compute capability 9.0.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/machine.rs"]
mod machine;
#[path = "support/random.rs"]
#[allow(dead_code, reason = "this binary uses a part of it")]
mod random;

use gpu::product::SlabF16;
use gpu::quant::Format;
use half::f16;
use lanemap::cuda::ops::{self, Output, PlaneMatrix};
use lanemap::cuda::{Buffer, Emulated, Error, View, ViewMut};
use lanemap::gate::bounds::splitk_error;
use lanemap::gate::form::in_tiles;
use lanemap::gate::matrix::{Matrix, Rows};
use machine::{Guarded, Machine, assert_close, assert_refused, counted, has_wgmma, on_both, output, say};
use random::{Random, whole_blocks};
use rayon::prelude::*;

on_both! {
    products_of_integers_are_exact,
    products_of_every_format_are_within_the_rounding_of_weights_and_sums,
    products_of_ragged_shapes_are_within_the_rounding_of_weights_and_sums,
    a_row_has_the_same_bits_whatever_its_neighbours_and_the_kernel_are,
    products_that_share_a_launch_have_the_bits_of_their_own,
    arguments_outside_the_contract_are_refused,
}

/// The contract's alignment: what a lane loads.
const ALIGN: usize = 16;

/// A launcher: queue, outputs, input, its rows.
type Launch<M> = fn(&M, &[Output<'_>], View<'_, SlabF16>, usize) -> Result<(), Error>;

/// The kernels, by the rows of their passes.
fn kernels<M: Machine>() -> [(usize, Launch<M>); 3] {
    [
        (8, |queue, outputs, input, rows| ops::matmul_splitk_by::<4>(queue, outputs, input, rows)),
        (32, |queue, outputs, input, rows| ops::matmul_splitk_by::<16>(queue, outputs, input, rows)),
        (64, |queue, outputs, input, rows| ops::matmul_splitk_by::<32>(queue, outputs, input, rows)),
    ]
}

/// The formats that have kernels.
fn formats() -> impl Iterator<Item = Format> {
    Format::ALL.into_iter().filter(|format| format.block_elements() > 1)
}

/// Weights where a machine's kernels read them.
struct Loaded<'a> {
    matrix: &'a Matrix,
    bytes: Guarded<u8>,
    bias: Option<Guarded<f32>>,
}

impl<'a> Loaded<'a> {
    fn new<M: Machine>(machine: &M, matrix: &'a Matrix) -> Self {
        let bytes = Guarded::input(machine, "weights", &matrix.planes, ALIGN);
        let bias = matrix.bias.as_ref().map(|bias| Guarded::input(machine, "bias", bias, 4));
        Self { matrix, bytes, bias }
    }

    /// What is to be multiplied, and where to.
    fn output<'b>(&'b self, out: ViewMut<'b, f32>) -> Output<'b> {
        let &Matrix { format, shape: [rows, columns], .. } = self.matrix;
        let weights = PlaneMatrix { bytes: self.bytes.view(), format, rows, columns };
        Output { out, weights, bias: self.bias.as_ref().map(Guarded::view) }
    }
}

/// Rows in slabs. Those that there are not are NaN.
fn load<M: Machine>(machine: &M, rows: &Rows<f16>) -> Guarded<SlabF16> {
    let k = rows.elements.len() / rows.m;
    Guarded::input(machine, "input", &in_tiles::<SlabF16>(&rows.elements, [rows.m, k]), ALIGN)
}

fn run<M: Machine>(machine: &M, launch: Launch<M>, matrix: &Matrix, rows: &Rows<f16>) -> Vec<f32> {
    let (weights, input) = (Loaded::new(machine, matrix), load(machine, rows));
    output(machine, rows.m * matrix.shape[0], |queue, out| {
        launch(queue, &[weights.output(out)], input.view(), rows.m)
    })
}

/// The product with its bias, `m × n` in f64.
fn reference(matrix: &Matrix, rows: &Rows<f16>) -> Vec<f64> {
    let [n, k] = matrix.shape;
    let element = |i: usize| {
        let (row, weights) = (&rows.values[i / n * k..][..k], &matrix.values[i % n * k..][..k]);
        let products = row.iter().zip(weights).map(|(x, &w)| x * f64::from(w));
        products.sum::<f64>() + matrix.bias.as_ref().map_or(0.0, |bias| f64::from(bias[i % n]))
    };
    (0..rows.m * n).into_par_iter().map(element).collect()
}

/// By how much an element of it may be off.
fn bound<M: Machine>(matrix: &Matrix, rows: &Rows<f16>, i: usize) -> f64 {
    let [n, k] = matrix.shape;
    let of_output = i % n * k..(i % n + 1) * k;
    let minimums = matrix.minimums.get(of_output.clone()).unwrap_or_default();
    let bias = matrix.bias.as_ref().map_or(0.0, |bias| bias[i % n]);
    let row = &rows.values[i / n * k..][..k];
    splitk_error(row, &matrix.values[of_output], minimums, bias, M::ROUNDINGS_OF_A_PRODUCT)
}

/// `n × k` whole numbers times 2^-5, at most 2^11 of that: 64 times as large, they are f16 still.
fn whole(format: Format, [n, k]: [usize; 2], random: &mut Random) -> Matrix {
    let mut blocks = whole_blocks(format, n * k, (-5.0_f32).exp2(), random);
    for block in blocks.chunks_exact_mut(format.block_bytes()) {
        match format {
            // Inner scales of at most 64, for quants of at most 32.
            Format::Q6_K => block[192..208].iter_mut().for_each(|scale| *scale = (*scale as i8 / 2) as u8),
            // Inner scales from -16 to 15, for quants of at most 127: their high two bits are 01 or 10.
            Format::IQ4_XS => {
                for high in &mut block[2..4] {
                    *high = *high & 0x55 | (!*high & 0x55) << 1;
                }
            }
            _ => {}
        }
    }
    let bias = (0..n).map(|_| random.below(2001) as f32 - 1000.0).collect();
    Matrix { bias: Some(bias), ..Matrix::new(format, [n, k], &blocks) }
}

fn products_of_integers_are_exact<M: Machine>(machine: &M) {
    if !has_wgmma(machine, "products_of_integers_are_exact") {
        return;
    }
    let seed = 81;
    let mut random = Random(seed);
    for format in formats() {
        // Of 32: a slab that is not whole, and whole ones.
        let block = format.block_elements();
        for (pass, launch) in kernels() {
            for [m, n, k] in machine.cases(&[[2, 17, 5 * block]], &[[pass + 1, 70, 17 * block]]) {
                // At most 2^11 · 4352: every sum of parts is below 2^24.
                let matrix = whole(format, [n, k], &mut random);
                let elements: Vec<f16> =
                    (0..m * k).map(|_| f16::from_f64(random.below(3) as f64 - 1.0)).collect();
                let values = elements.iter().map(|x| x.to_f64()).collect();
                let rows = Rows { elements, values, m };
                let expected = reference(&matrix, &rows);
                let what = format!("{format}, {pass} rows in a pass, {m} × {n} × {k}, random seed {seed}");
                assert_close(&what, &run(machine, launch, &matrix, &rows), &expected, |_| 0.0);
            }
        }
    }
}

/// Holds a product of random numbers to its bounds; returns the largest error, as a part of what is allowed.
fn check<M: Machine>(
    machine: &M,
    (pass, launch): (usize, Launch<M>),
    format: Format,
    [m, n, k]: [usize; 3],
    seed: u64,
) -> f64 {
    let mut random = Random(seed);
    let matrix = Matrix::random(format, [n, k], &mut random);
    // Some without a bias.
    let matrix = if n % 2 == 0 { matrix } else { matrix.with_bias(&mut random) };
    let rows = Rows::<f16>::random(m, k, &mut random);
    let what = format!("{format}, {pass} rows in a pass, {m} × {n} × {k}, random seed {seed}");
    let expected = reference(&matrix, &rows);
    assert!(expected.iter().map(|x| x.abs()).sum::<f64>() > expected.len() as f64, "{what}");
    let found = run(machine, launch, &matrix, &rows);
    let bounds: Vec<f64> = (0..m * n).into_par_iter().map(|i| bound::<M>(&matrix, &rows, i)).collect();
    assert_close(&what, &found, &expected, |i| bounds[i]);
    let errors = found.iter().zip(expected).map(|(&found, expected)| (f64::from(found) - expected).abs());
    errors.zip(bounds).fold(0.0, |worst, (error, bound)| worst.max(error / bound))
}

fn products_of_every_format_are_within_the_rounding_of_weights_and_sums<M: Machine>(machine: &M) {
    if !has_wgmma(machine, "products_of_every_format_are_within_the_rounding_of_weights_and_sums") {
        return;
    }
    let mut worst = 0.0_f64;
    for (i, format) in formats().enumerate() {
        let block = format.block_elements();
        for kernel in kernels() {
            let pass = kernel.0;
            // One block, slabs that are not whole, and edges of passes.
            let all = [[1, 8, block], [3, 17, 3 * block], [pass + 1, 9, 1280]];
            for shape in machine.cases(&all, &[[pass, 513, 18_944], [2 * pass + 1, 3584, 3584]]) {
                worst = worst.max(check(machine, kernel, format, shape, 100 + i as u64));
            }
        }
    }
    say(&format!("matmul_splitk on the {}: worst error {worst:.3} of what is allowed", M::NAME));
}

fn products_of_ragged_shapes_are_within_the_rounding_of_weights_and_sums<M: Machine>(machine: &M) {
    if !has_wgmma(machine, "products_of_ragged_shapes_are_within_the_rounding_of_weights_and_sums") {
        return;
    }
    for (i, format) in [Format::Q4_0, Format::Q6_K].into_iter().enumerate() {
        for kernel in kernels() {
            // Groups with no slab and with one more than others, slabs that are not whole; in the end rings go round,
            // that of 64 rows twice.
            let shapes: [[usize; 3]; 10] = [
                [1, 1, 32],
                [3, 200, 96],
                [8, 63, 576],
                [9, 64, 1280],
                [31, 65, 576],
                [33, 64, 96],
                [64, 1, 2304],
                [65, 65, 1280],
                [130, 63, 96],
                [2, 3, 4352],
            ];
            for [m, n, k] in machine.cases(&shapes, &[]) {
                let k = k.next_multiple_of(format.block_elements());
                check(machine, kernel, format, [m, n, k], 200 + i as u64);
            }
        }
    }
}

fn a_row_has_the_same_bits_whatever_its_neighbours_and_the_kernel_are<M: Machine>(machine: &M) {
    if !has_wgmma(machine, "a_row_has_the_same_bits_whatever_its_neighbours_and_the_kernel_are") {
        return;
    }
    let seed = 83;
    let mut random = Random(seed);
    for format in [Format::Q4_0, Format::Q5_K, Format::Q8_0, Format::Q2_K] {
        let (all_rows, n, k) = (70, 3, 1280);
        let matrix = Matrix::random(format, [n, k], &mut random).with_bias(&mut random);
        let input = Rows::<f16>::random(all_rows, k, &mut random);
        let by_rows: Launch<M> =
            |queue, outputs, input, rows| ops::matmul_splitk(queue, outputs, input, rows);
        let all = run(machine, by_rows, &matrix, &input);
        let own = [1, 8, 9, 32, 33].map(|rows| (rows, by_rows));
        let by_pass = kernels().into_iter().flat_map(|(pass, launch)| [(1, launch), (pass + 1, launch)]);
        for (rows, launch) in own.into_iter().chain(by_pass) {
            // As the last of some.
            let end = random.below(all_rows - rows) + rows + 1;
            let part = |len: usize| (end - rows) * len / all_rows..end * len / all_rows;
            let some = Rows {
                elements: input.elements[part(input.elements.len())].to_vec(),
                values: Vec::new(),
                m: rows,
            };
            let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(
                bits(&run(machine, launch, &matrix, &some)),
                bits(&all[part(all.len())]),
                "{format}, {rows} rows up to {end}, random seed {seed}"
            );
        }
    }
}

fn products_that_share_a_launch_have_the_bits_of_their_own<M: Machine>(machine: &M) {
    if !has_wgmma(machine, "products_that_share_a_launch_have_the_bits_of_their_own") {
        return;
    }
    let mut random = Random(84);
    for (rows, launch) in kernels() {
        let k = 512;
        let input = Rows::<f16>::random(rows + 1, k, &mut random);
        let mut i = 0;
        // The one in the middle has no bias.
        let matrices = [65, 64, 5].map(|n| {
            i += 1;
            let matrix = Matrix::random(Format::Q4_K, [n, k], &mut random);
            if i == 2 { matrix } else { matrix.with_bias(&mut random) }
        });
        let loaded = matrices.each_ref().map(|matrix| Loaded::new(machine, matrix));
        let input_there = load(machine, &input);
        for count in 2..=3 {
            let mut outs = matrices
                .each_ref()
                .map(|matrix| Guarded::<f32>::output(machine, "out", input.m * matrix.shape[0], 4));
            let outputs: Vec<_> = outs
                .iter_mut()
                .zip(&loaded)
                .take(count)
                .map(|(out, loaded)| loaded.output(out.view_mut()))
                .collect();
            launch(machine, &outputs, input_there.view(), input.m).unwrap();
            machine.synchronize().unwrap();
            for (matrix, out) in matrices.iter().zip(&outs).take(count) {
                assert_eq!(
                    out.read(),
                    run(machine, launch, matrix, &input),
                    "{rows} rows in a pass, {:?}",
                    matrix.shape
                );
            }
        }
    }
}

#[test]
fn slabs_are_copied_and_multiplied_once() {
    let machine = &Emulated::new();
    let mut random = Random(85);
    for (pass, launch) in kernels::<Emulated>() {
        for [m, n, k] in [[1, 1, 256], [pass + 1, 65, 1280]] {
            let matrix = Matrix::random(Format::Q4_K, [n, k], &mut random);
            let input = load(machine, &Rows::<f16>::random(m, k, &mut random));
            let weights = Loaded::new(machine, &matrix);
            let (_, counters) = counted::<f32, _>(machine, m * n, 4, |queue, out| {
                launch(queue, &[weights.output(out)], input.view(), m)
            });
            let blocks = (m.div_ceil(pass) * n.div_ceil(64)) as u64;
            let slabs = blocks * k.div_ceil(128) as u64;
            // Of each slab two halves; eight products of it, by four warps.
            assert_eq!(counters.bulk_copies, 2 * slabs, "{m} × {n} × {k}");
            assert_eq!(counters.wgmma, 8 * 4 * slabs, "{m} × {n} × {k}");
            assert_eq!(counters.barriers, 3 * blocks, "{m} × {n} × {k}");
        }
    }
}

fn arguments_outside_the_contract_are_refused<M: Machine>(machine: &M) {
    let bytes = machine.input("weights", &[0_u8; 3 * 144 + 16]).unwrap();
    let bias = machine.input("bias", &[0.0_f32; 8]).unwrap();
    let slabs = 64 * 256;
    let slab = machine.input("input", &vec![SlabF16(f16::ZERO); slabs + 8]).unwrap();
    let mut out: Buffer<f32> = machine.output("out", 8).unwrap();
    let format = Format::Q4_K;
    let all = 0..3 * 144;
    let mut run = |format, weights, rows, input, columns, biases| {
        let weights = PlaneMatrix { bytes: bytes.slice(weights), format, rows, columns };
        let output = Output { out: out.slice_mut(0..6), weights, bias: Some(bias.slice(0..biases)) };
        ops::matmul_splitk(machine, &[output], slab.slice(input), 2)
    };
    let name = "matmul_splitk_q4_k_n8";
    let refused = |result, what: &str| assert_refused(result, &format!("{name}: {what}"));
    assert_refused(
        run(Format::F16, all.clone(), 3, 0..slabs, 256, 3),
        "matmul_splitk: weights of F16 are not quantized, multiply them with f16",
    );
    refused(
        run(format, all.clone(), 3, 0..slabs, 128, 3),
        "weights has 128 columns of Q4_K, not a multiple of 256",
    );
    refused(run(format, all.clone(), 3, 0..slabs, 0, 3), "weights have no columns");
    refused(
        run(format, all.clone(), 3, 0..slabs - 1, 256, 3),
        "input has 16383 elements, the shape has 16384",
    );
    refused(run(format, 0..431, 3, 0..slabs, 256, 3), "weights has 431 elements, the shape has 432");
    refused(run(format, 0..288, 2, 0..slabs, 256, 2), "out has 6 elements, the shape has 4");
    refused(run(format, all.clone(), 3, 0..slabs, 256, 4), "bias has 4 elements, the shape has 3");
    let address = bytes.slice(1..2).start().address();
    refused(
        run(format, 1..433, 3, 0..slabs, 256, 3),
        &format!("weights begins at {address:#x}, which is not a multiple of 16 bytes"),
    );
    let address = slab.slice(1..2).start().address();
    refused(
        run(format, all.clone(), 3, 1..slabs + 1, 256, 3),
        &format!("input begins at {address:#x}, which is not a multiple of 16 bytes"),
    );
    let weights = |format, part| PlaneMatrix { bytes: bytes.slice(part), format, rows: 1, columns: 256 };
    let (first, second) = (weights(Format::Q4_K, 0..144), weights(Format::Q6_K, 0..224));
    let mut other: Buffer<f32> = machine.output("out", 2).unwrap();
    let outputs = [
        Output { out: out.slice_mut(0..2), weights: first, bias: None },
        Output { out: other.view_mut(), weights: second, bias: None },
    ];
    refused(
        ops::matmul_splitk(machine, &outputs, slab.slice(0..slabs), 2),
        "weights have 256 columns of Q4_K and 256 of Q6_K, a launch takes one kind",
    );
    assert!(out.read().unwrap().iter().all(|x| x.is_nan()), "nothing ran");
}
