//! `attn_decode` and `attn_combine` against f64.

use gpu::attention::{KvPlace, Scaling, Sight};
use gpu::product::{PanelF16, SlabF16};
use half::f16;

use super::Parity;
use super::rope::RopePart;
use super::trial::{Red, Trial, read};
use crate::cuda::ops::{self, AttnShape, Cache, Heads, PREFILL_HEAD_SIZES};
use crate::cuda::{Error, Queue};
use crate::experiment::PARITY;
use crate::gate::form::{Form, Q8};
use crate::gate::guarded::Guarded;
use crate::gate::random::{Random, uniform};
use crate::model::RopeOrder;

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
    /// Pairs that turn.
    pub pairs: usize,
    /// Which elements are a pair.
    pub order: RopeOrder,
    /// Whether heads have biases.
    pub bias: bool,
}

/// Layers of each cache.
pub const LAYERS: usize = 2;
/// The layer in question.
pub const LAYER: usize = 1;

/// The heads of all rows, and a cache for each: a row's own position and what is behind it is all ones, as
/// memory that nobody has written.
#[derive(Clone, Debug)]
pub struct StepInputs {
    /// Queries, keys and values.
    pub heads: [RopePart; 3],
    /// Cosine and sine, `context × pairs`.
    pub angles: Vec<[f32; 2]>,
    /// `rows × layers × context × KV heads × head size`.
    pub keys: Vec<f16>,
    /// As `keys`.
    pub values: Vec<f16>,
}

/// [`StepInputs::heads`] in a queue's memory.
#[derive(Debug)]
pub struct StepHeads([HeadsPart; 3]);

#[derive(Debug)]
struct HeadsPart {
    rows: Guarded<f32>,
    stride: usize,
    bias: Option<Guarded<f32>>,
    norm: Option<Guarded<f32>>,
}

impl HeadsPart {
    fn upload(part: &RopePart, queue: &impl Queue) -> Result<Self, Error> {
        let input = |name, values: &[f32]| Guarded::input(queue, name, values, 4);
        Ok(Self {
            rows: input("rows", &part.rows)?,
            stride: part.stride,
            bias: part.bias.as_deref().map(|bias| input("bias", bias)).transpose()?,
            norm: part.norm.as_deref().map(|norm| input("norm", norm)).transpose()?,
        })
    }
}

impl StepInputs {
    /// Uploads the heads.
    ///
    /// # Errors
    /// If there is no memory for them.
    pub fn upload(&self, queue: &impl Queue) -> Result<StepHeads, Error> {
        let [query, key, value] = &self.heads;
        let upload = |part| HeadsPart::upload(part, queue);
        Ok(StepHeads([upload(query)?, upload(key)?, upload(value)?]))
    }
}

