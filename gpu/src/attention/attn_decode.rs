//! `attn_decode`: attention of one query row a sequence, the positions of the cache in chunks.
//!
//! The row's heads come as their products leave them; what [`RopeKv`] does to all of a launch, a block does
//! here to those that it needs. Then, for every row `r` and head `h`, with `P = softmax(scale · Q·Kᵀ)` over
//! the positions that the row sees, up to its own:
//!
//! ```text
//! out[r][h][d] = Σ_p P[p] · V[p][h / group][d]
//!
//! query          rows × heads × head size               f32, to be turned
//! key, value     rows × KV heads × head size            f32, to go into the cache at the row's position
//! keys, values   each row's own: see KvCache            f16
//! partial        rows × heads × chunks × head size      f32: each chunk's own sum of P · V
//! scales         rows × heads × chunks × 2              f32: its largest exponent m, its sum of P
//! ```
//!
//! This kernel computes the chunks, [`AttnCombine`](super::AttnCombine) puts them together.
//!
//! # Who owns what
//!
//! ```text
//! grid: x = KV head, y = row, z = chunk of 128 positions. 4 warps.
//!
//!  positions of a chunk, in sixteens:   0  1  2  3 | 4  5  6  7
//!                               warp:   0  1  2  3 | 0  1  2  3
//! ```
//!
//! A block has all query heads of its KV head (16 at most), so keys and values are read once for all of them.
//! They are the 16 rows of a tensor core's product; rows of heads that there are not are zeros, and cost
//! nothing that the memory does not hide. Blocks are begun chunk by chunk, so that those behind every row's
//! position, which have nothing to do, come last. A warp has sixteen positions at a time and all of O for them: an
//! online softmax of its own, nothing shared until the end. Heads of 256 have eight warps: two share
//! sixteen positions, compute the same S and P, and have half of O each.
//!
//! # The row's own heads
//!
//! ```text
//! heads of a block:   0 .. group - 1: queries     group: the new key, group + 1: the new value
//!             warp:   head % warps: at most 4 queries, and one of the two
//! ```
//!
//! They end up in shared memory, as f16. Only the block whose chunk has the row's own position turns key
//! and value; it also writes them to the cache, and takes them from shared memory: nobody reads in this
//! launch what it writes there.
//!
//! # Before the wait
//!
//! Keys and values of positions before the row's own, and where the row stands, are those of earlier steps: they do
//! not wait for this step's products. A block loads a warp's first sixteen of both, and asks for the second, while the
//! products still run.
//!
//! # No shared memory on the way
//!
//! Keys and values go from global memory into operands, 16 bytes a load, because a product does not
//! care in which order its k or its columns come (g = lane / 4, t = lane % 4, `mma.m16n8k16`):
//!
//! ```text
//! S = Q · Kᵀ     a lane loads d 8t .. 8t + 7 of position g: pairs 0 and 1 are its k 2t, 2t + 1, 2t + 8,
//!                2t + 9 of one product, pairs 2 and 3 those of the next. Of Q it has the same d.
//! O += P · V     a lane loads d 8g .. 8g + 7 of positions 2t, 2t + 1, 2t + 8, 2t + 9. Its column g of
//!                product j is d 8g + j; two positions are interleaved by `prmt`.
//!                So in O it has, of heads g and g + 8, d 16t .. 16t + 15 of every 64.
//! ```
//!
//! S leaves the first product as an accumulator whose registers are the left operand of the second,
//! as in `fa_prefill_f16kv`. Heads of 80 and 96 are 128 wide here, the rest of it zeros that nobody loads.
//!
//! # Shared memory
//!
//! ```text
//! byte      0   4 sixteens × 16 heads × (m, sum)
//!         512   4 or 8 warps × group heads × 72 f32: O, 64 columns of a warp at a time
//!  behind that  (group + 2) heads × f16: the row's own
//! ```
//!
//! A row of 64 has a gap of 4 in its middle and one behind it: then eight lanes that store four
//! columns each do so into 32 different banks. The row's own heads lie an odd number of 64 bytes apart, so
//! that the eight lanes of two heads load from different banks, too.
//!
//! # Who waits for whom
//!
//! One barrier between turning heads and using them. After its last position a warp writes m and sum, and
//! its O in lots of 64 columns. One barrier before the block's threads add a lot up, warp by warp; one before
//! the next lot overwrites it.
//!
//! # Shape contract
//!
//! Head size 64, 80, 96, 128 or 256; at most 16 heads to a KV head. Chunks are anchored at position 0. A
//! block whose chunk the row sees nothing of only waits and leaves, and so does one of a row that stands
//! nowhere ([`KvPlace`](super::KvPlace)), behind the last chunk or behind the angles: the grid is that of the
//! longest context, not of the row's. No two rows are of one sequence: what a row writes, no other sees.
//!
//! # Numeric contract
//!
//! Heads are turned as `rope_kv` turns them, to the bit. S is summed in f32 in the tensor core's order.
//! Powers are of 2, `ex2.approx`. P is f32: it goes into the product in two f16 parts, of which the first is P
//! rounded and the second what is left, 22 bits together; sums of P are of the f32. Which positions are summed in which order depends on the
//! positions alone: not on the grid, not on the rows beside it. For keys, queries and values in -1 to 1
//! the error of `out` is at most 1e-4.
//!
//! Source: FlashDecoding (Dao et al. 2023) for the chunks; the rest as `fa_prefill_f16kv`.

