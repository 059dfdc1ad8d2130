//! PodTopologySpread: pods of a kind evenly over zones, hosts or any other label.
//!
//! Its system defaults, which spread pods of one Service or controller, are what
//! became of the older SelectorSpread plugin.

mod domains;
mod hints;

use muster_api::k8s;

use super::names;
use crate::cluster::{Cluster, NodeId, NodeView};
use crate::framework::{
    Actions, ClassFilter, ClassKey, ClassScore, Filter, Hint, HintCx, MAX_SCORE, Normalize, Plugin,
    PreFilter, PreFilterResult, PreScoreResult, Registration, RegistryError, Resource, Score,
    State, Status, Survey, UNRANKED,
};
use crate::model::{LabelSet, Pod, PodShape, SpreadConstraint, is_qualified_name};
use domains::{HOSTNAME, Spread};

const UNEVEN: &str = "node(s) didn't match pod topology spread constraints";
const UNLABELED: &str =
    "node(s) didn't match pod topology spread constraints (missing required label)";
const ZONE: &str = "topology.kubernetes.io/zone";

/// Constraints for pods that bring none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PodTopologySpreadArgs {
    /// Hosts with a skew of 3 and zones with a skew of 5, both `ScheduleAnyway`.
    #[default]
    System,
    /// These.
    List(Vec<k8s::TopologySpreadConstraint>),
}

/// Spreads pods.
pub struct PodTopologySpread {
    defaults: Vec<SpreadConstraint>,
    system: bool,
}

impl PodTopologySpread {
    /// Checks the arguments.
    pub fn new(args: &PodTopologySpreadArgs) -> Result<Self, RegistryError> {
        let list = match args {
            PodTopologySpreadArgs::System => {
                return Ok(Self { defaults: system_defaults(), system: true });
            }
            PodTopologySpreadArgs::List(list) => list,
        };
        let mut defaults = Vec::new();
        for (i, wire) in list.iter().enumerate() {
            check(&list[..i], wire).map_err(|(field, problem)| RegistryError::Args {
                plugin: names::POD_TOPOLOGY_SPREAD,
                field: format!("defaultConstraints[{i}].{field}"),
                problem,
            })?;
            let hard = wire.when_unsatisfiable == "DoNotSchedule";
            defaults.extend(SpreadConstraint::compile(wire, hard, &LabelSet::default()));
        }
        Ok(Self { defaults, system: false })
    }

    /// The constraints of one kind that hold for a shape, and whether they are its own.
    fn constraints(&self, shape: &PodShape, hard: bool) -> Vec<SpreadConstraint> {
        let related = &shape.related;
        let of_kind = |list: &[SpreadConstraint]| -> Vec<SpreadConstraint> {
            list.iter().filter(|c| c.hard == hard).cloned().collect()
        };
        if related.has_spread {
            return of_kind(&related.spread);
        }
        let Some((selector, matches_self)) = &related.siblings else {
            return Vec::new();
        };
        let mut list = of_kind(&self.defaults);
        for constraint in &mut list {
            constraint.selector = selector.clone();
            constraint.matches_self = *matches_self;
        }
        list
    }

    /// Which error upstream would wrap for constraints of one kind.
    fn error(shape: &PodShape, hard: bool, before: &str) -> Option<Status> {
        let error = shape.related.spread_errors[usize::from(!hard)].as_deref()?;
        let kind = if hard { "hard" } else { "soft" };
        let text = format!("{before}: obtaining pod's {kind} topology spread constraints: {error}");
        Some(Status::error(text))
    }
}

fn system_defaults() -> Vec<SpreadConstraint> {
    let default = |key: &str, max_skew| SpreadConstraint {
        hard: false,
        max_skew,
        topology_key: key.into(),
        selector: crate::model::Selector::default(),
        min_domains: 1,
        honor_affinity: true,
        honor_taints: false,
        matches_self: false,
    };
    vec![default(HOSTNAME, 3), default(ZONE, 5)]
}

