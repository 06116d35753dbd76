//! `fa_prefill_f16kv_shared`: attention of a prompt, S and P by way of shared memory.
//!
//! What [`fa_prefill_f16kv`](super::FaPrefillF16kv) was before its softmax went into the registers,
//! and what that is measured against: the same products of the same rows, on twice as many warps,
//! in tiles of 64 positions. Formula, arguments and layouts are the same:
//!
//! ```text
//! out[q][h][d] = Σ_p P[q][p] · V[p][h / group][d],   P = softmax(scale · Q·Kᵀ)
//! ```
//!
//! # Who owns what
//!
//! A block computes 64 rows of one head with 8 warps. Two warps share 16 rows: each has half of
//! the tile's columns of S, and then half of the columns of O. So no warp has a whole row of S, and
//! shared memory is the only way from the warp that computes a score to all that must know of it.
//! For softmax the rows are dealt out anew: row r is that of warp r % 8, every lane with one column
//! (tiles of 32) or two (tiles of 64).
//!
//! ```text
//!               S: 64 positions          softmax, row by row           O: head size 128
//!             +---------+---------+     +-------------------+        +---------+---------+
//! rows  0..16 | warp 0  | warp 1  |     | row 0 of warp 0   |        | warp 0  | warp 1  |
//!      16..32 | warp 2  | warp 3  | --> | row 1 of warp 1   | -----> | warp 2  | warp 3  |
//!      32..48 | warp 4  | warp 5  |  S  | ...               |   P    | warp 4  | warp 5  |
//!      48..64 | warp 6  | warp 7  |     | row 8 of warp 0   | factor | warp 6  | warp 7  |
//!             +---------+---------+     +-------------------+        +---------+---------+
//! ```
//!
//! A row's maximum and its sum each take five shuffles over the whole warp. Its m, its l and the
//! factor by which O shrinks stay in shared memory: the next tile's warp of S is another one than
//! the row's, and so are the two that have its O.
//!
//! # Registers of a lane, at head size 128 and tiles of 64
//!
//! ```text
//! O     4 accumulators of 8 f32     32
//! S     2 accumulators of 8 f32     16     dies when it is stored
//! Q, K, V, P operands on their way  12
//! softmax of one row                ~8
//! addresses, counters               ~20
//! ```
//!
//! Not all at once: S is stored before softmax begins, and softmax is done before P is loaded.
//!
//! # Shared memory
//!
//! Head size 128, tiles of 64, no padding:
//!
//! ```text
//! byte      0   Q   64 rows of (128 + 8) f16
//!       17408   K   64 rows
//!       34816   V   64 rows
//!       52224   S   64 rows of 64 f32      P   64 rows of 64 f16, each where its row of S was
//!       68608   m, l, factor: 64 f32 each
//!       69376   end
//!           0   O   64 rows of 128 f32 = 32768 bytes, after the last tile, if rows are missing
//! ```
//!
//! P lies over S in place, which needs no room and no barrier: row r of S is read by one warp,
//! the one that writes row r of P. All its lanes have read the row when they meet (`warp_sync`), and
//! only then do they write. P takes half of the row's bytes. In the other half, after it, blocks
//! that need it keep what rounding took from P.
//!
//! S and P move 56 KiB a tile: S is written (64 · 64 · 4 = 16 KiB) and read (16 KiB), P is written
//! (8 KiB) and read by both warps of its rows (16 KiB).
//!
//! # Banks
//!
//! Without padding a row of S is a multiple of 32 words: the eight rows of an accumulator's store
//! meet in the same eight banks, and what two passes could do takes eight. The eight rows of P that
//! an operand's load reads at a time lie in the same four banks, and take eight passes, not one.
//!
//! A store wants rows 8 banks apart: a pass serves the lanes of four rows, eight words of each. A
//! load wants rows 4 banks apart: it takes four words of eight rows. One distance cannot be both, so
//! rows are 8 banks apart, and P begins 16 bytes later in every other four rows:
//!
//! ```text
//! bank of P's first word, padding 8     row 0   1   2   3   4   5   6   7
//!                                           0   8  16  24   4  12  20  28
//! ```
//!
//! Rows of S are read, and rows of P written, along the row: never a conflict.
//!
//! # Who waits for whom
//!
//! Four barriers a tile, each with its reason where it stands; without any of them there is a race,
//! which the tests show by removing each.
//!
//! ```text
//! copies of K and V
//! barrier   K and V are there
//! S = Q · Kᵀ, stored
//! barrier   S is there
//! softmax: S to P
//! barrier   P and the factors are there
//! O = O · factor + P · V
//! barrier   K, V, S and P are free
//! ```
//!
//! # Shape contract
//!
//! As for `fa_prefill_f16kv`; tiles of 32 or 64 positions. Of the head sizes 64, 80, 96, 128 and 256,
//! shared memory allows tiles of 64 up to 96 on sm_75, which grants a block 64 KiB, and up to 128 on
//! sm_86, sm_89 and sm_120, which grant 99 KiB. With padded tiles of 32, 128 stays below the 48 KiB
//! that need no asking, and 256 goes wherever 99 KiB are granted.
//!
//! # Numeric contract
//!
//! As for `fa_prefill_f16kv`, with its own order of sums: the sum of a row is taken over the whole
//! tile before it is added to l.
//!
//! Source: r48, "register-resident softmax", the kernel before it; padding and tiles of 32 are r46's.

