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
use gpu::product::{PanelF16, SlabF16};
use gpu::quant::f16;
use lanemap::cuda::ops::{self, AttnShape, Cache, Heads};
use lanemap::cuda::{Emulated, Error, Queue, View, ViewMut};
use lanemap::gate::parity::rope::RopePart;
use lanemap::gate::parity::steps::{self, LAYER, LAYERS, StepInputs as Inputs, StepProblem as Case};
use lanemap::model::{Rope, RopeOrder, RopeScaling};
use machine::{Guarded, Machine, assert_refused, on_both, say};
use random::Random;
use rows::{Form, Q8};

on_both! {
    every_element_is_within_the_contract,
    every_form_is_written,
    a_row_has_the_same_bits_in_every_launch,
    heads_have_the_bits_of_rope_kv,
    a_row_that_stands_nowhere_is_left_alone,
    arguments_outside_the_contract_are_refused,
}

/// What a machine makes of a problem.
fn run<F: Form, M: Machine>(machine: &M, case: &Case<'_>, inputs: &Inputs) -> Vec<f32> {
    let after = case.caches_after(inputs);
    run_at::<F, M>(machine, case, inputs, &case.places(), case.shape(), |caches| {
        for (found, expected) in caches.iter().zip(&after) {
            let wrong = found.iter().zip(expected).position(|(&a, &b)| !steps::same(a, b));
            assert_eq!(wrong, None, "an element of a cache");
        }
    })
}

