//! Matrix products, and the rows that they take.

#![allow(unsafe_code, reason = "a kernel's body is unsafe: it trusts its launch")]

pub mod activations;
pub mod convert;
pub mod epilogue;
mod matmul_f16;
mod matmul_f16_quant;
mod matmul_f16_wgmma;
pub mod matmul_splitk;
pub mod matvec;
pub mod panels;
mod problem;
pub mod rounds;
pub mod slabs;
mod staged;
mod tiling;
mod unpack_f16;
mod weights;

pub use activations::{Activations, AsF16, AsF16Panels, AsF16Slabs, AsF32, AsQ8, Q8Row};
pub use convert::Convert;
pub use epilogue::{GateUp, Plain};
pub use matmul_f16::{MatmulF16, MatmulGeometry};
pub use matmul_f16_quant::MatmulF16Quant;
pub use matmul_f16_wgmma::MatmulF16Wgmma;
pub use matmul_splitk::MatmulSplitK;
pub use matvec::{Matvec, MatvecGeometry};
pub use panels::{PanelF16, Panels, WeightPanelF16};
pub use problem::Product;
pub use rounds::Rounds;
pub use slabs::{SlabF16, Slabs};
pub use tiling::Tiling;
pub use unpack_f16::UnpackF16;
pub use weights::Weights;
