//! Global memory: registered buffers, and who touched which byte of them in a launch.

use std::boxed::Box;
use std::string::{String, ToString};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::vec;
use std::vec::Vec;

use bytemuck::Pod;

use super::error::{Fault, Place};
use super::shadow::{Cell, Conflict, Moment, Wide};
use crate::simt::Global;

/// Bytes of a page: what one lock guards.
const PAGE_BYTES: usize = 4096;
/// Address bits of a buffer: buffers begin 2^40 bytes apart, so an address that leaves its buffer
/// is in none.
const OFFSET_BITS: u32 = 40;

/// The buffers that kernels are given.
///
/// A buffer begins at a multiple of every alignment that a word asks for, is exactly as long as
/// its values, and no other lies near: an access outside of it is an error.
#[derive(Debug, Default)]
pub struct Memory {
    buffers: Vec<Buffer>,
}

#[derive(Debug)]
struct Buffer {
    name: String,
    bytes: usize,
    contents: Contents,
}

#[derive(Debug)]
enum Contents {
    /// Never written, so never locked and never checked for races.
    Input(Box<[u8]>),
    /// May be written. `initialized`: it had values when it was registered.
    Writable { initialized: bool, pages: Vec<Mutex<Page>> },
}

#[derive(Clone, Debug)]
struct Page {
    data: Box<[u8]>,
    /// How often each byte was written since it was registered, up to 255.
    writes: Box<[u8]>,
    /// What this launch did to each byte; empty until it touches the page.
    cells: Vec<GlobalCell>,
    wide: Wide,
    /// Whether a launch that may not be done yet writes each byte; empty if none writes any.
    unsettled: Vec<bool>,
}

/// The history of a byte within its block, and which blocks these are: linear index + 1.
#[derive(Clone, Copy, Debug, Default)]
struct GlobalCell {
    cell: Cell,
    writer: u32,
    reader: u32,
}

/// The reader of a byte that several blocks have read.
const SEVERAL: u32 = u32::MAX;
/// The reader of a byte that was read as a constant.
const CONSTANT: u32 = u32::MAX - 1;

/// Who touches memory, and when.
#[derive(Clone, Copy)]
pub(super) struct Toucher<'a> {
    pub(super) now: Moment<'a>,
    pub(super) site: u16,
    /// The block's linear index.
    pub(super) block: u32,
    pub(super) order: Order,
}

/// How an access stands to those of earlier launches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// They are done: the launch does not begin early.
    Alone,
    /// They may still run, and only what no launch writes is read.
    Early,
    /// They may still run; of what launches write only bytes that none of these has written may be read.
    Settled,
    /// They have been waited for.
    Waited,
}

