//! InterPodAffinity: pods near, or apart from, other pods.

mod hints;
mod score;
mod sides;

use super::names;
use crate::cluster::{Cluster, Counted, MatchKey, NodeId, NodeView};
use crate::framework::{
    Actions, ClassFilter, ClassKey, Filter, Hint, HintCx, Plugin, PreFilter, PreFilterResult,
    Registration, RegistryError, Resource, Score, State, Status,
};
use crate::model::{AffinityTerm, Pod, PodShape, TermKind};
use sides::{Side, Source, satisfies};

const AFFINITY: &str = "node(s) didn't match pod affinity rules";
const ANTI_AFFINITY: &str = "node(s) didn't match pod anti-affinity rules";
const EXISTING: &str = "node(s) didn't satisfy existing pods anti-affinity rules";

/// Arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterPodAffinityArgs {
    /// What a required affinity of an existing pod to the incoming one adds.
    pub hard_pod_affinity_weight: i32,
    /// Whether wishes of existing pods do not count for a pod without wishes.
    pub ignore_preferred_terms_of_existing_pods: bool,
}

impl Default for InterPodAffinityArgs {
    fn default() -> Self {
        Self { hard_pod_affinity_weight: 1, ignore_preferred_terms_of_existing_pods: false }
    }
}

/// Honours affinity between pods.
pub struct InterPodAffinity {
    args: InterPodAffinityArgs,
}

impl InterPodAffinity {
    /// Checks the arguments.
    pub fn new(args: &InterPodAffinityArgs) -> Result<Self, RegistryError> {
        let weight = args.hard_pod_affinity_weight;
        if !(0..=100).contains(&weight) {
            return Err(RegistryError::Args {
                plugin: names::INTER_POD_AFFINITY,
                field: "hardPodAffinityWeight".to_owned(),
                problem: format!("Invalid value: {weight}: not in valid range [0, 100]"),
            });
        }
        Ok(Self { args: args.clone() })
    }
}

/// What Filter reads.
struct Rules {
    /// Pods that satisfy all required affinity terms.
    needed: Side,
    /// Pods that match a required anti-affinity term.
    repelled: Side,
    /// Pods whose required anti-affinity matches the incoming pod.
    repelling: Side,
    /// Whether the pod satisfies its own affinity, for the first of a series.
    satisfies_self: bool,
}

const LACKS_KEY: i64 = 1;
const NOBODY: i64 = 2;
const REPELLED: i64 = 4;
const REPELLING: i64 = 8;

fn counted(cluster: &Cluster, term: &AffinityTerm) -> Counted {
    cluster.counted(&MatchKey::terms([term]))
}

impl Rules {
    fn new(shape: &PodShape, cluster: &Cluster) -> Self {
        let (terms, mut needed) = (&shape.related.terms, Side::default());
        for term in terms.needs() {
            let counted = cluster.counted(&MatchKey::terms(terms.needs()));
            needed.add(&term.topology_key, 1, Source::Matching(counted));
        }
        let mut repelled = Side::default();
        for term in terms.repels() {
            repelled.add(&term.topology_key, 1, Source::Matching(counted(cluster, term)));
        }
        let mut repelling = Side::default();
        for &id in &shape.related.matched {
            if let Some(term) = cluster.kin.term(id).filter(|t| t.kind == TermKind::Repels) {
                repelling.add(&term.topology_key, 1, Source::Having(id));
            }
        }
        let namespace = shape.related.namespace.as_deref().unwrap_or_default();
        let own = terms.needs().zip(&terms.matches_self);
        let satisfies_self = terms.needs().next().is_some()
            && own.into_iter().all(|(term, matches)| {
                *matches && cluster.kin.covers(&term.scope, namespace, false)
            });
        Self {
            needed: needed.fill(cluster),
            repelled: repelled.fill(cluster),
            repelling: repelling.fill(cluster),
            satisfies_self,
        }
    }

    /// What can be said against a node, as bits.
    fn against(&self, node: NodeView<'_>) -> i64 {
        let mut bits = 0;
        for key in &self.needed.keys {
            match key.value(node) {
                None => bits |= LACKS_KEY,
                Some(value) if key.pods(value) <= 0 => bits |= NOBODY,
                Some(_) => {}
            }
        }
        let hit = |side: &Side| {
            side.keys.iter().any(|k| k.value(node).is_some_and(|value| k.pods(value) > 0))
        };
        if hit(&self.repelled) {
            bits |= REPELLED;
        }
        if hit(&self.repelling) {
            bits |= REPELLING;
        }
        bits
    }

    fn sides(&mut self) -> [&mut Side; 3] {
        [&mut self.needed, &mut self.repelled, &mut self.repelling]
    }
}

fn rules(state: &State) -> Option<&Rules> {
    state.as_ref()?.downcast_ref()
}

