//! The machine's words, as an emulated lane does them.

use core::panic::Location;

use half::f16;

use super::Lane;
use crate::simt::emulator::arithmetic;
use crate::simt::emulator::counters::Access;
use crate::simt::emulator::error::Fault;
use crate::simt::emulator::shared::SHARED_BASE;
use crate::simt::emulator::warp::{Operand, Tile, WarpWord};
use crate::simt::{
    Accumulator, Ampere, Dim3, Global, Layout, MatrixA, MatrixB, Probing, Shared, Simt, Word, Word32,
};

/// Registers of a warp's word: these, and zeros.
fn inputs<const N: usize>(parts: [&[u32]; N]) -> [u32; 16] {
    let mut all = [0; 16];
    let registers = parts.iter().copied().flatten();
    all.iter_mut().zip(registers).for_each(|(input, &register)| *input = register);
    all
}

/// The first `N` of a word's results.
fn first<const N: usize>(outputs: [u32; 8]) -> [u32; N] {
    core::array::from_fn(|i| outputs[i])
}

impl Lane<'_> {
    #[track_caller]
    fn load_global_as<T: Word>(self, from: Global<T>, constant: bool) -> T {
        let location = Location::caller();
        let (thread, block) = (self.thread, self.block);
        self.act(location, |state, site| {
            let mut value = T::zeroed();
            let bytes = size_of::<T>() as u32;
            state.record(thread, site, Access::GlobalLoad, bytes, Some(from.address()));
            let by = state.toucher(block, thread, site);
            let into = bytemuck::bytes_of_mut(&mut value);
            block.context.memory.load(from.address(), into, bytes, constant, by)?;
            Ok(value)
        })
    }

    #[track_caller]
    fn shuffled<T: Word32>(self, word: WarpWord, value: T, by: u32) -> T {
        let location = Location::caller();
        if by > 31 && word != WarpWord::Shuffle {
            let problem = std::format!("a distance of {by}: {} takes 0 to 31", word.name());
            self.fail(self.thread, location, Fault::Argument { problem }.into());
        }
        T::from_register(self.meet(word, location, &inputs([&[value.to_register(), by]]))[0])
    }

    #[track_caller]
    fn load_matrices<const N: usize, T>(self, row: Shared<T>, transposed: bool) -> [u32; N] {
        const { assert!(N == 1 || N == 2 || N == 4, "ldmatrix loads 1, 2 or 4 matrices") };
        let word = WarpWord::LdMatrix { matrices: N, transposed };
        first(self.meet(word, Location::caller(), &inputs([&[row.address()]])))
    }

    #[track_caller]
    fn load_tile<T>(self, operand: Operand, row_major: bool, tile: Shared<T>, stride: u32) -> [u32; 8] {
        let word = WarpWord::WmmaLoad { tile: Tile { operand, row_major }, address: tile.address(), stride };
        self.meet(word, Location::caller(), &inputs([]))
    }

    #[track_caller]
    fn multiply(self, word: WarpWord, a: [u32; 4], b: [u32; 2], c: [u32; 4]) -> [u32; 4] {
        first(self.meet(word, Location::caller(), &inputs([&a, &b, &c])))
    }
}

