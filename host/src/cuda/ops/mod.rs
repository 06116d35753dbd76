//! One safe function a kernel: it checks what the kernel's contract asks for, then launches.
//!
//! Each takes a [`Queue`]: a stream of a device or an emulated one, with the same checks.
//! Arguments come in one order: queue, output, inputs, shape. Lengths are checked against the
//! shape, so that a launch can neither read nor write outside the views it was given.

#![expect(unsafe_code, reason = "each function holds the one launch that it has checked")]

mod argmax;
mod attention;
mod attn_decode;
mod block_sum;
mod cache;
mod convert;
mod embed;
mod gated;
mod matmul_f16;
mod matmul_f16_quant;
mod matmul_f16_wgmma;
mod matmul_splitk;
mod matrix;
mod matvec;
mod probe;
mod product;
mod residual_norm;
mod rms_norm;
mod rope_kv;
mod rows;
mod top_k;
mod transpose;
mod unpack_f16;
mod vector_add;

pub use argmax::{argmax, argmax_workspace};
pub use attention::{
    AttentionShape, PREFILL_HEAD_SIZES, Prefill, WGMMA_HEAD_SIZES, attention, prefill, prefill_wgmma,
    wgmma_kernel,
};
pub use attn_decode::{AttnShape, attn_decode};
pub use block_sum::block_sum;
pub use cache::Cache;
pub use convert::{convert_f16, convert_f16_panels, convert_f16_slabs, convert_q8};
pub use embed::embed;
pub use gated::gated;
pub use matmul_f16::matmul_f16;
pub use matmul_f16_quant::{matmul_f16_quant, matmul_f16_quant_by};
pub use matmul_f16_wgmma::{matmul_f16_wgmma, matmul_f16_wgmma_by, matmul_f16_wgmma_gated};
pub use matmul_splitk::{matmul_splitk, matmul_splitk_by, matmul_splitk_by_format};
pub use matrix::PlaneMatrix;
pub use matvec::{
    Output, matvec_f16, matvec_f16_by_format, matvec_q8, matvec_q8_by_format, matvec_q8_split_k,
    matvec_q8_two,
};
pub use probe::{
    approximations, loads, map_bf16, map_f16, map_s8, map_wgmma, product_f16, product_s8, product_wmma,
    shared, shared_or,
};
pub use residual_norm::{Delta, residual_norm};
pub use rms_norm::rms_norm;
pub use rope_kv::{Heads, RopeShape, rope_kv};
pub use rows::RowsMut;
pub use top_k::{top_k, top_k_workspace};
pub use transpose::transpose;
pub use unpack_f16::{unpack_f16, unpack_f16_pair};
pub use vector_add::vector_add;

use std::marker::PhantomData;

use gpu::product::{PanelF16, Panels};
use gpu::simt::{Contract, Global};

use super::{Error, Owner, Queue, View, ViewMut};

/// The checks of one launch. Each names the kernel in its error.
struct Check<K> {
    owner: Owner,
    kernel: PhantomData<K>,
}

impl<K: Contract> Check<K> {
    fn new(queue: &impl Queue) -> Self {
        Self { owner: queue.owner(), kernel: PhantomData }
    }

    /// That a rule holds, and what is said if not.
    fn that(&self, holds: bool, what: impl FnOnce() -> String) -> Result<(), Error> {
        if holds { Ok(()) } else { Err(Error::Contract { kernel: K::NAME, what: what() }) }
    }

    /// That an input or output is in the queue's memory, has as many elements as the shape has,
    /// and is aligned.
    fn view(&self, view: &impl Checked, name: &str, elements: u64, align: u64) -> Result<(), Error> {
        let (len, address) = (view.elements(), view.address());
        let (own, other) = (self.owner, view.owner());
        self.that(own == other, || format!("{name} is in the memory of {other}, the queue of {own}"))?;
        self.that(len == elements, || format!("{name} has {len} elements, the shape has {elements}"))?;
        self.that(address.is_multiple_of(align), || {
            format!("{name} begins at {address:#x}, which is not a multiple of {align} bytes")
        })
    }

    /// That an operand is all [panels](gpu::product::panels) of rows and columns, aligned to 16 bytes.
    fn panels(&self, view: &impl Checked, name: &str, [rows, columns]: [u32; 2]) -> Result<(), Error> {
        let bytes = Panels::new(columns).bytes(rows);
        self.view(view, name, bytes / size_of::<PanelF16>() as u64, 16)
    }

    /// Where an input begins that there need not be, and address 0 if there is none. As [`view`](Self::view).
    fn optional<T>(
        &self,
        view: Option<View<'_, T>>,
        name: &str,
        elements: u64,
        align: u64,
    ) -> Result<Global<T>, Error> {
        let Some(view) = view else { return Ok(Global::from_address(0)) };
        self.view(&view, name, elements, align)?;
        Ok(view.start())
    }

    /// Elements of `rows` rows of `width` that begin `stride` elements apart, without what lies behind
    /// the last one.
    fn strided(&self, rows: u32, width: u32, stride: usize) -> Result<u64, Error> {
        let stride = stride as u64;
        let apart = stride >= u64::from(width) && stride < 1 << 32;
        self.that(apart, || format!("rows of {width} begin {stride} elements apart"))?;
        Ok(if rows == 0 { 0 } else { u64::from(rows - 1) * stride + u64::from(width) })
    }

    /// A length that the kernel counts in 32 bits.
    fn count(&self, len: usize, name: &str, most: u32) -> Result<u32, Error> {
        let count = u32::try_from(len).unwrap_or(u32::MAX);
        let fits = len as u64 == u64::from(count) && count <= most;
        self.that(fits, || format!("{name} is {len}, the most is {most}"))?;
        Ok(count)
    }
}

/// What both kinds of views tell.
trait Checked {
    fn elements(&self) -> u64;
    fn address(&self) -> u64;
    fn owner(&self) -> Owner;
}

macro_rules! checked {
    ($($View:ident)*) => {$(
        impl<T> Checked for $View<'_, T> {
            fn elements(&self) -> u64 {
                self.len() as u64
            }
            fn address(&self) -> u64 {
                self.start().address()
            }
            fn owner(&self) -> Owner {
                $View::owner(self)
            }
        }
    )*};
}

checked!(View ViewMut);