/// Why an access fails.
pub(super) enum Problem {
    Fault(Fault),
    /// It must not follow an earlier access of its own block.
    Conflict(Place, Conflict, /* writes */ bool),
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Memory {
    /// No buffers yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a buffer that kernels only read.
    pub fn input<T: Pod>(&mut self, name: &str, values: &[T]) -> Global<T> {
        let contents = Contents::Input(bytemuck::cast_slice(values).into());
        self.register(name, size_of_val(values), contents)
    }

    /// Registers a buffer of `len` elements that nobody has written yet: reading it before is an
    /// error.
    pub fn output<T: Pod>(&mut self, name: &str, len: usize) -> Global<T> {
        // What a check missed shows: 0xffff is NaN in f16, and so is 0xffff_ffff in f32.
        let bytes = vec![0xff; len * size_of::<T>()];
        self.register(name, bytes.len(), writable(&bytes, false))
    }

    /// Registers a buffer with values that kernels may read and write.
    pub fn in_out<T: Pod>(&mut self, name: &str, values: &[T]) -> Global<T> {
        let bytes = bytemuck::cast_slice(values);
        self.register(name, bytes.len(), writable(bytes, true))
    }

    /// Replaces the values of the buffer that begins at `buffer`; kernels have written none of them.
    ///
    /// # Panics
    /// If `buffer` is not what registering it gave, or `values` has another length.
    pub fn write<T: Pod>(&mut self, buffer: Global<T>, values: &[T]) {
        let buffer = self.registered_mut(buffer);
        assert_eq!(size_of_val(values), buffer.bytes, "as many values as the buffer has");
        let bytes = bytemuck::cast_slice(values);
        buffer.contents = match buffer.contents {
            Contents::Input(_) => Contents::Input(bytes.into()),
            Contents::Writable { .. } => writable(bytes, true),
        };
    }

    /// Replaces neighbouring values inside a buffer, from `start` on; they count as written.
    ///
    /// # Panics
    /// If they do not lie in a registered buffer.
    pub fn write_part<T: Pod>(&mut self, start: Global<T>, values: &[T]) {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let (index, offset) = self.part(start.address(), bytes.len());
        match &mut self.buffers[index].contents {
            Contents::Input(data) => data[offset..offset + bytes.len()].copy_from_slice(bytes),
            Contents::Writable { pages, .. } => {
                for (at, &byte) in (offset..).zip(bytes) {
                    let page = pages[at / PAGE_BYTES].get_mut().unwrap_or_else(PoisonError::into_inner);
                    (page.data[at % PAGE_BYTES], page.writes[at % PAGE_BYTES]) = (byte, 1);
                }
            }
        }
    }

    /// `len` neighbouring values from `start` on; what nobody wrote is all ones.
    ///
    /// # Panics
    /// If they do not lie in a registered buffer.
    #[must_use]
    pub fn part_values<T: Pod>(&self, start: Global<T>, len: usize) -> Vec<T> {
        let (index, offset) = self.part(start.address(), len * size_of::<T>());
        let range = offset..offset + len * size_of::<T>();
        let bytes = match &self.buffers[index].contents {
            Contents::Input(data) => data[range].to_vec(),
            Contents::Writable { pages, .. } => {
                range.map(|at| lock(&pages[at / PAGE_BYTES]).data[at % PAGE_BYTES]).collect()
            }
        };
        bytes.chunks_exact(size_of::<T>().max(1)).map(bytemuck::pod_read_unaligned).collect()
    }

    /// The index of the buffer that holds these bytes, and their offset in it.
    fn part(&self, address: u64, bytes: usize) -> (usize, usize) {
        match self.buffer(address) {
            Some((buffer, offset)) if offset + bytes as u64 <= buffer.bytes as u64 => {
                ((address >> OFFSET_BITS) as usize - 1, offset as usize)
            }
            _ => panic!("{bytes} bytes from {address:#x} on are not in a registered buffer"),
        }
    }

    /// Gives the memory of a buffer back. Its address stays its own: a kernel that still uses it is
    /// reported, and the buffer is called `NAME, freed` there.
    ///
    /// # Panics
    /// If `buffer` is not what registering it gave.
    pub fn free<T>(&mut self, buffer: Global<T>) {
        let buffer = self.registered_mut(buffer);
        buffer.name.push_str(", freed");
        (buffer.bytes, buffer.contents) = (0, Contents::Input(Box::default()));
    }

    fn register<T>(&mut self, name: &str, bytes: usize, contents: Contents) -> Global<T> {
        self.buffers.push(Buffer { name: name.to_string(), bytes, contents });
        Global::from_address((self.buffers.len() as u64) << OFFSET_BITS)
    }

    /// The values of the buffer that begins at `buffer`; what nobody wrote is all ones.
    ///
    /// # Panics
    /// If `buffer` is not what registering it gave.
    #[must_use]
    pub fn values<T: Pod>(&self, buffer: Global<T>) -> Vec<T> {
        let buffer = self.registered(buffer);
        let bytes = match &buffer.contents {
            Contents::Input(data) => data.to_vec(),
            Contents::Writable { pages, .. } => {
                pages.iter().flat_map(|page| lock(page).data.to_vec()).collect()
            }
        };
        bytes.chunks_exact(size_of::<T>().max(1)).map(bytemuck::pod_read_unaligned).collect()
    }

    /// Whether kernels have written each byte of the buffer once: none left out, none written
    /// again.
    ///
    /// # Errors
    /// [`Fault::NotWrittenOnce`] with the first byte that was not.
    ///
    /// # Panics
    /// If `buffer` is not what registering it gave.
    pub fn check_written_once<T>(&self, buffer: Global<T>) -> Result<(), Fault> {
        self.registered(buffer).check_written_once(0, self.registered(buffer).bytes)
    }

    /// As [`check_written_once`](Self::check_written_once) for `len` elements from `start` on, which
    /// lie in one buffer.
    ///
    /// # Errors
    /// As [`check_written_once`](Self::check_written_once).
    ///
    /// # Panics
    /// If they do not lie in a registered buffer.
    pub fn check_part_written_once<T>(&self, start: Global<T>, len: usize) -> Result<(), Fault> {
        let bytes = len * size_of::<T>();
        let (index, offset) = self.part(start.address(), bytes);
        self.buffers[index].check_written_once(offset, bytes)
    }

    fn registered<T>(&self, buffer: Global<T>) -> &Buffer {
        match self.buffer(buffer.address()) {
            Some((buffer, 0)) => buffer,
            _ => panic!("{buffer:?} is not where a registered buffer begins"),
        }
    }

    fn registered_mut<T>(&mut self, buffer: Global<T>) -> &mut Buffer {
        let _: &Buffer = self.registered(buffer);
        let index = (buffer.address() >> OFFSET_BITS) as usize - 1;
        &mut self.buffers[index]
    }

    /// The buffer around an address, or before it, and the offset from its start.
    fn buffer(&self, address: u64) -> Option<(&Buffer, u64)> {
        let index = usize::try_from(address >> OFFSET_BITS).ok()?.checked_sub(1)?;
        Some((self.buffers.get(index)?, address & ((1 << OFFSET_BITS) - 1)))
    }

    /// All launches so far are done, as they are when the host has waited for them or has copied something in their
    /// stream: a kernel that begins early may read what they wrote before it waits.
    pub fn settle(&mut self) {
        for page in self.buffers.iter_mut().flat_map(Buffer::pages_mut) {
            page.unsettled.clear();
            page.cells.clear();
        }
    }

    /// A new launch begins: nobody has touched anything in it. One that does not begin early finds the earlier ones
    /// done.
    pub(super) fn begin_launch(&mut self, warps: usize, starts_early: bool) {
        if !starts_early {
            self.settle();
        }
        for page in self.buffers.iter_mut().flat_map(Buffer::pages_mut) {
            // What the launch before wrote, until this one has waited for it.
            if page.cells.iter().any(|cell| cell.writer != 0) {
                page.unsettled.resize(page.data.len(), false);
                for (unsettled, cell) in page.unsettled.iter_mut().zip(&page.cells) {
                    *unsettled |= cell.writer != 0;
                }
            }
            page.cells.clear();
            page.wide = Wide::new(warps);
        }
    }

    /// The contents of everything that may be written, to go back to.
    pub(super) fn snapshot(&self) -> Snapshot {
        let pages = self.buffers.iter().map(|buffer| match &buffer.contents {
            Contents::Input(_) => Vec::new(),
            Contents::Writable { pages, .. } => pages.iter().map(|page| lock(page).clone()).collect(),
        });
        Snapshot(pages.collect())
    }

    /// Goes back.
    pub(super) fn restore(&mut self, snapshot: Snapshot) {
        for (buffer, saved) in self.buffers.iter_mut().zip(snapshot.0) {
            for (page, saved) in buffer.pages_mut().zip(saved) {
                *page = saved;
            }
        }
    }

    /// Where an access of `bytes` bytes goes, if it lies in a buffer and is aligned.
    fn find(&self, address: u64, bytes: usize, align: u32) -> Result<(&Buffer, usize), Fault> {
        let (buffer, offset) = self
            .buffer(address)
            .ok_or(Fault::OutOfBounds { place: Place::Unmapped { address }, bytes: bytes as u32 })?;
        if offset + bytes as u64 > buffer.bytes as u64 {
            return Err(Fault::OutOfBounds { place: buffer.place(offset), bytes: bytes as u32 });
        }
        if !offset.is_multiple_of(u64::from(align)) {
            return Err(Fault::Misaligned { place: buffer.place(offset), align });
        }
        Ok((buffer, offset as usize))
    }

    /// Whether these bytes lie in a buffer and are aligned.
    pub(super) fn check_place(&self, address: u64, bytes: u32, align: u32) -> Result<(), Fault> {
        self.find(address, bytes as usize, align).map(drop)
    }

    /// Reads `into.len()` bytes, at most `align`, at a multiple of `align`. `constant`: nobody may
    /// write them in this launch.
    #[inline]
    pub(super) fn load(
        &self,
        address: u64,
        into: &mut [u8],
        align: u32,
        constant: bool,
        by: Toucher<'_>,
    ) -> Result<(), Problem> {
        let (buffer, offset) = self.find(address, into.len(), align)?;
        match &buffer.contents {
            Contents::Input(data) => into.copy_from_slice(&data[offset..offset + into.len()]),
            Contents::Writable { initialized, pages } => {
                match by.order {
                    Order::Early => {
                        return Err(Fault::Early {
                            place: buffer.place(offset as u64),
                            writes: false,
                            settled: false,
                        }
                        .into());
                    }
                    Order::Settled | Order::Waited if constant => {
                        return Err(Fault::EarlyConstant { place: buffer.place(offset as u64) }.into());
                    }
                    Order::Settled | Order::Waited | Order::Alone => {}
                }
                // An aligned word does not cross a page.
                let (mut page, start) = (lock(&pages[offset / PAGE_BYTES]), offset % PAGE_BYTES);
                let page = page.touched();
                if by.order == Order::Settled
                    && let Some(unsettled) = page.unsettled.get(start..start + into.len())
                    && let Some(i) = unsettled.iter().position(|&unsettled| unsettled)
                {
                    let place = buffer.place((offset + i) as u64);
                    return Err(Fault::Early { place, writes: false, settled: true }.into());
                }
                into.copy_from_slice(&page.data[start..start + into.len()]);
                let mut unwritten = None;
                for i in 0..into.len() {
                    if !initialized && page.writes[start + i] == 0 {
                        unwritten = unwritten.or(Some(i));
                    }
                    let place = || buffer.place((offset + i) as u64);
                    page.cells[start + i].read(constant, by, &mut page.wide, place)?;
                }
                if let Some(i) = unwritten {
                    return Err(Fault::Uninitialized { place: buffer.place((offset + i) as u64) }.into());
                }
            }
        }
        Ok(())
    }

    /// Writes `from.len()` bytes, 1 to 16 and a power of two.
    #[inline]
    pub(super) fn store(&self, address: u64, from: &[u8], by: Toucher<'_>) -> Result<(), Problem> {
        let (buffer, offset) = self.find(address, from.len(), from.len() as u32)?;
        let Contents::Writable { pages, .. } = &buffer.contents else {
            return Err(Fault::ReadOnly { place: buffer.place(offset as u64) }.into());
        };
        if matches!(by.order, Order::Early | Order::Settled) {
            return Err(
                Fault::Early { place: buffer.place(offset as u64), writes: true, settled: false }.into()
            );
        }
        let (mut page, start) = (lock(&pages[offset / PAGE_BYTES]), offset % PAGE_BYTES);
        let page = page.touched();
        page.data[start..start + from.len()].copy_from_slice(from);
        for i in 0..from.len() {
            page.writes[start + i] = page.writes[start + i].saturating_add(1);
            page.cells[start + i].write(by, &mut page.wide, || buffer.place((offset + i) as u64))?;
        }
        Ok(())
    }
}

/// See [`Memory::snapshot`].
pub(super) struct Snapshot(Vec<Vec<Page>>);

fn lock(page: &Mutex<Page>) -> MutexGuard<'_, Page> {
    page.lock().unwrap_or_else(PoisonError::into_inner)
}