/// Upstream's validation of a default constraint: field and problem.
fn check(
    before: &[k8s::TopologySpreadConstraint],
    one: &k8s::TopologySpreadConstraint,
) -> Result<(), (&'static str, String)> {
    if one.max_skew <= 0 {
        let problem =
            format!("Invalid value: {}: not in valid range (0, 2147483647]", one.max_skew);
        return Err(("maxSkew", problem));
    }
    if !is_qualified_name(&one.topology_key) {
        let problem = format!("Invalid value: {:?}: must be a valid label key", one.topology_key);
        return Err(("topologyKey", problem));
    }
    if !matches!(one.when_unsatisfiable.as_str(), "DoNotSchedule" | "ScheduleAnyway") {
        let problem = format!(
            "Unsupported value: {:?}: supported values: \"DoNotSchedule\", \"ScheduleAnyway\"",
            one.when_unsatisfiable
        );
        return Err(("whenUnsatisfiable", problem));
    }
    if one.label_selector.is_some() {
        let problem =
            "Forbidden: constraint must not define a selector, as they deduced for each pod";
        return Err(("labelSelector", problem.to_owned()));
    }
    let same = |c: &k8s::TopologySpreadConstraint| {
        c.topology_key == one.topology_key && c.when_unsatisfiable == one.when_unsatisfiable
    };
    if before.iter().any(same) {
        let problem = "Duplicate value: topologyKey and whenUnsatisfiable are there already";
        return Err(("topologyKey", problem.to_owned()));
    }
    Ok(())
}

fn spread(state: &State) -> Option<&Spread> {
    state.as_ref()?.downcast_ref()
}

fn spread_mut(state: &mut State) -> Option<&mut Spread> {
    state.as_mut()?.downcast_mut()
}

