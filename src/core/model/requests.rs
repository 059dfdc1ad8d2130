//! What pods ask for, aggregated exactly as upstream's `resource.PodRequests`.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_api::k8s::{self, Quantity, ResourceList};
use smallvec::SmallVec;

use crate::hash::TextMap;

/// A resource other than pods: a column index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResId(pub u16);

impl ResId {
    /// CPU, in thousandths.
    pub const CPU: Self = Self(0);
    /// Memory, in bytes.
    pub const MEMORY: Self = Self(1);
    /// Ephemeral storage, in bytes.
    pub const EPHEMERAL: Self = Self(2);

    /// Whether it is an extended, hugepage or other scalar resource.
    #[must_use]
    pub const fn is_scalar(self) -> bool {
        self.0 > 2
    }

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Most distinct resources a cluster may have, so that hostile objects cannot
/// grow the columns without bound. No node offers any further one: a pod that asks
/// for it fits nowhere, which is safer than not to check.
const MAX_RESOURCES: usize = 1024;
/// What the last column counts once all others are taken.
const BEYOND: &str = "resources beyond the 1023 known ones";

/// Names of resources, numbered in the order of first sight.
#[derive(Clone)]
pub struct ResourceTable {
    names: Vec<Arc<str>>,
    index: TextMap<Arc<str>, ResId>,
}

impl Default for ResourceTable {
    fn default() -> Self {
        let mut table = Self { names: Vec::new(), index: TextMap::default() };
        for name in ["cpu", "memory", "ephemeral-storage"] {
            table.add(name);
        }
        table
    }
}

impl ResourceTable {
    fn add(&mut self, name: &str) -> Option<ResId> {
        if self.names.len() >= MAX_RESOURCES - 1 {
            return None;
        }
        let id = ResId(u16::try_from(self.names.len()).ok()?);
        let name: Arc<str> = name.into();
        self.names.push(Arc::clone(&name));
        self.index.insert(name, id);
        Some(id)
    }

    /// The id of a resource the scheduler accounts for; `None` for others
    /// (pods, unknown native names).
    pub fn intern(&mut self, name: &str) -> Option<ResId> {
        match self.index.get(name) {
            Some(&id) => Some(id),
            None if is_scalar_resource(name) => self.add(name),
            None => None,
        }
    }

    /// As `intern`, for what a pod asks for: never forgets a request because the
    /// table is full.
    pub(crate) fn intern_request(&mut self, name: &str) -> Option<ResId> {
        match self.intern(name) {
            None if is_scalar_resource(name) => {
                // Not in the index: no object can name it.
                if self.names.len() < MAX_RESOURCES {
                    self.names.push(BEYOND.into());
                }
                Some(ResId((MAX_RESOURCES - 1) as u16))
            }
            known => known,
        }
    }

    /// The id, if the resource was ever seen.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<ResId> {
        self.index.get(name).copied()
    }

