//! Pieces of the K formats: eight in a block of 256.

#[cfg(not(target_arch = "nvptx64"))]
use super::pack::{BlockPlanes, pack_fields, six_bits as six_bits_head, two_scales};
use super::q32::{load_eight_bits, load_high_bit};
use super::{
    Pieces, Planes, RUNS, Run, SIGNED, four_bits, pieces_of, runs, six_bits, two_bits, with_high_bit,
    with_two_high_bits,
};
#[cfg(not(target_arch = "nvptx64"))]
use crate::quant::bits::{q3_k_scales, scales_and_mins};
use crate::quant::{BlockQ2_K, BlockQ3_K, BlockQ4_K, BlockQ5_K, BlockQ6_K, BlockQ8_K, Format, f16};
use crate::simt::{Global, Simt, Word};

/// The word of the piece `index` in the plane at `plane`.
///
/// # Safety
/// As [`Pieces::load`]; the plane has a `T` for every piece.
#[inline(always)]
#[track_caller]
unsafe fn of_piece<S: Simt, T: Word>(s: S, row: Global<u8>, plane: u32, index: u32) -> T {
    // SAFETY: the caller's.
    unsafe { s.load_global_constant(row.at(u64::from(plane)).cast().at(u64::from(index))) }
}

/// The head of the block that piece `index` is in.
///
/// # Safety
/// As [`Pieces::load`]; `T` is the head of `B`.
#[inline(always)]
#[track_caller]
pub(super) unsafe fn head_of<B: Pieces, S: Simt, T: Word>(
    s: S,
    row: Global<u8>,
    heads: u32,
    index: u32,
) -> T {
    // SAFETY: the caller's.
    unsafe { of_piece(s, row, heads, index / pieces_of::<B>()) }
}

/// Scale and minimum of a piece of Q4_K or Q5_K.
#[inline(always)]
fn scale_and_min<S: Simt>(s: S, head: [u32; 4], index: u32) -> (f32, f32) {
    let ([d, dmin], [scale, min]) = six_bits(s, head, index);
    (d * scale as f32, dmin * min as f32)
}

impl Pieces for BlockQ2_K {
    /// Quants, scales, head.
    type Words = ([u32; 2], u16, u32);
    const ONE_SCALE: bool = false;
    const OFFSET: u32 = 0;

    #[inline(always)]
    #[track_caller]
    unsafe fn load<S: Simt>(s: S, row: Global<u8>, blocks: u32, index: u32) -> Self::Words {
        let at = const { Planes::of(Format::Q2_K) }.offsets(blocks);
        // SAFETY: the caller's.
        unsafe {
            (
                of_piece(s, row, 0, index),
                of_piece(s, row, at.scales, index),
                head_of::<Self, _, _>(s, row, at.heads, index),
            )
        }
    }

    #[inline(always)]
    fn unpack<S: Simt>(s: S, (quants, scales, head): Self::Words, index: u32) -> [Run; RUNS] {
        let [d, dmin] = s.f32_from_f16x2(head);
        let field = |at: u32| (u32::from(scales) >> at & 0x0f) as f32;
        let (scales, mins) = ([0, 8].map(|at| d * field(at)), [4, 12].map(|at| dmin * field(at)));
        runs(index, two_bits(quants), scales, mins)
    }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn pack(&self, to: BlockPlanes<'_>) {
        pack_two_bits(&self.qs, to.quants);
        to.scales.copy_from_slice(&self.scales);
        to.heads.copy_from_slice(&two_scales([self.d, self.dmin]));
    }
}

impl Pieces for BlockQ3_K {
    /// Quants, their high bits, head.
    type Words = ([u32; 2], u32, [u32; 4]);
    const ONE_SCALE: bool = false;
    const OFFSET: u32 = 4;

    #[inline(always)]
    #[track_caller]
    unsafe fn load<S: Simt>(s: S, row: Global<u8>, blocks: u32, index: u32) -> Self::Words {
        let at = const { Planes::of(Format::Q3_K) }.offsets(blocks);
        // SAFETY: the caller's.
        unsafe {
            (
                of_piece(s, row, 0, index),
                load_high_bit(s, row, at.high, index),
                head_of::<Self, _, _>(s, row, at.heads, index),
            )
        }
    }

    #[inline(always)]
    fn unpack<S: Simt>(s: S, (quants, high, head): Self::Words, index: u32) -> [Run; RUNS] {
        let ([d, _], scales) = six_bits(s, head, index);
        let scales = scales.map(|scale| d * (scale as f32 - 32.0));
        let quants = with_high_bit::<2>(two_bits(quants), high);
        runs(index, quants, scales, scales.map(|scale| Self::OFFSET as f32 * scale))
    }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn pack(&self, to: BlockPlanes<'_>) {
        pack_two_bits(&self.qs, to.quants);
        pack_one_bit(&self.hmask, to.high);
        let stored = q3_k_scales(&self.scales).map(|scale| (scale + 32).cast_unsigned());
        let of_runs = |run| core::array::from_fn(|piece| stored[RUNS * piece + run]);
        to.heads.copy_from_slice(&six_bits_head([self.d, f16::ZERO], of_runs(0), of_runs(1)));
    }
}

impl Pieces for BlockQ4_K {
    /// Quants, head.
    type Words = ([u32; 4], [u32; 4]);
    const ONE_SCALE: bool = true;
    const OFFSET: u32 = 0;

