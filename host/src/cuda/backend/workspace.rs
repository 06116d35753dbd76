//! What a forward pass writes between its kernels, and the KV caches.

use gpu::attention::KvPlace;
use gpu::product::WeightPanelF16;
use half::f16;

use super::rows::{RowsBuffer, RowsRoom};
use crate::cuda::ops::{AttnShape, Cache, argmax_workspace};
use crate::cuda::{Buffer, Error, Queue, View, ViewMut};
use crate::model::Config;

/// The most prompt tokens in one pass: more make the products no faster.
pub(super) const MOST_ROWS: usize = 2048;
/// Bytes of intermediate rows that are worth a longer pass.
const MOST_BYTES: usize = 1 << 30;
/// Rows of logits that there is room for besides one a sequence.
const LOGIT_ROWS: usize = 16;

/// Keys and values of all layers of some sequences, see [`gpu::attention::KvCache`].
#[derive(Debug)]
pub(super) struct KvCaches {
    pub(super) keys: Buffer<f16>,
    pub(super) values: Buffer<f16>,
    pub(super) context: usize,
    /// Elements of a layer of one sequence's keys.
    pub(super) layer: usize,
    /// Elements of one sequence's keys.
    pub(super) sequence: usize,
}

impl KvCaches {
    pub(super) fn new(
        queue: &impl Queue,
        config: &Config,
        context: usize,
        sequences: usize,
    ) -> Result<Self, Error> {
        let layer = context * config.kv_width();
        let sequence = config.layers * layer;
        let new = |name| queue.output(name, sequences * sequence);
        Ok(Self { keys: new("keys")?, values: new("values")?, context, layer, sequence })
    }

    /// Bytes of that.
    pub(super) fn byte_len(config: &Config, context: usize, sequences: usize) -> u128 {
        let elements = config.layers as u128 * context as u128 * config.kv_width() as u128;
        2 * size_of::<f16>() as u128 * sequences as u128 * elements
    }

    /// A layer, to be written for rows at these places.
    pub(super) fn layer<'a>(
        &'a mut self,
        places: View<'a, KvPlace>,
        layer: usize,
    ) -> Cache<'a, ViewMut<'a, f16>> {
        Cache { keys: self.keys.view_mut(), values: self.values.view_mut(), places, layer }
    }

    /// Where a position of a sequence stands.
    pub(super) fn place(&self, sequence: usize, position: usize) -> KvPlace {
        KvPlace {
            start: (sequence * self.sequence) as u64,
            // Below the context, which attention's kernels take as 32 bits.
            position: position as u32,
            context: self.context as u32,
        }
    }
}

/// What products need besides the rows that every device's kernels take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Products {
    /// The most elements that are unpacked at a time; 0 where none are, and no rows in panels are read.
    pub(super) unpacked: usize,
    /// Whether prompts have matrices unpacked: no gate or up is left of them.
    pub(super) unpacked_prompts: bool,
    /// Whether steps read [`F16SplitK`](super::ActivationKind::F16SplitK).
    pub(super) split_k: bool,
}

impl Products {
    fn room(self, rows: usize, sequences: usize) -> RowsRoom {
        RowsRoom {
            rows,
            panels: if self.unpacked > 0 { rows } else { 0 },
            slabs: if self.split_k { sequences } else { 0 },
        }
    }

    /// Rows of gate, and of up.
    fn gate_rows(self, rows: usize, sequences: usize) -> usize {
        if self.unpacked_prompts { sequences } else { rows }
    }
}

/// Rows of a pass.
#[derive(Debug)]
pub(super) struct Workspace {
    /// The most rows of a pass.
    pub(super) rows: usize,
    /// The most rows of logits.
    pub(super) logit_rows: usize,
    pub(super) tokens: Buffer<u32>,
    pub(super) places: Buffer<KvPlace>,
    /// The residual stream, `width`.
    pub(super) residual: Buffer<f32>,
    /// What a product reads.
    pub(super) input: RowsBuffer,
    /// The matrix, or gate and up, that a product of [`F16Wgmma`](super::ActivationKind::F16Wgmma) reads.
    pub(super) unpacked: Buffer<WeightPanelF16>,
    pub(super) query: Buffer<f32>,
    pub(super) key: Buffer<f32>,
    pub(super) value: Buffer<f32>,
    /// Queries, turned.
    pub(super) turned: Buffer<f16>,
    pub(super) attended: Buffer<f32>,
    pub(super) gate: Buffer<f32>,
    pub(super) up: Buffer<f32>,
    /// A layer's output before it joins the residual stream, `width`.
    pub(super) output: Buffer<f32>,
    pub(super) logits: Buffer<f32>,
    /// The parts of attention of a step.
    pub(super) parts: Buffer<f32>,
    pub(super) best: Buffer<u64>,
}

