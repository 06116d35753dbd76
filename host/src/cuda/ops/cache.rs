//! KV caches, as launchers are given them.

use gpu::attention::{KvCache, KvPlace};
use gpu::simt::{Contract, Global};

use super::{Check, Checked};
use crate::cuda::{Error, View};

/// One layer of the KV caches of some sequences, and where in them the rows of a launch stand. `V` is a
/// view of f16, for a kernel to read or to write.
#[derive(Clone, Copy, Debug)]
pub struct Cache<'a, V> {
    /// The keys of all sequences.
    pub keys: V,
    /// Their values, as many elements.
    pub values: V,
    /// Where each row stands.
    pub places: View<'a, KvPlace>,
    /// The layer.
    pub layer: usize,
}

impl<K: Contract> Check<K> {
    /// A cache for `rows` rows whose positions have `width` elements each.
    pub(super) fn cache<V: Checked>(
        &self,
        cache: &Cache<'_, V>,
        rows: u32,
        width: u64,
    ) -> Result<KvCache, Error> {
        let most = KvCache::LIMIT - 1;
        let layer = self.count(cache.layer, "the layer", most)?;
        let width = self.count(width as usize, "the cache's width", most)?;
        let elements = cache.keys.elements();
        self.view(&cache.keys, "keys", elements, 16)?;
        self.view(&cache.values, "values", elements, 16)?;
        self.view(&cache.places, "places", rows.into(), 8)?;
        Ok(KvCache {
            keys: Global::from_address(cache.keys.address()),
            values: Global::from_address(cache.values.address()),
            elements,
            places: cache.places.start(),
            layer,
            width,
        })
    }
}
