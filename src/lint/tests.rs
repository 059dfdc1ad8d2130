//! What is said of files, word for word.
#![allow(clippy::unwrap_used, reason = "a test may fail by a panic")]

use super::*;

fn told(text: &str) -> Vec<String> {
    let report = lint(Path::new("f.yaml"), text, &Registry::in_tree());
    report.findings.iter().map(Finding::to_string).collect()
}

fn group(spec: &str) -> String {
    format!(
        "apiVersion: muster.dev/v1alpha1\nkind: PodGroup\nmetadata: {{name: g}}\nspec: {spec}\n"
    )
}

#[test]
fn what_an_api_server_would_refuse_is_found() {
    let of = |field: &str, message: &str| {
        vec![format!("error: podgroups \"g\" (document 1): {field}: {message}")]
    };
    let cases = [
        (
            "{}",
            of(
                "spec.minMember",
                "Required value: must be set unless a role has a minMember above 0",
            ),
        ),
        ("{minMember: 0}", of("spec.minMember", "Invalid value: 0: must be at least 1")),
        (
            "{minMember: two}",
            of("spec.minMember", "Invalid value: \"two\": must be of type integer"),
        ),
        (
            "{minmember: 2, minMember: 2}",
            of("spec.minmember", "unknown field: is minMember meant?"),
        ),
        (
            "{minMember: 1, reservation: Accumulate}",
            of(
                "spec.scheduleTimeoutSeconds",
                "Required value: must be set when reservation is Accumulate: room must not be \
                 held for ever",
            ),
        ),
        (
            "{minMember: 1, reservation: Keep}",
            of(
                "spec.reservation",
                "Unsupported value: \"Keep\": supported values: \"Atomic\", \"Accumulate\"",
            ),
        ),
        (
            "{minMember: 1, topology: {required: rack, preferred: rack}}",
            of(
                "spec.topology.preferred",
                "Invalid value: must differ from required: name a narrower level, or leave it out",
            ),
        ),
        (
            "{minMember: 1, topology: {exclusive: true, preferred: rack}}",
            of(
                "spec.topology.required",
                "Required value: must be set when exclusive is true: it says which domain is not \
                 shared",
            ),
        ),
        (
            "{minMember: 1, roles: [{name: w, minMember: 2, selector: {matchLabels: {a: b}}}]}",
            of("spec.minMember", "Invalid value: must be at least the sum of the roles' minMember"),
        ),
        (
            "{minMember: 1, priorityClassName: Big}",
            of(
                "spec.priorityClassName",
                "Invalid value: \"Big\": must match \
                 ^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
            ),
        ),
    ];
    for (spec, expected) in cases {
        assert_eq!(told(&group(spec)), expected, "{spec}");
    }
    assert_eq!(told(&group("{minMember: 2}")), [""; 0]);
    let version = group("{minMember: 1}").replace("v1alpha1", "v9");
    assert_eq!(
        told(&version),
        of("apiVersion", "Unsupported value: \"v9\": supported versions: v1alpha1")
    );
}

/// Every rule is evaluated, on objects that have every field.
#[test]
fn every_rule_can_be_evaluated() {
    let text = "
apiVersion: muster.dev/v1alpha1
kind: PodGroup
metadata: {name: g}
spec:
  minMember: 8
  roles:
  - {name: w, minMember: 4, selector: {matchLabels: {a: b}}, topology: {required: rack}}
  - {name: x, minMember: 2, selector: {matchExpressions: [{key: a, operator: In, values: [b]}]}}
  topology:
    required: block
    preferred: rack
    exclusive: true
    segments: [{size: 8, required: rack}, {size: 4, preferred: host}, {size: 2, required: host}]
---
apiVersion: muster.dev/v1alpha1
kind: ClusterTopology
metadata: {name: t}
spec: {levels: [{name: block, nodeLabel: b}, {name: rack, nodeLabel: r}]}
---
apiVersion: muster.dev/v1alpha1
kind: SchedulingPolicy
metadata: {name: p}
spec:
  priority: 1
  namespaceSelector: {matchLabels: {team: ml}}
  podSelector: {matchExpressions: [{key: a, operator: Exists}]}
  placement: {strategy: PackAtLowLoad, packBelowPercent: 40, spreadAbovePercent: 60}
";
    assert_eq!(told(text), [""; 0]);
    let twice = text.replace("nodeLabel: r", "nodeLabel: b");
    assert_eq!(
        told(&twice),
        ["error: clustertopologies \"t\" (document 2): spec.levels: Invalid value: every level \
          needs a nodeLabel of its own"]
    );
    let turned = text.replace("packBelowPercent: 40", "packBelowPercent: 70");
    assert_eq!(told(&turned).len(), 1, "{:?}", told(&turned));
}

#[test]
fn gangs_that_cannot_be_whole_are_warned_of() {
    let job = |group: &str| {
        format!(
            "---\napiVersion: batch/v1\nkind: Job\nmetadata: {{name: j}}\nspec:\n  parallelism: 2\n  \
             template:\n    metadata: {{labels: {{muster.dev/pod-group: {group}}}}}\n    \
             spec: {{containers: [{{name: c}}]}}\n"
        )
    };
    assert_eq!(
        told(&(group("{minMember: 3}") + &job("g"))),
        [
            "warning: podgroups \"g\": spec.minMember: 3 members are needed and the manifest makes 2, which \
          wait until the others exist: make more, or lower the minimum"
        ]
    );
    assert_eq!(told(&(group("{minMember: 2}") + &job("g"))), [""; 0]);
    assert_eq!(
        told(&(group("{minMember: 2}") + &job("h"))),
        [
            "warning: podgroups \"h\": 2 pods of the manifest are members of it, and it is not among \
          the groups of the manifest: is it spelled right?"
        ]
    );
}

#[test]
fn configurations_are_read_as_the_scheduler_reads_them() {
    let head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
    assert_eq!(told(head), [""; 0]);
    let wrong = told(&format!("{head}parallelism: -1\n"));
    assert_eq!(wrong.len(), 1);
    assert!(wrong[0].starts_with("error: parallelism: Invalid value"), "{wrong:?}");
    let two = told(&format!("{head}---\n{}", group("{minMember: 1}")));
    assert_eq!(
        two,
        ["error: a KubeSchedulerConfiguration is a file of its own: put other objects elsewhere"]
    );
    assert!(told("a: [")[0].starts_with("error: it is neither JSON nor YAML"));
}
