//! The lane map of every fragment, dumped from a machine, is the constant function of
//! `gpu::fragment`.
//!
//! On a GPU that says something of the hardware. On the emulator, which is made of these very
//! functions and knows no `wgmma`, it says that the probes ask what they mean to and that their
//! answers are read rightly. How a map is found out stands in `gpu/src/probe/`.
//!
//! Without a GPU its tests say `NO DEVICE: …` on stderr and pass. The executable needs no file
//! besides itself. `--nocapture` prints the dumped tables.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/lane_map.rs"]
mod lane_map;
#[path = "support/machine.rs"]
mod machine;
#[cfg(cuda)]
#[path = "support/probes.rs"]
mod probes;
#[path = "support/random.rs"]
#[allow(dead_code, reason = "this binary uses a part of it")]
mod random;

use std::collections::BTreeSet;

use bytemuck::Pod;
use gpu::fragment::{Fragment, mma, wmma};
use gpu::probe::{
    ProbeLoads, ProbeMapBf16, ProbeMapF16, ProbeMapS8, ProbeMapWgmma, ProbeMmaF16, ProbeMmaS8, ProbeWmma,
};
use gpu::simt::emulator::{Emulator, Lane, Memory};
use gpu::simt::{Global, Kernel};
use half::f16;
use lane_map::{Dump, of_loads, of_mma, of_wgmma, whole};
use machine::say;
use random::Random;

/// What a machine answers to the probes that every machine plays; `None` of what it has not.
struct Answers {
    loads: (Vec<u32>, Vec<f32>),
    f16: Vec<f32>,
    bf16: Option<Vec<f32>>,
    s8: Vec<i32>,
}

impl Answers {
    /// The dumps that they are.
    fn dumps(&self) -> Vec<Dump> {
        let wholes = |answers: &[f32]| answers.iter().map(|&x| whole(x)).collect::<Vec<_>>();
        let mut dumps = of_loads(&self.loads.0, &self.loads.1);
        let operands = [ProbeMapF16::A, ProbeMapF16::B, ProbeMapF16::D];
        dumps.extend(of_mma(operands, ProbeMapF16::QUESTIONS, &wholes(&self.f16), "probe_map_f16"));
        if let Some(bf16) = &self.bf16 {
            let operands = [ProbeMapBf16::A, ProbeMapBf16::B, ProbeMapBf16::D];
            dumps.extend(of_mma(operands, ProbeMapBf16::QUESTIONS, &wholes(bf16), "probe_map_bf16"));
        }
        let operands = [ProbeMapS8::A, ProbeMapS8::B, ProbeMapS8::D];
        let numbers: Vec<u32> = self.s8.iter().map(|&x| u32::try_from(x).unwrap()).collect();
        dumps.extend(of_mma(operands, ProbeMapS8::QUESTIONS, &numbers, "probe_map_s8"));
        dumps
    }
}

/// That every dump is the map, and every fragment but those `without` was dumped.
fn check(machine: &str, dumps: &[Dump], without: &[&str]) {
    let differences: String = dumps.iter().map(Dump::differences).collect();
    assert!(differences.is_empty(), "{machine}:\n{differences}");
    let dumped: BTreeSet<&str> = dumps.iter().map(|dump| dump.fragment.name).collect();
    let missing = |fragment: &&Fragment| !dumped.contains(fragment.name) && !without.contains(&fragment.name);
    let missing: Vec<&str> = Fragment::ALL.iter().filter(missing).map(|fragment| fragment.name).collect();
    assert!(missing.is_empty(), "no probe dumps {missing:?} from {machine}");
    let mut places = 0;
    for dump in dumps {
        println!("{}{}: equal\n", dump.table(), dump.summary());
        places += dump.table.len();
    }
    say(&format!(
        "lane maps: {} fragments, {} dumps of {places} places from {machine}, all equal to the const functions",
        dumped.len(),
        dumps.len()
    ));
}

/// The fragments of `wgmma`.
fn of_a_warpgroup() -> Vec<&'static str> {
    Fragment::ALL.iter().map(|fragment| fragment.name).filter(|name| name.starts_with("wgmma")).collect()
}