impl Plugin for InterPodAffinity {
    fn name(&self) -> &'static str {
        names::INTER_POD_AFFINITY
    }

    fn events(&self) -> Vec<Registration> {
        let on = |resource, actions| Registration { resource, actions };
        vec![
            on(Resource::AssignedPod, Actions::ADD | Actions::UPDATE_POD_LABEL | Actions::DELETE),
            on(Resource::TargetPod, Actions::UPDATE_POD_LABEL),
            on(Resource::Node, Actions::ADD | Actions::UPDATE_NODE_LABEL),
        ]
    }

    fn hint(&self, cx: &HintCx<'_>) -> Hint {
        hints::hint(cx)
    }

    fn stamp(&self, shape: &PodShape, cluster: &Cluster) -> u64 {
        let related = &shape.related;
        if related.terms.all.is_empty() && related.matched.is_empty() {
            return 0;
        }
        cluster.kin_stamp()
    }

    fn as_pre_filter(&self) -> Option<&dyn PreFilter> {
        Some(self)
    }

    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }

    fn as_score(&self) -> Option<&dyn Score> {
        Some(self)
    }
}

impl PreFilter for InterPodAffinity {
    fn pre_filter(&self, shape: &PodShape, cluster: &Cluster) -> PreFilterResult {
        let terms = &shape.related.terms;
        if let Some(error) = &terms.error {
            return PreFilterResult::Reject(Status::unresolvable(format!("parsing pod: {error}")));
        }
        let kind = |id| cluster.kin.term(id).map(|t| t.kind);
        let repelling = shape.related.matched.iter().any(|id| kind(*id) == Some(TermKind::Repels));
        if !repelling && terms.needs().next().is_none() && terms.repels().next().is_none() {
            return PreFilterResult::Skip;
        }
        let rules = Rules::new(shape, cluster);
        PreFilterResult::Go { state: Some(Box::new(rules)), nodes: None }
    }

    fn add_pod(&self, state: &mut State, shape: &PodShape, pod: &Pod, node: NodeView<'_>) {
        shift(state, shape, pod, node, 1);
    }

    fn remove_pod(&self, state: &mut State, shape: &PodShape, pod: &Pod, node: NodeView<'_>) {
        shift(state, shape, pod, node, -1);
    }
}

/// As if a pod were on a node, or were not.
fn shift(state: &mut State, shape: &PodShape, pod: &Pod, node: NodeView<'_>, delta: i64) {
    let Some(rules) = state.as_mut().and_then(|s| s.downcast_mut::<Rules>()) else {
        return;
    };
    let (cluster, terms) = (node.cluster(), &shape.related.terms);
    let group = cluster.kin.group(pod.group);
    let with_key = |key: &str, term: &AffinityTerm| *term.topology_key == *key;
    if terms.needs().next().is_some() && satisfies(cluster, group, terms.needs()) {
        rules
            .needed
            .nudge(node, delta, |k| terms.needs().filter(|t| with_key(&k.key, t)).count() as i64);
    }
    rules.repelled.nudge(node, delta, |k| {
        let own = terms.repels().filter(|t| with_key(&k.key, t));
        own.filter(|t| satisfies(cluster, group, [*t].into_iter())).count() as i64
    });
    let theirs = &cluster.shape(pod.shape).related.terms;
    rules.repelling.nudge(node, delta, |k| {
        let matched = |t: &AffinityTerm| {
            let id = cluster.kin.find_term(&(TermKind::Repels, t.clone()));
            id.is_some_and(|id| shape.related.matched.contains(&id))
        };
        theirs.repels().filter(|t| with_key(&k.key, t) && matched(t)).count() as i64
    });
}

impl Filter for InterPodAffinity {
    fn filter(&self, state: &State, _: &PodShape, node: NodeView<'_>) -> Result<(), Status> {
        let mut key = ClassKey::new();
        ClassFilter::tell(self, state, node, &mut key);
        self.judge(state, &key).map_err(|reason| self.status(reason))
    }

    fn by_class(&self) -> Option<&dyn ClassFilter> {
        Some(self)
    }
}

impl ClassFilter for InterPodAffinity {
    fn tell(&self, state: &State, node: NodeView<'_>, key: &mut ClassKey) {
        key.push(rules(state).map_or(0, |r| r.against(node)));
    }

    fn judge(&self, state: &State, key: &[i64]) -> Result<(), u8> {
        let (Some(rules), Some(&bits)) = (rules(state), key.first()) else {
            return Ok(());
        };
        let first = || rules.satisfies_self && rules.needed.is_empty();
        if bits & LACKS_KEY != 0 || bits & NOBODY != 0 && !first() {
            return Err(0);
        }
        if bits & REPELLED != 0 {
            return Err(1);
        }
        if bits & REPELLING != 0 { Err(2) } else { Ok(()) }
    }

    fn status(&self, reason: u8) -> Status {
        match reason {
            0 => Status::unresolvable(AFFINITY),
            1 => Status::unschedulable(ANTI_AFFINITY),
            _ => Status::unschedulable(EXISTING),
        }
    }

    fn follow(
        &self,
        state: &mut State,
        _: &PodShape,
        cluster: &Cluster,
        node: NodeId,
        also: &mut Vec<NodeId>,
    ) -> bool {
        let Some(rules) = state.as_mut().and_then(|s| s.downcast_mut::<Rules>()) else {
            return true;
        };
        let mut kept = true;
        for side in rules.sides() {
            kept &= side.is_kept();
            // Filters ask only whether there is anybody.
            side.follow(cluster, node, |_, (a, _), (b, _)| (a > 0) != (b > 0), also);
        }
        kept
    }
}
