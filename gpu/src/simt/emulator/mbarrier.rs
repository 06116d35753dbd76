//! Barriers in shared memory that count arrivals and bytes, and the bulk copies that they count.

use std::collections::BTreeMap;
use std::format;
use std::string::String;
use std::vec::Vec;

use super::error::Fault;
use super::shadow::MAX_WARPS;

/// The bytes that a phase can wait for, as the ISA says.
const MOST_BYTES: i64 = (1 << 20) - 1;

/// A block's barriers, by their address.
#[derive(Default)]
pub(super) struct MBarriers(BTreeMap<u32, MBarrier>);

/// One barrier.
#[derive(Default)]
pub(super) struct MBarrier {
    /// Arrivals that end a phase.
    arrivals: u32,
    /// Those that this phase still waits for.
    missing: u32,
    /// Bytes that this phase expects.
    expected: i64,
    /// Copies of this phase.
    copies: Vec<BulkCopy>,
    /// Phases that have ended.
    phase: u32,
    /// What those who arrived in this phase had seen.
    seen: [u32; MAX_WARPS],
    /// The same of all phases that have ended.
    ended: [u32; MAX_WARPS],
}

/// A bulk copy to shared memory that has not landed.
pub(super) struct BulkCopy {
    /// Who began it.
    pub(super) thread: u32,
    /// Bytes from the start of shared memory.
    pub(super) to: usize,
    pub(super) data: Vec<u8>,
}

impl MBarriers {
    /// Makes a barrier.
    pub(super) fn initialize(&mut self, address: u32, arrivals: u32) -> Result<(), Fault> {
        if arrivals == 0 || arrivals >= 1 << 20 {
            return Err(argument(format!("{arrivals} arrivals: a phase takes 1 to 2^20 - 1")));
        }
        self.0.insert(address, MBarrier { arrivals, missing: arrivals, ..MBarrier::default() });
        Ok(())
    }

    /// The barrier at an address.
    pub(super) fn at(&mut self, address: u32) -> Result<&mut MBarrier, Fault> {
        let missing =
            || argument(format!("shared address {address:#x} is no barrier: nobody has made it one"));
        self.0.get_mut(&address).ok_or_else(missing)
    }
}

impl MBarrier {
    /// The phase expects more bytes.
    pub(super) fn expect(&mut self, bytes: u32) -> Result<(), Fault> {
        self.expected += i64::from(bytes);
        if self.expected > MOST_BYTES {
            return Err(argument(format!("{} bytes in a phase, at most 2^20 - 1", self.expected)));
        }
        Ok(())
    }

    /// Somebody who has seen this arrives.
    pub(super) fn arrive(&mut self, seen: &[u32; MAX_WARPS]) -> Result<(), Fault> {
        if self.missing == 0 {
            let problem =
                format!("an arrival too many: the phase takes {} and waits for bytes", self.arrivals);
            return Err(argument(problem));
        }
        self.missing -= 1;
        join(&mut self.seen, seen);
        Ok(())
    }

    /// A copy has begun.
    pub(super) fn begin(&mut self, copy: BulkCopy) {
        self.copies.push(copy);
    }

    /// The copies of the phase, to land, if that is all it waits for.
    pub(super) fn landing(&mut self) -> Option<Vec<BulkCopy>> {
        let under_way: i64 = self.copies.iter().map(|copy| copy.data.len() as i64).sum();
        (self.missing == 0 && under_way == self.expected).then(|| core::mem::take(&mut self.copies))
    }

    /// The phase ends; those who began its copies have seen this.
    pub(super) fn end(&mut self, seen: &[u32; MAX_WARPS]) {
        join(&mut self.seen, seen);
        join(&mut self.ended, &self.seen);
        (self.missing, self.expected, self.seen) = (self.arrivals, 0, [0; MAX_WARPS]);
        self.phase += 1;
    }

    /// What is seen by those who wait for the phase of this parity, if it has ended.
    pub(super) fn ended(&self, parity: u32) -> Option<[u32; MAX_WARPS]> {
        (self.phase % 2 != parity).then_some(self.ended)
    }
}

/// Both together.
pub(super) fn join(mine: &mut [u32; MAX_WARPS], theirs: &[u32; MAX_WARPS]) {
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        *mine = (*mine).max(*theirs);
    }
}

pub(super) fn argument(problem: String) -> Fault {
    Fault::Argument { problem }
}
