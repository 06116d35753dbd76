//! `unpack_f16_<format>` to the bit, behind it `matmul_f16_wgmma` against f64, and `matmul_f16_wgmma_gated` against
//! that to the bit. The device needs compute capability 9.0.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/machine.rs"]
mod machine;
#[path = "support/products.rs"]
#[allow(dead_code, reason = "this binary uses a part of it")]
mod products;
#[path = "support/random.rs"]
#[allow(dead_code, reason = "this binary uses a part of it")]
mod random;

use gpu::activation::Gate;
use gpu::product::panels::{PANEL_ROWS, interleaved, paired};
use gpu::product::{PanelF16, Panels, Rounds, WeightPanelF16};
use gpu::quant::Format;
use half::f16;
use lanemap::cuda::ops::{self, PlaneMatrix};
use lanemap::cuda::{Emulated, Error, Queue, View, ViewMut};
use lanemap::gate::parity::unpack_f16;
use machine::{Guarded, Machine, assert_refused, has_wgmma, on_both, say};
use products::{Kernels, Launch, Matrix, Rows, SPEED_SHAPES};
use random::{Random, normal};

on_both! {
    weights_are_unpacked_to_the_bit,
    two_matrices_take_turns_panel_by_panel,
    gate_and_up_in_one_product_are_two_products_and_the_gate,
    every_format_is_multiplied,
    biases_are_added_to_every_row,
    a_row_is_the_same_whatever_is_beside_it_and_whatever_the_tiles,
    arguments_outside_the_contract_are_refused,
}

/// Elements of panels.
fn panels([rows, columns]: [usize; 2]) -> usize {
    Panels::new(columns as u32).bytes(rows as u32) as usize / size_of::<PanelF16>()
}

fn weights_are_unpacked_to_the_bit<M: Machine>(machine: &M) {
    let seed = 61;
    let mut random = Random(seed);
    for format in Format::ALL {
        for shape @ [n, k] in machine.cases(&unpack_f16::shapes(format), &[unpack_f16::LARGE]) {
            let weights = Matrix::random(format, shape, &mut random);
            let planes = Guarded::input(machine, "weights", &weights.planes, 16);
            let layout = Panels::new(k as u32);
            machine.each_run(|machine, run| {
                let mut out = Guarded::<WeightPanelF16>::output(machine, "out", panels(shape), 16);
                let matrix = PlaneMatrix { bytes: planes.view(), format, rows: n, columns: k };
                ops::unpack_f16(machine, out.view_mut(), matrix).unwrap();
                machine.synchronize().unwrap();
                let elements = out.read();
                let what = format!("{format}, {n} × {k}, random seed {seed}, {run}");
                for row in 0..(n as u32).next_multiple_of(256) {
                    for column in 0..layout.padded_columns() {
                        let i = layout.element(interleaved(row), column) as usize / 2;
                        let found = elements[i].0;
                        if row as usize >= n {
                            assert_eq!(found.to_bits(), u16::MAX, "{what}: row {row} was written");
                            continue;
                        }
                        if column.is_multiple_of(64) {
                            // A row's columns in a panel are neighbours, in some order.
                            let first = i / 64 * 64;
                            machine.check_written_once(out.slice(first..first + 64));
                        }
                        let exists = (column as usize) < k;
                        let value =
                            if exists { weights.values[row as usize * k + column as usize] } else { 0.0 };
                        // Equal, so that zeros may have either sign.
                        assert!(
                            found == f16::from_f32(value),
                            "{what}: [{row}][{column}] is {found}, of {value}"
                        );
                    }
                }
            });
        }
    }
}

/// Those of gate and up.
const FORMATS: [Format; 2] = [Format::Q4_K, Format::Q6_K];

