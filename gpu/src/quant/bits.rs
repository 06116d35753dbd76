//! The bit packings that the block formats share.

/// Unpacks fields of `BITS` bits, each into a byte of its own.
///
/// Every packed array of the GGUF formats is a sequence of runs of `RUN` bytes. The values of a
/// run are first the lowest field of each of its bytes, then the next field of each, and so on.
/// With 4 bits and runs of 16 bytes:
///
/// ```text
///            byte 0        byte 1              byte 15
/// bits 7..4 | value 16    | value 17    | ... | value 31 |
/// bits 3..0 | value 0     | value 1     | ... | value 15 |
/// ```
///
/// `BITS` is 1, 2 or 4, `BYTES` a multiple of `RUN`, and `VALUES` = `BYTES` * 8 / `BITS`; anything
/// else does not compile.
///
/// Always inlined, so that it is compiled for the caller's instruction set.
#[inline(always)]
#[must_use]
pub fn unpack<const BITS: usize, const RUN: usize, const BYTES: usize, const VALUES: usize>(
    bytes: &[u8; BYTES],
) -> [u8; VALUES] {
    const {
        assert!(matches!(BITS, 1 | 2 | 4));
        assert!(BYTES.is_multiple_of(RUN) && VALUES == BYTES * 8 / BITS);
    }
    let mask = const { (1 << BITS) - 1 };
    let mut values = [0; VALUES];
    let (runs, _) = bytes.as_chunks::<RUN>();
    let (fields, _) = values.as_chunks_mut::<RUN>();
    for (run, fields) in runs.iter().zip(fields.chunks_exact_mut(8 / BITS)) {
        for (field, shift) in fields.iter_mut().zip((0..8).step_by(BITS)) {
            for (value, byte) in field.iter_mut().zip(run) {
                *value = (byte >> shift) & mask;
            }
        }
    }
    values
}

/// The signed value of a field of at most seven bits that is stored with `offset` added.
#[inline]
#[must_use]
pub const fn centred(stored: u8, offset: i8) -> i8 {
    // Seven bits never wrap; saying so leaves no overflow check in a kernel.
    (stored as i8).wrapping_sub(offset)
}

/// The eight 6-bit scales and the eight 6-bit mins of a Q4_K or Q5_K block.
///
/// Twelve bytes, for `j` in 0..4 (the number is that of the sub-block):
///
/// ```text
///            bits 7..6              bits 5..0
/// byte j    | scale j+4, high two  | scale j                |
/// byte j+4  | min j+4, high two    | min j                  |
///            bits 7..4              bits 3..0
/// byte j+8  | min j+4, low four    | scale j+4, low four    |
/// ```
#[inline]
#[must_use]
pub fn scales_and_mins(packed: &[u8; 12]) -> ([u8; 8], [u8; 8]) {
    let mut scales = [0; 8];
    let mut mins = [0; 8];
    for j in 0..4 {
        scales[j] = packed[j] & 0x3F;
        mins[j] = packed[j + 4] & 0x3F;
        scales[j + 4] = (packed[j + 8] & 0x0F) | ((packed[j] >> 6) << 4);
        mins[j + 4] = (packed[j + 8] >> 4) | ((packed[j + 4] >> 6) << 4);
    }
    (scales, mins)
}

/// The sixteen 6-bit scales of a Q3_K block, from -32 to 31.
///
/// Scale `j`'s low four bits are a half of byte `j % 8` (the lower half for `j` < 8), its high two
/// are field `j / 4` of byte `8 + j % 4`; stored with 32 added.
#[inline]
#[must_use]
pub fn q3_k_scales(packed: &[u8; 12]) -> [i8; 16] {
    let [l0, l1, l2, l3, l4, l5, l6, l7, high @ ..] = packed;
    let low: [u8; 16] = unpack::<4, 8, _, _>(&[*l0, *l1, *l2, *l3, *l4, *l5, *l6, *l7]);
    let high: [u8; 16] = unpack::<2, 4, _, _>(high);
    core::array::from_fn(|j| centred(low[j] | (high[j] << 4), 32))
}

/// The eight 6-bit scales of an IQ4_XS block, from -32 to 31.
///
/// Scale `j`'s low four bits are nibble `j` of `low`, its high two are bits `2j` and `2j + 1` of
/// `high`, both counted from the lowest bit; stored with 32 added.
#[inline]
#[must_use]
pub fn iq4_xs_scales(low: &[u8; 4], high: u16) -> [i8; 8] {
    let low: [u8; 8] = unpack::<4, 1, _, _>(low);
    let high: [u8; 8] = unpack::<2, 1, _, _>(&high.to_le_bytes());
    core::array::from_fn(|j| centred(low[j] | (high[j] << 4), 32))
}

/// `scale * q - min` for each value of a super-block of 256, with a scale and a min for each of
/// its sub-blocks of `SUB` values.
///
/// Formats without mins pass zeros: subtracting +0.0 changes no bit of any product.
#[inline]
pub(super) fn scale_sub_blocks<const SUB: usize, const SUBS: usize, Q: Copy + Into<f32>>(
    quants: &[Q; 256],
    scales: [f32; SUBS],
    mins: [f32; SUBS],
) -> [f32; 256] {
    const { assert!(SUB * SUBS == 256) };
    let mut values = [0.0; 256];
    let (value_subs, _) = values.as_chunks_mut::<SUB>();
    let (quant_subs, _) = quants.as_chunks::<SUB>();
    for (((values, quants), scale), min) in value_subs.iter_mut().zip(quant_subs).zip(scales).zip(mins) {
        for (value, quant) in values.iter_mut().zip(quants) {
            *value = scale * (*quant).into() - min;
        }
    }
    values
}
