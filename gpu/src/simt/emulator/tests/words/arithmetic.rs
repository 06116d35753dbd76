//! Own-lane arithmetic. Expected values come from exact comparisons, not from other conversions.

use std::vec::Vec;

use half::f16;

use super::super::{Lane, noise, per_lane};
use crate::simt::{Ampere, Simt};

/// All finite f16 without a sign, in order, and what would come next.
fn magnitudes() -> Vec<f64> {
    (0..0x7c00_u16)
        .map(|bits| {
            let (exponent, fraction) = (i32::from(bits >> 10), f64::from(bits & 0x3ff));
            if exponent == 0 {
                fraction * 2.0_f64.powi(-24)
            } else {
                (1024.0 + fraction) * 2.0_f64.powi(exponent - 25)
            }
        })
        .chain([65_536.0])
        .collect()
}

/// The f16 next to `|x|`, ties to the even one, where `less(m)` says whether `|x| < m` and
/// `closer(low, high)` compares the distances.
fn nearest(
    magnitudes: &[f64],
    less: impl Fn(f64) -> bool,
    to_low: impl Fn(f64, f64) -> core::cmp::Ordering,
) -> u16 {
    let above = magnitudes.partition_point(|&m| !less(m));
    if above == magnitudes.len() {
        return 0x7c00;
    }
    let below = above - 1;
    match to_low(magnitudes[below], magnitudes[above]) {
        core::cmp::Ordering::Less => below as u16,
        core::cmp::Ordering::Greater => above as u16,
        core::cmp::Ordering::Equal => (if below.is_multiple_of(2) { below } else { above }) as u16,
    }
}

/// An f32 as f16: bits.
fn rounded(x: f32, magnitudes: &[f64]) -> u16 {
    if x.is_nan() {
        return 0x7fff;
    }
    let sign = if x.is_sign_negative() { 0x8000 } else { 0 };
    let x = f64::from(x.abs());
    // f64 holds the difference of an f32 and an f16 near it exactly.
    sign | nearest(magnitudes, |m| x < m, |low, high| (x - low).total_cmp(&(high - x)))
}

/// f32 that are awkward as f16: near halves between neighbours, and everything else.
fn awkward() -> Vec<f32> {
    let mut next = noise(11);
    let mut values =
        Vec::from([0.0, -0.0, 65_504.0, 65_519.996, 65_520.0, -65_520.0, 1e30, 2.0_f32.powi(-25)]);
    values.extend([
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        -f32::NAN,
        f32::from_bits(1),
        2.0_f32.powi(-24) * 1.5,
    ]);
    for _ in 0..2000 {
        // Just below, at and just above the middle of two neighbours, at any exponent.
        let bits = (103 + next() as u32 % 45) << 23 | (next() as u32 & 0x3ff) << 13 | 0x1000;
        for bits in [bits - 1, bits, bits + 1] {
            values.push(f32::from_bits(bits | (next() as u32 & 1) << 31));
        }
        values.push(f32::from_bits(next() as u32));
    }
    values
}

#[test]
fn f16_is_rounded_to_nearest_even() {
    let magnitudes = magnitudes();
    let values = awkward();
    for chunk in values.chunks_exact(32) {
        let given: [f32; 32] = chunk.try_into().unwrap();
        let got: Vec<[u32; 2]> = per_lane(32, move |s: Lane<'_>| {
            let (x, y) = (given[s.lane() as usize], given[31 - s.lane() as usize]);
            [s.f16x2_from_f32(x, y), u32::from(s.f16_from_f32(x).to_bits())]
        });
        for (lane, [pair, single]) in got.into_iter().enumerate() {
            let (x, y) = (rounded(given[lane], &magnitudes), rounded(given[31 - lane], &magnitudes));
            assert_eq!(single, u32::from(x), "{:e}", given[lane]);
            assert_eq!(pair, u32::from(y) << 16 | u32::from(x), "{:e}", given[lane]);
        }
    }
}

