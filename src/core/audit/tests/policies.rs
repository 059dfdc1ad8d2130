//! Scheduling policies in random histories: they come, change and go, and so do the labels
//! of the namespace.

use muster_api::k8s;
use serde_json::{Value, json};

use super::driver::{Driver, Rng};
use crate::io::{Input, Kind, Object, ObjectKey};
use crate::testing::wire;

/// Steps from one change to the next.
const EVERY: usize = 13;
const NAMES: [&str; 3] = ["one", "two", "three"];
const PLUGINS: [&str; 5] =
    ["NodeResourcesFit", "ImageLocality", "PodTopologySpread", "TaintToleration", "Nobody"];
const STRATEGIES: [&str; 4] = ["Pack", "Spread", "Balanced", "PackAtLowLoad"];

/// What a history makes of policies, if anything.
pub(super) struct Policies {
    seed: u64,
    rng: Rng,
    near: Rng,
}

impl Policies {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, rng: Rng::new(seed ^ 0x706f_6c69), near: Rng::new(seed ^ 0x6e65_6172) }
    }

    fn next(&mut self) -> Input {
        let rng = &mut self.rng;
        let name = NAMES[rng.below(3) as usize];
        match rng.below(8) {
            0 => {
                let key = ObjectKey { name: name.to_owned(), ..ObjectKey::default() };
                return Input::ObjectGone(Kind::SchedulingPolicy, key);
            }
            1 => return Input::RelistStarted(Kind::SchedulingPolicy),
            2 => return Input::RelistDone(Kind::SchedulingPolicy),
            3 => {
                let team = ["ml", "web"][rng.below(2) as usize];
                let meta = json!({"name": "default", "labels": {"team": team}});
                return Input::Object(Box::new(Object::Namespace(wire(json!({"metadata": meta})))));
            }
            _ => {}
        }
        let mut spec = Self::spec(rng);
        // By chances of its own, in histories that have levels.
        let near = &mut self.near;
        if self.seed % 6 == 1 && near.one_in(2) {
            if let Some(spec) = spec.as_object_mut().filter(|_| !near.one_in(4)) {
                spec.remove("scoreWeights");
            }
            spec["topology"] = match near.below(3) {
                0 => json!({"preferred": "rack"}),
                1 => json!({"required": "block", "preferred": "rack"}),
                _ => json!({"required": "rack"}),
            };
        }
        let meta = json!({"name": name, "uid": name});
        let policy = wire(json!({"metadata": meta, "spec": spec}));
        Input::Object(Box::new(Object::SchedulingPolicy(policy)))
    }

    /// Gives a pod a controller, which policies may go by.
    pub(super) fn own(&mut self, pod: &mut k8s::Pod) {
        if self.seed % 6 == 1 && self.near.one_in(2) {
            let uid = format!("owner-{}", self.near.below(2));
            pod.metadata.owner_references =
                vec![k8s::OwnerReference { uid, controller: true, ..<_>::default() }];
        }
    }

    fn spec(rng: &mut Rng) -> Value {
        let mut spec = json!({"priority": rng.below(3)});
        if rng.one_in(3) {
            spec["namespaceSelector"] = json!({"matchLabels": {"team": "ml"}});
        }
        if rng.one_in(3) {
            spec["podSelector"] = json!({"matchLabels": {"app": "a"}});
        }
        if rng.one_in(2) {
            let plugin = PLUGINS[rng.below(5) as usize];
            let weight = [0, 1, 100][rng.below(3) as usize];
            spec["scoreWeights"] = json!([{"plugin": plugin, "weight": weight}]);
        }
        if rng.one_in(2) {
            let strategy = STRATEGIES[rng.below(4) as usize];
            spec["placement"] = json!({"strategy": strategy});
            if strategy == "PackAtLowLoad" {
                spec["placement"]["packBelowPercent"] = json!(30);
                spec["placement"]["spreadAbovePercent"] = json!(50);
            }
        }
        if rng.one_in(2) {
            let half = ["Release", "Wait"][rng.below(2) as usize];
            spec["gang"] = json!({
                "scheduleTimeoutSeconds": 1 + rng.below(60),
                "starvationSeconds": 1 + rng.below(60),
                "whenHalfBound": half,
            });
        }
        spec
    }
}

impl Driver {
    /// Every third history has policies, which change after every so many steps.
    pub(super) fn policy_step(&mut self, at: usize) {
        if self.policies.seed % 3 != 1 || at % EVERY != EVERY - 1 {
            return;
        }
        let input = self.policies.next();
        self.watch.push_back(input);
    }
}
