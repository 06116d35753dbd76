//! The tokens that may still be chosen.

use super::SamplingError;

/// A token and its logit. Logits are f64 here, so that no finite option can overflow them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Candidate {
    pub(super) id: u32,
    pub(super) logit: f64,
}

/// Candidates in ascending order of their ids, never empty once loaded.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    list: Vec<Candidate>,
}

/// The first chunk that is sorted when only the most likely candidates matter.
const FIRST_SORTED: usize = 128;

impl Candidates {
    /// Starts again with every token whose logit, bias included, is above minus infinity.
    pub(super) fn load(&mut self, logits: &[f32], bias: &[(u32, f32)]) -> Result<(), SamplingError> {
        if let Some(token) = logits.iter().position(|&x| x.is_nan() || x == f32::INFINITY) {
            return Err(SamplingError::BadLogit { token, value: logits[token] });
        }
        self.list.clear();
        // Adding zero turns -0 into +0, so that the two tie as they should.
        self.list.extend((0..).zip(logits).map(|(id, &x)| Candidate { id, logit: f64::from(x) + 0.0 }));
        for &(id, bias) in bias {
            if let Some(candidate) = self.find(id) {
                candidate.logit += f64::from(bias);
            }
        }
        self.list.retain(|candidate| candidate.logit > f64::NEG_INFINITY);
        if self.list.is_empty() { Err(SamplingError::NoCandidate) } else { Ok(()) }
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Candidate> {
        self.list.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Candidate> {
        self.list.iter_mut()
    }

    pub(super) fn find(&mut self, id: u32) -> Option<&mut Candidate> {
        let at = self.list.binary_search_by_key(&id, |candidate| candidate.id).ok()?;
        self.list.get_mut(at)
    }

    /// The most likely candidate; among equals the one with the lowest id.
    pub(super) fn best(&self) -> Candidate {
        self.list
            .iter()
            .copied()
            .fold(self.list[0], |best, candidate| if candidate.logit > best.logit { candidate } else { best })
    }

    /// Drops the candidates for which `keep` is false. The best one always stays (llama.cpp's
    /// `min_keep` of 1), unless `keep` holds for others.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Candidate) -> bool) {
        let best = self.best();
        self.list.retain(|candidate| keep(candidate));
        if self.list.is_empty() {
            self.list.push(best);
        }
    }

    /// Keeps the candidates whose positions in the list `positions` names.
    pub(super) fn keep_positions(&mut self, mut positions: Vec<usize>) {
        positions.sort_unstable();
        for (to, &from) in positions.iter().enumerate() {
            self.list[to] = self.list[from];
        }
        self.list.truncate(positions.len());
    }

    /// Softmax weights, the best candidate's being 1, in the list's order, and their sum.
    fn weights(&self) -> (Vec<f64>, f64) {
        let max = self.best().logit;
        let weights: Vec<f64> = self.list.iter().map(|c| libm::exp(c.logit - max)).collect();
        let sum = weights.iter().sum();
        (weights, sum)
    }

    /// Softmax probabilities, in the list's order.
    pub(super) fn probabilities(&self) -> Vec<f64> {
        let (mut weights, sum) = self.weights();
        weights.iter_mut().for_each(|weight| *weight /= sum);
        weights
    }

    /// Positions in the list, in ascending order of `key` (equal keys: lowest id first), up
    /// to and with the first for which `last` is true; all of them if there is none. Sorts
    /// in growing chunks, since the end usually comes after a few dozen of many thousand.
    pub(super) fn ascending_until(
        &self,
        key: impl Fn(usize) -> f64,
        mut last: impl FnMut(usize) -> bool,
    ) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.list.len()).collect();
        let compare = |a: &usize, b: &usize| key(*a).total_cmp(&key(*b)).then(a.cmp(b));
        let mut done = 0;
        let mut chunk = FIRST_SORTED;
        while done < order.len() {
            let rest = &mut order[done..];
            let size = chunk.min(rest.len());
            if size < rest.len() {
                rest.select_nth_unstable_by(size, compare);
            }
            rest[..size].sort_unstable_by(compare);
            if let Some(end) = rest[..size].iter().position(|&at| last(at)) {
                order.truncate(done + end + 1);
                return order;
            }
            done += size;
            chunk = chunk.saturating_mul(8);
        }
        order
    }

    /// Keeps the `count` most likely candidates; among equals the lowest ids.
    pub(super) fn keep_largest(&mut self, count: usize) {
        if count == 0 || count >= self.list.len() {
            return;
        }
        let mut order: Vec<usize> = (0..self.list.len()).collect();
        let list = &self.list;
        order.select_nth_unstable_by(count - 1, |&a, &b| {
            list[b].logit.total_cmp(&list[a].logit).then(a.cmp(&b))
        });
        order.truncate(count);
        self.keep_positions(order);
    }

    /// The candidate at which the running sum of probabilities passes `uniform`, a number in
    /// `[0, 1)`.
    pub(super) fn draw(&self, uniform: f64) -> u32 {
        let (weights, total) = self.weights();
        let target = uniform * total;
        let mut sum = 0.0;
        let passed = weights.iter().position(|weight| {
            sum += weight;
            sum > target
        });
        // Rounding can leave the target equal to the total, which nothing passes.
        passed.map_or_else(|| self.best().id, |at| self.list[at].id)
    }
}
