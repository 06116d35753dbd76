//! `lanemap experiment ledger`: registers, shared memory and traffic of a geometry.

use gpu::attention::{Geometry, SharedGeometry};

use super::{assembled, to_stdout};
use crate::cli::UsageError;
use crate::experiment::{Format, Ledger, Tiles};

/// Print what a geometry takes: registers, shared memory, traffic of a tile
///
/// Every number is computed from the tiles; what one tile moves is counted by the emulator too, where
/// a kernel is compiled with them, and it is an error if the two differ.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Elements of a row of one head, a multiple of 16 up to 256
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(16..=256))]
    head_size: u32,

    /// Query rows of a block, a multiple of 16
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(16..=512))]
    tile_q: u32,

    /// Positions of a tile, a multiple of 16 up to 64 [default: 32, with --shared 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(16..=64))]
    tile_kv: Option<u32>,

    /// Tiles of keys and values that are in shared memory at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=3))]
    stages: u32,

    /// Warps that only copy
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=8))]
    staging_warps: u32,

    /// The structure before, in which S and P go through shared memory: 64 rows, tiles of 32 or 64
    #[arg(long, conflicts_with_all = ["tile_q", "stages", "staging_warps"])]
    shared: bool,

    /// With --shared: f32 after each row of S
    #[arg(long, value_name = "N", default_value_t = 0, requires = "shared")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=64))]
    padding: u32,

    /// The architecture that ptxas is asked about, such as sm_86 [default: sm_90a]
    #[arg(long, value_name = "ARCH")]
    arch: Option<String>,

    /// The ledger's format
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Md)]
    output: Format,
}

/// Runs the command.
///
/// # Errors
/// A [`UsageError`] for tiles that no kernel can have; a number that is not what the emulator counts,
/// after the ledger.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let tiles = tiles(args)?;
    let mut failed = None;
    let ledger = Ledger::new(tiles, |kernel| match assembled(args.arch.as_deref(), &[kernel]) {
        Ok(assembled) => {
            let registers = assembled.taken(kernel).registers;
            registers.zip(assembled.architecture().map(str::to_owned))
        }
        Err(error) => {
            failed = Some(error);
            None
        }
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    to_stdout(|out| ledger.write(out, args.output))?;
    Ok(ledger.check()?)
}

/// The tiles that are asked for, if a kernel can have them.
fn tiles(args: &Args) -> Result<Tiles, UsageError> {
    let &Args { head_size, tile_q, stages, staging_warps, padding, .. } = args;
    let tile_kv = args.tile_kv.unwrap_or(if args.shared { 64 } else { 32 });
    if args.shared {
        let geometry = SharedGeometry { head_size, tile_kv, padding };
        return geometry.is_valid().then_some(Tiles::Shared(geometry)).ok_or_else(|| {
            UsageError(format!(
                "no kernel can have tiles of {tile_kv} positions, head size {head_size} and {padding} f32 after a row: \
                 tiles are 32 or 64, the head size is a multiple of 16, and with padding a row of S is an \
                 odd multiple of 8"
            ))
        });
    }
    let geometry = Geometry { head_size, tile_q, tile_kv, stages, staging_warps };
    geometry.is_valid().then_some(Tiles::Registers(geometry)).ok_or_else(|| {
        UsageError(format!(
            "no kernel can have {tile_q} rows, tiles of {tile_kv}, head size {head_size}, {stages} stages and \
             {staging_warps} staging warps: tiles and head size are multiples of 16, a block has at most 1024 \
             threads, and those that copy move a whole row at a time"
        ))
    })
}
