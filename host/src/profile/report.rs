//! A profile's launches, put together by kernel: as a table and as JSON.

use std::io::{self, Write};

use gpu::simt::emulator::Counters;
use serde::Serialize;

use super::{Ceilings, Measured, Profile, Task};
use crate::cuda::Cost;
use crate::experiment::table;
use crate::experiment::timing::Spread;

/// A profile by kernels. Times are seconds; everything is of one step, or of the whole prefill.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was run, in llama-bench's terms.
    pub test: String,
    /// The model's file, or what stands for it.
    pub model: String,
    /// What it ran on.
    pub device: String,
    /// Tokens that were evaluated.
    pub tokens: usize,
    /// Positions that were filled before.
    pub depth: usize,
    /// Steps that everything is the mean of; a prefill is one.
    pub steps: usize,
    /// How often each was measured.
    pub repetitions: usize,
    /// Times of the whole, where there are any.
    #[serde(flatten)]
    pub whole: Option<Whole>,
    /// The kernels, the largest first.
    pub kernels: Vec<Row>,
}

/// Times of the whole, in seconds.
#[derive(Clone, Debug, Serialize)]
pub struct Whole {
    /// With nothing in between.
    pub wall: Spread,
    /// Tokens per second of that.
    pub tokens_per_second: f64,
    /// What its kernels add up to.
    pub kernels_seconds: f64,
    /// The rest of the wall. Below 0 if launches, each by itself, take longer than together.
    pub host_and_gaps_seconds: f64,
    /// From the first launch to the end of the last, with marks around each and without graphs.
    pub marked_seconds: f64,
    /// Between two marks without a launch, which is part of every launch's time.
    pub mark_seconds: f64,
    /// The floors of the kernels, those that have one.
    pub floor_seconds: f64,
    /// Of the device.
    pub ceilings: Ceilings,
}

/// What a kernel's floor comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// Bytes.
    Memory,
    /// Operations.
    Operations,
}

/// Bytes that the emulator counted, beside those that have to be moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Traffic {
    /// Bytes that lanes asked global memory for.
    pub read: f64,
    /// Bytes that they stored there.
    pub written: f64,
    /// These over [`Row::bytes`], where that is known.
    pub ratio: Option<f64>,
}

/// All launches of a kernel.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub kernel: &'static str,
    /// How many there are.
    pub calls: f64,
    /// Bytes that they have to move, where that is known of all.
    pub bytes: Option<f64>,
    /// Operations of their products, likewise.
    pub operations: Option<f64>,
    /// Their time.
    pub seconds: Option<f64>,
    /// Their part of the wall.
    pub share: Option<f64>,
    /// What they could not be faster than.
    pub floor_seconds: Option<f64>,
    /// Their time over that.
    pub ratio: Option<f64>,
    /// What most of the floor comes from.
    pub bound: Option<Bound>,
    /// What the emulator counted.
    pub traffic: Option<Traffic>,
}

/// The floor of a launch, and what it comes from.
pub(super) fn floor(launch: &Measured, ceilings: &Ceilings) -> Option<(f64, Bound)> {
    let work = launch.launched.work?;
    let memory = work.bytes() as f64 / ceilings.memory.rate;
    let operations = ceilings.of(work.unit).map_or(0.0, |ceiling| work.operations as f64 / ceiling.rate);
    Some(if operations > memory { (operations, Bound::Operations) } else { (memory, Bound::Memory) })
}

