//! What a product writes, and how a lane's sums get there.

use bytemuck::Zeroable;

use super::tiling::{Sums, Tiling};
use crate::fragment::wmma;
use crate::quant::f16;
use crate::simt::{Global, Simt, Word};

/// What a product's sums are stored as.
pub trait Element: Word + Zeroable {
    /// Two neighbours, the lower column first.
    type Pair: Word;
    /// Bytes that a matrix of them is aligned to.
    const ALIGN: usize;

    /// A sum as it is stored.
    fn of<S: Simt>(s: S, sum: f32) -> Self;

    /// Two of them.
    fn pair<S: Simt>(s: S, sums: [f32; 2]) -> Self::Pair;

    /// As [`Output::store_pairs`], in the way that is best where whole warps have rows: four lanes that follow
    /// each other have pairs that do.
    ///
    /// # Safety
    /// As `store_pairs`; all lanes of the warp do so.
    #[inline(always)]
    #[track_caller]
    unsafe fn store_of_warp<S: Simt>(
        s: S,
        output: Output<Self>,
        place: [u32; 2],
        count: [usize; 2],
        pair: impl Fn(usize, usize) -> [f32; 2],
    ) {
        // SAFETY: the caller's.
        unsafe { output.store_pairs(s, place, count, pair) }
    }
}

impl Element for f32 {
    type Pair = [f32; 2];
    const ALIGN: usize = size_of::<Self::Pair>();

    #[inline(always)]
    fn of<S: Simt>(_: S, sum: f32) -> f32 {
        sum
    }

    #[inline(always)]
    fn pair<S: Simt>(_: S, sums: [f32; 2]) -> [f32; 2] {
        sums
    }
}

/// Rounded to nearest even; what is too large becomes infinite.
impl Element for f16 {
    type Pair = u32;
    const ALIGN: usize = size_of::<[Self::Pair; 4]>();

    #[inline(always)]
    #[track_caller]
    fn of<S: Simt>(s: S, sum: f32) -> f16 {
        s.f16_from_f32(sum)
    }

    #[inline(always)]
    #[track_caller]
    fn pair<S: Simt>(s: S, [low, high]: [f32; 2]) -> u32 {
        s.f16x2_from_f32(low, high)
    }

    /// Eight pairs side by side would be half a sector: they are exchanged first.
    #[inline(always)]
    #[track_caller]
    unsafe fn store_of_warp<S: Simt>(
        s: S,
        output: Output<f16>,
        place: [u32; 2],
        count: [usize; 2],
        pair: impl Fn(usize, usize) -> [f32; 2],
    ) {
        // SAFETY: the caller's.
        unsafe {
            if output.n.is_multiple_of(EIGHT) {
                output.store_exchanged(s, place, count, pair);
            } else {
                output.store_pairs(s, place, count, pair);
            }
        }
    }
}

/// Columns that four lanes have in a row of an eighth of an accumulator: a pair each.
const EIGHT: u32 = 8;
/// Lanes that have pairs of the same row.
const QUAD: u32 = 4;

/// A tile's results on their way out.
#[derive(Clone, Copy)]
pub struct Output<E> {
    /// `m × n`.
    pub out: Global<E>,
    /// `n`, or address 0 for none.
    pub bias: Global<f32>,
    pub m: u32,
    pub n: u32,
}

impl<E: Element> Output<E> {
    /// Adds the bias and stores a warp's sums, from `row` and `column` on, as far as there is an
    /// output. A lane has pairs of neighbours, which are one store where pairs are aligned.
    ///
    /// # Safety
    /// No other warp has these elements.
    #[inline(always)]
    #[track_caller]
    pub(super) unsafe fn store<S: Simt>(self, s: S, tiling: Tiling, sums: &Sums, row: u32, column: u32) {
        let (down, right) = wmma::accumulator(s.lane(), 0);
        let eighths = [2 * tiling.fragments_m(), 2 * tiling.fragments_n()];
        let pair = |i: usize, j: usize| {
            let first = 4 * (j % 2) + 2 * (i % 2);
            [sums[i / 2][j / 2][first], sums[i / 2][j / 2][first + 1]]
        };
        // SAFETY: the caller's.
        unsafe { self.store_pairs(s, [row + down, column + right], eighths, pair) }
    }

