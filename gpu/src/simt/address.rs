//! Addresses and the words that memory is read and written in.
//!
//! A kernel never dereferences: it computes an address here and hands it to a word of
//! [`Simt`](super::Simt). So these types are plain numbers, and their arithmetic wraps instead
//! of failing; an address that points nowhere is found by the access, not by the sum.

use core::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use half::{bf16, f16};

mod sealed {
    pub trait Sealed {}
}

/// What one load or store moves: 1, 2, 4, 8 or 16 bytes, every bit pattern a value.
///
/// An access is aligned to the word's *size*: `[u32; 4]` moves as one 16-byte vector and needs
/// a 16-byte aligned address, more than Rust's alignment of the type.
pub trait Word: Pod + sealed::Sealed {}

/// A word of exactly one 32-bit register, which is what a shuffle moves.
pub trait Word32: Word {
    /// The register's bits.
    fn to_register(self) -> u32;
    /// The value of a register's bits.
    fn from_register(bits: u32) -> Self;
}

macro_rules! words {
    ($($word:ty),* $(,)?) => {$(
        impl sealed::Sealed for $word {}
        impl Word for $word {}
        const _: () = assert!(matches!(size_of::<$word>(), 1 | 2 | 4 | 8 | 16));
    )*};
}

words!(u8, i8, u16, i16, f16, bf16, u32, i32, f32, u64);
words!([f16; 2], [u32; 2], [i32; 2], [f32; 2], [u32; 4], [i32; 4], [f32; 4]);

impl Word32 for u32 {
    #[inline(always)]
    fn to_register(self) -> u32 {
        self
    }
    #[inline(always)]
    fn from_register(bits: u32) -> Self {
        bits
    }
}

impl Word32 for i32 {
    #[inline(always)]
    fn to_register(self) -> u32 {
        self.cast_unsigned()
    }
    #[inline(always)]
    fn from_register(bits: u32) -> Self {
        bits.cast_signed()
    }
}

impl Word32 for f32 {
    #[inline(always)]
    fn to_register(self) -> u32 {
        self.to_bits()
    }
    #[inline(always)]
    fn from_register(bits: u32) -> Self {
        Self::from_bits(bits)
    }
}

/// The address of a `T` in global memory.
///
/// On a GPU it is the device address; in the emulator, an address inside a registered buffer.
/// It is what a kernel's arguments hold, and crosses the bus as one `u64`.
#[repr(transparent)]
pub struct Global<T> {
    address: u64,
    element: PhantomData<fn() -> T>,
}

/// The address of a `T` in the block's shared memory: 32 bits, counted in the shared window.
///
/// [`Simt::shared`](super::Simt::shared) is where it begins.
#[repr(transparent)]
pub struct Shared<T> {
    address: u32,
    element: PhantomData<fn() -> T>,
}

const _: () = assert!(size_of::<Global<f16>>() == 8 && align_of::<Global<f16>>() == 8);
const _: () = assert!(size_of::<Shared<f16>>() == 4 && align_of::<Shared<f16>>() == 4);

macro_rules! address {
    ($name:ident, $int:ty) => {
        impl<T> Clone for $name<T> {
            #[inline(always)]
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T> Copy for $name<T> {}

        // SAFETY: a number and no data.
        unsafe impl<T> Zeroable for $name<T> {}

        impl<T> core::fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.address)
            }
        }

        impl<T> $name<T> {
            /// The element at this byte address.
            #[inline(always)]
            #[must_use]
            pub const fn from_address(address: $int) -> Self {
                Self { address, element: PhantomData }
            }

            /// The byte address.
            #[inline(always)]
            #[must_use]
            pub const fn address(self) -> $int {
                self.address
            }

            /// The same address, read as another type: a vector of the elements, or bytes.
            #[inline(always)]
            #[must_use]
            pub const fn cast<U>(self) -> $name<U> {
                $name::from_address(self.address)
            }

            /// The address `index` elements further on.
            #[inline(always)]
            #[must_use]
            pub const fn at(self, index: $int) -> Self {
                Self::from_address(self.address.wrapping_add(index.wrapping_mul(size_of::<T>() as $int)))
            }
        }
    };
}

address!(Global, u64);
address!(Shared, u32);

impl<T> Global<T> {
    /// The address `row * stride` elements further on. The product is taken in 64 bits: a
    /// matrix may have more than 2^32 elements although neither side does.
    #[inline(always)]
    #[must_use]
    pub const fn row(self, row: u32, stride: u32) -> Self {
        self.at((row as u64).wrapping_mul(stride as u64))
    }
}

impl<T> Shared<T> {
    /// The address `row * stride` elements further on.
    #[inline(always)]
    #[must_use]
    pub const fn row(self, row: u32, stride: u32) -> Self {
        self.at(row.wrapping_mul(stride))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_count_elements_and_leave_32_bits_behind() {
        let base = Global::<f16>::from_address(0x7f00_0000_0000);
        assert_eq!(base.at(3).address(), 0x7f00_0000_0006);
        assert_eq!(base.row(70_000, 70_000).address(), 0x7f00_0000_0000 + 2 * 4_900_000_000);
        let base = Shared::<f32>::from_address(1024);
        assert_eq!(base.row(2, 33).at(1).address(), 1024 + 4 * 67);
        assert_eq!(base.cast::<u8>().at(3).address(), 1027);
    }
}
