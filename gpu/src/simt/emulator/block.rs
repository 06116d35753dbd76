//! A block: its lanes, its memory, its barriers, and whose turn it is.

mod hopper;
mod report;
mod schedule;
mod words;

use core::cell::RefCell;
use core::panic::Location;
use std::boxed::Box;
use std::format;
use std::vec;
use std::vec::Vec;

use super::counters::{Access, Counters, Pending};
use super::error::{EmulatorError, Fault};
use super::mbarrier::MBarriers;
use super::memory::{Memory, Order, Problem, Toucher};
use super::shadow::{Clocks, MAX_WARPS};
use super::shared::{Copies, SharedMemory};
use super::site::{SiteCache, Sites};
use super::warp::{self, Inputs, Of, Outputs, WarpMemory, WarpWord};
use super::wgmma::UnderWay;
use crate::simt::{Dim3, Launch, WARP_LANES};

pub use schedule::Lane;
pub(super) use schedule::Stacks;

/// What all blocks of a launch have in common.
pub(super) struct Context<'l> {
    pub(super) kernel: &'static str,
    pub(super) launch: Launch,
    pub(super) seed: u64,
    /// Whether the kernel may begin before earlier launches are done.
    pub(super) starts_early: bool,
    /// Whether it then reads what launches wrote that are done by now.
    pub(super) reads_settled: bool,
    /// What a lane has in the beginning, if the kernel says so.
    pub(super) registers: Option<u32>,
    pub(super) memory: &'l Memory,
    pub(super) sites: &'l Sites,
}

/// One block of a launch. It lives on one OS thread, and so do its lanes.
pub(super) struct Block<'l> {
    pub(super) context: &'l Context<'l>,
    /// The linear index.
    index: u32,
    pub(super) position: Dim3,
    /// Never borrowed while lanes change: a lane leaves only with its borrow given back.
    state: RefCell<State>,
}

struct State {
    shared: SharedMemory,
    clocks: Clocks,
    statuses: Vec<Status>,
    /// Which threads have waited for earlier launches.
    waited: Vec<bool>,
    copies: Vec<Copies>,
    bulk_stores: Vec<hopper::BulkStores>,
    warps: Vec<Warp>,
    barriers: Vec<Barrier>,
    mbarriers: MBarriers,
    counters: Counters,
    sites: SiteCache,
    random: schedule::Random,
    /// A read of what nobody has written yet. It may be a race: then the write is still to come.
    doubt: Option<EmulatorError>,
    failure: Option<EmulatorError>,
}

/// What a lane is doing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    Ready,
    Waiting(WarpWord, &'static Location<'static>),
    /// At a barrier in memory, at this address.
    Polling(u32, &'static Location<'static>),
    Done,
    /// It will not run again, and the others may.
    Stopped,
}

/// What a warp's lanes bring to the word at which they meet, and take from it.
struct Warp {
    /// How many lanes wait for the others.
    waiting: u32,
    inputs: Box<Of<Inputs>>,
    outputs: Box<Of<Outputs>>,
    pending: Pending,
    products: UnderWay,
    /// Those of a lane, of a kernel that says how many it begins with.
    registers: Option<u32>,
}

/// A barrier of the block, in one meeting.
#[derive(Clone, Default)]
struct Barrier {
    /// Threads that end the meeting, as the first to come said.
    expected: u32,
    arrived: u32,
    waiting: Vec<usize>,
    /// What those who came had seen.
    seen: [u32; MAX_WARPS],
}

