//! The decoder on a GPU: the kernels of `gpu`, launched through [`ops`](super::ops).
//!
//! | file | what |
//! | --- | --- |
//! | `weights` | the model's matrices in planes, uploaded from the file's map |
//! | `workspace` | KV caches, and what a pass writes between its kernels |
//! | `rows` | activations as f16 or 8-bit quants, and the products that take them |
//! | `pass` | one forward pass, as launches |
//! | here | prompts in chunks, steps as graphs, what goes to the device and comes back |
//!
//! Tokens of a prompt go through the kernels for many rows, also a single one; generated tokens through
//! those for few, also many side by side. (Products of q8 rows have kernels for few alone.) Each kernel's row depends on that row alone, so logits have the
//! same bits however a prompt is cut and whatever stands beside a sequence.
//!
//! A step is captured once as a graph and then replayed: tokens and positions are read from the device's
//! memory. The graph's grids are for a context of a power of two, and it is captured again when the
//! longest sequence outgrows that.

mod pass;
mod rows;
mod weights;
mod workspace;

use std::fmt;
use std::sync::Arc;

pub use rows::ActivationKind;

use pass::{Angles, Pass, Phase, has_step_attention, step_shape};
use weights::Weights;
use workspace::{KvCaches, Products, Workspace};

use super::{Error, ModelQueue, Noted, Queue, Stream, WGMMA};
use crate::backend::{Backend, BackendError, Step, Wanted};
use crate::model::{Config, Model};

/// Positions that a step's first graph is for.
const FIRST_CONTEXT: usize = 512;

/// Rows of steps up to which products have kernels of their own (`ops::matvec_q8`, `ops::matmul_splitk`).
const PASSES: [usize; 5] = [1, 2, 4, 8, 32];

/// How the GPU backend runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuOptions {
    /// What a prompt's products with quantized weights read.
    pub prompt: ActivationKind,
    /// What a step's do, in a session for a few sequences.
    pub step: ActivationKind,
    /// What a step's do in a session for more than [`FEW_SEQUENCES`](Self::FEW_SEQUENCES). Not those of a step with more
    /// rows: then a sequence's bits would depend on how many others there are at the moment.
    pub step_of_many: ActivationKind,
}

impl Default for GpuOptions {
    /// The faster ones of those that every device has (docs/results.md).
    fn default() -> Self {
        Self { prompt: ActivationKind::F16, step: ActivationKind::Q8, step_of_many: ActivationKind::Q8 }
    }
}

impl GpuOptions {
    /// Sequences up to which a step takes the weights as fast as memory gives them with
    /// [`step`](Self::step) (docs/results.md).
    pub const FEW_SEQUENCES: usize = 2;

    /// The fastest ones on this queue.
    pub fn fastest(queue: &impl ModelQueue) -> Self {
        match queue.compute_capability() {
            Some(WGMMA) => Self {
                prompt: ActivationKind::F16Wgmma,
                step_of_many: ActivationKind::F16SplitK,
                ..Self::default()
            },
            _ => Self::default(),
        }
    }

    /// The same ones in all steps.
    #[must_use]
    pub const fn steady(prompt: ActivationKind, step: ActivationKind) -> Self {
        Self { prompt, step, step_of_many: step }
    }

    /// Those of a session for so many sequences.
    #[must_use]
    const fn of_session(self, sequences: usize) -> Self {
        Self::steady(self.prompt, if sequences > Self::FEW_SEQUENCES { self.step_of_many } else { self.step })
    }
}

impl fmt::Display for GpuOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "activations {} in prompts, {} in steps", self.prompt, self.step)?;
        match self.step_of_many == self.step {
            true => Ok(()),
            false => write!(f, " ({} for more than {} sequences)", self.step_of_many, Self::FEW_SEQUENCES),
        }
    }
}

/// The decoder on a queue: a GPU's stream, or the emulator.
pub struct GpuBackend<Q: ModelQueue> {
    queue: Q,
    model: Arc<Model>,
    options: GpuOptions,
    weights: Weights,
    sequences: Option<Sequences<Q>>,
}

/// The decoder on a GPU.
pub type CudaBackend = GpuBackend<Stream>;

/// What is allocated for sequences.
struct Sequences<Q: ModelQueue> {
    // Graphs first: memory that they have noted down is freed after them.
    graphs: Vec<StepGraph<Q::Graph>>,
    /// What products read, whatever the number of sequences in a step.
    options: GpuOptions,
    caches: KvCaches,
    work: Workspace,
    angles: Angles,
    angles_sliding: Angles,
    /// What the device's memory holds as the next step, if that is known.
    next: Vec<Step>,
    logits: Q::Host<f32>,
    best: Q::Host<u32>,
    /// Logits of each position of a prompt.
    each: Vec<f32>,
}

