//! What a pod asks for and what it occupies, worked out resource by resource.
//!
//! Owns the checker's own arithmetic. Must never call the model's: a mistake
//! made there would be made here too.

use std::collections::{BTreeMap, BTreeSet};

use muster_api::k8s::{self, Quantity, ResourceList};

/// Amounts per resource, zero entries left out: thousandths of cpu, whole units
/// of the rest.
pub(super) type Amounts = BTreeMap<String, i64>;

/// A port on the host: number, protocol, address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Port {
    number: i32,
    protocol: String,
    address: String,
}

const EVERY_ADDRESS: &str = "0.0.0.0";

impl Port {
    pub(super) fn clashes(&self, other: &Self) -> bool {
        let same_address = self.address == other.address
            || [self, other].iter().any(|p| p.address == EVERY_ADDRESS);
        (self.number, &self.protocol) == (other.number, &other.protocol) && same_address
    }
}

/// Whether a scheduler counts the resource; `pods` is counted apart.
fn counted(name: &str) -> bool {
    match name {
        "cpu" | "memory" | "ephemeral-storage" => true,
        _ => {
            name.contains("kubernetes.io/")
                || name.starts_with("hugepages-")
                || name.starts_with("attachable-volumes-")
                || name.contains('/') && !name.starts_with("requests.")
        }
    }
}

fn amount(name: &str, quantity: Quantity) -> i64 {
    if name == "cpu" { quantity.milli_value() } else { quantity.value() }
}

fn keep(name: &str, quantity: Quantity) -> Option<(String, i64)> {
    let amount = amount(name, quantity);
    (counted(name) && amount != 0).then(|| (name.to_owned(), amount))
}

/// What a node offers, beside the number of pods.
pub(super) fn offered(list: &ResourceList) -> Amounts {
    list.iter().filter_map(|(name, quantity)| keep(name, *quantity)).collect()
}

/// How many pods a node takes.
pub(super) fn most_pods(list: &ResourceList) -> i64 {
    list.get("pods").map_or(0, |q| q.value())
}

/// What a pod must find free: its spec.
pub(super) fn wanted(pod: &k8s::Pod) -> Amounts {
    all(pod, &|name| with_overhead(pod, name, spec_total(pod, name)))
}

/// What a placed pod takes: its spec, and what a resize has set aside or begun.
pub(super) fn occupied(pod: &k8s::Pod) -> Amounts {
    all(pod, &|name| with_overhead(pod, name, live_total(pod, name)))
}

fn all(pod: &k8s::Pod, total: &dyn Fn(&str) -> Quantity) -> Amounts {
    names(pod).into_iter().filter_map(|name| keep(name, total(name))).collect()
}

/// Every resource the pod names anywhere.
fn names(pod: &k8s::Pod) -> BTreeSet<&str> {
    let (spec, status) = (&pod.spec, &pod.status);
    let containers = spec.containers.iter().chain(&spec.init_containers);
    let statuses = status.container_statuses.iter().chain(&status.init_container_statuses);
    let lists = containers
        .map(|c| &c.resources.requests)
        .chain(spec.resources.as_ref().map(|r| &r.requests))
        .chain([&spec.overhead])
        .chain(status.allocated_resources.as_ref())
        .chain(status.resources.as_ref().and_then(|r| r.requests.as_ref()))
        .chain(statuses.clone().filter_map(|s| s.allocated_resources.as_ref()))
        .chain(statuses.filter_map(|s| s.resources.as_ref()?.requests.as_ref()));
    lists.flat_map(ResourceList::keys).map(String::as_str).collect()
}

fn of(list: &ResourceList, name: &str) -> Quantity {
    list.get(name).copied().unwrap_or_default()
}

fn plus(mut a: Quantity, b: Quantity) -> Quantity {
    a += b;
    a
}

fn with_overhead(pod: &k8s::Pod, name: &str, total: Quantity) -> Quantity {
    plus(total, of(&pod.spec.overhead, name))
}

