//! What pods ask for, and what a shape tells apart.

use muster_api::k8s;
use serde_json::json;

use super::{PodRequests, ResourceTable, Resources, is_extended_resource, is_scalar_resource};
use crate::testing::{PodExt, pod};

const MI: i64 = 1024 * 1024;
const GPU: &str = "example.com/gpu";

fn named(resources: &Resources, table: &ResourceTable) -> Vec<(String, i64)> {
    resources.iter().map(|(id, amount)| (table.name(*id).to_string(), *amount)).collect()
}

struct Row {
    name: &'static str,
    pod: k8s::Pod,
    /// What Fit checks.
    fit: &'static [(&'static str, i64)],
    /// What the node is charged, if it differs.
    charged: Option<&'static [(&'static str, i64)]>,
    /// (cpu, memory) with defaults.
    nonzero: (i64, i64),
}

fn check(rows: Vec<Row>) {
    for row in rows {
        let mut table = ResourceTable::default();
        let got = PodRequests::of(&row.pod, &mut table);
        let list = |l: &[(&str, i64)]| l.iter().map(|(n, a)| ((*n).into(), *a)).collect::<Vec<_>>();
        assert_eq!(named(&got.fit, &table), list(row.fit), "{}: fit", row.name);
        let charged = row.charged.unwrap_or(row.fit);
        assert_eq!(named(&got.charged, &table), list(charged), "{}: charged", row.name);
        assert_eq!((got.nonzero_cpu, got.nonzero_memory), row.nonzero, "{}: nonzero", row.name);
    }
}

fn row(
    name: &'static str,
    pod: k8s::Pod,
    fit: &'static [(&'static str, i64)],
    nonzero: (i64, i64),
) -> Row {
    Row { name, pod, fit, charged: None, nonzero }
}

#[test]
fn containers_init_containers_sidecars_and_overhead_add_up() {
    let c = |cpu: &'static str| [("cpu", cpu), ("memory", "0")];
    check(vec![
        row("a pod without containers asks for nothing", pod("p"), &[], (0, 0)),
        row(
            "containers are summed",
            pod("p").req(&c("1")).req(&c("500m")),
            &[("cpu", 1500)],
            (1500, 0),
        ),
        // max(1000, 3000) = 3000.
        row(
            "an init container counts where it is more than all containers",
            pod("p").req(&c("1")).init(&c("3")),
            &[("cpu", 3000)],
            (3000, 0),
        ),
        row(
            "a small init container does not count",
            pod("p").req(&c("1")).init(&c("500m")).init(&c("1")),
            &[("cpu", 1000)],
            (1000, 0),
        ),
        // Sidecar 500 runs beside the container: 1500.
        row(
            "a sidecar runs beside the containers",
            pod("p").sidecar(&c("500m")).req(&c("1")),
            &[("cpu", 1500)],
            (1500, 0),
        ),
        // Init 2000 beside the sidecar before it: 2500; containers + sidecars 1500.
        row(
            "an init container runs beside the sidecars before it",
            pod("p").sidecar(&c("500m")).init(&c("2")).req(&c("1")),
            &[("cpu", 2500)],
            (2500, 0),
        ),
        // The sidecar comes later: init alone 2000; containers + sidecars 1500.
        row(
            "an init container does not wait for sidecars after it",
            pod("p").init(&c("2")).sidecar(&c("500m")).req(&c("1")),
            &[("cpu", 2000)],
            (2000, 0),
        ),
        // max(1000 + 300, 1300 sidecar sum 300) + overhead 50.
        row(
            "overhead is added to the peak",
            pod("p").req(&c("1")).sidecar(&c("300m")).overhead(&[("cpu", "50m")]),
            &[("cpu", 1350)],
            (1350, 0),
        ),
        // Each resource has its own peak: cpu from init, memory from the container.
        row(
            "peaks are per resource",
            pod("p")
                .req(&[("cpu", "1"), ("memory", "64Mi")])
                .init(&[("cpu", "2"), ("memory", "32Mi")]),
            &[("cpu", 2000), ("memory", 64 * MI)],
            (2000, 64 * MI),
        ),
        // 1n + 1n summed before rounding: 2n, rounded up to one thousandth.
        row(
            "sums are exact and rounded up once",
            pod("p").req(&c("1n")).req(&c("1n")),
            &[("cpu", 1)],
            (1, 0),
        ),
    ]);
}

