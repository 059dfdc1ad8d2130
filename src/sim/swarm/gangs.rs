//! The gangs that a seed draws.
//!
//! Owns which workloads have a pod group, and what befalls groups and members. Draws by
//! chances of its own, after all else: worlds without gangs stay what they were.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_api::k8s::LabelSelector;
use muster_api::muster::{HalfBound, PodGroupSpec, Role, labels};

use super::draw::Draw;
use super::pods::{checkpoint, requests, template};
use crate::scenario::{Action, ClusterEvent, GroupSpec, Runtime, Shape, Workload};
use crate::time::{MILLISECOND, Micros, SECOND};

/// Worlds with gangs, in a hundred.
pub(super) const WORLDS: i64 = 30;

/// Makes gangs of some workloads, adds some that contend, and troubles them; `much` more
/// than usual.
pub(super) fn draw(
    draw: &mut Draw,
    span: Micros,
    much: bool,
    workloads: &mut Vec<Workload>,
    events: &mut Vec<ClusterEvent>,
) {
    let mut gangs: Vec<usize> = Vec::new();
    for (index, workload) in workloads.iter_mut().enumerate() {
        if draw.chance(45) {
            enlist(draw, span, workload);
            gangs.push(index);
        }
    }
    if gangs.is_empty() || draw.chance(60) {
        let first = workloads.len();
        rivals(draw, span, workloads);
        gangs.extend(first..workloads.len());
    }
    for index in gangs {
        if draw.chance(25) {
            roles(draw, index, workloads);
        }
        trouble(draw, span, &workloads[index], events);
        if much {
            linger(draw, &mut workloads[index]);
            losses(draw, &workloads[index], events);
        }
    }
}

/// Members go slowly, and some are beyond the minimum.
fn linger(draw: &mut Draw, workload: &mut Workload) {
    if draw.chance(60) {
        let spec = &mut Arc::make_mut(&mut workload.template).spec;
        spec.termination_grace_period_seconds = Some(30);
    }
    let size = workload.pod_count();
    let plain = workload.pod_group.as_mut().filter(|group| group.spec.roles.is_empty());
    if let Some(group) = plain.filter(|_| draw.chance(30)) {
        group.spec.min_member = i32::try_from(size.saturating_sub(1).max(1)).ok();
    }
}

/// Members are deleted while their gang is on its way, and soon after.
fn losses(draw: &mut Draw, workload: &Workload, events: &mut Vec<ClusterEvent>) {
    let Workload { namespace, name, at, .. } = workload;
    for _ in 0..draw.pick(0, 4) {
        let pod = format!("{namespace}/{name}-{}", draw.pick(0, 5));
        let at = at + draw.time(MILLISECOND, 20 * SECOND);
        events.push(ClusterEvent { at, action: Action::Delete(pod) });
    }
}

/// Gangs that ask for much the same at much the same time.
fn rivals(draw: &mut Draw, span: Micros, workloads: &mut Vec<Workload>) {
    let (at, together) = (draw.time(0, span), draw.chance(60));
    let large = draw.chance(50);
    let asks = requests(draw, large);
    let alike = draw.chance(60);
    for index in 0..draw.small(1, 3) {
        let name = format!("g{index}");
        let mut pod = template(draw, &name, false);
        if alike {
            pod.spec.containers[0].resources.requests.clone_from(&asks);
        }
        let runtime = draw.time(SECOND, 60 * SECOND);
        let finite = draw.chance(50);
        let mut workload = Workload {
            name,
            namespace: "default".to_owned(),
            shape: Shape::Pods { replicas: draw.small(2, 6) },
            at: if together { at } else { draw.time(0, span) },
            every: 0,
            repeat: 1,
            runtime: finite.then_some(Runtime { min: runtime, max: runtime }),
            startup: None,
            checkpoint: checkpoint(&pod, runtime),
            pod_group: None,
            template: Arc::new(pod),
        };
        enlist(draw, span, &mut workload);
        workloads.push(workload);
    }
}

/// The pods of a workload become a gang.
fn enlist(draw: &mut Draw, span: Micros, workload: &mut Workload) {
    let more = draw.chance(40).then(|| draw.small(2, 6));
    let size = match &mut workload.shape {
        Shape::Pods { replicas } | Shape::Set { replicas, .. } => {
            *replicas = more.unwrap_or(*replicas);
            *replicas
        }
        Shape::Job { parallelism, completions } => {
            *completions = more.unwrap_or(*completions);
            *parallelism = if draw.chance(70) { *completions } else { *parallelism };
            *parallelism = (*parallelism).min(*completions);
            *completions
        }
    };
    let least = match draw.pick(0, 9) {
        0..=5 => size,
        6..=7 => draw.small(1, size),
        8 => size + 1,
        _ => 1,
    };
    let spec = PodGroupSpec {
        min_member: i32::try_from(least).ok(),
        schedule_timeout_seconds: draw.one(&[None, Some(1), Some(5), Some(20), Some(600)]),
        when_half_bound: draw.one(&[None, Some(HalfBound::Release), Some(HalfBound::Wait)]),
        ..PodGroupSpec::default()
    };
    let after = if draw.chance(20) { draw.time(MILLISECOND, span) } else { 0 };
    workload.pod_group = Some(GroupSpec { spec, after });
}

/// A gang has roles: one, or two of which the other is a workload of its own.
fn roles(draw: &mut Draw, index: usize, workloads: &mut Vec<Workload>) {
    let name = workloads[index].name.clone();
    let two = draw.chance(60);
    let other = format!("r{index}");
    let Some(group) = &mut workloads[index].pod_group else { return };
    let least = group.spec.min_member.unwrap_or(1);
    let role = |app: &str, min_member: i32| Role {
        name: app.to_owned(),
        min_member,
        selector: LabelSelector {
            match_labels: BTreeMap::from([("app".to_owned(), app.to_owned())]),
            ..LabelSelector::default()
        },
        topology: None,
    };
    let own = draw.small(1, least.unsigned_abs().max(1)).cast_signed();
    group.spec.roles = vec![role(&name, own)];
    if !two {
        return;
    }
    let helpers = draw.small(1, 3);
    let wanted = draw.small(1, helpers).cast_signed();
    group.spec.roles.push(role(&other, wanted));
    group.spec.min_member = draw.chance(50).then_some(least + wanted);
    let mut pod = template(draw, &other, false);
    pod.metadata.labels.insert(labels::POD_GROUP.to_owned(), name);
    let (at, runtime) = (workloads[index].at, workloads[index].runtime);
    workloads.push(Workload {
        name: other,
        namespace: "default".to_owned(),
        shape: Shape::Pods { replicas: helpers },
        at: at + if draw.chance(70) { 0 } else { draw.time(0, 30 * SECOND) },
        every: 0,
        repeat: 1,
        runtime,
        startup: None,
        checkpoint: None,
        pod_group: None,
        template: Arc::new(pod),
    });
}

/// Groups and members are deleted.
fn trouble(draw: &mut Draw, span: Micros, workload: &Workload, events: &mut Vec<ClusterEvent>) {
    let Workload { namespace, name, .. } = workload;
    if draw.chance(10) {
        let action = Action::DeleteGroup(format!("{namespace}/{name}"));
        events.push(ClusterEvent { at: draw.time(SECOND, span), action });
    }
    if draw.chance(30) {
        for _ in 0..draw.pick(1, 3) {
            let pod = format!("{namespace}/{name}-{}", draw.pick(0, 5));
            let at = draw.time(workload.at, workload.at + span);
            events.push(ClusterEvent { at, action: Action::Delete(pod) });
        }
    }
}
