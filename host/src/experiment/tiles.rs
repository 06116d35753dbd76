//! The tiles of a prefill kernel of either structure, and what follows from them.

use gpu::attention::{Geometry, SharedGeometry};
use serde::Serialize;

/// The tiles of a prefill kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tiles {
    /// S and P stay in the registers.
    Registers(Geometry),
    /// S and P go through shared memory: the structure before.
    Shared(SharedGeometry),
}

/// Registers of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Registers {
    /// What they hold.
    pub what: &'static str,
    /// How many.
    pub registers: u32,
}

/// A part of shared memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// What lies there.
    pub what: String,
    /// Where, in bytes from the beginning.
    pub offset: u32,
    /// How many bytes.
    pub bytes: u32,
}

/// What one tile costs a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TileCost {
    /// Bytes of S and P through shared memory, there and back.
    pub round_trip_bytes: u64,
    /// Bytes of the rows' statistics that lanes store to shared memory and load.
    pub statistics_bytes: u64,
    /// Bytes of K and V that are copied into shared memory.
    pub copied_bytes: u64,
    /// Loads of operands of Q, K and V from shared memory, a warp's instruction each.
    pub operand_loads: u64,
    /// Bytes that they read.
    pub operand_bytes: u64,
    /// Passes through the banks of shared memory beyond the least number.
    pub conflicts: u64,
    /// `wmma.mma`, a warp's instruction each.
    pub products: u64,
    /// Shuffles, a warp's instruction each.
    pub shuffles: u64,
    /// Barriers of the block.
    pub barriers: u64,
}

/// Bytes of an operand of f16: 16 × 16.
pub(super) const OPERAND_BYTES: u64 = 16 * 16 * 2;

impl TileCost {
    /// The names of its numbers, and the numbers, in the order of the fields.
    #[must_use]
    pub const fn lines(&self) -> [(&'static str, u64); 9] {
        [
            ("S and P through shared memory, bytes", self.round_trip_bytes),
            ("statistics of rows, bytes", self.statistics_bytes),
            ("K and V copied, bytes", self.copied_bytes),
            ("loads of Q, K and V", self.operand_loads),
            ("loads of Q, K and V, bytes", self.operand_bytes),
            ("bank conflicts", self.conflicts),
            ("products", self.products),
            ("shuffles", self.shuffles),
            ("barriers", self.barriers),
        ]
    }
}

impl Tiles {
    /// Elements of a row of one head.
    #[must_use]
    pub const fn head_size(self) -> u32 {
        match self {
            Self::Registers(g) => g.head_size,
            Self::Shared(g) => g.head_size,
        }
    }

    /// Query rows of a block.
    #[must_use]
    pub const fn tile_q(self) -> u32 {
        match self {
            Self::Registers(g) => g.tile_q,
            Self::Shared(_) => SharedGeometry::TILE_Q,
        }
    }

    /// Positions of a tile.
    #[must_use]
    pub const fn tile_kv(self) -> u32 {
        match self {
            Self::Registers(g) => g.tile_kv,
            Self::Shared(g) => g.tile_kv,
        }
    }

    /// Threads of a block.
    #[must_use]
    pub const fn threads(self) -> u32 {
        match self {
            Self::Registers(g) => g.threads(),
            Self::Shared(_) => SharedGeometry::THREADS,
        }
    }

    /// Bytes of shared memory.
    #[must_use]
    pub const fn shared_bytes(self) -> u32 {
        match self {
            Self::Registers(g) => g.shared_bytes(),
            Self::Shared(g) => g.shared_bytes(),
        }
    }

    /// Loads of operands of P from shared memory in a tile.
    #[must_use]
    pub const fn weight_loads(self) -> u64 {
        match self {
            Self::Registers(_) => 0,
            Self::Shared(g) => g.weight_loads() as u64,
        }
    }

