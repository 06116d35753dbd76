//! The machine as a trait: what one lane of a GPU can do.
//!
//! A kernel is ordinary Rust, generic over `S: Simt`, and does everything that is not plain
//! arithmetic through a word of `S`:
//!
//! | machine | `S` | used for |
//! | --- | --- | --- |
//! | `nvptx` | a zero-sized type; each word is one PTX instruction, inlined | running |
//! | `nvvm` | the same on `cuda_std`, under the feature `nvvm` | running, through `rustc_codegen_nvvm`: type-checked only |
//! | `emulator` | a lane's handle; words that join lanes are meeting points | tests without a GPU |
//!
//! [`Simt`] is what every machine from sm_75 on does. Where sm_75 lacks the instruction, the
//! word does the same work with others (and says so), so that a kernel is written once.
//! [`Ampere`] adds what sm_80 brought and nothing can stand in for; [`Hopper`] adds sm_90a. A kernel
//! with one of these bounds says so in the list of [`kernels`](crate::kernels), and is compiled for
//! the architectures that have it. [`Probing`] is for probes.
//!
//! # How to read a word's documentation
//!
//! - *PTX*: the instruction, as it stands in the assembly. "ISA" names the section of the PTX
//!   ISA manual that defines it.
//! - *Lanes*: who must take part. "own" means that each lane acts alone. "warp" means that all
//!   32 lanes of the warp execute the same call together: reached by some lanes only, the
//!   result is undefined on a GPU and an error in the emulator. "block" means all threads.
//! - *Align*: what the address must be a multiple of, in bytes.
//! - *Order*: when other lanes see it. "weak" means: not before both sides have passed a
//!   common barrier.
//! - *Since*: the first architecture with the instruction.
//!
//! # Safety of memory words
//!
//! Every word that takes an address is `unsafe`, and asks the same: the address is aligned and
//! lies, with all the bytes that are moved, in the launch's shared memory or in a live buffer;
//! bytes that are read have been written; and no other lane touches the bytes in between
//! barriers if one of the two writes. The emulator checks all of it. Words without an address
//! are safe: at worst they hang or give a wrong number.
//!
//! # Launches that begin early
//!
//! A kernel whose contract says [`STARTS_EARLY`](Contract::STARTS_EARLY) may begin while the launch
//! before it in its stream still runs: as soon as each block of that has called
//! [`let_next_begin`](Simt::let_next_begin) or has ended. So the blocks of a short kernel's successor
//! are in place, and their first weights on the way, before the short kernel has its result. It keeps three
//! rules, which the emulator checks:
//!
//! - Every thread calls [`wait_for_previous`](Simt::wait_for_previous) before it reads or writes what any other
//!   launch writes, and before it ends. Writes wait, too: the launch before may still read the bytes. And
//!   because every launch waits until the one before it is done, and is not done before that, whoever has
//!   waited for one launch has waited for all before it.
//! - Before it waits it reads what no launch writes (weights, tables of angles), and computes indices. A kernel whose
//!   contract says [`READS_SETTLED`](Contract::READS_SETTLED) also reads what was written in its stream before the last
//!   launch that did not begin early, the last copy between host and device, or the start of its graph: all of that is
//!   done when it begins (keys and values of earlier steps).
//! - The read-only path ([`load_global_constant`](Simt::load_global_constant)) is for that memory alone, also
//!   after the wait: what another launch writes is not constant while this kernel runs.
//!
//! A launch that does not begin early waits for all before it, whatever those have called.

#![allow(unsafe_code, reason = "every word that takes an address is an unsafe fn")]

mod address;
#[cfg(not(target_arch = "nvptx64"))]
pub mod emulator;
mod hopper;
#[cfg(not(target_arch = "nvptx64"))]
pub mod inspect;
mod kernel;
#[cfg(all(target_arch = "nvptx64", not(feature = "nvvm")))]
mod nvptx;
#[cfg(feature = "nvvm")]
mod nvvm;
mod operand;
mod probing;
#[cfg(any(target_arch = "nvptx64", feature = "nvvm"))]
mod ptx;
mod ring;
#[cfg(not(target_arch = "nvptx64"))]
pub mod sections;
mod work;

