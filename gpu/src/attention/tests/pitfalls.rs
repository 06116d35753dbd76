//! The pitfalls of `fa_prefill_f16kv`, each fallen into on purpose, and how it shows. They are
//! those that the kernel's sources tell of (r48 and r50, pitfalls; r57, the guarded copy).
//!
//! The kernel is put together here a second time, from its own parts, with the one that a pitfall
//! is about in the wrong way. The module belongs to the kernel's file, whose parts are private.

use std::vec::Vec;

use super::*;
use crate::attention::tests::{INPUTS, compare, prepare, reference::Case};
use crate::simt::emulator::{Emulator, EmulatorError, Fault, Lane, Place as Address};

type Right = FaPrefillF16kv<128>;

/// What is done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pitfall {
    None,
    /// K is loaded like V: both right operands row major.
    KeysRowMajor,
    /// The copies step as if there were 256 threads.
    StrideOf256Threads,
    /// A row's mask is that of the lane's first column, for all of the lane's columns.
    MaskPerRow,
    /// The copy of the last rows stands where only warps with a whole tile of rows come by, and
    /// steps as if all threads did.
    CopyInsideWarpGuard,
}

/// The kernel with a pitfall.
#[derive(Clone, Copy)]
struct Fallen {
    kernel: Right,
    pitfall: Pitfall,
}

impl Contract for Fallen {
    const NAME: &'static str = "fa_prefill_f16kv with a pitfall";
    const EXPECTATIONS: Expectations = Right::EXPECTATIONS;

    fn launch(&self) -> Launch {
        self.kernel.launch()
    }
}

impl<'b> Kernel<Lane<'b>> for Fallen {
    unsafe fn run(self, s: Lane<'b>) {
        let kernel = self.kernel;
        let place = kernel.place(s);
        let mut rows = Rows { max: [f32::NEG_INFINITY; 2], sum: [0.0; 2], out: [[0.0; 8]; MOST_OUT] };
        // SAFETY: the emulator checks every access.
        unsafe {
            self.stage(s, 0, kernel.queried(s.block().x, place), 64);
            for tile in place.tiles.0..place.tiles.1 {
                self.stage(s, Right::GEOMETRY.keys(0), kernel.cached(kernel.0.keys, place, tile), 32);
                self.stage(s, Right::GEOMETRY.values(0), kernel.cached(kernel.0.values, place, tile), 32);
                s.copy_async_commit();
                s.copy_async_wait::<0>();
                s.barrier();
                let mut scores = if self.pitfall == Pitfall::KeysRowMajor {
                    scores_of_keys_row_major(s)
                } else {
                    kernel.scores(s, 0)
                };
                if self.pitfall == Pitfall::MaskPerRow {
                    mask_per_row(&kernel.0, s, place, tile, &mut scores);
                } else {
                    kernel.mask(s, place, tile, &mut scores);
                }
                let p = kernel.softmax(s, scores, &mut rows);
                kernel.accumulate(s, place, 0, &p, &mut rows);
                s.barrier();
            }
            kernel.finish(s, &mut rows);
            if self.pitfall == Pitfall::CopyInsideWarpGuard && kernel.0.tokens - place.first_row < 64 {
                store_inside_warp_guard(&kernel.0, s, place, &rows);
            } else {
                kernel.store(s, place, &rows);
            }
        }
    }
}

impl Fallen {
    /// # Safety
    /// As [`FaPrefillF16kv::stage_rows`].
    unsafe fn stage(&self, s: Lane<'_>, to: u32, source: Source, rows: u32) {
        let threads = if self.pitfall == Pitfall::StrideOf256Threads { 256 } else { 128 };
        // SAFETY: the caller's.
        unsafe { Right::stage_rows(s, s.shared().at(to), source, rows, 0..threads) };
    }
}

/// `Q · K` where `Q · Kᵀ` is meant: the 16 × 16 tiles of K taken as (d, position).
///
/// # Safety
/// As [`FaPrefillF16kv::scores`].
unsafe fn scores_of_keys_row_major(s: Lane<'_>) -> Scores {
    let g = Right::GEOMETRY;
    let mut scores = [[0.0; 8]; MOST_SCORES];
    for d in (0..g.head_size).step_by(16) {
        for (i, scores) in scores[..2].iter_mut().enumerate() {
            // SAFETY: the caller's.
            unsafe {
                let queries = s.shared().row(s.warp() * 16, g.stride()).at(d);
                let q: MatrixA<RowMajor> = s.wmma_load_a(queries, g.stride());
                let keys = s.shared().at(g.keys(0)).row(i as u32 * 16, g.stride()).at(d);
                let k: MatrixB<RowMajor> = s.wmma_load_b(keys, g.stride());
                *scores = s.wmma_mma(q, k, *scores);
            }
        }
    }
    scores
}

fn mask_per_row(problem: &Attention, s: Lane<'_>, place: Place, tile: u32, scores: &mut Scores) {
    for fragment in scores {
        for i in 0..8 {
            let (row, _) = wmma::accumulator(s.lane(), i);
            let (_, first_column) = wmma::accumulator(s.lane(), 0);
            let row = problem.start + place.first_row + s.warp() * 16 + row;
            if !problem.sight.reaches(distance(row, tile * 32 + first_column)) {
                fragment[i as usize] = f32::NEG_INFINITY;
            }
        }
    }
}

