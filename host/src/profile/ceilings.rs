//! What a device moves and multiplies at most.
//!
//! Memory: the faster of a copy inside the device and of a sweep that only reads (`argmax_parts`), both over
//! far more than the L2 cache holds. Tensor cores: the data sheet's rate where the device is one of
//! [`DATA_SHEETS`], unless the largest product of this crate is faster; for other devices that product's. The
//! product is `matmul_f16_f16`, on random numbers.

use std::collections::BTreeSet;

use bytemuck::Pod;
use gpu::quant::Format;
use gpu::quant::planes::plane_row_bytes;
use gpu::simt::Unit;
use half::f16;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::Serialize;

use crate::cuda::ops::{self, PlaneMatrix};
use crate::cuda::{Buffer, Error, Queue, Stream};

/// Bytes that are copied, or a quarter of what is free.
const COPIED: u64 = 1 << 30;
/// Rows, columns and depth of the product, where there is the memory.
const EXTENT: usize = 8192;
/// The best of so many counts.
const TIMES: usize = 7;
/// Logits of a row of the sweep.
const ROW: usize = 1 << 16;

/// Dense rates of tensor cores by the vendor's data sheets, in 10^12 operations per second: f16 with sums in
/// f32. A device is one of them if its name has all of the words.
const DATA_SHEETS: [(&str, f64); 9] = [
    ("H200", 989.0),
    ("H100 PCIe", 756.0),
    ("H100", 989.0),
    ("A100", 312.0),
    ("L40S", 362.0),
    ("L4", 121.0),
    ("T4", 65.0),
    ("RTX 4090", 165.2),
    ("RTX 3090", 71.0),
];

/// A rate that nothing exceeds.
#[derive(Clone, Debug, Serialize)]
pub struct Ceiling {
    /// Bytes, or operations, per second.
    pub rate: f64,
    /// What was measured, per second: the same, or less than the data sheet says.
    pub measured: f64,
    /// What was measured or looked up.
    pub source: String,
}

/// A device's rates.
#[derive(Clone, Debug, Serialize)]
pub struct Ceilings {
    /// Bytes of memory that are read and written.
    pub memory: Ceiling,
    /// Operations of tensor cores on f16, where the work has any.
    pub tensor_f16: Option<Ceiling>,
}

impl Ceilings {
    /// Measures those that these units need.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; those of launches.
    pub fn measure(stream: &Stream, units: &BTreeSet<Unit>) -> Result<Self, Error> {
        let tensor_f16 = units.contains(&Unit::TensorF16).then(|| product(stream)).transpose()?;
        Ok(Self { memory: memory(stream)?, tensor_f16 })
    }

    /// Seconds between two marks without a launch.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn mark(stream: &Stream) -> Result<f64, Error> {
        const MARKS: usize = 65;
        // The device is busy meanwhile, so that the marks stand ready.
        let mut scratch = stream.output::<u32>("scratch", (scratch_bytes(stream)? / 4) as usize)?;
        for _ in 0..8 {
            stream.fill(scratch.view_mut(), 0)?;
        }
        let marks = (0..MARKS).map(|_| stream.record()).collect::<Result<Vec<_>, _>>()?;
        let mut between = Vec::new();
        for pair in marks.windows(2) {
            between.push(f64::from(pair[1].milliseconds_since(&pair[0])?) / 1e3);
        }
        between.sort_by(f64::total_cmp);
        Ok(between[between.len() / 2])
    }

    /// The rate of a unit's operations, if there is a ceiling for them.
    #[must_use]
    pub fn of(&self, unit: Unit) -> Option<&Ceiling> {
        match unit {
            Unit::TensorF16 => self.tensor_f16.as_ref(),
            // No launch is bound by these.
            Unit::TensorS8 | Unit::Plain => None,
        }
    }
}

/// Bytes that a measurement of memory goes over.
fn scratch_bytes(stream: &Stream) -> Result<u64, Error> {
    // Twice as many are needed, for a copy.
    Ok(COPIED.min(stream.device().memory()?.0 / 4))
}

/// The least seconds that `work` takes, after one time that is not counted.
fn least(stream: &Stream, mut work: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    work()?;
    let mut least = f64::INFINITY;
    for _ in 0..TIMES {
        let start = stream.record()?;
        work()?;
        let milliseconds = stream.record()?.milliseconds_since(&start)?;
        least = least.min(f64::from(milliseconds) / 1e3);
    }
    Ok(least.max(1e-9))
}