/// What a kernel with one output leaves in it on the emulator.
fn emulated<T: Pod, K: for<'b> Kernel<Lane<'b>>>(
    memory: &mut Memory,
    len: u32,
    kernel: impl FnOnce(Global<T>) -> K,
) -> Vec<T> {
    let out = memory.output("out", len as usize);
    Emulator::new().seed(1).launch(memory, kernel(out)).unwrap();
    memory.check_written_once(out).unwrap();
    memory.values(out)
}

fn emulated_answers() -> Answers {
    let memory = &mut Memory::new();
    let stored = memory.output("stored", 512);
    let registers = emulated(memory, ProbeLoads::REGISTERS * 32, |out| ProbeLoads { out, stored });
    memory.check_written_once(stored).unwrap();
    Answers {
        loads: (registers, memory.values(stored)),
        f16: emulated(memory, ProbeMapF16::ANSWERS, |d| ProbeMapF16 { d }),
        bf16: Some(emulated(memory, ProbeMapBf16::ANSWERS, |d| ProbeMapBf16 { d })),
        s8: emulated(memory, ProbeMapS8::ANSWERS, |d| ProbeMapS8 { d }),
    }
}

#[test]
fn every_lane_map_but_those_of_wgmma_is_dumped_from_the_emulator() {
    check("the emulator", &emulated_answers().dumps(), &of_a_warpgroup());
}

/// What a machine would answer whose `wgmma` is as the maps say: there is none here to ask.
fn expected_of_a_warpgroup<const REGISTERS: usize>(by: &'static str) -> Vec<Dump> {
    type Probe<const REGISTERS: usize> = ProbeMapWgmma<REGISTERS>;
    let (a, d) = (Probe::<REGISTERS>::A, Probe::<REGISTERS>::D);
    let mut about_d = vec![0; Probe::<REGISTERS>::D_ANSWERS as usize];
    let mut about_a = vec![0; Probe::<REGISTERS>::A_ANSWERS as usize];
    for lane in 0..128 {
        for i in 0..d.elements {
            let (row, column) = d.element(lane, i);
            for (question, answer) in [
                (Probe::<REGISTERS>::ROWS, 16 * (row + 1)),
                (Probe::<REGISTERS>::COLUMNS, 16 * (column + 1)),
                (Probe::<REGISTERS>::KEPT, d.elements * lane + i + 1),
            ] {
                about_d[((question * d.elements + i) * 128 + lane) as usize] = answer;
            }
        }
        for i in 0..a.elements {
            let (row, k) = a.element(lane, i);
            let place = Probe::<REGISTERS>::place(lane, i);
            // The first registers are the first eight columns.
            for column in 0..8 {
                let (holder, register) = d.holder(row, column);
                about_a[((place * Probe::<REGISTERS>::STORED + register) * 128 + holder) as usize] = k + 1;
            }
        }
    }
    of_wgmma::<REGISTERS>(&about_d, &about_a, by)
}

/// Two registers of one lane exchanged, in each dump: an error of the smallest size.
#[test]
fn an_exchanged_pair_is_found_and_named() {
    let wgmma = [
        expected_of_a_warpgroup::<4>("n8"),
        expected_of_a_warpgroup::<64>("n128"),
        expected_of_a_warpgroup::<128>("n256"),
    ];
    for mut dump in emulated_answers().dumps().into_iter().chain(wgmma.into_iter().flatten()) {
        assert!(dump.differences().is_empty(), "{}", dump.differences());
        let last = dump.table.len() - 1;
        dump.table.swap(last - 1, last);
        let differences = dump.differences();
        assert_eq!(differences.lines().count(), 2, "{differences}");
        let lane = format!(" of lane {} is ", dump.fragment.lanes - 1);
        for line in differences.lines() {
            assert!(line.starts_with(dump.fragment.name) && line.contains(&lane), "{line}");
        }
    }
}

/// A matrix dealt out to the lanes by a map.
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

