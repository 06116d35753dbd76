//! Matrix words against plain loops. Lane layouts are written out here once more, as the ISA's
//! sections and the measurement give them: g = lane / 4, t = lane % 4.

use std::vec;
use std::vec::Vec;

use half::{bf16, f16};

use super::super::{Lane, noise, one_block, play};
use crate::simt::emulator::Memory;
use crate::simt::{
    Accumulator, Ampere, ColMajor, Global, Layout, MatrixA, MatrixB, RowMajor, Shared, Simt, Word,
};

/// Copies a buffer into shared memory; all threads see it.
///
/// # Safety
/// `n` elements at both, and nobody uses that shared memory.
unsafe fn stage<T: Word>(s: Lane<'_>, to: Shared<T>, from: Global<T>, n: u32) {
    let mut i = s.thread();
    while i < n {
        // SAFETY: the caller's.
        unsafe { s.store_shared(to.at(i), s.load_global(from.at(u64::from(i)))) };
        i += s.threads();
    }
    s.barrier();
}

fn f16s(seed: u64, n: usize) -> Vec<f16> {
    let mut next = noise(seed);
    (0..n).map(|_| f16::from_f32((next() >> 40) as f32 / (1 << 23) as f32 - 1.0)).collect()
}

/// A · B + C for row-major A (m × k), B (k × n), C: f32, in order of k.
fn plain(a: &[f32], b: &[f32], c: &[f32], (m, n, k): (usize, usize, usize)) -> Vec<f32> {
    let mut d = c.to_vec();
    for i in 0..m {
        for j in 0..n {
            for l in 0..k {
                d[i * n + j] = a[i * k + l].mul_add(b[l * n + j], d[i * n + j]);
            }
        }
    }
    d
}

/// (row, column) of a 16-wide matrix in memory of this layout and stride.
fn at<L: Layout>(row: usize, column: usize, stride: usize) -> usize {
    if L::ROW_MAJOR { row * stride + column } else { column * stride + row }
}

fn wmma_case<A: Layout, B: Layout, C: Layout>() {
    const STRIDE: usize = 24;
    const OUT_STRIDE: usize = 20;
    let (a, b) = (f16s(1, 16 * STRIDE), f16s(2, 16 * STRIDE));
    let c: Vec<f32> = f16s(3, 16 * OUT_STRIDE).into_iter().map(f16::to_f32).collect();
    let mut memory = Memory::new();
    let (from_a, from_b, from_c) = (memory.input("a", &a), memory.input("b", &b), memory.input("c", &c));
    let through_shared = memory.output::<f32>("through shared", 16 * OUT_STRIDE);
    let direct = memory.in_out("direct", &vec![f32::NAN; 16 * OUT_STRIDE]);
    let bytes = (2 * 2 * 16 * STRIDE + 2 * 4 * 16 * OUT_STRIDE) as u32;
    let counters = play(&mut memory, 5, one_block(32, bytes), move |s: Lane<'_>| {
        let tile_a = s.shared::<f16>();
        let tile_b = tile_a.at(16 * STRIDE as u32);
        let tile_c = tile_b.at(16 * STRIDE as u32).cast::<f32>();
        let tile_d = tile_c.at(16 * OUT_STRIDE as u32);
        // SAFETY: tiles lie behind each other; barriers in `stage`, before the copy out.
        unsafe {
            stage(s, tile_a, from_a, 16 * STRIDE as u32);
            stage(s, tile_b, from_b, 16 * STRIDE as u32);
            stage(s, tile_c, from_c, 16 * OUT_STRIDE as u32);
            stage(s, tile_d, from_c, 16 * OUT_STRIDE as u32);
            let a: MatrixA<A> = s.wmma_load_a(tile_a, STRIDE as u32);
            let b: MatrixB<B> = s.wmma_load_b(tile_b, STRIDE as u32);
            let c: Accumulator = s.wmma_load_c::<C>(tile_c, OUT_STRIDE as u32);
            let d = s.wmma_mma(a, b, c);
            s.wmma_store_shared::<C>(tile_d, OUT_STRIDE as u32, d);
            s.wmma_store_global::<C>(direct, OUT_STRIDE as u32, d);
            s.warp_sync();
            let mut i = s.lane();
            while i < 16 * OUT_STRIDE as u32 {
                s.store_global(through_shared.at(u64::from(i)), s.load_shared(tile_d.at(i)));
                i += 32;
            }
        }
    })
    .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((counters.wmma_mma, counters.wmma_memory, counters.warp_syncs), (1, 5, 1));

    let pick =
        |from: &dyn Fn(usize, usize) -> f32| -> Vec<f32> { (0..256).map(|i| from(i / 16, i % 16)).collect() };
    let expected = plain(
        &pick(&|row, k| a[at::<A>(row, k, STRIDE)].to_f32()),
        &pick(&|k, column| b[at::<B>(k, column, STRIDE)].to_f32()),
        &pick(&|row, column| c[at::<C>(row, column, OUT_STRIDE)]),
        (16, 16, 16),
    );
    let (through_shared, direct) = (memory.values(through_shared), memory.values(direct));
    for row in 0..16 {
        for column in 0..16 {
            let i = at::<C>(row, column, OUT_STRIDE);
            let expected = expected[16 * row + column];
            assert!(through_shared[i] == expected && direct[i] == expected, "({row}, {column})");
        }
    }
    // Between the rows nothing is touched.
    assert!((0..16).all(|row| (16..20).all(|i| direct[row * OUT_STRIDE + i].is_nan())));
    assert!(
        (0..16).all(|row| (16..20).all(|i| through_shared[row * OUT_STRIDE + i] == c[row * OUT_STRIDE + i]))
    );
}