    /// The name.
    #[must_use]
    pub fn name(&self, id: ResId) -> &Arc<str> {
        &self.names[id.index()]
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Never: cpu, memory and ephemeral storage are always there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// Amounts per resource, sorted by id, zero entries left out.
pub type Resources = SmallVec<[(ResId, i64); 4]>;

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// What the name of a resource begins with in a quota; it has to be a name with that, too.
const QUOTA: &str = "requests.";

/// Upstream's `IsExtendedResourceName`.
pub(crate) fn is_extended_resource(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && super::validate::is_qualified_under(QUOTA, name)
}

/// Upstream's `IsScalarResourceName`: extended, hugepages, attachable volumes
/// and prefixed native resources.
#[must_use]
pub fn is_scalar_resource(name: &str) -> bool {
    name.contains("kubernetes.io/")
        || name.starts_with("hugepages-")
        || name.starts_with("attachable-volumes-")
        || is_extended_resource(name)
}

/// A container without a request counts as this much when nodes are scored.
const DEFAULT_MILLI_CPU: i64 = 100;
const DEFAULT_MEMORY: i64 = 200 * 1024 * 1024;

/// Everything the plugins need to know of a pod's requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodRequests {
    /// What Fit checks: the spec with pod-level resources.
    pub fit: Resources,
    /// What the node is charged: the spec, raised by what in-place resize has
    /// allocated and actuated.
    pub charged: Resources,
    /// As `charged`, with defaults for containers that ask for no cpu.
    pub nonzero_cpu: i64,
    /// As `charged`, with defaults for containers that ask for no memory.
    pub nonzero_memory: i64,
    /// What Fit's scorer adds: container sums with defaults, pod-level left out.
    pub score: Resources,
}

type Sums<'a> = BTreeMap<&'a str, Quantity>;

#[derive(Clone, Copy)]
struct Options {
    use_status: bool,
    pod_level: bool,
    default_cpu: bool,
    default_memory: bool,
}

impl PodRequests {
    /// Aggregates a pod's requests.
    pub fn of(pod: &k8s::Pod, table: &mut ResourceTable) -> Self {
        let plain = Options {
            use_status: false,
            pod_level: true,
            default_cpu: false,
            default_memory: false,
        };
        let fit = pod_requests(pod, plain);
        let pod_level = pod_level_requests_set(pod);
        let use_status = says_of_resources(pod);
        let charged = if use_status {
            pod_requests(pod, Options { use_status, ..plain })
        } else {
            fit.clone()
        };
        let defaults = Options {
            use_status,
            default_cpu: !pod_level || !charged.contains_key("cpu"),
            default_memory: !pod_level || !charged.contains_key("memory"),
            ..plain
        };
        let nonzero = pod_requests(pod, defaults);
        let score = if use_status || pod_level {
            let all = Options { default_cpu: true, default_memory: true, ..plain };
            pod_requests(pod, Options { pod_level: false, ..all })
        } else {
            nonzero.clone()
        };
        let amount = |sums: &Sums<'_>, name| sums.get(name).copied().unwrap_or_default();
        Self {
            nonzero_cpu: amount(&nonzero, "cpu").milli_value(),
            nonzero_memory: amount(&nonzero, "memory").value(),
            fit: resources(&fit, table),
            charged: resources(&charged, table),
            score: resources(&score, table),
        }
    }

    /// [`PodRequests::charged`] alone.
    pub fn charged_of(pod: &k8s::Pod, table: &mut ResourceTable) -> Resources {
        let (default_cpu, default_memory) = (false, false);
        let use_status = says_of_resources(pod);
        let options = Options { use_status, pod_level: true, default_cpu, default_memory };
        resources(&pod_requests(pod, options), table)
    }
}

/// Whether the status has a say in what the pod takes from its node: something was resized,
/// or is to be.
fn says_of_resources(pod: &k8s::Pod) -> bool {
    let status = &pod.status;
    let mut containers = status.container_statuses.iter().chain(&status.init_container_statuses);
    status.resources.is_some()
        || status.allocated_resources.is_some()
        || containers.any(|c| c.resources.is_some() || c.allocated_resources.is_some())
        || resize_infeasible(pod)
}

fn resources(sums: &Sums<'_>, table: &mut ResourceTable) -> Resources {
    let mut out = Resources::new();
    for (&name, &quantity) in sums {
        if let Some(id) = table.intern_request(name) {
            let amount = amount_of(id, quantity);
            if amount != 0 {
                out.push((id, amount));
            }
        }
    }
    out.sort_unstable();
    out.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1 = kept.1.saturating_add(next.1);
        }
        same
    });
    out
}

/// The integer a column holds: thousandths of cpu, whole units of the rest.
pub(crate) fn amount_of(id: ResId, quantity: Quantity) -> i64 {
    if id == ResId::CPU { quantity.milli_value() } else { quantity.value() }
}

fn supports_pod_level(name: &str) -> bool {
    name == "cpu" || name == "memory" || name.starts_with("hugepages-")
}

fn pod_level_requests_set(pod: &k8s::Pod) -> bool {
    let requests = pod.spec.resources.as_ref().map(|r| &r.requests);
    requests.is_some_and(|r| r.keys().any(|name| supports_pod_level(name)))
}

fn resize_infeasible(pod: &k8s::Pod) -> bool {
    let pending = pod.status.conditions.iter().find(|c| c.kind == "PodResizePending");
    pending.is_some_and(|c| c.reason == "Infeasible")
}

