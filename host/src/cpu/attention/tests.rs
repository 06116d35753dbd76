//! Attention against whole rows of scores in f64.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use half::f16;

use super::super::cache::KvCache;
use super::super::simd::InstructionSet;
use super::super::simd::tests::run_on;
use super::*;
use crate::gate::random::{Random, normal};

const CONTEXT: usize = 260;
const LENGTHS: [usize; 10] = [1, 31, 32, 33, 63, 64, 65, 255, 256, 257];

/// Keys, values and queries of every position.
struct Case {
    shape: Shape,
    keys: Vec<f32>,
    values: Vec<f32>,
    queries: Vec<f32>,
}

impl Case {
    fn new(shape: Shape) -> Self {
        let mut random = Random((shape.heads * 1000 + shape.head_dim) as u64);
        let mut rows = |width: usize, size: f64| -> Vec<f32> {
            (0..CONTEXT * width).map(|_| (size * normal(&mut random)) as f32).collect()
        };
        let width = shape.kv_heads * shape.head_dim;
        let (keys, values) = (rows(width, 1.5), rows(width, 1.0));
        Self { shape, keys, values, queries: rows(shape.heads * shape.head_dim, 1.5) }
    }

    /// The attention of the positions `start..end`; what the cache holds behind them is NaN.
    fn run(&self, start: usize, end: usize) -> Vec<f32> {
        let Shape { heads, kv_heads, head_dim, .. } = self.shape;
        let mut cache = KvCache::new(2, CONTEXT, kv_heads, head_dim).unwrap();
        let width = kv_heads * head_dim;
        let nan = vec![f32::NAN; width];
        for position in 0..CONTEXT {
            let row = position * width..(position + 1) * width;
            let (key, value) = if position < end {
                (&self.keys[row.clone()], &self.values[row])
            } else {
                (nan.as_slice(), nan.as_slice())
            };
            // The other layer must not matter either.
            cache.store(0, position, &nan, &nan);
            cache.store(1, position, key, value);
        }
        let queries = &self.queries[start * heads * head_dim..end * heads * head_dim];
        let mut out = vec![f32::NAN; queries.len()];
        attend(self.shape, queries, start, cache.layer(1), &mut out);
        out
    }

    /// The attention of one position, and how far from it an output may be.
    ///
    /// Exact mode: weights, sum and output are each rounded to f32 once. Default mode: the dot product of
    /// a score in f32, in eight lanes, is off by `(head_dim / 8 + 4) · 2⁻²⁴` of its terms' magnitudes, and
    /// `exp` by 2e-7; both, for the score and for the largest one, are relative errors of a weight. Sums
    /// over the positions in f32 add `positions · 2⁻²⁴`.
    fn expected(&self, position: usize) -> Vec<(f64, f64)> {
        let Shape { heads, kv_heads, head_dim, scale, softcap, window, exact } = self.shape;
        let rounded = |x: f32| f16::from_f32(x).to_f64();
        let first = window.map_or(0, |window| (position + 1).saturating_sub(window));
        let mut out = Vec::new();
        for head in 0..heads {
            let place = |seen: usize| (seen * kv_heads + head / (heads / kv_heads)) * head_dim;
            let query = &self.queries[(position * heads + head) * head_dim..][..head_dim];
            let mut magnitude = 0.0_f64;
            let scores: Vec<f64> = (first..=position)
                .map(|seen| {
                    let terms: Vec<f64> = query
                        .iter()
                        .zip(&self.keys[place(seen)..])
                        .map(|(&q, &k)| f64::from(q) * rounded(k) * f64::from(scale))
                        .collect();
                    magnitude = magnitude.max(terms.iter().map(|x| x.abs()).sum());
                    let score: f64 = terms.iter().sum();
                    softcap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
                })
                .collect();
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
            let total: f64 = weights.iter().sum();
            let unit = 2.0_f64.powi(-24);
            let relative = if exact {
                4.0 * unit
            } else {
                let score = (head_dim as f64 / 8.0 + 4.0) * unit * magnitude + 2e-7;
                2.0 * score + (position - first + 4) as f64 * unit
            };
            for i in 0..head_dim {
                let values = || (first..=position).map(|seen| rounded(self.values[place(seen) + i]));
                let mixed: f64 = values().zip(&weights).map(|(value, weight)| weight * value).sum();
                out.push((mixed / total, relative * values().fold(0.0, |m, x| x.abs().max(m))));
            }
        }
        out
    }
}

fn hold(what: &str, got: &[f32], expected: &[(f64, f64)]) {
    assert_eq!(got.len(), expected.len());
    for (index, (&got, &(value, allowed))) in got.iter().zip(expected).enumerate() {
        let error = (f64::from(got) - value).abs();
        // Written so that a NaN fails.
        assert!(
            error <= allowed,
            "{what}: element {index} is {got}, expected {value}: error {error:.1e}, allowed {allowed:.1e}"
        );
    }
}

