//! Host ports.

use muster_api::k8s;

/// A port on the host, as NodePorts compares them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// Port number.
    pub port: i32,
    /// Protocol; `TCP` where the pod says nothing.
    pub protocol: Box<str>,
    /// Address; `0.0.0.0` where the pod says nothing.
    pub ip: Box<str>,
}

const ANY: &str = "0.0.0.0";

impl HostPort {
    /// Whether both cannot be on one host.
    #[must_use]
    pub fn conflicts(&self, other: &Self) -> bool {
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || &*self.ip == ANY || &*other.ip == ANY)
    }

    /// Host ports of app containers and sidecars, sorted.
    pub(crate) fn of(spec: &k8s::PodSpec) -> Box<[Self]> {
        let sidecars =
            spec.init_containers.iter().filter(|c| c.restart_policy.as_deref() == Some("Always"));
        let mut ports: Vec<Self> = spec
            .containers
            .iter()
            .chain(sidecars)
            .flat_map(|c| &c.ports)
            .filter(|p| p.host_port > 0)
            .map(|p| Self {
                port: p.host_port,
                protocol: or_default(&p.protocol, "TCP"),
                ip: or_default(&p.host_ip, ANY),
            })
            .collect();
        ports.sort_unstable();
        ports.into()
    }
}

fn or_default(text: &str, default: &str) -> Box<str> {
    if text.is_empty() { default.into() } else { text.into() }
}
