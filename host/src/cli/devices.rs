//! `lanemap devices`: which GPUs there are.

use std::io::{self, Write};

use super::output::to_stdout;
use crate::cuda::{self, Description, Error};

/// List the GPUs that CUDA shows, or say why there are none
///
/// One line a device: the name that --device takes, model, compute capability, memory, driver, and
/// which of the compiled kernels it runs.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command. That there is no device is an answer, and no failure.
///
/// # Errors
/// The driver does not answer about a device, or the output cannot be written.
pub fn run(_: &Args) -> anyhow::Result<()> {
    match cuda::devices() {
        Ok(devices) => to_stdout(|out| devices.iter().try_for_each(|device| line(out, device))),
        Err(Error::Unavailable(why)) => to_stdout(|out| writeln!(out, "no CUDA device: {why}")),
        Err(error) => Err(error.into()),
    }
}

fn line(out: &mut dyn Write, device: &Description) -> io::Result<()> {
    match device.variant() {
        Ok(variant) => writeln!(out, "{device}, kernels for {}", variant.name()),
        Err(error) => writeln!(out, "{device}, not usable: {error}"),
    }
}
