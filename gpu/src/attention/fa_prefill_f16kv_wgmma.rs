//! `fa_prefill_f16kv_wgmma`: attention of a prompt on sm_90a, both products by whole warp groups.
//!
//! What is computed, the arguments and the layouts are those of [`fa_prefill_f16kv`](super::FaPrefillF16kv).
//!
//! # Who owns what
//!
//! A tile of rows is 128 rows of one head. There are as many blocks as multiprocessors, and each has tiles until
//! there are no more: in the first round all heads of the last rows, which have the most keys.
//!
//! ```text
//!              K tile: 128 positions            O: head size 128
//!             +----------------------+          +---- ... ------+
//!  Q 64 rows  | S, P of warp group 0 |          | of group 0    |     warp group 2 has no rows: its warps
//!             +----------------------+    ->    +---- ... ------+     copy the tiles of Q, K and V
//!    64 rows  | S, P of warp group 1 |          | of group 1    |
//!             +----------------------+          +---- ... ------+
//! ```
//!
//! A warp has 16 rows, a lane two of them, g and g + 8, as in `fa_prefill_f16kv`: `wgmma` lays S out as `mma`
//! does, and the accumulator of S is the left operand of P · V in registers
//! ([`fragment::identity`](crate::fragment::identity)).
//!
//! # One tile
//!
//! ```text
//! products, begun                         the warps, meanwhile
//! S(next) = Q · Kᵀ, both from memory      wait for S(next)
//! O += P(this) · V                        S(next) is masked, its maximum taken, the first rows' powers too
//!                                         wait for O; O on the new scale; the other rows' powers; P(next)
//! ```
//!
//! After a tile of rows' last tile comes the first one of the block's next rows in the same way: its S is begun with
//! the last product of the rows before, whose O is stored when that is done.
//!
//! So a warp group's powers are computed while its own second product runs. And the two groups take turns at
//! beginning their products: while one computes powers, the tensor cores work for the other.
//!
//! # Shared memory
//!
//! [Panels](crate::product::panels) of 64 columns in the 128-byte swizzle, at head size 128:
//!
//! ```text
//! byte      0  Q, this tile's and the next one's  2 panels of 128 rows each
//!       65536  stages 0 to 4: K0, V0, K1, V1, ..  2 panels of 128 rows each
//!      229376  the two rings' barriers, 112 bytes
//! ```
//!
//! K's rows lie along d, which is k of the first product; V's lie along d, which is n of the second: the same
//! panels, read the other way ([`operand_of_rows`](crate::product::panels::operand_of_rows)).
//!
//! # Who waits for whom
//!
//! One barrier of the block, after the barriers in memory have been initialized; from then on those alone.
//!
//! Each of the four warps that copy has a quarter of the rows of every stage; those of Q go with the first K. A warp
//! says that its part of a stage is there when it has begun to copy the next one: so the copies of two stages are under
//! way, and stages become full in their order. Who has waited for the next K need not wait for V. It is `cp.async` that
//! copies, because rows of a head are not neighbours in the cache, and that writes as ordinary stores do: hence the
//! fence between the proxies. Each warp that multiplies gives a stage back when its group's product is done. So while
//! a tile's last sums are stored, the next one's Q, K and V are on their way.
//!
//! The groups' turns are named barriers: a group waits at its own, where the other one arrives when it has
//! begun its products. Nothing but the time depends on them.
//!
//! # Registers of a lane, at head size 128
//!
//! S 64, O 64, P 32 and about 50 more. Three warps share a quarter of a multiprocessor's registers, 168 for each
//! lane; the group that copies gives back all but 40, and each of the others takes 232.
//!
//! # Shape contract
//!
//! As `fa_prefill_f16kv`. Rows of K and V past the end are zeros; rows of Q past the end are zeros and not
//! stored. 384 threads and shared memory as above, on sm_90a alone.
//!
//! # Numeric contract
//!
//! That of `fa_prefill_f16kv` with another tile, of 128 positions: the error is below 1e-4 for values in
//! [-1, 1], and rows that see fewer than 64 positions have P in two parts. Blocks with such a row take each tile
//! by itself; what they do with the other rows is the same to the bit.
//!
//! Source: FlashAttention-3 (Shah et al. 2024), its two kinds of overlap.

#![allow(clippy::needless_range_loop, reason = "loops over registers are plain, so that they are unrolled")]

use super::fa_prefill_f16kv::{CHUNK, FaPrefillF16kv, Place, Source, capped};
use super::problem::{Attention, Scaling, distance};
use crate::fragment::wgmma;
use crate::product::panels::{
    ATOM_ROWS, PANEL_COLUMNS, ROW_BYTES, ROWS_STEP_BYTES, STEP_BYTES, chunk_in_panel, operand,
    operand_of_rows,
};
use crate::simt::{
    ColMajor, Contract, Count, Dim3, Expectations, Hopper, Kernel, Launch, Occurrence, Ring, RowMajor,
    Shared, Unit, WARP_LANES, Work,
};

