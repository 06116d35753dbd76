//! Captured work, and copies in a stream, on a GPU: what a graph does is what its launches do one by
//! one, and a capture that fails leaves nothing behind.
//!
//! Without a GPU each test says `NO DEVICE: …` on stderr and passes: nothing here can be tested then.

#![cfg(cuda)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/machine.rs"]
mod machine;

use std::fmt::Debug;
use std::panic::{self, AssertUnwindSafe};
use std::process::Command;
use std::{env, thread};

use bytemuck::Pod;
use gpu::basics::BlockSum;
use lanemap::cuda::{Buffer, Device, Error, Graph, Pinned, Stream, ops};
use machine::stream;

/// The numbers of a small model's step: `x` moves on by `step`, the others are made from it.
struct State {
    x: Buffer<f32>,
    step: Buffer<f32>,
    moved: Buffer<f32>,
    turned: Buffer<f32>,
    sums: Buffer<f32>,
    marks: Buffer<u32>,
}

/// Ragged for every kernel in it.
const ROWS: usize = 33;
const COLUMNS: usize = 127;
const LEN: usize = ROWS * COLUMNS;
/// Launches, copies and fills of a step.
const NODES: usize = 5;
const MARK: u32 = 0x0102_0304;

impl State {
    fn new(device: Device) -> Self {
        let nan = |len| Buffer::from_slice(device, &vec![f32::NAN; len]).unwrap();
        let integers = |scale: usize| (0..LEN).map(|i| (i % 101 * scale) as f32).collect::<Vec<_>>();
        Self {
            x: Buffer::from_slice(device, &integers(7)).unwrap(),
            step: Buffer::from_slice(device, &integers(1)).unwrap(),
            moved: nan(LEN),
            turned: nan(LEN),
            sums: nan(BlockSum::sums(LEN as u32) as usize),
            marks: Buffer::from_slice(device, &[u32::MAX; 5]).unwrap(),
        }
    }

    fn step(&mut self, stream: &Stream) -> Result<(), Error> {
        ops::vector_add(stream, self.moved.view_mut(), self.x.view(), self.step.view())?;
        stream.copy(self.x.view_mut(), self.moved.view())?;
        ops::transpose::<1>(stream, self.turned.view_mut(), self.x.view(), ROWS, COLUMNS)?;
        ops::block_sum(stream, self.sums.view_mut(), self.turned.view())?;
        stream.fill(self.marks.slice_mut(1..4), MARK)
    }

    fn is_untouched(&self) -> bool {
        self.moved.read().unwrap().iter().all(|x| x.is_nan())
    }

    /// Every bit of the state is that after so many steps. All numbers are integers below 2^24, so
    /// that every order of summing gives the same.
    fn assert_is_after(&self, steps: usize) {
        let x: Vec<f32> = (0..LEN).map(|i| (i % 101 * (7 + steps)) as f32).collect();
        let turned: Vec<f32> = (0..LEN).map(|i| x[i % ROWS * COLUMNS + i / ROWS]).collect();
        let sums: Vec<f32> = turned.chunks(1024).map(|block| block.iter().sum()).collect();
        assert_eq!(self.x.read().unwrap(), x, "{steps} steps");
        assert_eq!(self.turned.read().unwrap(), turned, "{steps} steps");
        assert_eq!(self.sums.read().unwrap(), sums, "{steps} steps");
        assert_eq!(self.marks.read().unwrap(), [u32::MAX, MARK, MARK, MARK, u32::MAX]);
    }
}

const REPLAYED: &str = "a_captured_sequence_does_what_its_launches_do";