fn two_matrices_take_turns_panel_by_panel<M: Machine>(machine: &M) {
    let seed = 63;
    let mut random = Random(seed);
    for [n, k] in [[1, 256], [128, 256], [300, 512]] {
        let each = FORMATS.map(|format| {
            let weights = Matrix::random(format, [n, k], &mut random);
            let planes = Guarded::input(machine, "weights", &weights.planes, 16);
            let mut alone = machine.output::<WeightPanelF16>("alone", panels([n, k])).unwrap();
            let matrix = PlaneMatrix { bytes: planes.view(), format, rows: n, columns: k };
            ops::unpack_f16(machine, alone.view_mut(), matrix).unwrap();
            (planes, format, alone.read().unwrap())
        });
        let rows = paired(n as u32) as usize;
        let mut out = Guarded::<WeightPanelF16>::output(machine, "out", panels([rows, k]), 16);
        let of = |which: usize| {
            let (planes, format, _) = &each[which];
            PlaneMatrix { bytes: planes.view(), format: *format, rows: n, columns: k }
        };
        ops::unpack_f16_pair(machine, out.view_mut(), [of(0), of(1)]).unwrap();
        machine.synchronize().unwrap();
        let found = out.read();
        let layout = Panels::new(k as u32);
        for row in 0..rows as u32 {
            let (panel, within) = (row / PANEL_ROWS, row % PANEL_ROWS);
            let (which, own) = (panel as usize % 2, panel / 2 * PANEL_ROWS + within);
            for column in 0..k as u32 {
                // Rows that were not written are ones in both.
                let at =
                    |row| layout.element(interleaved(row), column) as usize / size_of::<WeightPanelF16>();
                let expected = each[which].2.get(at(own)).map_or(u16::MAX, |x| x.0.to_bits());
                let what = format!("{n} × {k}, random seed {seed}, row {row}, column {column}");
                assert_eq!(found[at(row)].0.to_bits(), expected, "{what}");
            }
        }
    }
}

fn gate_and_up_in_one_product_are_two_products_and_the_gate<M: Machine>(machine: &M) {
    if !has_wgmma(machine, "gate_and_up_in_one_product_are_two_products_and_the_gate") {
        return;
    }
    let seed = 79;
    let mut random = Random(seed);
    // Ragged rows, widths and k; halves alone, tiles alone, and halves behind tiles; nothing.
    let all = [[1, 8, 256], [70, 136, 96], [130, 200, 512], [100, 96, 256], [100, 304, 160], [0, 8, 256]];
    for shape @ [m, width, k] in machine.cases(&all, &[[1094, 2048, 512]]) {
        let formats = if k % 256 == 0 { FORMATS } else { [Format::Q8_0, Format::F16] };
        let rows = Wgmma::rows(m, k, &mut random).elements;
        let rows = machine.input("rows", &rows).unwrap();
        let mut input = machine.output("rows in panels", panels([m, k])).unwrap();
        ops::convert_f16_panels(machine, input.view_mut(), rows.view(), [m, k]).unwrap();
        let planes = formats.map(|format| {
            let planes = Matrix::random(format, [width, k], &mut random).planes;
            machine.input("weights", &planes).unwrap()
        });
        let of =
            |i: usize| PlaneMatrix { bytes: planes[i].view(), format: formats[i], rows: width, columns: k };
        let sums = [0, 1].map(|i| {
            let mut sums = machine.output("sums", m * width).unwrap();
            Wgmma::by_format::<M>()(machine, sums.view_mut(), rows.view(), of(i), None, m).unwrap();
            sums
        });
        let pair = panels([paired(width as u32) as usize, k]);
        let mut weights = machine.output("gate and up", pair).unwrap();
        ops::unpack_f16_pair(machine, weights.view_mut(), [of(0), of(1)]).unwrap();
        for activation in [Gate::Silu, Gate::GeluTanh] {
            let mut expected = machine.output::<PanelF16>("expected", panels([m, width])).unwrap();
            let [gate, up] = sums.each_ref().map(|sums| sums.view());
            ops::gated(machine, expected.view_mut(), gate, up, activation, [m, width, width]).unwrap();
            let expected = bits(&expected.read().unwrap());
            machine.each_run(|machine, run| {
                let mut out = Guarded::<PanelF16>::output(machine, "out", panels([m, width]), 16);
                let (rows, weights) = (input.view(), weights.view());
                ops::matmul_f16_wgmma_gated(machine, out.view_mut(), rows, weights, activation, shape)
                    .unwrap();
                machine.synchronize().unwrap();
                let what = format!("{m} × {width} × {k}, {activation:?}, random seed {seed}, {run}");
                assert!(bits(&out.read()) == expected, "{what}: other bits than of single products");
                let layout = Panels::new(width as u32);
                for row in 0..m as u32 {
                    for panel in 0..layout.across() {
                        let first =
                            layout.element(row, 64 * panel) as usize / size_of::<PanelF16>() / 64 * 64;
                        machine.check_written_once(out.slice(first..first + 64));
                    }
                }
            });
        }
    }
}

