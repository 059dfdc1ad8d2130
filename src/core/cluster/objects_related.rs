//! Namespaces, Services and controllers: what of them relates pods to each other.

use std::sync::Arc;

use muster_api::k8s;

use super::Cluster;
use super::kin::Moves;
use super::owners::Selects;
use crate::io::{Kind, Object};
use crate::model::{LabelSet, Selector};

impl Cluster {
    /// Takes in a Namespace, a Service or a controller; true if it matters.
    pub(crate) fn set_related(&mut self, object: &Object, seen: u64) -> bool {
        let meta = object.metadata();
        let selects = match object {
            Object::Namespace(o) => {
                let name: Arc<str> = o.metadata.name.as_str().into();
                Arc::make_mut(&mut self.namespaces_seen).insert(Arc::clone(&name), seen);
                return self.set_namespace(&name, Some(LabelSet::of(&o.metadata.labels)));
            }
            Object::Service(o) => o.spec.selector.clone().map(Selects::Labels),
            Object::ReplicationController(o) => {
                Some(Selects::Labels(o.spec.selector.clone().unwrap_or_default()))
            }
            Object::ReplicaSet(o) => pods(o.spec.selector.as_ref()),
            Object::StatefulSet(o) => pods(o.spec.selector.as_ref()),
            _ => return false,
        };
        self.set_owner(object.kind(), &meta.namespace, &meta.name, selects, seen)
    }

    /// Forgets such an object; true if it matters.
    pub(crate) fn remove_related(&mut self, kind: Kind, namespace: &str, name: &str) -> bool {
        if kind == Kind::Namespace {
            Arc::make_mut(&mut self.namespaces_seen).remove(name);
            return self.set_namespace(name, None);
        }
        self.set_owner(kind, namespace, name, None, 0)
    }

    /// Such objects last seen before relist `seen`: namespace and name.
    pub(crate) fn stale_related(&self, kind: Kind, seen: u64) -> Vec<(String, String)> {
        if kind != Kind::Namespace {
            return self.kin.owners.stale(kind, seen);
        }
        let last = |name: &Arc<str>| self.namespaces_seen.get(name).copied().unwrap_or(0);
        let names = self.kin.namespace_names().filter(|n| last(n) < seen);
        let mut stale: Vec<_> = names.map(|n| (String::new(), n.to_string())).collect();
        stale.sort_unstable();
        stale
    }

    fn set_owner(
        &mut self,
        kind: Kind,
        namespace: &str,
        name: &str,
        selects: Option<Selects>,
        seen: u64,
    ) -> bool {
        let kin = Arc::make_mut(&mut self.kin);
        let changed = kin.owners.set(kind, namespace, name, selects, seen);
        kin.epoch += u64::from(changed);
        changed
    }

    fn set_namespace(&mut self, name: &str, labels: Option<LabelSet>) -> bool {
        let before = self.kin.generation;
        let moves: Moves = Arc::make_mut(&mut self.kin).set_namespace(name, labels);
        for (matcher, group, more) in moves {
            self.tally.admit(matcher, group, more);
        }
        self.kin.generation != before
    }
}

fn pods(selector: Option<&k8s::LabelSelector>) -> Option<Selects> {
    Selector::compile(selector).ok().map(Selects::Pods)
}
