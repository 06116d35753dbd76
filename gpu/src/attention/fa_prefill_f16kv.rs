//! `fa_prefill_f16kv`: attention of a prompt, softmax in the registers between two products.
//!
//! For every query row `q` and head `h`, with `P = softmax(scale · Q·Kᵀ)` over the positions
//! that the row sees:
//!
//! ```text
//! out[q][h][d] = Σ_p P[q][p] · V[p][h / group][d]
//!
//! out     tokens    × heads    × head size   f32, row major
//! query   tokens    × heads    × head size   f16, row major
//! keys    positions × KV heads × head size   f16, row major: the KV cache
//! values  positions × KV heads × head size   f16, row major
//! ```
//!
//! Neither S = Q·Kᵀ nor P is ever in memory. Both products run on the tensor cores; S leaves the
//! first as an accumulator and P enters the second as its left operand, and those two fragments
//! are *the same registers of the same lanes* ([`fragment::identity`](crate::fragment::identity)).
//!
//! # Who owns what
//!
//! A block computes 64 rows of one head and goes through the keys in tiles of 32. A warp owns 16
//! of the rows and *all* 32 columns of the tile, and all of the row's output: nothing of a row
//! is in another warp, so softmax needs no shared memory.
//!
//! ```text
//!                 K tile: 32 positions              O: head size 128
//!                +----------------------+          +---- ... ------+
//!  Q  16 rows    | S, P      of warp 0  |          |    of warp 0  |
//!  64 × 128      | S, P      of warp 1  |    ->    |    of warp 1  |
//!                | S, P      of warp 2  |          |    of warp 2  |
//!                | S, P      of warp 3  |          |    of warp 3  |
//!                +----------------------+          +---- ... ------+
//!
//!  one fragment of 16 × 16, S as f32 accumulator or P as f16 operand, g = lane / 4, t = lane % 4:
//!
//!                columns 0..8        columns 8..16
//!  row g         x[0] x[1]           x[4] x[5]         at columns 2t and 2t + 1 of each half;
//!  row g + 8     x[2] x[3]           x[6] x[7]         a row is in four lanes, those with its g
//! ```
//!
//! A lane has two rows, g and g + 8, and of each the quarter of the columns that its t says. So
//! the maximum of a row takes two shuffles, with distances 1 and 2. The sum takes none: each
//! lane adds up its own columns, and the four meet once, after the last tile.
//!
//! # One tile
//!
//! ```text
//! S = Q · Kᵀ          K is stored (position, d): as B (d, position) it is column major
//! S = -∞              where the row does not see the column; element by element, because a
//!                     lane's columns are scattered; only in tiles that some row sees in part
//! m' = max(m, row maximum of S)
//! P = 2^(c·S - c·m'), c = scale · log2 e
//! O = O · 2^((m - m')·c) + P · V       the factor is exactly 1 where the maximum stays
//!                     V is stored (position, d): as B (position, d) it is row major
//! ```
//!
//! K and V lie alike and enter with opposite majorness, because one is consumed along `d` and
//! the other along the position. Here the layout is in the operand's type, so mixing them up does
//! not compile; where it compiles, the numbers are of the right size and wrong.
//!
//! # Registers of a lane, at head size 128
//!
//! ```text
//! O     8 accumulators of 8 f32                 64
//! S     2 accumulators of 8 f32, later P        16
//! P     the operand that is multiplied with      4
//! Q, K, V operands, the next on their way    8..16
//! m and l of two rows                            4
//! addresses, counters                          ~16
//! ```
//!
//! That fits into 128, so that registers leave room for four blocks of 128 threads on a
//! multiprocessor. It is why a tile has 32 positions and a warp 16 rows: S grows with the tile, O
//! with the head.
//!
//! # Shared memory
//!
//! ```text
//! byte      0   Q   64 rows of (128 + 8) f16
//!       17408   K   32 rows                      one for each stage
//!       26112   V   32 rows                      one for each stage
//!       34816   end
//!           0   O   64 rows of 128 f32 = 32768 bytes, after the last tile, if rows are missing
//! ```
//!
//! Rows are 272 bytes apart, 4 banks more than a multiple of 32: the eight 16-byte rows that an
//! operand's load reads at a time lie in 32 different banks. O counts in the maximum: with tiles
//! of 16 it is the larger one.
//!
//! # Who waits for whom
//!
//! One stage. A copy runs while the tensor cores work on the other of K and V:
//!
//! ```text
//!          copies                  products
//! barrier  V of this tile          S = Q · Kᵀ, softmax
//! barrier  K of the next tile      O += P · V
//! ```
//!
//! Before each barrier a thread waits for its own copies. The first makes K (and, the first time,
//! Q) visible, and says that every warp is done with the V before, which is about to be
//! overwritten; the second makes V visible and says that every warp is done with K. Without either
//! there is a race, which the tests show by removing each. There is no third: P is in the warp
//! itself.
//!
//! With two stages K and V of a tile travel together, into a buffer that nobody reads, and one
//! barrier a tile does: it makes the tile visible, and the buffer of the tile before free.
//!
//! # Shape contract
//!
//! Head size a multiple of 16, so that fragments are whole. Any numbers of tokens and positions:
//! rows past the end are zeros in shared memory (`cp.async` with a source size of 0). Blocks of
//! the last rows, which see the most keys, start first. Shared memory is 18,432, 22,528, 26,624,
//! 34,816 and 67,584 bytes at head sizes 64, 80, 96, 128 and 256: all but the last fit into the 48
//! KiB that need no asking, and the last into every device from sm_80 on; on sm_75, which has 64
//! KiB, blocks of 32 rows do (50,688 bytes).
//!
//! # Words from elsewhere
//!
//! `Geometry` (geometry.rs) counts what stands above: threads, rows' `stride`, where `keys` and
//! `values` of a stage begin. `Sight` (problem.rs) says who sees what: `reach` is the positions that
//! some rows see together, `reaches` whether a row sees what is so far before it. `copy_async`
//! copies the first `valid` of 16 bytes and writes zeros for the rest.
//!
//! # Numeric contract
//!
//! S and O are sums in f32 in the tensor core's order. Powers are of 2, `ex2.approx`; P is
//! rounded to f16, its sum is of the f32 before rounding. The error of that rounding averages out
//! over a row's positions; in rows that see fewer than 64 it does not, and there what it takes
//! from P is multiplied with V as well. So the error is below 1e-4 for values in [-1, 1].
//!
//! Tiles of keys lie at multiples of the tile, whatever the query rows, so a row's bits depend on
//! the positions alone: not on how its prompt was cut into passes, and not on the rows beside it.
//! The tile is part of that contract, because with another one the sums are grouped differently. A
//! tile that a row sees nothing of leaves its m, l and O untouched to the bit. A row that sees
//! nothing at all is zero.
//!
//! Source: r48, "register-resident softmax", and FlashAttention-2 (Dao 2023) for the online softmax.

