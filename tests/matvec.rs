//! The `matvec` kernels against f64, every format with both kinds of activations.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/machine.rs"]
mod machine;
#[path = "support/random.rs"]
#[allow(dead_code, reason = "this binary uses a part of it")]
mod random;

use std::marker::PhantomData;

use bytemuck::Zeroable;
use gpu::product::matvec::{Job, MatvecRows, MatvecTwo, Pair, Quantized, RowsGeometry, TWO_FORMATS};
use gpu::product::{Matvec, MatvecGeometry, Q8Row};
use gpu::quant::planes::{Planes, pack_row, plane_row_bytes};
use gpu::quant::{BlockQ4_K, BlockQ6_K, Format, dequantize_row};
use gpu::simt::{Contract, Global, Unit};
use half::f16;
use lanemap::cuda::ops::{self, Output, PlaneMatrix};
use lanemap::cuda::{Buffer, Emulated, Error, Noted, Queue, ViewMut};
use lanemap::gate::bounds::matvec_error;
use machine::{Guarded, Machine, assert_close, assert_refused, counted, on_both, output, say};
use random::{Random, normal, normals, random_blocks, whole_blocks};

on_both! {
    products_of_integers_are_exact,
    products_are_within_the_rounding_of_their_sums,
    a_row_has_the_same_bits_whatever_its_neighbours_are,
    a_row_has_the_same_bits_where_warps_share_k,
    a_row_has_the_same_bits_where_two_formats_share_a_launch,
    products_that_share_a_launch_have_the_bits_of_their_own,
    blocks_go_on_with_other_outputs,
    arguments_outside_the_contract_are_refused,
}

/// The contract's alignment: what a lane loads.
const ALIGN: usize = 16;

/// What activations are stored as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    F16,
    Q8,
}

/// Every pair that there are kernels for.
fn pairs() -> impl Iterator<Item = (Format, Kind)> {
    let quantized = |format: &Format| format.block_elements() > 1;
    let q8 = Format::ALL.into_iter().filter(quantized).map(|format| (format, Kind::Q8));
    q8.chain(Format::ALL.map(|format| (format, Kind::F16)))
}

/// Rows of activations: what a kernel reads, and the numbers that they stand for.
struct Input {
    kind: Kind,
    bytes: Vec<u8>,
    values: Vec<f64>,
}

impl Input {
    /// `rows × k` numbers from `number`, as near as the kind comes.
    fn new(kind: Kind, [rows, k]: [usize; 2], mut number: impl FnMut() -> f64) -> Self {
        let mut input = Self { kind, bytes: Vec::new(), values: Vec::new() };
        for _ in 0..rows {
            let numbers: Vec<f64> = (0..k).map(|_| number()).collect();
            match kind {
                Kind::F16 => {
                    let halves = numbers.iter().map(|&x| f16::from_f64(x));
                    input.values.extend(halves.clone().map(f64::from));
                    input.bytes.extend(halves.flat_map(f16::to_le_bytes));
                }
                Kind::Q8 => input.push_q8(&numbers),
            }
        }
        input
    }

    /// A row of q8 by the layout's words. The scale is a power of two, so that quants of whole
    /// numbers stand for these.
    fn push_q8(&mut self, numbers: &[f64]) {
        let at = Q8Row::new(numbers.len() as u32);
        let start = self.bytes.len();
        // Padding is NaN: whoever takes it for a scale shows.
        self.bytes.resize(start + at.bytes() as usize, 0xff);
        let row = &mut self.bytes[start..];
        for (b, block) in numbers.chunks_exact(32).enumerate() {
            let largest = block.iter().fold(0.0_f64, |most, x| most.max(x.abs()));
            let scale = (largest / 32_512.0).log2().ceil().exp2().max(1.0 / 1024.0);
            let quants: Vec<i32> = block.iter().map(|x| (x / scale).round_ties_even() as i32).collect();
            for (i, &q) in quants.iter().enumerate() {
                // The nearest 256th, and what it leaves.
                let coarse = (f64::from(q) / 256.0).round() as i32;
                let fine = q - 256 * coarse;
                // Half of a step may go up or down; up leaves -128, down would leave 128.
                let (coarse, fine) = if fine == 128 { (coarse + 1, -128) } else { (coarse, fine) };
                row[32 * b + i] = coarse as u8;
                row[(at.fine() as usize) + 32 * b + i] = fine as u8;
                self.values.push(scale * f64::from(q));
            }
            let mut put = |at: u32, index: usize, value: f64| {
                row[at as usize + 4 * index..][..4].copy_from_slice(&(value as f32).to_le_bytes());
            };
            put(at.scales(), b, scale);
            for (half, quants) in quants.chunks_exact(16).enumerate() {
                put(at.sums(), 2 * b + half, scale * quants.iter().map(|&q| f64::from(q)).sum::<f64>());
            }
        }
    }

    /// One row of it.
    fn row(&self, row: usize, rows: usize) -> Self {
        let part = |len: usize| row * len / rows..(row + 1) * len / rows;
        let (bytes, values) = (part(self.bytes.len()), part(self.values.len()));
        Self { kind: self.kind, bytes: self.bytes[bytes].to_vec(), values: self.values[values].to_vec() }
    }
}

