//! Problems for the products with quantized weights, and how their results are judged.

use gpu::quant::planes::{pack_row, plane_row_bytes};
use gpu::quant::{Format, dequantize_row};
use lanemap::cuda::ops::PlaneMatrix;
use lanemap::cuda::{Error, Stream, View};

use crate::machine::{EPSILON, Guarded, Machine, assert_close, say};
use crate::random::{Random, normals, random_blocks};

/// What weights and inputs are aligned to, in bytes.
pub(crate) const ALIGN: usize = 16;
/// What the output is aligned to: two elements.
pub(crate) const OUT_ALIGN: usize = 8;

/// The formats that the kernels are for.
pub(crate) fn quantized() -> impl Iterator<Item = Format> {
    let floats = [Format::F32, Format::F16, Format::BF16];
    Format::ALL.into_iter().filter(move |format| !floats.contains(format))
}

/// Weights as a kernel gets them, and their values.
pub(crate) struct Matrix {
    pub(crate) format: Format,
    /// Rows and columns.
    pub(crate) shape: [usize; 2],
    pub(crate) planes: Vec<u8>,
    /// `n × k`.
    pub(crate) values: Vec<f32>,
    pub(crate) bias: Option<Vec<f32>>,
}

impl Matrix {
    /// `n × k` random weights of a deviation of 1.
    pub(crate) fn random(format: Format, n: usize, k: usize, random: &mut Random) -> Self {
        let blocks = random_blocks(format, n * k, 1.0, random);
        let mut values = vec![f32::NAN; n * k];
        dequantize_row(format, &blocks, &mut values).unwrap();
        let row = plane_row_bytes(format, k).unwrap() as usize;
        let mut planes = vec![0xff; n * row];
        for i in 0..n {
            let blocks = &blocks[i * (blocks.len() / n)..][..blocks.len() / n];
            pack_row(format, blocks, &mut planes[i * row..][..row]).unwrap();
        }
        Self { format, shape: [n, k], planes, values, bias: None }
    }

    /// With a bias for each row.
    pub(crate) fn with_bias(self, random: &mut Random) -> Self {
        Self { bias: Some(normals(random, self.shape[0])), ..self }
    }

    /// The first rows of it, without their values.
    pub(crate) fn rows(&self, rows: usize) -> Self {
        let planes = self.planes[..self.planes.len() / self.shape[0] * rows].to_vec();
        Self { format: self.format, shape: [rows, self.shape[1]], planes, values: Vec::new(), bias: None }
    }

    /// In a machine's memory.
    pub(crate) fn on<M: Machine>(&self, machine: &M) -> Uploaded {
        let bytes = Guarded::input(machine, "weights", &self.planes, ALIGN);
        let bias = self.bias.as_ref().map(|bias| Guarded::input(machine, "bias", bias, 4));
        Uploaded { format: self.format, shape: self.shape, bytes, bias }
    }
}

/// A [`Matrix`] in a machine's memory.
pub(crate) struct Uploaded {
    format: Format,
    shape: [usize; 2],
    bytes: Guarded<u8>,
    bias: Option<Guarded<f32>>,
}

impl Uploaded {
    pub(crate) fn weights(&self) -> PlaneMatrix<'_> {
        let [rows, columns] = self.shape;
        PlaneMatrix { bytes: self.bytes.view(), format: self.format, rows, columns }
    }

    pub(crate) fn bias(&self) -> Option<View<'_, f32>> {
        self.bias.as_ref().map(Guarded::view)
    }
}

/// Judges `found` against the product of the operands that the kernel multiplies, summed in f64: the
/// worst element may be off by twice what the worst of a plain loop in f32 is, and one rounding of the
/// largest.
pub(crate) fn assert_product(
    what: &str,
    found: &[f32],
    input: &[f32],
    weights: &[f32],
    bias: Option<&[f32]>,
    [m, n, k]: [usize; 3],
) -> f64 {
    let mut expected = Vec::with_capacity(m * n);
    let (mut plain, mut largest) = (0.0_f64, 0.0_f64);
    for i in 0..m * n {
        let (row, column) = (&input[i / n * k..][..k], &weights[i % n * k..][..k]);
        let bias = bias.map_or(0.0, |bias| bias[i % n]);
        let pairs = || row.iter().zip(column);
        let exact = pairs().map(|(&x, &w)| f64::from(x) * f64::from(w)).sum::<f64>() + f64::from(bias);
        let loop_in_f32 = pairs().fold(0.0_f32, |sum, (x, w)| x.mul_add(*w, sum)) + bias;
        plain = plain.max((f64::from(loop_in_f32) - exact).abs());
        largest = largest.max(exact.abs());
        expected.push(exact);
    }
    assert!(largest > 0.1 || m * n * k == 0, "{what}: there is something to sum");
    let bound = 2.0 * plain + EPSILON * largest;
    let worst = assert_close(what, found, &expected, |_| bound);
    if plain > 0.0 { worst / plain } else { 0.0 }
}

/// Says how the worst elements compare.
pub(crate) fn say_worst<M: Machine>(kernel: &str, worst: f64) {
    say(&format!("{kernel} on the {}: at most {worst:.2} times the error of a plain loop", M::NAME));
}

/// `[m, n, k]` of the products of a model with 7 billion weights, for prompts of 3328 and 512 tokens.
pub(crate) const SPEED_SHAPES: [[usize; 3]; 4] =
    [[3328, 3584, 3584], [3328, 37888, 3584], [3328, 3584, 18944], [512, 37888, 3584]];

/// Rows that are drawn for a measurement; they are repeated.
pub(crate) const SPEED_ROWS: usize = 128;

/// As many rows as are wanted, of these again and again.
pub(crate) fn repeated<T: Copy>(rows: &[T], count: usize) -> Vec<T> {
    rows.iter().copied().cycle().take(count * (rows.len() / SPEED_ROWS)).collect()
}

/// Says how fast a launch is: the median of 20 after 3, each between two events, its operands where
/// the launch before left them. `2 m n k` operations.
pub(crate) fn say_speed(
    what: &str,
    stream: &Stream,
    [m, n, k]: [usize; 3],
    launch: impl Fn() -> Result<(), Error>,
) {
    let mut times: Vec<f32> = (0..23)
        .map(|_| {
            let start = stream.record().unwrap();
            launch().unwrap();
            stream.record().unwrap().milliseconds_since(&start).unwrap()
        })
        .skip(3)
        .collect();
    times.sort_unstable_by(f32::total_cmp);
    let teraflops = |milliseconds: f32| 2e-9 * (m * n * k) as f64 / f64::from(milliseconds);
    say(&format!(
        "{what}, {m} × {n} × {k}: {:.3} ms, {:.0} TFLOP/s ({:.0} to {:.0})",
        times[10],
        teraflops(times[10]),
        teraflops(times[19]),
        teraflops(times[0]),
    ));
}
