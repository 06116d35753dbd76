//! The maps against numbers and rules that were written down apart from them.

use super::{ColMajor, Fragment, Layout, RowMajor, ldmatrix, mma, wgmma, wmma};

/// A map as shape and stride of each part of its two indices, the way tensor libraries write
/// layouts: `lane` is split into digits with the first shape varying fastest, `i` likewise, and each
/// digit moves by its stride in a matrix whose columns (here, of `down` rows) are contiguous.
struct Strides {
    name: &'static str,
    down: u32,
    lane: &'static [(u32, u32)],
    i: &'static [(u32, u32)],
}

/// One for each fragment, derived from the published figures and not from the code.
#[rustfmt::skip]
const STRIDES: [Strides; 21] = [
    Strides { name: "wmma-accumulator",  down: 16, lane: &[(4, 32), (8, 1)], i: &[(2, 16), (2, 8), (2, 128)] },
    Strides { name: "wmma-a-row",        down: 16, lane: &[(4, 32), (8, 1)], i: &[(2, 16), (2, 8), (2, 128), (2, 0)] },
    Strides { name: "wmma-a-col",        down: 16, lane: &[(4, 32), (8, 1)], i: &[(2, 16), (2, 8), (2, 128), (2, 0)] },
    Strides { name: "wmma-b-row",        down: 16, lane: &[(4, 2), (8, 16)], i: &[(2, 1), (2, 8), (2, 128), (2, 0)] },
    Strides { name: "wmma-b-col",        down: 16, lane: &[(4, 2), (8, 16)], i: &[(2, 1), (2, 8), (2, 128), (2, 0)] },
    Strides { name: "mma-f16-a",         down: 16, lane: &[(4, 32), (8, 1)], i: &[(2, 16), (2, 8), (2, 128)] },
    Strides { name: "mma-f16-b",         down: 16, lane: &[(4, 2), (8, 16)], i: &[(2, 1), (2, 8)] },
    Strides { name: "mma-f16-c",         down: 16, lane: &[(4, 32), (8, 1)], i: &[(2, 16), (2, 8)] },
    Strides { name: "mma-s8-a",          down: 16, lane: &[(4, 64), (8, 1)], i: &[(4, 16), (2, 8), (2, 256)] },
    Strides { name: "mma-s8-b",          down: 32, lane: &[(4, 4), (8, 32)], i: &[(4, 1), (2, 16)] },
    Strides { name: "mma-s8-c",          down: 16, lane: &[(4, 32), (8, 1)], i: &[(2, 16), (2, 8)] },
    Strides { name: "ldmatrix-x1",       down: 8,  lane: &[(4, 16), (8, 1)], i: &[(2, 8)] },
    Strides { name: "ldmatrix-x1-trans", down: 8,  lane: &[(4, 2), (8, 8)],  i: &[(2, 1)] },
    Strides { name: "ldmatrix-x2",       down: 16, lane: &[(4, 32), (8, 1)], i: &[(2, 16), (2, 8)] },
    Strides { name: "ldmatrix-x2-trans", down: 16, lane: &[(4, 2), (8, 16)], i: &[(2, 1), (2, 8)] },
    Strides { name: "ldmatrix-x4",       down: 32, lane: &[(4, 64), (8, 1)], i: &[(2, 32), (4, 8)] },
    Strides { name: "ldmatrix-x4-trans", down: 32, lane: &[(4, 2), (8, 32)], i: &[(2, 1), (4, 8)] },
    Strides { name: "wgmma-a",    down: 64, lane: &[(4, 128), (8, 1), (4, 16)], i: &[(2, 64), (2, 8), (2, 512)] },
    Strides { name: "wgmma-n8",   down: 64, lane: &[(4, 128), (8, 1), (4, 16)], i: &[(2, 64), (2, 8)] },
    Strides { name: "wgmma-n128", down: 64, lane: &[(4, 128), (8, 1), (4, 16)], i: &[(2, 64), (2, 8), (16, 512)] },
    Strides { name: "wgmma-n256", down: 64, lane: &[(4, 128), (8, 1), (4, 16)], i: &[(2, 64), (2, 8), (32, 512)] },
];

fn offset(mut index: u32, digits: &[(u32, u32)]) -> u32 {
    let mut sum = 0;
    for &(shape, stride) in digits {
        sum += index % shape * stride;
        index /= shape;
    }
    assert_eq!(index, 0, "the index is larger than its shape");
    sum
}

#[test]
fn every_element_of_every_map_is_where_the_strides_say() {
    assert_eq!(STRIDES.len(), Fragment::ALL.len());
    for (fragment, strides) in Fragment::ALL.iter().zip(&STRIDES) {
        assert_eq!(fragment.name, strides.name);
        for lane in 0..fragment.lanes {
            for i in 0..fragment.elements * fragment.copies {
                let offset = offset(lane, strides.lane) + offset(i, strides.i);
                let expected = (offset % strides.down, offset / strides.down);
                assert_eq!(fragment.element(lane, i), expected, "{} lane {lane} x[{i}]", strides.name);
            }
        }
    }
}

