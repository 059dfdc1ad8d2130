//! What befalls processes, and what is asked of them at the end.
//!
//! The engine's half that deals the blows of a fault plan: deaths and comebacks,
//! standstills, clocks, leases, restarts of the API server. What is drawn is
//! [`Faults`]' to say.
//!
//! [`Faults`]: crate::faults::Faults

use crate::agenda::Event;
use crate::check::rest::{Statement, Truth};
use crate::engine::Engine;
use crate::lease::{Identity, RETRY};
use crate::link::Replica;
use crate::scenario::{Blow, Fault, ReloadSpec};
use crate::scheduler::Process;
use crate::time::{Micros, SECOND};

/// How often a process looks at its configuration.
const LOOK: Micros = SECOND;

impl Engine<'_> {
    /// A process starts with empty memory, and lists.
    pub(crate) fn start(&mut self, replica: Replica) {
        let index = usize::from(replica.0);
        if self.processes[index].is_some() {
            return;
        }
        let me = (replica, self.starts[index]);
        let config = (self.maker.config)(&self.rules);
        let brain = (self.maker.brain)(config);
        let elects = self.lease.is_some();
        let process = Process::new(brain, self.now, me, elects, self.watched);
        self.processes[index] = Some(process);
        if self.starts[index] == 0 {
            self.first_list(me);
        } else {
            self.watched.kinds().for_each(|kind| self.reconnect(me, kind));
        }
        if self.lease.is_some() {
            self.agenda.push(self.now, Event::Lease(me));
        }
    }

    /// A process dies; calls that it has sent are still under way.
    pub(crate) fn kill(&mut self, who: Identity, back: Micros) {
        if self.process(who).is_none() {
            return;
        }
        let index = usize::from(who.0.0);
        if let Some(mut process) = self.processes[index].take() {
            for finding in process.take_findings() {
                self.checker.found(self.now, &finding);
            }
        }
        self.starts[index] += 1;
        self.agenda.push(self.now.after_micros(back), Event::Start(who.0));
    }

    /// A candidate looks at the lease, and again in a while.
    pub(crate) fn look_at_lease(&mut self, who: Identity) {
        let now = self.now;
        self.agenda.push(now.after_micros(RETRY), Event::Lease(who));
        let faults = &mut self.link.faults;
        if faults.server_away(now) || faults.strikes(now, Fault::LostRenewal) {
            return;
        }
        let Some(mut lease) = self.lease else {
            return;
        };
        let before = lease.holder;
        let Some(process) = self.process(who) else {
            return;
        };
        let local = process.local(now);
        let took = process.candidate.as_mut().is_some_and(|c| c.look(local, &mut lease));
        let wish = if took { process.want_cycle(now) } else { None };
        self.lease = Some(lease);
        if before != lease.holder
            && let Some(other) = before
            && self.process(other).is_some_and(|p| p.may_write(now))
        {
            self.link.faults.counts.overlaps += 1;
        }
        self.settle(who, wish);
    }

    /// A process looks at its configuration, which may be another one by now.
    pub(crate) fn look_at_configuration(&mut self, who: Identity) {
        let now = self.now;
        let config = (self.maker.config)(&self.rules);
        let Some((done, wish)) = self.process(who).map(|process| process.reload(now, config))
        else {
            return;
        };
        self.link.faults.counts.reloads += u64::from(done);
        if !done {
            self.agenda.push(now.after_micros(LOOK), Event::Reload(who));
        }
        self.settle(who, wish);
    }

    /// The configuration of all processes changes; each sees it when it looks.
    pub(crate) fn reconfigure(&mut self, change: &ReloadSpec) {
        self.rules = self.rules.reloaded(change);
        let all: Vec<Identity> = self.processes.iter().flatten().map(|p| p.me).collect();
        for who in all {
            let after = LOOK + LOOK / 2 * Micros::from(who.0.0);
            self.agenda.push(self.now.after_micros(after), Event::Reload(who));
        }
    }

    /// A fault of the plan.
    pub(crate) fn blow(&mut self, blow: Blow) {
        let now = self.now;
        if now >= self.link.faults.end() {
            return;
        }
        self.link.faults.blow(now, blow);
        let named = |engine: &Self, replica: u8| {
            let process = engine.processes.get(usize::from(replica));
            process.and_then(Option::as_ref).map(|process| process.me)
        };
        match blow {
            Blow::Kill { replica, back } => {
                if let Some(who) = named(self, replica) {
                    self.kill(who, back);
                }
            }
            Blow::Freeze { replica, span } => {
                let who = named(self, replica);
                if let Some(process) = who.and_then(|who| self.process(who))
                    && process.frozen.is_none()
                {
                    process.frozen = Some(Vec::new());
                    let who = process.me;
                    self.agenda.push(now.after_micros(span), Event::Thaw(who));
                }
            }
            Blow::ClockJump { replica, by } => {
                if let Some(who) = named(self, replica) {
                    let wish = self.process(who).and_then(|process| {
                        process.jump(by);
                        process.want_cycle(now)
                    });
                    self.settle(who, wish);
                }
            }
            Blow::RestartServer { .. } => self.cut_all(None),
            Blow::Compact { replica } => {
                let revision = self.api.revision();
                if let Some(log) = self.api.log_mut() {
                    log.compact(revision);
                }
                self.cut_all(Some(Replica(replica)));
            }
        }
    }

    fn cut_all(&mut self, only: Option<Replica>) {
        let all: Vec<Identity> = self.processes.iter().flatten().map(|p| p.me).collect();
        for who in all.into_iter().filter(|who| only.is_none_or(|only| only == who.0)) {
            self.watched.kinds().for_each(|kind| self.cut(who, kind));
        }
    }

    /// The faults are over: objects that could not be decoded are written anew.
    pub(crate) fn mend(&mut self) {
        self.moved = self.now;
        for notice in std::mem::take(&mut self.broken) {
            self.api.touch(&notice);
        }
    }

    /// Everything has come to rest: is all well?
    pub(crate) fn judge_rest(&mut self) {
        let now = self.now;
        let mut findings = Vec::new();
        let truth = Truth::new(&self.api, &self.rules);
        let mut known = false;
        for process in self.processes.iter_mut().flatten() {
            findings.extend(process.take_findings());
            let Some((cache, queue)) = process.views() else {
                continue;
            };
            known = true;
            let statement = Statement {
                name: format!("scheduler {}", process.me.0.0),
                leads: process.may_write(now),
                idle: process.writer.is_idle(),
                cache,
                queue,
            };
            truth.compare(&statement, &mut findings);
        }
        if known {
            truth.left_waiting(&mut findings);
            truth.gangs_left_waiting(&mut findings);
        }
        let calm = self.link.faults.end();
        self.checker.half_bound(now, calm, self.api.budgets());
        for finding in &findings {
            self.checker.found(now, finding);
        }
    }
}