pub use crate::fragment::WARP_LANES;
pub use address::{Global, Shared, Word, Word32};
pub use hopper::{Hopper, MatrixDescriptor, Swizzle};
pub use kernel::{Architecture, Contract, Count, Dim3, Expectations, Kernel, Launch, Occurrence};
#[cfg(all(target_arch = "nvptx64", not(feature = "nvvm")))]
pub use nvptx::Ptx;
#[cfg(feature = "nvvm")]
pub use nvvm::{ARCHITECTURE, Nvvm};
pub use operand::{Accumulator, ColMajor, Layout, MatrixA, MatrixB, RowMajor};
pub use probing::Probing;
pub use ring::Ring;
pub(crate) use work::product;
pub use work::{Unit, Work};

use half::f16;

/// What the dynamic shared memory of a block is aligned to, in bytes: the strictest that any
/// word asks for (a swizzle atom of `wgmma`).
pub const SHARED_ALIGN: u32 = 1024;

/// What one lane can do.
///
/// `Copy`, so that kernels pass it by value; on a GPU it has no size.
pub trait Simt: Copy {
    /// Whether [`copy_async`](Self::copy_async) runs beside the lane. Where it does not (sm_75),
    /// it copies at once and waiting is free: the same kernel is correct, only slower.
    const ASYNC_COPY: bool;

    // ------------------------------------------------------------------ where am I

    /// This thread's index in its block.
    ///
    /// PTX: `mov.u32 d, %tid.x`. Lanes: own. Since: all. ISA: Special Registers, `%tid`.
    #[track_caller]
    fn thread(self) -> u32;

    /// Threads of the block.
    ///
    /// PTX: `mov.u32 d, %ntid.x`. Lanes: own. Since: all. ISA: Special Registers, `%ntid`.
    #[track_caller]
    fn threads(self) -> u32;

    /// This block's index in the grid. Axes that are not used cost nothing.
    ///
    /// PTX: `mov.u32 d, %ctaid.{x,y,z}`. Lanes: own. Since: all. ISA: Special Registers, `%ctaid`.
    #[track_caller]
    fn block(self) -> Dim3;

    /// Blocks of the grid along each axis.
    ///
    /// PTX: `mov.u32 d, %nctaid.{x,y,z}`. Lanes: own. Since: all. ISA: Special Registers, `%nctaid`.
    #[track_caller]
    fn grid(self) -> Dim3;

    /// This thread's lane in its warp, 0 to 31: blocks are one-dimensional, so it is the low
    /// five bits of [`thread`](Self::thread).
    #[inline(always)]
    #[track_caller]
    fn lane(self) -> u32 {
        self.thread() % WARP_LANES
    }

    /// This thread's warp in its block. The same for all lanes of a warp.
    #[inline(always)]
    #[track_caller]
    fn warp(self) -> u32 {
        self.thread() / WARP_LANES
    }

    // ------------------------------------------------------------------ waiting for others

    /// Waits for all threads of the block; what each wrote before, all see after.
    ///
    /// PTX: `bar.sync 0`. Lanes: block. Order: all shared and global accesses of the block
    /// before it come before all after it. Since: all. ISA: Parallel Synchronization and
    /// Communication, `bar`.
    #[track_caller]
    fn barrier(self);

    /// Waits at barrier `id` until `threads` threads have come to it, by this word or by
    /// [`barrier_arrive`](Self::barrier_arrive).
    ///
    /// `id` is 1 to 15 (0 is [`barrier`](Self::barrier)); `threads` is a multiple of 32 and the
    /// same in every call for one meeting.
    ///
    /// PTX: `bar.sync id, threads`. Lanes: warp, and as many warps as `threads` says. Order: as
    /// [`barrier`](Self::barrier), among those who came. Since: all. ISA: `bar`.
    #[track_caller]
    fn barrier_named(self, id: u32, threads: u32);

    /// Counts as having come to barrier `id`, and does not wait: what was written before is
    /// seen by those who wait there.
    ///
    /// PTX: `bar.arrive id, threads`. Lanes: warp. Order: accesses before it come before
    /// those after the waiters' [`barrier_named`](Self::barrier_named); nothing is said of later ones here.
    /// Since: all. ISA: `bar`.
    #[track_caller]
    fn barrier_arrive(self, id: u32, threads: u32);