/// # Safety
/// As [`FaPrefillF16kv::store`].
unsafe fn store_inside_warp_guard(problem: &Attention, s: Lane<'_>, place: Place, rows: &Rows) {
    let stride = problem.heads() * 128;
    let staged = s.shared::<f32>();
    let present = problem.tokens - place.first_row;
    // SAFETY: the caller's.
    unsafe {
        for (i, &fragment) in rows.out[..8].iter().enumerate() {
            let tile = staged.row(s.warp() * 16, 128).at(16 * i as u32);
            s.wmma_store_shared::<RowMajor>(tile, 128, fragment);
        }
        s.barrier();
        if (s.warp() + 1) * 16 <= present {
            let out = problem.out.row(place.first_row, stride).at(u64::from(s.block().x * 128));
            store_rows::<128, _>(s, staged, out, stride, present, 128);
        }
    }
}

/// What comes of a case with a pitfall: the output, whether each element of it was written, or
/// what the emulator found.
fn fall(case: &Case, pitfall: Pitfall) -> Result<(Vec<f32>, bool), EmulatorError> {
    let (mut memory, problem) = prepare(case, &case.inputs(INPUTS));
    let kernel = Fallen { kernel: FaPrefillF16kv(problem), pitfall };
    Emulator::new().seed(5).launch(&mut memory, kernel)?;
    let whole = memory.check_written_once(problem.out).is_ok();
    Ok((memory.values(problem.out), whole))
}

/// The largest error of an output that is whole.
fn worst(case: &Case, pitfall: Pitfall) -> f64 {
    let (out, whole) = fall(case, pitfall).unwrap_or_else(|error| panic!("{error}"));
    assert!(whole, "{pitfall:?}: elements were not written, or twice");
    compare(&out, &case.attention(&case.inputs(INPUTS)))
}

/// Two tiles of positions, two of rows, the last not full.
fn case() -> Case {
    Case { kv_heads: 1, ..Case::prompt(128, 100) }
}

#[test]
fn without_a_pitfall_the_parts_are_the_kernel() {
    assert!(worst(&case(), Pitfall::None) <= 1e-4);
}

/// The kernel runs, and its numbers look like numbers: an error of the 0.1 class, where rounding
/// makes one of the 1e-4 class.
#[test]
fn keys_and_values_both_row_major_are_another_product() {
    let error = worst(&case(), Pitfall::KeysRowMajor);
    assert!((0.05..2.0).contains(&error), "{error}");
}

/// Half of every tile is never copied.
#[test]
fn a_stride_for_256_threads_leaves_rows_uninitialized() {
    let Err(error) = fall(&case(), Pitfall::StrideOf256Threads) else { panic!("it is not found") };
    let Fault::Uninitialized { place: Address::Shared { offset, .. } } = *error.fault else {
        panic!("{error}")
    };
    // 256 threads copy 16 rows at a time, 128 of them the first eight: row 8 is the first missing.
    assert_eq!(offset as u32 / (Right::GEOMETRY.stride() * 2) % 16, 8, "{error}");
}

/// A lane's columns are scattered: 2t and 2t + 1 of every eight.
#[test]
fn a_mask_for_a_row_as_a_whole_lets_the_future_in() {
    let error = worst(&case(), Pitfall::MaskPerRow);
    assert!((1e-2..2.0).contains(&error), "{error}");
}

/// 36 of the last 64 rows exist. Two warps have all of their rows and copy what falls to them, the
/// other two nothing, and every other run of 64 elements stays as it was.
#[test]
fn a_copy_inside_a_warp_guard_leaves_output_unwritten() {
    let (out, whole) = fall(&case(), Pitfall::CopyInsideWarpGuard).unwrap_or_else(|error| panic!("{error}"));
    assert!(!whole, "it is not found");
    let unwritten = out.iter().filter(|x| x.is_nan()).count();
    // Half of the rows of the tile that is not full.
    assert_eq!(unwritten, 36 * 128 / 2);
}

/// With tiles of 16 positions O takes more than what it is laid over.
#[test]
fn o_that_does_not_count_in_the_maximum_is_out_of_bounds() {
    type Narrow = FaPrefillF16kv<128, 64, 16>;
    let (mut memory, problem) = prepare(&case(), &case().inputs(INPUTS));
    let kernel: Narrow = FaPrefillF16kv(problem);
    let short = Launch { shared_bytes: Narrow::GEOMETRY.staging_bytes(), ..kernel.launch() };
    let Err(error) = Emulator::new().launch_as(&mut memory, kernel, short) else { panic!("not found") };
    let Fault::OutOfBounds { place: Address::Shared { offset, size }, bytes } = *error.fault else {
        panic!("{error}")
    };
    assert!(size == short.shared_bytes && offset + i64::from(bytes) > i64::from(size), "{error}");
}
