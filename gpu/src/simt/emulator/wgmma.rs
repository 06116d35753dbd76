//! Products of a warp group: where their operands lie in shared memory, and what of them is under way.

use std::format;
use std::vec::Vec;

use half::f16;

use super::arithmetic::unpack;
use super::error::Fault;
use super::mbarrier::argument;
use crate::fragment::{mma, wgmma};
use crate::simt::WARP_LANES;

/// k of a product.
const DEPTH: u32 = 16;
/// Rows of a warp.
const ROWS: u32 = 16;
/// Bytes of a row of a core matrix: eight f16.
const CHUNK_BYTES: u32 = 16;
/// The chunks of a row of an operand.
const CHUNKS: u32 = DEPTH * 2 / CHUNK_BYTES;

/// A `wgmma` as one warp does it: what all of its lanes must agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Product {
    /// The descriptor of A, of all the group's rows; `None` where A is in registers.
    pub(super) a: Option<u64>,
    /// That of B.
    pub(super) b: u64,
    /// Columns.
    pub(super) n: u32,
    /// Whether k is contiguous in A, as it is in registers, and in B.
    pub(super) k_major: [bool; 2],
}

/// Products of a warp that have been begun, and the operands of the last.
#[derive(Default)]
pub(super) struct UnderWay {
    /// The group and the product, and the warp's place in its group.
    products: Vec<(u64, Product, u32)>,
    /// Groups that are closed; also the number of the open one.
    closed: u64,
    /// A of the warp, 16 × 16.
    a: Vec<f32>,
    /// B, n × 16.
    b: Vec<f32>,
}

impl Product {
    /// The shared addresses of the 16-byte chunks that a warp reads, of A's rows and then B, in order:
    /// `warp` is its place in the group. B goes by columns where k is contiguous, and else by its rows.
    pub(super) fn chunks(self, warp: u32) -> Result<impl Iterator<Item = u32>, Fault> {
        let [a_major, b_major] = self.k_major;
        if !a_major {
            return Err(argument("an A whose columns are contiguous: the emulator plays rows".into()));
        }
        if !b_major && self.b >> 62 == 0 {
            return Err(argument("a B whose rows are contiguous, and not swizzled: it is not played".into()));
        }
        let rows = |descriptor: u64, first: u32, count: u32| {
            (first..first + count)
                .flat_map(move |row| (0..CHUNKS).map(move |chunk| chunk_at(descriptor, row, chunk)))
        };
        let a = self.a.map(|a| rows(a, ROWS * warp, ROWS));
        let (b_rows, b_chunks) = if b_major { (self.n, CHUNKS) } else { (DEPTH, self.n / 8) };
        let b = (0..b_rows).flat_map(move |row| {
            (0..b_chunks).map(move |chunk| {
                if b_major { chunk_at(self.b, row, chunk) } else { across_chunk_at(self.b, row, chunk) }
            })
        });
        Ok(a.into_iter().flatten().chain(b))
    }
}

/// Where a descriptor's tile begins, and its steps: leading, stride.
fn fields(descriptor: u64) -> [u32; 3] {
    [0, 16, 32].map(|shift| (descriptor >> shift & 0x3fff) as u32 * CHUNK_BYTES)
}

/// Chunks of a row before the pattern begins anew; none where rows stay as they are.
fn pattern(descriptor: u64) -> Option<u32> {
    [None, Some(8), Some(4), Some(2)][(descriptor >> 62) as usize]
}

/// Bits of the address itself, 128 bytes upwards, are mixed into those of the chunk.
fn swizzled(plain: u32, pattern: u32) -> u32 {
    plain ^ (plain >> 7 & (pattern - 1)) << 4
}

/// The address of a chunk along k, of row `row` of A or column `row` of B, as a descriptor says.
///
/// ISA: Matrix Descriptor Format; Strides; Swizzling Modes.
fn chunk_at(descriptor: u64, row: u32, chunk: u32) -> u32 {
    let [start, leading, stride] = fields(descriptor);
    let eights = start.wrapping_add((row / 8).wrapping_mul(stride));
    match pattern(descriptor) {
        None => eights.wrapping_add(chunk.wrapping_mul(leading)).wrapping_add(row % 8 * CHUNK_BYTES),
        Some(pattern) => {
            let row = eights.wrapping_add(row % 8 * pattern * CHUNK_BYTES);
            swizzled(row.wrapping_add(chunk * CHUNK_BYTES), pattern)
        }
    }
}

