//! A queue on which kernels go wrong on purpose.

#![expect(unsafe_code, reason = "a launch is unsafe on a device, and the trait is one")]

use std::any::Any;

use gpu::attention::FaPrefillF16kv;
use gpu::product::MatmulF16Quant;
use gpu::quant::BlockQ4_K;
use gpu::simt::emulator::Lane;
use gpu::simt::emulator::without::{LeftOut, Sabotaged};
use gpu::simt::{Contract, Dim3, Expectations, Global, Kernel, Launch, Simt};
use lanemap::cuda::{Around, Emulated, Error, Queue};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Nothing.
    Nothing,
    /// `fa_prefill_f16kv_hd64` takes each row for the next one: it sees a key too many.
    Mask,
    /// `fa_prefill_f16kv_hd64` does not wait for its first copies to shared memory.
    CopyWait,
    /// `matmul_f16_q4_k` and `fa_prefill_f16kv_hd64` sum in f16.
    HalfSums,
    /// One element of what `fa_prefill_f16kv_hd64` writes is NaN.
    Nan,
}

/// The kernel that all deeds are done to.
type Attention = FaPrefillF16kv<64>;
type Product = MatmulF16Quant<BlockQ4_K>;

/// The emulator, and what goes wrong on it.
pub(crate) struct Saboteur {
    pub(crate) emulated: Emulated,
    pub(crate) deed: Deed,
}

impl Saboteur {
    pub(crate) fn new(deed: Deed) -> Self {
        Self { emulated: Emulated::new(), deed }
    }
}

impl Around for Saboteur {
    type Inner = Emulated;

    fn inner(&self) -> &Emulated {
        &self.emulated
    }

    unsafe fn launch_around<K>(&self, kernel: K) -> Result<(), Error>
    where
        K: for<'a> Kernel<Lane<'a>>,
    {
        let (attention, product) = {
            let kernel: &dyn Any = &kernel;
            (kernel.downcast_ref::<Attention>().copied(), kernel.downcast_ref::<Product>().copied())
        };
        // SAFETY: the emulator finds what is wrong with a launch.
        unsafe {
            match (self.deed, attention, product) {
                (Deed::Mask, Some(mut kernel), _) => {
                    kernel.0.start += 1;
                    self.emulated.launch(kernel)
                }
                (Deed::CopyWait, Some(kernel), _) => {
                    self.emulated.launch(Sabotaged { kernel, left_out: LeftOut::CopyWait(0) })
                }
                (Deed::HalfSums, Some(kernel), _) => {
                    self.emulated.launch(Sabotaged { kernel, left_out: LeftOut::Accuracy })
                }
                (Deed::HalfSums, _, Some(kernel)) => {
                    self.emulated.launch(Sabotaged { kernel, left_out: LeftOut::Accuracy })
                }
                (Deed::Nan, Some(kernel), _) => {
                    self.emulated.launch(kernel)?;
                    self.emulated.launch(Poison(kernel.0.out.at(5)))
                }
                _ => self.emulated.launch(kernel),
            }
        }
    }
}

/// A kernel that writes a NaN.
#[derive(Clone, Copy)]
struct Poison(Global<f32>);

impl Contract for Poison {
    const NAME: &'static str = "poison";
    const EXPECTATIONS: Expectations = Expectations { instructions: &[], registers: 16, local_memory: false };

    fn launch(&self) -> Launch {
        Launch { grid: Dim3::linear(1), threads: 32, shared_bytes: 0 }
    }
}

impl<S: Simt> Kernel<S> for Poison {
    unsafe fn run(self, s: S) {
        if s.thread() == 0 {
            // SAFETY: the emulator finds out if this is no element of a live buffer.
            unsafe { s.store_global(self.0, f32::NAN) }
        }
    }
}
