//! What the emulator finds, as values.

use core::fmt;
use core::panic::Location;
use std::boxed::Box;
use std::string::String;
use std::vec::Vec;

use super::Dim3;
use crate::simt::WARP_LANES;

/// A failed check: what it is, and where.
///
/// Displayed, it is one line that says what happened to which bytes, who else is involved, where
/// both stand in the source, and how to see it again.
#[derive(Clone, Debug)]
pub struct EmulatorError {
    /// The kernel's exported name.
    pub kernel: &'static str,
    /// The block; `None` when the launch itself is refused.
    pub block: Option<Dim3>,
    /// The thread that was stopped; `None` when it is no single one.
    pub thread: Option<u32>,
    /// The call of the word that failed.
    pub location: Option<&'static Location<'static>>,
    /// The schedule under which it failed: a launch with the same seed fails in the same way.
    pub seed: u64,
    /// What is wrong.
    pub fault: Box<Fault>,
}

/// What is wrong.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// The launch asks for what no GPU grants.
    Launch {
        /// What, and what is allowed.
        problem: String,
    },
    /// An access, or a part of it, lies outside of the memory it was meant for.
    OutOfBounds {
        /// Where.
        place: Place,
        /// Bytes of the access.
        bytes: u32,
    },
    /// An address is not a multiple of what its word asks for.
    Misaligned {
        /// Where.
        place: Place,
        /// What the address must be a multiple of.
        align: u32,
    },
    /// A byte is read that nobody wrote.
    Uninitialized {
        /// The first such byte of the access.
        place: Place,
    },
    /// A buffer that was registered as an input is written.
    ReadOnly {
        /// Where.
        place: Place,
    },
    /// Two lanes of a block touch the same byte, one of them writes, and nothing orders them.
    Race {
        /// The byte.
        place: Place,
        /// Whether the stopped thread was about to write.
        writes: bool,
        /// Who came first.
        other: Party,
    },
    /// Two blocks touch the same byte of a buffer in one launch, and one of them writes.
    BlockRace {
        /// The byte.
        place: Place,
        /// Whether the stopped thread was about to write.
        writes: bool,
        /// The block that came first, as a linear index; `None`: several.
        other: Option<u32>,
    },
    /// A byte that is read through the read-only path is written in the same launch.
    NotConstant {
        /// The byte.
        place: Place,
    },
    /// A kernel that begins early touches what another launch may write, before it has waited for earlier
    /// launches: see [`simt`](crate::simt), "Launches that begin early".
    Early {
        /// Where; in a buffer that is not an input.
        place: Place,
        /// Whether the stopped thread was about to write.
        writes: bool,
        /// Whether it might have read this, had it been [settled](crate::simt::Contract::READS_SETTLED).
        settled: bool,
    },
    /// A kernel that begins early reads what another launch may write through the read-only path.
    EarlyConstant {
        /// Where; in a buffer that is not an input.
        place: Place,
    },
    /// A thread of a kernel that begins early ends, and has not waited for earlier launches.
    NotWaited,
    /// The target of an asynchronous copy is touched before the copy has been waited for.
    CopyNotWaitedFor {
        /// The byte.
        place: Place,
        /// Who began the copy, and where.
        copy: Party,
    },
    /// A word that joins the lanes of a warp is reached by some of them only.
    Divergence {
        /// Where all lanes that cannot go on wait, and who has left.
        lanes: Vec<Gathering>,
    },
    /// Barriers that can never complete.
    Deadlock {
        /// Where all lanes that cannot go on wait, and who has left.
        lanes: Vec<Gathering>,
    },
    /// An argument of a word is not one that the instruction takes.
    Argument {
        /// Which, and what is allowed.
        problem: String,
    },
    /// The kernel panicked.
    Panic {
        /// Its message.
        message: String,
    },
    /// Bytes of a buffer were not written exactly once.
    NotWrittenOnce {
        /// The first such byte.
        place: Place,
        /// How often it was written; 255 stands for that or more.
        times: u8,
    },
}

/// A byte of memory, by the name that a reader knows it under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Dynamic shared memory.
    Shared {
        /// Bytes from its start; negative before it.
        offset: i64,
        /// How many bytes the launch has.
        size: u32,
    },
    /// A registered buffer.
    Global {
        /// Its name.
        buffer: String,
        /// Bytes from its start.
        offset: u64,
        /// Its length in bytes.
        size: u64,
    },
    /// An address in no buffer.
    Unmapped {
        /// The address.
        address: u64,
    },
}

/// A lane that touched a byte earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Party {
    /// Its warp.
    pub warp: u32,
    /// Its lane; `None` when several lanes of the warp did.
    pub lane: Option<u32>,
    /// Whether it wrote.
    pub wrote: bool,
    /// The call of the word.
    pub location: &'static Location<'static>,
}

/// Lanes of one warp that stand at the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gathering {
    /// The warp.
    pub warp: u32,
    /// Its lanes, bit `l` for lane `l`.
    pub lanes: u32,
    /// The word at which they wait, and its call; `None`: they have left the kernel.
    pub at: Option<(&'static str, &'static Location<'static>)>,
}

