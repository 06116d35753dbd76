//! `lanemap experiment`: a variant of the attention kernel against the landed one, and the ledger.

mod ledger;

use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressStyle};

use super::UsageError;
use super::device::Device as Choice;
use super::kernels::assemble;
use super::output::to_stdout;
use crate::experiment::{
    ALL, Assembled, EMULATED_BYTES, EMULATED_TILES, Emulation, Experiment, Format, HOST_BYTES, Kernel,
    Machine, Options, Report, run as experiment, steps,
};
use crate::ptx::{self, Assembler};

/// Run a variant of the attention kernel against the landed one
///
/// Gates come first: parity with f64, the same bits run after run, the landed kernel's bits where the
/// contract promises them. At the first red one it stops, and measures nothing. Then come registers,
/// shared memory, occupancy, what a tile costs, and on a GPU the time of both in turns, each beside what
/// the source documents say of it.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    /// The experiment, as `--list` names them
    #[arg(required_unless_present = "list")]
    name: Option<String>,

    /// List the experiments
    #[arg(long, conflicts_with_all = ["name", "device", "arch", "tokens", "heads", "kv_heads", "pairs", "seed", "output"])]
    list: bool,

    /// auto (the first GPU, else the emulator), cpu (the emulator), cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value_t = Choice::Auto)]
    device: Choice,

    /// On the emulator: the architecture that ptxas is asked about, such as sm_86 [default: sm_90a]
    #[arg(long, value_name = "ARCH")]
    arch: Option<String>,

    /// Tokens of the prompt that is compared and timed [default: 3314, on the emulator 130]
    #[arg(long, value_name = "N", value_parser = up_to(1 << 20))]
    tokens: Option<usize>,

    /// Query heads [default: 28, on the emulator 2]
    #[arg(long, value_name = "N", value_parser = up_to(1024))]
    heads: Option<usize>,

    /// KV heads, of which --heads is a multiple [default: 4, on the emulator 1]
    #[arg(long, value_name = "N", value_parser = up_to(1024))]
    kv_heads: Option<usize>,

    /// Pairs of batches that are timed on a GPU
    #[arg(long, value_name = "N", default_value = "15")]
    #[arg(value_parser = up_to(10_000))]
    pairs: usize,

    /// Seed of the inputs, which are even between -1 and 1
    #[arg(short = 's', long, value_name = "N", default_value_t = 42)]
    seed: u64,

    /// The report's format
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Md)]
    output: Format,
}

/// The name of the subcommand, which the parser takes for an experiment's after a flag.
const LEDGER: &str = "ledger";

/// What is no experiment.
#[derive(Debug, clap::Subcommand)]
enum Command {
    #[command(name = LEDGER)]
    Ledger(ledger::Args),
}

/// Query heads, KV heads and tokens, and rows of the prompt that are held against f64.
struct Size {
    heads: usize,
    kv_heads: usize,
    tokens: usize,
    sampled: usize,
}

/// A model of 7 B parameters and the prompt of the source documents.
const ON_A_DEVICE: Size = Size { heads: 28, kv_heads: 4, tokens: 3314, sampled: 24 };
/// What takes the emulator seconds.
const EMULATED: Size = Size { heads: 2, kv_heads: 1, tokens: 130, sampled: 130 };

/// Runs the command.
///
/// # Errors
/// A [`UsageError`] for an experiment that there is not; a red gate, after the report; a machine that
/// cannot be had or fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(Command::Ledger(args)) = &args.command {
        return ledger::run(args);
    }
    // The parser has seen one of both.
    let Some(name) = &args.name else { return to_stdout(list) };
    let Some(experiment) = Experiment::find(name) else {
        if name == LEDGER {
            let message = "the ledger's flags come after `ledger`: `lanemap experiment ledger -o json`; it has those that \
                 `lanemap experiment ledger --help` lists";
            return Err(UsageError(message.to_owned()).into());
        }
        let names: Vec<_> = ALL.iter().map(|experiment| experiment.name).collect();
        let message = format!("no experiment '{name}': there are {}, and `{LEDGER}`", names.join(", "));
        return Err(UsageError(message).into());
    };
    match args.device.gpu()? {
        Some(_) if args.arch.is_some() => {
            let message = "--arch is for the emulator: a GPU's driver knows its own; add --device cpu";
            Err(UsageError(message.to_owned()).into())
        }
        Some(device) => {
            let options = options(args, &ON_A_DEVICE)?;
            fits("the host", options.host_bytes(), HOST_BYTES, &options)?;
            let (free, _) = device.memory()?;
            fits(&device.description().name, options.device_bytes(), free.into(), &options)?;
            report(args, experiment, &device.stream()?, &options)
        }
        None => {
            let options = options(args, &EMULATED)?;
            fits("the emulator", options.host_bytes(), EMULATED_BYTES, &options)?;
            in_time(&options)?;
            let assembled = assembled(args.arch.as_deref(), &[Kernel::Landed, experiment.variant])?;
            report(args, experiment, &Emulation::new(assembled), &options)
        }
    }
}

