//! Pods that have a node: which container keeps them from running, and why.

use muster_api::k8s::{ContainerStatus, Pod};

use super::Why;
use crate::whatif::{Key, Stage};

/// What becomes of a pod that the scheduler is done with.
pub(super) fn why(stage: &Stage<'_>, pod: &Pod) -> Why {
    let node = pod.spec.node_name.clone();
    let (state, blocker, cause) = told(stage, pod);
    Why { state, blocker: blocker.to_owned(), cause, node, ..Why::default() }
}

fn told(stage: &Stage<'_>, pod: &Pod) -> (&'static str, &'static str, String) {
    let status = &pod.status;
    let (node, message) = (&pod.spec.node_name, with(": ", &status.message));
    if status.phase == "Succeeded" {
        return ("Ended", "", format!("it has run on {node} and succeeded"));
    }
    if status.phase == "Failed" {
        let reason =
            if status.reason.is_empty() { "its containers failed" } else { &status.reason };
        let admission = matches!(
            status.reason.as_str(),
            "UnexpectedAdmissionError" | "TopologyAffinityError" | "NodeAffinity" | "OutOfcpu"
        );
        let blocker = if admission { "Kubelet" } else { "Container" };
        let failed = ended_badly(pod).map(|text| format!("; {text}")).unwrap_or_default();
        return ("Ended", blocker, format!("it failed on {node}: {reason}{message}{failed}"));
    }
    if pod.metadata.deletion_timestamp.is_some() {
        let held = if node.is_empty() { String::new() } else { format!(" from node {node}") };
        return ("Leaving", "", format!("it was deleted and is leaving{held}"));
    }
    let init = status.init_container_statuses.iter().map(|c| (c, "init container"));
    let main = status.container_statuses.iter().map(|c| (c, "container"));
    let slow = init.chain(main).find_map(|(c, what)| Some((what, c, keeps(c)?)));
    if let Some((what, container, why)) = slow {
        let cause = format!("{what} {} on node {node} {why}", container.name);
        return ("Starting", "Container", cause);
    }
    if status.phase == "Running" {
        let ready = status.conditions.iter().find(|c| c.kind == "Ready");
        let not = ready.filter(|c| c.status == "False").map(|c| with(": ", &c.message));
        let not = not.map(|text| format!(", and is not ready{text}")).unwrap_or_default();
        return ("Running", "", format!("it runs on node {node}{not}"));
    }
    let sandbox = status.conditions.iter().find(|c| c.kind == "PodReadyToStartContainers");
    if sandbox.is_some_and(|c| c.status == "False") {
        let text = "the kubelet has it, and has not set up its network or volumes yet: \
                    kubectl describe pod shows the kubelet's events";
        return ("Starting", "Kubelet", format!("on node {node}: {text}"));
    }
    let because = match not_ready(stage, node) {
        Some(why) => format!("node {node} {why}: its kubelet does not take it"),
        None if status.start_time.is_some() || !status.container_statuses.is_empty() => {
            format!("the kubelet of node {node} has it and starts its containers")
        }
        None => format!("the kubelet of node {node} has not taken it yet"),
    };
    ("Starting", "Kubelet", because)
}

/// What a container waits for; nothing if it runs, or has ended well.
fn keeps(container: &ContainerStatus) -> Option<String> {
    let state = &container.state;
    if let Some(waiting) = &state.waiting {
        let reason = if waiting.reason.is_empty() { "no reason given" } else { &waiting.reason };
        return Some(format!("waits: {reason}{}", with(": ", &waiting.message)));
    }
    let ended = state.terminated.as_ref().filter(|ended| ended.exit_code != 0)?;
    let reason = with(": ", &ended.reason);
    Some(format!("ended with code {}{reason}{}", ended.exit_code, with(": ", &ended.message)))
}

fn ended_badly(pod: &Pod) -> Option<String> {
    let all = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    let mut bad = all.filter_map(|c| {
        let ended = c.state.terminated.as_ref().filter(|ended| ended.exit_code != 0)?;
        let reason = with(", ", &ended.reason);
        Some(format!("container {} ended with code {}{reason}", c.name, ended.exit_code))
    });
    bad.next()
}

/// Why a node takes no pods, if it does not.
fn not_ready(stage: &Stage<'_>, node: &str) -> Option<String> {
    let Some(object) = stage.world().get(&Key::node(node)) else {
        return Some("is gone".to_owned());
    };
    let conditions = object["status"]["conditions"].as_array().map(Vec::as_slice);
    let ready = conditions.unwrap_or_default().iter().find(|c| c["type"] == "Ready")?;
    let status = ready["status"].as_str().filter(|status| *status != "True")?;
    let said = if status == "Unknown" { "is silent" } else { "is not ready" };
    let reason = ready["reason"].as_str().filter(|reason| !reason.is_empty());
    Some(reason.map_or_else(|| said.to_owned(), |reason| format!("{said} ({reason})")))
}

fn with(before: &str, text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{before}{text}") }
}
