//! The CPU backend: products on quantized blocks with 8-bit activations, and the exact mode.
//!
//! | file | what |
//! | --- | --- |
//! | `simd` | instruction sets: one loop, compiled for each |
//! | `unpack`, `activation` | weights and activations as 8-bit groups |
//! | `product` | matrix products, for every format and both modes |
//! | `attention`, `cache` | attention over the KV cache |
//! | `ops` | norms, gates, embeddings |
//! | `decoder` | one forward pass |
//!
//! The exact mode is the oracle: dequantized weights, f32 activations, sums in f64.

mod activation;
mod attention;
mod cache;
mod decoder;
mod ops;
mod product;
mod real;
mod simd;
mod unpack;

use std::sync::Arc;

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::backend::{Backend, BackendError, Step, Wanted};
use crate::model::{Config, Model};

use cache::KvCache;
use decoder::Decoder;
use simd::InstructionSet;

/// How the CPU backend runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuOptions {
    /// Threads; 0 takes one for each processor.
    pub threads: usize,
    /// Dequantized weights, f32 activations and f64 sums, instead of 8-bit activations.
    pub exact: bool,
}

/// The decoder on the CPU.
pub struct CpuBackend {
    decoder: Decoder,
    pool: ThreadPool,
    /// One for each sequence.
    caches: Vec<KvCache>,
    /// Rows of a step of several sequences.
    rows: Vec<f32>,
}

impl CpuBackend {
    /// Prepares a model: starts the threads and reserves nothing yet.
    ///
    /// # Errors
    /// [`BackendError::Threads`] if the system refuses the threads,
    /// [`BackendError::InstructionSet`] if the environment asks for one that is not there.
    pub fn new(model: Arc<Model>, options: CpuOptions) -> Result<Self, BackendError> {
        InstructionSet::requested()?;
        let threads = match options.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let pool = ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .map_err(|error| BackendError::Threads { threads, reason: error.to_string() })?;
        Ok(Self { decoder: Decoder::new(model, options.exact), pool, caches: Vec::new(), rows: Vec::new() })
    }
}

impl Backend for CpuBackend {
    fn config(&self) -> &Config {
        self.decoder.config()
    }

    fn description(&self) -> String {
        let mode =
            if self.decoder.is_exact() { "exact (f32 activations, f64 sums)" } else { "8-bit activations" };
        format!("CPU, {}, {} threads, {mode}", InstructionSet::selected().name(), self.threads())
    }

    fn device(&self) -> String {
        "cpu".to_owned()
    }

    fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }

    fn allocate(&mut self, context: usize, sequences: usize) -> Result<(), BackendError> {
        let Config { layers, kv_heads, head_dim, .. } = *self.decoder.config();
        self.caches = Vec::new();
        let new = |_| KvCache::new(layers, context, kv_heads, head_dim);
        self.caches = (0..sequences).map(new).collect::<Option<_>>().ok_or_else(|| {
            let bytes =
                KvCache::byte_len(layers, context, kv_heads, head_dim).saturating_mul(sequences as u128);
            BackendError::OutOfMemory { context, sequences, needed_mib: bytes >> 20 }
        })?;
        Ok(())
    }

    fn prefill(
        &mut self,
        sequence: usize,
        tokens: &[u32],
        start: usize,
        wanted: Wanted,
    ) -> Result<&[f32], BackendError> {
        let Self { decoder, pool, caches, .. } = self;
        let cache = &mut caches[sequence];
        Ok(pool.install(|| decoder.forward(cache, tokens, start, wanted)))
    }

    fn decode(&mut self, steps: &[Step]) -> Result<&[f32], BackendError> {
        let Self { decoder, pool, caches, rows } = self;
        pool.install(|| {
            if let &[Step { sequence, token, position }] = steps {
                return Ok(decoder.forward(&mut caches[sequence], &[token], position, Wanted::Last));
            }
            rows.clear();
            for &Step { sequence, token, position } in steps {
                let cache = &mut caches[sequence];
                rows.extend_from_slice(decoder.forward(cache, &[token], position, Wanted::Last));
            }
            Ok(&rows[..])
        })
    }
}
