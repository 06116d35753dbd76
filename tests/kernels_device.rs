//! The lane maps of a GPU's tensor cores against `gpu::fragment`, and what the driver gives and
//! refuses. The kernels' own tests are in the files of their names.
//!
//! Without a GPU each test says `NO DEVICE: …` on stderr and passes: nothing here can be
//! tested then. The executable needs no file besides itself, so it can be built on one machine
//! and run on another that has a GPU and its driver.

#![cfg(cuda)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/machine.rs"]
mod machine;
#[path = "support/random.rs"]
#[allow(dead_code, reason = "this binary uses a part of it")]
mod random;

use std::ops::Range;

use bytemuck::Pod;
use gpu::fragment::{Fragment, mma, wmma};
use gpu::probe::ProbeLoads;
use half::f16;
use lanemap::cuda::{Buffer, Error, Stream, View, ViewMut, ops};
use machine::{say, stream};
use random::Random;

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

/// Registers as the probes lay them: register `r` of lane `l` is element `32 r + l`.
fn half_of(registers: &[u32], first: u32, lane: u32, i: u32) -> u32 {
    let register = registers[((first + i / 2) * 32 + lane) as usize];
    register >> (16 * (i % 2)) & 0xffff
}

#[test]
fn every_load_fills_the_registers_that_the_lane_map_says() {
    let Some(stream) = stream("every_load_fills_the_registers_that_the_lane_map_says") else { return };
    let registers = (ProbeLoads::REGISTERS * 32) as usize;
    let mut out = Guarded::new(&stream, &vec![u32::MAX; registers], 0xdead_beef);
    let mut stored = Guarded::new(&stream, &[f32::NAN; 512], f32::from_bits(0x7fc0_1234));
    ops::loads(&stream, out.view_mut(), stored.view_mut()).unwrap();
    let (out, stored) = (out.read(), stored.read());
    for dump in ProbeLoads::DUMPS {
        let Fragment { name, rows, columns, elements, .. } = dump.fragment;
        for lane in 0..32 {
            for i in 0..elements {
                let at = match dump.fragment.bits {
                    16 => half_of(&out, dump.first, lane, i),
                    _ => out[((dump.first + i) * 32 + lane) as usize],
                };
                let found =
                    if dump.row_major { (at / columns, at % columns) } else { (at % rows, at / rows) };
                assert_eq!(found, dump.fragment.element(lane, i), "{name}: x[{i}] of lane {lane}");
            }
        }
    }
    for (i, &held) in stored.iter().enumerate() {
        let (row, column) = if i < 256 { (i / 16, i % 16) } else { (i % 16, (i - 256) / 16) };
        let (lane, x) = wmma::ACCUMULATOR.holder(row as u32, column as u32);
        assert!(held == (8 * lane + x) as f32, "({row}, {column}) came from {held}, not x[{x}] of {lane}");
    }
    say(&format!("lane maps: {} loads and 2 stores are as the maps say", ProbeLoads::DUMPS.len()));
}

/// A matrix dealt out to the lanes by a map, elements `bits` wide.
fn deal(fragment: &Fragment, element: impl Fn(u32, u32) -> u32) -> Vec<u32> {
    let per_register = fragment.per_register();
    let mut registers = vec![0; (fragment.elements / per_register * 32) as usize];
    for lane in 0..32 {
        for i in 0..fragment.elements {
            let (row, column) = fragment.element(lane, i);
            let register = &mut registers[(i / per_register * 32 + lane) as usize];
            *register |= element(row, column) << (fragment.bits * (i % per_register));
        }
    }
    registers
}

/// One product on registers. Returns how many elements of D were compared.
fn check_product<Sum: Pod + PartialEq>(
    stream: &Stream,
    [a, b, c]: [&Fragment; 3],
    operand: impl Fn(i32) -> u32,
    sum: impl Fn(i32) -> Sum,
    launch: impl Fn(ViewMut<'_, Sum>, View<'_, u32>, View<'_, u32>, View<'_, Sum>) -> Result<(), Error>,
) {
    let mut random = Random(6);
    let mut matrix = |rows: u32, columns: u32| -> Vec<i32> {
        (0..rows * columns).map(|_| random.below(15) as i32 - 7).collect()
    };
    let (k, m, n) = (a.columns, a.rows, b.columns);
    let (left, right, start) = (matrix(m, k), matrix(k, n), matrix(m, n));
    let at = |x: &[i32], columns: u32, row: u32, column: u32| x[(row * columns + column) as usize];
    let [a_in, b_in] = [
        deal(a, |row, column| operand(at(&left, k, row, column))),
        deal(b, |row, column| operand(at(&right, n, row, column))),
    ]
    .map(|registers| Buffer::from_slice(stream.device(), &registers).unwrap());
    let c_in: Vec<Sum> = (0..c.elements)
        .flat_map(|i| (0..32).map(move |lane| (lane, i)))
        .map(|(lane, i)| c.element(lane, i))
        .map(|(row, column)| sum(at(&start, n, row, column)))
        .collect();
    let c_in = Buffer::from_slice(stream.device(), &c_in).unwrap();
    let filled = vec![sum(i32::MAX); c.elements as usize * 32];
    let mut d = Guarded::new(stream, &filled, sum(-12_345));
    launch(d.view_mut(), a_in.view(), b_in.view(), c_in.view()).unwrap();
    let d = d.read();
    for row in 0..m {
        for column in 0..n {
            let dot: i32 = (0..k).map(|i| at(&left, k, row, i) * at(&right, n, i, column)).sum();
            let (lane, i) = c.holder(row, column);
            let found = d[(i * 32 + lane) as usize];
            assert!(found == sum(dot + at(&start, n, row, column)), "{}: ({row}, {column})", c.name);
        }
    }
}

/// The operands of `mma` have no loads; what shows their maps is the product.
#[test]
fn products_of_dealt_out_matrices_are_exact() {
    let Some(stream) = stream("products_of_dealt_out_matrices_are_exact") else { return };
    let half = |x: i32| u32::from(f16::from_f32(x as f32).to_bits());
    let float = |x: i32| x as f32;
    for a in [&wmma::A_ROW, &wmma::A_COL] {
        for b in [&wmma::B_ROW, &wmma::B_COL] {
            check_product(&stream, [a, b, &wmma::ACCUMULATOR], half, float, |d, a, b, c| {
                ops::product_wmma(&stream, d, a, b, c)
            });
        }
    }
    check_product(&stream, [&mma::A_F16, &mma::B_F16, &mma::C_F32], half, float, |d, a, b, c| {
        ops::product_f16(&stream, d, a, b, c)
    });
    let byte = |x: i32| u32::from((x as i8).cast_unsigned());
    check_product(
        &stream,
        [&mma::A_S8, &mma::B_S8, &mma::C_S32],
        byte,
        |x| x,
        |d, a, b, c| ops::product_s8(&stream, d, a, b, c),
    );
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
    for entry in gpu::kernels::ALL {
        let taken = stream.device().resources(entry.name, &entry.launch()).unwrap();
        let name = entry.name;
        assert!(taken.registers <= entry.expectations.registers, "{name}: {taken:?}");
        assert!(taken.local_bytes == 0 || entry.expectations.local_memory, "{name}: {taken:?}");
        assert!(taken.blocks_per_multiprocessor > 0, "{name}: {taken:?}");
        say(&format!("{name}: {taken:?}"));
    }
}
