//! One forward pass of the decoder, as launches.
//!
//! The same text is the pass of a prompt and that of generated tokens, whose kernels differ in the
//! products and in attention: many rows of one sequence at positions that follow each other, or one row
//! of each of some sequences.

use std::ops::Range;

use gpu::activation::Gate;
use gpu::attention::{Scaling, Sight};
use gpu::product::{PanelF16, WeightPanelF16};

use super::rows::{ActivationKind, Rows, RowsBuffer, with_rows};
use super::weights::{Layer, Matrix, Optional, Weights};
use super::workspace::{KvCaches, Workspace};
use crate::backend::Step;
use crate::cuda::ops::{
    self, AttentionShape, AttnShape, Delta, Heads, Output, PREFILL_HEAD_SIZES, RopeShape,
};
use crate::cuda::{Buffer, Error, Queue, ViewMut};
use crate::model::{Activation, Config, Rope, RopeTable};

/// A rotary embedding's angles for every position of the context.
#[derive(Debug)]
pub(super) struct Angles {
    rope: Rope,
    pairs: usize,
    /// Cosine and sine, positions × pairs.
    table: Buffer<[f32; 2]>,
}

impl Angles {
    pub(super) fn new(
        queue: &impl Queue,
        rope: Rope,
        table: &RopeTable,
        context: usize,
    ) -> Result<Self, Error> {
        let angles: Vec<_> = table.angles(0..context).into_iter().map(|(cos, sin)| [cos, sin]).collect();
        Ok(Self { rope, pairs: table.pairs(), table: queue.input("angles", &angles)? })
    }

    /// Bytes of that.
    pub(super) fn byte_len(table: &RopeTable, context: usize) -> u128 {
        size_of::<[f32; 2]>() as u128 * table.pairs() as u128 * context as u128
    }
}

/// Which rows a pass has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Phase<'a> {
    /// Those of a prompt.
    Prompt {
        sequence: usize,
        /// The position of the first.
        start: usize,
    },
    /// One of each of some sequences, whose positions are in the device's memory.
    Step {
        /// Positions that the launches are for, at least those of every sequence.
        context: usize,
    },
    /// The same where [attention of a step](has_step_attention) has no kernel: these.
    Each(&'a [Step]),
}

/// What stays the same through a pass.
pub(super) struct Pass<'a, Q> {
    pub(super) queue: &'a Q,
    pub(super) config: &'a Config,
    pub(super) weights: &'a Weights,
    pub(super) angles: &'a Angles,
    pub(super) angles_sliding: &'a Angles,
    pub(super) caches: &'a mut KvCaches,
    pub(super) work: &'a mut Workspace,
    pub(super) phase: Phase<'a>,
    /// What products with quantized weights read.
    pub(super) kind: ActivationKind,
    pub(super) rows: usize,
}

/// Whether attention of a step has a kernel for such heads, which takes all rows at once and their
/// positions from the device's memory.
pub(super) fn has_step_attention(config: &Config) -> bool {
    PREFILL_HEAD_SIZES.contains(&config.head_dim)
        && config.heads / config.kv_heads <= gpu::attention::MOST_GROUP as usize
}

/// The sizes of attention of a step in a layer without a window.
pub(super) fn step_shape(config: &Config, rope: Rope, rows: usize, context: usize) -> AttnShape {
    AttnShape {
        rows,
        kv_heads: config.kv_heads,
        group: config.heads / config.kv_heads,
        head_size: config.head_dim,
        context,
        sight: Sight::new(true, 0),
        scaling: Scaling::new(config.attention_scale, config.attention_softcap.unwrap_or(0.0)),
        pairs: rope.dims / 2,
        order: rope.order,
        epsilon: config.norm_epsilon,
    }
}

impl<'a, Q: Queue> Pass<'a, Q> {
    /// All layers, for the tokens in the workspace at the places there.
    pub(super) fn layers(&mut self) -> Result<(), Error> {
        let (rows, weights, config) = (self.rows, self.weights, self.config);
        let tokens = self.work.tokens.slice(0..rows);
        let residual = self.work.residual.slice_mut(0..rows * config.width);
        ops::embed(self.queue, residual, weights.embedding.planes(), tokens, config.embedding_scale)?;
        let mut joining = None;
        for (index, layer) in weights.layers.iter().enumerate() {
            self.norm(&layer.attention_norm, joining, [&layer.query, &layer.key, &layer.value])?;
            self.attention(index, layer)?;
            let joining_attention = Some(&layer.post_attention_norm);
            self.norm(&layer.feed_forward_norm, joining_attention, [&layer.gate, &layer.up])?;
            self.feed_forward(layer)?;
            joining = Some(&layer.post_feed_forward_norm);
        }
        Ok(())
    }

