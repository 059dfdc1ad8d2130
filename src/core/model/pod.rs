//! Pods, and the shape that indistinguishable pods share.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_api::k8s;

use super::requests::is_extended_resource;
use super::selector::is_empty_term;
use super::volumes::compile_volumes;
use super::{
    Features, HostPort, NodeTerm, NodeTerms, PodRequests, PodVolumes, Related, ResourceTable, Sym,
    aligned,
};
use crate::cluster::{AwayId, GroupId, NodeId, Owner};
use crate::framework::ProfileId;
use crate::gang::GangId;
use crate::io::{PodRef, Tick};
use crate::policy::Scoring;

/// A pod the core knows: a dense index, reused after the pod is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodId(pub u32);

/// A shape: a dense index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShapeId(pub u32);

/// Everything by which scheduling can tell two pods apart, and nothing else.
///
/// Pods of one shape share compiled selectors, verdicts and scores.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodShape {
    /// The profile that schedules it; `None` for pods of other schedulers, which
    /// only occupy room.
    pub profile: Option<ProfileId>,
    /// Its priority: which nominated pods it must leave room for. 0 for pods of
    /// other schedulers.
    pub priority: i32,
    /// Requests in every form a plugin needs.
    pub requests: PodRequests,
    /// Host ports, sorted.
    pub ports: Box<[HostPort]>,
    /// `spec.nodeName` of a pod that is asked about although it is bound.
    pub node_name: Option<Box<str>>,
    /// `spec.nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity; `Some` with no terms matches nothing.
    pub required_affinity: Option<NodeTerms>,
    /// If every required term pins names: the union of the pinned names.
    pub pinned_names: Option<Vec<Box<str>>>,
    /// Preferred node affinity: weight and term.
    pub preferred_affinity: Vec<(i32, NodeTerm)>,
    /// Whether the pod has a node affinity with preferred terms, empty ones too.
    pub has_preferred_affinity: bool,
    /// Tolerations as written.
    pub tolerations: Vec<k8s::Toleration>,
    /// Image names with a tag, one per container and image volume.
    pub images: Vec<String>,
    /// What relates it to other pods.
    pub related: Related,
    /// Volumes that some plugin reads.
    pub volumes: Option<Box<PodVolumes>>,
    /// Seconds after which it is ended, whatever it does: what may use room that is kept
    /// for a while.
    pub deadline: Option<i64>,
    /// Features of the kubelet it cannot do without.
    pub features: Features,
    /// Extended resources that containers name, in whatever amount, sorted: extenders
    /// may manage them. What has a limit has a request too, the API server sees to it.
    pub named: Box<[Box<str>]>,
    /// What plugins read of it beside the rest, by plugin.
    pub facets: Box<[(&'static str, Box<str>)]>,
    /// What it asks of a kubelet that aligns CPUs, memory and devices, whoever schedules it;
    /// none if nothing of it is ever aligned.
    pub aligned: Option<Arc<crate::numa::Pod>>,
    /// What policies say of its scores; filled in by the cluster.
    pub scoring: Option<Arc<Scoring>>,
}

impl PodShape {
    /// What a plugin said of the pod in [`Plugin::facet`](crate::framework::Plugin::facet).
    #[must_use]
    pub fn facet(&self, plugin: &str) -> Option<&str> {
        self.facets.iter().find(|(name, _)| *name == plugin).map(|(_, facet)| &**facet)
    }
}

/// Where a pod is between being seen and being gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodStage {
    /// Waiting for a node.
    Pending,
    /// Reserved on a node by us, not yet seen bound.
    Assumed(NodeId),
    /// Seen bound on a node.
    Bound(NodeId),
    /// Seen bound on a node that is not known.
    Away(AwayId),
}

impl PodStage {
    /// The node it occupies, of those that are known.
    #[must_use]
    pub const fn node(self) -> Option<NodeId> {
        match self {
            Self::Pending | Self::Away(_) => None,
            Self::Assumed(node) | Self::Bound(node) => Some(node),
        }
    }
}

/// A resource, and ids of devices of it.
pub type DeviceIds = (Arc<str>, Box<[Arc<str>]>);

/// Devices that a pod is expected to get, by resource and id, both sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Predicted {
    /// Resource, and ids of its devices.
    pub devices: Box<[DeviceIds]>,
}

/// A pod as the core keeps it.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Its names.
    pub key: PodRef,
    /// Shape.
    pub shape: ShapeId,
    /// Scheduler it asks for.
    pub scheduler_name: Arc<str>,
    /// That scheduler is one of ours.
    pub ours: bool,
    /// Stage.
    pub stage: PodStage,
    /// Priority, 0 if unset.
    pub priority: i32,
    /// Whether it may push out pods of lower priority.
    pub may_preempt: bool,
    /// The node it is expected on.
    pub nominated: Option<Arc<str>>,
    /// As the API last showed it; empty if it showed none.
    pub nominated_shown: Arc<str>,
    /// It is expected there because room is kept for its gang.
    pub kept: bool,
    /// What was last written of it, until the API shows it.
    pub nominated_told: Option<Arc<str>>,
    /// When the kubelet took it.
    pub started: Option<Tick>,
    /// Its containers run.
    pub running: bool,
    /// It counts among those that start on its node.
    pub starting: bool,
    /// Since when it is on its node, if it is starting there.
    pub placed: Tick,
    /// When it last saved its work.
    pub checkpoint: Option<Tick>,
    /// For how many seconds it wants to be waited for to save its work before it is pushed out.
    pub checkpoint_wait: Option<i64>,
    /// When it was last asked to, in whole seconds.
    pub checkpoint_asked: Option<Tick>,
    /// Its DisruptionTarget condition names a preemption or an eviction.
    pub disrupted: bool,
    /// Version last seen.
    pub resource_version: Box<str>,
    /// Generation of the spec.
    pub generation: Option<i64>,
    /// Terminating.
    pub deleting: bool,
    /// Names of scheduling gates.
    pub gates: Box<[Box<str>]>,
    /// PodScheduled condition as last seen or written: status, reason, message.
    pub condition: Option<(bool, Box<str>, Arc<str>)>,
    /// Status of the PodScheduled condition as last seen.
    pub shown: Option<bool>,
    /// Other conditions, while it has no node.
    pub conditions: Box<[k8s::PodCondition]>,
    /// Created.
    pub created: Tick,
    /// The relist in which it was last seen.
    pub seen: u64,
    /// Pods with the same labels.
    pub group: GroupId,
    /// The gang it is in, if it is ours.
    pub gang: Option<GangId>,
    /// Its priority class, if it names one.
    pub class: Option<Sym>,
    /// Its controller.
    pub owner: Option<Owner>,
    /// Whom it has its controller in common with.
    pub crew: Option<crate::cluster::CrewId>,
    /// When it was last compared with other pods and objects.
    pub settled: u64,
    /// When it was first seen bound.
    pub bound: Option<Tick>,
    /// Which devices it is expected to get, while it is on a node.
    pub predicted: Option<Arc<Predicted>>,
}