#[test]
fn a_captured_sequence_does_what_its_launches_do() {
    let Some(stream) = stream(REPLAYED) else { return };
    let device = stream.device();
    let [mut launched, mut captured] = [State::new(device), State::new(device)];
    let graph = device.capture(|stream| captured.step(stream)).unwrap();
    assert_eq!(graph.nodes(), NODES);
    stream.synchronize().unwrap();
    assert!(captured.is_untouched(), "noted down, not done");
    for _ in 0..100 {
        graph.launch(&stream).unwrap();
        launched.step(&stream).unwrap();
    }
    launched.assert_is_after(100);
    captured.assert_is_after(100);
    // Between a write of the host and a launch in the same stream it has its place in the order.
    captured.x.write(&launched.step.read().unwrap().iter().map(|x| 7.0 * x).collect::<Vec<_>>()).unwrap();
    graph.launch(&stream).unwrap();
    captured.step(&stream).unwrap();
    graph.launch(&stream).unwrap();
    captured.assert_is_after(3);
}

/// The switch is read when the device is opened, so this needs a process of its own.
#[test]
fn launches_of_a_capture_are_not_waited_for() {
    if stream("launches_of_a_capture_are_not_waited_for").is_none() {
        return;
    }
    let mut again = Command::new(env::current_exe().unwrap());
    again.args(["--exact", REPLAYED, REFUSED]).env("LANEMAP_CUDA_SYNC", "1");
    let output = again.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("2 passed"), "{text}");
}

#[test]
fn events_measure_replays() {
    let Some(stream) = stream("events_measure_replays") else { return };
    let device = stream.device();
    let mut state = State::new(device);
    let graph = device.capture(|stream| state.step(stream)).unwrap();
    let other = device.stream().unwrap();
    let start = stream.record().unwrap();
    for _ in 0..50 {
        graph.launch(&stream).unwrap();
    }
    other.wait_for(&stream).unwrap();
    for _ in 0..50 {
        graph.launch(&other).unwrap();
    }
    let end = other.record().unwrap();
    let time = end.milliseconds_since(&start).unwrap();
    assert!(time > 0.0 && time < 1000.0, "{time} ms");
    state.assert_is_after(100);
}

#[test]
fn an_empty_capture_is_a_graph_that_does_nothing() {
    let Some(stream) = stream("an_empty_capture_is_a_graph_that_does_nothing") else { return };
    let device = stream.device();
    let mut nothing = Buffer::<f32>::zeroed(device, 0).unwrap();
    let input = Buffer::<f32>::zeroed(device, 0).unwrap();
    let graph = device
        .capture(|stream| {
            ops::vector_add(stream, nothing.view_mut(), input.view(), input.view())?;
            stream.copy(nothing.view_mut(), input.view())?;
            stream.fill(nothing.view_mut(), 1.0)
        })
        .unwrap();
    assert_eq!(graph.nodes(), 0);
    graph.launch(&stream).unwrap();
    stream.synchronize().unwrap();
}

/// The stream, the device and the next capture are as well as before.
fn assert_well(stream: &Stream) {
    let mut state = State::new(stream.device());
    state.step(stream).unwrap();
    let graph = stream.device().capture(|stream| state.step(stream)).unwrap();
    graph.launch(stream).unwrap();
    state.assert_is_after(2);
}

#[test]
fn a_refused_launch_ends_the_capture_and_is_named() {
    let Some(stream) = stream("a_refused_launch_ends_the_capture_and_is_named") else { return };
    let device = stream.device();
    let mut state = State::new(device);
    let mut used = Buffer::from_slice(device, &[u32::MAX; 32]).unwrap();
    let most = device.description().shared_bytes_optin;
    let error = device
        .capture(|stream| {
            state.step(stream)?;
            ops::shared(stream, used.view_mut(), most + 1)?;
            state.step(stream)
        })
        .unwrap_err();
    assert!(matches!(error, Error::SharedMemory { kernel: "probe_shared", .. }), "{error}");
    assert!(state.is_untouched());
    assert_well(&stream);

    // What the work makes of an error is its own matter.
    let graph = device.capture(|stream| ops::shared_or(stream, used.view_mut(), most + 1, 64)).unwrap();
    assert_eq!(graph.nodes(), 1);
    graph.launch(&stream).unwrap();
    assert_eq!(used.read().unwrap().iter().sum::<u32>(), 64);
}

