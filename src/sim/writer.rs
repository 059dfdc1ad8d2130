//! The writer of a scheduler process, in virtual time.
//!
//! The rules are the live writer's own ([`muster_core::outbox`]): one call per
//! pod, what replaces what, what is tried again, what the core is told. Here they
//! are driven by the agenda instead of by lanes. Must never look at the store.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_core::io::{Effect, Eviction, Input, Reply, Request};
use muster_core::outbox::{
    Added, BIND_ATTEMPTS, BIND_PAUSE, Bind, Dispatch, EVICTION_ATTEMPTS, Evict, Failure,
    PATCH_ATTEMPTS, PodCall, REST_PAUSE, eviction_error, judge, judge_eviction, write_error,
};

use crate::time::Micros;

/// A call on its way, all its attempts included.
#[derive(Debug)]
struct Flight {
    call: PodCall,
    attempt: u32,
    doubt: bool,
    pause: Duration,
}

/// Names one attempt of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Serial {
    number: u64,
    /// It changes nothing, whatever comes of it.
    pub(crate) dry: bool,
    /// The bound part of a gang is asked to go, again and again while a budget forbids it.
    pub(crate) release: bool,
}

/// The writer.
#[derive(Default)]
pub(crate) struct Writer {
    dispatch: Dispatch,
    flights: BTreeMap<Serial, Flight>,
    serial: u64,
}

/// What follows an attempt.
#[derive(Debug)]
pub(crate) enum After {
    /// Another attempt, this much later.
    Again(Serial, Micros),
    /// The call has ended; the core may have to be told.
    Ended(Option<Input>),
}

fn micros(pause: Duration) -> Micros {
    Micros::try_from(pause.as_micros()).unwrap_or(Micros::MAX)
}

impl Writer {
    /// Takes over an effect that is a call for the API server.
    pub(crate) fn submit(&mut self, effect: Effect) {
        let call = match effect {
            Effect::Bind { pod, node, attempt, devices } => {
                PodCall::Bind(Bind { pod, node, attempt, devices })
            }
            Effect::PatchStatus(patch) => PodCall::Patch(patch),
            Effect::Call { token, pod, request: Request::Evict { victim, how }, .. } => {
                PodCall::Evict(Evict { token, preemptor: pod, victim, how })
            }
            Effect::Event(_) | Effect::Group(_) | Effect::Call { .. } => return,
        };
        // A bind that is replaced is never answered: the core has given it up. That
        // more evictions wait than may is no world that is simulated.
        let _: Added = self.dispatch.add(call);
    }

    /// The next call that can start, as its first attempt.
    pub(crate) fn start(&mut self) -> Option<Serial> {
        let call = self.dispatch.take()?;
        let pause = match call {
            PodCall::Bind(_) => BIND_PAUSE,
            PodCall::Patch(_) | PodCall::Evict(_) => REST_PAUSE,
        };
        Some(self.fly(Flight { call, attempt: 1, doubt: false, pause }))
    }

    fn fly(&mut self, flight: Flight) -> Serial {
        self.serial += 1;
        let dry = matches!(&flight.call, PodCall::Evict(evict) if evict.how.is_dry_run());
        let release = matches!(&flight.call, PodCall::Evict(evict) if is_release(evict));
        let serial = Serial { number: self.serial, dry, release };
        self.flights.insert(serial, flight);
        serial
    }

    /// What an attempt asks for.
    pub(crate) fn call(&self, serial: Serial) -> Option<&PodCall> {
        Some(&self.flights.get(&serial)?.call)
    }

    /// An attempt has ended; answers to an attempt that ended before are ignored.
    pub(crate) fn ended(
        &mut self,
        serial: Serial,
        result: Result<(), Failure>,
        may_write: bool,
    ) -> Option<After> {
        let mut flight = self.flights.remove(&serial)?;
        let Err(failure) = result else {
            self.dispatch.done(&flight.call);
            return Some(After::Ended(answer(flight.call, Ok(()))));
        };
        let verdict = judge(&failure);
        flight.doubt |= verdict.doubt;
        let (again, attempts, growth) = match flight.call {
            PodCall::Bind(_) => (verdict.again, BIND_ATTEMPTS, 5),
            PodCall::Patch(_) => (verdict.again || verdict.doubt, PATCH_ATTEMPTS, 2),
            PodCall::Evict(_) => (judge_eviction(&failure).again, EVICTION_ATTEMPTS, 2),
        };
        if !again || flight.attempt == attempts || !may_write {
            self.dispatch.done(&flight.call);
            let doubt = flight.doubt;
            return Some(After::Ended(answer(flight.call, Err((failure, doubt)))));
        }
        let pause = flight.pause.max(verdict.pause);
        flight.pause *= growth;
        flight.attempt += 1;
        Some(After::Again(self.fly(flight), micros(pause)))
    }

    /// Whether nothing waits and nothing is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        self.dispatch.is_idle()
    }
}

/// Whether a pod goes for the sake of nobody but its own gang.
pub(crate) fn is_release(evict: &Evict) -> bool {
    evict.preemptor == evict.victim
}

/// What the core hears: of binds and evictions only.
fn answer(call: PodCall, result: Result<(), (Failure, bool)>) -> Option<Input> {
    match call {
        PodCall::Bind(Bind { pod, attempt, .. }) => {
            let result = result.map_err(|(failure, doubt)| write_error(&failure, doubt));
            Some(Input::BindDone { pod, attempt, result })
        }
        PodCall::Evict(Evict { token, .. }) => {
            let eviction = match result {
                Ok(()) => Eviction::Accepted,
                Err((failure, _)) => eviction_error(&failure),
            };
            Some(Input::Reply { token, reply: Reply::Evicted(eviction) })
        }
        PodCall::Patch(_) => None,
    }
}