#![allow(clippy::needless_range_loop, reason = "loops over registers are plain, so that they are unrolled")]

use super::chunked::{CHUNK, Chunked};
use super::decode_task::{Keys, Task, Values};
use super::problem::distance;
use crate::fragment::{group, place};
use crate::position::Turning;
use crate::simt::{
    Contract, Count, Dim3, Expectations, Kernel, Launch, Occurrence, Shared, Simt, Unit, WARP_LANES, Work,
    product,
};

/// Sixteens of positions that a block works on at a time.
pub(super) const TILES: u32 = 4;
/// Positions that a warp has at a time: the depth of a product.
pub(super) const TILE: u32 = 16;
/// Rows of a product: the most heads to a KV head.
pub const MOST_GROUP: u32 = 16;
/// d of two products of S: 16 bytes a lane.
pub(super) const KEY_LOT: u32 = 32;
/// d of eight products of O: 16 bytes a lane.
pub(super) const VALUE_LOT: u32 = 64;
/// Lots of d of S that are loaded before the first is used: those of a head of 128.
pub(super) const KEY_LOTS_AT_ONCE: usize = 4;
/// Lots of O that a warp has at most.
pub(super) const VALUE_LOTS: usize = 2;

/// f32 of a lot's row of O in shared memory, gaps included.
const ROW: u32 = VALUE_LOT + 8;
/// f32 before the lots: m and sum of the heads, of each of the sixteens.
const SCALES: u32 = TILES * MOST_GROUP * 2;

const _: () = assert!(CHUNK == 2 * TILES * TILE && ROW % 32 == 8);

#[cfg(doc)]
use crate::position::RopeKv;

/// The arguments of `attn_decode`.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct AttnDecode<const HEAD_SIZE: u32> {
    /// What both kernels know.
    pub chunked: Chunked,
    /// The rows' heads: of as many, and of this size.
    pub turning: Turning,
}

impl<const HEAD_SIZE: u32> AttnDecode<HEAD_SIZE> {
    /// Lots of d in S.
    const KEY_LOTS: usize = HEAD_SIZE.div_ceil(KEY_LOT) as usize;
    /// Warps that share sixteen positions, each with its own part of O.
    pub(super) const PARTS: u32 = HEAD_SIZE.div_ceil(VALUE_LOT * VALUE_LOTS as u32);
    /// Lots of d in O that a warp has.
    pub(super) const VALUE_LOTS: usize = (HEAD_SIZE / Self::PARTS).div_ceil(VALUE_LOT) as usize;
    /// Warps of a block.
    pub(super) const WARPS: u32 = TILES * Self::PARTS;
    /// Lots of d in S that are loaded before the first is used.
    pub(super) const KEY_LOTS_OF_A_PASS: usize = {
        let lots = if Self::KEY_LOTS < KEY_LOTS_AT_ONCE { Self::KEY_LOTS } else { KEY_LOTS_AT_ONCE };
        assert!(Self::KEY_LOTS.is_multiple_of(lots), "passes are of one size");
        lots
    };
    /// Products of a warp's positions, twice sixteen: of S two of two halves a lot, of O eight in two parts.
    const PRODUCTS: u32 = 2 * (4 * Self::KEY_LOTS as u32 + 16 * Self::VALUE_LOTS as u32);
    /// Loads of a lane for them: of each sixteen two keys and four values a lot.
    const LOADS: u32 = 2 * (2 * Self::KEY_LOTS as u32 + 4 * Self::VALUE_LOTS as u32);
    /// f16 from one of the row's own heads to the next: an odd number of 32.
    pub(super) const HEAD_ROW: u32 = (HEAD_SIZE + 31) / 64 * 64 + 32;
    /// f32 before the row's own heads.
    pub(super) const fn before_heads(group: u32) -> u32 {
        SCALES + Self::WARPS * group * ROW
    }
}

