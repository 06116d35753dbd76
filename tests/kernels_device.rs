//! What a GPU's driver gives and refuses. The kernels' own tests are in the files of their names.
//!
//! Without a GPU each test says `NO DEVICE: …` on stderr and passes: nothing here can be
//! tested then. The executable needs no file besides itself, so it can be built on one machine
//! and run on another that has a GPU and its driver.

#![cfg(cuda)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/machine.rs"]
mod machine;

use std::time::Instant;

use gpu::simt::sections::Sections;
use lanemap::cuda::{Buffer, Error, ops};
use machine::{Guarded, say, stream};

/// More than 48 KiB have to be asked for, and the comparison must not be off by one (a fault of
/// numba-cuda-mlir, its issue 143).
#[test]
fn shared_memory_is_given_up_to_the_devices_limit() {
    let Some(stream) = stream("shared_memory_is_given_up_to_the_devices_limit") else { return };
    let most = stream.device().description().shared_bytes_optin;
    let used = |out: &Guarded<u32>| out.read().iter().sum::<u32>();
    let fresh = || Guarded::output(&stream, "out", 32, 4);
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
    let all = Sections::of(device.description().variant().unwrap().text());
    let text = &all.module("vector_add").unwrap();
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
fn a_kernel_that_there_is_not_is_named_and_the_others_are_loaded() {
    let Some(stream) = stream("a_kernel_that_there_is_not_is_named_and_the_others_are_loaded") else {
        return;
    };
    let (device, sm) = (stream.device(), stream.device().description().sm);
    let error = device.prepare(["vector_add", "no_such_kernel", "block_sum", "nor_this"]).unwrap_err();
    assert!(matches!(error, Error::Launch { kernel: "no_such_kernel", .. }), "{error}");
    // Named twice, and long loaded.
    device.prepare(["block_sum", "vector_add", "block_sum"]).unwrap();
    device.prepare([]).unwrap();
    let not_here = gpu::kernels::ALL.iter().filter(|entry| !entry.needs.runs_on(sm));
    for entry in not_here {
        let error = device.prepare([entry.name]).unwrap_err();
        assert!(matches!(error, Error::NotForDevice { .. }), "{error}");
        let error = device.resources(entry.name, &entry.launch()).unwrap_err();
        assert!(matches!(error, Error::NotForDevice { .. }), "{error}");
    }
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
    // A driver that has not seen the kernel yet compiles it, which is not what is measured.
    ops::vector_add(&first, middle.view_mut(), ones.view(), ones.view()).unwrap();
    first.synchronize().unwrap();
    middle.write(&nan).unwrap();
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
    let entries: Vec<_> = gpu::kernels::ALL.iter().filter(|entry| entry.needs.runs_on(sm)).collect();
    let start = Instant::now();
    stream.device().prepare(entries.iter().map(|entry| entry.name)).unwrap();
    say(&format!("{} kernels loaded in {:?}", entries.len(), start.elapsed()));
    for entry in entries {
        let taken = stream.device().resources(entry.name, &entry.launch()).unwrap();
        let name = entry.name;
        assert!(taken.registers <= entry.expectations.registers, "{name}: {taken:?}");
        assert!(taken.local_bytes == 0 || entry.expectations.local_memory, "{name}: {taken:?}");
        assert!(taken.blocks_per_multiprocessor > 0, "{name}: {taken:?}");
        say(&format!("{name}: {taken:?}"));
    }
}