#[test]
fn what_a_container_does_not_ask_for_has_a_default_when_scored() {
    check(vec![
        row("one container, nothing asked", pod("p").req(&[]), &[], (100, 200 * MI)),
        row("two containers", pod("p").req(&[]).req(&[]), &[], (200, 400 * MI)),
        row(
            "an explicit zero is not missing",
            pod("p").req(&[("cpu", "0"), ("memory", "0")]),
            &[],
            (0, 0),
        ),
        row(
            "each resource has its own default",
            pod("p").req(&[("cpu", "1")]).req(&[("memory", "1Mi")]),
            &[("cpu", 1000), ("memory", MI)],
            (1100, 201 * MI),
        ),
        // Init containers default too: max(100, 100) and max(200Mi, 200Mi).
        row("an init container", pod("p").req(&[]).init(&[]), &[], (100, 200 * MI)),
        row("a sidecar", pod("p").req(&[]).sidecar(&[]), &[], (200, 400 * MI)),
        row(
            "overhead comes on top",
            pod("p").req(&[]).overhead(&[("cpu", "10m")]),
            &[("cpu", 10)],
            (110, 200 * MI),
        ),
    ]);
}

#[test]
fn pod_level_requests_replace_the_sums_of_what_they_name() {
    check(vec![
        // memory is named at neither level: 200Mi by default.
        row(
            "cpu of the pod replaces cpu of the containers",
            pod("p").req(&[("cpu", "1"), (GPU, "1")]).pod_level(&[("cpu", "500m")]),
            &[("cpu", 500), (GPU, 1)],
            (500, 200 * MI),
        ),
        row(
            "a level that names nothing supported replaces nothing",
            pod("p").req(&[("cpu", "1")]).pod_level(&[(GPU, "4")]),
            &[("cpu", 1000)],
            (1000, 200 * MI),
        ),
        row(
            "hugepages are supported",
            pod("p").req(&[]).pod_level(&[("hugepages-2Mi", "4Mi"), ("cpu", "1")]),
            &[("cpu", 1000), ("hugepages-2Mi", 4 * MI)],
            (1000, 200 * MI),
        ),
        row(
            "no default for what the other level names",
            pod("p").req(&[("memory", "1Mi")]).req(&[]).pod_level(&[("cpu", "1")]),
            &[("cpu", 1000), ("memory", MI)],
            (1000, MI),
        ),
        row(
            "overhead comes on top of the pod level",
            pod("p").req(&[]).pod_level(&[("cpu", "1")]).overhead(&[("cpu", "100m")]),
            &[("cpu", 1100)],
            (1100, 200 * MI),
        ),
    ]);
}

