//! How blocks that stay share out tiles, round by round, and what the last round is cut into.

/// The parts that `tiles` tiles are worked on in, by `blocks` blocks: block `b` has parts `b`, `b + blocks`, ...
///
/// A round takes as long as one part, however few blocks have one. Where at least half of the blocks would
/// have none in the last round, its tiles are halves, and it is shorter:
///
/// ```text
/// 10 tiles, 4 blocks    block 0  1  2  3
/// round 0       tile          0  1  2  3
/// round 1                     4  5  6  7
/// the last one         8, half 0  8, half 1  9, half 0  9, half 1
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounds {
    /// Tiles that stay whole: the first ones.
    whole: u32,
    /// Those after them, which are halves.
    halved: u32,
}

impl Rounds {
    /// Those of so many tiles and blocks. No block is as one.
    #[inline(always)]
    #[must_use]
    pub const fn new(tiles: u32, blocks: u32) -> Self {
        let last = if blocks > 1 { tiles % blocks } else { 0 };
        let halved = if last <= blocks / 2 { last } else { 0 };
        Self { whole: tiles - halved, halved }
    }

    /// Parts in all.
    #[inline(always)]
    #[must_use]
    pub const fn parts(self) -> u32 {
        self.whole + 2 * self.halved
    }

    /// The tile of a part, and which half of it; none is all of it.
    #[inline(always)]
    #[must_use]
    pub const fn part(self, part: u32) -> (u32, Option<u32>) {
        if part < self.whole {
            return (part, None);
        }
        let half = part - self.whole;
        (self.whole + half / 2, Some(half % 2))
    }

    /// Rounds of so many blocks: of whole tiles, and of halves.
    #[must_use]
    pub const fn rounds(self, blocks: u32) -> [u32; 2] {
        let blocks = if blocks == 0 { 1 } else { blocks };
        [self.whole.div_ceil(blocks), (self.halved > 0) as u32]
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec;

    use super::*;

    #[test]
    fn every_tile_is_there_once_whole_or_in_two_halves() {
        for blocks in 0..9 {
            for tiles in 0..40 {
                let rounds = Rounds::new(tiles, blocks);
                let mut halves = vec![[0; 2]; tiles as usize];
                for part in 0..rounds.parts() {
                    let (tile, half) = rounds.part(part);
                    for which in [0, 1] {
                        halves[tile as usize][which] +=
                            usize::from(half.is_none_or(|half| half == which as u32));
                    }
                }
                assert!(halves.iter().all(|&of| of == [1, 1]), "{tiles} tiles, {blocks} blocks: {halves:?}");
            }
        }
    }

    #[test]
    fn halves_are_one_round_and_only_where_they_fit_in_it() {
        for blocks in 1..9 {
            for tiles in 0..40 {
                let rounds = Rounds::new(tiles, blocks);
                let last = match (tiles % blocks, 2 * (tiles % blocks) <= blocks) {
                    (0, _) => [0, 0],
                    (_, true) => [0, 1],
                    (_, false) => [1, 0],
                };
                let what = std::format!("{tiles} tiles, {blocks} blocks");
                assert_eq!(rounds.rounds(blocks), [tiles / blocks + last[0], last[1]], "{what}");
                assert!(rounds.parts() <= tiles.next_multiple_of(blocks), "{what}");
            }
        }
    }
}