/// Warps with rows: two warp groups.
const CONSUMERS: u32 = 8;
/// Warps of a warp group, its lanes, and its rows.
const GROUP_WARPS: u32 = 4;
const GROUP_LANES: u32 = GROUP_WARPS * WARP_LANES;
const GROUP_ROWS: u32 = 64;
/// Rows of a warp.
const WARP_ROWS: u32 = GROUP_ROWS / GROUP_WARPS;
/// Rows of a block.
const TILE_Q: u32 = CONSUMERS / GROUP_WARPS * GROUP_ROWS;
/// Rows of Q that a copying warp copies.
const QUARTER_Q: u32 = TILE_Q / PRODUCERS;
/// Columns of P, rows of V, that a product takes.
const STEP: u32 = 16;
/// Products of a P with the most columns.
const MOST_STEPS: usize = 8;
/// Warps that copy: one warp group, because registers go from whole groups to whole groups.
const PRODUCERS: u32 = GROUP_WARPS;
/// Registers of a lane in the beginning: three warps of so many are what a quarter of a multiprocessor has. Then
/// those of a lane that copies, and of one that multiplies.
const REGISTERS: u32 = 168;
const COPYING: u32 = 40;
const MULTIPLYING: u32 = 232;
const _: () = assert!(COPYING + CONSUMERS / GROUP_WARPS * MULTIPLYING <= 3 * REGISTERS);
/// The most shared memory of a block.
const MOST_BYTES: u32 = 227 << 10;
/// The most stages.
const MOST_STAGES: u32 = 6;
/// The first of the barriers at which a warp group waits for its turn.
const TURNS: u32 = 1;

/// The kernel. `OUT` is half of the head size and `SCORES` half of a tile's positions: what a lane holds of O
/// and of S.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct FaPrefillF16kvWgmma<
    const HEAD_SIZE: u32,
    const TILE_KV: u32,
    const OUT: usize,
    const SCORES: usize,
> {
    /// The problem.
    pub problem: Attention,
    /// Blocks that run at a time, at least 1. Any number will do; that of multiprocessors is best.
    pub blocks: u32,
}

/// A lane's two rows on their way through the keys: index 0 is row g, index 1 is row g + 8.
struct Rows<const OUT: usize> {
    /// The largest score so far, before scaling; -∞ before the first that is seen.
    max: [f32; 2],
    /// The sum of this lane's P so far, relative to the maximum.
    sum: [f32; 2],
    /// O so far, relative to the maximum.
    out: [f32; OUT],
}

impl<const OUT: usize> Rows<OUT> {
    /// Before the first tile.
    const NONE: Self = Self { max: [f32::NEG_INFINITY; 2], sum: [0.0; 2], out: [0.0; OUT] };
}

/// Whether the tiles of keys of these rows can follow others' without a break: there are some, and P in one part will
/// do.
const fn flows(place: Place) -> bool {
    place.tiles.0 < place.tiles.1 && !place.few
}

/// What a tile does to a lane's two rows.
struct Rise {
    /// The new maxima as exponents of 2, negative: what to add to a scaled score.
    offsets: [f32; 2],
    /// What O and the sum are to be multiplied with.
    factors: [f32; 2],
}

/// P of a warp group as left operands, 16 columns each.
type Operands = [[u32; 4]; MOST_STEPS];

/// Which of a lane's two rows register `i` of an accumulator belongs to.
const fn row_of(i: usize) -> usize {
    // The same for every lane; lane 0 has rows 0 and 8.
    (wgmma::d(0, i as u32).0 / 8) as usize
}

