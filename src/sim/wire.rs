//! What passes between the schedulers and the model: lists, watches, calls, answers.
//!
//! The engine's half that speaks; when a message arrives is [`Link`]'s to say.
//!
//! [`Link`]: crate::link::Link

use std::sync::Arc;

use muster_core::io::{Change, Effect, Input, Kind, ObjectKey, Reply};

use crate::agenda::Event;
use crate::engine::Engine;
use crate::link::{Hop, Replica, Watcher};
use crate::model::api::Notice;
use crate::model::cluster::ORPHAN_QUARANTINE;

impl Engine<'_> {
    /// A scheduler's first list.
    pub(crate) fn list(&mut self, replica: Replica) {
        let nodes = self.api.nodes().map(|n| Input::Node(Change::Upsert(Box::new((**n).clone()))));
        let pods =
            self.api.pods().map(|(_, p)| Input::Pod(Change::Upsert(Box::new((*p.object).clone()))));
        let mut inputs = vec![Input::RelistStarted(Kind::Node)];
        inputs.extend(nodes);
        inputs.extend([Input::RelistDone(Kind::Node), Input::RelistStarted(Kind::Pod)]);
        inputs.extend(pods);
        inputs.push(Input::RelistDone(Kind::Pod));
        for input in inputs {
            self.agenda.push(self.now, Event::Hear(replica, input));
        }
    }

    /// A scheduler's call reaches the API server.
    pub(crate) fn serve(&mut self, replica: Replica, effect: Effect) {
        let answer = match effect {
            Effect::Bind { pod, node, attempt } => {
                let result = self.api.bind(&pod, &node);
                self.refused += u64::from(result.is_err());
                if result.is_ok() && self.api.node(&node).is_none() {
                    let at = self.now.after_micros(ORPHAN_QUARANTINE);
                    self.agenda.push(at, Event::Orphans(node.to_string()));
                }
                Input::BindDone { pod, attempt, result: result.map(drop) }
            }
            Effect::PatchStatus(patch) => {
                if let (Ok(id), Some(condition)) = (self.api.patch_status(&patch), &patch.condition)
                {
                    self.record.explained(id, condition);
                }
                return;
            }
            Effect::Event(_) => return,
            Effect::Call { token, plugin, .. } => {
                self.warn(format!("plugin {plugin} called outside; nobody is there"));
                let reply = Reply::Failed(Arc::from("nobody answers in a simulation"));
                Input::Reply { token, reply }
            }
        };
        if let Some(at) = self.link.arrival(Hop::Answer(replica), self.now) {
            self.agenda.push(at, Event::Hear(replica, answer));
        }
    }

    /// Every watcher hears of a write, each in its own time.
    pub(crate) fn publish(&mut self, notice: &Notice) {
        let kind = match notice {
            Notice::Node { .. } => Kind::Node,
            Notice::Pod { .. } => Kind::Pod,
        };
        for replica in self.replicas() {
            let hop = Hop::Watch(Watcher::Scheduler(replica), kind);
            if let Some(at) = self.link.arrival(hop, self.now) {
                self.agenda.push(at, Event::Hear(replica, input(notice)));
            }
        }
        for watcher in [Watcher::Kubelets, Watcher::Controllers] {
            if let Some(at) = self.link.arrival(Hop::Watch(watcher, kind), self.now) {
                self.agenda.push(at, Event::Notify(watcher, notice.clone()));
            }
        }
    }
}

/// A watch event in the core's words.
fn input(notice: &Notice) -> Input {
    let key = |meta: &muster_api::k8s::ObjectMeta| ObjectKey {
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
    };
    match notice {
        Notice::Node { object, deleted: true } => {
            Input::Node(Change::Delete(key(&object.metadata)))
        }
        Notice::Node { object, .. } => Input::Node(Change::Upsert(Box::new((**object).clone()))),
        Notice::Pod { object, deleted: true, .. } => {
            Input::Pod(Change::Delete(key(&object.metadata)))
        }
        Notice::Pod { object, .. } => Input::Pod(Change::Upsert(Box::new((**object).clone()))),
    }
}
