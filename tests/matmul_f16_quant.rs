//! `matmul_f16_<format>` against f64.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/machine.rs"]
mod machine;
#[path = "support/products.rs"]
#[allow(dead_code, reason = "this binary uses a part of it")]
mod products;
#[path = "support/random.rs"]
#[allow(dead_code, reason = "this binary uses a part of it")]
mod random;

use gpu::product::MatmulF16Quant;
use gpu::quant::{BlockQ4_K, Format};
use half::f16;
use lanemap::cuda::ops::{self, PlaneMatrix};
use lanemap::cuda::{Emulated, Error, Queue, View, ViewMut};
use machine::{Guarded, Machine, assert_refused, counted, on_both};
use products::{
    ALIGN, Matrix, OUT_ALIGN, SPEED_ROWS, SPEED_SHAPES, assert_product, quantized, repeated, say_speed,
    say_worst,
};
use random::{Random, normal};

on_both! {
    every_format_is_multiplied,
    biases_are_added_to_every_row,
    a_row_is_the_same_whatever_is_beside_it_and_whatever_the_tiles,
    arguments_outside_the_contract_are_refused,
}

type Launch<M> = fn(
    &M,
    ViewMut<'_, f32>,
    View<'_, f16>,
    PlaneMatrix<'_>,
    Option<View<'_, f32>>,
    usize,
) -> Result<(), Error>;

fn halves(random: &mut Random, len: usize) -> Vec<f16> {
    (0..len).map(|_| f16::from_f64(normal(random))).collect()
}

fn run<M: Machine>(
    machine: &M,
    input: &[f16],
    weights: &Matrix,
    m: usize,
    launch: Launch<M>,
) -> (Vec<f32>, M::Counts) {
    let input = Guarded::input(machine, "input", input, ALIGN);
    let there = weights.on(machine);
    counted(machine, m * weights.shape[0], OUT_ALIGN, |queue, out| {
        launch(queue, out, input.view(), there.weights(), there.bias(), m)
    })
}

fn by_format<M: Machine>(
    machine: &M,
    out: ViewMut<'_, f32>,
    input: View<'_, f16>,
    weights: PlaneMatrix<'_>,
    bias: Option<View<'_, f32>>,
    m: usize,
) -> Result<(), Error> {
    ops::matmul_f16_quant(machine, out, input, weights, bias, m)
}

/// The worst error, as [`assert_product`] says.
fn check<M: Machine>(machine: &M, weights: &Matrix, input: &[f16], shape: [usize; 3], what: &str) -> f64 {
    let [m, n, k] = shape;
    let (out, _) = run(machine, input, weights, m, by_format);
    let what = format!("{}, {m} × {n} × {k}, {what}", weights.format);
    // The operands as the kernel has them.
    let input: Vec<f32> = input.iter().map(|x| x.to_f32()).collect();
    let values: Vec<f32> = weights.values.iter().map(|&w| f16::from_f32(w).to_f32()).collect();
    assert_product(&what, &out, &input, &values, weights.bias.as_deref(), shape)
}

fn every_format_is_multiplied<M: Machine>(machine: &M) {
    let seed = 21;
    let mut random = Random(seed);
    let mut worst = 0.0_f64;
    for format in quantized() {
        let block = format.block_elements();
        // An odd number of pieces where the format has such rows, and more than two slabs.
        let long = if block == 32 { 160 } else { 512 };
        let shapes = [[1, 1, block], [3, 131, block], [129, 18, long], [0, 5, block]];
        for shape @ [m, n, k] in machine.cases(&shapes, &[[257, 384, 8 * block], [64, 1000, 2048]]) {
            let weights = Matrix::random(format, n, k, &mut random);
            let input = halves(&mut random, m * k);
            worst = worst.max(check(machine, &weights, &input, shape, &format!("random seed {seed}")));
        }
    }
    say_worst::<M>("matmul_f16_quant", worst);
}