    /// The logits of `count` rows from `first` on, to the beginning of the workspace's. After
    /// [`layers`](Self::layers), once for each row: the last layer's output joins the residual stream.
    pub(super) fn logits(&mut self, first: usize, count: usize) -> Result<(), Error> {
        let (config, weights, output) = (self.config, self.weights, self.weights.output());
        let width = config.width;
        let part = first * width..(first + count) * width;
        // Few rows: unpacking so large a matrix would take longer, and much memory.
        let kind = match self.kind([output]) {
            ActivationKind::F16Wgmma => ActivationKind::F16,
            kind => kind,
        };
        let Workspace { residual, output: delta, input, unpacked, logits, .. } = &mut *self.work;
        let post = weights.layers.last().and_then(|layer| layer.post_feed_forward_norm.as_ref());
        let delta = Delta { rows: delta.slice(part.clone()), post: post.map(Buffer::view) };
        let delta = (!weights.layers.is_empty()).then_some(delta);
        with_rows!(kind, R => ops::residual_norm(
            self.queue,
            R::target(input.rows_mut::<R>(count, width)),
            residual.slice_mut(part),
            delta,
            weights.output_norm.view(),
            count,
            config.norm_epsilon,
        ))?;
        let logits = logits.slice_mut(0..count * config.vocab_size);
        products(self.queue, self.phase, kind, input, unpacked, count, [(output, &None, logits)])
    }

    /// The tokens of the largest logits become the next step's, each at the next position.
    pub(super) fn choose(&mut self) -> Result<(), Error> {
        let (rows, vocab_size) = (self.rows, self.config.vocab_size);
        let Workspace { tokens, places, logits, best, .. } = &mut *self.work;
        ops::argmax(
            self.queue,
            tokens.slice_mut(0..rows),
            logits.slice(0..rows * vocab_size),
            best.slice_mut(0..ops::argmax_workspace(rows, vocab_size)),
            Some(places.slice_mut(0..rows)),
            [rows, vocab_size],
        )
    }