/// The shapes and counts, written down again: register counts are those of the instructions' operands.
#[test]
fn shapes_and_registers() {
    #[rustfmt::skip]
    let expected = [
        ("wmma-accumulator", (16, 16), 8), ("wmma-a-row", (16, 16), 8), ("wmma-a-col", (16, 16), 8),
        ("wmma-b-row", (16, 16), 8), ("wmma-b-col", (16, 16), 8),
        ("mma-f16-a", (16, 16), 4), ("mma-f16-b", (16, 8), 2), ("mma-f16-c", (16, 8), 4),
        ("mma-s8-a", (16, 32), 4), ("mma-s8-b", (32, 8), 2), ("mma-s8-c", (16, 8), 4),
        ("ldmatrix-x1", (8, 8), 1), ("ldmatrix-x1-trans", (8, 8), 1), ("ldmatrix-x2", (16, 8), 2),
        ("ldmatrix-x2-trans", (16, 8), 2), ("ldmatrix-x4", (32, 8), 4), ("ldmatrix-x4-trans", (32, 8), 4),
        ("wgmma-a", (64, 16), 4), ("wgmma-n8", (64, 8), 4), ("wgmma-n128", (64, 128), 64),
        ("wgmma-n256", (64, 256), 128),
    ];
    for (fragment, (name, tile, registers)) in Fragment::ALL.iter().zip(expected) {
        assert_eq!((fragment.name, (fragment.rows, fragment.columns)), (name, tile));
        assert_eq!(fragment.registers(), registers, "{name}");
        assert_eq!(Fragment::find(name).map(|found| found.name), Some(name));
    }
    assert!(Fragment::find("wmma").is_none());
}

/// Every register of four lanes, as the table that was read off an H200 has them: written out by hand
/// from that table, not computed by the code under test.
mod measured {
    type Places = [(u32, u32); 8];

    pub(super) const LANES: [u32; 4] = [0, 1, 4, 31];
    /// The accumulator, and A loaded by rows: (row, column) and (row, k).
    pub(super) const ACCUMULATOR_AND_A: [Places; 4] = [
        [(0, 0), (0, 1), (8, 0), (8, 1), (0, 8), (0, 9), (8, 8), (8, 9)],
        [(0, 2), (0, 3), (8, 2), (8, 3), (0, 10), (0, 11), (8, 10), (8, 11)],
        [(1, 0), (1, 1), (9, 0), (9, 1), (1, 8), (1, 9), (9, 8), (9, 9)],
        [(7, 6), (7, 7), (15, 6), (15, 7), (7, 14), (7, 15), (15, 14), (15, 15)],
    ];
    /// B, loaded by rows or by columns: (k, n).
    pub(super) const B: [Places; 4] = [
        [(0, 0), (1, 0), (8, 0), (9, 0), (0, 8), (1, 8), (8, 8), (9, 8)],
        [(2, 0), (3, 0), (10, 0), (11, 0), (2, 8), (3, 8), (10, 8), (11, 8)],
        [(0, 1), (1, 1), (8, 1), (9, 1), (0, 9), (1, 9), (8, 9), (9, 9)],
        [(6, 7), (7, 7), (14, 7), (15, 7), (6, 15), (7, 15), (14, 15), (15, 15)],
    ];
}

#[test]
fn the_maps_of_wmma_are_the_measured_ones() {
    for (n, lane) in measured::LANES.into_iter().enumerate() {
        for i in 0..8 {
            let (square, b) = (measured::ACCUMULATOR_AND_A[n][i], measured::B[n][i]);
            let i = i as u32;
            assert_eq!(wmma::accumulator(lane, i), square, "accumulator, lane {lane} x[{i}]");
            assert_eq!(wmma::a(lane, i), square, "A, lane {lane} x[{i}]");
            assert_eq!(wmma::a(lane, i + 8), square, "A's copy, lane {lane} x[{i}]");
            assert_eq!(wmma::b(lane, i), b, "B, lane {lane} x[{i}]");
            assert_eq!(wmma::b(lane, i + 8), b, "B's copy, lane {lane} x[{i}]");
            assert_eq!(wmma::accumulator_holder(square.0, square.1), (lane, i));
            assert_eq!(wmma::a_holder(square.0, square.1), (lane, i));
            assert_eq!(wmma::b_holder(b.0, b.1), (lane, i));
        }
    }
}

