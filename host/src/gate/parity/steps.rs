//! `attn_decode` and `attn_combine` against f64.

use gpu::attention::{KvPlace, Scaling, Sight};
use gpu::product::PanelF16;
use half::f16;

use super::Parity;
use super::trial::{Red, Trial};
use crate::cuda::Queue;
use crate::cuda::ops::{self, AttnShape, Cache, PREFILL_HEAD_SIZES};
use crate::experiment::PARITY;
use crate::gate::form::{Form, Q8};
use crate::gate::guarded::Guarded;
use crate::gate::random::{Random, uniform};

/// Rows of generated tokens, each with a cache of its own.
#[derive(Clone, Copy, Debug)]
pub struct StepProblem<'a> {
    /// Each row's position.
    pub positions: &'a [usize],
    /// Positions of each cache.
    pub context: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// Query heads to each.
    pub group: usize,
    /// Elements of a head.
    pub head_size: usize,
    /// Positions up to its own that a row sees at most; 0: all.
    pub window: u32,
    /// What scores are capped at; 0: nothing.
    pub softcap: f32,
}

/// Layers of each cache.
pub const LAYERS: usize = 2;
/// The layer in question.
pub const LAYER: usize = 1;

/// Queries of all rows, and a cache for each: what is behind a row's position is NaN.
#[derive(Clone, Debug)]
pub struct StepInputs {
    /// `rows × heads × head size`.
    pub query: Vec<f16>,
    /// `rows × layers × context × KV heads × head size`.
    pub keys: Vec<f16>,
    /// As `keys`.
    pub values: Vec<f16>,
}

impl StepProblem<'_> {
    /// Three rows of which one begins a second chunk.
    pub const BASE: StepProblem<'static> = StepProblem {
        positions: &[0, 15, 130],
        context: 200,
        kv_heads: 2,
        group: 4,
        head_size: 64,
        window: 0,
        softcap: 0.0,
    };

    fn kv_width(&self) -> usize {
        self.kv_heads * self.head_size
    }

    /// Elements of a row of queries.
    #[must_use]
    pub fn width(&self) -> usize {
        self.kv_width() * self.group
    }

    fn scale(&self) -> f32 {
        // Large enough that some weights are far larger than others.
        12.0 / (self.head_size as f32).sqrt()
    }

    /// As the launcher takes it.
    #[must_use]
    pub fn shape(&self) -> AttnShape {
        AttnShape {
            rows: self.positions.len(),
            kv_heads: self.kv_heads,
            group: self.group,
            head_size: self.head_size,
            context: self.context,
            sight: Sight::new(true, self.window),
            scaling: Scaling::new(self.scale(), self.softcap),
        }
    }

    /// Where the layer of a row's cache begins.
    fn layer(&self, row: usize) -> usize {
        (row * LAYERS + LAYER) * self.context * self.kv_width()
    }

    /// Numbers from -1 to 1.
    pub fn random(&self, random: &mut Random) -> StepInputs {
        let mut numbers =
            |len: usize| (0..len).map(|_| f16::from_f64(2.0 * uniform(random) - 1.0)).collect::<Vec<_>>();
        let len = self.positions.len() * LAYERS * self.context * self.kv_width();
        let mut caches = [(); 2].map(|()| vec![f16::NAN; len]);
        for (row, &position) in self.positions.iter().enumerate() {
            for cache in &mut caches {
                let seen = self.layer(row)..self.layer(row) + (position + 1) * self.kv_width();
                cache[seen.clone()].copy_from_slice(&numbers(seen.len()));
            }
        }
        let [keys, values] = caches;
        StepInputs { query: numbers(self.positions.len() * self.width()), keys, values }
    }

    /// A row in f64.
    #[must_use]
    pub fn reference(&self, inputs: &StepInputs, row: usize) -> Vec<f64> {
        let mut out = vec![0.0; self.width()];
        let first = match self.window as usize {
            0 => 0,
            window => (self.positions[row] + 1).saturating_sub(window),
        };
        for (head, out) in out.chunks_mut(self.head_size).enumerate() {
            let query = &inputs.query[row * self.width() + head * self.head_size..][..self.head_size];
            let at = |cache: &[f16], position: usize| -> Vec<f64> {
                let start = self.layer(row) + position * self.kv_width() + head / self.group * self.head_size;
                cache[start..start + self.head_size].iter().map(|x| x.to_f64()).collect()
            };
            let scores: Vec<f64> = (first..=self.positions[row])
                .map(|position| {
                    let key = at(&inputs.keys, position);
                    let product: f64 = query.iter().zip(key).map(|(q, k)| q.to_f64() * k).sum();
                    let score = product * f64::from(self.scale());
                    match f64::from(self.softcap) {
                        0.0 => score,
                        cap => cap * (score / cap).tanh(),
                    }
                })
                .collect();
            let most = scores.iter().fold(f64::NEG_INFINITY, |most, &score| most.max(score));
            let sum: f64 = scores.iter().map(|score| (score - most).exp()).sum();
            for (score, position) in scores.iter().zip(first..) {
                let weight = (score - most).exp() / sum;
                for (out, value) in out.iter_mut().zip(at(&inputs.values, position)) {
                    *out += weight * value;
                }
            }
        }
        out
    }

    /// Where the rows stand.
    #[must_use]
    pub fn places(&self) -> Vec<KvPlace> {
        let start = |row: usize| (row * LAYERS * self.context * self.kv_width()) as u64;
        let place = |(row, &position): (usize, &usize)| KvPlace {
            start: start(row),
            position: position as u32,
            context: self.context as u32,
        };
        self.positions.iter().enumerate().map(place).collect()
    }

    /// What kernels make of it in the form `F`.
    fn play<F: Form, Q: Queue>(&self, trial: &mut Trial<'_, Q>) -> Result<(), Red> {
        let &Self { positions, kv_heads, group, window, softcap, .. } = self;
        let case = format!(
            "positions {positions:?}, {group} heads to each of {kv_heads}, window {window}, cap {softcap}"
        );
        let (inputs, shape) = (self.random(&mut trial.random), self.shape());
        let query = trial.input("query", &inputs.query, 16)?;
        let keys = trial.input("keys", &inputs.keys, 16)?;
        let values = trial.input("values", &inputs.values, 16)?;
        let places = trial.input("places", &self.places(), 16)?;
        let width = self.width();
        let out = trial.output(&case, F::elements(positions.len(), width), 16, |queue, out| {
            let mut workspace = Guarded::<f32>::output(queue, "workspace", shape.workspace(), 16)?;
            let cache =
                Cache { keys: keys.view(), values: values.view(), places: places.view(), layer: LAYER };
            ops::attn_decode(queue, F::target(out), query.view(), cache, workspace.view_mut(), shape)?;
            queue.synchronize()?;
            super::trial::read(&case, &workspace).map(drop)
        })?;
        let found = F::values(&out, [positions.len(), width]).map_err(|what| Red::wrong(&case, what))?;
        let expected: Vec<f64> = (0..positions.len()).flat_map(|row| self.reference(&inputs, row)).collect();
        trial.compare(&case, &found, &expected, |i| {
            PARITY + F::rounding(&expected[i / width * width..][..width], i % width)
        })
    }
}