impl Simt for Lane<'_> {
    const ASYNC_COPY: bool = true;

    fn thread(self) -> u32 {
        self.thread
    }

    fn threads(self) -> u32 {
        self.block.context.launch.threads
    }

    fn block(self) -> Dim3 {
        self.block.position
    }

    fn grid(self) -> Dim3 {
        self.block.context.launch.grid
    }

    fn barrier(self) {
        self.meet(WarpWord::Barrier, Location::caller(), &inputs([]));
    }

    fn barrier_named(self, id: u32, threads: u32) {
        self.meet(WarpWord::BarrierNamed { id, threads }, Location::caller(), &inputs([]));
    }

    fn barrier_arrive(self, id: u32, threads: u32) {
        self.meet(WarpWord::BarrierArrive { id, threads }, Location::caller(), &inputs([]));
    }

    fn warp_sync(self) {
        self.meet(WarpWord::WarpSync, Location::caller(), &inputs([]));
    }

    fn wait_for_previous(self) {
        self.act(Location::caller(), |state, _| {
            state.waited[self.thread as usize] = true;
            Ok(())
        });
    }

    fn let_next_begin(self) {
        self.act(Location::caller(), |_, _| Ok(()));
    }

    fn shared<T>(self) -> Shared<T> {
        Shared::from_address(SHARED_BASE)
    }

    unsafe fn load_shared<T: Word>(self, from: Shared<T>) -> T {
        let mut value = T::zeroed();
        self.act(Location::caller(), |state, site| {
            state.load_shared(self.thread, site, from.address(), bytemuck::bytes_of_mut(&mut value))
        });
        value
    }

    unsafe fn store_shared<T: Word>(self, to: Shared<T>, value: T) {
        self.act(Location::caller(), |state, site| {
            state.store_shared(self.thread, site, to.address(), bytemuck::bytes_of(&value))
        });
    }

    unsafe fn load_global<T: Word>(self, from: Global<T>) -> T {
        self.load_global_as(from, false)
    }

    unsafe fn load_global_constant<T: Word>(self, from: Global<T>) -> T {
        self.load_global_as(from, true)
    }

    unsafe fn prefetch<T>(self, from: Global<T>, bytes: u32) {
        self.act(Location::caller(), |_, _| {
            if bytes == 0 || !bytes.is_multiple_of(16) {
                let problem = std::format!("{bytes} bytes to prefetch: a multiple of 16, not 0");
                return Err(Fault::Argument { problem }.into());
            }
            Ok(self.block.context.memory.check_place(from.address(), bytes, 16)?)
        });
    }

    unsafe fn store_global<T: Word>(self, to: Global<T>, value: T) {
        let (thread, block) = (self.thread, self.block);
        self.act(Location::caller(), |state, site| {
            state.record(thread, site, Access::GlobalStore, size_of::<T>() as u32, Some(to.address()));
            let by = state.toucher(block, thread, site);
            block.context.memory.store(to.address(), bytemuck::bytes_of(&value), by)
        });
    }

    unsafe fn copy_async<const BYTES: u32, T>(self, to: Shared<T>, from: Global<T>, valid: u32) {
        const { assert!(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async copies 4, 8 or 16 bytes") };
        let (thread, block) = (self.thread, self.block);
        self.act(Location::caller(), |state, site| {
            if valid > BYTES {
                let problem = std::format!("{valid} valid bytes in a copy of {BYTES}");
                return Err(Fault::Argument { problem }.into());
            }
            state.record(thread, site, Access::Copy, BYTES, (valid > 0).then_some(from.address()));
            state.counters.copies.bytes += u64::from(valid);
            let mut data = [0; 16];
            if valid > 0 {
                let by = state.toucher(block, thread, site);
                let into = &mut data[..valid as usize];
                block.context.memory.load(from.address(), into, BYTES, false, by)?;
            }
            let now = state.clocks.now(thread);
            let copies = &mut state.copies[thread as usize];
            let data = &data[..BYTES as usize];
            state.shared.begin_copy(copies, to.address(), data, now, thread, site)
        });
    }

    fn copy_async_commit(self) {
        self.act(Location::caller(), |state, _| {
            state.copies[self.thread as usize].commit();
            Ok(())
        });
    }

    fn copy_async_wait<const PENDING: u32>(self) {
        self.act(Location::caller(), |state, _| {
            let copies = &mut state.copies[self.thread as usize];
            state.shared.land_copies(copies, u64::from(PENDING), state.clocks.now(self.thread));
            Ok(())
        });
    }

    fn shuffle<T: Word32>(self, value: T, source: u32) -> T {
        self.shuffled(WarpWord::Shuffle, value, source)
    }

    fn shuffle_up<T: Word32>(self, value: T, by: u32) -> T {
        self.shuffled(WarpWord::ShuffleUp, value, by)
    }

    fn shuffle_down<T: Word32>(self, value: T, by: u32) -> T {
        self.shuffled(WarpWord::ShuffleDown, value, by)
    }

    fn shuffle_xor<T: Word32>(self, value: T, mask: u32) -> T {
        self.shuffled(WarpWord::ShuffleXor, value, mask)
    }

    fn ballot(self, predicate: bool) -> u32 {
        self.meet(WarpWord::Vote, Location::caller(), &inputs([&[u32::from(predicate)]]))[0]
    }

    fn any(self, predicate: bool) -> bool {
        self.ballot(predicate) != 0
    }

    fn all(self, predicate: bool) -> bool {
        self.ballot(predicate) == u32::MAX
    }

    unsafe fn ldmatrix<const N: usize, T>(self, row: Shared<T>) -> [u32; N] {
        self.load_matrices(row, false)
    }

    unsafe fn ldmatrix_trans<const N: usize, T>(self, row: Shared<T>) -> [u32; N] {
        self.load_matrices(row, true)
    }

    unsafe fn wmma_load_a<L: Layout>(self, tile: Shared<f16>, stride: u32) -> MatrixA<L> {
        MatrixA::from_registers(first(self.load_tile(Operand::A, L::ROW_MAJOR, tile, stride)))
    }

    unsafe fn wmma_load_b<L: Layout>(self, tile: Shared<f16>, stride: u32) -> MatrixB<L> {
        MatrixB::from_registers(first(self.load_tile(Operand::B, L::ROW_MAJOR, tile, stride)))
    }

    unsafe fn wmma_load_c<L: Layout>(self, tile: Shared<f32>, stride: u32) -> Accumulator {
        self.load_tile(Operand::C, L::ROW_MAJOR, tile, stride).map(f32::from_bits)
    }

    unsafe fn wmma_store_shared<L: Layout>(self, tile: Shared<f32>, stride: u32, value: Accumulator) {
        let word = WarpWord::WmmaStoreShared { row_major: L::ROW_MAJOR, address: tile.address(), stride };
        self.meet(word, Location::caller(), &inputs([&value.map(f32::to_bits)]));
    }

    unsafe fn wmma_store_global<L: Layout>(self, tile: Global<f32>, stride: u32, value: Accumulator) {
        let word = WarpWord::WmmaStoreGlobal { row_major: L::ROW_MAJOR, address: tile.address(), stride };
        self.meet(word, Location::caller(), &inputs([&value.map(f32::to_bits)]));
    }

    fn wmma_mma<A: Layout, B: Layout>(self, a: MatrixA<A>, b: MatrixB<B>, c: Accumulator) -> Accumulator {
        let word = WarpWord::WmmaMma { a_row_major: A::ROW_MAJOR, b_row_major: B::ROW_MAJOR };
        let registers = inputs([&a.registers(), &b.registers(), &c.map(f32::to_bits)]);
        self.meet(word, Location::caller(), &registers).map(f32::from_bits)
    }

    fn mma_m16n8k16_f16(self, a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
        self.multiply(WarpWord::MmaF16, a, b, c.map(f32::to_bits)).map(f32::from_bits)
    }

    fn mma_m16n8k32_s8(self, a: [u32; 4], b: [u32; 2], c: [i32; 4]) -> [i32; 4] {
        self.multiply(WarpWord::MmaS8, a, b, c.map(i32::cast_unsigned)).map(u32::cast_signed)
    }

    fn add_f16x2(self, a: u32, b: u32) -> u32 {
        arithmetic::both(a, b, |a, b| a + b)
    }

    fn mul_f16x2(self, a: u32, b: u32) -> u32 {
        arithmetic::both(a, b, |a, b| a * b)
    }

    fn fma_f16x2(self, a: u32, b: u32, c: u32) -> u32 {
        let [a, b, c] = [a, b, c].map(arithmetic::f32_from_f16x2);
        let [low, high] = [0, 1].map(|i| arithmetic::fma_f16(a[i], b[i], c[i]).to_bits());
        arithmetic::pack(low, high)
    }

    fn max_f16x2(self, a: u32, b: u32) -> u32 {
        arithmetic::both(a, b, arithmetic::max)
    }

    fn f16x2_from_f32(self, low: f32, high: f32) -> u32 {
        let [low, high] = [low, high].map(|value| arithmetic::f16_from_f32(value).to_bits());
        arithmetic::pack(low, high)
    }

    fn f32_from_f16x2(self, pair: u32) -> [f32; 2] {
        arithmetic::f32_from_f16x2(pair)
    }

    fn f16_from_f32(self, value: f32) -> f16 {
        arithmetic::f16_from_f32(value)
    }

    fn f32_from_f16(self, value: f16) -> f32 {
        value.to_f32()
    }

    fn fma(self, a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }

    fn max(self, a: f32, b: f32) -> f32 {
        arithmetic::max(a, b)
    }

    fn exp2_approx(self, x: f32) -> f32 {
        arithmetic::exp2(x)
    }

    fn reciprocal_approx(self, x: f32) -> f32 {
        arithmetic::reciprocal(x)
    }

    fn rsqrt_approx(self, x: f32) -> f32 {
        arithmetic::rsqrt(x)
    }

    fn round_i32(self, x: f32) -> i32 {
        // `as` clamps, and NaN becomes 0.
        x.round_ties_even() as i32
    }

    fn permute_bytes(self, a: u32, b: u32, selector: u32) -> u32 {
        arithmetic::permute_bytes(a, b, selector)
    }

    fn lop3<const TABLE: u32>(self, a: u32, b: u32, c: u32) -> u32 {
        const { assert!(TABLE < 256, "a function of three bits has eight values") };
        arithmetic::lop3(TABLE, a, b, c)
    }

    fn dot4_s8(self, a: u32, b: u32, c: i32) -> i32 {
        arithmetic::dot4(a, b, c, |byte| i32::from(byte.cast_signed()))
    }

    fn dot4_u8_s8(self, a: u32, b: u32, c: i32) -> i32 {
        arithmetic::dot4(a, b, c, i32::from)
    }
}

impl Probing for Lane<'_> {
    unsafe fn wmma_load_a_whole<L: Layout>(self, tile: Shared<f16>, stride: u32) -> [u32; 8] {
        self.load_tile(Operand::A, L::ROW_MAJOR, tile, stride)
    }

    unsafe fn wmma_load_b_whole<L: Layout>(self, tile: Shared<f16>, stride: u32) -> [u32; 8] {
        self.load_tile(Operand::B, L::ROW_MAJOR, tile, stride)
    }
}

impl Ampere for Lane<'_> {
    fn mma_m16n8k16_bf16(self, a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
        self.multiply(WarpWord::MmaBf16, a, b, c.map(f32::to_bits)).map(f32::from_bits)
    }

    fn bf16x2_from_f32(self, low: f32, high: f32) -> u32 {
        arithmetic::pack(arithmetic::bf16_from_f32(low), arithmetic::bf16_from_f32(high))
    }
}
