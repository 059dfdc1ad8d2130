//! What a wrong scenario is told, and that examples are right.

use muster_sim::Scenario;
use muster_sim::limits::MAX_SCENARIO_BYTES;

use super::{example, parse, run};

const NODES: &str = "nodes: [{name: n, allocatable: {cpu: 4, memory: 8Gi}}]\n";
const PODS: &str = "workloads: [{name: p, kind: Pod, requests: {cpu: 1}}]\n";

fn error(yaml: &str) -> String {
    match Scenario::parse(yaml, "s.yaml") {
        Ok(_) => panic!("accepted:\n{yaml}"),
        Err(e) => e.to_string(),
    }
}

/// The error of a scenario with this one workload, or this node group, or these events.
fn workload(fields: &str) -> String {
    error(&format!("{NODES}workloads: [{{{fields}}}]\n"))
}

/// The error of a workload with this pod group.
fn group(fields: &str) -> String {
    workload(&format!("name: p, kind: Pod, requests: {{cpu: 1}}, podGroup: {{{fields}}}"))
}

fn node(fields: &str) -> String {
    error(&format!("{PODS}nodes: [{{{fields}}}]\n"))
}

fn event(fields: &str) -> String {
    error(&format!("{NODES}{PODS}events: [{{{fields}}}]\n"))
}

