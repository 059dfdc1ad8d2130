//! What a pod asks for, as the kubelet counts it.
//!
//! Shares no code with the core on purpose: the checker uses it to judge the core.

use std::collections::BTreeMap;

use muster_api::k8s::{PodSpec, Quantity, ResourceList};

/// Amounts per resource: thousandths for `cpu`, whole units for the rest.
pub(crate) type Amounts = BTreeMap<String, i64>;

/// The amounts of a resource list.
pub(crate) fn amounts(list: &ResourceList) -> Amounts {
    list.iter()
        .map(|(name, quantity)| {
            let cpu = name == "cpu";
            (name.clone(), if cpu { quantity.milli_value() } else { quantity.value() })
        })
        .collect()
}

/// What the pod asks for, itself (`pods: 1`) included.
pub(crate) fn pod_requests(spec: &PodSpec) -> Amounts {
    // Containers and sidecars run together; an init container runs beside the
    // sidecars before it, so the pod needs the larger of the two.
    let mut together = ResourceList::new();
    let mut peak = ResourceList::new();
    for init in &spec.init_containers {
        let mut here = together.clone();
        add(&mut here, &init.resources.requests);
        if init.restart_policy.as_deref() == Some("Always") {
            together = here;
        } else {
            raise(&mut peak, &here);
        }
    }
    for container in &spec.containers {
        add(&mut together, &container.resources.requests);
    }
    raise(&mut together, &peak);
    if let Some(pod_level) = &spec.resources {
        for (name, quantity) in &pod_level.requests {
            together.insert(name.clone(), *quantity);
        }
    }
    add(&mut together, &spec.overhead);
    together.insert("pods".to_owned(), Quantity::from_units(1));
    amounts(&together)
}

fn add(sum: &mut ResourceList, list: &ResourceList) {
    for (name, quantity) in list {
        *sum.entry(name.clone()).or_default() += *quantity;
    }
}

fn raise(most: &mut ResourceList, list: &ResourceList) {
    for (name, quantity) in list {
        let entry = most.entry(name.clone()).or_default();
        *entry = (*entry).max(*quantity);
    }
}

/// Devices that people call GPUs.
pub(crate) fn gpus(amounts: &Amounts) -> i64 {
    amounts.iter().filter(|(name, _)| name.ends_with("/gpu")).map(|(_, amount)| amount).sum()
}

/// Thousandths of a CPU.
pub(crate) fn cpu(amounts: &Amounts) -> i64 {
    amounts.get("cpu").copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(yaml: &str) -> Amounts {
        pod_requests(&serde_saphyr::from_str::<PodSpec>(yaml).unwrap())
    }

    #[test]
    fn containers_add_init_containers_peak_and_sidecars_stay() {
        let spec = "
initContainers:
  - {name: big, resources: {requests: {cpu: 3}}}
  - {name: side, restartPolicy: Always, resources: {requests: {cpu: 500m}}}
  - {name: after, resources: {requests: {cpu: 1}}}
containers:
  - {name: a, resources: {requests: {cpu: 1, memory: 1Ki, nvidia.com/gpu: 2}}}
  - {name: b, resources: {requests: {cpu: 1}}}
overhead: {cpu: 100m}
";
        // together 0.5 + 1 + 1 = 2.5; peak max(3, 0.5 + 1) = 3; overhead 0.1
        let amounts = requests(spec);
        assert_eq!(cpu(&amounts), 3_100);
        assert_eq!(gpus(&amounts), 2);
        assert_eq!(amounts["memory"], 1024);
        assert_eq!(amounts["pods"], 1);
    }

    #[test]
    fn pod_level_requests_replace_the_sum() {
        let spec = "
containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Ki}}}]
resources: {requests: {cpu: 4}}
";
        let amounts = requests(spec);
        assert_eq!((cpu(&amounts), amounts["memory"]), (4_000, 1024));
    }
}