    /// Waits until the launch before this one in its stream, and with it all before that, is done, and sees
    /// what it wrote. See the module's section on launches that begin early; in others it does nothing.
    ///
    /// PTX: `griddepcontrol.wait`. Lanes: own. Order: all accesses of launches before it come before the
    /// lane's later ones. Since: sm_90; nothing before, where no launch begins early. ISA: Parallel
    /// Synchronization and Communication, `griddepcontrol`.
    #[track_caller]
    fn wait_for_previous(self);

    /// Lets the next launch in the stream begin, as far as this block is concerned, if that is one that begins
    /// early. It takes room on the multiprocessors that this one leaves, and nothing of this one's
    /// results: that launch waits for them by itself.
    ///
    /// PTX: `griddepcontrol.launch_dependents`. Lanes: own; the first thread's call counts for the block. Order:
    /// none. Since: sm_90; nothing before. ISA: `griddepcontrol`.
    #[track_caller]
    fn let_next_begin(self);

    /// Waits for the lanes of the warp; what each wrote before, all see after.
    ///
    /// PTX: `bar.warp.sync 0xffffffff`. Lanes: warp. Order: the warp's accesses before it come
    /// before those after it. Since: sm_30. ISA: `bar.warp.sync`.
    #[track_caller]
    fn warp_sync(self);

    // ------------------------------------------------------------------ memory

    /// Where the launch's dynamic shared memory begins, aligned to [`SHARED_ALIGN`].
    ///
    /// PTX: `mov.u32 d, dyn_smem`. Lanes: own. Since: all. ISA: State Spaces, `.shared`.
    #[track_caller]
    fn shared<T>(self) -> Shared<T>;

    /// Reads a word of shared memory.
    ///
    /// PTX: `ld.shared.{u8,u16,b32,v2.b32,v4.b32}`. Lanes: own. Align: the word's size. Order:
    /// weak. Since: all. ISA: Data Movement and Conversion, `ld`.
    ///
    /// # Safety
    /// See the module's section on memory words.
    #[track_caller]
    unsafe fn load_shared<T: Word>(self, from: Shared<T>) -> T;

    /// Writes a word of shared memory.
    ///
    /// PTX: `st.shared.{u8,u16,b32,v2.b32,v4.b32}`. Lanes: own. Align: the word's size. Order:
    /// weak. Since: all. ISA: `st`.
    ///
    /// # Safety
    /// See the module's section on memory words.
    #[track_caller]
    unsafe fn store_shared<T: Word>(self, to: Shared<T>, value: T);

    /// Reads a word of global memory.
    ///
    /// PTX: `ld.global.{u8,u16,b32,v2.b32,v4.b32}`. Lanes: own. Align: the word's size. Order:
    /// weak. Since: all. ISA: `ld`.
    ///
    /// # Safety
    /// See the module's section on memory words.
    #[track_caller]
    unsafe fn load_global<T: Word>(self, from: Global<T>) -> T;

    /// Reads a word of global memory that nobody writes while the kernel runs, through the
    /// read-only path.
    ///
    /// PTX: `ld.global.nc.{u8,u16,b32,v2.b32,v4.b32}`. Lanes: own. Align: the word's size.
    /// Order: none, the memory is constant. Since: sm_35. ISA: `ld.global.nc`.
    ///
    /// # Safety
    /// See the module's section on memory words; and no thread of the grid writes these bytes,
    /// before or after.
    #[track_caller]
    unsafe fn load_global_constant<T: Word>(self, from: Global<T>) -> T;

    /// Asks for `bytes` bytes of global memory, not 0, to be brought into the L2 cache. A hint: nothing else
    /// happens, now or later.
    ///
    /// PTX: `cp.async.bulk.prefetch.L2.global [from], bytes`. Lanes: own. Align: 16, `bytes` too. Order: none.
    /// Since: sm_90; nothing before. ISA: `cp.async.bulk.prefetch`.
    ///
    /// # Safety
    /// The bytes lie in a live buffer.
    #[track_caller]
    unsafe fn prefetch<T>(self, from: Global<T>, bytes: u32);

