//! Requests as the API wants them.
//!
//! Bodies are written straight from borrowed fields: a bind is the hot path.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bytes::Bytes;
use http::Method;
use muster_api::k8s;
use muster_api::muster::annotations::{CHECKPOINT_REQUESTED, PREDICTED_DEVICES};
use muster_core::io::{EventRecord, ObjectPatch, PodRef, Removal, StatusPatch, Tick};
use serde::Serialize;
use serde_json::json;

use crate::client::Call;
use muster_core::outbox::{Bind, Evict};

const JSON: &str = "application/json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const MERGE: &str = "application/merge-patch+json";
/// Upstream's limit on an event's note, in bytes.
const MAX_NOTE: usize = 1024;
/// Upstream's limit on an object's name.
const MAX_NAME: usize = 253;

fn encode(value: &impl Serialize) -> Bytes {
    // Fails only for maps with keys that are not strings, and there are none.
    Bytes::from(serde_json::to_vec(value).unwrap_or_default())
}

fn pod_path(pod: &PodRef, sub: &str) -> String {
    let (namespace, name) = (&pod.namespace, &pod.name);
    let mut path = String::with_capacity(48 + namespace.len() + name.len());
    // Writing to a string cannot fail.
    let _ = write!(path, "/api/v1/namespaces/{namespace}/pods/{name}/{sub}");
    path
}

/// GET of what everybody may read.
pub(super) fn version() -> Call {
    let (method, path) = (Method::GET, "/version".to_owned());
    Call { method, path, content_type: JSON, body: Bytes::new() }
}

/// POST pods/NAME/binding, guarded by the pod's UID.
pub(super) fn bind(bind: &Bind) -> Call {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Binding<'a> {
        api_version: &'a str,
        kind: &'a str,
        metadata: BindingMeta<'a>,
        target: Target<'a>,
    }
    #[derive(Serialize)]
    struct BindingMeta<'a> {
        name: &'a str,
        namespace: &'a str,
        uid: &'a str,
        // The server adds them to those of the pod.
        #[serde(skip_serializing_if = "Option::is_none")]
        annotations: Option<BTreeMap<&'a str, String>>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Target<'a> {
        api_version: &'a str,
        kind: &'a str,
        name: &'a str,
    }
    let pod = &bind.pod;
    let devices = bind.devices.as_ref();
    let body = Binding {
        api_version: "v1",
        kind: "Binding",
        metadata: BindingMeta {
            name: &pod.name,
            namespace: &pod.namespace,
            uid: &pod.uid,
            annotations: devices.map(|set| [(PREDICTED_DEVICES, set.text())].into()),
        },
        target: Target { api_version: "v1", kind: "Node", name: &bind.node },
    };
    Call {
        method: Method::POST,
        path: pod_path(pod, "binding"),
        content_type: JSON,
        body: encode(&body),
    }
}

/// POST pods/NAME/eviction, DELETE pods/NAME, or a note on the pod before either; guarded by the
/// victim's UID.
pub(super) fn evict(evict: &Evict) -> Call {
    let victim = &evict.victim;
    let mut options = json!({"preconditions": {"uid": victim.uid}});
    match evict.how {
        Removal::Checkpoint { asked } => return checkpoint(victim, asked),
        Removal::DryRun => options["dryRun"] = json!(["All"]),
        Removal::Evict => {}
        Removal::Delete => return deletion(victim, options),
    }
    let body = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": victim.name, "namespace": victim.namespace},
        "deleteOptions": options,
    });
    Call {
        method: Method::POST,
        path: pod_path(victim, "eviction"),
        content_type: JSON,
        body: encode(&body),
    }
}

/// DELETE pods/NAME, of which nothing comes but an answer.
pub(super) fn dry_deletion(evict: &Evict) -> Call {
    let victim = &evict.victim;
    let options = json!({"preconditions": {"uid": victim.uid}, "dryRun": ["All"]});
    deletion(victim, options)
}

fn deletion(victim: &PodRef, mut options: serde_json::Value) -> Call {
    options["apiVersion"] = json!("v1");
    options["kind"] = json!("DeleteOptions");
    let path = format!("/api/v1/namespaces/{}/pods/{}", victim.namespace, victim.name);
    Call { method: Method::DELETE, path, content_type: JSON, body: encode(&options) }
}

/// PATCH pods/NAME/status: a victim is asked to save its work. The server takes annotations
/// there too, and no right over specs is needed.
fn checkpoint(victim: &PodRef, asked: Tick) -> Call {
    let note = BTreeMap::from([(CHECKPOINT_REQUESTED, k8s::Time(asked.0).to_string())]);
    let body = json!({"metadata": {"uid": victim.uid, "annotations": note}});
    Call {
        method: Method::PATCH,
        path: pod_path(victim, "status"),
        content_type: STRATEGIC,
        body: encode(&body),
    }
}

