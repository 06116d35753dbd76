//! `matmul_q8_<format>` against f64, on the same quantized activations.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/machine.rs"]
mod machine;
#[path = "support/products.rs"]
#[allow(dead_code, reason = "this binary uses a part of it")]
mod products;
#[path = "support/random.rs"]
#[allow(dead_code, reason = "this binary uses a part of it")]
mod random;

use gpu::product::{MatmulQ8Quant, Q8Row};
use gpu::quant::{BlockQ4_K, Format};
use lanemap::cuda::ops::{self, PlaneMatrix};
use lanemap::cuda::{Emulated, Error, Queue, View, ViewMut};
use machine::{Guarded, Machine, assert_refused, counted, on_both};
use products::{
    ALIGN, Matrix, OUT_ALIGN, SPEED_ROWS, SPEED_SHAPES, assert_product, quantized, repeated, say_speed,
    say_worst,
};
use random::{Random, normals};

on_both! {
    every_format_is_multiplied,
    biases_are_added_to_every_row,
    a_row_is_the_same_whatever_is_beside_it_and_whatever_the_tiles,
    arguments_outside_the_contract_are_refused,
}

type Launch<M> = fn(
    &M,
    ViewMut<'_, f32>,
    View<'_, u8>,
    PlaneMatrix<'_>,
    Option<View<'_, f32>>,
    usize,
) -> Result<(), Error>;

/// Rows of q8 and their values.
struct Activations {
    rows: Vec<u8>,
    values: Vec<f32>,
}

impl Activations {
    /// `m` random rows.
    fn random(m: usize, k: usize, random: &mut Random) -> Self {
        let layout = Q8Row::new(k as u32);
        let (scales, sums, bytes) =
            (layout.scales() as usize, layout.sums() as usize, layout.bytes() as usize);
        let mut all = Self { rows: vec![0; m * bytes], values: Vec::with_capacity(m * k) };
        for i in 0..m {
            let row = &mut all.rows[i * bytes..][..bytes];
            for (block, x) in normals(random, k).chunks_exact(32).enumerate() {
                let scale = x.iter().fold(0.0_f32, |most, x| most.max(x.abs())) / 127.0;
                let quants: Vec<i8> = x.iter().map(|x| (x / scale).round() as i8).collect();
                all.values.extend(quants.iter().map(|&q| scale * f32::from(q)));
                row[32 * block..][..32].copy_from_slice(bytemuck::cast_slice(&quants));
                row[scales + 4 * block..][..4].copy_from_slice(&scale.to_le_bytes());
                for (half, quants) in quants.chunks_exact(16).enumerate() {
                    let sum: i32 = quants.iter().map(|&q| i32::from(q)).sum();
                    let at = sums + 8 * block + 4 * half;
                    row[at..][..4].copy_from_slice(&(scale * sum as f32).to_le_bytes());
                }
            }
        }
        all
    }

    /// A row alone.
    fn row(&self, row: usize, k: usize) -> Self {
        let bytes = Q8Row::new(k as u32).bytes() as usize;
        Self {
            rows: self.rows[row * bytes..][..bytes].to_vec(),
            values: self.values[row * k..][..k].to_vec(),
        }
    }
}

fn run<M: Machine>(
    machine: &M,
    input: &Activations,
    weights: &Matrix,
    m: usize,
    launch: Launch<M>,
) -> (Vec<f32>, M::Counts) {
    let input = Guarded::input(machine, "input", &input.rows, ALIGN);
    let there = weights.on(machine);
    counted(machine, m * weights.shape[0], OUT_ALIGN, |queue, out| {
        launch(queue, out, input.view(), there.weights(), there.bias(), m)
    })
}

fn by_format<M: Machine>(
    machine: &M,
    out: ViewMut<'_, f32>,
    input: View<'_, u8>,
    weights: PlaneMatrix<'_>,
    bias: Option<View<'_, f32>>,
    m: usize,
) -> Result<(), Error> {
    ops::matmul_q8_quant(machine, out, input, weights, bias, m)
}

/// The worst error, as [`assert_product`] says.
fn check<M: Machine>(
    machine: &M,
    weights: &Matrix,
    input: &Activations,
    shape: [usize; 3],
    what: &str,
) -> f64 {
    let [m, n, k] = shape;
    let (out, _) = run(machine, input, weights, m, by_format);
    let what = format!("{}, {m} × {n} × {k}, {what}", weights.format);
    assert_product(&what, &out, &input.values, &weights.values, weights.bias.as_deref(), shape)
}

fn every_format_is_multiplied<M: Machine>(machine: &M) {
    let seed = 31;
    let mut random = Random(seed);
    let mut worst = 0.0_f64;
    for format in quantized() {
        let block = format.block_elements();
        // An odd number of pieces where the format has such rows, and more than two slabs.
        let long = if block == 32 { 160 } else { 512 };
        let shapes = [[1, 1, block], [3, 67, block], [129, 18, long], [0, 5, block]];
        for shape @ [m, n, k] in machine.cases(&shapes, &[[257, 384, 8 * block], [64, 1000, 2048]]) {
            let weights = Matrix::random(format, n, k, &mut random);
            let input = Activations::random(m, k, &mut random);
            worst = worst.max(check(machine, &weights, &input, shape, &format!("random seed {seed}")));
        }
    }
    say_worst::<M>("matmul_q8_quant", worst);
}