#[test]
fn errors_say_where_what_and_what_to_write_instead() {
    let table = [
        (error("- a"), "s.yaml:1:1: expected a map of fields, found a list"),
        (error("nodes: [}"), "s.yaml:1:8: not valid YAML: "),
        (error("seed: 1\nseed: 2"), "s.yaml:2:1: not valid YAML: duplicate mapping key: seed"),
        (error("sede: 1"), "s.yaml:1:1: sede: unknown field; did you mean \"seed\"?"),
        (
            error("replicas: 1"),
            "s.yaml:1:1: replicas: unknown field; known here: name, seed, until, nodes, workloads, events",
        ),
        (
            error(NODES),
            "s.yaml:1:1: the field \"workloads\" is missing: list at least one workload",
        ),
        (
            error(&format!("{NODES}{PODS}seed: -1")),
            "s.yaml:3:7: seed: -1 is out of range; write 0 to",
        ),
        (error(&format!("{NODES}{PODS}until: 5")), "until: 5 has no unit; write e.g. 5s or 5m"),
        (
            error(&format!("{NODES}{PODS}until: soon")),
            "until: \"soon\" is not a duration; write e.g.",
        ),
        (error(&format!("{NODES}{PODS}until: 9999d")), "until: must be at most 365d"),
        // Nodes.
        (node("name: a"), "nodes[0]: the field \"allocatable\" is missing: e.g. {cpu: 96"),
        (node("name: a, allocatable: {cpu: 1}"), "nodes[0].allocatable: \"memory\" is missing"),
        (
            node("name: a, allocatable: {cpu: 1, memory: 1Gi, gpu: 8}"),
            "nodes[0].allocatable.gpu: not a resource name; did you mean \"nvidia.com/gpu\"?",
        ),
        (
            node("name: a, allocatable: {cpu: 1, memory: 1Gi}, machine: dgx"),
            "nodes[0].machine: \"dgx\" is no machine; write one of hgx, hgx-restricted, hgx-single-numa-node",
        ),
        (
            node("name: a, allocatable: {cpu: 1, memory: 1Gi, nvidia.com/gpu: 4}, machine: hgx"),
            "nodes[0].machine: an hgx has 8 GPUs, and allocatable says 4; write nvidia.com/gpu: 8",
        ),
        (
            error(&format!("{NODES}{PODS}scheduler: {{with: {{NodeName: 1}}}}")),
            "scheduler.with.NodeName: \"NodeName\" is no plugin that can be added",
        ),
        (
            error(&format!("{NODES}{PODS}scheduler: {{strategy: Most}}")),
            "scheduler.strategy: \"Most\" is not known here; write LeastAllocated or MostAllocated",
        ),
        (
            node("name: a, allocatable: {cpu: 1, memory: 1gb}"),
            "nodes[0].allocatable.memory: quantity \"1gb\" must match",
        ),
        (
            node("name: a, allocatable: {cpu: 1, memory: 1Gi, nvidia.com/gpu: 0.5}"),
            "nodes[0].allocatable: \"nvidia.com/gpu\" is counted in whole numbers, not 500m",
        ),
        (
            node("name: a, count: 2, allocatable: {cpu: 1, memory: 1Gi}"),
            "nodes[0].name: 2 nodes would have the same name; put {i} into it, e.g. gpu-{i}",
        ),
        (
            node("name: 'a-{j}', allocatable: {cpu: 1, memory: 1Gi}"),
            "nodes[0].name: \"a-{j}\": only {i}, {i/N} and {i%N} may stand in braces",
        ),
        (
            node("name: Node_1, allocatable: {cpu: 1, memory: 1Gi}"),
            "nodes[0].name: \"Node_1\" is not a Kubernetes name: use lower case letters",
        ),
        (
            node("name: a, labels: {gpu: true}, allocatable: {cpu: 1, memory: 1Gi}"),
            "nodes[0].labels.gpu: expected a text, found true; put it in quotes",
        ),
        (
            node("name: a, taints: [{key: k, effect: Never}], allocatable: {cpu: 1, memory: 1Gi}"),
            "nodes[0].taints[0].effect: \"Never\"; write NoSchedule, PreferNoSchedule, NoExecute",
        ),
        (
            node("name: 'a-{i}', count: 100001, allocatable: {cpu: 1, memory: 1Gi}"),
            "nodes[0].count: 100001 is out of range; write 1 to 100000",
        ),
        // Workloads.
        (
            workload("name: p, kind: Deployment"),
            "workloads[0].kind: \"Deployment\"; write Pod, Job, ReplicaSet or StatefulSet",
        ),
        (
            workload("name: p, kind: Pod"),
            "workloads[0]: the field \"requests\" is missing: what each pod asks for",
        ),
        (
            workload("name: p, kind: Pod, reqests: {cpu: 1}"),
            "workloads[0].reqests: unknown field; did you mean \"requests\"?",
        ),
        (
            workload("name: p, kind: Job, requests: {cpu: 1}"),
            "workloads[0]: the field \"runtime\" is missing: how long each pod of the job runs",
        ),
        (
            workload("name: p, kind: Job, replicas: 2, runtime: 1m, requests: {cpu: 1}"),
            "workloads[0].replicas: only kind Pod has it; for a Job write parallelism and completions",
        ),
        (
            workload("name: p, kind: Pod, completions: 2, requests: {cpu: 1}"),
            "workloads[0].completions: only a Job has it; for pods write replicas",
        ),
        (
            workload("name: p, kind: Pod, every: 1m, requests: {cpu: 1}"),
            "workloads[0].every: say how often in all with repeat",
        ),
        (
            workload("name: p, kind: Pod, runtime: {min: 2m, max: 1m}, requests: {cpu: 1}"),
            "workloads[0].runtime.max: must not be less than min",
        ),
        (
            workload("name: p, kind: Pod, requests: {cpu: -1}"),
            "workloads[0].requests.cpu: must not be negative",
        ),
        (
            workload("name: p, kind: Pod, requests: {pods: 1}"),
            "workloads[0].requests: \"pods\" cannot be requested; each pod counts as one",
        ),
        (
            workload(
                "name: p, kind: Pod, replicas: 200000, every: 1s, repeat: 2, requests: {cpu: 1}",
            ),
            "workloads: 400000 pods in all; at most 200000 are allowed",
        ),
        (
            workload("name: p, kind: Pod, podTemplate: {containers: []}"),
            "workloads[0].podTemplate.containers: unknown field; known here: metadata, spec",
        ),
        (
            workload("name: p, kind: Pod, podTemplate: {spec: {tolerationz: []}}"),
            "workloads[0].podTemplate.spec.tolerationz: unknown field; did you mean \"tolerations\"?",
        ),
        (
            workload("name: p, kind: Pod, podTemplate: {spec: {priority: high}}"),
            "workloads[0].podTemplate.spec.priority: invalid type: string \"high\", expected i32",
        ),
        (
            workload("name: p, kind: Pod, podTemplate: {spec: {nodeName: n}}"),
            "workloads[0].podTemplate.spec.nodeName: the scheduler chooses; to pin a pod use nodeSelector",
        ),
        (
            workload("name: p, kind: Pod, priority: 1, podTemplate: {spec: {priority: 2}}"),
            "workloads[0].priority: podTemplate says it too; write it once",
        ),
        (
            error(&format!(
                "{NODES}workloads: [{{name: a, kind: Pod, requests: {{cpu: 1}}}}, \
                 {{name: a-1, kind: Pod, requests: {{cpu: 1}}}}]"
            )),
            "workloads: the pods of \"a\" could be named as those of \"a-1\"; rename one",
        ),
        // Policies.
        (
            event("at: 1s, policy: {name: p, spec: {priority: 1, wieghts: []}}"),
            "events[0].policy.spec: a field is not known, or is empty",
        ),
        (
            event("at: 1s, policy: {name: p, spec: {priority: high}}"),
            "events[0].policy.spec: invalid type: string \"high\", expected i32",
        ),
        (event("at: 1s, policy: {name: p}"), "the field \"spec\" is missing"),
        // Pod groups.
        (
            group("roles: []"),
            "workloads[0].podGroup: the field \"minMember\" is missing: how many pods start together",
        ),
        (group("minMember: 0"), "podGroup.minMember: 0 is out of range; write 1 to 10000"),
        (group("minMembers: 1"), "podGroup.minMembers: unknown field; did you mean \"minMember\"?"),
        (
            group("minMember: 1, roles: [{name: a, minMember: 2, matchLabels: {a: b}}]"),
            "podGroup.minMember: must be at least 2, the sum of the roles' minMember",
        ),
        (
            group("roles: [{name: a, minMember: 1}]"),
            "podGroup.roles[0]: the field \"matchLabels\" is missing: the labels of its pods",
        ),
        (
            group("roles: [{name: a, minMember: 1, matchLabels: {}}]"),
            "podGroup.roles[0].matchLabels: must not be empty",
        ),
        (
            group(
                "roles: [{name: a, minMember: 1, matchLabels: {a: b}}, \
                 {name: a, minMember: 1, matchLabels: {a: c}}]",
            ),
            "podGroup.roles[1].name: two roles are named \"a\"; rename one",
        ),
        (
            group("minMember: 2, whenHalfBound: Evict"),
            "podGroup.whenHalfBound: \"Evict\"; write Release or Wait",
        ),
        (
            group("minMember: 2, scheduleTimeoutSeconds: 0"),
            "podGroup.scheduleTimeoutSeconds: 0 is out of range; write 1 to 604800",
        ),
        (group("minMember: 2, after: 5"), "podGroup.after: 5 has no unit; write e.g. 5s"),
        (
            workload(
                "name: p, kind: Pod, labels: {muster.dev/pod-group: q}, requests: {cpu: 1}, \
                 podGroup: {minMember: 1}",
            ),
            "podGroup: the label muster.dev/pod-group names a pod group too; write one of them",
        ),
        (
            workload(&format!(
                "name: {}, kind: Pod, requests: {{cpu: 1}}, podGroup: {{minMember: 1}}",
                "n".repeat(64)
            )),
            "podGroup: a pod group has the name of its workload, at most 63 characters; shorten it",
        ),
        // Events.
        (event("at: 1m"), "events[0]: name exactly one of cordon, uncordon, remove, add"),
        (event("at: 1m, cordon: n, remove: n"), "events[0]: name exactly one of cordon"),
        (
            event("at: 1m, cordon: m"),
            "events[0]: \"m\": there is no node of this name at that time",
        ),
        (
            event("at: 1m, add: n"),
            "events[0]: \"n\": only a node removed before can come back by its name",
        ),
        (
            event("at: 1m, add: {name: n, allocatable: {cpu: 1, memory: 1Gi}}"),
            "nodes: two nodes are named \"n\"; rename one group",
        ),
    ];
    let wrong: Vec<String> = table
        .iter()
        .filter(|(actual, expected)| !actual.contains(expected))
        .map(|(actual, expected)| format!("expected {expected}\n   found {actual}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_huge_file_is_refused_before_it_is_parsed() {
    let error = error(&"#".repeat(MAX_SCENARIO_BYTES + 1));
    assert!(error.contains("at most 4194304 are read"), "{error}");
}

#[test]
fn the_examples_are_what_they_say() {
    let (_, quickstart) = example("quickstart");
    assert_eq!((quickstart.node_count(), quickstart.name.as_str()), (12, "quickstart"));
    let (_, scale) = example("scale");
    assert_eq!((scale.node_count(), scale.pod_count()), (1_000, 10_000));
}

#[test]
fn urgent_work_makes_room_and_budgets_hold() {
    let (_, scenario) = example("preemption");
    let outcome = run(&scenario, None);
    assert!(outcome.verdict.is_clean(), "{:?}", outcome.verdict.violations);
    let counts = outcome.faults;
    assert!(counts.preempted >= 3 && counts.dry_runs >= counts.preempted, "{counts:?}");
    let mut urgent = outcome.record.pods.iter().filter(|p| p.workload == 2);
    assert!(urgent.all(|p| p.bound.is_some()));
}

#[test]
fn a_pod_template_is_read_as_kubernetes_writes_it() {
    let scenario = parse(&format!(
        "{NODES}workloads:
  - name: p
    kind: Pod
    podTemplate:
      metadata: {{labels: {{app: web}}}}
      spec:
        restartPolicy: Never
        priority: 7
        containers: [{{name: a, image: x, resources: {{requests: {{cpu: 0.5, memory: 1Gi}}}}}}]
        topologySpreadConstraints:
          - {{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}}
"
    ));
    let pod = &scenario.workloads[0].template;
    assert_eq!(pod.metadata.labels["app"], "web");
    assert_eq!((pod.spec.priority, pod.spec.scheduler_name.as_str()), (Some(7), "muster"));
    assert_eq!(pod.spec.containers[0].resources.requests["cpu"].milli_value(), 500);
    assert_eq!(pod.spec.topology_spread_constraints[0].max_skew, 1);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(300))]

    /// A broken file is an error, never a panic.
    #[test]
    fn no_text_panics(line in 0usize..90, what in "[-{}:\\[\\] a-z0-9\"'&*!|>%@]{0,12}", cut in 0usize..40) {
        let (text, _) = example("quickstart");
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        if let Some(line) = lines.get_mut(line) {
            let end = cut.min(line.len());
            *line = format!("{}{what}", line.get(..end).unwrap_or_default());
        }
        let _ = Scenario::parse(&lines.join("\n"), "s.yaml");
    }
}

