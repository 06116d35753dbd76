//! Repetition, frequency and presence penalties over the last tokens.

use std::collections::{HashMap, VecDeque};

use super::SamplingOptions;
use super::candidates::Candidates;

/// The last tokens of a sequence, prompt and answer alike, with a count for each.
#[derive(Debug)]
pub(super) struct History {
    window: usize,
    tokens: VecDeque<u32>,
    counts: HashMap<u32, u32>,
}

impl History {
    /// Remembers the last `window` tokens; 0 remembers none.
    pub(super) fn new(window: usize) -> Self {
        Self { window, tokens: VecDeque::new(), counts: HashMap::new() }
    }

    pub(super) fn push(&mut self, token: u32) {
        if self.window == 0 {
            return;
        }
        if self.tokens.len() == self.window
            && let Some(oldest) = self.tokens.pop_front()
            && let Some(count) = self.counts.get_mut(&oldest)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&oldest);
            }
        }
        self.tokens.push_back(token);
        *self.counts.entry(token).or_insert(0) += 1;
    }
}

/// Lowers the logit of each candidate that occurs in the window: once by the repetition
/// penalty, however often it occurs, and by the two additive ones. A logit at or below zero
/// is multiplied where a positive one is divided, so that both get less likely.
pub(super) fn apply(options: &SamplingOptions, history: &History, candidates: &mut Candidates) {
    let repeat = f64::from(options.repeat_penalty);
    for (&token, &count) in &history.counts {
        if let Some(candidate) = candidates.find(token) {
            let logit = candidate.logit;
            let scaled = if logit <= 0.0 { logit * repeat } else { logit / repeat };
            candidate.logit = scaled
                - f64::from(count) * f64::from(options.frequency_penalty)
                - f64::from(options.presence_penalty);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_forgets_the_oldest() {
        let mut history = History::new(3);
        for token in [7, 7, 8, 9, 7] {
            history.push(token);
        }
        assert_eq!(history.counts, HashMap::from([(8, 1), (9, 1), (7, 1)]));
        history.push(7);
        assert_eq!(history.counts, HashMap::from([(9, 1), (7, 2)]));
    }

    #[test]
    fn a_window_of_zero_remembers_nothing() {
        let mut history = History::new(0);
        history.push(1);
        assert!(history.counts.is_empty());
    }
}