impl<const HEAD_SIZE: u32, const TILE_KV: u32, const OUT: usize, const SCORES: usize>
    FaPrefillF16kvWgmma<HEAD_SIZE, TILE_KV, OUT, SCORES>
{
    /// Panels side by side.
    const PANELS: u32 = HEAD_SIZE.div_ceil(PANEL_COLUMNS);
    /// Positions of a tile that a copying warp copies.
    const QUARTER_KV: u32 = TILE_KV / PRODUCERS;
    /// Bytes of a panel of positions, of a stage, and of the queries.
    const PANEL_BYTES: u32 = TILE_KV * ROW_BYTES;
    const STAGE_BYTES: u32 = Self::PANELS * Self::PANEL_BYTES;
    const QUERY_PANEL_BYTES: u32 = TILE_Q * ROW_BYTES;
    const QUERY_BYTES: u32 = Self::PANELS * Self::QUERY_PANEL_BYTES;
    /// Stages of queries: the next ones on their way, where there is room.
    const QUERY_STAGES: u32 = if 2 * Self::QUERY_BYTES + 4 * Self::STAGE_BYTES < MOST_BYTES { 2 } else { 1 };
    /// Stages of keys and values.
    const STAGES: u32 = {
        assert!(2 * OUT as u32 == HEAD_SIZE && HEAD_SIZE.is_multiple_of(STEP));
        assert!(2 * SCORES as u32 == TILE_KV && TILE_KV.is_multiple_of(STEP) && Self::STEPS <= MOST_STEPS);
        let room =
            MOST_BYTES - Self::QUERY_STAGES * Self::QUERY_BYTES - Ring::barrier_bytes(Self::QUERY_STAGES);
        let fit = room / (Self::STAGE_BYTES + Ring::barrier_bytes(1));
        // Keys are called full when values are being copied into the stage after theirs, and are waited for before
        // the values of two tiles before are given back: five stages.
        assert!(fit >= 5);
        if fit < MOST_STAGES { fit } else { MOST_STAGES }
    };
    /// Products of P and V in a tile.
    const STEPS: usize = SCORES / 8;
    /// Bytes of shared memory.
    pub const SHARED_BYTES: u32 = Self::BARRIERS + Ring::barrier_bytes(Self::QUERY_STAGES + Self::STAGES);
    /// Bytes before the stages of keys and values, and before the barriers.
    const CACHED: u32 = Self::QUERY_STAGES * Self::QUERY_BYTES;
    const BARRIERS: u32 = Self::CACHED + Self::STAGES * Self::STAGE_BYTES;

    /// The kernel with the same heads and tiles, which says where they lie.
    #[inline(always)]
    const fn same(&self) -> FaPrefillF16kv<HEAD_SIZE, TILE_Q, TILE_KV> {
        FaPrefillF16kv(self.problem)
    }

    /// Tiles of rows, of all heads.
    const fn tiles(&self) -> u32 {
        self.problem.heads().wrapping_mul(self.problem.tokens.div_ceil(TILE_Q))
    }

    /// The tile of rows that this block has in a round, and its head: all heads of the last rows first, which have the most
    /// keys. Every other round goes through the blocks backwards, so that all have about the same to do.
    #[inline(always)]
    fn place<S: Hopper>(&self, s: S, round: u32) -> Option<(u32, Place)> {
        let (block, blocks) = (s.block().x, s.grid().x);
        let tile = round * blocks + if round.is_multiple_of(2) { block } else { blocks - 1 - block };
        if tile >= self.tiles() {
            return None;
        }
        // Not 0: there is a tile.
        let heads = self.problem.heads().max(1);
        let (row, head) = (self.problem.tokens.div_ceil(TILE_Q) - 1 - tile / heads, tile % heads);
        Some((head, self.same().place_of(row * TILE_Q, head)))
    }
}

impl<const HEAD_SIZE: u32, const TILE_KV: u32, const OUT: usize, const SCORES: usize> Contract
    for FaPrefillF16kvWgmma<HEAD_SIZE, TILE_KV, OUT, SCORES>
{
    const NAME: &'static str = match (HEAD_SIZE, TILE_KV) {
        (64, 128) => "fa_prefill_f16kv_wgmma_hd64",
        (96, 128) => "fa_prefill_f16kv_wgmma_hd96",
        (128, 128) => "fa_prefill_f16kv_wgmma",
        (256, 64) => "fa_prefill_f16kv_wgmma_hd256",
        _ => panic!("tiles without a name"),
    };
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[
            // The maximum of two rows in each tile, their sums at the end: two steps each. Both stand three times: the
            // first tile, the others, and by itself; the end in between, the last one, and by itself.
            Occurrence::new("shfl.sync.bfly", Count::Exactly(3 * 4 + 3 * 4)),
            // Each begins S; O too, but the last one apart from the loop, and by itself in two parts.
            Occurrence::new("wgmma.mma_async", Count::Exactly(3 * HEAD_SIZE / STEP + 4 * Self::STEPS as u32)),
            // A stage is called full while the next one is copied, and the last one of all.
            Occurrence::new("cp.async.wait_group", Count::Exactly(2)),
            Occurrence::new("fence.proxy.async", Count::Exactly(2)),
            Occurrence::new("setmaxnreg.inc", Count::Exactly(1)),
            Occurrence::new("setmaxnreg.dec", Count::Exactly(1)),
            // The block's, that of a turn, and of the last one; the first turn is given before the loop, the others in it.
            Occurrence::new("bar.sync", Count::Exactly(3)),
            Occurrence::new("bar.arrive", Count::Exactly(2)),
        ],
        registers: REGISTERS,
        local_memory: false,
    };
    const REGISTER_LIMIT: Option<u32> = Some(REGISTERS);

    fn launch(&self) -> Launch {
        Launch {
            grid: Dim3::linear(self.tiles().min(self.blocks)),
            threads: (CONSUMERS + PRODUCERS) * WARP_LANES,
            shared_bytes: Self::SHARED_BYTES,
        }
    }

    fn work(&self, _: u32) -> Option<Work> {
        Some(self.problem.work(HEAD_SIZE, Unit::TensorF16))
    }
}

