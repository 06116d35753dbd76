//! The kernels through Rust-CUDA's `rustc_codegen_nvvm`, under the feature `nvvm`.
//!
//! `cuda_builder` compiles that backend as its dependency and runs a cargo of its own with it,
//! which compiles `gpu/nvvm`: `gpu`, with the feature of the same name, as one file.

use cuda_builder::{CudaBuilder, NvvmArch};

use crate::{Failure, Variant, broken, out_dir};

/// What the kernels are compiled for. `cuda_builder` 0.3 has nothing above compute_80.
const TARGETS: [(u32, NvvmArch); 2] = [(75, NvvmArch::Compute75), (80, NvvmArch::Compute80)];

/// How to mend a build without a compiler.
pub(crate) const REMEDY: &str = "leave out the feature nvvm";

/// Compiles `gpu` once for each of [`TARGETS`].
pub(crate) fn compile_all() -> Result<Vec<Variant>, Failure> {
    TARGETS.into_iter().map(|(sm, arch)| compile(sm, arch)).collect()
}

fn compile(sm: u32, arch: NvvmArch) -> Result<Variant, Failure> {
    let path = out_dir()?.join(format!("sm_{sm}.ptx"));
    CudaBuilder::new("../gpu/nvvm")
        .arch(arch)
        // `release` would add `--release`, and that profile is the host's.
        .release(false)
        .nvvm_opts(true)
        .build_args(&["--profile", "ptx", "--features", "nvvm"])
        // `a * b + c` is rounded twice (`Simt::fma`).
        .fma_contraction(false)
        .override_libm(false)
        .copy_to(&path)
        .build()
        .map_err(|error| broken(format!("the kernels do not compile for sm_{sm} through NVVM: {error}")))?;
    Ok(Variant { sm, exact: false, path })
}