#[test]
fn f16_is_widened_exactly() {
    let magnitudes = magnitudes();
    let got: Vec<[f32; 4]> = per_lane(1024, |s: Lane<'_>| {
        let at = |i: u32| f16::from_bits((s.thread() * 31 + i) as u16);
        let [low, high] = s.f32_from_f16x2(((s.thread() * 31 + 1) << 16) | (s.thread() * 31));
        [low, high, s.f32_from_f16(at(2)), s.f32_from_f16(f16::from_bits(0x8000 | at(3).to_bits()))]
    });
    for (thread, got) in got.into_iter().enumerate() {
        for (i, got) in got.into_iter().enumerate() {
            let sign = if i == 3 { -1.0 } else { 1.0 };
            // Up to 31,716, which is finite.
            assert_eq!(f64::from(got), sign * magnitudes[thread * 31 + i]);
        }
    }
}

/// A finite f16 as a multiple of 2^-24.
fn units(bits: u16) -> i128 {
    let magnitude = match (bits >> 10 & 31, i128::from(bits & 0x3ff)) {
        (0, fraction) => fraction,
        (exponent, fraction) => (1024 + fraction) << (exponent - 1),
    };
    if bits & 0x8000 == 0 { magnitude } else { -magnitude }
}

/// `exact · 2^-48` as f16; a zero has the sign that is given.
fn rounded_units(exact: i128, zero: u16, magnitudes: &[f64]) -> u16 {
    if exact == 0 {
        return zero;
    }
    let sign = if exact < 0 { 0x8000 } else { 0 };
    let scaled = |m: f64| (m * 2.0_f64.powi(24)) as i128 * (1 << 24);
    let x = exact.abs();
    sign | nearest(magnitudes, |m| x < scaled(m), |low, high| (x - scaled(low)).cmp(&(scaled(high) - x)))
}

#[test]
fn pairs_of_f16_are_rounded_once() {
    let magnitudes = magnitudes();
    let mut next = noise(12);
    for round in 0..300 {
        let mut registers = [[0_u32; 3]; 32];
        for register in registers.iter_mut().flatten() {
            // Finite halves; in every other round near each other in size, where ties happen.
            let mut half = || {
                let bits = next() as u16;
                let bits = if round % 2 == 0 { bits & 0x83ff | 0x3800 | (bits >> 3 & 0x400) } else { bits };
                if bits & 0x7c00 == 0x7c00 { bits ^ 0x4000 } else { bits }
            };
            *register = u32::from(half()) << 16 | u32::from(half());
        }
        let got: Vec<[u32; 4]> = per_lane(32, move |s: Lane<'_>| {
            let [a, b, c] = registers[s.lane() as usize];
            [s.add_f16x2(a, b), s.mul_f16x2(a, b), s.fma_f16x2(a, b, c), s.max_f16x2(a, b)]
        });
        for ([a, b, c], got) in registers.into_iter().zip(got) {
            for shift in [0, 16] {
                let [a, b, c] = [a, b, c].map(|register| (register >> shift) as u16);
                let got = got.map(|register| (register >> shift) as u16);
                let (product, sign) = (units(a) * units(b), (a ^ b) & 0x8000);
                let sum = (units(a) + units(b)) << 24;
                assert_eq!(got[0], rounded_units(sum, a & b & 0x8000, &magnitudes), "{a:#x} + {b:#x}");
                assert_eq!(got[1], rounded_units(product, sign, &magnitudes), "{a:#x} · {b:#x}");
                let sum = product + (units(c) << 24);
                let zero = if product == 0 && units(c) == 0 { sign & c } else { 0 };
                assert_eq!(got[2], rounded_units(sum, zero, &magnitudes), "{a:#x} · {b:#x} + {c:#x}");
                let larger =
                    if units(a) > units(b) || units(a) == units(b) && b & 0x8000 != 0 { a } else { b };
                assert_eq!(got[3], larger, "max({a:#x}, {b:#x})");
            }
        }
    }
}

