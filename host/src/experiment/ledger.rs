//! The ledger of a geometry: registers, shared memory, and what one tile moves.

use std::io::{self, Write};

use gpu::attention::Geometry;
use serde::Serialize;

use super::kernel::Kernel;
use super::report::{Format, grouped, table};
use super::tile::TileCost;
use crate::cuda::Error;

/// Registers of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Registers {
    what: &'static str,
    registers: u32,
}

/// A part of shared memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Part {
    what: String,
    offset: u32,
    bytes: u32,
}

/// A number of one tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Line {
    what: &'static str,
    computed: u64,
    counted: Option<u64>,
}

/// The ledger of one geometry.
#[derive(Clone, Debug, Serialize)]
pub struct Ledger {
    head_size: u32,
    tile_q: u32,
    tile_kv: u32,
    stages: u32,
    staging_warps: u32,
    threads: u32,
    /// The kernel that is compiled with it, if one is.
    kernel: Option<&'static str>,
    registers: Vec<Registers>,
    registers_in_all: u32,
    /// What NVIDIA's assembler gives a thread, if it was asked.
    registers_assembled: Option<u32>,
    shared_memory: Vec<Part>,
    shared_bytes: u32,
    tile: Vec<Line>,
}

/// A number that is not what the geometry says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ledger of {kernel}: {what}: {computed} computed, {counted} counted by the emulator")]
pub struct Mismatch {
    kernel: &'static str,
    what: &'static str,
    computed: u64,
    counted: u64,
}

impl Ledger {
    /// The ledger of a geometry, counted by the emulator if a kernel is compiled with it.
    /// `assembled` is asked for the registers of that kernel.
    ///
    /// # Errors
    /// Those of the emulator.
    pub fn new(geometry: Geometry, assembled: impl FnOnce(Kernel) -> Option<u32>) -> Result<Self, Error> {
        let kernel = Kernel::ALL.iter().copied().find(|kernel| kernel.geometry() == geometry);
        let counted = kernel.map(TileCost::counted).transpose()?;
        let computed = TileCost::computed(geometry);
        let counted = |i: usize| counted.map(|counted| counted.lines()[i].1);
        let lines = computed.lines().into_iter().enumerate();
        Ok(Self {
            head_size: geometry.head_size,
            tile_q: geometry.tile_q,
            tile_kv: geometry.tile_kv,
            stages: geometry.stages,
            staging_warps: geometry.staging_warps,
            threads: geometry.threads(),
            kernel: kernel.map(Kernel::name),
            registers: registers(geometry),
            registers_in_all: geometry.registers(),
            registers_assembled: kernel.and_then(assembled),
            shared_memory: parts(geometry),
            shared_bytes: geometry.shared_bytes(),
            tile: lines.map(|(i, (what, computed))| Line { what, computed, counted: counted(i) }).collect(),
        })
    }

    /// That everything that was counted is what was computed.
    ///
    /// # Errors
    /// The first number that is not.
    pub fn check(&self) -> Result<(), Mismatch> {
        for &Line { what, computed, counted } in &self.tile {
            if let (Some(kernel), Some(counted)) = (self.kernel, counted)
                && counted != computed
            {
                return Err(Mismatch { kernel, what, computed, counted });
            }
        }
        Ok(())
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
        let Self { head_size, tile_q, tile_kv, stages, staging_warps, threads, .. } = self;
        writeln!(out, "# {tile_q} rows, tiles of {tile_kv} positions, head size {head_size}\n")?;
        write!(out, "{stages} stages, {staging_warps} staging warps, {threads} threads. ")?;
        match self.kernel {
            Some(kernel) => writeln!(out, "`{kernel}`; counted by the emulator.\n")?,
            None => writeln!(out, "No kernel is compiled with this geometry: computed, not counted.\n")?,
        }
        let sum = [Registers { what: "sum", registers: self.registers_in_all }];
        let assembled = self.registers_assembled.map(|registers| Registers { what: "ptxas", registers });
        let lines = self.registers.iter().chain(&sum).chain(&assembled);
        let lines = lines.map(|line| [line.what.to_owned(), line.registers.to_string()]);
        table(out, ["registers of a lane", "computed"], lines)?;
        writeln!(out)?;
        let end = Part { what: "end".to_owned(), offset: self.shared_bytes, bytes: 0 };
        let parts = self.shared_memory.iter().chain([&end]);
        let parts = parts.map(|part| {
            let bytes = if part.bytes == 0 { String::new() } else { grouped(part.bytes.into()) };
            [grouped(part.offset.into()), bytes, part.what.clone()]
        });
        table(out, ["byte", "bytes", "shared memory"], parts)?;
        writeln!(out)?;
        let lines = self.tile.iter().map(|line| {
            let counted = line.counted.map_or_else(|| "-".to_owned(), grouped);
            [line.what.to_owned(), grouped(line.computed), counted]
        });
        table(out, ["one tile of a block", "computed", "counted"], lines)
    }
}

fn registers(g: Geometry) -> Vec<Registers> {
    [
        ("O, accumulators", g.out_registers()),
        ("S and then P, accumulators", g.score_registers()),
        ("P, the operand in use", g.weight_registers()),
        ("Q, K, V, operands, at most", g.operand_registers()),
        ("m and l of two rows", g.row_registers()),
        ("addresses and counters, estimated", g.address_registers()),
    ]
    .map(|(what, registers)| Registers { what, registers })
    .to_vec()
}

fn parts(g: Geometry) -> Vec<Part> {
    let bytes = |rows: u32| rows * g.stride() * 2;
    let mut parts = vec![Part { what: format!("Q, {} rows", g.tile_q), offset: 0, bytes: bytes(g.tile_q) }];
    let places = [("K", Geometry::keys as fn(Geometry, u32) -> u32), ("V", Geometry::values)];
    for (matrix, place) in places {
        for stage in 0..g.stages {
            let what = format!("{matrix}, {} rows, stage {stage}", g.tile_kv);
            parts.push(Part { what, offset: place(g, stage) * 2, bytes: bytes(g.tile_kv) });
        }
    }
    let what = "O over them, after the last tile, if rows are missing".to_owned();
    parts.push(Part { what, offset: 0, bytes: g.out_bytes() });
    parts
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    /// Parts lie one after the other, without a gap, up to the end.
    #[test]
    fn the_map_has_no_gaps_and_no_overlap() {
        for kernel in Kernel::ALL {
            let mut end = 0;
            let parts = parts(kernel.geometry());
            let (out, staged) = parts.split_last().unwrap();
            for part in staged {
                assert_eq!(part.offset, end, "{}: {}", kernel.name(), part.what);
                end += part.bytes;
            }
            assert_eq!(end.max(out.bytes), kernel.geometry().shared_bytes(), "{}", kernel.name());
        }
    }

    #[test]
    fn a_number_that_is_not_as_computed_is_named() {
        let mut ledger = Ledger::new(Kernel::Tkv16.geometry(), |_| None).unwrap();
        ledger.check().unwrap();
        let line = ledger.tile.iter_mut().find(|line| line.what == "barriers").unwrap();
        line.counted = Some(3);
        let text = ledger.check().unwrap_err().to_string();
        assert_eq!(
            text,
            "the ledger of fa_prefill_f16kv_tkv16: barriers: 2 computed, 3 counted by the emulator"
        );
    }

    /// All kernels that are compiled: what the geometry says is what the emulator counts.
    #[test]
    fn every_kernels_tile_costs_what_its_geometry_says() {
        for kernel in Kernel::ALL {
            Ledger::new(kernel.geometry(), |_| None).unwrap().check().unwrap();
        }
    }
}
