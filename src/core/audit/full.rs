//! The whole picture against what the core believes: O(all), so now and then.

use std::collections::{BTreeMap, BTreeSet};

use super::Audit;
use super::fit::Usage;
use super::pods::{Place, Pod, Stage};
use super::world::key_of;
use crate::Core;
use crate::cycle::{Going, Waiting};
use crate::io::{PodRef, Tick};
use crate::queue::Place as Queued;

/// Waiting pods for which a node is looked for in one turn.
const TURN: usize = 32;
/// How late a timer may be when it is not known that timers have just fired.
const SLACK_SECONDS: i64 = 30;

fn key(pod: &PodRef) -> String {
    key_of(&pod.namespace, &pod.name)
}

impl Audit {
    /// Compares everything. Call it between steps, after all effects were seen.
    pub fn full(&mut self, now: Tick, core: &Core) {
        self.owing();
        let waiting: Vec<Waiting<'_>> = core.waiting().collect();
        let going: Vec<Going<'_>> = core.going().collect();
        self.places(&waiting, &going);
        self.sizes(&waiting, &going, core);
        self.cache(core);
        for entry in &waiting {
            self.waits_rightly(now, entry);
        }
        self.active_order(&waiting);
        for binding in &going {
            self.goes_rightly(now, binding);
            let held = binding.stage == "permit";
            self.world.edit(&key(binding.pod), |pod| pod.held = held);
        }
        self.requeued(&waiting);
        self.rounds_are_whole();
        self.held();
        let pods = &self.world.pods;
        let waits: BTreeSet<&str> =
            pods.values().filter(|p| p.waits()).map(|p| p.uid.as_str()).collect();
        self.plans.prune(
            |name, uid| pods.get(name).is_some_and(|p| p.uid == uid),
            |preemptor| waits.contains(preemptor),
        );
    }

    /// Every pod of ours is in exactly one place, and nothing else is anywhere.
    fn places(&mut self, waiting: &[Waiting<'_>], going: &[Going<'_>]) {
        let mut found: BTreeMap<String, Vec<&'static str>> = BTreeMap::new();
        for entry in waiting {
            found.entry(key(entry.pod)).or_default().push(entry.queue);
        }
        for binding in going {
            found.entry(key(binding.pod)).or_default().push(binding.stage);
        }
        let mut wrong = Vec::new();
        for (name, pod) in &self.world.pods {
            let places = found.remove(name).unwrap_or_default();
            if places.len() != usize::from(has_a_place(pod)) {
                wrong.push(format!("{name} ({:?}) is in {places:?}", pod.place));
            }
            let queued = |p: &&'static str| QUEUES.contains(p);
            if pod.node().is_some() && places.iter().any(queued) {
                wrong.push(format!("{name} has a node and is in {places:?}"));
            }
        }
        wrong.extend(
            found.iter().map(|(name, at)| format!("{name} does not wait, but is in {at:?}")),
        );
        for what in wrong {
            self.violation("queue", what);
        }
    }

    /// What is indexed twice agrees.
    fn sizes(&mut self, waiting: &[Waiting<'_>], going: &[Going<'_>], core: &Core) {
        let (entries, in_flight, bindings, timers, calls) = core.sizes();
        let of = |stage| going.iter().filter(|g| g.stage == stage).count();
        let due = going.iter().filter(|g| g.due.is_some()).count();
        let asks: usize = going.iter().map(|g| g.asks).sum();
        // A preemption whose victims could not be asked is taken up again by a timer.
        let again = self.plans.plans.values().filter(|plan| plan.may_wait()).count();
        let asking = waiting.iter().filter(|w| w.queue == "asking").count();
        let facts = [
            (entries == waiting.len() + going.len(), "queue entries without a place"),
            (in_flight <= of("permit") + asking, "pods left in flight"),
            (bindings == going.len(), "bindings of pods that are gone"),
            ((due..=due + again).contains(&timers), "timers left behind"),
            (calls == asks, "outside calls of pods that are not parked"),
        ];
        for (_, what) in facts.iter().filter(|(fine, _)| !fine) {
            self.violation("queue", format!("there are {what}: {:?}", core.sizes()));
        }
    }

