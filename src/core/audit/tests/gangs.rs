//! Random pod groups in random histories: created, changed, deleted and listed anew, with
//! members of every kind.

use serde_json::json;

use super::driver::{Driver, NODES, Rng};
use crate::io::{Change, Input, Kind, Object, ObjectKey};
use crate::testing::wire;
use muster_api::k8s;

/// What a history has of gangs. By chances of its own: what a seed meant before there
/// were gangs it still means.
pub(super) struct Gangs {
    rng: Rng,
    on: bool,
    /// How many groups there may be.
    most: u64,
    groups: std::collections::BTreeMap<String, Object>,
    ended: Vec<k8s::Pod>,
    /// Chances of topologies; none in histories that have none.
    near: Option<Rng>,
    /// The same of ranks, segments and domains of one's own.
    ranks: Option<Rng>,
    topology: Option<Object>,
}

impl Gangs {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x6761_6e67);
        let most = 1 + rng.below(3);
        let near = (seed % 6 == 1).then(|| Rng::new(seed ^ 0x0072_6163));
        let ranks = (seed % 6 == 1 && seed % 4 != 1).then(|| Rng::new(seed ^ 0x7261_6e6b));
        let (groups, ended, topology) = <_>::default();
        Self { rng, on: seed % 3 == 1, most, groups, ended, near, ranks, topology }
    }

    /// Makes a pod a member, perhaps.
    pub(super) fn join(&mut self, pod: &mut k8s::Pod) {
        if !self.on || self.rng.one_in(3) {
            return;
        }
        let group = format!("g{}", self.rng.below(self.most));
        pod.metadata.labels.insert("muster.dev/pod-group".into(), group);
        let role = if self.rng.one_in(3) { "launcher" } else { "worker" };
        pod.metadata.labels.insert("role".into(), role.into());
        if let Some(ranks) = &mut self.ranks
            && !ranks.one_in(8)
        {
            let label = "batch.kubernetes.io/job-completion-index";
            pod.metadata.labels.insert(label.into(), ranks.below(6).to_string());
        }
    }

    /// A member has ended.
    pub(super) fn end(&mut self, pod: &k8s::Pod) -> Option<Input> {
        let member = pod.metadata.labels.contains_key("muster.dev/pod-group");
        if !self.on || !member {
            return None;
        }
        self.ended.push(pod.clone());
        Some(Input::Ended(Kind::EndedMember, Change::Upsert(Box::new(pod.clone()))))
    }

    fn group(&mut self, name: &str) -> Object {
        let rng = &mut self.rng;
        let mut spec = json!({
            "minMember": 1 + rng.below(4),
            "scheduleTimeoutSeconds": 2 + rng.below(20),
        });
        if rng.one_in(3) {
            spec["minMember"] = json!(2 + rng.below(3));
            spec["roles"] = json!([
                {"name": "launcher", "minMember": rng.below(2),
                 "selector": {"matchLabels": {"role": "launcher"}}},
                {"name": "worker", "minMember": 1,
                 "selector": {"matchLabels": {"role": "worker"}}},
            ]);
        }
        if rng.one_in(3) {
            spec["reservation"] = json!("Accumulate");
        }
        if rng.one_in(3) {
            spec["whenHalfBound"] = json!("Wait");
        }
        if rng.one_in(3) {
            spec["starvationSeconds"] = json!(1 + rng.below(20));
        }
        if let Some(near) = &mut self.near {
            let levels =
                ["rack", "block", "example.com/rack", "rack", "block", "rack", "zone", "rakc"];
            let mut level = || levels[near.below(8) as usize];
            let (required, preferred) = (level(), level());
            match near.below(4) {
                0 => {}
                1 => spec["topology"] = json!({"preferred": preferred}),
                2 => spec["topology"] = json!({"required": required, "preferred": preferred}),
                _ => spec["topology"] = json!({"required": required}),
            }
            if spec["roles"].is_array() && near.one_in(2) {
                let topology = json!({"required": levels[near.below(2) as usize]});
                spec["roles"][1]["topology"] = topology;
            }
        }
        if let Some(ranks) = &mut self.ranks {
            match ranks.below(4) {
                0 if spec["topology"]["required"].is_string() => {
                    spec["topology"]["exclusive"] = json!(true);
                }
                1 => {
                    let level = ["rack", "example.com/rack", "block"][ranks.below(3) as usize];
                    let kind = ["required", "required", "preferred"][ranks.below(3) as usize];
                    spec["topology"]["segments"] = json!([{"size": 2, kind: level}]);
                }
                2 => {
                    spec["topology"] = json!({"required": "rack", "exclusive": true});
                }
                _ => {}
            }
        }
        let meta = json!({"name": name, "namespace": "default", "uid": format!("u-{name}")});
        Object::PodGroup(wire(json!({"metadata": meta, "spec": spec})))
    }
}

