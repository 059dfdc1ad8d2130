//! SchedulingGates and PrioritySort.

use super::{on_own_update, registration};
use crate::framework::{Actions, Code, Hint, Plugin, Resource};
use crate::io::Tick;
use crate::model::ShapeId;
use crate::plugins::{DefaultBinder, PrioritySort, SchedulingGates};
use crate::testing::{PodExt, model_pod, pod};

#[test]
fn a_pod_waits_for_its_gates_and_the_message_names_them_in_order() {
    let table = [
        ("a pod without gates may enter", pod("p"), None),
        ("one gate is named", pod("p").gate("a"), Some("waiting for scheduling gates: [a]")),
        (
            "several gates are joined by spaces as Go prints a list",
            pod("p").gate("b").gate("a"),
            Some("waiting for scheduling gates: [b a]"),
        ),
    ];
    for (row, wire, expected) in table {
        let gates = SchedulingGates;
        let pod = model_pod(&wire, ShapeId(0));
        let got = gates.as_pre_enqueue().unwrap().pre_enqueue(&pod).err();
        let code = got.as_ref().map(|s| s.code);
        assert_eq!(got.map(|s| s.message()).as_deref(), expected, "{row}");
        assert!(code.is_none_or(|c| c == Code::UnschedulableAndUnresolvable), "{row}");
    }
}

#[test]
fn only_the_end_of_all_gates_wakes_a_gated_pod() {
    let gone = Actions::UPDATE_POD_GATES_ELIMINATED;
    assert_eq!(SchedulingGates.events(), [registration(Resource::TargetPod, gone)]);
    assert_eq!(on_own_update(&SchedulingGates, &pod("p"), gone), Hint::Queue);
}

#[test]
fn the_queue_is_sorted_by_priority_then_by_time() {
    let sort = PrioritySort;
    let key = |priority: i32, at: i64| {
        let pod = model_pod(&pod("p").priority(priority), ShapeId(0));
        sort.as_queue_sort().unwrap().key(&pod, Tick(at))
    };
    assert!(key(10, 5) < key(9, 1), "a higher priority goes first, however late it came");
    assert!(key(10, 1) < key(10, 2), "of equal priorities the earlier goes first");
    assert!(key(0, 1) < key(-1, 0), "negative priorities go after zero");
    assert!(key(i32::MAX, 9) < key(i32::MIN, 1), "the extremes do not wrap around");
    assert_eq!(key(3, 3), key(3, 3), "equal pods tie; the queue then goes by arrival");
}

#[test]
fn plugins_that_never_reject_register_for_nothing() {
    assert_eq!(PrioritySort.events(), []);
    assert_eq!(DefaultBinder.events(), []);
    assert!(DefaultBinder.as_bind().is_some());
}
