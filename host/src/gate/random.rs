//! Seeded random numbers and blocks, for gates and for tests.

use gpu::quant::{Format, f16};

use crate::quantize::quantize_row;

/// A reproducible source of randomness (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// 64 random bits.
    // Not an iterator: it does not end.
    #[allow(clippy::should_implement_trait, reason = "it is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    ///
    /// # Panics
    /// If `bound` is zero.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// So many random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// A number evenly between 0 and 1.
pub fn uniform(random: &mut Random) -> f64 {
    (random.next() >> 11) as f64 / (1_u64 << 53) as f64
}

/// A number with mean 0 and deviation 1, nearly normal: the sum of twelve even ones.
pub fn normal(random: &mut Random) -> f64 {
    (0..12).map(|_| uniform(random)).sum::<f64>() - 6.0
}

/// So many [`normal`] numbers.
pub fn normals(random: &mut Random, len: usize) -> Vec<f32> {
    (0..len).map(|_| normal(random) as f32).collect()
}

/// Blocks of `len` values of about this deviation. Formats that the library does not make from f32 get
/// random quants, and scales of the right size.
///
/// # Panics
/// If `len` values are not whole blocks.
pub fn random_blocks(format: Format, len: usize, deviation: f64, random: &mut Random) -> Vec<u8> {
    // Where the f16 scale and the f16 minimum stand in a block, and the deviation of a value in units
    // of the scale, from the layouts of the formats with all quants and inner scales equally likely.
    let (scale, minimum, unit) = match format {
        Format::Q2_K => (80, Some((82, 1.5)), 12.0),
        Format::Q3_K => (108, None, 42.0),
        Format::Q4_K => (0, Some((2, 7.5)), 250.0),
        Format::Q5_K => (0, Some((2, 15.5)), 510.0),
        Format::Q6_K => (208, None, 1400.0),
        Format::IQ4_XS => (0, None, 1300.0),
        _ => {
            let values: Vec<f32> = (0..len).map(|_| (deviation * normal(random)) as f32).collect();
            return quantize_row(format, &values).expect("whole blocks of a format that is made from f32");
        }
    };
    let mut bytes = random.bytes(len / format.block_elements() * format.block_bytes());
    for block in bytes.chunks_exact_mut(format.block_bytes()) {
        let d = deviation / unit * (0.5 + uniform(random));
        block[scale..scale + 2].copy_from_slice(&f16::from_f64(d).to_le_bytes());
        if let Some((at, times)) = minimum {
            block[at..at + 2].copy_from_slice(&f16::from_f64(times * d).to_le_bytes());
        }
    }
    bytes
}
