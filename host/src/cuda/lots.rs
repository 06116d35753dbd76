//! What an upload makes and copies at a time, and who does which.
//!
//! The parts of an upload lie one behind the other in one range of bytes, and are cut into lots: a large
//! part into several, many small ones into one. Threads make lots in the host's memory, each its own, while
//! the calling thread has those that are made copied. Nobody waits for a slower thread before the end, and
//! making one lot, copying another and locking memory for a third go on at once.

use std::any::Any;
use std::collections::VecDeque;
use std::ops::{DerefMut, Range};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::buffer::ALIGN;
use super::error::Error;
use super::queue::{Make, Part};

/// Bytes of a lot that does not hold a single larger unit: a copy takes several times as long as starting
/// it, and all lots together are locked quickly.
const LOT_BYTES: usize = 1 << 20;
/// Lots for each thread: one that it makes, one that is ready for it, and one that is copied.
const LOTS_A_THREAD: usize = 3;
/// The most threads that make lots, so that theirs are 96 MiB at most.
const MOST_THREADS: usize = 32;

/// Where parts stand, each aligned as a buffer is.
pub(super) fn places(parts: &[Part]) -> Vec<Range<usize>> {
    let mut end = 0_usize;
    let place = |part: &Part| {
        let start = end.next_multiple_of(ALIGN);
        end = start + part.len;
        start..end
    };
    parts.iter().map(place).collect()
}

/// Whole units of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Share {
    part: usize,
    range: Range<usize>,
    /// Where they stand among all bytes.
    at: usize,
}

/// What is made by one thread and then copied at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lot {
    shares: Vec<Share>,
}

impl Lot {
    /// Where its bytes stand, those that only align included.
    pub(super) fn place(&self) -> Range<usize> {
        let end = |share: &Share| share.at + share.range.len();
        self.shares.first().map_or(0, |share| share.at)..self.shares.last().map_or(0, end)
    }

    /// Bytes of parts.
    pub(super) fn byte_len(&self) -> usize {
        self.shares.iter().map(|share| share.range.len()).sum()
    }

    fn make(&self, make: &Make<'_>, bytes: &mut [u8]) {
        let start = self.place().start;
        for Share { part, range, at } in &self.shares {
            make(*part, range.clone(), &mut bytes[at - start..][..range.len()]);
        }
    }
}

/// All bytes of the parts as lots, in order.
pub(super) fn lots(parts: &[Part], places: &[Range<usize>]) -> Vec<Lot> {
    let mut lots: Vec<Lot> = Vec::new();
    for (index, (part, place)) in parts.iter().zip(places).enumerate() {
        let whole = (LOT_BYTES / part.unit).max(1) * part.unit;
        for start in (0..part.len).step_by(whole) {
            let range = start..part.len.min(start + whole);
            let share = Share { part: index, at: place.start + start, range };
            let end = share.at + share.range.len();
            match lots.last_mut() {
                Some(lot) if end - lot.place().start <= LOT_BYTES => lot.shares.push(share),
                _ => lots.push(Lot { shares: vec![share] }),
            }
        }
    }
    lots
}

/// What the calling thread waited for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waits {
    /// Memory for lots.
    pub(super) staging: Duration,
    /// Lots that were not made yet.
    pub(super) making: Duration,
    /// Copies that were not done yet.
    pub(super) copying: Duration,
}

/// Adds the time that `work` takes to `sum`.
fn timed<T>(sum: &mut Duration, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = work();
    *sum += begun.elapsed();
    result
}

/// How lots get to where they belong.
pub(super) trait Copies {
    /// Memory of the host that is copied from.
    type Stage: DerefMut<Target = [u8]> + Send;
    /// A copy that was begun.
    type Copy;

    /// Memory for a lot of so many bytes.
    fn stage(&mut self, len: usize) -> Result<Self::Stage, Error>;
    /// Begins the copy of the first bytes of `stage` to `place`.
    fn begin(&mut self, place: Range<usize>, stage: Self::Stage) -> Result<Self::Copy, Error>;
    /// Waits for a copy.
    fn finish(&mut self, copy: Self::Copy) -> Result<Self::Stage, Error>;
}

