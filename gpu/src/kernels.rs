//! Every kernel that is built, once: entry points for the GPU, and a list for everyone else.

use bytemuck::Zeroable;

use crate::activation::Gated;
use crate::attention::{AttnCombine, AttnDecode, FaPrefillF16kv};
use crate::basics::{BlockSum, Transpose, VectorAdd};
use crate::embedding::Embed;
use crate::norm::{ResidualNorm, RmsNorm};
use crate::position::RopeKv;
use crate::probe::{ProbeLoads, ProbeMmaF16, ProbeMmaS8, ProbeShared, ProbeWmma};
use crate::product::{AsF16, AsF32, AsQ8, Convert, MatmulF16};
use crate::quant::{
    BlockIQ4_NL, BlockIQ4_XS, BlockQ2_K, BlockQ3_K, BlockQ4_0, BlockQ4_1, BlockQ4_K, BlockQ5_0, BlockQ5_1,
    BlockQ5_K, BlockQ6_K, BlockQ8_0, BlockQ8_K, bf16, f16,
};
use crate::sampling::{Argmax, ArgmaxParts, TopK};
use crate::simt::{Contract, Expectations, Launch};

/// What the build and the tools know of a kernel without launching it.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The exported name.
    pub name: &'static str,
    /// What its PTX must look like.
    pub expectations: Expectations,
    /// Bytes of its one parameter, the arguments.
    pub argument_bytes: usize,
    /// What `ptxas` is held to from sm_80 on, see [`Contract::REGISTER_LIMIT`].
    pub register_limit: Option<u32>,
    empty: fn() -> Launch,
}

impl Entry {
    const fn of<K: Contract + Zeroable>() -> Self {
        Self {
            name: K::NAME,
            expectations: K::EXPECTATIONS,
            argument_bytes: size_of::<K>(),
            register_limit: K::REGISTER_LIMIT,
            empty: || K::zeroed().launch(),
        }
    }

    /// The launch of the empty problem: its threads, and its shared memory as far as that does
    /// not depend on the problem. Its grid may be empty.
    #[must_use]
    pub fn launch(&self) -> Launch {
        (self.empty)()
    }

    /// The most registers a thread may take on architecture `sm`.
    #[must_use]
    pub fn most_registers(&self, sm: u32) -> u32 {
        self.register_limit.filter(|_| sm >= 80).unwrap_or(self.expectations.registers)
    }
}

/// Whether PTX for architecture `sm` has every kernel, each as it is expected, and nothing that
/// is not resolved.
///
/// # Errors
/// The first violation.
#[cfg(not(target_arch = "nvptx64"))]
pub fn check(ptx: &str, sm: u32) -> Result<(), crate::simt::inspect::Violation<'_>> {
    crate::simt::inspect::check_module(ptx)?;
    ALL.iter().try_for_each(|entry| entry.expectations.check(ptx, sm, entry.name))
}

/// The same PTX for architecture `sm`, with the register limits that kernels ask for.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn limited(ptx: &str, sm: u32) -> std::string::String {
    let limit =
        |entry: &'static Entry| entry.register_limit.filter(|_| sm >= 80).map(|most| (entry.name, most));
    ALL.iter()
        .filter_map(limit)
        .fold(ptx.into(), |ptx, (kernel, most)| crate::simt::inspect::with_register_limit(&ptx, kernel, most))
}

/// Whether two names are the same.
const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}

macro_rules! kernels {
    ($($name:ident: $kernel:ty,)*) => {
        /// All kernels, in the order in which they are exported.
        pub const ALL: &[Entry] = &[$(Entry::of::<$kernel>()),*];

        $(const _: () = assert!(same(stringify!($name), <$kernel as Contract>::NAME));)*

        #[cfg(all(target_arch = "nvptx64", not(feature = "nvvm")))]
        #[allow(unsafe_code, reason = "an entry point hands the driver's arguments to the kernel")]
        mod entry {
            use super::*;
            use crate::simt::{Kernel, Ptx};

            $(
                #[unsafe(no_mangle)]
                unsafe extern "ptx-kernel" fn $name(arguments: $kernel) {
                    // SAFETY: whoever launches keeps the kernel's contract.
                    unsafe { arguments.run(Ptx) }
                }
            )*
        }

        // On the host too, where that is the proof that each kernel runs on this machine.
        #[cfg(feature = "nvvm")]
        #[allow(unsafe_code, reason = "an entry point hands the driver's arguments to the kernel")]
        mod entry {
            use super::*;
            use crate::simt::{ARCHITECTURE, Kernel, Nvvm};

            $(
                #[cuda_std::kernel]
                unsafe fn $name(arguments: $kernel) {
                    // SAFETY: whoever launches keeps the kernel's contract.
                    unsafe { arguments.run(Nvvm::<ARCHITECTURE>) }
                }
            )*
        }
    };
}

