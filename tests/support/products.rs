//! The course of the tests of products on the tensor cores with weights in planes: what a kernel is given,
//! and how its results are judged.

use bytemuck::Pod;
use gpu::quant::Format;
use half::f16;
use lanemap::cuda::ops::PlaneMatrix;
use lanemap::cuda::{Error, Queue, Stream, View, ViewMut};
use lanemap::gate::bounds::tensor_core_product;
pub(crate) use lanemap::gate::matrix::{Matrix, Rows};

use crate::machine::{self, EPSILON, FIRST_ORDER, Guarded, Machine, assert_close, counted, say};
use crate::random::Random;

/// What weights and inputs are aligned to, in bytes.
const ALIGN: usize = 16;

/// A launcher: queue, out, input, weights, bias, rows of the input.
pub(crate) type Launch<M, E> =
    fn(&M, ViewMut<'_, f32>, View<'_, E>, PlaneMatrix<'_>, Option<View<'_, f32>>, usize) -> Result<(), Error>;

/// The kernels of one kind of activations.
pub(crate) trait Kernels {
    /// What they are called in messages.
    const NAME: &'static str;
    /// The tiles that are chosen by themselves, `[m, n]`.
    const TILE: [usize; 2];
    /// The first seed.
    const SEED: u64;
    /// What out is aligned to.
    const OUT_ALIGN: usize;
    /// What an input is stored as.
    type Element: Pod;

    /// Random rows of `k` elements of a deviation of 1.
    fn rows(m: usize, k: usize, random: &mut Random) -> Rows<Self::Element>;

    /// What launches the kernel for a format.
    fn by_format<M: Machine>() -> Launch<M, Self::Element>;