impl Plugin for PodTopologySpread {
    fn name(&self) -> &'static str {
        names::POD_TOPOLOGY_SPREAD
    }

    fn events(&self) -> Vec<Registration> {
        let on = |resource, actions| Registration { resource, actions };
        vec![
            on(Resource::AssignedPod, Actions::ADD | Actions::UPDATE_POD_LABEL | Actions::DELETE),
            on(Resource::TargetPod, Actions::UPDATE_POD_TOLERATION | Actions::UPDATE_POD_LABEL),
            on(
                Resource::Node,
                Actions::ADD
                    | Actions::DELETE
                    | Actions::UPDATE_NODE_LABEL
                    | Actions::UPDATE_NODE_TAINT,
            ),
        ]
    }

    fn hint(&self, cx: &HintCx<'_>) -> Hint {
        hints::hint(&self.constraints(cx.shape, true), cx)
    }

    fn stamp(&self, shape: &PodShape, cluster: &Cluster) -> u64 {
        let related = &shape.related;
        if related.spread.is_empty() && related.siblings.is_none() {
            0
        } else {
            cluster.kin_stamp()
        }
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

impl PreFilter for PodTopologySpread {
    fn pre_filter(&self, shape: &PodShape, cluster: &Cluster) -> PreFilterResult {
        if let Some(error) = Self::error(shape, true, "get constraints from pod") {
            return PreFilterResult::Reject(error);
        }
        let constraints = self.constraints(shape, true);
        if constraints.is_empty() {
            return PreFilterResult::Skip;
        }
        let spread = Spread::new(constraints, true, false, shape, cluster);
        PreFilterResult::Go { state: Some(Box::new(spread)), nodes: None }
    }

    fn add_pod(&self, state: &mut State, shape: &PodShape, pod: &Pod, node: NodeView<'_>) {
        shift(state, shape, pod, node, 1);
    }

    fn remove_pod(&self, state: &mut State, shape: &PodShape, pod: &Pod, node: NodeView<'_>) {
        shift(state, shape, pod, node, -1);
    }
}

fn shift(state: &mut State, shape: &PodShape, pod: &Pod, node: NodeView<'_>, delta: i64) {
    let own = shape.related.namespace.as_deref();
    if let Some(spread) = spread_mut(state)
        && own == Some(&*pod.key.namespace)
    {
        spread.nudge(node.cluster().kin.group(pod.group), node, delta);
    }
}

impl Filter for PodTopologySpread {
    fn filter(&self, state: &State, _: &PodShape, node: NodeView<'_>) -> Result<(), Status> {
        let mut key = ClassKey::new();
        ClassFilter::tell(self, state, node, &mut key);
        self.judge(state, &key).map_err(|reason| self.status(reason))
    }

    fn by_class(&self) -> Option<&dyn ClassFilter> {
        Some(self)
    }
}

const MISSING: u8 = 0;

impl ClassFilter for PodTopologySpread {
    fn tell(&self, state: &State, node: NodeView<'_>, key: &mut ClassKey) {
        if let Some(spread) = spread(state) {
            spread.tell(node, key);
        }
    }

    fn judge(&self, state: &State, key: &[i64]) -> Result<(), u8> {
        let Some(spread) = spread(state) else {
            return Ok(());
        };
        for (tracked, &number) in spread.tracked.iter().zip(key) {
            if number < 0 {
                return Err(MISSING);
            }
            let constraint = &tracked.constraint;
            let skew = tracked.pods(number) + i64::from(constraint.matches_self) - tracked.least();
            if skew > constraint.max_skew.into() {
                return Err(MISSING + 1);
            }
        }
        Ok(())
    }

    fn status(&self, reason: u8) -> Status {
        match reason {
            MISSING => Status::unresolvable(UNLABELED),
            _ => Status::unschedulable(UNEVEN),
        }
    }

    fn follow(
        &self,
        state: &mut State,
        shape: &PodShape,
        cluster: &Cluster,
        node: NodeId,
        also: &mut Vec<NodeId>,
    ) -> bool {
        spread_mut(state).is_none_or(|s| s.follow(shape, cluster, node, also))
    }
}

impl Score for PodTopologySpread {
    fn pre_score(&self, shape: &PodShape, cluster: &Cluster) -> PreScoreResult {
        if let Some(error) = Self::error(shape, false, "calculating preScoreState") {
            return PreScoreResult::Fail(error);
        }
        let constraints = self.constraints(shape, false);
        if constraints.is_empty() {
            return PreScoreResult::Skip;
        }
        // Nodes without a zone still take part in spreading over hosts, if these
        // are the system's defaults.
        let strict = shape.related.has_spread || !self.system;
        let spread = Spread::new(constraints, strict, true, shape, cluster);
        PreScoreResult::Go(Some(Box::new(spread)))
    }

    fn normalize(&self) -> Normalize {
        Normalize::ByExtremes(|raw, min, max| match (raw, max) {
            (UNRANKED, _) => 0,
            (_, ..=0) => MAX_SCORE,
            _ => MAX_SCORE * (max + min - raw) / max,
        })
    }

    fn by_class(&self) -> Option<&dyn ClassScore> {
        Some(self)
    }
}

impl ClassScore for PodTopologySpread {
    fn tell(&self, state: &State, node: NodeView<'_>, key: &mut ClassKey) {
        if let Some(spread) = spread(state) {
            spread.tell(node, key);
        }
    }

    /// The weight of each constraint: the logarithm of its number of domains among
    /// the feasible nodes, so that a few zones are not drowned by many hosts.
    fn survey(&self, state: &State, feasible: &mut dyn Iterator<Item = (&[i64], u32)>) -> Survey {
        let Some(spread) = spread(state) else {
            return Survey::new();
        };
        let sizes = spread.tracked.iter().map(|t| vec![false; t.domain_count()]);
        let mut seen: Vec<Vec<bool>> = sizes.collect();
        let mut ranked = 0_u32;
        for (key, nodes) in feasible.filter(|(key, _)| !ignored(key)) {
            ranked += nodes;
            for (seen, &number) in seen.iter_mut().zip(key) {
                let domain = if number < 0 { -2 - number } else { number };
                if let Some(domain) = usize::try_from(domain).ok().and_then(|d| seen.get_mut(d)) {
                    *domain = true;
                }
            }
        }
        let sizes = spread.tracked.iter().zip(&seen).map(|(tracked, seen)| {
            if tracked.is_by_count() {
                ranked as usize
            } else {
                seen.iter().filter(|s| **s).count()
            }
        });
        sizes.map(|size| ((size + 2) as f64).ln()).collect()
    }

    fn rate(&self, state: &State, survey: &Survey, key: &[i64]) -> i64 {
        let Some(spread) = spread(state).filter(|_| !ignored(key)) else {
            return UNRANKED;
        };
        let mut score = 0.0;
        for ((tracked, &number), weight) in spread.tracked.iter().zip(key).zip(survey) {
            if number >= 0 {
                let skew = f64::from(tracked.constraint.max_skew - 1);
                score += tracked.pods(number) as f64 * weight + skew;
            }
        }
        f64::round(score) as i64
    }

    fn follow(
        &self,
        state: &mut State,
        shape: &PodShape,
        cluster: &Cluster,
        node: NodeId,
        also: &mut Vec<NodeId>,
    ) -> bool {
        spread_mut(state).is_none_or(|s| s.follow(shape, cluster, node, also))
    }
}

/// Whether a node is left out for want of a key.
fn ignored(key: &[i64]) -> bool {
    key.contains(&-1)
}