impl<'l> Block<'l> {
    pub(super) fn new(context: &'l Context<'l>, index: u32) -> Self {
        let Launch { grid, threads, shared_bytes } = context.launch;
        let warps = (threads / WARP_LANES) as usize;
        let warp = || Warp {
            waiting: 0,
            inputs: Box::new([[0; 16]; 32]),
            outputs: Box::new([[0; 8]; 32]),
            pending: Pending::default(),
            products: UnderWay::default(),
            registers: context.registers,
        };
        let state = State {
            shared: SharedMemory::new(shared_bytes, warps),
            clocks: Clocks::new(warps),
            statuses: vec![Status::Ready; threads as usize],
            waited: vec![false; threads as usize],
            copies: (0..threads).map(|_| Copies::default()).collect(),
            bulk_stores: (0..threads).map(|_| hopper::BulkStores::default()).collect(),
            warps: (0..warps).map(|_| warp()).collect(),
            barriers: vec![Barrier::default(); 16],
            mbarriers: MBarriers::default(),
            counters: Counters::default(),
            sites: SiteCache::new(),
            random: schedule::Random::new(context.seed, index),
            doubt: None,
            failure: None,
        };
        let position = Dim3 { x: index % grid.x, y: index / grid.x % grid.y, z: index / grid.x / grid.y };
        Self { context, index, position, state: RefCell::new(state) }
    }
}

impl State {
    /// Reads shared memory for a lane.
    fn load_shared(&mut self, thread: u32, site: u16, address: u32, into: &mut [u8]) -> Result<(), Problem> {
        let bytes = into.len() as u32;
        self.record(thread, site, Access::SharedLoad, bytes, Some(u64::from(address)));
        self.shared.load(address, into, bytes, self.clocks.now(thread), site)
    }

    /// Writes shared memory for a lane.
    fn store_shared(&mut self, thread: u32, site: u16, address: u32, from: &[u8]) -> Result<(), Problem> {
        let bytes = from.len() as u32;
        self.record(thread, site, Access::SharedStore, bytes, Some(u64::from(address)));
        self.shared.store(address, from, bytes, self.clocks.now(thread), site)
    }

