use std::time::Duration;

use serde_json::json;

use super::*;

mod acts;
mod refused;
mod seams;

const HEAD: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

fn parse(text: &str) -> Result<Configuration, ConfigError> {
    Configuration::parse(Path::new("config.yaml"), text)
}

fn v1(rest: &str) -> Result<Configuration, ConfigError> {
    parse(&format!("{HEAD}{rest}"))
}

#[test]
fn without_a_file_muster_is_itself() {
    let config = Configuration::default();
    assert_eq!(config.scheduler_names(), ["muster"]);
    let election = &config.leader_election;
    assert_eq!(election.resource_name, "muster");
    assert_eq!(election.resource_namespace, "muster-system");
    assert_eq!(election.lease_duration, Duration::from_secs(15));
    assert_eq!(config.client_connection.rate_limit(), None);
    assert!(validate::configuration(&config).is_empty());
    assert_eq!(
        Configuration::without_file("elsewhere").leader_election.resource_namespace,
        "elsewhere"
    );
}

/// What kube-scheduler v1.37 writes with `--write-config-to` for an empty file; its
/// profile is compared with the real one in `tests/config`.
#[test]
fn defaults_of_a_file_are_upstreams() {
    let config = v1("").unwrap();
    let mut shown = config.to_json();
    assert_eq!(shown["profiles"][0]["schedulerName"], "default-scheduler");
    shown.as_object_mut().unwrap().remove("profiles");
    assert_eq!(
        shown,
        json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "parallelism": 16,
            "leaderElection": {
                "leaderElect": true, "leaseDuration": "15s", "renewDeadline": "10s",
                "retryPeriod": "2s", "resourceLock": "leases",
                "resourceName": "kube-scheduler", "resourceNamespace": "kube-system",
            },
            "clientConnection": {
                "kubeconfig": "", "acceptContentTypes": "",
                "contentType": "application/vnd.kubernetes.protobuf", "qps": 50, "burst": 100,
            },
            "enableProfiling": true,
            "enableContentionProfiling": true,
            "percentageOfNodesToScore": 0,
            "podInitialBackoffSeconds": 1,
            "podMaxBackoffSeconds": 10,
        })
    );
    assert_eq!(config.warnings, Vec::<String>::new());
    assert_eq!(config.client_connection.rate_limit(), Some((50.0, 100)));
}

#[test]
fn every_field_is_read_and_shown_again() {
    let text = r#"
parallelism: 4
leaderElection: {leaderElect: true, leaseDuration: 1m30s, renewDeadline: 60s, retryPeriod: 500ms, resourceLock: leases, resourceName: mine, resourceNamespace: here}
clientConnection: {kubeconfig: /etc/kube.conf, acceptContentTypes: "", contentType: application/json, qps: 1000.5, burst: 2000}
enableProfiling: false
enableContentionProfiling: false
percentageOfNodesToScore: 50
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 20
delayCacheUntilActive: true
profiles:
- schedulerName: one
  percentageOfNodesToScore: 70
  plugins:
    queueSort: {enabled: [{name: PrioritySort}], disabled: [{name: "*"}]}
    multiPoint: {enabled: [{name: ImageLocality, weight: 3}]}
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated}}
- schedulerName: two
  plugins:
    queueSort: {enabled: [{name: PrioritySort}], disabled: [{name: "*"}]}
extenders:
- urlPrefix: https://extender.example
  filterVerb: filter
  preemptVerb: preempt
  prioritizeVerb: prioritize
  weight: 5
  bindVerb: bind
  enableHTTPS: true
  tlsConfig: {insecure: false, serverName: x, certFile: c, keyFile: k, caFile: a, certData: "Yw==", keyData: "c2VjcmV0", caData: "YQ=="}
  httpTimeout: 3s
  nodeCacheCapable: true
  managedResources: [{name: example.com/gpu, ignoredByScheduler: true}]
  ignorable: true