fn is_sidecar(container: &k8s::Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Containers and sidecars together, or the worst moment before they all run.
fn peak(pod: &k8s::Pod, share: &dyn Fn(&k8s::Container) -> Quantity) -> Quantity {
    let (mut before, mut worst) = (Quantity::ZERO, Quantity::ZERO);
    for init in &pod.spec.init_containers {
        let then = plus(before, share(init));
        worst = worst.max(then);
        if is_sidecar(init) {
            before = then;
        }
    }
    pod.spec.containers.iter().fold(before, |sum, c| plus(sum, share(c))).max(worst)
}

fn pod_level_kind(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

fn pod_level(pod: &k8s::Pod) -> Option<&ResourceList> {
    let list = &pod.spec.resources.as_ref()?.requests;
    list.keys().any(|name| pod_level_kind(name)).then_some(list)
}

fn spec_total(pod: &k8s::Pod, name: &str) -> Quantity {
    match pod_level(pod).and_then(|list| list.get(name)) {
        Some(quantity) if pod_level_kind(name) => *quantity,
        _ => peak(pod, &|c| of(&c.resources.requests, name)),
    }
}

/// A resize that the node can never grant leaves the spec out of account.
fn spec_is_void(pod: &k8s::Pod) -> bool {
    let pending = pod.status.conditions.iter().find(|c| c.kind == "PodResizePending");
    pending.is_some_and(|c| c.reason == "Infeasible")
}

fn live_total(pod: &k8s::Pod, name: &str) -> Quantity {
    if let (Some(list), true) = (pod_level(pod), pod_level_kind(name)) {
        let status = pod.status.resources.as_ref();
        let set_aside = pod.status.allocated_resources.as_ref().filter(|_| status.is_some());
        let in_force = status.and_then(|s| s.requests.as_ref());
        let asked = (!(status.is_some() && spec_is_void(pod))).then_some(list);
        let named = [asked, in_force, set_aside].into_iter().flatten();
        if let Some(most) = named.filter_map(|l| l.get(name)).max() {
            return *most;
        }
    }
    live_containers(pod, name)
}

fn live_containers(pod: &k8s::Pod, name: &str) -> Quantity {
    let void = spec_is_void(pod);
    let spec = |c: &k8s::Container| of(&c.resources.requests, name);
    let fallback = |c: &k8s::Container| if void { Quantity::ZERO } else { spec(c) };
    let (set_aside, in_force) = match (&pod.status.allocated_resources, &pod.status.resources) {
        (Some(aside), Some(k8s::ResourceStatus { requests: Some(force) })) => {
            (of(aside, name), of(force, name))
        }
        _ => {
            let aside = |c: &k8s::Container| status(pod, c)?.allocated_resources.as_ref();
            let force = |c: &k8s::Container| status(pod, c)?.resources.as_ref()?.requests.as_ref();
            (
                peak(pod, &|c| aside(c).map_or_else(|| fallback(c), |l| of(l, name))),
                peak(pod, &|c| {
                    force(c).or_else(|| aside(c)).map_or_else(|| fallback(c), |l| of(l, name))
                }),
            )
        }
    };
    let most = set_aside.max(in_force);
    if void { most } else { most.max(peak(pod, &spec)) }
}

fn status<'a>(pod: &'a k8s::Pod, container: &k8s::Container) -> Option<&'a k8s::ContainerStatus> {
    let status = &pod.status;
    let mut both = status.container_statuses.iter().chain(&status.init_container_statuses);
    both.find(|s| s.name == container.name)
}

/// Host ports of containers that run for the pod's whole life.
pub(super) fn ports(spec: &k8s::PodSpec) -> Vec<Port> {
    let lasting = spec.init_containers.iter().filter(|c| is_sidecar(c)).chain(&spec.containers);
    let or = |text: &str, default: &str| {
        if text.is_empty() { default.to_owned() } else { text.to_owned() }
    };
    lasting
        .flat_map(|c| &c.ports)
        .filter(|p| p.host_port > 0)
        .map(|p| Port {
            number: p.host_port,
            protocol: or(&p.protocol, "TCP"),
            address: or(&p.host_ip, EVERY_ADDRESS),
        })
        .collect()
}
