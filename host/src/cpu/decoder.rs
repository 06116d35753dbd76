//! One forward pass of the decoder.

use std::sync::Arc;

use super::Arithmetic;
use super::attention::{self, Shape};
use super::cache::KvCache;
use super::ops;
use super::product::{Input, Product, multiply};
use crate::backend::Wanted;
use crate::model::{Config, Layer, Matrix, Model, RopeTable};

/// A model with what a forward pass needs besides the KV cache.
pub(super) struct Decoder {
    model: Arc<Model>,
    arithmetic: Arithmetic,
    /// Rotary embedding of the layers that attend to everything, and of the sliding ones.
    rope: RopeTable,
    rope_sliding: RopeTable,
    buffers: Buffers,
}

/// Intermediate rows, one a token.
#[derive(Default)]
struct Buffers {
    /// The residual stream, `width`.
    residual: Vec<f32>,
    /// A normalized row, or a layer's output, `width`.
    normed: Vec<f32>,
    /// A layer's output before it joins the residual stream, `width`.
    output: Vec<f32>,
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
    attended: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
    logits: Vec<f32>,
}

impl Decoder {
    pub(super) fn new(model: Arc<Model>, arithmetic: Arithmetic) -> Self {
        let config = model.config();
        let rope = config.rope.table(model.rope_factors());
        let rope_sliding = config.rope_sliding.table(None);
        Self { arithmetic, rope, rope_sliding, buffers: Buffers::default(), model }
    }

    pub(super) fn config(&self) -> &Config {
        self.model.config()
    }

    pub(super) fn arithmetic(&self) -> Arithmetic {
        self.arithmetic
    }

    /// Evaluates `tokens` at positions `start..`; see [`crate::backend::Backend::prefill`].
    pub(super) fn forward(
        &mut self,
        cache: &mut KvCache,
        tokens: &[u32],
        start: usize,
        wanted: Wanted,
    ) -> &[f32] {
        let Self { model, arithmetic, rope, rope_sliding, buffers } = self;
        let (config, arithmetic) = (model.config(), *arithmetic);
        let pass = Pass { model, config, arithmetic, start, tokens: tokens.len() };
        debug_assert!(start + tokens.len() <= cache.context());
        buffers.resize(config, tokens.len());
        let embedding = (model.embedding().format(), model.bytes(model.embedding()));
        ops::each_row(&mut buffers.residual, config.width, |row, out| {
            ops::embed(embedding.0, embedding.1, tokens[row] as usize, config.embedding_scale, out);
        });
        let positions = start..start + tokens.len();
        let angles = rope.angles(positions.clone());
        // Most models slide in no layer.
        let sliding = config.sliding_window.map_or_else(Vec::new, |_| rope_sliding.angles(positions));
        for (index, layer) in model.layers().iter().enumerate() {
            let rope =
                if config.is_sliding(index) { (&*rope_sliding, &sliding[..]) } else { (&*rope, &angles[..]) };
            pass.attention(index, layer, rope, cache, buffers);
            pass.feed_forward(layer, buffers);
        }
        let rows = wanted.rows(tokens.len());
        buffers.logits.resize(rows * config.vocab_size, 0.0);
        if rows == 0 {
            return &[];
        }
        let last = &buffers.residual[(tokens.len() - rows) * config.width..];
        let normed = &mut buffers.normed[..rows * config.width];
        pass.norm(last, model.output_norm(), normed);
        pass.product(normed, [(model.output(), &mut buffers.logits[..])]);
        if let Some(cap) = config.logit_softcap {
            for logit in &mut buffers.logits {
                *logit = cap * (*logit / cap).tanh();
            }
        }
        &buffers.logits
    }
}

impl Buffers {
    fn resize(&mut self, config: &Config, tokens: usize) {
        for buffer in [&mut self.residual, &mut self.normed, &mut self.output] {
            buffer.resize(tokens * config.width, 0.0);
        }
        for buffer in [&mut self.query, &mut self.attended] {
            buffer.resize(tokens * config.query_width(), 0.0);
        }
        for buffer in [&mut self.key, &mut self.value] {
            buffer.resize(tokens * config.kv_width(), 0.0);
        }
        for buffer in [&mut self.gate, &mut self.up] {
            buffer.resize(tokens * config.feed_forward, 0.0);
        }
    }
}

/// What stays the same through one forward pass.
struct Pass<'a> {
    model: &'a Model,
    config: &'a Config,
    arithmetic: Arithmetic,
    /// Position of the first token.
    start: usize,
    tokens: usize,
}