fn bits(elements: &[PanelF16]) -> Vec<u16> {
    elements.iter().map(|x| x.0.to_bits()).collect()
}

/// Rows of f32 that f16 holds exactly, which go through `convert_f16_panels`.
struct Wgmma;

/// The whole way: activations and weights to panels, then the product that `multiply` launches.
fn through_panels<M: Machine>(
    queue: &M,
    input: View<'_, f32>,
    weights: PlaneMatrix<'_>,
    m: usize,
    multiply: impl FnOnce(View<'_, PanelF16>, View<'_, WeightPanelF16>, [usize; 3]) -> Result<(), Error>,
) -> Result<(), Error> {
    let PlaneMatrix { rows: n, columns: k, .. } = weights;
    let mut rows = queue.output("rows in panels", panels([m, k]))?;
    ops::convert_f16_panels(queue, rows.view_mut(), input, [m, k])?;
    let mut unpacked = queue.output("unpacked weights", panels([n, k]))?;
    ops::unpack_f16(queue, unpacked.view_mut(), weights)?;
    multiply(rows.view(), unpacked.view(), [m, n, k])?;
    // Buffers are freed at the end.
    queue.synchronize()
}

fn by<const REGISTERS: usize, M: Machine>(
    queue: &M,
    out: ViewMut<'_, f32>,
    input: View<'_, f32>,
    weights: PlaneMatrix<'_>,
    bias: Option<View<'_, f32>>,
    m: usize,
) -> Result<(), Error> {
    through_panels(queue, input, weights, m, |input, weights, shape| {
        ops::matmul_f16_wgmma_by::<REGISTERS>(queue, out, input, weights, bias, shape)
    })
}

impl Kernels for Wgmma {
    const NAME: &'static str = "matmul_f16_wgmma";
    const TILE: [usize; 2] = [128, 256];
    const SEED: u64 = 71;
    const OUT_ALIGN: usize = 16;
    type Element = f32;

    fn rows(m: usize, k: usize, random: &mut Random) -> Rows<f32> {
        let elements: Vec<f32> = (0..m * k).map(|_| f16::from_f64(normal(random)).to_f32()).collect();
        Rows { values: elements.iter().map(|&x| f64::from(x)).collect(), elements, m }
    }

    fn by_format<M: Machine>() -> Launch<M, f32> {
        |queue, out, input, weights, bias, m| {
            through_panels(queue, input, weights, m, |input, weights, shape| {
                ops::matmul_f16_wgmma(queue, out, input, weights, bias, shape)
            })
        }
    }

    fn other_tiles<M: Machine>() -> Vec<(&'static str, Launch<M, f32>)> {
        vec![("128 × 128", by::<64, M>), ("128 × 240", by::<120, M>), ("128 × 256", by::<128, M>)]
    }
}

fn every_format_is_multiplied<M: Machine>(machine: &M) {
    if has_wgmma(machine, "every_format_is_multiplied") {
        products::every_format_is_multiplied::<Wgmma, M>(machine);
    }
}

fn biases_are_added_to_every_row<M: Machine>(machine: &M) {
    if has_wgmma(machine, "biases_are_added_to_every_row") {
        products::biases_are_added_to_every_row::<Wgmma, M>(machine);
    }
}