impl Workspace {
    /// For `sequences` sequences of `context` positions, and what [`Products`] need.
    pub(super) fn new(
        queue: &impl Queue,
        config: &Config,
        context: usize,
        sequences: usize,
        step: &AttnShape,
        products: Products,
    ) -> Result<Self, Error> {
        let rows = Self::pass_rows(config, context, sequences);
        let logit_rows = sequences.max(LOGIT_ROWS);
        let gate_rows = products.gate_rows(rows, sequences);
        let new = |name, width: usize| queue.output::<f32>(name, rows * width);
        Ok(Self {
            rows,
            logit_rows,
            tokens: queue.output("tokens", rows)?,
            places: queue.output("places", rows)?,
            residual: new("residual", config.width)?,
            input: RowsBuffer::new(queue, products.room(rows, sequences), widths(config))?,
            unpacked: queue.output("unpacked weights", products.unpacked)?,
            query: new("query", config.query_width())?,
            key: new("key", config.kv_width())?,
            value: new("value", config.kv_width())?,
            turned: queue.output("turned query", rows * config.query_width())?,
            attended: new("attended", config.query_width())?,
            gate: queue.output("gate", gate_rows * config.feed_forward)?,
            up: queue.output("up", gate_rows * config.feed_forward)?,
            output: new("output", config.width)?,
            logits: queue.output("logits", logit_rows * config.vocab_size)?,
            parts: queue.output("parts of attention", step.workspace())?,
            best: queue.output("best logits", argmax_workspace(logit_rows, config.vocab_size))?,
        })
    }

    /// Bytes of that.
    pub(super) fn byte_len(
        config: &Config,
        context: usize,
        sequences: usize,
        step: &AttnShape,
        products: Products,
    ) -> u128 {
        let logit_rows = sequences.max(LOGIT_ROWS);
        let logits = logit_rows as u128 * config.vocab_size as u128 * size_of::<f32>() as u128;
        let rows = Self::pass_rows(config, context, sequences);
        let input = RowsBuffer::byte_len(products.room(rows, sequences), widths(config)) as u128;
        let gates = products.gate_rows(rows, sequences) as u128 * gate_bytes(config) as u128;
        let unpacked = products.unpacked as u128 * size_of::<WeightPanelF16>() as u128;
        let parts = step.workspace() as u128 * size_of::<f32>() as u128;
        rows as u128 * row_bytes(config) as u128 + gates + input + unpacked + logits + parts
    }

    /// Rows of a pass: as many as the products are fastest with, if there is the context for them. Counted as on every
    /// device, whatever products read, so that a prompt is cut alike.
    pub(super) fn pass_rows(config: &Config, context: usize, sequences: usize) -> usize {
        let room = RowsRoom { rows: 1, panels: 0, slabs: 0 };
        let row = row_bytes(config) + gate_bytes(config) + RowsBuffer::byte_len(room, widths(config));
        let affordable = (MOST_BYTES / row.max(1)).max(1);
        MOST_ROWS.min(affordable).min(context).max(sequences)
    }
}

/// The widest rows that a product reads, but for those of a gated layer's middle; and these.
fn widths(config: &Config) -> [usize; 2] {
    [config.width.max(config.query_width()), config.feed_forward]
}

/// Bytes of one row of gate and up.
fn gate_bytes(config: &Config) -> usize {
    2 * config.feed_forward * size_of::<f32>()
}

/// Bytes of one row of everything but these and what products read.
fn row_bytes(config: &Config) -> usize {
    let f32s = 2 * config.width + 2 * config.query_width() + 2 * config.kv_width();
    let small = size_of::<u32>() + size_of::<KvPlace>();
    f32s * size_of::<f32>() + config.query_width() * size_of::<f16>() + small
}
