//! What a decision may be: whose turn it is, and where a pod may go.

use super::Audit;
use super::attempts::{Failure, Term};
use super::fit::{Answer, Node};
use super::pods::{Place, Stage};
use super::steps::key;
use crate::io::Tick;
use crate::{Decision, Outcome};

/// Nodes up to which "no node fits" is checked at every decision.
const FEW_NODES: usize = 64;
/// How a message begins when the cycle panicked.
const PANICKED: &str = "the scheduling cycle panicked";

impl Audit {
    pub(super) fn see_decision(&mut self, now: Tick, decision: &Decision) {
        self.owing();
        if decision.gang.is_some() {
            return self.see_gang(decision);
        }
        let name = key(&decision.pod);
        let Some(pod) = self.world.find(&decision.pod) else {
            return self.violation("S6", format!("{name} was tried, but it is gone"));
        };
        // A cycle that goes on has had its turn.
        let (goes_on, pod_version) = (pod.asking, pod.decided);
        if decision.outcome == Outcome::Skipped {
            if !pod.deleting {
                self.violation("queue", format!("{name} was taken from the queue for nothing"));
            }
            if !goes_on {
                self.in_turn(now, &name);
            }
            self.world.edit(&name, |p| (p.dropped, p.tried) = (true, true));
            return;
        }
        let wrong = if pod.profile.is_none() {
            Some("asks for another scheduler")
        } else if pod.gated {
            Some("is gated")
        } else if pod.deleting {
            Some("is being deleted")
        } else if matches!(pod.place, Place::Bound { .. }) {
            Some("is bound")
        } else if matches!(pod.place, Place::Reserved { .. }) {
            Some("has a node")
        } else {
            None
        };
        if let Some(wrong) = wrong {
            return self.violation("S6", format!("{name} was tried, but it {wrong}"));
        }
        if !goes_on {
            self.in_turn(now, &name);
        }
        let begun = if goes_on { pod_version } else { self.version };
        if decision.version != begun {
            let version = decision.version;
            self.violation("version", format!("{name} is tried under {version}, not {begun}"));
        }
        let stirs = self.world.stirs;
        self.world.edit(&name, |p| {
            p.decided = decision.version;
            (p.tried, p.called, p.stirs, p.asking) = (true, false, stirs, false);
        });
        self.explained(&name, decision);
        self.goes_alone(&name);
        match &decision.outcome {
            Outcome::Scheduled { node } => self.chosen(&name, node, Stage::Going),
            Outcome::WaitingOnPermit { node } => {
                self.chosen(&name, node, Stage::Permit { allowed: false });
            }
            Outcome::Unschedulable | Outcome::Error => self.not_placed(now, &name, decision),
            Outcome::Asking => {
                self.world.edit(&name, |p| p.asking = true);
            }
            Outcome::Skipped | Outcome::Gathered { .. } | Outcome::Accumulating { .. } => {}
        }
    }

    /// The pod's backoff has ended, and nobody else was first.
    fn in_turn(&mut self, now: Tick, name: &str) {
        let Some(pod) = self.world.pods.get(name) else { return };
        if pod.gang.is_some() {
            return; // its gang may have called it at any time
        }
        let plain = self.profiles.iter().all(|p| p.plain_order && p.plain_gates);
        // Who waits for its pace is passed by others.
        let plain = plain && !self.policies.speak_of_pace();
        let first = self.world.first_fresh(name).filter(|_| plain);
        let early = pod.attempts.terms(self.backoff);
        let may = |t: &Term| pod.called || t.until < now.secs() || !t.is_error && first.is_none();
        if !early.is_empty() && !early.iter().any(may) {
            let until = early.iter().map(|t| t.until).min().unwrap_or(0);
            let what =
                format!("{name} was tried at {} s, it backs off until {until} s", now.secs());
            return self.violation("backoff", what);
        }
        // A pod taken early from its backoff, because nothing else was ready.
        let ready = pod.called || early.is_empty() || early.iter().any(|t| t.until < now.secs());
        if let Some((rank, other)) = first.filter(|_| ready)
            && *rank < pod.rank()
        {
            let what = format!("{name} was tried before {other}");
            self.violation("order", what);
        }
    }

