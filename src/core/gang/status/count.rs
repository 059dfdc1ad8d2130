//! Members counted, and held against the minimums.

use muster_api::muster::{MemberCounts, PodGroupSpec};

use super::Lost;
use super::member::{Member, State};
use crate::model::Selector;

/// Everything the status says in numbers, and whom it could name.
pub(super) struct Tally<'a> {
    spec: &'a PodGroupSpec,
    /// All members.
    pub(super) all: MemberCounts,
    /// By role, in the order of the spec.
    pub(super) roles: Vec<MemberCounts>,
    /// On nodes that are lost, in order of names.
    pub(super) lost: Vec<(&'a Member, Lost)>,
    /// Bound, and not running.
    pub(super) unstarted: Vec<&'a Member>,
    /// Failed.
    pub(super) failed: Vec<&'a Member>,
}

impl<'a> Tally<'a> {
    /// Counts.
    pub(super) fn of(
        spec: &'a PodGroupSpec,
        members: impl Iterator<Item = &'a Member>,
        lost: impl Fn(&str) -> Option<Lost>,
    ) -> Self {
        // The server refuses selectors that cannot be compiled.
        let compile = |s| Selector::compile(Some(s)).unwrap_or_else(|_| Selector::nothing());
        let selectors: Vec<_> = spec.roles.iter().map(|r| compile(&r.selector)).collect();
        let mut tally = Self {
            spec,
            all: MemberCounts::default(),
            roles: vec![MemberCounts::default(); spec.roles.len()],
            lost: Vec::new(),
            unstarted: Vec::new(),
            failed: Vec::new(),
        };
        for member in members {
            let role = selectors.iter().position(|s| s.matches(&member.labels));
            let lost = if member.node.is_empty() || member.has_ended() {
                None
            } else {
                lost(&member.node)
            };
            let one = one(member, lost.is_some());
            add(&mut tally.all, &one);
            if let Some(role) = role {
                add(&mut tally.roles[role], &one);
            }
            if let Some(lost) = lost {
                tally.lost.push((member, lost));
            }
            if one.failed > 0 {
                tally.failed.push(member);
            }
            if one.scheduled > one.running {
                tally.unstarted.push(member);
            }
        }
        tally
    }

    /// Whether a member may still run: it has not ended, and is not being deleted.
    pub(super) fn is_alive(&self) -> bool {
        self.all.existing - self.all.succeeded + self.all.lost > 0
    }

    /// Whether the group's minimum and every role's are reached by what `of` counts.
    pub(super) fn reached(&self, of: impl Fn(&MemberCounts) -> i32) -> bool {
        of(&self.all) >= self.spec.min_member() && self.short_role(of).is_none()
    }

    /// The first role whose minimum is not reached: its number.
    pub(super) fn short_role(&self, of: impl Fn(&MemberCounts) -> i32) -> Option<usize> {
        let roles = self.spec.roles.iter().zip(&self.roles);
        roles.enumerate().find(|(_, (role, counts))| of(counts) < role.min_member).map(|(i, _)| i)
    }
}

/// Members that exist and have not failed.
pub(super) fn existing(counts: &MemberCounts) -> i32 {
    counts.existing
}

/// Members that are bound, or have succeeded.
pub(super) fn bound(counts: &MemberCounts) -> i32 {
    counts.scheduled + counts.succeeded
}

/// Members that run, or have succeeded.
pub(super) fn ready(counts: &MemberCounts) -> i32 {
    counts.ready
}

/// What one member counts as.
fn one(member: &Member, lost: bool) -> MemberCounts {
    let none = MemberCounts::default();
    match member.state {
        State::Succeeded => MemberCounts { existing: 1, ready: 1, succeeded: 1, ..none },
        State::Failed => MemberCounts { failed: 1, ..none },
        _ if member.terminating => MemberCounts { terminating: 1, ..none },
        _ if lost => MemberCounts { lost: 1, ..none },
        state => {
            let scheduled = i32::from(!member.node.is_empty());
            let running = i32::from(state == State::Running);
            MemberCounts { existing: 1, scheduled, running, ready: running, ..none }
        }
    }
}

fn add(sum: &mut MemberCounts, one: &MemberCounts) {
    sum.existing += one.existing;
    sum.scheduled += one.scheduled;
    sum.running += one.running;
    sum.ready += one.ready;
    sum.succeeded += one.succeeded;
    sum.failed += one.failed;
    sum.lost += one.lost;
    sum.terminating += one.terminating;
}
