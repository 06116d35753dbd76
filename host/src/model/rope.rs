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

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Rope =
        Rope { dims: 64, base: 10_000.0, order: RopeOrder::Interleaved, scaling: RopeScaling::None };
    const ORDERS: [RopeOrder; 2] = [RopeOrder::Interleaved, RopeOrder::Halves];

    fn head(len: usize) -> Vec<f32> {
        (0..len).map(|i| ((i * 37 % 64) as f32 - 31.5) / 16.0).collect()
    }

    fn turned(rope: Rope, position: usize, head: &[f32]) -> Vec<f32> {
        let table = rope.table(None);
        let (mut head, mut turns) = (head.to_vec(), vec![(f32::NAN, f32::NAN); 99]);
        table.fill(position, &mut turns);
        table.apply(&mut head, &turns);
        head
    }

    /// The frequencies and the magnitude, read from the angles of position 1.
    fn frequencies(table: &RopeTable) -> Vec<(f64, f64)> {
        let mut turns = Vec::new();
        table.fill(1, &mut turns);
        turns
            .iter()
            .map(|&(cos, sin)| (f64::from(sin).atan2(f64::from(cos)), f64::from(sin).hypot(cos.into())))
            .collect()
    }

    #[test]
    fn position_zero_changes_nothing() {
        for order in ORDERS {
            for dims in [64, 40, 2] {
                assert_eq!(turned(Rope { dims, order, ..PLAIN }, 0, &head(64)), head(64));
            }
        }
    }

    #[test]
    fn pairs_turn_by_position_times_frequency() {
        for (order, dims) in ORDERS.into_iter().flat_map(|order| [64, 40, 2].map(|dims| (order, dims))) {
            for position in [1, 1000] {
                let (before, after) = (head(64), turned(Rope { dims, order, ..PLAIN }, position, &head(64)));
                for pair in 0..dims / 2 {
                    let (a, b) = match order {
                        RopeOrder::Interleaved => (2 * pair, 2 * pair + 1),
                        RopeOrder::Halves => (pair, pair + dims / 2),
                    };
                    let angle = position as f64 / 10_000_f64.powf(2.0 * pair as f64 / dims as f64);
                    let (x, y) = (f64::from(before[a]), f64::from(before[b]));
                    let expected = [x * angle.cos() - y * angle.sin(), x * angle.sin() + y * angle.cos()];
                    for (got, expected) in [after[a], after[b]].into_iter().zip(expected) {
                        // Cosine, sine, two products and a sum of numbers up to 2, each rounded to f32.
                        let error = (f64::from(got) - expected).abs();
                        assert!(
                            error <= 5e-7,
                            "{order:?}, {dims}, {position}, pair {pair}: {got}, {expected}"
                        );
                    }
                }
                assert_eq!(before[dims..], after[dims..], "{order:?}: behind {dims} nothing turns");
            }
        }
    }

    #[test]
    fn a_linear_factor_and_divisors_slow_every_pair_down() {
        let divisors: Vec<f32> = (0..32).map(|i| 1.0 + i as f32 / 4.0).collect();
        let rope = Rope { scaling: RopeScaling::Linear { factor: 8.0 }, ..PLAIN };
        for (pair, (frequency, magnitude)) in
            frequencies(&rope.table(Some(&divisors))).into_iter().enumerate()
        {
            let expected = 10_000_f64.powf(-(pair as f64) / 32.0) / 8.0 / f64::from(divisors[pair]);
            assert!((frequency - expected).abs() <= 1e-6 * expected, "pair {pair}: {frequency}, {expected}");
            assert!((magnitude - 1.0).abs() <= 1e-6);
        }
    }

    /// With 64 dimensions, base 10 000 and 4096 positions a pair makes 32 turns at
    /// `32 · ln(4096 / 64π) / ln 10⁴` = 10.5 and one turn at 22.5: up to pair 10 all is kept, from pair 23
    /// on all is stretched.
    #[test]
    fn yarn_keeps_fast_pairs_and_stretches_slow_ones() {
        let yarn = |factor| RopeScaling::Yarn {
            factor,
            original_context: 4096.0,
            attention_factor: 1.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
        };
        let stretched = frequencies(&Rope { scaling: yarn(4.0), ..PLAIN }.table(None));
        for (pair, (frequency, magnitude)) in stretched.into_iter().enumerate() {
            let ramp = match pair {
                0..=10 => 0.0,
                23.. => 1.0,
                _ => (pair as f64 - 10.0) / 13.0,
            };
            let expected = 10_000_f64.powf(-(pair as f64) / 32.0) * (1.0 - ramp + ramp / 4.0);
            assert!((frequency - expected).abs() <= 1e-6 * expected, "pair {pair}: {frequency}, {expected}");
            assert!((magnitude - 1.138_629_436).abs() <= 1e-6, "1 + ln(4) / 10, not {magnitude}");
        }
        assert_eq!(
            frequencies(&Rope { scaling: yarn(1.0), ..PLAIN }.table(None)),
            frequencies(&PLAIN.table(None)),
            "a factor of one changes nothing"
        );
    }

    /// Values that a file may hold give numbers or NaN, never a panic.
    #[test]
    fn extreme_values_do_not_panic() {
        for base in [f32::MIN_POSITIVE, 1.0, f32::MAX] {
            for (factor, original_context) in [(1e-30, 1.0), (1e30, 1e7), (1.0, 1.0)] {
                for scaling in [
                    RopeScaling::Linear { factor },
                    RopeScaling::Yarn {
                        factor,
                        original_context,
                        attention_factor: 1e30,
                        beta_fast: 1e-30,
                        beta_slow: 1e30,
                    },
                ] {
                    turned(Rope { base, scaling, ..PLAIN }, usize::MAX, &head(64));
                }
            }
        }
        PLAIN.table(Some(&[0.0; 32])).fill(3, &mut Vec::new());
    }
}
