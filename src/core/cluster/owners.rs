//! Services and controllers, for the selector that default spreading uses.
//!
//! Owns their selectors. Must never keep more of them: what a Service serves or
//! how many replicas a controller wants is none of a scheduler's business.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::hash::TextMap;
use crate::io::Kind;
use crate::model::{LabelSet, Selector};

/// The controller of a pod, of a kind whose selector counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// ReplicationController, ReplicaSet or StatefulSet.
    pub kind: Kind,
    /// Name, in the pod's namespace.
    pub name: Box<str>,
}

impl Owner {
    /// The managing controller of an object, if it is of such a kind.
    #[must_use]
    pub fn of(meta: &muster_api::k8s::ObjectMeta) -> Option<Self> {
        let owner = meta.owner_references.iter().find(|o| o.controller)?;
        let kind = match (owner.api_version.as_str(), owner.kind.as_str()) {
            ("v1", "ReplicationController") => Kind::ReplicationController,
            ("apps/v1", "ReplicaSet") => Kind::ReplicaSet,
            ("apps/v1", "StatefulSet") => Kind::StatefulSet,
            _ => return None,
        };
        Some(Self { kind, name: owner.name.as_str().into() })
    }
}

/// What an object selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Selects {
    /// Equal labels: a Service or a ReplicationController.
    Labels(BTreeMap<String, String>),
    /// A selector that can be parsed: a ReplicaSet or a StatefulSet.
    Pods(Selector),
}

#[derive(Clone, Default)]
struct Namespace {
    /// By kind and name, in order.
    objects: BTreeMap<(Kind, Box<str>), (Selects, u64)>,
}

#[derive(Clone, Default)]
pub(crate) struct Owners {
    namespaces: TextMap<Box<str>, Namespace>,
}

impl Owners {
    /// Sets or removes an object; true if what it selects changed.
    pub(super) fn set(
        &mut self,
        kind: Kind,
        namespace: &str,
        name: &str,
        selects: Option<Selects>,
        seen: u64,
    ) -> bool {
        let key = (kind, name.into());
        let Some(selects) = selects else {
            let Some(own) = self.namespaces.get_mut(namespace) else {
                return false;
            };
            let gone = own.objects.remove(&key).is_some();
            if own.objects.is_empty() {
                self.namespaces.remove(namespace);
            }
            return gone;
        };
        let own = self.namespaces.entry(namespace.into()).or_default();
        let before = own.objects.insert(key, (selects.clone(), seen));
        before.is_none_or(|(before, _)| before != selects)
    }

    /// Objects of a kind last seen before relist `seen`.
    pub(super) fn stale(&self, kind: Kind, seen: u64) -> Vec<(String, String)> {
        let all = self.namespaces.iter().flat_map(|(ns, own)| {
            own.objects.iter().map(move |((kind, name), (_, seen))| (ns, *kind, name, *seen))
        });
        let mut stale: Vec<(String, String)> = all
            .filter(|(_, k, _, last)| *k == kind && *last < seen)
            .map(|(ns, _, name, _)| (ns.to_string(), name.to_string()))
            .collect();
        stale.sort_unstable();
        stale
    }

    /// Upstream's `helper.DefaultSelector`: labels of the Services that match the
    /// pod and the selector of its controller. `None` if that is empty.
    pub(super) fn selector(
        &self,
        namespace: &Arc<str>,
        labels: &LabelSet,
        owner: Option<&Owner>,
    ) -> Option<Selector> {
        let own = self.namespaces.get(&**namespace)?;
        let mut set: BTreeMap<String, String> = BTreeMap::new();
        let services = own.objects.iter().take_while(|((kind, _), _)| *kind <= Kind::Service);
        for ((kind, _), (selects, _)) in services {
            if let (Kind::Service, Selects::Labels(wanted)) = (kind, selects)
                && wanted.iter().all(|(k, v)| labels.get(k) == Some(v.as_str()))
            {
                set.extend(wanted.iter().map(|(k, v)| (k.clone(), v.clone())));
            }
        }
        let controller = owner.and_then(|o| own.objects.get(&(o.kind, o.name.clone())));
        let selector = match controller {
            Some((Selects::Labels(more), _)) => {
                set.extend(more.iter().map(|(k, v)| (k.clone(), v.clone())));
                Selector::from_set(&set)
            }
            Some((Selects::Pods(more), _)) if !more.is_nothing() => {
                Selector::from_set(&set).and(more)
            }
            _ => Selector::from_set(&set),
        };
        (!selector.is_everything()).then_some(selector)
    }
}
