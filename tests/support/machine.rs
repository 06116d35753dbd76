//! Where the kernels' tests run: on the emulator always, on a device where there is one.
//!
//! A test of a kernel is one body, generic over [`Machine`], and [`on_both!`](on_both) makes two
//! tests of it: `NAME::emulated` and `NAME::device`. Without a device the second says
//! `NO DEVICE: …` on stderr and passes. The executable needs no file besides itself, so it can be
//! built on one machine and run on another that has a GPU and its driver.

#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fmt::Debug;
use std::io::{self, Write};
use std::ops::Range;

use bytemuck::Pod;
use gpu::simt::emulator::{Counters, GlobalTraffic};
use lanemap::cuda::{self, Device, Emulated, Error, ModelQueue, Stream, View, ViewMut, WGMMA};
#[allow(unused_imports, reason = "each test binary uses a part of it")]
pub(crate) use lanemap::gate::bounds::{EPSILON, FIRST_ORDER};
use lanemap::gate::{bounds, guarded};

/// Makes of each body, a function of a [`Machine`], one test on the emulator and one on a device.
#[allow(unused_macros, reason = "not every test binary has such tests")]
macro_rules! on_both {
    ($($body:ident),* $(,)?) => {$(
        mod $body {
            #[test]
            fn emulated() {
                super::$body(&lanemap::cuda::Emulated::new());
            }

            #[test]
            fn device() {
                let name = concat!(module_path!(), "::device");
                if let Some(stream) = super::machine::stream(name) {
                    super::$body(&stream);
                }
            }
        }
    )*};
}

#[allow(unused_imports, reason = "not every test binary has such tests")]
pub(crate) use on_both;