impl StepHeads {
    /// As launchers take them.
    #[must_use]
    pub fn heads(&self) -> [Heads<'_>; 3] {
        self.0.each_ref().map(|part| Heads {
            rows: part.rows.view(),
            stride: part.stride,
            bias: part.bias.as_ref().map(Guarded::view),
            norm: part.norm.as_ref().map(Guarded::view),
        })
    }
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
        pairs: 20,
        order: RopeOrder::Halves,
        bias: true,
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
            pairs: self.pairs,
            order: self.order,
            epsilon: 1e-6,
        }
    }

    /// Where the layer of a row's cache begins.
    fn layer(&self, row: usize) -> usize {
        (row * LAYERS + LAYER) * self.context * self.kv_width()
    }

    /// Numbers from -1 to 1. Heads are multiples of 2^-10, also after their biases, and angles are right ones:
    /// so what is turned is exact, and attention has nothing but errors of its own.
    pub fn random(&self, random: &mut Random) -> StepInputs {
        let rows = self.positions.len();
        let mut steps = |len: usize, most: f64| -> Vec<f32> {
            (0..len)
                .map(|_| (most * 1024.0 * (2.0 * uniform(random) - 1.0)).round() as f32 / 1024.0)
                .collect()
        };
        let mut part = |heads: usize, gap: usize, turns: bool| {
            let (width, stride) = (heads * self.head_size, heads * self.head_size + gap);
            let bias = self.bias.then(|| steps(width, 0.5));
            let mut numbers = steps(rows * stride - gap, 1.0);
            for (i, x) in numbers.iter_mut().enumerate() {
                *x -= bias.as_ref().filter(|_| i % stride < width).map_or(0.0, |bias| bias[i % stride]);
            }
            RopePart { heads, stride, rows: numbers, bias, norm: None, turns }
        };
        let heads = [
            part(self.kv_heads * self.group, 3, true),
            part(self.kv_heads, 0, true),
            part(self.kv_heads, 5, false),
        ];
        let mut turn =
            || [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]][(4.0 * uniform(random)) as usize % 4];
        let angles = (0..self.context * self.pairs).map(|_| turn()).collect();
        let mut numbers =
            |len: usize| (0..len).map(|_| f16::from_f64(2.0 * uniform(random) - 1.0)).collect::<Vec<_>>();
        let len = rows * LAYERS * self.context * self.kv_width();
        let mut caches = [(); 2].map(|()| vec![f16::from_bits(u16::MAX); len]);
        for (row, &position) in self.positions.iter().enumerate() {
            for cache in &mut caches {
                let seen = self.layer(row)..self.layer(row) + position * self.kv_width();
                cache[seen.clone()].copy_from_slice(&numbers(seen.len()));
            }
        }
        let [keys, values] = caches;
        StepInputs { heads, angles, keys, values }
    }

    /// A row's heads in f64, turned: queries, keys, values.
    fn turned(&self, inputs: &StepInputs, row: usize) -> [Vec<f64>; 3] {
        let angles = &inputs.angles[self.positions[row] * self.pairs..][..self.pairs];
        let rope = self.shape().rope();
        let exact =
            |part: &RopePart| part.reference(row, &rope, angles).into_iter().map(|(x, _)| x).collect();
        inputs.heads.each_ref().map(exact)
    }

    /// The caches with each row's new key and value.
    #[must_use]
    pub fn caches_after(&self, inputs: &StepInputs) -> [Vec<f16>; 2] {
        let mut caches = [inputs.keys.clone(), inputs.values.clone()];
        for (row, &position) in self.positions.iter().enumerate() {
            let [_, key, value] = self.turned(inputs, row);
            let at = self.layer(row) + position * self.kv_width();
            for (cache, new) in caches.iter_mut().zip([key, value]) {
                let new = new.into_iter().map(f16::from_f64);
                cache[at..at + self.kv_width()].iter_mut().zip(new).for_each(|(to, new)| *to = new);
            }
        }
        caches
    }

    /// A row in f64.
    #[must_use]
    pub fn reference(&self, inputs: &StepInputs, row: usize) -> Vec<f64> {
        let [queries, ..] = self.turned(inputs, row);
        let [keys, values] = self.caches_after(inputs);
        let mut out = vec![0.0; self.width()];
        let first = match self.window as usize {
            0 => 0,
            window => (self.positions[row] + 1).saturating_sub(window),
        };
        for (head, out) in out.chunks_mut(self.head_size).enumerate() {
            let query = &queries[head * self.head_size..][..self.head_size];
            let at = |cache: &[f16], position: usize| -> Vec<f64> {
                let start = self.layer(row) + position * self.kv_width() + head / self.group * self.head_size;
                cache[start..start + self.head_size].iter().map(|x| x.to_f64()).collect()
            };
            let scores: Vec<f64> = (first..=self.positions[row])
                .map(|position| {
                    let key = at(&keys, position);
                    let product: f64 = query.iter().zip(key).map(|(q, k)| q * k).sum();
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
                for (out, value) in out.iter_mut().zip(at(&values, position)) {
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
        let heads = inputs.upload(trial.queue())?;
        let angles = trial.input("angles", &inputs.angles, 8)?;
        let places = trial.input("places", &self.places(), 16)?;
        let (width, after) = (self.width(), self.caches_after(&inputs));
        let out = trial.output(&case, F::elements(positions.len(), width), 16, |queue, out| {
            let mut workspace = Guarded::<f32>::output(queue, "workspace", shape.workspace(), 16)?;
            let cached = |name, cache: &[f16]| Guarded::in_out(queue, name, cache, 16);
            let mut caches = [cached("keys", &inputs.keys)?, cached("values", &inputs.values)?];
            let [keys, values] = caches.each_mut().map(Guarded::view_mut);
            let cache = Cache { keys, values, places: places.view(), layer: LAYER };
            let (angles, workspace_mut) = (angles.view(), workspace.view_mut());
            ops::attn_decode(queue, F::target(out), heads.heads(), cache, angles, workspace_mut, shape)?;
            queue.synchronize()?;
            for (cache, after) in caches.iter().zip(&after) {
                let found = read(&case, cache)?;
                if let Some(i) = found.iter().zip(after).position(|(a, b)| !same(*a, *b)) {
                    let what = format!("[{i}] of a cache is {}, expected {}", found[i], after[i]);
                    return Err(Red::wrong(&case, what));
                }
            }
            read(&case, &workspace).map(drop)
        })?;
        let found = F::values(&out, [positions.len(), width]).map_err(|what| Red::wrong(&case, what))?;
        let expected: Vec<f64> = (0..positions.len()).flat_map(|row| self.reference(&inputs, row)).collect();
        trial.compare(&case, &found, &expected, |i| {
            PARITY + F::rounding(&expected[i / width * width..][..width], i % width)
        })
    }
}

/// Whether two elements of a cache have the same bits, or are zeros.
#[must_use]
pub fn same(a: f16, b: f16) -> bool {
    a.to_bits() == b.to_bits() || (a == f16::ZERO && b == f16::ZERO)
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
    /// To f16 in slabs.
    CombineSlabs,
    /// To 8-bit quants.
    CombineQ8,
}

impl Parity for StepAttention {
    const FAMILY: &'static str = "attn_decode";

    fn all() -> Vec<Self> {
        let decode = PREFILL_HEAD_SIZES.into_iter().map(Self::Decode);
        let halves = [Self::CombineF16, Self::CombinePanels, Self::CombineSlabs];
        decode.chain([Self::CombineF32]).chain(halves).chain([Self::CombineQ8]).collect()
    }

    fn kernel(&self) -> String {
        match self {
            Self::Decode(128) => "attn_decode".to_owned(),
            Self::Decode(head_size) => format!("attn_decode_hd{head_size}"),
            Self::CombineF32 => "attn_combine_f32".to_owned(),
            Self::CombineF16 => "attn_combine_f16".to_owned(),
            Self::CombinePanels => "attn_combine_f16_panels".to_owned(),
            Self::CombineSlabs => "attn_combine_f16_slabs".to_owned(),
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
                    Self::CombineSlabs => problem.play::<SlabF16, Q>(trial)?,
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
            StepProblem { softcap: 2.0, positions: &[77], group: 7, order: RopeOrder::Interleaved, ..base },
        ];
        let more = [
            base,
            StepProblem { group: 16, kv_heads: 1, positions: &[40], context: 41, ..base },
            StepProblem { pairs: head_size / 2, bias: false, positions: &[63, 64], kv_heads: 1, ..base },
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
