//! Every kernel but the probes, in every format, over ragged shapes, against references in f64.
//!
//! | file | kernels |
//! | --- | --- |
//! | `embed` | `embed_<format>` |
//! | `norm` | `residual_norm_<form>` |
//! | `rope` | `rope_kv` |
//! | `convert`, `gated` | `convert_<form>`, `gated_<form>` |
//! | `product`, `gated_wgmma` | `matmul_f16_<format>`, `matmul_f16_wgmma`; `matmul_f16_wgmma_gated` |
//! | `unpack_f16`, `matvec` | `unpack_f16_<format>`; `matvec_<form>_<format>` |
//! | `splitk` | `matmul_splitk_<format>` |
//! | `attention`, `steps` | `fa_prefill_…`, `attn_naive`; `attn_decode…`, `attn_combine_<form>` |
//! | `argmax`, `top_k` | `argmax_parts`, `argmax`; `top_k`, `top_k_keys` |
//! | `exercise` | `vector_add`, `block_sum`, `transpose_…`, `rms_norm`, `matmul_f16`, which no model uses |
//! | `trial` | one kernel's cases, as they are played and judged |

pub mod argmax;
pub mod attention;
pub mod convert;
pub mod embed;
pub mod exercise;
pub mod gated;
pub mod gated_wgmma;
pub mod matvec;
pub mod norm;
pub mod product;
pub mod rope;
pub mod splitk;
pub mod steps;
pub mod top_k;
mod trial;
pub mod unpack_f16;

use gpu::quant::Format;
use serde::Serialize;

pub use trial::{Extent, Red, Trial, Worst};

use crate::cuda::{Error, Queue};

/// The first seed of random inputs; each kernel has its own.
pub const SEED: u64 = 42;

/// A kernel, with the cases that it is played in.
pub trait Parity: Sized {
    /// What `--kernel` calls it together with others.
    const FAMILY: &'static str;

    /// All kernels of the family.
    fn all() -> Vec<Self>;

    /// The exported name.
    fn kernel(&self) -> String;

    /// Plays all cases; the trial keeps the worst element.
    ///
    /// # Errors
    /// [`Red`]: what is wrong besides elements.
    fn play<Q: Queue>(&self, trial: &mut Trial<'_, Q>) -> Result<(), Red>;
}

/// What came of one kernel.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The kernel's family.
    pub family: &'static str,
    /// Its exported name.
    pub kernel: String,
    /// Cases that were compared.
    pub cases: usize,
    /// Elements of these.
    pub elements: usize,
    /// The element that is nearest to its bound, or farthest outside.
    pub worst: Option<Worst>,
    /// Why it is red, in words.
    pub red: Option<String>,
    /// Why this device has no such kernel, in words: then nothing was compared, and nothing is red.
    pub unavailable: Option<String>,
}

impl Row {
    /// Whether something is wrong, or nothing was shown on a device that has the kernel.
    #[must_use]
    pub fn is_red(&self) -> bool {
        self.unavailable.is_none() && !self.is_green()
    }

    /// Whether all of it was within its bounds.
    #[must_use]
    pub fn is_green(&self) -> bool {
        // Nothing compared is nothing shown.
        self.red.is_none() && self.elements > 0 && self.worst.as_ref().is_some_and(Worst::is_within)
    }
}

macro_rules! checks {
    ($($Kernel:ident: $type:ty,)*) => {
        /// A kernel of any family.
        #[derive(Clone, Copy, Debug)]
        pub enum Check {
            $(
                #[doc = concat!("One of [`", stringify!($type), "`].")]
                $Kernel($type),
            )*
        }

        impl Check {
            /// All kernels of all families.
            #[must_use]
            pub fn all() -> Vec<Self> {
                let mut all = Vec::new();
                $(all.extend(<$type as Parity>::all().into_iter().map(Self::$Kernel));)*
                all
            }

            /// The family.
            #[must_use]
            pub const fn family(&self) -> &'static str {
                match self {
                    $(Self::$Kernel(_) => <$type as Parity>::FAMILY,)*
                }
            }

            /// The exported name.
            #[must_use]
            pub fn kernel(&self) -> String {
                match self {
                    $(Self::$Kernel(kernel) => kernel.kernel(),)*
                }
            }

            fn play<Q: Queue>(&self, trial: &mut Trial<'_, Q>) -> Result<(), Red> {
                match self {
                    $(Self::$Kernel(kernel) => kernel.play(trial),)*
                }
            }
        }
    };
}