impl Report {
    /// Of a profile of the model in `file`.
    #[must_use]
    pub fn new(profile: &Profile, file: String) -> Self {
        let steps = profile.plan.task.steps();
        let per_step = 1.0 / steps.max(1) as f64;
        let wall = profile.times.as_ref().map(|times| times.wall.median * per_step);
        let ceilings = profile.times.as_ref().map(|times| &times.ceilings);
        let mut names: Vec<&'static str> = Vec::new();
        for launch in &profile.launches {
            if !names.contains(&launch.launched.kernel) {
                names.push(launch.launched.kernel);
            }
        }
        let row = |kernel: &'static str| {
            let launches = profile.launches.iter().filter(|launch| launch.launched.kernel == kernel);
            Row::new(kernel, &launches.collect::<Vec<_>>(), ceilings, per_step, wall)
        };
        let mut kernels: Vec<_> = names.into_iter().map(row).collect();
        let size = |row: &Row| {
            row.seconds.unwrap_or_else(|| row.traffic.map_or(0.0, |traffic| traffic.read + traffic.written))
        };
        kernels.sort_by(|a, b| size(b).total_cmp(&size(a)));
        let whole = profile.times.as_ref().map(|times| {
            let kernels_seconds = kernels.iter().filter_map(|row| row.seconds).sum::<f64>();
            let Spread { median, low, high } = times.wall;
            Whole {
                wall: Spread { median: median * per_step, low: low * per_step, high: high * per_step },
                tokens_per_second: profile.plan.task.tokens() as f64 / median,
                kernels_seconds,
                host_and_gaps_seconds: median * per_step - kernels_seconds,
                marked_seconds: times.marked * per_step,
                mark_seconds: times.mark,
                floor_seconds: kernels.iter().filter_map(|row| row.floor_seconds).sum(),
                ceilings: times.ceilings.clone(),
            }
        });
        Self {
            test: profile.plan.name(),
            model: file,
            device: profile.description.clone(),
            tokens: profile.plan.task.tokens(),
            depth: profile.plan.depth,
            steps,
            repetitions: if whole.is_some() { profile.plan.repetitions } else { 1 },
            whole,
            kernels,
        }
    }

    /// Writes the table.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_table(&self, out: &mut dyn Write, task: Task) -> io::Result<()> {
        let Self { test, model, device, .. } = self;
        writeln!(out, "{test} of {model} on {device}")?;
        let each = match task {
            Task::Prefill(_) => String::new(),
            Task::Decode { .. } => format!("; numbers are of one step, the mean of {}", self.steps),
        };
        match &self.whole {
            Some(whole) => {
                writeln!(out, "median of {} runs{each}\n", self.repetitions)?;
                self.write_times(out, whole)
            }
            None => {
                writeln!(out, "counters of one run{each}\n")?;
                self.write_counters(out)
            }
        }
    }

    /// Writes one JSON object.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        writeln!(out)
    }

    fn write_times(&self, out: &mut dyn Write, whole: &Whole) -> io::Result<()> {
        let wall = whole.wall.median;
        let share = |seconds: f64| format!("{:.1} %", 100.0 * seconds / wall);
        let known = |number: Option<f64>, digits: usize, unit: f64| {
            number.map_or_else(|| "?".to_owned(), |x| format!("{:.digits$}", x * unit))
        };
        let line = |row: &Row| {
            let bound = match row.bound {
                Some(Bound::Memory) => "memory",
                Some(Bound::Operations) => "tensor cores",
                None => "?",
            };
            [
                row.kernel.to_owned(),
                count(row.calls),
                known(row.seconds, 4, 1e3),
                known(row.share, 1, 100.0) + " %",
                known(row.floor_seconds, 4, 1e3),
                known(row.ratio, 2, 1.0),
                bound.to_owned(),
            ]
        };
        let calls = self.kernels.iter().map(|row| row.calls).sum();
        let part = |what: &str, calls: String, seconds: f64, floor: String, ratio: String| {
            [
                what.to_owned(),
                calls,
                format!("{:.4}", seconds * 1e3),
                share(seconds),
                floor,
                ratio,
                String::new(),
            ]
        };
        let none = String::new;
        let floor = whole.floor_seconds;
        let with_floor = self.kernels.iter().filter(|row| row.floor_seconds.is_some());
        let with_floor: f64 = with_floor.filter_map(|row| row.seconds).sum();
        let lines = self.kernels.iter().map(line).chain([
            part(
                "all kernels",
                count(calls),
                whole.kernels_seconds,
                format!("{:.4}", floor * 1e3),
                known((floor > 0.0).then(|| with_floor / floor), 2, 1.0),
            ),
            part("host and gaps", none(), whole.host_and_gaps_seconds, none(), none()),
            part("wall", none(), wall, none(), none()),
        ]);
        let titles = ["kernel", "calls", "ms", "of the wall", "floor, ms", "ratio", "floor by"];
        table(out, titles, right_aligned(titles, lines.collect(), 1..6).into_iter())?;

        let ms = |seconds: f64| seconds * 1e3;
        let Spread { low, high, .. } = whole.wall;
        let marked = whole.marked_seconds;
        writeln!(out)?;
        writeln!(
            out,
            "wall: {:.4} ms ({:.4} to {:.4}), {:.1} tokens per second, as the model always runs",
            ms(wall),
            ms(low),
            ms(high),
            whole.tokens_per_second
        )?;
        writeln!(
            out,
            "launch by launch, with marks and without graphs: {:.4} ms on the device, {:+.4} ms to the wall",
            ms(marked),
            ms(marked - wall)
        )?;
        writeln!(
            out,
            "two marks are {:.1} µs apart with nothing between them, which is part of every launch's time",
            whole.mark_seconds * 1e6
        )?;
        let Ceilings { memory, tensor_f16 } = &whole.ceilings;
        writeln!(out, "memory: {:.2} TB/s ({})", memory.rate / 1e12, memory.source)?;
        if let Some(ceiling) = tensor_f16 {
            let rate = ceiling.rate / 1e12;
            writeln!(out, "tensor cores, f16: {rate:.0} T operations/s ({})", ceiling.source)?;
        }
        Ok(())
    }

    fn write_counters(&self, out: &mut dyn Write) -> io::Result<()> {
        let unknown = || "?".to_owned();
        let line = |row: &Row| {
            let Traffic { read, written, ratio } = row.traffic.unwrap_or_default();
            [
                row.kernel.to_owned(),
                count(row.calls),
                count(read),
                count(written),
                row.bytes.map_or_else(unknown, count),
                ratio.map_or_else(unknown, |ratio| format!("{ratio:.2}")),
                row.operations.map_or_else(unknown, count),
            ]
        };
        let titles = ["kernel", "calls", "bytes read", "bytes written", "least bytes", "ratio", "operations"];
        let lines = self.kernels.iter().map(line).collect();
        table(out, titles, right_aligned(titles, lines, 1..7).into_iter())
    }
}