impl<const HEAD_SIZE: u32> Contract for AttnDecode<HEAD_SIZE> {
    const NAME: &'static str = match HEAD_SIZE {
        64 => "attn_decode_hd64",
        80 => "attn_decode_hd80",
        96 => "attn_decode_hd96",
        128 => "attn_decode",
        256 => "attn_decode_hd256",
        _ => panic!("a head size without a kernel"),
    };
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[
            // All loops over registers are unrolled, and the first round stands apart from the second.
            Occurrence::new(
                "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
                Count::Exactly(Self::PRODUCTS),
            )
            .since(80),
            Occurrence::new("ld.global.v4.b32", Count::Exactly(Self::LOADS)),
            Occurrence::new("bar.sync", Count::Exactly(2 * Self::VALUE_LOTS as u32)),
        ],
        // Twelve warps on a multiprocessor; of eight in a block no more than eight.
        // Before sm_80, where there is no limit, four more.
        registers: if HEAD_SIZE == 256 { 224 } else { 172 },
        local_memory: false,
    };
    const REGISTER_LIMIT: Option<u32> = if HEAD_SIZE == 256 { None } else { Some(168) };
    const STARTS_EARLY: bool = true;
    const READS_SETTLED: bool = true;

    fn launch(&self) -> Launch {
        let Chunked { rows, chunks, kv_heads, group, .. } = self.chunked;
        Launch {
            grid: Dim3 { x: kv_heads, y: rows, z: chunks },
            threads: Self::WARPS * WARP_LANES,
            shared_bytes: Self::before_heads(group) * 4 + (group + 2) * Self::HEAD_ROW * 2,
        }
    }

    fn work(&self, position: u32) -> Option<Work> {
        let Chunked { rows, kv_heads, .. } = self.chunked;
        let heads = self.chunked.heads();
        let (first, end) = self.chunked.reach(position).unwrap_or((0, 0));
        let seen = end.saturating_sub(first);
        let queries = product([rows, heads, HEAD_SIZE]);
        // All that is seen but the row's own position, which is not read from the cache.
        let cached = 2 * product([rows, seen.saturating_sub(1), kv_heads, HEAD_SIZE]);
        let read = self.turning.bytes(rows) + 2 * cached + self.chunked.place_bytes();
        let new = 2 * product([rows, kv_heads, HEAD_SIZE]);
        let written = self.chunked.part_bytes(position, HEAD_SIZE) + 2 * new;
        let multiplications = 2 * queries.saturating_mul(u64::from(seen));
        Some(Work::moving(read, written).multiplying(multiplications, Unit::TensorF16))
    }
}

/// A warp's heads on their way through its positions, as far as they are in this lane: index 0 is head
/// g, index 1 is head g + 8.
struct Heads {
    /// The largest score so far, before scaling; -∞ before the first that is seen.
    max: [f32; 2],
    /// The sum of this lane's P so far, relative to the maximum.
    sum: [f32; 2],
    /// O so far, relative to the maximum: of each lot the accumulators of eight products.
    out: [[[f32; 4]; 8]; VALUE_LOTS],
}

impl<const HEAD_SIZE: u32> AttnDecode<HEAD_SIZE> {
    /// The first of a warp's lots of O.
    #[inline(always)]
    pub(super) const fn first_lot(warp: u32) -> u32 {
        warp % Self::PARTS * Self::VALUE_LOTS as u32
    }

