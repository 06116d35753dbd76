//! `rope_kv` against f64.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/machine.rs"]
mod machine;
#[path = "support/random.rs"]
#[allow(dead_code, reason = "this binary uses a part of it")]
mod random;

use gpu::attention::KvPlace;
use gpu::quant::f16;
use lanemap::cuda::ops::{self, Cache, Heads, RopeShape};
use lanemap::cuda::{Error, View};
use lanemap::gate::parity::rope::{RopeCase, RopePart, rope_error};
use lanemap::model::{Rope, RopeOrder, RopeScaling};
use machine::{Guarded, Machine, assert_refused, on_both, say};
use random::Random;

on_both! {
    every_element_is_within_the_contract,
    a_row_that_stands_nowhere_is_left_alone,
    arguments_outside_the_contract_are_refused,
}

const CONTEXT: usize = 40;
const LAYERS: usize = 2;

fn check(found: f16, (expected, size): (f64, f64), what: impl Fn() -> String) {
    let bound = rope_error(expected, size);
    let error = (found.to_f64() - expected).abs();
    assert!(error <= bound, "{}: {found}, expected {expected}, off by {error}, at most {bound}", what());
}

fn every_element_is_within_the_contract<M: Machine>(machine: &M) {
    let first_layer = RopeCase {
        shape: RopeShape { rows: 1, heads: 3, kv_heads: 1, ..RopeCase::HALVES },
        gap: 0,
        bias: true,
        norm: false,
    };
    let of_the_gate = [RopeCase::QUICK, RopeCase::MORE].concat();
    let cases: Vec<_> = of_the_gate.into_iter().map(|case| (case, 1)).chain([(first_layer, 0)]).collect();
    let large = [(RopeCase::LARGE, 1)];
    let seed = 51;
    let mut random = Random(seed);
    for (number, (case, layer_index)) in machine.cases(&cases, &large).into_iter().enumerate() {
        let shape = case.shape;
        let scaling = RopeScaling::None;
        let rope = Rope { dims: 2 * shape.pairs, base: 10_000.0, order: shape.order, scaling };
        let angles: Vec<[f32; 2]> =
            rope.table(None).angles(0..CONTEXT).into_iter().map(<[f32; 2]>::from).collect();
        let heads = [(shape.heads, true), (shape.kv_heads, true), (shape.kv_heads, false)];
        let parts = heads.map(|(heads, turns)| {
            RopePart::random(&mut random, &shape, heads, case.gap, [case.bias, case.norm, turns])
        });
        // Two sequences: the first has the first row alone.
        let position = |row: usize| if row == 0 { 37 } else { 2 + row };
        let width = shape.kv_heads * shape.head_size;
        let layer = CONTEXT * width;

        let mut first: Option<Vec<u16>> = None;
        machine.each_run(|machine, run| {
            let [mut keys, mut values] =
                ["keys", "values"].map(|name| Guarded::<f16>::output(machine, name, 2 * LAYERS * layer, 16));
            let places: Vec<KvPlace> = (0..shape.rows)
                .map(|row| KvPlace {
                    start: (row.min(1) * LAYERS * layer) as u64,
                    position: position(row) as u32,
                    context: CONTEXT as u32,
                })
                .collect();
            let places = Guarded::input(machine, "places", &places, 16);
            let angles = Guarded::input(machine, "angles", &angles, 8);
            let input = |name: &str, elements: &[f32]| Guarded::input(machine, name, elements, 4);
            let inputs = parts.each_ref().map(|part| {
                let optional = |name, part: &Option<Vec<f32>>| part.as_deref().map(|part| input(name, part));
                (input("rows", &part.rows), optional("bias", &part.bias), optional("norm", &part.norm))
            });
            let mut given = parts.iter().zip(&inputs).map(|(part, (rows, bias, norm))| Heads {
                rows: rows.view(),
                stride: part.stride,
                bias: bias.as_ref().map(Guarded::view),
                norm: norm.as_ref().map(Guarded::view),
            });
            let given = std::array::from_fn(|_| given.next().unwrap());
            let mut out =
                Guarded::<f16>::output(machine, "out", shape.rows * shape.heads * shape.head_size, 2);
            let cache = Cache {
                keys: keys.view_mut(),
                values: values.view_mut(),
                places: places.view(),
                layer: layer_index,
            };
            ops::rope_kv(machine, out.view_mut(), given, cache, angles.view(), shape)
                .unwrap_or_else(|error| panic!("{run}: {error}"));
            machine.synchronize().unwrap();
            machine.check_written_once(out.view());
            let mut all: Vec<u16> = out.read().iter().map(|x| x.to_bits()).collect();
            all.extend([keys, values].iter().flat_map(Guarded::read).map(f16::to_bits));
            assert!(first.get_or_insert_with(|| all.clone()) == &all, "{run}: other bits");
        });

        let all: Vec<f16> = first.unwrap().into_iter().map(f16::from_bits).collect();
        let (out, caches) = all.split_at(shape.rows * shape.heads * shape.head_size);
        let mut written = 0;
        for row in 0..shape.rows {
            let angles = &angles[position(row) * shape.pairs..][..shape.pairs];
            let cache = |which: usize| {
                let start = ((2 * which + row.min(1)) * LAYERS + layer_index) * layer;
                &caches[start + position(row) * width..][..width]
            };
            let queries = &out[row * shape.heads * shape.head_size..][..shape.heads * shape.head_size];
            for (part, (found, name)) in
                parts.iter().zip([(queries, "query"), (cache(0), "key"), (cache(1), "value")])
            {
                let expected = part.reference(row, &shape, angles);
                assert_eq!(expected.len(), found.len());
                for (i, (&found, expected)) in found.iter().zip(expected).enumerate() {
                    check(found, expected, || format!("case {number}, seed {seed}, row {row}, {name} {i}"));
                }
            }
            written += 2 * width;
        }
        let untouched = caches.iter().filter(|x| x.to_bits() == u16::MAX).count();
        assert_eq!(untouched, caches.len() - written, "nothing else of the caches was written");
    }
    say(&format!("rope_kv on the {}: within one rounding to f16 and 32 to f32", M::NAME));
}