/// More shared memory than a kernel gets without asking, in the capture that launches it first.
#[test]
fn a_kernel_may_be_launched_first_in_a_capture() {
    let Some(stream) = stream("a_kernel_may_be_launched_first_in_a_capture") else { return };
    let most = stream.device().description().shared_bytes_optin;
    let mut used = Buffer::from_slice(stream.device(), &[u32::MAX; 32]).unwrap();
    let work = |stream: &Stream| {
        stream.device().prepare(["probe_loads", "probe_wmma"])?;
        ops::shared(stream, used.view_mut(), most)
    };
    let graph = stream.device().capture(work).unwrap();
    assert_eq!(graph.nodes(), 1, "loading is no part of it");
    graph.launch(&stream).unwrap();
    assert_eq!(used.read().unwrap().iter().sum::<u32>(), most);
}

const REFUSED: &str = "what_cannot_be_noted_down_is_refused_and_leaves_the_capture_whole";

#[test]
fn what_cannot_be_noted_down_is_refused_and_leaves_the_capture_whole() {
    let Some(stream) = stream(REFUSED) else { return };
    let device = stream.device();
    let mut state = State::new(device);
    let inner = device.capture(|_| Ok(())).unwrap();
    let mut refused = 0;
    let mut captured = |result: Result<(), Error>| {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Captured { .. }), "{error}");
        refused += 1;
    };
    let [first, second, third] = [(); 3].map(|()| Pinned::<f32>::zeroed(device, LEN).unwrap());
    let event = stream.record().unwrap();
    let mut apart = Buffer::from_slice(device, &[f32::NAN; LEN]).unwrap();
    let begun = stream.upload(apart.view_mut(), first).unwrap();
    let graph = device
        .capture(|noting| {
            for stream in [noting, &stream] {
                captured(stream.synchronize());
                captured(stream.record().map(drop));
                captured(inner.launch(stream));
            }
            captured(noting.wait_for(&stream));
            captured(stream.wait_for(noting));
            captured(event.milliseconds_since(&event).map(drop));
            captured(device.stream().map(drop));
            captured(device.capture(|_| Ok(())).map(drop));
            captured(Buffer::<f32>::zeroed(device, LEN).map(drop));
            captured(Pinned::<f32>::zeroed(device, LEN).map(drop));
            captured(apart.write(&[0.0; LEN]));
            captured(apart.read().map(drop));
            captured(begun.wait().map(drop));
            state.step(noting)?;
            captured(noting.upload(state.x.view_mut(), second).map(drop));
            captured(noting.download(third, state.x.view()).map(drop));
            // Other streams go on.
            ops::vector_add(&stream, apart.view_mut(), state.step.view(), state.step.view())
        })
        .unwrap();
    assert_eq!((graph.nodes(), refused), (NODES, 18));
    assert!(apart.read().unwrap().iter().enumerate().all(|(i, &x)| x == (i % 101 * 2) as f32));
    graph.launch(&stream).unwrap();
    state.assert_is_after(1);
}

#[test]
fn a_panic_ends_the_capture() {
    let Some(stream) = stream("a_panic_ends_the_capture") else { return };
    let device = stream.device();
    let mut state = State::new(device);
    let caught = panic::catch_unwind(AssertUnwindSafe(|| {
        device.capture(|stream| {
            state.step(stream).unwrap();
            panic!("on purpose")
        })
    }));
    assert!(caught.is_err());
    assert!(state.is_untouched());
    assert_well(&stream);
}

/// The graph still writes to memory whose buffers are gone, and nobody else has got that memory.
#[test]
fn memory_of_a_graph_outlives_its_buffers() {
    let Some(stream) = stream("memory_of_a_graph_outlives_its_buffers") else { return };
    let device = stream.device();
    let mut state = State::new(device);
    let graph = device.capture(|stream| state.step(stream)).unwrap();
    let own =
        [&state.x, &state.step, &state.moved, &state.turned].map(|buffer| buffer.view().start().address());
    drop(state);
    let fresh: Vec<_> = (0..8).map(|i| Buffer::from_slice(device, &vec![i as f32; LEN]).unwrap()).collect();
    for _ in 0..10 {
        graph.launch(&stream).unwrap();
    }
    for (i, buffer) in fresh.iter().enumerate() {
        assert!(!own.contains(&buffer.view().start().address()), "a graph's memory was given away");
        assert!(buffer.read().unwrap().iter().all(|&x| x == i as f32));
    }
    // A run that has only begun ends in peace.
    graph.launch(&stream).unwrap();
    drop(graph);
    assert_well(&stream);
}

