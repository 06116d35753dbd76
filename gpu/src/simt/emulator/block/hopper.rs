//! The words of sm_90a, as an emulated lane does them.

use core::panic::Location;
use std::borrow::ToOwned;
use std::vec;
use std::vec::Vec;

use super::{Block, Lane, State, Status};
use crate::simt::emulator::error::Fault;
use crate::simt::emulator::mbarrier::{BulkCopy, argument};
use crate::simt::emulator::memory::Problem;
use crate::simt::emulator::shadow::MAX_WARPS;
use crate::simt::emulator::warp::WarpWord;
use crate::simt::emulator::wgmma::Product;
use crate::simt::{Global, Hopper, Layout, MatrixDescriptor, Shared, WARP_LANES};

/// Bytes that bulk copies move at a time here.
const CHUNK: usize = 16;
/// Warps of a group.
const GROUP: u32 = 4;

/// A lane's stores from shared memory that may still read it.
#[derive(Default)]
pub(super) struct BulkStores {
    /// The group, the address and the bytes.
    pending: Vec<(u64, u32, u32)>,
    /// Groups that are closed; also the number of the open one.
    closed: u64,
}

impl State {
    /// Uses the 8 bytes of a barrier: whoever does so must come after who initialized it.
    fn touch_barrier(&mut self, thread: u32, site: u16, address: u32) -> Result<(), Problem> {
        self.shared.load(address, &mut [0; 8], 8, self.clocks.now(thread), site)?;
        self.mbarriers.at(address)?;
        Ok(())
    }

    /// A lane arrives, with what its warp did so far, and expects bytes.
    fn arrive_at(&mut self, thread: u32, site: u16, address: u32, bytes: u32) -> Result<(), Problem> {
        self.touch_barrier(thread, site, address)?;
        let seen = self.step((thread / WARP_LANES) as usize)?;
        let barrier = self.mbarriers.at(address)?;
        barrier.expect(bytes)?;
        barrier.arrive(&seen)?;
        self.end_phase(address)
    }

    /// Ends a barrier's phase if all have come and all bytes are under way: they land, as late as they may.
    fn end_phase(&mut self, address: u32) -> Result<(), Problem> {
        let barrier = self.mbarriers.at(address)?;
        let Some(copies) = barrier.landing() else { return Ok(()) };
        let mut seen = [0; MAX_WARPS];
        for BulkCopy { thread, to, data } in copies {
            self.shared.land_bulk(to, &data, self.clocks.now(thread));
            let warp = (thread / WARP_LANES) as usize;
            // Its landing only: what the warp has seen besides is no news that the copies bring.
            seen[warp] = self.step(warp)?[warp];
        }
        self.mbarriers.at(address)?.end(&seen);
        for status in &mut self.statuses {
            if matches!(*status, Status::Polling(at, _) if at == address) {
                *status = Status::Ready;
            }
        }
        Ok(())
    }

    /// A warp reads the operands of a product, which stay under way.
    pub(super) fn begin_product(
        &mut self,
        warp: usize,
        product: Product,
        site: u16,
        registers: impl Fn(u32) -> [u32; 4],
    ) -> Result<(), Problem> {
        let place = warp as u32 % GROUP;
        let bytes = self.read_operands(warp, place, product, site)?;
        self.counters.wgmma += 1;
        self.warps[warp].products.begin(product, place, &bytes, registers);
        Ok(())
    }

    /// Products are done: they read their operands until now.
    pub(super) fn end_products(&mut self, warp: usize, pending: u32, site: u16) -> Result<(), Problem> {
        for (product, place) in self.warps[warp].products.done(u64::from(pending)) {
            self.read_operands(warp, place, product, site)?;
        }
        Ok(())
    }

    /// A warp's lanes have so many registers from here on, more or fewer as `takes` says. Whether those that are
    /// taken have been given, and whether the group's other warps do the same, nobody checks.
    pub(super) fn set_registers(&mut self, warp: usize, registers: u32, takes: bool) -> Result<(), Problem> {
        let has = &mut self.warps[warp].registers;
        let problem = match *has {
            None => "registers of a kernel that has no REGISTER_LIMIT".to_owned(),
            Some(has) if takes && registers < has => {
                std::format!("take_registers to {registers} by lanes that have {has}: it takes no fewer")
            }
            Some(has) if !takes && registers > has => {
                std::format!("give_registers to {registers} by lanes that have {has}: it takes no more")
            }
            Some(_) => {
                *has = Some(registers);
                return Ok(());
            }
        };
        Err(argument(problem).into())
    }

