//! `residual_norm` against f64.

use std::marker::PhantomData;

use gpu::product::{PanelF16, SlabF16};
use half::f16;

use super::Parity;
use super::trial::{Red, Trial, read};
use crate::cuda::Queue;
use crate::cuda::ops::{self, Delta};
use crate::gate::bounds::{EPSILON, norm_error};
use crate::gate::form::{Form, Q8};
use crate::gate::guarded::Guarded;
use crate::gate::random::{Random, normals};

/// Added to the mean of squares.
pub const ROOT_EPSILON: f32 = 1e-6;

/// Rows with what is done to them.
#[derive(Clone, Debug)]
pub struct NormProblem {
    /// How many.
    pub rows: usize,
    /// The residual stream, `rows × width`.
    pub residual: Vec<f32>,
    /// What is added to it.
    pub delta: Option<Vec<f32>>,
    /// The weight of the norm that this goes through first.
    pub post: Option<Vec<f32>>,
    /// The norm's weight, `width`.
    pub weight: Vec<f32>,
}

impl NormProblem {
    /// Residual streams have outliers: one column is a hundred times the others.
    pub fn random(random: &mut Random, rows: usize, width: usize, delta: bool, post: bool) -> Self {
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

    /// A row alone.
    #[must_use]
    pub fn row(&self, row: usize) -> Self {
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
    #[must_use]
    pub fn reference(&self) -> (Vec<f64>, Vec<f64>) {
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

    /// By how much each element of the residual stream may be off that should become `expected`.
    #[must_use]
    pub fn residual_bounds(&self, expected: &[f64]) -> Vec<f64> {
        let norm = norm_error(self.weight.len());
        let bound = |(&expected, &before): (&f64, &f32)| {
            let moved =
                if self.post.is_some() { norm * 1.001 * (expected - f64::from(before)).abs() } else { 0.0 };
            moved + EPSILON * expected.abs() + f64::from(f32::MIN_POSITIVE)
        };
        expected.iter().zip(&self.residual).map(bound).collect()
    }

    /// The same of `out` as f32. An error of the sum goes through the norm: as it is, and by way of the root.
    #[must_use]
    pub fn bounds(&self, residual: &[f64], expected: &[f64]) -> Vec<f64> {
        let norm = norm_error(self.weight.len());
        let sums = self.residual_bounds(residual);
        let bound = |((&expected, &residual), sum): ((&f64, &f64), &f64)| {
            let scale = expected.abs() / residual.abs().max(1e-30);
            let through = sum * scale + (norm + EPSILON) * expected.abs();
            (through + norm * expected.abs()) * 1.001 + f64::from(f32::MIN_POSITIVE)
        };
        expected.iter().zip(residual).zip(&sums).map(bound).collect()
    }
}

/// The kernel for a form of rows.
#[derive(Clone, Copy, Debug)]
pub struct Norm<F>(PhantomData<F>);

impl<F: Form> Parity for Norm<F> {
    const FAMILY: &'static str = "residual_norm";

    fn all() -> Vec<Self> {
        vec![Self(PhantomData)]
    }

    fn kernel(&self) -> String {
        format!("residual_norm_{}", F::NAME)
    }

    fn play<Q: Queue>(&self, trial: &mut Trial<'_, Q>) -> Result<(), Red> {
        let quick = [(1, 32, true, true), (3, 64, false, false), (2, 576, true, false)];
        let more = [(2, 2048, true, true), (1, 2080, true, true), (2, 4128, true, false)];
        let large = [(1, 16_384, true, true), (517, 4096, true, false), (130, 2560, true, true)];
        for (rows, width, delta, post) in trial.cases(&quick, &more, &large) {
            let case = format!("{rows} × {width}, added {delta}, through a norm {post}");
            let problem = NormProblem::random(&mut trial.random, rows, width, delta, post);
            let weight = trial.input("weight", &problem.weight, 16)?;
            let optional = |name, part: &Option<Vec<f32>>| {
                part.as_deref().map(|part| trial.input(name, part, 16)).transpose()
            };
            let (delta, post) = (optional("delta", &problem.delta)?, optional("post", &problem.post)?);
            let mut after = Vec::new();
            let out = trial.output(&case, F::elements(rows, width), 16, |queue, out| {
                let mut residual = Guarded::in_out(queue, "residual", &problem.residual, 16)?;
                let delta = delta
                    .as_ref()
                    .map(|rows| Delta { rows: rows.view(), post: post.as_ref().map(Guarded::view) });
                let (out, view) = (F::target(out), residual.view_mut());
                ops::residual_norm(queue, out, view, delta, weight.view(), rows, ROOT_EPSILON)?;
                queue.synchronize()?;
                after = read(&case, &residual)?;
                Ok(())
            })?;
            let (residual, expected) = problem.reference();
            let bounds = problem.residual_bounds(&residual);
            trial.compare(&format!("{case}, the residual stream"), &after, &residual, |i| bounds[i])?;
            let found = F::values(&out, [rows, width]).map_err(|what| Red::wrong(&case, what))?;
            let bounds = problem.bounds(&residual, &expected);
            let rounding = |i: usize| F::rounding(&expected[i / width * width..][..width], i % width);
            trial.compare(&case, &found, &expected, |i| bounds[i] + rounding(i))?;
        }
        Ok(())
    }
}

/// The kernel that writes f32.
pub type NormF32 = Norm<f32>;
/// The kernel that writes f16.
pub type NormF16 = Norm<f16>;
/// The kernel that writes f16 in panels.
pub type NormPanels = Norm<PanelF16>;
/// The kernel that writes f16 in slabs.
pub type NormSlabs = Norm<SlabF16>;
/// The kernel that writes 8-bit quants.
pub type NormQ8 = Norm<Q8>;