    /// What products with these matrices read: rows that are for quantized weights only if all are.
    fn kind<'m>(&self, matrices: impl IntoIterator<Item = &'m Matrix>) -> ActivationKind {
        let mut matrices = matrices.into_iter();
        let takes_all = matches!(self.kind, ActivationKind::F16 | ActivationKind::F16Wgmma);
        if takes_all || matrices.all(|matrix| matrix.format.block_elements() > 1) {
            self.kind
        } else {
            ActivationKind::F16
        }
    }

    /// Adds the last layer's output to the residual stream, through a norm where there is one; normalizes
    /// that for products with `readers`.
    fn norm<const N: usize>(
        &mut self,
        weight: &Buffer<f32>,
        joining: Option<&Optional>,
        readers: [&Matrix; N],
    ) -> Result<(), Error> {
        let (rows, width) = (self.rows, self.config.width);
        let kind = self.kind(readers);
        let Workspace { residual, output, input, .. } = &mut *self.work;
        let delta = joining
            .map(|post| Delta { rows: output.slice(0..rows * width), post: post.as_ref().map(Buffer::view) });
        with_rows!(kind, R => ops::residual_norm(
            self.queue,
            R::target(input.rows_mut::<R>(rows, width)),
            residual.slice_mut(0..rows * width),
            delta,
            weight.view(),
            rows,
            self.config.norm_epsilon,
        ))
    }

    fn attention(&mut self, index: usize, layer: &Layer) -> Result<(), Error> {
        let (queue, config, rows) = (self.queue, self.config, self.rows);
        let (query_width, kv_width) = (config.query_width(), config.kv_width());
        let kind = self.kind([&layer.query, &layer.key, &layer.value]);
        let Workspace { input, unpacked, query, key, value, .. } = &mut *self.work;
        let jobs = [
            (&layer.query, &None, query.slice_mut(0..rows * query_width)),
            (&layer.key, &None, key.slice_mut(0..rows * kv_width)),
            (&layer.value, &None, value.slice_mut(0..rows * kv_width)),
        ];
        products(queue, self.phase, kind, input, unpacked, rows, jobs)?;
        let kind = self.kind([&layer.attention_output]);
        match self.phase {
            Phase::Step { context } => with_rows!(kind, R => self.step::<R>(index, layer, context))?,
            Phase::Prompt { sequence, start } => {
                self.turn(index, layer)?;
                self.attend(0..rows, sequence, start, index)?;
                with_rows!(kind, R => self.convert::<R>(query_width))?;
            }
            Phase::Each(steps) => {
                self.turn(index, layer)?;
                for (row, step) in steps.iter().enumerate() {
                    self.attend(row..row + 1, step.sequence, step.position, index)?;
                }
                with_rows!(kind, R => self.convert::<R>(query_width))?;
            }
        }
        let Workspace { input, unpacked, output, .. } = &mut *self.work;
        let out = output.slice_mut(0..rows * config.width);
        let job = (&layer.attention_output, &layer.attention_output_bias, out);
        products(queue, self.phase, kind, input, unpacked, rows, [job])
    }

    /// The angles of a layer.
    fn angles(&self, index: usize) -> &'a Angles {
        if self.config.is_sliding(index) { self.angles_sliding } else { self.angles }
    }

    /// Biases, norms and rotary embedding; keys and values go into the cache.
    fn turn(&mut self, index: usize, layer: &Layer) -> Result<(), Error> {
        let (config, rows, angles) = (self.config, self.rows, self.angles(index));
        let shape = RopeShape {
            rows,
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_size: config.head_dim,
            pairs: angles.pairs,
            order: angles.rope.order,
            epsilon: config.norm_epsilon,
        };
        let Workspace { query, key, value, turned, places, .. } = &mut *self.work;
        let parts = heads([query, key, value], rows, config, layer);
        let cache = self.caches.layer(places.slice(0..rows), index);
        let out = turned.slice_mut(0..rows * config.query_width());
        ops::rope_kv(self.queue, out, parts, cache, angles.table.view(), shape)
    }

    /// What [`turn`](Self::turn) does, and attention, of rows of a step, as what the product behind it reads.
    fn step<R: Rows>(&mut self, index: usize, layer: &Layer, context: usize) -> Result<(), Error> {
        let (config, rows, angles) = (self.config, self.rows, self.angles(index));
        let window = config.window(index).unwrap_or(0);
        let shape = AttnShape {
            // A window beyond every position is none.
            sight: Sight::new(true, window.min(i32::MAX as usize) as u32),
            ..step_shape(config, angles.rope, rows, context)
        };
        let Workspace { query, key, value, parts, input, places, .. } = &mut *self.work;
        let heads = heads([query, key, value], rows, config, layer);
        let cache = self.caches.layer(places.slice(0..rows), index);
        let out = R::target(input.rows_mut::<R>(rows, config.query_width()));
        let parts = parts.slice_mut(0..shape.workspace());
        ops::attn_decode(self.queue, out, heads, cache, angles.table.view(), parts, shape)
    }

    /// Attention of rows of one sequence at positions that follow each other.
    fn attend(
        &mut self,
        rows: Range<usize>,
        sequence: usize,
        start: usize,
        index: usize,
    ) -> Result<(), Error> {
        let (config, width) = (self.config, self.config.query_width());
        let shape = AttentionShape {
            window: config.window(index).unwrap_or(0),
            scale: config.attention_scale,
            softcap: config.attention_softcap.unwrap_or(0.0),
            ..AttentionShape::prompt(rows.len(), start, [config.heads, config.kv_heads, config.head_dim])
        };
        let KvCaches { keys, values, layer, sequence: elements, .. } = &*self.caches;
        let first = sequence * elements + index * layer;
        let positions = first..first + shape.positions * config.kv_width();
        let part = rows.start * width..rows.end * width;
        let Workspace { turned, attended, .. } = &mut *self.work;
        let cache = [keys.slice(positions.clone()), values.slice(positions)];
        ops::attention(self.queue, attended.slice_mut(part.clone()), turned.slice(part), cache, &shape)
    }

    /// What attention wrote, as what a product reads.
    fn convert<R: Rows>(&mut self, width: usize) -> Result<(), Error> {
        let Workspace { attended, input, .. } = &mut *self.work;
        let shape = [self.rows, width];
        R::convert(self.queue, input.rows_mut(self.rows, width), attended.slice(0..self.rows * width), shape)
    }

    fn feed_forward(&mut self, layer: &Layer) -> Result<(), Error> {
        let (queue, config, rows) = (self.queue, self.config, self.rows);
        let (width, hidden) = (config.width, config.feed_forward);
        let (kind, kind_down) = (self.kind([&layer.gate, &layer.up]), self.kind([&layer.down]));
        let activation = match config.activation {
            Activation::Silu => Gate::Silu,
            Activation::GeluTanh => Gate::GeluTanh,
        };
        // Rows in panels are never as wide as the middle below: `kind_down` is this kind if and only if `kind` is.
        if kind == ActivationKind::F16Wgmma {
            return self.feed_forward_in_panels(layer, activation);
        }
        let Workspace { input, unpacked, gate, up, output, .. } = &mut *self.work;
        let jobs = [
            (&layer.gate, &None, gate.slice_mut(0..rows * hidden)),
            (&layer.up, &None, up.slice_mut(0..rows * hidden)),
        ];
        products(queue, self.phase, kind, input, unpacked, rows, jobs)?;
        with_rows!(kind_down, R => ops::gated(
            queue,
            R::target(input.rows_mut::<R>(rows, hidden)),
            gate.slice(0..rows * hidden),
            up.slice(0..rows * hidden),
            activation,
            [rows, hidden, hidden],
        ))?;
        let job = (&layer.down, &None, output.slice_mut(0..rows * width));
        products(queue, self.phase, kind_down, input, unpacked, rows, [job])
    }

    /// The same with gate and up in one product, which leaves what the next one reads.
    fn feed_forward_in_panels(&mut self, layer: &Layer, activation: Gate) -> Result<(), Error> {
        let (queue, config, rows) = (self.queue, self.config, self.rows);
        let (width, hidden) = (config.width, config.feed_forward);
        let Workspace { input, unpacked, output, .. } = &mut *self.work;
        let pair = 0..layer.gate.paired_elements();
        let matrices = [&layer.gate, &layer.up].map(Matrix::planes);
        ops::unpack_f16_pair(queue, unpacked.slice_mut(pair.clone()), matrices)?;
        let (read, gated) = input.gated(rows, [width, hidden]);
        let shape = [rows, hidden, width];
        ops::matmul_f16_wgmma_gated(queue, gated, read, unpacked.slice(pair), activation, shape)?;
        let down = output_of((&layer.down, &None, output.slice_mut(0..rows * width)));
        PanelF16::multiply(queue, vec![down], input.middle(rows, hidden), rows, true, unpacked)
    }
}