/// Weights: what a kernel reads, and what dequantizing gives.
struct Matrix {
    format: Format,
    bytes: Vec<u8>,
    values: Vec<f32>,
    bias: Vec<f32>,
    n: usize,
    k: usize,
}

impl Matrix {
    fn new(format: Format, blocks: &[u8], bias: Vec<f32>, [n, k]: [usize; 2]) -> Self {
        let row = plane_row_bytes(format, k).unwrap() as usize;
        let mut bytes = vec![0; n * row];
        let file_row = format.row_bytes(k).unwrap();
        for (to, from) in bytes.chunks_exact_mut(row).zip(blocks.chunks_exact(file_row)) {
            pack_row(format, from, to).unwrap();
        }
        let mut values = vec![f32::NAN; n * k];
        dequantize_row(format, blocks, &mut values).unwrap();
        Self { format, bytes, values, bias, n, k }
    }

    /// Random weights of deviation 1 / √k.
    fn random(format: Format, [n, k]: [usize; 2], random: &mut Random) -> Self {
        let blocks = random_blocks(format, n * k, (k as f64).powf(-0.5), random);
        Self::new(format, &blocks, normals(random, n), [n, k])
    }

    /// Whole numbers of at most 2^12: random quants and inner scales, outer scales 1.
    fn whole(format: Format, [n, k]: [usize; 2], random: &mut Random) -> Self {
        let mut whole = |most: usize| random.below(2 * most + 1) as f32 - most as f32;
        let bias: Vec<f32> = (0..n).map(|_| whole(1000)).collect();
        let blocks: Vec<u8> = match format {
            Format::F32 => (0..n * k).flat_map(|_| whole(4096).to_le_bytes()).collect(),
            Format::F16 => (0..n * k).flat_map(|_| f16::from_f32(whole(2048)).to_le_bytes()).collect(),
            // A bf16 is the upper half of an f32.
            Format::BF16 => {
                (0..n * k).flat_map(|_| (whole(256).to_bits() >> 16).to_le_bytes()[..2].to_vec()).collect()
            }
            _ => whole_blocks(format, n * k, 1.0, random),
        };
        Self::new(format, &blocks, bias, [n, k])
    }

    /// `rows × n` in f64.
    fn reference(&self, input: &Input) -> Vec<f64> {
        let rows = input.values.chunks_exact(self.k);
        rows.flat_map(|x| {
            self.values.chunks_exact(self.k).zip(&self.bias).map(|(weights, &bias)| {
                let products = x.iter().zip(weights).map(|(x, &w)| x * f64::from(w));
                products.sum::<f64>() + f64::from(bias)
            })
        })
        .collect()
    }
}

/// Matrices where a machine's kernels read them.
struct Loaded<'a> {
    matrix: &'a Matrix,
    bytes: Guarded<u8>,
    bias: Guarded<f32>,
}

impl<'a> Loaded<'a> {
    fn new<M: Machine>(machine: &M, matrix: &'a Matrix) -> Self {
        Self {
            matrix,
            bytes: Guarded::input(machine, "weights", &matrix.bytes, ALIGN),
            bias: Guarded::input(machine, "bias", &matrix.bias, 4),
        }
    }

    /// What is to be multiplied, and where to.
    fn output<'b>(&'b self, out: ViewMut<'b, f32>) -> Output<'b> {
        let &Matrix { format, n: rows, k: columns, .. } = self.matrix;
        let weights = PlaneMatrix { bytes: self.bytes.view(), format, rows, columns };
        Output { out, weights, bias: Some(self.bias.view()) }
    }
}

/// Input where a machine's kernels read it.
enum LoadedInput {
    F16(Guarded<f16>),
    Q8(Guarded<u8>),
}

impl LoadedInput {
    fn new<M: Machine>(machine: &M, input: &Input) -> Self {
        match input.kind {
            Kind::F16 => {
                let halves = input.bytes.chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]]));
                Self::F16(Guarded::input(machine, "input", &halves.collect::<Vec<_>>(), ALIGN))
            }
            Kind::Q8 => Self::Q8(Guarded::input(machine, "input", &input.bytes, ALIGN)),
        }
    }

    fn multiply(&self, queue: &impl Queue, outputs: &[Output<'_>], rows: usize) -> Result<(), Error> {
        match self {
            Self::F16(input) => ops::matvec_f16(queue, outputs, input.view(), rows),
            Self::Q8(input) => ops::matvec_q8(queue, outputs, input.view(), rows),
        }
    }
}

fn run<M: Machine>(machine: &M, matrix: &Matrix, input: &Input) -> Vec<f32> {
    let rows = input.values.len() / matrix.k;
    let (weights, input) = (Loaded::new(machine, matrix), LoadedInput::new(machine, input));
    output(machine, rows * matrix.n, |queue, out| input.multiply(queue, &[weights.output(out)], rows))
}