fn writable(bytes: &[u8], initialized: bool) -> Contents {
    let page = |data: &[u8]| {
        Mutex::new(Page {
            data: data.into(),
            writes: vec![0; data.len()].into(),
            cells: Vec::new(),
            wide: Wide::new(1),
            unsettled: Vec::new(),
        })
    };
    Contents::Writable { initialized, pages: bytes.chunks(PAGE_BYTES).map(page).collect() }
}

impl Buffer {
    fn place(&self, offset: u64) -> Place {
        Place::Global { buffer: self.name.clone(), offset, size: self.bytes as u64 }
    }

    /// Whether each of `bytes` bytes from `offset` on was written once.
    fn check_written_once(&self, offset: usize, bytes: usize) -> Result<(), Fault> {
        let Contents::Writable { pages, .. } = &self.contents else {
            return Err(Fault::NotWrittenOnce { place: self.place(offset as u64), times: 0 });
        };
        let end = offset + bytes;
        let firsts = (0..end).step_by(PAGE_BYTES);
        for (page, first) in pages.iter().zip(firsts).skip(offset / PAGE_BYTES) {
            let page = lock(page);
            let within = offset.saturating_sub(first)..page.writes.len().min(end - first);
            for (byte, &times) in (first + within.start..).zip(&page.writes[within.clone()]) {
                if times != 1 {
                    return Err(Fault::NotWrittenOnce { place: self.place(byte as u64), times });
                }
            }
        }
        Ok(())
    }

