//! What the arithmetic words give: the ISA's result where it defines one.

use half::{bf16, f16};

/// The f16 that NaN becomes.
const NAN_16: u16 = 0x7fff;
/// The f32 that NaN becomes.
const NAN_32: f32 = f32::from_bits(0x7fff_ffff);

/// To nearest even; too large becomes infinite.
pub(super) fn f16_from_f32(value: f32) -> f16 {
    if value.is_nan() { f16::from_bits(NAN_16) } else { f16::from_f32(value) }
}

/// To nearest even; too large becomes infinite.
pub(super) fn bf16_from_f32(value: f32) -> u16 {
    if value.is_nan() { NAN_16 } else { bf16::from_f32(value).to_bits() }
}

/// Two 16-bit halves, the first in the lower bits.
pub(super) fn pack(low: u16, high: u16) -> u32 {
    u32::from(high) << 16 | u32::from(low)
}

/// The halves of a register, the lower first.
pub(super) fn unpack(pair: u32) -> [u16; 2] {
    [pair as u16, (pair >> 16) as u16]
}

/// The halves of a register of f16 as f32.
pub(super) fn f32_from_f16x2(pair: u32) -> [f32; 2] {
    unpack(pair).map(|bits| f16::from_bits(bits).to_f32())
}

/// `f` of both halves, in f32, rounded to f16. For a sum, a product or a choice that is the
/// correctly rounded f16: f32 has more than twice its digits and two, so rounding twice is
/// rounding once.
pub(super) fn both(a: u32, b: u32, f: impl Fn(f32, f32) -> f32) -> u32 {
    let ([a0, a1], [b0, b1]) = (f32_from_f16x2(a), f32_from_f16x2(b));
    pack(f16_from_f32(f(a0, b0)).to_bits(), f16_from_f32(f(a1, b1)).to_bits())
}

/// `a · b + c` in f16, rounded once.
pub(super) fn fma_f16(a: f32, b: f32, c: f32) -> f16 {
    // f64 holds product and sum exactly, or else a product so small beside c that it does not
    // change how the sum rounds. On the way to f16 through f32 the first rounding is made towards
    // the odd neighbour, which keeps on which side of a tie the sum lies.
    let sum = f64::from(a) * f64::from(b) + f64::from(c);
    let nearest = sum as f32;
    let odd = if f64::from(nearest) == sum || !nearest.is_finite() {
        nearest
    } else {
        let towards_zero = nearest.to_bits() - u32::from(f64::from(nearest).abs() > sum.abs());
        f32::from_bits(towards_zero | 1)
    };
    f16_from_f32(odd)
}

/// `max.f32`.
pub(super) fn max(a: f32, b: f32) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => NAN_32,
        (true, false) => b,
        (false, true) => a,
        _ if a == b => f32::from_bits(a.to_bits() & b.to_bits()),
        _ => {
            if a > b {
                a
            } else {
                b
            }
        }
    }
}

/// Subnormals as zero of the same sign, NaN as the GPU's.
fn flush(x: f32) -> f32 {
    if x.is_nan() {
        NAN_32
    } else if x.is_subnormal() {
        0.0_f32.copysign(x)
    } else {
        x
    }
}

/// `ex2.approx.ftz`: the nearest f32, within the ISA's 2 ULP.
pub(super) fn exp2(x: f32) -> f32 {
    flush(f64::from(flush(x)).exp2() as f32)
}

/// `rcp.approx.ftz`: the nearest f32, within the ISA's 1 ULP.
pub(super) fn reciprocal(x: f32) -> f32 {
    flush(1.0 / flush(x))
}

/// `rsqrt.approx.ftz`: the nearest f32, within the ISA's 2^-22.9.
pub(super) fn rsqrt(x: f32) -> f32 {
    // The square root of -0 is -0, so its reciprocal is -∞, as the ISA has it.
    flush((1.0 / f64::from(flush(x)).sqrt()) as f32)
}

/// `prmt.b32` in its default mode.
pub(super) fn permute_bytes(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = (u64::from(b) << 32 | u64::from(a)).to_le_bytes();
    u32::from_le_bytes(core::array::from_fn(|i| {
        let nibble = selector >> (4 * i) & 0xf;
        let byte = bytes[(nibble & 7) as usize];
        if nibble & 8 == 0 {
            byte
        } else if byte & 0x80 == 0 {
            0
        } else {
            0xff
        }
    }))
}

/// `lop3.b32`: bit by bit, entry `a b c` of the table.
pub(super) fn lop3(table: u32, a: u32, b: u32, c: u32) -> u32 {
    (0..8)
        .filter(|entry| table >> entry & 1 == 1)
        .map(|entry: u32| {
            let want = |word: u32, bit: u32| if entry >> bit & 1 == 1 { word } else { !word };
            want(a, 2) & want(b, 1) & want(c, 0)
        })
        .fold(0, |d, minterm| d | minterm)
}

/// `dp4a` with signed `b`; `a` as `widen` reads its bytes.
pub(super) fn dot4(a: u32, b: u32, c: i32, widen: impl Fn(u8) -> i32) -> i32 {
    a.to_le_bytes()
        .into_iter()
        .zip(b.to_le_bytes())
        .fold(c, |sum, (a, b)| sum.wrapping_add(widen(a) * i32::from(b.cast_signed())))
}
