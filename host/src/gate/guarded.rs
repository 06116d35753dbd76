//! Buffers with guard bands, and no better aligned than a kernel asks for.

use std::ops::Range;

use bytemuck::Pod;

use crate::cuda::{Buffer, Error, Owner, Queue, View, ViewMut};

/// A part of a buffer with guard bands around it, and no better aligned than a kernel asks for.
///
/// The bands' bytes are 0xff, which is NaN in every float format: what reads them shows in the
/// output, what writes them shows in [`read`](Self::read). The emulator finds both itself, so there
/// is only as much of a band there as the alignment needs.
#[derive(Debug)]
pub struct Guarded<T: Pod> {
    buffer: Buffer<T>,
    inside: Range<usize>,
}

/// What was wrong with the elements of a [`Guarded`].
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// They could not be read.
    #[error(transparent)]
    Device(#[from] Error),
    /// A kernel has written outside of its output.
    #[error("something was written {0} the output")]
    Band(&'static str),
}

impl<T: Pod> Guarded<T> {
    /// Elements that kernels only read, from a multiple of `align` bytes on that is none of
    /// `2 * align`.
    ///
    /// # Errors
    /// Those of [`Queue::input`].
    ///
    /// # Panics
    /// Unless `align` is a power of two up to 256 and whole elements.
    pub fn input(queue: &impl Queue, name: &str, elements: &[T], align: usize) -> Result<Self, Error> {
        Self::with(queue, elements, align, |all| queue.input(name, all))
    }

    /// As [`input`](Self::input), for kernels to read and write.
    ///
    /// # Errors
    /// Those of [`Queue::in_out`].
    ///
    /// # Panics
    /// As [`input`](Self::input).
    pub fn in_out(queue: &impl Queue, name: &str, elements: &[T], align: usize) -> Result<Self, Error> {
        Self::with(queue, elements, align, |all| queue.in_out(name, all))
    }

    /// `len` elements that kernels write before they read them, aligned as an
    /// [`input`](Self::input). Their bytes are 0xff.
    ///
    /// # Errors
    /// Those of [`Queue::output`].
    ///
    /// # Panics
    /// As [`input`](Self::input).
    pub fn output(queue: &impl Queue, name: &str, len: usize, align: usize) -> Result<Self, Error> {
        let (before, after) = Self::bands(queue, align);
        let buffer = queue.output(name, before + len + after)?;
        Ok(Self { buffer, inside: before..before + len })
    }

    fn with(
        queue: &impl Queue,
        elements: &[T],
        align: usize,
        upload: impl FnOnce(&[T]) -> Result<Buffer<T>, Error>,
    ) -> Result<Self, Error> {
        let (before, after) = Self::bands(queue, align);
        let band = |len| vec![ones::<T>(); len];
        let buffer = upload(&[&band(before), elements, &band(after)].concat())?;
        Ok(Self { buffer, inside: before..before + elements.len() })
    }

    /// Elements of the bands before and after.
    fn bands(queue: &impl Queue, align: usize) -> (usize, usize) {
        assert!(align.is_power_of_two() && align.is_multiple_of(size_of::<T>()) && align <= 256, "{align}");
        let bytes = match queue.owner() {
            // A buffer ends where its elements end: an access past them is a fault.
            Owner::Emulator(_) => 0,
            // More than any tile is wide, and a multiple of every alignment.
            _ => 16 << 10,
        };
        ((bytes + align) / size_of::<T>(), bytes / size_of::<T>())
    }

    /// The elements, to read.
    #[must_use]
    pub fn view(&self) -> View<'_, T> {
        self.buffer.slice(self.inside.clone())
    }

    /// A part of [`view`](Self::view).
    ///
    /// # Panics
    /// If it is not within the buffer.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> View<'_, T> {
        self.buffer.slice(self.inside.start + range.start..self.inside.start + range.end)
    }

    /// The elements, to write.
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        self.buffer.slice_mut(self.inside.clone())
    }

    /// The elements, if both bands are whole to the bit.
    ///
    /// # Errors
    /// [`GuardError`].
    pub fn read(&self) -> Result<Vec<T>, GuardError> {
        let all = self.buffer.read()?;
        let (before, rest) = all.split_at(self.inside.start);
        let (elements, after) = rest.split_at(self.inside.len());
        let whole = |band: &[T]| bytemuck::cast_slice::<T, u8>(band).iter().all(|&byte| byte == 0xff);
        if !whole(before) {
            return Err(GuardError::Band("before"));
        }
        if !whole(after) {
            return Err(GuardError::Band("after"));
        }
        Ok(elements.to_vec())
    }
}

/// A value whose bytes are all 0xff.
fn ones<T: Pod>() -> T {
    bytemuck::pod_read_unaligned(&vec![0xff; size_of::<T>()])
}
