//! A colour for each lane: a hue for each group of four lanes, a shade for each lane of a group.
//!
//! The lanes of a row of A or of an accumulator thus have one hue. Beyond 32 lanes, the four warps
//! of a warpgroup, the colours repeat.

/// Hues evenly apart and shades of even lightness (OKLCH); black is readable on all of them.
const RGB: [[&str; 4]; 8] = [
    ["#ffe6e5", "#ffcac8", "#ffa9a9", "#fa8486"],
    ["#ffe7d8", "#ffcdac", "#ffaf78", "#f19149"],
    ["#f7edce", "#ecd89b", "#dfc264", "#cda820"],
    ["#e1f4d8", "#c2e6af", "#a3d587", "#83c05e"],
    ["#d0f7ed", "#9cebd9", "#5fddc4", "#01c8ac"],
    ["#d4f3ff", "#a0e5ff", "#62d4fd", "#00bef0"],
    ["#e6ecff", "#ccd8ff", "#afc1ff", "#90a6ff"],
    ["#fce4fd", "#f5c7f7", "#eba9ee", "#da8ade"],
];

/// Their like among the 256 colours of terminals.
const INDEXED: [[u8; 4]; 8] = [
    [224, 217, 210, 203],
    [223, 216, 215, 208],
    [230, 228, 227, 220],
    [194, 157, 120, 83],
    [158, 122, 86, 43],
    [195, 159, 123, 39],
    [189, 147, 111, 69],
    [225, 219, 213, 171],
];

/// Lanes that have colours of their own.
pub(in crate::cli) const LANES: u32 = 32;

fn group_and_place(lane: u32) -> (usize, usize) {
    ((lane / 4 % 8) as usize, (lane % 4) as usize)
}

/// The lane's colour as `#rrggbb`.
pub(in crate::cli) fn rgb(lane: u32) -> &'static str {
    let (group, place) = group_and_place(lane);
    RGB[group][place]
}

/// The lane's colour as a number of the terminal's 256.
pub(super) fn indexed(lane: u32) -> u8 {
    let (group, place) = group_and_place(lane);
    INDEXED[group][place]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_lanes_share_a_colour() {
        assert_eq!((0..LANES).map(rgb).collect::<HashSet<_>>().len(), 32);
        assert_eq!((0..LANES).map(indexed).collect::<HashSet<_>>().len(), 32);
        assert_eq!((rgb(37), indexed(37)), (rgb(5), indexed(5)));
    }
}
