//! A core whose every step is audited.

use std::sync::PoisonError;

use muster_core::audit::{Audit, Audited};
use muster_core::io::{Effect, Input, Tick};
use muster_core::{CacheView, Config, Core, QueueView, Reload, ReloadError};

use super::Tweak;
use crate::check::Finding;
use crate::scheduler::{Attempt, Brain, Complaint, attempt_of, complaints_of};
use crate::time::SECOND;

/// Turns of the timers between full comparisons. Right after the timers, because a
/// process that stood still hears old news before it looks at its clock.
const FULL_EVERY: u64 = 24;

struct AuditedBrain {
    core: Audited,
    now: Tick,
    advanced: Tick,
    turns: u64,
}

/// A core with an audit.
pub(super) fn audited(config: Config, tweak: &Tweak) -> Box<dyn Brain> {
    let audit = tweak.eager.iter().fold(Audit::new(&config), |audit, plugin| audit.eager(plugin));
    let mut core = Audited::with(Core::new(config), audit, 0);
    core.core_mut().set_trace(tweak.trace);
    if let Some(log) = &tweak.calls {
        // What a process that died had noted is no business of the next one.
        log.lock().unwrap_or_else(PoisonError::into_inner).clear();
        core = core.listen(log);
    }
    Box::new(AuditedBrain { core, now: Tick(0), advanced: Tick(0), turns: 0 })
}

impl Brain for AuditedBrain {
    fn apply(&mut self, now: Tick, input: Input) {
        self.now = now;
        self.core.apply(now, input);
    }

    fn advance(&mut self, now: Tick) {
        (self.now, self.advanced) = (now, now);
        self.core.advance(now);
        self.turns += 1;
        if self.turns.is_multiple_of(FULL_EVERY) {
            self.core.full(now);
        }
    }

    fn schedule_one(&mut self, now: Tick) -> Option<Attempt> {
        self.now = now;
        self.core.schedule_one(now).map(attempt_of)
    }

    fn reload(&mut self, now: Tick, reload: Reload) -> Result<(), ReloadError> {
        self.now = now;
        self.core.reload(now, reload)
    }

    fn next_deadline(&self) -> Option<Tick> {
        self.core.core().next_deadline()
    }

    fn take_effects(&mut self) -> Vec<Effect> {
        self.core.take_effects()
    }

    fn take_complaints(&mut self) -> Vec<Complaint> {
        complaints_of(self.core.core_mut())
    }

    fn views(&self) -> Option<(CacheView, QueueView)> {
        Some((self.core.core().cache_view(), self.core.core().queue_view()))
    }

    fn take_findings(&mut self) -> Vec<Finding> {
        if self.now.0 - self.advanced.0 <= SECOND {
            self.core.full(self.now);
        }
        let violations = self.core.take_violations().into_iter();
        violations.map(|v| Finding { invariant: v.invariant, what: v.what }).collect()
    }
}
