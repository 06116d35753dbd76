//! The words of sm_90a: memory barriers, bulk copies, `wgmma`.

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

use super::Sm90a;
#[cfg(not(target_arch = "nvptx64"))]
use super::unassembled::asm;
use crate::simt::{Global, Hopper, Layout, MatrixDescriptor, Shared};

/// One `match` arm for every width: `wgmma` with as many accumulators as the arm's list.
///
/// The lists are given as what each adds to the one before, and grow on the way.
macro_rules! wgmma {
    ($d:expr, $a:tt, $b:expr, $accumulate:expr, $trans:tt; $($shape:literal + [$($more:literal)*])*) => {
        wgmma!(@grow $d, $a, $b, $accumulate, $trans; [] {} $($shape + [$($more)*])*)
    };
    (@grow $d:expr, $a:tt, $b:expr, $accumulate:expr, $trans:tt; [$($have:literal)*] {$($arms:tt)*}
        $shape:literal + [$($more:literal)*] $($rest:tt)*
    ) => {
        wgmma!(@grow $d, $a, $b, $accumulate, $trans; [$($have)* $($more)*] {
            $($arms)* [$shape $($have)* $($more)*]
        } $($rest)*)
    };
    (@grow $d:expr, $a:tt, $b:expr, $accumulate:expr, $trans:tt; [$($have:literal)*]
        {$([$shape:literal $first:literal $($index:literal)*])*}
    ) => {
        $(if REGISTERS == const { 1 $(+ { let _ = $index; 1 })* } {
            const COUNT: usize = 1 $(+ { let _ = $index; 1 })*;
            // SAFETY: `d` has exactly so many elements.
            let d = unsafe { &mut *core::ptr::from_mut($d).cast::<[f32; COUNT]>() };
            wgmma!(@instruction $shape, d, [$first $($index)*], $a, $b, $accumulate, $trans);
            return;
        })*
    };
    (@instruction $shape:literal, $d:ident, [$first:literal $($index:literal)*], {$a:ident}, $b:expr,
        $accumulate:expr, [$ta:expr, $tb:expr]
    ) => {
        // SAFETY: the caller's.
        unsafe {
            asm!(concat!("{{ .reg .pred p; setp.ne.b32 p, {accumulate}, 0; ",
                    "wgmma.mma_async.sync.aligned.", $shape, "k16.f32.f16.f16 ",
                    "{{{", $first, "}" $(, ", {", $index, "}")*, "}}, {a}, {b}, p, 1, 1, {ta}, {tb}; }}"),
                inout(reg32) $d[$first], $(inout(reg32) $d[$index],)*
                a = in(reg64) $a.bits(), b = in(reg64) $b.bits(), accumulate = in(reg32) u32::from($accumulate),
                ta = const $ta, tb = const $tb, options(nostack));
        }
    };
    (@instruction $shape:literal, $d:ident, [$first:literal $($index:literal)*], [$a:ident], $b:expr,
        $accumulate:expr, [$tb:expr]
    ) => {
        // SAFETY: the caller's.
        unsafe {
            asm!(concat!("{{ .reg .pred p; setp.ne.b32 p, {accumulate}, 0; ",
                    "wgmma.mma_async.sync.aligned.", $shape, "k16.f32.f16.f16 ",
                    "{{{", $first, "}" $(, ", {", $index, "}")*, "}}, ",
                    "{{{a0}, {a1}, {a2}, {a3}}}, {b}, p, 1, 1, {tb}; }}"),
                inout(reg32) $d[$first], $(inout(reg32) $d[$index],)*
                a0 = in(reg32) $a[0], a1 = in(reg32) $a[1], a2 = in(reg32) $a[2], a3 = in(reg32) $a[3],
                b = in(reg64) $b.bits(), accumulate = in(reg32) u32::from($accumulate),
                tb = const $tb, options(nostack));
        }
    };
}

/// The widths that are in use, as what each adds to the one before.
macro_rules! wgmma_widths {
    ($($head:tt)*) => {
        const { assert!(matches!(REGISTERS, 4 | 8 | 16 | 32 | 48 | 64 | 96 | 120 | 128), "no such width of wgmma") };
        wgmma! { $($head)*;
            "m64n8" + [0 1 2 3]
            "m64n16" + [4 5 6 7]
            "m64n32" + [8 9 10 11 12 13 14 15]
            "m64n64" + [16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31]
            "m64n96" + [32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47]
            "m64n128" + [48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63]
            "m64n192" + [64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79
                80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95]
            "m64n240" + [96 97 98 99 100 101 102 103 104 105 106 107 108 109 110 111
                112 113 114 115 116 117 118 119]
            "m64n256" + [120 121 122 123 124 125 126 127]
        }
    };
}

impl<M: Sm90a> Hopper for M {
    #[inline(always)]
    unsafe fn mbarrier_init(self, barrier: Shared<u64>, arrivals: u32) {
        // SAFETY: the caller's; so for all words below that take an address.
        unsafe {
            asm!("mbarrier.init.shared.b64 [{}], {};", in(reg32) barrier.address(), in(reg32) arrivals,
                options(nostack));
        }
    }

