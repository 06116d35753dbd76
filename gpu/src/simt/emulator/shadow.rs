//! Who touched a byte last, and whether that comes before what happens now.
//!
//! Everything that orders accesses (`bar.sync`, `bar.warp.sync`) takes whole warps, so time is
//! counted per warp: a warp's clock steps at each such word. An access is stamped with its thread
//! and its warp's clock, and a warp knows of every warp up to which clock it has seen it. That is
//! all that happens-before needs: 32 × 32 numbers a block, one stamp a byte for the last write and
//! one for the reads since.

use std::vec;
use std::vec::Vec;

use crate::simt::WARP_LANES;

/// Warps of the largest block.
pub(super) const MAX_WARPS: usize = 32;

/// A moment in the life of a thread: the clock of its warp (21 bits), whether several lanes of
/// the warp are meant (1 bit), and the thread (10 bits). Zero: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp(u32);

const THREAD: u32 = (1 << 10) - 1;
const SEVERAL: u32 = 1 << 10;
const CLOCK_SHIFT: u32 = 11;
/// The clock of a write that has begun and not landed. No warp has ever seen it.
const IN_FLIGHT: u32 = (1 << 21) - 1;

impl Stamp {
    pub(super) const NEVER: Self = Self(0);

    const fn new(thread: u32, clock: u32) -> Self {
        Self(clock << CLOCK_SHIFT | thread)
    }

    /// The target of a copy that this thread began.
    pub(super) const fn in_flight(thread: u32) -> Self {
        Self::new(thread, IN_FLIGHT)
    }

    pub(super) const fn is_in_flight(self) -> bool {
        self.0 >> CLOCK_SHIFT == IN_FLIGHT
    }

    const fn clock(self) -> u32 {
        self.0 >> CLOCK_SHIFT
    }

    pub(super) const fn warp(self) -> u32 {
        (self.0 & THREAD) / WARP_LANES
    }

    /// The lane, where it is a single one.
    pub(super) const fn lane(self) -> Option<u32> {
        if self.0 & SEVERAL == 0 { Some(self.0 & THREAD & (WARP_LANES - 1)) } else { None }
    }

    /// This moment together with a later one of the same warp. What is ordered after the later is
    /// ordered after both.
    fn and(self, later: Self) -> Self {
        if self.clock() == later.clock() && (self.0 ^ later.0) & THREAD != 0 {
            Self(self.0 | SEVERAL)
        } else if self.clock() == later.clock() {
            self
        } else {
            later
        }
    }
}

/// What each warp of a block has seen of each.
#[derive(Debug)]
pub(super) struct Clocks {
    /// `seen[w][v]`: warp w is ordered after what v did up to this clock. `seen[w][w] + 1` is
    /// w's own clock now: a lane is not ordered after what its neighbours just did.
    seen: Vec<[u32; MAX_WARPS]>,
}

impl Clocks {
    pub(super) fn new(warps: usize) -> Self {
        Self { seen: vec![[0; MAX_WARPS]; warps] }
    }

    /// The thread's moment now.
    pub(super) fn now(&self, thread: u32) -> Moment<'_> {
        let warp = (thread / WARP_LANES) as usize;
        let seen = &self.seen[warp];
        Moment { stamp: Stamp::new(thread, seen[warp] + 1), seen }
    }

    /// What the warp did is now in its past, for all of its lanes. False when its clock has
    /// come to its end.
    pub(super) fn step(&mut self, warp: usize) -> bool {
        let clock = &mut self.seen[warp][warp];
        *clock += 1;
        *clock + 2 < IN_FLIGHT
    }

    /// What a warp has seen, to be [joined](Self::join) by those who meet it.
    pub(super) fn seen(&self, warp: usize) -> [u32; MAX_WARPS] {
        self.seen[warp]
    }

    /// The warp is ordered after all that is in `seen`.
    pub(super) fn join(&mut self, warp: usize, seen: &[u32; MAX_WARPS]) {
        for (mine, theirs) in self.seen[warp].iter_mut().zip(seen) {
            *mine = (*mine).max(*theirs);
        }
    }
}

