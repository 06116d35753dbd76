//! Lanes as coroutines, and the order in which they run.
//!
//! A lane runs until it comes to a word that joins lanes and is not the last to come. Under seed
//! 0 lanes run in order, one warp until it waits at a barrier, then the next. Under any other seed
//! each turn is a random permutation of the block's lanes, and at one in 32 memory accesses a lane
//! gives up its turn.

use core::cell::{Cell, RefCell};
use core::panic::Location;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::string::{String, ToString};
use std::sync::Once;
use std::thread_local;
use std::vec::Vec;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};

use super::{Block, State, Status};
use crate::simt::emulator::counters::Counters;
use crate::simt::emulator::error::{EmulatorError, Fault};
use crate::simt::emulator::memory::Problem;
use crate::simt::emulator::warp::{Inputs, Outputs, WarpWord};
use crate::simt::{Kernel, WARP_LANES};

/// Bytes of a lane's stack. Pages that it never touches cost nothing.
const STACK_BYTES: usize = 256 << 10;

/// Stacks that no lane is using.
#[derive(Default)]
pub(in crate::simt::emulator) struct Stacks(Vec<DefaultStack>);

impl Stacks {
    fn take(&mut self) -> io::Result<DefaultStack> {
        self.0.pop().map_or_else(|| DefaultStack::new(STACK_BYTES), Ok)
    }
}

/// One lane of an emulated block: the machine that a kernel is given.
#[derive(Clone, Copy)]
pub struct Lane<'b> {
    pub(super) block: &'b Block<'b>,
    yielder: &'b Yielder<(), ()>,
    pub(super) thread: u32,
}

impl core::fmt::Debug for Lane<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Lane(block {:?}, thread {})", self.block.position, self.thread)
    }
}

impl Lane<'_> {
    /// Does something of this lane's own to the block's state.
    #[inline]
    pub(super) fn act<R>(
        self,
        location: &'static Location<'static>,
        action: impl FnOnce(&mut State, u16) -> Result<R, Problem>,
    ) -> R {
        let result = {
            let mut state = self.block.state.borrow_mut();
            if self.block.context.seed != 0 && state.random.below(32) == 0 {
                drop(state);
                self.yielder.suspend(());
                state = self.block.state.borrow_mut();
            }
            let site = state.sites.number(location, self.block.context.sites);
            action(&mut state, site)
        };
        result.unwrap_or_else(|problem| self.fail(self.thread, location, problem))
    }

    /// Meets the lanes of the warp, and at a barrier those of other warps.
    pub(super) fn meet(
        self,
        word: WarpWord,
        location: &'static Location<'static>,
        inputs: &Inputs,
    ) -> Outputs {
        let arrived = self.block.state.borrow_mut().arrive(self.block, self.thread, word, location, inputs);
        if let Err((thread, problem)) = arrived {
            self.fail(thread, location, problem);
        }
        if self.block.status(self.thread) != Status::Ready {
            self.yielder.suspend(());
        }
        let state = self.block.state.borrow();
        state.warps[(self.thread / WARP_LANES) as usize].outputs[(self.thread % WARP_LANES) as usize]
    }

    /// Lets others run, until this lane is ready again.
    pub(super) fn give_up_turn(self) {
        self.yielder.suspend(());
    }

    /// Stops the block: nobody runs again. Where only something unwritten was read, the others
    /// run on, to see whether it is written after all.
    pub(super) fn fail(self, thread: u32, location: &'static Location<'static>, problem: Problem) -> ! {
        let fault = self.block.fault(problem, location);
        let doubtful = matches!(fault, Fault::Uninitialized { .. });
        let error = self.block.error(Some(thread), Some(location), fault);
        {
            let state = &mut *self.block.state.borrow_mut();
            state.statuses[thread as usize] = Status::Stopped;
            if doubtful { &mut state.doubt } else { &mut state.failure }.get_or_insert(error);
        }
        loop {
            self.yielder.suspend(());
        }
    }
}

impl<'l> Block<'l> {
    fn status(&self, thread: u32) -> Status {
        self.state.borrow().statuses[thread as usize]
    }

