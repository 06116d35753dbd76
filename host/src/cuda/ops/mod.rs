//! One safe function a kernel: it checks what the kernel's contract asks for, then launches.
//!
//! Arguments come in one order: stream, output, inputs, shape. Lengths are checked against the
//! shape, so that a launch can neither read nor write outside the views it was given.

#![expect(unsafe_code, reason = "each function holds the one launch that it has checked")]

mod basics;
mod matmul_f16;
mod probe;
mod rms_norm;

pub use basics::{block_sum, transpose, vector_add};
pub use matmul_f16::matmul_f16;
pub use probe::{
    approximations, loads, map_bf16, map_f16, map_s8, map_wgmma, product_f16, product_s8, product_wmma,
    shared, shared_or,
};
pub use rms_norm::rms_norm;

use gpu::simt::Contract;

use super::{Device, Error, Stream, View, ViewMut};

/// The checks of one launch. Each names the kernel in its error.
struct Check<'a, K> {
    stream: &'a Stream,
    kernel: std::marker::PhantomData<K>,
}

impl<'a, K: Contract> Check<'a, K> {
    fn new(stream: &'a Stream) -> Self {
        Self { stream, kernel: std::marker::PhantomData }
    }

    /// That a rule holds, and what is said if not.
    fn that(&self, holds: bool, what: impl FnOnce() -> String) -> Result<(), Error> {
        if holds { Ok(()) } else { Err(Error::Contract { kernel: K::NAME, what: what() }) }
    }

    /// That an input or output is on the stream's device, has as many elements as the shape has,
    /// and is aligned.
    fn view(&self, view: &impl Checked, name: &str, elements: u64, align: u64) -> Result<(), Error> {
        let (len, address) = (view.elements(), view.address());
        let (own, other) = (self.stream.device().description().index, view.device().description().index);
        self.that(own == other, || format!("{name} is on cuda:{other}, the stream on cuda:{own}"))?;
        self.that(len == elements, || format!("{name} has {len} elements, the shape has {elements}"))?;
        self.that(address.is_multiple_of(align), || {
            format!("{name} begins at {address:#x}, which is not a multiple of {align} bytes")
        })
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
    fn device(&self) -> Device;
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
            fn device(&self) -> Device {
                $View::device(self)
            }
        }
    )*};
}

checked!(View ViewMut);
