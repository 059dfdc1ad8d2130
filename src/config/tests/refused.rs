//! What is refused, in which words.

use super::*;

#[test]
fn bad_files_are_refused_with_place_reason_and_remedy() {
    let cases: &[(&str, &str)] = &[
        (
            "bogus: 1",
            "strict decoding error: unknown field \"bogus\": known here are apiVersion, kind, enableProfiling, enableContentionProfiling, delayCacheUntilActive, leaderElection, clientConnection, percentageOfNodesToScore, parallelism, podInitialBackoffSeconds, podMaxBackoffSeconds, profiles, extenders (correct its name or remove it)",
        ),
        (
            "paralelism: 4",
            "strict decoding error: unknown field \"paralelism\": did you mean \"parallelism\"? (correct its name or remove it)",
        ),
        (
            "profiles: [{schedulername: x}]",
            "strict decoding error: unknown field \"profiles[0].schedulername\": did you mean \"schedulerName\"? (correct its name or remove it)",
        ),
        (
            "profiles: [{plugins: {scores: {enabled: []}}}]",
            "strict decoding error: unknown field \"profiles[0].plugins.scores\": did you mean \"score\"? (correct its name or remove it)",
        ),
        (
            "profiles: [{plugins: {score: {enabled: [{name: NodeAffinity, weigth: 2}]}}}]",
            "strict decoding error: unknown field \"profiles[0].plugins.score.enabled[0].weigth\": did you mean \"weight\"? (correct its name or remove it)",
        ),
        (
            "parallelism: many",
            "parallelism: Invalid value: \"many\": must be an integer (write a number without quotes and decimals)",
        ),
        (
            "parallelism: 99999999999",
            "parallelism: Invalid value: 99999999999: must be an integer of 32 bits",
        ),
        (
            "parallelism: 0",
            "parallelism: Invalid value: 0: should be an integer value greater than zero (remove the field to use 16)",
        ),
        (
            "percentageOfNodesToScore: 101",
            "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100] (0 lets the scheduler choose)",
        ),
        (
            "podInitialBackoffSeconds: 0",
            "podInitialBackoffSeconds: Invalid value: 0: must be greater than 0 (remove the field to use 1)",
        ),
        (
            "podMaxBackoffSeconds: 5\npodInitialBackoffSeconds: 7",
            "podMaxBackoffSeconds: Invalid value: 5: must be greater than or equal to PodInitialBackoffSeconds (raise it to 7 or lower podInitialBackoffSeconds)",
        ),
        (
            "leaderElection: yes please",
            "leaderElection: Invalid value: \"yes please\": must be a mapping (write `field: value` lines)",
        ),
        (
            "leaderElection: {leaderElect: maybe}",
            "leaderElection.leaderElect: Invalid value: \"maybe\": must be true or false (without quotes)",
        ),
        (
            "leaderElection: {leaseDuration: 15}",
            "leaderElection.leaseDuration: Invalid value: 15: must be a duration (write it as 15s, 1m30s or 500ms)",
        ),
        (
            "leaderElection: {leaseDuration: \"15\"}",
            "leaderElection.leaseDuration: Invalid value: \"15\": time: missing unit in duration \"15\" (write it as 15s, 1m30s or 500ms)",
        ),
        (
            "leaderElection: {retryPeriod: -2s}",
            "leaderElection.retryPeriod: Invalid value: \"-2s\": must be greater than zero (remove the sign, or the field to use the default)",
        ),
        (
            "leaderElection: {renewDeadline: 15s}",
            "leaderElection.leaseDuration: Invalid value: \"15s\": must be greater than `RenewDeadline` (raise it above 15s or lower renewDeadline)",
        ),
        (
            "leaderElection: {retryPeriod: 9s}",
            "leaderElection.renewDeadline: Invalid value: \"10s\": must be greater than `RetryPeriod` times 1.2 (raise it, or lower retryPeriod below 9s)",
        ),
        (
            "leaderElection: {leaseDuration: 900ms, renewDeadline: 500ms, retryPeriod: 100ms}",
            "leaderElection.leaseDuration: Invalid value: \"900ms\": must be at least 1s (the API counts a lease in whole seconds)",
        ),
        (
            "leaderElection: {resourceLock: configmaps}",
            "leaderElection.resourceLock: Invalid value: \"configmaps\": resourceLock value must be \"leases\" (remove the field)",
        ),
        (
            "clientConnection: {burst: -1}",
            "clientConnection.burst: Invalid value: -1: must be non-negative (remove the field to use 100)",
        ),
        (
            "clientConnection: {qps: fast}",
            "clientConnection.qps: Invalid value: \"fast\": must be a number (without quotes)",
        ),
        (
            "profiles: {schedulerName: x}",
            "profiles: Invalid value: {\"schedulerName\":\"x\"}: must be a list (begin each item with `- `)",
        ),
        (
            "profiles: [{schedulerName: 7}]",
            "profiles[0].schedulerName: Invalid value: 7: must be a string (put it in quotes)",
        ),
        (
            "profiles: [{schedulerName: \"\"}]",
            "profiles[0].schedulerName: Required value (only a single profile may leave its name out)",
        ),
        (
            "profiles: [{schedulerName: a}, {schedulerName: a}]",
            "profiles[1].schedulerName: Duplicate value: \"a\" (give every profile a name of its own)",
        ),
        (
            "profiles: [{schedulerName: a}, {percentageOfNodesToScore: 5}]",
            "profiles[1].schedulerName: Required value (only a single profile may leave its name out)",
        ),
        (
            "profiles: [{pluginConfig: [{name: A}, {name: A}]}]",
            "profiles[0].pluginConfig[1]: Duplicate value: \"A\" (put all arguments of a plugin in one item)",
        ),
        (
            "profiles: [{plugins: {filter: {enabled: [{name: EBSLimits}]}}}]",
            "profiles[0].plugins.filter.enabled[0]: Invalid value: \"EBSLimits\": was invalid in version \"v1\" (KubeSchedulerConfiguration is version \"kubescheduler.config.k8s.io/v1\") (remove it: NodeVolumeLimits does its work)",
        ),
        (
            "profiles: [{schedulerName: a, plugins: {queueSort: {enabled: [{name: A}]}}}, {schedulerName: b}]",
            "profiles[1].plugins.queueSort: Invalid value: {}: must be the same for all profiles (copy that of profiles[0])",
        ),
        (
            "extenders: [{urlPrefix: http://x, prioritizeVerb: p}]",
            "extenders[0].weight: Invalid value: 0: must have a positive weight applied to it (set a weight, or remove prioritizeVerb)",
        ),
        (
            "extenders: [{urlPrefix: http://x, bindVerb: b}, {urlPrefix: http://y, bindVerb: b}]",
            "extenders: Invalid value: \"found 2 extenders implementing bind\": only one extender can implement bind (remove bindVerb from the others)",
        ),
        (
            "extenders: [{urlPrefix: http://x, managedResources: [{name: cpu}]}]",
            "extenders[0].managedResources[0].name: Invalid value: \"cpu\": is an invalid extended resource name (write it as example.com/thing)",
        ),
        (
            "extenders: [{urlPrefix: http://x, tlsConfig: {keyData: secret}}]",
            "extenders[0].tlsConfig.keyData: Invalid value: \"--- REDACTED ---\": must be base64 of PEM (encode it with `base64 -w0`)",
        ),
        (
            "extenders: [{urlPrefix: http://x, httpTimeout: -5s}]",
            "extenders[0].httpTimeout: Invalid value: \"-5s\": must be greater than zero (remove the sign, or the field to use the default)",
        ),
    ];
    for (text, expected) in cases {
        let error = v1(text).expect_err(text).to_string();
        assert_eq!(error, format!("config.yaml: {expected}"), "\n{text}");
    }
}

