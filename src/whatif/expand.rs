//! The pods that a manifest leads to: what controllers of Kubernetes and of others would create.
//!
//! Owns names, labels and numbers of those pods, as their controllers give them. Only what
//! scheduling reads is made. Must never invent a pod of a kind that it does not know.

use serde_json::{Map, Value, json};

/// Most pods of one manifest.
pub const MAX_PODS: usize = 20_000;

/// What a manifest leads to.
#[derive(Clone, Debug, Default)]
pub struct Expanded {
    /// The pods, in the order in which they are made.
    pub pods: Vec<Value>,
    /// Objects that are no pods and lead to none: pod groups, policies; and groups that a
    /// controller makes.
    pub others: Vec<Value>,
    /// What was passed over, and why.
    pub notes: Vec<String>,
}

/// Expands the objects of a manifest.
#[must_use]
pub fn expand(objects: &[Value]) -> Expanded {
    let mut out = Expanded::default();
    for object in objects {
        let kind = text(&object["kind"]);
        let group = text(&object["apiVersion"]).split('/').next().unwrap_or_default().to_owned();
        match (group.as_str(), kind) {
            ("v1", "Pod") => out.pods.push(pod_itself(object)),
            ("batch", "Job") => job(&mut out, object),
            ("apps", "Deployment" | "ReplicaSet" | "StatefulSet")
            | ("v1", "ReplicationController") => {
                let pods = number(&object["spec"]["replicas"], 1);
                let spec = &object["spec"]["template"];
                out.add(
                    object,
                    spec,
                    (0..pods).map(|i| (format!("{}-{i}", name(object)), json!({}))),
                );
            }
            ("jobset.x-k8s.io", "JobSet") => {
                job_set(&mut out, object, &object["spec"], name(object));
            }
            ("leaderworkerset.x-k8s.io", "LeaderWorkerSet") => leader_worker_set(&mut out, object),
            ("kubeflow.org", "PyTorchJob" | "MPIJob" | "TFJob" | "XGBoostJob") => {
                kubeflow(&mut out, object);
            }
            ("trainer.kubeflow.org", "TrainJob") => train_job(&mut out, object, objects),
            ("trainer.kubeflow.org", "TrainingRuntime" | "ClusterTrainingRuntime") => {}
            ("ray.io", "RayJob" | "RayCluster" | "RayService") => ray(&mut out, object),
            _ => out.others.push(object.clone()),
        }
    }
    if out.pods.len() > MAX_PODS {
        out.notes.push(format!("only the first {MAX_PODS} of {} pods are tried", out.pods.len()));
        out.pods.truncate(MAX_PODS);
    }
    out
}

impl Expanded {
    /// Adds pods of a template, each with a name and labels of its own.
    fn add(
        &mut self,
        owner: &Value,
        template: &Value,
        pods: impl Iterator<Item = (String, Value)>,
    ) {
        if !template["spec"].is_object() {
            let note = format!("{} {} has no pod template", text(&owner["kind"]), name(owner));
            self.notes.push(note);
            return;
        }
        for (name, labels) in pods.take(MAX_PODS + 1) {
            let mut meta = Map::new();
            meta.insert("name".to_owned(), name.as_str().into());
            meta.insert("namespace".to_owned(), namespace(owner).into());
            meta.insert("uid".to_owned(), format!("new-{name}").into());
            let mut all = template["metadata"]["labels"].as_object().cloned().unwrap_or_default();
            all.extend(labels.as_object().cloned().unwrap_or_default());
            meta.insert("labels".to_owned(), all.into());
            if let Some(annotations) = template["metadata"]["annotations"].as_object() {
                meta.insert("annotations".to_owned(), annotations.clone().into());
            }
            self.pods.push(json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta,
                "spec": defaulted(&template["spec"]), "status": {"phase": "Pending"}}));
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

fn namespace(object: &Value) -> &str {
    object["metadata"]["namespace"].as_str().filter(|n| !n.is_empty()).unwrap_or("default")
}

fn number(value: &Value, or: u64) -> u64 {
    value.as_u64().unwrap_or(or).min(MAX_PODS as u64 + 1)
}

fn pod_itself(object: &Value) -> Value {
    let mut pod = object.clone();
    pod["spec"] = defaulted(&object["spec"]);
    let namespace = namespace(object).to_owned();
    if let Some(meta) = pod["metadata"].as_object_mut() {
        let uid = format!("new-{}", name(object));
        meta.entry("uid").or_insert_with(|| uid.into());
        meta.insert("namespace".to_owned(), namespace.into());
    }
    if !pod["status"].is_object() {
        pod["status"] = json!({"phase": "Pending"});
    }
    pod
}

/// A pod's spec as the API server completes it: what is limited is requested.
fn defaulted(spec: &Value) -> Value {
    let mut spec = spec.clone();
    for list in ["containers", "initContainers"] {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            let Some(limits) = container["resources"]["limits"].as_object().cloned() else {
                continue;
            };
            let resources = &mut container["resources"];
            if !resources["requests"].is_object() {
                resources["requests"] = json!({});
            }
            for (resource, amount) in limits {
                if resources["requests"][&resource].is_null() {
                    resources["requests"][&resource] = amount;
                }
            }
        }
    }
    if spec["schedulerName"].is_null() {
        spec["schedulerName"] = "default-scheduler".into();
    }
    spec
}

