//! `probe_map_f16`, `probe_map_bf16`, `probe_map_s8`: the lane maps of `mma`, found by asking.
//!
//! `mma` takes registers and gives registers; nothing of it ever lies in memory, where one could
//! look at it. These kernels find out by products where each element is, and use no map of
//! [`mma`] for it.
//!
//! # What can be known
//!
//! Rename the rows of A and of D alike, or the columns of B and of D, or the k of A and of B, and
//! the instruction is still the same: registers alone have no rows. They get them from memory. Row m
//! of A is what `ldmatrix` loads from row m of a tile there, with the lanes pointing as
//! [`ldmatrix::a_address`] says for a row-major A, and column n of B is row n of another tile,
//! as [`ldmatrix::b_address`] says for a column-major B; that is how every kernel loads them, and
//! what `ldmatrix` itself puts where is dumped by [`ProbeLoads`](super::ProbeLoads). All the rest is
//! measured: which row and column each place of C and D has, which element each place of A and B is,
//! and with that, that both operands number k alike.
//!
//! # The questions
//!
//! Each block asks one, with one product; [`Questions`] numbers them. A *place* is a lane and its
//! i-th element. "Memory" means loaded from a tile as above, "ones" that every element is 1,
//! wherever it may be. All numbers are small integers, exact in every type.
//!
//! ```text
//! A                        B                        C          so each place of D says
//! memory: m + 1 in row m   ones                     0          depth · (its row + 1)
//! ones                     memory: n + 1 in col n   0          depth · (its column + 1)
//! 0                        0                        its own    its own number: C lies as D does
//!                                                   number
//! 1 in one place, else 0   memory: k + 1 in row k   0          k + 1 in the place's row, else 0
//! memory: k + 1 in col k   1 in one place, else 0   0          k + 1 in the place's column, else 0
//! ```
//!
//! The first two know nothing of k, for it is summed over: they give D its rows and columns. The
//! last two are asked for every place, and read by what the first two have said.

use crate::fragment::{Fragment, RowMajor, WARP_LANES, ldmatrix, mma};
use crate::simt::{
    Ampere, ColMajor, Contract, Count, Dim3, Expectations, Global, Kernel, Launch, Occurrence, Simt, Word,
};

/// Bytes of a row of either tile: 16 elements of 16 bits, or 32 of 8.
const ROW_BYTES: u32 = 32;
/// 32-bit words of a row.
const ROW_WORDS: u32 = ROW_BYTES / 4;
/// Rows of A's tile.
const ROWS: u32 = 16;
/// Columns of B, rows of its tile.
const COLUMNS: u32 = 8;
/// Both tiles.
const SHARED_BYTES: u32 = (ROWS + COLUMNS) * ROW_BYTES;
/// Registers of a lane's share of D.
const SUMS: u32 = 4;

/// Which block asks which question.
#[derive(Clone, Copy, Debug)]
pub struct Questions {
    /// Elements of A that a lane holds.
    a: u32,
    /// Elements of B that a lane holds.
    b: u32,
}

impl Questions {
    /// The rows of D.
    pub const ROWS: u32 = 0;
    /// The columns of D.
    pub const COLUMNS: u32 = 1;
    /// Whether C lies as D does: place i of lane l holds `4 l + i + 1`.
    pub const KEPT: u32 = 2;
    /// The first place of A.
    const PLACES: u32 = 3;

    /// Those about these operands.
    const fn about(a: Fragment, b: Fragment) -> Self {
        Self { a: a.elements, b: b.elements }
    }

    /// Where element `i` of a lane's A is.
    #[must_use]
    pub const fn a(self, lane: u32, i: u32) -> u32 {
        Self::PLACES + lane * self.a + i
    }

    /// Where element `i` of a lane's B is.
    #[must_use]
    pub const fn b(self, lane: u32, i: u32) -> u32 {
        self.a(WARP_LANES, 0) + lane * self.b + i
    }

    /// How many there are.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.b(WARP_LANES, 0)
    }
}

/// A lane's registers of an operand that is 1 in one place and 0 elsewhere. Places are numbered lane
/// by lane, `PER` to a register; a number that is none of a place gives zeros.
#[inline(always)]
pub(super) fn single<const PER: u32, const N: usize>(lane: u32, place: u32, one: u32) -> [u32; N] {
    let held = place.wrapping_sub(lane * (N as u32 * PER));
    let bits = one << (32 / PER * (held % PER));
    core::array::from_fn(|r| if held / PER == r as u32 { bits } else { 0 })
}

