//! Memory that has lost its owner while a graph still holds its address.
//!
//! A graph's nodes are raw addresses, and nothing says which buffers they belong to. But every
//! one of them belonged to a buffer that was there when the graph was captured. So memory that is
//! older than the end of a capture is not freed before the graph is gone; younger memory is
//! freed at once.

use std::collections::BTreeSet;

/// What is to be freed when the graphs that may hold its address are gone.
#[derive(Debug)]
pub(super) struct Retained<M> {
    /// Counts finished captures.
    now: u64,
    /// Captures in progress.
    captures: u32,
    /// When the capture of each living graph ended.
    graphs: BTreeSet<u64>,
    /// Each with the time when it was allocated.
    memory: Vec<(u64, M)>,
}

impl<M> Default for Retained<M> {
    fn default() -> Self {
        Self { now: 0, captures: 0, graphs: BTreeSet::new(), memory: Vec::new() }
    }
}

impl<M> Retained<M> {
    /// The time, for memory that is about to be allocated.
    pub(super) const fn now(&self) -> u64 {
        self.now
    }

    /// A capture begins.
    pub(super) const fn begin(&mut self) {
        self.captures += 1;
    }

    /// A capture has become a graph, which from now on goes by the returned number.
    pub(super) fn finish(&mut self) -> u64 {
        let graph = self.now;
        self.captures -= 1;
        self.graphs.insert(graph);
        self.now += 1;
        graph
    }

    /// A capture has come to nothing. Returns what is to be freed.
    pub(super) fn abandon(&mut self) -> Vec<M> {
        self.captures -= 1;
        self.unused()
    }

    /// A graph is gone. Returns what is to be freed.
    pub(super) fn forget(&mut self, graph: u64) -> Vec<M> {
        self.graphs.remove(&graph);
        self.unused()
    }

    /// The owner of memory is gone. Returns it if it is to be freed.
    pub(super) fn retain(&mut self, born: u64, memory: M) -> Option<M> {
        if self.is_used(born) {
            self.memory.push((born, memory));
            return None;
        }
        Some(memory)
    }

    /// Whether a graph may hold the address of memory that was allocated then.
    fn is_used(&self, born: u64) -> bool {
        self.captures > 0 || self.graphs.last().is_some_and(|&ended| born <= ended)
    }

    fn unused(&mut self) -> Vec<M> {
        let (used, unused) =
            std::mem::take(&mut self.memory).into_iter().partition(|&(born, _)| self.is_used(born));
        self.memory = used;
        unused.into_iter().map(|(_, memory): (u64, M)| memory).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_graphs_memory_is_freed_at_once() {
        let mut retained = Retained::default();
        assert_eq!(retained.retain(retained.now(), "a"), Some("a"));
    }

    #[test]
    fn memory_older_than_a_graph_outlives_it_and_younger_memory_does_not() {
        let mut retained = Retained::default();
        let before = retained.now();
        retained.begin();
        let during = retained.now();
        assert_eq!(retained.retain(before, "dropped during the capture"), None);
        let graph = retained.finish();
        let after = retained.now();
        assert_eq!(retained.retain(after, "younger"), Some("younger"));
        assert_eq!(retained.retain(during, "allocated during the capture"), None);
        assert_eq!(retained.retain(before, "older"), None);
        assert_eq!(
            retained.forget(graph),
            ["dropped during the capture", "allocated during the capture", "older"]
        );
        assert_eq!(retained.retain(before, "older"), Some("older"));
    }

    /// Two captures on two threads, the second begun last and ended first.
    #[test]
    fn a_capture_in_progress_may_note_down_anything() {
        let mut retained = Retained::default();
        retained.begin();
        retained.begin();
        let early = retained.finish();
        let born = retained.now();
        assert_eq!(retained.retain(born, "born between the ends"), None);
        let late = retained.finish();
        assert!(early < late);
        assert!(retained.forget(early).is_empty());
        assert_eq!(retained.forget(late), ["born between the ends"]);
    }

    #[test]
    fn a_failed_capture_keeps_nothing() {
        let mut retained = Retained::default();
        retained.begin();
        let graph = retained.finish();
        retained.begin();
        assert_eq!(retained.retain(retained.now(), "younger than the graph"), None);
        assert_eq!(retained.retain(graph, "older"), None);
        assert_eq!(retained.abandon(), ["younger than the graph"]);
        assert_eq!(retained.forget(graph), ["older"]);
    }
}
