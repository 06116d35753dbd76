//! Instruction sets: one portable loop, compiled once for each.
//!
//! A [`Kernel`] is written once, against the few words of [`Simd`]. [`dispatch`] compiles its
//! body under `#[target_feature]` for every instruction set of the architecture and runs the
//! best one that the processor has. Loops over single numbers are left to the compiler's
//! vectorizer; the words on [`Simd::Lanes`] are intrinsics because it does not keep the
//! products' sums in registers (`docs/results.md`).
#![expect(unsafe_code, reason = "intrinsics and calls across target features; each block names its facts")]

use std::sync::OnceLock;

use half::f16;

/// The words in which the CPU kernels are written.
pub(super) trait Simd: Copy {
    /// Eight f32.
    type Lanes: Copy;

    /// Eight times `x`.
    fn splat(x: f32) -> Self::Lanes;

    /// Eight values from memory.
    fn load(x: &[f32; 8]) -> Self::Lanes;

    /// The eight values, to memory.
    fn store(lanes: Self::Lanes, out: &mut [f32; 8]);

    /// `a · b`, lane by lane.
    fn mul(a: Self::Lanes, b: Self::Lanes) -> Self::Lanes;

    /// `a · b + c`, lane by lane, fused where the instruction set has it.
    fn fma(a: Self::Lanes, b: Self::Lanes, c: Self::Lanes) -> Self::Lanes;

    /// Sums of four neighbouring products: lane `l` is `Σ_{j<4} w[4l+j] · a[4l+j]`, exact.
    ///
    /// `narrow`, a constant at every call, promises that every `w` is at most 127, which
    /// allows a shorter instruction sequence where pairs of products are added in 16 bits.
    fn dot(w: &[u8; 32], a: &[i8; 32], narrow: bool) -> Self::Lanes;

    /// Eight f16 values as f32, exact.
    fn widen(h: &[f16; 8]) -> Self::Lanes;

    /// Two f16 values as f32, exact: a block's scales.
    fn widen_pair(h: [f16; 2]) -> [f32; 2];

    /// `a · b + c` of single numbers, fused where the instruction set has it: for loops that
    /// the compiler vectorizes.
    fn mul_add(a: f32, b: f32, c: f32) -> f32;
}

/// A computation that [`dispatch`] compiles for every instruction set.
///
/// `run` and all it calls must be `#[inline(always)]`: a function that is not inlined is
/// compiled for the baseline instruction set.
pub(super) trait Kernel {
    /// What the kernel returns.
    type Output;
    /// The body.
    fn run<S: Simd>(self) -> Self::Output;
}

/// The instruction sets there is a version for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstructionSet {
    /// The architecture's baseline: SSE2 on x86-64, NEON on aarch64.
    Baseline,
    /// AVX2 with FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 (F, VL, BW) with VNNI.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl InstructionSet {
    /// Every set that this processor has, worst first.
    #[must_use]
    pub fn available() -> Vec<Self> {
        #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut))]
        let mut sets = vec![Self::Baseline];
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c");
            if avx2 {
                sets.push(Self::Avx2);
            }
            if avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vnni")
            {
                sets.push(Self::Avx512);
            }
        }
        sets
    }

    /// The set that the CPU backend uses: the best available one, or the one that the
    /// environment variable `LANEMAP_CPU` names (`baseline`, `avx2`, `avx512`).
    #[must_use]
    pub fn selected() -> Self {
        #[cfg(test)]
        if let Some(set) = tests::FORCED.get() {
            return set;
        }
        static SELECTED: OnceLock<InstructionSet> = OnceLock::new();
        *SELECTED.get_or_init(|| {
            let sets = Self::available();
            let best = sets[sets.len() - 1];
            match std::env::var("LANEMAP_CPU") {
                Err(_) => best,
                Ok(name) => sets.into_iter().find(|set| set.name() == name).unwrap_or_else(|| {
                    tracing::warn!(
                        "LANEMAP_CPU={name}: this processor has no such set; using {}",
                        best.name()
                    );
                    best
                }),
            }
        })
    }

    /// The name that `LANEMAP_CPU` and the reports use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => "avx512",
        }
    }
}