/// A stream of the first device, unless there is none.
pub(crate) fn stream(test: &str) -> Option<Stream> {
    match cuda::devices() {
        Ok(_) => Device::open(0).and_then(Device::stream).map(Some).unwrap(),
        Err(Error::Unavailable(why)) => {
            say(&format!("NO DEVICE: {test}: {why}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A line on stderr, which cargo does not hide, in one piece.
pub(crate) fn say(line: &str) {
    io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// Whether a queue has what compute capability 9.0 alone has.
pub(crate) fn has_wgmma(machine: &impl Machine, test: &str) -> bool {
    let has = machine.compute_capability().is_none_or(|sm| sm == WGMMA);
    if !has {
        say(&format!("NO DEVICE: {test}: needs compute capability 9.0, this is {}", machine.description()));
    }
    has
}

/// A queue that tests run on.
pub(crate) trait Machine: ModelQueue + Sized {
    /// What it is called in messages.
    const NAME: &'static str;
    /// Roundings to nearest of an f32 that a product on the tensor cores adds to a sum at most, for
    /// each element of K, see [`tensor_core_error`].
    const ROUNDINGS_OF_A_PRODUCT: f64;
    /// What it counts of a launch.
    type Counts: Clone + PartialEq + Debug;

    /// The cases that every machine plays, and those that only a device has the time for.
    fn cases<C: Copy>(&self, all: &[C], large: &[C]) -> Vec<C>;

    /// Runs the same work several times, in every way that must not change its result. `run` is
    /// told which one it is.
    fn each_run(&self, run: impl FnMut(&Self, &str));

    /// That kernels have written each byte of a part of an output once, where that is known.
    fn check_written_once<T>(&self, part: View<'_, T>);

    /// What the last launch did.
    fn counts(&self) -> Self::Counts;
}

impl Machine for Stream {
    const NAME: &'static str = "device";
    const ROUNDINGS_OF_A_PRODUCT: f64 = bounds::DEVICE_ROUNDINGS;
    type Counts = ();

    fn cases<C: Copy>(&self, all: &[C], large: &[C]) -> Vec<C> {
        [all, large].concat()
    }

    fn each_run(&self, mut run: impl FnMut(&Self, &str)) {
        for name in ["first run", "second run"] {
            run(self, name);
        }
    }

    fn check_written_once<T>(&self, _: View<'_, T>) {}

    fn counts(&self) -> Self::Counts {}
}

/// Schedules of the emulator: in order, and shuffled.
const SEEDS: [u64; 4] = [0, 1, 2, 0xdead_beef];

impl Machine for Emulated {
    const NAME: &'static str = "emulator";
    const ROUNDINGS_OF_A_PRODUCT: f64 = bounds::EMULATOR_ROUNDINGS;
    type Counts = Counters;

    fn cases<C: Copy>(&self, all: &[C], _: &[C]) -> Vec<C> {
        all.to_vec()
    }

    fn each_run(&self, mut run: impl FnMut(&Self, &str)) {
        for seed in SEEDS {
            run(&self.seed(seed), &format!("seed {seed}"));
        }
    }

    fn check_written_once<T>(&self, part: View<'_, T>) {
        Emulated::check_written_once(self, part).unwrap_or_else(|fault| panic!("{fault}"));
    }

    fn counts(&self) -> Self::Counts {
        self.counters()
    }
}

/// The gates' [`guarded::Guarded`], of which a failure is a failed test.
pub(crate) struct Guarded<T: Pod>(guarded::Guarded<T>);

impl<T: Pod> Guarded<T> {
    pub(crate) fn input<M: Machine>(machine: &M, name: &str, elements: &[T], align: usize) -> Self {
        Self(guarded::Guarded::input(machine, name, elements, align).unwrap())
    }

    pub(crate) fn in_out<M: Machine>(machine: &M, name: &str, elements: &[T], align: usize) -> Self {
        Self(guarded::Guarded::in_out(machine, name, elements, align).unwrap())
    }

    pub(crate) fn output<M: Machine>(machine: &M, name: &str, len: usize, align: usize) -> Self {
        Self(guarded::Guarded::output(machine, name, len, align).unwrap())
    }

    pub(crate) fn view(&self) -> View<'_, T> {
        self.0.view()
    }

    /// A part of [`view`](Self::view).
    pub(crate) fn slice(&self, range: Range<usize>) -> View<'_, T> {
        self.0.slice(range)
    }

    pub(crate) fn view_mut(&mut self) -> ViewMut<'_, T> {
        self.0.view_mut()
    }

    /// The elements, if both bands are whole to the bit.
    pub(crate) fn read(&self) -> Vec<T> {
        self.0.read().unwrap_or_else(|error| panic!("{error}"))
    }
}

/// What a launch leaves in an output that is aligned to `align` bytes, and what it did: the same
/// bits and the same counts in each run.
pub(crate) fn counted<T: Pod + Debug, M: Machine>(
    machine: &M,
    len: usize,
    align: usize,
    launch: impl Fn(&M, ViewMut<'_, T>) -> Result<(), Error>,
) -> (Vec<T>, M::Counts) {
    let mut first: Option<(Vec<T>, M::Counts)> = None;
    machine.each_run(|machine, run| {
        let mut out = Guarded::output(machine, "out", len, align);
        launch(machine, out.view_mut()).unwrap_or_else(|error| panic!("{run}: {error}"));
        machine.synchronize().unwrap_or_else(|error| panic!("{run}: {error}"));
        machine.check_written_once(out.view());
        let found = (out.read(), machine.counts());
        let expected = first.get_or_insert_with(|| found.clone());
        let differs = |(a, b): (&T, &T)| bytemuck::bytes_of(a) != bytemuck::bytes_of(b);
        if let Some(i) = found.0.iter().zip(&expected.0).position(differs) {
            panic!("{run}: [{i}] is {:?}, it was {:?} in the first run", found.0[i], expected.0[i]);
        }
        assert_eq!(found.1, expected.1, "{run}");
    });
    first.unwrap()
}

/// The elements of [`counted`], aligned to what one of them is loaded and stored with.
pub(crate) fn output<T: Pod + Debug, M: Machine>(
    machine: &M,
    len: usize,
    launch: impl Fn(&M, ViewMut<'_, T>) -> Result<(), Error>,
) -> Vec<T> {
    counted(machine, len, size_of::<T>(), launch).0
}

/// [`bounds::tensor_core_error`] of a machine.
pub(crate) fn tensor_core_error<M: Machine>(factors: &[(f64, f64)]) -> f64 {
    bounds::tensor_core_error(factors, M::ROUNDINGS_OF_A_PRODUCT)
}

/// Every element is within its bound of the reference. NaN is within none. Returns the largest
/// difference.
#[track_caller]
pub(crate) fn assert_close(what: &str, found: &[f32], expected: &[f64], bound: impl Fn(usize) -> f64) -> f64 {
    assert_eq!(found.len(), expected.len(), "{what}");
    let mut worst = 0.0_f64;
    for (i, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let (error, bound) = ((f64::from(found) - expected).abs(), bound(i));
        assert!(
            error <= bound,
            "{what}: [{i}] is {found}, expected {expected}, off by {error}, at most {bound}"
        );
        worst = worst.max(error);
    }
    worst
}

/// That so many bytes were moved and no more: in whole sectors.
#[track_caller]
pub(crate) fn assert_coalesced(traffic: GlobalTraffic, bytes: u64) {
    assert_eq!(traffic.bytes, bytes);
    assert_eq!(32 * traffic.sectors, bytes, "bytes of the sectors");
}

/// That a launcher refuses its arguments, and how.
#[track_caller]
pub(crate) fn assert_refused(result: Result<(), Error>, message: &str) {
    let error = result.expect_err("arguments outside of the contract");
    assert!(matches!(error, Error::Contract { .. }), "{error}");
    assert_eq!(error.to_string(), message);
}
