//! A plugin as a user writes one: per-node forms only, facets, data from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use muster_api::k8s;
use serde_json::{Value, json};

use super::harness::{Harness, check};
use crate::cluster::{Cluster, NodeView};
use crate::framework::{
    Actions, Args, Facet, Filter, Hint, HintCx, Plugin, PluginArgs, PreScoreResult, Profile,
    Registration, Registry, RegistryError, Resource, Score, State, Status, Subject,
};
use crate::io::{About, Datum, Input};
use crate::model::PodShape;
use crate::report::Observation;
use crate::testing::{SCHEDULER, node, pod};

const NAME: &str = "Custom";

/// Rejects nodes that are `closed`; rates nodes by their `idle`, multiplied by what
/// was fed under the pod's namespace.
#[derive(Default)]
struct Custom {
    cacheable: bool,
    /// Asked of each node; what it says is its own secret.
    asked: Arc<AtomicI64>,
}

impl Plugin for Custom {
    fn name(&self) -> &'static str {
        NAME
    }
    fn events(&self) -> Vec<Registration> {
        vec![Registration { resource: Resource::Data, actions: Actions::ALL }]
    }
    fn hint(&self, cx: &HintCx<'_>) -> Hint {
        match &cx.event.subject {
            Subject::Data { about: About::Node(_), .. } => Hint::Queue,
            _ => Hint::Skip,
        }
    }
    fn as_facet(&self) -> Option<&dyn Facet> {
        Some(self)
    }
    fn is_cacheable(&self) -> bool {
        self.cacheable
    }
    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }
    fn as_score(&self) -> Option<&dyn Score> {
        Some(self)
    }
}

impl Facet for Custom {
    fn facet(&self, pod: &k8s::Pod) -> Option<Box<str>> {
        Some(pod.metadata.namespace.as_str().into())
    }
}

impl Filter for Custom {
    fn filter(&self, _: &State, _: &PodShape, node: NodeView<'_>) -> Result<(), Status> {
        if node.data(NAME).is_some_and(|data| data["closed"] == true) {
            return Err(Status::unschedulable("node(s) were closed"));
        }
        Ok(())
    }
}

impl Score for Custom {
    fn pre_score(&self, _: &PodShape, _: &Cluster) -> PreScoreResult {
        PreScoreResult::Go(None)
    }
    fn score(&self, _: &State, shape: &PodShape, node: NodeView<'_>) -> i64 {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let weight = shape.facet(NAME).and_then(|ns| node.cluster().data().key(NAME, ns));
        let idle = node.data(NAME).and_then(|data| data["idle"].as_i64()).unwrap_or(0);
        idle * weight.and_then(Value::as_i64).unwrap_or(1)
    }
}

