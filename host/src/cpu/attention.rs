//! Attention over the KV cache, for prompt and generated tokens alike.
//!
//! `out = softmax(scale · q·kᵀ) · v` for each query head, causal, with an optional sliding
//! window and soft-cap. Online softmax (Milakov and Gimelshein, 2018) over tiles of [`TILE`]
//! positions that are anchored at position 0: a token meets the same tiles in the same order
//! however the prompt was cut, so its result has the same bits.

#[cfg(test)]
mod tests;

use rayon::prelude::*;

use super::cache::LayerCache;
use super::real::{Real, sum};
use super::simd::{Kernel, Simd, dispatch, widen_slice};

/// Positions that are widened to f32 and visited together.
const TILE: usize = 32;

/// Query rows that share a widened tile.
const QUERIES: usize = 32;

/// What the attention of one layer needs besides queries and cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) scale: f32,
    pub(super) softcap: Option<f32>,
    /// Positions a token sees, itself included.
    pub(super) window: Option<usize>,
    /// Sums in f64.
    pub(super) exact: bool,
}

/// Computes the attention of tokens at positions `start..`; `queries` and `out` are
/// tokens × heads × `head_dim`, row major. The cache holds the tokens' own keys and values.
pub(super) fn attend(shape: Shape, queries: &[f32], start: usize, cache: LayerCache<'_>, out: &mut [f32]) {
    let width = shape.heads * shape.head_dim;
    // One task a head and chunk of queries; a head's outputs of a chunk are a slice a token.
    let mut tasks = Vec::new();
    for (chunk, (queries, out)) in
        queries.chunks(QUERIES * width).zip(out.chunks_mut(QUERIES * width)).enumerate()
    {
        let mut heads: Vec<_> = (0..shape.heads)
            .map(|head| Task { shape, queries, head, start: start + chunk * QUERIES, cache, out: Vec::new() })
            .collect();
        for token in out.chunks_mut(width) {
            for (task, out) in heads.iter_mut().zip(token.chunks_mut(shape.head_dim)) {
                task.out.push(out);
            }
        }
        tasks.append(&mut heads);
    }
    // A short range is cheaper alone than the hand-over to another thread.
    const SMALL: usize = 1 << 15;
    let work = queries.len() * (start + queries.len() / width);
    if work <= SMALL || rayon::current_num_threads() == 1 {
        tasks.into_iter().for_each(dispatch);
    } else {
        tasks.into_par_iter().for_each(dispatch);
    }
}

/// One head of a chunk of tokens.
struct Task<'a> {
    shape: Shape,
    /// The chunk's queries, all heads.
    queries: &'a [f32],
    head: usize,
    /// Position of the chunk's first token.
    start: usize,
    cache: LayerCache<'a>,
    /// The head's output for each token.
    out: Vec<&'a mut [f32]>,
}

impl Kernel for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        if self.shape.exact { self.attend::<S, f64>() } else { self.attend::<S, f32>() }
    }
}

/// A query's running softmax.
struct Row<R> {
    max: R,
    sum: R,
    out: Vec<R>,
}

impl Task<'_> {
    #[inline(always)]
    fn attend<S: Simd, R: Real>(self) {
        let Shape { heads, kv_heads, head_dim, window, .. } = self.shape;
        let kv_head = self.head / (heads / kv_heads);
        let (keys, values) = (self.cache.keys(kv_head), self.cache.values(kv_head));
        let mut rows: Vec<_> = self
            .out
            .iter()
            .map(|_| Row { max: R::NEG_INFINITY, sum: R::ZERO, out: vec![R::ZERO; head_dim] })
            .collect();
        let (mut key_tile, mut value_tile) = (vec![0.0; TILE * head_dim], vec![0.0; TILE * head_dim]);
        let end = self.start + rows.len();
        let first = window.map_or(0, |window| (self.start + 1).saturating_sub(window)) / TILE * TILE;
        for tile in (first..end).step_by(TILE) {
            let positions = TILE.min(end - tile);
            let range = tile * head_dim..(tile + positions) * head_dim;
            widen_slice::<S>(&keys[range.clone()], &mut key_tile);
            widen_slice::<S>(&values[range], &mut value_tile);
            for (token, row) in rows.iter_mut().enumerate() {
                let position = self.start + token;
                // The positions of this tile that the token sees.
                let low = window.map_or(0, |window| (position + 1).saturating_sub(window)).max(tile) - tile;
                let high = (position + 1).clamp(tile, tile + positions) - tile;
                if low < high {
                    let query = &self.queries[(token * heads + self.head) * head_dim..][..head_dim];
                    let part = low * head_dim..high * head_dim;
                    self.shape.visit::<S, R>(query, &key_tile[part.clone()], &value_tile[part], row);
                }
            }
        }
        for (out, row) in self.out.into_iter().zip(rows) {
            let sum = row.sum.to_f32();
            for (out, value) in out.iter_mut().zip(row.out) {
                *out = value.to_f32() / sum;
            }
        }
    }
}

