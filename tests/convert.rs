//! `convert_f16`, `convert_f16_slabs` and `convert_q8` against the rounding that they promise, to the bit.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/machine.rs"]
mod machine;
#[path = "support/random.rs"]
#[allow(dead_code, reason = "this binary uses a part of it")]
mod random;
#[path = "support/rows.rs"]
mod rows;

use gpu::product::{Q8Row, SlabF16};
use half::f16;
use lanemap::cuda::ops;
use machine::{Guarded, Machine, assert_refused, counted, on_both};
use random::{Random, normals};
use rows::Form;

on_both! {
    f16_is_the_nearest,
    f16_slabs_are_the_nearest_and_zero_beside_them,
    q8_is_the_nearest_of_its_block,
    q8_blocks_of_what_is_no_number_say_so,
    arguments_outside_the_contract_are_refused,
}

/// `[rows, width]`.
const SHAPES: [[usize; 2]; 6] = [[1, 128], [3, 1024], [2, 1152], [5, 3584], [1, 18_944], [64, 256]];

fn f16_is_the_nearest<M: Machine>(machine: &M) {
    let seed = 31;
    let mut random = Random(seed);
    for [rows, width] in machine.cases(&[&SHAPES[..], &[[7, 8], [1, 1000]]].concat(), &[]) {
        let mut x = normals(&mut random, rows * width);
        // Ties, overflow, subnormals, zeros.
        x[..8].copy_from_slice(&[1.000_488_3, 1.001_464_8, 65_519.9, 65_520.0, 3e-8, 2e-8, -0.0, -1e30]);
        let input = Guarded::input(machine, "input", &x, 16);
        let (out, _) = counted::<f16, M>(machine, rows * width, 16, |queue, out| {
            ops::convert_f16(queue, out, input.view(), [rows, width])
        });
        let expected: Vec<u16> = x.iter().map(|&x| f16::from_f32(x).to_bits()).collect();
        let found: Vec<u16> = out.iter().map(|x| x.to_bits()).collect();
        assert_eq!(found, expected, "{rows} × {width}, random seed {seed}");
    }
}

fn f16_slabs_are_the_nearest_and_zero_beside_them<M: Machine>(machine: &M) {
    let seed = 33;
    let mut random = Random(seed);
    for [rows, width] in machine.cases(&[&SHAPES[..], &[[65, 32], [3, 160], [130, 96]]].concat(), &[]) {
        let mut x = normals(&mut random, rows * width);
        // Ties, overflow, subnormals, zeros.
        x[..8].copy_from_slice(&[1.000_488_3, 1.001_464_8, 65_519.9, 65_520.0, 3e-8, 2e-8, -0.0, -1e30]);
        let input = Guarded::input(machine, "input", &x, 16);
        let found = SlabF16::output(machine, rows, width, |queue, out| {
            ops::convert_f16_slabs(queue, out, input.view(), [rows, width])
        });
        let expected: Vec<u32> = x.iter().map(|&x| f16::from_f32(x).to_f32().to_bits()).collect();
        let found: Vec<u32> = found.iter().map(|x| x.to_bits()).collect();
        assert!(found == expected, "{rows} × {width}, random seed {seed}");
    }
}

/// The parts of a row: pairs of a coarse and a fine quant, scales, sums.
fn parts(row: &[u8], width: usize) -> (Vec<[i8; 2]>, Vec<f32>, Vec<f32>) {
    let at = Q8Row::new(width as u32);
    let floats = |start: u32, count: usize| {
        let bytes = &row[start as usize..][..4 * count];
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    };
    let fine = &row[at.fine() as usize..][..width];
    let quants = row[..width].iter().zip(fine).map(|(&c, &f)| [c, f].map(u8::cast_signed)).collect();
    (quants, floats(at.scales(), width / 32), floats(at.sums(), width / 16))
}

/// The fine steps of a value.
fn steps([coarse, fine]: [i8; 2]) -> i32 {
    256 * i32::from(coarse) + i32::from(fine)
}

fn assert_q8(what: &str, row: &[u8], x: &[f32]) {
    let (quants, scales, sums) = parts(row, x.len());
    for (b, block) in x.chunks_exact(32).enumerate() {
        let largest = block.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        let zero = largest < 2.0_f32.powi(-100);
        let scale = if zero { 0.0 } else { largest / 32_512.0 };
        assert_eq!(scales[b].to_bits(), scale.to_bits(), "{what}: scale {b}");
        for (i, &x) in block.iter().enumerate() {
            let q = if zero { 0.0 } else { (x * (32_512.0 / largest)).round_ties_even() };
            let [coarse, fine] = quants[32 * b + i];
            let found = steps(quants[32 * b + i]);
            assert_eq!(found as f32, q, "{what}: quant {}: {coarse} and {fine}", 32 * b + i);
            // Half a step, and what three roundings of f32 add to 32,512 of them.
            let error = (f64::from(scale) * f64::from(found) - f64::from(x)).abs();
            assert!(zero || error <= f64::from(scale) * 0.506, "{what}: {x} is {found} · {scale}");
        }
        for half in 0..2 {
            let quants = &quants[32 * b + 16 * half..][..16];
            let sum: i32 = quants.iter().map(|&q| steps(q)).sum();
            assert_eq!(
                sums[2 * b + half].to_bits(),
                (scale * sum as f32).to_bits(),
                "{what}: sum {b}, {half}"
            );
        }
    }
}

