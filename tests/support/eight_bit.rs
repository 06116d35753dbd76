//! The contract of the default mode's activations, written a second time, for integration tests and
//! unit tests.

/// A group of finite values in 8 bits: the step, an f32, and the whole numbers of steps.
///
/// The step is the largest magnitude over 127, and the values are multiplied by its inverse in f32 and
/// rounded to even. Where the largest magnitude is below 1e-36 all are zero.
pub(crate) fn eight_bits<T: Copy + Into<f64>>(group: &[T]) -> (f32, Vec<f32>) {
    let values = || group.iter().map(|&x| x.into() as f32);
    let largest = values().fold(0.0_f32, |m, x| m.max(x.abs()));
    let inverse = if largest < 1e-36 { 0.0 } else { 127.0 / largest };
    (largest / 127.0, values().map(|x| (x * inverse).round_ties_even()).collect())
}

/// Puts what a group becomes in 8 bits in its place.
pub(crate) fn round_to_8_bits(group: &mut [f64]) {
    let (step, numbers) = eight_bits(group);
    group.iter_mut().zip(numbers).for_each(|(x, q)| *x = f64::from(q) * f64::from(step));
}
