//! What scheduling depends on, as a file: which kinds, and what of each object.
//!
//! Owns the list of kinds and of what is left of an object. Fields are kept by name, never dropped
//! by name: what nobody thought of stays in the cluster. Must never do I/O.

use serde_json::{Map, Value};

/// A kind to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Group and version.
    pub api_version: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// Its plural.
    pub plural: &'static str,
    /// Paths to keep beside the metadata; a path keeps all below it, `[]` stands for each
    /// item of a list.
    keep: &'static [&'static str],
}

/// What is kept of the metadata of every object.
const METADATA: [&str; 9] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "labels",
    "ownerReferences",
];

/// Annotations that are kept begin with one of these.
const ANNOTATIONS: [&str; 5] = [
    "muster.dev/",
    "scheduling.k8s.io/",
    "volume.kubernetes.io/",
    "pv.kubernetes.io/",
    "preemption-toleration.scheduling.x-k8s.io/",
];

/// Without these two there is nothing to say.
pub const REQUIRED: [&str; 2] = ["nodes", "pods"];

const fn listed(
    api_version: &'static str,
    kind: &'static str,
    plural: &'static str,
    keep: &'static [&'static str],
) -> Listed {
    Listed { api_version, kind, plural, keep }
}

/// Every kind that a decision or an answer depends on.
pub const KINDS: [Listed; 23] = [
    listed(
        "v1",
        "Node",
        "nodes",
        &[
            "spec.unschedulable",
            "spec.taints",
            "status.capacity",
            "status.allocatable",
            "status.conditions[].type",
            "status.conditions[].status",
            "status.conditions[].reason",
            "status.images",
            "status.declaredFeatures",
            "status.nodeInfo.kubeletVersion",
        ],
    ),
    listed("v1", "Pod", "pods", POD),
    listed("v1", "Namespace", "namespaces", &[]),
    listed("v1", "Service", "services", &["spec.selector"]),
    listed("v1", "ReplicationController", "replicationcontrollers", &["spec.selector"]),
    listed("apps/v1", "ReplicaSet", "replicasets", &["spec.selector"]),
    listed("apps/v1", "StatefulSet", "statefulsets", &["spec.selector"]),
    listed("v1", "PersistentVolume", "persistentvolumes", VOLUME),
    listed(
        "v1",
        "PersistentVolumeClaim",
        "persistentvolumeclaims",
        &[
            "spec.accessModes",
            "spec.resources",
            "spec.storageClassName",
            "spec.volumeMode",
            "spec.volumeName",
            "spec.selector",
            "status.phase",
        ],
    ),
    listed(
        "storage.k8s.io/v1",
        "StorageClass",
        "storageclasses",
        &["provisioner", "volumeBindingMode", "allowedTopologies"],
    ),
    listed("storage.k8s.io/v1", "CSINode", "csinodes", &["spec"]),
    listed("storage.k8s.io/v1", "CSIDriver", "csidrivers", &["spec"]),
    listed(
        "storage.k8s.io/v1",
        "CSIStorageCapacity",
        "csistoragecapacities",
        &["nodeTopology", "storageClassName", "capacity", "maximumVolumeSize"],
    ),
    listed(
        "storage.k8s.io/v1",
        "VolumeAttachment",
        "volumeattachments",
        &["spec.attacher", "spec.nodeName", "spec.source.persistentVolumeName", "status.attached"],
    ),
    listed("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", &["spec", "status"]),
    listed(
        "scheduling.k8s.io/v1",
        "PriorityClass",
        "priorityclasses",
        &["value", "globalDefault", "preemptionPolicy"],
    ),
    listed("muster.dev/v1alpha1", "PodGroup", "podgroups", &["spec", "status"]),
    listed("muster.dev/v1alpha1", "ClusterTopology", "clustertopologies", &["spec"]),
    listed("muster.dev/v1alpha1", "SchedulingPolicy", "schedulingpolicies", &["spec"]),
    listed(
        "muster.dev/v1alpha1",
        "NodeTopology",
        "nodetopologies",
        &["hardware", "kubelet", "status"],
    ),
    listed(
        "topology.node.k8s.io/v1alpha2",
        "NodeResourceTopology",
        "noderesourcetopologies",
        &["topologyPolicies", "attributes", "zones"],
    ),
    listed("scheduling.k8s.io/v1beta1", "PodGroup", "podgroups", &["spec", "status"]),
    listed("scheduling.x-k8s.io/v1alpha1", "PodGroup", "podgroups", &["spec", "status"]),
];

