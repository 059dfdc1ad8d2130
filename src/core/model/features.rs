//! Features of the kubelet that a pod cannot do without.

use muster_api::k8s;

/// A set of features that scheduling knows of; names of others are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features(u8);

/// Those that a pod's specification can require at scheduling.
const KNOWN: [&str; 3] = [
    "RestartAllContainersOnContainerExits",
    "UserNamespacesHostNetworkSupport",
    "VolumeBindMountOptions",
];

impl Features {
    /// What a node declares.
    #[must_use]
    pub fn declared(names: &[String]) -> Self {
        let has = |known: &str| names.iter().any(|n| n == known);
        Self::of(KNOWN.map(has))
    }

    /// What a pod requires.
    #[must_use]
    pub fn required(spec: &k8s::PodSpec) -> Self {
        let containers = || spec.containers.iter().chain(&spec.init_containers);
        let restart_all = containers()
            .flat_map(|c| &c.restart_policy_rules)
            .any(|rule| rule.action == "RestartAllContainers");
        let user_namespace = spec.host_network && spec.host_users == Some(false);
        let mount_options = containers().any(|c| c.bind_mount_options)
            || spec.ephemeral_containers.iter().any(|c| c.bind_mount_options);
        Self::of([restart_all, user_namespace, mount_options])
    }

    fn of(set: [bool; KNOWN.len()]) -> Self {
        Self(set.into_iter().enumerate().fold(0, |all, (i, has)| all | u8::from(has) << i))
    }

    /// Whether nothing is in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all of it is in `other`.
    #[must_use]
    pub const fn within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }
}
