//! How large an experiment is, before anything is allocated.

use super::kernel::Kernel;
use super::run::Options;

/// The most bytes of the host's memory that an experiment on the emulator may take: 2 GiB.
pub const EMULATED_BYTES: u128 = 2 << 30;
/// The most bytes of the host's memory beside a device: 16 GiB.
pub const HOST_BYTES: u128 = 16 << 30;
/// Tiles that two cores play on the emulator in about two minutes, as [`Options::tiles`] counts them.
pub const EMULATED_TILES: u128 = 40_000;

/// Outputs of the prompt that the host holds at a time: of three kernels, and of a second run.
const OUTPUTS: u128 = 4;

impl Options {
    /// Bytes of the prompt's inputs, and of one output.
    fn prompt_bytes(&self) -> [u128; 2] {
        let [heads, kv_heads, head_size] = self.heads.map(|number| number as u128);
        let tokens = self.tokens as u128;
        // f16 of Q, K and V; f32 of the output.
        [2 * tokens * (heads + 2 * kv_heads) * head_size, 4 * tokens * heads * head_size]
    }

    /// Bytes of the host's memory: inputs, outputs, and the reference in f64.
    #[must_use]
    pub fn host_bytes(&self) -> u128 {
        let [heads, kv_heads, head_size] = self.heads.map(|number| number as u128);
        let [inputs, output] = self.prompt_bytes();
        let rows: u128 = self.shapes.iter().map(|&(tokens, _)| tokens as u128).sum();
        let positions: u128 = self.shapes.iter().map(|&(tokens, start)| (tokens + start) as u128).sum();
        let ragged = 2 * (rows * heads + 2 * positions * kv_heads) * head_size;
        let reference = 8 * (rows + self.sampled.min(self.tokens) as u128) * heads * head_size;
        inputs + OUTPUTS * output + ragged + reference
    }

    /// Bytes of a device's memory: when it is timed, the prompt is there twice.
    #[must_use]
    pub fn device_bytes(&self) -> u128 {
        2 * self.prompt_bytes().iter().sum::<u128>()
    }

    /// Tiles that the blocks of the landed kernel go through, once for every problem, if all rows see
    /// all positions: what the time on the emulator grows with.
    #[must_use]
    pub fn tiles(&self) -> u128 {
        let tiles = Kernel::Landed.tiles();
        let blocks_and_tiles = |&(tokens, start): &(usize, usize)| {
            let (rows, positions) = (tokens as u128, tokens as u128 + start as u128);
            rows.div_ceil(tiles.tile_q().into()) * positions.div_ceil(tiles.tile_kv().into())
        };
        let prompt = (self.tokens, 0);
        self.heads[0] as u128 * self.shapes.iter().chain([&prompt]).map(blocks_and_tiles).sum::<u128>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_the_sum_of_its_parts() {
        let options = Options {
            heads: [4, 2, 128],
            shapes: vec![(65, 37)],
            tokens: 100,
            sampled: 10,
            pairs: 1,
            seed: 0,
        };
        let (inputs, output) = (100 * (4 + 2 + 2) * 128 * 2, 100 * 4 * 128 * 4);
        assert_eq!(options.device_bytes(), 2 * (inputs + output));
        let ragged = (65 * 4 + 102 * 2 * 2) * 128 * 2;
        assert_eq!(options.host_bytes(), inputs + 4 * output + ragged + 75 * 4 * 128 * 8);
        // Two blocks and four tiles, twice.
        assert_eq!(options.tiles(), 4 * (2 * 4 + 2 * 4));
        let most = Options { heads: [usize::MAX >> 32, 1, 128], tokens: usize::MAX >> 32, ..options };
        assert!(most.host_bytes() > 1 << 64 && most.tiles() > 1 << 64, "nothing wraps around");
    }
}