    /// Adds the bias and stores a lane's sums as far as there is an output: `pair(i, j)` stands 8 `i` rows
    /// below and 8 `j` columns beside the place given, an even column. Pairs are one store where they are
    /// aligned.
    ///
    /// # Safety
    /// No other lane has these elements.
    #[inline(always)]
    #[track_caller]
    pub(super) unsafe fn store_pairs<S: Simt>(
        self,
        s: S,
        [row, column]: [u32; 2],
        [rows, columns]: [usize; 2],
        pair: impl Fn(usize, usize) -> [f32; 2],
    ) {
        let pairs = self.n.is_multiple_of(2);
        for j in 0..columns {
            let column = column + EIGHT * j as u32;
            if column >= self.n {
                continue;
            }
            let both = column + 1 < self.n;
            // SAFETY: columns of the output, as far as they exist; the caller's for the stores.
            unsafe {
                let bias = self.load_bias(s, column, both);
                for i in 0..rows {
                    let row = row + EIGHT * i as u32;
                    if row >= self.m {
                        continue;
                    }
                    let [first, second] = pair(i, j);
                    let values = [first + bias[0], second + bias[1]];
                    let to = self.out.row(row, self.n).at(u64::from(column));
                    if pairs {
                        s.store_global(to.cast(), E::pair(s, values));
                    } else {
                        s.store_global(to, E::of(s, values[0]));
                        if both {
                            s.store_global(to.at(1), E::of(s, values[1]));
                        }
                    }
                }
            }
        }
    }

    /// What is added to `column` and, where `both` exist, to the next; else 0.
    ///
    /// # Safety
    /// The column exists.
    #[inline(always)]
    #[track_caller]
    unsafe fn load_bias<S: Simt>(&self, s: S, column: u32, both: bool) -> [f32; 2] {
        let mut bias = [0.0; 2];
        if self.bias.address() != 0 {
            let from = self.bias.at(u64::from(column));
            // SAFETY: the caller's.
            unsafe {
                bias[0] = s.load_global_constant(from);
                if both {
                    bias[1] = s.load_global_constant(from.at(1));
                }
            }
        }
        bias
    }
}

impl Output<f16> {
    /// As [`store_pairs`](Self::store_pairs) where `n` is a multiple of 8 and out aligned to 16 bytes, all lanes
    /// of a warp with their quad's place in the first pair's column: lanes exchange pairs until each has eight
    /// neighbours, 16 bytes.
    ///
    /// ```text
    /// pairs     columns 0   2   4   6    8   10  12  14   16 ..      after
    /// of lane   row r   0   1   2   3    0   1   2   3    0           lane 0: columns 0..8, lane 1: 8..16, ...
    /// ```
    ///
    /// # Safety
    /// As `store_pairs`.
    #[inline(always)]
    #[track_caller]
    pub(super) unsafe fn store_exchanged<S: Simt>(
        self,
        s: S,
        [row, column]: [u32; 2],
        [rows, columns]: [usize; 2],
        pair: impl Fn(usize, usize) -> [f32; 2],
    ) {
        let place = s.lane() % QUAD;
        let first = column - 2 * place;
        for group in (0..columns).step_by(4) {
            let four = columns - group >= 4;
            // The same for all lanes of the warp.
            if first + EIGHT * group as u32 >= self.n {
                continue;
            }
            let word = |i: usize, j: usize| {
                let column = column + EIGHT * (group + j) as u32;
                // SAFETY: with one column of a chunk all of it exist.
                let bias =
                    if column < self.n { unsafe { self.load_bias(s, column, true) } } else { [0.0; 2] };
                let [low, high] = pair(i, group + j);
                s.f16x2_from_f32(low + bias[0], high + bias[1])
            };
            for i in (0..rows).step_by(if four { 1 } else { 2 }) {
                // The last two eighths of an odd number of twos: of two rows at a time.
                let (words, down, right) = if four {
                    ([word(i, 0), word(i, 1), word(i, 2), word(i, 3)], 0, place)
                } else {
                    ([word(i, 0), word(i, 1), word(i + 1, 0), word(i + 1, 1)], place / 2, place % 2)
                };
                let chunk = transposed(s, words);
                let row = row + EIGHT * (i as u32 + down);
                let column = first + EIGHT * (group as u32 + right);
                if row < self.m && column < self.n {
                    // SAFETY: a whole chunk of the output; the caller's.
                    unsafe { s.store_global(self.out.row(row, self.n).at(u64::from(column)).cast(), chunk) };
                }
            }
        }
    }
}