/// PATCH pods/NAME/status: why a pod that is deleted has to go. The Eviction API says so
/// by itself.
pub(super) fn disruption(victim: &PodRef) -> Call {
    let body = json!({
        "metadata": {"uid": victim.uid},
        "status": {"conditions": [{
            "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
            "message": "muster: preempting to accommodate a higher priority pod",
            "lastProbeTime": null,
            "lastTransitionTime": format!("{:.0}", jiff::Timestamp::now()),
        }]},
    });
    Call {
        method: Method::PATCH,
        path: pod_path(victim, "status"),
        content_type: STRATEGIC,
        body: encode(&body),
    }
}

#[derive(Serialize)]
struct Meta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<&'a str>,
}

/// PATCH pods/NAME/status, guarded by the pod's UID. `transition` is the time
/// of the condition's change of status, if it changed.
pub(super) fn status(patch: &StatusPatch, transition: Option<&str>) -> Call {
    #[derive(Serialize)]
    struct Body<'a> {
        metadata: Meta<'a>,
        status: Status<'a>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Status<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        conditions: Option<[Condition<'a>; 1]>,
        /// The outer option: leave alone; the inner one: clear.
        #[serde(skip_serializing_if = "Option::is_none")]
        nominated_node_name: Option<Option<&'a str>>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Condition<'a> {
        r#type: &'a str,
        status: &'a str,
        reason: &'a str,
        message: &'a str,
        last_probe_time: (),
        #[serde(skip_serializing_if = "Option::is_none")]
        last_transition_time: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        observed_generation: Option<i64>,
    }
    let conditions = patch.condition.as_ref().map(|condition| {
        [Condition {
            r#type: "PodScheduled",
            status: if condition.status { "True" } else { "False" },
            reason: condition.reason,
            message: &condition.message,
            last_probe_time: (),
            last_transition_time: transition,
            observed_generation: condition.observed_generation,
        }]
    });
    let nominated = patch.nominated_node.as_deref();
    let body = Body {
        metadata: Meta { name: None, namespace: None, uid: Some(&patch.pod.uid) },
        status: Status {
            conditions,
            nominated_node_name: nominated.map(|node| (!node.is_empty()).then_some(node)),
        },
    };
    Call {
        method: Method::PATCH,
        path: pod_path(&patch.pod, "status"),
        content_type: STRATEGIC,
        body: encode(&body),
    }
}

/// The name by which an answer tells what was written.
pub(super) fn object_name(patch: &ObjectPatch) -> String {
    match patch {
        ObjectPatch::BindVolume { volume, .. } => volume.to_string(),
        ObjectPatch::SelectNode { claim, .. } => format!("{}/{}", claim.namespace, claim.name),
    }
}

/// PATCH an object, guarded by its version.
pub(super) fn object(patch: &ObjectPatch) -> Call {
    use muster_api::k8s::annotations::{BOUND_BY_CONTROLLER, SELECTED_NODE};
    let (path, body) = match patch {
        ObjectPatch::BindVolume { volume, version, claim, claim_version, by_controller } => {
            let mut body = json!({
                "metadata": {"resourceVersion": version},
                "spec": {"claimRef": {
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "namespace": claim.namespace, "name": claim.name, "uid": claim.uid,
                    "resourceVersion": claim_version,
                }},
            });
            if *by_controller {
                body["metadata"]["annotations"] = json!({BOUND_BY_CONTROLLER: "yes"});
            }
            (format!("/api/v1/persistentvolumes/{volume}"), body)
        }
        ObjectPatch::SelectNode { claim, version, node } => {
            let (namespace, name) = (&claim.namespace, &claim.name);
            let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}");
            let annotations = json!({SELECTED_NODE: node});
            let uid = &claim.uid;
            let metadata =
                json!({"resourceVersion": version, "uid": uid, "annotations": annotations});
            (path, json!({ "metadata": metadata }))
        }
    };
    Call { method: Method::PATCH, path, content_type: MERGE, body: encode(&body) }
}

fn events_path(namespace: &str) -> String {
    format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events")
}

/// The name of a pod's event that happened at `nanos`.
pub(super) fn event_name(pod: &str, nanos: i64) -> String {
    let suffix = format!(".{nanos:x}");
    let keep = cut(pod, MAX_NAME - suffix.len());
    // A name may not have a dot or dash before the dot.
    let keep = keep.trim_end_matches(['.', '-']);
    format!("{keep}{suffix}")
}

