//! The way of a block through K, which the products with weights in planes have in common: a slab
//! is multiplied while the next one is on its way.

use crate::simt::Simt;

use super::problem::{Pending, Product};
use super::tiling::{MOST, Output, Sums, Tiling};
use super::weights::Weights;

/// A product that goes slab by slab, two of them in shared memory at a time.
pub(super) trait Slabs: Copy {
    /// The format of the weights.
    type Block: Weights;
    /// The tiles.
    const TILES: Tiling;

    /// The arguments.
    fn product(&self) -> Product;

    /// Begins to copy a slab of the tile's input, whose first row is `row`, and closes the group.
    ///
    /// # Safety
    /// Nobody uses the slab until the copies have been waited for.
    #[track_caller]
    unsafe fn copy_input<S: Simt>(&self, s: S, row: u32, slab: u32);

    /// Unpacks a thread's pieces into a slab.
    ///
    /// # Safety
    /// Nobody else uses the slab until a barrier.
    #[track_caller]
    unsafe fn store_weights<S: Simt>(s: S, pending: Pending<Self::Block>, slab: u32);

    /// Adds a slab's products to a warp's sums.
    ///
    /// # Safety
    /// The slab is staged, visible, and stays.
    #[track_caller]
    unsafe fn multiply<S: Simt>(s: S, slab: u32, sums: &mut Sums);

    /// What one lane does, from the first slab to the stores: a [`Kernel`](crate::simt::Kernel)'s body.
    ///
    /// # Safety
    /// As [`Kernel::run`](crate::simt::Kernel::run).
    #[inline(always)]
    unsafe fn go_through<S: Simt>(self, s: S) {
        let (tiling, product) = (Self::TILES, self.product());
        let (row, column) = tiling.place(s.block().x, product.m, product.n);
        let mut sums: Sums = [[[0.0; 8]; MOST]; MOST];
        let slabs = product.slabs();
        // SAFETY: what is staged lies inside its slab, and comes from inside its matrix or is zero.
        // A slab is read after its wait and a barrier, and written again after the next barrier,
        // which every warp reaches when it has multiplied it. A warp stores its own part of out.
        unsafe {
            if slabs > 0 {
                self.copy_input(s, row, 0);
                let pending = Pending::<Self::Block>::load(s, &product, tiling, column, 0);
                Self::store_weights(s, pending, 0);
            }
            for slab in 0..slabs {
                s.copy_async_wait::<0>();
                s.barrier();
                // After the last slab comes one that nobody reads: cheaper than to ask.
                self.copy_input(s, row, slab + 1);
                let pending = Pending::<Self::Block>::load(s, &product, tiling, column, slab + 1);
                Self::multiply(s, slab, &mut sums);
                Self::store_weights(s, pending, slab + 1);
            }
            s.copy_async_wait::<0>();
            let (down, right) = tiling.place_of_warp(s.warp());
            Output { out: product.out, bias: product.bias, m: product.m, n: product.n }.store(
                s,
                tiling,
                &sums,
                row + down,
                column + right,
            );
        }
    }
}