fn memory(stream: &Stream) -> Result<Ceiling, Error> {
    let rows = (scratch_bytes(stream)? as usize / 4 / ROW).clamp(1, 65_535);
    let (count, bytes) = (rows * ROW, (rows * ROW * 4) as f64);
    // No logits, of which nothing comes but the time to read them.
    let from = stream.output::<f32>("from", count)?;
    let mut to = stream.output::<f32>("to", count)?;
    let copy = 2.0 * bytes / least(stream, || stream.copy(to.view_mut(), from.view()))?;
    drop(to);
    let mut tokens = stream.output("tokens", rows)?;
    let mut parts = stream.output("parts", ops::argmax_workspace(rows, ROW))?;
    let sweep = || ops::argmax(stream, tokens.view_mut(), from.view(), parts.view_mut(), None, [rows, ROW]);
    let sweep = bytes / least(stream, sweep)?;
    let what = if copy > sweep { "copy" } else { "sweep by argmax" };
    let rate = copy.max(sweep);
    Ok(Ceiling { rate, measured: rate, source: format!("{what} of {:.0} MiB", bytes / f64::from(1 << 20)) })
}

/// The largest product of f16, and the data sheet.
fn product(stream: &Stream) -> Result<Ceiling, Error> {
    // 8 bytes an element, f32 of out and f16 twice, and some to spare.
    let free = stream.device().memory()?.0 / 12;
    let extent = [EXTENT, EXTENT / 2, EXTENT / 4, EXTENT / 8];
    let extent = extent.into_iter().find(|&extent| (extent * extent) as u64 <= free).unwrap_or(EXTENT / 16);
    let mut out = stream.output::<f32>("out", extent * extent)?;
    let mut random = Random(ChaCha8Rng::seed_from_u64(42));
    let input = random.buffer::<f16>(stream, extent * extent)?;
    let weights = random.matrix(stream, Format::F16, extent)?;
    let seconds = least(stream, || {
        let weights = weights.view(extent);
        ops::matmul_f16_quant(stream, out.view_mut(), input.view(), weights, None, extent)
    })?;
    let measured = 2.0 * (extent as f64).powi(3) / seconds;
    let own = format!("matmul_f16_f16 of {extent} × {extent} × {extent}");
    Ok(match data_sheet(&stream.device().description().name) {
        Some(rate) if rate > measured => {
            Ceiling { rate, measured, source: format!("data sheet; {own} {:.0} T/s", measured / 1e12) }
        }
        _ => Ceiling { rate: measured, measured, source: own },
    })
}

/// What the data sheet says of a device with this name.
fn data_sheet(name: &str) -> Option<f64> {
    let words: Vec<_> = name.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let found = DATA_SHEETS.iter().find(|(device, _)| device.split(' ').all(|word| words.contains(&word)));
    found.map(|&(_, rate)| rate * 1e12)
}

/// Random operands. Their sizes do not matter, but that their bits change does: it takes power.
struct Random(ChaCha8Rng);

/// A square matrix of weights.
struct Matrix {
    bytes: Buffer<u8>,
    format: Format,
}

impl Matrix {
    fn view(&self, extent: usize) -> PlaneMatrix<'_> {
        PlaneMatrix { bytes: self.bytes.view(), format: self.format, rows: extent, columns: extent }
    }
}

impl Random {
    /// Pairs of bytes are f16 from 2^-7 to 2, of either sign; fours are f32 below 2.
    fn buffer<T: Pod>(&mut self, stream: &Stream, len: usize) -> Result<Buffer<T>, Error> {
        let mut elements = vec![T::zeroed(); len];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut elements);
        self.0.fill_bytes(bytes);
        for pair in bytes.chunks_exact_mut(2) {
            pair[1] = pair[1] & 0x9f | 0x20;
        }
        stream.input("operand", &elements)
    }

    fn matrix(&mut self, stream: &Stream, format: Format, extent: usize) -> Result<Matrix, Error> {
        let row = plane_row_bytes(format, extent).unwrap_or(0) as usize;
        Ok(Matrix { bytes: self.buffer(stream, extent * row)?, format })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_found_by_their_words() {
        let rate = data_sheet;
        assert_eq!(rate("NVIDIA H200"), Some(989e12));
        assert_eq!(rate("NVIDIA H100 80GB HBM3"), Some(989e12));
        assert_eq!(rate("NVIDIA H100 PCIe"), Some(756e12));
        assert_eq!(rate("NVIDIA A100-SXM4-80GB"), Some(312e12));
        assert_eq!(rate("Tesla T4"), Some(65e12));
        assert_eq!(rate("NVIDIA L40"), None, "no L4, and no L40S");
    }
}