#[test]
fn wmma_multiplies_in_every_layout() {
    wmma_case::<RowMajor, RowMajor, RowMajor>();
    wmma_case::<RowMajor, ColMajor, RowMajor>();
    wmma_case::<ColMajor, RowMajor, ColMajor>();
    wmma_case::<ColMajor, ColMajor, RowMajor>();
}

#[test]
fn both_operands_row_major_is_another_product() {
    // What happens when K of Q·Kᵀ, stored row by row, is taken for a row-major B.
    let (q, k) = (f16s(4, 256), f16s(5, 256));
    let mut memory = Memory::new();
    let (from_q, from_k) = (memory.input("q", &q), memory.input("k", &k));
    let right = memory.output::<f32>("right", 256);
    let wrong = memory.output::<f32>("wrong", 256);
    play(&mut memory, 0, one_block(32, 1024), move |s: Lane<'_>| {
        let (tile_q, tile_k) = (s.shared::<f16>(), s.shared::<f16>().at(256));
        // SAFETY: as above.
        unsafe {
            stage(s, tile_q, from_q, 256);
            stage(s, tile_k, from_k, 256);
            let a: MatrixA<RowMajor> = s.wmma_load_a(tile_q, 16);
            let good: MatrixB<ColMajor> = s.wmma_load_b(tile_k, 16);
            let bad: MatrixB<RowMajor> = s.wmma_load_b(tile_k, 16);
            s.wmma_store_global::<RowMajor>(right, 16, s.wmma_mma(a, good, [0.0; 8]));
            s.wmma_store_global::<RowMajor>(wrong, 16, s.wmma_mma(a, bad, [0.0; 8]));
        }
    })
    .unwrap();
    let worst = |out: Vec<f32>| {
        (0..256).fold(0.0_f64, |worst, i| {
            let products = q[i / 16 * 16..][..16].iter().zip(&k[i % 16 * 16..][..16]);
            let exact: f64 = products.map(|(q, k)| q.to_f64() * k.to_f64()).sum();
            worst.max((f64::from(out[i]) - exact).abs())
        })
    };
    assert!(worst(memory.values(right)) <= 1e-4);
    assert!(worst(memory.values(wrong)) >= 0.1);
}