    /// Runs all lanes to their end.
    pub(in crate::simt::emulator) fn run<K>(
        self,
        kernel: K,
        stacks: &mut Stacks,
    ) -> Result<Counters, EmulatorError>
    where
        K: for<'b> Kernel<Lane<'b>>,
    {
        let threads = self.context.launch.threads;
        let mut lanes = Vec::with_capacity(threads as usize);
        for thread in 0..threads {
            let stack = stacks.take().map_err(|error| {
                let problem = std::format!("no memory for the stacks of {threads} lanes: {error}");
                self.error(None, None, Fault::Launch { problem })
            })?;
            let (block, kernel) = (&self, &kernel);
            let body = move |yielder: &Yielder<(), ()>, ()| {
                // SAFETY: every thread of the launch runs it; what the kernel's contract asks for
                // is checked word by word, and a word that fails does not return.
                unsafe { kernel.run(Lane { block, yielder, thread }) }
            };
            // SAFETY: `body` borrows `self` and `kernel`, which outlive `lanes`: all are dropped in
            // this function, and `lanes`, declared last, first.
            lanes.push(unsafe { Coroutine::with_stack_unchecked(stack, body) });
        }

        self.schedule(&mut lanes);
        // On an error lanes stand in the middle of the kernel. They are unwound to get their
        // stacks back.
        stacks.0.extend(lanes.into_iter().map(|mut lane| {
            lane.force_unwind();
            lane.into_stack()
        }));
        let mut state = self.state.borrow_mut();
        if let Some(error) = state.verdict() {
            return Err(error);
        }
        let State { warps, counters, .. } = &mut *state;
        warps.iter_mut().for_each(|warp| warp.pending.flush(counters));
        Ok(*counters)
    }

    /// Gives lanes their turns until none is left that could take one. It is a failure if they do
    /// not all come to their end.
    fn schedule(&self, lanes: &mut [Coroutine<(), (), (), DefaultStack>]) {
        let in_order = self.context.seed == 0;
        let mut order: Vec<u32> = (0..lanes.len() as u32).collect();
        let together = if in_order { WARP_LANES as usize } else { lanes.len() };
        let mut any = true;
        while any {
            any = false;
            for group in order.chunks_mut(together) {
                let mut progress = true;
                while progress {
                    progress = false;
                    if !in_order {
                        self.state.borrow_mut().random.shuffle(group);
                    }
                    for &mut thread in &mut *group {
                        if self.status(thread) != Status::Ready {
                            continue;
                        }
                        progress = true;
                        let result = resume(&mut lanes[thread as usize]);
                        let state = &mut *self.state.borrow_mut();
                        match result {
                            Ok(false) => {}
                            Ok(true) => {
                                state.statuses[thread as usize] = Status::Done;
                                if self.context.starts_early && !state.waited[thread as usize] {
                                    let error = self.error(Some(thread), None, Fault::NotWaited);
                                    state.failure.get_or_insert(error);
                                }
                            }
                            Err(message) => {
                                let error = self.error(Some(thread), None, Fault::Panic { message });
                                state.failure.get_or_insert(error);
                            }
                        }
                        if state.failure.is_some() {
                            return;
                        }
                    }
                    any |= progress;
                }
            }
        }
        let mut state = self.state.borrow_mut();
        let unfinished = state.warps.iter().try_for_each(|warp| warp.products.check_none());
        let fault = if state.statuses.iter().any(|&status| status != Status::Done) {
            Some(state.stuck())
        } else {
            unfinished.err()
        };
        if let Some(fault) = fault {
            let error = self.error(None, None, fault);
            state.failure.get_or_insert(error);
        }
    }
}

thread_local! {
    /// Whether this OS thread is inside a lane.
    static IN_LANE: Cell<bool> = const { Cell::new(false) };
    /// What the lane's panic said, and where it was.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs a lane until it waits (false) or is done (true). If it panics, gives what the panic said.
fn resume(lane: &mut Coroutine<(), (), (), DefaultStack>) -> Result<bool, String> {
    static HOOK: Once = Once::new();
    // A panic's place is told to the hook only. All other threads keep the hook that they had.
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(std::boxed::Box::new(move |info| {
            if IN_LANE.get() {
                PANIC.set(info.to_string().replace('\n', " "));
            } else {
                before(info);
            }
        }));
    });
    IN_LANE.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(|| lane.resume(()).as_return().is_some()));
    IN_LANE.set(false);
    result.map_err(|_| PANIC.take())
}

/// A small generator (splitmix64): a schedule is a function of the seed and the block.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64, block: u32) -> Self {
        Self(seed ^ u64::from(block).wrapping_mul(0xd134_2543_de82_ef95))
    }

    fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((((z ^ z >> 31) >> 32) * u64::from(n)) >> 32) as u32
    }

    fn shuffle(&mut self, items: &mut [u32]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u32 + 1) as usize);
        }
    }
}