#[test]
fn other_kinds_and_versions_are_refused() {
    let kind = "kind: KubeSchedulerConfiguration";
    let version = "apiVersion: kubescheduler.config.k8s.io/v1";
    for (text, expected) in [
        (
            format!("{version}beta2\n{kind}"),
            "apiVersion: no kind \"KubeSchedulerConfiguration\" is registered for version \"kubescheduler.config.k8s.io/v1beta2\" (this version was removed from Kubernetes: rewrite the file for kubescheduler.config.k8s.io/v1)",
        ),
        (
            format!("apiVersion: v1\n{kind}"),
            "apiVersion: no kind \"KubeSchedulerConfiguration\" is registered for version \"v1\" (is this the right file? kubescheduler.config.k8s.io/v1 is read)",
        ),
        (
            format!("{version}\nkind: Pod"),
            "kind: no kind \"Pod\" is registered for version \"kubescheduler.config.k8s.io/v1\" (is this the right file? KubeSchedulerConfiguration is read)",
        ),
        (version.to_owned(), "kind: Required value (write KubeSchedulerConfiguration)"),
        (
            String::new(),
            "2 errors:\n  apiVersion: Required value (write kubescheduler.config.k8s.io/v1)\n  kind: Required value (write KubeSchedulerConfiguration)",
        ),
        ("[]".to_owned(), "Invalid value: []: must be a mapping (write `field: value` lines)"),
    ] {
        let error = parse(&text).expect_err(&text).to_string();
        assert_eq!(error, format!("config.yaml: {expected}"), "\n{text}");
    }
}

#[test]
fn all_errors_are_told_at_once() {
    let error =
        v1("parallelism: 0\nbogus: 1\nprofiles: [{percentageOfNodesToScore: -1}]").unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with(
            "config.yaml: 3 errors:\n  strict decoding error: unknown field \"bogus\": "
        ),
        "{text}"
    );
    assert!(text.contains("\n  parallelism: Invalid value: 0: "), "{text}");
    assert!(
        text.contains("\n  profiles[0].percentageOfNodesToScore: Invalid value: -1: "),
        "{text}"
    );
}

#[test]
fn what_is_not_yaml() {
    for text in ["a: [", "a: 1\na: 2\n", "\tb: 1", "a: !!binary |\n  ?\n"] {
        let error = v1(text).expect_err(text);
        assert!(error.to_string().starts_with("config.yaml: "), "{error}");
    }
    assert!(matches!(v1("a: ["), Err(ConfigError::Yaml { .. })));
    let twice = v1("parallelism: 1\nparallelism: 2\n").unwrap_err();
    assert_eq!(
        twice.to_string(),
        "config.yaml: strict decoding error: line 4: key \"parallelism\" already set in map (remove one of them)"
    );
    let two = v1("---\nparallelism: 1\n").unwrap_err().to_string();
    assert_eq!(
        two,
        "config.yaml: is not valid: it has 2 documents; keep one, without `---` after it"
    );
}
