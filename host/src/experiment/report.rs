//! The report of one experiment: gates, and each number beside what the source documents say.

use std::io::{self, Write};

use serde::Serialize;

use super::kernel::Kernel;
use super::machine::Timing;
use super::run::{Findings, Gate, Measured, Options, Outcome};
use super::timing::Verdict;
use super::variants::{Claim, Experiment, Metric, SOURCE_NOISE, Said, Subject};
use crate::ptx::Multiprocessor;

/// How a report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Markdown tables
    Md,
    /// One JSON object
    Json,
}

/// What an experiment came to.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    name: &'static str,
    title: &'static str,
    landed: &'static str,
    variant: &'static str,
    machine: String,
    tokens: usize,
    heads: usize,
    kv_heads: usize,
    head_size: usize,
    seed: u64,
    gates: Vec<Gate>,
    rows: Vec<Row>,
    timing: Option<Timing>,
    verdict: Option<Verdict>,
    before: Option<&'static str>,
    timing_before: Option<Timing>,
}

/// One number of both kernels, and the claims about it.
#[derive(Clone, Debug, Serialize)]
struct Row {
    metric: Metric,
    landed: Option<f64>,
    variant: Option<f64>,
    claims: Vec<Judged>,
}

/// A claim, and whether it is what was seen.
#[derive(Clone, Debug, Serialize)]
struct Judged {
    #[serde(flatten)]
    claim: Claim,
    seen: Held,
}

/// How a claim and what was seen go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Held {
    /// As it says.
    AsSaid,
    /// Not as it says.
    Otherwise,
    /// It could not be seen here.
    NotSeen,
}

impl Report {
    /// The report of what came of an experiment on a machine.
    #[must_use]
    pub fn new(experiment: &Experiment, machine: String, options: &Options, outcome: Outcome) -> Self {
        let [heads, kv_heads, head_size] = options.heads;
        let rows = outcome.findings.as_ref().map_or_else(Vec::new, |findings| {
            Metric::ALL.iter().map(|&metric| row(experiment, findings, metric)).collect()
        });
        let timing = outcome.findings.as_ref().and_then(|findings| findings.timing);
        let timing_before = outcome.findings.as_ref().and_then(|findings| findings.before);
        Self {
            name: experiment.name,
            title: experiment.title,
            landed: Kernel::Landed.name(),
            variant: experiment.variant.name(),
            machine,
            tokens: options.tokens,
            heads,
            kv_heads,
            head_size,
            seed: options.seed,
            gates: outcome.gates,
            rows,
            timing,
            verdict: timing.map(|timing| timing.comparison.verdict()),
            before: experiment.before.map(Kernel::name),
            timing_before,
        }
    }

    /// The gate that is red, if one is.
    #[must_use]
    pub fn red(&self) -> Option<&Gate> {
        self.gates.iter().find(|gate| !gate.green)
    }

