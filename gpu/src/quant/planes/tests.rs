//! Rows of every format, taken apart and read by kernels in the emulator, against
//! [`Block::dequantize`].

#![allow(clippy::unwrap_used, reason = "a test may panic")]

extern crate std;

use core::marker::PhantomData;
use std::format;
use std::string::ToString;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::quant::tests::random_bytes;
use crate::quant::{bf16, dequantize_row, f16, with_block};
use crate::simt::emulator::{Counters, Emulator, Memory};
use crate::simt::{Contract, Dim3, Expectations, Kernel, Launch};

const THREADS: u32 = 64;

/// `out[i] = scale * q - min` of row `row`, a piece a thread.
#[derive(Clone, Copy)]
struct ReadPieces<B> {
    out: Global<f32>,
    rows: Global<u8>,
    row: u32,
    blocks: u32,
    format: PhantomData<fn() -> B>,
}

impl<B: Pieces> Contract for ReadPieces<B> {
    const NAME: &'static str = "read_pieces";
    const EXPECTATIONS: Expectations =
        Expectations { instructions: &[], registers: 255, local_memory: false };

    fn launch(&self) -> Launch {
        let pieces = self.blocks * pieces_of::<B>();
        Launch { grid: Dim3::linear(pieces.div_ceil(THREADS)), threads: THREADS, shared_bytes: 0 }
    }
}

impl<S: Simt, B: Pieces> Kernel<S> for ReadPieces<B> {
    unsafe fn run(self, s: S) {
        let index = s.block().x * THREADS + s.thread();
        if index < self.blocks * pieces_of::<B>() {
            let row = self.rows.row(self.row, Planes::of(B::FORMAT).offsets(self.blocks).row);
            // SAFETY: the piece is one of the row's; each element is of one run.
            unsafe {
                for run in B::piece(s, row, self.blocks, index) {
                    for (i, q) in run.quants.into_iter().flat_map(u32::to_le_bytes).enumerate() {
                        let value = s.fma(run.scale, f32::from(q.cast_signed()), -run.min);
                        s.store_global(self.out.at(u64::from(run.first) + i as u64), value);
                    }
                    assert!(B::HAS_MIN || run.min == 0.0);
                }
            }
        }
    }
}

/// `out[i]` = number `i` of the row, eight a thread.
#[derive(Clone, Copy)]
struct ReadNumbers<B> {
    out: Global<f32>,
    row: Global<u8>,
    count: u32,
    format: PhantomData<fn() -> B>,
}

impl<B: Numbers> Contract for ReadNumbers<B> {
    const NAME: &'static str = "read_numbers";
    const EXPECTATIONS: Expectations =
        Expectations { instructions: &[], registers: 255, local_memory: false };

    fn launch(&self) -> Launch {
        let grid = Dim3::linear(self.count.div_ceil(EIGHT * THREADS));
        Launch { grid, threads: THREADS, shared_bytes: 0 }
    }
}

impl<S: Simt, B: Numbers> Kernel<S> for ReadNumbers<B> {
    unsafe fn run(self, s: S) {
        let index = s.block().x * THREADS + s.thread();
        if index < self.count / EIGHT {
            // SAFETY: the eight numbers are the row's, and this thread's alone.
            unsafe {
                for (i, value) in B::unpack(s, B::load(s, self.row, index)).into_iter().enumerate() {
                    s.store_global(self.out.at(u64::from(EIGHT * index) + i as u64), value);
                }
            }
        }
    }
}

/// Rows of these blocks, one after another.
fn pack<B: Block>(blocks: &[u8], rows: usize) -> Vec<u8> {
    let elements = blocks.len() / rows / size_of::<B>() * B::FORMAT.block_elements();
    let bytes = plane_row_bytes(B::FORMAT, elements).unwrap() as usize;
    // What is not written shows: no seed gives a row of these.
    let mut out = vec![0xa5; rows * bytes];
    for (out, blocks) in out.chunks_exact_mut(bytes).zip(blocks.chunks_exact(blocks.len() / rows)) {
        pack_row(B::FORMAT, blocks, out).unwrap();
    }
    out
}

/// Row `row` of `rows`, read piece by piece.
fn read<B: Pieces>(packed: &[u8], row: u32, blocks: u32) -> (Vec<f32>, Counters) {
    let mut memory = Memory::new();
    let rows = memory.input("rows", packed);
    let out = memory.output("out", blocks as usize * B::FORMAT.block_elements());
    let kernel = ReadPieces::<B> { out, rows, row, blocks, format: PhantomData };
    let counters = Emulator::new().launch(&mut memory, kernel).unwrap();
    memory.check_written_once(out).unwrap();
    (memory.values(out), counters)
}

fn values(format: Format, blocks: &[u8]) -> Vec<f32> {
    let mut values = vec![f32::NAN; blocks.len() / format.block_bytes() * format.block_elements()];
    dequantize_row(format, blocks, &mut values).unwrap();
    values
}

/// Equal, zeros of either sign taken as one; what is not finite stays not finite.
fn assert_equal(what: &str, got: &[f32], expected: &[f32]) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        assert!(
            got == expected || !got.is_finite() && !expected.is_finite(),
            "{what}: value {i} is {got}, expected {expected}"
        );
    }
}

/// Bytes that reading every piece of a row once loads: those of a head for every piece of it.
const fn loaded_bytes<B: Pieces>(blocks: u32) -> u32 {
    let planes = Planes::of(B::FORMAT);
    blocks * (planes.quants + planes.high + planes.scales + pieces_of::<B>() * planes.heads)
}

