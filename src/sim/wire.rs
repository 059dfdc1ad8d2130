//! What passes between the schedulers and the model: lists, watches, calls, answers.
//!
//! The engine's half that speaks; when a message arrives is [`Link`]'s to say.
//!
//! [`Link`]: crate::link::Link

use std::sync::Arc;

use muster_api::k8s::Time;
use muster_api::muster::annotations::CHECKPOINT_REQUESTED;
use muster_core::io::{Effect, Input, Kind, Removal, Reply, Request, Tick};
use muster_core::outbox::{CALL_DEADLINE, Evict, Failure, NOT_LEADING, PodCall};

use crate::agenda::{Event, Item, Manner};
use crate::engine::Engine;
use crate::faults::Fate;
use crate::lease::Identity;
use crate::link::{Hop, Watcher};
use crate::model::api::Notice;
use crate::model::cluster::ORPHAN_QUARANTINE;
use crate::model::errors::ApiError;
use crate::model::eviction::{DeleteOptions, budget_spent};
use crate::model::log::Listing;
use crate::model::objects::{is_ended_member, is_terminal};
use crate::read::{read, read_node, read_object, read_pod};
use crate::scenario::Fault;
use crate::time::Micros;
use crate::writer::{After, Serial, is_release};

/// Objects of a list arrive this far apart when things may go wrong in between.
const LIST_STEP: Micros = 50;

