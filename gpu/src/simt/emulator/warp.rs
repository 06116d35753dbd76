//! Words that join the lanes of a warp: what they are, and what they give.

use half::f16;

use super::arithmetic::{f32_from_f16x2, unpack};
use super::counters::{Counters, SharedTraffic};
use super::error::Fault;
use super::memory::Problem;
use super::wgmma::Product;
use crate::fragment::{ldmatrix, mma, wmma};
use crate::simt::{WARP_LANES, f32_from_bf16x2};

/// Registers that a lane brings: at most the operands and accumulators of `wmma.mma`.
pub(super) type Inputs = [u32; 16];
/// Registers that a lane gets: at most an accumulator of `wmma`.
pub(super) type Outputs = [u32; 8];
/// The same for all lanes.
pub(super) type Of<T> = [T; WARP_LANES as usize];

/// A word with what all lanes must agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WarpWord {
    Barrier,
    BarrierNamed { id: u32, threads: u32 },
    BarrierArrive { id: u32, threads: u32 },
    WarpSync,
    Shuffle,
    ShuffleUp,
    ShuffleDown,
    ShuffleXor,
    Vote,
    LdMatrix { matrices: usize, transposed: bool },
    WmmaLoad { tile: Tile, address: u32, stride: u32 },
    WmmaStoreShared { row_major: bool, address: u32, stride: u32 },
    WmmaStoreGlobal { row_major: bool, address: u64, stride: u32 },
    WmmaMma { a_row_major: bool, b_row_major: bool },
    MmaF16,
    MmaBf16,
    MmaS8,
    Wgmma(Product),
    WgmmaFence,
    WgmmaCommit,
    WgmmaWait { pending: u32 },
    TakeRegisters { registers: u32 },
    GiveRegisters { registers: u32 },
}

/// What `wmma.load` loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    pub(super) operand: Operand,
    pub(super) row_major: bool,
}

/// A matrix of `wmma`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    A,
    B,
    C,
}

impl WarpWord {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::BarrierNamed { .. } => "barrier_named",
            Self::BarrierArrive { .. } => "barrier_arrive",
            Self::WarpSync => "warp_sync",
            Self::Shuffle => "shuffle",
            Self::ShuffleUp => "shuffle_up",
            Self::ShuffleDown => "shuffle_down",
            Self::ShuffleXor => "shuffle_xor",
            Self::Vote => "vote",
            Self::LdMatrix { transposed: false, .. } => "ldmatrix",
            Self::LdMatrix { transposed: true, .. } => "ldmatrix_trans",
            Self::WmmaLoad { tile: Tile { operand: Operand::A, .. }, .. } => "wmma_load_a",
            Self::WmmaLoad { tile: Tile { operand: Operand::B, .. }, .. } => "wmma_load_b",
            Self::WmmaLoad { tile: Tile { operand: Operand::C, .. }, .. } => "wmma_load_c",
            Self::WmmaStoreShared { .. } => "wmma_store_shared",
            Self::WmmaStoreGlobal { .. } => "wmma_store_global",
            Self::WmmaMma { .. } => "wmma_mma",
            Self::MmaF16 => "mma_m16n8k16_f16",
            Self::MmaBf16 => "mma_m16n8k16_bf16",
            Self::MmaS8 => "mma_m16n8k32_s8",
            Self::Wgmma(Product { a: Some(_), .. }) => "wgmma_f16",
            Self::Wgmma(Product { a: None, .. }) => "wgmma_f16_register_a",
            Self::WgmmaFence => "wgmma_fence",
            Self::WgmmaCommit => "wgmma_commit",
            Self::WgmmaWait { .. } => "wgmma_wait",
            Self::TakeRegisters { .. } => "take_registers",
            Self::GiveRegisters { .. } => "give_registers",
        }
    }

    /// Whether it meets other warps.
    pub(super) const fn is_barrier(self) -> bool {
        matches!(self, Self::Barrier | Self::BarrierNamed { .. } | Self::BarrierArrive { .. })
    }
}

/// How a warp's word reaches memory. Each access is one lane's.
pub(super) trait WarpMemory {
    fn load_shared(&mut self, lane: u32, address: u32, into: &mut [u8], align: u32) -> Result<(), Problem>;
    fn store_shared(&mut self, lane: u32, address: u32, value: f32) -> Result<(), Problem>;
    fn store_global(&mut self, lane: u32, address: u64, value: f32) -> Result<(), Problem>;
    fn counters(&mut self) -> &mut Counters;
}

/// A failed word: the lane whose part failed.
pub(super) type Failed = (u32, Problem);