    /// Adds the products of the queries with sixteen keys, of lots from `first` on, to the accumulators of
    /// the first eight and of the others. The new key is put among them where it belongs.
    ///
    /// # Safety
    /// The row's own heads are turned.
    #[inline(always)]
    #[track_caller]
    unsafe fn scores<S: Simt>(
        &self,
        s: S,
        task: Task,
        keys: &mut Keys,
        (base, first): (u32, usize),
        scores: &mut [[f32; 4]; 2],
    ) {
        let (g, t) = (group(s.lane()), place(s.lane()));
        let heads = self.chunked.group;
        for half in 0..2 {
            if base + 8 * half as u32 + g == task.own {
                for lot in 0..Self::KEY_LOTS_OF_A_PASS {
                    let d = (first + lot) as u32 * KEY_LOT + 8 * t;
                    // SAFETY: the caller's.
                    keys[lot][half] = unsafe { self.load_own(s, heads, d, true) };
                }
            }
        }
        for lot in 0..Self::KEY_LOTS_OF_A_PASS {
            let d = (first + lot) as u32 * KEY_LOT + 8 * t;
            // SAFETY: the caller's.
            let [low, high] = unsafe { [g, g + 8].map(|head| self.load_own(s, head, d, head < heads)) };
            let even = [low[0], high[0], low[1], high[1]];
            let odd = [low[2], high[2], low[3], high[3]];
            for half in 0..2 {
                let k = keys[lot][half];
                scores[half] = s.mma_m16n8k16_f16(even, [k[0], k[1]], scores[half]);
                scores[half] = s.mma_m16n8k16_f16(odd, [k[2], k[3]], scores[half]);
            }
        }
    }

    /// Bends scores to within the soft cap, if there is one, and makes -∞ of those that are not seen.
    #[inline(always)]
    fn cap_and_mask<S: Simt>(&self, s: S, task: Task, base: u32, scores: &mut [[f32; 4]; 2]) {
        let cap = self.chunked.scaling.cap;
        if cap != 0.0 {
            for half in scores.iter_mut() {
                for x in half {
                    // tanh x = 1 - 2 / (e^2x + 1)
                    *x = s.fma(-2.0, s.reciprocal_approx(s.exp2_approx(*x * cap) + 1.0), 1.0);
                }
            }
        }
        if base >= task.first && base + TILE <= task.end() {
            return;
        }
        let column = base + 2 * place(s.lane());
        for half in 0..2 {
            for i in 0..4 {
                let position = column + 8 * half as u32 + (i as u32 & 1);
                let seen = self.chunked.sight.reaches(distance(task.own, position));
                if !seen || position >= task.end() {
                    scores[half][i] = f32::NEG_INFINITY;
                }
            }
        }
    }

    /// Sixteen positions, from `base` on, of which the row sees some, with the keys of the first pass and the
    /// values.
    ///
    /// # Safety
    /// The task's memory is as it says; the row's own heads are turned.
    #[inline(always)]
    #[track_caller]
    unsafe fn step<S: Simt>(
        &self,
        s: S,
        task: Task,
        base: u32,
        (mut keys, mut values): (Keys, Values),
        heads: &mut Heads,
    ) {
        let mut scores = [[0.0; 4]; 2];
        for first in (0..Self::KEY_LOTS).step_by(KEY_LOTS_AT_ONCE) {
            // SAFETY: the caller's.
            unsafe {
                if first > 0 {
                    keys = self.keys(s, task, base, first);
                }
                self.scores(s, task, &mut keys, (base, first), &mut scores);
            }
        }
        self.cap_and_mask(s, task, base, &mut scores);

        let log2 = self.chunked.scaling.log2;
        let mut factors = [0.0; 2];
        for head in 0..2 {
            let mut max = heads.max[head];
            for half in &scores {
                max = s.max(max, s.max(half[2 * head], half[2 * head + 1]));
            }
            // The head's four lanes.
            max = s.max(max, s.shuffle_xor(max, 1));
            max = s.max(max, s.shuffle_xor(max, 2));
            // -∞ minus -∞ is NaN; any finite number makes P zero instead.
            let offset = if max == f32::NEG_INFINITY { 0.0 } else { -(max * log2) };
            factors[head] = s.exp2_approx(s.fma(heads.max[head], log2, offset));
            heads.max[head] = max;
            let mut sum = heads.sum[head] * factors[head];
            for half in &mut scores {
                for i in 0..2 {
                    let p = s.exp2_approx(s.fma(half[2 * head + i], log2, offset));
                    half[2 * head + i] = p;
                    sum += p;
                }
            }
            heads.sum[head] = sum;
        }
        for lot in &mut heads.out[..Self::VALUE_LOTS] {
            for x in lot {
                *x = [x[0] * factors[0], x[1] * factors[0], x[2] * factors[1], x[3] * factors[1]];
            }
        }
        // SAFETY: the caller's.
        unsafe {
            self.put_own_value(s, task, base, &mut values);
            Self::accumulate(s, &scores, &values, heads);
        }
    }

