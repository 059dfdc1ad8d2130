//! The same gangs in three APIs: equal results.

use anyhow::{Context, Result, ensure};
use http::Method;
use muster_control_plane::{ControlPlane, create_objects};
use serde_json::{Value, json};

use super::{LABEL, PODS, delete, end, is_bound, patch, scheduled};
use crate::pod_group::{ask, install};
use crate::support::{Cluster, SOON, eventually};

/// How a gang is described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Muster,
    Native,
    Coscheduling,
}

impl Form {
    fn version(self) -> &'static str {
        match self {
            Self::Muster => "muster.dev/v1alpha1",
            Self::Native => "scheduling.k8s.io/v1beta1",
            Self::Coscheduling => "scheduling.x-k8s.io/v1alpha1",
        }
    }

    fn groups(self) -> String {
        format!("/apis/{}/namespaces/default/podgroups", self.version())
    }

    fn group(self, name: &str, min: usize) -> Value {
        let spec = match self {
            Self::Native => json!({"schedulingPolicy": {"gang": {"minCount": min}}}),
            _ => json!({"minMember": min}),
        };
        json!({"apiVersion": self.version(), "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "default"}, "spec": spec})
    }

    fn pod(self, gang: &str, i: usize, cpu: &str) -> Value {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("{gang}-{i}"), "labels": {"gang": gang}},
            "spec": {"schedulerName": "muster", "automountServiceAccountToken": false,
                "containers": [{"name": "main", "image": "example.invalid/none",
                    "resources": {"requests": {"cpu": cpu, "memory": "16Mi"}}}]},
        });
        match self {
            Self::Muster => pod["metadata"]["labels"][LABEL] = gang.into(),
            Self::Native => pod["spec"]["schedulingGroup"] = json!({"podGroupName": gang}),
            Self::Coscheduling => {
                pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = gang.into();
            }
        }
        pod
    }
}

