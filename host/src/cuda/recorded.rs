//! A queue that notes what goes through it, launch by launch.

#![expect(unsafe_code, reason = "a launch is unsafe on a device, and the trait is one")]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gpu::simt::emulator::{Counters, Lane};
use gpu::simt::{Kernel, Launch, Work};

use super::buffer::Buffer;
use super::emulated::Emulated;
use super::error::Error;
use super::queue::{Around, ModelQueue};
use super::{Event, Stream};

/// A queue of which it can be told what each launch costs.
pub trait Observed: ModelQueue {
    /// What is noted of a launch when it is given to the queue.
    type Note: Send;

    /// Does `launch` and notes it, in the place of a note that is no longer needed, if there is one.
    ///
    /// # Errors
    /// That of `launch`; [`Error::Driver`].
    fn observe(
        &self,
        used: Option<Self::Note>,
        launch: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Self::Note, Error>;

    /// What the launch cost; `first` is the note of the first of its pass. Waits for it.
    ///
    /// # Errors
    /// [`Error::Driver`] if something before has failed.
    fn cost(first: &Self::Note, note: &Self::Note) -> Result<Cost, Error>;

    /// Keeps the queue busy by filling `scratch` so many times: what is given to it meanwhile need not
    /// wait for the host later.
    ///
    /// # Errors
    /// [`Error::Driver`].
    fn keep_busy(&self, scratch: &mut Buffer<u32>, times: u32) -> Result<(), Error>;
}

/// What a launch cost.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "copied with a launch, of which there are some hundred")]
pub enum Cost {
    /// Of a device.
    Time {
        /// Seconds from the beginning of the pass's first launch to its own.
        start: f64,
        /// Seconds from there to its end.
        seconds: f64,
    },
    /// Of the emulator.
    Counters(Counters),
}

/// A launch that was noted.
#[derive(Clone, Copy, Debug)]
pub struct Launched {
    /// The kernel's name.
    pub kernel: &'static str,
    /// Its grid, threads and shared memory.
    pub launch: Launch,
    /// What it had to do, if that is known.
    pub work: Option<Work>,
    /// What it took.
    pub cost: Cost,
}

/// A pass that was noted.
#[derive(Clone, Debug)]
pub struct Pass {
    /// Its launches, in order.
    pub launches: Vec<Launched>,
    /// What the host took from [`Recorder::begin`] until the last of them was given to the queue.
    pub giving: Duration,
}

/// A queue that notes launches while its [`Recorder`] wants them. Nothing is captured on it: in a graph,
/// launches cannot be told apart.
pub struct Recorded<Q: Observed> {
    queue: Q,
    recorder: Recorder<Q>,
}

/// Says what is to be noted, and has what was.
pub struct Recorder<Q: Observed>(Arc<Mutex<Log<Q>>>);

impl<Q: Observed> Clone for Recorder<Q> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct Log<Q: Observed> {
    /// The pass that is noted.
    noting: Option<Noting>,
    notes: Vec<Noted<Q::Note>>,
    /// Notes to use again.
    used: Vec<Q::Note>,
    scratch: Buffer<u32>,
}

struct Noting {
    position: u32,
    /// How often to fill `scratch` before the first launch.
    fills: u32,
    begun: Instant,
    giving: Duration,
}

struct Noted<N> {
    kernel: &'static str,
    launch: Launch,
    work: Option<Work>,
    note: N,
}

impl<Q: Observed> Recorded<Q> {
    /// Of `queue`; `scratch` is memory that it may be kept busy with.
    pub fn new(queue: Q, scratch: Buffer<u32>) -> Self {
        let log = Log { noting: None, notes: Vec::new(), used: Vec::new(), scratch };
        Self { queue, recorder: Recorder(Arc::new(Mutex::new(log))) }
    }