use core::ops::Range;

use half::f16;

use super::geometry::Geometry;
use super::problem::{Attention, distance};
use crate::fragment::wmma;
use crate::simt::{
    Accumulator, ColMajor, Contract, Count, Expectations, Global, Kernel, Launch, MatrixA, MatrixB,
    Occurrence, RowMajor, Shared, Simt, Unit, Work,
};

/// Rows, columns and depth of a fragment.
pub(super) const FRAGMENT: u32 = 16;
/// f16 that one asynchronous copy moves: 16 bytes.
pub(super) const CHUNK: u32 = 8;
/// Below so many positions a row's P goes into the product in two parts. The error of a rounding
/// to f16 is at most 2^-12 of the largest weight; over `n` positions of like weight it averages to
/// about 1.1e-4 / √n for values up to 1, and the worst of a million elements is five times that.
pub(super) const FEW: u32 = 64;
/// Accumulators of O for the largest head size, 256. Those that a smaller one lacks are never
/// touched, and take no registers.
pub(super) const MOST_OUT: usize = 16;
/// Accumulators of S for the widest tile, 64.
pub(super) const MOST_SCORES: usize = 4;

/// The kernel: an [`Attention`] problem and, as parameters, its [`Geometry`].
///
/// At most 65,535 tiles of query rows: a grid's second axis has no more blocks.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct FaPrefillF16kv<
    const HEAD_SIZE: u32,
    const TILE_Q: u32 = 64,
    const TILE_KV: u32 = 32,
    const STAGES: u32 = 1,
    const STAGING_WARPS: u32 = 0,
>(pub Attention);

impl<const HEAD_SIZE: u32, const TILE_Q: u32, const TILE_KV: u32, const STAGES: u32, const STAGING_WARPS: u32>
    FaPrefillF16kv<HEAD_SIZE, TILE_Q, TILE_KV, STAGES, STAGING_WARPS>
{
    /// The tiles.
    pub const GEOMETRY: Geometry = {
        let geometry = Geometry {
            head_size: HEAD_SIZE,
            tile_q: TILE_Q,
            tile_kv: TILE_KV,
            stages: STAGES,
            staging_warps: STAGING_WARPS,
        };
        assert!(geometry.is_valid());
        geometry
    };
}

/// 34,816 bytes, as r48 counts them; and r50's 32 KiB of O that a larger tile hides.
const _: () = {
    let landed = FaPrefillF16kv::<128>::GEOMETRY;
    assert!(landed.shared_bytes() == 34_816 && landed.threads() == 128);
    let narrow = FaPrefillF16kv::<128, 64, 16>::GEOMETRY;
    assert!(narrow.staging_bytes() == 26_112 && narrow.shared_bytes() == 32_768);
};

