//! A prefill or decode steps, whole and launch by launch.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::ceilings::Ceilings;
use super::{Measured, Profile, Times};
use crate::backend::BackendError;
use crate::cuda::backend::{GpuBackend, GpuOptions};
use crate::cuda::{self, Cost, Device, Emulated, Observed, Pass, Queue, Recorded, Recorder, Stream};
use crate::experiment::timing::Spread;
use crate::model::Model;
use crate::session::{Session, SessionError};

/// The most bytes of memory that a stream is kept busy with: far more than its caches hold.
const SCRATCH: u64 = 1 << 28;
/// How much longer than the host takes to give a pass to a stream that is kept busy.
const AHEAD: f64 = 1.5;
/// The most fills that keep it busy.
const MOST_FILLS: f64 = 4000.0;
/// Seed of the tokens.
const SEED: u64 = 42;
/// Runs before those that are measured, which compile what is missing and fill caches.
const WARM_UPS: usize = 1;

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The work failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The backend failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] cuda::Error),
    /// Launches cannot be put beside those of another repetition.
    #[error("the work was not the same when it was repeated: launch {launch} was {first}, then {then}")]
    Unsteady {
        /// Which launch, counted from 0.
        launch: usize,
        /// Its kernel.
        first: String,
        /// The other kernel, or nothing.
        then: String,
    },
}

/// What is profiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Prompt tokens, evaluated together.
    Prefill(usize),
    /// Generated tokens, one step each.
    Decode {
        /// How many.
        steps: usize,
        /// Whether the device chooses each token, and no logits are brought to the host.
        greedy: bool,
    },
}

/// What is profiled, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What.
    pub task: Task,
    /// Positions that are filled before.
    pub depth: usize,
    /// Prompt tokens in one pass; `None`: what is fastest.
    pub batch: Option<usize>,
    /// How often it is measured, at least once.
    pub repetitions: usize,
}

impl Task {
    /// Tokens that are evaluated.
    #[must_use]
    pub const fn tokens(self) -> usize {
        match self {
            Self::Prefill(tokens) | Self::Decode { steps: tokens, .. } => tokens,
        }
    }

    /// Steps that numbers are given for one of; a prefill is one.
    #[must_use]
    pub const fn steps(self) -> usize {
        match self {
            Self::Prefill(_) => 1,
            Self::Decode { steps, .. } => steps,
        }
    }
}

impl Plan {
    /// Its name in llama-bench's terms: `pp512`, `tg8 @ d1024`.
    #[must_use]
    pub fn name(&self) -> String {
        let test = match self.task {
            Task::Prefill(tokens) => format!("pp{tokens}"),
            Task::Decode { steps, .. } => format!("tg{steps}"),
        };
        match self.depth {
            0 => test,
            depth => format!("{test} @ d{depth}"),
        }
    }

    /// Positions that it takes.
    #[must_use]
    pub const fn positions(&self) -> usize {
        self.depth.saturating_add(self.task.tokens())
    }
}

/// Profiles a model on a device. `step` is told what is done next.
///
/// # Errors
/// [`ProfileError`].
pub fn on_device(
    device: Device,
    model: &Arc<Model>,
    options: GpuOptions,
    plan: &Plan,
    step: &mut dyn FnMut(&str),
) -> Result<Profile, ProfileError> {
    step("the weights");
    let backend = GpuBackend::new(device.stream()?, Arc::clone(model), options, &mut |_, _| ())?;
    let mut work = Work::new(Session::new(Box::new(backend), plan.positions())?, plan)?;
    step("the whole");
    let wall = work.wall()?;
    let description = work.session.description();
    // Before the weights are there a second time.
    drop(work);

    step("the weights again");
    let stream = device.stream()?;
    let free = device.memory()?.0;
    let mut scratch = stream.output("scratch", (SCRATCH.min(free / 8) / 4) as usize)?;
    let fill = fill_seconds(&stream, &mut scratch)?;
    let queue = Recorded::new(stream, scratch);
    let recorder = queue.recorder();
    let backend = GpuBackend::new(queue, Arc::clone(model), options, &mut |_, _| ())?;
    let mut work = Work::new(Session::new(Box::new(backend), plan.positions())?, plan)?;
    step("each launch");
    let mut giving = Duration::ZERO;
    for _ in 0..WARM_UPS {
        let passes = work.passes(&recorder, 0)?;
        giving = passes.iter().map(|pass| pass.giving).max().unwrap_or_default();
    }
    let fills = (AHEAD * giving.as_secs_f64() / fill).ceil().min(MOST_FILLS) as u32;
    let repetitions = (0..plan.repetitions.max(1)).map(|_| work.passes(&recorder, fills));
    let repetitions = repetitions.collect::<Result<Vec<_>, _>>()?;
    drop((work, recorder));
    let launches = together(&repetitions)?;
    let marked = Spread::of(repetitions.iter().map(|passes| passes.iter().map(span).sum())).median;

    step("what the device can do");
    let stream = device.stream()?;
    let units = launches.iter().filter_map(|launch| launch.launched.work.map(|work| work.unit)).collect();
    let ceilings = Ceilings::measure(&stream, &units)?;
    let mark = Ceilings::mark(&stream)?;
    Ok(Profile { plan: *plan, description, launches, times: Some(Times { wall, marked, mark, ceilings }) })
}

