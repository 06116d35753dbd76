//! Every kernel that is built, once: entry points for the GPU, and a list for everyone else.

use bytemuck::Zeroable;

use crate::activation::Gated;
use crate::attention::{
    AttnCombine, AttnDecode, AttnNaive, FaPrefillF16kv, FaPrefillF16kvShared, FaPrefillF16kvWgmma,
};
use crate::basics::{BlockSum, Transpose, VectorAdd};
use crate::embedding::Embed;
use crate::norm::{ResidualNorm, RmsNorm};
use crate::position::RopeKv;
use crate::probe::{
    ProbeApproximations, ProbeLoads, ProbeMapBf16, ProbeMapF16, ProbeMapS8, ProbeMapWgmma, ProbeMmaF16,
    ProbeMmaS8, ProbeShared, ProbeWmma,
};
use crate::product::matvec::{HalfNumbers, HalfPieces, MatvecRows, MatvecTwo, Quantized};
use crate::product::{
    AsF16, AsF16Panels, AsF16Slabs, AsF32, AsQ8, Convert, GateUp, MatmulF16, MatmulF16Quant, MatmulF16Wgmma,
    MatmulSplitK, Matvec, UnpackF16,
};
use crate::quant::{
    BlockIQ4_NL, BlockIQ4_XS, BlockQ2_K, BlockQ3_K, BlockQ4_0, BlockQ4_1, BlockQ4_K, BlockQ5_0, BlockQ5_1,
    BlockQ5_K, BlockQ6_K, BlockQ8_0, BlockQ8_K, bf16, f16,
};
use crate::sampling::{Argmax, ArgmaxParts, TopK};
use crate::simt::{Architecture, Contract, Expectations, Launch};

/// What the build and the tools know of a kernel without launching it.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The exported name.
    pub name: &'static str,
    /// The architecture that it needs: PTX for others has no such entry point.
    pub needs: Architecture,
    /// What its PTX must look like.
    pub expectations: Expectations,
    /// Bytes of its one parameter, the arguments.
    pub argument_bytes: usize,
    /// What `ptxas` is held to from sm_80 on, see [`Contract::REGISTER_LIMIT`].
    pub register_limit: Option<u32>,
    /// Whether it may begin before the launches before it are done, see [`Contract::STARTS_EARLY`].
    pub starts_early: bool,
    empty: fn() -> Launch,
}