    /// Writes a word of global memory.
    ///
    /// PTX: `st.global.{u8,u16,b32,v2.b32,v4.b32}`. Lanes: own. Align: the word's size. Order:
    /// weak. Since: all. ISA: `st`.
    ///
    /// # Safety
    /// See the module's section on memory words.
    #[track_caller]
    unsafe fn store_global<T: Word>(self, to: Global<T>, value: T);

    /// Begins to copy `BYTES` bytes (4, 8 or 16) from global to shared memory: the first
    /// `valid` (0 to `BYTES`) are copied, the rest are written as zero. With `valid` 0 nothing
    /// is read, and `from` may be any address.
    ///
    /// The copy belongs to the lane's open group, see [`copy_async_commit`](Self::copy_async_commit). Until the
    /// group has been waited for, neither the source may be written nor the target touched.
    ///
    /// PTX: `cp.async.cg.shared.global [to], [from], 16, valid`; `.ca` for 4 and 8. Lanes: own.
    /// Align: `BYTES`, both. Order: lands some time before the lane's wait for the group
    /// returns; seen by other lanes after a barrier that follows the wait. Since: sm_80; sm_75
    /// copies at once through registers. ISA: `cp.async`.
    ///
    /// # Safety
    /// See the module's section on memory words, up to the wait and for both addresses.
    #[track_caller]
    unsafe fn copy_async<const BYTES: u32, T>(self, to: Shared<T>, from: Global<T>, valid: u32);

    /// Closes the lane's group of asynchronous copies and opens the next. A group may be empty.
    ///
    /// PTX: `cp.async.commit_group`. Lanes: own. Since: sm_80; nothing on sm_75. ISA:
    /// `cp.async.commit_group`.
    #[track_caller]
    fn copy_async_commit(self);

    /// Waits until at most the `PENDING` youngest of the lane's closed groups are unfinished.
    ///
    /// PTX: `cp.async.wait_group PENDING`. Lanes: own; each waits for its own copies only, so a
    /// barrier must follow before one lane reads what another copied. Order: the finished
    /// copies come before the lane's later accesses. Since: sm_80; nothing on sm_75. ISA:
    /// `cp.async.wait_group`.
    #[track_caller]
    fn copy_async_wait<const PENDING: u32>(self);

    // ------------------------------------------------------------------ within the warp

    /// The value that lane `source % 32` gives.
    ///
    /// PTX: `shfl.sync.idx.b32 d, a, source, 0x1f, 0xffffffff`. Lanes: warp. Since: sm_30. ISA:
    /// `shfl.sync`.
    #[track_caller]
    fn shuffle<T: Word32>(self, value: T, source: u32) -> T;

    /// The value that the lane `by` (0 to 31) places below gives; a lane that has none there
    /// gets its own back.
    ///
    /// PTX: `shfl.sync.up.b32 d, a, by, 0, 0xffffffff`. Lanes: warp. Since: sm_30. ISA: `shfl.sync`.
    #[track_caller]
    fn shuffle_up<T: Word32>(self, value: T, by: u32) -> T;

    /// The value that the lane `by` (0 to 31) places above gives; a lane that has none there
    /// gets its own back.
    ///
    /// PTX: `shfl.sync.down.b32 d, a, by, 0x1f, 0xffffffff`. Lanes: warp. Since: sm_30. ISA: `shfl.sync`.
    #[track_caller]
    fn shuffle_down<T: Word32>(self, value: T, by: u32) -> T;

    /// The value that lane `lane ^ mask` gives, `mask` 0 to 31.
    ///
    /// PTX: `shfl.sync.bfly.b32 d, a, mask, 0x1f, 0xffffffff`. Lanes: warp. Since: sm_30. ISA: `shfl.sync`.
    #[track_caller]
    fn shuffle_xor<T: Word32>(self, value: T, mask: u32) -> T;

    /// Bit `l` of the result is what lane `l` says.
    ///
    /// PTX: `vote.sync.ballot.b32 d, p, 0xffffffff`. Lanes: warp. Since: sm_30. ISA: `vote.sync`.
    #[track_caller]
    fn ballot(self, predicate: bool) -> u32;

