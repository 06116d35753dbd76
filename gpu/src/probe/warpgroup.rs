//! `probe_map_wgmma_n8`, `_n128`, `_n256`: the lane maps of `wgmma` m64nNk16, found by asking.
//!
//! As for `mma` (see [`ProbeMapF16`](super::ProbeMapF16)'s file), with a difference: `wgmma` takes B,
//! and A if one likes, from shared memory, whose layout is explicit. So rows, columns and k are those
//! of memory, and nothing rests on `ldmatrix` here.
//!
//! # Shared memory
//!
//! Both operands lie in core matrices, 8 rows of 16 contiguous bytes, without swizzle; a row is a row
//! of A or a column of B, and along it k is contiguous. Two core matrices side by side hold the 16 k
//! of eight rows, and eight rows follow on eight rows:
//!
//! ```text
//! element (row, k) of a tile: byte 256 (row / 8) + 128 (k / 8) + 16 (row % 8) + 2 (k % 8)
//!
//! byte    0 A: 64 rows
//!      2048 B: N columns
//! ```
//!
//! The descriptor's leading step, along k, is 128 bytes, and its stride, to the next eight rows, 256.
//!
//! # The questions
//!
//! Each block of one warpgroup asks one, with one product. "Memory" means the tile above.
//!
//! ```text
//! A                          B                          D before     so each place of D says
//! memory: m + 1 in row m     ones                       -            16 · (its row + 1)
//! registers: ones            memory: n + 1 in col n     -            16 · (its column + 1)
//! registers: 0               ones                       own number   its own number: D stays put
//! registers: 1 in one place  memory: k + 1 in row k     -            k + 1 in the place's row, else 0
//! ```
//!
//! Operands are integers up to 256, exact in f16; answers are at most 16,384, exact in f32.

use super::maps::single;
use crate::fragment::{Fragment, WARPGROUP_LANES, wgmma};
use crate::simt::{
    ColMajor, Contract, Count, Dim3, Expectations, Global, Hopper, Kernel, Launch, MatrixDescriptor,
    Occurrence, RowMajor, Swizzle,
};

/// Rows of A.
const ROWS: u32 = 64;
/// k of a product.
const DEPTH: u32 = 16;
/// Elements of a row of a core matrix.
const CHUNK: u32 = 8;
/// Bytes from one core matrix to the next along k.
const LEADING_BYTES: u32 = 128;
/// Bytes from eight rows to the next eight.
const STRIDE_BYTES: u32 = 256;
/// Bytes of A's tile: where B's begins.
const A_BYTES: u32 = ROWS * DEPTH * 2;
const _: () = assert!(STRIDE_BYTES * ROWS / 8 == A_BYTES && LEADING_BYTES * 2 == STRIDE_BYTES);

/// The arguments of `probe_map_wgmma_nN`; `REGISTERS` is N / 2, what a lane holds of D.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct ProbeMapWgmma<const REGISTERS: usize> {
    /// Answers to the first three questions, all of D: element `128 (REGISTERS q + i) + l` is place i
    /// of lane l in the answer to question q. 3 × `REGISTERS` × 128.
    pub d: Global<f32>,
    /// Answers about the places of A, the first four registers of D, which hold columns of every row:
    /// element `128 (4 p + i) + l` is place i of lane l in the answer for place p. 1024 × 4 × 128.
    pub a: Global<f32>,
}

impl<const REGISTERS: usize> ProbeMapWgmma<REGISTERS> {
    /// A.
    pub const A: Fragment = wgmma::A;
    /// The accumulators.
    pub const D: Fragment = match REGISTERS {
        4 => wgmma::D_N8,
        64 => wgmma::D_N128,
        128 => wgmma::D_N256,
        _ => panic!("no kernel of this width"),
    };
    /// The question for the rows of D.
    pub const ROWS: u32 = 0;
    /// The question for the columns of D.
    pub const COLUMNS: u32 = 1;
    /// The question whether accumulators stay where they are: place i of lane l holds
    /// `REGISTERS · l + i + 1`.
    pub const KEPT: u32 = 2;
    /// Questions about D; those about A follow.
    pub const ABOUT_D: u32 = 3;
    /// Registers of D that are stored for a place of A.
    pub const STORED: u32 = 4;
    /// Elements of `d`.
    pub const D_ANSWERS: u32 = Self::ABOUT_D * Self::D.elements * WARPGROUP_LANES;
    /// Elements of `a`.
    pub const A_ANSWERS: u32 = Self::PLACES * Self::STORED * WARPGROUP_LANES;