fn a_row_is_the_same_whatever_is_beside_it_and_whatever_the_tiles<M: Machine>(machine: &M) {
    if has_wgmma(machine, "a_row_is_the_same_whatever_is_beside_it_and_whatever_the_tiles") {
        products::a_row_is_the_same_whatever_is_beside_it_and_whatever_the_tiles::<Wgmma, M>(machine);
    }
}

#[test]
fn slabs_are_copied_and_multiplied_once() {
    let machine = &Emulated::new();
    let mut random = Random(65);
    // More slabs than stages, and with two blocks more tiles than one a block.
    for [m, n, k] in [[1, 1, 64], [129, 300, 640], [128, 513, 1024]] {
        let input = Wgmma::rows(m, k, &mut random);
        let weights = Matrix::random(Format::F16, [n, k], &mut random);
        for (columns, launch) in [
            (128, by::<64, Emulated> as Launch<Emulated, f32>),
            (240, by::<120, Emulated>),
            (256, by::<128, Emulated>),
        ] {
            let (_, counters) = products::run::<Wgmma, _>(machine, launch, &input, &weights);
            let what = format!("{m} × {n} × {k}, {columns} columns");
            let (slabs, rows) = (k.div_ceil(64) as u64, m.div_ceil(128));
            let tiles = rows * n.div_ceil(columns);
            let rounds = Rounds::new(tiles as u32, 2);
            // A tile's rows of weights come from as many panels as they lie in; for both halves of one.
            let copies = |part| {
                let first = rounds.part(part).0 as usize / rows * columns;
                ((first + columns - 1) / 128 - first / 128 + 2) as u64
            };
            assert_eq!(counters.wgmma, tiles as u64 * slabs * 4 * 8, "{what}");
            assert_eq!(counters.bulk_copies, slabs * (0..rounds.parts()).map(copies).sum::<u64>(), "{what}");
            assert_eq!(counters.barriers, u64::from(rounds.parts().min(2)), "{what}");
        }
    }
}

#[test]
fn sectors_are_written_whole() {
    let machine = &Emulated::new();
    let mut random = Random(66);
    for (format, [n, k]) in [(Format::Q4_K, [64, 512]), (Format::F32, [32, 128]), (Format::Q6_K, [33, 256])] {
        let weights = Matrix::random(format, [n, k], &mut random);
        let bytes = machine.input("weights", &weights.planes).unwrap();
        let matrix = PlaneMatrix { bytes: bytes.view(), format, rows: n, columns: k };
        let mut out = machine.output("out", panels([n, k])).unwrap();
        ops::unpack_f16(machine, out.view_mut(), matrix).unwrap();
        machine::assert_coalesced(machine.counters().global_stores, (2 * n * k) as u64);
    }
    // Runs of 16 bytes; and of eight, two of which are a chunk.
    let input = machine.in_out("input", &vec![PanelF16(f16::ONE); panels([64, 64])]).unwrap();
    let weights = machine.in_out("weights", &vec![WeightPanelF16(f16::ONE); panels([256, 64])]).unwrap();
    let mut out = machine.output("out", 64 * 128).unwrap();
    ops::matmul_f16_wgmma(machine, out.view_mut(), input.view(), weights.view(), None, [64, 128, 64])
        .unwrap();
    machine::assert_coalesced(machine.counters().global_stores, 4 * 64 * 128);
    let mut out = machine.output("out", panels([64, 128])).unwrap();
    let (input, weights) = (input.view(), weights.view());
    ops::matmul_f16_wgmma_gated(machine, out.view_mut(), input, weights, Gate::Silu, [64, 128, 64]).unwrap();
    machine::assert_coalesced(machine.counters().global_stores, 2 * 64 * 128);
}