impl<const HEAD_SIZE: u32, const TILE_Q: u32, const TILE_KV: u32, const STAGES: u32, const STAGING_WARPS: u32>
    Contract for FaPrefillF16kv<HEAD_SIZE, TILE_Q, TILE_KV, STAGES, STAGING_WARPS>
{
    const NAME: &'static str = match (HEAD_SIZE, TILE_Q, TILE_KV, STAGES, STAGING_WARPS) {
        (64, 64, 32, 1, 0) => "fa_prefill_f16kv_hd64",
        (80, 64, 32, 1, 0) => "fa_prefill_f16kv_hd80",
        (96, 64, 32, 1, 0) => "fa_prefill_f16kv_hd96",
        (128, 64, 32, 1, 0) => "fa_prefill_f16kv",
        (256, 64, 32, 1, 0) => "fa_prefill_f16kv_hd256",
        (128, 64, 16, 1, 0) => "fa_prefill_f16kv_tkv16",
        (128, 64, 64, 1, 0) => "fa_prefill_f16kv_tkv64",
        (128, 128, 32, 1, 0) => "fa_prefill_f16kv_tq128",
        (256, 32, 32, 1, 0) => "fa_prefill_f16kv_hd256_tq32",
        (128, 48, 32, 2, 1) => "fa_prefill_f16kv_tq48_double",
        (128, 64, 32, 2, 0) => "fa_prefill_f16kv_double",
        _ => panic!("a geometry without a name"),
    };
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[
            // Q · Kᵀ, and P · V in each of two parts; all loops over registers are unrolled.
            Occurrence::new("wmma.mma.sync.aligned.row.col", Count::Exactly(Self::GEOMETRY.products() / 2)),
            Occurrence::new("wmma.mma.sync.aligned.row.row", Count::Exactly(Self::GEOMETRY.products())),
            // The maximum of two rows in each tile, their sums at the end: two steps each.
            Occurrence::new("shfl.sync.bfly", Count::Exactly(8)),
            // The tile's, and two around the rows of a tile that is not full.
            Occurrence::new("bar.sync", Count::Exactly(Self::GEOMETRY.barriers() + 2)),
            Occurrence::new("cp.async.wait_group", Count::Exactly(Self::GEOMETRY.barriers())).since(80),
            Occurrence::new("ld.shared", Count::Exactly(1)),
        ],
        // On sm_75, which stages through registers.
        registers: if HEAD_SIZE == 256 { 248 } else { 144 },
        local_memory: false,
    };
    // Four blocks of 128 threads on a multiprocessor. The largest head, tiles of 64 positions and
    // blocks of eight warps do not fit into so few without spills.
    const REGISTER_LIMIT: Option<u32> = match (HEAD_SIZE, TILE_Q, TILE_KV) {
        (256, ..) | (_, 128, _) | (.., 64) => None,
        _ => Some(128),
    };

    fn launch(&self) -> Launch {
        Launch {
            grid: self.0.grid(TILE_Q),
            threads: Self::GEOMETRY.threads(),
            shared_bytes: Self::GEOMETRY.shared_bytes(),
        }
    }

    fn work(&self, _: u32) -> Option<Work> {
        Some(self.0.work(HEAD_SIZE, Unit::TensorF16))
    }
}

/// A warp's 16 rows on their way through the keys, as far as they are in this lane: index 0 is
/// row g, index 1 is row g + 8.
struct Rows {
    /// The largest score so far, before scaling; -∞ before the first that is seen.
    max: [f32; 2],
    /// The sum of this lane's P so far, relative to the maximum.
    sum: [f32; 2],
    /// O so far, relative to the maximum.
    out: [Accumulator; MOST_OUT],
}

/// A tile's S, and then its P, of a warp; the first [`Geometry::score_fragments`] are in use.
type Scores = [Accumulator; MOST_SCORES];

/// Which of a lane's two rows `x[i]` of an accumulator belongs to.
pub(super) const fn row_of(i: usize) -> usize {
    // The same for every lane; lane 0 has rows 0 and 8.
    (wmma::accumulator(0, i as u32).0 / 8) as usize
}

/// The elements of each of a lane's two rows, in the order of their columns.
const OF_ROW: [[usize; 4]; 2] = {
    let (mut elements, mut found) = ([[0; 4]; 2], [0; 2]);
    let mut i = 0;
    while i < 8 {
        let row = row_of(i);
        elements[row][found[row]] = i;
        found[row] += 1;
        i += 1;
    }
    elements
};

