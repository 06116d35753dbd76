//! `residual_norm` against f64.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/machine.rs"]
mod machine;
#[path = "support/random.rs"]
#[allow(dead_code, reason = "this binary uses a part of it")]
mod random;
#[path = "support/rows.rs"]
mod rows;

use std::cell::RefCell;

use gpu::product::{PanelF16, SlabF16};
use gpu::quant::f16;
use lanemap::cuda::ops::{self, Delta};
use lanemap::cuda::{Error, ViewMut};
use lanemap::gate::parity::norm::{NormProblem as Case, ROOT_EPSILON};
use machine::{Guarded, Machine, assert_close, assert_refused, on_both, say};
use random::Random;
use rows::{Form, Q8};

on_both! {
    every_element_is_within_the_contract,
    a_row_has_the_same_bits_beside_any_others,
    a_row_of_zeros_stays_zero,
    arguments_outside_the_contract_are_refused,
}

/// What a machine makes of a problem: the residual stream after it, and `out` as f32.
fn run<F: Form, M: Machine>(machine: &M, case: &Case) -> (Vec<f32>, Vec<f32>) {
    let width = case.weight.len();
    let input = |name, elements: &[f32]| Guarded::input(machine, name, elements, 16);
    let weight = input("weight", &case.weight);
    let delta = case.delta.as_deref().map(|delta| input("delta", delta));
    let post = case.post.as_deref().map(|post| input("post", post));
    let first = RefCell::new(None::<Vec<f32>>);
    let out = F::output(machine, case.rows, width, |machine, out| {
        let mut residual = Guarded::in_out(machine, "residual", &case.residual, 16);
        let delta =
            delta.as_ref().map(|rows| Delta { rows: rows.view(), post: post.as_ref().map(Guarded::view) });
        let view = residual.view_mut();
        ops::residual_norm(machine, out, view, delta, weight.view(), case.rows, ROOT_EPSILON)?;
        machine.synchronize()?;
        let residual = residual.read();
        let same = first.borrow_mut().get_or_insert_with(|| residual.clone()) == &residual;
        assert!(same, "the residual stream has the same bits in each run");
        Ok(())
    });
    (first.into_inner().unwrap(), out)
}

fn every_element_is_within_the_contract<M: Machine>(machine: &M) {
    check_elements::<f32, M>(machine);
    check_elements::<f16, M>(machine);
    check_elements::<PanelF16, M>(machine);
    check_elements::<SlabF16, M>(machine);
    check_elements::<Q8, M>(machine);
}

fn check_elements<F: Form, M: Machine>(machine: &M) {
    let seed = 31;
    let mut random = Random(seed);
    let shapes = [(1, 32, true, true), (3, 64, false, false), (2, 576, true, false), (2, 2048, true, true)];
    let more = [(1, 2080, true, true), (2, 4128, true, false), (1, 16_384, true, true)];
    let large = [(517, 4096, true, false), (130, 2560, true, true)];
    let mut worst = 0.0_f64;
    for (rows, width, delta, post) in machine.cases(&[&shapes[..], &more[..]].concat(), &large) {
        let case = Case::random(&mut random, rows, width, delta, post);
        let (residual, out) = run::<F, M>(machine, &case);
        let (expected_residual, expected) = case.reference();
        let what = format!("{rows} × {width}, {}, random seed {seed}", F::NAME);
        let sums = case.residual_bounds(&expected_residual);
        assert_close(&what, &residual, &expected_residual, |i| sums[i]);
        let bounds = case.bounds(&expected_residual, &expected);
        let found = F::assert_close(&what, &out, &expected, width, |i| bounds[i]);
        worst = worst.max(found);
    }
    say(&format!("residual_norm to {} on the {}: worst error {worst:.2e} of the bound", F::NAME, M::NAME));
}

fn a_row_has_the_same_bits_beside_any_others<M: Machine>(machine: &M) {
    check_rows::<f32, M>(machine);
    check_rows::<f16, M>(machine);
    check_rows::<PanelF16, M>(machine);
    check_rows::<SlabF16, M>(machine);
    check_rows::<Q8, M>(machine);
}

fn check_rows<F: Form, M: Machine>(machine: &M) {
    let case = Case::random(&mut Random(32), 5, 640, true, true);
    let (residual, out) = run::<F, M>(machine, &case);
    for row in 0..case.rows {
        let (alone_residual, alone) = run::<F, M>(machine, &case.row(row));
        let columns = row * 640..(row + 1) * 640;
        assert_eq!(residual[columns.clone()], alone_residual[..], "row {row}");
        assert_eq!(out[columns], alone[..], "row {row}");
    }
}

fn a_row_of_zeros_stays_zero<M: Machine>(machine: &M) {
    let mut case = Case::random(&mut Random(33), 2, 96, false, false);
    case.residual.fill(0.0);
    case.delta = Some(vec![0.0; 192]);
    case.post = Some(vec![1.0; 96]);
    let (residual, out) = run::<f32, M>(machine, &case);
    assert!(residual.iter().chain(&out).all(|&x| x == 0.0), "nothing was divided by zero");
}

fn arguments_outside_the_contract_are_refused<M: Machine>(machine: &M) {
    let input = machine.input("input", &[0.0_f32; 72]).unwrap();
    let mut residual = machine.in_out("residual", &[0.0_f32; 72]).unwrap();
    let mut out = machine.output::<f32>("out", 72).unwrap();
    let mut run = |out: ViewMut<'_, f32>, start: usize, width: usize, rows: usize| -> Result<(), Error> {
        let residual = residual.slice_mut(start..start + rows.min(2) * width);
        let delta = Delta { rows: input.slice(0..rows.min(2) * width), post: Some(input.slice(0..width)) };
        ops::residual_norm(machine, out, residual, Some(delta), input.slice(0..width), rows, 1e-6)
    };
    let name = "residual_norm_f32";
    assert_refused(
        run(out.slice_mut(0..60), 0, 30, 2),
        &format!("{name}: the width is 30, not a multiple of 4"),
    );
    assert_refused(run(out.slice_mut(0..0), 0, 0, 2), &format!("{name}: the width is 0"));
    assert_refused(
        run(out.slice_mut(0..63), 0, 32, 2),
        &format!("{name}: out has 63 elements, the shape has 64"),
    );
    let misaligned = run(out.slice_mut(0..64), 1, 32, 2).unwrap_err().to_string();
    assert!(
        misaligned.contains("residual begins at") && misaligned.contains("multiple of 16"),
        "{misaligned}"
    );
    let most = format!("{name}: rows is 2147483648, the most is 2147483647");
    assert_refused(run(out.slice_mut(0..64), 0, 32, 1 << 31), &most);
    assert!(out.read().unwrap().iter().all(|x| x.is_nan()), "nothing ran");
}