#[test]
fn a_node_is_charged_the_most_of_spec_allocated_and_actuated() {
    let asks = || pod("p").req(&[("cpu", "1"), ("memory", "0")]);
    let status = |allocated: &str, actuated: &str| {
        json!({"containerStatuses": [{
            "name": "c0",
            "allocatedResources": {"cpu": allocated},
            "resources": {"requests": {"cpu": actuated}},
        }]})
    };
    let infeasible = |mut status: serde_json::Value| {
        status["conditions"] = json!([{"type": "PodResizePending", "reason": "Infeasible"}]);
        status
    };
    let deferred = |mut status: serde_json::Value| {
        status["conditions"] = json!([{"type": "PodResizePending", "reason": "Deferred"}]);
        status
    };
    let resized = |name, status, charged, cpu| Row {
        name,
        pod: asks().status(status),
        fit: &[("cpu", 1000)],
        charged: Some(charged),
        // Status lists leave memory out: the default stands in for it there.
        nonzero: (cpu, 200 * MI),
    };
    check(vec![
        resized("being shrunk: still actuated", status("1", "3"), &[("cpu", 3000)], 3000),
        resized("being shrunk: still allocated", status("2", "1"), &[("cpu", 2000)], 2000),
        resized("being grown: the spec counts", status("500m", "500m"), &[("cpu", 1000)], 1000),
        resized(
            "an infeasible growth is not charged",
            infeasible(status("500m", "600m")),
            &[("cpu", 600)],
            600,
        ),
        resized("a deferred growth is", deferred(status("500m", "600m")), &[("cpu", 1000)], 1000),
        Row {
            name: "infeasible without any status: nothing is known to be held",
            pod: asks().status(infeasible(json!({}))),
            fit: &[("cpu", 1000)],
            charged: Some(&[]),
            nonzero: (100, 200 * MI),
        },
        Row {
            name: "a status of another container says nothing",
            pod: asks().status(json!({"containerStatuses": [
                {"name": "other", "allocatedResources": {"cpu": "9"}}]})),
            fit: &[("cpu", 1000)],
            charged: None,
            nonzero: (1000, 0),
        },
        Row {
            name: "pod-level status, when complete, stands for the containers'",
            pod: asks().status(json!({
                "allocatedResources": {"cpu": "4"},
                "resources": {"requests": {"cpu": "2"}},
                "containerStatuses": [{"name": "c0", "allocatedResources": {"cpu": "9"}}],
            })),
            fit: &[("cpu", 1000)],
            charged: Some(&[("cpu", 4000)]),
            nonzero: (4000, 0),
        },
        Row {
            name: "pod-level requests are raised by the pod-level status",
            pod: asks().pod_level(&[("cpu", "2")]).status(json!({
                "resources": {"requests": {"cpu": "3"}},
            })),
            fit: &[("cpu", 2000)],
            charged: Some(&[("cpu", 3000)]),
            nonzero: (3000, 0),
        },
    ]);
}

#[test]
fn resources_are_known_by_their_names() {
    let table = [
        ("nvidia.com/gpu", true, true),
        ("example.com/a.b_c-d", true, true),
        ("hugepages-2Mi", true, false),
        ("attachable-volumes-aws-ebs", true, false),
        ("kubernetes.io/batch-cpu", true, false),
        ("x.kubernetes.io/y", true, false),
        ("bananas", false, false),
        ("pods", false, false),
        ("requests.example.com/x", false, false),
        ("example.com/", false, false),
        ("/x", false, false),
        ("a/b/c", false, false),
        ("UPPER.com/x", false, false),
        ("example.com/-x", false, false),
    ];
    for (name, scalar, extended) in table {
        assert_eq!(is_scalar_resource(name), scalar, "{name}");
        assert_eq!(is_extended_resource(name), extended, "{name}");
    }
    let long = format!("example.com/{}", "x".repeat(64));
    assert!(!is_scalar_resource(&long), "a name part has at most 63 bytes");
}

#[test]
fn unknown_names_are_left_out_and_zeros_too() {
    check(vec![row(
        "only what is accounted for is kept",
        pod("p").req(&[
            ("cpu", "0"),
            ("memory", "0"),
            ("bananas", "3"),
            ("a/b/c", "1"),
            ("ephemeral-storage", "1500m"),
            (GPU, "0"),
            ("hugepages-1Gi", "1Gi"),
        ]),
        &[("ephemeral-storage", 2), ("hugepages-1Gi", 1024 * MI)],
        (0, 0),
    )]);
}

#[test]
fn a_full_table_forgets_no_request() {
    let mut table = ResourceTable::default();
    let first = table.intern("first.com/gpu");
    for i in 0..2000 {
        table.intern(&format!("example.com/r{i}"));
    }
    assert!(table.len() <= 1024);
    assert_eq!(table.intern("late.com/gpu"), None, "no node offers what has no column");
    let asks = pod("p").req(&[("late.com/gpu", "1"), ("later.com/gpu", "2"), ("bananas", "1")]);
    let requests = PodRequests::of(&asks, &mut table);
    let [(id, 3)] = requests.fit.as_slice() else {
        panic!("both requests stay in one column of their own: {:?}", requests.fit);
    };
    let beyond = table.name(*id).to_string();
    assert!(id.is_scalar() && beyond.contains("beyond"), "{beyond}");
    assert_eq!(table.len(), 1024);
    assert_eq!(table.intern("first.com/gpu"), first, "what is known stays known");
    assert_eq!(table.intern(&beyond), None, "no object can name it");
}
