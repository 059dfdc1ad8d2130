//! The engine, the model and the checker, driven by a scheduler that is easy to foresee.

use crate::Outcome;
use crate::record::PodState;
use crate::testing::{Bug, run};
use crate::time::{MINUTE, SECOND};

const TWO_NODES: &str = "
nodes: [{name: 'n-{i}', count: 2, allocatable: {cpu: 4, memory: 8Gi, nvidia.com/gpu: 2}}]
";

fn states(outcome: &Outcome, state: PodState) -> usize {
    outcome.record.pods.iter().filter(|pod| pod.state == state).count()
}

#[test]
fn a_job_runs_to_its_completions_never_more_than_its_parallelism_at_a_time() {
    let yaml = format!(
            "{TWO_NODES}
workloads:
  - {{name: j, kind: Job, parallelism: 3, completions: 7, runtime: 1m, requests: {{cpu: 1, memory: 1Gi}}}}"
        );
    let outcome = run(&yaml, Bug::None);
    assert_eq!(outcome.record.pods.len(), 7);
    assert_eq!(states(&outcome, PodState::Succeeded), 7);
    assert!(outcome.verdict.is_clean(), "{:?}", outcome.verdict);
    let starts: Vec<_> = outcome.record.pods.iter().map(|pod| pod.created).collect();
    for three_later in starts.windows(4) {
        assert!(three_later[3].0 - three_later[0].0 >= MINUTE);
    }
    assert!(outcome.end.0 - crate::time::EPOCH.0 >= 3 * MINUTE);
}

#[test]
fn what_cannot_fit_waits_with_a_reason_and_the_run_still_ends() {
    let yaml = format!(
            "{TWO_NODES}
workloads:
  - {{name: big, kind: Pod, requests: {{cpu: 64, memory: 1Gi}}}}
  - {{name: other, kind: Pod, podTemplate: {{spec: {{schedulerName: x, containers: [{{name: a}}]}}}}}}"
        );
    let outcome = run(&yaml, Bug::None);
    let [big, other] = &outcome.record.pods[..] else { panic!("two pods") };
    assert_eq!((big.state, other.state), (PodState::Waiting, PodState::Waiting));
    assert_eq!(&*big.why.as_ref().unwrap().message, "0/2 nodes fit.");
    assert_eq!((big.attempts, other.attempts), (1, 0));
    assert_eq!(outcome.end, crate::time::EPOCH);
}

#[test]
fn pods_of_a_lost_node_are_collected_and_a_job_replaces_them() {
    let yaml = format!(
        "{TWO_NODES}
workloads:
  - {{name: j, kind: Job, parallelism: 2, runtime: 10m, requests: {{cpu: 3, memory: 1Gi}}}}
  - {{name: p, kind: Pod, requests: {{cpu: 1, memory: 1Gi}}}}
events: [{{at: 2m, remove: n-0}}, {{at: 5m, add: n-0}}]"
    );
    let outcome = run(&yaml, Bug::None);
    assert!(outcome.verdict.is_clean(), "{:?}", outcome.verdict);
    assert_eq!(states(&outcome, PodState::Lost), 2, "one of the job, and the bare pod");
    assert_eq!(states(&outcome, PodState::Succeeded), 2);
    let lost = outcome.record.pods.iter().find(|pod| pod.state == PodState::Lost).unwrap();
    assert_eq!(lost.ended.unwrap().0 - crate::time::EPOCH.0, 2 * MINUTE + 40 * SECOND);
    let replacement = outcome.record.pods.last().unwrap();
    assert_eq!(replacement.name, "j-2");
    assert!(replacement.bound.unwrap().0 - crate::time::EPOCH.0 >= 5 * MINUTE);
    assert_eq!(outcome.record.nodes[0].present.len(), 2);
}

#[test]
fn a_node_that_is_back_soon_starts_its_pods_anew() {
    let yaml = format!(
        "{TWO_NODES}
workloads: [{{name: p, kind: Pod, runtime: 5m, requests: {{cpu: 1, memory: 1Gi}}}}]
events: [{{at: 1m, remove: n-0}}, {{at: 70s, add: n-0}}]"
    );
    let outcome = run(&yaml, Bug::None);
    assert_eq!(states(&outcome, PodState::Succeeded), 1);
    assert!(outcome.end.0 - crate::time::EPOCH.0 >= 6 * MINUTE);
}

#[test]
fn the_checker_finds_every_bug() {
    let yaml = format!(
            "{TWO_NODES}
workloads:
  - {{name: j, kind: Job, parallelism: 8, runtime: 1m, requests: {{cpu: 1, memory: 1Gi, nvidia.com/gpu: 1}}}}
  - {{name: other, kind: Pod, podTemplate: {{spec: {{schedulerName: x, containers: [{{name: a}}]}}}}}}"
        );
    let find = |bug| run(&yaml, bug).verdict.violations.join("\n");
    assert_eq!(find(Bug::None), "");
    assert!(
        find(Bug::Overcommits).contains("node n-0 has 2 of nvidia.com/gpu, its pods ask for 3")
    );
    assert!(find(Bug::ForgetsAssumed).contains("node n-0 has 2 of nvidia.com/gpu"));
    assert!(find(Bug::Steals).contains("default/other was bound, but asks for another scheduler"));
    // The API server itself refuses a second bind; what else goes wrong is chance.
    let twice = run(&yaml, Bug::BindsTwice);
    assert!(twice.refused > 0);
    assert_eq!(twice.verdict.binds, 8);
}

#[test]
fn the_checker_finds_a_gang_that_is_torn() {
    let gang = |least: u32, more: &str| {
        let yaml = format!(
            "{TWO_NODES}
workloads:
  - name: g
    kind: Pod
    replicas: 6
    requests: {{cpu: 1, memory: 1Gi, nvidia.com/gpu: 1}}
    podGroup: {{minMember: {least}, scheduleTimeoutSeconds: 60{more}}}
events: [{{at: 10m, cordon: n-0}}]"
        );
        run(&yaml, Bug::None).verdict.violations.join("\n")
    };
    // First fit knows no gangs: it places four of six.
    assert!(gang(6, "").contains("S2"), "{}", gang(6, ""));
    assert!(gang(6, "").contains("4 of 6 members of default/g are bound"));
    assert_eq!(gang(4, ""), "", "four are enough");
    assert_eq!(gang(6, ", whenHalfBound: Wait"), "", "a part may wait for the rest");
    let yaml = format!(
        "{TWO_NODES}
workloads:
  - {{name: p, kind: Pod, labels: {{muster.dev/pod-group: g}}, requests: {{cpu: 1, memory: 1Gi}}}}"
    );
    let found = run(&yaml, Bug::None).verdict.violations.join("\n");
    assert!(found.contains("1 members of default/g are bound, but their pod group never existed"));
}
