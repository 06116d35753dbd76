//! Calls of words, as small numbers.

use core::panic::Location;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::vec;
use std::vec::Vec;

/// The calls of words that a launch has met.
#[derive(Debug, Default)]
pub(super) struct Sites(Mutex<Vec<&'static Location<'static>>>);

/// One block's way to [`Sites`]: it asks for a call once and then knows its number.
#[derive(Debug)]
pub(super) struct SiteCache {
    known: HashMap<usize, u16>,
    /// The answers given last, by the address of the location.
    recent: Vec<(usize, u16)>,
}

/// Entries of [`SiteCache::recent`].
const RECENT: usize = 64;

impl Sites {
    /// The number of a call. Past 65,535 calls all share the last number.
    fn number(&self, location: &'static Location<'static>) -> u16 {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.iter().position(|&known| core::ptr::eq(known, location));
        let index = known.unwrap_or_else(|| {
            all.push(location);
            all.len() - 1
        });
        u16::try_from(index).unwrap_or(u16::MAX)
    }

    /// The call of a number.
    pub(super) fn location(&self, site: u16) -> Option<&'static Location<'static>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(usize::from(site)).copied()
    }
}

impl SiteCache {
    pub(super) fn new() -> Self {
        Self { known: HashMap::new(), recent: vec![(0, 0); RECENT] }
    }

    /// The number of a call.
    #[inline]
    pub(super) fn number(&mut self, location: &'static Location<'static>, all: &Sites) -> u16 {
        let key = core::ptr::from_ref(location).addr();
        // Locations lie 24 bytes apart.
        let slot = key / 8 % RECENT;
        if self.recent[slot].0 != key {
            let number = *self.known.entry(key).or_insert_with(|| all.number(location));
            self.recent[slot] = (key, number);
        }
        self.recent[slot].1
    }
}
