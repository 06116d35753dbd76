//! The words as inline PTX, for every compiler that makes a GPU's code.
//!
//! What a word promises stands at the trait; here stands how. What a compiler has a way of its
//! own for is asked of it: [`Intrinsics`], which `nvptx` answers with LLVM's intrinsics and
//! `nvvm` with `cuda_std`.
//!
//! # Three rules of this file
//!
//! - *Words that join lanes must not be duplicated.* A compiler knows nothing of what is inside
//!   `asm!`, and may move two copies of it into the two arms of a divergent branch, where a
//!   barrier is no barrier. Barriers, shuffles and votes are therefore [`Intrinsics`]. LLVM has
//!   none for `ldmatrix`, `wmma` and `mma` that Rust could call; those are `asm!`, and the
//!   kernel build turns off the passes that duplicate (see `LLVM_ARGS` in `build/rustc.rs`).
//! - *Words that touch memory are not `pure`*, so that they stay in the order in which the
//!   kernel has them, prefetches included. Own-lane arithmetic is `pure, nomem`.
//! - *Nothing can fail.* A panic path would leave an unresolved function in the PTX.
//!
//! On the host nothing of it runs; there `asm!` is a macro that only checks the operands' types.

mod hopper;
#[cfg(not(target_arch = "nvptx64"))]
pub(super) mod unassembled;

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;
use core::mem::transmute_copy;

use half::f16;
#[cfg(not(target_arch = "nvptx64"))]
use unassembled::asm;

use super::{
    Accumulator, Ampere, Dim3, Global, Layout, MatrixA, MatrixB, Probing, Shared, Simt, Word, Word32,
};

/// What a compiler does in its own way: where a lane is, and what joins lanes.
///
/// Each is the word of [`Simt`] with this name, on plain registers, and promises what that does.
pub trait Intrinsics: Copy {
    /// The architecture that is compiled for: 75 for sm_75.
    const SM: u32;

    /// See [`Simt::thread`].
    fn thread() -> u32;
    /// See [`Simt::threads`].
    fn threads() -> u32;
    /// See [`Simt::block`].
    fn block() -> Dim3;
    /// See [`Simt::grid`].
    fn grid() -> Dim3;
    /// See [`Simt::barrier`].
    fn barrier();
    /// See [`Simt::barrier_named`].
    fn barrier_named(id: u32, threads: u32);
    /// See [`Simt::barrier_arrive`].
    fn barrier_arrive(id: u32, threads: u32);
    /// See [`Simt::warp_sync`].
    fn warp_sync();
    /// The address that [`Simt::shared`] gives.
    fn shared() -> u32;
    /// See [`Simt::shuffle`].
    fn shuffle(value: u32, source: u32) -> u32;
    /// See [`Simt::shuffle_up`].
    fn shuffle_up(value: u32, by: u32) -> u32;
    /// See [`Simt::shuffle_down`].
    fn shuffle_down(value: u32, by: u32) -> u32;
    /// See [`Simt::shuffle_xor`].
    fn shuffle_xor(value: u32, mask: u32) -> u32;
    /// See [`Simt::ballot`].
    fn ballot(predicate: bool) -> u32;
    /// See [`Simt::any`].
    fn any(predicate: bool) -> bool;
    /// See [`Simt::all`].
    fn all(predicate: bool) -> bool;
}

/// Those for which [`Intrinsics::SM`] is 80 or more.
pub trait Sm80: Intrinsics {}

/// Those that compile for sm_90a, and for no other.
pub trait Sm90a: Sm80 {}

/// Loads a `T` with the instruction of its size.
macro_rules! load {
    ($instruction:literal, $class:ident, $address:expr) => {{
        let address = $address;
        match size_of::<T>() {
            1 => {
                let v: u16;
                asm!(concat!($instruction, ".u8 {v}, [{a}];"), v = out(reg16) v, a = in($class) address,
                    options(readonly, nostack));
                transmute_copy(&(v as u8))
            }
            2 => {
                let v: u16;
                asm!(concat!($instruction, ".u16 {v}, [{a}];"), v = out(reg16) v, a = in($class) address,
                    options(readonly, nostack));
                transmute_copy(&v)
            }
            4 => {
                let v: u32;
                asm!(concat!($instruction, ".b32 {v}, [{a}];"), v = out(reg32) v, a = in($class) address,
                    options(readonly, nostack));
                transmute_copy(&v)
            }
            8 => {
                let (x, y): (u32, u32);
                asm!(concat!($instruction, ".v2.b32 {{{x}, {y}}}, [{a}];"),
                    x = out(reg32) x, y = out(reg32) y, a = in($class) address, options(readonly, nostack));
                transmute_copy(&[x, y])
            }
            _ => {
                let (x, y, z, w): (u32, u32, u32, u32);
                asm!(concat!($instruction, ".v4.b32 {{{x}, {y}, {z}, {w}}}, [{a}];"),
                    x = out(reg32) x, y = out(reg32) y, z = out(reg32) z, w = out(reg32) w,
                    a = in($class) address, options(readonly, nostack));
                transmute_copy(&[x, y, z, w])
            }
        }
    }};
}

