//! What a seed draws: a world and what goes wrong in it.
//!
//! Swarm testing: each seed switches a random subset of everything on, because a
//! world in which everything happens at once hides what few things do together.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_api::k8s::{PriorityClass, Quantity, ResourceList, Taint};
use muster_core::plugins::ScoringStrategy;

use super::focus::Focus;
use super::{contend, gangs, limits, machines, near, pods, policies};
use crate::model::budget::{Amount, Budget};
use crate::rng::Rng;
use crate::scenario::{
    Action, Blow, ClusterEvent, Fault, FaultPlan, NodeChange, NodeGroup, ReloadSpec, Scenario,
    SchedulerSpec, Template, Workload,
};
use crate::time::{MILLISECOND, MINUTE, Micros, SECOND};

/// Chance, in the words of whoever draws.
pub(super) struct Draw(Rng);

impl Draw {
    pub(super) fn pick(&mut self, low: i64, high: i64) -> i64 {
        self.0.between(low, high)
    }

    /// True so many times in a hundred.
    pub(super) fn chance(&mut self, percent: i64) -> bool {
        self.pick(1, 100) <= percent
    }

    pub(super) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        let last = i64::try_from(of.len()).unwrap_or(1) - 1;
        of[usize::try_from(self.pick(0, last)).unwrap_or(0)]
    }

    /// A time in whole milliseconds.
    pub(super) fn time(&mut self, low: Micros, high: Micros) -> Micros {
        self.pick(low / MILLISECOND, high / MILLISECOND) * MILLISECOND
    }

    pub(super) fn small(&mut self, low: u32, high: u32) -> u32 {
        u32::try_from(self.pick(low.into(), high.into())).unwrap_or(low)
    }
}

/// Plugins that a profile may do without. Room is always looked at: a cluster whose
/// kubelets refuse what the scheduler places comes never to rest.
const OPTIONAL: [&str; 7] = [
    "NodeName",
    "NodeUnschedulable",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesBalancedAllocation",
    "ImageLocality",
];

/// The world of a seed.
#[must_use]
pub fn draw(seed: u64) -> Scenario {
    let rng = Rng::new(seed).split("swarm", 0);
    let mut draw = Draw(rng);
    let mut special = Draw(Rng::new(seed).split("focus", 0));
    let focus = Focus::draw(&mut special);
    let span = draw.time(20 * SECOND, 100 * SECOND);
    let mut nodes = draw_nodes(&mut draw);
    focus.tighten(&mut special, &mut nodes);
    let ranked = draw.chance(35) || focus.room;
    let mut workloads = pods::draw(&mut draw, span, ranked);
    focus.crowd(&mut special, &mut workloads);
    focus.strand(&mut special, &mut workloads);
    let mut chances = Draw(Rng::new(seed).split("contend", 0));
    let contended = chances
        .chance(contend::WORLDS)
        .then(|| contend::draw(&mut chances, &mut nodes, &mut workloads));
    let classes = draw_classes(&mut draw, &mut workloads);
    let mut scheduler = draw_scheduler(&mut draw);
    let mut events = draw_events(&mut draw, &nodes, &workloads, span);
    let mut budgets = draw_budgets(&mut draw, &workloads, ranked);
    if budgets.is_empty() && focus.room {
        budgets = draw_budgets(&mut special, &workloads, ranked);
    }
    budgets = contended.unwrap_or(budgets);
    let mut faults = draw_faults(&mut draw, scheduler.replicas, span);
    focus.spend(&mut special, &mut faults);
    scheduler.allow_budget_violations = !budgets.is_empty() && draw.chance(15);
    // By chances of its own: what a seed meant before there were reloads it still means.
    let mut reloads = Draw(Rng::new(seed).split("reloads", 0));
    if reloads.chance(20) || focus.reloads {
        events.extend(draw_reloads(&mut reloads, span));
    }
    // By chances of their own, as reloads.
    let mut chances = Draw(Rng::new(seed).split("gangs", 0));
    if chances.chance(gangs::WORLDS) || focus.gangs {
        gangs::draw(&mut chances, span, focus.gangs, &mut workloads, &mut events);
    }
    let mut chances = Draw(Rng::new(seed).split("policies", 0));
    let governed = chances.chance(policies::WORLDS);
    if governed {
        policies::draw(&mut chances, span, &mut events);
    }
    let mut chances = Draw(Rng::new(seed).split("topology", 0));
    near::draw(&mut chances, &nodes, &mut workloads, &mut events);
    let mut chances = Draw(Rng::new(seed).split("levels", 0));
    near::draw_more(&mut chances, span, &mut workloads, &mut events);
    let mut chances = Draw(Rng::new(seed).split("limits", 0));
    if !governed && chances.chance(limits::WORLDS) {
        limits::draw(&mut chances, span, focus.room, &mut events);
    }
    let mut chances = Draw(Rng::new(seed).split("machines", 0));
    if chances.chance(machines::WORLDS) {
        machines::draw(&mut chances, &mut nodes, &mut workloads, &mut scheduler, &mut faults);
    }
    // A scheduler that is blind to taints puts pods back on a node that is not ready, from
    // where they are driven again, for as long as it stays so.
    let blind = |without: &[String]| without.iter().any(|plugin| plugin == "TaintToleration");
    let turns_blind = |event: &ClusterEvent| match &event.action {
        Action::Reload(reload) => reload.without.as_deref().is_some_and(blind),
        _ => false,
    };
    if blind(&scheduler.without) || events.iter().any(turns_blind) {
        bring_back(&mut events, span);
    }
    events.sort_by_key(|event| event.at);
    Scenario {
        name: format!("seed-{seed}"),
        seed,
        until: None,
        nodes,
        workloads,
        events,
        scheduler,
        budgets,
        classes,
        faults,
    }
}