/// Where this block stands: its rows, its head and the tiles of keys that it goes through.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) first_row: u32,
    pub(super) kv_head: u32,
    /// Tiles of keys that some row of the block sees: from the first, without the last.
    pub(super) tiles: (u32, u32),
    /// Whether some row of the block sees fewer than [`FEW`] positions.
    pub(super) few: bool,
}

impl<
    S: Simt,
    const HEAD_SIZE: u32,
    const TILE_Q: u32,
    const TILE_KV: u32,
    const STAGES: u32,
    const STAGING_WARPS: u32,
> Kernel<S> for FaPrefillF16kv<HEAD_SIZE, TILE_Q, TILE_KV, STAGES, STAGING_WARPS>
{
    #[inline(always)]
    unsafe fn run(self, s: S) {
        let place = self.place(s);
        let mut rows = Rows { max: [f32::NEG_INFINITY; 2], sum: [0.0; 2], out: [[0.0; 8]; MOST_OUT] };
        // SAFETY: all threads of the block come here, and nobody uses shared memory before. What is
        // staged lies inside its stage, and comes from inside its matrix or is zero. A sweep ends
        // with no copy on its way, so O may be laid over the stages after the next barrier.
        unsafe {
            if place.tiles.0 < place.tiles.1 {
                self.stage_queries(s, place);
                if STAGES == 1 {
                    self.sweep_alternating(s, place, &mut rows);
                } else {
                    self.sweep_ahead(s, place, &mut rows);
                }
            }
            self.finish(s, &mut rows);
            self.store(s, place, &rows);
        }
    }
}

