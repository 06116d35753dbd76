//! What a model needs of a stream besides launches: copies in their order, uploads from what is made
//! meanwhile, graphs.

#![expect(unsafe_code, reason = "the driver copies after the call has returned")]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytemuck::Pod;
use rayon::prelude::*;
use tracing::debug;

use super::buffer::{Buffer, View, ViewMut};
use super::copy::Transfer;
use super::driver::raw;
use super::error::Error;
use super::graph::Graph;
use super::pinned::Pinned;
use super::queue::{Make, ModelQueue, Part};
use super::stream::Stream;

/// Bytes of pinned memory that an upload goes through, in [`STAGES`] parts: large enough that a copy
/// takes longer than its start, small enough to be locked quickly.
const STAGED: usize = 64 << 20;
/// Parts of it: while one is made, the others are copied or wait for that.
const STAGES: usize = 4;
/// Bytes that a thread makes at a time.
const SHARE: usize = 1 << 18;

impl ModelQueue for Stream {
    type Host<T: Pod + Send> = Pinned<T>;
    type Graph = Graph;

    fn name(&self) -> String {
        self.device().owner().to_string()
    }

    fn description(&self) -> String {
        self.device().description().to_string()
    }

    fn compute_capability(&self) -> Option<u32> {
        Some(self.device().description().sm)
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
        let pinned = std::mem::replace(into, empty);
        *into = self.download(pinned, from)?.wait()?;
        Ok(())
    }

    fn upload(
        &self,
        parts: &[Part],
        make: &Make<'_>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Vec<Buffer<u8>>, Error> {
        let device = self.device();
        let (mut making, mut waiting, started) = (Duration::ZERO, Duration::ZERO, Instant::now());
        let mut buffers = Vec::with_capacity(parts.len());
        let mut under_way: VecDeque<(usize, Transfer<u8>)> = VecDeque::new();
        let mut wait = |(bytes, transfer): (usize, Transfer<u8>)| {
            let begun = Instant::now();
            let stage = transfer.wait()?;
            waiting += begun.elapsed();
            progress(bytes);
            Ok::<_, Error>(stage)
        };
        let largest = parts.iter().map(|part| part.unit).max().unwrap_or(1);
        let stage_bytes = largest.max(STAGED / STAGES);
        for (index, part) in parts.iter().enumerate() {
            let mut buffer = Buffer::unwritten(device, part.len)?;
            let whole = |bytes: usize| (bytes / part.unit).max(1) * part.unit;
            for start in (0..part.len).step_by(whole(stage_bytes)) {
                let range = start..part.len.min(start + whole(stage_bytes));
                let oldest = if under_way.len() < STAGES { None } else { under_way.pop_front() };
                let mut stage = oldest.map_or_else(|| Pinned::zeroed(device, stage_bytes), &mut wait)?;
                let begun = Instant::now();
                let bytes = &mut stage[..range.len()];
                bytes.par_chunks_mut(whole(SHARE)).enumerate().for_each(|(share, bytes)| {
                    let first = range.start + share * whole(SHARE);
                    make(index, first..first + bytes.len(), bytes);
                });
                making += begun.elapsed();
                let len = range.len();
                under_way.push_back((len, Self::upload(self, buffer.slice_mut(range), stage)?));
            }
            buffers.push(buffer);
        }
        under_way.into_iter().try_for_each(|transfer| wait(transfer).map(drop))?;
        debug!("upload: {:?} in all, {making:?} of it making, {waiting:?} waiting", started.elapsed());
        Ok(buffers)
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