/// Only the custom plugin rates nodes.
fn harness(cacheable: bool) -> (Harness, Arc<AtomicI64>) {
    let asked = Arc::new(AtomicI64::new(0));
    let shared = Arc::clone(&asked);
    let registry = Registry::in_tree()
        .plugin(NAME, move |_: &Args<'_>| Ok(Custom { cacheable, asked: Arc::clone(&shared) }));
    let plugins = [("PrioritySort", 0), (NAME, 1), ("DefaultBinder", 0)];
    let profile =
        Profile::build(SCHEDULER, plugins, &PluginArgs::default(), &registry).expect("a profile");
    let mut h = Harness::with(profile);
    for name in ["n1", "n2", "n3"] {
        h.node(node(name));
    }
    (h, asked)
}

fn feed(h: &mut Harness, about: About, value: impl Into<Option<Value>>) {
    let value = value.into().map(Arc::new);
    h.apply(Input::Data(Datum { plugin: NAME.into(), about, value }));
}

fn feed_node(h: &mut Harness, node: &str, value: impl Into<Option<Value>>) {
    feed(h, About::Node(node.into()), value);
}

#[test]
fn kept_scores_follow_what_is_fed_about_nodes() {
    let (mut h, asked) = harness(true);
    feed_node(&mut h, "n2", json!({"idle": 50}));
    h.pod(pod("a"));
    check(h.run(), "bind default/a -> n2");
    assert_eq!(asked.swap(0, Ordering::Relaxed), 3);
    feed_node(&mut h, "n3", json!({"idle": 60}));
    h.pod(pod("b"));
    check(h.run(), "bind default/b -> n3");
    assert_eq!(asked.swap(0, Ordering::Relaxed), 2, "n2 has a pod more, n3 has news");
    feed_node(&mut h, "n3", None);
    h.pod(pod("c"));
    check(h.run(), "bind default/c -> n2");
    // Fed again what is known, or about a node that is not there: no news.
    asked.store(0, Ordering::Relaxed);
    feed_node(&mut h, "n2", json!({"idle": 50}));
    feed_node(&mut h, "n9", json!({"idle": 99}));
    h.pod(pod("d"));
    check(h.run(), "bind default/d -> n2");
    assert_eq!(asked.swap(0, Ordering::Relaxed), 1, "n2 has a pod more");
    // It is there now, and was spoken of before.
    h.node(node("n9"));
    h.pod(pod("e"));
    check(h.run(), "bind default/e -> n9");
}

#[test]
fn kept_scores_follow_what_is_fed_under_a_key_and_facets_tell_pods_apart() {
    let (mut h, asked) = harness(true);
    feed_node(&mut h, "n1", json!({"idle": 10}));
    feed_node(&mut h, "n2", json!({"idle": -10}));
    feed_node(&mut h, "n3", json!({"idle": -20}));
    feed(&mut h, About::Key("team-b".into()), json!(-1));
    h.pod(pod("a"));
    check(h.run(), "bind default/a -> n1");
    let mut other = pod("b");
    other.metadata.namespace = "team-b".into();
    h.pod(other.clone());
    check(h.run(), "bind team-b/b -> n3");
    assert_eq!(asked.swap(0, Ordering::Relaxed), 6, "two shapes");
    feed(&mut h, About::Key("default".into()), json!(-1));
    h.pod(pod("c"));
    check(h.run(), "bind default/c -> n3");
}

#[test]
fn a_pod_is_woken_by_data_for_the_plugin_that_rejected_it_only() {
    let (mut h, _) = harness(true);
    for name in ["n1", "n2", "n3"] {
        feed_node(&mut h, name, json!({"closed": true}));
    }
    h.pod(pod("a"));
    let closed = "0/3 nodes are available: 3 node(s) were closed.";
    check(
        h.run(),
        &format!(
            "Warning default/a FailedScheduling: {closed}
             status default/a false Unschedulable: {closed}"
        ),
    );
    let other = Datum {
        plugin: "Another".into(),
        about: About::Node("n1".into()),
        value: Some(Arc::new(json!(1))),
    };
    h.apply(Input::Data(other));
    feed(&mut h, About::Key("k".into()), json!(1));
    assert_eq!(h.queue_of("a"), "unschedulable", "neither is its business");
    feed_node(&mut h, "n2", json!({"closed": false}));
    h.sleep(2);
    check(h.run(), "bind default/a -> n2");
}

#[test]
fn what_cannot_be_kept_is_asked_for_every_pod() {
    for (cacheable, expected) in [(true, 4), (false, 6)] {
        let (mut h, asked) = harness(cacheable);
        h.pod(pod("a"));
        h.run();
        h.pod(pod("b"));
        h.run();
        assert_eq!(asked.load(Ordering::Relaxed), expected, "cacheable: {cacheable}");
    }
}

#[test]
fn too_large_a_value_is_said_and_not_kept() {
    let (mut h, _) = harness(true);
    feed_node(&mut h, "n1", json!("x".repeat(1 << 20)));
    let seen = h.core.take_observations();
    let Some(Observation::Malformed { kind: "Data", error }) = seen.first() else {
        panic!("{seen:?}");
    };
    assert_eq!(
        error,
        "data for plugin Custom about Node(\"n1\"): a value of more than 4096 bytes was not taken"
    );
}

#[test]
fn a_plugin_goes_by_the_name_it_is_registered_under() {
    let registry = Registry::in_tree().plugin("Costum", |_: &Args<'_>| Ok(Custom::default()));
    let made = registry.make("Costum", &PluginArgs::default());
    let error = made.err().map(|e: RegistryError| e.to_string());
    let expected = "plugin \"Custom\" is registered as \"Costum\": register it under its own name";
    assert_eq!(error.as_deref(), Some(expected));
}
