//! The Lease, and a candidate's view of it.
//!
//! As the live election: a lease has expired when its record was last seen to
//! change longer ago than it lasts, by the candidate's own clock. A holder may
//! write until its last renewal plus the renew deadline, which is shorter.

use muster_core::io::Tick;

use crate::link::Replica;
use crate::time::{Micros, SECOND};

/// How long others leave a lease alone.
pub(crate) const LEASE: Micros = 15 * SECOND;
/// How long a holder may write after it renewed.
pub(crate) const RENEW_DEADLINE: Micros = 10 * SECOND;
/// How often a candidate looks.
pub(crate) const RETRY: Micros = 2 * SECOND;

/// A process: replica and how often it was started.
pub(crate) type Identity = (Replica, u32);

/// The record on the API server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) holder: Option<Identity>,
    version: u64,
}

/// One candidate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    me: Identity,
    seen: (u64, Tick),
    /// By its own clock.
    may_write_until: Tick,
    /// Since when it leads without a break, by its own clock.
    leads_since: Option<Tick>,
}

impl Candidate {
    pub(crate) fn new(me: Identity) -> Self {
        Self { me, seen: (0, Tick(i64::MIN)), may_write_until: Tick(i64::MIN), leads_since: None }
    }

    /// A look at the record, and a write if it is free or ours. `local` is the
    /// candidate's own clock. True if the candidate leads now and did not before.
    pub(crate) fn look(&mut self, local: Tick, lease: &mut Lease) -> bool {
        if self.seen.0 != lease.version || self.seen.1 == Tick(i64::MIN) {
            self.seen = (lease.version, local);
        }
        let free = lease.holder.is_none() || self.seen.1.after_micros(LEASE) <= local;
        if lease.holder != Some(self.me) && !free {
            self.leads_since = None;
            return false;
        }
        lease.holder = Some(self.me);
        lease.version += 1;
        self.seen = (lease.version, local);
        let led = self.leads(local);
        self.may_write_until = local.after_micros(RENEW_DEADLINE);
        if led {
            return false;
        }
        self.leads_since = Some(local);
        true
    }

    /// Whether it may write at this moment of its own clock.
    pub(crate) fn leads(&self, local: Tick) -> bool {
        self.leads_since.is_some() && local < self.may_write_until
    }

    pub(crate) fn may_write_until(&self) -> Tick {
        self.may_write_until
    }

    pub(crate) fn leads_since(&self) -> Option<Tick> {
        self.leads_since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Tick {
        Tick(seconds * SECOND)
    }

    #[test]
    fn a_lease_is_taken_over_only_after_it_was_seen_unchanged_for_its_length() {
        let mut lease = Lease::default();
        let (mut a, mut b) = (Candidate::new((Replica(0), 0)), Candidate::new((Replica(1), 0)));
        assert!(a.look(at(0), &mut lease));
        assert!(!b.look(at(14), &mut lease));
        assert!(!b.look(at(28), &mut lease), "seen first at 14 s");
        assert!(!a.leads(at(10)) && a.leads(at(9)));
        assert!(b.look(at(29), &mut lease));
        assert!(!a.look(at(30), &mut lease), "it is another's now");
        assert!(!a.leads(at(30)) && b.leads(at(30)));
    }
}
