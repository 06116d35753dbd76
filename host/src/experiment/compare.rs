//! Comparisons of outputs: with a reference in f64, and bit by bit.

use serde::Serialize;

use crate::cuda::ops::AttentionShape;

/// The most that attention may be off from f64, absolutely; inputs are between -1 and 1.
pub const PARITY: f64 = 1e-4;

/// Elements below this part of the largest one are near zero: a distance in units in the last place
/// says nothing of them, least of all across zero.
pub const NEAR_ZERO: f32 = 1e-3;

/// An element of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Element {
    /// The query row.
    pub token: usize,
    /// The query head.
    pub head: usize,
    /// The place in the head's row.
    pub dimension: usize,
}

impl Element {
    /// The element with this index in an output of `shape`.
    #[must_use]
    pub fn at(index: usize, shape: &AttentionShape) -> Self {
        let (row, dimension) = (index / shape.head_size, index % shape.head_size);
        Self { token: row / shape.heads, head: row % shape.heads, dimension }
    }
}

/// An element that is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Off {
    /// Where.
    pub element: Element,
    /// What is there.
    pub found: f32,
    /// What the reference has there.
    pub expected: f64,
}

/// The largest difference to `expected`, which are the elements from index `first` on.
///
/// # Errors
/// The first element that is off by more than [`PARITY`], or not a number.
///
/// # Panics
/// If they have not the same length.
pub fn parity(found: &[f32], expected: &[f64], first: usize, shape: &AttentionShape) -> Result<f64, Off> {
    assert_eq!(found.len(), expected.len(), "an element of the reference for each");
    let mut worst = 0.0_f64;
    for (index, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let difference = (f64::from(found) - expected).abs();
        // NaN is within no bound.
        if difference <= PARITY {
            worst = worst.max(difference);
        } else {
            return Err(Off { element: Element::at(first + index, shape), found, expected });
        }
    }
    Ok(worst)
}

/// How two outputs of one problem differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Difference {
    /// Elements that were compared.
    pub elements: usize,
    /// Those whose bits differ.
    pub different: usize,
    /// The first of them.
    pub first: Option<Different>,
    /// The largest distance of elements that are not near zero ([`NEAR_ZERO`]), if every difference is
    /// one of numbers.
    pub most_ulp: Option<u32>,
    /// The largest absolute difference, NaN if one is.
    pub most: f32,
}

/// An element that two outputs have differently.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Different {
    /// Where.
    pub element: Element,
    /// What the first output has there.
    pub one: f32,
    /// What the second has.
    pub other: f32,
    /// How far they are apart in units in the last place, if both are numbers.
    pub ulp: Option<u32>,
}

impl Difference {
    /// Compares two outputs of one problem of `shape`.
    ///
    /// # Panics
    /// If they have not the same length.
    #[must_use]
    pub fn between(one: &[f32], other: &[f32], shape: &AttentionShape) -> Self {
        assert_eq!(one.len(), other.len(), "outputs of one problem");
        let magnitudes = one.iter().chain(other).map(|x| x.abs()).filter(|x| x.is_finite());
        let near_zero = magnitudes.fold(0.0, f32::max) * NEAR_ZERO;
        let mut difference = Self { elements: one.len(), most_ulp: Some(0), ..Self::default() };
        for (index, (&one, &other)) in one.iter().zip(other).enumerate() {
            if one.to_bits() == other.to_bits() {
                continue;
            }
            let ulp = ulp(one, other);
            difference.different += 1;
            let apart = (one - other).abs();
            // NaN stays: nothing is above it.
            if apart > difference.most || apart.is_nan() {
                difference.most = apart;
            }
            let counts = one.abs().max(other.abs()) >= near_zero;
            difference.most_ulp =
                difference.most_ulp.zip(ulp).map(|(most, ulp)| if counts { most.max(ulp) } else { most });
            let element = Element::at(index, shape);
            difference.first.get_or_insert(Different { element, one, other, ulp });
        }
        difference
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.different == 0
    }
}