fn biases_are_added_to_every_row<M: Machine>(machine: &M) {
    let seed = 32;
    let mut random = Random(seed);
    for shape @ [m, n, k] in [[2, 6, 256], [3, 5, 256], [2, 3, 0]] {
        let weights = Matrix::random(Format::Q4_K, n, k, &mut random).with_bias(&mut random);
        let input = Activations::random(m, k, &mut random);
        check(machine, &weights, &input, shape, &format!("random seed {seed}"));
    }
}

fn a_row_is_the_same_whatever_is_beside_it_and_whatever_the_tiles<M: Machine>(machine: &M) {
    let mut random = Random(33);
    let [m, n, k] = [130, 70, 512];
    let weights = Matrix::random(Format::Q4_K, n, k, &mut random);
    let input = Activations::random(m, k, &mut random);
    let bits = |out: Vec<f32>| -> Vec<u32> { out.into_iter().map(f32::to_bits).collect() };
    let all = bits(run(machine, &input, &weights, m, by_format).0);
    for row in [0, 15, 127, 129] {
        let alone = bits(run(machine, &input.row(row, k), &weights, 1, by_format).0);
        assert!(alone == all[row * n..][..n], "row {row} alone is another one");
    }
    // Fewer columns: other blocks, the same sums.
    let narrow = bits(run(machine, &input, &weights.rows(9), m, by_format).0);
    assert!(narrow.iter().enumerate().all(|(i, &x)| x == all[i / 9 * n + i % 9]));

    let other = run(machine, &input, &weights, m, by_small_tiles);
    assert!(bits(other.0) == all, "tiles of 64 × 64 give other bits");
}

fn by_small_tiles<M: Machine>(
    machine: &M,
    out: ViewMut<'_, f32>,
    input: View<'_, u8>,
    weights: PlaneMatrix<'_>,
    bias: Option<View<'_, f32>>,
    m: usize,
) -> Result<(), Error> {
    ops::matmul_q8_quant_by(machine, out, input, weights, bias, m, MatmulQ8Quant::<BlockQ4_K, 64>::new)
}

#[test]
fn tiles_are_multiplied_without_conflicts() {
    let machine = &Emulated::new();
    let mut random = Random(34);
    for (format, groups, [m, n, k]) in [
        (Format::Q4_K, 1, [1, 1, 256]),
        (Format::Q6_K, 2, [129, 66, 256]),
        (Format::Q8_0, 1, [64, 64, 96]),
        (Format::Q2_K, 2, [5, 64, 256]),
    ] {
        let weights = Matrix::random(format, n, k, &mut random);
        let (_, counters) = run(machine, &Activations::random(m, k, &mut random), &weights, m, by_format);
        let blocks = (m.div_ceil(128) * n.div_ceil(64)) as u64;
        let slabs = k.div_ceil(64) as u64;
        assert_eq!(counters.mma, blocks * slabs * 4 * 2 * groups * 16, "{format}");
        assert_eq!(counters.ldmatrix, blocks * slabs * 4 * 2 * groups * 6, "{format}");
        assert_eq!(counters.barriers, blocks * slabs, "{format}");
        assert_eq!(counters.shared_stores.conflicts, 0, "{format}");
        assert_eq!(counters.shared_loads.conflicts, 0, "{format}");
    }
}

fn arguments_outside_the_contract_are_refused<M: Machine>(machine: &M) {
    // A row of 256 has 256 quants, 8 scales and 16 sums.
    let input = machine.input("input", &[0_u8; 1000]).unwrap();
    let bytes = machine.input("weights", &[0_u8; 576]).unwrap();
    let mut out = machine.output("out", 8).unwrap();
    let mut run = |format, part| {
        let weights = PlaneMatrix { bytes: bytes.view(), format, rows: 4, columns: 256 };
        ops::matmul_q8_quant(machine, out.view_mut(), input.slice(part), weights, None, 2)
    };
    let refused = assert_refused;
    refused(run(Format::Q4_K, 0..703), "matmul_q8_q4_k: input has 703 elements, the shape has 704");
    let at = input.slice(8..9).start().address();
    refused(
        run(Format::Q4_K, 8..712),
        &format!("matmul_q8_q4_k: input begins at {at:#x}, which is not a multiple of 16 bytes"),
    );
    refused(run(Format::BF16, 0..704), "matmul_q8: the weights are BF16, which is not quantized");
    assert!(out.read().unwrap().iter().all(|x| x.is_nan()), "nothing ran");
}

#[test]
#[ignore = "a measurement, for a device"]
fn speed() {
    let Some(stream) = machine::stream("matmul_q8_quant::speed") else { return };
    let mut random = Random(35);
    for shape @ [m, n, k] in SPEED_SHAPES {
        let input = repeated(&Activations::random(SPEED_ROWS, k, &mut random).rows, m);
        let input = stream.input("input", &input).unwrap();
        let mut out = stream.output("out", m * n).unwrap();
        for format in [Format::Q4_K, Format::Q6_K] {
            let planes = Matrix::random(format, SPEED_ROWS, k, &mut random).planes;
            let bytes = stream.input("weights", &repeated(&planes, n)).unwrap();
            let weights = PlaneMatrix { bytes: bytes.view(), format, rows: n, columns: k };
            let mut all = vec![("128 × 64", by_format as Launch<_>)];
            if format == Format::Q4_K {
                all.push(("64 × 64", by_small_tiles));
            }
            for (tiles, launch) in all {
                let out = std::cell::RefCell::new(&mut out);
                say_speed(&format!("matmul_q8, {format}, tiles of {tiles}"), &stream, shape, || {
                    launch(&stream, out.borrow_mut().view_mut(), input.view(), weights, None, m)
                });
            }
        }
    }
}