    /// What says what is to be noted.
    #[must_use]
    pub fn recorder(&self) -> Recorder<Q> {
        self.recorder.clone()
    }
}

impl<Q: Observed> Recorder<Q> {
    /// Notes what is launched from now on, of rows that stand at `position` of their KV caches. Before the
    /// first launch the queue is kept busy with so many fills of its scratch memory.
    pub fn begin(&self, position: u32, fills: u32) {
        let mut log = self.lock();
        let log = &mut *log;
        log.used.extend(log.notes.drain(..).map(|noted| noted.note));
        log.noting = Some(Noting { position, fills, begun: Instant::now(), giving: Duration::ZERO });
    }

    /// Notes no more; waits for what was, and says what each launch cost.
    ///
    /// # Errors
    /// [`Error::Driver`] if something has failed.
    pub fn finish(&self) -> Result<Pass, Error> {
        let mut log = self.lock();
        let giving = log.noting.take().map_or(Duration::ZERO, |noting| noting.giving);
        let Some(first) = log.notes.first() else { return Ok(Pass { launches: Vec::new(), giving }) };
        let launched = |noted: &Noted<Q::Note>| {
            let &Noted { kernel, launch, work, ref note } = noted;
            Ok(Launched { kernel, launch, work, cost: Q::cost(&first.note, note)? })
        };
        let launches = log.notes.iter().map(launched).collect::<Result<_, Error>>()?;
        Ok(Pass { launches, giving })
    }

    /// What a panic left behind is a list that begins anew with the next pass.
    fn lock(&self) -> MutexGuard<'_, Log<Q>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Q: Observed> Around for Recorded<Q> {
    type Inner = Q;

    fn inner(&self) -> &Q {
        &self.queue
    }

    unsafe fn launch_around<K>(&self, kernel: K) -> Result<(), Error>
    where
        K: for<'a> Kernel<Lane<'a>>,
    {
        let launch = kernel.launch();
        let mut log = self.recorder.lock();
        let Log { noting: Some(noting), notes, used, scratch } = &mut *log else {
            // SAFETY: the caller's.
            return unsafe { self.queue.launch(kernel) };
        };
        if launch.grid.count() == 0 {
            return Ok(());
        }
        if notes.is_empty() {
            self.queue.keep_busy(scratch, noting.fills)?;
        }
        let work = kernel.work(noting.position);
        // SAFETY: the caller's.
        let note = self.queue.observe(used.pop(), || unsafe { self.queue.launch(kernel) })?;
        notes.push(Noted { kernel: K::NAME, launch, work, note });
        noting.giving = noting.begun.elapsed();
        Ok(())
    }
}

impl Observed for Stream {
    /// A mark before it and one after it.
    type Note = [Event; 2];

    fn observe(
        &self,
        used: Option<[Event; 2]>,
        launch: impl FnOnce() -> Result<(), Error>,
    ) -> Result<[Event; 2], Error> {
        let Some([before, after]) = used else {
            let before = self.record()?;
            launch()?;
            return Ok([before, self.record()?]);
        };
        self.record_again(&before)?;
        launch()?;
        self.record_again(&after)?;
        Ok([before, after])
    }

    fn cost([first, _]: &[Event; 2], [before, after]: &[Event; 2]) -> Result<Cost, Error> {
        let seconds = f64::from(after.milliseconds_since(before)?) / 1e3;
        Ok(Cost::Time { start: f64::from(before.milliseconds_since(first)?) / 1e3, seconds })
    }

    fn keep_busy(&self, scratch: &mut Buffer<u32>, times: u32) -> Result<(), Error> {
        (0..times).try_for_each(|_| self.fill(scratch.view_mut(), 0))
    }
}

impl Observed for Emulated {
    type Note = Counters;

    fn observe(
        &self,
        _used: Option<Counters>,
        launch: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Counters, Error> {
        launch()?;
        Ok(self.counters())
    }

    fn cost(_first: &Counters, note: &Counters) -> Result<Cost, Error> {
        Ok(Cost::Counters(*note))
    }

    fn keep_busy(&self, _scratch: &mut Buffer<u32>, _times: u32) -> Result<(), Error> {
        Ok(())
    }
}
