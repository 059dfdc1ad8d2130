//! Gangs: pods that start together or not at all.
//!
//! Owns which API a gang comes from, what any of them asks for ([`GangSpec`]) and how
//! members are counted against it ([`Count`]). What is known of gangs is in
//! `cluster/gangs.rs`, when they are tried in `queue/gangs.rs`, how in `cycle/gang.rs`.

mod count;
mod spec;
pub mod status;
mod wish;

pub use count::Count;
pub use spec::{GangRole, GangSpec};
pub use wish::{LevelName, SegmentWish, Wish};

use std::fmt;
use std::sync::Arc;

use muster_api::k8s::{CoschedulingPodGroup, Pod};
use muster_api::muster::labels;

use crate::io::Kind;

/// An API that describes gangs. A pod that names groups of several belongs to the
/// first of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Api {
    /// `muster.dev`.
    #[default]
    Muster,
    /// `scheduling.k8s.io`.
    Native,
    /// `scheduling.x-k8s.io`, of scheduler-plugins.
    Coscheduling,
}

impl Api {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Muster, Self::Native, Self::Coscheduling];
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();

    /// The group that a pod names.
    #[must_use]
    pub fn of(pod: &Pod) -> Option<(Self, &str)> {
        let label = |key| pod.metadata.labels.get(key).map(String::as_str);
        let native = pod.spec.scheduling_group.as_ref().and_then(|g| g.pod_group_name.as_deref());
        let named = [
            (Self::Muster, label(labels::POD_GROUP)),
            (Self::Native, native),
            (Self::Coscheduling, label(CoschedulingPodGroup::LABEL)),
        ];
        named.into_iter().find_map(|(api, name)| Some((api, name.filter(|n| !n.is_empty())?)))
    }

    /// The API that groups of a kind, or members of them, belong to.
    #[must_use]
    pub const fn of_kind(kind: Kind) -> Option<Self> {
        match kind {
            Kind::PodGroup | Kind::EndedMember => Some(Self::Muster),
            Kind::NativePodGroup | Kind::EndedNative => Some(Self::Native),
            Kind::CoschedulingPodGroup | Kind::EndedCoscheduled => Some(Self::Coscheduling),
            _ => None,
        }
    }
}

/// Which gang. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GangKey {
    /// Whose kind of group it is.
    pub api: Api,
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl fmt::Display for GangKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A gang the core knows: a dense index, reused after the gang is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GangId(pub u32);

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_pod_belongs_to_the_first_api_it_names() {
        let pod = |labels: Value, spec: Value| -> Pod {
            serde_json::from_value(json!({"metadata": {"labels": labels}, "spec": spec})).unwrap()
        };
        let native = json!({"schedulingGroup": {"podGroupName": "n"}});
        let both = json!({"muster.dev/pod-group": "m", "scheduling.x-k8s.io/pod-group": "c"});
        let one = json!({"scheduling.x-k8s.io/pod-group": "c"});
        assert_eq!(Api::of(&pod(both, native.clone())), Some((Api::Muster, "m")));
        assert_eq!(Api::of(&pod(one.clone(), native)), Some((Api::Native, "n")));
        assert_eq!(Api::of(&pod(one, json!({}))), Some((Api::Coscheduling, "c")));
        assert_eq!(Api::of(&pod(json!({"muster.dev/pod-group": ""}), json!({}))), None);
    }
}