impl Engine<'_> {
    /// A scheduler's first list, which nobody disturbs.
    pub(crate) fn first_list(&mut self, who: Identity) {
        for kind in self.watched.kinds() {
            let revision = self.api.revision();
            self.list(who, kind, revision, 0);
        }
    }

    /// Sends a list as of `revision`, and all that happens after it.
    fn list(&mut self, who: Identity, kind: Kind, revision: u64, step: Micros) {
        let now = self.now;
        let Some(process) = self.process(who) else {
            return;
        };
        let stream = process.stream(kind);
        (stream.connected, stream.listed, stream.seen) = (true, false, revision);
        let generation = stream.generation;
        let listing = match self.api.log() {
            Some(log) => log.list(kind, revision),
            None if kind == Kind::Node => {
                Listing::Nodes(self.api.nodes().map(|n| (n.clone(), false)).collect())
            }
            None if kind == Kind::Pod => {
                Listing::Pods(self.api.pods().map(|(_, p)| (p.object.clone(), false)).collect())
            }
            None if kind == Kind::EndedMember => {
                let pods = self.api.pods().map(|(_, p)| p.object.clone());
                let ended = pods.filter(|pod| is_ended_member(pod));
                Listing::Pods(ended.map(|pod| (pod, false)).collect())
            }
            None => Listing::Objects(self.api.objects(kind).map(|o| (o, false)).collect()),
        };
        let mut at = now;
        let mut send = |engine: &mut Self, item: Item| {
            engine.agenda.push(at, Event::Stream(who, kind, generation, item));
            at = at.after_micros(step);
        };
        send(self, Item::Begin);
        match listing {
            Listing::Nodes(nodes) => {
                nodes.into_iter().for_each(|(node, broken)| send(self, Item::Node(node, broken)));
            }
            Listing::Pods(pods) => {
                pods.into_iter().for_each(|(pod, broken)| send(self, Item::Pod(pod, broken)));
            }
            Listing::Objects(objects) => {
                objects.into_iter().for_each(|(o, broken)| send(self, Item::Object(o, broken)));
            }
        }
        send(self, Item::End(revision));
        let hop = Hop::Watch(Watcher::Scheduler(who.0), kind);
        if step > 0 {
            self.link.hold(hop, at);
            self.resume(who, kind, revision, at);
        }
    }

    /// Sends what has happened since `revision`; false if that is not known any more.
    fn resume(&mut self, who: Identity, kind: Kind, revision: u64, at: Tick) -> bool {
        let Some(log) = self.api.log() else {
            return true;
        };
        let Ok(missed) = log.since(kind, revision) else {
            return false;
        };
        let shown = missed.iter().filter(|(_, notice)| notice.is_shown_by(kind));
        let missed: Vec<Notice> = shown.map(|(_, notice)| notice.clone()).collect();
        let Some(generation) = self.process(who).map(|p| {
            let stream = p.stream(kind);
            stream.connected = true;
            stream.generation
        }) else {
            return true;
        };
        for notice in missed {
            let hop = Hop::Watch(Watcher::Scheduler(who.0), kind);
            let at = self.link.arrival(hop, self.now).max(at);
            self.agenda.push(at, Event::Stream(who, kind, generation, Item::Notice(notice)));
        }
        true
    }

    /// A cut watch is asked for again: from where it was, or by a new list.
    pub(crate) fn reconnect(&mut self, who: Identity, kind: Kind) {
        let now = self.now;
        if self.link.faults.server_away(now) {
            let at = now.after_micros(self.link.faults.reconnect_pause());
            self.agenda.push(at, Event::Reconnect(who, kind));
            return;
        }
        let Some(stream) = self.process(who).map(|p| *p.stream(kind)) else {
            return;
        };
        // Cut twice before it was back: one list is enough, two would mix.
        if stream.connected {
            return;
        }
        let expired = self.link.faults.strikes(now, Fault::Expired);
        if stream.listed && !expired && self.resume(who, kind, stream.seen, now) {
            return;
        }
        self.link.faults.counts.relists += 1;
        let lag = self.link.faults.list_lag(now);
        let oldest = self.api.log().map_or(0, |log| log.oldest(kind));
        let revision = self.api.revision().saturating_sub(lag).max(oldest);
        self.list(who, kind, revision, LIST_STEP);
    }

    /// A watch is cut.
    pub(crate) fn cut(&mut self, who: Identity, kind: Kind) {
        let Some(process) = self.process(who) else {
            return;
        };
        let stream = process.stream(kind);
        stream.generation += 1;
        stream.connected = false;
        let at = self.now.after_micros(self.link.faults.reconnect_pause());
        self.agenda.push(at, Event::Reconnect(who, kind));
    }

    /// A watch delivers.
    pub(crate) fn deliver(&mut self, who: Identity, kind: Kind, generation: u32, item: Item) {
        let now = self.now;
        let Some(process) = self.process(who) else {
            return;
        };
        if process.stream(kind).generation != generation {
            return;
        }
        if self.link.faults.strikes(now, Fault::CutStream) {
            return self.cut(who, kind);
        }
        let input = match item {
            Item::Begin => Some(Input::RelistStarted(kind)),
            Item::End(revision) => {
                let Some(process) = self.process(who) else { return };
                let stream = process.stream(kind);
                (stream.seen, stream.listed) = (revision, true);
                Some(Input::RelistDone(kind))
            }
            Item::Node(node, broken) => read_node(&node, broken),
            // The field selector leaves out pods that have ended.
            Item::Pod(pod, _) if kind == Kind::Pod && is_terminal(&pod) => return,
            Item::Pod(pod, broken) => read_pod(kind, &pod, broken),
            Item::Object(object, broken) => read_object(&object, broken),
            Item::Notice(notice) => {
                let revision = notice.revision();
                if let Some(process) = self.process(who) {
                    process.stream(kind).seen = revision;
                }
                read(kind, &notice)
            }
        };
        match input {
            Some(input) => self.tell(who, input),
            None => self.link.faults.counts.skipped += 1,
        }
    }

    /// An effect is handed to the writer, which starts what can start.
    pub(crate) fn submit(&mut self, who: Identity, effect: Effect) {
        let evicts = matches!(&effect, Effect::Call { request: Request::Evict { .. }, .. });
        if let Effect::Call { token, plugin, .. } = &effect
            && !evicts
        {
            let token = *token;
            self.warn(format!("plugin {plugin} called outside; nobody is there"));
            let reply = Reply::Failed(Arc::from("nobody answers in a simulation"));
            let at = self.link.arrival(Hop::Answer(who.0), self.now);
            return self.agenda.push(at, Event::Hear(who, Input::Reply { token, reply }));
        }
        if let Some(process) = self.process(who) {
            process.writer.submit(effect);
        }
        self.start_calls(who);
    }

    fn start_calls(&mut self, who: Identity) {
        while let Some(serial) = self.process(who).and_then(|p| p.writer.start()) {
            self.send(who, serial);
        }
    }

    /// One attempt of a call.
    pub(crate) fn send(&mut self, who: Identity, serial: Serial) {
        let now = self.now;
        let Some(process) = self.process(who) else {
            return;
        };
        if !process.may_write(now) {
            self.link.faults.counts.fenced += 1;
            return self.answered(who, serial, Err(Failure::NotSent(NOT_LEADING.to_owned())));
        }
        let Some(call) = process.writer.call(serial).cloned() else {
            return;
        };
        let patience = Micros::try_from(CALL_DEADLINE.as_micros()).unwrap_or(Micros::MAX);
        let deadline = now.after_micros(patience);
        let deadline = process.write_deadline(now).map_or(deadline, |until| deadline.min(until));
        let late = || Event::Answer(who, serial, Err(Failure::TimedOut));
        let fate = self.link.faults.call(now);
        let (after, manner) = match fate {
            Fate::Pass(after) => (after, Manner::Plain),
            Fate::Answer { failure, written } => (0, Manner::Fail(failure, written)),
            Fate::Silence { written } => {
                self.agenda.push(deadline, late());
                if !written {
                    return;
                }
                (0, Manner::Silent)
            }
        };
        if after > 0 {
            self.agenda.push(deadline, late());
        }
        let at = self.link.arrival(Hop::Call(who.0), now).after_micros(after);
        self.agenda.push(at, Event::Call(who, serial, call, manner));
    }

    /// A call reaches the API server, whether or not its sender still lives.
    pub(crate) fn serve(&mut self, who: Identity, serial: Serial, call: &PodCall, manner: Manner) {
        let waited_for = !matches!(call, PodCall::Patch(_));
        let result = match manner {
            Manner::Fail(failure, false) => Err(failure),
            Manner::Fail(failure, true) => {
                let _ = self.write(who, call);
                Err(failure)
            }
            Manner::Plain => self.write(who, call),
            Manner::Silent => {
                let _ = self.write(who, call);
                return;
            }
        };
        let hop = if waited_for { Hop::Answer(who.0) } else { Hop::Done(who.0) };
        let at = self.link.arrival(hop, self.now);
        self.agenda.push(at, Event::Answer(who, serial, result));
    }

    /// Carries a call out.
    fn write(&mut self, who: Identity, call: &PodCall) -> Result<(), Failure> {
        let before = self.api.revision();
        let result = match call {
            PodCall::Bind(bind) => {
                let result = self.api.bind(&bind.pod, &bind.node, bind.devices.as_deref());
                self.refused += u64::from(result.is_err());
                if result.is_ok() && self.api.node(&bind.node).is_none() {
                    let at = self.now.after_micros(ORPHAN_QUARANTINE);
                    self.agenda.push(at, Event::Orphans(bind.node.to_string()));
                }
                result.map(drop)
            }
            PodCall::Patch(patch) => match self.api.patch_status(patch) {
                Ok(id) => {
                    if let Some(condition) = &patch.condition {
                        self.record.explained(id, condition);
                    }
                    Ok(())
                }
                Err(error) => Err(error),
            },
            PodCall::Evict(evict) => self.evict(evict),
        };
        let changed = self.api.revision() != before;
        let holder = self.lease.as_ref().and_then(|lease| lease.holder);
        let deposed = holder.is_some_and(|holder| holder != who);
        let pod = self.api.find(call.pod()).and_then(|id| self.api.pod(id));
        let scheduler = pod.map(|stored| stored.object.spec.scheduler_name.as_str());
        self.checker.wrote(self.now, call, changed, deposed, scheduler);
        result.map_err(ApiError::failure)
    }

    /// Carries an eviction out, or says what would come of it.
    fn evict(&mut self, evict: &Evict) -> Result<(), ApiError> {
        let victim = &evict.victim;
        let Some(id) = self.api.pod_named(&victim.namespace, &victim.name) else {
            return Err(ApiError::not_found("pods", &victim.name));
        };
        if let Removal::Checkpoint { asked } = evict.how {
            self.link.faults.counts.asked_to_save += 1;
            return self.api.annotate(victim, CHECKPOINT_REQUESTED, Time(asked.0).to_string());
        }
        let dry_run = evict.how.is_dry_run();
        let forced = evict.how == Removal::Delete;
        let options = DeleteOptions {
            uid: Some(victim.uid.to_string()),
            dry_run,
            ..DeleteOptions::default()
        };
        let before = self.api.pod(id).map(|stored| Arc::clone(&stored.object));
        let budgets = self.api.budgets().to_vec();
        let result = if forced {
            self.api.delete(self.now, id, &options)
        } else if self.link.faults.strikes(self.now, Fault::BudgetSpent) {
            Err(budget_spent())
        } else {
            self.api.evict(self.now, id, &options)
        };
        if let (Ok(()), Some(before), false) = (&result, before, dry_run) {
            let budgets = if forced { &[] } else { &*budgets };
            if is_release(evict) {
                self.checker.released(self.now, &before, budgets);
            } else {
                let preemptor = self.api.find(&evict.preemptor).and_then(|id| self.api.pod(id));
                let preemptor = preemptor.map(|stored| &*stored.object);
                self.checker.evicted(self.now, preemptor, &before, budgets);
                self.record.evicted(self.now, &before, &evict.preemptor);
            }
        }
        let counts = &mut self.link.faults.counts;
        let refused = result.as_ref().is_err_and(|error| error.cause == Some("DisruptionBudget"));
        counts.dry_runs += u64::from(dry_run);
        let done = u64::from(result.is_ok() && !dry_run);
        *if is_release(evict) { &mut counts.released } else { &mut counts.preempted } += done;
        counts.refused_victims += u64::from(refused);
        result
    }

    /// An attempt of a call has ended.
    pub(crate) fn answered(&mut self, who: Identity, serial: Serial, result: Result<(), Failure>) {
        let now = self.now;
        let Some(process) = self.process(who) else {
            return;
        };
        let may_write = process.may_write(now);
        match process.writer.ended(serial, result, may_write) {
            None => {}
            Some(After::Again(serial, pause)) => {
                self.agenda.push(now.after_micros(pause), Event::Again(who, serial));
            }
            Some(After::Ended(answer)) => {
                if let Some(input) = answer {
                    self.tell(who, input);
                }
                self.start_calls(who);
            }
        }
    }

    /// Every watcher hears of a write, each in its own time.
    pub(crate) fn publish(&mut self, notice: &Notice) {
        let kind = notice.kind();
        let shown = self.watched.kinds().filter(|kind| notice.is_shown_by(*kind));
        let processes = self.processes.len();
        let streams = shown.flat_map(|kind| (0..processes).map(move |index| (index, kind)));
        for (index, kind) in streams {
            let Some(process) = &mut self.processes[index] else { continue };
            let (who, stream) = (process.me, *process.stream(kind));
            if stream.connected {
                let hop = Hop::Watch(Watcher::Scheduler(who.0), kind);
                let at = self.link.arrival(hop, self.now);
                let item = Item::Notice(notice.clone());
                self.agenda.push(at, Event::Stream(who, kind, stream.generation, item));
            }
        }
        if matches!(notice, Notice::Object { .. }) {
            return; // kubelets and controllers read the store's own
        }
        for watcher in [Watcher::Kubelets, Watcher::Controllers] {
            let at = self.link.arrival(Hop::Watch(watcher, kind), self.now);
            self.agenda.push(at, Event::Notify(watcher, notice.clone()));
        }
    }
}