"#;
    let config = v1(text).unwrap();
    assert_eq!(config.scheduler_names(), ["one", "two"]);
    assert_eq!(config.leader_election.lease_duration, Duration::from_secs(90));
    assert_eq!(config.leader_election.retry_period, Duration::from_millis(500));
    assert_eq!(config.client_connection.rate_limit(), Some((1000.5, 2000)));
    let plugins = &config.profiles[0].plugins["multiPoint"].enabled;
    assert_eq!(plugins.iter().find(|p| p.name == "ImageLocality").unwrap().weight, Some(3));
    assert_eq!(config.extenders[0].http_timeout, Some(Duration::from_secs(3)));

    // The private key is never shown; all else reads back the same.
    let shown = config.to_json();
    assert_eq!(shown["extenders"][0]["tlsConfig"]["keyData"], "--- REDACTED ---");
    assert!(!format!("{config:?}").contains("c2VjcmV0"));
    let again = shown.to_string().replace("--- REDACTED ---", "c2VjcmV0");
    assert_eq!(parse(&again).unwrap(), config);
}

#[test]
fn what_does_not_act_is_said() {
    let config = v1("enableProfiling: true
clientConnection: {contentType: application/json}
extenders: []
percentageOfNodesToScore: 50
profiles:
- plugins:
    multiPoint: {enabled: [{name: GangScheduling}, {name: DynamicResources, weight: 4}]}
    preFilter: {disabled: [{name: NodePorts}]}
    preScore: {disabled: [{name: \"*\"}], enabled: [{name: NodeResourcesFit}]}
    score: {disabled: [{name: \"*\"}], enabled: [{name: NodeResourcesFit}, {name: TaintToleration}]}
")
    .unwrap();
    assert_eq!(config.scheduler_names(), ["default-scheduler"]);
    assert_eq!(
        config.warnings,
        [
            "enableProfiling: has no effect: Muster has no /debug/pprof",
            "percentageOfNodesToScore: has no effect: Muster looks at all nodes",
            "clientConnection.contentType: has no effect: Muster chooses the encoding by itself",
            "profiles[0].plugins: \"GangScheduling\" is accepted but does nothing in this version",
            "profiles[0].plugins.preFilter: that \"NodePorts\" is off here alone has no effect: its Filter needs what it prepares",
            "profiles[0].plugins.preScore: that \"TaintToleration\" is off here alone has no effect: its Score needs what it prepares",
        ]
    );
}

/// Zero, null and empty are the same as absent, as in Go.
#[test]
fn absent_in_many_ways() {
    let same = "parallelism: null
leaderElection: {leaseDuration: 0s, renewDeadline: \"0\", resourceName: \"\", resourceLock: }
clientConnection: {qps: 0, burst: 0, kubeconfig: \"\"}
profiles: []
";
    assert_eq!(v1(same).unwrap(), v1("").unwrap());
    let off =
        v1("leaderElection: {leaderElect: false, leaseDuration: 1s, renewDeadline: -1s}").unwrap();
    assert!(!off.leader_election.leader_elect, "its durations do not matter then");
}

/// YAML as Go's library reads it, JSON included.
#[test]
fn ways_to_write_yaml() {
    for text in [
        "leaderElection:\n  leaderElect: no\n",
        "leaderElection: {leaderElect: off}",
        "leaderElection: &x {leaderElect: false}",
        "\"leaderElection\": {\"leaderElect\": false}",
        "leaderElection: {leaderElect: false}\n---\n",
        "parallelism: 1.6e1\nprofiles: [null]\nleaderElection: {leaderElect: false}",
    ] {
        let config = v1(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(!config.leader_election.leader_elect, "{text}");
    }
}

#[test]
fn files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.yaml");
    let missing = Configuration::load(Some(&path)).unwrap_err();
    assert!(matches!(missing, ConfigError::Read { .. }), "{missing}");
    std::fs::write(&path, format!("{HEAD}parallelism: 3\n")).unwrap();
    let config = Configuration::load(Some(&path)).unwrap();
    assert_eq!((config.parallelism, config.file.as_deref()), (3, Some(&*path)));
    std::fs::write(&path, "#".repeat(2 << 20)).unwrap();
    assert!(matches!(Configuration::load(Some(&path)), Err(ConfigError::TooLong { .. })));
    assert_eq!(Configuration::load(None).unwrap().scheduler_names(), ["muster"]);
}