    fn read_operands(
        &mut self,
        warp: usize,
        place: u32,
        product: Product,
        site: u16,
    ) -> Result<Vec<[u8; CHUNK]>, Problem> {
        let thread = warp as u32 * WARP_LANES;
        let read = |address| {
            let mut chunk = [0; CHUNK];
            self.shared.load(address, &mut chunk, CHUNK as u32, self.clocks.now(thread), site)?;
            Ok(chunk)
        };
        product.chunks(place)?.map(read).collect()
    }
}

/// That both ends and the length of a bulk copy are multiples of 16.
fn check_bulk(bytes: u32) -> Result<(), Fault> {
    if bytes == 0 || !bytes.is_multiple_of(CHUNK as u32) {
        return Err(argument(std::format!("a bulk copy of {bytes} bytes: it takes a multiple of 16")));
    }
    Ok(())
}

impl Block<'_> {
    /// The bytes of a bulk copy. What nobody has written is all ones: it may be copied, and is NaN.
    fn bulk_source(
        &self,
        state: &State,
        thread: u32,
        site: u16,
        from: u64,
        bytes: u32,
    ) -> Result<Vec<u8>, Problem> {
        let by = state.toucher(self, thread, site);
        let mut data = vec![0; bytes as usize];
        for (chunk, at) in data.chunks_exact_mut(CHUNK).zip((from..).step_by(CHUNK)) {
            match self.context.memory.load(at, chunk, CHUNK as u32, false, by) {
                Ok(()) | Err(Problem::Fault(Fault::Uninitialized { .. })) => {}
                Err(problem) => return Err(problem),
            }
        }
        Ok(data)
    }
}

impl Lane<'_> {
    /// A word of a warp that does a product; then each lane adds to its own accumulators.
    #[track_caller]
    fn product<A: Layout, B: Layout, const REGISTERS: usize>(
        self,
        d: &mut [f32; REGISTERS],
        a: Option<MatrixDescriptor>,
        registers: [u32; 4],
        b: MatrixDescriptor,
        accumulate: bool,
    ) {
        let k_major = [A::ROW_MAJOR, !B::ROW_MAJOR];
        let (a, b) = (a.map(MatrixDescriptor::bits), b.bits());
        let product = Product { a, b, n: 2 * REGISTERS as u32, k_major };
        let mut inputs = [0; 16];
        inputs[..4].copy_from_slice(&registers);
        self.meet(WarpWord::Wgmma(product), Location::caller(), &inputs);
        if !accumulate {
            *d = [0.0; REGISTERS];
        }
        let state = self.block.state.borrow();
        state.warps[(self.thread / WARP_LANES) as usize].products.add_to(self.thread % WARP_LANES, d);
    }
}