/// The image name with a tag: `:latest` where none is given.
#[must_use]
pub fn normalized_image_name(name: &str) -> String {
    let colon = name.rfind(':').map_or(-1, |i| i as isize);
    let slash = name.rfind('/').map_or(-1, |i| i as isize);
    if colon <= slash { format!("{name}:latest") } else { name.to_owned() }
}

/// Compiles the part of a pod by which scheduling can tell it apart.
///
/// `profile` is `None` for pods of other schedulers: only what occupies room is
/// compiled then, so that such pods share few shapes.
pub fn compile_pod(
    pod: &k8s::Pod,
    profile: Option<ProfileId>,
    table: &mut ResourceTable,
) -> PodShape {
    let spec = &pod.spec;
    let requests = PodRequests::of(pod, table);
    let ports = HostPort::of(spec);
    let related = Related::compile(pod, profile.is_some());
    if profile.is_none() {
        return PodShape {
            profile,
            priority: 0,
            requests,
            ports,
            node_name: None,
            node_selector: BTreeMap::new(),
            required_affinity: None,
            pinned_names: None,
            preferred_affinity: Vec::new(),
            has_preferred_affinity: false,
            tolerations: Vec::new(),
            images: Vec::new(),
            related,
            volumes: compile_volumes(pod),
            deadline: None,
            features: Features::default(),
            named: Box::default(),
            facets: Box::default(),
            aligned: aligned(pod),
            scoring: None,
        };
    }
    let affinity = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
    let required = affinity.and_then(|a| a.required.as_ref());
    let preferred = affinity.and_then(|a| a.preferred.as_deref());
    PodShape {
        profile,
        priority: spec.priority.unwrap_or(0),
        requests,
        ports,
        node_name: (!spec.node_name.is_empty()).then(|| spec.node_name.as_str().into()),
        node_selector: spec.node_selector.clone(),
        required_affinity: required.map(|r| NodeTerms::compile(&r.node_selector_terms)),
        pinned_names: required.and_then(|r| pinned_names(&r.node_selector_terms)),
        preferred_affinity: preferred
            .unwrap_or_default()
            .iter()
            .enumerate()
            .filter(|(_, p)| p.weight != 0 && !is_empty_term(&p.preference))
            .map(|(i, p)| (p.weight, NodeTerm::compile(&p.preference, &format!("[{i}]"))))
            .collect(),
        has_preferred_affinity: preferred.is_some(),
        tolerations: spec.tolerations.clone(),
        images: images(spec),
        related,
        volumes: compile_volumes(pod),
        deadline: spec.active_deadline_seconds,
        features: Features::required(spec),
        named: named(spec),
        facets: Box::default(),
        aligned: aligned(pod),
        scoring: None,
    }
}

fn named(spec: &k8s::PodSpec) -> Box<[Box<str>]> {
    let containers = spec.containers.iter().chain(&spec.init_containers);
    let names = containers.flat_map(|c| c.resources.requests.keys());
    let mut names: Vec<Box<str>> =
        names.filter(|name| is_extended_resource(name)).map(|name| name.as_str().into()).collect();
    names.sort_unstable();
    names.dedup();
    names.into()
}

fn images(spec: &k8s::PodSpec) -> Vec<String> {
    let containers = spec.init_containers.iter().chain(&spec.containers).map(|c| c.image.as_str());
    let volumes = spec.volumes.iter().filter_map(|v| Some(v.image.as_ref()?.reference.as_str()));
    containers.chain(volumes).map(normalized_image_name).collect()
}

/// Upstream's PreFilter of NodeAffinity: if every term pins `metadata.name In`,
/// the union over terms of the intersections within a term.
fn pinned_names(terms: &[k8s::NodeSelectorTerm]) -> Option<Vec<Box<str>>> {
    let mut union: Vec<Box<str>> = Vec::new();
    for term in terms {
        let mut names: Option<Vec<&str>> = None;
        for field in &term.match_fields {
            if field.key == "metadata.name" && field.operator == "In" {
                let values = || field.values.iter().map(String::as_str);
                names = Some(match names {
                    None => values().collect(),
                    Some(old) => old.into_iter().filter(|n| values().any(|v| v == *n)).collect(),
                });
            }
        }
        union.extend(names?.into_iter().map(Into::into));
    }
    if terms.is_empty() {
        return None;
    }
    union.sort_unstable();
    union.dedup();
    Some(union)
}