    fn pages_mut(&mut self) -> impl Iterator<Item = &mut Page> {
        let pages = match &mut self.contents {
            Contents::Input(_) => [].iter_mut(),
            Contents::Writable { pages, .. } => pages.iter_mut(),
        };
        pages.map(|page| page.get_mut().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Page {
    /// The page, with a history for every byte.
    fn touched(&mut self) -> &mut Self {
        if self.cells.is_empty() {
            self.cells.resize(self.data.len(), GlobalCell::default());
        }
        self
    }
}

impl GlobalCell {
    fn read(
        &mut self,
        constant: bool,
        by: Toucher<'_>,
        wide: &mut Wide,
        place: impl Fn() -> Place,
    ) -> Result<(), Problem> {
        let me = by.block + 1;
        if constant && self.writer != 0 {
            return Err(Fault::NotConstant { place: place() }.into());
        }
        if self.writer != 0 && self.writer != me {
            let other = Some(self.writer - 1);
            return Err(Fault::BlockRace { place: place(), writes: false, other }.into());
        }
        self.reader = match self.reader {
            _ if constant => CONSTANT,
            0 => me,
            reader if reader == me || reader == CONSTANT => reader,
            _ => SEVERAL,
        };
        if self.reader == me {
            self.cell
                .read(by.now, by.site, wide)
                .map_err(|conflict| Problem::Conflict(place(), conflict, false))?;
        }
        Ok(())
    }

    fn write(&mut self, by: Toucher<'_>, wide: &mut Wide, place: impl Fn() -> Place) -> Result<(), Problem> {
        let me = by.block + 1;
        if self.reader == CONSTANT {
            return Err(Fault::NotConstant { place: place() }.into());
        }
        for block in [self.writer, self.reader] {
            if block != 0 && block != me {
                let other = (block != SEVERAL).then(|| block - 1);
                return Err(Fault::BlockRace { place: place(), writes: true, other }.into());
            }
        }
        self.cell
            .write(by.now, by.now.stamp, by.site, wide)
            .map_err(|conflict| Problem::Conflict(place(), conflict, true))?;
        (self.writer, self.reader) = (me, 0);
        Ok(())
    }
}