    /// Places of A.
    const PLACES: u32 = WARPGROUP_LANES * Self::A.elements;
    /// Both tiles.
    const SHARED_BYTES: u32 = A_BYTES + Self::D.columns * DEPTH * 2;

    /// Where element `i` of a lane's A is asked about, as a number of a place.
    #[must_use]
    pub const fn place(lane: u32, i: u32) -> u32 {
        lane * Self::A.elements + i
    }
}

impl<const REGISTERS: usize> Contract for ProbeMapWgmma<REGISTERS> {
    const NAME: &'static str = match REGISTERS {
        4 => "probe_map_wgmma_n8",
        64 => "probe_map_wgmma_n128",
        128 => "probe_map_wgmma_n256",
        _ => "probe_map_wgmma",
    };
    const EXPECTATIONS: Expectations = Expectations {
        // A from memory, and A from registers.
        instructions: &[Occurrence::new("wgmma.mma_async", Count::Exactly(2))],
        registers: 48 + REGISTERS as u32,
        local_memory: false,
    };

    fn launch(&self) -> Launch {
        let grid = Dim3::linear(Self::ABOUT_D + Self::PLACES);
        Launch { grid, threads: WARPGROUP_LANES, shared_bytes: Self::SHARED_BYTES }
    }
}

impl<S: Hopper, const REGISTERS: usize> Kernel<S> for ProbeMapWgmma<REGISTERS> {
    #[inline(always)]
    unsafe fn run(self, s: S) {
        let (question, lane) = (s.block().x, s.thread());
        let half = |n: u32| s.f16_from_f32(n as f32);
        let tile = s.shared::<u8>();
        let descriptor =
            |from: u32| MatrixDescriptor::new(tile.at(from), LEADING_BYTES, STRIDE_BYTES, Swizzle::None);
        let [rows, columns, kept] = [Self::ROWS, Self::COLUMNS, Self::KEPT].map(|asked| question == asked);

        // SAFETY: elements of the two tiles, each lane's own.
        unsafe {
            let mut i = lane;
            while i < (ROWS + Self::D.columns) * DEPTH {
                let (row, k) = (i / DEPTH, i % DEPTH);
                let byte = row / 8 * STRIDE_BYTES + k / CHUNK * LEADING_BYTES + row % 8 * 16 + k % CHUNK * 2;
                // B's rows follow on A's.
                let value = if row < ROWS {
                    row + 1
                } else if rows || kept {
                    1
                } else if columns {
                    row - ROWS + 1
                } else {
                    k + 1
                };
                s.store_shared(tile.at(byte).cast(), half(value));
                i += WARPGROUP_LANES;
            }
        }
        s.fence_proxy_async();
        s.barrier();

        let own = |i: usize| if kept { (REGISTERS as u32 * lane + i as u32 + 1) as f32 } else { 0.0 };
        let mut d: [f32; REGISTERS] = core::array::from_fn(own);
        let (a, b) = (descriptor(0), descriptor(A_BYTES));
        // SAFETY: both tiles lie there, were written before the fence and the barrier, and are not
        // written again.
        unsafe {
            if rows {
                s.wgmma_fence();
                s.wgmma_f16::<RowMajor, ColMajor, REGISTERS>(&mut d, a, b, false);
                s.wgmma_commit();
                s.wgmma_wait::<0>();
            } else {
                let one = u32::from(half(1).to_bits());
                let a = if columns {
                    [one << 16 | one; 4]
                } else {
                    single::<2, 4>(lane, question.wrapping_sub(Self::ABOUT_D), one)
                };
                s.wgmma_fence();
                s.wgmma_f16_register_a::<ColMajor, REGISTERS>(&mut d, a, b, kept);
                s.wgmma_commit();
                s.wgmma_wait::<0>();
            }
        }

        let lane = u64::from(lane);
        for (i, &value) in d.iter().enumerate() {
            // SAFETY: both are as long as they are documented.
            unsafe {
                if question < Self::ABOUT_D {
                    let row = question * REGISTERS as u32 + i as u32;
                    s.store_global(self.d.row(row, WARPGROUP_LANES).at(lane), value);
                } else if (i as u32) < Self::STORED {
                    let row = (question - Self::ABOUT_D) * Self::STORED + i as u32;
                    s.store_global(self.a.row(row, WARPGROUP_LANES).at(lane), value);
                }
            }
        }
    }
}