fn q8_is_the_nearest_of_its_block<M: Machine>(machine: &M) {
    let seed = 32;
    let mut random = Random(seed);
    for [rows, width] in machine.cases(&SHAPES, &[[1000, 3584]]) {
        let mut x = normals(&mut random, rows * width);
        // Zeros, ties, what is too small, what is nearly too large.
        x[..32].fill(0.0);
        for (i, x) in x[32..64].iter_mut().enumerate() {
            *x = if i == 0 { 32_512.0 } else { 1021.0 * i as f32 + 0.5 };
        }
        x[64..96].iter_mut().for_each(|x| *x *= 1e-35);
        x[96..128].iter_mut().for_each(|x| *x *= 1e37);
        let input = Guarded::input(machine, "input", &x, 16);
        let bytes = Q8Row::new(width as u32).bytes() as usize;
        let out = counted::<u8, M>(machine, rows * bytes, 16, |queue, out| {
            ops::convert_q8(queue, out, input.view(), [rows, width])
        });
        for (r, row) in out.0.chunks_exact(bytes).enumerate() {
            assert_q8(
                &format!("{rows} × {width}, row {r}, random seed {seed}"),
                row,
                &x[r * width..][..width],
            );
        }
    }
    // Rows whose planes have padding, which nobody writes.
    for [rows, width] in [[3, 32], [2, 96], [1, 160]] {
        let x = normals(&mut random, rows * width);
        let input = Guarded::input(machine, "input", &x, 16);
        let bytes = Q8Row::new(width as u32).bytes() as usize;
        let mut out = Guarded::<u8>::output(machine, "out", rows * bytes, 16);
        ops::convert_q8(machine, out.view_mut(), input.view(), [rows, width]).unwrap();
        for (row, x) in out.read().chunks_exact(bytes).zip(x.chunks_exact(width)) {
            assert_q8(&format!("{rows} × {width}, random seed {seed}"), row, x);
        }
    }
}

fn q8_blocks_of_what_is_no_number_say_so<M: Machine>(machine: &M) {
    let width = 128;
    let mut x = vec![1.0_f32; width];
    (x[3], x[40], x[70]) = (f32::NAN, f32::INFINITY, f32::NEG_INFINITY);
    let input = Guarded::input(machine, "input", &x, 16);
    let bytes = Q8Row::new(width as u32).bytes() as usize;
    let (row, _) = counted::<u8, M>(machine, bytes, 16, |queue, out| {
        ops::convert_q8(queue, out, input.view(), [1, width])
    });
    let (quants, scales, _) = parts(&row, width);
    assert!(scales[..3].iter().all(|scale| !scale.is_finite()), "{scales:?}");
    assert_eq!(scales[3].to_bits(), (1.0_f32 / 32_512.0).to_bits());
    assert!(quants[96..].iter().all(|&q| q == [127, 0]), "the other blocks are what they are");
}

fn arguments_outside_the_contract_are_refused<M: Machine>(machine: &M) {
    let input = machine.input("input", &[0.0_f32; 64]).unwrap();
    let mut q8 = machine.output::<u8>("out", 176).unwrap();
    let mut slabs = machine.output::<SlabF16>("out", 64 * 64).unwrap();
    let mut f16 = machine.output::<f16>("out", 64).unwrap();
    let refused = assert_refused;
    refused(
        ops::convert_q8(machine, q8.view_mut(), input.slice(0..16), [1, 16]),
        "convert_q8: the width is 16, not a multiple of 32",
    );
    refused(
        ops::convert_f16(machine, f16.slice_mut(0..12), input.slice(0..12), [1, 12]),
        "convert_f16: the width is 12, not a multiple of 8",
    );
    refused(
        ops::convert_q8(machine, q8.view_mut(), input.view(), [1, 64]),
        "convert_q8: out has 176 elements, the shape has 160",
    );
    refused(
        ops::convert_f16_slabs(machine, slabs.view_mut(), input.slice(0..48), [1, 48]),
        "convert_f16_slabs: the width is 48, not a multiple of 32",
    );
    refused(
        ops::convert_f16_slabs(machine, slabs.view_mut(), input.view(), [1, 64]),
        "convert_f16_slabs: out has 4096 elements, the shape has 8192",
    );
    refused(
        ops::convert_f16(machine, f16.view_mut(), input.slice(0..63), [1, 64]),
        "convert_f16: input has 63 elements, the shape has 64",
    );
    refused(
        ops::convert_f16(machine, f16.view_mut(), input.slice(0..0), [65_536, 0]),
        "convert_f16: rows is 65536, the most is 65535",
    );
    assert!(f16.read().unwrap().iter().all(|x| x.is_nan()), "nothing ran");
}
