//! A decoder to hold the library's against: scalar loops in f64, whole attention rows, no blocking, no
//! cache, written from the definitions of the architectures.
//!
//! Sources: Llama (Touvron et al., 2023), Qwen 2 and Qwen 3 and Gemma 3 (technical reports), RMS norm
//! (Zhang and Sennrich, 2019), rotary embedding (Su et al., 2021), linear frequency scaling (Chen et
//! al., 2023), YaRN (Peng et al., 2023), gated feed-forward layers (Shazeer, 2020).
//!
//! It shares two things with the library on purpose: weights are what the file's blocks decode to, and
//! keys and values are rounded to f16, since the KV cache is f16 by contract.

use std::cell::RefCell;
use std::f64::consts::PI;

use gpu::quant::{Format, f16};

use super::eight_bit::round_to_8_bits;
use super::random::{Random, uniform};
use super::tiny::{Spec, Stretch, Tiny};

/// What the reference does to its values, to find out what it costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rounding {
    /// Nothing: f64.
    None,
    /// What a norm or a product gives is off by up to 2⁻²³ of itself, as f32 after two operations.
    F32,
    /// The inputs of products with quantized matrices are rounded as the library's default mode rounds
    /// them: groups of 32 signed bytes that share a step, the largest magnitude over 127.
    EightBit,
    /// The inputs of products, their weights and queries are rounded to f16.
    Half,
    /// As [`Half`](Self::Half), but with quantized matrices the weights stay, and the inputs become 32,512ths of
    /// the largest magnitude of their group of 32.
    Pairs,
    /// As [`Half`](Self::Half), but the scales of quantized matrices are rounded to f16 before, and so are their
    /// minimums: each is off as numbers are that are spread evenly between two powers of two.
    Scales,
}

/// The logits after each token.
pub(crate) fn logits(model: &Tiny, tokens: &[u32], rounding: Rounding) -> Vec<Vec<f64>> {
    Decoder::new(model, rounding).logits(tokens)
}

/// The residual stream's largest magnitude on the way, for tests that need it large.
pub(crate) fn largest_residual(model: &Tiny, tokens: &[u32]) -> f64 {
    let decoder = Decoder::new(model, Rounding::None);
    let mut largest = 0.0_f64;
    decoder
        .residuals(tokens, |stream| largest = stream.iter().flatten().fold(largest, |m, x| m.max(x.abs())));
    largest
}

struct Decoder<'a> {
    model: &'a Tiny,
    spec: Spec,
    rounding: Rounding,
    random: RefCell<Random>,
}

type Rows = Vec<Vec<f64>>;

impl<'a> Decoder<'a> {
    fn new(model: &'a Tiny, rounding: Rounding) -> Self {
        Self { model, spec: model.spec, rounding, random: RefCell::new(Random(model.spec.seed + 2)) }
    }

    fn logits(&self, tokens: &[u32]) -> Rows {
        let stream = self.residuals(tokens, |_| ());
        let normed = self.rms_norm(&stream, "output_norm.weight");
        let output = if self.spec.tied { "token_embd.weight" } else { "output.weight" };
        let mut logits = self.product(&normed, output);
        if let Some(cap) = self.spec.logit_softcap {
            logits.iter_mut().flatten().for_each(|x| *x = softcap(*x, cap.into()));
        }
        logits
    }

    /// The residual stream after the last layer; `see` is shown it after every layer.
    fn residuals(&self, tokens: &[u32], mut see: impl FnMut(&Rows)) -> Rows {
        let width = self.spec.width;
        let embeddings = self.model.values("token_embd.weight");
        let scale = if self.gemma() { (width as f64).sqrt() } else { 1.0 };
        let mut stream: Rows = tokens
            .iter()
            .map(|&id| {
                embeddings[id as usize * width..][..width].iter().map(|&x| f64::from(x) * scale).collect()
            })
            .collect();
        see(&stream);
        for layer in 0..self.spec.layers {
            let name = |role: &str| format!("blk.{layer}.{role}");
            let normed = self.rms_norm(&stream, &name("attn_norm.weight"));
            let mut update = self.attention(&normed, layer);
            if self.spec.post_norm {
                update = self.rms_norm(&update, &name("post_attention_norm.weight"));
            }
            add(&mut stream, &update);

            let normed = self.rms_norm(&stream, &name("ffn_norm.weight"));
            let mut update = self.feed_forward(&normed, layer);
            if self.spec.post_norm {
                update = self.rms_norm(&update, &name("post_ffw_norm.weight"));
            }
            add(&mut stream, &update);
            see(&stream);
        }
        stream
    }

