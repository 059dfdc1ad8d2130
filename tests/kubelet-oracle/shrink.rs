//! Makes a case on which the two sides disagree as small as it gets.

use std::time::{Duration, Instant};

use crate::generate::{Case, Step};

/// How long to try.
const PATIENCE: Duration = Duration::from_secs(20);

/// The smallest case found for which `fails` still holds.
pub(crate) fn shrink(case: &Case, mut fails: impl FnMut(&Case) -> bool) -> Case {
    let begin = Instant::now();
    let mut best = case.clone();
    loop {
        let mut smaller = false;
        for candidate in candidates(&best) {
            if begin.elapsed() > PATIENCE {
                return best;
            }
            if fails(&candidate) {
                best = candidate;
                smaller = true;
                break;
            }
        }
        if !smaller {
            return best;
        }
    }
}

/// The case with one thing less.
fn candidates(case: &Case) -> Vec<Case> {
    let mut found = Vec::new();
    let mut with = |change: &dyn Fn(&mut Case)| {
        let mut less = case.clone();
        change(&mut less);
        found.push(less);
    };
    for step in (0..case.steps.len()).rev() {
        with(&|case| drop(case.steps.remove(step)));
    }
    for (number, step) in case.steps.iter().enumerate() {
        let Step::Admit(pod) = step else { continue };
        for at in 0..pod.init.len() {
            with(&|case| edit(case, number, |pod| drop(pod.init.remove(at))));
        }
        for at in 0..pod.containers.len() {
            if pod.containers.len() > 1 {
                with(&|case| edit(case, number, |pod| drop(pod.containers.remove(at))));
            }
            let names: Vec<&str> = pod.containers[at].resources.limits.keys().copied().collect();
            for name in names.into_iter().filter(|name| *name != "cpu" && *name != "memory") {
                with(&|case| {
                    edit(case, number, |pod| {
                        pod.containers[at].resources.limits.remove(name);
                        pod.containers[at].resources.requests.remove(name);
                    });
                });
            }
        }
    }
    for at in 0..case.machine.devices.len() {
        with(&|case| drop(case.machine.devices.remove(at)));
    }
    let options: Vec<&str> = case.machine.cpu_options.keys().copied().collect();
    for option in options {
        with(&|case| case.machine.cpu_options.retain(|name, _| *name != option));
    }
    if !case.machine.policy_options.is_empty() {
        with(&|case| case.machine.policy_options.clear());
    }
    if case.machine.memory_policy != "None" {
        with(&|case| case.machine.memory_policy = "None");
    }
    if case.machine.cpu_policy != "none" {
        with(&|case| {
            case.machine.cpu_policy = "none";
            case.machine.cpu_options.clear();
        });
    }
    found
}

fn edit(case: &mut Case, step: usize, change: impl Fn(&mut crate::generate::PodSpec)) {
    if let Some(Step::Admit(pod)) = case.steps.get_mut(step) {
        change(pod);
    }
}
