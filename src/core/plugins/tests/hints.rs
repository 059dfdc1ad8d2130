//! Upstream's own cases of queueing hints: which changes of nodes and of placed pods
//! let a rejected pod be tried again. Cases of pods without a node are left out: such
//! pods are no event here.
#![allow(clippy::needless_pass_by_value, reason = "`json!` literals go in as they are")]

use std::sync::Arc;

use muster_api::k8s;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::framework::{Actions, ClusterEvent, Hint, HintCx, Plugin, Resource, Subject};
use crate::plugins::{
    FitArgs, InterPodAffinity, InterPodAffinityArgs, NodeAffinity, NodeAffinityArgs,
    NodeResourcesFit, PodTopologySpread, PodTopologySpreadArgs, TaintToleration,
};
use crate::testing::{ClusterExt, NodeExt, PodExt, node, pod, wire};

/// The hint for an event, as the queue asks for it: none if it is not registered.
fn asked(
    plugin: &dyn Plugin,
    cluster: &mut Cluster,
    pod: &k8s::Pod,
    (resource, actions): (Resource, Actions),
    subject: Subject,
) -> bool {
    let heard =
        plugin.events().iter().any(|r| r.resource == resource && r.actions.intersects(actions));
    let shape = cluster.shape_of(pod);
    let event = ClusterEvent { resource, actions, label: "test", subject };
    heard && plugin.hint(&HintCx { shape: &shape, event: &event, cluster }) == Hint::Queue
}

/// Whether the change of a node wakes a pod.
fn of_node(
    plugin: &dyn Plugin,
    pod: &k8s::Pod,
    before: Option<k8s::Node>,
    after: Option<k8s::Node>,
) -> bool {
    let mut cluster = Cluster::default();
    if let Some(before) = &before {
        cluster.add(before);
    }
    let (actions, subject) = match &after {
        Some(after) => {
            let change = cluster.add(after);
            let before = change.before.map(Arc::new);
            (change.actions, Subject::Node { node: change.node, before })
        }
        None => {
            let before = cluster.node_before("n").map(Arc::new);
            let node = cluster.remove_node("n").expect("it was there");
            (Actions::DELETE, Subject::Node { node, before })
        }
    };
    asked(plugin, &mut cluster, pod, (Resource::Node, actions), subject)
}

/// Whether the coming, going or new labels of a placed pod wake a pod.
fn of_pod(
    plugin: &dyn Plugin,
    pod: &k8s::Pod,
    before: Option<k8s::Pod>,
    after: Option<k8s::Pod>,
) -> bool {
    let mut cluster = Cluster::default();
    let other = after.as_ref().or(before.as_ref()).expect("a pod");
    cluster.add_wire_pod(other);
    let group = Arc::new(cluster.group_key(other));
    let shape = Arc::new(cluster.shape_of(other));
    let actions = match (&before, &after) {
        (None, _) => Actions::ADD,
        (_, None) => Actions::DELETE,
        _ => Actions::UPDATE_POD_LABEL,
    };
    let before = before.filter(|_| after.is_some()).map(|b| Arc::new(cluster.group_key(&b)));
    let subject = Subject::Pod { shape, group, before };
    asked(plugin, &mut cluster, pod, (Resource::AssignedPod, actions), subject)
}

fn other() -> k8s::Pod {
    pod("other")
}

fn labeled(labels: &[(&str, &str)]) -> k8s::Pod {
    labels.iter().fold(other(), |pod, (key, value)| pod.pod_label(key, value))
}

fn with_labels(labels: &[(&str, &str)]) -> k8s::Node {
    labels.iter().fold(node("n"), |node, (key, value)| node.label(key, value))
}

// ---- PodTopologySpread ---------------------------------------------------------

fn spread(constraints: &[(&str, &str)]) -> k8s::Pod {
    let list = constraints.iter().map(|(key, label)| {
        json!({
            "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchExpressions": [{"key": label, "operator": "Exists"}]},
        })
    });
    let list = wire(list.collect());
    pod("p").pod_label("foo", "").edit(|p| p.spec.topology_spread_constraints = list)
}

