//! `--device` of gates: a GPU or the emulator.

use std::fmt;
use std::str::FromStr;

use crate::cli::device::Device as Choice;
use crate::cuda::{self, Device};

/// Where kernels are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The first GPU, if one answers, else the emulator.
    Auto,
    /// The emulator.
    Emulator,
    /// The CUDA device with this index.
    Cuda(u32),
}

impl Place {
    /// The GPU, or none for the emulator.
    ///
    /// # Errors
    /// When a GPU that is named, or there, cannot be used.
    pub(super) fn device(self) -> anyhow::Result<Option<Device>> {
        match self {
            Self::Emulator => Ok(None),
            Self::Cuda(index) => {
                let opened = Device::open(index);
                Ok(Some(
                    opened.map_err(|error| {
                        anyhow::anyhow!("--device {self}: {error}; use --device emulator")
                    })?,
                ))
            }
            Self::Auto => match cuda::devices() {
                Ok(_) => Ok(Some(Device::open(0)?)),
                Err(cuda::Error::Unavailable(_)) => Ok(None),
                Err(error) => Err(error.into()),
            },
        }
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("emulator", _) => Ok(Self::Emulator),
            (_, Ok(Choice::Auto)) => Ok(Self::Auto),
            (_, Ok(Choice::Cuda(index))) => Ok(Self::Cuda(index)),
            _ => Err("not one of auto, emulator, cuda, cuda:N".to_owned()),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Emulator => f.write_str("emulator"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_to_the_letter() {
        assert_eq!("auto".parse(), Ok(Place::Auto));
        assert_eq!("emulator".parse(), Ok(Place::Emulator));
        assert_eq!("cuda:2".parse(), Ok(Place::Cuda(2)));
        for text in ["cpu", "", "Emulator", "cuda:x"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
        for place in [Place::Auto, Place::Emulator, Place::Cuda(3)] {
            assert_eq!(place.to_string().parse(), Ok(place));
        }
    }
}