    fn attention(&self, x: &Rows, layer: usize) -> Rows {
        let Spec { heads, kv_heads, head_dim, .. } = self.spec;
        let name = |role: &str| format!("blk.{layer}.{role}");
        let mut queries = self.product_with_bias(x, &name("attn_q"));
        let mut keys = self.product_with_bias(x, &name("attn_k"));
        let mut values = self.product_with_bias(x, &name("attn_v"));
        for position in 0..x.len() {
            for (rows, norm) in [(&mut queries, "attn_q_norm.weight"), (&mut keys, "attn_k_norm.weight")] {
                for head in rows[position].chunks_exact_mut(head_dim) {
                    if self.spec.qk_norm {
                        let weight = self.model.values(&name(norm));
                        let normed = rms_norm(head, &weight, self.spec.epsilon.into());
                        head.copy_from_slice(&normed);
                    }
                    self.rotate(head, position, layer);
                }
            }
            if matches!(self.rounding, Rounding::Half | Rounding::Pairs | Rounding::Scales) {
                queries[position].iter_mut().for_each(round_to_f16);
            }
            keys[position].iter_mut().for_each(round_to_f16);
            values[position].iter_mut().for_each(round_to_f16);
        }

        let scale = self.attention_scale();
        let mut mixed = vec![vec![0.0; heads * head_dim]; x.len()];
        for position in 0..x.len() {
            let first = match self.spec.window {
                Some(window) if self.slides(layer) => (position + 1).saturating_sub(window),
                _ => 0,
            };
            for head in 0..heads {
                // Query heads share key and value heads in groups of neighbours.
                let shared = head / (heads / kv_heads);
                let query = &queries[position][head * head_dim..][..head_dim];
                let scores: Vec<f64> = (first..=position)
                    .map(|seen| {
                        let score = scale * dot(query, &keys[seen][shared * head_dim..][..head_dim]);
                        self.spec.attention_softcap.map_or(score, |cap| softcap(score, cap.into()))
                    })
                    .collect();
                let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
                let total: f64 = weights.iter().sum();
                for (seen, weight) in (first..=position).zip(weights) {
                    for i in 0..head_dim {
                        mixed[position][head * head_dim + i] +=
                            weight / total * values[seen][shared * head_dim + i];
                    }
                }
            }
        }
        self.product_with_bias(&mixed, &name("attn_output"))
    }

    fn feed_forward(&self, x: &Rows, layer: usize) -> Rows {
        let name = |role: &str| format!("blk.{layer}.{role}.weight");
        let mut hidden = self.product(x, &name("ffn_gate"));
        let up = self.product(x, &name("ffn_up"));
        for (gate, up) in hidden.iter_mut().flatten().zip(up.iter().flatten()) {
            let activated = if self.gemma() { gelu_tanh(*gate) } else { *gate / (1.0 + (-*gate).exp()) };
            *gate = activated * up;
        }
        self.product(&hidden, &name("ffn_down"))
    }

    /// Turns the first elements of a head by the angles of its position.
    fn rotate(&self, head: &mut [f64], position: usize, layer: usize) {
        let dims = self.spec.rope_dims.unwrap_or(self.spec.head_dim);
        let divisors = self.model.get("rope_freqs.weight");
        let (base, stretch) = if self.slides(layer) {
            (10_000.0, Stretch::None)
        } else {
            (f64::from(self.spec.rope_base), self.spec.stretch)
        };
        for pair in 0..dims / 2 {
            let divisor = divisors.as_ref().map_or(1.0, |divisors| f64::from(divisors[pair]));
            let plain = position as f64 / base.powf(2.0 * pair as f64 / dims as f64) / divisor;
            let (angle, magnitude) = match stretch {
                Stretch::None => (plain, 1.0),
                Stretch::Linear { factor } => (plain / f64::from(factor), 1.0),
                Stretch::Yarn { factor, original } => {
                    let factor = f64::from(factor);
                    let kept = yarn_kept(pair, dims, base, original.into());
                    (plain * kept + plain / factor * (1.0 - kept), 1.0 + 0.1 * factor.ln())
                }
            };
            // Llama's files hold the rows of a pair side by side, the others' half a turn apart.
            let (a, b) = match self.spec.arch {
                "llama" => (2 * pair, 2 * pair + 1),
                _ => (pair, pair + dims / 2),
            };
            let (x, y) = (head[a], head[b]);
            head[a] = magnitude * (x * angle.cos() - y * angle.sin());
            head[b] = magnitude * (x * angle.sin() + y * angle.cos());
        }
    }

    /// Gemma 3 has five layers with a window, then one without.
    fn slides(&self, layer: usize) -> bool {
        self.gemma()
            && self.spec.window.is_some()
            && layer % self.spec.pattern.unwrap_or(6) != self.spec.pattern.unwrap_or(6) - 1
    }

    fn gemma(&self) -> bool {
        self.spec.arch == "gemma3"
    }

    fn attention_scale(&self) -> f64 {
        let Spec { width, heads, head_dim, layers, .. } = self.spec;
        match self.spec.attention_scale {
            Some(scale) => scale.into(),
            // The 27B model of Gemma 3 alone divides by its width per head.
            None if self.gemma() && layers == 62 => (heads as f64 / width as f64).sqrt(),
            None => 1.0 / (head_dim as f64).sqrt(),
        }
    }