fn a_row_that_stands_nowhere_is_left_alone<M: Machine>(machine: &M) {
    let shape = RopeShape {
        rows: 6,
        heads: 1,
        kv_heads: 1,
        head_size: 8,
        pairs: 4,
        order: RopeOrder::Halves,
        epsilon: 1e-6,
    };
    let input = machine.input("input", &[1.0_f32; 48]).unwrap();
    // Ten positions, two layers of a context of 16 at most.
    let angles = machine.input("angles", &[[1.0_f32, 0.0]; 40]).unwrap();
    let places = [(0, 16, 16), (0, 10, 16), (8, 3, 16), (4, 3, 8), (1 << 40, 3, 16), (0, 9, 16)]
        .map(|(start, position, context)| KvPlace { start, position, context });
    let places = machine.input("places", &places).unwrap();
    let [mut keys, mut values] = ["keys", "values"].map(|name| machine.output::<f16>(name, 256).unwrap());
    let mut out = machine.output::<f16>("out", 48).unwrap();
    let heads = || Heads { rows: input.view(), stride: 8, bias: None, norm: None };
    let (keys_mut, values_mut) = (keys.view_mut(), values.view_mut());
    let cache = Cache { keys: keys_mut, values: values_mut, places: places.view(), layer: 1 };
    let parts = [heads(), heads(), heads()];
    ops::rope_kv(machine, out.view_mut(), parts, cache, angles.view(), shape).unwrap();
    machine.synchronize().unwrap();
    let out = out.read().unwrap();
    assert!(out[..40].iter().all(|x| x.is_nan()), "the first five stand nowhere");
    assert!(out[40..].iter().all(|x| x.to_f32() == 1.0), "the last one stands at the last angle");
    for cache in [keys, values] {
        let written = cache.read().unwrap().iter().filter(|x| !x.is_nan()).count();
        assert_eq!(written, 8, "one position of one head");
    }
}

fn arguments_outside_the_contract_are_refused<M: Machine>(machine: &M) {
    let input = machine.input("input", &[0.0_f32; 1024]).unwrap();
    let angles = machine.input("angles", &[[1.0_f32, 0.0]; 64]).unwrap();
    let nowhere: KvPlace = bytemuck::Zeroable::zeroed();
    let places = machine.input("places", &[nowhere; 2]).unwrap();
    let [mut keys, mut values] = ["keys", "values"].map(|name| machine.output::<f16>(name, 64).unwrap());
    let mut out = machine.output::<f16>("out", 256).unwrap();
    let shape = RopeShape {
        rows: 2,
        heads: 2,
        kv_heads: 1,
        head_size: 64,
        pairs: 32,
        order: RopeOrder::Halves,
        epsilon: 1e-6,
    };
    let mut run = |[query, len]: [usize; 2], norm: Option<View<'_, f32>>, shape| -> Result<(), Error> {
        let heads =
            |len: usize, stride: usize| Heads { rows: input.slice(0..len), stride, bias: None, norm: None };
        let parts = [heads(query, 128), heads(128, 64), Heads { norm, ..heads(128, 64) }];
        let (keys, values) = (keys.view_mut(), values.view_mut());
        let cache = Cache { keys, values, places: places.view(), layer: 0 };
        ops::rope_kv(machine, out.slice_mut(0..len), parts, cache, angles.view(), shape)
    };
    assert_refused(run([255, 256], None, shape), "rope_kv: query has 255 elements, the shape has 256");
    assert_refused(run([256; 2], Some(input.slice(0..64)), shape), "rope_kv: values have no norm");
    let odd = RopeShape { head_size: 63, ..shape };
    assert_refused(run([256; 2], None, odd), "rope_kv: the head size is 63, which is odd");
    let large = RopeShape { head_size: 258, ..shape };
    assert_refused(run([256; 2], None, large), "rope_kv: the head size is 258, the most is 256");
    let pairs = RopeShape { pairs: 33, ..shape };
    assert_refused(run([256; 2], None, pairs), "rope_kv: pairs is 33, the most is 32");
    let rows = RopeShape { rows: 1, ..shape };
    assert_refused(run([256; 2], None, rows), "rope_kv: query has 256 elements, the shape has 128");
    assert_refused(run([256, 255], None, shape), "rope_kv: out has 255 elements, the shape has 256");
    assert!(out.read().unwrap().iter().all(|x| x.is_nan()), "nothing ran");
}