/// A buffer that goes out of scope in the work is not freed while it is noted down. What is no
/// part of a graph is.
#[test]
fn a_buffer_may_be_dropped_during_a_capture() {
    let Some(stream) = stream("a_buffer_may_be_dropped_during_a_capture") else { return };
    let device = stream.device();
    let mut out = Buffer::from_slice(device, &[f32::NAN; 1000]).unwrap();
    let own = Buffer::from_slice(device, &[1.5_f32; 1000]).unwrap();
    let pinned = Pinned::<f32>::zeroed(device, 1000).unwrap();
    let mut apart = Buffer::from_slice(device, &[f32::NAN; 1000]).unwrap();
    let transfer = stream.upload(apart.view_mut(), Pinned::zeroed(device, 1000).unwrap()).unwrap();
    let earlier = device.capture(|stream| stream.fill(apart.view_mut(), 1.0)).unwrap();
    let graph = device
        .capture(|stream| {
            let own = own;
            drop((pinned, transfer, earlier, apart));
            ops::vector_add(stream, out.view_mut(), own.view(), own.view())
        })
        .unwrap();
    let _other = Buffer::from_slice(device, &[9.0_f32; 1000]).unwrap();
    graph.launch(&stream).unwrap();
    assert!(out.read().unwrap().iter().all(|&x| x == 3.0));
}

/// Copies of other threads wait for all streams of the device: for the capture's they must not.
#[test]
fn other_threads_are_not_disturbed() {
    let Some(stream) = stream("other_threads_are_not_disturbed") else { return };
    let device = stream.device();
    thread::scope(|scope| {
        let copies = scope.spawn(|| {
            for count in 0..1000_u32 {
                let buffer = Buffer::from_slice(device, &[count; 100]).unwrap();
                assert_eq!(buffer.read().unwrap(), [count; 100]);
            }
        });
        while !copies.is_finished() {
            let mut state = State::new(device);
            let stream = device.stream().unwrap();
            // Work is noted down in the order in which it comes, whoever gives it.
            let elsewhere =
                |stream: &Stream| thread::scope(|scope| scope.spawn(|| state.step(stream)).join().unwrap());
            let graph = device.capture(elsewhere).unwrap();
            // And a graph may be taken to another thread.
            thread::scope(|scope| scope.spawn(move || graph.launch(&stream)).join().unwrap()).unwrap();
            state.assert_is_after(1);
        }
        copies.join().unwrap();
    });
    assert_well(&stream);
}

#[test]
fn pinned_memory_is_copied_in_the_order_of_the_stream() {
    let Some(stream) = stream("pinned_memory_is_copied_in_the_order_of_the_stream") else { return };
    let device = stream.device();
    let mut x = Buffer::from_slice(device, &[f32::NAN; 1000]).unwrap();
    let mut out = Buffer::from_slice(device, &[f32::NAN; 1000]).unwrap();
    // Longer than what is copied: the rest stays as it is.
    let [mut from, mut to] = [(); 2].map(|()| Pinned::<f32>::zeroed(device, 1003).unwrap());
    assert!(from.iter().all(|&x| x == 0.0) && from.len() == 1003);
    to[1000..].fill(-1.0);
    for round in 0..100_u16 {
        for (i, x) in from.iter_mut().enumerate() {
            *x = f32::from(round) + i as f32;
        }
        let up = stream.upload(x.view_mut(), from).unwrap();
        ops::vector_add(&stream, out.view_mut(), x.view(), x.view()).unwrap();
        let down = stream.download(to, out.view()).unwrap();
        // Nobody waits: the stream's order is enough.
        stream.fill(x.view_mut(), f32::NAN).unwrap();
        to = down.wait().unwrap();
        from = up.wait().unwrap();
        for (i, &x) in to[..1000].iter().enumerate() {
            assert_eq!(x, 2.0 * (f32::from(round) + i as f32), "round {round}, [{i}]");
        }
        assert_eq!(to[1000..], [-1.0; 3]);
    }
}