    /// Whether any lane says yes.
    ///
    /// PTX: `vote.sync.any.pred q, p, 0xffffffff`. Lanes: warp. Since: sm_30. ISA: `vote.sync`.
    #[track_caller]
    fn any(self, predicate: bool) -> bool;

    /// Whether all lanes say yes.
    ///
    /// PTX: `vote.sync.all.pred q, p, 0xffffffff`. Lanes: warp. Since: sm_30. ISA: `vote.sync`.
    #[track_caller]
    fn all(self, predicate: bool) -> bool;

    /// The sum over the warp's lanes, the same bits in every lane: a butterfly over distances
    /// 16, 8, 4, 2, 1. Each step adds a pair, and addition commutes, so both of the pair agree.
    ///
    /// PTX: five [`shuffle_xor`](Self::shuffle_xor) and `add.rn.f32`. Lanes: warp.
    #[inline(always)]
    #[track_caller]
    fn warp_sum(self, value: f32) -> f32 {
        let value = value + self.shuffle_xor(value, 16);
        let value = value + self.shuffle_xor(value, 8);
        let value = value + self.shuffle_xor(value, 4);
        let value = value + self.shuffle_xor(value, 2);
        value + self.shuffle_xor(value, 1)
    }

    /// The largest value over the warp's lanes. NaN is ignored unless all are NaN.
    ///
    /// PTX: five [`shuffle_xor`](Self::shuffle_xor) and `max.f32`. Lanes: warp.
    #[inline(always)]
    #[track_caller]
    fn warp_max(self, value: f32) -> f32 {
        let value = self.max(value, self.shuffle_xor(value, 16));
        let value = self.max(value, self.shuffle_xor(value, 8));
        let value = self.max(value, self.shuffle_xor(value, 4));
        let value = self.max(value, self.shuffle_xor(value, 2));
        self.max(value, self.shuffle_xor(value, 1))
    }

    // ------------------------------------------------------------------ matrices: loads and stores

    /// Loads `N` (1, 2 or 4) 8 × 8 matrices of 16-bit elements. Lane `l` gives the address of
    /// row `l % 8` of matrix `l / 8` (8 elements, 16 bytes; lanes from `8 N` on give addresses that are not
    /// used). Register `j` of lane `l` gets elements `2 (l % 4)` and the next of row `l / 4` of matrix `j`.
    ///
    /// PTX: `ldmatrix.sync.aligned.m8n8.x{1,2,4}.shared.b16`. Lanes: warp. Align: 16. Order:
    /// weak. Since: sm_75. ISA: Matrix Multiply-Accumulate Operation using `mma`, `ldmatrix`.
    ///
    /// # Safety
    /// See the module's section on memory words, for the rows of the first `8 N` lanes. On
    /// sm_75 all 32 addresses must be valid.
    #[track_caller]
    unsafe fn ldmatrix<const N: usize, T>(self, row: Shared<T>) -> [u32; N];

    /// As [`ldmatrix`](Self::ldmatrix), each matrix transposed: register `j` of lane `l` gets
    /// rows `2 (l % 4)` and the next of column `l / 4` of matrix `j`.
    ///
    /// PTX: `ldmatrix.sync.aligned.m8n8.x{1,2,4}.trans.shared.b16`. Lanes: warp. Align: 16.
    /// Order: weak. Since: sm_75. ISA: `ldmatrix`.
    ///
    /// # Safety
    /// As [`ldmatrix`](Self::ldmatrix).
    #[track_caller]
    unsafe fn ldmatrix_trans<const N: usize, T>(self, row: Shared<T>) -> [u32; N];

    /// Loads a 16 × 16 left operand (row, k) whose `L` index steps by `stride` elements.
    ///
    /// PTX: `wmma.load.a.sync.aligned.{row,col}.m16n16k16.shared.f16`. Lanes: warp, all with
    /// the same arguments. Align: 32 for the address; `stride` a multiple of 8. Order: weak.
    /// Since: sm_70. ISA: Warp Level Matrix Load Instruction, `wmma.load`.
    ///
    /// # Safety
    /// See the module's section on memory words, for the whole tile.
    #[track_caller]
    unsafe fn wmma_load_a<L: Layout>(self, tile: Shared<f16>, stride: u32) -> MatrixA<L>;