    /// Nodes, what they offer, who is on them and what those take.
    fn cache(&mut self, core: &Core) {
        let view = core.cache_view();
        let mut wrong = Vec::new();
        let names: BTreeSet<&str> = view.nodes.iter().map(|n| n.name.as_str()).collect();
        let known: BTreeSet<&str> = self.world.nodes.keys().map(String::as_str).collect();
        for name in names.symmetric_difference(&known) {
            wrong.push(format!("node {name} is in one picture only"));
        }
        let mut usage: BTreeMap<&str, Usage> = BTreeMap::new();
        for (name, pod) in &self.world.pods {
            if let Some(node) = pod.node() {
                usage.entry(node).or_default().add(name, &pod.load);
            }
        }
        let nothing = Usage::default();
        for node in &view.nodes {
            let Some(known) = self.world.nodes.get(&node.name) else { continue };
            let used = usage.get(node.name.as_str()).unwrap_or(&nothing);
            if node.allocatable != known.offers {
                wrong.push(format!(
                    "{} offers {:?}, not {:?}",
                    node.name, known.offers, node.allocatable
                ));
            }
            if !node.pods.iter().eq(used.pods.iter()) {
                wrong.push(format!("on {} are {:?}, not {:?}", node.name, used.pods, node.pods));
            }
            let sums: BTreeMap<String, i64> = used
                .amounts
                .iter()
                .filter(|(_, sum)| **sum != 0)
                .map(|(name, sum)| (name.clone(), i64::try_from(*sum).unwrap_or(i64::MAX)))
                .collect();
            if node.requested != sums {
                wrong
                    .push(format!("on {} {sums:?} are taken, not {:?}", node.name, node.requested));
            }
        }
        let held = |p: &Pod| matches!(p.place, Place::Reserved { .. });
        let reserved = self.world.pods.iter().filter(|(_, p)| held(p)).map(|(name, _)| name);
        if !view.assumed.iter().eq(reserved.clone()) {
            let reserved: Vec<_> = reserved.collect();
            wrong.push(format!("assumed are {:?}, reserved {reserved:?}", view.assumed));
        }
        for what in wrong {
            self.violation("cache", what);
        }
    }

    /// A waiting pod is where its history puts it, and says why it waits.
    fn waits_rightly(&mut self, now: Tick, entry: &Waiting<'_>) {
        let name = key(entry.pod);
        let Some(pod) = self.world.pods.get(&name) else { return };
        let plain = pod.profile.is_some_and(|p| self.profiles[p].plain_gates);
        if entry.queue == "asking" {
            if !pod.asking || entry.place != Queued::InFlight {
                self.violation("queue", format!("{name} is parked, but was not seen to ask"));
            }
            return;
        }
        if matches!(entry.place, Queued::Gang { .. }) {
            if pod.gang.is_none() {
                self.violation("queue", format!("{name} waits for a gang that it is not in"));
            }
            return;
        }
        let grouped = pod.gang.is_some();
        let terms = pod.attempts.terms(self.backoff);
        let over = |until: i64| until < now.secs();
        let mut wrong = Vec::new();
        match entry.place {
            // A gang that is formed lets its members go at once.
            Queued::Active | Queued::Backoff { .. } if grouped => {}
            Queued::Active
                if !pod.called && !terms.is_empty() && !terms.iter().any(|t| over(t.until)) =>
            {
                wrong.push(("backoff", format!("{name} is active while it backs off")));
            }
            Queued::Backoff { error, expiry } => {
                if !terms.iter().any(|t| t.until == expiry && t.is_error == error) {
                    let what = format!("{name} backs off until {expiry} s, expected {terms:?}");
                    wrong.push(("backoff", what));
                }
                let late = if self.advanced == Some(now) { 0 } else { SLACK_SECONDS };
                if over(expiry + late) {
                    wrong.push(("backoff", format!("{name} backs off beyond {expiry} s")));
                }
            }
            Queued::Gated { .. } if plain && !pod.gated => {
                wrong.push(("queue", format!("{name} is held by gates it does not have")));
            }
            Queued::InFlight => {
                wrong.push(("queue", format!("{name} is queued and in flight")));
            }
            Queued::Quarantined if !pod.quarantined => {
                wrong.push(("queue", format!("{name} is quarantined for nothing")));
            }
            _ => {}
        }
        if plain && pod.gated && !matches!(entry.place, Queued::Gated { .. }) && !pod.tried {
            wrong.push(("S6", format!("{name} is gated and {:?}", entry.place)));
        }
        if pod.tried && plain && entry.message.unwrap_or_default().is_empty() {
            wrong.push(("O1", format!("{name} waits and nothing says why")));
        }
        // While it is gated or held that is the reason, and not what an attempt said.
        // What a gang said of a member stays with it until it is tried alone.
        let attempted =
            plain && !grouped && !matches!(entry.place, Queued::Gated { .. } | Queued::Held);
        if let (Some(said), Some(kept)) = (&pod.message, entry.message.filter(|_| attempted))
            && !same_message(said, kept)
        {
            wrong.push(("O1", format!("{name} waits because {said:?}, it is kept as {kept:?}")));
        }
        for (invariant, what) in wrong {
            self.violation(invariant, what);
        }
    }