fn products_of_integers_are_exact<M: Machine>(machine: &M) {
    let seed = 21;
    let mut random = Random(seed);
    for (format, kind) in pairs() {
        let block = format.block_elements().max(if kind == Kind::Q8 { 32 } else { 8 });
        for [rows, n, blocks] in machine.cases(&[[1, 1, 1], [2, 7, 2], [3, 9, 1], [9, 17, 2]], &[[64, 70, 2]])
        {
            // At most 2 · 512 · 2^13 · 1: every sum of parts is below 2^24.
            let k = blocks * block;
            let matrix = Matrix::whole(format, [n, k], &mut random);
            let input = Input::new(kind, [rows, k], || random.below(3) as f64 - 1.0);
            let what = format!("{format} {kind:?}, {rows} × {n} × {k}, random seed {seed}");
            assert_close(&what, &run(machine, &matrix, &input), &matrix.reference(&input), |_| 0.0);
        }
    }
}

/// By how much an output of `matrix` may be off.
fn bound(matrix: &Matrix, kind: Kind, input: &Input, index: usize) -> f64 {
    let (row, output, k) = (index / matrix.n, index % matrix.n, matrix.k);
    let (input, weights) = (&input.values[row * k..][..k], &matrix.values[output * k..][..k]);
    matvec_error(input, weights, matrix.bias[output], kind == Kind::Q8)
}

fn products_are_within_the_rounding_of_their_sums<M: Machine>(machine: &M) {
    let seed = 22;
    let mut random = Random(seed);
    let mut worst = 0.0_f64;
    for (format, kind) in pairs() {
        // Blocks of 256; lanes with one piece more than others, and steps with none.
        for shape @ [rows, n, k] in
            machine.cases(&[[1, 3, 2304], [5, 4, 256], [2, 2, 4352]], &[[1, 3584, 3584], [9, 513, 18944]])
        {
            let matrix = Matrix::random(format, [n, k], &mut random);
            let input = Input::new(kind, [rows, k], || normal(&mut random));
            let what = format!("{format} {kind:?}, {shape:?}, random seed {seed}");
            let expected = matrix.reference(&input);
            assert!(expected.iter().map(|x| x.abs()).sum::<f64>() > 0.1 * expected.len() as f64, "{what}");
            let bound = |i| bound(&matrix, kind, &input, i);
            worst = worst.max(assert_close(&what, &run(machine, &matrix, &input), &expected, bound));
        }
    }
    say(&format!("matvec on the {}: worst error {worst:.2e}", M::NAME));
}

fn a_row_has_the_same_bits_whatever_its_neighbours_are<M: Machine>(machine: &M) {
    let seed = 23;
    let mut random = Random(seed);
    for (format, kind) in pairs() {
        let (n, k) = (3, 1280);
        let matrix = Matrix::random(format, [n, k], &mut random);
        let input = Input::new(kind, [64, k], || normal(&mut random));
        let all = run(machine, &matrix, &input);
        for rows in [1, 2, 3, 4, 7, 8, 9] {
            // A row alone, and as the last of some.
            let row = random.below(64 - rows) + rows;
            let mut part = Input { kind, bytes: Vec::new(), values: Vec::new() };
            for row in row + 1 - rows..=row {
                let Input { bytes, values, .. } = input.row(row, 64);
                part.bytes.extend(bytes);
                part.values.extend(values);
            }
            let found = run(machine, &matrix, &part);
            let expected = &all[(row + 1 - rows) * n..(row + 1) * n];
            let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(
                bits(&found),
                bits(expected),
                "{format} {kind:?}, {rows} rows up to {row}, seed {seed}"
            );
        }
    }
}

fn a_row_has_the_same_bits_where_warps_share_k<M: Machine>(machine: &M) {
    let seed = 27;
    let mut random = Random(seed);
    let quantized = |&(_, kind): &(Format, Kind)| kind == Kind::Q8;
    for (format, kind) in pairs().filter(quantized) {
        // Fewer pieces than warps have places, two more than whole rounds, and a format's blocks of 256.
        let shortest = format.block_elements();
        let ragged = if shortest < 256 { 66 * 32 } else { 9 * 256 };
        for (n, k) in
            machine.cases(&[([1, 15, 17], shortest), ([3, 33, 0], ragged)], &[([100, 256, 256], 3584)])
        {
            let input = Input::new(kind, [1, k], || normal(&mut random));
            let there = LoadedInput::new(machine, &input);
            let LoadedInput::Q8(q8) = &there else { unreachable!("the kind is q8") };
            let matrices: Vec<Matrix> =
                n.iter().filter(|&&n| n > 0).map(|&n| Matrix::random(format, [n, k], &mut random)).collect();
            let loaded: Vec<Loaded<'_>> =
                matrices.iter().map(|matrix| Loaded::new(machine, matrix)).collect();
            let mut outs: Vec<Guarded<f32>> =
                matrices.iter().map(|matrix| Guarded::output(machine, "out", matrix.n, 4)).collect();
            let outputs: Vec<Output<'_>> =
                loaded.iter().zip(&mut outs).map(|(loaded, out)| loaded.output(out.view_mut())).collect();
            ops::matvec_q8_split_k(machine, &outputs, q8.view()).unwrap();
            for (loaded, out) in loaded.iter().zip(&outs) {
                let matrix = loaded.matrix;
                // Alone it has too few outputs for the choice of the other kernel.
                let noted = Noted::new(machine);
                let mut alone = Guarded::<f32>::output(machine, "out", matrix.n, 4);
                there.multiply(&noted, &[loaded.output(alone.view_mut())], 1).unwrap();
                assert!(noted.into_names().iter().all(|name| !name.ends_with("_split_k")));
                let what = format!("{format}, {} of {n:?} × {k}, random seed {seed}", matrix.n);
                let (found, expected) = (out.read(), alone.read());
                assert!(expected.iter().all(|x| x.is_finite() && *x != 0.0), "{what}");
                let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&found), bits(&expected), "{what}");
            }
        }
    }
}