impl<S: Hopper, const HEAD_SIZE: u32, const TILE_KV: u32, const OUT: usize, const SCORES: usize> Kernel<S>
    for FaPrefillF16kvWgmma<HEAD_SIZE, TILE_KV, OUT, SCORES>
{
    #[inline(always)]
    unsafe fn run(self, s: S) {
        let shared = s.shared::<u8>();
        let barriers = shared.at(Self::BARRIERS).cast::<u64>();
        let queries = Ring::new(shared, barriers, Self::QUERY_STAGES, Self::QUERY_BYTES);
        let barriers = barriers.at(Ring::barrier_bytes(Self::QUERY_STAGES) / 8);
        let cached = Ring::new(shared.at(Self::CACHED), barriers, Self::STAGES, Self::STAGE_BYTES);
        // SAFETY: nobody uses the rings before the block's barrier; a warp group's rows of out are its own. Warps 0 to
        // 7 are two whole groups, which all take registers, and 8 to 11 one, which gives them, once each: 384 lanes
        // of 168 are as many as 128 each of 232, 232 and 40, so what is taken comes to be free.
        unsafe {
            if s.thread() == 0 {
                // Nobody asks whether queries are there: the keys that come with them are.
                queries.initialize(s, PRODUCERS, CONSUMERS);
                cached.initialize(s, PRODUCERS, CONSUMERS);
                s.fence_mbarrier_init();
            }
            s.barrier();
            if s.warp() < CONSUMERS {
                s.take_registers::<MULTIPLYING>();
                self.consume(s, queries, cached);
            } else {
                s.give_registers::<COPYING>();
                self.produce(s, queries, cached);
            }
        }
    }
}

