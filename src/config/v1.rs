//! Reading `kubescheduler.config.k8s.io/v1`, with upstream's defaults.
//!
//! Owns: which fields exist, their types and defaults. Rules between fields are
//! in `validate`.

use std::path::PathBuf;
use std::time::Duration;

use muster_core::framework::ExtensionPoint;

use super::args;
use super::decode::Object;
use super::error::FieldError;
use super::plugins::{self, MULTI_POINT};
use super::types::{
    Called, ClientConnection, Configuration, Extender, ExtenderTls, LeaderElection,
    ManagedResource, PluginConfig, PluginRef, PluginSet, Plugins, ProfileConfig,
};

/// Name of the only profile if the file names none.
pub(super) const DEFAULT_SCHEDULER: &str = "default-scheduler";
pub(super) const PARALLELISM: i32 = 16;
pub(super) const INITIAL_BACKOFF: i64 = 1;
pub(super) const MAX_BACKOFF: i64 = 10;
pub(super) const LEASE_DURATION: Duration = Duration::from_secs(15);
pub(super) const RENEW_DEADLINE: Duration = Duration::from_secs(10);
pub(super) const RETRY_PERIOD: Duration = Duration::from_secs(2);
pub(super) const RESOURCE_LOCK: &str = "leases";
const LEASE_NAME: &str = "kube-scheduler";
const LEASE_NAMESPACE: &str = "kube-system";
pub(super) const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";
const QPS: f32 = 50.0;
const BURST: i32 = 100;
const HTTP_TIMEOUT: Duration = Duration::from_secs(5);

/// The whole file. What it sets and does not act is told in `warnings`.
pub(super) fn configuration(mut file: Object<'_>, mut warnings: Vec<String>) -> Configuration {
    // Read before, to know that this is the right kind of file.
    let _ = (file.any("apiVersion"), file.any("kind"));
    let enable_profiling = file.bool("enableProfiling");
    let contention = file.bool("enableContentionProfiling");
    if enable_profiling.or(contention).is_some() {
        warnings.push("enableProfiling: has no effect: Muster has no /debug/pprof".to_owned());
    }
    let delay = file.bool("delayCacheUntilActive").unwrap_or(false);
    if delay {
        warnings.push(
            "delayCacheUntilActive: has no effect: a standby of Muster keeps its caches warm"
                .to_owned(),
        );
    }
    let election = file.object("leaderElection");
    let client = file.object("clientConnection");
    let percentage = file.i32("percentageOfNodesToScore").unwrap_or(0);
    sampled("percentageOfNodesToScore", percentage, &mut warnings);
    Configuration {
        file: None,
        leader_election: leader_election(election),
        client_connection: client_connection(client, &mut warnings),
        parallelism: file.i32("parallelism").unwrap_or(PARALLELISM),
        percentage_of_nodes_to_score: percentage,
        pod_initial_backoff_seconds: file
            .i64("podInitialBackoffSeconds")
            .unwrap_or(INITIAL_BACKOFF),
        pod_max_backoff_seconds: file.i64("podMaxBackoffSeconds").unwrap_or(MAX_BACKOFF),
        profiles: profiles(&mut file, &mut warnings),
        extenders: file.objects("extenders").into_iter().map(extender).collect(),
        enable_profiling: enable_profiling.unwrap_or(true),
        enable_contention_profiling: contention.unwrap_or(enable_profiling.unwrap_or(true)),
        delay_cache_until_active: delay,
        warnings,
    }
}

fn sampled(path: &str, percentage: i32, warnings: &mut Vec<String>) {
    if (1..100).contains(&percentage) {
        warnings.push(format!("{path}: has no effect: Muster looks at all nodes"));
    }
}

fn profiles(file: &mut Object<'_>, warnings: &mut Vec<String>) -> Vec<ProfileConfig> {
    let written = file.objects("profiles");
    // As upstream: only a single profile may leave its name out.
    let default = if written.len() <= 1 { DEFAULT_SCHEDULER } else { "" };
    let mut profiles: Vec<_> =
        written.into_iter().map(|profile_file| profile(profile_file, default, warnings)).collect();
    if profiles.is_empty() {
        profiles.push(ProfileConfig::unresolved(DEFAULT_SCHEDULER));
    }
    profiles
}

fn profile(mut file: Object<'_>, default: &str, warnings: &mut Vec<String>) -> ProfileConfig {
    let percentage = file.i32("percentageOfNodesToScore");
    let path = file.path("percentageOfNodesToScore");
    sampled(&path, percentage.unwrap_or(0), warnings);
    let written = file.object("plugins").map(plugin_sets);
    ProfileConfig {
        scheduler_name: file.string("schedulerName").unwrap_or_else(|| default.to_owned()),
        percentage_of_nodes_to_score: percentage,
        plugins: plugins::merge(written.as_ref()),
        plugin_config: file.objects("pluginConfig").into_iter().map(plugin_config).collect(),
        called: Called::new(),
    }
}

fn plugin_sets(mut file: Object<'_>) -> Plugins {
    let mut sets = Plugins::new();
    for key in ExtensionPoint::ALL.map(ExtensionPoint::key).into_iter().chain([MULTI_POINT]) {
        if let Some(set) = file.object(key) {
            sets.insert(key, plugin_set(set));
        }
    }
    sets
}

fn plugin_set(mut file: Object<'_>) -> PluginSet {
    let list = |items: Vec<Object<'_>>| items.into_iter().map(plugin_ref).collect();
    PluginSet { enabled: list(file.objects("enabled")), disabled: list(file.objects("disabled")) }
}