fn a_row_has_the_same_bits_where_two_formats_share_a_launch<M: Machine>(machine: &M) {
    let seed = 29;
    let mut random = Random(seed);
    for formats in TWO_FORMATS {
        // Fewer pieces than warps have places, and two more than whole rounds, or a format's blocks of 256.
        let shortest = formats[0].block_elements();
        let ragged = if shortest < 256 { 66 * 32 } else { 9 * 256 };
        // Outputs, and which of them are of the first format.
        let cases = [(&[15, 1][..], 1, shortest), (&[17, 3, 33], 2, ragged), (&[16, 2, 18], 1, ragged)];
        for (n, of_first, k) in machine.cases(&cases, &[(&[3584, 512, 512], 2, 3584)]) {
            let input = Input::new(Kind::Q8, [1, k], || normal(&mut random));
            let there = LoadedInput::new(machine, &input);
            let LoadedInput::Q8(q8) = &there else { unreachable!("the kind is q8") };
            let format = |i: usize| formats[usize::from(i >= of_first)];
            let matrices: Vec<Matrix> =
                n.iter().enumerate().map(|(i, &n)| Matrix::random(format(i), [n, k], &mut random)).collect();
            let loaded: Vec<Loaded<'_>> =
                matrices.iter().map(|matrix| Loaded::new(machine, matrix)).collect();
            let mut outs: Vec<Guarded<f32>> =
                n.iter().map(|&n| Guarded::output(machine, "out", n, 4)).collect();
            let mut outputs: Vec<Output<'_>> =
                loaded.iter().zip(&mut outs).map(|(loaded, out)| loaded.output(out.view_mut())).collect();
            // One without a bias.
            outputs[0].bias = None;
            let (first, second) = outputs.split_at(of_first);
            ops::matvec_q8_two(machine, [first, second], q8.view()).unwrap();
            for (i, (loaded, out)) in loaded.iter().zip(&outs).enumerate() {
                let mut alone = Guarded::<f32>::output(machine, "out", n[i], 4);
                let mut output = loaded.output(alone.view_mut());
                if i == 0 {
                    output.bias = None;
                }
                ops::matvec_q8_split_k(machine, &[output], q8.view()).unwrap();
                let what = format!("{formats:?}, output {i} of {n:?} × {k}, random seed {seed}");
                let (found, expected) = (out.read(), alone.read());
                assert!(expected.iter().all(|x| x.is_finite() && *x != 0.0), "{what}");
                let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&found), bits(&expected), "{what}");
            }
        }
    }
}

fn products_that_share_a_launch_have_the_bits_of_their_own<M: Machine>(machine: &M) {
    let mut random = Random(24);
    for kind in [Kind::Q8, Kind::F16] {
        let (rows, k) = (3, 512);
        let input = Input::new(kind, [rows, k], || normal(&mut random));
        let matrices = [5, 8, 19].map(|n| Matrix::random(Format::Q4_K, [n, k], &mut random));
        let loaded = matrices.each_ref().map(|matrix| Loaded::new(machine, matrix));
        let input_there = LoadedInput::new(machine, &input);
        let mut outs =
            matrices.each_ref().map(|matrix| Guarded::<f32>::output(machine, "out", rows * matrix.n, 4));
        let mut i = 0;
        let outputs = outs.each_mut().map(|out| {
            i += 1;
            loaded[i - 1].output(out.view_mut())
        });
        input_there.multiply(machine, &outputs, rows).unwrap();
        for (matrix, out) in matrices.iter().zip(&outs) {
            assert_eq!(out.read(), run(machine, matrix, &input), "{kind:?}, {} outputs", matrix.n);
        }
    }
}

