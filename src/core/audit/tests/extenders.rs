//! Random histories with extenders that are slow, fail and lie.

use std::sync::Arc;

use super::driver::{Driver, run};
use crate::framework::{ExtenderId, ExtenderSpec};
use crate::io::{ExtenderCall, ExtenderReply, Input, NodeVictims, Reply, Scores};

const SEEDS: u64 = 60;

fn failed(in_doubt: bool) -> ExtenderReply {
    ExtenderReply::Failed { error: "down".into(), in_doubt }
}

impl Driver {
    /// An extender answers one of its questions, honestly or not.
    pub(super) fn extend(&mut self) {
        let at = self.rng.below(self.asked.len() as u64) as usize;
        let (token, pod, call) = self.asked.swap_remove(at);
        let reply = match &call {
            ExtenderCall::Bind { node, .. } => {
                let (bound, roll) = (self.rng.below(4) > 0, self.rng.below(4));
                let done = bound && self.bind(&pod, node.to_string()).is_ok();
                match roll {
                    // It says that it did, whether it did or not.
                    0 => ExtenderReply::Bound,
                    1 => failed(true),
                    _ if done => ExtenderReply::Bound,
                    _ => failed(false),
                }
            }
            _ if self.rng.one_in(8) => failed(true),
            ExtenderCall::Filter { nodes, .. } => self.filter(nodes),
            ExtenderCall::Prioritize { extenders, nodes } => {
                ExtenderReply::Prioritized(extenders.iter().map(|_| self.scores(nodes)).collect())
            }
            ExtenderCall::Preempt { candidates, .. } => self.preempt(candidates),
        };
        self.core.apply(self.now, Input::Reply { token, reply: Reply::Extender(reply) });
    }

    fn filter(&mut self, nodes: &[Arc<str>]) -> ExtenderReply {
        let (mut left, mut failed, mut unresolvable) = (Vec::new(), Vec::new(), Vec::new());
        for node in nodes {
            match self.rng.below(6) {
                0 => failed.push((Arc::clone(node), "not now".into())),
                1 => unresolvable.push((Arc::clone(node), "never".into())),
                2 => {}
                _ => left.push(Arc::clone(node)),
            }
        }
        if self.rng.one_in(10) {
            left.push("ghost".into());
        }
        ExtenderReply::Filtered { nodes: left, failed, unresolvable }
    }

    fn scores(&mut self, nodes: &[Arc<str>]) -> Scores {
        if self.rng.one_in(5) {
            return Err("down".into());
        }
        let far = [0, 5, 10, -1, i64::MAX, i64::MIN];
        let score = |node: &Arc<str>| (Arc::clone(node), far[self.rng.below(6) as usize]);
        Ok(nodes.iter().map(score).collect())
    }

    fn preempt(&mut self, candidates: &[NodeVictims]) -> ExtenderReply {
        let mut list = Vec::new();
        for candidate in candidates {
            let mut uids: Vec<Arc<str>> =
                candidate.pods.iter().map(|p| Arc::clone(&p.uid)).collect();
            match self.rng.below(8) {
                0 => continue,
                1 => uids.clear(),
                2 => uids.truncate(1),
                // Somebody else, wherever it is.
                3 => uids.extend(self.pods.values().next().map(|p| p.metadata.uid.as_str().into())),
                _ => {}
            }
            let node = if self.rng.one_in(20) { "ghost".into() } else { candidate.node.clone() };
            list.push((node, uids, self.rng.below(3) as i64));
        }
        ExtenderReply::Preempted(list)
    }
}

/// Extenders of a seed: any verbs, ignorable or not.
fn extenders(seed: u64) -> Vec<ExtenderSpec> {
    let extender = |i: u32| {
        let bits = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (8 * i);
        ExtenderSpec {
            id: ExtenderId(i),
            name: format!("e{i}").into(),
            filters: bits & 1 > 0,
            prioritizes: bits & 2 > 0,
            preempts: bits & 4 > 0,
            binds: i == 0 && bits & 8 > 0,
            weight: 1 + i64::from(i),
            ignorable: bits & 16 > 0,
            ..ExtenderSpec::default()
        }
    };
    (0..3).map(extender).collect()
}

#[test]
fn nothing_is_wrong_whatever_extenders_do() {
    let mut binds = 0;
    for seed in 0..SEEDS {
        let (violations, scheduled) = run(seed, |config| {
            let profiles = std::mem::take(&mut config.profiles).into_iter();
            config.profiles = profiles.map(|p| p.with_extenders(extenders(seed))).collect();
        });
        assert_eq!(violations, [], "seed {seed}: {:?}", extenders(seed));
        binds += scheduled;
    }
    assert!(binds > SEEDS as usize * 3, "the histories are too quiet: {binds} binds");
}
