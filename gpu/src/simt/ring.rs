//! A ring of stages in shared memory, handed to and fro by barriers in memory.

use super::{Hopper, Shared};

/// One side's way through `count` stages: who fills them and who empties them each go through them in order,
/// round after round.
///
/// ```text
/// stages    stage 0, stage 1, ...
/// barriers  full  [count]  a phase ends when a stage has been filled
///           empty [count]  a phase ends when a stage may be filled again
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    stages: Shared<u8>,
    barriers: Shared<u64>,
    count: u32,
    bytes: u32,
    at: u32,
    round: u32,
}

impl Ring {
    /// At the first of `count` stages of so many bytes, with [`barrier_bytes`](Self::barrier_bytes) for their
    /// barriers.
    #[inline(always)]
    #[must_use]
    pub const fn new(stages: Shared<u8>, barriers: Shared<u64>, count: u32, bytes: u32) -> Self {
        Self { stages, barriers, count, bytes, at: 0, round: 0 }
    }

    /// Bytes of the barriers of so many stages.
    #[must_use]
    pub const fn barrier_bytes(count: u32) -> u32 {
        2 * 8 * count
    }

    /// Makes the barriers: a stage is full, and empty, after so many arrivals.
    ///
    /// # Safety
    /// One lane does so, before anyone uses the ring; a [fence](Hopper::fence_mbarrier_init)
    /// and a barrier of all who do follow.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn initialize(&self, s: impl Hopper, full: u32, empty: u32) {
        for stage in 0..self.count {
            // SAFETY: the caller's; the address is that of as many barriers.
            unsafe {
                s.mbarrier_init(self.barrier(stage), full);
                s.mbarrier_init(self.barrier(self.count + stage), empty);
            }
        }
    }

    /// Where the stage begins.
    #[inline(always)]
    #[must_use]
    pub const fn stage(&self) -> Shared<u8> {
        self.stages.row(self.at, self.bytes)
    }

    /// The barrier of a full stage.
    #[inline(always)]
    #[must_use]
    pub const fn full_barrier(&self) -> Shared<u64> {
        self.barrier(self.at)
    }

    /// The barrier of an empty stage.
    #[inline(always)]
    #[must_use]
    pub const fn empty_barrier(&self) -> Shared<u64> {
        self.barrier(self.count + self.at)
    }

    #[inline(always)]
    const fn barrier(&self, which: u32) -> Shared<u64> {
        self.barriers.at(which)
    }

    /// The parity of the phase that ends when the stage has been filled in this round.
    #[inline(always)]
    const fn full_parity(&self) -> u32 {
        self.round & 1
    }

    /// That of the round before, when it is given back: of none, which is over, in the first one.
    #[inline(always)]
    const fn empty_parity(&self) -> u32 {
        self.round & 1 ^ 1
    }

    /// Waits until the stage has been filled.
    ///
    /// # Safety
    /// The barriers have been initialized.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn wait_full(&self, s: impl Hopper) {
        // SAFETY: the caller's.
        unsafe { s.mbarrier_wait(self.full_barrier(), self.full_parity()) }
    }

    /// Waits until the stage may be filled; in the first round at once.
    ///
    /// # Safety
    /// The barriers have been initialized.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn wait_empty(&self, s: impl Hopper) {
        // SAFETY: the caller's.
        unsafe { s.mbarrier_wait(self.empty_barrier(), self.empty_parity()) }
    }

    /// On to the next one.
    #[inline(always)]
    pub const fn advance(&mut self) {
        self.at += 1;
        if self.at == self.count {
            (self.at, self.round) = (0, self.round + 1);
        }
    }

    /// On by so many stages, at most as many as there are.
    #[inline(always)]
    pub const fn advance_by(&mut self, stages: u32) {
        self.at += stages;
        if self.at >= self.count {
            (self.at, self.round) = (self.at - self.count, self.round + 1);
        }
    }

    /// On to the one after the next.
    #[inline(always)]
    pub const fn skip(&mut self) {
        self.advance();
        self.advance();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: u32 = 3;
    const BYTES: u32 = 1024;

    fn ring() -> Ring {
        Ring::new(Shared::from_address(4096), Shared::from_address(8192), COUNT, BYTES)
    }

    /// Where a ring is: the stage, its barriers, and the parities that it waits for there, full and empty.
    fn place(ring: &Ring) -> (u32, [u32; 2], [u32; 2]) {
        let barriers = [ring.full_barrier(), ring.empty_barrier()].map(Shared::address);
        (ring.stage().address(), barriers, [ring.full_parity(), ring.empty_parity()])
    }

    /// What [`place`] finds after so many stages.
    fn nth(n: u32) -> (u32, [u32; 2], [u32; 2]) {
        let (at, round) = (n % COUNT, n / COUNT);
        let barriers = [8192 + 8 * at, 8192 + 8 * (COUNT + at)];
        (4096 + at * BYTES, barriers, [round % 2, (round + 1) % 2])
    }

    #[test]
    fn a_ring_goes_through_its_stages_round_after_round() {
        let mut ring = ring();
        // The first phase ends with parity 0; the one before it, which is over, has 1.
        assert_eq!(place(&ring), (4096, [8192, 8216], [0, 1]));
        for n in 0..4 * COUNT {
            assert_eq!(place(&ring), nth(n), "stage {n}");
            ring.advance();
        }
        assert_eq!(Ring::barrier_bytes(COUNT), 48);
    }

    #[test]
    fn every_other_stage_of_an_odd_number_goes_over_the_end_of_a_round_in_between() {
        let mut ring = ring();
        for n in 0..2 * COUNT {
            assert_eq!(place(&ring), nth(2 * n), "stage {}", 2 * n);
            ring.skip();
        }
    }
}
