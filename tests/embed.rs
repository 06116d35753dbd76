//! `embed`, every format, against `dequantize_row`.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/machine.rs"]
mod machine;
#[path = "support/random.rs"]
#[allow(dead_code, reason = "this binary uses a part of it")]
mod random;

use gpu::quant::planes::{pack_row, plane_row_bytes};
use gpu::quant::{Format, dequantize_row};
use lanemap::cuda::Error;
use lanemap::cuda::ops::{self, PlaneMatrix};
use machine::{Guarded, Machine, assert_refused, counted, on_both};
use random::{Random, random_blocks};

on_both! {
    every_format_is_dequantized_to_the_bit,
    a_token_that_is_not_there_gives_nan,
    arguments_outside_the_contract_are_refused,
}

/// A table's rows as planes, and their values.
fn table(format: Format, rows: usize, columns: usize, random: &mut Random) -> (Vec<u8>, Vec<f32>) {
    let (mut planes, mut values) = (Vec::new(), Vec::new());
    for _ in 0..rows {
        let blocks = random_blocks(format, columns, 1.0, random);
        let mut row = vec![0; plane_row_bytes(format, columns).unwrap() as usize];
        pack_row(format, &blocks, &mut row).unwrap();
        planes.extend(row);
        let mut dequantized = vec![0.0; columns];
        dequantize_row(format, &blocks, &mut dequantized).unwrap();
        values.extend(dequantized);
    }
    (planes, values)
}

fn run<M: Machine>(
    machine: &M,
    (format, planes): (Format, &[u8]),
    [rows, columns]: [usize; 2],
    tokens: &[u32],
    scale: f32,
) -> Vec<f32> {
    let bytes = Guarded::input(machine, "table", planes, 16);
    let tokens = Guarded::input(machine, "tokens", tokens, 4);
    counted(machine, tokens.view().len() * columns, 16, |queue, out| {
        let table = PlaneMatrix { bytes: bytes.view(), format, rows, columns };
        ops::embed(queue, out, table, tokens.view(), scale)
    })
    .0
}

fn every_format_is_dequantized_to_the_bit<M: Machine>(machine: &M) {
    let seed = 61;
    let mut random = Random(seed);
    for format in Format::ALL {
        let block = format.block_elements().max(8);
        for (rows, columns) in machine.cases(&[(5, block), (3, 256 / block * block * 3)], &[(1000, 4096)]) {
            let (planes, values) = table(format, rows, columns, &mut random);
            assert!(values.iter().any(|x| x.abs() > 0.5), "{format}: not trivial");
            let tokens: Vec<u32> = [rows - 1, 0, 1, rows - 1, 2].map(|token| token as u32).into();
            for scale in [1.0, 25.3] {
                let out = run(machine, (format, &planes), [rows, columns], &tokens, scale);
                for (i, found) in out.iter().enumerate() {
                    let (row, column) = (tokens[i / columns] as usize, i % columns);
                    // Once rounded: the product of an exact value.
                    let expected = scale * values[row * columns + column];
                    assert!(
                        *found == expected,
                        "{format}, {rows} × {columns}, seed {seed}: row {row}, column {column} is {found}, \
                         expected {expected}"
                    );
                }
            }
        }
    }
}

fn a_token_that_is_not_there_gives_nan<M: Machine>(machine: &M) {
    for format in [Format::Q6_K, Format::F16] {
        let (planes, values) = table(format, 2, 256, &mut Random(62));
        let out = run(machine, (format, &planes), [2, 256], &[2, 1, u32::MAX], 1.0);
        assert!(out[..256].iter().chain(&out[512..]).all(|x| x.is_nan()));
        assert_eq!(out[256..512], values[256..]);
    }
}

fn arguments_outside_the_contract_are_refused<M: Machine>(machine: &M) {
    let bytes = machine.input("table", &[0_u8; 2 * 288]).unwrap();
    let tokens = machine.input("tokens", &[0_u32, 1]).unwrap();
    let mut out = machine.output::<f32>("out", 512).unwrap();
    let mut run = |format, len: usize, columns| -> Result<(), Error> {
        let table = PlaneMatrix { bytes: bytes.slice(0..len), format, rows: 2, columns };
        ops::embed(machine, out.view_mut(), table, tokens.view(), 1.0)
    };
    assert_refused(
        run(Format::Q4_K, 288, 255),
        "embed_q4_k: the table has 255 columns of Q4_K, not a multiple of 256",
    );
    assert_refused(
        run(Format::F16, 288, 12),
        "embed_f16: the table has 12 columns of F16, not a multiple of 8",
    );
    assert_refused(run(Format::Q4_K, 576, 512), "embed_q4_k: out has 512 elements, the shape has 1024");
    let bytes = 2 * plane_row_bytes(Format::Q4_K, 256).unwrap();
    let short = format!("embed_q4_k: the table has 100 elements, the shape has {bytes}");
    assert_refused(run(Format::Q4_K, 100, 256), &short);
    assert!(out.read().unwrap().iter().all(|x| x.is_nan()), "nothing ran");
}
