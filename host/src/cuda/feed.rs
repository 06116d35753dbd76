//! What a model needs of a stream besides launches: copies in their order, uploads from what is made
//! meanwhile, graphs.

#![expect(unsafe_code, reason = "the driver copies after the call has returned")]

use std::ops::Range;
use std::time::Instant;

use bytemuck::Pod;
use tracing::debug;

use super::buffer::{Buffer, View, ViewMut};
use super::copy::Transfer;
use super::driver::raw;
use super::error::Error;
use super::graph::Graph;
use super::lots::{self, Copies, Waits, lots, places};
use super::memory::Arena;
use super::pinned::Pinned;
use super::queue::{Make, ModelQueue, Part};
use super::stream::Stream;

/// Copies of an upload.
struct ToArena<'a> {
    stream: &'a Stream,
    arena: &'a mut Arena,
}

impl Copies for ToArena<'_> {
    type Stage = Pinned<u8>;
    type Copy = Transfer<u8>;

    fn stage(&mut self, len: usize) -> Result<Pinned<u8>, Error> {
        Pinned::zeroed(self.stream.device(), len)
    }

    fn begin(&mut self, place: Range<usize>, stage: Pinned<u8>) -> Result<Transfer<u8>, Error> {
        self.stream.upload(self.arena.slice_mut(place), stage)
    }

    fn finish(&mut self, copy: Transfer<u8>) -> Result<Pinned<u8>, Error> {
        copy.wait()
    }
}

impl ModelQueue for Stream {
    type Host<T: Pod + Send> = Pinned<T>;
    type Graph = Graph;

    fn name(&self) -> String {
        self.device().owner().to_string()
    }

    fn description(&self) -> String {
        self.device().description().to_string()
    }

    fn free_memory(&self) -> Result<Option<u64>, Error> {
        self.device().memory().map(|(free, _)| Some(free))
    }

    fn prepare(&self, kernels: &[&'static str]) -> Result<(), Error> {
        self.device().prepare(kernels.iter().copied())
    }

    fn host<T: Pod + Send>(&self, len: usize) -> Result<Pinned<T>, Error> {
        Pinned::zeroed(self.device(), len)
    }

    fn write<T: Pod>(&self, to: ViewMut<'_, T>, elements: &[T]) -> Result<(), Error> {
        assert!(elements.len() <= to.len(), "{} elements for {}", elements.len(), to.len());
        let doing = "copying to the device";
        self.same_owner(doing, to.owner())?;
        let stream = self.live(doing)?;
        if elements.is_empty() {
            return Ok(());
        }
        self.device().enter()?;
        // A slice may be one of pinned memory, which the driver would read later.
        let pageable: Vec<u8> = bytemuck::cast_slice(elements).to_vec();
        // SAFETY: both sides are so long, the device's is borrowed alone; of pageable memory the driver
        // has a copy when it returns (driver API, "API synchronization behavior").
        Error::check(doing, unsafe {
            raw::cuMemcpyHtoDAsync_v2(
                to.start().address(),
                pageable.as_ptr().cast(),
                pageable.len(),
                stream.as_inner().cast(),
            )
        })
    }

    fn read<T: Pod + Send>(&self, into: &mut Pinned<T>, from: View<'_, T>) -> Result<(), Error> {
        let empty = Pinned::zeroed(self.device(), 0)?;
        let mut pinned = std::mem::replace(into, empty);
        if pinned.len() < from.len() {
            // A copy that failed kept it.
            pinned = Pinned::zeroed(self.device(), from.len())?;
        }
        *into = self.download(pinned, from)?.wait()?;
        Ok(())
    }

    fn upload(
        &self,
        parts: &[Part],
        make: &Make<'_>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Vec<Buffer<u8>>, Error> {
        let started = Instant::now();
        let places = places(parts);
        let bytes = places.last().map_or(0, |place| place.end);
        let mut arena = Arena::unwritten(self.device(), bytes)?;
        let allocating = started.elapsed();
        let mut copies = ToArena { stream: self, arena: &mut arena };
        let threads = rayon::current_num_threads();
        let Waits { staging, making, copying } =
            lots::upload(&mut copies, &lots(parts, &places), make, threads, progress)?;
        let took = started.elapsed();
        debug!(
            "upload: {bytes} bytes in {took:.1?}, {:.1} GB/s with {threads} threads: {allocating:.1?} allocating, \
             {staging:.1?} locking memory, {making:.1?} waiting for what was made, {copying:.1?} for copies",
            bytes as f64 / took.as_secs_f64() / 1e9,
        );
        // SAFETY: lots cover every part, and `upload` has waited for the copy of each.
        Ok(unsafe { arena.into_buffers(places) })
    }

    fn capture(&self, work: impl FnOnce(&Self) -> Result<(), Error>) -> Result<Option<Graph>, Error> {
        // A graph is waited for as a whole, and would not name the kernel that fails.
        if self.device().synchronises() {
            return Ok(None);
        }
        self.device().capture(work).map(Some)
    }

    fn replay(&self, graph: &Graph) -> Result<(), Error> {
        graph.launch(self)
    }
}
