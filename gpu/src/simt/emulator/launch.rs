//! Launches: blocks over the host's cores, errors in the order of blocks.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::boxed::Box;
use std::format;
use std::string::String;
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::block::{Block, Context, Lane, Stacks};
use super::counters::Counters;
use super::error::{EmulatorError, Fault};
use super::memory::Memory;
use super::site::Sites;
use crate::simt::{Kernel, Launch, WARP_LANES};

/// The most threads of a block.
const MAX_THREADS: u32 = 1024;

/// An emulated GPU.
#[derive(Clone, Copy, Debug)]
pub struct Emulator {
    seed: u64,
}

impl Default for Emulator {
    fn default() -> Self {
        Self::new()
    }
}

impl Emulator {
    /// The most dynamic shared memory of a block, in bytes: 227 KiB, as on sm_90.
    pub const MAX_SHARED_BYTES: u32 = 227 << 10;

    /// Lanes run in order: the schedule that is easiest to follow.
    #[must_use]
    pub const fn new() -> Self {
        Self { seed: 0 }
    }

    /// Lanes run in an order drawn from `seed`, and lose their turn at memory accesses now and
    /// then. The same seed gives the same order; 0 is that of [`new`](Self::new).
    #[must_use]
    pub const fn seed(self, seed: u64) -> Self {
        Self { seed }
    }

    /// Plays the launch that the kernel's contract describes.
    ///
    /// What a kernel without faults computes does not depend on how blocks are spread over cores.
    ///
    /// # Errors
    /// The first failed check of the first block that has one. Buffers hold what was written
    /// until then.
    pub fn launch<K>(&self, memory: &mut Memory, kernel: K) -> Result<Counters, EmulatorError>
    where
        K: for<'b> Kernel<Lane<'b>>,
    {
        self.launch_as(memory, kernel, kernel.launch())
    }

    /// As [`launch`](Self::launch) with another geometry: what a test does to see that a wrong one
    /// is found.
    ///
    /// # Errors
    /// As [`launch`](Self::launch).
    pub fn launch_as<K>(
        &self,
        memory: &mut Memory,
        kernel: K,
        launch: Launch,
    ) -> Result<Counters, EmulatorError>
    where
        K: for<'b> Kernel<Lane<'b>>,
    {
        let blocks = check(launch).map_err(|problem| EmulatorError {
            kernel: K::NAME,
            block: None,
            thread: None,
            location: None,
            seed: self.seed,
            fault: Box::new(Fault::Launch { problem }),
        })?;
        let warps = (launch.threads / WARP_LANES) as usize;
        let workers = thread::available_parallelism().map_or(1, usize::from).min(blocks as usize);
        memory.begin_launch(warps, K::STARTS_EARLY);
        let run = |memory: &mut Memory, workers| {
            let (memory, sites) = (&*memory, &Sites::default());
            run_blocks(
                &Context {
                    kernel: K::NAME,
                    launch,
                    seed: self.seed,
                    starts_early: K::STARTS_EARLY,
                    reads_settled: K::READS_SETTLED,
                    registers: K::REGISTER_LIMIT,
                    memory,
                    sites,
                },
                kernel,
                blocks,
                workers,
            )
        };
        if workers <= 1 {
            return run(memory, workers);
        }
        // Which of two blocks comes first is chance when they run side by side. So an error is
        // found in parallel, and told from a second run in which blocks run one after the other.
        let before = memory.snapshot();
        run(memory, workers).or_else(|error| {
            memory.restore(before);
            run(memory, 1).and(Err(error))
        })
    }
}

/// How many blocks the launch has, if a GPU grants it.
fn check(launch: Launch) -> Result<u32, String> {
    let Launch { grid, threads, shared_bytes } = launch;
    if threads == 0 || threads > MAX_THREADS || !threads.is_multiple_of(WARP_LANES) {
        return Err(format!("{threads} threads a block: it takes a multiple of 32 up to {MAX_THREADS}"));
    }
    let most = Emulator::MAX_SHARED_BYTES;
    if shared_bytes > most {
        return Err(format!("{shared_bytes} bytes of shared memory: at most {most}"));
    }
    if grid.x > i32::MAX as u32 || grid.y > 65_535 || grid.z > 65_535 {
        return Err(format!(
            "a grid of {} x {} x {}: at most 2^31 - 1 x 65535 x 65535",
            grid.x, grid.y, grid.z
        ));
    }
    u32::try_from(grid.count())
        .ok()
        .filter(|&blocks| blocks < i32::MAX as u32)
        .ok_or_else(|| format!("{} blocks: the emulator plays fewer than 2^31", grid.count()))
}

/// Runs the blocks on so many OS threads, begun in order, until one fails.
fn run_blocks<K>(
    context: &Context<'_>,
    kernel: K,
    blocks: u32,
    workers: usize,
) -> Result<Counters, EmulatorError>
where
    K: for<'b> Kernel<Lane<'b>>,
{
    let (next, failed) = (AtomicU32::new(0), AtomicBool::new(false));
    let total = Mutex::new(Ok(Counters::default()));
    let work = || {
        let mut stacks = Stacks::default();
        while !failed.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= blocks {
                break;
            }
            let result = Block::new(context, index).run(kernel, &mut stacks);
            let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
            match (&mut *total, result) {
                (Ok(total), Ok(counters)) => *total += counters,
                (total @ Ok(_), Err(error)) => {
                    *total = Err(error);
                    failed.store(true, Ordering::Relaxed);
                }
                (Err(_), _) => {}
            }
        }
    };
    if workers <= 1 {
        work();
    } else {
        thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(work);
            }
        });
    }
    total.into_inner().unwrap_or_else(PoisonError::into_inner)
}