/// Twice as many groups of outputs as blocks run at a time, and a few more: the second matrix lies in the second round of
/// blocks, and the last group of each is not full.
fn blocks_go_on_with_other_outputs<M: Machine>(machine: &M) {
    let seed = 30;
    let mut random = Random(seed);
    for (format, k) in [(Format::Q4_0, 66 * 32), (Format::Q4_K, 9 * 256), (Format::Q6_K, 256)] {
        let blocks = machine.multiprocessors() * Quantized::<BlockQ4_K>::RESIDENT;
        let at_a_time = (blocks * MatvecGeometry::BLOCK_OUTPUTS) as usize;
        let n = [at_a_time + 5, 9, at_a_time + 20];
        let input = Input::new(Kind::Q8, [1, k], || normal(&mut random));
        let there = LoadedInput::new(machine, &input);
        let LoadedInput::Q8(q8) = &there else { unreachable!("the kind is q8") };
        let matrices = n.map(|n| Matrix::random(format, [n, k], &mut random));
        let loaded = matrices.each_ref().map(|matrix| Loaded::new(machine, matrix));
        let mut outs = n.map(|n| Guarded::<f32>::output(machine, "out", n, 4));
        let outputs: Vec<Output<'_>> =
            loaded.iter().zip(&mut outs).map(|(loaded, out)| loaded.output(out.view_mut())).collect();
        let noted = Noted::new(machine);
        there.multiply(&noted, &outputs, 1).unwrap();
        assert!(noted.into_names().iter().all(|name| !name.ends_with("_split_k")));
        let job = |&n: &usize| Job { n: n as u32, ..Job::zeroed() };
        let (jobs, k_there) = (n.each_ref().map(job), k as u32);
        let matvec =
            Matvec::<Quantized<BlockQ4_K>, 1> { jobs, k: k_there, rows: 1, blocks, ..Matvec::zeroed() };
        assert_eq!(matvec.launch().grid.y, blocks, "blocks that stay");
        for (loaded, out) in loaded.iter().zip(&outs) {
            // Its blocks have one group each.
            let n = loaded.matrix.n;
            let mut alone = Guarded::<f32>::output(machine, "out", n, 4);
            ops::matvec_q8_split_k(machine, &[loaded.output(alone.view_mut())], q8.view()).unwrap();
            let (found, expected) = (out.read(), alone.read());
            let what = format!("{format}, {n} × {k}, random seed {seed}");
            assert!(expected.iter().all(|x| x.is_finite() && *x != 0.0), "{what}");
            let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&found), bits(&expected), "{what}");
        }
    }
}

/// Sectors that a warp's loads touch where each of 32 lanes takes a word of every piece from a plane
/// of `bytes` bytes in `pieces` pieces.
fn sectors(bytes: usize, pieces: usize) -> usize {
    let of_step = |step: usize| (pieces - 32 * step).min(32) * bytes / pieces;
    (0..pieces.div_ceil(32)).map(|step| of_step(step).div_ceil(32)).sum()
}

#[test]
fn weights_are_loaded_once_and_coalesced() {
    let machine = &Emulated::new();
    // Q8_0 loads a piece's quants with two words, each of which touches all sectors.
    for (format, k, words) in [(Format::Q4_K, 18_944, 1), (Format::Q6_K, 4096, 1), (Format::Q8_0, 2048, 2)] {
        let mut random = Random(25);
        let n = MatvecGeometry::BLOCK_OUTPUTS as usize;
        let matrix = Matrix::random(format, [n, k], &mut random);
        // Aligned to sectors, unlike where nothing is counted.
        let bytes = machine.input("weights", &matrix.bytes).unwrap();
        let input =
            machine.input("input", &Input::new(Kind::Q8, [1, k], || normal(&mut random)).bytes).unwrap();
        let (_, counters) = counted::<f32, _>(machine, n, 4, |queue, out| {
            let weights = PlaneMatrix { bytes: bytes.view(), format, rows: n, columns: k };
            ops::matvec_q8(queue, &[Output { out, weights, bias: None }], input.view(), 1)
        });

        let (planes, blocks, pieces) = (Planes::of(format), k / format.block_elements(), k / 32);
        let plane = |bytes: u32| sectors(bytes as usize * blocks, pieces);
        let present = [planes.high, planes.scales, planes.heads].map(|bytes| usize::from(bytes > 0));
        let loads = words + present.iter().sum::<usize>();
        // Lanes past the end load the last piece, one sector, in the steps that fill up the last round.
        let steps = MatvecGeometry::steps(1);
        let filling = pieces.div_ceil(32).next_multiple_of(steps) - pieces.div_ceil(32);
        let of_weights = words * plane(planes.quants)
            + plane(planes.high)
            + plane(planes.scales)
            + plane(planes.heads)
            + loads * filling;
        let sums = if format == Format::Q8_0 { 0 } else { sectors(k / 4, pieces) + filling };
        let of_input = 4 * sectors(k, pieces) + sectors(k / 8, pieces) + 5 * filling + sums;
        let of_input = MatvecGeometry::WARPS as usize * of_input;
        assert_eq!(counters.global_loads.sectors, (n * of_weights + of_input) as u64, "{format}");
        // The weights are all there is but for that.
        assert!(32 * plane(planes.quants) == planes.quants as usize * blocks);
        assert_eq!((counters.shuffles, counters.barriers), (5 * n as u64, 0));
    }
}

