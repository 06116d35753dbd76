//! A machine for tests: the emulator's lane, with one word of the kernel left out, or a word's accuracy.
//!
//! What a barrier is there for is shown by what happens without it, and what a gate is good for by what it
//! says then. The kernel's text stays as it is: the machine does not do what it is told.

use core::cell::Cell;

use half::f16;

use super::Lane;
use crate::simt::{
    Accumulator, Ampere, Contract, Dim3, Expectations, Global, Hopper, Kernel, Launch, Layout, MatrixA,
    MatrixB, MatrixDescriptor, Shared, Simt, Word, Word32,
};

/// A word that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// The n-th call of `barrier` by each thread, from 0.
    Barrier(u32),
    /// The n-th call of `copy_async_wait` by each thread.
    CopyWait(u32),
    /// The n-th call of `warp_sync` by each thread.
    WarpSync(u32),
    /// The n-th call of `mbarrier_wait` by each thread.
    MBarrierWait(u32),
    /// The n-th call of `wgmma_wait` by each thread.
    WgmmaWait(u32),
    /// What the sums of products of f16 have that f16 does not: they are rounded to it each time.
    Accuracy,
    /// None.
    Nothing,
}

/// A kernel that runs on [`Without`].
#[derive(Clone, Copy, Debug)]
pub struct Sabotaged<K> {
    /// The kernel.
    pub kernel: K,
    /// What of it is left out.
    pub left_out: LeftOut,
}

impl<K: Contract> Contract for Sabotaged<K> {
    const NAME: &'static str = K::NAME;
    const EXPECTATIONS: Expectations = K::EXPECTATIONS;
    const REGISTER_LIMIT: Option<u32> = K::REGISTER_LIMIT;
    const STARTS_EARLY: bool = K::STARTS_EARLY;
    const READS_SETTLED: bool = K::READS_SETTLED;

    fn launch(&self) -> Launch {
        self.kernel.launch()
    }
}

impl<'b, K: for<'a> Kernel<Without<'a, 'b>>> Kernel<Lane<'b>> for Sabotaged<K> {
    unsafe fn run(self, lane: Lane<'b>) {
        let calls = Calls::default();
        // SAFETY: the caller's, but for the word that is left out: the emulator's to judge.
        unsafe { self.kernel.run(Without { lane, left_out: self.left_out, calls: &calls }) }
    }
}

/// A lane that leaves a word out.
#[derive(Clone, Copy, Debug)]
pub struct Without<'a, 'b> {
    lane: Lane<'b>,
    left_out: LeftOut,
    calls: &'a Calls,
}

/// How often this thread has come to each word that can be left out.
#[derive(Debug, Default)]
struct Calls {
    barrier: Cell<u32>,
    copy_wait: Cell<u32>,
    warp_sync: Cell<u32>,
    mbarrier_wait: Cell<u32>,
    wgmma_wait: Cell<u32>,
}

/// The number of this call, and one more from now on.
fn next(calls: &Cell<u32>) -> u32 {
    calls.replace(calls.get() + 1)
}

/// The words that are the lane's own. Type parameters stand twice, declared and named.
macro_rules! delegate {
    (
        safe {
            $($word:ident $([$($declared:tt)*] [$($named:tt)*])? ($($argument:ident: $type:ty),*) -> $result:ty;)*
        }
        unsafe {
            $($unsafe_word:ident [$($u_declared:tt)*] [$($u_named:tt)*]
                ($($u_argument:ident: $u_type:ty),*) -> $u_result:ty;)*
        }
    ) => {
        $(fn $word $(<$($declared)*>)? (self, $($argument: $type),*) -> $result {
            self.lane.$word $(::<$($named)*>)? ($($argument),*)
        })*
        $(unsafe fn $unsafe_word<$($u_declared)*>(self, $($u_argument: $u_type),*) -> $u_result {
            // SAFETY: the caller's.
            unsafe { self.lane.$unsafe_word::<$($u_named)*>($($u_argument),*) }
        })*
    };
}

