//! The cause: what one try of the core says, and which of its reasons is the tightest.

use std::collections::BTreeMap;

use muster_api::muster::reason;

use super::cure::{Cure, Finder};
use super::{Count, Why, room};
use crate::whatif::{Key, Ran, Stage};

/// Nodes that are named per reason.
const EXAMPLES: usize = 3;
/// Pods that a sentence names.
const NAMED: usize = 4;

/// What has to come true.
pub(super) enum Goal {
    /// This pod has a node.
    Pod(Key),
    /// The gang of the pods has room for its minimum.
    Gang,
}

impl Goal {
    /// Whether it has, and nobody has to leave for it.
    pub(super) fn is_met(&self, ran: &Ran, pods: &[Key]) -> bool {
        ran.victims.is_empty()
            && match self {
                Self::Pod(key) => ran.placed.contains_key(key),
                Self::Gang => ran.gathered || pods.iter().all(|pod| ran.placed.contains_key(pod)),
            }
    }
}

/// Why pods wait; the first is the one that is asked about.
pub(super) fn why(stage: &Stage<'_>, goal: &Goal, pods: &[Key]) -> Why {
    let Some(first) = pods.first().and_then(|key| stage.world().pod(key)) else {
        return Why::default();
    };
    if !stage.is_ours(first) {
        return other_scheduler(stage, goal, pods);
    }
    let Some(ran) = stage.try_out(&[], pods, true) else {
        return Why::default();
    };
    let gang = ran.explanation.as_ref().and_then(|e| e.gang.clone());
    let why = Why { state: "Waiting", gang, tried: 1, ..Why::default() };
    if goal.is_met(&ran, pods) {
        let node = ran.placed.get(&pods[0]).cloned().unwrap_or_default();
        let place = if node.is_empty() { String::new() } else { format!(", on node {node}") };
        let cause = format!(
            "nothing: there is room for it now{place}. If it stays like this the scheduler is not \
             running or has just failed with it: see its PodScheduled condition and its events"
        );
        return Why { node, cause, ..why };
    }
    if !ran.victims.is_empty() {
        let cause = format!("room is made for it, once these have left: {}", named(&ran.victims));
        let blocker = "DefaultPreemption".to_owned();
        return Why { blocker, cause, message: ran.message, ..why };
    }
    let counts = counts(&ran);
    let mut finder = Finder::new(stage, goal, pods, &ran, &counts);
    let cures = finder.cures();
    let tried = finder.tried() + 1;
    let blocker = blocker(stage, first, &ran, &counts, &cures);
    let cause = sentence(first, &ran, &counts, &blocker);
    let nearest = match room::nearest_domain(&ran) {
        // How much is free says little where something else keeps it.
        None if blocker == "NodeResourcesFit" => room::nearest_node(stage, &pods[0], &ran),
        domain => domain,
    };
    let nearest = nearest.unwrap_or_default();
    Why { blocker, cause, nearest, counts, message: ran.message, cures, tried, ..why }
}

/// `a, b, c and 4 more`.
pub(super) fn named<'a>(pods: impl IntoIterator<Item = &'a Key>) -> String {
    let names: Vec<String> = pods.into_iter().map(Key::to_string).collect();
    let more = names.len().saturating_sub(NAMED);
    let shown = names[..names.len() - more].join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

/// It asks for somebody else.
fn other_scheduler(stage: &Stage<'_>, goal: &Goal, pods: &[Key]) -> Why {
    let asked = stage.world().pod(&pods[0]).map(|pod| pod.spec.scheduler_name.as_str());
    let asked = asked.filter(|name| !name.is_empty()).unwrap_or("default-scheduler");
    let ours: Vec<&str> = stage.schedulers().collect();
    let cause = format!(
        "it asks for the scheduler {asked}, not for {}: Muster leaves it alone",
        ours.join(" or ")
    );
    let (ran, counts) = (Ran::default(), Vec::new());
    let mut finder = Finder::new(stage, goal, pods, &ran, &counts);
    finder.other_scheduler(ours.first().copied().unwrap_or_default());
    let (cures, tried) = (finder.take(), finder.tried());
    let blocker = "SchedulerName".to_owned();
    Why { state: "Waiting", blocker, cause, cures, tried, ..Why::default() }
}

/// Nodes by reason, the most first.
fn counts(ran: &Ran) -> Vec<Count> {
    let Some(explanation) = &ran.explanation else {
        return Vec::new();
    };
    let mut by_reason: BTreeMap<(String, String, bool), Vec<String>> = BTreeMap::new();
    let rejected = explanation.nodes.iter().filter(|(_, verdict)| verdict.status != "ok");
    for (node, verdict) in rejected {
        let for_good = verdict.status == "UU";
        let key = (verdict.plugin.clone(), verdict.reasons.join(", "), for_good);
        by_reason.entry(key).or_default().push(node.clone());
    }
    let count = |((plugin, reason, for_good), mut examples): (_, Vec<String>)| {
        let nodes = examples.len();
        examples.truncate(EXAMPLES);
        Count { nodes, plugin, reason, examples, for_good }
    };
    let mut counts: Vec<Count> = by_reason.into_iter().map(count).collect();
    counts.sort_by_key(|count| std::cmp::Reverse(count.nodes));
    counts
}

/// The tightest blocker: what the least change lifts, else what most nodes say.
fn blocker(
    stage: &Stage<'_>,
    pod: &muster_api::k8s::Pod,
    ran: &Ran,
    counts: &[Count],
    cures: &[Cure],
) -> String {
    if !pod.spec.scheduling_gates.is_empty() {
        return "SchedulingGates".to_owned();
    }
    if ran.reason == reason::GANG_INCOMPLETE {
        return "Gang".to_owned();
    }
    let lifted = cures.iter().map(|cure| cure.lifts).find(|lifts| !lifts.is_empty());
    if let Some(lifts) = lifted {
        return lifts.to_owned();
    }
    if stage.world().nodes().next().is_none() {
        return "Cluster".to_owned();
    }
    counts.first().map(|count| count.plugin.clone()).unwrap_or_default()
}

/// The cause in one sentence.
fn sentence(pod: &muster_api::k8s::Pod, ran: &Ran, counts: &[Count], blocker: &str) -> String {
    let gates = &pod.spec.scheduling_gates;
    if !gates.is_empty() {
        let names: Vec<&str> = gates.iter().map(|gate| gate.name.as_str()).collect();
        let whose = if names.len() == 1 { "gate" } else { "gates" };
        return format!("it is held back by the scheduling {whose} {}", names.join(", "));
    }
    let explanation = ran.explanation.as_ref();
    let in_gang = explanation.is_some_and(|e| e.gang.is_some()) || !ran.reason.is_empty();
    if in_gang && !ran.message.is_empty() {
        return ran.message.clone();
    }
    let nodes = explanation.map_or(0, |e| e.nodes.len());
    let (own, others): (Vec<&Count>, Vec<&Count>) =
        counts.iter().partition(|count| count.plugin == blocker);
    let all = if own.is_empty() { &others } else { &own };
    let said = |count: &&Count| match count.nodes {
        n if n == nodes => count.reason.clone(),
        n => format!("{} ({n} of {nodes} nodes)", count.reason),
    };
    let text: Vec<String> = all.iter().map(said).collect();
    if text.is_empty() { ran.message.clone() } else { text.join("; ") }
}
