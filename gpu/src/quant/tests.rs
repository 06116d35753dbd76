//! Rows, names and lengths, and the formulas that `tests/quant.rs` has no record of.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

extern crate std;

use std::string::ToString;
use std::vec;
use std::vec::Vec;

use super::*;

/// Random bytes (xorshift64*), so every field takes any value it can.
pub(super) fn random_bytes(count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 56) as u8
    };
    core::iter::repeat_with(next).take(count).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn a_row_is_its_blocks_one_after_another() {
    fn block_by_block<B: Block>(bytes: &[u8]) -> Vec<f32> {
        let mut values = Vec::new();
        for block in bytes.chunks(size_of::<B>()) {
            values.extend(bytemuck::pod_read_unaligned::<B>(block).dequantize().as_ref());
        }
        values
    }

    for format in Format::ALL {
        for blocks in [0, 1, 2, 7] {
            let bytes = random_bytes(blocks * format.block_bytes(), 1 + format.id() as u64);
            let expected = with_block!(format, B => block_by_block::<B>(&bytes));
            assert_eq!(expected.len(), blocks * format.block_elements(), "{format}");

            let mut out = vec![f32::NAN; expected.len()];
            dequantize_row(format, &bytes, &mut out).unwrap();
            assert_eq!(bits(&out), bits(&expected), "{format}, {blocks} blocks");
        }
    }
}

#[test]
fn wrong_lengths_are_errors_and_write_nothing() {
    for format in Format::ALL {
        let (block_bytes, block_elements) = (format.block_bytes(), format.block_elements());
        let bytes = vec![0; 3 * block_bytes];
        let mut out = vec![7.0; 2 * block_elements];

        for got in [0, block_bytes, 2 * block_bytes - 1, 2 * block_bytes + 1, 3 * block_bytes] {
            let elements = out.len();
            let error = RowError::Bytes { format, elements, expected: 2 * block_bytes, got };
            assert_eq!(dequantize_row(format, &bytes[..got], &mut out), Err(error));
        }
        for elements in [1, block_elements - 1, block_elements + 1, 2 * block_elements - 1] {
            if elements % block_elements != 0 {
                let error = RowError::Elements { format, elements };
                let result = dequantize_row(format, &bytes[..block_bytes], &mut out[..elements]);
                assert_eq!(result, Err(error));
            }
        }
        assert!(out.iter().all(|&x| x == 7.0), "{format}");
    }
}

#[test]
fn errors_say_what_was_expected() {
    let mut out = [0.0; 64];
    let ragged = dequantize_row(Format::Q4_0, &[], &mut out[..33]).unwrap_err();
    assert_eq!(ragged.to_string(), "a row of 33 values is no whole number of Q4_0 blocks of 32");
    let short = dequantize_row(Format::Q4_0, &[0; 35], &mut out).unwrap_err();
    assert_eq!(short.to_string(), "a Q4_0 row of 64 values takes 36 bytes, got 35");
}

#[test]
fn row_bytes_is_none_where_there_is_no_such_row() {
    for format in Format::ALL {
        let elements = format.block_elements();
        assert_eq!(format.row_bytes(0), Some(0));
        assert_eq!(format.row_bytes(3 * elements), Some(3 * format.block_bytes()));
        assert_eq!(format.row_bytes(elements + 1).is_some(), elements == 1);
    }
    assert_eq!(Format::F32.row_bytes(usize::MAX), None);
    assert_eq!(Format::Q8_K.row_bytes(usize::MAX - 255), None);
}

#[test]
fn every_format_is_found_by_its_id_and_has_a_name_of_its_own() {
    for (i, format) in Format::ALL.into_iter().enumerate() {
        assert_eq!(Format::from_id(format.id()), Some(format));
        assert_eq!(format.to_string(), format.name());
        assert!(Format::ALL[..i].iter().all(|other| other.name() != format.name()), "{format}");
        assert!(Format::ALL[..i].iter().all(|other| other.id() < format.id()), "{format}");
    }
    // Ids of formats that are not ours, that were withdrawn, and that never were.
    for id in [4, 5, 9, 16, 36, 39, 255, 1 << 31, u32::MAX] {
        assert_eq!(Format::from_id(id), None);
    }
}

#[test]
fn f32_keeps_every_bit() {
    for pattern in [0, 1, 0x8000_0000, 0x7F7F_FFFF, 0xFF80_0000, 0x7FC0_1234] {
        let mut out = [0.0];
        dequantize_row(Format::F32, &u32::to_le_bytes(pattern), &mut out).unwrap();
        assert_eq!(out[0].to_bits(), pattern);
    }
}

#[test]
fn q8_k_is_step_times_quant_whatever_the_sums_say() {
    let mut bytes = random_bytes(Format::Q8_K.block_bytes(), 5);
    bytes[..4].copy_from_slice(&(-0.3_f32).to_le_bytes());
    let mut out = [f32::NAN; 256];
    dequantize_row(Format::Q8_K, &bytes, &mut out).unwrap();
    for (value, &byte) in out.iter().zip(&bytes[4..260]) {
        // A product of 24 and 8 bits is exact in f64, so this is rounded once.
        let exact = f64::from(-0.3_f32) * f64::from(byte as i8);
        let expected = exact as f32;
        assert_eq!(value.to_bits(), expected.to_bits());
    }
}