/// A step that was noted down.
struct StepGraph<G> {
    key: StepKey,
    graph: G,
}

/// What the launches of a step depend on.
#[derive(Clone, Copy, PartialEq, Eq)]
struct StepKey {
    rows: usize,
    context: usize,
    greedy: bool,
}

impl<Q: ModelQueue> GpuBackend<Q> {
    /// Uploads a model's weights; `progress` is told bytes done and in all.
    ///
    /// # Errors
    /// [`BackendError::Unsupported`] if there is no kernel for something in the model;
    /// [`BackendError::DeviceMemory`] if the weights do not fit; [`BackendError::Device`].
    pub fn new(
        queue: Q,
        model: Arc<Model>,
        options: GpuOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self, BackendError> {
        check(model.config())?;
        check_options(options, queue.compute_capability())?;
        let weights = Weights::upload(&queue, &model, progress)?;
        Ok(Self { queue, model, options, weights, sequences: None })
    }

    /// Has the kernels of prompts and of steps compiled.
    fn prepare(&mut self, count: usize) -> Result<(), BackendError> {
        let Self { queue, model, weights, sequences, .. } = self;
        let (config, sequences) = (model.config(), sequences.as_mut().expect(ALLOCATED));
        let options = sequences.options;
        let names = Noted::only(queue);
        let each = vec![Step { sequence: 0, position: 0, token: 0 }; count];
        // Products have kernels of their own for few rows and for more.
        let rows = PASSES.into_iter().filter(|&rows| rows < count).chain([count]);
        let steps: Vec<_> = rows
            .map(|rows| {
                let phase = match has_step_attention(config) {
                    true => Phase::Step { context: sequences.caches.context },
                    false => Phase::Each(&each[..rows]),
                };
                (phase, options.step, rows)
            })
            .collect();
        // Few rows and many: a product may have kernels of its own for each.
        let prompts = [1, sequences.work.rows]
            .map(|rows| (Phase::Prompt { sequence: 0, start: 0 }, options.prompt, rows));
        for phase in steps.into_iter().chain(prompts) {
            let mut pass = Self::pass(&names, config, weights, sequences, phase);
            pass.layers()?;
            if let (Phase::Prompt { .. }, ..) = phase {
                pass.logits(0, 1)?;
            } else {
                pass.logits(0, phase.2)?;
                pass.choose()?;
            }
        }
        Ok(queue.prepare(&names.into_names().into_iter().collect::<Vec<_>>())?)
    }

    /// A pass over `rows` rows, and the queue for it.
    fn pass<'a, P: Queue>(
        queue: &'a P,
        config: &'a Config,
        weights: &'a Weights,
        sequences: &'a mut Sequences<Q>,
        (phase, kind, rows): (Phase<'a>, ActivationKind, usize),
    ) -> Pass<'a, P> {
        let Sequences { caches, work, angles, angles_sliding, .. } = sequences;
        Pass { queue, config, weights, angles, angles_sliding, caches, work, phase, kind, rows }
    }

    /// Evaluates a step; its logits, and with `greedy` the largest one's tokens, are in the workspace then.
    fn step(&mut self, steps: &[Step], greedy: bool) -> Result<(), BackendError> {
        let Self { queue, model, weights, sequences, .. } = self;
        let sequences = sequences.as_mut().expect(ALLOCATED);
        let (config, rows, kind) = (model.config(), steps.len(), sequences.options.step);
        if sequences.next != steps {
            let tokens: Vec<u32> = steps.iter().map(|step| step.token).collect();
            let places: Vec<_> =
                steps.iter().map(|step| sequences.caches.place(step.sequence, step.position)).collect();
            queue.write(sequences.work.tokens.slice_mut(0..rows), &tokens)?;
            queue.write(sequences.work.places.slice_mut(0..rows), &places)?;
        }
        // The kernels of a step read places and the cache before they wait for what comes before them. So a step is a
        // graph's beginning, or, where nothing is noted down, follows a copy: the one above, or the one that brought the
        // tokens of the step before to the host.
        // Until the step is done, what the memory holds is not known.
        sequences.next.clear();
        let longest = steps.iter().map(|step| step.position + 1).max().unwrap_or(0);
        let context = longest.next_power_of_two().max(FIRST_CONTEXT).min(sequences.caches.context);
        let key = StepKey { rows, context, greedy };
        if let Some(step) = sequences.graphs.iter().find(|step| step.key == key) {
            return Ok(queue.replay(&step.graph)?);
        }
        let (phase, can_capture) = match has_step_attention(config) {
            true => (Phase::Step { context }, true),
            false => (Phase::Each(steps), false),
        };
        let mut work = |queue: &Q| {
            let mut pass = Self::pass(queue, config, weights, sequences, (phase, kind, rows));
            pass.layers()?;
            pass.logits(0, rows)?;
            if greedy { pass.choose() } else { Ok(()) }
        };
        let graph = if can_capture { queue.capture(&mut work)? } else { None };
        let Some(graph) = graph else { return Ok(work(queue)?) };
        queue.replay(&graph)?;
        // A shorter context's graph is not needed again before the sequences are cut.
        sequences.graphs.retain(|step| (step.key.rows, step.key.greedy) != (rows, greedy));
        sequences.graphs.push(StepGraph { key, graph });
        Ok(())
    }
}

