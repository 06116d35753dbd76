//! `lanemap kernels`: every kernel, its contract, and what it takes on a device or an
//! architecture.

use std::io::{self, Write};

use anyhow::Context;
use gpu::kernels::{ALL, Entry};
use gpu::simt::{Architecture, Launch};

use super::UsageError;
use super::device::{Cpu, Device as Choice};
use super::output::to_stdout;
use crate::cuda::{self, Device, Unavailable};
use crate::ptx::{self, Assembler, PtxError, Usage, Variant};

/// List the kernels: contract, registers, memory, occupancy
///
/// On a device, what its driver makes of them; without one, what NVIDIA's assembler does, if ptxas
/// is in PATH or LANEMAP_PTXAS names it. A - stands where there is no such kernel. Dynamic shared memory and blocks per multiprocessor are
/// those of a launch without data: where they depend on the problem, they are the least and the
/// most.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The device to ask: auto (the first, if there is one), cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value_t = Choice::Auto)]
    device: Choice,

    /// Ask ptxas about this architecture instead, such as sm_86
    #[arg(long, value_name = "ARCH", conflicts_with = "device")]
    arch: Option<String>,

    /// Show the instructions that each kernel's PTX is checked for
    #[arg(long)]
    contract: bool,
}

/// What one kernel takes; `None` where it was not asked or cannot be known.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    registers: Option<u32>,
    local_bytes: Option<u32>,
    static_shared_bytes: Option<u32>,
    blocks: Option<u32>,
}

/// Where the numbers come from, and those of each kernel in the order of [`ALL`]; `None` for one that
/// there is not on the device or architecture.
struct Table {
    source: String,
    rows: Vec<Option<Row>>,
}

/// Runs the command.
///
/// # Errors
/// The device or architecture that was named cannot be asked, or the output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let table = match (&args.arch, args.device) {
        (Some(architecture), _) => assembled(architecture)?,
        (None, Choice::Cuda(index)) => {
            let opened = Device::open(index);
            on_device(opened.map_err(|error| {
                anyhow::anyhow!("--device {}: {error}; --arch sm_86 asks ptxas instead", args.device)
            })?)?
        }
        (None, Choice::StandIn(Cpu)) => {
            let message = "--device cpu: the kernels run on a GPU; name one, or an architecture with --arch";
            return Err(UsageError(message.to_owned()).into());
        }
        (None, Choice::Auto) => match cuda::devices() {
            Ok(_) => on_device(Device::open(0)?)?,
            Err(cuda::Error::Unavailable(why)) => without_device(&why)?,
            Err(error) => return Err(error.into()),
        },
    };
    to_stdout(|out| write(out, &table, args.contract))
}

/// Of a device, what its driver made of the kernels.
fn on_device(device: Device) -> anyhow::Result<Table> {
    let description = device.description();
    device.prepare(ALL.iter().filter(|entry| entry.needs.runs_on(description.sm)).map(|entry| entry.name))?;
    let rows = ALL.iter().map(|entry| {
        if !entry.needs.runs_on(description.sm) {
            return Ok(None);
        }
        let taken = device.resources(entry.name, &entry.launch())?;
        Ok(Some(Row {
            registers: Some(taken.registers),
            local_bytes: Some(taken.local_bytes),
            static_shared_bytes: Some(taken.static_shared_bytes),
            blocks: Some(taken.blocks_per_multiprocessor),
        }))
    });
    let rows = rows.collect::<Result<_, cuda::Error>>()?;
    Ok(Table { source: format!("{description}, kernels for {}", description.variant()?.name()), rows })
}

/// Of an architecture, what `ptxas` makes of the kernels.
fn assembled(architecture: &str) -> anyhow::Result<Table> {
    let (_, variant, usage) = assemble(architecture, &[])?;
    let rows = ALL.iter().map(|entry| {
        let taken = usage.iter().find(|usage| usage.kernel == entry.name);
        let row = taken.map_or_else(Row::default, |taken| Row {
            registers: Some(taken.registers),
            local_bytes: Some(taken.stack_bytes.saturating_add(taken.spill_bytes)),
            static_shared_bytes: Some(taken.static_shared_bytes),
            blocks: None,
        });
        entry.needs.is_in(variant.architecture()).then_some(row)
    });
    let rows = rows.collect();
    Ok(Table { source: format!("ptxas for {architecture}, from the PTX for {}", variant.name()), rows })
}