/// A thread's now.
#[derive(Clone, Copy)]
pub(super) struct Moment<'a> {
    pub(super) stamp: Stamp,
    seen: &'a [u32; MAX_WARPS],
}

impl Moment<'_> {
    /// Whether `earlier` comes before now: its warp has been seen that far, or it was this very
    /// thread.
    fn follows(&self, earlier: Stamp) -> bool {
        earlier.clock() <= self.seen[earlier.warp() as usize]
            || ((earlier.0 ^ self.stamp.0) & (THREAD | SEVERAL) == 0 && !earlier.is_in_flight())
    }
}

/// The history of one byte: 16 bytes, so that four of them are one cache line.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cell {
    pub(super) write: Stamp,
    /// The reads since, if they are one warp's.
    read: Stamp,
    /// The reads since, if they are several warps': 1 + the index in [`Wide`]; else 0.
    wide: u32,
    pub(super) write_site: u16,
    read_site: u16,
}

/// Reads by several warps that nothing orders: one stamp a warp.
#[derive(Clone, Debug)]
pub(super) struct Wide {
    warps: usize,
    stamps: Vec<Stamp>,
    free: Vec<u32>,
}

impl Wide {
    pub(super) const fn new(warps: usize) -> Self {
        Self { warps, stamps: Vec::new(), free: Vec::new() }
    }

    fn row(&mut self, wide: u32) -> &mut [Stamp] {
        let start = (wide as usize - 1) * self.warps;
        &mut self.stamps[start..start + self.warps]
    }

    fn allocate(&mut self) -> u32 {
        if let Some(wide) = self.free.pop() {
            self.row(wide).fill(Stamp::NEVER);
            return wide;
        }
        self.stamps.resize(self.stamps.len() + self.warps, Stamp::NEVER);
        (self.stamps.len() / self.warps) as u32
    }
}

/// What an access must not follow: the stamp and site of the earlier one, and whether it wrote.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conflict {
    pub(super) stamp: Stamp,
    pub(super) site: u16,
    pub(super) wrote: bool,
}

impl Cell {
    const fn written(&self) -> Conflict {
        Conflict { stamp: self.write, site: self.write_site, wrote: true }
    }

    /// The byte is read now.
    #[inline]
    pub(super) fn read(&mut self, now: Moment<'_>, site: u16, wide: &mut Wide) -> Result<(), Conflict> {
        if !now.follows(self.write) {
            return Err(self.written());
        }
        self.read_site = site;
        if self.wide != 0 {
            let mine = &mut wide.row(self.wide)[now.stamp.warp() as usize];
            *mine = mine.and(now.stamp);
        } else if self.read.warp() == now.stamp.warp() {
            self.read = self.read.and(now.stamp);
        } else if now.follows(self.read) {
            self.read = now.stamp;
        } else {
            self.wide = wide.allocate();
            let row = wide.row(self.wide);
            row[self.read.warp() as usize] = self.read;
            row[now.stamp.warp() as usize] = now.stamp;
        }
        Ok(())
    }

    /// The byte is written now; `stamp` is the moment itself, or in flight.
    #[inline]
    pub(super) fn write(
        &mut self,
        now: Moment<'_>,
        stamp: Stamp,
        site: u16,
        wide: &mut Wide,
    ) -> Result<(), Conflict> {
        if !now.follows(self.write) {
            return Err(self.written());
        }
        let read = |stamp| Conflict { stamp, site: self.read_site, wrote: false };
        if self.wide != 0 {
            if let Some(&stamp) = wide.row(self.wide).iter().find(|&&stamp| !now.follows(stamp)) {
                return Err(read(stamp));
            }
            wide.free.push(self.wide);
        } else if !now.follows(self.read) {
            return Err(read(self.read));
        }
        *self = Self { write: stamp, read: Stamp::NEVER, wide: 0, write_site: site, read_site: 0 };
        Ok(())
    }

    /// A copy in flight has landed: from now on it is a write of `now`.
    pub(super) fn land(&mut self, now: Moment<'_>) {
        self.write = now.stamp;
    }
}