#[test]
fn pieces_are_what_dequantize_says_and_every_byte_is_loaded_for_one() {
    fn check<B: Pieces>(rows: usize, blocks: usize, seed: u64) {
        let what = format!("{}, {rows} rows of {blocks} blocks, seed {seed}", B::FORMAT);
        let bytes = random_bytes(rows * blocks * size_of::<B>(), seed);
        let packed = pack::<B>(&bytes, rows);
        for row in 0..rows {
            let (got, counters) = read::<B>(&packed, row as u32, blocks as u32);
            let row_blocks = &bytes[row * blocks * size_of::<B>()..][..blocks * size_of::<B>()];
            let expected = values(B::FORMAT, row_blocks);
            assert!(expected.iter().filter(|x| x.is_finite() && **x != 0.0).count() * 2 > expected.len());
            assert_equal(&format!("{what}, row {row}"), &got, &expected);
            assert_eq!(counters.global_loads.bytes, u64::from(loaded_bytes::<B>(blocks as u32)), "{what}");
        }
    }

    for format in Format::ALL {
        with_block!(format, quantized B => {
            for (seed, (rows, blocks)) in [(1, 1), (3, 5), (2, 16), (1, 33)].into_iter().enumerate() {
                check::<B>(rows, blocks, 100 * u64::from(format.id()) + seed as u64);
            }
        }, else {});
    }
}

#[test]
fn a_warp_reads_each_sector_of_a_plane_once() {
    fn check<B: Pieces>() {
        // Two warps with a piece a lane.
        let blocks = THREADS / pieces_of::<B>();
        let packed = pack::<B>(&random_bytes(blocks as usize * size_of::<B>(), 9), 1);
        let (_, counters) = read::<B>(&packed, 0, blocks);
        let planes = Planes::of(B::FORMAT);
        let sectors = |bytes: u32| u64::from(2 * (blocks / 2 * bytes).div_ceil(32));
        // A piece of 8-bit quants is a sector, and its halves are loaded one after the other.
        let eight_bits = planes.quants == B::FORMAT.block_elements() as u32;
        let expected = sectors(planes.quants) * if eight_bits { 2 } else { 1 }
            + sectors(planes.high)
            + sectors(planes.scales)
            + sectors(planes.heads);
        assert_eq!(counters.global_loads.sectors, expected, "{}", B::FORMAT);
    }
    for format in Format::ALL {
        with_block!(format, quantized B => check::<B>(), else {});
    }
}

#[test]
fn every_quant_of_every_place_is_read() {
    /// Blocks that are the same but for one bit give rows that are not.
    fn check<B: Pieces>() {
        let mut bytes = vec![0; size_of::<B>()];
        let base = pack::<B>(&bytes, 1);
        let mut same = 0;
        for bit in 0..8 * bytes.len() {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let different: u32 =
                pack::<B>(&bytes, 1).iter().zip(&base).map(|(a, b)| (a ^ b).count_ones()).sum();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(different <= 1, "{}: bit {bit} stands {different} times", B::FORMAT);
            same += usize::from(different == 0);
        }
        // The sums of Q8_K.
        assert_eq!(same, if B::FORMAT == Format::Q8_K { 256 } else { 0 }, "{}", B::FORMAT);
    }
    for format in Format::ALL {
        with_block!(format, quantized B => check::<B>(), else {});
    }
}

#[test]
fn numbers_are_read_as_they_are() {
    fn check<B: Numbers>(count: usize) {
        let bytes = random_bytes(count * size_of::<B>(), 7);
        let mut memory = Memory::new();
        let row = memory.input("row", &pack::<B>(&bytes, 1));
        let out = memory.output("out", count);
        let kernel = ReadNumbers::<B> { out, row, count: count as u32, format: PhantomData };
        let counters = Emulator::new().launch(&mut memory, kernel).unwrap();
        memory.check_written_once(out).unwrap();
        assert_eq!(counters.global_loads.bytes, bytes.len() as u64);
        let same = |(got, expected): (f32, f32)| {
            got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan()
        };
        assert!(memory.values(out).into_iter().zip(values(B::FORMAT, &bytes)).all(same), "{}", B::FORMAT);
    }
    check::<f32>(1000);
    check::<f16>(1000);
    check::<bf16>(1000);
}

#[test]
fn rows_are_aligned_and_padded_with_zeros() {
    for format in Format::ALL {
        for blocks in [0, 1, 3, 8] {
            let elements = blocks * format.block_elements();
            let row = plane_row_bytes(format, elements).unwrap();
            let at = Planes::of(format).offsets(blocks as u32);
            for offset in [at.high, at.scales, at.heads, at.row, row] {
                assert!(offset.is_multiple_of(PLANE_ALIGN), "{format}");
            }
            let bytes = vec![0xff; blocks * format.block_bytes()];
            let mut out = vec![0xff; row as usize];
            pack_row(format, &bytes, &mut out).unwrap();
            let ones: u32 = out.iter().map(|byte| byte.count_ones()).sum();
            let padding = if format == Format::Q3_K { 2 } else { 0 };
            assert_eq!(ones, 8 * (Planes::of(format).block_bytes() - padding) * blocks as u32, "{format}");
        }
    }
}

#[test]
fn wrong_lengths_are_errors_and_write_nothing() {
    let mut out = vec![7; 144 + 16];
    let error = pack_row(Format::Q4_K, &[0; 145], &mut out).unwrap_err();
    assert_eq!(error.to_string(), "145 bytes are no whole number of Q4_K blocks of 144 bytes");
    let error = pack_row(Format::Q4_K, &[0; 144], &mut out).unwrap_err();
    assert_eq!(error.to_string(), "a Q4_K row of 256 values takes 144 bytes on a device, got 160");
    assert!(out.iter().all(|&byte| byte == 7));
    assert_eq!(plane_row_bytes(Format::Q6_K, 255), None);
    assert_eq!(plane_row_bytes(Format::F32, 1 << 29), None);
}
