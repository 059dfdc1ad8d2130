//! TaintToleration.

use super::{judge, on_add, on_own_update, on_update, rate, registration};
use crate::framework::{Actions, Hint, Plugin, Resource};
use crate::plugins::TaintToleration;
use crate::testing::{NodeExt, PodExt, cluster, node, pod};

const NO: &str = "UU: node(s) had untolerated taint(s)";

#[test]
fn a_hard_taint_must_be_tolerated() {
    let hard = || node("n").taint("gpu", "a100", "NoSchedule");
    let table = [
        ("no taint, no toleration", node("n"), pod("p"), "ok"),
        ("a hard taint keeps a plain pod off", hard(), pod("p"), NO),
        ("Exists ignores the value", hard(), pod("p").tolerate("gpu", "Exists", "", ""), "ok"),
        (
            "Exists ignores a value of its own",
            hard(),
            pod("p").tolerate("gpu", "Exists", "b", ""),
            "ok",
        ),
        ("Equal needs the value", hard(), pod("p").tolerate("gpu", "Equal", "a100", ""), "ok"),
        ("an empty operator is Equal", hard(), pod("p").tolerate("gpu", "", "a100", ""), "ok"),
        ("Equal with another value fails", hard(), pod("p").tolerate("gpu", "Equal", "t4", ""), NO),
        ("the effect must match", hard(), pod("p").tolerate("gpu", "Exists", "", "NoExecute"), NO),
        ("Lt is alpha and off", hard(), pod("p").tolerate("gpu", "Lt", "a100", ""), NO),
        ("NoExecute keeps pods off too", node("n").taint("k", "", "NoExecute"), pod("p"), NO),
        ("PreferNoSchedule does not", node("n").taint("k", "", "PreferNoSchedule"), pod("p"), "ok"),
        ("an unknown effect does not", node("n").taint("k", "", "Someday"), pod("p"), "ok"),
        (
            "every taint must be tolerated",
            hard().taint("spot", "", "NoExecute"),
            pod("p").tolerate("gpu", "Exists", "", ""),
            NO,
        ),
        (
            "two tolerations for two taints",
            hard().taint("spot", "", "NoExecute"),
            pod("p").tolerate("gpu", "Exists", "", "").tolerate("spot", "Exists", "", ""),
            "ok",
        ),
    ];
    for (row, node, pod, expected) in table {
        assert_eq!(judge(&TaintToleration, &mut cluster([node]), &pod), [expected], "{row}");
    }
}

#[test]
fn fewer_untolerated_soft_taints_score_higher() {
    let soft = |name: &str, keys: &[&str]| {
        keys.iter().fold(node(name), |n, key| n.taint(key, "", "PreferNoSchedule"))
    };
    let nodes = || [soft("none", &[]), soft("one", &["a"]), soft("two", &["a", "b"])];
    let table = [
        // Untolerated: 0, 1, 2; max 2: 100 - 100*raw/2.
        ("by the number of soft taints", pod("p"), [100, 50, 0]),
        // "a" is tolerated: 0, 0, 1; max 1.
        ("a tolerated one does not count", pod("p").tolerate("a", "Exists", "", ""), [100, 100, 0]),
        // A toleration for another effect is left out of the score: 0, 1, 2.
        (
            "a toleration of NoSchedule does not soften",
            pod("p").tolerate("a", "Exists", "", "NoSchedule"),
            [100, 50, 0],
        ),
        // All tolerated: max 0 gives everyone 100.
        ("all tolerated, all best", pod("p").tolerate("", "Exists", "", ""), [100, 100, 100]),
    ];
    for (row, pod, expected) in table {
        let got = rate(&TaintToleration, &mut cluster(nodes()), &pod).unwrap();
        assert_eq!(got, expected, "{row}");
    }
    // 0, 1, 3 soft taints, max 3: 100 - 100*1/3 = 100 - 33 (truncated) = 67.
    let thirds = [soft("none", &[]), soft("one", &["a"]), soft("three", &["a", "b", "c"])];
    assert_eq!(rate(&TaintToleration, &mut cluster(thirds), &pod("p")).unwrap(), [100, 67, 0]);
    // Hard taints never enter the score.
    let hard = [node("a").taint("k", "", "NoSchedule"), node("b")];
    assert_eq!(rate(&TaintToleration, &mut cluster(hard), &pod("p")).unwrap(), [100, 100]);
}

#[test]
fn only_a_change_from_untolerated_to_tolerated_wakes_a_pod() {
    let plugin = TaintToleration;
    let events = [
        registration(Resource::Node, Actions::ADD | Actions::UPDATE_NODE_TAINT),
        registration(Resource::TargetPod, Actions::UPDATE_POD_TOLERATION),
    ];
    assert_eq!(plugin.events(), events);
    let (free, gpu) = (node("n"), node("n").taint("gpu", "", "NoSchedule"));
    let spot = node("n").taint("spot", "", "NoSchedule");
    let soft = node("n").taint("gpu", "", "PreferNoSchedule");
    let (plain, tolerant) = (pod("p"), pod("p").tolerate("gpu", "Exists", "", ""));
    assert_eq!(on_add(&plugin, &plain, &free), Hint::Queue, "a node without taints joins");
    assert_eq!(on_add(&plugin, &plain, &gpu), Hint::Skip, "a tainted node joins");
    assert_eq!(on_add(&plugin, &tolerant, &gpu), Hint::Queue, "its taint is tolerated");
    assert_eq!(on_update(&plugin, &plain, &gpu, &free), Hint::Queue, "the taint goes");
    assert_eq!(on_update(&plugin, &plain, &gpu, &soft), Hint::Queue, "the taint softens");
    assert_eq!(on_update(&plugin, &plain, &free, &gpu), Hint::Skip, "a taint comes");
    assert_eq!(on_update(&plugin, &plain, &gpu, &spot), Hint::Skip, "one hard taint for another");
    assert_eq!(on_update(&plugin, &tolerant, &gpu, &free), Hint::Skip, "tolerated before");
    assert_eq!(on_own_update(&plugin, &plain, Actions::UPDATE_POD_TOLERATION), Hint::Queue);
}
