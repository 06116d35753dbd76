//! One kernel's cases, as they are played and judged.

use std::collections::BTreeSet;
use std::fmt::{Debug, Display};

use bytemuck::Pod;
use serde::Serialize;

use crate::cuda::{Error, Noted, Queue, ViewMut};
use crate::gate::guarded::{GuardError, Guarded};
use crate::gate::random::Random;

/// The element of a kernel's results that comes nearest to its bound, or is farthest outside.
#[derive(Clone, Debug, Serialize)]
pub struct Worst {
    /// The case: shapes and seed.
    pub case: String,
    /// The element's index in the output.
    pub index: usize,
    /// What is there; NaN, for which JSON has null, is never within a bound.
    pub found: f64,
    /// What the reference has there.
    pub expected: f64,
    /// By how much they may differ.
    pub bound: f64,
}

impl Worst {
    /// By how much they differ.
    #[must_use]
    pub fn off(&self) -> f64 {
        if self.found == self.expected { 0.0 } else { (self.found - self.expected).abs() }
    }

    /// Whether that is within the bound.
    #[must_use]
    pub fn is_within(&self) -> bool {
        self.off() <= self.bound
    }

    /// The difference as a part of the bound; infinite for a NaN.
    #[must_use]
    pub fn part(&self) -> f64 {
        match self.off() {
            0.0 => 0.0,
            off if off.is_nan() || self.bound.is_nan() => f64::INFINITY,
            off => off / self.bound,
        }
    }
}

/// Why a kernel's cases came to an end.
#[derive(Debug, thiserror::Error)]
pub enum Red {
    /// A launch failed. The emulator's faults are among these.
    #[error("{case}: {error}")]
    Launch {
        /// The case.
        case: String,
        /// What failed.
        error: Error,
    },
    /// A result is wrong in another way than by an element's value.
    #[error("{case}: {what}")]
    Wrong {
        /// The case.
        case: String,
        /// What is wrong.
        what: String,
    },
    /// Memory could not be had.
    #[error(transparent)]
    Memory(#[from] Error),
}

impl Red {
    pub(super) fn wrong(case: &dyn Display, what: impl Display) -> Self {
        Self::Wrong { case: case.to_string(), what: what.to_string() }
    }
}

/// How much is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Few shapes, once each: seconds on the emulator.
    Quick,
    /// All that the emulator plays in minutes, each twice: results have the same bits.
    All,
    /// And large shapes, for which only a device has the time.
    Large,
}

/// Where a kernel's cases are played, and what came of them so far.
#[derive(Debug)]
pub struct Trial<'a, Q> {
    queue: Noted<'a, Q>,
    extent: Extent,
    pub(super) random: Random,
    cases: usize,
    elements: usize,
    worst: Option<Worst>,
}

/// What came of a kernel's cases.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) cases: usize,
    pub(super) elements: usize,
    pub(super) worst: Option<Worst>,
    pub(super) launched: BTreeSet<&'static str>,
}

impl<'a, Q: Queue> Trial<'a, Q> {
    pub(super) fn new(queue: &'a Q, extent: Extent, seed: u64) -> Self {
        let (cases, elements, worst) = (0, 0, None);
        Self { queue: Noted::new(queue), extent, random: Random(seed), cases, elements, worst }
    }

    pub(super) fn queue(&self) -> &Noted<'a, Q> {
        &self.queue
    }

    pub(super) fn into_tally(self) -> Tally {
        let Self { queue, cases, elements, worst, .. } = self;
        Tally { cases, elements, worst, launched: queue.into_names() }
    }

    /// The cases of this extent.
    pub(super) fn cases<C: Clone>(&self, quick: &[C], more: &[C], large: &[C]) -> Vec<C> {
        match self.extent {
            Extent::Quick => quick.to_vec(),
            Extent::All => [quick, more].concat(),
            Extent::Large => [quick, more, large].concat(),
        }
    }

    /// Multiprocessors of the device.
    pub(super) fn multiprocessors(&self) -> usize {
        self.queue.multiprocessors() as usize
    }

    /// An input for kernels, with guard bands.
    pub(super) fn input<T: Pod>(
        &self,
        name: &str,
        elements: &[T],
        align: usize,
    ) -> Result<Guarded<T>, Error> {
        Guarded::input(&self.queue, name, elements, align)
    }

    /// What `launch` leaves in an output of `len` elements, which was NaN before: the same bits each time, unless
    /// there is time for only one.
    pub(super) fn output<T: Pod + Debug>(
        &mut self,
        case: &dyn Display,
        len: usize,
        align: usize,
        mut launch: impl FnMut(&Noted<'a, Q>, ViewMut<'_, T>) -> Result<(), Red>,
    ) -> Result<Vec<T>, Red> {
        let mut first: Option<Vec<T>> = None;
        for _ in 0..if self.extent == Extent::Quick { 1 } else { 2 } {
            let mut out = Guarded::output(&self.queue, "out", len, align)?;
            let failed = |error| Red::Launch { case: case.to_string(), error };
            launch(&self.queue, out.view_mut()).map_err(|red| match red {
                Red::Memory(error) => failed(error),
                red => red,
            })?;
            self.queue.synchronize().map_err(failed)?;
            let found = read(case, &out)?;
            let Some(first) = &first else {
                first = Some(found);
                continue;
            };
            let differs = |(a, b): (&T, &T)| bytemuck::bytes_of(a) != bytemuck::bytes_of(b);
            if let Some(i) = first.iter().zip(&found).position(differs) {
                let what = format!("[{i}] is {:?} in the first run, {:?} in the second", first[i], found[i]);
                return Err(Red::wrong(case, what));
            }
        }
        Ok(first.unwrap_or_default())
    }

    /// Compares each element with its reference, of which it may be off by so much.
    pub(super) fn compare(
        &mut self,
        case: &dyn Display,
        found: &[f32],
        expected: &[f64],
        bound: impl Fn(usize) -> f64,
    ) -> Result<(), Red> {
        if found.len() != expected.len() {
            let what = format!("{} elements for the {} of the reference", found.len(), expected.len());
            return Err(Red::wrong(case, what));
        }
        self.cases += 1;
        self.elements += found.len();
        let mut farthest = self.worst.as_ref().map_or(-1.0, Worst::part);
        for (index, (&found, &expected)) in found.iter().zip(expected).enumerate() {
            let (found, bound) = (f64::from(found), bound(index));
            let element = Worst { case: String::new(), index, found, expected, bound };
            if element.part() > farthest {
                farthest = element.part();
                self.worst = Some(Worst { case: case.to_string(), ..element });
            }
        }
        Ok(())
    }
}

/// The elements of a buffer whose guard bands are whole.
pub(super) fn read<T: Pod>(case: &dyn Display, buffer: &Guarded<T>) -> Result<Vec<T>, Red> {
    buffer.read().map_err(|error| match error {
        GuardError::Device(error) => Red::Launch { case: case.to_string(), error },
        band @ GuardError::Band(_) => Red::wrong(case, band),
    })
}