/// The case distinctions of the PTX ISA's fragment sections, as it states them.
#[test]
fn the_maps_of_mma_are_the_isas() {
    for lane in 0..32 {
        let (group, place) = (lane / 4, lane % 4);
        for i in 0..16 {
            let row = if (0..4).contains(&i) || (8..12).contains(&i) { group } else { group + 8 };
            let k = if i < 8 { place * 4 + i % 4 } else { place * 4 + i % 4 + 16 };
            assert_eq!(mma::a_s8(lane, i), (row, k));
        }
        for i in 0..8 {
            let row = if (0..2).contains(&i) || (4..6).contains(&i) { group } else { group + 8 };
            let k = if i < 4 { place * 2 + i % 2 } else { place * 2 + i % 2 + 8 };
            assert_eq!(mma::a_f16(lane, i), (row, k));
            let k = if i < 4 { place * 4 + i % 4 } else { place * 4 + i % 4 + 16 };
            assert_eq!(mma::b_s8(lane, i), (k, group));
        }
        for i in 0..4 {
            let k = if i < 2 { place * 2 + i % 2 } else { place * 2 + i % 2 + 8 };
            assert_eq!(mma::b_f16(lane, i), (k, group));
            assert_eq!(mma::c(lane, i), (if i < 2 { group } else { group + 8 }, place * 2 + i % 2));
        }
    }
}

/// Each accumulator of wgmma, N = 8 to 256, is one to one, and its A is: not only those in `ALL`.
#[test]
fn wgmma_covers_every_width() {
    for n in (8..=256).step_by(8) {
        let mut seen = [[false; 256]; 64];
        for lane in 0..128 {
            for i in 0..n / 2 {
                let (row, column) = wgmma::d(lane, i);
                let first = row / 16 == lane / 32 && column < n && !seen[row as usize][column as usize];
                assert!(first, "N = {n}, lane {lane}, d[{i}] = ({row}, {column})");
                seen[row as usize][column as usize] = true;
                assert_eq!(wgmma::d_holder(row, column), (lane, i));
            }
        }
    }
}

/// A lane or an index beyond the fragment wraps; nothing can fail on the device.
#[test]
fn no_argument_panics() {
    for fragment in &Fragment::ALL {
        for huge in [fragment.lanes, 1 << 16, u32::MAX] {
            _ = fragment.element(huge, huge);
            _ = fragment.holder(huge, huge);
        }
    }
}

/// The rules that loaded the measured fragments.
#[test]
fn ldmatrix_addresses_are_the_measured_ones() {
    for lane in 0..32 {
        assert_eq!(ldmatrix::a_address::<RowMajor>(lane), (lane % 16, 8 * (lane / 16)));
        let (right, down) = (8 * (lane / 16) + lane % 8, 8 * (lane / 8 % 2) + lane % 8);
        assert_eq!(ldmatrix::b_address::<ColMajor>(lane), (right, 8 * (lane / 8 % 2)));
        assert_eq!(ldmatrix::b_address::<RowMajor>(lane), (down, 8 * (lane / 16)));
    }
}

/// Loads index matrices the way `ldmatrix` describes it, address by address, and looks up what each
/// lane got.
#[test]
fn a_load_by_the_address_rules_fills_the_fragments() {
    /// An operand whose element (row, column) is 16 · row + column, as it lies in memory.
    fn memory<L: Layout>() -> [[u32; 16]; 16] {
        core::array::from_fn(|slow| {
            core::array::from_fn(|fast| {
                let (row, column) = if L::ROW_MAJOR { (slow, fast) } else { (fast, slow) };
                (16 * row + column) as u32
            })
        })
    }

    fn check<L: Layout>(address: fn(u32) -> (u32, u32), trans: bool, expected: fn(u32, u32) -> (u32, u32)) {
        let memory = memory::<L>();
        // The eight elements that each lane points at: four matrices of eight rows.
        let rows: [[u32; 8]; 32] = core::array::from_fn(|lane| {
            let (row, column) = address(lane as u32);
            core::array::from_fn(|n| memory[row as usize][column as usize + n])
        });
        for lane in 0..32 {
            for register in 0..4 {
                for half in 0..2 {
                    let (mut row, mut column) = (lane / 4, 2 * (lane % 4) + half);
                    if trans {
                        (row, column) = (column, row);
                    }
                    let loaded = rows[8 * register + row][column];
                    let (row, column) = expected(lane as u32, (2 * register + half) as u32);
                    assert_eq!(loaded, 16 * row + column, "{} lane {lane} register {register}", L::NAME);
                }
            }
        }
    }

    use ldmatrix::{a_address, a_trans, b_address, b_trans};
    check::<RowMajor>(a_address::<RowMajor>, a_trans::<RowMajor>(), wmma::a);
    check::<ColMajor>(a_address::<ColMajor>, a_trans::<ColMajor>(), wmma::a);
    check::<RowMajor>(b_address::<RowMajor>, b_trans::<RowMajor>(), wmma::b);
    check::<ColMajor>(b_address::<ColMajor>, b_trans::<ColMajor>(), wmma::b);
}