/// Does a word that ends within the warp: from every lane's registers to every lane's results.
pub(super) fn execute(
    word: WarpWord,
    inputs: &Of<Inputs>,
    outputs: &mut Of<Outputs>,
    memory: &mut impl WarpMemory,
) -> Result<(), Failed> {
    match word {
        WarpWord::Barrier
        | WarpWord::BarrierNamed { .. }
        | WarpWord::BarrierArrive { .. }
        | WarpWord::WarpSync
        // What they do is the block's: products outlast the word.
        | WarpWord::Wgmma(_)
        | WarpWord::WgmmaFence
        | WarpWord::WgmmaCommit
        | WarpWord::WgmmaWait { .. }
        | WarpWord::TakeRegisters { .. }
        | WarpWord::GiveRegisters { .. } => {}
        WarpWord::Shuffle | WarpWord::ShuffleUp | WarpWord::ShuffleDown | WarpWord::ShuffleXor => {
            memory.counters().shuffles += 1;
            for lane in 0..WARP_LANES {
                let by = inputs[lane as usize][1];
                let source = match word {
                    WarpWord::Shuffle => by % WARP_LANES,
                    WarpWord::ShuffleUp => lane.checked_sub(by).unwrap_or(lane),
                    WarpWord::ShuffleDown => Some(lane + by).filter(|&l| l < WARP_LANES).unwrap_or(lane),
                    _ => lane ^ by,
                };
                outputs[lane as usize][0] = inputs[source as usize][0];
            }
        }
        WarpWord::Vote => {
            memory.counters().votes += 1;
            let ballot = inputs.iter().rev().fold(0, |bits, input| bits << 1 | input[0]);
            outputs.iter_mut().for_each(|output| output[0] = ballot);
        }
        WarpWord::LdMatrix { matrices, transposed } => {
            load_matrices(matrices, transposed, inputs, outputs, memory)?
        }
        WarpWord::WmmaLoad { tile, address, stride } => load_tile(tile, address, stride, outputs, memory)?,
        WarpWord::WmmaStoreShared { row_major, address, stride } => {
            memory.counters().wmma_memory += 1;
            count_accumulator(row_major, address, stride, &mut memory.counters().shared_stores);
            for_each_accumulator(row_major, stride, |lane, i, element| {
                let value = f32::from_bits(inputs[lane as usize][i]);
                memory.store_shared(lane, address.wrapping_add(element * 4), value)
            })?;
        }
        WarpWord::WmmaStoreGlobal { row_major, address, stride } => {
            memory.counters().wmma_memory += 1;
            for i in 0..8 {
                let addresses = (0..WARP_LANES).map(|lane| {
                    let (row, column) = wmma::accumulator(lane, i);
                    address.wrapping_add(u64::from(element_at(row_major, row, column, stride)) * 4)
                });
                memory.counters().global_stores.count(addresses);
                memory.counters().global_stores.bytes += u64::from(4 * WARP_LANES);
            }
            for_each_accumulator(row_major, stride, |lane, i, element| {
                let value = f32::from_bits(inputs[lane as usize][i]);
                memory.store_global(lane, address.wrapping_add(u64::from(element) * 4), value)
            })?;
        }
        WarpWord::WmmaMma { .. } => {
            memory.counters().wmma_mma += 1;
            let halves = |part: usize, lane: u32, i: u32| {
                let register = inputs[lane as usize][part + (i / 2) as usize];
                f16::from_bits(unpack(register)[(i % 2) as usize]).to_f32()
            };
            let a = gather::<16, 16, _>(8, wmma::a, |lane, i| halves(0, lane, i));
            let b = gather::<16, 16, _>(8, wmma::b, |lane, i| halves(4, lane, i));
            product(&a, &b, inputs, 8, wmma::accumulator, 8, outputs);
        }
        WarpWord::MmaF16 | WarpWord::MmaBf16 => {
            memory.counters().mma += 1;
            let halves = |part: usize, lane: u32, i: u32| {
                let register = inputs[lane as usize][part + (i / 2) as usize];
                let pair = if word == WarpWord::MmaF16 {
                    f32_from_f16x2(register)
                } else {
                    f32_from_bf16x2(register)
                };
                pair[(i % 2) as usize]
            };
            let a = gather::<16, 16, _>(8, mma::a_f16, |lane, i| halves(0, lane, i));
            let b = gather::<16, 8, _>(4, mma::b_f16, |lane, i| halves(4, lane, i));
            product(&a, &b, inputs, 6, mma::c, 4, outputs);
        }
        WarpWord::MmaS8 => {
            memory.counters().mma += 1;
            let bytes = |part: usize, lane: u32, i: u32| {
                let register = inputs[lane as usize][part + (i / 4) as usize];
                i32::from(register.to_le_bytes()[(i % 4) as usize].cast_signed())
            };
            let a = gather::<16, 32, _>(16, mma::a_s8, |lane, i| bytes(0, lane, i));
            let b = gather::<32, 8, _>(8, mma::b_s8, |lane, i| bytes(4, lane, i));
            for lane in 0..WARP_LANES {
                for i in 0..4 {
                    let (row, column) = mma::c(lane, i);
                    let c = inputs[lane as usize][6 + i as usize].cast_signed();
                    let row = &a[row as usize];
                    let sum =
                        row.iter().zip(&b).fold(c, |sum, (a, b)| sum.wrapping_add(a * b[column as usize]));
                    outputs[lane as usize][i as usize] = sum.cast_unsigned();
                }
            }
        }
    }
    Ok(())
}

