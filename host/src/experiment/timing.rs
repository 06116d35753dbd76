//! Timing two things against each other: interleaved, with the noise of one against itself.
//!
//! What is compared runs in one window, in turns, so that a clock that drifts drifts for both. Half
//! of the turns put the first against itself: how far those ratios scatter is the band in which a
//! difference means nothing.

use serde::Serialize;

/// Which of the two is to be timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that is compared with.
    One,
    /// The one that is in question.
    Other,
}

/// The median of some numbers, and where eight tenths of them lie.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Half of them are not above it.
    pub median: f64,
    /// A tenth of them is not above it.
    pub low: f64,
    /// A tenth of them is not below it.
    pub high: f64,
}

impl Spread {
    /// Of at least one number.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn of(numbers: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = numbers.into_iter().collect();
        assert!(!sorted.is_empty(), "the spread of something");
        sorted.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let place = part * (sorted.len() - 1) as f64;
            let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
            below + (above - below) * place.fract()
        };
        Self { median: at(0.5), low: at(0.1), high: at(0.9) }
    }
}

/// Two things against each other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Times of the one.
    pub one: Spread,
    /// Times of the other.
    pub other: Spread,
    /// The other's time over the one's, pair by pair.
    pub ratio: Spread,
    /// The one's time over its own, pair by pair, in between.
    pub noise: Spread,
}

/// What a comparison says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The other takes less time than noise explains.
    Faster,
    /// It takes more.
    Slower,
    /// Its median ratio lies in the band of the noise.
    InTheNoise,
}

impl Comparison {
    /// Times one and other in turns, `pairs` times, and as often one and one. `time` gives the time
    /// of a batch, in any unit; both have been warmed up.
    ///
    /// # Errors
    /// The first of `time`.
    ///
    /// # Panics
    /// If there are no pairs.
    pub fn interleaved<E>(pairs: usize, mut time: impl FnMut(Side) -> Result<f64, E>) -> Result<Self, E> {
        let (mut pairs_of_both, mut pairs_of_one) = (Vec::new(), Vec::new());
        for _ in 0..pairs {
            pairs_of_both.push((time(Side::One)?, time(Side::Other)?));
            pairs_of_one.push((time(Side::One)?, time(Side::One)?));
        }
        let ratio = |&(one, other): &(f64, f64)| other / one;
        Ok(Self {
            one: Spread::of(pairs_of_both.iter().map(|&(one, _)| one)),
            other: Spread::of(pairs_of_both.iter().map(|&(_, other)| other)),
            ratio: Spread::of(pairs_of_both.iter().map(ratio)),
            noise: Spread::of(pairs_of_one.iter().map(ratio)),
        })
    }

    /// What it says.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if self.ratio.median < self.noise.low {
            Verdict::Faster
        } else if self.ratio.median > self.noise.high {
            Verdict::Slower
        } else {
            Verdict::InTheNoise
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use std::convert::Infallible;

    use super::*;

    #[test]
    fn spreads_are_read_off_the_sorted_numbers() {
        let spread = Spread::of([5.0, 1.0, 3.0, 2.0, 4.0]);
        assert_eq!((spread.median, spread.low, spread.high), (3.0, 1.4, 4.6));
        let one = Spread::of([7.0]);
        assert_eq!((one.median, one.low, one.high), (7.0, 7.0, 7.0));
        assert_eq!(Spread::of([1.0, 2.0]).median, 1.5);
    }

    /// Both slow down over time, which must not show in the ratio; every third run is a little late.
    #[test]
    fn drift_is_no_difference_and_a_difference_is_none_of_the_noise() {
        let compare = |times: f64| {
            let mut turn = 0;
            let mut sides = String::new();
            let comparison = Comparison::interleaved(9, |side| {
                turn += 1;
                sides.push(if side == Side::One { 'A' } else { 'B' });
                let noise = if turn % 3 == 0 { 1.01 } else { 1.0 };
                let own = if side == Side::One { 1.0 } else { times };
                Ok::<_, Infallible>(own * noise * (1.0 + 0.001 * f64::from(turn)))
            });
            assert_eq!(sides, "ABAA".repeat(9));
            comparison.unwrap()
        };
        let same = compare(1.0);
        assert_eq!(same.verdict(), Verdict::InTheNoise, "{same:?}");
        let slower = compare(2.43);
        assert!((slower.ratio.median - 2.43).abs() < 0.02, "{slower:?}");
        assert_eq!(slower.verdict(), Verdict::Slower);
        assert_eq!(compare(0.9).verdict(), Verdict::Faster);
    }
}
