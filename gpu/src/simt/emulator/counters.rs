//! What a launch does, counted the way a profiler counts: per instruction of a warp.
//!
//! Lanes run one after the other, so a warp's instruction is put together from its lanes'
//! accesses: the n-th execution of one call by each lane, counted since the warp's lanes last
//! stood together, is one instruction. Lanes that leave a loop early are missing from its later
//! instructions, as they are on a GPU.

use core::ops::AddAssign;
use std::collections::HashMap;
use std::vec::Vec;

use crate::simt::WARP_LANES;

/// One kind of access to shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedTraffic {
    /// Instructions, counted per warp.
    pub instructions: u64,
    /// Passes through the 32 banks of 4 bytes. An instruction of 1 to 4 bytes a lane needs one at
    /// least, of 8 bytes one for each half of the warp, of 16 bytes one for each quarter; within
    /// a pass a bank gives one word, to as many lanes as want it.
    pub wavefronts: u64,
    /// Wavefronts beyond that least number.
    pub conflicts: u64,
    /// Bytes that the lanes asked for.
    pub bytes: u64,
}

/// One kind of access to global memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GlobalTraffic {
    /// Instructions, counted per warp.
    pub instructions: u64,
    /// Different aligned runs of 32 bytes that each instruction touches, added up.
    pub sectors: u64,
    /// Bytes that the lanes asked for. Coalesced access has `bytes == 32 * sectors`.
    pub bytes: u64,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident: $type:ty,)*) => {
        /// What a launch did, added up over its blocks.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: $type,)*
        }

        impl AddAssign for Counters {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// Block barriers that completed: a block that passes four counts four.
    barriers: u64,
    /// Meetings at named barriers that completed.
    named_barriers: u64,
    /// Warp syncs, counted per warp.
    warp_syncs: u64,
    /// Reads of shared memory: words, `ldmatrix`, `wmma.load`.
    shared_loads: SharedTraffic,
    /// Writes to shared memory: words, `wmma.store`. Asynchronous copies are not among them.
    shared_stores: SharedTraffic,
    /// Reads of global memory into registers.
    global_loads: GlobalTraffic,
    /// Writes to global memory.
    global_stores: GlobalTraffic,
    /// Asynchronous copies; the bytes are those read from global memory, without zero fill.
    copies: GlobalTraffic,
    /// `ldmatrix`, counted per warp.
    ldmatrix: u64,
    /// `wmma.load` and `wmma.store`, counted per warp.
    wmma_memory: u64,
    /// `wmma.mma`, counted per warp.
    wmma_mma: u64,
    /// `mma`, counted per warp.
    mma: u64,
    /// `wgmma`, counted per warp: four times for each.
    wgmma: u64,
    /// Bulk copies.
    bulk_copies: u64,
    /// Bytes that they brought to shared memory.
    bulk_loaded: u64,
    /// Bytes that they brought from there.
    bulk_stored: u64,
    /// Shuffles, counted per warp.
    shuffles: u64,
    /// Votes, counted per warp.
    votes: u64,
}

impl Counters {
    /// Bytes asked of global memory, however they were.
    #[must_use]
    pub const fn bytes_read(&self) -> u64 {
        self.global_loads.bytes + self.copies.bytes + self.bulk_loaded
    }

    /// Bytes that went to global memory.
    #[must_use]
    pub const fn bytes_written(&self) -> u64 {
        self.global_stores.bytes + self.bulk_stored
    }
}