/// What `ptxas` makes of the kernels of these names, or of all if there are none, on an architecture
/// such as `sm_86`: its number, the PTX it read, and what each kernel takes.
///
/// # Errors
/// There is no `ptxas`, no such architecture or no PTX for it; those of `ptxas`.
pub(super) fn assemble(
    architecture: &str,
    kernels: &[&str],
) -> anyhow::Result<(u32, &'static Variant, Vec<Usage>)> {
    let assembler = Assembler::find()
        .context("--arch asks ptxas: put it into PATH, or its path into LANEMAP_PTXAS (`pip install nvidia-cuda-nvcc` has one)")?;
    let number =
        architecture.strip_prefix("sm_").map(|name| name.trim_end_matches(|c: char| c.is_ascii_lowercase()));
    let Some(sm) = number.and_then(|number| number.parse().ok()) else {
        return Err(UsageError(format!("--arch {architecture}: not an architecture such as sm_86")).into());
    };
    let mut variant = ptx::variant_for(sm).map_err(|error| match error {
        PtxError::TooOld { oldest, .. } => {
            UsageError(format!("--arch {architecture}: no kernels for it: they are for sm_{oldest} or later"))
                .into()
        }
        PtxError::NotBuilt { .. } => anyhow::Error::from(error),
    })?;
    if variant.exact && variant.name() != architecture {
        // sm_90 without the a: what runs on every later one too.
        variant = ptx::variants()?.iter().rfind(|other| !other.exact && other.runs_on(sm)).unwrap_or(variant);
    }
    Ok((sm, variant, assembler.usage(variant.text(), architecture, kernels)?))
}

/// Without a device: the first architecture that there is PTX for and `ptxas` assembles, or the
/// contracts alone.
fn without_device(why: &Unavailable) -> anyhow::Result<Table> {
    let nothing = |reason: String| Table { source: reason, rows: vec![Some(Row::default()); ALL.len()] };
    let variants = match ptx::variants() {
        Ok(variants) => variants,
        Err(error) => return Ok(nothing(format!("no CUDA device: {why}; {error}"))),
    };
    let (Some(newest), Some(_)) = (variants.last(), Assembler::find()) else {
        return Ok(nothing(format!(
            "no CUDA device: {why}; and no ptxas in PATH or LANEMAP_PTXAS: contracts only"
        )));
    };
    let table = assembled(&newest.name())?;
    Ok(Table { source: format!("no CUDA device: {why}; {}", table.source), ..table })
}

fn write(out: &mut dyn Write, table: &Table, contract: bool) -> io::Result<()> {
    writeln!(out, "{}", table.source)?;
    let width = ALL.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    writeln!(
        out,
        "{:width$}  threads  registers (most)  local bytes  shared bytes static + dynamic  blocks/SM",
        "kernel"
    )?;
    for (entry, row) in ALL.iter().zip(&table.rows) {
        let Launch { threads, shared_bytes, .. } = entry.launch();
        let cell = |value: fn(&Row) -> Option<u32>| match row {
            Some(row) => value(row).map_or_else(|| "?".to_owned(), |value| value.to_string()),
            None => "-".to_owned(),
        };
        write!(
            out,
            "{:width$}  {threads:7}  {:>9} {:>6}  {:>11}  {:>19} + {shared_bytes:<7}  {:>9}",
            entry.name,
            cell(|row| row.registers),
            format!("({})", entry.expectations.registers),
            cell(|row| row.local_bytes),
            cell(|row| row.static_shared_bytes),
            cell(|row| row.blocks),
        )?;
        match row {
            Some(_) => writeln!(out)?,
            None => writeln!(out, "  needs {}", range(entry.needs))?,
        }
        if contract {
            instructions(out, entry)?;
        }
    }
    Ok(())
}

/// The architectures that have what needs this one.
fn range(needs: Architecture) -> String {
    format!("{needs}{}", if needs.exact { "" } else { " or later" })
}

fn instructions(out: &mut dyn Write, entry: &Entry) -> io::Result<()> {
    let local = if entry.expectations.local_memory { "may use" } else { "does not use" };
    let (bytes, needs) = (entry.argument_bytes, range(entry.needs));
    writeln!(out, "    {bytes} bytes of arguments, {local} local memory, needs {needs}")?;
    for occurrence in entry.expectations.instructions {
        write!(out, "    {}: {}", occurrence.instruction, occurrence.count)?;
        match occurrence.since {
            0 => writeln!(out)?,
            since => writeln!(out, " (from sm_{since} on)")?,
        }
    }
    Ok(())
}