pub(super) const TAINT: &str = "swarm.dev/tainted";

fn taints(draw: &mut Draw) -> Vec<Taint> {
    if !draw.chance(25) {
        return Vec::new();
    }
    let effect = draw.one(&["NoSchedule", "NoExecute", "PreferNoSchedule"]);
    vec![Taint {
        key: TAINT.to_owned(),
        value: draw.one(&["", "a"]).to_owned(),
        effect: effect.to_owned(),
    }]
}

fn allocatable(draw: &mut Draw) -> ResourceList {
    let mut list = ResourceList::new();
    list.insert("cpu".to_owned(), Quantity::from_millis(draw.pick(1, 16) * 500));
    list.insert("memory".to_owned(), Quantity::from_units(draw.pick(1, 16) << 30));
    let pods = if draw.chance(30) { draw.pick(1, 4) } else { 110 };
    list.insert("pods".to_owned(), Quantity::from_units(pods));
    if draw.chance(35) {
        list.insert("nvidia.com/gpu".to_owned(), Quantity::from_units(draw.pick(1, 8)));
    }
    list
}

pub(super) fn half(draw: &mut Draw) -> String {
    draw.one(&["h0", "h1"]).to_owned()
}

fn draw_nodes(draw: &mut Draw) -> Vec<NodeGroup> {
    let groups = draw.small(1, 3);
    (0..groups)
        .filter_map(|group| {
            let name = Template::parse(&format!("n{group}-{{i}}")).ok()?;
            let label = Template::parse(draw.one(&["h{i%2}", "h0", "h1"])).ok()?;
            Some(NodeGroup {
                name,
                count: draw.small(1, 4),
                labels: vec![("half".to_owned(), label)],
                taints: taints(draw),
                allocatable: allocatable(draw),
                unschedulable: draw.chance(8),
                machine: None,
            })
        })
        .collect()
}

fn draw_scheduler(draw: &mut Draw) -> SchedulerSpec {
    let initial = draw.pick(1, 2);
    let mut spec = SchedulerSpec {
        replicas: draw.one(&[1, 1, 1, 1, 1, 1, 1, 2, 2, 3]),
        initial_backoff: initial,
        max_backoff: initial + draw.one(&[0, 1, 4, 8]),
        retry_unschedulable: draw.one(&[5, 30, 300, 3600]),
        without: Vec::new(),
        with: Vec::new(),
        strategy: ScoringStrategy::default(),
        allow_budget_violations: false,
    };
    if draw.chance(30) {
        let left_out = OPTIONAL.iter().filter(|_| draw.chance(20));
        spec.without = left_out.map(|name| (*name).to_owned()).collect();
    }
    spec
}