/// A kernel.
#[derive(Clone, Copy, Debug)]
pub enum StepAttention {
    /// Attention of single rows with heads of this size.
    Decode(usize),
    /// What puts its parts together, to f32.
    CombineF32,
    /// To f16.
    CombineF16,
    /// To f16 in panels.
    CombinePanels,
    /// To 8-bit quants.
    CombineQ8,
}

impl Parity for StepAttention {
    const FAMILY: &'static str = "attn_decode";

    fn all() -> Vec<Self> {
        let decode = PREFILL_HEAD_SIZES.into_iter().map(Self::Decode);
        let combine = [Self::CombineF32, Self::CombineF16, Self::CombinePanels, Self::CombineQ8];
        decode.chain(combine).collect()
    }

    fn kernel(&self) -> String {
        match self {
            Self::Decode(128) => "attn_decode".to_owned(),
            Self::Decode(head_size) => format!("attn_decode_hd{head_size}"),
            Self::CombineF32 => "attn_combine_f32".to_owned(),
            Self::CombineF16 => "attn_combine_f16".to_owned(),
            Self::CombinePanels => "attn_combine_f16_panels".to_owned(),
            Self::CombineQ8 => "attn_combine_q8".to_owned(),
        }
    }

    fn play<Q: Queue>(&self, trial: &mut Trial<'_, Q>) -> Result<(), Red> {
        let base = StepProblem::BASE;
        let &Self::Decode(head_size) = self else {
            let quick = [StepProblem { head_size: 80, group: 6, positions: &[33, 7], context: 40, ..base }];
            // More chunks than the warps that combine them.
            let more = [StepProblem { positions: &[1300], context: 1301, kv_heads: 1, group: 2, ..base }];
            for problem in trial.cases(&quick, &more, &[]) {
                match self {
                    Self::CombineF16 => problem.play::<f16, Q>(trial)?,
                    Self::CombinePanels => problem.play::<PanelF16, Q>(trial)?,
                    Self::CombineQ8 => problem.play::<Q8, Q>(trial)?,
                    _ => problem.play::<f32, Q>(trial)?,
                }
            }
            return Ok(());
        };
        let base = StepProblem { head_size, ..base };
        let quick = [
            StepProblem { group: 1, positions: &[127, 0, 128], kv_heads: 1, context: 129, ..base },
            // A window that begins in the middle of a chunk.
            StepProblem { window: 20, positions: &[190, 10], kv_heads: 1, ..base },
            StepProblem { softcap: 2.0, positions: &[77], group: 7, ..base },
        ];
        let more = [
            base,
            StepProblem { group: 16, kv_heads: 1, positions: &[40], context: 41, ..base },
            StepProblem { group: 9, positions: &[64, 129], ..base },
            // One that begins with a chunk.
            StepProblem { window: 63, positions: &[190, 191], kv_heads: 1, ..base },
            StepProblem { window: 1, positions: &[128, 127], kv_heads: 1, group: 1, ..base },
        ];
        let large = [
            StepProblem { positions: &[4095, 0, 2047], context: 4096, kv_heads: 8, ..base },
            StepProblem { positions: &[9000], context: 9001, window: 1000, ..base },
        ];
        for problem in trial.cases(&quick, &more, &large) {
            problem.play::<f32, Q>(trial)?;
        }
        Ok(())
    }
}