fn pod_requests(pod: &k8s::Pod, options: Options) -> Sums<'_> {
    let mut sums = aggregate_containers(pod, options);
    if options.pod_level
        && pod_level_requests_set(pod)
        && let Some(spec) = &pod.spec.resources
    {
        let mut effective = to_sums(&spec.requests);
        if options.use_status
            && let Some(actuated) = &pod.status.resources
        {
            if resize_infeasible(pod) {
                effective.clear();
            }
            raise(&mut effective, actuated.requests.as_ref().map(to_sums).unwrap_or_default());
            raise(
                &mut effective,
                pod.status.allocated_resources.as_ref().map(to_sums).unwrap_or_default(),
            );
        }
        for (name, quantity) in effective {
            if supports_pod_level(name) {
                sums.insert(name, quantity);
            }
        }
    }
    add(&mut sums, to_sums(&pod.spec.overhead));
    sums
}

fn aggregate_containers(pod: &k8s::Pod, options: Options) -> Sums<'_> {
    let spec = aggregate(pod, options, |c, _| Some(&c.resources.requests));
    if !options.use_status {
        return spec;
    }
    let infeasible = resize_infeasible(pod);
    let pod_actuated = pod.status.resources.as_ref().and_then(|r| r.requests.as_ref());
    let (allocated, actuated) = match (&pod.status.allocated_resources, pod_actuated) {
        (Some(allocated), Some(actuated)) => (to_sums(allocated), to_sums(actuated)),
        _ => {
            let spec_unless_infeasible = |c| if infeasible { None } else { Some(spec_of(c)) };
            (
                aggregate(pod, options, |c, s| {
                    s.and_then(|s| s.allocated_resources.as_ref())
                        .or_else(|| spec_unless_infeasible(c))
                }),
                aggregate(pod, options, |c, s| {
                    s.and_then(|s| s.resources.as_ref()?.requests.as_ref())
                        .or_else(|| s.and_then(|s| s.allocated_resources.as_ref()))
                        .or_else(|| spec_unless_infeasible(c))
                }),
            )
        }
    };
    let mut sums = if infeasible { actuated.clone() } else { spec };
    if !infeasible {
        raise(&mut sums, actuated);
    }
    raise(&mut sums, allocated);
    sums
}

fn spec_of(container: &k8s::Container) -> &ResourceList {
    &container.resources.requests
}

fn aggregate<'a>(
    pod: &'a k8s::Pod,
    options: Options,
    list: impl Fn(&'a k8s::Container, Option<&'a k8s::ContainerStatus>) -> Option<&'a ResourceList>,
) -> Sums<'a> {
    let requests = |container: &'a k8s::Container| {
        let status = if options.use_status { container_status(pod, &container.name) } else { None };
        let mut sums = list(container, status).map(to_sums).unwrap_or_default();
        if options.default_cpu {
            sums.entry("cpu").or_insert_with(|| Quantity::from_millis(DEFAULT_MILLI_CPU));
        }
        if options.default_memory {
            sums.entry("memory").or_insert_with(|| Quantity::from_units(DEFAULT_MEMORY));
        }
        sums
    };
    let mut result = Sums::new();
    for container in &pod.spec.containers {
        add(&mut result, requests(container));
    }
    // An ordinary init container runs beside the sidecars started before it.
    let mut sidecars = Sums::new();
    let mut peak = Sums::new();
    for container in &pod.spec.init_containers {
        let own = requests(container);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut result, own.clone());
            add(&mut sidecars, own);
            raise(&mut peak, sidecars.clone());
        } else {
            let mut together = own;
            add(&mut together, sidecars.clone());
            raise(&mut peak, together);
        }
    }
    raise(&mut result, peak);
    result
}

fn container_status<'a>(pod: &'a k8s::Pod, name: &str) -> Option<&'a k8s::ContainerStatus> {
    let mut all = pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses);
    all.find(|s| s.name == name)
}

fn to_sums(list: &ResourceList) -> Sums<'_> {
    list.iter().map(|(name, &quantity)| (name.as_str(), quantity)).collect()
}

fn add<'a>(sums: &mut Sums<'a>, other: Sums<'a>) {
    for (name, quantity) in other {
        *sums.entry(name).or_default() += quantity;
    }
}

fn raise<'a>(sums: &mut Sums<'a>, other: Sums<'a>) {
    for (name, quantity) in other {
        let entry = sums.entry(name).or_insert(quantity);
        *entry = (*entry).max(quantity);
    }
}
