//! Claims on their way from a chosen node to being bound.

use serde_json::{Value, json};

use super::harness::{Harness, check};
use crate::io::{Input, Kind, Object, ObjectKey, Reply};
use crate::testing::{NodeExt as _, PodExt as _, node, pod, wire};

fn volume(name: &str, host: &str, version: &str, claim: Option<&str>) -> Object {
    let claim = claim.map(|uid| json!({"namespace": "default", "name": "data", "uid": uid}));
    Object::PersistentVolume(wire(json!({
        "metadata": {"name": name, "resourceVersion": version},
        "spec": {"storageClassName": "local", "capacity": {"storage": "5Gi"}, "claimRef": claim,
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "host", "operator": "In", "values": [host]}]}]}}},
        "status": {"phase": if claim.is_some() { "Bound" } else { "Available" }},
    })))
}

fn claim(version: &str, volume: &str) -> Object {
    let annotations: Value = match volume {
        "" => json!({}),
        _ => json!({"pv.kubernetes.io/bind-completed": "yes"}),
    };
    Object::PersistentVolumeClaim(wire(json!({
        "metadata": {"name": "data", "namespace": "default", "uid": "u",
            "resourceVersion": version, "annotations": annotations},
        "spec": {"storageClassName": "local", "volumeName": volume,
            "resources": {"requests": {"storage": "1Gi"}}},
    })))
}

/// Two hosts, a disk on the second, a claim, and a pod that uses it.
fn waiting() -> Harness {
    let mut h = Harness::new();
    h.node(node("n1").label("host", "n1"));
    h.node(node("n2").label("host", "n2"));
    h.see(Object::StorageClass(wire(json!({"metadata": {"name": "local"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer"}))));
    h.see(volume("disk", "n2", "5", None));
    h.see(claim("6", ""));
    h.pod(user("a"));
    h
}

fn user(name: &str) -> muster_api::k8s::Pod {
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    pod(name).edit(|p| p.spec.volumes = wire(volumes))
}

impl Harness {
    fn see(&mut self, object: Object) {
        self.apply(Input::Object(Box::new(object)));
    }
}

const CALL: &str = "call default/a VolumeBinding: Write([BindVolume { volume: \"disk\", \
                    version: \"5\", claim: ObjectKey { namespace: \"default\", name: \"data\", \
                    uid: \"u\" }, claim_version: \"6\", by_controller: true }])";

fn written(versions: &[(&str, &str)], error: Option<&str>) -> Reply {
    let versions = versions.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
    Reply::Written { versions, error: error.map(Into::into) }
}

#[test]
fn the_pod_is_bound_once_the_volume_controller_is_done() {
    let mut h = waiting();
    check(h.run(), CALL);
    assert_eq!(h.queue_of("a"), "prebind");
    h.reply("a", written(&[("disk", "7")], None));
    check(h.effects(), "");
    // What the watch showed before our write does not count.
    h.see(volume("disk", "n2", "7", Some("u")));
    check(h.effects(), "");
    h.see(claim("8", "disk"));
    check(h.effects(), "bind default/a -> n2");
    h.bound("a", "n2");
    h.effects();
    h.assert_idle();
    assert!(h.core.cluster.volumes().plan(crate::model::PodId(0)).is_none());
}

#[test]
fn a_volume_on_its_way_to_a_claim_is_not_given_away() {
    let mut h = waiting();
    check(h.run(), CALL);
    let other = Object::PersistentVolumeClaim(wire(json!({
        "metadata": {"name": "other", "namespace": "default", "uid": "o", "resourceVersion": "9"},
        "spec": {"storageClassName": "local", "resources": {"requests": {"storage": "1Gi"}}}})));
    h.see(other);
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "other"}}]);
    h.pod(pod("b").edit(|p| p.spec.volumes = wire(volumes)));
    h.run();
    assert_eq!(h.queue_of("b"), "unschedulable");
    // The first one fails: the disk is free again, and the other pod gets it
    // when its backoff is over.
    h.reply("a", written(&[], Some("conflict")));
    h.gone("a");
    h.sleep(310);
    let effects = h.run();
    assert!(effects.iter().any(|e| e.starts_with("call default/b VolumeBinding")), "{effects:?}");
}

#[test]
fn a_failed_write_fails_the_attempt() {
    let mut h = waiting();
    h.run();
    h.reply("a", written(&[], Some("the server said no")));
    check(
        h.effects(),
        "Warning default/a FailedScheduling: running PreBind plugin \"VolumeBinding\": the server \
         said no
         status default/a false SchedulerError: running PreBind plugin \"VolumeBinding\": the \
         server said no",
    );
    assert_eq!(h.cache(), ["n1: ", "n2: "]);
}

#[test]
fn what_is_never_bound_is_given_up() {
    let mut h = waiting();
    h.run();
    h.reply("a", written(&[("disk", "7")], None));
    h.see(volume("disk", "n2", "7", Some("u")));
    h.sleep(599);
    assert_eq!((h.effects().len(), h.queue_of("a")), (0, "prebind"));
    h.sleep(2);
    let effects = h.effects();
    assert!(
        effects[0].ends_with(
            "running PreBind plugin \"VolumeBinding\": binding volumes: context deadline exceeded"
        ),
        "{effects:?}"
    );
}

#[test]
fn a_binding_that_is_undone_is_noticed_at_once() {
    let mut h = waiting();
    h.run();
    h.reply("a", written(&[("disk", "7")], None));
    h.see(volume("disk", "n2", "8", None));
    let effects = h.effects();
    assert!(effects[0].ends_with("ClaimRef got reset for pv \"disk\""), "{effects:?}");
}

#[test]
fn a_pod_deleted_while_its_claim_is_bound_leaves_nothing_behind() {
    let mut h = waiting();
    h.run();
    h.reply("a", written(&[("disk", "7")], None));
    h.gone("a");
    h.assert_idle();
    // The written volume stays taken until the watch shows it.
    let volumes = h.core.cluster.volumes();
    let claimed = volumes.assumed_volume("disk").is_some_and(|v| v.object.spec.claim_ref.is_some());
    assert!(claimed);
    h.see(volume("disk", "n2", "7", None));
    let volumes = h.core.cluster.volumes();
    assert!(volumes.assumed_volume("disk").is_some_and(|v| v.object.spec.claim_ref.is_none()));
}

#[test]
fn a_relist_forgets_what_it_does_not_show() {
    let mut h = waiting();
    h.relist(Kind::PersistentVolume, |_| {});
    h.run();
    assert_eq!(h.queue_of("a"), "unschedulable");
    h.relist(Kind::PersistentVolume, |h| h.see(volume("disk", "n1", "9", None)));
    h.sleep(11);
    let effects = h.run();
    assert!(effects.iter().any(|e| e.starts_with("call default/a")), "{effects:?}");
    let key = ObjectKey { name: "local".into(), ..ObjectKey::default() };
    h.apply(Input::ObjectGone(Kind::StorageClass, key));
    assert!(h.core.cluster.volumes().class("local").is_none());
}