/// Stores a `T` with the instruction of its size.
macro_rules! store {
    ($instruction:literal, $class:ident, $address:expr, $value:expr) => {{
        let (address, value) = ($address, $value);
        match size_of::<T>() {
            1 => asm!(concat!($instruction, ".u8 [{a}], {v};"), a = in($class) address,
                v = in(reg16) u16::from(transmute_copy::<T, u8>(&value)), options(nostack)),
            2 => asm!(concat!($instruction, ".u16 [{a}], {v};"), a = in($class) address,
                v = in(reg16) transmute_copy::<T, u16>(&value), options(nostack)),
            4 => asm!(concat!($instruction, ".b32 [{a}], {v};"), a = in($class) address,
                v = in(reg32) transmute_copy::<T, u32>(&value), options(nostack)),
            8 => {
                let [x, y] = transmute_copy::<T, [u32; 2]>(&value);
                asm!(concat!($instruction, ".v2.b32 [{a}], {{{x}, {y}}};"), a = in($class) address,
                    x = in(reg32) x, y = in(reg32) y, options(nostack));
            }
            _ => {
                let [x, y, z, w] = transmute_copy::<T, [u32; 4]>(&value);
                asm!(concat!($instruction, ".v4.b32 [{a}], {{{x}, {y}, {z}, {w}}};"),
                    a = in($class) address, x = in(reg32) x, y = in(reg32) y, z = in(reg32) z,
                    w = in(reg32) w, options(nostack));
            }
        }
    }};
}

/// `ldmatrix` of one, two or four matrices, with or without `.trans`.
macro_rules! ldmatrix {
    ($trans:literal, $row:expr) => {{
        const { assert!(N == 1 || N == 2 || N == 4, "ldmatrix loads 1, 2 or 4 matrices") };
        let row = $row.address();
        let mut r = [0_u32; 4];
        match N {
            1 => asm!(concat!("ldmatrix.sync.aligned.m8n8.x1", $trans, ".shared.b16 {{{0}}}, [{1}];"),
                out(reg32) r[0], in(reg32) row, options(readonly, nostack)),
            2 => asm!(concat!("ldmatrix.sync.aligned.m8n8.x2", $trans, ".shared.b16 {{{0}, {1}}}, [{2}];"),
                out(reg32) r[0], out(reg32) r[1], in(reg32) row, options(readonly, nostack)),
            _ => asm!(concat!("ldmatrix.sync.aligned.m8n8.x4", $trans, ".shared.b16 {{{0}, {1}, {2}, {3}}}, [{4}];"),
                out(reg32) r[0], out(reg32) r[1], out(reg32) r[2], out(reg32) r[3], in(reg32) row,
                options(readonly, nostack)),
        }
        transmute_copy(&r)
    }};
}

/// `wmma.load` of an f16 operand.
macro_rules! wmma_load_operand {
    ($operand:literal, $layout:literal, $tile:expr, $stride:expr) => {{
        let mut r = [0_u32; 8];
        asm!(concat!("wmma.load.", $operand, ".sync.aligned.", $layout, ".m16n16k16.shared.f16 ",
                "{{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}}, [{8}], {9};"),
            out(reg32) r[0], out(reg32) r[1], out(reg32) r[2], out(reg32) r[3],
            out(reg32) r[4], out(reg32) r[5], out(reg32) r[6], out(reg32) r[7],
            in(reg32) $tile.address(), in(reg32) $stride, options(readonly, nostack));
        r
    }};
}

