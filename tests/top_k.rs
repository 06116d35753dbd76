//! `top_k` against a plain sort.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/machine.rs"]
mod machine;
#[path = "support/random.rs"]
#[allow(dead_code, reason = "this binary uses a part of it")]
mod random;

use std::cmp::Ordering;

use lanemap::cuda::Error;
use lanemap::cuda::ops::{self, top_k_workspace};
use machine::{Guarded, Machine, assert_close, assert_refused, counted, on_both};
use random::{Random, normals};

on_both! {
    the_largest_come_in_order,
    a_softcap_bends_values_and_no_order,
    arguments_outside_the_contract_are_refused,
}

/// Tokens and values.
fn run<M: Machine>(
    machine: &M,
    logits: &[f32],
    [rows, vocabulary, k]: [usize; 3],
    softcap: Option<f32>,
) -> (Vec<u32>, Vec<f32>) {
    let logits = Guarded::input(machine, "logits", logits, 4);
    let values = std::cell::RefCell::new(Vec::new());
    let tokens = counted(machine, rows * k, 4, |queue, tokens| {
        let mut out = Guarded::<f32>::output(queue, "values", rows * k, 4);
        let mut workspace =
            Guarded::<u64>::output(queue, "workspace", top_k_workspace(rows, vocabulary, k), 8);
        let (outs, shape) = ((tokens, out.view_mut()), [rows, vocabulary, k]);
        ops::top_k(queue, outs, logits.view(), workspace.view_mut(), softcap, shape)?;
        queue.synchronize()?;
        workspace.read();
        *values.borrow_mut() = out.read();
        Ok(())
    })
    .0;
    (tokens, values.into_inner())
}

/// Largest first, NaN last, then by token.
fn sorted(logits: &[f32]) -> Vec<u32> {
    let mut tokens: Vec<u32> = (0..logits.len() as u32).collect();
    tokens.sort_by(|&a, &b| {
        let (x, y) = (logits[a as usize], logits[b as usize]);
        match (x.is_nan(), y.is_nan()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            _ => y.partial_cmp(&x).unwrap(),
        }
    });
    tokens
}

fn the_largest_come_in_order<M: Machine>(machine: &M) {
    let seed = 91;
    let mut random = Random(seed);
    // One round, two, and three.
    let shapes = [(1, 1, 1), (2, 100, 64), (1, 128, 128), (2, 2048, 5), (2, 2049, 40), (1, 40_000, 128)];
    for (rows, vocabulary, k) in machine.cases(&shapes, &[(3, 262_144, 128), (1, 151_936, 40)]) {
        let mut logits = normals(&mut random, rows * vocabulary);
        // Many are equal, some are no numbers.
        logits.iter_mut().for_each(|x| *x = (*x * 64.0).round() / 64.0);
        for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0] {
            let at = random.below(logits.len());
            logits[at] = special;
        }
        let (tokens, values) = run(machine, &logits, [rows, vocabulary, k], None);
        for row in 0..rows {
            let logits = &logits[row * vocabulary..(row + 1) * vocabulary];
            let what = format!("{rows} × {vocabulary}, {k}, random seed {seed}, row {row}");
            let (tokens, values) = (&tokens[row * k..(row + 1) * k], &values[row * k..(row + 1) * k]);
            assert_eq!(tokens, &sorted(logits)[..k], "{what}");
            for (&token, &value) in tokens.iter().zip(values) {
                let logit = logits[token as usize];
                assert!(value == logit || value.is_nan() && logit.is_nan(), "{what}: {token}, {value}");
            }
        }
    }
}

fn a_softcap_bends_values_and_no_order<M: Machine>(machine: &M) {
    let cap = 30.0;
    // Far beyond the cap all are as large as it, and in order still.
    let logits: Vec<f32> = (0..300).map(|i| (i * 37 % 300) as f32 * 3.0 - 450.0).collect();
    let (tokens, values) = run(machine, &logits, [1, 300, 128], Some(cap));
    assert_eq!(tokens, sorted(&logits)[..128]);
    let expected: Vec<f64> = tokens
        .iter()
        .map(|&token| f64::from(cap) * (f64::from(logits[token as usize]) / f64::from(cap)).tanh())
        .collect();
    // tanh by way of a power and a reciprocal, which are off by a few units in the last place of 1.
    assert_close("softcap", &values, &expected, |_| 30.0 * 1e-6);
}

fn arguments_outside_the_contract_are_refused<M: Machine>(machine: &M) {
    let logits = machine.input("logits", &vec![0.0_f32; 3000]).unwrap();
    let mut tokens = machine.output::<u32>("tokens", 10).unwrap();
    let mut values = machine.output::<f32>("values", 10).unwrap();
    let mut workspace = machine.output("workspace", 20).unwrap();
    let mut run = |work: usize, shape| -> Result<(), Error> {
        let outs = (tokens.view_mut(), values.view_mut());
        ops::top_k(machine, outs, logits.view(), workspace.slice_mut(0..work), None, shape)
    };
    assert_refused(run(20, [1, 3000, 129]), "top_k: k is 129, the most is 128");
    assert_refused(run(20, [1, 9, 10]), "top_k: k is 10, the most is 9");
    assert_refused(run(19, [1, 3000, 10]), "top_k: the workspace has 19 elements, the shape has 20");
    assert_refused(run(20, [1, 3000, 9]), "top_k: tokens has 10 elements, the shape has 9");
    assert_refused(run(20, [1, 3001, 10]), "top_k: logits has 3000 elements, the shape has 3001");
    assert_eq!(tokens.read().unwrap(), [u32::MAX; 10], "nothing ran");
}