checks! {
    Embed: embed::Embed,
    NormF32: norm::NormF32,
    NormF16: norm::NormF16,
    NormPanels: norm::NormPanels,
    NormSlabs: norm::NormSlabs,
    NormQ8: norm::NormQ8,
    RopeKv: rope::RopeKv,
    MatmulF16: product::MatmulF16,
    UnpackF16: unpack_f16::UnpackF16,
    MatmulWgmma256: product::MatmulWgmma<128>,
    MatmulWgmma240: product::MatmulWgmma<120>,
    MatmulWgmma128: product::MatmulWgmma<64>,
    GatedWgmma: gated_wgmma::GatedWgmma,
    Convert: convert::Convert,
    Matvec: matvec::Matvec,
    SplitK8: splitk::SplitK8,
    SplitK32: splitk::SplitK32,
    SplitK64: splitk::SplitK64,
    MatvecTwo: matvec::MatvecTwo,
    Attention: attention::PromptAttention,
    Steps: steps::StepAttention,
    GatedF32: gated::GatedF32,
    GatedF16: gated::GatedF16,
    GatedPanels: gated::GatedPanels,
    GatedSlabs: gated::GatedSlabs,
    GatedQ8: gated::GatedQ8,
    Argmax: argmax::Argmax,
    TopK: top_k::TopK,
    Exercise: exercise::Exercise,
}

impl Check {
    /// Plays the kernel's cases on a queue.
    pub fn run<Q: Queue>(&self, queue: &Q, extent: Extent) -> Row {
        let mut trial = Trial::new(queue, extent, SEED);
        let (kernel, played) = (self.kernel(), self.play(&mut trial));
        let tally = trial.into_tally();
        let outside = || {
            let worst = tally.worst.as_ref().filter(|worst| !worst.is_within())?;
            let Worst { case, index, found, expected, bound } = worst;
            let off = worst.off();
            Some(format!(
                "{case}: [{index}] is {found}, expected {expected}, off by {off:.3e}, at most {bound:.3e}"
            ))
        };
        let mut unavailable = None;
        let red = match played {
            Err(Red::Launch { error: error @ Error::NotForDevice { kernel: refused, .. }, .. })
                if refused == kernel =>
            {
                unavailable = Some(error.to_string());
                None
            }
            Err(red) => Some(red.to_string()),
            Ok(()) if !tally.launched.contains(kernel.as_str()) => {
                let launched: Vec<_> = tally.launched.iter().copied().collect();
                Some(format!("it was not launched, {} was", launched.join(", ")))
            }
            Ok(()) => outside(),
        };
        let (cases, elements, worst) = (tally.cases, tally.elements, tally.worst);
        Row { family: self.family(), kernel, cases, elements, worst, red, unavailable }
    }
}

/// The end of the names of kernels for a format.
fn suffix(format: Format) -> String {
    format.to_string().to_lowercase()
}

/// The formats that have blocks.
fn quantized() -> impl Iterator<Item = Format> {
    Format::ALL.into_iter().filter(|format| format.block_elements() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_but_the_probes_is_checked() {
        let mut checked: Vec<String> = Check::all().iter().map(Check::kernel).collect();
        for entry in gpu::kernels::ALL {
            let is_checked = checked.iter().position(|kernel| kernel == entry.name);
            assert!(is_checked.is_some() != entry.name.starts_with("probe_"), "{}", entry.name);
            if let Some(at) = is_checked {
                checked.swap_remove(at);
            }
        }
        assert!(checked.is_empty(), "no kernels, or listed twice: {checked:?}");
    }
}