/// Has `lots` made by `threads` threads and copied, in the order in which they are made. `progress` is told
/// the bytes of each copy that is done.
pub(super) fn upload<C: Copies>(
    copies: &mut C,
    lots: &[Lot],
    make: &Make<'_>,
    threads: usize,
    progress: &mut dyn FnMut(usize),
) -> Result<Waits, Error> {
    let threads = threads.clamp(1, MOST_THREADS).min(lots.len());
    let mut waits = Waits::default();
    let stage_bytes = lots.iter().map(|lot| lot.place().len()).max().unwrap_or(0);
    let (orders, ordered) = mpsc::channel::<(&Lot, C::Stage)>();
    let (made, to_copy) = mpsc::channel::<Result<(&Lot, C::Stage), Box<dyn Any + Send>>>();
    let ordered = Mutex::new(ordered);
    thread::scope(|scope| {
        for _ in 0..threads {
            let (ordered, made) = (&ordered, made.clone());
            scope.spawn(move || {
                let next = || ordered.lock().unwrap_or_else(PoisonError::into_inner).recv();
                // Until the caller has no more orders, or takes nothing any more.
                while let Ok((lot, mut stage)) = next() {
                    let work = move || {
                        lot.make(make, &mut stage);
                        (lot, stage)
                    };
                    if made.send(catch_unwind(AssertUnwindSafe(work))).is_err() {
                        break;
                    }
                }
            });
        }
        // Dropped on every way out of here, which ends the threads, and their work with it.
        let (orders, to_copy) = (orders, to_copy);
        let mut waiting = lots.iter();
        let mut order = |stage: C::Stage| {
            if let Some(lot) = waiting.next() {
                // Threads end only when there are no more orders.
                let _ = orders.send((lot, stage));
            }
        };
        let (mut stages, most_stages) = (0, lots.len().min(LOTS_A_THREAD * threads));
        let mut under_way = VecDeque::new();
        for _ in 0..lots.len() {
            // Memory is locked only while there is nothing to copy.
            let result = loop {
                match to_copy.try_recv() {
                    Ok(result) => break result,
                    Err(_) if stages < most_stages => {
                        order(timed(&mut waits.staging, || copies.stage(stage_bytes))?);
                        stages += 1;
                    }
                    Err(_) => match timed(&mut waits.making, || to_copy.recv()) {
                        Ok(result) => break result,
                        Err(mpsc::RecvError) => unreachable!("a sender lives as long as this function"),
                    },
                }
            };
            let (lot, stage) = result.unwrap_or_else(|panic| resume_unwind(panic));
            under_way.push_back((lot.byte_len(), copies.begin(lot.place(), stage)?));
            // Those behind the oldest go on while that is waited for.
            if under_way.len() > stages / LOTS_A_THREAD
                && let Some((bytes, copy)) = under_way.pop_front()
            {
                order(timed(&mut waits.copying, || copies.finish(copy))?);
                progress(bytes);
            }
        }
        for (bytes, copy) in under_way {
            timed(&mut waits.copying, || copies.finish(copy))?;
            progress(bytes);
        }
        Ok(waits)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use std::cell::Cell;

    use super::*;

    fn part(len: usize, unit: usize) -> Part {
        Part { name: String::new(), len, unit }
    }

    /// Parts of every kind: many small ones, several lots long, of units larger than a lot, without bytes.
    fn parts() -> Vec<Part> {
        let large = [
            part(100 * (3 * LOT_BYTES / 100 + 7), 100),
            part(0, 4),
            part(4 * (LOT_BYTES + 12), LOT_BYTES + 12),
            part(LOT_BYTES, 1),
        ];
        (0..600).map(|i| part(4 * i, 4)).chain(large).chain((0..9).map(|i| part(17 * i, 17))).collect()
    }

    /// The byte `at` of a part.
    fn byte(part: usize, at: usize) -> u8 {
        (at * 7 + at / 251 + part * 31) as u8
    }

    /// Copies into bytes of the host, all of them when they are waited for.
    struct Host {
        to: Vec<u8>,
        written: Vec<bool>,
        stages: usize,
        /// The copy that fails.
        fails: Option<usize>,
    }

    impl Host {
        fn new(len: usize) -> Self {
            Self { to: vec![0xa5; len], written: vec![false; len], stages: 0, fails: None }
        }
    }

    impl Copies for Host {
        type Stage = Vec<u8>;
        type Copy = (Range<usize>, Vec<u8>);

        fn stage(&mut self, len: usize) -> Result<Vec<u8>, Error> {
            self.stages += 1;
            Ok(vec![0x5a; len])
        }

        fn begin(&mut self, place: Range<usize>, stage: Vec<u8>) -> Result<Self::Copy, Error> {
            Ok((place, stage))
        }

        fn finish(&mut self, (place, stage): Self::Copy) -> Result<Vec<u8>, Error> {
            if self.fails.is_some_and(|at| place.contains(&at)) {
                return Err(Error::NotText);
            }
            assert!(self.written[place.clone()].iter().all(|&written| !written), "{place:?} again");
            self.written[place.clone()].fill(true);
            let len = place.len();
            self.to[place].copy_from_slice(&stage[..len]);
            Ok(stage)
        }
    }

    #[test]
    fn every_byte_arrives_once_however_many_threads_make_them() {
        let parts = parts();
        let places = places(&parts);
        let lots = lots(&parts, &places);
        for place in &places {
            assert!(place.start.is_multiple_of(ALIGN));
        }
        let total: usize = parts.iter().map(|part| part.len).sum();
        for threads in [1, 2, 7, 100] {
            let mut host = Host::new(places.last().unwrap().end);
            let make = |part: usize, range: Range<usize>, out: &mut [u8]| {
                let unit = parts[part].unit;
                assert!(range.start.is_multiple_of(unit) && range.len().is_multiple_of(unit));
                out.iter_mut().zip(range).for_each(|(out, at)| *out = byte(part, at));
            };
            let mut done = 0;
            upload(&mut host, &lots, &make, threads, &mut |bytes| done += bytes).unwrap();
            assert_eq!(done, total);
            assert!(host.stages <= LOTS_A_THREAD * threads.min(MOST_THREADS));
            for (index, place) in places.iter().enumerate() {
                assert!(host.written[place.clone()].iter().all(|&written| written), "part {index}");
                let mut found = host.to[place.clone()].iter().enumerate();
                assert!(found.all(|(at, &found)| found == byte(index, at)), "part {index}");
            }
        }
    }

    #[test]
    fn small_parts_share_a_lot_and_large_ones_have_several() {
        let parts = [part(1000, 4), part(1000, 4), part(2 * LOT_BYTES, 256), part(8, 4)];
        let lots = lots(&parts, &places(&parts));
        let shares: Vec<_> = lots.iter().map(|lot| lot.shares.len()).collect();
        assert_eq!(shares, [2, 1, 1, 1]);
        assert_eq!(lots[0].place(), 0..2024);
        assert_eq!(lots[0].byte_len(), 2000);
        assert_eq!(lots[1].place(), 2048..2048 + LOT_BYTES);
    }

    #[test]
    fn nothing_is_nothing() {
        let mut host = Host::new(0);
        let parts = [part(0, 1), part(0, 4)];
        let lots = lots(&parts, &places(&parts));
        upload(&mut host, &lots, &|_, _, _| unreachable!(), 4, &mut |_| unreachable!()).unwrap();
        assert_eq!(host.stages, 0);
    }

    #[test]
    fn a_failed_copy_ends_it() {
        let parts = parts();
        let places = places(&parts);
        let mut host = Host::new(places.last().unwrap().end);
        host.fails = Some(places[600].start + LOT_BYTES);
        let error = upload(&mut host, &lots(&parts, &places), &|_, _, _| (), 3, &mut |_| ()).unwrap_err();
        assert!(matches!(error, Error::NotText), "{error}");
    }

    #[test]
    fn a_panic_while_making_comes_out() {
        let parts = parts();
        let places = places(&parts);
        let mut host = Host::new(places.last().unwrap().end);
        let make = |part: usize, _: Range<usize>, _: &mut [u8]| assert!(part != 602, "the part 602");
        let told = Cell::new(0);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            upload(&mut host, &lots(&parts, &places), &make, 3, &mut |bytes| told.set(told.get() + bytes))
        }));
        let panic = caught.expect_err("a panic");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"the part 602"));
        assert!(told.get() < places.last().unwrap().end);
    }
}