#[test]
fn a_sum_just_beside_a_tie_is_not_taken_for_the_tie() {
    // 3/2 · 683/1024 = 1 + 2^-11, half way between two f16; c decides, and is lost in f32.
    let [a, b, c] = [1.5, 683.0 / 1024.0, 2.0_f32.powi(-24)].map(|x| u32::from(f16::from_f32(x).to_bits()));
    let got: Vec<[u32; 2]> =
        per_lane(32, move |s: Lane<'_>| [s.fma_f16x2(a, b, c), s.fma_f16x2(a, b, c | 0x8000)]);
    let one = u32::from(f16::ONE.to_bits());
    assert_eq!(got[0], [one + 1, one]);
}

#[test]
fn a_maximum_ignores_nan_and_knows_the_zeros() {
    let nan = f32::NAN;
    let cases = [(nan, 1.0, 1.0), (1.0, nan, 1.0), (-0.0, 0.0, 0.0), (0.0, -0.0, 0.0), (-1.0, -2.0, -1.0)];
    for (a, b, expected) in cases {
        let got: Vec<[u32; 2]> = per_lane(32, move |s: Lane<'_>| {
            [s.max(a, b).to_bits(), s.max_f16x2(s.f16x2_from_f32(a, b), s.f16x2_from_f32(b, a))]
        });
        let half = u32::from(f16::from_f32(expected).to_bits());
        assert!(got.iter().all(|&got| got == [f32::to_bits(expected), half << 16 | half]), "{a} {b}");
    }
    let got: Vec<[u32; 2]> =
        per_lane(32, move |s: Lane<'_>| [s.max(nan, -nan).to_bits(), s.max_f16x2(0x7e00_fe00, 0x7e01_7e01)]);
    assert_eq!(got[0], [0x7fff_ffff, 0x7fff_7fff]);
}

#[test]
fn bf16_is_rounded_to_nearest_even() {
    let mut next = noise(13);
    let mut values: Vec<u32> = (0..512).map(|_| next() as u32).collect();
    values.extend((0..512).map(|_| next() as u32 & 0xffff_0000 | 0x7fff | (next() as u32 & 3)));
    values.extend([
        0x7f7f_8000,
        0x7f7f_7fff,
        0x3f80_8000,
        0x3f81_8000,
        0,
        0x8000_0000,
        0x7f80_0000,
        0x7f80_0001,
    ]);
    values.resize(values.len().next_multiple_of(32), 0);
    for chunk in values.chunks(32) {
        let given: [u32; 32] = chunk.try_into().unwrap();
        let got: Vec<u32> =
            per_lane(32, move |s: Lane<'_>| s.bf16x2_from_f32(f32::from_bits(given[s.lane() as usize]), 1.0));
        for (x, got) in given.into_iter().zip(got) {
            let (kept, rest) = (x >> 16, x & 0xffff);
            let up = rest > 0x8000 || rest == 0x8000 && kept % 2 == 1;
            let expected = if f32::from_bits(x).is_nan() { 0x7fff } else { kept + u32::from(up) };
            assert_eq!(got, 0x3f80_0000 | expected, "{x:#x}");
        }
    }
}

#[test]
fn a_fused_product_is_rounded_once() {
    // (1 + 2^-12)² = 1 + 2^-11 + 2^-24: the last is lost in a rounded product.
    let x = 1.0 + 2.0_f32.powi(-12);
    let got: Vec<f32> = per_lane(32, move |s: Lane<'_>| s.fma(x, x, -1.0 - 2.0_f32.powi(-11)));
    assert!(got.iter().all(|&got| got == 2.0_f32.powi(-24)));
}

#[test]
fn approximations_keep_the_isa_s_bounds_and_special_cases() {
    let tiny = f32::from_bits(1);
    let infinity = f32::INFINITY;
    let got: Vec<[f32; 4]> = per_lane(32, move |s: Lane<'_>| {
        [
            [s.exp2_approx(-infinity), s.exp2_approx(infinity), s.exp2_approx(-tiny), s.exp2_approx(-127.0)],
            [s.exp2_approx(-126.0), s.exp2_approx(128.0), s.exp2_approx(10.0), s.exp2_approx(-149.0)],
            [
                s.reciprocal_approx(0.0),
                s.reciprocal_approx(-tiny),
                s.reciprocal_approx(-infinity),
                s.reciprocal_approx(4.0),
            ],
            [
                s.reciprocal_approx(1e38 * 3.0),
                s.reciprocal_approx(infinity),
                s.rsqrt_approx(infinity),
                s.rsqrt_approx(0.25),
            ],
            [s.rsqrt_approx(0.0), s.rsqrt_approx(-0.0), s.rsqrt_approx(-tiny), s.rsqrt_approx(tiny)],
        ][s.lane() as usize % 5]
    });
    assert_eq!(got[0].map(f32::to_bits), [0.0, infinity, 1.0, 0.0].map(f32::to_bits));
    assert_eq!(got[1], [2.0_f32.powi(-126), infinity, 1024.0, 0.0]);
    assert_eq!(got[2].map(f32::to_bits), [infinity, -infinity, -0.0, 0.25].map(f32::to_bits));
    // 1 / 3e38 is subnormal.
    assert_eq!(got[3], [0.0, 0.0, 0.0, 2.0]);
    assert_eq!(got[4], [infinity, -infinity, -infinity, infinity]);
    let got: Vec<[f32; 2]> = per_lane(32, |s: Lane<'_>| [s.rsqrt_approx(-1.0), s.exp2_approx(f32::NAN)]);
    assert!(got[0].iter().all(|x| x.is_nan()));

    let got: Vec<[f32; 4]> = per_lane(1024, |s: Lane<'_>| {
        let x = 0.03 + s.thread() as f32 * 0.017;
        [x, s.exp2_approx(x - 9.0), s.reciprocal_approx(x), s.rsqrt_approx(x)]
    });
    for [x, exp2, reciprocal, rsqrt] in got {
        let wide = f64::from(x);
        let close = |got: f32, exact: f64, bound: f64| (f64::from(got) / exact - 1.0).abs() <= bound;
        assert!(close(exp2, f64::from(x - 9.0).exp2(), 2.0 * 2.0_f64.powi(-23)), "{x}");
        assert!(close(reciprocal, 1.0 / wide, 2.0_f64.powi(-23)), "{x}");
        assert!(close(rsqrt, 1.0 / wide.sqrt(), 2.0_f64.powf(-22.9)), "{x}");
    }
}

#[test]
fn integers_are_the_nearest_and_clamped() {
    let cases =
        [(0.5, 0), (1.5, 2), (-2.5, -2), (2.4999, 2), (3e9, i32::MAX), (-3e9, i32::MIN), (f32::NAN, 0)];
    for (x, expected) in cases {
        let got: Vec<i32> = per_lane(32, move |s: Lane<'_>| s.round_i32(x));
        assert!(got.iter().all(|&got| got == expected), "{x}");
    }
}

#[test]
fn bytes_bits_and_dots() {
    let mut next = noise(14);
    let words: [[u32; 4]; 32] = core::array::from_fn(|_| core::array::from_fn(|_| next() as u32));
    let got: Vec<[u32; 4]> = per_lane(64, move |s: Lane<'_>| {
        let [a, b, c, selector] = words[s.lane() as usize];
        if s.warp() == 0 {
            let dots = [s.dot4_s8(a, b, c.cast_signed()), s.dot4_u8_s8(a, b, c.cast_signed())];
            [s.permute_bytes(a, b, selector), dots[0].cast_unsigned(), dots[1].cast_unsigned(), 0]
        } else {
            [
                s.lop3::<{ 0xf0 & 0xcc | 0xaa }>(a, b, c),
                s.lop3::<{ 0xf0 ^ 0xcc ^ 0xaa }>(a, b, c),
                s.lop3::<{ 0xf0 & !0xcc & 0xff }>(a, b, c),
                s.lop3::<{ (0xf0 & 0xcc) ^ (!0xf0 & 0xaa) & 0xff }>(a, b, c),
            ]
        }
    });
    for (lane, [a, b, c, selector]) in words.into_iter().enumerate() {
        let permuted = (0..4).fold(0, |d, i| {
            let nibble = selector >> (4 * i) & 15;
            let byte = (u64::from(b) << 32 | u64::from(a)) >> (8 * (nibble & 7)) & 0xff;
            let byte = if nibble < 8 { byte } else { 0xff * (byte >> 7) };
            d | byte << (8 * i)
        });
        let dot = |signed: bool| {
            (0..4).fold(i64::from(c.cast_signed()), |sum, i| {
                let (a, b) = ((a >> (8 * i)) as u8, (b >> (8 * i)) as i8);
                sum + i64::from(b) * if signed { i64::from(a as i8) } else { i64::from(a) }
            }) as u32
        };
        assert_eq!(got[lane], [permuted as u32, dot(true), dot(false), 0]);
        assert_eq!(got[lane + 32], [a & b | c, a ^ b ^ c, a & !b, (a & b) ^ (!a & c)]);
    }
}