/// At most `max` bytes of `text`, at a character's edge.
fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// POST an event. `time` is RFC 3339 with microseconds.
pub(super) fn event(record: &EventRecord, name: &str, time: &str, instance: &str) -> Call {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Event<'a> {
        api_version: &'a str,
        kind: &'a str,
        metadata: Meta<'a>,
        event_time: &'a str,
        reporting_controller: &'a str,
        reporting_instance: &'a str,
        action: &'a str,
        reason: &'a str,
        regarding: Regarding<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        related: Option<Regarding<'a>>,
        note: &'a str,
        r#type: &'a str,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Regarding<'a> {
        api_version: &'a str,
        kind: &'a str,
        namespace: &'a str,
        name: &'a str,
        uid: &'a str,
    }
    fn regarding(pod: &PodRef) -> Regarding<'_> {
        Regarding {
            api_version: "v1",
            kind: "Pod",
            namespace: &pod.namespace,
            name: &pod.name,
            uid: &pod.uid,
        }
    }
    let pod = &record.pod;
    let body = Event {
        api_version: "events.k8s.io/v1",
        kind: "Event",
        metadata: Meta { name: Some(name), namespace: Some(&pod.namespace), uid: None },
        event_time: time,
        reporting_controller: &record.reporting_controller,
        reporting_instance: instance,
        action: record.action,
        reason: record.reason,
        regarding: regarding(pod),
        related: record.related.as_ref().map(regarding),
        note: cut(&record.note, MAX_NOTE),
        r#type: if record.warning { "Warning" } else { "Normal" },
    };
    Call {
        method: Method::POST,
        path: events_path(&pod.namespace),
        content_type: JSON,
        body: encode(&body),
    }
}