impl Shape {
    /// Adds up to [`TILE`] positions to a query's running softmax.
    #[inline(always)]
    fn visit<S: Simd, R: Real>(self, query: &[f32], keys: &[f32], values: &[f32], row: &mut Row<R>) {
        let mut scores = [R::NEG_INFINITY; TILE];
        let mut max = row.max;
        let mut count = 0;
        for (score, key) in scores.iter_mut().zip(keys.chunks_exact(self.head_dim)) {
            let mut lanes = R::load::<S>(&[R::ZERO; 8]);
            for (q, k) in query.as_chunks::<8>().0.iter().zip(key.as_chunks::<8>().0) {
                lanes = R::fma_lanes::<S>(q, k, lanes);
            }
            *score = sum::<S, R>(lanes) * R::from_f32(self.scale);
            if let Some(cap) = self.softcap {
                *score = R::from_f32(cap) * (*score * R::from_f32(1.0 / cap)).tanh();
            }
            if *score > max {
                max = *score;
            }
            count += 1;
        }
        let minus_max = R::ZERO + max * R::from_f32(-1.0);
        let correction = (row.max + minus_max).exp::<S>();
        for score in &mut scores {
            *score = (*score + minus_max).exp::<S>();
        }
        row.max = max;
        row.sum = scores[..count].iter().fold(row.sum * correction, |sum, &p| sum + p);
        let mut weights = [[0.0; 8]; TILE];
        for (weight, score) in weights.iter_mut().zip(scores) {
            *weight = [score.to_f32(); 8];
        }
        for out in row.out.iter_mut() {
            *out = *out * correction;
        }
        // A head is at least one chunk of eight, mostly several of four: independent sums
        // keep the units busy.
        let (out, _) = row.out.as_chunks_mut::<8>();
        let (fours, rest) = out.as_chunks_mut::<4>();
        let values = values.as_chunks::<8>().0;
        let stride = self.head_dim / 8;
        for (index, out) in fours.iter_mut().enumerate() {
            add_weighted::<S, R, 4>(out, &weights, values, stride, 4 * index);
        }
        let first = 4 * fours.len();
        for (index, out) in rest.iter_mut().enumerate() {
            add_weighted::<S, R, 1>(core::array::from_mut(out), &weights, values, stride, first + index);
        }
    }
}

/// Adds `Σ weight · value` to `N` neighbouring chunks of an output row; `values` are positions
/// × `stride` chunks, of which the sum takes those from `first` on.
#[inline(always)]
fn add_weighted<S: Simd, R: Real, const N: usize>(
    out: &mut [[R; 8]; N],
    weights: &[[f32; 8]; TILE],
    values: &[[f32; 8]],
    stride: usize,
    first: usize,
) {
    let mut lanes = [R::load::<S>(&[R::ZERO; 8]); N];
    for n in 0..N {
        lanes[n] = R::load::<S>(&out[n]);
    }
    for (weight, value) in weights.iter().zip(values.chunks_exact(stride)) {
        let value = &value[first..first + N];
        for n in 0..N {
            lanes[n] = R::fma_lanes::<S>(weight, &value[n], lanes[n]);
        }
    }
    for n in 0..N {
        R::store::<S>(lanes[n], &mut out[n]);
    }
}