/// Of four lanes' four words each: what lane `l` gives as its `i`-th is lane `i`'s `l`-th.
#[inline(always)]
#[track_caller]
fn transposed<S: Simt>(s: S, [a, b, c, d]: [u32; 4]) -> [u32; 4] {
    // A lane keeps the word on its own side, and gets the one on that side of the lane `by` beside.
    let swap = |low: u32, high: u32, by: u32| {
        let up = s.lane() & by != 0;
        let other = s.shuffle_xor(if up { low } else { high }, by);
        if up { (other, high) } else { (low, other) }
    };
    let ((a, b), (c, d)) = (swap(a, b, 1), swap(c, d, 1));
    let ((a, c), (b, d)) = (swap(a, c, 2), swap(b, d, 2));
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;
    use crate::product::{MatmulF16Wgmma, Panels};
    use crate::simt::Kernel;
    use crate::simt::emulator::{Emulator, Lane, Memory};

    /// Rows of small integers, so that sums are exact, and many of them not f16.
    fn rows(rows: u32, columns: u32, seed: u32) -> Vec<i32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 25) as i32 - 40
        };
        (0..rows * columns).map(|_| next()).collect()
    }

    /// A matrix in panels; rows that it does not have are NaN.
    fn panels(values: &[i32], rows: u32, columns: u32) -> Vec<u8> {
        let layout = Panels::new(columns);
        let mut bytes = std::vec![0xff; layout.bytes(rows) as usize];
        for row in 0..rows {
            for column in 0..layout.padded_columns() {
                let value = if column < columns { values[(row * columns + column) as usize] } else { 0 };
                let at = layout.element(row, column) as usize;
                bytes[at..at + 2].copy_from_slice(&f16::from_f32(value as f32).to_le_bytes());
            }
        }
        bytes
    }

    fn product<const REGISTERS: usize, E: Element>([m, n, k]: [u32; 3], biased: bool) -> (Vec<E>, Vec<f32>)
    where
        MatmulF16Wgmma<REGISTERS, E>: for<'b> Kernel<Lane<'b>>,
    {
        let (a, b) = (rows(m, k, 5), rows(n, k, 7));
        let bias: Vec<f32> = (0..n).map(|column| if biased { column as f32 } else { 0.0 }).collect();
        let exact = |i: u32| {
            let (row, column) = (i / n, i % n);
            let products = (0..k).map(|at| a[(row * k + at) as usize] * b[(column * k + at) as usize]);
            products.sum::<i32>() as f32 + bias[column as usize]
        };
        let expected = (0..m * n).map(exact).collect();
        let mut memory = Memory::new();
        let kernel = MatmulF16Wgmma::<REGISTERS, E> {
            out: memory.output("out", (m * n) as usize),
            input: memory.input("input", &panels(&a, m, k)),
            weights: memory.input("weights", &panels(&b, n, k)),
            bias: if biased { memory.input("bias", &bias) } else { Global::zeroed() },
            m,
            n,
            k,
            blocks: 2,
        };
        let what = || std::format!("{m} × {n} × {k} by {REGISTERS}");
        Emulator::new().launch(&mut memory, kernel).unwrap_or_else(|error| panic!("{}: {error}", what()));
        memory.check_written_once(kernel.out).unwrap_or_else(|fault| panic!("{}: {fault}", what()));
        (memory.values(kernel.out), expected)
    }

    fn both_kinds<const REGISTERS: usize>(shape: [u32; 3], biased: bool) {
        let (found, expected) = product::<REGISTERS, f32>(shape, biased);
        assert_eq!(found, expected, "{shape:?}, {REGISTERS}");
        let (found, expected) = product::<REGISTERS, f16>(shape, biased);
        let rounded: Vec<f16> = expected.iter().map(|&sum| f16::from_f32(sum)).collect();
        assert!(
            rounded.iter().zip(&expected).any(|(half, &sum)| half.to_f32() != sum),
            "something is rounded"
        );
        assert_eq!(found, rounded, "{shape:?}, {REGISTERS}");
    }

    #[test]
    fn f16_is_what_f32_is_rounded_to() {
        // Chunks, pairs, and single elements; tiles of 240 that begin in the middle of panels, and end beyond
        // the last one.
        for (shape, biased) in [
            ([9, 8, 100], true),
            ([130, 744, 72], true),
            ([70, 250, 64], false),
            ([3, 513, 136], true),
            ([1, 1024, 64], false),
        ] {
            both_kinds::<64>(shape, biased);
            both_kinds::<120>(shape, biased);
            both_kinds::<128>(shape, biased);
        }
    }
}
