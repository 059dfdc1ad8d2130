//! Whether a pod may go to a node, judged from wire objects alone.
//!
//! Owns the checker's own reading of taints, selectors and affinity. Where an
//! object is so odd that the rules are in doubt the answer is [`Answer::Unsure`]:
//! a checker that cries wolf is worse than none.

use std::collections::BTreeMap;

use muster_api::k8s;

use super::requests::{self, Amounts, Port};

/// What the checker thinks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Yes,
    No(String),
    Unsure,
}

/// A node as last seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub(super) offers: Amounts,
    pub(super) most_pods: i64,
    labels: BTreeMap<String, String>,
    taints: Vec<k8s::Taint>,
    cordoned: bool,
    /// The relist in which it was last seen.
    pub(super) seen: u64,
}

impl Node {
    pub(super) fn of(wire: &k8s::Node, seen: u64) -> Self {
        Self {
            offers: requests::offered(&wire.status.allocatable),
            most_pods: requests::most_pods(&wire.status.allocatable),
            labels: wire.metadata.labels.clone(),
            taints: wire.spec.taints.clone(),
            cordoned: wire.spec.unschedulable,
            seen,
        }
    }
}

impl Node {
    /// The value of a label.
    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }
}

/// What is taken on a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    pub(super) amounts: BTreeMap<String, i128>,
    pub(super) ports: Vec<Port>,
    pub(super) pods: std::collections::BTreeSet<String>,
}

/// What a pod occupies once it has a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) amounts: Amounts,
    pub(super) ports: Vec<Port>,
}

impl Usage {
    pub(super) fn add(&mut self, pod: &str, load: &Load) {
        self.pods.insert(pod.to_owned());
        self.ports.extend(load.ports.iter().cloned());
        for (name, amount) in &load.amounts {
            *self.amounts.entry(name.clone()).or_default() += i128::from(*amount);
        }
    }

    pub(super) fn remove(&mut self, pod: &str, load: &Load) {
        self.pods.remove(pod);
        for port in &load.ports {
            if let Some(at) = self.ports.iter().position(|p| p == port) {
                self.ports.remove(at);
            }
        }
        for (name, amount) in &load.amounts {
            if let Some(sum) = self.amounts.get_mut(name) {
                *sum -= i128::from(*amount);
            }
        }
    }
}

/// What a pod asks of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Wants {
    pub(super) amounts: Amounts,
    pub(super) ports: Vec<Port>,
    selector: BTreeMap<String, String>,
    required: Option<k8s::NodeSelector>,
    tolerations: Vec<k8s::Toleration>,
    /// It has wishes this checker does not model: relations to other pods,
    /// volumes, features of the kubelet.
    pub(super) unmodelled: bool,
}

/// Which of the rules a profile enforces.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rules {
    pub(super) cordon: bool,
    pub(super) taints: bool,
    pub(super) affinity: bool,
    pub(super) ports: bool,
    pub(super) room: bool,
}

impl Wants {
    pub(super) fn of(pod: &k8s::Pod) -> Self {
        let (spec, affinity) = (&pod.spec, pod.spec.affinity.as_ref());
        let node_affinity = affinity.and_then(|a| a.node_affinity.as_ref());
        Self {
            amounts: requests::wanted(pod),
            ports: requests::ports(spec),
            selector: spec.node_selector.clone(),
            required: node_affinity.and_then(|a| a.required.clone()),
            tolerations: spec.tolerations.clone(),
            unmodelled: !spec.topology_spread_constraints.is_empty()
                || !spec.volumes.is_empty()
                || spec.scheduling_group.is_some()
                || spec.host_users == Some(false)
                || !spec.ephemeral_containers.is_empty()
                || spec
                    .containers
                    .iter()
                    .chain(&spec.init_containers)
                    .any(|c| c.bind_mount_options || !c.restart_policy_rules.is_empty())
                || affinity
                    .is_some_and(|a| a.pod_affinity.is_some() || a.pod_anti_affinity.is_some()),
        }
    }

    /// Whether two pods ask for the same.
    pub(super) fn is_as(&self, other: &Self) -> bool {
        self.amounts == other.amounts
            && self.ports == other.ports
            && self.selector == other.selector
            && self.required == other.required
            && self.tolerations == other.tolerations
            && self.unmodelled == other.unmodelled
    }