impl Entry {
    const fn of<K: Contract + Zeroable>(needs: Architecture) -> Self {
        Self {
            name: K::NAME,
            needs,
            expectations: K::EXPECTATIONS,
            argument_bytes: size_of::<K>(),
            register_limit: K::REGISTER_LIMIT,
            starts_early: K::STARTS_EARLY,
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

/// Whether PTX for `target` has the kernels that this architecture has and no others, each as it
/// is expected, and nothing that is not resolved.
///
/// # Errors
/// The first violation.
#[cfg(not(target_arch = "nvptx64"))]
pub fn check(ptx: &str, target: Architecture) -> Result<(), crate::simt::inspect::Violation<'_>> {
    use crate::simt::inspect::{Violation, check_module, entry_body};
    use crate::simt::{Count, Occurrence};

    // Whoever begins early waits, and nobody else: there it would be in vain.
    const WAITS: &str = "griddepcontrol.wait";
    static EARLY: [Occurrence; 1] = [Occurrence::new(WAITS, Count::AtLeast(1)).since(90)];
    static OTHERS: [Occurrence; 1] = [Occurrence::new(WAITS, Count::Never)];

    check_module(ptx)?;
    ALL.iter().try_for_each(|&Entry { name: kernel, needs, expectations, starts_early, .. }| {
        if needs.is_in(target) {
            expectations.check(ptx, target.sm, kernel)?;
            let instructions = if starts_early { &EARLY } else { &OTHERS };
            Expectations { instructions, ..expectations }.check(ptx, target.sm, kernel)
        } else if entry_body(ptx, kernel).is_some() {
            Err(Violation::Misplaced { kernel, needs })
        } else {
            Ok(())
        }
    })
}

/// The architecture of this name, which there must be.
const fn architecture(name: &str) -> Architecture {
    match Architecture::parse(name) {
        Some(architecture) => architecture,
        None => panic!("not the name of an architecture"),
    }
}

/// The same PTX for `target`, with the register limits that kernels ask for.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn limited(ptx: &str, target: Architecture) -> std::string::String {
    let limit = |entry: &'static Entry| {
        entry.register_limit.filter(|_| target.sm >= 80).map(|most| (entry.name, most))
    };
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

/// Entry points and their list. What stands after `where` is the architecture that a kernel needs
/// if not all have it, as rustc's name of a target feature.
macro_rules! kernels {
    (@needs) => { Architecture::OLDEST };
    (@needs $feature:literal) => { const { architecture($feature) } };
    (@nvvm $name:ident, $kernel:ty) => {
        #[cuda_std::kernel]
        unsafe fn $name(arguments: $kernel) {
            // SAFETY: whoever launches keeps the kernel's contract.
            unsafe { arguments.run(Nvvm::<ARCHITECTURE>) }
        }
    };
    // That compiler has no `cfg` for its architecture: for the proof on the host only.
    (@nvvm $name:ident, $kernel:ty, $feature:literal) => {
        #[cfg(not(target_arch = "nvptx64"))]
        #[cuda_std::kernel]
        unsafe fn $name(arguments: $kernel) {
            // SAFETY: whoever launches keeps the kernel's contract.
            unsafe { arguments.run(Nvvm::<{ architecture($feature).sm }>) }
        }
    };
    ($($name:ident: $kernel:ty $(where $feature:literal)?,)*) => {
        /// All kernels, in the order in which they are exported.
        pub const ALL: &[Entry] = &[$(Entry::of::<$kernel>(kernels!(@needs $($feature)?))),*];

        $(const _: () = assert!(same(stringify!($name), <$kernel as Contract>::NAME));)*

        #[cfg(all(target_arch = "nvptx64", not(feature = "nvvm")))]
        #[allow(unsafe_code, reason = "an entry point hands the driver's arguments to the kernel")]
        mod entry {
            use super::*;
            use crate::simt::{Kernel, Ptx};

            $(
                $(#[cfg(target_feature = $feature)])?
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

            $(kernels!(@nvvm $name, $kernel $(, $feature)?);)*
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
    residual_norm_f16_panels: ResidualNorm<AsF16Panels>,
    residual_norm_f16_slabs: ResidualNorm<AsF16Slabs>,
    residual_norm_q8: ResidualNorm<AsQ8>,
    rope_kv: RopeKv,
    gated_f32: Gated<AsF32>,
    gated_f16: Gated<AsF16>,
    gated_f16_panels: Gated<AsF16Panels>,
    gated_f16_slabs: Gated<AsF16Slabs>,
    gated_q8: Gated<AsQ8>,
    matmul_f16: MatmulF16,
    matmul_f16_f32: MatmulF16Quant<f32>,
    matmul_f16_f16: MatmulF16Quant<f16>,
    matmul_f16_bf16: MatmulF16Quant<bf16>,
    matmul_f16_q4_0: MatmulF16Quant<BlockQ4_0>,
    matmul_f16_q4_1: MatmulF16Quant<BlockQ4_1>,
    matmul_f16_q5_0: MatmulF16Quant<BlockQ5_0>,
    matmul_f16_q5_1: MatmulF16Quant<BlockQ5_1>,
    matmul_f16_q8_0: MatmulF16Quant<BlockQ8_0>,
    matmul_f16_q2_k: MatmulF16Quant<BlockQ2_K>,
    matmul_f16_q3_k: MatmulF16Quant<BlockQ3_K>,
    matmul_f16_q4_k: MatmulF16Quant<BlockQ4_K>,
    matmul_f16_q5_k: MatmulF16Quant<BlockQ5_K>,
    matmul_f16_q6_k: MatmulF16Quant<BlockQ6_K>,
    matmul_f16_q8_k: MatmulF16Quant<BlockQ8_K>,
    matmul_f16_iq4_nl: MatmulF16Quant<BlockIQ4_NL>,
    matmul_f16_iq4_xs: MatmulF16Quant<BlockIQ4_XS>,
    matmul_f16_f32_m32: MatmulF16Quant<f32, 32>,
    matmul_f16_f16_m32: MatmulF16Quant<f16, 32>,
    matmul_f16_bf16_m32: MatmulF16Quant<bf16, 32>,
    matmul_f16_q4_0_m32: MatmulF16Quant<BlockQ4_0, 32>,
    matmul_f16_q4_1_m32: MatmulF16Quant<BlockQ4_1, 32>,
    matmul_f16_q5_0_m32: MatmulF16Quant<BlockQ5_0, 32>,
    matmul_f16_q5_1_m32: MatmulF16Quant<BlockQ5_1, 32>,
    matmul_f16_q8_0_m32: MatmulF16Quant<BlockQ8_0, 32>,
    matmul_f16_q2_k_m32: MatmulF16Quant<BlockQ2_K, 32>,
    matmul_f16_q3_k_m32: MatmulF16Quant<BlockQ3_K, 32>,
    matmul_f16_q4_k_m32: MatmulF16Quant<BlockQ4_K, 32>,
    matmul_f16_q5_k_m32: MatmulF16Quant<BlockQ5_K, 32>,
    matmul_f16_q6_k_m32: MatmulF16Quant<BlockQ6_K, 32>,
    matmul_f16_q8_k_m32: MatmulF16Quant<BlockQ8_K, 32>,
    matmul_f16_iq4_nl_m32: MatmulF16Quant<BlockIQ4_NL, 32>,
    matmul_f16_iq4_xs_m32: MatmulF16Quant<BlockIQ4_XS, 32>,
    unpack_f16_f32: UnpackF16<f32>,
    unpack_f16_f16: UnpackF16<f16>,
    unpack_f16_bf16: UnpackF16<bf16>,
    unpack_f16_q4_0: UnpackF16<BlockQ4_0>,
    unpack_f16_q4_1: UnpackF16<BlockQ4_1>,
    unpack_f16_q5_0: UnpackF16<BlockQ5_0>,
    unpack_f16_q5_1: UnpackF16<BlockQ5_1>,
    unpack_f16_q8_0: UnpackF16<BlockQ8_0>,
    unpack_f16_q2_k: UnpackF16<BlockQ2_K>,
    unpack_f16_q3_k: UnpackF16<BlockQ3_K>,
    unpack_f16_q4_k: UnpackF16<BlockQ4_K>,
    unpack_f16_q5_k: UnpackF16<BlockQ5_K>,
    unpack_f16_q6_k: UnpackF16<BlockQ6_K>,
    unpack_f16_q8_k: UnpackF16<BlockQ8_K>,
    unpack_f16_iq4_nl: UnpackF16<BlockIQ4_NL>,
    unpack_f16_iq4_xs: UnpackF16<BlockIQ4_XS>,
    matmul_f16_wgmma: MatmulF16Wgmma where "sm_90a",
    matmul_f16_wgmma_n240: MatmulF16Wgmma<120> where "sm_90a",
    matmul_f16_wgmma_n128: MatmulF16Wgmma<64> where "sm_90a",
    matmul_f16_wgmma_gated: MatmulF16Wgmma<128, GateUp> where "sm_90a",
    convert_f16: Convert<AsF16>,
    convert_f16_panels: Convert<AsF16Panels>,
    convert_f16_slabs: Convert<AsF16Slabs>,
    convert_q8: Convert<AsQ8>,
    matvec_q8_q4_0: Matvec<Quantized<BlockQ4_0>, 1>,
    matvec_q8_q4_0_split_k: MatvecRows<BlockQ4_0, 1>,
    matvec_q8_q4_0_x2: MatvecRows<BlockQ4_0, 2>,
    matvec_q8_q4_0_x4: MatvecRows<BlockQ4_0, 4>,
    matvec_q8_q4_0_x8: MatvecRows<BlockQ4_0, 8>,
    matvec_q8_q4_1: Matvec<Quantized<BlockQ4_1>, 1>,
    matvec_q8_q4_1_split_k: MatvecRows<BlockQ4_1, 1>,
    matvec_q8_q4_1_x2: MatvecRows<BlockQ4_1, 2>,
    matvec_q8_q4_1_x4: MatvecRows<BlockQ4_1, 4>,
    matvec_q8_q4_1_x8: MatvecRows<BlockQ4_1, 8>,
    matvec_q8_q5_0: Matvec<Quantized<BlockQ5_0>, 1>,
    matvec_q8_q5_0_split_k: MatvecRows<BlockQ5_0, 1>,
    matvec_q8_q5_0_q8_0_split_k: MatvecTwo<BlockQ5_0, BlockQ8_0>,
    matvec_q8_q5_0_x2: MatvecRows<BlockQ5_0, 2>,
    matvec_q8_q5_0_x4: MatvecRows<BlockQ5_0, 4>,
    matvec_q8_q5_0_x8: MatvecRows<BlockQ5_0, 8>,
    matvec_q8_q5_1: Matvec<Quantized<BlockQ5_1>, 1>,
    matvec_q8_q5_1_split_k: MatvecRows<BlockQ5_1, 1>,
    matvec_q8_q5_1_x2: MatvecRows<BlockQ5_1, 2>,
    matvec_q8_q5_1_x4: MatvecRows<BlockQ5_1, 4>,
    matvec_q8_q5_1_x8: MatvecRows<BlockQ5_1, 8>,
    matvec_q8_q8_0: Matvec<Quantized<BlockQ8_0>, 1>,
    matvec_q8_q8_0_split_k: MatvecRows<BlockQ8_0, 1>,
    matvec_q8_q8_0_x2: MatvecRows<BlockQ8_0, 2>,
    matvec_q8_q8_0_x4: MatvecRows<BlockQ8_0, 4>,
    matvec_q8_q8_0_x8: MatvecRows<BlockQ8_0, 8>,
    matvec_q8_q2_k: Matvec<Quantized<BlockQ2_K>, 1>,
    matvec_q8_q2_k_split_k: MatvecRows<BlockQ2_K, 1>,
    matvec_q8_q2_k_x2: MatvecRows<BlockQ2_K, 2>,
    matvec_q8_q2_k_x4: MatvecRows<BlockQ2_K, 4>,
    matvec_q8_q2_k_x8: MatvecRows<BlockQ2_K, 8>,
    matvec_q8_q3_k: Matvec<Quantized<BlockQ3_K>, 1>,
    matvec_q8_q3_k_split_k: MatvecRows<BlockQ3_K, 1>,
    matvec_q8_q3_k_x2: MatvecRows<BlockQ3_K, 2>,
    matvec_q8_q3_k_x4: MatvecRows<BlockQ3_K, 4>,
    matvec_q8_q3_k_x8: MatvecRows<BlockQ3_K, 8>,
    matvec_q8_q4_k: Matvec<Quantized<BlockQ4_K>, 1>,
    matvec_q8_q4_k_split_k: MatvecRows<BlockQ4_K, 1>,
    matvec_q8_q4_k_q6_k_split_k: MatvecTwo<BlockQ4_K, BlockQ6_K>,
    matvec_q8_q4_k_x2: MatvecRows<BlockQ4_K, 2>,
    matvec_q8_q4_k_x4: MatvecRows<BlockQ4_K, 4>,
    matvec_q8_q4_k_x8: MatvecRows<BlockQ4_K, 8>,
    matvec_q8_q5_k: Matvec<Quantized<BlockQ5_K>, 1>,
    matvec_q8_q5_k_split_k: MatvecRows<BlockQ5_K, 1>,
    matvec_q8_q5_k_q6_k_split_k: MatvecTwo<BlockQ5_K, BlockQ6_K>,
    matvec_q8_q5_k_x2: MatvecRows<BlockQ5_K, 2>,
    matvec_q8_q5_k_x4: MatvecRows<BlockQ5_K, 4>,
    matvec_q8_q5_k_x8: MatvecRows<BlockQ5_K, 8>,
    matvec_q8_q6_k: Matvec<Quantized<BlockQ6_K>, 1>,
    matvec_q8_q6_k_split_k: MatvecRows<BlockQ6_K, 1>,
    matvec_q8_q6_k_x2: MatvecRows<BlockQ6_K, 2>,
    matvec_q8_q6_k_x4: MatvecRows<BlockQ6_K, 4>,
    matvec_q8_q6_k_x8: MatvecRows<BlockQ6_K, 8>,
    matvec_q8_q8_k: Matvec<Quantized<BlockQ8_K>, 1>,
    matvec_q8_q8_k_split_k: MatvecRows<BlockQ8_K, 1>,
    matvec_q8_q8_k_x2: MatvecRows<BlockQ8_K, 2>,
    matvec_q8_q8_k_x4: MatvecRows<BlockQ8_K, 4>,
    matvec_q8_q8_k_x8: MatvecRows<BlockQ8_K, 8>,
    matvec_q8_iq4_nl: Matvec<Quantized<BlockIQ4_NL>, 1>,
    matvec_q8_iq4_nl_split_k: MatvecRows<BlockIQ4_NL, 1>,
    matvec_q8_iq4_nl_x2: MatvecRows<BlockIQ4_NL, 2>,
    matvec_q8_iq4_nl_x4: MatvecRows<BlockIQ4_NL, 4>,
    matvec_q8_iq4_nl_x8: MatvecRows<BlockIQ4_NL, 8>,
    matvec_q8_iq4_xs: Matvec<Quantized<BlockIQ4_XS>, 1>,
    matvec_q8_iq4_xs_split_k: MatvecRows<BlockIQ4_XS, 1>,
    matvec_q8_iq4_xs_x2: MatvecRows<BlockIQ4_XS, 2>,
    matvec_q8_iq4_xs_x4: MatvecRows<BlockIQ4_XS, 4>,
    matvec_q8_iq4_xs_x8: MatvecRows<BlockIQ4_XS, 8>,
    matvec_f16_q4_0: Matvec<HalfPieces<BlockQ4_0>, 1>,
    matvec_f16_q4_0_x4: Matvec<HalfPieces<BlockQ4_0>, 4>,
    matvec_f16_q4_1: Matvec<HalfPieces<BlockQ4_1>, 1>,
    matvec_f16_q4_1_x4: Matvec<HalfPieces<BlockQ4_1>, 4>,
    matvec_f16_q5_0: Matvec<HalfPieces<BlockQ5_0>, 1>,
    matvec_f16_q5_0_x4: Matvec<HalfPieces<BlockQ5_0>, 4>,
    matvec_f16_q5_1: Matvec<HalfPieces<BlockQ5_1>, 1>,
    matvec_f16_q5_1_x4: Matvec<HalfPieces<BlockQ5_1>, 4>,
    matvec_f16_q8_0: Matvec<HalfPieces<BlockQ8_0>, 1>,
    matvec_f16_q8_0_x4: Matvec<HalfPieces<BlockQ8_0>, 4>,
    matvec_f16_q2_k: Matvec<HalfPieces<BlockQ2_K>, 1>,
    matvec_f16_q2_k_x4: Matvec<HalfPieces<BlockQ2_K>, 4>,
    matvec_f16_q3_k: Matvec<HalfPieces<BlockQ3_K>, 1>,
    matvec_f16_q3_k_x4: Matvec<HalfPieces<BlockQ3_K>, 4>,
    matvec_f16_q4_k: Matvec<HalfPieces<BlockQ4_K>, 1>,
    matvec_f16_q4_k_x4: Matvec<HalfPieces<BlockQ4_K>, 4>,
    matvec_f16_q5_k: Matvec<HalfPieces<BlockQ5_K>, 1>,
    matvec_f16_q5_k_x4: Matvec<HalfPieces<BlockQ5_K>, 4>,
    matvec_f16_q6_k: Matvec<HalfPieces<BlockQ6_K>, 1>,
    matvec_f16_q6_k_x4: Matvec<HalfPieces<BlockQ6_K>, 4>,
    matvec_f16_q8_k: Matvec<HalfPieces<BlockQ8_K>, 1>,
    matvec_f16_q8_k_x4: Matvec<HalfPieces<BlockQ8_K>, 4>,
    matvec_f16_iq4_nl: Matvec<HalfPieces<BlockIQ4_NL>, 1>,
    matvec_f16_iq4_nl_x4: Matvec<HalfPieces<BlockIQ4_NL>, 4>,
    matvec_f16_iq4_xs: Matvec<HalfPieces<BlockIQ4_XS>, 1>,
    matvec_f16_iq4_xs_x4: Matvec<HalfPieces<BlockIQ4_XS>, 4>,
    matvec_f16_f32: Matvec<HalfNumbers<f32>, 1>,
    matvec_f16_f32_x4: Matvec<HalfNumbers<f32>, 4>,
    matvec_f16_f16: Matvec<HalfNumbers<f16>, 1>,
    matvec_f16_f16_x4: Matvec<HalfNumbers<f16>, 4>,
    matvec_f16_bf16: Matvec<HalfNumbers<bf16>, 1>,
    matvec_f16_bf16_x4: Matvec<HalfNumbers<bf16>, 4>,
    matmul_splitk_q4_0_n8: MatmulSplitK<BlockQ4_0, 4> where "sm_90a",
    matmul_splitk_q4_0_n32: MatmulSplitK<BlockQ4_0, 16> where "sm_90a",
    matmul_splitk_q4_0_n64: MatmulSplitK<BlockQ4_0, 32> where "sm_90a",
    matmul_splitk_q4_1_n8: MatmulSplitK<BlockQ4_1, 4> where "sm_90a",
    matmul_splitk_q4_1_n32: MatmulSplitK<BlockQ4_1, 16> where "sm_90a",
    matmul_splitk_q4_1_n64: MatmulSplitK<BlockQ4_1, 32> where "sm_90a",
    matmul_splitk_q5_0_n8: MatmulSplitK<BlockQ5_0, 4> where "sm_90a",
    matmul_splitk_q5_0_n32: MatmulSplitK<BlockQ5_0, 16> where "sm_90a",
    matmul_splitk_q5_0_n64: MatmulSplitK<BlockQ5_0, 32> where "sm_90a",
    matmul_splitk_q5_1_n8: MatmulSplitK<BlockQ5_1, 4> where "sm_90a",
    matmul_splitk_q5_1_n32: MatmulSplitK<BlockQ5_1, 16> where "sm_90a",
    matmul_splitk_q5_1_n64: MatmulSplitK<BlockQ5_1, 32> where "sm_90a",
    matmul_splitk_q8_0_n8: MatmulSplitK<BlockQ8_0, 4> where "sm_90a",
    matmul_splitk_q8_0_n32: MatmulSplitK<BlockQ8_0, 16> where "sm_90a",
    matmul_splitk_q8_0_n64: MatmulSplitK<BlockQ8_0, 32> where "sm_90a",
    matmul_splitk_q2_k_n8: MatmulSplitK<BlockQ2_K, 4> where "sm_90a",
    matmul_splitk_q2_k_n32: MatmulSplitK<BlockQ2_K, 16> where "sm_90a",
    matmul_splitk_q2_k_n64: MatmulSplitK<BlockQ2_K, 32> where "sm_90a",
    matmul_splitk_q3_k_n8: MatmulSplitK<BlockQ3_K, 4> where "sm_90a",
    matmul_splitk_q3_k_n32: MatmulSplitK<BlockQ3_K, 16> where "sm_90a",
    matmul_splitk_q3_k_n64: MatmulSplitK<BlockQ3_K, 32> where "sm_90a",
    matmul_splitk_q4_k_n8: MatmulSplitK<BlockQ4_K, 4> where "sm_90a",
    matmul_splitk_q4_k_n32: MatmulSplitK<BlockQ4_K, 16> where "sm_90a",
    matmul_splitk_q4_k_n64: MatmulSplitK<BlockQ4_K, 32> where "sm_90a",
    matmul_splitk_q5_k_n8: MatmulSplitK<BlockQ5_K, 4> where "sm_90a",
    matmul_splitk_q5_k_n32: MatmulSplitK<BlockQ5_K, 16> where "sm_90a",
    matmul_splitk_q5_k_n64: MatmulSplitK<BlockQ5_K, 32> where "sm_90a",
    matmul_splitk_q6_k_n8: MatmulSplitK<BlockQ6_K, 4> where "sm_90a",
    matmul_splitk_q6_k_n32: MatmulSplitK<BlockQ6_K, 16> where "sm_90a",
    matmul_splitk_q6_k_n64: MatmulSplitK<BlockQ6_K, 32> where "sm_90a",
    matmul_splitk_q8_k_n8: MatmulSplitK<BlockQ8_K, 4> where "sm_90a",
    matmul_splitk_q8_k_n32: MatmulSplitK<BlockQ8_K, 16> where "sm_90a",
    matmul_splitk_q8_k_n64: MatmulSplitK<BlockQ8_K, 32> where "sm_90a",
    matmul_splitk_iq4_nl_n8: MatmulSplitK<BlockIQ4_NL, 4> where "sm_90a",
    matmul_splitk_iq4_nl_n32: MatmulSplitK<BlockIQ4_NL, 16> where "sm_90a",
    matmul_splitk_iq4_nl_n64: MatmulSplitK<BlockIQ4_NL, 32> where "sm_90a",
    matmul_splitk_iq4_xs_n8: MatmulSplitK<BlockIQ4_XS, 4> where "sm_90a",
    matmul_splitk_iq4_xs_n32: MatmulSplitK<BlockIQ4_XS, 16> where "sm_90a",
    matmul_splitk_iq4_xs_n64: MatmulSplitK<BlockIQ4_XS, 32> where "sm_90a",
    attn_naive: AttnNaive,
    attn_decode: AttnDecode<128>,
    attn_decode_hd64: AttnDecode<64>,
    attn_decode_hd80: AttnDecode<80>,
    attn_decode_hd96: AttnDecode<96>,
    attn_decode_hd256: AttnDecode<256>,
    attn_combine_f32: AttnCombine<AsF32>,
    attn_combine_f16: AttnCombine<AsF16>,
    attn_combine_f16_panels: AttnCombine<AsF16Panels>,
    attn_combine_f16_slabs: AttnCombine<AsF16Slabs>,
    attn_combine_q8: AttnCombine<AsQ8>,
    fa_prefill_f16kv: FaPrefillF16kv<128>,
    fa_prefill_f16kv_hd64: FaPrefillF16kv<64>,
    fa_prefill_f16kv_hd80: FaPrefillF16kv<80>,
    fa_prefill_f16kv_hd96: FaPrefillF16kv<96>,
    fa_prefill_f16kv_hd256: FaPrefillF16kv<256>,
    fa_prefill_f16kv_hd256_tq32: FaPrefillF16kv<256, 32, 32>,
    fa_prefill_f16kv_tkv16: FaPrefillF16kv<128, 64, 16>,
    fa_prefill_f16kv_tkv64: FaPrefillF16kv<128, 64, 64>,
    fa_prefill_f16kv_tq128: FaPrefillF16kv<128, 128, 32>,
    fa_prefill_f16kv_tq48_double: FaPrefillF16kv<128, 48, 32, 2, 1>,
    fa_prefill_f16kv_double: FaPrefillF16kv<128, 64, 32, 2>,
    fa_prefill_f16kv_shared: FaPrefillF16kvShared<128>,
    fa_prefill_f16kv_shared_hd64: FaPrefillF16kvShared<64>,
    fa_prefill_f16kv_shared_hd80: FaPrefillF16kvShared<80>,
    fa_prefill_f16kv_shared_hd96: FaPrefillF16kvShared<96>,
    fa_prefill_f16kv_shared_hd256: FaPrefillF16kvShared<256, 32, 8>,
    fa_prefill_f16kv_shared_tkv32_padded: FaPrefillF16kvShared<128, 32, 8>,
    fa_prefill_f16kv_wgmma: FaPrefillF16kvWgmma<128, 128, 64, 64> where "sm_90a",
    fa_prefill_f16kv_wgmma_hd64: FaPrefillF16kvWgmma<64, 128, 32, 64> where "sm_90a",
    fa_prefill_f16kv_wgmma_hd96: FaPrefillF16kvWgmma<96, 128, 48, 64> where "sm_90a",
    fa_prefill_f16kv_wgmma_hd256: FaPrefillF16kvWgmma<256, 64, 128, 32> where "sm_90a",
    argmax_parts: ArgmaxParts,
    argmax: Argmax,
    top_k: TopK<true>,
    top_k_keys: TopK<false>,
    probe_loads: ProbeLoads,
    probe_wmma: ProbeWmma,
    probe_mma_f16: ProbeMmaF16,
    probe_mma_s8: ProbeMmaS8,
    probe_shared: ProbeShared,
    probe_map_f16: ProbeMapF16,
    probe_map_bf16: ProbeMapBf16 where "sm_80",
    probe_map_s8: ProbeMapS8,
    probe_map_wgmma_n8: ProbeMapWgmma<4> where "sm_90a",
    probe_map_wgmma_n128: ProbeMapWgmma<64> where "sm_90a",
    probe_map_wgmma_n256: ProbeMapWgmma<128> where "sm_90a",
    probe_approximations: ProbeApproximations,
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