    /// With tracing on a decision carries a fresh evaluation: both agree.
    fn explained(&mut self, name: &str, decision: &Decision) {
        let Some(fresh) = &decision.explanation else { return };
        let profile = self.world.pods.get(name).and_then(|p| p.profile);
        if profile.is_some_and(|p| self.profiles[p].extended) || decision.version != self.version {
            return; // it knows nothing of what extenders say, nor of older versions
        }
        if self.is_held_near(name) {
            return; // nor of where the rest of a gang is
        }
        if let (Outcome::Scheduled { node } | Outcome::WaitingOnPermit { node }, Some(pod)) =
            (&decision.outcome, self.world.pods.get(name))
            && pod.is_expected_on(node)
        {
            return; // where it was expected it goes, whatever else would fit
        }
        // Alone looked at, because it is expected there, and then refused at Reserve or Permit.
        let alone = decision.evaluated == 1 && decision.feasible == 1;
        if !alone && fresh.feasible_nodes != decision.feasible as usize {
            let (kept, now) = (decision.feasible, fresh.feasible_nodes);
            self.violation("S1", format!("{kept} nodes fit {name}, judged afresh {now}"));
        }
        let (Outcome::Scheduled { node } | Outcome::WaitingOnPermit { node }) = &decision.outcome
        else {
            return;
        };
        let best = fresh.nodes.values().filter_map(|n| n.total).max();
        let chosen = fresh.nodes.get(&**node).and_then(|n| n.total);
        if chosen != best {
            let what = format!("{name} goes to {node} ({chosen:?}), the best has {best:?}");
            self.violation("score", what);
        }
    }

    pub(super) fn chosen(&mut self, name: &str, node: &str, stage: Stage) {
        let Some(pod) = self.world.pods.get(name) else { return };
        // Of an older version nothing is known any more.
        let known = pod.profile.filter(|_| pod.decided == self.version);
        let rules = known.map(|p| self.profiles[p].rules).unwrap_or_default();
        let answer = match self.world.nodes.get(node) {
            None => Answer::No("there is no such node".into()),
            Some(there) => pod.wants.judge(rules, node, there, self.world.usage(node)),
        };
        let (load, uid) = (pod.idle_load.clone(), pod.uid.clone());
        if let Answer::No(why) = answer {
            self.violation("S1", format!("{name} was put on {node}, but {why}"));
        }
        self.new_attempt(&uid);
        self.devices_chosen(name, node);
        let place = Place::Reserved { node: node.to_owned(), stage };
        self.world.put(name, place, load);
        self.together(name, node, super::topology::PUT);
        self.world.edit(name, |p| p.message = None);
    }

    fn not_placed(&mut self, now: Tick, name: &str, decision: &Decision) {
        let message = decision.message.as_deref().unwrap_or_default();
        if message.is_empty() {
            self.violation("O1", format!("{name} was not placed, and nothing says why"));
        }
        if decision.outcome == Outcome::Unschedulable && decision.feasible == 0 {
            self.nowhere(name);
        }
        let panicked = message.starts_with(PANICKED);
        let failure = match decision.outcome {
            Outcome::Error => Failure::Error,
            _ => Failure::Rejected,
        };
        let backoff = self.backoff;
        self.world.edit(name, |p| {
            p.message = Some(message.to_owned());
            p.quarantined = panicked;
            if !panicked {
                p.attempts.failed(now, failure, backoff);
            }
        });
    }

    /// No node fits, it is said: so it must be, as far as we can tell.
    fn nowhere(&mut self, name: &str) {
        let profile = self.world.pods.get(name).and_then(|p| p.profile);
        let complete = profile.is_some_and(|p| self.profiles[p].complete);
        let older = self.world.pods.get(name).is_some_and(|p| p.decided != self.version);
        if !complete || older || self.world.nodes.len() > FEW_NODES {
            return;
        }
        if let Some(node) = self.fits_somewhere(name) {
            self.violation("L1", format!("no node is said to fit {name}, but {node} does"));
        }
    }

    /// Whether it matters where the rest of its gang is, or others of its controller.
    fn is_held_near(&self, name: &str) -> bool {
        let group = self.world.pods.get(name).and_then(|pod| pod.gang.as_deref());
        self.policies.speak_of_topology()
            || group.is_some_and(|group| self.groups.has_topology(group))
    }

    /// A node that would take the pod, as far as its wishes are modelled.
    pub(super) fn fits_somewhere(&self, name: &str) -> Option<&str> {
        let pod = self.world.pods.get(name).filter(|_| !self.is_held_near(name))?;
        let profile = &self.profiles[pod.profile?];
        if self.lenient || self.world.repelled || pod.wants.unmodelled {
            return None;
        }
        let fits = |(node, there): &(&String, &Node)| {
            let used = self.world.usage(node);
            if pod.wants.judge(profile.rules, node, there, used) != Answer::Yes {
                return false;
            }
            // Room may be kept for pods that are expected there.
            let mut used = used.clone();
            self.expect(&mut used, node, name);
            pod.wants.judge(profile.rules, node, there, &used) == Answer::Yes
        };
        self.world.nodes.iter().find(fits).map(|(node, _)| node.as_str())
    }
}
