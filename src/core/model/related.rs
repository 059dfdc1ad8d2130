//! What relates a pod to other pods: spread constraints and pod affinity.
//!
//! Owns the translation from wire terms. What depends on the pod's own labels
//! (merged keys, whether it matches itself) is folded in here, so that a shape
//! need not carry labels.

use std::sync::Arc;

use muster_api::k8s;

use super::{LabelSet, Selector};

/// Namespaces a term speaks of: by name, and by label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scope {
    /// By name, sorted.
    pub names: Box<[Box<str>]>,
    /// By label of the Namespace object.
    pub selector: Selector,
}

/// A term of pod affinity or anti-affinity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AffinityTerm {
    /// In which namespaces.
    pub scope: Scope,
    /// Which pods.
    pub selector: Selector,
    /// Nodes with the same value of this label are together.
    pub topology_key: Box<str>,
}

/// What a term does to the pods it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TermKind {
    /// Required anti-affinity.
    Repels,
    /// Required affinity.
    Needs,
    /// Preferred affinity.
    Likes(i32),
    /// Preferred anti-affinity.
    Dislikes(i32),
}

/// Pod affinity and anti-affinity of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodTerms {
    /// Terms with what they do: required affinity, required anti-affinity, preferred
    /// affinity, preferred anti-affinity, each in the order written.
    pub all: Vec<(TermKind, AffinityTerm)>,
    /// Of the required affinity terms, in order: does the selector match the
    /// pod itself. Empty for pods that are not ours to place.
    pub matches_self: Vec<bool>,
    /// Why terms cannot be parsed.
    pub error: Option<Box<str>>,
}

impl PodTerms {
    /// The terms that do that.
    pub fn of_kind(
        &self,
        kind: impl Fn(TermKind) -> bool,
    ) -> impl Iterator<Item = (TermKind, &AffinityTerm)> {
        self.all.iter().filter(move |(k, _)| kind(*k)).map(|(k, t)| (*k, t))
    }

    /// Required affinity.
    pub fn needs(&self) -> impl Iterator<Item = &AffinityTerm> {
        self.of_kind(|k| k == TermKind::Needs).map(|(_, t)| t)
    }

    /// Required anti-affinity.
    pub fn repels(&self) -> impl Iterator<Item = &AffinityTerm> {
        self.of_kind(|k| k == TermKind::Repels).map(|(_, t)| t)
    }

    /// Preferred terms with signed weights.
    pub fn wishes(&self) -> impl Iterator<Item = (i64, &AffinityTerm)> {
        self.all.iter().filter_map(|(kind, term)| match kind {
            TermKind::Likes(weight) => Some((i64::from(*weight), term)),
            TermKind::Dislikes(weight) => Some((-i64::from(*weight), term)),
            _ => None,
        })
    }

    /// Reads a pod's terms.
    #[must_use]
    pub fn compile(pod: &k8s::Pod, ours: bool) -> Self {
        let affinity = pod.spec.affinity.as_ref();
        let near = affinity.and_then(|a| a.pod_affinity.as_ref());
        let apart = affinity.and_then(|a| a.pod_anti_affinity.as_ref());
        let mut terms = Self::default();
        let mut errors: Vec<String> = Vec::new();
        let mut add =
            |field: &str, list: &mut dyn Iterator<Item = (TermKind, &k8s::PodAffinityTerm)>| {
                let compiled: Result<Vec<_>, String> =
                    list.map(|(kind, t)| Ok((kind, AffinityTerm::compile(pod, t)?))).collect();
                match compiled {
                    // A list with one bad term counts as empty, as upstream.
                    Err(error) => errors.push(format!("{field}: {error}")),
                    Ok(mut list) => terms.all.append(&mut list),
                }
            };
        let required =
            |side: Option<&'_ k8s::PodAffinity>| side.map_or(&[][..], |s| &s.required[..]).to_vec();
        let preferred = |side: Option<&'_ k8s::PodAffinity>| {
            side.map_or(&[][..], |s| &s.preferred[..]).to_vec()
        };
        add("requiredAffinityTerms", &mut required(near).iter().map(|t| (TermKind::Needs, t)));
        add(
            "requiredAntiAffinityTerms",
            &mut required(apart).iter().map(|t| (TermKind::Repels, t)),
        );
        let wishes = preferred(near);
        add(
            "preferredAffinityTerms",
            &mut wishes.iter().map(|w| (TermKind::Likes(w.weight), &w.pod_affinity_term)),
        );
        let wishes = preferred(apart);
        add(
            "preferredAntiAffinityTerms",
            &mut wishes.iter().map(|w| (TermKind::Dislikes(w.weight), &w.pod_affinity_term)),
        );
        if ours {
            let labels = LabelSet::of(&pod.metadata.labels);
            terms.matches_self = terms.needs().map(|t| t.selector.matches(&labels)).collect();
            if !errors.is_empty() {
                terms.error = Some(super::aggregate(errors.iter().map(String::as_str)).into());
            }
        }
        terms
    }
}