fn options(args: &Args, size: &Size) -> anyhow::Result<Options> {
    let heads = args.heads.unwrap_or(size.heads);
    let kv_heads =
        args.kv_heads.unwrap_or(if heads.is_multiple_of(size.kv_heads) { size.kv_heads } else { 1 });
    if !heads.is_multiple_of(kv_heads) {
        return Err(UsageError(format!("--heads {heads} is no multiple of --kv-heads {kv_heads}")).into());
    }
    Ok(Options {
        heads: [heads, kv_heads, Kernel::Landed.tiles().head_size() as usize],
        shapes: Options::ragged(),
        tokens: args.tokens.unwrap_or(size.tokens),
        sampled: size.sampled,
        pairs: args.pairs,
        seed: args.seed,
    })
}

/// A whole number from 1 up to `most`.
fn up_to(most: usize) -> impl Fn(&str) -> Result<usize, String> + Clone {
    move |text| match text.parse() {
        Ok(0) => Err("at least 1".to_owned()),
        Ok(number) if number > most => Err(format!("at most {most}")),
        Ok(number) => Ok(number),
        Err(_) => Err(format!("not a whole number from 1 to {most}")),
    }
}

/// That what is allocated at a place is no more than it has.
fn fits(place: &str, bytes: u128, most: u128, options: &Options) -> Result<(), UsageError> {
    if bytes <= most {
        return Ok(());
    }
    Err(UsageError(format!(
        "{}: {} MiB in the memory of {place}, at most {} MiB; lower --tokens or --heads",
        flags(options),
        bytes.div_ceil(1 << 20),
        most >> 20
    )))
}

/// That the emulator is done in minutes.
fn in_time(options: &Options) -> Result<(), UsageError> {
    let tiles = options.tiles();
    if tiles <= EMULATED_TILES {
        return Ok(());
    }
    Err(UsageError(format!(
        "{}: {tiles} tiles for the emulator, which plays at most {EMULATED_TILES}, in about two minutes; lower \
         --tokens or --heads, or use a GPU",
        flags(options)
    )))
}

/// The flags that decide how large an experiment is.
fn flags(options: &Options) -> String {
    let [heads, kv_heads, _] = options.heads;
    format!("--tokens {} --heads {heads} --kv-heads {kv_heads}", options.tokens)
}

/// Runs the experiment and prints its report; a red gate is an error after that.
fn report(
    args: &Args,
    variant: &Experiment,
    machine: &impl Machine,
    options: &Options,
) -> anyhow::Result<()> {
    let style = ProgressStyle::with_template("{msg:15} {wide_bar} {pos}/{len}")?;
    let bar = ProgressBar::new(steps(variant, options) as u64).with_style(style);
    let outcome = experiment(machine, variant, options, &mut |what| {
        bar.inc(1);
        bar.set_message(what.to_owned());
    })?;
    bar.finish_and_clear();
    let report = Report::new(variant, machine.description(), options, outcome);
    to_stdout(|out| report.write(out, args.output))?;
    match report.red() {
        None => Ok(()),
        Some(gate) => {
            anyhow::bail!("{}: {} of {} is red: {}", variant.name, gate.gate, gate.kernel, gate.seen)
        }
    }
}

fn list(out: &mut dyn Write) -> io::Result<()> {
    let width = ALL.iter().map(|experiment| experiment.name.len()).max().unwrap_or(0);
    for experiment in ALL {
        writeln!(out, "{:width$}  {}", experiment.name, experiment.title)?;
    }
    Ok(())
}

/// What the assembler makes of some kernels on an architecture, where that can be asked; if the
/// architecture was named, it must be.
fn assembled(architecture: Option<&str>, kernels: &[Kernel]) -> anyhow::Result<Assembled> {
    if architecture.is_none() {
        if Assembler::find().is_none() {
            return Ok(Assembled::Not("neither in PATH nor in LANEMAP_PTXAS".to_owned()));
        }
        if let Err(error) = ptx::variants() {
            return Ok(Assembled::Not(error.to_string()));
        }
    }
    let architecture = architecture.unwrap_or("sm_90a");
    let names: Vec<_> = kernels.iter().map(|kernel| kernel.name()).collect();
    let (sm, _, usage) = assemble(architecture, &names)?;
    Ok(Assembled::For { architecture: architecture.to_owned(), sm, usage })
}