/// The same at other places and in another shape; `check` is shown the caches then.
fn run_at<F: Form, M: Machine>(
    machine: &M,
    case: &Case<'_>,
    inputs: &Inputs,
    places: &[KvPlace],
    shape: AttnShape,
    check: impl Fn([Vec<f16>; 2]),
) -> Vec<f32> {
    let heads = inputs.upload(machine).unwrap();
    let angles = Guarded::input(machine, "angles", &inputs.angles, 8);
    let places = Guarded::input(machine, "places", places, 16);
    F::output(machine, shape.rows, case.width(), |queue, out| {
        let mut workspace = Guarded::<f32>::output(machine, "workspace", shape.workspace(), 16);
        let cached = |name, cache: &[f16]| Guarded::in_out(machine, name, cache, 16);
        let mut caches = [cached("keys", &inputs.keys), cached("values", &inputs.values)];
        let [keys, values] = caches.each_mut().map(Guarded::view_mut);
        let cache = Cache { keys, values, places: places.view(), layer: LAYER };
        ops::attn_decode(queue, out, heads.heads(), cache, angles.view(), workspace.view_mut(), shape)?;
        queue.synchronize()?;
        workspace.read();
        check(caches.each_ref().map(Guarded::read));
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
        Case { softcap: 2.0, positions: &[77], order: RopeOrder::Interleaved, ..BASE },
        Case { pairs: 32, bias: false, positions: &[63, 64], ..BASE },
        Case { pairs: 0, positions: &[17], kv_heads: 1, ..BASE },
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
    close(run::<SlabF16, M>(machine, &case, &inputs), &|found| {
        SlabF16::assert_close("f16 in slabs", found, &expected, case.width(), |_| 1e-4);
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
    let stride = inputs.heads.each_ref().map(|part| part.stride);
    for row in 0..3 {
        let mut own = inputs.clone();
        for (part, stride) in own.heads.iter_mut().zip(stride) {
            part.rows = part.rows[row * stride..][..part.heads * case.head_size].to_vec();
        }
        let columns = row * case.width()..(row + 1) * case.width();
        // Alone, and in a grid for another context.
        for context in [200, 1000] {
            let shape = AttnShape { rows: 1, context, ..case.shape() };
            let alone = run_at::<f32, M>(machine, &case, &own, &places[row..=row], shape, |_| ());
            assert_eq!(alone[..], together[columns.clone()], "row {row}, a context of {context}");
        }
    }
}

/// With norms and angles of any size, too: what `rope_kv` makes of heads, given to the kernel as it is, has
/// the same result.
fn heads_have_the_bits_of_rope_kv<M: Machine>(machine: &M) {
    let seed = 75;
    let mut random = Random(seed);
    let cases = [
        Case { group: 7, positions: &[129, 5], pairs: 32, ..BASE },
        Case {
            group: 3,
            kv_heads: 1,
            head_size: 80,
            positions: &[40],
            order: RopeOrder::Interleaved,
            ..BASE
        },
        Case { group: 2, kv_heads: 1, head_size: 256, positions: &[70], pairs: 128, context: 80, ..BASE },
    ];
    for (number, case) in cases.into_iter().enumerate() {
        let (shape, what) = (case.shape(), format!("case {number}, seed {seed}"));
        let mut inputs = case.random(&mut random);
        let (rope, scaling) = (shape.rope(), RopeScaling::None);
        let table = Rope { dims: 2 * case.pairs, base: 10_000.0, order: case.order, scaling }.table(None);
        inputs.angles = table.angles(0..case.context).into_iter().map(<[f32; 2]>::from).collect();
        inputs.heads = [(rope.heads, true), (rope.kv_heads, true), (rope.kv_heads, false)]
            .map(|(heads, turns)| RopePart::random(&mut random, &rope, heads, 1, [true, true, turns]));

        let places = Guarded::input(machine, "places", &case.places(), 16);
        let [mut keys, mut values] =
            [&inputs.keys, &inputs.values].map(|cache| Guarded::in_out(machine, "cache", cache, 16));
        let mut turned = machine.output::<f16>("turned", shape.rows * case.width()).unwrap();
        let heads = inputs.upload(machine).unwrap();
        let angles = Guarded::input(machine, "angles", &inputs.angles, 8);
        let (keys_mut, values_mut) = (keys.view_mut(), values.view_mut());
        let cache = Cache { keys: keys_mut, values: values_mut, places: places.view(), layer: LAYER };
        ops::rope_kv(machine, turned.view_mut(), heads.heads(), cache, angles.view(), rope).unwrap();
        machine.synchronize().unwrap();
        let (turned, caches) = (turned.read().unwrap(), [keys.read(), values.read()]);

        // As it is: no pairs, no biases, no norms.
        let plain_case = Case { pairs: 0, ..case };
        let of_cache = |cache: &[f16]| {
            let width = case.kv_heads * case.head_size;
            let rows = case.positions.iter().enumerate().flat_map(|(row, position)| {
                let start = ((row * LAYERS + LAYER) * case.context + position) * width;
                cache[start..start + width].iter().map(|x| x.to_f32()).collect::<Vec<_>>()
            });
            rows.collect::<Vec<f32>>()
        };
        let part = |rows: Vec<f32>, heads: usize, turns| {
            let (stride, bias, norm) = (heads * case.head_size, None, None);
            RopePart { heads, stride, rows, bias, norm, turns }
        };
        let plain = Inputs {
            heads: [
                part(turned.iter().map(|x| x.to_f32()).collect(), rope.heads, true),
                part(of_cache(&caches[0]), rope.kv_heads, true),
                part(of_cache(&caches[1]), rope.kv_heads, false),
            ],
            angles: Vec::new(),
            ..inputs.clone()
        };
        let bits = |found: &[Vec<f16>; 2]| {
            found.each_ref().map(|cache| cache.iter().map(|x| x.to_bits()).collect::<Vec<_>>())
        };
        let expected = bits(&caches);
        let check = |found: [Vec<f16>; 2]| assert!(bits(&found) == expected, "{what}: the caches");
        let together = run_at::<f32, M>(machine, &case, &inputs, &case.places(), shape, check);
        let apart = run_at::<f32, M>(machine, &case, &plain, &case.places(), plain_case.shape(), check);
        assert!(together.iter().any(|x| x.abs() > 0.05), "{what} is not trivial");
        let bits = |found: &[f32]| found.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&together), bits(&apart), "{what}");
    }
}

fn a_row_that_stands_nowhere_is_left_alone<M: Machine>(machine: &M) {
    let case = Case { positions: &[5, 5, 5, 5, 5, 5], context: 16, kv_heads: 1, group: 1, ..BASE };
    let inputs = case.random(&mut Random(74));
    let heads = inputs.upload(machine).unwrap();
    let [mut keys, mut values] =
        [&inputs.keys, &inputs.values].map(|cache| Guarded::in_out(machine, "cache", cache, 16));
    // Ten positions have angles.
    let angles = machine.input("angles", &inputs.angles[..10 * case.pairs]).unwrap();
    let mut places = case.places();
    places[0].position = 16;
    places[1].context = u32::MAX >> 1;
    places[2].start += 4;
    places[3].start = u64::MAX - 7;
    places[4].position = 10;
    let places = machine.input("places", &places).unwrap();
    let mut out = machine.output::<f32>("out", 6 * 64).unwrap();
    let mut workspace = machine.output("workspace", case.shape().workspace()).unwrap();
    let (keys_mut, values_mut) = (keys.view_mut(), values.view_mut());
    let cache = Cache { keys: keys_mut, values: values_mut, places: places.view(), layer: LAYER };
    let (out_mut, workspace) = (out.view_mut(), workspace.view_mut());
    ops::attn_decode(machine, out_mut, heads.heads(), cache, angles.view(), workspace, case.shape()).unwrap();
    machine.synchronize().unwrap();
    let out = out.read().unwrap();
    assert!(out[..320].iter().all(|x| x.is_nan()), "five stand nowhere");
    machine::assert_close("the sixth", &out[320..], &case.reference(&inputs, 5), |_| 1e-4);
    for (before, after) in [(&inputs.keys, keys.read()), (&inputs.values, values.read())] {
        let written = before.iter().zip(after).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
        assert_eq!(written, 64, "one position of one head");
    }
}

/// A step behind one whose keys nobody has waited for, and one whose place a launch has moved on.
#[test]
fn what_is_read_before_the_wait_is_settled() {
    let machine = &Emulated::new();
    let case = Case { positions: &[5], context: 16, kv_heads: 1, group: 1, ..BASE };
    let inputs = case.random(&mut Random(75));
    let heads = inputs.upload(machine).unwrap();
    let mut keys = machine.in_out("keys", &inputs.keys).unwrap();
    let mut values = machine.in_out("values", &inputs.values).unwrap();
    let angles = machine.input("angles", &inputs.angles).unwrap();
    let mut places = machine.in_out("places", &case.places()).unwrap();
    let mut out = machine.output::<f32>("out", case.width()).unwrap();
    let mut workspace = machine.output("workspace", case.shape().workspace()).unwrap();
    let mut step = |places: View<'_, KvPlace>| {
        let cache = Cache { keys: keys.view_mut(), values: values.view_mut(), places, layer: LAYER };
        let (out, workspace) = (out.view_mut(), workspace.view_mut());
        ops::attn_decode(machine, out, heads.heads(), cache, angles.view(), workspace, case.shape())
    };
    let too_early = |result: Result<(), Error>, buffers: &[&str]| {
        let text = result.unwrap_err().to_string();
        let named = buffers.iter().any(|name| text.contains(&format!("of buffer `{name}`")));
        assert!(named && text.contains("too early: reads") && text.contains("may still write"), "{text}");
    };
    let next = machine.input("places", &[KvPlace { position: 6, ..case.places()[0] }]).unwrap();
    step(places.view()).unwrap();
    // Whichever lane comes first.
    too_early(step(next.view()), &["keys", "values"]);
    machine.synchronize().unwrap();
    step(next.view()).unwrap();

    machine.synchronize().unwrap();
    let logits = machine.input("logits", &[1.0_f32, 2.0]).unwrap();
    let mut tokens = machine.output("tokens", 1).unwrap();
    let mut best = machine.output("best", ops::argmax_workspace(1, 2)).unwrap();
    let (tokens, best) = (tokens.view_mut(), best.view_mut());
    ops::argmax(machine, tokens, logits.view(), best, Some(places.view_mut()), [1, 2]).unwrap();
    too_early(step(places.view()), &["places"]);
    machine.synchronize().unwrap();
    step(places.view()).unwrap();
}

fn arguments_outside_the_contract_are_refused<M: Machine>(machine: &M) {
    let case = Case { positions: &[5], context: 16, kv_heads: 1, group: 2, pairs: 0, ..BASE };
    let mut cached = [(); 2].map(|()| machine.output::<f16>("cache", LAYERS * 16 * 64).unwrap());
    let rows = machine.input("rows", &[0.0_f32; 128]).unwrap();
    let angles = machine.input("angles", &[[1.0_f32, 0.0]; 1]).unwrap();
    let places = machine.input("places", &case.places()).unwrap();
    let mut out = machine.output::<f32>("out", 128).unwrap();
    let mut workspace = machine.output::<f32>("workspace", 4 * 34).unwrap();
    let mut run = |values: usize, work: usize, shape: AttnShape| -> Result<(), Error> {
        let [keys, cached] = &mut cached;
        let values: ViewMut<'_, f16> = cached.slice_mut(0..values);
        let cache = Cache { keys: keys.view_mut(), values, places: places.view(), layer: 0 };
        let heads = |stride: usize| {
            let rows: View<'_, f32> = rows.slice(0..stride.min(128));
            Heads { rows, stride, bias: None, norm: None }
        };
        let (query, new) = (shape.group * shape.head_size, shape.head_size);
        let heads = [heads(query), heads(new), heads(new)];
        let workspace = workspace.slice_mut(0..work);
        ops::attn_decode(machine, out.view_mut(), heads, cache, angles.slice(0..0), workspace, shape)
    };
    let shape = case.shape();
    let name = "attn_combine_f32";
    let short = format!("{name}: values has 2047 elements, the shape has 2048");
    assert_refused(run(2047, 132, shape), &short);
    let work = format!("{name}: the workspace has 131 elements, the shape has 132");
    assert_refused(run(2048, 131, shape), &work);
    let group = AttnShape { group: 17, ..shape };
    let most = format!("{name}: query heads of a KV head is 17, the most is 16");
    assert_refused(run(2048, 132, group), &most);
    let few = AttnShape { group: 3, ..shape };
    let query = format!("{name}: query has 128 elements, the shape has 192");
    assert_refused(run(2048, 132, few), &query);
    let size = AttnShape { head_size: 32, group: 4, ..shape };
    let sizes = format!("{name}: the head size is 32, not 64, 80, 96, 128 or 256");
    assert_refused(run(2048, 4 * 34, size), &sizes);
    let long = AttnShape { context: 65_535 * 128 + 1, ..shape };
    let chunks = format!("{name}: chunks of 128 positions is 65536, the most is 65535");
    assert_refused(run(2048, 132, long), &chunks);
    assert!(out.read().unwrap().iter().all(|x| x.is_nan()), "nothing ran");
}
