//! `probe_wmma`, `probe_mma_f16`, `probe_mma_s8`: one tensor-core product of one warp on
//! registers that the host has filled.
//!
//! `D = A · B + C`. The host deals matrices out to the lanes by the maps of
//! [`fragment`](crate::fragment) and gathers D by them: a map that is not the machine's gives a
//! wrong product. Register `r` of lane `l` is element `32 r + l` of each array.

use crate::fragment::WARP_LANES;
use crate::simt::{
    Contract, Count, Dim3, Expectations, Global, Kernel, Launch, MatrixA, MatrixB, Occurrence, RowMajor,
    Simt, Word,
};

const LAUNCH: Launch = Launch { grid: Dim3::linear(1), threads: WARP_LANES, shared_bytes: 0 };

/// The lane's `N` registers at `from`.
///
/// # Safety
/// There are `N` × 32.
#[inline(always)]
unsafe fn load<S: Simt, T: Word, const N: usize>(s: S, from: Global<T>) -> [T; N] {
    core::array::from_fn(|r| {
        // SAFETY: the caller's.
        unsafe { s.load_global_constant(from.row(r as u32, WARP_LANES).at(u64::from(s.lane()))) }
    })
}

/// Stores the lane's `N` registers at `to`.
///
/// # Safety
/// There is room for `N` × 32.
#[inline(always)]
unsafe fn store<S: Simt, T: Word, const N: usize>(s: S, to: Global<T>, registers: [T; N]) {
    for (r, &register) in registers.iter().enumerate() {
        // SAFETY: the caller's.
        unsafe { s.store_global(to.row(r as u32, WARP_LANES).at(u64::from(s.lane())), register) }
    }
}

macro_rules! product {
    (
        $(#[$doc:meta])* $Name:ident, $name:literal: $instruction:literal, sums of $sum:ty;
        registers of a: $a:literal, of b: $b:literal, of c and d: $c:literal;
        $product:expr
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
        #[repr(C)]
        pub struct $Name {
            #[doc = concat!("D: ", $c, " × 32, not overlapping the others.")]
            pub d: Global<$sum>,
            #[doc = concat!("A: ", $a, " × 32.")]
            pub a: Global<u32>,
            #[doc = concat!("B: ", $b, " × 32.")]
            pub b: Global<u32>,
            #[doc = concat!("C: ", $c, " × 32.")]
            pub c: Global<$sum>,
        }

        impl Contract for $Name {
            const NAME: &'static str = $name;
            const EXPECTATIONS: Expectations = Expectations {
                instructions: &[Occurrence::new($instruction, Count::Exactly(1)).since(80)],
                registers: 64,
                local_memory: false,
            };

            fn launch(&self) -> Launch {
                LAUNCH
            }
        }

        impl<S: Simt> Kernel<S> for $Name {
            #[inline(always)]
            unsafe fn run(self, s: S) {
                // SAFETY: the four arrays are as long as they are documented.
                unsafe {
                    let (a, b) = (load::<S, u32, $a>(s, self.a), load::<S, u32, $b>(s, self.b));
                    let c = load::<S, $sum, $c>(s, self.c);
                    store::<S, $sum, $c>(s, self.d, $product(s, a, b, c));
                }
            }
        }
    };
}

product! {
    /// The arguments of `probe_wmma`: m16n16k16, f16.
    ProbeWmma, "probe_wmma": "wmma.mma", sums of f32;
    registers of a: 4, of b: 4, of c and d: 8;
    |s: S, a, b, c| {
        let (a, b) = (MatrixA::<RowMajor>::from_registers(a), MatrixB::<RowMajor>::from_registers(b));
        s.wmma_mma(a, b, c)
    }
}

product! {
    /// The arguments of `probe_mma_f16`: m16n8k16, f16.
    ProbeMmaF16, "probe_mma_f16": "mma.sync.aligned.m16n8k16", sums of f32;
    registers of a: 4, of b: 2, of c and d: 4;
    |s: S, a, b, c| s.mma_m16n8k16_f16(a, b, c)
}

product! {
    /// The arguments of `probe_mma_s8`: m16n8k32, signed bytes.
    ProbeMmaS8, "probe_mma_s8": "mma.sync.aligned.m16n8k32", sums of i32;
    registers of a: 4, of b: 2, of c and d: 4;
    |s: S, a, b, c| s.mma_m16n8k32_s8(a, b, c)
}
