//! Where the time of a pass goes: each kernel's part of the wall, and what it could not be faster than.
//!
//! | file | what |
//! | --- | --- |
//! | `run` | a prefill or decode steps, whole and launch by launch |
//! | `ceilings` | what the device moves and multiplies at most |
//! | `report` | kernels put together, as a table and as JSON |
//! | `trace` | launches as a trace of Chrome |
//!
//! The wall is measured as [`mod@crate::bench`] does, with nothing in between; then the same work runs on a
//! [`Recorded`](crate::cuda::Recorded) stream, with a mark before and after every launch and without graphs.
//! A launch's time is the median over the repetitions. What the wall has beyond the sum of these is the host's:
//! launches that come too late, waiting, copies. What the marks themselves take is measured and told.
//!
//! The floor of a launch is the larger of two times: of its bytes at the device's memory rate, and of its
//! operations at the rate of the tensor cores ([`Work`](gpu::simt::Work) says how many there are). What lies in
//! the L2 cache comes faster than from memory, so that a launch may be below its floor.
//!
//! The emulator has no times. There a launch has counters: the bytes that its lanes asked for stand beside the
//! bytes that it has to move.

mod ceilings;
mod report;
mod run;
mod trace;

pub use ceilings::{Ceiling, Ceilings};
pub use report::{Bound, Report, Row, Traffic};
pub use run::{Plan, ProfileError, Task, on_device, on_emulator};
pub use trace::write as write_trace;

#[cfg(test)]
pub(crate) use report::tests::report as test_report;

use crate::cuda::Launched;
use crate::experiment::timing::Spread;

/// What was measured.
#[derive(Clone, Debug)]
pub struct Profile {
    /// What was run.
    pub plan: Plan,
    /// What it ran on, in words.
    pub description: String,
    /// Its launches in order.
    pub launches: Vec<Measured>,
    /// Times, where there are any.
    pub times: Option<Times>,
}

/// A launch that was repeated.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// As it was the last time; its start is counted from the first launch of all, without what lies between
    /// two passes.
    pub launched: Launched,
    /// The median of its seconds, where it has a time.
    pub median: Option<f64>,
}

/// Times of the whole, in seconds.
#[derive(Clone, Debug)]
pub struct Times {
    /// With nothing in between.
    pub wall: Spread,
    /// From the first launch to the end of the last, all of them marked; the median.
    pub marked: f64,
    /// Between two marks without a launch.
    pub mark: f64,
    /// Of the device.
    pub ceilings: Ceilings,
}
