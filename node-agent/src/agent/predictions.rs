//! Predicted placements, held against what the kubelet did.
//!
//! Owns the counting: one verdict per pod. Must never judge a pod before the kubelet has given it
//! devices of the resource, and never twice.

use std::collections::{BTreeMap, BTreeSet};

use muster_api::muster::annotations::PREDICTED_DEVICES;
use muster_api::muster::node_topology::{self as api, node_condition};

use super::pods::Pods;
use crate::podresources::Holdings;
use crate::reading::Finding;

/// Most ids that are named in a message.
const NAMED: usize = 8;

/// What became of a prediction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Held,
    /// What was predicted and what came, in words.
    Missed(String),
    /// The annotation cannot be read.
    Invalid(String),
}

/// Counts since the start, and the verdicts on pods that are still there.
#[derive(Clone, Debug, Default)]
pub struct Predictions {
    pub held: u64,
    pub missed: u64,
    pub invalid: u64,
    /// By UID; bounded by the pods that are kept.
    judged: BTreeMap<String, (String, Verdict)>,
}

type Wish = BTreeMap<String, BTreeSet<String>>;

impl Predictions {
    /// Judges pods that have got their devices since the last time.
    pub fn judge(&mut self, pods: &Pods, holdings: &Holdings) {
        self.judged.retain(|uid, _| pods.has_uid(uid));
        for (namespace, name, uid, text) in pods.predictions() {
            if self.judged.contains_key(uid) {
                continue;
            }
            let verdict = match serde_json::from_str::<Wish>(text) {
                Err(error) => Some(Verdict::Invalid(error.to_string())),
                Ok(wish) => verdict(&wish, &held(namespace, name, holdings)),
            };
            let Some(verdict) = verdict else { continue };
            match &verdict {
                Verdict::Held => self.held += 1,
                Verdict::Missed(_) => self.missed += 1,
                Verdict::Invalid(_) => self.invalid += 1,
            }
            self.judged.insert(uid.to_owned(), (format!("{namespace}/{name}"), verdict));
        }
    }

    /// `status.predictions`; absent if there was nothing to judge.
    pub fn status(&self) -> Option<api::Predictions> {
        let any = self.held + self.missed > 0;
        any.then_some(api::Predictions { held: self.held, missed: self.missed })
    }

    /// False while a pod is there that got other devices than predicted.
    pub fn finding(&self) -> Finding {
        let mut wrong = self.judged.values().filter_map(|(pod, verdict)| match verdict {
            Verdict::Held => None,
            Verdict::Missed(words) => Some(("Missed", format!("{pod}: {words}"))),
            Verdict::Invalid(words) => {
                Some(("Invalid", format!("{pod}: {}: {words}", PREDICTED_DEVICES)))
            }
        });
        let first = wrong.next();
        let more = wrong.count();
        let (holds, reason, message) = match first {
            None => (true, "AsPredicted", String::new()),
            Some((reason, words)) if more == 0 => (false, reason, words),
            Some((reason, words)) => (false, reason, format!("{words}; and {more} more pods")),
        };
        super::finding(node_condition::PREDICTIONS_HOLD, Some(holds), reason, &message)
    }
}

/// The devices of one pod, by resource.
fn held(namespace: &str, name: &str, holdings: &Holdings) -> Wish {
    let mut held = Wish::new();
    let mine = holdings.iter().filter(|(n, p, _, _)| *n == namespace && *p == name);
    for (resource, id) in mine.flat_map(|(_, _, _, holding)| holding.devices.keys()) {
        held.entry(resource.clone()).or_default().insert(id.clone());
    }
    held
}

/// None while the kubelet has not given all that it will (a container of a pod may come later), and if nothing was
/// predicted.
fn verdict(wish: &Wish, held: &Wish) -> Option<Verdict> {
    if wish.is_empty() {
        return None;
    }
    let empty = BTreeSet::new();
    let mut missed = None;
    for (resource, expected) in wish {
        let got = held.get(resource).unwrap_or(&empty);
        if got.len() < expected.len() {
            return None;
        }
        if got != expected && missed.is_none() {
            let text = format!("{resource}: {} predicted, {} given", list(expected), list(got));
            missed = Some(Verdict::Missed(text));
        }
    }
    Some(missed.unwrap_or(Verdict::Held))
}

fn list(ids: &BTreeSet<String>) -> String {
    let mut named: Vec<&str> = ids.iter().take(NAMED).map(String::as_str).collect();
    if ids.len() > NAMED {
        named.push("…");
    }
    named.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::podresources::{Holding, PodHolding};

    fn holdings(name: &str, ids: &[&str]) -> Holdings {
        let gpu = |id: &&str| ("nvidia.com/gpu".to_owned(), (*id).to_owned());
        let devices = ids.iter().map(|id| (gpu(id), BTreeSet::new())).collect();
        let holding = Holding { devices, ..Holding::default() };
        let pod = PodHolding {
            containers: [("main".to_owned(), holding)].into(),
            ..PodHolding::default()
        };
        Holdings { pods: [(("team".to_owned(), name.to_owned()), pod)].into(), cut: false }
    }

    fn pods(predicted: &str) -> Pods {
        let mut pods = Pods::default();
        pods.insert("team", "p", "uid", Some(predicted));
        pods
    }

    #[test]
    fn a_pod_is_judged_once_and_when_it_has_all() {
        let mut predictions = Predictions::default();
        let two = pods(r#"{"nvidia.com/gpu":["a","b"]}"#);
        let mut counts = |held: &[&str]| {
            predictions.judge(&two, &holdings("p", held));
            (predictions.held, predictions.missed)
        };
        assert_eq!(counts(&[]), (0, 0));
        assert_eq!(counts(&["b"]), (0, 0), "not all yet");
        assert_eq!(counts(&["a", "b"]), (1, 0));
        assert_eq!(counts(&["a", "c"]), (1, 0), "judged already");
        assert!(predictions.finding().holds == Some(true));
    }

    #[test]
    fn a_miss_stands_until_its_pod_is_gone() {
        let mut predictions = Predictions::default();
        let wish = pods(r#"{"nvidia.com/gpu":["a","b"]}"#);
        predictions.judge(&wish, &holdings("p", &["a", "c"]));
        let finding = predictions.finding();
        assert_eq!((finding.holds, finding.reason), (Some(false), "Missed"));
        assert_eq!(finding.message, "team/p: nvidia.com/gpu: a,b predicted, a,c given");
        predictions.judge(&Pods::default(), &Holdings::default());
        assert_eq!(predictions.finding().holds, Some(true));
        assert_eq!(predictions.status(), Some(api::Predictions { held: 0, missed: 1 }));
    }

    #[test]
    fn a_prediction_of_nothing_neither_holds_nor_fails() {
        let mut predictions = Predictions::default();
        predictions.judge(&pods("{}"), &holdings("p", &["a"]));
        assert_eq!(predictions.status(), None);
        assert_eq!(predictions.finding().holds, Some(true));
    }

    #[test]
    fn what_cannot_be_read_is_counted_apart() {
        for text in ["", "[]", r#"{"nvidia.com/gpu":"a"}"#] {
            let mut predictions = Predictions::default();
            predictions.judge(&pods(text), &holdings("p", &["a"]));
            assert_eq!((predictions.invalid, predictions.missed), (1, 0), "{text}");
            assert_eq!(predictions.finding().reason, "Invalid");
            assert_eq!(predictions.status(), None);
        }
    }
}
