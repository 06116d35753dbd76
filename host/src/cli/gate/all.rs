//! `lanemap gate all`: the gates in their order, up to the first red one.

use std::io::{self, Write};

use serde::Serialize;

use super::identity::{self, Mode, Outcome};
use super::parity::{self, chosen};
use super::subject::{Opened, ReferenceArgs, SubjectArgs};
use super::tolerance::{self, SizeArgs};
use crate::cli::output::to_stdout;
use crate::cli::record::{self, RecordArgs};
use crate::gate::identity::Verdict;
use crate::gate::parity::Row;
use crate::gate::tolerance::{Line, Tolerance};

/// Parity, identity and tolerance, in this order, up to the first red one
///
/// Identity records the stream where there is no baseline yet, and says so.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    subject: SubjectArgs,

    #[command(flatten)]
    reference: ReferenceArgs,

    #[command(flatten)]
    record: RecordArgs,
}

/// A gate in the table.
#[derive(Debug, Serialize)]
struct Gate {
    gate: &'static str,
    verdict: &'static str,
    what: String,
}

/// The report: what was not run is not there.
#[derive(Debug, Default, Serialize)]
struct Report {
    model: String,
    device: String,
    green: bool,
    gates: Vec<Gate>,
    parity: Vec<Row>,
    identity: Option<Outcome>,
    tolerance: Option<Tolerance>,
}

/// Runs `lanemap gate all`.
///
/// # Errors
/// The first red gate, after the table; what keeps one from running.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let record = args.record.target(&[("--model", args.subject.model.named())])?;
    let opened = args.subject.open()?;
    let report = judge(&opened, &args.subject, &args.reference)?;
    to_stdout(|out| {
        if args.subject.json {
            serde_json::to_writer(&mut *out, &report)?;
            return writeln!(out);
        }
        print(out, &report)
    })?;
    let names = ["gate all", &report.model];
    record::append_of_device(record.as_deref(), names, opened.device, |out| {
        let mut text = Vec::new();
        print(&mut text, &report)?;
        let mut text = String::from_utf8_lossy(&text).into_owned();
        if let Some(file) = report.identity.as_ref().map(|outcome| &outcome.file) {
            // Where it lies on one machine says nothing elsewhere.
            let name = file.file_name().unwrap_or_default();
            text = text.replace(&file.display().to_string(), &name.display().to_string());
        }
        out.write_all(text.as_bytes())
    })?;
    if let Some(red) = report.gates.iter().find(|gate| gate.verdict == "RED") {
        anyhow::bail!("{} is red: {}", red.gate, red.what);
    }
    Ok(())
}

fn judge(opened: &Opened, args: &SubjectArgs, reference: &ReferenceArgs) -> anyhow::Result<Report> {
    let mut report = Report { model: opened.file.name(), device: opened.device_name(), ..Report::default() };

    let (_, rows) = parity::rows(args.device, &chosen(&[])?, args.quick)?;
    let red: Vec<_> = rows.iter().filter(|row| row.is_red()).collect();
    let what = match red[..] {
        [] => {
            let (elements, missing) = (
                rows.iter().map(|row| row.elements).sum::<usize>(),
                rows.iter().filter(|row| row.unavailable.is_some()).count(),
            );
            let here = rows.len() - missing;
            let not_here =
                if missing > 0 { format!("; {missing} others need another GPU") } else { String::new() };
            format!("{here} kernels, {elements} elements{not_here}")
        }
        [first, ..] => {
            let why = first.red.as_deref().unwrap_or("nothing was compared");
            format!("{} of {} kernels, first `{}`: {why}", red.len(), rows.len(), first.kernel)
        }
    };
    let is_green = red.is_empty();
    report.gates.push(Gate { gate: "parity", verdict: word(is_green), what });
    report.parity = rows;
    if !is_green {
        return Ok(report);
    }

    let outcome = identity::judge(opened, args.quick, (None, None), Mode::Auto, None)?;
    let (verdict, what) = identity::words(&outcome);
    report.gates.push(Gate { gate: "identity", verdict, what });
    let is_green = outcome.verdict.as_ref().is_none_or(Verdict::is_green);
    report.identity = Some(outcome);
    if !is_green {
        return Ok(report);
    }

    let tolerance = tolerance::judge(opened, args.quick, reference, &SizeArgs::default())?;
    let red = tolerance.red();
    let what = red.first().cloned().unwrap_or_else(|| {
        let judged = tolerance.lines.iter().filter(|line| line.limit.is_some());
        let part = |line: &Line| {
            let Line { phase, comparison, .. } = line;
            let (largest, same) = (comparison.largest.delta, comparison.same_argmax);
            format!(
                "{phase} off by {largest:.2e} at most, {same} of {} choices the same",
                comparison.positions
            )
        };
        judged.map(part).collect::<Vec<_>>().join("; ")
    });
    report.green = red.is_empty();
    report.gates.push(Gate { gate: "tolerance", verdict: word(report.green), what });
    report.tolerance = Some(tolerance);
    Ok(report)
}

const fn word(is_green: bool) -> &'static str {
    if is_green { "green" } else { "RED" }
}

fn print(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    writeln!(out, "gates of {} on {}\n", report.model, report.device)?;
    writeln!(out, "| gate | verdict | what |\n| --- | --- | --- |")?;
    for Gate { gate, verdict, what } in &report.gates {
        writeln!(out, "| {gate} | {verdict} | {what} |")?;
    }
    if let Some(tolerance) = &report.tolerance {
        writeln!(out)?;
        tolerance::table(out, tolerance)?;
    }
    Ok(())
}