#[test]
fn spreading_hears_of_nodes_that_make_or_end_a_domain() {
    let plugin = PodTopologySpread::new(&PodTopologySpreadArgs::List(Vec::new())).unwrap();
    let one = spread(&[("zone", "foo")]);
    let two = spread(&[("zone", "foo"), ("node", "foo")]);
    let (zone1, zone2) = (with_labels(&[("zone", "1")]), with_labels(&[("zone", "2")]));
    let both = |node| with_labels(&[("zone", "1"), ("node", node)]);
    let half = with_labels(&[("node", "1")]);
    let taint = |node: &k8s::Node, key: &str| node.clone().taint(key, "b", "NoSchedule");
    let unrelated = with_labels(&[("foo", "1")]);
    let table = [
        ("its zone changes", &one, Some(zone1.clone()), Some(zone2), true),
        (
            "a label besides",
            &one,
            Some(unrelated.clone()),
            Some(with_labels(&[("foo", "2")])),
            false,
        ),
        ("a label besides goes", &two, Some(both("1").label("foo", "")), Some(both("1")), false),
        ("one without a zone comes", &one, None, Some(unrelated.clone()), false),
        ("one with a zone comes", &one, None, Some(zone1.clone()), true),
        ("one without a zone goes", &one, Some(unrelated), None, false),
        ("one with a zone goes", &one, Some(zone1.clone()), None, true),
        ("one with one of two keys comes", &two, None, Some(zone1.clone()), false),
        ("one with both keys comes", &two, None, Some(both("1")), true),
        ("one with one of two keys is as before", &two, Some(zone1.clone()), Some(zone1), false),
        ("one with both keys moves", &two, Some(both("1")), Some(both("2")), true),
        (
            "its taints change",
            &two,
            Some(taint(&both("1"), "a")),
            Some(taint(&both("1"), "c")),
            true,
        ),
        (
            "taints of one with one of two keys",
            &two,
            Some(taint(&half, "a")),
            Some(taint(&half, "c")),
            false,
        ),
    ];
    for (row, pod, before, after, expected) in table {
        assert_eq!(of_node(&plugin, pod, before, after), expected, "{row}");
    }
}

#[test]
fn spreading_hears_of_pods_that_are_counted_anew() {
    let plugin = PodTopologySpread::new(&PodTopologySpreadArgs::List(Vec::new())).unwrap();
    let one = spread(&[("zone", "foo")]);
    let two = spread(&[("zone", "foo"), ("node", "bar")]);
    let foo = || labeled(&[("foo", "")]);
    let foo_bar = |value| labeled(&[("foo", ""), ("bar", value)]);
    let bar = || labeled(&[("bar", "")]);
    let elsewhere = foo().edit(|p| p.metadata.namespace = "elsewhere".into());
    let table = [
        ("one that counts comes", &one, None, Some(foo()), true),
        ("one of another namespace comes", &one, None, Some(elsewhere), false),
        ("one that does not count comes", &one, None, Some(bar()), false),
        ("one that counts goes", &one, Some(foo()), None, true),
        ("one that does not count goes", &one, Some(bar()), None, false),
        ("a label besides changes", &one, Some(foo_bar("1")), Some(foo_bar("2")), false),
        ("one begins to count", &one, Some(other()), Some(foo()), true),
        ("one ceases to count", &one, Some(foo()), Some(other()), true),
        ("another value of the label", &one, Some(labeled(&[("foo", "1")])), Some(foo()), false),
        ("it counts for the second too", &two, Some(foo()), Some(foo_bar("2")), true),
        ("a label besides both", &two, Some(foo()), Some(foo().pod_label("baz", "")), false),
        ("another value for the second", &two, Some(foo_bar("")), Some(foo_bar("2")), false),
    ];
    for (row, pod, before, after, expected) in table {
        assert_eq!(of_pod(&plugin, pod, before, after), expected, "{row}");
    }
}

// ---- InterPodAffinity ----------------------------------------------------------

fn term(key: &str, label: &str, values: &[&str]) -> Value {
    let operator = if values.is_empty() { "Exists" } else { "In" };
    let wanted = json!({"key": label, "operator": operator, "values": values});
    json!({"topologyKey": key, "labelSelector": {"matchExpressions": [wanted]}})
}

fn required(terms: &[Value]) -> Value {
    json!({"requiredDuringSchedulingIgnoredDuringExecution": terms})
}

fn near(terms: &[Value]) -> k8s::Pod {
    let terms = wire(required(terms));
    pod("p").edit(|p| p.spec.affinity.get_or_insert_default().pod_affinity = Some(terms))
}

