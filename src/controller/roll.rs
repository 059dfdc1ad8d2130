//! The members of one group, from two watches.
//!
//! The scheduler's watch of pods shows those that have not ended; for it a pod that
//! ends is a pod that is gone. A second watch shows the members that have ended.
//! The two are not in step: a member that has left the one and has not appeared
//! in the other is kept for a while as it was.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_api::k8s::{Pod, Time};
use muster_core::gang::status::Member;
use tokio::time::Instant;

/// How long a member that has left may take to appear among those that ended.
const GRACE: Duration = Duration::from_secs(2);

/// Which watch showed a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// That of pods that have not ended.
    Live,
    /// That of members that have.
    Ended,
}

#[derive(Debug)]
struct Entry {
    uid: Box<str>,
    created: Time,
    side: Side,
    /// The list in which it was seen last.
    list: u32,
    left: Option<Instant>,
    member: Member,
}

/// Members by name.
#[derive(Debug, Default)]
pub(super) struct Roll {
    entries: BTreeMap<Box<str>, Entry>,
    /// Who is no more, until somebody asks.
    removed: Vec<Box<str>>,
}

impl Roll {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn members(&self) -> impl Iterator<Item = &Member> + Clone {
        self.entries.values().map(|e| &e.member)
    }

    /// A watch shows a pod; `true` if that changes anything.
    pub(super) fn seen(&mut self, pod: &Pod, side: Side, list: u32) -> bool {
        let meta = &pod.metadata;
        let created = meta.creation_timestamp.unwrap_or_default();
        let mut entry = Entry {
            uid: meta.uid.as_str().into(),
            created,
            side,
            list,
            left: None,
            member: Member::of(pod),
        };
        match self.entries.get_mut(meta.name.as_str()) {
            // A late word on a pod that has ended since.
            Some(old)
                if *old.uid == *entry.uid && old.side == Side::Ended && side == Side::Live =>
            {
                false
            }
            // A late word on a pod of that name that is no more.
            Some(old)
                if *old.uid != *entry.uid
                    && (created < old.created
                        || (created == old.created && side == Side::Ended)) =>
            {
                false
            }
            Some(old) => {
                std::mem::swap(old, &mut entry);
                entry.member != old.member || entry.uid != old.uid || entry.left.is_some()
            }
            None => {
                self.entries.insert(meta.name.as_str().into(), entry);
                true
            }
        }
    }

    /// A watch does not show a pod any more; `true` if that changes anything now.
    pub(super) fn gone(&mut self, name: &str, uid: &str, side: Side, now: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(name) else { return false };
        if *entry.uid != *uid || entry.side != side {
            return false;
        }
        self.leave(name, now);
        true
    }

    fn leave(&mut self, name: &str, now: Instant) {
        match self.entries.get_mut(name) {
            // A pod that ends is gone for one watch before it appears in the other.
            Some(entry) if entry.side == Side::Live => {
                entry.left.get_or_insert(now);
            }
            Some(_) => {
                self.entries.remove(name);
                self.removed.push(name.into());
            }
            None => {}
        }
    }

    /// A list is complete: who was not in it is gone. `true` if anybody is.
    pub(super) fn listed(&mut self, side: Side, list: u32, now: Instant) -> bool {
        let absent = |e: &Entry| e.side == side && e.list != list && e.left.is_none();
        let gone: Vec<Box<str>> =
            self.entries.iter().filter(|(_, e)| absent(e)).map(|(name, _)| name.clone()).collect();
        for name in &gone {
            self.leave(name, now);
        }
        !gone.is_empty()
    }

    /// Drops who has left for good; returns when to look again.
    pub(super) fn settle(&mut self, now: Instant) -> Option<Instant> {
        let over = |e: &Entry| e.left.is_some_and(|left| left + GRACE <= now);
        let removed = &mut self.removed;
        self.entries.retain(|name, e| {
            if over(e) {
                removed.push(name.clone());
            }
            !over(e)
        });
        self.entries.values().filter_map(|e| e.left).min().map(|left| left + GRACE)
    }

    /// Names of those who are no more, since this was asked.
    pub(super) fn take_removed(&mut self) -> Vec<Box<str>> {
        std::mem::take(&mut self.removed)
    }

    /// Whether a member is on one of these nodes.
    pub(super) fn is_on(&self, nodes: &std::collections::HashSet<Box<str>>) -> bool {
        self.members().any(|m| nodes.contains(&m.node))
    }

    /// Takes a pod off at once: its labels name another group.
    pub(super) fn remove(&mut self, name: &str) -> bool {
        self.entries.remove(name).is_some()
    }
}