/// What a model's launches count on the emulator, once.
///
/// # Errors
/// [`ProfileError`].
pub fn on_emulator(
    model: &Arc<Model>,
    options: GpuOptions,
    plan: &Plan,
    step: &mut dyn FnMut(&str),
) -> Result<Profile, ProfileError> {
    let queue = Emulated::new();
    let scratch = queue.output("scratch", 0)?;
    let queue = Recorded::new(queue, scratch);
    let recorder = queue.recorder();
    let backend = GpuBackend::new(queue, Arc::clone(model), options, &mut |_, _| ())?;
    let mut work = Work::new(Session::new(Box::new(backend), plan.positions())?, plan)?;
    step("each launch");
    let passes = work.passes(&recorder, 0)?;
    let description = work.session.description();
    Ok(Profile { plan: *plan, description, launches: together(&[passes])?, times: None })
}

/// Seconds of one fill.
fn fill_seconds(stream: &Stream, scratch: &mut cuda::Buffer<u32>) -> Result<f64, cuda::Error> {
    const FILLS: u32 = 4;
    stream.keep_busy(scratch, 1)?;
    let start = stream.record()?;
    stream.keep_busy(scratch, FILLS)?;
    let milliseconds = stream.record()?.milliseconds_since(&start)?;
    Ok((f64::from(milliseconds) / 1e3 / f64::from(FILLS)).max(1e-7))
}

/// The work, ready to be done again and again.
struct Work<'a> {
    session: Session,
    plan: &'a Plan,
    tokens: Vec<u32>,
    batch: usize,
}

impl<'a> Work<'a> {
    /// With the positions before it filled.
    fn new(mut session: Session, plan: &'a Plan) -> Result<Self, SessionError> {
        let mut random = ChaCha8Rng::seed_from_u64(SEED);
        let vocab_size = session.config().vocab_size as u64;
        let mut tokens: Vec<u32> =
            (0..plan.positions()).map(|_| (random.next_u64() % vocab_size) as u32).collect();
        let batch = plan.batch.unwrap_or_else(|| session.prompt_rows());
        let own = tokens.split_off(plan.depth);
        if !tokens.is_empty() {
            session.prefill(&tokens, batch, &mut |_, _| ControlFlow::Continue(()))?;
        }
        Ok(Self { session, plan, tokens: own, batch })
    }

    /// The time of the whole, repeated.
    fn wall(&mut self) -> Result<Spread, SessionError> {
        let mut times = Vec::new();
        for round in 0..WARM_UPS + self.plan.repetitions.max(1) {
            self.session.rewind(self.plan.depth);
            let start = Instant::now();
            (0..self.plan.task.steps()).try_for_each(|index| self.pass(index))?;
            if round >= WARM_UPS {
                times.push(start.elapsed().as_secs_f64());
            }
        }
        Ok(Spread::of(times))
    }

    /// What each of its passes launches, once. Before each the queue is kept busy with so many fills.
    fn passes<Q: Observed>(&mut self, recorder: &Recorder<Q>, fills: u32) -> Result<Vec<Pass>, ProfileError> {
        self.session.rewind(self.plan.depth);
        let steps = self.plan.task.steps();
        let pass = |index| {
            recorder.begin(self.session.position() as u32, fills);
            self.pass(index)?;
            Ok(recorder.finish()?)
        };
        (0..steps).map(pass).collect()
    }