macro_rules! add_fields {
    ($type:ty: $($field:ident),*) => {
        impl AddAssign for $type {
            fn add_assign(&mut self, other: Self) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

add_fields!(SharedTraffic: instructions, wavefronts, conflicts, bytes);
add_fields!(GlobalTraffic: instructions, sectors, bytes);

impl SharedTraffic {
    /// Counts one instruction: the lanes that take part, in order, and the address of each.
    pub(super) fn count(&mut self, bytes: u32, accesses: impl Iterator<Item = (u32, u32)>) {
        let lanes_at_once = WARP_LANES / bytes.div_ceil(4);
        self.instructions += 1;
        let mut part = Part::default();
        let mut current = None;
        for (lane, address) in accesses {
            let of = Some(lane / lanes_at_once);
            if current != of && current.is_some() {
                part.finish(self);
            }
            current = of;
            self.bytes += u64::from(bytes);
            for word in address / 4..(address + bytes).div_ceil(4) {
                part.touch(word);
            }
        }
        if current.is_some() {
            part.finish(self);
        }
    }
}

/// One part of a warp that is served together: which words are asked of each bank.
#[derive(Default)]
struct Part {
    /// The first word asked of a bank, where `seen` says that there is one.
    first: [u32; 32],
    seen: u32,
    /// Further different words, and how many of them for each bank.
    further: Vec<u32>,
    depth: [u32; 32],
}

impl Part {
    fn touch(&mut self, word: u32) {
        let bank = (word % 32) as usize;
        if self.seen >> bank & 1 == 0 {
            self.seen |= 1 << bank;
            self.first[bank] = word;
        } else if self.first[bank] != word && !self.further.contains(&word) {
            self.further.push(word);
            self.depth[bank] += 1;
        }
    }

    fn finish(&mut self, traffic: &mut SharedTraffic) {
        let beyond = u64::from(self.depth.iter().max().copied().unwrap_or(0));
        traffic.wavefronts += 1 + beyond;
        traffic.conflicts += beyond;
        (self.seen, self.depth) = (0, [0; 32]);
        self.further.clear();
    }
}

impl GlobalTraffic {
    /// Counts one instruction and its sectors, not its bytes: the address of each lane that takes
    /// part. Words are aligned to their size, so each lies in one sector.
    pub(super) fn count(&mut self, addresses: impl Iterator<Item = u64>) {
        self.instructions += 1;
        let mut sectors = [0_u64; WARP_LANES as usize];
        let mut different = 0;
        for address in addresses {
            let sector = address / 32;
            if !sectors[..different].iter().rev().any(|&known| known == sector) {
                sectors[different] = sector;
                different += 1;
            }
        }
        self.sectors += different as u64;
    }
}

/// What kind of access an instruction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Access {
    SharedLoad,
    SharedStore,
    GlobalLoad,
    GlobalStore,
    Copy,
}

/// The call, the kind and the bytes a lane: what the accesses of one instruction share.
type Key = (u16, Access, u8);

/// One instruction of a warp, as far as its lanes have come.
struct Instruction {
    key: Key,
    /// Lanes that have executed it.
    lanes: u32,
    /// The previous instruction of the same key.
    previous: Option<u32>,
    addresses: [u64; WARP_LANES as usize],
}

/// The instructions of one warp since its lanes last stood together.
#[derive(Default)]
pub(super) struct Pending {
    instructions: Vec<Instruction>,
    /// The instructions of a key, in order.
    by_key: HashMap<Key, Vec<u32>>,
    /// Where each lane will likely go on.
    next: [u32; WARP_LANES as usize],
}

/// The address of a lane that takes part in an instruction and touches nothing.
const NOWHERE: u64 = u64::MAX;

impl Pending {
    /// A lane executes an access; `None`: it takes part and touches nothing.
    #[inline]
    pub(super) fn record(&mut self, lane: u32, site: u16, access: Access, bytes: u32, address: Option<u64>) {
        let key = (site, access, bytes as u8);
        let likely = self.next[lane as usize];
        let index = if self.is_next(likely, key, lane) { likely } else { self.find(key, lane) };
        self.next[lane as usize] = index + 1;
        let instruction = &mut self.instructions[index as usize];
        instruction.lanes |= 1 << lane;
        instruction.addresses[lane as usize] = address.unwrap_or(NOWHERE);
    }

    fn has(&self, index: u32, lane: u32) -> bool {
        self.instructions[index as usize].lanes >> lane & 1 == 1
    }

    /// Whether this is the first instruction of `key` that the lane has not executed.
    fn is_next(&self, index: u32, key: Key, lane: u32) -> bool {
        self.instructions.get(index as usize).is_some_and(|instruction| {
            instruction.key == key
                && instruction.lanes >> lane & 1 == 0
                && instruction.previous.is_none_or(|previous| self.has(previous, lane))
        })
    }

    /// The first instruction of `key` that the lane has not executed, or a new one.
    fn find(&mut self, key: Key, lane: u32) -> u32 {
        let new = self.instructions.len() as u32;
        let of_key = self.by_key.entry(key).or_default();
        let instructions = &self.instructions;
        let executed = of_key.partition_point(|&index| instructions[index as usize].lanes >> lane & 1 == 1);
        if let Some(&index) = of_key.get(executed) {
            return index;
        }
        let previous = of_key.last().copied();
        of_key.push(new);
        self.instructions.push(Instruction { key, lanes: 0, previous, addresses: [NOWHERE; 32] });
        new
    }

    /// The lanes stand together: what they have executed is complete.
    pub(super) fn flush(&mut self, counters: &mut Counters) {
        for instruction in &self.instructions {
            let (_, access, bytes) = instruction.key;
            let bytes = u32::from(bytes);
            let accesses = (0..).zip(instruction.addresses).filter(|&(_, address)| address != NOWHERE);
            // A shared address was 32 bits wide.
            let shared = accesses.clone().map(|(lane, address)| (lane, address as u32));
            let global = accesses.clone().map(|(_, address)| address);
            let global_bytes = u64::from(bytes) * global.clone().count() as u64;
            match access {
                Access::SharedLoad => counters.shared_loads.count(bytes, shared),
                Access::SharedStore => counters.shared_stores.count(bytes, shared),
                Access::GlobalLoad => {
                    counters.global_loads.count(global);
                    counters.global_loads.bytes += global_bytes;
                }
                Access::GlobalStore => {
                    counters.global_stores.count(global);
                    counters.global_stores.bytes += global_bytes;
                }
                // Its bytes are counted lane by lane: each may copy fewer than its size.
                Access::Copy => counters.copies.count(global),
            }
        }
        self.instructions.clear();
        self.by_key.clear();
        self.next = [0; WARP_LANES as usize];
    }
}