/// A matrix out of the lanes' fragments.
fn gather<const ROWS: usize, const COLUMNS: usize, T: Copy + Default>(
    elements: u32,
    map: impl Fn(u32, u32) -> (u32, u32),
    value: impl Fn(u32, u32) -> T,
) -> [[T; COLUMNS]; ROWS] {
    let mut matrix = [[T::default(); COLUMNS]; ROWS];
    for lane in 0..WARP_LANES {
        for i in 0..elements {
            let (row, column) = map(lane, i);
            matrix[row as usize][column as usize] = value(lane, i);
        }
    }
    matrix
}

/// `A · B + C`: each element begins as C's and takes the products in order of k, each added with
/// one rounding to f32. (A product of two f16, or of two bf16 that does not leave f32's range, is
/// exact in f32, so multiplying and adding is a fused multiply-add.)
fn product<const COLUMNS: usize>(
    a: &[[f32; 16]; 16],
    b: &[[f32; COLUMNS]; 16],
    inputs: &Of<Inputs>,
    c_from: usize,
    map: impl Fn(u32, u32) -> (u32, u32),
    elements: u32,
    outputs: &mut Of<Outputs>,
) {
    let mut sums = gather::<16, COLUMNS, _>(elements, &map, |lane, i| {
        f32::from_bits(inputs[lane as usize][c_from + i as usize])
    });
    for (sums, a) in sums.iter_mut().zip(a) {
        for (a, b) in a.iter().zip(b) {
            for (sum, b) in sums.iter_mut().zip(b) {
                *sum += a * b;
            }
        }
    }
    for lane in 0..WARP_LANES {
        for i in 0..elements {
            let (row, column) = map(lane, i);
            outputs[lane as usize][i as usize] = sums[row as usize][column as usize].to_bits();
        }
    }
}

fn load_matrices(
    matrices: usize,
    transposed: bool,
    inputs: &Of<Inputs>,
    outputs: &mut Of<Outputs>,
    memory: &mut impl WarpMemory,
) -> Result<(), Failed> {
    let rows = 8 * matrices as u32;
    let counters = memory.counters();
    counters.ldmatrix += 1;
    counters.shared_loads.count(16, (0..rows).map(|lane| (lane, inputs[lane as usize][0])));
    let mut bytes = [[0; 16]; WARP_LANES as usize];
    for lane in 0..rows {
        memory
            .load_shared(lane, inputs[lane as usize][0], &mut bytes[lane as usize], 16)
            .map_err(|problem| (lane, problem))?;
    }
    let map = if transposed { ldmatrix::transposed } else { ldmatrix::straight };
    for lane in 0..WARP_LANES {
        for register in 0..matrices as u32 {
            let [low, high] = [0, 1].map(|half| {
                let (pointing, nth) = map(lane, 2 * register + half);
                let row = &bytes[pointing as usize];
                u32::from(row[2 * nth as usize]) | u32::from(row[2 * nth as usize + 1]) << 8
            });
            outputs[lane as usize][register as usize] = high << 16 | low;
        }
    }
    Ok(())
}

/// Elements from the start of a tile to (row, column).
fn element_at(row_major: bool, row: u32, column: u32, stride: u32) -> u32 {
    let (major, minor) = if row_major { (row, column) } else { (column, row) };
    major.wrapping_mul(stride).wrapping_add(minor)
}

