//! What a file says is what the plugins do: verdicts and scores under profiles.

use serde_json::{Value, json};

use crate::explain::Session;

/// A tainted node without room, a node with room, a full one with room, and a pod
/// that asks for 1 CPU of 4.
fn cluster() -> Vec<Value> {
    let node = |name: &str, cpu: &str, spec: Value| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"pool": name}},
               "spec": spec,
               "status": {"allocatable": {"cpu": cpu, "memory": "4Gi", "pods": "9", "x.io/a": "1"}}})
    };
    let pod = |name: &str, on: &str, cpu: &str, more: Value| {
        let mut requests = json!({"cpu": cpu, "memory": "1Gi"});
        requests.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "d", "uid": name},
               "spec": {"nodeName": on,
                        "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]}})
    };
    let taint = json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
    vec![
        node("bad", "500m", taint),
        node("empty", "4", json!({})),
        node("half", "4", json!({})),
        pod("there", "half", "2", json!({})),
        pod("asks", "", "1", json!({})),
        pod("greedy", "", "1", json!({"x.io/a": "2"})),
    ]
}

fn explain(pod: &str, profile: &Value) -> Value {
    let mut session = Session::from_objects(&cluster(), Some(profile)).unwrap();
    serde_json::to_value(session.explain(pod).unwrap()).unwrap()
}

#[test]
fn the_first_filter_in_order_is_the_one_that_is_named() {
    let filter = |enabled: Value| json!({"plugins": {"filter": {"disabled": [{"name": "*"}], "enabled": enabled}}});
    for (profile, plugin, feasible) in [
        (json!({}), "TaintToleration", 2),
        (
            filter(json!([{"name": "NodeResourcesFit"}, {"name": "TaintToleration"}])),
            "NodeResourcesFit",
            2,
        ),
        (filter(json!([{"name": "TaintToleration"}])), "TaintToleration", 2),
        (filter(json!([{"name": "NodeName"}])), "", 3),
        (
            json!({"plugins": {"filter": {"disabled": [{"name": "TaintToleration"}]}}}),
            "NodeResourcesFit",
            2,
        ),
        (
            json!({"plugins": {"multiPoint": {"disabled": [{"name": "TaintToleration"}, {"name": "NodeResourcesFit"}]}}}),
            "",
            3,
        ),
    ] {
        let answer = explain("d/asks", &profile);
        assert_eq!(answer["nodes"]["bad"]["plugin"].as_str().unwrap_or(""), plugin, "{profile}");
        assert_eq!(answer["feasibleNodes"], feasible, "{profile}");
    }
}

/// LeastAllocated of the pod on `empty`: cpu (4-1)/4 = 75, memory (4-1)/4 = 75 → 75;
/// on `half`: cpu (4-3)/4 = 25, memory (4-2)/4 = 50 → 37. MostAllocated: 25 and 62.
#[test]
fn weights_and_arguments_reach_the_scores() {
    let score = |enabled: Value| json!({"disabled": [{"name": "*"}], "enabled": enabled});
    let fit = json!([{"name": "NodeResourcesFit", "weight": 3}]);
    let most = json!([{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}]);
    let curve = json!([{"name": "NodeResourcesFit", "args": {"scoringStrategy": {
        "type": "RequestedToCapacityRatio", "resources": [{"name": "cpu"}],
        "requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}}}}]);
    for (profile, empty, half) in [
        (json!({"plugins": {"score": score(json!([{"name": "NodeResourcesFit"}]))}}), 75, 37),
        (json!({"plugins": {"score": score(fit.clone())}}), 225, 111),
        (json!({"plugins": {"score": score(fit.clone())}, "pluginConfig": most}), 75, 186),
        (json!({"plugins": {"score": score(fit)}, "pluginConfig": curve}), 75, 225),
        (json!({"plugins": {"score": score(json!([]))}}), 0, 0),
    ] {
        let answer = explain("d/asks", &profile);
        let total = |node: &str| answer["nodes"][node]["total"].as_i64();
        assert_eq!((total("empty"), total("half")), (Some(empty), Some(half)), "{profile}");
    }
}

#[test]
fn arguments_reach_the_filters() {
    let ignored = json!({"pluginConfig": [{"name": "NodeResourcesFit", "args": {"ignoredResources": ["x.io/a"]}}]});
    let added = json!({"pluginConfig": [{"name": "NodeAffinity", "args": {"addedAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["half"]}]}]}}}}]});
    for (pod, profile, feasible) in [
        ("d/greedy", json!({}), 0),
        ("d/greedy", ignored, 2),
        ("d/asks", json!({}), 2),
        ("d/asks", added, 1),
    ] {
        assert_eq!(explain(pod, &profile)["feasibleNodes"], feasible, "{pod} {profile}");
    }
}

/// Without PostFilter nobody says what evictions could do.
#[test]
fn a_point_that_is_off_is_not_called() {
    let off = json!({"plugins": {"postFilter": {"disabled": [{"name": "*"}]}}});
    assert!(explain("d/greedy", &json!({})).get("preemption").is_some());
    assert!(explain("d/greedy", &off).get("preemption").is_none());
    // What Filter reads is prepared even if PreFilter is switched off alone.
    let alone = json!({"plugins": {"preFilter": {"disabled": [{"name": "*"}]}}});
    assert_eq!(explain("d/asks", &alone), explain("d/asks", &json!({})));
}
