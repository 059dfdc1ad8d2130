//! The status of a `PodGroup`: what its members do, in numbers, phases and
//! conditions.
//!
//! Owns the arithmetic: a pure function of the spec, the members, what the
//! scheduler last said and the status before. Must never read a clock, keep
//! anything, or influence a decision.

mod count;
mod member;
#[cfg(test)]
mod tests;
mod words;

pub use member::{Member, State, Trouble};

use std::fmt;
use std::sync::Arc;

use muster_api::k8s::Time;
use muster_api::muster::{
    Condition, Domain, Phase, PodGroupSpec, PodGroupStatus, RoleStatus, condition, reason,
};

use self::count::{Tally, bound, existing, ready};

/// What has become of a node with members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// It is not ready, or does not answer.
    NotReady,
    /// It was deleted.
    Gone,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotReady => "is not ready",
            Self::Gone => "is gone",
        })
    }
}

/// What the scheduler said of a gang that is not bound, and where it put it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Says {
    /// One of [`reason`]: `Unschedulable`, `WaitingForPermit`, `Accumulating`,
    /// `ScheduleTimeout`, `Rejected`. Empty: nothing yet.
    pub reason: Arc<str>,
    /// The same for people.
    pub message: Arc<str>,
    /// The domain the gang got.
    pub domain: Option<Domain>,
    /// The domains that roles got, by name.
    pub role_domains: Vec<(String, Domain)>,
}

/// What a status is made from.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// What is asked for.
    pub spec: &'a PodGroupSpec,
    /// Which generation of it.
    pub generation: Option<i64>,
    /// What the scheduler said.
    pub says: &'a Says,
    /// The status before.
    pub previous: &'a PodGroupStatus,
    /// The time.
    pub now: Time,
}

/// A status, and when it should be made again though nothing has happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Computed {
    /// The status.
    pub status: PodGroupStatus,
    /// When a deadline passes.
    pub due: Option<Time>,
}

/// The status of a group with these members, in order of their names. `lost` says
/// which nodes are lost.
pub fn status<'a>(
    facts: &Facts<'a>,
    members: impl Iterator<Item = &'a Member>,
    lost: impl Fn(&str) -> Option<Lost>,
) -> Computed {
    let tally = Tally::of(facts.spec, members, lost);
    if is_over(facts.previous, &tally) {
        let observed_generation = facts.generation;
        let status = PodGroupStatus { observed_generation, ..facts.previous.clone() };
        return Computed { status, due: None };
    }
    let progress = Progress::of(facts, &tally);
    let mut made = Making { facts, tally: &tally, progress: &progress, due: None };
    let degraded = made.degraded();
    let scheduled = made.scheduled(&degraded);
    let started = made.started();
    let finished = made.finished();
    let phase = made.phase(&scheduled);
    let why = match phase {
        Phase::Pending | Phase::Scheduling | Phase::Waiting => &scheduled,
        Phase::Degraded => &degraded,
        Phase::Running if degraded.holds => &degraded,
        Phase::Scheduled | Phase::Running => &started,
        Phase::Succeeded | Phase::Failed => &finished,
    };
    let (why_reason, why_message) = (why.reason.clone(), why.message.clone());
    let status = PodGroupStatus {
        observed_generation: facts.generation,
        phase: Some(phase),
        reason: Some(why_reason),
        message: Some(why_message).filter(|m| !m.is_empty()),
        min_member: Some(facts.spec.min_member()),
        members: Some(tally.all),
        roles: made.roles(),
        domain: made.domain(),
        conditions: made.conditions([scheduled, started, degraded, finished]),
        schedule_start_time: progress.schedule_start,
        scheduled_time: progress.scheduled_at,
        start_time: progress.started_at,
        completion_time: progress.completed_at,
    };
    Computed { status, due: made.due }
}

/// Whether the group had ended and nothing new came: its pods may be tidied away.
fn is_over(previous: &PodGroupStatus, tally: &Tally<'_>) -> bool {
    let (all, before) = (&tally.all, previous.members.unwrap_or_default());
    previous.is_true(condition::FINISHED)
        && !tally.is_alive()
        && all.succeeded <= before.succeeded
        && all.failed <= before.failed
}

/// What has been reached, and when.
struct Progress {
    exists: bool,
    bound: bool,
    ready: bool,
    /// It was bound, and is not any more, and something of it is left.
    broken: bool,
    /// All members have ended: well, or not.
    ended: Option<bool>,
    schedule_start: Option<Time>,
    scheduled_at: Option<Time>,
    started_at: Option<Time>,
    completed_at: Option<Time>,
}