/// The configuration changes while schedulers run, mostly more than once.
fn draw_reloads(draw: &mut Draw, span: Micros) -> Vec<ClusterEvent> {
    let count = draw.pick(1, 6);
    let reload = |_| {
        let initial = draw.pick(1, 3);
        let without = OPTIONAL.iter().filter(|_| draw.chance(25));
        let change = ReloadSpec {
            without: Some(without.map(|name| (*name).to_owned()).collect()),
            initial_backoff: Some(initial),
            max_backoff: Some(initial + draw.one(&[0, 1, 4, 8])),
        };
        ClusterEvent { at: draw.time(SECOND, span), action: Action::Reload(change) }
    };
    (0..count).map(reload).collect()
}

/// Now and then some pods have their priority by a class.
fn draw_classes(draw: &mut Draw, workloads: &mut [Workload]) -> Vec<PriorityClass> {
    if !draw.chance(10) {
        return Vec::new();
    }
    let mut class = PriorityClass { value: draw.one(&[-5, 50, 2000]), ..<_>::default() };
    "class".clone_into(&mut class.metadata.name);
    class.preemption_policy = draw.chance(20).then(|| "Never".to_owned());
    for workload in workloads.iter_mut().filter(|_| draw.chance(50)) {
        let spec = &mut Arc::make_mut(&mut workload.template).spec;
        "class".clone_into(&mut spec.priority_class_name);
        spec.priority = None;
    }
    vec![class]
}

fn draw_budgets(draw: &mut Draw, workloads: &[Workload], ranked: bool) -> Vec<Budget> {
    if !draw.chance(if ranked { 50 } else { 20 }) {
        return Vec::new();
    }
    let count = draw.small(1, 3);
    (0..count)
        .map(|i| {
            let app = &workloads[usize::try_from(draw.pick(0, 100)).unwrap_or(0) % workloads.len()];
            let amount =
                if draw.chance(50) { Amount::Count(draw.pick(0, 3)) } else { Amount::Percent(50) };
            let least = draw.chance(50);
            Budget {
                namespace: app.namespace.clone(),
                name: format!("budget-{i}"),
                match_labels: BTreeMap::from([("app".to_owned(), app.name.clone())]),
                min_available: least.then_some(amount),
                max_unavailable: (!least).then_some(amount),
                always_allow_unhealthy: draw.chance(30),
            }
        })
        .collect()
}

/// Some pod of some workload, as it will be called.
fn some_pod(draw: &mut Draw, workloads: &[Workload]) -> String {
    let index = usize::try_from(draw.pick(0, 1000)).unwrap_or(0) % workloads.len();
    let workload = &workloads[index];
    let alone =
        workload.pod_count() == 1 && matches!(workload.shape, crate::scenario::Shape::Pods { .. });
    if alone {
        return format!("{}/{}", workload.namespace, workload.name);
    }
    format!("{}/{}-{}", workload.namespace, workload.name, draw.pick(0, 5))
}

fn draw_events(
    draw: &mut Draw,
    nodes: &[NodeGroup],
    workloads: &[Workload],
    span: Micros,
) -> Vec<ClusterEvent> {
    let mut events = Vec::new();
    for workload in workloads {
        if !workload.template.spec.scheduling_gates.is_empty() && draw.chance(70) {
            let at = draw.time(workload.at, workload.at + span);
            events.push(ClusterEvent { at, action: Action::Ungate(workload.name.clone()) });
        }
    }
    for name in nodes.iter().flat_map(NodeGroup::names) {
        if draw.chance(25) {
            trouble(draw, &name, span, &mut events);
        }
    }
    let (deletes, evictions, binds) = (draw.chance(30), draw.chance(20), draw.chance(12));
    let names: Vec<String> = nodes.iter().flat_map(NodeGroup::names).collect();
    for _ in 0..draw.pick(0, 5) {
        let at = draw.time(SECOND, span);
        let pod = some_pod(draw, workloads);
        if deletes {
            events.push(ClusterEvent { at, action: Action::Delete(pod.clone()) });
        }
        if evictions {
            let pod = some_pod(draw, workloads);
            events.push(ClusterEvent { at: at + SECOND, action: Action::Evict(pod) });
        }
        if binds {
            let index = usize::try_from(draw.pick(0, 1000)).unwrap_or(0) % names.len();
            let node = names[index].clone();
            let pod = some_pod(draw, workloads);
            events.push(ClusterEvent { at, action: Action::Bind { pod, node } });
        }
    }
    events.sort_by_key(|event| event.at);
    events
}

