//! Disruption budgets and priority classes.
//!
//! Owns which budgets cover a pod and what they allow, as last seen. Shared between
//! forks. Must never decide whom to evict.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_api::k8s;

use super::Objects;
use crate::io::{Kind, Object, ObjectKey};
use crate::model::{LabelSet, Selector};

/// A disruption budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Namespace.
    pub namespace: Box<str>,
    /// Name.
    pub name: Box<str>,
    /// Evictions that are allowed.
    pub allowed: i32,
    /// Names of pods whose eviction was accepted and is counted already.
    pub disrupted: BTreeSet<Box<str>>,
    selector: Selector,
}

impl Budget {
    fn of(wire: &k8s::PodDisruptionBudget) -> Self {
        // A selector that makes no sense selects nothing, as upstream.
        let selector = Selector::compile(wire.spec.selector.as_ref());
        Self {
            namespace: wire.metadata.namespace.as_str().into(),
            name: wire.metadata.name.as_str().into(),
            allowed: wire.status.disruptions_allowed,
            disrupted: wire.status.disrupted_pods.keys().map(|name| name.as_str().into()).collect(),
            selector: selector.unwrap_or_else(|_| Selector::nothing()),
        }
    }

    /// Whether it covers pods with these labels. An empty selector covers none, nor
    /// does any a pod without labels, as upstream's preemption has it.
    #[must_use]
    pub fn covers(&self, labels: &LabelSet) -> bool {
        !labels.is_empty() && !self.selector.is_everything() && self.selector.matches(labels)
    }
}

/// What the annotations of a priority class say of being pushed out, as scheduler-plugins'
/// PreemptionToleration has it: pods of the class stay for a while, unless who would push
/// them out has at least this priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Toleration {
    pub(crate) minimum: i32,
    /// Less than 0: for ever.
    pub(crate) seconds: i64,
}

impl Toleration {
    /// None without the annotations. What cannot be read tolerates nothing, as upstream.
    fn of(class: &k8s::PriorityClass) -> Option<Self> {
        let annotation = |key: &str| class.metadata.annotations.get(key);
        let minimum = annotation(k8s::annotations::MINIMUM_PREEMPTABLE_PRIORITY)?.parse().ok()?;
        let seconds = annotation(k8s::annotations::TOLERATION_SECONDS);
        let seconds = seconds.map_or(Ok(0), |text| text.parse()).ok()?;
        (seconds != 0).then_some(Self { minimum, seconds })
    }
}

/// Budgets and classes, by name.
#[derive(Clone, Default)]
pub struct Policies {
    budgets: Objects<Budget>,
    classes: Objects<k8s::PriorityClass>,
    /// Of the classes that have one.
    tolerations: BTreeMap<Box<str>, Toleration>,
    /// Grows with every change of a budget.
    generation: u64,
    /// Grows with every change of a toleration.
    tolerated: u64,
}

fn key_of(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

impl Policies {
    /// Takes in a budget or a class; true if anything changed.
    pub(crate) fn upsert(&mut self, object: Object, seen: u64) -> bool {
        let key = key_of(&object.metadata().namespace, &object.metadata().name);
        match object {
            Object::PodDisruptionBudget(wire) => {
                let budget = Arc::new(Budget::of(&wire));
                let before = self.budgets.insert(&key, Arc::clone(&budget), seen);
                let changed = before.is_none_or(|before| before != budget);
                self.generation += u64::from(changed);
                changed
            }
            Object::PriorityClass(wire) => {
                self.set_toleration(&key, Toleration::of(&wire));
                let class = Arc::new(wire);
                let before = self.classes.insert(&key, Arc::clone(&class), seen);
                before.is_none_or(|before| before != class)
            }
            _ => false,
        }
    }

    /// Forgets a budget or a class; true if it was known.
    pub(crate) fn remove(&mut self, kind: Kind, key: &ObjectKey) -> bool {
        let key = key_of(&key.namespace, &key.name);
        match kind {
            Kind::PodDisruptionBudget => {
                let known = self.budgets.remove(&key).is_some();
                self.generation += u64::from(known);
                known
            }
            Kind::PriorityClass => {
                self.set_toleration(&key, None);
                self.classes.remove(&key).is_some()
            }
            _ => false,
        }
    }

    fn set_toleration(&mut self, class: &str, toleration: Option<Toleration>) {
        let before = match toleration {
            Some(toleration) => self.tolerations.insert(class.into(), toleration),
            None => self.tolerations.remove(class),
        };
        self.tolerated += u64::from(before != toleration);
    }

    /// What a class says of being pushed out.
    pub(super) fn toleration(&self, class: &str) -> Option<Toleration> {
        self.tolerations.get(class).copied()
    }

    /// Whether any class says anything of it.
    pub(super) fn has_tolerations(&self) -> bool {
        !self.tolerations.is_empty()
    }

    /// Grows with every change of it.
    pub(super) fn tolerated(&self) -> u64 {
        self.tolerated
    }

    /// Forgets what was last seen before relist `seen`; true if anything was.
    pub(crate) fn sweep(&mut self, kind: Kind, seen: u64) -> bool {
        let stale = match kind {
            Kind::PodDisruptionBudget => self.budgets.stale(seen),
            Kind::PriorityClass => self.classes.stale(seen),
            _ => Vec::new(),
        };
        for key in &stale {
            let (namespace, name) = key.split_once('/').unwrap_or(("", key));
            let key =
                ObjectKey { namespace: namespace.into(), name: name.into(), ..<_>::default() };
            self.remove(kind, &key);
        }
        !stale.is_empty()
    }

    /// Grows with every change of a budget.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Budgets of a namespace, by name.
    pub fn budgets(&self, namespace: &str) -> impl Iterator<Item = &Arc<Budget>> {
        self.budgets.under(namespace)
    }

    /// Whether there is any budget.
    #[must_use]
    pub fn has_budgets(&self) -> bool {
        self.budgets.iter().next().is_some()
    }

    /// The class of that name; for an empty name the default one. Of several default
    /// classes the one with the lowest value counts, as for the API server.
    #[must_use]
    pub fn class(&self, name: &str) -> Option<&Arc<k8s::PriorityClass>> {
        if !name.is_empty() {
            return self.classes.get(name);
        }
        let defaults = self.classes.iter().map(|(_, c)| c).filter(|c| c.global_default);
        defaults.min_by_key(|c| c.value)
    }

    /// A pod's priority. The API server fills it in at admission; a pod that came
    /// without goes by its class.
    #[must_use]
    pub fn priority_of(&self, pod: &k8s::Pod) -> i32 {
        let class = || self.class(&pod.spec.priority_class_name).map(|c| c.value);
        pod.spec.priority.or_else(class).unwrap_or(0)
    }

    /// Whether a pod may preempt others.
    #[must_use]
    pub fn may_preempt(&self, pod: &k8s::Pod) -> bool {
        let own = pod.spec.preemption_policy.as_deref();
        let class = || self.class(&pod.spec.priority_class_name)?.preemption_policy.as_deref();
        // Without a class of its own a pod with a priority goes by nobody's policy.
        let policy = if pod.spec.priority.is_some() { own } else { own.or_else(class) };
        policy != Some("Never")
    }
}
