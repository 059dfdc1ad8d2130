//! Which pods manifests lead to.
#![allow(clippy::unwrap_used, reason = "a test may fail by a panic")]

use super::*;

fn names(objects: &[Value]) -> Vec<String> {
    expand(objects).pods.iter().map(|pod| name(pod).to_owned()).collect()
}

fn template() -> Value {
    json!({"metadata": {"labels": {"muster.dev/pod-group": "g"}}, "spec": {"schedulerName": "muster",
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"},
            "limits": {"cpu": "2", "nvidia.com/gpu": 8}}}]}})
}

#[test]
fn pods_are_named_as_their_controllers_do() {
    let job = |spec: Value| json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec});
    let cases = [
        (job(json!({"template": template()})), vec!["j-0"]),
        (
            job(json!({"parallelism": 3, "completions": 2, "template": template()})),
            vec!["j-0", "j-1"],
        ),
        (
            json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"},
                "spec": {"replicas": 2, "template": template()}}),
            vec!["s-0", "s-1"],
        ),
        (
            json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
                "metadata": {"name": "set"}, "spec": {"replicatedJobs": [
                    {"name": "driver", "template": {"spec": {"template": template()}}},
                    {"name": "w", "replicas": 2, "template":
                        {"spec": {"parallelism": 2, "template": template()}}}]}}),
            vec!["set-driver-0-0", "set-w-0-0", "set-w-0-1", "set-w-1-0", "set-w-1-1"],
        ),
        (
            json!({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
                "metadata": {"name": "lws"}, "spec": {"replicas": 2, "leaderWorkerTemplate":
                    {"size": 2, "workerTemplate": template()}}}),
            vec!["lws-0", "lws-0-1", "lws-1", "lws-1-1"],
        ),
        (
            json!({"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "m"},
                "spec": {"mpiReplicaSpecs": {"Launcher": {"template": template()},
                    "Worker": {"replicas": 2, "template": template()}}}}),
            vec!["m-launcher-0", "m-worker-0", "m-worker-1"],
        ),
        (
            json!({"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "r"},
                "spec": {"rayClusterSpec": {"headGroupSpec": {"template": template()},
                    "workerGroupSpecs": [{"groupName": "gpu", "replicas": 1, "template": template()}]}}}),
            vec!["r-head", "r-gpu-worker-0"],
        ),
    ];
    for (object, expected) in cases {
        assert_eq!(names(std::slice::from_ref(&object)), expected, "{object}");
    }
}

#[test]
fn pods_are_completed_as_the_api_server_does() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": template()["spec"]});
    let out = expand(&[pod]);
    let requests = &out.pods[0]["spec"]["containers"][0]["resources"]["requests"];
    assert_eq!(*requests, json!({"cpu": "1", "nvidia.com/gpu": 8}));
    assert_eq!(out.pods[0]["metadata"]["namespace"], "default");
}

#[test]
fn a_train_job_takes_nodes_and_group_from_itself_and_its_runtime() {
    let runtime = json!({"apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime", "metadata": {"name": "torch"}, "spec": {
            "mlPolicy": {"numNodes": 1}, "podGroupPolicy": {"coscheduling": {}},
            "template": {"spec": {"replicatedJobs": [
                {"name": "node", "template": {"spec": {"template": template()}}}]}}}});
    let job = json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
        "metadata": {"name": "t"}, "spec": {"runtimeRef": {"name": "torch"},
            "trainer": {"numNodes": 2, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 4}}}}});
    let out = expand(&[runtime, job.clone()]);
    assert_eq!(out.pods.len(), 2);
    let pod = &out.pods[1];
    assert_eq!(pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"], "t");
    assert_eq!(pod["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"], 4);
    assert_eq!(out.others[0]["spec"]["minMember"], 2);
    let alone = expand(&[job]);
    assert_eq!(alone.notes, ["TrainJob t: its runtime torch is not in the manifest: give it too"]);
}

#[test]
fn what_leads_to_no_pods_is_handed_on() {
    let group = json!({"apiVersion": "muster.dev/v1alpha1", "kind": "PodGroup",
        "metadata": {"name": "g"}, "spec": {"minMember": 2}});
    let empty = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}});
    let out = expand(&[group.clone(), empty]);
    assert_eq!((out.others, out.pods.len()), (vec![group], 0));
    assert_eq!(out.notes, ["Job j has no pod template"]);
}