/// One product of random integers, dealt out and gathered by the maps, is exact.
fn check_product<Sum: Pod + PartialEq>(
    [a, b, c]: [&Fragment; 3],
    operand: impl Fn(i32) -> u32,
    sum: impl Fn(i32) -> Sum,
    launch: impl Fn(&[u32], &[u32], &[Sum]) -> Vec<Sum>,
) {
    let mut random = Random(6);
    let mut matrix = |rows: u32, columns: u32| -> Vec<i32> {
        (0..rows * columns).map(|_| random.below(15) as i32 - 7).collect()
    };
    let (k, m, n) = (a.columns, a.rows, b.columns);
    let (left, right, start) = (matrix(m, k), matrix(k, n), matrix(m, n));
    let at = |x: &[i32], columns: u32, row: u32, column: u32| x[(row * columns + column) as usize];
    let a_in = deal(a, |row, column| operand(at(&left, k, row, column)));
    let b_in = deal(b, |row, column| operand(at(&right, n, row, column)));
    let c_in: Vec<Sum> = (0..c.elements)
        .flat_map(|i| (0..32).map(move |lane| (lane, i)))
        .map(|(lane, i)| c.element(lane, i))
        .map(|(row, column)| sum(at(&start, n, row, column)))
        .collect();
    let d = launch(&a_in, &b_in, &c_in);
    for row in 0..m {
        for column in 0..n {
            let dot: i32 = (0..k).map(|i| at(&left, k, row, i) * at(&right, n, i, column)).sum();
            let (lane, i) = c.holder(row, column);
            let found = d[(i * 32 + lane) as usize];
            assert!(found == sum(dot + at(&start, n, row, column)), "{}: ({row}, {column})", c.name);
        }
    }
}

/// The launches of one machine.
struct Products<W, F, S> {
    wmma: W,
    f16: F,
    s8: S,
}

/// Everything at once, with C: what the dumps say element by element.
fn check_products(
    products: Products<
        impl Fn(&[u32], &[u32], &[f32]) -> Vec<f32>,
        impl Fn(&[u32], &[u32], &[f32]) -> Vec<f32>,
        impl Fn(&[u32], &[u32], &[i32]) -> Vec<i32>,
    >,
) {
    let half = |x: i32| u32::from(f16::from_f32(x as f32).to_bits());
    let byte = |x: i32| u32::from((x as i8).cast_unsigned());
    let float = |x: i32| x as f32;
    for a in [&wmma::A_ROW, &wmma::A_COL] {
        for b in [&wmma::B_ROW, &wmma::B_COL] {
            check_product([a, b, &wmma::ACCUMULATOR], half, float, &products.wmma);
        }
    }
    check_product([&mma::A_F16, &mma::B_F16, &mma::C_F32], half, float, &products.f16);
    check_product([&mma::A_S8, &mma::B_S8, &mma::C_S32], byte, |x| x, &products.s8);
}

#[test]
fn products_of_dealt_out_matrices_are_exact_on_the_emulator() {
    macro_rules! launch {
        ($Kernel:ident, $Sum:ty) => {
            |a: &[u32], b: &[u32], c: &[$Sum]| {
                let memory = &mut Memory::new();
                let (a, b) = (memory.input("a", a), memory.input("b", b));
                let len = c.len() as u32;
                let c = memory.input("c", c);
                emulated(memory, len, |d| $Kernel { d, a, b, c })
            }
        };
    }
    check_products(Products {
        wmma: launch!(ProbeWmma, f32),
        f16: launch!(ProbeMmaF16, f32),
        s8: launch!(ProbeMmaS8, i32),
    });
}

#[cfg(cuda)]
mod on_a_device {
    use lanemap::cuda::{Buffer, Error, Stream, ViewMut, ops};

    use super::*;
    use crate::machine::stream;
    use crate::probes::Guarded;

    /// No answer.
    const NAN: f32 = f32::from_bits(0x7fc0_1234);

