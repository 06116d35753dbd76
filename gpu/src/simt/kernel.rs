//! How a kernel declares itself: its arguments are a type, and everything a launcher, an
//! emulator or a test must know of it hangs on that type.
//!
//! A kernel is a `repr(C)` struct of its arguments. [`Contract`] gives it a name, a launch
//! shape and expectations about its PTX; [`Kernel`] gives it a body on a machine `S`. Nobody
//! else owns a thread count, a grid or a number of shared bytes.

use core::fmt;

use super::{Simt, Work};

/// Three extents or three coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dim3 {
    /// The fastest axis.
    pub x: u32,
    /// The middle axis.
    pub y: u32,
    /// The slowest axis.
    pub z: u32,
}

impl Dim3 {
    /// `x` along the first axis, 1 along the others.
    #[must_use]
    pub const fn linear(x: u32) -> Self {
        Self { x, y: 1, z: 1 }
    }

    /// How many there are in all.
    #[must_use]
    pub const fn count(self) -> u64 {
        self.x as u64 * self.y as u64 * self.z as u64
    }
}

/// What a launch asks of the machine. Blocks are one-dimensional.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Blocks along each axis. A zero anywhere means that there is nothing to do and nothing
    /// is launched: a driver refuses an empty grid.
    pub grid: Dim3,
    /// Threads of a block, a multiple of 32.
    pub threads: u32,
    /// Bytes of dynamic shared memory, exactly as many as the kernel uses.
    pub shared_bytes: u32,
}

/// An architecture: what PTX is compiled for, or the first that has what a kernel needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Architecture {
    /// Compute capability times ten: 80 for 8.0.
    pub sm: u32,
    /// Whether it is this compute capability alone, with instructions that no later one keeps: the
    /// `a` of `sm_90a`.
    pub exact: bool,
}

impl Architecture {
    /// The oldest that there are kernels for.
    pub const OLDEST: Self = Self { sm: 75, exact: false };

    /// The architecture that PTX calls `sm_80` or `sm_90a`.
    #[must_use]
    pub const fn parse(name: &str) -> Option<Self> {
        let [b's', b'm', b'_', digits @ ..] = name.as_bytes() else { return None };
        let (mut digits, exact) = match digits {
            [digits @ .., b'a'] => (digits, true),
            digits => (digits, false),
        };
        let mut sm = 0_u32;
        // Four digits stay far below 2^32.
        if digits.is_empty() || digits.len() > 4 {
            return None;
        }
        while let [digit, rest @ ..] = digits {
            if !digit.is_ascii_digit() {
                return None;
            }
            sm = 10 * sm + (*digit - b'0') as u32;
            digits = rest;
        }
        Some(Self { sm, exact })
    }

    /// Whether a GPU of compute capability `sm` (times ten) runs PTX for this.
    #[must_use]
    pub const fn runs_on(self, sm: u32) -> bool {
        if self.exact { sm == self.sm } else { sm >= self.sm }
    }

    /// Whether PTX for `target` can hold what needs this.
    #[must_use]
    pub const fn is_in(self, target: Self) -> bool {
        self.runs_on(target.sm) && (target.exact || !self.exact)
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.sm, if self.exact { "a" } else { "" })
    }
}

/// A kernel's arguments together with its side of the launch contract.
///
/// The implementing type is `repr(C)`, holds only [`Global`](super::Global)s and 32- or 64-bit
/// numbers, and is the entry point's one parameter.
pub trait Contract: Copy + Send + Sync + 'static {
    /// The exported name of the entry point.
    const NAME: &'static str;
    /// What its PTX must look like.
    const EXPECTATIONS: Expectations;
    /// How many registers `ptxas` may give a thread from sm_80 on, and must manage with without spills: where it would
    /// take a few more than the blocks that should share a multiprocessor leave, or where a limit has it
    /// order loads and products better.
    const REGISTER_LIMIT: Option<u32> = None;
    /// Whether it may begin before the launches before it are done, and keeps the rules for that: see
    /// [`simt`](super), "Launches that begin early".
    const STARTS_EARLY: bool = false;
    /// Whether a kernel that begins early also reads, before it waits, what launches wrote that are done by then, as
    /// its arguments' contract says: see there.
    const READS_SETTLED: bool = false;

    /// Grid, threads and shared bytes for the problem in these arguments.
    fn launch(&self) -> Launch;

    /// What a launch with these arguments has to do at least; `None` where nobody has counted it.
    ///
    /// `position` is where each row stands in its KV cache, for kernels that read that from the device's
    /// memory; the others do not ask.
    fn work(&self, position: u32) -> Option<Work> {
        let _ = position;
        None
    }
}