/// Of a pod: what it asks for and where it may go; not what it runs, with what, and as whom.
const POD: &[&str] = &[
    "spec.nodeName",
    "spec.schedulerName",
    "spec.priority",
    "spec.priorityClassName",
    "spec.preemptionPolicy",
    "spec.nodeSelector",
    "spec.affinity",
    "spec.tolerations",
    "spec.topologySpreadConstraints",
    "spec.schedulingGates",
    "spec.schedulingGroup",
    "spec.overhead",
    "spec.resources",
    "spec.hostNetwork",
    "spec.hostUsers",
    "spec.restartPolicy",
    "spec.terminationGracePeriodSeconds",
    "spec.containers[].name",
    "spec.containers[].image",
    "spec.containers[].ports",
    "spec.containers[].resources",
    "spec.containers[].restartPolicy",
    "spec.initContainers[].name",
    "spec.initContainers[].image",
    "spec.initContainers[].ports",
    "spec.initContainers[].resources",
    "spec.initContainers[].restartPolicy",
    "spec.volumes[].name",
    "spec.volumes[].persistentVolumeClaim",
    "spec.volumes[].ephemeral.volumeClaimTemplate.spec",
    "spec.volumes[].csi.driver",
    "spec.volumes[].gcePersistentDisk",
    "spec.volumes[].awsElasticBlockStore",
    "spec.volumes[].azureDisk.diskName",
    "status.phase",
    "status.reason",
    "status.conditions",
    "status.nominatedNodeName",
    "status.startTime",
    "status.resources",
    "status.allocatedResources",
    "status.initContainerStatuses[].name",
    "status.initContainerStatuses[].state.waiting.reason",
    "status.initContainerStatuses[].state.terminated.reason",
    "status.initContainerStatuses[].state.terminated.exitCode",
    "status.containerStatuses[].name",
    "status.containerStatuses[].ready",
    "status.containerStatuses[].restartCount",
    "status.containerStatuses[].state.waiting.reason",
    "status.containerStatuses[].state.terminated.reason",
    "status.containerStatuses[].state.terminated.exitCode",
];

/// What is read beside it for an answer that is not kept in a file: messages, which may quote
/// anything.
const POD_MESSAGES: &[&str] = &[
    "status.message",
    "status.initContainerStatuses[].state.waiting.message",
    "status.initContainerStatuses[].state.terminated.message",
    "status.containerStatuses[].state.waiting.message",
    "status.containerStatuses[].state.terminated.message",
];

const VOLUME: &[&str] = &[
    "spec.capacity",
    "spec.accessModes",
    "spec.storageClassName",
    "spec.volumeMode",
    "spec.nodeAffinity",
    "spec.claimRef",
    "spec.csi.driver",
    "spec.csi.volumeHandle",
    "status.phase",
];

impl Listed {
    /// Where the kind is listed.
    #[must_use]
    pub fn path(&self) -> String {
        let root = if self.api_version.contains('/') { "apis" } else { "api" };
        format!("/{root}/{}/{}", self.api_version, self.plural)
    }

    /// What is read of an object for an answer that is not kept: messages too.
    #[must_use]
    pub fn read(&self, object: &Value) -> Value {
        let mut read = self.redact(object);
        for path in POD_MESSAGES.iter().filter(|_| self.kind == "Pod") {
            keep(object, &mut read, &path.split('.').collect::<Vec<_>>());
        }
        read
    }

    /// What is kept of an object in a file.
    #[must_use]
    pub fn redact(&self, object: &Value) -> Value {
        let mut kept = Map::new();
        kept.insert("apiVersion".to_owned(), self.api_version.into());
        kept.insert("kind".to_owned(), self.kind.into());
        kept.insert("metadata".to_owned(), metadata(&object["metadata"]));
        let mut kept = Value::Object(kept);
        for path in self.keep {
            keep(object, &mut kept, &path.split('.').collect::<Vec<_>>());
        }
        kept
    }
}

