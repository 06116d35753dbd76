//! What `gpu::simt` promises of the machine's approximate functions, measured against f64: 2^x,
//! 1 / x, 1 / √x.
//!
//! The error of 1 / x and of 1 / √x depends on the mantissa (and on whether the exponent is even), so
//! on a GPU all mantissas are tried, for 2^x in two octaves; and random numbers of every size. The
//! emulator gives the nearest f32, so there a few of them show that the measurement is right.
//!
//! Without a GPU its test says `NO DEVICE: …` on stderr and passes.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/machine.rs"]
mod machine;
#[cfg(cuda)]
#[path = "support/probes.rs"]
mod probes;
#[path = "support/random.rs"]
#[allow(dead_code, reason = "this binary uses a part of it")]
mod random;

use gpu::probe::ProbeApproximations;
use gpu::simt::emulator::{Emulator, Memory};
use machine::say;
use random::{Random, uniform};

/// The three functions, in the order of the probe.
const NAMES: [&str; 3] = ["exp2_approx", "reciprocal_approx", "rsqrt_approx"];

/// What `gpu::simt` promises, in the units of [`error`]: 2 ULP of the correctly rounded result, 1 ULP,
/// and 2^-22.9 of the result.
fn bounds() -> [f64; 3] {
    [2.0, 1.0, (-22.9_f64).exp2()]
}

/// The function in f64.
fn exact(function: usize, x: f32) -> f64 {
    let x = f64::from(x);
    match function {
        0 => x.exp2(),
        1 => 1.0 / x,
        _ => 1.0 / x.sqrt(),
    }
}

/// The distance of f32 numbers about a normal one.
fn ulp(x: f64) -> f64 {
    f64::from(f32::EPSILON) * f64::from_bits(x.abs().to_bits() & !((1 << 52) - 1))
}

fn error(function: usize, found: f32, exact: f64) -> f64 {
    let found = f64::from(found);
    match function {
        0 => (found - f64::from(exact as f32)).abs() / ulp(exact),
        1 => (found - exact).abs() / ulp(exact),
        _ => (found / exact - 1.0).abs(),
    }
}

/// Whether a result is normal whichever way it is rounded: where the promise is a number.
fn is_normal(exact: f64) -> bool {
    let margin = 1.0 + (-20.0_f64).exp2();
    (f64::from(f32::MIN_POSITIVE) * margin..f64::from(f32::MAX) / margin).contains(&exact.abs())
}

/// Runs over the inputs in pieces, each with `launch`, and holds each result against its bound.
fn measure(machine: &str, inputs: impl Iterator<Item = f32>, launch: impl Fn(&[f32]) -> [Vec<f32>; 3]) {
    let mut inputs = inputs.peekable();
    let mut worst = [(0.0_f64, 0.0_f32); 3];
    let mut counts = [0_u32; 3];
    while inputs.peek().is_some() {
        let piece: Vec<f32> = inputs.by_ref().take(1 << 22).collect();
        for (function, found) in launch(&piece).iter().enumerate() {
            assert_eq!(found.len(), piece.len());
            for (&x, &found) in piece.iter().zip(found) {
                let exact = exact(function, x);
                if !is_normal(exact) {
                    continue;
                }
                let (error, bound) = (error(function, found, exact), bounds()[function]);
                let name = NAMES[function];
                assert!(error <= bound, "{name}({x:e}) is {found:e}, not {exact:e}: {error} > {bound}");
                counts[function] += 1;
                if error > worst[function].0 {
                    worst[function] = (error, x);
                }
            }
        }
    }
    let [exp2, reciprocal, rsqrt] = worst;
    say(&format!(
        "approximations on {machine}: exp2 within {} ULP of the nearest f32 (at {:e}, {} inputs), \
         1/x within {:.4} ULP (at {:e}, {}), 1/√x within 2^{:.3} (at {:e}, {})",
        exp2.0,
        exp2.1,
        counts[0],
        reciprocal.0,
        reciprocal.1,
        counts[1],
        rsqrt.0.log2(),
        rsqrt.1,
        counts[2],
    ));
    assert!(counts.iter().all(|&count| count > 10_000), "{counts:?}");
}