impl Progress {
    fn of(facts: &Facts<'_>, tally: &Tally<'_>) -> Self {
        let (all, before, now) = (&tally.all, facts.previous, facts.now.whole_seconds());
        let (exists, bound, ready) =
            (tally.reached(existing), tally.reached(bound), tally.reached(ready));
        // Terminating members hold up neither end: a success needs none of them,
        // and a failure is not certain before they are gone.
        let ended = if tally.is_alive() || all.succeeded + all.failed == 0 {
            None
        } else if tally.reached(|c| c.succeeded) {
            Some(true)
        } else {
            (all.terminating == 0).then_some(false)
        };
        let remains = all.scheduled + all.succeeded + all.lost > 0;
        let was_bound = before.scheduled_time.is_some() && remains;
        let regained = !before.is_true(condition::SCHEDULED);
        let scheduled_at = match before.scheduled_time {
            Some(at) if bound && !regained => Some(at),
            _ if bound => Some(now),
            at => at.filter(|_| was_bound),
        };
        let started_at = match before.start_time.filter(|_| was_bound || bound) {
            Some(at) if before.is_true(condition::STARTED) || !ready => Some(at),
            _ => ready.then_some(now),
        };
        let schedule_start = before.schedule_start_time.filter(|_| exists || was_bound);
        Self {
            exists,
            bound,
            ready,
            broken: was_bound && !bound,
            ended,
            schedule_start: schedule_start.or_else(|| exists.then_some(now)),
            scheduled_at,
            started_at,
            completed_at: ended.map(|_| before.completion_time.unwrap_or(now)),
        }
    }
}

/// One condition before it has a time.
struct Finding {
    kind: &'static str,
    holds: bool,
    reason: String,
    message: String,
}

fn finding(kind: &'static str, holds: bool, reason: &str, message: &str) -> Finding {
    Finding { kind, holds, reason: reason.to_owned(), message: words::bounded(message) }
}

struct Making<'a> {
    facts: &'a Facts<'a>,
    tally: &'a Tally<'a>,
    progress: &'a Progress,
    due: Option<Time>,
}