use half::f16;

use super::fa_prefill_f16kv::{FRAGMENT, FaPrefillF16kv, Place, capped, row_of, store_rows};
use super::geometry_shared::SharedGeometry;
use super::problem::{Attention, distance};
use crate::fragment::{ldmatrix, wmma};
use crate::simt::{
    Accumulator, ColMajor, Contract, Count, Expectations, Kernel, Launch, MatrixA, MatrixB, Occurrence,
    RowMajor, Shared, Simt, Unit, WARP_LANES, Work,
};

/// Accumulators of O for the largest head size, 256.
pub(super) const MOST_OUT: usize = 8;
/// Accumulators of S for the widest tile, 64.
const MOST_SCORES: usize = 2;

const TILE_Q: u32 = SharedGeometry::TILE_Q;
const WARPS: u32 = SharedGeometry::WARPS;
const THREADS: u32 = SharedGeometry::THREADS;

/// Which of a row's statistics: the largest score so far, before scaling.
const MAX: u32 = 0;
/// The sum of P so far, relative to the maximum.
const SUM: u32 = 1;
/// What this tile's new maximum makes of O.
const FACTOR: u32 = 2;

/// The kernel: an [`Attention`] problem and, as parameters, its [`SharedGeometry`].
///
/// At most 65,535 tiles of query rows: a grid's second axis has no more blocks.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct FaPrefillF16kvShared<const HEAD_SIZE: u32, const TILE_KV: u32 = 64, const PADDING: u32 = 0>(
    pub Attention,
);

impl<const HEAD_SIZE: u32, const TILE_KV: u32, const PADDING: u32>
    FaPrefillF16kvShared<HEAD_SIZE, TILE_KV, PADDING>
{
    /// The tiles.
    pub const GEOMETRY: SharedGeometry = {
        let geometry = SharedGeometry { head_size: HEAD_SIZE, tile_kv: TILE_KV, padding: PADDING };
        assert!(geometry.is_valid());
        geometry
    };
    /// Columns of a row of S that a lane has in softmax.
    const COLUMNS: u32 = TILE_KV / WARP_LANES;
    /// `wmma.mma` in the text for each of the products, P · V in one part.
    const PRODUCTS: (u32, u32) = {
        let g = Self::GEOMETRY;
        (HEAD_SIZE / FRAGMENT * g.score_fragments() as u32, TILE_KV / FRAGMENT * g.out_fragments() as u32)
    };
}

