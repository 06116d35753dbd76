//! Build script of the package `host`: compiles the package `gpu` to PTX, once for each
//! architecture, checks the text against what its kernels expect, and leaves it in `OUT_DIR`
//! with a table that `host::ptx` includes.
//!
//! Without a compiler for that the build is for the CPU only, and says how to mend it.

use std::env;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use gpu::simt::Architecture;

#[cfg_attr(feature = "nvvm", path = "build/nvvm.rs")]
#[cfg_attr(not(feature = "nvvm"), path = "build/rustc.rs")]
mod compiler;

/// PTX that a compiler wrote.
struct Variant {
    architecture: Architecture,
    /// The architecture whose kernels it has.
    kernels_of: Architecture,
    path: PathBuf,
}

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=../build.rs");
    println!("cargo::rerun-if-changed=../build");
    println!("cargo::rerun-if-changed=../gpu");
    println!("cargo::rerun-if-changed=../Cargo.toml");
    println!("cargo::rerun-if-env-changed=LANEMAP_PTX_RUSTC");

    println!("cargo::rustc-check-cfg=cfg(cuda)");
    if has_driver() {
        println!("cargo::rustc-cfg=cuda");
    }

    let result = match compile_all() {
        Err(Failure::Unavailable(why)) => {
            println!("cargo::warning=built for the CPU only: {why}. To add the GPU: {}", compiler::REMEDY);
            write_table(&[], Some(&why))
        }
        result => result,
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Unavailable(why) | Failure::Broken(why)) => {
            println!("cargo::error={}", why.replace('\n', "\ncargo::error="));
            ExitCode::FAILURE
        }
    }
}

enum Failure {
    /// There is no compiler, or nothing to make it complete; the CPU needs none.
    #[cfg_attr(feature = "nvvm", expect(dead_code, reason = "that compiler has been asked for by name"))]
    Unavailable(String),
    /// There is one, and the kernels fail.
    Broken(String),
}

fn broken(why: impl ToString) -> Failure {
    Failure::Broken(why.to_string())
}

/// Whether the target is one that `host/Cargo.toml` has `cust` for.
fn has_driver() -> bool {
    let is = |variable: &str, values: &[&str]| {
        env::var(variable).is_ok_and(|value| values.contains(&value.as_str()))
    };
    is("CARGO_CFG_TARGET_OS", &["linux"]) && is("CARGO_CFG_TARGET_ARCH", &["x86_64", "aarch64"])
}

fn out_dir() -> Result<PathBuf, Failure> {
    env::var_os("OUT_DIR").map(PathBuf::from).ok_or_else(|| broken("OUT_DIR is not set: run by cargo only"))
}

fn compile_all() -> Result<(), Failure> {
    let mut variants = compiler::compile_all()?;
    for Variant { architecture, kernels_of, path } in &mut variants {
        let failed = |path: &Path, error| broken(format!("{}: {error}", path.display()));
        let written = fs::read_to_string(&path).map_err(|error| failed(path, error))?;
        let ptx = gpu::kernels::limited(&written, *kernels_of);
        // The compiler's file stays as it is: it is not written again when the script is run again.
        *path = out_dir()?.join(architecture.to_string()).with_extension("ptx");
        fs::write(&path, &ptx).map_err(|error| failed(path, error))?;
        gpu::kernels::check(&ptx, *kernels_of).map_err(|violation| {
            broken(format!("{architecture}: {violation}\nThe PTX is {}", path.display()))
        })?;
    }
    write_table(&variants, None)
}

/// Writes the table that `host::ptx` includes.
fn write_table(variants: &[Variant], missing: Option<&str>) -> Result<(), Failure> {
    let mut text = format!("pub(super) static VARIANTS: [Variant; {}] = [\n", variants.len());
    for Variant { architecture: Architecture { sm, exact }, path, .. } in variants {
        let packed = packed(path).map_err(|error| broken(format!("{}: {error}", path.display())))?;
        let _ = writeln!(text, "    Variant::new({sm}, {exact}, include_bytes!({packed:?})),");
    }
    let missing = missing.map(|why| (why, compiler::REMEDY));
    let _ = writeln!(text, "];\npub(super) const MISSING: Option<(&str, &str)> = {missing:?};");
    let path = out_dir()?.join("ptx.rs");
    fs::write(&path, text).map_err(|error| broken(format!("{}: {error}", path.display())))
}

/// Compresses a file into one beside it, to about a seventh.
fn packed(path: &Path) -> io::Result<PathBuf> {
    let to = path.with_extension("ptx.z");
    let mut encoder = ZlibEncoder::new(File::create(&to)?, Compression::default());
    encoder.write_all(&fs::read(path)?)?;
    encoder.finish()?;
    Ok(to)
}
