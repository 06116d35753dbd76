//! `attn_decode` and `attn_combine` against f64.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/machine.rs"]
mod machine;
#[path = "support/random.rs"]
#[allow(dead_code, reason = "this binary uses a part of it")]
mod random;
#[path = "support/rows.rs"]
mod rows;

use gpu::attention::KvPlace;
use gpu::product::PanelF16;
use gpu::quant::f16;
use lanemap::cuda::ops::{self, AttnShape, Cache};
use lanemap::cuda::{Error, View};
use lanemap::gate::parity::steps::{LAYER, LAYERS, StepInputs as Inputs, StepProblem as Case};
use machine::{Guarded, Machine, assert_refused, on_both, say};
use random::Random;
use rows::{Form, Q8};

on_both! {
    every_element_is_within_the_contract,
    every_form_is_written,
    a_row_has_the_same_bits_in_every_launch,
    a_row_that_stands_nowhere_is_left_alone,
    arguments_outside_the_contract_are_refused,
}

/// What a machine makes of a problem.
fn run<F: Form, M: Machine>(machine: &M, case: &Case<'_>, inputs: &Inputs) -> Vec<f32> {
    run_at::<F, M>(machine, case, inputs, &case.places(), &inputs.query, case.shape())
}

/// The same at other places, of other queries and in another shape.
fn run_at<F: Form, M: Machine>(
    machine: &M,
    case: &Case<'_>,
    inputs: &Inputs,
    places: &[KvPlace],
    query: &[f16],
    shape: AttnShape,
) -> Vec<f32> {
    let input = |name: &str, elements: &[f16]| Guarded::input(machine, name, elements, 16);
    let query = input("query", query);
    let (keys, values) = (input("keys", &inputs.keys), input("values", &inputs.values));
    let places = Guarded::input(machine, "places", places, 16);
    F::output(machine, shape.rows, case.width(), |queue, out| {
        let mut workspace = Guarded::<f32>::output(machine, "workspace", shape.workspace(), 16);
        let cache = Cache { keys: keys.view(), values: values.view(), places: places.view(), layer: LAYER };
        ops::attn_decode(queue, out, query.view(), cache, workspace.view_mut(), shape)?;
        queue.synchronize()?;
        workspace.read();
        Ok(())
    })
}

const BASE: Case<'_> = Case::BASE;

fn every_element_is_within_the_contract<M: Machine>(machine: &M) {
    let cases = [
        BASE,
        Case { group: 1, kv_heads: 3, positions: &[127, 128], ..BASE },
        Case { group: 16, kv_heads: 1, positions: &[40], head_size: 128, context: 41, ..BASE },
        Case { group: 7, head_size: 80, positions: &[63, 16], ..BASE },
        Case { group: 9, head_size: 96, positions: &[64, 129], ..BASE },
        Case { group: 2, kv_heads: 1, head_size: 256, positions: &[1, 150], ..BASE },
        // A window that begins in the middle of a chunk, and one that begins with one.
        Case { window: 20, positions: &[190, 10], kv_heads: 1, ..BASE },
        Case { window: 63, positions: &[190, 191], kv_heads: 1, ..BASE },
        Case { window: 1, positions: &[128, 127], kv_heads: 1, group: 1, ..BASE },
        Case { softcap: 2.0, positions: &[77], ..BASE },
        // More chunks than the warps that combine them.
        Case { positions: &[1300], context: 1301, kv_heads: 1, group: 2, ..BASE },
    ];
    let large = [
        Case { positions: &[4095, 0, 2047], context: 4096, kv_heads: 8, head_size: 128, ..BASE },
        Case { positions: &[9000], context: 9001, head_size: 256, window: 1000, group: 4, ..BASE },
    ];
    let seed = 71;
    let mut random = Random(seed);
    let mut worst = 0.0_f64;
    for (number, case) in machine.cases(&cases, &large).into_iter().enumerate() {
        let inputs = case.random(&mut random);
        let out = run::<f32, M>(machine, &case, &inputs);
        let expected: Vec<f64> =
            (0..case.positions.len()).flat_map(|row| case.reference(&inputs, row)).collect();
        assert!(expected.iter().any(|x| x.abs() > 0.05), "case {number} is not trivial");
        let what = format!("case {number}, random seed {seed}");
        worst = worst.max(machine::assert_close(&what, &out, &expected, |_| 1e-4));
    }
    say(&format!("attn_decode on the {}: worst error {worst:.2e}", M::NAME));
}

