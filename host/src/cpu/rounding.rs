//! Rounding to f16 of what stays f32: what a GPU's f16 operands lose, apart from how it multiplies them.

use std::borrow::Cow;

use super::simd::{Kernel, Simd, dispatch};

/// The numbers `f16 / scale`: a grid as fine as that of f16, elsewhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    scale: f32,
}

impl Grid {
    /// f16 itself, draw 0, or the grid that lies `draw` quarters of an octave beside it. (Every fourth draw is
    /// the same again, but for the ends of the range.)
    ///
    /// Below f16 rather than above, so that what f16 holds does not leave the range of another draw.
    pub(super) fn new(draw: u32) -> Self {
        Self { scale: (-f64::from(draw) / 4.0).exp2() as f32 }
    }

    /// Rounds each of `values` to the nearest of the grid.
    #[inline(always)]
    pub(super) fn round_in_place(self, values: &mut [f32]) {
        // Exact for f16 itself.
        let back = 1.0 / self.scale;
        for x in values {
            *x = nearest_f16(*x * self.scale) * back;
        }
    }

    /// All of `values`, rounded.
    pub(super) fn rounded(self, values: &[f32]) -> Cow<'_, [f32]> {
        let mut values = values.to_vec();
        self.round(&mut values);
        values.into()
    }

    /// [`Self::round_in_place`] on the selected instruction set.
    pub(super) fn round(self, values: &mut [f32]) {
        dispatch(Round { grid: self, values });
    }
}

struct Round<'a> {
    grid: Grid,
    values: &'a mut [f32],
}

impl Kernel for Round<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        self.grid.round_in_place(self.values);
    }
}

/// `x` rounded to f16, to nearest and ties to even, and back, in a few instructions without a call or a
/// branch, so that a loop over it vectorizes. NaN stays NaN.
#[inline(always)]
fn nearest_f16(x: f32) -> f32 {
    /// The smallest normal number, 2^-14.
    const NORMAL: u32 = (127 - 14) << 23;
    /// Halfway between the largest number, 65504, and the next of its grid, 2^16: from here on infinity.
    const OVERFLOW: u32 = 65520.0_f32.to_bits();
    const INFINITY: u32 = f32::INFINITY.to_bits();
    let bits = x.to_bits();
    let (sign, magnitude) = (bits & 0x8000_0000, bits & 0x7fff_ffff);
    // Of 23 bits of the fraction 10 stay.
    let normal = (magnitude.wrapping_add(0xfff).wrapping_add(magnitude >> 13 & 1)) & !0x1fff;
    // Numbers from ½ to 1 are multiples of 2^-24, as subnormal f16 are: the sum rounds.
    let subnormal = ((f32::from_bits(magnitude) + 0.5) - 0.5).to_bits();
    let finite = if magnitude < NORMAL { subnormal } else { normal };
    let rounded = if magnitude < OVERFLOW { finite } else { INFINITY };
    let rounded = if magnitude > INFINITY { magnitude } else { rounded };
    f32::from_bits(sign | rounded)
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::super::simd::InstructionSet;
    use super::super::simd::tests::run_on;
    use super::*;

    /// Every f16 and what lies around it: one f32 below and above, and so halfway to the next.
    fn numbers() -> Vec<f32> {
        let bits = |h: u16| f16::from_bits(h).to_f32();
        let around = |h: u16| {
            // The next of the largest is infinity, which begins as if it were 2^16.
            let next = if h == 0x7bff { 65536.0 } else { bits(h + 1) };
            let halfway = (bits(h) + next) / 2.0;
            [bits(h), halfway].into_iter().flat_map(|x| [x.next_down(), x, x.next_up()])
        };
        let special = [f32::INFINITY, f32::NAN, f32::MAX, f32::MIN_POSITIVE, f32::from_bits(1), 1e-30, 7e4];
        let positive: Vec<f32> = (0..0x7c00).flat_map(around).chain(special).collect();
        positive.iter().flat_map(|&x| [x, -x]).collect()
    }

    #[test]
    fn every_f32_is_rounded_as_the_crate_half_does() {
        // And of all others, one in 10007.
        let others = (0..=u32::MAX).step_by(10_007).map(f32::from_bits);
        let numbers: Vec<f32> = numbers().into_iter().chain(others).collect();
        for set in InstructionSet::available() {
            let mut found = numbers.clone();
            run_on(set, 1, || Grid::new(0).round(&mut found));
            for (x, found) in numbers.iter().zip(found) {
                let expected = f16::from_f32(*x).to_f32();
                if expected.is_nan() {
                    assert!(found.is_nan(), "{}: {x} becomes {found}", set.name());
                } else {
                    // Bits, for the sign of a zero.
                    assert_eq!(found.to_bits(), expected.to_bits(), "{}: {x} becomes {found}", set.name());
                }
            }
        }
    }

    /// Half a step of 11 bits, as far as samples of it go, and two roundings to f32.
    #[test]
    fn other_grids_are_as_fine_and_elsewhere() {
        let numbers: Vec<f32> = (0..20_000).map(|i| 1.0 + i as f32 / 7001.0).collect();
        let rounded = |draw| Grid::new(draw).rounded(&numbers).into_owned();
        for draw in 0..4 {
            let errors: Vec<f64> = numbers
                .iter()
                .zip(rounded(draw))
                .map(|(&x, y)| (f64::from(y) - f64::from(x)) / f64::from(x))
                .collect();
            let worst = errors.iter().fold(0.0_f64, |worst, error| worst.max(error.abs()));
            assert!(
                (2.0_f64.powi(-11) * 0.95..=2.0_f64.powi(-11) * 1.001).contains(&worst),
                "{draw}: {worst:e}"
            );
            let mean = errors.iter().sum::<f64>() / errors.len() as f64;
            assert!(mean.abs() < 1e-5, "draw {draw} leans to one side by {mean:e}");
        }
        let same = |a, b| rounded(a).iter().zip(rounded(b)).filter(|(a, b)| **a == *b).count();
        for (a, b) in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)] {
            assert!(same(a, b) < numbers.len() / 100, "draws {a} and {b} are alike: {}", same(a, b));
        }
        assert_eq!(same(0, 4), numbers.len());
    }

    #[test]
    fn what_f16_holds_stays_in_the_range_of_every_draw() {
        for draw in 0..4 {
            let grid = Grid::new(draw);
            let values = grid.rounded(&[65504.0, -65504.0, 0.0, -0.0, f32::NAN, f32::INFINITY]).into_owned();
            assert!(values[..4].iter().all(|x| x.is_finite()), "draw {draw}: {values:?}");
            assert!(values[3] == 0.0 && values[3].is_sign_negative(), "draw {draw}: {values:?}");
            assert!(values[4].is_nan() && values[5] == f32::INFINITY, "draw {draw}: {values:?}");
        }
    }
}