impl Hopper for Lane<'_> {
    unsafe fn mbarrier_init(self, barrier: Shared<u64>, arrivals: u32) {
        self.act(Location::caller(), |state, site| {
            let now = state.clocks.now(self.thread);
            state.shared.store(barrier.address(), &[0; 8], 8, now, site)?;
            Ok(state.mbarriers.initialize(barrier.address(), arrivals)?)
        });
    }

    fn fence_mbarrier_init(self) {}

    unsafe fn mbarrier_arrive(self, barrier: Shared<u64>) {
        self.act(Location::caller(), |state, site| state.arrive_at(self.thread, site, barrier.address(), 0));
    }

    unsafe fn mbarrier_arrive_expect(self, barrier: Shared<u64>, bytes: u32) {
        self.act(Location::caller(), |state, site| {
            state.arrive_at(self.thread, site, barrier.address(), bytes)
        });
    }

    unsafe fn mbarrier_expect(self, barrier: Shared<u64>, bytes: u32) {
        self.act(Location::caller(), |state, site| {
            state.touch_barrier(self.thread, site, barrier.address())?;
            Ok(state.mbarriers.at(barrier.address())?.expect(bytes)?)
        });
    }

    unsafe fn mbarrier_wait(self, barrier: Shared<u64>, parity: u32) {
        let location = Location::caller();
        loop {
            let ended = self.act(location, |state, site| {
                if parity > 1 {
                    return Err(argument(std::format!("a parity of {parity}: it is 0 or 1")).into());
                }
                state.touch_barrier(self.thread, site, barrier.address())?;
                let ended = state.mbarriers.at(barrier.address())?.ended(parity);
                if let Some(seen) = ended {
                    state.clocks.join((self.thread / WARP_LANES) as usize, &seen);
                } else {
                    state.statuses[self.thread as usize] = Status::Polling(barrier.address(), location);
                }
                Ok(ended.is_some())
            });
            if ended {
                return;
            }
            self.give_up_turn();
        }
    }

    unsafe fn bulk_load<T>(self, to: Shared<T>, from: Global<T>, bytes: u32, barrier: Shared<u64>) {
        let (thread, block) = (self.thread, self.block);
        self.act(Location::caller(), |state, site| {
            check_bulk(bytes)?;
            state.touch_barrier(thread, site, barrier.address())?;
            let data = block.bulk_source(state, thread, site, from.address(), bytes)?;
            let to =
                state.shared.begin_bulk(to.address(), data.len(), state.clocks.now(thread), thread, site)?;
            state.counters.bulk_copies += 1;
            state.counters.bulk_loaded += u64::from(bytes);
            state.mbarriers.at(barrier.address())?.begin(BulkCopy { thread, to, data });
            state.end_phase(barrier.address())
        });
    }

    unsafe fn bulk_store<T>(self, to: Global<T>, from: Shared<T>, bytes: u32) {
        let (thread, block) = (self.thread, self.block);
        self.act(Location::caller(), |state, site| {
            check_bulk(bytes)?;
            for offset in (0..bytes).step_by(CHUNK) {
                let (now, mut chunk) = (state.clocks.now(thread), [0; CHUNK]);
                state.shared.load(from.address() + offset, &mut chunk, CHUNK as u32, now, site)?;
                let by = state.toucher(block, thread, site);
                block.context.memory.store(to.address() + u64::from(offset), &chunk, by)?;
            }
            state.counters.bulk_copies += 1;
            state.counters.bulk_stored += u64::from(bytes);
            let stores = &mut state.bulk_stores[thread as usize];
            stores.pending.push((stores.closed, from.address(), bytes));
            Ok(())
        });
    }

    fn bulk_commit(self) {
        self.act(Location::caller(), |state, _| {
            state.bulk_stores[self.thread as usize].closed += 1;
            Ok(())
        });
    }

    fn bulk_wait_read<const PENDING: u32>(self) {
        self.act(Location::caller(), |state, site| {
            let now = state.clocks.now(self.thread);
            let stores = &mut state.bulk_stores[self.thread as usize];
            let over = stores.closed.saturating_sub(u64::from(PENDING));
            let (read, left) = stores.pending.drain(..).partition::<Vec<_>, _>(|&(group, ..)| group < over);
            stores.pending = left;
            // They read until now.
            for (_, from, bytes) in read {
                for offset in (0..bytes).step_by(CHUNK) {
                    state.shared.load(from + offset, &mut [0; CHUNK], CHUNK as u32, now, site)?;
                }
            }
            Ok(())
        });
    }

    fn fence_proxy_async(self) {}

    unsafe fn take_registers<const REGISTERS: u32>(self) {
        self.meet(WarpWord::TakeRegisters { registers: REGISTERS }, Location::caller(), &[0; 16]);
    }

    unsafe fn give_registers<const REGISTERS: u32>(self) {
        self.meet(WarpWord::GiveRegisters { registers: REGISTERS }, Location::caller(), &[0; 16]);
    }

    fn wgmma_fence(self) {
        self.meet(WarpWord::WgmmaFence, Location::caller(), &[0; 16]);
    }

    fn wgmma_commit(self) {
        self.meet(WarpWord::WgmmaCommit, Location::caller(), &[0; 16]);
    }

    fn wgmma_wait<const PENDING: u32>(self) {
        self.meet(WarpWord::WgmmaWait { pending: PENDING }, Location::caller(), &[0; 16]);
    }

    unsafe fn wgmma_f16<A: Layout, B: Layout, const REGISTERS: usize>(
        self,
        d: &mut [f32; REGISTERS],
        a: MatrixDescriptor,
        b: MatrixDescriptor,
        accumulate: bool,
    ) {
        self.product::<A, B, REGISTERS>(d, Some(a), [0; 4], b, accumulate);
    }

    unsafe fn wgmma_f16_register_a<B: Layout, const REGISTERS: usize>(
        self,
        d: &mut [f32; REGISTERS],
        a: [u32; 4],
        b: MatrixDescriptor,
        accumulate: bool,
    ) {
        self.product::<crate::simt::RowMajor, B, REGISTERS>(d, None, a, b, accumulate);
    }
}
