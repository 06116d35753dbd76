//! `matmul_f16_<format>` against f64.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/machine.rs"]
mod machine;
#[path = "support/products.rs"]
mod products;
#[path = "support/random.rs"]
#[allow(dead_code, reason = "this binary uses a part of it")]
mod random;

use gpu::product::MatmulF16Quant;
use gpu::quant::{BlockQ4_K, Format};
use half::{bf16, f16};
use lanemap::cuda::Emulated;
use lanemap::cuda::ops::{self, PlaneMatrix};
use machine::{Machine, assert_refused, on_both};
use products::{Kernels, Launch, Matrix, Rows, run};
use random::Random;

on_both! {
    every_format_is_multiplied,
    biases_are_added_to_every_row,
    a_row_is_the_same_whatever_is_beside_it_and_whatever_the_tiles,
    weights_become_the_nearest_f16,
    arguments_outside_the_contract_are_refused,
}

/// Rows of f16.
struct F16;

impl Kernels for F16 {
    const NAME: &'static str = "matmul_f16_quant";
    const TILE: [usize; 2] = [128, 128];
    const SEED: u64 = 21;
    const OUT_ALIGN: usize = 8;
    type Element = f16;

    fn rows(m: usize, k: usize, random: &mut Random) -> Rows<f16> {
        Rows::<f16>::random(m, k, random)
    }

    fn by_format<M: Machine>() -> Launch<M, f16> {
        |queue, out, input, weights, bias, m| ops::matmul_f16_quant(queue, out, input, weights, bias, m)
    }

    fn other_tiles<M: Machine>() -> Vec<(&'static str, Launch<M, f16>)> {
        vec![
            ("32 × 128", |queue, out, input, weights, bias, m| {
                let kernel = MatmulF16Quant::<BlockQ4_K, 32>::new;
                ops::matmul_f16_quant_by(queue, out, input, weights, bias, m, kernel)
            }),
            ("128 × 128", |queue, out, input, weights, bias, m| {
                let kernel = MatmulF16Quant::<BlockQ4_K>::new;
                ops::matmul_f16_quant_by(queue, out, input, weights, bias, m, kernel)
            }),
        ]
    }
}

fn every_format_is_multiplied<M: Machine>(machine: &M) {
    products::every_format_is_multiplied::<F16, M>(machine);
}

fn biases_are_added_to_every_row<M: Machine>(machine: &M) {
    products::biases_are_added_to_every_row::<F16, M>(machine);
}

fn a_row_is_the_same_whatever_is_beside_it_and_whatever_the_tiles<M: Machine>(machine: &M) {
    products::a_row_is_the_same_whatever_is_beside_it_and_whatever_the_tiles::<F16, M>(machine);
}