#[test]
fn some_rows_load_weights_once_and_in_whole_sectors() {
    let machine = &Emulated::new();
    // Q8_0 loads a piece's quants with two words, each of which touches all sectors.
    for (format, k, words) in [(Format::Q4_K, 18_944, 1), (Format::Q6_K, 4096, 1), (Format::Q8_0, 2048, 2)] {
        let mut random = Random(25);
        let rows = 2;
        let n = RowsGeometry::OUTPUTS as usize;
        let matrix = Matrix::random(format, [n, k], &mut random);
        // Aligned to sectors, unlike where nothing is counted.
        let bytes = machine.input("weights", &matrix.bytes).unwrap();
        let input =
            machine.input("input", &Input::new(Kind::Q8, [rows, k], || normal(&mut random)).bytes).unwrap();
        let (_, counters) = counted::<f32, _>(machine, rows * n, 4, |queue, out| {
            let weights = PlaneMatrix { bytes: bytes.view(), format, rows: n, columns: k };
            ops::matvec_q8(queue, &[Output { out, weights, bias: None }], input.view(), rows)
        });

        // A warp loads four pieces of each output at a time.
        let fours = k / 128;
        let planes = Planes::of(format);
        let sectors = |bytes: u32| (bytes as usize * 128).div_ceil(format.block_elements() * 32);
        let others = [planes.high, planes.scales, planes.heads].into_iter().filter(|&bytes| bytes > 0);
        let of_others: usize = others.map(sectors).sum();
        let weights = fours * (words * sectors(planes.quants) + of_others);
        // Both runs of coarse and of fine quants, of four pieces each in a sector of its own; scales, sums.
        let sums = usize::from(format != Format::Q8_0);
        let of_input = rows * fours * (16 + 1 + sums);
        assert_eq!(counters.global_loads.sectors, (n * weights + of_input) as u64, "{format}");
        // The quants' bytes, but for that.
        assert_eq!(32 * fours * sectors(planes.quants), planes.quants as usize * k / format.block_elements());
        assert_eq!((counters.shuffles, counters.barriers), (0, 1));
    }
}

/// The emulator has two multiprocessors, each with room for 4 blocks of 8 outputs.
#[test]
fn warps_share_k_where_blocks_are_a_few_more_than_fit_at_a_time() {
    let machine = &Emulated::new();
    let mut random = Random(28);
    let k = 256;
    for (format, n, splits_k) in [
        (Format::Q4_K, &[64][..], false),
        (Format::Q4_K, &[65], true),
        (Format::Q4_K, &[80], true),
        (Format::Q4_K, &[81], false),
        // 5, 2 and 2 blocks.
        (Format::Q4_K, &[33, 9, 9], true),
        (Format::Q4_K, &[33, 9, 8], false),
        (Format::Q2_K, &[80], true),
        (Format::Q2_K, &[81], false),
    ] {
        for rows in 1..=2 {
            let input = Input::new(Kind::Q8, [rows, k], || normal(&mut random));
            let input = LoadedInput::new(machine, &input);
            let matrices: Vec<Matrix> =
                n.iter().map(|&n| Matrix::random(format, [n, k], &mut random)).collect();
            let loaded: Vec<Loaded<'_>> =
                matrices.iter().map(|matrix| Loaded::new(machine, matrix)).collect();
            let mut outs: Vec<Guarded<f32>> =
                n.iter().map(|n| Guarded::output(machine, "out", rows * n, 4)).collect();
            let outputs: Vec<Output<'_>> =
                loaded.iter().zip(&mut outs).map(|(loaded, out)| loaded.output(out.view_mut())).collect();
            let noted = Noted::new(machine);
            input.multiply(&noted, &outputs, rows).unwrap();
            let names: Vec<&str> = noted.into_names().into_iter().collect();
            let suffix = if rows == 2 {
                "_x2"
            } else if splits_k {
                "_split_k"
            } else {
                ""
            };
            let format = format.to_string().to_lowercase();
            assert_eq!(names, [format!("matvec_q8_{format}{suffix}")], "{rows} rows, {n:?} outputs");
        }
    }
}