    /// The lane's position `i` of the four whose values it has.
    #[inline(always)]
    #[track_caller]
    pub(super) fn value_position<S: Simt>(s: S, base: u32, i: usize) -> u32 {
        base + 2 * place(s.lane()) + 8 * (i as u32 / 2) + i as u32 % 2
    }

    /// Puts the new value among sixteen from `base` on, if it belongs there.
    ///
    /// # Safety
    /// The row's own heads are turned.
    #[inline(always)]
    #[track_caller]
    unsafe fn put_own_value<S: Simt>(&self, s: S, task: Task, base: u32, values: &mut Values) {
        let first = Self::first_lot(s.warp());
        for i in 0..4 {
            if Self::value_position(s, base, i) == task.own {
                for lot in 0..Self::VALUE_LOTS {
                    let d = (first + lot as u32) * VALUE_LOT + 8 * group(s.lane());
                    // SAFETY: the caller's.
                    values[lot][i] = unsafe { self.load_own(s, self.chunked.group + 1, d, true) };
                }
            }
        }
    }

    /// O += P · V for sixteen positions.
    #[inline(always)]
    #[track_caller]
    fn accumulate<S: Simt>(s: S, p: &[[f32; 4]; 2], values: &Values, heads: &mut Heads) {
        let (rounded, rest) = operands(s, p);
        for (values, out) in values.iter().zip(&mut heads.out[..Self::VALUE_LOTS]) {
            for j in 0..8 {
                // The lower or the upper halves of two positions' pairs.
                let selector = if j % 2 == 0 { 0x5410 } else { 0x7632 };
                let v = [
                    s.permute_bytes(values[0][j / 2], values[1][j / 2], selector),
                    s.permute_bytes(values[2][j / 2], values[3][j / 2], selector),
                ];
                out[j] = s.mma_m16n8k16_f16(rest, v, out[j]);
                out[j] = s.mma_m16n8k16_f16(rounded, v, out[j]);
            }
        }
    }

    /// The warps' parts put together, and the chunk written.
    ///
    /// # Safety
    /// All threads of the block call this alike; shared memory before the row's own heads is not in use.
    #[inline(always)]
    #[track_caller]
    unsafe fn finish<S: Simt>(&self, s: S, heads: &Heads) {
        let (g, t, warp) = (group(s.lane()), place(s.lane()), s.warp());
        let tile = warp / Self::PARTS;
        let Chunked { group: heads_of_group, scaling, .. } = self.chunked;
        let scales = s.shared::<[f32; 2]>();
        let lots = s.shared::<f32>().at(SCALES);
        // SAFETY: a warp writes its own heads' parts; barriers lie between writing and reading, and
        // between reading and writing the next. Each element of the chunk has one thread.
        unsafe {
            for head in 0..2 {
                let sum = heads.sum[head] + s.shuffle_xor(heads.sum[head], 1);
                let sum = sum + s.shuffle_xor(sum, 2);
                // Those that share the tile have the same.
                if t == 0 && Self::first_lot(warp) == 0 {
                    let own = [heads.max[head] * scaling.log2, sum];
                    s.store_shared(scales.at(tile * MOST_GROUP + g + 8 * head as u32), own);
                }
            }
            for (lot, out) in heads.out[..Self::VALUE_LOTS].iter().enumerate() {
                if lot > 0 {
                    s.barrier();
                }
                for head in 0..2 {
                    let row = g + 8 * head as u32;
                    if row < heads_of_group {
                        let to = lots.row(warp * heads_of_group + row, ROW).at(lane_column(t));
                        for i in 0..4 {
                            // d 16t + 4i and on: the first eight are column 2t of products 0 to 7, the
                            // others column 2t + 1.
                            let (product, column) = (4 * i % 8, 2 * head + i / 2);
                            let four = [0, 1, 2, 3].map(|j| out[product + j][column]);
                            s.store_shared(to.at(4 * i as u32).cast(), four);
                        }
                    }
                }
                s.barrier();
                self.add_up(s, scales, lots, lot as u32);
            }
        }
    }

