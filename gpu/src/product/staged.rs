//! Operands in shared memory: rows in chunks of 16 bytes, so placed that nobody waits for a bank.

use crate::fragment::ldmatrix::{a_address, b_address};
use crate::simt::{ColMajor, Global, RowMajor, Shared, Simt};

/// Bytes of a chunk: what one lane moves at a time, and one row of what `ldmatrix` loads.
pub(super) const CHUNK_BYTES: u32 = 16;
/// Bytes of a row: what passes through all banks once.
pub(super) const ROW_BYTES: u32 = 128;
/// Chunks of a row.
const CHUNKS: u32 = ROW_BYTES / CHUNK_BYTES;

/// Rows of [`ROW_BYTES`] bytes in shared memory, from a multiple of as many on.
///
/// A row's chunk `c` lies in another place of each row, `c ^ r % 8`:
///
/// ```text
/// place  0  1  2  3  4  5  6  7
/// row 0  0  1  2  3  4  5  6  7
/// row 1  1  0  3  2  5  4  7  6
/// :
/// row 7  7  6  5  4  3  2  1  0
/// ```
///
/// So eight rows of one chunk, which is what `ldmatrix` loads and eight lanes store at a time, lie
/// in eight different places, and nothing conflicts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Staged(Shared<u8>);

impl Staged {
    /// Rows from `start` on.
    #[inline(always)]
    pub(super) const fn at(start: Shared<u8>) -> Self {
        Self(start)
    }

    /// A chunk of a row.
    #[inline(always)]
    pub(super) const fn chunk<T>(self, row: u32, chunk: u32) -> Shared<T> {
        let place = chunk ^ (row % CHUNKS);
        self.0.row(row, ROW_BYTES).at(place * CHUNK_BYTES).cast()
    }

    /// Where a lane points to load the first 32 bytes of 16 rows as a left operand, from `row` on, a
    /// multiple of 16.
    #[inline(always)]
    pub(super) const fn left(self, lane: u32, row: u32) -> Shared<u8> {
        let (down, right) = a_address::<RowMajor>(lane);
        self.chunk(row + down, right / 8)
    }

    /// The same for a right operand whose columns are the staged rows.
    #[inline(always)]
    pub(super) const fn right(self, lane: u32, row: u32) -> Shared<u8> {
        let (down, right) = b_address::<ColMajor>(lane);
        self.chunk(row + down, right / 8)
    }

    /// The operand that is `rows` rows, a multiple of 16, below, and `k` times 32 bytes further on.
    #[inline(always)]
    pub(super) const fn operand(first: Shared<u8>, rows: u32, k: u32) -> Shared<u8> {
        // A lane's first chunk is an even one or the next: k counts in the bits above.
        Shared::<u8>::from_address(first.address() ^ (k * 2 * CHUNK_BYTES)).row(rows, ROW_BYTES)
    }

    /// Begins to copy `rows` rows of a matrix, by all of the block's `threads`. What the matrix does
    /// not have becomes zero.
    ///
    /// # Safety
    /// All threads of the block call this alike; nobody uses these rows until the copies have been
    /// waited for. Columns of the matrix that exist are whole chunks.
    #[inline(always)]
    #[track_caller]
    pub(super) unsafe fn copy<S: Simt>(self, s: S, threads: u32, rows: u32, from: Rows) {
        let rows_at_once = threads / CHUNKS;
        let (row, chunk) = (s.thread() / CHUNKS, s.thread() % CHUNKS);
        let column = from.column + chunk * CHUNK_BYTES;
        let mut source = from.matrix.row(from.row + row, from.stride).at(u64::from(column));
        // How many of the rows below have this chunk. One number for all of them, and another one in
        // every slab: what stays the same for a row would be kept in a register.
        let left = if column < from.columns { from.rows.saturating_sub(from.row + row) } else { 0 };
        for down in (0..rows).step_by(rows_at_once as usize) {
            let to = self.chunk::<u8>(row, chunk).row(down, ROW_BYTES);
            let valid = if down < left { CHUNK_BYTES } else { 0 };
            // SAFETY: the caller's; nothing is read where there is no chunk.
            unsafe { s.copy_async::<CHUNK_BYTES, _>(to, source, valid) };
            // One after the other: multiples of the stride would each take two registers.
            source = source.row(rows_at_once, from.stride);
        }
    }
}

/// Rows of a matrix that are to be staged, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    pub matrix: Global<u8>,
    /// From one row to the next.
    pub stride: u32,
    /// Rows of the matrix.
    pub rows: u32,
    /// Columns of the matrix.
    pub columns: u32,
    /// The first row.
    pub row: u32,
    /// The first column.
    pub column: u32,
}
