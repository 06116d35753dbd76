//! `matmul_q8_<format>` against f64, on the same quantized activations.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/machine.rs"]
mod machine;
#[path = "support/products.rs"]
mod products;
#[path = "support/random.rs"]
#[allow(dead_code, reason = "this binary uses a part of it")]
mod random;

use gpu::product::MatmulQ8Quant;
use gpu::quant::{BlockQ4_K, Format};
use lanemap::cuda::Emulated;
use lanemap::cuda::ops::{self, PlaneMatrix};
use lanemap::gate::bounds::integer_error;
use machine::{Machine, assert_refused, on_both};
use products::{Kernels, Launch, Matrix, Rows, run};
use random::Random;

on_both! {
    every_format_is_multiplied,
    biases_are_added_to_every_row,
    a_row_is_the_same_whatever_is_beside_it_and_whatever_the_tiles,
    every_machine_gives_the_same_bits,
    arguments_outside_the_contract_are_refused,
}

/// Rows of q8.
struct Q8;

impl Kernels for Q8 {
    const NAME: &'static str = "matmul_q8_quant";
    const TILE: [usize; 2] = [128, 64];
    const SEED: u64 = 31;
    type Element = u8;

    fn formats() -> Vec<Format> {
        Format::ALL.into_iter().filter(|format| format.block_elements() > 1).collect()
    }

    fn rows(m: usize, k: usize, random: &mut Random) -> Rows<u8> {
        Rows::<u8>::random(m, k, random)
    }

    fn weight(dequantized: f32) -> f32 {
        dequantized
    }

    const ROUNDED: bool = true;

    fn error<M: Machine>(format: Format, factors: &[(f64, f64)], mins: &[f64]) -> f64 {
        integer_error(format, factors, mins)
    }

    fn by_format<M: Machine>() -> Launch<M, u8> {
        |queue, out, input, weights, bias, m| ops::matmul_q8_quant(queue, out, input, weights, bias, m)
    }

    fn other_tiles<M: Machine>() -> Vec<(&'static str, Launch<M, u8>)> {
        vec![("64 × 64", |queue, out, input, weights, bias, m| {
            let kernel = MatmulQ8Quant::<BlockQ4_K, 64>::new;
            ops::matmul_q8_quant_by(queue, out, input, weights, bias, m, kernel)
        })]
    }
}

fn every_format_is_multiplied<M: Machine>(machine: &M) {
    products::every_format_is_multiplied::<Q8, M>(machine);
}

fn biases_are_added_to_every_row<M: Machine>(machine: &M) {
    products::biases_are_added_to_every_row::<Q8, M>(machine);
}

fn a_row_is_the_same_whatever_is_beside_it_and_whatever_the_tiles<M: Machine>(machine: &M) {
    products::a_row_is_the_same_whatever_is_beside_it_and_whatever_the_tiles::<Q8, M>(machine);
}

/// Integers are exact, and what follows is rounded as IEEE 754 says.
fn every_machine_gives_the_same_bits<M: Machine>(machine: &M) {
    let seed = 36;
    let mut random = Random(seed);
    for format in Q8::formats() {
        let weights = Matrix::random(format, [67, 768], &mut random);
        let input = Q8::rows(5, 768, &mut random);
        let emulated = run::<Q8, _>(&Emulated::new(), Q8::by_format(), &input, &weights).0;
        let found = run::<Q8, M>(machine, Q8::by_format(), &input, &weights).0;
        for (i, (found, emulated)) in found.iter().zip(&emulated).enumerate() {
            assert!(
                found.to_bits() == emulated.to_bits(),
                "{format}, random seed {seed}: [{i}] is {found}, on the emulator {emulated}"
            );
        }
    }
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
        let weights = Matrix::random(format, [n, k], &mut random);
        let input = Q8::rows(m, k, &mut random);
        let (_, counters) = run::<Q8, _>(machine, Q8::by_format(), &input, &weights);
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
    refused(
        run(Format::BF16, 0..704),
        "matmul_q8: weights of BF16 are not quantized, multiply them with f16",
    );
    assert!(out.read().unwrap().iter().all(|x| x.is_nan()), "nothing ran");
}

#[test]
#[ignore = "a measurement, for a device"]
fn speed() {
    products::say_speed::<Q8>();
}
