//! `asm!` where there is no assembler for PTX: it checks the operands' types, and panics if it
//! is run.
//!
//! It knows the operands that `rustc_codegen_nvvm` takes: `in`, `out` and `inout` of `reg16`,
//! `reg32` and `reg64`, and `const`.

#![allow(clippy::missing_safety_doc, reason = "unsafe where `asm!` is, so that its blocks are the same")]

macro_rules! asm {
    ($template:expr $(, $($operands:tt)*)?) => {{
        $crate::simt::ptx::unassembled::instruction($template);
        $($crate::simt::ptx::unassembled::operands!($($operands)*);)?
    }};
}

macro_rules! operands {
    ($(,)?) => {};
    (options($($option:ident),*) $(,)?) => {};
    (const $value:expr $(, $($rest:tt)*)?) => {
        let _ = $value;
        $($crate::simt::ptx::unassembled::operands!($($rest)*);)?
    };
    (in($class:ident) $value:expr $(, $($rest:tt)*)?) => {
        $crate::simt::ptx::unassembled::$class::read($value);
        $($crate::simt::ptx::unassembled::operands!($($rest)*);)?
    };
    (out($class:ident) _ $(, $($rest:tt)*)?) => {
        $($crate::simt::ptx::unassembled::operands!($($rest)*);)?
    };
    (out($class:ident) $place:expr $(, $($rest:tt)*)?) => {
        $place = $crate::simt::ptx::unassembled::$class::written();
        $($crate::simt::ptx::unassembled::operands!($($rest)*);)?
    };
    (inout($class:ident) $place:expr $(, $($rest:tt)*)?) => {
        $crate::simt::ptx::unassembled::$class::read($place);
        $place = $crate::simt::ptx::unassembled::$class::written();
        $($crate::simt::ptx::unassembled::operands!($($rest)*);)?
    };
    ($name:ident = $($rest:tt)*) => {
        $crate::simt::ptx::unassembled::operands!($($rest)*)
    };
}

pub(crate) use {asm, operands};

/// Where the instruction would be.
pub(crate) unsafe fn instruction(template: &str) {
    panic!("`{template}` is for a GPU")
}

/// The types that a class of registers holds.
macro_rules! class {
    ($name:ident: $($type:ty),*) => {
        pub(crate) mod $name {
            pub(crate) trait Held: Default {}
            $(impl Held for $type {})*

            pub(crate) unsafe fn read<T: Held>(_: T) {}

            pub(crate) unsafe fn written<T: Held>() -> T {
                T::default()
            }
        }
    };
}

class!(reg16: u16);
class!(reg32: u32, i32, f32);
class!(reg64: u64);
