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

use gpu::product::PanelF16;
use gpu::quant::f16;
use lanemap::cuda::ops::{self, Delta};
use lanemap::cuda::{Error, ViewMut};
use machine::{EPSILON, Guarded, Machine, assert_close, assert_refused, on_both, say};
use random::{Random, normals};
use rows::{Form, Q8};

on_both! {
    every_element_is_within_the_contract,
    a_row_has_the_same_bits_beside_any_others,
    a_row_of_zeros_stays_zero,
    arguments_outside_the_contract_are_refused,
}

const ROOT_EPSILON: f32 = 1e-6;

/// Rows with what is done to them.
struct Case {
    rows: usize,
    residual: Vec<f32>,
    delta: Option<Vec<f32>>,
    post: Option<Vec<f32>>,
    weight: Vec<f32>,
}

impl Case {
    /// Residual streams have outliers: one column is a hundred times the others.
    fn random(random: &mut Random, rows: usize, width: usize, delta: bool, post: bool) -> Self {
        let mut residual = normals(random, rows * width);
        residual.iter_mut().step_by(width).for_each(|x| *x *= 100.0);
        Self {
            rows,
            residual,
            delta: delta.then(|| normals(random, rows * width)),
            post: post.then(|| normals(random, width)),
            weight: normals(random, width),
        }
    }

    fn row(&self, row: usize) -> Self {
        let width = self.weight.len();
        let part = |rows: &[f32]| rows[row * width..(row + 1) * width].to_vec();
        Self {
            rows: 1,
            residual: part(&self.residual),
            delta: self.delta.as_deref().map(part),
            post: self.post.clone(),
            weight: self.weight.clone(),
        }
    }

    /// The residual stream after it, and `out`, in f64.
    fn reference(&self) -> (Vec<f64>, Vec<f64>) {
        let width = self.weight.len();
        let norm = |row: &[f64], weight: &[f32]| {
            let squares: f64 = row.iter().map(|x| x * x).sum();
            let root = (squares / width as f64 + f64::from(ROOT_EPSILON)).sqrt();
            row.iter().zip(weight).map(|(x, &w)| x / root * f64::from(w)).collect::<Vec<f64>>()
        };
        let wide = |row: &[f32]| row.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
        let (mut residual, mut out) = (Vec::new(), Vec::new());
        for row in 0..self.rows {
            let columns = row * width..(row + 1) * width;
            let mut sum = wide(&self.residual[columns.clone()]);
            if let Some(delta) = &self.delta {
                let delta = wide(&delta[columns]);
                let delta = self.post.as_deref().map_or(delta.clone(), |post| norm(&delta, post));
                sum.iter_mut().zip(delta).for_each(|(x, d)| *x += d);
            }
            out.extend(norm(&sum, &self.weight));
            residual.extend(sum);
        }
        (residual, out)
    }

    /// The residual stream after it, and `out` as f32.
    fn run<F: Form, M: Machine>(&self, machine: &M) -> (Vec<f32>, Vec<f32>) {
        let width = self.weight.len();
        let input = |name, elements: &[f32]| Guarded::input(machine, name, elements, 16);
        let weight = input("weight", &self.weight);
        let delta = self.delta.as_deref().map(|delta| input("delta", delta));
        let post = self.post.as_deref().map(|post| input("post", post));
        let first = RefCell::new(None::<Vec<f32>>);
        let out = F::output(machine, self.rows, width, |machine, out| {
            let mut residual = Guarded::in_out(machine, "residual", &self.residual, 16);
            let delta = delta
                .as_ref()
                .map(|rows| Delta { rows: rows.view(), post: post.as_ref().map(Guarded::view) });
            let view = residual.view_mut();
            ops::residual_norm(machine, out, view, delta, weight.view(), self.rows, ROOT_EPSILON)?;
            machine.synchronize()?;
            let residual = residual.read();
            let same = first.borrow_mut().get_or_insert_with(|| residual.clone()) == &residual;
            assert!(same, "the residual stream has the same bits in each run");
            Ok(())
        });
        (first.into_inner().unwrap(), out)
    }
}

fn every_element_is_within_the_contract<M: Machine>(machine: &M) {
    check_elements::<f32, M>(machine);
    check_elements::<f16, M>(machine);
    check_elements::<PanelF16, M>(machine);
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
        let (residual, out) = case.run::<F, M>(machine);
        let (expected_residual, expected) = case.reference();
        // As of rms_norm: a thread's squares, 5 of a butterfly, 16 of the partial sums, 2 of mean and
        // epsilon count half; the root is off by 2^-22.9; two products round.
        let steps = (4 * width.div_ceil(2048) + 23) as f64;
        let norm = (steps / 2.0 + 2.0) * EPSILON + (-22.9_f64).exp2();
        let what = format!("{rows} × {width}, {}, random seed {seed}", F::NAME);
        let before: Vec<f64> = case.residual.iter().map(|&x| f64::from(x)).collect();
        let moved =
            |i: usize| if post { norm * 1.001 * (expected_residual[i] - before[i]).abs() } else { 0.0 };
        let sum = |i: usize| moved(i) + EPSILON * expected_residual[i].abs() + f64::from(f32::MIN_POSITIVE);
        assert_close(&what, &residual, &expected_residual, sum);
        // An error of the sum goes through the norm: as it is, and by way of the root.
        let scale = |i: usize| expected[i].abs() / expected_residual[i].abs().max(1e-30);
        let f32_bound = |i: usize| {
            let through = sum(i) * scale(i) + (norm + EPSILON) * expected[i].abs();
            (through + norm * expected[i].abs()) * 1.001 + f64::from(f32::MIN_POSITIVE)
        };
        let found = F::assert_close(&what, &out, &expected, width, f32_bound);
        worst = worst.max(found);
    }
    say(&format!("residual_norm to {} on the {}: worst error {worst:.2e} of the bound", F::NAME, M::NAME));
}

fn a_row_has_the_same_bits_beside_any_others<M: Machine>(machine: &M) {
    check_rows::<f32, M>(machine);
    check_rows::<f16, M>(machine);
    check_rows::<PanelF16, M>(machine);
    check_rows::<Q8, M>(machine);
}

fn check_rows<F: Form, M: Machine>(machine: &M) {
    let case = Case::random(&mut Random(32), 5, 640, true, true);
    let (residual, out) = case.run::<F, M>(machine);
    for row in 0..case.rows {
        let (alone_residual, alone) = case.row(row).run::<F, M>(machine);
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
    let (residual, out) = case.run::<f32, M>(machine);
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
