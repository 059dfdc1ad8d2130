//! PodTopologySpread: pods of a kind evenly over zones, hosts or any other label.
//!
//! Its system defaults, which spread pods of one Service or controller, are what
//! became of the older SelectorSpread plugin.

mod args;
mod domains;
mod hints;
mod score;

pub use args::PodTopologySpreadArgs;

use super::names;
use crate::cluster::{Cluster, NodeId, NodeView};
use crate::framework::{
    Actions, ClassFilter, ClassKey, Filter, Hint, HintCx, Plugin, PreFilter, PreFilterResult,
    Registration, RegistryError, Resource, Score, State, Status,
};
use crate::model::{LabelSet, Pod, PodShape, SpreadConstraint};
use args::{check, system_defaults};
use domains::Spread;

const UNEVEN: &str = "node(s) didn't match pod topology spread constraints";
const UNLABELED: &str =
    "node(s) didn't match pod topology spread constraints (missing required label)";

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
