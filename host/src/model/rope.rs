//! Rotary position embedding: angles from position and frequency, in both pair orders.
//!
//! Pair `i` of a head's first [`Rope::dims`] elements turns by `position · θ_i`, with
//! `θ_i = base^(-2i / dims) / factor_i` (Su et al., RoFormer, 2021). `factor_i` comes from the
//! file's tensor `rope_freqs.weight` where there is one (Llama 3's long-context factors).
//! Frequency scaling: linear (Chen et al., 2023) and YaRN (Peng et al., 2023), with the
//! parameters that GGUF files carry.

use std::f64::consts::PI;

/// Which elements of a head form pair `i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeOrder {
    /// `(2i, 2i + 1)`: the order of Llama's weights.
    Interleaved,
    /// `(i, i + dims/2)`: the order of GPT-NeoX, Qwen and Gemma.
    Halves,
}

/// How frequencies are stretched beyond the trained context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// Every frequency divided by `factor`.
    Linear {
        /// The stretch.
        factor: f32,
    },
    /// Low frequencies divided by `factor`, high ones kept, a ramp in between, and a
    /// correction of the attention's temperature.
    Yarn {
        /// The stretch.
        factor: f32,
        /// The context the model was trained with before it was stretched, in positions.
        original_context: f32,
        /// A factor on cosine and sine, besides YaRN's own `1 + 0.1 · ln(factor)`.
        attention_factor: f32,
        /// Turns within the original context above which a pair is kept.
        beta_fast: f32,
        /// Turns within the original context below which a pair is fully stretched.
        beta_slow: f32,
    },
}

/// A rotary embedding, described.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Elements of a head that turn; the others pass unchanged. Even.
    pub dims: usize,
    /// The base of the frequencies.
    pub base: f32,
    /// The pairs.
    pub order: RopeOrder,
    /// The stretch.
    pub scaling: RopeScaling,
}

/// The angles' frequencies of one rotary embedding, ready to turn heads.
#[derive(Clone, Debug)]
pub struct RopeTable {
    order: RopeOrder,
    /// Radians per position, one per pair.
    frequencies: Vec<f64>,
    /// The factor on cosine and sine.
    magnitude: f64,
}

impl Rope {
    /// The frequencies, with `factors` (one per pair) as divisors where the file has them.
    ///
    /// # Panics
    /// If `factors` is not one per pair.
    #[must_use]
    pub fn table(&self, factors: Option<&[f32]>) -> RopeTable {
        let pairs = self.dims / 2;
        if let Some(factors) = factors {
            assert_eq!(factors.len(), pairs, "one frequency factor per pair");
        }
        let base = f64::from(self.base);
        let frequencies = (0..pairs)
            .map(|i| {
                let divisor = factors.map_or(1.0, |factors| f64::from(factors[i]));
                let plain = base.powf(-2.0 * i as f64 / self.dims as f64) / divisor;
                plain * self.stretch(i)
            })
            .collect();
        let magnitude = match self.scaling {
            RopeScaling::Yarn { factor, attention_factor, .. } => {
                f64::from(attention_factor) * (1.0 + 0.1 * f64::from(factor).ln())
            }
            RopeScaling::None | RopeScaling::Linear { .. } => 1.0,
        };
        RopeTable { order: self.order, frequencies, magnitude }
    }

    /// What the frequency of pair `i` is multiplied by.
    fn stretch(&self, i: usize) -> f64 {
        match self.scaling {
            RopeScaling::None => 1.0,
            RopeScaling::Linear { factor } => 1.0 / f64::from(factor),
            RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, .. } => {
                // The pair that makes `turns` turns within the original context.
                let pair_of = |turns: f32| {
                    let per_turn = f64::from(original_context) / (f64::from(turns) * 2.0 * PI);
                    self.dims as f64 * per_turn.ln() / (2.0 * f64::from(self.base).ln())
                };
                let low = pair_of(beta_fast).floor().max(0.0);
                let high = pair_of(beta_slow).ceil().min(self.dims as f64 - 1.0);
                let stretched = ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
                (1.0 - stretched) + stretched / f64::from(factor)
            }
        }
    }
}

impl RopeTable {
    /// Cosine and sine of every pair at `position`, times the magnitude; `turns` is refilled.
    pub fn fill(&self, position: usize, turns: &mut Vec<(f32, f32)>) {
        turns.clear();
        turns.extend(self.frequencies.iter().map(|frequency| {
            let (sin, cos) = (position as f64 * frequency).sin_cos();
            ((cos * self.magnitude) as f32, (sin * self.magnitude) as f32)
        }));
    }

    /// Turns one head by the `turns` of its position.
    ///
    /// # Panics
    /// If `head` is shorter than the embedding's dimensions.
    pub fn apply(&self, head: &mut [f32], turns: &[(f32, f32)]) {
        let turn = |a: &mut f32, b: &mut f32, (cos, sin): (f32, f32)| {
            (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
        };
        match self.order {
            RopeOrder::Interleaved => {
                for (pair, &angle) in head.chunks_exact_mut(2).zip(turns) {
                    if let [a, b] = pair {
                        turn(a, b, angle);
                    }
                }
            }
            RopeOrder::Halves => {
                let (low, high) = head[..2 * turns.len()].split_at_mut(turns.len());
                for ((a, b), &angle) in low.iter_mut().zip(high).zip(turns) {
                    turn(a, b, angle);
                }
            }
        }
    }
}