    /// Writes it.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut dyn Write, format: Format) -> io::Result<()> {
        match format {
            Format::Json => {
                serde_json::to_writer_pretty(&mut *out, self)?;
                writeln!(out)
            }
            Format::Md => self.write_tables(out),
        }
    }

    fn write_tables(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "# {}: {}\n", self.name, self.title)?;
        let Self { tokens, heads, kv_heads, head_size, seed, machine, landed, variant, .. } = self;
        writeln!(out, "`{variant}` against `{landed}`, on {machine}.")?;
        writeln!(
            out,
            "{tokens} tokens, {heads} heads, {kv_heads} KV heads, head size {head_size}, seed {seed}.\n"
        )?;
        let gates = self.gates.iter().map(|gate| {
            let light = if gate.green { "green" } else { "RED" };
            [gate.gate.to_owned(), gate.kernel.to_owned(), light.to_owned(), gate.seen.clone()]
        });
        table(out, ["gate", "kernel", "", "seen"], gates)?;
        if let Some(gate) = self.red() {
            return writeln!(out, "\n{} is red: nothing else was run.", gate.gate);
        }
        writeln!(out)?;
        let rows = self.rows.iter().filter(|row| !row.is_empty()).flat_map(Row::lines);
        table(out, ["what", "landed", "variant", "the source says", "where", "seen"], rows)?;
        match &self.timing {
            Some(timing) => self.write_timing(out, self.landed, timing)?,
            None => writeln!(out, "\nNot timed: there is no GPU.")?,
        }
        match (&self.timing_before, self.before) {
            (Some(timing), Some(before)) => self.write_timing(out, before, timing),
            _ => Ok(()),
        }
    }

    /// The times of the variant and of the kernel called `one`.
    fn write_timing(&self, out: &mut dyn Write, one: &str, timing: &Timing) -> io::Result<()> {
        let comparison = timing.comparison;
        // Two products of tokens² / 2 · head size multiplications and additions for each head.
        let operations = 2.0 * (self.heads * self.head_size) as f64 * (self.tokens as f64).powi(2);
        let rate = |milliseconds: f64| operations / milliseconds / 1e9;
        let spread = |s: super::timing::Spread| format!("{:.4} ({:.4} to {:.4})", s.median, s.low, s.high);
        writeln!(
            out,
            "\nIn turns, {} launches a batch, median and where eight tenths lie: `{one}` {} ms, {:.0} TFLOP/s; \
             `{}` {} ms, {:.0} TFLOP/s. Their ratio {}, the first against itself {}: {}.",
            timing.launches,
            spread(comparison.one),
            rate(comparison.one.median),
            self.variant,
            spread(comparison.other),
            rate(comparison.other.median),
            spread(comparison.ratio),
            spread(comparison.noise),
            match comparison.verdict() {
                Verdict::Faster => "the variant is faster",
                Verdict::Slower => "the variant is slower",
                Verdict::InTheNoise => "no difference beyond the noise",
            },
        )
    }
}

/// The numbers of both kernels, and what the claims about them come to.
fn row(experiment: &Experiment, findings: &Findings, metric: Metric) -> Row {
    let landed = number(findings, &findings.landed, metric, Subject::Landed);
    let variant = number(findings, &findings.variant, metric, Subject::Variant);
    let claims = experiment.claims.iter().filter(|claim| claim.metric == metric);
    let claims = claims.map(|&claim| {
        let found = if claim.subject == Subject::Landed { landed } else { variant };
        Judged { claim, seen: found.map_or(Held::NotSeen, |found| judge(&claim, found, findings)) }
    });
    Row { metric, landed, variant, claims: claims.collect() }
}

fn number(findings: &Findings, of: &Measured, metric: Metric, subject: Subject) -> Option<f64> {
    let (taken, tile) = (&of.taken, &of.tile);
    let launch = of.kernel.entry().launch();
    let variant_alone = |number: f64| (subject == Subject::Variant).then_some(number);
    let comparison = findings.timing.map(|timing| timing.comparison);
    match metric {
        Metric::Error => Some(of.error),
        Metric::Identity => variant_alone(findings.difference.different as f64),
        Metric::Registers => taken.registers.map(f64::from),
        Metric::SpillBytes => taken.spill_bytes.map(f64::from),
        Metric::SharedBytes => Some(launch.shared_bytes.into()),
        Metric::Blocks => taken.blocks.map(f64::from),
        Metric::BlocksOnGb10 => {
            let unit = Multiprocessor::of(121)?;
            Some(unit.fitting(launch.threads, taken.registers?, launch.shared_bytes).into())
        }
        Metric::RoundTripBytes => Some(tile.round_trip_bytes as f64),
        Metric::CopiedBytes => Some(tile.copied_bytes as f64),
        Metric::OperandLoads => Some(tile.operand_loads as f64),
        Metric::Conflicts => Some(tile.conflicts as f64),
        Metric::Products => Some(tile.products as f64),
        Metric::Barriers => Some(tile.barriers as f64),
        Metric::Milliseconds => comparison.map(|c| match subject {
            Subject::Landed => c.one.median,
            Subject::Variant => c.other.median,
        }),
        Metric::Ratio => comparison.and_then(|c| variant_alone(c.ratio.median)),
        Metric::RatioBefore => findings.before.and_then(|t| variant_alone(t.comparison.ratio.median)),
    }
}

