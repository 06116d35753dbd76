#![allow(clippy::unwrap_used, reason = "a test may panic")]

use gpu::quant::dequantize_row;

use super::*;

/// What a format can represent: `step * level + minimum`.
struct Grid {
    format: Format,
    levels: Vec<f64>,
    /// The exact step and minimum for a block's values.
    fit: fn(&[f64]) -> (f64, f64),
    /// The largest error of rounding the step to the file's type: relative, and absolute where
    /// the type runs out of exponents.
    step_rounding: (f64, f64),
}

/// Half a unit in the last place of a normal f16, and of a subnormal one.
const F16_ROUNDING: (f64, f64) = (1.0 / 2048.0, 1.0 / 33_554_432.0);
/// The same for an f32 whose inverse was rounded first; a step without a finite inverse, below
/// 3e-39, goes to zero.
const F32_ROUNDING: (f64, f64) = (1.0 / 4_194_304.0, 3e-39);

fn signed_largest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, |best: f64, x| if x.abs() > best.abs() { x } else { best })
}

fn range(values: &[f64]) -> (f64, f64) {
    let min = values.iter().copied().fold(f64::INFINITY, f64::min);
    (values.iter().copied().fold(f64::NEG_INFINITY, f64::max) - min, min)
}

fn grids() -> Vec<Grid> {
    let whole = |levels: std::ops::RangeInclusive<i32>| levels.map(f64::from).collect();
    let grid = |format, levels, fit| Grid { format, levels, fit, step_rounding: F16_ROUNDING };
    vec![
        grid(Format::Q4_0, whole(-8..=7), |v| (signed_largest(v) / -8.0, 0.0)),
        grid(Format::Q4_1, whole(0..=15), |v| (range(v).0 / 15.0, range(v).1)),
        grid(Format::Q5_0, whole(-16..=15), |v| (signed_largest(v) / -16.0, 0.0)),
        grid(Format::Q5_1, whole(0..=31), |v| (range(v).0 / 31.0, range(v).1)),
        grid(Format::Q8_0, whole(-127..=127), |v| (signed_largest(v).abs() / 127.0, 0.0)),
        grid(Format::IQ4_NL, IQ4_VALUES.map(f64::from).to_vec(), |v| (signed_largest(v) / -127.0, 0.0)),
        Grid {
            step_rounding: F32_ROUNDING,
            ..grid(Format::Q8_K, whole(-127..=127), |v| (signed_largest(v) / -127.0, 0.0))
        },
    ]
}

/// xorshift64*: 32 random bits a call.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as u32
    }

    /// Roughly normal, variance 1.
    fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.bits() as f32 / 4_294_967_296.0).sum::<f32>() - 6.0
    }
}

/// Blocks of 256 values that have gone wrong somewhere.
fn hard_blocks() -> Vec<(&'static str, Vec<f32>)> {
    let mut random = Random(7);
    let mut made = |name, scale: f32| (name, (0..256).map(|_| random.normal() * scale).collect::<Vec<_>>());
    let mut blocks = vec![
        made("weights", 0.02),
        made("activations", 3.0),
        made("thousands", 2000.0),
        made("steps that are subnormal as f16", 1e-4),
        made("steps that vanish as f16", 1e-9),
        made("steps that cannot be inverted", 1e-38),
        made("subnormal values", 1e-41),
    ];
    let mut outlier = blocks[0].1.clone();
    outlier[100] = 500.0;
    blocks.push(("one outlier in each 256", outlier));
    for (name, value) in [
        ("zeros", 0.0),
        ("negative zeros", -0.0),
        ("a constant whose sum is beyond f16", 3000.0),
        ("a large constant", 60000.0),
        ("a large negative constant", -60000.0),
        ("a small constant", 1e-3),
    ] {
        blocks.push((name, vec![value; 256]));
    }
    blocks.push(("both extremes", (0..256).map(|i| if i % 2 == 0 { 60000.0 } else { -60000.0 }).collect()));
    blocks.push(("a single large value", (0..256).map(|i| if i == 17 { 60000.0 } else { 0.0 }).collect()));
    blocks
}

fn round_trip(format: Format, values: &[f32]) -> Vec<f32> {
    let bytes = quantize_row(format, values).unwrap();
    let mut out = vec![f32::NAN; values.len()];
    dequantize_row(format, &bytes, &mut out).unwrap();
    out
}

