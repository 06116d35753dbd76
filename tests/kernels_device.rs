//! Every kernel on a GPU against an f64 reference, and the driver's refusals.
//!
//! Without a GPU each test says `NO DEVICE: …` on stderr and passes: nothing here can be
//! tested then. The executable needs no file besides itself, so it can be built on one machine
//! and run on another that has a GPU and its driver.

#![cfg(cuda)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/random.rs"]
#[allow(dead_code, reason = "this binary uses a part of it")]
mod random;

use std::io::{self, Write};
use std::ops::Range;

use bytemuck::Pod;
use gpu::basics::BlockSum;
use half::f16;
use lanemap::cuda::{self, Buffer, Device, Error, Stream, View, ViewMut, ops};
use random::{Random, normal};

/// A stream of the first device, unless there is none.
fn stream(test: &str) -> Option<Stream> {
    match cuda::devices() {
        Ok(_) => Some(Device::open(0).unwrap().stream().unwrap()),
        Err(Error::Unavailable(why)) => {
            say(&format!("NO DEVICE: {test}: {why}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A line on stderr, which cargo does not hide, in one piece.
fn say(line: &str) {
    io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// Elements before and after each view: more than any tile is wide, and aligned as a buffer is.
const GUARD: usize = 4096;

/// A view with guards around it.
struct Guarded<T: Pod> {
    buffer: Buffer<T>,
    inside: Range<usize>,
    guard: T,
}

impl<T: Pod + PartialEq> Guarded<T> {
    fn new(stream: &Stream, elements: &[T], guard: T) -> Self {
        let band = [guard; GUARD];
        let buffer = Buffer::from_slice(stream.device(), &[&band, elements, &band].concat()).unwrap();
        Self { buffer, inside: GUARD..GUARD + elements.len(), guard }
    }

    fn view(&self) -> View<'_, T> {
        self.buffer.slice(self.inside.clone())
    }

    fn view_mut(&mut self) -> ViewMut<'_, T> {
        self.buffer.slice_mut(self.inside.clone())
    }

    /// The elements, if both guards are whole to the bit.
    fn read(&self) -> Vec<T> {
        let all = self.buffer.read().unwrap();
        let (before, rest) = all.split_at(GUARD);
        let (elements, after) = rest.split_at(self.inside.len());
        let whole =
            |band: &[T]| band.iter().all(|x| bytemuck::bytes_of(x) == bytemuck::bytes_of(&self.guard));
        assert!(whole(before), "something was written before the output");
        assert!(whole(after), "something was written after the output");
        elements.to_vec()
    }
}

/// An output of NaN, and what a launch leaves in it. Twice, and to the same bits.
fn output(stream: &Stream, len: usize, launch: impl Fn(ViewMut<'_, f32>) -> Result<(), Error>) -> Vec<f32> {
    let run = || {
        let mut out = Guarded::new(stream, &vec![f32::NAN; len], f32::from_bits(0x7fc0_1234));
        launch(out.view_mut()).unwrap();
        stream.synchronize().unwrap();
        out.read()
    };
    let (first, second) = (run(), run());
    let bits = |out: &[f32]| out.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert!(bits(&first) == bits(&second), "two runs differ");
    first
}

/// Inputs whose guards are NaN: what reads them shows in the output.
fn input(stream: &Stream, elements: &[f32]) -> Guarded<f32> {
    Guarded::new(stream, elements, f32::NAN)
}

fn normals(random: &mut Random, len: usize) -> Vec<f32> {
    (0..len).map(|_| normal(random) as f32).collect()
}

/// Every element is within its bound of the reference. NaN is within none.
fn assert_close(what: &str, found: &[f32], expected: &[f64], bound: impl Fn(usize) -> f64) -> f64 {
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

const EPSILON: f64 = f32::EPSILON as f64 / 2.0;

#[test]
fn vector_add_is_exact() {
    let Some(stream) = stream("vector_add_is_exact") else { return };
    let mut random = Random(1);
    for n in [0, 1, 31, 32, 255, 256, 257, 1000, 65_537, 1_000_003] {
        let (a, b) = (normals(&mut random, n), normals(&mut random, n));
        let (left, right) = (input(&stream, &a), input(&stream, &b));
        let out = output(&stream, n, |out| ops::vector_add(&stream, out, left.view(), right.view()));
        for i in 0..n {
            assert_eq!(out[i].to_bits(), (a[i] + b[i]).to_bits(), "n {n}, [{i}]");
        }
    }
}

#[test]
fn block_sum_is_the_sum_of_each_block() {
    let Some(stream) = stream("block_sum_is_the_sum_of_each_block") else { return };
    let mut random = Random(2);
    for n in [0, 1, 31, 33, 255, 257, 1023, 1024, 1025, 2049, 100_003] {
        let x = normals(&mut random, n);
        let elements = input(&stream, &x);
        let sums = BlockSum::sums(n as u32) as usize;
        let out = output(&stream, sums, |out| ops::block_sum(&stream, out, elements.view()));
        let blocks: Vec<&[f32]> = x.chunks(1024).collect();
        let sum = |block: &[f32]| block.iter().map(|&x| f64::from(x)).sum::<f64>();
        let size = |block: &[f32]| block.iter().map(|&x| f64::from(x).abs()).sum::<f64>();
        let expected: Vec<f64> = blocks.iter().map(|block| sum(block)).collect();
        // 3 sums of a thread, 5 and 5 of butterflies: 13 roundings on the way of any element.
        assert_close(&format!("n {n}"), &out, &expected, |i| 13.0 * EPSILON * size(blocks[i]) * 1.001);
    }
}

fn transposes<const PAD: u32>(stream: &Stream) {
    for (rows, columns) in [(1, 1), (1, 33), (33, 1), (31, 65), (32, 32), (64, 96), (127, 257), (1025, 300)] {
        // Every number below 2^24 is an f32: each element has its own.
        let x: Vec<f32> = (0..rows * columns).map(|i| i as f32).collect();
        let elements = input(stream, &x);
        let out =
            output(stream, x.len(), |out| ops::transpose::<PAD>(stream, out, elements.view(), rows, columns));
        for (i, &found) in out.iter().enumerate() {
            let (column, row) = (i / rows, i % rows);
            let expected = (row * columns + column) as f32;
            assert!(found == expected, "{rows} × {columns}, ({column}, {row}): {found}, not {expected}");
        }
    }
}

#[test]
fn transposes_move_every_element() {
    let Some(stream) = stream("transposes_move_every_element") else { return };
    transposes::<0>(&stream);
    transposes::<1>(&stream);
}

#[test]
fn rms_norm_is_within_its_contract() {
    let Some(stream) = stream("rms_norm_is_within_its_contract") else { return };
    let mut random = Random(3);
    let epsilon = 1e-5_f32;
    let mut worst = 0.0_f64;
    for (rows, width) in [(1, 1), (3, 31), (2, 255), (5, 256), (7, 257), (4, 1000), (2, 4097), (33, 576)] {
        let (x, w) = (normals(&mut random, rows * width), normals(&mut random, width));
        let (rows_in, weight) = (input(&stream, &x), input(&stream, &w));
        let out = output(&stream, x.len(), |out| {
            ops::rms_norm(&stream, out, rows_in.view(), weight.view(), rows, epsilon)
        });
        let mut expected = Vec::new();
        for row in x.chunks(width) {
            let squares: f64 = row.iter().map(|&x| f64::from(x).powi(2)).sum();
            let scale = 1.0 / (squares / width as f64 + f64::from(epsilon)).sqrt();
            expected.extend(row.iter().zip(&w).map(|(&x, &w)| f64::from(x) * scale * f64::from(w)));
        }
        // The sum's roundings count half under the root: width / 256 of a thread, 5 of a
        // butterfly, 8 of the partial sums, 2 of mean and epsilon. The root is off by 2^-22.9,
        // two products round.
        let roundings = ((width.div_ceil(256) + 15) as f64 / 2.0 + 2.0) * EPSILON + (-22.9_f64).exp2();
        let relative = roundings * 1.001;
        let bound = |i: usize| relative * expected[i].abs() + f64::from(f32::MIN_POSITIVE);
        assert_close(&format!("{rows} × {width}"), &out, &expected, bound);
        let error = |(&found, expected): (&f32, &f64)| (f64::from(found) - expected).abs() / expected.abs();
        worst = out.iter().zip(&expected).map(error).fold(worst, f64::max);
    }
    say(&format!("rms_norm: worst relative error {worst:.2e}"));
}

/// Shapes that are ragged in every way that the contract admits.
const PRODUCTS: [[usize; 3]; 11] = [
    [1, 1, 8],
    [1, 65, 24],
    [63, 1, 32],
    [64, 64, 32],
    [65, 63, 40],
    [64, 128, 96],
    [127, 129, 1000],
    [3, 200, 4096],
    [200, 3, 64],
    [300, 70, 520],
    [17, 17, 0],
];

fn matrices(stream: &Stream, x: &[f16], w: &[f16]) -> [Guarded<f16>; 2] {
    [Guarded::new(stream, x, f16::NAN), Guarded::new(stream, w, f16::NAN)]
}

#[test]
fn matmul_of_integers_is_exact() {
    let Some(stream) = stream("matmul_of_integers_is_exact") else { return };
    let mut random = Random(4);
    for [m, n, k] in PRODUCTS {
        // Sums stay far below 2^24, so that every order of summing gives the same bits.
        let mut integers =
            |len| -> Vec<f16> { (0..len).map(|_| f16::from_f32(random.below(17) as f32 - 8.0)).collect() };
        let (x, w) = (integers(m * k), integers(n * k));
        let [left, right] = matrices(&stream, &x, &w);
        let out =
            output(&stream, m * n, |out| ops::matmul_f16(&stream, out, left.view(), right.view(), [m, n, k]));
        let expected = product(&x, &w, [m, n, k]);
        assert_close(&format!("{m} × {n} × {k}"), &out, &expected, |_| 0.0);
    }
}

#[test]
fn matmul_of_normals_is_within_the_tensor_cores_rounding() {
    let test = "matmul_of_normals_is_within_the_tensor_cores_rounding";
    let Some(stream) = stream(test) else { return };
    let mut random = Random(5);
    let mut worst = 0.0_f64;
    for [m, n, k] in PRODUCTS {
        let mut halves = |len| -> Vec<f16> { (0..len).map(|_| f16::from_f64(normal(&mut random))).collect() };
        let (x, w) = (halves(m * k), halves(n * k));
        let [left, right] = matrices(&stream, &x, &w);
        let out =
            output(&stream, m * n, |out| ops::matmul_f16(&stream, out, left.view(), right.view(), [m, n, k]));
        let expected = product(&x, &w, [m, n, k]);
        let magnitude = |x: &[f16]| x.iter().map(|x| f16::from_f32(x.to_f32().abs())).collect::<Vec<_>>();
        let sizes = product(&magnitude(&x), &magnitude(&w), [m, n, k]);
        // One truncating sum for every 4 or more products, each off by at most one unit in
        // the last place of f32, which is 2 roundings: k / 4 sums.
        let sums = k as f64 / 4.0 + 2.0;
        let error =
            assert_close(&format!("{m} × {n} × {k}"), &out, &expected, |i| 2.0 * EPSILON * sums * sizes[i]);
        worst = worst.max(error);
    }
    say(&format!("matmul_f16: worst error {worst:.2e}"));
}

/// `x · wᵀ` in f64.
fn product(x: &[f16], w: &[f16], [m, n, k]: [usize; 3]) -> Vec<f64> {
    let element = |row: usize, column: usize| -> f64 {
        (0..k).map(|i| x[row * k + i].to_f64() * w[column * k + i].to_f64()).sum()
    };
    (0..m * n).map(|i| element(i / n, i % n)).collect()
}

#[test]
fn arguments_outside_a_contract_are_refused() {
    let Some(stream) = stream("arguments_outside_a_contract_are_refused") else { return };
    let device = stream.device();
    let mut out = Buffer::from_slice(device, &[0.0_f32; 64]).unwrap();
    let short = Buffer::from_slice(device, &[0.0_f32; 63]).unwrap();
    let halves = Buffer::from_slice(device, &[f16::ZERO; 129]).unwrap();
    let message = |result: Result<(), Error>| result.unwrap_err().to_string();
    let text = message(ops::vector_add(&stream, out.view_mut(), short.view(), short.view()));
    assert_eq!(text, "vector_add: a has 63 elements, the shape has 64");
    let inputs = (halves.slice(0..60), halves.slice(0..60));
    let text = message(ops::matmul_f16(&stream, out.slice_mut(0..25), inputs.0, inputs.1, [5, 5, 12]));
    assert_eq!(text, "matmul_f16: k is 12, not a multiple of 8");
    let inputs = (halves.slice(1..65), halves.slice(0..64));
    let text = message(ops::matmul_f16(&stream, out.view_mut(), inputs.0, inputs.1, [8, 8, 8]));
    assert!(text.contains("input begins at") && text.contains("16 bytes"), "{text}");
    stream.synchronize().unwrap();
}

/// More than 48 KiB have to be asked for, and the comparison must not be off by one (a fault of
/// numba-cuda-mlir, its issue 143).
#[test]
fn shared_memory_is_given_up_to_the_devices_limit() {
    let Some(stream) = stream("shared_memory_is_given_up_to_the_devices_limit") else { return };
    let most = stream.device().description().shared_bytes_optin;
    let used = |out: &Guarded<u32>| out.read().iter().sum::<u32>();
    let fresh = || Guarded::new(&stream, &[u32::MAX; 32], 0xdead_beef);
    // Down again at the end: what was asked for once does not stand in the way of less.
    for bytes in [1, 33, 49_151, 49_152, 49_153, most - 1, most, 49_152, 64] {
        let mut out = fresh();
        ops::shared(&stream, out.view_mut(), bytes).unwrap();
        assert_eq!(used(&out), bytes, "bytes that were right");
    }
    for bytes in [most + 1, u32::MAX - 31] {
        let mut out = fresh();
        let error = ops::shared(&stream, out.view_mut(), bytes).unwrap_err();
        assert!(matches!(error, Error::SharedMemory { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(&bytes.to_string()) && text.contains(&most.to_string()), "{text}");
        assert!(out.read().iter().all(|&x| x == u32::MAX), "nothing ran");
        ops::shared_or(&stream, out.view_mut(), bytes, 49_153).unwrap();
        assert_eq!(used(&out), 49_153, "the fallback ran");
    }
    say(&format!("shared memory: up to {most} bytes"));
}

#[test]
fn ptx_that_the_driver_cannot_take_is_refused_in_its_own_way() {
    let Some(stream) = stream("ptx_that_the_driver_cannot_take_is_refused_in_its_own_way") else { return };
    let device = stream.device();
    let text = device.description().variant().unwrap().text;
    device.try_compile(text).unwrap();
    let replaced = |directive: &str, by: &str| -> String {
        let line = |line: &str| if line.starts_with(directive) { by.to_owned() } else { line.to_owned() };
        text.lines().map(line).collect::<Vec<_>>().join("\n")
    };
    let refusal = |ptx: &str| device.try_compile(ptx).unwrap_err();

    let error = refusal(&replaced(".version", ".version 99.9"));
    assert!(matches!(error, Error::DriverTooOld { .. }), "{error}");
    let message = error.to_string();
    let cuda = device.description().cuda.to_string();
    assert!(message.contains("99.9") && message.contains(&cuda) && message.contains("update"), "{message}");

    let error = refusal(&replaced(".target", ".target sm_999"));
    assert!(matches!(error, Error::WrongTarget { .. }), "{error}");
    assert!(error.to_string().contains("sm_999"), "{error}");

    let broken = text.replacen("ld.global", "ld.nowhere", 1);
    let Error::Refused { log, .. } = refusal(&broken) else { panic!("not refused by the compiler") };
    assert!(log.contains("line") && log.contains("nowhere"), "{log}");
}

#[test]
fn streams_wait_for_each_other_and_events_measure() {
    let Some(first) = stream("streams_wait_for_each_other_and_events_measure") else { return };
    let second = first.device().stream().unwrap();
    let n = 1 << 22;
    let ones = Buffer::from_slice(first.device(), &vec![1.0_f32; n]).unwrap();
    let nan = vec![f32::NAN; n];
    let mut middle = Buffer::from_slice(first.device(), &nan).unwrap();
    let mut out = Buffer::from_slice(first.device(), &nan).unwrap();
    let start = first.record().unwrap();
    ops::vector_add(&first, middle.view_mut(), ones.view(), ones.view()).unwrap();
    second.wait_for(&first).unwrap();
    ops::vector_add(&second, out.view_mut(), middle.view(), ones.view()).unwrap();
    let end = second.record().unwrap();
    let time = end.milliseconds_since(&start).unwrap();
    assert!(time > 0.0 && time < 1000.0, "{time} ms");
    assert!(out.read().unwrap().iter().all(|&x| x == 3.0));
}

#[test]
fn an_allocation_that_does_not_fit_says_what_is_free() {
    let Some(stream) = stream("an_allocation_that_does_not_fit_says_what_is_free") else { return };
    let (free, total) = stream.device().memory().unwrap();
    assert!(free > 0 && free <= total);
    let error = Buffer::<u8>::zeroed(stream.device(), usize::try_from(total).unwrap() + 1).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::OutOfMemory { .. }), "{text}");
    assert!(text.contains(&(total + 1).to_string()), "{text}");
    // And the device is as well as before.
    assert_eq!(Buffer::from_slice(stream.device(), &[7_u8]).unwrap().read().unwrap(), [7]);
}

#[test]
fn every_kernel_keeps_to_the_resources_of_its_contract() {
    let Some(stream) = stream("every_kernel_keeps_to_the_resources_of_its_contract") else { return };
    let sm = stream.device().description().sm;
    for entry in gpu::kernels::ALL.iter().filter(|entry| entry.needs.runs_on(sm)) {
        let taken = stream.device().resources(entry.name, &entry.launch()).unwrap();
        let name = entry.name;
        assert!(taken.registers <= entry.expectations.registers, "{name}: {taken:?}");
        assert!(taken.local_bytes == 0 || entry.expectations.local_memory, "{name}: {taken:?}");
        assert!(taken.blocks_per_multiprocessor > 0, "{name}: {taken:?}");
        say(&format!("{name}: {taken:?}"));
    }
}
