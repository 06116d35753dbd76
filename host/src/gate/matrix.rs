//! Random operands of products: what kernels read, and the numbers that it stands for.

use gpu::product::Q8Row;
use gpu::quant::planes::{pack_row, plane_row_bytes};
use gpu::quant::{Format, dequantize_row};
use half::f16;

use super::random::{Random, normal, normals, random_blocks};

/// Rows of activations as a kernel gets them, and their values.
#[derive(Clone, Debug)]
pub struct Rows<E> {
    /// What the kernel reads.
    pub elements: Vec<E>,
    /// `m × k`, exact.
    pub values: Vec<f64>,
    /// How many rows.
    pub m: usize,
}

impl<E: Copy> Rows<E> {
    /// A row alone.
    ///
    /// # Panics
    /// If there are not so many.
    #[must_use]
    pub fn row(&self, row: usize) -> Self {
        let (elements, values) = (self.elements.len() / self.m, self.values.len() / self.m);
        Self {
            elements: self.elements[row * elements..][..elements].to_vec(),
            values: self.values[row * values..][..values].to_vec(),
            m: 1,
        }
    }
}

impl Rows<f16> {
    /// Random rows of `k` elements of a deviation of 1.
    pub fn random(m: usize, k: usize, random: &mut Random) -> Self {
        let elements: Vec<f16> = (0..m * k).map(|_| f16::from_f64(normal(random))).collect();
        Self { values: elements.iter().map(|x| x.to_f64()).collect(), elements, m }
    }
}

impl Rows<u8> {
    /// Random rows of `k` values of a deviation of 1, as q8 ([`gpu::product::activations`]).
    ///
    /// # Panics
    /// If `k` is not a multiple of 32.
    pub fn random(m: usize, k: usize, random: &mut Random) -> Self {
        assert!(k.is_multiple_of(32), "{k} values are no whole blocks");
        let layout = Q8Row::new(k as u32);
        let [fine, scales, sums, bytes] =
            [layout.fine(), layout.scales(), layout.sums(), layout.bytes()].map(|at| at as usize);
        let mut all = Self { elements: vec![0; m * bytes], values: Vec::with_capacity(m * k), m };
        for i in 0..m {
            let row = &mut all.elements[i * bytes..][..bytes];
            for (block, x) in normals(random, k).chunks_exact(32).enumerate() {
                let scale = x.iter().fold(0.0_f32, |most, x| most.max(x.abs())) / 32_512.0;
                let quants: Vec<i32> = x.iter().map(|x| (x / scale).round() as i32).collect();
                all.values.extend(quants.iter().map(|&q| f64::from(scale) * f64::from(q)));
                for (i, q) in quants.iter().enumerate() {
                    let coarse = (q + 128).div_euclid(256);
                    row[32 * block + i] = coarse as u8;
                    row[fine + 32 * block + i] = (q - 256 * coarse) as u8;
                }
                row[scales + 4 * block..][..4].copy_from_slice(&scale.to_le_bytes());
                for (half, quants) in quants.chunks_exact(16).enumerate() {
                    let sum: i32 = quants.iter().sum();
                    let at = sums + 8 * block + 4 * half;
                    row[at..][..4].copy_from_slice(&(scale * sum as f32).to_le_bytes());
                }
            }
        }
        all
    }
}

/// Weights as a kernel gets them, and their values.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// The format.
    pub format: Format,
    /// Rows and columns.
    pub shape: [usize; 2],
    /// As the kernels read them, see [`gpu::quant::planes`].
    pub planes: Vec<u8>,
    /// `n × k`.
    pub values: Vec<f32>,
    /// What of each value is a minimum of its block, where blocks have one of their own; none elsewhere.
    pub minimums: Vec<f32>,
    /// What is added to each row of the product.
    pub bias: Option<Vec<f32>>,
}

impl Matrix {
    /// `n × k` random weights of a deviation of 1.
    ///
    /// # Panics
    /// If rows of `k` are not whole blocks.
    #[must_use]
    pub fn random(format: Format, shape @ [n, k]: [usize; 2], random: &mut Random) -> Self {
        Self::new(format, shape, &random_blocks(format, n * k, 1.0, random))
    }

    /// The weights in these blocks.
    ///
    /// # Panics
    /// If these are not the blocks of such a matrix.
    #[must_use]
    pub fn new(format: Format, shape @ [n, k]: [usize; 2], blocks: &[u8]) -> Self {
        let mut values = vec![f32::NAN; n * k];
        dequantize_row(format, blocks, &mut values).expect("whole blocks");
        let row = plane_row_bytes(format, k).expect("a row of moderate length") as usize;
        let mut planes = vec![0xff; n * row];
        for i in 0..n {
            let blocks = &blocks[i * (blocks.len() / n)..][..blocks.len() / n];
            pack_row(format, blocks, &mut planes[i * row..][..row]).expect("a row and its planes");
        }
        Self { format, shape, planes, values, minimums: minimums(format, blocks), bias: None }
    }

    /// With a bias for each row.
    #[must_use]
    pub fn with_bias(self, random: &mut Random) -> Self {
        Self { bias: Some(normals(random, self.shape[0])), ..self }
    }

    /// The first rows of it, without their values.
    #[must_use]
    pub fn rows(&self, rows: usize) -> Self {
        let planes = self.planes[..self.planes.len() / self.shape[0] * rows].to_vec();
        let shape = [rows, self.shape[1]];
        Self { format: self.format, shape, planes, values: Vec::new(), minimums: Vec::new(), bias: None }
    }
}

/// What these blocks have where all quants are zero, if they have minimums of their own.
fn minimums(format: Format, blocks: &[u8]) -> Vec<f32> {
    // The bytes of a block's quants.
    let quants = match format {
        Format::Q2_K => 16..80,
        Format::Q4_K => 16..144,
        Format::Q5_K => 16..176,
        Format::Q4_1 => 4..20,
        Format::Q5_1 => 4..24,
        _ => return Vec::new(),
    };
    let mut blocks = blocks.to_vec();
    for block in blocks.chunks_exact_mut(format.block_bytes()) {
        block[quants.clone()].fill(0);
    }
    let mut minimums = vec![f32::NAN; blocks.len() / format.block_bytes() * format.block_elements()];
    dequantize_row(format, &blocks, &mut minimums).expect("whole blocks");
    minimums
}
