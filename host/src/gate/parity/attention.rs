//! Every attention kernel of a prompt against f64.

use gpu::attention::AttnNaive;
use gpu::simt::Contract;
use half::f16;

use super::Parity;
use super::trial::{Red, Trial};
use crate::cuda::Queue;
use crate::cuda::ops::{self, AttentionShape, WGMMA_HEAD_SIZES};
use crate::experiment::{Kernel, LENGTHS, PARITY, PREFIX, Problem};

/// What the kernel of one thread an element is tried with: it takes any, and computes each score
/// anew for every element.
const NAIVE_HEAD_SIZE: usize = 6;

/// A kernel of a prompt's attention.
#[derive(Clone, Copy, Debug)]
pub enum PromptAttention {
    /// One that every GPU has, for one head size.
    Portable(Kernel),
    /// One by `wgmma`, for one head size.
    Wgmma {
        /// The head size.
        head_size: usize,
        /// The kernel's name.
        name: &'static str,
    },
    /// The one that takes any head size.
    Naive,
}

impl Parity for PromptAttention {
    const FAMILY: &'static str = "attention";

    fn all() -> Vec<Self> {
        let portable = Kernel::ALL.iter().copied().map(Self::Portable);
        let wgmma = WGMMA_HEAD_SIZES.iter().filter_map(|&head_size| {
            ops::wgmma_kernel(head_size).map(|name| Self::Wgmma { head_size, name })
        });
        portable.chain(wgmma).chain([Self::Naive]).collect()
    }

    fn kernel(&self) -> String {
        let name = match *self {
            Self::Portable(kernel) => kernel.name(),
            Self::Wgmma { name, .. } => name,
            Self::Naive => AttnNaive::NAME,
        };
        name.to_owned()
    }

    fn play<Q: Queue>(&self, trial: &mut Trial<'_, Q>) -> Result<(), Red> {
        let head_size = match *self {
            Self::Portable(kernel) => kernel.tiles().head_size() as usize,
            Self::Wgmma { head_size, .. } => head_size,
            Self::Naive => NAIVE_HEAD_SIZE,
        };
        let prompt = |tokens, start, [heads, kv_heads]: [usize; 2]| {
            AttentionShape::prompt(tokens, start, [heads, kv_heads, head_size])
        };
        let quick = [
            prompt(1, 0, [2, 2]),
            prompt(33, 37, [4, 1]),
            AttentionShape { window: 5, ..prompt(65, 0, [2, 1]) },
            // The cache ends before the rows: the later ones see nothing at all.
            AttentionShape { window: 8, positions: 40, ..prompt(20, 35, [1, 1]) },
            AttentionShape { softcap: 3.0, scale: 0.5, ..prompt(5, 2, [2, 1]) },
        ]
        .map(|shape| (shape, false));
        // Sums grow with every position, where nothing averages out that is lost in one: of values of one
        // sign, with weights that are nearly alike.
        let growing = (AttentionShape { scale: 0.01, ..prompt(3, 297, [1, 1]) }, true);
        let quick = [&quick[..], &[growing]].concat();
        // One, four and seven query heads to a KV head.
        const HEADS: [[usize; 2]; 3] = [[2, 2], [8, 2], [7, 1]];
        let lengths = LENGTHS.into_iter().enumerate();
        let more: Vec<_> = lengths
            .flat_map(|(i, tokens)| [0, PREFIX].map(|start| prompt(tokens, start, HEADS[(i + start) % 3])))
            .map(|shape| (shape, false))
            .collect();
        let large = LENGTHS.into_iter().flat_map(|tokens| {
            [0, PREFIX]
                .into_iter()
                .flat_map(move |start| HEADS.map(|heads| (prompt(tokens, start, heads), false)))
        });
        for (shape, one_sign) in trial.cases(&quick, &more, &large.collect::<Vec<_>>()) {
            let AttentionShape { tokens, start, positions, heads, kv_heads, window, .. } = shape;
            let case = format!(
                "{tokens} tokens from {start} over {positions} positions, {heads} heads over {kv_heads}, \
                 window {window}{}",
                if one_sign { ", values of one sign" } else { "" }
            );
            let mut problem = Problem::random(shape, trial.random.next());
            if one_sign {
                problem.values.iter_mut().for_each(|x| *x = f16::from_bits(x.to_bits() & 0x7fff));
            }
            let query = trial.input("query", &problem.query, 16)?;
            let keys = trial.input("keys", &problem.keys, 16)?;
            let values = trial.input("values", &problem.values, 16)?;
            let found = trial.output(&case, problem.query.len(), 32, |queue, out| {
                let cache = [keys.view(), values.view()];
                match *self {
                    Self::Portable(kernel) => kernel.launch(queue, out, query.view(), cache, &shape)?,
                    Self::Wgmma { .. } => ops::prefill_wgmma(queue, out, query.view(), cache, &shape)?,
                    Self::Naive => ops::prefill::<AttnNaive>(queue, out, query.view(), cache, &shape)?,
                }
                Ok(())
            })?;
            let expected: Vec<f64> = (0..tokens).flat_map(|token| problem.reference(token)).collect();
            trial.compare(&case, &found, &expected, |_| PARITY)?;
        }
        Ok(())
    }
}