    /// Loads a 16 × 16 right operand (k, column) whose `L` index steps by `stride` elements.
    ///
    /// PTX: `wmma.load.b.sync.aligned.{row,col}.m16n16k16.shared.f16`. Lanes, Align, Order,
    /// Since, ISA: as [`wmma_load_a`](Self::wmma_load_a).
    ///
    /// # Safety
    /// See the module's section on memory words, for the whole tile.
    #[track_caller]
    unsafe fn wmma_load_b<L: Layout>(self, tile: Shared<f16>, stride: u32) -> MatrixB<L>;

    /// Loads a 16 × 16 f32 accumulator whose `L` index steps by `stride` elements.
    ///
    /// PTX: `wmma.load.c.sync.aligned.{row,col}.m16n16k16.shared.f32`. Lanes: warp, all with
    /// the same arguments. Align: 32 for the address; `stride` a multiple of 4. Order: weak.
    /// Since: sm_70. ISA: `wmma.load`.
    ///
    /// # Safety
    /// See the module's section on memory words, for the whole tile.
    #[track_caller]
    unsafe fn wmma_load_c<L: Layout>(self, tile: Shared<f32>, stride: u32) -> Accumulator;

    /// Stores a 16 × 16 f32 accumulator into shared memory, the `L` index stepping by `stride`
    /// elements.
    ///
    /// PTX: `wmma.store.d.sync.aligned.{row,col}.m16n16k16.shared.f32`. Lanes: warp, all with
    /// the same address and stride. Align: 32 for the address; `stride` a multiple of 4. Order:
    /// weak. Since: sm_70. ISA: Warp Level Matrix Store Instruction, `wmma.store`.
    ///
    /// # Safety
    /// See the module's section on memory words, for the whole tile.
    #[track_caller]
    unsafe fn wmma_store_shared<L: Layout>(self, tile: Shared<f32>, stride: u32, value: Accumulator);

    /// Stores a 16 × 16 f32 accumulator into global memory: as
    /// [`wmma_store_shared`](Self::wmma_store_shared), `.global`.
    ///
    /// PTX: `wmma.store.d.sync.aligned.{row,col}.m16n16k16.global.f32`. Lanes, Align, Order,
    /// Since, ISA: as [`wmma_store_shared`](Self::wmma_store_shared).
    ///
    /// # Safety
    /// See the module's section on memory words, for the whole tile.
    #[track_caller]
    unsafe fn wmma_store_global<L: Layout>(self, tile: Global<f32>, stride: u32, value: Accumulator);

    // ------------------------------------------------------------------ matrices: products

    /// `A · B + C`, 16 × 16 × 16, f16 operands, f32 accumulators.
    ///
    /// PTX: `wmma.mma.sync.aligned.{row,col}.{row,col}.m16n16k16.f32.f32`, the four registers
    /// of an operand passed twice. Lanes: warp. Order: none. Since: sm_70. The products are
    /// exact; in which order and with how many bits they are summed, the ISA leaves open (at least
    /// single precision). ISA: Warp Level Matrix Multiply-Accumulate, `wmma.mma`.
    #[track_caller]
    fn wmma_mma<A: Layout, B: Layout>(self, a: MatrixA<A>, b: MatrixB<B>, c: Accumulator) -> Accumulator;

    /// `A · B + C`, 16 × 8 × 16, f16 operands, f32 accumulators. Lane maps: `gpu::fragment`.
    ///
    /// PTX: `mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32`. Lanes: warp. Order: none.
    /// Since: sm_80; sm_75 does two `m16n8k8` in order of k. The order of the sums is as for
    /// [`wmma_mma`](Self::wmma_mma). ISA: Multiply-and-Accumulate Instruction, `mma`.
    #[track_caller]
    fn mma_m16n8k16_f16(self, a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4];

