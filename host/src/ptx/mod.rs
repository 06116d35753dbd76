//! The kernels' PTX, which the binary carries, and what `ptxas` makes of it.

mod occupancy;
mod ptxas;

pub use occupancy::Multiprocessor;
pub use ptxas::{Assembler, PtxasError, Usage};

use std::io::Read;
use std::sync::OnceLock;

use flate2::read::ZlibDecoder;
use gpu::simt::Architecture;
use thiserror::Error;

mod table {
    use super::Variant;

    include!(concat!(env!("OUT_DIR"), "/ptx.rs"));
}

/// All kernels compiled for one architecture.
#[derive(Debug)]
pub struct Variant {
    /// The architecture as a number: 80 for compute capability 8.0.
    pub sm: u32,
    /// Whether it runs on this architecture alone (sm_90a) and on no later one.
    pub exact: bool,
    /// The PTX, compressed by the build script: a program carries a few, and needs one at most.
    packed: &'static [u8],
    text: OnceLock<String>,
}

impl Variant {
    #[allow(dead_code, reason = "a program for the CPU only has no variant")]
    const fn new(sm: u32, exact: bool, packed: &'static [u8]) -> Self {
        Self { sm, exact, packed, text: OnceLock::new() }
    }

    /// The PTX, unpacked at the first call.
    ///
    /// # Panics
    /// Never: what the build script packed can be unpacked.
    #[must_use]
    pub fn text(&self) -> &str {
        self.text.get_or_init(|| {
            let mut text = String::new();
            ZlibDecoder::new(self.packed).read_to_string(&mut text).expect("PTX of the build script");
            text
        })
    }

    /// The architecture.
    #[must_use]
    pub const fn architecture(&self) -> Architecture {
        Architecture { sm: self.sm, exact: self.exact }
    }

    /// The architecture's name, such as `sm_90a`.
    #[must_use]
    pub fn name(&self) -> String {
        self.architecture().to_string()
    }

    /// Whether a GPU of architecture `sm` runs this.
    #[must_use]
    pub const fn runs_on(&self, sm: u32) -> bool {
        self.architecture().runs_on(sm)
    }
}

/// Why there is no PTX for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PtxError {
    /// The build had no compiler for the kernels.
    #[error("this binary was built without GPU kernels: {why}. Run `{remedy}` and build again")]
    NotBuilt {
        /// What was missing.
        why: &'static str,
        /// The command that mends it.
        remedy: &'static str,
    },
    /// The device is older than the oldest architecture.
    #[error("the device has compute capability {}.{}, the kernels need {}.{} or later", sm / 10, sm % 10, oldest / 10, oldest % 10)]
    TooOld {
        /// The device's architecture.
        sm: u32,
        /// The oldest one there is PTX for.
        oldest: u32,
    },
}

/// The kernels for every architecture they were compiled for, oldest first.
///
/// # Errors
/// [`PtxError::NotBuilt`].
pub fn variants() -> Result<&'static [Variant], PtxError> {
    match table::MISSING {
        Some((why, remedy)) => Err(PtxError::NotBuilt { why, remedy }),
        None => Ok(&table::VARIANTS),
    }
}

/// The latest kernels that a device of architecture `sm` (compute capability times ten) runs.
///
/// # Errors
/// A [`PtxError`] that says why there are none.
pub fn variant_for(sm: u32) -> Result<&'static Variant, PtxError> {
    let variants = variants()?;
    let oldest = variants.iter().map(|variant| variant.sm).min().unwrap_or(0);
    let latest = variants.iter().filter(|variant| variant.runs_on(sm)).max_by_key(|variant| variant.sm);
    latest.ok_or(PtxError::TooOld { sm, oldest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_gets_the_latest_that_it_runs() {
        let Ok(variants) = variants() else { return };
        assert!(variants.is_sorted_by_key(|variant| variant.sm));
        for (sm, expected) in
            [(75, "sm_75"), (80, "sm_80"), (89, "sm_80"), (90, "sm_90a"), (100, "sm_80"), (121, "sm_80")]
        {
            assert_eq!(variant_for(sm).map(Variant::name), Ok(expected.to_owned()), "{sm}");
        }
        let error = variant_for(61).map(Variant::name);
        assert_eq!(error, Err(PtxError::TooOld { sm: 61, oldest: 75 }));
    }

    #[test]
    fn errors_say_what_to_do() {
        let error = PtxError::NotBuilt { why: "no compiler", remedy: "rustup target add x" };
        assert!(error.to_string().contains("`rustup target add x`"));
        assert!(PtxError::TooOld { sm: 61, oldest: 75 }.to_string().contains("capability 6.1"));
    }
}
