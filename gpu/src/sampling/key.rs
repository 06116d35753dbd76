//! A logit and its token as one number, whose order is theirs.

/// No logit: less than any.
pub(super) const NONE: u64 = 0;

/// A logit that no token may be chosen by: above every other.
pub(super) const UNUSABLE: u64 = u64::MAX;

/// As [`key`], where NaN and infinity are [`UNUSABLE`].
#[inline(always)]
pub(super) const fn usable_key(logit: f32, token: u32) -> u64 {
    if logit < f32::INFINITY { key(logit, token) } else { UNUSABLE }
}

/// The logit's place in the order of numbers, then the token, the lowest first: the larger key has the
/// larger logit, or the same one and the lower token. NaN is less than all numbers; zeros are equal.
#[inline(always)]
pub(super) const fn key(logit: f32, token: u32) -> u64 {
    let place = if logit.is_nan() {
        0
    } else {
        // Makes -0 to 0.
        let bits = (logit + 0.0).to_bits();
        if bits >> 31 == 0 { bits | 1 << 31 } else { !bits }
    };
    (place as u64) << 32 | !token as u64
}

/// The logit and the token of a key.
#[inline(always)]
pub(super) const fn logit_and_token(key: u64) -> (f32, u32) {
    let (place, token) = ((key >> 32) as u32, !(key as u32));
    let bits = match place {
        0 => 0x7fff_ffff,
        place if place >> 31 == 1 => place & !(1 << 31),
        place => !place,
    };
    (f32::from_bits(bits), token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ordered_as_logits_are_and_then_by_token() {
        let tiny = f32::from_bits(1);
        let rising = [f32::NAN, f32::NEG_INFINITY, f32::MIN, -1.0, -tiny, 0.0, tiny, 1.0, f32::INFINITY];
        for (i, &a) in rising.iter().enumerate() {
            assert!(key(a, u32::MAX - 1) > NONE);
            assert!(key(a, 3) > key(a, 4), "{a}");
            for &b in &rising[..i] {
                assert!(key(a, 70_000) > key(b, 0), "{a}, {b}");
            }
            let (logit, token) = logit_and_token(key(a, 70_000));
            assert!(token == 70_000 && (logit == a || logit.is_nan() && a.is_nan()), "{a}: {logit}, {token}");
        }
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY] {
            assert_eq!(usable_key(bad, 5), UNUSABLE);
        }
        assert!(rising[1..8].iter().all(|&x| usable_key(x, 0) == key(x, 0) && key(x, 0) < UNUSABLE));
        assert_eq!(key(-0.0, 5), key(0.0, 5));
        assert_eq!(key(-f32::NAN, 5), key(f32::NAN, 5));
    }
}
