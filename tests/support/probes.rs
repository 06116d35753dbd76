//! Memory of a device between bands, filled with a value that the probe in question never answers.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::ops::Range;

use bytemuck::Pod;
use lanemap::cuda::{Buffer, Stream, ViewMut};

/// Elements before and after each view.
const BAND: usize = 1024;

/// An output between two bands that nobody may write.
pub(crate) struct Guarded<T: Pod> {
    buffer: Buffer<T>,
    inside: Range<usize>,
    fill: T,
}

impl<T: Pod> Guarded<T> {
    /// `len` elements, all `fill`, and so are the bands: a value that no kernel writes.
    pub(crate) fn new(stream: &Stream, len: usize, fill: T) -> Self {
        let buffer = Buffer::from_slice(stream.device(), &vec![fill; len + 2 * BAND]).unwrap();
        Self { buffer, inside: BAND..BAND + len, fill }
    }

    pub(crate) fn view_mut(&mut self) -> ViewMut<'_, T> {
        self.buffer.slice_mut(self.inside.clone())
    }

    /// The elements, if the bands are whole to the bit and each element was written.
    pub(crate) fn read(&self) -> Vec<T> {
        let all = self.buffer.read().unwrap();
        let untouched = |x: &T| bytemuck::bytes_of(x) == bytemuck::bytes_of(&self.fill);
        let (before, rest) = all.split_at(BAND);
        let (elements, after) = rest.split_at(self.inside.len());
        assert!(before.iter().all(untouched), "something was written before the output");
        assert!(after.iter().all(untouched), "something was written after the output");
        let missed = elements.iter().position(untouched);
        assert!(missed.is_none(), "[{}] was not written", missed.unwrap_or_default());
        elements.to_vec()
    }
}