impl<const HEAD_SIZE: u32, const TILE_Q: u32, const TILE_KV: u32, const STAGES: u32, const STAGING_WARPS: u32>
    FaPrefillF16kv<HEAD_SIZE, TILE_Q, TILE_KV, STAGES, STAGING_WARPS>
{
    /// The last tile of rows comes first: it has the most keys, and what is long should not
    /// begin late.
    #[inline(always)]
    pub(super) fn place<S: Simt>(&self, s: S) -> Place {
        let (block, grid) = (s.block(), s.grid());
        self.place_of((grid.y - 1 - block.y) * TILE_Q, block.x)
    }

    /// The place of the tile of rows that begins at `first_row`, of a head.
    #[inline(always)]
    pub(super) fn place_of(&self, first_row: u32, head: u32) -> Place {
        let problem = &self.0;
        let rows = (problem.tokens - first_row).min(TILE_Q);
        let position = problem.start + first_row;
        let (first, end) = problem.sight.reach(position, position + rows - 1, problem.positions);
        let few = self.sees_few(position) || self.sees_few(position + rows - 1);
        // At least 1, which is what keeps the division from failing.
        let kv_head = head / problem.group.max(1);
        Place { first_row, kv_head, tiles: (first / TILE_KV, end.div_ceil(TILE_KV)), few }
    }

    /// One stage of keys and one of values, each copied while the other is in use.
    ///
    /// # Safety
    /// All threads of the block call this alike, with the queries' copies begun and a tile to go.
    #[inline(always)]
    unsafe fn sweep_alternating<S: Simt>(&self, s: S, place: Place, rows: &mut Rows) {
        let (first, end) = place.tiles;
        // SAFETY: keys and values are read after their own wait and a barrier, and written
        // again after the barrier that follows their last use.
        unsafe {
            self.stage_keys(s, place, first, 0);
            s.copy_async_commit();
            for tile in first..end {
                s.copy_async_wait::<0>();
                // Keys (and queries) of all threads are there; no warp still reads the values
                // of the tile before, which are overwritten now.
                s.barrier();
                self.stage_values(s, place, tile, 0);
                s.copy_async_commit();

                let mut scores = self.scores(s, 0);
                self.cap(s, &mut scores);
                self.mask(s, place, tile, &mut scores);
                let p = self.softmax(s, scores, rows);

                s.copy_async_wait::<0>();
                // Values of all threads are there; no warp still reads the keys.
                s.barrier();
                if tile + 1 < end {
                    self.stage_keys(s, place, tile + 1, 0);
                }
                s.copy_async_commit();
                self.accumulate(s, place, 0, &p, rows);
            }
        }
    }

    /// Two stages: a tile's keys and values are copied while the tile before is in use.
    ///
    /// # Safety
    /// As [`sweep_alternating`](Self::sweep_alternating).
    #[inline(always)]
    unsafe fn sweep_ahead<S: Simt>(&self, s: S, place: Place, rows: &mut Rows) {
        let (first, end) = place.tiles;
        // SAFETY: a stage is read after the wait for its group and a barrier; it is written again
        // after the next barrier, which every warp reaches when it is done with the stage.
        unsafe {
            for tile in first..first + STAGES - 1 {
                self.stage_tile(s, place, tile, end);
            }
            for tile in first..end {
                s.copy_async_wait::<0>();
                // The tile's keys and values are there; no warp still reads the tile before,
                // whose stage is overwritten now.
                s.barrier();
                self.stage_tile(s, place, tile + STAGES - 1, end);
                if s.warp() < Self::GEOMETRY.row_warps() {
                    let stage = tile % STAGES;
                    let mut scores = self.scores(s, stage);
                    self.cap(s, &mut scores);
                    self.mask(s, place, tile, &mut scores);
                    let p = self.softmax(s, scores, rows);
                    self.accumulate(s, place, stage, &p, rows);
                }
            }
        }
    }

    /// S of a warp: its 16 rows of Q times all keys of a stage.
    ///
    /// # Safety
    /// Queries and the stage's keys are in shared memory, visible, and stay.
    #[inline(always)]
    #[track_caller]
    unsafe fn scores<S: Simt>(&self, s: S, stage: u32) -> Scores {
        let g = Self::GEOMETRY;
        let (tile, lane) = (s.shared(), s.lane());
        let queries = tile.row(s.warp() * FRAGMENT, g.stride());
        let queries = MatrixA::<RowMajor>::lane_address(lane, queries, g.stride());
        // (d, position) where a position's row is contiguous: column major.
        let keys = MatrixB::<ColMajor>::lane_address(lane, tile.at(g.keys(stage)), g.stride());
        let mut scores = [[0.0; 8]; MOST_SCORES];
        for d in (0..HEAD_SIZE).step_by(FRAGMENT as usize) {
            // SAFETY: the caller's; fragments lie inside their stage.
            unsafe {
                let q = MatrixA::<RowMajor>::ldmatrix(s, queries.at(d));
                for (i, scores) in scores[..g.score_fragments()].iter_mut().enumerate() {
                    let position = i as u32 * FRAGMENT;
                    let k = MatrixB::<ColMajor>::ldmatrix(s, keys.row(position, g.stride()).at(d));
                    *scores = s.wmma_mma(q, k, *scores);
                }
            }
        }
        scores
    }

    /// Bends scores to within the soft cap, if there is one; what is left of it is a factor, which
    /// softmax multiplies with anyway.
    #[inline(always)]
    fn cap<S: Simt>(&self, s: S, scores: &mut Scores) {
        let cap = self.0.scaling.cap;
        if cap == 0.0 {
            return;
        }
        for fragment in &mut scores[..Self::GEOMETRY.score_fragments()] {
            for x in fragment {
                *x = capped(s, *x, cap);
            }
        }
    }

    /// Makes -∞ of scores that a row does not see. Each element has its own row and column, so
    /// each is asked: how far does its column lie before its row?
    #[inline(always)]
    fn mask<S: Simt>(&self, s: S, place: Place, tile: u32, scores: &mut Scores) {
        let problem = &self.0;
        let first_row = problem.start + place.first_row + s.warp() * FRAGMENT;
        let first_column = tile * TILE_KV;
        // The nearest and the farthest of the warp: most tiles are seen by all rows as a whole.
        let nearest = distance(first_row, first_column + (TILE_KV - 1));
        let farthest = distance(first_row + (FRAGMENT - 1), first_column);
        if problem.sight.reaches(nearest)
            && problem.sight.reaches(farthest)
            && first_column + TILE_KV <= problem.positions
        {
            return;
        }
        // Of x[0]; the others are a constant away.
        let (row, column) = wmma::accumulator(s.lane(), 0);
        let origin = distance(first_row + row, first_column + column);
        let left = problem.positions.saturating_sub(first_column + column);
        for (fragment, columns) in
            scores[..Self::GEOMETRY.score_fragments()].iter_mut().zip((0..).step_by(FRAGMENT as usize))
        {
            for i in 0..8 {
                let (down, right) = wmma::accumulator(0, i);
                let seen = problem.sight.reaches(origin + distance(down, columns + right));
                if !seen || left <= columns + right {
                    fragment[i as usize] = f32::NEG_INFINITY;
                }
            }
        }
    }

    /// S becomes P in the same registers, and O is put on the new maximum's scale.
    #[inline(always)]
    #[track_caller]
    fn softmax<S: Simt>(&self, s: S, mut scores: Scores, rows: &mut Rows) -> Scores {
        let g = Self::GEOMETRY;
        let log2 = self.0.scaling.log2;
        let mut factors = [0.0; 2];
        for row in 0..2 {
            let mut max = rows.max[row];
            for fragment in &scores[..g.score_fragments()] {
                for i in OF_ROW[row] {
                    max = s.max(max, fragment[i]);
                }
            }
            // The row's four lanes.
            max = s.max(max, s.shuffle_xor(max, 1));
            max = s.max(max, s.shuffle_xor(max, 2));
            // As long as a row has seen nothing, everything is -∞, and -∞ minus -∞ is NaN. Any
            // finite number in place of the maximum makes P zero, which is what it is.
            let finite = if max == f32::NEG_INFINITY { 0.0 } else { max };
            let offset = -(finite * log2);

            // Not a fused multiply-add: it has to be exactly 1 if the maximum stays. 0 in the first
            // tile, where it was -∞.
            factors[row] = s.exp2_approx((rows.max[row] - finite) * log2);
            rows.max[row] = max;
            let mut sum = rows.sum[row] * factors[row];
            for fragment in &mut scores[..g.score_fragments()] {
                for i in OF_ROW[row] {
                    fragment[i] = s.exp2_approx(s.fma(fragment[i], log2, offset));
                    sum += fragment[i];
                }
            }
            rows.sum[row] = sum;
        }

        for fragment in &mut rows.out[..g.out_fragments()] {
            for i in 0..8 {
                fragment[i] *= factors[row_of(i)];
            }
        }
        scores
    }

    /// O = O + P · V. P is rounded to f16 for it; in blocks with rows that see few positions, what
    /// the rounding takes from these is multiplied besides.
    ///
    /// # Safety
    /// The stage's values are in shared memory, visible, and stay.
    #[inline(always)]
    #[track_caller]
    unsafe fn accumulate<S: Simt>(&self, s: S, place: Place, stage: u32, p: &Scores, rows: &mut Rows) {
        let g = Self::GEOMETRY;
        let out = &mut rows.out[..g.out_fragments()];
        for (fragment, x) in p[..g.score_fragments()].iter().enumerate() {
            // SAFETY: the caller's.
            unsafe {
                if place.few {
                    let rest = rest(s, x, self.few(s, place));
                    self.add_product(s, stage, fragment, rest, out);
                }
                self.add_product(s, stage, fragment, operand(s, x), out);
            }
        }
    }

    /// O += P · V for 16 columns of P.
    ///
    /// # Safety
    /// As [`accumulate`](Self::accumulate).
    #[inline(always)]
    #[track_caller]
    unsafe fn add_product<S: Simt>(
        &self,
        s: S,
        stage: u32,
        fragment: usize,
        p: MatrixA<RowMajor>,
        out: &mut [Accumulator],
    ) {
        let g = Self::GEOMETRY;
        // (position, d) where a position's row is contiguous: row major.
        let values = s.shared().at(g.values(stage)).row(fragment as u32 * FRAGMENT, g.stride());
        let values = MatrixB::<RowMajor>::lane_address(s.lane(), values, g.stride());
        for (out, d) in out.iter_mut().zip((0..).step_by(FRAGMENT as usize)) {
            // SAFETY: the caller's; fragments lie inside their stage.
            let v = unsafe { MatrixB::<RowMajor>::ldmatrix(s, values.at(d)) };
            *out = s.wmma_mma(p, v, *out);
        }
    }

    /// Which of a lane's two rows see fewer than [`FEW`] positions.
    #[inline(always)]
    fn few<S: Simt>(&self, s: S, place: Place) -> [bool; 2] {
        core::array::from_fn(|row| {
            let (down, _) = wmma::accumulator(s.lane(), 2 * row as u32);
            self.sees_few(self.0.start + place.first_row + s.warp() * FRAGMENT + down)
        })
    }

    /// Whether the row at a position sees fewer than [`FEW`] positions.
    #[inline(always)]
    pub(super) const fn sees_few(&self, position: u32) -> bool {
        let (first, end) = self.0.sight.reach(position, position, self.0.positions);
        end < first + FEW
    }

    /// O = O / l. The sum of a row is put together from its four lanes.
    #[inline(always)]
    #[track_caller]
    fn finish<S: Simt>(&self, s: S, rows: &mut Rows) {
        let inverse = rows.sum.map(|sum| {
            let sum = sum + s.shuffle_xor(sum, 1);
            let sum = sum + s.shuffle_xor(sum, 2);
            // A row that saw nothing has O = 0, and stays so.
            if sum > 0.0 { s.reciprocal_approx(sum) } else { 0.0 }
        });
        for fragment in &mut rows.out[..Self::GEOMETRY.out_fragments()] {
            for i in 0..8 {
                fragment[i] *= inverse[row_of(i)];
            }
        }
    }

    /// O to memory: from the accumulators, or, if the tile has rows that do not exist, by way of
    /// shared memory, from where *all* threads copy the rows that do.
    ///
    /// # Safety
    /// No copy is on its way; all threads of the block call this alike.
    #[inline(always)]
    #[track_caller]
    unsafe fn store<S: Simt>(&self, s: S, place: Place, rows: &Rows) {
        let g = Self::GEOMETRY;
        let stride = self.0.heads().wrapping_mul(HEAD_SIZE);
        let out = self.0.out.row(place.first_row, stride).at(u64::from(s.block().x * HEAD_SIZE));
        let present = (self.0.tokens - place.first_row).min(TILE_Q);
        let has_rows = s.warp() < g.row_warps();
        let warp_row = s.warp() * FRAGMENT;
        let fragments = || rows.out[..g.out_fragments()].iter().zip((0_u32..).step_by(FRAGMENT as usize));
        // SAFETY: a tile's rows that exist are rows of out, and each warp has its own. The
        // stages are no longer in use after the first barrier, and O is complete after the second.
        unsafe {
            if present == TILE_Q {
                if has_rows {
                    for (&fragment, d) in fragments() {
                        let tile = out.row(warp_row, stride).at(u64::from(d));
                        s.wmma_store_global::<RowMajor>(tile, stride, fragment);
                    }
                }
                return;
            }
            s.barrier();
            let staged = s.shared::<f32>();
            if has_rows {
                for (&fragment, d) in fragments() {
                    s.wmma_store_shared::<RowMajor>(
                        staged.row(warp_row, HEAD_SIZE).at(d),
                        HEAD_SIZE,
                        fragment,
                    );
                }
            }
            s.barrier();
            store_rows::<HEAD_SIZE, S>(s, staged, out, stride, present, g.threads());
        }
    }

    /// Begins to copy the block's queries. They join the group of the first keys.
    ///
    /// # Safety
    /// Nobody uses the queries' part of shared memory until the copies have been waited for.
    #[inline(always)]
    #[track_caller]
    unsafe fn stage_queries<S: Simt>(&self, s: S, place: Place) {
        let source = self.queried(s.block().x, place);
        // SAFETY: the caller's.
        unsafe { Self::stage_rows(s, s.shared(), source, TILE_Q, Self::GEOMETRY.staging()) };
    }

    /// Begins to copy a tile of keys into a stage.
    ///
    /// # Safety
    /// Nobody uses the stage until the copies have been waited for.
    #[inline(always)]
    #[track_caller]
    unsafe fn stage_keys<S: Simt>(&self, s: S, place: Place, tile: u32, stage: u32) {
        let to = s.shared().at(Self::GEOMETRY.keys(stage));
        let source = self.cached(self.0.keys, place, tile);
        // SAFETY: the caller's.
        unsafe { Self::stage_rows(s, to, source, TILE_KV, Self::GEOMETRY.staging()) };
    }

    /// Begins to copy a tile of values into a stage.
    ///
    /// # Safety
    /// As [`stage_keys`](Self::stage_keys).
    #[inline(always)]
    #[track_caller]
    unsafe fn stage_values<S: Simt>(&self, s: S, place: Place, tile: u32, stage: u32) {
        let to = s.shared().at(Self::GEOMETRY.values(stage));
        let source = self.cached(self.0.values, place, tile);
        // SAFETY: the caller's.
        unsafe { Self::stage_rows(s, to, source, TILE_KV, Self::GEOMETRY.staging()) };
    }

    /// Begins to copy a tile, if it is one, into its stage, and closes the group.
    ///
    /// # Safety
    /// As [`stage_keys`](Self::stage_keys).
    #[inline(always)]
    #[track_caller]
    unsafe fn stage_tile<S: Simt>(&self, s: S, place: Place, tile: u32, end: u32) {
        if tile < end {
            // SAFETY: the caller's.
            unsafe {
                self.stage_keys(s, place, tile, tile % STAGES);
                self.stage_values(s, place, tile, tile % STAGES);
            }
        }
        s.copy_async_commit();
    }

    /// The block's rows of queries, of a head.
    #[inline(always)]
    pub(super) fn queried(&self, head: u32, place: Place) -> Source {
        Source {
            matrix: self.0.query,
            column: head * HEAD_SIZE,
            stride: self.0.heads().wrapping_mul(HEAD_SIZE),
            first: place.first_row,
            end: self.0.tokens,
        }
    }

    /// A tile of the cache, of the block's KV head.
    #[inline(always)]
    pub(super) fn cached(&self, cache: Global<f16>, place: Place, tile: u32) -> Source {
        Source {
            matrix: cache,
            column: place.kv_head * HEAD_SIZE,
            stride: self.0.kv_heads.wrapping_mul(HEAD_SIZE),
            first: tile * TILE_KV,
            end: self.0.positions,
        }
    }

    /// Begins to copy `rows` rows, 16 bytes at a time; rows past the end become zero. A thread
    /// keeps its columns and steps from row to row, so that its address is one addition away. Which
    /// threads copy says the geometry, never the launch.
    ///
    /// # Safety
    /// Nobody uses the rows at `to` until the copies have been waited for.
    #[inline(always)]
    #[track_caller]
    pub(super) unsafe fn stage_rows<S: Simt>(
        s: S,
        to: Shared<f16>,
        source: Source,
        rows: u32,
        threads: Range<u32>,
    ) {
        let g = Self::GEOMETRY;
        let chunks_of_a_row = HEAD_SIZE / CHUNK;
        let rows_at_once = (threads.end - threads.start) / chunks_of_a_row;
        // Below 0 for the threads before the staging ones, and then larger than all others.
        let thread = s.thread().wrapping_sub(threads.start);
        let (row, d) = (thread / chunks_of_a_row, thread % chunks_of_a_row * CHUNK);
        if row >= rows_at_once {
            return;
        }
        let to = to.row(row, g.stride()).at(d);
        // Below 2^32 for every row that exists; 64 bits would take another register.
        let mut from = (source.first + row).wrapping_mul(source.stride).wrapping_add(source.column + d);
        for before in (0..rows).step_by(rows_at_once as usize) {
            if before + row < rows {
                let valid = if source.first + before + row < source.end { 16 } else { 0 };
                // SAFETY: the caller's; nothing is read where the row does not exist.
                unsafe {
                    s.copy_async::<16, _>(
                        to.row(before, g.stride()),
                        source.matrix.at(u64::from(from)),
                        valid,
                    )
                };
            }
            from = from.wrapping_add(rows_at_once.wrapping_mul(source.stride));
        }
    }
}

