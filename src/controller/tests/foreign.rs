//! Groups of other APIs.

use muster_api::k8s::{CoschedulingPodGroup, NativePodGroup, Pod, SchedulingGroup};
use serde_json::json;

use super::super::forms::Seen;
use super::super::roll::Side;
use super::super::state::State;
use super::super::{Api, Note};
use super::{Fixture, node, pod};

/// A fixture in which the group of another API exists.
fn foreign(api: Api, min: i32) -> Fixture {
    let mut f = Fixture::new();
    f.state = State::new(vec!["muster".into()]);
    f.state.note_pod(Note::Listed, Side::Live, f.now);
    f.state.note_node(Note::Listing, f.now);
    f.state.note_node(Note::Changed(&node("n1", false)), f.now);
    f.state.note_node(Note::Listed, f.now);
    let native: NativePodGroup = serde_json::from_value(json!({
        "metadata": {"namespace": "team", "name": "g", "uid": "u", "resourceVersion": "1"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": min}}},
    }))
    .unwrap();
    let coscheduling: CoschedulingPodGroup = serde_json::from_value(json!({
        "metadata": {"namespace": "team", "name": "g", "uid": "u", "resourceVersion": "1"},
        "spec": {"minMember": min},
    }))
    .unwrap();
    let seen = match api {
        Api::Native => Seen::native(&native),
        _ => Seen::coscheduling(&coscheduling),
    };
    f.state.note(api, Note::Listing, f.now);
    f.state.note(api, Note::Changed(seen), f.now);
    f.state.note(api, Note::Listed, f.now);
    f.state.note_member(Note::Listed, Side::Ended, api, f.now);
    f
}

fn foreign_pod(name: &str, api: Api, scheduler: &str, state: &str) -> Pod {
    let mut pod = pod(name, "g", state);
    pod.metadata.labels.clear();
    if api == Api::Native {
        let pod_group_name = Some("g".to_owned());
        pod.spec.scheduling_group = Some(SchedulingGroup { pod_group_name });
    } else {
        pod.metadata.labels.insert(CoschedulingPodGroup::LABEL.to_owned(), "g".to_owned());
    }
    pod.spec.scheduler_name = scheduler.to_owned();
    pod
}

#[test]
fn groups_of_others_are_written_in_their_own_form_if_they_have_a_pod_of_ours() {
    for api in [Api::Native, Api::Coscheduling] {
        let mut f = foreign(api, 2);
        for name in ["a", "b"] {
            f.pod(&foreign_pod(name, api, "default-scheduler", "running"));
        }
        f.pass(10_000);
        assert!(f.take().is_empty(), "{api:?}: somebody else's");
    }

    let mut f = foreign(Api::Native, 2);
    f.pod(&foreign_pod("a", Api::Native, "muster", "pending"));
    f.pass(10_000);
    assert!(f.take().is_empty(), "not tried yet: nothing is said");
    for name in ["a", "b"] {
        f.pod(&foreign_pod(name, Api::Native, "muster", "running"));
    }
    f.pass(10_000);
    assert_eq!(f.take(), ["g Running/Running 2/2/2"]);
    f.pod_gone(&foreign_pod("b", Api::Native, "muster", "running"));
    f.pass(10_000);
    assert!(f.take().is_empty(), "once scheduled it stays so");

    let mut f = foreign(Api::Coscheduling, 2);
    for state in ["pending", "bound", "running", "succeeded"] {
        for name in ["a", "b"] {
            let pod = foreign_pod(name, Api::Coscheduling, "muster", state);
            if state == "succeeded" {
                f.pod_gone(&pod);
                f.state.note_member(Note::Changed(&pod), Side::Ended, Api::Coscheduling, f.now);
            } else {
                f.pod(&pod);
            }
        }
        f.pass(10_000);
    }
    assert_eq!(
        f.take(),
        [
            "g Scheduling/Scheduling 2/0/0",
            "g Scheduled/Starting 2/2/0",
            "g Running/Running 2/2/2",
            "g Succeeded/Succeeded 2/0/2"
        ]
    );
}
