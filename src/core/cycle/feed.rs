//! What plugins read beside shapes and nodes: facets of pods, data from outside.
//!
//! Owns what a new value means for whoever waits. Kept verdicts and scores follow by
//! themselves: a value about a node is a change of that node in the journal, any
//! other counts as a change of everything.

use std::sync::Arc;

use muster_api::k8s;

use super::Core;
use crate::framework::{Actions, ClusterEvent, ProfileId, Resource, Subject};
use crate::io::{Datum, Tick};
use crate::model::PodShape;

impl Core {
    /// Compiles a pod for a profile, with what the profile's plugins read of it.
    pub(super) fn compile(&mut self, wire: &k8s::Pod, profile: Option<ProfileId>) -> PodShape {
        let mut shape = self.cluster.compile(wire, profile);
        if let Some(profile) = profile.and_then(|id| self.profiles.get(usize::from(id.0))) {
            shape.facets = profile.facets(wire);
        }
        shape
    }

    /// The outside feeds a value to a plugin.
    pub(super) fn take_data(&mut self, now: Tick, datum: &Datum) {
        match self.cluster.set_data(datum) {
            Ok(true) => {
                let plugin = Arc::clone(&datum.plugin);
                let event = ClusterEvent {
                    resource: Resource::Data,
                    actions: Actions::UPDATE,
                    label: "PluginDataUpdate",
                    subject: Subject::Data { plugin, about: datum.about.clone() },
                };
                self.queue_event(now, &event);
            }
            Ok(false) => {}
            Err(error) => {
                let error =
                    format!("data for plugin {} about {:?}: {error}", datum.plugin, datum.about);
                self.malformed("Data", error);
            }
        }
    }
}
