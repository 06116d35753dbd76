//! The prefill kernels that experiments run, as values.

use gpu::attention::{FaPrefillF16kv, Geometry};
use gpu::kernels::{ALL, Entry};
use gpu::simt::Contract;
use half::f16;

use crate::cuda::ops::{self, AttentionShape};
use crate::cuda::{Error, Queue, View, ViewMut};

macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident: $kernel:ty,)*) => {
        /// A kernel that is compiled for GPUs and for the emulator.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kernel {
            $($(#[$doc])* $name,)*
        }

        impl Kernel {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The exported name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => <$kernel as Contract>::NAME,)*
                }
            }

            /// Its tiles.
            #[must_use]
            pub const fn geometry(self) -> Geometry {
                match self {
                    $(Self::$name => <$kernel>::GEOMETRY,)*
                }
            }

            /// Launches it; see [`ops::prefill`].
            ///
            /// # Errors
            /// Those of [`ops::prefill`].
            pub fn launch(
                self,
                queue: &impl Queue,
                out: ViewMut<'_, f32>,
                query: View<'_, f16>,
                cache: [View<'_, f16>; 2],
                shape: &AttentionShape,
            ) -> Result<(), Error> {
                match self {
                    $(Self::$name => ops::prefill::<$kernel>(queue, out, query, cache, shape),)*
                }
            }
        }
    };
}

kernels! {
    /// The landed one: 64 rows, 32 positions.
    Landed: FaPrefillF16kv<128>,
    /// Head size 64.
    Head64: FaPrefillF16kv<64>,
    /// Head size 80.
    Head80: FaPrefillF16kv<80>,
    /// Head size 96.
    Head96: FaPrefillF16kv<96>,
    /// Head size 256.
    Head256: FaPrefillF16kv<256>,
    /// Tiles of 16 positions.
    Tkv16: FaPrefillF16kv<128, 64, 16>,
    /// Tiles of 64 positions.
    Tkv64: FaPrefillF16kv<128, 64, 64>,
    /// Blocks of 128 rows.
    Tq128: FaPrefillF16kv<128, 128, 32>,
    /// Blocks of 48 rows, two stages, a warp that copies.
    Tq48Double: FaPrefillF16kv<128, 48, 32, 2, 1>,
    /// Two stages.
    Double: FaPrefillF16kv<128, 64, 32, 2>,
}

impl Kernel {
    /// What the build knows of it.
    ///
    /// # Panics
    /// Never: every kernel here is exported, which a test checks.
    #[must_use]
    pub fn entry(self) -> &'static Entry {
        ALL.iter().find(|entry| entry.name == self.name()).expect("a kernel that is exported")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_is_exported_with_its_geometry() {
        for kernel in Kernel::ALL {
            let launch = kernel.entry().launch();
            assert_eq!(launch.threads, kernel.geometry().threads(), "{}", kernel.name());
            assert_eq!(launch.shared_bytes, kernel.geometry().shared_bytes(), "{}", kernel.name());
        }
    }
}
