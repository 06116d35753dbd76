//! The CPU backend: products on quantized blocks with 8-bit activations, and the exact mode.
//!
//! | file | what |
//! | --- | --- |
//! | `simd` | instruction sets: one loop, compiled for each |
//! | `unpack`, `activation` | weights and activations as 8-bit groups |
//! | `product` | matrix products, for every format and arithmetic |
//! | `rounding` | what f16 operands lose |
//! | `attention`, `cache` | attention over the KV cache |
//! | `ops` | norms, gates, embeddings |
//! | `decoder` | one forward pass |
//!
//! The exact mode is the oracle: dequantized weights, f32 activations, sums in f64. With f16's rounding it is
//! the yardstick of what computes with f16.

mod activation;
mod attention;
mod cache;
mod decoder;
mod ops;
mod product;
mod real;
mod rounding;
mod simd;
mod unpack;

use std::sync::Arc;

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::backend::{Backend, BackendError, Step, Wanted};
use crate::model::{Config, Model};

use cache::KvCache;
use decoder::Decoder;
use rounding::Grid;
use simd::InstructionSet;

/// How the CPU backend runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuOptions {
    /// Threads; 0 takes one for each processor.
    pub threads: usize,
    /// What it computes with.
    pub arithmetic: Arithmetic,
}

/// What products, attention and gates are computed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arithmetic {
    /// Quantized weights times 8-bit activations, sums in f32.
    #[default]
    EightBit,
    /// Dequantized weights, f32 activations, sums in f64.
    Exact,
    /// [`Self::Exact`], with that rounded to f16 which a GPU rounds to f16: dequantized weights, the inputs of
    /// products, and queries after their rotation (keys and values are f16 in every cache). What is left is what
    /// a faultless GPU's logits are off by, for no other reason than this rounding.
    ///
    /// One rounding is one draw of many that are as good: draw 0 is f16's, and the others round to numbers that
    /// lie as close, multiples of f16's by 2^(draw / 4).
    Half {
        /// Which one, below 4: others repeat these.
        draw: u32,
    },
}

impl Arithmetic {
    /// The exact mode, or the 8-bit one.
    #[must_use]
    pub const fn exact_if(exact: bool) -> Self {
        if exact { Self::Exact } else { Self::EightBit }
    }

    /// Whether sums are f64.
    const fn sums_in_f64(self) -> bool {
        !matches!(self, Self::EightBit)
    }

    /// What operands are rounded to, if they are.
    fn grid(self) -> Option<Grid> {
        match self {
            Self::EightBit | Self::Exact => None,
            Self::Half { draw } => Some(Grid::new(draw)),
        }
    }
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
        Ok(Self {
            decoder: Decoder::new(model, options.arithmetic),
            pool,
            caches: Vec::new(),
            rows: Vec::new(),
        })
    }
}

impl Backend for CpuBackend {
    fn config(&self) -> &Config {
        self.decoder.config()
    }

    fn description(&self) -> String {
        let mode = match self.decoder.arithmetic() {
            Arithmetic::EightBit => "8-bit activations",
            Arithmetic::Exact => "exact (f32 activations, f64 sums)",
            Arithmetic::Half { .. } => "f16 weights and activations, f64 sums",
        };
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