/// Gang, minimum, members, CPU of each, and whether it fits.
const GANGS: [(&str, usize, usize, &str, &str); 4] = [
    ("fits", 4, 4, "1", "bound"),
    ("surplus", 2, 3, "500m", "bound"),
    ("incomplete", 4, 3, "100m", "GangIncomplete: 3 of 4 members exist"),
    ("large", 4, 4, "3", "Unschedulable: room for "),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_manifests_have_equal_results() -> Result<()> {
    let builder = ControlPlane::builder()
        .feature_gates(&["GenericWorkload=true", "TopologyAwareWorkloadScheduling=true"])
        .runtime_config(&["scheduling.k8s.io/v1beta1=true"]);
    let cluster = Cluster::start(builder).await?;
    install(&cluster).await?;
    let crd = serde_saphyr::from_str(include_str!("../pod_group/coscheduling.yaml"))?;
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    ask(&cluster.admin, Method::POST, path, &crd).await.map_err(anyhow::Error::msg)?;
    eventually("served", SOON, || async {
        let groups = Form::Coscheduling.groups();
        Ok(ask(&cluster.admin, Method::GET, &groups, &Value::Null).await.is_ok())
    })
    .await?;
    cluster.nodes(2).await?;
    let muster = cluster.muster("muster", &["-v", "3"])?;
    let mut all = Vec::new();
    for form in [Form::Muster, Form::Native, Form::Coscheduling] {
        let results = play(&cluster, form).await;
        let results = results.with_context(|| format!("{form:?}: {}", muster.log_tail(6_000)))?;
        cluster.say(&format!("{form:?}: {results:#?}"));
        all.push(results);
    }
    ensure!(all[0] == all[1], "native: {all:#?}");
    ensure!(all[0] == all[2], "scheduler-plugins: {all:#?}");
    end(&muster)
}

/// What became of every pod, and of what its group says of being scheduled.
async fn play(cluster: &Cluster, form: Form) -> Result<Vec<String>> {
    let pods = PODS;
    for (name, min, members, cpu, fate) in GANGS {
        let groups = form.groups();
        let made = ask(&cluster.admin, Method::POST, &groups, &form.group(name, min)).await;
        made.map_err(anyhow::Error::msg)?;
        create_objects(&cluster.admin, pods, "pods", members, |i| form.pod(name, i, cpu)).await?;
        // One after the other: what is left for the next is the same each time.
        settled(cluster, name, fate).await?;
    }
    replaced(cluster, form).await.context("replaced")?;
    let mut results = Vec::new();
    for pod in cluster.list::<Value>(pods).await? {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let fate = if is_bound(&pod) { "bound".to_owned() } else { scheduled(&pod) };
        results.push(format!("{name} {fate}"));
    }
    results.sort_unstable();
    for (name, .., fate) in GANGS {
        results.push(format!("{name} {}", says(cluster, form, name, fate).await?));
    }
    for (name, _, members, ..) in GANGS {
        for i in 0..members {
            delete(cluster, &format!("{pods}/{name}-{i}")).await?;
        }
        delete(cluster, &format!("{}/{name}", form.groups())).await?;
    }
    eventually("tidied", SOON, || async { Ok(cluster.list::<Value>(pods).await?.is_empty()) })
        .await?;
    Ok(results)
}

/// A member that has ended well counts: beside it one replacement is enough.
async fn replaced(cluster: &Cluster, form: Form) -> Result<()> {
    const NAME: &str = "replaced";
    let made = ask(&cluster.admin, Method::POST, &form.groups(), &form.group(NAME, 2)).await;
    made.map_err(anyhow::Error::msg)?;
    create_objects(&cluster.admin, PODS, "pods", 2, |i| form.pod(NAME, i, "100m")).await?;
    settled(cluster, NAME, "bound").await?;
    let ended = json!({"status": {"phase": "Succeeded"}});
    patch(cluster, &format!("{PODS}/{NAME}-0/status"), &ended).await?;
    delete(cluster, &format!("{PODS}/{NAME}-1")).await?;
    create_objects(&cluster.admin, PODS, "pods", 1, |_| form.pod(NAME, 2, "100m")).await?;
    settled(cluster, NAME, "bound").await?;
    for i in 0..3 {
        delete(cluster, &format!("{PODS}/{NAME}-{i}")).await?;
    }
    delete(cluster, &format!("{}/{NAME}", form.groups())).await
}

async fn settled(cluster: &Cluster, gang: &str, fate: &str) -> Result<()> {
    let path = format!("/api/v1/namespaces/default/pods?labelSelector=gang%3D{gang}");
    let last = std::sync::Mutex::new(Vec::new());
    let settled = eventually(gang, SOON, || async {
        let pods: Vec<Value> = cluster.list(&path).await?;
        let is = |pod: &Value| match fate {
            "bound" => is_bound(pod),
            words => !is_bound(pod) && scheduled(pod).starts_with(words),
        };
        let all = pods.iter().all(is);
        *last.lock().unwrap() = pods.iter().map(scheduled).collect();
        Ok(all)
    })
    .await;
    settled.with_context(|| format!("{gang}: {:?}", last.lock().unwrap()))
}

/// Whether a group says of itself that its minimum is bound: each in its own form.
async fn says(cluster: &Cluster, form: Form, name: &str, fate: &str) -> Result<String> {
    let bound = fate == "bound";
    let path = format!("{}/{name}", form.groups());
    let told = std::sync::Mutex::new(String::new());
    let agrees = eventually("told", SOON, || async {
        let group = ask(&cluster.admin, Method::GET, &path, &Value::Null).await;
        let status = group.map_err(anyhow::Error::msg)?["status"].clone();
        *told.lock().unwrap() = status.to_string();
        let is_true = |kind: &str| {
            let conditions = status["conditions"].as_array();
            conditions.into_iter().flatten().any(|c| c["type"] == kind && c["status"] == "True")
        };
        let says = match form {
            Form::Muster => is_true("Scheduled"),
            Form::Native => is_true("PodGroupInitiallyScheduled"),
            Form::Coscheduling => status["phase"] == "Scheduled",
        };
        Ok(says == bound)
    })
    .await;
    agrees.with_context(|| format!("{name}: {}", told.lock().unwrap()))?;
    Ok(format!("scheduled: {bound}"))
}