/// Asks the block's question and stores the lane's share of the answer. `PER` elements of an operand
/// fit into a register; `number` gives the bits of a small number as such an element.
///
/// # Safety
/// Called by the one warp of each block of a launch of [`Questions::count`] blocks with
/// [`SHARED_BYTES`]; `d` has `count` × 4 × 32 elements.
#[inline(always)]
unsafe fn ask<S: Simt, T: Word, const PER: u32>(
    s: S,
    d: Global<T>,
    questions: Questions,
    number: impl Fn(u32) -> u32,
    sum: impl Fn(u32) -> T,
    product: impl FnOnce([u32; 4], [u32; 2], [T; SUMS as usize]) -> [T; SUMS as usize],
) {
    let (question, lane) = (s.block().x, s.lane());
    let [rows, columns, kept] =
        [Questions::ROWS, Questions::COLUMNS, Questions::KEPT].map(|asked| question == asked);
    let register = |element: fn(u32, u32) -> u32, of: u32| -> u32 {
        (0..PER).fold(0, |bits, j| bits | number(element(of, j)) << (32 / PER * j))
    };
    let same = |of: u32| register(|of, _| of, of);
    let counting = |from: u32| register(|from, j| from + j, from);

    let tiles = s.shared::<u32>();
    let b_tile = tiles.row(ROWS, ROW_WORDS);
    // SAFETY: words of the two tiles, each lane's own; ldmatrix comes after the barrier and points
    // at their rows.
    let (a, b) = unsafe {
        let mut i = lane;
        while i < (ROWS + COLUMNS) * ROW_WORDS {
            // B's rows follow on A's, and are counted like them.
            let (row, word) = (i / ROW_WORDS % ROWS, i % ROW_WORDS);
            let value = if rows || columns { same(row + 1) } else { counting(word * PER + 1) };
            s.store_shared(tiles.at(i), value);
            i += WARP_LANES;
        }
        s.barrier();
        let at = |(row, half): (u32, u32)| row * ROW_BYTES + 2 * half;
        let a = tiles.cast::<u8>().at(at(ldmatrix::a_address::<RowMajor>(lane)));
        // Sixteen lanes point at B; the others as they do.
        let b = b_tile.cast::<u8>().at(at(ldmatrix::b_address::<ColMajor>(lane % 16)));
        (s.ldmatrix::<4, _>(a), s.ldmatrix::<2, _>(b))
    };

    let (a_first, b_first) = (questions.a(0, 0), questions.b(0, 0));
    let (about_a, about_b) = (question >= a_first && question < b_first, question >= b_first);
    let (one, ones) = (number(1), same(1));
    let a = if rows || about_b {
        a
    } else if columns {
        [ones; 4]
    } else {
        single::<PER, 4>(lane, question.wrapping_sub(a_first), one)
    };
    let b = if columns || about_a {
        b
    } else if rows {
        [ones; 2]
    } else {
        single::<PER, 2>(lane, question.wrapping_sub(b_first), one)
    };
    let own = |i: usize| if kept { SUMS * lane + i as u32 + 1 } else { 0 };
    let sums = product(a, b, core::array::from_fn(|i| sum(own(i))));
    for (i, &value) in sums.iter().enumerate() {
        // SAFETY: the caller's.
        unsafe { s.store_global(d.row(question * SUMS + i as u32, WARP_LANES).at(u64::from(lane)), value) }
    }
}

macro_rules! probe {
    (
        $(#[$doc:meta])* $Name:ident, $name:literal on $Machine:ident: $instruction:literal;
        $a:ident, $b:ident, $d:ident, sums of $Sum:ty;
        $number:expr; $sum:expr; $product:expr
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
        #[repr(C)]
        pub struct $Name {
            /// What each place of D says: element `32 (4 q + i) + l` is place i of lane l in the answer
            /// to question q. [`QUESTIONS`](Self::QUESTIONS) × 4 × 32.
            pub d: Global<$Sum>,
        }

        impl $Name {
            /// The operands.
            pub const A: Fragment = mma::$a;
            /// The operands.
            pub const B: Fragment = mma::$b;
            /// The accumulators, C and D.
            pub const D: Fragment = mma::$d;
            /// What is asked.
            pub const QUESTIONS: Questions = Questions::about(Self::A, Self::B);
            /// Elements of `d`.
            pub const ANSWERS: u32 = Self::QUESTIONS.count() * SUMS * WARP_LANES;
        }

        impl Contract for $Name {
            const NAME: &'static str = $name;
            const EXPECTATIONS: Expectations = Expectations {
                instructions: &[
                    Occurrence::new($instruction, Count::Exactly(1)).since(80),
                    Occurrence::new("ldmatrix", Count::Exactly(2)),
                ],
                registers: 64,
                local_memory: false,
            };

            fn launch(&self) -> Launch {
                let grid = Dim3::linear(Self::QUESTIONS.count());
                Launch { grid, threads: WARP_LANES, shared_bytes: SHARED_BYTES }
            }
        }

        impl<S: $Machine> Kernel<S> for $Name {
            #[inline(always)]
            unsafe fn run(self, s: S) {
                const PER: u32 = $Name::A.per_register();
                // SAFETY: the launch is the contract's, and `d` as long as it is documented.
                unsafe {
                    ask::<S, $Sum, PER>(s, self.d, Self::QUESTIONS, $number(s), $sum, |a, b, c| {
                        $product(s, a, b, c)
                    });
                }
            }
        }
    };
}

probe! {
    /// The arguments of `probe_map_f16`: m16n8k16, f16.
    ProbeMapF16, "probe_map_f16" on Simt: "mma.sync.aligned.m16n8k16.row.col.f32.f16";
    A_F16, B_F16, C_F32, sums of f32;
    |s: S| move |n| u32::from(s.f16_from_f32(n as f32).to_bits());
    |n| n as f32;
    |s: S, a, b, c| s.mma_m16n8k16_f16(a, b, c)
}

probe! {
    /// The arguments of `probe_map_bf16`: m16n8k16, bf16.
    ProbeMapBf16, "probe_map_bf16" on Ampere: "mma.sync.aligned.m16n8k16.row.col.f32.bf16";
    A_F16, B_F16, C_F32, sums of f32;
    |s: S| move |n| s.bf16x2_from_f32(n as f32, 0.0);
    |n| n as f32;
    |s: S, a, b, c| s.mma_m16n8k16_bf16(a, b, c)
}

probe! {
    /// The arguments of `probe_map_s8`: m16n8k32, signed bytes.
    ProbeMapS8, "probe_map_s8" on Simt: "mma.sync.aligned.m16n8k32";
    A_S8, B_S8, C_S32, sums of i32;
    |_| |n| n;
    |n| n as i32;
    |s: S, a, b, c| s.mma_m16n8k32_s8(a, b, c)
}