/// The emulator has two multiprocessors, each with room for 3 blocks of 16 outputs.
#[test]
fn two_formats_share_a_launch_where_their_blocks_run_at_a_time() {
    use Format::{Q4_K, Q5_0, Q5_K, Q6_K, Q8_0};
    let machine = &Emulated::new();
    let mut random = Random(30);
    let k = 256;
    for (all, rows, names) in [
        (&[(Q4_K, 32), (Q4_K, 17), (Q6_K, 16)][..], 1, &["matvec_q8_q4_k_q6_k_split_k"][..]),
        // In another order, and one block too many.
        (&[(Q6_K, 16), (Q5_K, 80)], 1, &["matvec_q8_q5_k_q6_k_split_k"]),
        (&[(Q6_K, 16), (Q5_K, 81)], 1, &["matvec_q8_q5_k", "matvec_q8_q6_k"]),
        (&[(Q5_0, 1), (Q8_0, 1), (Q5_0, 1)], 1, &["matvec_q8_q5_0_q8_0_split_k"]),
        (&[(Q4_K, 16), (Q6_K, 16)], 2, &["matvec_q8_q4_k_x2", "matvec_q8_q6_k_x2"]),
        // No kernel, three formats, and one.
        (&[(Q4_K, 16), (Q5_K, 16)], 1, &["matvec_q8_q4_k", "matvec_q8_q5_k"]),
        (&[(Q4_K, 16), (Q5_K, 16), (Q6_K, 16)], 1, &["matvec_q8_q4_k", "matvec_q8_q5_k", "matvec_q8_q6_k"]),
        (&[(Q4_K, 16), (Q4_K, 16)], 1, &["matvec_q8_q4_k"]),
    ] {
        let input = Input::new(Kind::Q8, [rows, k], || normal(&mut random));
        let input = machine.input("input", &input.bytes).unwrap();
        let matrices: Vec<Matrix> =
            all.iter().map(|&(format, n)| Matrix::random(format, [n, k], &mut random)).collect();
        let loaded: Vec<Loaded<'_>> = matrices.iter().map(|matrix| Loaded::new(machine, matrix)).collect();
        let mut outs: Vec<Guarded<f32>> =
            all.iter().map(|(_, n)| Guarded::output(machine, "out", rows * n, 4)).collect();
        let outputs: Vec<Output<'_>> =
            loaded.iter().zip(&mut outs).map(|(loaded, out)| loaded.output(out.view_mut())).collect();
        let noted = Noted::new(machine);
        ops::matvec_q8_by_format(&noted, outputs, input.view(), rows).unwrap();
        let launched: Vec<&str> = noted.into_names().into_iter().collect();
        assert_eq!(launched, names, "{rows} rows, {all:?}");
        assert!(outs.iter().all(|out| out.read().iter().all(|x| x.is_finite())), "{rows} rows, {all:?}");
    }
}

/// A launch of two formats moves and multiplies what a launch for each does, and reads the input once.
#[test]
fn work_of_two_formats_is_that_of_both() {
    let k = 3584;
    let job = |n, bias| Job { n, bias: Global::from_address(bias), ..Job::zeroed() };
    let jobs = |jobs: &[Job]| core::array::from_fn(|i| jobs.get(i).copied().unwrap_or(Job::zeroed()));
    let part = |a: &[Job]| (jobs(a), Global::from_address(16));
    let (first, second) = ([job(3584, 256), job(512, 0)], [job(512, 256)]);
    let (jobs, input) = part(&first);
    let first = MatvecRows::<BlockQ4_K, 1> { jobs, input, rows: 1, k, format: PhantomData };
    let (jobs, input) = part(&second);
    let second = MatvecRows::<BlockQ6_K, 1> { jobs, input, rows: 1, k, format: PhantomData };
    let two = MatvecTwo { first, second };
    assert_eq!(two.launch().grid.y, 224 + 32 + 32);
    let work = two.work(0).unwrap();
    // Blocks of 256 have 144 bytes and 210; a row of input two quants a value, and for each 32 a scale and two sums.
    let weights = 4096 * 14 * 144 + 512 * 14 * 210;
    let row = 2 * 3584 + 112 * (4 + 8);
    assert_eq!(work.bytes_read, weights + row + 4 * (3584 + 512));
    assert_eq!(work.bytes_written, 4 * (4096 + 512));
    assert_eq!(work.operations, 2 * (4096 + 512) * 3584);
    assert_eq!(work.unit, Unit::TensorS8);
}

