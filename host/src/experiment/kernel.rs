//! The prefill kernels that experiments run, as values.

use gpu::attention::{FaPrefillF16kv, FaPrefillF16kvShared};
use gpu::kernels::{ALL, Entry};
use gpu::simt::Contract;
use half::f16;

use super::tiles::Tiles;
use crate::cuda::ops::{self, AttentionShape};
use crate::cuda::{Error, Queue, View, ViewMut};

macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident: $structure:ident $kernel:ty,)*) => {
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
            pub const fn tiles(self) -> Tiles {
                match self {
                    $(Self::$name => Tiles::$structure(<$kernel>::GEOMETRY),)*
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
    Landed: Registers FaPrefillF16kv<128>,
    /// Head size 64.
    Head64: Registers FaPrefillF16kv<64>,
    /// Head size 80.
    Head80: Registers FaPrefillF16kv<80>,
    /// Head size 96.
    Head96: Registers FaPrefillF16kv<96>,
    /// Head size 256.
    Head256: Registers FaPrefillF16kv<256>,
    /// Head size 256, blocks of 32 rows.
    Head256Tq32: Registers FaPrefillF16kv<256, 32, 32>,
    /// Tiles of 16 positions.
    Tkv16: Registers FaPrefillF16kv<128, 64, 16>,
    /// Tiles of 64 positions.
    Tkv64: Registers FaPrefillF16kv<128, 64, 64>,
    /// Blocks of 128 rows.
    Tq128: Registers FaPrefillF16kv<128, 128, 32>,
    /// Blocks of 48 rows, two stages, a warp that copies.
    Tq48Double: Registers FaPrefillF16kv<128, 48, 32, 2, 1>,
    /// Two stages.
    Double: Registers FaPrefillF16kv<128, 64, 32, 2>,
    /// The structure before: tiles of 64 positions, rows of S not padded.
    Shared: Shared FaPrefillF16kvShared<128>,
    /// The structure before, head size 64.
    SharedHead64: Shared FaPrefillF16kvShared<64>,
    /// The structure before, head size 80.
    SharedHead80: Shared FaPrefillF16kvShared<80>,
    /// The structure before, head size 96.
    SharedHead96: Shared FaPrefillF16kvShared<96>,
    /// The structure before, head size 256: tiles of 32 positions, padded rows.
    SharedHead256: Shared FaPrefillF16kvShared<256, 32, 8>,
    /// The structure before with tiles of 32 positions and padded rows.
    SharedPadded: Shared FaPrefillF16kvShared<128, 32, 8>,
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
    fn every_kernel_is_exported_with_its_tiles() {
        for kernel in Kernel::ALL {
            let launch = kernel.entry().launch();
            assert_eq!(launch.threads, kernel.tiles().threads(), "{}", kernel.name());
            assert_eq!(launch.shared_bytes, kernel.tiles().shared_bytes(), "{}", kernel.name());
        }
    }
}