/// The bound: |x - decoded| is at most the distance from x to the nearest point of the exact
/// grid (half a step, or the part that is cut off beyond the last level), plus what the rounded
/// step and minimum move that point, plus the f32 roundings on the way, which are below 1e-4 of a
/// step and four units in the last place of x.
#[test]
fn every_value_takes_the_nearest_point_of_its_grid() {
    for Grid { format, levels, fit, step_rounding: (relative, absolute) } in grids() {
        let top = levels.iter().fold(0.0, |top: f64, level| top.max(level.abs()));
        for (name, values) in hard_blocks() {
            let decoded = round_trip(format, &values);
            let n = format.block_elements();
            for (values, decoded) in values.chunks(n).zip(decoded.chunks(n)) {
                let exact: Vec<f64> = values.iter().copied().map(f64::from).collect();
                let (step, minimum) = fit(&exact);
                let moved = top * (step.abs() * relative + absolute)
                    + if minimum == 0.0 { 0.0 } else { minimum.abs() * F16_ROUNDING.0 + F16_ROUNDING.1 };
                for (x, got) in exact.iter().zip(decoded) {
                    let nearest = levels
                        .iter()
                        .map(|level| (x - (step * level + minimum)).abs())
                        .fold(f64::INFINITY, f64::min);
                    let bound = nearest + moved + step.abs() * 1e-4 + x.abs() * 4.0 * f64::from(f32::EPSILON);
                    let error = (x - f64::from(*got)).abs();
                    assert!(
                        error <= bound,
                        "{format}, {name}: {x:e} became {got:e}, off by {error:e} > {bound:e}"
                    );
                }
            }
        }
    }
}

#[test]
fn zeros_stay_zeros() {
    for (format, _) in MAKERS {
        assert!(round_trip(format, &[0.0; 512]).iter().all(|&x| x == 0.0), "{format}");
    }
}

#[test]
fn a_constant_that_f16_holds_comes_back_exactly() {
    for format in [Format::Q4_0, Format::Q4_1, Format::Q5_0, Format::Q5_1] {
        for value in [3000.0, -3000.0, 0.125] {
            assert_eq!(round_trip(format, &[value; 64]), [value; 64], "{format}");
        }
    }
}

#[test]
fn single_numbers_are_rounded_to_nearest_even() {
    let f32_of = |bits: u32| f32::from_bits(bits);
    // One, and one plus whole numbers of half units in the last place.
    for (format, half_unit) in [(Format::F16, 1.0 / 2048.0), (Format::BF16, 1.0 / 256.0)] {
        let at = |halves: f32| 1.0 + halves * half_unit;
        let just_above = |x: f32| f32_of(x.to_bits() + 1);
        let values = [at(0.0), at(1.0), just_above(at(1.0)), at(2.0), at(3.0), -at(1.0), -at(3.0), -0.0];
        let expected = [at(0.0), at(0.0), at(2.0), at(2.0), at(4.0), -at(0.0), -at(4.0), -0.0];
        let got = round_trip(format, &values);
        assert_eq!(
            got.iter().map(|x| x.to_bits()).collect::<Vec<_>>(),
            expected.map(f32::to_bits),
            "{format}"
        );
    }
    // Half of the smallest subnormal goes to zero, anything more does not.
    assert_eq!(
        round_trip(Format::F16, &[f32_of(0x3300_0000), f32_of(0x3300_0001)]),
        [0.0, f32_of(0x3380_0000)]
    );
    assert_eq!(
        round_trip(Format::BF16, &[f32_of(0x0000_8000), f32_of(0x0000_8001)]),
        [0.0, f32_of(0x0001_0000)]
    );
    assert_eq!(round_trip(Format::F32, &[f32_of(1), f32::MAX]), [f32_of(1), f32::MAX]);
}

#[test]
fn halves_of_a_step_go_away_from_zero_in_q8_0_and_to_even_in_q8_k() {
    // The step is 1.
    let mut values = [0.0; 256];
    values[..8].copy_from_slice(&[-127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5]);
    assert_eq!(round_trip(Format::Q8_0, &values)[..8], [-127.0, 1.0, 2.0, 3.0, -1.0, -2.0, -3.0, 127.0]);
    assert_eq!(round_trip(Format::Q8_K, &values)[..8], [-127.0, 0.0, 2.0, 2.0, 0.0, -2.0, -2.0, 126.0]);
}