/// PATCH an event that happened again: `count` times by now.
pub(super) fn event_series(namespace: &str, name: &str, count: u32, time: &str) -> Call {
    #[derive(Serialize)]
    struct Body<'a> {
        series: Series<'a>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Series<'a> {
        count: u32,
        last_observed_time: &'a str,
    }
    let series = Series { count, last_observed_time: time };
    Call {
        method: Method::PATCH,
        path: format!("{}/{name}", events_path(namespace)),
        content_type: MERGE,
        body: encode(&Body { series }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use muster_core::io::Condition;
    use muster_core::model::Predicted;
    use serde_json::{Value, json};

    use super::*;

    fn pod() -> PodRef {
        PodRef { namespace: "ns".into(), name: "p".into(), uid: "u".into() }
    }

    fn body(call: &Call) -> Value {
        serde_json::from_slice(&call.body).unwrap()
    }

    #[test]
    fn a_bind_carries_the_uid_and_what_is_expected() {
        let mut own = Bind { pod: pod(), node: "n".into(), attempt: 3, devices: None };
        let call = bind(&own);
        assert_eq!(call.path, "/api/v1/namespaces/ns/pods/p/binding");
        assert_eq!(
            body(&call),
            json!({"apiVersion": "v1", "kind": "Binding",
                "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
                "target": {"apiVersion": "v1", "kind": "Node", "name": "n"}})
        );
        let ids: [Arc<str>; 2] = ["GPU-a".into(), "GPU-b".into()];
        let gpus = ("nvidia.com/gpu".into(), ids.into());
        own.devices = Some(Arc::new(Predicted { devices: [gpus].into() }));
        let annotations = &body(&bind(&own))["metadata"]["annotations"];
        let text = r#"{"nvidia.com/gpu":["GPU-a","GPU-b"]}"#;
        assert_eq!(*annotations, json!({"muster.dev/predicted-devices": text}));
    }

    #[test]
    fn a_patch_sets_clears_or_leaves_the_nomination() {
        let mut patch = StatusPatch {
            pod: pod(),
            condition: Some(Condition {
                status: false,
                reason: "Unschedulable",
                message: "0/1 nodes are available".into(),
                observed_generation: Some(2),
            }),
            shown: None,
            nominated_node: None,
        };
        let call = status(&patch, Some("2026-01-01T00:00:00Z"));
        assert_eq!(
            body(&call),
            json!({"metadata": {"uid": "u"}, "status": {"conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": "0/1 nodes are available", "lastProbeTime": null,
                "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 2}]}})
        );
        let judged = patch.clone();
        patch.condition = None;
        patch.nominated_node = Some("".into());
        let cleared = json!({"metadata": {"uid": "u"}, "status": {"nominatedNodeName": null}});
        assert_eq!(body(&status(&patch, None)), cleared);
        patch.nominated_node = Some("n".into());
        let set = json!({"metadata": {"uid": "u"}, "status": {"nominatedNodeName": "n"}});
        assert_eq!(body(&status(&patch, None)), set);
        let both = StatusPatch { nominated_node: Some("".into()), ..judged };
        let body = body(&status(&both, None));
        assert_eq!(body["status"]["conditions"][0]["message"], "0/1 nodes are available");
        assert_eq!(body["status"].get("nominatedNodeName"), Some(&Value::Null));
    }

    #[test]
    fn an_eviction_is_for_one_incarnation_and_may_be_dry() {
        let (token, victim) = (muster_core::io::Token(1), pod());
        let mut asked = Evict { token, preemptor: pod(), victim, how: Removal::Evict };
        let call = evict(&asked);
        assert_eq!(call.path, "/api/v1/namespaces/ns/pods/p/eviction");
        let mut expected = json!({"apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": "p", "namespace": "ns"},
            "deleteOptions": {"preconditions": {"uid": "u"}}});
        assert_eq!(body(&call), expected);
        asked.how = Removal::DryRun;
        expected["deleteOptions"]["dryRun"] = json!(["All"]);
        assert_eq!(body(&evict(&asked)), expected);
        asked.how = Removal::Checkpoint { asked: Tick(1_767_225_600_000_000) };
        let call = evict(&asked);
        let path = "/api/v1/namespaces/ns/pods/p/status";
        assert_eq!((call.method.as_str(), &*call.path), ("PATCH", path));
        let note = json!({"muster.dev/checkpoint-requested": "2026-01-01T00:00:00Z"});
        assert_eq!(body(&call), json!({"metadata": {"uid": "u", "annotations": note}}));
        asked.how = Removal::Delete;
        let call = evict(&asked);
        assert_eq!((call.method.as_str(), &*call.path), ("DELETE", "/api/v1/namespaces/ns/pods/p"));
        let expected = json!({"apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": {"uid": "u"}});
        assert_eq!(body(&call), expected);
        let told = body(&disruption(&asked.victim));
        assert_eq!(told["metadata"]["uid"], "u");
        assert_eq!(told["status"]["conditions"][0]["reason"], "PreemptionByScheduler");
    }

    #[test]
    fn an_object_is_written_for_one_version_of_it() {
        let claim = muster_core::io::ObjectKey {
            namespace: "ns".into(),
            name: "c".into(),
            uid: "u".into(),
        };
        let call = object(&ObjectPatch::BindVolume {
            volume: "pv".into(),
            version: "7".into(),
            claim: claim.clone(),
            claim_version: "6".into(),
            by_controller: true,
        });
        assert_eq!(call.path, "/api/v1/persistentvolumes/pv");
        assert_eq!(
            body(&call),
            json!({"metadata": {"resourceVersion": "7",
                    "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
                "spec": {"claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "namespace": "ns", "name": "c", "uid": "u", "resourceVersion": "6"}}})
        );
        let call =
            object(&ObjectPatch::SelectNode { claim, version: "9".into(), node: "n".into() });
        assert_eq!(call.path, "/api/v1/namespaces/ns/persistentvolumeclaims/c");
        assert_eq!(
            body(&call),
            json!({"metadata": {"resourceVersion": "9", "uid": "u",
                "annotations": {"volume.kubernetes.io/selected-node": "n"}}})
        );
    }

    #[test]
    fn an_event_fits_the_api() {
        let record = EventRecord {
            pod: pod(),
            related: None,
            warning: true,
            reason: "FailedScheduling",
            action: "Scheduling",
            note: Arc::from("ä".repeat(600)),
            reporting_controller: "muster".into(),
        };
        let name = event_name(&record.pod.name, 255);
        assert_eq!(name, "p.ff");
        let call = event(&record, &name, "2026-01-01T00:00:00.000000Z", "muster-host");
        assert_eq!(call.path, "/apis/events.k8s.io/v1/namespaces/ns/events");
        assert_eq!(body(&call)["note"].as_str().unwrap().len(), 1024);
        assert_eq!(body(&call)["type"], "Warning");
        assert_eq!(body(&call)["regarding"]["uid"], "u");
        assert_eq!(body(&call)["related"], Value::Null);
        let other = PodRef { namespace: "other".into(), name: "q".into(), uid: "v".into() };
        let record = EventRecord { related: Some(other), ..record };
        assert_eq!(
            body(&event(&record, &name, "", ""))["related"],
            json!({"apiVersion": "v1", "kind": "Pod", "namespace": "other", "name": "q", "uid": "v"})
        );
    }

    #[test]
    fn an_event_name_is_cut_to_a_valid_one() {
        let pod = format!("{}.{}", "a".repeat(235), "b".repeat(17));
        let name = event_name(&pod, i64::MAX);
        assert_eq!(name, format!("{}.7fffffffffffffff", "a".repeat(235)));
    }
}
