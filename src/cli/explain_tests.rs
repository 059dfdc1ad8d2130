//! Answers and errors of `muster explain`, word for word.
#![allow(clippy::unwrap_used, reason = "a test may fail by a panic")]

use serde_json::Value;

use super::*;

/// Three nodes; the pod's claim waits for its first consumer, and only one node
/// has a disk for it.
const CLUSTER: &str = r#"
apiVersion: v1
kind: Node
metadata: {name: node-a, labels: {kubernetes.io/hostname: node-a}}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
---
apiVersion: v1
kind: Node
metadata: {name: node-b, labels: {kubernetes.io/hostname: node-b}}
spec: {taints: [{key: gpu, effect: NoSchedule}]}
status: {allocatable: {cpu: "8", memory: 16Gi, pods: "10"}}
---
apiVersion: v1
kind: Node
metadata: {name: node-c, labels: {kubernetes.io/hostname: node-c}}
status: {allocatable: {cpu: "8", memory: 16Gi, pods: "10"}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: not-read}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: local}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: PersistentVolumeClaim
  metadata: {name: data, namespace: team}
  spec:
    accessModes: [ReadWriteOnce]
    storageClassName: local
    resources: {requests: {storage: 5Gi}}
- apiVersion: v1
  kind: PersistentVolume
  metadata: {name: disk-a}
  spec:
    accessModes: [ReadWriteOnce]
    capacity: {storage: 10Gi}
    storageClassName: local
    nodeAffinity:
      required:
        nodeSelectorTerms:
        - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node-a]}]
  status: {phase: Available}
---
apiVersion: v1
kind: Pod
metadata: {name: train, namespace: team}
spec:
  containers:
  - {name: main, image: train, resources: {requests: {cpu: "1", memory: 2Gi}}}
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: data}}
"#;

fn ask(text: &str, pod: &str, output: Output) -> String {
    answer(text, pod, None, output).unwrap().0
}

fn refused(text: &str, pod: &str) -> String {
    format!("{:#}", answer(text, pod, None, Output::Json).unwrap_err())
}

/// NodeResourcesFit: cpu (4000-1000)*100/4000 = 75, memory (8-2)*100/8 = 75.
/// NodeResourcesBalancedAllocation: both fractions 1/4, balance stays 100:
/// 50 + (50 + 100 - 100)/2 = 75. TaintToleration: no soft taints, 100*3.
/// VolumeBinding: 5Gi of 10Gi is 50%, halfway from 10 to 0: 50.
/// NodeAffinity skips itself; the image is nowhere.
#[test]
fn the_table_marks_the_best_node_and_says_why_not_the_others() {
    let expected = "\
pod team/train: 1 of 3 nodes fit
best node: node-a

  NODE    TOTAL  ImageLocality  NodeResourcesBalancedAllocation  NodeResourcesFit  TaintToleration  VolumeBinding
* node-a    500              0                               75                75              300             50

  NODE    VERDICT     PLUGIN           REASONS
  node-b  never here  TaintToleration  node(s) had untolerated taint(s)
  node-c  never here  VolumeBinding    node(s) didn't find available persistent volumes to bind
";
    assert_eq!(ask(CLUSTER, "team/train", Output::Table), expected);
}

#[test]
fn json_is_the_documented_form() {
    let value: Value = serde_json::from_str(&ask(CLUSTER, "team/train", Output::Json)).unwrap();
    let expected = serde_json::json!({
        "pod": "team/train", "suggestedHost": "node-a", "evaluatedNodes": 3, "feasibleNodes": 1,
        "nodes": {
            "node-a": {"status": "ok", "total": 500, "scores": {
                "ImageLocality": 0, "NodeResourcesBalancedAllocation": 75,
                "NodeResourcesFit": 75, "TaintToleration": 300, "VolumeBinding": 50}},
            "node-b": {"status": "UU", "plugin": "TaintToleration",
                "reasons": ["node(s) had untolerated taint(s)"]},
            "node-c": {"status": "UU", "plugin": "VolumeBinding",
                "reasons": ["node(s) didn't find available persistent volumes to bind"]},
        },
    });
    assert_eq!(value, expected);
}