macro_rules! wmma_load_accumulator {
    ($layout:literal, $tile:expr, $stride:expr) => {{
        let mut x = [0.0_f32; 8];
        asm!(concat!("wmma.load.c.sync.aligned.", $layout, ".m16n16k16.shared.f32 ",
                "{{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}}, [{8}], {9};"),
            out(reg32) x[0], out(reg32) x[1], out(reg32) x[2], out(reg32) x[3],
            out(reg32) x[4], out(reg32) x[5], out(reg32) x[6], out(reg32) x[7],
            in(reg32) $tile.address(), in(reg32) $stride, options(readonly, nostack));
        x
    }};
}

macro_rules! wmma_store {
    ($layout:literal, $space:literal, $class:ident, $tile:expr, $stride:expr, $x:expr) => {{
        let x = $x;
        asm!(concat!("wmma.store.d.sync.aligned.", $layout, ".m16n16k16.", $space, ".f32 ",
                "[{8}], {{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}}, {9};"),
            in(reg32) x[0], in(reg32) x[1], in(reg32) x[2], in(reg32) x[3],
            in(reg32) x[4], in(reg32) x[5], in(reg32) x[6], in(reg32) x[7],
            in($class) $tile.address(), in(reg32) $stride, options(nostack));
    }};
}

/// `wmma.mma`: an operand's four registers stand twice, which is how the hardware loads them.
macro_rules! wmma_mma {
    ($layouts:literal, $a:expr, $b:expr, $c:expr) => {{
        let (a, b, mut d) = ($a, $b, $c);
        // SAFETY: only registers.
        unsafe {
            asm!(concat!("wmma.mma.sync.aligned.", $layouts, ".m16n16k16.f32.f32 ",
                    "{{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}}, ",
                    "{{{8}, {9}, {10}, {11}, {8}, {9}, {10}, {11}}}, ",
                    "{{{12}, {13}, {14}, {15}, {12}, {13}, {14}, {15}}}, ",
                    "{{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}};"),
                inout(reg32) d[0], inout(reg32) d[1], inout(reg32) d[2], inout(reg32) d[3],
                inout(reg32) d[4], inout(reg32) d[5], inout(reg32) d[6], inout(reg32) d[7],
                in(reg32) a[0], in(reg32) a[1], in(reg32) a[2], in(reg32) a[3],
                in(reg32) b[0], in(reg32) b[1], in(reg32) b[2], in(reg32) b[3],
                options(nomem, nostack));
        }
        d
    }};
}

/// `mma` with four registers of A, two of B and four accumulators.
macro_rules! mma {
    ($shape:literal, $a:expr, $b:expr, $c:expr) => {{
        let (a, b, mut d) = ($a, $b, $c);
        // SAFETY: only registers.
        unsafe {
            asm!(concat!("mma.sync.aligned.", $shape, " {{{0}, {1}, {2}, {3}}}, {{{4}, {5}, {6}, {7}}}, ",
                    "{{{8}, {9}}}, {{{0}, {1}, {2}, {3}}};"),
                inout(reg32) d[0], inout(reg32) d[1], inout(reg32) d[2], inout(reg32) d[3],
                in(reg32) a[0], in(reg32) a[1], in(reg32) a[2], in(reg32) a[3],
                in(reg32) b[0], in(reg32) b[1], options(nomem, nostack));
        }
        d
    }};
}

/// One instruction on a lane's own registers.
macro_rules! register {
    ($template:literal, $out:ident: $type:ty, $($name:ident = $class:ident $value:expr),* $(,)?) => {{
        let d: $type;
        // SAFETY: only registers.
        unsafe {
            asm!($template, d = out($out) d, $($name = in($class) $value,)* options(pure, nomem, nostack));
        }
        d
    }};
}

impl<M: Intrinsics> Simt for M {
    const ASYNC_COPY: bool = M::SM >= 80;

    #[inline(always)]
    fn thread(self) -> u32 {
        M::thread()
    }

    #[inline(always)]
    fn threads(self) -> u32 {
        M::threads()
    }

    #[inline(always)]
    fn block(self) -> Dim3 {
        M::block()
    }

    #[inline(always)]
    fn grid(self) -> Dim3 {
        M::grid()
    }

    #[inline(always)]
    fn barrier(self) {
        M::barrier();
    }

    #[inline(always)]
    fn barrier_named(self, id: u32, threads: u32) {
        M::barrier_named(id, threads);
    }

