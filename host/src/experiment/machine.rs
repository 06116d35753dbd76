//! What experiments run on: a device, or the emulator with what NVIDIA's assembler says.

use std::fmt;

use serde::Serialize;

use super::kernel::Kernel;
use super::problem::{Problem, Uploaded};
use super::timing::{Comparison, Side};
use crate::cuda::{Emulated, Error, Queue, Stream};
use crate::ptx::{Multiprocessor, Usage};

/// What a kernel takes; `None` where there was nobody to ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Registers of a thread.
    pub registers: Option<u32>,
    /// Bytes of local memory of a thread: spilled registers.
    pub spill_bytes: Option<u32>,
    /// Blocks that fit on a multiprocessor.
    pub blocks: Option<u32>,
}

/// Launches between two marks take so many milliseconds together, so that what a launch itself costs
/// is not in the time.
const BATCH_MS: f64 = 10.0;
/// The most of them.
const MOST_LAUNCHES: f64 = 1000.0;

/// Two kernels, timed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Timing {
    /// Launches in a batch.
    pub launches: u32,
    /// Milliseconds of one launch.
    pub comparison: Comparison,
}

/// What experiments run on.
pub trait Machine {
    /// Where kernels run.
    type Queue: Queue;

    /// Where they run.
    fn queue(&self) -> &Self::Queue;

    /// In words.
    fn description(&self) -> String;

    /// Runs the kernel again, in a way that must not change a bit.
    ///
    /// # Errors
    /// Those of a launch.
    fn run_again(&self, inputs: &Uploaded, kernel: Kernel) -> Result<Vec<f32>, Error>;

    /// What the kernel takes here.
    ///
    /// # Errors
    /// Those of loading the kernels.
    fn taken(&self, kernel: Kernel) -> Result<Taken, Error>;

    /// Times two kernels on a problem, `pairs` times; nothing where time means nothing.
    ///
    /// # Errors
    /// Those of launches.
    fn time(&self, problem: &Problem, kernels: [Kernel; 2], pairs: usize) -> Result<Option<Timing>, Error>;
}

impl Machine for Stream {
    type Queue = Self;

    fn queue(&self) -> &Self {
        self
    }

    fn description(&self) -> String {
        self.device().description().to_string()
    }

    fn run_again(&self, inputs: &Uploaded, kernel: Kernel) -> Result<Vec<f32>, Error> {
        inputs.run(self, kernel)
    }

    fn taken(&self, kernel: Kernel) -> Result<Taken, Error> {
        let resources = self.device().resources(kernel.name(), &kernel.entry().launch())?;
        Ok(Taken {
            registers: Some(resources.registers),
            spill_bytes: Some(resources.local_bytes),
            blocks: Some(resources.blocks_per_multiprocessor),
        })
    }

    fn time(&self, problem: &Problem, kernels: [Kernel; 2], pairs: usize) -> Result<Option<Timing>, Error> {
        let inputs = problem.upload(self)?;
        let mut out = inputs.output(self)?;
        let mut batch = |kernel: Kernel, launches: u32| -> Result<f64, Error> {
            let start = self.record()?;
            for _ in 0..launches {
                inputs.launch(self, kernel, &mut out)?;
            }
            let milliseconds = self.record()?.milliseconds_since(&start)?;
            Ok(f64::from(milliseconds) / f64::from(launches))
        };
        let [one, other] = kernels;
        // The first launches also load the kernels.
        batch(one, 3)?;
        batch(other, 3)?;
        let shorter = batch(one, 3)?.min(batch(other, 3)?).max(1e-6);
        let launches = (BATCH_MS / shorter).ceil().clamp(1.0, MOST_LAUNCHES) as u32;
        batch(one, launches)?;
        batch(other, launches)?;
        let comparison = Comparison::interleaved(pairs, |side| {
            batch(if side == Side::One { one } else { other }, launches)
        })?;
        Ok(Some(Timing { launches, comparison }))
    }
}

/// The emulator, and what the assembler made of the kernels, where there is one.
#[derive(Debug)]
pub struct Emulation {
    queue: Emulated,
    again: Emulated,
    assembled: Assembled,
}

/// What NVIDIA's assembler says of the kernels, or why it was not asked.
#[derive(Clone, Debug)]
pub enum Assembled {
    /// What they take on an architecture.
    For {
        /// The architecture's name.
        architecture: String,
        /// It as a number.
        sm: u32,
        /// Each kernel's.
        usage: Vec<Usage>,
    },
    /// Why not.
    Not(String),
}

impl fmt::Display for Assembled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::For { architecture, .. } => write!(f, "ptxas for {architecture}"),
            Self::Not(why) => write!(f, "no ptxas: {why}"),
        }
    }
}

impl Assembled {
    /// The architecture's name, if the assembler was asked.
    #[must_use]
    pub fn architecture(&self) -> Option<&str> {
        match self {
            Self::For { architecture, .. } => Some(architecture),
            Self::Not(_) => None,
        }
    }

    /// What a kernel takes on the architecture.
    #[must_use]
    pub fn taken(&self, kernel: Kernel) -> Taken {
        let Self::For { sm, usage, .. } = self else { return Taken::default() };
        let Some(usage) = usage.iter().find(|usage| usage.kernel == kernel.name()) else {
            return Taken::default();
        };
        let launch = kernel.entry().launch();
        let shared_bytes = usage.static_shared_bytes + launch.shared_bytes;
        Taken {
            registers: Some(usage.registers),
            spill_bytes: Some(usage.spill_bytes),
            blocks: Multiprocessor::of(*sm)
                .map(|unit| unit.fitting(launch.threads, usage.registers, shared_bytes)),
        }
    }
}

impl Emulation {
    /// An emulator, and the assembler's answers.
    #[must_use]
    pub fn new(assembled: Assembled) -> Self {
        let queue = Emulated::new();
        Self { again: queue.seed(1), queue, assembled }
    }
}

impl Machine for Emulation {
    type Queue = Emulated;

    fn queue(&self) -> &Emulated {
        &self.queue
    }

    fn description(&self) -> String {
        format!("the emulator; {}", self.assembled)
    }

    /// With lanes and warps in another order.
    fn run_again(&self, inputs: &Uploaded, kernel: Kernel) -> Result<Vec<f32>, Error> {
        inputs.run(&self.again, kernel)
    }

    fn taken(&self, kernel: Kernel) -> Result<Taken, Error> {
        Ok(self.assembled.taken(kernel))
    }

    fn time(&self, _: &Problem, _: [Kernel; 2], _: usize) -> Result<Option<Timing>, Error> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_computed_from_the_assemblers_answer() {
        let usage = |kernel: Kernel, registers| Usage {
            kernel: kernel.name().to_owned(),
            registers,
            spill_bytes: 8,
            stack_bytes: 0,
            static_shared_bytes: 0,
        };
        let assembled = |sm| Assembled::For {
            architecture: format!("sm_{sm}"),
            sm,
            usage: vec![usage(Kernel::Landed, 126), usage(Kernel::Tkv16, 117)],
        };
        let taken = assembled(121).taken(Kernel::Landed);
        assert_eq!(taken, Taken { registers: Some(126), spill_bytes: Some(8), blocks: Some(2) });
        assert_eq!(assembled(121).taken(Kernel::Tkv16).blocks, Some(3));
        assert_eq!(assembled(61).taken(Kernel::Landed).blocks, None, "an architecture that is not known");
        assert_eq!(assembled(121).taken(Kernel::Tq128), Taken::default());
    }
}