/// A score bent to within the soft cap: `tanh` of it, `cap` being [`Scaling::cap`](super::Scaling).
#[inline(always)]
pub(super) fn capped<S: Simt>(s: S, x: f32, cap: f32) -> f32 {
    // tanh x = 1 - 2 / (e^2x + 1)
    s.fma(-2.0, s.reciprocal_approx(s.exp2_approx(x * cap) + 1.0), 1.0)
}

/// The first `rows` rows of O from shared memory to `out`, whose rows are `stride` apart. All
/// threads of the block take part.
///
/// # Safety
/// The rows are in shared memory, visible, and rows of `out` that are this block's.
#[inline(always)]
#[track_caller]
pub(super) unsafe fn store_rows<const HEAD_SIZE: u32, S: Simt>(
    s: S,
    staged: Shared<f32>,
    out: Global<f32>,
    stride: u32,
    rows: u32,
    threads: u32,
) {
    let chunks_of_a_row = HEAD_SIZE / 4;
    let mut i = s.thread();
    while i < rows * chunks_of_a_row {
        let (row, d) = (i / chunks_of_a_row, i % chunks_of_a_row * 4);
        // SAFETY: the caller's.
        unsafe {
            let value: [f32; 4] = s.load_shared(staged.row(row, HEAD_SIZE).at(d).cast());
            s.store_global(out.row(row, stride).at(u64::from(d)).cast(), value);
        }
        i += threads;
    }
}