impl Pass<'_> {
    fn attention(
        &self,
        index: usize,
        layer: &Layer,
        (rope, angles): (&RopeTable, &[(f32, f32)]),
        cache: &mut KvCache,
        buffers: &mut Buffers,
    ) {
        let config = self.config;
        self.norm(&buffers.residual, &layer.attention_norm, &mut buffers.normed);
        self.product(
            &buffers.normed,
            [
                (&layer.query, &mut buffers.query[..]),
                (&layer.key, &mut buffers.key[..]),
                (&layer.value, &mut buffers.value[..]),
            ],
        );
        let turn = |heads: &mut [f32], bias: Option<&[f32]>, norm: Option<&[f32]>| {
            ops::each_row(heads, heads.len() / self.tokens, |token, row| {
                bias.inspect(|bias| ops::add(row, bias));
                norm.inspect(|norm| ops::rms_norm_heads(row, norm, config.norm_epsilon));
                let angles = &angles[token * rope.pairs()..(token + 1) * rope.pairs()];
                row.chunks_exact_mut(config.head_dim).for_each(|head| rope.apply(head, angles));
            });
        };
        turn(&mut buffers.query, layer.query_bias.as_deref(), layer.query_norm.as_deref());
        if let Some(grid) = self.arithmetic.grid() {
            grid.round(&mut buffers.query);
        }
        turn(&mut buffers.key, layer.key_bias.as_deref(), layer.key_norm.as_deref());
        self.add_bias(&mut buffers.value, layer.value_bias.as_deref());
        let width = config.kv_width();
        for (token, (key, value)) in
            buffers.key.chunks_exact(width).zip(buffers.value.chunks_exact(width)).enumerate()
        {
            cache.store(index, self.start + token, key, value);
        }
        let shape = Shape {
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            scale: config.attention_scale,
            softcap: config.attention_softcap,
            window: config.window(index),
            exact: self.arithmetic.sums_in_f64(),
        };
        attention::attend(shape, &buffers.query, self.start, cache.layer(index), &mut buffers.attended);
        self.product(&buffers.attended, [(&layer.attention_output, &mut buffers.output[..])]);
        self.add_bias(&mut buffers.output, layer.attention_output_bias.as_deref());
        self.join(layer.post_attention_norm.as_deref(), buffers);
    }

    fn feed_forward(&self, layer: &Layer, buffers: &mut Buffers) {
        self.norm(&buffers.residual, &layer.feed_forward_norm, &mut buffers.normed);
        self.product(
            &buffers.normed,
            [(&layer.gate, &mut buffers.gate[..]), (&layer.up, &mut buffers.up[..])],
        );
        let (up, width) = (&buffers.up, self.config.feed_forward);
        ops::each_row(&mut buffers.gate, width, |row, gate| {
            ops::gate(
                self.config.activation,
                self.arithmetic.sums_in_f64(),
                gate,
                &up[row * width..(row + 1) * width],
            );
        });
        self.product(&buffers.gate, [(&layer.down, &mut buffers.output[..])]);
        self.join(layer.post_feed_forward_norm.as_deref(), buffers);
    }

    /// Adds a layer's output to the residual stream, through a norm where there is one.
    fn join(&self, norm: Option<&[f32]>, buffers: &mut Buffers) {
        let Buffers { residual, normed, output, .. } = buffers;
        let output = match norm {
            None => &*output,
            Some(norm) => {
                self.norm(output, norm, normed);
                &*normed
            }
        };
        let width = self.config.width;
        ops::each_row(residual, width, |row, out| ops::add(out, &output[row * width..(row + 1) * width]));
    }

    fn norm(&self, x: &[f32], weight: &[f32], out: &mut [f32]) {
        let width = weight.len();
        ops::each_row(out, width, |row, out| {
            ops::rms_norm(&x[row * width..(row + 1) * width], weight, self.config.norm_epsilon, out);
        });
    }

    fn add_bias(&self, rows: &mut [f32], bias: Option<&[f32]>) {
        if let Some(bias) = bias {
            rows.chunks_exact_mut(bias.len()).for_each(|row| ops::add(row, bias));
        }
    }

    /// Products of the rows of `input` with several matrices.
    fn product<'a, const N: usize>(&self, input: &[f32], products: [(&'a Matrix, &'a mut [f32]); N]) {
        let formats = products.each_ref().map(|(matrix, _)| matrix.format());
        let columns = products[0].0.columns();
        let input = Input::new(input, columns, self.arithmetic, formats);
        multiply(
            &input,
            products.map(|(matrix, out)| Product {
                format: matrix.format(),
                weights: self.model.bytes(matrix),
                rows: matrix.rows(),
                out,
            }),
        );
    }
}