/// A kernel's body on the machine `S`.
pub trait Kernel<S: Simt>: Contract {
    /// What one lane does.
    ///
    /// # Safety
    /// Called by every thread of every block of exactly the launch that [`Contract::launch`]
    /// describes, with arguments that keep the kernel's documented contract: addresses of
    /// live buffers, as long and as aligned as it says, outputs not overlapping inputs.
    unsafe fn run(self, s: S);
}

/// How often something occurs in the PTX of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Not at all.
    Never,
    /// So many times.
    Exactly(u32),
    /// So many times or more.
    AtLeast(u32),
}

impl Count {
    /// Whether `found` occurrences are what is expected.
    #[must_use]
    pub const fn admits(self, found: u32) -> bool {
        match self {
            Self::Never => found == 0,
            Self::Exactly(n) => found == n,
            Self::AtLeast(n) => found >= n,
        }
    }
}

/// How often an instruction occurs in a kernel's PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occurrence {
    /// How the instruction's text begins: `wmma.mma`, `cp.async.cg`.
    pub instruction: &'static str,
    /// How often, as text: loops are counted once unless they are unrolled.
    pub count: Count,
    /// The first architecture that this holds for: 80 for what sm_75 does otherwise.
    pub since: u32,
}

impl Occurrence {
    /// An expectation for every architecture.
    #[must_use]
    pub const fn new(instruction: &'static str, count: Count) -> Self {
        Self { instruction, count, since: 0 }
    }

    /// The same from this architecture on.
    #[must_use]
    pub const fn since(self, since: u32) -> Self {
        Self { since, ..self }
    }
}

/// What a kernel's PTX must contain, and what `ptxas` may make of it. Spills are never allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expectations {
    /// Instructions and how often they occur.
    pub instructions: &'static [Occurrence],
    /// The most registers a thread may take on any architecture.
    pub registers: u32,
    /// Whether the kernel may keep an array in local memory. A loop over registers that was
    /// not unrolled does so by accident, and costs several times the time.
    pub local_memory: bool,
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn architectures_are_read_and_ordered() {
        let architecture = |name| Architecture::parse(name).expect(name);
        for name in ["sm_75", "sm_80", "sm_90", "sm_90a", "sm_121"] {
            assert_eq!(architecture(name).to_string(), name);
        }
        for name in ["", "sm_", "sm_a", "sm_9x", "sm_99999", "compute_80", "80"] {
            assert_eq!(Architecture::parse(name), None, "{name}");
        }
        assert_eq!(architecture("sm_75"), Architecture::OLDEST);
        // What needs the one, and the targets that have it.
        for (needs, targets) in [
            ("sm_75", [true; 4]),
            ("sm_80", [false, true, true, true]),
            ("sm_90a", [false, false, true, false]),
        ] {
            let found = ["sm_75", "sm_80", "sm_90a", "sm_120"]
                .map(|target| architecture(needs).is_in(architecture(target)));
            assert_eq!(found, targets, "{needs}");
        }
        assert!(!architecture("sm_90a").is_in(architecture("sm_90")));
        assert!(architecture("sm_90a").runs_on(90) && !architecture("sm_90a").runs_on(100));
        assert!(architecture("sm_80").runs_on(121) && !architecture("sm_80").runs_on(75));
    }

    #[test]
    fn counts_admit_what_they_say() {
        assert!(Count::Never.admits(0) && !Count::Never.admits(1));
        assert!(Count::Exactly(2).admits(2) && !Count::Exactly(2).admits(3));
        assert!(Count::AtLeast(2).admits(3) && !Count::AtLeast(2).admits(1));
        assert_eq!(Dim3 { x: 1 << 31, y: 4, z: 2 }.count(), 1 << 34);
    }
}
