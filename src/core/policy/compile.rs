//! A policy from the wire, and what is wrong with it.

use std::sync::Arc;

use muster_api::k8s;
use muster_api::muster::{
    GangDefaults, MAX_SECONDS, MAX_WEIGHT, PacingPolicy, PlacementPolicy, PlacementStrategy,
    PreemptionPolicy, SchedulingPolicy, TopologyDefault, TopologyRequest,
};

use super::Preference;
use crate::io::Tick;
use crate::model::Selector;

/// When a policy packs, and when it spreads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Thresholds {
    /// Packing begins below this load, in percent.
    pub below: i64,
    /// Spreading begins above it.
    pub above: i64,
    /// The resource whose use is the load; none: the one most used.
    pub resource: Option<Box<str>>,
}

/// Which nodes a policy prefers by how full they are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Always the same.
    Fixed(Preference),
    /// Full ones at low load, empty ones else.
    ByLoad(Thresholds),
}

impl Placement {
    pub(super) fn words(&self, packs: bool) -> String {
        match self {
            Self::Fixed(Preference::Full) => PlacementStrategy::Pack.to_string(),
            Self::Fixed(Preference::Empty) => PlacementStrategy::Spread.to_string(),
            Self::Fixed(Preference::Neither) => PlacementStrategy::Balanced.to_string(),
            Self::ByLoad(_) => {
                let now = if packs { "packs" } else { "spreads" };
                format!("{} ({now} now)", PlacementStrategy::PackAtLowLoad)
            }
        }
    }
}

/// A policy as the core keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Name.
    pub name: Box<str>,
    /// Incarnation.
    pub uid: Box<str>,
    /// Created.
    pub created: Tick,
    /// Generation of the spec.
    pub generation: Option<i64>,
    /// Of several that govern a pod the highest wins.
    pub priority: i32,
    /// Pods of which namespaces, by the namespace's labels.
    pub namespaces: Selector,
    /// Which pods of these.
    pub pods: Selector,
    /// Weights of plugins, in the order written.
    pub weights: Vec<(Box<str>, i64)>,
    /// Full or empty nodes first.
    pub placement: Option<Placement>,
    /// Where members of gangs shall be that ask for nothing.
    pub topology: Option<Arc<TopologyRequest>>,
    /// What holds for gangs whose group leaves it out.
    pub gang: GangDefaults,
    /// Whom its pods push out, and when they are pushed out.
    pub preemption: Option<PreemptionPolicy>,
    /// How fast its pods are bound and started.
    pub pacing: Option<PacingPolicy>,
    /// What makes no sense in it.
    pub problem: Option<Box<str>>,
}

impl Policy {
    /// Reads a policy. Most of what can be wrong is refused by the API server already; an
    /// older definition, or a file, may let it pass.
    #[must_use]
    pub fn of(wire: &SchedulingPolicy) -> Self {
        let (meta, spec) = (&wire.metadata, &wire.spec);
        let mut problem = None;
        let namespaces = selector("namespaceSelector", spec.namespace_selector.as_ref());
        let pods = selector("podSelector", spec.pod_selector.as_ref());
        let placement = spec.placement.as_ref().map(placement).transpose();
        let topology = spec.topology.as_ref().map(topology).transpose();
        let mut sound = |result: Result<(), String>| {
            if let Err(text) = result {
                problem.get_or_insert(text.into());
            }
        };
        sound(namespaces.as_ref().map(drop).map_err(Clone::clone));
        sound(pods.as_ref().map(drop).map_err(Clone::clone));
        sound(placement.as_ref().map(drop).map_err(Clone::clone));
        sound(topology.as_ref().map(drop).map_err(Clone::clone));
        for weight in &spec.score_weights {
            let field = format!("scoreWeights[{}].weight", weight.plugin);
            sound(within(&field, Some(weight.weight), 0, MAX_WEIGHT));
        }
        for (field, seconds) in [
            ("gang.scheduleTimeoutSeconds", spec.gang().schedule_timeout_seconds),
            ("gang.startTimeoutSeconds", spec.gang().start_timeout_seconds),
            ("gang.starvationSeconds", spec.gang().starvation_seconds),
        ] {
            sound(within(field, seconds, 1, MAX_SECONDS));
        }
        sound(spec.preemption.as_ref().map_or(Ok(()), super::preemption::check));
        sound(spec.pacing.as_ref().map_or(Ok(()), super::pacing::check));
        let weights = spec.score_weights.iter();
        Self {
            name: meta.name.as_str().into(),
            uid: meta.uid.as_str().into(),
            created: Tick(meta.creation_timestamp.unwrap_or_default().0),
            generation: meta.generation,
            priority: spec.priority,
            namespaces: namespaces.unwrap_or_else(|_| Selector::nothing()),
            pods: pods.unwrap_or_else(|_| Selector::nothing()),
            weights: weights.map(|w| (w.plugin.as_str().into(), w.weight.into())).collect(),
            placement: placement.unwrap_or_default(),
            topology: topology.unwrap_or_default().map(Arc::new),
            gang: spec.gang(),
            preemption: spec.preemption.clone(),
            pacing: spec.pacing.clone(),
            problem,
        }
    }