fn plugin_ref(mut file: Object<'_>) -> PluginRef {
    let weight = file.i32("weight").filter(|weight| *weight != 0);
    PluginRef { name: file.string("name").unwrap_or_default(), weight }
}

fn plugin_config(mut file: Object<'_>) -> PluginConfig {
    let name = file.string("name").unwrap_or_default();
    let args = if !args::has_form(&name) {
        file.any("args").cloned()
    } else if file.has("args") {
        file.object("args").and_then(|args| args::read(&name, args))
    } else {
        let _ = file.any("args");
        args::defaults(&name)
    };
    PluginConfig { name, args }
}

pub(super) fn leader_election(file: Option<Object<'_>>) -> LeaderElection {
    let mut election = LeaderElection {
        leader_elect: true,
        lease_duration: LEASE_DURATION,
        renew_deadline: RENEW_DEADLINE,
        retry_period: RETRY_PERIOD,
        resource_lock: RESOURCE_LOCK.to_owned(),
        resource_name: LEASE_NAME.to_owned(),
        resource_namespace: LEASE_NAMESPACE.to_owned(),
    };
    let Some(mut file) = file else {
        return election;
    };
    election.leader_elect = file.bool("leaderElect").unwrap_or(true);
    let active = election.leader_elect;
    for (key, place) in [
        ("leaseDuration", &mut election.lease_duration),
        ("renewDeadline", &mut election.renew_deadline),
        ("retryPeriod", &mut election.retry_period),
    ] {
        if let Some(duration) = positive_duration(&mut file, key, active) {
            *place = duration;
        }
    }
    for (key, place) in [
        ("resourceLock", &mut election.resource_lock),
        ("resourceName", &mut election.resource_name),
        ("resourceNamespace", &mut election.resource_namespace),
    ] {
        if let Some(text) = file.text(key) {
            *place = text;
        }
    }
    election
}

/// A duration above zero; zero is the same as absent, as in Go.
fn positive_duration(file: &mut Object<'_>, key: &'static str, active: bool) -> Option<Duration> {
    let duration = file.duration(key)?;
    let valid = duration.to_std();
    if valid.is_none() && active {
        let shown = duration.to_string();
        let error = FieldError::invalid(file.path(key), &shown, "must be greater than zero");
        file.report(error.remedy("remove the sign, or the field to use the default"));
    }
    valid.filter(|duration| !duration.is_zero())
}

fn client_connection(file: Option<Object<'_>>, warnings: &mut Vec<String>) -> ClientConnection {
    let mut client = ClientConnection {
        kubeconfig: None,
        accept_content_types: String::new(),
        content_type: CONTENT_TYPE.to_owned(),
        qps: QPS,
        burst: BURST,
    };
    let Some(mut file) = file else {
        return client;
    };
    for key in ["acceptContentTypes", "contentType"] {
        if file.has(key) {
            let path = file.path(key);
            warnings.push(format!("{path}: has no effect: Muster chooses the encoding by itself"));
        }
    }
    client.kubeconfig = file.text("kubeconfig").map(PathBuf::from);
    client.accept_content_types = file.string("acceptContentTypes").unwrap_or_default();
    client.content_type = file.text("contentType").unwrap_or(client.content_type);
    // Zero is the same as absent, as in Go.
    client.qps = file.f32("qps").filter(|qps| *qps != 0.0).unwrap_or(QPS);
    client.burst = file.i32("burst").filter(|burst| *burst != 0).unwrap_or(BURST);
    client
}

fn extender(mut file: Object<'_>) -> Extender {
    let http_timeout = positive_duration(&mut file, "httpTimeout", true);
    let http_timeout = Some(http_timeout.unwrap_or(HTTP_TIMEOUT));
    let managed = |mut file: Object<'_>| ManagedResource {
        name: file.string("name").unwrap_or_default(),
        ignored_by_scheduler: file.bool("ignoredByScheduler").unwrap_or_default(),
    };
    Extender {
        url_prefix: file.string("urlPrefix").unwrap_or_default(),
        filter_verb: file.string("filterVerb").unwrap_or_default(),
        preempt_verb: file.string("preemptVerb").unwrap_or_default(),
        prioritize_verb: file.string("prioritizeVerb").unwrap_or_default(),
        weight: file.i64("weight").unwrap_or_default(),
        bind_verb: file.string("bindVerb").unwrap_or_default(),
        enable_https: file.bool("enableHTTPS").unwrap_or_default(),
        tls_config: file.object("tlsConfig").map(extender_tls),
        http_timeout,
        node_cache_capable: file.bool("nodeCacheCapable").unwrap_or_default(),
        managed_resources: file.objects("managedResources").into_iter().map(managed).collect(),
        ignorable: file.bool("ignorable").unwrap_or_default(),
    }
}

fn extender_tls(mut file: Object<'_>) -> ExtenderTls {
    ExtenderTls {
        insecure: file.bool("insecure").unwrap_or_default(),
        server_name: file.string("serverName").unwrap_or_default(),
        cert_file: file.string("certFile").unwrap_or_default(),
        key_file: file.string("keyFile").unwrap_or_default(),
        ca_file: file.string("caFile").unwrap_or_default(),
        cert_data: file.string("certData").unwrap_or_default(),
        key_data: file.string("keyData").unwrap_or_default(),
        ca_data: file.string("caData").unwrap_or_default(),
    }
}