/// Each weight alone, times 1: ties, both ends of the range, and what is beyond.
fn weights_become_the_nearest_f16<M: Machine>(machine: &M) {
    let ulp = 2.0_f32.powi(-10);
    let tiny = 2.0_f32.powi(-24);
    let of_f32 = [
        (1.0 + 0.5 * ulp, 1.0),
        (1.0 + 1.5 * ulp, 1.0 + 2.0 * ulp),
        (1.0 + 0.500_1 * ulp, 1.0 + ulp),
        (-2049.0, -2048.0),
        (0.5 * tiny, 0.0),
        (1.5 * tiny, 2.0 * tiny),
        (65_519.996, 65_504.0),
        (65_520.0, f32::INFINITY),
        (-1e30, f32::NEG_INFINITY),
    ];
    let of_bf16 = [(1.007_812_5, 1.007_812_5), (65_280.0, 65_280.0), (65_536.0, f32::INFINITY)];
    let of_f16 = [(65_504.0, 65_504.0), (tiny, tiny), (f32::NEG_INFINITY, f32::NEG_INFINITY)];
    let bytes = |format: Format, value: f32| match format {
        Format::F32 => value.to_le_bytes().to_vec(),
        Format::F16 => f16::from_f32(value).to_le_bytes().to_vec(),
        _ => bf16::from_f32(value).to_le_bytes().to_vec(),
    };
    let cases = [(Format::F32, &of_f32[..]), (Format::BF16, &of_bf16), (Format::F16, &of_f16)];
    for (format, cases) in cases {
        // A whole slab: beyond K an infinite weight would meet a zero.
        let (n, k) = (cases.len(), 64);
        let elements = vec![f16::ONE; k];
        let input = Rows { values: vec![1.0; k], elements, m: 1 };
        for place in [0, 7, 8, 31, 63] {
            let row = |value| (0..k).flat_map(move |i| bytes(format, if i == place { value } else { 0.0 }));
            let blocks: Vec<u8> = cases.iter().flat_map(|&(value, _)| row(value)).collect();
            let weights = Matrix::new(format, [n, k], &blocks);
            let (out, _) = run::<F16, M>(machine, F16::by_format(), &input, &weights);
            for (found, (value, expected)) in out.iter().zip(cases) {
                assert!(found == expected, "{format}: {value} became {found}, not {expected}");
            }
        }
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
        (Format::F32, [129, 18, 72]),
    ] {
        let weights = Matrix::random(format, [n, k], &mut random);
        let input = F16::rows(m, k, &mut random);
        let (_, counters) = run::<F16, _>(machine, F16::by_format(), &input, &weights);
        // Of each of the 8 warps, in 16 × 16 accumulators; few rows have the smaller tiles.
        let (tile_m, accumulators) = if m <= 64 { (32, [1, 2]) } else { (128, [4, 2]) };
        let [down, right] = accumulators;
        let blocks = (m.div_ceil(tile_m) * n.div_ceil(128)) as u64;
        let slabs = k.div_ceil(64) as u64;
        assert_eq!(counters.wmma_mma, blocks * slabs * 8 * 4 * down * right, "{format}");
        assert_eq!(counters.ldmatrix, blocks * slabs * 8 * 4 * (down + right), "{format}");
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
    let text = "matmul_f16_q4_k_m32: weights has 128 columns of Q4_K, not a multiple of 256";
    refused(run(q4, 8, 0..512, 0..576, None, [2, 4, 128]), text);
    refused(
        run(q4, 7, 0..512, 0..576, None, [2, 4, 256]),
        "matmul_f16_q4_k_m32: out has 7 elements, the shape has 8",
    );
    refused(
        run(q4, 8, 0..511, 0..576, None, [2, 4, 256]),
        "matmul_f16_q4_k_m32: input has 511 elements, the shape has 512",
    );
    refused(
        run(q4, 8, 0..512, 0..575, None, [2, 4, 256]),
        "matmul_f16_q4_k_m32: weights has 575 elements, the shape has 576",
    );
    refused(
        run(q4, 8, 0..512, 0..576, Some(bias.slice(0..3)), [2, 4, 256]),
        "matmul_f16_q4_k_m32: bias has 3 elements, the shape has 4",
    );
    let address = |at: u64| format!("begins at {at:#x}, which is not a multiple of 16 bytes");
    let at = address(input.slice(1..2).start().address());
    refused(run(q4, 8, 1..513, 0..576, None, [2, 4, 256]), &format!("matmul_f16_q4_k_m32: input {at}"));
    let at = address(bytes.slice(8..9).start().address());
    refused(run(q4, 8, 0..512, 8..584, None, [2, 4, 256]), &format!("matmul_f16_q4_k_m32: weights {at}"));
    refused(
        run(Format::F16, 8, 0..504, 0..576, None, [2, 4, 252]),
        "matmul_f16_f16_m32: weights has 252 columns of F16, not a multiple of 8",
    );
    assert!(out.read().unwrap().iter().all(|x| x.is_nan()), "nothing ran");
}

#[test]
#[ignore = "a measurement, for a device"]
fn speed() {
    products::say_speed::<F16>();
}
