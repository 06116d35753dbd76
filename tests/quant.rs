//! The block formats against values that an independent implementation decoded.
//!
//! `data/quant_blocks.json` holds 12 random blocks of each format (zero, subnormal, negative and
//! large scales among them) with their values by the Python package `gguf`;
//! `data/quantized_rows.json` holds rows of 64 values (random ones of several magnitudes, an
//! outlier, zeros, a constant, both extremes, ties) with the blocks that the same package makes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use gpu::quant::{Format, dequantize_row};
use lanemap::quantize::quantize_row;
use serde::Deserialize;

/// One format's recorded blocks. For the unquantized formats a "block" is a row of 64 numbers.
#[derive(Deserialize)]
struct Recorded {
    #[serde(rename = "type")]
    name: String,
    id: u32,
    block_elements: usize,
    block_bytes: usize,
    /// In hexadecimal.
    bytes: Vec<String>,
    /// Each is an f32 written out as an f64, so that narrowing it again is exact.
    values: Vec<Vec<f64>>,
}

fn recorded() -> Vec<Recorded> {
    serde_json::from_str(include_str!("data/quant_blocks.json")).unwrap()
}

fn from_hex(hex: &str) -> Vec<u8> {
    let digit = |c: u8| char::from(c).to_digit(16).unwrap() as u8;
    hex.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

#[test]
fn the_record_covers_every_format_but_two() {
    let ids: Vec<u32> = recorded().iter().map(|r| r.id).collect();
    let missing: Vec<Format> = Format::ALL.into_iter().filter(|f| !ids.contains(&f.id())).collect();
    // Their formulas are one copy and one product; gpu's unit tests have them.
    assert_eq!(missing, [Format::F32, Format::Q8_K]);
}

#[test]
fn every_recorded_block_is_equal_to_the_last_bit() {
    for Recorded { name, id, block_elements, block_bytes, bytes, values } in recorded() {
        let format = Format::from_id(id).unwrap();
        assert_eq!(format.name(), name);
        let blocks = block_elements / format.block_elements();
        assert_eq!(block_bytes, blocks * format.block_bytes(), "{format}");
        assert_eq!((bytes.len(), values.len()), (12, 12), "{format}");

        for (number, (hex, expected)) in bytes.iter().zip(&values).enumerate() {
            let bytes = from_hex(hex);
            // At every alignment, since a tensor in a mapped file has no other promise.
            for misalignment in 0..4 {
                let mut shifted = vec![0xFF; misalignment];
                shifted.extend(&bytes);
                let mut out = vec![f32::NAN; block_elements];
                dequantize_row(format, &shifted[misalignment..], &mut out).unwrap();
                for (i, (&got, &want)) in out.iter().zip(expected).enumerate() {
                    let want = want as f32;
                    assert_eq!(
                        got.to_bits(),
                        want.to_bits(),
                        "{format} block {number}, value {i}: got {got:e}, want {want:e}"
                    );
                }
                assert_eq!(out.len(), expected.len(), "{format} block {number}");
            }
        }
    }
}

#[test]
fn every_recorded_row_is_quantized_to_the_same_bytes() {
    #[derive(Deserialize)]
    struct Recorded {
        rows: Vec<Vec<f64>>,
        /// By format, the rows' blocks in hexadecimal.
        bytes: BTreeMap<String, Vec<String>>,
    }
    let Recorded { rows, bytes } = serde_json::from_str(include_str!("data/quantized_rows.json")).unwrap();
    assert_eq!((rows.len(), bytes.len()), (12, 7));

    for (name, expected) in bytes {
        let format = Format::ALL.into_iter().find(|format| format.name() == name).unwrap();
        assert_eq!(expected.len(), rows.len());
        for (number, (row, expected)) in rows.iter().zip(&expected).enumerate() {
            let row: Vec<f32> = row.iter().map(|&x| x as f32).collect();
            assert_eq!(quantize_row(format, &row).unwrap(), from_hex(expected), "{format}, row {number}");
        }
    }
}