#[test]
fn ldmatrix_deals_rows_out() {
    let values: Vec<u16> = (0..32 * 12).map(|i| i as u16 * 5 + 1).collect();
    let mut memory = Memory::new();
    let from = memory.input("from", &values);
    let out = memory.output::<u32>("out", 32 * 14);
    let counters = play(&mut memory, 3, one_block(32, 4 * 32 * 24), move |s: Lane<'_>| {
        // Rows of 8 elements, 24 bytes of stride would not be aligned: 48.
        let tile = s.shared::<u16>();
        // SAFETY: as above; a row's 16 bytes begin at a multiple of 48.
        unsafe {
            for i in 0..8 {
                let value = s.load_global(from.at(u64::from(12 * s.lane() + i)));
                s.store_shared(tile.at(24 * s.lane() + i), value);
            }
            s.warp_sync();
            // Lanes that are not used may point anywhere.
            let row = |lanes: u32| {
                if s.lane() < lanes { tile.at(24 * s.lane()) } else { Shared::from_address(1) }
            };
            let (x1, x2, x4) =
                (s.ldmatrix::<1, _>(row(8)), s.ldmatrix::<2, _>(row(16)), s.ldmatrix::<4, _>(row(32)));
            let (t1, t2, t4): ([u32; 1], [u32; 2], [u32; 4]) =
                (s.ldmatrix_trans(row(8)), s.ldmatrix_trans(row(16)), s.ldmatrix_trans(row(32)));
            let all = x1.into_iter().chain(x2).chain(x4).chain(t1).chain(t2).chain(t4);
            for (i, register) in (0..).zip(all) {
                s.store_global(out.at(u64::from(14 * s.lane()) + i), register);
            }
        }
    })
    .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(counters.ldmatrix, 6);
    let element =
        |matrix: usize, row: usize, column: usize| u32::from(values[(8 * matrix + row) * 12 + column]);
    for (lane, got) in memory.values(out).chunks(14).enumerate() {
        let (g, t) = (lane / 4, lane % 4);
        let straight = |j: usize| element(j, g, 2 * t + 1) << 16 | element(j, g, 2 * t);
        let transposed = |j: usize| element(j, 2 * t + 1, g) << 16 | element(j, 2 * t, g);
        let registers = [0, 0, 1, 0, 1, 2, 3];
        let expected: Vec<u32> =
            registers.map(straight).into_iter().chain(registers.map(transposed)).collect();
        assert_eq!(got, expected, "lane {lane}");
    }
}

/// The registers of A (16 × 16), B (16 × 8) and C (16 × 8) for a lane of m16n8k16.
fn fragments_16(lane: usize, a: &[u16], b: &[u16], c: &[f32]) -> ([u32; 4], [u32; 2], [f32; 4]) {
    let (g, t) = (lane / 4, lane % 4);
    let pair = |low: u16, high: u16| u32::from(high) << 16 | u32::from(low);
    let a = [(g, 2 * t), (g + 8, 2 * t), (g, 2 * t + 8), (g + 8, 2 * t + 8)]
        .map(|(row, k)| pair(a[16 * row + k], a[16 * row + k + 1]));
    let b = [2 * t, 2 * t + 8].map(|k| pair(b[8 * k + g], b[8 * (k + 1) + g]));
    (a, b, accumulators(lane).map(|(row, column)| c[8 * row + column]))
}

/// The elements of C and D (16 × 8) in a lane.
fn accumulators(lane: usize) -> [(usize, usize); 4] {
    let (g, t) = (lane / 4, lane % 4);
    [(g, 2 * t), (g, 2 * t + 1), (g + 8, 2 * t), (g + 8, 2 * t + 1)]
}

#[test]
fn mma_multiplies_f16_and_bf16() {
    let (a, b) = (f16s(6, 256), f16s(7, 128));
    let c: Vec<f32> = f16s(8, 128).into_iter().map(f16::to_f32).collect();
    let bits = |values: &[f16]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let bf16_bits =
        |values: &[f16]| values.iter().map(|x| bf16::from_f32(x.to_f32()).to_bits()).collect::<Vec<_>>();
    let wide = |values: &[f16]| values.iter().map(|x| x.to_f32()).collect::<Vec<_>>();
    let bf16_wide =
        |values: &[f16]| values.iter().map(|x| bf16::from_f32(x.to_f32()).to_f32()).collect::<Vec<_>>();

    for (is_bf16, a_bits, b_bits, a, b) in [
        (false, bits(&a), bits(&b), wide(&a), wide(&b)),
        (true, bf16_bits(&a), bf16_bits(&b), bf16_wide(&a), bf16_wide(&b)),
    ] {
        let registers: [_; 32] = core::array::from_fn(|lane| fragments_16(lane, &a_bits, &b_bits, &c));
        let mut memory = Memory::new();
        let out = memory.output::<[f32; 4]>("out", 32);
        play(&mut memory, 9, one_block(32, 0), move |s: Lane<'_>| {
            let (a, b, c) = registers[s.lane() as usize];
            let d = if is_bf16 { s.mma_m16n8k16_bf16(a, b, c) } else { s.mma_m16n8k16_f16(a, b, c) };
            // SAFETY: one element a lane.
            unsafe { s.store_global(out.at(u64::from(s.lane())), d) };
        })
        .unwrap();
        let expected = plain(&a, &b, &c, (16, 8, 16));
        for (lane, d) in memory.values(out).into_iter().enumerate() {
            assert_eq!(d, accumulators(lane).map(|(row, column)| expected[8 * row + column]));
        }
    }
}

