//! `--device`: where a model runs.

use std::fmt;
use std::str::FromStr;

use super::output::note;
use crate::cuda;

/// Where a model runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    /// The best there is.
    Auto,
    /// The CPU.
    Cpu,
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
            Self::Cpu => return Ok(Chosen::Cpu),
            Self::Auto => 0,
            Self::Cuda(index) => index,
        };
        let found = cuda::Device::open(index).and_then(|device| {
            device.description().variant()?;
            Ok(device)
        });
        match found {
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

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let cuda = |index: &str| {
            // `parse` would also take a sign.
            let digits = index.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| index.parse().ok()).flatten().map(Self::Cuda)
        };
        match text {
            "auto" => Some(Self::Auto),
            "cpu" => Some(Self::Cpu),
            "cuda" => Some(Self::Cuda(0)),
            _ => text.strip_prefix("cuda:").and_then(cuda),
        }
        .ok_or_else(|| "not one of auto, cpu, cuda, cuda:N".to_owned())
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_to_the_letter() {
        assert_eq!("auto".parse(), Ok(Device::Auto));
        assert_eq!("cpu".parse(), Ok(Device::Cpu));
        assert_eq!("cuda".parse(), Ok(Device::Cuda(0)));
        assert_eq!("cuda:3".parse(), Ok(Device::Cuda(3)));
        for text in ["", "CPU", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:+1", "cuda:99999999999"] {
            assert!(text.parse::<Device>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_gpu_is_refused_in_words() {
        assert!(matches!(Device::Cpu.resolve(), Ok(Chosen::Cpu)));
        assert!(Device::Auto.resolve().is_ok());
        let message = Device::Cuda(999).resolve().map_or_else(|error| error.to_string(), |_| String::new());
        assert!(message.contains("cuda:999") && message.contains("--device cpu"), "{message}");
    }
}