/// Pods of a Job that run at the same time.
fn job(out: &mut Expanded, object: &Value) {
    if object["spec"]["suspend"] == true {
        out.notes.push(format!("Job {} is suspended: it is tried as if it were not", name(object)));
    }
    let pods = job_pods(&object["spec"], name(object), &json!({}));
    out.add(object, &object["spec"]["template"], pods.into_iter());
}

fn job_pods(spec: &Value, name: &str, labels: &Value) -> Vec<(String, Value)> {
    let parallel = number(&spec["parallelism"], 1);
    let pods = parallel.min(number(&spec["completions"], parallel));
    let indexed = spec["completionMode"] == "Indexed";
    (0..pods)
        .map(|i| {
            let mut labels = labels.clone();
            labels["batch.kubernetes.io/job-name"] = name.into();
            labels["job-name"] = name.into();
            if indexed {
                labels["batch.kubernetes.io/job-completion-index"] = i.to_string().into();
            }
            (format!("{name}-{i}"), labels)
        })
        .collect()
}

fn job_set(out: &mut Expanded, owner: &Value, spec: &Value, set: &str) {
    for replicated in spec["replicatedJobs"].as_array().into_iter().flatten() {
        let job = &replicated["template"]["spec"];
        let kind = text(&replicated["name"]);
        for i in 0..number(&replicated["replicas"], 1) {
            let labels = json!({"jobset.sigs.k8s.io/jobset-name": set,
                "jobset.sigs.k8s.io/replicatedjob-name": kind,
                "jobset.sigs.k8s.io/job-index": i.to_string()});
            let pods = job_pods(job, &format!("{set}-{kind}-{i}"), &labels);
            out.add(owner, &job["template"], pods.into_iter());
        }
    }
}

fn leader_worker_set(out: &mut Expanded, object: &Value) {
    let (spec, set) = (&object["spec"], name(object));
    let template = &spec["leaderWorkerTemplate"];
    let leader = match &template["leaderTemplate"] {
        Value::Null => &template["workerTemplate"],
        leader => leader,
    };
    let size = number(&template["size"], 1);
    for group in 0..number(&spec["replicas"], 1) {
        let labels = |worker: u64| {
            json!({"leaderworkerset.sigs.k8s.io/name": set,
                "leaderworkerset.sigs.k8s.io/group-index": group.to_string(),
                "leaderworkerset.sigs.k8s.io/worker-index": worker.to_string()})
        };
        let leads = std::iter::once((format!("{set}-{group}"), labels(0)));
        out.add(object, leader, leads);
        let workers = (1..size).map(|i| (format!("{set}-{group}-{i}"), labels(i)));
        out.add(object, &template["workerTemplate"], workers);
    }
}