fn biases_are_added_to_every_row<M: Machine>(machine: &M) {
    let seed = 22;
    let mut random = Random(seed);
    for shape @ [m, n, k] in [[2, 6, 256], [3, 5, 256], [2, 3, 0]] {
        let weights = Matrix::random(Format::Q4_K, n, k, &mut random).with_bias(&mut random);
        let input = halves(&mut random, m * k);
        check(machine, &weights, &input, shape, &format!("random seed {seed}"));
    }
}

/// The kernels for Q4_K with other tiles than [`by_format`]'s.
fn other_tiles<M: Machine>() -> [(&'static str, Launch<M>); 3] {
    [
        ("64 × 128", |queue, out, input, weights, bias, m| {
            let kernel = MatmulF16Quant::<BlockQ4_K, 64>::new;
            ops::matmul_f16_quant_by(queue, out, input, weights, bias, m, kernel)
        }),
        ("256 × 128", |queue, out, input, weights, bias, m| {
            let kernel = MatmulF16Quant::<BlockQ4_K, 256, 128, 4, 2>::new;
            ops::matmul_f16_quant_by(queue, out, input, weights, bias, m, kernel)
        }),
        ("128 × 128 by four warps", |queue, out, input, weights, bias, m| {
            let kernel = MatmulF16Quant::<BlockQ4_K, 128, 128, 2, 2>::new;
            ops::matmul_f16_quant_by(queue, out, input, weights, bias, m, kernel)
        }),
    ]
}

fn a_row_is_the_same_whatever_is_beside_it_and_whatever_the_tiles<M: Machine>(machine: &M) {
    let mut random = Random(23);
    let [m, n, k] = [130, 140, 512];
    let weights = Matrix::random(Format::Q4_K, n, k, &mut random);
    let input = halves(&mut random, m * k);
    let bits = |out: Vec<f32>| -> Vec<u32> { out.into_iter().map(f32::to_bits).collect() };
    let all = bits(run(machine, &input, &weights, m, by_format).0);
    for row in [0, 15, 127, 129] {
        let alone = bits(run(machine, &input[row * k..][..k], &weights, 1, by_format).0);
        assert!(alone == all[row * n..][..n], "row {row} alone is another one");
    }
    // Fewer columns: other blocks, the same sums.
    let narrow = bits(run(machine, &input, &weights.rows(9), m, by_format).0);
    assert!(narrow.iter().enumerate().all(|(i, &x)| x == all[i / 9 * n + i % 9]));

    for (tiles, launch) in other_tiles::<M>() {
        let other = bits(run(machine, &input, &weights, m, launch).0);
        assert!(other == all, "tiles of {tiles} give other bits");
    }
}

#[test]
fn tiles_are_multiplied_without_conflicts() {
    let machine = &Emulated::new();
    let mut random = Random(24);
    for (format, [m, n, k]) in [
        (Format::Q4_K, [1, 1, 256]),
        (Format::Q6_K, [129, 130, 256]),
        (Format::Q8_0, [64, 128, 96]),
        (Format::Q3_K, [5, 128, 256]),
    ] {
        let weights = Matrix::random(format, n, k, &mut random);
        let (_, counters) = run(machine, &halves(&mut random, m * k), &weights, m, by_format);
        let blocks = (m.div_ceil(128) * n.div_ceil(128)) as u64;
        let slabs = k.div_ceil(64) as u64;
        assert_eq!(counters.wmma_mma, blocks * slabs * 8 * 32, "{format}");
        assert_eq!(counters.ldmatrix, blocks * slabs * 8 * 24, "{format}");
        assert_eq!(counters.barriers, blocks * slabs, "{format}");
        assert_eq!(counters.shared_stores.instructions, blocks * (slabs + 1) * 8 * 4, "{format}");
        assert_eq!(counters.shared_stores.conflicts, 0, "{format}");
        assert_eq!(counters.shared_loads.conflicts, 0, "{format}");
    }
}

fn arguments_outside_the_contract_are_refused<M: Machine>(machine: &M) {
    let input = machine.input("input", &[f16::ZERO; 1040]).unwrap();
    let bytes = machine.input("weights", &[0_u8; 1000]).unwrap();
    let bias = machine.input("bias", &[0.0_f32; 4]).unwrap();
    let mut out = machine.output("out", 16).unwrap();
    let mut run = |format, len, a, b, bias, [m, n, k]: [usize; 3]| {
        let weights = PlaneMatrix { bytes: bytes.slice(b), format, rows: n, columns: k };
        ops::matmul_f16_quant(machine, out.slice_mut(0..len), input.slice(a), weights, bias, m)
    };
    let refused = assert_refused;
    // A row of 256 in Q4_K has 144 bytes.
    let q4 = Format::Q4_K;
    let text = "matmul_f16_q4_k: weights has 128 columns of Q4_K, not a multiple of 256";
    refused(run(q4, 8, 0..512, 0..576, None, [2, 4, 128]), text);
    refused(
        run(q4, 7, 0..512, 0..576, None, [2, 4, 256]),
        "matmul_f16_q4_k: out has 7 elements, the shape has 8",
    );
    refused(
        run(q4, 8, 0..511, 0..576, None, [2, 4, 256]),
        "matmul_f16_q4_k: input has 511 elements, the shape has 512",
    );
    refused(
        run(q4, 8, 0..512, 0..575, None, [2, 4, 256]),
        "matmul_f16_q4_k: weights has 575 elements, the shape has 576",
    );
    refused(
        run(q4, 8, 0..512, 0..576, Some(bias.slice(0..3)), [2, 4, 256]),
        "matmul_f16_q4_k: bias has 3 elements, the shape has 4",
    );
    let address = |at: u64| format!("begins at {at:#x}, which is not a multiple of 16 bytes");
    let at = address(input.slice(1..2).start().address());
    refused(run(q4, 8, 1..513, 0..576, None, [2, 4, 256]), &format!("matmul_f16_q4_k: input {at}"));
    let at = address(bytes.slice(8..9).start().address());
    refused(run(q4, 8, 0..512, 8..584, None, [2, 4, 256]), &format!("matmul_f16_q4_k: weights {at}"));
    refused(
        run(Format::F16, 8, 0..512, 0..576, None, [2, 4, 256]),
        "matmul_f16: the weights are F16, which is not quantized",
    );
    assert!(out.read().unwrap().iter().all(|x| x.is_nan()), "nothing ran");
}

#[test]
#[ignore = "a measurement, for a device"]
fn speed() {
    let Some(stream) = machine::stream("matmul_f16_quant::speed") else { return };
    let mut random = Random(25);
    for shape @ [m, n, k] in SPEED_SHAPES {
        let input = repeated(&halves(&mut random, SPEED_ROWS * k), m);
        let input = stream.input("input", &input).unwrap();
        let mut out = stream.output("out", m * n).unwrap();
        for format in [Format::Q4_K, Format::Q6_K] {
            let planes = Matrix::random(format, SPEED_ROWS, k, &mut random).planes;
            let bytes = stream.input("weights", &repeated(&planes, n)).unwrap();
            let weights = PlaneMatrix { bytes: bytes.view(), format, rows: n, columns: k };
            let mut all = vec![("128 × 128", by_format as Launch<_>)];
            if format == Format::Q4_K {
                all.extend(other_tiles());
            }
            for (tiles, launch) in all {
                let out = std::cell::RefCell::new(&mut out);
                say_speed(&format!("matmul_f16, {format}, tiles of {tiles}"), &stream, shape, || {
                    launch(&stream, out.borrow_mut().view_mut(), input.view(), weights, None, m)
                });
            }
        }
    }
}
