//! Launches in the Trace Event Format, which `chrome://tracing` and Perfetto show: one complete event (`X`) a
//! launch, as it was in the last repetition, in microseconds.

use std::io::{self, Write};

use serde_json::json;

use super::report::floor;
use super::{Measured, Profile};
use crate::cuda::Cost;

/// Writes the trace: a JSON object with an array of events. Launches without a time stand one behind the
/// other, a microsecond each.
///
/// # Errors
/// Those of `out`.
pub fn write(out: &mut dyn Write, profile: &Profile) -> io::Result<()> {
    let event = |(index, launch): (usize, &Measured)| {
        let launched = &launch.launched;
        let (start, seconds) = match launched.cost {
            Cost::Time { start, seconds } => (start, seconds),
            Cost::Counters(_) => (index as f64 / 1e6, 1e-6),
        };
        let grid = launched.launch.grid;
        let mut arguments = json!({
            "grid": [grid.x, grid.y, grid.z],
            "threads": launched.launch.threads,
            "shared_bytes": launched.launch.shared_bytes,
        });
        if let Some(work) = launched.work {
            arguments["bytes_read"] = work.bytes_read.into();
            arguments["bytes_written"] = work.bytes_written.into();
            arguments["operations"] = work.operations.into();
        }
        if let Some(times) = &profile.times
            && let Some((floor, _)) = floor(launch, &times.ceilings)
        {
            arguments["floor_us"] = (floor * 1e6).into();
        }
        if let Some(median) = launch.median {
            arguments["median_us"] = (median * 1e6).into();
        }
        if let Cost::Counters(counters) = &launched.cost {
            arguments["bytes_loaded"] = counters.bytes_read().into();
            arguments["bytes_stored"] = counters.bytes_written().into();
        }
        json!({
            "name": launched.kernel,
            "cat": "kernel",
            "ph": "X",
            "pid": 0,
            "tid": 0,
            "ts": start * 1e6,
            "dur": seconds * 1e6,
            "args": arguments,
        })
    };
    let name = json!({
        "name": "process_name",
        "ph": "M",
        "pid": 0,
        "args": { "name": format!("lanemap {} on {}", profile.plan.name(), profile.description) },
    });
    let events: Vec<_> = [name].into_iter().chain(profile.launches.iter().enumerate().map(event)).collect();
    serde_json::to_writer(&mut *out, &json!({ "displayTimeUnit": "ms", "traceEvents": events }))?;
    writeln!(out)
}
