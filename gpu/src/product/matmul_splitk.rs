//! `matmul_splitk_<format>`: a few rows of f16 times quantized weights on sm_90a, by the tensor cores' products of a
//! warp group, K split among the warp groups of a block: for steps of several sequences.
//!
//! `out[r][n] = Σ_k input[r][k] · weights[n][k] + bias[n]`; input `rows × k` in [slabs](super::slabs), weights `n × k`
//! in rows of planes ([`planes`](crate::quant::planes)), out `rows × n`, row major, f32. Up to three matrices of
//! weights with the same `k` and the same format share a launch: Q, K and V, or gate and up.
//!
//! # Who owns what
//!
//! ```text
//! grid: x = pass of 8, 32 or 64 rows of input, y = group of 64 outputs, the jobs' one after another
//!
//!                      K in slabs of 128
//!                      0       | 1       | 2       | 3       | 4       | ...
//!   64 outputs × rows  group 0 | group 1 | group 2 | group 3 | group 0 | ...       four warp groups
//! ```
//!
//! A warp group has its slabs of all outputs and rows of the block, and a sum for each of those. Its first
//! lane copies the input of its slabs.
//!
//! # A product whose left operand is unpacked where it is needed
//!
//! The product is `out = W · Xᵀ`: weights are the left operand of `wgmma`, which may come from registers, and rows of
//! input are its columns. Lane (g, t) of a warp loads a whole piece of 32 elements of outputs g and g + 8, piece t of
//! the slab's four: 16 bytes next to its neighbours', with one scale. Unpacked, they are its part of eight left
//! operands as they stand, because the input's slabs have their k in the same order:
//!
//! ```text
//! product i    lane t has elements 16 (i % 2) + 4 (i / 2) .. + 3 of piece t      i = 0 .. 7
//!              two of them are its k 2t, 2t + 1, two its k 2t + 8, 2t + 9
//! ```
//!
//! # Registers
//!
//! Half as many sums as rows, 32 of left operands, and the words of the next slab on their way.
//!
//! # Shared memory
//!
//! ```text
//! stages    a slab of the pass's rows each
//! behind the last slab, over these     4 warp groups × rows × 64 outputs f32: the groups' sums
//! full, empty [stages]
//! ```
//!
//! # Who waits for whom
//!
//! The launch begins while the one before it, which makes its input, still runs: weights of the first slabs are asked
//! for, then it waits. Stages go to and fro as [`Ring`] says, between a warp group and its lane that copies.
//! Two barriers at the end, around the groups' sums.
//!
//! # Numeric contract
//!
//! A weight is `scale · q - minimum`, fused, in f16, where scale and minimum are rounded to f16 first; what rounding
//! moves the scale by, times the middle of the format's quants, goes into the minimum before that, so that a piece's
//! errors about cancel. All three are
//! [`SCALE_UP`] times as large, so that scales of small weights are normal numbers; what is 1023 or more becomes
//! infinite. Sums are f32: a group's slabs in order of k, steps of 16 in the tensor core's order; then those of groups
//! 0 and 2, 1 and 3, both, and the bias. All of it depends on k alone: an output has the same bits whatever the other
//! rows, the passes and the grid are.

use core::marker::PhantomData;

use super::matvec::{Job, Named};
use super::panels::{STEP_BYTES, operand};
use super::slabs::{HALF_BYTES, SLAB_COLUMNS, Slabs};
use crate::fragment::{group, place, wgmma};
use crate::quant::Format;
use crate::quant::planes::{PIECE_ELEMENTS, Pieces, Planes, RUNS, Run, SIGNED, plane_value_bytes};
use crate::simt::{
    ColMajor, Contract, Count, Dim3, Expectations, Global, Hopper, Kernel, Launch, Occurrence, Ring, Simt,
    Unit, WARP_LANES, Work,
};

/// Warp groups of a block, which share K.
pub const GROUPS: u32 = 4;
/// Warps and lanes of one.
const GROUP_WARPS: u32 = 4;
const GROUP_LANES: u32 = GROUP_WARPS * WARP_LANES;
const THREADS: u32 = GROUPS * GROUP_LANES;
/// Outputs of a block: rows of a product; 16 of them are a warp's.
const OUTPUTS: u32 = 64;
const WARP_OUTPUTS: u32 = OUTPUTS / GROUP_WARPS;
/// Pieces of a slab: one for each place t.
const PLACES: u32 = SLAB_COLUMNS / PIECE_ELEMENTS;
/// Products of a slab.
const STEPS: usize = (SLAB_COLUMNS / 16) as usize;
/// Outputs of a lane.
const LANE_OUTPUTS: usize = 2;
/// Bytes of all stages.
const STAGES_BYTES: u32 = 192 << 10;
/// f32 from one row's sums of a group to the next one's.
const SUM_ROW: u32 = OUTPUTS + 4;

