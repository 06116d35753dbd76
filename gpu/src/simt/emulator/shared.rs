//! A block's shared memory: bytes, their history, and the copies that are on their way into it.

use std::vec;
use std::vec::Vec;

use super::error::{Fault, Place};
use super::memory::Problem;
use super::shadow::{Cell, Moment, Stamp, Wide};
use crate::simt::SHARED_ALIGN;

/// The address at which it begins: not 0, so that an address that was never set is found.
pub(super) const SHARED_BASE: u32 = SHARED_ALIGN;

/// Exactly as many bytes as the launch asks for. A byte whose history has no write is poison.
pub(super) struct SharedMemory {
    data: Vec<u8>,
    cells: Vec<Cell>,
    wide: Wide,
}

/// An asynchronous copy that has not landed.
#[derive(Clone, Copy)]
pub(super) struct PendingCopy {
    to: u32,
    data: [u8; 16],
    bytes: u8,
    group: u64,
}

/// A lane's asynchronous copies.
#[derive(Default)]
pub(super) struct Copies {
    pending: Vec<PendingCopy>,
    /// Groups that are closed; also the number of the open one.
    closed: u64,
}

impl SharedMemory {
    pub(super) fn new(bytes: u32, warps: usize) -> Self {
        let bytes = bytes as usize;
        Self { data: vec![0xff; bytes], cells: vec![Cell::default(); bytes], wide: Wide::new(warps) }
    }

    fn place(&self, address: u32, byte: usize) -> Place {
        let offset = i64::from(address) - i64::from(SHARED_BASE) + byte as i64;
        Place::Shared { offset, size: self.data.len() as u32 }
    }

    /// Where an access of `bytes` bytes goes, if it lies inside and is aligned.
    fn find(&self, address: u32, bytes: usize, align: u32) -> Result<usize, Fault> {
        match address.checked_sub(SHARED_BASE) {
            Some(offset) if offset as usize + bytes <= self.data.len() => {
                if address.is_multiple_of(align) {
                    Ok(offset as usize)
                } else {
                    Err(Fault::Misaligned { place: self.place(address, 0), align })
                }
            }
            _ => Err(Fault::OutOfBounds { place: self.place(address, 0), bytes: bytes as u32 }),
        }
    }

    /// Reads `into.len()` bytes at a multiple of `align`.
    #[inline]
    pub(super) fn load(
        &mut self,
        address: u32,
        into: &mut [u8],
        align: u32,
        now: Moment<'_>,
        site: u16,
    ) -> Result<(), Problem> {
        let offset = self.find(address, into.len(), align)?;
        into.copy_from_slice(&self.data[offset..offset + into.len()]);
        let mut unwritten = None;
        for i in 0..into.len() {
            let cell = &mut self.cells[offset + i];
            if cell.write == Stamp::NEVER {
                unwritten = unwritten.or(Some(i));
            }
            cell.read(now, site, &mut self.wide)
                .map_err(|conflict| Problem::Conflict(self.place(address, i), conflict, false))?;
        }
        match unwritten {
            Some(i) => Err(Fault::Uninitialized { place: self.place(address, i) }.into()),
            None => Ok(()),
        }
    }

    /// Writes `from.len()` bytes at a multiple of `align`.
    #[inline]
    pub(super) fn store(
        &mut self,
        address: u32,
        from: &[u8],
        align: u32,
        now: Moment<'_>,
        site: u16,
    ) -> Result<(), Problem> {
        let offset = self.find(address, from.len(), align)?;
        self.data[offset..offset + from.len()].copy_from_slice(from);
        self.mark(address, offset, from.len(), now, now.stamp, site)
    }

    /// Gives bytes a new last write.
    fn mark(
        &mut self,
        address: u32,
        offset: usize,
        bytes: usize,
        now: Moment<'_>,
        stamp: Stamp,
        site: u16,
    ) -> Result<(), Problem> {
        for i in 0..bytes {
            self.cells[offset + i]
                .write(now, stamp, site, &mut self.wide)
                .map_err(|conflict| Problem::Conflict(self.place(address, i), conflict, true))?;
        }
        Ok(())
    }

    /// Begins a copy of `data` to `address`: from now on nobody may touch the target.
    pub(super) fn begin_copy(
        &mut self,
        copies: &mut Copies,
        address: u32,
        data: &[u8],
        now: Moment<'_>,
        thread: u32,
        site: u16,
    ) -> Result<(), Problem> {
        let offset = self.find(address, data.len(), data.len() as u32)?;
        self.mark(address, offset, data.len(), now, Stamp::in_flight(thread), site)?;
        let mut copy =
            PendingCopy { to: offset as u32, data: [0; 16], bytes: data.len() as u8, group: copies.closed };
        copy.data[..data.len()].copy_from_slice(data);
        copies.pending.push(copy);
        Ok(())
    }

    /// Begins a bulk copy of `bytes` bytes to `address`: from now on nobody may touch the target. Where that
    /// is, for [`land_bulk`](Self::land_bulk).
    pub(super) fn begin_bulk(
        &mut self,
        address: u32,
        bytes: usize,
        now: Moment<'_>,
        thread: u32,
        site: u16,
    ) -> Result<usize, Problem> {
        let offset = self.find(address, bytes, 16)?;
        self.mark(address, offset, bytes, now, Stamp::in_flight(thread), site)?;
        Ok(offset)
    }

    /// Lands a bulk copy: it is a write of now.
    pub(super) fn land_bulk(&mut self, offset: usize, data: &[u8], now: Moment<'_>) {
        self.data[offset..offset + data.len()].copy_from_slice(data);
        for cell in &mut self.cells[offset..offset + data.len()] {
            cell.land(now);
        }
    }

    /// Lands the copies of all closed groups but the `pending` youngest.
    pub(super) fn land_copies(&mut self, copies: &mut Copies, pending: u64, now: Moment<'_>) {
        let landed = copies.closed.saturating_sub(pending);
        copies.pending.retain(|copy| {
            if copy.group >= landed {
                return true;
            }
            let (start, bytes) = (copy.to as usize, usize::from(copy.bytes));
            self.data[start..start + bytes].copy_from_slice(&copy.data[..bytes]);
            for cell in &mut self.cells[start..start + bytes] {
                cell.land(now);
            }
            false
        });
    }
}

impl Copies {
    /// Closes the open group.
    pub(super) fn commit(&mut self) {
        self.closed += 1;
    }
}