impl AffinityTerm {
    fn compile(pod: &k8s::Pod, term: &k8s::PodAffinityTerm) -> Result<Self, String> {
        let selector = Selector::compile(term.label_selector.as_ref())?;
        let mut names: Vec<Box<str>> =
            if term.namespaces.is_empty() && term.namespace_selector.is_none() {
                vec![pod.metadata.namespace.as_str().into()]
            } else {
                term.namespaces.iter().map(|n| n.as_str().into()).collect()
            };
        names.sort_unstable();
        names.dedup();
        let by_label = Selector::compile(term.namespace_selector.as_ref())?;
        Ok(Self {
            scope: Scope { names: names.into(), selector: by_label },
            selector,
            topology_key: term.topology_key.as_str().into(),
        })
    }
}

/// A spread constraint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SpreadConstraint {
    /// `DoNotSchedule`; otherwise `ScheduleAnyway`.
    pub hard: bool,
    /// Allowed difference.
    pub max_skew: i32,
    /// Node label.
    pub topology_key: Box<str>,
    /// Which pods count, the pod's own label values merged in.
    pub selector: Selector,
    /// Fewest domains.
    pub min_domains: i32,
    /// Whether only nodes count that the pod's node affinity allows.
    pub honor_affinity: bool,
    /// Whether only nodes count whose taints the pod tolerates.
    pub honor_taints: bool,
    /// Whether the pod itself counts.
    pub matches_self: bool,
}

/// What the shape of a pod knows of the pods around it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Related {
    /// The pod's namespace, if anything here depends on it.
    pub namespace: Option<Arc<str>>,
    /// Its own spread constraints of each kind, in order.
    pub spread: Vec<SpreadConstraint>,
    /// Why hard and soft constraints cannot be parsed.
    pub spread_errors: [Option<Box<str>>; 2],
    /// Whether the pod brought constraints at all: if not, defaults hold.
    pub has_spread: bool,
    /// The selector of the pod's services and controller, for default
    /// constraints, and whether it matches the pod itself.
    pub siblings: Option<(Selector, bool)>,
    /// Affinity to other pods.
    pub terms: PodTerms,
    /// Live terms of other pods that match this pod, sorted.
    pub matched: Box<[TermId]>,
}

/// A live term: never used again once it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TermId(pub u32);

impl Related {
    /// Reads a pod; `siblings` and `matched` depend on the cluster and are
    /// filled in by it. For pods that are `ours` to place all is read, for others
    /// only what they do to ours.
    #[must_use]
    pub fn compile(pod: &k8s::Pod, ours: bool) -> Self {
        let terms = PodTerms::compile(pod, ours);
        if !ours {
            return Self { terms, ..Self::default() };
        }
        let mut related = Self { terms, ..Self::default() };
        let wire = &pod.spec.topology_spread_constraints;
        related.has_spread = !wire.is_empty();
        let labels = LabelSet::of(&pod.metadata.labels);
        for constraint in wire {
            let hard = match constraint.when_unsatisfiable.as_str() {
                "DoNotSchedule" => true,
                "ScheduleAnyway" => false,
                _ => continue,
            };
            match SpreadConstraint::compile(constraint, hard, &labels) {
                Ok(constraint) => related.spread.push(constraint),
                Err(error) => {
                    related.spread_errors[usize::from(!hard)].get_or_insert(error.into());
                }
            }
        }
        if !related.spread.is_empty() || !related.terms.all.is_empty() {
            related.namespace = Some(pod.metadata.namespace.as_str().into());
        }
        related
    }
}

impl SpreadConstraint {
    /// Reads a constraint of a pod with these labels.
    pub fn compile(
        wire: &k8s::TopologySpreadConstraint,
        hard: bool,
        labels: &LabelSet,
    ) -> Result<Self, String> {
        let mut selector = Selector::compile(wire.label_selector.as_ref())?;
        let own = wire.match_label_keys.iter();
        let own: std::collections::BTreeMap<String, String> =
            own.filter_map(|k| Some((k.clone(), labels.get(k)?.to_owned()))).collect();
        if !own.is_empty() && !selector.is_nothing() {
            selector = Selector::from_set(&own).and(&selector);
        }
        let honors =
            |policy: &Option<String>, default| policy.as_deref().map_or(default, |p| p == "Honor");
        Ok(Self {
            hard,
            max_skew: wire.max_skew,
            topology_key: wire.topology_key.as_str().into(),
            matches_self: selector.matches(labels),
            selector,
            min_domains: wire.min_domains.unwrap_or(1),
            honor_affinity: honors(&wire.node_affinity_policy, true),
            honor_taints: honors(&wire.node_taints_policy, false),
        })
    }
}
