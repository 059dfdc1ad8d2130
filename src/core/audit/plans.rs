//! Preemptions under way, call by call.
//!
//! Owns what was asked about whom, and what was answered. Judging is
//! [`preempt`](super::preempt)'s.

use std::collections::{BTreeMap, BTreeSet};

use crate::io::{Eviction, Tick, Token};

/// How long an eviction without an answer may still show.
const DOUBT_SECONDS: i64 = 30;

/// How far one question about a victim has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Ask {
    /// Nobody asked.
    #[default]
    Never,
    /// Asked, not answered.
    Open,
    /// Allowed; or the pod is gone.
    Yes,
    /// Gone before anything was asked of it.
    Gone,
    /// The server could not be asked.
    Unknown,
    /// Forbidden.
    No,
}

/// A pod that has to go.
#[derive(Clone, Debug)]
pub(super) struct Victim {
    /// `namespace/name`.
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) dry: Ask,
    pub(super) real: Ask,
    /// It was asked about in this step.
    pub(super) now: bool,
    /// How many changes of budgets were seen before it was last asked about.
    pub(super) asked: u64,
    /// Until when it counts as going though nobody knows.
    pub(super) doubted: Tick,
}

impl Victim {
    /// Whether it was asked to go, and may do so.
    pub(super) fn may_leave(&self, now: Tick) -> bool {
        match self.real {
            Ask::Open | Ask::Yes => true,
            Ask::Unknown => now < self.doubted,
            Ask::Never | Ask::Gone | Ask::No => false,
        }
    }

    /// Its name without its namespace.
    pub(super) fn own_name(&self) -> &str {
        self.name.split_once('/').map_or(&self.name, |(_, name)| name)
    }
}

/// What one pod needs to find room.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub(super) victims: Vec<Victim>,
    /// Its first questions are of this step.
    pub(super) fresh: bool,
    /// Victims were asked to go in this step.
    pub(super) acting: bool,
    /// Its victims go whatever their budgets say.
    pub(super) forced: bool,
    /// The preemptor was gone in between, for an old list perhaps: its plan ended there.
    pub(super) lost: bool,
    /// UIDs of members that waited when it began, if it is a gang's.
    pub(super) waiting: BTreeSet<String>,
    /// When it began.
    pub(super) begun: Tick,
}

impl Plan {
    /// Whether somebody was asked to go who has not answered. What a dry run would
    /// say matters no more once one was refused.
    pub(super) fn is_open(&self) -> bool {
        let refused = self.victims.iter().any(|v| v.dry == Ask::No);
        let asked = |v: &Victim| v.real == Ask::Open || v.dry == Ask::Open && !refused;
        !self.lost && self.victims.iter().any(|v| !v.now && asked(v))
    }

    /// Whether the first question about this victim belongs to another plan than the
    /// last one.
    pub(super) fn is_over_for(&self, victim: &str, forced: bool) -> bool {
        let first = |v: &Victim| if forced { v.real } else { v.dry };
        let same = self.victims.iter().find(|v| v.uid == victim);
        let open = same.is_some_and(|v| matches!(first(v), Ask::Open | Ask::Unknown));
        let refused = self.victims.iter().any(|v| v.dry == Ask::No || v.real == Ask::No);
        !self.fresh && (forced != self.forced || refused || !open)
    }

    /// Begins anew, with those that were asked about in this step.
    pub(super) fn renew(&mut self, forced: bool) {
        self.victims.retain(|v| v.now);
        (self.fresh, self.acting, self.lost) = (true, false, false);
        self.forced = forced;
    }

    /// Whether the server may be asked again after a while.
    pub(super) fn may_wait(&self) -> bool {
        self.victims.iter().any(|v| v.dry == Ask::Unknown || v.real == Ask::Unknown)
    }

    /// Whether somebody was asked to go.
    pub(super) fn has_acted(&self) -> bool {
        self.victims.iter().any(|v| v.real != Ask::Never)
    }

    pub(super) fn victim(&mut self, uid: &str) -> Option<&mut Victim> {
        self.victims.iter_mut().find(|v| v.uid == uid)
    }
}

/// All of them, by the preemptor's UID.
#[derive(Debug, Default)]
pub(super) struct Plans {
    pub(super) plans: BTreeMap<String, Plan>,
    /// Preemptors that got an answer since the last look.
    pub(super) answered: Vec<String>,
    tokens: BTreeMap<Token, (String, String, bool)>,
    /// UIDs and names of pods that the server said are gone, until they are seen to go.
    gone: BTreeMap<String, String>,
    /// When something was last asked.
    pub(super) asked_at: Tick,
    /// Preemptors whose plan has to be judged when the step is over.
    pub(super) touched: Vec<(String, String)>,
}

impl Plans {
    /// Notes a question, and says whether its token is a new one.
    pub(super) fn ask(&mut self, token: Token, preemptor: &str, victim: &str, dry: bool) -> bool {
        let question = (preemptor.to_owned(), victim.to_owned(), dry);
        self.tokens.insert(token, question).is_none()
    }

    /// Notes an answer; answers to questions that nobody asked are ignored.
    pub(super) fn answer(&mut self, now: Tick, token: Token, eviction: &Eviction) {
        let Some((preemptor, uid, dry)) = self.tokens.remove(&token) else { return };
        let plan = self.plans.get_mut(&preemptor);
        let Some(victim) = plan.and_then(|plan| plan.victim(&uid)) else { return };
        if *eviction == Eviction::Gone {
            self.gone.insert(uid, victim.name.clone());
        }
        let said = match eviction {
            Eviction::Accepted => Ask::Yes,
            Eviction::Gone => Ask::Gone,
            Eviction::Unavailable(_) => {
                victim.doubted = now.after_secs(DOUBT_SECONDS);
                Ask::Unknown
            }
            Eviction::Refused(_) | Eviction::Failed(_) => Ask::No,
        };
        *(if dry { &mut victim.dry } else { &mut victim.real }) = said;
        self.answered.push(preemptor);
    }

    /// Whether the server said that this pod is gone.
    pub(super) fn is_gone(&self, uid: &str) -> bool {
        self.gone.contains_key(uid)
    }

    /// Victims that were asked to go, unless the server said that they may not.
    pub(super) fn leaving(&self, now: Tick) -> impl Iterator<Item = &Victim> {
        let all = self.plans.values().flat_map(|plan| &plan.victims);
        all.filter(move |v| v.may_leave(now))
    }

    /// Keeps what may still matter: answers to come, victims that have not gone, and
    /// preemptors that may ask again.
    pub(super) fn prune(
        &mut self,
        there: impl Fn(&str, &str) -> bool,
        waits: impl Fn(&str) -> bool,
    ) {
        self.gone.retain(|uid, name| there(name, uid));
        self.plans.retain(|preemptor, plan| {
            let again = plan.may_wait() && waits(preemptor);
            again || plan.is_open() || plan.victims.iter().any(|v| there(&v.name, &v.uid))
        });
        let plans = &self.plans;
        self.tokens.retain(|_, (preemptor, ..)| plans.contains_key(preemptor));
    }

    /// Of a pod that is gone nothing is to be said any more.
    pub(super) fn forget(&mut self, preemptor: &str) {
        // Its victims may be going all the same: they stay until they are gone.
        match self.plans.get_mut(preemptor) {
            Some(plan) if plan.has_acted() => plan.lost = true,
            _ => drop(self.plans.remove(preemptor)),
        }
    }
}