/// Pods of three waves on two nodes: spread by default, packed by a policy, spread again.
#[test]
fn a_policy_acts_from_its_event_to_its_end() {
    let scenario = parse(
        "nodes: [{name: \"n-{i}\", count: 2, allocatable: {cpu: 64, memory: 64Gi}}]\n\
         workloads:\n\
         - {name: before, kind: Pod, replicas: 6, at: 10s, requests: {cpu: 1, memory: 1Gi}}\n\
         - {name: under, kind: Pod, replicas: 6, at: 2m, requests: {cpu: 1, memory: 1Gi}}\n\
         - {name: after, kind: Pod, replicas: 6, at: 4m, requests: {cpu: 1, memory: 1Gi}}\n\
         events:\n\
         - {at: 1m, policy: {name: pack, spec: {priority: 1, placement: {strategy: Pack}}}}\n\
         - {at: 3m, deletePolicy: pack}\n",
    );
    let outcome = run(&scenario, None);
    let on_first = |workload: u32| {
        let pods = outcome.record.pods.iter().filter(|p| p.workload == workload);
        let mut counts = [0, 0];
        pods.for_each(|p| counts[p.node.expect("it is bound") as usize] += 1);
        counts.into_iter().max().unwrap_or(0)
    };
    // After six packed ones three and nine pods are there: the next six make up for it.
    assert_eq!([on_first(0), on_first(1), on_first(2)], [3, 6, 6]);
}
