//! From arguments as they are kept to what the core's plugins take.

use muster_api::k8s;
use muster_core::framework::PluginArgs;
use muster_core::plugins::{
    BalancedAllocationArgs, DefaultPreemptionArgs, FitArgs, InterPodAffinityArgs, NodeAffinityArgs,
    PodTopologySpreadArgs, ResourceSpec, ScoringStrategy, ShapePoint, VolumeBindingArgs,
};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Preemption {
    pub(super) min_candidate_nodes_percentage: i32,
    pub(super) min_candidate_nodes_absolute: i32,
    #[serde(default)]
    allow_budget_violations: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InterPod {
    pub(super) hard_pod_affinity_weight: i32,
    ignore_preferred_terms_of_existing_pods: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Affinity {
    pub(super) added_affinity: Option<k8s::NodeAffinity>,
}

#[derive(Deserialize)]
pub(super) struct Balanced {
    pub(super) resources: Vec<Resource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Fit {
    #[serde(default)]
    pub(super) ignored_resources: Vec<String>,
    #[serde(default)]
    pub(super) ignored_resource_groups: Vec<String>,
    pub(super) scoring_strategy: Strategy,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Strategy {
    #[serde(default)]
    pub(super) r#type: String,
    pub(super) resources: Vec<Resource>,
    pub(super) requested_to_capacity_ratio: Option<Ratio>,
}

#[derive(Deserialize)]
pub(super) struct Resource {
    pub(super) name: String,
    pub(super) weight: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Ratio {
    pub(super) shape: Vec<Point>,
}

#[derive(Clone, Copy, Deserialize)]
pub(super) struct Point {
    pub(super) utilization: i64,
    pub(super) score: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spread {
    #[serde(default)]
    pub(super) default_constraints: Vec<k8s::TopologySpreadConstraint>,
    pub(super) defaulting_type: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Binding {
    pub(super) bind_timeout_seconds: i64,
    pub(super) shape: Vec<Point>,
}

/// Sets the arguments of one plugin; those of plugins with a form of their own are
/// handed on as they are.
///
/// # Errors
///
/// If they are not of the form in which arguments are kept.
pub(crate) fn to_core(
    args: &mut PluginArgs,
    plugin: &str,
    json: &Value,
) -> Result<(), serde_json::Error> {
    match plugin {
        "DefaultPreemption" => {
            let own = Preemption::deserialize(json)?;
            args.default_preemption = DefaultPreemptionArgs {
                min_candidate_nodes_percentage: own.min_candidate_nodes_percentage,
                min_candidate_nodes_absolute: own.min_candidate_nodes_absolute,
                allow_budget_violations: own.allow_budget_violations,
            };
        }
        "InterPodAffinity" => {
            let own = InterPod::deserialize(json)?;
            args.inter_pod_affinity = InterPodAffinityArgs {
                hard_pod_affinity_weight: own.hard_pod_affinity_weight,
                ignore_preferred_terms_of_existing_pods: own
                    .ignore_preferred_terms_of_existing_pods,
            };
        }
        "NodeAffinity" => {
            let added_affinity = Affinity::deserialize(json)?.added_affinity;
            args.node_affinity = NodeAffinityArgs { added_affinity };
        }
        "NodeResourcesBalancedAllocation" => {
            let resources = resources(Balanced::deserialize(json)?.resources);
            args.balanced = BalancedAllocationArgs { resources };
        }
        "NodeResourcesFit" => args.fit = fit(Fit::deserialize(json)?),
        "PodTopologySpread" => {
            let own = Spread::deserialize(json)?;
            args.pod_topology_spread = if own.defaulting_type == "List" {
                PodTopologySpreadArgs::List(own.default_constraints)
            } else {
                PodTopologySpreadArgs::System
            };
        }
        "VolumeBinding" => {
            let own = Binding::deserialize(json)?;
            args.volume_binding = VolumeBindingArgs {
                bind_timeout_seconds: own.bind_timeout_seconds,
                shape: points(&own.shape),
            };
        }
        other => {
            args.custom.insert(other.to_owned(), json.clone());
        }
    }
    Ok(())
}

fn fit(own: Fit) -> FitArgs {
    let strategy = own.scoring_strategy;
    FitArgs {
        ignored_resources: own.ignored_resources,
        ignored_resource_groups: own.ignored_resource_groups,
        strategy: match strategy.r#type.as_str() {
            "MostAllocated" => ScoringStrategy::MostAllocated,
            "RequestedToCapacityRatio" => {
                let ratio = strategy.requested_to_capacity_ratio.unwrap_or_default();
                ScoringStrategy::RequestedToCapacityRatio(points(&ratio.shape))
            }
            _ => ScoringStrategy::LeastAllocated,
        },
        resources: resources(strategy.resources),
    }
}

fn points(list: &[Point]) -> Vec<ShapePoint> {
    list.iter().map(|p| ShapePoint { utilization: p.utilization, score: p.score }).collect()
}

fn resources(list: Vec<Resource>) -> Vec<ResourceSpec> {
    list.into_iter().map(|r| ResourceSpec { name: r.name, weight: r.weight }).collect()
}
