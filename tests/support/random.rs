//! Seeded random numbers and blocks: those of the gates.

use gpu::quant::{Format, f16};
#[allow(unused_imports, reason = "each test binary uses a part of it")]
pub(crate) use lanemap::gate::random::{Random, normal, normals, random_blocks, uniform};

/// Quantized blocks of `len` values that are whole numbers times `scale`: random quants and inner scales, outer scales
/// and minimums this one, a power of two.
#[allow(dead_code, reason = "each test binary uses a part of it")]
pub(crate) fn whole_blocks(format: Format, len: usize, scale: f32, random: &mut Random) -> Vec<u8> {
    let at: &[usize] = match format {
        Format::Q2_K => &[80, 82],
        Format::Q3_K => &[108],
        Format::Q4_K | Format::Q5_K | Format::Q4_1 | Format::Q5_1 => &[0, 2],
        Format::Q6_K => &[208],
        _ => &[0],
    };
    let mut blocks = random.bytes(len / format.block_elements() * format.block_bytes());
    for block in blocks.chunks_exact_mut(format.block_bytes()) {
        for &at in at {
            block[at..at + 2].copy_from_slice(&f16::from_f32(scale).to_le_bytes());
        }
        if format == Format::Q8_K {
            block[..4].copy_from_slice(&scale.to_le_bytes());
        }
    }
    blocks
}