/// 69,376 bytes and 56 KiB a tile, as r48 counts them.
const _: () = {
    let old = FaPrefillF16kvShared::<128>::GEOMETRY;
    assert!(old.staging_bytes() == 52_224 && old.score_bytes() == 16_384 && old.statistics_bytes() == 768);
    assert!(old.shared_bytes() == 69_376 && THREADS == 256 && old.round_trip_bytes() == 57_344);
    // What sm_75 grants, what sm_86 grants, and what needs no asking.
    assert!(FaPrefillF16kvShared::<96>::GEOMETRY.shared_bytes() <= 64 << 10);
    assert!(FaPrefillF16kvShared::<256, 32, 8>::GEOMETRY.shared_bytes() <= 99 << 10);
    assert!(FaPrefillF16kvShared::<128, 32, 8>::GEOMETRY.shared_bytes() <= 48 << 10);
};

impl<const HEAD_SIZE: u32, const TILE_KV: u32, const PADDING: u32> Contract
    for FaPrefillF16kvShared<HEAD_SIZE, TILE_KV, PADDING>
{
    const NAME: &'static str = match (HEAD_SIZE, TILE_KV, PADDING) {
        (64, 64, 0) => "fa_prefill_f16kv_shared_hd64",
        (80, 64, 0) => "fa_prefill_f16kv_shared_hd80",
        (96, 64, 0) => "fa_prefill_f16kv_shared_hd96",
        (128, 64, 0) => "fa_prefill_f16kv_shared",
        (128, 64, 8) => "fa_prefill_f16kv_shared_padded",
        (128, 32, 8) => "fa_prefill_f16kv_shared_tkv32_padded",
        (256, 32, 8) => "fa_prefill_f16kv_shared_hd256",
        _ => panic!("a geometry without a name"),
    };
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[
            Occurrence::new("wmma.mma.sync.aligned.row.col", Count::Exactly(Self::PRODUCTS.0)),
            // P · V in each of two parts.
            Occurrence::new("wmma.mma.sync.aligned.row.row", Count::Exactly(2 * Self::PRODUCTS.1)),
            // Maximum and sum of each of a warp's rows.
            Occurrence::new("shfl.sync.bfly", Count::Exactly(10 * TILE_Q / WARPS)),
            Occurrence::new(
                "bar.sync",
                Count::Exactly(SharedGeometry::BARRIERS + SharedGeometry::TAIL_BARRIERS),
            ),
            Occurrence::new("cp.async.wait_group", Count::Exactly(1)).since(80),
        ],
        registers: if HEAD_SIZE == 256 { 112 } else { 80 },
        local_memory: false,
    };

    fn launch(&self) -> Launch {
        Launch { grid: self.0.grid(TILE_Q), threads: THREADS, shared_bytes: Self::GEOMETRY.shared_bytes() }
    }

    fn work(&self, _: u32) -> Option<Work> {
        Some(self.0.work(HEAD_SIZE, Unit::TensorF16))
    }
}

/// A warp's O on its way through the keys, as far as it is in this lane, relative to the maximum.
type Out = [Accumulator; MOST_OUT];

impl<S: Simt, const HEAD_SIZE: u32, const TILE_KV: u32, const PADDING: u32> Kernel<S>
    for FaPrefillF16kvShared<HEAD_SIZE, TILE_KV, PADDING>
{
    #[inline(always)]
    unsafe fn run(self, s: S) {
        let place = self.same().place(s);
        let mut out = [[0.0; 8]; MOST_OUT];
        let (first, end) = place.tiles;
        // SAFETY: what is staged lies inside its part, and comes from inside its matrix or is zero.
        // Each barrier's reason stands at it.
        unsafe {
            if first < end {
                self.stage_queries(s, place);
                self.begin(s);
                self.sweep(s, place, &mut out);
                self.finish(s, &mut out);
            }
            self.store(s, place, &out);
        }
    }
}