impl Making<'_> {
    fn phase(&self, scheduled: &Finding) -> Phase {
        match self.progress {
            Progress { ended: Some(true), .. } => Phase::Succeeded,
            Progress { ended: Some(false), .. } => Phase::Failed,
            Progress { bound: true, ready: true, .. } => Phase::Running,
            Progress { bound: true, .. } => Phase::Scheduled,
            Progress { broken: true, .. } => Phase::Degraded,
            Progress { exists: false, .. } => Phase::Pending,
            _ if waits(&scheduled.reason) => Phase::Waiting,
            _ => Phase::Scheduling,
        }
    }

    /// Whether the minimum is bound, and if not, why not.
    fn scheduled(&self, degraded: &Finding) -> Finding {
        let (spec, tally, progress) = (self.facts.spec, self.tally, self.progress);
        let kind = condition::SCHEDULED;
        if progress.bound {
            return finding(kind, true, reason::SCHEDULED, "");
        }
        if progress.ended.is_some() {
            return finding(kind, false, reason::FAILED, &words::failed(&tally.failed));
        }
        if progress.broken && !progress.exists {
            return finding(kind, false, &degraded.reason, &degraded.message);
        }
        if !progress.exists {
            let share = words::share(spec, tally, existing, "exist");
            return finding(kind, false, reason::GANG_INCOMPLETE, &share);
        }
        let says = self.says();
        let alone = tally.all.scheduled == 0 || progress.broken;
        if waits(&says.0) || (alone && !says.0.is_empty()) {
            return finding(kind, false, &says.0, &says.1);
        }
        if tally.all.scheduled > 0 {
            let mut text = words::share(spec, tally, bound, "are bound");
            if !says.1.is_empty() {
                text += &format!("; {}", says.1);
            }
            return finding(kind, false, reason::HALF_BOUND, &text);
        }
        finding(kind, false, reason::SCHEDULING, "")
    }

    /// What the scheduler says, or said before it was started anew: a verdict
    /// holds until there is another, a wait does not outlive the process.
    fn says(&self) -> (String, String) {
        let says = self.facts.says;
        if !says.reason.is_empty() {
            return (says.reason.to_string(), says.message.to_string());
        }
        let verdicts = [reason::UNSCHEDULABLE, reason::SCHEDULE_TIMEOUT, reason::REJECTED];
        let before = self.facts.previous.condition(condition::SCHEDULED);
        let before = before.filter(|c| verdicts.contains(&c.reason.as_str()));
        before.map(|c| (c.reason.clone(), c.message.clone())).unwrap_or_default()
    }

    /// Whether the minimum runs, and if not, who keeps it.
    fn started(&mut self) -> Finding {
        let (spec, tally, progress) = (self.facts.spec, self.tally, self.progress);
        let kind = condition::STARTED;
        if progress.ready {
            return finding(kind, true, reason::RUNNING, "");
        }
        if progress.ended.is_some() {
            return finding(kind, false, reason::FAILED, &words::failed(&tally.failed));
        }
        let Some(scheduled_at) = progress.scheduled_at else {
            return finding(kind, false, reason::NOT_SCHEDULED, "");
        };
        let share = words::share(spec, tally, ready, "run");
        if let Some(limit) = spec.start_timeout_seconds {
            // A gang that ran and does not any more has its time anew.
            let before = self.facts.previous.condition(kind).filter(|c| !c.is_true());
            let since = match (progress.started_at, before) {
                (Some(_), Some(c)) => c.last_transition_time.max(scheduled_at),
                (Some(_), None) => self.facts.now.whole_seconds(),
                (None, _) => scheduled_at,
            };
            let deadline = Time(since.0.saturating_add(i64::from(limit) * 1_000_000));
            if self.facts.now >= deadline {
                let text = format!("{share} after {limit} s: {}", words::unstarted(tally));
                return finding(kind, false, reason::START_TIMEOUT, &text);
            }
            self.due = Some(deadline);
        }
        finding(kind, false, reason::STARTING, &share)
    }

    /// Whether something was lost.
    fn degraded(&self) -> Finding {
        let (spec, tally) = (self.facts.spec, self.tally);
        let kind = condition::DEGRADED;
        if self.progress.ended.is_none() {
            // One that is being deleted is missed only while nobody has taken its place.
            let missed =
                |(member, _): &&(&Member, Lost)| self.progress.broken || !member.terminating;
            let lost: Vec<_> = tally.lost.iter().filter(missed).copied().collect();
            if !lost.is_empty() {
                return finding(kind, true, reason::NODE_LOST, &words::lost(&lost));
            }
            if self.progress.broken {
                // Its pods are gone by now; the node is still the cause.
                let before = self.facts.previous.condition(kind);
                let before = before.filter(|c| c.is_true() && c.reason == reason::NODE_LOST);
                if let Some(before) = before {
                    return finding(kind, true, reason::NODE_LOST, &before.message);
                }
                let mut text = words::share(spec, tally, bound, "are left");
                if !tally.failed.is_empty() {
                    text += &format!("; {}", words::failed(&tally.failed));
                }
                return finding(kind, true, reason::MEMBERS_LOST, &text);
            }
        }
        finding(kind, false, reason::AS_EXPECTED, "")
    }

    /// Whether it is over.
    fn finished(&self) -> Finding {
        let kind = condition::FINISHED;
        match self.progress.ended {
            None => finding(kind, false, reason::NOT_FINISHED, ""),
            Some(true) => finding(kind, true, reason::SUCCEEDED, ""),
            Some(false) => {
                let mut text =
                    words::share(self.facts.spec, self.tally, |c| c.succeeded, "have succeeded");
                if !self.tally.failed.is_empty() {
                    text += &format!("; {}", words::failed(&self.tally.failed));
                }
                finding(kind, true, reason::FAILED, &text)
            }
        }
    }

    fn roles(&self) -> Vec<RoleStatus> {
        let (facts, tally) = (self.facts, self.tally);
        let roles = facts.spec.roles.iter().zip(&tally.roles);
        roles
            .map(|(role, counts)| {
                let said = facts.says.role_domains.iter().find(|(name, _)| *name == role.name);
                let before = facts.previous.roles.iter().find(|r| r.name == role.name);
                let before = before.and_then(|r| r.domain.clone()).filter(|_| counts.scheduled > 0);
                RoleStatus {
                    name: role.name.clone(),
                    min_member: role.min_member,
                    members: *counts,
                    domain: said.map(|(_, domain)| domain.clone()).or(before),
                }
            })
            .collect()
    }

    /// A domain is kept as long as a member is there.
    fn domain(&self) -> Option<Domain> {
        let before = self.facts.previous.domain.clone();
        let kept = before.filter(|_| self.tally.all.scheduled > 0 || self.progress.ended.is_some());
        self.facts.says.domain.clone().or(kept)
    }

    /// Conditions with their times, and those of others as they are.
    fn conditions(&self, findings: [Finding; 4]) -> Vec<Condition> {
        let before = self.facts.previous;
        let own: Vec<Condition> = findings
            .into_iter()
            .map(|f| {
                let status = if f.holds { "True" } else { "False" };
                let same = before.condition(f.kind).filter(|c| c.status == status);
                let now = self.facts.now.whole_seconds();
                Condition {
                    kind: f.kind.to_owned(),
                    status: status.to_owned(),
                    observed_generation: self.facts.generation,
                    last_transition_time: same.map_or(now, |c| c.last_transition_time),
                    reason: f.reason,
                    message: f.message,
                }
            })
            .collect();
        let foreign = |c: &&Condition| !own.iter().any(|o| o.kind == c.kind);
        let others: Vec<_> = before.conditions.iter().filter(foreign).cloned().collect();
        own.into_iter().chain(others).collect()
    }
}

/// Whether a reason is that of a wait with room reserved.
fn waits(reason: &str) -> bool {
    [reason::WAITING_FOR_PERMIT, reason::ACCUMULATING].contains(&reason)
}
