//! Which policies are in force.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_api::muster::policy_reason;

use super::Policy;

/// Policies that may be in force at a time: a set of them is a word.
pub const MAX_POLICIES: usize = 64;

/// What is said of one policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// It is in force.
    pub accepted: bool,
    /// Why, in one word.
    pub reason: &'static str,
    /// Why, for people.
    pub message: Arc<str>,
}

/// What is said of all of them.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// Those in force, the highest priority first.
    pub in_force: Vec<Arc<Policy>>,
    /// By name.
    pub verdicts: BTreeMap<Box<str>, Verdict>,
}

/// Decides which policies are in force. A policy that makes no sense is not, nor is one
/// whose priority an older one has. `plugins` are the names of all plugins that score
/// in some profile; without it any name will do.
#[must_use]
pub fn judge<'a>(
    policies: impl Iterator<Item = &'a Arc<Policy>>,
    plugins: Option<&BTreeSet<&'static str>>,
) -> Judged {
    let mut all: Vec<&Arc<Policy>> = policies.collect();
    // Highest first; of equal priority the oldest, then by name.
    all.sort_by_key(|p| (std::cmp::Reverse(p.priority), p.created, p.name.clone()));
    let mut judged = Judged::default();
    for policy in all {
        let older = judged.in_force.last().filter(|last| last.priority == policy.priority);
        let (reason, message) = if let Some(problem) = problem(policy, plugins) {
            (policy_reason::INVALID, problem)
        } else if let Some(older) = older {
            let (name, priority) = (&older.name, policy.priority);
            let text = format!(
                "SchedulingPolicy {name:?} is older and has priority {priority} too: \
                 give this one another priority"
            );
            (policy_reason::PRIORITY_TAKEN, text)
        } else if judged.in_force.len() >= MAX_POLICIES {
            let text = format!(
                "{MAX_POLICIES} policies of higher priority are in force, which is the most: \
                 delete or merge some"
            );
            (policy_reason::TOO_MANY, text)
        } else {
            judged.in_force.push(Arc::clone(policy));
            (policy_reason::ACCEPTED, "in force".to_owned())
        };
        let accepted = reason == policy_reason::ACCEPTED;
        let verdict = Verdict { accepted, reason, message: message.into() };
        judged.verdicts.insert(policy.name.clone(), verdict);
    }
    judged
}

fn problem(policy: &Policy, plugins: Option<&BTreeSet<&'static str>>) -> Option<String> {
    if let Some(problem) = &policy.problem {
        return Some(format!("spec.{problem}"));
    }
    let plugins = plugins?;
    let (unknown, _) = policy.weights.iter().find(|(name, _)| !plugins.contains(&**name))?;
    let known: Vec<&str> = plugins.iter().copied().collect();
    Some(format!(
        "spec.scoreWeights: no profile has a Score plugin {unknown:?}: name one of {}",
        known.join(", ")
    ))
}