    /// The active queue is in order.
    fn active_order(&mut self, waiting: &[Waiting<'_>]) {
        if !self.profiles.iter().all(|p| p.plain_order) {
            return;
        }
        let active = waiting.iter().filter(|e| e.queue == "active");
        let active = active.filter(|e| !matches!(e.place, Queued::Gang { .. }));
        let ranks: Vec<_> = active
            .filter_map(|e| {
                let name = key(e.pod);
                Some((self.world.pods.get(&name)?.rank(), name))
            })
            .collect();
        for pair in ranks.windows(2).filter(|pair| pair[0].0 > pair[1].0) {
            self.violation("order", format!("{} is queued before {}", pair[0].1, pair[1].1));
        }
    }

    /// A binding is as far as its answers say, and no timer is overdue.
    fn goes_rightly(&mut self, now: Tick, binding: &Going<'_>) {
        let name = key(binding.pod);
        let Some(pod) = self.world.pods.get(&name) else { return };
        let fits = match pod.stage() {
            // A server of the user's own may have been asked at either point.
            Some(Stage::Permit { allowed }) => {
                binding.stage == "permit" || allowed && binding.stage == "prebind"
            }
            Some(Stage::Gathered) => {
                matches!(binding.stage, "gathered" | "permit" | "prebind" | "prebound")
            }
            Some(Stage::Going) => binding.stage == "prebind",
            Some(Stage::Sent { .. }) => binding.stage == "bind",
            Some(Stage::Unknown { .. }) => binding.stage == "rebind",
            Some(Stage::Conflict { .. }) => binding.stage == "settle",
            Some(Stage::Lent) => matches!(binding.stage, "lent" | "shown"),
            Some(Stage::Refused | Stage::Agreed) | None => false,
        };
        let stage = pod.stage();
        if !fits || pod.node() != Some(binding.node) {
            let what =
                format!("{name} is at {} on {}, seen {stage:?}", binding.stage, binding.node);
            self.violation("binding", what);
        }
        let late = if self.advanced == Some(now) { 0 } else { SLACK_SECONDS };
        if binding.due.is_some_and(|due| due.after_secs(late) <= now) {
            self.violation("binding", format!("{name} is at {} beyond its time", binding.stage));
        }
        let timed = matches!(binding.stage, "permit" | "rebind" | "settle" | "shown");
        if timed && binding.due.is_none() {
            self.violation("binding", format!("{name} is at {} without end", binding.stage));
        }
    }

    /// Nobody waits for an event that has already come: no node fits a pod that
    /// plugins we can judge keep waiting.
    fn requeued(&mut self, waiting: &[Waiting<'_>]) {
        let alone = |e: &&Waiting<'_>| !matches!(e.place, Queued::Gang { .. });
        let asleep = waiting.iter().filter(|e| e.queue == "unschedulable");
        let asleep: Vec<_> = asleep.filter(alone).collect();
        let turn = self.turn;
        self.turn = turn.wrapping_add(TURN);
        for at in 0..asleep.len().min(TURN) {
            let entry = asleep[(turn + at) % asleep.len()];
            let name = key(entry.pod);
            let Some(pod) = self.world.pods.get(&name) else { continue };
            let eager = entry.rejectors.iter().any(|r| self.eager.contains(r));
            if eager && pod.stirs < self.world.stirs {
                let what = format!("{name} waits for any event, and there was one");
                self.violation("requeue", what);
                continue;
            }
            let known =
                |p: usize| entry.rejectors.iter().all(|r| self.profiles[p].modelled.contains(r));
            if !pod.profile.is_some_and(known) || entry.rejectors.is_empty() {
                continue;
            }
            if let Some(node) = self.fits_somewhere(&name) {
                let what = format!("{name} waits for an event, but {node} would take it");
                self.violation("requeue", what);
            }
        }
    }

    /// Plugins hold something for pods with a node only.
    fn held(&mut self) {
        let with_node = self.world.pods.values().filter(|p| p.node().is_some());
        let with_node: BTreeSet<&str> = with_node.map(|p| p.uid.as_str()).collect();
        let leaked: Vec<String> = self
            .reservations
            .holders()
            .filter(|uid| !with_node.contains(&***uid))
            .map(ToString::to_string)
            .collect();
        for uid in leaked {
            self.violation(
                "reserve",
                format!("plugins hold something for {uid}, which has no node"),
            );
        }
    }
}

const QUEUES: &[&str] = &["active", "backoff", "unschedulable", "gated", "quarantined", "asking"];

/// Whether a queue or a binding should have the pod.
fn has_a_place(pod: &Pod) -> bool {
    match &pod.place {
        Place::Bound { .. } => false,
        Place::Reserved { stage, .. } => *stage != Stage::Agreed,
        Place::Pending => pod.waits(),
    }
}

/// Notes of events may be cut.
fn same_message(said: &str, kept: &str) -> bool {
    said == kept || said.strip_suffix(" ...").is_some_and(|head| kept.starts_with(head))
}