fn arguments_outside_the_contract_are_refused<M: Machine>(machine: &M) {
    let operand = machine.output::<PanelF16>("panels", 2 * panels([256, 64]) + 8).unwrap();
    let matrix = machine.output::<WeightPanelF16>("weights", 2 * panels([256, 64]) + 8).unwrap();
    let bytes = machine.input("weights", &[0_u8; 1000]).unwrap();
    let bias = machine.input("bias", &[0.0_f32; 4]).unwrap();
    let mut out = machine.output("out", 16).unwrap();
    let one = panels([2, 64]);
    assert_eq!(one, 256 * 64);
    let mut run = |len, a, b, bias| {
        let (input, weights) = (operand.slice(a), matrix.slice(b));
        ops::matmul_f16_wgmma(machine, out.slice_mut(0..len), input, weights, bias, [2, 4, 64])
    };
    let name = "matmul_f16_wgmma_n128";
    let refused = |result, what: &str| assert_refused(result, &format!("{name}: {what}"));
    refused(run(7, 0..one, 0..one, None), "out has 7 elements, the shape has 8");
    refused(run(8, 0..one - 1, 0..one, None), "input has 16383 elements, the shape has 16384");
    refused(run(8, 0..one, 0..one + 1, None), "weights has 16385 elements, the shape has 16384");
    let short = Some(bias.slice(0..3));
    refused(run(8, 0..one, 0..one, short), "bias has 3 elements, the shape has 4");
    let at = operand.slice(1..2).start().address();
    let text = format!("input begins at {at:#x}, which is not a multiple of 16 bytes");
    refused(run(8, 1..one + 1, 0..one, None), &text);
    assert!(out.read().unwrap().iter().all(|x| x.is_nan()), "nothing ran");
    // Four neighbours are one store where rows are whole fours, and there alone.
    let mut at = |from, n| {
        let to = out.slice_mut(from..from + 2 * n);
        let (input, weights) = (operand.slice(0..one), matrix.slice(0..one));
        ops::matmul_f16_wgmma(machine, to, input, weights, None, [2, n, 64])
    };
    at(1, 3).unwrap();
    let error = at(2, 4).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{name}: out begins at ")), "{error}");
    assert!(error.ends_with(", which is not a multiple of 16 bytes"), "{error}");

    let mut unpacked = machine.output::<WeightPanelF16>("unpacked", one).unwrap();
    let mut unpack = |len, columns| {
        let matrix = PlaneMatrix { bytes: bytes.slice(0..576), format: Format::Q4_K, rows: 4, columns };
        ops::unpack_f16(machine, unpacked.slice_mut(0..len), matrix)
    };
    assert_refused(unpack(one, 256), "unpack_f16_q4_k: out has 16384 elements, the shape has 65536");
    let text = "unpack_f16_q4_k: weights has 128 columns of Q4_K, not a multiple of 256";
    assert_refused(unpack(one, 128), text);
    let of =
        |rows| PlaneMatrix { bytes: bytes.slice(0..rows * 144), format: Format::Q4_K, rows, columns: 256 };
    let text = "unpack_f16_q4_k: out has 16384 elements, the shape has 65536";
    assert_refused(ops::unpack_f16_pair(machine, unpacked.view_mut(), [of(4), of(4)]), text);
    let text = "unpack_f16_q4_k: a pair of 4 × 256 and 3 × 256";
    assert_refused(ops::unpack_f16_pair(machine, unpacked.view_mut(), [of(4), of(3)]), text);
    assert!(unpacked.read().unwrap().iter().all(|x| x.0.is_nan()), "nothing ran");

    let mut gated = machine.output::<PanelF16>("gated", one).unwrap();
    let mut run = |out, weights, width| {
        let (out, input) = (gated.slice_mut(0..out), operand.slice(0..one));
        ops::matmul_f16_wgmma_gated(machine, out, input, matrix.slice(0..weights), Gate::Silu, [2, width, 64])
    };
    let name = "matmul_f16_wgmma_gated";
    assert_refused(run(one, one, 12), &format!("{name}: the width is 12, not a multiple of 8"));
    let text = format!("{name}: out has 16383 elements, the shape has 16384");
    assert_refused(run(one - 1, one, 16), &text);
    let text = format!("{name}: weights has 16383 elements, the shape has 16384");
    assert_refused(run(one, one - 1, 16), &text);
    assert!(gated.read().unwrap().iter().all(|x| x.0.is_nan()), "nothing ran");
}