impl<const HEAD_SIZE: u32, const TILE_KV: u32, const OUT: usize, const SCORES: usize>
    FaPrefillF16kvWgmma<HEAD_SIZE, TILE_KV, OUT, SCORES>
{
    /// Copies the block's queries and tiles into the rings: each warp a quarter of the rows.
    ///
    /// # Safety
    /// The rings have been initialized; all warps that copy do so.
    #[inline(always)]
    #[track_caller]
    unsafe fn produce<S: Hopper>(&self, s: S, mut queries: Ring, mut cached: Ring) {
        let own = s.warp() % PRODUCERS;
        // The barrier of the stage that was copied last: it is called full when the next one's copies are under way.
        let mut last = None;
        let mut round = 0;
        while let Some((head, place)) = self.place(s, round) {
            round += 1;
            let (first, end) = place.tiles;
            if first >= end {
                continue;
            }
            // SAFETY: a stage is written when it has been waited for, so all who read it have given it back; of each
            // stage this warp writes the quarter of the rows that is its own. Stages, panels and quarters begin at
            // multiples of 1024 bytes, the swizzle's period. A stage is called full after the copies into it were
            // committed, with one group after them.
            unsafe {
                queries.wait_empty(s);
                let mut source = self.same().queried(head, place);
                source.first += own * QUARTER_Q;
                let quarter = queries.stage().row(own * QUARTER_Q, ROW_BYTES);
                // With the first keys, which are waited for after all.
                Self::stage(s, quarter, Self::QUERY_PANEL_BYTES, source, QUARTER_Q);
                queries.advance();
                let copies = 2 * (end - first);
                let mut i = 0;
                while i < copies {
                    cached.wait_empty(s);
                    let cache = if i % 2 == 0 { self.problem.keys } else { self.problem.values };
                    let mut source = self.same().cached(cache, place, first + i / 2);
                    source.first += own * Self::QUARTER_KV;
                    let quarter = cached.stage().row(own * Self::QUARTER_KV, ROW_BYTES);
                    Self::stage(s, quarter, Self::PANEL_BYTES, source, Self::QUARTER_KV);
                    Self::staged(s, &mut last, cached.full_barrier());
                    cached.advance();
                    i += 1;
                }
            }
        }
        if let Some(last) = last {
            // SAFETY: nothing has been copied since.
            unsafe { Self::fill::<S, 0>(s, last) };
        }
    }

    /// Ends a stage's copies as a group, and calls the stage before it full.
    ///
    /// # Safety
    /// As [`fill`](Self::fill).
    #[inline(always)]
    #[track_caller]
    unsafe fn staged<S: Hopper>(s: S, last: &mut Option<Shared<u64>>, full: Shared<u64>) {
        s.copy_async_commit();
        if let Some(last) = last.replace(full) {
            // SAFETY: the caller's.
            unsafe { Self::fill::<S, 1>(s, last) };
        }
    }

    /// Says that a stage is full, for this warp, when all but the `PENDING` youngest groups of its copies have
    /// ended.
    ///
    /// # Safety
    /// The copies into the stage are among these groups; all lanes of the warp do so.
    #[inline(always)]
    #[track_caller]
    unsafe fn fill<S: Hopper, const PENDING: u32>(s: S, full: Shared<u64>) {
        s.copy_async_wait::<PENDING>();
        s.fence_proxy_async();
        s.warp_sync();
        if s.lane() == 0 {
            // SAFETY: the caller's.
            unsafe { s.mbarrier_arrive(full) };
        }
    }

    /// Begins to copy so many rows into panels so many bytes apart, 16 bytes at a time; rows past the end become
    /// zero.
    ///
    /// # Safety
    /// Nobody uses the panels until the copies have been waited for; one warp does so.
    #[inline(always)]
    #[track_caller]
    unsafe fn stage<S: Hopper>(s: S, panels: Shared<u8>, panel_bytes: u32, source: Source, rows: u32) {
        // SAFETY: the caller's.
        unsafe {
            // Whole tiles do not ask for each row.
            if source.first + rows <= source.end {
                Self::stage_rows::<S, true>(s, panels, panel_bytes, source, rows);
            } else {
                Self::stage_rows::<S, false>(s, panels, panel_bytes, source, rows);
            }
        }
    }

    /// As [`stage`](Self::stage), where `WHOLE` says that no row is past the end. A lane keeps its columns, and
    /// steps by as many rows as the warp copies at once.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    #[track_caller]
    unsafe fn stage_rows<S: Hopper, const WHOLE: bool>(
        s: S,
        panels: Shared<u8>,
        panel_bytes: u32,
        source: Source,
        rows: u32,
    ) {
        let chunks = HEAD_SIZE / CHUNK;
        // A power of 2, so that the eight rows after which the swizzle begins anew are a multiple of it.
        let at_once = 1 << (WARP_LANES / chunks).ilog2();
        let (row, column) = (s.lane() / chunks, s.lane() % chunks * CHUNK);
        if row >= at_once {
            return;
        }
        let panel = panels.row(column / PANEL_COLUMNS, panel_bytes);
        let step = at_once.wrapping_mul(source.stride);
        // Below 2^32 for every row that exists.
        let mut from = (source.first + row).wrapping_mul(source.stride).wrapping_add(source.column + column);
        let mut atom = 0;
        while atom < rows {
            let mut down = row;
            while down < row + ATOM_ROWS {
                let to = panel.at(chunk_in_panel(down, column % PANEL_COLUMNS)).at(atom * ROW_BYTES);
                let exists = WHOLE || source.first + atom + down < source.end;
                let valid = if exists { 16 } else { 0 };
                // SAFETY: the caller's; nothing is read where the row does not exist.
                unsafe { s.copy_async::<16, _>(to.cast(), source.matrix.at(u64::from(from)), valid) };
                from = from.wrapping_add(step);
                down += at_once;
            }
            atom += ATOM_ROWS;
        }
    }

    /// Multiplies what is in the rings, and stores the block's rows.
    ///
    /// # Safety
    /// The rings have been initialized; all warps of both warp groups do so.
    #[inline(always)]
    #[track_caller]
    unsafe fn consume<S: Hopper>(&self, s: S, mut queries: Ring, mut cached: Ring) {
        let group = s.warp() / GROUP_WARPS;
        // The first turn is the first group's, and so is the last one, which nobody uses.
        if group == 1 {
            s.barrier_arrive(TURNS, 2 * GROUP_LANES);
        }
        let mut round = 0;
        while let Some((head, place)) = self.place(s, round) {
            // SAFETY: a group's rows of out are its own.
            unsafe {
                if flows(place) {
                    round = self.sweep(s, round, (head, place), &mut queries, &mut cached);
                    continue;
                }
                let mut rows = Rows::NONE;
                if place.tiles.0 < place.tiles.1 {
                    self.sweep_tile_by_tile(s, place, &queries, &mut cached, &mut rows);
                    queries.advance();
                }
                self.store(s, (head, place.first_row), rows.sum, &rows.out);
            }
            round += 1;
        }
        if group == 0 {
            s.barrier_named(TURNS, 2 * GROUP_LANES);
        }
    }

    /// On to the next tile of keys of the same rows, or the first one of the next rows that [flow](flows); says
    /// whether these are others. `None`, and the round of the next rows, if there are none that flow.
    #[inline(always)]
    fn follow<S: Hopper>(
        &self,
        s: S,
        round: &mut u32,
        rows: &mut (u32, Place),
        tile: &mut u32,
    ) -> Option<bool> {
        *tile += 1;
        if *tile < rows.1.tiles.1 {
            return Some(false);
        }
        *round += 1;
        let next = self.place(s, *round)?;
        if !flows(next.1) {
            return None;
        }
        *rows = next;
        *tile = next.1.tiles.0;
        Some(true)
    }

    /// The tiles of these rows and of all that follow them and flow, each one's powers computed while the product of
    /// the one before with V runs, also where other rows begin. The first round of which nothing has been done.
    ///
    /// # Safety
    /// The rows, those of `round`, flow; all lanes of both warp groups do so.
    #[inline(always)]
    #[track_caller]
    unsafe fn sweep<S: Hopper>(
        &self,
        s: S,
        mut round: u32,
        mut of: (u32, Place),
        queries: &mut Ring,
        cached: &mut Ring,
    ) -> u32 {
        let (mut keys, mut values) = (*cached, *cached);
        values.advance();
        let group = s.warp() / GROUP_WARPS;
        let (own_turn, other_turn) = (TURNS + group, TURNS + (group ^ 1));
        let mut scores = [0.0; SCORES];
        let mut rows = Rows::NONE;
        // `of` is whose the scores are, and this whose O is.
        let mut summed = (of.0, of.1.first_row);
        let mut tile = of.1.tiles.0;
        // SAFETY: `keys` and `values` go through the stages of their own; before they are read they have been waited
        // for, or the keys behind them, and queries are there with the first keys. At most two groups of products are
        // under way, S and then O: keys are given back when at most the younger is, values when none is, queries
        // after the last S. Nobody touches scores, O or P before the products that use them are done. Panels begin at
        // multiples of 1024 bytes, as descriptors of the swizzle want. A group's rows of out are its own.
        unsafe {
            keys.wait_full(s);
            s.wgmma_fence();
            Self::begin_scores(s, queries, keys.stage(), &mut scores);
            s.wgmma_wait::<0>();
            Self::give_back(s, &keys);
            if tile + 1 == of.1.tiles.1 {
                Self::give_back(s, queries);
            }
            // O has not begun, on whatever scale.
            let _ = self.softmax(s, of.1, tile, &mut scores, &mut rows);
            let mut p = operands(s, &scores);
            // Whether O has sums of these rows.
            let mut begun = false;
            let mut next = self.follow(s, &mut round, &mut of, &mut tile);
            if next.is_some() {
                keys.skip();
                keys.wait_full(s);
            }
            while let Some(others) = next {
                if others {
                    queries.advance();
                }
                s.barrier_named(own_turn, 2 * GROUP_LANES);
                s.wgmma_fence();
                Self::begin_scores(s, queries, keys.stage(), &mut scores);
                Self::begin_out(s, &p, values.stage(), &mut rows.out, begun);
                s.barrier_arrive(other_turn, 2 * GROUP_LANES);
                s.wgmma_wait::<1>();
                Self::give_back(s, &keys);
                if tile + 1 == of.1.tiles.1 {
                    Self::give_back(s, queries);
                }
                let sum = rows.sum;
                if others {
                    (rows.max, rows.sum) = ([f32::NEG_INFINITY; 2], [0.0; 2]);
                }
                let rise = self.maxima(s, of.1, tile, &mut scores, &mut rows);
                self.powers(s, 0, &rise, &mut scores, &mut rows);
                let these = (of.0, of.1.first_row);
                // Before O is waited for: this parts the powers from that wait. Without a branch in between `ptxas`
                // puts it before them, and nothing overlaps. The other row's powers come after it: while the special
                // function units compute these, O is put on the new scale and P is rounded.
                next = self.follow(s, &mut round, &mut of, &mut tile);
                if next.is_some() {
                    keys.skip();
                    keys.wait_full(s);
                }
                s.wgmma_wait::<0>();
                Self::give_back(s, &values);
                values.skip();
                if others {
                    self.store(s, summed, sum, &rows.out);
                }
                // Of other rows, O begins anew with its next product: what this makes of it is not read.
                scale(&mut rows.out, rise.factors);
                (summed, begun) = (these, !others);
                self.powers(s, 1, &rise, &mut scores, &mut rows);
                p = operands(s, &scores);
            }

            values.wait_full(s);
            s.wgmma_fence();
            Self::begin_out(s, &p, values.stage(), &mut rows.out, begun);
            s.wgmma_wait::<0>();
            Self::give_back(s, &values);
            self.store(s, summed, rows.sum, &rows.out);
        }
        *cached = values;
        cached.advance();
        queries.advance();
        round
    }

    /// The tiles one by one, with P in two parts in the rows that see few positions: the bits of the others are
    /// those of [`sweep`](Self::sweep).
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    #[track_caller]
    unsafe fn sweep_tile_by_tile<S: Hopper>(
        &self,
        s: S,
        place: Place,
        queries: &Ring,
        cached: &mut Ring,
        rows: &mut Rows<OUT>,
    ) {
        let (first, end) = place.tiles;
        let few = self.few(s, place);
        let mut scores = [0.0; SCORES];
        let mut tile = first;
        // SAFETY: as in `sweep`; whatever has been begun is waited for before anything is given back.
        unsafe {
            while tile < end {
                cached.wait_full(s);
                s.wgmma_fence();
                Self::begin_scores(s, queries, cached.stage(), &mut scores);
                s.wgmma_wait::<0>();
                Self::give_back(s, cached);
                cached.advance();
                tile += 1;
                if tile == end {
                    Self::give_back(s, queries);
                }
                let factors = self.softmax(s, place, tile - 1, &mut scores, rows);
                scale(&mut rows.out, factors);
                let (p, rest) = (operands(s, &scores), rests(s, &scores, few));
                cached.wait_full(s);
                s.wgmma_fence();
                Self::begin_out(s, &rest, cached.stage(), &mut rows.out, tile - 1 > first);
                Self::begin_out(s, &p, cached.stage(), &mut rows.out, true);
                s.wgmma_wait::<0>();
                Self::give_back(s, cached);
                cached.advance();
            }
        }
    }

    /// Begins S = Q · Kᵀ of a warp group, as one group of products.
    ///
    /// # Safety
    /// Queries and the stage's keys are in shared memory, visible, and stay until the products are done.
    #[inline(always)]
    #[track_caller]
    unsafe fn begin_scores<S: Hopper>(s: S, queries: &Ring, keys: Shared<u8>, scores: &mut [f32; SCORES]) {
        // From the thread's number, which is asked anew for every tile: else descriptors of all steps would be kept.
        let queries = operand(queries.stage(), s.warp() / GROUP_WARPS * GROUP_ROWS);
        let keys = operand(keys, 0);
        for d in (0..HEAD_SIZE).step_by(STEP as usize) {
            let (panel, by) = (d / PANEL_COLUMNS, d % PANEL_COLUMNS / STEP * STEP_BYTES);
            let queries = queries.advance(panel * Self::QUERY_PANEL_BYTES + by);
            let keys = keys.advance(panel * Self::PANEL_BYTES + by);
            // SAFETY: the caller's.
            unsafe { s.wgmma_f16::<RowMajor, ColMajor, SCORES>(scores, queries, keys, d > 0) };
        }
        s.wgmma_commit();
    }

    /// Begins O += P · V of a warp group, or O = P · V if it has not `begun`, as one group of products.
    ///
    /// # Safety
    /// The stage's values are in shared memory, visible, and stay until the products are done.
    #[inline(always)]
    #[track_caller]
    unsafe fn begin_out<S: Hopper>(
        s: S,
        p: &Operands,
        values: Shared<u8>,
        out: &mut [f32; OUT],
        begun: bool,
    ) {
        let values = operand_of_rows(values, Self::PANEL_BYTES);
        for step in 0..Self::STEPS {
            let values = values.advance(step as u32 * ROWS_STEP_BYTES);
            // SAFETY: the caller's.
            unsafe { s.wgmma_f16_register_a::<RowMajor, OUT>(out, p[step], values, begun || step > 0) };
        }
        s.wgmma_commit();
    }

    /// Gives the stage back, for this warp.
    ///
    /// # Safety
    /// The warp's products that read it are done; all of its lanes do so.
    #[inline(always)]
    #[track_caller]
    unsafe fn give_back<S: Hopper>(s: S, ring: &Ring) {
        if s.lane() == 0 {
            // SAFETY: the caller's.
            unsafe { s.mbarrier_arrive(ring.empty_barrier()) };
        }
    }

    /// S of a tile becomes P in the same registers; what O is to be multiplied with for the new maximum.
    #[inline(always)]
    #[track_caller]
    fn softmax<S: Hopper>(
        &self,
        s: S,
        place: Place,
        tile: u32,
        scores: &mut [f32; SCORES],
        rows: &mut Rows<OUT>,
    ) -> [f32; 2] {
        let rise = self.maxima(s, place, tile, scores, rows);
        (0..2).for_each(|row| self.powers(s, row, &rise, scores, rows));
        rise.factors
    }

    /// The first half of [`softmax`](Self::softmax): the scores with cap and mask, and the new maxima.
    #[inline(always)]
    #[track_caller]
    fn maxima<S: Hopper>(
        &self,
        s: S,
        place: Place,
        tile: u32,
        scores: &mut [f32; SCORES],
        rows: &mut Rows<OUT>,
    ) -> Rise {
        let Scaling { cap, log2 } = self.problem.scaling;
        if cap != 0.0 {
            for x in scores.iter_mut() {
                *x = capped(s, *x, cap);
            }
        }
        self.mask(s, place, tile, scores);
        let mut rise = Rise { offsets: [0.0; 2], factors: [0.0; 2] };
        for row in 0..2 {
            let mut max = rows.max[row];
            for eight in 0..SCORES / 4 {
                let i = 4 * eight + 2 * row;
                max = s.max(max, s.max(scores[i], scores[i + 1]));
            }
            // The row's four lanes.
            max = s.max(max, s.shuffle_xor(max, 1));
            max = s.max(max, s.shuffle_xor(max, 2));
            // As long as a row has seen nothing, everything is -∞, and -∞ minus -∞ is NaN. Any finite number in
            // place of the maximum makes P zero, which is what it is.
            let finite = if max == f32::NEG_INFINITY { 0.0 } else { max };
            rise.offsets[row] = -(finite * log2);
            // Not a fused multiply-add: it has to be exactly 1 if the maximum stays. 0 in the first tile, where
            // it was -∞.
            rise.factors[row] = s.exp2_approx((rows.max[row] - finite) * log2);
            rows.max[row] = max;
        }
        rise
    }

    /// The second half of [`softmax`](Self::softmax), for one of the two rows: P and its sum.
    #[inline(always)]
    #[track_caller]
    fn powers<S: Hopper>(
        &self,
        s: S,
        row: usize,
        rise: &Rise,
        scores: &mut [f32; SCORES],
        rows: &mut Rows<OUT>,
    ) {
        let mut sum = rows.sum[row] * rise.factors[row];
        for eight in 0..SCORES / 4 {
            for i in 4 * eight + 2 * row..4 * eight + 2 * row + 2 {
                scores[i] = s.exp2_approx(s.fma(scores[i], self.problem.scaling.log2, rise.offsets[row]));
                sum += scores[i];
            }
        }
        rows.sum[row] = sum;
    }

    /// Makes -∞ of scores that a row does not see.
    #[inline(always)]
    fn mask<S: Hopper>(&self, s: S, place: Place, tile: u32, scores: &mut [f32; SCORES]) {
        let problem = &self.problem;
        let first_row = problem.start + place.first_row + s.warp() * WARP_ROWS;
        let first_column = tile * TILE_KV;
        // The nearest and the farthest of the warp: most tiles are seen by all rows as a whole.
        let nearest = distance(first_row, first_column + (TILE_KV - 1));
        let farthest = distance(first_row + (WARP_ROWS - 1), first_column);
        if problem.sight.reaches(nearest)
            && problem.sight.reaches(farthest)
            && first_column + TILE_KV <= problem.positions
        {
            return;
        }
        // Of the first; the others are a constant away.
        let (row, column) = wgmma::d(s.lane(), 0);
        let origin = distance(first_row + row, first_column + column);
        let left = problem.positions.saturating_sub(first_column + column);
        for i in 0..SCORES {
            let (down, right) = wgmma::d(0, i as u32);
            // Both asked: a branch for each would cost more.
            let seen = problem.sight.reaches(origin + distance(down, right)) & (left > right);
            scores[i] = if seen { scores[i] } else { f32::NEG_INFINITY };
        }
    }

    /// Which of a lane's two rows see fewer positions than P in one part is good for.
    #[inline(always)]
    fn few<S: Hopper>(&self, s: S, place: Place) -> [bool; 2] {
        core::array::from_fn(|row| {
            let (down, _) = wgmma::d(s.thread() % GROUP_LANES, 2 * row as u32);
            let group = s.warp() / GROUP_WARPS;
            self.same().sees_few(self.problem.start + place.first_row + group * GROUP_ROWS + down)
        })
    }

    /// O / l of the head's rows that exist to memory, two elements at a time: four lanes write whole sectors. The sum
    /// of a row is put together from its four lanes.
    ///
    /// # Safety
    /// The rows are the warp group's alone.
    #[inline(always)]
    #[track_caller]
    unsafe fn store<S: Hopper>(&self, s: S, (head, first_row): (u32, u32), sum: [f32; 2], out: &[f32; OUT]) {
        let inverse = sum.map(|sum| {
            let sum = sum + s.shuffle_xor(sum, 1);
            let sum = sum + s.shuffle_xor(sum, 2);
            // A row that saw nothing has O = 0, and stays so.
            if sum > 0.0 { s.reciprocal_approx(sum) } else { 0.0 }
        });
        let stride = self.problem.heads().wrapping_mul(HEAD_SIZE);
        let group = s.warp() / GROUP_WARPS;
        let (down, right) = wgmma::d(s.thread() % GROUP_LANES, 0);
        for below in 0..2_u32 {
            let row = first_row + group * GROUP_ROWS + down + 8 * below;
            if row >= self.problem.tokens {
                continue;
            }
            let to = self.problem.out.row(row, stride).at(u64::from(head * HEAD_SIZE + right));
            let inverse = inverse[below as usize];
            for eight in 0..OUT / 4 {
                let i = 4 * eight + 2 * below as usize;
                // SAFETY: the caller's; the row exists.
                unsafe {
                    s.store_global(to.at(8 * eight as u64).cast(), [out[i] * inverse, out[i + 1] * inverse])
                };
            }
        }
    }
}

