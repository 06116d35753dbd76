//! `rope_kv` against f64.

use std::array;

use gpu::attention::KvPlace;
use half::f16;

use super::Parity;
use super::trial::{Red, Trial, read};
use crate::cuda::Queue;
use crate::cuda::ops::{self, Cache, Heads, RopeShape};
use crate::gate::bounds::EPSILON;
use crate::gate::guarded::Guarded;
use crate::gate::random::{Random, normals};
use crate::model::{Rope, RopeOrder, RopeScaling};

/// Positions of each cache.
const CONTEXT: usize = 40;
/// Layers of each cache, and the one that is written.
const LAYERS: usize = 2;
const LAYER: usize = 1;

/// One of a row's three parts.
#[derive(Clone, Debug)]
pub struct RopePart {
    /// How many heads.
    pub heads: usize,
    /// Elements from one row to the next.
    pub stride: usize,
    /// The rows, without what lies behind the last.
    pub rows: Vec<f32>,
    /// What is added to each row.
    pub bias: Option<Vec<f32>>,
    /// The weight of each head's norm.
    pub norm: Option<Vec<f32>>,
    /// Whether it turns: values do not.
    pub turns: bool,
}

impl RopePart {
    /// Random rows with `gap` elements between them, with a bias or without; with norms if they are no values.
    pub fn random(
        random: &mut Random,
        shape: &RopeShape,
        heads: usize,
        gap: usize,
        [bias, norm, turns]: [bool; 3],
    ) -> Self {
        let width = heads * shape.head_size;
        Self {
            heads,
            stride: width + gap,
            rows: normals(random, shape.rows * (width + gap) - gap),
            bias: bias.then(|| normals(random, width)),
            norm: (norm && turns).then(|| normals(random, shape.head_size)),
            turns,
        }
    }

    /// The heads of a row in f64, and how large the numbers are that each element is made of. `angles` are
    /// cosine and sine of each pair at the row's position.
    #[must_use]
    pub fn reference(&self, row: usize, shape: &RopeShape, angles: &[[f32; 2]]) -> Vec<(f64, f64)> {
        let width = self.heads * shape.head_size;
        let at = row * self.stride;
        let mut x: Vec<f64> = self.rows[at..at + width].iter().map(|&x| f64::from(x)).collect();
        let mut size: Vec<f64> = x.iter().map(|x| x.abs()).collect();
        if let Some(bias) = &self.bias {
            x.iter_mut().zip(bias).for_each(|(x, &bias)| *x += f64::from(bias));
            size.iter_mut().zip(bias).for_each(|(size, &bias)| *size += f64::from(bias.abs()));
        }
        for (head, size) in x.chunks_mut(shape.head_size).zip(size.chunks_mut(shape.head_size)) {
            if let Some(norm) = &self.norm {
                let squares: f64 = head.iter().map(|x| x * x).sum();
                let root = (squares / shape.head_size as f64 + f64::from(shape.epsilon)).sqrt();
                head.iter_mut().zip(norm).for_each(|(x, &norm)| *x = *x / root * f64::from(norm));
                size.iter_mut().zip(norm).for_each(|(x, &norm)| *x = *x / root * f64::from(norm.abs()));
            }
            if self.turns {
                for (pair, &[cos, sin]) in angles.iter().enumerate() {
                    let (a, b) = match shape.order {
                        RopeOrder::Interleaved => (2 * pair, 2 * pair + 1),
                        RopeOrder::Halves => (pair, pair + shape.pairs),
                    };
                    let (cos, sin, x, y) = (f64::from(cos), f64::from(sin), head[a], head[b]);
                    (head[a], head[b]) = (x * cos - y * sin, x * sin + y * cos);
                    size[a] += size[b];
                    size[b] = size[a];
                }
            }
        }
        x.into_iter().zip(size).collect()
    }
}

/// By how much an element of `rope_kv` may be off that is `expected`, made of numbers of this size.
///
/// Of sums of squares 256 elements long, and of a few steps besides: f32 is far below f16 here.
#[must_use]
pub fn rope_error(expected: f64, size: f64) -> f64 {
    expected.abs() * (-11.0_f64).exp2() + (-25.0_f64).exp2() + 32.0 * EPSILON * size
}

/// The kernel.
#[derive(Clone, Copy, Debug)]
pub struct RopeKv;

/// A problem.
#[derive(Clone, Copy, Debug)]
pub struct RopeCase {
    /// Its sizes.
    pub shape: RopeShape,
    /// Elements between one row and the next.
    pub gap: usize,
    /// Whether all parts have biases.
    pub bias: bool,
    /// Whether queries and keys have norms.
    pub norm: bool,
}