/// What weights are multiplied by.
pub const SCALE_UP: f32 = 64.0;

/// The arguments of a `matmul_splitk`; `REGISTERS` is half of a pass's rows, what a lane holds of a group's sums.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MatmulSplitK<B, const REGISTERS: usize> {
    /// What weights there are, and where their products go: at most [`Job::MOST_GROUPS`] groups of
    /// [`OUTPUTS`](Self::OUTPUTS) outputs.
    pub jobs: [Job; Job::MOST],
    /// [`Slabs`] of `rows` rows of `k` columns, aligned to 16 bytes.
    pub input: Global<u8>,
    /// Rows of input, at most 2^31 - 1.
    pub rows: u32,
    /// Columns of input and weights: a multiple of the format's block, not 0; rows have fewer than 2^31 bytes.
    pub k: u32,
    /// The weights' format.
    pub format: PhantomData<B>,
}

// SAFETY: addresses and numbers, which may be zero.
unsafe impl<B, const REGISTERS: usize> bytemuck::Zeroable for MatmulSplitK<B, REGISTERS> {}

impl<B, const REGISTERS: usize> MatmulSplitK<B, REGISTERS> {
    /// Outputs of a block.
    pub const OUTPUTS: u32 = OUTPUTS;
    /// Rows of a pass.
    pub const ROWS: u32 = 2 * REGISTERS as u32;
    /// Bytes of half of a slab of so many rows, and of a stage.
    const STAGE_HALF_BYTES: u32 = HALF_BYTES / super::slabs::SLAB_ROWS * Self::ROWS;
    const STAGE_BYTES: u32 = 2 * Self::STAGE_HALF_BYTES;
    /// Stages, as many for each group.
    const STAGES: u32 = {
        let fit = STAGES_BYTES / Self::STAGE_BYTES / GROUPS;
        GROUPS * if fit < 6 { fit } else { 6 }
    };
    /// Bytes before the barriers.
    const BARRIERS: u32 = {
        let (stages, sums) = (Self::STAGES * Self::STAGE_BYTES, GROUPS * Self::ROWS * SUM_ROW * 4);
        if stages > sums { stages } else { sums }
    };
}

impl<B: Pieces + Named, const REGISTERS: usize> Contract for MatmulSplitK<B, REGISTERS> {
    const NAME: &'static str = B::SPLITK[match Self::ROWS {
        8 => 0,
        32 => 1,
        64 => 2,
        _ => panic!("rows without a name"),
    }];
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[
            Occurrence::new("wgmma.mma_async", Count::Exactly(STEPS as u32)),
            // Two in the loop, and those of a group's first stages.
            Occurrence::new("cp.async.bulk.shared", Count::Exactly(2 * (1 + Self::STAGES / GROUPS))),
        ],
        registers: 128,
        local_memory: false,
    };
    const STARTS_EARLY: bool = true;

    fn launch(&self) -> Launch {
        Launch {
            grid: Dim3 { x: self.rows.div_ceil(Self::ROWS), y: Job::groups(&self.jobs, OUTPUTS), z: 1 },
            threads: THREADS,
            shared_bytes: Self::BARRIERS + Ring::barrier_bytes(Self::STAGES),
        }
    }

    fn work(&self, _: u32) -> Option<Work> {
        let input = u64::from(self.rows) * 2 * u64::from(self.k);
        let weights = plane_value_bytes(B::FORMAT, self.k);
        Some(Job::work(&self.jobs, [self.rows, self.k], weights, input, Unit::TensorF16))
    }
}

impl<S: Hopper, B: Pieces + Named, const REGISTERS: usize> Kernel<S> for MatmulSplitK<B, REGISTERS> {
    #[inline(always)]
    unsafe fn run(self, s: S) {
        let shared = s.shared::<u8>();
        let ring = Ring::new(shared, shared.at(Self::BARRIERS).cast(), Self::STAGES, Self::STAGE_BYTES);
        let (job, outputs) = Job::of_group(&self.jobs, s.block().y, OUTPUTS);
        s.let_next_begin();
        // SAFETY: nobody uses the ring before the block's barrier. Over its stages sums are stored when all groups are
        // done with them.
        unsafe {
            if s.thread() == 0 {
                ring.initialize(s, 1, GROUP_WARPS);
                s.fence_mbarrier_init();
            }
            s.barrier();
            let sums = self.multiply(s, job, outputs * OUTPUTS, ring);
            s.barrier();
            let own = s.shared::<f32>().row(s.warp() / GROUP_WARPS, Self::ROWS * SUM_ROW);
            for (i, &sum) in sums.iter().enumerate() {
                let (output, row) = wgmma::d(s.thread() % GROUP_LANES, i as u32);
                s.store_shared(own.row(row, SUM_ROW).at(output), sum);
            }
            s.barrier();
            self.store(s, job, outputs * OUTPUTS);
        }
    }
}

