//! Running `ptxas`, NVIDIA's assembler, for what it says of each kernel: no GPU is needed.

use std::env;
use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;

use thiserror::Error;

/// What a kernel takes on one architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The kernel's exported name.
    pub kernel: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes that a thread spills: stores and loads.
    pub spill_bytes: u32,
    /// Bytes of a thread's stack frame.
    pub stack_bytes: u32,
    /// Bytes of shared memory that are fixed at compile time.
    pub static_shared_bytes: u32,
}

/// Why `ptxas` gave no answer.
#[derive(Debug, Error)]
pub enum PtxasError {
    /// It could not be started.
    #[error("{assembler} does not start: {cause}; {REMEDY}")]
    Start {
        /// What was to be run.
        assembler: Assembler,
        /// Why it was not.
        cause: io::Error,
    },
    /// It is something else.
    #[error("{assembler} is no ptxas: it {}; {REMEDY}", said(message))]
    Other {
        /// What was run.
        assembler: Assembler,
        /// What it said first, or nothing.
        message: String,
    },
    /// It does not know the architecture.
    #[error("{assembler} does not know {architecture}: name another architecture, or use a later ptxas")]
    Architecture {
        /// What was run.
        assembler: Assembler,
        /// What it was to assemble for.
        architecture: String,
    },
    /// A temporary file could not be written.
    #[error("temporary file for ptxas: {0}")]
    Temporary(io::Error),
    /// It refused the PTX.
    #[error("ptxas for {architecture}: {message}")]
    Refused {
        /// What it assembled for.
        architecture: String,
        /// What it said, its lines joined by `; `.
        message: String,
    },
    /// It said something else than what is known of it.
    #[error("ptxas for {architecture}: unexpected output for {kernel}")]
    Unexpected {
        /// What it assembled for.
        architecture: String,
        /// Where its output is not as expected.
        kernel: String,
    },
}

/// What to do about something that is no `ptxas`.
const REMEDY: &str =
    "LANEMAP_PTXAS has to be the path of NVIDIA's ptxas (`pip install nvidia-cuda-nvcc` has one), or unset";

fn said(message: &str) -> String {
    if message.is_empty() { "says nothing".to_owned() } else { format!("says '{message}'") }
}

/// A `ptxas` to run.
#[derive(Clone, Debug)]
pub struct Assembler {
    program: PathBuf,
    /// Whether `LANEMAP_PTXAS` names it.
    named: bool,
}

/// Where it is, and who says so.
impl fmt::Display for Assembler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.named { "LANEMAP_PTXAS=" } else { "" }, self.program.display())
    }
}

impl Assembler {
    /// The one that `LANEMAP_PTXAS` names if it is not empty, or the first in `PATH`.
    #[must_use]
    pub fn find() -> Option<Self> {
        if let Some(program) = env::var_os("LANEMAP_PTXAS").filter(|program| !program.is_empty()) {
            return Some(Self { program: program.into(), named: true });
        }
        let paths = env::var_os("PATH")?;
        let program = env::split_paths(&paths).map(|path| path.join("ptxas")).find(|path| path.is_file())?;
        Some(Self { program, named: false })
    }

    /// Assembles PTX for an architecture such as `sm_86`: what each kernel takes, in the order
    /// of the file's entry points. Only the kernels of these names, or all if there are none.
    ///
    /// # Errors
    /// If it does not run, refuses the PTX, or answers something unknown.
    pub fn usage(&self, ptx: &str, architecture: &str, kernels: &[&str]) -> Result<Vec<Usage>, PtxasError> {
        let folder = tempfile::tempdir().map_err(PtxasError::Temporary)?;
        let source = folder.path().join("kernels.ptx");
        fs::write(&source, ptx).map_err(PtxasError::Temporary)?;
        let output = Command::new(&self.program)
            .arg("--verbose")
            .arg(format!("--gpu-name={architecture}"))
            .arg("--output-file")
            .arg(folder.path().join("kernels.cubin"))
            .args(kernels.iter().map(|kernel| format!("--entry={kernel}")))
            .arg(&source)
            .output()
            .map_err(|cause| PtxasError::Start { assembler: self.clone(), cause })?;
        let messages = String::from_utf8_lossy(&output.stderr);
        // All its messages begin with its name.
        if !messages.lines().any(|line| line.starts_with("ptxas")) {
            let message = messages.lines().next().unwrap_or_default().trim().to_owned();
            return Err(PtxasError::Other { assembler: self.clone(), message });
        }
        if !output.status.success() {
            let architecture = architecture.to_owned();
            if messages.contains(&format!("Value '{architecture}' is not defined")) {
                return Err(PtxasError::Architecture { assembler: self.clone(), architecture });
            }
            let lines: Vec<_> = messages.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            return Err(PtxasError::Refused { architecture, message: lines.join("; ") });
        }
        parse(&messages)
            .map_err(|kernel| PtxasError::Unexpected { architecture: architecture.to_owned(), kernel })
    }
}

/// Reads the messages of `ptxas --verbose`; an error names the kernel that they say too little of.
fn parse(messages: &str) -> Result<Vec<Usage>, String> {
    let mut kernels = Vec::new();
    for section in messages.split("Compiling entry function '").skip(1) {
        let kernel = section.split('\'').next().unwrap_or_default().to_owned();
        // A function that is not a kernel has properties, but no registers of its own.
        let section = section.split("\nptxas info    : Function properties").take(2).collect::<String>();
        let (Some(registers), Some(stack_bytes), Some(stores), Some(loads)) = (
            number_before(&section, " registers"),
            number_before(&section, " bytes stack frame"),
            number_before(&section, " bytes spill stores"),
            number_before(&section, " bytes spill loads"),
        ) else {
            return Err(kernel);
        };
        let static_shared_bytes = number_before(&section, " bytes smem").unwrap_or(0);
        let spill_bytes = stores.saturating_add(loads);
        kernels.push(Usage { kernel, registers, spill_bytes, stack_bytes, static_shared_bytes });
    }
    Ok(kernels)
}

/// The number that stands right before `what`.
fn number_before(text: &str, what: &str) -> Option<u32> {
    let (before, _) = text.split_once(what)?;
    let digits = before.rsplit(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read() {
        let messages = "ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'one' for 'sm_80'
ptxas info    : Function properties for one
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers, 384 bytes cmem[0]
ptxas info    : Compile time = 4.5 ms
ptxas info    : Compiling entry function 'two' for 'sm_80'
ptxas info    : Function properties for two
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 16 bytes cumulative stack size, 1024 bytes smem
ptxas info    : Function properties for panic
    4 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
";
        let usage = |kernel: &str, registers, spill_bytes, stack_bytes, static_shared_bytes| Usage {
            kernel: kernel.to_owned(),
            registers,
            spill_bytes,
            stack_bytes,
            static_shared_bytes,
        };
        assert_eq!(parse(messages), Ok(vec![usage("one", 12, 0, 0, 0), usage("two", 255, 20, 16, 1024)]));
        assert_eq!(parse("Compiling entry function 'odd' for 'sm_80'\n"), Err("odd".to_owned()));
    }
}
