//! Launches of `gpu::probe`.

use gpu::probe::{ProbeLoads, ProbeMmaF16, ProbeMmaS8, ProbeShared, ProbeWmma};
use gpu::simt::{Contract, WARP_LANES};

use super::Check;
use crate::cuda::{Error, Queue, View, ViewMut};

/// The registers that every load fills, and two stored accumulators: see [`ProbeLoads`].
///
/// # Errors
/// [`Error::Contract`] unless both are as long as [`ProbeLoads`] says; those of a launch.
pub fn loads(queue: &impl Queue, out: ViewMut<'_, u32>, stored: ViewMut<'_, f32>) -> Result<(), Error> {
    let check = Check::<ProbeLoads>::new(queue);
    check.view(&out, "out", (ProbeLoads::REGISTERS * WARP_LANES).into(), 4)?;
    check.view(&stored, "stored", 512, 32)?;
    // SAFETY: the lengths and the alignment were just checked; both are borrowed alone.
    unsafe { queue.launch(ProbeLoads { out: out.start(), stored: stored.start() }) }
}

macro_rules! product {
    ($(#[$doc:meta])* $name:ident: $Kernel:ident, $sum:ty, $a:literal, $b:literal, $c:literal) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// [`Error::Contract`] unless all four are as long as the kernel says; those of a launch.
        pub fn $name(
            queue: &impl Queue,
            d: ViewMut<'_, $sum>,
            a: View<'_, u32>,
            b: View<'_, u32>,
            c: View<'_, $sum>,
        ) -> Result<(), Error> {
            let check = Check::<$Kernel>::new(queue);
            check.view(&d, "d", $c * 32, 4)?;
            check.view(&a, "a", $a * 32, 4)?;
            check.view(&b, "b", $b * 32, 4)?;
            check.view(&c, "c", $c * 32, 4)?;
            let arguments = $Kernel { d: d.start(), a: a.start(), b: b.start(), c: c.start() };
            // SAFETY: the lengths were just checked; d is borrowed alone.
            unsafe { queue.launch(arguments) }
        }
    };
}

product! {
    /// `D = A · B + C` on registers: [`ProbeWmma`].
    product_wmma: ProbeWmma, f32, 4, 4, 8
}

product! {
    /// `D = A · B + C` on registers: [`ProbeMmaF16`].
    product_f16: ProbeMmaF16, f32, 4, 2, 4
}

product! {
    /// `D = A · B + C` on registers: [`ProbeMmaS8`].
    product_s8: ProbeMmaS8, i32, 4, 2, 4
}

/// Uses `bytes` bytes of shared memory: [`ProbeShared`].
///
/// # Errors
/// [`Error::Contract`] unless `out` has 32 elements; [`Error::SharedMemory`] if the device has
/// not so much; those of a launch.
pub fn shared(queue: &impl Queue, out: ViewMut<'_, u32>, bytes: u32) -> Result<(), Error> {
    let arguments = probe_shared(queue, &out, bytes)?;
    // SAFETY: out has 32 elements and is borrowed alone.
    unsafe { queue.launch(arguments) }
}

/// Uses `bytes` bytes of shared memory, or `fallback` bytes where the device has not so much.
///
/// # Errors
/// As [`shared`], for the fallback.
pub fn shared_or(queue: &impl Queue, out: ViewMut<'_, u32>, bytes: u32, fallback: u32) -> Result<(), Error> {
    let preferred = probe_shared(queue, &out, bytes)?;
    // SAFETY: out has 32 elements and is borrowed alone.
    unsafe { queue.launch_or(preferred, ProbeShared { bytes: fallback, ..preferred }) }
}

fn probe_shared(queue: &impl Queue, out: &ViewMut<'_, u32>, bytes: u32) -> Result<ProbeShared, Error> {
    let check = Check::<ProbeShared>::new(queue);
    check.view(out, "out", WARP_LANES.into(), 4)?;
    let arguments = ProbeShared { out: out.start(), bytes };
    check.that(bytes <= u32::MAX - 31, || format!("{bytes} bytes of shared memory"))?;
    debug_assert_eq!(arguments.launch().shared_bytes, bytes);
    Ok(arguments)
}
