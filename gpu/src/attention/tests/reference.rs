//! Attention in f64, as plainly as it can be said: what every kernel is compared to. It shares no
//! line with them, not even the question who sees what.

use std::vec;
use std::vec::Vec;

use half::f16;

/// The shape of a problem.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) head_size: usize,
    /// Query rows.
    pub(crate) tokens: usize,
    /// The position of the first.
    pub(crate) start: usize,
    /// Rows of keys and values.
    pub(crate) positions: usize,
    pub(crate) kv_heads: usize,
    /// Query heads to each.
    pub(crate) group: usize,
    pub(crate) causal: bool,
    /// How many positions a row sees, up to its own; 0: no limit.
    pub(crate) window: usize,
    /// 0: none.
    pub(crate) softcap: f64,
}

/// Query, keys and values of a case.
pub(crate) struct Inputs {
    pub(crate) query: Vec<f16>,
    pub(crate) keys: Vec<f16>,
    pub(crate) values: Vec<f16>,
}

impl Case {
    /// A causal prompt of so many tokens, that begins at position 0: two KV heads, one query head
    /// to each.
    pub(crate) const fn prompt(head_size: usize, tokens: usize) -> Self {
        Self {
            head_size,
            tokens,
            start: 0,
            positions: tokens,
            kv_heads: 2,
            group: 1,
            causal: true,
            window: 0,
            softcap: 0.0,
        }
    }

    pub(crate) const fn heads(&self) -> usize {
        self.kv_heads * self.group
    }

    /// What scores are multiplied with.
    pub(crate) fn scale(&self) -> f64 {
        1.0 / (self.head_size as f64).sqrt()
    }

    /// Whether a query row sees a position.
    pub(crate) fn sees(&self, token: usize, position: usize) -> bool {
        let own = self.start + token;
        (!self.causal || position <= own) && (self.window == 0 || position + self.window > own)
    }

    /// Numbers from -1 to 1 without a pattern, from a seed: splitmix64.
    pub(crate) fn inputs(&self, seed: u64) -> Inputs {
        let mut state = seed;
        let mut draw = |len: usize| {
            let number = |_| {
                state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
                f16::from_f64((z >> 11) as f64 / (1_u64 << 52) as f64 - 1.0)
            };
            (0..len).map(number).collect()
        };
        let row = self.kv_heads * self.head_size;
        Inputs {
            query: draw(self.tokens * self.group * row),
            keys: draw(self.positions * row),
            values: draw(self.positions * row),
        }
    }

    /// What attention makes of them: tokens × heads × head size.
    pub(crate) fn attention(&self, inputs: &Inputs) -> Vec<f64> {
        let Self { head_size, kv_heads, group, .. } = *self;
        let mut out = vec![0.0; self.tokens * self.heads() * head_size];
        for (i, out) in out.chunks_exact_mut(head_size).enumerate() {
            let (token, head) = (i / self.heads(), i % self.heads());
            let query = &inputs.query[i * head_size..][..head_size];
            let cached = |cache: &[f16], position: usize, d: usize| {
                cache[(position * kv_heads + head / group) * head_size + d].to_f64()
            };
            let score = |position: usize| {
                let products = query.iter().enumerate();
                let sum: f64 = products.map(|(d, q)| q.to_f64() * cached(&inputs.keys, position, d)).sum();
                let score = sum * self.scale();
                if self.softcap == 0.0 { score } else { self.softcap * (score / self.softcap).tanh() }
            };
            let seen: Vec<_> = (0..self.positions).filter(|&position| self.sees(token, position)).collect();
            let scores: Vec<_> = seen.iter().map(|&position| score(position)).collect();
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<_> = scores.iter().map(|score| (score - largest).exp()).collect();
            let total: f64 = weights.iter().sum();
            for (position, weight) in seen.into_iter().zip(weights) {
                for (d, out) in out.iter_mut().enumerate() {
                    *out += weight / total * cached(&inputs.values, position, d);
                }
            }
        }
        out
    }
}
