//! What the pods of a workload look like.

use muster_api::k8s::{self, Container, Pod, PodSpec, Toleration};

use super::ScenarioError;
use super::cursor::{Cursor, Fields};
use super::nodes::whole_devices;
use crate::limits::{MAX_LABELS, MAX_TAINTS};

/// The scheduler that pods ask for unless they say otherwise.
pub(crate) const SCHEDULER_NAME: &str = "muster";

/// The pod that all pods of a workload are copies of.
pub(super) fn decode_template(fields: &Fields<'_>, namespace: &str) -> Result<Pod, ScenarioError> {
    let mut pod = match fields.get("podTemplate") {
        Some(template) => decode_raw(&template)?,
        None => Pod::default(),
    };
    namespace.clone_into(&mut pod.metadata.namespace);
    let twice = |at: &Cursor<'_>, taken: bool| {
        if taken { Err(at.error("podTemplate says it too; write it once")) } else { Ok(()) }
    };
    if let Some(labels) = fields.get("labels") {
        twice(&labels, !pod.metadata.labels.is_empty())?;
        pod.metadata.labels = labels.labels()?;
    }
    if let Some(priority) = fields.get("priority") {
        twice(&priority, pod.spec.priority.is_some())?;
        let priority = priority.int(-2_147_483_648, 1_000_000_000)?;
        pod.spec.priority = i32::try_from(priority).ok();
    }
    if let Some(policy) = fields.get("preemptionPolicy") {
        twice(&policy, pod.spec.preemption_policy.is_some())?;
        pod.spec.preemption_policy = Some(super::classes::policy(&policy)?);
    }
    if pod.spec.priority_class_name.is_empty() {
        pod.spec.priority.get_or_insert(0);
    } else if pod.spec.priority.is_some() {
        let at = fields.need("podTemplate", "")?;
        return Err(at.error("priorityClassName and priority; write one of them"));
    }
    if let Some(selector) = fields.get("nodeSelector") {
        twice(&selector, !pod.spec.node_selector.is_empty())?;
        pod.spec.node_selector = selector.labels()?;
    }
    if let Some(tolerations) = fields.get("tolerations") {
        twice(&tolerations, !pod.spec.tolerations.is_empty())?;
        for toleration in tolerations.list(MAX_TAINTS)? {
            pod.spec.tolerations.push(decode_toleration(&toleration)?);
        }
    }
    if let Some(requests) = fields.get("requests") {
        twice(&requests, !pod.spec.containers.is_empty())?;
        let list = requests.resources()?;
        if list.contains_key("pods") {
            return Err(requests.error("\"pods\" cannot be requested; each pod counts as one"));
        }
        whole_devices(&requests, &list)?;
        let resources = k8s::ResourceRequirements { requests: list };
        pod.spec.containers =
            vec![Container { name: "main".into(), resources, ..Default::default() }];
    }
    if pod.spec.containers.is_empty() {
        fields.need(
            "requests",
            "what each pod asks for, e.g. {cpu: 4, memory: 16Gi, nvidia.com/gpu: 1}",
        )?;
    }
    if pod.spec.scheduler_name.is_empty() {
        SCHEDULER_NAME.clone_into(&mut pod.spec.scheduler_name);
    }
    "Pending".clone_into(&mut pod.status.phase);
    Ok(pod)
}

fn decode_toleration(at: &Cursor<'_>) -> Result<Toleration, ScenarioError> {
    let fields = at.fields(&["key", "operator", "value", "effect"])?;
    let text =
        |name: &str| fields.get(name).map_or(Ok(String::new()), |f| f.text().map(str::to_owned));
    let toleration = Toleration {
        key: text("key")?,
        operator: text("operator")?,
        value: text("value")?,
        effect: text("effect")?,
    };
    if !matches!(toleration.operator.as_str(), "" | "Exists" | "Equal") {
        return Err(fields.need("operator", "")?.error("write Exists or Equal"));
    }
    Ok(toleration)
}

/// Pod spec fields that the core reads.
const READ: [&str; 15] = [
    "nodeSelector",
    "affinity",
    "tolerations",
    "containers",
    "initContainers",
    "overhead",
    "resources",
    "topologySpreadConstraints",
    "schedulingGates",
    "schedulingGroup",
    "activeDeadlineSeconds",
    "priority",
    "preemptionPolicy",
    "priorityClassName",
    "schedulerName",
];

/// Pod spec fields that are accepted, so that a real template can be pasted, and do nothing here.
const IGNORED: [&str; 21] = [
    "automountServiceAccountToken",
    "dnsConfig",
    "dnsPolicy",
    "enableServiceLinks",
    "hostAliases",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "hostUsers",
    "hostname",
    "imagePullSecrets",
    "os",
    "readinessGates",
    "restartPolicy",
    "securityContext",
    "serviceAccount",
    "serviceAccountName",
    "shareProcessNamespace",
    "subdomain",
    "terminationGracePeriodSeconds",
    "volumes",
];

/// A pod template as Kubernetes writes it: `metadata` and `spec`.
fn decode_raw(at: &Cursor<'_>) -> Result<Pod, ScenarioError> {
    let fields = at.fields(&["metadata", "spec"])?;
    let mut pod = Pod::default();
    if let Some(metadata) = fields.get("metadata") {
        let fields = metadata.fields(&["labels", "annotations"])?;
        if let Some(labels) = fields.get("labels") {
            pod.metadata.labels = labels.labels()?;
        }
        if let Some(annotations) = fields.get("annotations") {
            pod.metadata.annotations = annotations.labels()?;
        }
    }
    let Some(spec) = fields.get("spec") else {
        return Ok(pod);
    };
    for (name, value) in spec.map(MAX_LABELS)? {
        match name {
            "nodeName" => {
                return Err(value.error(
                    "the scheduler chooses; to pin a pod use nodeSelector {kubernetes.io/hostname: …}",
                ));
            }
            "resourceClaims" | "runtimeClassName" => {
                return Err(value.error("not modelled yet; leave it out"));
            }
            _ => {}
        }
        // Each field alone, so that an error names it.
        let one = serde_json::json!({ name: value.tree.to_json() });
        serde_json::from_value::<PodSpec>(one).map_err(|e| value.error(e.to_string()))?;
    }
    let known: Vec<&str> = READ.iter().chain(&IGNORED).copied().collect();
    spec.fields(&known)?;
    pod.spec =
        serde_json::from_value(spec.tree.to_json()).map_err(|e| spec.error(e.to_string()))?;
    Ok(pod)
}