/// How many f32 lie between two numbers, and one more; zeros of both signs are one apart.
fn ulp(a: f32, b: f32) -> Option<u32> {
    // In the order of numbers: negative ones count down from -1, the place of -0.
    let order = |x: f32| {
        let bits = i64::from(x.to_bits() & 0x7fff_ffff);
        if x.is_sign_negative() { -1 - bits } else { bits }
    };
    let distance = order(a).abs_diff(order(b));
    (!a.is_nan() && !b.is_nan()).then(|| u32::try_from(distance).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    const SHAPE: fn() -> AttentionShape = || AttentionShape::prompt(5, 2, [3, 1, 16]);

    fn outputs() -> (Vec<f32>, Vec<f64>) {
        let found: Vec<f32> = (0_u16..5 * 3 * 16).map(|i| (f32::from(i) - 100.0) / 128.0).collect();
        let expected = found.iter().copied().map(f64::from).collect();
        (found, expected)
    }

    #[test]
    fn ulps_are_counted_across_zero() {
        assert_eq!(ulp(1.0, 1.0 + f32::EPSILON), Some(1));
        assert_eq!(ulp(-1.0, -1.0 - 2.0 * f32::EPSILON), Some(2));
        assert_eq!(ulp(0.0, -0.0), Some(1));
        assert_eq!(ulp(f32::from_bits(1), -f32::from_bits(1)), Some(3));
        assert_eq!(ulp(f32::MAX, f32::INFINITY), Some(1));
        assert_eq!(ulp(f32::NAN, 0.0), None);
        assert_eq!(ulp(f32::NEG_INFINITY, f32::INFINITY), Some(0xff00_0001));
    }

    #[test]
    fn a_planted_nan_is_red() {
        let (mut found, expected) = outputs();
        assert_eq!(parity(&found, &expected, 0, &SHAPE()), Ok(0.0));
        found[(3 * 3 + 1) * 16 + 7] = f32::NAN;
        let off = parity(&found, &expected, 0, &SHAPE()).unwrap_err();
        assert_eq!(off.element, Element { token: 3, head: 1, dimension: 7 });
        assert!(off.found.is_nan());
    }

    #[test]
    fn parity_is_a_bound_on_every_element() {
        let (mut found, expected) = outputs();
        let last = found.len() - 1;
        found[last] += 9e-5;
        let worst = parity(&found, &expected, 0, &SHAPE()).unwrap();
        assert!((worst - 9e-5).abs() < 1e-6, "{worst}");
        found[last] += 2e-5;
        // The same, as the last row alone.
        let row = last + 1 - 48;
        let off = parity(&found[row..], &expected[row..], row, &SHAPE()).unwrap_err();
        assert_eq!(off.element, Element { token: 4, head: 2, dimension: 15 });
    }

    #[test]
    fn a_planted_difference_of_one_ulp_is_found_at_its_place() {
        let (found, _) = outputs();
        let mut other = found.clone();
        assert!(Difference::between(&found, &other, &SHAPE()).is_none());
        let index = (2 * 3 + 2) * 16 + 5;
        other[index] = found[index].next_up();
        let last = found.len() - 1;
        other[last] = found[last].next_down().next_down();
        let difference = Difference::between(&found, &other, &SHAPE());
        assert_eq!((difference.different, difference.elements), (2, found.len()));
        assert_eq!(difference.most_ulp, Some(2));
        assert_eq!(difference.most, found[last] - other[last]);
        let first = difference.first.unwrap();
        assert_eq!(first.element, Element { token: 2, head: 2, dimension: 5 });
        assert_eq!((first.ulp, first.one), (Some(1), found[index]));
        // Across zero, and a thousandth of the largest is 1.1e-3: far apart in ULP, and not counted.
        let mut found = found;
        (found[1], other[1]) = (1e-6, -1e-6);
        let difference = Difference::between(&found, &other, &SHAPE());
        assert_eq!((difference.different, difference.most_ulp), (3, Some(2)));
        (found[1], other[1]) = (2e-3, -2e-3);
        assert!(Difference::between(&found, &other, &SHAPE()).most_ulp.unwrap() > 1 << 30);
        other[1] = found[1];
        other[0] = f32::NAN;
        let difference = Difference::between(&found, &other, &SHAPE());
        assert_eq!((difference.different, difference.most_ulp), (3, None));
        assert!(difference.most.is_nan());
        assert_eq!(difference.first.unwrap().ulp, None);
    }
}
