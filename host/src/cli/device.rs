//! `--device`: where a model runs.

use std::fmt;
use std::str::FromStr;

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

impl Device {
    /// The device that this build runs on when asked for `self`.
    ///
    /// # Errors
    /// When it cannot run there; the message says what to do instead.
    pub fn resolve(self) -> anyhow::Result<Self> {
        match self {
            Self::Auto | Self::Cpu => Ok(Self::Cpu),
            Self::Cuda(index) => {
                let found = cuda::Device::open(index).and_then(|device| {
                    let description = device.description();
                    description.variant()?;
                    Ok(description)
                });
                match found {
                    Ok(description) => anyhow::bail!(
                        "--device {self}: {} is there, but the kernels for whole models are not yet; use \
                         --device cpu",
                        description.name
                    ),
                    Err(error) => anyhow::bail!("--device {self}: {error}; use --device cpu"),
                }
            }
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
        assert_eq!(Device::Auto.resolve().ok(), Some(Device::Cpu));
        let message = Device::Cuda(1).resolve().map_or_else(|error| error.to_string(), |_| String::new());
        assert!(message.contains("cuda:1") && message.contains("--device cpu"), "{message}");
    }
}
