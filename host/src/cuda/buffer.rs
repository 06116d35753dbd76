//! Memory with a length, of a device or of an emulator, and the parts of it that kernels are given.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use bytemuck::Pod;
use gpu::simt::Global;

use super::error::Error;

/// Whose memory something lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The device with this index.
    Device(u32),
    /// The emulator with this number: each has one of its own.
    Emulator(u64),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(index) => write!(f, "cuda:{index}"),
            Self::Emulator(number) => write!(f, "emulator {number}"),
        }
    }
}

/// The bytes of a buffer, freed when they are dropped; parts of one allocation when the last of them is.
pub(super) trait Bytes: fmt::Debug + Send + Sync {
    /// Whose they are.
    fn owner(&self) -> Owner;
    /// Where they begin, as a kernel sees it.
    fn address(&self) -> u64;
    /// Replaces them, as many as there are and not none.
    fn write(&mut self, bytes: &[u8]) -> Result<(), Error>;
    /// All of them, as many as there are and not none.
    fn read(&self, into: &mut [u8]) -> Result<(), Error>;
}

/// What buffers are aligned to, in bytes.
pub(super) const ALIGN: usize = 256;

/// Elements in the memory of a device or an emulator, aligned to 256 bytes.
///
/// Freeing it waits for what still uses it. Memory that a [`Graph`](super::Graph) may have noted
/// down is freed when the graph is gone.
#[derive(Debug)]
pub struct Buffer<T> {
    bytes: Box<dyn Bytes>,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Pod> Buffer<T> {
    /// A buffer of `len` elements, which `bytes` holds.
    pub(super) fn new(bytes: Box<dyn Bytes>, len: usize) -> Self {
        Self { bytes, len, element: PhantomData }
    }

    /// Replaces all elements. Waits for work that was begun before, and is done on return.
    ///
    /// # Errors
    /// [`Error::Driver`]: the copy fails, or a kernel that was launched before has.
    /// [`Error::Captured`] inside a capture.
    ///
    /// # Panics
    /// If there are not [`len`](Self::len) elements.
    pub fn write(&mut self, elements: &[T]) -> Result<(), Error> {
        assert_eq!(elements.len(), self.len, "as many elements as the buffer has");
        if elements.is_empty() {
            return Ok(());
        }
        self.bytes.write(bytemuck::cast_slice(elements))
    }

    /// All elements. Waits for work that was begun before.
    ///
    /// # Errors
    /// [`Error::Driver`]: the copy fails, or a kernel that was launched before has.
    /// [`Error::Captured`] inside a capture.
    pub fn read(&self) -> Result<Vec<T>, Error> {
        let mut elements = vec![T::zeroed(); self.len];
        if self.len > 0 {
            self.bytes.read(bytemuck::cast_slice_mut(&mut elements))?;
        }
        Ok(elements)
    }

    /// Elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All of it, for a kernel to read.
    #[must_use]
    pub fn view(&self) -> View<'_, T> {
        self.slice(0..self.len)
    }

    /// All of it, for a kernel to write.
    #[must_use]
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        self.slice_mut(0..self.len)
    }

    /// A part of it, for a kernel to read.
    ///
    /// # Panics
    /// If the range is not inside the buffer.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> View<'_, T> {
        let (start, len) = self.part(range);
        View { start, len, owner: self.bytes.owner(), lifetime: PhantomData }
    }

    /// A part of it, for a kernel to write.
    ///
    /// # Panics
    /// If the range is not inside the buffer.
    #[must_use]
    pub fn slice_mut(&mut self, range: Range<usize>) -> ViewMut<'_, T> {
        let (start, len) = self.part(range);
        ViewMut { start, len, owner: self.bytes.owner(), lifetime: PhantomData }
    }

    fn part(&self, range: Range<usize>) -> (Global<T>, usize) {
        let Range { start, end } = range;
        assert!(start <= end && end <= self.len, "{start}..{end} is not inside 0..{}", self.len);
        (Global::from_address(self.bytes.address()).at(start as u64), end - start)
    }
}

impl Buffer<u8> {
    /// The same bytes as elements of another type.
    ///
    /// # Panics
    /// If they are no whole number of them.
    #[must_use]
    pub fn cast<T: Pod>(self) -> Buffer<T> {
        const { assert!(align_of::<T>() <= ALIGN) };
        let (elements, rest) = (self.len / size_of::<T>(), self.len % size_of::<T>());
        assert_eq!(rest, 0, "{} bytes are no whole number of elements of {}", self.len, size_of::<T>());
        Buffer::new(self.bytes, elements)
    }
}

macro_rules! view {
    ($(#[$doc:meta])* $Name:ident, $reference:ty) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $Name<'a, T> {
            start: Global<T>,
            len: usize,
            owner: Owner,
            lifetime: PhantomData<$reference>,
        }

        impl<T> $Name<'_, T> {
            /// Where it begins, as a kernel sees it.
            #[must_use]
            pub const fn start(&self) -> Global<T> {
                self.start
            }

            /// Elements.
            #[must_use]
            pub const fn len(&self) -> usize {
                self.len
            }

            /// Whether there are none.
            #[must_use]
            pub const fn is_empty(&self) -> bool {
                self.len == 0
            }

            /// Whose memory it is.
            #[must_use]
            pub const fn owner(&self) -> Owner {
                self.owner
            }
        }
    };
}

view! {
    /// A part of a [`Buffer`] that a kernel reads.
    View, &'a [T]
}

view! {
    /// A part of a [`Buffer`] that a kernel writes, and nobody else touches.
    ViewMut, &'a mut [T]
}

impl<T> Clone for View<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for View<'_, T> {}