fn apart(pod: k8s::Pod, terms: &[Value]) -> k8s::Pod {
    let terms = wire(required(terms));
    pod.edit(|p| p.spec.affinity.get_or_insert_default().pod_anti_affinity = Some(terms))
}

#[test]
fn affinity_hears_of_pods_that_become_friends_or_cease_to_be_foes() {
    let plugin = InterPodAffinity::new(&InterPodAffinityArgs::default()).unwrap();
    let service = |values: &[&str]| term("region", "service", values);
    let scan = || service(&["scan", "value2"]);
    let friend = near(&[scan()]);
    let friends = near(&[term("host", "aaa", &[]), term("host", "bbb", &[])]);
    let foe = apart(pod("p"), &[scan()]);
    let foes = apart(pod("p"), &[service(&["scan"]), term("region", "app", &["web"])]);
    let s = |value| labeled(&[("service", value)]);
    let sa = |service, app| labeled(&[("service", service), ("app", app)]);
    let (aaa, own) = (labeled(&[("aaa", "a")]), |value| pod("p").pod_label("service", value));
    let repels = || apart(other(), &[scan()]);
    let same = apart(own("foo"), &[scan()]);
    let repels_either = apart(other(), &[service(&["scan"]), term("region", "app", &["web"])]);
    let table = [
        ("a friend comes", &friend, None, Some(s("scan")), true),
        ("a stranger comes", &friend, None, Some(aaa.clone()), false),
        ("one becomes a friend", &friend, Some(aaa.clone()), Some(s("scan")), true),
        ("a friend stays one", &friend, Some(s("value2")), Some(s("scan")), false),
        ("one ceases to be a friend", &friend, Some(s("scan")), Some(aaa.clone()), false),
        ("one of two terms is lost", &friends, Some(aaa.clone()), Some(s("scan")), false),
        (
            "the second of two terms is met",
            &friends,
            Some(aaa.clone()),
            Some(aaa.clone().pod_label("bbb", "")),
            true,
        ),
        ("a foe ceases to be one", &foe, Some(s("scan")), Some(s("aaaa")), true),
        ("one becomes a foe", &foe, Some(s("bbb")), Some(s("scan")), false),
        ("a stranger goes", &foe, Some(aaa), None, false),
        ("a foe goes", &foe, Some(s("scan")), None, true),
        ("one that repels the pod goes", &own("scan"), Some(repels()), None, true),
        ("one that repels others goes", &own("foo"), Some(repels()), None, false),
        (
            "one that is no foe either way goes",
            &same,
            Some(repels().pod_label("service", "foo")),
            None,
            false,
        ),
        (
            "a foe by one of two terms ceases",
            &foes,
            Some(sa("scan", "bar")),
            Some(sa("foo", "bar")),
            true,
        ),
        (
            "a foe is one by the other term now",
            &foes,
            Some(sa("scan", "bar")),
            Some(sa("foo", "web")),
            false,
        ),
        ("a foe by one of two terms goes", &foes, Some(s("scan")), None, true),
        ("one that repels by one of two terms goes", &own("scan"), Some(repels_either), None, true),
    ];
    for (row, pod, before, after, expected) in table {
        assert_eq!(of_pod(&plugin, pod, before, after), expected, "{row}");
    }
}

#[test]
fn affinity_hears_of_nodes_that_change_their_domain() {
    let plugin = InterPodAffinity::new(&InterPodAffinityArgs::default()).unwrap();
    let friend = near(&[term("zone", "service", &["scan"])]);
    let far = near(&[term("region", "service", &["scan"])]);
    let foe = apart(pod("p"), &[term("zone", "another", &["label"])]);
    let zone = |value| with_labels(&[("zone", value)]);
    let a = |value| with_labels(&[("aaa", value)]);
    let table = [
        ("one of a domain comes", &friend, None, Some(zone("1")), true),
        ("one without the key comes", &far, None, Some(zone("1")), false),
        ("a label besides changes", &friend, Some(a("a")), Some(a("b")), false),
        ("a label besides comes", &friend, Some(zone("1")), Some(zone("1").label("x", "")), false),
        ("it moves", &friend, Some(zone("1")), Some(zone("2")), true),
        ("it enters a domain", &friend, Some(a("a")), Some(zone("1")), true),
        ("foes: one of a domain comes", &foe, None, Some(zone("1")), true),
        ("foes: one without the key comes", &foe, None, Some(node("n")), true),
        (
            "foes: a label besides comes",
            &foe,
            Some(zone("1")),
            Some(zone("1").label("x", "")),
            false,
        ),
        ("foes: it moves", &foe, Some(zone("1")), Some(zone("2")), true),
        ("foes: it enters a domain", &foe, Some(a("a")), Some(zone("1")), false),
        ("foes: it leaves its domain", &foe, Some(zone("1")), Some(a("a")), true),
    ];
    for (row, pod, before, after, expected) in table {
        assert_eq!(of_node(&plugin, pod, before, after), expected, "{row}");
    }
}