fn every_form_is_written<M: Machine>(machine: &M) {
    let case = Case { head_size: 80, group: 6, positions: &[33, 7], context: 40, ..BASE };
    let inputs = case.random(&mut Random(72));
    let expected: Vec<f64> = (0..2).flat_map(|row| case.reference(&inputs, row)).collect();
    let close = |found: Vec<f32>, f: &dyn Fn(&[f32])| f(&found);
    close(run::<f16, M>(machine, &case, &inputs), &|found| {
        f16::assert_close("f16", found, &expected, case.width(), |_| 1e-4);
    });
    close(run::<PanelF16, M>(machine, &case, &inputs), &|found| {
        PanelF16::assert_close("f16 in panels", found, &expected, case.width(), |_| 1e-4);
    });
    close(run::<Q8, M>(machine, &case, &inputs), &|found| {
        Q8::assert_close("q8", found, &expected, case.width(), |_| 1e-4);
    });
}

fn a_row_has_the_same_bits_in_every_launch<M: Machine>(machine: &M) {
    let case = Case { positions: &[150, 3, 128], window: 140, ..BASE };
    let inputs = case.random(&mut Random(73));
    let together = run::<f32, M>(machine, &case, &inputs);
    let places = case.places();
    for row in 0..3 {
        let columns = row * case.width()..(row + 1) * case.width();
        // Alone, and in a grid for another context.
        for context in [200, 1000] {
            let shape = AttnShape { rows: 1, context, ..case.shape() };
            let query = &inputs.query[columns.clone()];
            let alone = run_at::<f32, M>(machine, &case, &inputs, &places[row..=row], query, shape);
            assert_eq!(alone[..], together[columns.clone()], "row {row}, a context of {context}");
        }
    }
}

fn a_row_that_stands_nowhere_is_left_alone<M: Machine>(machine: &M) {
    let case = Case { positions: &[5, 5, 5, 5, 5], context: 16, kv_heads: 1, group: 1, ..BASE };
    let inputs = case.random(&mut Random(74));
    let input = |name: &str, elements: &[f16]| machine.input(name, elements).unwrap();
    let (query, keys, values) =
        (input("query", &inputs.query), input("keys", &inputs.keys), input("values", &inputs.values));
    let mut places = case.places();
    places[0].position = 16;
    places[1].context = u32::MAX >> 1;
    places[2].start += 4;
    places[3].start = u64::MAX - 7;
    let places = machine.input("places", &places).unwrap();
    let mut out = machine.output::<f32>("out", 5 * 64).unwrap();
    let mut workspace = machine.output("workspace", case.shape().workspace()).unwrap();
    let cache = Cache { keys: keys.view(), values: values.view(), places: places.view(), layer: LAYER };
    ops::attn_decode(machine, out.view_mut(), query.view(), cache, workspace.view_mut(), case.shape())
        .unwrap();
    machine.synchronize().unwrap();
    let out = out.read().unwrap();
    assert!(out[..256].iter().all(|x| x.is_nan()), "four stand nowhere");
    machine::assert_close("the fifth", &out[256..], &case.reference(&inputs, 4), |_| 1e-4);
}

fn arguments_outside_the_contract_are_refused<M: Machine>(machine: &M) {
    let case = Case { positions: &[5], context: 16, kv_heads: 1, group: 2, ..BASE };
    let cached = machine.input("cache", &[f16::ZERO; LAYERS * 16 * 64]).unwrap();
    let query = machine.input("query", &[f16::ZERO; 128]).unwrap();
    let places = machine.input("places", &case.places()).unwrap();
    let mut out = machine.output::<f32>("out", 128).unwrap();
    let mut workspace = machine.output::<f32>("workspace", 132).unwrap();
    let mut run = |keys: View<'_, f16>, work: usize, shape: AttnShape| -> Result<(), Error> {
        let cache = Cache { keys, values: cached.view(), places: places.view(), layer: 0 };
        ops::attn_decode(machine, out.view_mut(), query.view(), cache, workspace.slice_mut(0..work), shape)
    };
    let shape = case.shape();
    let name = "attn_combine_f32";
    let short = format!("{name}: values has 2048 elements, the shape has 2047");
    assert_refused(run(cached.slice(0..2047), 132, shape), &short);
    let work = format!("{name}: the workspace has 131 elements, the shape has 132");
    assert_refused(run(cached.view(), 131, shape), &work);
    let group = AttnShape { group: 17, ..shape };
    let most = format!("{name}: query heads of a KV head is 17, the most is 16");
    assert_refused(run(cached.view(), 132, group), &most);
    let size = AttnShape { head_size: 32, group: 4, ..shape };
    let sizes = format!("{name}: the head size is 32, not 64, 80, 96, 128 or 256");
    let work = 4 * 34;
    let mut larger = machine.output::<f32>("workspace", work).unwrap();
    let cache = Cache { keys: cached.view(), values: cached.view(), places: places.view(), layer: 0 };
    let refused = ops::attn_decode(machine, out.view_mut(), query.view(), cache, larger.view_mut(), size);
    assert_refused(refused, &sizes);
    assert!(out.read().unwrap().iter().all(|x| x.is_nan()), "nothing ran");
}
