//! The kernels through rustc's own backend.
//!
//! The compiler is the first of these that has what it takes:
//!
//! 1. `LANEMAP_PTX_RUSTC`, if it is set;
//! 2. the compiler of this build, if its toolchain has `core` for the GPU (`rust-toolchain.toml`
//!    asks rustup for it) or the library's source;
//! 3. `/usr/bin/rustc`, likewise: a distribution's compiler with its library source.
//!
//! The kernels need unstable features, so this one compilation runs with `RUSTC_BOOTSTRAP=1`.

use std::env;
use std::fs::{self, File};
use std::io;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, ScopedJoinHandle};

use gpu::simt::Architecture;

use crate::{Failure, Variant, broken, out_dir};

/// The GPU's name as a target of rustc.
const TRIPLE: &str = "nvptx64-nvidia-cuda";

/// What the kernels are compiled for.
const TARGETS: [Target; 3] = [
    Target { architecture: Architecture::OLDEST, version: Some("+ptx70") },
    Target { architecture: Architecture { sm: 80, exact: false }, version: None },
    Target { architecture: Architecture { sm: 90, exact: true }, version: None },
];

/// LLVM's options for the kernels.
///
/// Loops over registers must be unrolled, or the registers are an array in local memory; loops
/// over memory are unrolled where the kernel says so. The other two keep LLVM from copying a
/// block into both arms of a branch: it cannot see that an instruction inside `asm!` joins the
/// lanes of a warp, which then no longer meet.
const LLVM_ARGS: &str = "-unroll-threshold=100000 -unroll-runtime=false \
    -simplifycfg-max-small-block-size=0 -enable-nontrivial-unswitch=false";

/// How to mend a build without a compiler.
pub(crate) const REMEDY: &str = "rustup target add nvptx64-nvidia-cuda";

struct Target {
    architecture: Architecture,
    /// Raises the PTX's version above the architecture's own: `ldmatrix` and `mma` are younger than sm_75.
    version: Option<&'static str>,
}

/// Compiles `gpu` once for each of [`TARGETS`], all at a time: each is one file, which one core
/// compiles.
pub(crate) fn compile_all() -> Result<Vec<Variant>, Failure> {
    let compiler = Compiler::find()?;
    let [first, others @ ..] = &TARGETS;
    let from = first.folder()?;
    for other in others {
        let to = other.folder()?;
        if !to.exists() {
            // What `gpu` depends on is the same for all: `core` alone takes longer than the kernels.
            compiler.compile(first)?;
            let copied = copy(&from, &to.with_extension("new"));
            copied
                .and_then(|()| fs::rename(to.with_extension("new"), &to))
                .map_err(|error| broken(format!("{}: {error}", to.display())))?;
        }
    }
    thread::scope(|scope| {
        let running: Vec<_> = TARGETS.iter().map(|target| scope.spawn(|| compiler.compile(target))).collect();
        let done =
            |thread: ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        running.into_iter().map(done).collect()
    })
}

impl Target {
    /// Where cargo compiles for it. One each: cargo locks it, and the outer cargo holds the lock of
    /// the usual one.
    fn folder(&self) -> Result<PathBuf, Failure> {
        Ok(out_dir()?.join("gpu").join(self.architecture.to_string()))
    }
}

/// Copies a folder with the times of its files, which tell cargo what is up to date.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to)?;
        } else {
            fs::copy(&from, &to)?;
            File::options().write(true).open(&to)?.set_modified(entry.metadata()?.modified()?)?;
        }
    }
    Ok(())
}

/// A rustc that can compile for the GPU.
struct Compiler {
    rustc: PathBuf,
    /// Whether `core` has to be compiled from the toolchain's source first.
    build_core: bool,
}