    /// A thread as it touches global memory.
    fn toucher(&self, block: &Block<'_>, thread: u32, site: u16) -> Toucher<'_> {
        let order = match (block.context.starts_early, self.waited[thread as usize]) {
            (false, _) => Order::Alone,
            (true, false) if block.context.reads_settled => Order::Settled,
            (true, false) => Order::Early,
            (true, true) => Order::Waited,
        };
        Toucher { now: self.clocks.now(thread), site, block: block.index, order }
    }

    fn record(&mut self, thread: u32, site: u16, access: Access, bytes: u32, address: Option<u64>) {
        let warp = &mut self.warps[(thread / WARP_LANES) as usize];
        warp.pending.record(thread % WARP_LANES, site, access, bytes, address);
    }

    /// A lane comes to a word that joins its warp; with the last of them it is done.
    fn arrive(
        &mut self,
        block: &Block<'_>,
        thread: u32,
        word: WarpWord,
        location: &'static Location<'static>,
        inputs: &Inputs,
    ) -> Result<(), (u32, Problem)> {
        let threads = block.context.launch.threads;
        warp::check_arguments(word, threads).map_err(|fault| (thread, fault.into()))?;
        let (index, lane) = ((thread / WARP_LANES) as usize, (thread % WARP_LANES) as usize);
        let warp = &mut self.warps[index];
        warp.inputs[lane] = *inputs;
        warp.waiting += 1;
        self.statuses[thread as usize] = Status::Waiting(word, location);
        let first = index * WARP_LANES as usize;
        let lanes = &self.statuses[first..first + WARP_LANES as usize];
        if warp.waiting < WARP_LANES || lanes.iter().any(|&status| status != lanes[lane]) {
            return Ok(());
        }

        warp.waiting = 0;
        warp.pending.flush(&mut self.counters);
        match word {
            WarpWord::Barrier => self.meet(index, 0, threads, true),
            WarpWord::BarrierNamed { id, threads } => self.meet(index, id, threads, true),
            WarpWord::BarrierArrive { id, threads } => self.meet(index, id, threads, false),
            _ => self
                .execute(block, index, word, location)
                .map_err(|(lane, problem)| (first as u32 + lane, problem)),
        }
    }

    /// A whole warp does a word that concerns no other.
    fn execute(
        &mut self,
        block: &Block<'_>,
        warp: usize,
        word: WarpWord,
        location: &'static Location<'static>,
    ) -> Result<(), warp::Failed> {
        let inputs = *self.warps[warp].inputs;
        let mut outputs = [[0; 8]; WARP_LANES as usize];
        let site = self.sites.number(location, block.context.sites);
        let of_block = match word {
            WarpWord::Wgmma(product) => {
                let registers = |lane: u32| core::array::from_fn(|i| inputs[lane as usize][i]);
                self.begin_product(warp, product, site, registers)
            }
            WarpWord::WgmmaCommit => {
                self.warps[warp].products.commit();
                Ok(())
            }
            WarpWord::WgmmaWait { pending } => self.end_products(warp, pending, site),
            WarpWord::TakeRegisters { registers } => self.set_registers(warp, registers, true),
            WarpWord::GiveRegisters { registers } => self.set_registers(warp, registers, false),
            _ => Ok(()),
        };
        of_block.map_err(|problem| (0, problem))?;
        let mut memory = OfWarp { state: self, block, first: warp as u32 * WARP_LANES, site };
        warp::execute(word, &inputs, &mut outputs, &mut memory)?;
        *self.warps[warp].outputs = outputs;
        if word == WarpWord::WarpSync {
            self.counters.warp_syncs += 1;
            self.step(warp).map_err(|problem| (0, problem.into()))?;
        }
        self.release(warp);
        Ok(())
    }

    /// A whole warp comes to a barrier; with the last of them it opens.
    fn meet(&mut self, warp: usize, id: u32, threads: u32, waits: bool) -> Result<(), (u32, Problem)> {
        let fail = |fault: Fault| (warp as u32 * WARP_LANES, fault.into());
        let seen_before = self.step(warp).map_err(fail)?;
        let barrier = &mut self.barriers[id as usize];
        if barrier.arrived == 0 {
            barrier.expected = threads;
        } else if barrier.expected != threads {
            let problem =
                format!("barrier {id} for {threads} threads, where others wait for {}", barrier.expected);
            return Err(fail(Fault::Argument { problem }));
        }
        barrier.arrived += WARP_LANES;
        for (seen, mine) in barrier.seen.iter_mut().zip(seen_before) {
            *seen = (*seen).max(mine);
        }
        if waits {
            barrier.waiting.push(warp);
        } else {
            self.release(warp);
        }
        let barrier = &mut self.barriers[id as usize];
        if barrier.arrived == barrier.expected {
            let Barrier { waiting, seen, .. } = core::mem::take(barrier);
            for warp in waiting {
                self.clocks.join(warp, &seen);
                self.release(warp);
            }
            match id {
                0 => self.counters.barriers += 1,
                _ => self.counters.named_barriers += 1,
            }
        }
        Ok(())
    }

    /// What the warp did so far is past for its own lanes; gives what it has now seen.
    fn step(&mut self, warp: usize) -> Result<[u32; MAX_WARPS], Fault> {
        if self.clocks.step(warp) {
            Ok(self.clocks.seen(warp))
        } else {
            Err(Fault::Launch { problem: "a warp synchronizes more than two million times".into() })
        }
    }

    /// The warp's lanes go on.
    fn release(&mut self, warp: usize) {
        let first = warp * WARP_LANES as usize;
        self.statuses[first..first + WARP_LANES as usize].fill(Status::Ready);
    }
}

/// Memory as one warp reaches it in one word.
struct OfWarp<'s, 'l> {
    state: &'s mut State,
    block: &'s Block<'l>,
    /// The warp's first thread.
    first: u32,
    site: u16,
}

impl WarpMemory for OfWarp<'_, '_> {
    fn load_shared(&mut self, lane: u32, address: u32, into: &mut [u8], align: u32) -> Result<(), Problem> {
        let State { shared, clocks, .. } = self.state;
        shared.load(address, into, align, clocks.now(self.first + lane), self.site)
    }

    fn store_shared(&mut self, lane: u32, address: u32, value: f32) -> Result<(), Problem> {
        let State { shared, clocks, .. } = self.state;
        shared.store(address, &value.to_le_bytes(), 4, clocks.now(self.first + lane), self.site)
    }

    fn store_global(&mut self, lane: u32, address: u64, value: f32) -> Result<(), Problem> {
        let by = self.state.toucher(self.block, self.first + lane, self.site);
        self.block.context.memory.store(address, &value.to_le_bytes(), by)
    }

    fn counters(&mut self) -> &mut Counters {
        &mut self.state.counters
    }
}