// ---- NodeResourcesFit, NodeAffinity, TaintToleration -----------------------------

#[test]
fn fit_hears_of_nodes_that_grow_in_what_is_asked() {
    const A: &str = "example.com/aaa";
    const B: &str = "example.com/bbb";
    let plugin = NodeResourcesFit::new(&FitArgs::default()).unwrap();
    let asks = pod("p").req(&[("memory", "2"), (A, "1")]);
    let bare = || node("n").no_alloc().max_pods("10");
    let with = |memory: &str, a: &str| bare().memory(memory).alloc(A, a);
    let table = [
        ("too little memory comes", None, bare().memory("1").alloc(A, "1"), false),
        ("the wrong resource comes", None, bare().memory("2").alloc(B, "1"), false),
        ("enough comes", None, with("4", "2"), true),
        ("less, and more of another", Some(with("2", "2")), with("2", "1").alloc(B, "2"), false),
        ("more of what is asked", Some(with("2", "1")), with("2", "2"), true),
        ("no longer enough", Some(with("4", "2")), with("1", "2"), false),
        ("now enough", Some(with("1", "2")), with("4", "2"), true),
    ];
    for (row, before, after, expected) in table {
        assert_eq!(of_node(&plugin, &asks, before, Some(after)), expected, "{row}");
    }
}

#[test]
fn node_affinity_and_taints_hear_of_nodes_that_become_suitable() {
    let asks = pod("p").node_selector("foo", "bar");
    let (plain, fits) = (node("n"), node("n").label("foo", "bar"));
    let table = [
        ("an unsuitable one comes", None, plain.clone(), false),
        ("a suitable one comes", None, fits.clone(), true),
        ("more memory", Some(plain.clone()), plain.clone().memory("9Gi"), false),
        ("a label besides", Some(plain.clone()), plain.clone().label("k", "v"), false),
        ("it becomes unsuitable", Some(fits.clone()), plain.clone().label("k", "v"), false),
        ("it becomes suitable", Some(plain.clone()), fits.clone(), true),
        ("it stays suitable", Some(fits.clone()), fits.memory("9Gi"), false),
    ];
    for (row, before, after, expected) in table {
        let heard = of_node(
            &NodeAffinity::new(&NodeAffinityArgs::default()).unwrap(),
            &asks,
            before,
            Some(after),
        );
        assert_eq!(heard, expected, "{row}");
    }
    // Affinity that the profile adds counts like the pod's own.
    let added = NodeAffinityArgs {
        added_affinity: wire(json!({"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [
                {"key": "foo", "operator": "In", "values": ["bar"]}]}]}})),
    };
    let added = NodeAffinity::new(&added).unwrap();
    let (plain, fits) = (node("n"), node("n").label("foo", "bar"));
    for (row, before, after, expected) in [
        ("it becomes suitable", &plain, &fits, true),
        ("it becomes unsuitable", &fits, &plain, false),
        ("it stays suitable", &fits, &fits.clone().label("k", "v"), false),
    ] {
        let heard = of_node(&added, &pod("p"), Some(before.clone()), Some(after.clone()));
        assert_eq!(heard, expected, "by the profile: {row}");
    }
    let asks = pod("p").tolerate("dedicated", "Equal", "user2", "NoSchedule");
    let of = |user: &str| node("n").taint("dedicated", user, "NoSchedule");
    let table = [
        ("one not tolerated comes", None, of("user1"), false),
        ("one tolerated comes", None, of("user2"), true),
        (
            "one more not tolerated",
            Some(of("user1")),
            of("user1").taint("dedicated", "user3", "NoSchedule"),
            false,
        ),
        ("now tolerated", Some(of("user1")), of("user2"), true),
    ];
    for (row, before, after, expected) in table {
        assert_eq!(of_node(&TaintToleration, &asks, before, Some(after)), expected, "{row}");
    }
}