    /// What a launch with one output leaves in it.
    fn answer<T: Pod>(
        stream: &Stream,
        len: u32,
        fill: T,
        launch: impl FnOnce(&Stream, ViewMut<'_, T>) -> Result<(), Error>,
    ) -> Result<Vec<T>, Error> {
        let mut out = Guarded::new(stream, len as usize, fill);
        launch(stream, out.view_mut())?;
        Ok(out.read())
    }

    /// What it says if the device is one that has the kernel; that it says so if not.
    fn if_there<T>(stream: &Stream, kernel: &str, result: Result<T, Error>) -> Option<T> {
        let sm = stream.device().description().sm;
        let entry = gpu::kernels::ALL.iter().find(|entry| entry.name == kernel).unwrap();
        match result {
            Ok(answers) => Some(answers),
            Err(error @ Error::NotForDevice { .. }) if !entry.needs.runs_on(sm) => {
                let text = error.to_string();
                assert!(
                    text.contains(kernel) && text.contains(&format!("{}.{}", sm / 10, sm % 10)),
                    "{text}"
                );
                say(&format!("NO DEVICE: {text}"));
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn wgmma<const REGISTERS: usize>(stream: &Stream, kernel: &'static str) -> Vec<Dump> {
        type Probe<const REGISTERS: usize> = ProbeMapWgmma<REGISTERS>;
        let mut a = Guarded::new(stream, Probe::<REGISTERS>::A_ANSWERS as usize, NAN);
        let d = answer(stream, Probe::<REGISTERS>::D_ANSWERS, NAN, |stream, d| {
            ops::map_wgmma::<REGISTERS>(stream, d, a.view_mut())
        });
        let Some(d) = if_there(stream, kernel, d) else { return Vec::new() };
        let [d, a] = [d, a.read()].map(|answers| answers.into_iter().map(whole).collect::<Vec<_>>());
        of_wgmma::<REGISTERS>(&d, &a, kernel)
    }

    #[test]
    fn every_lane_map_is_dumped_from_the_device() {
        let Some(stream) = stream("every_lane_map_is_dumped_from_the_device") else { return };
        let mut stored = Guarded::new(&stream, 512, NAN);
        let registers = answer(&stream, ProbeLoads::REGISTERS * 32, 0xdead_beef, |stream, out| {
            ops::loads(stream, out, stored.view_mut())
        });
        let bf16 = answer(&stream, ProbeMapBf16::ANSWERS, NAN, ops::map_bf16);
        let answers = Answers {
            loads: (registers.unwrap(), stored.read()),
            f16: answer(&stream, ProbeMapF16::ANSWERS, NAN, ops::map_f16).unwrap(),
            bf16: if_there(&stream, "probe_map_bf16", bf16),
            s8: answer(&stream, ProbeMapS8::ANSWERS, i32::MIN, ops::map_s8).unwrap(),
        };
        let mut dumps = answers.dumps();
        let wide = [
            wgmma::<4>(&stream, "probe_map_wgmma_n8"),
            wgmma::<64>(&stream, "probe_map_wgmma_n128"),
            wgmma::<128>(&stream, "probe_map_wgmma_n256"),
        ];
        let without = if wide.iter().all(Vec::is_empty) { of_a_warpgroup() } else { Vec::new() };
        dumps.extend(wide.into_iter().flatten());
        check(&stream.device().description().to_string(), &dumps, &without);
    }

    #[test]
    fn products_of_dealt_out_matrices_are_exact() {
        let Some(stream) = stream("products_of_dealt_out_matrices_are_exact") else { return };
        macro_rules! launch {
            ($product:path, $Sum:ty, $fill:expr) => {
                |a: &[u32], b: &[u32], c: &[$Sum]| {
                    let [a, b] = [a, b].map(|x| Buffer::from_slice(stream.device(), x).unwrap());
                    let len = c.len() as u32;
                    let c = Buffer::from_slice(stream.device(), c).unwrap();
                    let launch = |stream: &Stream, d: ViewMut<'_, $Sum>| {
                        $product(stream, d, a.view(), b.view(), c.view())
                    };
                    answer(&stream, len, $fill, launch).unwrap()
                }
            };
        }
        check_products(Products {
            wmma: launch!(ops::product_wmma, f32, NAN),
            f16: launch!(ops::product_f16, f32, NAN),
            s8: launch!(ops::product_s8, i32, i32::MIN),
        });
    }
}