impl<B: Pieces + Named, const REGISTERS: usize> MatmulSplitK<B, REGISTERS> {
    /// Slabs of K.
    const fn slabs(&self) -> u32 {
        self.k.div_ceil(SLAB_COLUMNS)
    }

    /// Begins to copy the pass's rows of a slab into the ring's stage, if there is such a slab.
    ///
    /// # Safety
    /// The ring has been initialized, the launch before waited for, the stage given back; one lane does so.
    #[inline(always)]
    #[track_caller]
    unsafe fn copy<S: Hopper>(&self, s: S, ring: &Ring, slab: u32) {
        if slab < self.slabs() {
            let from = self.input.at(Slabs::new(self.k).slab(s.block().x * Self::ROWS, slab));
            let (to, full) = (ring.stage(), ring.full_barrier());
            // SAFETY: the caller's; rows are rounded up to those of the largest pass.
            unsafe {
                s.mbarrier_arrive_expect(full, Self::STAGE_BYTES);
                s.bulk_load(to, from, Self::STAGE_HALF_BYTES, full);
                let (to, from) = (to.at(Self::STAGE_HALF_BYTES), from.at(u64::from(HALF_BYTES)));
                s.bulk_load(to, from, Self::STAGE_HALF_BYTES, full);
            }
        }
    }

    /// The sums of the warp group's slabs.
    ///
    /// # Safety
    /// The ring has been initialized; all warps do so.
    #[inline(always)]
    #[track_caller]
    unsafe fn multiply<S: Hopper>(
        &self,
        s: S,
        job: Job,
        first_output: u32,
        mut ring: Ring,
    ) -> [f32; REGISTERS] {
        let (lane, warp) = (s.lane(), s.warp());
        let (own, slabs) = (warp / GROUP_WARPS, self.slabs());
        let blocks = self.k / B::FORMAT.block_elements() as u32;
        let row_bytes = Planes::of(B::FORMAT).offsets(blocks).row;
        let last = (self.k / PIECE_ELEMENTS).wrapping_sub(1);
        // An output past the end is the last one, and is not stored.
        let weights: [Global<u8>; LANE_OUTPUTS] = [0, 8].map(|down| {
            let output = first_output + warp % GROUP_WARPS * WARP_OUTPUTS + group(lane) + down;
            job.weights.row(output.min(job.n.wrapping_sub(1)), row_bytes)
        });
        // A piece past the end is the last one, and meets zeros of the input.
        let load = |slab: u32| -> [B::Words; LANE_OUTPUTS] {
            let piece = (slab * PLACES + place(lane)).min(last);
            // SAFETY: a piece of a row that there is.
            weights.map(|row| unsafe { B::load(s, row, blocks, piece) })
        };
        let copies = s.thread().is_multiple_of(GROUP_LANES);
        let mut words = load(own);
        s.wait_for_previous();
        ring.advance_by(own);
        let mut sums = [0.0_f32; REGISTERS];
        let mut slab = own;
        // SAFETY: a stage is filled in the beginning, and again when all warps of its group have given it back, which
        // they do when their products are done; operands stay as they are until then.
        unsafe {
            if copies {
                let mut ring = ring;
                for ahead in 0..Self::STAGES / GROUPS {
                    self.copy(s, &ring, own + ahead * GROUPS);
                    ring.advance_by(GROUPS);
                }
            }
            if slab < slabs {
                loop {
                    // A branch, the same for all lanes: without one `ptxas` moves the loads behind the unpacking.
                    let next = if slab + GROUPS < slabs { load(slab + GROUPS) } else { words };
                    let operands = operands::<B, S>(s, words, slab * PLACES + place(lane));
                    ring.wait_full(s);
                    let halves =
                        [0, 1].map(|half| operand(ring.stage().at(half * Self::STAGE_HALF_BYTES), 0));
                    s.wgmma_fence();
                    for step in 0..STEPS {
                        let b = halves[step / 4].advance(step as u32 % 4 * STEP_BYTES);
                        s.wgmma_f16_register_a::<ColMajor, REGISTERS>(&mut sums, operands[step], b, true);
                    }
                    s.wgmma_commit();
                    s.wgmma_wait::<0>();
                    if lane == 0 {
                        s.mbarrier_arrive(ring.empty_barrier());
                    }
                    if copies {
                        let mut given_back = ring;
                        given_back.advance_by(Self::STAGES);
                        given_back.wait_empty(s);
                        self.copy(s, &ring, slab + Self::STAGES);
                    }
                    words = next;
                    slab += GROUPS;
                    if slab >= slabs {
                        break;
                    }
                    ring.advance_by(GROUPS);
                }
            }
        }
        sums
    }