#[test]
fn kinds_that_no_plugin_reads_are_passed_over_with_a_note() {
    let (_, notes) = answer(CLUSTER, "team/train", None, Output::Json).unwrap();
    assert_eq!(notes, ["skipped 1 of kind ConfigMap: no plugin reads it"]);
}

/// Pod groups of every API are read; what is wrong with one is named.
#[test]
fn pod_groups_are_read() {
    let groups = "
---
{apiVersion: muster.dev/v1alpha1, kind: PodGroup, metadata: {name: a}, spec: {minMember: 2}}
---
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: b}
spec: {schedulingPolicy: {gang: {minCount: 2}}}
---
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: c}
spec: {minMember: 2}
---
{apiVersion: scheduling.example.com/v1, kind: PodGroup, metadata: {name: d}}
";
    let text = format!("{CLUSTER}{groups}");
    let (_, notes) = answer(&text, "team/train", None, Output::Json).unwrap();
    let skipped = |kind: &str| format!("skipped 1 of kind {kind}: no plugin reads it");
    assert_eq!(notes, [skipped("ConfigMap"), skipped("PodGroup")]);
    let wrong = text.replace("minMember: 2}}", "minMember: two}}");
    let error = answer(&wrong, "team/train", None, Output::Json).unwrap_err();
    assert!(error.to_string().contains("podgroups \"a\""), "{error}");
    assert!(error.to_string().contains("spec.minMember"), "{error}");
}