    /// Whether the pod may be placed on `node` beside what is there.
    pub(super) fn judge(&self, rules: Rules, name: &str, node: &Node, used: &Usage) -> Answer {
        if rules.cordon && node.cordoned && !self.tolerates(CORDON, "", "NoSchedule") {
            return Answer::No("it is cordoned".into());
        }
        let repels = |t: &&k8s::Taint| {
            matches!(t.effect.as_str(), "NoSchedule" | "NoExecute")
                && !self.tolerates(&t.key, &t.value, &t.effect)
        };
        if let Some(taint) = node.taints.iter().find(repels).filter(|_| rules.taints) {
            return Answer::No(format!("taint {} is not tolerated", taint.key));
        }
        if rules.affinity {
            match self.selects(name, node) {
                Answer::Yes => {}
                other => return other,
            }
        }
        if rules.ports && self.ports.iter().any(|p| used.ports.iter().any(|q| p.clashes(q))) {
            return Answer::No("a host port is taken".into());
        }
        if rules.room { self.room(node, used) } else { Answer::Yes }
    }

    fn room(&self, node: &Node, used: &Usage) -> Answer {
        if used.pods.len() as i128 >= i128::from(node.most_pods) {
            return Answer::No(format!("it takes {} pods and has as many", node.most_pods));
        }
        for (name, asked) in self.amounts.iter().filter(|(_, asked)| **asked > 0) {
            let offers = i128::from(node.offers.get(name).copied().unwrap_or(0));
            let taken = used.amounts.get(name).copied().unwrap_or(0);
            if taken.abs() >= i128::from(i64::MAX) {
                return Answer::Unsure;
            }
            if i128::from(*asked) > offers - taken {
                return Answer::No(format!(
                    "{asked} of {name} are asked for, {taken} of {offers} are taken"
                ));
            }
        }
        Answer::Yes
    }

    fn tolerates(&self, key: &str, value: &str, effect: &str) -> bool {
        self.tolerations.iter().any(|t| {
            let about =
                (t.key.is_empty() || t.key == key) && (t.effect.is_empty() || t.effect == effect);
            let enough = match t.operator.as_str() {
                "Exists" => true,
                "" | "Equal" => t.value == value,
                _ => false,
            };
            about && enough
        })
    }

    fn selects(&self, name: &str, node: &Node) -> Answer {
        if self.selector.iter().any(|(k, v)| node.labels.get(k) != Some(v)) {
            return Answer::No("the node selector does not match".into());
        }
        let Some(required) = &self.required else {
            return Answer::Yes;
        };
        let mut unsure = false;
        for term in &required.node_selector_terms {
            match term_matches(term, name, &node.labels) {
                Some(true) => return Answer::Yes,
                Some(false) => {}
                None => unsure = true,
            }
        }
        if unsure { Answer::Unsure } else { Answer::No("no affinity term matches".into()) }
    }
}

const CORDON: &str = "node.kubernetes.io/unschedulable";

/// `None`: the term is odd.
fn term_matches(
    term: &k8s::NodeSelectorTerm,
    name: &str,
    labels: &BTreeMap<String, String>,
) -> Option<bool> {
    if term.match_expressions.is_empty() && term.match_fields.is_empty() {
        return Some(false);
    }
    let mut all = true;
    for field in &term.match_fields {
        let ([value], "metadata.name") = (field.values.as_slice(), field.key.as_str()) else {
            return None;
        };
        all &= match field.operator.as_str() {
            "In" => value == name,
            "NotIn" => value != name,
            _ => return None,
        };
    }
    for requirement in &term.match_expressions {
        all &= label_matches(requirement, labels)?;
    }
    Some(all)
}

fn label_matches(
    requirement: &k8s::NodeSelectorRequirement,
    labels: &BTreeMap<String, String>,
) -> Option<bool> {
    let values = &requirement.values;
    let plain = |text: &String| {
        let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let ends = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
        text.len() < 64
            && text.chars().all(fine)
            && ends(text.chars().next())
            && ends(text.chars().last())
    };
    let key = &requirement.key;
    if key.is_empty() || !key.split('/').all(|part| !part.is_empty() && plain(&part.to_owned())) {
        return None;
    }
    let label = labels.get(key);
    match (requirement.operator.as_str(), values.as_slice()) {
        ("In", [_, ..]) if values.iter().all(plain) => {
            Some(label.is_some_and(|l| values.contains(l)))
        }
        ("NotIn", [_, ..]) if values.iter().all(plain) => {
            Some(label.is_none_or(|l| !values.contains(l)))
        }
        ("Exists", []) => Some(label.is_some()),
        ("DoesNotExist", []) => Some(label.is_none()),
        ("Gt" | "Lt", [bound]) => {
            let bound: i64 = bound.parse().ok()?;
            let Some(Ok(label)) = label.map(|l| l.parse::<i64>()) else {
                return Some(false);
            };
            Some(if requirement.operator == "Gt" { label > bound } else { label < bound })
        }
        _ => None,
    }
}