    #[inline(always)]
    #[track_caller]
    unsafe fn load<S: Simt>(s: S, row: Global<u8>, blocks: u32, index: u32) -> Self::Words {
        let at = const { Planes::of(Format::Q4_K) }.offsets(blocks);
        // SAFETY: the caller's.
        unsafe { (of_piece(s, row, 0, index), head_of::<Self, _, _>(s, row, at.heads, index)) }
    }

    #[inline(always)]
    fn unpack<S: Simt>(s: S, (quants, head): Self::Words, index: u32) -> [Run; RUNS] {
        let (scale, min) = scale_and_min(s, head, index);
        runs(index, four_bits(quants), [scale; RUNS], [min; RUNS])
    }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn pack(&self, to: BlockPlanes<'_>) {
        pack_four_bits::<4>(&self.qs, to.quants);
        let (scales, mins) = scales_and_mins(&self.scales);
        to.heads.copy_from_slice(&six_bits_head([self.d, self.dmin], scales, mins));
    }
}

impl Pieces for BlockQ5_K {
    /// Quants, their high bits, head.
    type Words = ([u32; 4], u32, [u32; 4]);
    const ONE_SCALE: bool = true;
    const OFFSET: u32 = 0;

    #[inline(always)]
    #[track_caller]
    unsafe fn load<S: Simt>(s: S, row: Global<u8>, blocks: u32, index: u32) -> Self::Words {
        let at = const { Planes::of(Format::Q5_K) }.offsets(blocks);
        // SAFETY: the caller's.
        unsafe {
            (
                of_piece(s, row, 0, index),
                load_high_bit(s, row, at.high, index),
                head_of::<Self, _, _>(s, row, at.heads, index),
            )
        }
    }

    #[inline(always)]
    fn unpack<S: Simt>(s: S, (quants, high, head): Self::Words, index: u32) -> [Run; RUNS] {
        let (scale, min) = scale_and_min(s, head, index);
        runs(index, with_high_bit::<4>(four_bits(quants), high), [scale; RUNS], [min; RUNS])
    }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn pack(&self, to: BlockPlanes<'_>) {
        pack_four_bits::<4>(&self.qs, to.quants);
        pack_one_bit(&self.qh, to.high);
        let (scales, mins) = scales_and_mins(&self.scales);
        to.heads.copy_from_slice(&six_bits_head([self.d, self.dmin], scales, mins));
    }
}

impl Pieces for BlockQ6_K {
    /// Quants, their high bits, scales, head.
    type Words = ([u32; 4], [u32; 2], u16, f16);
    const ONE_SCALE: bool = false;
    const OFFSET: u32 = 32;

    #[inline(always)]
    #[track_caller]
    unsafe fn load<S: Simt>(s: S, row: Global<u8>, blocks: u32, index: u32) -> Self::Words {
        let at = const { Planes::of(Format::Q6_K) }.offsets(blocks);
        // SAFETY: the caller's.
        unsafe {
            (
                of_piece(s, row, 0, index),
                of_piece(s, row, at.high, index),
                of_piece(s, row, at.scales, index),
                head_of::<Self, _, _>(s, row, at.heads, index),
            )
        }
    }

    #[inline(always)]
    fn unpack<S: Simt>(s: S, (quants, high, scales, d): Self::Words, index: u32) -> [Run; RUNS] {
        let d = s.f32_from_f16(d);
        let scales = scales.to_le_bytes().map(|scale| d * f32::from(scale.cast_signed()));
        let quants = with_two_high_bits(four_bits(quants), high);
        runs(index, quants, scales, scales.map(|scale| Self::OFFSET as f32 * scale))
    }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn pack(&self, to: BlockPlanes<'_>) {
        pack_four_bits::<8>(&self.ql, to.quants);
        pack_two_bits(&self.qh, to.high);
        to.scales.copy_from_slice(bytemuck::bytes_of(&self.scales));
        to.heads.copy_from_slice(&self.d.to_le_bytes());
    }
}

impl Pieces for BlockQ8_K {
    /// Quants, head.
    type Words = ([[u32; 4]; RUNS], f32);
    const ONE_SCALE: bool = true;
    const OFFSET: u32 = SIGNED;

    #[inline(always)]
    #[track_caller]
    unsafe fn load<S: Simt>(s: S, row: Global<u8>, blocks: u32, index: u32) -> Self::Words {
        let at = const { Planes::of(Format::Q8_K) }.offsets(blocks);
        // SAFETY: the caller's.
        unsafe { (load_eight_bits(s, row, index), head_of::<Self, _, _>(s, row, at.heads, index)) }
    }

    #[inline(always)]
    fn unpack<S: Simt>(_: S, (quants, d): Self::Words, index: u32) -> [Run; RUNS] {
        runs(index, quants, [d; RUNS], [0.0; RUNS])
    }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn pack(&self, to: BlockPlanes<'_>) {
        to.quants.copy_from_slice(bytemuck::bytes_of(&self.qs));
        to.heads.copy_from_slice(&self.d.to_le_bytes());
    }
}

/// 256 4-bit quants, which the file has in runs of `8 * LANES` bytes.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
fn pack_four_bits<const LANES: usize>(file: &[u8; 128], to: &mut [u8]) {
    pack_fields::<2, 4, LANES>(file, to);
}

/// 256 2-bit quants, which the file has in runs of 32 bytes.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
fn pack_two_bits(file: &[u8; 64], to: &mut [u8]) {
    pack_fields::<4, 1, 2>(file, to);
}

/// 256 1-bit quants, which the file has in runs of 32 bytes.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
fn pack_one_bit(file: &[u8; 32], to: &mut [u8]) {
    pack_fields::<8, 1, 1>(file, to);
}