    /// `A · B + C`, 16 × 8 × 32, signed 8-bit operands, exact 32-bit sums that wrap. Lane maps:
    /// `gpu::fragment`.
    ///
    /// PTX: `mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32`. Lanes: warp. Order: none. Since:
    /// sm_80; sm_75 does four `m8n8k16`. ISA: `mma`.
    #[track_caller]
    fn mma_m16n8k32_s8(self, a: [u32; 4], b: [u32; 2], c: [i32; 4]) -> [i32; 4];

    // ------------------------------------------------------------------ arithmetic: pairs of f16

    /// Both halves' sums, each rounded once to nearest even.
    ///
    /// PTX: `add.rn.f16x2`. Lanes: own. Since: sm_53. ISA: Half Precision Floating Point, `add`.
    #[track_caller]
    fn add_f16x2(self, a: u32, b: u32) -> u32;

    /// Both halves' products, each rounded once to nearest even.
    ///
    /// PTX: `mul.rn.f16x2`. Lanes: own. Since: sm_53. ISA: Half Precision Floating Point, `mul`.
    #[track_caller]
    fn mul_f16x2(self, a: u32, b: u32) -> u32;

    /// `a · b + c` in both halves, each rounded once to nearest even.
    ///
    /// PTX: `fma.rn.f16x2`. Lanes: own. Since: sm_53. ISA: Half Precision Floating Point, `fma`.
    #[track_caller]
    fn fma_f16x2(self, a: u32, b: u32, c: u32) -> u32;

    /// The larger of both halves; of a number and NaN the number, of two NaN `0x7fff`.
    ///
    /// PTX: `max.f16x2`. Lanes: own. Since: sm_80; sm_75 goes through f32, which is exact. ISA:
    /// Half Precision Floating Point, `max`.
    #[track_caller]
    fn max_f16x2(self, a: u32, b: u32) -> u32;

    /// Two f32 rounded to nearest even, `low` in the lower half. What is too large becomes
    /// infinite; NaN becomes `0x7fff`.
    ///
    /// PTX: `cvt.rn.f16x2.f32 d, high, low`. Lanes: own. Since: sm_80; sm_75 converts one by
    /// one. ISA: Data Movement and Conversion, `cvt`.
    #[track_caller]
    fn f16x2_from_f32(self, low: f32, high: f32) -> u32;

    /// The halves of a pair as f32, the lower first. Exact.
    ///
    /// PTX: `mov.b32 {l, h}, a` and two `cvt.f32.f16`. Lanes: own. Since: sm_53. ISA: `cvt`.
    #[track_caller]
    fn f32_from_f16x2(self, pair: u32) -> [f32; 2];

    /// An f32 rounded to nearest even, as [`f16x2_from_f32`](Self::f16x2_from_f32).
    ///
    /// PTX: `cvt.rn.f16.f32`. Lanes: own. Since: sm_53. ISA: `cvt`.
    #[track_caller]
    fn f16_from_f32(self, value: f32) -> f16;

    /// An f16 as f32. Exact.
    ///
    /// PTX: `cvt.f32.f16`. Lanes: own. Since: sm_53. ISA: `cvt`.
    #[track_caller]
    fn f32_from_f16(self, value: f16) -> f32;

    // ------------------------------------------------------------------ arithmetic: f32

    /// `a · b + c`, rounded once to nearest even. `a * b + c` is rounded twice: nothing
    /// contracts it.
    ///
    /// PTX: `fma.rn.f32`. Lanes: own. Since: sm_20. ISA: Floating-Point, `fma`.
    #[track_caller]
    fn fma(self, a: f32, b: f32, c: f32) -> f32;

    /// The larger; of a number and NaN the number, and of the two zeros the positive one.
    ///
    /// PTX: `max.f32`. Lanes: own. Since: all. ISA: Floating-Point, `max`.
    #[track_caller]
    fn max(self, a: f32, b: f32) -> f32;

    /// 2 to the power of `x`, within 2 ULP of the correctly rounded result. Subnormal inputs and
    /// results count as zero; -∞ gives 0, +∞ gives +∞.
    ///
    /// PTX: `ex2.approx.ftz.f32`. Lanes: own. Since: all. ISA: Floating-Point, `ex2`.
    #[track_caller]
    fn exp2_approx(self, x: f32) -> f32;