/// Multiplies each of a lane's two rows of an accumulator with its factor.
#[inline(always)]
fn scale<const N: usize>(accumulator: &mut [f32; N], factors: [f32; 2]) {
    for i in 0..N {
        accumulator[i] *= factors[row_of(i)];
    }
}

/// An accumulator as left operands, rounded to f16: eight elements are the A of 16 columns.
#[inline(always)]
#[track_caller]
fn operands<S: Hopper, const N: usize>(s: S, x: &[f32; N]) -> Operands {
    let mut operands = [[0; 4]; MOST_STEPS];
    for step in 0..N / 8 {
        for i in 0..4 {
            operands[step][i] = s.f16x2_from_f32(x[8 * step + 2 * i], x[8 * step + 2 * i + 1]);
        }
    }
    operands
}

/// What [`operands`] lose of the elements in the rows where it is wanted, as operands.
#[inline(always)]
#[track_caller]
fn rests<S: Hopper, const N: usize>(s: S, x: &[f32; N], wanted: [bool; 2]) -> Operands {
    let mut rests = [[0; 4]; MOST_STEPS];
    for step in 0..N / 8 {
        for i in 0..4 {
            let at = 8 * step + 2 * i;
            let [low, high] = s.f32_from_f16x2(s.f16x2_from_f32(x[at], x[at + 1]));
            let lost = s.f16x2_from_f32(x[at] - low, x[at + 1] - high);
            rests[step][i] = if wanted[row_of(at)] { lost } else { 0 };
        }
    }
    rests
}
