//! The seeded generator of uniform numbers.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// ChaCha8 keyed with the seed's four little-endian bytes and zeros, stream 0. Spelled out
/// here instead of left to a library's seeding helper, because a printed seed has to give
/// the same text in later releases.
#[derive(Debug)]
pub(super) struct Generator(ChaCha8Rng);

impl Generator {
    pub(super) fn new(seed: u32) -> Self {
        let mut key = [0u8; 32];
        key[..4].copy_from_slice(&seed.to_le_bytes());
        Self(ChaCha8Rng::from_seed(key))
    }

    /// The next number in `[0, 1)`: the upper 53 bits of a 64-bit word, scaled.
    pub(super) fn uniform(&mut self) -> f64 {
        const SCALE: f64 = 1.0 / (1u64 << 53) as f64;
        (self.0.next_u64() >> 11) as f64 * SCALE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ECRYPT test vector of ChaCha8 with a 256-bit key of zeros and nonce of zeros
    /// begins 3e 00 ef 2f 89 5f 40 d6.
    #[test]
    fn the_generator_is_published_chacha8() {
        let word = u64::from_le_bytes([0x3e, 0x00, 0xef, 0x2f, 0x89, 0x5f, 0x40, 0xd6]);
        assert_eq!(Generator::new(0).uniform(), (word >> 11) as f64 / (1u64 << 53) as f64);
    }

    #[test]
    fn numbers_are_uniform_and_depend_on_the_seed() {
        let mut generator = Generator::new(42);
        let numbers: Vec<f64> = (0..10_000).map(|_| generator.uniform()).collect();
        assert!(numbers.iter().all(|x| (0.0..1.0).contains(x)));
        let mean = numbers.iter().sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.015, "mean {mean}");
        assert_ne!(numbers[0], Generator::new(43).uniform());
        assert_ne!(Generator::new(1).uniform(), Generator::new(1 << 24).uniform());
    }
}
