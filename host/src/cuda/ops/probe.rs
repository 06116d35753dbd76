//! Launches of `gpu::probe`.

use gpu::probe::{
    ProbeApproximations, ProbeLoads, ProbeMapBf16, ProbeMapF16, ProbeMapS8, ProbeMapWgmma, ProbeMmaF16,
    ProbeMmaS8, ProbeShared, ProbeWmma,
};
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

macro_rules! map {
    ($(#[$doc:meta])* $name:ident: $Kernel:ident, $sum:ty) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// [`Error::Contract`] unless `d` is as long as the kernel says; those of a launch, among
        /// them [`Error::NotForDevice`].
        pub fn $name(queue: &impl Queue, d: ViewMut<'_, $sum>) -> Result<(), Error> {
            Check::<$Kernel>::new(queue).view(&d, "d", $Kernel::ANSWERS.into(), 4)?;
            // SAFETY: the length was just checked; d is borrowed alone.
            unsafe { queue.launch($Kernel { d: d.start() }) }
        }
    };
}

map! {
    /// What products of f16 say of the lane maps: [`ProbeMapF16`].
    map_f16: ProbeMapF16, f32
}

map! {
    /// What products of bf16 say of the lane maps: [`ProbeMapBf16`]. Since sm_80.
    map_bf16: ProbeMapBf16, f32
}

map! {
    /// What products of signed bytes say of the lane maps: [`ProbeMapS8`].
    map_s8: ProbeMapS8, i32
}

/// What products of a warpgroup say of the lane maps: [`ProbeMapWgmma`]. Of GPUs, on compute capability 9.0
/// alone.
///
/// # Errors
/// [`Error::Contract`] unless both are as long as the kernel says; those of a launch, among them
/// [`Error::NotForDevice`].
pub fn map_wgmma<const REGISTERS: usize>(
    queue: &impl Queue,
    d: ViewMut<'_, f32>,
    a: ViewMut<'_, f32>,
) -> Result<(), Error> {
    let check = Check::<ProbeMapWgmma<REGISTERS>>::new(queue);
    check.view(&d, "d", ProbeMapWgmma::<REGISTERS>::D_ANSWERS.into(), 4)?;
    check.view(&a, "a", ProbeMapWgmma::<REGISTERS>::A_ANSWERS.into(), 4)?;
    // SAFETY: the lengths were just checked; both are borrowed alone.
    unsafe { queue.launch(ProbeMapWgmma::<REGISTERS> { d: d.start(), a: a.start() }) }
}

/// `2^x`, `1 / x` and `1 / √x` as the machine approximates them, in this order:
/// [`ProbeApproximations`].
///
/// # Errors
/// [`Error::Contract`] unless the four are equally long; those of a launch.
pub fn approximations(queue: &impl Queue, out: [ViewMut<'_, f32>; 3], x: View<'_, f32>) -> Result<(), Error> {
    let check = Check::<ProbeApproximations>::new(queue);
    let n = check.count(x.len(), "x", ProbeApproximations::MOST)?;
    check.view(&x, "x", n.into(), 4)?;
    for (out, name) in out.iter().zip(["exp2", "reciprocal", "rsqrt"]) {
        check.view(out, name, n.into(), 4)?;
    }
    let [exp2, reciprocal, rsqrt] = out.map(|out| out.start());
    let arguments = ProbeApproximations { exp2, reciprocal, rsqrt, x: x.start(), n };
    // SAFETY: the lengths were just checked; the three are borrowed alone.
    unsafe { queue.launch(arguments) }
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