    /// A step, or the whole prefill.
    fn pass(&mut self, index: usize) -> Result<(), SessionError> {
        match self.plan.task {
            Task::Prefill(_) => {
                let go = &mut |_: usize, _: usize| ControlFlow::Continue(());
                self.session.prefill(&self.tokens, self.batch, go)?;
            }
            Task::Decode { greedy: false, .. } => {
                self.session.decode(self.tokens[index])?;
            }
            // Not what was chosen: the work of every repetition is the same, whatever the model says.
            Task::Decode { greedy: true, .. } => {
                self.session.decode_greedy(self.tokens[index])?;
            }
        }
        Ok(())
    }
}

/// Seconds from the beginning of a pass's first launch to the end of its last.
fn span(pass: &Pass) -> f64 {
    match pass.launches.last().map(|launched| launched.cost) {
        Some(Cost::Time { start, seconds }) => start + seconds,
        _ => 0.0,
    }
}

/// The launches of all passes, each with the median over the repetitions.
fn together(repetitions: &[Vec<Pass>]) -> Result<Vec<Measured>, ProfileError> {
    let all = |passes: &[Pass]| {
        let mut before = 0.0;
        let mut launches = Vec::new();
        for pass in passes {
            launches.extend(pass.launches.iter().map(|&launched| match launched.cost {
                Cost::Time { start, seconds } => {
                    cuda::Launched { cost: Cost::Time { start: before + start, seconds }, ..launched }
                }
                Cost::Counters(_) => launched,
            }));
            before += span(pass);
        }
        launches
    };
    let repetitions: Vec<_> = repetitions.iter().map(|passes| all(passes)).collect();
    let Some((last, others)) = repetitions.split_last() else { return Ok(Vec::new()) };
    for other in others {
        let kernel = |launches: &[cuda::Launched], at: usize| {
            launches.get(at).map_or("none", |launched| launched.kernel).to_owned()
        };
        for launch in 0..last.len().max(other.len()) {
            let (first, then) = (kernel(other, launch), kernel(last, launch));
            if first != then {
                return Err(ProfileError::Unsteady { launch, first, then });
            }
        }
    }
    let measured = |(index, &launched): (usize, &cuda::Launched)| {
        let seconds = repetitions.iter().filter_map(|launches| match launches[index].cost {
            Cost::Time { seconds, .. } => Some(seconds),
            Cost::Counters(_) => None,
        });
        let seconds: Vec<_> = seconds.collect();
        let median = (!seconds.is_empty()).then(|| Spread::of(seconds).median);
        Measured { launched, median }
    };
    Ok(last.iter().enumerate().map(measured).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use gpu::simt::{Dim3, Launch};

    use super::*;
    use crate::cuda::Launched;

    /// A launch of each of these kernels, each so long, with gaps of 1 s.
    fn pass(kernels: &[(&'static str, f64)]) -> Pass {
        let mut start = 0.0;
        let launched = |&(kernel, seconds): &(&'static str, f64)| {
            let launch = Launch { grid: Dim3::linear(1), threads: 32, shared_bytes: 0 };
            let cost = Cost::Time { start, seconds };
            start += seconds + 1.0;
            Launched { kernel, launch, work: None, cost }
        };
        Pass { launches: kernels.iter().map(launched).collect(), giving: Duration::ZERO }
    }

    #[test]
    fn launches_have_their_median_and_stand_as_they_did_last() {
        let repetition = |a, b| vec![pass(&[("a", a), ("b", b)]), pass(&[("a", 10.0 * a)])];
        let launches = together(&[repetition(3.0, 5.0), repetition(9.0, 4.0), repetition(1.0, 7.0)]).unwrap();
        let found: Vec<_> = launches
            .iter()
            .map(|launch| (launch.launched.kernel, launch.median.unwrap(), launch.launched.cost))
            .collect();
        let at = |start, seconds| Cost::Time { start, seconds };
        assert_eq!(found, [("a", 3.0, at(0.0, 1.0)), ("b", 5.0, at(2.0, 7.0)), ("a", 30.0, at(9.0, 10.0))]);
        assert_eq!(span(&repetition(3.0, 5.0)[0]), 9.0);
        assert!(together(&[]).unwrap().is_empty());
    }

    #[test]
    fn other_launches_when_repeated_are_an_error() {
        let text = |first: &[(&'static str, f64)], then: &[(&'static str, f64)]| {
            together(&[vec![pass(first)], vec![pass(then)]]).unwrap_err().to_string()
        };
        let (a, b) = (("a", 1.0), ("b", 1.0));
        assert!(text(&[a, a], &[a, b]).contains("launch 1 was a, then b"));
        assert!(text(&[a, b], &[a]).contains("launch 1 was b, then none"));
        assert!(text(&[a], &[a, b]).contains("launch 1 was none, then b"));
    }
}
