//! The type of sums: f32 in the fast mode, f64 in the exact one.

use std::ops::{Add, Mul};

use super::simd::Simd;

/// A type in which f32 values are accumulated, one by one and eight lanes wide.
pub(super) trait Real: Copy + Add<Output = Self> + Mul<Output = Self> + PartialOrd + Send {
    const ZERO: Self;
    const NEG_INFINITY: Self;
    /// Eight of them.
    type Lanes<S: Simd>: Copy;

    fn from_f32(x: f32) -> Self;
    fn to_f32(self) -> f32;
    /// `e^self`.
    fn exp<S: Simd>(self) -> Self;
    fn tanh(self) -> Self;
    /// `a · b + c`.
    fn fma<S: Simd>(a: f32, b: f32, c: Self) -> Self;

    fn load<S: Simd>(x: &[Self; 8]) -> Self::Lanes<S>;
    fn store<S: Simd>(lanes: Self::Lanes<S>, out: &mut [Self; 8]);
    /// `a · b + c`, lane by lane.
    fn fma_lanes<S: Simd>(a: &[f32; 8], b: &[f32; 8], c: Self::Lanes<S>) -> Self::Lanes<S>;
}

impl Real for f32 {
    const ZERO: Self = 0.0;
    const NEG_INFINITY: Self = Self::NEG_INFINITY;
    type Lanes<S: Simd> = S::Lanes;

    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        x
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
    #[inline(always)]
    fn exp<S: Simd>(self) -> Self {
        exp::<S>(self)
    }
    #[inline(always)]
    fn tanh(self) -> Self {
        self.tanh()
    }
    #[inline(always)]
    fn fma<S: Simd>(a: f32, b: f32, c: Self) -> Self {
        S::mul_add(a, b, c)
    }
    #[inline(always)]
    fn load<S: Simd>(x: &[Self; 8]) -> S::Lanes {
        S::load(x)
    }
    #[inline(always)]
    fn store<S: Simd>(lanes: S::Lanes, out: &mut [Self; 8]) {
        S::store(lanes, out);
    }
    #[inline(always)]
    fn fma_lanes<S: Simd>(a: &[f32; 8], b: &[f32; 8], c: S::Lanes) -> S::Lanes {
        S::fma(S::load(a), S::load(b), c)
    }
}

impl Real for f64 {
    const ZERO: Self = 0.0;
    const NEG_INFINITY: Self = Self::NEG_INFINITY;
    type Lanes<S: Simd> = [Self; 8];

    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        Self::from(x)
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self as f32
    }
    #[inline(always)]
    fn exp<S: Simd>(self) -> Self {
        self.exp()
    }
    #[inline(always)]
    fn tanh(self) -> Self {
        self.tanh()
    }
    #[inline(always)]
    fn fma<S: Simd>(a: f32, b: f32, c: Self) -> Self {
        // The product of two f32 is exact in f64: this is fused in effect.
        Self::from(a) * Self::from(b) + c
    }
    #[inline(always)]
    fn load<S: Simd>(x: &[Self; 8]) -> [Self; 8] {
        *x
    }
    #[inline(always)]
    fn store<S: Simd>(lanes: [Self; 8], out: &mut [Self; 8]) {
        *out = lanes;
    }
    #[inline(always)]
    fn fma_lanes<S: Simd>(a: &[f32; 8], b: &[f32; 8], mut c: [Self; 8]) -> [Self; 8] {
        for l in 0..8 {
            c[l] = Self::fma::<S>(a[l], b[l], c[l]);
        }
        c
    }
}

/// The sum of eight lanes, in a fixed order.
#[inline(always)]
pub(super) fn sum<S: Simd, R: Real>(lanes: R::Lanes<S>) -> R {
    let mut x = [R::ZERO; 8];
    R::store::<S>(lanes, &mut x);
    let [a, b, c, d, e, f, g, h] = x;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

/// `e^x` in f32 without a call, so that a loop over it vectorizes: relative error below 2e-7.
///
/// `2^k` is put together from bits and multiplied with a polynomial for `2^f`, |f| ≤ ½. Below
/// the smallest normal number the result is zero, above the largest infinity; NaN stays NaN.
#[inline(always)]
pub(super) fn exp<S: Simd>(x: f32) -> f32 {
    // ln 2 in two parts, the first with few enough bits for an exact product with k.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    /// Taylor coefficients of `e^r`, highest first: the remainder is below 2^-27 for |r| ≤ ½ ln 2.
    const COEFFICIENTS: [f32; 8] =
        [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];
    // 1.5 · 2^23: rounds what is added to it to an integer, which is then in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let clamped = x.clamp(-87.3, 88.72);
    let rounded = clamped * std::f32::consts::LOG2_E + ROUND;
    let k = rounded - ROUND;
    let r = S::mul_add(k, -LN2_LOW, S::mul_add(k, -LN2_HIGH, clamped));
    let mut polynomial = COEFFICIENTS[0];
    for coefficient in &COEFFICIENTS[1..] {
        polynomial = S::mul_add(polynomial, r, *coefficient);
    }
    // k is in -126..=128; 2^128 is no f32, hence two steps.
    let k = rounded.to_bits().wrapping_sub(ROUND.to_bits()).cast_signed();
    let power = |k: i32| f32::from_bits((k.wrapping_add(127) << 23).cast_unsigned());
    let value = polynomial * power(k >> 1) * power(k.wrapping_sub(k >> 1));
    if x < -87.3 {
        0.0
    } else if x > 88.72 {
        f32::INFINITY
    } else {
        value
    }
}

#[cfg(test)]
mod tests {
    use super::super::simd::tests::run_on;
    use super::super::simd::{InstructionSet, Kernel, dispatch};
    use super::*;

    struct Exp<'a>(&'a mut [f32]);
    impl Kernel for Exp<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self) {
            for x in self.0 {
                *x = exp::<S>(*x);
            }
        }
    }

    #[test]
    fn exp_is_close_to_the_exact_one() {
        let inputs: Vec<f32> = (-87_000..=88_000).map(|i| i as f32 / 1000.0 + 3e-4).collect();
        for set in InstructionSet::available() {
            let mut outputs = inputs.clone();
            run_on(set, 1, || dispatch(Exp(&mut outputs)));
            for (&x, y) in inputs.iter().zip(outputs) {
                let exact = f64::from(x).exp();
                let error = (f64::from(y) - exact).abs() / exact;
                let what = set.name();
                assert!(error <= 2e-7, "{what}: exp({x}) = {y}, exact {exact}, relative error {error:e}");
            }
        }
    }

    #[test]
    fn exp_at_the_ends() {
        for set in InstructionSet::available() {
            let mut x = [f32::NEG_INFINITY, -200.0, 0.0, 200.0, f32::INFINITY, f32::NAN];
            run_on(set, 1, || dispatch(Exp(&mut x)));
            assert_eq!(x[..5], [0.0, 0.0, 1.0, f32::INFINITY, f32::INFINITY], "{}", set.name());
            assert!(x[5].is_nan(), "{}: {}", set.name(), x[5]);
        }
    }
}