/// A token's way back from a decode step: 4 bytes, of a part of a buffer, after each replay.
#[test]
fn a_few_bytes_come_back_after_each_replay() {
    let Some(stream) = stream("a_few_bytes_come_back_after_each_replay") else { return };
    let device = stream.device();
    let mut state = State::new(device);
    let graph = device.capture(|stream| state.step(stream)).unwrap();
    let mut token = Pinned::<f32>::zeroed(device, 1).unwrap();
    for steps in 1..=100 {
        graph.launch(&stream).unwrap();
        token = stream.download(token, state.x.slice(5..6)).unwrap().wait().unwrap();
        assert_eq!(token[0], 5.0 * (7.0 + steps as f32));
    }
}

#[test]
fn a_dropped_transfer_is_waited_for() {
    let Some(stream) = stream("a_dropped_transfer_is_waited_for") else { return };
    let device = stream.device();
    let len = 1 << 22;
    let mut x = Buffer::from_slice(device, &vec![u32::MAX; len]).unwrap();
    for round in 0..10 {
        let mut from = Pinned::<u32>::zeroed(device, len).unwrap();
        from.fill(round);
        drop(stream.upload(x.view_mut(), from).unwrap());
        assert!(x.read().unwrap().iter().all(|&x| x == round), "round {round}");
    }
    // Also of no elements, where there is no memory at all.
    let empty = Pinned::<u32>::zeroed(device, 0).unwrap();
    assert!(stream.upload(x.slice_mut(7..7), empty).unwrap().wait().unwrap().is_empty());
}

fn check_fill<T: Pod + PartialEq + Debug>(stream: &Stream, around: T, value: T) {
    let device = stream.device();
    for (start, end) in [(0, 0), (0, 1), (1, 2), (3, 64), (5, 1000), (0, 1000), (999, 1000)] {
        let mut buffer = Buffer::from_slice(device, &[around; 1000]).unwrap();
        stream.fill(buffer.slice_mut(start..end), value).unwrap();
        let mut copied = Buffer::from_slice(device, &[around; 1001]).unwrap();
        stream.copy(copied.slice_mut(start + 1..end + 1), buffer.slice(start..end)).unwrap();
        let expect = |len: usize, inside: std::ops::Range<usize>| -> Vec<T> {
            (0..len).map(|i| if inside.contains(&i) { value } else { around }).collect()
        };
        assert_eq!(buffer.read().unwrap(), expect(1000, start..end));
        assert_eq!(copied.read().unwrap(), expect(1001, start + 1..end + 1));
    }
}

#[test]
fn fills_and_copies_keep_inside_their_views() {
    let Some(stream) = stream("fills_and_copies_keep_inside_their_views") else { return };
    check_fill(&stream, 0xff_u8, 0x12);
    check_fill(&stream, 0xffff_u16, 0x1234);
    check_fill(&stream, u32::MAX, 0x1234_5678);
    check_fill(&stream, -1.0_f32, std::f32::consts::PI);
}

/// A graph is as large as what was noted down, and can be kept beside others.
#[test]
fn graphs_of_one_state_take_turns() {
    let Some(stream) = stream("graphs_of_one_state_take_turns") else { return };
    let device = stream.device();
    let mut state = State::new(device);
    let graphs: Vec<Graph> = (0..4)
        .map(|steps| device.capture(|stream| (0..steps).try_for_each(|_| state.step(stream))).unwrap())
        .collect();
    for (steps, graph) in graphs.iter().enumerate() {
        assert_eq!(graph.nodes(), steps * NODES);
        graph.launch(&stream).unwrap();
    }
    state.assert_is_after(1 + 2 + 3);
    for graph in graphs.iter().rev() {
        graph.launch(&stream).unwrap();
    }
    state.assert_is_after(12);
}
