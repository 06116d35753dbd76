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
use lanemap::cuda::{self, Buffer, Device, Emulated, Error, ModelQueue, Stream, View, ViewMut};

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
    let has = machine.compute_capability().is_none_or(|sm| sm == 90);
    if !has {
        say(&format!("NO DEVICE: {test}: needs compute capability 9.0, this is {}", machine.description()));
    }
    has
}

/// A queue that tests run on.
pub(crate) trait Machine: ModelQueue + Sized {
    /// What it is called in messages.
    const NAME: &'static str;
    /// Bytes before and after each [`Guarded`] part, a multiple of every alignment.
    const BAND_BYTES: usize;
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
    // More than any tile is wide.
    const BAND_BYTES: usize = 16 << 10;
    // 4 products or more are added to a sum at once. Each of these 5 is cut off where the largest has its
    // last bit, or later, and so is the result: but for the largest 5 times 2 roundings at most.
    const ROUNDINGS_OF_A_PRODUCT: f64 = 2.5;
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
    // A buffer ends where its elements end: an access past them is a fault.
    const BAND_BYTES: usize = 0;
    // One after each product.
    const ROUNDINGS_OF_A_PRODUCT: f64 = 1.0;
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

/// A part of a buffer with guard bands around it, and no better aligned than a kernel asks for.
///
/// The bands' bytes are 0xff, which is NaN in every float format: what reads them shows in the
/// output, what writes them shows in [`read`](Self::read). The emulator finds both itself, so there
/// is only as much of a band there as the alignment needs.
pub(crate) struct Guarded<T: Pod> {
    buffer: Buffer<T>,
    inside: Range<usize>,
}

impl<T: Pod> Guarded<T> {
    /// Elements that kernels only read, from a multiple of `align` bytes on that is none of
    /// `2 * align`.
    pub(crate) fn input<M: Machine>(machine: &M, name: &str, elements: &[T], align: usize) -> Self {
        Self::with(elements, align, M::BAND_BYTES, |all| machine.input(name, all))
    }

    /// As [`input`](Self::input), for kernels to read and write.
    pub(crate) fn in_out<M: Machine>(machine: &M, name: &str, elements: &[T], align: usize) -> Self {
        Self::with(elements, align, M::BAND_BYTES, |all| machine.in_out(name, all))
    }

    /// `len` elements that kernels write before they read them, aligned as an
    /// [`input`](Self::input). Their bytes are 0xff.
    pub(crate) fn output<M: Machine>(machine: &M, name: &str, len: usize, align: usize) -> Self {
        let (before, after) = Self::bands(align, M::BAND_BYTES);
        let buffer = machine.output(name, before + len + after).unwrap();
        Self { buffer, inside: before..before + len }
    }

    fn with(
        elements: &[T],
        align: usize,
        band_bytes: usize,
        upload: impl FnOnce(&[T]) -> Result<Buffer<T>, Error>,
    ) -> Self {
        let (before, after) = Self::bands(align, band_bytes);
        let band = |len| vec![ones::<T>(); len];
        let buffer = upload(&[&band(before), elements, &band(after)].concat()).unwrap();
        Self { buffer, inside: before..before + elements.len() }
    }

    /// Elements of the bands before and after.
    fn bands(align: usize, band_bytes: usize) -> (usize, usize) {
        assert!(align.is_power_of_two() && align.is_multiple_of(size_of::<T>()) && align <= 256, "{align}");
        ((band_bytes + align) / size_of::<T>(), band_bytes / size_of::<T>())
    }

    pub(crate) fn view(&self) -> View<'_, T> {
        self.buffer.slice(self.inside.clone())
    }

    /// A part of [`view`](Self::view).
    pub(crate) fn slice(&self, range: Range<usize>) -> View<'_, T> {
        self.buffer.slice(self.inside.start + range.start..self.inside.start + range.end)
    }

    pub(crate) fn view_mut(&mut self) -> ViewMut<'_, T> {
        self.buffer.slice_mut(self.inside.clone())
    }

    /// The elements, if both bands are whole to the bit.
    pub(crate) fn read(&self) -> Vec<T> {
        let all = self.buffer.read().unwrap();
        let (before, rest) = all.split_at(self.inside.start);
        let (elements, after) = rest.split_at(self.inside.len());
        let whole = |band: &[T]| bytes(band).iter().all(|&byte| byte == 0xff);
        assert!(whole(before), "something was written before the output");
        assert!(whole(after), "something was written after the output");
        elements.to_vec()
    }
}

/// A value whose bytes are all 0xff.
fn ones<T: Pod>() -> T {
    bytemuck::pod_read_unaligned(&vec![0xff; size_of::<T>()])
}

fn bytes<T: Pod>(elements: &[T]) -> &[u8] {
    bytemuck::cast_slice(elements)
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

/// The rounding of f32: half a unit in the last place of 1.
pub(crate) const EPSILON: f64 = f32::EPSILON as f64 / 2.0;

/// By how much an element of a product on the tensor cores may be off whose factors are these, in order of
/// k: the sum goes in steps of 16, within which products may be added in any order. No number that
/// occurs in a step is larger than the sum before it and the sizes of its products together.
///
/// How tensor cores add: Fasi, Higham, Mikaitis and Pranesh, Numerical behavior of NVIDIA tensor cores,
/// PeerJ Computer Science 7:e330, 2021.
pub(crate) fn tensor_core_error<M: Machine>(factors: &[(f64, f64)]) -> f64 {
    let (mut sum, mut roundings) = (0.0_f64, 0.0);
    for step in factors.chunks(16) {
        let size: f64 = step.iter().map(|(a, b)| (a * b).abs()).sum();
        roundings += step.len() as f64 * M::ROUNDINGS_OF_A_PRODUCT * (sum.abs() + size);
        sum += step.iter().map(|(a, b)| a * b).sum::<f64>();
    }
    FIRST_ORDER * EPSILON * roundings
}

/// What bounds are multiplied with that count roundings of the exact sums: those of the computed ones, which
/// are off themselves, are less than a hundredth larger.
pub(crate) const FIRST_ORDER: f64 = 1.01;

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
