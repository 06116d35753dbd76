//! From what went wrong inside to an error that a reader can use.

use core::panic::Location;
use std::boxed::Box;
use std::vec::Vec;

use super::{Block, State, Status};
use crate::simt::WARP_LANES;
use crate::simt::emulator::error::{EmulatorError, Fault, Gathering, Party};
use crate::simt::emulator::memory::Problem;

impl Block<'_> {
    pub(super) fn error(
        &self,
        thread: Option<u32>,
        location: Option<&'static Location<'static>>,
        fault: Fault,
    ) -> EmulatorError {
        let context = self.context;
        EmulatorError {
            kernel: context.kernel,
            block: Some(self.position),
            thread,
            location,
            seed: context.seed,
            fault: Box::new(fault),
        }
    }

    /// The fault behind a problem that a call met.
    pub(super) fn fault(&self, problem: Problem, location: &'static Location<'static>) -> Fault {
        match problem {
            Problem::Fault(fault) => fault,
            Problem::Conflict(place, conflict, writes) => {
                let other = Party {
                    warp: conflict.stamp.warp(),
                    lane: conflict.stamp.lane(),
                    wrote: conflict.wrote,
                    location: self.context.sites.location(conflict.site).unwrap_or(location),
                };
                if conflict.stamp.is_in_flight() {
                    Fault::CopyNotWaitedFor { place, copy: other }
                } else {
                    Fault::Race { place, writes, other }
                }
            }
        }
    }
}

impl State {
    /// What went wrong, if anything did. Lanes that read what nobody has written have stopped; if
    /// the others then ran into a race, that is why nothing was there yet. Else nobody writes it,
    /// and that all the others wait for the stopped lanes is no news.
    pub(super) fn verdict(&mut self) -> Option<EmulatorError> {
        let (doubt, failure) = (self.doubt.take(), self.failure.take());
        let race = failure.as_ref().is_some_and(|failure| {
            matches!(*failure.fault, Fault::Race { .. } | Fault::CopyNotWaitedFor { .. })
        });
        if race { failure } else { doubt.or(failure) }
    }

    /// Why nobody can go on: a word inside a warp that not all lanes reach, or else barriers.
    pub(super) fn stuck(&self) -> Fault {
        let mut lanes: Vec<Gathering> = Vec::new();
        let mut within_warp = false;
        for (thread, status) in (0..).zip(&self.statuses) {
            let (warp, lane) = (thread / WARP_LANES, thread % WARP_LANES);
            let at = match *status {
                Status::Waiting(word, location) => {
                    within_warp |= !word.is_barrier();
                    Some((word.name(), location))
                }
                Status::Polling(_, location) => Some(("mbarrier_wait", location)),
                Status::Ready | Status::Done | Status::Stopped => None,
            };
            match lanes.iter_mut().rev().find(|gathering| gathering.warp == warp && gathering.at == at) {
                Some(gathering) => gathering.lanes |= 1 << lane,
                None => lanes.push(Gathering { warp, lanes: 1 << lane, at }),
            }
        }
        if within_warp { Fault::Divergence { lanes } } else { Fault::Deadlock { lanes } }
    }
}