const ALLOCATED: &str = "a session allocates the caches before it evaluates tokens";

impl<Q: ModelQueue> Backend for GpuBackend<Q> {
    fn config(&self) -> &Config {
        self.model.config()
    }

    fn description(&self) -> String {
        format!("{}, {}", self.queue.description(), self.options)
    }

    fn device(&self) -> String {
        self.queue.name()
    }

    fn prompt_rows(&self) -> usize {
        workspace::MOST_ROWS
    }

    fn threads(&self) -> usize {
        1
    }

    fn allocate(&mut self, context: usize, sequences: usize) -> Result<(), BackendError> {
        let (queue, config) = (&self.queue, self.model.config());
        self.sequences = None;
        let step = step_shape(config, config.rope, sequences, context);
        let options = self.options.of_session(sequences);
        let is_unpacked = [options.prompt, options.step].contains(&ActivationKind::F16Wgmma);
        let products = Products {
            unpacked: if is_unpacked { self.weights.most_unpacked() } else { 0 },
            unpacked_prompts: options.prompt == ActivationKind::F16Wgmma,
            split_k: options.step == ActivationKind::F16SplitK,
        };
        let table = config.rope.table(self.model.rope_factors());
        let table_sliding = config.rope_sliding.table(None);
        // Most models slide in no layer.
        let sliding = if config.sliding_window.is_some() { context } else { 0 };
        let needed = KvCaches::byte_len(config, context, sequences)
            .saturating_add(Workspace::byte_len(config, context, sequences, &step, products))
            .saturating_add(Angles::byte_len(&table, context))
            .saturating_add(Angles::byte_len(&table_sliding, sliding));
        if let Some(free) = queue.free_memory()?
            && u128::from(free) < needed
        {
            return Err(BackendError::DeviceMemory {
                device: queue.name(),
                what: format!(
                    "a context of {context} positions for {sequences} sequences beside the weights"
                ),
                needed: u64::try_from(needed).unwrap_or(u64::MAX),
                free,
                remedy: "use a smaller one (--ctx), fewer sequences, or --device cpu",
            });
        }
        let caches = KvCaches::new(queue, config, context, sequences)?;
        let work = Workspace::new(queue, config, context, sequences, &step, products)?;
        let angles = Angles::new(queue, config.rope, &table, context)?;
        let angles_sliding = Angles::new(queue, config.rope_sliding, &table_sliding, sliding)?;
        let logits = queue.host(work.logit_rows * config.vocab_size)?;
        let best = queue.host(work.rows)?;
        let (graphs, next, each) = (Vec::new(), Vec::new(), Vec::new());
        self.sequences = Some(Sequences {
            options,
            graphs,
            caches,
            work,
            angles,
            angles_sliding,
            next,
            logits,
            best,
            each,
        });
        self.prepare(sequences)
    }