/// Nodes that are not ready become so in the end.
fn bring_back(events: &mut Vec<ClusterEvent>, span: Micros) {
    let lost = events.iter().filter_map(|event| match &event.action {
        Action::NotReady(names) => Some(names.clone()),
        _ => None,
    });
    let back: Vec<_> = lost.map(Action::Ready).collect();
    let at = span + 2 * MINUTE;
    events.extend(back.into_iter().map(|action| ClusterEvent { at, action }));
}

/// Something happens to one node, and is mostly undone later.
fn trouble(draw: &mut Draw, name: &str, span: Micros, events: &mut Vec<ClusterEvent>) {
    let at = draw.time(0, span);
    let later = at + draw.time(100 * MILLISECOND, MINUTE);
    let undone = draw.chance(75);
    let names = || vec![name.to_owned()];
    let mut push = |at, action| events.push(ClusterEvent { at, action });
    match draw.pick(0, 4) {
        0 => {
            push(at, Action::Remove(names()));
            if undone {
                push(later, Action::Restore(names()));
            }
        }
        1 => {
            push(at, Action::NotReady(names()));
            if undone {
                push(later, Action::Ready(names()));
            }
        }
        2 => {
            push(at, Action::Cordon(names()));
            if undone {
                push(later, Action::Uncordon(names()));
            }
        }
        _ => {
            for at in [at, later] {
                let change = NodeChange {
                    node: name.to_owned(),
                    labels: draw
                        .chance(50)
                        .then(|| BTreeMap::from([("half".to_owned(), half(draw))])),
                    taints: draw.chance(40).then(|| taints(draw)),
                    allocatable: draw.chance(40).then(|| allocatable(draw)),
                };
                push(at, Action::Change(change));
            }
        }
    }
}

fn draw_faults(draw: &mut Draw, replicas: u8, span: Micros) -> FaultPlan {
    let mut plan = FaultPlan { until: span + draw.time(0, 30 * SECOND), ..FaultPlan::default() };
    if draw.chance(8) {
        return FaultPlan::default();
    }
    for fault in Fault::ALL {
        if draw.chance(22) {
            let most = match fault {
                Fault::Expired | Fault::StaleList => 500,
                Fault::KillBetweenEffects | Fault::CutStream => 40,
                Fault::LostRenewal => 300,
                Fault::SlowWatch | Fault::Malformed => 60,
                _ => 200,
            };
            let rate = u16::try_from(draw.pick(5, most)).unwrap_or(5);
            plan.per_mille[fault as usize] = rate;
        }
    }
    // A list can only be late if there is one.
    if plan.rate(Fault::Expired) + plan.rate(Fault::StaleList) > 0 {
        plan.per_mille[Fault::CutStream as usize] += 10;
    }
    let replica =
        |draw: &mut Draw| u8::try_from(draw.pick(0, i64::from(replicas) - 1)).unwrap_or(0);
    let at = |draw: &mut Draw| draw.time(0, span);
    for kind in 0..5 {
        if !draw.chance(16) {
            continue;
        }
        for _ in 0..draw.pick(1, 3) {
            let blow = match kind {
                0 => Blow::Kill { replica: replica(draw), back: draw.time(0, 10 * SECOND) },
                1 => Blow::Freeze { replica: replica(draw), span: draw.time(SECOND, 40 * SECOND) },
                2 => Blow::RestartServer { span: draw.time(100 * MILLISECOND, 15 * SECOND) },
                3 => Blow::ClockJump {
                    replica: replica(draw),
                    by: draw.one(&[SECOND, 20 * SECOND, 10 * MINUTE, 120 * MINUTE]),
                },
                _ => Blow::Compact { replica: replica(draw) },
            };
            plan.blows.push((at(draw), blow));
        }
    }
    plan.blows.sort_by_key(|(at, _)| *at);
    // Two leaders at a time need a clock that is ahead and a renewal that is late.
    let jumps = plan.blows.iter().any(|(_, blow)| matches!(blow, Blow::ClockJump { .. }));
    if replicas > 1 && jumps && draw.chance(60) {
        plan.per_mille[Fault::LostRenewal as usize] = 600;
    }
    if plan.is_empty() { FaultPlan::default() } else { plan }
}