fn load_tile(
    tile: Tile,
    address: u32,
    stride: u32,
    outputs: &mut Of<Outputs>,
    memory: &mut impl WarpMemory,
) -> Result<(), Failed> {
    let Tile { operand, row_major } = tile;
    memory.counters().wmma_memory += 1;
    if operand == Operand::C {
        count_accumulator(row_major, address, stride, &mut memory.counters().shared_loads);
        return for_each_accumulator(row_major, stride, |lane, i, element| {
            let mut bytes = [0; 4];
            memory.load_shared(lane, address.wrapping_add(element * 4), &mut bytes, 4)?;
            outputs[lane as usize][i] = u32::from_le_bytes(bytes);
            Ok(())
        });
    }
    // Counted as the `ldmatrix` that gives the same registers: 8 elements at a time, along memory.
    let rows = (0..WARP_LANES).map(|lane| {
        let (major, minor) = (lane % 16, lane / 16 * 8);
        (lane, address.wrapping_add(major.wrapping_mul(stride).wrapping_add(minor) * 2))
    });
    memory.counters().shared_loads.count(16, rows);
    let map = if operand == Operand::A { wmma::a } else { wmma::b };
    for lane in 0..WARP_LANES {
        for i in 0..8 {
            let (row, column) = map(lane, i);
            let element = element_at(row_major, row, column, stride);
            let mut bytes = [0; 2];
            memory
                .load_shared(lane, address.wrapping_add(element.wrapping_mul(2)), &mut bytes, 2)
                .map_err(|problem| (lane, problem))?;
            let half = u32::from(u16::from_le_bytes(bytes));
            let register = &mut outputs[lane as usize][(i / 2) as usize];
            *register = if i % 2 == 0 { half } else { *register | half << 16 };
        }
        // The second copy: the maps are periodic in x[8].
        outputs[lane as usize].copy_within(0..4, 4);
    }
    Ok(())
}

/// Every element of an accumulator: lane, index in the lane, elements from the tile's start.
fn for_each_accumulator(
    row_major: bool,
    stride: u32,
    mut f: impl FnMut(u32, usize, u32) -> Result<(), Problem>,
) -> Result<(), Failed> {
    for lane in 0..WARP_LANES {
        for i in 0..8 {
            let (row, column) = wmma::accumulator(lane, i);
            f(lane, i as usize, element_at(row_major, row, column, stride))
                .map_err(|problem| (lane, problem))?;
        }
    }
    Ok(())
}

/// Counts an accumulator's way to or from shared memory: by rows, two neighbours at a time; by
/// columns, one by one.
fn count_accumulator(row_major: bool, address: u32, stride: u32, traffic: &mut SharedTraffic) {
    let step = if row_major { 2 } else { 1 };
    for i in (0..8).step_by(step) {
        let accesses = (0..WARP_LANES).map(|lane| {
            let (row, column) = wmma::accumulator(lane, i);
            (lane, address.wrapping_add(element_at(row_major, row, column, stride).wrapping_mul(4)))
        });
        traffic.count(4 * step as u32, accesses);
    }
}

/// The word's arguments are among those that the instruction takes.
pub(super) fn check_arguments(word: WarpWord, threads: u32) -> Result<(), Fault> {
    use std::format;

    let problem = match word {
        WarpWord::BarrierNamed { id, .. } | WarpWord::BarrierArrive { id, .. } if !(1..=15).contains(&id) => {
            format!("barrier {id}: named barriers are 1 to 15")
        }
        WarpWord::BarrierNamed { threads: t, .. } | WarpWord::BarrierArrive { threads: t, .. }
            if t == 0 || !t.is_multiple_of(WARP_LANES) || t > threads =>
        {
            format!("a barrier of {t} threads: it takes a multiple of 32 up to the block's {threads}")
        }
        WarpWord::TakeRegisters { registers } | WarpWord::GiveRegisters { registers }
            if !registers.is_multiple_of(8) || !(24..=256).contains(&registers) =>
        {
            format!("{registers} registers: a lane has a multiple of 8, 24 to 256")
        }
        WarpWord::WmmaLoad { tile, address, stride } => {
            let multiple = if tile.operand == Operand::C { 4 } else { 8 };
            return check_tile(u64::from(address), stride, multiple);
        }
        WarpWord::WmmaStoreShared { address, stride, .. } => {
            return check_tile(u64::from(address), stride, 4);
        }
        WarpWord::WmmaStoreGlobal { address, stride, .. } => return check_tile(address, stride, 4),
        _ => return Ok(()),
    };
    Err(Fault::Argument { problem })
}

fn check_tile(address: u64, stride: u32, multiple: u32) -> Result<(), Fault> {
    use std::format;

    if !address.is_multiple_of(32) {
        return Err(Fault::Argument {
            problem: format!("a tile at address {address:#x}: not a multiple of 32"),
        });
    }
    if !stride.is_multiple_of(multiple) {
        return Err(Fault::Argument {
            problem: format!("a stride of {stride}: not a multiple of {multiple}"),
        });
    }
    Ok(())
}