impl Compiler {
    fn find() -> Result<Self, Failure> {
        if let Some(rustc) = env::var_os("LANEMAP_PTX_RUSTC") {
            let rustc = PathBuf::from(rustc);
            return Self::with(&rustc).ok_or_else(|| {
                broken(format!(
                    "LANEMAP_PTX_RUSTC={}: it cannot be run, or has neither core for {TRIPLE} nor the \
                     library's source",
                    rustc.display()
                ))
            });
        }
        let active = PathBuf::from(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        if let Some(sysroot) = print(&active, &["sysroot"]) {
            // The list of components is what rustup rewrites when it adds a target.
            let components = Path::new(&sysroot).join("lib/rustlib/components");
            if components.exists() {
                println!("cargo::rerun-if-changed={}", components.display());
            }
        }
        Self::with(&active)
            .or_else(|| Self::with(Path::new("/usr/bin/rustc")))
            .ok_or_else(|| Failure::Unavailable("no compiler for the GPU's kernels was found".to_owned()))
    }

    /// This rustc, if it has `core` for the GPU or its source.
    fn with(rustc: &Path) -> Option<Self> {
        let sysroot = PathBuf::from(print(rustc, &["sysroot"])?);
        // Under rustup `rustc` is a proxy that chooses a toolchain by its environment.
        let own = sysroot.join("bin").join(rustc.file_name()?);
        let rustc = if own.exists() { own } else { rustc.to_owned() };
        let library = print(&rustc, &["target-libdir", "--target", TRIPLE]).map(PathBuf::from);
        let has_core = library.and_then(|path| fs::read_dir(path).ok()).is_some_and(|mut files| {
            files
                .any(|file| file.is_ok_and(|file| file.file_name().to_string_lossy().starts_with("libcore-")))
        });
        let has_source = sysroot.join("lib/rustlib/src/rust/library/core").exists();
        (has_core || has_source).then_some(Self { rustc, build_core: !has_core })
    }

    /// Compiles `gpu` for `target`.
    fn compile(&self, target: &Target) -> Result<Variant, Failure> {
        let folder = target.folder()?;
        // Only rustc may write it: cargo takes it for done as long as the sources are the same.
        let path = folder.join("kernels.ptx");
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        // What this build was told about its own target is wrong for the kernels'.
        for (name, _) in env::vars_os() {
            let text = name.to_string_lossy();
            let ours =
                ["CARGO_BUILD_", "CARGO_TARGET_", "CARGO_PROFILE_", "CARGO_UNSTABLE_", "RUSTC", "RUSTFLAGS"];
            if ours.iter().any(|prefix| text.starts_with(prefix)) || text == "RUSTUP_TOOLCHAIN" {
                cargo.env_remove(&name);
            }
        }
        cargo
            .env("RUSTC", &self.rustc)
            .env("RUSTC_BOOTSTRAP", "1")
            // Set and empty: it also overrides flags in configuration files.
            .env("CARGO_ENCODED_RUSTFLAGS", "")
            .args(["rustc", "--package", "gpu", "--lib", "--crate-type", "staticlib", "--profile", "ptx"])
            .args(["--manifest-path", "../Cargo.toml", "--target", TRIPLE])
            .arg("--target-dir")
            .arg(&folder);
        if self.build_core {
            cargo.arg("-Zbuild-std=core");
        }
        cargo.arg("--").arg(format!("--emit=asm={}", path.display()));
        cargo.arg(format!("-Ctarget-cpu={}", target.architecture)).arg(format!("-Cllvm-args={LLVM_ARGS}"));
        if let Some(version) = target.version {
            cargo.arg(format!("-Ctarget-feature={version}"));
        }
        let output = cargo.output().map_err(|error| broken(format!("{cargo:?}: {error}")))?;
        if output.status.success() {
            let architecture = target.architecture;
            return Ok(Variant { architecture, kernels_of: architecture, path });
        }
        let (rustc, messages) = (self.rustc.display(), String::from_utf8_lossy(&output.stderr));
        if self.build_core && !messages.contains("could not compile `gpu`") {
            // Its own dependencies may have to be fetched, and there may be no network.
            let last = messages.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message");
            return Err(Failure::Unavailable(format!("{rustc} could not build core: {}", last.trim())));
        }
        Err(broken(format!(
            "the kernels do not compile for {} with {rustc}:\n{messages}",
            target.architecture
        )))
    }
}

/// What `rustc --print` says, if it runs.
fn print(rustc: &Path, what: &[&str]) -> Option<String> {
    let output = Command::new(rustc).arg("--print").args(what).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