impl<const HEAD_SIZE: u32, const TILE_KV: u32, const PADDING: u32>
    FaPrefillF16kvShared<HEAD_SIZE, TILE_KV, PADDING>
{
    /// The kernel with the same rows, heads and tiles, which says where they lie.
    #[inline(always)]
    const fn same(&self) -> FaPrefillF16kv<HEAD_SIZE, TILE_Q, TILE_KV> {
        FaPrefillF16kv(self.0)
    }

    /// All tiles of keys, one after the other.
    ///
    /// # Safety
    /// All threads of the block call this alike, with the queries' copies begun and the statistics
    /// written.
    #[inline(always)]
    #[track_caller]
    unsafe fn sweep<S: Simt>(&self, s: S, place: Place, out: &mut Out) {
        let (first, end) = place.tiles;
        for tile in first..end {
            // SAFETY: a tile is staged after the last barrier of the one before, which all warps
            // reach when they are done with it; the other three stand between those who write S, P
            // and the statistics and those who read them.
            unsafe {
                self.stage_keys_and_values(s, place, tile);
                s.copy_async_commit();
                s.copy_async_wait::<0>();
                // Keys, values and, the first time, queries and statistics of all threads are there.
                s.barrier();
                self.scores(s);
                // A row of S is there as a whole: two warps have computed it, and a third reads it.
                s.barrier();
                self.softmax(s, place, tile);
                // P and the factors are there: eight warps have written the rows that one reads now.
                s.barrier();
                self.accumulate(s, place, out);
                // No warp still reads the values, which are overwritten next, by the next tile or by O.
                s.barrier();
            }
        }
    }

    /// S of a warp, its 16 rows of Q times its half of the keys, into shared memory.
    ///
    /// # Safety
    /// Queries and keys are in shared memory, visible, and stay; nobody uses S.
    #[inline(always)]
    #[track_caller]
    unsafe fn scores<S: Simt>(&self, s: S) {
        let g = Self::GEOMETRY;
        let (tile, lane) = (s.shared(), s.lane());
        let first_row = Self::first_row(s);
        let first_column = s.warp() % SharedGeometry::COLUMN_WARPS * (TILE_KV / SharedGeometry::COLUMN_WARPS);
        let queries = MatrixA::<RowMajor>::lane_address(lane, tile.row(first_row, g.stride()), g.stride());
        // (d, position) where a position's row is contiguous: column major.
        let keys = tile.at(g.keys()).row(first_column, g.stride());
        let keys = MatrixB::<ColMajor>::lane_address(lane, keys, g.stride());
        let mut scores = [[0.0; 8]; MOST_SCORES];
        let to = s.shared().at(g.scores()).row(first_row, g.score_stride()).at(first_column);
        // SAFETY: the caller's; fragments lie inside their part, and each warp's are its own.
        unsafe {
            for d in (0..HEAD_SIZE).step_by(FRAGMENT as usize) {
                let q = MatrixA::<RowMajor>::ldmatrix(s, queries.at(d));
                for (i, scores) in scores[..g.score_fragments()].iter_mut().enumerate() {
                    let position = i as u32 * FRAGMENT;
                    let k = MatrixB::<ColMajor>::ldmatrix(s, keys.row(position, g.stride()).at(d));
                    *scores = s.wmma_mma(q, k, *scores);
                }
            }
            for (i, &scores) in scores[..g.score_fragments()].iter().enumerate() {
                s.wmma_store_shared::<RowMajor>(to.at(i as u32 * FRAGMENT), g.score_stride(), scores);
            }
        }
    }

    /// A warp's rows of S become rows of P, in place.
    ///
    /// # Safety
    /// S is in shared memory, visible, and nobody else uses it or the statistics.
    #[inline(always)]
    #[track_caller]
    unsafe fn softmax<S: Simt>(&self, s: S, place: Place, tile: u32) {
        let (g, problem) = (Self::GEOMETRY, &self.0);
        let log2 = problem.scaling.log2;
        let column = s.lane() * Self::COLUMNS;
        let first_column = tile * TILE_KV + column;
        for step in 0..TILE_Q / WARPS {
            let row = s.warp() + step * WARPS;
            let position = problem.start + place.first_row + row;
            // SAFETY: the row is this warp's alone, and so are its statistics.
            let (scores, max_before, sum_before) = unsafe {
                (
                    self.load_scores(s, row, column),
                    s.load_shared(Self::statistic(s, MAX, row)),
                    s.load_shared(Self::statistic(s, SUM, row)),
                )
            };
            // Every lane has its scores, over which P is laid, and what was known of the row.
            s.warp_sync();

            let mut scores = scores;
            for (i, x) in (0..).zip(&mut scores) {
                if problem.scaling.cap != 0.0 {
                    *x = capped(s, *x, problem.scaling.cap);
                }
                let seen = problem.sight.reaches(distance(position, first_column + i));
                if i >= Self::COLUMNS || !seen || first_column + i >= problem.positions {
                    *x = f32::NEG_INFINITY;
                }
            }
            let max = s.max(max_before, s.warp_max(s.max(scores[0], scores[1])));
            // As long as a row has seen nothing, everything is -∞, and -∞ minus -∞ is NaN. Any
            // finite number in place of the maximum makes P zero, which is what it is.
            let finite = if max == f32::NEG_INFINITY { 0.0 } else { max };
            let offset = -(finite * log2);
            // 1, exactly, if the maximum stays; 0 in the first tile, where it was -∞.
            let factor = s.exp2_approx((max_before - finite) * log2);
            let weights = scores.map(|x| s.exp2_approx(s.fma(x, log2, offset)));
            let sum = s.fma(sum_before, factor, s.warp_sum(weights[0] + weights[1]));

            let to = s.shared::<f16>().at(2 * g.scores()).row(row, 2 * g.score_stride());
            let to = to.at(g.weight_column(row) + column);
            // SAFETY: as above; P and its rest take no more than the row of S and its padding.
            unsafe {
                self.store_weights(s, to, weights);
                if place.few {
                    let few = self.same().sees_few(position);
                    let rest = |x| if few { x - s.f32_from_f16(s.f16_from_f32(x)) } else { 0.0 };
                    self.store_weights(s, to.at(TILE_KV), weights.map(rest));
                }
                if s.lane() == 0 {
                    s.store_shared(Self::statistic(s, MAX, row), max);
                    s.store_shared(Self::statistic(s, SUM, row), sum);
                    s.store_shared(Self::statistic(s, FACTOR, row), factor);
                }
            }
        }
    }

    /// O = O · factor + P · V. In blocks with rows that see few positions, what rounding took from
    /// these rows' P is multiplied besides.
    ///
    /// # Safety
    /// Factors, P and values are in shared memory, visible, and stay.
    #[inline(always)]
    #[track_caller]
    unsafe fn accumulate<S: Simt>(&self, s: S, place: Place, out: &mut Out) {
        // SAFETY: the caller's.
        unsafe {
            let factors = self.of_rows(s, FACTOR);
            for fragment in &mut out[..Self::GEOMETRY.out_fragments()] {
                for i in 0..8 {
                    fragment[i] *= factors[row_of(i)];
                }
            }
            if place.few {
                self.add_product(s, TILE_KV, out);
            }
            self.add_product(s, 0, out);
        }
    }

    /// O += P · V, where P begins so many f16 after its place in the row.
    ///
    /// # Safety
    /// As [`accumulate`](Self::accumulate).
    #[inline(always)]
    #[track_caller]
    unsafe fn add_product<S: Simt>(&self, s: S, part: u32, out: &mut Out) {
        let g = Self::GEOMETRY;
        let (tile, lane) = (s.shared::<f16>(), s.lane());
        let first_row = Self::first_row(s);
        let weights = tile.at(2 * g.scores()).row(first_row, 2 * g.score_stride());
        let weights = MatrixA::<RowMajor>::lane_address(lane, weights, 2 * g.score_stride());
        let (row, _) = ldmatrix::a_address::<RowMajor>(lane);
        let weights = weights.at(g.weight_column(row) + part);
        let first_d = Self::first_out(s);
        // (position, d) where a position's row is contiguous: row major.
        let values = MatrixB::<RowMajor>::lane_address(lane, tile.at(g.values()).at(first_d), g.stride());
        for position in (0..TILE_KV).step_by(FRAGMENT as usize) {
            // SAFETY: the caller's; fragments lie inside their part.
            unsafe {
                let p = MatrixA::<RowMajor>::ldmatrix(s, weights.at(position));
                for (i, out) in out[..g.out_fragments()].iter_mut().enumerate() {
                    let d = i as u32 * FRAGMENT;
                    if first_d + d < HEAD_SIZE {
                        let v = MatrixB::<RowMajor>::ldmatrix(s, values.row(position, g.stride()).at(d));
                        *out = s.wmma_mma(p, v, *out);
                    }
                }
            }
        }
    }

    /// O = O / l.
    ///
    /// # Safety
    /// The sums are in shared memory, visible, and stay.
    #[inline(always)]
    #[track_caller]
    unsafe fn finish<S: Simt>(&self, s: S, out: &mut Out) {
        // SAFETY: the caller's.
        let sums = unsafe { self.of_rows(s, SUM) };
        // A row that saw nothing has O = 0, and stays so.
        let inverse = sums.map(|sum| if sum > 0.0 { s.reciprocal_approx(sum) } else { 0.0 });
        for fragment in &mut out[..Self::GEOMETRY.out_fragments()] {
            for i in 0..8 {
                fragment[i] *= inverse[row_of(i)];
            }
        }
    }

    /// O to memory: from the accumulators, or, if the tile has rows that do not exist, by way of
    /// shared memory, from where *all* threads copy the rows that do.
    ///
    /// # Safety
    /// No copy is on its way, and nobody uses queries, keys or values; all threads of the block
    /// call this alike.
    #[inline(always)]
    #[track_caller]
    unsafe fn store<S: Simt>(&self, s: S, place: Place, out: &Out) {
        let g = Self::GEOMETRY;
        let stride = self.0.heads().wrapping_mul(HEAD_SIZE);
        let to = self.0.out.row(place.first_row, stride).at(u64::from(s.block().x * HEAD_SIZE));
        let present = (self.0.tokens - place.first_row).min(TILE_Q);
        let (row, first_d) = (Self::first_row(s), Self::first_out(s));
        let staged = s.shared::<f32>();
        for (i, &fragment) in out[..g.out_fragments()].iter().enumerate() {
            let d = first_d + i as u32 * FRAGMENT;
            if d < HEAD_SIZE {
                // SAFETY: a tile's rows that exist are rows of out; each warp has its own rows and
                // columns, of out and of what lies over the queries, keys and values.
                unsafe {
                    if present == TILE_Q {
                        let tile = to.row(row, stride).at(u64::from(d));
                        s.wmma_store_global::<RowMajor>(tile, stride, fragment);
                    } else {
                        let tile = staged.row(row, HEAD_SIZE).at(d);
                        s.wmma_store_shared::<RowMajor>(tile, HEAD_SIZE, fragment);
                    }
                }
            }
        }
        if present < TILE_Q {
            // O of all warps is there.
            s.barrier();
            // SAFETY: the barrier; as many rows exist.
            unsafe { store_rows::<HEAD_SIZE, S>(s, staged, to, stride, present, THREADS) };
        }
    }

    /// Writes the statistics of rows that have seen nothing.
    ///
    /// # Safety
    /// Nobody uses the statistics before a barrier.
    #[inline(always)]
    #[track_caller]
    unsafe fn begin<S: Simt>(&self, s: S) {
        let row = s.thread();
        if row < TILE_Q {
            // SAFETY: the caller's; each row has its thread.
            unsafe {
                s.store_shared(Self::statistic(s, MAX, row), f32::NEG_INFINITY);
                s.store_shared(Self::statistic(s, SUM, row), 0.0);
            }
        }
    }

    /// Begins to copy the block's queries. They join the group of the first keys.
    ///
    /// # Safety
    /// Nobody uses the queries' part of shared memory until the copies have been waited for.
    #[inline(always)]
    #[track_caller]
    unsafe fn stage_queries<S: Simt>(&self, s: S, place: Place) {
        let source = self.same().queried(s.block().x, place);
        // SAFETY: the caller's.
        unsafe {
            FaPrefillF16kv::<HEAD_SIZE, TILE_Q, TILE_KV>::stage_rows(
                s,
                s.shared(),
                source,
                TILE_Q,
                0..THREADS,
            )
        };
    }

    /// Begins to copy a tile of keys and values.
    ///
    /// # Safety
    /// As [`stage_queries`](Self::stage_queries).
    #[inline(always)]
    #[track_caller]
    unsafe fn stage_keys_and_values<S: Simt>(&self, s: S, place: Place, tile: u32) {
        let g = Self::GEOMETRY;
        for (cache, to) in [(self.0.keys, g.keys()), (self.0.values, g.values())] {
            let source = self.same().cached(cache, place, tile);
            // SAFETY: the caller's.
            unsafe {
                FaPrefillF16kv::<HEAD_SIZE, TILE_Q, TILE_KV>::stage_rows(
                    s,
                    s.shared().at(to),
                    source,
                    TILE_KV,
                    0..THREADS,
                )
            };
        }
    }

    /// A lane's scores of a row: two, or one and something.
    ///
    /// # Safety
    /// They are in shared memory, visible, and stay.
    #[inline(always)]
    #[track_caller]
    unsafe fn load_scores<S: Simt>(&self, s: S, row: u32, column: u32) -> [f32; 2] {
        let g = Self::GEOMETRY;
        let from = s.shared().at(g.scores()).row(row, g.score_stride()).at(column);
        // SAFETY: the caller's.
        unsafe { if Self::COLUMNS == 2 { s.load_shared(from.cast()) } else { [s.load_shared(from), 0.0] } }
    }

    /// Writes a lane's part of a row of P, rounded to f16: two elements, or the first.
    ///
    /// # Safety
    /// Nobody uses these bytes.
    #[inline(always)]
    #[track_caller]
    unsafe fn store_weights<S: Simt>(&self, s: S, to: Shared<f16>, weights: [f32; 2]) {
        // SAFETY: the caller's.
        unsafe {
            if Self::COLUMNS == 2 {
                s.store_shared(to.cast(), s.f16x2_from_f32(weights[0], weights[1]));
            } else {
                s.store_shared(to, s.f16_from_f32(weights[0]));
            }
        }
    }

    /// A statistic of the two rows that this lane has of its warp's O.
    ///
    /// # Safety
    /// They are in shared memory, visible, and stay.
    #[inline(always)]
    #[track_caller]
    unsafe fn of_rows<S: Simt>(&self, s: S, which: u32) -> [f32; 2] {
        let row = |i| Self::first_row(s) + wmma::accumulator(s.lane(), i).0;
        // SAFETY: the caller's.
        unsafe {
            [
                s.load_shared(Self::statistic(s, which, row(0))),
                s.load_shared(Self::statistic(s, which, row(2))),
            ]
        }
    }

    /// Where a statistic of a row lies.
    #[inline(always)]
    fn statistic<S: Simt>(s: S, which: u32, row: u32) -> Shared<f32> {
        s.shared().at(Self::GEOMETRY.statistics() + which * TILE_Q + row)
    }

    /// The first of the 16 rows whose S and O this warp computes, with another one.
    #[inline(always)]
    fn first_row<S: Simt>(s: S) -> u32 {
        s.warp() / SharedGeometry::COLUMN_WARPS * FRAGMENT
    }

    /// The first column of O that this warp computes.
    #[inline(always)]
    fn first_out<S: Simt>(s: S) -> u32 {
        s.warp() % SharedGeometry::COLUMN_WARPS * Self::GEOMETRY.out_fragments() as u32 * FRAGMENT
    }
}
