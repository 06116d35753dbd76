//! The merge loop that byte-level BPE and SentencePiece-style tokenizing share.
//!
//! A text starts as single characters or bytes; again and again the best pair of neighbours
//! becomes one symbol, until no pair can merge. Pairs wait in a heap, symbols form a linked
//! list, and a pair whose symbols changed meanwhile is dropped when its turn comes: every merge
//! adds at most two pairs, so `n` symbols take O(n log n) steps, a run of one letter included.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

const NONE: usize = usize::MAX;

/// A stretch of the text that is one token so far (or none, where the vocabulary lacks it).
#[derive(Clone, Copy)]
pub(super) struct Symbol {
    start: usize,
    /// Bytes; 0 once the symbol has been merged into its left neighbour.
    len: usize,
    previous: usize,
    next: usize,
    pub(super) token: Option<u32>,
}

impl Symbol {
    /// The bytes that this symbol and its right neighbour `next` cover together.
    pub(super) fn joined(&self, next: &Self) -> Range<usize> {
        self.start..next.start + next.len
    }

    /// The bytes that this symbol covers.
    pub(super) fn range(&self) -> Range<usize> {
        self.start..self.start + self.len
    }
}

/// Merges `parts` (byte lengths with the token that each is by itself, in text order) and hands
/// what remains to `emit`, in text order.
///
/// `pair` says whether two neighbours merge: the priority (greatest first, of equals the
/// leftmost) and the token that they become.
pub(super) fn merge<P: Ord>(
    parts: impl Iterator<Item = (usize, Option<u32>)>,
    pair: impl Fn(&Symbol, &Symbol) -> Option<(P, u32)>,
    mut emit: impl FnMut(&Symbol),
) {
    let mut symbols: Vec<Symbol> = Vec::with_capacity(parts.size_hint().0);
    let mut start = 0;
    for (len, token) in parts {
        let index = symbols.len();
        symbols.push(Symbol { start, len, previous: index.wrapping_sub(1), next: index + 1, token });
        start += len;
    }
    let Some(last) = symbols.last_mut() else { return };
    last.next = NONE;

    let candidate = |symbols: &[Symbol], left: usize, right: usize| {
        let (l, r) = (symbols.get(left)?, symbols.get(right)?);
        pair(l, r).map(|(priority, token)| (priority, Reverse(left), right, l.len + r.len, token))
    };
    let mut heap: BinaryHeap<_> =
        (1..symbols.len()).filter_map(|right| candidate(&symbols, right - 1, right)).collect();

    while let Some((_, Reverse(left), right, len, token)) = heap.pop() {
        let (l, r) = (symbols[left], symbols[right]);
        if l.len == 0 || r.len == 0 || l.len + r.len != len {
            continue;
        }
        symbols[left] = Symbol { len, next: r.next, token: Some(token), ..l };
        symbols[right].len = 0;
        if let Some(next) = symbols.get_mut(r.next) {
            next.previous = left;
        }
        heap.extend(candidate(&symbols, l.previous, left));
        heap.extend(candidate(&symbols, left, r.next));
    }
    symbols.iter().filter(|symbol| symbol.len > 0).for_each(&mut emit);
}
