//! A core with its checker: every step is seen, in order.

use std::sync::{Arc, PoisonError};

use super::{Audit, PointLog, Violation};
use crate::io::{Effect, Input, Tick};
use crate::{Config, Core, Decision, Reload, ReloadError};

/// A [`Core`] whose steps an [`Audit`] watches, if there is one.
///
/// Drive it as a core. Without a checker it costs nothing; with one every step's
/// effects are looked at before the next step begins, and everything is compared
/// every so many steps.
pub struct Audited {
    core: Core,
    audit: Option<Box<Audit>>,
    /// Effects seen, not yet taken.
    effects: Vec<Effect>,
    /// Steps between full comparisons; 0 is never by itself.
    every: u64,
    steps: u64,
    calls: Option<PointLog>,
}

impl Audited {
    /// A core without a checker.
    #[must_use]
    pub fn unchecked(core: Core) -> Self {
        Self { core, audit: None, effects: Vec::new(), every: 0, steps: 0, calls: None }
    }

    /// A core with a checker that compares everything every `every` steps.
    #[must_use]
    pub fn new(config: Config, every: u64) -> Self {
        let audit = Audit::new(&config);
        Self::with(Core::new(config), audit, every)
    }

    /// A core and its checker.
    #[must_use]
    pub fn with(core: Core, audit: Audit, every: u64) -> Self {
        Self { audit: Some(Box::new(audit)), every, ..Self::unchecked(core) }
    }

    /// The core, for questions.
    #[must_use]
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// The core, for all that is not a step.
    pub fn core_mut(&mut self) -> &mut Core {
        &mut self.core
    }

    /// Takes in what happened outside.
    pub fn apply(&mut self, now: Tick, input: Input) {
        if let Some(audit) = &mut self.audit {
            audit.input(now, &input);
        }
        self.core.apply(now, input);
        self.stepped(now);
    }

    /// Lets time pass.
    pub fn advance(&mut self, now: Tick) {
        self.core.advance(now);
        if let Some(audit) = &mut self.audit {
            audit.advanced(now);
        }
        self.stepped(now);
    }

    /// Puts other profiles into force.
    ///
    /// # Errors
    ///
    /// As [`Core::reload`].
    pub fn reload(&mut self, now: Tick, reload: Reload) -> Result<(), ReloadError> {
        match &mut self.audit {
            None => self.core.reload(now, reload)?,
            Some(audit) => {
                self.core.reload(now, reload.clone())?;
                audit.reloaded(&reload);
            }
        }
        self.stepped(now);
        Ok(())
    }

    /// Tries the next pod.
    pub fn schedule_one(&mut self, now: Tick) -> Option<Decision> {
        if self.audit.is_some() {
            self.core.settle(now);
            self.stepped(now);
        }
        let decision = self.core.schedule_one(now);
        if let (Some(audit), Some(decision)) = (&mut self.audit, &decision) {
            audit.decision(now, decision);
        }
        self.stepped(now);
        decision
    }

    /// What the core wants done, in order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        let mut effects = std::mem::take(&mut self.effects);
        effects.append(&mut self.core.take_effects());
        effects
    }

    /// Listens to test plugins that write their calls into `log`.
    #[must_use]
    pub fn listen(mut self, log: &PointLog) -> Self {
        self.calls = Some(Arc::clone(log));
        self
    }

    /// Compares everything now.
    pub fn full(&mut self, now: Tick) {
        if let Some(audit) = &mut self.audit {
            audit.full(now, &self.core);
        }
    }

    /// What was wrong since the last call.
    pub fn take_violations(&mut self) -> Vec<Violation> {
        self.audit.as_mut().map(|audit| audit.take_violations()).unwrap_or_default()
    }

    fn stepped(&mut self, now: Tick) {
        let Some(audit) = &mut self.audit else { return };
        if let Some(log) = &self.calls {
            let calls = std::mem::take(&mut *log.lock().unwrap_or_else(PoisonError::into_inner));
            calls.iter().for_each(|call| audit.called(call));
        }
        let effects = self.core.take_effects();
        effects.iter().for_each(|effect| audit.effect(now, effect));
        self.effects.extend(effects);
        self.steps += 1;
        if self.every > 0 && self.steps.is_multiple_of(self.every) {
            audit.full(now, &self.core);
        }
    }
}
