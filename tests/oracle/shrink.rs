//! Makes a state on which the two sides disagree as small as it gets: drops
//! objects, then members and items, one at a time, as long as a disagreement
//! of the same kind is left.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::generate::State;

/// How long to try; a state of average size takes a few seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// A way to a value inside an object.
type Path = Vec<Step>;

#[derive(Clone)]
enum Step {
    Member(String),
    Item(usize),
}

/// Members that an object cannot do without. Capacities tell volumes apart, and
/// start times pods: of two alike, kube-scheduler takes either. It cannot remove
/// a pod without a UID from a node.
const NEEDED: &[&str] = &[
    "apiVersion",
    "kind",
    "name",
    "namespace",
    "metadata",
    "capacity",
    "storage",
    "startTime",
    "uid",
];

/// The list of plugins stays whole: without it the default profile would hold,
/// and with that the plugins that Muster does not have.
const WHOLE: &str = "plugins";

/// The smallest state found for which `fails` still holds.
pub(crate) fn shrink(state: &State, mut fails: impl FnMut(&State) -> bool) -> State {
    let begin = Instant::now();
    let mut best = state.clone();
    loop {
        let size = weight(&best);
        let kept: Vec<Value> = best.objects.clone();
        // Last first, so that places stay valid while items go.
        for place in (0..kept.len()).rev() {
            let mut candidate = best.clone();
            let removed = candidate.objects.remove(place);
            let name = format!("{}/{}", text(&removed, "namespace"), text(&removed, "name"));
            if removed["kind"] == "Pod" && best.pods.contains(&name) {
                // A sequence may become shorter, down to one pod.
                if best.pods.len() == 1 {
                    continue;
                }
                candidate.pods.retain(|pod| pod != &name);
            }
            if begin.elapsed() < PATIENCE && fails(&candidate) {
                best = candidate;
            }
        }
        for place in 0..=best.objects.len() {
            for path in paths(value_at(&best, place)).into_iter().rev() {
                let mut candidate = best.clone();
                let value = match candidate.objects.get_mut(place) {
                    Some(object) => object,
                    None => &mut candidate.config,
                };
                if begin.elapsed() < PATIENCE && remove(value, &path) && fails(&candidate) {
                    best = candidate;
                }
            }
        }
        if weight(&best) == size || begin.elapsed() >= PATIENCE {
            return best;
        }
    }
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"][key].as_str().unwrap_or_default()
}

fn weight(state: &State) -> usize {
    let objects: usize = state.objects.iter().map(|o| o.to_string().len()).sum();
    objects + state.config.to_string().len()
}

/// The object at a place; the profile comes after the last object.
fn value_at(state: &State, place: usize) -> &Value {
    state.objects.get(place).unwrap_or(&state.config)
}

/// Ways to everything that may be removed, parents before children: walked
/// backwards, children go first and leave the other paths valid.
fn paths(value: &Value) -> Vec<Path> {
    fn walk(value: &Value, path: &Path, found: &mut Vec<Path>) {
        let mut visit = |step: Step, child: &Value, removable: bool| {
            let mut path = path.clone();
            path.push(step);
            if removable {
                found.push(path.clone());
            }
            walk(child, &path, found);
        };
        match value {
            Value::Object(members) => {
                for (key, child) in members.iter().filter(|(key, _)| *key != WHOLE) {
                    visit(Step::Member(key.clone()), child, !NEEDED.contains(&key.as_str()));
                }
            }
            Value::Array(items) => {
                for (i, child) in items.iter().enumerate() {
                    visit(Step::Item(i), child, true);
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(value, &Vec::new(), &mut found);
    found
}

fn remove(value: &mut Value, path: &[Step]) -> bool {
    match path {
        [Step::Member(key)] => value.as_object_mut().is_some_and(|m| m.remove(key).is_some()),
        [Step::Item(i)] => match value.as_array_mut() {
            Some(items) if *i < items.len() => {
                items.remove(*i);
                true
            }
            _ => false,
        },
        [Step::Member(key), rest @ ..] => value.get_mut(key).is_some_and(|v| remove(v, rest)),
        [Step::Item(i), rest @ ..] => value.get_mut(i).is_some_and(|v| remove(v, rest)),
        [] => false,
    }
}