/// Queries, keys and values as products left them, and what becomes of them in a layer.
fn heads<'a>(
    [query, key, value]: [&'a Buffer<f32>; 3],
    count: usize,
    config: &Config,
    layer: &'a Layer,
) -> [Heads<'a>; 3] {
    let heads = |rows: &'a Buffer<f32>, width, bias: &'a Optional, norm: Option<&'a Buffer<f32>>| Heads {
        rows: rows.slice(0..count * width),
        stride: width,
        bias: bias.as_ref().map(Buffer::view),
        norm: norm.map(Buffer::view),
    };
    let (query_width, kv_width) = (config.query_width(), config.kv_width());
    [
        heads(query, query_width, &layer.query_bias, layer.query_norm.as_ref()),
        heads(key, kv_width, &layer.key_bias, layer.key_norm.as_ref()),
        heads(value, kv_width, &layer.value_bias, None),
    ]
}

/// A matrix, what is added to each row of its product, and where that goes.
type Job<'a> = (&'a Matrix, &'a Optional, ViewMut<'a, f32>);

/// The job, as launchers take it.
fn output_of<'a>((matrix, bias, out): Job<'a>) -> Output<'a> {
    Output { out, weights: matrix.planes(), bias: bias.as_ref().map(Buffer::view) }
}

/// Products of the same rows of the input with several matrices.
fn products<const N: usize>(
    queue: &impl Queue,
    phase: Phase<'_>,
    kind: ActivationKind,
    input: &RowsBuffer,
    unpacked: &mut Buffer<WeightPanelF16>,
    rows: usize,
    jobs: [Job<'_>; N],
) -> Result<(), Error> {
    let columns = jobs[0].0.columns;
    let outputs = jobs.map(output_of).into();
    let many = matches!(phase, Phase::Prompt { .. });
    with_rows!(kind, R => {
        R::multiply(queue, outputs, input.rows::<R>(rows, columns), rows, many, unpacked)
    })
}