/// Runs `kernel` compiled for the selected instruction set.
#[inline]
pub(super) fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    dispatch_on(InstructionSet::selected(), kernel)
}

/// Runs `kernel` compiled for `set`, which must be one of [`InstructionSet::available`].
///
/// # Panics
/// In a debug build, if the processor does not have `set`.
#[inline]
fn dispatch_on<K: Kernel>(set: InstructionSet, kernel: K) -> K::Output {
    match set {
        InstructionSet::Baseline => kernel.run::<Portable>(),
        // SAFETY: `set` comes from `InstructionSet::available`, which lists a set only after
        // the processor reported every feature that the function enables.
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 => unsafe { x86::run_avx2(kernel) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512 => unsafe { x86::run_avx512(kernel) },
    }
}

/// One f16 as f32, exact, in a few integer instructions and without a call.
#[inline(always)]
pub(super) fn widen(h: f16) -> f32 {
    // The exponent is moved into place by a multiplication, which also normalizes subnormals;
    // infinities and NaNs get the f32 exponent by hand.
    const REBIAS: f32 = f32::from_bits((127 + 112) << 23);
    let bits = u32::from(h.to_bits());
    let magnitude = (bits & 0x7fff) << 13;
    let finite = (f32::from_bits(magnitude) * REBIAS).to_bits();
    let value = if bits & 0x7c00 == 0x7c00 { magnitude | 0x7f80_0000 } else { finite };
    f32::from_bits(value | (bits & 0x8000) << 16)
}

/// f16 values as f32, exact.
#[inline(always)]
pub(super) fn widen_slice<S: Simd>(halves: &[f16], out: &mut [f32]) {
    let (chunks, rest) = halves.as_chunks::<8>();
    let (out_chunks, out_rest) = out.as_chunks_mut::<8>();
    for (out, chunk) in out_chunks.iter_mut().zip(chunks) {
        S::store(S::widen(chunk), out);
    }
    for (out, &half) in out_rest.iter_mut().zip(rest) {
        *out = widen(half);
    }
}

/// The words in plain Rust; the oracle of the others.
#[derive(Clone, Copy)]
struct Portable;

impl Simd for Portable {
    type Lanes = [f32; 8];

    #[inline(always)]
    fn splat(x: f32) -> [f32; 8] {
        [x; 8]
    }

    #[inline(always)]
    fn load(x: &[f32; 8]) -> [f32; 8] {
        *x
    }

    #[inline(always)]
    fn store(lanes: [f32; 8], out: &mut [f32; 8]) {
        *out = lanes;
    }

    #[inline(always)]
    fn mul(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        core::array::from_fn(|l| a[l] * b[l])
    }

    #[inline(always)]
    fn fma(a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        core::array::from_fn(|l| Self::mul_add(a[l], b[l], c[l]))
    }

    #[inline(always)]
    fn dot(w: &[u8; 32], a: &[i8; 32], _narrow: bool) -> [f32; 8] {
        core::array::from_fn(|l| {
            let product = |j: usize| i32::from(w[4 * l + j]) * i32::from(a[4 * l + j]);
            (product(0) + product(1) + product(2) + product(3)) as f32
        })
    }

    #[inline(always)]
    fn widen(h: &[f16; 8]) -> [f32; 8] {
        h.map(widen)
    }

    #[inline(always)]
    fn widen_pair([a, b]: [f16; 2]) -> [f32; 2] {
        [widen(a), widen(b)]
    }

    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        // Without a hardware instruction `mul_add` is a call into libm.
        if cfg!(any(target_arch = "aarch64", target_feature = "fma")) { a.mul_add(b, c) } else { a * b + c }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use core::arch::x86_64::{
        __m128i, __m256, __m256i, _mm_cvtph_ps, _mm_cvtsi32_si128, _mm_cvtss_f32, _mm_movehdup_ps,
        _mm256_cvtepi8_epi16, _mm256_cvtepi32_ps, _mm256_cvtepu8_epi16, _mm256_cvtph_ps, _mm256_dpbusd_epi32,
        _mm256_fmadd_ps, _mm256_hadd_epi32, _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_mul_ps,
        _mm256_permute4x64_epi64, _mm256_set1_epi16, _mm256_set1_ps, _mm256_setzero_si256,
    };

    // Memory is reached through transmuted arrays, not through the load and store intrinsics:
    // in a debug build these check their pointers at every call.
    use core::mem::transmute;
    use half::f16;

    use super::{Kernel, Simd};

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
        kernel.run::<Avx2>()
    }

    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512vl,avx512bw,avx512vnni")]
    pub(super) fn run_avx512<K: Kernel>(kernel: K) -> K::Output {
        kernel.run::<Avx512>()
    }

    /// The words on AVX2. Private to this module and named only by `run_avx2`: whoever runs
    /// its methods is inside that function, so the features it enables are present.
    #[derive(Clone, Copy)]
    struct Avx2;

    /// The words on AVX-512 with VNNI, in 256-bit registers. Named only by `run_avx512`, as
    /// `Avx2` is by `run_avx2`.
    #[derive(Clone, Copy)]
    struct Avx512;

    /// The 8-bit dot products of AVX2.
    #[inline(always)]
    fn dot_avx2(w: &[u8; 32], a: &[i8; 32], narrow: bool) -> __m256i {
        // SAFETY: every bit pattern of an array is one of a vector; AVX2 is there (see `Avx2`).
        unsafe {
            if narrow {
                // At most 2 · 127 · 128 in magnitude: the 16-bit sums do not saturate.
                _mm256_madd_epi16(
                    _mm256_maddubs_epi16(
                        transmute::<[u8; 32], __m256i>(*w),
                        transmute::<[i8; 32], __m256i>(*a),
                    ),
                    _mm256_set1_epi16(1),
                )
            } else {
                let w = transmute::<[u8; 32], [__m128i; 2]>(*w);
                let a = transmute::<[i8; 32], [__m128i; 2]>(*a);
                let low = _mm256_madd_epi16(_mm256_cvtepu8_epi16(w[0]), _mm256_cvtepi8_epi16(a[0]));
                let high = _mm256_madd_epi16(_mm256_cvtepu8_epi16(w[1]), _mm256_cvtepi8_epi16(a[1]));
                // `hadd` works in each 128-bit half: its 64-bit quarters hold the lanes 0-1,
                // 4-5, 2-3, 6-7.
                _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_hadd_epi32(low, high))
            }
        }
    }

    /// The 8-bit dot products of VNNI.
    #[inline(always)]
    fn dot_avx512(w: &[u8; 32], a: &[i8; 32], _narrow: bool) -> __m256i {
        // SAFETY: every bit pattern of an array is one of a vector; AVX-512 VL and VNNI are there
        // (see `Avx512`).
        unsafe {
            let w = transmute::<[u8; 32], __m256i>(*w);
            let a = transmute::<[i8; 32], __m256i>(*a);
            _mm256_dpbusd_epi32(_mm256_setzero_si256(), w, a)
        }
    }

    /// The words that both sets have, and the one in which they differ.
    macro_rules! simd {
        ($set:ty, $dot:path) => {
            impl Simd for $set {
                type Lanes = __m256;

                #[inline(always)]
                fn splat(x: f32) -> __m256 {
                    // SAFETY: AVX is there (see the type).
                    unsafe { _mm256_set1_ps(x) }
                }

                #[inline(always)]
                fn load(x: &[f32; 8]) -> __m256 {
                    // SAFETY: every bit pattern of one type is one of the other.
                    unsafe { transmute::<[f32; 8], __m256>(*x) }
                }

                #[inline(always)]
                fn store(lanes: __m256, out: &mut [f32; 8]) {
                    // SAFETY: every bit pattern of one type is one of the other.
                    *out = unsafe { transmute::<__m256, [f32; 8]>(lanes) };
                }

                #[inline(always)]
                fn mul(a: __m256, b: __m256) -> __m256 {
                    // SAFETY: AVX is there (see the type).
                    unsafe { _mm256_mul_ps(a, b) }
                }

                #[inline(always)]
                fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
                    // SAFETY: FMA is there (see the type).
                    unsafe { _mm256_fmadd_ps(a, b, c) }
                }

                #[inline(always)]
                fn dot(w: &[u8; 32], a: &[i8; 32], narrow: bool) -> __m256 {
                    // SAFETY: AVX is there (see the type).
                    unsafe { _mm256_cvtepi32_ps($dot(w, a, narrow)) }
                }

                #[inline(always)]
                fn widen(h: &[f16; 8]) -> __m256 {
                    // SAFETY: every bit pattern of an f16 array is one of a vector; F16C is
                    // there (see the type).
                    unsafe { _mm256_cvtph_ps(transmute::<[f16; 8], __m128i>(*h)) }
                }

                #[inline(always)]
                fn widen_pair([a, b]: [f16; 2]) -> [f32; 2] {
                    let bits = u32::from(a.to_bits()) | u32::from(b.to_bits()) << 16;
                    // SAFETY: no memory is touched; SSE3 and F16C are there (see the type).
                    unsafe {
                        let x = _mm_cvtph_ps(_mm_cvtsi32_si128(bits.cast_signed()));
                        [_mm_cvtss_f32(x), _mm_cvtss_f32(_mm_movehdup_ps(x))]
                    }
                }

                #[inline(always)]
                fn mul_add(a: f32, b: f32, c: f32) -> f32 {
                    a.mul_add(b, c)
                }
            }
        };
    }
    simd!(Avx2, dot_avx2);
    simd!(Avx512, dot_avx512);
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// The set of this thread, in place of the selected one.
        pub(super) static FORCED: Cell<Option<InstructionSet>> = const { Cell::new(None) };
    }

    /// Runs `work` on so many threads that all use `set`.
    pub(in crate::cpu) fn run_on<R: Send>(
        set: InstructionSet,
        threads: usize,
        work: impl FnOnce() -> R + Send,
    ) -> R {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .start_handler(move |_| FORCED.set(Some(set)))
            .build()
            .unwrap();
        pool.install(work)
    }

    struct Dot([u8; 32], [i8; 32], bool);
    impl Kernel for Dot {
        type Output = [f32; 8];
        #[inline(always)]
        fn run<S: Simd>(self) -> [f32; 8] {
            let mut out = [f32::NAN; 8];
            S::store(S::dot(&self.0, &self.1, self.2), &mut out);
            out
        }
    }

    struct Widen([f16; 8]);
    impl Kernel for Widen {
        type Output = [f32; 8];
        #[inline(always)]
        fn run<S: Simd>(self) -> [f32; 8] {
            let mut out = [f32::NAN; 8];
            S::store(S::widen(&self.0), &mut out);
            out
        }
    }

    fn expected(w: &[u8; 32], a: &[i8; 32]) -> [f32; 8] {
        let sum = |l: usize| (4 * l..4 * l + 4).map(|j| i32::from(w[j]) * i32::from(a[j])).sum::<i32>();
        core::array::from_fn(|l| sum(l) as f32)
    }

    #[test]
    fn dot_is_exact_on_every_set() {
        let mut state = 0x9e37_79b9_u32;
        let mut byte = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        for round in 0..200 {
            let (mut w, mut a) = ([0u8; 32], [0i8; 32]);
            for j in 0..32 {
                // The first rounds are the extremes, where 16-bit sums would saturate.
                (w[j], a[j]) = match round {
                    0 => (255, 127),
                    1 => (255, -128),
                    _ => (byte(), byte() as i8),
                };
            }
            let narrow = w.map(|w| w.min(127));
            for set in InstructionSet::available() {
                assert_eq!(dispatch_on(set, Dot(w, a, false)), expected(&w, &a), "{}", set.name());
                assert_eq!(dispatch_on(set, Dot(narrow, a, true)), expected(&narrow, &a), "{}", set.name());
            }
        }
    }

    #[test]
    fn every_f16_widens_as_the_crate_half_does() {
        for set in InstructionSet::available() {
            for start in (0..=u16::MAX).step_by(8) {
                let h: [f16; 8] = core::array::from_fn(|l| f16::from_bits(start + l as u16));
                for (h, wide) in h.into_iter().zip(dispatch_on(set, Widen(h))) {
                    if h.is_nan() {
                        assert!(wide.is_nan(), "{}: {:#06x}", set.name(), h.to_bits());
                    } else {
                        assert_eq!(wide.to_bits(), h.to_f32().to_bits(), "{}: {h}", set.name());
                    }
                }
            }
        }
    }
}
