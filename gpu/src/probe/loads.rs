//! `probe_loads`: every load of a fragment from shared memory, and every register that it
//! fills.
//!
//! One warp writes the numbers 0 to 255 into shared memory, once as 16-bit elements and once
//! as 32-bit ones, loads them with each instruction and writes its registers to `out`: register
//! `r` of lane `l` is `out[32 r + l]`, and [`ProbeLoads::DUMPS`] says which registers are whose.
//! An element's value is where it lay in memory, so the registers *are* the lane map.
//!
//! The other way round, it fills an accumulator with `x[i] = 8 · lane + i` and stores it by
//! rows and by columns: `stored` then says of each element who held it.
//!
//! # Shared memory
//!
//! ```text
//! byte    0 256 elements of 16 bits: 16 rows of 16 for wmma, 32 rows of 8 for ldmatrix
//!       512 256 elements of 32 bits: 16 rows of 16
//!      1536 end
//! ```

use half::f16;

use crate::fragment::{Fragment, WARP_LANES, ldmatrix, wmma};
use crate::simt::{
    ColMajor, Contract, Count, Dim3, Expectations, Global, Kernel, Launch, Occurrence, Probing, RowMajor,
    Simt,
};

/// Elements of a tile.
const ELEMENTS: u32 = 256;
/// Elements from one row of a 16 × 16 tile to the next.
const STRIDE: u32 = 16;
/// Where the tile of 32-bit elements begins, in bytes.
const WORDS_AT: u32 = ELEMENTS * 2;
/// Both tiles.
const SHARED_BYTES: u32 = WORDS_AT + ELEMENTS * 4;

/// The registers that one instruction filled.
#[derive(Clone, Copy, Debug)]
pub struct Dump {
    /// Whose lane map they show.
    pub fragment: Fragment,
    /// The first of them. There are [`Fragment::registers`], copies included.
    pub first: u32,
    /// Whether the tile lay by rows in memory.
    pub row_major: bool,
}

/// The arguments of `probe_loads`.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct ProbeLoads {
    /// [`REGISTERS`](Self::REGISTERS) × 32.
    pub out: Global<u32>,
    /// 2 × 256, aligned to 32 bytes: an accumulator by rows, then one by columns.
    pub stored: Global<f32>,
}

impl ProbeLoads {
    /// Registers of a lane that are dumped.
    pub const REGISTERS: u32 = Self::DUMPS[11].first + Self::DUMPS[11].fragment.registers();

    /// What is dumped, in the order of the registers.
    pub const DUMPS: [Dump; 12] = {
        const fn dump(fragment: Fragment, first: u32, row_major: bool) -> Dump {
            Dump { fragment, first, row_major }
        }
        [
            dump(wmma::A_ROW, 0, true),
            dump(wmma::A_COL, 8, false),
            dump(wmma::B_ROW, 16, true),
            dump(wmma::B_COL, 24, false),
            dump(wmma::ACCUMULATOR, 32, true),
            dump(wmma::ACCUMULATOR, 40, false),
            dump(ldmatrix::X1, 48, true),
            dump(ldmatrix::X1_TRANS, 49, true),
            dump(ldmatrix::X2, 50, true),
            dump(ldmatrix::X2_TRANS, 52, true),
            dump(ldmatrix::X4, 54, true),
            dump(ldmatrix::X4_TRANS, 58, true),
        ]
    };

    /// Writes `registers` as those from `first` on.
    ///
    /// # Safety
    /// `out` has them.
    #[inline(always)]
    unsafe fn dump<S: Simt, const N: usize>(self, s: S, first: u32, registers: [u32; N]) {
        for (r, &register) in registers.iter().enumerate() {
            // SAFETY: the caller's.
            unsafe {
                s.store_global(self.out.row(first + r as u32, WARP_LANES).at(u64::from(s.lane())), register);
            }
        }
    }
}

impl Contract for ProbeLoads {
    const NAME: &'static str = "probe_loads";
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[
            Occurrence::new("wmma.load", Count::Exactly(6)),
            Occurrence::new("wmma.store", Count::Exactly(2)),
            Occurrence::new("ldmatrix", Count::Exactly(6)),
        ],
        registers: 64,
        local_memory: false,
    };

    fn launch(&self) -> Launch {
        Launch { grid: Dim3::linear(1), threads: WARP_LANES, shared_bytes: SHARED_BYTES }
    }
}

impl<S: Probing> Kernel<S> for ProbeLoads {
    #[inline(always)]
    unsafe fn run(self, s: S) {
        let halves = s.shared::<u16>();
        let words = s.shared::<u8>().at(WORDS_AT).cast::<u32>();
        let (tile, tile_f32) = (halves.cast::<f16>(), words.cast::<f32>());
        let row = halves.row(s.lane(), 8);

        // SAFETY: both tiles are written as a whole before the barrier and only read after it;
        // all addresses lie in them, and `out` and `stored` are as long as they are documented.
        unsafe {
            let mut i = s.lane();
            while i < ELEMENTS {
                s.store_shared(halves.at(i), i as u16);
                s.store_shared(words.at(i), i);
                i += WARP_LANES;
            }
            s.barrier();

            self.dump(s, 0, s.wmma_load_a_whole::<RowMajor>(tile, STRIDE));
            self.dump(s, 8, s.wmma_load_a_whole::<ColMajor>(tile, STRIDE));
            self.dump(s, 16, s.wmma_load_b_whole::<RowMajor>(tile, STRIDE));
            self.dump(s, 24, s.wmma_load_b_whole::<ColMajor>(tile, STRIDE));
            self.dump(s, 32, s.wmma_load_c::<RowMajor>(tile_f32, STRIDE).map(f32::to_bits));
            self.dump(s, 40, s.wmma_load_c::<ColMajor>(tile_f32, STRIDE).map(f32::to_bits));
            self.dump(s, 48, s.ldmatrix::<1, _>(row));
            self.dump(s, 49, s.ldmatrix_trans::<1, _>(row));
            self.dump(s, 50, s.ldmatrix::<2, _>(row));
            self.dump(s, 52, s.ldmatrix_trans::<2, _>(row));
            self.dump(s, 54, s.ldmatrix::<4, _>(row));
            self.dump(s, 58, s.ldmatrix_trans::<4, _>(row));

            let x = core::array::from_fn(|i| (8 * s.lane() + i as u32) as f32);
            s.wmma_store_global::<RowMajor>(self.stored, STRIDE, x);
            s.wmma_store_global::<ColMajor>(self.stored.at(u64::from(ELEMENTS)), STRIDE, x);
        }
    }
}