impl Gangs {
    /// Gives a node labels of the levels that groups ask for, or takes one away.
    pub(super) fn label(&mut self, wire: &mut k8s::Node) {
        let Some(near) = &mut self.near else { return };
        for (key, values) in [("example.com/block", 2), ("example.com/rack", 2)] {
            let labels = &mut wire.metadata.labels;
            if !labels.contains_key(key) || near.one_in(8) {
                labels.insert(key.to_owned(), format!("v{}", near.below(values)));
            }
            if near.one_in(10) {
                labels.remove(key);
            }
        }
    }

    /// The levels that groups ask for come, change or go.
    fn levels(&mut self) -> Option<Input> {
        let near = self.near.as_mut()?;
        if self.topology.is_some() && !near.one_in(30) {
            return None;
        }
        let level = |name: &str| json!({"name": name, "nodeLabel": format!("example.com/{name}")});
        let levels = match near.below(6) {
            0 if self.topology.take().is_some() => {
                let key = ObjectKey { name: "net".into(), ..<_>::default() };
                return Some(Input::ObjectGone(Kind::ClusterTopology, key));
            }
            1 => json!([level("rack")]),
            2 => json!([level("block"), {"name": "rack", "nodeLabel": "zone"}]),
            _ => json!([level("block"), level("rack")]),
        };
        let wire = wire(json!({"metadata": {"name": "net"}, "spec": {"levels": levels}}));
        self.topology = Some(Object::ClusterTopology(wire));
        self.topology.clone().map(|topology| Input::Object(Box::new(topology)))
    }
}

impl Driver {
    /// Something may happen to groups.
    pub(super) fn gang_step(&mut self) {
        if let Some(input) = self.gangs.levels() {
            self.watch.push_back(input);
        }
        // Nodes move between domains while members are on their way there.
        if let Some(node) =
            self.gangs.near.as_mut().and_then(|near| near.one_in(2).then(|| near.below(NODES)))
        {
            self.upsert_node(&format!("n{node}"));
        }
        if !self.gangs.on || !self.gangs.rng.one_in(12) {
            return;
        }
        let name = format!("g{}", self.gangs.rng.below(self.gangs.most));
        match self.gangs.rng.below(12) {
            0 => {
                if self.gangs.groups.remove(&name).is_some() {
                    let key = ObjectKey { namespace: "default".into(), name, ..<_>::default() };
                    self.watch.push_back(Input::ObjectGone(Kind::PodGroup, key));
                }
            }
            1 => self.relist_groups(),
            2 => {
                if let Some(pod) = self.gangs.ended.pop() {
                    let k8s::ObjectMeta { namespace, name, uid, .. } = pod.metadata;
                    let gone = Change::Delete(ObjectKey { namespace, name, uid });
                    self.watch.push_back(Input::Ended(Kind::EndedMember, gone));
                }
            }
            _ => {
                let group = self.gangs.group(&name);
                self.gangs.groups.insert(name, group.clone());
                self.watch.push_back(Input::Object(Box::new(group)));
            }
        }
    }

    fn relist_groups(&mut self) {
        self.watch.retain(|input| match input {
            Input::Object(object) => object.kind() != Kind::PodGroup,
            Input::ObjectGone(kind, _) => *kind != Kind::PodGroup,
            _ => true,
        });
        self.core.apply(self.now, Input::RelistStarted(Kind::PodGroup));
        for group in self.gangs.groups.values() {
            self.core.apply(self.now, Input::Object(Box::new(group.clone())));
        }
        self.core.apply(self.now, Input::RelistDone(Kind::PodGroup));
    }
}