    #[inline(always)]
    fn fence_mbarrier_init(self) {
        // SAFETY: a fence; so for those below, and for the words that only wait.
        unsafe {
            asm!("fence.mbarrier_init.release.cluster;", options(nostack));
        }
    }

    #[inline(always)]
    unsafe fn mbarrier_arrive(self, barrier: Shared<u64>) {
        // SAFETY: as above.
        unsafe {
            asm!("mbarrier.arrive.shared.b64 _, [{}];", in(reg32) barrier.address(), options(nostack));
        }
    }

    #[inline(always)]
    unsafe fn mbarrier_arrive_expect(self, barrier: Shared<u64>, bytes: u32) {
        // SAFETY: as above.
        unsafe {
            asm!("mbarrier.arrive.expect_tx.shared.b64 _, [{}], {};", in(reg32) barrier.address(),
                in(reg32) bytes, options(nostack));
        }
    }

    #[inline(always)]
    unsafe fn mbarrier_expect(self, barrier: Shared<u64>, bytes: u32) {
        // SAFETY: as above.
        unsafe {
            asm!("mbarrier.expect_tx.relaxed.cta.shared.b64 [{}], {};", in(reg32) barrier.address(),
                in(reg32) bytes, options(nostack));
        }
    }

    #[inline(always)]
    unsafe fn mbarrier_wait(self, barrier: Shared<u64>, parity: u32) {
        loop {
            let done: u32;
            // SAFETY: as above.
            unsafe {
                asm!("{{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [{}], {}; selp.b32 {}, 1, 0, p; }}",
                    in(reg32) barrier.address(), in(reg32) parity, out(reg32) done, options(nostack));
            }
            if done != 0 {
                return;
            }
        }
    }

    #[inline(always)]
    unsafe fn bulk_load<T>(self, to: Shared<T>, from: Global<T>, bytes: u32, barrier: Shared<u64>) {
        // SAFETY: as above.
        unsafe {
            asm!("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{}], [{}], {}, [{}];",
                in(reg32) to.address(), in(reg64) from.address(), in(reg32) bytes,
                in(reg32) barrier.address(), options(nostack));
        }
    }

    #[inline(always)]
    unsafe fn bulk_store<T>(self, to: Global<T>, from: Shared<T>, bytes: u32) {
        // SAFETY: as above.
        unsafe {
            asm!("cp.async.bulk.global.shared::cta.bulk_group [{}], [{}], {};", in(reg64) to.address(),
                in(reg32) from.address(), in(reg32) bytes, options(nostack));
        }
    }

    #[inline(always)]
    fn bulk_commit(self) {
        // SAFETY: as above.
        unsafe {
            asm!("cp.async.bulk.commit_group;", options(nostack));
        }
    }

    #[inline(always)]
    fn bulk_wait_read<const PENDING: u32>(self) {
        // SAFETY: as above.
        unsafe {
            asm!("cp.async.bulk.wait_group.read {};", const PENDING, options(nostack));
        }
    }

    #[inline(always)]
    unsafe fn take_registers<const REGISTERS: u32>(self) {
        // SAFETY: the caller's: a whole warp group does so.
        unsafe {
            asm!("setmaxnreg.inc.sync.aligned.u32 {};", const REGISTERS, options(nostack));
        }
    }

    #[inline(always)]
    unsafe fn give_registers<const REGISTERS: u32>(self) {
        // SAFETY: the caller's: a whole warp group does so, and needs no more; `ptxas` sees the number.
        unsafe {
            asm!("setmaxnreg.dec.sync.aligned.u32 {};", const REGISTERS, options(nostack));
        }
    }

    #[inline(always)]
    fn fence_proxy_async(self) {
        // SAFETY: as above.
        unsafe {
            asm!("fence.proxy.async.shared::cta;", options(nostack));
        }
    }

    #[inline(always)]
    fn wgmma_fence(self) {
        // SAFETY: as above.
        unsafe {
            asm!("wgmma.fence.sync.aligned;", options(nostack));
        }
    }

    #[inline(always)]
    fn wgmma_commit(self) {
        // SAFETY: as above.
        unsafe {
            asm!("wgmma.commit_group.sync.aligned;", options(nostack));
        }
    }

    #[inline(always)]
    fn wgmma_wait<const PENDING: u32>(self) {
        // SAFETY: as above.
        unsafe {
            asm!("wgmma.wait_group.sync.aligned {};", const PENDING, options(nostack));
        }
    }

    #[inline(always)]
    unsafe fn wgmma_f16<A: Layout, B: Layout, const REGISTERS: usize>(
        self,
        d: &mut [f32; REGISTERS],
        a: MatrixDescriptor,
        b: MatrixDescriptor,
        accumulate: bool,
    ) {
        // Not transposed means that K is contiguous: rows of A, columns of B.
        wgmma_widths!(d, { a }, b, accumulate, [!A::ROW_MAJOR as i32, B::ROW_MAJOR as i32]);
    }

    #[inline(always)]
    unsafe fn wgmma_f16_register_a<B: Layout, const REGISTERS: usize>(
        self,
        d: &mut [f32; REGISTERS],
        a: [u32; 4],
        b: MatrixDescriptor,
        accumulate: bool,
    ) {
        wgmma_widths!(d, [a], b, accumulate, [B::ROW_MAJOR as i32]);
    }
}