    fn prefill(
        &mut self,
        sequence: usize,
        tokens: &[u32],
        start: usize,
        wanted: Wanted,
    ) -> Result<&[f32], BackendError> {
        let Self { queue, model, options, weights, sequences } = self;
        let (queue, config, vocab_size) = (&*queue, model.config(), model.config().vocab_size);
        let sequences = sequences.as_mut().expect(ALLOCATED);
        sequences.next.clear();
        sequences.each.clear();
        let most = sequences.work.rows;
        for (index, chunk) in tokens.chunks(most).enumerate() {
            let (rows, start) = (chunk.len(), start + index * most);
            let is_last = (index + 1) * most >= tokens.len();
            let places: Vec<_> =
                (start..start + rows).map(|at| sequences.caches.place(sequence, at)).collect();
            queue.write(sequences.work.tokens.slice_mut(0..rows), chunk)?;
            queue.write(sequences.work.places.slice_mut(0..rows), &places)?;
            let phase = Phase::Prompt { sequence, start };
            let mut pass = Self::pass(queue, config, weights, sequences, (phase, options.prompt, rows));
            pass.layers()?;
            match wanted {
                Wanted::Last if is_last => {
                    pass.logits(rows - 1, 1)?;
                    read_logits(queue, config, sequences, 1)?;
                }
                Wanted::Each => {
                    let lot = pass.work.logit_rows;
                    for first in (0..rows).step_by(lot) {
                        let count = lot.min(rows - first);
                        let phase = (phase, options.prompt, rows);
                        Self::pass(queue, config, weights, sequences, phase).logits(first, count)?;
                        read_logits(queue, config, sequences, count)?;
                        sequences.each.extend_from_slice(&sequences.logits[..count * vocab_size]);
                    }
                }
                Wanted::Last | Wanted::Nothing => {}
            }
        }
        Ok(match wanted {
            Wanted::Nothing => {
                queue.synchronize()?;
                &[]
            }
            Wanted::Last => &sequences.logits[..vocab_size],
            Wanted::Each => &sequences.each,
        })
    }

    fn decode(&mut self, steps: &[Step]) -> Result<&[f32], BackendError> {
        self.step(steps, false)?;
        let (queue, config) = (&self.queue, self.model.config());
        let sequences = self.sequences.as_mut().expect(ALLOCATED);
        read_logits(queue, config, sequences, steps.len())?;
        Ok(&sequences.logits[..steps.len() * config.vocab_size])
    }

    fn decode_greedy(&mut self, steps: &[Step]) -> Result<Vec<u32>, BackendError> {
        self.step(steps, true)?;
        let sequences = self.sequences.as_mut().expect(ALLOCATED);
        let rows = steps.len();
        self.queue.read(&mut sequences.best, sequences.work.tokens.slice(0..rows))?;
        let best = sequences.best[..rows].to_vec();
        let next = |(step, &token): (&Step, &u32)| Step { token, position: step.position + 1, ..*step };
        sequences.next = steps.iter().zip(&best).map(next).collect();
        Ok(best)
    }
}

/// Brings the first `rows` rows of logits to the host, capped.
fn read_logits<Q: ModelQueue>(
    queue: &Q,
    config: &Config,
    sequences: &mut Sequences<Q>,
    rows: usize,
) -> Result<(), Error> {
    let Sequences { work, logits, .. } = sequences;
    let count = rows * config.vocab_size;
    queue.read(logits, work.logits.slice(0..count))?;
    if let Some(cap) = config.logit_softcap {
        logits[..count].iter_mut().for_each(|logit| *logit = cap * (*logit / cap).tanh());
    }
    Ok(())
}

/// That prompts and a device of this compute capability have the products that are asked for.
fn check_options(options: GpuOptions, compute_capability: Option<u32>) -> Result<(), BackendError> {
    if options.prompt == ActivationKind::F16SplitK {
        // There is room for as many of its rows as sequences.
        return Err(BackendError::Unsupported {
            what: format!("{} in prompts: it is for generated tokens", options.prompt),
        });
    }
    let kinds = [options.prompt, options.step, options.step_of_many];
    match compute_capability {
        Some(sm) if sm != WGMMA && kinds.into_iter().any(ActivationKind::needs_wgmma) => {
            Err(BackendError::Unsupported {
                what: format!(
                    "products of compute capability 9.0 on a device of {}.{}: use --activations auto",
                    sm / 10,
                    sm % 10
                ),
            })
        }
        _ => Ok(()),
    }
}

/// That there are kernels for a model of such sizes.
fn check(config: &Config) -> Result<(), BackendError> {
    let unsupported = |what: String| Err(BackendError::Unsupported { what });
    let &Config { width, head_dim, .. } = config;
    if head_dim > gpu::position::RopeKv::MOST_HEAD_SIZE as usize || head_dim % 2 != 0 {
        return unsupported(format!("heads of {head_dim} elements"));
    }
    let most = gpu::norm::ResidualNorm::<gpu::product::AsF16>::MOST_WIDTH as usize;
    if width > most {
        return unsupported(format!("a width of {width}, above {most}"));
    }
    for (what, width) in [
        ("the width", width),
        ("the heads' width", config.query_width()),
        ("the KV heads' width", config.kv_width()),
        ("the feed-forward width", config.feed_forward),
    ] {
        if width % 8 != 0 {
            return unsupported(format!("{what} is {width}, not a multiple of 8"));
        }
    }
    Ok(())
}