impl RopeCase {
    const BASE: RopeShape = RopeShape {
        rows: 3,
        heads: 4,
        kv_heads: 2,
        head_size: 64,
        pairs: 32,
        order: RopeOrder::Interleaved,
        epsilon: 1e-6,
    };
    /// Sizes that the others differ from.
    pub const HALVES: RopeShape = RopeShape { order: RopeOrder::Halves, ..Self::BASE };
    /// The first to play.
    pub const QUICK: [Self; 3] = [
        Self { shape: Self::BASE, gap: 0, bias: false, norm: false },
        Self { shape: Self::HALVES, gap: 7, bias: true, norm: true },
        // Some elements of a head do not turn.
        Self { shape: RopeShape { head_size: 80, pairs: 20, ..Self::BASE }, gap: 1, bias: true, norm: true },
    ];
    /// Other heads.
    pub const MORE: [Self; 3] = [
        Self {
            shape: RopeShape { head_size: 96, pairs: 10, ..Self::HALVES },
            gap: 0,
            bias: false,
            norm: true,
        },
        Self {
            shape: RopeShape { head_size: 256, pairs: 128, ..Self::HALVES },
            gap: 0,
            bias: false,
            norm: true,
        },
        Self {
            shape: RopeShape { head_size: 2, pairs: 1, rows: 5, ..Self::BASE },
            gap: 0,
            bias: false,
            norm: false,
        },
    ];
    /// What only a device has the time for.
    pub const LARGE: Self = Self {
        shape: RopeShape { rows: 36, heads: 32, kv_heads: 8, head_size: 128, pairs: 64, ..Self::HALVES },
        gap: 0,
        bias: true,
        norm: true,
    };
}

impl Parity for RopeKv {
    const FAMILY: &'static str = "rope_kv";

    fn all() -> Vec<Self> {
        vec![Self]
    }

    fn kernel(&self) -> String {
        "rope_kv".to_owned()
    }

    fn play<Q: Queue>(&self, trial: &mut Trial<'_, Q>) -> Result<(), Red> {
        let cases = trial.cases(&RopeCase::QUICK, &RopeCase::MORE, &[RopeCase::LARGE]);
        cases.iter().try_for_each(|case| play(trial, case))
    }
}

/// Where a row stands: of two sequences the first has the first row alone.
fn position(row: usize) -> usize {
    if row == 0 { 37 } else { 2 + row }
}

fn play<Q: Queue>(trial: &mut Trial<'_, Q>, case: &RopeCase) -> Result<(), Red> {
    let &RopeCase { shape, gap, bias, norm } = case;
    let name = format!("{shape:?}, {gap} between rows, bias {bias}, norm {norm}");
    let rope = Rope { dims: 2 * shape.pairs, base: 10_000.0, order: shape.order, scaling: RopeScaling::None };
    let angles: Vec<[f32; 2]> =
        rope.table(None).angles(0..CONTEXT).into_iter().map(<[f32; 2]>::from).collect();
    let parts = [(shape.heads, true), (shape.kv_heads, true), (shape.kv_heads, false)]
        .map(|(heads, turns)| RopePart::random(&mut trial.random, &shape, heads, gap, [bias, norm, turns]));
    let width = shape.kv_heads * shape.head_size;
    let layer = CONTEXT * width;
    let places: Vec<KvPlace> = (0..shape.rows)
        .map(|row| KvPlace {
            start: (row.min(1) * LAYERS * layer) as u64,
            position: position(row) as u32,
            context: CONTEXT as u32,
        })
        .collect();
    let places = trial.input("places", &places, 16)?;
    let table = trial.input("angles", &angles, 8)?;
    let mut rows = Vec::new();
    for part in &parts {
        let optional = |name, values: &Option<Vec<f32>>| {
            values.as_deref().map(|values| trial.input(name, values, 4)).transpose()
        };
        let (bias, norm) = (optional("bias", &part.bias)?, optional("norm", &part.norm)?);
        rows.push((trial.input("rows", &part.rows, 4)?, bias, norm));
    }
    let mut caches = [Vec::new(), Vec::new()];
    let query_width = shape.heads * shape.head_size;
    let out: Vec<f16> = trial.output(&name, shape.rows * query_width, 2, |queue, out| {
        let mut keys = Guarded::output(queue, "keys", 2 * LAYERS * layer, 16)?;
        let mut values = Guarded::output(queue, "values", 2 * LAYERS * layer, 16)?;
        let heads = array::from_fn(|i| {
            let (rows, bias, norm) = &rows[i];
            let (bias, norm) = (bias.as_ref().map(Guarded::view), norm.as_ref().map(Guarded::view));
            Heads { rows: rows.view(), stride: parts[i].stride, bias, norm }
        });
        let (keys_mut, values_mut) = (keys.view_mut(), values.view_mut());
        let cache = Cache { keys: keys_mut, values: values_mut, places: places.view(), layer: LAYER };
        ops::rope_kv(queue, out, heads, cache, table.view(), shape)?;
        queue.synchronize()?;
        caches = [read::<f16>(&name, &keys)?, read(&name, &values)?];
        Ok(())
    })?;
    let (mut found, mut expected) = (Vec::new(), Vec::new());
    for row in 0..shape.rows {
        let angles = &angles[position(row) * shape.pairs..][..shape.pairs];
        let start = (row.min(1) * LAYERS + LAYER) * layer + position(row) * width;
        let queries = &out[row * query_width..][..query_width];
        let [keys, values] = caches.each_ref().map(|cache| &cache[start..][..width]);
        for (part, written) in parts.iter().zip([queries, keys, values]) {
            found.extend(written.iter().map(|x| x.to_f32()));
            expected.extend(part.reference(row, &shape, angles));
        }
    }
    let written = caches.iter().flatten().filter(|x| x.to_bits() != u16::MAX).count();
    if written > 2 * shape.rows * width {
        return Err(Red::wrong(&name, format!("{written} elements of the caches were written")));
    }
    let exact: Vec<f64> = expected.iter().map(|&(expected, _)| expected).collect();
    trial.compare(&name, &found, &exact, |i| rope_error(expected[i].0, expected[i].1))
}