const PLAIN: Shape =
    Shape { heads: 2, kv_heads: 1, head_dim: 64, scale: 0.125, softcap: None, window: None, exact: false };

/// Groups, head sizes, soft-caps and windows.
fn shapes() -> Vec<Shape> {
    let mut shapes = Vec::new();
    for (heads, kv_heads, head_dim) in
        [(1, 1, 8), (3, 3, 64), (4, 2, 80), (6, 2, 96), (7, 1, 128), (2, 1, 256)]
    {
        shapes.push(Shape { heads, kv_heads, head_dim, scale: 1.0 / (head_dim as f32).sqrt(), ..PLAIN });
    }
    shapes.extend([0.5, 30.0].map(|cap| Shape { softcap: Some(cap), ..PLAIN }));
    let windows = [1, 2, 31, 32, 33, 64, 100, 256, 257, 1000];
    shapes.extend(windows.map(|window| Shape { window: Some(window), ..PLAIN }));
    // Scores far apart, so that one position takes it all and the running maximum grows.
    shapes.push(Shape { scale: 4.0, ..PLAIN });
    shapes
}

#[test]
fn every_length_shape_mode_and_instruction_set() {
    for (shape, exact) in shapes().into_iter().flat_map(|shape| [(shape, true), (shape, false)]) {
        let case = Case::new(Shape { exact, ..shape });
        let width = shape.heads * shape.head_dim;
        let expected: Vec<_> = (0..CONTEXT).map(|position| case.expected(position)).collect();
        for set in InstructionSet::available() {
            run_on(set, 1, || {
                let whole = case.run(0, 257);
                for (position, out) in whole.chunks(width).enumerate() {
                    hold(
                        &format!("{:?}, {}, position {position}", case.shape, set.name()),
                        out,
                        &expected[position],
                    );
                }
                for length in LENGTHS {
                    // The last token by itself, and the last few.
                    for tokens in [1, 5, 33] {
                        let start = length - tokens.min(length);
                        let out = case.run(start, length);
                        let same =
                            out.iter().zip(&whole[start * width..]).all(|(a, b)| a.to_bits() == b.to_bits());
                        assert!(same, "{:?}, {}: {start}..{length} by themselves", case.shape, set.name());
                    }
                }
            });
        }
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    for exact in [true, false] {
        let case = Case::new(Shape { heads: 7, window: Some(100), exact, ..PLAIN });
        let run = |threads| run_on(InstructionSet::selected(), threads, || case.run(0, 257));
        let one = run(1);
        assert!(one.iter().all(|x| x.is_finite()));
        for threads in [2, 3] {
            assert!(run(threads) == one, "exact {exact}: {threads} threads");
        }
    }
}

/// With values that name their KV head and their position's parity, each query head shows what it reads.
#[test]
fn query_heads_share_kv_heads_in_groups_of_neighbours() {
    for (heads, kv_heads) in [(2, 2), (4, 2), (6, 2), (5, 1), (12, 2), (14, 2), (16, 2), (28, 4), (14, 1)] {
        let mut case = Case::new(Shape { heads, kv_heads, ..PLAIN });
        case.values
            .chunks_mut(64)
            .enumerate()
            .for_each(|(index, value)| value.fill((index % kv_heads) as f32));
        let out = case.run(0, 40);
        for (head, out) in out.chunks(64).enumerate() {
            let expected = (head % heads / (heads / kv_heads)) as f32;
            assert!(
                out.iter().all(|x| (x - expected).abs() <= 1e-5),
                "{heads}/{kv_heads}: head {head}: {out:?}"
            );
        }
    }
}

/// A NaN in a key, a value or a query is seen by every token that looks there, and by no other.
#[test]
fn a_nan_reaches_who_looks_at_it() {
    for set in InstructionSet::available() {
        for (exact, part) in [true, false].into_iter().flat_map(|exact| [0, 1, 2].map(|part| (exact, part))) {
            let mut case = Case::new(Shape { window: Some(40), exact, ..PLAIN });
            let (rows, width) = match part {
                0 => (&mut case.keys, 64),
                1 => (&mut case.values, 64),
                _ => (&mut case.queries, 128),
            };
            rows[50 * width + 3] = f32::NAN;
            let out = run_on(set, 1, || case.run(0, 120));
            for (position, out) in out.chunks(128).enumerate() {
                let looks = if part == 2 { position == 50 } else { (50..90).contains(&position) };
                let seen = out.iter().any(|x| x.is_nan());
                assert_eq!(seen, looks, "part {part}, exact {exact}, {}, position {position}", set.name());
            }
        }
    }
}
