//! What waits to be written: one call per pod, binds first.
//!
//! Upstream's dispatcher rules: a newer call of the same kind takes the place
//! of the older one (conditions merge), a bind takes the place of a status
//! patch, a patch behind a waiting bind is dropped, and whatever comes while a
//! call of the same pod is on its way waits for it. No I/O, no clock.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::hash::TextMap;
use crate::io::{EventRecord, PodRef, StatusPatch};

/// Most status patches that may wait: beyond it new ones are dropped. The core asks
/// again for a condition that the watch does not show.
pub const MAX_PATCHES: usize = 50_000;
/// Most events that may wait: beyond it new ones are dropped.
pub const MAX_EVENTS: usize = 10_000;

/// A bind to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    /// The pod.
    pub pod: PodRef,
    /// The node.
    pub node: Arc<str>,
    /// Echoed in the answer.
    pub attempt: u64,
}

/// A call about one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodCall {
    /// A bind.
    Bind(Bind),
    /// A status patch.
    Patch(StatusPatch),
}

impl PodCall {
    /// The pod it is about.
    #[must_use]
    pub fn pod(&self) -> &PodRef {
        match self {
            Self::Bind(bind) => &bind.pod,
            Self::Patch(patch) => &patch.pod,
        }
    }

    /// Upstream's value of the label `call_type`.
    #[must_use]
    pub fn call_type(&self) -> &'static str {
        match self {
            Self::Bind(_) => "pod_binding",
            Self::Patch(_) => "pod_status_patch",
        }
    }
}

#[derive(Default)]
struct Slot {
    /// A call of this pod is on its way.
    flying: bool,
    next: Option<PodCall>,
}

/// What became of a call that was handed in.
#[derive(Debug, PartialEq, Eq)]
pub enum Added {
    /// It waits; one more call is ready to be taken if `ready`.
    Waits {
        /// Whether it can be taken now.
        ready: bool,
    },
    /// It took the place of the call returned.
    Replaced(PodCall),
    /// It was merged into the waiting one, or is not worth writing.
    Dropped(PodCall),
}

/// The calls that wait. See the module's text.
#[derive(Default)]
pub struct Dispatch {
    slots: TextMap<Arc<str>, Slot>,
    /// Pods whose next call is a bind; may name pods that need nothing any more.
    binds: VecDeque<Arc<str>>,
    /// As `binds`, for patches.
    patches: VecDeque<Arc<str>>,
    /// Warnings go first: somebody may be waiting for the reason.
    warnings: VecDeque<EventRecord>,
    events: VecDeque<EventRecord>,
    waiting_binds: usize,
    waiting_patches: usize,
    flying: usize,
}

impl Dispatch {
    /// Hands in a call.
    pub fn add(&mut self, call: PodCall) -> Added {
        if matches!(call, PodCall::Patch(_)) && self.waiting_patches >= MAX_PATCHES {
            return Added::Dropped(call);
        }
        let uid = call.pod().uid.clone();
        let slot = self.slots.entry(uid.clone()).or_default();
        let replaced = match (&mut slot.next, call) {
            (Some(PodCall::Bind(_)), call @ PodCall::Patch(_)) => return Added::Dropped(call),
            (Some(PodCall::Patch(old)), PodCall::Patch(new)) => {
                let merged = PodCall::Patch(new.clone());
                merge(old, new);
                return Added::Dropped(merged);
            }
            (Some(old @ PodCall::Bind(_)), call) => {
                return Added::Replaced(std::mem::replace(old, call));
            }
            (next, call) => next.replace(call),
        };
        let is_bind = matches!(slot.next, Some(PodCall::Bind(_)));
        let ready = !slot.flying;
        if is_bind {
            self.waiting_binds += 1;
        } else {
            self.waiting_patches += 1;
        }
        if ready {
            self.queue(is_bind, uid);
        }
        match replaced {
            None => Added::Waits { ready },
            Some(patch) => {
                self.waiting_patches -= 1;
                Added::Replaced(patch)
            }
        }
    }

    fn queue(&mut self, is_bind: bool, uid: Arc<str>) {
        if is_bind {
            self.binds.push_back(uid);
        } else {
            self.patches.push_back(uid);
        }
    }

    /// The next call to make, binds first. [`Dispatch::done`] must follow.
    pub fn take(&mut self) -> Option<PodCall> {
        while let Some(uid) = self.binds.pop_front() {
            if let Some(call) = self.start(&uid, true) {
                return Some(call);
            }
        }
        while let Some(uid) = self.patches.pop_front() {
            if let Some(call) = self.start(&uid, false) {
                return Some(call);
            }
        }
        None
    }

    /// Takes the waiting call of a pod if it is still of that sort.
    fn start(&mut self, uid: &Arc<str>, bind: bool) -> Option<PodCall> {
        let slot = self.slots.get_mut(uid)?;
        let same = matches!(slot.next, Some(PodCall::Bind(_))) == bind;
        if slot.flying || !same {
            return None;
        }
        let call = slot.next.take()?;
        slot.flying = true;
        self.flying += 1;
        if bind {
            self.waiting_binds -= 1;
        } else {
            self.waiting_patches -= 1;
        }
        Some(call)
    }

    /// The pod's call has ended; `true` if another one became ready.
    pub fn done(&mut self, uid: &Arc<str>) -> bool {
        let Some(slot) = self.slots.get_mut(uid) else {
            return false;
        };
        if slot.flying {
            slot.flying = false;
            self.flying -= 1;
        }
        let next_is_bind = slot.next.as_ref().map(|c| matches!(c, PodCall::Bind(_)));
        match next_is_bind {
            None => {
                self.slots.remove(uid);
                false
            }
            Some(is_bind) => {
                self.queue(is_bind, uid.clone());
                true
            }
        }
    }

    /// Queues an event; `false` if there is no room.
    pub fn add_event(&mut self, event: EventRecord) -> bool {
        if self.warnings.len() + self.events.len() >= MAX_EVENTS {
            return false;
        }
        if event.warning {
            self.warnings.push_back(event);
        } else {
            self.events.push_back(event);
        }
        true
    }

    /// The next event to write, warnings first.
    pub fn take_event(&mut self) -> Option<EventRecord> {
        let warning = self.warnings.pop_front();
        warning.or_else(|| self.events.pop_front())
    }

    /// Whether nothing waits and nothing is on its way, events aside.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.waiting_binds + self.waiting_patches + self.flying == 0
    }

    /// Whether an event waits.
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty() || !self.warnings.is_empty()
    }

    /// Calls on their way.
    #[must_use]
    pub fn flying(&self) -> usize {
        self.flying
    }

    /// Throws away whatever was not started; returns the calls.
    pub fn discard(&mut self) -> Vec<PodCall> {
        self.events.clear();
        self.warnings.clear();
        self.binds.clear();
        self.patches.clear();
        (self.waiting_binds, self.waiting_patches) = (0, 0);
        let calls = self.slots.values_mut().filter_map(|s| s.next.take()).collect();
        self.slots.retain(|_, slot| slot.flying);
        calls
    }
}

fn merge(old: &mut StatusPatch, new: StatusPatch) {
    if new.condition.is_some() {
        old.condition = new.condition;
    }
    old.shown = new.shown;
    if new.nominated_node.is_some() {
        old.nominated_node = new.nominated_node;
    }
}

#[cfg(test)]
#[path = "dispatch_tests.rs"]
mod tests;