    /// Adds up what the sixteens have of each warp's lot `lot`, and writes it.
    ///
    /// # Safety
    /// The lots are in shared memory.
    #[inline(always)]
    #[track_caller]
    unsafe fn add_up<S: Simt>(&self, s: S, scales: Shared<[f32; 2]>, lots: Shared<f32>, lot: u32) {
        let Dim3 { x: kv_head, y: row, z: chunk } = s.block();
        let heads_of_group = self.chunked.group;
        let fours = VALUE_LOT / 4;
        let mut i = s.thread();
        while i < Self::PARTS * heads_of_group * fours {
            let (four, i_head) = (i % fours, i / fours);
            let (part, head) =
                if i_head < heads_of_group { (0, i_head) } else { (1, i_head - heads_of_group) };
            let from = lots.row(part * heads_of_group + head, ROW).at(lane_column(four / 4) + four % 4 * 4);
            let d = (Self::first_lot(part) + lot) * VALUE_LOT + 4 * four;
            // SAFETY: the caller's; a head of the group, columns of the lot.
            unsafe {
                let mut max = f32::NEG_INFINITY;
                for tile in 0..TILES {
                    let [m, _] = s.load_shared(scales.at(tile * MOST_GROUP + head));
                    max = s.max(max, m);
                }
                // Some position has been seen: no -∞ minus -∞.
                let (mut total, mut sum) = ([0.0; 4], 0.0);
                for tile in 0..TILES {
                    let [m, own] = s.load_shared(scales.at(tile * MOST_GROUP + head));
                    let factor = s.exp2_approx(m - max);
                    let columns: [f32; 4] =
                        s.load_shared(from.row(tile * Self::PARTS * heads_of_group, ROW).cast());
                    sum = s.fma(own, factor, sum);
                    for j in 0..4 {
                        total[j] = s.fma(columns[j], factor, total[j]);
                    }
                }
                let index = self.chunked.index(row, kv_head * heads_of_group + head, chunk);
                if d < HEAD_SIZE {
                    let to = self.chunked.partial.at(index * u64::from(HEAD_SIZE) + u64::from(d));
                    s.store_global(to.cast(), total);
                }
                if d == 0 {
                    s.store_global(self.chunked.scales.at(index), [max, sum]);
                }
            }
            i += Self::WARPS * WARP_LANES;
        }
    }
}

/// Where a lane's sixteen columns of a lot begin, behind the gap in the middle.
#[inline(always)]
const fn lane_column(t: u32) -> u32 {
    16 * t + t / 2 * 4
}

/// P as left operand, rounded to f16; and what the rounding takes, as another.
#[inline(always)]
#[track_caller]
fn operands<S: Simt>(s: S, p: &[[f32; 4]; 2]) -> ([u32; 4], [u32; 4]) {
    let (mut rounded, mut rest) = ([0; 4], [0; 4]);
    for i in 0..4 {
        let (a, b) = (p[i / 2][2 * (i % 2)], p[i / 2][2 * (i % 2) + 1]);
        rounded[i] = s.f16x2_from_f32(a, b);
        let [low, high] = s.f32_from_f16x2(rounded[i]);
        rest[i] = s.f16x2_from_f32(a - low, b - high);
    }
    (rounded, rest)
}

impl<S: Simt, const HEAD_SIZE: u32> Kernel<S> for AttnDecode<HEAD_SIZE> {
    #[inline(always)]
    unsafe fn run(self, s: S) {
        s.let_next_begin();
        // SAFETY: a row of the grid's; a KV head's part of the row and of its cache, of which positions before
        // its own were written by launches that are done, and its own is nobody else's; whether a block leaves, all of
        // its threads decide alike, after they have waited.
        unsafe {
            let turning = self.own_heads();
            let besides = self.additions(s, turning);
            let Some((task, position)) = self.task(s) else {
                s.wait_for_previous();
                return;
            };
            let mut base = s.warp() / Self::PARTS * TILE;
            // These two are the same for all lanes of the warp.
            while base + TILE <= task.first {
                base += TILES * TILE;
            }
            let (mut keys, mut values) = (self.keys(s, task, base, 0), self.values(s, task, base));
            self.ask_for(s, task, base + TILES * TILE);
            s.wait_for_previous();
            self.turn(s, task, turning, &besides, position);
            s.barrier();
            let mut heads =
                Heads { max: [f32::NEG_INFINITY; 2], sum: [0.0; 2], out: [[[0.0; 4]; 8]; VALUE_LOTS] };
            // At most twice. The first round's are under way since before the wait.
            let mut is_first = true;
            while base < task.end() {
                if !is_first {
                    (keys, values) = (self.keys(s, task, base, 0), self.values(s, task, base));
                }
                self.step(s, task, base, (keys, values), &mut heads);
                is_first = false;
                base += TILES * TILE;
            }
            self.finish(s, &heads);
        }
    }
}