    /// Adds the groups' sums, and the bias, and stores the elements of out.
    ///
    /// # Safety
    /// The caller's of [`Kernel::run`]; the sums have been stored, and a barrier lies behind.
    #[inline(always)]
    #[track_caller]
    unsafe fn store<S: Simt>(&self, s: S, job: Job, first_output: u32) {
        let first_row = s.block().x * Self::ROWS;
        for first in (0..OUTPUTS * Self::ROWS).step_by(THREADS as usize) {
            let element = first + s.thread();
            let (row, of_block) = (element / OUTPUTS, element % OUTPUTS);
            let (output, row_of_all) = (first_output + of_block, first_row + row);
            if row_of_all >= self.rows || output >= job.n {
                continue;
            }
            let sums = s.shared::<f32>().row(row, SUM_ROW).at(of_block);
            // SAFETY: the caller's; a row and an output that there are; each element of out has one thread. A bias
            // has `n` values.
            unsafe {
                let of_group = |group: u32| s.load_shared(sums.row(group, Self::ROWS * SUM_ROW));
                let sum = (of_group(0) + of_group(2)) + (of_group(1) + of_group(3));
                let mut sum = sum * (1.0 / SCALE_UP);
                if job.bias.address() != 0 {
                    sum += s.load_global_constant(job.bias.at(u64::from(output)));
                }
                s.store_global(job.out.row(row_of_all, job.n).at(u64::from(output)), sum);
            }
        }
    }
}

/// A lane's part of a slab's left operands: of each row a piece.
#[inline(always)]
fn operands<B: Pieces, S: Simt>(s: S, words: [B::Words; LANE_OUTPUTS], piece: u32) -> [[u32; 4]; STEPS] {
    let mut operands = [[0; 4]; STEPS];
    for (half, words) in words.into_iter().enumerate() {
        let runs = B::unpack(s, words, piece);
        for (r, Run { quants, scale, min, .. }) in runs.into_iter().enumerate() {
            let (scale, min) = (SCALE_UP * scale, SCALE_UP * min);
            let pair = s.f16x2_from_f32(scale, scale);
            // The minimum is subtracted, and with it what the rounded scale moves a quant in the middle by.
            let [rounded, _] = s.f32_from_f16x2(pair);
            let min = s.fma(rounded - scale, const { middle(B::FORMAT) }, min);
            let (scale, min) = (pair, s.f16x2_from_f32(-min, -min));
            for (i, &four) in quants.iter().enumerate() {
                let [low, high] = integers::<B, S>(s, four)
                    .map(|q| if B::OWN_MIN { s.fma_f16x2(q, scale, min) } else { s.mul_f16x2(q, scale) });
                operands[RUNS * i + r][half] = low;
                operands[RUNS * i + r][2 + half] = high;
            }
        }
    }
    operands
}

/// The middle of the quants of a format whose blocks have minimums of their own; 0 for others.
const fn middle(format: Format) -> f32 {
    match format {
        Format::Q2_K => 1.5,
        Format::Q4_1 | Format::Q4_K => 7.5,
        Format::Q5_1 | Format::Q5_K => 15.5,
        _ => 0.0,
    }
}

/// Four quants without their offset as two pairs of f16: exact, for 1024 + q has q in its last bits.
#[inline(always)]
fn integers<B: Pieces, S: Simt>(s: S, quants: u32) -> [u32; 2] {
    let quants = if const { B::OFFSET == SIGNED } { quants ^ 0x8080_8080 } else { quants };
    // -(1024 + offset), of which f16 has all whole numbers.
    let offset = const { 0xe400_e400 | B::OFFSET | B::OFFSET << 16 };
    [0x4140, 0x4342].map(|selector| s.add_f16x2(s.permute_bytes(quants, 0x6464_6464, selector), offset))
}
