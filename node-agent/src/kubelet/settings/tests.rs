use proptest::prelude::*;

use super::*;

const FILE: &str = "
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
topologyManagerPolicy: restricted
topologyManagerScope: pod
topologyManagerPolicyOptions: {prefer-closest-numa-nodes: \"true\", max-allowable-numa-nodes: \"16\"}
cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: \"true\", distribute-cpus-across-numa: \"false\"}
reservedSystemCPUs: 1,0
kubeReserved: {cpu: 500m}
memoryManagerPolicy: Static
reservedMemory:
- {numaNode: 1, limits: {memory: 1Gi}}
- {numaNode: 0, limits: {memory: 1124Mi, hugepages-2Mi: 4Mi}}
featureGates: {PodLevelResourceManagers: true, Other: false}
evictionHard: {memory.available: 100Mi}
";

/// The settings of a file, one per line.
fn show(settings: &KubeletSettings) -> String {
    serde_json::to_string(settings).unwrap()
}

fn file(text: &str) -> Found {
    let config = parse_yaml(text).unwrap();
    Found { config, confidence: Confidence::File, notes: Vec::new() }
}

fn evidence(cpus: &str, memory: bool) -> Allocatable {
    let block =
        crate::podresources::Memory { kind: "memory".to_owned(), bytes: 1, nodes: [0].into() };
    Allocatable {
        cpus: cpus.parse().unwrap(),
        memory: memory.then_some(block).into_iter().collect(),
        ..Allocatable::default()
    }
}

#[test]
fn a_file_is_read_whole() {
    let (settings, notes) = file(FILE).settings("v1.36.2", Some(&evidence("2-7", true)));
    assert_eq!(
        show(&settings),
        concat!(
            r#"{"confidence":"File","version":"v1.36.2","topologyManager":{"policy":"Restricted","scope":"Pod","#,
            r#""preferClosestNumaNodes":true,"maxAllowableNumaNodes":16},"#,
            r#""cpuManager":{"static":true,"options":["full-pcpus-only"],"reservedCpus":"0-1"},"#,
            r#""memoryManager":{"static":true,"reserved":[{"numa":0,"resource":"hugepages-2Mi","bytes":4194304},"#,
            r#"{"numa":0,"resource":"memory","bytes":1178599424},{"numa":1,"resource":"memory","bytes":1073741824}]},"#,
            r#""featureGates":["Other=false","PodLevelResourceManagers=true"]}"#
        )
    );
    assert_eq!(notes, [""; 0]);
}

#[test]
fn configz_is_the_same_in_another_wrapping() {
    let config = parse_yaml(FILE).unwrap();
    let body = serde_json::json!({"kubeletconfig": config}).to_string();
    let found = Found::configz(&body).unwrap();
    let (settings, _) = found.settings("", None);
    assert_eq!(settings.confidence, Confidence::Configz);
    assert_eq!(settings.topology_manager.policy, TopologyPolicy::Restricted);
    for (body, expected) in
        [("", "no JSON"), ("{}", "no kubeletconfig"), ("[1]", "no kubeletconfig")]
    {
        assert!(Found::configz(body).unwrap_err().contains(expected), "{body}");
    }
}

#[test]
fn without_a_file_the_kubelets_answers_tell() {
    let files = Files { file: PathBuf::from("/does/not/exist"), drop_ins: None };
    let found = Found::files(&files, vec!["configz is forbidden".to_owned()]);
    assert!(!found.is_known());
    let (settings, notes) = found.settings("v1.37.0", Some(&evidence("2-7", false)));
    assert_eq!(settings.confidence, Confidence::Inferred);
    assert!(settings.cpu_manager.is_static && !settings.memory_manager.is_static);
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[1].starts_with("/does/not/exist: "), "{notes:?}");
}

#[test]
fn a_kubelet_that_does_otherwise_is_believed_and_noted() {
    let (settings, notes) = file(FILE).settings("", Some(&evidence("", true)));
    assert!(!settings.cpu_manager.is_static);
    assert_eq!(notes.len(), 1);
    assert!(notes[0].contains("cpuManagerPolicy is not none"), "{notes:?}");
}

#[test]
fn what_is_odd_is_a_default_and_a_note() {
    let odd = "
topologyManagerPolicy: sideways
topologyManagerScope: 3
reservedSystemCPUs: a-b
reservedMemory: [{numaNode: 0, limits: {memory: lots}}, 7]
kubeReserved: {cpu: 1}
systemReserved: {cpu: 250m}
cpuManagerPolicyOptions: [1]
featureGates: {Fine: true, Odd: 7, \"with space\": true}
";
    let (settings, notes) = file(odd).settings("", None);
    assert_eq!(settings.topology_manager, TopologyManager::default());
    assert_eq!(settings.cpu_manager.reserved_milli_cpus, Some(1250));
    assert_eq!(settings.feature_gates, ["Fine=true"]);
    assert_eq!(notes.len(), 3, "{notes:?}");
}

#[test]
fn drop_ins_are_laid_over_the_file_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    fs::create_dir(dir.path().join("d")).unwrap();
    write("config.yaml", FILE);
    write("d/20.conf", "{topologyManagerScope: container, featureGates: {Other: true}}");
    write("d/10.conf", "{topologyManagerScope: pod, cpuManagerPolicy: none}");
    write("d/30.yaml", "{cpuManagerPolicy: static}");
    let files =
        Files { file: dir.path().join("config.yaml"), drop_ins: Some(dir.path().join("d")) };
    let (settings, _) = Found::files(&files, Vec::new()).settings("", None);
    assert_eq!(settings.topology_manager.scope, TopologyScope::Container);
    assert!(!settings.cpu_manager.is_static);
    assert_eq!(settings.feature_gates, ["Other=true", "PodLevelResourceManagers=true"]);
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
        let _ = Found::configz(&text);
        if let Ok(config) = parse_yaml(&text) {
            let found = Found { config, ..Found::default() };
            let _ = found.settings(&text, None);
        }
    }
}