    /// What one tile costs, from the tiles alone.
    #[must_use]
    pub const fn cost(self) -> TileCost {
        match self {
            Self::Registers(g) => TileCost {
                round_trip_bytes: g.round_trip_bytes() as u64,
                statistics_bytes: 0,
                copied_bytes: g.copied_bytes() as u64,
                operand_loads: g.operand_loads() as u64,
                operand_bytes: g.operand_loads() as u64 * OPERAND_BYTES,
                conflicts: 0,
                products: g.products() as u64 * g.row_warps() as u64,
                shuffles: g.shuffles() as u64,
                barriers: g.barriers() as u64,
            },
            Self::Shared(g) => TileCost {
                round_trip_bytes: g.round_trip_bytes() as u64,
                statistics_bytes: g.statistics_traffic_bytes() as u64,
                copied_bytes: g.copied_bytes() as u64,
                operand_loads: g.operand_loads() as u64,
                operand_bytes: g.operand_loads() as u64 * OPERAND_BYTES,
                conflicts: g.conflicts() as u64,
                products: g.products() as u64,
                shuffles: g.shuffles() as u64,
                barriers: SharedGeometry::BARRIERS as u64,
            },
        }
    }

    /// The register ledger, and its sum.
    #[must_use]
    pub fn registers(self) -> (Vec<Registers>, u32) {
        let (lines, sum) = match self {
            Self::Registers(g) => (
                vec![
                    ("O, accumulators", g.out_registers()),
                    ("S and then P, accumulators", g.score_registers()),
                    ("P, the operand in use", g.weight_registers()),
                    ("Q, K, V, operands, at most", g.operand_registers()),
                    ("m and l of two rows", g.row_registers()),
                    ("addresses and counters, estimated", g.address_registers()),
                ],
                g.registers(),
            ),
            Self::Shared(g) => (
                vec![
                    ("O, accumulators", g.out_registers()),
                    ("S until it is stored, accumulators", g.score_registers()),
                    ("Q, K, V, P, operands on their way", g.operand_registers()),
                    ("softmax of one row, estimated", g.row_registers()),
                    ("addresses and counters, estimated", g.address_registers()),
                ],
                g.registers(),
            ),
        };
        (lines.into_iter().map(|(what, registers)| Registers { what, registers }).collect(), sum)
    }

    /// The map of shared memory: parts one after the other, then O, which is laid over them.
    #[must_use]
    pub fn parts(self) -> Vec<Part> {
        let (tile_q, tile_kv) = (self.tile_q(), self.tile_kv());
        let part = |what: String, offset: u32, bytes: u32| Part { what, offset, bytes };
        let over = "O over them, after the last tile, if rows are missing".to_owned();
        match self {
            Self::Registers(g) => {
                let bytes = |rows: u32| rows * g.stride() * 2;
                let mut parts = vec![part(format!("Q, {tile_q} rows"), 0, bytes(tile_q))];
                let places = [("K", Geometry::keys as fn(Geometry, u32) -> u32), ("V", Geometry::values)];
                for (matrix, place) in places {
                    for stage in 0..g.stages {
                        let what = format!("{matrix}, {tile_kv} rows, stage {stage}");
                        parts.push(part(what, place(g, stage) * 2, bytes(tile_kv)));
                    }
                }
                parts.push(part(over, 0, g.out_bytes()));
                parts
            }
            Self::Shared(g) => {
                let bytes = |rows: u32| rows * g.stride() * 2;
                let statistics = "m, l and factors of the rows".to_owned();
                vec![
                    part(format!("Q, {tile_q} rows"), 0, bytes(tile_q)),
                    part(format!("K, {tile_kv} rows"), g.keys() * 2, bytes(tile_kv)),
                    part(format!("V, {tile_kv} rows"), g.values() * 2, bytes(tile_kv)),
                    part("S, and P over it".to_owned(), g.scores() * 4, g.score_bytes()),
                    part(statistics, g.statistics() * 4, g.statistics_bytes()),
                    part(over, 0, g.out_bytes()),
                ]
            }
        }
    }
}