impl Without<'_, '_> {
    /// Sums of a product, as accurate as they are to be.
    fn sums<const N: usize>(self, sums: [f32; N]) -> [f32; N] {
        if self.left_out == LeftOut::Accuracy { sums.map(|sum| f16::from_f32(sum).to_f32()) } else { sums }
    }
}

impl Simt for Without<'_, '_> {
    const ASYNC_COPY: bool = true;

    fn barrier(self) {
        if self.left_out != LeftOut::Barrier(next(&self.calls.barrier)) {
            self.lane.barrier();
        }
    }

    fn copy_async_wait<const PENDING: u32>(self) {
        if self.left_out != LeftOut::CopyWait(next(&self.calls.copy_wait)) {
            self.lane.copy_async_wait::<PENDING>();
        }
    }

    fn warp_sync(self) {
        if self.left_out != LeftOut::WarpSync(next(&self.calls.warp_sync)) {
            self.lane.warp_sync();
        }
    }

    fn mma_m16n8k16_f16(self, a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
        self.sums(self.lane.mma_m16n8k16_f16(a, b, c))
    }

    fn wmma_mma<A: Layout, B: Layout>(self, a: MatrixA<A>, b: MatrixB<B>, c: Accumulator) -> Accumulator {
        self.sums(self.lane.wmma_mma(a, b, c))
    }

    delegate! {
        safe {
            thread() -> u32;
            threads() -> u32;
            block() -> Dim3;
            grid() -> Dim3;
            barrier_named(id: u32, threads: u32) -> ();
            barrier_arrive(id: u32, threads: u32) -> ();
            wait_for_previous() -> ();
            let_next_begin() -> ();
            shared[T][T]() -> Shared<T>;
            copy_async_commit() -> ();
            shuffle[T: Word32][T](value: T, source: u32) -> T;
            shuffle_up[T: Word32][T](value: T, by: u32) -> T;
            shuffle_down[T: Word32][T](value: T, by: u32) -> T;
            shuffle_xor[T: Word32][T](value: T, mask: u32) -> T;
            ballot(predicate: bool) -> u32;
            any(predicate: bool) -> bool;
            all(predicate: bool) -> bool;
            mma_m16n8k32_s8(a: [u32; 4], b: [u32; 2], c: [i32; 4]) -> [i32; 4];
            add_f16x2(a: u32, b: u32) -> u32;
            mul_f16x2(a: u32, b: u32) -> u32;
            fma_f16x2(a: u32, b: u32, c: u32) -> u32;
            max_f16x2(a: u32, b: u32) -> u32;
            f16x2_from_f32(low: f32, high: f32) -> u32;
            f32_from_f16x2(pair: u32) -> [f32; 2];
            f16_from_f32(value: f32) -> f16;
            f32_from_f16(value: f16) -> f32;
            fma(a: f32, b: f32, c: f32) -> f32;
            max(a: f32, b: f32) -> f32;
            exp2_approx(x: f32) -> f32;
            reciprocal_approx(x: f32) -> f32;
            rsqrt_approx(x: f32) -> f32;
            round_i32(x: f32) -> i32;
            permute_bytes(a: u32, b: u32, selector: u32) -> u32;
            lop3[const TABLE: u32][TABLE](a: u32, b: u32, c: u32) -> u32;
            dot4_s8(a: u32, b: u32, c: i32) -> i32;
            dot4_u8_s8(a: u32, b: u32, c: i32) -> i32;
        }
        unsafe {
            load_shared[T: Word][T](from: Shared<T>) -> T;
            store_shared[T: Word][T](to: Shared<T>, value: T) -> ();
            load_global[T: Word][T](from: Global<T>) -> T;
            load_global_constant[T: Word][T](from: Global<T>) -> T;
            prefetch[T][T](from: Global<T>, bytes: u32) -> ();
            store_global[T: Word][T](to: Global<T>, value: T) -> ();
            copy_async[const BYTES: u32, T][BYTES, T](to: Shared<T>, from: Global<T>, valid: u32) -> ();
            ldmatrix[const N: usize, T][N, T](row: Shared<T>) -> [u32; N];
            ldmatrix_trans[const N: usize, T][N, T](row: Shared<T>) -> [u32; N];
            wmma_load_a[L: Layout][L](tile: Shared<f16>, stride: u32) -> MatrixA<L>;
            wmma_load_b[L: Layout][L](tile: Shared<f16>, stride: u32) -> MatrixB<L>;
            wmma_load_c[L: Layout][L](tile: Shared<f32>, stride: u32) -> Accumulator;
            wmma_store_shared[L: Layout][L](tile: Shared<f32>, stride: u32, value: Accumulator) -> ();
            wmma_store_global[L: Layout][L](tile: Global<f32>, stride: u32, value: Accumulator) -> ();
        }
    }
}

