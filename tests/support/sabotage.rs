//! A queue on which kernels go wrong on purpose.

#![expect(unsafe_code, reason = "a launch is unsafe on a device, and the trait is one")]

use std::any::Any;

use gpu::attention::FaPrefillF16kv;
use gpu::product::panels::PANEL_COLUMNS;
use gpu::product::{MatmulF16Quant, MatmulF16Wgmma};
use gpu::quant::BlockQ4_K;
use gpu::simt::emulator::Lane;
use gpu::simt::emulator::without::{LeftOut, Sabotaged};
use gpu::simt::{Architecture, Contract, Dim3, Expectations, Global, Kernel, Launch, Simt};
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
    /// `matmul_f16_q4_k`, `matmul_f16_wgmma_n128` and `fa_prefill_f16kv_hd64` sum in f16.
    HalfSums,
    /// `matmul_f16_wgmma_n128` does not wait for its stages to be full, and to be empty, the first time.
    StageWait,
    /// `matmul_f16_wgmma_n128` does not wait for its first slab's products, and gives the stage back.
    ProductWait,
    /// `matmul_f16_wgmma_n128` stops one slab early.
    LastSlab,
    /// The emulator refuses `matmul_f16_wgmma_n128` as a device of compute capability 8.6 does.
    Older,
    /// One element of what `fa_prefill_f16kv_hd64` writes is NaN.
    Nan,
}

/// The kernels that deeds are done to.
type Attention = FaPrefillF16kv<64>;
type Product = MatmulF16Quant<BlockQ4_K>;
type WgmmaProduct = MatmulF16Wgmma<64>;

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
        let any: &dyn Any = &kernel;
        let attention = any.downcast_ref::<Attention>().copied();
        let product = any.downcast_ref::<Product>().copied();
        if let Some(mut kernel) = any.downcast_ref::<WgmmaProduct>().copied() {
            let left_out = match self.deed {
                Deed::HalfSums => LeftOut::Accuracy,
                Deed::StageWait => LeftOut::MBarrierWait(0),
                // The first one is for none.
                Deed::ProductWait => LeftOut::WgmmaWait(1),
                _ => LeftOut::Nothing,
            };
            if self.deed == Deed::Older {
                let needs = Architecture { sm: 90, exact: true };
                return Err(Error::NotForDevice { kernel: K::NAME, needs, sm: 86 });
            }
            if self.deed == Deed::LastSlab {
                kernel.k -= PANEL_COLUMNS.min(kernel.k);
            }
            // SAFETY: as below.
            return unsafe { self.emulated.launch(Sabotaged { kernel, left_out }) };
        }
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