/// As `say_speed` of the other products, of each part alone.
#[test]
#[ignore = "a measurement, for a device"]
fn speed() {
    let Some(stream) = machine::stream("matmul_f16_wgmma::speed") else { return };
    if !has_wgmma(&stream, "matmul_f16_wgmma::speed") {
        return;
    }
    const DRAWN: usize = 256;
    let mut random = Random(Wgmma::SEED + 4);
    let median = |work: &mut dyn FnMut()| {
        let mut times: Vec<f32> = (0..23)
            .map(|_| {
                let start = stream.record().unwrap();
                work();
                stream.record().unwrap().milliseconds_since(&start).unwrap()
            })
            .skip(3)
            .collect();
        times.sort_unstable_by(f32::total_cmp);
        times[10]
    };
    for [m, n, k] in
        SPEED_SHAPES.into_iter().chain([[2048, 18_944, 3584], [512, 3584, 18_944], [512, 3584, 3584]])
    {
        let drawn = Wgmma::rows(DRAWN, k, &mut random).elements;
        let rows: Vec<f32> = drawn.iter().copied().cycle().take(m * k).collect();
        let rows = stream.input("rows", &rows).unwrap();
        let mut input = stream.output("rows in panels", panels([m, k])).unwrap();
        ops::convert_f16_panels(&stream, input.view_mut(), rows.view(), [m, k]).unwrap();
        let planes = Matrix::random(Format::Q4_K, [DRAWN, k], &mut random).planes;
        let row = planes.len() / DRAWN;
        let planes: Vec<u8> = planes.iter().copied().cycle().take(n * row).collect();
        let bytes = stream.input("weights", &planes).unwrap();
        let weights = PlaneMatrix { bytes: bytes.view(), format: Format::Q4_K, rows: n, columns: k };
        let mut unpacked = stream.output("unpacked", panels([n, k])).unwrap();
        let time = median(&mut || ops::unpack_f16(&stream, unpacked.view_mut(), weights).unwrap());
        let moved = (2 * n * k + n * row) as f64;
        let rate = 1e-9 * moved / f64::from(time);
        say(&format!("unpack_f16_q4_k, {n} × {k}: {time:.3} ms, {rate:.2} TB/s"));
        let mut out = stream.output("out", m * n).unwrap();
        type By = fn(
            &lanemap::cuda::Stream,
            ViewMut<'_, f32>,
            View<'_, PanelF16>,
            View<'_, WeightPanelF16>,
            Option<View<'_, f32>>,
            [usize; 3],
        ) -> Result<(), Error>;
        let all: [(&str, By); 4] = [
            ("its own", |queue, out, a, b, bias, shape| ops::matmul_f16_wgmma(queue, out, a, b, bias, shape)),
            ("128 × 256", |queue, out, a, b, bias, shape| {
                ops::matmul_f16_wgmma_by::<128>(queue, out, a, b, bias, shape)
            }),
            ("128 × 240", |queue, out, a, b, bias, shape| {
                ops::matmul_f16_wgmma_by::<120>(queue, out, a, b, bias, shape)
            }),
            ("128 × 128", |queue, out, a, b, bias, shape| {
                ops::matmul_f16_wgmma_by::<64>(queue, out, a, b, bias, shape)
            }),
        ];
        for (tiles, launch) in all {
            let time = median(&mut || {
                launch(&stream, out.view_mut(), input.view(), unpacked.view(), None, [m, n, k]).unwrap();
            });
            let rate = 2e-9 * (m * n * k) as f64 / f64::from(time);
            say(&format!(
                "matmul_f16_wgmma, tiles of {tiles}, {m} × {n} × {k}: {time:.3} ms, {rate:.0} TFLOP/s"
            ));
        }
    }
}
