//! What policies say of preemption in the worlds that a seed draws.
//!
//! Owns when they come and go. Draws by chances of its own, in worlds that have no other
//! policies: those weigh plugins that may not exist, and then nothing is known of any.

use muster_api::muster::{
    PreemptionMode, PreemptionPolicy, SchedulingPolicy, SchedulingPolicySpec,
};

use super::draw::Draw;
use crate::scenario::{Action, ClusterEvent};
use crate::time::{Micros, SECOND};

/// Worlds with such policies, in a hundred of those that have no others.
pub(super) const WORLDS: i64 = 35;

/// `room`: pods push out others in this world for certain.
pub(super) fn draw(draw: &mut Draw, span: Micros, room: bool, events: &mut Vec<ClusterEvent>) {
    let first = events.len();
    for (name, priority) in [("calm", 1), ("calmer", 2)] {
        if priority == 2 && draw.chance(60) {
            continue;
        }
        let mut at = if draw.chance(80) { 0 } else { draw.time(0, span) };
        for _ in 0..draw.pick(1, 2) {
            let spec = SchedulingPolicySpec {
                priority,
                preemption: Some(preemption(draw)),
                ..SchedulingPolicySpec::default()
            };
            let mut policy = SchedulingPolicy { spec, ..<_>::default() };
            name.clone_into(&mut policy.metadata.name);
            events.push(ClusterEvent { at, action: Action::Policy(Box::new(policy)) });
            at += draw.time(SECOND, span);
        }
        if draw.chance(30) {
            events.push(ClusterEvent { at, action: Action::DeletePolicy(name.to_owned()) });
        }
    }
    // An autoscaler's time is what few worlds would notice otherwise.
    if room && draw.chance(70) {
        for event in &mut events[first..] {
            if let Action::Policy(policy) = &mut event.action
                && let Some(own) = &mut policy.spec.preemption
            {
                own.delay_seconds = Some(20);
            }
        }
    }
}

/// Some of what there is; none of it for so long that a world does not come to rest.
fn preemption(draw: &mut Draw) -> PreemptionPolicy {
    let mut one = |chance: i64, of: &[i32]| draw.chance(chance).then(|| draw.one(of));
    let mut policy = PreemptionPolicy {
        victims_per_minute: one(60, &[1, 1, 2, 10]),
        delay_seconds: one(30, &[0, 5, 20]),
        max_pause_seconds: one(30, &[1, 10]),
        min_runtime_seconds: one(40, &[5, 30, 60]),
        min_priority_gap: one(30, &[1, 20, 95]),
        repeat_window_seconds: one(30, &[10, 60]),
        unhealthy_zone_percent: one(20, &[0, 50]),
        ..PreemptionPolicy::default()
    };
    policy.mode =
        draw.chance(15).then(|| draw.one(&[PreemptionMode::Simulate, PreemptionMode::Never]));
    policy
}