fn judge(claim: &Claim, found: f64, findings: &Findings) -> Held {
    let holds = match claim.says {
        Said::Exactly(number) => found == number,
        Said::AtMost(most) => found <= most,
        Said::MoreThan(less) => found > less,
        Said::Ratio(ratio) => {
            let said = if ratio < 1.0 - SOURCE_NOISE {
                Verdict::Faster
            } else if ratio > 1.0 + SOURCE_NOISE {
                Verdict::Slower
            } else {
                Verdict::InTheNoise
            };
            let timing = if claim.metric == Metric::Ratio { findings.timing } else { findings.before };
            let Some(timing) = timing else { return Held::NotSeen };
            let small = (found - 1.0).abs() <= SOURCE_NOISE;
            timing.comparison.verdict() == said || (said == Verdict::InTheNoise && small)
        }
    };
    if holds { Held::AsSaid } else { Held::Otherwise }
}

impl Row {
    /// Whether nothing is known and nothing was claimed.
    fn is_empty(&self) -> bool {
        self.landed.is_none() && self.variant.is_none() && self.claims.is_empty()
    }

    /// The number with its first claim, then a line for each further one.
    fn lines(&self) -> Vec<[String; 6]> {
        let number = |number: Option<f64>| number.map_or_else(|| "-".to_owned(), |x| self.metric.write(x));
        let numbers = [self.metric.title().to_owned(), number(self.landed), number(self.variant)];
        let claim = |judged: &Judged| {
            let Claim { subject, says, words, source, .. } = judged.claim;
            let subject = if subject == Subject::Landed { "landed " } else { "" };
            let says = match says {
                Said::Exactly(x) => self.metric.write(x),
                Said::AtMost(x) => format!("at most {}", self.metric.write(x)),
                Said::MoreThan(x) => format!("more than {}", self.metric.write(x)),
                Said::Ratio(x) => self.metric.write(x),
            };
            let seen = match judged.seen {
                Held::AsSaid => "as said",
                Held::Otherwise => "otherwise",
                Held::NotSeen => "not seen",
            };
            [format!("{subject}{says}: {words}"), source.to_owned(), seen.to_owned()]
        };
        let mut claims = self.claims.iter().map(claim);
        let line = |[what, landed, variant]: [String; 3], [words, source, seen]: [String; 3]| {
            [what, landed, variant, words, source, seen]
        };
        let first = line(numbers, claims.next().unwrap_or_default());
        std::iter::once(first).chain(claims.map(|claim| line(Default::default(), claim))).collect()
    }
}

impl Metric {
    /// A number of it for people.
    fn write(self, number: f64) -> String {
        match self {
            Self::Error => format!("{number:.1e}"),
            Self::Milliseconds => format!("{number:.4}"),
            Self::Ratio | Self::RatioBefore => format!("{number:.3}"),
            _ => grouped(number as u64),
        }
    }
}

/// A whole number with its thousands apart: `57,344`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A Markdown table whose columns are aligned.
pub(crate) fn table<const N: usize>(
    out: &mut dyn Write,
    titles: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> io::Result<()> {
    let rows: Vec<[String; N]> = rows.collect();
    let titles = titles.map(str::to_owned);
    let width = |column: usize| {
        rows.iter().chain([&titles]).map(|row| row[column].chars().count()).max().unwrap_or(0).max(3)
    };
    let widths: [usize; N] = core::array::from_fn(width);
    let mut line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!(" {cell:<width$} |"));
        writeln!(out, "|{}", cells.collect::<String>())
    };
    line(&titles)?;
    line(&widths.map(|width| "-".repeat(width)))?;
    rows.iter().try_for_each(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        let numbers = [0, 7, 999, 1000, 57_344, 1_234_567];
        assert_eq!(numbers.map(grouped), ["0", "7", "999", "1,000", "57,344", "1,234,567"]);
    }

    #[test]
    fn tables_are_aligned() {
        let mut out = Vec::new();
        let rows = [["a".to_owned(), "four".to_owned()], ["bcde".to_owned(), "ü".to_owned()]];
        assert!(table(&mut out, ["x", "y"], rows.into_iter()).is_ok());
        let expected = "\
| x    | y    |
| ---- | ---- |
| a    | four |
| bcde | ü    |
";
        assert_eq!(String::from_utf8(out).as_deref(), Ok(expected));
    }
}