#[test]
fn mma_multiplies_s8_and_wraps() {
    let mut next = noise(10);
    let a: Vec<i8> = (0..16 * 32).map(|_| next() as i8).collect();
    let b: Vec<i8> = (0..32 * 8).map(|_| next() as i8).collect();
    let c: Vec<i32> = (0..128).map(|i| if i % 3 == 0 { i32::MAX } else { next() as i32 }).collect();
    let register = |bytes: [i8; 4]| u32::from_le_bytes(bytes.map(i8::cast_unsigned));
    let registers: [_; 32] = core::array::from_fn(|lane| {
        let (g, t) = (lane / 4, lane % 4);
        let of_a = [(g, 4 * t), (g + 8, 4 * t), (g, 4 * t + 16), (g + 8, 4 * t + 16)]
            .map(|(row, k)| register([0, 1, 2, 3].map(|i| a[32 * row + k + i])));
        let of_b = [4 * t, 4 * t + 16].map(|k| register([0, 1, 2, 3].map(|i| b[8 * (k + i) + g])));
        (of_a, of_b, accumulators(lane).map(|(row, column)| c[8 * row + column]))
    });
    let mut memory = Memory::new();
    let out = memory.output::<[i32; 4]>("out", 32);
    play(&mut memory, 9, one_block(32, 0), move |s: Lane<'_>| {
        let (a, b, c) = registers[s.lane() as usize];
        // SAFETY: an element a lane.
        unsafe { s.store_global(out.at(u64::from(s.lane())), s.mma_m16n8k32_s8(a, b, c)) }
    })
    .unwrap();
    for (lane, d) in memory.values(out).iter().copied().enumerate() {
        let expected = accumulators(lane).map(|(row, column)| {
            let products = (0..32).map(|k| i64::from(a[32 * row + k]) * i64::from(b[8 * k + column]));
            (i64::from(c[8 * row + column]) + products.sum::<i64>()) as i32
        });
        assert_eq!(d, expected, "lane {lane}");
    }
}

#[test]
fn tiles_must_be_aligned_and_alike_in_all_lanes() {
    let load = |offset: u32, stride: u32, by_lane: u32| {
        play(&mut Memory::new(), 0, one_block(32, 4096), move |s: Lane<'_>| {
            // SAFETY: the emulator's to judge.
            unsafe {
                let tile = s.shared::<f32>();
                let mut i = s.lane();
                while i < 1024 {
                    s.store_shared(tile.at(i), 0.0);
                    i += 32;
                }
                s.warp_sync();
                s.wmma_load_c::<RowMajor>(tile.at(offset + s.lane() * by_lane), stride);
            }
        })
    };
    load(8, 16, 0).unwrap();
    for (offset, stride, by_lane, part) in [
        (4, 16, 0, "not a multiple of 32"),
        (0, 18, 0, "a stride of 18: not a multiple of 4"),
        (0, 16, 8, "divergence"),
        (0, 64, 0, "wmma"),
    ] {
        let result = load(offset, stride, by_lane);
        if part == "wmma" {
            result.unwrap();
        } else {
            let text = super::super::text(&result.unwrap_err());
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
    }
    // 16 rows of 68 do not fit into 1024.
    let text = super::super::text(&load(0, 68, 0).unwrap_err());
    assert!(text.contains("out of bounds"), "{text}");
}