#[test]
fn q8_k_sums_its_quants() {
    let values: Vec<f32> = hard_blocks().into_iter().flat_map(|(_, values)| values).collect();
    let bytes = quantize_row(Format::Q8_K, &values).unwrap();
    for block in bytes.chunks_exact(size_of::<BlockQ8_K>()) {
        let block: BlockQ8_K = bytemuck::pod_read_unaligned(block);
        for (j, sum) in block.bsums.into_iter().enumerate() {
            let expected: i32 = block.qs[16 * j..][..16].iter().map(|&q| i32::from(q)).sum();
            assert_eq!(i32::from(sum), expected);
        }
    }
}

#[test]
fn values_beyond_a_format_are_errors_that_name_the_place() {
    let too_large = |format, value: f32| {
        let mut values = [1.0; 512];
        values[300] = value;
        quantize_row(format, &values) == Err(QuantizeError::TooLarge { format, index: 300, value })
    };
    // The largest f16 is 65504; from 65520 on, rounding leaves the range.
    for (format, steps) in [
        (Format::F16, 1.0),
        (Format::Q4_0, 8.0),
        (Format::Q5_0, 16.0),
        (Format::Q8_0, 127.0),
        (Format::IQ4_NL, 127.0),
    ] {
        assert!(too_large(format, 65520.0 * steps), "{format}");
        assert!(!too_large(format, 65519.0 * steps), "{format}");
    }
    for format in [Format::Q4_1, Format::Q5_1] {
        assert!(too_large(format, -65520.0), "{format}: minimum");
        assert!(!too_large(format, -65519.0), "{format}: minimum");
        assert!(too_large(format, f32::MAX), "{format}: step");
        let mut both = [0.0; 32];
        (both[3], both[4]) = (f32::MIN, f32::MAX);
        let error = QuantizeError::TooLarge { format, index: 3, value: f32::MIN };
        assert_eq!(quantize_row(format, &both), Err(error));
    }
    assert!(too_large(Format::BF16, f32::MAX));
    assert!(!too_large(Format::BF16, 3.0e38));
}

#[test]
fn whatever_is_finite_decodes_to_finite_values_or_is_refused() {
    let mut random = Random(11);
    let mut finite = || loop {
        let x = f32::from_bits(random.bits());
        if x.is_finite() {
            return x;
        }
    };
    let (mut made, mut refused) = (0, 0);
    for round in 0..2000 {
        // Blocks of every magnitude: random exponents, pressed towards 1 more and more.
        let power = 1.0 / (1 + round % 8) as f32;
        let values: Vec<f32> = (0..256).map(|_| finite()).map(|x| x.abs().powf(power).copysign(x)).collect();
        for (format, _) in MAKERS {
            match quantize_row(format, &values) {
                Ok(bytes) => {
                    made += 1;
                    let mut out = vec![f32::NAN; 256];
                    dequantize_row(format, &bytes, &mut out).unwrap();
                    assert!(out.iter().all(|x| x.is_finite()), "{format}");
                }
                Err(QuantizeError::TooLarge { .. }) => refused += 1,
                Err(error) => panic!("{format}: {error}"),
            }
        }
    }
    assert!(made > 1000 && refused > 1000, "{made} made, {refused} refused");
}

#[test]
fn a_value_that_is_not_finite_is_an_error_that_gives_its_place() {
    for (format, _) in MAKERS {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut values = [1.0; 512];
            values[300] = bad;
            match quantize_row(format, &values) {
                Err(QuantizeError::NotFinite { index: 300, value }) => {
                    assert_eq!(value.to_bits(), bad.to_bits());
                }
                other => panic!("{format}, {bad}: {other:?}"),
            }
        }
    }
}

#[test]
fn ragged_lengths_and_formats_that_are_only_read_are_errors() {
    for (format, _) in MAKERS {
        let block = format.block_elements();
        assert_eq!(quantize_row(format, &[]), Ok(vec![]), "{format}");
        for elements in [1, block - 1, block + 1, 2 * block + 1] {
            let result = quantize_row(format, &vec![1.0; elements]);
            if elements % block == 0 {
                assert_eq!(result.unwrap().len(), format.row_bytes(elements).unwrap());
            } else {
                assert_eq!(result, Err(RowError::Elements { format, elements }.into()));
            }
        }
    }
    let error = quantize_row(Format::Q4_K, &[0.0; 256]).unwrap_err();
    assert_eq!(error, QuantizeError::Unsupported { format: Format::Q4_K });
    assert_eq!(
        error.to_string(),
        "Q4_K can be read but not made from f32; \
         choose one of F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_K, IQ4_NL, BF16"
    );
}