impl Ampere for Without<'_, '_> {
    fn mma_m16n8k16_bf16(self, a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
        self.lane.mma_m16n8k16_bf16(a, b, c)
    }

    fn bf16x2_from_f32(self, low: f32, high: f32) -> u32 {
        self.lane.bf16x2_from_f32(low, high)
    }
}

impl Hopper for Without<'_, '_> {
    unsafe fn mbarrier_wait(self, barrier: Shared<u64>, parity: u32) {
        if self.left_out != LeftOut::MBarrierWait(next(&self.calls.mbarrier_wait)) {
            // SAFETY: the caller's.
            unsafe { self.lane.mbarrier_wait(barrier, parity) }
        }
    }

    fn wgmma_wait<const PENDING: u32>(self) {
        if self.left_out != LeftOut::WgmmaWait(next(&self.calls.wgmma_wait)) {
            self.lane.wgmma_wait::<PENDING>();
        }
    }

    unsafe fn wgmma_f16<A: Layout, B: Layout, const REGISTERS: usize>(
        self,
        d: &mut [f32; REGISTERS],
        a: MatrixDescriptor,
        b: MatrixDescriptor,
        accumulate: bool,
    ) {
        // SAFETY: the caller's.
        unsafe { self.lane.wgmma_f16::<A, B, REGISTERS>(d, a, b, accumulate) }
        *d = self.sums(*d);
    }

    unsafe fn wgmma_f16_register_a<B: Layout, const REGISTERS: usize>(
        self,
        d: &mut [f32; REGISTERS],
        a: [u32; 4],
        b: MatrixDescriptor,
        accumulate: bool,
    ) {
        // SAFETY: the caller's.
        unsafe { self.lane.wgmma_f16_register_a::<B, REGISTERS>(d, a, b, accumulate) }
        *d = self.sums(*d);
    }

    delegate! {
        safe {
            fence_mbarrier_init() -> ();
            bulk_commit() -> ();
            bulk_wait_read[const PENDING: u32][PENDING]() -> ();
            fence_proxy_async() -> ();
            wgmma_fence() -> ();
            wgmma_commit() -> ();
        }
        unsafe {
            take_registers[const REGISTERS: u32][REGISTERS]() -> ();
            give_registers[const REGISTERS: u32][REGISTERS]() -> ();
            mbarrier_init[][](barrier: Shared<u64>, arrivals: u32) -> ();
            mbarrier_arrive[][](barrier: Shared<u64>) -> ();
            mbarrier_arrive_expect[][](barrier: Shared<u64>, bytes: u32) -> ();
            mbarrier_expect[][](barrier: Shared<u64>, bytes: u32) -> ();
            bulk_load[T][T](to: Shared<T>, from: Global<T>, bytes: u32, barrier: Shared<u64>) -> ();
            bulk_store[T][T](to: Global<T>, from: Shared<T>, bytes: u32) -> ();
        }
    }
}