    #[inline(always)]
    fn barrier_arrive(self, id: u32, threads: u32) {
        M::barrier_arrive(id, threads);
    }

    #[inline(always)]
    fn warp_sync(self) {
        M::warp_sync();
    }

    #[inline(always)]
    fn wait_for_previous(self) {
        if M::SM >= 90 {
            // SAFETY: it waits; nothing moves past it, as it may touch memory.
            unsafe { asm!("griddepcontrol.wait;", options(nostack)) }
        }
    }

    #[inline(always)]
    fn let_next_begin(self) {
        if M::SM >= 90 {
            // SAFETY: it touches nothing of this launch's.
            unsafe { asm!("griddepcontrol.launch_dependents;", options(nostack)) }
        }
    }

    #[inline(always)]
    fn shared<T>(self) -> Shared<T> {
        Shared::from_address(M::shared())
    }

    #[inline(always)]
    unsafe fn load_shared<T: Word>(self, from: Shared<T>) -> T {
        // SAFETY: the caller's; so for all words of memory. The register is as wide as `T`.
        unsafe { load!("ld.shared", reg32, from.address()) }
    }

    #[inline(always)]
    unsafe fn store_shared<T: Word>(self, to: Shared<T>, value: T) {
        // SAFETY: as above.
        unsafe { store!("st.shared", reg32, to.address(), value) }
    }

    #[inline(always)]
    unsafe fn load_global<T: Word>(self, from: Global<T>) -> T {
        // SAFETY: as above.
        unsafe { load!("ld.global", reg64, from.address()) }
    }

    #[inline(always)]
    unsafe fn load_global_constant<T: Word>(self, from: Global<T>) -> T {
        // SAFETY: as above.
        unsafe { load!("ld.global.nc", reg64, from.address()) }
    }

    #[inline(always)]
    unsafe fn prefetch<T>(self, from: Global<T>, bytes: u32) {
        if M::SM >= 90 {
            // SAFETY: as above.
            unsafe {
                asm!("cp.async.bulk.prefetch.L2.global [{}], {};", in(reg64) from.address(), in(reg32) bytes,
                    options(nostack));
            }
        }
    }

    #[inline(always)]
    unsafe fn store_global<T: Word>(self, to: Global<T>, value: T) {
        // SAFETY: as above.
        unsafe { store!("st.global", reg64, to.address(), value) }
    }

