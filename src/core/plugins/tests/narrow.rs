//! Whole-set and per-node judgement agree, for every plugin on random clusters.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::framework::{PluginArgs, PreFilterResult, Registry};
use crate::plugins::NodeAffinityArgs;
use crate::testing::random::{NODES, any_load, any_node, any_object, any_pod};
use crate::testing::{ClusterExt, PodExt, cluster, wire};

fn nodes() -> impl Strategy<Value = Vec<muster_api::k8s::Node>> {
    NODES.map(any_node).into_iter().collect::<Vec<_>>()
}

/// Every in-tree plugin, NodeAffinity with and without `addedAffinity`.
fn plugins() -> Vec<std::sync::Arc<dyn crate::framework::Plugin>> {
    let registry = Registry::in_tree();
    let added = serde_json::json!({"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}],
    }});
    let args = PluginArgs {
        node_affinity: NodeAffinityArgs { added_affinity: Some(wire(added)) },
        ..PluginArgs::default()
    };
    let names = crate::framework::Profile::defaults().iter().map(|(name, _)| *name);
    let plain = names.clone().map(|name| registry.make(name, &PluginArgs::default()).unwrap());
    plain.chain(names.map(|name| registry.make(name, &args).unwrap())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn narrow_keeps_exactly_the_nodes_that_filter_accepts(
        nodes in nodes(),
        there in vec((any_load(), prop::sample::select(NODES.to_vec())), 0..6),
        pod in any_pod(),
        gone in prop::sample::select(NODES.to_vec()),
        objects in vec(any_object(), 0..16),
    ) {
        let mut cluster = cluster(nodes);
        objects.into_iter().for_each(|o| {
            cluster.volumes_mut().upsert(o, 0);
        });
        there.into_iter().for_each(|(load, node)| {
            cluster.add_wire_pod(&load.on(node));
        });
        cluster.remove_node(gone);
        let shape = cluster.shape_of(&pod);
        for plugin in plugins() {
            let Some(filter) = plugin.as_filter() else {
                continue;
            };
            let state = match plugin.as_pre_filter().map(|p| p.pre_filter(&shape, &cluster)) {
                None => None,
                Some(PreFilterResult::Go { state, .. }) => state,
                Some(PreFilterResult::Skip) => {
                    // What PreFilter skips, Filter would have accepted everywhere.
                    for node in cluster.nodes().iter() {
                        let verdict = filter.filter(&None, &shape, cluster.view(node));
                        prop_assert_eq!(verdict, Ok(()), "{} skips", plugin.name());
                    }
                    continue;
                }
                Some(PreFilterResult::Reject(_)) => continue,
            };
            let mut set = cluster.nodes().clone();
            filter.narrow(&state, &shape, &cluster, &mut set);
            for node in cluster.nodes().iter() {
                let verdict = filter.filter(&state, &shape, cluster.view(node));
                let name = &cluster.node(node).name;
                prop_assert_eq!(
                    set.contains(node), verdict.is_ok(), "{} on {}", plugin.name(), name
                );
            }
            set.subtract(cluster.nodes());
            prop_assert!(set.is_empty(), "{} adds nodes", plugin.name());
        }
    }
}