fn metadata(found: &Value) -> Value {
    let mut kept = Map::new();
    for field in METADATA {
        if let Some(value) = found.get(field).filter(|value| !value.is_null()) {
            kept.insert(field.to_owned(), value.clone());
        }
    }
    let known = |key: &str| ANNOTATIONS.iter().any(|prefix| key.starts_with(prefix));
    let all = found["annotations"].as_object().into_iter().flatten();
    let annotations: Map<String, Value> = all
        .filter(|(key, _)| known(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if !annotations.is_empty() {
        kept.insert("annotations".to_owned(), annotations.into());
    }
    kept.into()
}

/// Copies what is at a path; nothing if there is nothing.
fn keep(from: &Value, to: &mut Value, path: &[&str]) {
    let Some((step, rest)) = path.split_first() else { return };
    let (field, each) = match step.strip_suffix("[]") {
        Some(field) => (field, true),
        None => (*step, false),
    };
    let Some(found) = from.get(field).filter(|value| !value.is_null()) else { return };
    let Some(to) = to.as_object_mut() else { return };
    if rest.is_empty() {
        to.insert(field.to_owned(), found.clone());
    } else if each {
        let items = found.as_array().map(Vec::as_slice).unwrap_or_default();
        let places = to
            .entry(field)
            .or_insert_with(|| items.iter().map(|_| Value::Object(Map::new())).collect());
        for (item, place) in items.iter().zip(places.as_array_mut().into_iter().flatten()) {
            keep(item, place, rest);
        }
    } else {
        keep(found, to.entry(field).or_insert_with(|| Value::Object(Map::new())), rest);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kind(plural: &str) -> &'static Listed {
        KINDS.iter().find(|listed| listed.plural == plural).unwrap()
    }

    #[test]
    fn a_pod_keeps_what_it_asks_for_and_not_what_it_runs() {
        let pod = json!({
            "metadata": {
                "name": "p", "namespace": "n", "managedFields": [{}],
                "annotations": {"muster.dev/rank": "1", "vault/token": "s3cret"},
            },
            "spec": {
                "serviceAccountName": "s3cret", "imagePullSecrets": [{"name": "s3cret"}],
                "nodeSelector": {"a": "b"},
                "containers": [
                    {"name": "main", "image": "i", "args": ["--password=s3cret"],
                     "env": [{"name": "A", "value": "s3cret"}],
                     "resources": {"requests": {"cpu": "1"}}},
                    {"name": "side", "command": ["s3cret"]},
                ],
                "volumes": [
                    {"name": "v", "secret": {"secretName": "s3cret"}},
                    {"name": "w", "persistentVolumeClaim": {"claimName": "c"}},
                ],
            },
            "status": {"phase": "Pending", "message": "s3cret", "containerStatuses": [
                {"name": "main", "state": {"waiting": {"reason": "ErrImagePull", "message": "s3cret"}}}]},
        });
        let kept = kind("pods").redact(&pod);
        assert!(!kept.to_string().contains("s3cret"), "{kept:#}");
        let read = kind("pods").read(&pod);
        assert_eq!(read["status"]["message"], "s3cret");
        let waiting = &read["status"]["containerStatuses"][0]["state"]["waiting"];
        assert_eq!(*waiting, json!({"reason": "ErrImagePull", "message": "s3cret"}));
        assert_eq!(
            kept,
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "p", "namespace": "n", "annotations": {"muster.dev/rank": "1"}},
                "spec": {
                    "nodeSelector": {"a": "b"},
                    "containers": [
                        {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}},
                        {"name": "side"},
                    ],
                    "volumes": [
                        {"name": "v"}, {"name": "w", "persistentVolumeClaim": {"claimName": "c"}}],
                },
                "status": {"phase": "Pending", "containerStatuses": [
                    {"name": "main", "state": {"waiting": {"reason": "ErrImagePull"}}}]},
            })
        );
    }

    /// Kinds are listed where the scheduler watches them.
    #[test]
    fn kinds_have_paths() {
        assert_eq!(kind("pods").path(), "/api/v1/pods");
        assert_eq!(kind("csinodes").path(), "/apis/storage.k8s.io/v1/csinodes");
    }
}