/// An accumulator's elements as a left operand, rounded to f16. The identity: `x[2r]` and
/// `x[2r + 1]` of the accumulator are register `r` of the operand.
#[inline(always)]
#[track_caller]
pub(super) fn operand<S: Simt>(s: S, x: &Accumulator) -> MatrixA<RowMajor> {
    MatrixA::from_registers([
        s.f16x2_from_f32(x[0], x[1]),
        s.f16x2_from_f32(x[2], x[3]),
        s.f16x2_from_f32(x[4], x[5]),
        s.f16x2_from_f32(x[6], x[7]),
    ])
}

/// What [`operand`] loses of the elements in the rows where it is wanted, as an operand.
#[inline(always)]
#[track_caller]
fn rest<S: Simt>(s: S, x: &Accumulator, wanted: [bool; 2]) -> MatrixA<RowMajor> {
    let mut rest = [0.0; 8];
    for (i, pair) in operand(s, x).registers().into_iter().enumerate() {
        let [low, high] = s.f32_from_f16x2(pair);
        if wanted[row_of(2 * i)] {
            rest[2 * i] = x[2 * i] - low;
            rest[2 * i + 1] = x[2 * i + 1] - high;
        }
    }
    operand(s, &rest)
}

/// Rows of a matrix that are to be staged.
#[derive(Clone, Copy)]
pub(super) struct Source {
    pub(super) matrix: Global<f16>,
    /// Elements from one row to the next.
    pub(super) stride: u32,
    /// The head's first column.
    pub(super) column: u32,
    /// The first row.
    pub(super) first: u32,
    /// Where the matrix ends.
    pub(super) end: u32,
}

#[cfg(test)]
#[path = "tests/pitfalls.rs"]
mod pitfalls;
