//! Inputs of an experiment, and what attention is of them in f64.

use half::f16;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::cuda::ops::AttentionShape;
use crate::cuda::{Buffer, Error, Queue};

use super::kernel::Kernel;

/// The inputs of one problem, on the host.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Its shape.
    pub shape: AttentionShape,
    /// `tokens × heads × head size`.
    pub query: Vec<f16>,
    /// `positions × KV heads × head size`.
    pub keys: Vec<f16>,
    /// As `keys`.
    pub values: Vec<f16>,
}

impl Problem {
    /// Numbers evenly between -1 and 1, rounded to f16; the same ones for the same seed.
    #[must_use]
    pub fn random(shape: AttentionShape, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut uniform = |rows: usize, heads: usize| -> Vec<f16> {
            // 24 bits of randomness, in steps of 2^-23 from -1 on.
            let value = |_| f16::from_f64(f64::from(rng.next_u32() >> 8) * (-23.0_f64).exp2() - 1.0);
            (0..rows * heads * shape.head_size).map(value).collect()
        };
        let query = uniform(shape.tokens, shape.heads);
        let keys = uniform(shape.positions, shape.kv_heads);
        let values = uniform(shape.positions, shape.kv_heads);
        Self { shape, query, keys, values }
    }

    /// The inputs in the memory of a queue.
    ///
    /// # Errors
    /// Those of allocating and copying.
    pub fn upload(&self, queue: &impl Queue) -> Result<Uploaded, Error> {
        Ok(Uploaded {
            shape: self.shape,
            query: queue.input("query", &self.query)?,
            keys: queue.input("keys", &self.keys)?,
            values: queue.input("values", &self.values)?,
        })
    }

    /// Softmax of the scaled scores, times the values, of one row in all heads; all in f64.
    #[must_use]
    pub fn reference(&self, token: usize) -> Vec<f64> {
        let &AttentionShape { heads, kv_heads, .. } = &self.shape;
        (0..heads).flat_map(|head| self.reference_head(token, head, head / (heads / kv_heads))).collect()
    }

    fn reference_head(&self, token: usize, head: usize, kv_head: usize) -> Vec<f64> {
        let &AttentionShape { start, positions, heads, kv_heads, head_size, .. } = &self.shape;
        let row = |matrix: &[f16], row: usize, heads: usize, head: usize| -> Vec<f64> {
            let row = &matrix[(row * heads + head) * head_size..][..head_size];
            row.iter().map(|x| x.to_f64()).collect()
        };
        let query = row(&self.query, token, heads, head);
        let own = start + token;
        let seen = |&position: &usize| {
            let after = self.shape.causal && position > own;
            !after && (self.shape.window == 0 || position + self.shape.window > own)
        };
        let seen: Vec<usize> = (0..positions).filter(seen).collect();
        let scores: Vec<f64> = seen
            .iter()
            .map(|&position| {
                let key = row(&self.keys, position, kv_heads, kv_head);
                let dot: f64 = query.iter().zip(&key).map(|(q, k)| q * k).sum();
                let (score, cap) = (dot * f64::from(self.shape.scale), f64::from(self.shape.softcap));
                if cap == 0.0 { score } else { cap * (score / cap).tanh() }
            })
            .collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let mut out = vec![0.0; head_size];
        for (&position, weight) in seen.iter().zip(&weights) {
            let value = row(&self.values, position, kv_heads, kv_head);
            out.iter_mut().zip(value).for_each(|(out, value)| *out += weight / sum * value);
        }
        out
    }
}

/// The inputs of a problem where kernels can read them.
#[derive(Debug)]
pub struct Uploaded {
    shape: AttentionShape,
    query: Buffer<f16>,
    keys: Buffer<f16>,
    values: Buffer<f16>,
}

impl Uploaded {
    /// An output for it, filled with NaN.
    ///
    /// # Errors
    /// Those of allocating.
    pub fn output(&self, queue: &impl Queue) -> Result<Buffer<f32>, Error> {
        queue.output("out", self.query.len())
    }

    /// Launches a kernel on it.
    ///
    /// # Errors
    /// Those of [`Kernel::launch`].
    pub fn launch(&self, queue: &impl Queue, kernel: Kernel, out: &mut Buffer<f32>) -> Result<(), Error> {
        let cache = [self.keys.view(), self.values.view()];
        kernel.launch(queue, out.view_mut(), self.query.view(), cache, &self.shape)
    }

    /// What a kernel computes, in an output that was NaN before.
    ///
    /// # Errors
    /// Those of [`Kernel::launch`], of memory, and of waiting for it.
    pub fn run(&self, queue: &impl Queue, kernel: Kernel) -> Result<Vec<f32>, Error> {
        let mut out = self.output(queue)?;
        self.launch(queue, kernel, &mut out)?;
        queue.synchronize()?;
        out.read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two positions with scores 0 and s: the second weighs 1 / (1 + e^-s).
    #[test]
    fn the_reference_is_the_formula() {
        let mut shape = AttentionShape::prompt(2, 0, [1, 1, 2]);
        shape.scale = 0.5;
        let half = |values: [f32; 4]| values.map(f16::from_f32).to_vec();
        let mut problem = Problem {
            shape,
            query: half([1.0, 0.0, 3.0, 0.0]),
            keys: half([0.0, 1.0, 1.0, 0.0]),
            values: half([1.0, 2.0, 3.0, 4.0]),
        };
        assert_eq!(problem.reference(0), [1.0, 2.0], "the first row sees itself alone");
        let weight = 1.0 / (1.0 + (-1.5_f64).exp());
        let near = |found: Vec<f64>, weight: f64| {
            assert!((found[0] - (1.0 + 2.0 * weight)).abs() < 1e-12, "{found:?}");
            assert!((found[1] - (2.0 + 2.0 * weight)).abs() < 1e-12, "{found:?}");
        };
        near(problem.reference(1), weight);
        problem.shape.softcap = 2.0;
        near(problem.reference(1), 1.0 / (1.0 + (-2.0 * 0.75_f64.tanh()).exp()));
        problem.shape.window = 1;
        near(problem.reference(1), 1.0);
    }

    #[test]
    fn inputs_are_between_minus_one_and_one_and_not_all_alike() {
        let problem = Problem::random(AttentionShape::prompt(40, 3, [2, 1, 64]), 7);
        let values = || problem.query.iter().chain(&problem.keys).chain(&problem.values);
        assert!(values().all(|x| x.to_f32().abs() <= 1.0));
        let mean = values().map(|x| x.to_f64()).sum::<f64>() / values().count() as f64;
        assert!(mean.abs() < 0.03, "{mean}");
        assert_ne!(problem.keys, problem.values);
        let again = Problem::random(problem.shape, 7);
        assert_eq!((again.query, again.values), (problem.query, problem.values));
    }
}
