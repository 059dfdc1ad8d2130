//! Situations in which somebody waits, on two nodes of 4 CPUs and, where one is named, a third.

use serde_json::{Value, json};

use super::GROUPS;

/// A situation: pods that hold room, a third node, other objects, whoever waits, whom to ask about, who keeps
/// it, and how many cures there are at least.
pub(super) struct Situation {
    pub(super) name: &'static str,
    pub(super) holds: Vec<Value>,
    /// What is made of a node that comes after those that hold room.
    pub(super) third: Option<fn(&mut Value)>,
    /// Where it is made, and what.
    pub(super) others: Vec<(&'static str, Value)>,
    pub(super) waits: Vec<Value>,
    pub(super) ask: &'static str,
    pub(super) blocker: &'static str,
    pub(super) cures: usize,
}

impl Situation {
    /// Somebody who asks for 3 CPUs, while so many like it are there already.
    fn new(name: &'static str, holds: usize, blocker: &'static str, cures: usize) -> Self {
        let holds = (0..holds).map(|i| pod(&format!("holds-{i}"), "3")).collect();
        let waits = vec![pod("wait-0", "3")];
        let (third, others) = (None, Vec::new());
        Self { name, holds, third, others, waits, ask: "pod/wait-0", blocker, cures }
    }

    fn with_third(self, third: fn(&mut Value)) -> Self {
        Self { third: Some(third), ..self }
    }

    /// Whoever waits has this too.
    fn who(mut self, change: impl Fn(&mut Value)) -> Self {
        self.waits.iter_mut().for_each(change);
        self
    }

    /// Whoever is there has this too.
    fn beside(mut self, change: impl Fn(&mut Value)) -> Self {
        self.holds.iter_mut().for_each(change);
        self
    }

    /// A gang waits instead: so many members of so much, and what the group says, if it is there.
    fn gang(mut self, members: usize, cpu: &str, spec: Option<&Value>) -> Self {
        let label = json!({"muster.dev/pod-group": "wait"});
        self.waits = (0..members).map(|i| pod(&format!("wait-{i}"), cpu)).collect();
        self.waits.iter_mut().for_each(|pod| pod["metadata"]["labels"] = label.clone());
        if let Some(spec) = spec {
            let group = json!({"apiVersion": "muster.dev/v1alpha1", "kind": "PodGroup",
                "metadata": {"name": "wait", "namespace": "default"}, "spec": spec});
            self.others.push((GROUPS, group));
        }
        Self { ask: "podgroup/wait", ..self }
    }
}

fn pod(name: &str, cpu: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulerName": "muster", "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "i",
                "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]}})
}

fn asks(pod: &mut Value, cpu: &str) {
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu.into();
}

fn is_database(pod: &mut Value) {
    pod["metadata"]["labels"] = json!({"kind": "db"});
}

fn has_port(pod: &mut Value) {
    pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 80}]);
}

fn taint(node: &mut Value, key: &str) {
    node["spec"]["taints"] = json!([{"key": key, "effect": "NoSchedule"}]);
}

pub(super) fn situations() -> Vec<Situation> {
    let rack = json!({"minMember": 3, "topology": {"required": "rack"}});
    nodes().into_iter().chain(pods()).chain(gangs(&rack)).collect()
}

fn nodes() -> Vec<Situation> {
    vec![
        Situation::new("cordoned", 2, "NodeUnschedulable", 3)
            .with_third(|node| node["spec"]["unschedulable"] = true.into()),
        Situation::new("not ready", 2, "TaintToleration", 3)
            .with_third(|node| taint(node, "node.kubernetes.io/not-ready")),
        Situation::new("kept for others", 2, "TaintToleration", 3)
            .with_third(|node| taint(node, "dedicated")),
        Situation::new("full", 2, "NodeResourcesFit", 3),
    ]
}

fn pods() -> Vec<Situation> {
    let term = json!([{"labelSelector": {"matchLabels": {"kind": "db"}},
        "topologyKey": "kubernetes.io/hostname"}]);
    let spread = json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"kind": "db"}}}]);
    let mut uneven = Situation::new("uneven", 0, "PodTopologySpread", 2).who(|pod| {
        is_database(pod);
        asks(pod, "2");
        pod["spec"]["topologySpreadConstraints"] = spread.clone();
    });
    for (name, node, cpu) in [("holds-0", "node-0", "500m"), ("holds-1", "node-1", "3")] {
        let mut pod = pod(name, cpu);
        pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
        if node == "node-0" {
            is_database(&mut pod);
        }
        uneven.holds.push(pod);
    }
    let of_others = Situation::new("of another scheduler", 0, "SchedulerName", 1)
        .who(|pod| pod["spec"]["schedulerName"] = "default-scheduler".into());
    vec![
        Situation::new("a label that no node has", 0, "NodeAffinity", 2)
            .who(|pod| pod["spec"]["nodeSelector"] = json!({"gpu": "h300"})),
        Situation::new("gated", 0, "SchedulingGates", 1)
            .who(|pod| pod["spec"]["schedulingGates"] = json!([{"name": "example.com/admission"}])),
        of_others,
        Situation::new("a port in use", 2, "NodePorts", 3).beside(has_port).who(|pod| {
            has_port(pod);
            asks(pod, "1");
        }),
        Situation::new("apart", 2, "InterPodAffinity", 3).beside(is_database).who(|pod| {
            asks(pod, "1");
            pod["spec"]["affinity"]["podAntiAffinity"] =
                json!({"requiredDuringSchedulingIgnoredDuringExecution": term.clone()});
        }),
        uneven,
    ]
}

fn gangs(rack: &Value) -> Vec<Situation> {
    let of_three = json!({"minMember": 3});
    vec![
        Situation::new("one node short", 1, "NodeResourcesFit", 3).gang(3, "3", Some(&of_three)),
        Situation::new("a member is missing", 0, "Gang", 2).gang(2, "1", Some(&of_three)),
        Situation::new("the group is missing", 0, "Gang", 1).gang(2, "1", None),
        // Two nodes are in a rack, the third is in another one of the same block.
        Situation::new("one short in the rack", 0, "Topology", 4).with_third(|_| {}).gang(
            3,
            "3",
            Some(rack),
        ),
    ]
}