fn arguments_outside_the_contract_are_refused<M: Machine>(machine: &M) {
    let bytes = machine.input("weights", &[0_u8; 3 * 144 + 16]).unwrap();
    let bias = machine.input("bias", &[0.0_f32; 8]).unwrap();
    let q8 = machine.input("input", &[0_u8; 2 * 608]).unwrap();
    let f16 = machine.input("input", &[f16::ZERO; 512]).unwrap();
    let mut out: Buffer<f32> = machine.output("out", 8).unwrap();
    let format = Format::Q4_K;
    let mut run = |format, weights, rows, input, columns| {
        let weights = PlaneMatrix { bytes: bytes.slice(weights), format, rows, columns };
        let output = Output { out: out.slice_mut(0..6), weights, bias: Some(bias.slice(0..3)) };
        ops::matvec_q8(machine, &[output], q8.slice(input), 2)
    };
    let refused = assert_refused;
    let all = 0..3 * 144;
    refused(
        run(Format::F16, all.clone(), 3, 0..1216, 256),
        "matvec_q8: weights of F16 are not quantized, multiply them with f16",
    );
    refused(
        run(format, all.clone(), 3, 0..1216, 128),
        "matvec_q8_q4_k_x2: weights has 128 columns of Q4_K, not a multiple of 256",
    );
    refused(run(format, all.clone(), 3, 0..1216, 0), "matvec_q8_q4_k_x2: weights have no columns");
    refused(
        run(format, all.clone(), 3, 0..1215, 256),
        "matvec_q8_q4_k_x2: input has 1215 elements, the shape has 1216",
    );
    refused(
        run(format, 0..431, 3, 0..1216, 256),
        "matvec_q8_q4_k_x2: weights has 431 elements, the shape has 432",
    );
    refused(run(format, 0..288, 2, 0..1216, 256), "matvec_q8_q4_k_x2: out has 6 elements, the shape has 4");
    let address = bytes.slice(1..2).start().address();
    refused(
        run(format, 1..433, 3, 0..1216, 256),
        &format!("matvec_q8_q4_k_x2: weights begins at {address:#x}, which is not a multiple of 16 bytes"),
    );
    let weights = |format, part| PlaneMatrix { bytes: bytes.slice(part), format, rows: 1, columns: 256 };
    refused(
        ops::matvec_f16(machine, &[], f16.view(), 2),
        "matvec_f16_f32_x4: 0 outputs, there can be 1 to 3",
    );
    let (first, second) = (weights(Format::Q4_K, 0..144), weights(Format::Q6_K, 0..224));
    let mut other: Buffer<f32> = machine.output("out", 2).unwrap();
    let outputs = [
        Output { out: out.slice_mut(0..2), weights: first, bias: None },
        Output { out: other.view_mut(), weights: second, bias: None },
    ];
    refused(
        ops::matvec_f16(machine, &outputs, f16.view(), 2),
        "matvec_f16_q4_k_x4: weights have 256 columns of Q4_K and 256 of Q6_K, a launch takes one kind",
    );
    let mut two = |weights: [PlaneMatrix<'_>; 2]| {
        let [first, second] = weights;
        let first = [Output { out: out.slice_mut(0..1), weights: first, bias: None }];
        let second = [Output { out: other.slice_mut(0..1), weights: second, bias: None }];
        ops::matvec_q8_two(machine, [&first, &second], q8.slice(0..608))
    };
    refused(
        two([second, first]),
        "matvec_q8: no kernel takes Q6_K and Q4_K in one launch, multiply them apart",
    );
    refused(
        two([first, PlaneMatrix { columns: 512, ..second }]),
        "matvec_q8_q4_k_q6_k_split_k: weights has 224 elements, the shape has 432",
    );
    refused(
        two([first, PlaneMatrix { bytes: bytes.slice(0..432), columns: 512, ..second }]),
        "matvec_q8_q4_k_q6_k_split_k: input has 608 elements, the shape has 1216",
    );
    refused(
        two([PlaneMatrix { rows: 2, bytes: bytes.slice(0..288), ..first }, second]),
        "matvec_q8_q4_k_q6_k_split_k: out has 1 elements, the shape has 2",
    );
    assert!(out.read().unwrap().iter().all(|x| x.is_nan()), "nothing ran");
}

/// Bytes of weights a second, over weights that are not in the cache.
#[test]
#[ignore = "a measurement: cargo test --release -p host --test matvec -- --ignored --nocapture"]
fn speed() {
    let Some(stream) = machine::stream("speed") else { return };
    let mut random = Random(26);
    for format in [Format::Q4_K, Format::Q6_K] {
        for [n, k] in [[3584, 3584], [18_944, 3584], [3584, 18_944], [152_064, 3584]] {
            let row = plane_row_bytes(format, k).unwrap() as usize;
            // Enough copies that none is still in the L2 cache when its turn comes again.
            let copies = (256_usize << 20).div_ceil(n * row).max(2);
            let blocks = random_blocks(format, k, 0.02, &mut random);
            let mut packed = vec![0; row];
            pack_row(format, &blocks, &mut packed).unwrap();
            let weights: Buffer<u8> = stream.input("weights", &packed.repeat(n * copies)).unwrap();
            for rows in [1, 2, 4, 8] {
                for kind in [Kind::Q8, Kind::F16] {
                    let input = Input::new(kind, [rows, k], || normal(&mut random));
                    let input = LoadedInput::new(&stream, &input);
                    let mut out: Buffer<f32> = stream.output("out", rows * n).unwrap();
                    let mut launch = |copy: usize| {
                        let bytes = weights.slice(copy * n * row..(copy + 1) * n * row);
                        let weights = PlaneMatrix { bytes, format, rows: n, columns: k };
                        let output = Output { out: out.view_mut(), weights, bias: None };
                        input.multiply(&stream, &[output], rows).unwrap();
                    };
                    let rounds = 10_usize.div_ceil(copies).max(2);
                    (0..copies).for_each(&mut launch);
                    let mut times: Vec<f64> = (0..5)
                        .map(|_| {
                            let start = stream.record().unwrap();
                            for _ in 0..rounds {
                                (0..copies).for_each(&mut launch);
                            }
                            let end = stream.record().unwrap();
                            stream.synchronize().unwrap();
                            let launches = (rounds * copies) as f64;
                            f64::from(end.milliseconds_since(&start).unwrap()) * 1e3 / launches
                        })
                        .collect();
                    times.sort_by(f64::total_cmp);
                    let [fastest, median, slowest] = [times[0], times[2], times[4]];
                    let rate = (n * row) as f64 / median / 1e3;
                    say(&format!(
                        "{format} {kind:?} {n} × {k}, {rows} rows: {rate:.0} GB/s, {median:.2} µs \
                         ({fastest:.2} to {slowest:.2}; {copies} copies of the weights in turn)"
                    ));
                }
            }
        }
    }
}