impl Row {
    fn new(
        kernel: &'static str,
        launches: &[&Measured],
        ceilings: Option<&Ceilings>,
        per_step: f64,
        wall: Option<f64>,
    ) -> Self {
        // Known only if it is of every launch.
        let sum = |of: &dyn Fn(&Measured) -> Option<f64>| {
            launches.iter().map(|launch| of(launch)).sum::<Option<f64>>().map(|sum| sum * per_step)
        };
        let bytes = sum(&|launch| launch.launched.work.map(|work| work.bytes() as f64));
        let seconds = sum(&|launch| launch.median);
        let floor_seconds = sum(&|launch| floor(launch, ceilings?).map(|(seconds, _)| seconds));
        let by_operations = sum(&|launch| {
            let (seconds, bound) = floor(launch, ceilings?)?;
            Some(if bound == Bound::Operations { seconds } else { 0.0 })
        });
        let bound = floor_seconds.zip(by_operations).map(|(all, by_operations)| {
            if 2.0 * by_operations > all { Bound::Operations } else { Bound::Memory }
        });
        let counted = |of: fn(&Counters) -> u64| {
            sum(&|launch| match &launch.launched.cost {
                Cost::Counters(counters) => Some(of(counters) as f64),
                Cost::Time { .. } => None,
            })
        };
        let read = counted(Counters::bytes_read);
        let written = counted(Counters::bytes_written);
        let traffic = read.zip(written).map(|(read, written)| Traffic {
            read,
            written,
            ratio: bytes.filter(|&bytes| bytes > 0.0).map(|bytes| (read + written) / bytes),
        });
        Self {
            kernel,
            calls: launches.len() as f64 * per_step,
            bytes,
            operations: sum(&|launch| launch.launched.work.map(|work| work.operations as f64)),
            seconds,
            share: seconds.zip(wall).map(|(seconds, wall)| seconds / wall),
            floor_seconds,
            ratio: seconds.zip(floor_seconds).map(|(seconds, floor)| seconds / floor),
            bound,
            traffic,
        }
    }
}

/// A number of calls or bytes, whole unless it is a mean.
fn count(number: f64) -> String {
    if number.fract() == 0.0 { format!("{number:.0}") } else { format!("{number:.1}") }
}