    fn rms_norm(&self, rows: &Rows, weight: &str) -> Rows {
        let weight = self.model.values(weight);
        self.blurred(rows.iter().map(|row| rms_norm(row, &weight, self.spec.epsilon.into())).collect())
    }

    fn product_with_bias(&self, x: &Rows, name: &str) -> Rows {
        let mut rows = self.product(x, &format!("{name}.weight"));
        if let Some(bias) = self.model.get(&format!("{name}.bias")) {
            for row in &mut rows {
                row.iter_mut().zip(&bias).for_each(|(y, b)| *y += f64::from(*b));
            }
        }
        rows
    }

    /// `y = W x` for each row of `x`.
    fn product(&self, x: &Rows, matrix: &str) -> Rows {
        let mut weights: Vec<f64> = self.model.values(matrix).into_iter().map(f64::from).collect();
        let mut x = x.clone();
        let is_quantized = self.model.format(matrix).block_elements() > 1;
        let groups = x.iter_mut().flat_map(|row| row.chunks_mut(32));
        match self.rounding {
            Rounding::EightBit if is_quantized => groups.for_each(round_to_8_bits),
            Rounding::Pairs if is_quantized => groups.for_each(round_to_pairs),
            Rounding::Half | Rounding::Pairs | Rounding::Scales => {
                if self.rounding == Rounding::Scales && is_quantized {
                    self.round_scales(&mut weights, self.model.format(matrix));
                }
                groups.flatten().for_each(round_to_f16);
                weights.iter_mut().for_each(round_to_f16);
            }
            Rounding::None | Rounding::F32 | Rounding::EightBit => {}
        }
        self.blurred(
            x.iter().map(|x| weights.chunks_exact(x.len()).map(|row| dot(row, x)).collect()).collect(),
        )
    }

    /// What quantized weights become when their scales and minimums are rounded to f16.
    fn round_scales(&self, weights: &mut [f64], format: Format) {
        let mut random = self.random.borrow_mut();
        let mut off =
            || (2.0 * uniform(&mut random) - 1.0) * 2.0_f64.powi(-11) / (1.0 + uniform(&mut random));
        let run = if matches!(format, Format::Q2_K | Format::Q3_K | Format::Q6_K) { 16 } else { 32 };
        // The smallest of a run has about the quant 0.
        let has_minimum =
            matches!(format, Format::Q4_1 | Format::Q5_1 | Format::Q2_K | Format::Q4_K | Format::Q5_K);
        for run in weights.chunks_mut(run) {
            let least = run.iter().copied().fold(f64::INFINITY, f64::min);
            let minimum = if has_minimum { least } else { 0.0 };
            let (scale, below) = (1.0 + off(), 1.0 + off());
            run.iter_mut().for_each(|w| *w = (*w - minimum) * scale + minimum * below);
        }
    }

    fn blurred(&self, mut rows: Rows) -> Rows {
        if self.rounding == Rounding::F32 {
            let mut random = self.random.borrow_mut();
            let size = 2.0_f64.powi(-23);
            rows.iter_mut().flatten().for_each(|x| *x *= 1.0 + size * (2.0 * uniform(&mut random) - 1.0));
        }
        rows
    }
}

/// How much of its frequency a pair keeps: all of it if it turns more than 32 times within the original
/// context, nothing if less than once, and a straight ramp over the pairs in between.
fn yarn_kept(pair: usize, dims: usize, base: f64, original: f64) -> f64 {
    let pair_that_turns = |times: f64| dims as f64 * (original / (times * 2.0 * PI)).ln() / (2.0 * base.ln());
    let low = pair_that_turns(32.0).floor().max(0.0);
    let high = pair_that_turns(1.0).ceil().min(dims as f64 - 1.0);
    1.0 - ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0)
}

fn rms_norm(x: &[f64], weight: &[f32], epsilon: f64) -> Vec<f64> {
    let mean_square = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (mean_square + epsilon).sqrt();
    x.iter().zip(weight).map(|(x, w)| x * scale * f64::from(*w)).collect()
}

fn gelu_tanh(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / PI).sqrt() * (x + 0.044_715 * x * x * x)).tanh())
}

fn softcap(x: f64, cap: f64) -> f64 {
    cap * (x / cap).tanh()
}

fn round_to_pairs(group: &mut [f64]) {
    let step = group.iter().fold(0.0_f64, |most, x| most.max(x.abs())) / 32_512.0;
    if step > 0.0 {
        group.iter_mut().for_each(|x| *x = (*x / step).round_ties_even() * step);
    }
}

fn round_to_f16(x: &mut f64) {
    *x = f16::from_f64(*x).to_f64();
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut Rows, update: &Rows) {
    for (x, update) in to.iter_mut().flatten().zip(update.iter().flatten()) {
        *x += update;
    }
}
