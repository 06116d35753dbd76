//! The experiments: what each changes in the landed geometry, and what the source documents say
//! of it.
//!
//! The documents are r46, r48, r50 and r57 of a CUDA C++ implementation of the same kernel, measured
//! on a GB10 (compute capability 12.1). A claim holds a number of theirs, or its direction, in words
//! of our own.

use serde::Serialize;

use super::kernel::Kernel;
use super::tiles::Tiles;

/// What a claim is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// The largest error against f64.
    Error,
    /// How many elements have not the bits of the landed kernel.
    Identity,
    /// Registers of a thread.
    Registers,
    /// Bytes that a thread spills.
    SpillBytes,
    /// Bytes of shared memory of a block.
    SharedBytes,
    /// Blocks on a multiprocessor of the architecture or device that was asked.
    Blocks,
    /// Blocks on a multiprocessor of the source documents' GPU, computed.
    BlocksOnGb10,
    /// Bytes of S and P through shared memory in a tile.
    RoundTripBytes,
    /// Bytes of K and V that a tile copies.
    CopiedBytes,
    /// Loads of operands in a tile.
    OperandLoads,
    /// Bank conflicts in a tile.
    Conflicts,
    /// Products on the tensor cores in a tile.
    Products,
    /// Barriers in a tile.
    Barriers,
    /// Milliseconds of a launch.
    Milliseconds,
    /// The variant's time over the landed kernel's.
    Ratio,
    /// The variant's time over that of the kernel it was a variant of.
    RatioBefore,
}

impl Metric {
    /// All of them, in the order of a report.
    pub const ALL: [Self; 16] = [
        Self::Error,
        Self::Identity,
        Self::Registers,
        Self::SpillBytes,
        Self::SharedBytes,
        Self::Blocks,
        Self::BlocksOnGb10,
        Self::RoundTripBytes,
        Self::CopiedBytes,
        Self::OperandLoads,
        Self::Conflicts,
        Self::Products,
        Self::Barriers,
        Self::Milliseconds,
        Self::Ratio,
        Self::RatioBefore,
    ];

    /// Its name in a table.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Error => "largest error against f64",
            Self::Identity => "elements whose bits differ",
            Self::Registers => "registers of a thread",
            Self::SpillBytes => "spilled, bytes of a thread",
            Self::SharedBytes => "shared memory, bytes of a block",
            Self::Blocks => "blocks on a multiprocessor",
            Self::BlocksOnGb10 => "the same on sm_121, computed",
            Self::RoundTripBytes => "a tile: S and P through shared memory, bytes",
            Self::CopiedBytes => "a tile: K and V copied, bytes",
            Self::OperandLoads => "a tile: operand loads",
            Self::Conflicts => "a tile: bank conflicts",
            Self::Products => "a tile: products",
            Self::Barriers => "a tile: barriers",
            Self::Milliseconds => "milliseconds of a launch, median",
            Self::Ratio => "time over the landed kernel's",
            Self::RatioBefore => "time over that of the kernel before",
        }
    }
}

/// Whom a claim is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// The landed kernel.
    Landed,
    /// The variant.
    Variant,
}

/// What is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Said {
    /// This number.
    Exactly(f64),
    /// This number or less.
    AtMost(f64),
    /// More than this number.
    MoreThan(f64),
    /// A ratio of times: what is held against it is its direction, since machines differ. Within
    /// this part of 1 is no difference.
    Ratio(f64),
}

/// What a source document says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// About what.
    pub metric: Metric,
    /// About whom.
    pub subject: Subject,
    /// The number.
    pub says: Said,
    /// The claim in words.
    pub words: &'static str,
    /// The document and its section.
    pub source: &'static str,
}

/// One variant against the landed geometry.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// What it is called.
    pub name: &'static str,
    /// What it changes.
    pub title: &'static str,
    /// The variant's kernel.
    pub variant: Kernel,
    /// The kernel that the source compared it with, if that was not the landed one; timed as well.
    pub before: Option<Kernel>,
    /// What is claimed.
    pub claims: &'static [Claim],
}