kernels! {
    vector_add: VectorAdd,
    block_sum: BlockSum,
    transpose_conflicted: Transpose<0>,
    transpose_padded: Transpose<1>,
    rms_norm: RmsNorm,
    embed_f32: Embed<f32>,
    embed_f16: Embed<f16>,
    embed_bf16: Embed<bf16>,
    embed_q4_0: Embed<BlockQ4_0>,
    embed_q4_1: Embed<BlockQ4_1>,
    embed_q5_0: Embed<BlockQ5_0>,
    embed_q5_1: Embed<BlockQ5_1>,
    embed_q8_0: Embed<BlockQ8_0>,
    embed_q2_k: Embed<BlockQ2_K>,
    embed_q3_k: Embed<BlockQ3_K>,
    embed_q4_k: Embed<BlockQ4_K>,
    embed_q5_k: Embed<BlockQ5_K>,
    embed_q6_k: Embed<BlockQ6_K>,
    embed_q8_k: Embed<BlockQ8_K>,
    embed_iq4_nl: Embed<BlockIQ4_NL>,
    embed_iq4_xs: Embed<BlockIQ4_XS>,
    residual_norm_f32: ResidualNorm<AsF32>,
    residual_norm_f16: ResidualNorm<AsF16>,
    residual_norm_q8: ResidualNorm<AsQ8>,
    rope_kv: RopeKv,
    gated_f32: Gated<AsF32>,
    gated_f16: Gated<AsF16>,
    gated_q8: Gated<AsQ8>,
    matmul_f16: MatmulF16,
    convert_f16: Convert<AsF16>,
    convert_q8: Convert<AsQ8>,
    attn_decode: AttnDecode<128>,
    attn_decode_hd64: AttnDecode<64>,
    attn_decode_hd80: AttnDecode<80>,
    attn_decode_hd96: AttnDecode<96>,
    attn_decode_hd256: AttnDecode<256>,
    attn_combine_f32: AttnCombine<AsF32>,
    attn_combine_f16: AttnCombine<AsF16>,
    attn_combine_q8: AttnCombine<AsQ8>,
    fa_prefill_f16kv: FaPrefillF16kv<128>,
    fa_prefill_f16kv_hd64: FaPrefillF16kv<64>,
    fa_prefill_f16kv_hd80: FaPrefillF16kv<80>,
    fa_prefill_f16kv_hd96: FaPrefillF16kv<96>,
    fa_prefill_f16kv_hd256: FaPrefillF16kv<256>,
    fa_prefill_f16kv_tkv16: FaPrefillF16kv<128, 64, 16>,
    fa_prefill_f16kv_tkv64: FaPrefillF16kv<128, 64, 64>,
    fa_prefill_f16kv_tq128: FaPrefillF16kv<128, 128, 32>,
    fa_prefill_f16kv_tq48_double: FaPrefillF16kv<128, 48, 32, 2, 1>,
    fa_prefill_f16kv_double: FaPrefillF16kv<128, 64, 32, 2>,
    argmax_parts: ArgmaxParts,
    argmax: Argmax,
    top_k: TopK<true>,
    top_k_keys: TopK<false>,
    probe_loads: ProbeLoads,
    probe_wmma: ProbeWmma,
    probe_mma_f16: ProbeMmaF16,
    probe_mma_s8: ProbeMmaS8,
    probe_shared: ProbeShared,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_has_a_name_of_its_own() {
        for (i, a) in ALL.iter().enumerate() {
            assert!(ALL[..i].iter().all(|b| a.name != b.name), "{} stands twice", a.name);
        }
    }

    #[test]
    fn arguments_are_what_the_driver_copies() {
        // 4 KiB is the most that every architecture takes.
        assert!(
            ALL.iter().all(|entry| entry.argument_bytes.is_multiple_of(4) && entry.argument_bytes <= 4096)
        );
    }
}