    #[inline(always)]
    unsafe fn copy_async<const BYTES: u32, T>(self, to: Shared<T>, from: Global<T>, valid: u32) {
        const { assert!(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async copies 4, 8 or 16 bytes") };
        /// Copies one `V`, or zeroes it and copies the first bytes.
        #[inline(always)]
        unsafe fn copy<V: Word>(s: impl Simt, to: Shared<V>, from: Global<V>, valid: u32) {
            // SAFETY: as above; only the valid bytes are read.
            unsafe {
                if valid as usize >= size_of::<V>() {
                    s.store_shared(to, s.load_global(from));
                } else {
                    s.store_shared(to, V::zeroed());
                    let mut byte = 0;
                    while byte < valid {
                        s.store_shared(
                            to.cast::<u8>().at(byte),
                            s.load_global(from.cast::<u8>().at(byte as u64)),
                        );
                        byte += 1;
                    }
                }
            }
        }
        // SAFETY: as above.
        unsafe {
            match (Self::ASYNC_COPY, BYTES) {
                (true, 4) => asm!("cp.async.ca.shared.global [{}], [{}], 4, {};",
                    in(reg32) to.address(), in(reg64) from.address(), in(reg32) valid, options(nostack)),
                (true, 8) => asm!("cp.async.ca.shared.global [{}], [{}], 8, {};",
                    in(reg32) to.address(), in(reg64) from.address(), in(reg32) valid, options(nostack)),
                (true, _) => asm!("cp.async.cg.shared.global [{}], [{}], 16, {};",
                    in(reg32) to.address(), in(reg64) from.address(), in(reg32) valid, options(nostack)),
                (false, 4) => copy(self, to.cast::<u32>(), from.cast(), valid),
                (false, 8) => copy(self, to.cast::<[u32; 2]>(), from.cast(), valid),
                (false, _) => copy(self, to.cast::<[u32; 4]>(), from.cast(), valid),
            }
        }
    }

    #[inline(always)]
    fn copy_async_commit(self) {
        if Self::ASYNC_COPY {
            // SAFETY: it only closes the group.
            unsafe {
                asm!("cp.async.commit_group;", options(nostack));
            }
        }
    }

    #[inline(always)]
    fn copy_async_wait<const PENDING: u32>(self) {
        if Self::ASYNC_COPY {
            // SAFETY: it only waits.
            unsafe {
                asm!("cp.async.wait_group {};", const PENDING, options(nostack));
            }
        }
    }

    #[inline(always)]
    fn shuffle<T: Word32>(self, value: T, source: u32) -> T {
        T::from_register(M::shuffle(value.to_register(), source))
    }

    #[inline(always)]
    fn shuffle_up<T: Word32>(self, value: T, by: u32) -> T {
        T::from_register(M::shuffle_up(value.to_register(), by))
    }

    #[inline(always)]
    fn shuffle_down<T: Word32>(self, value: T, by: u32) -> T {
        T::from_register(M::shuffle_down(value.to_register(), by))
    }

    #[inline(always)]
    fn shuffle_xor<T: Word32>(self, value: T, mask: u32) -> T {
        T::from_register(M::shuffle_xor(value.to_register(), mask))
    }

    #[inline(always)]
    fn ballot(self, predicate: bool) -> u32 {
        M::ballot(predicate)
    }

    #[inline(always)]
    fn any(self, predicate: bool) -> bool {
        M::any(predicate)
    }

    #[inline(always)]
    fn all(self, predicate: bool) -> bool {
        M::all(predicate)
    }

    #[inline(always)]
    unsafe fn ldmatrix<const N: usize, T>(self, row: Shared<T>) -> [u32; N] {
        // SAFETY: as for `load_shared`; `N` is at most 4.
        unsafe { ldmatrix!("", row) }
    }

    #[inline(always)]
    unsafe fn ldmatrix_trans<const N: usize, T>(self, row: Shared<T>) -> [u32; N] {
        // SAFETY: as for `load_shared`; `N` is at most 4.
        unsafe { ldmatrix!(".trans", row) }
    }

    #[inline(always)]
    unsafe fn wmma_load_a<L: Layout>(self, tile: Shared<f16>, stride: u32) -> MatrixA<L> {
        // SAFETY: as for `load_shared`; so for the five below.
        MatrixA::from_registers(first_copy(unsafe { self.wmma_load_a_whole::<L>(tile, stride) }))
    }

    #[inline(always)]
    unsafe fn wmma_load_b<L: Layout>(self, tile: Shared<f16>, stride: u32) -> MatrixB<L> {
        // SAFETY: as above.
        MatrixB::from_registers(first_copy(unsafe { self.wmma_load_b_whole::<L>(tile, stride) }))
    }

    #[inline(always)]
    unsafe fn wmma_load_c<L: Layout>(self, tile: Shared<f32>, stride: u32) -> Accumulator {
        // SAFETY: as above.
        unsafe {
            if L::ROW_MAJOR {
                wmma_load_accumulator!("row", tile, stride)
            } else {
                wmma_load_accumulator!("col", tile, stride)
            }
        }
    }

    #[inline(always)]
    unsafe fn wmma_store_shared<L: Layout>(self, tile: Shared<f32>, stride: u32, value: Accumulator) {
        // SAFETY: as above.
        unsafe {
            if L::ROW_MAJOR {
                wmma_store!("row", "shared", reg32, tile, stride, value);
            } else {
                wmma_store!("col", "shared", reg32, tile, stride, value);
            }
        }
    }

    #[inline(always)]
    unsafe fn wmma_store_global<L: Layout>(self, tile: Global<f32>, stride: u32, value: Accumulator) {
        // SAFETY: as above.
        unsafe {
            if L::ROW_MAJOR {
                wmma_store!("row", "global", reg64, tile, stride, value);
            } else {
                wmma_store!("col", "global", reg64, tile, stride, value);
            }
        }
    }

    #[inline(always)]
    fn wmma_mma<A: Layout, B: Layout>(self, a: MatrixA<A>, b: MatrixB<B>, c: Accumulator) -> Accumulator {
        let (a, b) = (a.registers(), b.registers());
        match (A::ROW_MAJOR, B::ROW_MAJOR) {
            (true, true) => wmma_mma!("row.row", a, b, c),
            (true, false) => wmma_mma!("row.col", a, b, c),
            (false, true) => wmma_mma!("col.row", a, b, c),
            (false, false) => wmma_mma!("col.col", a, b, c),
        }
    }

    #[inline(always)]
    fn mma_m16n8k16_f16(self, a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
        /// The product over eight of the sixteen k.
        #[inline(always)]
        fn half(a: [u32; 2], b: u32, mut d: [f32; 4]) -> [f32; 4] {
            // SAFETY: only registers.
            unsafe {
                asm!("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 \
                        {{{0}, {1}, {2}, {3}}}, {{{4}, {5}}}, {{{6}}}, {{{0}, {1}, {2}, {3}}};",
                    inout(reg32) d[0], inout(reg32) d[1], inout(reg32) d[2], inout(reg32) d[3],
                    in(reg32) a[0], in(reg32) a[1], in(reg32) b, options(nomem, nostack));
            }
            d
        }
        if M::SM >= 80 {
            mma!("m16n8k16.row.col.f32.f16.f16.f32", a, b, c)
        } else {
            half([a[2], a[3]], b[1], half([a[0], a[1]], b[0], c))
        }
    }

    #[inline(always)]
    fn mma_m16n8k32_s8(self, a: [u32; 4], b: [u32; 2], c: [i32; 4]) -> [i32; 4] {
        /// The product of eight rows and half of k.
        #[inline(always)]
        fn quarter(a: u32, b: u32, mut d: [i32; 2]) -> [i32; 2] {
            // SAFETY: only registers.
            unsafe {
                asm!("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {{{0}, {1}}}, {{{2}}}, {{{3}}}, {{{0}, {1}}};",
                    inout(reg32) d[0], inout(reg32) d[1], in(reg32) a, in(reg32) b, options(nomem, nostack));
            }
            d
        }
        if M::SM >= 80 {
            return mma!("m16n8k32.row.col.s32.s8.s8.s32", a, b, c);
        }
        let upper = quarter(a[2], b[1], quarter(a[0], b[0], [c[0], c[1]]));
        let lower = quarter(a[3], b[1], quarter(a[1], b[0], [c[2], c[3]]));
        [upper[0], upper[1], lower[0], lower[1]]
    }

    #[inline(always)]
    fn add_f16x2(self, a: u32, b: u32) -> u32 {
        register!("add.rn.f16x2 {d}, {a}, {b};", reg32: u32, a = reg32 a, b = reg32 b)
    }

    #[inline(always)]
    fn mul_f16x2(self, a: u32, b: u32) -> u32 {
        register!("mul.rn.f16x2 {d}, {a}, {b};", reg32: u32, a = reg32 a, b = reg32 b)
    }

    #[inline(always)]
    fn fma_f16x2(self, a: u32, b: u32, c: u32) -> u32 {
        register!("fma.rn.f16x2 {d}, {a}, {b}, {c};", reg32: u32, a = reg32 a, b = reg32 b, c = reg32 c)
    }

    #[inline(always)]
    fn max_f16x2(self, a: u32, b: u32) -> u32 {
        if M::SM >= 80 {
            register!("max.f16x2 {d}, {a}, {b};", reg32: u32, a = reg32 a, b = reg32 b)
        } else {
            let ([a0, a1], [b0, b1]) = (self.f32_from_f16x2(a), self.f32_from_f16x2(b));
            self.f16x2_from_f32(self.max(a0, b0), self.max(a1, b1))
        }
    }

    #[inline(always)]
    fn f16x2_from_f32(self, low: f32, high: f32) -> u32 {
        if M::SM >= 80 {
            register!("cvt.rn.f16x2.f32 {d}, {high}, {low};", reg32: u32, high = reg32 high, low = reg32 low)
        } else {
            let (low, high) = (self.f16_from_f32(low), self.f16_from_f32(high));
            u32::from(high.to_bits()) << 16 | u32::from(low.to_bits())
        }
    }

    #[inline(always)]
    fn f32_from_f16x2(self, pair: u32) -> [f32; 2] {
        [pair as u16, (pair >> 16) as u16].map(|bits| self.f32_from_f16(f16::from_bits(bits)))
    }

    #[inline(always)]
    fn f16_from_f32(self, value: f32) -> f16 {
        f16::from_bits(register!("cvt.rn.f16.f32 {d}, {a};", reg16: u16, a = reg32 value))
    }

    #[inline(always)]
    fn f32_from_f16(self, value: f16) -> f32 {
        register!("cvt.f32.f16 {d}, {a};", reg32: f32, a = reg16 value.to_bits())
    }

    #[inline(always)]
    fn fma(self, a: f32, b: f32, c: f32) -> f32 {
        register!("fma.rn.f32 {d}, {a}, {b}, {c};", reg32: f32, a = reg32 a, b = reg32 b, c = reg32 c)
    }

    #[inline(always)]
    fn max(self, a: f32, b: f32) -> f32 {
        register!("max.f32 {d}, {a}, {b};", reg32: f32, a = reg32 a, b = reg32 b)
    }

    #[inline(always)]
    fn exp2_approx(self, x: f32) -> f32 {
        register!("ex2.approx.ftz.f32 {d}, {x};", reg32: f32, x = reg32 x)
    }

    #[inline(always)]
    fn reciprocal_approx(self, x: f32) -> f32 {
        register!("rcp.approx.ftz.f32 {d}, {x};", reg32: f32, x = reg32 x)
    }

    #[inline(always)]
    fn rsqrt_approx(self, x: f32) -> f32 {
        register!("rsqrt.approx.ftz.f32 {d}, {x};", reg32: f32, x = reg32 x)
    }

    #[inline(always)]
    fn round_i32(self, x: f32) -> i32 {
        register!("cvt.rni.s32.f32 {d}, {x};", reg32: i32, x = reg32 x)
    }

    #[inline(always)]
    fn permute_bytes(self, a: u32, b: u32, selector: u32) -> u32 {
        register!("prmt.b32 {d}, {a}, {b}, {s};", reg32: u32, a = reg32 a, b = reg32 b, s = reg32 selector)
    }

    #[inline(always)]
    fn lop3<const TABLE: u32>(self, a: u32, b: u32, c: u32) -> u32 {
        const { assert!(TABLE < 256, "a function of three bits has eight values") };
        let d: u32;
        // SAFETY: only registers.
        unsafe {
            asm!("lop3.b32 {}, {}, {}, {}, {};", out(reg32) d, in(reg32) a, in(reg32) b, in(reg32) c,
                const TABLE, options(pure, nomem, nostack));
        }
        d
    }

    #[inline(always)]
    fn dot4_s8(self, a: u32, b: u32, c: i32) -> i32 {
        register!("dp4a.s32.s32 {d}, {a}, {b}, {c};", reg32: i32, a = reg32 a, b = reg32 b, c = reg32 c)
    }

    #[inline(always)]
    fn dot4_u8_s8(self, a: u32, b: u32, c: i32) -> i32 {
        register!("dp4a.u32.s32 {d}, {a}, {b}, {c};", reg32: i32, a = reg32 a, b = reg32 b, c = reg32 c)
    }
}

/// The registers of a `wmma` operand that products read.
#[inline(always)]
fn first_copy([x0, x1, x2, x3, ..]: [u32; 8]) -> [u32; 4] {
    [x0, x1, x2, x3]
}

impl<M: Intrinsics> Probing for M {
    #[inline(always)]
    unsafe fn wmma_load_a_whole<L: Layout>(self, tile: Shared<f16>, stride: u32) -> [u32; 8] {
        // SAFETY: as for `load_shared`; so for the one below.
        unsafe {
            if L::ROW_MAJOR {
                wmma_load_operand!("a", "row", tile, stride)
            } else {
                wmma_load_operand!("a", "col", tile, stride)
            }
        }
    }

    #[inline(always)]
    unsafe fn wmma_load_b_whole<L: Layout>(self, tile: Shared<f16>, stride: u32) -> [u32; 8] {
        // SAFETY: as above.
        unsafe {
            if L::ROW_MAJOR {
                wmma_load_operand!("b", "row", tile, stride)
            } else {
                wmma_load_operand!("b", "col", tile, stride)
            }
        }
    }
}

impl<M: Sm80> Ampere for M {
    #[inline(always)]
    fn mma_m16n8k16_bf16(self, a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
        mma!("m16n8k16.row.col.f32.bf16.bf16.f32", a, b, c)
    }

    #[inline(always)]
    fn bf16x2_from_f32(self, low: f32, high: f32) -> u32 {
        register!("cvt.rn.bf16x2.f32 {d}, {high}, {low};", reg32: u32, high = reg32 high, low = reg32 low)
    }
}