impl core::error::Error for EmulatorError {}

impl core::error::Error for Fault {}

impl fmt::Display for EmulatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel {}", self.kernel)?;
        if let Some(Dim3 { x, y, z }) = self.block {
            write!(f, ", block ({x}, {y}, {z})")?;
        }
        if let Some(thread) = self.thread {
            write!(f, ", thread {thread} (warp {}, lane {})", thread / WARP_LANES, thread % WARP_LANES)?;
        }
        if let Some(location) = self.location {
            write!(f, ", at {location}")?;
        }
        write!(f, ": {}", self.fault)?;
        if self.block.is_some() {
            write!(f, "; seed {}", self.seed)?;
        }
        Ok(())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// "writes" or "reads".
        fn verb(writes: bool) -> &'static str {
            if writes { "writes" } else { "reads" }
        }
        match self {
            Self::Launch { problem } => write!(f, "launch refused: {problem}"),
            Self::OutOfBounds { place, bytes } => write!(f, "out of bounds: {bytes} bytes at {place}"),
            Self::Misaligned { place, align } => {
                write!(f, "misaligned: {place} is not a multiple of {align}")
            }
            Self::Uninitialized { place } => write!(f, "uninitialized: reads {place}, which nobody wrote"),
            Self::ReadOnly { place } => write!(f, "read-only: writes {place}, which is an input"),
            Self::Race { place, writes, other } => {
                write!(f, "race: {} {place}, which {other} with no barrier in between", verb(*writes))
            }
            Self::BlockRace { place, writes, other } => {
                write!(f, "race between blocks: {} {place}, which ", verb(*writes))?;
                match other {
                    Some(block) => write!(f, "block {block} touched in the same launch"),
                    None => write!(f, "other blocks read in the same launch"),
                }
            }
            Self::NotConstant { place } => {
                write!(
                    f,
                    "not constant: {place} is read through the read-only path and written in one launch"
                )
            }
            Self::Early { place, writes, settled } => {
                let what = match settled {
                    true => "which a launch before this one may still write",
                    false => "which is no input",
                };
                write!(f, "too early: {} {place}, {what}, before wait_for_previous", verb(*writes))
            }
            Self::EarlyConstant { place } => {
                write!(
                    f,
                    "not constant: reads {place}, which is no input, through the read-only path in a kernel \
                     that begins while earlier launches run"
                )
            }
            Self::NotWaited => {
                write!(f, "not waited: a kernel that begins early ends without wait_for_previous")
            }
            Self::CopyNotWaitedFor { place, copy } => {
                write!(
                    f,
                    "copy not waited for: touches {place}, still stale, where {copy} by an asynchronous copy \
                     that it has not waited for"
                )
            }
            Self::Divergence { lanes } => {
                write!(f, "divergence: not all lanes of a warp come to the same word: ")?;
                list(f, lanes)
            }
            Self::Deadlock { lanes } => {
                write!(f, "deadlock: these barriers cannot complete: ")?;
                list(f, lanes)
            }
            Self::Argument { problem } => write!(f, "bad argument: {problem}"),
            Self::Panic { message } => write!(f, "panic: {message}"),
            Self::NotWrittenOnce { place, times } => {
                write!(f, "not written exactly once: {place} was written {times} times")
            }
        }
    }
}

/// Gatherings, one after the other.
fn list(f: &mut fmt::Formatter<'_>, lanes: &[Gathering]) -> fmt::Result {
    for (i, gathering) in lanes.iter().enumerate() {
        write!(f, "{}{gathering}", if i == 0 { "" } else { "; " })?;
    }
    Ok(())
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shared { offset, size } => write!(f, "shared byte {offset} of {size}"),
            Self::Global { buffer, offset, size } => {
                write!(f, "byte {offset} of {size} of buffer `{buffer}`")
            }
            Self::Unmapped { address } => write!(f, "global address {address:#x}, which is in no buffer"),
        }
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lane {
            Some(lane) => {
                write!(f, "thread {} (warp {}, lane {lane})", self.warp * WARP_LANES + lane, self.warp)?
            }
            None => write!(f, "several lanes of warp {}", self.warp)?,
        }
        write!(f, " {} at {}", if self.wrote { "wrote" } else { "read" }, self.location)
    }
}

impl fmt::Display for Gathering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "warp {} lanes ", self.warp)?;
        let (mut lane, mut first) = (0, true);
        while lane < WARP_LANES {
            let run = (self.lanes >> lane).trailing_ones();
            if run > 0 {
                write!(f, "{}{lane}", if first { "" } else { "," })?;
                if run > 1 {
                    write!(f, "-{}", lane + run - 1)?;
                }
                first = false;
            }
            lane += run.max(1);
        }
        match self.at {
            Some((word, location)) => write!(f, " wait in {word} at {location}"),
            None => write!(f, " have left the kernel"),
        }
    }
}
