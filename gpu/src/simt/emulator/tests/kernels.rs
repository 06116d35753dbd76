//! The crate's own kernels, played.

use std::time::Instant;
use std::vec::Vec;

use half::f16;

use super::{Emulator, Memory, SEEDS, noise};
use crate::basics::{BlockSum, Transpose, VectorAdd};
use crate::product::MatmulF16;
use crate::simt::Contract;

fn values(seed: u64, n: usize) -> Vec<f32> {
    let mut next = noise(seed);
    (0..n).map(|_| (next() >> 40) as f32 / (1 << 23) as f32 - 1.0).collect()
}

#[test]
fn vector_add_is_exact() {
    for (n, seed) in [1_u32, 255, 256, 257, 1000].into_iter().zip(SEEDS) {
        let (a, b) = (values(1, n as usize), values(2, n as usize));
        let mut memory = Memory::new();
        let out = memory.output("out", n as usize);
        let kernel = VectorAdd { out, a: memory.input("a", &a), b: memory.input("b", &b), n };
        Emulator::new().seed(seed).launch(&mut memory, kernel).unwrap();
        memory.check_written_once(out).unwrap();
        assert!(memory.values(out).iter().zip(a.iter().zip(&b)).all(|(&out, (a, b))| out == a + b));
    }
}

#[test]
fn block_sum_adds() {
    for n in [1_u32, 31, 1024, 1025, 5000] {
        let input = values(3, n as usize);
        let mut memory = Memory::new();
        let out = memory.output("out", BlockSum::sums(n) as usize);
        let kernel = BlockSum { out, input: memory.input("input", &input), n };
        Emulator::new().seed(u64::from(n)).launch(&mut memory, kernel).unwrap();
        memory.check_written_once(out).unwrap();
        for (out, chunk) in memory.values(out).iter().zip(input.chunks(1024)) {
            let sum: f64 = chunk.iter().copied().map(f64::from).sum();
            assert!((f64::from(*out) - sum).abs() <= 1e-4, "{out} for {sum}");
        }
    }
}

#[test]
fn transposes_counted_conflict_by_conflict() {
    let (rows, columns) = (64, 96);
    let input = values(4, rows * columns);
    let mut memory = Memory::new();
    let from = memory.input("input", &input);
    let conflicted = memory.output("conflicted", rows * columns);
    let padded = memory.output("padded", rows * columns);
    let launch = |memory: &mut Memory, padding: bool| {
        let (rows, columns) = (rows as u32, columns as u32);
        if padding {
            let kernel = Transpose::<1> { out: padded, input: from, rows, columns };
            Emulator::new().seed(9).launch(memory, kernel)
        } else {
            let kernel = Transpose::<0> { out: conflicted, input: from, rows, columns };
            Emulator::new().seed(9).launch(memory, kernel)
        }
    };
    let (bad, good) = (launch(&mut memory, false).unwrap(), launch(&mut memory, true).unwrap());
    for out in [conflicted, padded] {
        memory.check_written_once(out).unwrap();
        let out = memory.values(out);
        assert!((0..rows).all(|r| (0..columns).all(|c| out[c * rows + r] == input[r * columns + c])));
    }
    // 2 × 3 tiles of 32 rows, one warp instruction a row and direction.
    let instructions = 6 * 32;
    for counters in [bad, good] {
        assert_eq!(counters.barriers, 6);
        assert_eq!(counters.shared_loads.instructions, instructions);
        assert_eq!(counters.shared_stores.wavefronts, instructions);
        assert_eq!(counters.shared_stores.conflicts, 0);
        // 32 lanes of 4 bytes are 4 sectors, both ways.
        assert_eq!(counters.global_loads.sectors, 4 * instructions);
        assert_eq!(counters.global_stores.sectors, 4 * instructions);
        assert_eq!(counters.global_stores.bytes, 4 * (rows * columns) as u64);
    }
    assert_eq!(bad.shared_loads.wavefronts, 32 * instructions);
    assert_eq!(bad.shared_loads.conflicts, 31 * instructions);
    assert_eq!(good.shared_loads.wavefronts, instructions);
    assert_eq!(good.shared_loads.conflicts, 0);
}

#[test]
fn matmul_over_ragged_shapes_and_schedules() {
    for ((m, n, k), seed) in [(1, 1, 8), (64, 64, 32), (65, 70, 72), (130, 33, 128)].into_iter().zip(SEEDS) {
        let f16s = |seed, n| values(seed, n).into_iter().map(f16::from_f32).collect::<Vec<_>>();
        let (input, weights) = (f16s(7, m * k), f16s(8, n * k));
        let mut memory = Memory::new();
        let out = memory.output("out", m * n);
        let kernel = MatmulF16 {
            out,
            input: memory.input("input", &input),
            weights: memory.input("weights", &weights),
            m: m as u32,
            n: n as u32,
            k: k as u32,
        };
        let counters = Emulator::new().seed(seed).launch(&mut memory, kernel).unwrap();
        memory.check_written_once(out).unwrap();
        let out: Vec<f32> = memory.values(out);
        for i in 0..m {
            for j in 0..n {
                let products = input[i * k..][..k].iter().zip(&weights[j * k..][..k]);
                let sum: f64 = products.map(|(a, b)| a.to_f64() * b.to_f64()).sum();
                assert!((f64::from(out[i * n + j]) - sum).abs() <= 1e-4, "({i}, {j})");
            }
        }
        let blocks = kernel.launch().grid.count();
        let steps = k.div_ceil(32) as u64;
        // 4 warps, 2 × 2 tiles and 2 halves of a step each.
        assert_eq!(counters.wmma_mma, blocks * steps * 4 * 8);
        assert_eq!(counters.barriers, blocks * (steps + 2));
        assert_eq!(counters.copies.instructions, blocks * steps * 4 * 4);
        assert_eq!(counters.shared_loads.conflicts, 0, "80-byte rows do not conflict");
    }
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