/// Columns of numbers, padded so that they end below each other.
fn right_aligned<const N: usize>(
    titles: [&str; N],
    mut rows: Vec<[String; N]>,
    columns: std::ops::Range<usize>,
) -> Vec<[String; N]> {
    for column in columns {
        let width = rows.iter().map(|row| row[column].chars().count());
        let width = width.chain([titles[column].chars().count()]).max().unwrap_or(0);
        for row in &mut rows {
            row[column] = format!("{:>width$}", row[column]);
        }
    }
    rows
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use gpu::simt::{Dim3, Launch, Unit, Work};

    use super::*;
    use crate::cuda::Launched;
    use crate::profile::{Ceiling, Plan, Times};

    fn launch(kernel: &'static str, milliseconds: f64, work: Option<Work>) -> Measured {
        let launch = Launch { grid: Dim3::linear(1), threads: 32, shared_bytes: 0 };
        let seconds = milliseconds / 1e3;
        let launched = Launched { kernel, launch, work, cost: Cost::Time { start: 0.0, seconds: 9.0 } };
        Measured { launched, median: Some(seconds) }
    }

    /// Two steps: of two products, and of a kernel that nobody has counted. A device of 1 GB/s and 1 T/s.
    pub(crate) fn report() -> (Report, Task) {
        let ceiling = |rate| Ceiling { rate, measured: rate, source: "a test".to_owned() };
        let ceilings = Ceilings { memory: ceiling(1e9), tensor_f16: Some(ceiling(1e12)) };
        let many = Work::moving(1_000_000, 0).multiplying(2_000_000_000, Unit::TensorF16);
        let few = Work::moving(1_500_000, 500_000).multiplying(1_000_000_000, Unit::Plain);
        let step = [launch("many", 8.0, Some(many)), launch("few", 2.5, Some(few)), launch("new", 1.0, None)];
        let task = Task::Decode { steps: 2, greedy: false };
        let wall = Spread { median: 0.026, low: 0.025, high: 0.027 };
        let profile = crate::profile::Profile {
            plan: Plan { task, depth: 7, batch: None, repetitions: 3 },
            description: "a device".to_owned(),
            launches: [step, step].concat(),
            times: Some(Times { wall, marked: 0.024, mark: 1e-6, ceilings }),
        };
        (Report::new(&profile, "a <model>".to_owned()), task)
    }

    #[test]
    fn times_are_of_a_step_and_floors_of_what_takes_longer() {
        let (report, task) = report();
        let near = |found: Option<f64>, expected: f64| {
            let found = found.unwrap();
            assert!((found - expected).abs() < 1e-9, "{found}, {expected} expected");
        };
        let [many, few, new] = &report.kernels[..] else { panic!("{report:?}") };
        assert_eq!((many.kernel, few.kernel, new.kernel), ("many", "few", "new"));
        assert_eq!([many.calls, few.calls, new.calls], [1.0; 3]);
        near(many.seconds, 8e-3);
        near(many.share, 8.0 / 13.0);
        near(many.floor_seconds, 4e-3);
        near(many.ratio, 2.0);
        near(few.floor_seconds, 2e-3);
        near(few.ratio, 1.25);
        assert_eq!((many.bound, few.bound, new.bound), (Some(Bound::Operations), Some(Bound::Memory), None));
        assert!(new.floor_seconds.is_none() && new.ratio.is_none());
        let whole = report.whole.as_ref().unwrap();
        near(Some(whole.wall.median), 13e-3);
        near(Some(whole.kernels_seconds), 11.5e-3);
        near(Some(whole.host_and_gaps_seconds), 1.5e-3);
        near(Some(whole.marked_seconds), 12e-3);
        near(Some(whole.floor_seconds), 6e-3);
        near(Some(whole.tokens_per_second), 2.0 / 0.026);

        let mut out = Vec::new();
        report.write_table(&mut out, task).unwrap();
        let text = String::from_utf8(out).unwrap();
        let expected = "\
tg2 @ d7 of a <model> on a device
median of 3 runs; numbers are of one step, the mean of 2

| kernel        | calls | ms      | of the wall | floor, ms | ratio | floor by     |
| ------------- | ----- | ------- | ----------- | --------- | ----- | ------------ |
| many          |     1 |  8.0000 |      61.5 % |    4.0000 |  2.00 | tensor cores |
| few           |     1 |  2.5000 |      19.2 % |    2.0000 |  1.25 | memory       |
| new           |     1 |  1.0000 |       7.7 % |         ? |     ? | ?            |
| all kernels   |     3 | 11.5000 |      88.5 % |    6.0000 |  1.75 |              |
| host and gaps |       |  1.5000 |      11.5 % |           |       |              |
| wall          |       | 13.0000 |     100.0 % |           |       |              |
";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("-1.0000 ms to the wall") && text.contains("1.0 µs apart"), "{text}");

        let mut out = Vec::new();
        report.write_json(&mut out).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(json["kernels"][0]["bound"], "operations");
        assert!(json["kernels"][2]["floor_seconds"].is_null());
        assert_eq!(json["ceilings"]["memory"]["rate"], 1e9);
    }
}
