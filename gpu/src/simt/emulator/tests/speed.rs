//! How fast kernels are played. What they compute, `tests/` of the host checks.

use std::time::Instant;
use std::vec::Vec;

use half::f16;

use super::{Emulator, Memory, noise};
use crate::basics::{Transpose, VectorAdd};
use crate::product::MatmulF16;

fn values(seed: u64, n: usize) -> Vec<f32> {
    let mut next = noise(seed);
    (0..n).map(|_| (next() >> 40) as f32 / (1 << 23) as f32 - 1.0).collect()
}

/// Not a check: what the emulator does in a second. `cargo test -p gpu -- --ignored --nocapture speed`
#[test]
#[ignore = "a measurement"]
fn speed() {
    let n = 1 << 20;
    let input = values(1, n as usize);
    let mut memory = Memory::new();
    let kernel = VectorAdd {
        out: memory.output("out", n as usize),
        a: memory.input("a", &input),
        b: memory.input("b", &input),
        n,
    };
    let start = Instant::now();
    Emulator::new().launch(&mut memory, kernel).unwrap();
    let seconds = start.elapsed().as_secs_f64();
    std::eprintln!("vector_add: {seconds:.3} s, {:.1} M accesses/s", f64::from(3 * n) / seconds / 1e6);

    let (rows, columns) = (1024, 1024);
    let out = memory.output("transposed", n as usize);
    let from = memory.input("input", &input);
    let start = Instant::now();
    Emulator::new().launch(&mut memory, Transpose::<1> { out, input: from, rows, columns }).unwrap();
    let seconds = start.elapsed().as_secs_f64();
    std::eprintln!("transpose: {seconds:.3} s, {:.1} M accesses/s", f64::from(4 * n) / seconds / 1e6);

    let size = 512_u32;
    let f16s: Vec<f16> = input[..(size * size) as usize].iter().map(|&x| f16::from_f32(x)).collect();
    let out = memory.output("product", (size * size) as usize);
    let (a, b) = (memory.input("a16", &f16s), memory.input("b16", &f16s));
    for seed in [0, 1] {
        let start = Instant::now();
        let kernel = MatmulF16 { out, input: a, weights: b, m: size, n: size, k: size };
        let counters = Emulator::new().seed(seed).launch(&mut memory, kernel).unwrap();
        let seconds = start.elapsed().as_secs_f64();
        std::eprintln!(
            "matmul {size}^3, seed {seed}: {seconds:.3} s, {:.0} wmma/s",
            counters.wmma_mma as f64 / seconds
        );
    }
}
