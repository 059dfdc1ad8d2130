//! From a profile in a configuration file to the plugins that run.
//!
//! Owns which plugin names, weights and arguments a profile ends up with. The
//! arguments of the plugins that exist are read here; the merge rules for single
//! extension points join with the rest of the configuration.

use anyhow::{Context as _, Result, bail};
use muster_api::k8s;
use muster_core::Profile;
use muster_core::framework::{PluginArgs, Registry};
use muster_core::plugins::{
    BalancedAllocationArgs, FitArgs, InterPodAffinityArgs, NodeAffinityArgs, PodTopologySpreadArgs,
    ResourceSpec, ScoringStrategy, ShapePoint, VolumeBindingArgs, names,
};
use serde::Deserialize;
use serde_json::Value;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ProfileJson {
    scheduler_name: Option<String>,
    plugins: PluginsJson,
    plugin_config: Vec<PluginConfigJson>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PluginsJson {
    multi_point: PluginSetJson,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PluginSetJson {
    enabled: Vec<PluginJson>,
    disabled: Vec<PluginJson>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PluginJson {
    name: String,
    weight: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PluginConfigJson {
    name: String,
    args: Value,
}

/// The profile that one item of `profiles` describes: `multiPoint` on top of the
/// defaults, and `pluginConfig`.
pub fn profile_from_json(json: &Value) -> Result<Profile> {
    let profile = ProfileJson::deserialize(json).context("reading the profile")?;
    let multi_point = &profile.plugins.multi_point;
    let disabled =
        |name: &str| multi_point.disabled.iter().any(|d| d.name == "*" || d.name == name);
    let mut plugins: Vec<(&str, i64)> =
        Profile::defaults().iter().filter(|(name, _)| !disabled(name)).copied().collect();
    for plugin in &multi_point.enabled {
        let weight = plugin.weight.unwrap_or(0);
        match plugins.iter_mut().find(|(name, _)| *name == plugin.name) {
            Some(known) => known.1 = weight,
            None => plugins.push((&plugin.name, weight)),
        }
    }
    let mut args = PluginArgs::default();
    for config in &profile.plugin_config {
        read_args(&mut args, &config.name, &config.args)
            .with_context(|| format!("pluginConfig {:?}", config.name))?;
    }
    let name = profile.scheduler_name.as_deref().unwrap_or("default-scheduler");
    Ok(Profile::build(name, plugins, &args, &Registry::in_tree())?)
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FitJson {
    ignored_resources: Vec<String>,
    ignored_resource_groups: Vec<String>,
    scoring_strategy: Option<StrategyJson>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StrategyJson {
    r#type: String,
    resources: Vec<ResourceJson>,
    requested_to_capacity_ratio: Option<RatioJson>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResourceJson {
    name: String,
    weight: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RatioJson {
    shape: Vec<PointJson>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PointJson {
    utilization: i64,
    score: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BalancedJson {
    resources: Vec<ResourceJson>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AffinityJson {
    added_affinity: Option<k8s::NodeAffinity>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SpreadJson {
    default_constraints: Option<Vec<k8s::TopologySpreadConstraint>>,
    defaulting_type: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct InterPodJson {
    hard_pod_affinity_weight: Option<i32>,
    ignore_preferred_terms_of_existing_pods: bool,
}

fn spread_args(json: SpreadJson) -> Result<PodTopologySpreadArgs> {
    let list = json.default_constraints.unwrap_or_default();
    match json.defaulting_type.as_str() {
        "" | "System" if list.is_empty() => Ok(PodTopologySpreadArgs::System),
        "" | "System" => bail!(
            "defaultConstraints: Invalid value: when defaultingType is System, it must be empty: \
             set defaultingType to List"
        ),
        "List" => Ok(PodTopologySpreadArgs::List(list)),
        other => bail!(
            "defaultingType: Unsupported value: {other:?}: supported values: \"System\", \"List\""
        ),
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct VolumeBindingJson {
    bind_timeout_seconds: Option<i64>,
    shape: Vec<PointJson>,
}

fn read_args(args: &mut PluginArgs, plugin: &str, json: &Value) -> Result<()> {
    match plugin {
        names::NODE_RESOURCES_FIT => args.fit = fit_args(FitJson::deserialize(json)?)?,
        names::NODE_RESOURCES_BALANCED_ALLOCATION => {
            let resources = resources(BalancedJson::deserialize(json)?.resources, 1);
            args.balanced = BalancedAllocationArgs { resources };
        }
        names::VOLUME_BINDING => {
            let json = VolumeBindingJson::deserialize(json)?;
            let timeout = VolumeBindingArgs::default().bind_timeout_seconds;
            args.volume_binding = VolumeBindingArgs {
                bind_timeout_seconds: json.bind_timeout_seconds.unwrap_or(timeout),
                shape: points(json.shape),
            };
        }
        names::NODE_AFFINITY => {
            let added_affinity = AffinityJson::deserialize(json)?.added_affinity;
            args.node_affinity = NodeAffinityArgs { added_affinity };
        }
        names::POD_TOPOLOGY_SPREAD => {
            args.pod_topology_spread = spread_args(SpreadJson::deserialize(json)?)?;
        }
        names::INTER_POD_AFFINITY => {
            let json = InterPodJson::deserialize(json)?;
            args.inter_pod_affinity = InterPodAffinityArgs {
                hard_pod_affinity_weight: json.hard_pod_affinity_weight.unwrap_or(1),
                ignore_preferred_terms_of_existing_pods: json
                    .ignore_preferred_terms_of_existing_pods,
            };
        }
        _ => {}
    }
    Ok(())
}

fn points(list: Vec<PointJson>) -> Vec<ShapePoint> {
    list.into_iter().map(|p| ShapePoint { utilization: p.utilization, score: p.score }).collect()
}

fn resources(list: Vec<ResourceJson>, default_weight: i64) -> Vec<ResourceSpec> {
    let weight = |w| if w == 0 { default_weight } else { w };
    list.into_iter().map(|r| ResourceSpec { name: r.name, weight: weight(r.weight) }).collect()
}

fn fit_args(json: FitJson) -> Result<FitArgs> {
    let strategy = json.scoring_strategy.unwrap_or_default();
    let shape = strategy.requested_to_capacity_ratio;
    Ok(FitArgs {
        ignored_resources: json.ignored_resources,
        ignored_resource_groups: json.ignored_resource_groups,
        strategy: match strategy.r#type.as_str() {
            "" | "LeastAllocated" => ScoringStrategy::LeastAllocated,
            "MostAllocated" => ScoringStrategy::MostAllocated,
            "RequestedToCapacityRatio" => {
                ScoringStrategy::RequestedToCapacityRatio(points(shape.unwrap_or_default().shape))
            }
            other => bail!(
                "scoringStrategy.type: Unsupported value: {other:?}: supported values: \
                 \"LeastAllocated\", \"MostAllocated\", \"RequestedToCapacityRatio\""
            ),
        },
        resources: resources(strategy.resources, 1),
    })
}