    /// `1 / x`, within 1 ULP. Subnormal inputs and results count as zero of the same sign; ±0 gives ±∞.
    ///
    /// PTX: `rcp.approx.ftz.f32`. Lanes: own. Since: all. ISA: Floating-Point, `rcp`.
    #[track_caller]
    fn reciprocal_approx(self, x: f32) -> f32;

    /// `1 / √x`, with a relative error of at most 2^-22.9. Subnormal inputs count as zero; ±0 gives
    /// ±∞, a negative number NaN.
    ///
    /// PTX: `rsqrt.approx.ftz.f32`. Lanes: own. Since: all. ISA: Floating-Point, `rsqrt`.
    #[track_caller]
    fn rsqrt_approx(self, x: f32) -> f32;

    /// The nearest integer, halves to even; what does not fit is clamped, NaN gives 0.
    ///
    /// PTX: `cvt.rni.s32.f32`. Lanes: own. Since: all. ISA: `cvt`.
    #[track_caller]
    fn round_i32(self, x: f32) -> i32;

    // ------------------------------------------------------------------ arithmetic: integers

    /// Four bytes out of eight: byte `i` of the result is byte `selector >> 4i & 7` of `b:a`
    /// (0 to 3 are `a`, 4 to 7 are `b`), or, if bit 3 of that nibble is set, eight copies of
    /// that byte's sign bit.
    ///
    /// PTX: `prmt.b32 d, a, b, selector`. Lanes: own. Since: sm_20. ISA: `prmt`.
    #[track_caller]
    fn permute_bytes(self, a: u32, b: u32, selector: u32) -> u32;

    /// Any bitwise function of three words: `TABLE` is the function of `0xf0`, `0xcc`, `0xaa`.
    /// `(a & b) | c` is `(0xf0 & 0xcc) | 0xaa`.
    ///
    /// PTX: `lop3.b32 d, a, b, c, TABLE`. Lanes: own. Since: sm_50. ISA: Logic and Shift, `lop3`.
    #[track_caller]
    fn lop3<const TABLE: u32>(self, a: u32, b: u32, c: u32) -> u32;

    /// `c` plus the four products of signed bytes; the sum wraps.
    ///
    /// PTX: `dp4a.s32.s32`. Lanes: own. Since: sm_61. ISA: Integer Arithmetic, `dp4a`.
    #[track_caller]
    fn dot4_s8(self, a: u32, b: u32, c: i32) -> i32;

    /// `c` plus the four products of an unsigned byte of `a` and a signed byte of `b`; the sum
    /// wraps.
    ///
    /// PTX: `dp4a.u32.s32`. Lanes: own. Since: sm_61. ISA: Integer Arithmetic, `dp4a`.
    #[track_caller]
    fn dot4_u8_s8(self, a: u32, b: u32, c: i32) -> i32;
}

/// What sm_80 brought and sm_75 cannot stand in for: bf16.
pub trait Ampere: Simt {
    /// `A · B + C`, 16 × 8 × 16, bf16 operands, f32 accumulators. Lane maps as for f16.
    ///
    /// PTX: `mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32`. Lanes: warp. Order: none.
    /// Since: sm_80. The order of the sums is as for [`wmma_mma`](Simt::wmma_mma). ISA: `mma`.
    #[track_caller]
    fn mma_m16n8k16_bf16(self, a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4];

    /// Two f32 rounded to bf16, nearest even, `low` in the lower half. NaN becomes `0x7fff`.
    ///
    /// PTX: `cvt.rn.bf16x2.f32 d, high, low`. Lanes: own. Since: sm_80. ISA: `cvt`.
    #[track_caller]
    fn bf16x2_from_f32(self, low: f32, high: f32) -> u32;
}

/// The halves of a pair of bf16 as f32, the lower first. Exact, and the same on every machine:
/// a bf16 is the upper half of an f32.
#[inline(always)]
#[must_use]
pub const fn f32_from_bf16x2(pair: u32) -> [f32; 2] {
    [f32::from_bits(pair << 16), f32::from_bits(pair & 0xffff_0000)]
}
