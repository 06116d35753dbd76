//! `--device`: a GPU, or what stands in for one: the CPU for models, the emulator for kernels.

use std::fmt;
use std::str::FromStr;

use super::output::note;
use crate::cuda;

/// What stands in for a GPU.
pub trait StandIn: Copy {
    /// Its name on the command line.
    const NAME: &'static str;
    /// Itself.
    const ITSELF: Self;
}

/// The CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpu;

/// The emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Emulator;

impl StandIn for Cpu {
    const NAME: &'static str = "cpu";
    const ITSELF: Self = Self;
}

impl StandIn for Emulator {
    const NAME: &'static str = "emulator";
    const ITSELF: Self = Self;
}

/// Where something runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device<S = Cpu> {
    /// The best there is.
    Auto,
    /// No GPU.
    StandIn(S),
    /// The CUDA device with this index.
    Cuda(u32),
}

/// A device that can run a model.
#[derive(Debug, Clone, Copy)]
pub enum Chosen {
    /// The CPU.
    Cpu,
    /// A GPU that there are kernels for.
    Cuda(cuda::Device),
}

impl Device {
    /// What this build runs on when asked for `self`. `auto` is the first GPU, if one answers; a GPU that
    /// cannot be used is said aloud.
    ///
    /// # Errors
    /// When a GPU that is named cannot be used; the message says what to do instead.
    pub fn resolve(self) -> anyhow::Result<Chosen> {
        let index = match self {
            Self::StandIn(Cpu) => return Ok(Chosen::Cpu),
            Self::Auto => 0,
            Self::Cuda(index) => index,
        };
        match with_kernels(index) {
            Ok(device) => Ok(Chosen::Cuda(device)),
            Err(cuda::Error::Unavailable(_)) if self == Self::Auto => Ok(Chosen::Cpu),
            Err(error) if self == Self::Auto => {
                note(format_args!("warning: the CPU runs the model: {error}"));
                Ok(Chosen::Cpu)
            }
            Err(error) => anyhow::bail!("--device {self}: {error}; use --device cpu"),
        }
    }
}

/// The GPU with this index, which there are kernels for.
///
/// # Errors
/// When it cannot be used, or there are none.
pub fn with_kernels(index: u32) -> Result<cuda::Device, cuda::Error> {
    let device = cuda::Device::open(index)?;
    device.description().variant()?;
    Ok(device)
}

impl<S: StandIn> Device<S> {
    /// The GPU, or none for what stands in: `auto` is the first GPU, if one answers.
    ///
    /// # Errors
    /// When a GPU that is named, or there, cannot be used.
    pub fn gpu(self) -> anyhow::Result<Option<cuda::Device>> {
        match self {
            Self::StandIn(_) => Ok(None),
            Self::Cuda(index) => {
                let opened = cuda::Device::open(index);
                let unusable = |error| anyhow::anyhow!("--device {self}: {error}; use --device {}", S::NAME);
                opened.map(Some).map_err(unusable)
            }
            Self::Auto => match cuda::devices() {
                Ok(_) => Ok(Some(cuda::Device::open(0)?)),
                Err(cuda::Error::Unavailable(_)) => Ok(None),
                Err(error) => Err(error.into()),
            },
        }
    }
}

impl<S: StandIn> FromStr for Device<S> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let cuda = |index: &str| {
            // `parse` would also take a sign.
            let digits = index.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| index.parse().ok()).flatten().map(Self::Cuda)
        };
        match text {
            "auto" => Some(Self::Auto),
            name if name == S::NAME => Some(Self::StandIn(S::ITSELF)),
            "cuda" => Some(Self::Cuda(0)),
            _ => text.strip_prefix("cuda:").and_then(cuda),
        }
        .ok_or_else(|| format!("not one of auto, {}, cuda, cuda:N", S::NAME))
    }
}

impl<S: StandIn> fmt::Display for Device<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::StandIn(_) => f.write_str(S::NAME),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_to_the_letter() {
        fn check<S: StandIn + fmt::Debug + PartialEq>(other: &str) {
            assert_eq!("auto".parse(), Ok(Device::<S>::Auto));
            assert_eq!(S::NAME.parse(), Ok(Device::StandIn(S::ITSELF)));
            assert_eq!("cuda".parse(), Ok(Device::<S>::Cuda(0)));
            for text in [
                "",
                "CPU",
                "Emulator",
                "gpu",
                "cuda:",
                "cuda:x",
                "cuda:-1",
                "cuda:+1",
                "cuda:99999999999",
                other,
            ] {
                assert!(text.parse::<Device<S>>().is_err(), "{text}");
            }
            for device in [Device::Auto, Device::StandIn(S::ITSELF), Device::Cuda(3)] {
                assert_eq!(device.to_string().parse(), Ok(device));
            }
        }
        check::<Cpu>("emulator");
        check::<Emulator>("cpu");
    }

    #[test]
    fn a_gpu_is_refused_in_words() {
        assert!(matches!(Device::StandIn(Cpu).resolve(), Ok(Chosen::Cpu)));
        assert!(Device::Auto.resolve().is_ok());
        let message = Device::Cuda(999).resolve().map_or_else(|error| error.to_string(), |_| String::new());
        assert!(message.contains("cuda:999") && message.contains("--device cpu"), "{message}");
    }
}