/// The address of a chunk along n, of row `k` of B: the leading step goes from one run of a pattern's chunks
/// to the next, the stride from eight rows to the next. Only where rows are swizzled.
///
/// ISA: as [`chunk_at`].
fn across_chunk_at(descriptor: u64, k: u32, chunk: u32) -> u32 {
    let [start, leading, stride] = fields(descriptor);
    let pattern = pattern(descriptor).unwrap_or(1);
    let run = start.wrapping_add((chunk / pattern).wrapping_mul(leading));
    let row = run.wrapping_add((k / 8).wrapping_mul(stride)).wrapping_add(k % 8 * pattern * CHUNK_BYTES);
    swizzled(row.wrapping_add(chunk % pattern * CHUNK_BYTES), pattern)
}

impl UnderWay {
    /// A product begins, whose [chunks](Product::chunks) hold these bytes. `registers` is A of each lane
    /// where that is in registers.
    pub(super) fn begin(
        &mut self,
        product: Product,
        warp: u32,
        bytes: &[[u8; 16]],
        registers: impl Fn(u32) -> [u32; 4],
    ) {
        let floats = |chunks: &[[u8; 16]]| -> Vec<f32> {
            let halves = chunks.iter().flat_map(|chunk| chunk.chunks_exact(2));
            halves.map(|half| f16::from_le_bytes([half[0], half[1]]).to_f32()).collect()
        };
        let of_a = if product.a.is_some() { (ROWS * CHUNKS) as usize } else { 0 };
        self.a = floats(&bytes[..of_a]);
        if product.a.is_none() {
            self.a = std::vec![0.0; (ROWS * DEPTH) as usize];
            for lane in 0..WARP_LANES {
                for i in 0..8 {
                    let (row, k) = mma::a_f16(lane, i);
                    let half = unpack(registers(lane)[(i / 2) as usize])[(i % 2) as usize];
                    self.a[(row * DEPTH + k) as usize] = f16::from_bits(half).to_f32();
                }
            }
        }
        self.b = floats(&bytes[of_a..]);
        if !product.k_major[1] {
            let rows = core::mem::take(&mut self.b);
            let column = |n: usize| rows.iter().skip(n).step_by(product.n as usize).copied();
            self.b = (0..product.n as usize).flat_map(column).collect();
        }
        self.products.push((self.closed, product, warp));
    }

    /// Adds the products of the last one's operands to a lane's accumulators, in order of k, each with one
    /// rounding.
    pub(super) fn add_to(&self, lane: u32, d: &mut [f32]) {
        for (i, d) in (0..).zip(d) {
            let (row, column) = wgmma::d(lane, i);
            let [a, b] = [(&self.a, row), (&self.b, column)]
                .map(|(matrix, row)| &matrix[(row * DEPTH) as usize..][..DEPTH as usize]);
            for (a, b) in a.iter().zip(b) {
                *d += a * b;
            }
        }
    }

    /// Closes the open group.
    pub(super) fn commit(&mut self) {
        self.closed += 1;
    }

    /// The products, with the warp's place, of all closed groups but the `pending` youngest: they are done.
    pub(super) fn done(&mut self, pending: u64) -> Vec<(Product, u32)> {
        let done = self.closed.saturating_sub(pending);
        let (over, left) = self.products.drain(..).partition(|&(group, ..)| group < done);
        self.products = left;
        over.into_iter().map(|(_, product, warp)| (product, warp)).collect()
    }

    /// That the accumulators are not those of a product under way.
    pub(super) fn check_none(&self) -> Result<(), Fault> {
        match self.products.len() {
            0 => Ok(()),
            products => Err(argument(format!("{products} wgmma are never waited for"))),
        }
    }
}
