//! The ledger of a geometry: registers, shared memory, and what one tile moves.

use std::io::{self, Write};

use serde::Serialize;

use super::count::counted;
use super::kernel::Kernel;
use super::report::{Format, grouped, table};
use super::tiles::{Part, Registers, Tiles};
use crate::cuda::Error;

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
    structure: String,
    threads: u32,
    /// The kernel that is compiled with it, if one is.
    kernel: Option<&'static str>,
    registers: Vec<Registers>,
    registers_in_all: u32,
    /// What NVIDIA's assembler gives a thread, if it was asked.
    registers_assembled: Option<u32>,
    /// The architecture that it assembled for.
    architecture: Option<String>,
    /// Why the geometry fits on no GPU, if it does not.
    fits_on_no_gpu: Option<String>,
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
    /// `assembled` is asked for the registers of that kernel, and the architecture.
    ///
    /// # Errors
    /// Those of the emulator.
    pub fn new(tiles: Tiles, assembled: impl FnOnce(Kernel) -> Option<(u32, String)>) -> Result<Self, Error> {
        let kernel = Kernel::ALL.iter().copied().find(|kernel| kernel.tiles() == tiles);
        let counted = kernel.map(counted).transpose()?;
        let counted = |i: usize| counted.map(|counted| counted.lines()[i].1);
        let lines = tiles.cost().lines().into_iter().enumerate();
        let (registers, registers_in_all) = tiles.registers();
        let (registers_assembled, architecture) = kernel.and_then(assembled).unzip();
        Ok(Self {
            head_size: tiles.head_size(),
            tile_q: tiles.tile_q(),
            tile_kv: tiles.tile_kv(),
            structure: structure(tiles),
            threads: tiles.threads(),
            kernel: kernel.map(Kernel::name),
            registers,
            registers_in_all,
            registers_assembled,
            architecture,
            fits_on_no_gpu: too_large(tiles, registers_assembled.unwrap_or(registers_in_all)),
            shared_memory: tiles.parts(),
            shared_bytes: tiles.shared_bytes(),
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
        let Self { head_size, tile_q, tile_kv, structure, threads, .. } = self;
        writeln!(out, "# {tile_q} rows, tiles of {tile_kv} positions, head size {head_size}\n")?;
        write!(out, "{structure}, {threads} threads. ")?;
        match self.kernel {
            Some(kernel) => writeln!(out, "`{kernel}`; counted by the emulator.\n")?,
            None => writeln!(out, "No kernel is compiled with this geometry: computed, not counted.\n")?,
        }
        if let Some(why) = &self.fits_on_no_gpu {
            writeln!(out, "Warning: it fits on no GPU: {why}.\n")?;
        }
        let lines = self.registers.iter().map(|line| (line.what.to_owned(), line.registers));
        let sum = ("sum".to_owned(), self.registers_in_all);
        let assembled = self.architecture.iter().zip(self.registers_assembled);
        let assembled = assembled.map(|(name, registers)| (format!("ptxas for {name}"), registers));
        let lines =
            lines.chain([sum]).chain(assembled).map(|(what, registers)| [what, registers.to_string()]);
        table(out, ["registers of a lane", "computed"], lines)?;
        writeln!(
            out,
            "\nThe sum is an estimate: the assembler may take more, or fewer where it shares them.\n"
        )?;
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

/// The most bytes of shared memory that any GPU gives a block: 227 KiB (CUDA C++ Programming Guide,
/// technical specifications per compute capability; so are the next three).
const MOST_SHARED_BYTES: u32 = 227 << 10;
/// The most threads of a block.
const MOST_THREADS: u32 = 1024;
/// The registers of a multiprocessor, which one block can have.
const MOST_REGISTERS: u32 = 65_536;
/// The most registers of a thread; what needs more is spilled.
const MOST_OF_A_THREAD: u32 = 255;

/// Which limits of every GPU a geometry is beyond, if `registers` are a thread's.
fn too_large(tiles: Tiles, registers: u32) -> Option<String> {
    let (threads, registers) = (tiles.threads(), registers.min(MOST_OF_A_THREAD));
    let limits = [
        ("bytes of shared memory", tiles.shared_bytes(), MOST_SHARED_BYTES),
        ("threads", threads, MOST_THREADS),
        ("registers of all threads", registers.saturating_mul(threads), MOST_REGISTERS),
    ];
    let beyond = limits.iter().filter(|(_, number, most)| number > most).map(|&(what, number, most)| {
        format!("{} {what}, a block has at most {}", grouped(number.into()), grouped(most.into()))
    });
    let beyond: Vec<_> = beyond.collect();
    (!beyond.is_empty()).then(|| beyond.join("; "))
}

/// The structure in words.
fn structure(tiles: Tiles) -> String {
    match tiles {
        Tiles::Registers(g) => format!(
            "S and P in the registers, {} of K and V, {} that only copy",
            plural(g.stages, "stage"),
            plural(g.staging_warps, "warp"),
        ),
        Tiles::Shared(g) => format!("S and P through shared memory, {} f32 after a row of S", g.padding),
    }
}

fn plural(number: u32, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
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
            let parts = kernel.tiles().parts();
            let (out, staged) = parts.split_last().unwrap();
            for part in staged {
                assert_eq!(part.offset, end, "{}: {}", kernel.name(), part.what);
                end += part.bytes;
            }
            assert_eq!(end.max(out.bytes), kernel.tiles().shared_bytes(), "{}", kernel.name());
        }
    }

    #[test]
    fn a_number_that_is_not_as_computed_is_named() {
        let mut ledger = Ledger::new(Kernel::Tkv16.tiles(), |_| None).unwrap();
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
            Ledger::new(kernel.tiles(), |_| None).unwrap().check().unwrap();
        }
    }
}