    /// Whether it says anything of gangs.
    #[must_use]
    pub fn speaks_of_gangs(&self) -> bool {
        self.topology.is_some() || self.gang != GangDefaults::default()
    }
}

/// What policies say of gangs, nothing if they say nothing.
trait Gang {
    fn gang(&self) -> GangDefaults;
}

impl Gang for muster_api::muster::SchedulingPolicySpec {
    fn gang(&self) -> GangDefaults {
        self.gang.clone().unwrap_or_default()
    }
}

/// One that is absent selects everything.
fn selector(field: &str, wire: Option<&k8s::LabelSelector>) -> Result<Selector, String> {
    let all = k8s::LabelSelector::default();
    Selector::compile(Some(wire.unwrap_or(&all))).map_err(|error| format!("{field}: {error}"))
}

pub(super) fn within(
    field: &str,
    number: Option<i32>,
    least: i32,
    most: i32,
) -> Result<(), String> {
    match number {
        Some(number) if !(least..=most).contains(&number) => {
            Err(format!("{field}: {number} must be between {least} and {most}"))
        }
        _ => Ok(()),
    }
}

fn placement(wire: &PlacementPolicy) -> Result<Placement, String> {
    Ok(match wire.strategy {
        PlacementStrategy::Pack => Placement::Fixed(Preference::Full),
        PlacementStrategy::Spread => Placement::Fixed(Preference::Empty),
        PlacementStrategy::Balanced => Placement::Fixed(Preference::Neither),
        PlacementStrategy::PackAtLowLoad => {
            let threshold = |field: &str, percent: Option<i32>| {
                let field = format!("placement.{field}");
                within(&field, percent, 0, 100)?;
                percent
                    .map(i64::from)
                    .ok_or_else(|| format!("{field}: must be set when strategy is PackAtLowLoad"))
            };
            let below = threshold("packBelowPercent", wire.pack_below_percent)?;
            let above = threshold("spreadAbovePercent", wire.spread_above_percent)?;
            if below >= above {
                return Err(format!(
                    "placement.packBelowPercent: {below} must be below spreadAbovePercent, {above}"
                ));
            }
            let resource = wire.load_resource.as_deref().map(Into::into);
            Placement::ByLoad(Thresholds { below, above, resource })
        }
    })
}

fn topology(wire: &TopologyDefault) -> Result<TopologyRequest, String> {
    if wire.required.is_none() && wire.preferred.is_none() {
        return Err("topology: must have at least one of required and preferred".to_owned());
    }
    if wire.required == wire.preferred {
        return Err("topology.preferred: must differ from required".to_owned());
    }
    Ok(wire.request())
}