/// The noise of the source documents' measurements: a ratio this near to 1 is neutral.
pub(super) const SOURCE_NOISE: f64 = 0.02;

const fn claim(
    metric: Metric,
    subject: Subject,
    says: Said,
    words: &'static str,
    source: &'static str,
) -> Claim {
    Claim { metric, subject, says, words, source }
}

use Metric::{
    Barriers, BlocksOnGb10, Conflicts, CopiedBytes, Error, Identity, Ratio, RatioBefore, Registers,
    RoundTripBytes, SharedBytes, SpillBytes,
};
use Said::{AtMost, Exactly, MoreThan};
use Subject::{Landed, Variant};

/// All experiments, in the order of the documents.
pub const ALL: &[Experiment] = &[
    Experiment {
        name: "r46",
        title: "S and P through shared memory, with tiles of 32 positions and padded rows of S",
        variant: Kernel::SharedPadded,
        before: Some(Kernel::Shared),
        claims: &[
            claim(BlocksOnGb10, Variant, Exactly(2.0), "two blocks of eight warps", "r48 §2"),
            claim(Conflicts, Variant, Exactly(0.0), "padding against it", "r48 §2"),
            claim(RatioBefore, Variant, Said::Ratio(0.888), "5.16 ms to 4.58 ms", "r48 §1"),
        ],
    },
    Experiment {
        name: "r48",
        title: "S and P through shared memory: the structure before, tiles of 64 positions",
        variant: Kernel::Shared,
        before: None,
        claims: &[
            claim(Error, Landed, AtMost(1e-4), "parity holds", "r48 §3.3"),
            claim(Registers, Landed, Exactly(124.0), "some 120 by its ledger", "r48 §2"),
            claim(SpillBytes, Landed, Exactly(0.0), "nothing is spilled", "r48 §2"),
            claim(SharedBytes, Landed, Exactly(34_816.0), "Q, K and V alone", "r48 §2"),
            claim(SharedBytes, Variant, Exactly(69_376.0), "69.38 KB", "r48 §1"),
            claim(BlocksOnGb10, Landed, Exactly(2.0), "limited by shared memory", "r48 §2"),
            claim(BlocksOnGb10, Variant, Exactly(1.0), "limited by shared memory", "r48 §1"),
            claim(RoundTripBytes, Landed, Exactly(0.0), "S and P never leave the registers", "r48 §2"),
            claim(Conflicts, Variant, MoreThan(0.0), "rows of S all begin in the same bank: 8-way", "r48 §2"),
            claim(RoundTripBytes, Variant, Exactly(57_344.0), "56 KB: S 16 and 16, P 8 and 16", "r48 §2"),
            claim(CopiedBytes, Landed, Exactly(16_384.0), "K and V of 32 positions", "r48 §3.1"),
            claim(Barriers, Landed, Exactly(3.0), "one less than before", "r48 §2"),
            claim(Barriers, Variant, Exactly(4.0), "one of them for the rows that cross warps", "r48 §2"),
            claim(Ratio, Variant, Said::Ratio(2.434), "2.12 ms, 5.16 ms before: 2.43 times", "r48 §5"),
        ],
    },
    Experiment {
        name: "r50",
        title: "tiles of 16 positions instead of 32",
        variant: Kernel::Tkv16,
        before: None,
        claims: &[
            claim(Error, Variant, AtMost(1e-4), "parity holds, errors are of the order of 1e-4", "r50 §4"),
            claim(
                Identity,
                Variant,
                MoreThan(0.0),
                "other tiles group the sums otherwise: 1 ULP here and there",
                "r50 §2",
            ),
            claim(
                SharedBytes,
                Variant,
                Exactly(32_768.0),
                "the tile of O, 32 KB, is more than the 25.5 KB of staging",
                "r50 §3.1",
            ),
            claim(SharedBytes, Landed, Exactly(34_816.0), "staging alone", "r50 §3.2"),
            claim(BlocksOnGb10, Landed, Exactly(2.0), "limited by shared memory", "r50 §1"),
            claim(BlocksOnGb10, Variant, Exactly(3.0), "one more block, derived and not measured", "r50 §2"),
            claim(CopiedBytes, Variant, Exactly(8192.0), "staging halves with the tile", "r50 §1"),
            claim(
                Barriers,
                Variant,
                Exactly(3.0),
                "billed per tile, so twice as many per position",
                "r50 §2",
            ),
            claim(
                Ratio,
                Variant,
                Said::Ratio(1.005),
                "whole prefill -0.5 % and -0.01 % in speed: neutral",
                "r50 §5",
            ),
        ],
    },
    Experiment {
        name: "r57",
        title: "blocks of 48 rows, two stages of K and V, a warp that only copies",
        variant: Kernel::Tq48Double,
        before: None,
        claims: &[
            claim(SharedBytes, Variant, Exactly(47_872.0), "48 rows of Q, two stages of K and V", "r57 §1"),
            claim(BlocksOnGb10, Variant, Exactly(2.0), "as many as before", "r57 §1"),
            claim(
                Identity,
                Variant,
                MoreThan(0.0),
                "the rows of a block alone change the bits: text forked even when the bug was mended",
                "r57 §2.3",
            ),
        ],
    },
    Experiment {
        name: "tkv64",
        title: "tiles of 64 positions instead of 32",
        variant: Kernel::Tkv64,
        before: None,
        claims: &[
            claim(
                Identity,
                Variant,
                MoreThan(0.0),
                "every tile constant is part of the numeric contract",
                "r57 §6",
            ),
            claim(Registers, Variant, Exactly(184.0), "60 more than 124", "r48 §2"),
            claim(SpillBytes, Variant, MoreThan(0.0), "would certainly spill", "r48 §2"),
        ],
    },
    Experiment {
        name: "tq128",
        title: "blocks of 128 rows instead of 64",
        variant: Kernel::Tq128,
        before: None,
        claims: &[claim(
            Identity,
            Variant,
            MoreThan(0.0),
            "a change of the rows of a block changes the bits as one of the positions does",
            "r57 §6",
        )],
    },
    Experiment {
        name: "double",
        title: "two stages of K and V, with 64 rows as before",
        variant: Kernel::Double,
        before: None,
        claims: &[
            claim(
                Identity,
                Variant,
                Exactly(0.0),
                "overlapping copies alone carries no numeric risk",
                "r57 §5",
            ),
            claim(
                Ratio,
                Variant,
                Said::Ratio(0.88),
                "hoped for: a quantized product gained 13.3 % in speed this way",
                "r57 §2.1",
            ),
        ],
    },
];

impl Experiment {
    /// The experiment of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|experiment| experiment.name == name)
    }

    /// Whether the numeric contract of the kernels promises the same bits: both keep S and P in the
    /// registers, and their tiles of positions are the same.
    #[must_use]
    pub fn promises_identity(&self) -> bool {
        match (self.variant.tiles(), Kernel::Landed.tiles()) {
            (Tiles::Registers(variant), Tiles::Registers(landed)) => variant.tile_kv == landed.tile_kv,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_different_and_claims_have_a_place() {
        for (i, experiment) in ALL.iter().enumerate() {
            assert!(ALL[..i].iter().all(|other| other.name != experiment.name), "{}", experiment.name);
            for claim in experiment.claims {
                assert!(Metric::ALL.contains(&claim.metric));
                assert!(claim.source.starts_with('r') && claim.source.contains('§'), "{}", claim.source);
            }
        }
    }

    #[test]
    fn tiles_of_the_same_positions_promise_the_same_bits() {
        let promising: Vec<_> = ALL.iter().filter(|e| e.promises_identity()).map(|e| e.name).collect();
        assert_eq!(promising, ["r57", "tq128", "double"]);
    }
}