/// Every `step`-th f32 from 1 to 4, and random ones: as many again of every size and sign, and between
/// -126 and 128.
fn inputs(step: usize) -> impl Iterator<Item = f32> {
    let dense = (1.0_f32.to_bits()..4.0_f32.to_bits()).step_by(step).map(f32::from_bits);
    let random = (1 << 22) / step;
    let mut any = Random(7);
    // Exponents 1 to 254: no zero, no subnormal, no infinity, no NaN.
    let any = (0..random).map(move |_| {
        let bits = any.next();
        f32::from_bits((bits as u32 & 0x807f_ffff) | (1 + (bits >> 32) as u32 % 254) << 23)
    });
    let mut even = Random(8);
    dense.chain(any).chain((0..random).map(move |_| (254.0 * uniform(&mut even) - 126.0) as f32))
}

/// Inputs and what the three functions make of them, to the bit; NaN stands for any NaN.
fn special() -> [(f32, [f32; 3]); 12] {
    let (infinity, nan, tiny, least) = (f32::INFINITY, f32::NAN, f32::from_bits(1), f32::MIN_POSITIVE);
    [
        (0.0, [1.0, infinity, infinity]),
        (-0.0, [1.0, -infinity, -infinity]),
        // Subnormal numbers count as zero, as arguments and as results.
        (tiny, [1.0, infinity, infinity]),
        (-tiny, [1.0, -infinity, -infinity]),
        (-149.0, [0.0, 1.0 / -149.0, nan]),
        (3e38, [infinity, 0.0, 1.0 / 3e38_f32.sqrt()]),
        (-3e38, [0.0, -0.0, nan]),
        (infinity, [infinity, 0.0, 0.0]),
        (-infinity, [0.0, -0.0, nan]),
        (nan, [nan; 3]),
        (4.0, [16.0, 0.25, 0.5]),
        (least, [1.0, 1.0 / least, 1.0 / least.sqrt()]),
    ]
}

fn check_special(launch: impl Fn(&[f32]) -> [Vec<f32>; 3]) {
    let table = special();
    let found = launch(&table.map(|(x, _)| x));
    for (function, found) in found.iter().enumerate() {
        for ((x, expected), &found) in table.iter().zip(found) {
            let (name, expected) = (NAMES[function], expected[function]);
            // What is neither NaN, infinite, nor a power of two may be one of its neighbours.
            let exactly = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
            let nearly = expected.is_normal() && (f64::from(found) / f64::from(expected) - 1.0).abs() <= 3e-7;
            assert!(exactly || nearly, "{name}({x:e}) is {found:e}, expected {expected:e}");
        }
    }
}

fn emulated(x: &[f32]) -> [Vec<f32>; 3] {
    let mut memory = Memory::new();
    let [exp2, reciprocal, rsqrt] = NAMES.map(|name| memory.output(name, x.len()));
    let n = x.len() as u32;
    let kernel = ProbeApproximations { exp2, reciprocal, rsqrt, x: memory.input("x", x), n };
    Emulator::new().seed(1).launch(&mut memory, kernel).unwrap();
    [exp2, reciprocal, rsqrt].map(|out| {
        memory.check_written_once(out).unwrap();
        memory.values(out)
    })
}

#[test]
fn approximations_keep_their_bounds_on_the_emulator() {
    measure("the emulator", inputs(509), emulated);
    check_special(emulated);
}

/// A measurement that sees nothing would be the easiest to pass.
#[test]
fn an_error_beyond_a_bound_is_found() {
    for function in 0..3 {
        let wrong = |x: &[f32]| {
            let mut found = emulated(x);
            let last = found[function].last_mut().unwrap();
            // Three numbers further: 3 ULP, which is 2^-22 of the result or more.
            *last = f32::from_bits(last.to_bits() + 3);
            found
        };
        let outcome =
            std::panic::catch_unwind(|| measure("none", (1..20_000).map(|x| 1.0 + x as f32 / 300.0), wrong));
        assert!(outcome.is_err(), "{} may be off by 3 ULP", NAMES[function]);
    }
}

#[cfg(cuda)]
#[test]
fn approximations_keep_their_bounds_on_a_device() {
    use lanemap::cuda::{Buffer, ops};
    use machine::stream;
    use probes::Guarded;

    let Some(stream) = stream("approximations_keep_their_bounds_on_a_device") else { return };
    let launch = |x: &[f32]| {
        // A NaN that no instruction makes.
        let fill = f32::from_bits(0x7f80_1234);
        let mut out: [_; 3] = std::array::from_fn(|_| Guarded::new(&stream, x.len(), fill));
        let x = Buffer::from_slice(stream.device(), x).unwrap();
        ops::approximations(&stream, out.each_mut().map(Guarded::view_mut), x.view()).unwrap();
        out.map(|out| out.read())
    };
    measure(&stream.device().description().to_string(), inputs(1), launch);
    check_special(launch);
}