    /// Other kernels for Q4_K, by their tiles.
    fn other_tiles<M: Machine>() -> Vec<(&'static str, Launch<M, Self::Element>)>;
}

/// What a launcher leaves in out, and what it did.
pub(crate) fn run<K: Kernels, M: Machine>(
    machine: &M,
    launch: Launch<M, K::Element>,
    input: &Rows<K::Element>,
    weights: &Matrix,
) -> (Vec<f32>, M::Counts) {
    let [rows, columns] = weights.shape;
    let elements = Guarded::input(machine, "input", &input.elements, ALIGN);
    let bytes = Guarded::input(machine, "weights", &weights.planes, ALIGN);
    let bias = weights.bias.as_ref().map(|bias| Guarded::input(machine, "bias", bias, 4));
    counted(machine, input.m * rows, K::OUT_ALIGN, |queue, out| {
        let weights = PlaneMatrix { bytes: bytes.view(), format: weights.format, rows, columns };
        launch(queue, out, elements.view(), weights, bias.as_ref().map(Guarded::view), input.m)
    })
}

/// How results compare: the largest error as a part of what it may be, and in units of a plain loop's.
#[derive(Default)]
struct Worst {
    of_bound: f64,
    of_plain: f64,
}

/// Elements below which it is luck what a plain loop's largest error is.
const MANY: usize = 100;

/// Judges the kernel for the weights' format against the product of the operands that it multiplies, summed
/// in f64.
///
/// Each element is within the kernel's contract. Where sums are rounded to nearest, the worst of many is
/// off by no more than twice what the worst of a plain loop in f32 is, and one rounding of the largest.
fn check<K: Kernels, M: Machine>(
    machine: &M,
    input: &Rows<K::Element>,
    weights: &Matrix,
    what: &str,
    worst: &mut Worst,
) {
    let (found, _) = run::<K, M>(machine, K::by_format(), input, weights);
    let (m, [n, k]) = (input.m, weights.shape);
    let what = format!("{}, {m} × {n} × {k}, {what}", weights.format);
    let multiplied: Vec<f64> = weights.values.iter().map(|&weight| f16::from_f32(weight).to_f64()).collect();
    let (mut expected, mut bounds) = (Vec::with_capacity(m * n), Vec::with_capacity(m * n));
    let (mut plain, mut largest) = (0.0_f64, 0.0_f64);
    let references = tensor_core_product(&input.values, &multiplied, [m, n, k], M::ROUNDINGS_OF_A_PRODUCT);
    for (i, reference) in references.iter().enumerate() {
        let bias = weights.bias.as_ref().map_or(0.0, |bias| bias[i % n]);
        let exact = reference.sum + f64::from(bias);
        let of_bias = if weights.bias.is_some() { FIRST_ORDER * EPSILON * exact.abs() } else { 0.0 };
        bounds.push(reference.bound + of_bias);
        plain = plain.max((f64::from(reference.plain + bias) - exact).abs());
        largest = largest.max(exact.abs());
        expected.push(exact);
    }
    assert!(largest > 0.1 || m * n * k == 0, "{what}: there is something to sum");
    let error = assert_close(&what, &found, &expected, |i| bounds[i]);
    for ((found, exact), bound) in found.iter().zip(&expected).zip(&bounds).filter(|(_, bound)| **bound > 0.0)
    {
        worst.of_bound = worst.of_bound.max((f64::from(*found) - exact).abs() / bound);
    }
    if m * n >= MANY {
        if M::ROUNDINGS_OF_A_PRODUCT <= 1.0 {
            let most = 2.0 * plain + EPSILON * largest;
            assert!(error <= most, "{what}: off by {error}, at most {most} where a plain loop is by {plain}");
        }
        worst.of_plain = worst.of_plain.max(error / plain);
    }
}

pub(crate) fn every_format_is_multiplied<K: Kernels, M: Machine>(machine: &M) {
    let seed = K::SEED;
    let mut random = Random(seed);
    let mut worst = Worst::default();
    let [tile_m, tile_n] = K::TILE;
    for format in Format::ALL {
        // Of numbers a chunk. Then parts of a piece and odd numbers of pieces, where the format has such
        // rows, and more than two slabs.
        let (block, short, long) = match format.block_elements() {
            1 => (8, 40, 200),
            32 => (32, 32, 160),
            block => (block, block, 2 * block),
        };
        let small = [[1, 1, block], [3, tile_n + 3, short], [tile_m + 1, 18, long], [0, 5, block]];
        let large = [[257, 384, 8 * block], [64, 1000, 2048]];
        for [m, n, k] in machine.cases(&small, &large) {
            let weights = Matrix::random(format, [n, k], &mut random);
            let input = K::rows(m, k, &mut random);
            check::<K, M>(machine, &input, &weights, &format!("random seed {seed}"), &mut worst);
        }
    }
    say(&format!(
        "{} on the {}: at most {:.2} of the bound, {:.2} times the error of a plain loop",
        K::NAME,
        M::NAME,
        worst.of_bound,
        worst.of_plain
    ));
}

pub(crate) fn biases_are_added_to_every_row<K: Kernels, M: Machine>(machine: &M) {
    let seed = K::SEED + 1;
    let mut random = Random(seed);
    for [m, n, k] in [[2, 6, 256], [3, 5, 256], [2, 3, 0]] {
        let weights = Matrix::random(Format::Q4_K, [n, k], &mut random).with_bias(&mut random);
        let input = K::rows(m, k, &mut random);
        check::<K, M>(machine, &input, &weights, &format!("random seed {seed}"), &mut Worst::default());
    }
}

pub(crate) fn a_row_is_the_same_whatever_is_beside_it_and_whatever_the_tiles<K: Kernels, M: Machine>(
    machine: &M,
) {
    let mut random = Random(K::SEED + 2);
    let [m, n, k] = [K::TILE[0] + 2, K::TILE[1] + 6, 512];
    let weights = Matrix::random(Format::Q4_K, [n, k], &mut random);
    let input = K::rows(m, k, &mut random);
    let bits = |launch: Launch<M, K::Element>, input: &Rows<K::Element>, weights: &Matrix| -> Vec<u32> {
        run::<K, M>(machine, launch, input, weights).0.into_iter().map(f32::to_bits).collect()
    };
    let all = bits(K::by_format(), &input, &weights);
    for row in [0, 15, m - 3, m - 1] {
        let alone = bits(K::by_format(), &input.row(row), &weights);
        assert!(alone == all[row * n..][..n], "row {row} alone is another one");
    }
    // Fewer columns: other blocks, the same sums.
    let narrow = bits(K::by_format(), &input, &weights.rows(9));
    assert!(narrow.iter().enumerate().all(|(i, &x)| x == all[i / 9 * n + i % 9]));

    for (tiles, launch) in K::other_tiles() {
        assert!(bits(launch, &input, &weights) == all, "tiles of {tiles} give other bits");
    }
}

/// `[m, n, k]` of the products of a model with 7 billion weights, for prompts of 3328 and 512 tokens.
pub(crate) const SPEED_SHAPES: [[usize; 3]; 4] =
    [[3328, 3584, 3584], [3328, 37888, 3584], [3328, 3584, 18944], [512, 37888, 3584]];

/// Says how fast the kernels of Q4_K and Q6_K are: the median of 20 launches after 3, each between two
/// events, its operands where the launch before left them. `2 m n k` operations.
#[allow(dead_code, reason = "not every product says its speed")]
pub(crate) fn say_speed<K: Kernels>() {
    let Some(stream) = machine::stream(&format!("{}::speed", K::NAME)) else { return };
    // Rows that are drawn; they are repeated.
    const DRAWN: usize = 128;
    fn repeated<T: Copy>(rows: &[T], count: usize) -> Vec<T> {
        rows.iter().copied().cycle().take(count * (rows.len() / DRAWN)).collect()
    }
    let mut random = Random(K::SEED + 4);
    for [m, n, k] in SPEED_SHAPES {
        let input = repeated(&K::rows(DRAWN, k, &mut random).elements, m);
        let input = stream.input("input", &input).unwrap();
        let mut out = stream.output("out", m * n).unwrap();
        for format in [Format::Q4_K, Format::Q6_K] {
            let planes = Matrix::random(format, [DRAWN, k], &mut random).planes;
            let bytes = stream.input("weights", &repeated(&planes, n)).unwrap();
            let weights = PlaneMatrix { bytes: bytes.view(), format, rows: n, columns: k };
            let mut all = vec![("its own", K::by_format::<Stream>())];
            if format == Format::Q4_K {
                all.extend(K::other_tiles());
            }
            for (tiles, launch) in all {
                let mut times: Vec<f32> = (0..23)
                    .map(|_| {
                        let start = stream.record().unwrap();
                        launch(&stream, out.view_mut(), input.view(), weights, None, m).unwrap();
                        stream.record().unwrap().milliseconds_since(&start).unwrap()
                    })
                    .skip(3)
                    .collect();
                times.sort_unstable_by(f32::total_cmp);
                let teraflops = |milliseconds: f32| 2e-9 * (m * n * k) as f64 / f64::from(milliseconds);
                say(&format!(
                    "{}, {format}, tiles of {tiles}, {m} × {n} × {k}: {:.3} ms, {:.0} TFLOP/s ({:.0} to {:.0})",
                    K::NAME,
                    times[10],
                    teraflops(times[10]),
                    teraflops(times[19]),
                    teraflops(times[0]),
                ));
            }
        }
    }
}
