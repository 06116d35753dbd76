//! `lanemap synth`: models of random weights, to measure with.

use std::fmt::Write;
use std::io;
use std::path::PathBuf;

use super::UsageError;
use super::interrupt;
use super::output::to_stdout;
use crate::bench::count;
use crate::pull::Progress;
use crate::synth::{DEFAULT_SEED, MIXES, SHAPES, Shape, Spec, Synth, SynthError};

/// Write a model of random weights to a file
///
/// It has the sizes and formats of a real one, so its speed is that of a real one; what it says is noise.
/// Its bytes depend on spec and seed alone. `lanemap bench --synth` measures one without a file.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The model, such as qwen2-7b:q4_k_m
    #[arg(value_name = "SHAPE:MIX", required_unless_present = "list")]
    spec: Option<Spec>,

    /// The file to write
    #[arg(required_unless_present = "list")]
    out: Option<PathBuf>,

    /// Seed of the weights
    #[arg(short = 's', long, value_name = "N", default_value_t = DEFAULT_SEED)]
    seed: u64,

    /// Replace a file that is there
    #[arg(long)]
    force: bool,

    /// List the shapes and the mixes, and write nothing
    #[arg(long, conflicts_with_all = ["spec", "out", "seed", "force"])]
    list: bool,
}

/// Runs `lanemap synth`.
///
/// # Errors
/// When there is a file and no `--force`, or it cannot be written, or Ctrl-C was pressed.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let (Some(spec), Some(out)) = (args.spec, &args.out) else { return list() };
    interrupt::install()?;
    let model = Synth::new(spec, args.seed);
    let written = model.write_file(out, args.force, &mut progress("writing", model.file_bytes()));
    written.map_err(|error| match error {
        SynthError::Exists(_) | SynthError::NotAFile(_) => anyhow::Error::new(UsageError(error.to_string())),
        error => error.into(),
    })?;
    let (tensors, parameters, bytes) = (model.tensors(), count(model.parameters()), model.file_bytes());
    to_stdout(|stdout| {
        writeln!(stdout, "{}: {spec}, seed {}", out.display(), args.seed)?;
        writeln!(stdout, "{}", sizes(spec.shape))?;
        writeln!(stdout, "{tensors} tensors, {parameters} parameters, {bytes} bytes")
    })
}

/// A bar on stderr for work on so many bytes, which Ctrl-C ends where its handler is installed.
pub(super) fn progress(title: &'static str, bytes: u64) -> impl FnMut(u64) -> io::Result<()> {
    let step = Progress::on_stderr().step(title, bytes);
    move |done| {
        step.at(done);
        if interrupt::requested() { Err(io::Error::other("interrupted")) } else { Ok(()) }
    }
}

/// A shape for people.
fn sizes(shape: &Shape) -> String {
    let Shape { architecture, layers, width, heads, kv_heads, head_dim, feed_forward, vocab_size, .. } =
        shape;
    format!(
        "{}: {layers} layers of width {width}, {heads} heads of {head_dim} on {kv_heads}, feed-forward \
         {feed_forward}, vocabulary {vocab_size}",
        architecture.name()
    )
}

fn list() -> anyhow::Result<()> {
    let mut text = String::from("shapes:\n");
    for shape in &SHAPES {
        writeln!(text, "  {:14}{}", shape.name, sizes(shape))?;
    }
    text.push_str("mixes, and what the first shape takes in them:\n");
    for mix in &MIXES {
        let model = Synth::new(Spec { shape: &SHAPES[0], mix }, DEFAULT_SEED);
        let gigabytes = model.file_bytes() as f64 / 1e9;
        let finer = if mix.more == mix.base { String::new() } else { format!(", partly {}", mix.more) };
        writeln!(text, "  {:14}{gigabytes:5.1} GB  {}{finer}", mix.name, mix.base)?;
    }
    to_stdout(|out| out.write_all(text.as_bytes()))
}
