//! Upstream's JSON, as its Go types write and read it.
//!
//! The types of `k8s.io/kube-scheduler/extender/v1` have no JSON tags: names are
//! written as they stand in Go, and read in any case. Null is nothing, what is not
//! known is passed over, and what follows the first value is not read.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::io::{ExtenderReply, NodeReason, NodeVictims, PodRef};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// `ExtenderArgs`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Args<'a> {
    pub(super) pod: &'a RawValue,
    pub(super) nodes: Option<NodeList<'a>>,
    pub(super) node_names: Option<&'a [Arc<str>]>,
}

/// `v1.NodeList`.
#[derive(Serialize)]
pub(super) struct NodeList<'a> {
    metadata: Empty,
    items: &'a [Arc<RawValue>],
}

#[derive(Serialize)]
struct Empty {}

impl<'a> NodeList<'a> {
    pub(super) fn new(items: &'a [Arc<RawValue>]) -> Self {
        Self { metadata: Empty {}, items }
    }
}

/// `ExtenderPreemptionArgs`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct PreemptionArgs<'a> {
    pub(super) pod: &'a RawValue,
    pub(super) node_name_to_victims: Option<BTreeMap<&'a str, Victims<Arc<RawValue>>>>,
    pub(super) node_name_to_meta_victims: Option<BTreeMap<&'a str, Victims<MetaPod<'a>>>>,
}

/// `Victims` and `MetaVictims`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Victims<P> {
    pub(super) pods: Vec<P>,
    #[serde(rename = "NumPDBViolations")]
    pub(super) violations: i64,
}

/// `MetaPod`.
#[derive(Serialize)]
pub(super) struct MetaPod<'a> {
    #[serde(rename = "UID")]
    uid: &'a str,
}

/// Candidates for an extender that knows pods by itself.
pub(super) fn meta_victims(list: &[NodeVictims]) -> BTreeMap<&str, Victims<MetaPod<'_>>> {
    let each = list.iter().map(|c| {
        let pods = c.pods.iter().map(|p| MetaPod { uid: &p.uid }).collect();
        (&*c.node, Victims { pods, violations: c.violations })
    });
    each.collect()
}

/// `ExtenderBindingArgs`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct BindingArgs<'a> {
    pod_name: &'a str,
    pod_namespace: &'a str,
    #[serde(rename = "PodUID")]
    pod_uid: &'a str,
    node: &'a str,
}

impl<'a> BindingArgs<'a> {
    pub(super) fn new(pod: &'a PodRef, node: &'a str) -> Self {
        Self { pod_name: &pod.name, pod_namespace: &pod.namespace, pod_uid: &pod.uid, node }
    }
}

type Wrong = serde_json::Error;

/// The first value of a body.
fn first<'de, T: Deserialize<'de>>(body: &'de [u8]) -> Result<T, Wrong> {
    T::deserialize(&mut serde_json::Deserializer::from_slice(body))
}

/// An object whose fields are found as Go finds them.
struct Fields<'a>(BTreeMap<String, &'a RawValue>);

impl<'a> Fields<'a> {
    fn read(body: &'a [u8]) -> Result<Self, Wrong> {
        Ok(Self(first::<Option<_>>(body)?.unwrap_or_default()))
    }

    fn get<T: Deserialize<'a>>(&self, name: &str) -> Result<Option<T>, Wrong> {
        let same = |field: &&String| field.eq_ignore_ascii_case(name);
        let found = self.0.get(name).or_else(|| self.0.get(self.0.keys().find(same)?));
        found.map_or(Ok(None), |raw| serde_json::from_str(raw.get()))
    }
}

/// `ExtenderFilterResult`. As upstream, names count if the extender was asked by name
/// and there are any, else whole nodes; without either nothing is left.
pub(super) fn filter_result(body: &[u8], by_name: bool) -> Result<ExtenderReply, Wrong> {
    let fields = Fields::read(body)?;
    if let Some(error) = error_of(&fields)? {
        return Ok(ExtenderReply::Failed { error, in_doubt: false });
    }
    let names: Option<Vec<Arc<str>>> = fields.get("NodeNames")?;
    let nodes = match names.filter(|_| by_name) {
        Some(names) => names,
        None => node_names(&fields)?,
    };
    Ok(ExtenderReply::Filtered {
        nodes,
        failed: reasons(&fields, "FailedNodes")?,
        unresolvable: reasons(&fields, "FailedAndUnresolvableNodes")?,
    })
}

fn error_of(fields: &Fields<'_>) -> Result<Option<Arc<str>>, Wrong> {
    let error: Option<Arc<str>> = fields.get("Error")?;
    Ok(error.filter(|error| !error.is_empty()))
}

fn reasons(fields: &Fields<'_>, name: &str) -> Result<Vec<NodeReason>, Wrong> {
    let map: Option<BTreeMap<Arc<str>, Arc<str>>> = fields.get(name)?;
    Ok(map.unwrap_or_default().into_iter().collect())
}

fn node_names(fields: &Fields<'_>) -> Result<Vec<Arc<str>>, Wrong> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Node {
        metadata: Option<Meta>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Meta {
        name: Option<Arc<str>>,
    }
    let Some(list) = fields.get::<&RawValue>("Nodes")? else {
        return Ok(Vec::new());
    };
    let items: Option<Vec<Node>> = Fields::read(list.get().as_bytes())?.get("items")?;
    let name = |node: Node| node.metadata.unwrap_or_default().name.unwrap_or_default();
    Ok(items.unwrap_or_default().into_iter().map(name).collect())
}

/// `HostPriorityList`.
pub(super) fn scores(body: &[u8]) -> Result<Vec<(Arc<str>, i64)>, Wrong> {
    let list: Option<Vec<&RawValue>> = first(body)?;
    let score = |raw: &RawValue| {
        let fields = Fields::read(raw.get().as_bytes())?;
        let host: Option<Arc<str>> = fields.get("Host")?;
        Ok((host.unwrap_or_default(), fields.get("Score")?.unwrap_or(0)))
    };
    list.unwrap_or_default().into_iter().map(score).collect()
}

/// `ExtenderPreemptionResult`.
pub(super) fn preemption_result(body: &[u8]) -> Result<ExtenderReply, Wrong> {
    let map: Option<BTreeMap<Arc<str>, &RawValue>> =
        Fields::read(body)?.get("NodeNameToMetaVictims")?;
    let victims = |(node, raw): (Arc<str>, &RawValue)| {
        let fields = Fields::read(raw.get().as_bytes())?;
        let pods: Option<Vec<&RawValue>> = fields.get("Pods")?;
        let uid = |pod: &RawValue| {
            let uid: Option<Arc<str>> = Fields::read(pod.get().as_bytes())?.get("UID")?;
            Ok(uid.unwrap_or_default())
        };
        let uids: Result<Vec<_>, Wrong> = pods.unwrap_or_default().into_iter().map(uid).collect();
        Ok((node, uids?, fields.get("NumPDBViolations")?.unwrap_or(0)))
    };
    let list: Result<Vec<_>, Wrong> = map.unwrap_or_default().into_iter().map(victims).collect();
    Ok(ExtenderReply::Preempted(list?))
}

/// `ExtenderBindingResult`.
pub(super) fn binding_result(body: &[u8]) -> Result<ExtenderReply, Wrong> {
    Ok(match error_of(&Fields::read(body)?)? {
        Some(error) => ExtenderReply::Failed { error, in_doubt: false },
        None => ExtenderReply::Bound,
    })
}