#[test]
fn many_nodes_are_counted_by_reason() {
    let node = |i: usize| {
        let taint = if i.is_multiple_of(3) { "[{key: gpu, effect: NoSchedule}]" } else { "[]" };
        format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: n{i:02}}}\nspec: {{taints: {taint}}}\n\
             status: {{allocatable: {{cpu: \"1\", memory: 1Gi, pods: \"9\"}}}}\n---\n"
        )
    };
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: big}\nspec:\n  containers:\n  \
               - {name: main, resources: {requests: {cpu: \"2\"}}}\n";
    let text: String = (0..24).map(node).chain([pod.to_owned()]).collect();
    let expected = "\
pod default/big: 0 of 24 nodes fit
0/24 nodes are available: 16 Insufficient cpu, 8 node(s) had untolerated taint(s). \
preemption: 0/24 nodes are available: 24 Preemption is not helpful for scheduling.

  NODES  VERDICT     PLUGIN            REASONS                           FOR INSTANCE
  16     never here  NodeResourcesFit  Insufficient cpu                  n01, n02, n04, …
  8      never here  TaintToleration   node(s) had untolerated taint(s)  n00, n03, n06, …
";
    assert_eq!(ask(&text, "big", Output::Table), expected);
}

#[test]
fn a_pod_that_fits_nowhere_is_told_who_could_make_room() {
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: n}\n\
                status: {allocatable: {cpu: \"2\", memory: 1Gi, pods: \"9\"}}\n---\n";
    let pod = |name: &str, spec: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{app: {name}}}}}\nspec:\n  \
             {spec}\n  containers:\n  - {{name: main, resources: {{requests: {{cpu: \"1\"}}}}}}\n---\n"
        )
    };
    let budget = "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: keep}\n\
                  spec: {selector: {matchLabels: {app: kept}}}\n";
    let text = [
        node,
        &pod("kept", "nodeName: n\n  priority: 1"),
        &pod("old", "nodeName: n\n  priority: 2"),
        &pod("new", "priority: 3"),
        budget,
    ]
    .concat();
    let expected = "\
pod default/new: 0 of 1 nodes fit
0/1 nodes are available: 1 Insufficient cpu. preemption: found a potential placement for pod on \
node n, preempting 1 victims

  EVICTION FROM  AGAINST BUDGETS  PODS
* n              0                default/old

  NODE  VERDICT  PLUGIN            REASONS
  n     not now  NodeResourcesFit  Insufficient cpu
";
    assert_eq!(ask(&text, "new", Output::Table), expected);
}

#[test]
fn bad_files_are_told_the_object_the_field_and_the_remedy() {
    let pod =
        |spec: &str| format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {spec}\n");
    let bad_cpu = pod(r#"{containers: [{name: c, resources: {requests: {cpu: "1x"}}}]}"#);
    let cases = [
        (
            format!("{}---\n{}", pod("{}").replace("name: a", "name: b"), bad_cpu),
            "pods \"a\" (document 2): spec.containers[0].resources.requests.cpu: invalid quantity \
             \"1x\"; write a number with an optional unit, such as 500m, 2 or 4Gi",
        ),
        (
            pod("{tolerations: 7}"),
            "pods \"a\" (document 1): spec.tolerations: invalid type: integer `7`, expected a \
             sequence; correct the value or leave the field out",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {}\n".to_owned(),
            "pods (document 1): metadata.name: Required value: give the object a name",
        ),
        (
            "metadata: {name: x}\n".to_owned(),
            "document 1: kind: Required value: every object needs apiVersion and kind",
        ),
        ("- 1\n".to_owned(), "document 1: expected an object, found a list"),
        (
            pod("{}"),
            "pod \"default/z\" is not among the 1 pods (default/a): name it as namespace/name",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(refused(&text, "z"), expected, "\n{text}");
    }
    assert!(refused("{\"kind\": ", "z").starts_with("it is not valid JSON: "));
    assert!(refused("a: [", "z").starts_with("it is neither JSON nor YAML: "));
}

#[test]
fn json_text_is_read_as_a_list_or_one_object_after_the_other() {
    let node = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"},
        "status":{"allocatable":{"cpu":"1","memory":"1Gi","pods":"1"}}}"#;
    let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"x"}}"#;
    let list = format!(r#"{{"apiVersion":"v1","kind":"List","items":[{node},{pod}]}}"#);
    for text in [list, format!("{node}\n{pod}"), format!("[{node},{pod}]")] {
        let value: Value = serde_json::from_str(&ask(&text, "x/p", Output::Json)).unwrap();
        assert_eq!(value["suggestedHost"], "n", "{text}");
    }
}

#[test]
fn a_profile_is_chosen_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.yaml");
    let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
                profiles:\n- schedulerName: plain\n- schedulerName: packed\n  pluginConfig:\n  \
                - {name: VolumeBinding, args: {bindTimeoutSeconds: 5}}\n";
    std::fs::write(&path, text).unwrap();
    let plugins = Plugins::in_tree();
    assert_eq!(&**choose(&path, None, &plugins).unwrap().scheduler_name(), "plain");
    assert_eq!(&**choose(&path, Some("packed"), &plugins).unwrap().scheduler_name(), "packed");
    let error = choose(&path, Some("other"), &plugins).err().unwrap().to_string();
    assert!(error.ends_with("config.yaml has plain, packed"), "{error}");
}

#[test]
fn names_that_yaml_might_take_for_booleans_are_names() {
    for name in ["n", "on", "yes"] {
        let text = format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\nstatus: {{allocatable: \
             {{cpu: 1, memory: 1Gi, pods: 1}}}}\n---\napiVersion: v1\nkind: Pod\nmetadata: \
             {{name: p}}\n"
        );
        let value: Value = serde_json::from_str(&ask(&text, "p", Output::Json)).unwrap();
        assert_eq!(value["suggestedHost"], name);
    }
}

/// A gang of three on two nodes that hold one member each, or two.
fn gang(cpu: &str) -> String {
    let node = |name: &str| {
        format!(
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n\
             status: {{allocatable: {{cpu: \"4\", memory: 8Gi, pods: \"10\"}}}}\n"
        )
    };
    let member = |name: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: team, uid: {name}, \
             labels: {{muster.dev/pod-group: train}}}}\nspec:\n  schedulerName: muster\n  \
             containers:\n  - {{name: main, resources: {{requests: {{cpu: \"{cpu}\"}}}}}}\n"
        )
    };
    let group = "---\napiVersion: muster.dev/v1alpha1\nkind: PodGroup\n\
                 metadata: {name: train, namespace: team}\nspec: {minMember: 3}\n";
    let nodes = ["n1", "n2"].map(node).concat();
    let members = ["train-0", "train-1", "train-2"].map(member).concat();
    format!("{nodes}{group}{members}")
}

#[test]
fn a_gang_that_must_be_in_one_domain_is_told_what_each_has_room_for() {
    let file = gang("2")
        .replace("spec: {minMember: 3}", "spec: {minMember: 3, topology: {required: rack}}")
        .replace("{name: n1}", "{name: n1, labels: {example.com/rack: r1}}")
        .replace("{name: n2}", "{name: n2, labels: {example.com/rack: r2}}");
    let levels = "---\napiVersion: muster.dev/v1alpha1\nkind: ClusterTopology\n\
                  metadata: {name: net}\n\
                  spec: {levels: [{name: rack, nodeLabel: example.com/rack}]}\n";
    let answer = ask(&format!("{file}{levels}"), "team/train-1", Output::Table);
    let why = "room for 2 of 3 members in the best rack (r1); member train-2: 0/1 nodes are \
               available: 1 Insufficient cpu.\n  rack r1: room for 2 of 3 on 1 nodes\n  \
               rack r2: room for 2 of 3 on 1 nodes\n";
    assert!(answer.contains(why), "{answer}");
}

#[test]
fn a_member_is_told_how_its_gang_stands_and_where_all_would_go() {
    let fits = ask(&gang("2"), "team/train-1", Output::Table);
    let expected = "gang team/train: 0 of 3 members have a place, 3 wait; all that are missing \
                    find room now:\n";
    assert!(fits.contains(expected), "{fits}");
    let value: Value =
        serde_json::from_str(&ask(&gang("2"), "team/train-1", Output::Json)).unwrap();
    assert_eq!(value["gang"]["placed"].as_object().unwrap().len(), 3, "{value}");
    assert_eq!(value["feasibleNodes"], 2, "the try leaves no trace: {value}");
    let not = ask(&gang("3"), "team/train-1", Output::Table);
    let why = "gang team/train: 0 of 3 members have a place, 3 wait: room for 2 of 3 members; \
               member train-2: 0/2 nodes are available: 2 Insufficient cpu.\n";
    assert!(not.contains(why), "{not}");
}

#[test]
fn the_policies_that_govern_a_pod_are_named_with_what_they_decide() {
    let policy = |name: &str, spec: &str| {
        format!(
            "---\napiVersion: muster.dev/v1alpha1\nkind: SchedulingPolicy\nmetadata: {{name: {name}}}\n\
             spec: {spec}\n"
        )
    };
    let text = [
        "apiVersion: v1\nkind: Node\nmetadata: {name: n}\n\
         status: {allocatable: {cpu: \"4\", memory: 8Gi, pods: \"10\"}}\n"
            .to_owned(),
        "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: ml, labels: {team: ml}}\n"
            .to_owned(),
        policy("all", "{priority: 1, placement: {strategy: Spread}}"),
        policy(
            "ml",
            "{priority: 2, namespaceSelector: {matchLabels: {team: ml}}, \
             scoreWeights: [{plugin: ImageLocality, weight: 7}], placement: {strategy: Pack}}",
        ),
        policy("web", "{priority: 3, namespaceSelector: {matchLabels: {team: web}}}"),
        "---\napiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: ml}\n\
         spec: {schedulerName: muster}\n"
            .to_owned(),
    ]
    .concat();
    let table = ask(&text, "ml/p", Output::Table);
    let expected = "policy ml (priority 2) decides scoreWeights[ImageLocality]=7, placement=Pack\n\
                    policy all (priority 1) decides nothing here\n";
    assert!(table.contains(expected), "{table}");
    let value: Value = serde_json::from_str(&ask(&text, "ml/p", Output::Json)).unwrap();
    assert_eq!(value["policies"][0]["name"], "ml", "{value}");
}