fn kubeflow(out: &mut Expanded, object: &Value) {
    let specs = object["spec"].as_object().into_iter().flatten();
    let replicas = specs.filter(|(field, _)| field.ends_with("ReplicaSpecs"));
    for (role, spec) in replicas.flat_map(|(_, roles)| roles.as_object().into_iter().flatten()) {
        let (job, role) = (name(object), role.to_lowercase());
        let pods = (0..number(&spec["replicas"], 1)).map(|i| {
            let labels = json!({"training.kubeflow.org/job-name": job,
                "training.kubeflow.org/replica-type": role.as_str(),
                "training.kubeflow.org/replica-index": i.to_string()});
            (format!("{job}-{role}-{i}"), labels)
        });
        out.add(object, &spec["template"], pods);
    }
}

/// A TrainJob runs its runtime's JobSet, with as many nodes as it says.
fn train_job(out: &mut Expanded, object: &Value, all: &[Value]) {
    let wanted = text(&object["spec"]["runtimeRef"]["name"]);
    let kinds = ["TrainingRuntime", "ClusterTrainingRuntime"];
    let runtime = all.iter().find(|o| kinds.contains(&text(&o["kind"])) && name(o) == wanted);
    let Some(runtime) = runtime else {
        out.notes.push(format!(
            "TrainJob {}: its runtime {wanted} is not in the manifest: give it too",
            name(object)
        ));
        return;
    };
    let trainer = &object["spec"]["trainer"];
    let nodes = trainer["numNodes"].as_u64().or(runtime["spec"]["mlPolicy"]["numNodes"].as_u64());
    let mut spec = runtime["spec"]["template"]["spec"].clone();
    let group = runtime["spec"]["podGroupPolicy"]["coscheduling"].is_object();
    for job in spec["replicatedJobs"].as_array_mut().into_iter().flatten() {
        let ancestor = "trainer.kubeflow.org/trainjob-ancestor-step";
        let trains =
            job["template"]["metadata"]["labels"][ancestor] == "trainer" || job["name"] == "node";
        let own = &mut job["template"]["spec"];
        if let Some(nodes) = nodes.filter(|_| trains) {
            own["parallelism"] = nodes.into();
            own["completions"] = nodes.into();
        }
        if !trainer["resourcesPerNode"].is_null() && trains {
            own["template"]["spec"]["containers"][0]["resources"] =
                trainer["resourcesPerNode"].clone();
        }
        if group {
            own["template"]["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] =
                name(object).into();
        }
    }
    let before = out.pods.len();
    job_set(out, object, &spec, name(object));
    if group {
        out.others.push(json!({"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup",
            "metadata": {"name": name(object), "namespace": namespace(object)},
            "spec": {"minMember": out.pods.len() - before}}));
    }
}

fn ray(out: &mut Expanded, object: &Value) {
    let spec = match text(&object["kind"]) {
        "RayCluster" => &object["spec"],
        "RayService" => &object["spec"]["rayClusterConfig"],
        _ => &object["spec"]["rayClusterSpec"],
    };
    let cluster = name(object);
    let head = json!({"ray.io/cluster": cluster, "ray.io/node-type": "head"});
    let pods = std::iter::once((format!("{cluster}-head"), head));
    out.add(object, &spec["headGroupSpec"]["template"], pods);
    for group in spec["workerGroupSpecs"].as_array().into_iter().flatten() {
        let kind = text(&group["groupName"]);
        let hosts = number(&group["numOfHosts"], 1);
        let workers = number(&group["replicas"], number(&group["minReplicas"], 1));
        let pods = (0..workers * hosts).map(|i| {
            let labels = json!({"ray.io/cluster": cluster, "ray.io/node-type": "worker",
                "ray.io/group": kind});
            (format!("{cluster}-{kind}-worker-{i}"), labels)
        });
        out.add(object, &group["template"], pods);
    }
}

#[cfg(test)]
#[path = "expand_tests.rs"]
mod tests;
