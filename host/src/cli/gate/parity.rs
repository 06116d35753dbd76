//! `lanemap gate parity`: the kernels against f64.

use std::io::{self, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;

use crate::cli::UsageError;
use crate::cli::device::{Device, Emulator};
use crate::cli::output::to_stdout;
use crate::cuda::Emulated;
use crate::gate::parity::{Check, Extent, Row, SEED};

/// Hold the kernels, in every format, against references in f64
///
/// One line a kernel: how many cases and elements were compared, and the element that comes nearest to its
/// bound, with what was found, what was expected, and by how much they may differ. A NaN is within no bound.
/// Kernels that this device cannot run are named, and are not red.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// auto (the first GPU, else the emulator), emulator, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value_t = Device::Auto)]
    device: Device<Emulator>,

    /// Only this kernel, or this family; can be repeated (see `--list`)
    #[arg(long, value_name = "NAME")]
    kernel: Vec<String>,

    /// Few shapes, once each: seconds on the emulator
    #[arg(long)]
    quick: bool,

    /// List the kernels and their families
    #[arg(long, conflicts_with_all = ["kernel", "quick", "device", "json"])]
    list: bool,

    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// The report of `--json`.
#[derive(serde::Serialize)]
struct Report<'a> {
    device: &'a str,
    seed: u64,
    green: bool,
    kernels: &'a [Row],
}

/// Runs `lanemap gate parity`.
///
/// # Errors
/// A [`UsageError`] for a kernel that there is not; a red kernel, after the table; a device that cannot be
/// had.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    if args.list {
        return to_stdout(list);
    }
    let (device, rows) = rows(args.device, &chosen(&args.kernel)?, args.quick)?;
    let green = verdict(&rows).is_ok();
    let report = Report { device: &device, seed: SEED, green, kernels: &rows };
    to_stdout(|out| {
        if args.json {
            serde_json::to_writer(&mut *out, &report)?;
            writeln!(out)
        } else {
            writeln!(out, "parity on {device}, seed {SEED}\n")?;
            table(out, &rows)
        }
    })?;
    verdict(&rows)
}

/// The checks of kernels or families with these names; all without a name.
///
/// # Errors
/// A [`UsageError`] for a name that is none.
pub(super) fn chosen(names: &[String]) -> anyhow::Result<Vec<Check>> {
    let mut all = Check::all();
    for name in names {
        if !all.iter().any(|check| check.kernel() == *name || check.family() == name) {
            let message =
                format!("no kernel or family '{name}' is checked: `lanemap gate parity --list` names them");
            return Err(UsageError(message).into());
        }
    }
    all.retain(|check| {
        names.is_empty() || names.iter().any(|name| check.kernel() == *name || check.family() == name)
    });
    Ok(all)
}

/// What came of the checks, and of which device.
///
/// # Errors
/// When the device cannot be had.
pub(super) fn rows(
    device: Device<Emulator>,
    checks: &[Check],
    quick: bool,
) -> anyhow::Result<(String, Vec<Row>)> {
    let bar = ProgressBar::new(checks.len() as u64);
    bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} kernels, {eta} left, {msg}")?);
    // From the start: the first kernel may take a while, and the time goes on within one.
    bar.enable_steady_tick(Duration::from_millis(200));
    let shown = |check: &Check, run: &dyn Fn() -> Row| {
        bar.set_message(check.kernel());
        let row = run();
        bar.inc(1);
        row
    };
    let rows = match device.gpu()? {
        Some(device) => {
            let stream = device.stream()?;
            let extent = if quick { Extent::Quick } else { Extent::Large };
            let rows = checks.iter().map(|check| shown(check, &|| check.run(&stream, extent))).collect();
            (device.description().name.clone(), rows)
        }
        None => {
            let extent = if quick { Extent::Quick } else { Extent::All };
            let on_emulator = |check: &Check| shown(check, &|| check.run(&Emulated::new(), extent));
            let rows = checks.par_iter().map(on_emulator).collect();
            ("the emulator".to_owned(), rows)
        }
    };
    bar.finish_and_clear();
    Ok(rows)
}

/// An error that names the red kernels, if there are some.
///
/// # Errors
/// That one.
pub(super) fn verdict(rows: &[Row]) -> anyhow::Result<()> {
    let red: Vec<_> = rows.iter().filter(|row| row.is_red()).map(|row| row.kernel.as_str()).collect();
    anyhow::ensure!(red.is_empty(), "parity is red: {}", red.join(", "));
    let missing = rows.first().filter(|_| rows.iter().all(|row| row.unavailable.is_some()));
    match missing.and_then(|row| row.unavailable.as_ref()) {
        Some(why) => anyhow::bail!("nothing was compared: {why}"),
        None => Ok(()),
    }
}

fn list(out: &mut dyn Write) -> io::Result<()> {
    Check::all().iter().try_for_each(|check| writeln!(out, "{:14} {}", check.family(), check.kernel()))
}

/// A line a kernel, and what is red in words behind it.
pub(super) fn table(out: &mut dyn Write, rows: &[Row]) -> io::Result<()> {
    writeln!(out, "| kernel | cases | elements | found | expected | off by | bound | verdict |")?;
    writeln!(out, "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |")?;
    for row in rows {
        let Row { kernel, cases, elements, worst, .. } = row;
        let verdict = match (row.is_red(), &row.unavailable) {
            (true, _) => "RED",
            (false, Some(_)) => "not here",
            (false, None) => "green",
        };
        let numbers = worst.as_ref().map_or_else(
            || "- | - | - | -".to_owned(),
            |worst| {
                let (found, expected, off, bound) = (worst.found, worst.expected, worst.off(), worst.bound);
                format!("{found:.6e} | {expected:.6e} | {off:.1e} | {bound:.1e}")
            },
        );
        writeln!(out, "| `{kernel}` | {cases} | {elements} | {numbers} | {verdict} |")?;
    }
    let green = rows.iter().filter(|row| row.is_green()).count();
    writeln!(out, "\n{green} of {} kernels are green", rows.len())?;
    for row in rows {
        if let Some(why) = &row.unavailable {
            writeln!(out, "not here: {why}")?;
        }
    }
    for row in rows.iter().filter(|row| row.is_red()) {
        let why = row.red.as_deref().unwrap_or("nothing was compared");
        writeln!(out, "RED `{}`: {why}", row.kernel)?;
    }
    Ok(())
}
