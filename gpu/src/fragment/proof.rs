//! What is proved of each map when the crate is compiled.
//!
//! These are macros because a `const fn` cannot call a function that it is given.

/// Defines a [`Fragment`](super::Fragment) from a map and its inverse.
///
/// Does not compile unless the map stays inside the tile and the inverse leads back to every
/// `(lane, i)` of the first copy, so that no two of them hold the same element, and they are as
/// many as the tile has elements: a bijection.
macro_rules! fragment {
    (
        $(#[$doc:meta])* $NAME:ident = $element:path, $holder:path;
        $($field:ident: $value:expr),* $(,)?
    ) => {
        $(#[$doc])*
        pub const $NAME: $crate::fragment::Fragment =
            $crate::fragment::Fragment { $($field: $value,)* element: $element, holder: $holder };

        // The GPU compiles the same functions: once proved is enough.
        #[cfg(not(target_arch = "nvptx64"))]
        const _: () = {
            let tile = $NAME;
            assert!(tile.lanes * tile.elements == tile.rows * tile.columns, "as many places as elements");
            let mut lane = 0;
            while lane < tile.lanes {
                let mut i = 0;
                while i < tile.elements * tile.copies {
                    let (row, column) = $element(lane, i);
                    assert!(row < tile.rows && column < tile.columns, "the map leaves the tile");
                    let (same_lane, same_i) = $holder(row, column);
                    assert!(
                        same_lane == lane && same_i == i % tile.elements,
                        "the inverse does not undo the map"
                    );
                    i += 1;
                }
                lane += 1;
            }
        };
    };
}
pub(super) use fragment;

/// Does not compile unless two lane maps are the same for `x[0..elements]` of each of `lanes` lanes.
///
/// The maps are paths of functions `const fn(lane: u32, i: u32) -> (u32, u32)`.
///
/// ```
/// use gpu::fragment::{assert_same_map, wmma};
///
/// const fn mine(lane: u32, i: u32) -> (u32, u32) {
///     let (row, column) = wmma::a(lane, i);
///     (row, column)
/// }
/// assert_same_map!(wmma::accumulator, mine; lanes: 32, elements: 8);
/// ```
///
/// With one bit wrong it is not the same map:
///
/// ```compile_fail,E0080
/// use gpu::fragment::{assert_same_map, wmma};
///
/// const fn mine(lane: u32, i: u32) -> (u32, u32) {
///     let (row, column) = wmma::a(lane, i);
///     (row, column ^ 8)
/// }
/// assert_same_map!(wmma::accumulator, mine; lanes: 32, elements: 8);
/// ```
///
/// Nor is it if only the last register of the last lane is elsewhere:
///
/// ```compile_fail,E0080
/// use gpu::fragment::{assert_same_map, wmma};
///
/// const fn mine(lane: u32, i: u32) -> (u32, u32) {
///     let (row, column) = wmma::a(lane, i);
///     (row, if lane == 31 && i == 7 { 0 } else { column })
/// }
/// assert_same_map!(wmma::accumulator, mine; lanes: 32, elements: 8);
/// ```
#[macro_export]
macro_rules! assert_same_map {
    ($left:path, $right:path; lanes: $lanes:expr, elements: $elements:expr $(,)?) => {
        // The GPU compiles the same functions: once proved is enough.
        #[cfg(not(target_arch = "nvptx64"))]
        const _: () = {
            let mut lane: u32 = 0;
            while lane < $lanes {
                let mut i: u32 = 0;
                while i < $elements {
                    let (left, right) = ($left(lane, i), $right(lane, i));
                    assert!(left.0 == right.0 && left.1 == right.1, "the lane maps differ");
                    i += 1;
                }
                lane += 1;
            }
        };
    };
}
pub use crate::assert_same_map;
