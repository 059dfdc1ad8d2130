//! A panic in one pod's cycle.

use super::harness::{Harness, check};
use super::probe::{Probe, Script, node_events, profile};
use crate::testing::{PodExt as _, node, pod};

#[test]
fn a_panic_in_one_pods_cycle_quarantines_that_pod_only() {
    for point in ["filter", "reserve", "permit", "prebind"] {
        let script = Script { panic: point, events: node_events(), ..Script::default() };
        let probe = Probe::new("Probe", script);
        let mut h = Harness::with(profile(&[&probe]));
        h.node(node("n1"));
        h.pod(pod("bad").req(&[("cpu", "1")]));
        check(
            h.run(),
            &format!(
                "Warning default/bad FailedScheduling: the scheduling cycle panicked: {point} went wrong
                 status default/bad false SchedulerError: the scheduling cycle panicked: {point} went wrong"
            ),
        );
        assert_eq!((h.queue_of("bad"), h.cache()), ("quarantined", vec!["n1: ".to_owned()]));
        probe.tell(|s| s.panic = "");
        // Neither time nor events bring it back, nor our own status patch.
        h.node(node("n2"));
        h.seen("bad");
        h.sleep(1_000);
        check(h.run(), "");
        h.pod(pod("good"));
        assert_eq!(h.run_binds().len(), 1);
        h.pod(pod("bad").req(&[("cpu", "2")]));
        assert_eq!(h.run_binds().len(), 1, "{point}");
    }
}

#[test]
fn a_quarantined_pod_can_be_deleted() {
    let probe = Probe::new("Probe", Script { panic: "reserve", ..Script::default() });
    let mut h = Harness::with(profile(&[&probe]));
    h.node(node("n1"));
    h.pod(pod("bad"));
    h.run();
    assert_eq!(h.core.pending_counts().unschedulable, 1);
    h.gone("bad");
    h.assert_idle();
    assert_eq!(h.core.pending_counts().unschedulable, 0);
}
