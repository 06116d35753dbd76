//! Tokens by id and by text.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

use super::vocab::TokenKind;

/// The tokens of a vocabulary, found by id or by text.
///
/// The table holds ids only; a quarter of a million texts are stored once.
pub(super) struct Lexicon {
    tokens: Vec<Vec<u8>>,
    kinds: Vec<TokenKind>,
    by_text: HashTable<u32>,
    hasher: RandomState,
    longest: usize,
}

impl Lexicon {
    /// `kinds` is as long as `tokens`. Where two tokens have one text, the lower id is found.
    pub(super) fn new(tokens: Vec<Vec<u8>>, kinds: Vec<TokenKind>) -> Self {
        let hasher = RandomState::new();
        let mut by_text: HashTable<u32> = HashTable::with_capacity(tokens.len());
        let hash = |id: &u32| hasher.hash_one(tokens[*id as usize].as_slice());
        for (id, text) in (0u32..).zip(&tokens) {
            by_text
                .entry(hasher.hash_one(text.as_slice()), |&other| tokens[other as usize] == *text, hash)
                .or_insert(id);
        }
        let longest = tokens.iter().map(Vec::len).max().unwrap_or(0);
        Self { tokens, kinds, by_text, hasher, longest }
    }

    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    pub(super) fn text(&self, id: u32) -> Option<&[u8]> {
        self.tokens.get(id as usize).map(Vec::as_slice)
    }

    pub(super) fn kind(&self, id: u32) -> Option<TokenKind> {
        self.kinds.get(id as usize).copied()
    }

    pub(super) fn set_kind(&mut self, id: u32, kind: TokenKind) {
        if let Some(place) = self.kinds.get_mut(id as usize) {
            *place = kind;
        }
    }

    /// The token with this text, whatever its kind.
    pub(super) fn find(&self, text: &[u8]) -> Option<u32> {
        if text.len() > self.longest {
            return None;
        }
        self.by_text.find(self.hasher.hash_one(text), |&id| self.tokens[id as usize] == text).copied()
    }

    /// The token with this text, if text may be merged into it (see [`TokenKind::is_text`]).
    pub(super) fn find_text(&self, text: &[u8]) -> Option<u32> {
        self.find(text).filter(|&id| self.kinds[id as usize].is_text())
    }

    /// Ids with their texts and kinds.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &[u8], TokenKind)> {
        (0u32..).zip(&self.tokens).zip(&self.kinds).map(|((id, text), &kind)| (id, text.as_slice(), kind))
    }
}
